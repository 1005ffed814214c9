"""``masks``: which query may attend to which key, for one specification or for the usual four."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.attention.inputs import check_inputs
from symattn.attention.spec import Attention
from symattn.derivations.sheets.sheet import overridden
from symattn.document.drawing.scene import SMALL, Box, Label, Scene, small, wrapped

_USUAL: tuple[tuple[str, Attention], ...] = (
    ("causal", Attention(causal=True)),
    ("window 3", Attention(causal=True, window=(2, 0))),
    ("blocks of 4", Attention(block=4)),
    ("documents", Attention(causal=True, documents=True)),
)
_FILLED = "Filled: the query of this row may attend to the key of this column."


def scene(tokens: int = 8, keys: int | None = None, **fields: object) -> Scene:
    """Draw which keys each query may attend to, as attention itself computes it."""
    n_q, n_k = tokens, tokens if keys is None else keys
    if not fields:
        return _draw_four_masks(n_q, n_k)
    spec = overridden(Attention(), fields)
    called = ", ".join(
        f"{name} {value}" if value is not True else name for name, value in fields.items()
    )
    visible = allowed(spec, n_q, n_k)
    drawn = Scene(
        f"Which keys each query may attend to: {called}",
        f"{_describe_count_of_pairs(called, visible)} {_FILLED}",
    )
    small(drawn, 36, 26, called, "ink")
    foot = _draw_grid_of_mask(drawn, visible, 36, 56, min(24.0, 430 / max(n_q, n_k)))
    _label_axes_of_mask(drawn, 36, 46, foot)
    small(drawn, 36, foot + 20, f"{visible.sum()} of {visible.size}")
    drawn.height = wrapped(drawn, foot + 46, _FILLED, 36) - 8
    return drawn


def allowed(spec: Attention, n_q: int, n_k: int) -> np.ndarray:
    """Return booleans (n_q, n_k): whether the weight is above 0 when all scores are equal."""
    heads = spec.head_axis
    shared = (spec.key_heads,) if heads else ()
    of_keys = {x: np.zeros((*shared, n_k, 2)) for x in "kv"}
    queries = {"q": np.zeros((*heads, n_q, 2))}
    values: dict[str, Any] = queries | of_keys
    if spec.documents:
        edges = (3 * n_k / 8, 7 * n_k / 8)
        labels = np.searchsorted(edges, np.arange(n_k), side="right")
        values |= {"doc": labels} if n_q == n_k else {"doc_q": labels[n_k - n_q :], "doc_k": labels}
    check_inputs(spec, values)
    with np.errstate(all="ignore"):
        for step in spec.pipeline(values):
            operands = [values[name] for name in step.of]
            values[step.name] = step.run(*operands)
            if step.name == "weights":
                break
    weights = np.asarray(values["weights"])
    result: np.ndarray = weights.reshape(-1, n_q, n_k)[0] > 0
    return result


def _draw_four_masks(n_q: int, n_k: int) -> Scene:
    drawn = Scene("Four masks", "")
    result, side = [], min(12.5, 100 / max(n_q, n_k))
    for i, (called, spec) in enumerate(_USUAL):
        x, visible = 24 + i * 118.0, allowed(spec, n_q, n_k)
        drawn.label(x, 18, called)
        foot = _draw_grid_of_mask(drawn, visible, x, 44, side)
        small(drawn, x, foot + 18, f"{visible.sum()} of {visible.size}")
        result.append(_describe_count_of_pairs(called, visible))
    _label_axes_of_mask(drawn, 24, 36, foot)
    drawn.title = (
        f"Four masks for {n_q} tokens"
        if n_q == n_k
        else f"Four masks for {n_q} queries and {n_k} keys"
    )
    drawn.description = " ".join((*result, _FILLED))
    drawn.height = wrapped(drawn, foot + 44, _FILLED) - 8
    return drawn


def _label_axes_of_mask(drawn: Scene, x: float, y: float, foot: float) -> None:
    small(drawn, x, y, "{k} →")
    drawn.add(Label(x - 8, foot, "← {q}", SMALL, "mute", upwards=True))


def _draw_grid_of_mask(drawn: Scene, array: np.ndarray, x: float, y: float, side: float) -> float:
    """Draw the cells; return the foot of the last row."""
    for i, row in enumerate(array.tolist()):
        for j, may in enumerate(row):
            left = x + j * side + 0.5
            place = (left, y + i * side + 0.5, side - 1, side - 1)
            note = f"the query {i + 1} {'may' if may else 'may not'} attend to the key {j + 1}"
            drawn.add(Box(*place, "weight" if may else None, None if may else "rule", note=note))
    return y + len(array) * side


def _describe_count_of_pairs(called: str, array: np.ndarray) -> str:
    return f"{called[0].upper()}{called[1:]}: {array.sum()} of {array.size} pairs."
