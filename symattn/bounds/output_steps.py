"""The steps behind the weighted values: what M, how far a legal H may be off, becomes in each.

This proves paragraph 8 of the bound. H is what the step takes, and the first step takes the weighted values. Each step
is bounded by its error term alone, in balls or in floats; λ, g, u, η and ε as in ``worst_case``. H as it is stored,
each operation and a number that is computed are rounded once; what a step gives is stored where the next one takes it,
or is the output.

scales    H times numbers f, each an input or computed with at most one rounding: the product passes three roundings,
          |f| M + g(3) |f| (|H| + M).
gates     H times σ(Γ), which is off by σ' = ε + 6u, as (1 + tanh(Γ/2))/2 may be taken; H, σ and the product are
          stored: σ M + σ'(|H| + M) + g(3)(σ + σ')(|H| + M).
adds      H plus b, an input or a number that passes at most six roundings: M + g(2)(|H| + M) + g(7)|b|. The number is
          a product of an input x, if any, and of numbers that are at most 1.
rounded   any operations on each row, as written: what ``symattn.arrays.rounded`` finds from numbers that are off by
          M + g(1)(|H| + M) + η, as they are stored; every operation reads the same ones. A norm has no bound for rows
          that M may turn into zeros, as in half precision where every array is stored (``eager``).
projects  the heads side by side, and H |W_O| + b_O of them, which is linear in H, if there is a W_O:
          (M + η)|W_O| + g(h d_v + 2)((|H| + M)|W_O| + |b_O|) + η (h d_v + 2), so also with f in W_O, if no product of
          both underflows.

``scales`` and ``gates`` have at most four operations, ``adds`` has eight, each of which may underflow, by η that what
follows in the same step multiplies: 4η(1 + |H| + M), and 4η|f| more in ``scales``; 8η(1 + max |x|) in ``adds``. η is
the largest of all formats. A result beyond the range leaves an entry without a bound (H7). These terms cover code that
takes the steps in their order: a factor of the values in the place of the outputs, for instance, rounds what may cancel
later, and would need a proof of its own.

A wrong step, whose variant is bounded as well, may also leave its factor out, take it twice, or take another one.
In floats everything is nonnegative and as large as in balls, but for the roundings of at most 2²⁰ terms.
Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.arrays.rounded import rounded
from symattn.attention.flow import Step
from symattn.bounds import rule
from symattn.bounds.arithmetic import Balls, extents, g, number, size, upper
from symattn.bounds.reference import Run, Values, lifted

# Float64 sizes from enclosures are too small by less than this part, as in ``scores``.
_UP = 1 + 2.0**-30
# Error terms of steps whose entries each depend on one entry of what they take.
_ENTRY_BY_ENTRY = ("scales", "gates", "adds")
#: M of what a step gives, from M of what it takes, and which sums may exceed the range.
StepBound = Callable[[Run, Precision, Step, Balls], tuple[Balls, Any]]


def bound_output(run: Run, precision: Precision, moved: Balls) -> tuple[Balls, Any]:
    """Return M of the output from M of the weighted values, and booleans: which elements may exceed the range."""
    too_large: Any = False
    for step in run.steps_behind_weights:
        moved, over = BOUNDS[step.errors](run, precision, step, moved)
        too_large = _pass_through_step(run, step, too_large) | over
    return moved, too_large


def _pass_through_step(run: Run, step: Step, too_large: Any) -> Any:
    """Return which elements of a step depend on such elements of what it takes: whole rows, or the same entries."""
    if not np.any(too_large):
        return False
    if step.errors in _ENTRY_BY_ENTRY:
        return too_large
    rows = too_large.any(axis=-1, keepdims=True)
    return rows.any(axis=-3) if step.errors == "projects" and run.merges_heads else rows


def _bound_scaled(run: Run, precision: Precision, step: Step, moved: Balls) -> tuple[Balls, Any]:
    head = size(number(run.values[step.of[0]]))
    share = size(step.run(head * 0 + 1, *_operands(run, step)))
    if step.name in run.variant.steps:
        share = _largest_wrong_factor(run, step, share)
    sizes = head + moved
    result = share * moved + share * sizes * g(3, precision.roughest, run.kind)
    result = result + (1 + share + sizes) * (4 * precision.largest_eta)
    return result, _exceeds_range(share * sizes, precision)


def _largest_wrong_factor(run: Run, step: Step, share: Balls) -> Balls:
    """Return the largest factor of a step, of the same twice, of its operands themselves, or of its variant."""
    maximum, ones = namespace_of(share).maximum, share * 0 + 1
    largest = maximum(maximum(share, share * share), ones)
    wrong = run.variant.steps[step.name](run.spec, {**run.values, step.of[0]: ones})
    return maximum(largest, size(number(wrong)))


def _bound_gated(run: Run, precision: Precision, step: Step, moved: Balls) -> tuple[Balls, Any]:
    (opened,) = (number(operand) for operand in _operands(run, step))
    head = size(number(run.values[step.of[0]]))
    share = size(step.run(head * 0 + 1, opened))
    f = precision.roughest
    # An exponential, a sum and a quotient, relative to a gate of at most 1.
    off: Balls = 2 * precision.exp_ulps * float(precision.score.u) + 6 * float(f.u)
    if step.name in run.variant.steps:
        # A wrong step may multiply by the argument itself, or by twice the gate.
        share = namespace_of(share).maximum(size(opened) + share * 0, share * 0 + 2)
        off = share * off
    rough, sizes = g(3, f, run.kind), head + moved
    result = share * moved + sizes * off + sizes * (share + off) * rough
    # Each product and store may underflow, on top of the relative errors.
    return result + (sizes + 1) * (4 * precision.largest_eta), False


def _bound_added(run: Run, precision: Precision, step: Step, moved: Balls) -> tuple[Balls, Any]:
    before = number(run.values[step.of[0]])
    # Of a variant's own array, so that a term added twice is as large as it is.
    part = size(number(run.values[step.name]) - before)
    sizes, f = size(before) + moved, precision.roughest
    rough, of_part = g(2, f, run.kind), g(7, f, run.kind)
    result = moved + sizes * rough + part * of_part
    result = result + (8 * precision.largest_eta) * (1 + _largest_operand(run, step))
    return result, _exceeds_range(sizes + part, precision)


def _largest_operand(run: Run, step: Step) -> float:
    """Return the largest absolute value that a step takes besides its first array; 0 if it takes nothing else."""
    sizes = (upper(size(number(operand))) for operand in _operands(run, step))
    return max((float(a.max(initial=0.0)) for a in sizes), default=0.0)


def _bound_rounded(run: Run, precision: Precision, step: Step, moved: Balls) -> tuple[Balls, Any]:
    kind, heads = rounded(precision), run.values[step.of[0]]
    in_balls, f = run.kind is Ball, precision.roughest
    stored = moved + (size(number(heads)) + moved) * g(1, f, run.kind)
    stored = stored + precision.largest_eta
    off = upper(stored if in_balls else stored * _UP)
    read = kind.near_to(heads if in_balls else heads.balls(), off)
    others = [lifted(run.inputs[name], kind) for name in step.of[1:]]
    off = np.asarray(step.run(read, *others).bound)
    too_large = ~np.isfinite(off)
    off = np.where(too_large, 0.0, off)
    result: Balls = Ball.lift(off) if in_balls else off
    if step.name in run.variant.steps:
        # A mistake in the step may enlarge errors as much as the step it is left out of.
        result = namespace_of(result).maximum(result, moved)
        wrong = size(number(run.values[step.name]))
        result = result + wrong * g(3, f, run.kind)
    return result, too_large


def _bound_projected(run: Run, precision: Precision, step: Step, moved: Balls) -> tuple[Balls, Any]:
    sizes = {n: size(number(run.values[n])) for n in step.of}
    # what a variant may add
    sizes |= {n: size(number(run.values[n])) for n in ("x", *"qkv") if n in run.values}
    # 0 of all that the step adds: what is added moves nothing
    sources = {n: a if n == "w_o" else a * 0 for n, a in sizes.items()}
    heads, eta = step.of[0], precision.largest_eta
    if "w_o" not in sizes:
        return _run_on_other_arrays(run, step, sources | {heads: moved}), False
    # H may underflow as it is stored.
    passed = _run_on_other_arrays(run, step, sources | {heads: moved + eta})
    total = _run_on_other_arrays(run, step, {**sizes, heads: sizes[heads] + moved})
    f, terms = precision.roughest, extents(sizes["w_o"])[-2] + 2
    # Outside balls the product is rounded up here.
    lost = eta * terms if run.kind is Ball else np.nextafter(eta * terms, np.inf)
    return passed + total * g(terms, f, run.kind) + lost, _exceeds_range(total, precision)


def _run_on_other_arrays(run: Run, step: Step, values: Values) -> Balls:
    """Run a step, or a variant's replacement, on other arrays."""
    change = run.variant.steps.get(step.name)
    return (
        change(run.spec, {**run.values, **values})
        if change
        else step.run(*[values[n] for n in step.of])
    )


def _operands(run: Run, step: Step) -> list[Any]:
    """Return what a step takes besides its first array."""
    return [run.values[name] for name in step.of[1:]]


def _exceeds_range(sizes: Balls, precision: Precision) -> Any:
    """Return which sums of absolute values may exceed the range; 1 % covers the roundings of float64."""
    return upper(sizes) * 1.01 > rule.limit(precision)


#: The bound of each error term that a step behind the weights may state.
BOUNDS: dict[str | None, StepBound] = {
    "scales": _bound_scaled,
    "gates": _bound_gated,
    "adds": _bound_added,
    "rounded": _bound_rounded,
    "projects": _bound_projected,
}
