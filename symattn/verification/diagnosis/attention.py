"""The search among the mistakes of attention, and runs of these in float64."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, prod, sqrt
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds import judge, reference
from symattn.bounds.case_result import OF_VALUES, UNFIT, CaseResult, Part
from symattn.bounds.mistake import Mistake, MistakeFamily
from symattn.bounds.reference import (
    RIGHT,
    SCORES,
    Change,
    Values,
    Variant,
    canonical,
    changed,
    trace,
)
from symattn.verification import report, rules
from symattn.verification.diagnosis import (
    blaming,
    outofrange,
    parts,
    screening,
)
from symattn.verification.diagnosis.attention_search import AttentionSearch
from symattn.verification.diagnosis.causes import Cause, Way, by_size
from symattn.verification.diagnosis.screening import (
    ComputedValues,
    is_finite,
)
from symattn.verification.rules import combined, constant_outputs, operations, recording
from symattn.verification.rules.families import families

_BEYOND = 8  # multiple of the bound
_LEGAL = 8  # multiple of the bound of the right definition


@dataclass
class InAttention(AttentionSearch):
    """A search among known mistakes, mistakes by rule, and arrays stored in narrower formats."""

    runs: FloatRuns = field(init=False)
    names: frozenset[str] = field(init=False)
    without_rows: bool = False  # whether rows without any key are ignored
    floats_decide = True  # a bound on any weights allows much in half formats

    def __post_init__(self) -> None:
        self.runs = FloatRuns(self.session.attention, self.session.precision)
        self.names = frozenset(self.wrong[0].case.inputs)
        super().__post_init__()

    # -- the mistakes --------------------------------------------------------------------------------------------------
    def every(self) -> list[Mistake]:
        """The mistakes by rule that the bound covers, and those of tile widths that the lengths leave possible."""
        known = self.of_attention(rules.known(self.session.attention, self.names))
        return [*known, *self.widths_of_tiles()]

    def constants(self) -> list[Mistake]:
        """See ``Search``."""
        return [*constant_outputs.mistakes(self.session.attention, self.names)]

    def of_attention(self, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
        """Yield the mistakes that change something in the specification."""
        steps = {step.name for step in self.session.attention.pipeline(self.names)}
        for mistake in mistakes:
            way = mistake.variant
            if way.values != "v" or way.spec or way.inputs or steps & way.steps.keys():
                yield mistake

    @property
    def searched(self) -> tuple[Attention, frozenset[str]]:
        """See ``AttentionSearch``."""
        return self.session.attention, self.names

    def further(self) -> list[Mistake]:
        """Mistakes that change the entries of any array."""
        return [*self.entries_of_attention()]

    def combined(self, first: Mistake, second: Mistake) -> Sequence[Mistake]:
        """See ``rules.combined``."""
        # In the order of the steps, whichever mistake comes first.
        both = combined(*sorted((first, second), key=lambda m: report.STEPS.index(m.step)))
        return () if both is None else (both,)

    def families(self) -> Iterator[MistakeFamily]:
        """Yield the families of the steps that the specification has."""
        names = {step.name for step in self.session.attention.pipeline(self.names)}
        for family in families(self.session.attention):
            # Any of its numbers changes the same steps.
            way = family.variant(family.grid[0])
            if way.spec is not None or way.steps.keys() <= names:
                yield family

    def repeats(self, mistake: Mistake) -> bool:
        """See ``Search``: an operation on an array is left out if a mistake of a step gives the same numbers."""
        return mistake.general

    def by_operations(self) -> Iterator[Mistake]:
        """See ``AttentionSearch``; such a run has no arrays by which its error is bounded, so that floats decide."""
        spec, inputs = self.session.attention, self.telling.case.inputs
        accepted = partial(screening.leaves_little, self, self.telling)
        replacements = operations.replacements(spec, reference.float64_inputs(inputs), accepted)
        return self.likely_by_rule(
            [_make_operation_mistake(words, new, [*inputs]) for words, new in replacements]
        )

    @property
    def decided(self) -> Sequence[Way]:
        """See ``Search``: operations as well."""
        return *super().decided, self.by_operations

    # -- how they are computed, and by what they are judged ------------------------------------------------------------
    def run_way(self, judged: CaseResult, way: Variant) -> list[np.ndarray]:
        """See ``FloatRuns``."""
        return [self.runs.run(judged, way)]

    def run_way_in_float32(self, judged: CaseResult, way: Variant) -> list[np.ndarray]:
        """See ``FloatRuns``."""
        return [self.runs.run_in_float32(judged, way)]

    def on_residues(self, inputs: dict[str, Any], mistake: Mistake) -> Sequence[Any]:
        """See ``Search``."""
        return (
            reference.variant_values(self.session.attention, inputs, mistake.variant)["output"],
        )

    def rounding(
        self, judged: CaseResult, mistake: Mistake, part: Part, wrong: np.ndarray
    ) -> np.ndarray:
        """Return several times the bound of the right definition, at least a rough one for the mistake's own scores and
        weights."""
        allowed = part.expected.allowed
        legal = allowed if allowed.shape == wrong.shape else np.zeros(wrong.shape)
        return np.maximum(_LEGAL * legal, self.runs.slack(judged, mistake.variant))

    def is_bounded(self, way: Variant) -> bool:
        """See ``Search``: the bound is proved for rows of weights that sum to 1."""
        return way.rows

    def reproduces(
        self, judged: CaseResult, mistake: Mistake, among: frozenset[int] | None = None
    ) -> bool | None:
        """See ``judge.explains``."""
        session = self.session
        return judge.explains(session.attention, session.precision, judged, mistake.variant)

    def contradicts(self, judged: CaseResult, mistake: Mistake) -> bool:
        """See ``Search``; also true if the output is much farther from the mistake than the definition's bound: in half
        formats little is known of implementations of the mistake."""
        if super().contradicts(judged, mistake):
            return True
        got, out, allowed = (
            judged.outcome.output,
            self.outputs(judged, mistake),
            judged.parts[0].expected.allowed,
        )
        # Other shapes are for other tests to judge.
        if got is None or out is None or not got.shape == out[0].shape == allowed.shape:
            return False
        return bool((np.abs(got - out[0]) > _BEYOND * allowed).any())

    def seen(self, judged: CaseResult) -> CaseResult:
        """Return the case, with ``without_rows`` without its rows that have no key."""
        return blaming.without_empty_rows(judged) if self.without_rows else judged

    def axes_of_outputs(self) -> parts.Axes:
        """See ``Search``: heads are an axis unless they are joined, and items come before it."""
        spec = self.session.attention
        joined = "x" in self.names
        has_heads = spec.heads > 1 and not joined
        heads = {"heads": -3} if has_heads else {}
        # Axes in front of heads, queries and columns count items of a batch.
        most = max(
            (part.got.ndim for r in self.wrong for part in r.parts if part.got is not None),
            default=0,
        )
        return heads | ({"items": -most} if most > 2 + has_heads else {})

    def way_in_part(self, way: Variant, part: parts.OutputPart) -> Variant:
        """See ``Search``: both outputs are computed, and joined."""
        names = self.names

        def output(spec: Attention, values: Mapping[str, Any]) -> Any:
            inputs = {n: values[n] for n in names}
            wrong, right = (
                reference.variant_values(spec, inputs, of)["output"] for of in (way, RIGHT)
            )
            return part.joined(wrong, right)

        return Variant({"output": output}, False)

    # -- part by part --------------------------------------------------------------------------------------------------
    def otherwise(self, found: tuple[Mistake, ...]) -> tuple[Cause, ...]:
        """Explain the cases without rows that have no key; else non-finite numbers by the range of a format."""
        hidden = self._behind_empty_rows()
        if hidden or found:
            # A sure mistake, or a doubtful one, is better than a guess about the range.
            return hidden
        cases = [r for r in self.session.records if r.ratios is not None]
        lost = [r for r in self.wrong if outofrange.loses_rows(r)]  # some numbers may be coarse
        overflow = outofrange.out_of_range(self.session, lost, cases) if lost else ()
        if not overflow:
            return self._explain_lost_separately()
        # wrong shapes: the mistakes explain every value
        shapes = [r for r in self.wrong if r.ratios is None]
        first = Cause(tuple(r for r in self.wrong if r.ratios is not None), overflow, self)
        if not shapes:
            return (first,)
        search = InAttention(self.session, shapes, self.right)
        return first, Cause(tuple(shapes), search.found()[0], search)

    def _behind_empty_rows(self) -> tuple[Cause, ...]:
        """Return a mistake that explains all but the rows without any key, if these are wrong as well."""
        records = [blaming.without_empty_rows(r) for r in self.session.records]
        wrong = by_size(r for r in records if r.finding in OF_VALUES)
        symptom = blaming.what_empty_rows_give(self.session.records)
        if not symptom or not wrong:
            return ()
        right = by_size(r for r in records if r.finding is None)
        cause = InAttention(self.session, wrong, right, without_rows=True).sure(symptom)
        return (cause,) if cause else ()

    def _explain_lost_separately(self) -> tuple[Cause, ...]:
        """Return a mistake that explains all finite outputs, and a cause for the others; nothing if none does."""
        finite = [r for r in self.wrong if is_finite(r)]
        lost = [r for r in self.wrong if r.ratios is not None and not is_finite(r)]
        if not lost or not finite:
            return ()
        first = InAttention(self.session, finite, self.right).sure()
        if first is None:
            return ()
        lost = [
            r for r in lost if not any(self.loses(r, m) for m in first.mistakes if self.gives(m))
        ]
        if not lost or all(
            m.step == "max" for m in first.mistakes
        ):  # such mistakes cause the overflow themselves
            return (first,)
        cases = [r for r in self.session.records if r.ratios is not None]
        return Cause(
            tuple(lost), outofrange.out_of_range(self.session, lost, cases, beside=True), self
        ), first


def _make_operation_mistake(
    words: str, new: recording.OtherOperation, names: Sequence[str]
) -> Mistake:
    """Return the mistake of one replaced operation, in attention with the named inputs."""

    def output(spec: Attention, values: Mapping[str, Any]) -> Any:
        return recording.run_replaced(spec, new, **{name: values[name] for name in names})

    step = operations.step_to_blame(new.step, "output")
    return Mistake(step, words, reference.Variant({"output": output}), in_floats=True, general=True)


# -- float runs --------------------------------------------------------------------------------------------------------
# Runs of variants of attention in float64, and how far implementations of a variant may be from its run.

Array = np.ndarray
_ROUGH = 8  # multiple of a first-order bound
_KEPT = 1 << 17  # numbers up to which a run of the right definition is stored


@dataclass
class FloatRuns:
    """Runs of attention in float64; those of the right definition are stored."""

    spec: Attention
    precision: Precision
    right: ComputedValues[Values] = field(default_factory=ComputedValues)
    ran: tuple[CaseResult, Variant, Values] | None = None
    latest: tuple[CaseResult, Mapping[str, Change], Values] | None = None

    def run(self, judged: CaseResult, variant: Variant) -> Array:
        """Return the output of a variant."""
        self.ran = None  # its arrays may be large
        self.ran = judged, variant, self._trace_variant_in_dtype(judged, variant, np.float64)
        return np.asarray(self.ran[2]["output"], dtype=np.float64)

    def slack(self, judged: CaseResult, variant: Variant) -> float:
        """Return a rough bound on the distance of implementations from a variant, which mostly has just been run."""
        ran = self.ran
        if ran is None or ran[0] is not judged or ran[1] is not variant:
            ran = judged, variant, self._trace_variant_in_dtype(judged, variant, np.float64)
        with np.errstate(all="ignore"):
            return self._estimate_rounding_error(ran[2])

    def run_in_float32(self, judged: CaseResult, variant: Variant) -> Array:
        """Return the output of a variant in float32."""
        traced = self._trace_variant_in_dtype(judged, variant, np.float32)
        return np.asarray(traced["output"], dtype=np.float64)

    def _trace_variant_in_dtype(
        self, judged: CaseResult, variant: Variant, dtype: type[np.floating[Any]]
    ) -> Values:
        """Return all arrays of a variant in this type."""
        spec, inputs = changed(canonical(self.spec), judged.case.inputs, variant)
        own = judged.case.inputs
        right: Values = {}
        # Arrays of the right run serve only float64 runs of the same specification and inputs.
        if (
            dtype is np.float64
            and variant is not RIGHT
            and variant.spec is None
            and inputs.keys() == own.keys()
        ):
            right = self._right_arrays(judged)
        arrays = {
            n: right[n]
            if right and a is own[n]
            else a
            if a.dtype.kind in "biu"
            else a.astype(dtype)
            for n, a in inputs.items()
        }
        known = [(RIGHT.steps, right)] if right else []
        known += [self.latest[1:]] if right and self.latest and self.latest[0] is judged else []
        with np.errstate(all="ignore"):
            result = trace(spec, arrays, variant, known=known)
        if right and variant.values == "v":  # in a row of pairs, one mistake is often the same
            self.latest = judged, variant.steps, result
        return result

    def _right_arrays(self, judged: CaseResult) -> Values:
        """Return the arrays of the right definition; none if they are large, or if it has no result."""

        def run() -> Values:
            values = self._trace_variant_in_dtype(judged, RIGHT, np.float64)
            return values if sum(np.size(a) for a in values.values()) <= _KEPT else {}

        try:
            return self.right.once((judged,), run)
        except UNFIT:
            return {}

    def _estimate_rounding_error(self, values: Values) -> float:
        """Return u (n + d + |s|) max|v| Σ|a|, with generous factors."""
        f = self.precision.roughest
        # for latents, both parts side by side
        met = ("q_joined", "k_joined") if "k_joined" in values else ("q", "k")
        q, k, a = (np.asarray(values[n]) for n in (*met, "weights"))
        n = a.shape[-1]
        later = [name for name in SCORES[1:] if name in values] or ["scores"]
        largest = max(_largest_finite_modulus(np.asarray(values[name])) for name in later)
        raw = _largest_finite_modulus(np.asarray(values["scores"]))
        lengths = prod(sqrt((x * x).sum(axis=-1).max(initial=0.0)) for x in (q, k))
        # Norms bound unscaled scores; the ratio of the largest scores brings them to scale.
        size = max(
            largest, lengths * min(largest / raw, 1e3) if raw > 0 and largest > 0 else lengths
        )
        width = int(np.shape(values["x"])[-1]) if "x" in values else 0
        terms = n + q.shape[-1] + 2 * width + 8
        total = (
            # fmax ignores rows that are NaN.
            float(np.fmax.reduce(np.abs(a).sum(axis=-1), axis=None, initial=1.0)) if a.size else 1.0
        )
        grown = (
            float(np.abs(np.asarray(values["w_o"])).sum(axis=0).max(initial=1.0))
            if "w_o" in values
            else 1.0
        )
        weighed = values["v_normed" if "v_normed" in values else "v"]
        values_ = _largest_finite_modulus(np.asarray(weighed)) * grown
        return float(
            _ROUGH * float(f.u) * (terms + 4 * size) * values_ * total
            + 64 * float(f.eta) * n * (values_ + 1)
        )


def _largest_finite_modulus(x: np.ndarray) -> float:
    largest = float(np.abs(x).max(initial=0.0))
    # Infinite entries say nothing of the size of the others.
    return largest if isfinite(largest) else float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
