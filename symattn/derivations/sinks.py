"""``sinks``: a score without a value, which takes weight but adds nothing to the output."""

from __future__ import annotations

from symattn.arrays.array import Array
from symattn.attention.softmax import sink_weights
from symattn.derivations.derivation_texts import DerivationText
from symattn.document.model import Document
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader


def derivation() -> Document:
    """Derive that a sink is one more key of value 0, and multiplies the output by sigmoid(lse(s) − b)."""
    return DerivationText({"implemented": Glossary(defined={"p": _weights})}).document("sinks")


def _weights(reader: Reader) -> Array:
    """Return the weights of the keys with a sink of score b, by the implementation."""
    return sink_weights(reader.arrays["s"][None, :], reader.arrays["b"][None, None])[0, :]
