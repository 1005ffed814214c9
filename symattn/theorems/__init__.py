"""The catalogue: theorems about attention, a text for each topic, in the file of its name (see ``texts``)."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module

from symattn.document.errors import InputError
from symattn.proof.theorem import Theorem
from symattn.theorems.words import known, meant

TOPICS = {
    "scaling": "Scaling and statistics",
    "softmax": "Softmax",
    "structure": "Structure and symmetry",
    "gradients": "Gradients",
    "streaming": "Streaming, tiling, cache",
    "masks": "Masks",
    "heads": "Heads",
    "positions": "Positions",
    "scores": "Score variants",
    "normalisation": "Normalisation and residual",
    "linear": "Linear attention and kernels",
    "depth": "Depth and composition",
    "rounding": "Rounding",
}
"""The topics, each with its title."""


@cache
def of_topic(topic: str) -> tuple[Theorem, ...]:
    """Return the theorems of a topic, in the order of their titles."""
    theorems: tuple[Theorem, ...] = import_module(f"{__name__}.{topic}").THEOREMS
    return theorems


def theorem_of(topic: str, name: str) -> Theorem:
    """Return a theorem of a topic."""
    return next(theorem for theorem in of_topic(topic) if theorem.name == name)


def catalogue() -> dict[str, Theorem]:
    """All theorems by name, topic by topic."""
    return {theorem.name: theorem for topic in TOPICS for theorem in of_topic(topic)}


_SEARCH = "; `symattn prove --list` names them, and `symattn prove --search WORD` looks for a word"


def select(names: tuple[str, ...]) -> tuple[Theorem, ...]:
    """The theorems with these names, or of these topics, or that a word such as ``rope`` means; else InputError."""
    return tuple({theorem.name: theorem for name in names for theorem in _found(name)}.values())


def _found(name: str) -> tuple[Theorem, ...]:
    if name in TOPICS:
        return of_topic(name)
    for topic in TOPICS:  # imported one after the other, until it is found
        for theorem in of_topic(topic):
            if theorem.name == name:
                return (theorem,)
    if by_word := meant(name, catalogue().values()):
        return by_word
    near = get_close_matches(name, [*catalogue(), *TOPICS, *known()], n=1)
    raise InputError(f"no theorem or topic {name!r}" + (f"; did you mean {near[0]!r}?" if near else _SEARCH))
