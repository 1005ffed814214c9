"""``sought``: try more until mistakes of the requested sizes would be detected, or report why they would not.

A mistake of size x in a step is its number too large, or too small, by the fraction x. It would be detected

1. by the worst case, on a case that was tried, if the definition with the mistake is off by twice what is allowed
   there: then every legal arithmetic with the mistake exceeds the bound;
2. by its bits, if the function's arithmetic is known: no arithmetic without the mistake gives the bits that it gives
   with the mistake. How many bits change depends on the spread of the scores and not on the number of tokens, so the
   queries grow; and at the chosen width a scale stored in the format, which is legal, is not off by as much;
3. by weighted means, if sums are in float32 and no known arithmetic gives the bits: the nearest one, replayed with
   the mistake, has a mean beyond its limit. A mean of N rows shows mistakes smaller by √N, so tokens and calls grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from symattn.arrays.formats import HALF
from symattn.attention.positions.position_fields import Alibi, Buckets
from symattn.attention.spec import Attention
from symattn.bounds.contracts import Contract, near, stored_scales
from symattn.bounds.mistake import MistakeFamily
from symattn.bounds.reference import Variant
from symattn.bounds.sharp.limits import HYPOTHESIS, Stores
from symattn.document.errors import InputError
from symattn.verification.arithmetic.bits_of_a_call import SIZES, Trial, called, tried, tried_early
from symattn.verification.arithmetic.ranking import APART, FITS, arithmetic, confirmed, pair
from symattn.verification.arithmetic.rungs import MOST, Grown, judge_jointly, rungs
from symattn.verification.arithmetic.suspects import BitSample, Suspect
from symattn.verification.power import least_shown, of_variant
from symattn.verification.report import Fault, Sought
from symattn.verification.rules.families import families

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_SPREAD = 4.0  # factor of the queries, after 1; with larger ones few keys would have any weight
_WIDTHS = (80, 72, 96, 112, 120, 56, 48, 104)  # of queries and keys, no power of 4
SURE = 0.5  # allowed error relative to a mistake's change, below which every arithmetic with it exceeds the bound
_NEAR = 0.9  # share of the bits from which an arithmetic may be the function's own, with a small mistake in it
_DOUBLINGS = 8  # doublings of a size that does not show, to find one that does
# Distinguishes these inputs from others that the same seed draws.
_SEED = 7
_WORDS = {
    "scale": "a scale", "softcap": "a cap", "bias": "a bias", "normalize": "a sum of weights",
}  # fmt: skip


class Aim(NamedTuple):
    """The mistakes of a family to detect, from a relative size on; ``right`` is the number without a mistake."""

    step: str
    share: float
    family: MistakeFamily
    right: float

    @property
    def words(self) -> str:
        """The mistake in words, for a report."""
        return f"{_WORDS[self.step]} that is {in_percent(self.share)} off"

    def variants(self, share: float = 0.0) -> tuple[Variant, Variant]:
        """Return the variants with the number too large, and too small."""
        x = share or self.share
        return self.family.variant(self.right * (1 + x)), self.family.variant(self.right * (1 - x))

    def suspects(self) -> Iterator[Suspect]:
        """Yield the mistakes to search for in bits, which show what roundings may hide from distances."""
        for number in (self.right * (1 + self.share), self.right * (1 - self.share)):
            yield Suspect(self.family.mistake(number, f"{number:.6g}"), self.family, number)


def aims(spec: Attention, power: Mapping[str, float]) -> tuple[Aim, ...]:
    """Return the mistakes that ``power`` names. Raises ``InputError`` for unknown steps and shares outside 0 to 1."""
    result = {"scale": 1.0} if spec.scale != 1 else {}
    result |= {"softcap": float(spec.softcap)} if spec.softcap is not None else {}
    result |= {"bias": 1.0} if spec.bias or isinstance(spec.position, Alibi | Buckets) else {}
    result |= {"normalize": 1.0} if spec.is_softmax else {}
    for step, share in power.items():
        if step not in result:
            raise InputError(
                f"power: {step!r} has no number in this attention; known: {', '.join(result)}"
            )
        # bool is a subclass of int, so that True would pass as the share 1.
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise InputError(
                f"power: {step} must be a number between 0 and 1, such as 0.001, got {share!r}"
            )
    kinds = list(families(spec))
    return tuple(
        Aim(step, float(x), _select_family_of_step(kinds, step), result[step])
        for step, x in power.items()
    )


def _select_family_of_step(kinds: Sequence[MistakeFamily], step: str) -> MistakeFamily:
    """Return the first family of the step: all numbers multiplied or, for a cap, another cap."""
    if step == "normalize":
        return next(f for f in kinds if f.words.startswith("weights are {} times"))
    return next(f for f in kinds if f.step == step)


def look_closer(session: Session) -> None:
    """Read the arithmetic from the bits of a call in half precision, judge its outputs jointly if bits decide nothing,
    and try to detect mistakes of the requested sizes."""
    requested = aims(session.attention, session.power)
    session.progress("bits")
    # A mistake that the early look named is not sought again, were it confirmed or not.
    if session.precision.input.name in HALF and session.trial is None:
        session.trial = tried(session, more=wanted(requested))
    known = session.trial.fault if session.trial else None
    session.beyond = judge_jointly(session, session.trial) if session.trial and not known else None
    if requested and not known and not session.beyond and not session.over:
        session.progress("power")
        # these calls do not count against those of the cases
        session.explaining = session.effort_of(inf)
        session.sought, session.beyond = sought(session, requested)


def look_early(session: Session) -> None:
    """Compare the bits of a call with the few mistakes that have a number, and judge its outputs jointly.

    Of the numbers of a half-precision kernel, no single output shows an error of some percent.
    """
    trial = tried_early(session)
    if trial is None:
        return
    if trial.ranking.wrong is not None:
        session.trial = trial
    if trial.fault is None:
        session.beyond = judge_jointly(session, trial)


def wanted(aims: Sequence[Aim]) -> list[Suspect]:
    """Return the mistakes to detect."""
    return [suspect for aim in aims for suspect in aim.suspects()]


def sought(session: Session, aims: Sequence[Aim]) -> tuple[tuple[Sought, ...], Fault | None]:
    """Return the size at which each mistake would be detected; and a fault, if one shows on the way."""
    search = _Search(session, aims)
    result = [search.of(aim) for aim in aims]
    return tuple(result), search.fault


@dataclass
class _Search:
    session: Session
    aims: Sequence[Aim]
    fault: Fault | None = None
    grown: list[Grown] | None = None
    wide: dict[int, Trial | None] = field(default_factory=dict)

    def of(self, aim: Aim) -> Sought:
        """Return the result for a mistake, by the first method that shows it."""
        # A share that the bound shows needs no further calls, unlike bits and means.
        by_bound = (
            "by the worst-case bound, on a case that was tried"
            if self._least_visible_share(aim) < SURE
            else ""
        )
        how = by_bound or self._by_bits(aim) or self._by_means(aim)
        return Sought(
            aim.step, aim.share, aim.words, bool(how), how or self._explain_undetected_aim(aim)
        )

    # -- by the worst case ---------------------------------------------------------------------------------------------
    def _least_visible_share(self, aim: Aim) -> float:
        """Return the smallest share of the mistake that any case shows, both for too large and too small numbers."""
        mistakes = (
            of_variant(self.session.attention, aim.step, aim.words, v) for v in aim.variants()
        )
        return max(least_shown(m, self.session.tried) for m in mistakes)

    # -- by bits -------------------------------------------------------------------------------------------------------
    def _by_bits(self, aim: Aim) -> str:
        for words, trial in self._yield_trials_for_aim(aim):
            if trial.ranking.best.fits and all(trial.shows(variant) for variant in aim.variants()):
                return f"by the bits of a call{words}"
        return ""

    def _yield_trials_for_aim(self, aim: Aim) -> Iterator[tuple[str, Trial]]:
        """Yield the usual trial; then, made once per width, one with larger queries at the best width for the aim."""
        session = self.session
        if session.trial is None:
            return
        yield "", session.trial
        # Larger queries identify an arithmetic only if the usual trial nearly does.
        if session.trial.ranking.best.share < _NEAR or "q" not in session.trial.sample.inputs:
            return
        width = self._choose_revealing_head_width(aim)
        if width not in self.wide:
            self.wide[width] = self._try_larger_queries(width)
        trial = self.wide[width]
        if trial is not None:
            yield (
                f" with queries {_SPREAD:g} times as large and {trial.sample.inputs['q'].shape[-1]} wide",
                trial,
            )

    def _choose_revealing_head_width(self, aim: Aim) -> int:
        """Return the head width that best separates the stored scale from the mistakes."""
        if aim.step != "scale":
            return SIZES.d_k

        def apart(width: int) -> float:
            c: float = width**-0.5
            legal = [float(x) / c for x in stored_scales(self.session.precision.input, c).values()]
            return min(abs(x - wrong) for x in legal for wrong in (1 + aim.share, 1 - aim.share))

        return max(_WIDTHS, key=apart) if self.session.attention.scale is None else SIZES.d_k

    def _try_larger_queries(self, width: int) -> Trial | None:
        rng = np.random.default_rng((self.session.seed, _SEED, width))
        sizes = replace(SIZES, d_k=width)
        sample = called(self.session, rng, sizes=sizes, spread=_SPREAD)
        if sample is None:
            return None
        result = arithmetic(sample, wanted(self.aims))
        # Fresh inputs must show a mistake once more.
        again = (
            called(self.session, rng, sizes=sizes, spread=_SPREAD)
            if result.wrong is not None
            else None
        )
        trial = Trial(sample, result, again is not None and confirmed(result, again))
        self.fault = self.fault or trial.fault
        return trial

    # -- by means ------------------------------------------------------------------------------------------------------
    def _by_means(self, aim: Aim) -> str:
        for grown in self._yield_growing_calls():
            if grown.shows(self._best_ranked_contract(), aim.variants()):
                return f"by weighted means over {grown.words}, if {HYPOTHESIS}"
        return ""

    def _storage_of_session(self) -> Stores | None:
        return Stores.of(self.session.precision, capped=self.session.attention.capped)

    def _best_ranked_contract(self) -> Contract:
        assert self.session.trial is not None
        return self.session.trial.ranking.best.contract

    def _yield_growing_calls(self) -> Iterator[Grown]:
        """Yield calls at growing sizes, made once, until one shows a fault."""
        session, trial = self.session, self.session.trial
        how = self._storage_of_session()
        # Means are for arithmetics that bits do not identify.
        if how is None or trial is None or trial.ranking.best.share >= _NEAR:
            return
        if self.grown is None:
            self.grown = []
            for grown in rungs(session, how):
                self.grown.append(grown)
                self.fault = self.fault or grown.fault
                if self.fault:
                    return
                yield grown
        else:
            yield from self.grown

    # -- why not -------------------------------------------------------------------------------------------------------
    def _explain_undetected_aim(self, aim: Aim) -> str:
        trial = self.session.trial
        if trial is None:
            # Twice the share, since rounding may hide one half of a mistake.
            bound = 2 * self._least_visible_share(aim) * aim.share
            shows = (
                f"from {in_percent(bound)} on it shows" if bound < 1 else "nothing near it shows"
            )
            name = self.session.precision.name
            return (
                f"the worst-case bound in {name} allows more: {shows}; hint: choose a finer --dtype"
            )
        if trial.ranking.best.share >= _NEAR:
            return _explain_unchanged_bits(
                [t for _, t in self._yield_trials_for_aim(aim)][-1].sample,
                trial.ranking.best.contract,
                aim,
            )
        if not self.grown:
            words = "no known arithmetic gives its bits, and the worst case allows more"
            hint = "hint: --contract fused, if scores and sums are in float32, so that weighted means are judged"
            not_judged = "and weighted means are not judged of this attention"
            return f"{words}; {hint if self._storage_of_session() is None else not_judged}"
        last = self.grown[-1]
        least = next(
            (x for x in larger(aim) if last.shows(self._best_ranked_contract(), aim.variants(x))),
            None,
        )
        result = f"from {in_percent(least)} on it shows" if least else "nothing near it shows"
        more = "" if last.tokens >= MOST else "; hint: give a Domain of more tokens"
        return f"weighted means over {last.words} allow more: {result} there{more}"


def larger(aim: Aim) -> Iterator[float]:
    """Yield sizes to try instead of one that does not show, each twice the one before."""
    return (aim.share * 2**k for k in range(1, _DOUBLINGS + 1) if aim.share * 2**k < 1)


def _explain_unchanged_bits(sample: BitSample, contract: Contract, aim: Aim) -> str:
    """Say why bits do not show a mistake: none change, a legal arithmetic gives them too, or too few change."""
    result = [
        # A variant that cannot be replayed in the contract's formats says nothing about the bits.
        sample._replace(got=y)
        for v in aim.variants()
        if (y := sample.replayed(contract, v)) is not None
    ]
    most = max((1 - pair(mistaken, contract).share for mistaken in result), default=0.0)
    if most == 0:
        return "rounding hides it completely: outputs with it are identical, bit for bit, where the scores are widest"
    # A mistake is also hidden if another legal arithmetic gives its bits.
    for legal in near(contract, sample.spec):
        if any(pair(mistaken, legal).score >= FITS - APART for mistaken in result):
            return f"it gives the bits of an allowed arithmetic: {legal.stored}"
    changed, needed = in_percent(most), in_percent(1 - FITS + APART)
    return f"rounding hides most of it: it changes {changed} of the bits, and {needed} tell"


def in_percent(share: float) -> str:
    """Format a share for a report."""
    return f"{100 * share:.2g} %"
