"""``attention`` and ``block``: the specification of one layer of a model, by its configuration.

The places of norms and the names of modules are a row for each ``model_type``. A row holds what configurations leave
open because the code of the family determines it. Paths are those of modules below the layer; the layers of a family
without a row cannot be expressed by ``Block`` (``UNSAID``), or are not described yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from symattn.attention.layers.block import Block
from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.models.configurations.configuration import CannotTell, Configuration, configuration
from symattn.models.configurations.field_rules import Kind, LayerPlace
from symattn.models.configurations.model_families import FAMILIES, ModelFamily
from symattn.models.configurations.stored_weights import inputs

KINDS: tuple[str, ...] = get_args(Kind)


def attention(
    source: object, layer: int | None = None, kind: str = "self", called: bool = False
) -> Attention:
    """Return the attention that a configuration promises for one of its layers.

    source  a path of config.json or of its folder, its fields as a mapping, a configuration of Transformers, or a
            module with one
    layer   counted from 0; None is that of the module (its ``layer_idx``) if it has one, else 0
    kind    ``self``; of models with two halves ``encoder``, ``decoder`` or ``cross``
    called  only the call: what the model does to queries and keys before it is left out if no field describes it

    It takes q, k, v before rotations and norms, as the steps of ``Attention`` do. What a call adds, such as padding, is
    in no configuration: ``dataclasses.replace(spec, padding=True)``. Raises ``CannotTell`` if configuration and family
    do not determine the attention, and ``InputError`` for a configuration that cannot be read.

    >>> config = {"model_type": "mistral", "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
    ...           "sliding_window": 8, "rope_theta": 10000.0}
    >>> attention(config)
    Attention(causal=True, window=8, heads=4, kv_heads=2, position=Rotary())
    """
    return partly(source, layer, kind, called)[0]


def partly(
    source: object, layer: int | None, kind: str = "self", called: bool = True
) -> tuple[Attention, str]:
    """Return the attention, and why its positions are missing, if they are; only of a ``called`` one they may be."""
    c, family = known(source)
    index, checked = _choose_layer_index(source, layer), _check_kind_of_attention(c, family, kind)
    depth = c.count(*family.depth(checked))
    if not 0 <= index < depth:
        raise InputError(f"{c}: layer {index} was requested; there are {depth}, counted from 0")
    at = LayerPlace(c.of_layer(index), index, checked)
    fields: dict[str, Any] = {}
    open_ = ""
    for rule in (*family.kinds[at.kind], *(() if called else family.whole)):
        try:
            fields |= rule(at)
        except InputError as error:
            # A step before the call may stay open if the call alone is wanted.
            if not (called and rule.before):
                raise
            open_ = str(error)
    return Attention(**fields), open_


def layers(source: object, kind: str = "self") -> int:
    """Return how many layers the configuration has. Raises as ``attention`` does."""
    c, family = known(source)
    return c.count(*family.depth(_check_kind_of_attention(c, family, kind)))


def known(source: object) -> tuple[Configuration, ModelFamily]:
    """Return a configuration and the row of its family, or those of the text part of a multimodal model.

    Raises ``CannotTell`` if there is no such row.
    """
    c = configuration(source)
    # A multimodal model has the text model's fields inside.
    if c.model_type not in FAMILIES and isinstance(c.optional("text_config"), dict):
        inner = c.part("text_config")
        c = inner if inner.model_type in FAMILIES else c
    # Older files of such models have these fields beside the others.
    elif c.model_type not in FAMILIES and f"{c.model_type}_text" in FAMILIES:
        return c, FAMILIES[f"{c.model_type}_text"]
    if c.model_type not in FAMILIES:
        c.cannot_tell(
            f"no family is called {c.model_type[:60]!r}; docs/models.md has a row for each known family"
        )
    return c, FAMILIES[c.model_type]


def _check_kind_of_attention(c: Configuration, family: ModelFamily, kind: str) -> Any:
    if kind not in KINDS:
        raise InputError(f"kind is {kind!r}; known: {', '.join(KINDS)}")
    if kind not in family.kinds:
        raise InputError(
            f"{c} has no attention of the kind {kind!r}; it has {', '.join(family.kinds)}"
        )
    return kind


def _choose_layer_index(source: object, layer: int | None) -> int:
    if layer is None:
        index = getattr(source, "layer_idx", None)
        return index if isinstance(index, int) else 0
    # True and False are integers for Python, but no layers.
    if not isinstance(layer, int) or isinstance(layer, bool):
        raise InputError(f"layer must be an integer, got {layer!r}")
    return layer


# -- whole layers ------------------------------------------------------------------------------------------------------
# ``block``: the layer of a model by its configuration, as a ``Block``, and its parameters by the block's names.

#: Activations by their names in configurations: that of ``Block``, and whether Transformers composes it of operators.
ACTIVATIONS: dict[str, tuple[str, bool]] = {
    "relu": ("relu", False), "silu": ("silu", False), "swish": ("silu", False), "gelu": ("gelu", False),
    "gelu_pytorch_tanh": ("gelu_tanh", False), "gelu_new": ("gelu_tanh", True), "gelu_fast": ("gelu_tanh", True),
    "gelu_python": ("gelu", True), "sigmoid": ("sigmoid", False), "tanh": ("tanh", False),
    "linear": ("identity", False),
}  # fmt: skip
# Sums with the tokens, all of which a field such as a residual multiplier changes.
_SUMS = ("attention_stream", "mlp_stream", "output")


@dataclass(frozen=True)
class Promised:
    """A layer that a configuration promises: its specification, the paths of its modules, and its activation's form.

    ``spelled``: the activation is composed of several operators, each of which stores its result. ``open`` holds the
    parts that cannot be determined, with the reason; for them ``block`` has no meaning.
    """

    block: Block
    layout: LayerLayout
    spelled: bool
    family: ModelFamily
    open: Mapping[str, str]


def block(source: object, layer: int | None = None) -> Block:
    """Return the whole layer that a configuration promises. Arguments and errors are those of ``attention``.

    >>> config = {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
    ...           "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
    >>> layer = block(config)
    >>> layer.norm, layer.order, layer.activation, layer.gated
    ('rms', 'pre', 'silu', True)
    """
    attention(source, layer)  # refuse layers of which only parts are known
    return promised(source, layer).block


def promised(source: object, layer: int | None = None, parts: bool = False) -> Promised:
    """Return the layer with its known parts; its attention is that of the call. Raises as ``block``.

    Norms of queries and keys that are no field of the call are among the layout's paths. With ``parts``, parts that
    cannot be determined are no error.
    """
    c, family = known(source)
    if "self" not in family.kinds:
        c.cannot_tell("whole layers of models of an encoder and a decoder are not described")
    spec, unplaced = partly(source, layer)
    if c.model_type not in LAYOUTS:
        c.cannot_tell(
            UNSAID.get(c.model_type, "its layers around the attention are not described here")
        )
    layout = LAYOUTS[c.model_type]
    activation, spelled, unknown = _read_mlp_activation(c, layout)
    sums = _explain_unknown_residual_sums(c, layout)
    open_ = {"attention.position": unplaced, "mlp.hidden": unknown, **dict.fromkeys(_SUMS, sums)}
    open_ = {part: reason for part, reason in open_.items() if reason}
    if open_ and not parts:
        raise CannotTell(next(iter(open_.values())))
    parallel = c.flag(layout.parallel) if isinstance(layout.parallel, str) else layout.parallel
    layout = _by_fields(c, layout, parallel)
    # A norm without a module in the layout could not be compared.
    if (
        spec.qk_norm is not None
        and not {"attention.q_norm", "attention.k_norm"} <= layout.paths.keys()
    ):
        c.cannot_tell(
            "queries and keys are normalised, by modules of the layer that are not described here"
        )
    layer_block = Block(
        attention=spec,
        norm=layout.norm,
        order=layout.order,
        parallel=parallel,
        activation=activation,
        gated=layout.gated,
        eps=c.number(layout.eps) if isinstance(layout.eps, str) else layout.eps,
    )
    return Promised(layer_block, layout, spelled, family, open_)


def _explain_unknown_residual_sums(c: Configuration, layout: LayerLayout) -> str:
    """Return why the sums with the tokens cannot be determined, or ""."""
    for name, why in layout.unless.items():
        value = c.optional(name)
        # True equals 1 in Python, but changes the sums.
        if value is True or value not in (None, 0, 1):
            return f"{c}: cannot tell: {name} is set: {why}, for which there is no field"
    return ""


def _read_mlp_activation(c: Configuration, layout: LayerLayout) -> tuple[str, bool, str]:
    """Return the activation, whether it is composed of operators, and why it cannot be determined, or ""."""
    name = layout.fixed or c.find(layout.acts)
    if name is None and layout.acts == "hidden_activation":
        name = "gelu_pytorch_tanh"  # the default of Gemma's classes
    if not isinstance(name, str) or name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        return (
            "identity",
            False,
            f"{c}: cannot tell: {layout.acts} is {str(name)[:40]!r}; known: {known}",
        )
    return *ACTIVATIONS[name], ""


def _by_fields(c: Configuration, layout: LayerLayout, parallel: bool) -> LayerLayout:
    """Return the layout with the norms that fields of the configuration add, remove or move."""
    if c.model_type == "opt":
        if not c.flag("layer_norm_elementwise_affine"):
            c.cannot_tell(
                "layer_norm_elementwise_affine is false, which this adapter does not know"
            )
        return layout if c.flag("do_layer_norm_before") else replace(layout, order="post")
    paths = dict(layout.paths)
    # Parallel parts may share one norm, so that the second one has no module.
    if parallel and layout.shared:
        paths.pop("mlp_norm", None)
    if c.model_type == "phi" and c.flag("qk_layernorm"):
        paths |= {f"attention.{role}_norm": f"self_attn.{role}_layernorm" for role in "qk"}
    if c.model_type == "falcon" and c.flag("new_decoder_architecture"):
        if not parallel:
            c.cannot_tell(
                "parallel_attn is false in the new architecture, whose norms are then others"
            )
        # By default, or with 2, each of the parallel parts has its own norm.
        if c.optional("num_ln_in_parallel_attn") in (None, 2):
            paths |= {"attention_norm": "ln_attn", "mlp_norm": "ln_mlp"}
    return replace(layout, paths=paths)


def parameters(
    arrays: Mapping[str, np.ndarray], source: object, layer: int | None = None
) -> dict[str, np.ndarray]:
    """Return the parameters of ``block(source, layer)`` by its names, from a layer's arrays by their names below it.

    Raises ``CannotTell`` for an array that has no place in the layer, and what ``block`` raises.
    """
    block(source, layer)
    layer_block = promised(source, layer)
    left = known(source)[0].model_type == "gpt2"  # which stores its matrices for tokens on the left
    outer_arrays: dict[str, np.ndarray] = {}
    inner: dict[str, np.ndarray] = {}
    attended, answer = (
        f"{layer_block.layout.paths['attention']}.",
        layer_block.layout.paths["attention.o"],
    )
    for name, array in arrays.items():
        path, _, what = name.rpartition(".")
        if path == answer:  # it may be outside of the attention module
            inner[f"{answer.rpartition('.')[2]}.{what}"] = array
        elif name.startswith(attended):
            inner[name.removeprefix(attended)] = array
        else:
            outer_arrays |= _convert_block_parameter(name, array, layer_block, left)
    own = inputs(inner, layer_block.block.attention, layer_block.family)
    if "mlp_norm" not in layer_block.layout.paths:  # both parts share one norm
        outer_arrays |= {
            n.replace("attention_norm", "mlp_norm"): a
            for n, a in outer_arrays.items()
            if n.startswith("attention_n")
        }
    return {**{f"attention.{n}": a for n, a in own.items()}, **outer_arrays}


def _convert_block_parameter(
    name: str, array: np.ndarray, promise: Promised, left: bool
) -> dict[str, np.ndarray]:
    """Return a parameter of a norm or of the feed-forward layer under its name in ``Block``."""
    path, _, what = name.rpartition(".")
    paths = promise.layout.paths.items()
    part = next((p for p, known in paths if known == path), "")
    if not part or what not in ("weight", "bias"):
        raise CannotTell(f"cannot tell what the parameter {name[:60]!r} of the layer is")
    if "norm" in part:
        gain = array + 1 if promise.layout.one_plus else array
        return {f"{part}.gain": gain} if what == "weight" else {f"{part}.bias": array}
    letter = "w" if what == "weight" else "b"
    array = array.T if what == "weight" and not left else array
    which = part.removeprefix("mlp.")
    if which != "in":
        return {f"mlp.{letter}_{which}": array}
    if array.shape[-1] % 2:
        raise InputError(
            f"{name[:60]} has {array.shape[-1]} columns, which are not a gate and as many others"
        )
    # One matrix computes gate and up, the gate first.
    gate, up = np.split(array, 2, axis=-1)
    return {f"mlp.{letter}_gate": gate, f"mlp.{letter}_up": up}


#: The path of the module that computes each part of ``Block``.
Paths = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class LayerLayout:
    """The layers of a family, as far as its configurations do not describe them.

    paths     modules by what they compute: ``attention_norm``, ``attention_norm_after``, ``mlp_norm``,
              ``mlp_norm_after``; ``attention``, the module whose calls of attention are the layer's; ``attention.q``,
              …, ``attention.o``, or ``attention.in`` for q, k and v in one; ``attention.q_norm``; ``mlp.up``,
              ``mlp.gate``, ``mlp.down``, or ``mlp.in`` for gate and up in one, the gate first
    norm      the kind of norm; ``eps``: the field of its ε, or the number in the code
    order     as in ``Block``
    parallel  whether the feed-forward layer reads the same tokens as attention, or the field that says so
    shared    whether both parts read one norm, that of attention, if they are parallel
    acts      the field of the activation; ``fixed``: its name if the code determines it
    gated     whether the feed-forward layer has a gate
    one_plus  whether gains of norms are stored as their distance from 1
    unless    fields that would change the sums with the tokens unless they are null, false, 0 or 1, and how
    """

    paths: Paths
    norm: Literal["layer", "rms"] = "rms"
    eps: str | float = "rms_norm_eps"
    order: Literal["pre", "post", "inner", "sandwich"] = "pre"
    parallel: bool | str = False
    shared: bool = False
    acts: str = "hidden_act"
    fixed: str = ""
    gated: bool = True
    one_plus: bool = False
    unless: Mapping[str, str] = field(default_factory=dict)


def _paths_of_projections(
    attention: str, o: str = "o_proj", packed: str = "", each: str = "q_proj k_proj v_proj"
) -> dict[str, str]:
    """Return the paths of an attention's projections: ``q_proj``, ``k_proj``, ``v_proj``, or one for all three."""
    names = {"in": packed} if packed else dict(zip("qkv", each.split(), strict=True))
    names_below = {**names, "o": o}.items()
    below = {f"attention.{part}": f"{attention}.{name}" for part, name in names_below}
    return {"attention": attention, **below}


def _paths_of_norms(attention: str, mlp: str = "") -> dict[str, str]:
    return {"attention_norm": attention} | ({"mlp_norm": mlp} if mlp else {})


def _paths_of_mlp(up: str, down: str) -> dict[str, str]:
    return {"mlp.up": up, "mlp.down": down}


def _make_layer_norm_layout(*paths: Paths, **more: Any) -> LayerLayout:
    """Return a layout with layer norms and, by default, a feed-forward layer without a gate."""
    every = {part: path for group in paths for part, path in group.items()}
    return LayerLayout(
        paths=every, norm="layer", **{"eps": "layer_norm_eps", "gated": False, **more}
    )


# Paths that the layers of several families share.
_GATED = {"mlp.gate": "mlp.gate_proj", **_paths_of_mlp("mlp.up_proj", "mlp.down_proj")}
_PACKED = {"mlp.in": "mlp.gate_up_proj", "mlp.down": "mlp.down_proj"}
_FOUR = _paths_of_mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
_OWN = _paths_of_projections("self_attn")
_BOTH = _paths_of_norms("input_layernorm", "post_attention_layernorm")
_NORMED = {"attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm"}
_SANDWICH = {
    "attention_norm": "input_layernorm", "attention_norm_after": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm", "mlp_norm_after": "post_feedforward_layernorm",
}  # fmt: skip
_LLAMA = LayerLayout(paths={**_BOTH, **_OWN, **_GATED})
_GEMMA2 = LayerLayout(
    paths={**_SANDWICH, **_OWN, **_GATED}, order="sandwich", acts="hidden_activation", one_plus=True
)
_COHERE = _make_layer_norm_layout(
    _paths_of_norms("input_layernorm"), _OWN, _GATED, parallel=True, shared=True, gated=True
)
_INNER = LayerLayout(
    paths={
        **_paths_of_norms("post_attention_layernorm", "post_feedforward_layernorm"),
        **_OWN,
        **_GATED,
        **_NORMED,
    },
    order="inner",
)
_CROSSED = {"add_cross_attention": "the layer reads another sequence"}
_BERT = _make_layer_norm_layout(
    _paths_of_norms("attention.output.LayerNorm", "output.LayerNorm"),
    _paths_of_mlp("intermediate.dense", "output.dense"),
    {
        **_paths_of_projections("attention.self", each="query key value"),
        "attention.o": "attention.output.dense",
    },
    order="post",
    unless=_CROSSED,
)
# Fields that GPT-2 and its relatives name in another way.
_GPT: dict[str, Any] = {"eps": "layer_norm_epsilon", "acts": "activation_function"}
_TOGETHER = "query_key_value"
# Families with the layers of Llama.
_LIKE_LLAMA = "llama mistral ministral qwen2 smollm3 ernie4_5 seed_oss helium cwm"

#: The layout of each family, by its ``model_type``.
LAYOUTS: dict[str, LayerLayout] = {
    **dict.fromkeys(_LIKE_LLAMA.split(), _LLAMA),
    "qwen3": replace(_LLAMA, paths={**_LLAMA.paths, **_NORMED}),
    "arcee": LayerLayout(
        paths={**_BOTH, **_OWN, **_paths_of_mlp("mlp.up_proj", "mlp.down_proj")}, gated=False
    ),
    "granite": replace(
        _LLAMA, unless={"residual_multiplier": "what is added to the tokens is scaled"}
    ),
    "gemma": replace(_LLAMA, one_plus=True),
    "gemma2": _GEMMA2,
    "gemma3_text": replace(_GEMMA2, paths={**_GEMMA2.paths, **_NORMED}),
    "glm": LayerLayout(paths={**_BOTH, **_OWN, **_PACKED}),
    "glm4": LayerLayout(
        paths={
            "attention_norm": "input_layernorm",
            "attention_norm_after": "post_self_attn_layernorm",
            "mlp_norm": "post_attention_layernorm",
            "mlp_norm_after": "post_mlp_layernorm",
            **_OWN,
            **_PACKED,
        },
        order="sandwich",
    ),
    "phi3": LayerLayout(
        paths={**_BOTH, **_paths_of_projections("self_attn", packed="qkv_proj"), **_PACKED}
    ),
    "olmo": replace(_LLAMA, norm="layer", eps=1e-5),
    **dict.fromkeys(("olmo2", "exaone4"), _INNER),
    **dict.fromkeys(("cohere", "cohere2"), _COHERE),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), _BERT),
    "starcoder2": _make_layer_norm_layout(
        _BOTH, _OWN, _paths_of_mlp("mlp.c_fc", "mlp.c_proj"), eps="norm_epsilon"
    ),
    "stablelm": _make_layer_norm_layout(
        _BOTH, _OWN, _GATED, parallel="use_parallel_residual", shared=True, gated=True
    ),
    "phi": _make_layer_norm_layout(
        _paths_of_norms("input_layernorm"),
        _paths_of_projections("self_attn", "dense"),
        _paths_of_mlp("mlp.fc1", "mlp.fc2"),
        parallel=True,
        shared=True,
    ),
    "gpt_neox": _make_layer_norm_layout(
        _BOTH,
        _paths_of_projections("attention", "dense", _TOGETHER),
        _FOUR,
        parallel="use_parallel_residual",
    ),
    "gptj": _make_layer_norm_layout(
        _paths_of_norms("ln_1"),
        _paths_of_projections("attn", "out_proj"),
        _paths_of_mlp("mlp.fc_in", "mlp.fc_out"),
        parallel=True,
        shared=True,
        **_GPT,
    ),
    "gpt2": _make_layer_norm_layout(
        _paths_of_norms("ln_1", "ln_2"),
        _paths_of_projections("attn", "c_proj", "c_attn"),
        _paths_of_mlp("mlp.c_fc", "mlp.c_proj"),
        unless=_CROSSED,
        **_GPT,
    ),
    "gpt_neo": _make_layer_norm_layout(
        _paths_of_norms("ln_1", "ln_2"),
        _paths_of_projections("attn.attention", "out_proj"),
        _paths_of_mlp("mlp.c_fc", "mlp.c_proj"),
        **_GPT,
    ),
    "falcon": _make_layer_norm_layout(
        _BOTH,
        _paths_of_projections("self_attention", "dense", _TOGETHER),
        _FOUR,
        eps="layer_norm_epsilon",
        parallel="parallel_attn",
        shared=True,
        acts="activation",
    ),
    "opt": _make_layer_norm_layout(
        _paths_of_norms("self_attn_layer_norm", "final_layer_norm"),
        _paths_of_projections("self_attn", "out_proj"),
        _paths_of_mlp("fc1", "fc2"),
        eps=1e-5,
        acts="activation_function",
    ),
    "bloom": _make_layer_norm_layout(
        _BOTH,
        _paths_of_projections("self_attention", "dense", _TOGETHER),
        _FOUR,
        eps="layer_norm_epsilon",
        fixed="gelu_new",
        unless={"apply_residual_connection_post_layernorm": "the residual starts after the norm"},
    ),
    "mpt": _make_layer_norm_layout(
        _paths_of_norms("norm_1", "norm_2"),
        _paths_of_projections("attn", "out_proj", "Wqkv"),
        _paths_of_mlp("ffn.up_proj", "ffn.down_proj"),
        eps="layer_norm_epsilon",
        fixed="gelu",
    ),
    "distilbert": _make_layer_norm_layout(
        _paths_of_norms("sa_layer_norm", "output_layer_norm"),
        _paths_of_mlp("ffn.lin1", "ffn.lin2"),
        _paths_of_projections("attention", "out_lin", each="q_lin k_lin v_lin"),
        eps=1e-12,
        order="post",
        acts="activation",
    ),
}

# Families of which at least some layers have experts.
_WITH_EXPERTS = """
    mixtral qwen2_moe qwen3_moe gpt_oss deepseek_v3 olmoe flex_olmo ernie4_5_moe dots1 granitemoe glm4_moe minimax_m2
"""
_EXPERTS = "a router sends each token to experts of its own, for which Block has no part"
#: Families whose layers cannot be expressed as a ``Block``, with the reason.
UNSAID: dict[str, str] = {
    **dict.fromkeys(_WITH_EXPERTS.split(), _EXPERTS),
    "ministral3": "its queries are multiplied by temperatures, for which its parts have no description",
    **dict.fromkeys(
        ("nemotron", "persimmon"), "its activation is the square of ReLU, which Block does not have"
    ),
}
