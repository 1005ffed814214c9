"""``enclose_rows``: the definition on balls, for some queries of large inputs: to any precision, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.attention.enclosed import alone
from symattn.attention.enclosing.pattern import Head, checked, front, heads
from symattn.attention.spec import Attention
from symattn.document.errors import InputError


def enclose_rows(spec: Attention, inputs: Mapping[str, object], rows: Sequence[int], bits: int = 200) -> Ball:
    """Return the exact output for some queries as Arb's balls, at a precision of ``bits``: (…, len(rows), d_v).

    Use it for targets in float64, whose error ``enclose`` cannot resolve. The definition itself runs on these
    queries and all keys; a row of n keys costs n (d_k + d_v) products of balls. ``spec`` and ``inputs`` are those
    of ``enclose``.

    Raises what ``enclose`` raises, and InputError for a row that does not exist.

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
    values = np.empty(shape, dtype=object)
    with precision(bits):
        for head in heads(spec, given):
            values[head.index] = _run_rows(spec, head, list(rows)).entries
    return Ball(values)


def _run_rows(spec: Attention, head: Head, rows: list[int]) -> Ball:
    keys = slice(0, head.seen.n_k)
    seen = [head.seen.tile(slice(row, row + 1), keys) for row in rows]
    allowed = np.concatenate([np.ones((1, keys.stop), dtype=bool) if s is None else s for s in seen])
    inputs: dict[str, Any] = {
        name: Ball.lift(array) for name, array in (("q", head.q[rows]), ("k", head.k), ("v", head.v))
    }
    one = alone(spec)
    if one.mask:
        inputs["mask"] = allowed
    if head.sink is not None:
        inputs["sink"] = Ball.lift(np.array([head.sink]))
    out: Ball = one(**inputs)
    return out
