"""Whether enclosures hold what the definition gives on balls, and specifications and inputs to try."""

from typing import Any

import flint
import numpy as np

from symattn import Attention, kind, kinds

Ball = kind("ball")

Inputs = dict[str, np.ndarray]


def on_balls(spec: Attention, inputs: Inputs, bits: int = 200) -> Ball:
    """The definition's own output, at ``bits`` or at the precision at which its exponentials say something."""
    exact: Ball = kinds.rising(lambda: spec(**{name: lifted(array) for name, array in inputs.items()}), start=bits)
    return exact


def lifted(array: np.ndarray) -> Any:
    return array if array.dtype == bool else Ball.lift(array.astype(np.float64))


def used(exact: Ball, centre: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """|exact − centre| / radius, element by element: above 1 where it is certain that the enclosure lacks the value."""
    found = np.zeros(centre.size)
    with kinds.precision(200):
        for place, (x, c, r) in enumerate(zip(exact.entries.flat, centre.flat, radius.flat, strict=True)):
            found[place] = np.isnan(c) - 1.0 if isinstance(x, kinds.Undefined) else _part(x, float(c), float(r))
    return found


def _part(x: Any, c: float, r: float) -> float:
    if not np.isfinite(c) or np.isnan(r):
        return np.inf
    off = abs(x - flint.arb(c)).lower()
    if off <= r:
        return float(off) / r if r else 0.0
    return np.inf if r == 0 else max(float((off / r).upper()), 1.0 + 1e-15)


def qkv(rng: np.random.Generator, n_q: int, n_k: int, d: int, d_v: int, front: tuple[int, ...] = ()) -> Inputs:
    """Standard normal queries, keys and values."""
    shapes = {"q": (*front, n_q, d), "k": (*front, n_k, d), "v": (*front, n_k, d_v)}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def masks_for(spec: Attention, rng: np.random.Generator, inputs: Inputs) -> Inputs:
    """The inputs, and masks and sinks as the specification asks for; some rows are fully masked."""
    n_q, n_k = inputs["q"].shape[-2], inputs["k"].shape[-2]
    given = dict(inputs)
    if spec.mask:
        given["mask"] = rng.random((n_q, n_k)) < rng.choice([0.2, 0.8])
    if spec.padding:
        given["keep"] = rng.random(n_k) < 0.7
    if spec.sink == "given":
        given["sink"] = rng.standard_normal(spec.heads) * rng.choice([1.0, 30.0])
    return given


#: Every field of the pattern, alone and with others.
SPECS = (
    Attention(),
    Attention(scale=0.3),
    Attention(scale="1/d_k"),
    Attention(scale=-2),
    Attention(base=2, scale=1),
    Attention(causal=True),
    Attention(causal=True, alignment="top-left"),
    Attention(causal=True, window=3),
    Attention(window=(2, 1)),
    Attention(window=(None, 2), alignment="top-left"),
    Attention(window=(1, None), causal=True, padding=True),
    Attention(prefix=2, causal=True),
    Attention(block=3),
    Attention(block=2, causal=True, mask="boolean"),
    Attention(mask="boolean"),
    Attention(mask="boolean", padding=True),
    Attention(mask="boolean", fully_masked="nan", base=2),
    Attention(sink="zero"),
    Attention(sink="given", causal=True),
    Attention(sink="given", mask="boolean", base=2),
    Attention(stabilised=False),
)


def hostile(rng: np.random.Generator, n: int, d: int) -> dict[str, Inputs]:
    """Inputs on which rounding is at its worst, or says nothing."""
    plain = qkv(rng, n, n, d, d)
    q, k, v = plain["q"], plain["k"], plain["v"]
    outlier = k.copy()
    outlier[n // 2] *= 1e3
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)[:, None]
    return {
        "saturated": plain | {"q": 30 * q, "k": 30 * k},
        "dropped": plain | {"q": 1e3 * q, "k": 1e3 * k},
        "beyond rounding": plain | {"q": 1e9 * q, "k": 1e9 * k},
        "beyond all floats": plain | {"q": 1e200 * q, "k": 1e200 * k},
        "huge and tiny": plain | {"q": 1e250 * q, "k": 1e-250 * k},
        "one long key": plain | {"k": outlier},
        "values that cancel": plain | {"v": 1e8 * signs + v},
        "values far from zero": plain | {"v": v + 1e10},
        "constant values": plain | {"v": np.full_like(v, 0.1)},
        "huge values": plain | {"v": 1e300 * v},
        "hull beyond all floats": plain | {"v": 1.7e308 * signs * np.ones_like(v)},
        "tiny values": plain | {"v": 1e-300 * v},
        "subnormal values": plain | {"v": np.round(5 * v) * 2.0**-1074},
        "subnormal queries": plain | {"q": np.round(5 * q) * 2.0**-1074},
        "subnormal all": {name: np.round(5 * a) * 2.0**-1074 for name, a in plain.items()},
        "scores far below zero": plain | {"q": np.full_like(q, 20.0), "k": np.full_like(k, -20.0) + 1e-3 * k},
        "zeros": {name: np.zeros_like(a) for name, a in plain.items()},
        "equal scores": plain | {"q": np.zeros_like(q)},
        "integers": {name: np.round(3 * a) for name, a in plain.items()},
        "cancelling scores": plain | {"q": 1e6 * np.ones_like(q), "k": 1e6 * np.resize([1.0, -1.0], k.shape) + k},
    }
