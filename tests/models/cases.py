"""Layers of Transformers, the specification that must give the same as each of them, and others that must not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import log
from typing import Any

import numpy as np

from symattn import Alibi, Attention, Buckets, Disentangled, LinearScaling, Rotary, TransformerXL, YarnScaling, like
from tests.models.configurations.modules import GROUPED, MHA, TINY, Module
from tests.models.seen import Seen, built, look, numbers, run

Inputs = Mapping[str, np.ndarray]
Changed = Callable[[Inputs], Mapping[str, np.ndarray | None]]


@dataclass(frozen=True)
class Wrong:
    """Another attention that a case must refuse: in words, other fields, and other inputs (None: without)."""

    words: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    inputs: Changed = lambda given: {}


@dataclass(frozen=True)
class Case:
    """A layer and its specification.

    preset   its name in ``symattn.attention.presets``, with ``told``, the fields that are told beside it
    single   the steps that the layer takes in float32
    biased   for bounds: the argument of the layer that is added to its scores, another formula of equal value
    same     other specifications that must have the same exact value
    note     what differs from the preset or the paper, and what to know of the layer
    """

    model: str
    module: Module
    told: Mapping[str, Any]
    wrong: tuple[Wrong, ...]
    preset: str = ""
    single: tuple[str, ...] = ()
    biased: str = ""
    same: tuple[Mapping[str, Any], ...] = ()
    note: str = ""

    @cached_property
    def seen(self) -> Seen:
        """The layer with what it was given and what it gave."""
        return self.module.seen()

    @cached_property
    def inputs(self) -> Inputs:
        """What the specification is given: tokens and the weights of the layer, packed where it says so."""
        found = self.module.arrays(self.seen, self.spec)
        if self.spec.packed:
            for kind in "wb":
                parts = [found.pop(f"{kind}_{role}") for role in "qkv" if f"{kind}_{role}" in found]
                found |= {f"{kind}_in": np.concatenate(parts, axis=-1)} if parts else {}
        return found | ({"keep": np.array(self.module.keep)} if self.spec.padding else {})

    @property
    def spec(self) -> Attention:
        """The specification."""
        return like(self.preset, **self.told) if self.preset else Attention(**self.told)

    @property
    def written(self) -> str:
        """The specification as it is written."""
        told = [f"{name}={_short(value)}" for name, value in self.told.items()]
        first = [f'"{self.preset}"'] if self.preset else []
        return f"{'like' if self.preset else 'Attention'}({', '.join([*first, *told])})"

    @property
    def as_run(self) -> tuple[Attention, Inputs]:
        """Specification and inputs as the layer computes."""
        if not self.biased:
            return self.spec, self.inputs
        n, heads = len(self.seen.x), self.spec.heads
        bias = numbers(self.seen.given[self.biased]).reshape(heads, 1, -1)[..., -n:].astype(np.float64)
        spec = Attention(heads=heads, causal=True, packed=self.spec.packed, bias=True)
        return spec, {**self.inputs, "bias": np.broadcast_to(bias, (heads, n, n))}

    def bounded(self) -> Any:
        """The value, with the bound for what the layer computes."""
        return self._run(*self.as_run)

    def of(self, wrong: Wrong) -> Any:
        """What a wrong variant gives, with its bound."""
        inputs = {**self.inputs, **wrong.inputs(self.inputs)}
        return self._run(replace(self.spec, **wrong.fields), {n: a for n, a in inputs.items() if a is not None})

    def _run(self, spec: Attention, inputs: Inputs) -> Any:
        steps = {step.name for step in spec.pipeline(inputs)}
        return run(spec, inputs, [s for s in self.single if s in steps])


def _short(value: Any) -> str:
    """A field as it is written, without what is as usual."""
    if not hasattr(value, "__dataclass_fields__"):
        return str(value) if isinstance(value, (int, float)) else repr(value)
    told = []
    for of in fields(value):
        given = getattr(value, of.name)
        if given != of.default:
            told.append(f"{of.name}={_short(given)}")
    return f"{type(value).__name__}({', '.join(told)})"


# -- what is wrong with several layers ---------------------------------------------------------------------------------
def without(*names: str) -> Changed:
    return lambda given: dict.fromkeys(names)


def by_turns(given: Inputs) -> dict[str, np.ndarray | None]:
    """The queries' columns for four heads that take those of two heads of keys by turns: head h reads h modulo 2."""

    def reordered(columns: np.ndarray) -> np.ndarray:
        blocks = columns.reshape(*columns.shape[:-1], 4, -1)
        return blocks[..., [0, 2, 1, 3], :].reshape(columns.shape)

    return {"w_q": reordered(given["w_q"]), "w_o": reordered(given["w_o"].T).T}


def interleaved(position: Rotary) -> Wrong:
    return Wrong("pairs (2l, 2l + 1)", {"position": replace(position, layout="interleaved")})


BY_TURNS = Wrong("head h reads h modulo 2", inputs=by_turns)
NOT_CAUSAL = Wrong("not causal", {"causal": False})
NOT_SCALED, SCALED = Wrong("scale 1/√d_k", {"scale": None}), Wrong("scaled by 1/√d_k", {"scale": None})
OVER_WIDTH = Wrong("scale 1/d_k", {"scale": "1/d_k"})
PADDING = Wrong("padding is attended", {"padding": False}, without("keep"))
WIDER = Wrong("a window that does not count the query", {"window": 4})
NO_WINDOW = Wrong("no window", {"window": None})
NO_ALIBI = Wrong("without ALiBi", {"position": None})
AHEAD = Wrong("not causal", {"causal": False, "position": Alibi(two_sided=True)})


def unscaled(base: float) -> Wrong:
    return Wrong("without scaling", {"position": Rotary(base=base)})


def bloom(heads: int) -> Case:
    halves = np.asarray([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)])
    slopes = Wrong("the slopes 2^(−8i/h)", {"position": Alibi(slopes="given")}, lambda given: {"slopes": halves})
    return Case(
        f"BLOOM, {heads} heads",
        Module("bloom", {"hidden_size": 12, "n_head": heads, "n_layer": 1}, "h.0.self_attention", "dense"),
        {"heads": heads}, (NO_ALIBI, AHEAD, slopes), "bloom", ("weights",), "alibi", note=SHIFTED,
    )  # fmt: skip


# -- the layers --------------------------------------------------------------------------------------------------------
HEADS = {"heads": 4, "kv_heads": 2}
SOFTMAX = ("cos", "sin", "weights")  # what many layers take in float32
KEEP = (True, True, True, True, False, False)
T5 = {
    "d_model": 10, "d_kv": 3, "num_heads": 3, "d_ff": 8, "num_layers": 1, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 9, "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
SHIFTED = (
    "It adds slope · j, not −slope · (i − j): the same value, since softmax does not change when a row is shifted. "
    "The bound covers the sum that it forms."
)


class XLNet(Module):
    """Its layer is no module of projections, and is given the vectors of distances."""

    def seen(self) -> Seen:
        return look(built("XLNetModel", **self.made), "layer.0.rel_attn", "layer.0.rel_attn.dropout", batch=1)

    def arrays(self, seen: Seen, spec: Attention) -> dict[str, np.ndarray]:
        w = {name: numbers(parameter) for name, parameter in seen.layer.named_parameters()}
        found = {f"w_{letter}": w[letter].reshape(12, 12) for letter in "qkvr"}
        found |= {"x": seen.x, "w_o": w["o"].reshape(12, 12).T, "b_u": w["r_w_bias"], "b_w": w["r_r_bias"]}
        return found | {"r": numbers(seen.given["r"])[1:, 0]}  # for n, …, 0, of which n belongs to no key


YARN = Rotary(base=150000, scaling=YarnScaling(factor=32, length=4096))
TURNED = Rotary(layout="interleaved", width=4)
LATENT: Any = like("deepseek-v3").latent
CASES = {
    "gpt2": Case(
        "GPT-2", Module("gpt2", {"n_embd": 12, "n_head": 3, "n_layer": 1, "n_positions": 16}, "h.0.attn", "c_proj"),
        {"heads": 3}, (NOT_CAUSAL, OVER_WIDTH, Wrong("without the bias of q, k and v", inputs=without("b_in")), Wrong(
            "columns by head: q, k and v of each",
            inputs=lambda given: {"w_in": given["w_in"].reshape(12, 3, 3, 4).transpose(0, 2, 1, 3).reshape(12, 36)},
        )), "gpt2",
    ),
    "bert": Case(
        "BERT", Module("bert", {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 1,
            "intermediate_size": 8, "max_position_embeddings": 16}, "encoder.layer.0.attention", "output.dense",
            keep=KEEP), {"heads": 3}, (
            PADDING, Wrong("padding on the other side", inputs=lambda given: {"keep": given["keep"][::-1].copy()}),
            Wrong("without the bias of the queries", inputs=without("b_q")), Wrong("causal", {"causal": True}),
        ), "bert",
    ),
    "t5_encoder": Case(
        "T5, encoder", Module("t5", T5, "encoder.block.0.layer.0.SelfAttention", "o", kind="encoder",
            keep=(*KEEP[:4], True, False)), {"heads": 3, "position": Buckets(number=8, max_distance=9)}, (
            SCALED, Wrong("buckets up to another distance", {"position": Buckets(number=8, max_distance=6)}),
            Wrong("the directions exchanged", inputs=lambda given: {"b_rel": np.roll(given["b_rel"], 4, axis=0)}),
            PADDING,
        ), "t5",
    ),
    "t5_decoder": Case(
        "T5, decoder", Module("t5", T5, "decoder.block.0.layer.0.SelfAttention", "o", kind="decoder"),
        {"heads": 3, "causal": True, "padding": False,
         "position": Buckets(number=8, max_distance=9, bidirectional=False)}, (
            Wrong("not causal", {"causal": False, "position": Buckets(number=8, max_distance=9)}), SCALED,
            Wrong("buckets of two directions", {"position": Buckets(number=8, max_distance=9)}),
            Wrong("buckets up to another distance",
                {"position": Buckets(number=8, max_distance=14, bidirectional=False)}),
        ), "t5", note="The buckets are of one direction.",
    ),
    "t5_cross": Case(
        "T5, cross-attention", Module("t5", T5, "decoder.block.0.layer.1.EncDecAttention", "o", kind="cross"),
        {"heads": 3, "scale": 1}, (
            SCALED, Wrong("causal", {"causal": True}), Wrong("of the decoder's own tokens", inputs=without("y")),
        ),
    ),
    "bloom_of_three": bloom(3),
    "bloom_of_six": bloom(6),
    "mpt": Case(
        "MPT", Module("mpt", {"d_model": 12, "n_heads": 6, "n_layers": 1, "max_seq_len": 16}, "blocks.0.attn",
            "out_proj"), {"heads": 6, "causal": True, "packed": True, "position": Alibi()},
        (NO_ALIBI, AHEAD, OVER_WIDTH), "", ("weights",), "position_bias", note=SHIFTED,
    ),
    "xlnet": Case(
        "XLNet", XLNet("xlnet", {"d_model": 12, "n_head": 3, "n_layer": 1, "d_inner": 8, "attn_type": "uni"}),
        {"heads": 3, "causal": True, "position": TransformerXL()}, (
            Wrong("the row of the next distance", inputs=lambda given: {"r": np.roll(given["r"], 1, axis=0)}),
            Wrong("from near to far", inputs=lambda given: {"r": given["r"][::-1].copy()}),
            Wrong("the biases exchanged", inputs=lambda given: {"b_u": given["b_w"], "b_w": given["b_u"]}),
            Wrong("scale 1", {"scale": 1}),
            Wrong("not causal", {"causal": False},
                lambda given: {"r": np.concatenate([given["r"], given["r"][:-1]])}),
        ), note="One direction (`attn_type`), and no segments.",
    ),
    "deberta": Case(
        "DeBERTa, version 2", Module("deberta-v2", {"hidden_size": 12, "num_attention_heads": 3,
            "num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 16, "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"], "position_buckets": 4, "max_relative_positions": 16,
            "share_att_key": False}, "encoder.layer.0.attention", "output.dense", given={"p": "rel_embeddings"}),
        {"heads": 3, "position": Disentangled(span=4, max_distance=16, backwards=False)}, (
            Wrong("the row of j − i for the keys' term", {"position": Disentangled(span=4, max_distance=16)}),
            Wrong("distances, not their buckets", {"position": Disentangled(span=4, backwards=False)}),
            Wrong("scaled by 1/√d_k", {"scale": 0.5}),
        ), single=("scores", "positioned", "scaled"), note=(
            "The term of keys with positions takes the row of i − j; in the paper (equation 4) it is that of j − i. "
            "√(3 d_k) is taken in float32, by which each term is divided."
        ),
    ),
    "llama": Case(
        "Llama 3.1", Module("llama", {**GROUPED, "head_dim": 8, "rope_parameters": {"rope_type": "llama3",
            "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}}), HEADS, (
            BY_TURNS, unscaled(500000),
            Wrong("all frequencies by 1/8", {"position": Rotary(base=500000, scaling=LinearScaling(factor=8))}),
            interleaved(Rotary(base=500000)),
        ), "llama", SOFTMAX,
    ),
    "mistral": Case(
        "Mistral", Module("mistral", {**GROUPED, "sliding_window": 3, "rope_parameters": {"rope_theta": 10000.0}}),
        {**HEADS, "window": 3}, (BY_TURNS, WIDER, NO_WINDOW, interleaved(Rotary())), "mistral", SOFTMAX,
    ),
    "gemma2": Case(
        "Gemma 2", Module("gemma2", {**GROUPED, "sliding_window": 3, "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 50.0, "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {"rope_theta": 10000.0}}, times=8), {**HEADS, "window": 3},
        (BY_TURNS, Wrong("no softcap", {"softcap": None}), NOT_SCALED, WIDER, interleaved(Rotary())), "gemma2", SOFTMAX,
    ),
    "qwen3": Case(
        "Qwen3", Module("qwen3", {**GROUPED, "rope_parameters": {"rope_theta": 1000000.0}}), HEADS, (
            BY_TURNS,
            Wrong("queries and keys are not normalised", {"qk_norm": None, "eps": 0}, without("g_q", "g_k")),
            Wrong("LayerNorm", {"qk_norm": "layer"}), Wrong("without gains", inputs=without("g_q", "g_k")),
            Wrong("another base", {"position": Rotary()}),
        ), "qwen3", ("q_normed", "k_normed", *SOFTMAX),
    ),
    "gpt_oss": Case(
        "gpt-oss", Module("gpt_oss", {**GROUPED, "sliding_window": 3, "num_local_experts": 2, "num_experts_per_tok": 1,
            "layer_types": ["sliding_attention", "full_attention"], "head_dim": 8, "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "truncate": False, "original_max_position_embeddings": 4096}}), {**HEADS, "window": 3}, (
            BY_TURNS, Wrong("no sinks", {"sink": None}, without("sink")), NO_WINDOW,
            Wrong("a ramp between whole numbers", {"position": YARN}), unscaled(150000),
        ), "gpt-oss", SOFTMAX[:2],
    ),
    "deepseek_v3": Case(
        "DeepSeek-V3", Module("deepseek_v3", {**TINY, "num_attention_heads": 3, "num_key_value_heads": 3,
            "q_lora_rank": 7, "kv_lora_rank": 6, "qk_nope_head_dim": 3, "qk_rope_head_dim": 4, "v_head_dim": 5,
            "first_k_dense_replace": 2, "n_routed_experts": 2, "n_group": 1, "topk_group": 1,
            "num_experts_per_tok": 1, "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0,
                "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 4096}}),
        {"heads": 3, "scale": (1 + 0.1 * log(40)) ** 2 / 7**0.5}, (
            Wrong("pairs (l, l + r/2)", {"position": replace(like("deepseek-v3").position, layout="half")}),
            NOT_SCALED, Wrong("without scaling", {"position": Rotary(layout="interleaved")}),
            Wrong("latents are not normalised", {"latent": replace(LATENT, norm=None, eps=0)},
                without("g_cq", "g_ckv")),
            Wrong("without the gain of the keys' latent", inputs=without("g_ckv")),
        ), "deepseek-v3", ("c_q", "c_kv", *SOFTMAX), same=({"latent": replace(LATENT, absorbed=True)},), note=(
            "The scale is (1 + log(40)/10)²/√d_k. The layer makes keys and values; the specification with matrices "
            "absorbed has the same exact value."
        ),
    ),
    "gptj": Case(
        "GPT-J", Module("gptj", {"n_embd": 18, "n_head": 3, "n_layer": 1, "rotary_dim": 4, "n_positions": 16,
            "n_inner": 8}, "h.0.attn", "out_proj"), {"heads": 3, "causal": True, "position": TURNED}, (
            Wrong("pairs (l, l + r/2)", {"position": Rotary(width=4)}),
            Wrong("all columns rotated", {"position": Rotary(layout="interleaved")}),
            Wrong("another base", {"position": replace(TURNED, base=500000)}),
        ), "", (*SOFTMAX, "scores", "scaled", "masked"), note="Scores are taken in float32 too.",
    ),
    "gpt_neox": Case(
        "GPT-NeoX", Module("gpt_neox", {**MHA, "hidden_size": 24, "num_attention_heads": 3,
            "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}}, "layers.0.attention", "dense"),
        {"heads": 3, "causal": True, "position": Rotary(width=4)}, (
            Wrong("pairs (2l, 2l + 1)", {"position": TURNED}), Wrong("all columns rotated", {"position": Rotary()}),
            Wrong("another base", {"position": Rotary(width=4, base=500000)}),
        ), "", SOFTMAX,
    ),
    "falcon": Case(
        "Falcon, 7B", Module("falcon", {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 1,
            "multi_query": True, "alibi": False, "new_decoder_architecture": False, "bias": False,
            "parallel_attn": True, "rope_parameters": {"rope_theta": 10000.0}}, "h.0.self_attention", "dense"),
        {"heads": 3, "kv_heads": 1, "causal": True, "packed": True, "position": Rotary()}, (
            interleaved(Rotary()), NOT_CAUSAL, Wrong("keys and values exchanged", inputs=lambda given: {
                "w_in": given["w_in"][:, [*range(12), *range(16, 20), *range(12, 16)]]}),
        ), "", SOFTMAX[:2],
    ),
}  # fmt: skip
