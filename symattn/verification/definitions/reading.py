"""Definitions as words: ``LayerNorm(eps=1e-6)``, ``Block(norm='rms')``, ``gradient``, and back."""

from __future__ import annotations

from dataclasses import fields, replace
from importlib import import_module
from typing import Any

from symattn.attention.codec.python_text import parsed
from symattn.attention.spec import Attention
from symattn.document.codec import spelled
from symattn.document.errors import InputError
from symattn.document.keywords import unknown
from symattn.verification.definitions.registry import SUBJECTS, Specification

LSE = "lse"  # an Attention with lse=True
_WORDS = {"Attention": LSE, "Cached": "cached", "Gradient": "gradient", "Merge": "merge", "Softmax": "softmax"}
_KINDS = {_WORDS.get(name, name): name for name in SUBJECTS}
KNOWN = tuple(_KINDS)
"""The words for definitions."""


def read(text: str, attention: Attention | None = None) -> Specification:
    """Return the definition that a text spells, made of ``attention``, None where none was given.

    Nothing is evaluated: fields are literals, fractions such as 1/8, and descriptions. Raises InputError with one line.

    >>> read("rmsnorm(eps=0)"), read("lse", Attention(causal=True)).lse
    (RMSNorm(eps=0), True)
    """
    word, values = parsed(text, KNOWN)
    kind: Any = getattr(import_module("symattn"), _KINDS[word])
    names = {f.name for f in fields(kind)}
    own = [] if word == LSE else sorted(names - {"attention"})
    made_of_it = word == LSE or "attention" in names
    for field in values:
        if field not in own:
            hint = "; give those of the attention by their options" if made_of_it else ""
            raise InputError(f"{unknown(word, field, own, what='field')}{hint}")
    if attention is not None and not made_of_it:
        raise InputError(f"{word} is made of no attention; hint: leave out its options, or write {word}(FIELD=VALUE)")
    if word == LSE:
        return replace(attention or Attention(), lse=True)
    return kind(**values, **({"attention": attention or Attention()} if made_of_it else {}))  # type: ignore[no-any-return]


def written(spec: Specification) -> str:
    """The words that ``read`` takes; the fields of an attention that it is made of are told beside.

    >>> from symattn import LayerNorm
    >>> written(LayerNorm(eps=0.5)), written(Attention(lse=True))
    ('LayerNorm(eps=0.5)', 'lse')
    """
    if isinstance(spec, Attention):
        return LSE
    words = spelled(spec, without="attention")
    return words if "(" in words else next(word for word in KNOWN if word.lower() == words)


def attention_of(spec: Specification) -> Attention | None:
    """The attention that a definition is made of, as options tell it."""
    return replace(spec, lse=False) if isinstance(spec, Attention) else getattr(spec, "attention", None)
