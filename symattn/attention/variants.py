"""Every named variant of attention, one line each: its fields, and the inputs that it runs on.

The conformance tests and the table in the documentation use these lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from symattn.attention.inputs import lengths
from symattn.attention.latent import Latent
from symattn.attention.positions.position_fields import (
    Alibi,
    Buckets,
    Disentangled,
    Rotary,
    Shaw,
    TransformerXL,
)
from symattn.attention.positions.rotary_fields import (
    LinearScaling,
    LongRopeScaling,
    NTKScaling,
    ProportionalScaling,
    YarnScaling,
)
from symattn.attention.spec import Attention

# Inputs that many variants share.
_QKV, _X = "q k v", "x w_q w_k w_v w_o"
_LATENT = "x w_q w_dkv w_uk w_uv w_kr w_o"
# Queries and keys of different width, which additive scores permit.
_ADDITIVE = {"l_a": 2, "d_w": 2, "d_s": 6}
# Angles with rational cosines and sines, so that rotations are exact.
_TRIPLES = ((3, 4, 5), (5, 12, 13))

#: Lengths by letter, mostly different, so that axes cannot be confused.
SIZES: Mapping[str, int] = {
    "n_q": 3, "n_k": 5, "d_k": 4, "d_s": 4, "d_v": 7, "d_w": 4, "d_model": 8, "d_y": 8, "d_out": 8, "l_a": 9,
    "l": 9, "l_q": 10, "d_n": 2, "d_r": 2, "f": 2, "n_b": 4, "n_d": 5, "n_r": 7, "d_e": 11,
}  # fmt: skip


@dataclass(frozen=True)
class NamedVariant:
    """A variant: its family, its specification, the names of its inputs, and lengths that differ from ``SIZES``."""

    family: str
    spec: Attention
    given: str = _QKV
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its inputs."""
        return tuple(self.given.split())

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of its inputs."""
        sizes = {**SIZES, **self.sizes}
        return {name: lengths(name, self.spec, self.names, sizes) for name in self.names}


# Specifications that several variants use.
_GROUPED = Attention(heads=6, kv_heads=2, causal=True)
_LATENTS, _ABSORBED = Latent(queries=True), Latent(absorbed=True)
_ROTATED = Rotary(triples=_TRIPLES)
# A projection of gated outputs adds h d_v fractions, each over its own gate's 1 + e^-x: an exact
# numerator has 2^(h d_v) terms.
_GATED = {"d_v": 2}

# Each variant differs from plain attention in one field or few, so that a failure names it.
VARIANTS: dict[str, NamedVariant] = {
    "dot": NamedVariant("scores", Attention(scale=1)),
    "scaled dot": NamedVariant("scores", Attention()),
    "general": NamedVariant("scores", Attention(score="general"), f"{_QKV} w_s"),
    "additive": NamedVariant(
        "scores", Attention(score="additive"), f"{_QKV} w_s u_s v_s", _ADDITIVE
    ),
    "cosine": NamedVariant("scores", Attention(score="cosine", scale=10)),
    "distance": NamedVariant("scores", Attention(score="distance")),
    "1/d_k": NamedVariant("scores", Attention(scale="1/d_k")),
    "scale per head": NamedVariant("scores", Attention(heads=2, scale="given"), f"{_QKV} scale"),
    "RMS norm of q and k": NamedVariant(
        "scores", Attention(qk_norm="rms", eps=0.25), f"{_QKV} g_q g_k"
    ),
    "LayerNorm of q and k": NamedVariant(
        "scores", Attention(qk_norm="layer"), f"{_QKV} g_q g_k beta_q beta_k"
    ),
    "RMS norm after rotation": NamedVariant(
        "scores",
        Attention(qk_norm="rms", eps=0.25, qk_norm_place="after", position=_ROTATED),
        f"{_QKV} g_q g_k",
    ),
    "RMS norm over all heads": NamedVariant(
        "scores",
        Attention(heads=4, kv_heads=2, qk_norm="rms", eps=0.25, qk_norm_over="heads"),
        f"{_QKV} g_q g_k",
    ),
    "RMS norm of keys": NamedVariant(
        "scores", Attention(qk_norm="rms", eps=0.25, qk_norm_of="keys"), f"{_QKV} g_k"
    ),
    "attention over depth": NamedVariant(
        "scores",
        Attention(scale=1, qk_norm="rms", eps=0.25, qk_norm_of="keys"),
        sizes={"n_q": 1},
    ),
    "RMS norm of values": NamedVariant(
        "scores", Attention(value_norm="rms", eps=0.25), f"{_QKV} g_v"
    ),
    "q and k of length 1": NamedVariant("scores", Attention(qk_norm="l2", scale=10)),
    "temperature by place": NamedVariant(
        "scores", Attention(temperature=0.5, temperature_rate=2, temperature_start=0)
    ),
    "log-n scaling": NamedVariant("scores", Attention(temperature="log", temperature_rate=2)),
    "softcap": NamedVariant("scores", Attention(softcap=2)),
    "truncated": NamedVariant("scores", Attention(truncate=2)),
    "bias": NamedVariant("scores", Attention(bias=True), f"{_QKV} bias"),
    "causal": NamedVariant("masks", Attention(causal=True)),
    "causal, top-left": NamedVariant("masks", Attention(causal=True, alignment="top-left")),
    "sliding window": NamedVariant("masks", Attention(causal=True, window=2)),
    "window of two sides": NamedVariant("masks", Attention(window=(1, 1))),
    "local blocks": NamedVariant("masks", Attention(causal=True, block=2)),
    "prefix": NamedVariant("masks", Attention(causal=True, prefix=2)),
    "padding": NamedVariant("masks", Attention(padding=True), f"{_QKV} keep"),
    "packed documents": NamedVariant(
        "masks", Attention(causal=True, documents=True), f"{_QKV} doc_q doc_k"
    ),
    "boolean mask": NamedVariant("masks", Attention(mask="boolean"), f"{_QKV} mask"),
    "additive mask": NamedVariant("masks", Attention(mask="additive"), f"{_QKV} mask"),
    "masks combined": NamedVariant(
        "masks",
        Attention(causal=True, window=3, mask="boolean", padding=True, bias=True),
        f"{_QKV} mask keep bias",
    ),
    "not stabilised": NamedVariant("normalisers", Attention(stabilised=False)),
    "log-sum-exp returned": NamedVariant("normalisers", Attention(lse=True)),
    "base 2": NamedVariant("normalisers", Attention(base=2)),
    "sink": NamedVariant("normalisers", Attention(heads=2, sink="given"), f"{_QKV} sink"),
    "softmax off by one": NamedVariant("normalisers", Attention(sink="zero")),
    "sigmoid": NamedVariant("normalisers", Attention(normaliser="sigmoid")),
    "ReLU": NamedVariant("normalisers", Attention(normaliser="relu")),
    "sparsemax": NamedVariant("normalisers", Attention(normaliser="sparsemax")),
    "entmax": NamedVariant("normalisers", Attention(normaliser="entmax")),
    "dropout": NamedVariant("normalisers", Attention(dropout=0.25), f"{_QKV} drop"),
    "output gate": NamedVariant("heads", Attention(output_gate=True), f"{_QKV} gate"),
    "output gate, of tokens": NamedVariant(
        "heads", Attention(heads=2, output_gate=True), f"{_X} gate", _GATED
    ),
    "self-attention": NamedVariant("heads", Attention(), _X),
    "cross-attention": NamedVariant("heads", Attention(), f"y {_X}"),
    "parameter-free": NamedVariant("heads", Attention(), "x"),
    "multi-head": NamedVariant("heads", Attention(heads=2), f"{_X} b_q b_k b_v b_o"),
    "multi-query": NamedVariant("heads", Attention(heads=6, kv_heads=1), _X),
    "grouped-query": NamedVariant("heads", _GROUPED),
    "grouped-query, of tokens": NamedVariant("heads", _GROUPED, _X),
    "packed projections": NamedVariant(
        "heads", Attention(heads=2, packed=True), "x w_in b_in w_o b_o", {"d_v": 4}
    ),
    "latent": NamedVariant(
        "heads", Attention(heads=2, latent=_LATENTS), "x w_dq w_uq w_dkv w_uk w_uv w_kr w_o"
    ),
    "latent, one head": NamedVariant("heads", Attention(latent=Latent()), _LATENT),
    "latent, absorbed": NamedVariant(
        "heads", Attention(heads=2, latent=_ABSORBED, causal=True), _LATENT
    ),
    "rotary, half": NamedVariant("positions", Attention(position=_ROTATED)),
    "rotary, interleaved": NamedVariant(
        "positions", Attention(position=Rotary(triples=_TRIPLES, layout="interleaved"))
    ),
    "rotary, in part": NamedVariant("positions", Attention(position=Rotary(triples=_TRIPLES[:1]))),
    "rotary, true frequencies": NamedVariant("positions", Attention(position=Rotary())),
    "rotary, given tables": NamedVariant(
        "positions", Attention(position=Rotary(given="tables")), f"{_QKV} cos sin cos_q sin_q"
    ),
    "rotary, latent": NamedVariant(
        "positions",
        Attention(heads=2, latent=Latent(absorbed=True), position=Rotary(triples=_TRIPLES[:1])),
        _LATENT,
    ),
    "ALiBi": NamedVariant("positions", Attention(heads=2, causal=True, position=Alibi())),
    "ALiBi, given slopes": NamedVariant(
        "positions",
        Attention(heads=3, position=Alibi(slopes="given", two_sided=True)),
        f"{_QKV} slopes",
    ),
    "T5 buckets": NamedVariant(
        "positions",
        Attention(heads=2, scale=1, position=Buckets(number=4, max_distance=3)),
        f"{_QKV} b_rel",
    ),
    "Shaw": NamedVariant("positions", Attention(position=Shaw(most=2)), f"{_QKV} a_k a_v"),
    "Transformer-XL": NamedVariant(
        "positions",
        Attention(heads=2, causal=True, position=TransformerXL()),
        f"{_X} r w_r b_u b_w",
        {"n_r": 3},
    ),
    "DeBERTa": NamedVariant(
        "positions",
        Attention(heads=2, position=Disentangled(span=2)),
        f"{_X} p w_pk w_pq",
        {"n_d": 4},
    ),
    "decoder step": NamedVariant(
        "together",
        Attention(
            heads=6,
            kv_heads=2,
            causal=True,
            window=3,
            softcap=2,
            sink="given",
            position=Rotary(triples=_TRIPLES),
        ),
        f"{_QKV} sink",
    ),
}

# Positions and gates that several variants below share; a small base makes angles differ at few tokens.
_FAR = Rotary(base=100)
_GATED_HEADS = Attention(heads=2, kv_heads=1, causal=True, output_gate=True)

#: Fields together, as models have them: a failure that no field has alone shows here.
OF_MODELS: dict[str, NamedVariant] = {
    "scale of a model": NamedVariant("models", Attention(scale=Fraction(1, 8), causal=True)),
    "causal ReLU, not divided": NamedVariant(
        "models", Attention(normaliser="relu_sum", causal=True)
    ),
    "norm and rotation": NamedVariant(
        "models",
        Attention(heads=2, causal=True, qk_norm="rms", eps=0.25, position=_ROTATED),
        f"{_QKV} g_q g_k",
    ),
    "LayerNorm and rotation in part": NamedVariant(
        "models",
        Attention(heads=2, causal=True, qk_norm="layer", position=Rotary(triples=_TRIPLES[:1])),
        f"{_QKV} g_q g_k",
    ),
    "norms of q, k and v": NamedVariant(
        "models",
        Attention(scale=1, causal=True, qk_norm="rms", value_norm="rms", eps=0.25),
        f"{_QKV} g_q g_k g_v",
    ),
    "length 1 after rotation, temperature": NamedVariant(
        "models",
        Attention(
            causal=True,
            qk_norm="l2",
            qk_norm_place="after",
            temperature=0.5,
            temperature_rate=2,
            position=Rotary(given="tables"),
        ),
        f"{_QKV} cos sin cos_q sin_q",
    ),
    "output gate and norm": NamedVariant(
        "models", replace(_GATED_HEADS, qk_norm="rms", eps=0.25), f"{_QKV} g_q g_k gate"
    ),
    "output gate and sink": NamedVariant(
        "models", replace(_GATED_HEADS, sink="given"), f"{_QKV} sink gate"
    ),
    "output gate after the projection": NamedVariant(
        "models",
        replace(_GATED_HEADS, output_gate_place="after"),
        f"{_X} b_o gate",
        {"d_out": 3},
    ),
    "sink and window": NamedVariant(
        "models",
        Attention(heads=6, kv_heads=2, causal=True, window=3, sink="given"),
        f"{_QKV} sink",
    ),
    "sink and prefix": NamedVariant(
        "models", Attention(heads=2, causal=True, prefix=4, sink="given"), f"{_QKV} sink"
    ),
    "softcap and window": NamedVariant(
        "models", Attention(scale=Fraction(1, 4), causal=True, window=2, softcap=3)
    ),
    "ALiBi and window": NamedVariant(
        "models", Attention(heads=2, causal=True, window=3, position=Alibi())
    ),
    "local blocks and rotation": NamedVariant(
        "models", Attention(causal=True, block=2, position=_ROTATED)
    ),
    "packed documents, window": NamedVariant(
        "models", Attention(causal=True, window=2, documents=True), f"{_QKV} doc_q doc_k"
    ),
    "sigmoid with a bias": NamedVariant(
        "models", Attention(causal=True, normaliser="sigmoid", bias=True), f"{_QKV} bias"
    ),
    "linear scaling": NamedVariant(
        "models", Attention(causal=True, position=replace(_FAR, scaling=LinearScaling(factor=4)))
    ),
    "NTK-aware scaling": NamedVariant(
        "models", Attention(causal=True, position=replace(_FAR, scaling=NTKScaling(factor=4)))
    ),
    "YaRN": NamedVariant(
        "models",
        Attention(causal=True, position=replace(_FAR, scaling=YarnScaling(factor=4, length=64))),
    ),
    "Llama 3.1 scaling": NamedVariant(
        "models",
        Attention(
            causal=True,
            position=replace(
                _FAR, scaling=YarnScaling(factor=8, length=100, ramp="turns", fast=4, weight=0)
            ),
        ),
    ),
    "LongRoPE": NamedVariant(
        "models",
        Attention(
            causal=True,
            position=replace(
                _FAR, scaling=LongRopeScaling(short=(1, 2), long=(3, 4), factor=4, length=3)
            ),
        ),
    ),
    "rotation of a share": NamedVariant(
        "models",
        Attention(
            causal=True,
            position=replace(_FAR, scaling=ProportionalScaling(share=Fraction(1, 2))),
        ),
    ),
    "rotation by sections": NamedVariant(
        "models",
        Attention(
            heads=2,
            kv_heads=1,
            causal=True,
            position=Rotary(base=100, given="positions", sections=(1, 1)),
        ),
        f"{_QKV} positions",
    ),
    "norm and interleaved sections": NamedVariant(
        "models",
        Attention(
            causal=True,
            qk_norm="rms",
            eps=0.25,
            position=Rotary(
                base=16, given="positions", sections=(2, 1, 1), section_order="interleaved"
            ),
        ),
        f"{_QKV} g_q g_k positions positions_q",
        {"d_k": 8, "d_s": 8},
    ),
    "latent with YaRN": NamedVariant(
        "models",
        Attention(
            heads=2,
            causal=True,
            latent=_LATENTS,
            position=replace(_FAR, scaling=YarnScaling(factor=4, length=64, shared=1)),
        ),
        "x w_dq w_uq w_dkv w_uk w_uv w_kr w_o",
    ),
}

# Names of variants that each package computes; see ``AGREES``.
_TORCH = """
    dot; scaled dot; 1/d_k; scale per head; cosine; RMS norm of q and k; LayerNorm of q and k; q and k of length 1;
    softcap; bias; causal; causal, top-left; sliding window; window of two sides; local blocks; prefix; padding;
    boolean mask; additive mask; masks combined; not stabilised; log-sum-exp returned; sink; dropout;
    self-attention; cross-attention; parameter-free; multi-head; multi-query; grouped-query; grouped-query, of tokens;
    packed projections
"""
_ONNX = """
    dot; scaled dot; softcap; bias; causal; causal, top-left; boolean mask; additive mask; grouped-query; multi-query;
    sliding window; window of two sides; rotary, half; rotary, interleaved; rotary, in part; rotary, given tables
"""
_TRANSFORMERS = """
    dot; scaled dot; RMS norm of q and k; softcap; causal; sliding window; padding; sink; self-attention;
    cross-attention; multi-head; multi-query; grouped-query; grouped-query, of tokens; packed projections; latent;
    latent, absorbed; rotary, half; rotary, interleaved; rotary, in part; rotary, true frequencies; rotary, latent;
    ALiBi; T5 buckets; Transformer-XL
"""


def _split_variant_names(text: str) -> tuple[str, ...]:
    return tuple(" ".join(name.split()) for name in text.split(";"))


#: The variants that other packages compute alike, as tests against them show.
AGREES: dict[str, tuple[str, ...]] = {
    "PyTorch": _split_variant_names(_TORCH),
    "ONNX": _split_variant_names(_ONNX),
    "Transformers": _split_variant_names(_TRANSFORMERS),
}
