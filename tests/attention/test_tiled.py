"""Attention by tiles of queries and keys is attention: what a specification gives, its scores and sinks included."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn.attention import masks
from symattn.attention.positions.position_fields import Alibi, Shaw
from symattn.attention.softmax import log_sum_exp
from symattn.attention.spec import Attention
from symattn.attention.streaming.by_tiles import by_tiles
from symattn.attention.streaming.tiled import Scores, above_diagonal, cut, forward, sliced, tile_weights, with_lse
from symattn.document.errors import InputError
from tests.attention.streaming_tools import EXACT, drawn, exactly, legal, proved

ROWS, KEYS = (0, 2, 3), (0, 1, 4, 6, 7)
DATA = drawn(2, q=(3, 2), k=(7, 2), v=(7, 4))
LONG = drawn(3, q=(5, 2), k=(3, 2), v=(3, 4))  # more queries than keys: bottom-right, the first see nothing
ALLOWED = np.array([[0, 0, 0, 1, 1, 0, 1], [1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]], dtype=bool)
BIAS = np.where(ALLOWED, np.arange(7) / 2 - 1, -np.inf)


def tiled(scores: Scores, q: Any, k: Any, v: Any, skip: Any = None, bounds: Any = (ROWS, KEYS)) -> Any:
    return forward(scores.tiles(q, k), v, *bounds, skip=skip(q, k) if skip else None).output


CAUSAL = Scores(allowed=masks.causal)
WINDOW = Scores(allowed=lambda at: masks.window(at, 3))
FORMS = {
    "plain": (partial(tiled, Scores()), Attention()),
    "one tile": (partial(tiled, Scores(), bounds=((0, 3), (0, 7))), Attention()),
    "scale": (partial(tiled, Scores(scale=2)), Attention(scale=2)),
    "causal": (partial(tiled, CAUSAL), Attention(causal=True)),
    "causal, tiles skipped": (partial(tiled, CAUSAL, skip=above_diagonal), Attention(causal=True)),
    "window": (partial(tiled, WINDOW), Attention(causal=True, window=3)),
    "mask": (partial(tiled, Scores(mask=ALLOWED)), partial(Attention(mask="boolean"), mask=ALLOWED)),
    "added": (partial(tiled, Scores(bias=BIAS)), partial(Attention(mask="additive"), mask=BIAS)),
    "all": (
        partial(tiled, Scores(scale=1, bias=BIAS, mask=ALLOWED[::-1], allowed=masks.causal)),
        lambda q, k, v: Attention(scale=1, bias=True, causal=True, mask="boolean")(
            q, k, v, bias=np.where(ALLOWED, BIAS, 0), mask=ALLOWED & ALLOWED[::-1]
        ),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_tiles_give_what_the_specification_gives(name: str) -> None:
    form, definition = FORMS[name]
    assert exactly(form, definition, DATA)
    assert legal(form, DATA)


BOUNDS = {"even": ((0, 2, 4, 5), (0, 2, 3)), "uneven": ((0, 1, 5), (0, 1, 3)), "ones": (range(6), range(4))}


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("skip", [None, above_diagonal])
def test_rows_that_see_nothing_give_zeros(bounds: str, skip: Any) -> None:
    form = partial(tiled, CAUSAL, skip=skip, bounds=BOUNDS[bounds])
    assert exactly(form, Attention(causal=True), LONG)
    assert bounds != "uneven" or legal(form, LONG)
    assert (form(**LONG)[:2] == 0).all()


def test_a_cap() -> None:
    """tanh of numbers is no exact number: floats alone, and those of the specification."""
    got = partial(tiled, Scores(cap=2.0, allowed=masks.causal))
    assert legal(got, DATA)
    assert legal(Attention(causal=True, softcap=2.0), DATA, bounded_by=got)
    assert not legal(Attention(causal=True, softcap=2.5), DATA, bounded_by=got)


# -- what is wrong ---------------------------------------------------------------------------------------------------
def _off_by_one(q: Any, k: Any) -> Any:
    offset = k.shape[-2] - q.shape[-2]
    return lambda rows, keys: rows.stop + offset - 1 <= keys.start


def _of_the_tile(q: Any, k: Any, v: Any) -> Any:
    """Causal within each tile, as if it were alone."""
    at = Scores().tiles(q, k)
    return forward(lambda r, c: masks.forbid(at(r, c), masks.causal(at(r, c))), v, ROWS, KEYS).output


FALSE = {
    "the tile on the diagonal is skipped": (partial(tiled, CAUSAL, skip=_off_by_one), "causal"),
    "places begin anew in each tile": (_of_the_tile, "causal"),
    "the last tile of keys is left out": (partial(tiled, CAUSAL, bounds=(ROWS, KEYS[:-1])), "causal"),
    "aligned at the top left": (
        partial(tiled, Scores(allowed=lambda at: masks.causal(masks.Places(at.i - 4, at.j)))),
        "causal",
    ),
    "one key more in the window": (partial(tiled, Scores(allowed=lambda at: masks.window(at, 4))), "window"),
    "the mask of other rows": (partial(tiled, Scores(mask=ALLOWED[[1, 0, 2]])), "mask"),
}


@pytest.mark.parametrize("name", FALSE)
def test_wrong_tiles_are_refused(name: str) -> None:
    form, right = FALSE[name]
    assert not exactly(form, FORMS[right][1], DATA)
    assert not legal(form, DATA, bounded_by=FORMS[right][0])


# -- statistics ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scores", [Scores(), CAUSAL, Scores(mask=ALLOWED)])
def test_what_is_kept_gives_the_weights_back(scores: Scores) -> None:
    q, k, v = (EXACT.lift(DATA[x]) for x in "qkv")
    at = scores.tiles(q, k)
    kept = forward(at, v, ROWS, KEYS)
    whole = at(slice(0, 3), slice(0, 7))
    weights = Attention(mask="boolean")(q, k, EXACT.lift(np.eye(7)), mask=EXACT.xp.isfinite(whole))
    for saved in (kept, with_lse(kept)):
        for r in cut(ROWS):
            for c in cut(KEYS):
                p = tile_weights(at(r, c), saved.maximum[r], saved.normaliser[r])
                assert (p == weights[r, c]).all()
    assert (with_lse(kept).maximum == log_sum_exp(whole)).all()
    assert not (tile_weights(whole, kept.maximum, 1 + 0 * kept.normaliser) == weights).all()


# -- every specification -----------------------------------------------------------------------------------------------
HEADS = drawn(4, q=(2, 4, 3, 2), k=(2, 2, 5, 2), v=(2, 2, 5, 3))
SINK = np.array([0.5, -1, 0, 2])
SPECS: dict[str, tuple[Attention, dict[str, Any], dict[str, np.ndarray]]] = {
    "window": (Attention(causal=True, window=2), {}, DATA),
    "prefix": (Attention(causal=True, prefix=2), {}, DATA),
    "shared heads": (Attention(heads=4, kv_heads=2, causal=True), {}, HEADS),
    "shared heads, window, sink": (
        Attention(heads=4, kv_heads=2, causal=True, window=3, sink="given"),
        {"sink": SINK},
        HEADS,
    ),
    "sink of zero": (Attention(sink="zero", mask="boolean"), {"mask": ALLOWED}, DATA),
    "mask, nan": (Attention(mask="boolean", fully_masked="nan"), {"mask": ~ALLOWED}, DATA),
    "log-sum-exp": (Attention(mask="boolean", lse=True), {"mask": ALLOWED}, DATA),
    "alibi": (Attention(heads=4, kv_heads=2, causal=True, position=Alibi(slopes="given")), {"slopes": SINK / 2}, HEADS),
    "tokens": (Attention(heads=2, causal=True), {}, drawn(5, x=(5, 4), w_q=(4, 4), w_k=(4, 4), w_v=(4, 6), w_o=(6, 3))),
}


@pytest.mark.parametrize("name", SPECS)
def test_every_specification_by_tiles(name: str) -> None:
    spec, inputs, data = SPECS[name]
    given = {n: x if x.dtype == bool else EXACT.lift(x) for n, x in inputs.items()}
    n_q, n_k = (data[name if name in data else "x"].shape[-2] for name in "qk")

    def form(rows: Any, keys: Any, **arrays: Any) -> Any:
        return by_tiles(spec, rows, keys, **arrays, **given)

    assert exactly(partial(form, range(n_q + 1), (0, *range(2, n_k + 1))), partial(spec, **given), data)
    assert not exactly(partial(form, (0, n_q), range(n_k)), partial(spec, **given), data)  # the last key is left out


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
    a, b = size["a"], size["b"]
    return tiled(Scores(scale=1, allowed=masks.causal), q, k, v, above_diagonal, ((0, a, a + b), (0, a, a + b)))


def test_causal_tiles_for_all_sizes() -> None:
    shapes = {"q": "a+b d", "k": "a+b d", "v": "a+b e"}

    def whole(spec: Attention, q: Any, k: Any, v: Any, size: Any) -> Any:
        return spec(q, k, v)

    assert proved(_letters, partial(whole, Attention(causal=True, scale=1)), shapes)
    assert not proved(_letters, partial(whole, Attention(scale=1)), shapes)


def test_sliced_scores_are_the_scores_of_slices() -> None:
    q, k = EXACT.lift(DATA["q"]), EXACT.lift(DATA["k"])
    scores = Scores(bias=BIAS, allowed=masks.causal).tiles(q, k)
    whole = scores(slice(0, 3), slice(0, 7))
    for r in cut(ROWS):
        for c in cut(KEYS):
            assert (sliced(whole)(r, c) == scores(r, c)).all()
