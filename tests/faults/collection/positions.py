"""Positions inside attention: rotations, slopes, buckets, biases."""

from typing import Any

import numpy as np

from symattn import Alibi, Attention, Buckets, Domain, Rotary
from tests.faults.collection.entries import At, Family
from tests.faults.programs import softmax

Array = Any
FAMILY = Family("positions")
right = FAMILY.right
_HALF = Attention(causal=True, position=Rotary())
_PAIRS = Attention(causal=True, position=Rotary(layout="interleaved"))
_PARTIAL = Attention(causal=True, position=Rotary(width=4))
_FAST = Attention(causal=True, position=Rotary(base=500000))
_AT_POSITIONS = Attention(causal=True, position=Rotary(given="positions"))
_TABLES = Attention(causal=True, position=Rotary(given="tables"))
_ALIBI = Attention(heads=4, causal=True, position=Alibi())
_ALIBI_SIX = Attention(heads=6, causal=True, position=Alibi())
_ALIBI_GIVEN = Attention(heads=3, causal=True, position=Alibi(slopes="given"))
_ALIBI_TWO_SIDED = Attention(heads=2, position=Alibi(two_sided=True))
_BUCKETS = Attention(heads=2, scale=1, position=Buckets())
_BIAS = Attention(heads=2, bias=True)
_SQUARE = Domain(square=True)
_WIDE = At(d_k=8)


def causal_attention(q: Array, k: Array, v: Array, add: Array | float = 0.0) -> Array:
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype) + np.asarray(add, q.dtype)
    n_q, n_k = s.shape[-2:]
    return softmax(np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, q.dtype.type(-np.inf))) @ v


def angles(positions: Array, d: int, base: float = 10000.0) -> Array:
    return np.asarray(positions, np.float64)[..., None] * base ** (-np.arange(0, d, 2) / d)


def rotate_half(x: Array, theta: Array) -> Array:
    cos, sin = np.cos(theta).astype(x.dtype), np.sin(theta).astype(x.dtype)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def rotate_pairs(x: Array, theta: Array) -> Array:
    cos, sin = np.cos(theta).astype(x.dtype), np.sin(theta).astype(x.dtype)
    out = np.empty_like(x)
    out[..., ::2] = x[..., ::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 1::2] * cos + x[..., ::2] * sin
    return out


def both(q: Array, k: Array) -> tuple[Array, Array]:
    """The queries stand at the end of the keys."""
    n = len(k)
    return np.arange(n - len(q), n), np.arange(n)


@right("half the columns with the other half", spec=_HALF)
def rope_half(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    return causal_attention(rotate_half(q, angles(at_q, q.shape[1])), rotate_half(k, angles(at_k, k.shape[1])), v)


@right("x cos + rotate_half(x) sin with tables of full width", spec=_HALF)
def rope_by_full_tables(q: Array, k: Array, v: Array) -> Array:
    inv = 1.0 / (10000.0 ** (np.arange(0, q.shape[1], 2) / q.shape[1]))
    full = np.concatenate([np.outer(np.arange(len(k)), inv)] * 2, axis=1)
    cos, sin = np.cos(full).astype(q.dtype), np.sin(full).astype(q.dtype)

    def turn(x: Array, rows: slice) -> Array:
        half = x.shape[1] // 2
        return x * cos[rows] + np.concatenate([-x[:, half:], x[:, :half]], axis=1) * sin[rows]

    return causal_attention(turn(q, slice(len(k) - len(q), None)), turn(k, slice(None)), v)


@right("neighbouring columns", spec=_PAIRS)
def rope_pairs(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    return causal_attention(rotate_pairs(q, angles(at_q, q.shape[1])), rotate_pairs(k, angles(at_k, k.shape[1])), v)


@right("neighbouring columns as complex numbers", spec=_PAIRS)
def rope_complex(q: Array, k: Array, v: Array) -> Array:
    def turn(x: Array, at: Array) -> Array:
        z = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angles(at, x.shape[1]))
        return np.stack([z.real, z.imag], axis=-1).reshape(x.shape).astype(x.dtype)

    at_q, at_k = both(q, k)
    return causal_attention(turn(q, at_q), turn(k, at_k), v)


@right("queries from 0 and keys from n_q - n_k: distances are what counts", spec=_HALF)
def rope_from_other_origin(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    first = at_q[0]
    return causal_attention(
        rotate_half(q, angles(at_q - first, q.shape[1])), rotate_half(k, angles(at_k - first, k.shape[1])), v
    )


def rope_tables_in_pairs(q: Array, k: Array, v: Array) -> Array:
    inv = 10000.0 ** (-np.arange(0, q.shape[1], 2) / q.shape[1])
    full = np.repeat(np.outer(np.arange(len(k)), inv), 2, axis=1)
    cos, sin = np.cos(full).astype(q.dtype), np.sin(full).astype(q.dtype)

    def turn(x: Array, rows: slice) -> Array:
        a, b = np.split(x, 2, axis=1)
        return x * cos[rows] + np.concatenate([-b, a], axis=1) * sin[rows]

    return causal_attention(turn(q, slice(len(k) - len(q), None)), turn(k, slice(None)), v)


def rope_of_values(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    rotated = rotate_half(v, angles(at_k, v.shape[1])) if v.shape[1] % 2 == 0 else v
    return causal_attention(rotate_half(q, angles(at_q, q.shape[1])), rotate_half(k, angles(at_k, k.shape[1])), rotated)


def rope_positions_in_bfloat16(q: Array, k: Array, v: Array) -> Array:
    import ml_dtypes

    at_q, at_k = (p.astype(ml_dtypes.bfloat16).astype(np.float64) for p in both(q, k))
    return causal_attention(rotate_half(q, angles(at_q, q.shape[1])), rotate_half(k, angles(at_k, k.shape[1])), v)


_angles: dict[tuple[int, int], Array] = {}


def rope_sines_subtracted(q: Array, k: Array, v: Array) -> Array:
    def turn(x: Array, at: Array) -> Array:
        (a, b), angle = np.split(x, 2, axis=1), angles(at, x.shape[1])
        c, s = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
        return np.concatenate([a * c - b * s, b * c - a * s], axis=1)

    at_q, at_k = both(q, k)
    return causal_attention(turn(q, at_q), turn(k, at_k), v)


@right("the first four columns alone", spec=_PARTIAL, at=_WIDE)
def rope_partial(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    rotated = [
        np.concatenate([rotate_half(x[:, :4], angles(p, 4)), x[:, 4:]], axis=1) for x, p in ((q, at_q), (k, at_k))
    ]
    return causal_attention(rotated[0], rotated[1], v)


@right("positions are given", spec=_AT_POSITIONS, domain=_SQUARE)
def rope_at_positions(q: Array, k: Array, v: Array, position_ids: Array) -> Array:
    theta = angles(position_ids, q.shape[1])
    return causal_attention(rotate_half(q, theta[len(k) - len(q) :]), rotate_half(k, theta), v)


@right("tables are given", spec=_TABLES, domain=_SQUARE)
def rope_by_tables(q: Array, k: Array, v: Array, cos: Array, sin: Array) -> Array:
    def turn(x: Array) -> Array:
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    return causal_attention(turn(q), turn(k), v)


@right("base 500000", spec=_FAST)
def rope_other_base(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    d = q.shape[1]
    return causal_attention(rotate_half(q, angles(at_q, d, 5e5)), rotate_half(k, angles(at_k, d, 5e5)), v)


def rope_partial_frequencies(q: Array, k: Array, v: Array) -> Array:
    inv = 10000.0 ** (-np.arange(0, 4, 2) / q.shape[1])

    def turn(x: Array, at: Array) -> Array:
        return np.concatenate([rotate_half(x[:, :4], np.outer(at, inv)), x[:, 4:]], axis=1)

    at_q, at_k = both(q, k)
    return causal_attention(turn(q, at_q), turn(k, at_k), v)


def rope_tables_exchanged(q: Array, k: Array, v: Array, cos: Array, sin: Array) -> Array:
    def turn(x: Array) -> Array:
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * sin - b * cos, b * sin + a * cos], axis=-1)

    return causal_attention(turn(q), turn(k), v)


@right("slopes by powers of two", spec=_ALIBI)
def alibi(q: Array, k: Array, v: Array) -> Array:
    h, n_q, n_k = q.shape[0], q.shape[1], k.shape[1]
    slopes = 2.0 ** (-8.0 * np.arange(1, h + 1) / h)
    far = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    return causal_attention(q, k, v, slopes[:, None, None] * far)


@right("the key's place alone: rows are moved as a whole, which a softmax does not see", spec=_ALIBI)
def alibi_of_keys(q: Array, k: Array, v: Array) -> Array:
    h, n_k = q.shape[0], k.shape[1]
    slopes = np.array([2.0 ** (-2 * (t + 1)) for t in range(h)])
    return causal_attention(q, k, v, slopes[:, None, None] * np.arange(1 - n_k, 1))


@right("six heads: four slopes, and every second one of eight", spec=_ALIBI_SIX)
def alibi_six_heads(q: Array, k: Array, v: Array) -> Array:
    slopes = np.array([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])
    n_q, n_k = q.shape[1], k.shape[1]
    far = (np.arange(n_q) + n_k - n_q)[:, None] - np.arange(n_k)
    return causal_attention(q, k, v, -slopes[:, None, None] * far)


@right("slopes are given", spec=_ALIBI_GIVEN)
def alibi_given(q: Array, k: Array, v: Array, slopes: Array) -> Array:
    n_q, n_k = q.shape[1], k.shape[1]
    far = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    return causal_attention(q, k, v, slopes[:, None, None] * far.astype(q.dtype))


@right("buckets by a table of distances", spec=_BUCKETS)
def buckets(q: Array, k: Array, v: Array, b_rel: Array) -> Array:
    n_q, n_k = q.shape[1], k.shape[1]
    ahead = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    s = q @ k.swapaxes(-1, -2) + np.moveaxis(b_rel[_bucket(ahead)], -1, 0)
    return softmax(s) @ v


def _bucket(ahead: Array, limit: int = 8) -> Array:
    """T5's, two-sided, 32 buckets up to 128."""
    n = np.abs(ahead)
    far = limit + (np.log(np.maximum(n, 1) / limit) / np.log(128 / limit) * (16 - limit) + 1e-9).astype(int)
    return np.where(ahead > 0, 16, 0) + np.where(n < limit, n, np.minimum(far, 15))


@right("a bias of each head is added after the scale", spec=_BIAS)
def bias_added(q: Array, k: Array, v: Array, bias: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype) + bias) @ v


@right("two-sided slopes", spec=_ALIBI_TWO_SIDED)
def alibi_both_sides(q: Array, k: Array, v: Array) -> Array:
    return _both_sides(q, k, v, lambda far: -np.abs(far))


def _both_sides(q: Array, k: Array, v: Array, what: Any) -> Array:
    h, n_q, n_k = q.shape[0], q.shape[1], k.shape[1]
    slopes = 2.0 ** (-8.0 * np.arange(1, h + 1) / h)
    far = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(s + (slopes[:, None, None] * what(far)).astype(q.dtype)) @ v


FAMILY.wrong(
    globals(),
    """
rope_other_layout (rope_half), position: the other layout: pairs for halves
    says 2l|interleaved|layout|pairs|neighbour; source raiyanyahya/how-to-train-your-gpt#6
    at_q, at_k = both(q, k)
    return causal_attention(rotate_pairs(q, angles(at_q, q.shape[1])), rotate_pairs(k, angles(at_k, k.shape[1])), v)
rope_tables_in_pairs (rope_by_full_tables), position: half-split rotation with angles laid out in pairs
    says angles|pairs|layout|2l|repeated
rope_queries_from_zero (rope_half), position: new queries are rotated from position 0
    says position 0|from 0|start|queries|cache length|too; shows n_q < n_k; source RobertCsordas/moeut#6
    d = q.shape[1]
    q, k = rotate_half(q, angles(np.arange(len(q)), d)), rotate_half(k, angles(np.arange(len(k)), d))
    return causal_attention(q, k, v)
rope_one_on (rope_half), position: queries are one position too far
    says one position|off by one|one place
    (at_q, q.shape[1]) → (at_q + 1, q.shape[1])
rope_queries_only (rope_half), position: only the queries are rotated
    says keys are not|only the queries|queries alone|not rotated
    , at_k = → , _ =
    rotate_half(k, angles(at_k, k.shape[1])) → k
rope_opposite (rope_half), position: queries and keys are rotated the opposite ways
    says opposite|sign|direction|backwards
    , angles(at_k, k.shape[1] → , -angles(at_k, k.shape[1]
rope_slow_frequencies (rope_half), position: frequency exponent i/d in place of 2i/d
    says frequenc|exponent|base; at=_WIDE; source rasbt/LLMs-from-scratch#410
    d = q.shape[1]
    inv = 10000.0 ** (-np.arange(d // 2) / d)
    at_q, at_k = both(q, k)
    return causal_attention(rotate_half(q, np.outer(at_q, inv)), rotate_half(k, np.outer(at_k, inv)), v)
rope_left_out (rope_half), position: positions are left out
    says left out|no position|not rotated|ignored
    return causal_attention(q, k, v)
rope_of_values (rope_half), position: values are rotated as well
    says values; at=At(d_v=4); domain=_SQUARE
rope_positions_in_bfloat16 (rope_half), position: positions counted in bfloat16
    says bfloat16|rounded|position; shows positions above 256; at=At(n_q=3, n_k=300); domain=Domain(max_tokens=600);
        source huggingface/transformers#29285
rope_table_by_length (rope_half), position: the table of the queries' angles is kept by their number, not by the length
        of the cache
    says call|earlier|before|state|remember|kept|position; shows a second call with as many queries and another cache;
        at=At(before=At(n_k=9)); source lucidrains/rotary-embedding-torch#11
    at_q, at_k = both(q, k)
    table = _angles.setdefault(q.shape, angles(at_q, q.shape[1]))
    return causal_attention(rotate_half(q, table), rotate_half(k, angles(at_k, k.shape[1])), v)
rope_at_half_speed (rope_half), position: the frequencies are halved
    says 1/2 times|half|0.5 & angles|frequenc
    at_q, q → at_q / 2, q
    at_k, k → at_k / 2, k
rope_sines_subtracted (rope_half), position: both terms with the sine are subtracted
    says sine|sin & subtracted|sign
rope_partial_frequencies (rope_partial), position: frequencies of the whole head where a part is rotated
    says frequenc|width|base; source pie-project/pie#603
rope_whole_for_part (rope_partial), position: all columns are rotated where four are
    says all columns|every column|width|partial|first
    return rope_half(q, k, v)
rope_usual_base (rope_other_base), position: base 10000 for 500000
    says base
    return rope_half(q, k, v)
rope_positions_ignored (rope_at_positions), position: positions are 0, 1, 2, ... where others are given
    says given|ignored|position
    return rope_half(q, k, v)
rope_tables_exchanged (rope_by_tables), position: sine and cosine exchanged
    says sine|cosine|sin|exchanged
alibi_sign (alibi), bias|position: the sign: far keys are favoured
    says sign; source meta-pytorch/attention-gym#86
    np.arange(n_k) - (np.arange(n_q) + → (np.arange(n_q) +
    :, None] → :, None] - np.arange(n_k)
alibi_geometric (alibi_six_heads), bias|position: slopes 2^(-8h/n) for six heads
    says slope; shows heads not a power of two; source ml-explore/mlx#3071
    return alibi(q, k, v)
alibi_slopes_one_early (alibi), bias|position: slopes from 2^0 on
    says slope
    1, h + 1 → h
alibi_reversed (alibi_given), bias|position: slopes of the heads in reverse
    says slope
    slopes[:, None, None] → slopes[::-1, None, None]
alibi_without_absolute (alibi_both_sides), bias|position: keys ahead get a bonus: no absolute value
    says ahead|absolute|two-sided|one-sided|sign
    -np.abs(far)) → far)
buckets_mirrored (buckets), bias|position: buckets for keys ahead and behind exchanged
    says bucket|distance|sign
    n_q, n_k = q.shape[1], k.shape[1]
    ahead = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    return softmax(q @ k.swapaxes(-1, -2) + np.moveaxis(b_rel[_bucket(-ahead)], -1, 0)) @ v
buckets_rounded_up (buckets), bias|position: far distances one bucket on
    says bucket|distance; shows distances of 8 and more; at=At(n_q=20, n_k=20)
    n_q, n_k = q.shape[1], k.shape[1]
    ahead = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    n = np.abs(ahead)
    index = np.where(n < 8, _bucket(ahead), np.minimum(_bucket(ahead) + 1, np.where(ahead > 0, 31, 15)))
    return softmax(q @ k.swapaxes(-1, -2) + np.moveaxis(b_rel[index], -1, 0)) @ v
buckets_scaled (buckets), scale: scores are scaled where T5's are not
    says scale
    n_q, n_k = q.shape[1], k.shape[1]
    ahead = np.arange(n_k) - (np.arange(n_q) + n_k - n_q)[:, None]
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(s + np.moveaxis(b_rel[_bucket(ahead)], -1, 0)) @ v
bias_scaled (bias_added), bias: the bias is scaled with the scores
    says bias & scale
    return softmax((q @ k.swapaxes(-1, -2) + bias) / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v
bias_of_one_head (bias_added), bias: the bias of head 0 for all
    says bias & head
    bias) @ v → bias[:1]) @ v
bias_left_out (bias_added), bias: the bias is left out
    says bias & left out|ignored|missing
    ) + bias) @ v → )) @ v
bias_after_softmax (bias_added), bias: the bias is added to weights, not to scores
    says bias & after|weights
    return (softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)) + bias) @ v
""",
)
