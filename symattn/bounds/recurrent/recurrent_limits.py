"""The law: how far any computation of a gated linear recurrence may be from the exact one.

Statement. Under R1 to R3, each output and each entry of the final state is off by at most ``worst``; under R4 as well,
each is off by at most ``sharp``, all at once, but for a probability of α.

R1  The order is that of a ``RecurrentArithmetic``: token by token, or in chunks of its size from the first token on,
    the system solved in its way; products summed in any order, scaled before or after; gates summed in any order, and
    e^{G_i − G_j} as one exponential or as two about any row; where all tokens have one gate, also as a power of e^g.
R2  Operations of its formats are rounded to within u, or η: half the least number, or all of what a format whose
    numbers below the normal ones may be flushed to zero flushes; exponentials to within three units in the last place.
R3  Nothing overflows, and no stored factor p e^{G − m} or k e^{m − G} underflows. (Two exponentials about a row do if
    |G| is large; then ``limits`` is not about them.)
    Queries and keys that a norm made are within the ``query_errors`` and ``key_errors`` of the exact ones.
R4  Sums are taken in float32 or wider; roundings to nearest have mean 0 given those before them.

Proof. *Every rounding enters one right side.* In a chunk (``recurrence``), each rounding adds to b, u, o, S', or to the
copy of S that is read; an error of an entry of L counts as one of b, times the u as computed. So the computed (S, u, o)
solve the equations of the exact ones with additions on the right, and since these equations are affine, the error is
exactly the sum of all additions, each times its derivative ∂y/∂(place): a number of the inputs alone. With P the
coefficients of the state after a chunk, for any rows y of later outputs,

    C_u = P K̄ᵀ (inside the chunk: N),   C_b = C_u T,   C_copy = −C_b (p e^G) (inside: + q e^G),   C_state = P,

and P before the chunk is P e^{G_n} + C_copy. Rows of the final state start with P = I after the last chunk. A token is
a chunk of one; its output reads the state after it, so the own row starts with P = q. Where tokens read the state
before they are added, q e^R is in the place of q e^G, and the own row starts with P = q before its token; the gate of
the token itself reaches it through the rounding of R = G − g alone; likewise with p where tokens erase before their
gates. Two steps a token are as two tokens, with outputs of one of them. c v of a bonus is a sum of inputs, whose
roundings are the output's own.

*Worst.* Σ |C| h with the largest roundings (``sources``). These are parts of what was computed, |Ŝ| ≤ |S| + |Ŝ − S|: a
forward pass bounds the norm e of each column of the state's error, e' = ‖step‖ e + ‖what the chunk adds‖; rows and
norms meet by |P x| ≤ ‖P‖ ‖x‖. Growth of |I − β k kᵀ| by entries is never taken: its powers grow like 2ⁿ, while its norm
is 1 for β k·k ≤ 2. For another p the norm of a step exceeds 1, and so may that of many: then it is the norm of the
product over a chunk that counts, token by token too, and where that exceeds 1 over many chunks, the worst case grows
with the length, to ∞ at last, where it says nothing.

*Sharp.* The additions times their coefficients are a martingale (R4): the coefficients do not depend on roundings. By
Azuma and Hoeffding |y − ŷ| ≤ λ √(Σ C² h²) but for 2 e^{−λ²/2}; for K entries λ = √(2 ln(2K/α)). An error of a gate's
logarithm is one relative error of the whole state before it: with one gate a token, its coefficient is the sum over the
features of coefficient times state; with one for each feature, each has its own. Two hundredths are added for the
second order: roundings are relative to computed arrays. Left out: what the tokens behind a gate erase of its error
within its chunk, if gates are those of features. Where equal numbers are rounded alike, R4 is false: ``replays`` has
the guard. ∎

The exact value is computed in float64 in chunks. Its own error obeys the same law with u = 2⁻⁵³; as the worst case is
convex in u and 0 at u = 0, that is at most 2⁻²⁹ of the worst case in float32, and 2⁻²⁸ of it is added. In float64
arithmetic it is as much as the limit, which is doubled.

Sources: K. Azuma, Weighted sums of certain dependent random variables, Tôhoku Math. J. 19 (1967); W. Hoeffding,
Probability inequalities for sums of bounded random variables, J. Amer. Statist. Assoc. 58 (1963); N. J. Higham and
T. Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41 (2019), for the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np

from symattn.bounds.recurrent import sources
from symattn.bounds.recurrent.recurrence import Chunk, Recurrence, chunks_of
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic, rounding_of

Array = np.ndarray
#: Factor on the sharp limit for errors of second order.
SECOND_ORDER = 1.02
#: Sharp limits are given for sums at least as fine as those of float32.
WIDEST_SUMS = 2.0**-24
# The unit roundoff of the float64 reference.
FLOAT64 = 2.0**-53
#: Largest |G| in a chunk for which two exponentials about its first row do not overflow in float32.
MAX_SPLIT_EXPONENT = 80.0
#: Tokens for which exact arrays are held at once when tokens go one by one.
TOKENS_AT_ONCE = 64
#: Largest d_k whose step has its norm computed; beyond, it is bounded by sums of its entries.
MAX_WIDTH_OF_NORM = 160


@dataclass(frozen=True)
class Limits:
    """Largest errors of the outputs at ``rows`` (len, d_v) and of the final state (d_k, d_v); ∞ where nothing is said.

    ``sharp`` ones are None if sums are in a narrow format, or if a program reads other q and k than the exact ones, or
    if all tokens have the same gate, or gates are computed from raw ones.
    """

    rows: tuple[int, ...]
    worst: Array
    worst_state: Array
    sharp: Array | None
    sharp_state: Array | None


@dataclass(frozen=True)
class ExactRecurrence:
    """The outputs (n, d_v) and the final state (d_k, d_v) in float64."""

    output: Array
    state: Array


def exact_values(of: Recurrence, size: int = TOKENS_AT_ONCE) -> ExactRecurrence:
    """Compute the recurrence in float64."""
    every = list(chunks_of(of.in_steps, size * of.steps_a_token))
    outputs = [x.output for x in every]
    return ExactRecurrence(np.concatenate(outputs)[of.read_steps], every[-1].end)


def multiplier(entries: int, alpha: float) -> float:
    """Return λ = √(2 ln(2K/α)) for K entries."""
    return sqrt(2 * log(2 * entries / alpha))


def limits(
    of: Recurrence,
    how: RecurrentArithmetic,
    rows: Sequence[int] | None = None,
    alpha: float = 1e-9,
    heads: int = 1,
    with_state: bool = True,
    with_sharp: bool = True,
) -> Limits:
    """Return the limits of one head; ``alpha`` is for all entries of all ``heads``, whatever the rows.

    Without the state its limits are ∞; without sharp limits these are None.
    """
    # Sorted and unique, as rows are matched to chunks by binary search.
    chosen = np.arange(len(of.q)) if rows is None else np.unique(np.asarray(rows, dtype=int))
    with np.errstate(all="ignore"):  # what overflows becomes ∞ or NaN, and counts as ∞
        # What a norm moves is no rounding by itself, but the same in every product of a token. Where all tokens have
        # one gate, its exponential is rounded alike in all of them (R4), and so is the rate of raw gates.
        of_roundings = of.moved.is_nothing and not of.constant and of.gate_errors is None
        is_sharp = with_sharp and float(how.sums.u) <= WIDEST_SUMS and of_roundings
        steps = of.in_steps
        how_in_steps = replace(how, size=how.size * of.steps_a_token)
        # The rows of the outputs among those of the steps.
        read = np.arange(len(steps.q))[of.read_steps][chosen]
        sweep = _Sweep(steps, read, with_state, sharp=is_sharp)
        if how.order == "tokens":
            _by_tokens(steps, how_in_steps, sweep)
        else:
            _by_chunks(steps, how_in_steps, sweep)
        # All entries count, whatever the rows, so that limits do not depend on the sample.
        rows_of_arrays = len(of.q) + of.k.shape[1]
        entries = heads * rows_of_arrays * of.v.shape[1]
        return sweep.limits(how, chosen, multiplier(entries, alpha))


class _Sweep:
    """The coefficients P of the rows, (rows, d_k), and of the state, (d_k, d_k), and what has been summed up so far.

    ``silent`` says that a number may overflow.
    """

    def __init__(self, of: Recurrence, rows: Array, with_state: bool, sharp: bool) -> None:
        width, columns = of.k.shape[1], of.v.shape[1]
        self.of, self.is_sharp, self.silent = of, sharp, False
        of_state = width if with_state else 0
        # Rows of the state come after all tokens.
        state_rows = np.full(of_state, len(of.q))
        self.place = np.concatenate([rows, state_rows])
        self.coefficients = np.zeros((len(self.place), width))
        # P of the final state starts as I.
        self.coefficients[len(rows) :] = np.eye(width)[:of_state]
        self.worst = np.zeros((len(self.place), columns))
        self.square = np.zeros_like(self.worst)
        self.end = np.zeros((width, columns))
        self.output = np.zeros((len(rows), columns))

    def keep_outputs(self, x: Chunk) -> None:
        """Keep the exact outputs of a chunk that are rows."""
        first, past = (int(np.searchsorted(self.place, at)) for at in (x.lo, x.hi))
        own_rows = self.place[first:past] - x.lo
        self.output[first:past] = x.output[own_rows]

    def limits(self, how: RecurrentArithmetic, rows: Array, times: float) -> Limits:
        """Return what was summed up, enlarged by the errors of the float64 reference."""
        count, ending = len(rows), rounding_of(self.end, how.ending)
        own = float(how.sums.u)
        # The reference errs by the same law: see the end of the module's proof.
        enlarged = 1 + 2.0**-28 if own > FLOAT64 else 2 * (1 + 2.0**-20)
        worst = self.worst.copy()
        last = 0.0 if how.output is None else float(how.output.u)
        # The output is stored with all errors in it (``sources``, 5).
        rounded = rounding_of(self.output, how.output)
        worst[:count] = worst[:count] * (1 + last) + rounded
        worst = self._replace_unknown_by_infinity(worst) * enlarged
        state = worst[count:] if len(worst) > count else np.full(self.end.shape, np.inf)
        state = state + rounding_of(state, how.ending) + ending
        places = tuple(map(int, rows))
        if not self.is_sharp:
            return Limits(places, worst[:count], state, None, None)
        square = self.square.copy()
        if len(square) > count:
            square[count:] += ending**2
        # Squares leave underflow out, so the least normal number is added.
        second_order = times * SECOND_ORDER * np.sqrt(square)
        sharp = self._replace_unknown_by_infinity(second_order) + float(how.sums.smallest_normal)
        sharp_state = sharp[count:] if len(sharp) > count else np.full(self.end.shape, np.inf)
        return Limits(places, worst[:count], state, sharp[:count], sharp_state)

    def _replace_unknown_by_infinity(self, a: Array) -> Array:
        # NaN comes from ∞ − ∞ or 0 · ∞, where no bound is known.
        if self.silent:
            return np.full_like(a, np.inf)
        return np.where(np.isnan(a), np.inf, a)


# -- chunks ------------------------------------------------------------------------------------------------------------
def _by_chunks(of: Recurrence, how: RecurrentArithmetic, sweep: _Sweep) -> None:
    error = np.zeros(of.v.shape[1])
    passed: list[tuple[Chunk, sources.Roundings]] = []
    # Forward, since largest roundings depend on the error of the state so far.
    for x in chunks_of(of, how.size):
        sweep.silent |= sources.overflows(x, how)
        sweep.keep_outputs(x)
        largest = sources.largest_in_chunk(x, how, error)
        passed.append((x, largest))
        error = _error_after(of, x, largest, error)
    sweep.end = passed[-1][0].end
    # Backward, since coefficients of the state come from later outputs.
    for x, largest in reversed(passed):
        first = int(np.searchsorted(sweep.place, x.lo))
        _sweep_chunk(sweep, x, largest, how, slice(first, None))


def _error_after(of: Recurrence, x: Chunk, largest: sources.Roundings, error: Array) -> Array:
    """Return the bound of the norms of the state's error after a chunk, (d_v,)."""
    keys = np.abs(x.decayed_keys)
    solution = largest.solution + np.abs(x.inverse) @ largest.right
    added = keys.T @ solution
    carried_by_copy = np.abs(x.decayed_keys.T @ x.factor) @ largest.copy
    added = added + carried_by_copy + largest.state
    norms = np.sqrt((added**2).sum(axis=0)) + largest.state_norm
    carried = _norm_of_step(of, x)
    # A norm of a large matrix is slow, and needed only if a copy is stored.
    copied = float(np.linalg.norm(x.decayed_keys.T @ x.factor)) if largest.copy_norm.any() else 0.0
    of_copy = copied * largest.copy_norm
    return np.asarray((carried * error + of_copy + norms) * (1 + 2.0**-30))


def _norm_of_step(of: Recurrence, x: Chunk) -> float:
    """Return a bound of the norm of the matrix that a chunk multiplies the state by."""
    # Where nothing is erased the state is multiplied by its decays alone.
    if not of.erases:
        return float(x.last.max())
    each = of.step_norms[x.lo : x.hi]
    product = float(np.prod(each))
    decays = np.exp(x.gate_steps.max(axis=1))
    # One decay a token and no lengthening: no other bound is likely to be smaller.
    not_lengthening = each <= decays * (1 + 2.0**-40)
    if x.sums.shape[1] == 1 and not_lengthening.all():
        return product
    size = np.abs(x.step)
    # ‖A‖² is at most the product of its largest sums of rows and of columns.
    largest_column = float(size.sum(axis=0).max())
    by_sums = sqrt(largest_column * float(size.sum(axis=1).max()))
    known = min(product, by_sums)
    # A singular value decomposition is worth its time only where the cheap bounds exceed 1.
    too_wide = len(size) > MAX_WIDTH_OF_NORM
    if known <= 1 or not np.isfinite(x.step).all() or too_wide:
        return known
    spectral = float(np.linalg.norm(x.step, 2))
    return min(known, spectral * (1 + 2.0**-30))


def _sweep_chunk(
    sweep: _Sweep, x: Chunk, largest: sources.Roundings, how: RecurrentArithmetic, active: slice
) -> None:
    """Add what the roundings of a chunk do to the active rows, and carry their coefficients to the state before."""
    place, after = sweep.place[active], sweep.coefficients[active]
    worst, square = sweep.worst[active], sweep.square[active]
    inside = int(np.searchsorted(place, x.hi))  # rows of the chunk come first
    own = place[:inside] - x.lo
    later = slice(inside, None)
    of_solution = after @ x.decayed_keys.T
    # Outputs within the chunk read u through N, later ones through the state.
    of_solution[:inside] = x.inner[own]
    of_right = of_solution @ x.inverse
    of_copy = -of_right @ x.read
    read = np.abs(of_copy)
    of_copy[:inside] += x.decayed_queries[own]
    # a copy may be stored for one of its two uses alone
    read[:inside] += np.abs(x.decayed_queries[own])

    from_right = np.abs(of_right) @ largest.right
    worst += np.abs(of_solution) @ largest.solution + from_right
    # Outputs of the chunk do not read the state after it.
    worst[later] += (
        np.abs(after[later]) @ largest.state
        + _norms_of_state_rows(after[later]) * largest.state_norm
    )
    # The state is stored as a copy only where operands of products are stored.
    if how.stored is not None:
        worst += read @ largest.copy + _norms_of_state_rows(read) * largest.copy_norm
    worst[:inside] += largest.own[own]
    before = of_copy + after * x.last.T
    if sweep.is_sharp:
        squares = sources.squares_in_chunk(x, how)
        square += of_solution**2 @ squares.solution + of_right**2 @ squares.right
        square[later] += after[later] ** 2 @ squares.state
        if how.stored is not None:
            square += read**2 @ squares.copy
        square[:inside] += squares.own[own]
        # Gates of 0 have no exponential to round.
        if np.any(x.sums):
            by_gate = _token_gates if x.sums.shape[1] == 1 else _feature_gates
            square += by_gate(x, how, before, after, of_right, own)
    sweep.coefficients[active] = before


def _norms_of_state_rows(a: Array) -> Array:
    return np.asarray(np.sqrt((a * a).sum(axis=1, keepdims=True)))


def _gate_roundings(x: Chunk, how: RecurrentArithmetic) -> Array:
    """Return errors of the logarithm of the state before each token: of g, of its sum, and of the exponential."""
    roundings = 4 + 3 * np.abs(x.sums)
    return np.asarray(float(how.sums.u) * roundings)


def _token_gates(
    x: Chunk, how: RecurrentArithmetic, before: Array, after: Array, of_right: Array, own: Array
) -> Array:
    """Return squares of the effects of errors of one gate a token, (rows, d_v).

    What passes through the state before token l is the state before the chunk and the right sides of j < l, each times
    its coefficient.
    """
    count, inside = len(x.u), len(own)
    errors = _gate_roundings(x, how)[:, 0] ** 2
    flow = before @ x.state
    # An output within the chunk is reached by the gates up to its own token.
    of_state = np.full(len(before) - inside, count - 1)
    reach = np.concatenate([own, of_state])
    total: Array = np.zeros_like(flow)
    # p S, which the token's own gate decays too, or has not decayed.
    erased = x.right - x.u
    for token in range(count):
        squared_flow = flow * flow
        if x.erases_before:
            undecayed = of_right[:, token : token + 1] * erased[token]
            # The rest has the gate; the exponents G − g of p may err as G does, with it or apart.
            squared_flow = np.maximum(squared_flow, (flow + undecayed) ** 2) + undecayed**2
        total += errors[token] * squared_flow * (reach >= token)[:, None]
        flow += of_right[:, token : token + 1] * x.right[token]
    return total


def _feature_gates(
    x: Chunk, how: RecurrentArithmetic, before: Array, after: Array, of_right: Array, own: Array
) -> Array:
    """Return squares of the effects of errors of one gate a feature, (rows, d_v), without erasure in the chunk."""
    count, width = x.k.shape
    inside = len(own)
    roundings2 = (_gate_roundings(x, how) ** 2)[:, :, None]
    states2 = x.states_before**2 * roundings2
    result = np.zeros((len(after), x.u.shape[1]))
    # What is left of each token's state at the end of the chunk.
    down2 = np.exp(2 * (x.sums[-1] - x.sums))
    of_states = np.einsum("lf,lfc->fc", down2, states2)
    result[inside:] = after[inside:] ** 2 @ of_states
    if inside:
        # Pairs with later tokens would overflow, and are removed below.
        differences = x.reads[own][:, None] - x.sums[None]
        between = np.minimum(differences, 0)
        visible = np.arange(count)[None] <= own[:, None] - x.reads_before
        queries = x.q[own][:, None, :]
        near2 = (queries * np.exp(between) * visible[..., None]) ** 2
        flat_states = states2.reshape(count * width, -1)
        result[:inside] = near2.reshape(inside, -1) @ flat_states
        # R of a token is G less its own gate, and errs as G does.
        if x.reads_before:
            read2 = x.previous_states[own] ** 2 * roundings2[own]
            result[:inside] += np.einsum("rf,rfc->rc", x.q[own] ** 2, read2)
    # So does that with p, where a token erases before its own gate.
    if x.erases_before:
        erased2 = np.einsum("lf,lfc->lc", x.p**2, x.previous_states**2 * roundings2)
        result += of_right**2 @ erased2
    return result


# -- token by token ----------------------------------------------------------------------------------------------------
def _by_tokens(of: Recurrence, how: RecurrentArithmetic, sweep: _Sweep) -> None:
    error = np.zeros(of.v.shape[1])
    errors: list[Array] = []
    # Whether the norm of one step may exceed 1, where that of many is better known.
    is_lengthening = bool((of.step_norms > 1 + 2.0**-40).any())
    # Chunks bound memory; the order of the arithmetic stays token by token.
    chunks = list(chunks_of(of, TOKENS_AT_ONCE))
    for x in chunks:
        sweep.silent |= sources.overflows(x, how)
        sweep.keep_outputs(x)
        previous = x.state
        at_start, of_chunk = error, np.zeros_like(error)
        for token, before in enumerate(x.states_before):
            # Stored for the sweep back, which needs the same roundings.
            errors.append(error)
            step = _step_of_token(of, x, token, previous, before)
            largest = sources.largest_of_token(step, how, error)
            error = _error_after_token(step, largest, error)
            of_chunk = _error_after_token(step, largest, of_chunk)
            previous = step.after
        if is_lengthening:
            # The error before the chunk, by the product of its steps, and what came since.
            error = np.minimum(error, _norm_of_step(of, x) * at_start + of_chunk)
    sweep.end = chunks[-1].end
    for x in reversed(chunks):
        states = x.states_before
        previous = x.previous_states
        for token in reversed(range(len(x.u))):
            step = _step_of_token(of, x, token, previous[token], states[token])
            _sweep_token(step, how, sweep, x.gate_steps[token], errors[step.token])


def _step_of_token(
    of: Recurrence, x: Chunk, token: int, previous: Array, before: Array
) -> sources.TokenStep:
    """Return a token of a chunk, from the state before it and that state decayed."""
    added = x.k[token][:, None] * x.u[token]
    return sources.TokenStep(of, x.lo + token, previous, before, before + added, x.u[token])


def _error_after_token(
    step: sources.TokenStep, largest: sources.TokenRoundings, error: Array
) -> Array:
    norms = np.sqrt((largest.state**2).sum(axis=0)) + largest.state_norm
    added = float(np.linalg.norm(step.of.k[step.token])) * largest.correction
    carried = float(step.of.step_norms[step.token]) * error
    return np.asarray((carried + added + norms) * (1 + 2.0**-40))


def _sweep_token(
    step: sources.TokenStep, how: RecurrentArithmetic, sweep: _Sweep, gate: Array, error: Array
) -> None:
    """Add what the roundings of a token do to later rows and its own, and carry their coefficients.

    ``gate`` is the token's in the chunk, and ``error`` that of the state before it.
    """
    of, at = step.of, step.token
    first, past = (int(np.searchsorted(sweep.place, at + more)) for more in (0, 1))
    # A token's own output reads the state after it: P starts as q.
    if not of.reads_before:
        sweep.coefficients[first:past] = of.q[at]
    active = slice(past if of.reads_before else first, None)
    largest = sources.largest_of_token(step, how, error)
    rows = sweep.coefficients[active]
    # The coefficient before the correction, which erases along p.
    of_correction = rows @ of.k[at][:, None]
    of_erased = of_correction * of.erased[at]
    of_decayed = rows - of_erased
    worst = sweep.worst[active]
    from_state = np.abs(rows) @ largest.state
    worst += from_state + np.abs(of_correction) * largest.correction
    if largest.state_norm.any():
        worst += _norms_of_state_rows(rows) * largest.state_norm
    sweep.worst[first:past] += largest.own
    if sweep.is_sharp:
        squares = sources.squares_of_token(step, how)
        square = sweep.square[active]
        square += rows**2 @ squares.state + of_correction**2 * squares.correction
        sweep.square[first:past] += squares.own
        gates = of.gates[at]
        if gates.any():
            # The gate, its exponential and the product with the state each round.
            rounding = float(how.sums.u) * (2 + np.abs(gates))
            # What is erased before the gate does not have it.
            gated = rows if of.erases_before else of_decayed
            if len(gates) == 1:
                square += (gated @ step.before) ** 2 * rounding**2
            else:
                square += gated**2 @ (step.before**2 * (rounding**2)[:, None])
    decays = np.exp(gate)
    sweep.coefficients[active] = (
        rows * decays - of_erased if of.erases_before else of_decayed * decays
    )
    # The state before the token is what its own output reads.
    if of.reads_before:
        sweep.coefficients[first:past] = of.q[at]
