"""Index expressions as formulas."""

import pytest

from symattn.arrays.index.writing import Writing, in_blocks, is_plain, length, size
from symattn.arrays.indexed import Indexed, index_variables
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.document.tex import tex
from symattn.document.text import text


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
