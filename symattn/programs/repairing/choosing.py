"""The search for repairs: which edits are tried, tier by tier, and which of those that pass are reported.

All lines are searched. An edit by which the code takes another path comes last, since it may only avoid the mistake:
a tile size of 1, a branch that is never taken. Among the others the smallest comes first, then likely rules. Two edits
are tried only if no single one is found; if two faults are apart, the edit that repairs most wrong calls is reported.

Work is counted in calls of edited functions, never by a clock: a third of what explaining may take. The budget of
processor time is an upper limit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass, replace
from fractions import Fraction
from itertools import chain, combinations, islice
from math import inf, isfinite
from typing import NamedTuple, Protocol

import numpy as np

from symattn.bounds.called_target import Runner
from symattn.bounds.case_result import Case, CaseResult
from symattn.document.errors import SymattnError
from symattn.document.evidence import Grade
from symattn.document.values_in_use import values_in_use
from symattn.programs.repairing.edits import SWITCH, TIERS, Edit, overlapping
from symattn.programs.repairing.likelihood import in_turn, rarity_of, size_of
from symattn.programs.repairing.oracle import EditAnswer, examine, may_lack_values, sorted_samples
from symattn.programs.repairing.trials import JudgedSample, Opened, Samples, Screened
from symattn.verification import engine
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.effort import Effort, for_edits
from symattn.verification.engine import Session
from symattn.verification.repair import ExecutionPath, Repair, RepairPart, Repairs, Replacement

MAX_EDITS = 8000  # single edits that are tried
MAX_PAIRS = 3000  # pairs of edits: of tier 1 both, or one that repairs a part and one of tier 1
# before these, pairs of an edit that repairs some calls whole, with one of tiers 1 and 2
MAX_PAIRS_OF_HALVES = 4000
#: Single edits, by tier, of a function that launches kernels, which run slowly; one tier leaves the rest to the next.
MAX_EDITS_OF_KERNELS = {1: 1200, 2: 900, 3: 400}
# further ones in that tier, and in the next, once an edit is accepted by which the code takes another path
MAX_AFTER_OTHER_PATH_OF_KERNELS = 250
MAX_EXAMINED = 6  # candidates of a tier for which faults are sought anew
MAX_CANDIDATES = 60  # candidates of a tier that are tried on each judged case
# In screening an error may exceed the bound by this factor; the last questions are strict.
_MOST_SLACK = 8.0
_TOKENS_OF_KERNEL = 40  # tokens of the last inputs of an interpreted kernel of short blocks,
_BEYOND_BLOCKS = 3  # and beyond two blocks if these are longer
_FEW_ENTRIES = 1000  # of a wrong call of which no smaller one is sought,
_SMALLER_TRIES, _TRIES_OF_SIZES = 16, 4  # calls in all, and with each choice of sizes,
_SHRUNK = 2  # and the factor by which a smaller one must be smaller
_SMALLER_SEED = 61
_CHUNK = 250  # edits sent to the function's process at once
_CHUNK_OF_KERNELS = 50  # edits of a kernel after which those that passed are examined
_FIRST_WRONG, _FIRST_RIGHT, _VARIOUS = 9, 6, 12  # cases of the first screen, and of partial repairs
_MAX_ENTRIES = 20_000  # of a case that is sent along
# Cases on which a candidate is tried after the first screen.
_MAX_SAMPLES = 150
_BEAM = 8  # edits that repair a part, and get a second one
_HALVES = 4  # those of them that repair enough calls whole and spoil none get one of tier 2, too:
_SHARE_OF_HALVES = 4  # a quarter of the wrong calls at least
_PAIRS_AT_ONCE = 1000  # pairs after which those that passed are examined
# calls that refuted single edits, of which pairs are asked some as large, and their entries
_MOST_REFUTING, _MAX_REFUTING, _REFUTING_SEED = 2, 100_000, 67
_MOST_COMPARED = 64  # edits of tiers 2 and 3 of which the parts that they repair are compared
_PATIENCE = 0.1  # by how much more a partial repair must repair than the function as it is
_TIERS_OF_IDLE_NAMES = (1, 2)  # of edits by which the code reads a value that nothing reads
_PAIR = max(TIERS) + 1  # the tier of two edits at once
#: Paths of execution after an edit, in the order in which edits are reported.
_PATHS: tuple[ExecutionPath, ...] = ("same", "beyond", "wider", "other")
_WHOLE_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
#: Findings about a single call, which an edit can repair.
_FINDINGS = ("values", "not finite", "shape", "raises", "dtype", "mutates", "overwrites")


class TriesEdits(Protocol):
    """Trials of edits, in this process or in the function's own."""

    def open(self) -> Opened | None: ...
    def add(self, samples: Sequence[JudgedSample]) -> None: ...
    def edits(self, tier: int) -> Sequence[Edit]: ...
    def screen(self, several: Sequence[tuple[Edit, ...]]) -> list[Screened]: ...
    def score(self, edits: Sequence[Edit]) -> list[float]: ...
    def work_done(self) -> float: ...
    def repaired(self, edits: Sequence[Edit]) -> tuple[int, int]: ...
    def version(self, edits: Sequence[Edit]) -> Runner | None: ...


def find_repairs(session: Session) -> Repairs:
    """Return the smallest edits of the function's source that make it equal to the definition."""
    make: Callable[[Samples], TriesEdits] | None = getattr(session.runner, "trials", None)
    # Edits are judged call by call, so findings that need several calls are left out.
    wrong = [r for r in session.records if r.finding in _FINDINGS and r.case.alone and r.parts]
    wrong = [r for r in wrong if not may_lack_values(session, r.case)] or wrong
    if make is None or not wrong:
        return Repairs()
    session.progress("repairs")
    try:
        # Each edit is called on the first one, so that a small one saves most of the time.
        samples = _samples_of(session, [*_smaller_wrong_calls(session, wrong), *wrong])
        trials = make(samples)
        opened = trials.open()
        return (
            Repairs()
            if opened is None
            else _EditSearch(session, trials, opened, samples, len(wrong)).found()
        )
    except SymattnError as error:
        return Repairs(note=f"The search for a repair ended: {error}.")


def _smaller_wrong_calls(session: Session, wrong: Sequence[CaseResult]) -> list[CaseResult]:
    """Return wrong calls that are as small as the smallest one in some sizes alone; none if that one is small."""
    smallest = min(wrong, key=lambda r: r.case.size)
    if smallest.case.size <= _FEW_ENTRIES or smallest.finding not in ("values", "not finite"):
        return []
    rng, left = np.random.default_rng((session.seed, _SMALLER_SEED)), _SMALLER_TRIES
    for cases in engine.yield_cases_of_fewer_sizes(session, smallest, rng):
        small = (c for c in cases if _SHRUNK * c.size <= smallest.case.size and session.admits(c))
        tried = islice(small, min(left, _TRIES_OF_SIZES))
        judged = [session.run_case(session.without_compiling(case)) for case in tried]
        left -= len(judged)
        wrong_again = [r for r in judged if r.finding in ("values", "not finite") and r.parts]
        if wrong_again or not left:
            return wrong_again
    return []


# -- the cases to try --------------------------------------------------------------------------------------------------
def _samples_of(session: Session, wrong: Sequence[CaseResult]) -> Samples:
    # Large cases are slow to send and to run; without small ones, the first wrong one has to do.
    small = [r for r in wrong if r.case.size <= _MAX_ENTRIES] or list(wrong[:1])
    right = [
        r
        for r in session.records
        if r.finding is None
        and r.parts
        and not r.undecided
        and r.case.alone
        and not may_lack_values(session, r.case)
    ]
    right = [r for r in right if r.case.size <= _MAX_ENTRIES and r.decisive]
    ordered = sorted_samples(small)
    first = [
        *ordered[:1],
        *_sample_case_records(ordered[1:], _FIRST_WRONG - 1),
        *_sample_case_records(right, _FIRST_RIGHT),
    ]
    every = _sample_case_records([*small, *right], _MAX_SAMPLES)
    various = _sample_case_records(sorted(small, key=lambda r: r.case.size), _VARIOUS)
    judged_samples: dict[int, JudgedSample] = {}

    def sample(r: CaseResult) -> JudgedSample:
        # A record may be in several lists, which share its sample.
        if id(r) not in judged_samples:
            judged_samples[id(r)] = _sample_of(session, r)
        return judged_samples[id(r)]

    subject = session.subject
    loose = frozenset(k for k, name in enumerate(subject.outputs) if name in subject.loose)
    return Samples(
        first=tuple(map(sample, first)),
        all=tuple(map(sample, every)),
        various=tuple(map(sample, various)),
        returned=session.precision.returned.name,
        loose=loose,
        changes=subject.changes,
        numbers=_numbers_told(subject),
    )


def _sample_of(session: Session, r: CaseResult) -> JudgedSample:
    """Return a judged case as trials need it."""
    near = tuple(np.asarray(part.expected.near, dtype=np.float64) for part in r.parts)
    allowed = tuple(np.asarray(part.expected.allowed, dtype=np.float64) for part in r.parts)
    is_wrong, slack = r.finding is not None, _slack_for_repaired_error(r)
    memory = session.way_without_compiling(r.case)
    return JudgedSample(dict(r.case.inputs), memory, near, allowed, is_wrong, slack)


def _numbers_told(subject: Definition) -> tuple[float, ...]:
    """Return the numbers of a subject's specification, and of its settings."""
    settings = subject.settings.values()
    of_settings = chain.from_iterable(map(_telling_number, settings))
    numbers = (*numbers_of(subject.described), *of_settings)
    return tuple(dict.fromkeys(numbers))


def _telling_number(x: object) -> tuple[float, ...]:
    """Return a number as code has it, a quotient as its float; nothing for 0 and 1, and for other values."""
    if isinstance(x, bool) or not isinstance(x, int | float | Fraction):
        return ()
    # 0 and 1 are in every code, so that they say nothing about the specification.
    if not isfinite(x) or x in (0, 1):
        return ()
    return (float(x) if isinstance(x, Fraction) else x,)


def _slack_for_repaired_error(r: CaseResult) -> float:
    """Return how far above the allowed error a candidate may be: less if the function itself is hardly above it."""
    if r.finding is None or not isfinite(r.worst):
        return _MOST_SLACK
    return float(min(max(r.worst**0.5, 1.0), _MOST_SLACK))


def _sample_case_records(records: Sequence[CaseResult], most: int) -> list[CaseResult]:
    """Return at most so many records, from all parts of the list."""
    return list(records) if len(records) <= most else list(records[:: -(-len(records) // most)])


def numbers_of(spec: object) -> tuple[float, ...]:
    """Return the numbers among the fields of a specification, and of its parts."""
    result: list[float] = []
    for value in values_in_use(spec) if is_dataclass(spec) else ():
        for x in value if isinstance(value, tuple) else (value,):
            result += numbers_of(x) if is_dataclass(x) else _telling_number(x)
    return tuple(dict.fromkeys(result))


# -- the search --------------------------------------------------------------------------------------------------------
Several = tuple[Edit, ...]


def _parts(several: Sequence[Several], size: int) -> Iterator[Sequence[Several]]:
    for start in range(0, len(several), max(size, 1)):
        yield several[start : start + size]


def _taken(several: Sequence[Several], waiting: dict[Several, None]) -> list[Several]:
    """Return those that are still waiting, which then wait no longer."""
    result = [one for one in several if one in waiting]
    for one in result:
        del waiting[one]
    return result


class _ScreenedEdit(NamedTuple):
    """Edits that pass all samples, with what orders them: rank of their path, size, evidence, likelihood, number."""

    rank: int
    size: float
    is_alone: bool  # no other part of the code says what they make of one
    is_unlikely: bool
    rarity: int
    number: int
    edits: Several


def _parts_by_size(several: Sequence[Several]) -> Iterator[list[Several]]:
    """Yield edits in parts of some hundreds, smaller edits before larger ones; a part has all edits of its sizes."""
    part: list[Several] = []
    last = 0.0
    for size, edits in sorted(((sum(map(size_of, e)), e) for e in several), key=lambda x: x[0]):
        if len(part) >= _CHUNK and size > last:
            yield part
            part = []
        part.append(edits)
        last = size
    if part:
        yield part


class _EditSearch:
    """One search. ``tried`` counts the edits, each of which was called at least once."""

    def __init__(
        self, session: Session, trials: TriesEdits, opened: Opened, samples: Samples, wrong: int
    ) -> None:
        self._session, self._trials, self._opened = session, trials, opened
        self._effort = Effort(
            # Edits of kernels are counted by themselves, since a call of one is interpreted.
            inf if opened.has_kernels else for_edits(session.budget),
            session.budget,
            lambda: getattr(session.runner, "spent", (0, 0)),
            within=None if opened.has_kernels else session.effort_of_searches,
        )
        self._work = 0.0  # of trials, as far as it is spent
        self._tried, self._cut = 0, False
        # by tier, with ``_PAIR`` for two edits at once
        self._tried_of: Counter[int] = Counter()
        self._accepted: list[tuple[ExecutionPath, Several, EditAnswer]] = []
        self._numbers = getattr(samples, "numbers", ())
        self._longest = _longest_of(session)
        self._refuting: list[Case] = []  # cases that refuted candidates
        self._wrong, self._sampled = wrong, sum(s.wrong for s in samples.all)
        self._edits: dict[int, list[Edit]] = {}  # by tier, as far as they are enumerated
        self._possible_pairs = 0  # of edits that were paired, tried or left out
        self._known: set[tuple[int, tuple[Replacement, ...]]] = set()
        # edits that repair a part, each with its share of the entries of the first sample
        self._gains: list[tuple[float, Edit]] = []
        self._refused_groups: set[int] = set()  # of edits that passed all samples
        self._refused: set[Several] = set()  # edits that were tried before the others of their tier
        self._passing: set[Edit] = set()  # single edits that passed all samples
        # the last tier to search once an edit is accepted by which the code takes another path; 0 before
        self._last_tier_after_other_path = 0

    def found(self) -> Repairs:
        """Search tier by tier, until an edit is accepted by which the code keeps its path."""
        kernels = self._opened.has_kernels
        left = 0 if kernels else MAX_EDITS
        if not kernels and self._settle_edits_that_read_idle_names():
            return self._collect_accepted_repairs()
        for tier in TIERS:
            left += MAX_EDITS_OF_KERNELS[tier] if kernels else 0
            if self._accepted and kernels:
                left = min(left, MAX_AFTER_OTHER_PATH_OF_KERNELS)
                # Enumerating a tier of kernels alone takes seconds.
                if tier > self._last_tier_after_other_path:
                    break
            edits = self._enumerate_tier(tier)
            self._cut |= len(edits) > left
            # In the order of the text, the last lines would be left out. Those of kernels are in turn already.
            ordered = in_turn(edits) if not kernels and len(edits) > left else edits
            # Kernels in small parts: an accepted edit spares the screening of the rest.
            size = _CHUNK_OF_KERNELS if kernels else left
            waiting: dict[Several, None] = {
                (e,): None for e in ordered if (e,) not in self._refused
            }
            for part in _parts(list(waiting)[:left], size):
                # Some of them were tried before their turn, and all of them count.
                now = _taken(part, waiting)[:left]
                left -= len(now)
                if self._settle_edit_candidates(now, by_size=not kernels):
                    return self._collect_accepted_repairs()
                # They differ from an edit that was refused only in calls that it fails.
                others = _taken(self._others_of_refused(ordered), waiting)[:left]
                left -= len(others)
                if self._settle_edit_candidates(others):
                    return self._collect_accepted_repairs()
                if self._accepted and kernels and not self._last_tier_after_other_path:
                    # Only an edit that is about as likely is worth a further search.
                    left = min(left, MAX_AFTER_OTHER_PATH_OF_KERNELS)
                    self._last_tier_after_other_path = tier + 1
        # Pairs only if no single edit is accepted; interpreted kernels are too slow for pairs.
        if not self._accepted and not self._effort.over and not kernels:
            self._add_refuting_samples()
            best = self._rank_partial_repairs()
            parts = self._choose_repairs_of_whole_calls(best)
            for pairs in _parts(self._pair_up_edits(best, parts), _PAIRS_AT_ONCE):
                if self._settle_edit_candidates(pairs) or self._accepted:
                    return self._collect_accepted_repairs()
            if parts:
                # The first of those that repair most calls has the most right entries.
                return self._report_partial_repair(*max(parts, key=lambda part: part[1]))
        return self._collect_accepted_repairs()

    def _settle_edits_that_read_idle_names(self) -> bool:
        """Try edits by which the code reads a value that it computes and reads nowhere; return whether one is accepted.

        Nobody computes a value for nothing, so that such an edit is likelier than a smaller one elsewhere. One by which
        the code takes another path is accepted too, and shortens the search for one by which it keeps its path.
        """
        if not any(e.reads_idle_name for e in self._enumerate_tier(1)):
            return False
        edits = [e for tier in _TIERS_OF_IDLE_NAMES for e in self._enumerate_tier(tier)]
        reading: list[Several] = [(e,) for e in edits if e.reads_idle_name]
        counts: Counter[str] = Counter()
        later: list[_ScreenedEdit] = []
        self._refused.update(reading)
        for part in _parts_by_size(reading):
            candidates = self._screen_edits(part)
            later += (c for c in candidates if c.rank)
            if self._examine_candidates([c for c in candidates if not c.rank], counts):
                return True
        self._examine_candidates(later, counts)
        if not self._accepted:
            # Some may not have had their last questions: they have their turn among the others.
            self._refused.difference_update(c.edits for c in later)
        return False

    def _enumerate_tier(self, tier: int) -> list[Edit]:
        """Return the edits of a tier, without those that an earlier tier has."""
        if tier in self._edits:
            return self._edits[tier]
        result = []
        for edit in self._trials.edits(tier):
            # Two rules may make the same change.
            key = edit.place, edit.replacements
            if key not in self._known:
                self._known.add(key)
                result.append(edit)
        self._edits[tier] = result
        return result

    def _settle_edit_candidates(self, several: Sequence[Several], by_size: bool = False) -> bool:
        """Screen edits, put the last questions to the best, and return whether one is accepted on the same path.

        With ``by_size`` larger edits are screened only after the last questions to smaller ones: the smallest edit on
        the same path comes first, so that the answer is the same.
        """
        counts: Counter[str] = Counter()
        later: list[_ScreenedEdit] = []
        for part in _parts_by_size(several) if by_size else [several]:
            candidates = self._screen_edits(part)
            later += (c for c in candidates if c.rank)
            if self._examine_candidates([c for c in candidates if not c.rank], counts):
                return True
        return self._examine_candidates(later, counts)

    def _screen_edits(self, several: Sequence[Several]) -> list[_ScreenedEdit]:
        """Try edits on the samples, and return those that pass all of them."""
        candidates: list[_ScreenedEdit] = []
        for start in range(0, len(several), _CHUNK):
            if self._effort.over:
                self._cut = True
                break
            chunk = several[start : start + _CHUNK]
            self._tried += len(chunk)
            self._tried_of.update(edits[0].tier if len(edits) == 1 else _PAIR for edits in chunk)
            screened_edits = self._trials.screen(chunk)
            self._spend_work_of_trials()
            for screened in screened_edits:
                edits = chunk[screened.number]
                if len(edits) == 1:
                    self._gains.append((screened.gained, edits[0]))
                if not screened.passes:
                    continue
                if len(edits) == 1:
                    self._passing.add(edits[0])
                size, likely = sum(map(size_of, edits)), all(e.likely for e in edits)
                path = _path_of_screened(screened) or self._path_of_unchanged_lines(edits)
                number = start + screened.number
                rarity = sum(map(rarity_of, edits))
                evidence = not screened.agrees, not likely, rarity
                candidates.append(_ScreenedEdit(_PATHS.index(path), size, *evidence, number, edits))
        return candidates

    def _examine_candidates(
        self, candidates: Sequence[_ScreenedEdit], counts: Counter[str]
    ) -> bool:
        """Put the last questions to candidates, the best first, and add to ``counts`` how many got them."""
        # Edits on the same path first, then the smallest, then those that agree with other code, then likely rules.
        for rank, *_, edits in sorted(candidates, key=lambda c: c[:-1]):
            # Beside an accepted edit, one that may only avoid the mistake adds nothing.
            if rank and self._accepted:
                break
            # The best one passed all samples, and gets its last questions even beyond the effort.
            has_spent_effort = self._effort.over and counts["candidates"] > 0
            is_over = counts["searched"] == MAX_EXAMINED or has_spent_effort
            # An edit that passed all samples and gets no last questions counts as left out.
            if is_over or counts["candidates"] == MAX_CANDIDATES:
                self._cut = True
                break
            answer = self._examine_edited_version(edits)
            self._effort.spend(calls=answer.work)
            counts["candidates"] += 1
            counts["searched"] += answer.new_search
            # The first of a group alone: its others are tried once.
            self._refused_groups |= {e.group for e in edits if e.group and not e.alike}
            if answer.grade is not None:
                edits, answer = self._replace_pair_by_its_part(edits, answer)
            if answer.grade is not None:
                self._accepted.append((_PATHS[rank], edits, answer))
                if not rank:
                    return True
        return False

    def _replace_pair_by_its_part(
        self, edits: Several, answer: EditAnswer
    ) -> tuple[Several, EditAnswer]:
        """Return the one of two edits that is right alone, if there is one; else both with their answer.

        A part that passed all samples may have had no last questions, or they broke off. In the second case no call
        shows what the other part is for, and neither is accepted.
        """
        for edit in edits if len(edits) > 1 else ():
            if edit in self._passing:
                alone = self._examine_edited_version((edit,))
                self._effort.spend(calls=alone.work)
                if alone.grade is not None or alone.broke_off:
                    return (edit,), alone
        return edits, answer

    def _spend_work_of_trials(self) -> None:
        """Count the work of trials since the last time."""
        work = self._trials.work_done()
        self._effort.spend(calls=work - self._work)
        self._work = work

    def _path_of_unchanged_lines(self, edits: Several) -> ExecutionPath:
        """Return "beyond" for edits with a whole number larger than every length that was tried, else "same".

        As a limit of lengths it may only move the mistake to calls that nobody has made.
        """
        for edit in edits:
            added = {*_WHOLE_NUMBER.findall(edit.new)} - {*_WHOLE_NUMBER.findall(edit.old)}
            # A number of the specification is no limit of lengths.
            if any(self._longest < int(n) not in self._numbers for n in added):
                return "beyond"
        return "same"

    def _others_of_refused(self, edits: Sequence[Edit]) -> list[Several]:
        """Return the other edits of the groups of those that passed all samples and were refused."""
        groups, self._refused_groups = self._refused_groups, set()
        return [(e,) for e in edits if e.group in groups and e.alike]

    def _examine_edited_version(self, edits: Several) -> EditAnswer:
        edited = self._trials.version(edits)
        if edited is None:
            return EditAnswer(None)
        block = self._opened.longest_block
        # More tokens than two blocks, so that full and partial blocks both occur.
        most_tokens = max(_TOKENS_OF_KERNEL, 2 * block + _BEYOND_BLOCKS) if block else 0
        work_done = self._trials.work_done
        answer = examine(self._session, edited, self._refuting, most_tokens, work_done)
        # Its work is that of the answer, which is spent as a whole.
        self._work = work_done()
        return answer

    def _add_refuting_samples(self) -> None:
        """Let trials ask calls as large as the smallest ones that refuted single edits, with numbers drawn anew.

        Most wrong calls may need one edit alone, as small ones do if a mistake is in large blocks.
        """
        session, rng = self._session, np.random.default_rng((self._session.seed, _REFUTING_SEED))
        small = sorted((c for c in self._refuting if c.size <= _MAX_REFUTING), key=lambda c: c.size)

        def run(case: Case) -> CaseResult:
            return session.run_case(session.without_compiling(case))

        judged = [run(case) for case in small[:_MOST_REFUTING]]
        for refuted in judged[:]:
            # The call itself may have equal numbers, which one more edit leaves as they are.
            alike = session.subject.source.resized(
                session, session.subject.source.sizes(refuted), rng
            )
            cases = [Case(refuted.case.group, "drawn anew", x) for x in islice(alike, 1)]
            judged += [run(case) for case in cases if session.admits(case)]
        samples = [_sample_of(session, r) for r in judged if r.finding in _FINDINGS and r.parts]
        if samples:
            self._trials.add(samples)
            self._sampled += len(samples)

    def _rank_partial_repairs(self) -> list[Edit]:
        """Return the edits that repair most of the wrong calls, best first."""
        # Of tiers 2 and 3 only those that repaired a part of the first call are compared in further ones.
        gained = sorted(
            (g for g in self._gains if g[1].tier > 1), key=lambda g: (-g[0], size_of(g[1]))
        )
        edits = [*self._edits[1], *(edit for _, edit in gained[:_MOST_COMPARED])]
        scores: list[float] = []
        for start in range(0, len(edits), _CHUNK):
            if self._effort.over:
                self._cut = True
                break
            scores += self._trials.score(edits[start : start + _CHUNK])
            self._spend_work_of_trials()
        # Rounded, so that among edits that repair about as much the smallest comes first.
        order = sorted(range(len(scores)), key=lambda k: (-round(scores[k], 1), size_of(edits[k])))
        return [edits[k] for k in order if scores[k] > _PATIENCE][: 2 * _BEAM]

    def _pair_up_edits(
        self, best: Sequence[Edit], parts: Sequence[tuple[Edit, int]]
    ) -> list[Several]:
        """Return pairs of edits, those of an edit that repairs some calls whole before all others."""
        # By the edits of a pair in any order, so that none is tried twice.
        pairs = {frozenset(pair): pair for pair in self._pair_up_halves(parts)}
        most = len(pairs) + MAX_PAIRS
        first = self._edits[1]
        # A partial repair with each other edit comes before pairs of one line.
        for one in best[:_BEAM]:
            for other in first:
                if _are_edits_disjoint(one, other):
                    pairs.setdefault(frozenset((one, other)), (one, other))
        # Two mistakes in one line are likelier than in two.
        of_line: dict[int, list[Edit]] = {}
        for edit in first:
            of_line.setdefault(edit.line, []).append(edit)
        for one, other in chain.from_iterable(combinations(x, 2) for x in of_line.values()):
            if len(pairs) > most:
                break
            if _are_edits_disjoint(one, other):
                pairs.setdefault(frozenset((one, other)), (one, other))
        self._possible_pairs += len(pairs)
        self._cut |= len(pairs) > most
        return list(pairs.values())[:most]

    def _pair_up_halves(self, parts: Sequence[tuple[Edit, int]]) -> list[Several]:
        """Return pairs of an edit that repairs enough calls whole with each of tier 1, and some of tier 2."""
        enough = [(e, n) for e, n in parts if n * _SHARE_OF_HALVES >= self._sampled]
        # Of edits at one place that repair equally many calls, most are the same number in other words.
        # Reversed, so that of one place the edit with the highest rank is the last one, which stays.
        apart = {(-repaired, _begin_of(edit)): edit for edit, repaired in reversed(enough)}
        halves = [apart[key] for key in sorted(apart)][:_HALVES]
        # The insertions of each rule in turn, since not all of them are tried.
        others = [*self._edits[1], *in_turn(self._edits.get(2, ()))]
        pairs: dict[frozenset[Edit], Several] = {}
        for other in others:
            for half in halves:
                if _are_edits_disjoint(half, other):
                    pairs.setdefault(frozenset((half, other)), (half, other))
        left_out = max(len(pairs) - MAX_PAIRS_OF_HALVES, 0)
        self._possible_pairs += left_out
        self._cut |= left_out > 0
        return list(pairs.values())[:MAX_PAIRS_OF_HALVES]

    def _choose_repairs_of_whole_calls(self, best: Sequence[Edit]) -> list[tuple[Edit, int]]:
        """Return the edits that repair some wrong calls and spoil no right one, with the number of these calls.

        One that repairs all of them was refused by the last questions, and would claim too much.
        """
        counted = [(edit, *self._trials.repaired((edit,))) for edit in best[:_BEAM]]
        return [(e, n) for e, n, spoiled in counted if 0 < n < self._sampled and not spoiled]

    def _report_partial_repair(self, edit: Edit, repaired: int) -> Repairs:
        """Return an edit that repairs some wrong calls, and says how many."""
        part = self._make_repair_of_edits("same", (edit,), EditAnswer(Grade.SAMPLED))
        part = replace(part, repaired=repaired, wrong=self._sampled)
        return Repairs((part,), self._describe_failed_search())

    def _collect_accepted_repairs(self) -> Repairs:
        ordered = sorted(self._accepted, key=_order_of_accepted)
        return Repairs(
            tuple(self._make_repair_of_edits(*a) for a in ordered), self._describe_failed_search()
        )

    def _describe_failed_search(self) -> str:
        if self._accepted:
            return ""
        were = "edit of its source was" if self._tried == 1 else "edits of its source were"
        tried = f"{self._tried:,} {were} tried"
        if not self._cut:
            return f"{tried}, one or two at a time, and none makes it right."
        hint = " (raise --budget)" if self._effort.over else ""
        untried = self._list_untried_edits()
        rest = f"Not tried: {untried}" if untried else "Others were not tried to the end"
        return f"{tried}, and none makes it right. {rest}{hint}."

    def _list_untried_edits(self) -> str:
        """Return how many edits of each tier, and pairs of edits, were left out."""
        left_of_tiers = {t: len(es) - self._tried_of[t] for t, es in self._edits.items()}
        parts = [f"{left:,} of tier {tier}" for tier, left in left_of_tiers.items() if left > 0]
        pairs = self._possible_pairs - self._tried_of[_PAIR]
        if pairs > 0:
            parts.append(f"{pairs:,} pair{'s' * (pairs > 1)} of edits")
        return ", ".join(parts)

    def _make_repair_of_edits(
        self, path: ExecutionPath, edits: Several, answer: EditAnswer
    ) -> Repair:
        assert answer.grade is not None
        replacements = tuple(r for e in edits for r in e.replacements)
        possible = sum(map(len, self._edits.values())) + self._possible_pairs
        in_order = sorted(edits, key=_begin_of)
        parts = tuple(RepairPart(e.line, e.old, e.new, e.times) for e in in_order)
        # An inserted line has no old text, a removal no new one.
        old = "; ".join(part.old for part in parts if part.old)
        new = "; ".join(part.new for part in parts if part.new)
        return Repair(
            self._opened.file,
            replacements,
            old,
            new,
            " + ".join(e.rule for e in edits),
            path,
            answer.grade,
            answer.epsilon,
            self._tried,
            possible,
            self._wrong,
            self._wrong,
            self._opened.digest,
            parts if len(parts) > 1 else (),
            1 if len(parts) > 1 else parts[0].places,
            _PAIR if len(parts) > 1 else edits[0].tier,
        )


def _path_of_screened(screened: Screened) -> ExecutionPath | None:
    """Return the path of an edit if it changes what the code does elsewhere, else None."""
    if screened.strays:
        return "other"
    return "wider" if screened.widens else None


def _order_of_accepted(accepted: tuple[ExecutionPath, Several, EditAnswer]) -> tuple[int, float]:
    """Return the order in a report: edits by which the code takes another path come last.

    A default value that turns a branch on is there to choose the path, so it comes by its size.
    """
    path, edits, _ = accepted
    is_switch = all(e.rule == SWITCH for e in edits)
    return 0 if is_switch else _PATHS.index(path), sum(map(size_of, edits))


def _longest_of(session: Session) -> float:
    """Return the largest length of an axis in all calls of the function, or ∞ if there was none."""
    inputs = (r.case.inputs for r in getattr(session, "records", ()))
    axes = {n for arrays in inputs for a in arrays.values() for n in np.shape(a)}
    return max({*axes, *getattr(session, "lengths", ())}, default=inf)


def _begin_of(edit: Edit) -> tuple[int, int]:
    """Return the line and the column where an edit begins."""
    first = min(edit.replacements)
    return first.line, first.column


def _are_edits_disjoint(one: Edit, other: Edit) -> bool:
    """Return whether two edits change different parts of one function."""
    if one.place != other.place or one is other:
        return False
    return not overlapping((*one.replacements, *other.replacements))
