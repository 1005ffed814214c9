"""The table of what each family's adapter takes for granted, from the rules themselves: for docs/models.md."""

from __future__ import annotations

from symattn.models.configurations.families import FAMILIES


def table() -> str:
    """A table of Markdown: family, kind of attention, and what its rules say."""
    lines = ["| `model_type` | kind | what is read, and what is taken for granted |", "|---|---|---|"]
    for name, family in FAMILIES.items():
        for kind, rules in family.kinds.items():
            says = [rule.says for rule in rules]
            if family.before:
                says.append(f"{family.before}, for which there is no field: only an audit's calls and parts are held")
            lines.append(f"| `{name}` | {kind} | {'; '.join(says)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
