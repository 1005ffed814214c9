"""Mistakes of lengths, tiles, distances, formats and functions are named; the same program without them is right."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import (
    Alibi,
    Attention,
    Cached,
    Domain,
    Gradient,
    Latent,
    LayerNorm,
    LinearAttention,
    NTKScaling,
    Precision,
    RMSNorm,
    Rotary,
    verify,
)
from symattn.bounds.case_result import Case
from symattn.verification.diagnosis.blaming import idle_step
from tests.faults.collection import gradients
from tests.faults.collection.entries import Wrong
from tests.faults.collection.every import chosen
from tests.faults.programs import plain, softmax
from tests.verification.naming import scores

Array = Any
Program = Callable[..., Any]


def _plain_masked(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(np.where(mask, scores(q, k), -np.inf)) @ v


def _forbidden_only(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _plain_masked(q, k, v, mask >= 0)


def _added(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(scores(q, k) + mask) @ v


def _with_sinks(times: Callable[[int], int]) -> Program:
    """Attention with sinks that count several times, by the number of keys."""

    def program(q: Array, k: Array, v: Array, sink: Array) -> Array:
        s, z = scores(q, k), sink[:, None, None]
        top = np.maximum(s.max(-1, keepdims=True), z)
        e = np.exp(s - top)
        return e / (e.sum(-1, keepdims=True) + times(k.shape[-2]) * np.exp(z - top)) @ v

    return program


def _padded(q: Array, k: Array, v: Array, keep: Array) -> Array:
    return plain(q, k[keep], v[keep])


def _tiled(tile: int) -> Program:
    """Tiles with running maxima: what was summed is rescaled to the largest score so far."""

    def program(q: Array, k: Array, v: Array) -> Array:
        m, z = np.full((len(q), 1), -np.inf, q.dtype), np.zeros((len(q), 1), q.dtype)
        out = np.zeros((len(q), v.shape[1]), q.dtype)
        for i in range(0, len(k), tile):
            s = scores(q, k[i : i + tile])
            new = np.maximum(m, s.max(axis=1, keepdims=True))
            a, p = np.exp(m - new), np.exp(s - new)
            out, z, m = out * a + p @ v[i : i + tile], z * a + p.sum(axis=1, keepdims=True), new
        return out / z

    return program


def _rescaled_to(tile_too: bool, width: int) -> Program:
    """Tiles whose sums so far are multiplied by e^{old − the tile's own maximum}, which the ``tile_too`` subtracts."""

    def program(q: Array, k: Array, v: Array) -> Array:
        m, z, out = np.full((len(q), 1), -np.inf, q.dtype), np.zeros((len(q), 1), q.dtype), q.dtype.type(0)
        for i in range(0, len(k), width):
            s = scores(q, k[i : i + width])
            own = s.max(axis=1, keepdims=True)
            new = np.maximum(m, own)
            a, p = np.exp(m - own) if i else z, np.exp(s - (own if tile_too else new))
            out, z, m = out * a + p @ v[i : i + width], z * a + p.sum(axis=1, keepdims=True), new
        return out / z

    return program


def _in_turn(q: Array, k: Array, v: Array, dout: Array) -> tuple[Array, ...]:
    r = len(q) // len(k)
    dq, *others = gradients.groups(q, *(np.repeat(a, r, axis=0) for a in (k, v)), dout)
    return dq, *(g.reshape(r, -1, *g.shape[1:]).sum(0) for g in others)


def _root_of_squares(x: Array) -> Array:
    return np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(1e-6))


def _summed_over(axes: tuple[int, ...], of: tuple[int, ...] = (-1,)) -> Program:
    """Attention whose exponentials are divided by their sum over some axes, after the maximum ``of`` some others."""

    def program(q: Array, k: Array, v: Array) -> Array:
        s = scores(q, k)
        e = np.exp(s - s.max(of, keepdims=True))
        return e / e.sum(axes, keepdims=True) @ v

    return program


def _moved_bounds(by: int) -> Program:
    """Documents whose first token (1) belongs to the one before, or whose last (−1) to the next one."""

    def program(q: Array, k: Array, v: Array, doc: Array) -> Array:
        read = doc[np.clip(np.arange(len(doc)) - by, 0, len(doc) - 1)]
        return _plain_masked(q, k, v, read[:, None] == read)

    return program


def _sparse(counted: Callable[[Array], Array]) -> Program:
    """Sparsemax with a threshold of so many scores."""

    def program(q: Array, k: Array, v: Array) -> Array:
        s = scores(q, k)
        z, place = -np.sort(-s, axis=1), np.arange(1, len(k) + 1)
        sums = z.cumsum(axis=1) - 1
        number = np.clip(counted((place * z > sums).sum(axis=1, keepdims=True)), 1, len(k))
        tau = np.take_along_axis(sums, number - 1, axis=1) / number
        return np.maximum(s - tau, 0).astype(q.dtype) @ v

    return program


def _closed_tiles(top: Callable[[Array], Array], tile: int = 16) -> Program:
    """A causal kernel, the last tile first, that takes ``top`` of the largest score for the maximum of a tile."""

    def program(q: Array, k: Array, v: Array) -> Array:
        s = np.where(np.arange(len(k)) <= np.arange(len(q))[:, None] + len(k) - len(q), scores(q, k), -np.inf)
        m, z, out = np.full((len(q), 1), -1e30, q.dtype), np.zeros((len(q), 1), q.dtype), 0
        for i in reversed(range(0, len(k), tile)):
            new = np.maximum(m, top(s[:, i : i + tile].max(axis=1, keepdims=True))).astype(q.dtype)
            a, p = np.exp(m - new), np.exp(s[:, i : i + tile] - new)
            out, z, m = out * a + p @ v[i : i + tile], z * a + p.sum(axis=1, keepdims=True), new
        return out / z

    return program


def _ragged(least: int, width: int, q: Array, k: Array, v: Array) -> Array:
    last = len(k) - (len(k) >= least and len(k) % width > 0)
    return plain(q, k[:last], v[:last])


def _moved_back(q: Array, k: Array, v: Array) -> Array:
    """The last tile of 40 is full: it begins before the end of the tile before."""
    rest = len(k) % 40 if len(k) > 40 else 0
    keys = np.r_[: len(k) - rest, len(k) - 40 * (rest > 0) : len(k)]
    return plain(q, k[keys], v[keys])


def _first_of_ties(q: Array, k: Array, v: Array) -> Array:
    return v[np.argmax(q @ k.T, axis=1)]


def _scores_in(dtype: Any) -> Program:
    def program(q: Array, k: Array, v: Array) -> Array:
        return softmax((q.astype(dtype) @ k.astype(dtype).T).astype(q.dtype) / np.sqrt(q.shape[1])) @ v

    return program


def _divided_by_sum_in(dtype: Any) -> Program:
    def program(q: Array, k: Array, v: Array) -> Array:
        s = scores(q, k)
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return e @ v / np.add.accumulate(e.astype(dtype), axis=-1)[:, -1:].astype(q.dtype)

    return program


def _blocks(open_: Callable[[Array, Array], Array]) -> Program:
    def program(q: Array, k: Array, v: Array) -> Array:
        i, j = np.arange(len(q))[:, None] + len(k) - len(q), np.arange(len(k))[None, :]
        return softmax(np.where(open_(i, j), scores(q, k), -np.inf)) @ v

    return program


def _rotated(keys: bool) -> Program:
    def turn(x: Array, positions: Array) -> Array:
        half = x.shape[-1] // 2
        angles = positions[:, None] * 10000.0 ** (-np.arange(half) / half)
        c, s = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)

    def program(q: Array, k: Array, positions: Array) -> tuple[Array, Array]:
        return turn(q, positions), turn(k, positions) if keys else k

    return program


def _normed(q: Array, k: Array, v: Array) -> Array:
    q, k = (x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-6)) for x in (q, k))
    return plain(q, k, v)


def _by_length(q: Array, k: Array, v: Array) -> Array:
    q, k = (x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), x.dtype.type(1e-12)) for x in (q, k))
    return plain(q, k, v)


def _norm(square: Any) -> Program:
    def program(x: Array, weight: Array) -> Array:
        with np.errstate(over="ignore", under="ignore"):
            squares = (x.astype(square) ** 2).astype(np.float32).mean(-1, keepdims=True)
        return (x / np.sqrt(squares + np.float32(1e-6)) * weight.astype(np.float32)).astype(x.dtype)

    return program


@dataclass(frozen=True)
class _Pair:
    """A wrong program and a right one that differs in the mistake alone; the step, and words of what is said."""

    wrong: Program
    right: Program
    step: str
    words: str
    spec: Any = field(default_factory=Attention)
    precision: Any = "float32"
    domain: Domain = field(default_factory=Domain)
    examples: int = 10


def _factors(read: Callable[[Array], Array]) -> Program:
    """Scores with a factor for each head, which is ``read`` from those that are given."""

    def program(q: Array, k: Array, v: Array, scale: Array) -> Array:
        return softmax(q @ k.swapaxes(-1, -2) * read(scale).astype(q.dtype)[:, None, None]) @ v

    return program


def _times_in_third_head(factor: int) -> Program:
    def program(q: Array, k: Array, v: Array) -> Array:
        times = np.where(np.arange(q.shape[-3]) == 2, factor, 1).astype(q.dtype)[:, None, None]
        return softmax(times * (q @ k.swapaxes(-1, -2)) / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v

    return program


def _with_sink(taken: Callable[[int], bool]) -> Program:
    """A sink for which nothing is added to the sums of some lengths."""

    def program(q: Array, k: Array, v: Array, sink: Array) -> Array:
        s, z = scores(q.astype(np.float32), k.astype(np.float32)), sink.astype(np.float32)
        m = np.maximum(s.max(axis=-1, keepdims=True), z)
        e = np.exp(s - m)
        total = e.sum(axis=-1, keepdims=True) + taken(len(k)) * np.exp(z - m)
        return (e / total @ v.astype(np.float32)).astype(q.dtype)

    return program


def _tiled_with_sink(output: bool, total: bool) -> Program:
    """Tiles of 8, the sink the first of the maxima; whether output and sum so far are rescaled."""

    def program(q: Array, k: Array, v: Array, sink: Array) -> Array:
        s = scores(q, k)
        m = np.broadcast_to(sink, (len(q), 1)).astype(q.dtype)
        z, out = np.ones_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
        for i in range(0, len(k), 8):
            new = np.maximum(m, s[:, i : i + 8].max(axis=1, keepdims=True))
            a, p = np.exp(m - new), np.exp(s[:, i : i + 8] - new)
            out, m = out * (a if output else 1) + p @ v[i : i + 8], new
            z = z * (a if total else 1) + p.sum(axis=1, keepdims=True)
        return out / z

    return program


def _eights(late: bool, power: Callable[[Array], Array] = np.exp) -> Program:
    """Tiles of 8, rescaled by ``power`` of a difference; ``late``, the output so far is rescaled with the new tile."""

    def program(q: Array, k: Array, v: Array) -> Array:
        s = scores(q, k)
        m = np.full((len(q), 1), -np.inf, q.dtype)
        z, out = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
        for i in range(0, len(k), 8):
            new = np.maximum(m, s[:, i : i + 8].max(axis=1, keepdims=True))
            a, p = power(m - new), np.exp(s[:, i : i + 8] - new)
            out = (out + p @ v[i : i + 8]) * a if late else out * a + p @ v[i : i + 8]
            z, m = z * a + p.sum(axis=1, keepdims=True), new
        return out / z

    return program


def _merged_in_turn(
    carry: Callable[[Array, Array, Array], Array], share: Callable[[Array], Array] = lambda x: x
) -> Program:
    """Tiles of 6, each normalised by itself and merged into the output so far, with a log-sum that is carried on."""

    def program(q: Array, k: Array, v: Array) -> Array:
        out, total = 0, np.full((len(q), 1), -1e30, q.dtype)
        for i in range(0, len(k), 6):
            s = scores(q, k[i : i + 6])
            top = s.max(axis=1, keepdims=True)
            new = np.log(np.exp(s - top).sum(axis=1, keepdims=True)) + top
            both = np.logaddexp(total, new)
            out = out * share(np.exp(total - both)) + np.exp(new - both) * (softmax(s) @ v[i : i + 6])
            total = carry(total, both, new) if i else new
        return out

    return program


def _summed(add: Callable[[Array, Array], Array], start: float = -np.inf, guard: float = 0) -> Program:
    """Tiles of 16 whose sums are added to those so far, from a largest score to start with."""

    def program(q: Array, k: Array, v: Array) -> Array:
        m, z, out = np.full((len(q), 1), start, q.dtype), np.zeros((len(q), 1), q.dtype), q.dtype.type(0)
        for i in range(0, len(k), 16):
            s = scores(q, k[i : i + 16])
            new = np.maximum(m, s.max(axis=1, keepdims=True))
            a, p = np.exp(m - new), np.exp(s - new)
            out, z, m = out * a + p @ v[i : i + 16], add(z * a, p.sum(axis=1, keepdims=True)), new
        return out / np.maximum(z, q.dtype.type(guard))

    return program


def _mask_of_tile(before: int) -> Program:
    """A causal kernel with tiles of 8, whose mask is that of so many tiles before; the first tile has its own."""

    def program(q: Array, k: Array, v: Array) -> Array:
        j = np.arange(len(k))
        seen = np.where(j < 8 * before, j, j - 8 * before) <= np.arange(len(q))[:, None] + len(k) - len(q)
        return softmax(np.where(seen, scores(q, k), -np.inf)) @ v

    return program


def _alibi(slopes: list[float], read: Callable[[Array], Array] = lambda far: far, sign: int = 1) -> Program:
    def program(q: Array, k: Array, v: Array) -> Array:
        far = np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None] - k.shape[-2] + q.shape[-2]
        s = scores(q, k) + np.multiply.outer(np.array(slopes), read(far)).astype(q.dtype)
        return softmax(np.where(far <= 0, sign * s, -np.inf)) @ v

    return program


def _rotated_by(frequencies: Callable[[int, int], Array], of_keys: Callable[[Array], Array] = lambda p: p) -> Program:
    """A causal kernel whose columns are rotated by frequencies of their width and the number of keys."""

    def turned(x: Array, n: int, p: Array) -> Array:
        angle = p[:, None] * frequencies(x.shape[-1], n)
        cos, sin, (a, b) = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype), np.split(x, 2, axis=-1)
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)

    def program(q: Array, k: Array, v: Array) -> Array:
        i, j = np.arange(len(q)) + len(k) - len(q), np.arange(len(k))
        s = scores(turned(q, len(k), i), turned(k, len(k), of_keys(j)))
        return softmax(np.where(j <= i[:, None], s, -np.inf)) @ v

    return program


def _powers(d: int, base: float = 10000) -> Array:
    return base ** (-np.arange(0, d, 2) / d)


def _in_windows(keep: Callable[[Array], Array]) -> Program:
    """A causal window of 4, gathered from keys with three more before the first one; ``keep``: which are seen."""

    def program(q: Array, k: Array, v: Array) -> Array:
        wide, n = [np.pad(a, ((3, 0), (0, 0))) for a in (k, v)], len(k) - len(q)
        rows = [[a[i : i + 4][keep(np.arange(i - 3, i + 1))] for a in wide] for i in range(n, len(k))]
        return np.concatenate([plain(q[i : i + 1], *row) for i, row in enumerate(rows)])

    return program


def _scaled(q: Array, k: Array, v: Array, scale: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2) * scale) @ v


def _biased(q: Array, k: Array, v: Array, bias: Array) -> Array:
    return softmax(scores(q, k) + bias) @ v


def _capped(f: Callable[[Array], Array], q: Array, k: Array, v: Array) -> Array:
    return softmax(7 * f(scores(q, k) / 7)) @ v


def _centred(
    x: Array, gain: Array, bias: Array, of: Program = lambda x, g, b: (x, g, b),
    size: Program = lambda c: np.sqrt((c * c).mean(axis=-1) + np.float32(1e-5)),
) -> Array:  # fmt: skip
    x, gain, bias = of(x, gain, bias)
    c = x - x.mean(axis=-1, keepdims=True)
    return c / size(c)[..., None] * gain + bias


def _appended(back: Callable[[Array, Array], Array]) -> Program:
    """New tokens after a cache; both are returned by ``back``."""

    def program(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array) -> tuple[Array, ...]:
        keys, values = np.concatenate([k_cache, k]), np.concatenate([v_cache, v])
        seen = np.arange(len(keys)) <= len(k_cache) + np.arange(len(q))[:, None]
        return _plain_masked(q, keys, values, seen), back(k_cache, k), back(v_cache, v)

    return program


def _decaying(decay: Callable[[Array], Array]) -> Program:
    def program(q: Array, k: Array, v: Array, g: Array) -> Array:
        state, rows = np.zeros((*q.shape[:-2], k.shape[-1], v.shape[-1]), q.dtype), []
        for t in range(q.shape[-2]):
            state = decay(g[..., t, :, None]) * state + k[..., t, :, None] * v[..., t, None, :]
            rows.append(q[..., t, None, :] @ state)
        return np.concatenate(rows, axis=-2)

    return program


def _split_keys(mass: Callable[[Array, Array], Array], count: int) -> Program:
    """Parts of ⌈n/count⌉ keys, each normalised by itself, merged by masses of their maxima and sums."""

    def program(q: Array, k: Array, v: Array) -> Array:
        s, width = scores(q, k), -(-len(k) // count)
        parts = [s[:, i : i + width] for i in range(0, len(k), width)]
        m = [part.max(axis=1, keepdims=True) for part in parts]
        z = [np.exp(part - top).sum(axis=1, keepdims=True) for part, top in zip(parts, m, strict=True)]
        w = softmax(np.concatenate([mass(*each) for each in zip(m, z, strict=True)], axis=1))
        out = [softmax(part) @ v[i * width : (i + 1) * width] for i, part in enumerate(parts)]
        return sum(w[:, i : i + 1] * a for i, a in enumerate(out))

    return program


def _in_groups(q_order: list[int], out_order: list[int]) -> Program:
    """Six heads that share two of keys and values, read and returned in some orders."""

    def program(q: Array, k: Array, v: Array) -> Array:
        k, v = (np.repeat(a, 3, axis=0) for a in (k, v))
        return (softmax(scores(q[q_order], k)) @ v)[out_order]

    return program


def _in_blocks(a: Array) -> Array:
    return a.reshape(len(a), 2, -1).swapaxes(0, 1)


def _side_by_side(a: Array) -> Array:
    return a.swapaxes(0, 1).reshape(a.shape[1], -1)


def _turned(x: Array) -> Array:
    """Columns in halves, rotated by the positions of the tokens."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[-2])[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)


def _latent(deal: Callable[[Array], Array], deal_values: Callable[[Array], Array]) -> Program:
    """Two heads of keys and values from a latent, and a rotated part of the keys that they share."""

    def program(x: Array, w_q: Array, w_dkv: Array, w_uk: Array, w_uv: Array, w_kr: Array, w_o: Array) -> Array:
        c, content = x @ w_dkv, w_uk.shape[1] // 2
        q, k, shared = _in_blocks(x @ w_q), deal(c @ w_uk), _turned(x @ w_kr)
        q = np.concatenate((q[..., :content], _turned(q[..., content:])), axis=-1)
        k = np.concatenate((k, np.broadcast_to(shared, (2, *shared.shape))), axis=-1)
        return _side_by_side(softmax(scores(q, k)) @ deal_values(c @ w_uv)) @ w_o

    return program


def _dealt(a: Array) -> Array:
    return np.moveaxis(a.reshape(len(a), -1, 2), -1, 0)


_GROUPS, _LATENT = Attention(heads=6, kv_heads=2), Attention(heads=2, latent=Latent(), position=Rotary())
_IN_TURN, _INTO_HALVES, _AS_GIVEN = [0, 3, 1, 4, 2, 5], [0, 2, 4, 1, 3, 5], [*range(6)]
_FACTORS = Attention(heads=4, scale="given")
_CAUSAL, _FUSED = Attention(causal=True), Precision.of("float16", "fused")
#: Wrong programs of the collection, whose right neighbours are right, and words of what is said.
COLLECTED = {
    "masking.padding_as_length": "the padding mask is taken as a length",
    "softmax.exponents_clipped": "exponents s − max s are cut off below −4",
    "softmax.exponential_by_series": "weights are not exponentials",
    "positions.alibi_without_absolute": "without its absolute value: keys ahead",
    "streaming.rescaled_the_wrong_way": "the wrong way round",
    "streaming.values_of_last_tile": "values are those of the tile before",
    "streaming.nothing_rescaled": "neither output nor sum so far is rescaled when the maximum grows (tiles of 5)",
    "streaming.value_in_other_slot": "the weights are right and multiply the wrong values",
    "calls.returned_transposed": "returned transposed",
    "calls.queries_added": "the queries are added to the output",
    "precisions.values_summed_in_half": "float16 arithmetic",
    "variants.blocks_as_window": "blocks are windows",
    "linear.other_feature": "the feature map is relu(x) + 1",
    "logsums.natural_returned": "the logarithm is natural",
}
_PAIRS = (
    *(_Pair(wrong.program, chosen(f"{wrong.family}.{wrong.near}")[0].program, wrong.step, words, wrong.spec,
            wrong.arithmetic, wrong.domain)
      for name, words in COLLECTED.items() for wrong in chosen(name) if isinstance(wrong, Wrong)),
    _Pair(lambda q, k, v: plain(q, k[-70:], v[-70:]), plain, "mask", "only the last 70 keys take part"),
    _Pair(_first_of_ties, plain, "normalize", "only the first key with the highest score is taken"),
    _Pair(_scores_in(np.float32), _scores_in(np.float64), "score", "float32 arithmetic",
          precision="float64", examples=200),
    _Pair(_divided_by_sum_in(np.float16), _divided_by_sum_in(np.float32), "normalize",
          "the sum that they are divided by loses digits"),
    _Pair(_rotated(False), _rotated(True), "position", "in the keys alone: the vectors are not rotated", Rotary()),
    _Pair(_blocks(lambda i, j: (j <= i) & (j >= -(-np.maximum(i - 6, 0) // 4) * 4)),
          _blocks(lambda i, j: (j <= i) & (j >= i - 6)), "mask", "begins where a tile of 4 does: a query sees no tile",
          Attention(causal=True, window=7)),
    _Pair(_blocks(lambda i, j: j <= i + -i[0, 0] % 4), _blocks(lambda i, j: j <= i),
          "mask", "rounded up to blocks of 4", _CAUSAL),
    _Pair(_rescaled_to(False, 6), _tiled(6), "max",
          "to the tile's own maximum, and the tile to the largest score so far (tiles of 6)"),
    _Pair(_rescaled_to(True, 5), _tiled(5), "max",
          "to the tile's own maximum, not to the largest score so far (tiles of 5)"),
    _Pair(_moved_bounds(-1), _moved_bounds(0), "mask", "the last token of each belongs to the next one",
          Attention(documents=True)),
    _Pair(_moved_bounds(0),
          lambda q, k, v, doc: _plain_masked(q, k, v, (doc[:, None] == doc) & np.tri(len(doc), dtype=bool)),
          "mask", "the causal mask is left out", Attention(documents=True, causal=True)),
    _Pair(_sparse(lambda n: n + 1), _sparse(lambda n: n), "normalize", "the threshold is that of one key too many",
          Attention(normaliser="sparsemax")),
    _Pair(_closed_tiles(lambda m: np.where(np.isfinite(m), m, 0), 24), _closed_tiles(lambda m: m, 24),
          "max", "a tile in which a row has no key takes 0", _CAUSAL),
    _Pair(lambda q, k, v, mask: _plain_masked(q, k, v, mask | (np.arange(len(k)) < 3)),
          lambda q, k, v, mask: _plain_masked(q, k, v, mask), "mask", "the first 3 keys are always seen",
          Attention(mask="boolean")),
    _Pair(_moved_back, plain, "normalize", "keys of the tile before count twice (tiles of 40)"),
    *(_Pair(lambda q, k, v, n=n: plain(q, k[:n], v[:n]), plain, "mask", f"only the first {n} keys take part")
      for n in (100, 384)),
    *(_Pair(partial(_ragged, n, t), plain, "mask",
            f"the last key is dropped, where n_k ≥ {n} and n_k is not a multiple of {t}", precision=f, examples=0)
      for n, t, f in ((201, 64, "float32"), (201, 64, "bfloat16"), (301, 96, "float32"), (101, 40, "float32"))),
    _Pair(lambda q, k, v: np.round(softmax(scores(q, k)), 3) @ v, plain, "values",
          "weights are rounded to multiples of 0.001"),
    _Pair(lambda q, k, v: softmax(np.trunc(64 * scores(q, k)) / 64) @ v, plain, "score",
          "scaled scores are rounded to multiples of 0.015625, towards 0"),
    _Pair(lambda q, k, v, keep: softmax(np.where(keep, q.dtype.type(-1e9), scores(q, k))) @ v, _padded, "mask",
          "the padding mask is inverted", Attention(padding=True)),
    _Pair(_by_length, _normed, "norm", "it divides by the length", Attention(qk_norm="rms", eps=1e-6)),
    _Pair(_factors(lambda c: c[[1, 0, 2, 3]]), _factors(lambda c: c), "scale", "heads 1 and 2 are exchanged", _FACTORS),
    _Pair(_factors(lambda c: c[[2, 2, 2, 2]]), _factors(lambda c: c), "scale", "of head 3 is used for all", _FACTORS),
    _Pair(_factors(lambda c: 0 * c + c.mean()), _factors(lambda c: c), "scale", "the mean scale of all", _FACTORS),
    _Pair(_factors(lambda c: c[[0, 0, 1, 1]]), _factors(lambda c: c), "scale", "each for 2 in a row", _FACTORS),
    _Pair(lambda q, k, v, scale: _scaled(q, k, v, np.minimum(scale, np.log(100))), _scaled, "scale",
          "the scale is cut off above 4.605", Attention(scale="given")),
    _Pair(lambda q, k, v, bias: _biased(q, k, v, np.maximum(bias, -5)), _biased, "bias",
          "the bias is cut off below −5", Attention(bias=True)),
    _Pair(_times_in_third_head(2), _times_in_third_head(1), "scale", "scores of head 3 are 2 times",
          Attention(heads=4)),
    _Pair(_with_sink(lambda n: n <= 64), _with_sink(bool), "sink", "the sink is left out, where n_k > 64",
          Attention(sink="given"), "float16", Domain(max_tokens=130), 0),
    _Pair(_with_sink(lambda n: n <= 64), _with_sink(bool), "sink", "the sink is left out, where n_k > 64",
          Attention(sink="given"), "bfloat16", examples=0),
    _Pair(_tiled_with_sink(False, True), _tiled_with_sink(True, True), "values", "the output so far is not rescaled",
          Attention(sink="given")),
    _Pair(_tiled_with_sink(False, False), _tiled_with_sink(True, True), "normalize", "neither output nor sum so far",
          Attention(sink="given")),
    _Pair(_eights(True), _eights(False), "values",
          "rescaled after the new tile is added to it, not before (tiles of 8)", Attention()),
    *(_Pair(_split_keys(mass, count), _split_keys(lambda m, z: m + np.log(z), count), "merge|normalize",
            f"{words} ({count} parts)")
      for count, words, mass in (
          (4, "merged as if in base 2", lambda m, z: (m + np.log(z)) * np.log(np.float32(2))),
          (8, "parts are merged by their mean, whatever their sums are", lambda m, z: 0 * m),
          (3, "by their maxima, without their sums", lambda m, z: m))),
    _Pair(_in_groups(_INTO_HALVES, _AS_GIVEN), _in_groups(_AS_GIVEN, _AS_GIVEN), "score",
          "the even heads of queries come first", _GROUPS),
    _Pair(_in_groups(_AS_GIVEN, _IN_TURN), _in_groups(_AS_GIVEN, _AS_GIVEN), "merge",
          "heads of the two halves of outputs come in turn", _GROUPS),
    _Pair(_in_groups(_AS_GIVEN, _AS_GIVEN[::-1]), _in_groups(_AS_GIVEN, _AS_GIVEN), "merge",
          "outputs are taken from the last head to the first", _GROUPS),
    _Pair(_latent(_in_blocks, _dealt), _latent(_in_blocks, _in_blocks), "split", "columns of w_uv are dealt", _LATENT),
    _Pair(_latent(_dealt, _in_blocks), _latent(_in_blocks, _in_blocks), "split", "columns of w_uk are dealt", _LATENT),
    _Pair(_norm(np.float16), _norm(np.float32), "norm", "the squares are rounded", RMSNorm(eps=1e-6), _FUSED),
    *(_Pair(_merged_in_turn(carry), _merged_in_turn(lambda old, both, new: both), "merge", words)
      for words, carry in (("a log-sum that is the last part's alone", lambda old, both, new: new),
                           ("a log-sum that is the larger one of both", lambda old, both, new: np.maximum(old, new)))),
    _Pair(_merged_in_turn(lambda old, both, new: both, np.ones_like), _merged_in_turn(lambda old, both, new: both),
          "merge", "it is not rescaled"),
    _Pair(_summed(lambda old, new: new), _summed(np.add), "normalize", "overwrites what is so far: in the sum alone"),
    _Pair(_summed(np.add, 0.0, 1e-12), _summed(np.add), "max", "the largest score so far starts at 0"),
    _Pair(_mask_of_tile(1), _mask_of_tile(0), "mask", "those of the tile before, except in the first", _CAUSAL),
    *(_Pair(_alibi(slopes, read), _alibi([2**-4, 2**-8, 2**-2]), "bias", words,
            Attention(causal=True, heads=3, position=Alibi()))
      for words, slopes, read in (
          ("slopes are 2^(−8(t − 1)/h)", [1, 2 ** (-8 / 3), 2 ** (-16 / 3)], lambda far: far),
          ("in the order of their size", [2**-2, 2**-4, 2**-8], lambda far: far),
          ("do not grow beyond the distance 3", [2**-4, 2**-8, 2**-2], lambda far: np.maximum(far, -3)))),
    *(_Pair(_rotated_by(wrong), _rotated_by(lambda d, n: _powers(d, 10000 * 4 ** (d / (d - 2)))), "position", words,
            Attention(causal=True, position=Rotary(scaling=NTKScaling(factor=4))))
      for words, wrong in (("multiplied by s, not by s^(r/(r − 2))", lambda d, n: _powers(d, 40000)),
                           ("the factor s of the scaled frequencies is 3",
                            lambda d, n: _powers(d, 10000 * 3 ** (d / (d - 2)))))),
    *(_Pair(_rotated_by(times, of_keys), _rotated_by(lambda d, n: _powers(d)), "position", words,
            Attention(causal=True, position=Rotary()))
      for words, times, of_keys in (
          ("the angles are multiplied by 2π", lambda d, n: 2 * np.pi * _powers(d), lambda p: p),
          ("modulo 8", lambda d, n: _powers(d), lambda p: p % 8),
          ("rounded down to multiples of 4", lambda d, n: _powers(d), lambda p: p // 4 * 4),
          ("from the last token to the first", lambda d, n: _powers(d), lambda p: p[::-1]),
          ("the frequencies are in the opposite order", lambda d, n: _powers(d)[::-1], lambda p: p),
          ("positions of keys are those of the tile before", lambda d, n: _powers(d),
           lambda p: np.where(p < 5, p, p - 5)))),
    _Pair(_eights(False, np.exp2), _eights(False), "merge", "rescaled by powers of 2 of natural maxima"),
    _Pair(_forbidden_only, _added, "mask", "only forbids, where it is below 0", Attention(mask="additive")),
    _Pair(_with_sinks(lambda n: -(-n // 16)), _with_sinks(lambda n: 1), "sink", "once in each tile (tiles of 16)",
          Attention(heads=2, sink="given")),
    _Pair(lambda q, k, v, bias: _biased(q, k, v, 0 * bias + bias.sum(axis=0)), _biased, "bias",
          "the sum of the biases over the heads", Attention(heads=2, bias=True)),
    _Pair(lambda q, k, v: plain(q, k, v / np.sqrt(v.shape[1]).astype(v.dtype)), plain, "values",
          "divided by the root of the number of columns"),
    _Pair(lambda q, k, v: _capped(lambda x: 1 / (1 + np.exp(-x)), q, k, v), partial(_capped, np.tanh), "softcap",
          "uses sigmoid(scaled scores/7) instead of tanh(scaled scores/7)", Attention(softcap=7)),
    _Pair(_factors(lambda c: c[[1, 1, 3, 3]]), _factors(lambda c: c), "scale", "the last head of each 2", _FACTORS),
    _Pair(lambda q, k, v, bias: _biased(q, k, v, bias / np.sqrt(q.shape[-1]).astype(q.dtype)),
          lambda q, k, v, bias: softmax(q @ k.T + bias) @ v, "scale",
          "scores and the bias are scaled by 1/√d_k together", Attention(scale=1, bias=True)),
    _Pair(lambda q, k, v, mask: _plain_masked(q, k, v, 0 * mask | mask.all(axis=-2, keepdims=True)), _plain_masked,
          "mask", "open only where it is for every query", Attention(mask="boolean")),
    *(_Pair(partial(_centred, **wrong), _centred, "norm", words, LayerNorm(eps=1e-5))
      for words, wrong in (
          ("the bias is added to x before", {"of": lambda x, g, b: (x + b, g, 0)}),
          ("uses the largest |x − mean(x)| instead of the standard",
           {"size": lambda c: np.abs(c).max(axis=-1) + np.float32(1e-5)}))),
    _Pair(lambda x, weight: weight * (x - x.mean(axis=-1, keepdims=True)) / _root_of_squares(x),
          lambda x, weight: weight * x / _root_of_squares(x), "norm", "from x, not within the square",
          RMSNorm(eps=1e-6)),
    *(_Pair(_summed_over(axes, of), _summed_over((-1,)), "normalize", words, Attention(heads=2))
      for words, axes, of in (
          ("divided by their sum over the queries and keys", (-2, -1), (-1,)),
          ("divided by their sum over the heads and keys", (-3, -1), (-1,)),
          ("one sum is taken over heads, queries and keys", (-3, -2, -1), (-3, -2, -1)))),
    _Pair(_in_turn, gradients.groups, "backward", "as if they shared in turn",
          Gradient(Attention(heads=4, kv_heads=2))),
    *(_Pair(_appended(back), _appended(lambda old, new: np.concatenate([old, new])), "cache", words, Cached(_CAUSAL))
      for words, back in (
          ("over the last one, in what is returned alone", lambda old, new: np.concatenate([old[:-1], new])),
          ("at the beginning of the cache, in what is returned alone", lambda old, new: new))),
    _Pair(_decaying(lambda g: 1 / (1 + np.exp(-g))), _decaying(np.exp), "values", "decays are sigmoids of the gates",
          LinearAttention(feature="identity", normalised=False, gate="feature")),
    *(_Pair(_in_windows(keep), _in_windows(lambda j: j >= 0), "mask", words, Attention(causal=True, window=4))
      for words, keep in (("they are zeros", lambda j: j == j),)),
)  # fmt: skip


def _verified(pair: _Pair, program: Program) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return verify(program, pair.spec, precision=pair.precision, domain=pair.domain, examples=pair.examples)


#: In bfloat16 few mistakes are ruled out by floats, and each is asked on residues: two minutes.
_SLOW = [p for p in _PAIRS if p.precision == "bfloat16" and "the last key is dropped" in p.words]


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize(
    "pair", [pytest.param(p, id=p.words, marks=[pytest.mark.exhaustive] if p in _SLOW else []) for p in _PAIRS]
)
def test_the_mistake_is_named(pair: _Pair) -> None:
    first = _verified(pair, pair.wrong).faults[0]
    assert first.step in pair.step.split("|"), first.message
    assert pair.words in first.message


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("pair", [pytest.param(p, id=p.words) for p in _PAIRS[::4]])
def test_without_it_the_program_is_right(pair: _Pair) -> None:
    assert _verified(pair, pair.right).verdict.value == "no fault"


def _window_of_64(q: Array, k: Array, v: Array) -> Array:
    before = len(k) - len(q)
    rows = [slice(max(0, i - 63), i + 1) for i in range(before, len(k))]
    return np.stack([plain(q[i : i + 1], k[row], v[row])[0] for i, row in enumerate(rows)])


def _wrong_heads(q: Array, k: Array, v: Array) -> Array:
    k, v = k[[1, 3, 0, 2]], v[::-1]
    return np.stack([plain(*each) for each in zip(q, k, v, strict=True)])


@pytest.mark.deep
@pytest.mark.parametrize(
    ("change", "words"),
    [(lambda keep: ~keep, "the padding mask is inverted: True is read as padding"),
     (lambda keep: keep[..., ::-1], "padding is counted at the other end")],
)  # fmt: skip
def test_a_mask_that_is_read_wrong_has_one_name_where_it_leaves_rows_without_keys(change: Any, words: str) -> None:
    def function(q: Array, k: Array, v: Array, keep: Array) -> Array:
        return _plain_masked(q, k, v, change(keep)[..., None, :])

    causes = [fault.cause for fault in verify(function, Attention(padding=True)).faults]
    assert causes == [words]


@pytest.mark.deep
def test_the_sign_of_the_exponents_is_named_where_positions_are_added() -> None:
    """The scale alone has the other sign where nothing is added to the scores."""
    spec = Attention(causal=True, heads=3, position=Alibi())
    (fault,) = verify(_alibi([2**-4, 2**-8, 2**-2], sign=-1), spec).faults
    assert (fault.step, fault.code) == ("exp", "exp-sign")


@pytest.mark.deep
def test_equal_weights_do_not_clear_the_keys() -> None:
    """Keys and values of other heads, each in its own way: the smallest input has equal weights."""
    first = _verified(_Pair(_wrong_heads, _wrong_heads, "", "", Attention(heads=4)), _wrong_heads).faults[0]
    assert "the weights are right" not in first.message


@pytest.mark.deep
def test_what_only_long_inputs_show_is_not_put_down_to_a_format() -> None:
    """Keys that are forgotten weigh little: what is missing is within the bound for float16, and no rounding."""
    first = _verified(_Pair(_window_of_64, plain, "mask", "", _CAUSAL, examples=60), _window_of_64).faults[0]
    assert first.step == "mask"
    assert "arithmetic could make it" not in first.message


def test_steps_are_made_idle_by_numbers_that_the_format_holds() -> None:
    """What is below all scores is no number of bfloat16: it is rounded before the function is called."""
    called: list[Array] = []

    def run_case(case: Case) -> Any:
        called.append(case.inputs["sink"])
        return SimpleNamespace(finding=None, outcome=SimpleNamespace(late=False), decisive=True)

    precision = Precision.of("bfloat16")
    source = SimpleNamespace(completed=lambda session, inputs: inputs, fits=lambda session, inputs: True)
    session: Any = SimpleNamespace(
        precision=precision,
        subject=SimpleNamespace(source=source),
        run_case=run_case,
        effort=SimpleNamespace(over=False),
    )
    wrong: Any = SimpleNamespace(case=Case("sizes", "", {"sink": np.ones(2)}), ratios=np.ones(1), parts=())
    assert idle_step(session, [wrong])[0] == "sink"
    assert np.array_equal(called[-1], precision.input.rounded(called[-1]))


@pytest.mark.deep
def test_a_floor_of_the_maxima_is_not_named_with_another_number() -> None:
    """Rows are lost below −150, where a floor of 0 would lose them from −87 on."""

    def floored(q: Array, k: Array, v: Array) -> Array:
        s = scores(q.astype(np.float32), k.astype(np.float32))
        e = np.exp(s - np.maximum(s.max(axis=-1, keepdims=True), -50))
        return np.asarray(e / e.sum(axis=-1, keepdims=True) @ v)

    (fault,) = verify(floored, Attention()).faults
    assert (fault.step, fault.cause) == ("max", None)
    assert "largest score is below some number" in fault.message


def _of_tokens(
    more: Callable[[Array, Array], Array], split: Callable[[Array], Array], merge: Callable[[Array], Array]
) -> Program:
    """Two heads of tokens, projected, and something besides."""

    def program(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
        q, k, v = (split(x @ w) for w in (w_q, w_k, w_v))
        heads = merge(softmax(q @ k.mT / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v)
        return heads @ w_o + more(x, heads)

    return program


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "cause"),
    [
        (_of_tokens(lambda x, heads: 0, _in_blocks, _side_by_side), None),
        (_of_tokens(lambda x, heads: x, _in_blocks, _side_by_side), "the tokens are added to the output"),
        (_of_tokens(lambda x, heads: heads, _in_blocks, _side_by_side), "the merged heads are added to the output"),
        (_of_tokens(lambda x, heads: 0, lambda a: a.reshape(2, len(a), -1), lambda a: a.reshape(a.shape[1], -1)),
         "heads are split by a reshape alone, without moving their axis; they are merged in the same way"),
        (_of_tokens(lambda x, heads: 0, lambda a: a.reshape(2, len(a), -1), _side_by_side),
         "heads are split by a reshape alone, without moving their axis"),
    ],
)  # fmt: skip
def test_the_output_of_several_heads(program: Program, cause: str | None) -> None:
    report = verify(program, Attention(heads=2), domain=Domain(square_weights=True), examples=0, layout="nd")
    assert [fault.cause for fault in report.faults] == ([cause] if cause else [])


@pytest.mark.deep
def test_heads_that_the_specification_has_not_are_counted() -> None:
    program = _of_tokens(lambda x, heads: 0, _in_blocks, _side_by_side)
    (fault,) = verify(program, Attention(), domain=Domain(square_weights=True), examples=0, layout="nd").faults
    assert fault.cause == "the columns are split into 2 heads, though --heads is 1"
    assert fault.counterexample is not None
    # Scores of two heads stand beside those of one in no row.
    assert "scores" not in [name for name, _, _ in fault.counterexample.steps]
