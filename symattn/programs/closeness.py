"""Compare an output with the exact one, and describe what exceeds the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.formats import FORMATS, HALF, Format
from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.arrays.tensors import copied, dtype_kind, is_tensor
from symattn.attention.inputs import TOKENS, check_inputs, check_names
from symattn.attention.spec import Attention
from symattn.bounds.judge import expected
from symattn.bounds.judgement import (
    Judgement,
    Measured,
    element,
    judge_output,
    measure,
    measure_logarithms,
    widened,
)
from symattn.bounds.sharp import means, rows_in_float64
from symattn.bounds.sharp.elements import Accused
from symattn.bounds.sharp.limits import Stores
from symattn.bounds.sharp.means import MeanBeyondLimit
from symattn.bounds.sharp.sample import averaged, chosen, only
from symattn.document.errors import InputError, article
from symattn.programs.frameworks import Tensor, Tensors, dtype_name, read
from symattn.programs.question import Question, dequantised, split
from symattn.verification.definitions import attention_output

Arrays = dict[str, Tensor]  # NumPy arrays, or tensors on a device that are judged there
_LARGE = ("q", "k", "v")  # inputs that stay in float32 if it represents them
_FORM = 64  # most entries of the inputs for which an exact form is computed


class Ready(NamedTuple):
    """A specification with fitting inputs in an arithmetic; the shape of the output; and what the filter assumes to be
    stored, None if it is not used or does not apply."""

    spec: Attention
    inputs: Arrays
    precision: Precision
    shape: tuple[int, ...]
    how: Stores | None


def ready(question: Question) -> Ready:
    """Read and check the inputs. Raises ``InputError`` if they do not fit the specification or the precision."""
    spec, precision = question.spec, question.precision
    if not isinstance(spec, Attention | None):
        raise InputError(
            f"the specification is an Attention(...), and not {article(type(spec).__name__)}"
        )
    spec = spec or Attention()
    arrays, factors = split(question.given)
    check_names(spec, arrays)
    if precision is None and "q" not in arrays:
        raise InputError("there is no input 'q'; hint: queries, keys and values")
    device = None if factors else shared_device(arrays)
    read_as = {
        name: read_array(name, array, name in _LARGE, device) for name, array in arrays.items()
    }
    inputs = {name: values for name, (values, _) in read_as.items()}
    if precision is None and (dtype := read_as["q"][1]) not in FORMATS:
        raise InputError(
            f"q is of {dtype}, which says nothing about the arithmetic; hint: precision='float32'"
        )
    arithmetic = Precision.of(
        read_as["q"][1] if precision is None else precision, question.contract
    )
    check_alpha(question.alpha)
    # Inputs of another type must be numbers of the arithmetic's format.
    for name in TOKENS:
        if name in inputs and read_as[name][1] != arithmetic.input.name:
            check_representable(name, inputs[name], arithmetic.input)
    check_inputs(spec, dict(inputs))
    inputs = _without_masked(spec, dequantised(spec, inputs, factors))
    named = isinstance(precision, Precision) or question.contract is not None
    how = Stores.of(arithmetic, not named, spec.capped) if question.alpha is not None else None
    return Ready(spec, inputs, arithmetic, _shape_of_attention_output(spec, inputs), how)


def check_alpha(alpha: float | None) -> None:
    """Raise ``InputError`` unless ``alpha`` is a probability or None."""
    if alpha is not None and (not isinstance(alpha, Real) or not 0 < alpha < 1):
        raise InputError(f"alpha must be a probability between 0 and 1, or None, got {alpha!r}")


def close_to_exact(question: Question, called: str = "out") -> str:
    """Describe what is wrong with the output and the logarithms of a question, or return "".

    Without ``alpha``, ``called`` is the name of the output in the description. Raises ``InputError`` if the inputs do
    not fit the specification or the precision.
    """
    of = ready(question)
    rows = None if question.rows is None else chosen(of.spec, of.inputs, question.rows)
    how = question.out, question.lse, question.alpha or 1.0, rows, called
    words = close(of, *how)
    # Only a wrong output is compared with other readings, since each costs a bound.
    if words:
        other = next(
            (name for name, other in _yield_other_readings(question, of) if not close(other, *how)),
            "",
        )
        return f"{words}\nIt passes with {other}" if other else words
    return ""


def _yield_other_readings(question: Question, of: Ready) -> Iterator[tuple[str, Ready]]:
    """Yield other alignments, contracts and arithmetic of products, in words, that the user may have meant."""
    # With n_q = n_k both alignments are the same.
    if of.spec.reads_places and of.inputs["q"].shape[-2] != of.inputs["k"].shape[-2]:
        top = of.spec.alignment == "top-left"
        aligned = replace(of.spec, alignment="bottom-right" if top else "top-left")
        yield f'alignment="{aligned.alignment}"', of._replace(spec=aligned)
    if question.contract == "fused" and of.precision.contracted:
        words = f"contract=None, where scores may be stored in {of.precision.input.name}"
        yield words, ready(replace(question, contract=None))
    # Where TF32 is on, tensor cores round factors of float32 to 11 digits.
    if of.precision.name == "float32" and question.contract is None:
        words = 'precision="tf32", where products of matrices round their factors to 11 digits'
        yield words, ready(replace(question, precision="tf32"))


def only_if_stored(question: Question) -> str:
    """Describe why no kernel could return this output without storing scores; "" if one could, if that is unknown, or
    if a contract is given. At most as many rows are judged as means are taken of."""
    if question.contract or question.alpha is None or isinstance(question.precision, Precision):
        return ""
    # The narrowest question: the same one, with scores that are not stored.
    of = ready(replace(question, contract="fused"))
    # Outside the filter nothing is known about kernels that store no scores.
    if of.how is None or not rows_in_float64.applies(of.spec, of.inputs):
        return ""
    most = averaged(prod(of.shape[:-2]), of.inputs["k"].shape[-2])
    rows = (
        list(range(of.shape[-2]))
        if question.rows is None
        else chosen(of.spec, of.inputs, question.rows)
    )
    # Means are taken of no more rows.
    if len(rows) > most:
        rows = chosen(of.spec, of.inputs, most)
    words = close(
        of, question.out, None, question.alpha, None if len(rows) == of.shape[-2] else rows
    )
    return (
        f'A kernel that does not store scores could not give this: contract="fused"\n{words}'
        if words
        else ""
    )


def close(
    of: Ready,
    out: Tensor,
    lse: object = None,
    alpha: float = 1.0,
    rows: list[int] | None = None,
    called: str = "out",
    averaged: int | None = None,
) -> str:
    """Describe what is wrong with ``out`` in ``rows`` (all by default), or return ""; means are of at most
    ``averaged`` rows of a head (None: ``sample.averaged``)."""
    try:
        shape = tuple(getattr(out, "shape", ()))
    except RuntimeError:  # a nested tensor has none
        shape = ()
    every = list(range(of.shape[-2])) if rows is None else rows
    sliced = rows is not None and shape == of.shape
    device = of.inputs["q"].device if is_tensor(of.inputs["q"]) else None
    got, dtype = read_array("out", out[..., np.asarray(every), :] if sliced else out, device=device)
    words = form_words(called, shape, of.shape, dtype, of.precision)
    if words:
        return words
    spec, inputs = (of.spec, of.inputs) if rows is None else only(of.spec, of.inputs, rows)
    judgement = judge_output(spec, inputs, got, of.precision, of.how, alpha, every, averaged)
    words = _describe_accusation(
        judgement, of._replace(spec=spec, inputs=inputs), got, alpha, every, called
    )
    if words or lse is None:
        return words
    return _judge_row_logarithms(
        of.spec, of.inputs, of.precision, lse, of.shape[:-1], rows or range(of.shape[-2])
    )[0]


def measured(
    out: Tensor, arrays: Tensors, spec: Attention, precision: Precision, rows: Sequence[int]
) -> Measured | None:
    """Measure ``rows`` of ``out`` against the worst-case bound; None for a wrong shape."""
    inputs, (got, _) = _read_unmasked_inputs(spec, arrays), read_array("out", out)
    if got.shape != _shape_of_attention_output(spec, inputs):
        return None
    return measure(*of_rows(spec, inputs, rows), got[..., list(rows), :], precision)


def of_rows(spec: Attention, inputs: Arrays, rows: Sequence[int]) -> tuple[Attention, Arrays]:
    """Return the attention restricted to some rows; unchanged for all rows, whatever the attention."""
    return (spec, inputs) if len(rows) == inputs["q"].shape[-2] else only(spec, inputs, rows)


def logarithms(
    lse: object, arrays: Tensors, spec: Attention, precision: Precision, rows: Sequence[int]
) -> tuple[str, float]:
    """Describe what is wrong with ``lse`` (…, n_q) in ``rows``, or ""; and return the largest error / worst-case bound,
    ∞ for a wrong shape or type."""
    inputs = _read_unmasked_inputs(spec, arrays)
    return _judge_row_logarithms(
        spec, inputs, precision, lse, _shape_of_attention_output(spec, inputs)[:-1], rows
    )


def _read_unmasked_inputs(spec: Attention, inputs: Tensors) -> Arrays:
    return _without_masked(
        spec, {name: read_array(name, array)[0] for name, array in inputs.items()}
    )


def _describe_accusation(
    judgement: Judgement, of: Ready, got: Tensor, alpha: float, rows: list[int], called: str
) -> str:
    """Describe what a judgement accuses, or return ""."""
    if not judgement.beyond:
        return ""
    if judgement.mean is not None:
        return _describe_means(judgement.mean, of.how, alpha)
    assert judgement.measured is not None
    accused, named = judgement.accused, [rows[i] for i in judgement.rows]
    if accused is None:
        form = partial(
            _format_exact_element_form, of.spec, on_cpu(of.inputs), of.precision, copied(got)
        )
        return _describe_elements_beyond(
            called, copied(got), judgement.measured, of.precision, form, named
        )
    less, mine = only(of.spec, of.inputs, judgement.rows)
    part = copied(got[..., list(judgement.rows), :])
    size = prod(got.shape)
    assert of.how is not None
    alike = _yield_mistake_resemblance(less, on_cpu(mine), of.how, part, named)
    if judgement.beyond == "worst case":
        return "\n".join(
            (
                _describe_elements_beyond(
                    "out", part, judgement.measured, of.precision, lambda at: "", named, size
                ),
                *alike,
            )
        )
    *front, row, column = accused.worst
    at = (*front, judgement.rows.index(row), column)
    y, o = part[at], judgement.measured.near[at]
    # Rounding to nearest does not explain these elements, though the worst case allows them.
    lines = (
        f"{accused.count} of {size} elements {'is' if accused.count == 1 else 'are'} "
        f"{_describe_exceeded_bound(accused.certain)} in"
        f" {of.how.format.name}",
        f"The worst is out{[*front, rows[row], column]}: got {y:.10g}, exact {o:.10g}",
        f"Off by {abs(y - o):.2g}; "
        + _describe_smaller_tolerance(accused.tolerance, float(judgement.measured.allowed[at])),
    )
    return "\n".join(
        (
            *lines,
            *alike,
            _describe_certainty(of.how, alpha, accused, "tolerance"),
        )
    )


def _yield_mistake_resemblance(
    spec: Attention, inputs: Arrays, how: Stores, got: np.ndarray, rows: list[int]
) -> Iterator[str]:
    """Yield a line on the known mistake that these rows look like, if there is one."""
    results = means.looks_like(spec, inputs, how, got, rows)
    if results is not None:
        place, words = results
        yield f"The worst rows{'' if place == 'of all rows' else f', {place},'} are {words}"


def _describe_smaller_tolerance(sharp: float, worst: float) -> str:
    """Describe the smaller of two tolerances; if that is not the sharp one, say why."""
    if sharp <= worst:
        return f"the sharp tolerance is {sharp:.2g} (the worst case: {worst:.2g})"
    return f"at most {worst:.2g} is allowed by the worst case; the sharp tolerance allows exponentials an error of 2⁻¹³"


def _describe_means(mean: MeanBeyondLimit, how: Stores | None, alpha: float) -> str:
    """Describe elements that are wrong jointly, though each is within its tolerance."""
    assert how is not None
    return "\n".join(
        (
            f"Weighted means of the output ({mean.place}) are {_describe_exceeded_bound(mean.certain)} in "
            f"{how.format.name},"
            f" {mean.share:.3g} times the limit of roundings to nearest",
            f"They are {mean.words}; every element is within its tolerance",
            _describe_certainty(how, alpha, mean, "limit"),
        )
    )


def _describe_exceeded_bound(certain: float) -> str:
    return f"beyond {'all roundings together' if certain > 1 else 'rounding to nearest'}"


def _describe_certainty(
    how: Stores, alpha: float, beyond: Accused | MeanBeyondLimit, what: str
) -> str:
    """Say how sure it is: whatever the roundings, or by the filter, which alone needs replays."""
    # Beyond the certain bound no probability is needed.
    if beyond.certain > 1:
        return (
            f"Roundings can do no more than {1 / beyond.certain:.2g} of this, however they fall, if"
            f" {how.stored}"
        )
    return (
        f"A correct output is flagged with a probability of at most {alpha:g}, if {how.hypothesis}; correct replays use"
        f" {beyond.guard:.2f} of the {what} here"
    )


def _judge_row_logarithms(
    spec: Attention,
    inputs: Arrays,
    precision: Precision,
    lse: Tensor,
    wanted: tuple[int, ...],
    rows: Sequence[int],
) -> tuple[str, float]:
    got, dtype = read_array("lse", lse)
    words = form_words("lse", got.shape, wanted, dtype, precision)
    if words:
        return words, float("inf")
    # Rows are taken from the inputs as well as from the logarithms.
    (spec, inputs), got = of_rows(spec, inputs, rows), got[..., list(rows)]
    result = measure_logarithms(spec, on_cpu(inputs), got, precision)
    return _describe_elements_beyond("lse", got, result, precision, lambda at: "", rows), float(
        result.ratios.max(initial=0.0)
    )


def form_words(
    name: str, shape: tuple[int, ...], wanted: tuple[int, ...], dtype: str, precision: Precision
) -> str:
    """Describe what is wrong with the shape or type of an output, or return ""."""
    if shape != wanted:
        return f"{name} has the shape {shape}, expected {wanted}"
    # An output in a narrower format has lost digits, whatever its numbers are.
    if dtype not in FORMATS or Format(dtype).u > precision.returned.u:
        return f"{name} is of {dtype} for inputs of {precision.input.name}"
    return ""


def read_array(
    name: str, array: Tensor, narrow: bool = False, device: object = None
) -> tuple[Tensor, str]:
    """Return the numbers of a NumPy array or tensor as float64, or as float32 if ``narrow`` and of 16 bits, and their
    type; on the ``device``, or in NumPy without one. Raises ``InputError`` for anything else."""
    array = np.asarray(array) if isinstance(array, int | float) else array
    # float32 holds 16-bit formats exactly, at half the memory.
    half = narrow and dtype_name(array) in HALF
    # Tensors are read on the device without a copy to the host.
    if device is not None and is_tensor(array) and not array.is_complex():
        return on_device(array.to(device), half), dtype_name(array)
    try:
        values, dtype, _ = read(array, np.float32 if half else np.float64)
    except TypeError as error:
        raise InputError(
            f"{name} is not an array of NumPy or torch: it {error}".replace("it returned", "it is")
        ) from None
    # Masks and numbers of tokens keep their kind.
    if dtype == "bool":
        values = values.astype(bool)
    elif dtype.startswith(("int", "uint")):
        values = values.astype(np.int64)
    if device is None:
        return values, dtype
    import torch

    return torch.as_tensor(values, device=device), dtype


def check_representable(name: str, values: Tensor, format: Format) -> None:
    """Raise ``InputError`` for finite numbers that the format does not represent."""
    xp: Any = namespace_of(values)
    numbers = xp.astype(xp.where(xp.isfinite(values), values, 0.0), xp.float64)
    if not xp.all(format.rounded(numbers) == numbers):
        raise InputError(
            f"{name} holds numbers that {format.name} cannot hold; hint: round them first"
        )


def _without_masked(spec: Attention, inputs: Arrays) -> Arrays:
    """Replace NaN and infinities by 0 in keys and values that no query attends to; elsewhere raise ``InputError``."""
    xp: Any = namespace_of(inputs["q"])
    nonfinite = {name: ~xp.isfinite(inputs[name]) for name in "qkv"}
    if not any(where.any() for where in nonfinite.values()):
        return inputs
    # Zeros in their place, so that the mask can be computed.
    tame = inputs | {name: xp.where(where, 0, inputs[name]) for name, where in nonfinite.items()}
    with np.errstate(all="ignore"):
        masked = spec.trace(**widened(tame)).get("masked")
    for name in "kv":
        nonfinite[name] = nonfinite[name].any(axis=-1)
        if masked is not None:
            # A key counts if any query of any item may attend to it.
            nonfinite[name] &= xp.isfinite(masked).reshape(-1, *masked.shape[-2:]).any(axis=(0, 1))
    for name, where in nonfinite.items():
        if where.any():
            at = tuple(int(i) for i in xp.argwhere(where)[0])
            raise InputError(
                f"{name}{list(at)} is not finite where it counts: there is no exact output"
            )
    return tame


def on_cpu(inputs: Arrays) -> Arrays:
    """Return the inputs as NumPy arrays."""
    return {name: copied(a) for name, a in inputs.items()}


def _shape_of_attention_output(spec: Attention, inputs: Arrays) -> tuple[int, ...]:
    q, k, v = (inputs[name].shape for name in "qkv")
    own = 2 + len(spec.head_axis)
    leading_axes = (shape[: len(shape) - own] for shape in (q, k, v))
    batch = np.broadcast_shapes(*leading_axes)
    heads_and_rows = q[len(q) - own : -1]
    return (*batch, *heads_and_rows, v[-1])


def _describe_elements_beyond(
    name: str,
    got: np.ndarray,
    measured: Measured,
    precision: Precision,
    form: Callable[[tuple[int, ...]], str],
    rows: Sequence[int],
    size: int = 0,
) -> str:
    """Describe how many elements are beyond the bound, and the worst of them; "" if none is.

    ``rows`` are the rows of ``got``; ``size`` is the number of all elements if others were left out.
    """
    beyond = int((measured.ratios > 1).sum())
    if not beyond:
        return ""
    elements = (
        f"elements {'is' if beyond == 1 else 'are'}" if name == "out" else f"entries of {name} are"
    )
    at = tuple(int(i) for i in np.unravel_index(int(measured.ratios.argmax()), got.shape))
    # Rows that were left out may hold more of them.
    least = "At least " if size > got.size else ""
    lines = [
        f"{least}{beyond} of {size or got.size} {elements} beyond what any implementation in"
        f" {precision.name}{precision.contracted} can give"
    ]
    # Logarithms have no axis of columns, so that rows come last.
    row = -1 if name == "lse" else -2
    place = [rows[i] if axis == len(at) + row else i for axis, i in enumerate(at)]
    exact, allowed = measured.near[at], measured.allowed[at]
    # A row without keys has no finite output.
    if not np.isfinite(exact):
        what = "NaN" if np.isnan(exact) else "−∞"
        lines.append(
            f"The worst is {name}{place}: got {got[at]:.10g}, and {what} is what the specification says"
        )
    else:
        lines.append(
            f"The worst is {name}{place}: got {got[at]:.10g}, exact {exact:.10g}{form(at)}"
        )
        # An infinite output has no distance.
        if np.isfinite(got[at]):
            off = abs(got[at] - exact)
            lines.append(
                f"Off by {off:.2g}; at most {allowed:.2g} is allowed, which the worst-case bound certifies"
            )
    silent = int(np.isinf(measured.allowed).sum())
    return "\n".join(
        [*lines, *([f"The bound says nothing about {silent} others"] if silent else [])]
    )


def _format_exact_element_form(
    spec: Attention, inputs: Arrays, precision: Precision, got: np.ndarray, at: tuple[int, ...]
) -> str:
    """Return `` = exp(1)/(1+exp(1))`` if the inputs are few and the exact value is irrational, else ""."""
    # Matrices have two axes, and heads one more.
    own = 2 + len(spec.head_axis)
    index = at[: len(at) - own]
    mine = widened(element(spec, inputs, index))
    # Long forms are unreadable.
    if sum(a.size for a in mine.values()) > _FORM:
        return ""
    ratios = expected(spec, mine, precision).ratios(got[index])
    worst = tuple(int(i) for i in np.unravel_index(int(ratios.argmax()), ratios.shape))
    exact = attention_output.subject(spec).exact(mine, 0, worst)
    # A rational value is printed as a number anyway.
    return "" if exact is None or exact.rational() is not None else f" = {exact}"


# -- tensors on a device -----------------------------------------------------------------------------------------------
# Tensors are judged on their device, so that no more than a verdict is copied.
#
# q, k, v and the output in half precision on one device are read there, and all of the sharp test is computed there in
# float64. Other arrays and tensors are copied to the CPU and judged by NumPy, in the same code: those already on the
# CPU, those on a device without float64 (Apple's ``mps``), and those that the worst case alone judges.

#: Kinds of device whose tensors are copied.
COPIED = ("cpu", "mps")


def shared_device(inputs: Tensors) -> Any:
    """Return the device on which q, k and v are judged, or None if they are copied."""
    arrays = [inputs[name] for name in "qkv" if name in inputs]
    if not all(is_tensor(a) and dtype_name(a) in HALF for a in arrays):
        return None
    devices = {a.device for a in arrays}
    return None if len(devices) != 1 or arrays[0].device.type in COPIED else arrays[0].device


def on_device(tensor: Tensor, narrow: bool) -> Tensor:
    """Return numbers as float64, or float32 if ``narrow``, whole numbers as int64, and booleans as they are."""
    xp = namespace_of(tensor)
    if dtype_kind(tensor) == "b":
        return tensor
    wide = xp.int64 if dtype_kind(tensor) == "i" else xp.float32 if narrow else xp.float64
    return xp.astype(tensor.detach(), wide)
