"""Inputs that Hypothesis draws fit their specification and shrink to small whole numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from symattn import Alibi, Attention, Domain, Latent, Rotary
from symattn.document.errors import InputError
from symattn.strategies import qkv

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
