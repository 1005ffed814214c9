"""What is read from a configuration is what the module computes, within rounding; a changed field is told apart."""

from collections.abc import Callable
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from symattn import InputError, configurations
from symattn.bounds.reference import changed, trace
from symattn.models.configurations.field_rules import HEAD_DIM
from symattn.verification.rules.known_mistakes import yield_known_mistakes
from tests.models.configurations.modules import MODULES, Module
from tests.models.seen import Seen

pytestmark = pytest.mark.transformers


@cache
def _seen(name: str) -> Seen:
    return MODULES[name].seen()


def seen_of(of: Module) -> Seen:
    """The layer of a model, which is made once."""
    return _seen(next(name for name, other in MODULES.items() if other is of))


@pytest.mark.parametrize("name", MODULES)
def test_the_module_computes_what_its_configuration_says(name: str) -> None:
    of = MODULES[name]
    spec = of.spec(seen_of(of))
    assert of.agrees(seen_of(of), spec)
    config = getattr(seen_of(of).layer, "config", None)
    assert config is None or configurations.attention(config, of.layer, of.kind) == spec


#: Changes after which the weights of the module have no place: what the refusal says. All others change numbers.
REFUSED = {
    ("llama", "model_type"): r"w_q has shape \(16, 16\) and w_k \(16, 8\): d_k differs",
    ("qwen3", "model_type"): "the specification has no input 'g_q'",
    ("olmo2", "model_type"): "the specification has no input 'g_q'",
    ("apertus", "model_type"): "the specification has no input 'g_q'",
    ("glm4_moe", "use_qk_norm"): "the specification has no input 'g_q'",
    ("phi, normalised", "qk_layernorm"): "the specification has no input",
    ("falcon, groups", "num_kv_heads"): "32 columns of q, k and v are not 12 heads of one width",
    ("falcon, groups", "new_decoder_architecture"): "32 columns of q, k and v are not 6 heads of one width",
    ("falcon, a head of keys each", "multi_query"): r"w_v has shape \(16, 8\) and w_o \(16, 16\): d_v differs",
    ("deberta-v2", "pos_att_type"): "the specification has no input 'w_pq'",
    ("deberta-v2", "position_buckets"): "the axis of distances must have the length 32",
    ("deberta-v2, one term", "pos_att_type"): "the specification needs input 'w_pk'",
    ("deberta-v2, one term", "relative_attention"): "the specification has no input 'p'",
    ("t5, encoder", "num_heads"): r"b_rel has shape \(8, 3\); the axis heads must have the length 4",
}


@pytest.mark.parametrize("name", [name for name, of in MODULES.items() if of.changes])
def test_a_changed_field_is_told_apart(name: str) -> None:
    of = MODULES[name]
    for change in of.changes:
        words = REFUSED.get((name, next(iter(change))))
        if words is None:
            assert not of.agrees(seen_of(of), of.spec(seen_of(of), **change)), change
        else:
            with pytest.raises(InputError, match=words):
                of.agrees(seen_of(of), of.spec(seen_of(of), **change))


#: Functions of torch that Llama 4 calls for temperatures, others in their place, and how the mistakes are called.
PLANTED: tuple[tuple[str, Callable[[Any], Any], str], ...] = (
    ("torch.floor", lambda x: x, "1 + β log(p/f + 1): the quotient is not rounded down"),
    ("torch.floor", lambda x: (x - 0.5) // 1, "places are one too small"),
    ("torch.log1p", lambda x: x, "1 + β ⌊p/f⌋: the logarithm is left out"),
    ("torch.log1p", lambda x: (1 + x).log2(), "the logarithm has the base 2"),
    ("torch.log1p", lambda x: 0 * x, "the temperatures of queries are left out"),
)


def test_mistakes_planted_in_temperatures_are_named() -> None:
    of = MODULES["llama4_text, by place"]
    right = of.spec(seen_of(of))
    arrays = of.arrays(seen_of(of), right)
    known = [m for m in yield_known_mistakes(right, frozenset(arrays)) if {"tau", "tempered"} & m.variant.steps.keys()]
    made = {m.cause: trace(*changed(right, arrays, m.variant), m.variant)["output"] for m in known}
    for function, other, cause in PLANTED:
        with patch(function, other):
            seen = of.seen()
        assert not of.agrees(seen, right), cause
        rest = {words: float(np.abs(output - seen.output).max()) for words, output in made.items()}
        # Without temperatures, all are also that of the first query.
        nearest = [words for words in rest if rest[words] < min(rest.values()) + 1e-12]
        assert any(cause in words for words in nearest), (cause, nearest, rest)
        assert len(nearest) <= 2


def test_every_family_is_held_against_a_module() -> None:
    # The difference of two calls is held against a module in test_differences.
    attending = {name for name, of in configurations.FAMILIES.items() if of.difference is None}
    assert attending == {of.family for of in MODULES.values()}


@pytest.mark.parametrize(
    "family", [name for name in configurations.FAMILIES if name not in ("t5", "mt5", "deepseek_v3")]
)
def test_columns_of_heads_that_are_left_out_are_those_of_the_class(family: str) -> None:
    """Scores of T5 are not scaled, and those of DeepSeek have columns of two kinds."""
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[family](hidden_size=64, num_attention_heads=4)
    assert (getattr(made, "head_dim", None) or 16) == HEAD_DIM.get(family, 16)
