"""The letters of attention, as papers write them, each in the colour of its role."""

from __future__ import annotations

from fractions import Fraction

from symattn.document.notation import (
    Call,
    Name,
    Node,
    Over,
    Relation,
    Root,
    Transposed,
    call,
    name,
    node,
    relation,
)

D_K, D_V, D_MODEL = name("d", "k"), name("d", "v"), name("d", "model")
N_Q, N_K, N, H = name("n", "q"), name("n", "k"), name("n"), name("h")

SYMBOLS: dict[str, Node] = {
    "x": name("X", role="input"),
    "y": name("Y", role="input"),
    "q": name("Q", role="query"),
    "k": name("K", role="key"),
    "v": name("V", role="value"),
    "w_q": name("W", "Q", role="query"),
    "w_k": name("W", "K", role="key"),
    "w_v": name("W", "V", role="value"),
    "w_o": name("W", "O", role="output"),
    "b_q": name("b", "Q", role="query"),
    "b_k": name("b", "K", role="key"),
    "b_v": name("b", "V", role="value"),
    "b_o": name("b", "O", role="output"),
    "mask": name("M"),
    "keep": name("keep"),
    "scores": name("S", role="score"),
    "scaled": Name("S'", role="score"),
    "masked": Name("S''", role="score"),
    "weights": name("A", role="weight"),
    "attended": name("H", role="output"),
    "output": name("O", role="output"),
}

FORMULAS: dict[str, Node] = {
    "scores": SYMBOLS["q"] * Transposed(SYMBOLS["k"]),
    "masked": Call(Name("mask"), (SYMBOLS["scaled"],)),
    "output": SYMBOLS["weights"] * SYMBOLS["v"],
    "merged": call("concat", SYMBOLS["attended"]),
}


def scale_formula(scale: int | float | Fraction | None, scores: Node = SYMBOLS["scores"]) -> Node:
    """S/√d_k, c S, or S itself for c = 1."""
    if scale is None:
        return Over(scores, Root(D_K))
    if scale == 1:
        return scores
    return node(Fraction(scale)) * scores


def causal_condition(alignment: str) -> Relation:
    """j ≤ i + n_k − n_q, or j ≤ i."""
    i, j = name("i"), name("j")
    return relation(j, "≤", i if alignment == "top-left" else i + N_K - N_Q)


def whole_formula(scale: int | float | Fraction | None, masked: bool) -> Node:
    """softmax(Q Kᵀ / √d_k) V, in words where a mask comes in."""
    inner = scale_formula(scale, FORMULAS["scores"])
    if masked:
        inner = Call(Name("mask"), (inner,))
    return call("softmax", inner) * SYMBOLS["v"]
