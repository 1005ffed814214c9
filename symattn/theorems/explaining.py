"""The argument of a theorem that the prover decided: its equations, and how each was reduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from symattn.arrays.index.expressions import Expression, Masked
from symattn.arrays.index.writing import Writing, in_blocks, length, size
from symattn.document import model as md
from symattn.document.errors import Refused
from symattn.document.evidence import Evidence, Grade
from symattn.document.measure import width
from symattn.document.model import Block, Inline, Text
from symattn.document.notation import Node, Sum, Words, call, equals, name, relation
from symattn.proof import certified
from symattn.proof.certificate import by_definition
from symattn.proof.prover import ElementEquation
from symattn.proof.theorem import TheoremOutcome
from symattn.theorems.findings import sizes_written

_LONGEST = 90  # the most parts of an expression that is printed
_LINE = 34.0  # em of an equation on one line
_WIDEST = 60.0  # em of a term, which is shrunk to a line
_SHORT = 8.0  # em of formulas in a reason
_FEW = 3  # the most equations in a statement
_MOST = 12  # the most equations that are printed, those with the longest proofs first


def explained(outcome: TheoremOutcome) -> tuple[Block, ...]:
    """Return the argument as blocks; () if the prover proved no equation."""
    proofs = [p for p in outcome.decision.proofs if p.proved]
    cases = [(p, c) for p in proofs for c in p.cases]
    if not cases:
        return ()
    result = sorted(cases, key=lambda pc: pc[1].how == "normal form")[:_MOST]
    left_out = len(cases) - len(result)
    out: list[Block] = []
    for n, (_, case) in enumerate(result, 1):
        out += _case(case, f"Equation {n} of {len(cases)}" if len(cases) > 1 else "The equation")
    if left_out:
        out.append(md.Paragraph((f"{left_out} more equations are decided in the same way.",)))
    if any(in_blocks(side) for _, c in result for side in (c.left, c.right)):
        words = "an axis made of several blocks has, before its indices, the numbers of the blocks"
        out.append(md.Note((f"A letter with {words}.",)))
    if any(_masks(side) for _, c in result for side in (c.left, c.right)):
        words = "is x where a is 1, and −∞ where a is 0"
        out.append(md.Note((call(Words("masked"), "x", "a"), f" {words}.")))
    return (*out, *_checked(outcome))


def stated(outcome: TheoremOutcome) -> tuple[Node, ...]:
    """Return the proved equations between elements, as the code gives them, before any simplification; () if they are
    many or long."""
    cases = [c for p in outcome.decision.proofs if p.proved for c in p.cases]
    result: list[Node] = []
    for case in cases if len(cases) <= _FEW else ():
        sides = case.written
        writing = Writing(sides, case.indices)
        left, right = (_written(writing, side) for side in sides)
        if left is None or right is None or width(left) + width(right) > _LINE:
            return ()
        result.append(equals(left, right))
    return tuple(result)


def _masks(x: Expression) -> bool:
    return isinstance(x, Masked) or any(map(_masks, x.children))


def _case(case: ElementEquation, label: str) -> Iterator[Block]:
    writing = Writing([x for x in (case.left, case.right, case.numerator) if x is not None], case.indices)
    free: list[Inline] = []
    for i in case.indices:
        free += [", " if free else ", for all ", relation(writing.index(i), "≤", size(i.sort))]
    yield md.Paragraph((f"{label}{':' if not free else ''}", *free, ":" if free else ""))
    left, right = _written(writing, case.left), _written(writing, case.right)
    if left is None or right is None:
        parts = length(case.left) + length(case.right)
        yield md.Paragraph((f"(It has {parts} parts, too many to print; the certificate has them all.)",))
    else:
        yield md.Steps(_equation(left, right, _reason(case)))
    yield from _cleared(case, writing)


def _equation(left: Node, right: Node, reason: Text) -> tuple[md.Step, ...]:
    """Return left = right; if that is long, with a letter for each side, since first sides are not broken."""
    proved = Evidence(Grade.PROVED)
    if width(left) + width(right) <= _LINE:
        return (md.Step(equals(left, right), reason, proved),)
    first = md.Step(equals(name("L"), left), ("the left side",))
    second = md.Step(equals(name("R"), right), ("the right side",))
    return (first, second, md.Step(equals(name("L"), name("R")), reason, proved))


def _reason(case: ElementEquation) -> Text:
    if case.how != "normal form":
        return ()
    return ("by definition: both sides are written alike" if by_definition(case) else "equal normal forms",)


def _cleared(case: ElementEquation, writing: Writing) -> Iterator[Block]:
    if case.numerator is None or case.limits is None:
        return
    numerator = _written(writing, case.numerator)
    if numerator is not None:
        divisors = [_written(writing, d.base) for d in case.divisors]
        shown = [d**p.times if p.times > 1 else d for d, p in zip(divisors, case.divisors, strict=True) if d]
        by: Text = ("the difference, cleared of denominators",) if divisors else ("the difference",)
        if shown and len(shown) == len(divisors) and sum(map(width, shown)) < _SHORT:
            by = ("the difference, times ", *_listed(shown))
        yield md.Steps((md.Step(equals(0, numerator), by, Evidence(Grade.PROVED)),))
    yield md.Paragraph(_counted(case))


def _listed(nodes: list[Node]) -> Text:
    parts: list[Inline] = []
    for x in nodes:
        parts += [", " if parts else "", x]
    return tuple(p for p in parts if p != "")


def _counted(case: ElementEquation) -> Text:
    """Say D_s, and the sizes that suffice by the cut-off theorem."""
    assert case.limits is not None
    counted = case.limits.counted
    if not counted:
        return ("No size and no sum occurs: one polynomial identity decides it.",)
    out: list[Inline] = ["Free and bound indices in any term, at most: "]
    for n, (sort, d) in enumerate(counted.items()):
        out += [", " if n else "", equals(name("D", size(sort)), d)]
    if case.how == "one size":
        return (*out, ". Every bound index shows in a letter, so the one size ", *sizes_written(case.sizes[0]),
                " decides all sizes: there the polynomial is zero.")  # fmt: skip
    extra = " of each number of rows, with 1/Z · Z = 1," if case.how == "rows" else ""
    return (*out, f". So the {len(case.sizes)} sizes", extra, " up to ", *sizes_written(case.limits.top),
            " decide all sizes: at each of them the polynomial is zero.")  # fmt: skip


def _written(writing: Writing, x: Any) -> Node | None:
    """Return an expression as a formula; None if it is too long to print, or has parts without notation."""
    if length(x) > _LONGEST:
        return None
    try:
        shown = writing(x)
    except Refused:
        return None
    terms = shown.terms if isinstance(shown, Sum) else (shown,)
    return shown if all(width(t) <= _WIDEST for t in terms) else None


def certificates(outcome: TheoremOutcome) -> tuple[Mapping[str, Any], ...]:
    """Return the certificates of an outcome."""
    return certified.certificates(outcome.decision.proofs, outcome.decision.premises)


def _checked(outcome: TheoremOutcome) -> tuple[Block, ...]:
    """Describe the independent checker's verdicts on the certificates."""
    verdicts = certified.verdicts(certificates(outcome))
    refused = [v.why for v in verdicts if not v.accepted]
    if refused:
        return (md.Note((f"The checker refuses {len(refused)} of {len(verdicts)} certificates: {refused[0]}.",)),)
    many = "The certificate is" if len(verdicts) == 1 else f"All {len(verdicts)} certificates are"
    epsilon = max(v.epsilon for v in verdicts)
    error = f", with an error of at most {epsilon:.0e}" if epsilon else ""
    return (md.Paragraph((f"{many} accepted by the checker, which shares no code with the prover{error}.",)),)
