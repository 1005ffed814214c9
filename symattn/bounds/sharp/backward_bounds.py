"""dQ, dK and dV of scaled dot products, exactly, and how far all roundings together take each element.

With P the weights, G = dO, dP = G Vᵀ, D = rowsum(G ⊙ O) and dS = P ⊙ (dP − D), the gradients are dQ = s dS K,
dK = s dSᵀ Q, dV = Pᵀ G. A kernel stores, in the input's format of unit roundoff u and half least number η: scores at
most ``scores`` times, queries or keys times the scale where scores are stored at all, weights once, O, dP and D
likewise, dS once, or twice where scores are stored, and the gradients, partial sums too; all else is float32, of
roundoff w, with exponentials off by at most ε = 2⁻¹³ (N1 of ``limits``). No law of rounding is assumed. Statement: no
element is farther from the exact one than ``SharpGradient.allowed``. Proof, row by row, T ≥ |t_j| bounding scores:

1. The logarithm of e^{t_j} is off by at most E_j = ε + w (d + 24) T + ((1 + u)^scores − 1) |t_j|, and 2 u T +
   η ρ √d (‖Q‖ + ‖K_j‖) more where queries or keys are stored times the scale s, ρ = max(1, √|s|). That of their sum, or
   of a log-sum-exp that was kept, by at most log Σ P_j e^{E_j} (by Jensen's inequality it is no farther below),
   w (3 (n + 16) + 2 T + 64), and 1.02 u where the sum is of stored weights: Ē together. So P̃_j = P_j (1 + γ_j),
   |γ_j| ≤ g_j = e^{E_j + Ē}(1 + u) − 1, but for η.
2. dP̃_j is off by at most e_j = w (d + 8) ‖G‖‖V_j‖, and u |dP_j| + η where it is stored. D, from O as it was stored, by
   Σ_c |G_c| (x_c + half an ulp of (|O_c| + x_c)), x = Σ_j (P_j g_j + η + P_j (1 + g_j) w (3 n + 48)) |V_j|, and sums
   of d_v products; or, from P̃ and dP̃, by Σ_j ((P_j g_j + η)(|dP_j| + e_j) + P_j e_j) and sums of n: the larger of
   both is h, and u |D| + η more where it is stored.
3. dS̃ is P̃ (dP̃ − D̃) stored r times, once of them before or after it is scaled: with f = (1 + g)(1 + u)^r (1 + 16w) − 1,
   |dS̃ − dS| ≤ δ = P (|dP − D| f + (1 + f)(e + h)) + η (r − 1 + max(1, 1/|s|) + 2 (|dP − D| + e + h)).
4. A sum of m terms in float32, rescaled, loses at most w (3 m + 48) of the sum of absolute values. So dQ is off by
   s Σ (δ + (|dS| + δ)(w (3 n + 48) + u')) |K|, where u' = u if keys may be stored times the scale, and by η ρ
   Σ (|dS| + δ) more then; dK likewise, dV by Σ (P g + η + P (1 + g) w (3 n + 48)) |G|. Each is stored, which is half an
   ulp, and once more before it is scaled where scores are stored. dK and dV may be stored after every 32 queries and
   added to, as PyTorch's flash kernel on a CPU does, and dQ after every 128 keys, or after multiples of these: half an
   ulp of each partial sum. Where heads share keys, theirs may be stored before they are summed, in the format too: u
   times their number, of the sum of absolute values. What is stored before it is scaled loses η max(1, |s|) at least.
5. Where weights are dropped, with factors c_j of 0 or 1/(1 − r) that are known, O = (c ⊙ P) V, dP = c ⊙ (G Vᵀ) and
   dV = (c ⊙ P)ᵀ G. The factor may be stored, and the product with it: (1 + u)² ≤ 1 + 2.02 u, and η once more. So c P̃ is
   off by g' = (1 + g)(1 + 2.02 u) − 1 and η (1 + c), and c dP̃ by c e + 2.02 u (|c dP| + c e) + η, which take the places
   of g, η and e in steps 2 to 4; η |G · V_j| of a kept weight is at most η |dP_j|, as c ≥ 1. O is within x of step 2.
6. With a cap, y = c tanh(x/c) of x = s q · k, where scores are stored x/c, z = tanh(x/c) and c z are, too; tanh is off
   by at most 2⁻¹¹ of itself. y is odd, and concave where it is positive, and its slope f = 1 − z² is at most 1: so a
   factor 1 + θ of x moves y by at most |θ y|, and an error of x moves y no farther. Hence y is off by at most a =
   ((1 + u)^{scores + 3} (1 + 2⁻¹¹) − 1) |y| and what step 1 says of x besides. On the way back dS is multiplied by f,
   and is stored times c, times f and over c, too: r + 3 in the place of r. z is off by at most a/c, and f, with z² and
   itself stored where scores are, by φ = (2 |z| + a/c)(1 + 2u) a/c + 4w + u. So f dS is off by δ (f + φ) + |dS| φ. What
   is stored loses η max(1, 1/|s|, 1/c) each time.
7. A sink is one more key, of value 0, whose dP is 0 and weight P₀ = 1 − Σ P. Its logit is exact. The sum of step 1 has
   P₀ e^{E₀} more, E₀ = ε + 24 w T. Where scores are stored, the largest of them, m, may be taken away, and the
   difference stored: E_j ← (1 + u) E_j + u (m − t_j + max E), of the sink likewise. The largest may be differentiated,
   too: then the key that had it, one of those with t_j + E_j ≥ max_l (t_l − E_l), has −Σ_l dS_l more, which is 0 but
   for Σ δ_l, that of the sink, P₀ (|D| f₀ + (1 + f₀) h) and η, among them; the sum and the difference are stored, so
   that r is one more.
8. M arrays that are added are exact numbers of the format, b = Σ of their sizes. t is the sum of y and them; partial
   sums in any order are at most |y| + b. Each of M sums is stored where scores are, and in float32 else; M − 1 sums of
   these arrays alone may be stored in any case. E_j has u or w times |y| + a + b for each, and 24 w max b for
   exponentials, the maximum over keys with weights. A key whose weight is below the numbers of float64 is 745 below the
   largest, and has the weight 0 in float32, too, unless a logarithm is off by 80, where nothing is claimed.
9. A scale for each head is one number for each. ∎

What float64 does itself is of the same form with 2⁻⁵³ in place of w, which ``SLACK`` makes up for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.attention.enclosing.pattern import Head
from symattn.attention.spec import Attention
from symattn.bounds.case_result import Expected
from symattn.bounds.sharp import rows_in_float64
from symattn.bounds.sharp.limits import Floats, Stores, W, half_ulp
from symattn.bounds.sharp.passing import WeightedBlock
from symattn.bounds.sharp.ways import largest_scale, own_heads, scale_of

NAMES = ("dq", "dk", "dv")
_TOGETHER, _KEYS = 32, 128  # queries, and keys, after which partial sums may be stored
Array = np.ndarray


@dataclass(frozen=True)
class SharpGradient(Expected):
    """One of dQ, dK, dV in some rows, (…, r, d): the exact one in float64, and what all roundings together allow."""

    rows: Array
    exact: Array
    allowed: Array
    lenient: bool = True  # ``allowed`` includes float64's own errors

    @property
    def entries(self) -> Array:
        """See ``Expected.entries``."""
        return self.exact

    @property
    def near(self) -> Array:
        """See ``Expected.near``."""
        return self.exact

    def enclosures(self) -> Iterator[tuple[Array, Array]]:
        """Yield the exact entries, with radius 0."""
        yield self.exact, np.zeros(())

    def of(self, got: Array) -> Array:
        """Return these rows of a whole array."""
        result: Array = got[..., self.rows, :]
        return result


@dataclass
class _Sums:
    """Sums of one output over blocks and heads that share keys: value, error, absolute values of each head, and the
    error of storing partial sums."""

    value: Array
    error: Array
    size: Array
    stored: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> _Sums:
        return cls(*(np.zeros(shape) for _ in range(4)))

    def add(self, at: np.ndarray, value: Array, error: Array, how: Stores) -> None:
        """Add one partial sum, which may be stored."""
        self.value[at] += value
        self.error[at] += error
        # Half an ulp of what a partial sum may be by then, errors included (step 4).
        inside = np.abs(self.value[at]) + self.error[at] + self.stored[at]
        self.stored[at] += half_ulp(how.format, inside)


def gradients(
    spec: Attention,
    inputs: Mapping[str, Any],
    do: Array,
    how: Stores,
    queries: Array,
    keys: Array,
    factors: Array | None = None,
) -> dict[str, SharpGradient]:
    """Return dQ of some ``queries``, dK and dV of some ``keys``, with memory for one block of rows of scores.

    ``factors`` (…, n_q, n_k) are those of dropout for the weights: 0, or at least 1. Raises Refused for attention that
    cannot be split into blocks, InputError for inputs that do not fit.
    """
    every, _ = own_heads(spec, inputs)
    result = {
        name: _Sums.zeros((*a.shape[:-2], len(rows), a.shape[-1]))
        for name, a, rows in zip(
            NAMES, (inputs["q"], inputs["k"], inputs["v"]), (queries, keys, keys), strict=True
        )
    }
    shared = spec.group
    for own_spec, head in every:
        index = head.index
        # Heads that share keys add to one gradient of keys and values.
        below = (*index[:-1], index[-1] // shared) if spec.head_axis else index
        # Each head's sums are apart at first, as they may be stored before heads are summed.
        own = {n: _Sums.zeros(sums.value.shape[-2:]) for n, sums in result.items()}
        for part in _yield_weighted_blocks(own_spec, head, do[index], how, factors):
            _accumulate_gradient_block(part, own, queries, keys)
        for name, sums in result.items():
            at = index if name == "dq" else below
            sums.value[at] += own[name].value
            sums.error[at] += own[name].error
            sums.stored[at] += own[name].stored
            reached = np.abs(own[name].value) + own[name].error
            sums.size[at] += reached
    # What is stored before it is scaled loses η max(1, |s|) at least (step 4).
    least = float(how.format.eta) * max(1.0, largest_scale(spec, inputs))
    return {
        n: _bounded_gradient(
            sums, keys if n != "dq" else queries, how, 1 if n == "dq" else shared, least
        )
        for n, sums in result.items()
    }


def _bounded_gradient(
    sums: _Sums, rows: Array, how: Stores, shared: int, least: float
) -> SharpGradient:
    # Further stores: one for each head that shares keys, and one before the scale.
    times = (shared if shared > 1 else 0) + (1 if how.scores else 0)
    accumulated = how.u * sums.size + least
    inside = (sums.error + sums.stored) * rows_in_float64.SLACK + times * accumulated
    half = half_ulp(how.format, np.abs(sums.value) + inside)
    return SharpGradient(rows, sums.value, inside + half)


def _accumulate_gradient_block(
    part: WeightedBlock, own: dict[str, _Sums], queries: Array, keys: Array
) -> None:
    """Add the contributions of these queries to the sums of a head."""
    b = part.b
    how = part.how
    n = part.b.p.shape[1]
    ds, off = part.scores()
    relative = W * (3 * n + 48) + (how.u if how.scores else 0.0)
    lost = off + (np.abs(ds) + off) * relative
    tiny = (np.abs(ds) + off) * part.of_scaled
    places, at = _match_consecutive_rows(b.rows, queries)
    # Keys start at the block's span, but partial sums of dQ end at multiples of 128 keys.
    first, scale = part.keys.start, part.scale
    for start in range(first // _KEYS * _KEYS, part.keys.stop, _KEYS):
        chunk = slice(max(start - first, 0), start + _KEYS - first)
        of = scale * ds[places][:, chunk]
        k = b.given["k"][chunk]
        error = abs(scale) * (lost[places][:, chunk] @ np.abs(k)) + tiny[places][:, chunk].sum(
            axis=1, keepdims=True
        )
        own["dq"].add(at, of @ k, error, how)
    # Many blocks have no sampled key.
    cols, at = _match_consecutive_rows(np.arange(first, part.keys.stop), keys)
    if len(cols):
        arrays = (ds, lost, tiny, part.kept, part.of_values)
        ds, lost, tiny, p, x = (a[:, cols] for a in arrays)
        for start in range(0, len(ds), _TOGETHER):
            chunk = slice(start, start + _TOGETHER)
            q, do = b.given["q"][chunk], part.do[chunk]
            underflow = tiny[chunk].sum(axis=0)[:, None]
            of_products = lost[chunk].T @ np.abs(q)
            error = abs(scale) * of_products + underflow
            products = scale * (ds[chunk].T @ q)
            own["dk"].add(at, products, error, how)
            sizes = x[chunk].T @ np.abs(do)
            own["dv"].add(at, p[chunk].T @ do, sizes, how)


def outputs(
    spec: Attention, inputs: Mapping[str, object], how: Stores, factors: Array
) -> SharpGradient:
    """Return the output after dropout by ``factors``, and the error that all roundings together allow.

    Raises the errors of ``gradients``.
    """
    every, shape = own_heads(spec, inputs)
    exact, allowed = np.zeros(shape), np.zeros(shape)
    for own, head in every:
        index = head.index
        # The gradient of the output does not matter here, so zeros stand for it.
        for part in _yield_weighted_blocks(
            own, head, np.zeros((len(head.q), shape[-1])), how, factors
        ):
            exact[index][part.b.rows], allowed[index][part.b.rows] = part.output()
    return SharpGradient(np.arange(shape[-2]), exact, allowed)


def of_sums(
    spec: Attention, inputs: Mapping[str, Any], do: Array, how: Stores, factors: Array | None = None
) -> tuple[Floats, Floats]:
    """Return the gradient with respect to scores with all added terms, and its δ, each (…, n_q, n_k).

    Raises the errors of ``gradients``.
    """
    every, shape = own_heads(spec, inputs)
    exact, off = (np.zeros((*shape[:-1], inputs["k"].shape[-2])) for _ in range(2))
    for own, head in every:
        for part in _yield_weighted_blocks(own, head, do[head.index], how, factors):
            index, at = head.index, (part.b.rows, part.keys)
            exact[index][at], off[index][at] = part.of_sums()
    return exact, off


def _yield_weighted_blocks(
    spec: Attention, head: Head, do: Array, how: Stores, factors: Array | None
) -> Iterator[WeightedBlock]:
    scale = scale_of(spec, head.q.shape[-1]) or 0.0
    for start in range(0, len(head.q), rows_in_float64.QUERIES):
        rows = np.arange(start, min(start + rows_in_float64.QUERIES, len(head.q)))
        end = int(rows[-1]) + 1
        keys = slice(*head.seen.span(int(rows[0]), end))
        # Queries that see no key add nothing.
        if keys.stop > keys.start:
            dropped = None if factors is None else factors[head.index][rows, keys]
            result = rows_in_float64.block(spec, head, rows, keys)
            yield WeightedBlock(result, keys, do[rows], scale, how, dropped)


def _match_consecutive_rows(rows: Array, wanted: Array) -> tuple[Array, Array]:
    """Return the places in ``rows``, which are consecutive, of the rows ``wanted``, and their places in ``wanted``."""
    at = np.flatnonzero((wanted >= rows[0]) & (wanted <= rows[-1]))
    return wanted[at] - rows[0], at


def sampled(n: int, count: int, tiles: Sequence[int] = (64, 128)) -> Array:
    """Return keys to look at: the first and last, the edges of some tiles, and others at even distances."""
    # The edges of the first and of the last tile, where kernels have special cases.
    edges = {i for t in tiles for at in (t, n // t * t) for i in (at - 1, at) if 0 <= i < n}
    spread = np.linspace(0, n - 1, max(count, 2))
    return np.array(sorted({0, n - 1} | edges | {int(i) for i in spread}))
