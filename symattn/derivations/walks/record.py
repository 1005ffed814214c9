"""The JSON form of a walk: every array whole, exact as strings that ``sympy.sympify`` reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from symattn.derivations.elements import decimal_json, exact_json, nested
from symattn.derivations.walks import printed
from symattn.derivations.walks.model import Walk
from symattn.derivations.walks.rounding import ROUNDINGS
from symattn.derivations.walks.steps import arrays_of, row_sums, titles
from symattn.evidence import Evidence

MOST_WEIGHTED = 4096


def record(walk: Walk, step: int | None) -> dict[str, Any]:
    """The keys that a walk adds; ``step`` alone, or all."""
    numbers = [step] if step else list(titles(walk))
    numbers = [4, 5, 6, 7] if numbers == [8] else numbers  # the others go through the same arrays
    found: dict[str, Any] = {
        "sizes": walk.sizes,
        "attention": _fields(walk),
        "dtype": walk.dtype,
        "steps": [_step(walk, name, number) for number in numbers for name in _names(walk, number)],
    }
    if walk.sheet.tokens:
        found["tokens"] = walk.sheet.tokens
    if step in (None, 5, 6, 7):
        found["roundings"] = {how: _rounding(walk, how) for how in ROUNDINGS[1:]} if _has_rounding(walk) else {}
        if walk.sheet.printed:
            found["printed"] = _printed(walk)
    return found


def too_many(walk: Walk) -> bool:
    """Whether there are more weighted values than anybody wants to read."""
    return bool(walk.arrays["weighted"].size > MOST_WEIGHTED)


def _names(walk: Walk, number: int) -> list[str]:
    if number == 9:
        return ["output"]
    names = arrays_of(walk, number)
    if number == 1 and "x" not in names:
        names = ["q", "k", "v"]
    if number == 3 and "x" not in walk.arrays:
        names = []
    if number == 1:
        names += [n for n in ("mask", "keep") if n in walk.arrays]
    left_out = {"output"} if number == 7 and "attended" in walk.arrays else set()
    return [n for n in names if n not in left_out | ({"weighted"} if too_many(walk) else set())]


def _step(walk: Walk, name: str, number: int) -> dict[str, Any]:
    exact = walk.arrays[name].tolist()
    evidence = _evidence(walk, name)
    entry = {
        "name": name,
        "step": number,
        "exact": nested(exact_json, exact),
        "decimal": nested(decimal_json, exact),
        "grade": evidence.grade if evidence else None,
    }
    if evidence:
        entry["where"] = evidence.where
    errors = walk.errors(name)
    if errors is not None:
        entry["computed"] = _floats(walk.computed[name])
        entry["ulps"] = errors.tolist()
    return entry


def _evidence(walk: Walk, name: str) -> Evidence | None:
    if name == "weights":
        return row_sums(walk)
    return walk.token_by_token if name in walk.pipeline or name == "weighted" else None


def _floats(array: Any) -> Any:
    """Numbers of the format; NaN and infinities as words."""
    wide = np.asarray(array).astype(np.float64).tolist()
    return nested(lambda x: x if math.isfinite(x) else str(x), wide)


def _fields(walk: Walk) -> dict[str, Any]:
    from dataclasses import asdict

    fields = asdict(walk.sheet.attention)
    return fields | {"scale": "1/sqrt(d_k)" if fields["scale"] is None else str(fields["scale"])}


def _has_rounding(walk: Walk) -> bool:
    return bool(walk.rounding or walk.sheet.printed)


def _rounding(walk: Walk, how: str) -> dict[str, Any]:
    made = printed.with_rounding(walk, how)
    entries = {"weights": made.weights, "output": made.output}
    entries |= {} if too_many(walk) else {"weighted": made.weighted}
    gaps = {name: printed.difference(walk, name, entries[name]) for name in ("weights", "output")}
    return {
        "places": printed.places(walk),
        **{name: nested(exact_json, x) for name, x in entries.items()},
        "difference": {name: nested(exact_json, x) for name, x in gaps.items()},
    }


def _printed(walk: Walk) -> dict[str, Any]:
    given = walk.sheet.printed
    assert given is not None
    gaps = {name: printed.difference(walk, name, x) for name, x in given.rounded.items()}
    return {
        "digits": given.digits,
        "rounded": {name: nested(exact_json, x) for name, x in given.rounded.items()},
        "reproduced_by": printed.reproduced_by(walk),
        "difference": {name: nested(exact_json, x) for name, x in gaps.items()},
    }
