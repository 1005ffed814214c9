"""The references of generation, a configuration or a mask, and seeded mistakes that they blame."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from symattn import InputError, Verdict
from symattn.document.codec import record
from tests.models.comparing import families, seeds
from tests.models.comparing.families import generation
from tests.models.comparing.seeds import DRAFTS, SEVERAL, losing, masked, places, seeing, speculating

pytestmark = pytest.mark.transformers


def unread(family: str) -> Any:
    """A model of a family that no row knows by its name."""
    model = families.made(family)
    base = type(model.config)
    model.config.__class__ = type(base.__name__, (base,), {"model_type": "unheard-of"})
    return model


def masks(change: Any, family: str = "llama") -> Any:
    """Masks of a family as ``change`` makes them of the function that makes right ones, and of what that is given."""
    import importlib

    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    right = module.create_causal_mask
    return patch.object(module, "create_causal_mask", lambda **given: change(right, given))


def later(mask: Any) -> Any:
    """A mask of booleans that lets every token see the next one."""
    return mask | mask.roll(-1, -2)


def boolean(mask: Any) -> Any:
    return mask if str(mask.dtype) == "torch.bool" else mask == 0


def added(mask: Any) -> Any:
    import torch

    return torch.zeros(mask.shape, dtype=torch.get_default_dtype()).masked_fill(~mask, torch.finfo(torch.float32).min)


def seeing_next(only: str) -> Any:
    """Where a mask is made for an implementation of this name, tokens see the next one."""

    def change(right: Any, given: Any) -> Any:
        mask = right(**{**given, "allow_is_causal_skip": False})
        return added(later(boolean(mask))) if given["config"]._attn_implementation.endswith(only) else mask

    return masks(change)


def missing_first(only: str) -> Any:
    """Where a mask is made for an implementation of this name, the last token does not see the first."""

    def change(right: Any, given: Any) -> Any:
        mask = boolean(right(**{**given, "allow_is_causal_skip": False})).clone()
        if only in given["config"]._attn_implementation:
            mask[..., -1, 0] = False
        return added(mask)

    return masks(change)


def test_a_window_that_is_wrong_for_all_is_found_by_the_configuration() -> None:
    import importlib

    module = importlib.import_module("transformers.models.mistral.modeling_mistral")
    right = module.create_sliding_window_causal_mask

    def longer(**given: Any) -> Any:
        config = type(given["config"]).from_dict(given["config"].to_dict())
        config._attn_implementation, config.sliding_window = given["config"]._attn_implementation, 6
        return right(**{**given, "config": config})

    model = families.made("mistral")
    with patch.object(module, "create_sliding_window_causal_mask", longer):
        found = generation(model, 12, ways=["eager", "sdpa", "other continuation"])
    assert found.wrong == ("prefill", "eager", "sdpa")  # and no token sees a later one
    assert "the mask of the configuration" in found.notes[0]
    at = found["sdpa"].first
    assert (at.layer, at.token, at.seen) == ("layers.0", 5, "sees token 0, which it must not")


@pytest.mark.parametrize("own", ["eager", "sdpa"])
@pytest.mark.parametrize("wrong", ["sdpa", "definition"])
def test_without_a_configuration_the_side_that_sees_later_tokens_is_wrong(own: str, wrong: str) -> None:
    """The definition stands for the eager function: it is given the mask that is built for it."""
    model = unread("llama")
    model.set_attn_implementation(own)
    with seeing_next(wrong):
        found = generation(model, 8, ways=["sdpa", "other continuation"])
    if wrong == "sdpa":
        assert found.wrong == (("prefill", "other continuation", "sdpa") if own == "sdpa" else ("sdpa",))
        assert "sees token" in found["sdpa"].first.seen
        assert "With sdpa tokens see later ones" in found.notes[0]
    else:
        assert (found.wrong, found.verdict) == ((), Verdict.NO_FAULT)


def test_a_mask_that_is_wrong_for_all_without_a_configuration_is_found_by_another_continuation() -> None:
    with seeing_next(""):
        found = generation(unread("llama"), 8, ways=["eager", "sdpa", "other continuation"])
    assert found.wrong == ("other continuation",)
    assert found["other continuation"].first.seen == "sees token 4, which it must not"
    assert "look at its mask first" in " ".join(found.text().split())


def test_where_nothing_decides_it_is_said_which_two_differ() -> None:
    model = unread("llama")
    model.set_attn_implementation("sdpa")
    with missing_first("sdpa"):
        found = generation(model, 8, ways=["eager", "sdpa", "other continuation"])
    assert (found.wrong, found.differing, found.exit_code) == ((), ("eager",), 1)
    words = " ".join(found.text().split())
    assert "eager differs from layers.0 on, first at token 7" in words
    assert "Which of the two is wrong cannot be determined: the masks that are built for sdpa and eager differ" in words
    assert record(found["eager"])["verdict"] == "differs"


def test_a_side_that_is_wrong_as_given_is_told_where_masks_differ() -> None:
    """The mask is in doubt, and SDPA does not do what its own mask says either."""
    import torch

    right = torch.nn.functional.scaled_dot_product_attention

    def halved(*given: Any, **told: Any) -> Any:
        return right(*given, **told) / 2

    model = unread("llama")
    model.set_attn_implementation("eager")
    with missing_first("sdpa"), patch.object(torch.nn.functional, "scaled_dot_product_attention", halved):
        found = generation(model, 8, ways=["eager", "sdpa"])
    assert (found.wrong, found.differing) == (("sdpa",), ())


def test_the_next_words_change_nothing_in_a_right_model() -> None:
    found = generation(unread("gemma2"), 8, ways=["other continuation"])
    assert (found.wrong, found["other continuation"].off) == ((), 0)
    assert "with the mask as given" in found.notes[0]


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


def of_layers(update: Any) -> Any:
    """Caches whose sliding layers change the keys and values that they return by ``update``."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicSlidingWindowLayer

    class Layer(DynamicSlidingWindowLayer):  # type: ignore[misc]
        def update(self, key_states: Any, value_states: Any, *given: Any, **named: Any) -> Any:
            keys, values = super().update(key_states, value_states, *given, **named)
            return update(self, key_states.shape[-2], keys), update(self, key_states.shape[-2], values)

    def make(config: Any, length: int) -> Any:
        cache = DynamicCache(config=config)
        sliding = [isinstance(layer, DynamicSlidingWindowLayer) for layer in cache.layers]
        cache.layers = [
            Layer(layer.sliding_window) if slides else layer
            for layer, slides in zip(cache.layers, sliding, strict=True)
        ]
        return cache

    return make


def without(x: Any, at: int) -> Any:
    """An array of tokens with zeros in the place of one."""
    x = x.clone()
    x[..., at, :] = 0
    return x


def lost_when_filled(layer: Any, new: int, x: Any) -> Any:
    return without(x, 0) if new == 1 and layer.cumulative_length == layer.sliding_window else x


def lost_when_crossed(layer: Any, new: int, x: Any) -> Any:
    before = layer.cumulative_length - new
    return without(x, -new - 1) if 0 < before < layer.sliding_window < before + new and new > 1 else x


@pytest.mark.parametrize("tokens", [None, 8, 23])
@pytest.mark.parametrize(
    ("update", "way"),
    [
        (lost_when_filled, "mine, decoding"),
        (lost_when_crossed, "mine, 3 tokens at once"),
        (lambda layer, new, x: x, None),
    ],
    ids=["just filled", "crossed", "right"],
)
def test_a_window_is_just_filled_and_crossed_whatever_the_number_of_tokens(
    update: Any, way: str | None, tokens: int | None
) -> None:
    model = families.made("mistral")
    assert 1 < model.config.sliding_window < 8
    tried = ["mine, decoding", "mine, 3 tokens at once"]
    assert generation(model, tokens, caches={"mine": of_layers(update)}, ways=tried).wrong == (
        () if way is None else (way,)
    )


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
