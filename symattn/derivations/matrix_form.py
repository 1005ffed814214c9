"""``matrix-form``: attention token by token is attention by matrices."""

from __future__ import annotations

from typing import Any

from symattn.attention.spec import Attention
from symattn.derivations.derivation_texts import DerivationText
from symattn.document.model import Document
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader

_SHAPES = {"X": "n d", "W_Q": "d d_k", "W_K": "d d_k", "W_V": "d d_v"}
_STEPS = {"Q": "q", "K": "k", "V": "v", "S": "scaled", "S′": "scaled", "A": "weights", "C": "output"}


def derivation() -> Document:
    """Derive C = softmax(X W_Q W_Kᵀ Xᵀ/√d_k) X W_V, which equals the result token by token in every entry."""
    tokens = Glossary(_SHAPES, defined={letter: _step(of) for letter, of in _STEPS.items()})
    return DerivationText({"tokens": tokens}).document("matrix-form")


def _step(of: str) -> Any:
    """Return the implementation's result for tokens and projections, up to a step."""

    def computed(reader: Reader) -> Any:
        return Attention().trace(**{key.lower(): reader.arrays[key] for key in _SHAPES})[of]

    return computed
