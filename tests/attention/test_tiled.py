"""Attention by tiles of queries and keys is attention: what a specification gives, its scores and sinks included."""

import tracemalloc
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, InputError, Shaw, by_tiles, functional, streaming
from tests.attention.definition import EXACT, drawn, exactly, legal, proved

ROWS, KEYS = (0, 2, 3), (0, 1, 4, 6, 7)
DATA = drawn(2, q=(3, 2), k=(7, 2), v=(7, 4))
LONG = drawn(3, q=(5, 2), k=(3, 2), v=(3, 4))  # more queries than keys: bottom-right, the first see nothing
ALLOWED = np.array([[0, 0, 0, 1, 1, 0, 1], [1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]], dtype=bool)
BIAS = np.where(ALLOWED, np.arange(7) / 2 - 1, -np.inf)


CAUSAL, WINDOW, MASKED = Attention(causal=True), Attention(causal=True, window=3), Attention(mask="boolean")
HEADS = drawn(4, q=(2, 4, 3, 2), k=(2, 2, 5, 2), v=(2, 2, 5, 3))
TOKENS = drawn(5, x=(5, 4), w_q=(4, 4), w_k=(4, 4), w_v=(4, 6), w_o=(6, 3))
SINK = np.array([0.5, -1, 0, 2])
SHARED = Attention(heads=4, kv_heads=2, causal=True)
FORMS: dict[str, tuple[Attention, dict[str, Any], dict[str, np.ndarray]]] = {
    "plain": (Attention(), {}, DATA),
    "scale": (Attention(scale=2), {}, DATA),
    "causal": (CAUSAL, {}, DATA),
    "window": (WINDOW, {}, DATA),
    "prefix": (Attention(causal=True, prefix=2), {}, DATA),
    "mask": (MASKED, {"mask": ALLOWED}, DATA),
    "added": (Attention(mask="additive"), {"mask": BIAS}, DATA),
    "all": (
        Attention(scale=1, bias=True, causal=True, mask="boolean"),
        {"bias": np.where(ALLOWED, BIAS, 0), "mask": ALLOWED[::-1]},
        DATA,
    ),
    "shared heads": (SHARED, {}, HEADS),
    "shared heads, window, sink": (replace(SHARED, window=3, sink="given"), {"sink": SINK}, HEADS),
    "sink of zero": (Attention(sink="zero", mask="boolean"), {"mask": ALLOWED}, DATA),
    "mask, nan": (Attention(mask="boolean", fully_masked="nan"), {"mask": ~ALLOWED}, DATA),
    "log-sum-exp": (Attention(mask="boolean", lse=True), {"mask": ALLOWED}, DATA),
    "alibi": (replace(SHARED, position=Alibi(slopes="given")), {"slopes": SINK / 2}, HEADS),
    "tokens": (Attention(heads=2, causal=True), {}, TOKENS),
}


def tiled(spec: Attention, bounds: Any = (ROWS, KEYS), **inputs: Any) -> Any:
    return partial(by_tiles, spec, *bounds, **inputs)


@pytest.mark.parametrize("name", FORMS)
def test_tiles_give_what_the_specification_gives(name: str) -> None:
    spec, inputs, data = FORMS[name]
    given = {n: x if n == "mask" else EXACT.lift(x) for n, x in inputs.items()}
    n_q, n_k = (data[name if name in data else "x"].shape[-2] for name in "qk")
    definition, small, uneven = partial(spec, **given), (range(n_q + 1), (0, *range(2, n_k + 1))), (ROWS, KEYS)
    for bounds in (small, ((0, n_q), (0, n_k)), *[uneven] * (data is DATA)):
        assert exactly(tiled(spec, bounds, **given), definition, data)
    assert not exactly(tiled(spec, ((0, n_q), range(n_k)), **given), definition, data)  # the last key is left out
    assert data is not DATA or spec.lse or spec.fully_masked == "nan" or legal(tiled(spec, uneven, **inputs), DATA)


BOUNDS = {"even": ((0, 2, 4, 5), (0, 2, 3)), "uneven": ((0, 1, 5), (0, 1, 3)), "ones": (range(6), range(4))}


@pytest.mark.parametrize("bounds", BOUNDS)
def test_rows_that_see_nothing_give_zeros(bounds: str) -> None:
    form = tiled(CAUSAL, BOUNDS[bounds])
    assert exactly(form, CAUSAL, LONG)
    assert bounds != "uneven" or legal(form, LONG)
    assert (form(**LONG)[:2] == 0).all()


def test_a_cap() -> None:
    """tanh of numbers is no exact number: floats alone, and those of the specification."""
    got = tiled(Attention(causal=True, softcap=2.0))
    assert legal(got, DATA)
    assert legal(Attention(causal=True, softcap=2.0), DATA, bounded_by=got)
    assert not legal(Attention(causal=True, softcap=2.5), DATA, bounded_by=got)


def cut(bounds: Any) -> list[slice]:
    """The tiles between bounds."""
    return [slice(lo, hi) for lo, hi in pairwise(bounds)]


# -- what is wrong ---------------------------------------------------------------------------------------------------
def _of_the_tile(q: Any, k: Any, v: Any) -> Any:
    """Causal within each tile, as if it were alone."""
    s = Attention().trace(q, k, v)["scaled"]
    tiles = [[functional.forbid(s[r, c], functional.causal(s[r, c])) for c in cut(KEYS)] for r in cut(ROWS)]
    xp = s.__array_namespace__()
    states = streaming.row_states(xp.concat([xp.concat(row, axis=-1) for row in tiles], axis=-2), v, ROWS, KEYS)
    return xp.concat([streaming.finish(state, "zeros") for state in states], axis=-2)


FALSE = {
    "places begin anew in each tile": (_of_the_tile, "causal"),
    "the last tile of keys is left out": (tiled(CAUSAL, (ROWS, KEYS[:-1])), "causal"),
    "aligned at the top left": (tiled(Attention(causal=True, alignment="top-left")), "causal"),
    "one key more in the window": (tiled(Attention(causal=True, window=4)), "window"),
    "the mask of other rows": (tiled(MASKED, mask=ALLOWED[[1, 0, 2]]), "mask"),
}
RIGHT = {name: tiled(spec, **inputs) for name, (spec, inputs, _) in FORMS.items()}


@pytest.mark.parametrize("name", FALSE)
def test_wrong_tiles_are_refused(name: str) -> None:
    form, right = FALSE[name]
    spec, inputs, _ = FORMS[right]
    assert not exactly(form, partial(spec, **inputs), DATA)
    assert not legal(form, DATA, bounded_by=RIGHT[right])


# -- statistics ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mask", [np.ones((3, 7), dtype=bool), ALLOWED])
def test_what_is_kept_gives_the_weights_back(mask: Any) -> None:
    q, k, v = (EXACT.lift(DATA[x]) for x in "qkv")
    whole = MASKED.trace(q, k, v, mask=mask)["masked"]
    weights = MASKED(q, k, EXACT.lift(np.eye(7)), mask=mask)
    for r, state in zip(cut(ROWS), streaming.row_states(whole, v, ROWS, KEYS), strict=True):
        kept = streaming.lse(state)
        assert (kept == functional.log_sum_exp(whole[r])).all()
        assert all((streaming.tile_weights(whole[r, c], kept) == weights[r, c]).all() for c in cut(KEYS))
        assert (streaming.tile_weights(whole[r], state.maximum) == weights[r]).all() == (not mask[r].any())


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (Attention(normaliser="sigmoid"), "has normaliser 'softmax', not 'sigmoid'"),
        (Attention(base=2), "has base None, not 2"),
        (Attention(dropout=0.5), "has dropout 0, not 0.5"),
        (Attention(position=Shaw(most=2, values=True)), "no positions that are added to values"),
    ],
)
def test_weights_that_no_state_holds_are_refused(spec: Attention, says: str) -> None:
    with pytest.raises(InputError, match=says):
        by_tiles(spec, (0, 3), (0, 7), *DATA.values())


# -- all sizes -------------------------------------------------------------------------------------------------------
def _letters(q: Any, k: Any, v: Any, size: Any) -> Any:
    bounds = (0, size["a"], size["a"] + size["b"])
    return by_tiles(Attention(scale=1, causal=True), bounds, bounds, q, k, v)


def test_causal_tiles_for_all_sizes() -> None:
    shapes = {"q": "a+b d", "k": "a+b d", "v": "a+b e"}

    def whole(spec: Attention, q: Any, k: Any, v: Any, size: Any) -> Any:
        return spec(q, k, v)

    assert proved(_letters, partial(whole, Attention(causal=True, scale=1)), shapes)
    assert not proved(_letters, partial(whole, Attention(scale=1)), shapes)


@pytest.mark.parametrize("sink", [None, "zero"])
def test_states_of_tiles_are_held_one_at_a_time(sink: str | None) -> None:
    """Where each key is a tile, all states together would be as many numbers as keys times those of the output."""
    q, k, v = np.ones((16, 1)), np.ones((500, 1)), np.ones((500, 128))
    tracemalloc.start()
    try:
        tiled(Attention(sink=sink), ((0, 16), range(501)), q=q, k=k, v=v)()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * v.nbytes
