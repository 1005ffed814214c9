"""Step 8 of ``bounds``: what errors of the heads' outputs become in the output projection, in balls or in floats.

In floats everything is nonnegative and as large as in balls, but for the roundings of at most 2²⁰ terms.
"""

from __future__ import annotations

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.precision import Precision
from symattn.verification.bounding.arithmetic import Balls, extents, g, number, size
from symattn.verification.reference import Run, Values


def projected(run: Run, precision: Precision, moved: Balls) -> Balls:
    """M |W_O| + g(h d_v + 2)((|H| + M)|W_O| + |b_O|), or M where there is no output step."""
    step = run.output_step
    if step is None:
        return moved
    sizes = {n: size(number(run.values[n])) for n in step.of}
    if "w_o" not in sizes:
        return _output(run, {**sizes, "attended": moved})
    without_bias = sizes | ({"b_o": sizes["b_o"] * 0} if "b_o" in sizes else {})
    passed = _output(run, {**without_bias, "attended": moved})
    rounded = _output(run, {**sizes, "attended": sizes["attended"] + moved})
    f, terms = precision.roughest, extents(sizes["w_o"])[-2] + 2
    lost = f.eta * terms if run.kind is Ball else np.nextafter(float(f.eta * terms), np.inf)
    return passed + rounded * g(terms, f, run.kind) + lost


def _output(run: Run, values: Values) -> Balls:
    """The output step, or what a variant puts in its place, on other arrays."""
    step, change = run.output_step, run.variant.steps.get("output")
    assert step is not None
    return change(run.spec, values) if change else step.run(*[values[n] for n in step.of])
