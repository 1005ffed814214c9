"""No right kernel is accused where roundings go together: scores that are nearly tied, values that are alike.

``exhaustive`` takes as many cases as ``SYMATTN_CASES`` says (10,000 by default), from ``SYMATTN_FIRST`` on:
``pytest -m exhaustive tests/testing/test_half_ties.py``.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.formats import Format
from tests.testing.half_kernels import Array, online, refused, weights

TWO = float(np.log(2))
SIZES = (16, 48, 64, 100, 128, 200, 256, 512, 1000, 1024, 2048, 4095, 4096)
LEVELS: dict[str, Callable[[np.random.Generator, int, float], Array]] = {
    "tied": lambda rng, n, x: np.zeros(n),
    "two levels": lambda rng, n, x: x * (rng.random(n) < 0.5),
    "a first tile": lambda rng, n, x: x * (np.arange(n) >= 64),
    "halves": lambda rng, n, x: x * (np.arange(n) >= n // 2),
    "rising": lambda rng, n, x: np.linspace(0, x, n),
    "falling": lambda rng, n, x: np.linspace(x, 0, n),
    "powers of two": lambda rng, n, x: TWO * rng.integers(-6, 1, n),
    "a binade": lambda rng, n, x: TWO * rng.random(n),
    "an outlier": lambda rng, n, x: x * (np.arange(n) == rng.integers(n)),
}
VALUES: dict[str, Callable[[Array], Array]] = {
    "normal": lambda v: v,
    "positive": np.abs,
    "near 1": lambda v: 1 + 0.01 * v,
    "near 30": lambda v: 30 + v,
    "constant": lambda v: np.broadcast_to(v[..., :1, :], v.shape),
    "powers of two": lambda v: np.exp2(np.rint(v)),
    "signs": np.sign,
}


class Case(NamedTuple):
    """One set of inputs, of as many queries as are affordable, and the scores in float32."""

    words: str
    format: Format
    q: Array
    k: Array
    v: Array
    scores: Array


def drawn(seed: int) -> Case:
    rng = np.random.default_rng([seed, 7])
    n, d, h = int(rng.choice(SIZES)), int(rng.choice([16, 64])), int(rng.choice([1, 2, 4]))
    rows = max(4, min(n, (1 << 16) // (h * n)))
    f, level, value = Format(str(rng.choice(["bfloat16", "float16"]))), rng.choice([*LEVELS]), rng.choice([*VALUES])
    step, spread = rng.choice([1, -1]) * 10 ** rng.uniform(-3.5, 1), 10 ** rng.uniform(-6, 0)
    far = rng.choice([0.0, 0.0, 10 ** rng.uniform(-3.5, 0), 10 ** rng.uniform(0, 2)]) * rng.choice([1, -1])
    q, k = spread**0.5 * rng.standard_normal((h, rows, d)), spread**0.5 * rng.standard_normal((h, n, d))
    unit = d**0.25
    q[..., 0] = unit * (1 + rng.choice([0.0, 1e-3, 1.0]) * rng.standard_normal((h, rows)))
    k[..., 0] = unit * (LEVELS[level](rng, n, step) + far)
    q[..., 1], k[..., 1] = unit, 0
    v = VALUES[value](rng.standard_normal((h, n, d)))
    q, k, v = (f.rounded(a) for a in (q, k, v))
    s = (q.astype(np.float32) @ k.swapaxes(-1, -2).astype(np.float32)) / np.float32(d**0.5)
    words = f"{f.name} {h}×{rows}×{n}×{d} {level} {step:.2g}, spread {spread:.1g}, far {far:.2g}, values {value}"
    return Case(words, f, q, k, v, s.astype(float))


def relative(case: Case, m: Array, more: float = 0.0) -> Array:
    """Exponentials relative to m + ``more``, stored where they meet the values."""
    e = np.exp((case.scores - m - more).astype(np.float32)).astype(float)
    return case.format.rounded(case.format.rounded(e) @ case.v / e.sum(-1, keepdims=True))


def lazy(case: Case, tile: int = 64) -> Array:
    """As FlashAttention-4: a new maximum is taken over only where it is larger by 8 in base 2."""
    s, m, total, out = case.scores / TWO, -np.inf, 0.0, 0.0
    for at in range(0, s.shape[-1], tile):
        top = s[..., at : at + tile].max(-1, keepdims=True)
        new = np.where(top > m + 8, top, m)
        e = np.exp2((s[..., at : at + tile] - new).astype(np.float32)).astype(float)
        total = total * np.exp2(m - new) + e.sum(-1, keepdims=True)
        out = out * np.exp2(m - new) + case.format.rounded(e) @ case.v[..., at : at + tile, :]
        m = new
    return case.format.rounded(out / total)


def fixed(case: Case) -> Array:
    """As FlashDecoding++: relative to 0; where exponentials would leave the range, to another number."""
    m = case.scores.max(-1, keepdims=True)
    return relative(case, np.where(np.abs(m) < 6, 0.0, 8 * np.rint(m / 8)))


def whole(case: Case) -> Array:
    """Relative to a power of 2."""
    return relative(case, TWO * np.ceil(case.scores.max(-1, keepdims=True) / TWO))


def adversary(case: Case) -> Array:
    """Relative to the fixed reference of 16 whose roundings have the largest sum."""
    power = TWO * np.rint(case.scores.max(-1, keepdims=True) / TWO)  # which changes no rounding

    def together(more: float) -> float:
        p = np.exp(case.scores - power - more)
        return abs(float(((case.format.rounded(p) - p).sum(-1) / p.sum(-1)).sum()))

    return relative(case, power, max(-np.arange(16) / 8 * case.format.u, key=together))


def stored(case: Case) -> Array:
    """Scores are stored, too, and exponentials relative to 0."""
    s = case.format.rounded(case.scores)
    return fixed(case._replace(scores=s))


def eager(case: Case) -> Array:
    f = case.format
    return f.rounded(f.rounded(weights(f.rounded(case.scores))) @ case.v)


KERNELS: dict[str, tuple[Callable[[Case], Array], str | None]] = {
    "running maxima": (lambda case: online(case.scores, case.v, case.format), "fused"),
    "tiles of 16": (lambda case: online(case.scores, case.v, case.format, 16), "fused"),
    "lazy": (lazy, "fused"),
    "lazy, tiles of 128": (lambda case: lazy(case, 128), "fused"),
    "fixed": (fixed, "fused"),
    "powers of 2": (whole, "fused"),
    "adversary": (adversary, "fused"),
    "stored": (stored, None),
    "eager": (eager, None),
}


def accused(seed: int) -> Iterator[str]:
    """The right outputs of a case that are accused, with the words."""
    case = drawn(seed)
    h = len(case.q)
    given: dict[str, Any] = {n: a if h > 1 else a[0] for n, a in zip("qkv", case[2:5], strict=True)}
    given |= {"spec": Attention(heads=h), "precision": case.format.name}
    for name, (kernel, contract) in KERNELS.items():
        out = kernel(case) if h > 1 else kernel(case)[0]
        yield from (f"{seed} {case.words}; {name}: {words}" for words in refused(out, contract, **given))


@pytest.mark.deep
@pytest.mark.parametrize("seed", [20, 93, 475, 3480, 5273])
def test_nearly_tied_scores_accuse_no_reference(seed: int) -> None:
    assert not [*accused(seed)]


@pytest.mark.exhaustive
def test_nearly_tied_scores_never_accuse_a_reference() -> None:
    first, count = (int(os.environ.get(f"SYMATTN_{n}", d)) for n, d in (("FIRST", "0"), ("CASES", "10000")))
    assert not [words for seed in range(first, first + count) for words in accused(seed)]
