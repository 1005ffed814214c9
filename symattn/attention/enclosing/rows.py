"""The definition on balls, for some queries of large inputs: as sharp as one likes, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.attention.enclosing.pattern import Head, checked, front, heads
from symattn.attention.spec import Attention
from symattn.document.errors import InputError


def enclose_rows(spec: Attention, inputs: Mapping[str, Any], rows: Sequence[int], bits: int = 200) -> Ball:
    """The exact output for some queries, as Arb's balls at a precision of ``bits``: (…, len(rows), d_v).

    For targets in float64, whose error ``enclose`` would not resolve. It is the definition itself that runs, on these
    queries and all keys; a row of n keys costs n (d_k + d_v) products of balls.

    ``spec`` and ``inputs`` are those of ``enclose``, and so is what is raised; InputError, too, for a row that is none.

    >>> import numpy as np
    >>> from symattn import Attention
    >>> x = np.eye(3)
    >>> enclose_rows(Attention(), {"q": x, "k": x, "v": x}, [2]).midpoints().round(3).tolist()
    [[0.264, 0.264, 0.471]]
    """
    given = checked(spec, inputs)
    n_q = given["q"].shape[-2]
    for row in rows:
        if not 0 <= row < n_q:
            raise InputError(f"row {row}: there are rows 0 to {n_q - 1}")
    shape = (*front(spec, given), len(rows), given["v"].shape[-1])
    found = np.empty(shape, dtype=object)
    with precision(bits):
        for head in heads(spec, given):
            found[head.index] = _of_head(spec, head, list(rows)).entries
    return Ball(found)


def alone(spec: Attention) -> Attention:
    """The specification of one head whose mask is given: what ``Head`` has, for any of its rows and keys."""
    return Attention(
        scale=spec.scale,
        softcap=spec.softcap,
        base=spec.base,
        sink=spec.sink and "given",
        stabilised=spec.stabilised,
        fully_masked=spec.fully_masked,
        mask="boolean" if spec.masks_anything else None,
    )


def _of_head(spec: Attention, head: Head, rows: list[int]) -> Ball:
    keys = slice(0, head.seen.n_k)
    seen = [head.seen.tile(slice(row, row + 1), keys) for row in rows]
    allowed = np.concatenate([np.ones((1, keys.stop), dtype=bool) if s is None else s for s in seen])
    given: dict[str, Any] = {
        name: Ball.lift(array) for name, array in (("q", head.q[rows]), ("k", head.k), ("v", head.v))
    }
    if spec.masks_anything:
        given["mask"] = allowed
    if head.sink is not None:
        given["sink"] = Ball.lift(np.array([head.sink]))
    out: Ball = alone(spec)(**given)
    return out
