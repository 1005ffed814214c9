"""Inputs that Hypothesis draws fit their specification and shrink; inputs go into a word and come back."""

from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from symattn import Alibi, Attention, Domain, Latent, Rotary
from symattn.document.errors import InputError
from symattn.strategies import qkv
from symattn.verification.case_codes import LONGEST, decode, encode, hashed, speaks
from tests.refusals import refuses

SPECS = {
    "plain": Attention(),
    "causal": Attention(causal=True, window=3),
    "grouped": Attention(heads=4, kv_heads=2, mask="additive"),
    "boolean": Attention(mask="boolean", padding=True),
    "documents": Attention(documents=True),
    "sink": Attention(heads=2, sink="given"),
    "bias": Attention(bias=True),
    "dropout": Attention(dropout=0.25),
    "rotary": Attention(position=Rotary()),
    "alibi": Attention(heads=2, causal=True, position=Alibi()),
}


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_inputs_fit_their_specification(name: str, data: st.DataObject) -> None:
    spec = SPECS[name]
    inputs = data.draw(qkv(spec, dtype="float16"))
    assert all(a.dtype == np.float16 for a in inputs.values() if a.dtype.kind == "f")
    with np.errstate(all="ignore"):
        out = spec(**{n: a.astype(float) if a.dtype.kind == "f" else a for n, a in inputs.items()})
    assert np.isfinite(out).all()  # every query has a key


@pytest.mark.deep
@pytest.mark.parametrize("name", ["plain", "boolean"])
def test_examples_shrink_to_small_whole_numbers(name: str) -> None:
    quick = settings(database=None, max_examples=50)
    found = find(qkv(SPECS[name]), lambda inputs: inputs["v"].max() > 1, settings=quick)
    plain = {"q": [[0.0]], "k": [[0.0]], "v": [[2.0]]}
    masks = {"mask": [[True]], "keep": [True]} if name == "boolean" else {}
    assert {n: a.tolist() for n, a in found.items()} == plain | masks


@settings(max_examples=10)
@given(qkv(n_q=2, n_k=(3, 4), d_k=(1, 2), d_v=5, batch=(2, 1), dtype="bfloat16"))
def test_sizes_are_those_asked_for(inputs: dict[str, Any]) -> None:
    q, k, v = (inputs[n] for n in "qkv")
    assert q.shape[:3] == (2, 1, 2)
    assert q.shape[3] in (1, 2)
    assert k.shape[2] in (3, 4)
    assert v.shape == (*k.shape[:3], 5)
    assert q.dtype.name == "bfloat16"


@settings(max_examples=10)
@given(qkv(domain=Domain(max_abs_score=0.5, square=True)))
def test_scores_stay_within_the_domain(inputs: dict[str, Any]) -> None:
    q, k = inputs["q"], inputs["k"]
    assert len(q) == len(k)
    assert np.abs(q @ k.T).max() / np.sqrt(q.shape[-1]) <= 0.5 + 1e-6


def test_strange_numbers_are_drawn_too() -> None:
    quick = settings(database=None, max_examples=200, phases=[Phase.generate])
    found = find(qkv(n_q=2, n_k=4, d_k=4), lambda inputs: (inputs["q"] % 1 != 0).any(), settings=quick)
    assert (found["q"] % 1 != 0).any()


def test_what_there_is_not_is_refused() -> None:
    for wrong, words in (
        ({"n_q": 0}, "n_q is 0"),
        ({"n_k": (3, 2)}, r"n_k is \(3, 2\)"),
        ({"dtype": "float31"}, "float31"),
        ({"spec": Attention(heads=2, latent=Latent())}, "no q, k, v"),
    ):
        with pytest.raises(InputError, match=words):
            qkv(**wrong)  # type: ignore[arg-type]


@pytest.mark.torch
@settings(max_examples=3)
@given(st.deferred(lambda: qkv(Attention(mask="boolean"), dtype="bfloat16", framework="torch")))
def test_tensors_of_torch(inputs: dict[str, Any]) -> None:
    import torch

    assert inputs["q"].dtype is torch.bfloat16
    assert inputs["mask"].dtype is torch.bool


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
