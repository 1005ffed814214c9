"""Orders of sums are recovered from outputs, what is no order is refused, and so is every other order."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn import Grade, summation
from tests.verification.sums import ORDERS, Adding, back, halves, lanes, loop, pairs, split, tiles, tree_of

Array = np.ndarray
TYPES: dict[str, type] = {
    "bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32, "float64": np.float64
}  # fmt: skip


def asked(adding: Adding, n: int, format: str = "bfloat16", inside: type = np.float32) -> Any:
    """What is said of a sum of n terms in a format, taken in another one."""

    def sums(x: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.asarray(adding(list(x.T.astype(inside))), dtype=inside).astype(TYPES[format])

    return summation(sums, terms=n, dtype=format)


def accumulators(found: Any) -> list[tuple[int, bool, bool]]:
    """Where terms first meet and on the way to the whole sum: digits, whether to nearest, ties away from zero."""
    return [(width.digits, width.nearest, width.away) for width in found.widths]


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_recovered(name: str) -> None:
    for n in (128, 75):
        assert asked(ORDERS[name], n).tree == tree_of(ORDERS[name], n), n


@pytest.mark.deep
@pytest.mark.parametrize("format", TYPES)
@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_recovered_in_every_format(name: str, format: str) -> None:
    inside = np.float64 if format == "float64" else np.float32
    for n in (64, 100, 128):
        assert asked(ORDERS[name], n, format, inside).tree == tree_of(ORDERS[name], n), n
    if format != "float64":
        assert asked(ORDERS[name], 64, format, TYPES[format]).tree == tree_of(ORDERS[name], 64)


WORDS = {
    "loop": "128 terms are added in order, from the first to the last.",
    "back": "128 terms are added in order, from the last to the first.",
    "pairs": "128 terms are added in pairs of neighbours, again and again.",
    "halves": "128 terms are added in pairs half the length apart, again and again.",
    "2 lanes": "128 terms are added in 2 lanes, even and odd, which are added in order; within a lane: in order, from "
    "the first to the last.",
    "8 lanes in pairs": "128 terms are added in 8 lanes, every 8th, which are added in pairs of neighbours; within a "
    "lane: in order, from the first to the last.",
    "tiles of 64": "128 terms are added by tiles of 64, added in order; within a tile: in order, from the first to the "
    "last. With 128 and 256 terms there are tiles of 64.",
    "tiles of 32 back": "128 terms are added by tiles of 32, added from the last to the first; within a tile: in "
    "order, from the first to the last. With 128 and 256 terms there are tiles of 32.",
    "split in 2": "128 terms are added by tiles of 64, added in order; within a tile: tiles of 16, added in order; "
    "within a tile: in order, from the first to the last. With 128 and 256 terms there are 2 parts (split-K), and "
    "tiles of 16.",
    "split in 4, in pairs": "128 terms are added by tiles of 32, added in pairs of neighbours; within a tile: in "
    "order, from the first to the last. With 128 and 256 terms there are 4 parts (split-K).",
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_an_order_in_words(name: str) -> None:
    found = asked(ORDERS[name], 128)
    assert (
        " ".join(found.words) == f"{WORDS[name]} The accumulators have 24 digits, as float32 has, rounded to nearest."
    )


def test_a_tail_in_another_order() -> None:
    def adding(terms: Any) -> Any:
        return loop([loop(terms[:32]), loop(terms[32:64]), back(terms[64:])])

    words = "by tiles of 32, the last of 11 (in order, from the last to the first), added in order"
    assert words in asked(adding, 75).words[0]


def fours(terms: Sequence[Any]) -> Any:
    """Groups of four, each in pairs, added in order."""
    return tiles(4, pairs)(terms)


INNER = {
    "loop": loop, "back": back, "pairs": pairs, "halves": halves, "2 lanes": lanes(2), "4 lanes in pairs":
    lanes(4, loop, pairs), "fours": fours, "tiles of 8": tiles(8), "tiles of 8 in pairs": tiles(8, pairs),
}  # fmt: skip


@pytest.mark.parametrize("inner", ["loop", "pairs", "fours", *(pytest.param(n, marks=pytest.mark.deep) for n in INNER)])
@pytest.mark.parametrize("merge", [loop, back, pairs])
def test_no_other_tile_and_no_other_number_of_parts_is_told(inner: str, merge: Adding) -> None:
    for size in (8, 16):
        found = asked(tiles(size, INNER[inner], merge), 64)
        if found.reading.size == size:  # else it is a plainer order with the same tree
            assert (found.longer, found.tile, found.split) == (128, size, 0)
    for count in (2, 4):
        found = asked(split(count, INNER[inner], merge), 64)
        if found.reading.size == 64 // count:
            assert (found.longer, found.split) == (128, count)
            tile = {"fours": 4, "tiles of 8": 8, "tiles of 8 in pairs": 8}.get(inner)
            assert found.tile in (0, tile)


def _at_once(terms: list[Array]) -> Array:
    """As matrix units do: aligned to the largest, what is below 26 digits of it cut off."""
    x = np.stack(terms).astype(float)
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(x).max(axis=0), 1e-300))) - 25)
    return np.asarray((np.trunc(x / unit) * unit).sum(axis=0), dtype=np.float32)


def test_many_terms_at_once() -> None:
    """All of them, half of them, and beside one part of them that is not."""
    for n, adding, parts in (
        (128, lambda terms: _at_once(list(terms)), [range(128)]),
        (128, lambda terms: _at_once([_at_once(terms[:64]), *terms[64:]]), [range(64), range(128)]),
        (64, lambda terms: _at_once([*terms[:9], terms[9] + terms[17], *terms[10:17], *terms[18:]]),
         [(9, 17), range(64)]),
    ):  # fmt: skip
        found = asked(adding, n, "float32")
        assert {*found.tree.subtrees} == {frozenset(part) for part in parts}
        assert found.calls < (40 if n == 128 else 96)


def test_a_term_that_comes_last_is_no_tile() -> None:
    found = asked(lambda terms: loop([*terms[::2], *terms[1::2]]), 64)
    assert (found.reading.way, found.tree) == ("other", tree_of(lambda terms: loop([*terms[::2], *terms[1::2]]), 64))


def test_lanes_are_counted_in_english() -> None:
    for count, word in ((3, "3rd"), (22, "22nd"), (13, "13th")):
        assert f"{count} lanes, every {word}," in asked(lanes(count), 4 * count).words[0]


def test_an_order_without_a_name() -> None:
    def odd(terms: Any) -> Any:
        return loop([terms[i] for i in (3, 0, 2, 1, 7, 5, 4, 6)])

    found = asked(odd, 8)
    assert found.tree == tree_of(odd, 8)
    assert (found.reading.way, found.text) == ("other", "0+3+2+1+7+5+4+6")


@pytest.mark.parametrize(
    ("adding", "lines"),
    [
        (loop, ["0+1+…+127"]),
        (back, ["127+126+…+0"]),
        (pairs, ["pairs(0, 1, …, 127)"]),
        (lanes(2), ["  (0+2+…+126)", "+ (1+3+…+127)"]),
        (tiles(64), ["  (0+1+…+63)", "+ (64+65+…+127)"]),
        (tiles(32, lanes(2), back), [
            "  ((96+98+…+126)+(97+99+…+127))", "+ ((64+66+…+94)+(65+67+…+95))", "+ ((32+34+…+62)+(33+35+…+63))",
            "+ ((0+2+…+30)+(1+3+…+31))",
        ]),
    ],
)  # fmt: skip
def test_a_tree_as_text(adding: Adding, lines: list[str]) -> None:
    assert asked(adding, 128).text.splitlines() == lines


# -- what is no order --------------------------------------------------------------------------------------------------
def compensated(terms: Any) -> Any:
    """W. Kahan's and A. Neumaier's: what is lost is common_parts beside the sum."""
    total, lost = terms[0], terms[0] * 0
    for x in terms[1:]:
        new = total + x
        lost = lost + np.where(np.abs(total) >= np.abs(x), (total - new) + x, (x - new) + total)
        total = new
    return total + lost


def exact(terms: Any) -> Any:
    return np.array([math.fsum(column) for column in np.stack(terms, axis=1)])


def shuffled() -> Adding:
    """Another order in every call."""
    rng = np.random.default_rng(0)
    return lambda terms: loop([terms[i] for i in rng.permutation(len(terms))])


def by_zeros(terms: Any) -> Any:
    """From the first to the last, unless a term is 0."""
    there = np.all(np.stack(terms) != 0, axis=0)
    return np.where(there, loop(terms), back(terms))


def no_number(terms: Any) -> Any:
    return loop(terms) * np.nan


def largest(terms: Any) -> Any:
    return np.max(terms, axis=0)


@pytest.mark.parametrize(
    ("adding", "why"),
    [
        (compensated, "no order of adding loses what this sum loses"),
        (exact, "no order of adding loses what this sum loses"),
        (shuffled(), ""),
        (by_zeros, "further pairs of terms contradict every order"),
        (no_number, "large terms that cancel give NaN or infinity"),
        (largest, "do not add up to their number"),
    ],
    ids=["compensated", "exact", "shuffled", "by zeros", "NaN", "maximum"],
)
def test_what_is_no_order_is_not_told(adding: Adding, why: str) -> None:
    found = asked(adding, 64, "float32")
    assert found.tree is None
    assert why in found.words[0]
    assert found.words[0].startswith("The order in which terms are added cannot be determined: ")
    assert found.grade is Grade.UNDECIDED


@pytest.mark.deep
def test_calls_are_bounded() -> None:
    found = summation(lambda x: x.astype(np.float32).sum(axis=-1), terms=1024, dtype="bfloat16")
    assert "96 calls do not tell its order" in found.words[0]
    assert found.calls == 96


# -- digits ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("inside", "digits"), [(np.float64, 53), (np.float32, 24), (np.float16, 11), (ml_dtypes.bfloat16, 8)]
)
def test_digits_of_an_accumulator(inside: type, digits: int) -> None:
    found = asked(tiles(16), 64, "float32" if inside is not np.float16 else "float16", inside)
    assert accumulators(found) == [(digits, True, False)] * 2


def _cut(x: Array) -> Array:
    """Toward zero, in float32."""
    short = x.astype(np.float32)
    over = np.abs(short.astype(float)) > np.abs(x)
    return np.where(over, np.nextafter(short, np.float32(0)), short).astype(float)


def _each(after: Callable[[Array], Array]) -> Adding:
    """A loop in float64 that makes something of every partial sum."""

    def adding(terms: Any) -> Any:
        total = terms[0]
        for x in terms[1:]:
            total = after(total + x)
        return total

    return adding


def test_an_accumulator_that_cuts_off() -> None:
    assert accumulators(asked(_each(_cut), 64, "float32", np.float64)) == [(24, False, False)] * 2


def _half_up(x: Array) -> Array:
    """To bfloat16, as by adding 0x8000 to the bits: ties go away from zero."""
    bits = (x.astype(np.float32).view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(float)


def test_ties_that_go_away_from_zero() -> None:
    found = asked(_each(_half_up), 64, "float32", np.float64)
    assert accumulators(found) == [(8, True, True)] * 2
    assert found.words[1].endswith("rounded to nearest, ties away from zero.")


def test_a_compensated_sum_in_order_has_no_digits() -> None:
    """W. Kahan's loses large terms as a plain loop does, and keeps small ones."""

    def kahan(terms: Any) -> Any:
        total, lost = terms[0] * 0, terms[0] * 0
        for x in terms:
            y = x - lost
            new = total + y
            total, lost = new, (new - total) - y
        return total

    found = asked(kahan, 64, "float32")
    assert found.tree == tree_of(loop, 64)
    assert found.widths is None
    assert "survive together, as in a compensated sum" in found.words[1]


def _narrow(terms: Any) -> Any:
    """In bfloat16, one after the other."""
    total = terms[0].astype(ml_dtypes.bfloat16)
    for x in terms[1:]:
        total = (total.astype(np.float32) + x).astype(ml_dtypes.bfloat16)
    return total.astype(np.float32)


def test_accumulators_that_differ() -> None:
    """Of one half, or of the sum of tiles."""

    def half(terms: Any) -> Any:
        return loop(terms[:32]) + _narrow(terms[32:])

    for adding, digits, meets in ((half, 24, (32, 33)), (tiles(16, _narrow), 8, (0, 16))):
        found = asked(adding, 64, "float32")
        assert found.words[-1].startswith(f"Where terms 0 and 1 meet, accumulators have {digits} digits")
        assert found.words[-1].endswith(f"; where terms {meets[0]} and {meets[1]} meet, it is not so.")
        assert found.apart == ((0, 1), meets)
    for adding in (tiles(16), lanes(4), pairs, tiles(16, _cast)):
        assert asked(adding, 64, "float32").apart is None


def _cast(terms: Any) -> Any:
    """A loop whose result is stored in bfloat16."""
    return loop(terms).astype(ml_dtypes.bfloat16).astype(np.float32)


def test_partial_sums_that_are_stored() -> None:
    def stored(terms: Any) -> Any:
        return loop(terms).astype(ml_dtypes.bfloat16).astype(np.float32)

    found = asked(tiles(16, stored), 64)
    assert accumulators(found) == [(24, True, False), (8, True, False)]
    assert found.words[-1] == (
        "Terms are first added with 24 digits, as float32 has, rounded to nearest; on the way to the whole sum only "
        "8 digits, as bfloat16 has, rounded to nearest."
    )


def test_terms_that_are_added_at_once() -> None:
    def fours(terms: Any) -> Any:
        total = terms[0] * 0
        for i in range(0, len(terms), 4):
            total = _at_once([total, *terms[i : i + 4]])
        return total

    found = asked(fours, 64)
    assert (found.reading.way, found.reading.step) == ("order", 4)
    assert "in order, from the first to the last, 4 at a time." in found.words[0]
    assert {*found.tree.subtrees} == {frozenset(range(4 * k)) for k in range(1, 17)}
