"""Attention with positions, with inputs whose sizes all differ and whose outputs are exact."""

from fractions import Fraction

import numpy as np

from symattn import Alibi, Attention, Buckets, Disentangled, Rotary, Shaw, TransformerXL
from tests.attention.definition import Definition

N_Q, N_K, D_K, D_V, D_MODEL, D_E, H = 3, 4, 5, 2, 6, 3, 2
NARROW = 2  # d_k where each score has several products, or expressions in letters grow long
_RNG = np.random.default_rng(23)
TRIPLES = ((4, 3, 5), (-5, 12, 13))


def data(*shape: int) -> np.ndarray:
    """Eighths between −1/2 and 1/2."""
    return _RNG.integers(-4, 5, shape) / 8


def qkv(*front: int, g: tuple[int, ...] | None = None, width: int = D_K) -> dict[str, np.ndarray]:
    back = front if g is None else g
    return {"q": data(*front, N_Q, width), "k": data(*back, N_K, width), "v": data(*back, N_K, D_V)}


def tables(rows: int, *front: int) -> tuple[np.ndarray, np.ndarray]:
    return data(*front, rows, 2), data(*front, rows, 2)


def projected() -> dict[str, np.ndarray]:
    """Tokens and projections to heads of two columns."""
    found = {"x": data(N_Q, D_MODEL), "w_q": data(D_MODEL, H * NARROW), "w_k": data(D_MODEL, H * NARROW)}
    found |= {"w_v": data(D_MODEL, H * D_V), "b_q": data(H * NARROW), "w_o": data(H * D_V, D_MODEL)}
    return {n: a / 8 if n[0] == "w" else a / 2 for n, a in found.items()}


def xl(rows: int, heads: int = H) -> dict[str, np.ndarray]:
    found = {"r": data(rows, D_E), "w_r": data(D_E, heads * NARROW) / 2}
    return found | {"b_u": data(heads, NARROW), "b_w": data(heads, NARROW)}


def disentangled(rows: int, heads: int = H, width: int = NARROW) -> dict[str, np.ndarray]:
    found = {"p": data(rows, D_E)} | {n: data(D_E, heads * width) / 2 for n in ("w_pk", "w_pq")}
    return found | {"b_pq": data(heads * width)}


def named(values: tuple[np.ndarray, ...], *names: str) -> dict[str, np.ndarray]:
    return dict(zip(names, values, strict=True))


POSITIONS: dict[str, Definition] = {
    "rotary, of x": Definition(Attention(heads=H, causal=True, position=Rotary(triples=TRIPLES[1:])), projected()),
    "rotary, interleaved, from 2 on": Definition(
        Attention(position=Rotary(triples=TRIPLES, layout="interleaved", start=2)), qkv()
    ),
    "rotary, shared keys, top-left": Definition(
        Attention(heads=H, kv_heads=1, causal=True, alignment="top-left", position=Rotary(triples=TRIPLES[:1])),
        qkv(H, g=(1,)),
    ),
    "rotary, tables": Definition(
        Attention(heads=H, position=Rotary(given="tables")), qkv(H) | named(tables(N_K), "cos", "sin")
    ),
    "rotary, tables for each batch and role": Definition(
        Attention(heads=H, position=Rotary(given="tables", layout="interleaved")),
        qkv(2, H) | named(tables(N_K, 2) + tables(N_Q, 2), "cos", "sin", "cos_q", "sin_q"),
    ),
    "alibi": Definition(Attention(heads=H, causal=True, position=Alibi()), qkv(H)),
    "alibi, given, two-sided": Definition(
        Attention(position=Alibi(slopes="given", two_sided=True)), qkv() | {"slopes": data(1)}
    ),
    "buckets": Definition(
        Attention(heads=H, scale=1, position=Buckets(number=8, max_distance=9)),
        qkv(2, H, width=NARROW) | {"b_rel": data(8, H)},
    ),
    "buckets, one way": Definition(
        Attention(causal=True, position=Buckets(number=4, max_distance=5, bidirectional=False)),
        qkv() | {"b_rel": data(4, 1)},
    ),
    "shaw": Definition(
        Attention(heads=H, position=Shaw(most=2)),
        qkv(2, H, width=NARROW) | {"a_k": data(5, NARROW), "a_v": data(5, D_V)},
    ),
    "shaw, keys alone, top-left": Definition(
        Attention(causal=True, alignment="top-left", position=Shaw(most=1, values=False)), qkv() | {"a_k": data(3, D_K)}
    ),
    "transformer-xl": Definition(
        Attention(heads=H, causal=True, position=TransformerXL()), qkv(H, width=NARROW) | xl(N_K)
    ),
    "transformer-xl, both ways": Definition(
        Attention(position=TransformerXL()), qkv(2, width=NARROW) | xl(N_Q + N_K - 1, 1)
    ),
    "disentangled": Definition(
        Attention(heads=H, position=Disentangled(span=2)), qkv(H, width=NARROW) | disentangled(4)
    ),
    "disentangled, buckets, as run": Definition(
        Attention(position=Disentangled(span=4, max_distance=12, backwards=False)),
        {"q": data(5, NARROW), "k": data(6, NARROW), "v": data(6, D_V)} | disentangled(8, 1),
    ),
    "disentangled, one term": Definition(
        Attention(scale=Fraction(1, 3), position=Disentangled(span=2, to_content=False)),
        qkv(width=NARROW) | {n: a for n, a in disentangled(4, 1).items() if n in ("p", "w_pk")},
    ),
}
