"""Sinks: a learned logit per row that takes weight and gives nothing."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.softmax import row_max


def sink_weights(s: Any, sink: Any) -> Any:
    """a_ij = e^{s_ij} / (e^{b_i} + Σ_l e^{s_il}), stabilised by a maximum that includes the sink b.

    Shapes: s (…, n_q, n_k), sink (…, n_q, 1) → (…, n_q, n_k). b = 0 is softmax-off-by-one (E. Miller, Attention Is Off
    By One, 2023). Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks (2024), §3.3.
    """
    xp = namespace_of(s)
    m = xp.maximum(row_max(s), sink)
    e = xp.exp(s - m)
    return e / (xp.exp(sink - m) + xp.sum(e, axis=-1, keepdims=True))
