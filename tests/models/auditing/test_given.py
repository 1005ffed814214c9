"""What a flash function is given, and what a configuration promises of cross attention, packing and scales."""

from copy import deepcopy
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, audit, configurations, reports
from symattn.models.auditing.promises import _has_unused_entries
from symattn.models.auditing.setting import Masking

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def flash_attention_of_a_test(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    wrong: bool = False,
    sliding_window: int | None = None,
    is_causal: bool = True,
    **more: Any,
) -> Any:
    """As flash: the mask is of padding, and queries of padding have the result 0."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    keep = torch.ones(len(key), n_k) if attention_mask is None else attention_mask
    keep = keep.bool()
    reach = n_k if sliding_window is None else sliding_window - 1
    seen = torch.ones(n_q, n_k).tril(n_k - n_q + (reach if not is_causal and not wrong else 0)).triu(n_k - n_q - reach)
    allowed = seen.bool() & (keep | wrong)[:, None, None, :]
    scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~allowed, -1e30)
    out = torch.softmax(scores, -1) @ value * keep[:, None, n_k - n_q :, None]
    return out.transpose(1, 2), None


def flash(padding: list[list[int]] | None, **more: Any) -> reports.AuditReport:
    pytest.importorskip("transformers")
    from transformers.modeling_utils import AttentionInterface

    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 6, 4) for _ in range(3))
    mask = None if padding is None else torch.tensor(padding)
    with audit() as report:
        table = AttentionInterface()
        table["flash_of_a_test"] = flash_attention_of_a_test
        called = table.get_interface("flash_of_a_test", flash_attention_of_a_test)
        called(torch.nn.Identity(), q, k, v, mask, **more)
    return report


def test_queries_that_are_of_no_account_are_so_in_every_mistake() -> None:
    keep = np.arange(6) < np.array([[4], [6]])
    left_out = np.broadcast_to(~keep[:, None], (2, 3, 6))
    spec = Attention(causal=True, window=3)
    masking = Masking(spec, list(range(6)), 6, 6, 6, keep, left_out=left_out)
    every = [masking.allowed(), *(mask for _, mask in masking.mistakes())]
    assert len(every) > 6
    assert not any(np.broadcast_to(mask, (2, 3, 6, 6))[left_out].any() for mask in every)


LEFT, RIGHT = [[0, 0, 1, 1, 1, 1], [1] * 6], [[1, 1, 1, 1, 0, 0], [1] * 6]


@pytest.mark.transformers
@pytest.mark.parametrize("padding", [None, LEFT, RIGHT])
def test_padding_of_two_axes_is_read(padding: list[list[int]] | None) -> None:
    assert [f.state for f in flash(padding).findings] == ["pass as given"]


@pytest.mark.transformers
def test_padding_that_is_ignored_is_found() -> None:
    assert [f.state for f in flash(LEFT, wrong=True).findings] == ["wrong"]


def _crossed() -> tuple[Any, dict[str, Any]]:
    from transformers import BertGenerationConfig, BertGenerationDecoder

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertGenerationConfig(vocab_size=60, is_decoder=True, add_cross_attention=True, **sizes)
    return BertGenerationDecoder(config), {"encoder_hidden_states": torch.randn(2, 8, 16), "use_cache": False}


def _of_two_halves() -> tuple[Any, dict[str, Any]]:
    from transformers import BlenderbotConfig, BlenderbotModel

    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder")
             for name, n in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))}  # fmt: skip
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    inputs = {"decoder_input_ids": torch.arange(16).view(2, 8) + 3, "decoder_attention_mask": mask}
    return BlenderbotModel(BlenderbotConfig(vocab_size=60, d_model=16, **sizes)), inputs


def _two_sided() -> tuple[Any, dict[str, Any]]:
    from transformers import XLNetConfig, XLNetLMHeadModel

    return XLNetLMHeadModel(XLNetConfig(vocab_size=60, d_model=16, n_layer=1, n_head=2, d_inner=16)), {}


@pytest.mark.transformers
@pytest.mark.parametrize(("build", "causal"), [(_crossed, None), (_of_two_halves, True), (_two_sided, None)])
def test_keys_of_an_encoder_and_two_sided_attention_are_no_forbidden_ones(build: Any, causal: bool | None) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, inputs = build()
    with torch.no_grad(), audit(model.eval(), causal=causal, dependence=False) as report:
        model(input_ids=torch.arange(16).view(2, 8) + 4, **inputs)
    assert {f.state for f in report.findings} == {"pass as given"}


@pytest.mark.transformers
def test_what_is_said_of_later_tokens_is_said_of_the_language_model() -> None:
    transformers = pytest.importorskip("transformers")

    def attend(self: Any, inputs_embeds: Any) -> Any:
        x = inputs_embeds[:, None]
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)[:, 0]

    configs = [type(f"{name}Config", (transformers.PreTrainedConfig,), {"model_type": f"test_{name}"})()
               for name in ("tower", "whole")]  # fmt: skip
    tower = type("Tower", (transformers.PreTrainedModel,), {"forward": attend})(configs[0])
    run_tower = {"forward": lambda self, inputs_embeds: self.tower(inputs_embeds=inputs_embeds)}
    whole = type("Whole", (transformers.PreTrainedModel,), run_tower)(configs[1])
    whole.tower = tower
    states = []
    for model in (whole, tower):
        with torch.no_grad(), audit(model, causal=True, dependence=False) as report:
            model(inputs_embeds=torch.randn(1, 8, 4))
        states += [f.state for f in report.findings]
    assert states == ["pass as given", "wrong"]


def _afmoe() -> Any:
    """A tiny model of a type without a row."""
    from transformers import AutoModelForCausalLM
    from transformers.models.afmoe import AfmoeConfig

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 200}
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "num_dense_layers": 1, "moe_intermediate_size": 8}
    config = AfmoeConfig(num_hidden_layers=2, sliding_window=12, intermediate_size=16, **sizes, **experts)
    return AutoModelForCausalLM.from_config(config).eval()


def _with_static_cache(model: Any) -> Any:
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=20)
    with torch.no_grad(), audit(model, causal=True, dependence=False) as report:
        for ids in (torch.arange(3, 8)[None], torch.tensor([[9]])):
            model(input_ids=ids, past_key_values=cache, use_cache=True)
    return report


@pytest.mark.transformers
def test_the_mask_of_a_static_cache_is_held_against_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.afmoe import modeling_afmoe

    model = _afmoe()
    assert {f.state for f in _with_static_cache(model).findings} == {"pass as given"}

    def open_mask(*args: Any, **kwargs: Any) -> None:
        """Every entry of the cache is seen, those of no token too."""

    for name in ("create_causal_mask", "create_sliding_window_causal_mask"):
        monkeypatch.setattr(modeling_afmoe, name, open_mask)
    causes = {f.cause for f in _with_static_cache(model).findings if f.state == "wrong"}
    assert any("which holds no token" in cause for cause in causes), causes


@pytest.mark.transformers
def test_layers_of_recurrences_in_a_static_cache_have_no_length() -> None:
    from transformers.cache_utils import DummyLayer, LinearAttentionLayer, StaticLayer

    cache = SimpleNamespace(layers=[LinearAttentionLayer(), DummyLayer(), StaticLayer(max_cache_len=20)])
    context: Any = SimpleNamespace(arguments={"past_key_values": cache})
    calls: Any = [SimpleNamespace(n_k=20), SimpleNamespace(n_k=19)]
    assert [_has_unused_entries(call, context, 7) for call in calls] == [True, False]


def test_errors_in_the_code_of_a_model_leave_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("symattn.models.auditing.audit")

    def fails(model: Any, lock: str) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(module, "_specify_reviewed_layers", fails)
    watched = module.Audit(None, None, 1, False, "a script")
    model: Any = SimpleNamespace(config=SimpleNamespace(model_type="without a row"))
    assert watched._infer_reviewed_layers(model, "models.lock").layers == ()
    assert watched.report.notes == ["The lock promises nothing: RuntimeError: no such operator"]


@pytest.mark.transformers
def test_a_lock_promises_models_that_run_in_a_script(tmp_path: Path) -> None:
    lock = tmp_path / "models.lock"
    lock.write_text("\n".join(configurations.lines_of("afmoe")), encoding="utf-8")
    model = _afmoe()
    for scale, state in ((1, "pass"), (1.02, "wrong")):
        model.model.layers[0].self_attn.scaling *= scale
        with torch.no_grad(), audit(lock=str(lock), dependence=False) as report:
            model(torch.arange(3, 15)[None])
        assert [f.state for f in report.findings] == [state, "pass"]
    with torch.no_grad(), audit(lock=str(tmp_path / "models.lock"), dependence=False) as report:
        torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 4, 2))
    assert [f.state for f in report.findings] == ["pass as given"]


@pytest.mark.transformers
def test_a_lock_promises_nothing_of_a_part_with_another_configuration(tmp_path: Path) -> None:
    lock = tmp_path / "models.lock"
    lock.write_text("\n".join(configurations.lines_of("afmoe")), encoding="utf-8")
    model = _afmoe()
    of_another = model.model.layers[0].self_attn
    of_another.config = deepcopy(of_another.config)
    of_another.config.model_type = "siglip_vision_model"
    with torch.no_grad(), audit(model, lock=str(lock), dependence=False) as report:
        model(torch.arange(3, 15)[None])
    assert [f.state for f in report.findings] == ["pass as given", "pass"]


@pytest.mark.transformers
@pytest.mark.parametrize(
    ("causal", "wrong", "state"),
    [(True, False, "pass as given"), (False, False, "pass as given"), (False, True, "wrong")],
)
def test_a_window_of_a_flash_function_lies_on_both_sides_unless_it_is_causal(
    causal: bool, wrong: bool, state: str
) -> None:
    assert [f.state for f in flash(None, sliding_window=4, is_causal=causal, wrong=wrong).findings] == [state]


@pytest.mark.transformers
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("cu_seq_lens_q", [0, 3, 6], "cu_seq_lens is not read"),
        ("position_ids", [[0, 1, 2, 0, 1, 2]], "position_ids begin anew"),
    ],
)
def test_packed_sequences_cannot_be_told(name: str, value: Any, words: str) -> None:
    report = flash(None, **{name: torch.tensor(value)})
    assert report.exit_code == 3
    assert words in report.findings[0].verdict


def eager_attention_of_a_test(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, sinks: Any = None, gates: Any = None
) -> Any:
    """As eager: with logits that take weight and give nothing, and with weights that are multiplied by numbers."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if sinks is not None:
        scores = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], -1)
    weights = torch.softmax(scores, -1)[..., : key.shape[-2]]
    return ((weights if gates is None else weights * gates) @ value).transpose(1, 2), None


@pytest.mark.transformers
@pytest.mark.parametrize(
    ("name", "shape", "state", "words"),
    [
        ("sinks", (1, 2, 1, 1), "pass as given", "pass as given"),
        ("sinks", (2, 2, 6, 1), "cannot tell", "sinks have the shape (2, 2, 6, 1)"),
        ("gates", (2, 2, 6, 6), "cannot tell", "its argument gates is an array whose effect is unknown"),
    ],
)
def test_arrays_that_a_function_names_are_known_or_said_not_to_be(
    name: str, shape: tuple[int, ...], state: str, words: str
) -> None:
    pytest.importorskip("transformers")
    from transformers.modeling_utils import AttentionInterface

    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 6, 4) for _ in range(3))
    with audit() as report:
        called = AttentionInterface().get_interface("eager", eager_attention_of_a_test)
        called(torch.nn.Identity(), q, k, v, None, **{name: torch.randn(shape)})
    assert [f.state for f in report.findings] == [state]
    assert words in report.findings[0].verdict


def small(family: str, **more: Any) -> Any:
    """A model of one layer."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    common = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = getattr(transformers, f"{family}Config")(**common, **more)
    return getattr(transformers, f"{family}Model")(config).eval()


@pytest.mark.transformers
def test_cross_attention_of_a_model_of_one_kind_is_held_to_no_promise() -> None:
    model = small("GPT2", add_cross_attention=True)
    ids = torch.arange(6)[None]
    with torch.no_grad(), audit(model) as report:
        model(ids, encoder_hidden_states=torch.randn(1, 9, 16))
    assert report.exit_code == 0
    assert {f.layer.split(".")[-1]: f.intent is not None for f in report.findings} == {
        "attn": True,
        "crossattention": False,
    }


@pytest.mark.transformers
@pytest.mark.parametrize("places", [[0, 1, 2, 0, 1, 2], [0, 1, 2, 4, 5, 6]])
@pytest.mark.parametrize("family", ["Bert", "Llama"])
def test_positions_that_begin_anew_are_no_fault(family: str, places: list[int]) -> None:
    model = small(family, intermediate_size=16)
    with torch.no_grad(), audit(model) as report:
        model(torch.arange(6)[None], position_ids=torch.tensor([places]))
    assert [f.state for f in report.findings] == ["pass as given"]
    assert "position_ids begin anew" in report.findings[0].unknown


@pytest.mark.transformers
def test_documents_are_promised_where_nothing_is_cached() -> None:
    model = small("Llama", intermediate_size=16)
    with torch.no_grad(), audit(model) as report:
        model(torch.arange(6)[None], position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]), use_cache=False)
    assert [(f.state, f.unknown) for f in report.findings] == [("pass", "")]
    assert "packed" in report.findings[0].semantics


@pytest.mark.transformers
def test_a_scale_that_may_be_in_queries_is_said_to_be_open() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.MptModel(transformers.MptConfig(d_model=16, n_heads=2, n_layers=1, vocab_size=20)).eval()
    model.blocks[0].attn.softmax_scale = 1.0
    with torch.no_grad(), audit(model) as report:
        model(torch.arange(6)[None])
    assert [f.open for f in report.findings] == [("scale: it may be in queries or keys already",)]
