"""One case again: the inputs that a word of ``verification.case_codes`` stands for, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from symattn.arrays.precision import Contract, Precision
from symattn.attention.spec import Attention
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.domain import Domain
from symattn.bounds.target import Convention, Framework, Layout, Memory, Runner
from symattn.document.evidence import Grade, Verdict
from symattn.programs import definitions
from symattn.programs.child import Child, Limits
from symattn.programs.loading import CannotRun
from symattn.programs.origin import Origin
from symattn.programs.request import keyword
from symattn.programs.target import narrowed
from symattn.programs.verify import command_line, effort, requested
from symattn.verification import engine
from symattn.verification.attention import OfAttention
from symattn.verification.case_codes import encode
from symattn.verification.definitions.registry import Specification
from symattn.verification.engine import Session
from symattn.verification.report import Check, Fault, Report
from symattn.verification.subject import Subject

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
            found = tuple(map(_alone, faults(session)))
            return Repeated(calls, session.runner.convention, _report(session, found))
    return Repeated(tuple(session.records), session.runner.convention, _report(session, ()))


def _alone(fault: Fault) -> Fault:
    """The fault with no more claimed than one case can tell: a mistake that explains it may not explain others."""
    if fault.cause is None:
        return fault
    return replace(fault, cause=None, message=f"seen alone, this case is consistent with: {fault.cause}")


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
    found = {name: 0.0 - a if name in session.subject.free(inputs) else a for name, a in inputs.items()}
    return session.subject.completed(session, found)


def _report(session: Session, found: tuple[Fault, ...]) -> Report:
    records = session.records
    told = any(r.decisive for r in records if r.ratios is not None)
    verdict = Verdict.FAULT if found else Verdict.NO_FAULT if told else Verdict.UNDECIDED
    grade = Grade.REFUTED if found else Grade.SAMPLED if told else Grade.UNDECIDED
    wrong = sum(r.finding is not None for r in records)
    check = Check(GROUP, grade, len(records), wrong, max(r.worst for r in records))
    late = dict.fromkeys(f"{r.outcome.error}; hint: raise --time-limit" for r in records if r.outcome.late)
    return Report(
        verdict, session.runner.describe(), session.precision.words, "this case alone", session.seed, found, (check,),
        session.runner.notes, "".join(session.stdout), fields=session.subject.fields(),
        missing=() if found else tuple(late),
    )  # fmt: skip


def repeat_target(
    target: str,
    spec: Specification,
    inputs: Inputs,
    *,
    dtype: str = "float32",
    contract: Contract | None = None,
    call: Iterable[str] = (),
    mask_arg: str | None = None,
    layout: Layout | None = None,
    framework: Framework | None = None,
    domain: Domain | None = None,
    time_limit: float | None = None,
    seed: int = engine.SEED,
    origin: Origin | None = None,
    **others: object,
) -> Repeated:
    """``repeat`` for ``package.module:function`` or ``file.py:function`` in a process of its own.

    ``others`` are options of ``verify_target`` that say nothing about one case. Raises as that does.
    """
    request = requested(
        spec, layout, domain, dtype=dtype, framework=framework, call=tuple(map(keyword, call)), mask_arg=mask_arg
    )
    limits = Limits() if time_limit is None else replace(Limits(), call=time_limit)
    with Child(target, request, limits) as child:
        session = _session(child, spec, Precision.of(dtype, contract), domain or Domain(), seed)
        found = repeat(session, inputs, encode(spec, inputs, dtype))
    if all(r.outcome.error is not None for r in found.calls) and not found.report.faults:
        raise CannotRun(f"{found.report.target}: {found.judged.outcome.error}")
    how = effort(contract, time_limit, seed=seed)
    line = command_line(target, spec=spec, request=request, domain=domain or Domain(), options=how, origin=origin)
    return replace(found, report=replace(found.report, command=line))


def _session(runner: Runner, spec: Specification, precision: Precision, domain: Domain, seed: int) -> Session:
    how = runner.convention
    if isinstance(how, definitions.Formed):
        subject: Subject = definitions.subject_of(spec, how)
    else:
        assert isinstance(spec, Attention)
        subject, domain = OfAttention(spec), narrowed(runner, domain) or domain
    return Session(runner, subject, precision, domain, seed, 0, engine.BUDGET)
