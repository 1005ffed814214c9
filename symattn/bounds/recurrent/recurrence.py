"""The gated linear recurrence of one head, exactly up to float64, in chunks of tokens.

    S_t = diag(a_t) S_{t−1} + k_t u_tᵀ,   u_t = w_t v_t − p_tᵀ diag(a_t) S_{t−1},   o_t = q_tᵀ S_t,   a_t = e^{g_t}

Linear attention has p = 0 and w = 1, or a step w = Δ; the delta rule has p = β k and w = β, and other rules erase along
a p of their own. In a chunk, with G the sums of its gates,

    b = w V − (p e^G) S,   (I + L) u = b,   o = (q e^R) S + N u,   S' = e^{G_n} S + K̄ᵀ u,   K̄ = k e^{G_n − G},

L_ij = Σ_f p_if k_jf e^{G_if − G_jf} for j < i, N_ij = Σ_f q_if k_jf e^{R_if − G_jf} for j ≤ i, and R is G. T is
(I + L)⁻¹. If a token reads the state before it is added, o_t = q_tᵀ S_{t−1}, R is G − g and N has j < i alone. A bonus
b for that token adds c_t v_t to o_t, c_t = Σ_f q_tf b_f k_tf, and a skip D adds D v_t. If a token erases before its own
gate decays the state, u_t = w_t v_t − p_tᵀ S_{t−1}, and e^{G − g} is in the place of e^G with p.

A rule with a key e_t of its own for what is erased, S_t = diag(a_t) S_{t−1} − e_t (p_tᵀ S) + k_t v_tᵀ, takes two steps
a token (``in_steps``): the first has the gate, erases along p and writes nothing, with the key e; the second, without a
gate, writes v with the key k.

*How long a step makes vectors.* M = I − k pᵀ is I on all vectors that k and p are orthogonal to. Its other two singular
values have the product |det M| = |1 − p·k|, and their squares the sum ‖M‖² − (d − 2) = 2 − 2 p·k + |k|²|p|², by the sum
of the squares of all entries. So (σ₁ − σ₂)² and (σ₁ + σ₂)² are |k|²|p|² and |k|²|p|² + 4 (1 − p·k), in either order,
and

    ‖I − k pᵀ‖ = σ₁ = (|k||p| + √(|k|²|p|² + 4 (1 − p·k))) / 2.

For p = β k this is the larger of 1 and |1 − β|k|²|; for any p that is no multiple of k it exceeds 1. With a decay,
diag(a) − k pᵀ is √a (I − (k/√a)(p/√a)ᵀ) √a, and (I − k (p/a)ᵀ) diag(a): for one gate a token the first is exact.

Sources: Yang, Wang, Zhang, Shen, Kim, Parallelizing Linear Transformers with the Delta Rule over Sequence Length
(2024), §3; Yang, Kautz, Hatamizadeh, Gated Delta Networks (2024), §3.3; for the bonus, Peng et al., Eagle and Finch
(2024), the time mixing of Finch; for erasure along another vector, Hu et al., Comba (2025), Hatamizadeh, Choi, Kautz,
Gated DeltaNet-2 (2026), equation 10; with a key of its own, Peng et al., RWKV-7 Goose (2025).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

Array = np.ndarray
#: Largest |G| for which e^{G_i − G_j} is computed as a product of two exponentials in float64.
MAX_FACTORED_EXPONENT = 600.0


@dataclass(frozen=True)
class Moved:
    """Bounds of how far q, k and p of tokens may be from what a program reads, each (n, d_k)."""

    q: Array
    k: Array
    p: Array

    @cached_property
    def is_nothing(self) -> bool:
        """Return whether a program reads q, k and p as they are."""
        return not (self.q.any() or self.k.any() or self.p.any())


class OwnProducts(NamedTuple):
    """The parts that tokens add to their own outputs through a bonus and a skip, each (n, 1).

    These are the ``value`` c = Σ q b k + D, its ``size`` Σ |q̂| |b| |k̂| + |D| as a program reads q and k, how far c
    ``moved`` by that, ``squares`` Σ (q b k)² + D², and ``beside``, the larger of Σ |q̂| and Σ |k̂|, which b k and q b
    meet; 0 without a bonus.
    """

    value: Array
    size: Array
    moved: Array
    squares: Array
    beside: Array


@dataclass(frozen=True)
class Recurrence:
    """The inputs of one head in float64.

    q (n, d_k) already scaled, k (n, d_k), v (n, d_v), gates g (n, 1) or (n, d_k) as logarithms, None for no gates,
    beta (n, 1), None for no delta rule, and the state before the first token (d_k, d_v). ``query_errors`` and
    ``key_errors`` (n, d_k) bound how far the q and k that a program reads are from these, None if it reads these, and
    ``gate_errors``, of the shape of g, how far its gates are.
    If ``constant`` all tokens have the same gate, and a program may raise the rounded e^g to powers.
    If ``reads_before`` a token reads the state before it is added, with a ``bonus`` (d_k,) for itself unless that is
    None. ``rates`` (n, 1) are the steps Δ that multiply v where it is written, which g has been multiplied by, and
    ``skip`` is the D of D v.

    ``p`` (n, d_k) is what is erased where it is not β k, and ``w_v`` (n, d_v) what is written where it is not β v;
    ``p_errors`` (n, d_k) bound how far the p that a program reads is from this one. If ``erases_before`` a token
    erases before its own gate decays the state. ``erased_keys`` (n, d_k) are the keys along which what p reads is
    subtracted, None if these are k. Of ``in_steps`` the rows are two steps a token, and ``is_paired`` says so.
    """

    q: Array
    k: Array
    v: Array
    g: Array | None
    beta: Array | None
    state: Array
    query_errors: Array | None = None
    key_errors: Array | None = None
    gate_errors: Array | None = None
    constant: bool = False
    reads_before: bool = False
    bonus: Array | None = None
    rates: Array | None = None
    skip: float = 0.0
    p: Array | None = None
    w_v: Array | None = None
    p_errors: Array | None = None
    erases_before: bool = False
    erased_keys: Array | None = None
    is_paired: bool = False

    @property
    def erases(self) -> bool:
        """Return whether tokens correct what earlier ones wrote."""
        return self.beta is not None or self.p is not None

    @property
    def steps_a_token(self) -> int:
        """Return 2 for keys of their own for what is erased, else 1."""
        return 1 if self.erased_keys is None else 2

    @property
    def read_steps(self) -> slice:
        """Return which rows of ``in_steps`` are the outputs of tokens."""
        # The state before a token is the one that its first step reads.
        first = 0 if self.reads_before else self.steps_a_token - 1
        return slice(first, None, self.steps_a_token)

    @cached_property
    def in_steps(self) -> Recurrence:
        """Return a recurrence with the same states and one key a step; itself if what is erased has the keys k."""
        if self.erased_keys is None:
            return self
        nothing = np.zeros_like(self.k)

        def pairs(first: Array, second: Array) -> Array:
            # The rows of both steps of a token stand next to each other.
            return np.stack([first, second], axis=1).reshape(2 * len(first), -1)

        def twice(a: Array | None) -> Array | None:
            return None if a is None else pairs(a, a)

        key_errors, gate_errors = self.key_errors, self.gate_errors
        return replace(
            self,
            gate_errors=None if gate_errors is None else pairs(gate_errors, 0 * gate_errors),
            q=pairs(self.q, self.q),
            k=pairs(self.erased_keys, self.k),
            v=pairs(self.v, self.v),
            g=None if self.g is None else pairs(self.g, np.zeros_like(self.g)),
            p=pairs(self.erased, nothing),
            w_v=pairs(np.zeros_like(self.v), self.written),
            query_errors=twice(self.query_errors),
            key_errors=None if key_errors is None else pairs(nothing, key_errors),
            p_errors=None if self.p_errors is None else pairs(self.p_errors, nothing),
            erased_keys=None,
            is_paired=True,
        )

    @cached_property
    def own_products(self) -> OwnProducts:
        """c of the bonus and the skip; zeros without these."""
        of_skip = np.full((len(self.q), 1), self.skip)
        if self.bonus is None:
            none = 0 * of_skip
            return OwnProducts(of_skip, np.abs(of_skip), none, of_skip**2, none)
        terms = self.q * self.bonus * self.k
        queries = np.abs(self.q) + self.moved.q
        keys = np.abs(self.k) + self.moved.k
        # Where nothing bounds the error of a norm, 0 · ∞ is NaN, which ``limits`` reads as unknown.
        with np.errstate(invalid="ignore"):
            read = queries * np.abs(self.bonus) * keys
        sums = (terms, read, read - np.abs(terms), terms**2)
        value, size, moved, squares = (a.sum(axis=1, keepdims=True) for a in sums)
        beside = np.maximum(*(a.sum(axis=1, keepdims=True) for a in (queries, keys)))
        with_skip = (value + of_skip, size + np.abs(of_skip), moved, squares + of_skip**2)
        return OwnProducts(*with_skip, beside)

    @cached_property
    def moved(self) -> Moved:
        """How far q, k and p may be from what a program reads."""
        q, k = (
            np.zeros_like(self.k) if a is None else a for a in (self.query_errors, self.key_errors)
        )
        if self.p_errors is not None:
            return Moved(q, k, self.p_errors)
        # A p of its own is read as it is; β k is off as k is.
        is_moved = self.beta is not None and self.p is None
        return Moved(q, k, np.abs(self.beta) * k if is_moved else np.zeros_like(k))  # type: ignore[arg-type]

    @cached_property
    def gates(self) -> Array:
        """The logarithms of the decays, zeros (n, 1) without gates."""
        return np.zeros((len(self.q), 1)) if self.g is None else self.g

    @cached_property
    def errors_of_gates(self) -> Array:
        """δ of each gate, zeros (n, 1) if a program reads g."""
        return np.zeros((len(self.q), 1)) if self.gate_errors is None else self.gate_errors

    @cached_property
    def erased(self) -> Array:
        """p, zeros where nothing is erased."""
        if self.p is not None:
            return self.p
        return np.zeros_like(self.k) if self.beta is None else self.beta * self.k

    @cached_property
    def written(self) -> Array:
        """w v."""
        if self.w_v is not None:
            return self.w_v
        rates = self.rates if self.beta is None else self.beta
        return self.v if rates is None else rates * self.v

    @cached_property
    def largest_factor(self) -> float:
        """The largest entry of the bonus, the steps and the skip, which are factors of products beside q, k and v."""
        factors = [np.zeros(1) if a is None else np.abs(a) for a in (self.bonus, self.rates)]
        return max(abs(self.skip), *(float(a.max(initial=0.0)) for a in factors))

    @cached_property
    def lengthening(self) -> Array:
        """A bound on ‖I − k_t p_tᵀ‖ for each token, (n,): the larger of 1 and |1 − β|k|²| for p = β k."""
        if self.p is not None:
            return norm_of_erasure(self.k, self.p)
        # I − k pᵀ with p = β k has the eigenvalues 1 and 1 − β|k|² alone.
        along = (self.k * self.erased).sum(axis=1)
        # Enlarged for the roundings of this product in float64.
        lengthened = np.maximum(1.0, np.abs(1.0 - along))
        return np.asarray(lengthened * (1 + 2.0**-48))

    @cached_property
    def step_norms(self) -> Array:
        """A bound on the norm of what each token multiplies the state by, (n,): its decay, and what it erases."""
        most = np.exp(self.gates.max(axis=1))
        if not self.erases_before:
            return np.asarray(self.lengthening * most)
        p, decays = self.erased, np.exp(self.gates)
        sizes = _lengths(self.k) * _lengths(p)
        bounds = [(most + sizes) * (1 + 2.0**-48)]
        # Decays that underflow leave the first bound, by the sum of both norms.
        with np.errstate(all="ignore"):
            roots = np.sqrt(decays)
            bounds.append(most * norm_of_erasure(self.k / roots, p / roots))
            bounds.append(most * norm_of_erasure(self.k, p / decays))
        known = np.where(np.isnan(bounds), np.inf, bounds)
        return np.asarray(known.min(axis=0))


def _lengths(a: Array) -> Array:
    return np.asarray(np.sqrt((a * a).sum(axis=1)))


def norm_of_erasure(k: Array, p: Array) -> Array:
    """(|k||p| + √(|k|²|p|² + 4 (1 − p·k))) / 2 for each row, ‖I − k pᵀ‖ (see above), rounded up. (n,)."""
    sizes = _lengths(k) * _lengths(p)
    below = sizes * sizes + 4 * (1 - (k * p).sum(axis=1))
    # The root enlarges an error of what may cancel, so that is added before.
    rounded = (k.shape[1] + 8) * 2.0**-52 * (sizes + 2) ** 2
    root = np.sqrt(np.maximum(below, 0) + rounded)
    return np.asarray((sizes + root) / 2 * (1 + 2.0**-46))


@dataclass(frozen=True)
class Chunk:
    """The tokens lo to hi − 1, with all arrays of the module's formulas.

    ``sums`` is G, ``right`` w V, ``read`` p e^G, ``lower`` L, ``inverse`` T, ``inner`` N, ``factor`` T (p e^G),
    ``state`` the state before the chunk, and ``end`` the one after it. ``gates_moved`` is Σ δ over the chunk, (1, 1) or
    (1, d_k). ``moved``, ``constant``, ``reads_before``,
    ``own_products``, ``largest_factor``, ``values`` v, ``has_rates`` (whether steps multiply them), ``erases_before``
    and ``is_paired`` are those of the recurrence.
    """

    lo: int
    hi: int
    sums: Array
    q: Array
    k: Array
    p: Array
    right: Array
    read: Array
    lower: Array
    inverse: Array
    inner: Array
    factor: Array
    u: Array
    state: Array
    end: Array
    moved: Moved
    gates_moved: Array
    constant: bool
    reads_before: bool
    own_products: OwnProducts
    values: Array
    largest_factor: float
    has_rates: bool
    erases_before: bool
    is_paired: bool

    @cached_property
    def reads(self) -> Array:
        """R: the sums of the gates that have decayed the state as a token reads it, (n, 1) or (n, d_k)."""
        return self.sums - self.gate_steps if self.reads_before else self.sums

    @cached_property
    def erasing_sums(self) -> Array:
        """The sums of the gates that have decayed the state as a token erases, (n, 1) or (n, d_k)."""
        return self.sums - self.gate_steps if self.erases_before else self.sums

    @cached_property
    def last(self) -> Array:
        """e^{G_n} as a column, (d_k, 1) or (1, 1)."""
        return np.asarray(np.exp(self.sums[-1])[:, None])

    @cached_property
    def decayed_keys(self) -> Array:
        """K̄, (n, d_k)."""
        decays = np.exp(self.sums[-1] - self.sums)
        return np.asarray(self.k * decays)

    @cached_property
    def decayed_queries(self) -> Array:
        """q e^R, (n, d_k)."""
        return np.asarray(self.q * np.exp(self.reads))

    @cached_property
    def step(self) -> Array:
        """The matrix of the state before in the state after, e^{G_n} − K̄ᵀ T (p e^G), (d_k, d_k)."""
        whole = self.last * np.eye(self.k.shape[1])
        return np.asarray(whole - self.decayed_keys.T @ self.factor)

    @cached_property
    def output(self) -> Array:
        """o, (n, d_v)."""
        of_itself = self.own_products.value * self.values
        return np.asarray(self.decayed_queries @ self.state + self.inner @ self.u + of_itself)

    @cached_property
    def gate_steps(self) -> Array:
        """g of the chunk's tokens."""
        return np.diff(self.sums, axis=0, prepend=0 * self.sums[:1])

    @cached_property
    def states_before(self) -> Array:
        """diag(a_l) S_{l−1} for each token, (n, d_k, d_v)."""
        decays, state = np.exp(self.gate_steps), self.state
        result = np.empty((len(self.u), *state.shape))
        for token in range(len(self.u)):
            result[token] = decays[token][:, None] * state
            added = self.k[token][:, None] * self.u[token]
            state = result[token] + added
        return result

    @cached_property
    def previous_states(self) -> Array:
        """S_{l−1} for each token, (n, d_k, d_v)."""
        after = self.states_before + self.k[:, :, None] * self.u[:, None]
        return np.concatenate([self.state[None], after[:-1]])


def decayed_products(
    x: Array, y: Array, sums: Array, strict: bool = False, reads: Array | None = None
) -> Array:
    """Σ_f x_if y_jf e^{R_if − G_jf} for j ≤ i, or j < i if ``strict``; 0 elsewhere. (n, n).

    ``sums`` is G, and ``reads`` R, by default G.
    """
    below = -1 if strict else 0
    rows = sums if reads is None else reads
    # One gate a token: e^{R_i − G_j} is a matrix by itself.
    if sums.shape[1] == 1:
        # Where gates are decays, exponents above 0 are of pairs that tril() removes.
        decays = np.exp(np.minimum(rows - sums.T, 0))
        return np.tril(x @ y.T * decays, below)
    if np.abs(sums).max(initial=0.0) < MAX_FACTORED_EXPONENT:
        # The middle of G halves both exponents.
        middle = sums[-1:] / 2
        left = x * np.exp(rows - middle)
        right = y * np.exp(middle - sums)
        return np.tril(left @ right.T, below)
    # Beyond, two exponentials would overflow: one for each triple of query, key and feature.
    between = np.minimum(rows[:, None] - sums[None], 0)
    return np.tril(np.einsum("if,jf,ijf->ij", x, y, np.exp(between)), below)


def unit_lower_inverse(lower: Array) -> Array:
    """(I + L)⁻¹ for L below the diagonal, by substitution."""
    result = np.eye(len(lower))
    for row in range(1, len(lower)):
        result[row] -= lower[row, :row] @ result[:row]
    return result


def chunks_of(of: Recurrence, size: int) -> Iterator[Chunk]:
    """Yield the chunks of ``size`` tokens, the last one perhaps shorter."""
    count, state = len(of.q), of.state
    for lo, hi in pairwise([*range(0, count, size), count]):
        some = slice(lo, hi)
        q = of.q[some]
        k = of.k[some]
        p = of.erased[some]
        right = of.written[some]
        sums = np.cumsum(of.gates[some], axis=0)
        earlier = sums - of.gates[some]
        reads = earlier if of.reads_before else sums
        erasing = earlier if of.erases_before else sums
        inner = decayed_products(q, k, sums, strict=of.reads_before, reads=reads)
        read = p * np.exp(erasing)
        # Without an erasure no token corrects another.
        if of.erases:
            lower = decayed_products(p, k, sums, strict=True, reads=erasing)
            inverse = unit_lower_inverse(lower)
        else:
            lower = np.zeros_like(inner)
            inverse = np.eye(hi - lo)
        u = inverse @ (right - read @ state)
        decay = np.exp(sums[-1])[:, None]
        added = (k * np.exp(sums[-1] - sums)).T @ u
        end = decay * state + added
        factor = inverse @ read
        moved = Moved(of.moved.q[some], of.moved.k[some], of.moved.p[some])
        arrays = (sums, q, k, p, right, read, lower, inverse, inner, factor, u, state, end)
        own = OwnProducts(*(a[some] for a in of.own_products))
        of_reading = (of.reads_before, own, of.v[some], of.largest_factor, of.rates is not None)
        of_erasing = (of.erases_before, of.is_paired)
        gates_moved = of.errors_of_gates[some].sum(axis=0, keepdims=True)
        yield Chunk(lo, hi, *arrays, moved, gates_moved, of.constant, *of_reading, *of_erasing)
        state = end
