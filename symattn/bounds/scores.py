"""Step 1 of the bound: how far the scores of a legal implementation can be from the exact ones.

A score becomes what the softmax receives in up to four steps, each with an error of its own; λ, g, u, ε and K as in
``worst_case``, N_j the roundings that a monomial of the score passes, a the number of arrays added to the scores.

1. Sums of products (of q and k, through matrices and projections, with terms for distances): no monomial passes more
   than N_j + K + a roundings, in whatever order it is summed with what is added, so τ = g(N_j + K + a) |t|_j.
   Temperatures τ_i ≥ 1 multiply queries or scores, and are stored: K + 2 in place of K. They are computed in float32
   or better: log c is off by the part ε_w of it, or as a quotient of two logarithms by 2ε_w, the quotient of whole
   numbers below 2²⁴ is rounded down exactly, and no more than 12 roundings of nonnegative numbers follow. So τ_i is off
   by the part g_w(12) + 2ε_w, and the score by that part of |t|_j + τ.
2. Vectors that were changed first. Let |q̂ − q| ≤ e_q, let A_q be the sum of the absolute values of what q is summed
   of, and the same for k. Then τ = e_q A_k + A_q e_k + e_q e_k + g(N + K + a)(A_q + e_q)(A_k + e_k), since a factor
   may also be multiplied into q before it is rotated. The vectors' own errors:
   a. norms and latents: that of ``symattn.arrays.rounded``, whose rules and proofs stand there; keys of a latent have
      A_k = (|C| + e_C)|W_UK|, which also holds the orders in which W_UK goes into the queries;
   b. a norm after a rotation: the same, of vectors that are off by the e of the rotated ones, and by the underflow of
      the rotation, as a norm enlarges short vectors: η for each of the products, their sum, and what is stored, and
      2 η max A for the tables;
   c. a rotation by tables with errors E: with R(x) the rotation by |cos|, |sin| without minus signs, A = R(A) and
      e = R(e) + E R_1(A + e) + g(3) R(A + e), R_1 that by ones. Tables that are given have E = 0. Those that are
      computed have the angles p ω_l in float32 or better, with roundoff w: ω_l = θ^(−x), x = 2l/r, as a power, its
      reciprocal, or e^(−x log θ), is off by the part (3 x log θ + 8) w + 2ε_w of it, the product with p by one
      rounding more; a scaling of the frequencies may make twelve times that of it and adds 64 w; cosine and sine have
      the error ε_w, and are stored: E = p ω_l ρ_l + ε_w + g(3). With sections, p is that of the row of pair l.
3. Other scores. Additive ones: that of ``rounded``, and (ε + 6u) Σ|v_s|, since tanh x may be computed as 2σ(2x) − 1.
   Distances: g(2d + K + 6) Σ(|q| + |k|)²/2 holds those computed as q·k − (‖q‖² + ‖k‖²)/2, with or without ‖q‖².
4. Afterwards. A cap moves no score farther; its quotient, tanh and product cost g(4)(|s| + τ) and
   c (ε + 6u) + g(4)|c tanh(s/c)|. What is added, |B|_j in sum, is joined with the monomials in any order and may pass
   all their roundings: g(N + K + a)(|B|_j + |t|_j). Slopes that are computed are off by g(h + 8) + ε, in float32 or
   better; and m·(i − j), for places i and j, may be m·j or m·(j − n_k): up to a shift of the row by at most m max{n_q,
   n_k}, which has no effect on weights but on sizes: |B| and |t| grow by that. Distances may be shifted by ‖q‖²/2.

   Scores that are multiplied after that (``scales``) have τ and |B|_j multiplied as well, and two roundings more.
5. Vectors and scores that any other operations change (``rounded``): the error that ``symattn.arrays.rounded`` finds
   from arrays that are off by the errors so far, those of part 4 among them, for code that takes these operations, with
   the freedoms R1 to R7 of that module. Where the step adds to the scores (``adds``), part 4 holds.

Underflow: every operation may be off by η, multiplied by what comes later.

In balls all this is as it stands. On a run in enclosures, sizes and errors are float64 numbers from the upper ends of
the enclosures on. They are nonnegative, and made by sums, products, quotients and maxima, in sums of at most 2²⁰ terms.
Where one is subtracted from another, both are equal (the columns that no rotation reaches). So each is too small by a
part of at most 2⁻³² + 100u, and the result is enlarged by the part 2⁻³⁰. Inputs are between 10⁻¹⁴⁰ and 10¹⁴⁰, or zero,
and between 10⁻⁶⁰ and 10⁶⁰ where they are projected, so that nothing underflows.
Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §3.1.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.formats import Format
from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.arrays.rounded import rounded
from symattn.attention.flow import Step
from symattn.attention.positions.position_fields import Alibi, Rotary
from symattn.attention.positions.rotary import (
    inverse_frequencies,
    positions_of_pairs,
    rows_of_pairs,
)
from symattn.bounds import rule
from symattn.bounds.arithmetic import Balls, extents, g, number, size, upper
from symattn.bounds.output_steps import BOUNDS
from symattn.bounds.reference import (
    Run,
    Values,
    lifted,
    of_products,
    trace,
    values_of_products,
)
from symattn.document.errors import InputError

# K of H3: roundings of the scale, in constants and products together.
SCALE_ROUNDINGS = 6
LOG2_E = 1.5  # rounded up
# Roundings of a temperature, stored and multiplied, and those of its computation (part 1).
TEMPERATURE_ROUNDINGS, _OF_ONE_TEMPERATURE = 2, 12
#: Steps whose error term is a proof of their own, here, in ``balls`` or in ``worst_case``; by the rows of their arrays,
#: as the last step is always called ``output``.
_OWN_PROOFS = """
    cos sin cos_q sin_q slopes tau capped masked weights dropped lse attended attended_latents q_absorbed v_absorbed
"""
_PROVED_BY_NAME = frozenset(_OWN_PROOFS.split())
# Error terms of steps up to the weights, besides a proof of their own.
_ERRORS_BEFORE_WEIGHTS = ("moves", "products", "rotates", "scales", "adds", "rounded")


class ScoreErrors(NamedTuple):
    """τ_j for the scores before they are stored; the shifts of rows; sums of absolute values.

    ``products`` are sums of absolute values without the terms added to scaled scores. ``values``: |v|_j and the errors
    of values that are no sums of products of inputs: from latents, or normalised.
    """

    tau: Balls
    shift: Balls
    largest: Balls
    products: Balls
    values: tuple[Balls, Balls] | None = None


def score_errors(run: Run, precision: Precision) -> ScoreErrors:
    """Return the errors of the scores that the normaliser receives."""
    return _Scores(run, precision).errors()


def factor_roundings(precision: Precision, f: Format) -> int:
    """Return the number of roundings to ``f`` that count for the two of factors to a rougher format."""
    factors = precision.factors
    if factors is None:
        return 0
    return ceil(2 * rule.rate_of(factors.u) / rule.rate_of(f.u))


def _largest_row(balls: Balls) -> Balls:
    """Return the largest sum over the last axis."""
    xp = namespace_of(balls)
    return xp.max(xp.sum(balls, axis=-1))


class _Scores:
    def __init__(self, run: Run, precision: Precision) -> None:
        self.kind = run.kind
        self.run, self.precision, self.xp = (
            run,
            precision,
            namespace_of(self._lift_to_score_kind(np.zeros(()))),
        )
        p = precision
        self.f = p.between
        self.constant = SCALE_ROUNDINGS + factor_roundings(p, self.f)
        # Tables and slopes are computed in float32 or better (parts 2c and 4).
        self.wide = Format("float64" if p.score.name == "float64" else "float32")
        self.eps = 2 * p.exp_ulps * float(p.score.u)
        self.steps = {step.name: step for step in run.steps}
        _check_error_terms(run)
        scaled = run.chain[: run.chain.index(run.raw) + 1]
        self.factors = [self.steps[n] for n in scaled if self.steps[n].errors == "scales"]
        # Factors besides the scale, such as temperatures, are stored and multiplied.
        others = sum(step.name != "scaled" for step in self.factors)
        self.constant += others * TEMPERATURE_ROUNDINGS
        # Steps between the products and the normaliser, in order; a boolean mask moves no score.
        later = run.chain[len(scaled) :]
        self.later = [n for n in later if n != "masked" or run.spec.mask == "additive"]
        self.added = sum(self.steps[n].errors == "adds" for n in self.later)
        self._rough: Values | None = None
        # Float64 sizes from enclosures are too small by less than this part (see above).
        self.up = 1 if run.kind is Ball else 1 + 2.0**-30

    def errors(self) -> ScoreErrors:
        """Return the errors by parts 1 to 4."""
        tau, sizes, roundings = self._bound_scaled_score_errors()
        tau = tau + self._bound_temperature_error(sizes + tau) + self._bound_score_underflow(sizes)
        shift = self._bound_shift_of_rows()
        # Errors pass through the later steps in their order, since their sizes change on the way.
        sums = shift
        t = size(number(self.run.values[self.run.raw]))
        before, added = self.run.raw, 0
        # What any operations on scores give may be larger than the scores themselves.
        reached: Balls = sizes * 0
        for name in self.later:
            now = number(self.run.values[name])
            step = self.steps[name]
            if name == "capped":
                capped = size(now)
                tau, t = self._bound_softcap_error(tau, t, capped), capped
            elif step.errors == "rounded":
                # Any operations may enlarge the errors of what was added before.
                if added:
                    tau = self._add_errors_of_sum(tau, roundings, sums + t + tau)
                reached = self.xp.maximum(reached, sizes + sums)
                tau, t = self._bound_rounded_scores(step, tau), size(now)
                reached = self.xp.maximum(reached, t + tau)
                sums, added = sums * 0, 0
            elif step.errors == "scales":
                reached = self.xp.maximum(reached, sizes + sums)
                # Errors of what was added before are of scaled terms, too.
                sums = self._scale_sizes_by(step, sums)
                tau, t = self._scale_sizes_by(step, tau), size(now)
                tau = tau + self._growth_in_score_kind(TEMPERATURE_ROUNDINGS, self.f) * (t + tau)
                tau = tau + float(self.f.eta)
                reached = self.xp.maximum(reached, t + tau)
            else:
                part = size(now - number(self.run.values[before]))
                sums = sums + part
                tau = tau + self._bound_alibi_slope_error(part, name)
                added += step.errors == "adds"
            before = name
        if added:
            tau = self._add_errors_of_sum(tau, roundings, sums + t + tau)
        # An additive mask alone: H4 counts its addition, and its sizes pass the other roundings.
        elif self.later and self.later[-1] == "masked":
            tau = tau + self._growth_in_score_kind(roundings + self.constant, self.f) * sums
        values = None if values_of_products(self.run.spec) else self.values()
        moved = self.xp.maximum(sizes + sums, reached) * self.up
        shifted = shift * self.up
        rounded_tau = tau * self.up
        return ScoreErrors(rounded_tau, shifted, moved, sizes * self.up, values)

    def _add_errors_of_sum(self, tau: Balls, roundings: Any, sizes: Balls) -> Balls:
        """Return τ with the errors of added terms, which may pass all roundings of the monomials (part 4)."""
        growth = self._growth_in_score_kind(roundings + self.constant + self.added, self.f)
        return tau + growth * sizes + float(self.f.eta) * 16

    def _bound_scaled_score_errors(self) -> tuple[Balls, Balls, Any]:
        """Return τ, |t|_j and N_j of the scaled scores."""
        spec, more = self.run.spec, self.constant + self.added
        # Part 1: every monomial is a product of inputs.
        if of_products(spec):
            sizes = size(self.run.absolute[self.run.raw])
            return (
                self._growth_in_score_kind(self.run.terms + more, self.f) * sizes,
                sizes,
                self.run.terms,
            )
        if spec.score == "additive":
            return self._bound_additive_scores()
        # Part 2: queries or keys are changed first, and have errors of their own.
        operands = self.steps["scores"].of[:2]
        q, k = (self._vector_sizes_and_errors(name) for name in operands)
        # W_UK may go into the queries, so that sums run over its rows as well.
        latent_width = int(self.run.values["w_uk"].plain_shape[-2]) if spec.latent else 0
        d = extents(q[0])[-1] + latent_width
        if spec.score == "distance":
            return self._bound_distance_scores(q, k, d)
        wide = (q[0] + q[1]) @ (k[0] + k[1]).mT
        tau = (
            q[1] @ k[0].mT
            + q[0] @ k[1].mT
            + q[1] @ k[1].mT
            + self._growth_in_score_kind(d + 4 + more, self.f) * wide
        )
        return self._scale_score_sizes(tau), self._scale_score_sizes(wide), d + 4

    def _scale_score_sizes(self, sizes: Balls) -> Balls:
        """Return sizes times the scale and other factors, such as temperatures."""
        for step in self.factors:
            sizes = self._scale_sizes_by(step, sizes)
        return sizes

    def _scale_sizes_by(self, step: Step, sizes: Balls) -> Balls:
        operands = (self.run.values[n] for n in step.of[1:])
        return size(step.run(sizes, *operands))

    def _bound_rounded_scores(self, step: Step, tau: Balls) -> Balls:
        """Return the errors of scores that any operations change, from those of the scores before."""
        kind = rounded(self.precision)
        scores = self.run.values[step.of[0]]
        near = scores if self.kind is Ball else scores.balls()
        read = kind.near_to(near, upper(tau * self.up))
        others = [self._lift_operand_to_rounded(name, kind) for name in step.of[1:]]
        result = self._finite_rounded_error(step.run(read, *others))
        # A mistake in the step may enlarge errors as much as the step it is left out of.
        wrong = step.name in self.run.variant.steps
        return self.xp.maximum(tau, result) if wrong else result

    def _lift_operand_to_rounded(self, name: str, kind: Any) -> Any:
        """Return an input in rounded arithmetic, or a computed array of vectors with its errors."""
        if name in self.run.inputs:
            return lifted(self.run.inputs[name], kind)
        _, errors = self._vector_sizes_and_errors(name)
        values = self.run.values[name]
        near = values if self.kind is Ball else values.balls()
        return kind.near_to(near, upper(errors * self.up))

    def _bound_temperature_error(self, sizes: Balls) -> Balls:
        """Bound what the errors of computed temperatures do to scores of these sizes (part 1)."""
        if "tempered" not in self.steps:
            return sizes * 0
        eps = 2 * self.precision.exp_ulps * float(self.wide.u)
        return sizes * (self._growth_in_score_kind(_OF_ONE_TEMPERATURE, self.wide) + 2 * eps)

    def _bound_additive_scores(self) -> tuple[Balls, Balls, Any]:
        result = self._vectors_in_rounded_arithmetic()[self.run.raw]
        sizes = self.xp.sum(size(self.run.values["v_s"]), axis=-1)[..., None, None]
        v = self._scale_score_sizes(self.xp.zeros(result.plain_shape) + sizes)
        of_function = self.eps + 6 * float(self.f.u)
        tau = self._finite_rounded_error(result) + of_function * v
        return tau, v, int(self.run.values["v_s"].plain_shape[-1]) + 1

    def _bound_distance_scores(
        self, q: tuple[Balls, Balls], k: tuple[Balls, Balls], d: int
    ) -> tuple[Balls, Balls, Any]:
        (a, e), (b, f) = q, k
        # Part 3: |q̂ − k̂| is at most the sum of both sizes and both errors.
        of_queries = (a + e)[..., :, None, :]
        distances = of_queries + (b + f)[..., None, :, :]
        errors = e[..., :, None, :] + f[..., None, :, :]
        moved = self.xp.sum(distances * errors, axis=-1)
        sizes = self._scale_score_sizes(self.xp.sum(distances * distances, axis=-1) / 2)
        roundings = 2 * d + 6 + self.constant + self.added
        growth = self._growth_in_score_kind(roundings, self.f)
        return (
            self._scale_score_sizes(moved) + growth * sizes,
            sizes,
            2 * d + 6,
        )

    def _growth_in_score_kind(self, n: object, f: Format) -> Any:
        return g(n, f, self.kind)

    def _lift_to_score_kind(self, floats: np.ndarray) -> Any:
        return Ball.lift(floats) if self.kind is Ball else floats

    # -- vectors --------------------------------------------------------------------------------------------------
    def _vector_sizes_and_errors(self, name: str) -> tuple[Balls, Balls]:
        """Return a and e of queries or keys."""
        # The inner vectors come first: their errors are rotated with them.
        step = self.steps.get(name)
        if step is not None and step.errors == "rotates":
            return self._rotated(step, *self._vector_sizes_and_errors(step.of[0]))
        if step is not None and step.errors == "moves":
            result = [self._vector_sizes_and_errors(n) for n in step.of]
            sizes = step.run(*[a for a, _ in result])
            errors = step.run(*[e for _, e in result])
            return sizes, errors
        found_size = size(number(self.run.values[name]))
        # A norm after the rotation reads vectors that have errors (part 2b).
        if step is not None and self._is_made_of_rotated_vectors(step):
            return found_size, self._bound_norm_of_rotated_vectors(step)
        # Keys of a latent have A_k = (|C| + e_C)|W_UK| (part 2a).
        if name == "k_n" and step is not None:
            a, e = self._vector_sizes_and_errors(step.of[0])
            found_size = step.run(a + e, size(self.run.values["w_uk"]))
        # An input is exact; only a computed vector has an error.
        return found_size, self._finite_rounded_error(
            self._vectors_in_rounded_arithmetic()[name]
        ) if step is not None else found_size * 0

    def _is_made_of_rotated_vectors(self, step: Step) -> bool:
        """Return whether a step has a rotation somewhere before the vectors that it takes."""
        before = self.steps.get(step.of[0])
        if before is None or before.errors == "rotates":
            return before is not None
        return self._is_made_of_rotated_vectors(before)

    def _bound_norm_of_rotated_vectors(self, step: Step) -> Balls:
        """Return e of vectors that are normalised, or changed otherwise, after a rotation, by part 2b."""
        _, errors = self._vector_sizes_and_errors(step.of[0])
        rotation = self.steps[step.of[0]]
        if rotation.errors == "rotates":
            before, moved = self._vector_sizes_and_errors(rotation.of[0])
            errors = errors + (4 + 2 * self.xp.max(before + moved)) * float(self.f.eta)
        # Enlarged here too, since a norm may enlarge what its errors lack.
        errors = errors * self.up
        kind = rounded(self.precision)
        rotated = self.run.values[step.of[0]]
        read = kind.near_to(rotated if self.kind is Ball else rotated.balls(), upper(errors))
        parameters = [lifted(self.run.inputs[name], kind) for name in step.of[1:]]
        return self._finite_rounded_error(step.run(read, *parameters))

    def _rotated(self, step: Step, a: Balls, e: Balls) -> tuple[Balls, Balls]:
        """Return a and e after a rotation, by part 2c."""
        angles = step.of[1:]
        cos, sin = (size(self.run.values[n]) for n in angles)
        off = self._lift_to_score_kind(
            self._bound_rotary_table_errors(cos, step.of[1])
        ) + self._growth_in_score_kind(3, self.f) * self.xp.maximum(cos, sin)
        moved = _rotate_without_minus_signs(step, a + e, off, off)
        if 2 * extents(cos)[-1] < extents(a)[-1]:  # the columns that no rotation reaches
            moved = moved - _rotate_without_minus_signs(step, a + e, off * 0, off * 0)
        # An input that is rotated has no error to rotate.
        a, e = (
            _rotate_without_minus_signs(step, a, cos, sin),
            _rotate_without_minus_signs(step, e, cos, sin) if step.of[0] in self.steps else e,
        )
        growth = self._growth_in_score_kind(3, self.f)
        return a, e + moved + (a + e) * growth

    def _bound_rotary_table_errors(self, cos: Balls, name: str) -> np.ndarray:
        """Return E without the error of storing."""
        rotary, w = self.run.spec.position, float(self.wide.u)
        assert isinstance(rotary, Rotary)
        n, f = extents(cos)[-2:]
        # Tables that are inputs are exact.
        if rotary.given == "tables":
            return np.zeros((n, f))
        text = "positions_q" if name.endswith("_q") else "positions"
        places = (
            np.asarray(self.run.inputs[text], float)
            if rotary.given
            else np.arange(n) + float(rotary.start)
        )
        if rotary.triples:
            roundings = np.abs(places)[..., None] * 6 + 6
            return np.broadcast_to(roundings * w, extents(cos))
        eps = 2 * self.precision.exp_ulps * w
        omega, rho, magnitude = _frequencies_and_their_errors(rotary, n, f, w, eps)
        # With sections, each pair of columns has the position of its own row.
        each = places[..., None]
        if rotary.sections:
            rows = rows_of_pairs(rotary.sections, rotary.section_order)
            each = positions_of_pairs(places, rows)
        # Enlarged for the roundings of this line in float64.
        of_frequencies = np.abs(each) * omega * rho
        of_angles = of_frequencies + eps + 8 * w
        return np.asarray(of_angles * magnitude * (1 + 2.0**-20))

    def _vectors_in_rounded_arithmetic(self) -> Values:
        """Return the vectors, or additive scores, in rounded arithmetic."""
        # Traced once: rounded arithmetic is slow, and several vectors come from one run.
        if self._rough is None:
            kind = rounded(self.precision)
            # Scores, and steps without a role, such as projected tables, are bounded otherwise.
            vectors = {
                n
                for n, step in self.steps.items()
                if step.errors in ("products", "rounded") and step.role not in ("", "scores")
            }
            wanted = {self.run.raw} if self.run.spec.score == "additive" else vectors
            # Rotations have proofs of their own, and so has what is made of rotated vectors.
            wanted -= {n for n in wanted if self._is_made_of_rotated_vectors(self.steps[n])}
            named_inputs = self.run.inputs.items()
            inputs = {name: lifted(array, kind) for name, array in named_inputs}
            self._rough = inputs | trace(self.run.spec, inputs, self.run.variant, wanted)
        return self._rough

    def _finite_rounded_error(self, array: Any) -> Balls:
        huge = np.finfo(float).max / 2**600
        return self._lift_to_score_kind(
            # A huge finite number in place of ∞, since ∞ times 0 would be undefined.
            np.where(np.isfinite(array.bound), array.bound, huge)
        )

    def values(self) -> tuple[Balls, Balls]:
        """Return |v|_j and the error of values from latents, or of normalised ones."""
        if self.run.spec.latent is None:
            sizes, errors = self._vector_sizes_and_errors(self.run.values_name)
            return sizes + errors, errors
        step = self.steps["v"]
        c, e = self._vector_sizes_and_errors("c_kv")
        w = size(self.run.values["w_uv"])
        return step.run(c + e, w), step.run(e, w)

    # -- afterwards -----------------------------------------------------------------------------------------------
    def _bound_softcap_error(self, tau: Balls, before: Balls, after: Balls) -> Balls:
        cap = float(self.run.spec.softcap or 0)
        four = self._growth_in_score_kind(4, self.f)
        of_tanh = cap * (self.eps + 6 * float(self.f.u))
        tau = tau + four * (before + tau) + of_tanh + four * after
        return tau + float(self.f.eta) * 8 * (cap + 1)

    def _bound_alibi_slope_error(self, part: Balls, name: str) -> Balls:
        position = self.run.spec.position
        # Slopes that are inputs are exact.
        if name != "positioned" or not isinstance(position, Alibi) or position.slopes == "given":
            return part * 0
        eps = 2 * self.precision.exp_ulps * float(self.wide.u)
        return (part + self._bound_shift_of_rows()) * (
            self._growth_in_score_kind(self.run.spec.heads + 8, self.wide) + eps
        )

    def _bound_shift_of_rows(self) -> Balls:
        """Bound the shift of a row."""
        run = self.run
        n_q, n_k = run.final_scores.plain_shape[-2:]
        if isinstance(run.spec.position, Alibi) and "positioned" in self.later:
            slopes = size(run.values["slopes"])
            # m · (i − j) may be computed as m · j: a shift of at most m max{n_q, n_k} (part 4).
            per_head = slopes[:, None, None] if run.spec.heads > 1 else slopes
            return per_head * max(n_q, n_k)
        if run.spec.score == "distance":
            # ‖q‖²/2 may be left out, which shifts the row.
            q = run.values[self.steps["scores"].of[0]]
            return self._scale_score_sizes(
                self.xp.sum(size(q) * size(q), axis=-1, keepdims=True) / 2
            )
        return self.xp.zeros((1, 1))

    def _bound_score_underflow(self, sizes: Balls) -> Balls:
        """Bound what underflow does: each operation of part 1 may be off by η, multiplied by what comes later."""
        run, f = self.run, self.f
        spec, plain = run.spec, of_products(run.spec)
        names = "qk" if plain else self.steps["scores"].of[:2]
        q, k = (size(run.absolute[n] if plain else number(run.values[n])) for n in names)
        largest_rows = _largest_row(q) + _largest_row(k)
        width = extents(q)[-1]
        each = largest_rows + 2 * width + 1
        if plain and "w_q" in run.values:  # W_Q W_Kᵀ may be formed first
            x = size(run.values["x"])
            y = size(run.values["y"]) if "y" in run.values else x
            rows = _largest_row(x) * _largest_row(y)
            each = each + rows * extents(q)[-1]
        # Later factors multiply what underflows before them.
        if not plain or spec.score != "dot" or spec.position is not None:
            each = each * (1 + self.xp.max(sizes))
        steps = int(run.terms.max(initial=0)) + SCALE_ROUNDINGS + 2
        scale = upper(size(run.values["scale"])).max() if spec.scale == "given" else spec.scale
        # A scale above 1 enlarges what underflows before it.
        most = 1.0
        if scale is not None and not isinstance(scale, str):
            most = max(1.0, abs(float(scale)))
        ones = self.xp.zeros(run.final_scores.plain_shape) + 1
        for step in self.factors:
            if step.name != "scaled":
                factor = upper(self._scale_sizes_by(step, ones))
                most = most * float(factor.max(initial=1.0))
        any_term = (run.terms > 0).astype(float)
        return each * any_term * (float(f.eta) * steps * LOG2_E * most)


def _check_error_terms(run: Run) -> None:
    """Raise ``InputError`` for a step without an error term that holds at its place: it must not get a bound."""
    behind = run.steps_behind_weights
    for step in run.steps:
        if step in behind:
            proved = step.errors in BOUNDS
            # Operands that are computed have errors, which no term behind the weights knows.
            computed = [name for name in step.of[1:] if name not in run.inputs]
        else:
            own = step.errors == "own"
            proved = step.row in _PROVED_BY_NAME if own else step.errors in _ERRORS_BEFORE_WEIGHTS
            computed = []
        if not proved or computed:
            why = (
                f"it takes the computed array {computed[0]!r}; behind the weights a step takes inputs"
                if computed
                else f"its error term is {step.errors!r}; symattn/attention/flow.py lists those of its place"
            )
            raise InputError(f"no bound is proved for the step {step.row!r}: {why}")


@lru_cache(128)
def _frequencies_and_their_errors(
    rotary: Rotary, n: int, f: int, w: float, eps: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return ω_l, their relative error ρ_l, and the factor of the tables."""
    like = np.zeros(())
    x = 2.0 * np.arange(f) / (2 * f)
    omega, rho = (
        inverse_frequencies(2 * f, rotary.base, like),
        (3 * x * log(rotary.base) + 9) * w + 2 * eps,
    )
    # The frequency θ⁰ = 1 needs no power.
    rho[0] = w
    if rotary.scaling is None:
        return omega, rho, 1.0
    scaling: Any = rotary.scaling  # here its arrays are NumPy's
    omega = scaling.frequencies(omega, rotary.base, n + rotary.start)
    # A scaling may enlarge the relative error twelve times and adds 64 w (part 2c).
    return omega, 12 * rho + 64 * w, float(abs(scaling.magnitude(like)))


def _rotate_without_minus_signs(step: Step, x: Balls, cos: Balls, sin: Balls) -> Balls:
    """Return the rotation without minus signs: for nonnegative numbers, the larger of both directions."""
    backwards = step.run(x, cos, -sin)
    return namespace_of(x).maximum(step.run(x, cos, sin), backwards)
