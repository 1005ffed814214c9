"""Attention as a sum over keys, and the mean of a layer norm as a sum over the width of a row.

With queries of zeros all scores are equal, and each column of values is added up.
A column of values is a column of terms, so a call with d_v columns has d_v sums. The weights of the last query must be
equal by the definition: those of masked keys are zero, and positions, biases or sinks may make others differ.
Other inputs of a call (open masks, and projections) are made as for any probe.

For a row x the output of a norm is (x − μ)·r, with the same r for the whole row. With an entry p and one that is zero,
r is (y_p − y_0)/x_p, and the mean μ = −y_0/r; so rows of terms that cancel show the order of the sum n·μ. A mean that
is updated term by term, as Welford's, is a sum in no order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from symattn.bounds import called_target, case_result, reference
from symattn.bounds.called_target import Runner
from symattn.bounds.inputs import Maker
from symattn.verification.definitions.norms import LayerNorm, Norm
from symattn.verification.summing.order import Order, ordered
from symattn.verification.summing.tree import NoTree, TermNumbers, TermSum

Array = np.ndarray
# Keys that are added, and columns of values, each of which is one sum of a call.
KEYS = 128
COLUMNS = 64
_ALIKE = 1e-9  # relative difference up to which weights count as equal
_ADDED = ("bias", "b_rel")  # numbers that are added to scores, and may be zero


@dataclass(frozen=True)
class Attending:
    """A function of attention, with a maker of its inputs. ``row`` returns the last output of the first head."""

    runner: called_target.Runner
    maker: Maker

    @property
    def width(self) -> int:
        """The width of the inputs, d_k = d_v."""
        return self.maker.domain.widths.down(COLUMNS) or COLUMNS

    def inputs(self, q: Array, k: Array, v: Array) -> dict[str, Array]:
        """Return inputs by which each head gets these arrays. Raises ``NoTree`` if there are none."""
        try:
            result = self.maker.from_heads(q, k, v)
        except case_result.UNFIT:
            result = None
        if result is None or "x" in result:
            raise NoTree(
                "no queries, keys and values like these are within what the function takes"
            )
        # Biases of zeros leave all scores equal.
        zeros = {n: np.zeros_like(result[n]) for n in _ADDED if n in result}
        return {**result, **zeros}

    def row(self, inputs: Mapping[str, Array]) -> Array:
        """Return the output for the last query. Raises ``NoTree`` if there is none."""
        outcome = self.runner.run(inputs)
        if outcome.error is not None:
            raise NoTree(f"the function refuses these inputs ({outcome.error})")
        values = outcome.output
        if values is None or values.ndim < 2 or values.shape[-1] != inputs["v"].shape[-1]:
            raise NoTree("the function gives no output of the shape of its values")
        # The first head of the first item stands for all.
        return np.asarray(values.reshape(-1, *values.shape[-2:])[0, -1], dtype=float)

    def weights(self, inputs: Mapping[str, Array]) -> Array:
        """Return the weights of the last query by the definition. Raises ``NoTree`` if it has none."""
        spec, arrays = (
            reference.canonical(self.maker.spec),
            {n: np.asarray(a) for n, a in inputs.items()},
        )
        try:
            with np.errstate(all="ignore"):
                # Queries of zeros are tried too, whose other steps may divide by 0.
                values = np.asarray(reference.trace(spec, arrays)["weights"], dtype=float)
        except case_result.UNFIT as error:
            raise NoTree("the definition has no weights for such inputs") from error
        return np.asarray(values.reshape(-1, *values.shape[-2:])[0, -1])

    def sum_over(self, n: int) -> TermSum:
        """Return the sum over those of n keys that the last query sees. Raises ``NoTree``."""
        # Equal keys get equal weights, so that only the order of the sum can differ.
        first = self._make_equal_key_inputs(np.zeros((n, self.width)))
        weights = self.weights(first)
        visible = np.flatnonzero(weights)
        if len(visible) < 3 or np.ptp(weights[visible]) > _ALIKE * weights[visible].max():
            raise NoTree(
                "with queries of zeros the weights of keys differ, or there are fewer than three"
            )
        numbers = TermNumbers.of(
            self.maker.precision.input.name,
            len(visible),
            float(weights[visible[0]]),
        )
        return TermSum(
            len(visible),
            self.width,
            numbers,
            self._make_key_sum(visible, first["k"].shape[-2]),
            first=int(visible[0]),
        )

    def _make_key_sum(self, seen: Array, keys: int) -> Callable[[Array], Array]:
        def call(terms: Array) -> Array:
            values = np.zeros((keys, self.width))
            values[seen] = terms
            return self.row(self._make_equal_key_inputs(values))

        return call

    def _make_equal_key_inputs(self, values: Array) -> dict[str, Array]:
        """Return queries of zeros, keys that are all equal, and these values."""
        n = len(values)
        return self.inputs(np.zeros((n, self.width)), np.ones((n, self.width)), values)


def order(runner: called_target.Runner, maker: Maker, keys: int = KEYS) -> Order:
    """Return the order in which attention adds over its keys."""
    attending = Attending(runner, maker)
    return ordered("keys", keys, attending.sum_over, maker.domain.max_tokens)


# -- whether scores are rounded to half precision before the largest is subtracted -------------------------------------
# Two keys get scores that are equal if rounded, and differ otherwise. With scale 1/8, a query gives two keys the scores
# 2048 and 2054 in bfloat16 (16384 and 16390 in float16), which the format rounds to the same number, before and after
# scaling: the weights differ by a factor of e^0.75 if neither is stored, and are equal if one is. All other keys have
# weight zero.
# scores at which the format represents every other whole number
_SCALED = {"bfloat16": 256.0, "float16": 2048.0}
_APART = 0.75  # difference of the scaled scores
_FIRST = 32.0  # first entry of the query; the second is 1
_NEAR = 0.02  # tolerance of the weights
_TELLING = 0.1  # least difference of weights between the two hypotheses


@dataclass(frozen=True)
class StoredScores:
    """Whether scores are ``stored`` in a ``format``; None if that cannot be determined, for the reason ``why``.

    ``scores`` are those of two keys, and ``weights`` the weights that they got."""

    stored: bool | None = None
    why: str = ""
    scores: tuple[float, float] = (0.0, 0.0)
    weights: tuple[float, float] = (0.0, 0.0)
    format: str = ""

    @property
    def words(self) -> str:
        """The result in a sentence."""
        if self.stored is None:
            return f"Whether scores are stored cannot be determined from two keys: {self.why}."
        (s, t), (a, b) = self.scores, self.weights
        no = f"Scores are not rounded to {self.format} before the largest is subtracted"
        result = f"Scores are stored in {self.format}" if self.stored else no
        return (
            f"{result}: keys with the scores {s:g} and {t:g} get the weights {a:.4g} and {b:.4g}."
        )

    RECORD = "stored, scores, weights, why"


def scores(runner: called_target.Runner, maker: Maker, keys: int = KEYS) -> StoredScores:
    """Determine from the weights of the last two keys in one call whether scores are stored."""
    try:
        return _find_score_storage(Attending(runner, maker), keys)
    except NoTree as error:
        return StoredScores(why=str(error))


def _find_score_storage(attending: Attending, n: int) -> StoredScores:
    name, width = attending.maker.precision.input.name, attending.width
    scale = attending.maker.spec.scale
    # Without a scale of its own, the definition's 1/√d_k.
    scale = width**-0.5 if scale is None else float(scale)
    if name not in _SCALED:
        raise NoTree(f"{name} holds both")
    if width < 2:
        raise NoTree("a query has one entry, and two are needed")
    # Only a power of two scales without rounding; frexp then returns the fraction 1/2.
    if float(np.frexp(scale)[0]) != 0.5 or _SCALED[name] / scale > 2.0**15:
        raise NoTree("the scale is not a power of two, or scores leave the range of the format")
    # Two scores that are one number in the format, but differ in a wider one.
    first = _SCALED[name] / scale
    second = (_SCALED[name] + _APART) / scale
    inputs = _make_two_score_inputs(attending, n, first, second)
    apart, alike = (
        attending.weights(result)[-2:]
        for result in (inputs, _make_two_score_inputs(attending, n, first, first))
    )
    # If the definition itself hardly sees the difference, the outputs cannot.
    if not np.abs(apart - alike).max() > _TELLING:
        raise NoTree("by the definition the weights hardly differ")
    values = attending.row(inputs)[:2]
    # Stored scores give both keys the same weight.
    for stored, expected in ((False, apart), (True, alike)):
        if np.abs(values - expected).max() < _NEAR:
            return StoredScores(
                stored, "", (first, second), (float(values[0]), float(values[1])), name
            )
    raise NoTree("their weights are neither those of scores that differ nor of equal scores")


def _make_two_score_inputs(
    attending: Attending, n: int, first: float, second: float
) -> dict[str, Array]:
    """Return inputs whose last two keys have these scores, and a column of the values each."""
    q, k, v = (np.zeros((n, attending.width)) for _ in "qkv")
    q[:, 0], q[:, 1] = _FIRST, 1.0
    k[:, 0] = -first / _FIRST
    k[-2:, 0], k[-1, 1] = first / _FIRST, second - first
    v[-2, 0] = v[-1, 1] = 1.0
    return attending.inputs(q, k, v)


# Rows of one call, each of which is one sum.
_ROWS = 64
# their squares are within the range
_LARGE = {"bfloat16": 2.0**60, "float32": 2.0**60, "float64": 2.0**300}
_LONGEST = 1024  # terms
_ALIVE = {"bfloat16": 16}  # ones, so few that their mean is exact enough to be counted


def norm_order(runner: Runner, spec: Norm, format: str, width: int) -> Order:
    """Return the order in which a layer norm adds over its width; that of an RMS norm cannot be determined."""

    def sum_of(n: int) -> TermSum:
        if not isinstance(spec, LayerNorm):
            raise NoTree("squares have one sign, so no two of them cancel")
        if format not in _LARGE:
            raise NoTree(f"{format} lacks the range for it")
        alive = min(_ALIVE.get(format, n), n // 2, n - 3)  # besides two large terms and a zero
        return TermSum(n, _ROWS, TermNumbers(_LARGE[format], 1.0, alive), _row_sums(runner, spec))

    return ordered("entries of a row", width, sum_of, _LONGEST)


def _row_sums(runner: Runner, spec: Norm) -> Callable[[Array], Array]:
    def call(terms: Array) -> Array:
        x = terms.T
        inputs = {
            "x": x,
            # A gain of 1 in either convention.
            "gain": np.full(len(terms), 0.0 if spec.one_plus else 1.0),
            "bias": np.zeros(len(terms)),
        }
        outcome = runner.run({n: inputs[n] for n in runner.convention.inputs if n in inputs})
        if outcome.error is not None:
            raise NoTree(f"the function refuses these inputs ({outcome.error})")
        if outcome.output is None or outcome.output.shape != x.shape:
            raise NoTree("the function gives no output of the shape of its input")
        y = np.asarray(outcome.output, dtype=float)
        # One entry of a row is large, and one is 0: (y − y₀)/x is 1/σ, and −y₀ σ the mean.
        rows = np.arange(len(x))
        term = np.abs(x).argmax(axis=1)
        zero = np.abs(x).argmin(axis=1)
        with np.errstate(all="ignore"):
            r = (y[rows, term] - y[rows, zero]) / x[rows, term]
            return np.asarray(-y[rows, zero] / r * x.shape[1])

    return call
