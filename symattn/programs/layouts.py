"""The order of the axes that a function wants, and back."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.bounds.called_target import Inputs, Layout
from symattn.programs.signature import without_partial

_HEADS = ("q", "k", "v")
_TOKENS = ("x", "y")  # (b, n, d_model)


def in_words(layout: Layout) -> str:
    """``(b, h, n, d)``; c is the h heads of width d side by side."""
    return f"({', '.join('h d' if axis == 'c' else axis for axis in layout)})"


def _order(name: str, layout: Layout) -> str:
    """The axes of an input in a layout, heads apart: those of tokens have no heads, and a batch in every layout."""
    letters = layout.replace("c", "hd")
    if name in _HEADS:
        return letters
    return "nbd" if letters.find("b") > 0 else "bnd"


def _usual(order: str) -> list[int]:
    """Where the axes of an order stand among the usual ones, (b, h, n, d)."""
    return [sorted(order, key="bhnd".index).index(axis) for axis in order]


def readings(layouts: Sequence[Layout], right: bool) -> Iterator[str]:
    """A note on the layouts in which a function is right though it is wrong in the one that is taken, or wrong."""
    if layouts:
        gives = "gives" if right else "runs too, and does not give"
        result = f"With the axes {' or '.join(map(in_words, layouts))} it {gives} what the specification says"
        yield f"{result}: --layout {layouts[0]} judges it so."


def undocumented(named: Layout, taken: Layout) -> str:
    """A note on a function that is right with other axes than its text names."""
    return f"Its text names the axes {in_words(named)}, and it is right with {in_words(taken)} alone."


def to_layout(name: str, values: Any, layout: Layout) -> Any:
    """An input with the axes that ``layout`` wants: b and h of size 1 are put in front where they lack.

    ``nd`` leaves everything as it is; weights, biases and masks (which broadcast) stay as they are in every layout.
    """
    if layout == "nd" or name not in (*_HEADS, *_TOKENS, "keep"):
        return values
    if name == "keep":
        return values.reshape((1,) * (2 - values.ndim) + tuple(values.shape))
    order = _order(name, layout)
    values = values.reshape((1,) * (len(order) - values.ndim) + tuple(values.shape)).transpose(*_usual(order))
    if name in _HEADS and layout[-1] == "c":
        *front, h, d = values.shape
        values = values.reshape((*front, h * d))
    return values


def from_layout(output: Any, inputs: Inputs, layout: Layout) -> Any:
    """The output in the axes of the inputs; one that has not the axes of the layout is left as it is."""
    if layout == "nd":
        return output
    source = "q" if "q" in inputs else "x"
    order, array = _order(source, layout), inputs[source]
    joined = source == "q" and layout[-1] == "c"
    if output.ndim != max(len(order), array.ndim) - joined:
        return output
    if joined:
        h = array.shape[-3] if array.ndim > 2 else 1
        if output.shape[-1] % h:
            return output
        output = output.reshape((*output.shape[:-1], h, output.shape[-1] // h))
    if output.ndim == len(order):
        output = output.transpose(*map(_usual(order).index, range(len(order))))
    added = max(len(order) - array.ndim, 0)
    return output.reshape(output.shape[added:]) if tuple(output.shape[:added]) == (1,) * added else output


def causal_mask(inputs: Inputs, bottom_right: bool) -> NDArray[np.bool_]:
    """Key j may be seen by query i iff j ≤ i + (n_k − n_q), or j ≤ i where the mask is aligned top-left."""
    n_q, n_k = lengths(inputs)
    return np.tri(n_q, n_k, n_k - n_q if bottom_right else 0, dtype=bool)


def lengths(inputs: Inputs) -> tuple[int, int]:
    """n_q and n_k."""
    rows = inputs["q"] if "q" in inputs else inputs["x"]
    columns = inputs["k"] if "k" in inputs else inputs.get("y", rows)
    return int(rows.shape[-2]), int(columns.shape[-2])


# -- layouts that a source speaks of -----------------------------------------------------------------------------------
_BATCH_WORDS = r"\b(?:b|bs|bsz|nb|batch|batch_size)\b"
_HEADS_WORDS = r"\b(?:h|nh|hq|heads|n_heads|nheads|num_heads|num_q_heads)(?:_(?:q|k|kv))?\b"
_TOKENS_WORDS = r"\b(?:n|s|t|l|m|seq|sq|nq|lq|tq|seqlen|seq_len|seq_length|tokens|length|q_len|time)(?:_(?:q|k|kv))?\b"
_NEXT, _ANY = r"\s*[, ]\s*", r"\w+"
_PATTERNS: tuple[tuple[Layout, str], ...] = (
    ("bhnd", _NEXT.join((_BATCH_WORDS, _HEADS_WORDS, _ANY, _ANY))),
    ("bnhd", _NEXT.join((_BATCH_WORDS, _TOKENS_WORDS, _HEADS_WORDS, _ANY))),
    ("nbhd", _NEXT.join((_TOKENS_WORDS, _BATCH_WORDS, _HEADS_WORDS, _ANY))),
    ("bnd", _NEXT.join((_BATCH_WORDS, _TOKENS_WORDS, _ANY)) + r"\s*[\])=]"),
    ("nbd", _NEXT.join((_TOKENS_WORDS, _BATCH_WORDS, _ANY)) + r"\s*[\])=]"),
    ("nhd", r"[\[(]\s*" + _NEXT.join((_TOKENS_WORDS, _HEADS_WORDS, _ANY)) + r"\s*[\])]"),
)


def documented(function: Callable[..., Any]) -> tuple[Layout, ...]:
    """The layouts that the text of the function names, the first one first."""
    text = _text(function).lower()
    result = [(m.start(), layout) for layout, pattern in _PATTERNS if (m := re.search(pattern, text))]
    return tuple(layout for _, layout in sorted(result))


_EINSUM = re.compile(r"""["']([\w ]+),([\w ]+)->([\w ]+)["']""")
_BY_PLACE: Mapping[int, tuple[Layout, ...]] = {4: ("nbhd", "bnhd", "bhnd"), 3: ("nhd", "bnd")}  # where tokens stand


def lettered(function: Callable[..., Any]) -> frozenset[Layout]:
    """The layouts that products of queries and keys by ``einsum`` have in the text of the function.

    Arrays may have been turned before, so that this is no more than a hint.
    """
    result: set[Layout] = set()
    for texts in _EINSUM.findall(_text(function)):
        one, other, out = (x.split() if " " in x.strip() else [*x.strip()] for x in texts)
        tokens = [x for x in one if x not in other]
        if len(tokens) == 1 and one[-1] == other[-1] and one[-1] not in out:
            result |= {*_BY_PLACE.get(len(one), ())[one.index(tokens[0]) :][:1]}
    return frozenset(result)


def _text(function: Callable[..., Any]) -> str:
    function = without_partial(function)
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return inspect.getdoc(function) or ""
