"""The search among the mistakes of a definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from symattn.bounds import called_target, judge, reference
from symattn.bounds.case_result import UNFIT, CaseResult, Part, largest
from symattn.verification.definitions.definition_mistakes import both, changes, of_arrays, of_outputs
from symattn.verification.definitions.definition_subject import Definition, DefinitionMistake, Numbered
from symattn.verification.definitions.judging import explains
from symattn.verification.diagnosis import outofrange, screening
from symattn.verification.diagnosis.causes import Cause, Outputs, Search, Way, by_size, is_finite, where_made

_FIRST = 4  # wrong cases by which mistakes are put aside
_LEGAL = 8  # times what is legal for the right definition
_PAIRED, _TELLING = 2, 100  # wrong cases by which pairs are sought, of about so many entries
_FIRSTS = 12  # mistakes beside which others are tried
_KEPT = 512  # entries of the inputs of cases whose outputs are kept


@dataclass
class InDefinition(Search[DefinitionMistake]):
    """A search among the definition's own mistakes, and those that it knows besides."""

    judged = (10**6, 30, 0)
    _known_of: dict[Any, Sequence[DefinitionMistake]] = field(default_factory=dict)
    computed: screening.ComputedValues[Outputs] = field(default_factory=screening.ComputedValues)

    @property
    def subject(self) -> Definition:
        """The definition that is verified."""
        assert isinstance(self.session.subject, Definition)
        return self.session.subject

    def every(self) -> list[DefinitionMistake]:
        """The definition's own ones, and those by rule."""
        return [*self.subject.mistakes, *changes(self.subject)]

    def families(self) -> Iterator[Numbered]:
        """Another number in a field, and outputs with a factor."""
        yield from self.subject.numbered
        yield from of_outputs(self.subject)

    def ways(self) -> Sequence[Way[DefinitionMistake]]:
        """Further ones come after those of the definition itself."""
        subject = self.subject
        others, beside, arrays = (
            lambda: self._likely(subject.others), lambda: self._likely(changes(subject)),
            lambda: self._likely(of_arrays(subject)),
        )  # fmt: skip
        return self.known, others, beside, self.with_numbers, arrays, self.sometimes, self.pairs

    def known(self) -> list[DefinitionMistake]:
        """Return the mistakes that are as near to the output as the definition is."""
        return self._likely(self.subject.mistakes)

    def _likely(self, mistakes: Iterable[DefinitionMistake]) -> list[DefinitionMistake]:
        self._begin()
        near = [m for m in mistakes if all(self._nearer(r, m) for r in self.wrong[:_FIRST])]
        return [m for m in near if any(self._applies(r, m) for r in self.wrong) and not self._leaves_most(m)]

    def _applies(self, judged: CaseResult, mistake: DefinitionMistake) -> bool:
        """Return whether the arrays or tiles that the mistake changes exist; see ``judging.explains``."""
        try:
            self._run(judged, mistake)
        except KeyError:
            return False
        except UNFIT:
            pass
        return True

    def screened(self, judged: CaseResult, mistake: DefinitionMistake) -> bool | None:
        """See ``Search``; a run counts for as many as it costs."""
        self.effort.spend(0, self.subject.costs - 1)
        return super().screened(judged, mistake)

    def explains(self, judged: CaseResult, mistake: DefinitionMistake) -> bool | None:
        """See ``judging``."""
        subject, precision, among = self.subject, self.session.precision, self.among
        return where_made(judged, mistake, lambda r, m: explains(subject, precision, r, m, among))

    def in_order(self, cases: list[CaseResult], mistake: DefinitionMistake) -> list[CaseResult]:
        """The smallest one that float64 says is not explained comes first: balls seldom need another one."""
        against = next((r for r in cases if self.answer(r, mistake) is False), None)
        return cases if against is None else [against, *(r for r in cases if r is not against)]

    def combined(self, first: DefinitionMistake, second: DefinitionMistake) -> DefinitionMistake | None:
        """See ``rules.both``."""
        return both(first, second, self._mistakes_of)

    def _mistakes_of(self, spec: Any) -> Sequence[DefinitionMistake]:
        if spec not in self._known_of:
            self._known_of[spec] = self.subject.remade(spec).mistakes if self.subject.remade is not None else ()
        return self._known_of[spec]

    def likely_pairs(self) -> Iterator[tuple[DefinitionMistake, DefinitionMistake]]:
        """First the mistakes nearest to what was seen, each beside all others: a rule applied to what another gave."""
        finite = [r for r in self.wrong if r.ratios is not None and is_finite(r)]
        few = sorted(finite, key=lambda r: abs(r.case.size - _TELLING))[:_PAIRED]
        every = [*self.subject.mistakes, *changes(self.subject), *of_arrays(self.subject), *self.subject.others]
        nearness = {id(m): self._nearness(few, m) for m in every if not self._over}
        self._begin()
        for first in sorted(every, key=lambda m: nearness.get(id(m), (0.0, 0.0)), reverse=True)[:_FIRSTS]:
            for second in every:
                both = self.combined(first, second)
                if both is not None and self._explains(both, few):
                    yield first, second

    def _nearness(self, cases: Sequence[CaseResult], mistake: DefinitionMistake) -> tuple[float, float]:
        """Return how much of the errors the direction of a mistake takes away, and then how little it leaves."""
        self.effort.spend(0, len(cases))
        outputs = ((r, self.outputs(r, mistake)) for r in cases)
        taken = [_taken(self.meant(r, wrong)) for r, wrong in outputs if wrong is not None]
        return round(sum(share for share, _ in taken), 2), -sum(left for _, left in taken)

    def otherwise(self, found: tuple[DefinitionMistake, ...]) -> tuple[Cause[Any], ...]:
        """One cause for each output that is wrong, where that explains them all."""
        run = self.subject.as_run
        if run is not None and not found and (beyond := self._beyond_range(run)):
            return (Cause(tuple(self.wrong), beyond, self),)
        outputs = sorted(frozenset().union(*(r.wrong for r in self.wrong)))
        if self.among is not None or len(outputs) < 2 or any(r.ratios is None for r in self.wrong):
            return ()
        causes = []
        for k in outputs:
            wrong = [r for r in self.wrong if k in r.wrong]
            right = [r for r in self.session.records if r.ratios is not None and k not in r.wrong]
            cause = InDefinition(self.session, wrong, by_size(right), frozenset([k]), computed=self.computed).sure()
            if cause is None:
                return ()
            causes.append(cause)
        return tuple(causes)

    def _beyond_range(self, run: Callable[[called_target.Inputs], reference.Run]) -> tuple[Any, ...]:
        """See ``out_of_range``; where more than one fits, the plainest."""

        def as_attention(judged: CaseResult) -> CaseResult:
            part = judged.parts[0]
            traced = judge.Traced(partial(run, judged.case.inputs), part.expected.allowed)
            return replace(judged, parts=(replace(part, expected=traced),))

        lost = [
            as_attention(r) for r in self.wrong if r.parts[0].got is not None and not np.isfinite(r.parts[0].got).all()
        ]
        seen = [as_attention(r) for r in self.session.records if r.ratios is not None]
        return outofrange.out_of_range(self.session, lost, seen, apart=False)[:1] if lost else ()

    # -- in float64 ----------------------------------------------------------------------------------------------------
    def answer(self, judged: CaseResult, mistake: DefinitionMistake) -> bool | None:
        """Return whether the mistake may explain the output, within several times the legal error."""
        return where_made(judged, mistake, self._answer)

    def _answer(self, judged: CaseResult, mistake: DefinitionMistake) -> bool | None:
        if not mistake.exact or judged.outcome.output is None:
            return None
        wrong = self.outputs(judged, mistake)
        if wrong is None:
            return None
        result = [_compared(part, a) for part, a in self.meant(judged, wrong)]
        return False if False in result else True if True in result else None

    def _leaves_most(self, mistake: DefinitionMistake) -> bool:
        """Return whether the mistake leaves most of an output's error in the smallest cases in which it is made.

        No bound of the mistake's own code explains that.
        """
        exact = (r for r in self.wrong if mistake.exact and r.ratios is not None)
        results = ((r, a) for r in exact if (a := self.outputs(r, mistake)) is not None)
        pairs = (pair for r, wrong in islice(results, _FIRST) for pair in self.meant(r, wrong))
        return any(_compared(part, a) is False and _left_most(part, a) for part, a in pairs)

    def on_residues(self, inputs: dict[str, Any], mistake: DefinitionMistake) -> Sequence[Any]:
        """See ``Search``."""
        return self.subject.run(mistake.run, inputs)

    def outputs(self, judged: CaseResult, mistake: DefinitionMistake | None) -> Outputs:
        """Return the outputs of a mistake, or of the definition; None where there are none. Small ones are stored."""

        def run() -> Outputs:
            try:
                return self._run(judged, mistake)
            except UNFIT:
                return None

        return self.computed.once((judged, mistake), run, judged.case.size <= _KEPT)

    def _run(self, judged: CaseResult, mistake: DefinitionMistake | None) -> list[np.ndarray]:
        run = partial(self.subject.run, mistake.run) if mistake else self.subject.right
        return reference.float64_outputs(run, judged.case.inputs)

    def _nearer(self, judged: CaseResult, mistake: DefinitionMistake) -> bool:
        """Return whether the output, where it is worst, is as near to the mistake in float64 as to the right value.

        A mistake that explains it is nearer, and has its shapes; this is fast, and spares the others a proof that they
        do not.
        """
        if not mistake.exact or judged.outcome.output is None:
            return True
        self.effort.spend(judged.case.size)
        wrong = self.outputs(judged, mistake)
        if wrong is None:
            return True
        if any(part.got is None or part.got.shape != a.shape for part, a in self.meant(judged, wrong)):
            return False
        if judged.ratios is None:
            return True
        of, at = judged.where
        got, near = judged.parts[of].got, judged.parts[of].expected.near
        if got is None or (self.among is not None and of not in self.among):
            return True
        mine, right = wrong[of][at], near[at]
        if not np.isfinite([mine, got[at], right]).all():
            return True
        return bool(abs(got[at] - mine) <= abs(got[at] - right))


def _compared(part: Part, wrong: np.ndarray) -> bool | None:
    """See ``InDefinition.answer``."""
    got, allowed = part.got, part.expected.allowed
    if got is None or got.shape != wrong.shape:
        return False
    if allowed.shape != wrong.shape:
        return True
    with np.errstate(all="ignore"):
        size = max(largest(part.expected.near), 1e-300)
        slack = _LEGAL * (allowed + np.where(np.isfinite(allowed), allowed, 0).max(initial=0.0) / size * np.abs(wrong))
    return screening.compared(got, wrong, part.expected.near, part.ratios, slack)


def _taken(pairs: Sequence[tuple[Part, np.ndarray]]) -> tuple[float, float]:
    """Return the share of the errors of a case that a mistake takes away with a factor, and what it leaves without."""
    if any(part.got is None or not part.got.shape == a.shape == part.expected.near.shape for part, a in pairs):
        return 0.0, 1.0
    near, got, wrong = (
        np.concatenate([np.ravel(a) for a in of])
        for of in zip(*((part.expected.near, part.got, a) for part, a in pairs), strict=True)
    )
    if not np.isfinite([near, wrong]).all() or not (error := got - near).any():
        return 0.0, 1.0
    return screening.taken(wrong - near, error), float(((got - wrong) ** 2).sum() / (error**2).sum())


def _left_most(part: Part, wrong: np.ndarray) -> bool:
    got, right = part.got, part.expected
    if got is None or not got.shape == wrong.shape == right.near.shape:
        return False
    return (screening.share_left(got, wrong, right.near, right.allowed) or 0.0) > screening.LITTLE
