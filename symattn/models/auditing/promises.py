"""The promises of a model's configuration for a call of attention, given the model's arguments, padding and cache.

The bias by position that it promises, ALiBi's or that of T5's buckets, is compared with the one that a call received.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.formats import FORMATS, Format
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary
from symattn.attention.positions.relative import slope_exponents
from symattn.attention.spec import Attention
from symattn.bounds.sharp.ways import scale_of
from symattn.document.errors import SymattnError
from symattn.models.auditing.dependence.causality import promised_causal
from symattn.models.auditing.received import AttentionCall
from symattn.models.auditing.setting import (
    Args,
    CallSetting,
    Floats,
    Kwargs,
    Mask,
    Masking,
    Module,
    Tensor,
    numbers,
    rows_of,
)
from symattn.models.configurations import promised_layers
from symattn.programs.frameworks import dtype_name

NO_CONFIGURATION = "there is no configuration"


class NoPromise(Exception):
    """Raised if it is unknown what is promised; the message says why."""


@dataclass(frozen=True)
class ModelCall:
    """A call of a model of Transformers: the model, its arguments, and how many tokens its cache held before.

    ``lossy``: the cache may return other numbers than it is given. ``compared`` holds comparisons of masks, which
    layers share.
    """

    model: Module
    arguments: Mapping[str, Tensor]
    past: int
    lossy: bool = False
    compared: dict[object, Any] = field(default_factory=dict, compare=False)

    @property
    def config(self) -> Any:
        """Return the configuration of the model."""
        return getattr(self.model, "config", None)

    @property
    def caches(self) -> bool:
        """Return whether keys go into a cache: Transformers then does not look for packed documents."""
        result = self.arguments.get("use_cache")
        has_cache = cache_in(self.arguments) is not None
        return has_cache or bool(
            getattr(self.config, "use_cache", False) if result is None else result
        )

    def padding(self, name: str, total: int) -> Mask | None:
        """Return a mask of two axes as booleans (b, total); None if there is none, or if it keeps all tokens.

        Raises ``NoPromise`` for a mask of another form.
        """
        mask = self.arguments.get(name)
        if mask is None:
            return None
        if not hasattr(mask, "ndim") or mask.ndim != 2:
            raise NoPromise(
                f"{name} of the caller is not a mask of two axes, so its meaning is unknown"
            )
        keep = mask.detach().cpu().numpy().astype(bool)
        # A mask that is too short cannot say what the other tokens are.
        if keep.shape[1] < total:
            raise NoPromise(f"{name} is of {keep.shape[1]} tokens, and there are {total}")
        keep = keep[:, :total]
        # A mask that keeps all tokens masks nothing.
        return None if keep.all() else keep

    def documents(self, total: int) -> NDArray[np.int64] | None:
        """Return labels (b, total) of packed documents, at whose starts position_ids restart; None without any."""
        places = self.arguments.get("position_ids")
        if places is None or self.arguments.get("attention_mask") is not None or places.ndim != 2:
            return None
        at = places.detach().cpu().numpy()
        # Positions of a part of the tokens say nothing of the others.
        if at.shape[1] != total:
            return None
        labels: NDArray[np.int64] = np.cumsum(
            np.diff(at, axis=1, prepend=at[:, :1] - 1) != 1, axis=1
        )
        return labels if labels.any() else None


def context_of(model: Module, args: Args, kwargs: Kwargs) -> ModelCall:
    """Return the record of a model's call. A static cache's length is a live tensor, so it is read at once."""
    inputs = dict(kwargs)
    if args:
        # Arguments that do not fit raise in the model itself.
        with suppress(TypeError):
            inputs = dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)
    cache = cache_in(inputs)
    length = getattr(cache, "get_seq_length", None)
    return ModelCall(
        model, inputs, int(length()) if length is not None else 0, _is_cache_lossy(cache)
    )


def cache_in(arguments: Mapping[str, Any]) -> Any:
    """Return the cache among arguments of a model of Transformers, by its name from 5.24 on, or by the former one."""
    return next(
        (
            arguments[name]
            for name in ("cache", "past_key_values")
            if arguments.get(name) is not None
        ),
        None,
    )


def _is_cache_lossy(cache: object) -> bool:
    """Return whether a cache may return other numbers than it is given.

    It may have quantized some, as Transformers' layers with ``nbits`` or ``fp8_dtype`` do after their first call, or
    its code is not from Transformers, so that its effect is unknown.
    """
    if cache is None:
        return False
    layers = list(getattr(cache, "layers", ()))
    # Code of other modules may do anything to the numbers.
    codes = [getattr(type(part), "update", None) for part in (cache, *layers)]
    if any(getattr(code, "__module__", "") != "transformers.cache_utils" for code in codes):
        return True
    # A layer quantises from its second call on.
    quantized = [part for part in layers if hasattr(part, "nbits") or hasattr(part, "fp8_dtype")]
    return any(getattr(part, "is_initialized", True) for part in quantized)


# -- the promise of a configuration for one call: its specification, and the mask of this call -------------------------
@dataclass(frozen=True)
class Promise:
    """The specification of a layer's attention, and its ``kind`` (``self``, ``encoder``, ``decoder``, ``cross``).

    ``scaled_before`` says that the family scales queries before the call, and passes the scale 1.
    """

    spec: Attention
    kind: str
    scaled_before: bool


@dataclass(frozen=True)
class ReviewedLayers:
    """Promises of a lock for each layer of a language model, or the reason why there is none.

    ``model_types`` are those of the model's configuration and of its part that describes the language model.
    """

    model_types: Collection[str]
    layers: Sequence[Promise | str]


@dataclass(frozen=True)
class Intent:
    """The specification of a call: the whole setting, and the parts of its mask.

    ``scale_given`` says that the call's scale is accepted, since queries or keys may have been scaled already. ``bias``
    says how the bias by position differs from the promised one, or is None if it is accepted as received. ``compared``
    holds comparisons of masks in the same call of the model.
    """

    setting: CallSetting
    masking: Masking
    scale_given: bool = False
    bias: str | None = ""
    compared: dict[object, Any] = field(default_factory=dict)


def promised(
    module: Module,
    name: str,
    context: ModelCall | None,
    reviewed: ReviewedLayers | None = None,
) -> Promise:
    """Return the promise of the configuration for a module. Raises ``NoPromise`` with the reason.

    ``reviewed`` are the promises of a lock, for a model without a row.
    """
    config = getattr(module, "config", None) or (context.config if context else None)
    if config is None or not hasattr(config, "model_type"):
        raise NoPromise(NO_CONFIGURATION)
    kind = _find_kind(module, name, config)
    layer = number_of_layer(module, name) or 0
    try:
        spec = promised_layers.attention(config, layer=layer, kind=kind, called=True)
        return Promise(spec, kind, promised_layers.known(config)[1].scaled_before)
    except SymattnError as error:
        # Other parts of a model, such as towers of images, have configurations of their own.
        is_reviewed = reviewed is not None and config.model_type in reviewed.model_types
        layers = reviewed.layers if reviewed is not None and is_reviewed else ()
        if kind != "self" or layer >= len(layers):
            raise NoPromise(str(error)) from None
        promise_or_reason = layers[layer]
        if isinstance(promise_or_reason, str):
            raise NoPromise(promise_or_reason) from None
        return promise_or_reason


def number_of_layer(module: Module, name: str) -> int | None:
    """Return the number of a module's layer; None if neither the module nor its path has one."""
    own, numbers = getattr(module, "layer_idx", None), re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
    # Without an index of its own, the first number in the module's path is its layer. Zamba 2 stores -1 for none.
    return own if isinstance(own, int) and own >= 0 else int(numbers[0]) if numbers else None


def _find_kind(module: Module, name: str, config: Any) -> str:
    """Return the kind of a module's attention: the names of modules say which half of the model they belong to."""
    words = f"{name} {type(module).__name__}".lower()
    if any(word in words for word in ("encoder_attn", "encdec", "cross")):
        return "cross"
    if not getattr(config, "is_encoder_decoder", False):
        return "self"
    in_decoder = "decoder" in words.split(".")[0] or ".decoder." in words
    return "decoder" if in_decoder or getattr(module, "is_decoder", False) else "encoder"


def intended(call: AttentionCall, promise: Promise, context: ModelCall | None) -> Intent:
    """Return what is promised of this call. Raises ``NoPromise`` with the reason."""
    spec, call_setting = promise.spec, call.given
    if spec.heads != call_setting.heads:
        raise NoPromise(
            f"the configuration has {spec.heads} heads, and the call {call_setting.heads}"
        )
    if context is None:
        raise NoPromise(
            "the call came from no model of transformers, so its padding and cache are unknown"
        )
    masking = _make_promised_masking(call, promise, context)
    biased = spec.bias or not isinstance(spec.position, Rotary | None)
    k, v = _unrepeat_heads_of_keys(call_setting, spec)
    # some calls give queries of padding no key at all
    left_out = call_setting.empty() & masking.of_padding()[:, None]
    masking = replace(masking, left_out=left_out if left_out.any() else None)
    allowed = masking.allowed()
    bias, differs = compare_bias(call, spec, masking, context.model) if biased else (None, "")
    # Queries that were scaled before the call meet keys with the scale 1.
    scale_given = call_setting.scale == 1 and (
        promise.scaled_before or call.received.via == "operators"
    )
    setting = CallSetting(
        call_setting.q,
        k,
        v,
        scale=1.0 if scale_given else _find_promised_scale(promise, call_setting),
        softcap=None if spec.softcap is None else float(spec.softcap),
        sink=_find_promised_sink(spec, call.received.module, call_setting),
        allowed=None if allowed.all() else allowed,
        bias=bias,
    )
    return Intent(
        setting, masking, scale_given and promise.spec.scale != 1, differs, context.compared
    )


def _make_promised_masking(call: AttentionCall, promise: Promise, context: ModelCall) -> Masking:
    if promise.kind == "cross":
        keep = context.padding("encoder_attention_mask", call.n_k)
        return Masking(
            Attention(),
            call.rows,
            call.n_q,
            call.n_k,
            call.n_k,
            _check_padding_fits_batch(keep, call),
            crossed=True,
        )
    total = context.past + call.n_q
    keep = context.padding("attention_mask", total)
    # With padding or a cache, documents are not looked for.
    documents = context.documents(total) if keep is None and not context.past else None
    if documents is not None and (context.caches or not promise.spec.causal):
        raise NoPromise("position_ids begin anew: whether documents are packed is unknown")
    return Masking(
        promise.spec,
        call.rows,
        call.n_q,
        call.n_k,
        total,
        _check_padding_fits_batch(keep, call),
        documents,
    )


def find_mask_at_most(
    call: AttentionCall, context: ModelCall, causal: bool | None
) -> Masking | None:
    """Return the mask of a call that no model may go beyond: padding is hidden, and later tokens if it is causal.

    None if the call is not one of all tokens of the model with themselves, or nothing is known of them. ``causal`` is
    what the user says of the model; the encoder of an encoder and a decoder may see all the same.
    """
    arguments = context.arguments
    if _may_see_other_tokens(call, arguments):
        return None
    given = [arguments.get(name) for name in ("input_ids", "inputs_embeds")]
    lengths = [int(x.shape[1]) for x in given if x is not None and getattr(x, "ndim", 0) > 1]
    total = context.past + call.n_q
    if lengths != [call.n_q] or not (
        call.n_k == total or _has_unused_entries(call, context, total)
    ):
        return None
    if getattr(context.config, "is_encoder_decoder", False):
        causal = None
    elif causal is None:
        causal = context.compared.get("causal")
        if "causal" not in context.compared:
            causal = promised_causal(context.model, dict(arguments))
            context.compared["causal"] = causal
    try:
        keep = _check_padding_fits_batch(context.padding("attention_mask", total), call)
    # A mask of another form is the caller's own.
    except NoPromise:
        return None
    if not causal and keep is None:
        return None
    spec = Attention(causal=bool(causal))
    return Masking(spec, call.rows, call.n_q, call.n_k, total, keep)


def _has_unused_entries(call: AttentionCall, context: ModelCall, total: int) -> bool:
    """Return whether the keys of a call are all entries of a static cache, those of its tokens first."""
    layers = getattr(cache_in(context.arguments), "layers", ())
    # Layers grow as they are needed, unless their length is fixed; those of recurrences have none.
    fixed = (part for part in layers if getattr(part, "is_compileable", False))
    lengths = [getattr(part, "max_cache_len", None) for part in fixed]
    return call.n_k > total and call.n_k in lengths


def _may_see_other_tokens(call: AttentionCall, arguments: Mapping[str, Any]) -> bool:
    """Return whether the keys of a call may be tokens of an encoder: there may be as many as tokens of the model."""
    module, name = call.received.module, call.received.name
    if _find_kind(module, name, None) == "cross":
        return True
    shape = getattr(arguments.get("encoder_hidden_states"), "shape", ())
    is_self = "self" in f"{name} {type(module).__name__}".lower()
    return tuple(shape[1:2]) == (call.n_k,) and not is_self


def _check_padding_fits_batch(keep: Mask | None, call: AttentionCall) -> Mask | None:
    if keep is not None and len(keep) not in (1, call.given.q.shape[0]):
        raise NoPromise(
            f"the padding is of {len(keep)} items, and the call of {call.given.q.shape[0]}"
        )
    return keep


def _find_promised_scale(promise: Promise, call_setting: CallSetting) -> float:
    """Return the scale that the configuration promises."""
    wanted = scale_of(promise.spec, call_setting.q.shape[-1])
    if wanted is None:
        raise NoPromise("the scale is an input")
    return wanted


def _find_promised_sink(
    spec: Attention, module: Module, call_setting: CallSetting
) -> Floats | None:
    if spec.sink is None:
        return None
    if spec.sink == "zero":
        return np.zeros(call_setting.heads)
    sinks = getattr(module, "sinks", None)
    if sinks is None:
        raise NoPromise("the configuration has sinks, and the module holds none by this name")
    return numbers(sinks).reshape(-1)


def _unrepeat_heads_of_keys(call_setting: CallSetting, spec: Attention) -> tuple[Floats, Floats]:
    """Return keys and values without repetition of heads before the call, in blocks or in turn."""
    heads, own = call_setting.heads, spec.key_heads
    # The heads are as promised, or of a number that no repetition gives.
    if call_setting.key_heads == own or call_setting.key_heads != heads:
        return call_setting.k, call_setting.v
    turned = np.arange(heads) % own
    # With one head, or as many as of queries, there is nothing to take in turn.
    if own not in (1, heads) and all(
        np.array_equal(a, a[:, turned]) for a in (call_setting.k, call_setting.v)
    ):
        return call_setting.k[:, :own], call_setting.v[:, :own]
    first = np.arange(own) * (heads // own)
    repeated = np.repeat(first, heads // own)
    if all(np.array_equal(a, a[:, repeated]) for a in (call_setting.k, call_setting.v)):
        return call_setting.k[:, first], call_setting.v[:, first]
    return call_setting.k, call_setting.v


Integers = NDArray[np.int64]
_U = 2.0**-24  # the unit of roundoff of float32, in which models compute slopes and buckets
_FUNCTION = 16  # units of roundoff that a power or logarithm may be off: CUDA documents up to 8 units in the last place


def compare_bias(
    call: AttentionCall, spec: Attention, masking: Masking, model: Module
) -> tuple[Floats | None, str | None]:
    """Return the bias to hold the call to, and how the received one differs from it, in words.

    If they agree, it is the received one, without words. None in place of words: what is promised cannot be computed.
    Compared are scores that both masks let pass, of queries that are not padding.
    """
    place, bias, total = spec.position, call.given.bias, masking.total
    got = call.given.whole(np.zeros((1, 1, 1, 1)) if bias is None else bias)
    visible = masking.allowed() & ~masking.of_padding()[:, None, :, None]
    visible = call.given.whole(
        visible if call.given.allowed is None else visible & call.given.allowed
    )
    # Distances j − i, both counted among all tokens.
    rows = np.array(masking.rows)[:, None] + total - masking.n_q
    ahead = np.arange(masking.n_k) + max(0, total - masking.n_k) - rows
    table = _find_bias_bucket_table(call, model, place) if isinstance(place, Buckets) else None
    # some models do not count these
    gaps = masking.keep is not None and (np.diff(masking.keep).sum(axis=1) > 1).any()
    if isinstance(place, Buckets) and table is not None and not spec.bias:
        # Near an edge of buckets, float32 may choose either neighbour.
        promised, other = (
            np.moveaxis(table[_bucket_rounded_distances(place, ahead, way)], -1, 0)[None]
            for way in (1, -1)
        )
        words = "it is not that of the buckets of the table"
        right = ((got == promised) | (got == other) | ~visible).all()
    elif place == Alibi() and not gaps and not spec.bias:
        exponents = slope_exponents(call.given.heads)
        slopes = np.array([2.0 ** -float(e) for e in exponents])
        promised = slopes[:, None, None] * ahead
        words, right = (
            "it is not ALiBi's",
            _are_rows_nearly_constant(got - promised, _bound_alibi_error(call, got), visible),
        )
    else:
        # Nothing is promised of other biases, so that the received one is accepted.
        return bias, None
    words = words if got[visible].any() else "it is left out"
    return (
        (bias, "")
        if right
        else (call.given.whole(promised), f"the bias by position is wrong: {words}")
    )


def _bound_alibi_error(call: AttentionCall, got: Floats) -> Floats:
    """Return how far a bias of ALiBi may be off.

    A slope is a power, up to the h-th, of a rounded number in float32; its product with a place is rounded in float32,
    then to the format of the call, and to that in which it is received.
    """
    arrays = (rows_of(m, call.rows, call.n_k) for m in call.received.masks if m is not None)
    formats = (name for name in map(dtype_name, arrays) if name in FORMATS)
    stored = max((Format(name).u for name in formats), default=0)
    roundings = call.given.heads + _FUNCTION + 2
    relative = float(stored + call.arithmetic.input.u) + roundings * _U
    return np.asarray(relative / (1 - relative) * np.abs(got))


def _are_rows_nearly_constant(off: Floats, room: Floats, seen: Mask) -> bool:
    """Return whether each row has one number, which softmax does not see, within ``room`` of all its seen entries."""
    low, high = (
        np.where(seen, off - room, -np.inf).max(axis=-1),
        np.where(seen, off + room, np.inf).min(axis=-1),
    )
    return bool((low <= high).all())


def _find_bias_bucket_table(call: AttentionCall, model: Module, place: Buckets) -> Floats | None:
    """Return the table (buckets, h) of a module's stack, if it is within reach and in the format of the call."""
    own = (
        m
        for m in model.modules()
        if getattr(m, "config", None) is getattr(call.received.module, "config", None)
    )
    weights = (getattr(getattr(m, "relative_attention_bias", None), "weight", None) for m in own)
    table = next((weight for weight in weights if weight is not None), None)
    # An array on the meta device has no numbers.
    if (
        table is None
        or table.device.type == "meta"
        or tuple(table.shape) != (place.number, call.given.heads)
    ):
        return None
    return numbers(table) if dtype_name(table) == call.arithmetic.input.name else None


def _bucket_rounded_distances(place: Buckets, ahead: Integers, way: int) -> Integers:
    """Return the bucket of each j − i, by a logarithm that float32 makes too large (way 1) or small (−1).

    Rounded are the argument, which adds a unit to the logarithm, the logarithm, the divisor, quotient and product.
    """
    side = place.number // 2 if place.bidirectional else place.number
    # Half of the buckets hold one distance each, the others grow by a logarithm.
    start = side // 2
    span, size = log(place.max_distance / start), side - start
    behind = np.abs(ahead) if place.bidirectional else np.maximum(-ahead, 0)
    beyond_start = np.maximum(behind, start) / start
    exact = np.log(beyond_start) / span * size
    # The roundings of argument, logarithm, divisor, quotient and product.
    of_roundings = (_FUNCTION + 3) * exact + size / span
    rounded = exact + way * _U * of_roundings
    far = start + np.clip(np.floor(rounded), 0, size - 1)
    # Both directions have halves of their own.
    half = side * (ahead > 0) if place.bidirectional else 0
    buckets = np.where(behind < start, behind, far) + half
    return np.asarray(buckets, dtype=np.int64)
