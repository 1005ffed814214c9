"""What the ways are held against: the configuration where it is read, else a mask that keeps tokens to come unseen."""

from typing import Any
from unittest.mock import patch

import pytest

from symattn import Verdict
from symattn.document.codec import record
from tests.models.comparing import families
from tests.models.comparing.families import generation

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
