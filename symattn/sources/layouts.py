"""The order of the axes that a function wants, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.verification.target import Inputs, Layout

_HEADS = ("q", "k", "v")  # (b, h, n, d) or (b, n, h, d)
_TOKENS = ("x", "y")  # (b, n, d_model)


def to_layout(name: str, values: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """An input with the axes that ``layout`` wants: b and h of size 1 are put in front where they lack.

    ``nd`` leaves everything as it is; weights, biases and masks (which broadcast) stay as they are in every layout.
    """
    if layout == "nd" or name not in (*_HEADS, *_TOKENS, "keep"):
        return values
    wanted = 4 if name in _HEADS else 3 if name in _TOKENS else 2
    values = values.reshape((1,) * (wanted - values.ndim) + values.shape)
    return values.swapaxes(1, 2) if name in _HEADS and layout == "bnhd" else values


def from_layout(output: NDArray[np.float64], inputs: Inputs, layout: Layout) -> NDArray[np.float64]:
    """The output in the axes of the inputs; one that has not the axes of the layout is left as it is."""
    source, axes = ("q", 4) if "q" in inputs else ("x", 3)
    if layout == "nd" or output.ndim != axes:
        return output
    if source == "q" and layout == "bnhd":
        output = output.swapaxes(1, 2)
    added = axes - np.asarray(inputs[source]).ndim
    return output.reshape(output.shape[added:]) if output.shape[:added] == (1,) * added else output


def causal_mask(inputs: Inputs, bottom_right: bool) -> NDArray[np.bool_]:
    """Key j may be seen by query i iff j ≤ i + (n_k − n_q), or j ≤ i where the mask is aligned top-left."""
    rows = inputs["q"] if "q" in inputs else inputs["x"]
    columns = inputs["k"] if "k" in inputs else inputs.get("y", rows)
    n_q, n_k = rows.shape[-2], columns.shape[-2]
    return np.tri(n_q, n_k, n_k - n_q if bottom_right else 0, dtype=bool)
