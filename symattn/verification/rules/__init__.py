"""Mistakes by rule: changes of the one definition's steps, numbers and arrays, with words for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from symattn.attention.flow import STEPS_TO_BLAME
from symattn.attention.spec import Attention
from symattn.bounds import storing
from symattn.bounds.mistake import Mistake, where_scaled
from symattn.bounds.reference import Change, Variant
from symattn.verification.rules import (
    forbidding,
    gating,
    head_mistakes,
    masking,
    norm_records,
    operators,
    recorded_steps,
    rotating,
    scoring,
    softmaxes,
    steps,
    tempering,
    tiling,
)
from symattn.verification.rules.forbidding import SOME_KEYS


def of_steps(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield the mistakes in the steps of a specification with the inputs ``names``."""
    yield from head_mistakes.mistakes(spec, names)
    yield from norm_records.mistakes(spec, names)
    yield from steps.in_other_fields(spec)
    yield from rotating.mistakes(spec)
    yield from head_mistakes.of_readings(spec, names)
    yield from scoring.mistakes(spec)
    yield from scoring.of_distances(spec)
    yield from (where_scaled(spec, m) for m in steps.mistakes(spec))
    yield from recorded_steps.mistakes(spec, names)
    if spec.temperature is not None:
        yield from tempering.mistakes(spec)
    yield from gating.mistakes(spec, names)
    yield from forbidding.mistakes(spec)
    yield from forbidding.of_labels(spec, names)
    yield from softmaxes.mistakes(spec)
    yield from tiling.mistakes(spec)
    yield from tiling.of_other_tiles(spec, names)
    yield from storing.singles(spec, names)


def of_numbers(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes with another number or size in a scale or a mask, for which the bound holds."""
    yield from masking.mistakes(spec)
    yield from scoring.of_scales(spec)


def known(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield all mistakes that the bound holds for: in steps, in numbers, and with entries of arrays in wrong places.

    They come in the order of the steps; of those that give the same numbers, the first is the simplest.
    """
    yield from sorted(
        (*of_steps(spec, names), *of_numbers(spec)),
        key=lambda mistake: STEPS_TO_BLAME.index(mistake.step),
    )
    yield from _of_arrays(spec, names, elsewhere=True)


def of_entries(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield operations on the entries of one array: balls cannot show them, and a fitted number may be clearer."""
    yield from _of_arrays(spec, names, elsewhere=False)


def _of_arrays(spec: Attention, names: frozenset[str], elsewhere: bool) -> Iterator[Mistake]:
    """Yield every operator at every place that it fits: with ``elsewhere`` those that move or lose entries, else the
    others. Some give the same numbers; the search keeps the first of these."""
    for place in operators.places(spec, names):
        for operator in operators.operators(place.axes):
            mistake = operator.at(place)
            if elsewhere == (operator not in operators.ENTRIES and not mistake.in_floats):
                yield mistake


# -- two mistakes at once ----------------------------------------------------------------------------------------------
C = TypeVar("C")


def combined(first: Mistake, second: Mistake) -> Mistake | None:
    """Return both mistakes at once; None if they change the same step."""
    a, b = first.variant, second.variant
    steps = _merge_changed_steps(a, b)
    # Mistakes of the same words, or whose values conflict, are not two mistakes.
    if steps is None or (a.values != "v" and b.values != "v") or first.cause == second.cause:
        return None
    variant = _at_once(a, b, steps)
    # Variants around either one are variants around both.
    around = (
        *(
            _at_once(x, b, more)
            for x in first.around
            if (more := _merge_changed_steps(x, b)) is not None
        ),
        *(
            _at_once(a, x, more)
            for x in second.around
            if (more := _merge_changed_steps(a, x)) is not None
        ),
    )
    in_floats = first.in_floats or second.in_floats or not variant.rows
    general = first.general or second.general
    words = f"{first.cause}; and {second.cause}"
    return Mistake(first.step, words, variant, around=around, in_floats=in_floats, general=general)


def _at_once(a: Variant, b: Variant, steps: dict[str, Change]) -> Variant:
    return Variant(
        steps,
        a.rows and b.rows,
        a.values if a.values != "v" else b.values,
        _join_optional_changes(a.spec, b.spec, lambda f, g: lambda spec: g(f(spec))),
        _join_optional_changes(
            a.inputs, b.inputs, lambda f, g: lambda spec, inputs: g(spec, f(spec, inputs))
        ),
    )


def _merge_changed_steps(a: Variant, b: Variant) -> dict[str, Change] | None:
    """Return the changed steps of both; None if they conflict. ``SOME_KEYS`` gives way to other changes of weights."""
    merged = dict(a.steps)
    for name, change in b.steps.items():
        # The choice of keys gives way: any other change of the weights sees all of them.
        if name in merged and change is not SOME_KEYS:
            if merged[name] is not SOME_KEYS:
                return None
        elif name in merged:
            continue
        merged[name] = change
    return merged


def _join_optional_changes(a: C | None, b: C | None, joined: Callable[[C, C], C]) -> C | None:
    return joined(a, b) if a and b else a or b
