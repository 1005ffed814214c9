"""The last questions about an edited function: all that ``verify`` asks, with another seed.

An edit is accepted if the edited function passes every judged case within the bound, agrees on residues where the code
runs on them, and gives no fault in a new verification: other random inputs, repeated calls, changed arguments, views,
and NaN behind masks if the domain has them. It must not refuse an input that the function as it is takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from symattn.bounds.called_target import Outcome, Runner
from symattn.bounds.case_result import Case, CaseResult, Part, compared
from symattn.bounds.judge import Legal
from symattn.document.errors import SymattnError
from symattn.document.evidence import Grade
from symattn.programs.repairing.source import EndlessLoop
from symattn.verification import engine
from symattn.verification.effort import for_finding
from symattn.verification.engine import Session
from symattn.verification.probing import behaviour, hints
from symattn.verification.semantics import IdentityResult

_OTHER_SEED = 7919  # added to the seed, so that the new inputs are others
_REFUTING = 2  # cases of an edit that refute others at once
_FEWER = 4  # a part of the random inputs of a verification is drawn anew
_FEWER_OF_KERNELS = 16  # the same for interpreted kernels
_CALLS_OF_RESIDUES = 1000  # what the residues of a candidate count as
_COMPILED_SIZES = 3  # for which JAX compiles the programs of an edit
_FEW_ENTRIES = 1024  # of a call that makes few passes of loops
_MOST_OF_GROUP = 3  # cases of a group for an edit that residues prove
_FEWEST_OF_GROUP = 1  # cases of a group once the work of a search is done


@dataclass(frozen=True)
class EditAnswer:
    """The answer: the grade, if the edit is accepted, with its ε; else None and the reason.

    ``work`` is what the answer took, counted in calls. If the questions ``broke_off``, no call refutes the edit.
    """

    grade: Grade | None
    epsilon: float | None = None
    reason: str = ""
    new_search: bool = False  # whether it took a new verification, which is slow
    work: float = 0.0
    broke_off: bool = False


def examine(
    session: Session,
    edited: Runner,
    refuting: list[Case] | None = None,
    most_tokens: int = 0,
    work_done: Callable[[], float] = lambda: 0.0,
) -> EditAnswer:
    """Ask the last questions about an edited function.

    ``refuting`` are cases that refuted other edits in a new search; it gets those that refute this one. The new search
    takes at most so many tokens if ``most_tokens`` is not 0: interpreted kernels are slow, and get a few blocks.
    ``work_done`` returns the passes of loops so far, as calls: where they are many, the search asks fewer large calls.
    """
    refuting = [] if refuting is None else refuting
    calls: list[Case] = []
    try:
        if (failed := _find_failing_case(session, edited, calls)) is not None:
            return EditAnswer(None, reason=f"floats, {failed.case.group}", work=len(calls))
        again = _session_of(session, edited, most_tokens)
        again.count_work(work_done)
        # Cases that refuted other edits come first: they are few, and may refute this one too.
        calls += refuting
        if any(again.run_case(case).finding is not None for case in refuting):
            reason = "a case that refuted another edit"
            return EditAnswer(None, reason=reason, work=len(calls))
        answer = _searched_anew(session, again, most_tokens > 0)
        answer = replace(answer, new_search=True, work=len(calls) + answer.work)
    except SymattnError as error:
        return EditAnswer(None, reason=str(error), work=len(calls), broke_off=True)
    if answer.grade is None:
        wrong = [
            r.case for r in again.records if r.finding is not None and r.case.alone is not False
        ]
        refuting += wrong[:_REFUTING]
    return answer


def _find_failing_case(session: Session, edited: Runner, calls: list[Case]) -> CaseResult | None:
    """Return a judged case that fails, or None; add the cases that are called to ``calls``."""
    again = _session_of(session, edited)
    for record in _groups_in_turn(session.records):
        if record.undecided or record.case.alone is False or may_lack_values(session, record.case):
            continue
        calls.append(record.case)
        way = session.way_without_compiling(record.case)
        outcome = _with_endless_loop_as_late(edited.run(record.case.inputs, way))
        if outcome.late and not session.is_small(record.case):
            continue
        right = [part.expected for part in record.parts]
        subject = session.subject
        loose = {k for k, name in enumerate(subject.outputs) if name in subject.loose}
        result = compared(record.case, outcome, right, session.precision, loose, subject.changes)
        if result.finding is None:
            continue
        # By all ways of computing, and by JAX itself if it compiles.
        if again.run_case(replace(record.case, interpreted=False)).finding is not None:
            return result
    return None


def _groups_in_turn(records: Sequence[CaseResult]) -> list[CaseResult]:
    """Return records in such an order that each group of cases soon has one: most edits fail in few groups."""
    turns: Counter[str] = Counter()
    order = []
    for number, record in enumerate(records):
        turns[record.case.group] += 1
        order.append((turns[record.case.group], number))
    return [records[number] for _, number in sorted(order)]


def may_lack_values(session: Session, case: Case) -> bool:
    """Return whether a right function may give NaN here, as common formulas do where no part has a key.

    The subject alone can judge that, in a new search.
    """
    return case.group == "empty parts" and not session.domain.fully_masked_rows


class _SessionOfEdit(Session):
    """A session whose calls are compared with float64 first, as those of large cases are.

    Bounds take most of the time of a search, and one that is to refute an edit, neither to accuse nor to acquit a
    function, needs no power. What is not near float64, relative to its row and its column, is judged by its bound.
    """

    _work_done: Callable[[], float] = staticmethod(lambda: 0.0)
    _work = 0.0
    most_of_group: int | None = None  # cases that are tried of each group

    def count_work(self, work_done: Callable[[], float]) -> None:
        """Spend what ``work_done`` adds from now on, beside the calls themselves."""
        self._work_done, self._work = work_done, work_done()

    def call(self, case: Case) -> Outcome:
        """Call the function, and judge nothing; see ``Session``. A loop that is taken for endless is no fault."""
        outcome = _with_endless_loop_as_late(super().call(case))
        # Loops over single numbers take seconds where inputs are large.
        if case.size > _FEW_ENTRIES:
            before, self._work = self._work, self._work_done()
            self.effort.spend(calls=max(self._work - before, 0.0))
        return outcome

    def fewer(self, name: str, cases: Iterable[Case]) -> Iterator[Case]:
        """Yield the cases of a group; see ``Session``. Of a proved edit, the first ones alone."""
        # Residues are small: large calls are left to floats.
        is_large = name in self.subject.source.last() and not self.runner.convention.compiles
        return islice(super().fewer(name, cases), None if is_large else self.most_of_group)

    def choose_way(self, case: Case) -> Case:
        """Return the case as it is to be called: of an edit, JAX compiles the programs of the first sizes alone."""
        chosen = super().choose_way(case)
        is_empty = any(np.size(a) == 0 for a in case.inputs.values())
        if chosen.interpreted or is_empty or len(self.compiled_sizes) <= _COMPILED_SIZES:
            return chosen
        is_by_numpy = self.way_without_compiling(case) == "interpreted"
        return replace(case, interpreted=is_by_numpy)

    def judge_outcome(
        self,
        case: Case,
        outcome: Outcome,
        legal: Legal,
        or_smaller: bool = False,
        by_first_way: bool = False,
    ) -> CaseResult:
        """Judge what a call gave; see ``Session``."""
        screened = self._compare_case_in_float64(case, outcome, legal)
        if screened is not None and screened.finding is None:
            is_near = all(map(_is_near_in_its_row_and_column, screened.parts))
            # Of a large case, nearness to float64 alone decides.
            if is_near or self.is_screened_first(case):
                return screened
        return super().judge_outcome(case, outcome, legal, or_smaller, by_first_way)


def _with_endless_loop_as_late(outcome: Outcome) -> Outcome:
    """Return an outcome in which a loop that is taken for endless is a call that did not return in time.

    Loops over single numbers make millions of passes where inputs are large.
    """
    error = outcome.error
    if error is None or error.type != EndlessLoop.__name__:
        return outcome
    return replace(outcome, error=replace(error, reason="time limit"))


def _is_near_in_its_row_and_column(part: Part) -> bool:
    """Return whether an output is as near to float64 in small rows and columns as in the largest ones."""
    near, allowed = np.asarray(part.expected.near), np.asarray(part.expected.allowed)
    if part.got is None or not near.size:
        return True
    sizes = np.abs(np.where(np.isfinite(near), near, 0.0))
    smaller = sizes.max(axis=-1, keepdims=True) if near.ndim else sizes
    if near.ndim > 1:
        smaller = np.minimum(smaller, sizes.max(axis=-2, keepdims=True))
    limits = allowed * smaller / max(float(sizes.max()), 1e-300)
    with np.errstate(invalid="ignore"):  # of −∞ less −∞, which was compared before
        is_near = np.abs(part.got - near) <= limits
    return bool((is_near | ~np.isfinite(near)).all())


def _session_of(session: Session, edited: Runner, most_tokens: int = 0) -> _SessionOfEdit:
    promised, fewer = session.promised, _FEWER
    if most_tokens:
        fewest = max(most_tokens, promised.min_tokens)
        most = min(fewest, promised.max_tokens or fewest)
        promised, fewer = replace(promised, max_tokens=most), _FEWER_OF_KERNELS
    return _SessionOfEdit(
        edited,
        session.subject,
        session.precision,
        promised,
        session.seed + _OTHER_SEED,
        -(-session.examples // fewer),
        session.budget,
        session.progress,
        stops_at_fault=True,
        measures_power=False,
    )


def _searched_anew(session: Session, again: _SessionOfEdit, is_slow: bool) -> EditAnswer:
    """Return the answer of residues and of a new search, with its work."""
    # Residues show differences that no rounding explains, and need no bounds: they come first, and before the units of
    # the search are known, since without units none are asked.
    again.identity = hints.residues(again)
    # Without units the first cases of each group run alone: a call of a kernel is slow, and all judged ones passed.
    granted = 0.0 if is_slow else for_finding(again.examples)
    if not is_slow:
        again.fewest_of_group = _FEWEST_OF_GROUP
    # Of an edit that residues prove, floats test the arithmetic alone; JAX takes a hundred times as long for a call.
    if again.identity is not None and again.identity.epsilon is not None:
        again.most_of_group = 1 if session.runner.convention.compiles else _MOST_OF_GROUP
    again.finding = again.effort_of(granted)
    answer = _answer_of_new_search(session, again)
    return replace(answer, work=_CALLS_OF_RESIDUES + granted - again.finding.units)


def _answer_of_new_search(session: Session, again: Session) -> EditAnswer:
    identity = again.identity
    if identity is not None and _is_refuted_by_residues(identity):
        return EditAnswer(None, reason="residues")
    if engine.finds_fault(again):
        return EditAnswer(None, reason="a new search")
    # A candidate that refuses more than the original is no repair. Large calls of a right one may take long.
    if any(map(session.is_small, (r.case for r in again.late))):
        return EditAnswer(None, reason="inputs that take too long")
    if again.refused and not session.refused:
        return EditAnswer(None, reason="inputs that are refused")
    # Values behind masks are judged apart, since they need inputs of their own.
    if session.domain.nonfinite_forbidden and [*behaviour.faults_of_leaks(again)]:
        return EditAnswer(None, reason="values behind masks")
    if not any(r.decisive for r in again.records):
        return EditAnswer(None, reason="no case that could show a fault")
    if identity is not None and identity.agrees:
        return EditAnswer(identity.evidence.grade, identity.epsilon)
    return EditAnswer(Grade.SAMPLED)


def _is_refuted_by_residues(identity: IdentityResult) -> bool:
    """Return whether residues refute: not if numbers are nearly equal, or a letter stands for any function."""
    opaque = any("stands for any function" in note for note in identity.notes)
    return (
        identity.agrees is False
        and identity.difference is not None
        and not identity.nearly
        and not opaque
    )


def sorted_samples(records: Sequence[CaseResult]) -> list[CaseResult]:
    """Return wrong cases, most telling first: normal numbers, sizes that all differ, about 60 entries."""

    def order(r: CaseResult) -> tuple[bool, bool, int]:
        plain = r.case.group in ("random", "shapes", "sizes", "numbers", "accuracy")
        shapes = {n: a.shape for n, a in r.case.inputs.items()}
        lengths = [n for shape in shapes.values() for n in shape[-2:]]
        return not plain, len(set(lengths)) < min(4, len(lengths)), abs(r.case.size - 60)

    return sorted(records, key=order)
