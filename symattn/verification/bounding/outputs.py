"""Step 8 of the bound: from the heads' outputs to the output."""

from __future__ import annotations

from symattn.arrays.precision import Precision
from symattn.verification.bounding.arithmetic import Balls, g, number, size
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
    f, terms = precision.roughest, sizes["w_o"].plain_shape[-2] + 2
    return passed + rounded * g(terms, f) + f.eta * terms


def _output(run: Run, values: Values) -> Balls:
    """The output step, or what a variant puts in its place, on other arrays."""
    step, change = run.output_step, run.variant.steps.get("output")
    assert step is not None
    return change(run.spec, values) if change else step.run(*[values[n] for n in step.of])
