"""``shift``: softmax sees only the differences of its scores."""

from __future__ import annotations

from symattn.derivations.derivation_texts import DerivationText
from symattn.document.model import Document

_TEXT = """
Softmax sees only differences
hint: symattn derive scaling    why the differences must not grow
letters: new | s n, c | index i n, ℓ n
letters bias: new | Q n_q d_k, K n_k d_k, V n_k d_v, b d_k
letters example: new | example
roles: Q none, K none, V none
# The shift
let: Let $p = softmax(s)$ be the weights of $n$ scores.
- p_i = e^{s_i}/Z :: with $Z = Σ_{ℓ=1}^n e^{s_ℓ}$
- e^{s_i + c} = e^c e^{s_i} :: for every $i$
- softmax(s + c 𝟏) = softmax(s) :: $e^c$ cancels
result: softmax(s + c 𝟏) = softmax(s)
# What it is good for
- softmax(s - {max_ℓ s_ℓ} 𝟏) = softmax(s) :: no exponent is positive, none overflows
bias- attention(Q, K + 𝟏 bᵀ, V) = attention(Q, K, V) :: $q·(k_j + b) = q·k_j + q·b$
# What does change the weights
example- softmax_1(1, 0) = e/(1 + e) ≠ ½ = softmax_1(0, 0) :: the first key alone is shifted
caveat: A shift must be the same for all keys of a row; it may differ from row to row.
"""


def derivation() -> Document:
    """Derive softmax(s + c1) = softmax(s), its two uses, and a shift that does change the weights."""
    return DerivationText().document("shift", _TEXT)
