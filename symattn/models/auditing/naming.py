"""Which known mistake gives the gradients that came: the one that comes nearest by far, of those within the bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT
from symattn.bounds.sharp.backward import NAMES, SharpGradient
from symattn.models.auditing.biases import Group
from symattn.models.auditing.call_causes import one_of
from symattn.models.auditing.setting import Floats
from symattn.verification.definitions.gradients import dropping, mistakes, of_wrong_attention
from symattn.verification.definitions.subject import DefinitionMistake

_TRIED = 1 << 18  # scores of one head up to which mistakes in formulas are tried
_OTHERS = 1 << 12  # up to which the gradients of other attention are, too
_ROOM = 4  # how much wider than the bound a result of a mistake is taken for this mistake
_CLOSE = 0.1  # of the bound: the mean error of what is computed as it came, roundings apart
_APART = 3  # how many times as far as the nearest mistake another has to be in order not to be named beside it
_SAME = 1e-9  # of the largest number: what two mistakes that are one differ by
Grads = dict[str, Floats]


@dataclass(frozen=True, eq=False)
class Judged:
    """One head of keys with its heads of queries: what was judged, and what came (1, heads, n, d)."""

    spec: Attention
    inputs: dict[str, Any]
    do: Floats
    got: Grads
    found: dict[str, SharpGradient]
    group: Group

    @property
    def factors(self) -> Floats | None:
        """Return the factors of dropout."""
        return self.group.factors

    def ratios(self) -> dict[str, float]:
        """The largest of each."""
        return {n: float(self.found[n].ratios(self.found[n].of(a)).max()) for n, a in self.got.items()}


class _Fitting(NamedTuple):
    """A mistake in words, how far it is from what came, and what it gives."""

    words: str
    off: float
    values: Grads


def cause(head: Judged) -> str:
    """The one known mistake that gives what came, in words; those that fit where several do, empty where none does.

    Wrong formulas come first, and the gradients of other attention where none of these is as near as roundings are.
    """
    scores = int(np.prod(head.inputs["q"].shape[:-1])) * int(head.inputs["k"].shape[-2])
    formulas = mistakes(head.spec) if head.factors is None else dropping(head.spec, head.factors)
    fitting = _fitting(formulas, head) if scores <= _TRIED else []
    if all(f.off > _CLOSE for f in fitting) and scores <= _OTHERS and head.factors is None:
        fitting = _fitting(of_wrong_attention(head.spec), head, fitting)
    least = min((f.off for f in fitting), default=0.0)
    named = [f.words for f in sorted(fitting, key=lambda f: f.off) if f.off <= _APART * least]
    return one_of(named)


def _fitting(tried: Iterator[DefinitionMistake], head: Judged, before: Sequence[_Fitting] = ()) -> list[_Fitting]:
    """Add mistakes that give what came to those of ``before``; of mistakes that are the same, the first."""
    fitting = list(before)
    for mistake in tried:
        try:
            with np.errstate(all="ignore"):
                gradients = mistake.run(do=head.do, **head.inputs)
        except UNFIT:  # it needs other shapes, as where dS is not transposed
            continue
        values = dict(zip(NAMES, map(np.asarray, gradients), strict=True))
        off = _distance(values, head)
        if off is not None and not any(_same(values, other.values, head) for other in fitting):
            fitting.append(_Fitting(mistake.cause, off, values))
    return fitting


def _distance(values: Grads, head: Judged) -> float | None:
    """The root of the mean square of all differences, in parts of the bound for numbers of this size.

    None where one of them is beyond it.
    """
    shares = []
    for name, got in head.got.items():
        gradient = head.found[name]
        if values[name].shape != got.shape:
            return None
        mine, theirs = gradient.of(values[name]), gradient.of(got)
        with np.errstate(all="ignore"):
            size = max(1.0, float(np.abs(mine).max() / np.abs(gradient.exact).max(initial=1e-300)))
            shares.append((np.abs(mine - theirs) / (size * gradient.allowed)).ravel())
    whole = np.concatenate(shares) if shares else np.zeros(1)
    return float(np.sqrt(np.mean(whole**2))) if (whole <= _ROOM).all() else None


def _same(values: Grads, other: Grads, head: Judged) -> bool:
    return all(np.abs(values[n] - other[n]).max() <= _SAME * np.abs(values[n]).max() for n in head.got)
