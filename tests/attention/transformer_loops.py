"""Blocks and Transformers by loops over plain numbers (mpmath): a second computation that knows nothing of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import mpmath

from tests.attention.loops import attend

mp: Any = mpmath
Row = list[Any]
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: max(x, mp.mpf(0)),
    "gelu": lambda x: x * mp.ncdf(x),
    "gelu_tanh": lambda x: x / (1 + mp.exp(-2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3))),
    "silu": lambda x: x / (1 + mp.exp(-x)),
}


def numbers(a: Any) -> Any:
    """Nested lists of mpmath's numbers."""
    plain = a.tolist() if hasattr(a, "tolist") else a
    return [numbers(x) for x in plain] if isinstance(plain, list) else mp.mpf(plain)


def linear(row: Row, w: list[Row], b: Row | None = None) -> Row:
    columns = [mp.fdot(zip(row, column, strict=True)) for column in zip(*w, strict=True)]
    return columns if b is None else [c + shift for c, shift in zip(columns, b, strict=True)]


def normed(row: Row, kind: str, eps: Any, gain: Row | None, bias: Row | None) -> Row:
    mean = mp.fsum(row) / len(row) if kind == "layer" else mp.mpf(0)
    root = mp.sqrt(mp.fsum((x - mean) ** 2 for x in row) / len(row) + eps)
    out = [(x - mean) / root for x in row]
    out = out if gain is None else [x * g for x, g in zip(out, gain, strict=True)]
    return out if bias is None else [x + b for x, b in zip(out, bias, strict=True)]


def heads(x: list[Row], y: list[Row], p: Mapping[str, Any], h: int, causal: bool) -> list[Row]:
    """Multi-head attention of x to y."""
    q, k, v = (
        [linear(row, p[f"w_{r}"], p.get(f"b_{r}")) for row in rows] for r, rows in (("q", x), ("k", y), ("v", y))
    )
    outs: list[Row] = [[] for _ in x]
    for head in range(h):
        qs, ks, vs = ([row[head * len(row) // h : (head + 1) * len(row) // h] for row in rows] for rows in (q, k, v))
        factor = 1 / mp.sqrt(len(qs[0]))
        for out, row in zip(outs, _attended(qs, ks, vs, causal, factor, p.get("keep")), strict=True):
            out += row
    return [linear(row, p["w_o"], p.get("b_o")) for row in outs]


def _attended(q: Any, k: Any, v: Any, causal: bool, factor: Any, keep: Any) -> Any:
    def may(i: int, j: int) -> bool:
        return (not causal or j <= i) and (keep is None or bool(keep[j]))

    return attend(q, k, v, may, lambda i, j: 0.0, factor, "zeros")


def block(x: list[Row], y: list[Row] | None, p: Mapping[str, Any], say: Mapping[str, Any]) -> list[Row]:
    """A block; ``say`` holds h, norm, order, parallel, activation, gated, eps, causal."""

    def norm(rows: list[Row], name: str) -> list[Row]:
        if say["norm"] is None:
            return rows
        return [normed(r, say["norm"], say["eps"], p.get(f"{name}.gain"), p.get(f"{name}.bias")) for r in rows]

    def sub(name: str) -> dict[str, Any]:
        return {n.removeprefix(f"{name}."): a for n, a in p.items() if n.startswith(f"{name}.")}

    def mlp(rows: list[Row]) -> list[Row]:
        w, f, out = sub("mlp"), ACTIVATIONS[say["activation"]], []
        for row in rows:
            inner = linear(row, w["w_up"], w.get("b_up"))
            gates = linear(row, w["w_gate"], w.get("b_gate")) if say["gated"] else inner
            hidden = [f(g) * (u if say["gated"] else 1) for g, u in zip(gates, inner, strict=True)]
            out.append(linear(hidden, w["w_down"], w.get("b_down")))
        return out

    layers: list[tuple[str, Callable[[list[Row]], list[Row]]]] = [
        ("attention", lambda z: heads(z, z, sub("attention"), say["h"], say["causal"]))
    ]
    if y is not None:
        layers.append(("cross", lambda z: heads(z, y, sub("cross"), say["h"], False)))
    start = x
    for name, layer in [*layers, ("mlp", mlp)]:
        read = start if say.get("parallel") and name == "mlp" else x
        before, after = say["order"] in ("pre", "sandwich"), say["order"] in ("inner", "sandwich")
        out = layer(norm(read, f"{name}_norm") if before else read)
        out = norm(out, f"{name}_norm_after" if before else f"{name}_norm") if after else out
        x = [[a + b for a, b in zip(r, s, strict=True)] for r, s in zip(x, out, strict=True)]
        x = norm(x, f"{name}_norm") if say["order"] == "post" else x
    return x


def sinusoids(n: int, d: int) -> list[Row]:
    angle = lambda p, c: p / mp.mpf(10000) ** (mp.mpf(2 * (c // 2)) / d)  # noqa: E731
    return [[(mp.cos if c % 2 else mp.sin)(angle(p, c)) for c in range(d)] for p in range(n)]


def farthest(balls: Any, rows: Any) -> float:
    """The largest distance of balls' midpoints from numbers."""
    pairs = zip(balls.entries.flat, _flat(rows), strict=True)
    return max((abs(float(mp.mpf(x.mid().str(45, radius=False)) - y)) for x, y in pairs), default=math.inf)


def _flat(rows: Any) -> list[Any]:
    return [x for row in rows for x in _flat(row)] if isinstance(rows, list) else [rows]
