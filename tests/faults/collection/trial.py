"""An entry tried at its own inputs: how far it is from the loops, in units of what rounding explains."""

import warnings
from fractions import Fraction
from typing import Any

import numpy as np

from tests.faults.collection import kinds, making
from tests.faults.collection.entries import Entry

Array = Any
_UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def ratio(entry: Entry) -> float:
    """The largest error over u · max|v| (1 + max|s|); ∞ for NaN, another shape, an exception, or arguments changed."""
    given = making.inputs(entry, entry.at)
    try:
        if entry.at.before is None:
            return _worst(entry, given, called(entry, given))
        first = called(entry, making.inputs(entry, entry.at.before, seed=8))
        kept = [_bare(a) for a in first]
        worst = _worst(entry, given, called(entry, given))
    except Exception:
        return np.inf
    same = all(np.array_equal(_bare(a), b) for a, b in zip(first, kept, strict=True))
    return worst if same else np.inf


def _worst(entry: Entry, given: dict[str, Array], outputs: tuple[Any, ...]) -> float:
    """Of several outputs the one that is farthest off; of attention the first alone counts."""
    wanted = kinds.outputs(entry.spec, given)
    if len(outputs) < len(wanted):
        return np.inf
    return max(_ratio(entry, read(entry, a, given), *of) for a, of in zip(outputs, wanted, strict=False))


def _ratio(entry: Entry, found: Array, wanted: Array, size: float) -> float:
    if found.shape != wanted.shape:
        return np.inf
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(found - wanted))
    error = np.where(np.isfinite(error), error, np.inf)
    return float(error.max() / (_UNITS[entry.precision] * size))


def called(entry: Entry, given: dict[str, Array], may_change: bool = False) -> tuple[Any, ...]:
    """What the program returns, as a tuple. Raises ValueError where it changes its arguments."""
    arguments: dict[str, Any] = {}
    own = entry.form(given)
    for name, what in making.parameters(entry).items():
        if name in own:
            arguments[name] = _as_wanted(entry, name, own[name])
        elif what in given:
            arguments[name] = _as_wanted(entry, what, given[what])
        elif _setting(entry.spec, what) is not None:
            arguments[name] = _setting(entry.spec, what)
    before = {n: _bare(a) for n, a in arguments.items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = entry.program(**arguments)
        if "dout" in given and "dout" not in making.parameters(entry).values():
            found = _by_autograd(found, list(arguments.values()), _as_wanted(entry, "dout", given["dout"]))
    for name, a in before.items():
        if not may_change and not np.array_equal(_bare(arguments[name]), a, equal_nan=a.dtype.kind == "f"):
            raise ValueError(f"{name} was changed")
    return found if isinstance(found, tuple) else (found,)


def _by_autograd(found: Any, inputs: list[Any], above: Any) -> tuple[Any, ...]:
    """The gradients of a forward pass; zeros where it does not depend on an input."""
    grads = _torch().autograd.grad(found, inputs, above, allow_unused=True)
    return tuple(_torch().zeros_like(a) if g is None else g for a, g in zip(inputs, grads, strict=True))


def _bare(a: Any) -> Array:
    """A copy as a NumPy array."""
    if hasattr(a, "detach"):
        a = a.detach().to(_torch().float64).numpy()
    return np.array(a, dtype=np.float64, copy=True) if a is not None else np.zeros(0)


def _setting(spec: Any, name: str) -> object:
    value = getattr(spec, name, None)
    value = float(value) if isinstance(value, Fraction) else value
    return None if value is None or name in ("sink", "bias", "mask", "dropout") else value


def _as_wanted(entry: Entry, name: str, a: Array) -> Array:
    """In the entry's precision, layout and framework."""
    a = np.array(a)
    if entry.layout == "flat" and name in ("q", "k", "v"):
        a = a.swapaxes(-3, -2).reshape(a.shape[-2], -1)
    elif entry.layout != "nd" and name in ("q", "k", "v"):
        a = a.reshape((1,) * (4 - a.ndim) + a.shape)
        a = a.swapaxes(1, 2) if entry.layout == "bnhd" else a
    if entry.layout in ("bhnd", "bnhd") and name in ("x", "y"):
        a = a.reshape((1,) * (3 - a.ndim) + a.shape)
    plain = a.dtype.kind not in "f"
    if not entry.torch:
        a = a if plain else a.astype(making.dtype(entry.precision))
        return a.T.copy().T if entry.at.transposed else a
    import torch

    t = torch.from_numpy(np.ascontiguousarray(a))
    t = t if plain else t.to(getattr(torch, entry.precision))
    return t.requires_grad_() if type(entry.spec).__name__ == "Gradient" and name in ("q", "k", "v") else t


def read(entry: Entry, found: Any, given: dict[str, Array]) -> Array:
    """An output as float64, in the axes of the inputs."""
    a = found.detach().to(dtype=_torch().float64).numpy() if entry.torch else np.asarray(found).astype(np.float64)
    if "dout" in given or ("q" not in given and "x" not in given):
        return a
    if entry.layout == "flat":
        return a.reshape(a.shape[0], entry.spec.heads, -1).swapaxes(0, 1)
    axes = 3 if "x" in given else 4
    if entry.layout == "nd" or a.ndim != axes:
        return a
    if entry.layout == "bnhd" and axes == 4:
        a = a.swapaxes(1, 2)
    return a.reshape(a.shape[axes - given["x" if "x" in given else "q"].ndim :])


def _torch() -> Any:
    import torch

    return torch
