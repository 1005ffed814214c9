"""The definition in float64, for some queries of one head at a time, and how far roundings take each of its elements.

``QueryBlock.error`` encloses what float64 does itself. With v = 2⁻⁵³ and T = s ‖q‖ max‖k‖, a score is off by at most
v (d + 12) T (sums of d products, scale and cap; by Cauchy and Schwarz Σ s |q_l k_l| ≤ T), its difference to the maximum
by 4 v T more and the exponential by 4 v, so weights before they are divided are off by factors within e^{±z}, z =
v ((d + 16) T + 4), and the output, of sums of n terms, by at most (e^{2z + 2 (n + 4) v} − 1) max|v|: twice that is
taken, which makes up for the roundings of this formula itself. What is added to scores, at most three arrays, counts as
part of T: its sums pass three roundings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from symattn.arrays.enclosing.bounds import U
from symattn.arrays.namespace import namespace_of
from symattn.arrays.tensors import is_tensor
from symattn.attention.enclosed import alone
from symattn.attention.enclosing.pattern import Head, checked, front, heads
from symattn.attention.enclosing.sums import UNIT, norms, steps_factor
from symattn.attention.flow import run_steps
from symattn.attention.spec import Attention
from symattn.bounds import plain_bound
from symattn.bounds.sharp.added import apart, spread, without_weight
from symattn.bounds.sharp.limits import EXPONENTIAL, TANH, Floats, Stores, W, half_ulp
from symattn.document.errors import Refused

#: Largest number of queries in a block, which bounds memory.
QUERIES = 256
_KEYS = 1 << 13  # keys and values that are widened to float64 at a time
_SCORES = 1 << 20  # largest number of scores in a block of more than _FEW rows
# Rows of a block at least, however many keys there are.
_FEW = 8
SLACK = 1 + 2.0**-6  # for what float32 does to squares of weights and their sums
_parts = partial(plain_bound.pieces, size=_KEYS)


@dataclass(frozen=True)
class QueryBlock:
    """Some queries and the keys that they may see: scores t, weights p (r, n), outputs o (r, d_v); −∞ is masked.

    All are NumPy arrays, or tensors on one device; ``rows``, the positions of the queries, is a NumPy array.

    ``raw`` are the scores before the mask and the ``added`` arrays (r, n); ``free``, before the cap as well; ``values``
    v (n, d_v), ``largest`` max|v|; T bounds ``raw`` in each row, and its sink, (r, 1). ``spec`` and ``given`` are what
    was run; keys and values may be float32, and are widened in parts.
    """

    spec: Attention
    given: Mapping[str, Any]
    rows: np.ndarray
    t: Floats
    p: Floats
    o: Floats
    values: Floats
    T: Floats
    raw: Floats
    free: Floats
    added: tuple[Floats, ...] = ()
    noises: dict[Stores, tuple[Floats, Floats]] = field(default_factory=dict, repr=False)

    @property
    def xp(self) -> Any:
        """The namespace of the arrays."""
        return namespace_of(self.p)

    @property
    def width(self) -> int:
        """d_k."""
        return int(self.given["q"].shape[-1])

    @property
    def cap(self) -> float | None:
        """The cap of the scores."""
        return None if self.spec.softcap is None else float(self.spec.softcap)

    @cached_property
    def largest(self) -> Floats:
        """max_j |v_jc|, (1, d_v)."""
        return wide(self.xp.max(self.xp.abs(self.values), axis=0, keepdims=True))

    def times(self, w: Floats) -> Floats:
        """Return w v, (r, d_v), for w (r, n)."""
        return _weigh_values_in_parts(w, self.values)

    @cached_property
    def error(self) -> Floats:
        """The distance of o from the exact output, at most, (r, d_v)."""
        z = U * ((self.width + 16) * self.reach + 4)
        exponent = 2 * z + 2 * (len(self.values) + 4) * U
        return 2 * self.xp.expm1(exponent) * self.largest

    @cached_property
    def summands(self) -> Floats:
        """The sum of the absolute values of added terms, (r, n)."""
        zeros = self.xp.zeros_like(self.p)
        return sum(map(self.xp.abs, self.added), start=zeros)

    @cached_property
    def summand(self) -> Floats:
        """The largest of ``summands`` in each row, over keys with weight, (r, 1)."""
        return self.xp.max(self.xp.where(self.p > 0, self.summands, 0.0), axis=1, keepdims=True)

    @cached_property
    def reach(self) -> Floats:
        """A bound of t in each row, (r, 1)."""
        return self.T + self.summand if self.added else self.T

    @cached_property
    def sizes(self) -> Floats:
        """The largest absolute value of a score on the way from ``raw`` to t, 0 where masked."""
        size = self.xp.abs(self.t)
        if self.added:
            raw = self.xp.abs(self.raw)
            # One added array: the larger of |y| and |t|; more: sums of sizes (``limits``, step 1).
            size = self.xp.maximum(size, raw) if len(self.added) == 1 else raw + self.summands
        return self.xp.where(self.xp.isfinite(self.t), size, 0.0)

    @cached_property
    def top(self) -> Floats:
        """max |t|, or of ``sizes``, (r, 1)."""
        return self.xp.max(self.sizes, axis=1, keepdims=True)

    @cached_property
    def mean(self) -> Floats:
        """√(Σ p t²), at least Σ p |t|, (r, 1)."""
        squares = self.xp.vecdot(self.p, self.sizes**2)
        return self.xp.sqrt(squares)[:, None]

    @cached_property
    def ordered(self) -> Floats:
        """The scores of each row in ascending order, (r, n)."""
        return self.xp.sort(self.t, axis=1)

    @cached_property
    def alike(self) -> Floats | float:
        """m_ij: the number of keys of the row with the same score (in base 2: up to whole numbers), or with the same
        one before terms are added, whichever is more."""
        with np.errstate(all="ignore"):  # what is masked becomes NaN, which equals nothing
            # Powers of 2 at scores that differ by whole numbers are rounded alike.
            t = self.t if self.spec.base != 2 else self.t % 1.0
        ordered = self.ordered if self.spec.base != 2 else self.xp.sort(t, axis=1)
        result = self._count_equal_scores(t, ordered)
        if not self.added:
            return result
        raw = self.xp.where(self.p > 0, self.raw, -self.xp.inf)
        before = self._count_equal_scores(raw, self.xp.sort(raw, axis=1))
        plain = isinstance(result, float) and isinstance(before, float)
        return 1.0 if plain else self.xp.maximum(result + self.xp.zeros_like(raw), before)

    def _count_equal_scores(self, t: Floats, ordered: Floats) -> Floats | float:
        # No row has two equal scores, which is the usual case.
        repeated = ordered[:, 1:] == ordered[:, :-1]
        finite = self.xp.isfinite(ordered[:, 1:])
        if not self.xp.any(repeated & finite):
            return 1.0
        xp, order = self.xp, self.xp.argsort(t, axis=1)
        # Groups of equal scores are numbered over all rows; each row starts a new group.
        first = xp.zeros_like(t[:, :1]) == 0
        changes = ordered[:, 1:] != ordered[:, :-1]
        new = xp.concat([first, changes], axis=1)
        group = xp.cumulative_sum(xp.reshape(new, (-1,)), axis=0) - 1
        counts = xp.reshape(xp.bincount(group)[group], t.shape)
        # The inverse of the order puts the counts back to their keys.
        return wide(xp.take_along_axis(counts, xp.argsort(order, axis=1), axis=1))

    def relative(self, how: Stores) -> tuple[Floats, Floats]:
        """Return E but for scores, and κ² of steps 1 and 2, each (r, 1)."""
        shifted = self.shifted(how)
        of_products = W * W * (self.width + 24) * self.reach**2
        kappa = of_products + EXPONENTIAL**2 + 2 * shifted**2
        of_scores = W * (self.width + 24) * self.reach
        return how.u + EXPONENTIAL + of_scores + shifted, kappa

    def stores(self, how: Stores) -> int:
        """Return how often a score may be stored: once more for each added array, or for sums of these alone."""
        if how.scores:
            return how.scores + len(self.added)
        return max(0, len(self.added) - 1)

    def shifted(self, how: Stores) -> Floats:
        """Return u (|z| + max{max |t|, |z|}), (r, 1), if differences to the largest score or a sink z are stored."""
        if not self.differences(how):
            return 0.0
        z = self.xp.abs(self.given["sink"])
        return how.u * (z + self.xp.maximum(self.top, z))

    def differences(self, how: Stores) -> bool:
        """Return whether t_j − m, m the largest score or the sink's, may be stored."""
        return how.scores > 0 and "sink" in self.given

    def slope(self, how: Stores) -> float:
        """Bound the relative error of a score."""
        counted = self.stores(how) + self.differences(how)
        return counted * how.u + (TANH if self.cap else 0.0)

    def squares(self, how: Stores) -> Floats:
        """Return m_j p_j² h_j², (r, n), as float32."""
        _, kappa = self.relative(how)
        p = narrow(self.p)
        result = p * p
        # A stored difference is off by u (|t| + M), whose square is at most 2 u² (t² + M²).
        counted = self.stores(how) + 2 * self.differences(how)
        # tanh of a cap has an error of its own.
        of_scores = counted * how.u**2 + (TANH**2 if self.cap else 0)
        result *= narrow(how.u**2 + kappa) + (
            of_scores * narrow(self.sizes) ** 2 if of_scores else 0
        )
        # m_j is how many keys are alike, a number or an array.
        return result if isinstance(self.alike, float) else result * narrow(self.alike)

    def tolerance(self, how: Stores, lam: float) -> Floats:
        """Return min(λ σ, the worst effect of roundings) + r + half an ulp for each element alone, (r, d_v)."""
        sigma, spread = self.noise(how)
        typical = lam * sigma * how.linear
        of_mean = how.mean * self.xp.abs(self.o)
        first = self.xp.minimum(typical + of_mean, self.worst(how)[0])
        return self._add_output_rounding(how, first + self.second(how, lam * spread))

    def _add_output_rounding(self, how: Stores, moved: Floats) -> Floats:
        """Add float64's own error and the rounding of the output."""
        inside = moved + self.error
        return inside + half_ulp(how.last, self.xp.abs(self.o) + inside)

    def lawless(self, how: Stores) -> Floats:
        """Return the ``tolerance`` without any law of rounding: all roundings may err together."""
        first, moved = self.worst(how)
        return self._add_output_rounding(how, first + self.second(how, moved))

    def worst(self, how: Stores) -> tuple[Floats, Floats]:
        """Return the worst first order, Σ p E max{|v|, |v − o|}, for each element, (r, d_v), and Σ p E, (r, 1)."""
        least, _ = self.relative(how)
        # A copy, as it is multiplied in place.
        xp = self.xp
        p = narrow(self.p, copy=True)
        slope = self.slope(how)
        p *= narrow(least + slope * self.sizes if slope else least)
        sizes = xp.abs(self.values)
        own = wide(p @ narrow(sizes))
        exact_total = xp.sum(p, axis=1, keepdims=True, dtype=xp.float64)
        total = exact_total + xp.sqrt(self.rest(how))
        lost = self.eta(how) * xp.sum(sizes, axis=0, dtype=xp.float64)
        lost = lost + 3 * (len(self.values) + 16) * W * self.largest
        of_output = own + xp.abs(self.o) * total
        return (of_output * SLACK + lost) * how.linear, total * SLACK

    def noise(self, how: Stores) -> tuple[Floats, Floats]:
        """Return σ of each element before the output is rounded, (r, d_v), and √(Σ m p² h²), (r, 1)."""
        if how not in self.noises:
            xp, (n, d), squares = self.xp, self.values.shape, self.squares(how)
            result = xp.zeros((len(squares), 2 * d + 1))
            lengths = xp.zeros(d)
            # Widened in parts, since keys and values may be many and in float32.
            for keys in _parts(n):
                v = narrow(self.values[keys])
                # One product for the sums with v², v and 1.
                ones = xp.ones_like(v[:, :1])
                powers = xp.concat([v * v, v, ones], axis=1)
                result += squares[:, keys] @ powers
                lengths += xp.sum(wide(self.values[keys]) ** 2, axis=0)
            # Σ m p² h² (v − o)², expanded so that no array of (r, n, d_v) is needed.
            first_moments = result[:, d : 2 * d]
            second_moments = self.o**2 * result[:, 2 * d :]
            cross_moments = 2 * self.o * first_moments
            apart = result[:, :d] - cross_moments + second_moments
            eta, sums = self.least(how)
            tiny = eta * lengths + sums * self.largest**2
            squared = xp.maximum(result[:, :d], apart) * SLACK
            whole = squared + self.rest(how) * self.o**2 + tiny
            # Several tests ask for the same noise, which is the costly part of a limit.
            own_sums = result[:, 2 * d :]
            self.noises[how] = xp.sqrt(whole), xp.sqrt(own_sums)
        return self.noises[how]

    def rest(self, how: Stores) -> Floats:
        """Return the square of the rounding error of a sink, (r, 1)."""
        return self.sink**2 * self.relative(how)[0] ** 2

    @property
    def sink(self) -> Floats:
        """The weight of a sink, (r, 1)."""
        return self.xp.clip(1 - self.xp.sum(self.p, axis=1, keepdims=True), 0, None)

    def eta(self, how: Stores) -> Floats:
        """Return η of each row, (r, 1); in FP8 stored exponentials are divided by their sum later."""
        if how.output is None:
            ones = self.xp.ones_like(self.p[:, :1])
            return float(how.format.eta) * ones
        most = self.xp.maximum(self.xp.max(self.p, axis=1, keepdims=True), self.sink)
        return float(how.format.eta) / how.times * most

    def least(self, how: Stores) -> tuple[Floats, float]:
        """Return η² of each row, (r, 1), and 3 (n + 16) w² of steps 1 and 2."""
        of_sums = 3 * (len(self.values) + 16) * W**2
        return self.eta(how) ** 2, of_sums

    def curvature(self, how: Stores, beta: Floats) -> Floats:
        """Return e^{2Ē} p (E + β) (½ (E + β) + 2u) of step 3, (r, n)."""
        least, beta = self._exponent_errors_by_format(how, beta)
        slope = self.slope(how)
        moved = least + slope * self.sizes + beta
        grown = _capped_exponential_growth(least + beta + slope * self.top) * how.linear
        return grown * self.p * moved * (moved / 2 + 2 * how.u)

    def _exponent_errors_by_format(self, how: Stores, beta: Floats) -> tuple[Floats, Floats]:
        """Return E but for scores, and β, of step 3; in FP8, E without u and the worst β."""
        least, _ = self.relative(how)
        if how.output is None:
            return least, beta
        sharp = least - how.u
        return sharp, sharp + self.slope(how) * self.mean

    def second(self, how: Stores, beta: Floats) -> Floats:
        """r of step 3 for single elements, (r, d_v)."""
        least, beta = self._exponent_errors_by_format(how, beta)
        a, b = least + beta, self.slope(how)
        mean = self.mean if b else 0.0
        # e^a − 1 − a is at most a²/2 times e^a.
        of_first = a * (a / 2 + 2 * how.u)
        of_second = (a + 2 * how.u) * b * mean
        total = of_first + of_second + b * b * mean**2 / 2
        # The growth bounds the rest of the exponential series.
        return (
            _capped_exponential_growth(a + b * self.top)
            * how.linear
            * total
            * (self.largest + self.xp.abs(self.o))
        )


#: Blocks by the index of their head.
Made = dict[tuple[int, ...], QueryBlock]


def _capped_exponential_growth(most: Floats) -> Floats:
    """Return e^{2Ē}, at most e^80: there r is more than 2 Σ A |D|, which bounds every mean."""
    xp = namespace_of(most)
    return xp.exp(xp.minimum(2 * most, 80.0))


def applies(spec: Attention, inputs: Mapping[str, object]) -> bool:
    """Return whether attention can be computed in blocks: masked scaled dot products, caps, biases, sinks."""
    try:
        of = apart(spec, inputs)
    except Refused:
        return False
    # NaN or +∞ among added terms has no limit.
    known = all(bool(namespace_of(a).all(namespace_of(a).isfinite(a))) for a in of.added)
    return known and plain_bound.applies(replace(of.spec, softcap=None, base=None), of.given)


def every_head(
    spec: Attention, inputs: Mapping[str, object]
) -> tuple[Attention, list[Head], tuple[int, ...]]:
    """Return the specification, the heads, and the shape of the output; document masks become given masks.

    Raises Refused for attention that cannot be split into blocks, InputError for inputs that do not fit.
    """
    # Biases and caps are split off, since blocks know products and masks alone.
    of = apart(spec, inputs)
    spec, arrays = of.spec, of.given
    if spec.documents:
        spec, arrays = plain_bound.of_places(spec, arrays)
    arrays = checked(replace(spec, softcap=None), arrays, widened=False)
    n_q = arrays["q"].shape[-2]
    shape = (*front(spec, arrays), n_q, arrays["v"].shape[-1])
    added = spread(of)
    return (
        spec,
        # The added terms are cut by head as well.
        [replace(h, added=tuple(a[h.index] for a in added)) for h in heads(spec, arrays)],
        shape,
    )


def allowed(head: Head, rows: np.ndarray, keys: slice) -> Any:
    """Return which keys of a range some queries, in any order, may see, (r, n)."""
    xp: Any = namespace_of(head.q)
    # Consecutive rows have one mask, other rows a mask each.
    together = bool((np.diff(rows) == 1).all())
    pairs = [(rows[0], rows[-1])] if together else zip(rows, rows, strict=True)
    runs = [slice(int(i), int(j) + 1) for i, j in pairs]
    masks = [head.seen.mask(run, keys) for run in runs]
    shapes = [(run.stop - run.start, keys.stop - keys.start) for run in runs]
    every = (
        xp.broadcast_to(xp.asarray(True), of) if s is None else s
        for s, of in zip(masks, shapes, strict=True)
    )
    return xp.concat(list(every))


def block(spec: Attention, head: Head, rows: np.ndarray, keys: slice | None = None) -> QueryBlock:
    """Run the definition on these queries; ``keys`` are by default those that any of them may see."""
    if keys is None:
        end = int(rows[-1]) + 1
        keys = slice(*head.seen.span(int(rows[0]), end))
        # Queries that see no key get one masked key, since arrays must not be empty.
        keys = keys if keys.stop > keys.start else slice(0, 1)
    own = alone(spec)
    xp: Any = namespace_of(head.q)
    inputs: dict[str, Any] = {"q": wide(head.q[rows]), "k": head.k[keys], "v": head.v[keys]}
    # A mask array of the head alone, whatever masks the specification has.
    if own.mask:
        inputs["mask"] = allowed(head, rows, keys)
    if head.sink is not None:
        inputs["sink"] = xp.asarray([head.sink], dtype=inputs["q"].dtype)
    added = [wide(a[rows][:, keys]) for a in head.added]
    if added:
        own, inputs["bias"] = replace(own, bias=True), sum(added[1:], start=added[0])
    with np.errstate(all="ignore"):
        result = _run_definition_in_parts(own, inputs)
    free = result["scaled"] if "scaled" in result else result["scores"]
    raw = result.get("capped", free)
    t = result.get("masked", result.get("biased", raw))
    # Keys without weight whatever roundings do count as masked (``limits``, step 3).
    if added:
        magnitude = sum(map(xp.abs, added), start=xp.abs(raw))
        t = xp.where(without_weight(t, magnitude), -xp.inf, t)
    lengths = (float(norms(wide(inputs["k"][part])).max()) for part in _parts(len(inputs["k"])))
    longest = max(lengths)
    scale = abs(steps_factor(spec.scale, spec.base, head.q.shape[1]))
    reach = norms(inputs["q"])[:, None] * (scale * UNIT * longest)
    # A sink's logit counts as a score.
    reach = xp.maximum(reach, abs(head.sink or 0.0))
    # Arrays that add 0 to every key with weight cost no rounding.
    some = tuple(a for a in added if xp.any((a != 0) & (result["weights"] > 0)))
    return QueryBlock(
        own,
        inputs,
        rows,
        t,
        result["weights"],
        result["output"],
        inputs["v"],
        reach,
        raw,
        free,
        some,
    )


def _run_definition_in_parts(spec: Attention, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of the definition: steps up to the mask by parts of the keys, the output as a sum over these.

    The sum has the same terms as usual in another order, which ``QueryBlock.error`` covers.
    """
    n = len(inputs["k"])
    xp: Any = namespace_of(inputs["q"])
    # Few keys need no parts.
    if n <= _KEYS:
        arrays = {name: a if name == "mask" else wide(a) for name, a in inputs.items()}
        return spec.trace(**arrays)
    steps = {step.name: step for step in spec.pipeline(frozenset(inputs))}
    # The softmax and the output need all keys at once.
    after = [steps.pop(name) for name in ("weights", "output")]
    # Scores before the scale are not used later, and would double the memory.
    wanted = [name for name in steps if name != "scores" or "scaled" not in steps]
    result = {name: xp.empty((len(inputs["q"]), n)) for name in wanted}
    for keys in _parts(n):
        some = {**inputs, "k": wide(inputs["k"][keys])}
        some |= {name: inputs[name][:, keys] for name in ("mask", "bias") if name in inputs}
        outcome = run_steps(steps.values(), some)
        for name, whole in result.items():
            whole[:, keys] = outcome[name]
    weights = run_steps(after[:1], {**inputs, **result})["weights"]
    return {**result, "weights": weights, "output": _weigh_values_in_parts(weights, inputs["v"])}


def _weigh_values_in_parts(w: Floats, v: Floats) -> Floats:
    """Return w v, (r, d_v), widening v to float64 in parts."""
    return sum(w[:, keys] @ wide(v[keys]) for keys in _parts(len(v)))


def wide(a: Floats) -> Floats:
    """Convert to float64."""
    xp = namespace_of(a)
    return xp.astype(a, xp.float64, copy=False)


def narrow(a: Floats, copy: bool = False) -> Floats:
    """Convert to float32, in which NumPy takes half the time; tensors to float64, as a device may truncate factors.

    An array of that type is copied only if ``copy``.
    """
    xp = namespace_of(a)
    return xp.astype(a, xp.float64 if is_tensor(a) else xp.float32, copy=copy)


def blocks(spec: Attention, head: Head, rows: np.ndarray) -> Iterator[QueryBlock]:
    """Yield the blocks of the queries ``rows``, which are in ascending order."""
    for some in together(len(rows), len(head.k), QUERIES):
        yield block(spec, head, rows[some])


def together(n_q: int, n_k: int, most: int | None = None) -> Iterator[np.ndarray]:
    """Yield the rows 0 to n_q − 1 in parts of a bounded number of scores, and of at most ``most`` rows."""
    # Many keys leave few rows in a block, but at least ``_FEW``.
    count = min(most or n_q, max(_FEW, _SCORES // n_k))
    return (np.arange(some.start, some.stop) for some in plain_bound.pieces(n_q, count))
