"""The fast bound of plain attention, directly from its inputs; ``enclosed`` has that of its variants.

``PlainBound`` has dot products, a scale, masks, heads, shared keys and values, sinks. Scores and masks come from the
steps of the definition themselves, run in float64. With u = 2⁻⁵³ a score passes d + 4 roundings there, so |t̂ − t| ≤
(d + 8) u |t|^, |t|^ being the sums of absolute values as float64 makes them of |q| and |k|.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.enclosing.bounds import U
from symattn.arrays.enclosing.exponential import Floats
from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.arrays.tensors import dtype_kind, is_tensor
from symattn.attention.enclosing.pattern import Head, front, heads
from symattn.attention.spec import Attention
from symattn.bounds import rule
from symattn.bounds.called_target import Inputs
from symattn.bounds.distances import ValueColumns
from symattn.bounds.exponents import ScoreExponents
from symattn.bounds.float_worst_case import Rows, shares
from symattn.bounds.growth import g
from symattn.bounds.reference import USUAL_STEPS, float64_inputs, has_usual_weights
from symattn.bounds.scores import LOG2_E, SCALE_ROUNDINGS, factor_roundings
from symattn.document.errors import Undecided

_SHARP = 2.0**-40  # errors of scores up to this are taken to be as large as those of forbidden ones
BLOCK = 1 << 18  # scores of a head at a time
TOGETHER = 1 << 16  # scores of several heads at a time
# Heads with fewer scores are computed in float64, whose cost is then small.
_MANY = 1 << 14
LARGEST = 1e140  # beyond, and below its inverse, squares of inputs leave the range


def applies(spec: Attention, inputs: Inputs) -> bool:
    """Return whether the bound for these can be evaluated fast."""
    rest = {"q", "k", "v", "mask", "keep", "doc", "doc_q", "doc_k", "scale", "sink"}
    if not has_usual_weights(spec) or spec.mask == "additive":
        return False
    if not {"q", "k", "v"} <= set(inputs) <= rest:
        return False
    if not {step.name for step in spec.pipeline(frozenset(inputs))} <= USUAL_STEPS:
        # ``enclosed`` is for other steps.
        return False
    # Empty arrays have no extremes, and squares of extreme inputs leave the range.
    arrays = [inputs[n] for n in ("q", "k", "v", "scale", "sink") if n in inputs]
    return all(prod(a.shape) > 0 and moderate(a) for a in arrays)


def moderate(a: object, most: float = LARGEST) -> bool:
    """Return whether all entries are finite, and zero or between 1/``most`` and ``most`` in size."""
    array = a if is_tensor(a) else np.asarray(a)
    xp: Any = namespace_of(array)
    floats = array if dtype_kind(array) == "f" else xp.astype(array, xp.float64)
    sizes = xp.abs(floats)
    small = float(xp.where(sizes > 0, sizes, 1.0).min())
    finite = xp.all(xp.isfinite(sizes))
    return bool(finite and float(sizes.max()) < most and small > 1 / most)


def of_places(spec: Attention, inputs: dict[str, Any]) -> tuple[Attention, dict[str, Any]]:
    """Return a specification and inputs whose document masks are one array, which is cut into tiles."""
    # The definition itself says which keys documents hide: their scores become −∞.
    pipeline = spec.pipeline(frozenset(inputs))
    mask = next(step for step in pipeline if step.name == "masked")
    xp = namespace_of(inputs["q"])
    n_q = inputs["q"].shape[-2]
    n_k = inputs["k"].shape[-2]
    scores = xp.zeros((*front(spec, inputs), n_q, n_k), dtype=xp.float32)
    operands = (inputs[n] for n in mask.of[1:])
    masked = mask.run(scores, *operands)
    whole = xp.isfinite(masked)
    plain_inputs = {n: inputs[n] for n in ("q", "k", "v", "sink") if n in inputs}
    return by_mask(spec), plain_inputs | {"mask": whole}


def by_mask(spec: Attention) -> Attention:
    """Return the same attention with one boolean mask in place of all others."""
    places: dict[str, Any] = {
        "causal": False,
        "window": None,
        "block": None,
        "prefix": None,
        "padding": False,
    }
    # The mask holds what all of them forbid together, so that no other one may stay.
    return replace(spec, documents=False, mask="boolean", **places)


class ByHead:
    """The bound by heads and blocks of rows: ``allowed`` (heads, n_q, d_v), and optionally its shares by step.

    ``last`` says that the heads' outputs are the result, and rounded as such.
    """

    def __init__(
        self, precision: Precision, shape: tuple[int, ...], shares: bool, last: bool = True
    ) -> None:
        self.precision = precision
        self.wanted = shares
        self.last = last
        by_heads = (prod(shape[:-2]), *shape[-2:])
        self.allowed = np.empty(by_heads)
        self.shares = dict[str, Floats]()

    def put(self, at: tuple[slice, slice], scores: ScoreExponents, values: ValueColumns) -> None:
        """Store the bound of one block: M and the last rounding; +∞ if an intermediate result could overflow."""
        p, f = self.precision, self.precision.returned
        rows = Rows(p, scores, values)
        result = rows.bound()
        last = (
            (result.size + result.moved) * g(1, f) + float(f.eta)
            if self.last
            else np.zeros_like(result.moved)
        )
        # H7; 2 % covers the roundings of float64.
        most = rule.limit(p)
        over = result.vanishes | (scores.largest[..., 0] * (LOG2_E * 1.02) > most)
        over |= values.total.max(axis=-1) * 1.02 > most
        # Enlarged by float64's own roundings and underflow in the last steps.
        self.allowed[at] = (result.moved + last) * (1 + 1000 * U) + 1e-290
        self.allowed[at][over] = np.inf
        # ∞ − ∞ and 0 · ∞ are no bound either.
        self.allowed[at][np.isnan(self.allowed[at])] = np.inf
        for name, part in (
            {**shares(rows, result.parts), "output": last} if self.wanted else {}
        ).items():
            self.shares.setdefault(name, np.zeros_like(self.allowed))[at] = part


class PlainBound(ByHead):
    """The bound for one set of inputs, in tiles of some queries of some heads and all keys."""

    def __init__(
        self, spec: Attention, inputs: Inputs, precision: Precision, shares: bool = False
    ) -> None:
        arrays = float64_inputs(inputs)
        self.spec = spec
        self.given = arrays
        self.d = int(arrays["q"].shape[-1])
        steps = {step.name: step for step in spec.pipeline(frozenset(inputs))}
        self.scaled = steps.get("scaled")
        # float32 for many scores of inputs of moderate size, if the bound is far above float32's roundings
        many = arrays["q"].shape[-2] * arrays["k"].shape[-2] > _MANY
        # Squares and products of such inputs stay in the range of float32.
        middling = all(
            2.0**-20 <= max(a.max(), -a.min()) <= 2.0**40
            for a in arrays.values()
            if a.dtype.kind == "f"
        )
        coarse = float(precision.score.u) > 2.0**-30
        self.kind = np.dtype(np.float32 if many and middling and coarse else np.float64)
        n_q = arrays["q"].shape[-2]
        shape = (*front(spec, arrays), n_q, arrays["v"].shape[-1])
        super().__init__(precision, shape, shares)
        self.widest = 0.0  # the largest distance of two scores of a row, at most
        sizes = (shape[-2], int(arrays["k"].shape[-2]))
        every = list(heads(*(of_places(spec, arrays) if spec.documents else (spec, arrays))))
        with np.errstate(
            all="ignore"
        ):  # what overflows becomes +∞, or undefined, which counts as +∞
            for some in pieces(len(every), TOGETHER // max(prod(sizes), 1)):
                tile = _Tile(self, every[some])
                for rows in pieces(sizes[0], BLOCK // max(sizes[1], 1)):
                    scores = tile.scores(rows)
                    top = np.where(scores.open_, scores.t, -np.inf).max(axis=-1, keepdims=True)
                    low = np.where(scores.open_, scores.t, np.inf).min(axis=-1, keepdims=True)
                    # A score that is no number has any distance, and NaN stays.
                    widest = float((top - low + 2 * scores.r).max())
                    self.widest = float(np.maximum(self.widest, widest))
                    self.put((some, rows), scores, tile.values)

    def factor(self, scores: Floats, q: Floats, some: Sequence[Head]) -> Floats:
        """Return the scores of some heads, scaled."""
        if self.scaled is None:
            return scores
        # A scale of each head is an array, and is matched to heads here.
        name = self.scaled.of[1] if len(self.scaled.of) > 1 else ""
        if name != "scale":
            return np.asarray(self.scaled.run(scores, *([q] if name else [])))
        own = self.given[name].reshape(-1)
        factors = [own[head.index[-1] if len(own) > 1 else 0] for head in some]
        return np.asarray(scores * np.asarray(factors, dtype=scores.dtype)[:, None, None])


class _Tile:
    """Scores of some heads, block by block of queries, and their values."""

    def __init__(self, plain: PlainBound, some: Sequence[Head]) -> None:
        self.plain = plain
        self.heads = some
        self.kind = plain.kind
        arrays = ([getattr(head, name) for head in some] for name in "qkv")
        stacked = (np.stack(a) if len(a) > 1 else a[0][None] for a in arrays)
        self.q, self.k, v = stacked
        # The scale multiplies the queries once, in place of all scores.
        self.factored, sizes = (
            plain.factor(self.q, self.q, some),
            [np.abs(a) for a in (self.q, self.k)],
        )
        logits = [head.sink for head in some]
        self.sink = None if some[0].sink is None else np.array(logits)[:, None, None]
        self.values = ValueColumns(v if self.sink is None else with_zeros(v), self.kind)
        self.masked = some[0].seen.masked
        self.sizes = sizes[1].astype(self.kind)
        # A product with a zero is exact, so that sums with zeros pass fewer roundings.
        whole = all(a.min() > 0 for a in sizes)
        self.marks = None if whole else (self.k != 0).astype(np.float32)
        p, f = plain.precision, plain.precision.between
        constant, d = SCALE_ROUNDINGS, plain.d
        if p.factors is not None:
            constant += factor_roundings(p, f)
        lengths = range(d, d + 1) if whole else range(d + 1)
        # for sums of products that pass more than 100 roundings
        more = 1 + 2 * max(d - 64, 0) * self.values.roundoff
        # The table holds g for each number of nonzero products.
        self.table = np.array(
            [g(length + constant, f) * more for length in lengths], dtype=self.kind
        )
        longest = sum((a @ np.ones((d, 1))).max(axis=-2, keepdims=True) for a in sizes)
        # A scale above 1 enlarges what underflows before it.
        unit = np.ones((len(some), 1, 1))
        factors = plain.factor(unit, self.q[:, :1], some)
        largest = np.maximum(1.0, np.abs(factors))
        steps = d + SCALE_ROUNDINGS + 2
        products = (longest + 2 * d + 1) * steps
        lost = products * LOG2_E * largest * float(f.eta)
        self.lost = lost.astype(self.kind)

    def scores(self, rows: slice) -> ScoreExponents:
        """Return t and τ_j of step 1 for some queries."""
        plain = self.plain
        q = self.q[:, rows]
        factored = self.factored[:, rows]
        t = factored @ self.k.mT
        raw = np.abs(factored).astype(self.kind) @ self.sizes.mT
        if self.marks is None:
            # Without zeros in the inputs all sums have equally many products.
            tau = np.asarray(raw * self.table[0] + self.lost)
        else:
            terms = ((q != 0).astype(np.float32) @ self.marks.mT).astype(np.int64)
            tau = np.asarray(raw * self.table[terms] + self.lost * (terms > 0))
        open_ = self._keys_visible_to_rows(rows) if self.masked else None
        every, largest = open_ is None, row_maxima(raw)
        open_ = np.broadcast_to(True if open_ is None else open_, t.shape)
        reach = largest
        if not every:
            np.copyto(t, 0, where=~open_)
            # Forbidden keys may be huge: where that would matter, only visible keys count.
            if largest.max() * (plain.d + 8) * U > _SHARP:
                reach = row_maxima(raw * open_)
        # A sink is one more visible key with an exact score.
        if self.sink is not None:
            t = with_column(t, self.sink)
            tau = with_column(tau, 0)
            open_ = with_column(open_, True)
            reach = np.maximum(reach, np.abs(self.sink))
        off = (plain.d + 8) * U * reach
        return ScoreExponents(
            t, off, open_, tau, np.maximum(largest, reach), self.sink is not None, every
        )

    def _keys_visible_to_rows(self, rows: slice) -> NDArray[np.bool_] | None:
        """Return which keys the queries may see, (heads or 1, rows, n_k); None for all keys."""
        # Without a mask array all heads see the same keys.
        keys = slice(0, self.k.shape[-2])
        shared = self.heads[0].seen.given is None
        heads_of_tiles = self.heads[:1] if shared else self.heads
        tiles = [head.seen.tile(rows, keys) for head in heads_of_tiles]
        if all(tile is None for tile in tiles):
            return None
        # Beside tiles with a mask, one without is written out, so that all can be stacked.
        row_count = self.q[0, rows].shape[0]
        every = np.ones((row_count, keys.stop), dtype=bool)
        return np.stack([every if tile is None else tile for tile in tiles])


def row_maxima(a: np.ndarray) -> Floats:
    """Return the row maxima as float64, (…, rows, 1)."""
    return np.asarray(a.max(axis=-1, keepdims=True, initial=0), dtype=np.float64)


def with_column(a: np.ndarray, x: object) -> np.ndarray:
    """Append a column filled with x."""
    scalar = np.asarray(x, a.dtype)
    column = np.broadcast_to(scalar, (*a.shape[:-1], 1))
    return np.concatenate([a, column], axis=-1)


def with_zeros(v: np.ndarray) -> np.ndarray:
    """Return the values of heads with a sink's row of zeros."""
    return np.pad(v, ((0, 0), (0, 1), (0, 0)))


def pieces(n: int, size: int) -> Iterator[slice]:
    """Cut n rows or heads into pieces of this size, or of one, the last one perhaps smaller."""
    step = max(1, size)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


class Evaluated(NamedTuple):
    """A bound for each element of the output, +∞ where there is none, its shares by step, and ``widest``.

    No two scores of a row are more than ``widest`` apart, if that is a number.
    """

    allowed: Floats
    shares: dict[str, Floats]
    widest: float


def evaluate(
    spec: Attention, inputs: Inputs, precision: Precision, shares: bool = False
) -> Evaluated:
    """Return the bound for inputs for which it ``applies``, and optionally its shares by step."""
    q, v = inputs["q"], inputs["v"]
    # Without an axis of heads, values may have more leading axes than queries.
    lead = q.shape[:-2] if spec.head_axis else np.broadcast_shapes(q.shape[:-2], v.shape[:-2])
    shape = (*lead, q.shape[-2], v.shape[-1])
    try:
        result = PlainBound(spec, inputs, precision, shares)
    # Where a comparison of scores depends on rounding, no bound is claimed.
    except Undecided:
        return Evaluated(np.full(shape, np.inf), {}, np.inf)
    parts = {name: part.reshape(shape) for name, part in result.shares.items()}
    return Evaluated(result.allowed.reshape(shape), parts, result.widest)


def allowed(spec: Attention, inputs: Inputs, precision: Precision) -> Floats:
    """Return the bound alone, see ``evaluate``."""
    return evaluate(spec, inputs, precision).allowed
