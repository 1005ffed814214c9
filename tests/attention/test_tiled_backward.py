"""The backward pass by tiles gives the derivatives of the one definition, from what the forward pass kept."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Rotary, functional, streaming, vjp
from tests.attention.definition import EXACT, drawn, exactly, legal, proved


def whole(seed: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Whole numbers from −2 to 2, whose derivatives stay short."""
    return {name: np.floor(x) for name, x in drawn(seed, **shapes).items()}


ROWS, KEYS = (0, 2, 3), (0, 1, 3, 4)
DATA = whole(7, q=(3, 2), k=(4, 2), v=(4, 3), g=(3, 3))
LONG = whole(8, q=(4, 2), k=(2, 2), v=(2, 3), g=(4, 3))
ALLOWED = np.array([[0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)
BIAS = np.array([[0, 1, 0, -1], [0, 2, 1, 0], [1, 0, 0, -2]])
CAUSAL = Attention(scale=1, causal=True)


def by_tiles(spec: Attention, q: Any, k: Any, v: Any, g: Any, bounds: Any = (ROWS, KEYS), **inputs: Any) -> Any:
    found = streaming.backward_by_tiles(spec, *bounds, g, {"q": q, "k": k, "v": v, **inputs}, "qkv")
    return found["q"], found["k"], found["v"]


def derivatives(attention: Any, q: Any, k: Any, v: Any, g: Any) -> tuple[Any, ...]:
    """The derivatives of ⟨g, attention(q, k, v)⟩, of the definition as it stands."""
    found = vjp(attention, g, {"q": q, "k": k, "v": v})
    return found["q"], found["k"], found["v"]


def test_rows_that_see_nothing_have_no_gradient() -> None:
    form = partial(by_tiles, CAUSAL, bounds=((0, 1, 2, 4), (0, 1, 2)))
    assert exactly(form, partial(derivatives, CAUSAL), LONG)
    assert legal(form, LONG)
    assert (form(**LONG)[0][:2] == 0).all()


# -- what is wrong ---------------------------------------------------------------------------------------------------
def _changed(change: Any, q: Any, k: Any, v: Any, g: Any, spec: Attention = CAUSAL) -> Any:
    """The backward pass of causal attention, from other statistics or other scores than those of the forward pass."""
    states = streaming.row_states(CAUSAL.trace(q, k, v)["masked"], v, ROWS, KEYS)
    concat = v.__array_namespace__().concat
    output, whole = (
        concat([f(x) for x in states], axis=-2)
        for f in (partial(streaming.finish, fully_masked="zeros"), streaming.lse)
    )
    first = concat(
        [x.maximum for x in streaming.row_states(CAUSAL.trace(q, k, v)["masked"], v, ROWS, KEYS[:2])], axis=-2
    )
    values = spec.trace(q, k, v)
    scores = values["masked" if spec.causal else "scores"]
    saved = change(streaming.PartialOutput(output, whole), first)
    ds, dv = streaming.score_and_value_gradients(scores, v, saved, g, ROWS, KEYS)
    return ds @ k, ds.mT @ q, dv


def _same(saved: streaming.PartialOutput, first: Any) -> streaming.PartialOutput:
    return saved


FALSE = {
    "D is left out": partial(_changed, lambda saved, first: saved._replace(output=0 * saved.output)),
    "the maximum of the first tile": partial(_changed, lambda saved, first: saved._replace(lse=first)),
    "the scale is another": partial(_changed, _same, spec=Attention(scale=2, causal=True)),
    "without the mask": partial(_changed, _same, spec=Attention(scale=1)),
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
    capped = Attention(causal=True, scale=1, softcap=1.5)
    form = partial(by_tiles, capped)
    wanted = derivatives(capped, **DATA)
    for got, slope, uncapped in zip(form(**DATA), wanted, by_tiles(CAUSAL, **DATA), strict=True):
        np.testing.assert_allclose(got, slope, rtol=1e-12, atol=1e-14)
        assert abs(uncapped - slope).max() > 1e-2
    assert legal(form, DATA)


# -- every specification -----------------------------------------------------------------------------------------------
TOKENS = whole(11, x=(3, 2), w_q=(2, 4), w_k=(2, 2), w_v=(2, 1), w_o=(2, 2), sink=(2,))
EVERY: dict[str, tuple[Attention, dict[str, Any], dict[str, np.ndarray]]] = {
    "plain": (Attention(), {}, {n: DATA[n] for n in "qkv"}),
    "scale": (Attention(scale=2), {}, {n: DATA[n] for n in "qkv"}),
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
    found = streaming.backward_by_tiles(spec, (0, 1, n_q), (0, 2, n_k), g, inputs)
    wanted = vjp(spec, g, inputs, ties="second")
    assert found.keys() == wanted.keys() == data.keys()
    for n, gradient in found.items():
        assert gradient.shape == wanted[n].shape
        assert (gradient == wanted[n]).all()
        assert not (gradient == 0 * gradient).all()
    first = streaming.backward_by_tiles(spec, (0, 1, n_q), (0, n_k), g, inputs, wrt=list(data)[:1])
    assert list(first) == list(data)[:1]


def test_a_log_sum_exp_is_not_taken_back() -> None:
    with pytest.raises(InputError, match="starts from the output alone"):
        streaming.backward_by_tiles(Attention(lse=True), (0, 3), (0, 4), DATA["g"], {n: DATA[n] for n in "qkv"})


# -- all sizes -------------------------------------------------------------------------------------------------------
KEPT = {"s": "a+b c+e", "v": "c+e w", "o": "a+b w", "l": "a+b 1", "g": "a+b w"}


def _tile_sums(s: Any, v: Any, o: Any, l: Any, g: Any, size: Any) -> Any:  # noqa: E741
    """dS and dV by tiles, from any statistics that were kept."""
    a, b, c, e = (size[x] for x in "abce")
    rows, keys = (slice(0, a), slice(a, a + b)), (slice(0, c), slice(c, c + e))
    xp = s.__array_namespace__()

    def tile(r: slice, t: slice) -> Any:
        return streaming.tile_gradients(s[r, t], v[t], streaming.PartialOutput(o[r], l[r]), g[r])

    ds = xp.concat([xp.concat([tile(r, t)[0] for t in keys], axis=1) for r in rows])
    return ds, xp.concat([tile(rows[0], t)[1] + tile(rows[1], t)[1] for t in keys])


def _whole(s: Any, v: Any, o: Any, l: Any, g: Any, size: Any) -> Any:  # noqa: E741
    xp = s.__array_namespace__()
    p = xp.exp(s - l)
    return p * (g @ v.mT - xp.sum(g * o, axis=-1, keepdims=True)), p.mT @ g


def _first_tile(s: Any, v: Any, o: Any, l: Any, g: Any, size: Any) -> Any:  # noqa: E741
    """dV of the queries of the first tile alone."""
    r = slice(0, size["a"])
    return _whole(s, v, o, l, g, size)[0], _whole(s[r], v, o[r], l[r], g[r], size)[1]


def test_tiles_add_up_for_all_sizes() -> None:
    assert proved(_tile_sums, _whole, KEPT)
    assert not proved(_tile_sums, _first_tile, KEPT)


def test_the_products_of_rows_need_no_keys() -> None:
    """D = rowsum(dO ⊙ O) = rowsum(P ⊙ dO Vᵀ), for all sizes."""

    def over_keys(s: Any, v: Any, g: Any, size: Any) -> Any:
        p = functional.softmax(s)
        return s.__array_namespace__().sum(p * (g @ v.mT), axis=-1, keepdims=True)

    shapes = {"s": "n m", "v": "m w", "g": "n w"}
    assert proved(lambda s, v, g, size: streaming.row_products(g, functional.softmax(s) @ v), over_keys, shapes)
    assert not proved(lambda s, v, g, size: streaming.row_products(g, s @ v), over_keys, shapes)


def test_what_was_kept_gives_the_weights_for_all_sizes() -> None:
    def form(s: Any, v: Any, size: Any) -> Any:
        n, a, b = (size[x] for x in "nab")
        (state,) = streaming.row_states(s, v, (0, n), (0, a, a + b))
        return [streaming.tile_weights(tile, streaming.lse(state)) for tile in (s[:, :a], s[:, a:])]

    def definition(s: Any, v: Any, size: Any) -> Any:
        p = functional.softmax(s)
        return p[:, : size["a"]], p[:, size["a"] :]

    def by_one_tile(s: Any, v: Any, size: Any) -> Any:
        n, a = (size[x] for x in "na")
        (state,) = streaming.row_states(s[:, :a], v[:a], (0, n), (0, a))
        return [streaming.tile_weights(tile, streaming.lse(state)) for tile in (s[:, :a], s[:, a:])]

    shapes = {"s": "n a+b", "v": "a+b w"}
    assert proved(form, definition, shapes)
    assert not proved(by_one_tile, definition, shapes)


@pytest.mark.deep
@pytest.mark.parametrize("which", "qv")
def test_the_whole_backward_pass_for_all_sizes(which: str) -> None:
    """dQ and dV of two tiles of keys, from the forward pass by tiles. (dK so takes minutes; its parts are above.)"""
    shapes = {"q": "n d", "k": "a+b d", "v": "a+b w", "g": "n w"}

    def form(q: Any, k: Any, v: Any, g: Any, size: Any) -> Any:
        n, a, b = (size[x] for x in "nab")
        s = q @ k.mT
        (state,) = streaming.row_states(s, v, (0, n), (0, a, a + b))
        saved = streaming.PartialOutput(streaming.finish(state), streaming.lse(state))
        ds, dv = streaming.score_and_value_gradients(s, v, saved, g, (0, n), (0, a, a + b))
        return ds @ k if which == "q" else dv

    def definition(q: Any, k: Any, v: Any, g: Any, size: Any) -> Any:
        """The backward pass with all weights at once, without a scale."""
        p = functional.softmax(q @ k.mT)
        ds = functional.softmax_vjp(p, g @ v.mT)
        return ds @ k if which == "q" else p.mT @ g

    assert proved(form, definition, shapes)
