"""Exercise sheets: steps of a walk left empty, and random numbers that are easy to compute with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.attention.codec.exact_arrays import shape_of
from symattn.attention.inputs import TOKENS, WEIGHTS
from symattn.derivations.parameters import LIMITS, whole
from symattn.derivations.printed_elements import nested
from symattn.derivations.sheets.sheet import Sheet
from symattn.derivations.walks.walk_data import Walk
from symattn.document.codec import Record
from symattn.document.errors import InputError
from symattn.document.model import Block, Paragraph, Result, Values
from symattn.document.notation import Relation, Words

_PLACE = Words("____")
_TRIES = 2000
_LARGEST = 12  # the largest difference of scores: e^12 is still readable


def steps(numbers: Sequence[int] | str | int, last: int) -> tuple[int, ...]:
    """Return the numbers of steps, given as a list or as ``5,6``. Raises InputError for a step that does not exist."""
    parts = numbers.split(",") if isinstance(numbers, str) else [numbers] if isinstance(numbers, int) else numbers
    try:
        results = tuple(sorted({int(part) for part in parts}))
    except (TypeError, ValueError):
        results = ()
    if not results or not all(1 <= number <= last for number in results):
        raise InputError(f"blank is {numbers!r}; hint: steps from 1 to {last}, such as 5,6")
    return results


def emptied(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks of a step without its numbers: a blank for each entry, and left sides of equations."""
    for block in blocks:
        if isinstance(block, Values):
            yield replace(block, exact=_places(block.exact), decimal=_places(block.exact), others={}, evidence=None)
        elif isinstance(block, Result):
            lines = (Relation(x.first, (("=", _PLACE),)) if isinstance(x, Relation) else x for x in block.formulas)
            yield replace(block, formulas=tuple(lines), evidence=())
        elif isinstance(block, Paragraph):
            yield block


def kept(record: Record, empty: tuple[int, ...]) -> Record:
    """Return the JSON form of a walk without the arrays of these steps, and without values derived from them."""
    steps_ = [entry for entry in record["steps"] if entry["step"] not in empty]
    return {name: x for name, x in record.items() if name not in ("roundings", "printed")} | {"steps": steps_}


def kind(sheet: Sheet, seed: int) -> Sheet:
    """Return the sheet with small random integers, such that scores of a row differ, by at most 12.

    Raises InputError for a seed that is not an integer from 0 on, and if no such numbers are found.
    """
    whole("seed", seed, LIMITS["seed"], 0)
    rng = np.random.default_rng(seed)
    for _ in range(_TRIES):
        result = replace(sheet, inputs={name: _drawn(rng, name, x) for name, x in sheet.inputs.items()}, printed=None)
        if _is_kind(result):
            return replace(result, notes=(), source="", title=f"{sheet.title}, with numbers drawn by the seed {seed}")
    raise InputError(f"{sheet.name}: no numbers were found with scores that stay readable; hint: another example")


def _drawn(rng: np.random.Generator, name: str, entries: object) -> Any:
    """Draw tokens from 0 to 2 and weights from 0 and 1, each with a few −1; return other arrays unchanged."""
    if name not in (*TOKENS, *WEIGHTS):
        return entries
    numbers = (0, 0, 1, 1, -1) if name in WEIGHTS else (0, 1, 1, 2, -1)
    return nested(Quotient.of, rng.choice(numbers, shape_of(entries)).tolist())


def _is_kind(sheet: Sheet) -> bool:
    walk = Walk(sheet, "float32")
    scores = walk.arrays[walk.pipeline["weights"].of[0]]
    rows = [[x.to_float() for x in row if isinstance(x, Quotient)] for row in scores.reshape(-1, scores.shape[-1])]
    if not all(rows):
        return False
    gaps = [max(row) - min(row) for row in rows]
    return max(gaps) <= _LARGEST and min(gaps) > 0


def _places(entries: object) -> Any:
    return tuple(map(_places, entries)) if isinstance(entries, tuple) else _PLACE
