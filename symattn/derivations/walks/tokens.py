"""The workflow token by token, on plain lists: q_i = x_i W_Q, s_ij = q_i·k_j, softmax over j, o_i = Σ_j a_ij v_j.

It uses no array code, so that its agreement with the matrix form says something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.special import FORBIDDEN, Forbidden, Undefined
from symattn.attention.spec import Attention

Arrays = dict[str, Any]
_MOST = 100_000  # products of elements; more would make a reader wait
_ZERO, _ONE = Quotient.of(0), Quotient.of(1)


def agrees(arrays: Arrays, spec: Attention) -> bool | None:
    """Whether the matrices of the walk are what the tokens give one by one; None where that is too much work."""
    weights = arrays["weights"]
    if weights.size * (arrays["q"].shape[-1] + arrays["v"].shape[-1]) > _MOST:
        return None
    heads = {name: _spread(arrays[name], weights.shape[:-2]) for name in "qkv"}
    return (
        all(_projection_agrees(arrays, role) for role in "qkv" if f"w_{role}" in arrays)
        and all(_query_agrees(arrays, heads, index, spec) for index in np.ndindex(weights.shape[:-1]))
        and ("attended" not in arrays or _merging_agrees(arrays))
    )


def dot(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    """Σ x y."""
    total: Any = _ZERO
    for x, y in zip(xs, ys, strict=True):
        total = total + x * y
    return total


def softmax(row: Sequence[Any]) -> list[Any] | None:
    """e^s / Σ e^s, where e^−∞ = 0; None where every key is forbidden."""
    powers = [_ZERO if isinstance(s, Forbidden) else s.exp() for s in row]
    total = dot(powers, [_ONE] * len(powers))
    return None if total.is_zero() else [p / total for p in powers]


def _projection_agrees(arrays: Arrays, role: str) -> bool:
    return _affine_agrees(
        arrays["y" if "y" in arrays and role != "q" else "x"],
        arrays[f"w_{role}"],
        arrays.get(f"b_{role}"),
        arrays[role],
    )


def _merging_agrees(arrays: Arrays) -> bool:
    """The heads' outputs side by side, times W_O where there is one."""
    attended, output = arrays["attended"], arrays["output"]
    if attended.ndim > 3:
        return True
    merged = [[x for x in attended[..., i, :].reshape(-1)] for i in range(attended.shape[-2])]
    if "w_o" in arrays:
        return _affine_agrees(merged, arrays["w_o"], arrays.get("b_o"), output)
    return all(_same(row, found) for row, found in zip(merged, output, strict=True))


def _affine_agrees(tokens: Any, w: Any, bias: Any, found: Any) -> bool:
    """x_i W + b for every token x_i, the heads side by side."""
    if np.ndim(w) != 2 or (isinstance(tokens, np.ndarray) and tokens.ndim != 2):
        return True  # a batch: its dot products are compared all the same
    for i, token in enumerate(tokens):
        row = [dot(token, w[:, c]) + (_ZERO if bias is None else bias[c]) for c in range(w.shape[1])]
        if not _same(row, found[..., i, :].reshape(-1)):
            return False
    return True


def _query_agrees(arrays: Arrays, heads: Arrays, index: tuple[int, ...], spec: Attention) -> bool:
    """Scores, scaling, softmax and sum of one query."""
    keys, values = heads["k"][index[:-1]], heads["v"][index[:-1]]
    scores = [dot(heads["q"][index], key) for key in keys]
    scale = _ONE / Quotient.of(keys.shape[-1]).sqrt() if spec.scale is None else Quotient.of(spec.scale)
    if not _same(scores, arrays["scores"][index]) or not _same([s * scale for s in scores], arrays["scaled"][index]):
        return False
    scaled = [s * scale for s in scores]
    masked = [_masked(arrays, spec, index, j, s) for j, s in enumerate(scaled)]
    if "masked" in arrays and not _same(masked, arrays["masked"][index]):
        return False
    weights = softmax(masked)
    if weights is None:
        if spec.fully_masked != "zeros":
            return True
        weights = [_ZERO] * len(scores)
    return _same(weights, arrays["weights"][index]) and _mixture_agrees(arrays, weights, values, index)


def _masked(arrays: Arrays, spec: Attention, index: tuple[int, ...], j: int, s: Any) -> Any:
    """s_ij as the masks leave it: −∞ where key j is forbidden to query i."""
    n_q, n_k = arrays["weights"].shape[-2:]
    if spec.causal and j > index[-1] + (n_k - n_q if spec.alignment == "bottom-right" else 0):
        return FORBIDDEN
    if spec.padding and not np.broadcast_to(arrays["keep"][..., None, :], arrays["weights"].shape)[(*index, j)]:
        return FORBIDDEN
    if spec.mask is None:
        return s
    entry = np.broadcast_to(arrays["mask"], arrays["weights"].shape)[(*index, j)]
    if spec.mask == "boolean":
        return s if entry else FORBIDDEN
    return s + entry


def _mixture_agrees(arrays: Arrays, weights: list[Any], values: Any, index: tuple[int, ...]) -> bool:
    """a_ij v_j, and their sum over j."""
    products = [[a * x for x in value] for a, value in zip(weights, values, strict=True)]
    output = arrays["attended" if "attended" in arrays else "output"][index]
    return all(map(_same, products, arrays["weighted"][index])) and _same(
        [dot(weights, values[:, c]) for c in range(values.shape[-1])], output
    )


def _spread(x: Any, heads: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, (*heads, *x.shape[-2:]))


def _same(xs: Sequence[Any], ys: Sequence[Any]) -> bool:
    return all(
        x is y if isinstance(y, Forbidden) else not isinstance(y, Undefined) and bool(x == y)
        for x, y in zip(xs, ys, strict=True)
    )
