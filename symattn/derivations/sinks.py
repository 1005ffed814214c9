"""``sinks``: a score without a value, which takes weight but adds nothing to the output."""

from __future__ import annotations

from symattn.arrays.array import Array
from symattn.attention.softmax import sink_weights
from symattn.derivations.derivation_texts import DerivationText
from symattn.document.model import Document
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader

_TEXT = """
Attention sinks, and softmax off by one
hint: symattn derive shift             without a sink all scores may be shifted
letters: implemented | s n_k, b, V n_k d_v, m | index j n_k, ℓ n_k
letters example: | but m | V n_k | example
A1: one query with the scores $s$; the sink has the score $b$, a number that is learned
A2: $Z = Σ_{ℓ=1}^{n_k} e^{s_ℓ}$
# The weights
- p_j = e^{s_j}/(e^b + Z) :: as they are computed
- p_j = e^{s_j - m}/(e^{b - m} + Σ_{ℓ=1}^{n_k} e^{s_ℓ - m}) :: $m$ may be any number, also the largest score
- Σ_{j=1}^{n_k} p_j = Z/(e^b + Z) = sigmoid(log(Z) - b) :: numerators add up
- Σ_{j=1}^{n_k} p_j < 1 :: $e^b$ is positive
    gap Σ_{j=1}^{n_k} p_j: e^b/(e^b + Z)
# One more key, of value 0
theorem scores.sink-is-extra-key
# A gate
- p_j = sigmoid(log(Z) - b) softmax_j(s) :: the sink keeps the proportions
- o_sink = o sigmoid(lse(s) - b)
    :: with $o_sink = Σ_{j=1}^{n_k} p_j v_j$ and $o = Σ_{j=1}^{n_k} softmax_j(s) v_j$, the output without a sink
not scores.sink-is-a-gate
A row that finds nothing, with all scores far below $b$, gives an output near 0 instead of a mean of values.
# What may be shifted
theorem scores.sink-shift
# In numbers
let example: With $s = [1, 0]$, $V = [3; 1]$ and $b = 0$:
with example: $o_sink = Σ_{j=1}^{n_k} p_j v_j$, $o = Σ_{j=1}^{n_k} softmax_j(s) v_j$
example- p = [e/(2 + e), 1/(2 + e)] :: beside the sink
example- p_1 = softmax_1(1, 0, 0) :: as softmax over three keys
example- o_sink = Σ_{j=1}^{n_k} p_j v_j = (1 + 3 e)/(2 + e) :: the sink gives nothing
example- o = Σ_{j=1}^{n_k} softmax_j(s) v_j = (1 + 3 e)/(1 + e) ≠ o_sink :: without a sink
caveat: Here the sink is a learned score. That trained models without one use their first token as such is an
    observation, and not shown.
"""


def derivation() -> Document:
    """Derive that a sink is one more key of value 0, and multiplies the output by sigmoid(lse(s) − b)."""
    return DerivationText({"implemented": Glossary(defined={"p": _weights})}).document("sinks", _TEXT)


def _weights(reader: Reader) -> Array:
    """Return the weights of the keys with a sink of score b, by the implementation."""
    return sink_weights(reader.arrays["s"][None, :], reader.arrays["b"][None, None])[0, :]
