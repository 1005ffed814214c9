"""Every variant: what ``indexed`` says of an element is what exact arithmetic gives, and is written as a formula."""

from typing import Any

import pytest

from symattn import Attention
from symattn.arrays.index.writing import in_blocks, is_plain, length, size
from symattn.arrays.indexed import Indexed
from symattn.attention.linear import causal_products, delta_step, linear_attention
from symattn.attention.norms import layer_norm, rms_norm, unit
from symattn.attention.positions.angles import linear_bias, rotate_half, rotate_interleaved
from symattn.attention.projections import grouped_attention, repeat_heads, tile_heads
from symattn.attention.softmax import sink_weights, softmax
from symattn.attention.streaming.states import finish, merge, online, tile_state
from symattn.document.tex import tex
from symattn.document.text import text
from tests.arrays.evaluating import compare

SIZES = [
    {"n": 1, "m": 1, "d": 1, "w": 1, "e": 1, "p": 1},
    {"n": 2, "m": 3, "d": 1, "w": 2, "e": 1, "p": 2},
    {"n": 3, "m": 2, "d": 2, "w": 1, "e": 2, "p": 1},
]


def split(s: Any, v: Any) -> Any:
    n = s.shape[-1]
    first = n - 1
    return online(s, v, [(0, first), (first, n)])


DEFINITIONS: dict[str, tuple[Any, dict[str, str]]] = {
    "merge": (
        lambda s, t, u, w: list(merge(tile_state(s, u), tile_state(t, w))),
        {"s": "n p", "t": "n m", "u": "p w", "w": "m w"},
    ),
    "finish": (lambda s, u: finish(tile_state(s, u)), {"s": "n p", "u": "p w"}),
    "sinks": (sink_weights, {"s": "n m", "sink": "n 1"}),
    "groups": (
        lambda q, k, v: grouped_attention(Attention(scale=1), q, k, v),
        {"q": "2*e n d", "k": "2 m d", "v": "2 m w"},
    ),
    "repeat": (lambda x: repeat_heads(x, 2), {"x": "e n d"}),
    "tile": (lambda x: tile_heads(x, 2), {"x": "e n d"}),
    "linear": (lambda q, k, v: linear_attention(q * q + 1, k * k + 1, v), {"q": "n d", "k": "m d", "v": "m w"}),
    "causal products": (causal_products, {"q": "n d", "k": "n d", "v": "n w"}),
    "delta": (delta_step, {"state": "d w", "k": "1 d", "v": "1 w", "beta": "1 1"}),
    "half": (rotate_half, {"x": "n d+d", "cos": "n d", "sin": "n d"}),
    "interleaved": (rotate_interleaved, {"x": "n d*2", "cos": "n d", "sin": "n d"}),
    "bias": (linear_bias, {"s": "n n", "slope": "1 1"}),
    "bias with a cache": (linear_bias, {"s": "n p+n", "slope": "1 1"}),
    "rms": (lambda x: rms_norm(x, 1), {"x": "n d"}),
    "layer norm": (lambda x: layer_norm(x, 1), {"x": "n d"}),
    "unit": (lambda x: unit(x * x + 1), {"x": "n d"}),
}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_is_what_exact_arithmetic_gives(name: str, sizes: dict[str, int]) -> None:
    run, arrays = DEFINITIONS[name]
    compare(run, arrays, sizes)


def test_a_wrong_mask_would_be_seen() -> None:
    arrays, sizes = {"q": "n d", "k": "n d", "v": "n w"}, SIZES[2]
    with pytest.raises(AssertionError):
        compare(lambda **a: Attention(causal=isinstance(a["q"], Indexed))(**a), arrays, sizes)


def shown(array: Indexed) -> str:
    """The element as the array's own document has it."""
    (element,) = array.document().blocks[1].items
    assert tex(element.formula)
    return text(element.formula)


def letters(name: str, *axes: str) -> Indexed:
    return Indexed.letters(name, *axes)


@pytest.mark.parametrize(
    ("array", "formula"),
    [
        (letters("q", "n_q", "d_k") @ letters("k", "n_k", "d_k").mT, "Σ_{l=1}^{d_k} q_il k_jl"),
        (softmax(letters("s", "n"), stabilised=False), "e^(sᵢ)/(Σ_{j=1}^{n} e^(sⱼ))"),
        (letters("s", "n").max(), "maxᵢ sᵢ"),
        (letters("x", "n") * letters("x", "n") - 1, "xᵢ² − 1"),
        (letters("x", "n") + letters("x", "n"), "2xᵢ"),
        (-letters("x", "n") / 3, "−(1/3) xᵢ"),
        (letters("w_q", "n"), "w_qi"),
        (letters("i", "n") * letters("j", "n"), "i_l j_l"),
    ],
)
def test_formulas(array: Indexed, formula: str):
    assert shown(array) == formula


def test_every_index_has_a_letter_of_its_own():
    x = letters("x", "n", "d")
    formula = shown(Attention()(x, x, x))
    assert "Σ_{l=1}^{n}" in formula
    assert "x_il x_il" not in formula


def test_what_is_counted():
    s = letters("s", "n")
    places = next(iter(s.places()))
    assert length(s.at(places)) == 1
    assert is_plain(s.at(places))
    assert not is_plain(s.max().at(()))
    blocks = s.__array_namespace__().concat([s, s])
    assert not in_blocks(blocks.at(next(iter(blocks.places()))))
    assert text(size("d_k")) == "d_k"
