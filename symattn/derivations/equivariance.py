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

_TEXT = """
Attention treats all tokens alike
hint: symattn derive matrix-form
hint: symattn derive attention --causal
letters: tokens | permutations P n
letters keys: new | Q n_q d_k, K n_k d_k, V n_k d_v | permutations P n_k
letters example: tokens | P n n | example
roles: X input
with: $Q = X W_Q$, $K = X W_K$, $V = X W_V$
Let $P$ permute the $n$ tokens: $P X$ has the rows of $X$ in another order.
# The tokens change places
- P Q (P K)ᵀ/√d_k = P {Q Kᵀ/√d_k} Pᵀ :: rows and columns change places
- softmax(P {Q Kᵀ/√d_k} Pᵀ) = P softmax(Q Kᵀ/√d_k) Pᵀ :: softmax is by row
- P softmax(Q Kᵀ/√d_k) Pᵀ P V = P softmax(Q Kᵀ/√d_k) V :: the order is changed back
result: attention(P X) = P attention(X)
# Keys and values alone
keys- attention(Q, P K, P V) = attention(Q, K, V) :: a sum does not mind its order
# A causal mask breaks it
let example: With $X = [1; 0]$, $W_Q = W_K = W_V = [1]$ and $P = [0, 1; 1, 0]$, which exchanges the two tokens:
example- (causal(P X))_{1,1} = 0 ≠ ½ = (P causal(X))_{1,1} :: the first token sees itself alone
caveat: Models know the order of their tokens all the same, by positions that are added or by a mask.
"""


def derivation() -> Document:
    """Derive attention(PX) = P attention(X) for every permutation P of the tokens; a causal mask breaks it."""
    functions = {"attention": _of_tokens(Attention()), "causal": _of_tokens(Attention(causal=True))}
    tokens = Glossary({"X": "n d", "W_Q": "d d_k", "W_K": "d d_k", "W_V": "d d_v"}, functions=functions)
    return DerivationText({"tokens": tokens}).document("equivariance", _TEXT)


def _of_tokens(attention: Attention) -> Callable[[Reader, Value], Value]:
    """Return attention of tokens, with the given projections, as a function of formulas."""

    def attend(reader: Reader, x: Value) -> Value:
        named: dict[str, Any] = {key.lower(): reader.arrays[key] for key in ("W_Q", "W_K", "W_V")}
        return Value(attention(x=x.array, **named), (), 2)

    return attend
