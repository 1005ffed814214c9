"""A trace: the arrays of a file under the names that a specification has for them, none of them read yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from symattn.attention.inputs import accepted, check_inputs, required
from symattn.attention.spec import Attention
from symattn.bounds.judgement import element
from symattn.document.errors import InputError
from symattn.document.keywords import plain
from symattn.programs.frameworks import read as numbers
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


def _named(path: str, results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    named: dict[str, np.ndarray] = {}
    for name, array in results.items():
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


# -- pieces ------------------------------------------------------------------------------------------------------------
# The pieces in which a large trace is judged: an element of the batch at a time, and a head where heads are alike.

MADE = ("o", "lse", "weights", "scores")
MOST = 2**26  # entries of a piece: half a GiB in float64


class TracePiece(NamedTuple):
    """A specification, its inputs, what the trace says was made of them, and where it stands in the trace."""

    spec: Attention
    inputs: dict[str, np.ndarray]
    made: dict[str, np.ndarray]
    place: tuple[int, ...]
    whole: TracePiece | None = None  # all heads, where this is one of them


def floats(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs with the numbers of every format in float64; masks and whole numbers as they are."""
    return {name: a if a.dtype.kind in "biu" else numbers(a)[0] for name, a in inputs.items()}


def count(spec: Attention, arrays: Mapping[str, np.ndarray]) -> int:
    """How many pieces there are."""
    front = arrays["q"].shape[: -2 - (spec.heads > 1)]
    return int(np.prod(front, dtype=int)) * (spec.heads if _alike(spec) else 1)


def pieces(spec: Attention, arrays: Mapping[str, np.ndarray]) -> Iterator[TracePiece]:
    """All of them, none read before it is asked for.

    Raises InputError for arrays that do not fit the specification or each other, and for pieces of more than ``MOST``
    entries.
    """
    inputs = {name: a for name, a in arrays.items() if name not in MADE}
    zeros = {name: np.zeros((), a.dtype if a.dtype.kind in "biu" else np.float64) for name, a in inputs.items()}
    check_inputs(spec, {name: np.broadcast_to(zeros[name], a.shape) for name, a in inputs.items()})  # takes no room
    own = 2 + (spec.heads > 1)
    front = arrays["q"].shape[: arrays["q"].ndim - own]
    _check_made(spec, arrays, front)
    for index in np.ndindex(front):
        given = element(spec, inputs, index)
        result = {name: arrays[name][index] for name in MADE if name in arrays}
        whole = TracePiece(spec, given, result, index)
        for piece in _heads(whole) if _alike(spec) else (whole,):
            _check_size(piece)
            yield piece


def _alike(spec: Attention) -> bool:
    """Return whether each head alone is the attention of a specification with one head."""
    return spec.heads > 1 and spec.position is None and spec.sink is None and spec.scale != "given"


def _heads(piece: TracePiece) -> Iterator[TracePiece]:
    spec, shared = piece.spec, piece.spec.group
    alone = replace(spec, heads=1, kv_heads=None)
    for head in range(spec.heads):
        inputs = {name: _of_head(name, a, head, shared) for name, a in piece.inputs.items()}
        result = {name: a[head] for name, a in piece.made.items()}
        yield TracePiece(alone, inputs, result, (*piece.place, head), piece)


def _of_head(name: str, a: np.ndarray, head: int, shared: int) -> np.ndarray:
    if name in ("q", "k", "v"):
        return np.asarray(a[head if name == "q" else head // shared])
    return np.asarray(a[min(head, a.shape[0] - 1)]) if name in ("mask", "bias") and a.ndim == 3 else a


def _check_made(spec: Attention, arrays: Mapping[str, np.ndarray], front: tuple[int, ...]) -> None:
    """Raise InputError where what was made has another shape than the specification gives."""
    heads = (spec.heads,) if spec.heads > 1 else ()
    n_q, n_k, d_v = arrays["q"].shape[-2], arrays["k"].shape[-2], arrays["v"].shape[-1]
    own = {"o": (n_q, d_v), "lse": (n_q,), "weights": (n_q, n_k), "scores": (n_q, n_k)}
    for name in MADE:
        wanted = (*front, *heads, *own[name])
        if name in arrays and arrays[name].shape != wanted:
            raise InputError(f"{name} has the shape {arrays[name].shape}, expected {wanted}; hint: --heads, --layout")


def _check_size(piece: TracePiece) -> None:
    size = max(a.size for a in (*piece.inputs.values(), piece.made["o"]))
    if size > MOST:
        raise InputError(f"one head of the trace has an array of {size} entries; at most {MOST} are judged at once")
