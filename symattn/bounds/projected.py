"""Projections in ``worst_case``: what errors of the heads' outputs become in the last one (step 8), in balls or in
floats, and where projections may leave the range (H7).

In floats everything is nonnegative and as large as in balls, but for the roundings of at most 2²⁰ terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.precision import Precision
from symattn.bounds.arithmetic import Balls, extents, g, number, size, upper
from symattn.bounds.reference import Run, Values
from symattn.bounds.rule import limit

_MADE = ("k", "c_q", "c_kv", "k_r", "q_n", "q_r", "k_n", "r_k", "p_k", "p_q")


def leaves_range(run: Run, precision: Precision) -> np.ndarray:
    """Rows (…, n_q) of heads in which sums of queries may exceed the range; all rows where those of keys, latents or
    terms for distances may, since every row may meet them. Values count where they are weighed."""
    most, result = limit(precision), {s.name for s in run.steps}
    over = {n: upper(size(run.absolute.get(n, run.values[n]))) > most for n in ("q", *_MADE) if n in result}
    everywhere = any(bool(over[n].any()) for n in _MADE if n in over)
    return np.asarray(over["q"].any(axis=-1) | everywhere if "q" in over else everywhere)


def projected(run: Run, precision: Precision, moved: Balls) -> tuple[Balls, Any]:
    """M |W_O| + g(h d_v + 2)((|H| + M)|W_O| + |b_O|), or M where there is no output step; and which elements, as
    booleans, are sums that may exceed the range."""
    step = run.output_step
    if step is None:
        return moved, False
    sizes = {n: size(number(run.values[n])) for n in step.of}
    if "w_o" not in sizes:
        return _output(run, {**sizes, "attended": moved}), False
    without_bias = sizes | ({"b_o": sizes["b_o"] * 0} if "b_o" in sizes else {})
    passed = _output(run, {**without_bias, "attended": moved})
    rounded = _output(run, {**sizes, "attended": sizes["attended"] + moved})
    f, terms = precision.roughest, extents(sizes["w_o"])[-2] + 2
    lost = f.eta * terms if run.kind is Ball else np.nextafter(float(f.eta * terms), np.inf)
    return passed + rounded * g(terms, f, run.kind) + lost, upper(rounded) * 1.01 > limit(precision)


def _output(run: Run, values: Values) -> Balls:
    """The output step, or what a variant puts in its place, on other arrays."""
    step, change = run.output_step, run.variant.steps.get("output")
    assert step is not None
    return change(run.spec, values) if change else step.run(*[values[n] for n in step.of])
