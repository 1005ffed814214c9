"""dQ, dK and dV of scaled dot products under masks, exactly, and how far all roundings together take each element.

With P the weights, G = dO, dP = G Vᵀ, D = rowsum(G ⊙ O) and dS = P ⊙ (dP − D), the gradients are dQ = s dS K,
dK = s dSᵀ Q, dV = Pᵀ G. A kernel stores, in the input's format of unit roundoff u and half least number η: scores at
most ``scores`` times, queries or keys times the scale where scores are stored at all, weights once, O, dP and D
likewise, dS once, or twice where scores are stored, and the gradients, partial sums too; all else is float32, of
roundoff w, with exponentials off by at most ε = 2⁻¹³ (N1 of ``limits``). No law of rounding is assumed. Statement: no
element is farther from the exact one than ``Gradient.allowed``. Proof, row by row, T ≥ |t_j| bounding scores:

1. The logarithm of e^{t_j} is off by at most E_j = ε + w (d + 24) T + u |t_j| scores, and 2 u T + η ρ √d (‖Q‖ + ‖K_j‖)
   more where queries or keys are stored times the scale s, ρ = max(1, √|s|). That of their sum, or of a log-sum-exp
   that was kept, by at most log Σ P_j e^{E_j} (by Jensen's inequality it is no farther below), w (3 (n + 16) + 2 T +
   64), and 1.02 u where the sum is of stored weights: Ē together. So P̃_j = P_j (1 + γ_j), |γ_j| ≤ g_j =
   e^{E_j + Ē}(1 + u) − 1, but for η.
2. dP̃_j is off by at most e_j = w (d + 8) ‖G‖‖V_j‖, and u |dP_j| + η where it is stored. D, from O as it was stored, by
   Σ_c |G_c| (x_c + half an ulp of (|O_c| + x_c)), x = Σ_j (P_j g_j + η + P_j (1 + g_j) w (3 n + 48)) |V_j|, and sums
   of d_v products; or, from P̃ and dP̃, by Σ_j ((P_j g_j + η)(|dP_j| + e_j) + P_j e_j) and sums of n: the larger of
   both is h, and u |D| + η more where it is stored.
3. dS̃ is P̃ (dP̃ − D̃) stored r times, once of them before or after it is scaled: with f = (1 + g)(1 + u)^r (1 + 8w) − 1,
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
   of g, η and e in steps 2 to 4; η |G · V_j| of a kept weight is at most η |dP_j|, as c ≥ 1. O is within x of step 2. ∎

What float64 does itself is of the same form with 2⁻⁵³ in place of w, which ``SLACK`` makes up for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.attention.enclosing.pattern import Head
from symattn.attention.gradients.attention import softmax_vjp
from symattn.attention.spec import Attention
from symattn.verification.sharp.blocks import QUERIES, SLACK, Block, block, every_head
from symattn.verification.sharp.limits import EXPONENTIAL, Floats, Stores, W, half_ulp
from symattn.verification.sharp.ways import scale_of

NAMES = ("dq", "dk", "dv")
_TOGETHER, _KEYS = 32, 128  # queries, and keys, after which partial sums may be stored
_DROPS = 2.02  # units of roundoff that factors of dropout are off by
Array = np.ndarray


@dataclass(frozen=True)
class Gradient:
    """One of dQ, dK, dV in some rows, (…, r, d): the exact one, and what all roundings together allow."""

    rows: Array
    exact: Floats
    allowed: Floats


@dataclass
class _Sums:
    """Of one output, summed over blocks and heads that share keys: itself, its error, absolute values of each head, and
    what storing partial sums does."""

    value: Array
    error: Array
    size: Array
    stored: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> _Sums:
        return cls(*(np.zeros(shape) for _ in range(4)))

    def add(self, at: Any, value: Array, error: Array, how: Stores) -> None:
        """One more partial sum, which may be stored."""
        self.value[at] += value
        self.error[at] += error
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
) -> dict[str, Gradient]:
    """dQ of some ``queries``, dK and dV of some ``keys``, with memory for a block of rows of scores.

    ``factors`` (…, n_q, n_k) are what dropout multiplies weights by: 0, or at least 1. Raises Refused for what has no
    blocks, InputError for inputs that do not fit.
    """
    spec, every, _ = every_head(spec, inputs)
    found = {
        name: _Sums.zeros((*a.shape[:-2], len(rows), a.shape[-1]))
        for name, a, rows in zip(NAMES, (inputs["q"], inputs["k"], inputs["v"]), (queries, keys, keys), strict=True)
    }
    shared = spec.heads // spec.key_heads
    for head in every:
        below = (*head.index[:-1], head.index[-1] // shared) if spec.heads > 1 else head.index
        own = {n: _Sums.zeros(sums.value.shape[-2:]) for n, sums in found.items()}
        for part in _parts(spec, head, do[head.index], how, factors):
            part.add(own, queries, keys)
        for name, sums in found.items():
            at = head.index if name == "dq" else below
            sums.value[at] += own[name].value
            sums.error[at] += own[name].error
            sums.stored[at] += own[name].stored
            sums.size[at] += np.abs(own[name].value) + own[name].error
    least = float(how.format.eta) * max(1.0, abs(scale_of(spec, inputs["q"].shape[-1]) or 0.0))
    return {
        n: _told(sums, keys if n != "dq" else queries, how, 1 if n == "dq" else shared, least)
        for n, sums in found.items()
    }


def _told(sums: _Sums, rows: Array, how: Stores, shared: int, least: float) -> Gradient:
    times = (shared if shared > 1 else 0) + (1 if how.scores else 0)
    inside = (sums.error + sums.stored) * SLACK + times * (how.u * sums.size + least)
    return Gradient(rows, sums.value, inside + half_ulp(how.format, np.abs(sums.value) + inside))


@dataclass(frozen=True)
class _Part:
    """A block of queries, from ``keys.start`` on: weights, dS, their errors and the rows of dO.

    ``factors`` (r, n) are those of dropout, if there is any.
    """

    b: Block
    keys: slice
    do: Floats
    scale: float
    how: Stores
    factors: Floats | None = None

    def add(self, own: dict[str, _Sums], queries: Array, keys: Array) -> None:
        """Add to the sums of a head what these queries give."""
        b, u, n = self.b, self.how.u, self.b.p.shape[1]
        ds, off, grown = self._scores()
        lost = off + (np.abs(ds) + off) * (W * (3 * n + 48) + (u if self.how.scores else 0.0))
        tiny = (np.abs(ds) + off) * self._of_scaled
        mine, at = _where(b.rows, queries)
        first = self.keys.start
        for start in range(first // _KEYS * _KEYS, self.keys.stop, _KEYS):
            some = slice(max(start - first, 0), start + _KEYS - first)
            of, k = self.scale * ds[mine][:, some], b.given["k"][some]
            error = abs(self.scale) * (lost[mine][:, some] @ np.abs(k)) + tiny[mine][:, some].sum(axis=1, keepdims=True)
            own["dq"].add(at, of @ k, error, self.how)
        cols, at = _where(np.arange(self.keys.start, self.keys.stop), keys)
        if len(cols):
            ds, lost, tiny, p, x = (a[:, cols] for a in (ds, lost, tiny, self._kept, self._of_values(grown)))
            for start in range(0, len(ds), _TOGETHER):
                some = slice(start, start + _TOGETHER)
                q, do = b.given["q"][some], self.do[some]
                error = abs(self.scale) * (lost[some].T @ np.abs(q)) + tiny[some].sum(axis=0)[:, None]
                own["dk"].add(at, self.scale * (ds[some].T @ q), error, self.how)
                own["dv"].add(at, p[some].T @ do, x[some].T @ np.abs(do), self.how)

    @property
    def _of_scaled(self) -> float:
        """η ρ of step 1: what an entry of queries or keys loses at least where it is stored times the scale."""
        return float(self.how.format.eta) * max(1.0, abs(self.scale)) ** 0.5 if self.how.scores else 0.0

    def _of_values(self, grown: Floats) -> Floats:
        """What sums with the weights lose, as weights of absolute values, (r, n)."""
        p, n, grown = self._kept, self.b.p.shape[1], self._dropped(grown)
        tiny = float(self.how.format.eta) * (self.b.p > 0) * (1.0 if self.factors is None else 1 + self.factors)
        return np.asarray(p * (grown + (1 + grown) * W * (3 * n + 48)) + tiny)

    @property
    def _kept(self) -> Floats:
        """The weights after dropout, c P."""
        return self.b.p if self.factors is None else self.b.p * self.factors

    def _dropped(self, grown: Floats) -> Floats:
        """g' of step 5."""
        return grown if self.factors is None else (1 + grown) * (1 + _DROPS * self.how.u) - 1

    def output(self, grown: Floats | None = None) -> tuple[Floats, Floats]:
        """O, and x of step 2, each (r, d_v), from g."""
        o = np.nan_to_num(self.b.o) if self.factors is None else self._kept @ self.b.values
        x = self._of_values(self._weights() if grown is None else grown) @ np.abs(self.b.values)
        return o, x + half_ulp(self.how.format, np.abs(o) + x)

    def _scores(self) -> tuple[Floats, Floats, Floats]:
        """dS, δ of step 3 and g of step 1, each (r, n)."""
        b, how, u, eta = self.b, self.how, self.how.u, float(self.how.format.eta)
        grown = self._weights()
        dp = self.do @ b.values.T
        e = W * (b.values.shape[1] + 8) * np.linalg.norm(self.do, axis=1)[:, None] * np.linalg.norm(b.values, axis=1)
        e = e + (u * np.abs(dp) + eta if how.scores else 0.0)
        if self.factors is not None:
            dp, e = self.factors * dp, self.factors * e
            e = e + _DROPS * u * (np.abs(dp) + e) + eta
        ds, h = np.asarray(softmax_vjp(b.p, dp)), self._means(dp, e, grown)
        times = 2 if how.scores else 1
        f = (1 + grown) * (1 + u) ** times * (1 + 8 * W) - 1
        apart = np.abs(dp - np.vecdot(b.p, dp)[:, None])
        least = times - 1 + max(1.0, 1 / abs(self.scale or 1.0))
        off = b.p * (apart * f + (1 + f) * (e + h)) + eta * (b.p > 0) * (least + 2 * (apart + e + h))
        return ds, np.asarray(off), grown

    def _weights(self) -> Floats:
        """g of step 1."""
        b, how, n = self.b, self.how, self.b.p.shape[1]
        least = EXPONENTIAL + W * (b.width + 24) * b.T + (2 * how.u * b.T if how.scores else 0.0)
        q, k = (np.linalg.norm(b.given[name], axis=1) for name in "qk")
        E = least + how.scores * how.u * b.sizes + self._of_scaled * b.width**0.5 * (q[:, None] + k)
        whole = np.maximum(b.p.sum(axis=1, keepdims=True), 1.0)
        mean = np.log((b.p * np.exp(E)).sum(axis=1, keepdims=True) + whole - b.p.sum(axis=1, keepdims=True))
        mean = mean.clip(0) + W * (3 * (n + 16) + 2 * b.T + 64) + 1.02 * how.u
        return np.asarray(np.exp(np.minimum(E + mean, 80.0)) * (1 + how.u) - 1)

    def _means(self, dp: Floats, e: Floats, grown: Floats) -> Floats:
        """h of step 2, (r, 1)."""
        b, how, n = self.b, self.how, self.b.p.shape[1]
        o, x = self.output(grown)
        size, o, grown = np.abs(self.do), np.abs(o), self._dropped(grown)
        kept = np.vecdot(size, x) + W * (b.values.shape[1] + 8) * np.vecdot(size, o + x)
        sizes = np.abs(dp) + e
        tiny = float(how.format.eta) * sizes.sum(axis=1) * (1 if self.factors is None else 2)
        made = np.vecdot(b.p, grown * sizes + e) + tiny + W * (3 * n + 48) * np.vecdot(b.p, (1 + grown) * sizes)
        stored = how.u * np.abs(np.vecdot(b.p, dp)) + float(how.format.eta) if how.scores else 0.0
        return np.asarray((np.maximum(kept, made) + stored)[:, None])


def outputs(spec: Attention, inputs: Mapping[str, Any], how: Stores, factors: Array) -> Gradient:
    """The output after dropout by ``factors``, and what all roundings together allow.

    Raises what ``gradients`` does.
    """
    spec, every, shape = every_head(spec, inputs)
    exact, allowed = np.zeros(shape), np.zeros(shape)
    for head in every:
        for part in _parts(spec, head, np.zeros((len(head.q), head.v.shape[-1])), how, factors):
            exact[head.index][part.b.rows], allowed[head.index][part.b.rows] = part.output()
    return Gradient(np.arange(shape[-2]), exact, allowed)


def _parts(spec: Attention, head: Head, do: Array, how: Stores, factors: Array | None) -> Iterator[_Part]:
    scale = scale_of(spec, head.q.shape[-1])
    for start in range(0, len(head.q), QUERIES):
        rows = np.arange(start, min(start + QUERIES, len(head.q)))
        keys = slice(*head.seen.span(int(rows[0]), int(rows[-1]) + 1))
        if keys.stop > keys.start:
            dropped = None if factors is None else factors[head.index][rows, keys]
            yield _Part(block(spec, head, rows, keys), keys, do[rows], scale or 0.0, how, dropped)


def _where(rows: Array, wanted: Array) -> tuple[Array, Array]:
    """Places in ``rows``, in order from the first on, of those that are wanted, and their places among these."""
    at = np.flatnonzero((wanted >= rows[0]) & (wanted <= rows[-1]))
    return wanted[at] - rows[0], at


def beyond(found: Gradient, got: Floats) -> Floats:
    """|got − exact| in parts of what is allowed, (…, r, d); ∞ for what is no number."""
    with np.errstate(all="ignore"):
        share = np.abs(got - found.exact) / found.allowed
    return np.where(np.isnan(share), np.inf, share)


def sampled(n: int, count: int, tiles: Sequence[int] = (64, 128)) -> Array:
    """Keys to look at: the first and last, the edges of some tiles, and others at even distances."""
    edges = {i for t in tiles for at in (t, n // t * t) for i in (at - 1, at) if 0 <= i < n}
    return np.array(sorted({0, n - 1} | edges | {int(i) for i in np.linspace(0, n - 1, max(count, 2))}))
