"""Whether the expected outputs of a case are what the definition gives, to the rounding errors of the case's format.

The definition runs on the kind ``rounded``: exact values in balls, and how far an implementation that stores every
array in the format of the case may be from them. There is no other tolerance. An element that is −∞ must be −∞.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import flint
import numpy as np

from symattn import Precision, rounded
from tests.programs.onnx.cases import Case, cases
from tests.programs.onnx.operators import run


@dataclass(frozen=True)
class Outcome:
    """What differs, in words, nothing if the case is reproduced; the largest part of what is allowed; the outputs."""

    case: Case
    differences: tuple[str, ...]
    used: float
    given: Mapping[str, Any]

    @property
    def reproduced(self) -> bool:
        return not self.differences


@cache
def outcomes(operator: str) -> tuple[Outcome, ...]:
    """Every case of an operator, judged."""
    return tuple(judge(case) for case in cases() if case.operator == operator)


def judge(case: Case) -> Outcome:
    """Compare every output of a case with the definition."""
    return compare(case, run(case, lifting(case.dtype)))


def compare(case: Case, given: Mapping[str, Any]) -> Outcome:
    """Compare every output of a case with arrays of the kind ``rounded``."""
    found = [_compare(name, expected, given[name]) for name, expected in case.expected.items()]
    return Outcome(case, tuple(words for words, _ in found if words), max(used for _, used in found), given)


def lifting(dtype: str) -> Callable[[Any], Any]:
    """Floats of the format to ``rounded``, at their exact values; a mask may hold −inf. Other arrays stay."""
    kind = rounded(Precision.of(dtype, "eager"))

    def lift(array: np.ndarray) -> Any:
        if array.dtype.kind in "biu":
            return array
        wide = array.astype(np.float64)
        return kind.lift(wide) if np.isfinite(wide).all() else kind.literal(wide)

    return lift


def _compare(name: str, expected: np.ndarray, given: Any) -> tuple[str, float]:
    """What differs, and the largest |expected − exact| / allowed."""
    if expected.shape != given.plain_shape:
        return f"{name} has the shape {expected.shape}, the definition {given.plain_shape}", np.inf
    wide, bound = expected.astype(np.float64), given.bound
    silent = ~np.isfinite(bound)
    if silent.any():
        return f"{name}: nothing is known of {silent.sum()} elements", np.inf
    wrong = ~given.within(wide)
    used = float(np.max(_used(wide, given.value.entries, bound), initial=0))
    where = f", such as {tuple(map(int, np.argwhere(wrong)[0]))}" if wrong.any() else ""
    return (f"{name}: {wrong.sum()} of {wrong.size} elements{where}" if where else ""), used


def _used(wide: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """|expected − exact| / allowed, where that is a number."""
    apart = np.zeros(wide.shape)
    for index in zip(*np.nonzero(np.isfinite(wide) & (bound > 0)), strict=True):
        apart[index] = float(abs(flint.arb(float(wide[index])) - exact[index]).upper()) / bound[index]
    return apart
