"""Which layout the source of a function speaks of: ``(batch, heads, n, d)`` in its documentation, comments or code."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

from symattn.verification.target import Layout

_BATCH = r"\b(?:b|bs|bsz|nb|batch|batch_size)\b"
_HEADS = r"\b(?:h|nh|hq|h_q|heads|n_heads|nheads|num_heads|num_q_heads)\b"
_TOKENS = r"\b(?:n|s|t|l|m|seq|sq|nq|lq|tq|n_q|seqlen|seq_len|seq_length|tokens|length|q_len|time)\b"
_NEXT, _ANY = r"\s*[, ]\s*", r"\w+"
_PATTERNS: tuple[tuple[Layout, str], ...] = (
    ("bhnd", _NEXT.join((_BATCH, _HEADS, _ANY, _ANY))),
    ("bnhd", _NEXT.join((_BATCH, _TOKENS, _HEADS, _ANY))),
    ("bnd", _NEXT.join((_BATCH, _TOKENS, _ANY)) + r"\s*[\])=]"),
    ("nhd", r"[\[(]\s*" + _NEXT.join((_TOKENS, _HEADS, _ANY)) + r"\s*[\])]"),
)


def documented(function: Callable[..., Any]) -> tuple[Layout, ...]:
    """The layouts that the text of the function names, the first one first."""
    text = _text(function).lower()
    found = [(m.start(), layout) for layout, pattern in _PATTERNS if (m := re.search(pattern, text))]
    return tuple(layout for _, layout in sorted(found))


def _text(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return inspect.getdoc(function) or ""
