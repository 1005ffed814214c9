"""Layers of tiny models: right ones pass in every part, and a fault is found in the part that it was made in."""

from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest

from symattn import Verdict, reports
from symattn.models.auditing.layers import part_judge
from symattn.models.auditing.layers.part_definitions import of_erf
from symattn.models.configurations.promised_layers import LAYOUTS
from tests.models.auditing.families import decoding, inputs
from tests.models.auditing.families import layered as made
from tests.models.auditing.seeds import LAYERS, Seed, seeded
from tests.models.comparing.quantised import float8

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from symattn import audit  # noqa: E402

DTYPES = ("float32", "bfloat16", "float16")
pytestmark = pytest.mark.transformers


def numbers(tensor: Any) -> Any:
    return tensor.detach().double().numpy()


def audited(model: Any, *changes: Callable[[], Any]) -> reports.AuditReport:
    """An audit of the layers in one pass, and in one more after each change."""
    given = inputs(model.config.model_type, model.dtype)
    with torch.no_grad(), audit(model, layers=True, rows=1) as report:
        for change in (lambda: None, *changes):
            change()
            model(**given)
    return report


def states(report: reports.AuditReport) -> list[str]:
    return [layer.state for layer in report.layers]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", pytest.param("float16", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("seed", LAYERS, ids=lambda seed: f"{seed.part}-{seed.words[:30]}")
def test_a_fault_is_found_in_its_part_and_named(seed: Seed, dtype: str) -> None:
    report = seeded(seed, dtype)
    wrong = [part for layer in report.layers for part in layer.parts if part.wrong]
    assert seed.part in {part.part for part in wrong}
    assert all(seed.words in part.cause for part in wrong if part.part == seed.part)
    assert report.verdict is Verdict.FAULT


@pytest.mark.parametrize(("family", "dtype"), list(zip(LAYOUTS, cycle(DTYPES), strict=False)))
def test_a_right_model_passes_in_every_part(family: str, dtype: str) -> None:
    model = made(family, getattr(torch, dtype))
    given = inputs(family, model.dtype, "left")
    with torch.no_grad():
        plain = model(**given)[0]
        with audit(model, layers=True, rows=1) as report:
            audited = model(**given)[0]
    assert torch.equal(plain, audited)
    assert states(report) == ["pass", "pass"], report.layers[0].verdict
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_norm_over_the_only_head_passes() -> None:
    """Its module reads rows of all columns, as one over several heads does."""
    model = made("olmo2", torch.float32, num_attention_heads=1, num_key_value_heads=1, num_hidden_layers=1)
    assert states(audited(model)) == ["pass"]


_YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "attention_factor": 1.3}


@pytest.mark.parametrize(
    ("family", "fields", "open_"),
    [
        ("granite", {"residual_multiplier": 0.3}, {"attention_stream", "output"}),
        ("arcee", {"hidden_act": "relu2"}, {"mlp.hidden"}),
        ("llama", {"rope_parameters": _YARN}, {"attention.position"}),
    ],
)
def test_a_field_that_is_not_known_leaves_open_what_depends_on_it_alone(
    family: str, fields: dict[str, Any], open_: set[str]
) -> None:
    model = made(family, torch.float32, **fields)
    layer = model.model.layers[1]
    layer.post_attention_layernorm.variance_epsilon *= 1e4
    report = audited(model)
    first, second = ({part.part: part.state for part in layer.parts} for layer in report.layers)
    assert {name for name, state in first.items() if state != "pass"} == open_
    assert {name: state for name, state in second.items() if state != "pass"} == {
        "mlp_norm": "wrong", **dict.fromkeys(open_, "cannot tell"),
    }  # fmt: skip
    assert len(first) > 10
    assert all(f.intent is not None for f in report.findings)
    assert report.undecided == "undecided: 0 of 2 calls, 1 of 2 whole layers"


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_decoding_from_a_cache_passes(family: str, static: bool) -> None:
    model = made(family, torch.bfloat16, "sdpa")
    with audit(model, layers=True, rows=1) as report:
        decoding(model, inputs(family, model.dtype, "none" if static else "left"), static)()
    assert states(report) == ["pass"] * 8


def late(k: Any, v: Any) -> tuple[Any, Any]:
    """Each old key but the first comes one place late."""
    return torch.cat((k[:, :, :1], k[:, :, :-2], k[:, :, -1:]), 2), v


def zeroed(k: Any, v: Any) -> tuple[Any, Any]:
    k = k.clone()
    k[1, :, 2] = 0
    return k, v


def doubled(k: Any, v: Any) -> tuple[Any, Any]:
    v = v.clone()
    v[0, 0, 1] *= 2
    return k, v


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("llama", late, "key 1 of the cache, and 11 more, is not what an earlier pass handed over"),
        ("mistral", zeroed, "key 10 of the cache is not what an earlier pass handed over"),
        ("qwen2", doubled, "value 1 of the cache is not what an earlier pass handed over"),
    ],
)
def test_what_a_cache_held_must_reach_attention(family: str, change: Callable[[Any, Any], Any], words: str) -> None:
    model = made(family, torch.bfloat16)
    attention = model.model.layers[1].self_attn
    right = attention.forward

    def wrong(*arguments: Any, past_key_values: Any, **given: Any) -> Any:
        cache = SimpleNamespace(update=lambda *own: change(*past_key_values.update(*own)))
        return right(*arguments, past_key_values=cache, **given)

    ids = inputs(family, model.dtype)["input_ids"]
    with torch.no_grad(), audit(model, layers=True, rows=1) as report:
        cache = model(ids[:, :13], use_cache=True).past_key_values
        attention.forward = wrong
        model(ids[:, 13:14], past_key_values=cache)
    assert states(report) == ["pass", "pass", "pass", "wrong"]
    assert report.layers[3].verdict == f"CERTIFIED WRONG: attention.cache: {words}"


@pytest.mark.parametrize(
    ("family", "way"),
    [
        ("llama", {"num_beams": 3, "max_new_tokens": 3}),
        ("mistral", {"cache_implementation": "static", "disable_compile": True, "max_new_tokens": 3}),
        ("gemma2", {"prompt_lookup_num_tokens": 3, "max_new_tokens": 7}),
    ],
)
def test_generation_from_a_cache_passes(family: str, way: dict[str, Any]) -> None:
    model = made(family, torch.float32, "eager" if family == "gemma2" else "sdpa")
    given = inputs(family, model.dtype)["input_ids"][: 1 if "prompt_lookup_num_tokens" in way else 2, :7].repeat(1, 2)
    with audit(model, layers=True, rows=1) as report:
        model.generate(given, do_sample=False, eos_token_id=None, pad_token_id=0, **way)
    assert set(states(report)) == {"pass"}
    cached = [part.open for layer in report.layers for part in layer.parts if part.part == "attention.cache"]
    assert len(cached) >= 4
    assert set(cached) <= ({(), ("items of the batch are exchanged",)} if "num_beams" in way else {()})


def test_what_a_cache_held_before_the_audit_is_not_excluded() -> None:
    model = made("llama", torch.float32)
    ids = inputs("llama", model.dtype)["input_ids"]
    with torch.no_grad():
        cache = model(ids[:, :5], use_cache=True).past_key_values
        with audit(model, layers=True, rows=1) as report:
            for at in (5, 6):
                model(ids[:, at : at + 1], past_key_values=cache)
    assert states(report) == ["pass"] * 4
    assert all("attention.cache: cached keys and values" in layer.verdict for layer in report.layers)


def running(model: Any, path: str, order: tuple[int, ...]) -> None:
    """Let a model run the layers of its list in another order."""
    owner, name = model.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2]
    layers, right = getattr(owner, name), owner.forward

    def forward(*arguments: Any, **given: Any) -> Any:
        owner._modules[name] = torch.nn.ModuleList(layers[i] for i in order)
        result = right(*arguments, **given)
        owner._modules[name] = layers
        return result

    owner.forward = forward


_NOT_RUN, _AFTER = "output: the layer did not run", "input: the layer runs after {}."


@pytest.mark.parametrize(
    ("family", "path", "order", "told"),
    [
        ("llama", "model.layers", (0, 2), {1: _NOT_RUN, 2: _AFTER + "0"}),
        ("bert", "encoder.layer", (0, 0, 1), {0: _AFTER + "0", 2: _NOT_RUN}),
        ("gpt2", "transformer.h", (0, 1), {2: _NOT_RUN}),
        ("bert", "encoder.layer", (1, 2), {0: _NOT_RUN}),
        ("gpt_neox", "gpt_neox.layers", (1, 0, 2), {0: _AFTER + "1", 2: _AFTER + "0"}),
        ("llama", "model.layers", (0, 1, 2), {}),
    ],
)  # fmt: skip
def test_layers_must_run_once_in_their_order(family: str, path: str, order: Any, told: dict[int, str]) -> None:
    model = made(family, torch.float32, num_hidden_layers=3)
    running(model, path, order)
    wrong = {layer.layer: layer.verdict for layer in audited(model).layers if layer.state != "pass"}
    assert wrong == {f"{path}.{i}": f"CERTIFIED WRONG: {words.format(path)}" for i, words in told.items()}


def test_tokens_that_change_between_layers_are_a_fault_and_fewer_layers_that_the_configuration_asks_for_none() -> None:
    model = made("mistral", torch.bfloat16, num_hidden_layers=3)
    model.config.num_hidden_layers = 2
    assert states(audited(model)) == ["pass", "pass"]
    model.model.layers[1].register_forward_pre_hook(lambda layer, given: (given[0] * 1.1, *given[1:]))
    report = audited(model)
    assert states(report) == ["pass", "wrong"]
    words = "input: the layer is not given what model.layers.0 gave"
    assert report.layers[1].verdict == f"CERTIFIED WRONG: {words}"


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_an_audit_leaves_checkpoints_in_training_alone(implementation: str, reentrant: bool) -> None:
    model = made("llama", torch.float32, implementation).train()
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    given = inputs("llama", model.dtype)
    with audit(model, layers=True, gradients=True, rows=1) as report:
        model(**given, labels=given["input_ids"], use_cache=False).loss.backward()
    assert model.model.layers[0].mlp.up_proj.weight.grad is not None
    assert {f.state for f in report.findings} <= {"pass", "pass as given"}


def test_what_is_computed_in_a_narrower_format_is_named() -> None:
    wide = made("llama", torch.float32).double()
    wide.set_attn_implementation("eager")
    report = audited(wide)
    assert {c.cause for c in report.findings} == {"it is computed in float32"}
    parts = "attention_norm, attention.position, mlp_norm"
    assert {found.verdict for found in report.layers} == {f"CERTIFIED WRONG: {parts}: it is computed in float32"}

    model = made("llama", torch.float32)
    linear = model.model.layers[0].mlp.gate_proj
    linear.forward = lambda x: (x.half() @ linear.weight.half().T).float()
    assert audited(model).layers[0].verdict == "CERTIFIED WRONG: mlp.gate: it is computed in float16"


def test_norms_behind_the_sums_are_judged() -> None:
    model = made("opt", torch.float32, do_layer_norm_before=False)
    norm = model.model.decoder.layers[1].final_layer_norm
    report = audited(model, lambda: setattr(norm, "eps", 1e-2))
    assert states(report) == ["pass", "pass", "pass", "wrong"]
    assert [part.part for part in report.layers[3].parts if part.wrong] == ["mlp_norm"]


@pytest.mark.parametrize(
    ("family", "place", "words"),
    [
        ("llama", "model.layers.1.mlp.act_fn", "gelu, not silu"),
        ("opt", "model.decoder.layers.1.activation_fn", "gelu, not relu"),
    ],
)
def test_gelu_by_a_rough_erf_is_named(family: str, place: str, words: str) -> None:
    model = made(family, torch.float32)
    module, name = place.rsplit(".", 1)
    report = audited(model, lambda: setattr(model.get_submodule(module), name, torch.nn.GELU()))
    assert report.layers[-1].verdict == f"CERTIFIED WRONG: mlp.hidden: the activation is {words}"


def test_layers_that_a_block_cannot_say_are_told() -> None:
    report = audited(made("gpt_oss", torch.float32))
    assert set(states(report)) == {"cannot tell"}
    assert "a router sends each token to experts of its own" in report.layers[0].verdict
    assert report.verdict is Verdict.UNDECIDED


def test_what_cannot_be_excluded_is_said() -> None:
    report = audited(made("llama", torch.bfloat16))
    assert "pass (cannot exclude: attention_norm: ε is 1e-05, expected 1e-06" in report.layers[0].verdict
    assert "2 of 2 whole layers judged" in report.coverage
    assert '"part": "mlp.hidden"' in report.json()


class _Rounded(torch.nn.Linear):
    """A layer that rounds what it multiplies to float8, as layers with quantized weights do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x.to(torch.float8_e4m3fn).to(x.dtype), self.weight, self.bias)


class _Packed(torch.nn.Parameter):
    """Weights of a class that may multiply in a way of its own."""


def test_linear_layers_with_code_or_weights_of_their_own_are_left_open() -> None:
    model = made("llama", torch.float32)
    model.model.layers[0].mlp.down_proj.__class__ = _Rounded
    held = model.model.layers[1].self_attn.q_proj
    held.weight = _Packed(held.weight.detach())
    layers = audited(model).layers
    told = [{part.part: part.reason for part in layer.parts if part.state != "pass"} for layer in layers]
    assert told == [
        {"mlp.down": "it is _Rounded, whose matrix is unknown"},
        {"attention.q": "it is Linear, whose matrix is unknown"},
    ]


def test_a_right_model_that_overflows_is_not_accused() -> None:
    model = made("llama", torch.float16)
    model.model.layers[0].mlp.up_proj.weight.data *= 3e4
    report = audited(model)
    assert states(report) == ["cannot tell", "cannot tell"], report.layers[0].verdict
    assert next(part.state for part in report.layers[0].parts if part.part == "mlp.up") == "pass"


def test_a_cache_that_quantizes_is_not_accused() -> None:
    model = made("llama", torch.float32)
    seed = next(seed for seed in LAYERS if seed.part == "attention.position")
    given = inputs("llama", model.dtype)["input_ids"]
    with torch.no_grad(), audit(model, layers=True, rows=1) as report:
        cache = float8(model.config, 32)
        for stop in range(4, 7):
            if stop == 6:
                seed.make(model, ExitStack())
            model(given[:, (0 if stop == 4 else stop - 1) : stop], past_key_values=cache, use_cache=True)
    told = [{part.part: part.state for part in layer.parts if part.state != "pass"} for layer in report.layers[::2]]
    lossy = {"attention.k_rotated": "cannot tell", "attention.v": "cannot tell"}
    assert told == [{}, lossy, {"attention.position": "wrong"} | lossy]


def test_norms_of_queries_and_keys_that_a_field_asks_for_are_judged() -> None:
    model = made("phi", torch.float32, qk_layernorm=True)
    norm = model.model.layers[1].self_attn.k_layernorm
    report = audited(model, lambda: setattr(norm, "forward", lambda x: x))
    assert states(report) == ["pass", "pass", "pass", "wrong"], report.layers[0].verdict
    assert [part.part for part in report.layers[3].parts if part.wrong] == ["attention.k_norm"]


class _Attention(torch.nn.Identity):
    """A layer's, of a family that nobody knows."""

    config = SimpleNamespace(model_type="nobody's")


def test_models_that_come_and_go_are_each_seen() -> None:
    with audit(layers=True) as report:
        for _ in range(20):  # what is made may lie where something was that is gone
            torch.nn.Sequential(torch.nn.Sequential(_Attention()))(torch.zeros(1, 2, 3))
    assert len(report.layers) == 20


def test_training_is_not_judged_and_without_layers_nothing_is_known() -> None:
    report = audited(made("llama", torch.float32).train())
    assert report.layers[0].reason == "the model is in training, where dropout may be on; hint: model.eval()"
    with audit(torch.nn.Linear(2, 2), layers=True) as report:
        pass
    assert report.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("columns", [32, 200])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_matrix_is_judged_in_every_column(columns: int, dtype: str) -> None:
    made_ = torch.nn.Linear(64, columns).to(getattr(torch, dtype))
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(0)).to(made_.weight.dtype)
    y = made_(x)
    given = (numbers(x), numbers(made_.weight).T, numbers(made_.bias), dtype)
    assert part_judge.judged_linear("q", numbers(y), *given).state == "pass"
    y[3, columns - 1] *= 1.02
    assert part_judge.judged_linear("q", numbers(y), *given).state == "wrong"


def test_what_gelu_is_allowed_is_what_torch_loses() -> None:
    x = torch.linspace(-6, 6, 200_001)
    off = (torch.nn.functional.gelu(x).double() - torch.nn.functional.gelu(x.double())).abs().numpy()
    allowed = of_erf({"up": x.numpy()}) + 2.0**-23 * abs(x.numpy()) / 2  # and half an ulp of two products
    assert (off <= allowed).all()
    assert (off > allowed / 4).any()
