"""Wrong programs, each beside the right one that it differs from by one mistake, and what a program's record says."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn import Attention
from tests.faults.collection.entries import Wrong, written
from tests.faults.collection.every import chosen

Array = Any


@dataclass(frozen=True)
class Program:
    """A program, what it is to compute, and for a wrong one the cause, and the step where a family has several."""

    name: str
    function: Callable[..., Any]
    spec: Any
    cause: str | None = None
    precision: str = "float32"
    step: str = ""


# -- Right programs that look unlike the definition: none may be accused, in any precision -----------------------------
# Each takes NumPy arrays of one dtype and returns that dtype; ``MAKES`` says which specification they compute.
def _root(q: Array) -> Array:
    return np.sqrt(np.asarray(q.shape[-1], dtype=q.dtype))


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def plain(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.T / _root(q)) @ v


def in_loops(q: Array, k: Array, v: Array) -> Array:
    """Every product and every sum in the arrays' own arithmetic."""
    out = np.zeros((len(q), v.shape[-1]), dtype=q.dtype)
    for i in range(len(q)):
        s = np.array([sum(a * b for a, b in zip(q[i], row, strict=True)) for row in k], dtype=q.dtype) / _root(q)
        e = np.exp(s - s.max())
        total = q.dtype.type(0)
        for weight, row in zip(e, v, strict=True):
            total, out[i] = total + weight, out[i] + weight * row
        out[i] /= total
    return out


def causal(q: Array, k: Array, v: Array) -> Array:
    open_ = np.tri(len(q), len(k), len(k) - len(q), dtype=bool)
    s = q @ k.T / _root(q)
    return softmax(np.where(open_, s, np.asarray(-np.inf, dtype=s.dtype))) @ v


def masked(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = q @ k.T / _root(q)
    return softmax(np.where(mask, s, np.asarray(-np.inf, dtype=s.dtype))) @ v


MAKES: dict[Callable[..., Array], Attention] = {
    **dict.fromkeys((plain, in_loops), Attention()),
    causal: Attention(causal=True),
    masked: Attention(mask="boolean"),
}


# -- Wrong programs ----------------------------------------------------------------------------------------------------
def _attention(s: Array, v: Array) -> Array:
    with np.errstate(all="ignore"):
        return softmax(s) @ v


def _number(like: Array, x: float) -> Array:
    return np.asarray(x, dtype=like.dtype)


def _scores(q: Array, k: Array) -> Array:
    return q @ k.T / _number(q, np.sqrt(q.shape[-1]))


def collected(causes: Mapping[str, str], precisions: Mapping[str, str]) -> tuple[Program, ...]:
    """Wrong programs of the collection, each with the cause by which it is named, in float32 where nothing is said."""
    return tuple(
        Program(name, e.program, e.spec, cause, precisions.get(name, "float32"), e.step)
        for name, cause in causes.items()
        for e in chosen(name)
        if isinstance(e, Wrong)
    )


def wrong(names: dict[str, Any], rights: Iterable[Program], text: str) -> tuple[Program, ...]:
    """Read wrong programs from a text (``tests.faults.collection.entries``): a mistake is the cause that names it.

    What the line ``at spec=...; precision=...`` does not say is as in the right program.
    """
    known = {p.function.__name__: p for p in rights}
    found = []
    for one in written(text, {name: p.function for name, p in known.items()}, names):
        told = dict(part.removeprefix("at ").split("=", 1) for part in one.parts if part)
        more = {"spec": known[one.right].spec} | {key: eval(value, names) for key, value in told.items()}
        found.append(Program(one.name.replace("_", " "), one.program, cause=one.why, step=one.step, **more))
    return tuple(found)


_FILL = {"float16": -6e4, "float32": -1e9, "float64": -1e30}  # in place of −∞
WRONG = wrong(
    globals(),
    [Program(f.__name__, f, spec) for f, spec in MAKES.items()],
    """
last_key_dropped (plain), mask: the last key is dropped
    return _attention(_scores(q, k[:-1]), v[:-1]) if len(k) > 1 else v * 0 + q[:, :1] * 0
mask_ignored (masked), mask: the mask is ignored
    return _attention(_scores(q, k), v)
mask_inverted (masked), mask: the mask is inverted
    return np.nan_to_num(_attention(np.where(mask, _number(q, -np.inf), _scores(q, k)), v))
mask_inverted_with_nan (masked), mask: the mask is inverted
    return _attention(np.where(mask, _number(q, -np.inf), _scores(q, k)), v)
mask_inverted_by_sum (masked), mask: the mask is inverted
    return _attention(_scores(q, k) + mask * _number(q, _FILL[q.dtype.name]), v)
causal_inverted_with_fill (causal), mask: the mask is inverted
    s = _scores(q, k)
    lower = np.tri(*s.shape, s.shape[1] - s.shape[0], dtype=bool)
    return _attention(np.where(lower, _number(q, _FILL[q.dtype.name]), s), v)
does_not_see_itself_with_fill (causal), mask: a query does not see its own key
    s = _scores(q, k)
    earlier = np.tri(*s.shape, s.shape[1] - s.shape[0] - 1, dtype=bool)
    return _attention(np.where(earlier, s, _number(q, _FILL[q.dtype.name])), v)
does_not_see_itself_with_nan (causal), mask: a query does not see its own key
    s = _scores(q, k)
    return _attention(np.where(np.tri(*s.shape, s.shape[1] - s.shape[0] - 1, dtype=bool), s, _number(s, -np.inf)), v)
""",
)
