"""``symattn.generation``: right models pass in every way, with caches that quantise too; what is refused."""

import re
from typing import Any

import numpy as np
import pytest

from symattn import InputError, Verdict, reports
from symattn.document.codec import record
from symattn.models.comparing.cache_losses import Recorded
from symattn.models.comparing.generated import StateErrors
from tests.models.comparing import families, quantised
from tests.models.comparing.families import generation
from tests.models.comparing.seeds import altered, cache_in, counting_padding, deaf, losing, skipping_padding

TELLING = ["eager", "dynamic cache, decoding", "static cache, 3 tokens at once", "left padding, static cache"]


# -- without torch: what counts as rounding ----------------------------------------------------------------------------
def read(*states: float) -> tuple[Any, ...]:
    return tuple(np.full((3, 2), x) for x in states)


def test_what_shrinks_in_float64_is_rounding() -> None:
    held = StateErrors.of(read(1 + 1e-6, 2), read(1 + 1e-15, 2), read(1 - 1e-6, 2), read(1, 2), "float32")
    assert held.first(0) is None
    assert 0 < held.used < 1


def test_what_stays_in_float64_is_no_rounding() -> None:
    held = StateErrors.of(read(1, 2 + 1e-6), read(1, 2 + 1e-6), read(1, 2), read(1, 2), "float32")
    place = held.first(1)
    assert place is not None
    assert (place.item, place.layer, place.token) == (1, "logits", 0)


def test_a_number_that_is_none_is_no_rounding() -> None:
    held = StateErrors.of(read(1, float("nan")), read(1, float("nan")), read(1, 2), read(1, 2), "float32")
    assert held.first(0) is not None


@pytest.mark.parametrize("none", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_in_the_models_own_type_is_a_fault(none: float) -> None:
    held = StateErrors.of(read(1, none), read(1, 2), read(1, 2), read(1, 2), "float16")
    place = held.first(0)
    assert place is not None
    assert (place.layer, place.token, place.off) == ("logits", 0, 0.0)
    assert place.own == "in float16 it is not finite, where the reference is"
    found = reports.Generation("M", "float16", 3, (reports.WayResult("left padding", place),))
    assert found.verdict is Verdict.FAULT
    assert "left padding is wrong from logits on, first at token 0: in float16 it is not finite" in found.text(
        columns=200
    )


def test_words_that_are_ruled_out_by_infinity_are_equal() -> None:
    ruled = (np.array([[1.0, -np.inf]]),)
    held = StateErrors.of(ruled, ruled, ruled, ruled, "float16")
    assert (held.first(0), held.unclear) == (None, "")


def test_a_reference_that_is_not_finite_in_the_models_own_type_judges_nothing() -> None:
    held = StateErrors.of(read(1, np.nan), read(1, 2), read(1, np.inf), read(1, 2), "float16")
    assert held.first(0) is None
    assert held.unclear == "the reference itself is not finite in float16 from logits on"
    found = reports.Generation(
        "M", "float16", 3, (reports.WayResult("prefill", unclear=held.unclear), reports.WayResult("batch"))
    )
    assert (found.verdict, found["prefill"].verdict) == (Verdict.UNDECIDED, "undecided")
    assert "prefill is undecided: the reference itself" in found.text(columns=200)
    assert "Every way" not in found.text()


@pytest.mark.parametrize("far", [1.0, 6e4])
def test_large_errors_in_the_models_own_type_are_no_pass(far: float) -> None:
    held = StateErrors.of(read(1, 2 + far), read(1, 2), read(1, 2 + 1e-3), read(1, 2), "float16")
    assert held.first(0) is None
    assert held.unclear.startswith(f"in float16 it is {far:.2g} from its float64 self at logits")
    coarse = StateErrors.of(read(1, 2 + 1e-1), read(1, 2), read(1, 2 + 1e-3), read(1, 2), "float16")
    assert coarse.unclear == ""  # a hundred times the rounding of the reference, which is told in a note


def test_errors_in_the_models_own_type_excuse_none_in_float64() -> None:
    """However large they are: this one is a millionth in float64."""
    held = StateErrors.of(read(1, 1e30), read(1, 2 + 1e-6), read(1, 2 + 1e-7), read(1, 2), "float32")
    place = held.first(0)
    assert place is not None
    assert (place.layer, place.own) == ("logits", "")


# -- models that are right ---------------------------------------------------------------------------------------------
@pytest.mark.long
@pytest.mark.transformers
@pytest.mark.parametrize("family", list(families.FAMILIES))
def test_right_models_pass(family: str) -> None:
    found = generation(families.made(family), 10, ways=None if family == "mistral" else TELLING)
    assert found.verdict is Verdict.NO_FAULT, found.text()
    assert not any(row.reason for row in found.rows)
    assert max(row.used for row in found.rows) < 0.1
    assert "symattn's definition" in found.notes[0]


@pytest.mark.transformers
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_no_fault(dtype: str) -> None:
    found = generation(families.made("mistral", dtype=dtype), 12, ways=["token by token", "left padding, static cache"])
    assert found.verdict is Verdict.NO_FAULT, found.text()
    row = found["token by token"]
    assert row.off < 1e-12 < 1e-4 < row.rounding
    assert row.apart <= row.rounding + row.prefill + row.off


@pytest.mark.transformers
def test_the_model_is_not_changed() -> None:
    import torch

    model = families.made("gemma2")
    before = {n: p.clone() for n, p in model.state_dict().items()}
    generation(model, 8, ways=["prefix alone"])
    assert model.dtype is torch.float32
    assert model.config._attn_implementation in ("eager", "sdpa")
    assert all(torch.equal(p, before[n]) for n, p in model.state_dict().items())
    assert torch.get_default_dtype() is torch.float32


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.transformers
@pytest.mark.parametrize(
    "tokens", [10**13, range(10**13), [1.9] * 8, 8.0, "abcdefgh", [[1] * 8], [1, 64] * 4, [-1] * 8]
)
def test_tokens_are_checked_before_they_are_drawn(tokens: Any) -> None:
    with pytest.raises(InputError, match=r"from 6 to \d+|each from 0 to 63"):
        generation(families.made("llama"), tokens, ways=["eager"])


@pytest.mark.transformers
def test_tokens_are_whole_numbers_of_any_kind() -> None:
    model = families.made("llama")
    for several in ((8, np.int64(8)), (range(8), np.arange(8), [np.int32(i) for i in range(8)])):
        first, *others = (generation(model, tokens, ways=["eager"]) for tokens in several)
        assert first.tokens == 8
        assert all(found["eager"] == first["eager"] for found in others)


@pytest.mark.transformers
def test_a_cache_that_is_called_as_a_way_is_refused() -> None:
    model = families.made("llama")
    for name in ("batch", "static cache"):
        with pytest.raises(InputError, match=f"'{name}, decoding' is a way that there is"):
            generation(model, 8, caches={name: losing})
    assert generation(model, 8, caches={"batched": losing}, ways=["batched, decoding"])["batched, decoding"]


def _without_layers(config: Any) -> Any:
    config.num_hidden_layers = 0
    return families.cls("llama")(config)


@pytest.mark.transformers
def test_bad_input_is_refused() -> None:
    model = families.made("llama")
    for given, words in [
        ((3,), "not a model of transformers"),
        ((model, 3), "tokens must be from 6 to 64, got 3"),
        ((model, [1, 2, 3, 99, 1, 1]), "from 0 to 63"),
        ((families.made("llama", of=_without_layers),), "has no layer, so that there is nothing to compare"),
    ]:
        with pytest.raises(InputError, match=words):
            generation(*given)
    with pytest.raises(InputError, match="no way 'fast'"):
        generation(model, ways=["fast"])


@pytest.mark.transformers
def test_a_way_that_cannot_be_run_is_told_and_is_no_pass() -> None:
    def broken(config: Any, length: int) -> Any:
        raise RuntimeError("no memory\nat all")

    found = generation(families.made("llama"), 8, caches={"mine": broken}, ways=["mine, decoding"])
    assert found.verdict is Verdict.UNDECIDED
    assert re.fullmatch(
        r"the code raises RuntimeError: no memory \(test_generation.py:\d+\)", found["mine, decoding"].reason
    )


@pytest.mark.transformers
def test_a_cache_of_ones_own_that_cannot_be_run_is_no_pass() -> None:
    """Asked for beside the ways that there are."""

    def broken(config: Any, length: int) -> Any:
        raise RuntimeError("no memory")

    found = generation(families.made("gemma2"), 8, caches={"mine": broken})
    assert (found.wrong, found.exit_code) == ((), 3)
    assert generation(families.made("gemma2"), 8).exit_code == 0  # sdpa is not run there, and nobody asked for it


@pytest.mark.transformers
def test_drafts_of_a_stateful_model_are_not_run() -> None:
    """Its library refuses to roll its state back; a library's own error is told with its place."""

    def broken(config: Any, length: int) -> Any:
        return [][length]

    model = families.made("gemma2")
    model._is_stateful = True
    ways = ["dynamic cache, decoding", "dynamic cache, rejected draft tokens (cache rollback)"]
    found = generation(model, 8, ways=ways, caches={"mine": broken})
    rows = {row.way: row.reason for row in found.rows}
    assert rows[ways[0]] == ""
    assert "declares itself stateful" in rows[ways[1]]
    assert found.wrong == ()
    of_mine = [words for way, words in rows.items() if "mine, decoding" in way]
    assert all("raises IndexError: list index out of range (test_generation.py:" in words for words in of_mine)


@pytest.mark.transformers
def test_a_bias_in_the_mask_is_no_fault() -> None:
    """The definition is told of it, and what the mask forbids is held to the configuration."""
    import torch

    def change(told: dict[str, Any]) -> dict[str, Any]:
        ids, cache = told["input_ids"], cache_in(told)
        past, n = cache.get_seq_length() if cache is not None else 0, ids.shape[1]
        far = torch.arange(past + n)[None, :] - torch.arange(past, past + n)[:, None]
        mask = torch.where(far > 0, -torch.inf, 0.5 * far.to(model.dtype))[None, None].expand(len(ids), -1, -1, -1)
        return told | {"attention_mask": mask.to(torch.get_default_dtype())}

    model = altered("llama", change)
    found = generation(model, 8, ways=["eager", "token by token"])
    assert (found.wrong, found.exit_code) == ((), 0), found.text()
    assert "symattn's definition" in found.notes[0]


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


@pytest.mark.long
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
    for model, positions in ((deaf("llama"), skipping_padding), (families.made("llama"), counting_padding)):
        found = generation(model, 10, positions=positions, caches={"mine": quantised.cache(4)}, ways=[way])
        assert found.wrong == (way,), found.text()
        assert found[way].stored is None


@pytest.mark.transformers
def test_drafts_are_made_of_words_that_there_are() -> None:
    model = families.made("llama")
    model.config.vocab_size, model.config.bos_token_id, model.config.eos_token_id = 3, None, None
    way = "dynamic cache, rejected draft tokens (cache rollback)"
    found = generation(type(model)(model.config).eval(), 8, ways=[way])
    assert found.verdict is Verdict.NO_FAULT, found.text()
    assert "agrees with the prefill" in found.text()
