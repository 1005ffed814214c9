"""Sinks: a learned logit per row that takes weight and gives nothing."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.softmax import logarithms, powers


def sink_weights(s: Array, sink: Array, stabilised: bool = True, base: int | None = None) -> Any:
    """a_ij = e^{s_ij} / (e^{b_i} + Σ_l e^{s_il}), stabilised by a maximum that includes the sink b.

    A row in which every key is forbidden gives zeros: the sink takes all. With the base 2: powers of two throughout.
    Shapes: s (…, n_q, n_k), sink (…, n_q, 1), or what broadcasts to it: (h, 1, 1) is a logit per head → (…, n_q, n_k).
    Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks (2024), §3.3; a logit per head:
    OpenAI, gpt-oss-120b & gpt-oss-20b Model Card (2025), §2.2.
    """
    e, z, _ = _parts(s, sink, stabilised, base)
    return e / z


def off_by_one(s: Array, stabilised: bool = True, base: int | None = None) -> Any:
    """a_ij = e^{s_ij} / (1 + Σ_l e^{s_il}): softmax with a sink of logit 0. Shapes: (…, n_k) → (…, n_k).

    Source: E. Miller, Attention Is Off By One (2023).
    """
    return sink_weights(s, namespace_of(s).asarray(0, dtype=s.dtype), stabilised, base)


def sink_log_sum_exp(s: Array, sink: Array | int, base: int | None = None) -> Any:
    """log(e^{b_i} + Σ_j e^{s_ij}), by which e^{s_ij} is divided. Shapes: s (…, n_q, n_k), sink (…, n_q, 1) → those of
    the sink and the rows together, (…, n_q, 1)."""
    _, z, m = _parts(s, sink, True, base)
    return m + logarithms(z, base)


def _parts(s: Array, sink: Array | int, stabilised: bool, base: int | None) -> tuple[Any, Any, Any]:
    """e^{s − m}, its sum with the sink's e^{b − m}, and m. The sink is finite, so that no row lacks a maximum."""
    xp = namespace_of(s)
    largest = xp.maximum(xp.max(s, axis=-1, keepdims=True), sink)
    m = largest if stabilised else xp.asarray(0, dtype=s.dtype)
    e = powers(s - m, base)
    return e, powers(sink - m, base) + xp.sum(e, axis=-1, keepdims=True), m
