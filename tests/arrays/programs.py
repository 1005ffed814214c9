"""Programs that change arrays in place: part of the table of operations."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.arrays.operations import M, row


def in_place(program: Callable[..., Any]) -> Callable[..., Any]:
    """Programs that change arrays in place must do what NumPy does, seen through every name of the array."""
    facts: dict[str, Any] = {"once": False, "dispatch": False, "magnitude": lambda z: 2**6}
    row("in place", lambda xp, z: program(xp, z.copy()), [*M, [2, -1, 0.5, 1]], roundings=8, **facts)
    return program


@in_place
def a_slice_is_written_through(xp: Any, z: Any) -> Any:
    w = z[1:3]
    w += 1
    w[0] = 5
    return z * 1


@in_place
def a_row_is_forbidden_through_a_view(xp: Any, z: Any) -> Any:
    w = z[0]
    w[2:] = -xp.inf
    return xp.exp(z)


@in_place
def a_product_does_not_see_later_changes(xp: Any, z: Any) -> Any:
    y = z @ z.T
    z[...] = 0
    return y


@in_place
def a_computed_row_is_put_into_a_view(xp: Any, z: Any) -> Any:
    e = xp.exp(z)
    w = z[1]
    w[:] = e[0]
    return z * 1


@in_place
def another_name_is_the_same_array(xp: Any, z: Any) -> Any:
    y = z
    y -= 1
    return z * 1


@in_place
def a_transpose_is_written_through(xp: Any, z: Any) -> Any:
    y = z.T
    y[0] = 7
    return z * 1


@in_place
def a_reshape_is_written_through(xp: Any, z: Any) -> Any:
    y = z.reshape(2, 8)
    y[0, 5] = 9
    return z * 1


@in_place
def a_reversed_half_is_written_through(xp: Any, z: Any) -> Any:
    y = z[z.shape[0] // 2 :, ::-1]
    y[0] = 3
    y[1, 0] = -4
    return z * 1


@in_place
def rows_are_exchanged(xp: Any, z: Any) -> Any:
    z[[0, 2]] = z[[2, 0]]
    return z * 1


@in_place
def a_diagonal_is_assigned_by_a_mask(xp: Any, z: Any) -> Any:
    z[np.eye(4, dtype=bool)] = 2
    return z * 1


@in_place
def one_half_is_put_into_the_other(xp: Any, z: Any) -> Any:
    a, b = xp.split(z, 2, axis=0)
    a[...] = b
    return z * 1


@in_place
def a_copy_is_another_array(xp: Any, z: Any) -> Any:
    for c in (z.copy(), z.flatten(), +z, z * 1, z**1, abs(z), z[[1]]):
        c[...] = 0
    for c in (xp.sum(z, axis=()), z.astype(z.dtype), xp.array(z)):
        c[...] = 0
    return z * 1


@in_place
def masked_scores_are_shifted(xp: Any, z: Any) -> Any:
    w = z[0]
    w[2:] = -xp.inf
    return xp.exp(z * 1 - 1)


@in_place
def every_view_is_a_view(xp: Any, z: Any) -> Any:
    for i, view in enumerate((z.swapaxes(0, 1), z.ravel(), xp.expand_dims(z, 0), xp.flip(z, axis=0), z[None], z.mT)):
        view[..., i % 2] = i
    return z * 1


@in_place
def arithmetic_in_place(xp: Any, z: Any) -> Any:
    w = z[:, 1:3]
    w *= 2
    w += z[:, :1]
    w -= 0.5
    w /= 2
    z **= 2
    square = z[:, :]
    square @= np.eye(4, dtype=int)[::-1].astype(z.dtype)
    return z * 1


@in_place
def overlapping_halves(xp: Any, z: Any) -> Any:
    z[1:] = z[:-1]
    return z * 1


@in_place
def a_running_total(xp: Any, z: Any) -> Any:
    out = xp.zeros((4,), dtype=z.dtype) + 0 * z[0]
    for row_ in z:
        out += row_
    return out


@in_place
def the_maximum_is_subtracted_in_place(xp: Any, z: Any) -> Any:
    z -= z.max(axis=-1, keepdims=True)
    return z
