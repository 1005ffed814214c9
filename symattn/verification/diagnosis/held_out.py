"""Inputs that were not seen when a mistake was found, on which it must explain the function as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.case_result import Case
from symattn.bounds.inputs import Sizes
from symattn.bounds.mistake import Mistake
from symattn.verification.diagnosis.causes import SIZED
from symattn.verification.probing.search import FAMILIES

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_LONGEST = 140  # keys beyond which as many queries take long
_SIZES = (Sizes(3, 5, 4, 2), Sizes(4, 4, 3, 3), Sizes(2, 17, 6, 3), Sizes(5, 8, 2, 4), Sizes(2, 3, 70, 2))
#: Where a size, or a condition on sizes, is claimed: astride multiples of 16, 32, 64 and at them.
_MORE = (
    Sizes(2, 128, 2, 1), Sizes(3, 65, 2, 1), Sizes(2, 64, 2, 1), Sizes(2, 48, 2, 1), Sizes(2, 32, 2, 2),
    Sizes(3, 258, 2, 1), Sizes(2, 3, 128, 2), Sizes(2, 4, 64, 2),
    Sizes(3, 2, 33, 2), Sizes(4, 7, 72, 2), Sizes(1, 6, 16, 3), Sizes(16, 16, 4, 4),
)  # fmt: skip


def held_out(session: Session, mistakes: Sequence[Mistake]) -> Iterator[Case]:
    """Cases of several shapes, integers and others in turn."""
    rng = np.random.default_rng((session.seed, 1))
    wanted = (*_MORE, *_SIZES) if any(m.where or SIZED.search(m.cause) for m in mistakes) else _SIZES
    if len(mistakes) > 1:  # sizes at which edges of windows and blocks are seen from either corner, and apart
        reach = {n for n in (*session.spec.sides, session.spec.block) if n}
        wanted = (*(Sizes(n + 5, n + 8, 4, 2) for n in sorted(reach) if n + 8 <= _LONGEST), *wanted)
    for number, sizes in enumerate(wanted):
        family = FAMILIES["integer" if number % 2 else "normal"](rng)
        inputs = session.maker.make(sizes, family, rng)
        yield Case("fresh", f"fresh inputs {number + 1}", inputs)
