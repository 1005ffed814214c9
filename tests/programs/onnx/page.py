"""The tables of docs/onnx.md, made from what a run gives: ``python -m tests.programs.onnx.page`` writes them."""

from collections.abc import Iterable
from pathlib import Path

from tests.programs.onnx.cases import OPERATORS
from tests.programs.onnx.features import FEATURES, features
from tests.programs.onnx.judging import Outcome, outcomes

PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"
_BEGIN, _END = "<!-- made by tests/programs/onnx/page.py: begin -->", "<!-- end -->"
_ATTENTION = ("Attention", "FlexAttention")


def made(found: Iterable[Outcome]) -> str:
    """The tables, and the cases that differ."""
    all_of_them = tuple(found)
    return "\n\n".join(
        (_by_operator(all_of_them), _by_format(all_of_them), _by_feature(all_of_them), _differing(all_of_them))
    )


def every() -> tuple[Outcome, ...]:
    """All cases, judged, operator by operator."""
    return tuple(outcome for operator in OPERATORS for outcome in outcomes(operator))


def inside(text: str) -> str:
    """What a page has between the marks."""
    return text.split(_BEGIN)[1].split(_END)[0].strip()


def write() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(inside(text), made(every())), encoding="utf-8")


def _by_operator(found: tuple[Outcome, ...]) -> str:
    rows = []
    for operator in OPERATORS:
        opsets = sorted({o.case.opset for o in found if o.case.operator == operator})
        rows += [
            (f"{operator}-{v}", [o for o in found if (o.case.operator, o.case.opset) == (operator, v)]) for v in opsets
        ]
    return _table("operator and opset", [*rows, ("**all**", list(found))])


def _by_format(found: tuple[Outcome, ...]) -> str:
    formats = sorted({o.case.dtype for o in found})
    return _table("format", [(f, [o for o in found if o.case.dtype == f]) for f in formats])


def _by_feature(found: tuple[Outcome, ...]) -> str:
    shown = {o.case.name: features(o.case) for o in found if o.case.operator in _ATTENTION}
    rows = [(f, [o for o in found if f in shown.get(o.case.name, [])]) for f in FEATURES]
    return _table("Attention and FlexAttention with", rows)


def _table(head: str, rows: list[tuple[str, list[Outcome]]]) -> str:
    lines = [f"| {head} | cases | reproduced |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {len(of)} | {sum(o.reproduced for o in of)} |" for name, of in rows)])


def _differing(found: tuple[Outcome, ...]) -> str:
    lines = [f"- `{o.case.name}`: {'; '.join(o.differences)}" for o in found if not o.reproduced]
    return "\n".join(["Cases that differ:", "", *lines]) if lines else "No case differs."


if __name__ == "__main__":
    write()
