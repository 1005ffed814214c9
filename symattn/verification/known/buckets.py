"""Mistakes in buckets of distances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import ceil, log
from typing import Any

import numpy as np

from symattn.attention.positions import buckets, relative
from symattn.attention.positions.fields import Buckets
from symattn.attention.spec import Attention
from symattn.verification.known import slopes
from symattn.verification.known.mistake import (
    Applies,
    Mistake,
    before,
    both,
    in_fields,
    in_inputs,
    in_steps,
    position_is,
    shape,
    with_position,
)
from symattn.verification.reference import Values


def bucketed(index: Callable[..., Any], spec: Attention, values: Values) -> Any:
    """The biases of other buckets: ``index(j − i, asked)``."""
    s, asked = before(spec, values, "positioned"), spec.position
    assert isinstance(asked, Buckets)
    n_q, n_k = shape(values)[-2:]
    far = relative.ahead(n_q, n_k, s, spec.alignment)
    return relative.bucket_bias(s, values["b_rel"], np.clip(np.asarray(index(far, asked)), 0, asked.number - 1))


def _t5(far: Any, asked: Buckets, **other: Any) -> Any:
    told = {"buckets": asked.number, "max_distance": asked.max_distance, "bidirectional": asked.bidirectional} | other
    return buckets.t5_bucket(far, **told)


def _other_way(far: Any, asked: Buckets) -> Any:
    return _t5(-far, asked)


def _one_farther(by: int, far: Any, asked: Buckets) -> Any:
    return _t5(far + by, asked)


def _farther_out(by: int, far: Any, asked: Buckets) -> Any:
    return _t5(far + by * np.sign(far) + by * (far == 0), asked)


def _up_to(distance: int, far: Any, asked: Buckets) -> Any:
    return _t5(far, asked, max_distance=distance)


def _linear(far: Any, asked: Buckets) -> Any:
    """A bucket for each distance, cut off at the last one."""
    half = asked.number // 2 if asked.bidirectional else asked.number
    size = np.minimum(np.abs(far), half - 1)
    return size + half * (far > 0) if asked.bidirectional else np.where(far < 0, size, 0)


def _by_logarithms(shift: int, up: bool, far: Any, asked: Buckets) -> Any:
    """Buckets by formula, with the first wide one shifted, or logarithms rounded up."""
    half = asked.number // 2 if asked.bidirectional else asked.number
    n = np.abs(far) if asked.bidirectional else np.maximum(-far, 0)
    exact = half // 2 + shift
    table = [_wide(int(x), exact, half, asked.max_distance, up) for x in range(int(n.max(initial=0)) + 1)]
    size = np.asarray(table)[n]
    return size + half * (far > 0) if asked.bidirectional else size


def _wide(x: int, exact: int, half: int, most: int, up: bool) -> int:
    if x < exact:
        return x
    share = log(max(x, 1) / max(exact, 1)) / log(most / max(exact, 1)) * (half - exact)
    return min(exact + (ceil(share - 1e-12) if up else int(share + 1e-12)), half - 1)


def _one_on(far: Any, asked: Buckets) -> Any:
    """Wide buckets counted from 1."""
    half = asked.number // 2 if asked.bidirectional else asked.number
    n = np.abs(far) if asked.bidirectional else np.maximum(-far, 0)
    size = _t5(-n, replace(asked, bidirectional=False, number=half))
    size = np.where(n < half // 2, size, np.minimum(size + 1, half - 1))
    return size + half * (far > 0) if asked.bidirectional else size


def _no_offset(far: Any, asked: Buckets) -> Any:
    """Buckets of both directions alike."""
    half = asked.number // 2 if asked.bidirectional else asked.number
    return _t5(-np.abs(far), asked, buckets=half, bidirectional=False)


def _swapped_sides(far: Any, asked: Buckets) -> Any:
    """Keys ahead where keys behind should be; equal places with those ahead."""
    half = asked.number // 2
    return _t5(-np.abs(far), asked, buckets=half, bidirectional=False) + half * (far >= 0)


def _from_corner(spec: Attention, values: Values) -> Any:
    s, asked = before(spec, values, "positioned"), spec.position
    assert isinstance(asked, Buckets)
    where = "bottom-right" if spec.alignment == "top-left" else "top-left"
    n_q, n_k = shape(values)[-2:]
    far = relative.ahead(n_q, n_k, s, where)
    return relative.bucket_bias(s, values["b_rel"], _t5(far, asked))


def _ends_elsewhere(n: int) -> Applies:
    """Where buckets end at another distance."""
    return lambda spec: isinstance(spec.position, Buckets) and spec.position.max_distance != n


_BUCKETS = position_is(Buckets)


def _bucket(words: str, index: Callable[..., Any], applies: Applies = _BUCKETS) -> Mistake:
    return in_steps("bias", words, applies, positioned=partial(bucketed, index))


MISTAKES: tuple[Mistake, ...] = (
    in_fields(
        "bias",
        "buckets are of one direction",
        both(position_is(Buckets, bidirectional=True), lambda s: s.causal),
        with_position(bidirectional=False),
    ),
    in_fields(
        "bias",
        "buckets are of both directions",
        position_is(Buckets, bidirectional=False),
        with_position(bidirectional=True),
    ),
    _bucket("the sign of the distance is flipped: i − j in place of j − i", _other_way),
    _bucket("buckets are off by one: distances are one too large", partial(_one_farther, 1)),
    _bucket("buckets are off by one: distances are one too small", partial(_one_farther, -1)),
    _bucket("buckets are off by one: distances are one too long on both sides", partial(_farther_out, 1)),
    *(
        _bucket(
            f"the first wide bucket begins {abs(n)} {'later' if n > 0 else 'earlier'}",
            partial(_by_logarithms, n, False),
        )
        for n in (1, -1)
    ),
    _bucket("distances in wide buckets are one bucket on", _one_on),
    _bucket("logarithms are rounded up, not down, where buckets are wide", partial(_by_logarithms, 0, True)),
    _bucket("every distance has its own bucket, there are no wide ones", _linear),
    _bucket("keys ahead and keys behind share their buckets", _no_offset, position_is(Buckets, bidirectional=True)),
    _bucket(
        "a query's own key is in the bucket of keys ahead", _swapped_sides, position_is(Buckets, bidirectional=True)
    ),
    *(
        _bucket(
            f"the buckets end at the distance {n}",
            partial(_up_to, n),
            _ends_elsewhere(n),
        )
        for n in (32, 64, 128, 256)
    ),
    in_steps(
        "bias", "distances of buckets are counted from the other corner", position_is(Buckets), positioned=_from_corner
    ),
    in_steps(
        "bias",
        "the biases of buckets come before the scale, and are scaled too",
        position_is(Buckets),
        positioned=slopes.placed_before_scale,
    ),
    in_steps(
        "bias", "the biases of buckets are left out", position_is(Buckets), positioned=partial(slopes.alibi_by, 0)
    ),
    in_inputs(
        "bias",
        "the biases of buckets are those of another head: heads are in the opposite order",
        position_is(Buckets),
        b_rel=lambda spec, a: a[:, ::-1],
    ),
    in_inputs(
        "bias",
        "the first head's biases of buckets are taken for all",
        position_is(Buckets),
        b_rel=lambda spec, a: np.broadcast_to(a[:, :1], a.shape),
    ),
)
