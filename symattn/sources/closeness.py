"""One output against the exact one: what is beyond the bound, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.precision import Precision
from symattn.arrays.special import Undefined
from symattn.attention.inputs import TOKENS, check_inputs, shape
from symattn.attention.spec import Attention
from symattn.errors import InputError
from symattn.sources.frameworks import read
from symattn.verification.counterexample import counterexample
from symattn.verification.judge import Case, Judged, expected
from symattn.verification.target import Outcome

Arrays = dict[str, np.ndarray]
_MOST = 5_000_000  # products of weights and values that balls are made for at once


@dataclass(frozen=True)
class _Slice:
    """One element of a batch, judged."""

    index: tuple[int, ...]
    judged: Judged

    @property
    def ratios(self) -> np.ndarray:
        """The errors as parts of what is allowed."""
        assert self.judged.ratios is not None
        return self.judged.ratios


def close_to_exact(
    out: Any, given: Mapping[str, Any], spec: Attention | None, precision: str | Precision | None
) -> str:
    """What is wrong with ``out`` as the output of ``spec`` for these inputs, in words; empty where nothing is.

    Raises ``InputError`` where the inputs do not fit the specification or the precision.
    """
    spec = spec or Attention()
    read_as = {name: _read(name, array) for name, array in given.items()}
    inputs = {name: values for name, (values, _) in read_as.items()}
    arithmetic = Precision.of(precision if precision is not None else _precision(read_as["q"][1]))
    for name in TOKENS:
        if name in inputs:
            _check_held(name, inputs[name], arithmetic.input)
    check_inputs(spec, dict(inputs))
    inputs = _without_strangers(spec, inputs)
    got, dtype = _read("out", out)
    wanted = _shape(spec, inputs)
    if got.shape != wanted:
        return f"out has the shape {got.shape} in place of {wanted}"
    if dtype not in FORMATS or Format(dtype).u > arithmetic.input.u:
        return f"out is of {dtype} for inputs of {arithmetic.input.name}"
    return _compared(list(_judged(spec, inputs, arithmetic, got, dtype)), arithmetic)


def _read(name: str, array: Any) -> tuple[np.ndarray, str]:
    try:
        values, dtype, _ = read(array)
    except TypeError as error:
        raise InputError(f"{name} is no array of NumPy or torch: it {error}".replace("it returned", "it is")) from None
    if dtype == "bool":
        return values.astype(bool), dtype
    return (values.astype(np.int64) if dtype.startswith(("int", "uint")) else values), dtype


def _precision(dtype: str) -> str:
    if dtype not in FORMATS:
        raise InputError(f"q is of {dtype}, which says nothing about the arithmetic; mend: precision='float32'")
    return dtype


def _check_held(name: str, values: np.ndarray, held: Format) -> None:
    numbers = np.where(np.isfinite(values), values, 0.0)
    if not np.array_equal(held.rounded(numbers), numbers):
        raise InputError(f"{name} holds numbers that {held.name} does not; mend: round them first")


def _without_strangers(spec: Attention, inputs: Arrays) -> Arrays:
    """NaN and infinities in keys and values that no query attends to are of no account; elsewhere they are refused."""
    strange = {name: ~np.isfinite(inputs[name]) for name in "qkv"}
    if not any(where.any() for where in strange.values()):
        return inputs
    tame = inputs | {name: np.where(where, 0.0, inputs[name]) for name, where in strange.items()}
    with np.errstate(all="ignore"):
        seen = np.isfinite(np.asarray(spec.trace(**tame).get("masked", np.zeros(1))))
    for name in "kv":
        rows = strange[name].any(axis=-1)
        met = seen.reshape(-1, *seen.shape[-2:]).any(axis=(0, 1)) if seen.ndim > 1 else np.ones(rows.shape[-1], bool)
        strange[name] = rows & met
    for name, where in strange.items():
        if where.any():
            at = tuple(int(i) for i in np.argwhere(where)[0])
            raise InputError(f"{name}{list(at)} is not finite where it counts: there is no exact output")
    return tame


def _shape(spec: Attention, inputs: Arrays) -> tuple[int, ...]:
    q, k, v = (inputs[name].shape for name in "qkv")
    own = 2 + (spec.heads > 1)
    batch = np.broadcast_shapes(q[: len(q) - own], k[: len(k) - own], v[: len(v) - own])
    return (*batch, *q[len(q) - own : -1], v[-1])


def _judged(spec: Attention, inputs: Arrays, precision: Precision, got: np.ndarray, dtype: str) -> Iterator[_Slice]:
    """Each element of the batch by itself, so that no more than one is in memory."""
    own = 2 + (spec.heads > 1)
    work = prod(got.shape[len(got.shape) - own :]) * inputs["k"].shape[-2]
    if work > _MOST:
        raise InputError(
            f"{got.shape[-2]} queries, {inputs['k'].shape[-2]} keys, {got.shape[-1]} columns are too many to judge "
            "exactly; mend: a slice of the queries, or of the heads"
        )
    axes = {name: len(shape(name, spec, inputs).replace("…", "").split()) for name in inputs}
    for index in np.ndindex(got.shape[: got.ndim - own]):
        mine = {name: _at(a, index, axes[name]) for name, a in inputs.items()}
        right = expected(spec, mine, precision)
        values = got[index]
        outcome = Outcome(values, dtype, values.shape)
        yield _Slice(index, Judged(Case("", "", mine), outcome, right, None, right.ratios(values)))


def _at(array: np.ndarray, index: tuple[int, ...], own: int) -> np.ndarray:
    """The element of a batch that an index names; axes of length 1 stand for all."""
    front = array.shape[: max(0, array.ndim - own)]
    at = tuple(min(i, n - 1) for i, n in zip(index[len(index) - len(front) :], front, strict=True))
    return np.asarray(array[at])


def _compared(slices: list[_Slice], precision: Precision) -> str:
    """How many elements are beyond the bound, and the worst of them."""
    beyond = sum(int((s.ratios > 1).sum()) for s in slices)
    if not beyond:
        return ""
    total = sum(s.ratios.size for s in slices)
    worst = max(slices, key=lambda s: s.ratios.max())
    verb = "is" if beyond == 1 else "are"
    first = f"{beyond} of {total} elements {verb} beyond what any implementation in {precision.name} can give"
    return "\n".join([first, *_worst(worst)])


def _worst(worst: _Slice) -> Iterator[str]:
    judged = worst.judged
    found = counterexample(judged.expected.run.spec, judged, None)
    at = [*worst.index, *found.index]
    entry = judged.expected.entries[found.index]
    if isinstance(entry, Undefined):
        yield f"The worst is out{at}: got {found.got:.10g}, and NaN is what the specification says"
        return
    exact = "" if found.exact is None or found.exact.rational() is not None else f" = {found.exact}"
    yield f"The worst is out{at}: got {found.got:.10g}, exact {found.expected:.10g}{exact}"
    if found.got is not None and np.isfinite(found.got) and found.expected is not None:
        yield f"Off by {abs(found.got - found.expected):.2g}; at most {found.allowed:.2g} is legal"
    unspoken = sum(int(np.isinf(s.judged.expected.allowed).sum()) for s in [worst])
    if unspoken:
        yield f"The bound says nothing about {unspoken} others"
