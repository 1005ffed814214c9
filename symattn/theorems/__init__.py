"""The catalogue: theorems about attention, one file a topic. A file holds ``THEOREMS``, in the order of reading."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module

from symattn.errors import InputError
from symattn.proof.theorem import Theorem

TOPICS = (
    "scaling",
    "softmax",
    "structure",
    "gradients",
    "streaming",
    "masks",
    "heads",
    "positions",
    "scores",
    "normalisation",
    "linear",
    "depth",
    "rounding",
)


@cache
def catalogue() -> dict[str, Theorem]:
    """All theorems by name, topic by topic."""
    found: dict[str, Theorem] = {}
    for topic in TOPICS:
        for theorem in import_module(f"symattn.theorems.{topic}").THEOREMS:
            found[theorem.name] = theorem
    return found


def select(names: tuple[str, ...]) -> tuple[Theorem, ...]:
    """The theorems with these names, or of these topics; InputError with a suggestion for what is neither."""
    every = catalogue()
    chosen: list[Theorem] = []
    for name in names:
        found = [t for t in every.values() if name in (t.name, t.topic)]
        if not found:
            near = get_close_matches(name, [*every, *TOPICS], n=1)
            raise InputError(f"no theorem or topic {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        chosen.extend(t for t in found if t not in chosen)
    return tuple(chosen)
