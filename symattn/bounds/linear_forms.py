"""How far any usual form of linear attention with gates, or of the delta rule, may be from its exact value.

The forms differ in where they associate: token by token; a triangular system solved by substitution, row by row, by
doubling, or by its inverse; LU factors with partial pivoting; chunks with a state between them; e^{G_i} on queries with
e^{−G_j} on keys, or differences of gates. Each has rounding errors of its own, so the bound of one form must not refuse
another. With A_ij = β_i Σ_f |k_if k_jf| e^{G_if − G_jf} for j < i, C_ij the same of |q| and |k| for j ≤ i,

    M = C (I − A)⁻¹ diag(β) |V|

is the sum of the absolute values of all products that the output is the sum of, in every one of these forms: each is a
sum of the same products, one for every path i ≥ j₁ > j₂ > …, and nothing but the signs cancels.

B1  Forms of sums and products. A path with l edges passes at most h roundings for each edge and for its ends: a sum
    over at most n tokens, one over d_k features, the products, and exponentials of gates. So it is computed within
    (1 + r)^(l + 2) − 1 of its value, r = g(h), and the error is at most D = M(r) − M, in which every edge of M(r) is
    multiplied by 1 + r:

        Y = (I − A)⁻¹ diag(β)|V|,   (I − (1 + r)A) X = r (diag(β)|V| + A Y),   D = (1 + r) C X + r C Y.

B2  LU factors with partial pivoting, T = I + L of entries |L| ≤ A: (T + E) y = b with |E| ≤ g(3n) |L̂||Û| (Higham,
    theorem 9.4), so that y is off by |T⁻¹| E |y|, and |T⁻¹| ≤ (I − A)⁻¹. The largest entry w of |L̂||Û|, of all tokens
    or of a chunk of a usual size, is computed in float64 and doubled, for ties between pivots and rounding. An inverse
    that meets the right sides afterwards has the same bound (§14.3), with (I − A)⁻¹ |b| in the place of |y|.

Where tokens read the state before they are added, C has j < i alone, and e^{R_if − G_jf} with R the sums of the gates
before a token; what a token reads of itself by a bonus b is one more product, |q| |b| |k| |V|, in each of these forms,
and so is |D| |X| of a skip D. A step Δ is the diag(β) of M, without edges A. What is erased along another p has A_ij =
Σ_f |p_if k_jf| e^{R_if − G_jf}, R the sums of the gates that have decayed what p reads, and what is written in the
place of β V; two steps a token are two tokens, of which the first ones may be a system by themselves (B2).

B3  Gates that a program computes from raw ones, each within δ. Every product of a path has e^{Σ ĝ} in the place of
    e^{Σ g}, each gate met once, so that it is off by at most (e^{Σ δ} − 1) of itself. With M' the M of
    the slower gates g + δ, the exact value of ĝ is off by at most M' − M; and the errors above, at ĝ, by at most those
    at g + δ, in which every entry is as large or larger, with |G| + Σ δ as the size of the sums. With A', C' and Y' of
    the slower gates, and Z = Y' − Y,

        (I − A') Z = (A' − A) Y,   M' − M = C' Z + (C' − C) Y.

    Where steps Δ are made of raw ones, Δ v is off, too, by at most δ_Δ |v|: V' = |V| + δ_Δ |v| has the place of V in
    the errors above, and C' Y'' is added, (I − A') Y'' = V' − |V|. Raw β, each within δ_β, move β v in the same way,
    and every edge of A that begins at the token by the part δ_β/β, which A' has.

    Pivots of B2 are those at g + δ, which the doubling is for, too.

Underflow adds η for each operation, carried on by the same edges. Where e^{−G_j} may overflow, forms of differences
alone are legal, and those have bounds of their own.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §3.1, §8.1, theorem 9.4, §14.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from symattn.arrays.precision import Precision
from symattn.arrays.rounding.bounds import UP, growth
from symattn.bounds.recurrent.recurrent_arithmetic import SIZES

Array = np.ndarray
_PRODUCTS = 24  # roundings of an edge that no sum makes: products, differences, features, and what is stored
_HALF_RANGE = 0.5  # part of the logarithm of the largest number that |G| may have, so that e^{−G} times a key is finite
_NORM_ROUNDINGS = 12  # of a norm: squares, ε, root, reciprocal, product, stores between them; half of them in the root
_LU_ROUNDINGS = 3  # a term of |L̂||Û| for each token: elimination, and two substitutions
_TIES = 2.0  # factor on the largest entry of |L̂||Û|, which other pivots of equal size may change


@dataclass(frozen=True)
class LinearTerms:
    """The arrays that a form reads, in float64.

    These are features q, k (…, n, f), what is written v (…, n, d_v), such as β V, what is erased p (…, n, f), such as β
    k, or None, and sums of gates G (…, n, f), (…, n, 1) or None. ``more`` is added to the features' absolute values, if
    they are sums that cancel. ``relative`` is how far a product of two of them may be off before it is rounded,
    relatively. If ``constant`` all tokens have the same gate, and e^G may be a power of e^g. ``around`` is the number
    of tokens in front, and of those behind, that stand for states, and are no part of a triangular system. If
    ``reads_before`` tokens read the state before they are added: ``reads`` are the sums of gates until then, and
    ``bonus`` (…, 1, f) that of the token itself, or None. ``skipped`` is |D x|, which is added to the output, or None;
    if others multiplied ``v`` and ``p``, as steps Δ or β, ``step`` is the product of the largest of 1 + |Δ| and of 1 +
    |x|, as each may meet what underflows; else 1. ``more_erased`` is to |p| what ``more`` is to |k|, and ``erasing``
    are the sums of gates that have decayed what p reads, by default G. A token has so many ``steps``, of which the
    first one erases.
    """

    q: Array
    k: Array
    v: Array
    p: Array | None
    sums: Array | None
    more: float = 0.0
    relative: float = 0.0
    constant: bool = False
    around: int = 0
    reads: Array | None = None
    reads_before: bool = False
    bonus: Array | None = None
    skipped: Array | None = None
    step: float = 1.0
    more_erased: Array | float = 0.0
    erasing: Array | None = None
    steps: int = 1

    @property
    def system(self) -> Array:
        """L of the delta rule's tokens, L_ij = Σ_f p_if k_jf e^{G_if − G_jf} for j < i."""
        assert self.p is not None
        below = _gated_scores_of_pairs(self.p, self.k, self.sums, -1, self.erasing)
        own = slice(self.around, below.shape[-1] - self.around)
        return np.asarray(below[..., own, own])


def error_of_norms(width: int, least: float, precision: Precision) -> float:
    """Return the relative error of a product of entries of x / √(Σ x² + ε) and y / √(Σ y² + ε), of d numbers each.

    ``least`` is the smallest Σ x² + ε: squares that underflow are off by η each. ∞ if it may be computed as 0.
    """
    squares = float(growth(precision.roughest, width + _NORM_ROUNDINGS))
    lost = (width + 1) * float(precision.roughest.eta) / least if least > 0 else np.inf
    if lost >= 1:
        return np.inf
    # The root halves both errors, and a product has the norms of two vectors.
    return (1 + squares) * (1 + squares) / (1 - lost) - 1


def allowed_of_moved_gates(
    terms: LinearTerms, slower: LinearTerms, precision: Precision
) -> Array | None:
    """Return the largest error of all forms as ``allowed``, where gates, and values, may be off; ``slower`` has these
    with the largest errors of gates, and of the sizes of values, added (B3)."""
    assert terms.sums is not None
    assert slower.sums is not None
    most = float((slower.sums - terms.sums).max(initial=0.0))
    # The sums of slower gates may be nearer to 0 than any that a program adds.
    result = allowed(slower, precision, spread=float(np.abs(terms.sums).max(initial=0.0)) + most)
    return None if result is None else (result + _moved_by_gates(terms, slower)) * UP


def _moved_by_gates(terms: LinearTerms, slower: LinearTerms) -> Array:
    """Return M' − M of B3, as sums of terms that are not negative."""
    (ends, edges), (more_ends, more_edges) = (
        _bound_ends_and_edges(terms),
        _bound_ends_and_edges(slower),
    )
    # Differences cancel: what both were rounded by in float64 is added.
    assert terms.sums is not None
    n, width = terms.q.shape[-2:]
    own = 2.0**-51 * (width + 8 + n * float(np.abs(terms.sums).max(initial=0.0)))
    of_ends = np.maximum(more_ends - ends, 0) + own * more_ends
    of_edges = np.maximum(more_edges - edges, 0) + own * more_edges
    values = _solve_unit_triangular(edges, np.abs(terms.v))
    moved = _solve_unit_triangular(more_edges, of_edges @ values)
    more_values = _solve_unit_triangular(more_edges, np.abs(slower.v) - np.abs(terms.v))
    return np.asarray(more_ends @ (moved + more_values) + of_ends @ values)


def _bound_ends_and_edges(terms: LinearTerms) -> tuple[Array, Array]:
    """Return C and A, with the bonus of a token for itself. Shapes: (…, n, n)."""
    n = terms.q.shape[-2]
    q = np.abs(terms.q) + terms.more
    k = np.abs(terms.k) + terms.more
    ends = _gated_scores_of_pairs(q, k, terms.sums, -1 if terms.reads_before else 0, terms.reads)
    if terms.bonus is not None:
        of_itself = (q * np.abs(terms.bonus) * k).sum(axis=-1)
        ends = ends + of_itself[..., None] * np.eye(n)
    edges = np.zeros((*k.shape[:-1], n))
    if terms.p is not None:
        p = np.abs(terms.p) + terms.more_erased
        edges = _gated_scores_of_pairs(p, k, terms.sums, -1, terms.erasing)
    return ends, edges


def allowed(terms: LinearTerms, precision: Precision, spread: float | None = None) -> Array | None:
    """Return the largest error of all forms, (…, n, d_v); None if e^G on queries and e^−G on keys may overflow.

    ``spread`` is the largest |G| that a program may meet, by default that of the sums.
    """
    n, width = terms.q.shape[-2:]
    rate, gates = float(precision.roughest.u), 0.0
    if terms.sums is not None:
        if spread is None:
            spread = float(np.abs(terms.sums).max(initial=0.0))
        # e^{−G} on keys overflows here, where forms of differences alone are legal.
        if spread > _HALF_RANGE * np.log(float(precision.score.largest)):
            return None
        # e^{G + δ} with |δ| ≤ n u |G|, once for the later and once for the earlier token
        of_gates = float(np.expm1((n + 2) * rate * spread))
        gates = 2 * of_gates + 8 * precision.exp_ulps * rate
        if terms.constant:
            # The rounded e^g to the powers n and −n, by products or by pow.
            gates += 2 * float(np.expm1(n * (2 * precision.exp_ulps + 1) * rate))
    steps = n + width + _PRODUCTS
    # r of B1: sums over tokens and features, products, and gates on both ends.
    r = (1 + float(growth(precision.roughest, steps)) + gates) * (1 + terms.relative) - 1

    q = np.abs(terms.q) + terms.more
    k = np.abs(terms.k) + terms.more
    right = np.abs(terms.v)
    ends, edges = _bound_ends_and_edges(terms)
    factors = [q, k, right, edges, *([] if terms.bonus is None else [np.abs(terms.bonus)])]
    factors += [] if terms.skipped is None else [terms.skipped]
    largest = [terms.step, *(1 + float(a.max(initial=0.0)) for a in factors)]
    # Every operation may lose η, times the largest factors.
    product_of_largest = float(np.prod(largest))
    eta = float(precision.score.eta)
    if terms.relative or terms.p is not None:
        # Vectors that a norm or a factor β made may be stored in the roughest format.
        eta = max(eta, float(precision.roughest.eta))
    lost = eta * steps * product_of_largest

    with np.errstate(over="ignore", invalid="ignore"):
        values = _solve_unit_triangular(edges, right)
        # X of B1: the difference of both solutions, without cancellation.
        own_errors = r * (right + edges @ values) + lost
        moved = _solve_unit_triangular(edges * (1 + r), own_errors)
        if terms.p is not None:
            moved = moved + _by_factors(terms, edges, values, precision)
        from_solution = (1 + r) * (ends @ moved)
        error = from_solution + r * (ends @ values) + lost
        if terms.skipped is not None:
            error = error + r * terms.skipped
    # ∞ − ∞ and 0 · ∞ are no bound.
    return np.where(np.isnan(error), np.inf, error * UP)


def _gated_scores_of_pairs(
    q: Array, k: Array, sums: Array | None, diagonal: int, reads: Array | None = None
) -> Array:
    """Σ_f q_if k_jf e^{R_if − G_jf} for j up to a diagonal, 0 elsewhere. Shape: (…, n, n).

    ``sums`` is G, and ``reads`` R, by default G.
    """
    rows = sums if reads is None else reads
    if sums is None:
        return np.tril(q @ k.swapaxes(-1, -2), diagonal)
    assert rows is not None
    visible = np.tri(q.shape[-2], k=diagonal, dtype=bool)
    if sums.shape[-1] == 1:
        # −∞ above the diagonal, where the difference of gates could overflow.
        between_tokens = rows - sums.swapaxes(-1, -2)
        decays = np.exp(np.where(visible, between_tokens, -np.inf))
        return np.tril(q @ k.swapaxes(-1, -2) * decays, diagonal)
    differences = rows[..., :, None, :] - sums[..., None, :, :]
    between = np.where(visible[:, :, None], differences, -np.inf)
    pairs = q[..., :, None, :] * k[..., None, :, :]
    products = pairs * np.exp(between)
    return np.tril(products.sum(axis=-1), diagonal)


def _solve_unit_triangular(edges: Array, right: Array) -> Array:
    """(I − A)⁻¹ B by substitution, for A ≥ 0 strictly below the diagonal: sums of terms that are not negative."""
    result = np.array(right, dtype=np.float64)
    for i in range(1, result.shape[-2]):
        before = result[..., :i, :]
        edges_of_row = edges[..., i : i + 1, :i]
        row = edges_of_row @ before
        result[..., i, :] += row[..., 0, :]
    return result


def _by_factors(terms: LinearTerms, edges: Array, values: Array, precision: Precision) -> Array:
    """(I − A)⁻¹ E Y, |E| ≤ g(3n) w: how far LU factors with partial pivoting may move the corrections of all tokens."""
    n = edges.shape[-1]
    reach = _solve_unit_triangular(edges, np.ones((*edges.shape[:-1], 1)))
    # Every correction may move by the same bound: the sum over all tokens.
    every = values.sum(axis=-2, keepdims=True)
    # Of all steps and of the first ones pivots may differ.
    below, first = terms.system, slice(None, None, terms.steps)
    systems = [below, below[..., first, first]] if terms.steps > 1 else [below]
    largest = np.maximum.reduce([_largest_product_of_chunks(x) for x in systems])
    size = _TIES * largest[..., None, None]
    relative = growth(precision.roughest, _LU_ROUNDINGS * n)
    return np.asarray(relative * size * reach * every)


def _largest_product_of_chunks(below: Array) -> Array:
    """The largest entry for all tokens and for chunks of usual sizes, whose factors are not parts of those of all."""
    n = below.shape[-1]
    chunks = [slice(lo, lo + size) for size in SIZES if size < n for lo in range(0, n, size)]
    every = [_largest_product(below[..., a, a]) for a in (slice(0, n), *chunks)]
    return np.asarray(np.maximum.reduce(every))


def _largest_product(below: Array) -> Array:
    """The largest entry of |L̂||Û| of I + L with rows exchanged, for each matrix L of a batch. Shape: (…,)."""
    n = below.shape[-1]
    result = np.ones(below.shape[:-2])
    for at in np.ndindex(*below.shape[:-2]):
        upper = np.eye(n) + below[at]
        lower = np.eye(n)
        for i in range(n - 1):
            # Partial pivoting, as LAPACK has it.
            column = np.abs(upper[i:, i])
            pivot = i + int(column.argmax())
            upper[[i, pivot]] = upper[[pivot, i]]
            lower[[i, pivot], :i] = lower[[pivot, i], :i]
            factors = upper[i + 1 :, i] / upper[i, i]
            lower[i + 1 :, i] = factors
            eliminated = np.outer(factors, upper[i, i:])
            upper[i + 1 :, i:] -= eliminated
        product = np.abs(lower) @ np.abs(np.triu(upper))
        result[at] = product.max()
    return result
