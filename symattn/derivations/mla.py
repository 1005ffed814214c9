"""``mla``: keys and values that are read from a latent need not be made."""

from __future__ import annotations

from typing import Any

from symattn.attention.spec import Attention
from symattn.derivations.derivation_texts import DerivationText
from symattn.document.model import Document
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader

_TEXT = """
Attention over a latent
hint: symattn derive gqa               shared heads instead
hint: symattn derive rope
letters latent: latents | p n_k | index j n_k
letters layer: latents | Q n_q d_k
letters heads: new | P h n_q n_k, C n_k l, U h l d_v, W h d_v e | sizes n_k, h, d_k | index t h | rows
letters beside: new | q d_k, k d_k, q_R d_r, k_R d_r | rows
letters example: latents | example
roles: P weight, U value, W output, o_narrow none
A1: each token keeps a latent row $c_j$, row $j$ of $C$
A of heads.mla-absorb
# The score
latent:= k_j = c_j U_K
latent:= v_j = c_j U_V
latent- q·k_j = (q U_Kᵀ)·c_j :: a product of three matrices
# The output
latent- Σ_{j=1}^{n_k} p_j v_j = (Σ_{j=1}^{n_k} p_j c_j) U_V
    :: the weights are mixed with latents, and the values made once
heads- Σ_{t=1}^h P_t C U_t W_t = Σ_{t=1}^h P_t C (U_t W_t)
    :: $U_t$ and $W_t$, the $U_V$ and $W_O$ of head $t$, become one
result layer: Attention(Q, C U_K, C U_V) = softmax(Q U_Kᵀ Cᵀ/√d_k) C U_V
not heads.mla-absorb
The divisor stays $√d_k$: it is that of the queries before $U_Kᵀ$, though the products are now of the latent width.
# Positions stand in the way
A rotation of the keys stands between the latent and $U_Kᵀ$ and changes from key to key, so it cannot be absorbed.
    A part with positions is kept beside:
beside- (q, q_R)·(k, k_R) = q·k + q_R·k_R :: the dot product of parts side by side
# In numbers
let example: With $q = [2, 0, 0, 0]$, $C = [1; 0]$, $U_K = [1, 0, 0, 0]$ and $U_V = [3]$:
example- o = 3 e/(1 + e) :: from the latents, as from keys and values
example- o = 3 e/(1 + e) ≠ 3 e²/(1 + e²) = o_narrow :: with the root of the latent width
caveat: These are the same numbers in another order. Keys and values of low rank are another model than free
    ones; what that costs is not said.
"""
_LATENT = {"q": "d_k", "C": "n_k l", "U_K": "l d_k", "U_V": "l d_v"}


def derivation() -> Document:
    """Derive q·(c U_K) = (q U_Kᵀ)·c and P(C U_V) = (P C)U_V: the cache holds only the latent."""
    latents = Glossary(_LATENT, defined={"o": _attended(False), "o_narrow": _attended(True)}, rows=True)
    return DerivationText({"latents": latents}).document("mla", _TEXT)


def _attended(narrow: bool) -> Any:
    """Return the output for the query from keys and values, or from latents, divided by the root of their width."""

    def computed(reader: Reader) -> Any:
        q, c, u_k, u_v = (reader.arrays[x] for x in _LATENT)
        row = q[None, :]
        plain = Attention()(row @ u_k.mT, c, c) @ u_v if narrow else Attention()(row, c @ u_k, c @ u_v)
        return plain[0, 0]

    return computed
