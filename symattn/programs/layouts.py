"""The order of the axes that a function wants, and back."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.bounds.target import AXES, Inputs, Layout
from symattn.programs.signature import without_partial

_HEADS = ("q", "k", "v")
_TOKENS = ("x", "y")  # (b, n, d_model)
_SWAPPED = ("bnhd", "nhd")
_SIDE_BY_SIDE = ("nc", "bnc")
_WORDS: Mapping[Layout, str] = {
    "nd": "(n, d)", "bnd": "(b, n, d)", "nhd": "(n, h, d)", "bhnd": "(b, h, n, d)", "bnhd": "(b, n, h, d)",
    "nc": "(n, h d)", "bnc": "(b, n, h d)",
}  # fmt: skip


def in_words(layout: Layout) -> str:
    """``(b, h, n, d)``."""
    return _WORDS[layout]


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
    wanted = AXES[layout] if name in _HEADS else 3 if name in _TOKENS else 2
    values = values.reshape((1,) * (wanted - values.ndim) + tuple(values.shape))
    if name not in _HEADS or layout not in (*_SWAPPED, *_SIDE_BY_SIDE):
        return values
    values = values.swapaxes(-3, -2)
    if layout in _SIDE_BY_SIDE:
        *front, h, d = values.shape
        values = values.reshape((*front, h * d))
    return values


def from_layout(output: Any, inputs: Inputs, layout: Layout) -> Any:
    """The output in the axes of the inputs; one that has not the axes of the layout is left as it is."""
    if layout == "nd":
        return output
    source = "q" if "q" in inputs else "x"
    axes = 3 if source == "x" else AXES[layout]
    array = inputs[source]
    if output.ndim != max(axes, array.ndim) - (layout in _SIDE_BY_SIDE and source == "q"):
        return output
    if source == "q" and layout in _SIDE_BY_SIDE:
        h = array.shape[-3] if array.ndim > 2 else 1
        if output.shape[-1] % h:
            return output
        output = output.reshape((*output.shape[:-1], h, output.shape[-1] // h))
    if source == "q" and layout in (*_SWAPPED, *_SIDE_BY_SIDE):
        output = output.swapaxes(-3, -2)
    added = max(axes - array.ndim, 0)
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
    ("bnd", _NEXT.join((_BATCH_WORDS, _TOKENS_WORDS, _ANY)) + r"\s*[\])=]"),
    ("nhd", r"[\[(]\s*" + _NEXT.join((_TOKENS_WORDS, _HEADS_WORDS, _ANY)) + r"\s*[\])]"),
)


def documented(function: Callable[..., Any]) -> tuple[Layout, ...]:
    """The layouts that the text of the function names, the first one first."""
    text = _text(function).lower()
    result = [(m.start(), layout) for layout, pattern in _PATTERNS if (m := re.search(pattern, text))]
    return tuple(layout for _, layout in sorted(result))


_EINSUM = re.compile(r"""["']([\w ]+),([\w ]+)->([\w ]+)["']""")
_BY_PLACE: Mapping[tuple[int, int], Layout] = {(4, 1): "bnhd", (4, 2): "bhnd", (3, 0): "nhd", (3, 1): "bnd"}


def lettered(function: Callable[..., Any]) -> frozenset[Layout]:
    """The layouts that products of queries and keys by ``einsum`` have in the text of the function.

    Arrays may have been turned before, so that this is no more than a hint.
    """
    result = set()
    for texts in _EINSUM.findall(_text(function)):
        one, other, out = (x.split() if " " in x.strip() else [*x.strip()] for x in texts)
        tokens = [x for x in one if x not in other]
        if len(tokens) == 1 and one[-1] == other[-1] and one[-1] not in out:
            result.add(_BY_PLACE.get((len(one), one.index(tokens[0]))))
    return frozenset(layout for layout in result if layout)


def _text(function: Callable[..., Any]) -> str:
    function = without_partial(function)
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return inspect.getdoc(function) or ""
