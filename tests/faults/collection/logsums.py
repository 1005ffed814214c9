"""The output together with the logarithms of the sums."""

from typing import Any

import numpy as np

from symattn import Attention
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("logsums", spec=Attention(lse=True))
right = FAMILY.right
_CAUSAL = Attention(lse=True, causal=True)
_BASE = Attention(lse=True, base=2)
_SINK = Attention(lse=True, heads=2, sink="given")
Both = tuple[Array, Array]


def scores(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)


def hide(s: Array) -> Array:
    n_q, n_k = s.shape[-2:]
    return np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, s.dtype.type(-np.inf))


def finish(s: Array, v: Array) -> Both:
    m = s.max(axis=-1, keepdims=True)
    e = np.exp(s - m)
    z = e.sum(axis=-1, keepdims=True)
    return e / z @ v, (m + np.log(z))[..., 0]


@right("maximum and logarithm of the sum")
def both(q: Array, k: Array, v: Array) -> Both:
    return finish(scores(q, k), v)


@right("logaddexp over the keys, causal", spec=_CAUSAL)
def by_logaddexp(q: Array, k: Array, v: Array) -> Both:
    s = hide(scores(q, k))
    lse = np.logaddexp.reduce(s, axis=-1)
    return np.exp(s - lse[:, None]) @ v, lse


@right("two parts, whose logarithms are merged", at=At(n_k=9))
def merged(q: Array, k: Array, v: Array) -> Both:
    if len(k) == 1:
        return both(q, k, v)
    half = len(k) // 2
    (o1, l1), (o2, l2) = both(q, k[:half], v[:half]), both(q, k[half:], v[half:])
    lse = np.logaddexp(l1, l2)
    return o1 * np.exp(l1 - lse)[:, None] + o2 * np.exp(l2 - lse)[:, None], lse


@right("logarithms in base 2, as the specification says", spec=_BASE)
def in_base_two(q: Array, k: Array, v: Array) -> Both:
    s = scores(q, k)
    m = s.max(axis=-1, keepdims=True)
    e = np.exp2(s - m)
    z = e.sum(axis=-1, keepdims=True)
    return e / z @ v, (m + np.log2(z))[..., 0]


@right("exponentials of base 2 inside, natural logarithms outside")
def converted(q: Array, k: Array, v: Array) -> Both:
    s = scores(q, k) * q.dtype.type(np.log2(np.e))
    m = s.max(axis=-1, keepdims=True)
    e = np.exp2(s - m)
    z = e.sum(axis=-1, keepdims=True)
    return e @ v / z, ((m + np.log2(z)) * q.dtype.type(np.log(2)))[..., 0]


@right("the sink is in the sum", spec=_SINK)
def both_with_sink(q: Array, k: Array, v: Array, sink: Array) -> Both:
    s, b = scores(q, k), sink[:, None, None]
    m = np.maximum(s.max(axis=-1, keepdims=True), b)
    e = np.exp(s - m)
    z = e.sum(axis=-1, keepdims=True) + np.exp(b - m)
    return e / z @ v, (m + np.log(z))[..., 0]


FAMILY.wrong(
    globals(),
    """
base_two_returned (converted), lse: logarithms in base 2 where natural ones are asked for
    says base 2|log2|log₂; source lightseekorg/tokenspeed#571
    out, lse = both(q, k, v)
    return out, lse * q.dtype.type(np.log2(np.e))
natural_returned (in_base_two), lse: natural logarithms where those in base 2 are asked for
    says natural|base|log
    out, lse = in_base_two(q, k, v)
    return out, lse * q.dtype.type(np.log(2))
maximum_not_added (both), lse: the maximum is not added
    says maximum|max
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    z = e.sum(axis=-1, keepdims=True)
    return e / z @ v, np.log(z)[..., 0]
maximum_subtracted (both), lse: the maximum is subtracted
    says maximum|max & subtracted
    s = scores(q, k)
    m = s.max(axis=-1, keepdims=True)
    e = np.exp(s - m)
    z = e.sum(axis=-1, keepdims=True)
    return e / z @ v, (np.log(z) - m)[..., 0]
maximum_alone (both), lse: the maximum alone
    says maximum|max
    s = scores(q, k)
    return both(q, k, v)[0], s.max(axis=-1)
of_unscaled (both), lse: of unscaled scores
    says scale
    return both(q, k, v)[0], np.logaddexp.reduce(q @ k.T, axis=-1)
over_every_key (by_logaddexp), lse: over forbidden keys, too
    says forbidden|mask|every key|all keys
    s = scores(q, k)
    return finish(hide(s), v)[0], finish(s, v)[1]
negative (both), lse: the sign
    says sign|negative|−
    out, lse = both(q, k, v)
    return out, -lse
sum_returned (both), lse: the sum, not its logarithm
    says logarithm|sum
    out, lse = both(q, k, v)
    return out, np.exp(lse)
without_sink (both_with_sink), lse: the sink is not in it
    says sink
    s = scores(q, k)
    return both_with_sink(q, k, v, sink)[0], finish(s, v)[1]
logarithms_added (merged), merge|lse: logarithms of parts are added, not their exponentials
    says merge|parts|added|sum|exponential
    out, _ = both(q, k, v)
    if len(k) == 1:
        return both(q, k, v)
    half = len(k) // 2
    return out, both(q, k[:half], v[:half])[1] + both(q, k[half:], v[half:])[1]
""",
)
