"""``backward``: the gradients of attention by queries, keys and values."""

from __future__ import annotations

from symattn.derivations.derivation_texts import DerivationText
from symattn.document.model import Document

_TEXT = """
The backward pass of attention
hint: symattn derive jacobian          the derivative of softmax
hint: symattn prove gradients
letters: new | Q n_q d_k, K n_k d_k, V n_k d_v, G n_q d_v | index i n_q, j n_k, l n_k, c d_v | loss L | rows
letters example: | example
A1: $G$ is the gradient that arrives at the output: $L = Σ_{i,c} G_ic o_ic$
A2: $dX$ is the gradient of $L$ by X, for any array X
# Forward
:= S' = Q Kᵀ/√d_k
:= A = softmax(S') :: row by row
:= O = A V
# Backward, one step after the other
- dV = Aᵀ G :: the output is linear in the values
- dA = G Vᵀ :: and in the weights
    free A: n_q n_k
    keep
- dS'_ij = a_ij (dA_ij - D_i) :: the Jacobian of softmax, with $D_i = Σ_{l=1}^{n_k} a_il dA_il$
    free S′: n_q n_k
    keep
- D_i = Σ_{c=1}^{d_v} G_ic o_ic :: so no sum over keys is needed
- dQ = dS' K/√d_k :: scores of row $i$ depend on query $i$ alone
- dK = dS'ᵀ Q/√d_k :: those of column $j$ on key $j$ alone
result: dQ = dS' K/√d_k; dK = dS'ᵀ Q/√d_k; dV = Aᵀ G
not gradients.backward-dQ
# What is conserved
- Σ_{j=1}^{n_k} dS'_ij = 0 :: a shift of all scores changes nothing
- Σ_{j=1}^{n_k} dK_j = 0 :: nor does one vector added to all keys
- Σ_{j=1}^{n_k} dV_j = Σ_{i=1}^{n_q} G_i :: each row of weights sums to one
not gradients.score-gradient-rows-sum-zero
# In numbers
with example: $L = Σ_{i,c} G_ic o_ic$, $S' = Q Kᵀ/√d_k$, $A = softmax(S')$, $O = A V$
let example: With $Q = [2, 0, 0, 0]$, $K = [0, 1, 0, 0; 0, -1, 0, 0]$, $V = [1, 0; 0, 1]$, $G = [1, 0]$ the scores are
    equal, and the loss, differentiated in exact numbers, has the gradients
example- S' = [0, 0] :: no score is larger
example- dQ = [0, ¼, 0, 0] :: differentiated
example- dK = [¼, 0, 0, 0; -¼, 0, 0, 0] :: differentiated
example- dV = [½, 0; ½, 0] :: differentiated
which are those of the formulas. As shown above, the rows of $dK$ sum to 0.
caveat: The formulas are exact. In floating point the row maximum is subtracted first, and what is rounded is
    not bounded here.
"""


def derivation() -> Document:
    """Derive dV = AᵀG, dQ = dS′ K/√d_k, dK = dS′ᵀQ/√d_k, with dS′ through the softmax of each row."""
    return DerivationText().document("backward", _TEXT)
