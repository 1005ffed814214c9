"""Mistakes tried in float64, before balls decide: what cannot be, by far, is put aside at little cost.

A variant of the definition runs on NumPy arrays, and its output is compared with what the function gave. The slack is
generous: several times what is legal for the right definition, and no less than a rough bound for the variant's own
scores and weights. So a mistake that is put aside here is none that balls would accept; what is left is judged there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT, CaseResult
from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import RIGHT, SCORES, Change, Values, Variant, canonical, changed, trace
from symattn.verification.rules.forbidding import SOME_KEYS

if TYPE_CHECKING:
    from symattn.verification.diagnosis.causes import Known, Search

Array = np.ndarray
T = TypeVar("T")
C = TypeVar("C")
M = TypeVar("M", bound="Known")
_ROUGH = 8  # times a first-order bound
_KEPT = 1 << 17  # numbers that a run of the right definition has at most to be kept


@dataclass
class ComputedValues(Generic[T]):
    """Values computed from objects, by their ``id``; each object is stored too, so that no other takes its ``id``."""

    results: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = field(default_factory=dict)

    def once(self, of: tuple[object, ...], compute: Callable[[], T], keep: bool = True) -> T:
        """Return what is computed of these objects, which is computed again only if it was not kept."""
        key = tuple(map(id, of))
        if key in self.results:
            return self.results[key][1]
        result = compute()
        if keep:
            self.results[key] = of, result
        return result


@dataclass
class FloatRuns:
    """Runs of attention in float64; those of the right definition are kept."""

    spec: Attention
    precision: Precision
    right: ComputedValues[Values] = field(default_factory=ComputedValues)
    rough: dict[tuple[int, int], float] = field(default_factory=dict)

    def run(self, judged: CaseResult, variant: Variant) -> Array:
        """The output of a variant."""
        values = self._traced(judged, variant, np.float64)
        with np.errstate(all="ignore"):
            self.rough[id(judged), id(variant)] = self._rough(values)
        return np.asarray(values["output"], dtype=np.float64)

    def slack(self, judged: CaseResult, variant: Variant) -> float:
        """A rough bound on how far code of a variant that has just been run may be from it."""
        return self.rough[id(judged), id(variant)]

    def loses(self, judged: CaseResult, variant: Variant) -> bool:
        """Return whether the variant, in the format of the scores, gives no number wherever the function gave none."""
        got, wide = judged.outcome.output, self.precision.score.name == "float64"
        try:
            out = np.asarray(self._traced(judged, variant, np.float64 if wide else np.float32)["output"])
        except UNFIT:
            return False
        return got is not None and got.shape == out.shape and bool((~np.isfinite(out))[~np.isfinite(got)].all())

    def _traced(self, judged: CaseResult, variant: Variant, dtype: type[np.floating[Any]]) -> Values:
        """All arrays of a variant in this type."""
        spec, inputs = changed(canonical(self.spec), judged.case.inputs, variant)
        own = judged.case.inputs
        known: Values = {}
        if dtype is np.float64 and variant is not RIGHT and variant.spec is None and inputs.keys() == own.keys():
            known = self._right_arrays(judged)
        arrays = {
            n: known[n] if known and a is own[n] else a if a.dtype.kind in "biu" else a.astype(dtype)
            for n, a in inputs.items()
        }
        with np.errstate(all="ignore"):
            return trace(spec, arrays, variant, known=known)

    def _right_arrays(self, judged: CaseResult) -> Values:
        """The arrays of the right definition; none where they are many, or where it has no result."""

        def run() -> Values:
            values = self._traced(judged, RIGHT, np.float64)
            return values if sum(np.size(a) for a in values.values()) <= _KEPT else {}

        try:
            return self.right.once((judged,), run)
        except UNFIT:
            return {}

    def _rough(self, values: Values) -> float:
        """u (n + d + |s|) max|v| Σ|a|, with factors that are generous."""
        f = self.precision.roughest
        met = ("q_joined", "k_joined") if "k_joined" in values else ("q", "k")  # of latents, both parts side by side
        q, k, a = (np.asarray(values[n]) for n in (*met, "weights"))
        n = a.shape[-1]
        later = [name for name in SCORES[1:] if name in values] or ["scores"]
        largest = max(_largest(np.asarray(values[name])) for name in later)
        raw = _largest(np.asarray(values["scores"]))
        lengths = _longest(q) * _longest(k)
        size = max(largest, lengths * min(largest / raw, 1e3) if raw > 0 and largest > 0 else lengths)
        terms = n + q.shape[-1] + 2 * (int(np.shape(values["x"])[-1]) if "x" in values else 0) + 8
        total = max(float(np.nanmax(np.abs(a).sum(axis=-1), initial=1.0)), 1.0) if a.size else 1.0
        values_ = _largest(np.asarray(values["v"])) * _projection(values)
        return float(_ROUGH * float(f.u) * (terms + 4 * size) * values_ * total + 64 * float(f.eta) * n * (values_ + 1))


def _projection(values: Values) -> float:
    """How much larger an output projection can make a number."""
    w = values.get("w_o")
    return 1.0 if w is None else float(np.abs(np.asarray(w)).sum(axis=0).max(initial=1.0))


def _largest(x: np.ndarray) -> float:
    finite = np.abs(x[np.isfinite(x)])
    return float(finite.max(initial=0.0))


def _longest(x: Array) -> float:
    return float(np.sqrt((x * x).sum(axis=-1)).max(initial=0.0))


def compared(got: Array, wrong: Array, right: Array, ratios: Array | None, slack: Array) -> bool | None:
    """Return False where ``got`` is no output of a mistake up to the slack, True where it is and the right one is none.

    None where nothing can be told. ``ratios`` are errors as parts of what is legal; without them the shape is wrong.
    """
    result = np.isfinite(wrong) & np.isfinite(slack)
    with np.errstate(all="ignore"):
        if (~(np.abs(got - wrong) <= slack) & result).any():
            return False
        if ratios is None:
            return True if result.any() else None
        apart = ~(np.abs(right - wrong) <= slack)
    return True if ((ratios > 1) & result & apart).any() else None


# -- how much of what is wrong a mistake accounts for ------------------------------------------------------------------
# Its direction D = o_m − o beside the residual y − o. The bound for each element says what cannot be. In half precision
# it is wide, and many mistakes are within it; roundings are far smaller than their bound, though, so that the right
# mistake leaves next to nothing of the residual, and another one leaves most of it.
LITTLE = 0.1  # of the squared residual that a mistake which is named may leave
_ALIKE = 4  # times what the best one leaves: as good
_CASES, _FIRST = 24, 3
_PARALLEL = 0.98  # of the square of the cosine of two directions: they are one


def left(search: Search[M], cases: Sequence[CaseResult], mistake: M) -> float:
    """The mean over the cases of ‖y − o_m‖² / ‖y − o‖², entries in units of what is legal; ∞ where nothing is told.

    Entries that are not finite say nothing here.
    """
    pairs = (pair for judged in spread(cases) if (pair := _errors(search, judged, mistake)) is not None)
    shares = [float(((e - d) ** 2).sum() / (e**2).sum()) for e, d in pairs if e.any()]
    return float(np.mean(shares)) if shares else float("inf")


def spread(cases: Sequence[CaseResult]) -> Sequence[CaseResult]:
    """No more than so many of them, from the smallest to the largest."""
    return cases[:: -(-len(cases) // _CASES)] if cases else cases


def _errors(search: Search[M], judged: CaseResult, mistake: M) -> tuple[Array, Array] | None:
    """y − o and o_m − o of all outputs, over what is legal; 0 where one is no number, None where shapes differ."""
    outputs = search.outputs(judged, mistake)
    pairs = search.meant(judged, outputs) if outputs is not None else []
    if not pairs or any(p.got is None or not p.got.shape == a.shape == p.expected.allowed.shape for p, a in pairs):
        return None
    errors = []
    with np.errstate(all="ignore"):
        for part, wrong in pairs:
            near, unit = part.expected.near, np.where(part.expected.allowed > 0, part.expected.allowed, np.inf)
            errors.append(np.stack([((a - near) / unit).ravel() for a in (part.got, wrong)]))
    both = np.concatenate(errors, axis=1)
    error, direction = np.where(np.isfinite(both).all(axis=0), both, 0.0)
    return error, direction


def best(search: Search[M], cases: Sequence[CaseResult], mistakes: Iterable[M]) -> list[M]:
    """The mistakes that leave little, and no more than a few times what the best one leaves; the best first. A few
    cases are a first look."""
    for some, slack in ((cases[:: -(-len(cases) // _FIRST) or 1], 5), (cases, 1)):
        result = ranked(search, some, mistakes)
        mistakes = [m for share, m in result if share <= slack * min(LITTLE, _ALIKE * result[0][0] + 1e-9)]
    return [*mistakes]


def ranked(search: Search[M], cases: Sequence[CaseResult], mistakes: Iterable[M]) -> list[tuple[float, M]]:
    """The mistakes with the share that each leaves, the smallest first; those that leave as much keep their order."""
    result = [(float(f"{left(search, cases, m):.2g}"), m) for m in mistakes]
    return sorted(result, key=lambda x: x[0])


def firsts(search: Search[M], cases: Sequence[CaseResult], mistakes: Sequence[M], count: int) -> list[M]:
    """So many mistakes that take much of r = y − o away, the most first, each in another direction.

    With the number θ = ⟨D, r⟩/‖D‖² that fits best, D = o_m − o takes away ⟨D, r⟩²/(‖D‖² ‖r‖²): 1 where y lies on the
    line through o and o_m. Of two mistakes at once the larger one takes most.
    """
    shares, chosen = [], list[tuple[M, Array]]()
    for mistake in mistakes:
        errors = [_errors(search, judged, mistake) for judged in cases]
        if errors and not any(pair is None for pair in errors):
            r, d = (_of_length_one(np.concatenate(e)) for e in zip(*filter(None, errors), strict=True))
            shares.append((float(f"{(d @ r) ** 2:.3g}"), mistake, d))
    for _, mistake, d in sorted(shares, key=lambda x: -x[0]):
        if len(chosen) < count and d.any() and all((d @ other) ** 2 < _PARALLEL for _, other in chosen):
            chosen.append((mistake, d))
    return [mistake for mistake, _ in chosen]


def _of_length_one(x: Array) -> Array:
    largest = np.abs(x).max(initial=0.0)
    x = x / largest if largest > 0 else x
    return x / np.sqrt(x @ x) if largest > 0 else x


# -- two mistakes together ---------------------------------------------------------------------------------------------
def combined(first: Mistake, second: Mistake) -> Mistake | None:
    """Both at once; None where they change the same step."""
    a, b = first.variant, second.variant
    steps = _steps(a, b)
    if steps is None or (a.values != "v" and b.values != "v") or first.cause == second.cause:
        return None
    variant = _at_once(a, b, steps)
    around = (*(_at_once(x, b, more) for x in first.around if (more := _steps(x, b)) is not None),
              *(_at_once(a, x, more) for x in second.around if (more := _steps(a, x)) is not None))  # fmt: skip
    in_floats = first.in_floats or second.in_floats or not variant.rows
    return Mistake(first.step, f"{first.cause}; and {second.cause}", variant, None, around, in_floats)


def _at_once(a: Variant, b: Variant, steps: dict[str, Change]) -> Variant:
    return Variant(
        steps, a.rows and b.rows, a.values if a.values != "v" else b.values,
        _both(a.spec, b.spec, lambda f, g: lambda spec: g(f(spec))),
        _both(a.inputs, b.inputs, lambda f, g: lambda spec, inputs: g(spec, f(spec, inputs))),
    )  # fmt: skip


def _steps(a: Variant, b: Variant) -> dict[str, Change] | None:
    """The steps of both. Weights of the keys that a wrong mask has left give way to other weights."""
    merged = dict(a.steps)
    for name, change in b.steps.items():
        if name in merged and change is not SOME_KEYS:
            if merged[name] is not SOME_KEYS:
                return None
        elif name in merged:
            continue
        merged[name] = change
    return merged


def _both(a: C | None, b: C | None, joined: Callable[[C, C], C]) -> C | None:
    return joined(a, b) if a and b else a or b
