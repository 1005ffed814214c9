"""Read the arguments of recurrences and convolutions, by the conventions of the packages that Transformers calls.

Transformers holds each such function under a name of its own, and calls fla or mamba_ssm through it where they are
installed. The arguments are those of these packages, whichever code runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.models.auditing.mixers.chosen_heads import choose_heads, take_heads
from symattn.models.auditing.mixers.convolution_call import (
    ACTIVATIONS,
    ConvolutionCall,
    ConvolutionState,
    silu,
)
from symattn.models.auditing.mixers.recurrent_call import RecurrentCall
from symattn.models.auditing.received import UnreadCall
from symattn.models.auditing.setting import Args, Floats, Kwargs, Tensor, numbers
from symattn.programs.frameworks import dtype_name
from symattn.verification.definitions.linear import LinearAttention

#: Numbers of all judged channels together.
MAX_JUDGED_NUMBERS = 2**24


MixerCall = RecurrentCall | ConvolutionCall
#: Added under the root of a length, as in fla.
_EPS = Fraction(1, 10**6)
_ULP = 2.0**-24
#: Roundings of a step Δ and of its products in its own format: bias, sum, softplus, clip and two products.
_STEPS_IN_OWN_FORMAT = 6
#: Roundings of the same in float32, however they are stored: an exponential, a logarithm, and two products.
_STEPS_IN_FLOAT32 = 12
#: Arguments by position, as far as packages agree on their order.
_DELTA = ("query", "key", "value", "g", "beta")
_SCAN = ("hidden_states", "dt", "A", "B", "C", "chunk_size", "D")
_CONVOLUTION = ("hidden_states", "weight", "bias", "activation")
_SCAN_STEP = ("state", "hidden_states", "dt", "A", "B", "C", "D")
_CONVOLUTION_STEP = ("hidden_states", "conv_state", "weight", "bias", "activation")
#: Further arguments that are read, by name.
_NAMED = {
    _DELTA: (
        "chunk_size",
        "scale",
        "initial_state",
        "output_final_state",
        "use_qk_l2norm_in_kernel",
    ),
    _SCAN: ("dt_bias", "initial_state", "dt_softplus", "dt_limit", "output_final_state"),
    _CONVOLUTION: (),
    _SCAN_STEP: ("dt_bias", "dt_softplus", "z"),
    _CONVOLUTION_STEP: (),
}
#: Arguments that a model of Transformers hands on, and that no such function reads.
_WITHOUT_EFFECT = (
    "num_items_in_batch", "output_hidden_states", "output_attentions", "output_router_logits", "max_length_q",
    "max_length_k", "position_ids", "is_causal", "use_cache", "return_dict", "cache_position", "disable_recompute",
    "position_embeddings",
)  # fmt: skip
#: Other names of the same arguments, in the packages.
_ALIASES = {
    "q": "query", "k": "key", "v": "value", "x": "hidden_states", "initial_states": "initial_state",
    "return_final_states": "output_final_state",
}  # fmt: skip
#: Arguments that change what is computed, and are not read.
_REFUSED = {
    "cu_seqlens": "several sequences are packed into one",
    "cu_seq_lens_q": "several sequences are packed into one",
    "cu_seq_lens_k": "several sequences are packed into one",
    "seq_idx": "several sequences are packed into one",
    "use_gate_in_kernel": "gates are computed inside of the call",
    "use_beta_sigmoid_in_kernel": "β is computed inside of the call",
    "head_first": "heads come before tokens",
    "state_v_first": "states are values by keys",
    "transpose_state_layout": "states are values by keys",
    "z": "the output is gated inside of the call",
}


def find_reader(name: str) -> Callable[[Args, Kwargs], MixerCall] | None:
    """Return the function that reads the arguments of a function of this name; None for other functions."""
    for pattern, reader in _READERS.items():
        if re.search(pattern, name):
            return reader
    return None


def _bind(names: tuple[str, ...], args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """Return the arguments by name. Raises ``UnreadCall`` for one that is not read."""
    if len(args) > len(names):
        raise UnreadCall(
            f"it received {len(args)} arguments by position, of which {len(names)} are known"
        )
    passed = {**dict(zip(names, args, strict=False)), **kwargs}
    passed = {_ALIASES.get(name, name): x for name, x in passed.items()}
    known = {*names, *_NAMED[names], *_WITHOUT_EFFECT}
    for name, value in passed.items():
        # An argument that is not set changes nothing.
        if name not in known and value is not None and value is not False:
            raise UnreadCall(_REFUSED.get(name, f"its argument {name} is unknown"))
    missing = [
        name
        for name in names[:5]
        if passed.get(name) is None and name not in ("bias", "activation")
    ]
    if missing:
        raise UnreadCall(f"it received no {missing[0]}")
    return passed


def _format_of(tensor: Tensor) -> Format:
    name = dtype_name(tensor)
    if name not in FORMATS:
        raise UnreadCall(f"its arrays are of {name}")
    return Format(name)


def _format_of_products(*tensors: Tensor) -> Format:
    """Return the roughest format of factors; ``torch.autocast`` casts them, but those in float64."""
    import torch

    formats = [_format_of(tensor) for tensor in tensors]
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device) and "float64" not in [one.name for one in formats]:
        formats.append(_format_of(torch.empty(0, dtype=torch.get_autocast_dtype(device))))
    return max(formats, key=lambda one: one.u)


def _describe_heads(queries: int, keys: int, length: int, judged: int, batch: int) -> str:
    count = f"GQA {queries}:{keys}" if queries != keys else f"{queries} heads"
    some = f", {judged} of {batch * queries} heads judged" if judged < batch * queries else ""
    return f"{count} {_count_tokens(length)}{some}"


def _count_tokens(length: int) -> str:
    return f"{length} token{'s' * (length != 1)}"


# -- the delta rule ----------------------------------------------------------------------------------------------------
def read_delta_rule(args: Args, kwargs: Kwargs) -> RecurrentCall:
    """Read q, k (b, n, h_k, d_k), v (b, n, h, d_v), g (b, n, h) or (b, n, h, d_k), and beta (b, n, h).

    Each head of keys serves h/h_k heads of values in a row. Queries are scaled by 1/√d_k.
    """
    passed = _bind(_DELTA, args, kwargs)
    q, k, v, g, beta = (passed[name] for name in _DELTA)
    batch, length, groups, width = k.shape
    heads = v.shape[2]
    if heads % groups or q.shape != k.shape:
        shapes = tuple(map(tuple, (q.shape, k.shape, v.shape)))
        raise UnreadCall(f"q, k, v have the shapes {shapes}")
    chosen = choose_heads(batch * heads, length)

    def take(x: Tensor, tiled: bool = False) -> Floats:
        return take_heads(x, heads, chosen, tiled)

    by_feature, normalised = g.ndim == 4, bool(passed.get("use_qk_l2norm_in_kernel"))
    if passed.get("scale") is not None and abs(passed["scale"] * width**0.5 - 1) > _ULP:
        raise UnreadCall(f"its scale is {passed['scale']:.4g}, not 1/√d_k")
    spec = LinearAttention(
        feature="identity",
        normalised=False,
        delta=True,
        scale=True,
        gate="feature" if by_feature else "token",
        qk_norm="l2" if normalised else None,
        eps=_EPS if normalised else 0,
    )
    arrays = {
        "q": take(q),
        "k": take(k),
        "v": take(v),
        "g": take(g if by_feature else g[..., None]),
        "beta": take(beta[..., None]),
    }
    if passed.get("initial_state") is not None:
        arrays["initial_state"] = numbers(passed["initial_state"].flatten(0, 1)[list(chosen)])
    others: dict[str, Mapping[str, Floats]] = {}
    others["β is left out: it counts as 1"] = {"beta": np.ones_like(arrays["beta"])}
    others["each token has the gate of the next one"] = {"g": np.roll(arrays["g"], -1, axis=1)}
    others["each token has the gate of the one before"] = {"g": np.roll(arrays["g"], 1, axis=1)}
    # With one group, or one for each head, tiled and repeated heads are the same.
    if 1 < groups < heads:
        turned = {"q": take(q, tiled=True), "k": take(k, tiled=True)}
        others["heads of keys are tiled (repeat), not repeated (repeat_interleave)"] = turned
    kind = f"gated delta rule, gates of {'features' if by_feature else 'tokens'}"
    kind += ", queries and keys of length 1" * normalised
    form = _format_of_products(v)
    sizes = f"{_describe_heads(heads, groups, length, len(chosen), batch)} {form.name}"
    return RecurrentCall(
        spec,
        arrays,
        chosen,
        form,
        kind,
        sizes,
        size=passed.get("chunk_size"),
        others=others,
        with_state=bool(passed.get("output_final_state")),
    )


# -- state spaces ------------------------------------------------------------------------------------------------------
def read_scan(args: Args, kwargs: Kwargs) -> RecurrentCall:
    """Read x (b, n, h, d_v), Δ (b, n, h), A (h,), B, C (b, n, groups, d_k) and D (h,) of Mamba-2.

    The recurrence has queries C, keys B, values Δ x and gates Δ A; D x is added to its output. States are values by
    keys.
    """
    return _make_scan_call(_bind(_SCAN, args, kwargs))


def read_scan_step(args: Args, kwargs: Kwargs) -> RecurrentCall:
    """Read one token of Mamba-2: x, Δ (b, h, d_v), A (h, d_v, d_k), B, C (b, groups, d_k), and the state before.

    The state (b, h, d_v, d_k) is overwritten. Δ, its bias, A and D (h, d_v) are the same in every column of a head;
    z (b, h, d_v) gates the output by silu.
    """
    passed = _bind(_SCAN_STEP, args, kwargs)
    state, x, b, c = (passed[name] for name in ("state", "hidden_states", "B", "C"))
    if x.ndim != 3 or state.ndim != 4:
        shapes = tuple(x.shape), tuple(state.shape)
        raise UnreadCall(f"x and the state have the shapes {shapes}")
    one_token = {
        "hidden_states": x[:, None],
        "dt": _same_in_columns(passed["dt"], "Δ")[:, None],
        "A": _same_in_columns(_same_in_columns(passed["A"], "A"), "A"),
        "B": b[:, None],
        "C": c[:, None],
        "D": passed.get("D"),
        "dt_softplus": passed.get("dt_softplus"),
        "initial_state": state,
    }
    if passed.get("dt_bias") is not None:
        one_token["dt_bias"] = _same_in_columns(passed["dt_bias"], "the bias of Δ")
    call = _make_scan_call(one_token)
    gates = passed.get("z")
    if gates is None:
        return replace(call, updated=state, stored=_format_of(state))
    of_heads = take_heads(gates[:, None], x.shape[1], call.chosen)
    kind = f"{call.kind}, gated by silu(z)"
    return replace(call, updated=state, stored=_format_of(state), gates=silu(of_heads), kind=kind)


def _same_in_columns(x: Tensor, name: str) -> Tensor:
    """Return the first of the last axis, in which all numbers are equal."""
    first = x[..., :1]
    if not bool((x == first).all()):
        raise UnreadCall(f"{name} differs within a head")
    return first[..., 0]


def _make_scan_call(passed: Mapping[str, Any]) -> RecurrentCall:
    x, dt, a, b, c = (passed[name] for name in _SCAN[:5])
    batch, length, heads, _ = x.shape
    groups = b.shape[2]
    if heads % groups:
        raise UnreadCall(f"{heads} heads do not share {groups} groups")
    chosen = choose_heads(batch * heads, length)
    of_head = np.asarray(chosen) % heads

    def take(y: Tensor, tiled: bool = False) -> Floats:
        return take_heads(y, heads, chosen, tiled)

    step, step_errors = _read_steps(passed, take(dt[..., None]), of_head)
    values = take(x)
    decay = numbers(a)[of_head][:, None, None]
    arrays = {"q": take(c), "k": take(b), "v": step * values, "g": step * decay}
    state = passed.get("initial_state")
    if state is not None:
        joined = numbers(state.flatten(0, 1)[list(chosen)])
        arrays["initial_state"] = joined.swapaxes(-1, -2)
    others: dict[str, Mapping[str, Floats]] = {
        "values are not multiplied by Δ": {"v": values},
        "decays are not multiplied by Δ": {"g": np.broadcast_to(decay, step.shape)},
        "B and C are exchanged": {"q": arrays["k"], "k": arrays["q"]},
    }
    if passed.get("dt_bias") is not None:
        bare, _ = _read_steps({**passed, "dt_bias": None}, take(dt[..., None]), of_head)
        others["the bias of Δ is left out"] = {"v": bare * values, "g": bare * decay}
    if 1 < groups < heads:
        turned = {"q": take(c, tiled=True), "k": take(b, tiled=True)}
        others["heads of keys are tiled (repeat), not repeated (repeat_interleave)"] = turned
    skip = None
    if passed.get("D") is not None:
        factors = numbers(passed["D"]).reshape(heads, -1)[of_head]
        skip = factors[:, None] * values
    spec = LinearAttention(feature="identity", normalised=False, gate="token")
    form = _format_of_products(x)
    kind = "state space of Mamba-2, gates of tokens" + ", D x added" * (skip is not None)
    sizes = f"{_describe_heads(heads, groups, length, len(chosen), batch)} {form.name}"
    return RecurrentCall(
        spec,
        arrays,
        chosen,
        form,
        kind,
        sizes,
        gate_errors=step_errors * np.abs(decay),
        value_errors=step_errors * np.abs(values),
        skip=skip,
        keys_first=False,
        size=passed.get("chunk_size"),
        others=others,
        with_state=bool(passed.get("output_final_state")),
        clipped=_limits_of_steps(passed),
    )


def _limits_of_steps(passed: Mapping[str, Any]) -> tuple[float, float]:
    """Return the least and the largest Δ that a call allows."""
    low, high = passed.get("dt_limit") or (0.0, float("inf"))
    return float(low), float(high)


def _read_steps(
    passed: Mapping[str, Any], raw: Floats, of_head: np.ndarray
) -> tuple[Floats, Floats]:
    """Return the steps Δ of Mamba-2 (heads, n, 1), and how far a program's may be off, its products with them too.

    With u the rounding of their format, Δ + bias is off by u |Δ + bias|, and by u |bias| if the bias is stored in that
    format. Softplus passes these on times its slope; its own roundings, those of the clip and of products with Δ are
    relative to Δ.
    """
    form = _format_of(passed["dt"])
    u, rough = float(form.u), np.zeros_like(raw)
    bias = passed.get("dt_bias")
    if bias is not None:
        offset = numbers(bias)[of_head][:, None, None]
        raw = raw + offset
        rough = u * np.abs(raw)
        if _format_of(bias).u < form.u:
            rough = rough + u * np.abs(offset)
    step = raw
    if passed.get("dt_softplus"):
        step = np.logaddexp(0.0, raw)
        # The slope is a sigmoid, largest at the far end of what the sum may be.
        rough = rough * np.exp(-np.logaddexp(0.0, -(raw + rough)))
    step = np.clip(step, *_limits_of_steps(passed))
    own = _STEPS_IN_OWN_FORMAT * max(u, _ULP) + _STEPS_IN_FLOAT32 * _ULP
    least = _STEPS_IN_OWN_FORMAT * float(form.eta)
    return step, rough + own * np.abs(step) + least


# -- convolutions ------------------------------------------------------------------------------------------------------
def read_convolution(args: Args, kwargs: Kwargs) -> ConvolutionCall:
    """Read x (b, channels, n), taps (channels, w), a bias and the name of an activation."""
    passed = _bind(_CONVOLUTION, args, kwargs)
    x, weight, bias = passed["hidden_states"], passed["weight"], passed.get("bias")
    activation = passed.get("activation")
    if not (activation is None or isinstance(activation, str)) or activation not in ACTIVATIONS:
        named = activation if isinstance(activation, str) else type(activation).__name__
        raise UnreadCall(f"its activation is {named}")
    batch, channels, length = x.shape
    form = _format_of_products(x, weight)
    chosen = choose_heads(batch * channels, length, MAX_JUDGED_NUMBERS)
    items, places = (np.asarray(part) for part in np.divmod(chosen, channels))
    taps = numbers(weight).reshape(channels, -1)
    offset = np.zeros((channels, 1)) if bias is None else numbers(bias)[:, None]
    every = batch * channels
    some = f", {len(chosen)} of {every} judged" if len(chosen) < every else ""
    return ConvolutionCall(
        numbers(x[items.tolist(), places.tolist()]),
        taps[places],
        offset[places],
        activation,
        form,
        f"{channels} channels{some} {_count_tokens(length)} {form.name}",
        channels,
        chosen,
        # Factors of finer formats are rounded first.
        casts=sum(_format_of(factor).u < form.u for factor in (x, weight)),
    )


def read_convolution_step(args: Args, kwargs: Kwargs) -> ConvolutionCall:
    """Read x (b, channels, n) of the next tokens, and the state (b, channels, w) of the inputs before, overwritten."""
    import torch

    passed = _bind(_CONVOLUTION_STEP, args, kwargs)
    x, state = passed["hidden_states"], passed["conv_state"]
    if x.ndim != 3 or state.ndim != 3 or x.shape[:2] != state.shape[:2]:
        shapes = tuple(x.shape), tuple(state.shape)
        raise UnreadCall(f"x and the state have the shapes {shapes}")
    joined = torch.cat([state, x], dim=-1)
    before = state.shape[-1]
    names = ("weight", "bias", "activation")
    call = read_convolution((joined,), {name: passed.get(name) for name in names})
    wanted = joined[..., -before:].to(state.dtype)
    state_after = ConvolutionState(state.clone(), wanted, state)
    sizes = call.sizes.replace(f"{joined.shape[-1]} tokens", _count_tokens(x.shape[-1]))
    return replace(call, before=before, state=state_after, sizes=sizes)


_READERS: dict[str, Callable[[Args, Kwargs], MixerCall]] = {
    r"(chunk|recurrent)_(gated_delta_rule|kimi_delta_attention|kda)$": read_delta_rule,
    r"(mamba2_chunk_scan|mamba_chunk_scan_combined)$": read_scan,
    r"(mamba2_|^)selective_state_update$": read_scan_step,
    r"causal_conv1d_fn$": read_convolution,
    r"causal_conv1d_update$": read_convolution_step,
}
