"""From judged cases to faults: the wrong step, the known mistake, and the smallest input that shows it.

Faults of conduct are another dtype, changed arguments, overwritten results, misread views, and different results for
the same input, such as from dropout left on, uninitialised memory or random errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from symattn.attention.flow import STEPS_TO_BLAME
from symattn.bounds.called_target import Memory, Outcome, same_bits
from symattn.bounds.case_result import OF_VALUES, UNFIT, Case, CaseResult
from symattn.bounds.inputs import Sizes
from symattn.verification.diagnosis.causes import Cause, causes
from symattn.verification.diagnosis.conditions import separating
from symattn.verification.diagnosis.ignoring import ignored
from symattn.verification.probing import behaviour, refusals
from symattn.verification.probing.probes import FAMILIES
from symattn.verification.reduce import Inputs, counterexample, reduce, shapes, shown
from symattn.verification.report import Counterexample, Fault

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_NAMED = 3  # mistakes that are named if several explain the same
_SAME = {"values": ("values", "not finite"), "not finite": ("not finite",)}


def faults(session: Session) -> tuple[Fault, ...]:
    """Return all faults, in the order of the steps."""
    session.progress("causes")
    # A function that differs from call to call cannot be diagnosed further.
    first = unsteady(session)
    if first is not None:
        return (first,)
    show = partial(shown, session.subject)
    # A stale or misread input explains all wrong values, so no cause is searched for.
    stale = _find_stale_result_fault(session)
    wrong = [r for r in session.records if r.finding in ("values", "not finite")]
    # A wrong contiguous case rules memory layout out.
    of_layouts = not any(r.case.memory in ("contiguous", "shared") for r in wrong)
    if stale is None and wrong and of_layouts:
        stale = misread(session, wrong)
    mutates = any(r.finding == "mutates" for r in session.records)
    is_diagnosed = stale is not None or (mutates and only_aliased(session.records))
    explained = () if is_diagnosed else causes(session)
    # Extra calls test for a memory of earlier ones only if nothing else explains all.
    if explained and not any(cause.sure and cause.mistakes for cause in explained):
        stale = earlier_used(session)
    result = [stale] if stale else [*_yield_wrong_output_faults(session, explained)]
    # A cause that explains the failing calls leaves no fault of their own.
    if not any(cause.raises for cause in explained):
        result += _yield_raising_call_fault(session)
    result += conduct(session.records, session.precision.input.name, show)
    if session.domain.nonfinite_forbidden:
        result += behaviour.faults_of_leaks(session)
    return tuple(sorted(result, key=lambda f: STEPS_TO_BLAME.index(f.step)))


def _find_stale_result_fault(session: Session) -> Fault | None:
    """Return the fault if all wrong outputs are, bit for bit, those of earlier calls with other inputs, and other
    inputs show it, too.

    Outputs that are not finite are alike by themselves: some wrong one has to be finite.
    """
    wrong = [(k, r) for k, r in enumerate(session.records) if r.finding in ("values", "not finite")]
    pairs = [(_find_call_with_same_bits(session.records[:k], r), r) for k, r in wrong]
    with_numbers = [(earlier, r) for earlier, r in pairs if r.finding == "values"]
    if not with_numbers or any(earlier is None for earlier, _ in pairs):
        return None
    if not any(_is_stale_on_fresh_inputs(session, earlier, r) for earlier, r in with_numbers[:1]):
        return None
    message = "returns the result of an earlier call for other numbers in the same shapes"
    return Fault(
        "call",
        "the result of an earlier call is returned",
        message,
        shown(session.subject, wrong[0][1]),
    )


def _find_call_with_same_bits(
    records: Sequence[CaseResult], judged: CaseResult
) -> CaseResult | None:
    """Return a right call among the records whose outputs are those of a case, bit for bit."""
    right = (e for e in records if e.finding is None)
    same = (e for e in right if same_bits(e.outcome, judged.outcome, len(judged.parts)))
    return next(same, None)


def _is_stale_on_fresh_inputs(
    session: Session, earlier: CaseResult | None, judged: CaseResult
) -> bool:
    """Return whether other inputs in the place of both calls show that a result was kept.

    A function may give both calls one result by itself, as a norm without ε does if one input is a multiple of the
    other. So the other inputs of the wrong call come first: a kept result is then one of those so far, or it shows in
    the call after it.
    """
    so_far = [*session.records]
    for of in (judged, earlier):
        case = None if of is None else _negate_an_input(session, of.case)
        if case is None:
            return False
        fresh = session.run_case(case)
        if fresh.finding is not None:
            count = len(fresh.parts)
            return any(same_bits(r.outcome, fresh.outcome, count) for r in so_far)
        so_far.append(fresh)
    return False


def _negate_an_input(session: Session, case: Case) -> Case | None:
    """Return the case with the last of the arrays negated whose numbers are free; None if that cannot be."""
    source = session.subject.source
    names = [name for name in source.free(case.inputs) if np.any(case.inputs[name])]
    if not names:
        return None
    # A single one: a product of two arrays would not change with both. Zeros stay positive.
    negated = {**case.inputs, names[-1]: 0 - case.inputs[names[-1]]}
    inputs = source.completed(session, negated)
    if not source.fits(session, inputs):
        return None
    return Case("stale", case.name, inputs, case.memory)


def _yield_wrong_output_faults(session: Session, explained: tuple[Cause, ...]) -> Iterator[Fault]:
    for cause in explained:
        session.progress("smallest input")
        # the smallest case that shows the cause; for an unexplained wrong shape, a case with it
        misshapen = [] if cause.mistakes else [r for r in cause.records if r.finding == "shape"]
        shown = next(filter(cause.shows, cause.records), None)
        telling = misshapen[0] if misshapen else shown or cause.records[0]
        # by balls, which take long, so that what has been shown is not asked again
        is_shown = shown is not None and (telling is shown or cause.shows(telling))
        smallest = _reduce_to_smallest_case(
            session, telling, cause.shows if is_shown else _accept_any_case
        )
        named = cause.sure and bool(cause.mistakes)
        # a cause that is more than arithmetic in a narrower format
        clear = named and not any(m.around for m in cause.mistakes)
        step, form = (
            ("", "") if clear else session.subject.form(session, [smallest, *cause.records])
        )
        words: str | None = None
        if form:
            message = f"the output loses relative accuracy: it is within the bound of {form}, not of the usual forms"
        elif named:
            step, words, message = _describe_named_cause(session, cause)
        elif (idle := ignored(session))[0]:
            step, words = idle
            message = words
        else:
            step, words, message = _describe_unnamed_cause(session, smallest, cause)
        if len(session.subject.outputs) > 1 and smallest.ratios is not None:
            message += _describe_wrong_outputs(session, smallest, cause)
        message += f"; besides, {cause.besides}" * bool(cause.besides)
        example = session.subject.explained(
            counterexample(session.subject, smallest), smallest, cause
        )
        yield Fault(step, words, message, example, session.subject.observed(session, step))


def _accept_any_case(judged: CaseResult) -> bool:
    return True


def _describe_named_cause(session: Session, cause: Cause) -> tuple[str, str | None, str]:
    first = cause.mistakes[0]
    if len(cause.mistakes) == 1:
        # of two mistakes at once, the first one is at this step
        of_step, also, others = first.cause.partition("; and ")
        return (
            first.step,
            first.cause,
            of_step + session.subject.expectation(first.step) + also + others,
        )
    steps = sorted({m.step for m in cause.mistakes}, key=STEPS_TO_BLAME.index)
    words = "; or ".join(m.cause for m in cause.mistakes[:_NAMED])
    return steps[0], words, f"{words} (each explains everything observed)"


def _describe_unnamed_cause(
    session: Session, smallest: CaseResult, cause: Cause
) -> tuple[str, None, str]:
    """Describe what the smallest input shows, since the reader sees only that one."""
    what = {
        "shape": "the output has a wrong shape",
        "not finite": "the output is not finite where it must be",
    }
    beyond = f"the output is beyond what any implementation in this arithmetic{session.precision.contracted} can give"
    words = what.get(smallest.finding or "", beyond)
    if smallest.finding == "shape":
        step = session.subject.misshapen
        evidence = shapes(session.subject, smallest)
    else:
        step, evidence = session.subject.blamed(session, smallest, cause.records)
    known = f"no known mistake {'that was tried ' * cause.search.cut}explains it"
    if cause.mistakes:
        first = f"“{cause.mistakes[0].cause}”"
        alone = len(session.records) == 1
        known = f"the first failures are consistent with {first}, other inputs are not"
        known = (
            f"this case alone is consistent with {first}, and others were not tried"
            if alone
            else known
        )
    return step, None, f"{words}; {known}" + (f"; {evidence}" if evidence else "")


def _describe_wrong_outputs(session: Session, smallest: CaseResult, cause: Cause) -> str:
    """Say which of several outputs are wrong, and which one the counterexample shows."""
    outputs = session.subject.outputs
    among = cause.search.among
    wrong = frozenset().union(*(r.wrong for r in cause.records))
    names = ", ".join(outputs[k] for k in sorted(wrong & among if among else wrong))
    return f"; wrong in {names}, shown in {outputs[smallest.where[0]]}"


def _yield_raising_call_fault(session: Session) -> Iterator[Fault]:
    """Yield the fault of calls that raised while others returned."""
    failed = [r for r in session.records if r.finding == "raises"]
    if not failed:
        return
    smallest = _reduce_to_smallest_case(
        session, min(failed, key=lambda r: r.case.size), _accept_any_case
    )
    error = smallest.outcome.error
    others = [r for r in session.records if r.finding != "raises"]
    # which one call may have
    results = (words for words, _ in separating(session, failed, others) if " = " not in words)
    condition = next(results, "")
    where = (
        f" where {condition}"
        if condition
        else f" for {len(failed)} of {len(session.records)} inputs"
    )
    cause = f"the call fails{where if condition else ' for some inputs'}"
    promises = refusals.excluding_failures(session)
    remedy = f"; {refusals.remedy(promises)}" if promises else ""
    message = f"gives no array{where}: {error}{remedy}"
    yield Fault("call", cause, message, counterexample(session.subject, smallest))


def _reduce_to_smallest_case(
    session: Session, judged: CaseResult, shows: Callable[[CaseResult], bool]
) -> CaseResult:
    """Reduce the finding to the smallest inputs that show it."""
    best = [judged]
    subject = session.subject

    def is_alike(case_result: CaseResult) -> bool:
        # A smaller input with another finding, or cause, is another fault.
        findings = _SAME.get(judged.finding or "", (judged.finding,))
        return case_result.finding in findings and shows(case_result)

    def fails(inputs: Inputs) -> bool:
        if session.effort.over:
            return False
        try:
            whole = subject.source.completed(session, inputs)
            if not subject.source.fits(session, whole):
                return False
            case = Case(judged.case.group, judged.case.name, whole, judged.case.memory)
            case_result = session.run_case(session.without_compiling(case))
        except UNFIT:
            return False
        if is_alike(case_result):
            best[0] = case_result
            return True
        return False

    axes = subject.source.axes(judged.case.inputs)
    reduce(dict(judged.case.inputs), fails, axes, session.domain, subject.trials)
    if best[0].outcome.interpreted:
        best[0] = session.run_case(replace(best[0].case, interpreted=False))
        # Where NumPy is to blame, JAX makes all calls.
        if not is_alike(best[0]):
            session.distrusts_numpy = True
            return _reduce_to_smallest_case(session, _result_of_jax(session, judged), shows)
    smallest = session.judge_by_all_ways(best[0])
    return session.judge_by_all_ways(judged) if smallest.finding is None else smallest


def _result_of_jax(session: Session, judged: CaseResult) -> CaseResult:
    """Return what JAX's own programs show in the place of a wrong call that NumPy ran."""
    if not judged.outcome.interpreted:
        return judged
    again = session.run_case(replace(judged.case, interpreted=False))
    if again.finding is not None:
        return again
    # Compiled programs were wrong in some call of each group with its finding.
    own = (r for r in session.records if not r.outcome.interpreted and r.finding == judged.finding)
    return min(own, key=lambda r: r.case.size, default=again)


def conduct(
    records: Sequence[Any], wanted: str, shown: Callable[[Any], Counterexample]
) -> Iterator[Fault]:
    """Yield a fault for each kind of misconduct among judged cases, at the smallest case; ``wanted`` is the dtype of
    the inputs."""
    wrong = any(r.finding in ("values", "not finite") for r in records) and only_aliased(records)
    aliased = "; where one array is passed for several of them the output is wrong" * wrong
    result: dict[str, tuple[str, Callable[[Any], str], Callable[[Any], str]]] = {
        "dtype": (
            "output",
            lambda r: f"the output is returned as {r.outcome.dtype}",
            lambda r: f"returns {r.outcome.dtype} for {wanted} inputs",
        ),
        "mutates": (
            "call",
            lambda r: f"the argument {', '.join(r.outcome.mutated)} is changed in place",
            lambda r: f"changes its argument {', '.join(r.outcome.mutated)}" + aliased,
        ),
        "overwrites": (
            "call",
            lambda r: "a later call overwrites the array that an earlier one has returned",
            lambda r: "a later call changes the array that an earlier one has returned",
        ),
    }
    for finding, (step, cause, words) in result.items():
        judged = min(
            (r for r in records if r.finding == finding), key=lambda r: r.case.size, default=None
        )
        if judged is not None:
            yield Fault(step, cause(judged), words(judged), shown(judged))


def only_aliased(records: Sequence[Any]) -> bool:
    """Return whether values are wrong only if one array is passed for several arguments, of which some are changed."""
    wrong = [r for r in records if r.finding in ("values", "not finite")]
    return all(r.case.memory == "shared" for r in wrong)


def misread(session: Session, wrong: Sequence[CaseResult]) -> Fault:
    """Return the fault that arrays which are not contiguous in memory give wrong results, with the names of these."""
    cause = "arrays are read as if they were contiguous in memory"
    views = ", ".join(dict.fromkeys(r.case.name for r in wrong))
    names = _misread_alone(session, wrong[0])
    of = f" of {' and of '.join(names)}" if names else ""
    words = f"{cause}: the same numbers are right otherwise, and wrong for {views}{of}; hint: --contiguous"
    message = f"{words} promises that no such input occurs"
    return Fault("call", cause, message, shown(session.subject, wrong[0]))


def _misread_alone(session: Session, judged: CaseResult) -> tuple[str, ...]:
    """Return the inputs that give wrong results if they alone are not contiguous; none if several must be at once."""
    case = judged.case
    result = []
    for name, array in case.inputs.items():
        if np.ndim(array):
            memory = cast(Memory, f"{case.memory} {name}")
            one = session.run_case(replace(case, memory=memory))
            result += [name] if one.finding in OF_VALUES else []
    return tuple(result)


_AGAIN = 4  # of the smallest wrong cases, and of larger ones, that are called again: small ones hide random errors


def unsteady(session: Session) -> Fault | None:
    """Return the fault of different results for the same input, beyond the bound, or of errors in some calls only.

    One call then says nothing of the next, so nothing else is diagnosed.
    """
    failed = [r for r in session.records if r.finding in ("values", "not finite", "raises")]
    failed.sort(key=lambda r: r.case.size)
    # The smallest failing cases, and some from all sizes.
    for judged in (*failed[:_AGAIN], *failed[_AGAIN :: max(1, len(failed) // _AGAIN)]):
        # Two more calls each, as a random error may spare one of them.
        for _ in range(2):
            words = _describe_call_difference(judged, session.call(judged.case))
            if words:
                message = f"gives different results for the same input: {words}"
                return Fault(
                    "call",
                    "different results for the same input",
                    message,
                    shown(session.subject, judged),
                )
    return None


def _describe_call_difference(once: CaseResult, second: Outcome) -> str:
    """Describe the difference of two calls; empty if both are the same up to legal orders of summation."""
    first = once.outcome
    if second.late:
        return ""
    # An error in one call alone is a difference by itself.
    if (first.error is None) != (second.error is None):
        return f"one call gives an array, another {first.error or second.error}"
    if second.error is not None or (same_bits(first, second) and not second.others):
        return ""
    arrays = zip(
        (first.output, *first.others), (second.output, *second.others), once.parts, strict=False
    )
    for a, b, part in arrays:
        allowed = part.expected.allowed
        if a is None or b is None or a.shape != b.shape or a.size != allowed.size:
            continue
        # Both calls may be off by the bound, in opposite directions.
        with np.errstate(invalid="ignore"):
            apart = (np.abs(a - b) > 2 * allowed.reshape(a.shape)) | (
                np.isfinite(a) != np.isfinite(b)
            )
        if apart.any():
            at = tuple(int(i) for i in np.argwhere(apart)[0])
            index = ", ".join(str(i + 1) for i in at)
            return f"output {index} is {a[at]:.9g} at one call and {b[at]:.9g} at another"
    return ""


# -- functions that reuse arrays of an earlier call: positions, tables or masks stored by length alone -----------------
# Each round takes lengths that no call had before, and calls three times: with them, with another number of keys, and
# with the first ones again and other numbers. If every first call is right and in every round a later one is wrong, the
# earlier calls are to blame, and not a length: the two numbers of keys come first in turn.
_ROUNDS, _LEAST = 6, 4
_SHORTEST, _LONGEST = 5, 120  # lengths


def earlier_used(session: Session) -> Fault | None:
    """Return the fault, if the calls show it."""
    if session.subject.attention is None:
        return None
    later: list[CaseResult] = []
    for first, rest in _yield_earlier_call_rounds(session):
        wrong = [r for r in rest if r.finding in ("values", "not finite", "shape", "raises")]
        # A wrong first call, or one that shows nothing, does not speak for memory.
        if first.finding is not None or not first.decisive or not wrong:
            return None
        later.append(wrong[0])
    # Few rounds may agree by chance.
    if len(later) < _LEAST:
        return None
    message = (
        f"a result of an earlier call is reused: for new lengths, all {len(later)} first calls are right, "
        "and in each of them a later call with other numbers or another number of keys is wrong"
    )
    # if all scores are 0, positions have no effect, but masks do
    zeroed = ("q", "w_q", "scores")
    idle = [
        {n: np.zeros_like(a) if n in zeroed else a for n, a in r.case.inputs.items()} for r in later
    ]
    idle = [session.subject.source.completed(session, inputs) for inputs in idle]
    if any(
        session.run_case(Case("earlier calls", "", inputs)).finding is not None for inputs in idle
    ):
        step = "mask" if session.attention.masks_anything else "call"
    else:
        step = "position" if session.attention.position is not None else "call"
    return Fault(
        step, "a result of an earlier call is reused", message, shown(session.subject, later[0])
    )


def _yield_earlier_call_rounds(session: Session) -> Iterator[tuple[CaseResult, list[CaseResult]]]:
    rng = np.random.default_rng((session.seed, 4))
    step = session.domain.multiple_of
    most = min(_LONGEST, session.domain.max_tokens)
    # Lengths without an earlier call, so that nothing is stored for them.
    unused = [
        n for n in range(-(-_SHORTEST // step) * step, most + 1, step) if n not in session.lengths
    ]
    entries = FAMILIES["normal"](rng)
    for number in range(min(_ROUNDS, len(unused) // 3)):
        n, few, many = unused[3 * number : 3 * number + 3]
        order = (few, many, few) if number % 2 else (many, few, many)
        input_sets = (session.maker.make(Sizes(n, n_k, 4, 3), entries, rng) for n_k in order)
        cases = [
            session.subject.source.case_of_attention(session, "earlier calls", "", inputs, rng)
            for inputs in input_sets
        ]
        # The generator is lazy, so that calls happen in this order.
        called = (session.run_case(case) for case in cases if case is not None)
        if None not in cases:
            yield next(called), list(called)
