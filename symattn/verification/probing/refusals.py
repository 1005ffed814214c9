"""Inputs that a function, or a library that it calls, refuses: no fault, but reported, and not tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from symattn.bounds.called_target import APART, Failure, Memory
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.domain import Domain
from symattn.document.errors import InputError
from symattn.document.text import equal_sizes
from symattn.verification import power

if TYPE_CHECKING:
    from symattn.verification.engine import Session

# Numbers of which kernels require lengths and widths to be multiples.
_BLOCKS = (2, 4, 8, 16, 32, 64, 128)
_MOST = (128, 96, 64, 32, 16, 8)  # the usual limits of kernels on the width of heads
# Shortest lengths and smallest widths that code may require.
_LEAST = range(2, 33)
# common widths of heads
_WIDTHS = (*range(1, 17), 20, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256)
_TRIALS = 3  # calls that must succeed at a width
_MOST_AT_ONE_WIDTH = 8  # wrong calls that are made again with values as wide as keys
# what NumPy, torch and JAX raise if a reshape does not fit
MISFITS = ("RuntimeError", "ValueError", "TypeError")


# the sizes of a case, as a domain names them, and its memory layout
Sized = tuple[Mapping[str, int], Memory]
Axes = frozenset[tuple[str, int]]  # the number of axes of each input, by name


@dataclass(frozen=True)
class _Promise:
    """A field of a domain with a value, which cases keep the promise, and how many lengths it forbids."""

    field: str
    value: Any
    holds: Callable[[Sized], bool]
    forbids: int


# which refused, and which accepted cases break it
_Tried = tuple[_Promise, frozenset[int], frozenset[int]]


def axes(case: Case) -> Axes:
    """Return how many axes each input has."""
    return frozenset((name, np.ndim(a)) for name, a in case.inputs.items())


def learn(session: Session) -> None:
    """Narrow the session's domain and the axes that it tries to what the function accepts, if a rule explains that.

    Numbers of axes that are always refused are blamed if others are accepted, unless the sizes that explain the other
    refusals explain these as well. Later refusals correct a wrong guess.
    """
    session.refused_axes, promises = _explain_refusals(session)
    if promises or session.refused_axes:
        session.domain = narrowed(session.promised, promises)


def _explain_refusals(session: Session) -> tuple[frozenset[Axes], tuple[_Promise, ...]]:
    """Return the axes to blame, and the promises that explain the refusals of all other inputs."""
    taken = {axes(r.case) for r in session.records}
    # Unless some call was accepted, all numbers of axes are refused, and none is to blame.
    blamed = frozenset(axes(r.case) for r in session.refused) - taken if taken else frozenset()
    judged = _list_case_sizes(session, session.records)
    others = _list_case_sizes(session, (r for r in session.refused if axes(r.case) not in blamed))
    promises = tuple(
        p
        for p in _yield_candidate_promises(session.promised)
        if getattr(session.domain, p.field) == p.value
    )
    if not others or not _are_cases_excluded(
        promises, others
    ):  # else those by which the inputs were narrowed
        promises = explaining(session.promised, others, judged) if others else ()
    every = _list_case_sizes(session, session.refused)
    if not taken or (promises and _are_cases_excluded(promises, every)):
        return frozenset(), promises or explaining(session.promised, every, judged)
    return blamed, promises


def _are_cases_excluded(promises: Sequence[_Promise], cases: Iterable[Sized]) -> bool:
    return all(any(not p.holds(case) for p in promises) for case in cases)


def _list_case_sizes(session: Session, cases: Iterable[CaseResult]) -> list[Sized]:
    """Return the different sizes and memory layouts of cases."""
    result = {(tuple(session.subject.source.sizes(r).items()), r.case.memory) for r in cases}
    return [(dict(sizes), memory) for sizes, memory in sorted(result)]


def explaining(
    domain: Domain, refusing: Iterable[Sized], taking: Iterable[Sized]
) -> tuple[_Promise, ...]:
    """Return the fewest promises that exclude every refused case and forbid least; () if none do.

    Promises that no accepted case breaks come first; otherwise at least one accepted case must keep them. Their number
    says little, since the cases after a first refusal follow the promise that was inferred from it.
    """
    refused = list(refusing)
    taken = list(taking)
    tried: list[_Tried] = []
    for promise in _yield_candidate_promises(domain):
        breaking, lost = (
            frozenset(k for k, c in enumerate(of) if not promise.holds(c))
            for of in (refused, taken)
        )
        # the earlier one forbids less
        same = any(p.field == promise.field and of == breaking for p, of, _ in tried)
        tried += [(promise, breaking, lost)] if breaking and not same else []
    # No accepted case breaks an exact promise.
    exact = [t for t in tried if not t[2]]
    for many, of in ((1, exact), (2, exact), (3, exact), (1, tried), (4, exact), (2, tried)):
        sets: Iterable[tuple[_Tried, ...]] = combinations(of, many)
        result = [
            c
            for c in sets
            if _count_promise_breaking_cases(c, 1) == len(refused)
            and _count_promise_breaking_cases(c, 2) < max(len(taken), 1)
        ]
        for chosen in sorted(
            result,
            key=lambda c: (
                sum(p.forbids for p, _, lost in c if lost),
                _count_promise_breaking_cases(c, 2),
            ),
        ):
            promises = tuple(p for p, *_ in chosen)
            # Each promise needs a field of its own, and some input must keep all of them.
            if len({p.field for p in promises}) == many and _are_promises_compatible(
                domain, promises
            ):
                return promises
    return ()


def _count_promise_breaking_cases(chosen: Sequence[_Tried], of: Literal[1, 2]) -> int:
    """Return how many cases break a chosen promise: of the refused ones (1), or of the accepted ones (2)."""
    return len(frozenset().union(*(c[of] for c in chosen)))


def _are_promises_compatible(domain: Domain, chosen: Sequence[_Promise]) -> bool:
    """Return whether some input keeps all chosen promises."""
    try:
        narrowed(domain, chosen)
    except InputError:
        return False
    return True


def _yield_candidate_promises(domain: Domain) -> Iterator[_Promise]:
    """Yield promises beyond those of the domain, the plainest first, and among these the ones that forbid least."""
    # A promise of one kind of memory excludes no sizes, so that it is the plainest.
    for field in (
        "contiguous",
        "same_width",
        "square",
        "square_weights",
        "powers_of_two",
        "width_powers_of_two",
    ):
        if not getattr(domain, field):
            yield _make_promise(domain, field, True)
    for field, most in (
        ("multiple_of", domain.max_tokens),
        ("width_multiple_of", domain.max_width),
    ):
        of = getattr(domain, field)
        # Multiples of the promised step alone, since lengths between are excluded already.
        yield from (
            _make_promise(domain, field, b) for b in _BLOCKS if b % of == 0 and of < b <= most
        )
    yield from (
        _make_promise(domain, "max_width", b)
        for b in _MOST
        if domain.min_width <= b < domain.max_width
    )
    # Lower limits come last: what remains then are large inputs alone.
    for field, most in (("min_tokens", domain.max_tokens), ("min_width", domain.max_width)):
        yield from (
            _make_promise(domain, field, b) for b in _LEAST if getattr(domain, field) < b <= most
        )


# Asked again after each refusal, and the lengths of a promise take milliseconds to count.
@lru_cache(maxsize=1 << 10)
def _make_promise(domain: Domain, field: str, value: object) -> _Promise:
    if field == "contiguous":
        return _Promise(field, value, lambda case: case[1] not in APART, 0)
    # All other limits are lifted, so that this field alone decides.
    usual: dict[str, Any] = {
        "max_tokens": 10**9,
        "max_width": 10**9,
        "decoding": domain.decoding and field != "square",
    }
    alone = Domain(**(usual | {field: value}))
    forbids = sum(n not in alone.tokens for n in range(domain.max_tokens + 1))
    forbids += sum(n not in alone.widths for n in range(domain.max_width + 1))
    # Such a promise forbids no length, but nearly all pairs of lengths.
    pairs = domain.max_tokens * field.startswith(("square", "same"))
    return _Promise(field, value, lambda case: alone.admits(case[0]), forbids + pairs)


def excluding_failures(session: Session) -> tuple[_Promise, ...]:
    """Return the promise, or two of them, that no call which raised keeps, and that most which returned keep.

    Code for queries and keys of one length, for example, often fails for other lengths without a check of its own.
    """
    failed = [r for r in session.records if r.finding == "raises"]
    if not failed:
        return ()
    returned = [r for r in session.records if r.finding != "raises"]
    failing = _list_case_sizes(session, failed)
    returning = _list_case_sizes(session, returned)
    candidates = [
        p for p in _yield_candidate_promises(session.domain) if not all(map(p.holds, failing))
    ]
    for count in (1, 2):
        fitting = [
            (sum(all(p.holds(case) for p in promises) for case in returning), promises)
            for promises in combinations(candidates, count)
            if _are_cases_excluded(promises, failing)
            and len({p.field for p in promises}) == count
            and _are_promises_compatible(session.domain, promises)
        ]
        # The calls that returned speak against a promise that many of them break.
        keeping, promises = max(fitting, key=lambda pair: pair[0], default=(0, ()))
        if keeping >= max(power.LEAST, len(returning) // 2):
            return promises
    return ()


def narrowed(domain: Domain, promises: Sequence[_Promise]) -> Domain:
    """Return the domain with these promises in addition."""
    return replace(domain, **{p.field: p.value for p in promises})


def by_library(errors: Sequence[Failure | None]) -> bool:
    """Return whether every call was refused, some by a library, so that nothing is known of the function itself."""
    result = [e.refused if e is not None else "" for e in errors]
    return all(result) and "library" in result


def misfits(session: Session, judged: CaseResult) -> bool:
    """Return whether the shapes of a layer whose projections are not square do not fit its code.

    Code that cuts d_model into heads refuses other widths in this way, without a check of its own.
    """
    error = judged.outcome.error
    if error is None or "w_v" not in judged.case.inputs or error.type not in MISFITS:
        return False
    square = _make_promise(session.promised, "square_weights", True)
    return not square.holds((session.subject.source.sizes(judged), judged.case.memory))


def only_width(session: Session) -> Domain | None:
    """Return the domain narrowed to the one width of heads that fits code which cuts axes by constants; None if all
    or no widths fit, or something else is wrong."""
    others = [
        r for r in session.records if r.outcome.error is None or r.outcome.error.type not in MISFITS
    ]
    if len(others) == len(session.records):
        return None
    # Square weights come second, since that promise excludes more.
    for square in (False, True)[session.promised.square_weights :]:
        promise = replace(session.promised, square_weights=square)
        narrow = [
            replace(promise, min_width=d, max_width=d) for d in _WIDTHS if d in promise.widths
        ]
        taken = []
        for domain in narrow if len(narrow) > 1 else ():
            trial = replace(session, domain=domain)
            cases = (
                case for case in session.subject.source.drawn(trial, _TRIALS) if trial.admits(case)
            )
            if all(trial.call(case).error is None for case in cases):
                taken.append(domain)
        if taken:
            # Calls of another width that did not fail in this way contradict a single width.
            alone = len(taken) == 1 and all(
                taken[0].admits(session.subject.source.sizes(r)) for r in others
            )
            return taken[0] if alone else None
    return None


def only_same_widths(session: Session) -> bool:
    """Return whether a layer of tokens is right if values are as wide as keys, and wrong only otherwise.

    Code that cuts ``w_v`` into heads by the width of keys is wrong for other widths without an error, or refuses them
    with one: both rely on layers of one width, as nearly all are.
    """
    wrong = set()
    right = 0
    for r in session.records:
        sizes = session.subject.source.sizes(r)
        same = sizes.get("d_k") == sizes.get("d_v")
        # A wrong case of equal widths, or without ``w_v``, has another cause.
        if r.finding is not None:
            wrong.add(same or "w_v" not in r.case.inputs)
        else:
            right += r.decisive and same
    return wrong == {False} and right >= power.LEAST and _is_right_at_one_width(session)


def _is_right_at_one_width(session: Session) -> bool:
    """Return whether wrong calls are right once values are as wide as keys: their columns are cut, or repeated.

    Wrong calls may have unequal widths by chance, as where long inputs are wrong, and all that were drawn had them.
    """
    source = session.subject.source
    wrong = [r for r in session.records if r.finding is not None]
    decisive = 0
    # Some of all sizes, since a mistake may show at some of them only.
    for r in wrong[:: -(-len(wrong) // _MOST_AT_ONE_WIDTH)]:
        width = source.sizes(r)["d_k"]
        axes = source.axes(r.case.inputs)
        inputs = axes.resized(dict(r.case.inputs), "d_v", width)
        again = session.run_case(replace(r.case, inputs=inputs))
        if again.finding is not None:
            return False
        decisive += again.decisive
    return decisive > 0


def notes(session: Session) -> Iterator[str]:
    """Yield a note on what was refused, which promises would exclude it, and the domain that was judged."""
    smallest = min(session.refused, key=lambda r: r.case.size)
    blamed, promises = _explain_refusals(session)
    # Where no promise explains the refusals, the number of axes does.
    why = (
        remedy(promises)
        if promises or not blamed
        else "no more inputs with so many axes were tried"
    )
    lies = "" if smallest.case.memory == "contiguous" else f", {smallest.case.name}"
    calls = f"{len(session.refused)} call{'s' * (len(session.refused) > 1)}"
    such = f"({calls}), such as {equal_sizes(session.subject.source.sizes(smallest))}{lies}: {smallest.outcome.error}"
    if session.records:
        yield (
            f"It refuses some inputs {such}; {why}; only accepted inputs were judged: {session.subject.words(session)}."
        )
    else:
        yield f"It refuses all inputs that were tried {such}."


def remedy(promises: Sequence[_Promise]) -> str:
    """Name the options by which a user promises that no such input occurs."""
    if not promises:
        return "no promise is known that would exclude just these"
    return f"{options(promises)} promise{'s' * (len(promises) == 1)} that no such input occurs"


def options(promises: Sequence[_Promise]) -> str:
    """Return the options of promises: ``--square --max-width 64``."""
    words = (
        f"--{p.field.replace('_', '-')}" + ("" if p.value is True else f" {p.value}")
        for p in promises
    )
    return " ".join(words)
