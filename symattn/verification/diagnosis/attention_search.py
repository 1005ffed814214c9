"""The ways of searching for a mistake that every attention has, whether it is verified alone or inside a definition.

What they know of the function they read off calls that are made for it: which keys are counted, how far below the
largest score keys are lost. A mistake that is found so is one of the attention; ``of_attention`` makes it one of what
is verified.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from symattn.attention.spec import Attention
from symattn.bounds import storing
from symattn.bounds.case_result import CaseResult
from symattn.bounds.mistake import Mistake
from symattn.verification import rules
from symattn.verification.diagnosis import (
    effective_weights,
    finite_infinities,
    screening,
    skipped_keys,
)
from symattn.verification.diagnosis.causes import Search
from symattn.verification.rules import softmaxes, tiling

# Candidates beyond would take balls or fresh calls long.
MAX_MISTAKES_JUDGED = 8
#: Mistakes by rule that leave least of the error, and right cases that must not contradict them.
MAX_LIKELY, MAX_RIGHT_CASES = 24, 60
# Cases by which mistakes with the same numbers are recognised.
MAX_CASES_COMPARED = 10
#: Widths of tiles below the least number of keys with a fault.
MAX_TILE_WIDTHS = 32


class AttentionSearch(Search):
    """A search among the mistakes of an attention, and among others that a subject adds."""

    @abstractmethod
    def of_attention(self, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
        """Yield these mistakes of the attention as mistakes of what is verified, as far as they are any."""

    @property
    @abstractmethod
    def searched(self) -> tuple[Attention, frozenset[str]] | None:
        """The attention whose steps are changed, and the names of its inputs; None if there is none."""

    # -- what calls made for it show -----------------------------------------------------------------------------------
    def _skipped_keys(self) -> Iterator[Mistake]:
        """Yield the mistake of skipped keys that floats confirm, if inputs that are made for it are wrong."""
        # Right cases of this group show where no keys are lost, whatever their place in the list.
        made_for_it = (
            r for r in self.right[MAX_RIGHT_CASES:] if r.case.group == skipped_keys.GROUP
        )
        cases = (*self.wrong, *self.right[:MAX_RIGHT_CASES], *made_for_it)
        likely = self.of_attention(skipped_keys.mistakes(self.session, self.wrong))
        shown = [m for m in likely if self._leaves_little(m, cases)]
        mistake = skipped_keys.plain(shown)
        yield from () if mistake is None else (mistake,)

    def _finite_infinities(self) -> Iterator[Mistake]:
        """Yield a mistake of a finite number in the place of −∞, if inputs that are made for it are wrong."""
        yield from self._first_shown(finite_infinities.mistakes(self.session, self.wrong))

    def _by_weights(self) -> Iterator[Mistake]:
        """Yield a mistake that the function's own weights show: wrongly counted keys, or other forbidden scores."""
        yield from self._first_shown(
            effective_weights.mistakes(self.session, self.wrong, of_lengths=False)
        )

    def _by_weights_of_lengths(self) -> Iterator[Mistake]:
        """Yield the same if the keys depend on their number."""
        yield from self._first_shown(
            effective_weights.mistakes(self.session, self.wrong, of_lengths=True)
        )

    def _first_shown(self, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
        cases = (*self.wrong, *self.right[:MAX_RIGHT_CASES])
        yield from islice(
            (m for m in self.of_attention(mistakes) if self._leaves_little(m, cases)), 1
        )

    def _leaves_little(self, mistake: Mistake, cases: Sequence[CaseResult]) -> bool:
        explains = self._is_allowed_by_screening(mistake, cases)
        return explains and screening.left(self, self.wrong, mistake) <= screening.LITTLE

    # -- by rule -------------------------------------------------------------------------------------------------------
    def entries_of_attention(self) -> Iterator[Mistake]:
        """Yield the mistakes that change the entries of any array of the attention."""
        if self.searched is not None:
            yield from self.of_attention(rules.of_entries(*self.searched))

    def widths_of_tiles(self) -> Iterator[Mistake]:
        """Yield the mistakes of tiles of other widths than the usual ones, as the lengths leave possible."""
        # Only a softmax has maxima of tiles.
        if self.searched is None or not self.searched[0].is_softmax:
            return
        spec, measured = self.searched[0], self.session.subject.measured
        wrong, right = ([measured(r)["n_k"] for r in of] for of in (self.wrong, self.right))
        # A tile at least as wide as all keys changes nothing.
        others = (t for t in range(min(wrong) - 1, 1, -1) if t not in tiling.WIDTHS)
        # kernels use multiples of 8
        widths = sorted(others, key=lambda t: t % 8 > 0)[:MAX_TILE_WIDTHS]
        yield from self.of_attention(tiling.mistakes(spec, widths) if widths else ())
        yield from self.of_attention(
            kind.of(t) for kind in softmaxes.BY_WIDTH for t in kind.open(wrong, right)
        )

    def _yield_storage_mistake(self) -> Iterator[Mistake]:
        """Yield the mistake of an array stored in a narrower format, or with few digits after the point, if it accounts
        for nearly all of the error."""
        if self.searched is None:
            return
        spec, names = self.searched
        few_digits = storing.singles(spec, names, storing.MULTIPLES)
        stored = self.of_attention((*storing.mistakes(spec, self.session.precision), *few_digits))
        # Distinct ones alone, since several formats may give the same numbers.
        yield from islice(
            self._yield_distinct_mistakes(screening.best(self, self.wrong, stored)), 1
        )

    def likely_by_rule(
        self, mistakes: list[Mistake], dim: Sequence[Mistake] = ()
    ) -> Iterator[Mistake]:
        """Yield mistakes that account for nearly all of the error; of those with the same numbers, the first."""
        self.begin()
        survivors = self.survivors(mistakes)
        likely = screening.best(self, self.wrong, (*dim, *survivors))
        beside = self.right[:MAX_RIGHT_CASES]
        shown = (
            # Right cases must not show the mistake, in their bound or by what they leave.
            m
            for m in likely[:MAX_LIKELY]
            if not any(self.contradicts(judged, m) for judged in beside)
            and not screening.contradicts_right_cases(self, beside, m)
        )
        yield from islice(self._yield_distinct_mistakes(shown), MAX_MISTAKES_JUDGED)

    def _yield_distinct_mistakes(self, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
        return self.distinct(mistakes, self.wrong[:MAX_CASES_COMPARED], every=True)
