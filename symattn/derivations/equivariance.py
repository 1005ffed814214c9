"""``equivariance``: attention treats all tokens alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.attention.spec import Attention
from symattn.derivations.derivation_texts import DerivationText
from symattn.document.model import Document
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader


def derivation() -> Document:
    """Derive attention(PX) = P attention(X) for every permutation P of the tokens; a causal mask breaks it."""
    functions = {"attention": _of_tokens(Attention()), "causal": _of_tokens(Attention(causal=True))}
    tokens = Glossary({"X": "n d", "W_Q": "d d_k", "W_K": "d d_k", "W_V": "d d_v"}, functions=functions)
    return DerivationText({"tokens": tokens}).document("equivariance")


def _of_tokens(attention: Attention) -> Callable[[Reader, Value], Value]:
    """Return attention of tokens, with the given projections, as a function of formulas."""

    def attend(reader: Reader, x: Value) -> Value:
        named: dict[str, Any] = {key.lower(): reader.arrays[key] for key in ("W_Q", "W_K", "W_V")}
        return Value(attention(x=x.array, **named), (), 2)

    return attend
