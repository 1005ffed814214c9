"""Tolerances that people pick: |got − expected| ≤ atol + rtol |expected| for every element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Tolerance:
    """A rule by which a test accepts an output."""

    name: str
    rtol: float
    atol: float

    def accepts(self, got: np.ndarray, expected: np.ndarray) -> bool:
        """Whether every element passes; NaN passes where NaN is expected."""
        return bool(np.isclose(got, expected, rtol=self.rtol, atol=self.atol, equal_nan=True).all())

    def needed(self, got: np.ndarray, expected: np.ndarray) -> float:
        """The worst |got − expected| as a part of what is accepted; above 1 it is refused."""
        with np.errstate(all="ignore"):
            parts = np.abs(got - expected) / (self.atol + self.rtol * np.abs(expected))
        return float(np.where(np.isnan(parts), np.inf, parts).max(initial=0.0))


#: torch.testing.assert_close by type (PyTorch 2.13, torch/testing/_comparison.py); equality for 8 bits.
_TORCH = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
}


def picked(dtype: str) -> tuple[Tolerance, ...]:
    """The tolerances that are in use for outputs of a type.

    Sources: PyTorch, torch.testing.assert_close; ONNX, onnx/backend/test/runner (rtol 1e−3, atol 1e−7, for bfloat16
    rtol at least 2⁻⁶); KernelBench (Ouyang et al. 2025), 1e−4 for float32 and 1e−2 for narrower types; NumPy,
    numpy.allclose.
    """
    bench = 1e-2 if dtype in _NARROW else 1e-4
    return (
        Tolerance("torch.testing", *_TORCH.get(dtype, (0.0, 0.0))),
        Tolerance("ONNX", 2.0**-6 if dtype == "bfloat16" else 1e-3, 1e-7),
        Tolerance("KernelBench", bench, bench),
        Tolerance("numpy.allclose", 1e-5, 1e-8),
        Tolerance("1e-3 for both", 1e-3, 1e-3),
    )
