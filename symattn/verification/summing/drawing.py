"""The order of a sum as a picture: its tree, with terms at the bottom and later additions higher up."""

from __future__ import annotations

from math import log2

from symattn.document.drawing.picture import Picture
from symattn.document.drawing.scene import SMALL, Box, Label, Line, Mark, Point, Scene, wrapped
from symattn.document.errors import InputError
from symattn.verification.summing.order import Order
from symattn.verification.summing.reading import parts_of
from symattn.verification.summing.tree import Tree

_LEFT, _RIGHT, _TOP, _FOOT = 22.0, 458.0, 16.0, 246.0
_NUMBERED = 9  # most terms with a number below


def picture(order: Order, command: str = "") -> Picture:
    """Return a picture of the tree, with its words below. Raises ``InputError`` if the order is unknown."""
    if order.tree is None:
        raise InputError(f"there is no tree to draw: {order.why}")
    return Picture("order", scene(order, order.tree), command)


def scene(order: Order, tree: Tree) -> Scene:
    """Draw the leaves in a row, and a node over s of n leaves at log(s)/log(n) of the height, amid its children."""
    drawn = Scene(f"The order in which {tree.n} {order.terms} are added", " ".join(order.words))
    for part in _list_drawn_tiles(order)[::2]:  # every second tile is shaded
        start, end = (
            _horizontal_place_of_leaf(part[0], order.n) - 1,
            _horizontal_place_of_leaf(part[-1], order.n) + 1,
        )
        note = f"{order.terms} {part[0]} to {part[-1]}"
        drawn.add(Box(start, _TOP, end - start, _FOOT - _TOP + 6, fill="tint", note=note))
    places: list[Point] = [
        (_horizontal_place_of_leaf(leaf, tree.n), _FOOT) for leaf in range(tree.n)
    ]
    for children, leaves in zip(tree.nodes, tree.subtrees, strict=True):
        x = sum(places[child][0] for child in children) / len(children)
        y = _FOOT - (_FOOT - _TOP) * log2(len(leaves)) / log2(tree.n)
        for child in children:
            at = places[child]
            drawn.add(Line((at, (at[0], y), (x, y)), "v" if child < tree.n else "output", 0.8))
        places.append((x, y))
    drawn.add(Mark(*places[-1], "output", note=f"the sum of {tree.n} {order.terms}"))
    y = _draw_term_numbers(drawn, order, tree) + 22
    for words in order.words:
        y = wrapped(drawn, y, words)
    drawn.height = y - 6
    return drawn


def _horizontal_place_of_leaf(leaf: int, n: int) -> float:
    return _LEFT + (_RIGHT - _LEFT) * leaf / max(n - 1, 1)


def _list_drawn_tiles(order: Order) -> list[list[int]]:
    """Return the tiles, if there are any."""
    return parts_of(order.reading) if order.reading and order.reading.way == "tiles" else []


def _draw_term_numbers(drawn: Scene, order: Order, tree: Tree) -> float:
    """Number the first term of each tile, or some of the terms; return the y of the numbers."""
    starts = [part[0] for part in _list_drawn_tiles(order)] or list(
        range(0, tree.n, max(1, tree.n // 4))
    )
    # Every k-th start, so that at most ``_NUMBERED`` numbers stand below the tree.
    shown = starts[:: -(-len(starts) // _NUMBERED)]
    for leaf in shown:
        drawn.add(
            Label(
                _horizontal_place_of_leaf(leaf, tree.n),
                _FOOT + 18,
                str(leaf),
                SMALL,
                "mute",
                "middle",
            )
        )
    return _FOOT + 18
