"""Checks that the fields of ``Attention`` mean something, alone and together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

from symattn.attention.fields import check, refusal
from symattn.attention.latent import Latent
from symattn.attention.letters_of_attention import WIDE
from symattn.attention.positions.checks import POSITIONS
from symattn.attention.positions.position_fields import Position, Rotary
from symattn.document.errors import InputError

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def _set_elsewhere(field: str) -> Callable[[Attention], bool]:
    return lambda s: not s.is_softmax and bool(getattr(s, field))


#: Combinations that make no sense: what must not hold of a specification, by the reason.
SENSELESS: dict[str, Callable[[Attention], bool]] = {
    **POSITIONS,
    "kv_heads must divide heads: each head of keys is read by as many heads of queries": (
        lambda s: s.heads % s.key_heads != 0
    ),
    "eps belongs to qk_norm 'rms' or 'layer'": lambda s: bool(s.eps) and s.qk_norm in (None, "l2"),
    "packed and latent exclude each other": lambda s: s.packed and s.latent is not None,
    "a latent is shared by all heads, and has no kv_heads; hint: kv_heads=None": (
        lambda s: s.latent is not None and s.kv_heads is not None
    ),
    "with a latent it is the latent that is normalised; hint: Latent(norm='rms') in place of qk_norm": (
        lambda s: s.latent is not None and s.qk_norm is not None
    ),
    # -- scores
    "truncated vectors do not fit the matrices of general and additive scores; hint: narrower matrices": (
        lambda s: s.truncate is not None and s.score in WIDE
    ),
    "cosine scores normalise queries and keys themselves; hint: qk_norm=None": (
        lambda s: s.score == "cosine" and s.qk_norm is not None
    ),
    "rotations encode distances only in dot products, cosines and distances; hint: position=None, or another score": (
        lambda s: isinstance(s.position, Rotary) and s.score in WIDE
    ),
    "keys of a latent have scores that are dot products of all their columns; hint: score='dot', truncate=None": (
        lambda s: s.latent is not None and (s.score != "dot" or s.truncate is not None)
    ),
    # -- masks
    "a window of so many keys looks back from the query; hint: causal=True, or window=(left, right)": (
        lambda s: isinstance(s.window, int) and not s.causal
    ),
    "a window that is open on both sides hides nothing; hint: window=None": lambda s: s.window == (None, None),
    "a prefix opens keys that a causal mask closes; hint: causal=True": lambda s: s.prefix is not None and not s.causal,
    "a window or a block closes keys that a prefix opens; hint: mask='boolean', which says what is meant": (
        lambda s: s.prefix is not None and (s.window is not None or s.block is not None)
    ),
    # -- weights
    **{f"{field} belongs to normaliser 'softmax'": _set_elsewhere(field) for field in ("base", "sink", "lse")},
    "only normaliser 'softmax' and 'sigmoid' take exponentials, which may be stabilised; hint: stabilised=True": (
        lambda s: not s.stabilised and s.normaliser not in ("softmax", "sigmoid")
    ),
    "with a sink, sigmoid or relu a row that is fully masked is not 0/0 but zeros; hint: fully_masked='zeros'": (
        lambda s: s.fully_masked != "zeros" and (s.sink is not None or s.normaliser in ("sigmoid", "relu"))
    ),
    "scores of distances are never positive, and relu makes 0 of them; hint: bias=True, or another normaliser": (
        lambda s: s.score == "distance" and s.normaliser == "relu" and not (s.bias or s.scale or s.mask == "additive")
    ),
}


def check_fields(spec: Attention) -> None:
    """Raise InputError for a field that means nothing, and for fields that contradict each other."""
    check(spec)
    for field in fields(spec):
        value = getattr(spec, field.name)
        for permitted, must in field.metadata["permitted"]:
            if value is not field.default and not permitted(value):
                raise refusal(spec, field.name, must)
    if not isinstance(spec.latent, Latent | None):
        raise refusal(spec, "latent", "be Latent(…) or None")
    if spec.position is not None and not isinstance(spec.position, Position):
        raise refusal(spec, "position", f"be one of None, {', '.join(p.__name__ for p in Position.__args__)}")
    for reason, senseless in SENSELESS.items():
        if senseless(spec):
            raise InputError(f"Attention: {reason}")
