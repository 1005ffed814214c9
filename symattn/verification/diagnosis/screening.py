"""Mistakes tried in float64, before balls decide: what cannot be, by far, is put aside at little cost.

A variant of the definition runs on NumPy arrays, and its output is compared with what the function gave. The slack is
generous: several times what is legal for the right definition, and no less than a rough bound for the variant's own
scores and weights. So a mistake that is put aside here is none that balls would accept; what is left is judged there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT, CaseResult
from symattn.bounds.judge import traced
from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import RIGHT, SCORES, Change, Values, Variant, canonical, changed, trace
from symattn.verification.rules.forbidding import SOME_KEYS

Array = np.ndarray
T = TypeVar("T")
C = TypeVar("C")
_LEGAL = 8  # times what is legal for the right definition
_BESIDE = 3  # the same, for variants whose scores and weights are nearly the right ones
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
class Screen:
    """Runs in float64; those of the right definition, and answers, are kept."""

    spec: Attention
    precision: Precision
    right: ComputedValues[tuple[Array, float, Values]] = field(default_factory=ComputedValues)
    answers: ComputedValues[bool | None] = field(default_factory=ComputedValues)

    def answer(self, judged: CaseResult, variant: Variant, around: tuple[Variant, ...] = ()) -> bool | None:
        """Return what ``_answer`` says, asked once for each case and variant."""
        return self.answers.once((judged, variant, *around), lambda: self._answer(judged, variant, around))

    def _answer(self, judged: CaseResult, variant: Variant, around: tuple[Variant, ...]) -> bool | None:
        """False where the variant cannot have given what the function gave, True where it can and the right definition
        cannot, None where nothing can be told.

        With variants ``around``, what was given may be as far away as they are, and as what is legal for the right
        definition.
        """
        try:
            out, rough = self.run(judged, variant)
            beside = [self.run(judged, other)[0] for other in around]
        except KeyError:  # it changes an array that is not there
            return None
        except UNFIT:  # it cannot be computed for these shapes
            return judged.finding == "raises" or None if judged.outcome.error else False
        got = judged.outcome.output
        if got is None:
            return None
        if got.shape != out.shape:
            return False
        with np.errstate(all="ignore"):
            if around:
                slack = _BESIDE * self._legal(judged, out) + sum(np.abs(x - out) for x in beside)
            else:
                slack = np.maximum(_LEGAL * self._legal(judged, out), rough)
        right = out if judged.ratios is None else self.run(judged, RIGHT)[0]
        return compared(got, out, right, judged.ratios, slack)

    def run(self, judged: CaseResult, variant: Variant) -> tuple[Array, float]:
        """The output of a variant, and a rough bound on how far code of it may be from that."""
        if variant is RIGHT:
            return self.right.once((judged,), lambda: self._run(judged, RIGHT))[:2]
        return self._run(judged, variant)[:2]

    def _run(self, judged: CaseResult, variant: Variant) -> tuple[Array, float, Values]:
        """Run a variant, with all arrays where these are few."""
        values = self._traced(judged, variant, np.float64)
        few = sum(np.size(a) for a in values.values()) <= _KEPT
        with np.errstate(all="ignore"):
            return np.asarray(values["output"], dtype=np.float64), self._rough(values), values if few else {}

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
        try:
            return self.right.once((judged,), lambda: self._run(judged, RIGHT))[-1]
        except UNFIT:
            return {}

    def _legal(self, judged: CaseResult, out: Array) -> Array:
        allowed = traced(judged).allowed
        return allowed if allowed.shape == out.shape else np.zeros(out.shape)

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


def left(screen: Screen, cases: Sequence[CaseResult], variant: Variant) -> float:
    """The mean over the cases of ‖y − o_m‖² / ‖y − o‖², entries in units of what is legal; ∞ where nothing is told.

    Entries that are not finite say nothing here.
    """
    outputs = ((judged, _outputs(screen, judged, variant)) for judged in spread(cases))
    told = (share_left(*arrays, traced(judged).allowed) for judged, arrays in outputs if arrays is not None)
    shares = [share for share in told if share is not None]
    return float(np.mean(shares)) if shares else float("inf")


def spread(cases: Sequence[CaseResult]) -> Sequence[CaseResult]:
    """No more than so many of them, from the smallest to the largest."""
    return cases[:: -(-len(cases) // _CASES)] if cases else cases


def _outputs(screen: Screen, judged: CaseResult, variant: Variant) -> tuple[Array, Array, Array] | None:
    """Return the output of the function, that of a variant, and the correct one; None unless all have one shape."""
    got = judged.outcome.output
    try:
        wrong, right = (screen.run(judged, v)[0] for v in (variant, RIGHT))
    except UNFIT:
        return None
    return (got, wrong, right) if got is not None and got.shape == wrong.shape == right.shape else None


def share_left(got: Array, wrong: Array, right: Array, allowed: Array) -> float | None:
    """Return ‖y − o_m‖² / ‖y − o‖² of the finite entries, in units of what is legal; None where nothing is told."""
    with np.errstate(all="ignore"):
        unit = np.where(allowed > 0, allowed, np.inf)
        before, after = ((got - right) / unit) ** 2, ((got - wrong) / unit) ** 2
    result = np.isfinite(before) & np.isfinite(after)
    return float(after[result].sum() / before[result].sum()) if before[result].sum() > 0 else None


def best(screen: Screen, cases: Sequence[CaseResult], mistakes: Iterable[Mistake]) -> list[Mistake]:
    """The mistakes that leave little, and no more than a few times what the best one leaves; the best first. A few
    cases are a first look."""
    for some, slack in ((cases[:: -(-len(cases) // _FIRST) or 1], 5), (cases, 1)):
        result = ranked(screen, some, mistakes)
        mistakes = [m for share, m in result if share <= slack * min(LITTLE, _ALIKE * result[0][0] + 1e-9)]
    return [*mistakes]


def ranked(screen: Screen, cases: Sequence[CaseResult], mistakes: Iterable[Mistake]) -> list[tuple[float, Mistake]]:
    """The mistakes with the share that each leaves, the smallest first; those that leave as much keep their order."""
    result = [(float(f"{left(screen, cases, m.variant):.2g}"), m) for m in mistakes]
    return sorted(result, key=lambda x: x[0])


def shares(screen: Screen, cases: Sequence[CaseResult], mistakes: Sequence[Mistake]) -> list[tuple[float, Mistake]]:
    """How much of r = y − o each direction D = o_m − o takes away with the number θ that fits it best, the most first.

    By least squares θ = ⟨D, r⟩/‖D‖², and what is taken is ⟨D, r⟩²/(‖D‖² ‖r‖²): 1 where y lies on the line through o
    and o_m. Of two mistakes at once the larger one takes most.
    """
    r = _stacked([_weighed(screen, judged, None) for judged in cases])
    result = []
    for mistake in mistakes if r.any() else ():
        d = _stacked([_weighed(screen, judged, mistake.variant) for judged in cases])
        if share := taken(d, r):
            result.append((share, mistake))
    return sorted(result, key=lambda x: -x[0])


def taken(d: np.ndarray, r: np.ndarray) -> float:
    """Return the share of r that the direction takes away; 0 where there is nothing to compare."""
    some = d.shape == r.shape and d.any() and r.any()
    return float(f"{(d @ r) ** 2 / ((d @ d) * (r @ r)):.3g}") if some else 0.0


def _stacked(parts: Sequence[np.ndarray | None]) -> np.ndarray:
    """One vector of all cases, of which the largest entry is 1; none where a case has nothing."""
    result = [p for p in parts if p is not None]
    whole = np.concatenate(result) if result and len(result) == len(parts) else np.zeros(0)
    largest = np.abs(whole).max(initial=0.0)
    return whole / largest if largest > 0 else whole


def _weighed(screen: Screen, judged: CaseResult, variant: Variant | None) -> np.ndarray | None:
    """Return the output, or a variant's, less the right one, in units of the legal error."""
    outputs, allowed = _outputs(screen, judged, variant or RIGHT), traced(judged).allowed
    if outputs is None or outputs[0].shape != allowed.shape:
        return None
    got, wrong, right = outputs
    with np.errstate(all="ignore"):
        d = ((got if variant is None else wrong) - right) / allowed
        result = np.isfinite(right) & np.isfinite(got) & (allowed > 0)
    return None if not np.isfinite(d[result]).all() else np.where(result, d, 0.0).ravel()


# -- two mistakes together ---------------------------------------------------------------------------------------------
def combined(first: Mistake, second: Mistake) -> Mistake | None:
    """Both at once; None where they change the same step."""
    a, b = first.variant, second.variant
    steps = _steps(a, b)
    if steps is None or (a.values != "v" and b.values != "v") or first.cause == second.cause:
        return None
    variant = Variant(
        steps, a.rows and b.rows, a.values if a.values != "v" else b.values,
        _both(a.spec, b.spec, lambda f, g: lambda spec: g(f(spec))),
        _both(a.inputs, b.inputs, lambda f, g: lambda spec, inputs: g(spec, f(spec, inputs))),
    )  # fmt: skip
    return Mistake(first.step, f"{first.cause}; and {second.cause}", variant)


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
