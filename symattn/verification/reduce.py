"""From an input that shows a fault to the smallest one that still does: fewer tokens, components and digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod

import numpy as np

from symattn.attention.inputs import factors, shape
from symattn.attention.spec import Attention
from symattn.verification.effort import Effort
from symattn.verification.probing.inputs import Array

Inputs = dict[str, Array]
Fails = Callable[[Inputs], bool]
Pairs = tuple[tuple[str, int], ...]  # names of arrays and axes

TRIALS = 1200
_BATCHED = ("q", "k", "v")  # these may have axes of batches, which go too
_KEPT = ("h", "g", "p")  # as many as the specification says


def reduce(inputs: Inputs, fails: Fails, spec: Attention, square: bool = False, trials: int = TRIALS) -> Inputs:
    """The smallest inputs found for which ``fails`` still holds; it holds for ``inputs``.

    ``fails`` must be False for inputs that the specification or the domain does not allow. Columns of projections go
    from all heads at once; ``square`` takes a query and a key away together. No more is tried than ``trials`` say, as
    ``effort`` counts them.
    """
    effort = Effort(trials)
    shapes = {name: a.shape for name, a in inputs.items()}
    axes = {name: factors(name, spec, inputs) for name in inputs}
    state = {name: _apart(a, shape(name, spec, inputs), spec) for name, a in inputs.items()}

    def joined(candidate: Inputs) -> Inputs:
        return {name: _together(a, shape(name, spec, inputs), len(shapes[name])) for name, a in candidate.items()}

    def holds(candidate: Inputs) -> bool:
        return effort.affords(candidate) and fails(joined(candidate))

    return joined(shrink(state, lambda now: _groups(now, axes, square), holds))


def shrink(state: Inputs, groups: Callable[[Inputs], list[Pairs]], holds: Fails) -> Inputs:
    """Fewer entries along each group of axes, and plainer ones, for as long as that helps and ``holds``."""
    before = -1
    while before != (before := _measure(state)):
        state = _plainer(_smaller(state, groups(state), holds), holds)
    return state


def _measure(state: Inputs) -> int:
    """What the loop makes smaller: entries, and among them those that are not 0, or not 1."""
    return sum(a.size + int((a != 0).sum()) + int(((a != 0) & (a != 1)).sum()) for a in state.values())


def _groups(state: Inputs, axes: Mapping[str, tuple[str, ...]], square: bool) -> list[Pairs]:
    """The axes that a letter names, over all arrays; first those of batches."""
    batch = (
        [tuple((n, axis) for n in _BATCHED) for axis in range(state["q"].ndim - len(axes["q"]))] if "q" in state else []
    )
    letters: dict[str, list[tuple[str, int]]] = {}
    for name, found in axes.items():
        for place, letter in enumerate(reversed(found), 1):
            if place <= state[name].ndim and letter not in _KEPT and not letter.isdecimal():
                letters.setdefault(letter, []).append((name, -place))
    if square and "n_k" in letters:
        letters["n_q"] += letters.pop("n_k")
    order = ["n_q", "n_k", "d_v", *(x for x in letters if x not in ("n_q", "n_k", "d_v"))]
    return [*batch, *(tuple(letters[x]) for x in order if x in letters)]


def _smaller(state: Inputs, groups: list[Pairs], holds: Fails) -> Inputs:
    """Slices taken away, large pieces first, along every axis."""
    for pairs in groups:
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


def _apart(a: Array, shape: str, spec: Attention) -> Array:
    """An array with an axis for each block of a shape: h*d_k as h and d_k."""
    known = {"h": spec.heads, "g": spec.key_heads, "p": spec.heads + 2 * spec.key_heads}
    axes = shape.replace("…", "").split()
    found: list[int] = []
    for axis, length in zip(reversed(axes), reversed(a.shape), strict=False):
        blocks = [known[f] for f in axis.split("*")[:-1]]
        found = [*blocks, length // prod(blocks), *found]
    rest = a.shape[: max(0, a.ndim - len(axes))]
    return a.reshape(*rest, *found)


def _together(a: Array, shape: str, ndim: int) -> Array:
    """Blocks side by side again; ``ndim`` axes are left."""
    for place, axis in enumerate(reversed(shape.replace("…", "").split()), 1):
        for _ in range(axis.count("*")):
            end = a.ndim - place + 1
            a = a.reshape(*a.shape[: end - 2], -1, *a.shape[end:])
    assert a.ndim == ndim
    return a
