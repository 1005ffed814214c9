"""A field of the specification that takes another value: left out, turned on, or another word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from symattn.attention.positions.fields import Alibi, Buckets, Rotary
from symattn.attention.spec import Attention
from symattn.bounds.mistake import Mistake, in_fields


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Those in the fields that a specification has."""
    for step, words, fields in _others(spec):
        yield in_fields(step, words, **fields)


def _others(spec: Attention) -> Iterator[tuple[str, str, dict[str, Any]]]:
    plain = spec.normaliser == "softmax" and spec.sink is None
    if spec.score == "dot" and spec.latent is None:
        words = "the cosine of queries and keys is taken, not their dot product"
        yield "score", words, {"score": "cosine", "scale": 1}
    if spec.score == "cosine":
        words = "the dot product is taken, not the cosine of queries and keys"
        yield "score", words, {"score": "dot"}
    if spec.score == "distance":
        words = "the dot product is taken, not a distance"
        yield "score", words, {"score": "dot", "scale": 1 if spec.scale is None else spec.scale}
    if spec.truncate is not None:
        words = "all columns of queries and keys are multiplied, not the first ones"
        yield "score", words, {"truncate": None}
    if spec.normaliser != "softmax":
        words = "a softmax is taken in place of what was asked for"
        yield "normalize", words, {"normaliser": "softmax"}
    if spec.sink is not None:
        yield "sink", "the sink is left out", {"sink": None}
    if spec.sink == "given":
        words = "the sink's logits are ignored: 0 is taken for all of them"
        yield "sink", words, {"sink": "zero"}
    if plain:
        words = "a sink of the logit 0 takes weight that was not asked for: 1 is added to the sum"
        yield "sink", words, {"sink": "zero"}
    yield from _positions(spec)


def _positions(spec: Attention) -> Iterator[tuple[str, str, dict[str, Any]]]:
    position = spec.position
    if position is not None and not isinstance(position, Alibi | Buckets):
        yield "position", "positions are left out", {"position": None}
    if isinstance(position, Rotary) and position.scaling is not None:
        yield "position", "the frequencies are not scaled", {"position": replace(position, scaling=None)}
    if isinstance(position, Buckets) and (spec.causal or not position.bidirectional):
        which = "one direction" if position.bidirectional else "both directions"
        turned = replace(position, bidirectional=not position.bidirectional)
        yield "bias", f"buckets are of {which}", {"position": turned}
