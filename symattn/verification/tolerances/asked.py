"""Limits of inputs, and a bound for sizes (beforehand) or for given inputs, in one arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import Any

import numpy as np

from symattn.arrays.plain import real
from symattn.arrays.precision import Precision
from symattn.attention.codec import exact_arrays
from symattn.attention.codec.json_text import content
from symattn.attention.codec.npz_arrays import plain
from symattn.attention.inputs import required
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention
from symattn.bounds.inputs import Sizes
from symattn.bounds.priori import APriori, InputLimits, a_priori
from symattn.bounds.reference import usual
from symattn.bounds.sharp import means, rows_in_float64
from symattn.bounds.sharp.elements import tolerances
from symattn.bounds.sharp.limits import ALPHA, Floats, Stores
from symattn.bounds.sharp.ways import scale_of
from symattn.bounds.worst_case import Bound, bound
from symattn.document.codec import differing
from symattn.document.errors import InputError, Refused
from symattn.verification.tolerances import weighing

# Probability that normal entries exceed the limits, unless the caller names another.
RISK = 1e-9
_UP = 1 + 2.0**-40  # more than the roundings of a few operations


@dataclass(frozen=True)
class Reach:
    """The largest ‖q_i‖₂, ‖k_j‖₂ and |v_jc|; ``words`` describe the inputs with these limits."""

    q: float
    k: float
    v: float
    words: str
    normal: bool = False

    def __post_init__(self) -> None:
        for name in ("q", "k", "v"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InputError(
                    f"the largest {name} must be a number of at least 0, got {getattr(self, name)}"
                )


def normal(sizes: Sizes, risk: float = RISK) -> Reach:
    """Return limits that entries from N(0, 1) exceed with a probability of at most ``risk``.

    ‖q‖² is χ² with d_k degrees of freedom, and P(χ²_d ≥ d + 2√(dx) + 2x) ≤ e^−x; P(|v| ≥ t) ≤ e^(−t²/2) for t ≥ 1.
    Each of the three events gets a third of the risk, over all rows or entries.
    Source: Laurent, Massart, Adaptive estimation of a quadratic functional by model selection (2000), lemma 1.
    """

    # All rows of the array share a third of the risk, so that each has 1/rows of it.
    def norm(rows: int) -> float:
        x = log(3 * rows / risk)
        return sqrt(sizes.d_k + 2 * sqrt(sizes.d_k * x) + 2 * x) * _UP

    # The event of values counts every entry, hence n_k d_v.
    v = sqrt(2 * log(3 * sizes.n_k * sizes.d_v / risk)) * _UP
    return Reach(
        norm(sizes.n_q),
        norm(sizes.n_k),
        v,
        f"entries from N(0, 1), except with probability {risk:g}",
        True,
    )


def bounded(sizes: Sizes, largest: float = 1.0) -> Reach:
    """Return the limits of entries of at most ``largest``: ‖q‖₂ ≤ largest · √d_k."""
    norm = largest * sqrt(sizes.d_k) * _UP
    return Reach(norm, norm, largest, f"entries of at most {largest:g}")


@dataclass(frozen=True)
class Beforehand:
    """The bound for all inputs within the ``reach``."""

    spec: Attention
    precision: Precision
    sizes: Sizes
    reach: Reach
    largest_score: float
    bound: APriori

    @property
    def value(self) -> float:
        """The tolerance; +∞ if it would be no smaller than the distance of any two values."""
        return self.bound.value if self.bound.value < 2 * self.reach.v else inf


def beforehand(spec: Attention, precision: Precision, sizes: Sizes, reach: Reach) -> Beforehand:
    """Return the bound by the closed formula. Raises ``InputError`` unless scores are scaled dot products."""
    # The closed formula knows products, a scale and masks, but no other steps.
    if not usual(spec):
        what = ", ".join(
            f"{name}={value!r}" for name, value in differing(spec, Attention()).items()
        )
        raise InputError(
            f"the formula is for scaled dot products under masks, not for {what}; "
            "hint: --inputs FILE, or inputs= in Python"
        )
    scale = scale_of(spec, sizes.d_k)
    if scale is None:
        raise InputError(
            "the formula needs a scale that is a number; hint: --scale, or --inputs FILE (inputs= in Python)"
        )
    # Cauchy–Schwarz: |q · k| ≤ ‖q‖ ‖k‖; products are rounded up by two factors.
    score = abs(scale) * reach.q * reach.k * _UP**2
    known = InputLimits(sizes.n_k, sizes.d_k, score, reach.v, max(reach.q, reach.k))
    return Beforehand(spec, precision, sizes, reach, score, a_priori(known, precision))


@dataclass(frozen=True)
class ForInputs:
    """The bound for given inputs, element by element."""

    spec: Attention
    precision: Precision
    inputs: Mapping[str, Any]
    exact: np.ndarray
    bound: Bound

    @property
    def needed(self) -> tuple[float, float]:
        """The least atol with rtol = 0, and the least rtol with atol = 0 (+∞ if an exact element is 0)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(self.bound.allowed == 0, 0.0, self.bound.allowed / np.abs(self.exact))
        return self.bound.largest, float(parts.max(initial=0.0)) if np.isfinite(
            parts
        ).all() else inf


def for_inputs(spec: Attention, precision: Precision, inputs: Mapping[str, object]) -> ForInputs:
    """Return the bound for given inputs; the exact output is computed in float64."""
    with np.errstate(all="ignore"):
        exact = np.asarray(spec(**inputs), dtype=np.float64)
    return ForInputs(spec, precision, inputs, exact, bound(spec, inputs, precision))


# -- besides the worst case: the effect of rounding to nearest on elements and means, except with some probability -----
_KEYS = 8192  # most keys for which inputs are drawn


@dataclass(frozen=True, eq=False)
class Sharp:
    """The sharp tolerance of elements, (…, n_q, d_v), and of weighted means, with false-alarm probability ``alpha``.

    ``words`` name the inputs. The scale is exact here; for the other hypotheses, and the proof, see
    ``bounds.sharp.limits``. One of them is weaker than in the worst case: exponentials may be off by 2⁻¹³. So for
    ``worse`` elements, those of few keys, the worst-case bound ``worst`` is smaller, and is used instead.
    """

    elements: Floats
    alpha: float
    words: str
    spec: Attention
    inputs: Mapping[str, Any]
    how: Stores
    worst: Floats
    worse: int = 0

    @property
    def largest(self) -> float:
        """The largest tolerance of an element: atol, with rtol = 0."""
        return float(self.elements.max(initial=0.0))

    @property
    def median(self) -> float:
        """The median of the tolerances."""
        return float(np.median(self.elements))

    def mean(self, weights: object = None) -> float:
        """Return the tolerance of Σ weights · (out − exact); by default of the mean of all elements.

        ``weights`` (…, n_q, d_v) must not depend on the output that is judged. If scores of different queries coincide,
        so that their roundings do, or if it is smaller, the result is the same mean of the worst-case bound.
        """
        shape = self.elements.shape
        try:
            values = (
                np.full(shape, 1 / max(self.elements.size, 1))
                if weights is None
                else np.asarray(weights, float)
            )
            values = np.broadcast_to(values, shape)
        except (TypeError, ValueError):
            raise InputError(
                f"weights do not have the shape of the output, {shape}; hint: one weight an element"
            ) from None
        parts = np.multiply(np.abs(values), self.worst, where=values != 0, out=np.zeros(shape))
        worst = float(parts.sum()) * (1 + 1e-9)  # the sum's own rounding
        return min(means.of_mean(self.spec, self.inputs, self.how, values, self.alpha), worst)


def sharp(bound: Beforehand | ForInputs, alpha: float = ALPHA, seed: int = 0) -> Sharp | None:
    """Return the sharp tolerance for the given inputs, or for inputs drawn within the limits of a bound beforehand.

    None where the filter does not apply: in float32 and wider, in fp8, and for other than plain attention.
    """
    # Sums in float32, as accumulators of half formats have them.
    how = Stores.of(bound.precision, wide_sums=True, capped=bound.spec.capped)
    if how is None:
        return None
    inputs, words = (
        (bound.inputs, "for these inputs")
        if isinstance(bound, ForInputs)
        else _draw_inputs_for_bound(bound, seed)
    )
    if not rows_in_float64.applies(bound.spec, inputs):
        return None
    try:
        result = tolerances(bound.spec, inputs, how, alpha)[1]
    except Refused:
        return None
    worst = np.broadcast_to(
        bound.bound.allowed if isinstance(bound, ForInputs) else bound.value,
        result.shape,
    )
    worse = int((worst < result).sum())
    # The worst case may be the smaller one: both hold.
    return Sharp(np.minimum(result, worst), alpha, words, bound.spec, inputs, how, worst, worse)


def _draw_inputs_for_bound(beforehand: Beforehand, seed: int) -> tuple[dict[str, Any], str]:
    most = beforehand.reach.v

    # Entries within the promised limit; N(0, 1) needs no limit, as its risk is counted.
    def changed(name: str, a: Floats) -> Floats:
        return a if beforehand.reach.normal else np.clip(a, -most, most)

    # At most so many keys, since the filter computes with every pair of a query and a key.
    inputs = weighing.drawn(
        beforehand.spec, beforehand.precision, changed, beforehand.sizes, seed, _KEYS
    )
    entries = "N(0, 1)" if beforehand.reach.normal else f"N(0, 1), cut off at {most:g}"
    rows = inputs["q"].shape[-2]
    keys = inputs["k"].shape[-2]
    return inputs, f"on {rows} queries and {keys} keys drawn from {entries}"


# -- inputs of a user: q, k, v and the other inputs of the specification -----------------------------------------------
MOST_BYTES = 2**28  # of the file, and of each array


def read_inputs(path: str, spec: Attention, precision: Precision) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file as float64, with numbers that the precision's input format represents.

    Raises ``InputError``, in one line, if the file cannot be read, lacks an input of the specification, or has other
    numbers. Nothing is unpickled, and no more is read than the header declares.
    """
    return _check_bound_arrays(
        exact_arrays.called(
            plain(path, content(path, MOST_BYTES, "; hint: fewer rows"), MOST_BYTES), path
        ),
        path,
        spec,
        precision,
    )


def checked(
    arrays: Mapping[str, object], spec: Attention, precision: Precision
) -> dict[str, np.ndarray]:
    """Check arrays by name, and return them as float64. Raises ``InputError``."""
    try:
        result = {
            name: real(array, f"inputs: {name}")
            for name, array in exact_arrays.called(arrays, "inputs").items()
        }
        # Its own words say more than those below, which it would match as a ``ValueError``.
        return _check_bound_arrays(result, "inputs", spec, precision)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"inputs: no array can be made: {error}") from None


def _check_bound_arrays(
    results: Mapping[str, np.ndarray], where: str, spec: Attention, precision: Precision
) -> dict[str, np.ndarray]:
    wanted = ("q", "k", "v", *required(spec))
    for name in wanted:
        if name not in results:
            raise InputError(
                f"{where} has no array {name}; it holds {', '.join(results) or 'nothing'}"
            )
    for name in results:
        if name not in wanted:
            raise InputError(
                f"{where}: {name} is not an input of this attention; it takes {', '.join(wanted)}"
            )
    numbers = {name: results[name] for name in wanted}
    for name, a in numbers.items():
        if a.dtype.kind == "b" or (a.dtype.kind in "iu" and ARRAYS[name].holds != "numbers"):
            continue  # positions and labels stay whole numbers
        numbers[name] = wide = a.astype(np.float64)
        if np.isnan(wide).any() or np.isposinf(wide).any():
            what = "must hold finite numbers (a mask also −inf), but holds NaN or infinity"
            raise InputError(f"{where}: {name} {what}")
        between = wide[precision.input.rounded(wide) != wide]
        if between.size:
            what = f"is not rounded: {precision.input.name} cannot hold {float(between[0])!r}"
            hint = f"round the arrays to {precision.input.name}, or choose their dtype"
            raise InputError(f"{where}: {name} {what}; hint: {hint}")
    return numbers
