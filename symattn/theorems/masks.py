"""Masks."""

from __future__ import annotations

from symattn.attention.notation import SYMBOLS
from symattn.attention.spec import Attention
from symattn.document.notation import equals, name
from symattn.proof.theorem import theorem

_O, _V = SYMBOLS["output"], SYMBOLS["v"]


@theorem(
    "causal-first-row",
    "masks",
    (equals(name("o", 1, role="output"), name("v", 1, role="value")),),
    arrays={"q0": "1 d", "k0": "1 d", "v0": "1 w", "q": "n d", "k": "n d", "v": "n w"},
    why="The first token may attend to itself alone, and a single weight is 1.",
    false=lambda q0, k0, v0, q, k, v: (_first(q0, k0, v0, q, k, v, causal=False), v0),
    false_says="the same without a mask",
)
def causal_first_row(q0, k0, v0, q, k, v):
    return _first(q0, k0, v0, q, k, v, causal=True), v0


def _first(q0, k0, v0, q, k, v, causal):
    xp = q.__array_namespace__()
    joined = [xp.concat([a, b], axis=-2) for a, b in ((q0, q), (k0, k), (v0, v))]
    return Attention(causal=causal)(*joined)[..., :1, :]


THEOREMS = (causal_first_row,)
