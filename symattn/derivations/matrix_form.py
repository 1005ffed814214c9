"""``matrix-form``: attention token by token is attention by matrices."""

from __future__ import annotations

from typing import Any

from symattn.attention.spec import Attention
from symattn.derivations.derivation_texts import DerivationText
from symattn.document.model import Document
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader

_TEXT = """
Attention token by token, and by matrices
hint: symattn walk ground-up           the same with numbers
hint: symattn derive equivariance
letters: tokens | index i n, j n, ℓ n | rows
letters example: new | X n d, W_Q d d_k, W_K d d_k | rows | example
roles: X input, x input, c output
First what happens to tokens $i$ and $j$, then the same as an entry of a matrix.
# Step by step
- q_i = x_i W_Q = (X W_Q)_i :: one row
- k_i = x_i W_K = (X W_K)_i :: one row
- v_i = x_i W_V = (X W_V)_i :: one row
- s_ij = q_i·k_j/√d_k = (Q Kᵀ/√d_k)_ij :: a dot product for each pair, with $Q = X W_Q$ and $K = X W_K$
- a_ij = e^{s_ij}/Σ_{ℓ=1}^n e^{s_iℓ} = (softmax(S'))_ij :: each row by itself, with $S' = Q Kᵀ/√d_k$
- c_i = Σ_{j=1}^n a_ij v_j = (A V)_i :: a weighted sum of all values, with $A = softmax(S')$ and $V = X W_V$
# In one formula
- C = A V = softmax(X W_Q W_Kᵀ Xᵀ/√d_k) X W_V :: together
result: C = softmax(X W_Q W_Kᵀ Xᵀ/√d_k) X W_V
# Another divisor is another attention
with example: $Q = X W_Q$, $K = X W_K$, $A = softmax(Q Kᵀ/√d_k)$
let example: With $X = [2, 1; 0, 1]$ and $W_Q = W_K = [1, 0; 0, 1]$, and a divisor that is not $√d_k$,
    the weight of token 1 differs:
example- a_11 = e^{2 √2}/(1 + e^{2 √2}) ≠ e²/(1 + e²) = (softmax(Q Kᵀ/d_k))_{1,1} :: divided by the size, $d_k$
example- a_11 = e^{2 √2}/(1 + e^{2 √2}) ≠ e^{4/√5}/(1 + e^{4/√5}) = (softmax(Q Kᵀ/‖q_1‖))_{1,1}
    :: divided by the length of the query, $‖q_1‖$
caveat: Equal means equal as functions of all entries, in exact numbers; rounded, they may differ.
"""
_SHAPES = {"X": "n d", "W_Q": "d d_k", "W_K": "d d_k", "W_V": "d d_v"}
_STEPS = {"Q": "q", "K": "k", "V": "v", "S": "scaled", "S′": "scaled", "A": "weights", "C": "output"}


def derivation() -> Document:
    """Derive C = softmax(X W_Q W_Kᵀ Xᵀ/√d_k) X W_V, which equals the result token by token in every entry."""
    tokens = Glossary(_SHAPES, defined={letter: _step(of) for letter, of in _STEPS.items()})
    return DerivationText({"tokens": tokens}).document("matrix-form", _TEXT)


def _step(of: str) -> Any:
    """Return the implementation's result for tokens and projections, up to a step."""

    def computed(reader: Reader) -> Any:
        return Attention().trace(**{key.lower(): reader.arrays[key] for key in _SHAPES})[of]

    return computed
