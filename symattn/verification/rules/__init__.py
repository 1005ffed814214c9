"""Mistakes by rule: operators on the places of the one definition, in words made of both."""

from __future__ import annotations

from collections.abc import Iterator

from symattn.attention.spec import Attention
from symattn.verification.known.mistake import Mistake
from symattn.verification.rules import masking, operators, scaling
from symattn.verification.rules.places import places


def of_numbers(spec: Attention) -> Iterator[Mistake]:
    """Another number or size in a scale or a mask: these keep the definition's form, and the bound holds for them."""
    yield from masking.mistakes(spec)
    yield from scaling.mistakes(spec)


def of_arrays(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """An operation on one array of a specification whose inputs are ``names``, the plainest first.

    Some give the same numbers as another; what finds them keeps the first of those.
    """
    for place in places(spec, names):
        for operator in operators.operators(place):
            yield operator.at(place)
