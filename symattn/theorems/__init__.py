"""The catalogue: theorems about attention, a text for each topic, in a file of its name (see ``texts``).

What a text names in Python, methods and the meanings of letters by code, is in the module of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib import import_module

from symattn.document.errors import InputError
from symattn.document.notation import Node
from symattn.document.text import text
from symattn.proof.theorem import Theorem

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
    """Return all theorems by name, topic by topic."""
    return {theorem.name: theorem for topic in TOPICS for theorem in of_topic(topic)}


_SEARCH = (
    "`symattn prove --list` names the theorems, `symattn prove --search WORD` looks for a word"
)


def select(names: tuple[str, ...]) -> tuple[Theorem, ...]:
    """Return the theorems with these names, topics, or words such as ``rope``. Raises InputError for others."""
    return tuple(
        {theorem.name: theorem for name in names for theorem in _find_named_theorems(name)}.values()
    )


def _find_named_theorems(name: str) -> tuple[Theorem, ...]:
    if name in TOPICS:
        return of_topic(name)
    for topic in TOPICS:  # imported one at a time, until it is found
        for theorem in of_topic(topic):
            if theorem.name == name:
                return (theorem,)
    if by_word := meant(name, catalogue().values()):
        return by_word
    near = get_close_matches(name, [*catalogue(), *TOPICS, *known()], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"topics: {', '.join(TOPICS)}; {_SEARCH}"
    raise InputError(f"no theorem or topic {name!r}; {hint}")


# -- theorems by the words that people use: ``rope``, ``multihead``, ``gqa``, ``variance`` -----------------------------
# A word people use that is in no name → what it is called here: a topic, or the beginning of words in names.
_MEANT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("backprop", "backpropagation", "backward", "gradient"), ("gradients",)),
    "cache": ("kv-cache",),
    **dict.fromkeys(("flash", "flashattention"), ("streaming", "flash")),
    **dict.fromkeys(("float16", "fp16", "numerics"), ("rounding",)),
    "grouped-query": ("gqa", "mqa"),
    **dict.fromkeys(("initialisation", "initialization"), ("projected",)),
    "layer-norm": ("layernorm",),
    **dict.fromkeys(("mask", "masking", "padding"), ("masks",)),
    **dict.fromkeys(("mha", "multi-head", "multihead"), ("heads",)),
    **dict.fromkeys(("norm", "normalization"), ("normalisation",)),
    **dict.fromkeys(("position", "positional"), ("positions",)),
    "rms-norm": ("rmsnorm",),
    **dict.fromkeys(("rope", "rotary"), ("rope", "rotary")),
    "saturation": ("saturat", "saturation"),
    "sliding-window": ("window",),
    "symmetry": ("structure",),
    "temperature": ("scaling",),
}


def meant(word: str, theorems: Iterable[Theorem]) -> tuple[Theorem, ...]:
    """Return the theorems that a word of the field means, or that have it in their name, or ()."""
    plain = word.lower().replace("_", "-")
    called = _MEANT.get(plain)
    if called is None:
        return tuple(t for t in theorems if f"-{plain}-" in f"-{t.name}-")
    return tuple(
        t for t in theorems if any(t.topic == c or _has_word_beginning(c, t.name) for c in called)
    )


def known() -> tuple[str, ...]:
    """Return the words with a meaning of their own."""
    return tuple(_MEANT)


def matching(words: str, theorems: Iterable[Theorem]) -> tuple[Theorem, ...]:
    """Return the theorems whose name, topic or text contains all words, or that the words mean; best first."""
    terms = words.lower().split()
    every = tuple(theorems)
    # Synonyms come first, as they are meant.
    by_word = {t.name for t in meant("-".join(terms), every)}
    named = [
        t
        for t in every
        if t.name in by_word or all(_has_word_beginning(word, t.name) for word in terms)
    ]
    names = {t.name for t in named}
    result = [
        t
        for t in every
        if t.name not in names
        and all(_has_word_beginning(word, _searchable_text_of_theorem(t)) for word in terms)
    ]
    return (*named, *result)


def _has_word_beginning(part: str, text: str) -> bool:
    """Return whether a word of the text begins with ``part``."""
    return re.search(rf"(?<![a-z]){re.escape(part)}", text) is not None


def _searchable_text_of_theorem(theorem: Theorem) -> str:
    hypotheses = (p for h in theorem.hypotheses for p in h)
    parts = (*theorem.says, *theorem.why, *hypotheses)
    shown = (text(p) if isinstance(p, Node) else p if isinstance(p, str) else p.text for p in parts)
    return " ".join((theorem.name, theorem.topic, theorem.source, *shown)).lower()
