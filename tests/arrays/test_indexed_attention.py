"""Every variant: what ``indexed`` says of an element is what exact arithmetic gives, and is written as a formula."""

from fractions import Fraction
from typing import Any

import pytest

from symattn.arrays.index.writing import Writing, in_blocks, is_plain, length, size
from symattn.arrays.indexed import Indexed, index_variables
from symattn.attention.linear import causal_products, delta_step, linear_attention
from symattn.attention.norms import layer_norm, rms_norm, unit
from symattn.attention.positions.angles import linear_bias, rotate_half, rotate_interleaved
from symattn.attention.projections import grouped_attention, repeat_heads, tile_heads
from symattn.attention.softmax import sink_weights, softmax
from symattn.attention.spec import Attention
from symattn.attention.streaming.states import finish, merge, online, tile_state
from symattn.document.tex import tex
from symattn.document.text import text
from tests.arrays.evaluating import TRUTHS, compare

QKV = {"q": "n d", "k": "m d", "v": "m w"}
SELF = {"q": "n d", "k": "n d", "v": "n w"}
CACHE = {"q": "n d", "k": "p+n d", "v": "p+n w"}
STEP = {"q": "1 d", "k": "p+1 d", "v": "p+1 w"}
PROJECTED = {"x": "n e", "w_q": "e d", "w_k": "e d", "w_v": "e w"}
BIASED = {**PROJECTED, "b_q": "d", "b_k": "d", "b_v": "w"}
HEADS = {"x": "n e", "w_q": "e 2*d", "w_k": "e 2*d", "w_v": "e 2*w", "w_o": "2*w e", "b_o": "e"}

VARIANTS: list[tuple[Attention, dict[str, str]]] = [
    *[(Attention(scale=c), QKV) for c in (None, 1, Fraction(1, 2), 0)],
    (Attention(stabilised=False), QKV),
    (Attention(fully_masked="nan"), QKV),
    (Attention(), {"x": "n d"}),
    (Attention(), {"x": "n e", "y": "m e", "w_q": "e d", "w_k": "e d", "w_v": "e w"}),
    (Attention(), PROJECTED),
    (Attention(), BIASED),
    (Attention(), {**PROJECTED, "w_o": "w e", "b_o": "e"}),
    (Attention(heads=2), HEADS),
    (Attention(heads=2, causal=True), HEADS),
    (Attention(heads=2, stabilised=False), {k: v for k, v in HEADS.items() if k not in ("w_o", "b_o")}),
    (Attention(causal=True), SELF),
    (Attention(causal=True, stabilised=False, fully_masked="nan"), SELF),
    (Attention(causal=True), CACHE),
    (Attention(causal=True), STEP),
    (Attention(causal=True, alignment="top-left"), SELF),
    (Attention(mask="boolean"), {**QKV, "mask": "n m"}),
    (Attention(mask="boolean", stabilised=False, fully_masked="nan"), {**QKV, "mask": "n m"}),
    (Attention(mask="additive"), {**QKV, "mask": "n m"}),
    (Attention(padding=True), {**QKV, "keep": "m"}),
    (Attention(padding=True, causal=True), {**SELF, "keep": "n"}),
    (Attention(padding=True, mask="boolean"), {**QKV, "mask": "n m", "keep": "m"}),
]
SIZES = [
    {"n": 1, "m": 1, "d": 1, "w": 1, "e": 1, "p": 1},
    {"n": 2, "m": 3, "d": 1, "w": 2, "e": 1, "p": 2},
    {"n": 3, "m": 2, "d": 2, "w": 1, "e": 2, "p": 1},
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("spec", "arrays"), VARIANTS, ids=lambda x: str(x)[:60] if isinstance(x, Attention) else "")
def test_an_element_is_what_exact_arithmetic_gives(
    spec: Attention, arrays: dict[str, str], sizes: dict[str, int]
) -> None:
    truths = ("keep",) if spec.mask == "additive" else TRUTHS
    compare(lambda **given: spec(**given), arrays, sizes, truths)


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
    arrays, sizes = SELF, SIZES[2]
    with pytest.raises(AssertionError):
        compare(lambda **a: Attention(causal=isinstance(a["q"], Indexed))(**a), arrays, sizes)


def shown(array: Indexed) -> str:
    places = next(iter(array.places()))
    x = array.at(places)
    formula = Writing([x], index_variables(places))(x)
    assert tex(formula)
    return text(formula)


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
