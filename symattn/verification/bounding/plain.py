"""The fast bound of plain attention: dot products, a scale, masks, heads, shared keys and values, sinks.

Scores and masks come from the steps of the definition themselves, run in float64. With u = 2⁻⁵³ a score passes d + 4
roundings there, so |t̂ − t| ≤ (d + 8) u |t|^, |t|^ being the sums of absolute values as float64 makes them of |q| and
|k|.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.precision import Precision
from symattn.attention.flow import Step
from symattn.attention.spec import Attention
from symattn.errors import Undecided
from symattn.verification.bounding.distances import Floats, U, Values
from symattn.verification.bounding.exponents import Scores
from symattn.verification.bounding.floats import Rows, enlarged
from symattn.verification.bounding.growth import g
from symattn.verification.bounding.scores import LOG2_E, SCALE_ROUNDINGS, factor_roundings
from symattn.verification.bounding.shares import shares
from symattn.verification.reference import chain, usual, values_name
from symattn.verification.target import Inputs

_BLOCK = 1 << 18  # scores at a time
_MANY = 1 << 14
_LARGEST, _SMALLEST = 1e140, 1e-140  # beyond, squares of inputs leave the range
_STEPS = {"k_shared", "v_shared", "scores", "scaled", "masked", "weights", "lse", "output"}


def applies(spec: Attention, inputs: Inputs) -> bool:
    """Whether the bound for these can be evaluated fast."""
    rest = {"q", "k", "v", "mask", "keep", "doc", "doc_q", "doc_k", "scale", "sink"}
    if (
        not usual_or_sink(spec)
        or spec.mask == "additive"
        or not set(inputs) <= rest
        or not {"q", "k", "v"} <= set(inputs)
    ):
        return False
    if not {step.name for step in _steps(spec, frozenset(inputs))} <= _STEPS:
        return False
    given = [np.asarray(inputs[n]) for n in ("q", "k", "v", "scale", "sink") if n in inputs]
    return all(a.size > 0 and _moderate(a) for a in given)


def _steps(spec: Attention, names: frozenset[str]) -> tuple[Step, ...]:
    return spec.pipeline(names)


def usual_or_sink(spec: Attention) -> bool:
    """Whether scores are dot products with a scale, and weights their softmax under masks, with a sink or without."""
    return usual(replace(spec, sink=None))


def _kind(precision: Precision, sizes: dict[str, Any]) -> np.dtype[Any]:
    """float32 for many scores of inputs of middling size, where the bound is far above float32's own roundings."""
    many = sizes["q"].shape[-2] * sizes["k"].shape[-2] > _MANY
    middling = all(2.0**-20 <= a.max() <= 2.0**40 for a in sizes.values() if a.dtype.kind == "f")
    return np.dtype(np.float32 if many and middling and precision.score.u > 2.0**-30 else np.float64)


def _moderate(a: NDArray[Any]) -> bool:
    sizes = np.abs(np.asarray(a, dtype=np.float64))
    small = sizes.min(initial=1.0, where=sizes > 0)
    return bool(np.isfinite(sizes).all() and sizes.max() < _LARGEST and small > _SMALLEST)


class Plain:
    """The bound for one set of inputs: ``allowed`` (…, n_q, d_v), and shares of it by step where they are wanted."""

    def __init__(
        self,
        spec: Attention,
        inputs: Inputs,
        precision: Precision,
        shares: bool = False,
        held: dict[tuple[int, ...], Values] | None = None,
    ) -> None:
        self.spec, self.precision, self.wanted, self.made = spec, precision, shares, {} if held is None else held
        self.steps = _steps(spec, frozenset(inputs))
        given = {n: a if a.dtype.kind in "biu" else np.asarray(a, dtype=np.float64) for n, a in inputs.items()}
        sizes = {n: np.abs(a) if a.dtype.kind == "f" else a for n, a in given.items()}
        names = [n for n in chain(self.steps) if n != "masked"]
        self.masked = len(names) < len(chain(self.steps))
        self.held = values_name(self.steps)
        self.keys = next(s for s in self.steps if s.name == "scores").of[:2]
        with np.errstate(all="ignore"):  # what overflows becomes +∞, or undefined, which counts as +∞
            self.values = _run(self.steps, given, {chain(self.steps)[-1], self.held})
            self.kind = next(iter(self.made.values())).kind if self.made else _kind(precision, sizes)
            sizes = {n: a.astype(self.kind) if a.dtype.kind == "f" else a for n, a in sizes.items()}
            self.sizes = _run(self.steps, sizes, {names[-1]})
            self.t, self.raw = self.values[chain(self.steps)[-1]], np.abs(self.sizes[names[-1]])
            self.d = int(given["q"].shape[-1])
            self.terms = self._terms(given)
            self._result()

    def _terms(self, given: dict[str, Any]) -> Any:
        """How many products of each score are not zero: one number, or for each."""
        if all((given[n] != 0).all() for n in ("q", "k")):
            return self.d
        marks = {n: (a != 0).astype(np.float32) if n in ("q", "k", "v") else a for n, a in given.items()}
        return _run(self.steps, marks, {"scores"})["scores"].astype(np.int64)

    def _result(self) -> None:
        lead, (n_q, n_k), d_v = self.t.shape[:-2], self.t.shape[-2:], self.values[self.held].shape[-1]
        shape = (*np.broadcast_shapes(lead, self.values[self.held].shape[:-2]), n_q, d_v)
        self.allowed = np.empty(shape)
        self.shares: dict[str, Floats] = {}
        v = np.broadcast_to(self.values[self.held], (*shape[:-2], n_k, d_v))
        every = [np.broadcast_to(a, (*shape[:-2], n_q, n_k)) for a in (self.t, self.raw)]
        terms = self.terms if isinstance(self.terms, int) else np.broadcast_to(self.terms, every[0].shape)
        for index in np.ndindex(*shape[:-2]):
            logit = self._logit(index)
            if index not in self.made:
                own = v[index] if logit is None else np.vstack([v[index], np.zeros((1, d_v))])
                self.made[index] = Values(own, self.kind)
            values = self.made[index]
            t, raw = (a[index] for a in every)
            count = terms if isinstance(terms, int) else terms[index]
            for rows in _blocks(n_q, n_k):
                scores = self._scores(t[rows], raw[rows], count if isinstance(count, int) else count[rows], logit)
                found = Rows(self.precision, scores, values)
                largest = raw[rows].max(axis=1) if self.masked else found.exponents.largest[:, 0]
                self._put((*index, rows), found, largest)

    def _logit(self, index: tuple[int, ...]) -> float | None:
        if self.spec.sink is None:
            return None
        if self.spec.sink == "zero":
            return 0.0
        z = np.asarray(self.values["sink"], dtype=np.float64)
        return float(z[index[-1]] if self.spec.heads > 1 else z.reshape(-1)[0])

    def _scores(self, t: Floats, raw: Floats, terms: Any, logit: float | None) -> Scores:
        open_ = np.isfinite(t) if self.masked else np.broadcast_to(True, t.shape)
        tau = self._errors(raw, terms)
        every = not self.masked or bool(open_.all())
        if not every:
            t, raw = np.where(open_, t, 0.0), np.where(open_, raw, 0)
        if logit is not None:
            t, raw = _beside(t, logit), _beside(raw, abs(logit))
            tau, open_ = _beside(tau, 0), _beside(open_, True)
        return Scores(t, raw, open_, (self.d + 8) * U, tau, logit is not None, every)

    def _errors(self, raw: Floats, terms: Any) -> Floats:
        """τ_j of step 1."""
        p, f = self.precision, self.precision.between
        constant = SCALE_ROUNDINGS + factor_roundings(p, f)
        table = np.array([g(k + constant, f) for k in self._lengths(terms)], dtype=self.kind)
        lost = self._underflow() * float(f.eta)
        if isinstance(terms, int):
            return np.asarray(raw * table[0] + lost)
        return np.asarray(raw * table[terms] + lost * (terms > 0))

    def _lengths(self, terms: Any) -> range:
        return range(terms, terms + 1) if isinstance(terms, int) else range(self.d + 1)

    def _underflow(self) -> float:
        """What multiplies η in the errors of scores, as in ``scores``."""
        q, k = (self.sizes[n].astype(np.float64) for n in self.keys)
        each = q.sum(axis=-1).max() + k.sum(axis=-1).max() + 2 * self.d + 1
        most = self.terms if isinstance(self.terms, int) else int(self.terms.max(initial=0))
        return float(each * (most + SCALE_ROUNDINGS + 2) * LOG2_E * self._largest_scale())

    def _largest_scale(self) -> float:
        scale = self.spec.scale
        if scale == "given":
            return max(1.0, float(self.sizes["scale"].max()))
        return 1.0 if scale is None or isinstance(scale, str) else max(1.0, abs(float(scale)))

    def _put(self, where: Any, rows: Rows, largest: Floats) -> None:
        """The last rounding; +∞ where an intermediate result could leave the range."""
        p, f, values, found = self.precision, self.precision.returned, rows.values, rows.found()
        last = (found.size + found.moved) * g(1, f) + float(f.eta)
        limit = float(min(x.largest for x in (p.score, p.accumulate, f)))
        over = found.vanishes | (largest * (LOG2_E * 1.02) > limit)
        over |= bool(values.total.max() * 1.02 > limit)
        whole = np.where(over[:, None], np.inf, enlarged(found.moved + last))
        self.allowed[where] = whole
        for name, part in ({**shares(rows, found.parts), "output": last} if self.wanted else {}).items():
            self.shares.setdefault(name, np.zeros_like(self.allowed))[where] = part


def _run(steps: tuple[Step, ...], given: dict[str, Any], wanted: set[str]) -> dict[str, Any]:
    """The arrays of a run up to the last one that is wanted, but not the weights."""
    values, missing = dict(given), wanted - given.keys()
    for step in steps:
        if missing and step.name != "weights":
            values[step.name] = step.run(*[values[name] for name in step.of])
            missing = missing - {step.name}
    return values


def _beside(a: NDArray[Any], x: Any) -> NDArray[Any]:
    """One more column, of x."""
    return np.concatenate([a, np.full((len(a), 1), x, a.dtype)], axis=1)


def _blocks(n_q: int, n_k: int) -> Iterator[slice]:
    step = max(1, _BLOCK // max(n_k, 1))
    for start in range(0, n_q, step):
        yield slice(start, min(n_q, start + step))


def evaluate(
    spec: Attention, inputs: Inputs, precision: Precision, shares: bool = False
) -> tuple[Floats, dict[str, Floats]]:
    """The bound and its shares by step. Queries that no mask tells apart come in blocks that stay in the cache."""
    held: dict[tuple[int, ...], Values] = {}
    found = [Plain(spec, part, precision, shares, held) for part in _parts(spec, inputs)]
    if len(found) == 1:
        return found[0].allowed, found[0].shares
    whole = np.concatenate([part.allowed for part in found], axis=-2)
    return whole, {n: np.concatenate([part.shares[n] for part in found], axis=-2) for n in found[0].shares}


def _parts(spec: Attention, inputs: Inputs) -> Iterator[Inputs]:
    q, n_k = inputs["q"], inputs["k"].shape[-2]
    if spec.masks_anything or q.ndim > 2 or q.shape[0] * n_k <= _BLOCK:
        yield inputs
        return
    for rows in _blocks(q.shape[0], n_k):
        yield {**inputs, "q": q[rows]}


def allowed(spec: Attention, inputs: Inputs, precision: Precision) -> Floats:
    """The bound for each element of the output, +∞ where nothing is said. For inputs for which it ``applies``."""
    try:
        return evaluate(spec, inputs, precision)[0]
    except Undecided:
        return np.full(_shape(spec, inputs), np.inf)


def _shape(spec: Attention, inputs: Inputs) -> tuple[int, ...]:
    q, v = inputs["q"], inputs["v"]
    lead = q.shape[:-2] if spec.heads > 1 else np.broadcast_shapes(q.shape[:-2], v.shape[:-2])
    return (*lead, q.shape[-2], v.shape[-1])
