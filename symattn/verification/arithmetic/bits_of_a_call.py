"""``tried``: one call at a size at which bits identify the function's arithmetic and its mistakes.

Worst-case bounds allow all roundings to err in one direction; so in half precision a scale that is 1 % off is within
the bound of every single entry. Its bits differ nevertheless: see ``ranking``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.bounds import case_result, mistake
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Array, Sizes
from symattn.bounds.reference import Change, Values, Variant
from symattn.verification.arithmetic.ranking import (
    APART,
    FITS,
    BitSearch,
    Pair,
    Ranking,
    arithmetic,
    confirmed,
    nearest,
    pair,
)
from symattn.verification.arithmetic.suspects import BitSample, Suspect
from symattn.verification.probing.probes import BITS, FAMILIES
from symattn.verification.report import Arithmetic, Fault

if TYPE_CHECKING:
    from symattn.attention.spec import Attention
    from symattn.verification.engine import Session

_GROUND = (
    "Every output is within the bound of this arithmetic, so there is no counterexample: calls with random inputs gave "
    "the bits of this mistake, and of no known arithmetic without it."
)
SIZES = Sizes(256, 256, 80, 64)  # d_k is no power of 4: a scale of 2^{−k} hides its own roundings
# no multiple of any tile: what is right for 256 keys need not be right here
LONGER = Sizes(64, 331, 80, 64)
_CELLS = 1 << 20  # scores of all heads: room for so many keys if as many queries are promised
_LEAST = 2000  # outputs; fewer do not distinguish contracts
_SEED = 5
# of a mistake, from nearly all of it
_SHARES = (0.999, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


@dataclass(frozen=True)
class Trial:
    """The arithmetic that the bits of a call show, and the call."""

    sample: BitSample
    ranking: Ranking
    sure: bool  # whether the mistake was ranking again on fresh inputs
    where: str = ""  # the lengths that this applies to, if others are computed in another way

    @property
    def wrong(self) -> Pair | None:
        """The contract with a mistake, if that was ranking twice."""
        return self.ranking.wrong if self.sure else None

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic for the report."""
        result, outputs = self.ranking, self.sample.got.size
        fits = self.wrong or (result.best if result.best.fits else None)
        if fits is None:
            words = f"no known arithmetic gives these bits; the nearest is: {result.best.contract.words}"
            return Arithmetic(words, result.best.share, result.next.share, outputs, False)
        # The runner-up of a mistake is the best arithmetic without it.
        most = result.best.share if fits is result.wrong else result.next.share
        return Arithmetic(
            fits.contract.words + self.where * (not self.sure), fits.share, most, outputs, True
        )

    @property
    def fault(self) -> Fault | None:
        """The mistake, if one was ranking twice."""
        wrong = self.wrong
        if wrong is None or wrong.mistake is None:
            return None
        of = f"{percent(wrong.share)} of {self.sample.got.size} outputs"
        words = f"{of} match this mistake bit for bit ({wrong.contract.words})"
        without = f"without it at most {percent(self.ranking.best.share)} do"
        cause = wrong.mistake.cause + self.where
        return Fault(wrong.mistake.step, cause, f"{cause}: {words}; {without}", ground=_GROUND)

    def shows(self, variant: Variant) -> bool:
        """Return whether the bits would show a mistake: no arithmetic without it gives the same bits."""
        contract = self.ranking.best.contract
        values = self.sample.replayed(contract, variant)
        if values is None:
            return False
        # The contract with this mistake must not be mistaken for the contract without it,
        mistaken = self.sample._replace(got=values)
        if pair(mistaken, contract).score >= FITS - APART:
            return False
        # nor for any other legal arithmetic.
        return nearest(mistaken, contract).score < FITS - APART

    def smallest(self, variant: Variant) -> float:
        """Return the smallest share of a mistake that the bits would show; +∞ if none or the arithmetic is unknown."""
        result = inf
        contract = self.ranking.best.contract
        # The shares fall, so that the first one that stays hidden ends the search.
        for share in _SHARES if self.ranking.best.fits else ():
            got = self.sample.replayed(contract, _dilute_mistake_variant(variant, share))
            if got is None or pair(self.sample._replace(got=got), contract).score >= FITS - APART:
                break
            result = share
        return result


def tried(session: Session, taken: bool = True, more: Sequence[Suspect] = ()) -> Trial | None:
    """Compare the bits of a call at size, and of one with more keys; None if the domain has no such inputs.

    If ``taken``, a call is judged by the bound as well, and the trial ends if that shows a fault. A mistake must show
    in a second call, which is made even if no effort is left. The mistakes ``more`` are searched for in addition.
    """
    first = first_call(session, taken)
    if first is None:
        return None
    # thousands of mistakes take many times as long as a verdict, and residues have excluded those of the code
    suspecting = not (session.verdict_alone and session.settled)
    search, rng, sample = first.search, first.rng, first.search.sample
    result = search.without_mistakes
    if suspecting:
        result = search.among_all(more, session.verdict_alone)
    # Bits that are right here may be wrong at lengths that no tile divides.
    if result.wrong is None and result.best.fits:
        return _repeat_with_more_keys(session, rng, more, Trial(sample, result, False))
    return Trial(sample, result, _is_mistake_confirmed_again(session, rng, taken, result))


def tried_early(session: Session) -> Trial | None:
    """Compare the bits of the call at size with contracts, and with the likely mistakes that have a number.

    The call is kept, so that ``tried`` goes on from there.
    """
    session.bits = first_call(session)
    if session.bits is None:
        return None
    search, rng = session.bits.search, session.bits.rng
    result = search.with_likely_number
    is_sure = _is_mistake_confirmed_again(session, rng, True, result)
    return Trial(search.sample, result, is_sure)


@dataclass(frozen=True, eq=False)
class FirstCall:
    """The call at size, by what its bits are explained, and the generator of the inputs of further calls."""

    domain: Domain
    search: BitSearch
    rng: np.random.Generator


def first_call(session: Session, taken: bool = True) -> FirstCall | None:
    """Return the call at size, the one that was made early if the domain is still the same."""
    if session.bits is not None and session.bits.domain == session.domain:
        return session.bits
    rng = np.random.default_rng((session.seed, _SEED))
    sample = called(session, rng, taken)
    return None if sample is None else FirstCall(session.domain, BitSearch(sample), rng)


def _is_mistake_confirmed_again(
    session: Session, rng: np.random.Generator, taken: bool, ranking: Ranking, sizes: Sizes = SIZES
) -> bool:
    """Return whether fresh inputs show the mistake once more."""
    again = (
        called(session, rng, taken and not session.over, sizes)
        if ranking.wrong is not None
        else None
    )
    return again is not None and confirmed(ranking, again)


def _repeat_with_more_keys(
    session: Session, rng: np.random.Generator, more: Sequence[Suspect], trial: Trial
) -> Trial:
    """Return the trial with more keys if its bits show a mistake, else the given trial, with a note if they differ."""
    sample, fewer = called(session, rng, sizes=LONGER), _count_sample_keys(trial.sample)
    # Without more keys, or with the same arithmetic, nothing is to be added.
    if (
        sample is None
        or _count_sample_keys(sample) <= fewer
        or pair(sample, trial.ranking.best.contract).fits
    ):
        return trial
    result, most = (
        arithmetic(sample, more, any_mistake=session.verdict_alone),
        _count_sample_keys(sample),
    )
    if _is_mistake_confirmed_again(session, rng, False, result, LONGER):
        return Trial(sample, result, True, f", where n_k = {most} and not where n_k = {fewer}")
    words = result.best.contract.stored if result.best.fits else "none that is known"
    return replace(trial, where=f" (where n_k = {fewer}; where n_k = {most}: {words})")


def _count_sample_keys(sample: BitSample) -> int:
    return next(int(a.shape[-2]) for name, a in sample.inputs.items() if name in ("k", "y", "x"))


def called(
    session: Session,
    rng: np.random.Generator,
    taken: bool = False,
    sizes: Sizes = SIZES,
    spread: float = 1.0,
) -> BitSample | None:
    """Call the function on normal inputs of these sizes, within the domain, with queries multiplied by ``spread``;
    return None if the outputs are too few, not of the input's dtype, or not finite."""
    entries = FAMILIES["normal"](rng)

    def spread_out(name: str, shape: tuple[int, ...]) -> Array:
        return entries(name, shape) * (spread if name == "q" else 1.0)

    maker = replace(session.maker, cells=_CELLS) if sizes == LONGER else session.maker
    inputs = maker.make(sizes, spread_out, rng)
    case = case_result.Case(BITS, "normal numbers", inputs)
    if taken:
        judged = session.take(case)
        outcome = judged.outcome if judged and judged.finding is None else None
    else:
        outcome = session.call(case)
    if outcome is None or outcome.output is None or outcome.output.size < _LEAST:
        return None
    # Another dtype has other bits.
    if outcome.dtype != session.precision.input.name or not np.isfinite(outcome.output).any():
        return None
    return BitSample(session.attention, inputs, outcome.output, session.precision.input)


def _dilute_mistake_variant(variant: Variant, share: float) -> Variant:
    """Return a variant with a share of the mistake: its steps go so far from the right numbers to the wrong ones."""

    def partly(name: str, wrong: Change) -> Change:
        def change(spec: Attention, values: Values) -> Any:
            right, other = (
                np.asarray(mistake.own(spec, values, name)),
                np.asarray(wrong(spec, values)),
            )
            # Where both are infinite, their difference is no number.
            return np.where(right == other, right, right + share * (other - right))

        return change

    return replace(
        variant, steps={name: partly(name, wrong) for name, wrong in variant.steps.items()}
    )


def percent(share: float) -> str:
    """Format a share for a report."""
    return f"{share:.2%}".replace("%", " %")
