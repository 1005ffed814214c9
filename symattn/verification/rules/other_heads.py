"""Numbers of heads that are read from another head."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of


def _take_numbers_of_head(head: int, x: Array) -> Any:
    # A sum of one head and 0 times all others keeps the number of heads.
    return 0 * x + x[..., head : head + 1 or None, :, :]


def _turn_heads(x: Array) -> Any:
    """Return the numbers of the next head for each head, those of the first for the last."""
    return namespace_of(x).concat([x[..., 1:, :, :], x[..., :1, :, :]], axis=-3)


def _reverse_heads(x: Array) -> Any:
    return namespace_of(x).flip(x, axis=-3)


def list_numbers_of_other_heads(one: str, all_of_them: str) -> dict[str, Callable[[Array], Any]]:
    """Return causes, and numbers of another head (…, h, ·, ·), from the words for one head's and for those of all."""
    return {
        f"heads have {all_of_them} in the opposite order": _reverse_heads,
        f"each head has {one} of the next one": _turn_heads,
        f"every head has {one} of the first": partial(_take_numbers_of_head, 0),
        f"every head has {one} of the last": partial(_take_numbers_of_head, -1),
    }
