"""Whether an array is defined: a row of weights 0/0 is not, and a theorem may be about that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.index.demands import recorded
from symattn.arrays.index.positions import as_number
from symattn.arrays.special import Undefined
from symattn.errors import Refused, Undecided
from symattn.proof.needs import needed


def is_defined(make: Callable[[], Any]) -> int:
    """1 if every element of the array that ``make`` gives is defined, 0 if one is not.

    Undefined is what divides by zero, and −∞ where no kind takes it, as in −∞ − (−∞).
    """
    try:
        x = make()
        if hasattr(x, "places"):
            with recorded() as noted:
                elements = [as_number(x.at(places)) for places in x.places()]
            if needed(noted, elements):
                raise Undecided("indexed: whether an array is defined that divides by what may be zero")
            return 1
        return int(not any(isinstance(e, Undefined) for e in x.entries.flat))
    except ZeroDivisionError:
        return 0
    except Refused as reason:
        if "-inf" in str(reason) or "division by zero" in str(reason):
            return 0
        raise
