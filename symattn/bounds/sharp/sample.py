"""Some queries of large inputs: a specification and inputs for these alone, and the choice of queries to judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.enclosing.pattern import check_pattern, heads
from symattn.attention.spec import Attention
from symattn.bounds.plain_bound import by_mask, of_places
from symattn.bounds.sharp import rows_in_float64
from symattn.bounds.sharp.added import apart, spread
from symattn.document.errors import InputError, Refused

#: Tile sizes of common kernels, at whose edges mistakes show.
TILES = (64, 128)
_MEANS = 64  # least number of rows of each head in means,
_SCORES = 1 << 21  # and the scores of all heads up to which there are more
_SHOWN = 8  # largest number of rows that a message repeats


def only(
    spec: Attention, inputs: Mapping[str, object], rows: Sequence[int]
) -> tuple[Attention, dict[str, Any]]:
    """Return the attention of some queries: their rows of q, of the terms added to scores, and of all masks as one
    given mask.

    Raises ``InputError`` unless scores are scaled dot products under masks and biases.
    """
    try:
        of = apart(spec, inputs)
        documents = of.spec.documents
        spec, arrays = of_places(of.spec, of.given) if documents else (of.spec, of.given)
        check_pattern(replace(spec, softcap=None))
    except Refused as what:
        reason = str(what).partition(";")[0].removeprefix("enclose has no ")
        hint = "judge all rows, or leave out what q and k hold already, such as rotations"
        # The reason of the fast path is about enclosures, which a user has not asked for.
        raise InputError(f"some rows alone are not judged with {reason}; hint: {hint}") from None
    at = np.asarray(rows)
    # Terms are (…, n_q, n_k), of which the rows are chosen.
    added = tuple(a[..., at, :] for a in spread(of))
    return _with_added(*_of_queries(spec, arrays, at), added)


def _of_queries(
    spec: Attention, inputs: Mapping[str, Any], at: np.ndarray
) -> tuple[Attention, dict[str, Any]]:
    """Return the attention of some queries, without added terms."""
    keys_and_values = {n: inputs[n] for n in ("k", "v", "sink") if n in inputs}
    few = keys_and_values | {"q": inputs["q"][..., at, :]}
    if not spec.masks_anything:
        return spec, few
    keys = slice(0, inputs["k"].shape[-2])
    every = list(heads(spec, inputs))
    # Masks that may differ by head: one mask for each, stacked along the axes of heads.
    if {"mask", "keep"} & set(inputs):
        axes = tuple(1 + i for i in every[-1].index)
        xp: Any = namespace_of(inputs["q"])
        whole = xp.stack([rows_in_float64.allowed(head, at, keys) for head in every])
        mask = whole.reshape(*axes, *whole.shape[-2:])
        return by_mask(spec), few | {"mask": mask}
    # Without mask arrays all heads see the same keys.
    return by_mask(spec), few | {"mask": rows_in_float64.allowed(every[0], at, keys)}


def _with_added(
    spec: Attention, few: dict[str, Any], added: tuple[object, ...]
) -> tuple[Attention, dict[str, Any]]:
    """Add a bias, and for a second array an additive mask with that array and −∞."""
    if not added:
        return spec, few
    spec, few = replace(spec, bias=True), few | {"bias": added[0]}
    # A second array goes into an additive mask, as a specification has one bias.
    if len(added) == 1:
        return spec, few
    xp = namespace_of(added[1])
    mask = xp.where(few["mask"], added[1], -xp.inf) if "mask" in few else added[1]
    return replace(spec, mask="additive"), few | {"mask": mask}


def chosen(spec: Attention, inputs: Mapping[str, Any], rows: int | Sequence[int]) -> list[int]:
    """Return the rows that are named, or a number of rows: first those at edges, then others at even distances.

    Edges are the first and last query, and those next to the edges of tiles of 64 and 128, of windows and documents;
    if these are too many, all edges of windows and documents, and those of some tiles at even distances.

    Raises ``InputError`` unless ``rows`` is a whole number of at least 1 or whole numbers, and for rows out of range.
    """
    n = inputs["q"].shape[-2]
    selection = rows.tolist() if hasattr(rows, "tolist") else rows
    if not _is_number_of_queries(selection):
        return _check_named_rows(selection, n)
    count = int(selection)
    if count < 1:
        raise InputError(f"rows must be at least 1, got {count}")
    if count >= n:
        return list(range(n))
    always = {i for i in _yield_edge_queries(spec, inputs, n) if 0 <= i < n}
    tiles = [i for t in TILES for at in range(t, n + 1, t) for i in (at - 1, at) if i < n]
    # Each edge of a tile has two rows, so a stride over the edges thins them out.
    left = max(0, count - len(always))
    stride = max(1, -(-2 * len(tiles) // max(left, 1)))
    always |= set(tiles[::stride] if left else ())
    left = max(0, count - len(always))
    # The ends of the range are among the edges already.
    spread_out = np.linspace(0, n - 1, left + 2)[1:-1]
    return sorted(always | {int(i) for i in spread_out})


def averaged(heads: int, keys: int) -> int:
    """Return the number of rows of each head in means, for so many heads and keys.

    >>> averaged(4, 1024), averaged(16, 2048), averaged(64, 131072)
    (512, 64, 64)
    """
    return max(_MEANS, _SCORES // (heads * keys))


def _is_number_of_queries(given: object) -> TypeGuard[int]:
    # A bool is an Integral too, but no number of rows.
    return isinstance(given, Integral) and not isinstance(given, bool)


def _check_named_rows(rows: object, n: int) -> list[int]:
    """Return the rows that are named, in ascending order, each once."""
    entries = list(rows) if isinstance(rows, Iterable) else []
    # Sorted and unique, since rows are printed and counted.
    result = sorted({int(i) for i in entries if _is_number_of_queries(i)})
    if not isinstance(rows, Iterable) or not all(map(_is_number_of_queries, entries)):
        # A few of the entries are enough for a message.
        outcome = entries[:_SHOWN] or rows
        raise InputError(
            f"rows must be a number of queries, or some of the numbers 0 to {n - 1}, got {outcome!r}"
        )
    if not result or result[0] < 0 or result[-1] >= n:
        raise InputError(
            f"rows {entries[:_SHOWN]}: there are queries 0 to {n - 1}; hint: name some of these"
        )
    return result


def _yield_edge_queries(spec: Attention, inputs: Mapping[str, Any], n: int) -> Iterator[int]:
    """Yield the first and last query, and those at which a window or prefix begins to mask keys or documents change."""
    yield from (0, n - 1)
    offset = spec.offset(n, inputs["k"].shape[-2])
    ends = [
        0,
        *(side + 1 for side in spec.sides if side is not None),
        *([spec.prefix] if spec.prefix else []),
    ]
    # A window of w keys starts to hide keys at query w − offset: that row and its neighbours.
    yield from (end - offset + by for end in ends for by in (-1, 0, 1))
    labels = next((inputs[name] for name in ("doc", "doc_q") if name in inputs), None)
    if labels is not None:
        # Documents of any batch entry count, as rows are chosen for all of them.
        differs = labels[..., 1:] != labels[..., :-1]
        changes = differs.reshape(-1, labels.shape[-1] - 1)
        where = [i for i, changed in enumerate(changes.any(axis=0).tolist()) if changed]
        yield from (i + by for i in where for by in (0, 1))
