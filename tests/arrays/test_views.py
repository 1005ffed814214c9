"""Views, found by random programs: what is written through any chain of them is what NumPy writes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symattn.arrays import kind

Step = tuple[str, Callable[[Any, Any], Any]]


@st.composite
def steps(draw: st.DrawFn, shape: tuple[int, ...]) -> Step:
    """One way to look at an array of this shape: (xp, array) ↦ view or copy, as NumPy decides."""
    axes = st.integers(-len(shape), len(shape) - 1)
    found: list[tuple[str, Any]] = [("ravel", ()), ("copy", ()), ("expand_dims", (draw(st.integers(0, len(shape))),))]
    if shape:
        slices = tuple(draw(st.slices(n)) for n in shape[: draw(st.integers(0, len(shape)))])
        found += [("[]", (slices,)), ("flip", (draw(axes),)), ("swapaxes", (draw(axes), draw(axes)))]
        found += [("permute_dims", (tuple(draw(st.permutations(range(len(shape))))),)), ("moveaxis", (draw(axes), 0))]
        found += [("reshape", ((-1, shape[0]) if np.prod(shape) else shape,)), ("roll", (1, draw(axes)))]
        if all(shape):
            found.append(("take", (np.array([draw(st.integers(-shape[0], shape[0] - 1))]), 0)))
    name, arguments = draw(st.sampled_from(found))
    if name == "[]":
        return name, lambda xp, a: a[arguments[0]]
    return name, lambda xp, a: a.copy() if name == "copy" else getattr(xp, name)(a, *arguments)


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Step]]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    array, chain = np.zeros(shape), []
    for _ in range(draw(st.integers(1, 4))):
        chain.append(draw(steps(array.shape)))
        array = chain[-1][1](np, array)
    return shape, chain


def run(xp: Any, base: Any, chain: list[Step], value: Any) -> Any:
    view = base
    for _, step in chain:
        view = step(xp, view)
    view[...] = value
    return base


@pytest.mark.deep
@given(programs())
def test_what_is_written_through_a_chain_of_views_is_what_numpy_writes(program: Any) -> None:
    shape, chain = program
    numbers = np.arange(np.prod(shape), dtype=float).reshape(shape)
    wanted = run(np, numbers.copy(), chain, -7)
    for name in ("exact", "bfloat16"):
        target = kind(name)
        assert (run(target.xp, target.lift(numbers), chain, -7) == wanted).all()


@pytest.mark.deep
@given(programs())
def test_literal_arrays_and_their_numbers_change_together(program: Any) -> None:
    """Whether a number that was typed or one that was computed is put in: the array and its arithmetic agree."""
    shape, chain = program
    exact = kind("exact")
    wanted = run(np, np.zeros(shape), chain, -7)
    for value in (-7, exact.lift(-7)):
        literal = run(exact.xp, exact.xp.zeros(shape), chain, value)
        assert (literal == wanted).all()
        assert (literal + 1 == wanted + 1).all()
        assert (literal - 1 == wanted - 1).all()
        assert (literal * 1 == wanted).all()
