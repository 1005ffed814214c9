"""Known mistakes, as data: each is a change of some steps of the definition, run on any kind of array as it is itself.

To add one: a line in a table of ``known``, its wrong step beside it, and in the tests a program that makes it and its
right neighbour. Most of them were reported of published code.
"""

from __future__ import annotations

from symattn.verification.known import (
    additive,
    biases,
    buckets,
    caps,
    closing,
    dropout,
    exponentials,
    keys,
    masks,
    norms,
    projecting,
    rotations,
    roundings,
    scales,
    scores,
    sharing,
    sinks,
    slopes,
    sums,
    tiles,
    windows,
)
from symattn.verification.known.mistake import Mistake as Mistake
from symattn.verification.report import STEPS as STEPS

_TABLES = (
    projecting, sharing, norms, rotations, scores, scales, caps, biases, slopes, buckets, masks, additive, windows,
    keys, sinks, exponentials, sums, dropout, tiles, closing, roundings,
)  # fmt: skip

#: Every known mistake, in the order of the steps.
MISTAKES: tuple[Mistake, ...] = tuple(
    sorted((m for table in _TABLES for m in table.MISTAKES), key=lambda mistake: STEPS.index(mistake.step))
)
