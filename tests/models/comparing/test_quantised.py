"""Caches that quantise: right ones pass, and what a wrong one loses is named."""

from typing import Any

import numpy as np
import pytest

from symattn import Verdict
from symattn.document.codec import record
from symattn.models.comparing.cache_losses import Recorded
from symattn.models.comparing.generation_ways import generates
from tests.models.comparing import families, quantised
from tests.models.comparing.families import generation
from tests.models.comparing.seeds import counting_padding, deaf

RIGHT = {"two bits": quantised.cache(2), "four bits": quantised.cache(4), "eight bits": quantised.cache(8),
         "float8": quantised.float8}  # fmt: skip


def _held(*calls: Any, bits: int = 8) -> Any:
    """What is said of a cache of one layer that was handed and gave back these keys, of values that are right."""

    class Layer:
        nbits = bits

    class Cache:
        layers = (Layer(),)

        def update(self, *given: Any) -> Any:
            raise AssertionError

        crop = update

    found = Recorded()
    found.on(Cache())
    found.calls[0] = [call if isinstance(call, int) else tuple((Given(a), Given(a * 0)) for a in call)
                      for call in calls]  # fmt: skip
    return found.lost()


class Given:
    """An array that is asked for its numbers as a tensor is."""

    def __init__(self, a: Any) -> None:
        self._a, self.dtype = np.asarray(a, dtype=np.float64), "float64"

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self._a if name == "numpy" else self


X = np.linspace(-1.0, 1.0, 24).reshape(1, 2, 3, 4)


def _and(*parts: Any) -> Any:
    return np.concatenate(parts, axis=2)


def test_a_step_of_quantisation_is_right_and_two_are_not() -> None:
    step = 2 / 255
    assert _held((X[:, :, :2], X[:, :, :2]), (X[:, :, 2:], _and(X[:, :, :2] + step, X[:, :, 2:]))) is None
    found = _held((X[:, :, :2], X[:, :, :2]), (X[:, :, 2:], _and(X[:, :, :2] + 4 * step, X[:, :, 2:])))
    assert found.words.endswith("steps of quantisation from what was stored")


def test_each_call_may_move_by_a_step_from_the_last() -> None:
    step = 2 / 255
    calls = [(X, X), (X, _and(X + step, X)), (X, _and(X + 2 * step, X, X))]
    assert _held(*calls) is None


def test_tokens_that_are_taken_back_are_not_missed() -> None:
    calls = [(X, X), -2, (X[:, :, 1:2], _and(X[:, :, :1], X[:, :, 1:2]))]
    assert _held(*calls) is None
    left = _held(*calls[:2], (X[:, :, 1:2], _and(X, X[:, :, 1:2])))
    assert left.words == "4 columns of keys are returned where 2 were stored"


def test_mistakes_are_named() -> None:
    late = X[:, :, 2:]
    for wrong, words in [
        (
            1.5 * X[:, :, :2],
            "the keys in 2 columns, column 0 first, are returned 1.5 times as large as they were stored",
        ),
        (X[:, :, [1, 1]], "the keys in column 0 are returned as those in column 1"),
        (X[:, :, :2] * np.nan, "the keys in 2 columns, column 0 first, are returned as NaN or infinity"),
        (X[:, :, :2] * 0, "the keys in 2 columns, column 0 first, are returned 0 times as large as they were stored"),
    ]:
        assert _held((X[:, :, :2], X[:, :, :2]), (late, _and(wrong, late))).words == words


@pytest.mark.transformers
@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_right_ones_pass(family: str, dtype: str) -> None:
    ways = [
        way for name in RIGHT for way in (f"{name}, decoding", f"{name}, 3 tokens at once", f"left padding, {name}")
    ]
    found = generation(families.made(family, dtype=dtype), 14, caches=RIGHT, ways=ways)
    assert found.verdict is Verdict.NO_FAULT, found.text()
    assert max(row.used for row in found.rows) < 0.1
    moved = {name: found[f"{name}, decoding"].moved[-1] for name in RIGHT}
    assert moved["two bits"] > moved["four bits"] > moved["eight bits"] > 0


@pytest.mark.transformers
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("losing", "in layers.0 the keys in column 3 are returned as those in column 2"),
        ("scaling", "are returned 1.5 times as large as they were stored"),
        ("zeros", "in layers.0 the keys in column 0 are returned 0 times as large as they were stored"),
        ("stale", "are returned as those in column"),
        ("forgetting", "columns of keys are returned where"),
    ],
)
def test_what_a_cache_loses_is_named(wrong: str, words: str) -> None:
    found = generation(families.made("llama"), 12, caches={"mine": quantised.cache(4, wrong)}, ways=["mine, decoding"])
    assert found.wrong == ("mine, decoding",)
    assert words in " ".join(found.text(columns=200).split())
    assert record(found["mine, decoding"])["cache"]


@pytest.mark.transformers
def test_a_cache_that_stores_rightly_and_counts_wrongly_is_found() -> None:
    """By the same numbers from an exact cache, in which positions are right."""
    found = generation(families.made("gpt2"), 12, caches={"mine": quantised.cache(4, "counting")},
                       ways=["mine, decoding"])  # fmt: skip
    row = found["mine, decoding"]
    assert (found.wrong, row.stored) == (("mine, decoding",), None)
    assert (row.first.layer, row.first.token) == ("embeddings", 6)


@pytest.mark.transformers
def test_masks_of_padding_and_positions_are_judged_from_an_exact_cache() -> None:
    """Both would replay the same mistake."""
    way = "left padding, mine"
    for model, positions in ((deaf("llama"), generates), (families.made("llama"), counting_padding)):
        found = generation(model, 10, positions=positions, caches={"mine": quantised.cache(4)}, ways=[way])
        assert found.wrong == (way,), found.text()
        assert found[way].stored is None
