"""The entries of each array of attention by their textbook sums, and whether the array code gives them.

Each step is run on letters of its own, so that its entries stay short: scores in q_il and k_jl, weights in s_ij.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy

from symattn.arrays.special import FORBIDDEN
from symattn.arrays.symbolic import Symbolic
from symattn.attention.flow import Step
from symattn.derivations.attention_inputs import Request
from symattn.proof.rational import all_equal

Arrays = Mapping[str, np.ndarray]
STEMS = {"scores": "s", "scaled": "t", "masked": "u", "weights": "a", "attended": "h", "output": "o"}
"""The letters of intermediate arrays."""


def letters_like(name: str, array: Any) -> Any:
    """Letters in the place of an array, forbidden entries kept."""
    stand = Symbolic.letters(STEMS.get(name, name), *array.shape).entries
    for index, entry in np.ndenumerate(array.entries):
        if entry is FORBIDDEN:
            stand[index] = FORBIDDEN
    return Symbolic(stand)


def run(step: Step, inputs: Mapping[str, Any]) -> Any:
    """One step on its inputs."""
    return step.run(*(inputs[name] for name in step.of))


def agrees(request: Request, step: Step, inputs: Mapping[str, Any], found: Any) -> bool:
    """Whether every entry that the step gave is the textbook's."""
    arrays = {name: x.entries if isinstance(x, Symbolic) else x for name, x in inputs.items()}
    expected = np.empty(found.shape, dtype=object)
    for index in np.ndindex(*found.shape):
        expected[index] = _ENTRIES[step.name](request, step, arrays, index)
    pairs = list(zip(found.entries.flat, expected.flat, strict=True))
    finite = [(x, y) for x, y in pairs if x is not FORBIDDEN and y is not FORBIDDEN]
    return all((x is FORBIDDEN) == (y is FORBIDDEN) for x, y in pairs) and all_equal(finite)


Entry = Callable[[Request, Step, Arrays, tuple[int, ...]], Any]


def _role(request: Request, step: Step, arrays: Arrays, index: tuple[int, ...]) -> Any:
    """Σ_m x_im w_ml + b_l, column l of head a standing at (a − 1)d + l."""
    x = arrays[step.of[0]]
    *_, i, column = index
    if len(step.of) == 1:
        return x[i, column]
    w = arrays[step.of[1]]
    column += index[0] * (w.shape[1] // request.spec.heads) if len(index) == 3 else 0
    total = sympy.Add(*(x[i, m] * w[m, column] for m in range(w.shape[0])))
    return total + arrays[step.of[2]][column] if len(step.of) > 2 else total


def _score(request: Request, step: Step, arrays: Arrays, index: tuple[int, ...]) -> Any:
    """Σ_l q_il k_jl."""
    *head, i, j = index
    q, k = arrays["q"][(*head, i)], arrays["k"][(*head, j)]
    return sympy.Add(*(a * b for a, b in zip(q, k, strict=True)))


def _scaled(request: Request, step: Step, arrays: Arrays, index: tuple[int, ...]) -> Any:
    """s_ij/√d_k, or c s_ij."""
    score, scale = arrays["scores"][index], request.spec.scale
    return score / sympy.sqrt(request.d_k) if scale is None else score * Symbolic.scalar(scale)


def _masked(request: Request, step: Step, arrays: Arrays, index: tuple[int, ...]) -> Any:
    """s_ij (+ m_ij) where the query may see the key, else −∞."""
    if not request.allowed()[index[-2:]]:
        return FORBIDDEN
    added = arrays["mask"][index[-2:]] if request.spec.mask == "additive" else 0
    return arrays["scaled"][index] + added


def _weight(request: Request, step: Step, arrays: Arrays, index: tuple[int, ...]) -> Any:
    """e^{s_ij} / Σ_l e^{s_il} over the keys that are seen; 0 for the others."""
    *row, j = index
    scores = arrays[step.of[0]][tuple(row)]
    seen = [sympy.exp(s) for s in scores if s is not FORBIDDEN]
    return sympy.Integer(0) if scores[j] is FORBIDDEN else sympy.exp(scores[j]) / sympy.Add(*seen)


def _attended(request: Request, step: Step, arrays: Arrays, index: tuple[int, ...]) -> Any:
    """Σ_j a_ij v_jl."""
    *head, i, column = index
    weights, values = arrays["weights"][(*head, i)], arrays["v"][(*head,)]
    return sympy.Add(*(a * values[j, column] for j, a in enumerate(weights)))


def _output(request: Request, step: Step, arrays: Arrays, index: tuple[int, ...]) -> Any:
    """Σ_j a_ij v_jl, or the heads side by side times W_O."""
    if "attended" not in step.of:
        return _attended(request, step, arrays, index)
    i, column = index
    merged = arrays["attended"][:, i, :].reshape(-1) if arrays["attended"].ndim == 3 else arrays["attended"][i]
    w = arrays["w_o"]
    total = sympy.Add(*(x * w[m, column] for m, x in enumerate(merged)))
    return total + arrays["b_o"][column] if "b_o" in step.of else total


_ENTRIES: dict[str, Entry] = {
    "q": _role,
    "k": _role,
    "v": _role,
    "scores": _score,
    "scaled": _scaled,
    "masked": _masked,
    "weights": _weight,
    "attended": _attended,
    "output": _output,
}


def row_sums(weights: Any, allowed: np.ndarray) -> bool:
    """Whether every row of weights sums to 1, and to 0 where the query sees no key."""
    rows = weights.entries.reshape(-1, weights.shape[-1])
    seen = np.broadcast_to(allowed, weights.shape).reshape(rows.shape)
    return all_equal((sympy.Add(*row), sympy.Integer(int(s.any()))) for row, s in zip(rows, seen, strict=True))


def zeros(weights: Any, allowed: np.ndarray) -> bool:
    """Whether exactly the forbidden weights are 0."""
    seen = np.broadcast_to(allowed, weights.shape)
    return all((w == 0) != s for w, s in zip(weights.entries.flat, seen.flat, strict=True))
