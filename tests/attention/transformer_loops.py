"""Blocks and Transformers by loops over plain numbers (mpmath): a second computation that knows nothing of arrays."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import mpmath

from symattn import Attention
from tests.attention.by_loops import attention, normed

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


def heads(x: list[Row], y: list[Row], p: Mapping[str, Any], h: int, causal: bool) -> list[Row]:
    """Multi-head attention of x to y."""
    spec = Attention(heads=h, causal=causal, padding="keep" in p)
    return attention(spec, {"x": x, "y": y, "n_q": len(x), **p})["output"]  # type: ignore[no-any-return]


def block(x: list[Row], y: list[Row] | None, p: Mapping[str, Any], say: Mapping[str, Any]) -> list[Row]:
    """A block; ``say`` holds h, norm, order, parallel, activation, gated, eps, causal."""

    def norm(rows: list[Row], name: str) -> list[Row]:
        if say["norm"] is None:
            return rows
        return [normed(say["norm"], r, say["eps"], p.get(f"{name}.gain"), p.get(f"{name}.bias")) for r in rows]

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
