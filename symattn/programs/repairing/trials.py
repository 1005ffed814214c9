"""Trials of edits in the function's own process: which edits make it pass the cases that were judged.

The cheapest question comes first: one wrong case, on which most edits fail at once, then further wrong and right ones,
then all of them. What passes is only a candidate; ``oracle`` asks the last questions.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.bounds.called_target import Argument, Inputs, Memory, Outcome
from symattn.bounds.case_result import are_within, holds
from symattn.programs import layouts
from symattn.programs.calls import captured
from symattn.programs.interpreting import refusing_open_loops
from symattn.programs.names import Function
from symattn.programs.repairing.agreement import agrees_with_other_code
from symattn.programs.repairing.edit_messages import write_edits
from symattn.programs.repairing.edited_kernels import within_memory
from symattn.programs.repairing.edits import Edit, edited_lines, enumerate_edits, origin_of_lines
from symattn.programs.repairing.effective_edits import effective_edits
from symattn.programs.repairing.likelihood import by_likelihood
from symattn.programs.repairing.loop_bounds import (
    are_passes_moved,
    calls_that_differ,
    changes_of_counts,
    functions_called_in,
    lines_of_jumps,
    loops_with_other_bounds,
)
from symattn.programs.repairing.observing import Observed, has_no_entries, observe
from symattn.programs.repairing.repeated_passes import count_repeated_loops
from symattn.programs.repairing.source import Sources
from symattn.programs.repairing.stand_in_screening import Outputs, Screening
from symattn.programs.repairing.stores import (
    ExpectedStores,
    RecordedStores,
    SeesStores,
    expected_stores,
)
from symattn.programs.triton_host import without_checks_of_overflow

if TYPE_CHECKING:
    from symattn.programs.calls import Target

# passes of loops that an edited function may take beyond the original on samples
_SPARE_PASSES, _TIMES_PASSES = 10_000, 20
# the same where kernels are interpreted: there a pass takes a millisecond
_SPARE_PASSES_OF_KERNELS, _TIMES_PASSES_OF_KERNELS = 50, 4
MOST_EVALUATED = 3000  # edits of a kernel of one tier that are evaluated
LEAST_GAIN = 0.1  # of the entries of a call: an edit that makes fewer right repairs no part
_EVALUATED_CALLS = 2  # wrong calls that each edit must change
# work is counted in calls: one more for so many elements of the inputs, or passes of loops
_ELEMENTS_OF_CALL, _PASSES_OF_CALL = 8192, 100
# passes in one call of a candidate: the last questions have inputs far larger than any sample
MAX_PASSES_OF_LAST_CALLS = 10_000_000


@dataclass(frozen=True)
class JudgedSample:
    """A judged case with its expected outputs: the exact values in float64 (NaN: not judged), and the allowed errors.

    ``wrong`` says whether the function as it is was wrong here. Errors up to ``slack`` times what is allowed pass,
    since only the first way of computing is compared here.
    """

    inputs: Inputs
    memory: Memory
    near: tuple[np.ndarray, ...]
    allowed: tuple[np.ndarray, ...]
    wrong: bool
    slack: float


@dataclass(frozen=True)
class Samples:
    """The cases to try: ``first`` in this order, then ``all``; ``traced`` are those in which lines are counted."""

    first: tuple[JudgedSample, ...]
    all: tuple[JudgedSample, ...]
    various: tuple[JudgedSample, ...]  # wrong ones, by which partial repairs are compared
    returned: str  # the format in which outputs are due
    loose: frozenset[int] = frozenset()
    changes: frozenset[str] = frozenset()
    numbers: tuple[float, ...] = ()  # of the specification

    @cached_property
    def in_order(self) -> tuple[JudgedSample, ...]:
        """The samples in the order in which an edit is tried on them, each once."""
        # Arrays have no hash, and a sample may be in both lists.
        return tuple({id(sample): sample for sample in (*self.first, *self.all)}.values())

    def with_more(self, samples: Sequence[JudgedSample]) -> Samples:
        """Return these with further wrong samples."""
        return replace(self, all=(*samples, *self.all), various=(*self.various, *samples))


@dataclass(frozen=True)
class Opened:
    """The object of a search: the file, its digest, and the longest block of kernels, 0 without any."""

    file: str
    digest: str
    longest_block: int = 0

    @property
    def has_kernels(self) -> bool:
        """Return whether the function launches kernels that are interpreted."""
        return self.longest_block > 0


@dataclass(frozen=True)
class Screened:
    """An edit, or several at once, by their number in a screened list: what they repair.

    Those that pass all samples say whether they stray from the path of execution, and whether the output of the first
    sample has another format than without them, though that one is due; a single edit also whether a part of the code
    then ``agrees`` with another one. Of others ``gained`` is the share of the entries of the first sample that they
    make right beyond those that are; 1 if they pass it whole.
    """

    number: int
    passes: bool
    strays: bool = False
    gained: float = 1.0
    widens: bool = False
    agrees: bool = False


class Trials:
    """The function of a target, with edits tried on samples."""

    def __init__(self, target: Target, samples: Samples) -> None:
        self._target, self._samples = target, samples
        self.sources = Sources(target.written)
        # calls without edits, by the framework and by stand-ins
        self._traced: _TracedCalls | None = None
        self._traced_by_stand_ins: _TracedCalls | None = None
        self._traced_samples: tuple[JudgedSample, ...] = ()
        self._observed: Observed | None = None
        # what kernels have to store on the first sample
        self._expected: ExpectedStores | None = None
        self._most_passes = MAX_PASSES_OF_LAST_CALLS
        # by the id of a sample: of all where there are kernels, else of those in which the function raises
        self._most_passes_of: dict[int, int] = {}
        # the share of the entries of the first sample that are right without edits
        self._right_at_first = 1.0
        self._work = 0.0
        # of the output of the first sample without edits; empty if none is due
        self._formats: set[str] | None = None
        # the arguments of the first sample, which each edit gets copies of
        self._arguments_of_first: dict[Argument, Any] | None = None
        # the samples in the order for the second of two edits, by the first one
        self._orders: dict[Edit, tuple[JudgedSample, ...]] = {}
        self._screening = Screening(target, self.sources)

    def open(self) -> Opened | None:
        """Observe a wrong call; None if there is no source to edit, or it does not behave as the function does."""
        sources, samples = self.sources, self._samples
        if not sources.editable or not samples.first:
            return None
        original = self._target.version(sources.rebuild())
        # A rebuilt function must be wrong where the original is, and right where it is right.
        for sample in samples.first[:2]:
            if self._is_judged_sample_passed(original, sample) == sample.wrong:
                return None
        self._right_at_first = self._share_of_right_entries(original, samples.first[0])
        # The passes of the code without edits: an edit that needs many more is taken for endless.
        passes = self._count_passes(original, self._samples_of_screen())
        self._most_passes = _TIMES_PASSES * max(passes.values(), default=0) + _SPARE_PASSES
        if sources.has_kernels:
            times, spare = _TIMES_PASSES_OF_KERNELS, _SPARE_PASSES_OF_KERNELS
            self._most_passes_of = {key: times * count + spare for key, count in passes.items()}
            self._expected = self._stores_of_first_sample(original)
        observed = None
        for sample in (
            *sorted(samples.first[:3], key=_rank_for_observing)[::-1],
            *samples.first[3:],
        ):
            runs: list[Outcome] = []

            def run(
                function: Any, sample: JudgedSample = sample, runs: list[Outcome] = runs
            ) -> None:
                sources.passes = 0
                runs.append(self._target.version(function).run(sample.inputs, sample.memory))

            observed = observe(sources, run)
            observed.of_wrong = sample.wrong
            # A call that raises shows only the code before the place where it raises.
            if runs[0].error is None:
                break
        assert observed is not None
        self._observed = observed
        return Opened(sources.file, sources.digest, self._longest_block(observed))

    def add(self, samples: Sequence[JudgedSample]) -> None:
        """Ask further samples as well: calls that edits fail which pass all others."""
        self._samples = self._samples.with_more(samples)
        # What was counted in the samples before is void.
        self._orders, self._traced = {}, None
        # Larger calls need more passes than those before.
        self.sources.most_passes = MAX_PASSES_OF_LAST_CALLS
        passes = self._count_passes(self._target.version(self.sources.rebuild()), samples)
        most = _TIMES_PASSES * max(passes.values(), default=0) + _SPARE_PASSES
        self._most_passes = max(self._most_passes, most)

    def _count_passes(self, original: Target, samples: Sequence[JudgedSample]) -> dict[int, int]:
        """Return how many passes of loops the code without edits makes, by the ``id`` of the sample."""
        result: dict[int, int] = {}
        # Without loops nothing is to be counted: an edit adds none.
        if not self.sources.has_loops:
            return result
        for sample in samples:
            self.sources.passes = 0
            outcome = original.run(sample.inputs, sample.memory)
            result[id(sample)] = self.sources.passes
            # A call that raises ends early: a right one may pass loops far more often. Each edit is called on the first
            # sample, where an endless loop is to cost little.
            if outcome.error is not None and sample is not self._samples.first[0]:
                self._most_passes_of[id(sample)] = MAX_PASSES_OF_LAST_CALLS
        return result

    def edits(self, tier: int) -> list[Edit]:
        """Enumerate the edits of one tier; most mistakes are repaired before the larger tiers are needed."""
        assert self._observed is not None, "opened before edits are enumerated"
        edits = enumerate_edits(self.sources, self._observed, self._samples.numbers, (tier,))
        return self._order_edits_of_kernels(edits) if self.sources.has_kernels else edits

    def edits_as_text(self, tier: int) -> str:
        """Return the edits of one tier as a process sends them."""
        return write_edits(self.edits(tier))

    def _order_edits_of_kernels(self, edits: Sequence[Edit]) -> list[Edit]:
        """Return likely edits first, without those by which a wrong call would compute what it does."""
        functions = self.sources.functions
        kernels = {self.sources.place(key) for key, f in functions.items() if f.is_kernel}
        ordered = by_likelihood(edits, kernels)
        wrong = [sample for sample in self._samples.first if sample.wrong]
        # One of the same sizes would show the same masks and strides.
        others = [s for s in wrong[1:] if _sizes_of(s) != _sizes_of(wrong[0])]
        runs = [self._run_of(sample) for sample in [*wrong[:1], *others][:_EVALUATED_CALLS]]
        with _quiet():
            effective = effective_edits(self.sources, ordered[:MOST_EVALUATED], runs)
        # Of edits that change an expression alike, the others come last.
        effective.sort(key=lambda edit: edit.alike > 0)
        return [*effective, *ordered[MOST_EVALUATED:]]

    def _run_of(self, sample: JudgedSample) -> Callable[[Function], object]:
        def run(function: Function) -> object:
            version = self._target.version(function)
            version.around_call = _around_edited_kernels
            return version.run(sample.inputs, sample.memory)

        return run

    def _samples_of_screen(self) -> tuple[JudgedSample, ...]:
        """Return the samples that a candidate must pass; of kernels, which run slowly, the first ones alone."""
        samples = self._samples
        return samples.first if self.sources.has_kernels else samples.all

    def _longest_block(self, observed: Observed) -> int:
        """Return the longest block in a kernel that was observed, 1 if its numbers are single, 0 without a kernel."""
        if not self.sources.has_kernels:
            return 0
        # One at least: a kernel without blocks works on single numbers.
        lengths = [1]
        for source in self.sources.functions.values():
            for node in ast.walk(source.tree) if source.is_kernel else ():
                kind = observed.kinds.get(getattr(node, "number", -1))
                lengths += kind.shape if kind is not None else ()
        return max(lengths)

    def version(self, edits: Sequence[Edit]) -> Target | None:
        """Return the target with edits of one function for the last questions, or None if they give no code."""
        result = self._make_version_for_samples(edits)
        if result is not None:
            result.begin_call = self._begin_last_call
            if not self.sources.has_kernels:
                result.around_call = one_torch_thread
            result.is_brief = self.sources.has_kernels
            # The grade is that of small sizes: several points at larger ones take most of the time.
            result.refutes_at_large_sizes = not self.sources.has_kernels
            self._begin_last_call()
        return result

    def work_done(self) -> float:
        """Return the work of all trials so far, counted in calls; compiling an edit counts as one.

        Of the last questions the passes of loops count, which alone are not seen where they are asked.
        """
        return self._work + self.sources.passes // _PASSES_OF_CALL

    def _make_version_for_samples(self, edits: Sequence[Edit]) -> Target | None:
        """Return the target with edits of one function for samples, or None if they give no code."""
        self._work += 1
        replacements = [r for edit in edits for r in edit.replacements]
        try:
            edited = self.sources.edited(self.sources.at(edits[0].place), replacements)
        except (SyntaxError, ValueError):
            return None
        version = self._target.version(edited)
        if self.sources.has_kernels:
            version.around_call = _around_edited_kernels
        elif self._runs_open_loops_by_numpy:
            version.around_call = refusing_open_loops
        return version

    @cached_property
    def _runs_open_loops_by_numpy(self) -> bool:
        """Return whether the function without edits makes the first call with no open loop of XLA, if it is of JAX."""
        first = self._samples.first[0]
        if first.memory != "interpreted":
            return False
        original = self._target.version(self.sources.rebuild())
        original.around_call = refusing_open_loops
        return bool(original.attempt(first.inputs, first.memory))

    def _begin_last_call(self) -> None:
        """Count the passes of loops in this call by itself: the last questions ask hundreds."""
        self._work += self.sources.passes // _PASSES_OF_CALL
        self.sources.passes, self.sources.most_passes = 0, MAX_PASSES_OF_LAST_CALLS

    def _begin_call(self, sample: JudgedSample) -> None:
        # The passes are those of the call before, which has ended.
        elements = _count_sample_entries(sample)
        self._work += 1 + elements // _ELEMENTS_OF_CALL + self.sources.passes // _PASSES_OF_CALL
        most = self._most_passes_of.get(id(sample), self._most_passes)
        self.sources.passes, self.sources.most_passes = 0, most

    def screen(self, several: Iterable[tuple[Edit, ...]]) -> list[Screened]:
        """Try edits, or several at once; return those that pass all samples, and single ones that repair a part."""
        result = []
        with _quiet(), one_torch_thread(), _with_whole_tracebacks():
            for number, edits in enumerate(several):
                passes, share = False, self._share_by_stand_ins(edits)
                if share is None or share == 1:
                    version = self._make_version_for_samples(edits)
                    if version is None:
                        continue
                    passes, share = self._pass_samples(version, edits, share)
                gained = share - self._right_at_first
                if passes:
                    assert version is not None
                    strays = self._is_execution_path_changed(edits, version)
                    widens, agrees = self._is_widened(version), self._agrees(edits)
                    result.append(Screened(number, True, strays, widens=widens, agrees=agrees))
                elif len(edits) == 1 and (share == 1 or gained > LEAST_GAIN):
                    result.append(Screened(number, False, gained=1.0 if share == 1 else gained))
        return result

    def score(self, edits: Iterable[Edit]) -> list[float]:
        """Return for each edit how many of the various wrong samples it repairs, by the share of right entries."""
        result = []
        with _quiet(), one_torch_thread(), _with_whole_tracebacks():
            as_it_is = self._score_edited_version(self._target.version(self.sources.rebuild()))
            for edit in edits:
                version = self._make_version_for_samples((edit,))
                result.append(
                    0.0
                    if version is None
                    else self._score_edited_version(version, (edit,)) - as_it_is
                )
        return result

    def repaired(self, edits: Sequence[Edit]) -> tuple[int, int]:
        """Return how many wrong samples pass with edits, and how many right ones fail."""
        version = self._make_version_for_samples(edits)
        if version is None:
            return 0, len(self._samples.all)
        passed = [self._is_passed(version, edits, s) for s in self._samples.all]
        pairs = list(zip(passed, self._samples.all, strict=True))
        return sum(p for p, s in pairs if s.wrong), sum(not p for p, s in pairs if not s.wrong)

    def _expected_of(self, edits: Sequence[Edit]) -> ExpectedStores | None:
        """Return what is expected of the first sample, for edits of kernels; others may change what a launch gets."""
        edited = set()
        for edit in edits:
            source = self.sources.functions[self.sources.at(edit.place)]
            # Numbers of the module stand outside of the kernel.
            if not source.is_kernel or len(source.within(edit.replacements)) < len(
                edit.replacements
            ):
                return None
            edited.add(source.function.__name__)
        return self._expected and self._expected.of(self.sources.users_of(edited))

    def _stores_of_first_sample(self, original: Target) -> ExpectedStores | None:
        """Return what kernels have to store on the first sample; None if that is not what the function returns."""
        sample, recorded = self._samples.first[0], RecordedStores()
        layout = self._target.convention.layout
        original.around_call = partial(_around_edited_kernels, recorded)
        self._begin_call(sample)
        got = original.attempt(sample.inputs)
        if not got:  # it raises, and has not made all its launches
            return None
        return expected_stores(
            recorded,
            original.last_returned,
            lambda places: layouts.from_layout(places, sample.inputs, layout),
            sample.near[0],
            sample.slack * sample.allowed[0],
        )

    # -- one version ---------------------------------------------------------------------------------------------------
    def _pass_samples(
        self, version: Target, edits: Sequence[Edit], share_by_stand_ins: float | None
    ) -> tuple[bool, float]:
        """Return whether edits pass all samples, and which part of the first one's entries is right.

        What stand-ins say of the first sample is None where JAX has to say it, else 1.
        """
        first, *others = self._order_of_samples(edits)
        if share_by_stand_ins is not None:
            # Before JAX is asked at all: most edits that pass one sample fail another one.
            left_to_jax = []
            for sample in others:
                is_passed = self._is_passed_by_stand_ins(edits, sample)
                if is_passed is False:
                    return False, share_by_stand_ins
                if is_passed is None:
                    left_to_jax.append(sample)
            others = left_to_jax
        expected = self._expected_of(edits)
        # The first sample alone, without records of the call: most edits fail here.
        self._begin_call(first)
        if expected is not None:
            version.around_call = partial(_until_wrong_entry, expected)
        share = self._share_of(self._attempt_first(version, first), first)
        if share < 1:
            return False, share
        if expected is not None:
            version.around_call = _around_edited_kernels
        passed = self._is_judged_sample_passed(version, first) and all(
            self._is_judged_sample_passed(version, s) for s in others
        )
        return passed, share

    def _is_passed(self, version: Target, edits: Sequence[Edit], sample: JudgedSample) -> bool:
        """Return whether edits pass a sample, by stand-ins if these can tell."""
        by_stand_ins = self._is_passed_by_stand_ins(edits, sample)
        if by_stand_ins is None:
            return self._is_judged_sample_passed(version, sample)
        return by_stand_ins

    def _is_passed_by_stand_ins(self, edits: Sequence[Edit], sample: JudgedSample) -> bool | None:
        """Return whether edits pass a sample by stand-ins; None if JAX has to say it.

        JAX makes all calls that pass among the last questions. A call that fails is believed if stand-ins give for the
        function without edits what JAX gives.
        """
        outputs = self._attempt_by_stand_ins(edits, sample)
        if outputs is None:
            return None
        if self._share_of(outputs, sample) == 1.0:
            return True
        return False if self._screening.is_apt(sample) else None

    def _attempt_by_stand_ins(self, edits: Sequence[Edit], sample: JudgedSample) -> Outputs | None:
        """Return the outputs for a sample by stand-ins; None if JAX has to make the call."""
        if not self._screening.is_apt(self._samples.in_order[0]) or sample.memory != "interpreted":
            return None
        self._begin_call(sample)
        return self._screening.attempt(edits, sample)

    def _share_by_stand_ins(self, edits: Sequence[Edit]) -> float | None:
        """Return which part of the first sample's entries is right by stand-ins; None if JAX has to say it."""
        first = self._order_of_samples(edits)[0]
        if not self._screening.is_apt(first):
            return None
        before = self._work
        self._work += 1  # as for compiling a version
        self._begin_call(first)
        got = self._screening.attempt(edits, first)
        if got is None:
            # The call that JAX makes counts in its place.
            self._work = before
            return None
        return self._share_of(got, first)

    def _attempt_first(
        self, version: Target, sample: JudgedSample
    ) -> tuple[np.ndarray | None, ...]:
        """Return the outputs of a version for the sample that an edit is called on first."""
        # The second of two edits may begin with another sample.
        if sample is not self._samples.first[0]:
            return version.attempt(sample.inputs, sample.memory)
        if self._arguments_of_first is None:
            self._arguments_of_first = version.make_arguments(sample.inputs)
        return version.attempt(sample.inputs, sample.memory, self._arguments_of_first)

    def _order_of_samples(self, edits: Sequence[Edit]) -> Sequence[JudgedSample]:
        """Return the samples in the order in which edits must pass them.

        The second of two edits is asked first where the first one alone is wrong: elsewhere most would pass.
        """
        if len(edits) == 1 or self.sources.has_kernels:
            return self._samples.first if self.sources.has_kernels else self._samples.in_order
        if edits[0] not in self._orders:
            samples = self._samples.in_order
            alone = self._make_version_for_samples(edits[:1])
            # The first one suffices: most edits are wrong at once.
            wrong = (alone is None or not self._is_judged_sample_passed(alone, s) for s in samples)
            place = next((k for k, is_wrong in enumerate(wrong) if is_wrong), 0)
            self._orders[edits[0]] = (samples[place], *samples[:place], *samples[place + 1 :])
        return self._orders[edits[0]]

    def _call_version_on_sample(self, version: Target, sample: JudgedSample) -> Outcome:
        self._begin_call(sample)
        return version.run(sample.inputs, sample.memory)

    def _is_judged_sample_passed(self, version: Target, sample: JudgedSample) -> bool:
        return self._share_of_right_entries(version, sample) == 1.0

    def _score_edited_version(self, version: Target, edits: Sequence[Edit] = ()) -> float:
        total = 0.0
        for sample in self._samples.various:
            outputs = self._attempt_by_stand_ins(edits, sample)
            # Without the records of a call: the order of partial repairs is no answer.
            if outputs is None:
                self._begin_call(sample)
                outputs = version.attempt(sample.inputs, sample.memory)
            total += self._share_of(outputs, sample)
        return total

    def _share_of_right_entries(self, version: Target, sample: JudgedSample) -> float:
        """Return which part of the entries is right; 0 if the call shows anything else that is wrong."""
        outcome, samples = self._call_version_on_sample(version, sample), self._samples
        if outcome.error is not None or outcome.output is None or outcome.overwrote:
            return 0.0
        # Changes of arguments that the original makes are no fault of an edit.
        if set(outcome.mutated) - samples.changes or not holds(
            outcome.dtype, Format(samples.returned)
        ):
            return 0.0
        return self._share_of((outcome.output, *outcome.others), sample)

    def _share_of(self, got: Sequence[np.ndarray | None], sample: JudgedSample) -> float:
        """Return which part of the entries of the outputs is right, in the worst output."""
        if len(got) < len(sample.near):
            return 0.0
        least = 1.0
        for k, (near, allowed) in enumerate(zip(sample.near, sample.allowed, strict=True)):
            array = got[k]
            # Loose outputs may have more or fewer axes of length 1.
            if array is not None and k in self._samples.loose and array.size == near.size:
                array = array.reshape(near.shape)
            if array is None or array.shape != near.shape:
                return 0.0
            right = are_within(array, near, sample.slack * allowed)
            least = min(least, float(right.mean()) if right.size else 1.0)
            # No further output raises the share of the worst one.
            if not least:
                break
        return least

    def _is_widened(self, version: Target) -> bool:
        """Return whether the output of the first sample has another format than before, where that one is due."""
        if self._formats is None:
            first = self._samples.first[0]
            before = self._call_version_on_sample(
                self._target.version(self.sources.rebuild()), first
            )
            is_due = before.error is None and holds(before.dtype, Format(self._samples.returned))
            self._formats = {before.dtype} if is_due else set()
        after = self._call_version_on_sample(version, self._samples.first[0])
        return bool(self._formats) and after.dtype not in self._formats

    def _agrees(self, edits: Sequence[Edit]) -> bool:
        """Return whether a part of the code agrees with another one after a single edit."""
        source = self.sources.functions[self.sources.at(edits[0].place)]
        within = len(source.within(edits[0].replacements)) == len(edits[0].replacements)
        # Numbers of the module stand outside of all functions.
        if len(edits) > 1 or not within:
            return False
        return agrees_with_other_code(source.tree, source.parse(edited_lines(source, edits[0])))

    # -- the path of execution -----------------------------------------------------------------------------------------
    def _is_execution_path_changed(self, edits: Sequence[Edit], version: Target) -> bool:
        """Return whether the code takes another path than before.

        An untouched line runs another number of times, but for passes of loops whose bounds alone are changed, all to
        more or all to fewer; a loop repeats itself; or an array that had entries has none.
        """
        before, now = self._trace_before_and_after(edits, version)
        edited_source = self.sources.functions[self.sources.at(edits[0].place)]
        joined = edits[0]
        if len(edits) > 1:
            replacements = tuple(r for edit in edits for r in edit.replacements)
            joined = Edit("", 4, joined.place, replacements, "", "")
        origin = origin_of_lines(joined, edited_source.lines, edited_source.first)
        lines_after = edited_lines(edited_source, joined)
        edited_tree = edited_source.parse(lines_after)
        if count_repeated_loops(edited_tree) > count_repeated_loops(edited_source.tree):
            return True
        if now.empty_names - before.empty_names:
            return True
        # Each line that ran still runs, and has its number.
        keeps_lines = len(lines_after) == len(edited_source.lines)
        if keeps_lines and before.lines.keys() <= now.lines.keys():
            loops = loops_with_other_bounds(edited_source.tree, edited_tree)
            changes = changes_of_counts(before.lines, now.lines)
            jumps = lines_of_jumps(loops)
            # Passes that one loop leaves to another one may have been wrong in the first one alone.
            if (
                loops
                and not are_passes_moved({n: c for n, c in changes.items() if n not in jumps})
                and changes.keys() <= self._lines_within_passes(loops)
            ):
                return False
        # What the edit itself calls may run more or less often.
        called = calls_that_differ(edited_source.tree, edited_tree)
        own_lines = self._lines_of_functions(called - {edited_source.function.__name__})
        last, shift = (
            edited_source.first + len(edited_source.lines),
            len(lines_after) - len(edited_source.lines),
        )
        for line, count in before.lines.items():
            inside = edited_source.first <= line < last
            # A line of the edit itself may run more or less often.
            if line in own_lines or (inside and line not in origin):
                continue
            # other functions of the file keep their numbers: only one is compiled anew
            if now.lines[origin[line] if inside else line] != count:
                return True
        known = {origin.get(line, 0) for line in before.lines} | set(before.lines)
        touched = _lines_of_edit(joined)
        # A new line outside of the edit means another branch.
        new = [
            n
            for n in now.lines
            if n not in known and n not in touched and edited_source.first <= n < last + shift
        ]
        return bool(new)

    def _trace_before_and_after(
        self, edits: Sequence[Edit], version: Target
    ) -> tuple[_TracedCalls, _TracedCalls]:
        """Return what runs without and with edits, by stand-ins if they can make these calls.

        JAX calls the function of a loop once, whatever its count; stand-ins call it in each pass.
        """
        if self._traced is None:
            original = self._target.version(self.sources.rebuild())
            self._traced_samples = self._choose_traced_samples(original)
            self._traced = self._trace_calls(partial(self._call_version_on_sample, original))
            self._traced_by_stand_ins = self._trace_by_stand_ins(())
        by_stand_ins = None
        if self._traced_by_stand_ins is not None:
            by_stand_ins = self._trace_by_stand_ins(edits)
        if self._traced_by_stand_ins is not None and by_stand_ins is not None:
            return self._traced_by_stand_ins, by_stand_ins
        return self._traced, self._trace_calls(partial(self._call_version_on_sample, version))

    def _trace_by_stand_ins(self, edits: Sequence[Edit]) -> _TracedCalls | None:
        """Return what runs in calls with stand-ins; None if JAX has to make one of them."""
        if not all(map(self._screening.is_apt, self._traced_samples)):
            return None
        is_made: list[bool] = []

        def call(sample: JudgedSample) -> None:
            self._begin_call(sample)
            is_made.append(self._screening.attempt(edits, sample) is not None)

        result = self._trace_calls(call)
        return result if all(is_made) else None

    def _lines_within_passes(self, loops: Sequence[ast.stmt]) -> set[int]:
        """Return the lines of loops, and of the functions of the file that they call, directly or not."""
        lines = {n for loop in loops for n in range(loop.lineno, (loop.end_lineno or 0) + 1)}
        return lines | self._lines_of_functions(
            {f for loop in loops for f in functions_called_in(loop)}
        )

    def _lines_of_functions(self, names: Collection[str]) -> set[int]:
        """Return the lines of functions of the file, and of those that they call."""
        result: set[int] = set()
        functions = {f.function.__name__: f for f in self.sources.functions.values()}
        waiting = [*names]
        while waiting:
            called = functions.pop(waiting.pop(), None)
            if called is not None:
                result |= set(range(called.first, called.first + len(called.lines)))
                waiting += functions_called_in(called.tree)
        return result

    def _choose_traced_samples(self, original: Target) -> tuple[JudgedSample, ...]:
        """Return the calls whose paths are compared: the first one, and the largest of the various ones.

        A call that raises shows the code before the place where it raises alone, and every repair lets it go on: others
        come in its place, and right ones if all wrong ones raise.
        """
        usual = (self._samples.first[0], self._samples.various[-1])
        right = sorted((s for s in self._samples.all if not s.wrong), key=_count_sample_entries)
        ordered = (usual[0], *self._samples.various[::-1], *right[::-1])
        returning = (s for s in ordered if self._call_version_on_sample(original, s).error is None)
        return tuple(islice(returning, len(usual))) or usual

    def _trace_calls(self, call: Callable[[JudgedSample], object]) -> _TracedCalls:
        """Return how often each line of the user's file runs in two cases, and the names of arrays without entries."""
        result = _TracedCalls()
        file = self.sources.file

        def trace(frame: Any, event: str, _: Any) -> Any:
            if frame.f_code.co_filename != file:
                return None
            if event == "line":
                result.lines[frame.f_lineno] += 1
            empty = [name for name, x in frame.f_locals.items() if has_no_entries(x)]
            result.empty_names.update((frame.f_code.co_name, name) for name in empty)
            return trace

        for sample in self._traced_samples:
            with _install_trace_function(trace):
                call(sample)
        return result


@dataclass
class _TracedCalls:
    """How often each line of the user's file runs, and the names of its functions that hold arrays without entries."""

    lines: Counter[int] = field(default_factory=Counter)
    empty_names: set[tuple[str, str]] = field(default_factory=set)


def _lines_of_edit(edit: Edit) -> set[int]:
    """Return the numbers that the lines of an edit have after it."""
    result: set[int] = set()
    shift = 0
    for r in sorted(edit.replacements):
        breaks = r.new.count("\n")
        result |= {r.line + shift + k for k in range(breaks + 1)}
        # Lines that are inserted or removed move those of the next replacement.
        shift += breaks - (r.end_line - r.line)
    return result


@contextmanager
def _quiet() -> Iterator[None]:
    """Let edited code print and warn to nobody."""
    with captured(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let PyTorch use a single thread, if it is loaded.

    With more of them it spends several times as much processor time on small arrays, mostly waiting.
    """
    torch = sys.modules.get("torch")
    # A module of this name may be another one.
    if torch is None or not hasattr(torch, "set_num_threads"):
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _with_whole_tracebacks() -> Iterator[None]:
    """Let JAX, if it is loaded, raise errors as they are.

    It would leave its own frames out of each traceback, which takes longer than the call that raised.
    """
    jax = sys.modules.get("jax")
    name = "jax_traceback_filtering"
    # A module of this name may be another one.
    before = getattr(getattr(jax, "config", None), name, None)
    if jax is None or before is None:
        yield
        return
    jax.config.update(name, "off")
    try:
        yield
    finally:
        jax.config.update(name, before)


@contextmanager
def _around_edited_kernels(seen_by: SeesStores | None = None) -> Iterator[None]:
    """Let edited kernels reach the memory of their tensors alone, and be interpreted without looks for overflow."""
    # An edited kernel may compute addresses beyond its tensors, which could end the process. Overflow in whole numbers
    # is checked by Triton, and takes half of the time of a call.
    with within_memory(seen_by), without_checks_of_overflow():
        yield


@contextmanager
def _until_wrong_entry(expected: ExpectedStores) -> Iterator[None]:
    """Let an edited kernel run until it stores a wrong entry, that program first which was wrong before."""
    with _around_edited_kernels(expected), expected.runs_first():
        yield


@contextmanager
def _install_trace_function(trace: Any) -> Iterator[None]:
    # Restored, since a debugger or a coverage tool may have set one.
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _sizes_of(sample: JudgedSample) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in sample.inputs.items()}


def _rank_for_observing(sample: JudgedSample) -> tuple[int, int, int]:
    """Return what a call is to show: much of the code, by its size, then lengths that differ, then its entries.

    One of two equal lengths would hide the other.
    """
    lengths = {n for array in sample.inputs.values() for n in np.shape(array)}
    entries = _count_sample_entries(sample)
    return entries.bit_length(), len(lengths), entries


def _count_sample_entries(sample: JudgedSample) -> int:
    return sum(int(np.size(a)) for a in sample.inputs.values())
