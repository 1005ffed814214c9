"""The ways of searching for a mistake, in their order, of an attention alone and of a definition that may contain one.

What some know of the function they read off calls that are made for it: which keys are counted, how far below the
largest score keys are lost. A mistake that is found so is one of the attention; ``of_attention`` makes it one of what
is verified.

``definitions.definition_causes`` says what mistakes there are, and how they are computed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf

from symattn.arrays.formats import HALF
from symattn.attention.spec import Attention
from symattn.bounds import storing
from symattn.bounds.case_result import CaseResult
from symattn.bounds.mistake import Mistake
from symattn.verification.diagnosis import (
    effective_weights,
    finite_infinities,
    screening,
    skipped_keys,
)
from symattn.verification.diagnosis.causes import Search, Way
from symattn.verification.rules import forbidding, narrow_steps, softmaxes, tiling
from symattn.verification.rules.known_mistakes import yield_mistakes_of_entries

# Candidates beyond would take balls or fresh calls long.
MAX_MISTAKES_JUDGED = 8
#: Mistakes by rule that leave least of the error, and right cases that must not contradict them.
MAX_LIKELY, MAX_RIGHT_CASES = 24, 60
# Cases by which mistakes with the same numbers are recognised.
MAX_CASES_COMPARED = 10
#: Dim mistakes that are tried at some sizes only.
MAX_CONDITIONED = 3
#: Right cases in which balls must not contradict a mistake that floats judge.
MAX_RIGHT_IN_FLOATS = 10
#: Widths of tiles below the least number of keys with a fault.
MAX_TILE_WIDTHS = 32


@dataclass
class AttentionSearch(Search):
    """A search among the mistakes of an attention, and among others that a subject adds.

    ``conditional`` are dim mistakes that are made at some sizes only.
    """

    conditional: list[Mistake] = field(default_factory=list)

    @abstractmethod
    def of_attention(self, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
        """Yield these mistakes of the attention as mistakes of what is verified, as far as they are any."""

    @property
    @abstractmethod
    def searched(self) -> tuple[Attention, frozenset[str]] | None:
        """The attention whose steps are changed, and the names of its inputs; None if there is none."""

    # -- what else there is to try, besides ``every`` ------------------------------------------------------------------
    def others(self) -> Sequence[Mistake]:
        """Return further known mistakes, which are tried if none of ``every`` is it."""
        return ()

    def of_arrays(self) -> Iterable[Mistake]:
        """Yield changes of the entries of what is passed to the function, and returned by it."""
        return ()

    def rare(self) -> Iterable[Mistake]:
        """Yield known mistakes that are many, and seldom it."""
        return ()

    def narrow_steps(self, several: bool) -> Iterator[Mistake]:
        """Yield the mistakes that a step outside of an attention is computed in a narrower format: one number in it,
        or ``several``."""
        yield from ()

    def counted_keys(self) -> Iterator[Mistake]:
        """Yield the mistake of wrongly counted keys, of what has other weights than an attention."""
        yield from ()

    def further(self) -> list[Mistake]:
        """See ``Search``: these, which are many."""
        return [*self.of_arrays(), *self.others()]

    @abstractmethod
    def by_operations(self) -> Iterable[Mistake]:
        """Yield likely replacements of one operation of the definition."""

    def numbers_in_operations(self) -> Iterable[Mistake]:
        """Yield the mistake of a number in one array of the definition, which the outputs show."""
        return ()

    # -- the order -----------------------------------------------------------------------------------------------------
    def ways(self) -> Sequence[Way]:
        """See ``Search``: known mistakes first; last those made at some sizes, in some parts, and two at once."""
        by_rule = (
            self._by_rule,
            self._yield_storage_mistake,
            self._by_narrow_number,
            self._by_narrow_numbers,
            self.with_numbers,
            self._in_floats,
            self._by_arrays,
            self.by_operations,
            self.numbers_in_operations,
        )
        sometimes = (
            self.sometimes,
            self._dim_sometimes,
            self._sometimes_in_floats,
            self._by_weights_of_lengths,
        )
        rest = (*by_rule, *sometimes, self._by_rare, self.in_parts, self.pairs)
        return *self._known_ways, self._further_known, *rest

    @property
    def _known_ways(self) -> Sequence[Way]:
        return (
            self._skipped_keys,
            self._finite_infinities,
            self.known,
            self.counted_keys,
            self._by_weights,
            self.less_clear,
        )

    def ways_beside_edit(self) -> Sequence[Way]:
        """See ``Search``: known mistakes alone."""
        return *self._known_ways, self._further_known

    @property
    def decided(self) -> Sequence[Way]:
        """See ``Search``: besides mistakes with the same residues, those that only floats or weights show."""
        return (
            self.exactly,
            self._skipped_keys,
            self._finite_infinities,
            self._by_weights,
            self._by_weights_of_lengths,
            self._by_rule,
            self._yield_storage_mistake,
            self._by_narrow_number,
            self._by_narrow_numbers,
            self._sometimes_in_floats,
        )

    # -- known ones ----------------------------------------------------------------------------------------------------
    def _further_known(self) -> list[Mistake]:
        return self.select_likely(self.others())

    def _by_arrays(self) -> list[Mistake]:
        return self.select_likely(self.of_arrays())

    def _by_rare(self) -> list[Mistake]:
        return self.select_likely(self.rare())

    def select_likely(self, mistakes: Iterable[Mistake]) -> list[Mistake]:
        """Return the mistakes that fit clearly in float64; if none does, those that leave little of the error."""
        self.begin()
        survivors = self.survivors([*mistakes])
        # Clear mistakes first; without any, as in half formats, mistakes that leave little.
        clear = [m for m in survivors if self.tells(m) and not self._leaves_more_than_all(m)]
        likely = clear or screening.best(self, self.wrong, survivors)
        self.begin()  # the effort spent on the many is not charged to the few that are left
        return likely

    def _leaves_more_than_all(self, mistake: Mistake) -> bool:
        """Return whether a function is farther from the mistake than from the definition: one case may fit by chance,
        such as a row near 0, which a norm magnifies."""
        # Infinity says that nothing was compared, as where shapes differ.
        return 1 < screening.left(self, self.wrong, mistake) < inf

    def _dim_sometimes(self) -> Iterator[Mistake]:
        """Yield dim mistakes made at some sizes only, if they account for nearly all of the error.

        A loss beyond some length shows in few cases, and in half formats in none of them clearly.
        """
        if not self.session.subject.flow.has_rough_bounds:
            return
        self.begin()
        dim = [
            m
            for m in self.possible
            if self._is_allowed_by_screening(m, self.wrong) and not self.tells(m)
        ]
        firsts = islice(
            self._yield_distinct_mistakes(screening.best(self, self.wrong, dim)), MAX_CONDITIONED
        )
        for mistake in firsts:
            for result in self.conditioned(mistake):
                self.conditional.append(result)
                yield result

    def _sometimes_in_floats(self) -> list[Mistake]:
        """Return those of these mistakes that balls do not decide, to be judged by the rest of the error.

        In half formats, the bound for a mistake allows any weights if scores lie far apart.
        """
        if self.session.precision.input.name not in HALF:
            return []
        cases = [*self.wrong, *self.right[:MAX_RIGHT_IN_FLOATS]]
        open_ = (
            m for m in self.conditional if all(self.explains(r, m) is not False for r in cases)
        )
        return [replace(m, in_floats=True) for m in open_]

    def _in_floats(self) -> Iterator[Mistake]:
        """Yield mistakes that float64 shows in most cases and contradicts in none, if no bound is proved for them."""
        for mistake in self.clear:
            shown = sum(self.screened(judged, mistake) is True for judged in self.wrong)
            if not self.is_bounded(mistake.way) and 2 * shown > len(self.wrong):
                yield replace(mistake, in_floats=True)

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
        """Yield a mistake of a finite number in the place of −∞, if inputs show scores that lie below the number."""
        numbers = finite_infinities.mistakes(self.session, self.wrong)
        # In a row without any key all scores are the number, so that this row shows nothing of it.
        yield from self._first_shown(numbers, forbidding.yield_mistakes_of_empty_rows())

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

    def _first_shown(
        self, mistakes: Iterable[Mistake], plainer: Iterable[Mistake] = ()
    ) -> Iterator[Mistake]:
        """Yield the first likely mistake that gives other numbers than the ``plainer`` ones give."""
        cases = (*self.wrong, *self.right[:MAX_RIGHT_CASES])
        likely = (m for m in self.of_attention(mistakes) if self._leaves_little(m, cases))
        plainer = [*self.of_attention(plainer)]
        yield from islice((m for m in likely if not self._repeats_any(m, plainer)), 1)

    def _repeats_any(self, mistake: Mistake, others: Sequence[Mistake]) -> bool:
        """Return whether a mistake gives the numbers of one of the others in all wrong cases."""
        told_apart = ([*self.distinct([m, mistake], self.wrong, every=True)] for m in others)
        return any(len(pair) < 2 for pair in told_apart)

    def _leaves_little(self, mistake: Mistake, cases: Sequence[CaseResult]) -> bool:
        explains, most = self._is_allowed_by_screening(mistake, cases), screening.LITTLE
        return explains and screening.left(self, self.wrong, mistake, most) <= most

    # -- by rule -------------------------------------------------------------------------------------------------------
    def entries_of_attention(self) -> Iterator[Mistake]:
        """Yield the mistakes that change the entries of any array of the attention."""
        if self.searched is not None:
            yield from self.of_attention(yield_mistakes_of_entries(*self.searched))

    def _by_rule(self) -> Iterator[Mistake]:
        """Yield likely changes of entries of an array, and known mistakes that balls cannot show."""
        dim = (
            (*self._open_to_balls(), *self.dim)
            if self.session.subject.flow.has_rough_bounds
            else ()
        )
        return self.likely_by_rule([*self.entries_of_attention()], dim)

    def _open_to_balls(self) -> Iterator[Mistake]:
        """Yield clear mistakes that account for nearly all of the error, and that balls do not decide: in half formats
        the bound of a mistake on tiny numbers may allow any."""
        few = [*self.wrong[:MAX_CASES_COMPARED], *self.right[:MAX_RIGHT_IN_FLOATS]]
        for mistake in screening.best(self, self.wrong, self.clear):
            if all(self.explains(judged, mistake) is not False for judged in few):
                yield mistake

    def widths_of_tiles(self) -> Iterator[Mistake]:
        """Yield the mistakes of tiles of other widths than the usual ones, as the lengths leave possible."""
        # Only a softmax has maxima of tiles.
        if self.searched is None or not self.searched[0].is_softmax:
            return
        spec = self.searched[0]
        wrong, right = ([self._count_keys(r) for r in of] for of in (self.wrong, self.right))
        # A tile at least as wide as all keys changes nothing.
        others = (t for t in range(min(wrong) - 1, 1, -1) if t not in tiling.WIDTHS)
        # kernels use multiples of 8
        widths = sorted(others, key=lambda t: t % 8 > 0)[:MAX_TILE_WIDTHS]
        yield from self.of_attention(tiling.mistakes(spec, widths) if widths else ())
        yield from self.of_attention(
            kind.of(t) for kind in softmaxes.BY_WIDTH for t in kind.open(wrong, right)
        )

    def _count_keys(self, judged: CaseResult) -> int:
        source = self.session.subject.source
        sizes = source.sizes(judged)
        # To measure a case may take a run of the definition.
        sizes = sizes if "n_k" in sizes else source.measured(judged)
        # Tokens that attend to each other have one size; weights of one row have no queries.
        return sizes["n_k"] if "n_k" in sizes else sizes["n_q"]

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

    def _by_narrow_number(self) -> list[Mistake]:
        """Return the mistakes of one number in a narrower format that account for nearly all of the error.

        Those with the same numbers so far may have others for the inputs that confirm them.
        """
        return self._select_narrow_steps(several=False)[:MAX_MISTAKES_JUDGED]

    def _by_narrow_numbers(self) -> list[Mistake]:
        """Return the same of several numbers in one step, without those that have the same numbers."""
        best = self._select_narrow_steps(several=True)
        return [*islice(self._yield_distinct_mistakes(best), MAX_MISTAKES_JUDGED)]

    def _select_narrow_steps(self, several: bool) -> list[Mistake]:
        of_norms: Iterable[Mistake] = ()
        if self.searched is not None:
            of_norms = narrow_steps.of_attention(*self.searched, self.session.precision, several)
        narrow = (*self.of_attention(of_norms), *self.narrow_steps(several))
        return screening.best(self, self.wrong, narrow)

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
