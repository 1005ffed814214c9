"""The relations of accepted certificates as lines of text, made from their terms alone.

Words of a file are never printed here as mathematics: a name that is not a word of letters and digits is quoted. Like
the checker, this module uses neither the prover nor any library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
LONGEST = 1000  # characters of a relation that is printed
_ATOMS = ("number", "size", "letter", "function", "exp", "is")
_SIDES = (
    ("smaller", "larger"),
    ("left", "right"),
    ("of", "value"),
    ("form", "value"),
    ("left", "form"),
)


def one_line(x: object, longest: int = 500) -> str:
    """Return text on one line, cut if it is long, with control characters spelled out."""
    single_spaced = " ".join(str(x).split())
    words = "".join(c if c.isprintable() else repr(c)[1:-1] for c in single_spaced)
    return words if len(words) <= longest else words[: longest - 3] + "…"


def relations_of(certificate: Record) -> Iterator[str]:
    """Yield the relations that an accepted certificate shows, each with its indices and hypotheses."""
    hypotheses = [*dict.fromkeys(_yield_hypothesis_lines(certificate))]
    where = f", where {', '.join(hypotheses)}" if hypotheses else ""
    for relation in _yield_relation_lines(certificate):
        yield f"{relation}{where}"


def _yield_relation_lines(e: Record) -> Iterator[str]:
    kind = e["kind"]
    if kind == "certificate":
        for equation in e["equations"]:
            left = written(equation["left"])
            yield _for_all(equation, f"{left} = {written(equation['right'])}")
    elif kind == "sign":
        # Signs are stored as differences that are at least, or above, 0.
        sign = "≤" if e["relation"] in ("≥", "≥ 0") else "<"
        for pair in e["conclusions"]:
            smaller = written(pair["smaller"])
            yield _for_all(pair, f"{smaller} {sign} {written(pair['larger'])}")
    elif kind == "differing":
        counted = e["sizes"].items()
        sizes = ", ".join(f"{_quote_misleading_name(sort)} = {n}" for sort, n in counted)
        yield f"not always {written(e['left'])} = {written(e['right'])}" + (
            f"; they differ at {sizes}" if sizes else ""
        )
    elif kind == "bits":
        yield f"two programs do the same roundings, and two others differ in {one_line(e['format'], 40)}"
    else:
        yield from _yield_conclusion_lines(e)


def _yield_conclusion_lines(e: Record) -> Iterator[str]:
    """Yield the conclusions of a rule; of rules that conclude about functions, what the rule was applied to."""
    rule = _quote_misleading_name(e["rule"])
    for conclusion in e["conclusions"]:
        # Two names for sides: equations, inequalities and limits each have their own.
        sides = next((pair for pair in _SIDES if {*pair} <= {*conclusion}), None)
        if sides is not None:
            sign = "≤" if sides == ("smaller", "larger") else "→" if rule == "limit" else "="
            left, right = (written(conclusion[side]) for side in sides)
            yield _for_all(conclusion, f"{left} {sign} {right} (by the rule {rule})")
    # Rules about functions conclude no equation, so that their premises are shown.
    if not e["conclusions"]:
        for premise in e["premises"]:
            for relation in _yield_relation_lines(premise):
                yield f"{relation} (a premise of the rule {rule})"
        parts = [part for value in e.values() for part in _yield_function_lines(value)]
        yield _for_all({"free": ()}, f"what the rule {rule} concludes of " + "; ".join(parts))


def _yield_function_lines(x: Any) -> Iterator[str]:
    """Yield the functions that a rule is about: letter[indices] = expression."""
    if isinstance(x, Mapping) and {"letter", "free", "expression"} <= {*x}:
        indices = [[index] for index, _ in x["free"]]
        yield f"{written(['letter', x['letter'], indices])} = {written(x['expression'])}"
    elif isinstance(x, (list, tuple)):
        for part in x:
            yield from _yield_function_lines(part)


def _for_all(e: Record, relation: str) -> str:
    indices = ", ".join(
        f"{_quote_misleading_name(index)} ≤ {_quote_misleading_name(sort)}"
        for index, sort in e["free"]
    )
    words = f"{relation}, for all {indices}" if indices else relation
    return (
        words
        # The reader of the checker sees what is proved, and no page of text.
        if len(words) <= LONGEST
        else f"a relation of {len(words)} characters, which is not printed"
    )


def _yield_hypothesis_lines(e: Record) -> Iterator[str]:
    for name in e.get("positive", ()):
        yield f"{_quote_misleading_name(name)} > 0"
    for name in e.get("not negative", ()):
        yield f"{_quote_misleading_name(name)} ≥ 0"
    for x in e.get("hypotheses", ()):
        words = f"{written(x['expression'])} {_format_comparison_with_zero(x['relation'])}"
        # A divisor is not 0, whatever its length.
        yield words if len(words) <= LONGEST else "a divisor is not 0"
    for premise in e.get("premises", ()):
        yield from _yield_hypothesis_lines(premise)
    for pair in e.get("rules", ()):
        yield " + ".join(f"{_quote_misleading_name(name)}²" for name in pair) + " = 1"


def _format_comparison_with_zero(relation: object) -> str:
    return {">": "> 0", "≥": "≥ 0", "≠": "≠ 0"}.get(str(relation), f"is {one_line(relation, 20)}")


def written(x: Sequence[Any]) -> str:
    """Return an expression of a certificate as text: Σ_{j1≤n} exp(s[i0, j1])."""
    kind, *parts = x
    if kind == "number":
        return one_line(parts[0], 60)
    if kind == "size":
        return _quote_misleading_name(parts[0])
    if kind == "letter":
        name, indices = parts
        return _quote_misleading_name(name) + (
            f"[{', '.join(map(_format_permuted_index, indices))}]" if indices else ""
        )
    if kind == "is":
        relation, left, right = parts
        return f"[{_format_permuted_index(left)} {one_line(relation, 5)} {_format_permuted_index(right)}]"
    if kind in ("total", "bound"):
        index, sort, body = parts
        sign = "Σ" if kind == "total" else "over "
        range_ = f"{_quote_misleading_name(index)}≤{_quote_misleading_name(sort)}"
        return f"{sign}_{{{range_}}} {_parenthesize_factor(body)}"
    if kind == "sum":
        return " + ".join(map(written, parts)) or "0"
    if kind == "product":
        return " ".join(map(_parenthesize_factor, parts)) or "1"
    if kind == "ratio":
        return "/".join(map(_parenthesize_factor, parts))
    # Heads that are not functions, such as exp, are written by their own names.
    name = (
        _quote_misleading_name(parts.pop(0)) if kind == "function" else _quote_misleading_name(kind)
    )
    return f"{name}({', '.join(map(written, parts))})"


def _parenthesize_factor(x: Sequence[Any]) -> str:
    plain = x[0] in _ATOMS
    if x[0] == "number":
        # −1/2 under a power or in a product would read as another number.
        plain = plain and "/" not in str(x[1]) and "-" not in str(x[1])
    return written(x) if plain else f"({written(x)})"


def _format_permuted_index(i: Sequence[Any]) -> str:
    name, *permutations = i
    result = _quote_misleading_name(name)
    for permutation in permutations:
        result = f"{_quote_misleading_name(permutation)}({result})"
    return result


def _quote_misleading_name(x: object) -> str:
    """Return a name; in quotation marks unless it consists of words of letters and digits, as words might mislead."""
    words = one_line(x, 60)
    plain = (
        words.replace("_", "").replace(" ", "").replace("@", "").replace("[", "").replace("]", "")
    )
    return words if plain.isalnum() and len(words) <= 30 else repr(words)
