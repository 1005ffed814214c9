"""Gates and steps of a ``LinearAttention`` from what a model projects: a rate, a bias, and a softplus or a sigmoid.

With the raw gate a of a token, A_log (h,) and dt_bias (h,) or, with gates of features, (h, d_k),

    ``softplus``    g = −e^{A_log} log(1 + e^{a + dt_bias}),
    ``sigmoid``     g = L / (1 + e^{−e^{A_log} (a + dt_bias)}),   L < 0 the lower bound of g.

The raw step of Mamba-2 has a bias dt_bias (h,), and limits Δ₀ ≤ Δ₁ if the specification has them:

    Δ = min(max(log(1 + e^{dt + dt_bias}), Δ₀), Δ₁),   decays e^{Δ A}, and Δ x is written.

Raw β of the delta rule are β = σ(b).

Sources: the softplus, Gu, Dao, Mamba (2023), §3.6, and as a decay alone Yang, Kautz, Hatamizadeh, Gated Delta Networks
(2024), §3.4, with β = σ(b), and Kimi Team, Kimi Linear (2025), §3; the sigmoid with a lower bound, the gate of KDA in
flash-linear-attention (2026), by which products of decays over a block of tokens stay in range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.arrays.modular import Modular
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import number
from symattn.attention.fields import finite, refusal
from symattn.attention.layers.steps import sigmoid, softplus
from symattn.attention.softmax import powers
from symattn.document.errors import InputError, Undecided

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


#: Gates as logarithms of decays, from the specification, raw gates (…, n, d), and A_log and dt_bias that broadcast; or
#: steps from raw steps (…, n, 1) and dt_bias that broadcasts.
ReadGates = Callable[..., Any]


def check_raw_gates(spec: LinearAttention) -> None:
    """Raise ``InputError`` for raw gates of another kind than one a token or feature, and a lower bound without use."""
    if spec.gate_form and spec.step:
        raise InputError(
            f"LinearAttention: gate_form={spec.gate_form!r} reads raw gates, not the raw step of Mamba-2, which"
            " multiplies values, too; hint: step_form='softplus', and g = −exp(A_log)"
        )
    if spec.gate_form and spec.gate not in ("token", "feature"):
        raise InputError(
            f"LinearAttention: gate_form={spec.gate_form!r} makes a gate of each raw one of a token or of its features;"
            " hint: gate='token' or gate='feature'"
        )
    if (spec.gate_form == "sigmoid") != (spec.lower_bound is not None):
        raise InputError(
            "LinearAttention: a lower bound is the factor of gates that are a sigmoid, and belongs to these alone;"
            " hint: gate_form='sigmoid' and lower_bound=-5"
        )


def check_raw_steps(spec: LinearAttention) -> None:
    """Raise ``InputError`` for raw steps, or limits of steps, without a step, and for limits in the wrong order."""
    for name in ("step_least", "step_most"):
        limit = getattr(spec, name)
        if limit is not None and not (finite(limit) and limit >= 0):
            raise refusal(spec, name, "be a finite number of at least 0, or None")
    has_limits = spec.step_least is not None or spec.step_most is not None
    if spec.step_form and not spec.step:
        raise InputError(
            f"LinearAttention: step_form={spec.step_form!r} reads raw steps; hint: step=True"
        )
    if has_limits and not spec.step_form:
        raise InputError(
            "LinearAttention: limits are those of steps after their softplus; hint: step_form='softplus'"
        )
    if None not in (spec.step_least, spec.step_most) and spec.step_least > spec.step_most:  # type: ignore[operator]
        raise InputError(
            f"LinearAttention: step_least is {spec.step_least}, above step_most, {spec.step_most}"
        )


def read_steps(spec: LinearAttention, dt: Array, dt_bias: Array) -> Any:
    """Return the steps Δ from raw ones (…, n, 1), and dt_bias that broadcasts with them."""
    return limit_steps(softplus(dt + dt_bias), spec.step_least, spec.step_most)


def limit_steps(steps: Array, least: Any, most: Any) -> Any:
    """Return min(max(Δ, least), most); None is no limit. Raises ``Undecided`` on residues, which have no order."""
    xp = namespace_of(steps)
    if isinstance(steps, Modular) and (least is not None or most is not None):
        # A maximum there is a letter, which a softplus that is cut off far above would not give.
        raise Undecided("modular: residues have no order, by which steps are limited")
    if least is not None:
        steps = xp.maximum(steps, number(least, steps))
    if most is not None:
        steps = -xp.maximum(-steps, -number(most, steps))
    return steps


def read_gates(spec: LinearAttention, g: Array, A_log: Array, dt_bias: Array) -> Any:
    """Return the logarithms of decays from raw gates (…, n, d), and A_log and dt_bias that broadcast with them."""
    rate, biased = powers(A_log), g + dt_bias
    if spec.gate_form == "softplus":
        return -rate * softplus(biased)
    return take_lower_bound(spec, biased) * sigmoid(rate * biased)


def read_betas(spec: LinearAttention, beta: Array) -> Any:
    """Return β of raw ones, or β themselves."""
    return sigmoid(beta) if spec.beta_form else beta


def as_rows_of_heads(spec: LinearAttention, A_log: Array, dt_bias: Array) -> tuple[Any, Any]:
    """Return A_log (h, 1, 1) and dt_bias (h, 1, 1) or (h, 1, d_k), as ``read_gates`` takes them."""
    biases = dt_bias[..., None, :] if spec.gate == "feature" else dt_bias[..., None, None]
    return A_log[..., None, None], biases


def take_lower_bound(spec: LinearAttention, like: Array) -> Any:
    """Return L as a number of the kind of an array."""
    assert spec.lower_bound is not None
    return number(spec.lower_bound, like)
