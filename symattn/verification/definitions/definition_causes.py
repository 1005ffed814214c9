"""The search for a cause among the mistakes of a definition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds import judge, reference
from symattn.bounds.case_result import Case, CaseResult, Part, largest
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily
from symattn.bounds.reference import Variant
from symattn.verification.definitions import definition_judge, definition_mistakes
from symattn.verification.definitions.definition_subject import CountedKeys, Definition
from symattn.verification.definitions.inner_attention import WrongAttention
from symattn.verification.diagnosis import outofrange, parts, screening
from symattn.verification.diagnosis.attention_search import AttentionSearch
from symattn.verification.diagnosis.causes import KEPT, Cause, Outputs, by_size
from symattn.verification.diagnosis.effective_weights import Counted, counted, other_keys
from symattn.verification.rules import numbered_operations, operations, recording
from symattn.verification.rules.predicates import Pairs

_LEGAL = 8  # multiple of the bound of the right definition


@dataclass
class InDefinition(AttentionSearch):
    """A search among the definition's own mistakes, and further ones."""

    # All wrong cases, 30 right ones and no failed calls are judged by balls.
    judged = (10**6, 30, 0)
    _known_of: dict[Any, Sequence[Mistake]] = field(default_factory=dict)
    _before_change: screening.ComputedValues[Outputs] = field(
        default_factory=screening.ComputedValues
    )

    @property
    def subject(self) -> Definition:
        """The verified definition."""
        assert isinstance(self.session.subject, Definition)
        return self.session.subject

    def of_attention(self, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
        """See ``AttentionSearch``."""
        wrong = self._wrong_attention
        yield from () if wrong is None else wrong.convert_mistakes(mistakes)

    @property
    def searched(self) -> tuple[Attention, frozenset[str]] | None:
        """See ``AttentionSearch``."""
        wrong = self._wrong_attention
        return None if wrong is None else (wrong.spec, wrong.names)

    @property
    def _wrong_attention(self) -> WrongAttention | None:
        inner = self.subject.inner
        return None if inner is None else inner.wrong

    def constants(self) -> list[Mistake]:
        """See ``Search``."""
        return [*definition_mistakes.constants(self.subject)]

    def every(self) -> list[Mistake]:
        """The definition's own mistakes, and those by rule."""
        return [*self.subject.mistakes, *definition_mistakes.changes(self.subject)]

    def families(self) -> Iterator[MistakeFamily]:
        """Yield mistakes with another number in a field, and outputs with a factor."""
        yield from self.subject.numbered
        yield from definition_mistakes.of_outputs(self.subject)

    def others(self) -> Sequence[Mistake]:
        """The further mistakes of the definition."""
        return self.subject.others

    def of_arrays(self) -> Iterator[Mistake]:
        """See ``definition_mistakes.of_arrays``."""
        return definition_mistakes.of_arrays(self.subject)

    def rare(self) -> Iterator[Mistake]:
        """Mistakes of tiles of unusual widths: a definition may take as long as many runs of an attention."""
        return self.widths_of_tiles()

    def axes_of_outputs(self) -> parts.Axes:
        """See ``Search``: the axes of the first input, if outputs have as many."""
        letters = self.subject.inputs[0].shape.split()
        nouns = {"b": "items", "h": "heads"}
        axes = {nouns[x]: k - len(letters) for k, x in enumerate(letters) if x in nouns}
        shapes = [part.got.shape for r in self.wrong for part in r.parts if part.got is not None]
        return axes if all(len(shape) == len(letters) for shape in shapes) else {}

    def way_in_part(self, way: Compute, part: parts.OutputPart) -> Compute:
        """See ``Search``: both outputs are computed, and joined."""
        subject = self.subject

        def run(**keywords: Any) -> tuple[Any, ...]:
            wrong, right = (subject.run(of, keywords) for of in (way, subject.ways[0]))
            return tuple(part.joined(x, y) for x, y in zip(wrong, right, strict=True))

        return run

    def by_operations(self) -> list[Mistake]:
        """See ``AttentionSearch``: operations are recorded on inputs whose sizes differ."""
        subject = self.subject
        wrong = {subject.outputs[k] for k in self._wrong_outputs}
        # A wrong log-sum alone points to the log-sum's own step.
        step = "lse" if wrong == {"lse"} else subject.step
        inputs = reference.float64_inputs(self.telling.case.inputs)

        def accepted(outputs: Sequence[np.ndarray]) -> bool:
            return screening.leaves_little(self, self.telling, self._with_right_outputs(outputs))

        for way in subject.recorded or subject.ways:
            result = self.select_likely(
                Mistake(
                    operations.step_to_blame(new.step, step),
                    *self._for_wrong_outputs(words, partial(recording.run_replaced, way, new)),
                )
                for words, new in operations.replacements(way, inputs, accepted)
            )
            if result:
                return result
        return []

    @property
    def _wrong_outputs(self) -> frozenset[int]:
        """The outputs concerned that are wrong in some case."""
        wrong = frozenset[int]().union(*(r.wrong for r in self.wrong))
        return wrong if self.among is None else wrong & self.among

    def _with_right_outputs(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the outputs for the telling case, with the right ones in place of those that are never wrong."""
        parts, wrong = self.telling.parts, self._wrong_outputs
        # Without any wrong output, as where shapes differ, nothing is known of them.
        if not wrong or len(outputs) != len(parts):
            return [*outputs]
        pairs = enumerate(zip(outputs, parts, strict=True))
        return [y if k in wrong else part.expected.near for k, (y, part) in pairs]

    def _for_wrong_outputs(self, words: str, run: Compute) -> tuple[str, Compute]:
        """Return a change, made for the wrong outputs alone if it would spoil right ones: code may compute these
        apart."""
        wrong, subject = self._wrong_outputs, self.subject
        if not wrong or len(wrong) == len(subject.outputs):
            return words, run
        outputs = self.run_way(self.telling, run)
        if screening.are_alike(outputs, self._with_right_outputs(outputs)):
            return words, run

        def run_for_wrong(**inputs: Any) -> tuple[Any, ...]:
            pairs = zip(run(**inputs), subject.ways[0](**inputs), strict=True)
            return tuple(y if k in wrong else right for k, (y, right) in enumerate(pairs))

        names = " and ".join(subject.outputs[k] for k in sorted(wrong))
        return f"{words}, for {names} alone", run_for_wrong

    def numbers_in_operations(self) -> Iterator[Mistake]:
        """See ``AttentionSearch``: the inputs, the outputs, and the results of operations in between."""
        subject, telling = self.subject, self.telling
        if telling.ratios is None or not screening.is_finite(telling):
            return
        inputs = reference.float64_inputs(telling.case.inputs)
        named = {
            i.name: i.step or subject.step
            for i in subject.inputs
            if i.made is None and i.name not in ("mask", "keep", "drop")
        }
        way = (subject.recorded or subject.ways)[0]
        nearest = numbered_operations.numbered_operations(way, inputs, named, self._left_in_telling)
        yield from self.fit_numbers(map(self._number_for_wrong_outputs, nearest))

    def _number_for_wrong_outputs(self, family: MistakeFamily) -> MistakeFamily:
        """Return the mistakes with a number, each made for the wrong outputs alone if it would spoil right ones."""

        def way(x: float) -> Compute:
            run = family.way(x)
            assert not isinstance(run, Variant)
            return self._for_wrong_outputs("", run)[1]

        step = operations.step_to_blame(family.step, self.subject.step)
        some = family.mistake(family.grid[0], "")
        words, _ = self._for_wrong_outputs(family.words, some.run)
        return MistakeFamily(step, words, way, family.grid)

    def _left_in_telling(self, outputs: Sequence[np.ndarray]) -> float:
        """Return how much of the error of the telling case such outputs leave; ∞ if it is undefined."""
        share = screening.left_by(self, self.telling, self._with_right_outputs(outputs))
        return float("inf") if share is None else share

    def counted_keys(self) -> Iterator[Mistake]:
        """See ``AttentionSearch``: as the function's own weights show it."""
        way = self.subject.counted
        if way is not None:
            sizes = [
                (s["n_q"], s.get("n_k", s["n_q"])) for s in map(self.subject.sizes, self.wrong)
            ]
            square = not any(i.shape.split()[way.axis] == "m" for i in self.subject.inputs)
            keys = other_keys(partial(self._read_key_counts, way), sizes, square)
            if keys is not None:
                table = lambda n, m: keys(Pairs(n, m, 0), way.open(n, m))  # noqa: E731
                yield Mistake("mask", keys.words, way.run(table))

    def _read_key_counts(self, way: CountedKeys, size: tuple[int, int]) -> Counted | None:
        """Read from one call how often keys are counted; None if it cannot be read."""
        rng, (n, m) = np.random.default_rng((self.session.seed, 21, *size)), size
        inputs = next(
            self.subject.sized(self.session, {"n_q": n, "n_k": m, "d_k": 3, "d_v": m}, rng)
        )
        # Weights need square values to be read.
        if inputs is None or inputs["v"].shape[-1] != inputs["v"].shape[way.axis]:
            return None
        rounded = self.session.precision.input.rounded
        # Entries from ½ to 3⁄2 leave every key a part of ordinary size.
        inputs |= {name: np.asarray(rounded(np.abs(inputs[name]) % 1 + 0.5)) for name in "qk"}
        m = inputs["v"].shape[-1]
        eye = np.broadcast_to(np.eye(m), np.moveaxis(inputs["v"], way.axis, -2).shape)
        inputs["v"] = np.moveaxis(eye, -2, way.axis).copy()
        output = self.session.call(Case("structure", "weights", inputs)).output
        if output is None:
            return None
        parts = reference.float64_outputs(partial(self.subject.run, way.parts), inputs)[0]
        output, parts = (np.moveaxis(a, way.axis, -2) for a in (output, parts))
        return counted(
            Pairs(output.shape[-2], m, 0),
            output,
            parts,
            way.open(output.shape[-2], m),
            way.normalised,
        )

    def rules_out(self, judged: CaseResult, mistake: Mistake) -> bool:
        """Rule out a mistake only if it leaves much of the error: it may lose more digits than the definition does."""
        return (
            super().rules_out(judged, mistake)
            and screening.left(self, [judged], mistake) > screening.LITTLE
        )

    def reproduces(
        self, judged: CaseResult, mistake: Mistake, among: frozenset[int] | None = None
    ) -> bool | None:
        """See ``definition_judge.explains``."""
        return definition_judge.explains(
            self.subject, self.session.precision, judged, mistake, among or self.among
        )

    def combined(self, first: Mistake, second: Mistake) -> Sequence[Mistake]:
        """See ``both``: if both change one input, either may come first."""
        same = first.reads and first.reads == second.reads
        orders = ((first, second), (second, first)) if same else ((first, second),)
        return [
            m
            for order in orders
            if (m := definition_mistakes.both(*order, self._mistakes_of)) is not None
        ]

    def _mistakes_of(self, spec: Any) -> Sequence[Mistake]:
        if spec not in self._known_of:
            # Definitions are slow to build, and pairs ask for them often.
            self._known_of[spec] = (
                self.subject.remade(spec).mistakes if self.subject.remade is not None else ()
            )
        return self._known_of[spec]

    def found(self) -> tuple[tuple[Mistake, ...], bool]:
        """See ``Search``; nothing is found among the definition's mistakes if only the range of a format is left."""
        if all(r.finding == "not finite" for r in self.wrong) and self._beyond_range:
            return (), False
        return super().found()

    def otherwise(self, found: tuple[Mistake, ...]) -> tuple[Cause, ...]:
        """Return one cause for each wrong output, if that explains them all."""
        if not found and self._beyond_range:
            return (Cause(tuple(self.wrong), self._beyond_range, self),)
        outputs = sorted(frozenset().union(*(r.wrong for r in self.wrong)))
        # A wrong shape concerns all outputs, and is not explained one by one.
        if self.among is not None or len(outputs) < 2 or any(r.ratios is None for r in self.wrong):
            return ()
        causes, effort_of_pairs = [], self.begin_pairs()
        for k in outputs:
            wrong = [r for r in self.wrong if k in r.wrong]
            right = [r for r in self.session.records if r.ratios is not None and k not in r.wrong]
            # Searches for single outputs share what is computed of mistakes.
            cause = InDefinition(
                self.session,
                wrong,
                by_size(right),
                frozenset([k]),
                effort_of_pairs=effort_of_pairs,
                computed=self.computed,
            ).sure()
            if cause is None:
                return ()
            causes.append(cause)
        return tuple(causes)

    @cached_property
    def _beyond_range(self) -> tuple[Any, ...]:
        """The first mistake of a format's range that fits, if the definition has the output of an attention."""
        if self.subject.output_run is None or self.subject.output_run.run is None:
            return ()
        run = self.subject.output_run.run

        def as_attention(judged: CaseResult) -> CaseResult:
            # The attention's output is the definition's first.
            part = judged.parts[0]
            traced = judge.Traced(partial(run, judged.case.inputs), part.expected.allowed)
            return replace(judged, parts=(replace(part, expected=traced),))

        rng = np.random.default_rng((self.session.seed, 2))

        def called(title: str, made: dict[str, np.ndarray]) -> CaseResult | None:
            case = self.subject.case_of_attention(self.session, "range", title, made, rng)
            if case is None:
                return None
            session, legal = self.session, self.session.legal(case.inputs)
            # the others differ in how much they round
            by_first_way = legal._replace(ways=legal.ways[:1])
            return as_attention(
                judge.judge(by_first_way, session.precision, case, session.call(case))
            )

        lost = [
            as_attention(r)
            for r in self.wrong
            if r.parts[0].got is not None and not np.isfinite(r.parts[0].got).all()
        ]
        cases = [as_attention(r) for r in self.session.records if r.ratios is not None]
        return outofrange.out_of_range(self.session, lost, cases, judge=called)[:1] if lost else ()

    # -- in float64 ----------------------------------------------------------------------------------------------------
    def rounding(
        self, judged: CaseResult, mistake: Mistake, part: Part, wrong: np.ndarray
    ) -> np.ndarray:
        """Return several times the definition's bound, scaled up for larger numbers, plus rounding of the result."""
        allowed = part.expected.allowed
        most = np.where(np.isfinite(allowed), allowed, 0).max(initial=0.0)
        # Another shape has no bound by entry: the largest one stands in.
        legal = allowed if allowed.shape == wrong.shape else most
        relative = max(
            most / max(largest(part.expected.near), 1e-300),
            float(self.session.precision.returned.u),
        )
        return np.asarray(_LEGAL * (legal + relative * np.abs(wrong)))

    def on_residues(self, inputs: dict[str, Any], mistake: Mistake) -> Sequence[Any]:
        """See ``Search``."""
        return self.subject.run(mistake.run, inputs)

    def run_way_in_float32(self, judged: CaseResult, way: Compute) -> list[np.ndarray]:
        """See ``Search``."""
        return reference.float32_outputs(partial(self.subject.run, way), judged.case.inputs)

    def run_way(self, judged: CaseResult, way: Compute) -> list[np.ndarray]:
        """Return the outputs by a way of computing, in float64."""
        if isinstance(way, definition_mistakes.OutputsChanged):
            before = self._outputs_before_change(judged, way.run)
            with np.errstate(all="ignore"):
                return [np.asarray(y, dtype=np.float64) for y in way.change([*before])]
        return reference.float64_outputs(partial(self.subject.run, way), judged.case.inputs)

    def _outputs_before_change(self, judged: CaseResult, way: Compute) -> list[np.ndarray]:
        """Return the outputs of a way that mistakes change, which is run once for all of them."""
        small = judged.case.size <= KEPT
        # Another store for large cases, of which each store has the latest alone.
        store = self.computed if small else self._before_change
        outputs = store.once((judged, way), lambda: self.run_way(judged, way), small)
        # None is stored in the place of outputs that a mistake cannot give: the run raises why.
        return self.run_way(judged, way) if outputs is None else outputs
