"""Read the arguments of recurrences and convolutions, by the conventions of the packages that Transformers calls.

Transformers holds each such function under a name of its own, and calls fla or mamba_ssm through it where they are
installed. The arguments are those of these packages, whichever code runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.models.auditing.mixers.convolution_call import ACTIVATIONS, ConvolutionCall
from symattn.models.auditing.mixers.recurrent_call import RecurrentCall, choose_heads
from symattn.models.auditing.received import UnreadCall
from symattn.models.auditing.setting import Args, Floats, Kwargs, Tensor, numbers
from symattn.programs.frameworks import dtype_name
from symattn.verification.definitions.linear import LinearAttention

MixerCall = RecurrentCall | ConvolutionCall
#: Added under the root of a length, as in fla.
_EPS = Fraction(1, 10**6)
_ULP = 2.0**-24
_DELTA = ("query", "key", "value", "g", "beta")
_SCAN = ("hidden_states", "dt", "A", "B", "C", "chunk_size", "D", "dt_bias")
_CONVOLUTION = ("hidden_states", "weight", "bias", "activation")
#: Other names of the same arguments, in the packages.
_ALIASES = {
    "q": "query", "k": "key", "v": "value", "x": "hidden_states", "initial_states": "initial_state",
    "return_final_states": "output_final_state",
}  # fmt: skip
#: Arguments that change what is computed, and are not read.
_REFUSED = {
    "cu_seqlens": "several sequences are packed into one",
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


def _bind(names: Sequence[str], args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """Return the arguments by name. Raises ``UnreadCall`` for one that is not read."""
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    given = {_ALIASES.get(name, name): x for name, x in given.items()}
    for name, reason in _REFUSED.items():
        if given.get(name) is not None and given[name] is not False:
            raise UnreadCall(reason)
    missing = [
        name for name in names[:5] if name not in given and name not in ("bias", "activation")
    ]
    if missing:
        raise UnreadCall(f"it received no {missing[0]}")
    return given


def _format_of(tensor: Tensor) -> Format:
    name = dtype_name(tensor)
    if name not in FORMATS:
        raise UnreadCall(f"its arrays are of {name}")
    return Format(name)


def _join_heads(tensor: Tensor, chosen: Sequence[int]) -> Floats:
    """Return (b, n, h, …) as the chosen ones of b · h heads, (heads, n, …)."""
    return numbers(tensor.transpose(1, 2).flatten(0, 1)[list(chosen)])


def _describe_heads(queries: int, keys: int, length: int) -> str:
    count = f"GQA {queries}:{keys}" if queries != keys else f"{queries} heads"
    return f"{count} {length} tokens"


# -- the delta rule ----------------------------------------------------------------------------------------------------
def read_delta_rule(args: Args, kwargs: Kwargs) -> RecurrentCall:
    """Read q, k (b, n, h_k, d_k), v (b, n, h, d_v), g (b, n, h) or (b, n, h, d_k), and beta (b, n, h).

    Each head of keys serves h/h_k heads of values in a row. Queries are scaled by 1/√d_k.
    """
    given = _bind(_DELTA, args, kwargs)
    q, k, v, g, beta = (given[name] for name in _DELTA)
    batch, length, groups, width = k.shape
    heads = v.shape[2]
    if heads % groups or q.shape != k.shape:
        raise UnreadCall(f"q, k, v have the shapes {(*map(tuple, (q.shape, k.shape, v.shape)),)}")
    chosen = choose_heads(batch * heads, length)

    def shared(x: Tensor, tiled: bool = False) -> Floats:
        # Heads of values in a row read one head of keys.
        times = heads // groups
        whole = x.repeat(1, 1, times, 1) if tiled else x.repeat_interleave(times, dim=2)
        return _join_heads(whole, chosen)

    by_feature, normalised = g.ndim == 4, bool(given.get("use_qk_l2norm_in_kernel"))
    if given.get("scale") is not None and abs(given["scale"] * width**0.5 - 1) > _ULP:
        raise UnreadCall(f"its scale is {given['scale']:.4g}, not 1/√d_k")
    spec = LinearAttention(
        feature="identity", normalised=False, delta=True, scale=True, gate="feature" if by_feature else "token",
        qk_norm="l2" if normalised else None, eps=_EPS if normalised else 0,
    )  # fmt: skip
    arrays = {
        "q": shared(q),
        "k": shared(k),
        "v": _join_heads(v, chosen),
        "g": _join_heads(g if by_feature else g[..., None], chosen),
        "beta": _join_heads(beta[..., None], chosen),
    }
    if given.get("initial_state") is not None:
        arrays["initial_state"] = numbers(given["initial_state"].flatten(0, 1)[list(chosen)])
    others: dict[str, Mapping[str, Floats]] = {}
    others["β is left out: it counts as 1"] = {"beta": np.ones_like(arrays["beta"])}
    others["each token has the gate of the next one"] = {"g": np.roll(arrays["g"], -1, axis=1)}
    others["each token has the gate of the one before"] = {"g": np.roll(arrays["g"], 1, axis=1)}
    if 1 < groups < heads:
        turned = {"q": shared(q, tiled=True), "k": shared(k, tiled=True)}
        others["heads of keys are tiled (repeat), not repeated (repeat_interleave)"] = turned
    kind = f"gated delta rule, gates of {'features' if by_feature else 'tokens'}"
    kind += ", queries and keys of length 1" * normalised
    form = _format_of(v)
    return RecurrentCall(
        spec, arrays, chosen, form, kind, f"{_describe_heads(heads, groups, length)} {form.name}",
        size=given.get("chunk_size"), others=others,
    )  # fmt: skip


# -- state spaces ------------------------------------------------------------------------------------------------------
def read_scan(args: Args, kwargs: Kwargs) -> RecurrentCall:
    """Read x (b, n, h, d_v), Δ (b, n, h), A (h,), B, C (b, n, groups, d_k) and D (h,) of Mamba-2.

    The recurrence has queries C, keys B, values Δ x and gates Δ A; D x is added to its output. States are values by
    keys.
    """
    given = _bind(_SCAN, args, kwargs)
    x, dt, a, b, c = (given[name] for name in _SCAN[:5])
    batch, length, heads, _ = x.shape
    groups = b.shape[2]
    chosen = choose_heads(batch * heads, length)
    of_head = np.asarray(chosen) % heads
    step = _join_heads(dt[..., None], chosen)
    if given.get("dt_bias") is not None:
        step = step + numbers(given["dt_bias"])[of_head][:, None, None]
    raw, before = step, float(_format_of(dt).u)
    if given.get("dt_softplus"):
        step = np.logaddexp(0.0, step)
    low, high = given.get("dt_limit") or (0.0, float("inf"))
    step = np.clip(step, float(low), float(high))
    # Δ moves by its slope times the rounding of what softplus received, and by its own roundings.
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.abs(raw) * np.exp(raw - np.logaddexp(0.0, raw)) / np.logaddexp(0.0, raw)
    relative = float(moved.max(initial=0.0)) if given.get("dt_softplus") else 1.0
    eta = max(before, _ULP) * (relative + 6)
    values, decay = _join_heads(x, chosen), numbers(a)[of_head][:, None, None]

    def shared(y: Tensor, tiled: bool = False) -> Floats:
        times = heads // groups
        whole = y.repeat(1, 1, times, 1) if tiled else y.repeat_interleave(times, dim=2)
        return _join_heads(whole, chosen)

    arrays = {"q": shared(c), "k": shared(b), "v": step * values, "g": step * decay}
    state = given.get("initial_state")
    if state is not None:
        joined = numbers(state.flatten(0, 1)[list(chosen)])
        arrays["initial_state"] = joined.swapaxes(-1, -2)
    others: dict[str, Mapping[str, Floats]] = {
        "values are not multiplied by Δ": {"v": values},
        "decays are not multiplied by Δ": {"g": np.broadcast_to(decay, step.shape)},
    }
    if 1 < groups < heads:
        turned = {"q": shared(c, tiled=True), "k": shared(b, tiled=True)}
        others["heads of keys are tiled (repeat), not repeated (repeat_interleave)"] = turned
    skip = None
    if given.get("D") is not None:
        skip = numbers(given["D"]).reshape(heads, -1)[of_head][:, None] * values
    spec = LinearAttention(feature="identity", normalised=False, gate="token")
    form = _format_of(x)
    kind = "state space of Mamba-2, gates of tokens" + ", D x added" * (skip is not None)
    return RecurrentCall(
        spec, arrays, chosen, form, kind, f"{_describe_heads(heads, groups, length)} {form.name}",
        eta_steps=eta, skip=skip, keys_first=False, size=given.get("chunk_size"), others=others,
    )  # fmt: skip


# -- convolutions ------------------------------------------------------------------------------------------------------
def read_convolution(args: Args, kwargs: Kwargs) -> ConvolutionCall:
    """Read x (b, channels, n), taps (channels, w), a bias and the name of an activation."""
    given = _bind(_CONVOLUTION, args, kwargs)
    x, weight, bias = given["hidden_states"], given["weight"], given.get("bias")
    activation = given.get("activation")
    if activation not in ACTIVATIONS:
        raise UnreadCall(f"its activation is {activation}")
    batch, channels, length = x.shape
    form = max((_format_of(x), _format_of(weight)), key=lambda one: one.u)
    taps = numbers(weight).reshape(channels, -1)
    offset = np.zeros((channels, 1)) if bias is None else numbers(bias)[:, None]
    joined = numbers(x).reshape(batch * channels, length)
    sizes = f"{channels} channels {length} tokens {form.name}"
    return ConvolutionCall(
        joined, np.tile(taps, (batch, 1)), np.tile(offset, (batch, 1)), activation, form, sizes
    )


_READERS: dict[str, Callable[[Args, Kwargs], MixerCall]] = {
    r"(chunk|recurrent)_(gated_delta_rule|kimi_delta_attention|kda)$": read_delta_rule,
    r"(mamba2_chunk_scan|mamba_chunk_scan_combined)$": read_scan,
    r"causal_conv1d_fn$": read_convolution,
}
