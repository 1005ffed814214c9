"""Steps that are computed in a narrower format than the contract's: their results, and what a norm measures.

A number that is computed before it is rounded may lie on either side of a rounding boundary. So each mistake comes with
two ways around it, whose numbers are moved slightly up and down (``storing``). Numbers beyond the range of the narrower
format are infinite, and those below it are zero: in squares this shows most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.attention.norms import NormKind
from symattn.attention.spec import Attention
from symattn.attention.stated_flow import StatedFlow
from symattn.bounds.changed_steps import ChangedSteps, Laid
from symattn.bounds.mistake import At, Mistake, Wrong, change
from symattn.bounds.reference import Variant
from symattn.bounds.storing import FORMATS, MOVED
from symattn.verification.rules import by_role, norms
from symattn.verification.rules.norm_records import list_norm_groups, normalise_by

#: Rounds numbers to the narrower format.
Round = Callable[[Any], Any]
#: From the rounding to wrong steps, by name.
MakeSteps = Callable[[Round], Mapping[str, Wrong]]


def of_attention(
    spec: Attention, names: frozenset[str], precision: Precision, several: bool
) -> Iterator[Mistake]:
    """Yield the mistakes in the norms of an attention; ``storing`` has those of its other steps.

    With ``several``, more than one of the numbers that a norm measures are rounded, else one of them.
    """

    def make_way(wrong: Mapping[str, Wrong]) -> Variant:
        return Variant({name: change(name, other) for name, other in wrong.items()}, rows=False)

    for f in _list_narrow_formats(precision):
        for group in list_norm_groups(spec, names):
            for words, measured in _list_narrow_measures(group.record.kind, several):
                make = partial(
                    _make_narrow_norms,
                    group.record.kind,
                    measured,
                    tuple(step.name for step in group.steps),
                    normalise_by,
                )
                words = f"{group.lead}{words} rounded to {f.name}"
                yield _make_mistake(group.blames, words, f, make, make_way)


def of_stated_steps(
    spec: StatedFlow, precision: Precision, laid: Laid, several: bool
) -> Iterator[Mistake]:
    """Yield the mistakes in each step of a definition; those of an attention inside are the attention's.

    ``several`` as above.
    """

    def make_way(wrong: Mapping[str, Wrong]) -> ChangedSteps:
        changes = {name: change(name, other) for name, other in wrong.items()}
        return ChangedSteps(spec, changes, laid=laid)

    for f in _list_narrow_formats(precision):
        for step in spec.pipeline_of_all:
            noun = spec.noun_of(step.name)
            for kind in _NORM_ROLES.get(step.role, ()):
                lead = "" if noun == "the norm" else f"in {noun}: "
                for words, measured in _list_narrow_measures(kind, several):
                    make = partial(
                        _make_narrow_norms, kind, measured, (step.name,), norms.normalise_step_by
                    )
                    words = f"{lead}{words} rounded to {f.name}"
                    yield _make_mistake(step.blames, words, f, make, make_way)
            if not several and step.role not in by_role.WITHOUT_ENTRIES:
                make = partial(_make_rounded_step, step.name)
                words = f"entries of {noun} are rounded to {f.name}"
                yield _make_mistake(step.blames, words, f, make, make_way)


_NORM_ROLES: Mapping[str, tuple[NormKind, ...]] = {"layer norm": ("layer",), "rms norm": ("rms",)}


def _list_narrow_formats(precision: Precision) -> list[Format]:
    """Return the formats that are coarser than the contract's arithmetic."""
    return [f for f in map(Format, FORMATS) if f.u > precision.between.u]


def _make_mistake(
    blamed: str,
    words: str,
    f: Format,
    make_steps: MakeSteps,
    make_way: Callable[[Mapping[str, Wrong]], Variant | ChangedSteps],
) -> Mistake:
    """Return a mistake between two ways whose numbers are moved up and down before they are rounded."""
    way, *around = (
        make_way(make_steps(partial(_round_moved, f, by))) for by in (0.0, MOVED, -MOVED)
    )
    return Mistake(blamed, words, way, around=tuple(around))


def _round_moved(f: Format, by: float, x: Any) -> Any:
    """Return numbers moved by this part of them, rounded to a format; beyond its range they are infinite."""
    return f.rounded(np.asarray(x, dtype=np.float64) * (1 + by))


def _make_rounded_step(name: str, round_: Round) -> dict[str, Wrong]:
    return {name: lambda at: round_(at.right())}


# -- what a norm measures ----------------------------------------------------------------------------------------------
#: How a norm may round each number that it measures: not, or all at once, or a sum after each of its terms.
_AS_IT_IS, _ONCE, _EACH_TIME = range(3)
#: These numbers in their order, with words for how they may be rounded.
_MEASURED: Mapping[str, Mapping[int, str]] = {
    "entries": {_ONCE: "the entries that are squared"},
    "squares": {_ONCE: "the squares"},
    "sum": {_ONCE: "the sum of squares", _EACH_TIME: "every partial sum of squares"},
    "mean": {_ONCE: "the mean of squares"},
}
_PLURAL = ("the entries that are squared", "the squares")


def _list_narrow_measures(kind: NormKind, several: bool) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield how the numbers are rounded that a norm measures, in words: one of them, or ``several``."""
    # An L2 norm takes no mean.
    names = [name for name in _MEASURED if name != "mean" or kind != "l2"]
    choices = product(*((_AS_IT_IS, *_MEASURED[name]) for name in names))
    # Few roundings first, as a report names the first mistake that fits; of as many, the earliest number first.
    for chosen in sorted(choices, key=lambda c: (sum(map(bool, c)), *(-how for how in c))):
        measures = dict(zip(names, chosen, strict=True))
        *others, last = [_MEASURED[name][how] for name, how in measures.items() if how] or [""]
        if several and others:
            yield f"{', '.join(others)} and {last} are", measures
        elif last and not several and not others:
            yield f"{last} {'are' if last in _PLURAL else 'is'}", measures


def _make_narrow_norms(
    kind: NormKind,
    chosen: Mapping[str, int],
    names: tuple[str, ...],
    normalise: Callable[[norms.Norm, At], Any],
    round_: Round,
) -> dict[str, Wrong]:
    """Return the steps ``names`` with norms that round the chosen numbers."""
    how = replace(norms.right(kind), measure=partial(_measure, kind, chosen, round_))
    return dict.fromkeys(names, partial(normalise, how))


def _measure(
    kind: NormKind,
    chosen: Mapping[str, int],
    round_: Round,
    mean: Callable[[Any], Any],
    y: Any,
    n: int,
) -> Any:
    """Return the mean square of the entries, or the squared length for an L2 norm, with the chosen numbers rounded."""

    def store(name: str, x: Any) -> Any:
        return round_(x) if chosen.get(name) == _ONCE else x

    entries = store("entries", y)
    squares = store("squares", entries * entries)
    # The mean is taken over the axes of the norm, whichever they are.
    at_once = store("sum", mean(squares) * n)
    total = _add_in_format(round_, squares) if chosen["sum"] == _EACH_TIME else at_once
    return total if kind == "l2" else store("mean", total / n)


def _add_in_format(round_: Round, x: Any) -> Any:
    """Return the sum over the last axis from the first entry on, with every partial sum rounded."""
    total = x[..., :1]
    for column in range(1, x.shape[-1]):
        total = round_(total + x[..., column : column + 1])
    return total
