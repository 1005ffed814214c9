"""The table of docs/transformers.md, made from what the layers give: ``python -m tests.models.page`` writes it."""

from pathlib import Path

from tests.models.cases import CASES, Case

PAGE = Path(__file__).parents[2] / "docs" / "transformers.md"
_BEGIN, _END = "<!-- made by tests/models/page.py: begin -->", "<!-- end -->"


def made() -> str:
    """The table of layers, what is to be known of some, and what was refused of each."""
    cases = [*CASES.values()]
    told = dict.fromkeys(of.note for of in cases if of.note)
    notes = [f"- {'; '.join(of.model for of in cases if of.note == note)}: {note}" for note in told]
    wrong = [f"- {of.model}: {'; '.join(w.words for w in of.wrong)}." for of in cases]
    parts = [_table(cases), "What differs from the preset or the paper, and what to know of a layer:", "\n".join(notes)]
    return "\n\n".join([*parts, "Refused, each alone:", "\n".join(wrong)])


def inside(text: str) -> str:
    """What a page has between the marks."""
    return text.split(_BEGIN)[1].split(_END)[0].strip()


def write() -> None:
    text = PAGE.read_text(encoding="utf-8")
    new = f"{_BEGIN}\n\n{made()}\n\n{_END}"
    PAGE.write_text(f"{text.split(_BEGIN)[0]}{new}{text.split(_END)[1]}", encoding="utf-8")


def _table(cases: list[Case]) -> str:
    lines = ["| model | layer | is | in float32 |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_row, cases)])


def _row(of: Case) -> str:
    single = ", ".join(of.single) or "nothing"
    return f"| {of.model} | `{type(of.seen.layer).__name__}` | `{of.written}` | {single} |"


if __name__ == "__main__":
    write()
