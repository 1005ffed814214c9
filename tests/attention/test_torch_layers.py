"""Layers of torch are what the definitions say, to the rounding errors that their operations can make and no more.

The definition runs on ``rounded`` arrays: the exact value, and a bound on what any legal order of roundings may do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Block, Transformer, functional, rounded

pytestmark = pytest.mark.torch
E, H, F, B, N, M = 8, 2, 12, 2, 3, 4
DTYPES = ("float64", "float32")
CAUSAL = np.tri(N, dtype=bool)


# -- torch's parameters under this package's names: it multiplies by transposed weights -------------------------------
def array(tensor: Any) -> np.ndarray:
    found: np.ndarray = tensor.detach().numpy()
    return found


def linear(module: Any, weight: str, bias: str) -> dict[str, np.ndarray]:
    found = {weight: array(module.weight).T}
    return found if module.bias is None else found | {bias: array(module.bias)}


def attention(module: Any, packed: bool = False) -> dict[str, np.ndarray]:
    found = linear(module.out_proj, "w_o", "b_o")
    weights, bias = array(module.in_proj_weight), module.in_proj_bias
    if packed:
        return found | {"w_in": weights.T} | ({} if bias is None else {"b_in": array(bias)})
    found |= {f"w_{r}": w.T for r, w in zip("qkv", np.split(weights, 3), strict=True)}
    return found | ({} if bias is None else {f"b_{r}": b for r, b in zip("qkv", np.split(array(bias), 3), strict=True)})


def norm(module: Any) -> dict[str, np.ndarray]:
    found = {"gain": array(module.weight)}
    return found if module.bias is None else found | {"bias": array(module.bias)}


def under(part: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{part}.{n}": a for n, a in arrays.items()}


def layer(module: Any) -> dict[str, np.ndarray]:
    """The parameters of an encoder's or a decoder's layer."""
    found = under("attention", attention(module.self_attn)) | under("attention_norm", norm(module.norm1))
    last = module.norm2
    if hasattr(module, "multihead_attn"):
        found |= under("cross", attention(module.multihead_attn)) | under("cross_norm", norm(module.norm2))
        last = module.norm3
    found |= under("mlp", linear(module.linear1, "w_up", "b_up") | linear(module.linear2, "w_down", "b_down"))
    return found | under("mlp_norm", norm(last))


def made(kind: Any, dtype: str, seed: int = 0, **fields: Any) -> Any:
    """A module in evaluation, its parameters drawn at random and of a size as trained ones have."""
    import torch

    torch.manual_seed(seed)
    module = kind(**fields, dtype=getattr(torch, dtype))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.15)
    return module.eval()


def tokens(dtype: str, n: int, *batch: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed + n).normal(size=(*batch, n, E)).astype(dtype)


def tensors(*arrays: np.ndarray) -> Any:
    import torch

    return [torch.tensor(a) for a in arrays]


def lifted(dtype: str, given: dict[str, np.ndarray]) -> dict[str, Any]:
    kind = rounded(dtype)
    return {
        n: a if a.dtype == bool else kind.literal(a) if n.endswith("mask") else kind.lift(a) for n, a in given.items()
    }


def agree(spec: Any, dtype: str, given: dict[str, np.ndarray], theirs: Any, narrow: float = 2**14) -> None:
    """Theirs lies within the bound, which is narrow: so many units of the last place of 1 at most."""
    bound = spec(**lifted(dtype, given))
    got = array(theirs)
    assert got.shape == bound.shape
    assert got.dtype == dtype
    assert (bound.bound < narrow * np.finfo(dtype).eps).all()
    assert bound.within(got).all()


# -- multi-head attention ---------------------------------------------------------------------------------------------
def mha(dtype: str, **fields: Any) -> Any:
    import torch

    return made(torch.nn.MultiheadAttention, dtype, embed_dim=E, num_heads=H, **fields)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention_to_itself(dtype: str, bias: bool, packed: bool, need_weights: bool) -> None:
    module = mha(dtype, bias=bias, batch_first=True)
    x = tokens(dtype, N, B)
    theirs, _ = module(*tensors(x, x, x), need_weights=need_weights)
    agree(Attention(heads=H, packed=packed), dtype, {"x": x, **attention(module, packed)}, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch_first", [True, False])
def test_multi_head_attention_to_others(dtype: str, batch_first: bool) -> None:
    module = mha(dtype, batch_first=batch_first)
    x, y = tokens(dtype, N, B), tokens(dtype, M, B)
    queries, keys = tensors(x, y) if batch_first else tensors(x.swapaxes(0, 1), y.swapaxes(0, 1))
    theirs, _ = module(queries, keys, keys)
    theirs = theirs if batch_first else theirs.swapaxes(0, 1)
    agree(Attention(heads=H), dtype, {"x": x, "y": y, **attention(module)}, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("average", [True, False])
def test_the_weights_that_it_returns(dtype: str, average: bool) -> None:
    """The mean over the heads, or those of each head."""
    module = mha(dtype, batch_first=True)
    x, y = tokens(dtype, N, B), tokens(dtype, M, B)
    _, theirs = module(*tensors(x, y, y), average_attn_weights=average)

    def weights(**given: Any) -> Any:
        found = Attention(heads=H).trace(**given)["weights"]
        return found.xp.mean(found, axis=-3) if average else found

    agree(weights, dtype, {"x": x, "y": y, **attention(module)}, theirs)


def test_keys_and_values_of_another_width() -> None:
    module = mha("float64", bias=False, batch_first=True, kdim=7, vdim=7)
    x, y = tokens("float64", N, B), np.random.default_rng(6).normal(size=(B, M, 7))
    given = {"x": x, "y": y, "w_o": array(module.out_proj.weight).T}
    given |= {f"w_{r}": array(getattr(module, f"{r}_proj_weight")).T for r in "qkv"}
    agree(Attention(heads=H), "float64", given, module(*tensors(x, y, y))[0])


def test_a_causal_mask_with_and_without_the_hint() -> None:
    module, x = mha("float64", batch_first=True), tokens("float64", N, B)
    for hint in ({}, {"is_causal": True}):
        theirs, _ = module(*tensors(x, x, x), attn_mask=forbidden(), need_weights=False, **hint)
        agree(Attention(heads=H, causal=True), "float64", {"x": x, **attention(module)}, theirs)
        for wrong in (Attention(heads=H), Attention(heads=H, causal=True, scale=1), Attention(heads=1, causal=True)):
            with pytest.raises(AssertionError):
                agree(wrong, "float64", {"x": x, **attention(module)}, theirs)


KEEP = np.array([[True, True, False, True], [True, False, True, True]])
ALLOWED = np.array([[True, False, True, True], [True, True, False, True], [True, True, True, False]])
ADDED = np.where(ALLOWED, np.random.default_rng(2).normal(size=(N, M)), -np.inf)
EACH = np.random.default_rng(3).random((B, H, N, M)) < 0.6
EACH[..., 0] = True
MASKS: dict[str, tuple[Attention, dict[str, np.ndarray], dict[str, np.ndarray]]] = {
    "padding": (Attention(padding=True), {"keep": KEEP}, {"key_padding_mask": ~KEEP}),
    "boolean": (Attention(mask="boolean"), {"mask": ALLOWED}, {"attn_mask": ~ALLOWED}),
    "additive": (Attention(mask="additive"), {"mask": ADDED}, {"attn_mask": ADDED}),
    "each batch and head": (Attention(mask="boolean"), {"mask": EACH}, {"attn_mask": ~EACH.reshape(B * H, N, M)}),
    "both": (
        Attention(mask="boolean", padding=True),
        {"mask": ALLOWED, "keep": KEEP},
        {"attn_mask": ~ALLOWED, "key_padding_mask": ~KEEP},
    ),
    "causal, top-left, and padding": (
        Attention(padding=True, causal=True, alignment="top-left"),
        {"keep": KEEP},
        {"attn_mask": ~np.tri(N, M, dtype=bool), "key_padding_mask": ~KEEP},
    ),
    "additive and padding": (
        Attention(mask="additive", padding=True),
        {"mask": ADDED, "keep": KEEP},
        {"attn_mask": ADDED, "key_padding_mask": np.where(KEEP, 0, -np.inf)},
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("name", MASKS)
def test_masks_of_multi_head_attention(name: str, need_weights: bool, dtype: str) -> None:
    """torch's boolean masks say True where a query may *not* attend."""
    spec, ours, call = MASKS[name]
    module = mha(dtype, batch_first=True)
    x, y = tokens(dtype, N, B), tokens(dtype, M, B)
    call = {n: a if a.dtype == bool else a.astype(dtype) for n, a in call.items()}
    ours = {n: a if a.dtype == bool else a.astype(dtype) for n, a in ours.items()}
    masks = dict(zip(call, tensors(*call.values()), strict=True))
    theirs, _ = module(*tensors(x, y, y), need_weights=need_weights, **masks)
    agree(replace(spec, heads=H), dtype, {"x": x, "y": y, **attention(module), **ours}, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("need_weights", "gives"), [(True, "nan"), (False, "zeros")])
def test_a_row_fully_masked_depends_on_whether_weights_are_asked_for(
    need_weights: bool, gives: str, dtype: str
) -> None:
    """torch gives NaN where it hands out weights, and zeros before the output projection where it does not."""
    module = mha(dtype, batch_first=True)
    x, allowed = tokens(dtype, N, B), np.array([[True] * N, [False] * N, [True] * N])
    theirs, _ = module(*tensors(x, x, x), attn_mask=tensors(~allowed)[0], need_weights=need_weights)
    given = {"x": x, **attention(module), "mask": allowed}
    for fully_masked in ("zeros", "nan"):
        spec = Attention(heads=H, mask="boolean", fully_masked=fully_masked)
        if fully_masked == gives:
            agree(spec, dtype, given, theirs)
        else:
            with pytest.raises(AssertionError):
                agree(spec, dtype, given, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("need_weights", [True, False])
def test_a_key_of_zeros_is_softmax_off_by_one(dtype: str, need_weights: bool) -> None:
    """``add_zero_attn`` appends a key and a value of zeros: a sink with the logit 0."""
    module = mha(dtype, batch_first=True, add_zero_attn=True)
    x = tokens(dtype, N, B)
    theirs, _ = module(*tensors(x, x, x), need_weights=need_weights)
    given = {"x": x, **attention(module)}
    agree(Attention(heads=H, sink="zero"), dtype, given, theirs)
    with pytest.raises(AssertionError):
        agree(Attention(heads=H), dtype, given, theirs)


# -- layers of encoders and decoders ----------------------------------------------------------------------------------
def block(activation: str, norm_first: bool, causal: bool = False, cross: bool = False, padding: bool = False) -> Block:
    return Block(
        attention=Attention(heads=H, causal=causal, padding=padding),
        cross=Attention(heads=H, padding=padding) if cross else None,
        order="pre" if norm_first else "post",
        activation=activation,
        eps=1e-5,
    )


def fields(activation: str, norm_first: bool, **more: Any) -> dict[str, Any]:
    sizes = {"d_model": E, "nhead": H, "dim_feedforward": F, "dropout": 0.0, "batch_first": True}
    return sizes | {"activation": activation, "norm_first": norm_first} | more


@contextmanager
def path(fast: bool) -> Iterator[None]:
    """With torch's fused kernel for encoder layers, or without."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def forbidden(n: int = N) -> Any:
    import torch

    return torch.ones(n, n, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("causal", [True, False])
def test_layers_of_encoders(activation: str, norm_first: bool, fast: bool, dtype: str, causal: bool) -> None:
    import torch

    module = made(torch.nn.TransformerEncoderLayer, dtype, **fields(activation, norm_first))
    x = tokens(dtype, N, B)
    with path(fast):
        theirs = module(*tensors(x), src_mask=forbidden() if causal else None)
    agree(block(activation, norm_first, causal), dtype, {"x": x, **layer(module)}, theirs)


@pytest.mark.parametrize("fast", [True, False])
def test_padding_in_layers_of_encoders(fast: bool) -> None:
    import torch

    module = made(torch.nn.TransformerEncoderLayer, "float64", **fields("relu", True))
    x, keep = tokens("float64", M, B), KEEP
    with path(fast):
        theirs = module(*tensors(x), src_key_padding_mask=torch.tensor(~keep))
    given = {"x": x, **layer(module), "attention.keep": keep}
    agree(block("relu", True, padding=True), "float64", given, theirs)


@pytest.mark.parametrize(("fast", "gives"), [(True, "nan"), (False, "zeros")])
def test_a_sequence_that_is_all_padding_depends_on_the_path(fast: bool, gives: str) -> None:
    """torch's fused kernel for encoder layers gives NaN, the layer's own Python code does not."""
    import torch

    module = made(torch.nn.TransformerEncoderLayer, "float64", **fields("relu", True))
    x, keep = tokens("float64", N, B), np.array([[False] * N, [True] * N])
    with path(fast):
        theirs = module(*tensors(x), src_key_padding_mask=tensors(~keep)[0])
    right = block("relu", True, padding=True)
    right = replace(right, attention=replace(right.attention, fully_masked=gives))
    agree(right, "float64", {"x": x, **layer(module), "attention.keep": keep}, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_layers_of_decoders(activation: str, norm_first: bool, dtype: str, bias: bool) -> None:
    import torch

    module = made(torch.nn.TransformerDecoderLayer, dtype, **fields(activation, norm_first, bias=bias))
    x, y = tokens(dtype, N, B), tokens(dtype, M, B)
    with torch.no_grad():
        theirs = module(*tensors(x, y), tgt_mask=forbidden(), tgt_is_causal=True)
    agree(block(activation, norm_first, True, True), dtype, {"x": x, "y": y, **layer(module)}, theirs)


def test_another_block_does_not_agree() -> None:
    """Every field of a block shows."""
    import torch

    module = made(torch.nn.TransformerDecoderLayer, "float64", **fields("gelu", True))
    x, y = tokens("float64", N, B), tokens("float64", M, B)
    with torch.no_grad():
        theirs = module(*tensors(x, y), tgt_mask=forbidden())
    given = {"x": x, "y": y, **layer(module)}
    right = block("gelu", True, True, True)
    agree(right, "float64", given, theirs)
    for wrong in (
        replace(right, attention=Attention(heads=H)),
        replace(right, attention=Attention(heads=1, causal=True)),
        replace(right, cross=Attention(heads=H, scale=1)),
        replace(right, activation="gelu_tanh"),
        replace(right, activation="relu"),
        replace(right, order="post"),
        replace(right, norm="rms"),
        replace(right, eps=1e-2),
    ):
        with pytest.raises(AssertionError):
            agree(wrong, "float64", given, theirs)


@contextmanager
def watched(module: Any) -> Iterator[dict[str, tuple[Any, Any]]]:
    """What each part of a module was given last, and what it gave."""
    seen: dict[str, tuple[Any, Any]] = {}

    def keep(name: str) -> Any:
        return lambda _, given, result: seen.__setitem__(name, (given, result))

    hooks = [part.register_forward_hook(keep(name)) for name, part in module.named_modules()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm_first", [True, False])
def test_a_whole_transformer(norm_first: bool, dtype: str) -> None:
    """``torch.nn.Transformer`` has no embeddings: each token has a row of its own here, and logits are the tokens.

    Bounds grow from layer to layer, so each layer is compared on what torch gave it; that the layers are put together
    as here is seen in float64, in which the bound of the whole is still narrow.
    """
    import torch

    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    module = made(torch.nn.Transformer, dtype, **fields("relu", norm_first, **sizes))
    y, x = tokens(dtype, M), tokens(dtype, N)
    with path(fast=False), watched(module) as seen:
        theirs = module(*tensors(y[None], x[None]), tgt_mask=forbidden())[0]
    blocks = {"encoder": block("relu", norm_first), "decoder": block("relu", norm_first, True, True)}
    given = {"embedding": x, "source_embedding": y, "unembedding": np.eye(E, dtype=dtype)}
    for name, stack in (("encoder", module.encoder), ("decoder", module.decoder)):
        for i, part in enumerate(stack.layers):
            arrays, result = seen[f"{name}.layers.{i}"]
            read = dict(zip("xy", map(array, arrays), strict=False))
            agree(blocks[name], dtype, {**read, **layer(part)}, result)
            given |= under(f"{name}.{i}", layer(part))
        (tokens_before, *_), result = seen[f"{name}.norm"]
        agree(layer_norm_of(1e-5), dtype, {"x": array(tokens_before), **norm(stack.norm)}, result)
        given |= under(f"{name}_norm", norm(stack.norm))
    if dtype == "float64":
        stacks = {name: (made_of,) * 2 for name, made_of in blocks.items()}
        model = Transformer(**stacks, eps=1e-5)
        agree(lambda **g: model(np.arange(N), np.arange(M), **g), dtype, given, theirs, narrow=2**36)


def layer_norm_of(eps: float) -> Any:
    return lambda x, **given: functional.layer_norm(x, eps, **given)


def test_layer_norm_of_tokens_far_from_zero() -> None:
    """torch computes x/σ − mean/σ, another formula, and stays within the errors of (x − mean)/σ."""
    import torch

    module = made(torch.nn.LayerNorm, "float32", normalized_shape=E)
    x = tokens("float32", N)
    agree(layer_norm_of(1e-5), "float32", {"x": x, **norm(module)}, module(*tensors(x)))
    far = x + np.float32(2**8)
    agree(layer_norm_of(1e-5), "float32", {"x": far, **norm(module)}, module(*tensors(far)))
