"""How a function behaves beside its values: call after call, arrays that lie otherwise in memory, NaN behind a mask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from symattn.verification.inputs import Array, Maker, Sizes
from symattn.verification.judge import Case
from symattn.verification.probes import small
from symattn.verification.target import same_bits

if TYPE_CHECKING:
    from symattn.verification.engine import Session

GROUP = "behaviour"


def cases(maker: Maker, rng: np.random.Generator) -> Iterator[Case]:
    """The same inputs twice with others of the same shape between them; strided and transposed arrays."""
    first, other = (maker.make(Sizes(3, 5, 4, 2), small(rng), rng) for _ in range(2))
    yield Case(GROUP, "a first call", first)
    yield Case(GROUP, "a second call, other numbers in the same shapes", other)
    yield Case(GROUP, "the first call again", first)
    yield Case(GROUP, "arrays with gaps in memory", first, "strided")
    yield Case(GROUP, "arrays that are transposed views", first, "transposed")


def notes(session: Session) -> Iterator[str]:
    """What is no fault, and should be known."""
    mine = {r.case.name: r for r in session.records if r.case.group == GROUP}
    once, again = mine.get("a first call"), mine.get("the first call again")
    if once and again and not once.finding and not again.finding and not same_bits(once.outcome, again.outcome):
        yield "The same inputs gave other bits at another call, within what is legal."
    leak = leaking(session)
    if leak is not None and not session.domain.nonfinite_forbidden:
        yield "Outside the domain: NaN in a value that a query may not attend to reaches its output."


def leaking(session: Session) -> dict[str, Array] | None:
    """Inputs by which NaN behind the mask reaches a query that may not see it; None where there are none."""
    if not session.spec.masks_anything or session.maker.tokens or session.over:
        return None
    rng = np.random.default_rng(session.seed)
    inputs = session.maker.make(Sizes(3, 5, 4, 2), small(rng), rng)
    right = session.try_(Case(GROUP, "", inputs))
    if right.finding:
        return None
    allowed = right.expected.run.allowed
    open_ = np.asarray(allowed.reshape(-1, *allowed.shape[-2:]).any(axis=0))  # of some head
    for key in np.flatnonzero(~open_.all(axis=0)):
        poisoned = inputs["v"].copy()
        poisoned[..., key, :] = np.nan
        outcome = session.runner.run({**inputs, "v": poisoned})
        if outcome.output is not None and not np.isfinite(outcome.output[..., ~open_[:, key], :]).all():
            return {**inputs, "v": poisoned}
    return None
