"""An entry tried at its own inputs: how far it is from the loops, in units of what rounding explains."""

import inspect
import warnings
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from symattn import Attention
from tests.faults.collection import kinds
from tests.faults.collection.entries import At, Entry
from tests.faults.collection.kinds import KINDS
from tests.letters import needed_by

Array = Any
#: What parameters of programs stand for, if they do not have the name of an input.
MEANT = {
    "query": "q", "xq": "q", "key": "k", "xk": "k", "value": "v", "xv": "v", "hidden_states": "x", "context": "y",
    "w_qkv": "w_in", "q_norm_weight": "g_q", "k_norm_weight": "g_k", "attn_mask": "mask", "attention_mask": "mask",
    "is_causal": "causal", "num_heads": "heads", "n_heads": "heads", "sinks": "sink", "start_pos": "past",
    "position_ids": "positions", "dropout_p": "dropout", "dropout_mask": "drop", "segment_ids": "doc",
    "valid_len": "lengths", "seq_lens": "lengths", "cu_seqlens_q": "bounds", "cu_seqlens_k": "bounds",
}  # fmt: skip
_UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def ratio(entry: Entry) -> float:
    """The largest error over u · max|v| (1 + max|s|); ∞ for NaN, another shape, an exception, or arguments changed."""
    given = inputs(entry, entry.at)
    try:
        if entry.at.before is None:
            return _worst(entry, given, called(entry, given))
        first = called(entry, inputs(entry, entry.at.before, seed=8))
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
    for name, what in parameters(entry).items():
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
        if "dout" in given and "dout" not in parameters(entry).values():
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
        a = a if plain else a.astype(dtype(entry.precision))
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


# -- Inputs for the programs of the collection: by the names of their parameters, at the sizes that an entry tells -----
def inputs(entry: Entry, at: At, seed: int = 7) -> dict[str, Array]:
    """The inputs by name: those that the program has parameters for, at these sizes."""
    rng, names = np.random.default_rng(seed), set(parameters(entry).values())
    other = KINDS.get(type(entry.spec).__name__)
    made: dict[str, Array] = {}
    if other is not None:
        names |= {"dout"} if "dout" in other.words else set()
        made |= {n: rounded(a, entry.precision) for n, a in other.make(entry.spec, at, rng).items() if n in names}
        return made | {n: rounded(a, entry.precision) for n, a in at.given(made).items()}
    for name, shape in _shapes(entry.spec, at, entry.domain.square, names).items():
        made[name] = rounded(rng.standard_normal(shape) * at.spread, entry.precision)
    names |= needed_by(entry.spec)
    made |= {n: a for n, a in _extras(entry, at, made, rng).items() if n in names}
    return made | {n: rounded(a, entry.precision) for n, a in at.given(made).items()}


def parameters(entry: Entry) -> dict[str, str]:
    """For each parameter of the program, the input or setting that it takes."""
    other = KINDS.get(type(entry.spec).__name__)
    if other is not None:
        return {n: other.words.get(n, n) for n in inspect.signature(entry.program).parameters}
    found = {n: MEANT.get(n, n) for n in inspect.signature(entry.program).parameters}
    every = set(found.values())
    if not {"q", "k", "v"} <= every and not {"x", "w_q"} <= every and not {"x", "w_in"} <= every and every != {"x"}:
        found |= dict(zip(list(found)[:3], "qkv", strict=False))
    return found


def rounded(a: Array, precision: str) -> Array:
    """The numbers as the precision holds them, in float64."""
    a = np.asarray(a)
    return a.astype(dtype(precision)).astype(np.float64) if a.dtype.kind == "f" else a


def dtype(name: str) -> Any:
    """NumPy's, or that of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def _shapes(spec: Attention, at: At, square: bool, names: set[str]) -> dict[str, tuple[int, ...]]:
    h, g = spec.heads, spec.key_heads
    few, own = ((h,), (g,)) if h > 1 else ((), ())
    one_length = square or ("x" in names and "y" not in names) or "doc" in names
    n_q = at.n_k if one_length else at.n_q
    d, m = at.d_k, at.d_model
    wide = at.d_k if spec.packed else at.d_v
    every = {
        "q": (*at.batch, *few, n_q, d), "k": (*at.batch, *own, at.n_k, d), "v": (*at.batch, *own, at.n_k, at.d_v),
        "x": (*at.batch, n_q, m), "y": (*at.batch, at.n_k, m),
        "w_q": (m, h * d), "w_k": (m, g * d), "w_v": (m, g * at.d_v), "w_o": (h * wide, m),
        "b_q": (h * d,), "b_k": (g * d,), "b_v": (g * at.d_v,), "b_o": (m,),
        "w_in": (m, (h + 2 * g) * d), "b_in": ((h + 2 * g) * d,),
        "w_dkv": (m, 3), "w_uk": (3, h * (d - 2)), "w_uv": (3, h * at.d_v), "w_kr": (m, 2),
    }  # fmt: skip
    return {n: shape for n, shape in every.items() if n in names}


def _extras(entry: Entry, at: At, made: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Masks, labels, biases, sinks, tables: some key is open to every query unless the domain says otherwise."""
    spec, h = entry.spec, entry.spec.heads
    rows: Array = made.get("q", made.get("x"))
    columns: Array = made.get("k", made.get("y", rows))
    n_q, n_k = rows.shape[-2], columns.shape[-2]
    open_ = rng.random((n_q, n_k)) < 0.6
    open_[np.arange(n_q), np.arange(n_q) % n_k] = True
    if entry.domain.fully_masked_rows:
        open_[n_q // 2] = False
    keep = rng.random((*at.batch, n_k)) < 0.7
    keep[..., 0] = True
    finite = rng.integers(-4, 5, (n_q, n_k)) / 2.0
    width = at.d_k // 2
    angles = np.arange(n_k)[:, None] * 10000.0 ** (-np.arange(width) / width)
    return {
        "mask": open_ if spec.mask == "boolean" else np.where(open_, finite, -np.inf),
        "keep": keep,
        "bias": rng.integers(-4, 5, (*((h,) if h > 1 else ()), n_q, n_k)) / 2.0,
        "sink": rng.integers(-2, 5, (h,)) / 2.0,
        **({"scale": 2.0 ** -rng.integers(1, 4, (h,))} if spec.scale == "given" else {}),
        "slopes": 2.0 ** -(1.0 + np.arange(h)[::-1]),
        "drop": rng.random((*((h,) if h > 1 else ()), n_q, n_k)) < 0.7,
        "doc": np.cumsum(rng.random(n_k) < 0.4),
        "b_rel": rng.integers(-6, 7, (getattr(spec.position, "number", 32), h)) / 2.0,
        "positions": np.cumsum(rng.integers(1, 4, n_k)),
        "cos": np.cos(angles), "sin": np.sin(angles),
        "g_q": rng.integers(1, 5, (at.d_k,)) / 2.0, "g_k": rng.integers(1, 5, (at.d_k,)) / 2.0,
        "beta_q": rng.integers(-2, 3, (at.d_k,)) / 2.0, "beta_k": rng.integers(-2, 3, (at.d_k,)) / 2.0,
    } if spec else {}  # fmt: skip
