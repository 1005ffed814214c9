"""Every variant: what ``indexed`` says of an element is what exact arithmetic gives, and is written as a formula."""

from typing import Any

import pytest

from symattn import Attention, functional, kinds, printing, prove, streaming, theorem
from tests.arrays.evaluating import compare

SIZES = [
    {"n": 1, "m": 1, "d": 1, "w": 1, "e": 1, "p": 1},
    {"n": 2, "m": 3, "d": 1, "w": 2, "e": 1, "p": 2},
    {"n": 3, "m": 2, "d": 2, "w": 1, "e": 2, "p": 1},
]


def split(s: Any, v: Any) -> Any:
    n = s.shape[-1]
    first = n - 1
    return streaming.online(s, v, [(0, first), (first, n)])


DEFINITIONS: dict[str, tuple[Any, dict[str, str]]] = {
    "merge": (
        lambda s, t, u, w: list(streaming.merge(streaming.tile_state(s, u), streaming.tile_state(t, w))),
        {"s": "n p", "t": "n m", "u": "p w", "w": "m w"},
    ),
    "finish": (lambda s, u: streaming.finish(streaming.tile_state(s, u)), {"s": "n p", "u": "p w"}),
    "sinks": (functional.sink_weights, {"s": "n m", "sink": "n 1"}),
    "groups": (
        lambda q, k, v: functional.grouped_attention(Attention(scale=1), q, k, v),
        {"q": "2*e n d", "k": "2 m d", "v": "2 m w"},
    ),
    "repeat": (lambda x: functional.repeat_heads(x, 2), {"x": "e n d"}),
    "tile": (lambda x: functional.tile_heads(x, 2), {"x": "e n d"}),
    "linear": (
        lambda q, k, v: streaming.linear_attention(q * q + 1, k * k + 1, v),
        {"q": "n d", "k": "m d", "v": "m w"},
    ),
    "causal products": (streaming.causal_products, {"q": "n d", "k": "n d", "v": "n w"}),
    "delta": (streaming.delta_step, {"state": "d w", "k": "1 d", "v": "1 w", "beta": "1 1"}),
    "half": (functional.rotate_half, {"x": "n d+d", "cos": "n d", "sin": "n d"}),
    "interleaved": (functional.rotate_interleaved, {"x": "n d*2", "cos": "n d", "sin": "n d"}),
    "bias": (functional.linear_bias, {"s": "n n", "slope": "1 1"}),
    "bias with a cache": (functional.linear_bias, {"s": "n p+n", "slope": "1 1"}),
    "rms": (lambda x: functional.rms_norm(x, 1), {"x": "n d"}),
    "layer norm": (lambda x: functional.layer_norm(x, 1), {"x": "n d"}),
    "unit": (lambda x: functional.unit(x * x + 1), {"x": "n d"}),
}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_is_what_exact_arithmetic_gives(name: str, sizes: dict[str, int]) -> None:
    run, arrays = DEFINITIONS[name]
    compare(run, arrays, sizes)


def test_a_wrong_mask_would_be_seen() -> None:
    arrays, sizes = {"q": "n d", "k": "n d", "v": "n w"}, SIZES[2]
    with pytest.raises(AssertionError):
        compare(lambda **a: Attention(causal=isinstance(a["q"], kinds.Indexed))(**a), arrays, sizes)


def shown(array: kinds.Indexed) -> str:
    """The element as the array's own document has it."""
    (element,) = array.document().blocks[1].items
    assert printing.tex(element.formula)
    return printing.text(element.formula)


def letters(name: str, *axes: str) -> kinds.Indexed:
    return kinds.Indexed.letters(name, *axes)


@pytest.mark.parametrize(
    ("array", "formula"),
    [
        (letters("q", "n_q", "d_k") @ letters("k", "n_k", "d_k").mT, "Σ_{l=1}^{d_k} q_il k_jl"),
        (functional.softmax(letters("s", "n"), stabilised=False), "e^(sᵢ)/(Σ_{j=1}^{n} e^(sⱼ))"),
        (letters("s", "n").max(), "maxᵢ sᵢ"),
        (letters("x", "n") * letters("x", "n") - 1, "xᵢ² − 1"),
        (letters("x", "n") + letters("x", "n"), "2xᵢ"),
        (-letters("x", "n") / 3, "−(1/3) xᵢ"),
        (letters("w_q", "n"), "w_qi"),
        (letters("i", "n") * letters("j", "n"), "i_l j_l"),
    ],
)
def test_formulas(array: kinds.Indexed, formula: str):
    assert shown(array) == formula


def test_every_index_has_a_letter_of_its_own():
    x = letters("x", "n", "d")
    formula = shown(Attention()(x, x, x))
    assert "Σ_{l=1}^{n}" in formula
    assert "x_il x_il" not in formula


@pytest.mark.parametrize(("number", "is_written"), [(118, True), (120, False)])
def test_a_long_element_is_counted_and_not_written(number: int, is_written: bool):
    terms = [letters(f"x{i}") for i in range(number)]
    shown = " ".join(sum(terms[1:], terms[0]).document().text().split())
    assert (f"has {number + 1} parts, too many to be written out" in shown) != is_written
    assert ("x₁₁₇" in shown) == is_written


def proved(sides: Any, axes: str) -> str:
    """The document of a theorem about an array x, and its false variant of thrice x, with all explanations."""
    stated = theorem("of-x", "softmax", "", arrays={"x": axes}, false=lambda x: (x + x, 3 * x), false_says="")(sides)
    return " ".join(prove(stated, explain=True).document().text().split())


@pytest.mark.parametrize(("axes", "has_blocks"), [("p+n d", True), ("n d", False)])
def test_numbers_of_blocks_are_explained_where_there_are_any(axes: str, has_blocks: bool):
    assert ("an axis made of several blocks" in proved(lambda x: (x + x, 2 * x), axes)) == has_blocks


@pytest.mark.parametrize(("divisor", "hypothesis"), [("max", "No divisor is zero."), ("sum", "Σ_{j=1}^{d} xᵢⱼ ≠ 0.")])
def test_a_divisor_without_common_notation_is_described_in_words(divisor: str, hypothesis: str):
    def sides(x: Any) -> Any:
        of_row = getattr(x, divisor)(axis=-1, keepdims=True)
        return (x + x) / of_row, 2 * x / of_row

    assert f"Hypothesis. {hypothesis}" in proved(sides, "n d")
