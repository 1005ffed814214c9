"""A trace: the arrays of a file under the names that a specification has for them, none of them read yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from symattn.attention.inputs import accepted, required
from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.document.keywords import plain
from symattn.programs.names import TRACES, is_trace, meaning
from symattn.programs.traces import npz, safetensors

_READERS = dict(zip(TRACES, (safetensors.read, npz.read), strict=True))
_MADE = {
    "o": "o out output attn_output attention_output",
    "lse": "lse logsumexp softmax_lse",
    "weights": "weights attn_weights attention_weights probs attn_probs",
    "scores": "scores attn_scores",
}
_WORDS = {plain(word): name for name, words in _MADE.items() for word in words.split()}
#: Orders of axes that a trace may have, and the axis that is brought before the tokens.
LAYOUTS = ("nd", "bnd", "nhd", "bhnd", "bnhd")


def read(path: str, spec: Attention, layout: str | None = None) -> dict[str, np.ndarray]:
    """q, k, v, o, what else ``spec`` takes, and lse, weights and scores where the file has them; arrays (…, n, d).

    Names may be those that people use (``query``, ``attn_output``); ``layout`` is the order of the axes where it is not
    (…, heads, n, d). Arrays are mapped, not read. Raises ``InputError`` for a file that cannot be read or is damaged,
    for missing arrays, and for arrays whose meaning is unclear.
    """
    file = Path(path)
    if not is_trace(path):
        raise InputError(f"{path} is not named like a trace; names end in {' or '.join(_READERS)}")
    try:
        result = _READERS[file.suffix.lower()](file)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    named = _named(path, result)
    for name in ("q", "k", "v", "o", *required(spec)):
        if name not in named:
            raise InputError(f"{path} has no array {name}; it holds {', '.join(sorted(result))[:200]}")
    for name in named:
        if name not in {*"qkv", *_MADE, *accepted(spec)}:
            raise InputError(f"{path} holds {name}, which this attention does not take; hint: ask for it (--{name} …)")
    return {name: _in_order(f"{path}: {name}", a, name, layout) for name, a in named.items()}


def _named(path: str, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    named: dict[str, np.ndarray] = {}
    for name, array in found.items():
        known = _WORDS.get(plain(name)) or meaning(name)
        if known is None:
            raise InputError(
                f"{path}: nothing says what the array {name[:40]!r} is; hint: call it q, k, v, mask, {', '.join(_MADE)}"
            )
        if known in named:
            raise InputError(f"{path} holds two arrays that may be {known}, one of them {name[:40]!r}")
        named[known] = array
    return named


def _in_order(place: str, a: np.ndarray, name: str, layout: str | None) -> np.ndarray:
    if name not in {*"qkvo"}:
        return a
    if layout not in (None, *LAYOUTS):
        raise InputError(f"the layout {layout} is not one of a trace; known: {', '.join(LAYOUTS)}")
    if a.ndim < 2 or (layout and a.ndim != len(layout)):
        raise InputError(f"{place} has {a.ndim} axes; the layout {layout or '(…, n, d)'} is expected")
    return a.swapaxes(-2, -3) if layout in ("nhd", "bnhd") else a
