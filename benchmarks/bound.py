"""The bound on every legal implementation: what it costs, and how much wider it is than errors that occur.

Cost: the bound of every element for one head, n = 256, 1024 and 4096, d = 64, plain and causal, against NumPy's float64
attention of the same arrays, the least processor time of several runs, taken in turn; and the bound's memory. Slack:
the largest bound of an element over the largest error, for inputs N(0, 1), d = 64, two implementations in float32
arithmetic (weights at once, and tiles of 64 keys with an online softmax; sums of values tile by tile in both), weights
and output stored in the format of the inputs; the height of the sums and the number of tiles are given to the bound.

Command: ``OMP_NUM_THREADS=1 python -m benchmarks.bound``
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from itertools import product

import numpy as np

from symattn import Attention, Precision
from symattn.bounds.plain_bound import allowed
from symattn.bounds.priori import InputLimits, a_priori
from symattn.bounds.worst_case import bound

Arrays = dict[str, np.ndarray]
GOALS = {"float32": 250.0, "float16": 16.0, "bfloat16": 6.0}
WIDTH, HEADS, TILE = 64, 4, 64


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Attention as NumPy does it, in the type of its arrays."""
    s = q @ k.T / np.sqrt(q.shape[1], dtype=q.dtype)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True) @ v)


def at_once(q: np.ndarray, k: np.ndarray, v: np.ndarray, p: Precision) -> np.ndarray:
    """Weights of all keys, stored; their products with the values summed tile by tile."""
    s = q @ k.T * np.float32(1 / np.sqrt(q.shape[1]))
    e = np.exp(s - s.max(axis=1, keepdims=True))
    w = _stored(e / e.sum(axis=1, keepdims=True), p)
    parts = [w[:, j : j + TILE] @ v[j : j + TILE] for j in range(0, len(k), TILE)]
    return np.asarray(np.sum(parts, axis=0))


def in_tiles(q: np.ndarray, k: np.ndarray, v: np.ndarray, p: Precision) -> np.ndarray:
    """An online softmax over tiles of keys."""
    m = np.full((len(q), 1), -np.inf, np.float32)
    total, out = np.zeros_like(m), np.zeros((len(q), v.shape[1]), np.float32)
    for j in range(0, len(k), TILE):
        s = q @ k[j : j + TILE].T * np.float32(1 / np.sqrt(q.shape[1]))
        grown = np.maximum(m, s.max(axis=1, keepdims=True))
        e, shrink = np.exp(s - grown), np.exp(m - grown)
        total = total * shrink + e.sum(axis=1, keepdims=True)
        out = out * shrink + _stored(e, p) @ v[j : j + TILE]
        m = grown
    return np.asarray(out / total)


def _stored(x: np.ndarray, p: Precision) -> np.ndarray:
    return np.asarray(p.stored.rounded(x).astype(np.float32))


def drawn(p: Precision, n: int, seed: int) -> Arrays:
    """Queries, keys and values, N(0, 1), in the precision's numbers."""
    rng = np.random.default_rng(seed)
    return {name: p.input.rounded(rng.standard_normal((n, WIDTH))) for name in "qkv"}


def slack(p: Precision, n: int, implementation: Callable[..., np.ndarray]) -> tuple[float, float]:
    """The largest bound over the largest error, and the largest part of the bound that an error reaches."""
    bounds, errors = [], []
    for seed in range(HEADS):
        given = drawn(p, n, 100 * n + seed)
        got = p.returned.rounded(
            implementation(**{c: a.astype(np.float32) for c, a in given.items()}, p=p)
        )
        errors.append(np.abs(got - attention(**given)))
        bounds.append(allowed(Attention(), given, p.in_tiles(n, TILE)))
    return float(np.max(bounds) / np.max(errors)), float(np.max(np.divide(errors, bounds)))


def cost(p: Precision, n: int, spec: Attention) -> tuple[float, float, float]:
    """Seconds of the processor for the bound and for attention in float64, and the bound's memory in MiB."""
    given = drawn(p, n, 1)
    works: list[Callable[[], np.ndarray]] = [
        lambda: allowed(spec, given, p),
        lambda: attention(**given),
    ]
    runs = 15 if n < 4096 else 3
    times = np.array([[_seconds(work) for work in works] for _ in range(runs)]).min(axis=0)
    tracemalloc.start()
    works[0]()
    memory = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return float(times[0]), float(times[1]), memory


def _seconds(work: Callable[[], np.ndarray]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    for n, name, spec in product(
        (256, 1024, 4096), ("fp32", "bf16"), (Attention(), Attention(causal=True))
    ):
        bound, plain, memory = cost(Precision.of(name, "fused"), n, spec)
        times = f"{bound * 1e3:7.1f} ms, attention {plain * 1e3:6.1f} ms: {bound / plain:5.2f} ×, {memory:3.0f} MiB"
        print(f"cost   n = {n:4d}  {name} {'causal' if spec.causal else 'plain ':6s}: {times}")
    print(
        "\nslack  (largest bound / largest error; goal), and the largest part of the bound that is reached"
    )
    for name, goal in GOALS.items():
        p = Precision.of(name, "fused")
        for n in (16, 256, 1024):
            ways = {"at once": slack(p, n, at_once), "in tiles": slack(p, n, in_tiles)}
            told = "  ".join(f"{way}: {x:6.1f} ({part:.3f})" for way, (x, part) in ways.items())
            print(f"       {name:9s} n = {n:4d}  {told}   goal {goal:g}")
    print("\nlargest element and the a-priori formula, n = 1024, tiles of 64")
    for name in GOALS:
        print(f"       {name:9s} {largest(Precision.of(name, 'fused').in_tiles(1024, TILE))}")


def largest(p: Precision) -> str:
    """Where the largest bound of an element comes from, and the formula for inputs of that size."""
    given = drawn(p, 1024, 1)
    found = bound(Attention(), given, p)
    score = float((np.abs(given["q"]) @ np.abs(given["k"]).T).max() / np.sqrt(WIDTH))
    formula = a_priori(InputLimits(1024, WIDTH, score, float(np.abs(given["v"]).max())), p)
    steps = ", ".join(
        f"{step} {part / found.largest:.0%}" for step, part in list(found.steps().items())[:3]
    )
    return f"{found.largest:.2e} ({steps}); formula {formula.value:.2e}"


if __name__ == "__main__":
    main()
