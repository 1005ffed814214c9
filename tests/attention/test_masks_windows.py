"""Windows, blocks, prefixes and padding: against the sentences that define them, place by place."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Refused, functional, kind, kinds, proving
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
            yield f"window {left} {right}", lambda s, a, p=(left, right): functional.sides(s, *p, a), spec
    for size in (1, 2, 4, 30):
        yield (
            f"blocks of {size}",
            lambda s, a, b=size: functional.blocks(s, functional.block_bounds(s, b), a),
            Attention(block=size),
        )
    for length in (0, 1, 3, 30):
        spec = Attention(causal=True, prefix=length or None)
        yield f"prefix of {length}", lambda s, a, p=length: functional.prefix(s, p, a), spec
    yield "causal", functional.causal, Attention(causal=True)


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
    found = functional.causal(s) & functional.blocks(s, functional.block_bounds(s, 4))
    rows = ["1111", "00001", "000011", "0000111", "00001111", "000000001", "0000000011"]
    assert [list(map(int, row.ljust(10, "0"))) for row in rows] == found.astype(int).tolist()


def test_the_sliding_window_is_one_with_sides() -> None:
    for n_q, n_k in SIZES:
        s = np.zeros((n_q, n_k))
        for width in (1, 2, 5):
            assert np.array_equal(functional.window(s, width), functional.sides(s, width - 1, 0))
            assert np.array_equal(
                functional.window(s, width), functional.causal(s) & functional.sides(s, width - 1, None)
            )
        assert not np.array_equal(functional.window(np.zeros((3, 3)), 2), functional.sides(np.zeros((3, 3)), 2, 0))


def test_a_window_without_sides_is_refused() -> None:
    refuses(functional.sides, np.zeros((2, 2)), says="open on both sides")


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_by_lengths(side: str) -> None:
    lengths = np.array([[0, 3], [4, 1]])
    keep = functional.real_keys(lengths, 4, side)
    for place in np.ndindex(2, 2):
        n = int(lengths[place])
        assert keep[place].tolist() == ([True] * n + [False] * (4 - n))[:: 1 if side == "right" else -1]
    assert functional.padding(keep).shape == (2, 2, 1, 4)


def test_left_and_right_padding_give_the_same_rows() -> None:
    """Two sequences of lengths 2 and 3, padded to 4 on either side, are what they are alone."""
    exact = kind("exact")
    draw = np.random.default_rng(3)
    long = [tuple(exact.lift(draw.integers(-3, 4, (n, d)) / 2) for d in (2, 2, 3)) for n in (2, 3)]
    for side in ("left", "right"):
        keep = functional.real_keys(np.array([2, 3]), 4, side)
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
    made = proving.Letters()
    return (made, *[made.array(n, shape, proving.Declared(shapes)) for n, shape in shapes.items()])


def attended(s: Any, allowed: Any, v: Any) -> Any:
    return functional.softmax(functional.forbid(s, allowed), fully_masked="nan") @ v


def test_blocks_are_each_alone_for_all_sizes() -> None:
    w, s, v = world(s="a+b a+b", v="a+b d")
    a = w.length("a")
    found = attended(s, functional.blocks(s, [a]), v)
    assert proving.prove_equal(found[:a], functional.softmax(s[:a, :a]) @ v[:a]).proved
    assert proving.prove_equal(found[a:], functional.softmax(s[a:, a:]) @ v[a:]).proved
    assert not proving.prove_equal(found[:a], functional.softmax(s[:a]) @ v).proved


def test_a_prefix_is_seen_whole_for_all_sizes() -> None:
    w, s, v = world(s="a+b a+b", v="a+b d")
    a = w.length("a")
    found = attended(s, functional.prefix(s, a), v)
    assert proving.prove_equal(found[:a], functional.softmax(s[:a, :a]) @ v[:a]).proved
    assert proving.prove_equal(found[a:], attended(s, functional.causal(s), v)[a:]).proved
    assert not proving.prove_equal(found[:a], attended(s, functional.causal(s), v)[:a]).proved


def test_a_window_that_reaches_the_start_is_causal_for_all_sizes() -> None:
    w, s, v = world(s="r+1 r+1", v="r+1 d")
    r = w.length("r")
    last = attended(s, functional.sides(s, r, 0), v)[r:]
    assert proving.prove_equal(last, functional.softmax(s[r:]) @ v).proved
    assert not proving.prove_equal(last, functional.softmax(s[r:, r:]) @ v[r:]).proved


def test_blocks_of_a_number_of_keys_need_numbers_for_sizes() -> None:
    refuses(
        functional.block_bounds, kinds.Indexed.letters("s", "n", "n"), 4, kind=Refused, says="the size n is a letter"
    )


# -- Packed documents: one packed run gives what each document gives alone ---------------------------------------------
DRAW = np.random.default_rng(11)
PACKED = np.array([0, 3, 4, 6])  # documents of 3, 1 and 2 tokens
CACHED = np.array([0, 4, 5, 9])  # their keys: caches of 1, 0 and 2 tokens before them


def attended_in(s: Any, allowed: Any, v: Any) -> Any:
    return functional.softmax(functional.forbid(s, allowed), fully_masked="zeros") @ v


def arrays(n_q: int, n_k: int) -> tuple[Any, Any]:
    exact = kind("exact")
    s = functional.dot_scores(
        exact.lift(DRAW.integers(-3, 4, (n_q, 2)) / 2), exact.lift(DRAW.integers(-3, 4, (n_k, 2)) / 2)
    )
    return s, exact.lift(DRAW.integers(-3, 4, (n_k, 3)))


#: Masks that go by position, as functions of scores (of one document) or of places (of all), and of an alignment.
POSITIONAL = {
    "none": None,
    "causal": functional.causal,
    "window": lambda s, a: functional.sides(s, 1, 0, a),
    "window with two sides": lambda s, a: functional.sides(s, 1, 2, a),
    "blocks": lambda s, a: functional.blocks(s, functional.block_bounds(s, 2), a),
    "prefix": lambda s, a: functional.prefix(s, 2, a),
}


@pytest.mark.parametrize("name", POSITIONAL)
@pytest.mark.parametrize("alignment", ["bottom-right", "top-left"])
@pytest.mark.parametrize("of_keys", [PACKED, CACHED], ids=["self", "with caches"])
def test_packed_is_each_document_alone(name: str, alignment: str, of_keys: np.ndarray) -> None:
    n_q, n_k = int(PACKED[-1]), int(of_keys[-1])
    s, v = arrays(n_q, n_k)
    queries, keys = functional.labels(PACKED, n_q), functional.labels(of_keys, n_k)
    mask = POSITIONAL[name]
    allowed = functional.same_document(queries, keys)
    if mask:
        allowed = allowed & mask(functional.document_places(queries, keys, alignment), alignment)
    packed = attended_in(s, allowed, v)
    for (q, p), (k, m) in zip(pairwise(map(int, PACKED)), pairwise(map(int, of_keys)), strict=True):
        alone = s[q:p, k:m]
        here = mask(alone, alignment) if mask else np.ones(alone.shape, dtype=bool)
        assert (packed[q:p] == attended_in(alone, here, v[k:m])).all()


def test_without_labels_documents_see_each_other() -> None:
    s, v = arrays(6, 6)
    of = functional.labels(PACKED, 6)
    assert not (
        attended_in(s, functional.causal(s), v)
        == attended_in(s, functional.causal(s) & functional.same_document(of, of), v)
    ).all()


def test_one_order_for_all_is_the_documents_own_only_if_queries_are_keys() -> None:
    """With caches of different lengths the causal mask of the whole is not that of the documents."""
    for of_keys, same in ((PACKED, True), (CACHED, False)):
        queries, keys = functional.labels(PACKED, 6), functional.labels(of_keys, int(of_keys[-1]))
        together = functional.same_document(queries, keys)
        own = together & functional.causal(functional.document_places(queries, keys))
        assert np.array_equal(own, together & functional.causal(np.zeros(own.shape))) == same


def test_labels_count_the_documents_that_began() -> None:
    assert functional.labels(PACKED, 6).tolist() == [0, 0, 0, 1, 2, 2]
    assert functional.labels(np.array([0, 2, 2, 3]), 5).tolist() == [
        0,
        0,
        2,
        3,
        3,
    ]  # an empty document, and tokens after the last
    assert functional.labels(np.array([[0, 1], [0, 3]]), 3).tolist() == [[0, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize("seed", range(4))
def test_places_by_walking_through_the_tokens(seed: int) -> None:
    """Labels need not be in order, nor next to each other."""
    draw = np.random.default_rng(seed)
    queries, keys = draw.integers(0, 3, 5), draw.integers(0, 3, 7)
    for alignment in ("bottom-right", "top-left"):
        found = functional.document_places(queries, keys, alignment)
        for t, label in enumerate(keys):
            assert found.j[0, t] == keys[:t].tolist().count(label)
        for t, label in enumerate(queries):
            late = keys.tolist().count(label) - queries.tolist().count(label) if alignment == "bottom-right" else 0
            assert found.i[t, 0] == queries[:t].tolist().count(label) + late


def test_each_batch_has_its_own_documents() -> None:
    of = DRAW.integers(0, 2, (2, 4))
    found = functional.document_places(of, of)
    for b in range(2):
        alone = functional.document_places(of[b], of[b])
        assert np.array_equal(found.i[b], alone.i)
        assert np.array_equal(found.j[b], alone.j)
        assert np.array_equal(functional.same_document(of, of)[b], functional.same_document(of[b], of[b]))


def test_a_document_of_its_own_for_each_token_gives_its_value() -> None:
    s, v = arrays(4, 4)
    of = np.arange(4)
    for mask in (m for m in POSITIONAL.values() if m):
        assert (
            attended_in(
                s, functional.same_document(of, of) & mask(functional.document_places(of, of), "bottom-right"), v
            )
            == v
        ).all()


def test_every_rule_is_tried_where_it_forbids() -> None:
    for name, alignment in product(POSITIONAL, ("bottom-right", "top-left")):
        mask = POSITIONAL[name]
        if mask and name != "prefix":
            queries, keys = functional.labels(PACKED, 6), functional.labels(CACHED, 9)
            together = functional.same_document(queries, keys)
            assert (together & ~mask(functional.document_places(queries, keys, alignment), alignment)).any()
