"""A specification in the precision of a program that takes some of its steps in float32, and the others in float64.

A step that is taken in float32 reads its arrays rounded to float32, and what it gives is read in float64 as it is. So
bounds are those of ``rounded``, step by step.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from symattn.arrays.rounded import Rounded, rounded
from symattn.arrays.rounding.array import sharply
from symattn.arrays.rounding.bounds import growth, holds, rounding, up
from symattn.attention.inputs import check_inputs
from symattn.attention.spec import Attention


def run(spec: Attention, inputs: Mapping[str, np.ndarray], single: Collection[str] = ()) -> Rounded:
    """The output, whose ``bound`` holds for programs that take the steps named in ``single`` in float32."""
    wide, narrow = rounded("float64"), rounded("float32")
    values: dict[str, Any] = {n: wide.lift(a) if a.dtype.kind == "f" else a for n, a in inputs.items()}
    check_inputs(spec, values)
    steps = spec.pipeline(values)
    assert set(single) <= {step.name for step in steps}, "a step that is not taken"
    for step in steps:
        kind = narrow if step.name in single else wide
        values[step.name] = step.run(*(read(values[name], kind) for name in step.of))
    out: Rounded = read(values["output"], wide)
    return out


def read(x: Any, kind: type[Rounded]) -> Any:
    """Numbers read in the format of another kind: one more rounding where that is shorter. Other arrays as they are."""
    if not isinstance(x, Rounded) or isinstance(x, kind):
        return x
    return _rounded(kind, x)


@sharply
def _rounded(kind: type[Rounded], x: Rounded) -> Rounded:
    """|x̂' − x̃| ≤ last + the rounding of x̂ to the format; the rest is known as before."""
    f, near, e = kind.precision.score, x.near, x.error
    fresh = rounding(up(near.size + e), near.low - e, growth(f, 1), f)
    exact = (e == 0) & holds(f, near) | (f.digits >= x.precision.score.digits)
    last = np.where(exact, x.last, up(x.last + fresh))
    return kind(x.planes[0], *x.rows, last, x.terms, x.count, *near)
