"""Which known mistakes explain everything that was seen: what is wrong, and also what is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.verification.fitted import fitted
from symattn.verification.judge import Judged, explains
from symattn.verification.mistakes import MISTAKES, Mistake
from symattn.verification.outofrange import out_of_range
from symattn.verification.reference import Variant

_FIRST, _RIGHT = 4, 40  # wrong cases that a mistake must explain to be looked at further; right ones looked at


@dataclass(frozen=True)
class Cause:
    """Wrong cases, and the mistakes of which each alone explains them all; none, where nothing known does."""

    records: tuple[Judged, ...]
    mistakes: tuple[Mistake, ...]
    raises: bool = False  # whether they explain all calls that raised too

    @property
    def variant(self) -> Variant | None:
        """The one changed definition that gives what the function gave, where there is one."""
        only = self.mistakes[0].variant if len(self.mistakes) == 1 else None
        return only if only is not None and (only.steps or only.spec or only.values != "v") else None


def causes(spec: Attention, precision: Precision, records: Sequence[Judged]) -> tuple[Cause, ...]:
    """What explains the wrong values and shapes among ``records``, one cause for each group of them."""
    wrong = sorted((r for r in records if r.finding in ("values", "not finite", "shape")), key=lambda r: r.case.size)
    right = sorted((r for r in records if r.finding is None), key=lambda r: r.case.size)
    if not wrong:
        return ()
    together = named(spec, precision, wrong, right, records)
    together = together or named(spec, precision, wrong, right, records, tuple(fitted(spec, records)))[:1]
    if together:
        return (Cause(tuple(wrong), together, _explain_errors(spec, precision, together, records)),)
    lost = [r for r in wrong if r.finding == "not finite"]
    overflow = out_of_range(precision, lost, [r for r in records if r.ratios is not None]) if lost else None
    if overflow is None:
        return (Cause(tuple(wrong), ()),)
    shapes = [r for r in wrong if r.ratios is None]  # it has agreed with every value
    found = (Cause(tuple(r for r in wrong if r.ratios is not None), (overflow,)),)
    return found if not shapes else (*found, Cause(tuple(shapes), named(spec, precision, shapes, right, records)))


def named(
    spec: Attention,
    precision: Precision,
    wrong: list[Judged],
    right: list[Judged],
    records: Sequence[Judged],
    among: Sequence[Mistake] = MISTAKES,
) -> tuple[Mistake, ...]:
    """Those ``among`` these that explain every wrong case, contradict no right one, and raise where it does."""
    raised = [r for r in records if r.finding == "raises"]
    others = [*wrong, *right[:_RIGHT], *raised[:_FIRST]]
    possible = [m for m in among if _possible(spec, m, wrong[0])]
    survivors = [m for m in possible if False not in _answers(spec, precision, m, wrong[:_FIRST])]
    explaining = [m for m in survivors if _explains_all(_answers(spec, precision, m, others))]
    return tuple({m.cause: m for m in explaining}.values())


def _explain_errors(
    spec: Attention, precision: Precision, mistakes: tuple[Mistake, ...], records: Sequence[Judged]
) -> bool:
    """Whether every call that raised had shapes for which the mistake has no result."""
    raised = [r for r in records if r.finding == "raises"]
    return all(explains(spec, precision, r, m.variant) is True for m in mistakes for r in raised)


def _possible(spec: Attention, mistake: Mistake, judged: Judged) -> bool:
    """Whether the mistake changes a step that there is."""
    steps = {step.name for step in spec.pipeline(frozenset(judged.case.inputs))}
    variant = mistake.variant
    changed = variant.values != "v" or variant.spec is not None or bool(steps & variant.steps.keys())
    return mistake.applies(spec) and changed


def _answers(spec: Attention, precision: Precision, mistake: Mistake, cases: Sequence[Judged]) -> Iterator[bool | None]:
    return (explains(spec, precision, judged, mistake.variant) for judged in cases)


def _explains_all(answers: Iterator[bool | None]) -> bool:
    """Whether none contradicts, and some show the mistake clearly. Stops at the first contradiction."""
    seen = False
    for answer in answers:
        if answer is False:
            return False
        seen = seen or answer is True
    return seen
