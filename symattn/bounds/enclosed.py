"""The fast bound of variants, from a run on enclosures: every softmax of scores other than plain products.

Rotated, capped or biased scores, additive masks, tokens that are projected: the scores are enclosed, |t̂ − t| is at
most their radius, and ``scores`` gives τ_j. Values are inputs, which float64 holds, or projections. Of these the
midpoints v̂_j stand for the v_j, and their radii ρ_j are added: Σ w_j ρ_j to what o may be off, ρ_j to each |v_j − o|.
|v|_j comes from a run on absolute values. Where a radius is more than 2⁻²⁰ of what the roundings of the projection
may do, balls are used instead, so that the bound is theirs but for rounding.

Values that are normalised are off by e_j (``scores``). For each row the program weighs some ṽ_j, |ṽ_j − v_j| ≤ e_j, as
if they were inputs, so that e_j + ρ_j stands for ρ_j, and |v̂_j| + e_j + ρ_j for |v|_j.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.enclosing.bounds import U
from symattn.arrays.enclosing.exponential import Floats
from symattn.arrays.enclosure import Enclosure
from symattn.arrays.precision import Precision
from symattn.attention.flow import find_value_step
from symattn.attention.spec import Attention
from symattn.bounds import plain_bound
from symattn.bounds.arithmetic import number, size
from symattn.bounds.balls import leaves_range
from symattn.bounds.called_target import Inputs
from symattn.bounds.distances import ValueColumns
from symattn.bounds.exponents import ScoreExponents, far_below, stored
from symattn.bounds.growth import g, rate
from symattn.bounds.output_steps import bound_output
from symattn.bounds.reference import Run, run
from symattn.bounds.scores import ScoreErrors, score_errors
from symattn.document.errors import Refused, Undecided

# ln 2 with a radius that covers its rounding.
_LN2 = Enclosure(np.asarray(log(2)), np.asarray(2.0**-52))
_OF_TOKENS = 1e60  # beyond, and below its inverse, products of four inputs leave the range
# Inputs that make values or outputs projections.
_PROJECTED = {"x", "w_o"}
# Radii of values up to this part of a projection's roundings count as negligible.
_NEGLIGIBLE = 2.0**-20
_UP = 1 + 2.0**-30  # as in ``scores``, for sums of at most 2²⁰ nonnegative terms


def encloses(spec: Attention, inputs: Inputs) -> bool:
    """Return whether a run on enclosures gives the bound: for a softmax, and values shared by all queries."""
    if not spec.is_softmax or spec.latent is not None or spec.dropout:
        return False
    steps = spec.pipeline(frozenset(inputs))
    weighed = find_value_step(steps)
    # Values that differ by query, or dropped weights, are left to balls.
    not_output = steps[-1].name != "output"
    if not_output or len(weighed.of) > 2 or weighed.of[0] != "weights":
        return False
    most = _OF_TOKENS if _PROJECTED & set(inputs) else plain_bound.LARGEST
    arrays = map(np.asarray, inputs.values())
    floats = [a for a in arrays if a.dtype.kind == "f"]
    # A forbidden score (−∞ of a mask) is no size; every other entry must be moderate.
    return all(
        a.size > 0 and plain_bound.moderate(np.where(np.isneginf(a), 0.0, a), most) for a in floats
    )


class EnclosureBound(plain_bound.ByHead):
    """The bound for a run on enclosures."""

    def __init__(self, run: Run, precision: Precision, shares: bool = False) -> None:
        self.spec, final, step = run.spec, run.final_scores, run.output_step
        shape = (run.output if step is None else run.values["attended"]).plain_shape
        super().__init__(precision, shape, shares, last=step is None)
        # NaN where a mask or a comparison is undecided: no bound then.
        if np.isnan(final.mid).any():
            raise Refused("the enclosures do not say which scores there are")
        score_shape = (*shape[:-2], *final.plain_shape[-2:])
        self._set_enclosed_score_errors(run, score_shape)
        self.value_terms = run.value_terms
        parts = (
            _enclosed_value_parts(run, precision)
            if self.score_errors.values is None
            else _enclosed_made_value_parts(run, self.score_errors)
        )
        with np.errstate(all="ignore"):
            split_by_head = [_by_head(a, (*shape[:-2], *a.shape[-2:])) for a in parts]
            self._compute_enclosed_bound(split_by_head)
            self.allowed = self.allowed.reshape(shape)
            reshaped = {n: a.reshape(shape) for n, a in self.shares.items()}
            self.shares = reshaped
            # H7 for sums of queries, keys and latents.
            self.allowed[np.broadcast_to(leaves_range(run, precision), shape[:-1])] = np.inf
            if (
                step is not None
            ):  # step 8, from M of the heads' outputs; +∞ in rows that need an unbounded one
                f, silent = (
                    precision.returned,
                    np.asarray(~np.isfinite(self.allowed).all(axis=-1, keepdims=True)),
                )
                # Infinite rows are projected as 0, and set to +∞ at the end.
                heads = np.where(silent, 0.0, self.allowed)
                out, over = bound_output(run, precision, heads)
                largest = size(number(run.output)) + out
                result = out + largest * g(1, f) + float(f.eta)
                # With several heads one silent row makes the whole row silent.
                rows = silent.any(axis=-3) if run.merges_heads else silent
                self.allowed = np.where(rows | over, np.inf, result * _UP)

    def _set_enclosed_score_errors(self, run: Run, every: tuple[int, ...]) -> None:
        """Set t̂ and its radius, the allowed keys, τ_j, the sums of absolute values, and the shifts."""
        errors, unit = (
            score_errors(run, self.precision),
            _LN2 if run.spec.base == 2 else Enclosure.lift(1.0),
        )
        self.score_errors = errors
        t = number(run.final_scores) * unit
        shift = errors.shift * unit.high
        self.shift = _by_head(shift, (*every[:-1], 1))
        tau = errors.tau * unit.high
        parts = (t.mid, t.rad, run.allowed, tau, errors.largest, errors.products)
        self.t, self.off, self.open, self.tau, self.sizes, self.products = (
            _by_head(a, every) for a in parts
        )
        self.logits: Floats | None = None  # the sink of each head, (heads, 1, 1)
        if self.spec.sink is not None:
            sink_values: Any = run.values.get("sink")
            sink_values = sink_values.mid if isinstance(sink_values, Enclosure) else sink_values
            z = np.zeros(1) if self.spec.sink == "zero" else np.atleast_1d(sink_values)
            # A sink for each head, repeated over the batch.
            per_head = z if self.spec.heads > 1 else z[:1]
            own = np.resize(per_head, (len(self.t), 1, 1))
            self.logits = own * (log(2) if self.spec.base == 2 else 1.0)

    def _compute_enclosed_bound(self, parts: list[Floats]) -> None:
        """Compute the bound block by block, from v̂_j, and ρ_j and |v|_j if values are not inputs."""
        n_q, n_k = self.t.shape[-2:]
        for heads in plain_bound.pieces(len(self.t), plain_bound.TOGETHER // max(n_q * n_k, 1)):
            own = [
                # A sink is one more score per row, whose value is zero.
                part[heads] if self.logits is None else plain_bound.with_zeros(part[heads])
                for part in parts
            ]
            float64 = np.dtype(np.float64)
            values = ValueColumns(own[0], float64, self.value_terms, *own[1:])
            # Blocks of heads and rows limit the memory that is needed at once.
            for rows in plain_bound.pieces(n_q, plain_bound.BLOCK // max(n_k, 1)):
                self.put((heads, rows), self._score_exponents_of_block((heads, rows)), values)

    def _score_exponents_of_block(self, at: tuple[slice, slice]) -> ScoreExponents:
        logit = None if self.logits is None else self.logits[at[0]]
        open_ = self.open[at]
        t = self.t[at]
        tau = np.array(self.tau[at])
        far = self._far_keys_of_block(at)
        # Keys far below have no part in the errors of a row (step 7).
        near_off = np.where(open_ & ~far, self.off[at], 0.0)
        off = plain_bound.row_maxima(near_off)
        sizes = np.where(far, self.products[at], self.sizes[at])
        largest = plain_bound.row_maxima(sizes)
        open_, lost = open_ & ~far, far.any(axis=-1, keepdims=True)
        if logit is not None:
            columns = ((t, logit), (tau, 0), (open_, True))
            t, tau, open_ = (plain_bound.with_column(a, x) for a, x in columns)
            # A logit is exact but for float64's change of base.
            off, largest = (
                np.maximum(off, 4 * U * np.abs(logit)),
                np.maximum(largest, np.abs(logit)),
            )
        every = bool(open_.all())
        t = np.where(open_, t, 0.0)
        return ScoreExponents(
            t, off, open_, tau, largest, logit is not None, every, self.shift[at], lost
        )

    def _far_keys_of_block(self, at: Any) -> NDArray[np.bool_]:
        t = self.t[at]
        off = self.off[at]
        shift = self.shift[at]
        # Step 7 is for additive masks alone.
        if self.spec.mask != "additive":
            return np.zeros_like(self.open[at])
        largest = np.abs(t) + off + shift
        tau = stored(self.tau[at], largest, self.precision)
        reach = off + plain_bound.row_maxima(off) + shift
        return far_below(t, tau, self.open[at], reach, self.precision)


def _by_head(a: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Broadcast to this shape, and join all axes before the last two."""
    return np.broadcast_to(a, shape).reshape(-1, *shape[-2:])


def _enclosed_value_parts(run: Run, precision: Precision) -> list[Floats]:
    """Return v̂_j, and ρ_j and |v|_j if values are not inputs. Raises ``Refused`` if a radius is not negligible."""
    v = run.values[run.values_name]
    # Values that are inputs are exact.
    if not v.rad.any() and not run.value_terms:
        return [v.mid]
    sizes = size(number(run.absolute[run.values_name]))
    # Wider radii would make the bound depend on the enclosure. Each product may also underflow, by η/2: a sum of zeros
    # has no other rounding, and its enclosure has a radius for that, too.
    roughest = precision.roughest
    rounded = rate(roughest) * sizes + float(roughest.eta) / 2
    if not (v.rad <= _NEGLIGIBLE * run.value_terms * rounded).all():
        raise Refused("the enclosures do not say what the values are")
    return [v.mid, v.rad, sizes]


def _enclosed_made_value_parts(run: Run, errors: ScoreErrors) -> list[Floats]:
    """Return v̂_j, and e_j + ρ_j in the place of ρ_j, of values that are no sums of products."""
    assert errors.values is not None
    v = run.values[run.values_name]
    if not np.isfinite(v.mid).all():
        raise Refused("the enclosures do not say what the values are")
    return [v.mid, (v.rad + errors.values[1]) * _UP]


def of_run(
    run: Run, precision: Precision, shares: bool = False
) -> tuple[Floats, dict[str, Floats]]:
    """Return the bound for a run on enclosures for which ``encloses`` holds, +∞ where there is none. See ``evaluate``.

    Raises ``Refused`` if the enclosures do not determine the allowed scores or the values.
    """
    try:
        result = EnclosureBound(run, precision, shares)
    except Undecided:
        return np.full(run.output.plain_shape, np.inf), {}
    return result.allowed, result.shares


def with_shares(
    spec: Attention, inputs: Inputs, precision: Precision
) -> tuple[Floats, dict[str, Floats]]:
    """Return the bound and its shares by step; no shares if it is unbounded. Raises ``Refused`` if balls are needed."""
    # Plain attention needs no run on enclosures.
    if plain_bound.applies(spec, inputs):
        return plain_bound.evaluate(spec, inputs, precision, shares=True)[:2]
    if not encloses(spec, inputs) or _PROJECTED & set(inputs):
        raise Refused("this specification is bounded in balls")
    return of_run(run(spec, inputs, kind=Enclosure), precision, shares=True)
