"""From an input that shows a fault to the smallest one that still does: fewer tokens, components and digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic

import numpy as np

from symattn.verification.inputs import Array

Inputs = dict[str, Array]
Fails = Callable[[Inputs], bool]

_AXES: dict[str, tuple[tuple[str, int], ...]] = {
    "n_q": (("q", -2), ("mask", -2)),
    "n_k": (("k", -2), ("v", -2), ("mask", -1), ("keep", -1)),
    "d_v": (("v", -1),),
    "d_k": (("q", -1), ("k", -1)),
}
_TOKEN_AXES: dict[str, tuple[tuple[str, int], ...]] = {
    "n_q": (("x", -2), ("mask", -2)),
    "n_k": (("y", -2), ("mask", -1), ("keep", -1)),
    "d_v": (("w_v", -1), ("b_v", -1), ("w_o", -2)),
    "d_k": (("w_q", -1), ("w_k", -1), ("b_q", -1), ("b_k", -1)),
    "d_model": (("x", -1), ("y", -1), ("w_q", -3), ("w_k", -3), ("w_v", -3), ("w_o", -1), ("b_o", -1)),
}


def reduce(inputs: Inputs, fails: Fails, heads: int = 1, square: bool = False, seconds: float = 5.0) -> Inputs:
    """The smallest inputs found for which ``fails`` still holds; it holds for ``inputs``.

    ``fails`` must be False for inputs that the specification or the domain does not allow. Columns of projections
    belong to ``heads`` heads and go from all of them at once; ``square`` takes a query and a key away together.
    """
    end = monotonic() + seconds
    state = _split(inputs, heads)

    def holds(candidate: Inputs) -> bool:
        return monotonic() < end and fails(_joined(candidate))

    before = -1
    while before != (before := _measure(state)) and monotonic() < end:
        state = _smaller(state, holds, square)
        state = _plainer(state, holds)
    return _joined(state)


def _measure(state: Inputs) -> int:
    """What the loop makes smaller: entries, and among them those that are not 0, or not 1."""
    return sum(a.size + int((a != 0).sum()) + int(((a != 0) & (a != 1)).sum()) for a in state.values())


def _axes(state: Inputs, square: bool) -> list[tuple[tuple[str, int], ...]]:
    table = _TOKEN_AXES if "x" in state else _AXES
    groups = {name: tuple((n, axis) for n, axis in pairs if n in state) for name, pairs in table.items()}
    if square or ("x" in state and "y" not in state):
        groups = {"n": groups.pop("n_q") + groups.pop("n_k"), **groups}
    if "w_q" not in state and "x" in state:
        groups = {"n": groups["n"], "d_model": groups["d_model"]} if "n" in groups else groups
    batch = [tuple((n, axis) for n in "qkv") for axis in range(state["q"].ndim - 2)] if "q" in state else []
    return [*batch, *(pairs for pairs in groups.values() if pairs)]


def _smaller(state: Inputs, holds: Fails, square: bool) -> Inputs:
    """Slices taken away, large pieces first, along every axis."""
    for pairs in _axes(state, square):
        name, axis = pairs[0]
        piece = state[name].shape[axis] // 2
        while piece:
            start = 0
            while start < (size := state[name].shape[axis]) and size > piece:
                gone = np.arange(start, min(start + piece, size))
                candidate = state | {n: np.delete(state[n], gone, axis=a) for n, a in pairs}
                if holds(candidate):
                    state = candidate
                else:
                    start += piece
            piece //= 2
    return state


def _plainer(state: Inputs, holds: Fails) -> Inputs:
    """Numbers made 0, 1, −1, small integers: whole arrays first, then entries one by one."""
    for name in state:
        if state[name].dtype == bool:
            continue
        for simpler in _whole(state[name]):
            if not np.array_equal(simpler, state[name]) and holds(state | {name: simpler}):
                state = state | {name: simpler}
                break
        for index in np.ndindex(state[name].shape):
            state = _plainer_entry(state, name, index, holds)
    return state


def _whole(a: Array) -> Iterator[Array]:
    infinite = ~np.isfinite(a)
    finite = np.where(infinite, 0, a)
    for simpler in (np.zeros_like(a), np.sign(finite), np.trunc(finite), np.rint(finite)):
        yield np.where(infinite, a, simpler + 0.0)  # no negative zeros


def _plainer_entry(state: Inputs, name: str, index: tuple[int, ...], holds: Fails) -> Inputs:
    value = state[name][index]
    for plain in (0.0, 1.0, -1.0, 2.0, float(np.trunc(value)) if np.isfinite(value) else 0.0, value / 2):
        if plain == value or _plainness(plain) >= _plainness(value):
            continue
        changed = state[name].copy()
        changed[index] = plain
        if holds(state | {name: changed}):
            return state | {name: changed}
    return state


def _plainness(x: float) -> tuple[bool, bool, float, bool]:
    """0 before 1 before −1 before 2 …, integers before fractions."""
    return (x != 0, not float(x).is_integer(), abs(x), x < 0)


def _split(inputs: Inputs, heads: int) -> Inputs:
    """Projections with an axis of heads of their own."""
    state = dict(inputs)
    for name, a in inputs.items():
        if name in ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v"):
            state[name] = a.reshape(*a.shape[:-1], heads, a.shape[-1] // heads)
        elif name == "w_o":
            state[name] = a.reshape(heads, a.shape[0] // heads, a.shape[1])
    return state


def _joined(state: Inputs) -> Inputs:
    inputs = dict(state)
    for name, a in state.items():
        if name in ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v"):
            inputs[name] = a.reshape(*a.shape[:-2], -1)
        elif name == "w_o":
            inputs[name] = a.reshape(-1, a.shape[-1])
    return inputs
