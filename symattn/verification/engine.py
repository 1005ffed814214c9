"""The verification: try cases group by group, judge them, explain the wrong ones, and find the smallest."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, combinations, islice
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.formats import WIDE
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.called_target import APART, Failure, Inputs, Memory, Outcome, Runner
from symattn.bounds.case_result import UNFIT, Case, CaseResult, compared
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Array, Maker
from symattn.bounds.judge import Legal, is_far_beyond, judge
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import CannotRun, CannotRunHere, InputError, NeedsMemory, SymattnError
from symattn.verification import power
from symattn.verification.effort import (
    LIGHTER,
    MAX_LATE_OF_SIZE,
    Effort,
    for_explaining,
    for_finding,
    for_random,
)
from symattn.verification.power import Tried
from symattn.verification.probing import hints, probes, refusals
from symattn.verification.repair import NO_REPAIRS, Repairs
from symattn.verification.report import Fault, Report, Sought
from symattn.verification.session_report import make_verification_report

if TYPE_CHECKING:
    from symattn.verification.arithmetic.bits_of_a_call import FirstCall, Trial
    from symattn.verification.arithmetic.rungs import JointCall
    from symattn.verification.definitions.definition_subject import Definition
    from symattn.verification.input_source import Cases
    from symattn.verification.semantics import IdentityResult

# The seed unless a caller names another: the same call gives the same report.
SEED = 20261120
BUDGET = 120.0  # seconds of processor time at most for finding, and as many for explaining; besides, calls are counted
# Random inputs of a run; a quarter of them once a fault is known or residues have decided.
EXAMPLES = 100
_NEVER = 4  # calls that time out, after which none is made, if no call has returned
_WHOLE = 10  # cases for which all ways of computing are run, whatever the function returns
_AHEAD = 16  # cases sent at once
_ENOUGH = 6  # wrong cases after which a group shows nothing new
# one of so many cases that test what is computed is tried, once residues have decided that
_FEWER = 3
_CLIMBS, _STEPS = 3, 15  # cases from which larger errors are sought, and changes of each
_LATEST = 4  # inputs whose legal outputs are kept, since calls are repeated
_DUMB = 30  # failed calls after which no more are made, if none has succeeded
_LARGE_CASE = 8192  # entries of the tokens of a case that is screened first; if wrong, a smaller one is sought
_MANY_SCORES = 1 << 14  # of a head of such a case, however few its entries are
_BOUNDED = 6  # calls that are bounded where float64 alone has judged all of them
_FIRST_CASES = 4  # by which a definition may be far off
# of the largest entry: no right function in float32 is so far off at usual inputs
_FAR_OFF = 2.0**-6
_MANY_TOKENS = 128  # in a case that is screened first: a bound of so many scores takes a second, of 1,000 a minute
_FEW_OF_AXIS = 4  # the other sizes of such a case
_MIDDLE_SIZES = (16, 64)  # limits of all sizes of cases between small and large ones
# How the numbers of an output can be wrong.
_BEYOND = ("values", "not finite")
# programs of JAX are compiled for one of so many sizes, and for calls with so many times the entries
_ONE_COMPILED_OF = 16
# ways to lay out an array that do not change what is called
_LAYOUTS = (*APART, "frozen")
# times the entries of the largest inputs so far, from which on a call is compiled all the same
_MUCH_LARGER = 4
_COMPILED_SIZES = 2  # of each group, if the process is not trusted
_SMALLER_SEED = 31  # of the cases in which only some sizes are large
_LEAST = power.LEAST  # cases of each group, if it has so many
_FOR_LAST = 0.25  # share of the processor time that is reserved for the last groups
_SHRUNK = 2  # factor by which a case must be smaller to stand for the large ones
# the group of calls in the memory of earlier ones
_MEMORY = "memory"
_BASES = 3  # right cases, each repeated with memory that was used before
_ENDS = 6  # calls that ended the process, after which no more are made
Progress = Callable[[str], None]


class Unusable(SymattnError):
    """The function cannot be judged: it raises on every input, never returns, or its platform computes wrongly.

    ``kind`` says whether it may be judged elsewhere.
    """

    def __init__(self, words: str, kind: type[CannotRun] = CannotRun) -> None:
        super().__init__(words)
        self.kind = kind


@dataclass
class Session:
    """The state of one verification."""

    runner: Runner
    subject: Definition
    precision: Precision
    domain: Domain
    seed: int
    examples: int
    budget: float
    progress: Progress = lambda words: None
    power: Mapping[str, float] = field(default_factory=dict)
    records: list[CaseResult] = field(default_factory=list)
    stdout: list[str] = field(default_factory=list)
    finding: Effort = field(init=False)
    explaining: Effort | None = None
    untried: list[str] = field(default_factory=list)
    refused: list[CaseResult] = field(default_factory=list)
    # wrong cases for which smaller ones stand
    larger: list[CaseResult] = field(default_factory=list)
    lengths: set[int] = field(default_factory=set)  # of the arrays of all calls, judged or not
    # cases to try only if a fault is found without them
    aside: list[Case] = field(default_factory=list)
    late: list[CaseResult] = field(default_factory=list)  # calls that timed out: not judged
    promised: Domain = field(init=False)  # before anything was refused
    # numbers of axes that the function does not take
    refused_axes: frozenset[refusals.Axes] = frozenset()
    identity: IdentityResult | None = None  # attention only: the result on residues,
    in_front: CaseResult | None = None  # a wrong case with leading axes,
    backwards: str = ""  # a note on arrays with negative strides,
    # no numbers where a part has no keys, or no tokens
    on_empty: list[CaseResult] = field(default_factory=list)
    # NaN that passes a mask
    leaks: dict[str, dict[str, Array] | None] = field(default_factory=dict)
    # the legal outputs for the last inputs
    latest: dict[Hashable, Legal] = field(default_factory=dict)
    bits: FirstCall | None = None  # the call whose bits were compared before most others
    trial: Trial | None = None  # what the bits show, in half precision
    together: JointCall | None = None  # the last call of whose outputs many were judged together
    sought: tuple[Sought, ...] = ()  # results for mistakes of the requested sizes
    beyond: Fault | None = None  # a fault that only many outputs together show
    repairs: Repairs = NO_REPAIRS  # edits of the source that make the function right
    # known mistakes are tried one by one, without numbers, rules and pairs
    leaves_out_rules: bool = False
    # of all searches for two mistakes at once, where edits of the source were tried before
    effort_of_pairs: Effort | None = None
    # of all searches for an explanation together: edits of the source, and known mistakes
    effort_of_searches: Effort = field(init=False)
    measures_power: bool = True  # by some calls, of which all ways of computing are run
    verdict_alone: bool = False  # nothing more is tried once a call alone shows a fault for certain
    stops_at_fault: bool = False  # the same, in the order of a verification that seeks causes
    # residues prove at the smallest sizes alone, and ask one point at larger ones
    refutes_at_large_sizes: bool = False
    convicting: CaseResult | None = None  # this call, if nothing more is to be tried after it
    # sizes for which programs of JAX are compiled, and the place of each among those that need not be
    compiled_sizes: set[Hashable] = field(default_factory=set)
    # the sizes of the compiled calls of each group
    compiled_of_group: dict[str, set[Hashable]] = field(default_factory=dict)
    places_of_sizes: dict[Hashable, int] = field(default_factory=dict)
    largest_compiled: int = 0  # entries of the largest call with compiled programs
    fewest_of_group: int = _LEAST  # cases that run whatever effort is left
    distrusts_numpy: bool = False  # NumPy was wrong where a compiled program is right
    # groups and findings of wrong calls by NumPy that compiled programs have confirmed
    confirmed: set[Hashable] = field(default_factory=set)
    wrong_platform: str = ""  # why no outputs in floats are judged, although they were computed

    def __post_init__(self) -> None:
        self.promised = self.domain
        self.finding = self.effort_of(for_finding(self.examples))
        self.effort_of_searches = Effort(for_explaining(self.budget, with_edits=False))

    @property
    def effort(self) -> Effort:
        """The effort that remains: for finding faults, and after that for explaining them."""
        return self.explaining or self.finding

    def effort_of(self, units: float) -> Effort:
        """Return an effort of so many units, limited by the budget of processor time of both processes."""
        return Effort(units, self.budget, lambda: getattr(self.runner, "spent", (0.0, 0.0)))

    @property
    def known(self) -> int:
        """The number of cases that show a fault."""
        return sum(r.finding is not None for r in self.records)

    @property
    def is_surely_wrong(self) -> bool:
        """Return whether several calls were wrong by all ways of computing, so that others help to name the fault."""
        wrong = (r for r in self.records if r.finding == "values" and r.whole and not r.undecided)
        return sum(1 for _ in wrong) >= power.LEAST

    @property
    def is_accused_jointly(self) -> bool:
        """Return whether bits, or many outputs together, show a fault that no single output does."""
        return bool(self.beyond or (self.trial and self.trial.fault))

    @property
    def settled(self) -> bool:
        """Return whether residues agree with the definition at all planned sizes, so that floats test the function's
        arithmetic alone."""
        return self.identity is not None and self.identity.settled

    @property
    def called(self) -> list[CaseResult]:
        """All calls for cases: judged, refused, and timed out."""
        return [*self.records, *self.refused, *self.late]

    @property
    def tried(self) -> list[Tried]:
        """The inputs of the cases that were judged by all ways of computing, with the expected outputs."""
        judged = (
            r for r in self.records if r.ratios is not None and r.whole and self.tells(r.case)
        )
        return [(r.case.inputs, [part.expected for part in r.parts]) for r in judged]

    def tells(self, case: Case) -> bool:
        """Return whether what a case could show may be stated: an untrusted process could have NumPy lie."""
        return self.is_trusted or not case.interpreted

    @property
    def is_trusted(self) -> bool:
        """Return whether the function computes the same if NumPy runs what JAX would compile."""
        return bool(getattr(self.runner, "is_trusted", True))

    @property
    def attention(self) -> Attention:
        """The attention that is verified, or that the definition contains. Raises ``InputError`` if there is none."""
        if self.subject.attention is None:
            raise InputError("the definition contains no attention")
        return self.subject.attention

    @property
    def maker(self) -> Maker:
        """The maker of inputs of an attention: the one that is verified, or that the definition contains."""
        maker: Maker = self.subject.source.maker(self)
        return maker

    @property
    def over(self) -> bool:
        """Return whether the effort is spent, the verdict is known, or the function returns nothing to judge."""
        if self.convicting is not None:
            return True
        if any(r.outcome.error is None for r in self.records):
            return self.effort.over
        # Before any call has returned, failures end the search: most such functions never return.
        reasons = [r.outcome.error.reason for r in self.called if r.outcome.error is not None]
        enough = (
            len(reasons) >= _DUMB or reasons.count("ended") >= _ENDS or len(self.late) >= _NEVER
        )
        return enough or self.effort.over

    def call(self, case: Case) -> Outcome:
        """Call the function, and judge nothing."""
        # A call and its bound cost more than other runs, so that entries count less.
        self.effort.spend(case.size // LIGHTER)
        self.lengths.update(np.shape(a)[-2] for a in case.inputs.values() if np.ndim(a) > 1)
        outcome = self.runner.run(case.inputs, case.way)
        if outcome.stdout:
            self.stdout.append(outcome.stdout)
        return outcome

    def legal(self, inputs: Inputs) -> Legal:
        """Return the legal outputs; for inputs that were tried a few calls before, those of that call."""
        # The bytes are the key, since the same numbers may come in another array.
        key = tuple((name, a.dtype.str, a.shape, a.tobytes()) for name, a in inputs.items())
        known = self.latest.pop(key, None)
        if known is None:
            known = self.subject.legal(self.precision, inputs)
            # Several calls are judged by these ways, each of which is to run once.
            known = known._replace(ways=[cache(way) for way in known.ways])
        self.latest[key] = known  # the last one now
        if len(self.latest) > _LATEST:
            del self.latest[next(iter(self.latest))]
        return known

    def run_case(
        self, case: Case, or_smaller: bool = False, by_first_way: bool = False
    ) -> CaseResult:
        """Call the function, and judge its output.

        With ``or_smaller``, of a large case that is wrong in float64 a call in which only some sizes are large may be
        returned, if that is wrong as well. The caller then has to read the case of the result. ``by_first_way``
        compares it with the first way of computing alone: what is wrong by that may be right by others, as
        ``judge_by_all_ways`` tells.
        """
        legal = self.legal(case.inputs)
        outcome = self.call(case)
        return self.judge_outcome(case, outcome, legal, or_smaller, by_first_way)

    def judge_outcome(
        self,
        case: Case,
        outcome: Outcome,
        legal: Legal,
        or_smaller: bool = False,
        by_first_way: bool = False,
    ) -> CaseResult:
        """Judge what a call gave; see ``run_case``."""
        if self.is_screened_first(case):
            screened = self._compare_case_in_float64(case, outcome, legal)
            if screened is not None and screened.finding is None:
                return screened
            # To bound every way at all sizes may take minutes and gigabytes.
            if screened is not None and len(legal.ways) > 1 and or_smaller:
                smaller = self._find_wrong_smaller_case(screened)
                if smaller is not None:
                    return smaller
        if len(legal.ways) > 1 and (by_first_way or self.is_surely_wrong):
            first = judge(legal._replace(ways=legal.ways[:1]), self.precision, case, outcome)
            # Of a function that is known to be wrong, other ways are asked about smaller errors alone.
            if not first.undecided and (
                by_first_way or is_far_beyond(first, legal, self.precision)
            ):
                return replace(first, whole=False)
        # Power rests on cases judged by all ways; few are enough once residues have decided.
        whole = (power.LEAST if self.settled else _WHOLE) * self.measures_power
        tell = self.records
        if not self.is_trusted:
            tell = [r for r in self.records if self.tells(r.case)]
        is_whole = len(tell) < whole and self.tells(case)
        return judge(legal, self.precision, case, outcome, is_whole)

    def is_screened_first(self, case: Case) -> bool:
        """Return whether float64 judges a case before bounds do: a bound of a large case takes long."""
        arrays = _inputs_but_weights(case)
        entries = sum(map(np.size, arrays))
        tokens = max((np.shape(a)[-2] for a in arrays if np.ndim(a) > 1), default=0)
        is_large = entries > _LARGE_CASE or tokens > _MANY_TOKENS
        if is_large or case.group in self.subject.screened_groups:
            return True
        # Where residues agree, these groups show overflow, and roundings as coarse as those of a narrower format: both
        # are far from float64. Finer ones are left to bounds of the definition's own sizes and numbers. In narrower
        # formats the power of a verdict needs bounds of these groups, too, and a known fault is explained by bounds.
        is_wide = self.precision.input.name in WIDE
        is_probe = self.settled and is_wide and case.group in self.subject.probed_groups
        return is_probe and self.known == 0

    def run_without_compiling(self, case: Case, or_smaller: bool = False) -> CaseResult:
        """Call the function, and judge its output; where JAX would compile for the sizes alone, NumPy may compute it.

        What is wrong then is asked of JAX's own programs, and so are all further calls if NumPy was to blame. Once they
        have confirmed a wrong call of a group, others with the same finding stand.
        """
        # A case that was sent ahead keeps its way.
        chooses = self.runner.convention.compiles and not case.interpreted
        case = self.choose_way(case) if chooses else case
        case = replace(case, interpreted=case.interpreted and not self.distrusts_numpy)
        judged = self.run_case(case, or_smaller)
        # The smaller case that may stand for a wrong one is JAX's own result.
        is_wrong = judged.finding is not None or judged.outcome.error is not None
        # Where NumPy ran nothing, the result is JAX's own, too; a call that was stopped does not say so.
        is_by_numpy = judged.outcome.interpreted or judged.outcome.error is not None
        if not (is_wrong and judged.case.interpreted and is_by_numpy):
            return judged
        like = case.group, judged.finding
        if like in self.confirmed and self._may_stand_unconfirmed(judged):
            return judged
        judged = self.run_case(replace(case, interpreted=False), or_smaller)
        is_right = judged.finding is None and judged.outcome.error is None
        self.distrusts_numpy = is_right
        if not is_right:
            self.confirmed.add((case.group, judged.finding))
        return judged

    def _may_stand_unconfirmed(self, judged: CaseResult) -> bool:
        """Return whether a wrong call by NumPy is only one more of a fault, of a process that is trusted."""
        return self.is_trusted and judged.outcome.error is None

    def judge_by_all_ways(self, judged: CaseResult) -> CaseResult:
        """Return a call that some way of computing does not allow, compared with all of them."""
        if judged.whole or judged.finding is None:
            return judged
        return judge(self.legal(judged.case.inputs), self.precision, judged.case, judged.outcome)

    def _find_wrong_smaller_case(self, screened: CaseResult) -> CaseResult | None:
        """Return a call that is certainly wrong, in which only some sizes are those of a call that float64 doubts."""
        entries = _count_entries(screened.case)
        if screened.finding not in _BEYOND or entries <= _LARGE_CASE:
            return None
        # Other numbers each time, so that two large cases of equal sizes do not count one call twice.
        rng = np.random.default_rng((self.seed, _SMALLER_SEED, len(self.records)))
        for case in chain.from_iterable(yield_cases_of_fewer_sizes(self, screened, rng)):
            if self.effort.over:
                break
            is_large = _count_entries(case) * _SHRUNK > entries
            if is_large or not self.admits(case) or not self.returns(case):
                continue
            judged = self.run_case(case)
            if judged.outcome.late:
                self.late.append(judged)
            if judged.finding in _BEYOND and not judged.undecided:
                return judged
        return None

    def _compare_case_in_float64(
        self, case: Case, outcome: Outcome, legal: Legal
    ) -> CaseResult | None:
        """Compare the output of a large case with float64, within a narrow error; None if it cannot be."""
        # A definition without a screening in float64, or large intermediate arrays, has none.
        try:
            right = self.subject.screened(self.precision, case.inputs)
        except UNFIT:
            return None
        if right is None:
            return None
        judged = compared(case, outcome, right, self.precision, legal.loose, legal.changes)
        # Not all ways ran: such a case says nothing about power.
        return replace(judged, whole=False)

    def admits(self, case: Case) -> bool:
        """Return whether the domain contains the case."""
        # Such memory is not contiguous, which the domain promises.
        if self.domain.contiguous and case.memory in APART:
            return False
        if self.refused_axes and refusals.axes(case) in self.refused_axes:
            return False
        return self.subject.source.promised(self, case.inputs)

    def returns(self, case: Case) -> bool:
        """Return whether calls with as many entries may be expected to return."""
        return sum(r.case.size <= case.size for r in self.late) < MAX_LATE_OF_SIZE

    def fewer(self, name: str, cases: Iterable[Case]) -> Iterator[Case]:
        """Yield the cases of a group; only some, if it tests what is computed and residues agree with a bound."""
        bounded = self.settled and self.identity is not None and self.identity.epsilon is not None
        for k, case in enumerate(cases):
            # The first cases always run, since a group with fewer counts as too few.
            if k < power.LEAST or k % _FEWER == 0 or not bounded or name not in self.subject.meant:
                yield case
            else:
                self.aside.append(case)

    def ahead(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Yield the cases, sent several at a time to the function's own process if it has one."""
        send = getattr(self.runner, "ahead", None)
        left = iter(cases)
        compiles = self.runner.convention.compiles
        while some := list(islice(left, _AHEAD)):
            some = [self.choose_way(case) for case in some] if compiles else some
            if send is not None and not self.over:
                send([(case.inputs, case.way) for case in some if self.returns(case)])
            yield from some

    def choose_way(self, case: Case) -> Case:
        """Return the case as it is to be called: where JAX would compile programs for its sizes, NumPy may run them.

        Compiled are the programs of the first sizes, of one in ``_ONE_COMPILED_OF``, and of much larger ones; if the
        process is not trusted, also those of the first sizes of each group. Where anything but numbers and sizes
        matters, JAX makes the call as the user would.
        """
        if self.distrusts_numpy:
            return case
        sizes = tuple((name, np.shape(a)) for name, a in case.inputs.items())
        is_empty = any(np.size(a) == 0 for a in case.inputs.values())
        is_plain = case.memory == "contiguous" and not is_empty
        is_large = case.size > _MUCH_LARGER * self.largest_compiled
        compiled = self.compiled_of_group.setdefault(case.group, set())
        is_open = not self.is_trusted and len(compiled) < _COMPILED_SIZES
        if is_plain and not is_large and not is_open and sizes not in self.compiled_sizes:
            # The place of new sizes among all decides whether they are compiled.
            place = self.places_of_sizes.setdefault(sizes, len(self.places_of_sizes) + 1)
            if place % _ONE_COMPILED_OF:
                return replace(case, interpreted=True)
        compiled.add(sizes)
        self.compiled_sizes.add(sizes)
        self.largest_compiled = max(self.largest_compiled, case.size)
        return case

    def way_without_compiling(self, case: Case) -> Memory:
        """Return how to call edited code with a case: JAX would compile each edit anew, so that NumPy runs it.

        Whether an edit is right is asked of compiled programs as well, in a new search.
        """
        # Arrays of JAX have no layout, so that only shared and reused memory makes another call.
        is_of_jax = self.runner.convention.framework == "jax"
        is_plain = case.memory == "contiguous" or (is_of_jax and case.memory in _LAYOUTS)
        compiles = self.runner.convention.compiles and not self.distrusts_numpy
        return "interpreted" if is_plain and compiles else case.memory

    def without_compiling(self, case: Case) -> Case:
        """Return a case of a search whose result JAX's own programs confirm: NumPy runs them where JAX would compile.

        What a process says that is not trusted must not depend on who runs its programs.
        """
        compiles = self.runner.convention.compiles and self.is_trusted
        is_by_numpy = compiles and self.way_without_compiling(case) == "interpreted"
        return replace(case, interpreted=is_by_numpy)

    def share(self, name: str, cases: Iterable[Case], kept: float = 0.0) -> Iterator[Case]:
        """Yield the first few cases of a group, and the others while more effort remains than is ``kept``."""
        before = len(self.called)
        try:
            for case in self.ahead(cases):
                # The first cases run even if no units are left, or the verdict would be undecided.
                is_least = len(self.called) - before < self.fewest_of_group
                self.effort.kept = -inf if is_least else kept
                if self.over:
                    self.untried += [name] if name not in self.untried else []
                    return
                yield case
        finally:
            # The consumer may stop early, and the reserve is for this group alone.
            self.effort.kept = 0.0

    def take(self, case: Case) -> CaseResult | None:
        """Call, judge and record a case while effort remains; return the result, or None if nothing was judged.

        An input that the function itself refuses is no fault, and neither is a call that times out.
        """
        if self.over or not self.admits(case) or (self.late and not self.returns(case)):
            return None
        compiles = self.runner.convention.compiles
        run = self.run_without_compiling if compiles else self.run_case
        judged = run(case, or_smaller=True)
        if judged.outcome.late and self.is_small(case):
            judged = self.run_case(case)  # a busy machine may delay one call, not two
        return self.keep(judged)

    def is_small(self, case: Case) -> bool:
        """Return whether the inputs are at most of the median size of those that were judged."""
        sizes = sorted(r.case.size for r in self.records)
        return not sizes or case.size <= sizes[len(sizes) // 2]

    def keep(self, judged: CaseResult) -> CaseResult | None:
        """Record a call; return it if it is judged, or None."""
        error = judged.outcome.error
        # A refusal is no fault; the domain is narrowed to inputs that the function accepts.
        if error is not None and (error.refused or refusals.misfits(self, judged)):
            self.refused.append(judged)
            # At once, so that no further case is tried that the narrower domain excludes.
            refusals.learn(self)
        elif judged.outcome.late:
            self.late.append(judged)
        else:
            self.records.append(judged)
            ends = self.verdict_alone or self.stops_at_fault
            if ends and self._is_conclusive_fault(judged):
                self.convicting = judged
            return judged
        return None

    def _is_conclusive_fault(self, judged: CaseResult) -> bool:
        """Return whether a call shows a fault whatever other calls show.

        Other calls may show that an exception is a refusal, that the platform computes wrongly, or that a layer of
        tokens takes values only as wide as keys.
        """
        # Later calls may show that the exception is a refusal, or that the platform is wrong.
        if judged.finding in (None, "raises") or judged.outcome.runtime:
            return False
        sizes = self.subject.source.sizes(judged)
        return "w_v" not in judged.case.inputs or sizes.get("d_k") == sizes.get("d_v")


@one_blas_thread
def verify(
    runner: Runner,
    subject: Definition,
    precision: Precision,
    domain: Domain | None = None,
    *,
    seed: int = SEED,
    examples: int = EXAMPLES,
    budget: float = BUDGET,
    progress: Progress = lambda words: None,
    power: Mapping[str, float] | None = None,
    mend: Callable[[Session], Repairs] | None = None,
    verdict_alone: bool = False,
    refutes_at_large_sizes: bool = False,
) -> Report:
    """Verify the runner's function against a subject. Raises ``Unusable`` if it never returns anything to judge.

    No tolerance is picked: an output is a fault if no implementation in the ``precision`` could return it. If the
    ``verdict_alone`` is wanted, the first call that shows a fault for certain ends the search, and no cause is sought.
    ``refutes_at_large_sizes``: residues prove at the smallest sizes alone, and ask one point at larger ones.
    """
    settings: dict[str, Any] = {
        "seed": seed,
        "examples": examples,
        "budget": budget,
        "progress": progress,
        "verdict_alone": verdict_alone,
        "refutes_at_large_sizes": refutes_at_large_sizes,
    }
    session = Session(runner, subject, precision, domain or Domain(), power=power or {}, **settings)

    def again(promised: Domain) -> Report:
        # The records hold calls outside of another domain, so that it starts over with the same options.
        return verify(runner, subject, precision, promised, power=power, mend=mend, **settings)

    _try_all_groups(session)
    if session.convicting is not None:
        return make_verification_report(session, (first_fault(session, session.convicting),))
    # Calls of all other widths raise: start again with the one that the function accepts.
    is_failing = any(r.outcome.error is not None for r in session.records)
    if is_failing and (narrow := refusals.only_width(session)) is not None:
        promise = _OF_ONE.format(narrow.max_width, " --square-weights" * narrow.square_weights)
        return again(narrow).with_reservations(promise)
    if all(r.outcome.error is not None for r in session.called):
        _check_usable(session)
    if any(r.outcome.runtime for r in session.records):
        _check_runtime(session)
    # With a verdict alone no cause is sought, and the smallest wrong call is shown.
    if verdict_alone and session.known and not refusals.only_same_widths(session):
        wrong = [r for r in session.records if r.finding is not None]
        return make_verification_report(
            session, (first_fault(session, min(wrong, key=lambda r: r.case.size)),)
        )
    if session.known or session.domain.nonfinite_forbidden:
        return _explain_and_repair(session, mend, again)
    # What the report asks of the function has a limit of time of its own.
    session.explaining = session.effort_of(inf)
    return make_verification_report(session, ())


def _explain_and_repair(
    session: Session, mend: Callable[[Session], Repairs] | None, again: Callable[[Domain], Report]
) -> Report:
    """Return the report on what was tried: the faults with their causes, and the edits that mend them."""
    # Explaining has the same limit of time, but none of calls.
    session.explaining = session.effort_of(inf)
    is_failing = any(r.finding == "raises" for r in session.records)
    promises = refusals.excluding_failures(session) if is_failing else ()
    # An edit that explains the fault spares most of the search for known mistakes, which takes longer.
    mends_first = (
        mend is not None
        and session.known > 0
        and not promises
        and not refusals.only_same_widths(session)
    )
    if mend is not None and mends_first:
        session.repairs = _find_repairs_within_effort(session, mend)
        session.explaining = session.effort_of(inf)  # the same limit again for known mistakes
    # Inputs that keep a promise which no failure keeps are asked before the longer part of that search.
    session.leaves_out_rules = mend is not None and bool(promises)
    faults = _explain_faults(session)
    # A layer that is wrong for unequal widths alone is judged on equal ones, with a reservation.
    if faults and all(f.cause is None for f in faults) and refusals.only_same_widths(session):
        return again(replace(session.promised, same_width=True)).with_reservations(_OF_WIDTHS)
    narrower = _verify_without_failures(session, faults, again) if is_failing else None
    if narrower is not None:
        return narrower
    if faults and mend is not None and not mends_first:
        session.repairs = _find_repairs_within_effort(session, mend)
        if session.leaves_out_rules and not session.repairs.explain:
            session.leaves_out_rules, session.explaining = False, session.effort_of(inf)
            faults = _explain_faults(session)
    return make_verification_report(session, faults)


def _find_repairs_within_effort(session: Session, mend: Callable[[Session], Repairs]) -> Repairs:
    """Return the edits that make the function right; what they spend is left out for known mistakes."""
    usual = session.effort_of_searches
    session.effort_of_searches = Effort(for_explaining(session.budget))
    repairs = mend(session)
    # Without a source nothing was tried, and known mistakes are all there is.
    if not repairs.were_sought:
        session.effort_of_searches = usual
    return repairs


def _explain_faults(session: Session) -> tuple[Fault, ...]:
    """Return the faults that records show, each with its cause if one is known."""
    from symattn.verification.diagnosis import (
        faults as diagnosis,
    )  # slow to import, and mostly not needed

    return diagnosis.faults(session)


def _verify_without_failures(
    session: Session, faults: tuple[Fault, ...], again: Callable[[Domain], Report]
) -> Report | None:
    """Verify on the inputs for which no call raises, if that explains a fault without a cause; else return None.

    A mistake is then found by inputs that the code was written for. The calls that raise stay a fault.
    """
    raising = [f for f in faults if f.counterexample and f.counterexample.error is not None]
    unexplained = any(f.cause is None for f in faults if f not in raising)
    promises = refusals.excluding_failures(session) if raising and unexplained else ()
    if not promises:
        return None
    options = refusals.options(promises)
    inside = again(refusals.narrowed(session.promised, promises))
    explained = [f for f in inside.faults if f.cause is not None]
    if not explained and not any(r.is_whole for r in inside.repairs):
        return None
    for_some = (replace(f, message=f"{f.message}; on inputs with {options}") for f in inside.faults)
    session.repairs = Repairs(
        tuple(replace(r, within=f"{options} {r.within}".strip()) for r in inside.repairs)
    )
    return make_verification_report(session, (*raising, *for_some))


def _try_all_groups(session: Session) -> None:
    """Run residues, then all first groups of floats; run later groups only while no fault is known."""
    rng = np.random.default_rng(session.seed)
    subject = session.subject
    if not session.verdict_alone:
        _try_residues(session)
    # All first groups run even if one shows a fault, since the diagnosis rests on them.
    for name, group in subject.source.first().items():
        _try_group(session, name, group, rng)
    if session.convicting is not None:
        return
    if session.verdict_alone:  # the first floats are faster, and convict most wrong functions
        _look_early(session)
        if session.convicting is not None or session.is_accused_jointly:
            return
        _try_residues(session)
    subject.source.between(session, rng)
    # A judged candidate may replay the results of earlier calls.
    if session.verdict_alone and session.known == 0:
        _try_memory(session, rng)
    for name, group in subject.source.later().items():
        if session.known == 0:
            _try_group(session, name, group, rng, _ENOUGH)
    if session.known and not session.verdict_alone:
        _try_norms_of_small_rows(session, rng)
    session.progress("accuracy")
    # fewer random inputs if faults are known, which these only help to name, or if residues have decided
    few = max(session.examples // 4, min(power.LEAST, session.examples))
    examples = few if session.known or session.settled else session.examples
    for case in session.share(subject.source.random, subject.source.drawn(session, examples)):
        if session.known >= subject.enough:
            break
        session.take(case)
    _climb_to_larger_errors(session, rng)
    _try_last(session, rng)
    if session.convicting is not None:
        return
    if session.known:
        _seek_smaller(session, rng)
    for case in session.aside if session.known else ():  # the diagnosis rests on them
        session.take(case)
    if session.known == 0:
        _bound_some_of_screened(session)
    # Where an output alone is wrong, a closer look at all bits adds nothing.
    if subject.look_closer is not None and session.known == 0 and not session.over:
        subject.look_closer(session)


def _look_early(session: Session) -> None:
    """Take the quicker part of the closer look, unless a fault, or a platform that computes wrongly, is known."""
    is_spoiled = any(r.outcome.runtime for r in session.records)
    if session.subject.look_early is not None and not (session.known or session.over or is_spoiled):
        session.progress("first bits")
        session.subject.look_early(session)


def _bound_some_of_screened(session: Session) -> None:
    """Judge the smallest call of each group by bounds as well, if float64 alone has judged all calls.

    That is so if all sizes are large. Power rests on bounds, and without any the verdict would be undecided.
    """
    is_bounded = any((r.whole or r.undecided) and session.tells(r.case) for r in session.records)
    if is_bounded or not session.measures_power:
        return
    places = [k for k, r in enumerate(session.records) if session.tells(r.case)]
    smallest: dict[str, int] = {}
    for place in sorted(places, key=lambda k: session.records[k].case.size):
        smallest.setdefault(session.records[place].case.group, place)
    for place in list(smallest.values())[:_BOUNDED]:
        screened = session.records[place]
        legal = session.legal(screened.case.inputs)
        session.records[place] = judge(
            legal, session.precision, screened.case, screened.outcome, whole=True
        )


def _try_residues(session: Session) -> None:
    if session.identity is None:  # else a caller has asked them first
        session.progress("semantics")
        session.identity = hints.residues(session)
        # floats have a budget of their own
        session.finding = session.effort_of(for_finding(session.examples))
    # Only where there are last groups, which raise the limit again.
    if session.subject.source.last():
        session.finding.seconds = session.budget * (1 - _FOR_LAST)


def _try_memory(session: Session, rng: np.random.Generator) -> None:
    """Call with other contents in the memory of an earlier call, and with the same contents in other memory.

    A result that is kept by the address, the sum or the contents of an input is then wrong, since the caller overwrites
    what was returned.
    """
    session.progress(_MEMORY)
    right = [
        r
        for r in session.records
        if r.finding is None
        and r.decisive
        and r.case.memory == "contiguous"
        # The call whose bits are compared is larger than is needed.
        and r.case.group != probes.BITS
    ]
    # Start from inputs of different sizes, the largest first.
    for judged in sorted(right, key=lambda r: -r.case.size)[:: max(1, len(right) // _BASES)][
        :_BASES
    ]:
        first = dict(judged.case.inputs)
        other = session.subject.source.altered(session, first, rng)
        # Reversed values have the same sum, so that a cache by sums replays a wrong result.
        turned = {name: a[..., ::-1, :] if name == "v" else a for name, a in first.items()}
        for name, inputs in (
            ("first numbers", first),
            ("other numbers", other),
            ("values in another order", turned),
            ("first numbers again", first),
            ("the same once more", first),
        ):
            if session.subject.source.fits(session, inputs):
                session.take(Case(_MEMORY, f"one memory, {name}", inputs, "reused", alone=False))
        session.take(Case(_MEMORY, "first numbers in other memory", first, alone=False))


def first_fault(session: Session, judged: CaseResult) -> Fault:
    """Return the fault that one call shows, without a cause and without a search for smaller inputs."""
    from symattn.verification import reduce  # most functions are right

    if judged.finding in ("dtype", "mutates", "overwrites"):
        from symattn.verification.diagnosis.faults import conduct  # slow to import

        show = partial(reduce.shown, session.subject)
        return next(conduct([judged], session.precision.input.name, show))
    example = reduce.counterexample(session.subject, judged)
    words = f"{example.words} ({judged.case.group}: {judged.case.name})"
    return Fault("output", None, words, example)


def recognised(session: Session) -> bool:
    """Run the first groups of cases, and return whether some judge the function and none shows a fault."""
    rng = np.random.default_rng(session.seed)
    session.measures_power = False
    for name, group in session.subject.source.first().items():
        _try_group(session, name, group, rng, enough=1)
        if session.known:
            return False
    return any(judged.decisive for judged in session.records)


def is_far_off(session: Session) -> bool:
    """Return whether the function's first output is far from the definition's in float64 for some of the first inputs.

    This is no verdict: inputs that magnify roundings may show it of a right function, too. Nothing is recorded.
    """
    rng = np.random.default_rng(session.seed)
    cases = chain.from_iterable(
        group(session, rng) for group in session.subject.source.first().values()
    )
    tried = islice(filter(session.admits, cases), _FIRST_CASES)
    return any(_is_far_off_at(session, case) for case in tried)


def _is_far_off_at(session: Session, case: Case) -> bool:
    try:
        right = session.subject.screened(session.precision, case.inputs)
    except UNFIT:
        return False
    output = session.runner.run(case.inputs, case.way).output
    if not right or output is None or output.shape != right[0].near.shape:
        return False
    largest_entry = np.abs(right[0].near).max(initial=0.0)
    return bool((np.abs(output - right[0].near) > _FAR_OFF * largest_entry).any())


def finds_fault(session: Session) -> bool:
    """Run all groups of cases, and return whether one shows a fault."""
    _try_all_groups(session)
    return bool(session.known or session.is_accused_jointly)


def _inputs_but_weights(case: Case) -> list[Any]:
    """Return all inputs but weights, whose sizes a layer may fix."""
    return [a for name, a in case.inputs.items() if not name.rpartition(".")[2].startswith("w_")]


def _count_entries(case: Case) -> int:
    """Return the number of entries of all inputs but weights."""
    return sum(map(np.size, _inputs_but_weights(case)))


def _count_scores(case: Case) -> int:
    """Return the product of the two largest numbers of tokens, which every mistake in scores computes."""
    arrays = (a for a in _inputs_but_weights(case) if np.ndim(a) > 1)
    fewer, more = sorted([0, 0, *(np.shape(a)[-2] for a in arrays)])[-2:]
    return int(fewer * more)


def _seek_smaller(session: Session, rng: np.random.Generator) -> None:
    """If all wrong cases are large, try inputs in which only some sizes are, and keep these alone if they are wrong.

    The diagnosis computes each known mistake on the wrong cases, which takes long on large ones.
    """
    work: Callable[[CaseResult], int] = lambda r: r.case.size + _count_scores(r.case)  # noqa: E731
    wrong = sorted((r for r in session.records if r.finding is not None), key=lambda r: r.case.size)
    entries = _count_entries(wrong[0].case)
    scores = _count_scores(wrong[0].case)
    # A small case is there already, or the fault is an exception, for which no mistake is computed.
    if (entries <= _LARGE_CASE and scores <= _MANY_SCORES) or wrong[0].finding == "raises":
        return
    before = len(session.records)
    for cases in yield_cases_of_fewer_sizes(session, wrong[0], rng):
        for case in cases:
            session.take(case)
        smaller = [r for r in session.records[before:] if r.finding is not None]
        if smaller and min(map(work, smaller)) * _SHRUNK < work(wrong[0]):
            most = max(map(work, smaller))
            # The diagnosis computes every mistake on every record: leave larger ones out.
            session.larger = [
                r for r in session.records if r.finding is not None and work(r) > most
            ]
            session.records = [r for r in session.records if r not in session.larger]
            return


def yield_cases_of_fewer_sizes(
    session: Session, wrong: CaseResult, rng: np.random.Generator
) -> Iterator[Iterator[Case]]:
    """Yield cases in which one size alone is that of a wrong call, then smaller sizes, then those of two, up to all."""
    sizes = session.subject.source.sizes(wrong)
    axes = [name for name in ("n_q", "n_k", "d_k", "d_v") if sizes.get(name, 0) > _FEW_OF_AXIS]

    def cases_of(fewer: Mapping[str, int], title: str) -> Iterator[Case]:
        for inputs in session.subject.source.resized(session, fewer, rng):
            yield Case(wrong.case.group, title, inputs)

    def cases_with(large: tuple[str, ...]) -> Iterator[Case]:
        fewer = {n: min(size, size if n in large else _FEW_OF_AXIS) for n, size in sizes.items()}
        return cases_of(fewer, f"large in {', '.join(large)} alone")

    # One large axis first, then pairs: the fewer are large, the cheaper the diagnosis.
    for count in range(1, len(axes) + 1):
        yield chain.from_iterable(map(cases_with, combinations(axes, count)))
        if count == 1:
            # Sizes that a promise ties, such as n_q = n_k, are large together or not at all.
            for most in _MIDDLE_SIZES:
                if most * _SHRUNK <= max(sizes.values()):
                    fewer = {n: min(size, most) for n, size in sizes.items()}
                    yield cases_of(fewer, f"no size beyond {most}")


def _try_norms_of_small_rows(session: Session, rng: np.random.Generator) -> None:
    """Run the group of norms if all wrong calls have lost their numbers, as rows of zeros do without ε.

    A cause must explain wrong numbers, which small rows then have.
    """
    wrong = [r for r in session.records if r.finding is not None]
    is_lost = all(r.finding == "not finite" for r in wrong)
    norms = session.subject.source.later().get("norms")
    if is_lost and norms is not None:
        _try_group(session, "norms", norms, rng, _ENOUGH)


def _try_last(session: Session, rng: np.random.Generator) -> None:
    """Run the last groups, each of which has a share of the reserve, so that slow calls leave none of them out."""
    last = session.subject.source.last()
    for count, (name, group) in enumerate(last.items(), 1):
        reserved = _FOR_LAST * (1 - count / len(last))
        session.finding.prolong(session.budget * (1 - reserved))
        if session.known == 0:
            _try_group(session, name, group, rng, _ENOUGH)


def _try_group(
    session: Session, name: str, group: Cases, rng: np.random.Generator, enough: float | None = None
) -> None:
    """Try the cases of a group, up to ``enough`` wrong ones; start again if the domain became narrower."""
    session.progress(name)
    before = session.known if enough else 0
    domain = session.domain
    reserved = 0.0 if name in session.subject.source.last() else for_random(session.examples)
    for case in session.share(name, session.fewer(name, group(session, rng)), reserved):
        # Random inputs come later: their effort is reserved, except from groups after them.
        if session.known - before >= (enough or session.subject.enough):
            return
        session.take(case)
        if session.domain != domain:
            return _try_group(session, name, group, rng, enough)


def _climb_to_larger_errors(session: Session, rng: np.random.Generator) -> None:
    """Change the inputs with the largest errors, and keep each change that makes the error larger."""
    if session.known or not session.examples:
        return
    subject = session.subject
    change = partial(subject.source.altered, session, rng=rng)

    def worst(inputs: dict[str, Array]) -> float:
        if session.over or session.known or not subject.source.fits(session, inputs):
            return 0.0
        judged = session.take(Case(subject.source.random, "larger errors sought", inputs))
        return judged.worst if judged else 0.0

    # Ratios from 1 on are faults already, large inputs take too long to climb, and what float64 alone has judged has
    # no ratio to the bound.
    tried = (
        r
        for r in session.records
        if 0 < r.worst < 1 and r.case.size < subject.climbed and not r.is_screened
    )
    for judged in sorted(tried, key=lambda r: -r.worst)[: 1 if session.settled else _CLIMBS]:
        probes.climb(
            change, dict(judged.case.inputs), judged.worst, min(_STEPS, session.examples), worst
        )


# Reservations and hints for functions that take some widths or shapes only.
_OF_ONE = (
    "It takes heads of width {0} alone, and raises for all others that were tried; these were left out. "
    "--min-width {0} --max-width {0}{1} promises that they do not occur."
)
_OF_WIDTHS = (
    "Where values are wider or narrower than keys, it computes something else, which no known mistake explains; such "
    "layers were left out. --same-width promises that they do not occur."
)
_OF_SHAPES = (
    "; hint: if it takes some shapes only, say which: "
    "--square, --min-width, … (symattn help inputs), Domain in Python"
)


# Words of errors that torch, JAX and Triton raise for arrays on another device.
_ON_DEVICE = re.compile(r"\b(cuda|gpu|cpu|devices?|active drivers)\b", re.IGNORECASE)
_OF_DEVICE = "; hint: inputs are on the CPU; give a function that copies them to the device"
#: Words of torch for an operator that it has on other devices alone; a list of these follows.
_LACKED = re.compile(r"Could not run '([\w:.]+)' with arguments from the 'CPU' backend")
_WITHOUT_DEVICE = ", or set TRITON_INTERPRET=1, with which kernels of Triton run on the CPU"


def _check_usable(session: Session) -> None:
    tried = session.called
    failed = [r.outcome.error for r in tried if r.outcome.error is not None]
    # Where the budget ends before the first call, nothing is known of the inputs.
    if not tried and session.effort.over:
        raise Unusable(
            f"{session.runner.describe()}: the budget of {session.budget:g} s ended before the first call; "
            "hint: a larger --budget",
            CannotRunHere,
        )
    if not tried:
        raise Unusable(
            f"{session.runner.describe()}: no input fits {session.subject.what} within {session.domain.words}",
            CannotRunHere,
        )
    on_device = bool(failed) and bool(_ON_DEVICE.search(failed[0].message))
    # Some call returned, or a library refused all: a report can say so.
    if len(failed) < len(tried) or (refusals.by_library(failed) and not on_device):
        return
    never = len(session.late) == len(tried)
    words = f"failed on every input: {failed[0]}"
    lacked = _LACKED.search(failed[0].message)
    if lacked:
        words = f"failed on every input: PyTorch has no {lacked[1]} on a CPU"
    if never:
        words = (
            f"did not return: {failed[0]}" if failed[0].reason == "time limit" else str(failed[0])
        )
    of_shapes = _OF_SHAPES if failed[0].refused or failed[0].type in refusals.MISFITS else ""
    # Another interpreter would not bring an operator that is lacking.
    is_interpreted = bool(os.environ.get("TRITON_INTERPRET"))
    of_device = _OF_DEVICE + ("" if is_interpreted or lacked else _WITHOUT_DEVICE)
    hint = of_device if on_device else of_shapes
    raise Unusable(
        f"{session.runner.describe()} {words}{hint}", _kind_of(failed[0], never or on_device)
    )


def _kind_of(failure: Failure, may_differ: bool) -> type[CannotRun]:
    """Return whether a failure on every input says nothing of a machine with more memory, more time or a device."""
    if failure.reason == "memory limit" or failure.type == "MemoryError":
        return NeedsMemory
    return CannotRunHere if may_differ else CannotRun


def _check_runtime(session: Session) -> None:
    """Leave floats out if the platform under the function computes wrongly itself, and an output is wrong.

    Raises ``Unusable`` unless residues agree, on which the platform computes nothing.
    """
    wrong = session.known or session.is_accused_jointly
    runtime = next((r.outcome.runtime for r in session.records if r.outcome.runtime), "")
    if not wrong or not runtime:
        return
    if session.identity is None or not session.identity.agrees:
        raise Unusable(
            f"{session.runner.describe()} is not judged: {runtime}{hints.differing(session.identity)}",
            CannotRunHere,
        )
    # Residues agree, so that only outputs in floats, which the platform spoils, are left out.
    session.records, session.beyond, session.trial, session.wrong_platform = [], None, None, runtime
