"""Attention to a cache in steps: new tokens are rotated and written, and the slots that hold tokens are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.flow import Step
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.spec import Attention
from symattn.document import errors
from symattn.verification.definitions.attention_steps import FlowWithAttention
from symattn.verification.rules import rotating


@dataclass(frozen=True)
class CacheFlow(FlowWithAttention):
    """The steps of causal attention of n new tokens to p tokens of a cache and to each other.

    attention       the attention; with a rotary position, new tokens have the positions p, p + 1, …
    static          whether the cache has empty slots, from p = ``length`` on; otherwise it grows
    returns_caches  whether both caches are returned, with the new tokens

    All arrays have tokens on the axis before the columns.

    >>> CacheFlow(Attention(causal=True), static=True).write_formulas(["q", "length"])[:2]
    ['p = length', 'K_all = write(K_cache, K, p)']
    """

    attention: Attention
    static: bool = False
    returns_caches: bool = True

    letters: ClassVar[Mapping[str, str]] = {
        "q": "Q",
        "k": "K",
        "v": "V",
        "k_cache": "K_cache",
        "v_cache": "V_cache",
        "length": "length",
        "filled": "p",
        "q_rotated": "Q'",
        "k_rotated": "K'",
        "k_all": "K_all",
        "v_all": "V_all",
        "keys": "K_seen",
        "values": "V_seen",
        "k_back": "K_back",
        "v_back": "V_back",
    }
    nouns: ClassVar[Mapping[str, str]] = {
        "k_all": "the keys in the cache",
        "v_all": "the values in the cache",
        "q_rotated": "the rotated queries",
        "k_rotated": "the rotated keys",
        "k_back": "the returned keys",
        "v_back": "the returned values",
    }

    #: The number of slots is no array, whether it is passed or counted.
    axes: ClassVar[Mapping[str, str]] = {"filled": ""}

    @property
    def returned(self) -> tuple[str, ...]:
        """See ``StatedFlow``."""
        return ("output", "k_back", "v_back") if self.returns_caches else ("output",)

    @cached_property
    def inner(self) -> Attention:
        """See ``FlowWithAttention``: new tokens are the last of the keys."""
        return replace(self.attention, position=None, alignment="bottom-right")

    @cached_property
    def attention_to_slots(self) -> Attention:
        """The attention to all slots of a cache, of which a boolean mask hides those that a token does not see."""
        return replace(self.inner, causal=False, mask="boolean")

    @property
    def rotary(self) -> Rotary | None:
        """The positions that rotate queries and keys; None if nothing does."""
        position = self.attention.position
        return position if isinstance(position, Rotary) else None

    @property
    def taken(self) -> Mapping[str, str]:
        """See ``FlowWithAttention``."""
        return {"q": "q" if self.rotary is None else "q_rotated", "k": "keys", "v": "values"}

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``."""
        state = partial(self.state_step, blames="cache")
        if self.static:
            yield state("filled", int, "@0", ("length",), role="length")
        else:
            # A growing cache has no length among its inputs, since all its slots hold tokens.
            yield state("filled", _count_slots, "slots(@0)", ("k_cache",), role="length")
        new = {"k": "k", "v": "v"}
        if self.rotary is not None:
            # Keys are rotated once, when they are written: those in the cache have their positions already.
            for name in "qk":
                yield self.state_step(
                    f"{name}_rotated",
                    partial(rotating.rotate_from_position, self.rotary),
                    "rotate(@0, @1)",
                    (name, "filled"),
                    role="rotated",
                    blames="position",
                )
            new["k"] = "k_rotated"
        write = _write_to_slots if self.static else append_to_cache
        for name in "kv":
            of = (f"{name}_cache", new[name], "filled")
            yield state(f"{name}_all", write, "write(@0, @1, @2)", of, role="written")
        for name, array in (("keys", "k_all"), ("values", "v_all")):
            yield state(
                name, _read_tokens, "first(@0, @1 + n)", (array, "filled", "k"), role="read"
            )
        yield from self.state_attention(names)
        for name in "kv" if self.returns_caches else "":
            yield state(
                f"{name}_back", _return_cache, "@0", (f"{name}_all",), role="returned cache"
            )


def _count_slots(cache: Array) -> int:
    return int(cache.shape[-2])


def _write_to_slots(cache: Array, new: Array, slot: int) -> Array:
    """Return the cache with the new tokens from a slot on. Raises ``InputError`` if they don't fit."""
    end = slot + int(new.shape[-2])
    # Slots outside the cache have no meaning, and code differs there.
    if slot < 0 or end > cache.shape[-2]:
        raise errors.InputError(f"{new.shape[-2]} tokens at the slot {slot} of {cache.shape[-2]}")
    return namespace_of(new).concat([cache[..., :slot, :], new, cache[..., end:, :]], axis=-2)


def append_to_cache(cache: Array, new: Array, slot: int) -> Array:
    """Return the tokens of the cache before a slot, followed by the new ones."""
    # A negative slot would count from the end.
    return namespace_of(new).concat([cache[..., : max(slot, 0), :], new], axis=-2)


def _read_tokens(cache: Array, filled: int, new: Array) -> Array:
    return cache[..., : filled + int(new.shape[-2]), :]


def _return_cache(cache: Array) -> Array:
    return cache
