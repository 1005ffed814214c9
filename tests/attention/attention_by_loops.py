"""A whole specification by loops over plain numbers: a second reading of every field, which knows nothing of arrays.

Fields are a dictionary; arrays are nested lists of mpmath numbers, queries, keys and values with an axis of heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mpmath

from tests.attention.weights_by_loops import nearest, tsallis

INF = mpmath.mpf("inf")


def attend(fields: Mapping[str, Any], q: Any, k: Any, v: Any, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """The outputs and the logarithms of the sums, head by head."""
    outputs, sums = [], []
    for h, queries in enumerate(q):
        keys, values = (x[h * len(x) // len(q)] for x in (k, v))
        one = {n: _of_head(n, x, h) for n, x in given.items()}
        rows = [_row(fields, queries, keys, i, one) for i in range(len(queries))]
        outputs.append(
            [
                [mpmath.fsum(a * x[c] for a, x in zip(w, values, strict=True)) for c in range(len(values[0]))]
                for w, _ in rows
            ]
        )
        sums.append([total for _, total in rows])
    return outputs, sums


def _of_head(name: str, x: Any, h: int) -> Any:
    """What of an input belongs to a head: factors and sinks of heads, and what has an axis of heads."""
    depth = {"mask": 2, "bias": 2, "drop": 2, "w_s": 2, "u_s": 2, "v_s": 1, "scale": 0, "sink": 0}.get(name)
    return x[h] if depth is not None and _depth(x) > depth else x


def _depth(x: Any) -> int:
    return 1 + _depth(x[0]) if isinstance(x, list) else 0


def _row(f: Mapping[str, Any], queries: Any, keys: Any, i: int, given: Mapping[str, Any]) -> tuple[list[Any], Any]:
    scores = {
        j: _score(f, queries, keys, i, j, given)
        for j in range(len(keys))
        if _may(f, len(queries), len(keys), i, j, given)
    }
    scores = {j: s for j, s in scores.items() if s != -INF}
    base = mpmath.mpf(2) if f.get("base") else mpmath.e
    weights = dict(zip(scores, _weights(f, list(scores.values()), len(keys), base, given), strict=True))
    total = mpmath.fsum(mpmath.power(base, s) for s in scores.values()) + _sink(f, base, given)
    row = [weights.get(j, mpmath.mpf(0)) for j in range(len(keys))]
    if f.get("dropout"):
        row = [
            a / (1 - mpmath.mpf(str(f["dropout"]))) if given["drop"][i][j] else mpmath.mpf(0) for j, a in enumerate(row)
        ]
    return row, mpmath.log(total, base) if total else -INF


def _score(f: Mapping[str, Any], queries: Any, keys: Any, i: int, j: int, given: Mapping[str, Any]) -> Any:
    x, y = queries[i], keys[j]
    d, kind = len(x), f.get("score", "dot")
    if f.get("truncate"):
        x, y = x[: f["truncate"]], y[: f["truncate"]]
    if kind == "general":
        s = mpmath.fsum(x[a] * given["w_s"][a][b] * y[b] for a in range(len(x)) for b in range(len(y)))
    elif kind == "additive":
        w, u, to = given["w_s"], given["u_s"], given["v_s"]
        hidden = [_dot(x, [row[c] for row in w]) + _dot(y, [row[c] for row in u]) for c in range(len(to))]
        s = _dot(to, [mpmath.tanh(z) for z in hidden])
    elif kind == "distance":
        s = -mpmath.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / 2
    else:
        s = _dot(x, y) / (mpmath.sqrt(_dot(x, x) * _dot(y, y)) if kind == "cosine" else 1)
    scale = f.get("scale")
    if scale is None:
        s = s / mpmath.sqrt(d) if kind == "dot" else s
    else:
        s *= mpmath.mpf(1) / d if scale == "1/d_k" else given["scale"] if scale == "given" else _number(scale)
    if f.get("softcap"):
        s = _number(f["softcap"]) * mpmath.tanh(s / _number(f["softcap"]))
    s += given["bias"][i][j] if f.get("bias") else 0
    return s + given["mask"][i][j] if f.get("mask") == "additive" else s


def _may(f: Mapping[str, Any], n_q: int, n_k: int, i: int, j: int, given: Mapping[str, Any]) -> bool:
    if f.get("mask") == "boolean" and not given["mask"][i][j]:
        return False
    if f.get("padding") and not given["keep"][j]:
        return False
    queries, keys = [0] * n_q, [0] * n_k
    if f.get("documents"):
        queries, keys = (given.get(n, given.get("doc")) for n in ("doc_q", "doc_k"))
    if queries[i] != keys[j]:
        return False
    # Of one document, its own tokens alone: which of them is the query, and which the key?
    mine = [t for t in range(n_q) if queries[t] == queries[i]]
    here = [t for t in range(n_k) if keys[t] == keys[j]]
    late = len(here) - len(mine) if f.get("alignment", "bottom-right") == "bottom-right" else 0
    return _may_by_place(f, mine.index(i) + late, here.index(j))


def _may_by_place(f: Mapping[str, Any], i: int, j: int) -> bool:
    if f.get("causal") and j > i and not j < (f.get("prefix") or 0):
        return False
    window = f.get("window")
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window - 1, 0)
        if (left is not None and j < i - left) or (right is not None and j > i + right):
            return False
    return not f.get("block") or i // f["block"] == j // f["block"]


def _weights(f: Mapping[str, Any], row: list[Any], n_k: int, base: Any, given: Mapping[str, Any]) -> list[Any]:
    kind = f.get("normaliser", "softmax")
    if kind == "sigmoid":
        shift = 0 if f.get("bias") else mpmath.log(n_k)
        return [1 / (1 + mpmath.exp(shift - s)) for s in row]
    if kind == "relu":
        return [max(s, mpmath.mpf(0)) / n_k for s in row]
    if kind != "softmax":
        return (nearest if kind == "sparsemax" else tsallis)(row, n_k)  # type: ignore[no-any-return]
    total = mpmath.fsum(mpmath.power(base, s) for s in row) + _sink(f, base, given)
    return [mpmath.power(base, s) / total for s in row]


def _sink(f: Mapping[str, Any], base: Any, given: Mapping[str, Any]) -> Any:
    kind = f.get("sink")
    return 0 if kind is None else 1 if kind == "zero" else mpmath.power(base, given["sink"])


def _dot(a: Any, b: Any) -> Any:
    return mpmath.fdot(zip(a, b, strict=True))


def _number(x: Any) -> Any:
    return mpmath.mpf(x.numerator) / x.denominator if hasattr(x, "numerator") else mpmath.mpf(x)
