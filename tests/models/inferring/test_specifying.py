"""The attention of a layer: by its row, else inferred in the sizes of the configuration, as rows that exist say."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.spec import Attention
from symattn.models.configurations import attention
from symattn.models.configurations.configuration import CannotTell
from symattn.models.inferring.lock import lines_of
from symattn.models.specifying import infer_layer, specify
from symattn.verification.definitions.linear import LinearAttention

pytestmark = pytest.mark.transformers
_SIZES: dict[str, Any] = {
    "num_attention_heads": 12, "num_key_value_heads": 3, "hidden_size": 768, "num_hidden_layers": 8, "vocab_size": 5000
}  # fmt: skip
#: Configurations of families that have a row, unlike the defaults of Transformers.
_ROWS: dict[str, dict[str, Any]] = {
    "gemma2": {"head_dim": 64, "sliding_window": 300, "query_pre_attn_scalar": 200, "attn_logit_softcapping": 20.0},
    "cohere2": {"sliding_window": 77},
    "stablelm": {"partial_rotary_factor": 0.5},
    "mixtral": {"sliding_window": 100, "rope_theta": 5e5},
}


@pytest.mark.parametrize("model_type", _ROWS)
def test_an_inferred_layer_is_that_of_the_row_in_full_size(model_type: str) -> None:
    config = {"model_type": model_type, **_SIZES, **_ROWS[model_type]}
    for layer in (0, 7):
        found = infer_layer(config, layer)
        assert found.source == "inferred"
        assert found.specification == attention(config, layer)
    assert specify(config, 7).source == "row"


_EXAONE = {**_SIZES, "model_type": "exaone_moe", "sliding_window": 500}


def test_a_family_without_a_row_is_inferred() -> None:
    fields: dict[str, Any] = {"causal": True, "heads": 12, "kv_heads": 3, "qk_norm": "rms", "eps": 1e-5}
    sliding = Attention(**fields, window=500, position=Rotary())
    assert specify(_EXAONE, 4).specification == sliding
    # Only the code of this family says that full layers do not rotate.
    assert specify(_EXAONE, 7).specification == Attention(**fields)


def test_a_recurrence_is_inferred_and_a_reviewed_line_is_said(tmp_path: Path) -> None:
    lock = tmp_path / "models.lock"
    lock.write_text("\n".join(lines_of("kimi_linear")))
    found = specify({"model_type": "kimi_linear"}, 0, lock=str(lock))
    assert found.specification == LinearAttention.named("kda")
    assert found.source == "lock"
    assert f"reviewed in {lock}" in found.words
    lock.write_text("kimi_linear | another line")
    assert specify({"model_type": "kimi_linear"}, 0, lock=str(lock)).source == "inferred"


def test_forms_without_a_field_and_layers_that_are_not_there_are_refused() -> None:
    with pytest.raises(CannotTell, match="norm over all heads"):
        infer_layer({"model_type": "olmo2", **_SIZES}, 3)
    with pytest.raises(CannotTell, match="there are 8, counted from 0"):
        specify(_EXAONE, 8)
    with pytest.raises(CannotTell, match="only attention of kind self is inferred"):
        specify(_EXAONE, 0, kind="cross")
