"""Layers whose scores have numbers added by distance, or that leave positions to the tokens: GPT-2 and others."""

import numpy as np

from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, TransformerXL
from symattn.attention.spec import Attention
from tests.models.cases import Case, Wrong, projections, split_by_head
from tests.models.seen import Seen, built, look, numbers, tokens

KEEP = np.array([True, True, True, True, False, False])


def gpt2() -> Case:
    model = built("GPT2Model", n_embd=12, n_head=3, n_layer=1, n_positions=16)
    seen = look(model, "h.0.attn", "h.0.attn.c_proj")
    w = {name: numbers(parameter) for name, parameter in seen.layer.named_parameters()}  # for tokens on the left
    packed = {"w_in": w["c_attn.weight"], "b_in": w["c_attn.bias"]}
    inputs = {"x": seen.x, **packed, "w_o": w["c_proj.weight"], "b_o": w["c_proj.bias"]}
    by_head = packed["w_in"].reshape(12, 3, 3, 4).transpose(0, 2, 1, 3).reshape(12, 36)
    wrong = (
        Wrong("not causal", {"causal": False}),
        Wrong("scale 1/d_k", {"scale": "1/d_k"}),
        Wrong("without the bias of q, k and v", {}, {"b_in": None}),
        Wrong("columns by head: q, k and v of each", {}, {"w_in": by_head}),
    )
    return Case("GPT-2", seen, {"heads": 3}, inputs, wrong, "gpt2")


def bert() -> Case:
    model = built(
        "BertModel", hidden_size=12, num_attention_heads=3, num_hidden_layers=1, intermediate_size=8,
        max_position_embeddings=16,
    )  # fmt: skip
    seen = look(model, "encoder.layer.0.attention", "encoder.layer.0.attention.output.dense", keep=KEEP)
    inputs = projections(seen, q="self.query", k="self.key", v="self.value", o="output.dense")
    wrong = (
        Wrong("padding is attended", {"padding": False}, {"keep": None}),
        Wrong("padding on the other side", {}, {"keep": KEEP[::-1].copy()}),
        Wrong("without the bias of the queries", {}, {"b_q": None}),
        Wrong("causal", {"causal": True}),
    )
    return Case("BERT", seen, {"heads": 3}, {**inputs, "keep": KEEP}, wrong, "bert")


def _t5(path: str) -> tuple[Seen, dict[str, np.ndarray]]:
    model = built(
        "T5Model", d_model=10, d_kv=3, num_heads=3, d_ff=8, num_layers=1, relative_attention_num_buckets=8,
        relative_attention_max_distance=9, decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    keep = np.arange(8) < (7 if path.startswith("encoder") else 8)
    seen = look(model, path, f"{path}.o", 8, keep, decoder_input_ids=tokens(8) + 8)
    inputs = projections(seen, q="q", k="k", v="v", o="o")
    if seen.layer.has_relative_attention_bias:
        inputs["b_rel"] = numbers(seen.layer.relative_attention_bias.weight)
    if path.startswith("encoder"):
        inputs["keep"] = keep
    return seen, inputs


def t5_encoder() -> Case:
    seen, inputs = _t5("encoder.block.0.layer.0.SelfAttention")
    told = {"heads": 3, "position": Buckets(number=8, max_distance=9)}
    wrong = (
        Wrong("scaled by 1/√d_k", {"scale": None}),
        Wrong("buckets up to another distance", {"position": Buckets(number=8, max_distance=6)}),
        Wrong("the directions exchanged", {}, {"b_rel": np.roll(inputs["b_rel"], 4, axis=0)}),
        Wrong("padding is attended", {"padding": False}, {"keep": None}),
    )
    return Case("T5, encoder", seen, told, inputs, wrong, "t5")


def t5_decoder() -> Case:
    seen, inputs = _t5("decoder.block.0.layer.0.SelfAttention")
    one = Buckets(number=8, max_distance=9, bidirectional=False)
    told = {"heads": 3, "causal": True, "padding": False, "position": one}
    wrong = (
        Wrong("not causal", {"causal": False, "position": Buckets(number=8, max_distance=9)}),
        Wrong("scaled by 1/√d_k", {"scale": None}),
        Wrong("buckets of two directions", {"position": Buckets(number=8, max_distance=9)}),
        Wrong("buckets up to another distance", {"position": Buckets(number=8, max_distance=14, bidirectional=False)}),
    )
    note = "The buckets are of one direction."
    return Case("T5, decoder", seen, told, inputs, wrong, "t5", note=note)


def t5_cross() -> Case:
    seen, inputs = _t5("decoder.block.0.layer.1.EncDecAttention")
    inputs["y"] = numbers(seen.given["key_value_states"])[0]
    wrong = (
        Wrong("scaled by 1/√d_k", {"scale": None}),
        Wrong("causal", {"causal": True}),
        Wrong("of the decoder's own tokens", {}, {"y": None}),
    )
    return Case("T5, cross-attention", seen, {"heads": 3, "scale": 1}, inputs, wrong)


_SHIFTED = (
    "It adds slope · j, not −slope · (i − j): the same value, since softmax does not change when a row is shifted. "
    "The bound covers the sum that it forms."
)


def _bloom(heads: int) -> Case:
    model = built("BloomModel", hidden_size=12, n_head=heads, n_layer=1)
    seen = look(model, "h.0.self_attention", "h.0.self_attention.dense")
    inputs = split_by_head(seen, heads, "query_key_value", "dense")
    bias = numbers(seen.given["alibi"]).reshape(heads, 1, 6).astype(np.float64)
    halves = np.asarray([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)])
    wrong = (
        Wrong("without ALiBi", {"position": None}),
        Wrong("not causal", {"causal": False, "position": Alibi(two_sided=True)}),
        Wrong("the slopes 2^(−8i/h)", {"position": Alibi(slopes="given")}, {"slopes": halves}),
    )
    as_run = Attention(heads=heads, causal=True, bias=True), {**inputs, "bias": np.broadcast_to(bias, (heads, 6, 6))}
    return Case(
        f"BLOOM, {heads} heads", seen, {"heads": heads}, inputs, wrong, "bloom", ("weights",), as_run, note=_SHIFTED
    )


def bloom_of_three() -> Case:
    return _bloom(3)


def bloom_of_six() -> Case:
    return _bloom(6)


def mpt() -> Case:
    model = built("MptModel", d_model=12, n_heads=6, n_layers=1, max_seq_len=16)
    seen = look(model, "blocks.0.attn", "blocks.0.attn.out_proj")
    weight = seen.weight("Wqkv")
    inputs = {"x": seen.x, "w_in": weight, "w_o": seen.weight("out_proj")}
    bias = numbers(seen.given["position_bias"])[:, :, -6:].astype(np.float64)
    as_run = Attention(heads=6, causal=True, packed=True, bias=True), {
        **inputs, "bias": np.broadcast_to(bias, (6, 6, 6)),
    }  # fmt: skip
    told = {"heads": 6, "causal": True, "packed": True, "position": Alibi()}
    wrong = (
        Wrong("without ALiBi", {"position": None}),
        Wrong("not causal", {"causal": False, "position": Alibi(two_sided=True)}),
        Wrong("scale 1/d_k", {"scale": "1/d_k"}),
    )
    return Case("MPT", seen, told, inputs, wrong, "", ("weights",), as_run, note=_SHIFTED)


def deberta() -> Case:
    model = built(
        "DebertaV2Model", hidden_size=12, num_attention_heads=3, num_hidden_layers=1, intermediate_size=8,
        max_position_embeddings=16, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=4,
        max_relative_positions=16, share_att_key=False,
    )  # fmt: skip
    path = "encoder.layer.0.attention"
    seen = look(model, path, f"{path}.output.dense", 8)
    inputs = projections(
        seen, q="self.query_proj", k="self.key_proj", v="self.value_proj", pk="self.pos_key_proj",
        pq="self.pos_query_proj", o="output.dense",
    )  # fmt: skip
    inputs["p"] = numbers(seen.given["rel_embeddings"])
    told = {"heads": 3, "position": Disentangled(span=4, max_distance=16, backwards=False)}
    wrong = (
        Wrong("the row of j − i for the keys' term", {"position": Disentangled(span=4, max_distance=16)}),
        Wrong("distances, not their buckets", {"position": Disentangled(span=4, backwards=False)}),
        Wrong("scaled by 1/√d_k", {"scale": 0.5}),
    )
    note = (
        "The term of keys with positions takes the row of i − j; in the paper (equation 4) it is that of j − i. "
        "√(3 d_k) is taken in float32, by which each term is divided."
    )
    single = ("scores", "positioned", "scaled")
    return Case("DeBERTa, version 2", seen, told, inputs, wrong, single=single, note=note)


def xlnet() -> Case:
    model = built("XLNetModel", d_model=12, n_head=3, n_layer=1, d_inner=8, attn_type="uni")
    seen = look(model, "layer.0.rel_attn", "layer.0.rel_attn.dropout", batch=1)
    w = {name: numbers(parameter) for name, parameter in seen.layer.named_parameters()}
    inputs = {f"w_{letter}": w[letter].reshape(12, 12) for letter in "qkvr"}
    inputs |= {"x": seen.x, "w_o": w["o"].reshape(12, 12).T, "b_u": w["r_w_bias"], "b_w": w["r_r_bias"]}
    r = numbers(seen.given["r"])[:, 0]  # for the distances n, …, 0, of which n belongs to no key
    wrong = (
        Wrong("the row of the next distance", {}, {"r": r[:-1]}),
        Wrong("from near to far", {}, {"r": r[:0:-1].copy()}),
        Wrong("the biases exchanged", {}, {"b_u": inputs["b_w"], "b_w": inputs["b_u"]}),
        Wrong("scale 1", {"scale": 1}),
        Wrong("not causal", {"causal": False}, {"r": np.concatenate([r[1:], r[1:-1]])}),
    )
    told = {"heads": 3, "causal": True, "position": TransformerXL()}
    return Case(
        "XLNet", seen, told, {**inputs, "r": r[1:]}, wrong, note="One direction (`attn_type`), and no segments."
    )
