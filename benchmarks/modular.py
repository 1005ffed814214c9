"""Attention on residues, one pair (p, q), against NumPy's float64 attention on arrays of the same shapes.

The definitions of ``symattn.attention`` (plain, causal, in heads, in tiles), users' programs, and a whole identity test
to ε ≤ 1e-12. Ratios are of the shortest of several times each, taken in turns.
Command: ``python benchmarks/modular.py``
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from symattn import Attention
from symattn.arrays.modular import modular
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.streaming.states import online
from symattn.bounds.inputs import Sizes
from symattn.programs.calling import agree
from symattn.programs.calls import Target
from symattn.programs.identity import identity
from symattn.programs.request import Request
from symattn.programs.substitute import substitute

N, D, TILE, HEADS = 1024, 64, 128, 4


def tiles(q: Any, k: Any, v: Any) -> Any:
    """The definition's online softmax over tiles of the keys."""
    return online(scale_by_root(dot_scores(q, k), q), v, [*range(0, N, TILE), N])


def users_plain(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T / np.sqrt(q.shape[-1])
    w = np.exp(s - s.max(axis=-1, keepdims=True))
    return (w / w.sum(axis=-1, keepdims=True)) @ v


def users_in_place(q: Any, k: Any, v: Any) -> Any:
    s = (q @ k.T) * q.shape[-1] ** -0.5
    s[np.triu(np.ones(s.shape, dtype=bool), k=1)] = -np.inf
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-1, keepdims=True)
    return s @ v


def users_tiles(q: Any, k: Any, v: Any) -> Any:
    """Flash attention with the state of each block of queries changed in place."""
    n, d = q.shape
    out = np.empty((n, v.shape[-1]))
    for i in range(0, n, TILE):
        qi = q[i : i + TILE]
        rows = qi.shape[0]  # the last tiles may be shorter
        acc, den, top = (
            np.zeros((rows, v.shape[-1])),
            np.zeros((rows, 1)),
            np.full((rows, 1), -np.inf),
        )
        for j in range(0, k.shape[0], TILE):
            s = qi @ k[j : j + TILE].T / np.sqrt(d)
            new = np.maximum(top, s.max(axis=1, keepdims=True))
            e, c = np.exp(s - new), np.exp(top - new)
            den *= c
            den += e.sum(axis=1, keepdims=True)
            acc *= c
            acc += e @ v[j : j + TILE]
            top = new
        out[i : i + TILE] = acc / den
    return out


def ratio(
    work: Callable[..., Any], floats: dict[str, Any], residues: dict[str, Any], runs: int = 7
) -> str:
    """How long the work takes on residues, its result computed, beside how long on floats."""
    kind = type(next(iter(residues.values())))
    on_residues = substitute(work, kind) if work.__name__.startswith("users") else work
    jobs: tuple[Callable[[], Any], ...] = (
        lambda: work(*floats.values()),
        lambda: on_residues(*residues.values()).residues(),
    )
    times: list[list[float]] = [[], []]
    for _ in range(runs):
        for job, seen in zip(jobs, times, strict=True):
            start = time.perf_counter()
            job()
            seen.append(time.perf_counter() - start)
    a, b = map(min, times)
    return f"{b / a:5.1f} ×   ({a * 1e3:.1f} and {b * 1e3:.1f} ms)"


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = name
    return function


def heads(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any) -> Any:
    return Attention(heads=HEADS)(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o)


def main() -> None:
    kind, draw = modular(seed=1), np.random.default_rng(0)
    floats = {name: draw.standard_normal((N, D)) for name in "qkv"}
    residues = {name: kind.letters(N, D) for name in "kv"}
    residues = {"q": kind.lift(draw.integers(-2, 3, (N, D)))} | residues
    for name, work in {
        "plain": named(lambda q, k, v: Attention()(q, k, v), "plain"),
        "causal": named(lambda q, k, v: Attention(causal=True)(q, k, v), "causal"),
        f"tiles of {TILE}": tiles,
        "a user's plain": users_plain,
        "a user's causal, in place": users_in_place,
        "a user's tiles, in place": users_tiles,
    }.items():
        print(f"n = {N}, d = {D}: {name:26} {ratio(work, floats, residues)}")
    width = D * HEADS
    shapes = {"x": (N, width)} | {f"w_{r}": (width, width) for r in "qkvo"}
    floats = {name: draw.standard_normal(shape) for name, shape in shapes.items()}
    residues = {name: kind.lift(draw.integers(-1, 2, shape)) for name, shape in shapes.items()}
    residues["w_k"] = kind.letters(width, width)
    print(f"n = {N}, d_model = {width}: {f'{HEADS} heads':22} {ratio(heads, floats, residues)}")
    start = time.perf_counter()
    program = Target(users_tiles, agree(users_tiles, Request.of(Attention())))
    found = identity(program, Attention(), sizes=[Sizes(N, N, D, D)])
    print(
        f"identity test of the user's tiles: {found.evidence}: {time.perf_counter() - start:.1f} s"
    )


if __name__ == "__main__":
    main()
