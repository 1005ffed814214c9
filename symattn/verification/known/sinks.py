"""Mistakes in sinks."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    final,
    in_fields,
    in_inputs,
    in_steps,
    number,
    own,
    parts,
    plain_softmax,
    sink_of,
    with_fields,
)
from symattn.verification.reference import Values


def sink_scaled(spec: Attention, values: Values) -> Any:
    """The sink's logit scaled as scores are."""
    return with_sink(spec, values, own(spec, values, "scaled", sink_of(spec, values)))


def sink_times_root(spec: Attention, values: Values) -> Any:
    """The sink's logit in units of unscaled scores."""
    z = sink_of(spec, values)
    return with_sink(spec, values, z / own(spec, values, "scaled", number(z, 1)))


def sink_twice(spec: Attention, values: Values) -> Any:
    """The sink in the sum twice."""
    p = parts(spec, values)
    return p.e / (p.total + p.sink)


def sink_without_maximum(spec: Attention, values: Values) -> Any:
    """e^z beside exponentials of s − m."""
    s = final(spec, values)
    m = softmax.row_max(s)
    e = softmax.powers(s - m, spec.base)
    return e / (namespace_of(s).sum(e, axis=-1, keepdims=True) + softmax.powers(sink_of(spec, values), spec.base))


def sink_not_exponentiated(spec: Attention, values: Values) -> Any:
    """z itself in the sum."""
    p = parts(spec, values)
    return p.e / (namespace_of(p.e).sum(p.e, axis=-1, keepdims=True) + sink_of(spec, values))


def sink_in_natural_base(spec: Attention, values: Values) -> Any:
    """A sink of the other base than the scores'."""
    p = parts(spec, values)
    z = sink_of(spec, values)
    log2 = namespace_of(z).log(number(z, 2))
    z = z * log2 if spec.base is None else z / log2
    return p.e / (namespace_of(p.e).sum(p.e, axis=-1, keepdims=True) + softmax.powers(z - p.m, spec.base))


def sink_on_every_score(spec: Attention, values: Values) -> Any:
    """The sink's logit added to each score."""
    return softmax.softmax(final(spec, values) + sink_of(spec, values), fully_masked="zeros", base=spec.base)


def sink_gives_first_value(spec: Attention, values: Values) -> Any:
    """The sink's share given to the first key."""
    a = own(spec, values, "weights")
    xp = namespace_of(a)
    rest = 1 - xp.sum(a, axis=-1, keepdims=True)
    return xp.concat([a[..., :1] + rest, a[..., 1:]], axis=-1)


def sink_moves_values(spec: Attention, values: Values) -> Any:
    """The sink in front, and the last key left out: each key's weight goes to the value of the next one."""
    a = own(spec, values, "weights")
    xp = namespace_of(a)
    rest = 1 - xp.sum(a, axis=-1, keepdims=True)
    return xp.concat([rest, a[..., :-1]], axis=-1)


def sink_first_of_all(spec: Attention, values: Values) -> Any:
    """The first head's sink for every head."""
    return with_sink(spec, values, values["sink"][:1][:, None, None])


def with_sink(spec: Attention, values: Values, z: Any) -> Any:
    """Weights with another logit of the sink."""
    s = final(spec, values)
    xp = namespace_of(s)
    m = xp.maximum(softmax.row_max(s), z)
    e = softmax.powers(s - m, spec.base)
    return e / (xp.sum(e, axis=-1, keepdims=True) + softmax.powers(z - m, spec.base))


def _given(spec: Attention) -> bool:
    return spec.sink == "given"


def _given_to_heads(spec: Attention) -> bool:
    return spec.sink == "given" and spec.heads > 1


def sink_beside_powers(spec: Attention, values: Values) -> Any:
    """z beside the sum of e^s."""
    s = final(spec, values)
    m = softmax.row_max(s)
    e = softmax.powers(s - m, spec.base)
    total = namespace_of(s).sum(e, axis=-1, keepdims=True)
    return e / (total + sink_of(spec, values) * softmax.powers(-m, spec.base))


MISTAKES: tuple[Mistake, ...] = (
    in_inputs(
        "sink",
        "the sink of another head is taken: heads are in the opposite order",
        _given_to_heads,
        sink=lambda spec, a: a[::-1],
    ),
    in_inputs("sink", "the sink of the next head is taken", _given_to_heads, sink=lambda spec, a: np.roll(a, -1)),
    in_inputs("sink", "the sink's sign is flipped", _given, sink=lambda spec, a: -a),
    in_steps("sink", "the sink of the first head is taken for all heads", _given_to_heads, weights=sink_first_of_all),
    in_fields("sink", "the sink is left out", lambda s: s.sink is not None, with_fields(sink=None)),
    in_fields(
        "sink",
        "a sink of the logit 0 takes weight that was not asked for: 1 is added to the sum",
        plain_softmax,
        with_fields(sink="zero"),
    ),
    in_fields("sink", "the sink's logits are ignored: 0 is taken for all of them", _given, with_fields(sink="zero")),
    in_steps("sink", "the sink's logit is scaled as scores are", _given, weights=sink_scaled),
    in_steps("sink", "the sink's logit is divided by the scale", _given, weights=sink_times_root),
    in_steps("sink", "the sink counts twice", lambda s: s.sink is not None, weights=sink_twice),
    in_steps(
        "sink",
        "the maximum is not subtracted from the sink's logit",
        lambda s: s.sink is not None,
        rows=False,
        weights=sink_without_maximum,
    ),
    in_steps(
        "sink",
        "the sink's logit is added to the sum without its exponential",
        _given,
        rows=False,
        weights=sink_not_exponentiated,
    ),
    in_steps(
        "sink",
        "the sink's logit is taken in the other base: 2^z for e^z, or e^z for 2^z",
        _given,
        weights=sink_in_natural_base,
    ),
    in_steps("sink", "the sink's logit is added to every score", _given, rows=False, weights=sink_on_every_score),
    in_steps(
        "sink",
        "the sink gives the value of the first key",
        lambda s: s.sink is not None,
        rows=False,
        weights=sink_gives_first_value,
    ),
    in_steps(
        "sink",
        "the sink's weight goes to the first value, and each key's weight to the value of the next key",
        lambda s: s.sink is not None,
        weights=sink_moves_values,
    ),
    in_steps(
        "sink",
        "the sink's logit itself is added to the sum of e^s, not its exponential",
        _given,
        rows=False,
        weights=sink_beside_powers,
    ),
)
