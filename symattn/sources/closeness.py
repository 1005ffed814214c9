"""One output against the exact one: what is beyond the bound, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Contract, Precision
from symattn.arrays.special import Forbidden
from symattn.arrays.tensors import is_tensor
from symattn.attention.enclosed import Enclosed, enclose
from symattn.attention.inputs import TOKENS, check_inputs, check_names, shape
from symattn.attention.spec import Attention
from symattn.errors import InputError, Refused, Undecided, article
from symattn.sources.descale import dequantised, split
from symattn.sources.devices import copied, on_device, shared_device, tensor_on
from symattn.sources.frameworks import read
from symattn.verification.attention import OfAttention
from symattn.verification.bounding import enclosed, plain
from symattn.verification.bounding.interface import bound
from symattn.verification.bounding.log_sums import log_sums
from symattn.verification.case_result import ratio
from symattn.verification.judge import expected
from symattn.verification.sharp import means
from symattn.verification.sharp.blocks import applies, wide
from symattn.verification.sharp.elements import exact, judged
from symattn.verification.sharp.limits import FORMATS as HALF
from symattn.verification.sharp.limits import Stores
from symattn.verification.sharp.sample import averaged, chosen, only

Arrays = dict[str, Any]  # of NumPy, or tensors on a device that are judged there
_MOST = 5_000_000  # products of weights and values that balls are made for at once
_FEW = 20_000  # products, up to which balls take no time
_SCORES = 1 << 23  # of an element of the batch, that are enclosed at once
_LOOKED = 32  # accused rows that the worst case looks at, the worst one among them
_LARGE = ("q", "k", "v")  # inputs that stay in float32 where that holds them
_FORM = 64  # entries of the inputs up to which an exact form is sought


@dataclass(frozen=True)
class _Measured:
    """For each element of the output: the error as a part of what is allowed, the exact value, what is allowed."""

    ratios: np.ndarray
    exact: np.ndarray
    allowed: np.ndarray


class Ready(NamedTuple):
    """A specification and inputs that fit it, in an arithmetic; the shape of the output; what the filter takes to be
    stored, None where it is not asked or has nothing to say."""

    spec: Attention
    inputs: Arrays
    precision: Precision
    shape: tuple[int, ...]
    how: Stores | None


def ready(
    given: Mapping[str, Any],
    spec: Attention | None,
    precision: str | Precision | None,
    contract: Contract | None = None,
    alpha: float | None = None,
) -> Ready:
    """The inputs, read and checked. Raises ``InputError`` where they do not fit the specification or the precision."""
    if not isinstance(spec, Attention | None):
        raise InputError(f"the specification is an Attention(...), and not {article(type(spec).__name__)}")
    spec = spec or Attention()
    arrays, factors = split(given)
    check_names(spec, arrays)
    if precision is None and "q" not in arrays:
        raise InputError("there is no input 'q'; hint: queries, keys and values")
    device = None if factors else shared_device(arrays)
    read_as = {name: read_array(name, array, name in _LARGE, device) for name, array in arrays.items()}
    inputs = {name: values for name, (values, _) in read_as.items()}
    arithmetic = Precision.of(precision if precision is not None else _precision(read_as["q"][1]), contract)
    check_alpha(alpha)
    for name in TOKENS:
        if name in inputs and read_as[name][1] != arithmetic.input.name:
            check_held(name, inputs[name], arithmetic.input)
    check_inputs(spec, dict(inputs))
    inputs = _without_strangers(spec, dequantised(spec, inputs, factors))
    named = isinstance(precision, Precision) or contract is not None
    how = Stores.of(arithmetic, not named, spec.softcap is not None) if alpha is not None else None
    return Ready(spec, inputs, arithmetic, _shape(spec, inputs), how)


def check_alpha(alpha: float | None) -> None:
    """Raises ``InputError`` for what is no probability."""
    if alpha is not None and (not isinstance(alpha, Real) or not 0 < alpha < 1):
        raise InputError(f"alpha must be a probability between 0 and 1, or None, got {alpha!r}")


def close_to_exact(
    out: object,
    given: Mapping[str, object],
    spec: Attention | None,
    precision: str | Precision | None,
    lse: object = None,
    *,
    contract: Contract | None = None,
    alpha: float | None = None,
    rows: int | Sequence[int] | None = None,
    called: str = "out",
) -> str:
    """What is wrong with ``out`` as the output of ``spec`` for these inputs, in words; empty where nothing is.

    ``lse`` are logarithms of sums that were returned beside it, judged too. ``contract``, ``alpha`` and ``rows`` are
    those of ``assert_close_to_exact``. Where no ``alpha`` is told, ``called`` is what the words call the output.

    Raises ``InputError`` where the inputs do not fit the specification or the precision.
    """
    of = ready(given, spec, precision, contract, alpha)
    seen = None if rows is None else chosen(of.spec, of.inputs, rows)
    words = close(of, out, lse, alpha or 1.0, seen, called)
    if words and of.spec.causal and of.inputs["q"].shape[-2] != of.inputs["k"].shape[-2]:
        top = of.spec.alignment == "top-left"
        aligned = of._replace(spec=replace(of.spec, alignment="bottom-right" if top else "top-left"))
        if not close(aligned, out, lse, alpha or 1.0, seen, called):
            return f'{words}\nIt is right for alignment="{aligned.spec.alignment}"'
    return words


def only_if_stored(
    out: object, given: Mapping[str, object], spec: Attention | None, precision: str | None, alpha: float, rows: Any
) -> str:
    """Describe why a kernel that does not store scores could not give ``out``, which is right; empty if it could, or if
    nothing is known. Looked at are as many rows as means are taken of, at most."""
    of = ready(given, spec, precision, "fused", alpha)
    if of.how is None or not applies(of.spec, of.inputs):
        return ""
    most = averaged(prod(of.shape[:-2]), of.inputs["k"].shape[-2])
    seen = list(range(of.shape[-2])) if rows is None else chosen(of.spec, of.inputs, rows)
    if len(seen) > most:
        seen = chosen(of.spec, of.inputs, most)
    words = close(of, out, None, alpha, None if len(seen) == of.shape[-2] else seen)
    return f'A kernel that does not store scores could not give this: contract="fused"\n{words}' if words else ""


def close(
    of: Ready,
    out: object,
    lse: object = None,
    alpha: float = 1.0,
    rows: list[int] | None = None,
    called: str = "out",
    averaged: int | None = None,
) -> str:
    """The same of what is ready, in the ``rows`` that are named; means are of at most ``averaged`` rows of a head
    (None: ``sample.averaged``)."""
    words = _output(of.spec, of.inputs, of.precision, out, of.shape, _Asked(of.how, alpha, rows, called, averaged))
    if words or lse is None:
        return words
    return _logarithms(of.spec, of.inputs, of.precision, lse, of.shape[:-1], rows)


def worst_share(
    out: Any, given: Mapping[str, Any], spec: Attention, precision: Precision, rows: Sequence[int], lse: Any = None
) -> float:
    """The largest error in ``rows`` of ``out``, or of ``lse`` where it is given, as a part of what the worst case
    allows; ∞ for a wrong shape."""
    read_as = {name: read_array(name, array)[0] for name, array in given.items()}
    inputs = _without_strangers(spec, read_as)
    wanted, (got, _) = _shape(spec, inputs), read_array("out", out if lse is None else lse)
    if got.shape != (wanted if lse is None else wanted[:-1]):
        return float("inf")
    (less, mine), at = of_rows(spec, inputs, rows), list(rows)
    if lse is None:
        return float(_measured(less, mine, precision, got[..., at, :]).ratios.max(initial=0.0))
    return float(_of_logarithms(less, mine, precision, got[..., at]).ratios.max(initial=0.0))


def exact_and_allowed(
    out: Any, given: Mapping[str, Any], spec: Attention, precision: Precision, rows: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The exact output in ``rows``, of the shape of ``out`` there, and what the worst case allows of each entry."""
    inputs = _without_strangers(spec, {name: read_array(name, array)[0] for name, array in given.items()})
    (less, mine), got = of_rows(spec, inputs, rows), read_array("out", out)[0]
    return output_and_allowed(less, mine, precision, got[..., list(rows), :])


def output_and_allowed(
    spec: Attention, inputs: Arrays, precision: Precision, got: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The exact output, of the shape of ``got``, and what the worst case allows of each entry."""
    found = _measured(spec, inputs, precision, got)
    return found.exact, found.allowed


def of_rows(spec: Attention, inputs: Arrays, rows: Sequence[int]) -> tuple[Attention, Arrays]:
    """The attention of some rows; of all rows any attention, as it is."""
    return (spec, inputs) if len(rows) == inputs["q"].shape[-2] else only(spec, inputs, rows)


def logarithms(
    lse: object, given: Mapping[str, Any], spec: Attention, precision: Precision, rows: Sequence[int]
) -> str:
    """What is wrong with ``lse`` (…, n_q) in ``rows``, in words; empty where nothing is."""
    inputs = _without_strangers(spec, {name: read_array(name, array)[0] for name, array in given.items()})
    return _logarithms(spec, inputs, precision, lse, _shape(spec, inputs)[:-1], rows)


class _Asked(NamedTuple):
    """What an implementation stores, if the filter is asked, with which probability; which rows; the output's name; and
    of how many rows means are taken."""

    how: Stores | None
    alpha: float
    rows: list[int] | None
    called: str
    averaged: int | None


def _output(
    spec: Attention, inputs: Arrays, precision: Precision, out: Any, wanted: tuple[int, ...], asked: _Asked
) -> str:
    shape = tuple(getattr(out, "shape", ()))
    rows = list(range(wanted[-2])) if asked.rows is None else asked.rows
    some = asked.rows is not None and shape == wanted
    device = inputs["q"].device if is_tensor(inputs["q"]) else None
    got, dtype = read_array("out", out[..., np.asarray(rows), :] if some else out, device=device)
    words = form_words(asked.called, shape, wanted, dtype, precision)
    if words:
        return words
    if asked.rows is not None:
        spec, inputs = only(spec, inputs, rows)
    sharply = asked.how is not None and applies(spec, inputs)
    if asked.how is not None and sharply and prod(got.shape) * inputs["k"].shape[-2] > _FEW:
        return _sharp(spec, inputs, precision, got, asked, rows)
    inputs, got = on_cpu(inputs), copied(got)
    measured = _measured(spec, inputs, precision, got)
    words = _told(asked.called, got, measured, precision, lambda at: _form(spec, inputs, precision, got, at), rows)
    if words or asked.how is None or not sharply:
        return words
    return _sharp(spec, inputs, precision, got, asked, rows)


def _measured(spec: Attention, inputs: Arrays, precision: Precision, got: np.ndarray) -> _Measured:
    inputs = _widened(inputs)
    many = got.size * inputs["k"].shape[-2] > _FEW and precision.input.name != "float64"
    found = (_fast(spec, inputs, precision, got) or _by_enclosures(spec, inputs, precision, got)) if many else None
    return found or _by_balls(spec, inputs, precision, got)


def _sharp(
    spec: Attention,
    inputs: Arrays,
    precision: Precision,
    got: Any,
    asked: _Asked,
    rows: Sequence[int],
) -> str:
    """The filter first, which is fast; what it accuses is looked at by the worst case, too, which is beyond doubt.

    Where the filter's hypothesis is not supported by the guard, the worst case alone decides. That is NumPy's: of
    tensors on a device it copies the accused rows, and keys and values.
    """
    how, alpha = asked.how, asked.alpha
    assert how is not None
    try:
        accused = judged(spec, inputs, how, got, alpha / 2)
    except Refused:
        inputs, got = on_cpu(inputs), copied(got)
        measured = _measured(spec, inputs, precision, got)
        return _told("out", got, measured, precision, lambda at: _form(spec, inputs, precision, got, at), rows)
    if accused is None:
        return _in_means(spec, inputs, got, asked, rows)
    some = sorted(accused.rows[:_LOOKED] if accused.counts else accused.rows)
    less, mine = only(spec, inputs, some)
    part, size = copied(got[..., some, :]), prod(got.shape)
    measured = _within(less, on_cpu(mine), precision, part)
    certified = _told("out", part, measured, precision, lambda at: "", [rows[i] for i in some], size)
    if not certified and not accused.counts:
        return ""
    alike = list(_alike(less, on_cpu(mine), how, part, [rows[i] for i in some]))
    if certified:
        return "\n".join((certified, *alike))
    *front, row, column = accused.worst
    at = (*front, some.index(row), column)
    y, o = part[at], measured.exact[at]
    return "\n".join(
        (
            f"{accused.count} of {size} elements {'is' if accused.count == 1 else 'are'} {_beyond(accused.certain)}"
            f" in {how.format.name}",
            f"The worst is out{[*front, rows[row], column]}: got {y:.10g}, exact {o:.10g}",
            f"Off by {abs(y - o):.2g}; {_legal(accused.tolerance, float(measured.allowed[at]))}",
            *alike,
            _sure(how, alpha, accused.guard, accused.certain, "tolerance"),
        )
    )


def _alike(spec: Attention, inputs: Arrays, how: Stores, got: np.ndarray, rows: list[int]) -> Iterator[str]:
    """A line on the known mistake that these rows look like, where there is one."""
    found = means.looks_like(spec, inputs, how, got, rows)
    if found is not None:
        place, words = found
        yield f"The worst rows{'' if place == 'of all rows' else f', {place},'} are {words}"


def _legal(sharp: float, worst: float) -> str:
    """The smaller of two tolerances, and why the sharp one is not, where it is not."""
    if sharp <= worst:
        return f"the sharp tolerance is {sharp:.2g} (the worst case: {worst:.2g})"
    return f"at most {worst:.2g} is legal, by the worst case; the sharp tolerance lets exponentials be off by 2⁻¹³"


def _within(spec: Attention, inputs: Arrays, precision: Precision, got: np.ndarray) -> _Measured:
    """By the worst case, of what the filter speaks of."""
    found, allowed = exact(spec, inputs), bound(spec, inputs, precision).allowed
    return _Measured(_least_ratios(found, got, allowed), found.centre, allowed)


def _least_ratios(found: Enclosed, got: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The least error that ``got`` has, as a part of what is allowed."""
    least, _ = found.off(got)
    with np.errstate(all="ignore"):
        return np.where(least == 0, 0.0, np.where(np.isinf(allowed), 0.0, least / allowed))


def _in_means(spec: Attention, inputs: Arrays, got: Any, asked: _Asked, rows: Sequence[int]) -> str:
    """What is wrong with the elements together, where each alone is within its tolerance."""
    how, alpha = asked.how, asked.alpha
    assert how is not None
    most = asked.averaged or averaged(prod(got.shape[:-2]), inputs["k"].shape[-2])
    some = chosen(spec, inputs, most) if len(rows) > most else list(range(len(rows)))
    told = [rows[i] for i in some]
    found = means.judged(*only(spec, inputs, some), how, got[..., some, :], alpha / 2, told)
    if found is None or not found.counts:
        return ""
    return "\n".join(
        (
            f"Weighted means of the output ({found.place}) are {_beyond(found.certain)} in {how.format.name},"
            f" {found.share:.3g} times the limit of roundings to nearest",
            f"They are {found.words}; every element is within its tolerance",
            _sure(how, alpha, found.guard, found.certain, "limit"),
        )
    )


def _beyond(certain: float) -> str:
    return f"beyond {'all roundings together' if certain > 1 else 'rounding to nearest'}"


def _sure(how: Stores, alpha: float, guard: float, certain: float, what: str) -> str:
    """How sure it is: whatever roundings do, or by the filter."""
    if certain > 1:
        return f"Roundings can do no more than {1 / certain:.2g} of this, however they fall, if {how.stored}"
    return (
        f"A right output is accused with a probability of at most {alpha:g}, if {how.hypothesis}; right replays need"
        f" {guard:.2f} of the {what} here"
    )


def _logarithms(
    spec: Attention,
    inputs: Arrays,
    precision: Precision,
    lse: Any,
    wanted: tuple[int, ...],
    seen: Sequence[int] | None,
) -> str:
    got, dtype = read_array("lse", lse)
    words = form_words("lse", got.shape, wanted, dtype, precision)
    if words:
        return words
    rows = range(wanted[-1]) if seen is None else list(seen)
    if seen is not None:
        (spec, inputs), got = only(spec, inputs, rows), got[..., rows]
    measured = _of_logarithms(spec, on_cpu(inputs), precision, got)
    return _told("lse", got, measured, precision, lambda at: "", rows)


def _of_logarithms(spec: Attention, inputs: Arrays, precision: Precision, got: np.ndarray) -> _Measured:
    inputs = _widened(inputs)
    own = 1 + (spec.heads > 1)
    measured = _Measured(*(np.zeros(got.shape) for _ in range(3)))
    for index in np.ndindex(got.shape[: got.ndim - own]):
        exact, allowed = log_sums(spec, element(spec, inputs, index), precision)
        measured.ratios[index] = np.frompyfunc(ratio, 3, 1)(got[index], exact.entries, allowed).astype(float)
        measured.exact[index] = np.vectorize(_middle, otypes=[float])(exact.entries)
        measured.allowed[index] = allowed
    return measured


def form_words(name: str, shape: tuple[int, ...], wanted: tuple[int, ...], dtype: str, precision: Precision) -> str:
    """What is wrong with the shape or type of what came back; empty where nothing is."""
    if shape != wanted:
        return f"{name} has the shape {shape} in place of {wanted}"
    if dtype not in FORMATS or Format(dtype).u > precision.returned.u:
        return f"{name} is of {dtype} for inputs of {precision.input.name}"
    return ""


def read_array(name: str, array: Any, narrow: bool = False, device: Any = None) -> tuple[Any, str]:
    """The numbers of an array of NumPy or torch as float64, or where they are ``narrow`` and of 16 bits as float32, and
    their type. They are NumPy's, or a tensor on the ``device``. Raises ``InputError`` for what is none."""
    half = narrow and str(getattr(array, "dtype", "")).removeprefix("torch.") in HALF
    if device is not None and is_tensor(array) and not array.is_complex():
        return on_device(array.to(device), half), str(array.dtype).removeprefix("torch.")
    try:
        values, dtype, _ = read(array, np.float32 if half else np.float64)
    except TypeError as error:
        raise InputError(
            f"{name} is not an array of NumPy or torch: it {error}".replace("it returned", "it is")
        ) from None
    if dtype == "bool":
        values = values.astype(bool)
    elif dtype.startswith(("int", "uint")):
        values = values.astype(np.int64)
    return (values if device is None else tensor_on(device, values)), dtype


def _precision(dtype: str) -> str:
    if dtype not in FORMATS:
        raise InputError(f"q is of {dtype}, which says nothing about the arithmetic; hint: precision='float32'")
    return dtype


def check_held(name: str, values: Any, held: Format) -> None:
    """Raises ``InputError`` for finite numbers that the format does not hold."""
    xp: Any = namespace_of(values)
    numbers = xp.astype(xp.where(xp.isfinite(values), values, 0.0), xp.float64)
    if not xp.all(held.rounded(numbers) == numbers):
        raise InputError(f"{name} holds numbers that {held.name} does not; hint: round them first")


def _without_strangers(spec: Attention, inputs: Arrays) -> Arrays:
    """NaN and infinities in keys and values that no query attends to are of no account; elsewhere they are refused."""
    xp: Any = namespace_of(inputs["q"])
    strange = {name: ~xp.isfinite(inputs[name]) for name in "qkv"}
    if not any(where.any() for where in strange.values()):
        return inputs
    tame = inputs | {name: xp.where(where, 0, inputs[name]) for name, where in strange.items()}
    with np.errstate(all="ignore"):
        masked = spec.trace(**_widened(tame)).get("masked")
    for name in "kv":
        strange[name] = strange[name].any(axis=-1)
        if masked is not None:
            strange[name] &= xp.isfinite(masked).reshape(-1, *masked.shape[-2:]).any(axis=(0, 1))
    for name, where in strange.items():
        if where.any():
            at = tuple(int(i) for i in xp.argwhere(where)[0])
            raise InputError(f"{name}{list(at)} is not finite where it counts: there is no exact output")
    return tame


def _widened(inputs: Arrays) -> Arrays:
    """With float64 in place of float32."""
    return {name: wide(a) if a.dtype == namespace_of(a).float32 else a for name, a in inputs.items()}


def on_cpu(inputs: Arrays) -> Arrays:
    """The inputs as arrays of NumPy."""
    return {name: copied(a) for name, a in inputs.items()}


def _shape(spec: Attention, inputs: Arrays) -> tuple[int, ...]:
    q, k, v = (inputs[name].shape for name in "qkv")
    own = 2 + (spec.heads > 1)
    batch = np.broadcast_shapes(q[: len(q) - own], k[: len(k) - own], v[: len(v) - own])
    return (*batch, *q[len(q) - own : -1], v[-1])


def _fast(spec: Attention, inputs: Arrays, precision: Precision, got: np.ndarray) -> _Measured | None:
    """In float64, for many elements of a narrower type; None for what is not plain enough.

    An element is beyond the bound only where all of the interval that holds the exact value says so.
    """
    if not plain.applies(spec, inputs):
        return None
    try:
        found = enclose(spec, inputs)
    except Refused:
        return None
    allowed = plain.allowed(spec, inputs, precision)
    return _Measured(_least_ratios(found, got, allowed), found.centre, allowed)


def _by_enclosures(spec: Attention, inputs: Arrays, precision: Precision, got: np.ndarray) -> _Measured | None:
    """The same by a run on enclosures: of variants, an element of the batch at a time; None where these do not say."""
    if spec.heads * got.shape[-2] * inputs["k"].shape[-2] > _SCORES:
        return None
    measured = _Measured(*(np.zeros(got.shape) for _ in range(3)))
    for index in np.ndindex(got.shape[: got.ndim - 2 - (spec.heads > 1)]):
        mine = element(spec, inputs, index)
        if not enclosed.encloses(spec, mine):
            return None
        try:
            centre, radius, allowed = enclosed.exact_and_allowed(spec, mine, precision)
        except (Refused, Undecided):
            return None
        measured.exact[index], measured.allowed[index] = centre, allowed
        measured.ratios[index] = _least_ratios(Enclosed(centre, radius), got[index], allowed)
    return measured


def _by_balls(spec: Attention, inputs: Arrays, precision: Precision, got: np.ndarray) -> _Measured:
    """Each element of the batch by itself, so that no more than one is in memory."""
    own = 2 + (spec.heads > 1)
    if prod(got.shape[len(got.shape) - own :]) * inputs["k"].shape[-2] > _MOST:
        raise InputError(
            f"{got.shape[-2]} queries, {inputs['k'].shape[-2]} keys, {got.shape[-1]} columns are too many for this "
            "specification and dtype; hint: give a slice of the queries or of the heads"
        )
    measured = _Measured(*(np.zeros(got.shape) for _ in range(3)))
    for index in np.ndindex(got.shape[: got.ndim - own]):
        right = expected(spec, element(spec, inputs, index), precision)
        measured.ratios[index], measured.allowed[index] = right.ratios(got[index]), right.allowed
        measured.exact[index] = right.near
    return measured


def _middle(x: object) -> float:
    return float(x.mid()) if hasattr(x, "mid") else -np.inf if isinstance(x, Forbidden) else np.nan


def element(spec: Attention, inputs: Arrays, index: tuple[int, ...]) -> Arrays:
    """The inputs of one element of the batch."""
    axes = {name: len(shape(name, spec, inputs).replace("…", "").split()) for name in inputs}
    return {name: _at(a, index, axes[name]) for name, a in inputs.items()}


def _at(array: np.ndarray, index: tuple[int, ...], own: int) -> np.ndarray:
    """The element of a batch that an index names; axes of length 1 stand for all."""
    front = array.shape[: max(0, array.ndim - own)]
    at = tuple(min(i, n - 1) for i, n in zip(index[len(index) - len(front) :], front, strict=True))
    return np.asarray(array[at])


def _told(
    name: str,
    got: np.ndarray,
    measured: _Measured,
    precision: Precision,
    form: Callable[[tuple[int, ...]], str],
    rows: Sequence[int],
    size: int = 0,
) -> str:
    """How many elements are beyond the bound, and the worst of them; empty where none is.

    ``rows`` are those that ``got`` is of; ``size`` counts the elements where there are others, which were left out.
    """
    beyond = int((measured.ratios > 1).sum())
    if not beyond:
        return ""
    elements = f"elements {'is' if beyond == 1 else 'are'}" if name == "out" else f"entries of {name} are"
    at = tuple(int(i) for i in np.unravel_index(int(measured.ratios.argmax()), got.shape))
    least = "At least " if size > got.size else ""
    lines = [
        f"{least}{beyond} of {size or got.size} {elements} beyond what any implementation in"
        f" {precision.name}{precision.contracted} can give"
    ]
    row = -1 if name == "lse" else -2
    place = [rows[i] if axis == len(at) + row else i for axis, i in enumerate(at)]
    exact, allowed = measured.exact[at], measured.allowed[at]
    if not np.isfinite(exact):
        what = "NaN" if np.isnan(exact) else "−∞"
        lines.append(f"The worst is {name}{place}: got {got[at]:.10g}, and {what} is what the specification says")
    else:
        lines.append(f"The worst is {name}{place}: got {got[at]:.10g}, exact {exact:.10g}{form(at)}")
        if np.isfinite(got[at]):
            off = abs(got[at] - exact)
            lines.append(f"Off by {off:.2g}; at most {allowed:.2g} is legal, which the worst-case bound certifies")
    silent = int(np.isinf(measured.allowed).sum())
    return "\n".join([*lines, *([f"The bound says nothing about {silent} others"] if silent else [])])


def _form(spec: Attention, inputs: Arrays, precision: Precision, got: np.ndarray, at: tuple[int, ...]) -> str:
    """`` = exp(1)/(1+exp(1))``, where the exact value has a form and the inputs are few."""
    own = 2 + (spec.heads > 1)
    index = at[: len(at) - own]
    mine = _widened(element(spec, inputs, index))
    if sum(a.size for a in mine.values()) > _FORM:
        return ""
    ratios = expected(spec, mine, precision).ratios(got[index])
    worst = tuple(int(i) for i in np.unravel_index(int(ratios.argmax()), ratios.shape))
    exact = OfAttention(spec).exact(mine, 0, worst)
    return "" if exact is None or exact.rational() is not None else f" = {exact}"
