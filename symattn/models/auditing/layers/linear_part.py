"""A linear layer by itself: X W + b, every column of some rows, held to a bound in float64.

Of a row x and a column w of n entries let s = Σ |x_l w_l| + |b|. Sums in any order, in float32 or wider, products fused
in or not, give x·w + b within g(n + 1) s and the η of 2(n + 1) underflows, where g(k) = (1 + u)^k − 1 for float32's u
(Higham 2002, §3.1 and §4.2; the bias is one more term). What is stored then is rounded to the format once; twice, where
the product is stored before the bias is added. What may be half a step beyond the format's largest number, or further,
may be stored as infinity of its sign. Where s is so large for the format of the sums, infinities of both signs may meet
on the way, and nothing is said of infinity or NaN. The exact value is enclosed by running ``project`` on ``Enclosure``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.enclosure import Enclosure
from symattn.arrays.formats import Format
from symattn.arrays.rounding.bounds import growth, up
from symattn.attention.projections import project
from symattn.bounds.case_result import shares
from symattn.models.auditing.layers.part_judge import PartFinding
from symattn.models.auditing.setting import Floats

_OVERFLOW = "its sums may overflow on the way, where nothing is said of infinity and NaN"


def judged(part: str, got: Floats, x: Floats, w: Floats, b: Floats | None, dtype: str) -> PartFinding:
    """``got`` (r, m) as x W + b for x (r, n), W (n, m)."""
    if not all(np.isfinite(a).all() for a in (x, w, *([] if b is None else [b]))):
        return PartFinding(part, reason="NaN or infinity reaches it")
    if got.shape != (len(x), w.shape[-1]):
        return PartFinding(part, np.inf, True, f"it gives {got.shape[-1]} columns, and its matrix has {w.shape[-1]}")
    vague = ~np.isfinite(got) & (size_of(x, w, b) >= _beyond(_wide(Format(dtype))))
    ratio = _ratio(got, x, w, b, dtype, vague)
    if ratio <= 1:
        return PartFinding(part, ratio, reason=_OVERFLOW if vague.any() else "")
    others = {
        "the bias is left out": (w, None),
        "the bias is added twice": (w, None if b is None else 2 * b),
        "the matrix is transposed": (w.T, b),
    }
    if b is None:
        others = {"the matrix is transposed": (w.T, b)}
    fitting = [
        words for words, (v, c) in others.items()
        if v.shape == w.shape and _ratio(got, x, v, c, dtype) <= 1
    ]  # fmt: skip
    return PartFinding(part, ratio, True, fitting[0] if len(fitting) == 1 else "no known mistake explains it")


def _ratio(
    got: Floats, x: Floats, w: Floats, b: Floats | None, dtype: str, vague: NDArray[np.bool_] | None = None
) -> float:
    """The largest error as a part of what is allowed: above 1 no legal implementation gives ``got``.

    Numbers that are ``vague`` are passed over.
    """
    exact: Any = project(*(None if a is None else Enclosure.lift(a) for a in (x, w, b)))  # type: ignore[arg-type]
    ratios = shares(got, exact.mid, exact.rad, allowed_of(x, w, b, dtype))[0]
    ratios = np.where(_overflows(got, x, w, b, dtype), 0.0, ratios)
    return float(ratios[~vague].max(initial=0.0) if vague is not None else ratios.max(initial=0.0))


def _overflows(got: Floats, x: Floats, w: Floats, b: Floats | None, dtype: str) -> NDArray[np.bool_]:
    """Where ``got`` is an infinity of the sign of a result, or of the product before the bias, that may be so large."""
    overflow = np.zeros(got.shape, dtype=bool)
    for bias in (b, None):
        exact: Any = project(*(None if a is None else Enclosure.lift(a) for a in (x, w, bias)))  # type: ignore[arg-type]
        furthest = np.sign(got) * exact.mid + exact.rad + allowed_of(x, w, bias, dtype)
        overflow |= np.isinf(got) & (up(furthest) >= _beyond(Format(dtype)))
    return overflow


def _beyond(f: Format) -> float:
    """Return the least number that is rounded to infinity: half a step more than the largest number."""
    return float((f.largest + f.power_beyond) / 2)


def _wide(f: Format) -> Format:
    """The format that sums are made in."""
    return f if f.u < Format("float32").u else Format("float32")


def size_of(x: Floats, w: Floats, b: Floats | None) -> Floats:
    """s, with what float64 loses in these sums."""
    product = np.abs(x) @ np.abs(w)
    size = product if b is None else product + np.abs(b)
    return np.asarray(size * (1 + (x.shape[-1] + 1) * 2.0**-52))


def allowed_of(x: Floats, w: Floats, b: Floats | None, dtype: str) -> Floats:
    """How far any legal implementation may be from x W + b, rounded up."""
    f = Format(dtype)
    wide, n = _wide(f), x.shape[-1] + 1
    size = size_of(x, w, b)
    grown = growth(wide, n)
    summed = grown * size + 2 * n * float(wide.eta) * (1 + grown)
    if f == wide:
        return np.asarray(up(summed))
    bias = 0.0 if b is None else np.abs(b)
    exact: Any = project(x, w, b)
    whole = np.abs(exact) + n * 2.0**-52 * size + summed
    before = whole + bias if b is not None else 0.0
    stored = float(f.u) * (whole + before * (1 + float(f.u))) + (1 if b is None else 2) * float(f.eta)
    return np.asarray(up((summed + stored) * (1 + float(f.u))))
