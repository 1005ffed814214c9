"""The fast bound of plain attention, straight from its inputs; ``enclosed`` has that of its variants.

``PlainBound`` has dot products, a scale, masks, heads, shared keys and values, sinks. Scores and masks come from the
steps of the definition themselves, run in float64. With u = 2⁻⁵³ a score passes d + 4 roundings there, so |t̂ − t| ≤
(d + 8) u |t|^, |t|^ being the sums of absolute values as float64 makes them of |q| and |k|.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.arrays.tensors import dtype_kind, is_tensor
from symattn.attention.enclosing.pattern import Head, front, heads
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.distances import Floats, U, ValueColumns
from symattn.bounds.exponents import ScoreExponents
from symattn.bounds.float_worst_case import Rows, enlarged, shares
from symattn.bounds.growth import g
from symattn.bounds.reference import usual
from symattn.bounds.rule import limit
from symattn.bounds.scores import LOG2_E, SCALE_ROUNDINGS, factor_roundings
from symattn.document.errors import Undecided

_BLOCK = 1 << 18  # scores at a time
_MANY = 1 << 14
LARGEST = 1e140  # beyond, and below its inverse, squares of inputs leave the range
_STEPS = {"k_shared", "v_shared", "scores", "scaled", "masked", "weights", "lse", "output"}


def applies(spec: Attention, inputs: Inputs) -> bool:
    """Return whether the bound for these can be evaluated fast."""
    rest = {"q", "k", "v", "mask", "keep", "doc", "doc_q", "doc_k", "scale", "sink"}
    if (
        not usual_or_sink(spec)
        or spec.mask == "additive"
        or not set(inputs) <= rest
        or not {"q", "k", "v"} <= set(inputs)
    ):
        return False
    if not {step.name for step in spec.pipeline(frozenset(inputs))} <= _STEPS:
        return False
    given = [inputs[n] for n in ("q", "k", "v", "scale", "sink") if n in inputs]
    return all(prod(a.shape) > 0 and moderate(a) for a in given)


def usual_or_sink(spec: Attention) -> bool:
    """Return whether scores are scaled dot products, and weights their masked softmax, with or without a sink."""
    return usual(spec if spec.sink is None else replace(spec, sink=None))


def _kind(precision: Precision, inputs: dict[str, Any]) -> np.dtype[Any]:
    """float32 for many scores of inputs of middling size, where the bound is far above float32's own roundings."""
    many = inputs["q"].shape[-2] * inputs["k"].shape[-2] > _MANY
    middling = all(2.0**-20 <= np.abs(a).max() <= 2.0**40 for a in inputs.values() if a.dtype.kind == "f")
    return np.dtype(np.float32 if many and middling and precision.score.u > 2.0**-30 else np.float64)


def moderate(a: object, most: float = LARGEST) -> bool:
    """Return whether all entries are finite, and zero or between 1/``most`` and ``most`` in size."""
    array = a if is_tensor(a) else np.asarray(a)
    xp: Any = namespace_of(array)
    sizes = xp.abs(array if dtype_kind(array) == "f" else xp.astype(array, xp.float64))
    small = float(xp.where(sizes > 0, sizes, 1.0).min())
    return bool(xp.all(xp.isfinite(sizes)) and float(sizes.max()) < most and small > 1 / most)


def of_places(spec: Attention, inputs: dict[str, Any]) -> tuple[Attention, dict[str, Any]]:
    """The specification and inputs by which masks come tile by tile; those of documents come as a whole."""
    if not spec.documents:
        return spec, inputs
    mask = next(step for step in spec.pipeline(frozenset(inputs)) if step.name == "masked")
    xp = namespace_of(inputs["q"])
    scores = xp.zeros((*front(spec, inputs), inputs["q"].shape[-2], inputs["k"].shape[-2]), dtype=xp.float32)
    whole = xp.isfinite(mask.run(scores, *(inputs[n] for n in mask.of[1:])))
    return by_mask(spec), {n: inputs[n] for n in ("q", "k", "v", "sink") if n in inputs} | {"mask": whole}


def by_mask(spec: Attention) -> Attention:
    """Return the same attention with one boolean mask in the place of all others."""
    places: dict[str, Any] = {"causal": False, "window": None, "block": None, "prefix": None, "padding": False}
    return replace(spec, documents=False, mask="boolean", **places)


class ByHead:
    """The bound by heads and blocks of rows: ``allowed`` (…, n_q, d_v); its shares by step where they are wanted.

    ``last`` says that what the heads give is returned, and rounded for it.
    """

    def __init__(self, precision: Precision, shape: tuple[int, ...], shares: bool, last: bool = True) -> None:
        self.precision, self.wanted, self.last = precision, shares, last
        self.allowed, self.shares = np.empty(shape), dict[str, Floats]()

    def put(self, where: Any, scores: ScoreExponents, values: ValueColumns) -> None:
        """The rows of one block: M, and the last rounding; +∞ where an intermediate result could leave the range."""
        p, f = self.precision, self.precision.returned
        rows = Rows(p, scores, values)
        result = rows.found()
        last = (result.size + result.moved) * g(1, f) + float(f.eta) if self.last else np.zeros_like(result.moved)
        most = limit(p)
        over = result.vanishes | (scores.largest[:, 0] * (LOG2_E * 1.02) > most)
        over |= bool(values.total.max() * 1.02 > most)
        self.allowed[where] = np.where(over[:, None], np.inf, enlarged(result.moved + last))
        for name, part in ({**shares(rows, result.parts), "output": last} if self.wanted else {}).items():
            self.shares.setdefault(name, np.zeros_like(self.allowed))[where] = part


class PlainBound(ByHead):
    """The bound for one set of inputs, in tiles of some queries of one head and all keys."""

    def __init__(self, spec: Attention, inputs: Inputs, precision: Precision, shares: bool = False) -> None:
        arrays = {n: a if a.dtype.kind in "biu" else np.asarray(a, dtype=np.float64) for n, a in inputs.items()}
        self.spec, self.given, self.d = spec, arrays, int(arrays["q"].shape[-1])
        steps = {step.name: step for step in spec.pipeline(frozenset(inputs))}
        self.scaled = steps.get("scaled")
        self.kind = _kind(precision, arrays)
        axes = front(spec, arrays)
        super().__init__(precision, (*axes, arrays["q"].shape[-2], arrays["v"].shape[-1]), shares)
        with np.errstate(all="ignore"):  # what overflows becomes +∞, or undefined, which counts as +∞
            for head in heads(*of_places(spec, arrays)):
                self._of_head(head)

    def _of_head(self, head: Head) -> None:
        own = head.v if head.sink is None else np.vstack([head.v, np.zeros((1, head.v.shape[1]))])
        (n_q, _), (n_k, _) = head.q.shape, head.k.shape
        tile, values = _Tile(self, head), ValueColumns(own, self.kind)
        for rows in row_blocks(n_q, n_k):
            self.put((*head.index, rows), tile.scores(rows), values)

    def factor(self, scores: Floats, q: Floats, head: Head) -> Floats:
        """Scores of a head, scaled."""
        if self.scaled is None:
            return scores
        name = self.scaled.of[1] if len(self.scaled.of) > 1 else ""
        if name != "scale":
            return np.asarray(self.scaled.run(scores, *([q] if name else [])))
        own = self.given[name].reshape(-1)
        return np.asarray(scores * scores.dtype.type(own[head.index[-1] if len(own) > 1 else 0]))


class _Tile:
    """Scores of one head, block by block of queries."""

    def __init__(self, plain: PlainBound, head: Head) -> None:
        self.plain, self.head, self.kind = plain, head, plain.kind
        self.sizes = np.abs(head.k).astype(self.kind)
        whole = bool((head.q != 0).all() and (head.k != 0).all())
        self.marks = None if whole else (head.k != 0).astype(np.float32)
        p, f = plain.precision, plain.precision.between
        constant, d = SCALE_ROUNDINGS + factor_roundings(p, f), plain.d
        lengths = range(d, d + 1) if whole else range(d + 1)
        self.table = np.array([g(length + constant, f) for length in lengths], dtype=self.kind)
        longest = np.abs(head.q).sum(axis=-1).max(initial=0.0) + np.abs(head.k).sum(axis=-1).max(initial=0.0)
        largest = abs(float(plain.factor(np.ones((1, 1)), head.q[:1], head).max()))
        self.lost = float(longest + 2 * d + 1) * (d + SCALE_ROUNDINGS + 2) * LOG2_E * max(1.0, largest) * float(f.eta)

    def scores(self, rows: slice) -> ScoreExponents:
        """t and τ_j of step 1 for some queries."""
        plain, head = self.plain, self.head
        q = head.q[rows]
        t = plain.factor(q @ head.k.T, q, head)
        raw = np.abs(plain.factor(np.abs(q).astype(self.kind) @ self.sizes.T, q.astype(self.kind), head))
        tau = self._errors(q, raw)
        open_ = head.seen.tile(rows, slice(0, len(head.k)))
        every, largest = open_ is None, row_maxima(raw)
        if open_ is None:
            open_ = np.broadcast_to(True, t.shape)
        else:
            t, raw = np.where(open_, t, 0.0), np.where(open_, raw, 0)
        if head.sink is not None:
            t, raw = beside(t, head.sink), beside(raw, abs(head.sink))
            tau, open_ = beside(tau, 0), beside(open_, True)
        reach = row_maxima(raw)
        off = (plain.d + 8) * U * reach
        return ScoreExponents(t, off, open_, tau, np.maximum(largest, reach), head.sink is not None, every)

    def _errors(self, q: Floats, raw: Floats) -> Floats:
        if self.marks is None:
            return np.asarray(raw * self.table[0] + self.lost)
        terms = ((q != 0).astype(np.float32) @ self.marks.T).astype(np.int64)
        return np.asarray(raw * self.table[terms] + self.lost * (terms > 0))


def row_maxima(a: NDArray[Any]) -> Floats:
    """Row maxima as float64, (rows, 1)."""
    return np.asarray(a.max(axis=1, keepdims=True, initial=0), dtype=np.float64)


def beside(a: NDArray[Any], x: object) -> NDArray[Any]:
    """One more column, of x."""
    return np.concatenate([a, np.full((len(a), 1), x, a.dtype)], axis=1)


def row_blocks(n_q: int, n_k: int) -> Iterator[slice]:
    """So many queries at a time that their scores are not too many."""
    step = max(1, _BLOCK // max(n_k, 1))
    for start in range(0, n_q, step):
        yield slice(start, min(n_q, start + step))


def evaluate(
    spec: Attention, inputs: Inputs, precision: Precision, shares: bool = False
) -> tuple[Floats, dict[str, Floats]]:
    """The bound and its shares by step."""
    result = PlainBound(spec, inputs, precision, shares)
    return result.allowed, result.shares


def allowed(spec: Attention, inputs: Inputs, precision: Precision) -> Floats:
    """The bound for each element of the output, +∞ where nothing is said. For inputs for which it ``applies``."""
    try:
        return evaluate(spec, inputs, precision)[0]
    except Undecided:
        return np.full(shape_of(spec, inputs), np.inf)


def shape_of(spec: Attention, inputs: Inputs) -> tuple[int, ...]:
    """The shape of the output, for inputs for which the bound ``applies``."""
    q, v = inputs["q"], inputs["v"]
    lead = q.shape[:-2] if spec.head_axis else np.broadcast_shapes(q.shape[:-2], v.shape[:-2])
    return (*lead, q.shape[-2], v.shape[-1])
