"""Windows, blocks, prefixes and padding: against the sentences that define them, place by place."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from symattn.arrays import kind
from symattn.arrays.indexed import Indexed
from symattn.attention import masks
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.document.errors import Refused
from symattn.proof.prover import prove
from symattn.proof.statement import Declared, Letters
from tests.attention.by_loops import may
from tests.refusals import refuses

SIZES = [(3, 3), (2, 5), (5, 2), (1, 4), (4, 1), (7, 10)]
ALIGNMENTS = ["bottom-right", "top-left"]


def cases() -> Iterator[tuple[str, Any, Attention]]:
    """A mask as a function of scores and an alignment, and the specification of which loops say what it lets in."""
    sides = [0, 1, 3, None]
    for left, right in product(sides, sides):
        if (left, right) != (None, None):
            spec = Attention(window=(left, right))
            yield f"window {left} {right}", lambda s, a, p=(left, right): masks.sides(s, *p, a), spec
    for size in (1, 2, 4, 30):
        yield (
            f"blocks of {size}",
            lambda s, a, b=size: masks.blocks(s, masks.block_bounds(s, b), a),
            Attention(block=size),
        )
    for length in (0, 1, 3, 30):
        spec = Attention(causal=True, prefix=length or None)
        yield f"prefix of {length}", lambda s, a, p=length: masks.prefix(s, p, a), spec
    yield "causal", masks.causal, Attention(causal=True)


CASES = {name: (mask, spec) for name, mask, spec in cases()}


def by_loops(spec: Attention, n_q: int, n_k: int, alignment: Any) -> np.ndarray:
    placed = replace(spec, alignment=alignment)
    return np.array([[may(placed, {}, n_q, n_k, i, j) for j in range(n_k)] for i in range(n_q)])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_a_mask_is_what_its_words_say(name: str, alignment: str) -> None:
    mask, spec = CASES[name]
    for n_q, n_k in SIZES:
        found = mask(np.zeros((2, n_q, n_k)), alignment)
        assert found.dtype == bool
        assert np.array_equal(found, by_loops(spec, n_q, n_k, alignment))


def test_other_words_are_told_apart() -> None:
    """A rule that is off by one somewhere gives another mask, and so does the other alignment."""
    wrong = {
        "window 1 1": Attention(window=(1, 2)), "window 3 0": Attention(window=(2, 0)),
        "window None 1": Attention(window=(None, 0)), "blocks of 2": Attention(block=3),
        "prefix of 3": Attention(causal=True, prefix=4), "causal": Attention(window=(None, 1)),
    }  # fmt: skip
    for name, spec in wrong.items():
        mask, s = CASES[name][0], np.zeros((7, 10))
        assert not np.array_equal(mask(s, "top-left"), by_loops(spec, 7, 10, "top-left"))
        assert not np.array_equal(mask(s, "top-left"), mask(s, "bottom-right"))


def test_a_known_picture() -> None:
    """The example of the causal mask in chunks of 4 that Modular documents for Llama 4 (``ChunkedCausalMask``)."""
    s = np.zeros((7, 10))
    found = masks.causal(s) & masks.blocks(s, masks.block_bounds(s, 4))
    rows = ["1111", "00001", "000011", "0000111", "00001111", "000000001", "0000000011"]
    assert [list(map(int, row.ljust(10, "0"))) for row in rows] == found.astype(int).tolist()


def test_the_sliding_window_is_one_with_sides() -> None:
    for n_q, n_k in SIZES:
        s = np.zeros((n_q, n_k))
        for width in (1, 2, 5):
            assert np.array_equal(masks.window(s, width), masks.sides(s, width - 1, 0))
            assert np.array_equal(masks.window(s, width), masks.causal(s) & masks.sides(s, width - 1, None))
        assert not np.array_equal(masks.window(np.zeros((3, 3)), 2), masks.sides(np.zeros((3, 3)), 2, 0))


def test_a_window_without_sides_is_refused() -> None:
    refuses(masks.sides, np.zeros((2, 2)), says="open on both sides")


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_by_lengths(side: str) -> None:
    lengths = np.array([[0, 3], [4, 1]])
    keep = masks.real_keys(lengths, 4, side)
    for place in np.ndindex(2, 2):
        n = int(lengths[place])
        assert keep[place].tolist() == ([True] * n + [False] * (4 - n))[:: 1 if side == "right" else -1]
    assert masks.padding(keep).shape == (2, 2, 1, 4)


def test_left_and_right_padding_give_the_same_rows() -> None:
    """Two sequences of lengths 2 and 3, padded to 4 on either side, are what they are alone."""
    exact = kind("exact")
    draw = np.random.default_rng(3)
    long = [tuple(exact.lift(draw.integers(-3, 4, (n, d)) / 2) for d in (2, 2, 3)) for n in (2, 3)]
    for side in ("left", "right"):
        keep = masks.real_keys(np.array([2, 3]), 4, side)
        for b, qkv in enumerate(long):
            n = int(qkv[0].shape[0])
            fill = [exact.lift(np.full((4 - n, int(x.shape[1])), 7.0)) for x in qkv]
            parts = [exact.xp.concat([x, f] if side == "right" else [f, x]) for x, f in zip(qkv, fill, strict=True)]
            whole = Attention(causal=True, padding=True)(*parts, keep=keep[b])
            real = whole[:n] if side == "right" else whole[4 - n :]
            assert (real == Attention(causal=True)(*qkv)).all()
            assert side == "right" or (whole[: 4 - n] == 0).all()


@pytest.mark.parametrize("name", ["exact", "ball", "symbolic", "bfloat16"])
def test_masks_of_other_kinds_are_plain(name: str) -> None:
    s = kind(name).lift(np.zeros((2, 5)))
    for mask, _ in CASES.values():
        assert np.array_equal(mask(s, "bottom-right"), mask(np.zeros((2, 5)), "bottom-right"))


# -- for all sizes ----------------------------------------------------------------------------------------------------
def world(**shapes: str) -> tuple[Any, ...]:
    made = Letters()
    return (made, *[made.array(n, shape, Declared(shapes)) for n, shape in shapes.items()])


def attended(s: Any, allowed: Any, v: Any) -> Any:
    return softmax(masks.forbid(s, allowed), fully_masked="nan") @ v


def test_blocks_are_each_alone_for_all_sizes() -> None:
    w, s, v = world(s="a+b a+b", v="a+b d")
    a = w.length("a")
    found = attended(s, masks.blocks(s, [a]), v)
    assert prove(found[:a], softmax(s[:a, :a]) @ v[:a]).proved
    assert prove(found[a:], softmax(s[a:, a:]) @ v[a:]).proved
    assert not prove(found[:a], softmax(s[:a]) @ v).proved


def test_a_prefix_is_seen_whole_for_all_sizes() -> None:
    w, s, v = world(s="a+b a+b", v="a+b d")
    a = w.length("a")
    found = attended(s, masks.prefix(s, a), v)
    assert prove(found[:a], softmax(s[:a, :a]) @ v[:a]).proved
    assert prove(found[a:], attended(s, masks.causal(s), v)[a:]).proved
    assert not prove(found[:a], attended(s, masks.causal(s), v)[:a]).proved


def test_a_window_that_reaches_the_start_is_causal_for_all_sizes() -> None:
    w, s, v = world(s="r+1 r+1", v="r+1 d")
    r = w.length("r")
    last = attended(s, masks.sides(s, r, 0), v)[r:]
    assert prove(last, softmax(s[r:]) @ v).proved
    assert not prove(last, softmax(s[r:, r:]) @ v[r:]).proved


def test_blocks_of_a_number_of_keys_need_numbers_for_sizes() -> None:
    refuses(masks.block_bounds, Indexed.letters("s", "n", "n"), 4, kind=Refused, says="the size n is a letter")
