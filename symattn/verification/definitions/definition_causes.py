"""The search for a cause among the mistakes of a definition.

A mistake is a change of the steps of an attention, or a function of the definition's inputs. The definition's flow has
them (``definition_flow``); the search runs and judges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds import judge, reference
from symattn.bounds.case_result import OF_VALUES, UNFIT, Case, CaseResult
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily
from symattn.bounds.reference import Variant
from symattn.verification.definitions.definition_flow import DefinitionFlow
from symattn.verification.definitions.function_runs import FunctionRuns
from symattn.verification.diagnosis import blaming, outofrange, parts, screening
from symattn.verification.diagnosis.attention_search import AttentionSearch
from symattn.verification.diagnosis.causes import Cause, Way, by_size
from symattn.verification.diagnosis.effective_weights import Counted, counted, other_keys
from symattn.verification.diagnosis.step_runs import StepRuns
from symattn.verification.rules import numbered_operations, operations
from symattn.verification.rules.predicates import Pairs

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_subject import CountedKeys, Definition

_BEYOND = 8  # multiple of the bound


@dataclass
class DefinitionSearch(AttentionSearch):
    """A search among known mistakes, mistakes by rule, and arrays stored in narrower formats."""

    without_rows: bool = False  # whether rows without any key are ignored

    @property
    def subject(self) -> Definition:
        """The verified definition."""
        return self.session.subject

    @property
    def flow(self) -> DefinitionFlow:
        """The flow of the definition, with its mistakes."""
        return self.subject.flow

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the function's inputs."""
        return frozenset(self.wrong[0].case.inputs)

    # -- the attention -------------------------------------------------------------------------------------------------
    @property
    def searched(self) -> tuple[Attention, frozenset[str]] | None:
        """See ``AttentionSearch``."""
        return self.flow.attention_of(self.names)

    def of_attention(self, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
        """See ``AttentionSearch``."""
        return self.flow.convert_mistakes(mistakes, self.names)

    # -- the mistakes --------------------------------------------------------------------------------------------------
    def every(self) -> list[Mistake]:
        """The known mistakes, and of a quick flow those of tile widths that the lengths leave possible."""
        widths = self.widths_of_tiles() if self.flow.is_quick else ()
        return [*self.flow.mistakes(self.names), *widths]

    def constants(self) -> list[Mistake]:
        """See ``Search``."""
        return self.flow.constants(self.names)

    def families(self) -> Iterator[MistakeFamily]:
        """See ``Search``."""
        return self.flow.families(self.names)

    def with_numbers(self) -> Iterator[Mistake]:
        """See ``Search``; if no number fits all heads, one for each."""
        of_all_heads = [*super().with_numbers()]
        yield from of_all_heads or self.flow.numbers_of_heads(self)

    def others(self) -> Sequence[Mistake]:
        """The further mistakes of the definition."""
        return self.subject.others

    def of_arrays(self) -> Iterator[Mistake]:
        """See ``AttentionSearch``."""
        return self.flow.changes_of_arrays()

    def narrow_steps(self, several: bool) -> Iterator[Mistake]:
        """See ``AttentionSearch``."""
        return self.flow.narrow_steps(self.session.precision, several)

    def further(self) -> list[Mistake]:
        """See ``Search``."""
        return self.flow.further(self.names)

    def rare(self) -> Iterator[Mistake]:
        """Mistakes of tiles of unusual widths, of a definition that may take as long as many runs of an attention."""
        yield from () if self.flow.is_quick else self.widths_of_tiles()

    def repeats(self, mistake: Mistake) -> bool:
        """See ``Search``: an operation on an array is left out if a mistake of a step gives the same numbers."""
        return mistake.general or not self.flow.names_steps

    @property
    def decided(self) -> Sequence[Way]:
        """See ``Search``; operations as well if they have no bound."""
        return (*super().decided, *([self.by_operations] if self.flow.has_rough_bounds else []))

    # -- how they are computed, and by what they are judged ------------------------------------------------------------
    @cached_property
    def _of_steps(self) -> StepRuns:
        """The runs of changes of steps."""
        return StepRuns(self.session.attention, self.session.precision)

    @cached_property
    def _of_functions(self) -> FunctionRuns:
        """The runs of functions of the inputs."""
        return FunctionRuns(self.subject, self.session.precision, self.computed)

    def runs_of(self, way: Any) -> StepRuns | FunctionRuns:
        """See ``Search``."""
        return self._of_steps if isinstance(way, Variant) else self._of_functions

    def way_in_part(self, way: Any, part: parts.OutputPart) -> Any:
        """See ``Search``: both outputs are computed, and joined."""
        return self.runs_of(way).in_part(way, part, self.names)

    def combined(self, first: Mistake, second: Mistake) -> Sequence[Mistake]:
        """See ``Search``."""
        return self.runs_of(first.way).combined(first, second)

    def is_bounded(self, way: Any) -> bool:
        """See ``Search``: of a change of steps, the bound is proved for rows of weights that sum to 1."""
        return way.rows if isinstance(way, Variant) else True

    def contradicts(self, judged: CaseResult, mistake: Mistake) -> bool:
        """See ``Search``; of a change of steps also true if the output is much farther from the mistake than the
        definition's bound: in half formats little is known of implementations of the mistake."""
        if super().contradicts(judged, mistake):
            return True
        if not isinstance(mistake.way, Variant):
            return False
        got, out, allowed = (
            judged.outcome.output,
            self.outputs(judged, mistake),
            judged.parts[0].expected.allowed,
        )
        # Other shapes are for other tests to judge.
        if got is None or out is None or not got.shape == out[0].shape == allowed.shape:
            return False
        return bool((np.abs(got - out[0]) > _BEYOND * allowed).any())

    def rules_out(self, judged: CaseResult, mistake: Mistake) -> bool:
        """Rule out a mistake; a function only if it leaves much of the error, since it may lose more digits than the
        definition does."""
        if not super().rules_out(judged, mistake):
            return False
        is_of_steps = isinstance(mistake.way, Variant)
        return is_of_steps or screening.left(self, [judged], mistake) > screening.LITTLE

    def seen(self, judged: CaseResult) -> CaseResult:
        """Return the case, with ``without_rows`` without its rows that have no key."""
        return blaming.without_empty_rows(judged) if self.without_rows else judged

    def axes_of_outputs(self) -> parts.Axes:
        """See ``InputSource``."""
        return self.subject.source.axes_of_outputs(self.wrong)

    # -- operations ----------------------------------------------------------------------------------------------------
    def by_operations(self) -> list[Mistake]:
        """See ``AttentionSearch``: operations are recorded on inputs whose sizes differ, way by way."""
        subject = self.subject
        inputs = reference.float64_inputs(self.telling.case.inputs)
        wrong = {subject.outputs[k] for k in self._wrong_outputs}
        # A wrong log-sum alone points to the log-sum's own step.
        step = "lse" if wrong == {"lse"} else ""
        choose = self.likely_by_rule if self.flow.has_rough_bounds else self.select_likely
        share = self.share_of_operations()  # of all ways together

        def accepted(outputs: Sequence[np.ndarray]) -> bool:
            return screening.leaves_little(self, self.telling, self._with_right_outputs(outputs))

        for number, way in enumerate(subject.recorded_ways):
            form = subject.describe_other_form(number)
            self.effort = share
            replaced = operations.replacements(way, inputs, accepted, self.count_operations)
            mistakes = [
                self.flow.replace_operation(f"{words}{form}", way, new, self.names, step)
                for words, new in replaced
            ]
            result = [*choose([*map(self._make_for_wrong_outputs, mistakes)])]
            if result:
                return result
        return []

    @cached_property
    def _wrong_outputs(self) -> frozenset[int]:
        """The outputs concerned that are wrong in some case."""
        wrong = frozenset[int]().union(*(r.wrong for r in self.wrong))
        return wrong if self.among is None else wrong & self.among

    def _with_right_outputs(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the outputs for the telling case, with the right ones in place of those that are never wrong."""
        parts = self.telling.parts
        wrong = self._wrong_outputs
        # Without any wrong output, as where shapes differ, nothing is known of them.
        if not wrong or len(outputs) != len(parts):
            return [*outputs]
        pairs = enumerate(zip(outputs, parts, strict=True))
        return [y if k in wrong else part.expected.near for k, (y, part) in pairs]

    def _make_for_wrong_outputs(self, mistake: Mistake) -> Mistake:
        """Return the mistake, made for the wrong outputs alone if it would spoil right ones."""
        # A change of steps is one of the only output.
        if isinstance(mistake.way, Variant):
            return mistake
        words, run = self._for_wrong_outputs(mistake.cause, mistake.run)
        return replace(mistake, cause=words, way=run)

    def _for_wrong_outputs(self, words: str, run: Compute) -> tuple[str, Compute]:
        """Return a change, made for the wrong outputs alone if it would spoil right ones: code may compute these
        apart."""
        wrong = self._wrong_outputs
        subject = self.subject
        if not wrong or len(wrong) == len(subject.outputs):
            return words, run
        try:
            outputs = self._of_functions.run(self.telling, run)
        # A change that cannot be run is ruled out with all others.
        except UNFIT:
            return words, run
        if screening.are_alike(outputs, self._with_right_outputs(outputs)):
            return words, run

        def run_for_wrong(**inputs: Any) -> tuple[Any, ...]:
            pairs = zip(run(**inputs), subject.ways[0](**inputs), strict=True)
            return tuple(y if k in wrong else right for k, (y, right) in enumerate(pairs))

        names = " and ".join(subject.outputs[k] for k in sorted(wrong))
        return f"{words}, for {names} alone", run_for_wrong

    def _number_for_wrong_outputs(self, family: MistakeFamily) -> MistakeFamily:
        """Return the mistakes with a number, each made for the wrong outputs alone if it would spoil right ones."""

        def way(x: float) -> Compute:
            run = family.way(x)
            assert not isinstance(run, Variant)
            return self._for_wrong_outputs("", run)[1]

        some = family.mistake(family.grid[0], "")
        words, _ = self._for_wrong_outputs(family.words, some.run)
        return MistakeFamily(family.step, words, way, family.grid)

    def _left_in_telling(self, outputs: Sequence[np.ndarray]) -> float:
        """Return how much of the error of the telling case such outputs leave; ∞ if it is undefined."""
        share = screening.left_by(self, self.telling, self._with_right_outputs(outputs))
        return float("inf") if share is None else share

    def numbers_in_operations(self) -> Iterator[Mistake]:
        """See ``AttentionSearch``: the inputs, the outputs, and the results of operations in between."""
        subject = self.subject
        telling = self.telling
        is_shown = telling.ratios is not None and screening.is_finite(telling)
        # Families have a number for every array of a step.
        if self.flow.names_steps or not is_shown:
            return
        inputs = reference.float64_inputs(telling.case.inputs)
        named = {
            i.name: i.step or subject.step
            for i in subject.inputs
            if i.made is None and i.name not in ("mask", "keep", "drop")
        }
        way = subject.recorded_ways[0]
        self.effort = self.share_of_operations()
        nearest = numbered_operations.numbered_operations(
            way,
            inputs,
            named,
            self._left_in_telling,
            self.flow.blame_array,
            self.count_operations,
        )
        yield from self.fit_numbers(map(self._number_for_wrong_outputs, nearest))

    def counted_keys(self) -> Iterator[Mistake]:
        """See ``AttentionSearch``: as the function's own weights show it."""
        way = self.subject.counted
        if way is not None:
            sizes = [
                (s["n_q"], s.get("n_k", s["n_q"]))
                for s in map(self.subject.source.sizes, self.wrong)
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
            self.subject.source.sized(self.session, {"n_q": n, "n_k": m, "d_k": 3, "d_v": m}, rng)
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

    # -- part by part --------------------------------------------------------------------------------------------------
    def found(self) -> tuple[tuple[Mistake, ...], bool]:
        """See ``Search``; nothing is found among the definition's mistakes if only the range of a format is left."""
        if all(r.finding == "not finite" for r in self.wrong) and self._beyond_range:
            return (), False
        return super().found()

    def otherwise(self, found: tuple[Mistake, ...]) -> tuple[Cause, ...]:
        """See ``Search``: by rows of an attention's output, else output by output."""
        explain = self._explain_rows if self.flow.has_rows else self._explain_outputs
        return explain(found)

    def _explain_outputs(self, found: tuple[Mistake, ...]) -> tuple[Cause, ...]:
        """Return one cause for each wrong output, if that explains them all."""
        if not found and self._beyond_range:
            return (Cause(tuple(self.wrong), self._beyond_range, self),)
        outputs = sorted(frozenset().union(*(r.wrong for r in self.wrong)))
        # A wrong shape concerns all outputs, and is not explained one by one.
        if self.among is not None or len(outputs) < 2 or any(r.ratios is None for r in self.wrong):
            return ()
        causes = []
        effort_of_pairs = self.begin_pairs()
        for k in outputs:
            wrong = [r for r in self.wrong if k in r.wrong]
            right = [r for r in self.session.records if r.ratios is not None and k not in r.wrong]
            # Searches for single outputs share what is computed of mistakes.
            cause = DefinitionSearch(
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

    def _explain_rows(self, found: tuple[Mistake, ...]) -> tuple[Cause, ...]:
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
        search = DefinitionSearch(self.session, shapes, self.right)
        return first, Cause(tuple(shapes), search.found()[0], search)

    def _behind_empty_rows(self) -> tuple[Cause, ...]:
        """Return a mistake that explains all but the rows without any key, if these are wrong as well."""
        records = [blaming.without_empty_rows(r) for r in self.session.records]
        wrong = by_size(r for r in records if r.finding in OF_VALUES)
        symptom = blaming.what_empty_rows_give(self.session.records)
        if not symptom or not wrong:
            return ()
        right = by_size(r for r in records if r.finding is None)
        cause = DefinitionSearch(self.session, wrong, right, without_rows=True).sure(symptom)
        return (cause,) if cause else ()

    def _explain_lost_separately(self) -> tuple[Cause, ...]:
        """Return a mistake that explains all finite outputs, and a cause for the others; nothing if none does."""
        finite = [r for r in self.wrong if screening.is_finite(r)]
        lost = [r for r in self.wrong if r.ratios is not None and not screening.is_finite(r)]
        if not lost or not finite:
            return ()
        first = DefinitionSearch(self.session, finite, self.right).sure()
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
            case = self.subject.source.case_of_attention(self.session, "range", title, made, rng)
            if case is None:
                return None
            session = self.session
            legal = self.session.legal(case.inputs)
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
