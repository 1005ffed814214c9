"""Exact online softmax = direct softmax: the kind ``exact`` against SymPy's ``simplify``.

Both check, for integer Q, K, V and the scale 1/√d, that attention computed key by key equals attention computed at
once, element by element. Command: ``python benchmarks/exact.py``
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import sympy

from symattn.arrays import kind
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax
from symattn.attention.streaming.states import online

Rows = list[list[int]]


def integers(n: int, d: int, seed: int = 0) -> list[Rows]:
    """Q, K and V with entries from −3 to 3."""
    draw = random.Random(seed)
    return [[[draw.randint(-3, 3) for _ in range(d)] for _ in range(n)] for _ in range(3)]


def exact(*data: Rows) -> bool:
    """The identity on exact arrays, one key a tile."""
    q, k, v = map(kind("exact").lift, data)
    s = scale_by_root(dot_scores(q, k), q)
    return bool((online(s, v, range(len(data[1]) + 1)) == softmax(s) @ v).all())


def by_sympy(q: Rows, k: Rows, v: Rows) -> bool:
    """The same identity, each difference put to ``simplify``."""
    d = len(v[0])
    for row in q:
        s = [sum(a * b for a, b in zip(row, key, strict=True)) / sympy.sqrt(d) for key in k]
        weights = [sympy.exp(x) for x in s]
        for c in range(d):
            direct = sum(w * value[c] for w, value in zip(weights, v, strict=True)) / sum(weights)
            if sympy.simplify(_online(s, [value[c] for value in v]) - direct) != 0:
                return False
    return True


def _online(s: list[sympy.Expr], v: list[int]) -> sympy.Expr:
    m, total, accumulated = s[0], sympy.Integer(1), sympy.Integer(v[0])
    for score, value in zip(s[1:], v[1:], strict=True):
        new = sympy.Max(m, score)
        shrink, weight = sympy.exp(m - new), sympy.exp(score - new)
        total, accumulated, m = total * shrink + weight, accumulated * shrink + weight * value, new
    return accumulated / total


def seconds(work: Callable[..., bool], n: int, d: int, runs: int) -> float:
    """The median processor time of ``work``, which must say yes."""
    times, data = [], integers(n, d)
    for _ in range(runs):
        start = time.process_time()
        if not work(*data):
            raise AssertionError("the identity was not confirmed")
        times.append(time.process_time() - start)
    return sorted(times)[runs // 2]


def main() -> None:
    fast = seconds(exact, 8, 4, 11)
    slow = seconds(by_sympy, 8, 4, 1)
    print(
        f"n = 8, d = 4:   exact {fast * 1e3:.2f} ms, SymPy {slow:.2f} s: {slow / fast:.0f} times as fast"
    )
    print(f"n = 64, d = 16: exact {seconds(exact, 64, 16, 1):.2f} s")


if __name__ == "__main__":
    main()
