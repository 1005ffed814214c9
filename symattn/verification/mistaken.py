"""Mistakes in the fields of a specification: another window, no cap, the other layout of a rotation.

Each runs as the definition of another specification, so that it is right in all but the one thing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention import groups
from symattn.attention.positions import rotary
from symattn.attention.positions.fields import Alibi, Buckets, Rotary
from symattn.attention.spec import Attention
from symattn.verification.reference import Change, Values, Variant

Applies = Callable[[Attention], bool]


@dataclass(frozen=True)
class Mistake:
    """A mistake: the step at which it is made, what it is in words, and how it changes the definition.

    ``applies`` says for which specifications it is one at all.
    """

    step: str
    cause: str
    variant: Variant
    applies: Callable[[Attention], bool] = lambda spec: True


def _field(step: str, cause: str, applies: Applies, change: Callable[[Attention], Attention]) -> Mistake:
    """A mistake that is another specification. Of rows without any key it says nothing."""

    def changed(spec: Attention) -> Attention:
        found = change(spec)
        empty = found.normaliser == "softmax" and found.sink is None and found.masks_anything
        return replace(found, fully_masked="nan") if empty else found

    return Mistake(step, cause, Variant(spec=changed), applies)


def _with(**fields: Any) -> Callable[[Attention], Attention]:
    return lambda spec: replace(spec, **fields)


def _window(left: int, right: int) -> Callable[[Attention], Attention]:
    """So many keys more on either side; a window that is none is left out."""

    def change(spec: Attention) -> Attention:
        before, after = spec.sides
        sides = (None if before is None else before + left, None if after is None else after + right)
        return replace(spec, window=None if sides == (None, None) else sides)

    return change


def _position(**fields: Any) -> Callable[[Attention], Attention]:
    return lambda spec: replace(spec, position=replace(spec.position, **fields))  # type: ignore[type-var]


def _is(kind: type[Any], **fields: Any) -> Callable[[Attention], bool]:
    return lambda s: isinstance(s.position, kind) and all(getattr(s.position, f) == x for f, x in fields.items())


def _shared(spec: Attention) -> bool:
    return 1 < spec.key_heads < spec.heads


def _in_turn(role: str, spec: Attention, values: Values) -> Any:
    """Query head t reads head t mod g."""
    step = next(s for s in spec.pipeline(frozenset(values)) if s.name == f"{role}_shared")
    return groups.tile_heads(values[step.of[0]], spec.heads // spec.key_heads)


def _turned(alignment: str, more: int, spec: Attention, values: Values) -> Any:
    """Queries turned as if they stood with the first or the last keys, and so many places further."""
    step = next(s for s in spec.pipeline(frozenset(values)) if s.name == "q_turned")
    q, cos, sin = (values[name] for name in step.of)
    asked, xp = spec.position, namespace_of(q)
    assert isinstance(asked, Rotary)
    at = [rotary.for_queries(t, q.shape[-2], alignment) for t in (cos, sin)]
    frequencies = rotary.inverse_frequencies(2 * int(cos.shape[-1]), asked.base, q)
    further = rotary.tables(xp.arange(1) + more, frequencies)
    return rotary.rotate(rotary.rotate(q, at[0], at[1], asked.layout), *further, asked.layout)


def _in_order(spec: Attention) -> bool:
    """Whether positions are 0, 1, … with tables that are cosines and sines, and queries the last ones."""
    p = spec.position
    return (
        isinstance(p, Rotary)
        and p.given is None
        and p.scaling is None
        and p.start == 0
        and spec.latent is None
        and spec.alignment == "bottom-right"
    )


def _steps(step: str, cause: str, applies: Applies, **steps: Change) -> Mistake:
    return Mistake(step, cause, Variant(steps), applies)


def _forbidden_at(spec: Attention, values: Values) -> Any:
    """Masked scores that pass the cap after the mask: c tanh(−∞/c) = −c."""
    run = next(s for s in spec.pipeline(frozenset(n for n in values)) if s.name == "masked")
    xp, s = namespace_of(values["scores"]), values[run.of[0]]
    masked = run.run(s, *(values[n] for n in run.of[1:]))
    return xp.where(xp.isfinite(masked), masked, xp.asarray(-Fraction(spec.softcap or 0)))


#: Mistakes of the fields that a specification has beside masks, scale and heads.
FIELDS: tuple[Mistake, ...] = (
    _steps(
        "split", "heads of keys and values are repeated in turn: query head t reads head t mod kv_heads", _shared,
        k_shared=partial(_in_turn, "k"), v_shared=partial(_in_turn, "v"),
    ),
    _field("mask", "the window is ignored", lambda s: s.window is not None, _with(window=None)),
    _field("mask", "the window is one key too long, before the query", lambda s: s.sides[0] is not None, _window(1, 0)),
    _field("mask", "the window is one key too short, before the query", lambda s: bool(s.sides[0]), _window(-1, 0)),
    _field(
        "mask", "the window is one key too long, after the query",
        lambda s: s.sides[1] is not None and not s.causal, _window(0, 1),
    ),
    _field("mask", "the window is one key too short, after the query", lambda s: bool(s.sides[1]), _window(0, -1)),
    _field("mask", "the prefix is ignored", lambda s: s.prefix is not None, _with(prefix=None)),
    _field(
        "mask", "the prefix is one key too long", lambda s: s.prefix is not None,
        lambda s: replace(s, prefix=(s.prefix or 0) + 1),
    ),
    _field(
        "mask", "the prefix is one key too short", lambda s: (s.prefix or 0) > 1,
        lambda s: replace(s, prefix=(s.prefix or 0) - 1),
    ),
    _field("mask", "the documents are ignored", lambda s: s.documents, _with(documents=False)),
    _field("softcap", "the cap is left out", lambda s: s.softcap is not None, _with(softcap=None)),
    _steps(
        "softcap", "the cap comes after the mask: forbidden scores become −c, which leaves them a weight",
        lambda s: s.softcap is not None and s.masks_anything, masked=_forbidden_at,
    ),
    _field("bias", "the bias is left out", lambda s: s.bias, _with(bias=False)),
    _field("sink", "the sink is left out", lambda s: s.sink is not None, _with(sink=None)),
    _field("exp", "powers of e are taken in place of those of 2", lambda s: s.base == 2, _with(base=None)),
    _field("norm", "queries and keys are not normalised", lambda s: s.qk_norm is not None, _with(qk_norm=None, eps=0)),
    _field("norm", "the ε of the norm is left out", lambda s: bool(s.eps), _with(eps=0)),
    _field("position", "positions are left out", lambda s: s.position is not None, _with(position=None)),
    _field(
        "position", "columns l and l + r/2 are turned together, in place of 2l and 2l + 1",
        _is(Rotary, layout="interleaved"), _position(layout="half"),
    ),
    _field(
        "position", "columns 2l and 2l + 1 are turned together, in place of l and l + r/2",
        _is(Rotary, layout="half"), _position(layout="interleaved"),
    ),
    _steps(
        "position", "queries are one position too far from the keys", _in_order,
        q_turned=partial(_turned, "bottom-right", 1),
    ),
    _steps(
        "position", "queries are one position too near to the keys", _in_order,
        q_turned=partial(_turned, "bottom-right", -1),
    ),
    _steps(
        "position", "positions of queries are counted from the first key, not to the last", _in_order,
        q_turned=partial(_turned, "top-left", 0),
    ),
    _field(
        "position", "the scaling of the frequencies is left out",
        lambda s: isinstance(s.position, Rotary) and s.position.scaling is not None, _position(scaling=None),
    ),
    _field(
        "bias", "linear biases grow on both sides", _is(Alibi, two_sided=False), _position(two_sided=True),
    ),
    _field("bias", "buckets are of one direction", _is(Buckets, bidirectional=True), _position(bidirectional=False)),
    _field("bias", "buckets are of both directions", _is(Buckets, bidirectional=False), _position(bidirectional=True)),
)  # fmt: skip
