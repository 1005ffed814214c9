"""Theorems by the words that people use: ``rope``, ``multihead``, ``gqa``, ``variance``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from symattn.document.notation import Node
from symattn.document.text import text
from symattn.proof.theorem import Theorem

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
    """The theorems that a word of the field means, or whose name has it; none where it is no such word."""
    plain = word.lower().replace("_", "-")
    called = _MEANT.get(plain)
    if called is None:
        return tuple(t for t in theorems if f"-{plain}-" in f"-{t.name}-")
    return tuple(t for t in theorems if any(t.topic == c or _begins(c, t.name) for c in called))


def known() -> tuple[str, ...]:
    """The words that are understood."""
    return tuple(_MEANT)


def found(words: str, theorems: Iterable[Theorem]) -> tuple[Theorem, ...]:
    """The theorems whose name, topic or text holds every one of the words, or that the words mean; best first."""
    asked = words.lower().split()
    every = tuple(theorems)
    by_word = {t.name for t in meant("-".join(asked), every)}
    named = [t for t in every if t.name in by_word or all(_begins(word, t.name) for word in asked)]
    names = {t.name for t in named}
    result = [t for t in every if t.name not in names and all(_begins(word, _text(t)) for word in asked)]
    return (*named, *result)


def _begins(part: str, text: str) -> bool:
    """Return whether a word of the text begins so."""
    return re.search(rf"(?<![a-z]){re.escape(part)}", text) is not None


def _text(theorem: Theorem) -> str:
    parts = (*theorem.says, *theorem.why, *(p for h in theorem.hypotheses for p in h))
    shown = (text(p) if isinstance(p, Node) else p if isinstance(p, str) else p.text for p in parts)
    return " ".join((theorem.name, theorem.topic, theorem.source, *shown)).lower()
