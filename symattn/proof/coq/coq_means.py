"""The mean of what is linear in random numbers, as a statement for readers about finitely many outcomes.

E f is Σ_ω p(ω) f(ω), with p(ω) for the probability of the outcome ω. What is linear has as its mean what it is at the
mean: an equation takes the sum over outcomes to the array, in the place of which ``inferences`` then puts its mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, count

from symattn.document.errors import Refused
from symattn.proof.coq.steps import moved
from symattn.proof.coq.terms import Names, Term

_WORDS = "{p} are the probabilities of finitely many outcomes. Of them nothing is used but what the mean of {array} is"


@dataclass(frozen=True)
class Mean:
    """The mean of an expression, that of the array numbered ``array``, and what they are in words."""

    array: int
    whole: Term
    of_array: Term
    words: str


def mean_of(of: Term, letter: str, names: Names) -> Mean:
    """The mean of what is linear in the array ``letter``, whose entries get the outcome as their first index.

    Raises Refused where there is no one array of that name.
    """
    numbers = names.with_name(letter)
    if len(numbers) != 1:
        raise Refused(f"coq: a mean over {letter}, which is not one array")
    (array,) = numbers
    outcomes = names.sort(_fresh("outcomes", set(names.sorts)))
    word = _fresh("p", {str(key[0]) for key in names.arrays})
    probability = names.array((word, ()), (outcomes,))
    sorts = names.arities[array]
    drawn = names.array((letter, *((),) * (len(sorts) + 1)), (outcomes, *sorts))
    entry = Term("Letter", (array, *range(len(sorts))))
    whole, of_array = (_expected(x, outcomes, probability, {array: drawn}) for x in (of, entry))
    return Mean(array, whole, of_array, _WORDS.format(p=word, array=letter))


def _fresh(word: str, taken: set[str]) -> str:
    return next(w for w in chain([word], (f"{word}_{n}" for n in count(2))) if w not in taken)


def _expected(x: Term, outcomes: int, probability: int, drawn: dict[int, int]) -> Term:
    """Σ_ω p(ω) x(ω)."""
    weight = Term("Letter", (probability, 0))
    return Term("Sum", (outcomes,), (Term("Mul", (), (weight, _at(moved(x, 1), drawn, 0))),))


def _at(x: Term, drawn: dict[int, int], depth: int) -> Term:
    """Return the draw at the outcome that is bound outside of ``depth`` binders."""
    if x.head == "Letter" and x.numbers[0] in drawn:
        return Term("Letter", (drawn[x.numbers[0]], depth, *x.numbers[1:]))
    return Term(x.head, x.numbers, tuple(_at(y, drawn, depth + x.binds()) for y in x.below))
