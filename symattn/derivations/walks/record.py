"""Other forms of a walk: as JSON, and as an exercise sheet.

JSON has every array in full, exact numbers as strings that ``sympy.sympify`` reads. Of exercise sheets steps are left
empty, and random numbers are easy to compute with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.attention.codec import exact_arrays
from symattn.attention.codec.field_values import written
from symattn.attention.inputs import TOKENS, WEIGHTS
from symattn.derivations.enclosed import Enclosed, ball_json, decimal_json, exact_json, nested
from symattn.derivations.parameters import LIMITS, whole
from symattn.derivations.sheets.sheet import Sheet
from symattn.derivations.walks import printed
from symattn.derivations.walks.printed import ROUNDINGS
from symattn.derivations.walks.steps import weights_known
from symattn.derivations.walks.walk_data import Walk, arrays_of, titles
from symattn.document.codec import Record
from symattn.document.errors import InputError
from symattn.document.model import Block, Paragraph, Result, Values
from symattn.document.notation import Relation, Words

# More weighted values than scores of a sheet are left out of the record.
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
            _record_walk_array(walk, name, number)
            for number in numbers
            for name in arrays_of(walk, number)
            if name != "weighted" or not too_many(walk)
        ],
    }
    if walk.sheet.tokens:
        result["tokens"] = walk.sheet.tokens
    if step in (None, 5, 6, 7):
        result["roundings"] = (
            dict(_yield_possible_roundings(walk)) if walk.rounding or walk.sheet.printed else {}
        )
        if walk.sheet.printed:
            result["printed"] = _record_printed_numbers(walk)
    return result


def too_many(walk: Walk) -> bool:
    """Return whether there are too many weighted values to include."""
    return bool(walk.arrays["weighted"].size > MOST_WEIGHTED)


def _record_walk_array(walk: Walk, name: str, number: int) -> Record:
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
    # Balls are given with their radius.
    if any(isinstance(x, Enclosed) for x in walk.arrays[name].flat):
        entry["enclosed"] = nested(ball_json, exact)
    errors = walk.errors(name)
    if errors is not None:
        wide = np.asarray(walk.computed[name]).astype(np.float64).tolist()
        # JSON has neither NaN nor infinities.
        entry["computed"] = nested(lambda x: x if math.isfinite(x) else str(x), wide)
        entry["ulps"] = errors.tolist()
    return entry


def _yield_possible_roundings(walk: Walk) -> Iterator[tuple[str, Record]]:
    """Yield every rounding that is possible; one that keeps the sum may not be."""
    for how in ROUNDINGS[1:]:
        try:
            yield how, _record_rounding(walk, how)
        except InputError:
            if how == walk.rounding:
                raise


def _record_rounding(walk: Walk, how: str) -> Record:
    result = printed.with_rounding(walk, how)
    # Products of every weight and value may be too many.
    wanted = ("weights", "output") if too_many(walk) else ("weights", "output", "weighted")
    entries = {name: result[name] for name in wanted}
    gaps = {name: printed.difference(walk, name, entries[name]) for name in ("weights", "output")}
    return {
        "places": printed.places(walk),
        **{name: nested(exact_json, x) for name, x in entries.items()},
        "difference": {name: nested(exact_json, x) for name, x in gaps.items()},
    }


def _record_printed_numbers(walk: Walk) -> Record:
    printed_numbers = walk.sheet.printed
    assert printed_numbers is not None
    rounded_arrays = printed_numbers.rounded.items()
    gaps = {name: printed.difference(walk, name, x) for name, x in rounded_arrays}
    return {
        "digits": printed_numbers.digits,
        "rounded": {name: nested(exact_json, x) for name, x in printed_numbers.rounded.items()},
        "reproduced_by": printed.reproduced_by(walk),
        "difference": {name: nested(exact_json, x) for name, x in gaps.items()},
    }


_PLACE = Words("____")
# Draws until scores are readable, after which the sheet is refused.
_TRIES = 2000
_LARGEST = 12  # the largest difference of scores: e^12 is still readable


def steps(numbers: Sequence[int] | str | int, last: int) -> tuple[int, ...]:
    """Return the numbers of steps, given as a list or as ``5,6``. Raises InputError for a step that does not exist."""
    parts = (
        numbers.split(",")
        if isinstance(numbers, str)
        else [numbers]
        if isinstance(numbers, int)
        else numbers
    )
    try:
        # Sorted, each once.
        results = tuple(sorted({int(part) for part in parts}))
    except (TypeError, ValueError):
        results = ()
    if not results or not all(1 <= number <= last for number in results):
        raise InputError(f"blank is {numbers!r}; hint: steps from 1 to {last}, such as 5,6")
    return results


def emptied(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks of a step without its numbers: a blank for each entry, and left sides of equations."""
    # Blocks of other kinds would give the answers away.
    for block in blocks:
        if isinstance(block, Values):
            yield replace(
                block,
                exact=_blank_out_entries(block.exact),
                decimal=_blank_out_entries(block.exact),
                others={},
                evidence=None,
            )
        elif isinstance(block, Result):
            lines = (
                Relation(x.first, (("=", _PLACE),)) if isinstance(x, Relation) else x
                for x in block.formulas
            )
            yield replace(block, formulas=tuple(lines), evidence=())
        elif isinstance(block, Paragraph):
            yield block


def kept(record: Record, empty: tuple[int, ...]) -> Record:
    """Return the JSON form of a walk without the arrays of these steps, and without values derived from them."""
    steps_ = [entry for entry in record["steps"] if entry["step"] not in empty]
    return {name: x for name, x in record.items() if name not in ("roundings", "printed")} | {
        "steps": steps_
    }


def kind(sheet: Sheet, seed: int) -> Sheet:
    """Return the sheet with small random integers, such that scores of a row differ, by at most 12.

    Raises InputError for a seed that is not an integer from 0 on, and if no such numbers are found.
    """
    whole("seed", seed, LIMITS["seed"], 0)
    rng = np.random.default_rng(seed)
    for _ in range(_TRIES):
        result = replace(
            sheet,
            inputs={
                name: _draw_tokens_and_weights(rng, name, x) for name, x in sheet.inputs.items()
            },
            # The text's printed numbers are those of other inputs.
            printed=None,
        )
        walk = Walk(result, "float32")
        scores = walk.arrays[walk.pipeline["weights"].of[0]]
        rows = [
            [x.to_float() for x in row if isinstance(x, Quotient)]
            for row in scores.reshape(-1, scores.shape[-1])
        ]
        gaps = [max(row) - min(row) for row in rows if row]
        # Equal scores would show nothing, large ones a single weight.
        if all(rows) and max(gaps) <= _LARGEST and min(gaps) > 0:
            return replace(
                result,
                notes=(),
                source="",
                title=f"{sheet.title}, with numbers drawn by the seed {seed}",
            )
    raise InputError(
        f"{sheet.name}: no numbers were found with scores that stay readable; hint: another example"
    )


def _draw_tokens_and_weights(rng: np.random.Generator, name: str, entries: object) -> Any:
    """Draw tokens from 0 to 2 and weights from 0 and 1, each with a few −1; return other arrays unchanged."""
    if name not in (*TOKENS, *WEIGHTS):
        return entries
    numbers = (0, 0, 1, 1, -1) if name in WEIGHTS else (0, 1, 1, 2, -1)
    return nested(Quotient.of, rng.choice(numbers, exact_arrays.shape_of(entries)).tolist())


def _blank_out_entries(entries: object) -> Any:
    return tuple(map(_blank_out_entries, entries)) if isinstance(entries, tuple) else _PLACE
