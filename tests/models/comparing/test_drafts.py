"""Several new tokens at once, drafts that are taken back, and batches: seeded mistakes are found and told apart."""

from typing import Any
from unittest.mock import patch

import pytest

from tests.models.comparing import families
from tests.models.comparing.families import generation

pytestmark = pytest.mark.transformers
SEVERAL, DRAFTS = "dynamic cache, 3 tokens at once", "dynamic cache, drafts taken back"


def speculating(family: str, **changed: Any) -> Any:
    """A model that makes arguments of its own where several tokens come behind others: functions of (past, new)."""
    base = families.cls(family)

    def forward(self: Any, input_ids: Any, past_key_values: Any = None, **told: Any) -> Any:
        past = int(past_key_values.get_seq_length()) if past_key_values is not None else 0
        new = input_ids.shape[1]
        if past and new > 1:
            told |= {name: make(past, new) for name, make in changed.items()}
        return base.forward(self, input_ids=input_ids, past_key_values=past_key_values, **told)

    return families.made(family, type(base.__name__, (base,), {"forward": forward}))


def off_by_one(past: int, new: int) -> Any:
    """Places that begin one too late."""
    import torch

    return torch.arange(past + 1, past + new + 1)[None]


def right_places(past: int, new: int) -> Any:
    import torch

    return torch.arange(past, past + new)[None]


def seeing(further: int) -> Any:
    """A mask (1, 1, new, past + new) in which every token sees so many later ones."""

    def make(past: int, new: int) -> Any:
        import torch

        seen = torch.ones(new, past + new, dtype=torch.bool).tril(past + further)
        zeros = torch.zeros(seen.shape, dtype=torch.get_default_dtype())
        return zeros.masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]

    return make


def leaving(config: Any, length: int) -> Any:
    """A cache that takes nothing back."""
    from transformers import DynamicCache

    class Leaving(DynamicCache):
        def crop(self, *given: Any) -> None:
            pass

    return Leaving(config=config)


def mixing(config: Any, length: int) -> Any:
    """A cache that gives each item of a batch the keys of another when it decodes."""
    from transformers import DynamicCache

    class Mixing(DynamicCache):
        def update(self, *given: Any, **told: Any) -> Any:
            k, v = super().update(*given, **told)
            return (k, v) if given[0].shape[-2] > 1 else (k.roll(1, 0), v)

    return Mixing(config=config)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_places_of_drafts_that_are_off_by_one(family: str) -> None:
    found = generation(speculating(family, position_ids=off_by_one), 10, ways=[SEVERAL, "token by token"])
    assert found.wrong == (SEVERAL,)
    at = found[SEVERAL].first
    assert (at.layer, at.token) == ("embeddings" if family == "gpt2" else "layers.0", 5)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_mask_that_lets_a_draft_see_the_next(family: str) -> None:
    found = generation(speculating(family, attention_mask=seeing(1)), 10, ways=[SEVERAL, "token by token"])
    assert found.wrong == (SEVERAL,)
    at = found[SEVERAL].first
    assert (at.layer, at.token, at.seen) == ("layers.0", 5, "sees token 6, which it must not")


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_arguments_of_ones_own_that_are_right(family: str) -> None:
    model = speculating(family, attention_mask=seeing(0), position_ids=right_places)
    assert generation(model, 10, ways=[SEVERAL, DRAFTS]).wrong == ()


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_rejected_tokens_that_stay_in_the_cache(family: str) -> None:
    ways = ["mine, decoding", "mine, drafts taken back"]
    found = generation(families.made(family), 10, caches={"mine": leaving}, ways=ways)
    assert found.wrong == ("mine, drafts taken back",)
    at = found["mine, drafts taken back"].first
    assert at.token == 5
    assert family == "gpt2" or at.seen == "sees drafts that were taken back"


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_items_of_a_batch_that_see_each_other(family: str) -> None:
    found = generation(families.made(family), 10, caches={"mine": mixing},
                       ways=["mine, decoding", "left padding, mine"])  # fmt: skip
    assert found.wrong == ("left padding, mine",)  # alone, there is no other
    assert "sees another sequence" in found["left padding, mine"].first.seen


def test_keys_of_another_item_in_a_prefill() -> None:
    from transformers.models.llama import modeling_llama

    right = modeling_llama.eager_attention_forward

    def mixed(module: Any, query: Any, key: Any, *given: Any, **told: Any) -> Any:
        return right(module, query, key.roll(1, 0), *given, **told)

    model = families.made("llama")
    model.set_attn_implementation("eager")
    with patch.object(modeling_llama, "eager_attention_forward", mixed):
        found = generation(model, 10, ways=["batch", "eager", "token by token"])
    assert found.wrong == ("batch",)
    assert "sees another sequence" in found["batch"].first.seen


def test_the_padding_of_the_first_item_for_all() -> None:
    base = families.cls("llama")

    def forward(self: Any, *given: Any, attention_mask: Any = None, **told: Any) -> Any:
        mask = None if attention_mask is None else attention_mask[:1].expand_as(attention_mask)
        return base.forward(self, *given, attention_mask=mask, **told)

    model = families.made("llama", type(base.__name__, (base,), {"forward": forward}))
    found = generation(model, 10, ways=["left padding", "batch"])
    assert found.wrong == ("left padding",)
    assert found["left padding"].first.seen == "sees padding"
