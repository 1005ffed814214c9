"""``symattn.judge``: one status about a candidate, by inputs that are drawn after it was loaded."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symattn import __version__
from symattn.arrays.precision import Contract
from symattn.bounds.called_target import Framework, Layout, Runner
from symattn.bounds.domain import Domain
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import CannotRun, CannotRunHere, InputError, NeedsMemory
from symattn.document.evidence import Evidence, Grade, Verdict
from symattn.programs.child import TargetOptions, with_fork_server, with_shared_adviser
from symattn.programs.guard import Tampered
from symattn.programs.judging.clock import Clock
from symattn.programs.judging.hashes import file_of_target, hash_of_symattn, hash_of_target
from symattn.programs.judging.judgement import (
    Judgement,
    Location,
    PowerOfStep,
    Status,
    TextHashes,
    WrongEntry,
)
from symattn.programs.judging.scan import notes_of_source
from symattn.programs.names import Function
from symattn.programs.specifications import Specification, words_of
from symattn.programs.verify import meant
from symattn.programs.verifying import Options, check_function, checked, verified
from symattn.verification import engine
from symattn.verification.repair import Repair
from symattn.verification.report import Fault, Report

# Fresh seeds are below this, so that every random generator takes them.
_MAX_SEED = 2**31
_MAX_SHOWN = 64  # entries of the inputs of a call that a judgement holds
_SMALL_ERROR = 0.01  # an error of a step's numbers that PASS promises to have noticed
_FILE_CHANGED = "the candidate's file changed while it was judged"
#: The limit for a candidate that is a function.
_IN_THIS_PROCESS = (
    "the candidate ran in the judge's own process, without a time limit, and could have read the definition; "
    "hint: judge file.py:function"
)


def judge(
    candidate: Function | str,
    definition: Specification | None = None,
    *,
    config: object = None,
    layer: int | None = None,
    kind: str = "self",
    reference: str | None = None,
    dtype: str | None = None,
    contract: Contract | None = None,
    domain: Domain | None = None,
    call: Mapping[str, object] | None = None,
    mask_arg: str | None = None,
    mask_axes: str | None = None,
    layout: Layout | None = None,
    framework: Framework | None = None,
    examples: int = engine.EXAMPLES,
    budget: float = engine.BUDGET,
    time_limit: float | None = None,
    memory_limit: float | None = None,
    seed: int | None = None,
    why: bool = False,
) -> Judgement:
    """Judge whether ``candidate`` computes the ``definition``, by default plain attention, and return one status.

    A candidate named by ``file.py:function`` or ``package.module:function`` runs in a process of its own; a function
    runs in this one, which is a limit. The inputs are drawn after the candidate was loaded, from a fresh seed that the
    judgement names, or from ``seed``. The first output that no correct implementation in this arithmetic gives ends the
    search; its cause, and edits of its source that make it right, are sought only if ``why`` is true. ``PASS`` says
    that an error of 1 % in the numbers of any step would have been noticed; otherwise the limits say what would not.

    ``reference`` is the file of a benchmark with ``Model``, ``get_inputs`` and ``get_init_inputs``: the definition is
    then the one that it computes, which is sought unless it is given; ``candidate`` is a file with the class
    ``ModelNew``; and the benchmark's own inputs are tried as well. The ``dtype`` is theirs, or else float32, if it is
    not given. A process of its own may use ``memory_limit`` GiB of memory, by default 8. The other arguments are those
    of ``verify``.

    Raises ``InputError`` if the definition or an option cannot be used, or no candidate has this name.

    >>> import numpy as np
    >>> def uniform(q, k, v):
    ...     return np.broadcast_to(v.mean(axis=0), (len(q), v.shape[1])).astype(v.dtype)
    >>> judgement = judge(uniform)
    >>> judgement.status.value, judgement.exit_code, judgement.counterexample.error
    ('FAIL', 1, None)
    """
    how = _options_for(
        candidate, reference, time_limit, memory_limit, dtype=dtype or "float32", contract=contract, domain=domain,
        call=call or {}, mask_arg=mask_arg, mask_axes=mask_axes, layout=layout, framework=framework,
        examples=examples, budget=budget,
    )  # fmt: skip
    spec = meant(definition, config, layer, kind)
    if reference is None:
        return CandidateJudge(candidate, spec, how, seed, why=why).judgement()
    from symattn.programs.judging import references  # most candidates have none

    if not isinstance(how, TargetOptions) or not isinstance(candidate, str):
        raise InputError(
            "reference is for a candidate by its name; hint: judge('kernel.py', reference='ref.py')"
        )
    return references.ByReference(
        candidate, references.path_of(reference), spec, how, seed, dtype, why
    ).judgement()


def _options_for(
    candidate: Function | str,
    reference: str | None,
    time_limit: float | None,
    memory_limit: float | None,
    **given: Any,
) -> Options:
    """Return the options by which a candidate is called: in a process of its own if it has a name."""
    if isinstance(candidate, str):
        # A process of its own must not read the reference.
        secret = () if reference is None else (reference,)
        limited = TargetOptions(
            time_limit=time_limit, memory_limit=memory_limit, secret=secret, **given
        )
        return replace(limited, verdict_alone=True)
    check_function(candidate)
    return Options(verdict_alone=True, **given)


@dataclass(frozen=True)
class CandidateJudge:
    """A candidate, the definition, and how it is called; ``seed`` is drawn after the candidate was loaded if None.

    ``notes`` are limits that are known before: heads of a model that were cut, a definition that was found. A ``clock``
    has measured what came before.
    """

    candidate: Function | str
    definition: Specification | None
    how: Options
    seed: int | None = None
    notes: tuple[str, ...] = ()
    definition_from: str = "given"
    why: bool = False
    clock: Clock | None = None

    @one_blas_thread
    def judgement(self) -> Judgement:
        """Return the judgement. Raises ``InputError`` for what cannot be used as it was given."""
        with (
            with_fork_server(self.how, file_of_target(self.candidate)) as with_server,
            with_shared_adviser(with_server) as how,
        ):
            return replace(self, how=how)._judgement()

    def _judgement(self) -> Judgement:
        clock = self.clock or Clock()
        drawn: list[int] = []

        def draw(runner: Runner) -> int:
            """Draw the seed once, when the candidate has been loaded."""
            if not drawn:
                drawn.append(secrets.randbelow(_MAX_SEED) if self.seed is None else self.seed)
            return drawn[0]

        how = self.how
        if isinstance(how, TargetOptions):
            how = replace(how, started=clock.follow)
            # Who has a clock already follows the server, too.
            if how.server is not None and self.clock is None:
                clock.follow(how.server)
        spec = checked(self.definition, how.domain)
        # Hashed before the candidate runs, so that a change of its file shows.
        before, noted = (
            hash_of_target(self.candidate),
            notes_of_source(file_of_target(self.candidate)),
        )
        try:
            judged = self._fields_from_report(
                verified(self.candidate, spec, replace(how, fresh=draw))
            )
            # Causes are sought in a second run, since the first one stops at a wrong output.
            if self.why and judged["status"] is Status.FAIL:
                explained = replace(how, fresh=draw, verdict_alone=False, repair=True)
                judged |= self._fields_of_explanation(spec, explained, judged["notes"])
        except CannotRun as error:
            judged = self._fields_of_failed_candidate(error)
        except Tampered as error:
            judged = fields_of_tampering(str(error))
        # Outputs of a file that changed say nothing about it, so this comes last.
        if before != hash_of_target(self.candidate):
            judged = fields_of_tampering(_FILE_CHANGED)
        judged["notes"] = (*judged.get("notes", ()), *noted)
        seeds = {"inputs": drawn[0]} if drawn else {}
        identity = identity_of(self.candidate, before)
        return Judgement(
            candidate=self._name_of_candidate(),
            definition=words_of(spec),
            precision=self.how.precision.words,
            seeds=seeds,
            identity=identity,
            seconds=clock.seconds(),
            definition_from=self.definition_from,
            command=self._reproducing_command_line(spec, drawn),
            **judged,
        )

    def _fields_of_explanation(
        self, spec: Specification, how: Options, notes: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return the cause, the edits, and the notes with those of the search, such as how many edits were tried.

        A candidate that cannot be called any more stays wrong.
        """
        try:
            report = verified(self.candidate, spec, how)
        except CannotRun as error:
            return {"notes": (*notes, f"The search for a cause ended: {error}.")}
        repairs = {"repairs": self._own_repairs(report)}
        all_notes = tuple(dict.fromkeys((*notes, *report.notes)))
        return _fields_of_fault_cause(report) | repairs | {"notes": all_notes}

    def _own_repairs(self, report: Report) -> tuple[Repair, ...]:
        """Return the repairs of the candidate's own file; a process of its own must name no other one."""
        if not isinstance(self.candidate, str):
            return report.repairs
        file = file_of_target(self.candidate)
        # Unlike those of ``Path``, such a path is resolved whatever links the candidate has made.
        own = None if file is None else os.path.realpath(file)
        return tuple(r for r in report.repairs if os.path.realpath(r.file) == own)

    def _fields_from_report(self, report: Report) -> dict[str, Any]:
        """Return the fields that a report decides."""
        fault = report.faults[0] if report.faults else None
        power = tuple(_yield_power_by_step(report))
        limits = (
            *self._list_judgement_limits(),
            *_yield_undetectable_limits(power, report.grade),
            *report.reservations,
        )
        result: dict[str, Any] = {
            "power": power,
            "limits": tuple(dict.fromkeys(limits)),
            "notes": tuple(note for note in report.notes if note not in report.reservations),
            "sizes": report.largest,
            "domain": report.domain,
            "calls": report.cases,
            "worst_ratio": max((check.worst_ratio for check in report.checks), default=0.0),
            "grade": str(report.grade),
        }
        # Limits qualify a pass; a failure needs none.
        if report.verdict is Verdict.FAULT and fault is not None:
            return result | {
                "status": Status.FAIL,
                "reason": fault.message,
                "limits": (),
                **shown_fault(fault),
            }
        if report.verdict is Verdict.UNDECIDED:
            missing = report.missing or ("too little was tried",)
            return result | {
                "status": Status.UNDECIDED,
                "reason": missing[0],
                "limits": (*missing[1:], *limits),
            }
        counted = f"no fault in {report.cases} calls"
        if limits:
            reason = f"{counted}, within {len(limits)} limit{'s' * (len(limits) > 1)}"
            return result | {"status": Status.PASS_WITH_LIMITS, "reason": reason}
        return result | {
            "status": Status.PASS,
            "reason": f"{counted}; {_describe_noticed_errors(power)}",
        }

    def _fields_of_failed_candidate(self, error: CannotRun) -> dict[str, Any]:
        """Return the fields for a candidate that gives nothing to judge: undecided if it may do so elsewhere."""
        hint = "; hint: raise --memory-limit" if isinstance(error, NeedsMemory) else ""
        return {
            "status": _status_of_failed_candidate(error),
            "reason": f"{error}{hint}",
            "limits": self._list_judgement_limits(),
        }

    def _list_judgement_limits(self) -> tuple[str, ...]:
        return (*self.notes, *(() if isinstance(self.candidate, str) else (_IN_THIS_PROCESS,)))

    def _name_of_candidate(self) -> str:
        return (
            self.candidate
            if isinstance(self.candidate, str)
            else getattr(self.candidate, "__name__", "candidate")
        )

    def _reproducing_command_line(self, spec: Specification, drawn: Sequence[int]) -> str:
        """Return the command line that gives the judgement again; "" for a function without a name to import."""
        if not isinstance(self.how, TargetOptions) or not isinstance(self.candidate, str):
            return ""
        how = replace(self.how, seed=drawn[0]) if drawn else self.how
        return how.command(self.candidate, spec=spec, name="judge")


def _status_of_failed_candidate(error: CannotRun) -> Status:
    return Status.UNDECIDED if isinstance(error, CannotRunHere) else Status.FAIL


def fields_of_tampering(words: str) -> dict[str, Any]:
    """Return the fields of a judgement of a candidate that acted against the judge, as the words say."""
    return {"status": Status.TAMPERED, "reason": words, "tampering": (words,)}


def with_further_calls(judgement: Judgement, call: Callable[[], Judgement]) -> Judgement:
    """Return the judgement after further calls of a candidate that passes, for which its process is opened anew.

    There it may act against the judge, or not be imported, for the first time.
    """
    try:
        return call()
    except Tampered as error:
        return replace(judgement, limits=(), **fields_of_tampering(str(error)))
    except CannotRun as error:
        status = _status_of_failed_candidate(error)
        return replace(judgement, limits=(), status=status, reason=str(error))


def with_file_compared(judgement: Judgement, candidate: str) -> Judgement:
    """Return the judgement, or one of tampering if the candidate's file is another since it was hashed.

    Further calls after a judgement, such as those of a benchmark, may change it as well.
    """
    if judgement.identity.candidate == hash_of_target(candidate):
        return judgement
    return replace(judgement, limits=(), **fields_of_tampering(_FILE_CHANGED))


def identity_of(candidate: Function | str, known: str | None = None) -> TextHashes:
    """Return the hashes of a candidate, unless that is ``known``, and of symattn."""
    return TextHashes(
        hash_of_target(candidate) if known is None else known, hash_of_symattn(), __version__
    )


def shown_fault(fault: Fault) -> dict[str, Any]:
    """Return the fields that a fault has: its place, the wrong entry, and the cause if one was sought."""
    named = {"step": fault.step, "cause": fault.cause} if fault.cause is not None else {}
    example = fault.counterexample
    if example is None:
        return named
    # Large inputs are left out: the seed reproduces them.
    few = sum(np.size(a) for a in example.inputs.values()) <= _MAX_SHOWN
    inputs = example.inputs if few else {}
    entry = WrongEntry(example.expected, example.got, example.allowed, example.error, inputs)
    return named | {"location": Location(example.index, example.sizes), "counterexample": entry}


def _fields_of_fault_cause(report: Report) -> dict[str, Any]:
    """Return the fields that a report with causes adds to a fault."""
    fault = report.faults[0] if report.faults else None
    if fault is None or fault.cause is None:
        return {}
    return {"step": fault.step, "cause": fault.cause}


def _yield_power_by_step(report: Report) -> Iterator[PowerOfStep]:
    """Yield what would have been noticed: errors of every size if these were tried, else the known mistakes."""
    for one in report.smallest:
        yield PowerOfStep(one.step, "twice as large", one.size)
    for mistake in report.power if not report.smallest else ():
        yield PowerOfStep(mistake.step, mistake.mistake, mistake.share if mistake.seen else None)


def _yield_undetectable_limits(power: tuple[PowerOfStep, ...], grade: Evidence) -> Iterator[str]:
    """Yield a limit for each step in which an error of the size that ``PASS`` promises could not have been noticed.

    Residues do not lift it, since a hostile candidate may compute something else on them.
    """
    agrees = (
        f"; modulo random primes the code agrees, {grade}" if grade.grade is Grade.TESTED else ""
    )
    for one in power:
        # Other mistakes have no size.
        if one.mistake == "twice as large" and (
            one.smallest is None or one.smallest > _SMALL_ERROR
        ):
            size = (
                "twice as large" if one.smallest is None else f"{100 * _SMALL_ERROR:g} % too large"
            )
            least = "" if one.smallest is None else f"; {100 * one.smallest:g} % would be"
            yield f"{one.step} {size} could not have been noticed at these inputs{least}{agrees}"


def _describe_noticed_errors(power: tuple[PowerOfStep, ...]) -> str:
    graded = [
        one.smallest
        for one in power
        if one.smallest is not None and one.mistake == "twice as large"
    ]
    if not graded:
        return "every known mistake of the definition would have been noticed"
    # The least sensitive step decides.
    return f"an error of {100 * max(graded):g} % in any step would have been noticed"
