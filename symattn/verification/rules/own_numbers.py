"""The numbers of a specification by name, so that a fitted number that is one of them is named as that.

>>> from symattn import Attention
>>> [(round(x, 9), words) for x, words in near(Attention(softcap=30.0), 0.0333)]
[(0.033333333, "the inverse of the specification's softcap")]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from symattn.attention.fields import finite

_NEAR = 0.01  # relative distance of a fitted number from one of the specification
_SAME = 1e-9  # distance from 1 below which a number changes nothing
# fields that are descriptions with numbers of their own
_PARTS = ("attention", "position", "scaling", "latent")
#: Fields that count something, and of which powers occur by chance: a factor of 2 is not the root of four heads.
_COUNTS = ("heads", "kv_heads", "window")
#: Fields whose numbers have another noun than their name.
_NOUNS = {"eps": "ε", "factor": "scaling factor", "length": "trained length"}
#: What code may make of a number: the words around its name, and the power of it.
_POWERS = {"{}": 1.0, "the square of {}": 2.0, "the inverse of {}": -1.0, "1 over the square of {}": -2.0,
           "the root of {}": 0.5, "1 over the root of {}": -0.5}  # fmt: skip


def near(spec: Any, x: float) -> list[tuple[float, str]]:
    """Return the specification's number near x with its name; none if two fields have such a number."""
    for words, power in _POWERS.items():
        numbers = [
            (value**power, words.format(noun)) for noun, value in _yield_named_spec_numbers(spec)
        ]
        # Within 1 ± _NEAR the fitted number and the specification's own are one.
        close = [
            (number, name) for number, name in numbers if x > 0 and abs(number / x - 1) < _NEAR
        ]
        if close:
            # Two fields with nearly the same number: neither can be named for certain.
            return close if len(close) == 1 else []
    return []


def _yield_named_spec_numbers(spec: Any) -> Iterator[tuple[str, float]]:
    """Yield the positive numbers of a specification, other than 1, with their names."""
    for field in fields(spec) if is_dataclass(spec) else ():
        value = getattr(spec, field.name)
        if field.name in _PARTS:
            yield from _yield_named_spec_numbers(value)
        elif (
            field.name not in _COUNTS
            and finite(value)
            and value > 0
            and abs(float(value) - 1) > _SAME
        ):
            noun = _NOUNS.get(field.name, field.name.replace("_", " "))
            yield f"the specification's {noun}", float(value)
    # The factor that some frequency scalings put on cosines and sines.
    magnitude = getattr(spec, "magnitude", None)
    if magnitude is not None:
        factor = float(np.asarray(magnitude(np.ones(1))).reshape(-1)[0])
        if abs(factor - 1) > _SAME:
            yield "the specification's factor of cosines and sines", factor
