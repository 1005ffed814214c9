"""Functions of ``indexed`` that only move elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.index import expressions
from symattn.arrays.index.array import Indexed, Place, Places
from symattn.arrays.index.axes import ONE_LONG, Axis, axis
from symattn.document.errors import InputError, Refused


class IndexStructure:
    """``permute_dims`` to ``concat``."""

    def permute_dims(self, a: Any, axes: Sequence[int]) -> Indexed:
        order = [k % a.ndim for k in axes]
        back = [order.index(k) for k in range(a.ndim)]
        shape = [a.shape[k] for k in order]
        return Indexed(shape, lambda places: a.at(tuple(places[k] for k in back)))

    def matrix_transpose(self, a: Array) -> Indexed:
        transposed = (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2)
        return self.permute_dims(a, transposed)

    def swapaxes(self, a: Array, i: int, j: int) -> Indexed:
        order = list(range(a.ndim))
        order[i], order[j] = order[j], order[i]
        return self.permute_dims(a, order)

    def moveaxis(self, a: Array, source: int, destination: int) -> Indexed:
        order = [k for k in range(a.ndim) if k != source % a.ndim]
        order.insert(destination % a.ndim, source % a.ndim)
        return self.permute_dims(a, order)

    def expand_dims(self, a: Array, axis: int) -> Array:
        return a[(*[slice(None)] * (axis % (a.ndim + 1)), None)]

    def squeeze(self, a: Array, axis: int) -> Array:
        if a.shape[axis % a.ndim].blocks != ONE_LONG.blocks:
            raise InputError(f"indexed: squeeze of an axis of length {a.shape[axis % a.ndim]}")
        return a[(*[slice(None)] * (axis % a.ndim), 0)]

    def broadcast_to(self, a: object, shape: Sequence[object]) -> Indexed:
        # Imported here, because the namespace inherits from this module.
        from symattn.arrays.index.namespace import each

        empty = Indexed(shape, lambda _: expressions.ZERO)
        return each(lambda _, x: x, empty, a)

    def concat(self, arrays: Sequence[Any], axis: int = 0) -> Indexed:
        """Concatenate the blocks, so that lengths add."""
        k = axis % arrays[0].ndim
        for x in arrays[1:]:
            # All other axes must have the same blocks, not only the same length.
            rest = [
                (a.blocks, b.blocks)
                for n, (a, b) in enumerate(zip(x.shape, arrays[0].shape, strict=True))
                if n != k
            ]
            if any(a != b for a, b in rest):
                raise InputError(f"indexed: concat of shapes {arrays[0].shape} and {x.shape}")
        # The blocks of the result in order, each with its array and its number there.
        owner = [(x, b) for x in arrays for b in range(len(x.shape[k].blocks))]

        def at(places: Places) -> expressions.Expression:
            x, block = owner[places[k][0]]
            entry = places[k][1]
            own_places = (*places[:k], (block, entry), *places[k + 1 :])
            return x.at(own_places)  # type: ignore[no-any-return]

        length = Axis([b for x in arrays for b in x.shape[k].blocks])
        first_shape = arrays[0].shape
        before = first_shape[:k]
        return Indexed((*before, length, *first_shape[k + 1 :]), at)

    def stack(self, arrays: Sequence[Any], axis: int = 0) -> Indexed:
        """Stack the arrays along a new axis."""
        shapes = [[b.blocks for b in x.shape] for x in arrays]
        if any(s != shapes[0] for s in shapes):
            raise InputError(f"indexed: stack of shapes {', '.join(str(x.shape) for x in arrays)}")
        k = axis % (arrays[0].ndim + 1)

        def at(places: Places) -> expressions.Expression:
            indices = places[k][1]
            # A stack of one has an axis without factors.
            chosen = arrays[indices[0] if indices else 0]
            return chosen.at(places[:k] + places[k + 1 :])  # type: ignore[no-any-return]

        first_shape = arrays[0].shape
        stacked = Axis([(len(arrays),)])
        return Indexed((*first_shape[:k], stacked, *first_shape[k:]), at)

    def reshape(self, a: Any, shape: Any) -> Indexed:
        """Regroup the factors of products. Raises Refused if their order, or an axis that is a sum, would change."""
        wanted = [
            None if isinstance(x, int) and x == -1 else axis(x)
            for x in (shape if isinstance(shape, (tuple, list)) else (shape,))
        ]
        pieces = _split_axes_into_pieces(a.shape)
        groups = _group_pieces_by_axis(pieces, wanted, a.shape)
        # A sum beside other factors would have to be multiplied out, which changes the order.
        if any(_length_of(group) is None for group in groups):
            raise Refused(
                f"indexed: reshape of {a.shape} to {wanted} joins an axis that is a sum with others"
            )
        lengths = [Axis(_length_of(group)) for group in groups]

        def at(places: Places) -> expressions.Expression:
            flat: list[Any] = []
            for place, length in zip(places, lengths, strict=True):
                # Entries of products are one list, as reshaping changes only where axes end.
                flat.extend(place[1] if len(length.blocks) == 1 else [place])
            own: list[Place] = []
            for length in a.shape:
                whole = len(length.blocks) == 1
                entry = (0, tuple(flat[: len(length.blocks[0])])) if whole else flat[0]
                own.append(entry)
                flat = flat[len(length.blocks[0]) if whole else 1 :]
            return a.at(tuple(own))  # type: ignore[no-any-return]

        return Indexed(lengths, at)


def _split_axes_into_pieces(shape: Sequence[Axis]) -> list[Any]:
    """Return the factors of all axes in order; an axis that is a sum is one piece."""
    return [p for a in shape for p in ([(f,) for f in a.blocks[0]] if len(a.blocks) == 1 else [a])]


def _group_pieces_by_axis(
    pieces: list[Any], wanted: list[Axis | None], shape: object
) -> list[list[Any]]:
    groups: list[list[Any]] = []
    rest = list(pieces)
    for k, length in enumerate(wanted):
        if length is None:
            # The axis −1 takes what the axes after it leave.
            later_lengths = [x for x in wanted[k + 1 :] if x is not None]
            later = len(_split_axes_into_pieces(later_lengths))
            groups.append(rest[: len(rest) - later])
        else:
            groups.append(rest[: _pieces_in(rest, length)])
            if not _is_as_long(_length_of(groups[-1]), length):
                raise Refused(
                    f"indexed: reshape of {shape} to {wanted}: {length} does not start {rest}"
                )
        rest = rest[len(groups[-1]) :]
    if rest:
        raise Refused(f"indexed: reshape of {shape} to {wanted} leaves {rest}")
    return groups


def _pieces_in(rest: list[Any], length: Axis) -> int:
    """Return the number of leading pieces whose product is ``length``: 2 and 3 make 6."""
    # A sum is one piece.
    if len(length.blocks) != 1:
        return 1
    wanted, result = length.blocks[0], 0
    ints, letters = (
        prod(f for f in wanted if isinstance(f, int)),
        sum(isinstance(f, str) for f in wanted),
    )
    for piece in rest:
        # A sum cannot be split, and once the product is reached the axis ends.
        if (ints == 1 and not letters) or isinstance(piece, Axis):
            break
        (factor,) = piece
        ints, letters = (
            (ints // factor, letters) if isinstance(factor, int) else (ints, letters - 1)
        )
        result += 1
    return result


def _is_as_long(blocks: Any, length: Axis) -> bool:
    """Return whether a product has the factors of another, its numbers multiplied."""
    if blocks is None or len(blocks) != 1 or len(length.blocks) != 1:
        return bool(blocks == length.blocks)
    (a,), (b,) = blocks, length.blocks
    letters = [[f for f in x if isinstance(f, str)] for x in (a, b)]
    numbers = [prod(f for f in x if isinstance(f, int)) for x in (a, b)]
    return letters[0] == letters[1] and numbers[0] == numbers[1]


def _length_of(group: list[Any]) -> Any:
    if len(group) == 1 and isinstance(group[0], Axis):
        return group[0].blocks
    all_tuples = all(isinstance(p, tuple) for p in group)
    return (tuple(f for p in group for f in p),) if all_tuples else None
