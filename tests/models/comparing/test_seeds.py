"""Seeded mistakes of generation: the right side is blamed, with its layer and token, and nothing else."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from symattn import InputError, Verdict
from tests.models.comparing import families, seeds
from tests.models.comparing.families import generation
from tests.models.comparing.seeds import DRAFTS, SEVERAL, losing, masked, places, seeing, speculating

pytestmark = pytest.mark.transformers
DECODING = "dynamic cache, decoding"


@pytest.mark.parametrize("family", seeds.FAMILIES)
def test_every_mistake_of_padding_and_decoding_is_found_with_its_place(family: str) -> None:
    for seed in (*seeds.padded(family, "float32"), *seeds.decoded(family, "float32")):
        ok, wrong = seeds.blamed(seed)
        assert ok, (seed.name, wrong)
        assert set(wrong) == seed.wrong, seed.name


def test_the_right_side_is_blamed_and_the_other_would_be_seen() -> None:
    for number, seed in enumerate(seeds.backends("llama", "float32")):
        ok, wrong = seeds.blamed(seed)
        assert ok, seed.name
        if not number:
            assert wrong == ("prefill", "eager")
            assert not seeds.blamed(replace(seed, wrong=seed.right, right=seed.wrong))[0]


# -- several tokens at once, and batches -------------------------------------------------------------------------------
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_places_of_drafts_that_are_off_by_one(family: str) -> None:
    found = generation(speculating(family, position_ids=places(1)), 10, ways=[SEVERAL, "token by token"])
    assert found.wrong == (SEVERAL,)
    at = found[SEVERAL].first
    assert (at.layer, at.token) == ("embeddings" if family == "gpt2" else "layers.0", 5)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_arguments_of_ones_own_that_are_right(family: str) -> None:
    model = speculating(family, attention_mask=seeing(0), position_ids=places())
    assert generation(model, 10, ways=[SEVERAL, DRAFTS]).wrong == ()


def test_keys_of_another_item_in_a_prefill() -> None:
    model = families.made("llama")
    model.set_attn_implementation("eager")
    with seeds.eager("llama", lambda given: {**given, "key": given["key"].roll(1, 0)}):
        found = generation(model, 10, ways=["batch", "eager", "token by token"])
    assert found.wrong == ("batch",)
    assert "sees another sequence" in found["batch"].first.seen


def test_the_padding_of_the_first_item_for_all() -> None:
    found = generation(masked("llama", lambda mask: mask[:1].expand_as(mask)), 10, ways=["left padding", "batch"])
    assert found.wrong == ("left padding",)
    assert found["left padding"].first.seen == "sees padding"


def test_padding_behind_all_tokens_is_seen_by_none() -> None:
    assert generation(seeds.deaf("llama"), 10, ways=["right padding"]).wrong == ()


@pytest.mark.parametrize("family", families.WINDOWED)
def test_a_cache_of_a_longer_window_is_masked_and_right(family: str) -> None:
    caches = {"mine": seeds.windowed(2)}
    assert generation(families.made(family), 10, caches=caches, ways=["mine, decoding"]).wrong == ()


def test_a_cache_that_overflows_in_the_models_own_type() -> None:
    way, caches = "mine, decoding", {"mine": seeds.overflowing}
    found = generation(families.made("llama", dtype="float16"), 10, caches=caches, ways=[way])
    assert found.wrong == (way,)
    assert found[way].first.own == "in float16 it is not finite, where the reference is"
    right = generation(families.made("llama"), 10, caches=caches, ways=[way])
    assert (right.verdict, right[way].undecided) == (Verdict.NO_FAULT, False)


def test_padding_by_the_last_word_is_looked_into() -> None:
    model = seeds.deaf("llama")
    model.config.pad_token_id = model.config.vocab_size - 1
    found = generation(model, 8, ways=["left padding"])
    assert "sees padding" in found["left padding"].first.seen


# -- models with an encoder --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", list(families.ENCODED))
def test_right_models_with_an_encoder_pass(family: str) -> None:
    found = generation(families.made(family), 10)
    assert found.verdict is Verdict.NO_FAULT, found.text()
    assert not any(row.reason for row in found.rows)
    assert max(row.used for row in found.rows) < 0.1
    assert "symattn's definition" in found.notes[0]


def test_places_that_forget_what_is_in_the_cache() -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    right = T5Attention.compute_bias

    def forgetting(self: Any, *given: Any, past_seen_tokens: Any = 0, **told: Any) -> Any:
        return right(self, *given, **told)

    with patch.object(T5Attention, "compute_bias", forgetting):
        found = generation(families.made("t5"), 10, ways=[DECODING, "prefix alone", "sdpa"])
    assert found.wrong == (DECODING,)
    assert (found[DECODING].first.layer, found[DECODING].first.token) == ("layers.0", 5)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_padding_of_sources_that_is_seen(family: str) -> None:
    found = generation(masked(family, lambda mask: None), 10, ways=["batch", DECODING])
    assert found.wrong == ("batch",)
    at = found["batch"].first
    assert (at.item, at.layer, at.seen) == (1, "layers.0", "sees padding")


@pytest.mark.parametrize("family", ["llama", *families.ENCODED])
def test_a_cache_that_loses_a_token(family: str) -> None:
    found = generation(families.made(family), 10, caches={"mine": losing}, ways=["mine, decoding", "token by token"])
    assert found.wrong == ("mine, decoding",)
    at = found["mine, decoding"].first
    assert (at.layer, at.token, at.seen) == ("layers.0", 5, "does not see token 3")
    assert "mine, decoding is wrong from layers.0 on, first at token 5" in " ".join(found.text(columns=200).split())


def test_a_decoder_that_sees_later_tokens() -> None:
    model = families.made("bart")
    model.set_attn_implementation("eager")
    with patch("transformers.models.bart.modeling_bart.create_causal_mask", lambda **given: None):
        found = generation(model, 8, ways=["other continuation"])
    assert "other continuation" in found.wrong
    assert found["other continuation"].first.seen == "sees tokens 1, 2, 3, 4, 5, 6, 7, which it must not"


def test_padding_of_decoders_is_no_way_here() -> None:
    with pytest.raises(InputError, match="no way 'left padding'"):
        generation(families.made("t5"), 8, ways=["left padding"])
