"""A tiny model of any type of Transformers with random weights, shrunk by rules on the names of fields, in float64."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from symattn.document.errors import InputError
from symattn.models.auditing.dependence.in_float64 import lifted
from symattn.models.auditing.setting import Module, Tensor
from symattn.programs.refusing import one_line

#: A number of tokens that no size of a tiny model equals, so that the axis of tokens is known by its length.
TOKENS = 23
# A larger model takes too long to run in float64.
MAX_PARAMETERS = 50_000_000
# At most so many layers, one of each kind.
_MAX_LAYERS = 6
# Names of the fields for the number of layers, and for the width.
DEPTH = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_WIDTH = ("hidden_size", "d_model", "n_embd")
# Fields that name code from elsewhere, which an untrusted file must not choose.
_OF_CODE = ("auto_map", "attn_implementation", "_attn_implementation", "experts_implementation")
#: Layers of the largest model: lists of layers are written out, so that a larger number takes all memory.
MAX_LAYERS = 10_000
#: Fields that are kept: they say where something stands, or its form, rather than its size.
_KEPT = re.compile(
    r"_ids?$|_idx|index_$|kernel|d_conv|conv_l|patch|stride|dilat|offset|multiple|ratio|expand|_rank_|query_groups|_bits"
    r"|interval|frequency|pattern|_every|_step|first_k|dense_replace|num_dense|block_num|n_iter|loops|version|seed"
    r"|theta|rope_scal|max_pos|original_max|query_pre_attn|num_labels|num_codebooks|num_nextn|mamba_layer|hc_|beam"
)
#: The size of a field by its name; the first rule that fits holds.
_SIZES: tuple[tuple[str, int], ...] = (
    (r"^vocab_size|vocab_size_per_layer_input$", 97),
    (r"^(hidden_size|d_model|n_embd|dim|model_dim)$", 64),
    (r"(linear|gdn|kda|delta).*(key|qk).*heads", 2),
    (r"(linear|gdn|kda|delta).*heads", 4),
    (r"(linear|gdn|kda|delta).*head_dim", 16),
    (r"^mamba.*(n_heads|num_heads)|^n_mamba_heads", 8),
    (r"^mamba.*(d_head|head_dim)|mamba_headdim", 16),
    (r"(mamba|ssm).*(d_state|state_size|dt_rank)|^state_size", 8),
    (r"mamba.*n_groups|mamba_ngroups|^n_groups$", 1),
    (r"mamba.*chunk|^chunk_size", 8),
    (r"d_ssm|mamba_intermediate", 128),
    (r"index.*(topk|top_k)", 6),
    (r"index.*(heads|num_head|local|init|block|pool)", 2),
    (r"index.*dim", 16),
    (r"(key_value|kv)_heads|attention_groups|num_key_value", 2),
    (
        r"^(num_attention_heads|n_head|num_heads|n_heads|num_query_heads)$|(sliding|swa|local).*heads",
        4,
    ),
    (r"global_head_dim", 32),
    (r"qk_rope_head_dim|rotary_dim", 8),
    (r"v_head_dim", 12),
    (r"qk_head_dim", 24),
    (r"head_dim|kv_channels|lora", 16),
    (r"n_group|topk_group|num_expert_group", 1),
    (r"experts_per_tok|moe_topk|moe_k$|top_?k$|topk|num_selected", 2),
    (r"shared_expert.*size|expert.*(size|dim)", 48),
    (r"n_shared|num_shared_expert", 1),
    (r"expert", 4),
    (r"intermediate|ffn|mlp|feed_forward", 48),
    (r"sliding_window|window|local_attention", 5),
    (r"attn_chunk|compress.*size|chunk", 6),
    (r"floor_scale|altup_num_inputs", 4),
    (r"per_layer_input|laurel", 8),
)
#: Fields tried if a model does not run: those whose defaults depend on others.
_REPAIRS: tuple[Mapping[str, Any], ...] = (
    {},
    {"head_dim": None},
    {"head_dim": 16},
    {"num_heads": 8},
    {"num_key_value_heads": 4},
    {"layer_types": None},
    {"n_routed_experts": 4, "n_shared_experts": 1},
    {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0}
            for kind in ("full_attention", "sliding_attention")
        }
    },
)


class TooLarge(InputError):
    """Raised for a type whose model stays large, as no rule shrinks one of its parts."""


def text_part(config: Any) -> Any:
    """Return the part of a configuration that describes a language model."""
    return config.get_text_config(decoder=True)


def _first_number(data: Mapping[str, Any], names: tuple[str, ...], otherwise: int) -> int:
    whole_numbers = (data[name] for name in names if type(data.get(name)) is int)
    return next(whole_numbers, otherwise)


def kinds_of_layers(data: Mapping[str, Any]) -> list[str]:
    """Return a text for each layer, equal for layers of one kind by the entries of all lists of layers."""
    depth = _first_number(data, DEPTH, 4)
    # A list as long as there are layers has an entry for each.
    sequences = (x for x in data.values() if isinstance(x, (list, tuple)))
    lists = [x for x in sequences if len(x) == depth]
    by_layer = data.get("per_layer_config") or {}
    own = {int(i): fields for i, fields in by_layer.items()}
    shared = data.get("num_kv_shared_layers") or 0
    first_shared = depth - shared
    # Layers that share keys with earlier ones are another kind.
    kinds = ([[x[i] for x in lists], i >= first_shared, own.get(i)] for i in range(depth))
    return [repr(kind) for kind in kinds]


def kept_layers(data: Mapping[str, Any]) -> list[int]:
    """Return the layers to keep: the first of each kind, and at least two."""
    kinds = kinds_of_layers(data)
    kept = sorted(map(kinds.index, set(kinds)))[:_MAX_LAYERS]
    more = [i for i in range(len(kinds)) if i not in kept]
    return sorted(kept + more[: max(0, 2 - len(kept))])


def shrunk(config: Any) -> dict[str, Any]:
    """Return the fields of a configuration, made small by the rules on their names."""
    data = copy.deepcopy(config.to_dict())
    layers, depth = kept_layers(data), _first_number(data, DEPTH, 4)
    width = _first_number(data, _WIDTH, 1024)

    def size(name: str, x: Any) -> Any:
        # Flags, small numbers and fields that are no sizes stay.
        if type(x) is not int or x <= 1 or _KEPT.search(name):
            return x
        small = next((n for rule, n in _SIZES if re.search(rule, name)), None)
        if small is not None:
            return min(small, x)
        # Other sizes shrink as the width does, to multiples of 4.
        return x if x <= 16 else max(4, -(-(x * 64 // width) // 4) * 4)

    result: dict[str, Any] = {}
    for name, value in data.items():
        if name in (
            "model_type",
            "transformers_version",
            "architectures",
            "dtype",
            "_name_or_path",
            *_OF_CODE,
        ):
            continue
        if name == "per_layer_config" and value:
            own = {int(i): fields for i, fields in value.items() if int(i) in layers}
            result[name] = {
                layers.index(i): {k: size(k, x) for k, x in fields.items()}
                for i, fields in own.items()
            }
        elif name.endswith("layer_ids") and isinstance(value, (list, tuple)):
            # A list of numbers of layers holds those of the kept ones.
            result[name] = [layers.index(i) for i in value if i in layers]
        elif isinstance(value, (list, tuple)) and len(value) == depth:
            # A list of sizes, one for each layer, shrinks; a list of kinds does not.
            sizes = all(type(x) is int and x > 2 for x in value)
            result[name] = [size(name, value[i]) if sizes else value[i] for i in layers]
        else:
            result[name] = len(layers) if name in DEPTH else size(name, value)
    _reconcile_dependent_fields(data, result, layers, depth)
    return result


def _reconcile_dependent_fields(
    data: Mapping[str, Any], result: dict[str, Any], kept: list[int], depth: int
) -> None:
    """Make fields agree that depend on each other."""
    heads, keys = data.get("num_attention_heads"), data.get("num_key_value_heads")
    if "num_key_value_heads" in data and type(heads) is int:
        latent = "kv_lora_rank" in data and keys in (heads, None)
        result["num_key_value_heads"] = 1 if keys == 1 else 4 if latent else 2
    if data.get("qk_rope_head_dim") and "head_dim" in data:
        result["head_dim"] = 8 if data["head_dim"] in (None, data["qk_rope_head_dim"]) else 24
    if shared := data.get("num_kv_shared_layers"):
        result["num_kv_shared_layers"] = sum(i >= depth - shared for i in kept)
    for name, token in (("pad_token_id", 0), ("bos_token_id", 1), ("eos_token_id", 2)):
        if result.get(name) is not None:
            result[name] = token
    for name, least in (("n_group", 1), ("topk_group", 1), ("num_experts_per_tok", 2)):
        if name in result and result[name] is None:
            result[name] = least
    kinds = result.get("layer_types")
    if kinds and set(kinds) == {"linear_attention"}:  # a default without the attention of the type
        result["layer_types"] = [*kinds[:-1], "full_attention"]
    if "conv_L_cache" in data and set(kinds or ["full_attention"]) == {"full_attention"}:
        result["layer_types"] = ["conv"] * (len(kept) - 1) + ["full_attention"]
    if "rope_parameters" in result and not result["rope_parameters"]:
        result["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    ropes = result.get("rope_parameters") or {}
    for rope in (r for r in (ropes, *ropes.values()) if isinstance(r, dict)):
        share, d = rope.get("partial_rotary_factor"), result.get("head_dim")
        if isinstance(share, float) and d:
            # an even number of columns
            rope["partial_rotary_factor"] = max(2, 2 * round(d * share / 2)) / d
    fixed = {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "attn_layer_indices": [len(kept) - 1],
        "mamba_d_ssm": result.get("mamba_n_heads", 0) * result.get("mamba_d_head", 0),
    }
    if "n_mamba_heads" in result:
        fixed |= {"attention_hidden_size": 128, "attention_head_dim": 32}
    known = {name: value for name, value in fixed.items() if name in result}
    result.update(known)


def _yield_model_makers(config: Any) -> Iterator[Callable[..., Module]]:
    """Yield ways to make a model of a configuration: the two tables of Transformers, then classes of its own file."""
    from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel

    # Otherwise a field auto_map asks at the terminal whether code from elsewhere may run.
    yield partial(AutoModelForCausalLM.from_config, trust_remote_code=False)
    yield partial(AutoModel.from_config, trust_remote_code=False)
    try:
        file = import_module(type(config).__module__.replace("configuration_", "modeling_"))
    except ImportError:
        return
    classes = (c for c in vars(file).values() if isinstance(c, type))
    own = [c for c in classes if issubclass(c, PreTrainedModel)]
    # Bare models come last, since a head may be part of the type.
    for kind in sorted(own, key=lambda c: c.__name__.endswith("Model")):
        if kind.config_class is type(config) and kind.__name__.endswith(
            ("ForCausalLM", "LMHeadModel", "Model")
        ):
            yield kind._from_config


def tokens() -> Tensor:
    """Return the tokens of a run, (1, n)."""
    import torch

    # Ids below the vocabulary of a tiny model, none of them twice.
    return (torch.arange(TOKENS) * 7 % 89 + 3)[None]


def tiny(model_type: str, **fields: Any) -> Module:
    """Return a tiny model of a type that runs, in float64; ``fields`` replace those of its configuration.

    Raises ``InputError`` for an unknown type, and for one whose tiny model does not run.
    """
    return tiny_of(default_configuration(model_type), **fields)


def default_configuration(model_type: str) -> Any:
    """Return the configuration of the language model of a type with its defaults. Raises as ``tiny``."""
    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        raise InputError(f"models: Transformers has no model_type {model_type!r}")
    try:
        return text_part(CONFIG_MAPPING[model_type]())
    # Code of Transformers raises whatever it likes.
    except Exception as problem:
        raise InputError(
            f"models: {model_type} has no default configuration: {one_line(problem)[:200]}"
        ) from None


def tiny_of(config: Any, **fields: Any) -> Module:
    """Return a tiny model of the configuration of a language model. Raises as ``tiny``."""
    model_type = config.model_type
    error: Exception | None = None
    try:
        small = shrunk(config)
    # The fields of a file may hold anything.
    except Exception as problem:
        raise InputError(
            f"models: the fields of {model_type} cannot be shrunk: {one_line(problem)[:200]}"
        ) from None
    for repair in _REPAIRS:
        data = {**small, **fields}
        data = {
            k: repair.get(k, x)
            for k, x in data.items()
            if repair.get(k, x) is not None or k not in repair
        }
        for make in _yield_model_makers(config):
            try:
                return _make_running_tiny_model(
                    make,
                    type(config)(**{**data, **{k: x for k, x in repair.items() if x is not None}}),
                )
            # Another repair would not make the model smaller.
            except TooLarge as problem:
                raise InputError(f"models: {model_type}: {problem}") from None
            except Exception as problem:
                error = error or problem
    raise InputError(
        f"models: no tiny model of {model_type} runs: {one_line(error or ValueError())[:200]}"
    )


def _make_running_tiny_model(make: Callable[..., Module], config: Any) -> Module:
    """Return a model with random weights that has run once. It is counted first, without any memory."""
    import torch

    with torch.device("meta"):
        model = make(copy.deepcopy(config), attn_implementation="eager")
        size = sum(p.numel() for p in model.parameters())
    if size > MAX_PARAMETERS:
        raise TooLarge(f"its tiny model has {size} parameters; at most {MAX_PARAMETERS} are built")
    with torch.random.fork_rng(devices=[]), lifted(), torch.no_grad():
        # The weights must be the same in every run, and the caller's generators stay as they are, those of GPUs too.
        torch.default_generator.manual_seed(0)
        model = (
            make(config, attn_implementation="eager", experts_implementation="eager")
            .double()
            .eval()
        )
        _randomise_constant_parameters(model)
        model(tokens(), use_cache=False)
    return model


def _randomise_constant_parameters(model: Module) -> None:
    """Give norms, biases and sinks values that a default of 0 or 1 would hide, and decays that keep far tokens."""
    import torch

    # A seed of its own, so that the weights are the same each time.
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        # A decay near 1, so that far tokens still count.
        if name.endswith("A_log"):
            parameter.copy_(noise * 0.1 - 3)
        # Memory that was never filled.
        elif not torch.isfinite(parameter).all():
            parameter.copy_(noise * 0.3)
        # Norms and biases are constants at first.
        elif parameter.ndim < 2 or float(parameter.std()) == 0:
            parameter.add_(noise * 0.1)
        else:
            # Larger weights make scores that differ.
            parameter.mul_(min(6.0, max(1.0, 0.18 / (float(parameter.std()) + 1e-9))))
