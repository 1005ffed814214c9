"""The backward pass by tiles gives the derivatives of the one definition, from what the forward pass kept."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn.arrays.namespace import namespace_of
from symattn.attention import masks
from symattn.attention.derivative import vjp
from symattn.attention.gradients.attention import Gradients, softmax_vjp
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.attention.streaming.by_tiles import backward_by_tiles
from symattn.attention.streaming.tiled import (
    Forward,
    Scores,
    above_diagonal,
    backward,
    forward,
    row_products,
    sliced,
    tile_gradients,
    tile_weights,
    with_lse,
)
from symattn.document.errors import InputError
from tests.attention.streaming_tools import EXACT, drawn, exactly, legal, proved


def whole(seed: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Whole numbers from −2 to 2, whose derivatives stay short."""
    return {name: np.floor(x) for name, x in drawn(seed, **shapes).items()}


ROWS, KEYS = (0, 2, 3), (0, 1, 3, 4)
DATA = whole(7, q=(3, 2), k=(4, 2), v=(4, 3), g=(3, 3))
LONG = whole(8, q=(4, 2), k=(2, 2), v=(2, 3), g=(4, 3))
ALLOWED = np.array([[0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)
BIAS = np.array([[0, 1, 0, -1], [0, 2, 1, 0], [1, 0, 0, -2]])
CAUSAL = Scores(scale=1, allowed=masks.causal)
Keep = Any


def kept_sums(saved: Forward) -> Forward:
    return saved


def by_tiles(
    scores: Scores, q: Any, k: Any, v: Any, g: Any, keep: Keep = kept_sums, skip: Any = None, bounds: Any = (ROWS, KEYS)
) -> Gradients:
    found = None if skip is None else skip(q, k)
    saved = keep(forward(scores.tiles(q, k), v, *bounds, skip=found))
    return backward(scores, q, k, v, saved, g, *bounds, skip=found)


def derivatives(attention: Any, q: Any, k: Any, v: Any, g: Any) -> tuple[Any, ...]:
    """The derivatives of ⟨g, attention(q, k, v)⟩, of the definition as it stands."""
    found = vjp(attention, g, {"q": q, "k": k, "v": v})
    return found["q"], found["k"], found["v"]


SPECS = {
    "plain": (Scores(), Attention()),
    "scale": (Scores(scale=2), Attention(scale=2)),
    "causal": (CAUSAL, Attention(causal=True, scale=1)),
    "mask": (Scores(scale=1, mask=ALLOWED), partial(Attention(mask="boolean", scale=1), mask=ALLOWED)),
    "added": (Scores(scale=1, bias=BIAS), partial(Attention(bias=True, scale=1), bias=BIAS)),
}


def compared(forms: list[Any], attention: Any, data: dict[str, np.ndarray]) -> bool:
    """Whether all forms give the derivatives of the attention exactly, and the last one in float32."""

    def every(**given: Any) -> Any:
        return [array for form in forms for array in form(**given)]

    def wanted(**given: Any) -> Any:
        return derivatives(attention, **given) * len(forms)

    return exactly(every, wanted, data) and legal(forms[-1], data)


@pytest.mark.parametrize("name", SPECS)
def test_tiles_give_the_derivatives_of_the_definition(name: str) -> None:
    scores, attention = SPECS[name]
    forms = [partial(by_tiles, scores, keep=keep) for keep in (kept_sums, with_lse)]
    if name == "causal":
        forms.append(partial(by_tiles, scores, skip=above_diagonal))
    assert compared(forms, attention, DATA)


def test_rows_that_see_nothing_have_no_gradient() -> None:
    bounds = ((0, 1, 2, 4), (0, 1, 2))
    hows = [{"keep": keep, "skip": skip} for keep in (kept_sums, with_lse) for skip in (None, above_diagonal)]
    forms = [partial(by_tiles, CAUSAL, bounds=bounds, **how) for how in hows]
    assert compared(forms, Attention(causal=True, scale=1), LONG)
    assert all((form(**LONG).q[:2] == 0).all() for form in forms)


# -- what is wrong ---------------------------------------------------------------------------------------------------
def _changed(change: Any, q: Any, k: Any, v: Any, g: Any) -> Any:
    saved = forward(CAUSAL.tiles(q, k), v, ROWS, KEYS)
    return backward(CAUSAL, q, k, v, change(saved), g, ROWS, KEYS)


def _no_products(q: Any, k: Any, v: Any, g: Any) -> Any:
    """Without D: dS = P ⊙ dO Vᵀ."""
    return _changed(lambda saved: saved._replace(output=0 * saved.output), q, k, v, g)


def _scaled(q: Any, k: Any, v: Any, g: Any) -> Any:
    """The forward pass without a scale, the backward pass with 1/√d_k."""
    saved = forward(CAUSAL.tiles(q, k), v, ROWS, KEYS)
    return backward(Scores(allowed=masks.causal), q, k, v, saved, g, ROWS, KEYS)


def _maximum_of_first_tile(q: Any, k: Any, v: Any, g: Any) -> Any:
    saved = forward(CAUSAL.tiles(q, k), v, ROWS, KEYS)
    first = forward(CAUSAL.tiles(q, k), v, ROWS, KEYS[:2])
    return backward(CAUSAL, q, k, v, saved._replace(maximum=first.maximum), g, ROWS, KEYS)


FALSE = {
    "D is left out": _no_products,
    "ℓ is left out": partial(_changed, lambda saved: saved._replace(normaliser=0 * saved.normaliser + 1)),
    "the maximum of the first tile": _maximum_of_first_tile,
    "the scale is another": _scaled,
    "the diagonal is skipped": partial(
        by_tiles, CAUSAL, skip=lambda q, k: lambda r, c: r.stop + 1 <= c.start + (c.stop - c.start)
    ),
    "without the mask": lambda q, k, v, g: backward(
        Scores(scale=1), q, k, v, forward(CAUSAL.tiles(q, k), v, ROWS, KEYS), g, ROWS, KEYS
    ),
}


RIGHT = partial(by_tiles, CAUSAL)


@pytest.mark.parametrize("name", FALSE)
def test_a_wrong_backward_pass_is_refused(name: str) -> None:
    assert not exactly(FALSE[name], RIGHT, DATA)
    assert not legal(FALSE[name], DATA, bounded_by=RIGHT)


# -- other inputs ----------------------------------------------------------------------------------------------------
HEADS = whole(9, q=(4, 2, 1), k=(2, 3, 1), v=(2, 3, 2), g=(4, 2, 2))
HEADS["sink"] = np.array([1.0, -1, 2, 0])


def test_a_cap_has_a_slope() -> None:
    """tanh of numbers is no exact number: in float64."""
    form = partial(by_tiles, Scores(scale=1, cap=1.5, allowed=masks.causal))
    wanted = derivatives(Attention(causal=True, scale=1, softcap=1.5), **DATA)
    for got, slope, uncapped in zip(form(**DATA), wanted, by_tiles(CAUSAL, **DATA), strict=True):
        np.testing.assert_allclose(got, slope, rtol=1e-12, atol=1e-14)
        assert abs(uncapped - slope).max() > 1e-2
    assert legal(form, DATA)


# -- every specification -----------------------------------------------------------------------------------------------
TOKENS = whole(11, x=(3, 2), w_q=(2, 4), w_k=(2, 2), w_v=(2, 1), w_o=(2, 2), sink=(2,))
EVERY: dict[str, tuple[Attention, dict[str, Any], dict[str, np.ndarray]]] = {
    "causal": (Attention(causal=True, scale=1), {}, {n: DATA[n] for n in "qkv"}),
    "mask": (Attention(mask="boolean", scale=1), {"mask": ALLOWED}, {n: DATA[n] for n in "qkv"}),
    "bias": (Attention(bias=True, scale=1), {}, {**{n: DATA[n] for n in "qkv"}, "bias": BIAS}),
    "shared heads, window, sink": (
        Attention(heads=4, kv_heads=2, causal=True, window=2, sink="given", scale=1),
        {},
        {n: x for n, x in HEADS.items() if n != "g"},
    ),
    "tokens, heads, sink, rotary": (
        Attention(heads=2, kv_heads=1, causal=True, sink="given", scale=1, position=Rotary(triples=((3, 4, 5),))),
        {},
        TOKENS,
    ),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_specification_is_taken_back_by_tiles(name: str) -> None:
    spec, fixed, data = EVERY[name]
    inputs = {n: EXACT.lift(x) for n, x in data.items()} | fixed
    output = spec(**inputs)
    g = EXACT.lift(whole(12, g=output.plain_shape)["g"])
    n_q, n_k = (inputs[n if n in inputs else "x"].shape[-2] for n in "qk")
    found = backward_by_tiles(spec, (0, 1, n_q), (0, 2, n_k), g, inputs)
    wanted = vjp(spec, g, inputs, ties="second")
    assert found.keys() == wanted.keys() == data.keys()
    for n, gradient in found.items():
        assert gradient.shape == wanted[n].shape
        assert (gradient == wanted[n]).all()
        assert not (gradient == 0 * gradient).all()
    first = backward_by_tiles(spec, (0, 1, n_q), (0, n_k), g, inputs, wrt=list(data)[:1])
    assert list(first) == list(data)[:1]


def test_a_log_sum_exp_is_not_taken_back() -> None:
    with pytest.raises(InputError, match="starts from the output alone"):
        backward_by_tiles(Attention(lse=True), (0, 3), (0, 4), DATA["g"], {n: DATA[n] for n in "qkv"})


# -- all sizes -------------------------------------------------------------------------------------------------------
KEPT = {"s": "a+b c+e", "v": "c+e w", "o": "a+b w", "m": "a+b 1", "l": "a+b 1", "g": "a+b w"}


def _tile_sums(s: Any, v: Any, o: Any, m: Any, l: Any, g: Any, size: Any) -> Any:  # noqa: E741
    """dS and dV by tiles, from any statistics that were kept."""
    a, b, c, e = (size[x] for x in "abce")
    rows, keys = (slice(0, a), slice(a, a + b)), (slice(0, c), slice(c, c + e))
    xp = namespace_of(s)

    def tile(r: slice, t: slice) -> Any:
        return tile_gradients(s[r, t], v[t], Forward(o[r], m[r], l[r]), g[r])

    ds = xp.concat([xp.concat([tile(r, t)[0] for t in keys], axis=1) for r in rows])
    return ds, xp.concat([tile(rows[0], t)[1] + tile(rows[1], t)[1] for t in keys])


def _whole(s: Any, v: Any, o: Any, m: Any, l: Any, g: Any, size: Any) -> Any:  # noqa: E741
    xp = namespace_of(s)
    p = xp.exp(s - m) / l
    return p * (g @ v.mT - xp.sum(g * o, axis=-1, keepdims=True)), p.mT @ g


def _first_tile(s: Any, v: Any, o: Any, m: Any, l: Any, g: Any, size: Any) -> Any:  # noqa: E741
    """dV of the queries of the first tile alone."""
    r = slice(0, size["a"])
    return _whole(s, v, o, m, l, g, size)[0], _whole(s[r], v, o[r], m[r], l[r], g[r], size)[1]


def test_tiles_add_up_for_all_sizes() -> None:
    assert proved(_tile_sums, _whole, KEPT, positive=("l",))
    assert not proved(_tile_sums, _first_tile, KEPT, positive=("l",))


def test_the_products_of_rows_need_no_keys() -> None:
    """D = rowsum(dO ⊙ O) = rowsum(P ⊙ dO Vᵀ), for all sizes."""

    def over_keys(s: Any, v: Any, g: Any, size: Any) -> Any:
        p = softmax(s)
        return namespace_of(s).sum(p * (g @ v.mT), axis=-1, keepdims=True)

    shapes = {"s": "n m", "v": "m w", "g": "n w"}
    assert proved(lambda s, v, g, size: row_products(g, softmax(s) @ v), over_keys, shapes)
    assert not proved(lambda s, v, g, size: row_products(g, s @ v), over_keys, shapes)


def test_what_was_kept_gives_the_weights_for_all_sizes() -> None:
    def form(s: Any, v: Any, size: Any, keep: Keep = with_lse) -> Any:
        n, a, b = (size[x] for x in "nab")
        saved = keep(forward(sliced(s), v, (0, n), (0, a, a + b)))
        return [tile_weights(tile, saved.maximum, saved.normaliser) for tile in (s[:, :a], s[:, a:])]

    def definition(s: Any, v: Any, size: Any) -> Any:
        p = softmax(s)
        return p[:, : size["a"]], p[:, size["a"] :]

    def by_one_tile(s: Any, v: Any, size: Any) -> Any:
        n, a = (size[x] for x in "na")
        saved = forward(sliced(s[:, :a]), v[:a], (0, n), (0, a))
        return [tile_weights(tile, saved.maximum, saved.normaliser) for tile in (s[:, :a], s[:, a:])]

    shapes = {"s": "n a+b", "v": "a+b w"}
    assert proved(form, definition, shapes)
    assert proved(partial(form, keep=kept_sums), definition, shapes)
    assert not proved(by_one_tile, definition, shapes)


@pytest.mark.deep
@pytest.mark.parametrize("which", "qv")
def test_the_whole_backward_pass_for_all_sizes(which: str) -> None:
    """dQ and dV of two tiles of keys, from the forward pass by tiles. (dK so takes minutes; its parts are above.)"""
    shapes = {"q": "n d", "k": "a+b d", "v": "a+b w", "g": "n w"}

    def form(q: Any, k: Any, v: Any, g: Any, size: Any) -> Any:
        n, a, b = (size[x] for x in "nab")
        return getattr(by_tiles(Scores(scale=1), q, k, v, g, bounds=((0, n), (0, a, a + b))), which)

    def definition(q: Any, k: Any, v: Any, g: Any, size: Any) -> Any:
        """The backward pass with all weights at once, without a scale."""
        p = softmax(q @ k.mT)
        ds = softmax_vjp(p, g @ v.mT)
        return ds @ k if which == "q" else p.mT @ g

    assert proved(form, definition, shapes)
