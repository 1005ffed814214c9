"""Right ways to compute that are no noise: which queries and keys are stored, scaled, before they meet.

What is stored then is known, so that such a kernel is held to the output of these queries and keys instead. And the
guard: right ways to store the weights, replayed on the same rows, say whether roundings are independent there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import log, sqrt
from numbers import Real

from symattn.attention.enclosing.pattern import Head
from symattn.attention.spec import Attention
from symattn.verification.arithmetic.contracts import family, replay
from symattn.verification.sharp.blocks import Block
from symattn.verification.sharp.limits import Floats, Stores

TILE = 64  # of running maxima that are replayed; other tiles do alike


def ways(spec: Attention, head: Head, how: Stores) -> Iterator[tuple[Attention, Head]]:
    """As given; queries stored times the scale, or times the scale and log₂ e; queries and keys stored times its root.

    With wide scores only the first: nothing but weights is stored then.
    """
    yield spec, head
    s = _scale(spec, head.q.shape[-1])
    if not how.scores or spec.base == 2 or s is None or s <= 0:
        return
    stored, one = how.format.rounded, replace(spec, scale=1)
    yield one, replace(head, q=stored(head.q * s))
    yield replace(spec, scale=log(2)), replace(head, q=stored(head.q * (s / log(2))))
    yield one, replace(head, q=stored(head.q * sqrt(s)), k=stored(head.k * sqrt(s)))


def _scale(spec: Attention, width: int) -> float | None:
    if spec.scale is None:
        return 1 / sqrt(width)
    if spec.scale == "1/d_k":
        return 1 / width
    return float(spec.scale) if isinstance(spec.scale, Real | Fraction) else None


def replays(block: Block, how: Stores) -> Iterator[Floats]:
    """What right implementations return for the queries of a block: every contract that stores no more."""
    for contract in family(block.spec, frozenset(block.given), how.format, len(block.values)):
        more = contract.queries or (contract.scores and not how.scores) or contract.tiles not in (None, TILE)
        if not more:
            yield replay(contract, block.spec, block.given)
