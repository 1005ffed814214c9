"""All known mistakes of attention: those that each rule states, in the order of the steps."""

from __future__ import annotations

from collections.abc import Iterator

from symattn.attention.flow import STEPS_TO_BLAME
from symattn.attention.spec import Attention
from symattn.bounds import storing
from symattn.bounds.mistake import Mistake, where_scaled
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


def _yield_mistakes_of_steps(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield the mistakes in the steps of a specification with the inputs ``names``."""
    yield from head_mistakes.mistakes(spec, names)
    if any(step.norm is not None for step in spec.pipeline(names)):
        yield from norm_records.mistakes(spec, names)
    yield from steps.in_other_fields(spec)
    if spec.position is not None:
        yield from rotating.mistakes(spec)
    yield from head_mistakes.of_readings(spec, names)
    yield from scoring.mistakes(spec)
    if spec.position is not None:
        yield from scoring.of_distances(spec)
    yield from (where_scaled(spec, m) for m in steps.mistakes(spec))
    yield from recorded_steps.mistakes(spec, names)
    if spec.temperature is not None:
        yield from tempering.mistakes(spec)
    if spec.output_gate:
        yield from gating.mistakes(spec, names)
    if spec.masks_anything:
        yield from forbidding.mistakes(spec)
    if spec.padding or spec.documents:
        yield from forbidding.of_labels(spec, names)
    yield from softmaxes.mistakes(spec)
    yield from tiling.mistakes(spec)
    yield from tiling.of_other_tiles(spec, names)
    yield from storing.singles(spec, names)
    # Another number or size in a scale or a mask, for which the bound holds.
    yield from masking.mistakes(spec)
    yield from scoring.of_scales(spec)


def yield_known_mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield all mistakes that the bound holds for: in steps, in numbers, and with entries of arrays in wrong places.

    They come in the order of the steps; of those that give the same numbers, the first is the simplest.
    """
    yield from sorted(
        _yield_mistakes_of_steps(spec, names),
        key=lambda mistake: STEPS_TO_BLAME.index(mistake.step),
    )
    yield from _yield_mistakes_of_arrays(spec, names, elsewhere=True)


def yield_mistakes_of_entries(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield operations on the entries of one array: balls cannot show them, and a fitted number may be clearer."""
    yield from _yield_mistakes_of_arrays(spec, names, elsewhere=False)


def _yield_mistakes_of_arrays(
    spec: Attention, names: frozenset[str], elsewhere: bool
) -> Iterator[Mistake]:
    """Yield every operator at every place that it fits: with ``elsewhere`` those that move or lose entries, else the
    others. Some give the same numbers; the search keeps the first of these."""
    for place in operators.places(spec, names):
        for operator in operators.operators(place.axes):
            mistake = operator.at(place)
            if elsewhere == (operator not in operators.ENTRIES and not mistake.in_floats):
                yield mistake
