"""The fast bound: of plain attention straight from its inputs, of its variants from a run on enclosures.

``Plain`` has dot products, a scale, masks, heads, shared keys and values, sinks. Scores and masks come from the steps
of the definition themselves, run in float64. With u = 2⁻⁵³ a score passes d + 4 roundings there, so |t̂ − t| ≤ (d + 8)
u |t|^, |t|^ being the sums of absolute values as float64 makes them of |q| and |k|.

``Enclosed`` has every softmax of scores that are made otherwise: rotated, capped, biased, with additive masks. The
scores are enclosed, |t̂ − t| is at most their radius, and ``scores`` gives τ_j. The values are inputs, which float64
holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.enclosure import Enclosure
from symattn.arrays.precision import Precision
from symattn.attention.flow import Step
from symattn.attention.spec import Attention
from symattn.errors import Refused, Undecided
from symattn.verification.bounding.arithmetic import number
from symattn.verification.bounding.distances import Floats, U, Values
from symattn.verification.bounding.exponents import Scores
from symattn.verification.bounding.floats import Rows, enlarged
from symattn.verification.bounding.growth import g
from symattn.verification.bounding.scores import LOG2_E, SCALE_ROUNDINGS, factor_roundings, score_errors
from symattn.verification.bounding.shares import shares
from symattn.verification.reference import Run, chain, run, usual, values_name
from symattn.verification.target import Inputs

_BLOCK = 1 << 18  # scores at a time
_MANY = 1 << 14
_LARGEST, _SMALLEST = 1e140, 1e-140  # beyond, squares of inputs leave the range
_LN2 = Enclosure(np.asarray(log(2)), np.asarray(2.0**-52))
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


def encloses(spec: Attention, inputs: Inputs) -> bool:
    """Whether a run on enclosures gives the bound: of a softmax, and of values that are inputs."""
    if spec.normaliser != "softmax" or spec.latent is not None or spec.dropout or not {"q", "k", "v"} <= set(inputs):
        return False
    steps = spec.pipeline(frozenset(inputs))
    if any(len(step.of) > 2 for step in steps if step.name in ("attended", "output")) or steps[-1].of[0] != "weights":
        return False
    given = [np.asarray(a) for a in inputs.values()]
    return all(a.size > 0 and _moderate(np.where(np.isneginf(a), 0.0, a)) for a in given if a.dtype.kind == "f")


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


class _Heads:
    """The bound by heads and blocks of rows: ``allowed`` (…, n_q, d_v); its shares by step where they are wanted."""

    spec: Attention
    precision: Precision
    kind: np.dtype[Any]
    wanted: bool = False

    def _result(self, shape: tuple[int, ...], v: Floats, made: dict[tuple[int, ...], Values]) -> None:
        """All blocks, for values (…, n_k, d_v); ``made`` holds what was made of these."""
        self.allowed, self.shares = np.empty(shape), dict[str, Floats]()
        (n_q, d_v), n_k = shape[-2:], v.shape[-2]
        v = np.broadcast_to(v, (*shape[:-2], n_k, d_v))
        for index in np.ndindex(*shape[:-2]):
            logit = self._logit(index)
            if index not in made:
                own = v[index] if logit is None else np.vstack([v[index], np.zeros((1, d_v))])
                made[index] = Values(own, self.kind)
            for rows in _blocks(n_q, n_k):
                scores = self._scores(index, rows, logit)
                self._put((*index, rows), Rows(self.precision, scores, made[index]))

    def _logit(self, index: tuple[int, ...]) -> float | None:
        raise NotImplementedError

    def _scores(self, index: tuple[int, ...], rows: slice, logit: float | None) -> Scores:
        raise NotImplementedError

    def _put(self, where: Any, rows: Rows) -> None:
        """The last rounding; +∞ where an intermediate result could leave the range."""
        p, f, values, found = self.precision, self.precision.returned, rows.values, rows.found()
        last = (found.size + found.moved) * g(1, f) + float(f.eta)
        limit = float(min(x.largest for x in (p.score, p.accumulate, f)))
        over = found.vanishes | (rows.scores.largest[:, 0] * (LOG2_E * 1.02) > limit)
        over |= bool(values.total.max() * 1.02 > limit)
        whole = np.where(over[:, None], np.inf, enlarged(found.moved + last))
        self.allowed[where] = whole
        for name, part in ({**shares(rows, found.parts), "output": last} if self.wanted else {}).items():
            self.shares.setdefault(name, np.zeros_like(self.allowed))[where] = part


class Plain(_Heads):
    """The bound for one set of inputs."""

    def __init__(
        self,
        spec: Attention,
        inputs: Inputs,
        precision: Precision,
        shares: bool = False,
        held: dict[tuple[int, ...], Values] | None = None,
    ) -> None:
        self.spec, self.precision, self.wanted = spec, precision, shares
        made = {} if held is None else held
        self.steps = _steps(spec, frozenset(inputs))
        given = {n: a if a.dtype.kind in "biu" else np.asarray(a, dtype=np.float64) for n, a in inputs.items()}
        sizes = {n: np.abs(a) if a.dtype.kind == "f" else a for n, a in given.items()}
        names = [n for n in chain(self.steps) if n != "masked"]
        self.masked = len(names) < len(chain(self.steps))
        self.keys = next(s for s in self.steps if s.name == "scores").of[:2]
        held_as = values_name(self.steps)
        with np.errstate(all="ignore"):  # what overflows becomes +∞, or undefined, which counts as +∞
            self.values = _run(self.steps, given, {chain(self.steps)[-1], held_as})
            self.kind = next(iter(made.values())).kind if made else _kind(precision, sizes)
            sizes = {n: a.astype(self.kind) if a.dtype.kind == "f" else a for n, a in sizes.items()}
            self.sizes = _run(self.steps, sizes, {names[-1]})
            t, raw = self.values[chain(self.steps)[-1]], np.abs(self.sizes[names[-1]])
            self.d = int(given["q"].shape[-1])
            self.terms = self._terms(given)
            v = self.values[held_as]
            lead = np.broadcast_shapes(t.shape[:-2], v.shape[:-2])
            self.t, self.raw = (np.broadcast_to(a, (*lead, *t.shape[-2:])) for a in (t, raw))
            if not isinstance(self.terms, int):
                self.terms = np.broadcast_to(self.terms, self.t.shape)
            self._result((*lead, t.shape[-2], v.shape[-1]), v, made)

    def _terms(self, given: dict[str, Any]) -> Any:
        """How many products of each score are not zero: one number, or for each."""
        if all((given[n] != 0).all() for n in ("q", "k")):
            return self.d
        marks = {n: (a != 0).astype(np.float32) if n in ("q", "k", "v") else a for n, a in given.items()}
        return _run(self.steps, marks, {"scores"})["scores"].astype(np.int64)

    def _logit(self, index: tuple[int, ...]) -> float | None:
        if self.spec.sink is None:
            return None
        if self.spec.sink == "zero":
            return 0.0
        z = np.asarray(self.values["sink"], dtype=np.float64)
        return float(z[index[-1]] if self.spec.heads > 1 else z.reshape(-1)[0])

    def _scores(self, index: tuple[int, ...], rows: slice, logit: float | None) -> Scores:
        t, raw = self.t[index][rows], self.raw[index][rows]
        open_ = np.isfinite(t) if self.masked else np.broadcast_to(True, t.shape)
        tau = self._errors(raw, self.terms if isinstance(self.terms, int) else self.terms[index][rows])
        every, largest = not self.masked or bool(open_.all()), _largest(raw)
        if not every:
            t, raw = np.where(open_, t, 0.0), np.where(open_, raw, 0)
        if logit is not None:
            t, raw = _beside(t, logit), _beside(raw, abs(logit))
            tau, open_ = _beside(tau, 0), _beside(open_, True)
        off = (self.d + 8) * U * _largest(raw)
        return Scores(t, off, open_, tau, np.maximum(largest, _largest(raw)), logit is not None, every)

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


class Enclosed(_Heads):
    """The bound for a run on enclosures."""

    kind = np.dtype(np.float64)

    def __init__(self, run: Run, precision: Precision, shares: bool = False) -> None:
        self.spec, self.precision, self.wanted = run.spec, precision, shares
        errors, final, shape = score_errors(run, precision), run.final_scores, run.output.plain_shape
        unit = _LN2 if run.spec.base == 2 else Enclosure.lift(1.0)
        t, v = number(final) * unit, run.values[run.values_name]
        if np.isnan(final.mid).any() or v.rad.any():
            raise Refused("the enclosures do not say which scores there are, or what the values are")
        every = (*shape[:-2], *final.plain_shape[-2:])
        self.shift = np.broadcast_to(errors.shift * unit.high, (*shape[:-1], 1))
        self.t, self.off, self.open, self.tau, self.sizes = (
            np.broadcast_to(a, every) for a in (t.mid, t.rad, run.allowed, errors.tau * unit.high, errors.largest)
        )
        self.logits = {"zero": np.zeros(1), "given": run.values.get("sink"), None: None}[run.spec.sink]
        with np.errstate(all="ignore"):
            self._result(shape, v.mid, {})

    def _logit(self, index: tuple[int, ...]) -> float | None:
        if self.logits is None:
            return None
        z = np.atleast_1d(self.logits.mid if isinstance(self.logits, Enclosure) else self.logits)
        own = index[-1] if self.spec.heads > 1 and len(z) > 1 else 0
        return float(z[own]) * (log(2) if self.spec.base == 2 else 1.0)

    def _scores(self, index: tuple[int, ...], rows: slice, logit: float | None) -> Scores:
        at: Any = (*index, rows)
        open_, t, tau = self.open[at], self.t[at], np.array(self.tau[at])
        off, largest = _largest(np.where(open_, self.off[at], 0.0)), _largest(self.sizes[at])
        if logit is not None:
            t, tau, open_ = _beside(t, logit), _beside(tau, 0), _beside(open_, True)
            off, largest = np.maximum(off, 4 * U * abs(logit)), np.maximum(largest, abs(logit))
        every, t = bool(open_.all()), np.where(open_, t, 0.0)
        return Scores(t, off, open_, tau, largest, logit is not None, every, self.shift[at])


def _run(steps: tuple[Step, ...], given: dict[str, Any], wanted: set[str]) -> dict[str, Any]:
    """The arrays of a run up to the last one that is wanted, but not the weights."""
    values, missing = dict(given), wanted - given.keys()
    for step in steps:
        if missing and step.name != "weights":
            values[step.name] = step.run(*[values[name] for name in step.of])
            missing = missing - {step.name}
    return values


def _largest(a: NDArray[Any]) -> Floats:
    """Row maxima as float64, (rows, 1)."""
    return np.asarray(a.max(axis=1, keepdims=True, initial=0), dtype=np.float64)


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


def of_run(run: Run, precision: Precision) -> Floats:
    """The bound for a run on enclosures for which ``encloses`` holds; +∞ where nothing is said.

    Raises ``Refused`` where the enclosures do not say which scores there are.
    """
    try:
        return Enclosed(run, precision).allowed
    except Undecided:
        return np.full(run.output.plain_shape, np.inf)


def allowed(spec: Attention, inputs: Inputs, precision: Precision) -> Floats:
    """The bound for each element of the output, +∞ where nothing is said. For inputs for which it ``applies``."""
    try:
        return evaluate(spec, inputs, precision)[0]
    except Undecided:
        return np.full(_shape(spec, inputs), np.inf)


def with_shares(spec: Attention, inputs: Inputs, precision: Precision) -> tuple[Floats, dict[str, Floats]]:
    """The bound and its shares by step; no shares where nothing is said. Raises ``Refused`` where balls are needed."""
    if applies(spec, inputs):
        try:
            return evaluate(spec, inputs, precision, shares=True)
        except Undecided:
            return np.full(_shape(spec, inputs), np.inf), {}
    if not encloses(spec, inputs):
        raise Refused("this specification is bounded in balls")
    reference = run(spec, inputs, kind=Enclosure)
    try:
        found = Enclosed(reference, precision, shares=True)
    except Undecided:
        return np.full(reference.output.plain_shape, np.inf), {}
    return found.allowed, found.shares


def _shape(spec: Attention, inputs: Inputs) -> tuple[int, ...]:
    q, v = inputs["q"], inputs["v"]
    lead = q.shape[:-2] if spec.heads > 1 else np.broadcast_shapes(q.shape[:-2], v.shape[:-2])
    return (*lead, q.shape[-2], v.shape[-1])
