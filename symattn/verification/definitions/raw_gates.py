"""Gates of a ``LinearAttention`` from what a model projects: a rate for each head, a bias, and a softplus or a sigmoid.

With the raw gate a of a token, A_log (h,) and dt_bias (h,) or, with gates of features, (h, d_k),

    ``softplus``    g = −e^{A_log} log(1 + e^{a + dt_bias}),
    ``sigmoid``     g = L / (1 + e^{−e^{A_log} (a + dt_bias)}),   L < 0 the lower bound of g.

Sources: the softplus, Gu, Dao, Mamba (2023), §3.6, and as a decay alone Yang, Kautz, Hatamizadeh, Gated Delta Networks
(2024), §3.4, and Kimi Team, Kimi Linear (2025), §3; the sigmoid with a lower bound, the gate of KDA in
flash-linear-attention (2026), by which products of decays over a block of tokens stay in range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.attention.constants import number
from symattn.attention.layers.steps import sigmoid, softplus
from symattn.attention.softmax import powers
from symattn.document.errors import InputError

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


#: Gates as logarithms of decays, from the specification, raw gates (…, n, d), and A_log and dt_bias that broadcast.
ReadGates = Callable[["LinearAttention", Array, Array, Array], Any]


def check_raw_gates(spec: LinearAttention) -> None:
    """Raise ``InputError`` for raw gates of another kind than one a token or feature, and a lower bound without use."""
    if spec.gate_form and spec.step:
        raise InputError(
            f"LinearAttention: gate_form={spec.gate_form!r} reads raw gates, not the raw step of Mamba-2, which"
            " multiplies values, too; hint: leave it out, and give dt after its softplus and g = −exp(A_log)"
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


def read_gates(spec: LinearAttention, g: Array, A_log: Array, dt_bias: Array) -> Any:
    """Return the logarithms of decays from raw gates (…, n, d), and A_log and dt_bias that broadcast with them."""
    rate, biased = powers(A_log), g + dt_bias
    if spec.gate_form == "softplus":
        return -rate * softplus(biased)
    return take_lower_bound(spec, biased) * sigmoid(rate * biased)


def as_rows_of_heads(spec: LinearAttention, A_log: Array, dt_bias: Array) -> tuple[Any, Any]:
    """Return A_log (h, 1, 1) and dt_bias (h, 1, 1) or (h, 1, d_k), as ``read_gates`` takes them."""
    biases = dt_bias[..., None, :] if spec.gate == "feature" else dt_bias[..., None, None]
    return A_log[..., None, None], biases


def take_lower_bound(spec: LinearAttention, like: Array) -> Any:
    """Return L as a number of the kind of an array."""
    assert spec.lower_bound is not None
    return number(spec.lower_bound, like)
