"""Compare a text's printed numbers with the exact ones: are its digits right, and which rounding did it use?

Every sentence follows from comparing numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.field.quotient import Quotient
from symattn.attention.codec import exact_arrays
from symattn.derivations.enclosed import Enclosed, decimal, is_number
from symattn.derivations.walks.run import weighted
from symattn.derivations.walks.walk_data import Walk
from symattn.document.errors import InputError
from symattn.document.model import Text

_CALLED = {
    "exact": "which leaves them exact",
    "nearest": "to nearest",
    "sum": "by largest remainders, which keep the sum of each row",
}


def places(walk: Walk) -> int:
    """Return the decimals to which weights are rounded: those of the text, else one."""
    return walk.sheet.printed.places if walk.sheet.printed else 1


def with_rounding(walk: Walk, how: str) -> dict[str, Any]:
    """Return the walk's weights rounded as ``how`` says, with the weighted values and outputs that follow, by name."""
    exact_weights = walk.arrays[walk.mixing.of[0]].tolist()
    weights = rounded(exact_weights, how, places(walk))
    return {"weights": weights, **_derive_outputs_from_weights(walk, weights)}


def _derive_outputs_from_weights(walk: Walk, weights: object) -> dict[str, Any]:
    """Return the weighted values and outputs that follow from weights, as nested lists of exact numbers."""
    products = weighted(objects(weights), walk.arrays[walk.mixing.of[1]])
    return {"weighted": products.tolist(), "output": np.add.reduce(products, axis=-2).tolist()}


def difference(walk: Walk, name: str, entries: object) -> Any:
    """Return exact minus given entries, as nested lists."""
    result = walk.arrays[walk.mixing.name if name == "output" else name]
    return np.subtract(result, objects(entries)).tolist()


def reproduced_by(walk: Walk) -> list[str]:
    """Return the roundings that reproduce exactly the weights with which the text continued."""
    printed = walk.sheet.printed
    if printed is None or "weights" not in printed.rounded:
        return []
    return [
        how
        for how in ROUNDINGS
        if _are_nested_numbers_equal(
            with_rounding(walk, how)["weights"], printed.rounded["weights"]
        )
    ]


def follows(walk: Walk) -> bool:
    """Return whether the text's further arrays follow exactly from its rounded weights."""
    assert walk.sheet.printed is not None
    text_arrays = walk.sheet.printed.rounded
    # The text went on with its rounded weights.
    result = _derive_outputs_from_weights(walk, text_arrays["weights"])
    return all(
        _are_nested_numbers_equal(x, text_arrays[name])
        for name, x in result.items()
        if name in text_arrays
    )


def digits_right(exact: object, printed: str) -> bool:
    """Return whether ``printed`` is the exact number rounded to nearest in its last digit."""
    if not is_number(exact):
        return False
    power = Decimal(printed).as_tuple().exponent
    assert isinstance(power, int)
    error = abs(exact - Quotient.of(printed))
    # Half a unit of the last printed digit; a tie may be rounded either way.
    return bool(error <= Fraction(10) ** power / 2)


def digits_sentence(walk: Walk) -> Iterator[Text]:
    """Yield for each array a sentence that says whether the text's digits are right."""
    for name, entries in walk.sheet.printed.digits.items() if walk.sheet.printed else []:
        computed = exact_arrays.flat(walk.arrays[name].tolist())
        pairs = list(zip(computed, exact_arrays.flat(entries), strict=True))
        wrong = [(exact, shown) for exact, shown in pairs if not digits_right(exact, shown)]
        if not wrong:
            yield (
                f"The text prints {name} in digits: all {len(pairs)} are the exact numbers, correctly rounded.",
            )
            continue
        exact, shown = wrong[0]
        yield (
            f"Of the {len(pairs)} numbers that the text prints for {name}, {len(wrong)} are not the exact ones "
            f"rounded: it has {shown} where ",
            decimal(exact, 9),
            " is right.",
        )


def rounding_sentence(walk: Walk) -> Iterator[Text]:
    """Yield sentences on how the text rounded the weights, and on the result of rounding to nearest."""
    printed = walk.sheet.printed
    if printed is None or "weights" not in printed.rounded:
        return
    result = reproduced_by(walk)
    called = f"to {places(walk)} decimal{'s' if places(walk) > 1 else ''}"
    if result:
        # Where several roundings reproduce the text, no option is named.
        option = f" (--rounding {result[0]})" if len(result) == 1 else ""
        yield (
            f"The text rounds its weights {called}, {' and '.join(_CALLED[how] for how in result)}{option}.",
        )
    else:
        yield (
            f"The text rounds its weights {called}, by none of the roundings known here: {', '.join(ROUNDINGS)}.",
        )
    if "nearest" not in result:
        yield from _against_nearest(walk, printed.rounded["weights"])
    if "output" in printed.rounded:
        yield (("What it prints next follows exactly from these weights." if follows(walk) else
                "What it prints next does not follow from these weights."),)  # fmt: skip


def _against_nearest(walk: Walk, printed: object) -> Iterator[Text]:
    near = objects(with_rounding(walk, "nearest")["weights"])
    exact, shown = walk.arrays["weights"], objects(printed)
    for index in np.ndindex(exact.shape):
        if near[index] == shown[index]:
            continue
        total = sum(near[index[:-1]], Quotient.of(0))
        yield (
            "Rounded to nearest, ",
            decimal(exact[index], 3),
            f" would be {near[index].decimal(6)}, not "
            f"{shown[index].decimal(6)}, and row {index[-2] + 1} would sum to {total.decimal(6)} "
            "(--rounding nearest).",
        )
        return


def _are_nested_numbers_equal(xs: object, ys: object) -> bool:
    if exact_arrays.shape_of(xs) != exact_arrays.shape_of(ys):
        return False
    return all(
        bool(x == y) for x, y in zip(exact_arrays.flat(xs), exact_arrays.flat(ys), strict=True)
    )


def objects(entries: object) -> Any:
    """Return nested lists as a NumPy array of objects."""
    out = np.empty(exact_arrays.shape_of(entries), dtype=object)
    out.reshape(-1)[:] = exact_arrays.flat(entries)
    return out


# -- roundings ---------------------------------------------------------------------------------------------------------
ROUNDINGS = ("exact", "nearest", "sum")


def floor(x: Any) -> int:
    """Return ⌊x⌋, from a ball, or by an exact comparison if the ball contains an integer."""
    rational = x.rational()
    if rational is not None:
        return int(rational // 1)
    # As many bits as the integer part has, and 64 more.
    integer = Quotient.of(abs(x).to_float()).rational() or 0
    bits = 64 + max(0, int(integer).bit_length())
    with flint.ctx.workprec(bits):
        ball = x.arb(bits)
        ends = (ball.lower(), ball.upper())
        low, high = (int(end.floor().unique_fmpz()) for end in ends)
    # A ball over an integer is decided by an exact comparison.
    return low if low == high or x < high else high


def nearest(x: Array | Quotient, places: int) -> Quotient:
    """Round x to the nearest multiple of 10^−places, ties to even."""
    unit = Fraction(1, 10**places)
    scaled = x * 10**places
    rational = scaled.rational()
    whole = floor(scaled + Fraction(1, 2)) if rational is None else round(rational)
    return Quotient.of(whole * unit)


def keeping_sum(row: Sequence[Any], places: int) -> list[Quotient]:
    """Round the row to multiples of 10^−places without changing its sum, by largest remainders.

    Every entry is rounded down; the difference from the sum is given, one unit each, to the entries with the largest
    remainders, earlier ones first among equals. Raises InputError if the sum is no multiple of 10^−places.
    Source: Balinski, Young, Fair Representation (1982), the method of Hamilton.
    """
    if any(isinstance(x, Enclosed) for x in row):
        raise InputError(
            "weights that only balls are known of have no exact sum to keep; hint: --rounding nearest"
        )
    scaled = [x * 10**places for x in row]
    total = sum(scaled, Quotient.of(0)).rational()
    if total is None or total.denominator != 1:
        shown = sum(row, Quotient.of(0))
        raise InputError(
            f"a row with the sum {shown} has no rounding to {places} places that keeps it"
        )
    whole = [floor(x) for x in scaled]
    remainders = [x - n for x, n in zip(scaled, whole, strict=True)]
    # As many units as rounding down has lost.
    for j in _find_largest_places(remainders, int(total) - sum(whole)):
        whole[j] += 1
    return [Quotient.of(Fraction(n, 10**places)) for n in whole]


def _find_largest_places(xs: Sequence[Any], count: int) -> list[int]:
    """Return the places of the ``count`` largest entries, earlier ones first among equals."""
    left = list(range(len(xs)))
    chosen = []
    for _ in range(count):
        best = left[0]
        for j in left[1:]:
            # Only a larger one replaces the best, so that earlier ones win ties.
            if xs[best] < xs[j]:
                best = j
        left.remove(best)
        chosen.append(best)
    return chosen


def rounded(weights: Any, how: str, places: int) -> Any:
    """Return nested rows of weights rounded as ``how`` says; an undefined row stays unchanged."""
    if weights and isinstance(weights[0], (list, tuple)):
        return [rounded(row, how, places) for row in weights]
    if how == "exact" or not all(map(is_number, exact_arrays.flat(weights))):
        return list(weights)
    return keeping_sum(weights, places) if how == "sum" else [nearest(x, places) for x in weights]
