"""Mistakes by rule: operators on the places of the one definition, in words made of both."""

from __future__ import annotations

from collections.abc import Iterator

from symattn.attention.spec import Attention
from symattn.verification.known.mistake import Mistake
from symattn.verification.rules import fields, operators, scaling
from symattn.verification.rules.places import places


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """The mistakes that the grammar makes of a specification whose inputs are ``names``, the plainest first.

    Each is a change of the definition in one place. Some give the same numbers as another; what finds them keeps the
    first of those.
    """
    yield from scaling.mistakes(spec)
    yield from fields.mistakes(spec)
    for place in places(spec, names):
        for operator in operators.operators(place):
            yield operator.at(place)
