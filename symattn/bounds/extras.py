"""Entries of inputs besides tokens and projections: masks, labels, positions, tables, sinks, slopes, gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np

from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention

Array = np.ndarray
Random = np.random.Generator


def _make_drawer_of_halves(low: int, high: int) -> Callable[[tuple[int, ...], Random], Array]:
    """Return a function that draws multiples of 1/2 from low/2 to high/2."""
    return lambda shape, rng: rng.integers(low, high + 1, shape) / 2.0


def _powers_of_two(shape: tuple[int, ...], rng: Random) -> Array:
    """Draw powers of two, one for each head, in random order; a single head may have no axis."""
    # Powers of 2 are exact in every format; up to 6 different ones.
    return 2.0 ** -(1.0 + rng.permutation(prod(shape)).reshape(shape) % 6)


_Drawer = Callable[[tuple[int, ...], Random], Array]
#: By name: random entries for each head, distance or column.
ENTRIES: dict[str, _Drawer] = {
    "bias": _make_drawer_of_halves(-4, 4),
    "sink": _make_drawer_of_halves(-3, 6),
    "drop": lambda shape, rng: rng.random(shape) < 0.7,
    "scale": _powers_of_two,
    "slopes": _powers_of_two,
    "b_rel": _make_drawer_of_halves(-6, 6),
    "b_u": _make_drawer_of_halves(-2, 2),
    "b_w": _make_drawer_of_halves(-2, 2),
    "v_s": _make_drawer_of_halves(-4, 4),
    "g_q": _make_drawer_of_halves(1, 4),
    "g_k": _make_drawer_of_halves(1, 4),
    "g_ckv": _make_drawer_of_halves(1, 4),
    "g_cq": _make_drawer_of_halves(1, 4),
    "beta_q": _make_drawer_of_halves(-2, 2),
    "beta_k": _make_drawer_of_halves(-2, 2),
} | {
    # Rows of the table of arrays, after the others: their order is that of the random draws.
    name: _make_drawer_of_halves(*named.drawn)
    for name, named in ARRAYS.items()
    if named.drawn
}
# Inputs that depend on positions: drawn from one sequence for queries and keys.
_AT = ("cos", "sin", "cos_q", "sin_q", "positions", "positions_q", "doc", "doc_q", "doc_k")
NAMES = (*ENTRIES, *_AT)


def extras(shapes: dict[str, tuple[int, ...]], rng: Random, spec: Attention) -> dict[str, Array]:
    """Draw the inputs of ``shapes`` that this module knows; queries align with the last keys, unless top-left."""
    result = {n: ENTRIES[n](shapes[n], rng) for n in ENTRIES if n in shapes}
    # The longest of these inputs covers all keys.
    n_k = max((_count_tokens(n, shapes[n]) for n in _AT if n in shapes), default=0)
    top_left = spec.alignment == "top-left"
    # Positions rise by 1 or 2, so that places and positions differ.
    starts = rng.integers(0, 3) + np.cumsum(rng.integers(1, 3, n_k))
    # Labels rise, so that documents lie next to each other.
    labels = np.cumsum(rng.random(n_k) < 0.4)
    for name in _AT:
        if name not in shapes:
            continue
        n = _count_tokens(name, shapes[name])
        # Queries stand at the last places of the keys, unless alignment is top-left.
        from_start = top_left or not name.endswith("_q")
        rows = slice(0, n) if from_start else slice(n_k - n, n_k)
        if name.startswith("doc"):
            result[name] = labels[rows]
        elif name.startswith("positions"):
            result[name] = starts[rows]
            # Rows of sections differ: each later one moves tokens together, as the patches of an image.
            if len(shapes[name]) > 1:
                result[name] = _rows_of_sections(starts, shapes[name][0])[:, rows]
        else:
            f = shapes[name][1]
            frequencies = 10000.0 ** (-np.arange(f) / f)
            angles = np.arange(n_k)[rows, None] * frequencies
            result[name] = np.cos(angles) if name.startswith("cos") else np.sin(angles)
    return result


def _count_tokens(name: str, shape: tuple[int, ...]) -> int:
    """Return the number of tokens of an input that depends on positions, which with sections have several rows."""
    return shape[-1] if name.startswith("positions") else shape[0]


def _rows_of_sections(starts: Array, rows: int) -> Array:
    """Return positions (s, n): the first row rises, and each later one also by places of its own, in turn."""
    n = len(starts)
    offsets = np.arange(n) * (1 + np.arange(rows)[:, None]) % (2 + np.arange(rows)[:, None])
    return np.asarray(starts + np.where(np.arange(rows)[:, None] > 0, offsets, 0))


def open_rows(spec: Attention, n_q: int, n_k: int, inputs: Mapping[str, Array]) -> bool:
    """Return whether every query may attend to some key."""
    documents = {n: a for n, a in inputs.items() if n.startswith("doc")}
    open_ = places(spec, n_q, n_k, documents)
    if "mask" in inputs:
        mask = np.asarray(inputs["mask"])
        open_ = open_ & (mask if mask.dtype == bool else np.isfinite(mask))
    if "keep" in inputs:
        # Padding hides keys from all queries: an axis for queries is added.
        keep = np.asarray(inputs["keep"])[..., None, :]
        open_ = open_ & (keep[:, None] if open_.ndim > keep.ndim else keep)
    return bool(open_.any(axis=-1).all())


def places(spec: Attention, n_q: int, n_k: int, labels: dict[str, Array]) -> Array:
    """Return booleans (n_q, n_k): what the specification's own masks and the given document labels allow."""
    bare = _without_given_masks(spec, bool(labels))
    if not bare.masks_anything:
        return np.ones((n_q, n_k), dtype=bool)
    names = {"q", "k", "v", *labels}
    step = next(s for s in bare.pipeline(names) if s.name == "masked")
    no_scores = np.zeros((1,) * len(spec.head_axis) + (n_q, n_k))
    operands = (labels[n] for n in step.of[1:])
    result = step.run(no_scores, *operands)
    return np.asarray(np.isfinite(result)).reshape(n_q, n_k)


# A changed specification checks all its fields, and the masks of every input need the same one.
@lru_cache(maxsize=64)
def _without_given_masks(spec: Attention, has_labels: bool) -> Attention:
    """Return the specification without masks that are inputs, which the caller applies, and with given labels alone."""
    return replace(spec, mask=None, padding=False, documents=has_labels)
