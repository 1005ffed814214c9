"""A node as ``Attention``: against loops over every query, key and head, and what is refused."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, graphs, kind
from tests.programs.onnx.nodes import node
from tests.refusals import refuses

Exact = kind("exact")

B, H, G, N, M, D, E = 2, 6, 2, 3, 5, 4, 7


def arrays(heads: int = H, kv_heads: int = G, **more: tuple[int, ...]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    shapes = {"Q": (B, heads, N, D), "K": (B, kv_heads, M, D), "V": (B, kv_heads, M, E)} | more
    return {name: random.normal(size=shape) for name, shape in shapes.items()}


def loops(given: dict[str, Any], scale: float, bias: Any, cap: float = 0) -> np.ndarray:
    """softmax(cap(scale q k) + bias) v, one query of one head at a time; a row of −∞ gives zeros."""
    q, k, v = given["Q"], given["K"], given["V"]
    groups = q.shape[1] // k.shape[1]
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    bias = np.broadcast_to(bias, (*q.shape[:-1], k.shape[-2]))
    for b, h, i in product(*map(range, q.shape[:-1])):
        s = np.array([scale * sum(q[b, h, i] * key) for key in k[b, h // groups]])
        s = (cap * np.tanh(s / cap) if cap else s) + bias[b, h, i]
        if np.isfinite(s).any():
            e = np.exp(s - s.max())
            out[b, h, i] = e / e.sum() @ v[b, h // groups]
    return out


def agree(found: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found.outputs["Y"], expected, rtol=1e-12, atol=1e-12)


def forbidden(allowed: Any) -> Any:
    return np.where(allowed, 0, -np.inf)


def seen(n_k: int, offsets: Any, lengths: Any, causal: bool, left: int, right: int) -> np.ndarray:
    """Which keys the operator's text lets each query see, (b, 1, n_q, n_k)."""
    out = np.zeros((B, 1, N, n_k), dtype=bool)
    for b, i, j in product(range(B), range(N), range(n_k)):
        place = offsets[b] + i
        out[b, 0, i, j] = (
            j < lengths[b]
            and not (causal and j > place)
            and not (left >= 0 and j < place - left)
            and not (right >= 0 and j > place + right)
        )
    return out


def test_a_plain_node_with_shared_heads_of_keys() -> None:
    found = graphs.attention_of(node(), arrays())
    assert found.spec == Attention(heads=H, kv_heads=G)
    agree(found, loops(arrays(), D**-0.5, 0))


def test_heads_packed_into_the_last_axis() -> None:
    given = arrays()
    packed = {name: x.swapaxes(1, 2).reshape(B, x.shape[2], -1) for name, x in given.items()}
    found = graphs.attention_of(node(q_num_heads=H, kv_num_heads=G, scale=0.25), packed)
    assert found.spec == Attention(scale=0.25, heads=H, kv_heads=G)
    agree(found, loops(given, 0.25, 0).swapaxes(1, 2).reshape(B, N, H * E))


MASKS: dict[str, Any] = {
    "none": None,
    "float": lambda random, h, n_k: random.normal(size=(N, n_k)),
    "forbidding": lambda random, h, n_k: forbidden(random.random((B, 1, N, n_k)) < 0.7) + random.normal(size=n_k),
    "boolean": lambda random, h, n_k: random.random((B, h, N, n_k)) < 0.7,
    "heads": lambda random, h, n_k: random.normal(size=(h, N, n_k)),
    "keys": lambda random, h, n_k: random.random(n_k) < 0.7,
    "row": lambda random, h, n_k: random.random((1, n_k)) < 0.7,
    "rows": lambda random, h, n_k: random.normal(size=(B, 1, 1, n_k)),
    "short": lambda random, h, n_k: random.random((N, n_k - 1)) < 0.7,
    "short float": lambda random, h, n_k: random.normal(size=(B, 1, N, n_k - 1)),
}
WINDOWS = [(False, -1, -1), (True, -1, -1), (True, 1, -1), (False, 2, 1), (False, -1, 0), (True, 0, 2)]


@pytest.mark.parametrize("heads", [(H, G), (1, 1)])
@pytest.mark.parametrize("cache", ["none", "square", "past", "outside"])
@pytest.mark.parametrize("mask", MASKS)
def test_what_each_query_sees(heads: tuple[int, int], cache: str, mask: str) -> None:
    """The mask, the causal frontier and the window, at the place that the cache says."""
    g = heads[1]
    past = {"past_key": (B, g, 4, D), "past_value": (B, g, 4, E)} if cache == "past" else {}
    given = arrays(*heads, **past, **({"K": (B, g, N, D), "V": (B, g, N, E)} if cache == "square" else {}))
    whole = {**given, **{x: np.concatenate([given[p], given[x]], -2) for p, x in zip(past, "KV", strict=False)}}
    n_k = whole["K"].shape[-2]
    offsets, lengths = np.full(B, 4 if past else 0), np.full(B, n_k)
    inputs = "Q K V - past_key past_value" if past else "Q K V"
    if cache == "outside":
        given["nonpad_kv_seqlen"] = lengths = np.array([M, 2])
        offsets, inputs = lengths - N, "Q K V - - - nonpad_kv_seqlen"
    bias: Any = np.zeros(n_k)
    if mask != "none":
        given["attn_mask"] = drawn = MASKS[mask](np.random.default_rng(11), heads[0], n_k)
        inputs = inputs.replace(" -", " attn_mask", 1) if "-" in inputs else inputs + " attn_mask"
        if drawn.shape[-1] != n_k:
            drawn = np.concatenate([drawn, np.zeros((*drawn.shape[:-1], n_k - drawn.shape[-1]), drawn.dtype)], -1)
            lengths = np.minimum(lengths, given["attn_mask"].shape[-1])
        bias = forbidden(drawn) if drawn.dtype == bool else drawn
    for causal, left, right in WINDOWS:
        allowed = forbidden(seen(n_k, offsets, lengths, causal, left, right))
        made = node(inputs, is_causal=int(causal), left_window_size=left, right_window_size=right)
        agree(graphs.attention_of(made, given), loops(whole, D**-0.5, bias + allowed))


def test_the_frontier_is_a_field_where_there_is_one() -> None:
    assert graphs.attention_of(node(is_causal=1), arrays()).spec.alignment == "top-left"
    past = arrays(past_key=(B, G, 2, D), past_value=(B, G, 2, E), K=(B, G, N, D), V=(B, G, N, E))
    spec = graphs.attention_of(node("Q K V - past_key past_value", is_causal=1), past).spec
    assert (spec.causal, spec.alignment, spec.mask) == (True, "bottom-right", None)


def test_softcap_comes_before_the_mask() -> None:
    given = arrays() | {"attn_mask": forbidden(np.arange(M) < 3) + np.ones(M)}
    found = graphs.attention_of(node("Q K V attn_mask", softcap=0.5), given)
    agree(found, loops(given, D**-0.5, given["attn_mask"], cap=0.5))


@pytest.mark.parametrize("mode", range(4))
def test_what_is_shown_of_the_scores(mode: int) -> None:
    given = arrays() | {"attn_mask": np.random.default_rng(1).normal(size=(N, M))}
    made = node("Q K V attn_mask", "Y - - S", softcap=0.5, qk_matmul_output_mode=mode)
    scores = given["Q"] @ np.repeat(given["K"], H // G, axis=1).swapaxes(2, 3) / D**0.5
    capped = 0.5 * np.tanh(scores / 0.5)
    weights = np.exp(capped + given["attn_mask"])
    stages = (scores, capped, capped + given["attn_mask"], weights / weights.sum(-1, keepdims=True))
    np.testing.assert_allclose(graphs.attention_of(made, given).outputs["S"], stages[mode], rtol=1e-12)


def test_the_cache_comes_out_with_the_new_tokens() -> None:
    given = arrays(past_key=(B, G, 2, D), past_value=(B, G, 2, E))
    found = graphs.attention_of(node("Q K V - past_key past_value", "Y new_k new_v"), given).outputs
    np.testing.assert_array_equal(found["new_k"], np.concatenate([given["past_key"], given["K"]], axis=2))
    np.testing.assert_array_equal(found["new_v"], np.concatenate([given["past_value"], given["V"]], axis=2))


def test_exact_arrays() -> None:
    """Weights 1 : e in the first head and 1 : √e in the second, which share keys and values."""
    given = {"Q": [[[[1]], [["1/2"]]]], "K": [[[[0], [1]]]], "V": [[[[0], [4]]]]}
    found = graphs.attention_of(node(scale=1.0), {name: Exact.lift(x) for name, x in given.items()})
    assert (found.outputs["Y"] == Exact.lift([[[["4*exp(1)/(1+exp(1))"]], [["4*exp(1/2)/(1+exp(1/2))"]]]])).all()


def test_flex_attention() -> None:
    found = graphs.attention_of(node(operator="FlexAttention", domain="ai.onnx.preview", scale=0.5), arrays())
    assert found.spec == Attention(scale=0.5, heads=H, kv_heads=G)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (node(operator="Attention", domain="com.microsoft"), "com.microsoft.Attention is not read"),
        (node(operator="Softmax"), "Softmax is not read"),
        (node("Q K V", operator="FlexAttention", domain="ai.onnx.preview", q_num_heads=2), "unknown attribute"),
        (node(rotary=1), "unknown attribute 'rotary'"),
        (node("Q K V a b c d e"), "8 inputs"),
        (node("Q - V"), "no input K"),
        (node("Q K V attn_mask"), "no array is given for the input 'attn_mask'"),
        (node(q_num_heads=H, kv_num_heads=G), "belong to inputs of three axes"),
        (node(qk_matmul_output_mode=4), "qk_matmul_output_mode is 4"),
        (node(left_window_size=-2), "left_window_size must be -1"),
        (node("Q K V - Q"), "belong together"),
        (node("Q K V - K V V"), "nonpad_kv_seqlen is for a cache outside"),
        (node(operator="FlexAttention", domain="ai.onnx.preview", is_causal=1), "unknown attribute 'is_causal'"),
        (
            node(operator="FlexAttention", domain="ai.onnx.preview", score_mod=node()),
            "score_mod is a graph, and no field",
        ),
    ],
)
def test_refusals(made: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        graphs.attention_of(made, arrays())


def test_refusals_of_packed_heads() -> None:
    packed = {"Q": np.ones((B, N, 6)), "K": np.ones((B, M, 6)), "V": np.ones((B, M, 6))}
    refuses(graphs.attention_of, node(), packed, says="says how many heads")
    with pytest.raises(InputError, match="FlexAttention: Q, K and V must have four axes"):
        graphs.attention_of(node(operator="FlexAttention", domain="ai.onnx.preview"), packed)
    refuses(graphs.attention_of, node(q_num_heads=2, kv_num_heads=4), packed, says="does not divide the 6 columns of K")
    with pytest.raises(InputError, match="all have three axes, or all four"):
        graphs.attention_of(node(q_num_heads=2, kv_num_heads=2), packed | {"K": np.ones((B, 2, M, 3))})


def test_masks_whose_columns_are_not_those_of_the_keys() -> None:
    refuses(
        graphs.attention_of, node("Q K V attn_mask"), arrays(attn_mask=(N, M + 1)), says="6 columns; there are 5 keys"
    )
    with pytest.raises(InputError, match="one column; there are 5 keys: opset 23 repeats it, later ones hide"):
        graphs.attention_of(node("Q K V attn_mask"), arrays(attn_mask=(N, 1)))
    cache = arrays(attn_mask=(N, 1)) | {"nonpad_kv_seqlen": np.array([1, 1])}  # an input that opset 23 has not
    agree(
        graphs.attention_of(node("Q K V attn_mask - - nonpad_kv_seqlen"), cache),
        loops(cache, 1, forbidden(np.arange(M) < 1)),
    )
