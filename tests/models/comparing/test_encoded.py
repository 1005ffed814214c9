"""Models with an encoder: right ones pass in every way, and seeded mistakes are found with their layer and token."""

from typing import Any
from unittest.mock import patch

import pytest

from symattn import InputError, Verdict
from tests.models.comparing import families
from tests.models.comparing.families import generation
from tests.models.comparing.test_generation import losing

pytestmark = pytest.mark.transformers
DECODING = "dynamic cache, decoding"


@pytest.mark.parametrize("family", list(families.ENCODED))
def test_right_models_pass(family: str) -> None:
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
    base = families.cls(family)

    def forward(self: Any, *given: Any, attention_mask: Any = None, **told: Any) -> Any:
        return base.forward(self, *given, **told)

    model = families.made(family, type(base.__name__, (base,), {"forward": forward}))
    found = generation(model, 10, ways=["batch", DECODING])
    assert found.wrong == ("batch",)
    at = found["batch"].first
    assert (at.item, at.layer, at.seen) == (1, "layers.0", "sees padding")


@pytest.mark.parametrize("family", list(families.ENCODED))
def test_a_cache_that_loses_a_token(family: str) -> None:
    found = generation(families.made(family), 10, caches={"mine": losing}, ways=["mine, decoding", "token by token"])
    assert found.wrong == ("mine, decoding",)
    at = found["mine, decoding"].first
    assert (at.layer, at.token, at.seen) == ("layers.0", 5, "does not see token 3")


def test_a_decoder_that_sees_later_tokens() -> None:
    from transformers.models.bart import modeling_bart

    def open_to_all(**given: Any) -> Any:
        return None

    model = families.made("bart")
    model.set_attn_implementation("eager")
    with patch.object(modeling_bart, "create_causal_mask", open_to_all):
        found = generation(model, 8, ways=["other continuation"])
    assert "other continuation" in found.wrong
    assert found["other continuation"].first.seen == "sees tokens 1, 2, 3, 4, 5, 6, 7, which it must not"


def test_padding_of_decoders_is_no_way_here() -> None:
    with pytest.raises(InputError, match="no way 'left padding'"):
        generation(families.made("t5"), 8, ways=["left padding"])
