"""Variants of heads, scores, masks and weights as specifications, with inputs whose sizes all differ."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from symattn import Attention, Latent
from tests.attention.definition import Definition

H, G, N_Q, N_K, D_K, D_V, L = 2, 1, 3, 5, 2, 4, 3
_RNG = np.random.default_rng(23)


def data(*shape: int) -> np.ndarray:
    """Quarters, all of them different, so that no two scores are equal by chance."""
    size = int(np.prod(shape))
    return _RNG.permutation(np.arange(size) - size // 2).reshape(shape) / 4 + 0.125


SEEN = np.array([[1, 0, 1, 1, 1], [0, 1, 1, 0, 1], [0, 0, 0, 0, 0]], dtype=bool)
GIVEN: dict[str, np.ndarray] = {
    "mask": SEEN,
    "keep": np.array([1, 1, 0, 1, 1], dtype=bool),
    "bias": data(N_Q, N_K) / 4,
    "bias of heads": data(H, 1, N_K) / 4,
    "scale": np.array([0.5, 2.0]),
    "sink": np.array([0.75, -1.5]),
    "drop": np.array([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1], [0, 1, 1, 1, 1]], dtype=bool),
    "doc_q": np.array([0, 1, 1]),
    "doc_k": np.array([0, 0, 1, 1, 1]),
    "w_s": data(D_K, D_K),
    "w_s of heads": data(H, D_K, D_K) / 4,
    "w_s wide": data(D_K, L) / 2,
    "u_s": data(D_K, L) / 2,
    "v_s": data(L),
    "v_s of heads": data(H, L),
    "g_q": data(D_K),
    "g_k": data(D_K),
    "beta_q": data(D_K),
    "beta_k": data(D_K),
}  # fmt: skip


QKV = {"q": data(H, N_Q, D_K) / 2, "k": data(G, N_K, D_K) / 2, "v": data(G, N_K, D_V)}
GIVEN["gate"] = np.arange(-12, 12).reshape(H, N_Q, D_V) / 8
GIVEN["gate of heads"] = np.arange(-3, 3).reshape(H, N_Q, 1) / 2
GIVEN["g_q of heads"], GIVEN["beta_q of heads"] = data(H * D_K), data(H * D_K)
GIVEN["g_v"] = np.array([0.5, -2.0, 1.5, 3.0])

#: Why a kind cannot run a variant.
TANH = {"exact": "leaves the decided field"}
ORDER = {"modular": "residues have no order", "letters": "true"}
LOGARITHMS = {"exact": "integer multiples only|division by a logarithm"}
TWO = {"exact": "integer multiples only"}


def variant(given: str = "", refused: Mapping[str, str] | None = None, **fields: Any) -> Definition:
    """Two heads of queries on one of keys with these fields; the inputs beside q, k, v by their names in ``GIVEN``."""
    inputs = {n.split(" ")[0]: GIVEN[n] for n in given.split(", ") if n}
    any_function = refused is TANH or fields.get("score") == "cosine" or {"qk_norm", "value_norm"} & {*fields}
    return Definition(Attention(heads=H, kv_heads=G, **fields), QKV | inputs, refused or {}, bool(any_function))


D, WIDE = 3, 4  # columns of tokens, and of keys that are made of a latent and a part with positions


def of_tokens(spec: Attention, **shapes: tuple[int, ...]) -> Definition:
    """Tokens, and projections of these shapes."""
    return Definition(spec, {"x": data(N_Q, D) / 4} | {name: data(*shape) / 4 for name, shape in shapes.items()})


def latent(heads: int, **fields: Any) -> Definition:
    """Keys and values of low rank; the queries may be, too."""
    queries = {"w_dq": (D, 2), "w_uq": (2, heads * WIDE)} if fields.get("queries") else {"w_q": (D, heads * WIDE)}
    shapes = {"w_dkv": (D, L), "w_uk": (L, heads * 2), "w_uv": (L, heads * D_K), "w_kr": (D, 2)} | queries
    return of_tokens(Attention(heads=heads, causal=True, latent=Latent(**fields)), **shapes, w_o=(heads * D_K, D))


_v = variant
VARIANTS: dict[str, Definition] = {
    "general": _v("w_s", score="general"),
    "general, a matrix for each head": _v("w_s of heads", score="general", scale=Fraction(1, 2)),
    "additive": _v("w_s wide, u_s, v_s", TANH, score="additive"),
    "additive, a vector for each head": _v("w_s wide, u_s, v_s of heads", TANH, score="additive", causal=True),
    "cosine": _v(score="cosine"),
    "cosine with a temperature": _v("scale", score="cosine", scale="given"),
    "distance": _v(score="distance", causal=True),
    "over d_k": _v(scale="1/d_k"),
    "a scale for each head": _v("scale", scale="given", window=(1, 1)),
    "truncated": _v(truncate=1),
    "truncated, over d_k": _v(truncate=1, scale="1/d_k"),
    "capped": _v("", TANH, softcap=2),
    "capped, then a bias, then masks": _v("bias, mask", TANH, softcap=Fraction(3, 2), bias=True, mask="boolean"),
    "bias": _v("bias", bias=True),
    "bias of heads and padding": _v("bias of heads, keep", bias=True, padding=True, causal=True),
    "window of keys": _v(causal=True, window=2),
    "window, top-left": _v(causal=True, window=2, alignment="top-left"),
    "window with two sides": _v(window=(1, 0), alignment="top-left"),
    "window, one side open": _v(window=(None, 1)),
    "causal and a window to both sides": _v(causal=True, window=(1, 2)),
    "blocks": _v(block=2),
    "blocks, causal": _v(block=2, causal=True),
    "blocks, top-left": _v(block=2, alignment="top-left", window=(1, None)),
    "prefix": _v(causal=True, prefix=2, alignment="top-left"),
    "prefix, bottom-right": _v(causal=True, prefix=4),
    "documents": _v("doc_q, doc_k", documents=True),
    "documents, causal": _v("doc_q, doc_k", documents=True, causal=True),
    "documents, all masks": _v(
        "doc_q, doc_k, mask, keep", documents=True, causal=True, window=2, mask="boolean", padding=True
    ),
    "documents, top-left, blocks": _v("doc_q, doc_k", documents=True, block=2, alignment="top-left"),
    "documents, prefix": _v("doc_q, doc_k", documents=True, causal=True, prefix=1, alignment="top-left"),
    "temperature": _v("", LOGARITHMS, temperature=0.1, temperature_rate=2),
    "temperature, from 0, top-left": _v("", LOGARITHMS, temperature=Fraction(3, 2), temperature_rate=1,
        temperature_start=0, alignment="top-left", causal=True),
    "log-n scaling": _v("", LOGARITHMS, temperature="log", temperature_rate=2, scale=1, causal=True),
    "sink": _v("sink", sink="given"),
    "sink and an empty row": _v("sink, mask", sink="given", mask="boolean"),
    "sink, not stabilised": _v("sink", sink="given", causal=True, stabilised=False),
    "off by one": _v(sink="zero", causal=True),
    "powers of two": _v("", TWO, base=2),
    "powers of two with a sink": _v("sink", TWO, base=2, sink="given", causal=True),
    "sigmoid": _v(normaliser="sigmoid", causal=True),
    "sigmoid with a bias": _v("bias", normaliser="sigmoid", bias=True),
    "sigmoid, not stabilised": _v("mask", normaliser="sigmoid", stabilised=False, mask="boolean"),
    "ReLU": _v("", ORDER, normaliser="relu", causal=True),
    "sparsemax": _v("mask", ORDER, normaliser="sparsemax", scale=Fraction(1, 2), mask="boolean"),
    "entmax": _v("mask", ORDER, normaliser="entmax", scale=Fraction(1, 2), mask="boolean"),
    "entmax, causal": _v("", ORDER, normaliser="entmax", scale=1, causal=True),
    "dropout": _v("drop", dropout=0.1),
    "dropout after a sink": _v("drop, sink", dropout=Fraction(1, 3), sink="given", causal=True),
    "lse": _v(lse=True),
    "lse, masked": _v("mask", lse=True, mask="boolean"),
    "lse with a sink": _v("sink, mask", lse=True, mask="boolean", sink="given"),
    "lse, off by one": _v(lse=True, sink="zero", causal=True),
    "lse in powers of two": _v("", TWO, lse=True, base=2, window=(1, 1)),
    "RMS norm": _v("g_q, g_k", qk_norm="rms", eps=0.25),
    "RMS norm without ε, of keys with gains": _v("g_k", qk_norm="rms"),
    "RMS norm over all heads": _v("g_q of heads, g_k", qk_norm="rms", eps=0.25, qk_norm_over="heads"),
    "layer norm over all heads": _v("beta_q of heads, g_k", qk_norm="layer", qk_norm_over="heads", causal=True),
    "RMS norm of keys": _v("g_k", qk_norm="rms", eps=0.25, qk_norm_of="keys"),
    "layer norm of keys": _v("g_k, beta_k", qk_norm="layer", eps=0.5, qk_norm_of="keys", scale=1),
    "layer norm": _v("g_q, g_k, beta_q, beta_k", qk_norm="layer", eps=0.5),
    "unit length": _v(qk_norm="l2"),
    "RMS norm of values": _v("g_v", value_norm="rms", eps=0.25),
    "RMS norm of values, queries and keys": _v("g_q", qk_norm="rms", value_norm="rms", causal=True),
    "output gate": _v("gate", output_gate=True),
    "output gate of heads": _v("gate of heads", output_gate=True, causal=True),
    "groups of projections": of_tokens(Attention(heads=H, kv_heads=G), w_q=(D, H * D_K), w_k=(D, G * D_K),
        b_k=(G * D_K,), w_v=(D, G * D_V), w_o=(H * D_V, D), b_o=(D,)),
    "packed": of_tokens(Attention(packed=True), w_in=(D, 3 * D_K), b_in=(3 * D_K,), w_o=(D_K, D)),
    "packed, cross, groups": of_tokens(Attention(heads=H, kv_heads=G, packed=True), y=(N_K, D),
        w_in=(D, (H + 2 * G) * D_K), b_in=((H + 2 * G) * D_K,), w_o=(H * D_K, D)),
    "latent": latent(2),
    "latent, queries": latent(2, queries=True),
    "latent, absorbed": latent(2, absorbed=True),
    "latent, absorbed, queries, one head": latent(1, queries=True, absorbed=True),
}  # fmt: skip
