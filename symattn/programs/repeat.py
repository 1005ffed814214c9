"""One case again: the inputs that a word of ``verification.case_codes`` stands for, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symattn.bounds.called_target import Convention, Memory
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.domain import Domain
from symattn.document.errors import CannotRun
from symattn.document.evidence import Grade, Verdict
from symattn.programs.target import narrowed
from symattn.programs.verify import Options, subject_of, verify_target
from symattn.verification import engine
from symattn.verification.case_codes import decode, encode, named, speaks
from symattn.verification.definitions.registry import Specification
from symattn.verification.engine import Session
from symattn.verification.report import Check, Fault, Report

Inputs = Mapping[str, np.ndarray]
GROUP = "case"
_MEMORIES: tuple[Memory, ...] = ("contiguous", "strided", "transposed")


@dataclass(frozen=True)
class Repeated:
    """Calls that were made again, the last of them judged.

    ``calls`` are those that show the fault, in order, or all of them where none does.
    """

    calls: tuple[CaseResult, ...]
    convention: Convention
    report: Report

    @property
    def judged(self) -> CaseResult:
        """The call that shows the fault, or the last one."""
        return self.calls[-1]


def repeat(session: Session, inputs: Inputs, word: str) -> Repeated:
    """Call the function on these inputs until a fault shows: at first once, then with the arrays lying otherwise in
    memory, then after a call with other numbers in the same shapes."""
    from symattn.verification.diagnosis.faults import faults  # it brings all the mistakes that are known

    for calls in _attempts(session, inputs, word):
        if calls[-1].finding is not None:
            session.records = list(calls)
            # No more is claimed than one case can tell: a mistake that explains it may not explain others.
            seen = "seen alone, this case is consistent with"
            results = tuple(
                f if f.cause is None else replace(f, cause=None, message=f"{seen}: {f.cause}") for f in faults(session)
            )
            return Repeated(calls, session.runner.convention, _report(session, results))
    return Repeated(tuple(session.records), session.runner.convention, _report(session, ()))


def _attempts(session: Session, inputs: Inputs, word: str) -> Iterator[tuple[CaseResult, ...]]:
    for memory in _MEMORIES[: 1 if session.domain.contiguous else None]:
        judged = session.run_case(Case(GROUP, word, inputs, memory))
        session.records.append(judged)
        yield (judged,)
    session.runner.close()  # what a process remembers is gone
    first, judged = (
        session.run_case(Case(GROUP, "before it", _others(session, inputs))),
        session.run_case(Case(GROUP, word, inputs)),
    )
    session.records += [first, judged]
    yield first, judged


def _others(session: Session, inputs: Inputs) -> dict[str, np.ndarray]:
    """The arrays that hold numbers of any size, tokens, queries, keys and values among them, with the other sign."""
    result = {name: 0.0 - a if name in session.subject.free(inputs) else a for name, a in inputs.items()}
    return session.subject.completed(session, result)


def _report(session: Session, results: tuple[Fault, ...]) -> Report:
    records = session.records
    result = any(r.decisive for r in records if r.ratios is not None)
    verdict = Verdict.FAULT if results else Verdict.NO_FAULT if result else Verdict.UNDECIDED
    grade = Grade.REFUTED if results else Grade.SAMPLED if result else Grade.UNDECIDED
    wrong = sum(r.finding is not None for r in records)
    check = Check(GROUP, grade, len(records), wrong, max(r.worst for r in records))
    late = dict.fromkeys(f"{r.outcome.error}; hint: raise --time-limit" for r in records if r.outcome.late)
    return Report(
        verdict, session.runner.describe(), session.precision.words, "this case alone", session.seed, results, (check,),
        session.runner.notes, "".join(session.stdout), fields=session.subject.fields(),
        missing=() if results else tuple(late),
    )  # fmt: skip


def repeat_target(target: str, spec: Specification, inputs: Inputs, **options: Any) -> Repeated:
    """``repeat`` for ``package.module:function`` or ``file.py:function`` in a process of its own.

    ``options`` are those of ``verify_target``. Raises as that does.
    """
    how = Options(**options)
    with how.child(target, spec) as child:
        domain = narrowed(child, how.domain or Domain()) or how.domain or Domain()
        session = Session(child, subject_of(child, spec), how.precision, domain, how.seed, 0, engine.BUDGET)
        result = repeat(session, inputs, encode(spec, inputs, how.dtype))
    if all(r.outcome.error is not None for r in result.calls) and not result.report.faults:
        raise CannotRun(f"{result.report.target}: {result.judged.outcome.error}")
    usual = replace(how, examples=engine.EXAMPLES, budget=engine.BUDGET)  # they say nothing about one case
    return replace(result, report=replace(result.report, command=usual.command(target, spec=spec)))


def verify_case(target: str, spec: Specification, word: str, *, dtype: str = "float32", **keywords: Any) -> Report:
    """The report on one case alone, by its word. ``keywords`` are options of ``verify_target``.

    Where the word is a hash, everything is run again with the same seed, and the fault of that word is what the report
    keeps. Raises ``InputError`` for a word of another specification, and as ``verify_target`` does.
    """
    if speaks(word):
        report = repeat_target(target, spec, decode(spec, word, dtype), dtype=dtype, **keywords).report
        return named(replace(report, command=f"{report.command} --case {word}"), spec, dtype)
    report = named(verify_target(target, spec, dtype=dtype, **keywords), spec, dtype)
    faults = tuple(fault for fault in report.faults if fault.case == word)
    verdict = Verdict.FAULT if faults else report.verdict if not report.faults else Verdict.NO_FAULT
    note = f"The inputs of {word} are too many for a word, so that every case was run again."
    return replace(report, faults=faults, verdict=verdict, notes=(*report.notes, note))
