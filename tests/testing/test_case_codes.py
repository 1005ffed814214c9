"""Inputs go into a word and come back; a word of something else is refused."""

from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symattn import Attention
from symattn.document.errors import InputError
from symattn.verification.case_codes import LONGEST, decode, encode, hashed, speaks
from tests.refusals import refuses

SMALLEST = {"q": np.array([[1.0, 0.0]]), "k": np.array([[0.0, 0.0], [1.0, 0.0]]), "v": np.array([[0.0], [1.0]])}
MASKED = Attention(causal=True, mask="boolean", scale=0.3)


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether names, shapes, types and bits are the same."""
    return list(a) == list(b) and all(
        a[n].shape == b[n].shape and a[n].dtype == b[n].dtype and a[n].tobytes() == b[n].tobytes() for n in a
    )


def test_the_smallest_inputs_are_a_short_word() -> None:
    word = encode(Attention(), SMALLEST, "float32")
    assert len(word) < 13
    assert same(decode(Attention(), word, "float32"), SMALLEST)
    assert same(decode(Attention(), word.upper().replace("0", "O").replace("1", "l"), "float32"), SMALLEST)


@pytest.mark.deep
@given(npst.arrays(float, npst.array_shapes(max_dims=3, max_side=3), elements=st.floats(allow_nan=False)))
def test_any_numbers_come_back(numbers: np.ndarray) -> None:
    inputs = {**SMALLEST, "q": numbers[..., :1]}
    word = encode(Attention(), inputs, "float64")
    assert not word or same(decode(Attention(), word, "float64"), inputs)


def test_what_is_no_number_and_what_is_no_float_comes_back() -> None:
    strange = {"q": np.array([[np.nan, -np.inf, np.inf, -0.0, 0.1, 5e-324]])}
    assert same(decode(Attention(), encode(Attention(), strange, "float64"), "float64"), strange)
    inputs = {**SMALLEST, "mask": np.array([[True, False]])}
    assert same(decode(MASKED, encode(MASKED, inputs, "float32"), "float32"), inputs)
    packed = Attention(documents=True)
    inputs = {**SMALLEST, "doc": np.array([3, 4])}
    assert same(decode(packed, encode(packed, inputs, "float32"), "float32"), inputs)


def test_many_inputs_have_no_word_and_their_fault_has_one() -> None:
    for size in (9, 99):
        assert encode(Attention(), {"q": np.random.default_rng(0).random((size, size))}, "float64") == ""
    word = hashed(Attention(), "float64", "scale", None)
    assert not speaks(word)
    assert len({word, hashed(MASKED, "float64", "scale", None), hashed(Attention(), "float64", "mask", None)}) == 3
    refuses(decode, Attention(), word, "float64", says="no case of this specification")


def test_words_of_something_else_are_refused() -> None:
    word = encode(Attention(), SMALLEST, "float32")
    others = [(Attention(causal=True), "float32"), (Attention(), "float16"), (Attention(scale=1), "float32")]
    for spec, dtype in others:
        refuses(decode, spec, word, dtype, says="no case of this specification")
    for wrong in ("", "u", "é", "0" * 20, "z" * 20, word[:-2], word + "a", "z" * (LONGEST + 1)):
        refuses(decode, Attention(), wrong, "float32", says="no case of this specification")


def test_a_mistyped_word_is_nearly_always_refused() -> None:
    word = encode(Attention(), SMALLEST, "float32")
    taken = 0
    for at in range(len(word)):
        for letter in "0123456789abcdefghjkmnpqrstvwxyz":
            typed = word[:at] + letter + word[at + 1 :]
            if typed != word:
                try:
                    decode(Attention(), typed, "float32")
                    taken += 1
                except InputError:
                    pass
    assert taken <= 3
