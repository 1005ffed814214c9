"""A call of attention: the arguments that it received, copied before it ran, and what it returned."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.sharp.sample import chosen
from symattn.document.errors import Refused
from symattn.models.auditing import call_judge
from symattn.models.auditing.setting import (
    Args,
    CallSetting,
    Floats,
    Kwargs,
    Mask,
    Module,
    Tensor,
    allowed_of,
    heads_apart,
    numbers,
    rows_of,
    visible,
)
from symattn.programs.frameworks import dtype_name
from symattn.programs.names import Function


class UnreadCall(Refused):
    """Raised for a call that cannot be read; the message says why."""


@dataclass
class Received:
    """The arguments of one call, as tensors: q (b, h, n_q, d_k), k (b, g, n_k, d_k), v (b, g, n_k, d_v).

    ``masks`` are booleans (True may attend) or are added; ``places`` specifies the mask by positions, counted from the
    first query and key (``alignment="top-left"``), as torch does, or from the last. ``eager`` says that scores may be
    stored in the input's format. ``window`` is the argument of this name, even if the function does not read it.
    """

    via: str
    q: Tensor
    k: Tensor
    v: Tensor
    masks: Sequence[Tensor] = ()
    scale: float | None = None
    softcap: float | None = None
    sink: Tensor | None = None
    places: Attention = field(default_factory=Attention)
    dropout: float = 0.0
    eager: bool = False
    module: Module | None = None
    name: str = ""
    grouped: bool = True
    window: int | None = None

    @property
    def learned(self) -> list[Tensor]:
        """The masks that require a gradient."""
        return [m for m in self.masks if getattr(m, "requires_grad", False)]


def _join_masks(*masks: Mask | None) -> Mask | None:
    """Return the intersection of all masks."""
    parts = [m for m in masks if m is not None]
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    combined: Mask = np.logical_and.reduce(np.broadcast_arrays(*parts))
    return combined


@dataclass
class AttentionCall:
    """A call that was read: what it received, its sizes, the indices of the judged queries, and their results."""

    received: Received
    n_q: int
    n_k: int
    rows: list[int]
    given: CallSetting
    arithmetic: Precision
    got: Floats | None = None

    def allowed(self, rows: Sequence[int]) -> Mask:
        """Return which keys these queries may see by the call's masks, (b or 1, h or 1, r, n_k)."""
        masks = [
            allowed_of(rows_of(m, rows, self.n_k)) for m in self.received.masks if m is not None
        ]
        places = visible(self.received.places, list(rows), self.n_q, self.n_k)
        # One mask of places serves all items and heads.
        return np.asarray(_join_masks(places[None, None], *masks))

    def returned(self, out: Tensor, heads_last: bool = False) -> None:
        """Keep the judged rows of the result, (b, h, n_q, d_v), or (b, n_q, h, d_v) with ``heads_last``.

        Raises ``UnreadCall`` for anything but such an array.
        """
        q, v = self.given.q, self.given.v
        shape = (*q.shape[:2], self.n_q, v.shape[-1])
        if not hasattr(out, "shape"):
            raise UnreadCall(f"it returned {type(out).__name__}, no tensor")
        whole = heads_apart(out)
        whole = whole.transpose(1, 2) if heads_last else whole
        # Any other shape has no meaning here.
        if tuple(whole.shape) != shape:
            raise UnreadCall(f"it returned an array of the shape {tuple(out.shape)} for {shape}")
        self.got = numbers(whole[:, :, self.rows])


def read(
    received: Received,
    count: int | None,
    contract: str | None,
    specs: list[Attention],
    dropping: bool = False,
) -> AttentionCall:
    """Copy what is needed to judge a call. Raises ``UnreadCall`` for a call without an exact result.

    With ``dropping``, a call with dropout is read as well; what it drops has to be found separately.
    """
    q, k, v = (heads_apart(t) for t in (received.q, received.k, received.v))
    dtype = _select_coarsest_format(received, q, k, v)
    if received.dropout and not dropping:
        raise UnreadCall(
            f"dropout of {received.dropout:g} is on: what it drops is unknown; hint: model.eval()"
        )
    if 0 in (*q.shape, *k.shape, *v.shape):
        raise UnreadCall("an array is empty")
    h = int(q.shape[1])
    g = int(k.shape[1])
    # Each head of keys serves equally many heads of queries, one each unless groups are allowed.
    if h % g or int(v.shape[1]) != g or (g not in (1, h) and not received.grouped):
        raise UnreadCall(f"{h} heads of queries meet {g} of keys and {int(v.shape[1])} of values")
    n_q = int(q.shape[-2])
    n_k = int(k.shape[-2])
    first_mask = next(iter(received.masks), None)
    rows = _chosen_rows(n_q, n_k, count, [*specs, received.places], first_mask)
    setting = setting_of(received, rows)
    chosen = contract or ("eager" if received.eager else "fused")
    arithmetic = call_judge.arithmetic_of(dtype, "eager" if chosen == "eager" else "fused")
    return AttentionCall(received, n_q, n_k, rows, setting, arithmetic)


def _chosen_rows(
    n_q: int, n_k: int, count: int | None, specs: list[Attention], mask: Tensor | None = None
) -> list[int]:
    """The indices of the queries to judge: about ``count`` of them, or all for None.

    They include those at the edges of tiles and of windows, by the specifications or by the first key of a given mask.
    """
    if count is None or count >= n_q:
        return list(range(n_q))
    rows: set[int] = set()
    # Only the shapes matter, so that broadcast zeros spare memory.
    shapes = {"q": np.broadcast_to(0.0, (n_q, 1)), "k": np.broadcast_to(0.0, (n_k, 1))}
    for spec in specs or [Attention()]:
        rows |= set(chosen(spec, shapes, count))
    if mask is not None and hasattr(mask, "ndim") and mask.ndim > 1 and mask.shape[-2] == n_q:
        # the rows where the first key becomes visible or hidden, in the first item
        open_ = allowed_of(mask[(0,) * (mask.ndim - 2)][:, 0])
        changes = np.flatnonzero(open_[1:] != open_[:-1])[:2]
        rows |= {int(at) + after for at in changes for after in (0, 1)}
    return sorted(rows)


def setting_of(received: Received, rows: Sequence[int]) -> CallSetting:
    """Return the call for its queries ``rows``, as numbers."""
    q, k, v = (heads_apart(t) for t in (received.q, received.k, received.v))
    n_q = int(q.shape[-2])
    n_k = int(k.shape[-2])
    pairs = [_mask_of_tensor(m, rows, n_k) for m in received.masks if m is not None]
    places = (
        visible(received.places, list(rows), n_q, n_k)[None, None]
        if received.places.masks_anything
        else None
    )
    # A batch of 1 in one array meets all items of the others.
    batch = max(int(t.shape[0]) for t in (q, k, v))
    arrays = (numbers(t) for t in (q[:, :, rows], k, v))
    of_whole_batch = (np.broadcast_to(a, (batch, *a.shape[1:])) for a in arrays)
    queries, keys, values = map(np.ascontiguousarray, of_whole_batch)
    return CallSetting(
        queries,
        keys,
        values,
        scale=1 / sqrt(q.shape[-1]) if received.scale is None else float(received.scale),
        softcap=None if received.softcap is None else float(received.softcap),
        sink=None if received.sink is None else numbers(received.sink).reshape(-1),
        allowed=_join_masks(places, *(allowed for allowed, _ in pairs)),
        bias=_sum_biases(*(bias for _, bias in pairs)),
        biases=sum(bias is not None for _, bias in pairs),
    )


def _mask_of_tensor(
    tensor: Tensor, rows: Sequence[int], keys: int
) -> tuple[Mask | None, Floats | None]:
    """Return which scores a mask allows, and the finite part of one that is added; None for one without effect.

    ``True`` may attend. Numbers that are at most −10⁴ forbid, such as ``finfo.min``; others are a bias.
    """
    array = rows_of(tensor, rows, keys)
    allowed = allowed_of(array)
    bias = None if dtype_name(array) == "bool" else np.where(allowed, numbers(array), 0.0)
    return (None if allowed.all() else allowed), (bias if bias is not None and bias.any() else None)


def _sum_biases(*biases: Floats | None) -> Floats | None:
    """Return the sum of the biases that are not None; None if all are."""
    terms = [b for b in biases if b is not None]
    return sum(terms[1:], terms[0]) if terms else None


def _select_coarsest_format(received: Received, *arrays: object) -> str:
    """Return the format to judge the call by, the coarsest: attention in operators may widen some of its arrays."""
    formats = {dtype_name(t) for t in arrays}
    for dtype in formats:
        if dtype not in FORMATS:
            raise UnreadCall(f"an input is of {dtype}, whose arithmetic is unknown")
    if len(formats) > 1 and received.via != "operators":
        raise UnreadCall(f"q, k, v are of {', '.join(dtype_name(t) for t in arrays)}")
    return max(formats, key=lambda dtype: Format(dtype).u)


# -- the two functions that most attention goes through ----------------------------------------------------------------
# The arguments of these two functions, by name.
#
# Transformers' attention functions (eager, sdpa, flex, flash) take a module, queries, keys, values and a mask, and by
# keyword a scale, a cap, sinks, a window and a positional bias. ``scaled_dot_product_attention`` is torch's.

#: Array arguments of attention functions besides the first five.
_ARRAYS = ("s_aux", "sinks", "position_bias", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k")
# The first five parameters of attention functions of Transformers, in their order.
_FIRST = ("module", "query", "key", "value", "attention_mask")
# The parameters of ``scaled_dot_product_attention``, in their order.
_TORCH = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def of_transformers(function: Function, name: str | None, args: Args, kwargs: Kwargs) -> Received:
    """Read the call of an attention function of Transformers. Raises ``UnreadCall`` if its meaning is unknown."""
    own = getattr(function, "__name__", "")
    # The function's own name counts too, since a model may register it under another one.
    known = (
        kind for kind in ("sdpa", "flex", "flash", "paged") if kind in own or kind in (name or "")
    )
    kind = next(known, "eager" if name in (None, "eager") else str(name))
    return of_arguments(kind, _bind_attention_arguments(function, args, kwargs))


def of_arguments(kind: str, inputs: Mapping[str, Tensor]) -> Received:
    """Return what an attention function of this kind receives. Raises ``UnreadCall`` if its meaning is unknown."""
    module, q, k = inputs.get("module"), inputs["query"], inputs["key"]
    # Keys in pages are not among the arguments.
    if inputs.get("cache") is not None:
        raise UnreadCall("a paged cache holds the keys")
    mask = _densify_mask_argument(inputs.get("attention_mask"), q, k)
    if kind == "flash":
        _check_packing(inputs)
        # Flash functions take padding (b, n_k), and not a mask.
        mask = _convert_flash_padding(mask, q, k)
    return Received(
        via=f"transformers {kind}",
        q=q,
        k=k,
        v=inputs["value"],
        masks=[m for m in (mask, inputs.get("position_bias")) if m is not None],
        scale=inputs.get("scaling"),
        softcap=inputs.get("softcap"),
        sink=_read_sinks_per_head(inputs, int(q.shape[1])),
        places=_infer_mask_of_function(kind, inputs, module, mask is None, int(q.shape[-2])),
        dropout=float(inputs.get("dropout") or 0.0),
        eager=kind == "eager",
        module=module,
        window=inputs.get("sliding_window"),
    )


def of_torch(args: Args, kwargs: Kwargs) -> Received:
    """Read a call of ``scaled_dot_product_attention``."""
    # Positional arguments in the order of torch.
    arguments = dict(zip(_TORCH, args, strict=False)) | kwargs
    causal = bool(arguments.get("is_causal"))
    mask = arguments.get("attn_mask")
    return Received(
        via="torch sdpa",
        q=arguments["query"],
        k=arguments["key"],
        v=arguments["value"],
        masks=[] if mask is None else [mask],
        scale=arguments.get("scale"),
        # torch aligns is_causal top-left.
        places=Attention(causal=causal, alignment="top-left"),
        dropout=float(arguments.get("dropout_p") or 0.0),
        grouped=bool(arguments.get("enable_gqa")),
    )


def _bind_attention_arguments(function: Function, args: Args, kwargs: Kwargs) -> dict[str, Tensor]:
    """Return the arguments by name.

    Raises ``UnreadCall`` if the function has a parameter for an array whose effect is unknown, and it is given.
    """
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        # Without a signature, the first arguments are bound by their places.
        return dict(zip(_FIRST, args, strict=False)) | dict(kwargs)
    inputs, parameters = dict(bound.arguments), bound.signature.parameters.values()
    # Arguments of ``**kwargs`` stand beside the others.
    for name in (p.name for p in parameters if p.kind is p.VAR_KEYWORD):
        inputs |= inputs.pop(name, {})
    inputs = dict(zip(_FIRST, bound.args[:5], strict=False)) | inputs
    # Such an array might change the result, so that the call cannot be judged.
    for name in [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][5:]:
        if hasattr(inputs.get(name), "dtype") and name not in _ARRAYS:
            raise UnreadCall(f"its argument {name} is an array whose effect is unknown")
    return inputs


def _read_sinks_per_head(inputs: Mapping[str, Tensor], heads: int) -> Tensor:
    """Return one sink per head, by either of its names. Raises ``UnreadCall`` for sinks of another shape."""
    result = [sinks for name in ("s_aux", "sinks") if (sinks := inputs.get(name)) is not None]
    if result and result[0].numel() != heads:
        raise UnreadCall(
            f"its sinks have the shape {tuple(result[0].shape)}, and are not one number for each of {heads} heads"
        )
    return result[0] if result else None


def _infer_mask_of_function(
    kind: str, inputs: Mapping[str, Tensor], module: Module, bare: bool, n_q: int
) -> Attention:
    """Return the mask that a function itself applies if it is given none, as its code says."""
    result = inputs.get("is_causal")
    # The last query sees all keys, whether the mask is causal or not.
    causal = bool(getattr(module, "is_causal", True) if result is None else result) and n_q > 1
    if kind == "sdpa":
        # torch's function takes a mask or ``is_causal``, not both.
        return Attention(causal=causal and bare, alignment="top-left")
    if kind == "flash":
        # not causal: as far on either side as before a query under a causal mask
        window = inputs.get("sliding_window")
        return Attention(
            causal=causal, window=window if causal or window is None else (window - 1, window - 1)
        )
    return Attention()


def _check_packing(inputs: Mapping[str, Tensor]) -> None:
    """Raise ``UnreadCall`` for packed documents, which flash functions accept."""
    if any(
        inputs.get(name) is not None
        for name in ("cu_seq_lens_q", "cu_seq_lens_k", "cu_seqlens_q", "cu_seqlens_k")
    ):
        raise UnreadCall("its sequences are packed: cu_seq_lens is not read")
    places = inputs.get("position_ids")
    # With a mask, flash functions do not look for packed sequences.
    if places is None or inputs.get("attention_mask") is not None:
        return
    if bool((places.diff(dim=-1) != 1).any()):
        raise UnreadCall("its position_ids begin anew: packed sequences are not read")


def _convert_flash_padding(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return the mask of a flash function, applied to keys and also to queries, which are the last tokens.

    Given is (b, n_k), nonzero for tokens. A single query is not padding. Raises ``UnreadCall`` for another form.
    """
    if mask is None:
        return None
    n_q = int(q.shape[-2])
    size = (int(k.shape[0]), int(k.shape[-2]))
    if tuple(mask.shape) != size:
        raise UnreadCall(f"its mask has the shape {tuple(mask.shape)}, and padding has {size}")
    keep = mask.bool()
    keys = keep[:, None, None, :]
    # Queries are the last tokens; a single one is never padding.
    return keys if n_q == 1 else keys & keep[:, None, -n_q:, None]


def _densify_mask_argument(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return a mask as a tensor. Raises ``UnreadCall`` for an unknown form."""
    if mask is None or hasattr(mask, "dtype"):
        return mask
    # A block mask of flex attention is a function of indices.
    if hasattr(mask, "mask_mod"):
        from torch.nn.attention.flex_attention import create_mask

        n_q = int(q.shape[-2])
        n_k = int(k.shape[-2])
        sizes = (int(q.shape[0]), None, n_q, n_k)
        return create_mask(mask.mask_mod, *sizes, device=str(q.device))
    raise UnreadCall(f"its mask is {type(mask).__name__}, an unknown form")


# -- the fast path -----------------------------------------------------------------------------------------------------
# torch's fast path, in which a layer of attention is one operator: the attention in it, and its result.
#
# Such an operator returns a result after the output projection, and for a layer of an encoder after norms and the
# feed-forward layer as well. So its attention is run again by itself, by torch's operator for attention, with the
# identity in place of that projection: a product with it changes no number. Queries, keys and values come from the
# operators that the fast path uses. These scale queries, unless an accelerator passes sequences without a mask to a
# fused kernel, which scales the scores. Neither the output projection nor anything after it is judged. Source:
# PyTorch, aten/src/ATen/native/transformers/attention.cpp and cuda/attention.cu.

# the axes of a mask: queries and keys, items and keys, or all with heads
_SRC = 0
_ITEM = 1
_WHOLE = 2


def inside(name: str, args: Args, kwargs: Kwargs, module: Module) -> tuple[Received, Tensor]:
    """Read the attention in a layer, and its output (b, h, n, d). Raises ``UnreadCall`` if it is unknown."""
    import torch

    # Arguments by place get the names of the operator's schema.
    names = [a.name for a in getattr(torch.ops.aten, name).default._schema.arguments]
    arguments = dict(zip(names, args, strict=False)) | dict(kwargs)
    x = _read_projection_input(arguments)
    h, packed, bias = (
        int(arguments.get("num_head") or arguments["num_heads"]),
        arguments["qkv_weight"],
        arguments["qkv_bias"],
    )
    out = _rerun_fused_attention(x, arguments, h)
    wide, keep = _pad_nested_sequences(x)
    scaled = _are_queries_scaled_first(x, arguments.get("mask"))
    if scaled:  # by the operators of the fast path
        projected = torch.matmul(wide, packed.mT)
        q, k, v = torch._transform_bias_rescale_qkv(projected, bias, h)
    else:
        q, k, v = _project_packed_qkv(wide, packed, bias, h)
    masks = [
        m
        for m in (
            keep,
            _convert_layer_mask(
                arguments.get("mask"), arguments.get("mask_type"), tuple(wide.shape[:2])
            ),
        )
        if m is not None
    ]
    scale = 1.0 if scaled else None
    received = Received("torch fast path", q, k, v, masks, scale=scale, eager=True, module=module)
    return received, out.reshape(*out.shape[:2], h, -1).transpose(1, 2)


def _read_projection_input(inputs: Kwargs) -> Tensor:
    """Return the input of the projections, (b, n, d_model), or sequences of different lengths."""
    import torch

    if "src" not in inputs:
        # The fast path projects one array to queries, keys and values.
        if inputs["key"] is not inputs["query"] or inputs["value"] is not inputs["query"]:
            raise UnreadCall("its keys are of other tokens than its queries")
        return inputs["query"]
    x = inputs["src"]
    if not inputs["norm_first"]:
        return x
    gain, shift = inputs["norm_weight_1"], inputs["norm_bias_1"]
    width, eps = x.shape[-1], inputs["eps"]
    return torch.nn.functional.layer_norm(x, (width,), gain, shift, eps)


def _rerun_fused_attention(x: Tensor, inputs: Kwargs, h: int) -> Tensor:
    """Run the attention alone and return its result, heads side by side, (b, n, d_model)."""
    import torch

    proj = inputs["proj_weight"]
    one, none = (
        torch.eye(len(proj), dtype=proj.dtype, device=proj.device),
        torch.zeros_like(inputs["proj_bias"]),
    )
    packed = inputs["qkv_weight"], inputs["qkv_bias"]
    # Whether weights are requested, as by default, may decide which kernel runs; a layer of an encoder requests none.
    rest = (
        inputs.get("mask"),
        bool(inputs.get("need_weights", "src" not in inputs)),
        True,
        inputs.get("mask_type"),
    )
    out = torch._native_multi_head_attention(
        x, x, x, int(inputs["embed_dim"]), h, *packed, one, none, *rest
    )[0]
    return _pad_nested_sequences(out)[0]


def _pad_nested_sequences(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return sequences of different lengths in one array, and which tokens meet, (b, 1, n, n); None: all."""
    import torch

    if not x.is_nested:
        return x, None
    lengths = torch.tensor([len(item) for item in x.unbind()], device=x.device)
    # Padded with zeros, which the mask hides.
    wide = x.to_padded_tensor(0.0)
    there = torch.arange(wide.shape[1], device=x.device) < lengths[:, None]
    return wide, there[:, None, None] & there[:, None, :, None]


def _are_queries_scaled_first(x: Tensor, mask: Tensor) -> bool:
    """Return whether queries are scaled before they meet keys."""
    return x.device.type == "cpu" or mask is not None


def _project_packed_qkv(x: Tensor, packed: Tensor, bias: Tensor, h: int) -> Sequence[Tensor]:
    """Return q, k, v (b, h, n, d) as a fused kernel receives them."""
    import torch

    parts = torch.nn.functional.linear(x, packed, bias).chunk(3, -1)
    by_heads = (part.reshape(*part.shape[:2], h, -1) for part in parts)
    return [part.transpose(1, 2) for part in by_heads]


def _convert_layer_mask(mask: Tensor, kind: int | None, sizes: tuple[int, int]) -> Tensor:
    """Return a mask in the form of ``Received``: True may attend, or it is added. Raises ``UnreadCall`` for others."""
    if mask is None:
        return None
    forms = {_SRC: (sizes[1], sizes[1]), _ITEM: sizes}
    # A kind of mask without a form here compares with None, and is refused.
    if kind != _WHOLE and tuple(mask.shape) != forms.get(-1 if kind is None else kind):
        raise UnreadCall(f"its mask has the shape {tuple(mask.shape)}, an unknown form")
    whole = mask[:, None, None] if kind == _ITEM else mask
    return ~whole if dtype_name(whole) == "bool" else whole
