"""How large the roundings at each place of a chunk, or of a token, may be: the largest, and their squares.

Places are the right side b of the triangular system, its solution u, the state as it is read (``copy``), the state as
it is kept, and the output itself (``own``); ``limits`` says what each does to later outputs.

*Largest.* γ(m) = e^{mu} − 1 bounds what m roundings do to a product, and h(x) = u|x| + η what one store does. Computed
arrays are bounded by |exact| + |error|; for the state by the norm of each column of its error, for u and T by the
least fixed point of their own inequalities (``_least_growth_fixed_point``). With X̂ for the bound of |X|:

1. e^{G_i − G_j}, as one exponential or as two about any row: relative error θ = e^{2(γ(n) + 3u) max|G| + 2ε} − 1, one
   for each feature. If all tokens have one gate, e^{g m} may be the rounded e^g to the power m ≤ n, by products or by
   pow, also to the power −m: off by (1 + ε)^m (1 + u)^m, so that 2n(ε + u) is added to the exponent.
   Entries of L and N are off by (γ(d + 6) + θ) of the sum of their terms' absolute values; γ(2) of the stored format
   more if both factors are stored, which do not underflow (R3).
   Reading before a token is added, R = G − g is a sum of fewer gates, or a difference of one more rounding, within 3u;
   so is that of p where a token erases before its gate.
2. The system by substitution: (I + L̂ + ΔL) û = b̂, |ΔL| ≤ γ(n + 2) |I + L̂| (Higham, theorem 8.5): at b. An inverse T̂ of
   residual R = (I + L̂) T̂ − I: T̂ b̂ = (I + L̂)⁻¹ (b̂ + R b̂): |R| b̂ at b, and applying it γ(n) T̂ b̂ at u. By substitution
   |R| ≤ γ(n + 2) L̂ T̂. Merged from blocks, T₂₁ = −T₂₂ (L₂₁ T₁₁), R₂₁ is −R₂₂ L₂₁ T₁₁ and (I + L₂₂) times the error
   of two products: over r levels |R| ≤ γ(2n + 2) |I + L| T̂ Σ_{i ≤ r + 1} (L̂ T̂)^i. By LU factors without exchanges
   |R| ≤ γ(3n) |I + L| T̂, or as much of T̂ |I + L| û at u if the residual is that of T̂ (I + L) (Higham, §14.3).
   By powers, Π_k (I + (−L)^{2^k}) or any sum of them: T is the sum of one product for every path of edges L_ij, and
   each join of two parts of a path adds at most n + 3 roundings, fewer joins than edges. With r = γ(n + 3) and
   M(r) = (I − (1 + r) |L̂|)⁻¹, |T̂ − T| ≤ M(r) − M(0) = M(r) r |L̂| M(0), and |R| is at most |I + L̂| times that.
3. Stores of w V, p e^G, T, U, W, u, the state read, q e^G, K̄ and N add h of each, times what multiplies it.
4. A number that underflows adds η for each operation, times the largest factors that it meets.
5. The output is rounded with all errors in it, so ``limits`` adds u |o| and u of the other errors at the end.
6. Where a program reads q̂ and k̂ within e of q and k, p̂ is within |β| e of p: entries of L are off by |p̂ − p| |k̂| +
   |p| |k̂ − k| too, and likewise N, (p e^G) S, (q e^G) S and K̄ᵀ u, each at its place; q, k and p of the other items are
   then |q| + e, |k| + e and |p| + |β| e.
7. A bonus b adds c v = Σ_f q_f b_f k_f v to the output, as a sum by itself, as the diagonal of N, or within the product
   of q with the state that is read plus (b k)ᵀ v: at most d + 6 roundings of |q| |b| |k| |v|, two more of the stored
   format if q b or b k is stored, and its η, times Σ |k| or Σ |q|; moved as item 6 says. A skip adds D v in the same
   way, as one product.
8. A step Δ multiplies v before it is stored, or N and K̄, which are stored then: the same relative errors, and η of what
   is stored times |v| where that may underflow. g = Δ A is one more rounding of g: within 3u in chunks, and beside the
   2u of e^g token by token.
9. Of two steps a token, entries of L between a first and a second one are a matrix by itself, A of A v, which may be
   stored in the stored format, and so may A v: γ(2) of it and η, at b. The system may be that of the first steps alone,
   whose right side is then −A v − (p e^G) S: |A| |v| counts in the sizes that items 2 and 3 are relative to, since its
   inverse times A may cancel.
10. Where a program computes gates from raw ones, each within δ (``gate_errors``), e^{Σ ĝ} over any tokens of a chunk is
   e^{Σ g} times a factor between e^{−D} and e^{D}, D = Σ δ over the chunk, and sums of gates are at most max|G| + D.
   So D is added to the exponent of θ, and to max|G| in it; token by token, δ to that of e^g and to |g|. Other items are
   relative to what was computed with ĝ, so nothing is left out that is of second order.

*Squares*, of the largest rounding of each number, for sums in a wide format: a sum of m products in any order adds
u² ((1 + m/2) Σ terms² + m/3 sum²); to first order, so computed arrays are the exact ones.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §3.1, theorem 8.5, §14.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, expm1, log2
from typing import NamedTuple

import numpy as np

from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrence import (
    Chunk,
    OwnProducts,
    Recurrence,
    decayed_products,
    unit_lower_inverse,
)
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic, rounding_of

#: Roundings of an exponential, in units of u: three units in the last place.
EXPONENTIAL = 6.0


Array = np.ndarray
#: Iterations after which a bound that still grows is given up.
MAX_ITERATIONS = 40
# A bound that grows by less than this part in an iteration has settled.
SMALLEST_GROWTH = 2.0**-40
#: Part of a format's largest number that numbers may reach in a program whose errors are bounded.
MOST_OF_RANGE = 0.5
#: Tokens of the blocks whose inverses are merged.
BLOCK = 16


@dataclass(frozen=True)
class Roundings:
    """Sizes of roundings by place: right side, solution, own (n, d_v), copy and state (d_k, d_v).

    ``copy_norm`` and ``state_norm`` (d_v,) bound the norms of what is further in the columns of ``copy`` and ``state``.
    """

    right: Array
    solution: Array
    own: Array
    copy: Array
    state: Array
    copy_norm: Array
    state_norm: Array


def growth(steps: float, form: Format) -> float:
    """γ: e^{steps · u} − 1, rounded up; ∞ if that is no error bound any more."""
    exponent = steps * float(form.u)
    # e^x − 1 is no useful bound for x ≥ 1, and the caller reads ∞ as silence.
    return expm1(exponent) * (1 + 2.0**-40) if exponent < 1 else float("inf")


def gate_error(chunk: Chunk, how: RecurrentArithmetic) -> Array:
    """θ for each feature, (1, 1) or (1, d_k); 0 without gates."""
    reach = np.abs(chunk.sums).max(axis=0, keepdims=True) + chunk.gates_moved
    u = float(how.sums.u)
    # Two exponentials about a row double the reach (item 1).
    of_sums = 2 * (growth(len(chunk.u), how.sums) + 3 * u)
    exponent = of_sums * reach + 2 * EXPONENTIAL * u + chunk.gates_moved
    if chunk.constant:
        exponent = exponent + 2 * len(chunk.u) * (EXPONENTIAL + 1) * u
    return np.where(reach > 0, np.expm1(exponent), 0.0)


def _row_norms(x: Array) -> Array:
    return np.asarray(np.sqrt((x * x).sum(axis=1, keepdims=True)))


def _column_norms(x: Array) -> Array:
    return np.asarray(np.sqrt((x * x).sum(axis=0)))


def _least_growth_fixed_point(start: Array, again: Callable[[Array], Array]) -> Array:
    """Return the least fixed point of x ↦ start + again(x), from below; ∞ if it does not settle."""
    result = start
    # The iteration rises from below, so only a settled value is an upper bound.
    for _ in range(MAX_ITERATIONS):
        larger = start + again(result)
        settled = (larger <= result * (1 + SMALLEST_GROWTH)).all()
        result = larger
        if settled:
            # Enlarged for what further iterations would add.
            return np.asarray(result * (1 + 2 * SMALLEST_GROWTH))
    return np.full_like(start, np.inf)


def _bound_residual_of_inverse(system: str, lower: Array, inverse: Array, form: Format) -> Array:
    """Return the bound of |R| by the way the system is solved."""
    count, one = len(lower), np.eye(len(lower))
    product = lower @ inverse
    # The ways of item 2, by the names of ``RecurrentArithmetic.system``.
    if system == "rows":
        return np.asarray(growth(count + 2, form) * product)
    if system == "general":
        return np.asarray(growth(3 * count, form) * ((one + lower) @ inverse))
    # Blocks merge in pairs, so the number of levels grows with the logarithm of their number.
    levels = max(1, ceil(log2(max(count / BLOCK, 1)))) + 1
    powers, total = one, np.zeros_like(one)
    for _ in range(levels):
        powers = powers @ product
        total = total + powers
    solved = (one + lower) @ inverse @ total
    return np.asarray(growth(2 * count + 2, form) * solved)


def _residual_of_powers(lower: Array, form: Format) -> Array:
    """Return the bound of |R| if the inverse is made of powers of L, whatever it is."""
    more = growth(len(lower) + 3, form)
    enlarged = unit_lower_inverse(-(1 + more) * lower)
    moved = enlarged @ (more * lower) @ unit_lower_inverse(-lower)
    return np.asarray((np.eye(len(lower)) + lower) @ moved)


def overflows(x: Chunk, how: RecurrentArithmetic) -> bool:
    """Return whether a number of a chunk is near the largest one of a format in which it may be held."""
    chunked = (
        x.right,
        x.read,
        x.inverse,
        x.factor,
        x.inverse @ x.right,
        x.u,
        x.inner,
        x.decayed_queries,
        x.state,
    )
    # (b k)ᵀ v may be added to the state that is read, and Δ k, Δ v and D v may be computed.
    of_keys = max(1.0, float(np.abs(x.k).max(initial=0.0)))
    of_bonus = x.largest_factor * of_keys * np.maximum(1.0, np.abs(x.values))
    # Format by format, since each array must stay in the range of its own.
    of_sums = (x.lower, x.end, x.output, x.own_products.size, of_bonus, *chunked)
    arrays_by_format = [(how.kept, (x.end,)), (how.sums, of_sums)]
    # Token by token, no array of a chunk is stored.
    if how.order == "chunks":
        # A step may multiply N and K̄ before they are stored, and a bonus q or k.
        of_step = max(1.0, x.largest_factor) if x.has_rates else 1.0
        with_bonus = x.largest_factor * x.own_products.beside.any()
        multiplied = (
            of_step * x.inner,
            of_step * x.decayed_keys,
            with_bonus * x.q,
            with_bonus * x.k,
        )
        arrays_by_format.append((how.stored, (*chunked, *multiplied)))
    return any(
        form is not None and float(np.abs(a).max(initial=0.0)) > MOST_OF_RANGE * float(form.largest)
        for form, arrays in arrays_by_format
        for a in arrays
    )


# -- the largest of a chunk --------------------------------------------------------------------------------------------
class _StateAsRead:
    """The state before a chunk as a program reads it: stored, and off by errors of columns of at most ``moved``."""

    def __init__(self, state: Array, storage: Format | None, error: Array) -> None:
        stored_part = 0.0 if storage is None else float(storage.u)
        self.copy = rounding_of(state, storage)
        self.copy_norm = stored_part * error
        self.size = np.abs(state) + self.copy
        # A stored copy of the state has the state's error too.
        self.moved = error * (1 + stored_part)

    def bound_product(self, a: Array) -> Array:
        """Return |A| times the bound of the state as computed."""
        return np.asarray(np.abs(a) @ self.size + _row_norms(a) * self.moved)

    def bound_error_of_product(self, a: Array) -> Array:
        """Return |A| times the bound of how far the state as it is read is from the exact one."""
        return np.asarray(np.abs(a) @ self.copy + _row_norms(a) * self.moved)


class _ChunkSteps:
    """A chunk and an arithmetic, with the relative errors that several steps of ``largest_in_chunk`` need."""

    def __init__(self, x: Chunk, how: RecurrentArithmetic, error: Array) -> None:
        count, width = x.k.shape
        self.x, self.how, self.count = x, how, count
        self.form, self.storage = how.sums, how.stored
        #: γ of so many roundings, of dot products of a key, and of sums over tokens of such ones.
        self.few = [growth(steps, how.sums) for steps in range(8)]
        self.dots = growth(width + 6, how.sums)
        self.sums = growth(count + width + 8, how.sums)
        self.theta = gate_error(x, how)
        self.widest = float(self.theta.max())
        self.state = _StateAsRead(x.state, how.stored, error)
        self.lost = _lost_to_underflow(x, how, error)
        # By LU factors, or perhaps by them.
        self.is_general = how.system in ("general", "any")


def largest_in_chunk(x: Chunk, how: RecurrentArithmetic, error: Array) -> Roundings:
    """Return the largest roundings of a chunk; ``error`` (d_v,) bounds the norms of the state's error before it."""
    steps = _ChunkSteps(x, how, error)
    entries = _bound_entries(steps)
    inverse = _bound_inverse(steps, entries)
    right_side = _bound_right_side(steps, entries)
    system = _bound_system(steps, entries, inverse, right_side)
    solution = _bound_solution(steps, entries, inverse, system)
    own = _bound_output(steps, entries, solution.bound)
    state_off, state_norm = _bound_state_after(steps, solution.bound, error)
    return Roundings(
        solution.at_right,
        solution.at_solution,
        own,
        steps.state.copy,
        state_off,
        steps.state.copy_norm,
        state_norm,
    )


class _EntryBounds(NamedTuple):
    """Bounds of the entries of L as computed, and of how far those of L and of N are off, (n, n)."""

    lower: Array
    lower_off: Array
    inner_off: Array


def _bound_entries(steps: _ChunkSteps) -> _EntryBounds:
    x, how, storage = steps.x, steps.how, steps.storage
    factors = growth(2, storage) if how.factors and storage is not None else 0.0
    # Item 1: products, gates, and both factors if they are stored.
    off = steps.dots + steps.theta + factors
    # Item 6: each array as a program reads it.
    entered = x.moved
    keys = np.abs(x.k) + entered.k
    queries = np.abs(x.q) + entered.q
    erased = np.abs(x.p) + entered.p
    erasing = (True, x.erasing_sums)
    of_products = decayed_products(erased * off, keys, x.sums, *erasing)
    # An entry of L whose products are all 0 is an exact 0, which does not underflow; one of products that cancel may.
    lower_off = of_products + steps.lost * (of_products > 0)
    rows = (x.reads_before, x.reads)
    inner_off = decayed_products(queries * off, keys, x.sums, *rows) + steps.lost
    if not entered.is_nothing:
        lower_off = lower_off + _moved_products(x.p, entered.p, keys, entered.k, x.sums, *erasing)
        inner_off = inner_off + _moved_products(x.q, entered.q, keys, entered.k, x.sums, *rows)
    return _EntryBounds(np.abs(x.lower) + lower_off, lower_off, inner_off)


class _InverseBounds(NamedTuple):
    """Bounds of |T̂| as it is stored, of the rounding of storing it, and of the residual |R|, (n, n)."""

    bound: Array
    stored: Array
    residual: Array


def _bound_inverse(steps: _ChunkSteps, entries: _EntryBounds) -> _InverseBounds:
    """Bound T̂ by |T| and its own error, which depends on T̂: a fixed point."""
    how, form, lower = steps.how, steps.form, entries.lower
    exact_inverse = np.abs(steps.x.inverse)
    by_powers = how.system in ("powers", "any")
    of_powers = _residual_of_powers(lower, form) if by_powers else np.zeros_like(lower)
    systems = ("general", "blocks") if how.system == "any" else (how.system,)

    def residual_for(inverse: Array) -> Array:
        # Without the other ways the residual does not depend on the inverse.
        if how.system == "powers":
            return of_powers
        every = [_bound_residual_of_inverse(system, lower, inverse, form) for system in systems]
        return np.asarray(np.maximum.reduce([of_powers, *every]))

    def inverse_grows(inverse: Array) -> Array:
        return np.asarray(exact_inverse @ (residual_for(inverse) + entries.lower_off @ inverse))

    computed = _least_growth_fixed_point(exact_inverse, inverse_grows)
    stored = rounding_of(computed, steps.storage)
    return _InverseBounds(computed + stored, stored, residual_for(computed))


class _RightSideBounds(NamedTuple):
    """Bounds of the right side b of the system, (n, d_v), and of p e^G, (n, d_k).

    off        how far the right side as computed is from the exact one
    size       w V (and A v), without what is read of the state
    right      the right side as computed
    solved     what the system is solved for: the difference, or both of its parts
    read_size  p e^G as a program reads it
    read_moved how far p e^G is moved by errors of p
    """

    off: Array
    size: Array
    right: Array
    solved: Array
    read_size: Array
    read_moved: Array


def _bound_right_side(steps: _ChunkSteps, entries: _EntryBounds) -> _RightSideBounds:
    x, storage, state, few = steps.x, steps.storage, steps.state, steps.few
    size = np.abs(x.right)
    read_moved = x.moved.p * np.exp(x.erasing_sums)
    read_size = np.abs(x.read) + read_moved
    relative = (few[3] + steps.widest) * state.bound_product(read_size)
    off = relative + state.bound_product(read_moved) + rounding_of(size, storage) + few[2] * size
    # Solved for the difference, (p e^G) S is a product by itself; else p e^G may be stored.
    if steps.how.residual:
        off = off + steps.dots * state.bound_product(read_size)
    else:
        off = off + state.bound_product(rounding_of(read_size, storage))
    without_state = np.abs(x.right - x.read @ x.state)
    if x.is_paired:
        # Item 9: A v by itself, and at the right of the system.
        of_values = (entries.lower @ size) * _has_erased(x)
        if storage is not None:
            operations = (1 + size).sum(axis=0)
            stored_values = growth(2, storage) * of_values + float(storage.eta) * operations
            off = off + stored_values * _has_erased(x)
        size, without_state = size + of_values, without_state + of_values
    right = without_state + state.bound_error_of_product(x.read) + off
    if not steps.how.residual:
        # Apart, w V and p e^G are solved each, without cancellation.
        apart = size + state.bound_product(x.read)
        return _RightSideBounds(off, size, right, apart + off, read_size, read_moved)
    stored_right = 2 * rounding_of(right, storage)
    right, off = right + stored_right, off + stored_right
    return _RightSideBounds(off, size, right, right, read_size, read_moved)


class _SystemRoundings(NamedTuple):
    """Roundings at b and at u that do not depend on u, and the bound of those of substitution, (n, n)."""

    at_right: Array
    at_solution: Array
    substituted: Array


def _bound_system(
    steps: _ChunkSteps, entries: _EntryBounds, inverse: _InverseBounds, right_side: _RightSideBounds
) -> _SystemRoundings:
    x, storage, few, count = steps.x, steps.storage, steps.few, steps.count
    # LU factors have two substitutions and an elimination; substitution alone has one.
    passed = 3 * count if steps.is_general else count + 2
    substituted = growth(passed, steps.form) * (entries.lower + np.eye(count))

    def slack(size: Array, entered: Array) -> Array:
        """Return how far T̂ X̂ is from T X, for |X| at most ``size`` and off by at most ``entered``."""
        # Errors that entered count in the size that later roundings are relative to.
        size = size + entered
        product = inverse.bound @ size
        off_at_right = entered + inverse.residual @ size + substituted @ product
        off_at_right = off_at_right + entries.lower_off @ product
        # Products with the inverse, and the error of storing it.
        applied = growth(count, steps.form) * product + inverse.stored @ size
        return np.asarray(np.abs(x.inverse) @ off_at_right + applied)

    at_right = right_side.off + inverse.residual @ right_side.solved + steps.lost
    of_product = growth(count, steps.form) * (inverse.bound @ right_side.solved)
    at_solution = of_product + inverse.stored @ right_side.right + steps.lost
    if steps.how.residual:
        return _SystemRoundings(at_right, at_solution, substituted)
    # Both parts are solved and stored by themselves, and meet the state afterwards.
    size, read_size = right_side.size, right_side.read_size
    stored_right = rounding_of(size, storage) + few[2] * size
    first = np.abs(x.inverse @ x.right) + slack(size, stored_right)
    stored_read = rounding_of(read_size, storage) + (few[3] + steps.widest) * read_size
    read_slack = slack(np.abs(x.read), stored_read + right_side.read_moved)
    computed_factor = np.abs(x.factor) + read_slack
    stored_factor = rounding_of(computed_factor, storage)
    on_factor = steps.state.bound_product(computed_factor + stored_factor)
    at_right = at_right + substituted @ (first + on_factor)
    stored_first = rounding_of(first, storage)
    at_solution = at_solution + stored_first + steps.state.bound_product(stored_factor)
    read_first = first + stored_first
    at_solution = at_solution + (steps.dots + few[2]) * on_factor + few[2] * read_first
    return _SystemRoundings(at_right, at_solution, substituted)


class _SolutionBounds(NamedTuple):
    """The bound of |û|, and the roundings at b and at u, (n, d_v)."""

    bound: Array
    at_right: Array
    at_solution: Array


def _bound_solution(
    steps: _ChunkSteps, entries: _EntryBounds, inverse: _InverseBounds, system: _SystemRoundings
) -> _SolutionBounds:
    """Bound û by |u| and its own error, in the same way as T̂."""
    x, count = steps.x, steps.count
    exact_inverse = np.abs(x.inverse)
    exact_u = np.abs(x.u) + steps.state.bound_error_of_product(x.factor)
    # LU factors may leave their residual at u in place of b (item 2).
    general = 0 * entries.lower
    if steps.is_general:
        unit_lower = entries.lower + np.eye(count)
        general = growth(3 * count, steps.form) * (inverse.bound @ unit_lower)
    lower_off = entries.lower_off
    of_entries = lower_off + system.substituted if steps.how.residual else lower_off

    def from_solution(bound: Array) -> tuple[Array, Array]:
        """Return the roundings at b and at u that are parts of u itself."""
        of_stored = rounding_of(bound, steps.storage)
        return of_entries @ bound, general @ bound + of_stored + steps.few[2] * bound

    def solution_off(bound: Array) -> Array:
        at_right, at_solution = from_solution(bound)
        of_right = exact_inverse @ (system.at_right + at_right)
        return np.asarray(of_right + system.at_solution + at_solution)

    bound = _least_growth_fixed_point(exact_u, solution_off)
    at_right, at_solution = from_solution(bound)
    return _SolutionBounds(bound, system.at_right + at_right, system.at_solution + at_solution)


def _bound_output(steps: _ChunkSteps, entries: _EntryBounds, solution: Array) -> Array:
    """Return the largest roundings of (q e^G) S + N u, of a bonus, and of a step, (n, d_v)."""
    x, storage, state = steps.x, steps.storage, steps.state
    queries_moved = x.moved.q * np.exp(x.reads)
    queries = np.abs(x.decayed_queries) + queries_moved
    inner = np.abs(x.inner) + entries.inner_off
    of_state = (steps.dots + steps.widest) * state.bound_product(queries)
    stored_queries = state.bound_product(rounding_of(queries, storage))
    own = of_state + stored_queries + state.bound_product(queries_moved)
    own = own + entries.inner_off @ solution
    own = own + (steps.sums + steps.few[4]) * (inner @ solution)
    # N is stored on and below the diagonal alone.
    own = own + np.tril(rounding_of(inner, storage)) @ solution
    own = own + steps.lost + _largest_of_own_products(x, steps.dots, steps.sums, storage)
    return np.asarray(own + np.tril(np.ones_like(x.inner)) @ _underflow_of_step(steps))


def _underflow_of_step(steps: _ChunkSteps) -> Array:
    """Return what underflows where it is stored with the step as a factor (item 8), (n, d_v)."""
    x = steps.x
    lost = _underflow_of_stored_format(steps.storage) * np.abs(x.values) * x.has_rates
    return np.asarray(lost)


def _bound_state_after(steps: _ChunkSteps, solution: Array, error: Array) -> tuple[Array, Array]:
    """Return the largest roundings of the state after a chunk, (d_k, d_v), and norms of further ones, (d_v,)."""
    x, how, theta = steps.x, steps.how, steps.theta
    keys_moved = x.moved.k * np.exp(x.sums[-1] - x.sums)
    keys_end = np.abs(x.decayed_keys) + keys_moved
    added = keys_end.T @ solution
    relative = steps.few[4] + theta.T
    stored_part = (0.0 if how.kept is None else float(how.kept.u)) + float(steps.form.u)
    state_off = relative * x.last * np.abs(x.state) + (steps.sums + theta.T) * added
    of_keys = (rounding_of(keys_end, steps.storage) + keys_moved).T @ solution
    state_off = state_off + of_keys + stored_part * np.abs(x.end)
    of_step = _underflow_of_step(steps).sum(axis=0)
    state_off = state_off + _underflow_of_stored_format(how.kept) + steps.lost + of_step
    # Roundings of the decay scale with the state's error, which is carried too.
    largest_decay = float(relative.max()) * float(x.last.max())
    carried = largest_decay + 4 * stored_part
    of_solution = keys_end.T @ (solution - np.abs(x.u))
    after = error + _column_norms(of_solution) + _column_norms(state_off)
    return state_off, carried * error + stored_part * after


# -- what several places need ------------------------------------------------------------------------------------------
def _moved_products(
    x: Array,
    x_moved: Array,
    keys: Array,
    keys_moved: Array,
    sums: Array,
    strict: bool = False,
    reads: Array | None = None,
) -> Array:
    """Return |x̂ − x| |k̂| + |x| |k̂ − k| with decays, (n, n); ``keys`` bounds |k̂|."""
    first = decayed_products(x_moved, keys, sums, strict, reads)
    return np.asarray(first + decayed_products(np.abs(x), keys_moved, sums, strict, reads))


def _has_erased(x: Chunk) -> Array:
    """1 for rows that erase, else 0; (n, 1)."""
    return np.asarray(x.p.any(axis=1, keepdims=True), dtype=np.float64)


def _largest_of_own_products(x: Chunk, dots: float, sums: float, storage: Format | None) -> Array:
    """Return how far c v of a bonus may be off (item 7), (n, d_v)."""
    of_stored = 0.0 if storage is None else growth(3, storage)
    own, values = x.own_products, np.abs(x.values)
    # c may be stored as the diagonal of N, and its product with v is one of the sum over tokens.
    relative = (1 + dots) * (1 + sums) * (1 + of_stored) - 1
    # An entry of q b or b k that underflows as it is stored meets k or q; c itself may be stored, too.
    lost = np.where(own.size > 0, _underflow_of_stored_format(storage) * (1 + own.beside), 0.0)
    return np.asarray((relative * own.size + own.moved + lost) * values)


def _underflow_of_stored_format(form: Format | None) -> float:
    return 0.0 if form is None else float(form.eta)


def _lost_to_underflow(x: Chunk, how: RecurrentArithmetic, error: Array) -> float:
    """Return what operations that underflow may add to a sum, times the largest factors that they meet."""
    arrays = (x.q, x.k, x.p, x.right, x.state, x.u, x.inverse, x.inner, x.values)
    entries = (float(np.abs(a).max(initial=0.0)) for a in arrays)
    largest = max(1.0, x.largest_factor, *entries) + float(error.max(initial=0.0))
    # Sums over features and over tokens, and a few products around them.
    operations = sum(x.k.shape) + 16
    return 2 * float(how.sums.eta) * operations * largest * largest


# -- their squares -----------------------------------------------------------------------------------------------------
class _SquareSteps:
    """A chunk and an arithmetic, with the arrays that several steps of ``squares_in_chunk`` need.

    right   what the system has at its right without what is read of the state, (n, d_v)
    system  all that it has at its right, (n, d_v)
    inside  1 on and below the diagonal, (n, n)
    """

    def __init__(self, x: Chunk, how: RecurrentArithmetic) -> None:
        self.x, self.how, self.storage = x, how, how.stored
        self.count, self.width = x.k.shape
        self.unit2 = float(how.sums.u) ** 2
        self.right = x.right
        if x.is_paired:
            # Item 9: what the system of the first steps has at its right.
            self.right = x.right - (x.lower @ x.right) * _has_erased(x)
        self.system = self.right - x.read @ x.state
        self.u2, self.state2 = x.u**2, x.state**2
        self.inside = np.tril(np.ones((self.count, self.count)))
        underflow = _underflow_of_stored_format(self.storage) * x.values * x.has_rates
        #: Item 8: what is stored with the step as a factor may underflow.
        self.of_step = underflow**2

    def of_products(self, a2: Array, b2: Array, sum2: Array | float, depth: int) -> Array:
        """Return the squares of sums of ``depth`` products, from those of the factors and of the sums."""
        of_terms = (1 + depth / 2) * (a2 @ b2)
        return np.asarray(self.unit2 * (of_terms + depth / 3 * sum2))

    def of_entries(self, entries2: Array, terms: Array) -> Array:
        """Return the squares of entries of L or N, from the squares of the entries and the sums of their terms'."""
        of_terms = (1 + self.width / 2) * terms
        of_sums = (self.width / 3 + 3) * entries2
        of_factors = 0.0
        if self.how.factors and self.storage is not None:
            of_factors = 2 * float(self.storage.u) ** 2
        largest_sums = np.abs(self.x.sums).max(axis=1, keepdims=True)
        of_split_gates = (float(self.how.sums.u) * largest_sums) ** 2
        # With one gate a token, the split exponential scales whole entries.
        scaled = entries2 if self.x.sums.shape[1] == 1 else terms
        result = self.unit2 * (of_terms + of_sums) + of_factors * terms
        return np.asarray(result + of_split_gates * scaled)

    def of_stored(self, a: Array) -> Array:
        """Return the squares of the roundings of an array that is stored."""
        return np.asarray(rounding_of(a, self.storage) ** 2)


def squares_in_chunk(x: Chunk, how: RecurrentArithmetic) -> Roundings:
    """Return the squares of the largest roundings of a chunk, to first order."""
    steps = _SquareSteps(x, how)
    at_right = _square_right_side(steps)
    at_solution = _square_solution(steps)
    own, state_off = _square_output(steps), _square_state_after(steps)
    # To first order no state carries errors of its own.
    none = np.zeros(x.state.shape[1])
    return Roundings(at_right, at_solution, own, steps.of_stored(x.state), state_off, none, none)


def _square_right_side(steps: _SquareSteps) -> Array:
    """Return the squares at b: of L u, of the inverse, of w V less (p e^G) S, and of what is stored, (n, d_v)."""
    x, unit2, count = steps.x, steps.unit2, steps.count
    # Squares of gates: e^{2(G_i − G_j)}.
    erasing = 2 * x.erasing_sums
    lower_terms = decayed_products(x.p**2, x.k**2, 2 * x.sums, strict=True, reads=erasing)
    of_lower = steps.of_entries(x.lower**2, lower_terms)
    off_diagonal2 = (x.inverse - np.eye(count)) ** 2
    of_substitution = (1 + count / 2) * (x.lower**2 @ x.inverse**2)
    of_inverse = unit2 * (of_substitution + count / 3 * off_diagonal2)
    of_system = of_inverse @ steps.system**2
    at_right = of_lower @ steps.u2 + of_system + 3 * unit2 * steps.right**2
    on_read2 = (x.read @ x.state) ** 2
    at_right = at_right + steps.of_products(x.read**2, steps.state2, on_read2, steps.width)
    if x.is_paired:
        # Item 9: A v by itself.
        written2, of_values = x.right**2, x.lower @ x.right
        of_values2 = steps.of_products(x.lower**2, written2, of_values**2, count)
        of_values2 = of_values2 + steps.of_stored(x.lower) @ written2 + steps.of_stored(of_values)
        at_right = at_right + of_values2 * _has_erased(x)
    if steps.how.residual:
        return np.asarray(at_right + 2 * steps.of_stored(steps.system))
    of_stored_read = steps.of_stored(x.read) @ steps.state2
    return np.asarray(at_right + (steps.of_stored(steps.right) + of_stored_read))


def _square_solution(steps: _SquareSteps) -> Array:
    """Return the squares at u: of the product with the inverse, and of what is stored, (n, d_v)."""
    x, unit2, count = steps.x, steps.unit2, steps.count
    of_stored = steps.of_stored(x.inverse) @ steps.system**2 + steps.of_stored(x.u)
    at_solution = of_stored + 2 * unit2 * steps.u2
    inverse2 = x.inverse**2
    if steps.how.residual:
        of_product = steps.of_products(inverse2, steps.system**2, steps.u2, count)
        return np.asarray(at_solution + of_product)
    # Both parts are solved by themselves: T w V, and T (p e^G), which meets the state afterwards.
    first, on_factor2 = x.inverse @ x.right, (x.factor @ x.state) ** 2
    parts2 = first**2 + on_factor2
    right2 = steps.right**2 + x.read**2 @ steps.state2
    at_solution = at_solution + steps.of_products(inverse2, right2, parts2, count)
    of_factor = steps.of_products(x.factor**2, steps.state2, on_factor2, steps.width)
    at_solution = at_solution + of_factor + unit2 * parts2
    of_stored_factor = steps.of_stored(x.factor) @ steps.state2
    return np.asarray(at_solution + steps.of_stored(first) + of_stored_factor)


def _square_output(steps: _SquareSteps) -> Array:
    """Return the squares of (q e^G) S + N u, of a bonus, a skip and a step, and of the output, (n, d_v)."""
    x, how, queries = steps.x, steps.how, steps.x.decayed_queries
    reads = 2 * x.reads
    inner_terms = decayed_products(x.q**2, x.k**2, 2 * x.sums, strict=x.reads_before, reads=reads)
    inner2 = x.inner**2
    on_queries2, on_inner2 = (queries @ x.state) ** 2, (x.inner @ x.u) ** 2
    own = steps.of_products(queries**2, steps.state2, on_queries2, steps.width)
    own = own + steps.of_entries(inner2, inner_terms) @ steps.u2
    of_inner = steps.of_products(inner2, steps.u2, on_inner2, steps.count)
    own = own + of_inner + 3 * steps.unit2 * x.output**2
    # N is stored on and below the diagonal alone.
    of_stored_inner = steps.of_stored(x.inner) * steps.inside
    own = own + steps.of_stored(queries) @ steps.state2 + of_stored_inner @ steps.u2
    own = own + rounding_of(x.output, how.output) ** 2
    own = own + _squares_of_own_products(x.own_products, x.q, x.k, x.values, how)
    own = own + steps.inside @ steps.of_step
    if steps.storage is not None:
        of_stored_bonus = steps.of_stored(x.own_products.value)
        own = own + np.where(x.own_products.size > 0, of_stored_bonus, 0) * x.values**2
    return np.asarray(own)


def _square_state_after(steps: _SquareSteps) -> Array:
    """Return the squares of e^G S + K̄ᵀ u, and of storing it, (d_k, d_v)."""
    x, unit2 = steps.x, steps.unit2
    keys_end, decayed = x.decayed_keys, x.last * x.state
    added2 = (x.end - decayed) ** 2
    of_added = steps.of_products(keys_end.T**2, steps.u2, added2, steps.count)
    state_off = 4 * unit2 * decayed**2 + of_added
    of_stored_keys = steps.of_stored(keys_end).T @ steps.u2
    of_stored_solution = keys_end.T**2 @ steps.of_stored(x.u)
    state_off = state_off + of_stored_keys + of_stored_solution + unit2 * x.end**2
    of_stored_state = rounding_of(x.end, steps.how.kept) ** 2
    return np.asarray(state_off + of_stored_state + steps.of_step.sum(axis=0))


def _squares_of_own_products(
    own: OwnProducts, q: Array, k: Array, values: Array, how: RecurrentArithmetic
) -> Array:
    """Return the squares of the roundings of c v (item 7), of sums in a wide format, as those of a product of q and k
    with its values; ``values`` (n, d_v)."""
    unit2, width = float(how.sums.u) ** 2, q.shape[-1]
    of_terms = (1 + width / 2) * own.squares + (width / 3 + 3) * own.value**2
    of_factors = 0.0 if how.stored is None else 2 * float(how.stored.u) ** 2
    # An entry of q b or b k that underflows as it is stored meets k or q.
    lost2 = _underflow_of_stored_format(how.stored) ** 2 * (own.beside > 0)
    beside2 = np.maximum(*((a**2).sum(axis=-1, keepdims=True) for a in (q, k)))
    of_stored = of_factors * own.squares + lost2 * beside2
    return np.asarray((unit2 * of_terms + of_stored) * values**2)


# -- token by token ----------------------------------------------------------------------------------------------------
class TokenStep(NamedTuple):
    """A token of a recurrence, what it adds along its key, and the states around it, (d_k, d_v).

    previous  S_{t−1}
    before    diag(a) S_{t−1}, the decayed state
    after     S_t
    u         w v less what p reads, (d_v,)
    """

    of: Recurrence
    token: int
    previous: Array
    before: Array
    after: Array
    u: Array


@dataclass(frozen=True)
class TokenRoundings:
    """Roundings of one token: at what its state is corrected by (d_v,), at the state (d_k, d_v), at the output (d_v,);
    ``state_norm`` (d_v,) as in ``Roundings``."""

    correction: Array
    state: Array
    own: Array
    state_norm: Array


class _TokenErrors:
    """A token and an arithmetic, with what several steps of ``largest_of_token`` need.

    error      bounds the norms of the state's columns of errors before the token, (d_v,)
    p, q, k    bounds of these as a program reads them (item 6), and their norms
    theta      the relative error of the decay, for each feature
    dots, few  γ of a dot product, and of three roundings
    lost       what underflows, times the largest factors
    """

    def __init__(self, step: TokenStep, how: RecurrentArithmetic, error: Array) -> None:
        of, at, self.width = step.of, step.token, len(step.before)
        self.step, self.how, self.error = step, how, error
        self.p = np.abs(of.erased[at]) + of.moved.p[at]
        self.q = np.abs(of.q[at]) + of.moved.q[at]
        self.k = np.abs(of.k[at]) + of.moved.k[at]
        self.p_norm, self.q_norm, self.k_norm = map(_norm, (self.p, self.q, self.k))
        self.theta = _gate_error_of_token(of, at, how.sums)
        self.dots, self.few = growth(self.width + 6, how.sums), growth(3, how.sums)
        self.lost = self._lost_to_underflow()

    def _lost_to_underflow(self) -> float:
        of, at = self.step.of, self.step.token
        factors = [self.p, self.q]
        if of.largest_factor > 0:
            factors += [np.full(1, of.largest_factor), self.k, np.abs(of.v[at])]
        # The state before its decay meets that decay, which may underflow, and p or q before the token's own gate.
        sizes = [np.abs(self.step.before), np.abs(self.step.previous), *factors]
        largest = max(1.0, *(float(a.max(initial=0.0)) for a in sizes))
        largest += float(self.error.max(initial=0.0))
        return 2 * float(self.how.sums.eta) * (self.width + 16) * largest * largest


def _norm(a: Array) -> float:
    return float(np.sqrt(a @ a))


def _gate_error_of_token(of: Recurrence, token: int, form: Format) -> Array:
    """Return the relative error of e^g for each feature, (1,) or (d_k,); 0 without gates."""
    u, gates = float(form.u), of.gates[token]
    # Roundings of log₂ e and of its product with g, and of g itself if it is Δ A.
    of_exponent = 2 if of.rates is None else 3
    # Item 10: gates as a program computed them.
    off = of.errors_of_gates[token]
    of_exponential = EXPONENTIAL * u + of_exponent * u * (np.abs(gates) + off)
    # A gate of 0 is no multiplication by a rounded exponential.
    return np.where((gates != 0) | (off > 0), np.expm1(of_exponential + off), 0.0)


def largest_of_token(step: TokenStep, how: RecurrentArithmetic, error: Array) -> TokenRoundings:
    """Return the largest roundings of a token; ``error`` (d_v,) bounds the norms of the state's error before it.

    p is read from the decayed state, or the decay stands in the sum, or from S_{t−1}; u is w v less that; S' the
    decayed state plus k uᵀ; the output is the sum of q and S', or of q and S_{t−1}, with a bonus for the token itself.
    """
    errors = _TokenErrors(step, how, error)
    correction = _bound_correction(errors)
    state, state_norm, reached = _bound_state_of_token(errors, correction)
    return TokenRoundings(correction, state, _bound_output_of_token(errors, reached), state_norm)


def _bound_correction(errors: _TokenErrors) -> Array:
    """Return how far w v less what p reads is off by its own roundings, and by errors of p, (d_v,)."""
    step, error = errors.step, errors.error
    # The decay's own rounding is θ; before its own gate the state that p reads has no decay.
    read_from, of_decay = np.abs(step.before), float(errors.theta.max())
    if step.of.erases_before:
        read_from, of_decay = np.abs(step.previous), 0.0
    of_read = errors.p @ read_from + errors.p_norm * error
    written = np.abs(step.of.written[step.token])
    correction = (errors.dots + of_decay) * of_read + errors.few * written + errors.lost
    p_moved = step.of.moved.p[step.token]
    return np.asarray(correction + p_moved @ read_from + _norm(p_moved) * error)


def _bound_state_of_token(errors: _TokenErrors, correction: Array) -> tuple[Array, Array, Array]:
    """Return the largest roundings of S', (d_k, d_v), norms of further ones, and norms of all its error, (d_v,)."""
    step, how, error = errors.step, errors.how, errors.error
    k_moved = step.of.moved.k[step.token]
    stored = 0.0 if how.kept is None else float(how.kept.u)
    stored += 2 * float(how.sums.u)
    u = np.abs(step.u) + errors.p_norm * error + correction
    relative = errors.few + np.broadcast_to(errors.theta, (errors.width,))[:, None]
    added = (errors.few * errors.k + k_moved)[:, None] * u
    state = relative * np.abs(step.before) + added + stored * np.abs(step.after)
    state = state + _underflow_of_stored_format(how.kept) + errors.lost
    # The error before, and what the correction's error adds to it, by norms.
    step_norm = float(step.of.step_norms[step.token])
    grown = error * step_norm + errors.k_norm * correction + _column_norms(state)
    state_norm = float(relative.max()) * error + stored * grown
    return state, state_norm, grown + state_norm


def _bound_output_of_token(errors: _TokenErrors, reached: Array) -> Array:
    """Return how far the output is off, (d_v,), from norms of the error of the state after the token."""
    step, of, at = errors.step, errors.step.of, errors.step.token
    # The state that the output reads, and how far its columns are off.
    read_from, off = np.abs(step.after), reached
    if of.reads_before:
        read_from, off = np.abs(step.previous), errors.error
    own = errors.dots * (errors.q @ read_from + errors.q_norm * off) + errors.lost
    q_moved = of.moved.q[at]
    own = own + q_moved @ read_from + _norm(q_moved) * off
    of_itself = errors.dots * of.own_products.size[at] + of.own_products.moved[at]
    return np.asarray(own + of_itself * np.abs(of.v[at]))


def squares_of_token(step: TokenStep, how: RecurrentArithmetic) -> TokenRoundings:
    """Return the squares of the largest roundings of a token, to first order."""
    of, at, u = step.of, step.token, step.u
    unit2, width = float(how.sums.u) ** 2, len(step.before)
    p, q, k, written = of.erased[at], of.q[at], of.k[at], of.written[at]
    erased_from = step.previous if of.erases_before else step.before
    state_read = step.previous if of.reads_before else step.after
    own_products = OwnProducts(*(a[at] for a in of.own_products))
    of_itself = own_products.value * of.v[at]
    read, output = p @ erased_from, q @ state_read
    # A term is rounded in its product, and in d/2 additions on average.
    of_products = (1 + width / 2) * (p**2 @ erased_from**2)
    # A value, what is read, and their difference are each rounded.
    stored2 = 3 * (written**2 + read**2 + u**2)
    correction = unit2 * (of_products + width / 3 * read**2 + stored2)
    added2 = (k[:, None] * u) ** 2
    # The old state, what is added, and the sum are rounded; storing rounds again.
    rounded2 = step.before**2 + added2 + step.after**2
    state = unit2 * rounded2 + rounding_of(step.after, how.kept) ** 2
    of_read = (1 + width / 2) * (q**2 @ state_read**2)
    of_output = rounding_of(output + of_itself, how.output) ** 2
    own = unit2 * (of_read + width / 3 * output**2) + of_output
    own = own + _squares_of_own_products(own_products, q, k, of.v[at], how)
    return TokenRoundings(correction, state, own, np.zeros_like(u))
