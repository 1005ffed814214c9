"""The JSON form of a walk: every array in full, exact numbers as strings that ``sympy.sympify`` reads."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from symattn.attention.codec.field_values import written
from symattn.derivations.enclosed import Enclosed
from symattn.derivations.printed_elements import ball_json, decimal_json, exact_json, nested
from symattn.derivations.walks import printed
from symattn.derivations.walks.printed import ROUNDINGS
from symattn.derivations.walks.steps import weights_known
from symattn.derivations.walks.walk_data import Walk, arrays_of, titles
from symattn.document.codec import Record
from symattn.document.errors import InputError

MOST_WEIGHTED = 4096


def record(walk: Walk, step: int | None) -> Record:
    """Return the keys that a walk adds to the record, for one ``step`` or for all."""
    numbers = [step] if step else list(titles(walk))
    numbers = [4, 5, 6, 7] if numbers == [8] else numbers  # other queries have the same arrays
    result: Record = {
        "sizes": walk.sizes,
        "attention": written(walk.sheet.attention),
        "dtype": walk.dtype,
        "steps": [
            _step(walk, name, number)
            for number in numbers
            for name in arrays_of(walk, number)
            if name != "weighted" or not too_many(walk)
        ],
    }
    if walk.sheet.tokens:
        result["tokens"] = walk.sheet.tokens
    if step in (None, 5, 6, 7):
        result["roundings"] = dict(_roundings(walk)) if walk.rounding or walk.sheet.printed else {}
        if walk.sheet.printed:
            result["printed"] = _printed(walk)
    return result


def too_many(walk: Walk) -> bool:
    """Return whether there are too many weighted values to include."""
    return bool(walk.arrays["weighted"].size > MOST_WEIGHTED)


def _step(walk: Walk, name: str, number: int) -> Record:
    exact = walk.arrays[name].tolist()
    evidence = weights_known(walk) if name == "weights" else walk.evidence(name)
    entry = {
        "name": name,
        "step": number,
        "exact": nested(exact_json, exact),
        "decimal": nested(decimal_json, exact),
        "grade": evidence.grade if evidence else None,
    }
    if evidence:
        entry["where"] = evidence.where
    if any(isinstance(x, Enclosed) for x in walk.arrays[name].flat):
        entry["enclosed"] = nested(ball_json, exact)
    errors = walk.errors(name)
    if errors is not None:
        wide = np.asarray(walk.computed[name]).astype(np.float64).tolist()
        entry["computed"] = nested(lambda x: x if math.isfinite(x) else str(x), wide)
        entry["ulps"] = errors.tolist()
    return entry


def _roundings(walk: Walk) -> Iterator[tuple[str, Record]]:
    """Yield every rounding that is possible; one that keeps the sum may not be."""
    for how in ROUNDINGS[1:]:
        try:
            yield how, _rounding(walk, how)
        except InputError:
            if how == walk.rounding:
                raise


def _rounding(walk: Walk, how: str) -> Record:
    result = printed.with_rounding(walk, how)
    wanted = ("weights", "output") if too_many(walk) else ("weights", "output", "weighted")
    entries = {name: result[name] for name in wanted}
    gaps = {name: printed.difference(walk, name, entries[name]) for name in ("weights", "output")}
    return {
        "places": printed.places(walk),
        **{name: nested(exact_json, x) for name, x in entries.items()},
        "difference": {name: nested(exact_json, x) for name, x in gaps.items()},
    }


def _printed(walk: Walk) -> Record:
    given = walk.sheet.printed
    assert given is not None
    gaps = {name: printed.difference(walk, name, x) for name, x in given.rounded.items()}
    return {
        "digits": given.digits,
        "rounded": {name: nested(exact_json, x) for name, x in given.rounded.items()},
        "reproduced_by": printed.reproduced_by(walk),
        "difference": {name: nested(exact_json, x) for name, x in gaps.items()},
    }
