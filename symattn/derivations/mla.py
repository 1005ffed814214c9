"""``mla``: keys and values that are read from a latent need not be made."""

from __future__ import annotations

from typing import Any

from symattn.attention.spec import Attention
from symattn.derivations.derivation_texts import DerivationText
from symattn.document.model import Document
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader

_LATENT = {"q": "d_k", "C": "n_k l", "U_K": "l d_k", "U_V": "l d_v"}


def derivation() -> Document:
    """Derive q·(c U_K) = (q U_Kᵀ)·c and P(C U_V) = (P C)U_V: the cache holds only the latent."""
    latents = Glossary(_LATENT, defined={"o": _attended(False), "o_narrow": _attended(True)}, rows=True)
    return DerivationText({"latents": latents}).document("mla")


def _attended(narrow: bool) -> Any:
    """Return the output for the query from keys and values, or from latents, divided by the root of their width."""

    def computed(reader: Reader) -> Any:
        q, c, u_k, u_v = (reader.arrays[x] for x in _LATENT)
        row = q[None, :]
        plain = Attention()(row @ u_k.mT, c, c) @ u_v if narrow else Attention()(row, c @ u_k, c @ u_v)
        return plain[0, 0]

    return computed
