"""Compute a walk's arrays: exactly, in a floating format, and the errors of the latter.

The error of a computed entry c is |c − x| / ulp(x), x the exact entry and ulp(x) the spacing of the format's numbers at
x: max(2^(⌊log₂|x|⌋ − m), smallest subnormal number) with m stored bits. It is 0 only if c = x, which is decided
exactly; otherwise it comes from a ball around c − x with 64 correct bits, or is the upper bound by a ball around x.

The trace is exact as far as possible, and continues in balls. Each step is run by its one definition: on ``exact``
arrays, unless one of its inputs is known only by balls or the kind refuses, because tanh, nested exponentials or a root
of a sum leave the decidable field; then on ``ball`` arrays, at a precision at which every comparison is decided and
enough digits are proven. Large sums of quotients with different denominators run on balls too: their common denominator
would fill pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from symattn.arrays import FLOATING, kind
from symattn.arrays.array import Array
from symattn.arrays.ball import Ball, precision
from symattn.arrays.exact import Exact
from symattn.arrays.field.approximation import rational_double
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.formats import Format
from symattn.arrays.special import Forbidden
from symattn.attention.codec import exact_arrays
from symattn.attention.codec.json_text import short
from symattn.attention.flow import Step
from symattn.attention.inputs import check_inputs
from symattn.attention.spec import Attention
from symattn.derivations.enclosed import Enclosed, is_number, least_proven, nested, taken
from symattn.document.errors import InputError, Refused, Undecided, near

Arrays = dict[str, Any]
TINY = 1e-300  # stands for any error between 0 and this
# Bits to which a gap must be known, and bits for binades.
_BITS = 64
# Bits of balls, raised until the gap to the computed number is known.
_PRECISIONS = (192, 384, 1536, 4096)


def weighted(a: Array, v: Array) -> Any:
    """Return a_ij v_j for all queries i and keys j. Shapes: a (…, n_q, n_k), v (…, n_k, d_v) → (…, n_q, n_k, d_v)."""
    return a[..., :, :, None] * v[..., None, :, :]


def exact(attention: Attention, inputs: Mapping[str, object]) -> Arrays:
    """Return every named array of the walk as a NumPy array of exact elements, or of ``Enclosed`` ones where balls are
    needed."""
    lifted = {
        name: _as_plain_array(x) if _is_plain(x) else Exact.lift(x) for name, x in inputs.items()
    }
    return _insert_weighted_values(attention, inputs, trace(attention, lifted))


def floating(attention: Attention, inputs: Mapping[str, object], dtype: str) -> Arrays:
    """Compute the same arrays in the format, from the inputs rounded to it."""
    if dtype not in FLOATING:
        raise InputError(
            f"unknown dtype {short(dtype)!r}.{near(dtype, FLOATING)} Known: {', '.join(FLOATING)}"
        )
    format_ = kind(dtype)
    # Overflow and NaN are what the format computes, and are shown.
    with np.errstate(all="ignore"):
        lifted = {
            name: _as_plain_array(x) if _is_plain(x) else _round_entries_to_format(format_, x)
            for name, x in inputs.items()
        }
        computed = _insert_weighted_values(attention, inputs, attention.trace(**lifted))
    return {
        name: x.numpy() if hasattr(x, "numpy") else np.asarray(x) for name, x in computed.items()
    }


def ulp(format_: Format, x: Quotient | Enclosed) -> Fraction:
    """Return the spacing of the format's numbers at x; the smaller one if a ball spans two spacings."""
    lowest = 1 - format_.smallest.denominator.bit_length()
    return (
        format_.smallest
        if x.is_zero()
        else Fraction(2) ** max(binade(x) + 1 - format_.digits, lowest)
    )


def error(format_: Format, x: Any, computed: float) -> float | None:
    """Return |computed − x| in ulp(x); None if one of them is not a number."""
    if not is_number(x):
        return 0.0 if isinstance(x, Forbidden) and computed == -np.inf else None
    # An error in ulp needs two finite numbers and a binade.
    contains_zero = isinstance(x, Enclosed) and x.ball.contains(0)
    if not np.isfinite(computed) or contains_zero:
        return None
    c = Fraction(float(computed))
    rational = x.rational()
    unit = ulp(format_, x)
    if rational is not None:
        return rational_double(abs(c - rational) / unit)
    for bits in (
        _PRECISIONS
    ):  # x is irrational or known by a ball, so the error is not 0; ``TINY`` if it is smaller
        ball = x.arb(bits)
        with flint.ctx.workprec(bits):
            unit_of_place = flint.fmpq(unit.numerator, unit.denominator)
            gap = abs(ball - flint.fmpq(c.numerator, c.denominator)) / unit_of_place
        if gap.rel_accuracy_bits() >= _BITS:
            return max(float(gap.mid()), TINY)
    return max(float(gap.upper()), TINY) if isinstance(x, Enclosed) else TINY


def binade(x: Quotient | Enclosed) -> int:
    """Return ⌊log₂|x|⌋ for x ≠ 0, from a ball, or by an exact comparison if the ball contains a power of two."""
    r = x.rational()
    if r is not None:
        r = abs(r)
        e = r.numerator.bit_length() - r.denominator.bit_length()
        return e if r >= Fraction(2) ** e else e - 1
    with flint.ctx.workprec(_BITS):
        size = abs(x.arb(_BITS))
        low = _binade_of_arb(size.lower())
        high = _binade_of_arb(size.upper())
    if isinstance(x, Enclosed):
        return low
    # At a power of two the ball does not decide, so exact numbers are compared.
    low_suffices = low == high or abs(x) < Fraction(2) ** high
    return low if low_suffices else high


def errors(exact_: np.ndarray, computed: np.ndarray, dtype: str) -> np.ndarray:
    """Return the errors of an array in ulp, as a NumPy array of objects; None for an entry without one."""
    out = np.empty(exact_.shape, dtype=object)
    for index in np.ndindex(exact_.shape):
        value = float(computed[index])
        out[index] = error(Format(dtype), exact_[index], value)
    return out


def _binade_of_arb(x: flint.arb) -> int:
    man, exp = (int(part) for part in x.man_exp())
    return man.bit_length() + exp - 1


def mixing(steps: Iterable[Step]) -> Step:
    """Return the step that sums the values, weighted by the final weights."""
    return next(step for step in steps if step.name in ("attended_latents", "attended", "output"))


def _insert_weighted_values(attention: Attention, inputs: Iterable[str], trace: Arrays) -> Arrays:
    """Return the trace with the weighted values inserted before their sum."""
    last = mixing(attention.pipeline(inputs))
    out: Arrays = {}
    for name, array in trace.items():
        if name == last.name:
            out["weighted"] = weighted(*[trace[n] for n in last.of[:2]])
        out[name] = array
    return out


def _is_plain(x: object) -> bool:
    """Return whether the entries are truth values or integer labels, which are not computed with."""
    return isinstance(exact_arrays.flat(x)[0], int)


def _as_plain_array(x: Any) -> Array:
    type_of_entries = np.bool_ if isinstance(exact_arrays.flat(x)[0], bool) else np.int64
    return np.asarray(x, dtype=type_of_entries)


def _round_entries_to_format(format_: Any, x: object) -> Any:
    """Return the entries rounded to the format; −∞ of an additive mask stays −∞."""
    floats = nested(lambda e: -np.inf if isinstance(e, Forbidden) else e.to_float(), x)
    plain = np.asarray(floats, dtype=np.float64)
    if np.isneginf(plain).any():
        return (
            format_.literal(plain) if hasattr(format_, "literal") else plain.astype(format_.dtype)
        )
    return format_.lift(plain)


# -- exact as far as possible ------------------------------------------------------------------------------------------
# Bits of the balls of a walk, raised until enough digits are proven.
_BALLS = (256, 512, 1024, 2048, 4096)
_TERMS = 300  # the most terms of a denominator
_DIGITS = 40  # digits that every ball should prove


def trace(spec: Attention, inputs: Mapping[str, object]) -> Arrays:
    """Return every named array as a NumPy array of exact or ``Enclosed`` numbers. Raises what the definition raises."""
    check_inputs(spec, dict(inputs))
    doubt: Undecided | None = None
    best: Arrays | None = None
    for bits in _BALLS:
        try:
            results = dict(inputs)
            for step in spec.pipeline(inputs):
                results[step.name] = _run_step_of_walk(
                    step, results, fills_pages(spec, step, results), bits
                )
            arrays = {name: _as_array_of_elements(x, bits) for name, x in results.items()}
            proven = least_proven(x for array in arrays.values() for x in array.flat)
            # Without enclosed numbers there is nothing to prove.
            best, sharp = arrays, proven is None or proven >= _DIGITS
        except Undecided as undecided:
            doubt = undecided
            continue
        if sharp:
            return best
    if best is None:
        raise Undecided(f"still undecided at {_BALLS[-1]} bits: {doubt}")
    return best  # a number that is 0 has no digits that a ball could prove


def fills_pages(spec: Attention, step: Step, arrays: Mapping[str, Any]) -> bool:
    """Return whether a step adds up many quotients with different denominators.

    These are the tanh terms of additive scores, sigmoid weights times values, and projected outputs of heads: the
    common denominator of m sums of k terms has k^m terms.
    """
    # The number of terms of a common denominator, before it is computed.
    first = arrays[step.of[0]]
    if step.name == "scores" and spec.score == "additive":
        return bool(3 ** arrays["v_s"].shape[-1] > _TERMS)
    if step.name == "output" and "w_o" in step.of:
        return bool(arrays["weights"].shape[-1] ** spec.heads > _TERMS)
    mixes = step.name in ("attended_latents", "attended", "output") and step.of[0] in (
        "weights",
        "dropped",
    )
    return mixes and spec.normaliser == "sigmoid" and bool(2 ** first.shape[-1] > _TERMS)


def _run_step_of_walk(step: Step, arrays: Arrays, long: bool, bits: int) -> Any:
    """Run a step on ``exact`` arrays or, if they refuse or the result is too ``long``, on balls."""
    operands = [arrays[name] for name in step.of]
    # Once an operand is a ball, the result is too.
    if not long and not any(isinstance(x, Ball) for x in operands):
        with suppress(Refused):
            return step.run(*operands)
    with precision(bits):
        balls = [Ball.lift(x.entries) if isinstance(x, Exact) else x for x in operands]
        return step.run(*balls)


def _as_array_of_elements(x: Any, bits: int) -> np.ndarray:
    """Return an array as a NumPy array of elements."""
    if isinstance(x, Ball):
        return Ball.each(lambda e: taken(e, bits), x)
    return x.entries if isinstance(x, Exact) else np.asarray(x).astype(object)
