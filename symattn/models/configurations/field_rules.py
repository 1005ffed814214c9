"""Rules: each reads one part of an attention from a configuration, and states in words what it assumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import exp, isqrt, sqrt
from typing import Any, Literal, NamedTuple, TypeAlias

from symattn.attention.spec import Attention
from symattn.models.configurations.configuration import Configuration

Fields: TypeAlias = Mapping[str, object]  # of ``Attention``
Kind: TypeAlias = Literal["self", "encoder", "decoder", "cross"]
HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
#: Columns of a head if ``head_dim`` is left out, for families that do not divide those of the model among the heads.
HEAD_DIM = {
    "gemma": 256, "gemma2": 256, "gemma3_text": 256, "qwen3": 128, "glm": 128, "glm4": 128, "ernie4_5": 128,
    "qwen3_vl_text": 128, "gpt_oss": 64, "seed_oss": 128, "helium": 128, "cwm": 128, "llama4_text": 128,
    "qwen3_next": 256, "qwen3_5_text": 256, "qwen3_5_moe_text": 256, "minimax_m2": 128, "ministral3": 128,
}  # fmt: skip
WIDTH = ("hidden_size", "d_model", "n_embd", "dim")
KEYS = ("num_key_value_heads",)


@dataclass(frozen=True)
class LayerPlace:
    """One attention of a model: its configuration, its layer, counted from 0, and its kind."""

    c: Configuration
    layer: int = 0
    kind: Kind = "self"

    @property
    def heads(self) -> int:
        """The number of heads, which may differ between encoder and decoder."""
        half = "encoder" if self.kind == "encoder" else "decoder"
        own = f"{half}_attention_heads"
        has_own = self.kind != "self" and own in self.c
        return self.c.count(own if has_own else HEADS[0], *HEADS[1:])

    def sharing(self, field: str, keys: int) -> Fields:
        """Return the numbers of heads, and of key heads. Raises ``InputError`` if the ``field`` is no divisor."""
        heads = self.heads
        if heads % keys:
            raise self.c.refusal(field, keys, f"a divisor of {heads}, the number of heads")
        return {"heads": heads, "kv_heads": keys if keys != heads else None}

    @property
    def d_k(self) -> int:
        """The number of columns of a head: ``head_dim``, or those of the model divided among the heads."""
        # head_dim, if the file has it.
        if (result := self.c.optional("head_dim")) is not None:
            return self.c.as_count("head_dim", result)
        # Else that of the class, which may differ from the quotient.
        if (
            "head_dim" not in self.c.data
            and (of_class := getattr(self.c.given, "head_dim", None)) is not None
        ):
            return self.c.as_count("head_dim", of_class)
        if "head_dim" not in self.c.data and self.c.model_type in HEAD_DIM:
            return HEAD_DIM[self.c.model_type]
        # Else the columns of the model divided among the heads.
        width, heads = self.c.count(*WIDTH), self.heads
        if width % heads:
            raise self.c.refusal(HEADS[0], heads, f"a divisor of {width}, the number of columns")
        return width // heads


@dataclass(frozen=True)
class FieldRule:
    """A rule for one part of an attention, as fields of ``Attention``; ``says`` describes it and what it assumes.

    ``before`` says that the part is done before attention is called, so that the call is known without it.
    """

    says: str
    run: Callable[[LayerPlace], Fields]
    before: bool = False

    def __call__(self, at: LayerPlace) -> Fields:
        return self.run(at)


def rule(says: str, before: bool = False) -> Callable[[Callable[[LayerPlace], Fields]], FieldRule]:
    """Return a decorator that makes a function of a place a rule with this description."""
    return lambda run: FieldRule(says, run, before)


# -- heads -------------------------------------------------------------------------------------------------------------
@rule("each head has keys of its own")
def heads(at: LayerPlace) -> Fields:
    return {"heads": at.heads}


@rule("`num_key_value_heads`, null for as many as heads; query head t reads ⌊t · kv_heads / heads⌋")
def grouped(at: LayerPlace) -> Fields:
    return at.sharing(KEYS[0], at.c.count_or_none(*KEYS) or at.heads)


def fixed(says: str, **fields: object) -> FieldRule:
    """Return a rule for fields that a family always has, whatever its configuration says."""
    return FieldRule(says, lambda at: fields)


sinks = fixed("each head has a sink, which is learned", sink="given")
gated = fixed(
    "the output of each head is multiplied by σ of a gate, whose columns stand behind those of the head's queries",
    output_gate=True,
)
unscaled = fixed("the scores are not scaled", scale=1)


def without(field: str, why: str) -> FieldRule:
    """Return a rule that refuses a field unless it is false, 0 or null, since ``Attention`` has no such field."""

    @rule(f"`{field}` is refused: {why}")
    def run(at: LayerPlace) -> Fields:
        if at.c.find(field):
            at.c.cannot_tell(f"{field} is set: {why}, for which there is no field")
        return {}

    return run


# -- differences -------------------------------------------------------------------------------------------------------
class Subtraction(NamedTuple):
    """The attention of each half of the heads, of which the second is subtracted, λ_init, and the ε of the norm."""

    attention: Attention
    init: float
    eps: float


def subtracting(at: LayerPlace) -> Subtraction:
    """Return the difference of two softmaxes of DiffLlama, with λ_init = 0.8 − 0.6 e^(−0.3 l) in layer l, from 0.

    Source: Ye et al., Differential Transformer (2024), §2.1, where layers are counted from 1.
    """
    keys = at.c.count_or_none(*KEYS) or at.heads
    for field, count in (("num_attention_heads", at.heads), (KEYS[0], keys)):
        if count % 2:
            raise at.c.refusal(field, count, "even: half of the heads are subtracted")
    halves: Mapping[str, Any] = at.sharing(KEYS[0], keys)
    heads: dict[str, Any] = {name: count and count // 2 for name, count in halves.items()}
    init = 0.8 - 0.6 * exp(-0.3 * at.layer)
    return Subtraction(Attention(causal=True, **heads), init, at.c.number("rms_norm_eps"))


@rule(
    "`Attention` is each of two calls, of values of half of the heads of keys; the layer is a `Differential`: head i"
    " less λ times head i + h/2, normalised"
)
def subtracted(at: LayerPlace) -> Fields:
    at.c.cannot_tell(
        "the outputs of two calls are subtracted, as Differential does, for which Attention has no field"
    )


# -- scale and cap -----------------------------------------------------------------------------------------------------
def root_of(field: str) -> FieldRule:
    """Return a rule for the scale 1/√c for a field c."""

    def run(at: LayerPlace) -> Fields:
        c = at.c.number(field)
        return {"scale": None if c == at.d_k else _inverse_root(c)}

    return FieldRule(f"the scale is 1/√`{field}`", run)


def _inverse_root(value: int | float) -> float | Fraction:
    """Return 1/√value as a fraction if it is rational, else as a float, as models compute it."""
    if isinstance(value, int) and isqrt(value) ** 2 == value:
        return Fraction(1, isqrt(value))
    return 1 / sqrt(value)


def factor(field: str) -> FieldRule:
    """Return a rule for a scale that is a field."""
    return FieldRule(f"the scale is `{field}`", lambda at: {"scale": at.c.number(field)})


def softcap(field: str) -> FieldRule:
    """Return a rule for the cap c of c tanh(S/c); null for none."""

    def run(at: LayerPlace) -> Fields:
        c = at.c.find(field)
        return {"softcap": None if c is None else at.c.as_number(field, c)}

    return FieldRule(f"scores are capped at `{field}`, null for no cap", run)


@rule("`scale_attn_weights`, and 1/(layer + 1) more by `scale_attn_by_inverse_layer_idx`")
def gpt2_scale(at: LayerPlace) -> Fields:
    scaled = at.c.flag("scale_attn_weights")
    if not at.c.flag("scale_attn_by_inverse_layer_idx"):
        return {"scale": None if scaled else 1}
    more = at.layer + 1
    return {"scale": _inverse_root(at.d_k * more * more if scaled else more * more)}


# -- queries and keys --------------------------------------------------------------------------------------------------
def normed(
    norm: str = "rms",
    eps: str = "rms_norm_eps",
    switch: str = "",
    place: str = "before",
    over: str = "head",
) -> FieldRule:
    """Return a rule for queries and keys normalised per head or ``over`` all heads, at this place beside rotations, if
    ``switch`` is true or "".
    """

    # Some families switch the norm on by a field.
    def run(at: LayerPlace) -> Fields:
        if switch and not at.c.flag(switch):
            return {}
        # All heads of a single one are that head.
        several = over == "heads" and at.c.count("num_attention_heads") > 1
        fields = {"qk_norm": norm, "eps": at.c.number(eps), "qk_norm_place": place}
        return {**fields, "qk_norm_over": over} if several else fields

    text = f", if `{switch}`" if switch else ""
    where = "over all heads together" if over == "heads" else "head by head"
    return FieldRule(
        f"queries and keys are normalised ({norm}) {where}, {place} rotations, with ε = `{eps}`{text}",
        run,
    )


# -- masks of a layer: causal or two-sided, windows by the types of layers in configurations ---------------------------
@rule("causal")
def causal(at: LayerPlace) -> Fields:
    if at.c.optional("use_bidirectional_attention"):
        at.c.cannot_tell(
            "use_bidirectional_attention is set; which queries see later keys is unknown"
        )
    if at.c.optional("is_causal") is False:
        at.c.cannot_tell("is_causal is false, which the rows of causal families do not know")
    return {"causal": True}


@rule("causal if `is_decoder`, else every query sees every key")
def by_decoder(at: LayerPlace) -> Fields:
    return causal(at) if at.c.flag("is_decoder", otherwise=False) else {}


two_sided = fixed("every query sees every key")


@rule("`sliding_window` keys, that of the query among them, in every layer; null for all")
def everywhere(at: LayerPlace) -> Fields:
    return {"window": at.c.count_or_none("sliding_window")}


@rule("`sliding_window` keys in every layer if `use_sliding_window`")
def if_asked(at: LayerPlace) -> Fields:
    return everywhere(at) if at.c.flag("use_sliding_window") else {}


@rule("`window_size` keys, that of the query among them, where `attention_layers` says local")
def local(at: LayerPlace) -> Fields:
    kind = at.c.words("attention_layers", at.layer + 1)[at.layer]
    if kind not in ("global", "local"):
        at.c.cannot_tell(f"layer {at.layer} is {kind[:40]!r}; known: global, local")
    return {"window": at.c.count("window_size")} if kind == "local" else {}


@rule("a window of ⌊`local_attention`/2⌋ keys on either side where `layer_types` says sliding")
def around(at: LayerPlace) -> Fields:
    half = at.c.count("local_attention") // 2
    return {"window": (half, half)} if layer_type(at) == "sliding_attention" else {}


def by_types(otherwise: str = "") -> FieldRule:
    """Return a rule for the window of a layer by ``layer_types``, or if that is not written by an older field.

    otherwise   ``interval``: the last of each ``full_attention_interval`` is full, and the others are linear;
                ``even``: layers 0, 2, … have the window; ``after``: those from ``max_window_layers`` on, if
                ``use_sliding_window``; ``but last``: all but the last of each ``sliding_window_pattern``; ``if
                asked``: none unless ``use_sliding_window``; empty: ``layer_types`` is required
    """

    older = {
        "interval": "; without them the last of each `full_attention_interval` is full, the others are linear",
        "even": "; without them layers 0, 2, … slide",
        "after": "; without them layers from `max_window_layers` on slide, if `use_sliding_window`",
        "if asked": "; without them none slides unless `use_sliding_window`",
        "but last": "; without them all slide but the last of each `sliding_window_pattern`",
    }
    says = f"windows by `layer_types`{older.get(otherwise, '')}"
    return FieldRule(says, lambda at: of_type(at, layer_type(at, otherwise)))


def layer_type(at: LayerPlace, otherwise: str = "") -> str:
    """Return the type of a layer: ``sliding_attention``, ``full_attention`` or another word of the configuration."""
    if at.c.optional("layer_types") is not None:
        return at.c.words("layer_types", at.layer + 1)[at.layer]
    if otherwise == "if asked" and not at.c.flag("use_sliding_window"):
        return "full_attention"
    if otherwise == "interval":
        is_full = (at.layer + 1) % at.c.count("full_attention_interval") == 0
        return "full_attention" if is_full else "linear_attention"
    slides = {
        "even": lambda: at.layer % 2 == 0,
        "but last": lambda: (at.layer + 1) % at.c.count("sliding_window_pattern") != 0,
        "after": lambda: (
            at.c.flag("use_sliding_window")
            and at.layer >= at.c.as_count("max_window_layers", at.c.find("max_window_layers"), 0)
        ),
    }.get(otherwise)
    if slides is None or (otherwise == "but last" and "sliding_window_pattern" not in at.c):
        return at.c.words("layer_types", at.layer + 1)[at.layer]
    return "sliding_attention" if slides() else "full_attention"


def of_type(at: LayerPlace, kind: str) -> Fields:
    """Return the fields of a layer of this type. Raises ``CannotTell`` for an unknown type."""
    if kind == "full_attention":
        return {}
    if kind == "sliding_attention":
        return everywhere(at)
    if kind == "chunked_attention":
        return {"block": at.c.count("attention_chunk_size")}
    # A recurrence has no softmax, and no specification here.
    if kind == "linear_attention":
        at.c.cannot_tell(
            f"layer {at.layer} is a recurrence, no softmax attention; --layer N says a layer of full attention"
        )
    at.c.cannot_tell(
        f"layer {at.layer} is {kind[:40]!r}; known: full_attention, sliding_attention, chunked_attention"
    )
