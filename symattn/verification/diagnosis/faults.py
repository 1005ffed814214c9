"""From judged cases to faults: what is wrong, by which known mistake, and the smallest input that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from symattn.errors import SymattnError
from symattn.verification.counterexample import counterexample, shown, sizes
from symattn.verification.diagnosis.affected import affected
from symattn.verification.diagnosis.causes import Cause, causes, explains
from symattn.verification.diagnosis.conduct import conduct, misread, only_aliased
from symattn.verification.diagnosis.earlier import earlier_used
from symattn.verification.diagnosis.isolate import idle_step, needs_scores
from symattn.verification.diagnosis.lost import lost_rows
from symattn.verification.diagnosis.mistakes import STEPS, Mistake
from symattn.verification.diagnosis.observe import ObservedScale, first_wrong_step, scales
from symattn.verification.diagnosis.unsteady import late, unsteady
from symattn.verification.judge import Case, Judged
from symattn.verification.probing import behaviour
from symattn.verification.reduce import Inputs, reduce
from symattn.verification.report import Counterexample, Fault
from symattn.verification.target import same_bits

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_LARGE = 400  # entries of inputs, beyond which a case tells no more of what is affected
_NAMED = 3  # mistakes that are named where several explain the same
_SAME = {"values": ("values", "not finite"), "not finite": ("not finite",)}


def faults(session: Session) -> tuple[Fault, ...]:
    """All faults, in the order of the steps."""
    session.progress("causes")
    first = unsteady(session)
    if first is not None:
        return (first,)
    stale = _stale(session) or misread(session.records, shown)
    explained = causes(session) if stale is None and not only_aliased(session.records) else ()
    if explained and not any(cause.sure and cause.mistakes for cause in explained):
        stale = earlier_used(session)
    found = [stale] if stale else [*_wrong(session, explained)]
    if not any(cause.raises for cause in explained):
        found += _failing(session)
    found += _conduct(session)
    return tuple(sorted(found, key=lambda f: STEPS.index(f.step)))


def _stale(session: Session) -> Fault | None:
    """Wrong outputs that all are, bit for bit, what an earlier call with other inputs gave."""
    wrong = [r for r in session.records if r.finding in ("values", "not finite")]
    if not wrong or not all(_repeats(session.records, r) for r in wrong):
        return None
    message = "returns what an earlier call gave, for other numbers in the same shapes"
    return Fault("call", "the result of an earlier call is returned", message, shown(wrong[0]))


def _repeats(records: list[Judged], judged: Judged) -> bool:
    earlier = records[: records.index(judged)]
    return any(r.finding is None and same_bits(r.outcome, judged.outcome) for r in earlier)


def _wrong(session: Session, explained: tuple[Cause, ...]) -> Iterator[Fault]:
    for cause in explained:
        session.progress("smallest input")
        smallest = _smallest(session, _telling(session, cause), cause.only)
        named = cause.sure and cause.mistakes
        step, words, message = _named(session, cause) if named else _unnamed(session, smallest, cause)
        variant = cause.only.variant if named and cause.only and not cause.only.around else None
        message += f"; besides, {cause.besides}" * bool(cause.besides)
        example = counterexample(session.spec, smallest, variant)
        yield Fault(step, words, message, example, _scales(session, step))


def _scales(session: Session, step: str) -> tuple[ObservedScale, ...]:
    return scales(session.spec, session.records) if step == "scale" else ()


def _named(session: Session, cause: Cause) -> tuple[str, str | None, str]:
    first = cause.mistakes[0]
    if len(cause.mistakes) == 1:
        return first.step, first.cause, first.cause + _expected(session, first.step)
    step = min((m.step for m in cause.mistakes), key=STEPS.index)
    words = "; or ".join(m.cause for m in cause.mistakes[:_NAMED])
    return step, words, f"{words} (each explains everything that was seen)"


def _expected(session: Session, step: str) -> str:
    if step != "scale":
        return ""
    scale = session.spec.scale
    return "; expected 1/√d_k" if scale is None else "; expected none" if scale == 1 else f"; expected {scale}"


def _unnamed(session: Session, smallest: Judged, cause: Cause) -> tuple[str, None, str]:
    """What the smallest input shows: the reader sees that one, and no other."""
    what = {"shape": "the output has a wrong shape", "not finite": "the output is not finite where it must be"}
    words = what.get(smallest.finding or "", "the output is beyond what any implementation in this arithmetic can give")
    step, seen = ("call", _shapes(smallest)) if smallest.finding == "shape" else _blamed(session, smallest, cause)
    known = "no known mistake explains it"
    if cause.mistakes:
        known = f"what was seen at first is consistent with “{cause.mistakes[0].cause}”, other inputs are not"
    return step, None, f"{words}; {known}" + (f"; {seen}" if seen else "")


def _blamed(session: Session, smallest: Judged, cause: Cause) -> tuple[str, str]:
    """The step that is to blame, and what shows it: an idle step, or the weights themselves; and what is affected."""
    if all(r.finding == "not finite" for r in cause.records):
        step, seen = lost_rows(session.records)
        if step:
            return step, seen
    wrong = [smallest, *(r for r in cause.records if r.finding == "values")]
    step, seen = idle_step(session, wrong)
    if not step:
        weights = _weights(session, smallest)
        step, seen = first_wrong_step(session.spec, smallest, weights, session.records)
        if weights is None and needs_scores(session, wrong):
            step, seen = "weights", "all is right where queries are 0"
    words = affected(max(wrong, key=lambda r: min(r.case.size, _LARGE)), session.spec.heads > 1)
    return step, "; ".join(w for w in (seen, f"wrong are {words}" if words else "") if w)


def _weights(session: Session, judged: Judged) -> Judged | None:
    """The same case with the identity for values, where q, k, v are given and without a batch."""
    inputs = judged.case.inputs
    if "v" not in inputs or inputs["v"].ndim != 2 + (session.spec.heads > 1):
        return None
    v = inputs["v"]
    identity = np.broadcast_to(np.eye(v.shape[-2]), (*v.shape[:-2], v.shape[-2], v.shape[-2])).copy()
    given = {**inputs, "v": identity}
    return session.try_(Case("structure", "", given)) if session.maker.admits(given) else None


def _telling(session: Session, cause: Cause) -> Judged:
    """The smallest case, if one mistake is known one that shows it; a wrong shape, where nothing explains that."""
    shapes = [r for r in cause.records if r.finding == "shape"]
    if shapes and not cause.mistakes:
        return shapes[0]
    return next((r for r in cause.records if _shows(session, r, cause.only)), cause.records[0])


def _shows(session: Session, judged: Judged, mistake: Mistake | None) -> bool:
    """Whether the mistake gives just what the function gave, and the definition does not; True without a mistake."""
    return mistake is None or explains(session, judged, mistake) is True


def _shapes(judged: Judged) -> str:
    return f"{judged.outcome.shape} in place of {judged.expected.entries.shape}"


def _failing(session: Session) -> Iterator[Fault]:
    """Calls that raised, where others returned."""
    failed = [r for r in session.records if r.finding == "raises"]
    if not failed:
        return
    smallest = _smallest(session, min(failed, key=lambda r: r.case.size))
    error = smallest.outcome.error
    hangs = late(smallest)
    condition = "" if hangs else _condition([r for r in session.records if r.finding != "raises"], failed)
    where = f" where {condition}" if condition else f" for {len(failed)} of {len(session.records)} inputs"
    verb = "did not return" if hangs else "gives no array"
    cause = f"{'the call does not return' if hangs else 'the call fails'}{where if condition else ' for some inputs'}"
    yield Fault("call", cause, f"{verb}{where}: {error}", counterexample(session.spec, smallest, None))


def _condition(passed: list[Judged], failed: list[Judged]) -> str:
    """What all failed inputs share and no other has, in words."""
    tests: dict[str, Callable[[dict[str, int]], bool]] = {}
    for a, b in combinations(("n_q", "n_k", "d_k", "d_v"), 2):
        tests[f"{a} ≠ {b}"] = lambda s, a=a, b=b: s[a] != s[b]  # type: ignore[misc]
        tests[f"{a} > {b}"] = lambda s, a=a, b=b: s[a] > s[b]  # type: ignore[misc]
        tests[f"{a} < {b}"] = lambda s, a=a, b=b: s[a] < s[b]  # type: ignore[misc]
    for words, test in tests.items():
        if all(test(sizes(r)) for r in failed) and not any(test(sizes(r)) for r in passed):
            return words
    return ""


def _conduct(session: Session) -> Iterator[Fault]:
    """Wrong types, changed arguments, overwritten results, and NaN that leaks where it must not."""
    yield from conduct(session.records, session.precision.input.name, shown)
    if session.domain.nonfinite_forbidden:
        leak = behaviour.leaking(session, "all")
        if leak is not None:
            cause = "NaN in a key or value that no query may attend to reaches an output"
            yield Fault("mask", cause, cause, Counterexample({n: a.tolist() for n, a in leak.items()}))


def _fits(session: Session, inputs: Inputs) -> bool:
    """Whether the specification takes inputs of these sizes."""
    try:
        with np.errstate(all="ignore"):
            session.spec(**inputs)
    except (SymattnError, IndexError, ValueError):
        return False
    return True


def _smallest(session: Session, judged: Judged, mistake: Mistake | None = None) -> Judged:
    """The same finding on the smallest inputs that show it, and the mistake where ``judged`` shows it."""
    best, maker = [judged], session.maker
    mistake = mistake if _shows(session, judged, mistake) else None

    def fails(inputs: Inputs) -> bool:
        if session.effort.over or not _fits(session, inputs) or not maker.admits(inputs):
            return False
        found = session.try_(Case(judged.case.group, judged.case.name, inputs, judged.case.memory))
        alike = found.finding in _SAME.get(judged.finding or "", (judged.finding,))
        alike = alike and _shows(session, found, mistake)
        if alike:
            best[0] = found
        return alike

    if late(judged):
        return judged
    reduce(dict(judged.case.inputs), fails, session.spec, session.domain)
    return best[0]
