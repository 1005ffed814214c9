"""torch's fast path, in which a layer of attention is one operator: what it attends to, and with which result.

Such an operator returns what comes after the projection of the output, and in a layer of an encoder after norms and the
feed-forward layer, too. So its attention is run once more by itself, by torch's operator for attention, with the
identity in the place of that projection: a product with it changes no number. Queries, keys and values come from the
operators that it makes them with. Queries are scaled in them, except where an accelerator hands sequences without a
mask to a fused kernel, which scales the scores. The projection of the output is not judged, nor is anything after it.
Source: PyTorch, aten/src/ATen/native/transformers/attention.cpp and cuda/attention.cu.
"""

from __future__ import annotations

from typing import Any

from symattn.models.auditing.received import Received, UnreadCall
from symattn.models.auditing.tensor_numbers import dtype_of

LAYERS = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")
_SRC, _ITEM, _WHOLE = 0, 1, 2  # which axes a mask has: of queries and keys, of items and keys, or of all with heads


def inside(name: str, args: Any, kwargs: Any, module: Any) -> tuple[Received, Any]:
    """Read the attention in a layer, and its output (b, h, n, d). Raises ``UnreadCall`` where it is not known."""
    import torch

    names = [a.name for a in getattr(torch.ops.aten, name).default._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    x = _tokens(given)
    h, packed, bias = int(given.get("num_head") or given["num_heads"]), given["qkv_weight"], given["qkv_bias"]
    out = _again(x, given, h)
    wide, keep = _padded(x)
    scaled = _scaled(x, given.get("mask"))
    q, k, v = (_projected if scaled else _unscaled)(wide, packed, bias, h)
    masks = [
        m for m in (keep, _mask(given.get("mask"), given.get("mask_type"), tuple(wide.shape[:2]))) if m is not None
    ]
    scale = 1.0 if scaled else None
    received = Received("torch fast path", q, k, v, masks, scale=scale, eager=True, module=module)
    return received, out.reshape(*out.shape[:2], h, -1).transpose(1, 2)


def _tokens(given: dict[str, Any]) -> Any:
    """Return the input of the projections, (b, n, d_model), or sequences of several lengths."""
    import torch

    if "src" not in given:
        if given["key"] is not given["query"] or given["value"] is not given["query"]:
            raise UnreadCall("its keys are of other tokens than its queries")
        return given["query"]
    x = given["src"]
    if not given["norm_first"]:
        return x
    gain, shift = given["norm_weight_1"], given["norm_bias_1"]
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), gain, shift, given["eps"])


def _again(x: Any, given: dict[str, Any], h: int) -> Any:
    """The attention alone, heads side by side, (b, n, d_model)."""
    import torch

    proj = given["proj_weight"]
    one, none = torch.eye(len(proj), dtype=proj.dtype, device=proj.device), torch.zeros_like(given["proj_bias"])
    packed = given["qkv_weight"], given["qkv_bias"]
    # Whether weights are asked for, as by default, may decide which kernel runs; a layer of an encoder asks for none.
    rest = given.get("mask"), bool(given.get("need_weights", "src" not in given)), True, given.get("mask_type")
    out = torch._native_multi_head_attention(x, x, x, int(given["embed_dim"]), h, *packed, one, none, *rest)[0]
    return _padded(out)[0]


def _padded(x: Any) -> tuple[Any, Any]:
    """Sequences of several lengths in one array, and what meets in it, (b, 1, n, n); None: everything."""
    import torch

    if not x.is_nested:
        return x, None
    lengths = torch.tensor([len(item) for item in x.unbind()], device=x.device)
    wide = x.to_padded_tensor(0.0)
    there = torch.arange(wide.shape[1], device=x.device) < lengths[:, None]
    return wide, there[:, None, None] & there[:, None, :, None]


def _scaled(x: Any, mask: Any) -> bool:
    """Return whether queries are scaled before they meet keys."""
    return x.device.type == "cpu" or mask is not None


def _projected(x: Any, packed: Any, bias: Any, h: int) -> Any:
    """q, k, v (b, h, n, d), the queries scaled, by the operators of the fast path."""
    import torch

    return torch._transform_bias_rescale_qkv(torch.matmul(x, packed.mT), bias, h)


def _unscaled(x: Any, packed: Any, bias: Any, h: int) -> Any:
    """q, k, v (b, h, n, d) as a fused kernel gets them."""
    import torch

    parts = torch.nn.functional.linear(x, packed, bias).chunk(3, -1)
    return [part.reshape(*part.shape[:2], h, -1).transpose(1, 2) for part in parts]


def _mask(mask: Any, kind: int | None, sizes: tuple[int, int]) -> Any:
    """A mask as ``Received`` has it: True may attend, or it is added. Raises ``UnreadCall`` for another form."""
    if mask is None:
        return None
    forms = {_SRC: (sizes[1], sizes[1]), _ITEM: sizes}
    if kind != _WHOLE and tuple(mask.shape) != forms.get(-1 if kind is None else kind):
        raise UnreadCall(f"its mask has the shape {tuple(mask.shape)}, an unknown form")
    whole = mask[:, None, None] if kind == _ITEM else mask
    return ~whole if dtype_of(whole) == "bool" else whole
