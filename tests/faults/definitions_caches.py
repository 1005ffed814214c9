"""Attention with caches, wrong and right, as programs."""

import numpy as np

from symattn import Attention, Cached, Rotary
from tests.faults.programs import Program, wrong
from tests.faults.rewrites import softmax


def attend(q, k, v, seen):
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
    s = np.where(seen, s, q.dtype.type(-np.inf))
    return softmax(s) @ v


def _joined(k, v, k_cache, v_cache):
    return np.concatenate([k_cache, k], axis=-2), np.concatenate([v_cache, v], axis=-2)


def _written(k, v, k_cache, v_cache, at):
    k_cache[..., at : at + k.shape[-2], :], v_cache[..., at : at + k.shape[-2], :] = k, v
    slots = np.arange(k_cache.shape[-2])[None, :]
    return slots, np.arange(k.shape[-2])[:, None]


def _rotated(x, positions):
    f = x.shape[-1] // 2
    frequencies = (x.dtype.type(10000) ** (-np.arange(f).astype(x.dtype) / x.dtype.type(f))).astype(x.dtype)
    angles = positions[:, None].astype(x.dtype) * frequencies
    c, s, a, b = np.cos(angles), np.sin(angles), x[..., :f], x[..., f:]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def grown(q, k, v, k_cache, v_cache):
    p, n = k_cache.shape[-2], q.shape[-2]
    k, v = _joined(k, v, k_cache, v_cache)
    return attend(q, k, v, np.tri(n, p + n, p, dtype=bool)), k, v


def static(q, k, v, k_cache, v_cache, length):
    j, i = _written(k, v, k_cache, v_cache, length)
    return attend(q, k_cache, v_cache, j <= length + i)


def static_sliced(q, k, v, k_cache, v_cache, length):
    end = length + k.shape[-2]
    _written(k, v, k_cache, v_cache, length)
    seen = np.tri(k.shape[-2], int(end), int(length), dtype=bool)
    return attend(q, k_cache[..., :end, :], v_cache[..., :end, :], seen), k_cache, v_cache


def rotated(q, k, v, k_cache, v_cache):
    positions = k_cache.shape[-2] + np.arange(q.shape[-2])
    return grown(_rotated(q, positions), _rotated(k, positions), v, k_cache, v_cache)


_PLAIN, _TURNED = Cached(Attention(causal=True)), Cached(Attention(causal=True, position=Rotary()))
RIGHT = (
    Program("cache grown", grown, _PLAIN),
    Program("cache static", static, _PLAIN),
    Program("cache sliced", static_sliced, _PLAIN),
    Program("cache rotated", rotated, _TURNED),
)
WRONG = wrong(
    globals(),
    RIGHT,
    """
cache_top_left (grown), mask: the causal mask starts at the other corner: new tokens see the first keys
    k, v = _joined(k, v, k_cache, v_cache)
    return attend(q, k, v, np.tri(q.shape[-2], k.shape[-2], dtype=bool))
cache_no_mask(q, k, v, past_k, past_v) (grown), mask: new tokens see those after them
    return attend(q, *_joined(k, v, past_k, past_v), True)
cache_values_lost (grown), cache: the cache is returned unchanged, without the new values
    return *grown(q, k, v, k_cache, v_cache)[:2], v_cache
cache_values_in_front (grown), cache: new values are put before the cache, not behind it
    _joined(k, v, k_cache, v_cache) → _joined(k, v_cache, k_cache, v)
cache_empty_slots (static), mask: empty slots of the cache are attended to
    j <= length + i → (j <= length + i) | (j >= length + k.shape[-2])
cache_written_at_zero (static), cache: new tokens are written at the beginning of the cache
    _written(k, v, k_cache, v_cache, length) → _written(k, v, k_cache, v_cache, 0)
cache_from_zero (rotated), position: new tokens are rotated as if the cache were empty, from position 0
    k_cache.shape[-2] + np.arange → np.arange
cache_rotated_again (rotated), position: the cache's keys, rotated when they were written, are rotated again
    p, n = k_cache.shape[-2], q.shape[-2]
    positions = np.arange(p + n)
    k, v = _joined(k, v, k_cache, v_cache)
    return attend(_rotated(q, positions[p:]), _rotated(k, positions), v, np.tri(n, p + n, p, dtype=bool))
""",
)
