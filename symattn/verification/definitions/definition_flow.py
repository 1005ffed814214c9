"""The flow of a definition: what computes its outputs, and what can be wrong in it.

A flow is one of named steps, or of functions of all inputs. The search for causes and the report ask both the same
questions, so that neither needs to know which of them it is. Rules of mistakes are imported where they are applied:
a right function needs none, and importing them all takes a tenth of a second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.attention.stated_flow import StatedFlow
from symattn.bounds import judge
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import CaseResult
from symattn.bounds.changed_steps import ChangedSteps, Laid
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily
from symattn.bounds.reference import Values, Variant
from symattn.verification import power, reduce
from symattn.verification.definitions import compared_steps
from symattn.verification.definitions.compared_steps import ComparedStep
from symattn.verification.definitions.inner_attention import WrongAttention
from symattn.verification.power import Mutation
from symattn.verification.report import SmallestSeen, StepPower

if TYPE_CHECKING:
    from symattn.verification.arithmetic.bits_of_a_call import Trial
    from symattn.verification.definitions.definition_subject import Definition
    from symattn.verification.diagnosis.attention_search import AttentionSearch
    from symattn.verification.engine import Session
    from symattn.verification.rules.recording import OtherOperation

#: Wrong, right and failed cases that are judged by balls, if these are quick, and if they are not.
_JUDGED_QUICKLY, _JUDGED = (10, 6, 4), (10**6, 30, 0)
#: Entries of a recurrence's inputs beyond which no bounds in other formats are computed, which takes seconds.
_LARGEST_BOUNDED_IN_OTHER_FORMATS = 512
# of the calls with roundings in a narrower format: numbers of few digits have none
_LEAST_SHARE_OF_ROUNDED = 1 / 3
#: An attention, and the names of its inputs.
AttentionOfNames = tuple[Attention, frozenset[str]]


class DefinitionFlow(ABC):
    """The run of a definition, and its mistakes by rule.

    ``names`` are those of the inputs that a function takes.
    """

    # -- a right function ----------------------------------------------------------------------------------------------
    @abstractmethod
    def measure_power(self, session: Session) -> tuple[StepPower, ...]:
        """Return the power of the judged cases for each step."""

    @abstractmethod
    def find_smallest_seen(self, session: Session) -> tuple[SmallestSeen, ...]:
        """Return the smallest relative errors of a step's numbers that the judged cases would have shown."""

    @property
    @abstractmethod
    def spec_on_residues(self) -> Attention | None:
        """The attention whose arrays are drawn as residues; None if a definition draws its own."""

    @property
    @abstractmethod
    def counted_heads(self) -> int:
        """The number of heads that a function's convention counts as an axis of its own."""

    # -- mistakes ------------------------------------------------------------------------------------------------------
    @abstractmethod
    def attention_of(self, names: frozenset[str]) -> AttentionOfNames | None:
        """Return the attention whose steps mistakes change, with the names of its inputs; None if there is none."""

    @abstractmethod
    def convert_mistakes(
        self, mistakes: Iterable[Mistake], names: frozenset[str]
    ) -> Iterator[Mistake]:
        """Yield these mistakes of that attention as mistakes of the definition, as far as they are any."""

    @abstractmethod
    def mistakes(self, names: frozenset[str]) -> list[Mistake]:
        """Return the known mistakes."""

    @abstractmethod
    def constants(self, names: frozenset[str]) -> list[Mistake]:
        """Return the mistakes whose output ignores inputs, such as zeros."""

    @abstractmethod
    def families(self, names: frozenset[str]) -> Iterator[MistakeFamily]:
        """Yield the mistakes with a number."""

    @abstractmethod
    def changes_of_arrays(self) -> Iterator[Mistake]:
        """Yield changes of the entries of what is passed to a function and returned by it."""

    @abstractmethod
    def further(self, names: frozenset[str]) -> list[Mistake]:
        """Return less likely mistakes, such as changes of any array by rule."""

    def narrow_steps(self, precision: Precision, several: bool) -> Iterator[Mistake]:
        """Yield the mistakes that a step outside of an attention is computed in a narrower format: one number in it,
        or ``several``. By default there are none."""
        yield from ()

    @abstractmethod
    def blame_array(self, name: str, step: str = "") -> str:
        """Return the step that a report names for a fault in an array; if it has none, ``step``, or by default the
        flow's own."""

    @abstractmethod
    def replace_operation(
        self, words: str, way: Compute, new: OtherOperation, names: frozenset[str], step: str
    ) -> Mistake:
        """Return the mistake of one replaced operation in a way of computing, blamed by ``blame_array``."""

    def compare_steps(self, judged: CaseResult, mistake: Mistake) -> tuple[ComparedStep, ...]:
        """Return the worst row of each step, correct and with the mistake; () in large cases, and if no step changes.

        By default the steps are those of an attention whose output is the first one.
        """
        change = mistake.change_of_steps
        if change is None or not _has_rows_of_attention(judged):
            return ()
        return reduce.steps(judged, change)

    @abstractmethod
    def numbers_of_heads(self, search: AttentionSearch) -> Iterator[Mistake]:
        """Yield the mistakes with a number for each head that a search fits."""

    # -- how they are searched for -------------------------------------------------------------------------------------
    @property
    @abstractmethod
    def has_rough_bounds(self) -> bool:
        """Return whether the bound on a mistake allows much in half formats, so that floats decide about it."""

    @property
    @abstractmethod
    def names_steps(self) -> bool:
        """Return whether every mistake but an operation names a step: of those with the same numbers all are named, and
        families have a number for every array."""

    @property
    @abstractmethod
    def has_rows(self) -> bool:
        """Return whether the only output has rows of an attention, whose run explains them row by row."""

    @property
    @abstractmethod
    def is_quick(self) -> bool:
        """Return whether a run takes no longer than one of an attention, so that mistakes may be many."""

    #: The numbers of wrong, right and failed cases that are judged by balls.
    judged = _JUDGED

    # -- a fault that no mistake explains ------------------------------------------------------------------------------
    @abstractmethod
    def find_form(self, precision: Precision, wrong: Sequence[CaseResult]) -> tuple[str, str]:
        """Return step and name of a form that loses relative accuracy and whose own bound covers all errors, or
        ("", "")."""

    @abstractmethod
    def blame_step(
        self, session: Session, smallest: CaseResult, records: Sequence[CaseResult]
    ) -> tuple[str, str]:
        """Return the step to blame for a fault that no known mistake explains, and the evidence in words."""

    @abstractmethod
    def blame_format(self, session: Session, narrow: str) -> tuple[str, str]:
        """Return the step to blame if arithmetic in a ``narrow`` format could cause all errors, and the evidence."""


@dataclass(frozen=True)
class FlowOfSteps(DefinitionFlow):
    """The steps of an attention alone: it takes its arrays and returns its output.

    All mistakes are changes of steps. They can be combined with each other, share all arrays before the step, and have
    a bound while rows of weights sum to 1.
    """

    spec: Attention

    has_rough_bounds = names_steps = has_rows = is_quick = True
    judged = _JUDGED_QUICKLY

    def measure_power(self, session: Session) -> tuple[StepPower, ...]:
        """See ``DefinitionFlow``: every step of the inputs that were tried, with mistakes by rule."""
        drawn = session.subject.source.drawn_for_power(session)
        right, mutations = power.of_attention(self.spec, _names_of_tried(session, drawn))
        by_bits = [partial(_find_by_bits, session.trial)] if session.trial else []
        return power.powers(right, mutations, drawn, session.tried, *by_bits)

    def find_smallest_seen(self, session: Session) -> tuple[SmallestSeen, ...]:
        """See ``DefinitionFlow``."""
        drawn = session.subject.source.drawn_for_power(session)
        names = _names_of_tried(session, drawn)
        by_bits = [partial(_find_by_bits, session.trial)] if session.trial else []
        return power.smallest_seen(self.spec, names, drawn, session.tried, *by_bits)

    @property
    def spec_on_residues(self) -> Attention:
        """See ``DefinitionFlow``."""
        return self.spec

    @property
    def counted_heads(self) -> int:
        """See ``DefinitionFlow``."""
        return self.spec.heads

    def attention_of(self, names: frozenset[str]) -> AttentionOfNames:
        """See ``DefinitionFlow``."""
        return self.spec, names

    def convert_mistakes(
        self, mistakes: Iterable[Mistake], names: frozenset[str]
    ) -> Iterator[Mistake]:
        """See ``DefinitionFlow``: those that change something in the specification."""
        steps = self._names_of_steps(names)
        for mistake in mistakes:
            way = mistake.variant
            if way.values != "v" or way.spec or way.inputs or steps & way.steps.keys():
                yield mistake

    def mistakes(self, names: frozenset[str]) -> list[Mistake]:
        """See ``DefinitionFlow``: those by rule of every step."""
        from symattn.verification.rules.known_mistakes import yield_known_mistakes

        return [*self.convert_mistakes(yield_known_mistakes(self.spec, names), names)]

    def constants(self, names: frozenset[str]) -> list[Mistake]:
        """See ``DefinitionFlow``."""
        from symattn.verification.rules import constant_outputs

        return [*constant_outputs.mistakes(self.spec, names)]

    def families(self, names: frozenset[str]) -> Iterator[MistakeFamily]:
        """See ``DefinitionFlow``: those of the steps that there are."""
        from symattn.verification.rules.families import families

        steps = self._names_of_steps(names)
        for family in families(self.spec, names):
            # Any of its numbers changes the same steps.
            way = family.variant(family.grid[0])
            if way.spec is not None or way.steps.keys() <= steps:
                yield family

    def changes_of_arrays(self) -> Iterator[Mistake]:
        """See ``DefinitionFlow``: none, as each array is one of a step."""
        yield from ()

    def further(self, names: frozenset[str]) -> list[Mistake]:
        """See ``DefinitionFlow``: changes of the entries of any array."""
        from symattn.verification.rules.known_mistakes import yield_mistakes_of_entries

        changes = yield_mistakes_of_entries(self.spec, names)
        return [*self.convert_mistakes(changes, names)]

    def blame_array(self, name: str, step: str = "") -> str:
        """See ``DefinitionFlow``."""
        from symattn.verification.rules.operations import step_to_blame

        return step_to_blame(name, step or "output")

    def replace_operation(
        self, words: str, way: Compute, new: OtherOperation, names: frozenset[str], step: str
    ) -> Mistake:
        """See ``DefinitionFlow``: a change of the last step, which has no bound."""
        from symattn.verification.rules.recording import run_replaced

        def output(spec: Attention, values: Values) -> object:
            return run_replaced(spec, new, **{name: values[name] for name in names})

        return Mistake(
            self.blame_array(new.step, step),
            words,
            Variant({"output": output}),
            in_floats=True,
            general=True,
        )

    def numbers_of_heads(self, search: AttentionSearch) -> Iterator[Mistake]:
        """See ``DefinitionFlow``."""
        from symattn.verification.diagnosis import numbers_of_heads

        yield from numbers_of_heads.mistakes(search, self.spec)

    def find_form(self, precision: Precision, wrong: Sequence[CaseResult]) -> tuple[str, str]:
        """See ``DefinitionFlow``."""
        from symattn.verification.diagnosis.coarser import form

        return form(self.spec, precision, wrong)

    def blame_step(
        self, session: Session, smallest: CaseResult, records: Sequence[CaseResult]
    ) -> tuple[str, str]:
        """See ``diagnosis.blaming``."""
        from symattn.verification.diagnosis import blaming

        return blaming.blamed(session, smallest, records)

    def blame_format(self, session: Session, narrow: str) -> tuple[str, str]:
        """See ``DefinitionFlow``: the side of the softmax, if the output shows it."""
        from symattn.verification.diagnosis.coarser import side

        return side(session, narrow)

    def _names_of_steps(self, names: frozenset[str]) -> set[str]:
        return {step.name for step in self.spec.pipeline(names)}


@dataclass(frozen=True)
class FlowOfWays(DefinitionFlow):
    """The ways of a definition, which are functions of all its inputs.

    A mistake is such a function too. Those of an attention inside, if there is one, are made so.
    """

    definition: Definition

    has_rough_bounds = names_steps = has_rows = is_quick = False
    spec_on_residues = None
    counted_heads = 1

    @property
    def _inner_mistakes(self) -> WrongAttention | None:
        inner = self.definition.inner
        return None if inner is None else inner.wrong

    def measure_power(self, session: Session) -> tuple[StepPower, ...]:
        """See ``DefinitionFlow``: each step with a known mistake."""
        definition = self.definition
        drawn = definition.source.drawn_for_power(session)
        by_step = {step: [alike] for step, alike in definition.mutations_by_step().items()}
        return power.powers(definition.right, by_step, drawn, session.tried)

    def find_smallest_seen(self, session: Session) -> tuple[SmallestSeen, ...]:
        """See ``DefinitionFlow``: none, as a function has no numbers in between."""
        return ()

    def attention_of(self, names: frozenset[str]) -> AttentionOfNames | None:
        """See ``DefinitionFlow``: the attention inside."""
        wrong = self._inner_mistakes
        return None if wrong is None else (wrong.spec, wrong.names)

    def convert_mistakes(
        self, mistakes: Iterable[Mistake], names: frozenset[str]
    ) -> Iterator[Mistake]:
        """See ``DefinitionFlow``: as functions."""
        if self._inner_mistakes is not None:
            yield from self._inner_mistakes.convert_mistakes(mistakes)

    def mistakes(self, names: frozenset[str]) -> list[Mistake]:
        """See ``DefinitionFlow``: the definition's own, and those by rule."""
        from symattn.verification.definitions import definition_mistakes

        return [*self.definition.mistakes, *definition_mistakes.changes(self.definition)]

    def constants(self, names: frozenset[str]) -> list[Mistake]:
        """See ``DefinitionFlow``."""
        from symattn.verification.definitions import definition_mistakes

        return [*definition_mistakes.constants(self.definition)]

    def families(self, names: frozenset[str]) -> Iterator[MistakeFamily]:
        """See ``DefinitionFlow``: another number in a field, and outputs with a factor."""
        from symattn.verification.definitions import definition_mistakes

        yield from self.definition.numbered
        yield from definition_mistakes.of_outputs(self.definition)

    def changes_of_arrays(self) -> Iterator[Mistake]:
        """See ``DefinitionFlow``."""
        from symattn.verification.definitions import definition_mistakes

        return definition_mistakes.of_arrays(self.definition)

    def further(self, names: frozenset[str]) -> list[Mistake]:
        """See ``DefinitionFlow``."""
        return [*self.changes_of_arrays(), *self.definition.others]

    def blame_array(self, name: str, step: str = "") -> str:
        """See ``DefinitionFlow``."""
        from symattn.verification.rules.operations import step_to_blame

        return step_to_blame(name, step or self.definition.step)

    def replace_operation(
        self, words: str, way: Compute, new: OtherOperation, names: frozenset[str], step: str
    ) -> Mistake:
        """See ``DefinitionFlow``."""
        from symattn.verification.rules.recording import run_replaced

        return Mistake(self.blame_array(new.step, step), words, partial(run_replaced, way, new))

    def numbers_of_heads(self, search: AttentionSearch) -> Iterator[Mistake]:
        """See ``DefinitionFlow``: none."""
        yield from ()

    def find_form(self, precision: Precision, wrong: Sequence[CaseResult]) -> tuple[str, str]:
        """See ``DefinitionFlow``: none, as each way has its own bound."""
        return "", ""

    def blame_step(
        self, session: Session, smallest: CaseResult, records: Sequence[CaseResult]
    ) -> tuple[str, str]:
        """See ``DefinitionFlow``: the idle step of the attention inside without which all is right, or that its values
        are in other places; else the definition's step, and the narrower format whose arithmetic could make such
        errors."""
        from symattn.verification.diagnosis import blaming
        from symattn.verification.diagnosis.coarser import coarser

        definition = self.definition
        # A step of the attention says more than the definition's own step.
        wrong = [smallest, *(r for r in records if r.finding == "values")]
        looks = (blaming.idle_step, blaming.other_function, blaming.other_values)
        for look in looks if definition.inner is not None else ():
            step, evidence = look(session, wrong)
            if step:
                return step, evidence
        # Bounds in other formats cost as much as the first one.
        if definition.law is not None and smallest.case.size > _LARGEST_BOUNDED_IN_OTHER_FORMATS:
            return definition.step, ""
        step, evidence = coarser(session, records)
        return step or definition.step, evidence

    def blame_format(self, session: Session, narrow: str) -> tuple[str, str]:
        """See ``DefinitionFlow``: the side of the softmax, if an output of attention shows it; else the definition's
        own step."""
        if self.definition.returns_attended:
            from symattn.verification.diagnosis.coarser import side

            step, evidence = side(session, narrow)
            if step:
                return step, evidence
        if not _are_enough_calls_wrong(session):
            return self.definition.step, ""
        name = f"all-{narrow}" if narrow == session.precision.input.name else narrow
        return self.definition.step, f"its errors are ones that {name} arithmetic could make"


@dataclass(frozen=True)
class FlowOfStatedSteps(FlowOfWays):
    """The steps that a definition states, whose run is its first way; mistakes are changes of their arrays."""

    spec: StatedFlow
    laid: Laid = lambda run: run

    def changes_of_arrays(self) -> Iterator[Mistake]:
        """See ``DefinitionFlow``: also of the arrays that steps compute in between."""
        from symattn.verification.definitions import definition_mistakes

        yield from super().changes_of_arrays()
        yield from definition_mistakes.of_computed_arrays(self.definition, self.spec, self.laid)

    def narrow_steps(self, precision: Precision, several: bool) -> Iterator[Mistake]:
        """See ``DefinitionFlow``."""
        from symattn.verification.rules import narrow_steps

        return narrow_steps.of_stated_steps(self.spec, precision, self.laid, several)

    def compare_steps(self, judged: CaseResult, mistake: Mistake) -> tuple[ComparedStep, ...]:
        """See ``DefinitionFlow``."""
        # Of an attention inside, the rows of its own steps say more.
        of_attention = super().compare_steps(judged, mistake)
        if of_attention or not isinstance(mistake.way, ChangedSteps):
            return of_attention
        passed = {i.name: i.shape for i in self.definition.inputs}
        return compared_steps.compare(mistake.way, judged, self.spec.list_axes(passed))

    def blame_array(self, name: str, step: str = "") -> str:
        """See ``DefinitionFlow``: by the record of the array's step."""
        blamed = {s.name: s.blames for s in self.spec.pipeline_of_all}
        return blamed.get(name) or step or self.definition.step


def _are_enough_calls_wrong(session: Session) -> bool:
    """Return whether so many calls are wrong that roundings may be to blame: they occur in all of them."""
    wrong = sum(r.finding == "values" for r in session.records)
    right = sum(r.finding is None for r in session.records)
    return wrong >= _LEAST_SHARE_OF_ROUNDED * (wrong + right)


def _has_rows_of_attention(judged: CaseResult) -> bool:
    """Return whether the worst entry of a case is one of an attention's output that was judged by a run."""
    if judged.ratios is None or not isinstance(judged.parts[0].expected, judge.Traced):
        return False
    output, _ = judged.where
    return output == 0


def _names_of_tried(session: Session, drawn: Sequence[Inputs]) -> frozenset[str]:
    """Return the names of the inputs of cases that were tried; of drawn ones, if none was judged."""
    inputs = next((inputs for inputs, _ in session.tried[:1]), drawn[0])
    return frozenset(inputs)


def _find_by_bits(trial: Trial, mutation: Mutation) -> float:
    """Return the smallest share of a mistake that the bits of half precision show."""
    return trial.smallest(mutation.variant)
