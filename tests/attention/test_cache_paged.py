"""A cache in pages is a contiguous one: sequences of their own lengths, pages in any order, shared where they agree."""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, streaming
from tests.attention.definition import drawn, exactly, legal
from tests.attention.test_cache import decoded, window

SIZE, HEADS = 2, 2
TABLE = np.array([[4, 0, 6], [2, 5, 1]])
NEW = 5
DATA = drawn(31, q=(2, HEADS, NEW, 2), k=(2, HEADS, NEW, 2), v=(2, HEADS, NEW, 3))
SCORES = Attention(scale=1, heads=HEADS, mask="boolean")
CAUSAL = Attention(scale=1, heads=HEADS, causal=True)


def pages(k: Any, v: Any, table: np.ndarray = TABLE) -> streaming.Paged:
    """Seven pages of two slots, full of what does not belong there."""
    xp = k.__array_namespace__()
    junk = [xp.concat([x[:1, :, :SIZE] * 0 + 100] * 7, axis=0) for x in (k, v)]
    return streaming.Paged(*junk, table, np.zeros(2, dtype=np.int64))


paged = partial(decoded, pages, heads=HEADS)
FORMS = {
    "tokens": (partial(paged, range(NEW + 1)), CAUSAL),
    "chunks": (partial(paged, (0, 1, 4, 5)), CAUSAL),
    "at once": (partial(paged, (0, NEW)), CAUSAL),
    "beside": (partial(paged, (0, 1, 4, 5), before=True), CAUSAL),
    "window": (partial(paged, (0, 3, 5), mask=window), Attention(scale=1, heads=HEADS, causal=True, window=3)),
}


@pytest.mark.parametrize("name", FORMS)
def test_pages_give_what_contiguous_keys_give(name: str) -> None:
    form, definition = FORMS[name]
    assert exactly(form, definition, DATA)
    assert legal(form, DATA)


def filled(lengths: tuple[int, int], k: Any, v: Any) -> streaming.Paged:
    """Pages put together slot by slot, for sequences of these lengths."""

    def slot(x: Any, junk: Any, page: int, place: int) -> Any:
        for b, length in enumerate(lengths):
            for m in range(3):
                token = m * SIZE + place
                if TABLE[b, m] == page and token < length:
                    return x[b, :, token : token + 1]
        return junk[page, :, place : place + 1]

    def pool(x: Any, junk: Any) -> Any:
        xp = x.__array_namespace__()
        return xp.stack([xp.concat([slot(x, junk, p, i) for i in range(SIZE)], axis=-2) for p in range(7)])

    empty = pages(k, v)
    return streaming.Paged(pool(k, empty.k), pool(v, empty.v), TABLE, np.array(lengths))


LENGTHS = (3, 5)


def decode_step(q: Any, k: Any, v: Any, change: Any = lambda cache: cache) -> Any:
    """One query of each sequence, over 3 and 5 tokens in pages."""
    return streaming.attend(SCORES, q[..., :1, :], streaming.held(change(filled(LENGTHS, k, v))))


def each_alone(q: Any, k: Any, v: Any) -> Any:
    rows = [CAUSAL(q[b, :, :1], k[b, :, :n], v[b, :, :n]) for b, n in enumerate(LENGTHS)]
    return q.__array_namespace__().stack(rows)


def test_sequences_of_their_own_lengths() -> None:
    assert exactly(decode_step, each_alone, DATA)
    assert exactly(lambda q, k, v: streaming.held(filled((5, 5), k, v)).k[..., :5, :], lambda q, k, v: k, DATA)


FALSE = {
    "the pages in another order": lambda cache: cache._replace(table=cache.table[:, [1, 0, 2]]),
    "the pages of the other sequence": lambda cache: cache._replace(table=cache.table[::-1]),
    "a length too long": lambda cache: cache._replace(lengths=cache.lengths + 1),
    "a length too short": lambda cache: cache._replace(lengths=cache.lengths - 1),
    "one length for all": lambda cache: cache._replace(lengths=np.full(2, 5)),
    "a table that is transposed": lambda cache: cache._replace(table=np.reshape(cache.table.T, (2, 3))),
}


@pytest.mark.parametrize("name", FALSE)
def test_wrong_pages_are_refused(name: str) -> None:
    wrong = partial(decode_step, change=FALSE[name])
    assert not exactly(wrong, each_alone, DATA)
    assert not legal(wrong, DATA, bounded_by=decode_step)


@pytest.mark.parametrize("entry", [0, 3, -1])
def test_entries_beyond_the_length_mean_nothing(entry: int) -> None:
    table = TABLE.copy()
    table[0, 2] = entry  # the first sequence has 3 tokens, in two pages
    assert exactly(partial(decode_step, change=lambda cache: cache._replace(table=table)), each_alone, DATA)


# -- writing ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bounds", [(0, 5), (0, 2, 5), (0, 1, 2, 3, 4, 5), (0, 3, 4, 5)])
def test_pages_are_written_as_by_loops(bounds: tuple[int, ...]) -> None:
    k, v = DATA["k"], DATA["v"]
    cache = pages(k, v)
    for lo, hi in pairwise(bounds):
        cache = streaming.append(cache, k[..., lo:hi, :], v[..., lo:hi, :])
    wanted = filled((5, 5), k, v)
    assert np.array_equal(cache.k, wanted.k)
    assert np.array_equal(cache.v, wanted.v)
    assert cache.lengths.tolist() == [5, 5]


def test_lengths_that_differ_are_written_where_they_end() -> None:
    k, v = DATA["k"], DATA["v"]
    cache = streaming.append(
        filled((1, 3), k, v), np.stack([k[0, :, 1:2], k[1, :, 3:4]]), np.stack([v[0, :, 1:2], v[1, :, 3:4]])
    )
    wanted = filled((2, 4), k, v)
    assert np.array_equal(cache.k, wanted.k)
    assert np.array_equal(cache.v, wanted.v)


def test_pages_without_an_axis_of_heads() -> None:
    data = drawn(32, q=(2, 3, 2), k=(2, 3, 2), v=(2, 3, 1))

    def form(q: Any, k: Any, v: Any) -> Any:
        xp = k.__array_namespace__()
        empty = [xp.concat([x[:1, :SIZE] * 0] * 7, axis=0) for x in (k, v)]
        cache = streaming.append(streaming.Paged(*empty, TABLE, np.zeros(2, dtype=np.int64)), k, v)
        return streaming.attend(Attention(mask="boolean"), q, streaming.held(cache))

    assert exactly(form, Attention(causal=True), data)


def test_shared_pages_are_read_and_not_written() -> None:
    """Two sequences with one prompt of two tokens: its page is named by both."""
    k, v = DATA["k"], DATA["v"]
    same = [np.concatenate([np.stack([x[0, :, :2]] * 2), x[..., 2:3, :]], axis=-2) for x in (k, v)]
    cache = streaming.Paged(*pages(k, v)[:2], np.array([[4, 0], [4, 5]]), np.array([0, 0]))
    first = streaming.append(
        cache._replace(table=np.array([[4, 0]]), lengths=np.array([0])), same[0][:1, :, :2], same[1][:1, :, :2]
    )
    both = streaming.append(
        streaming.Paged(first.k, first.v, cache.table, np.array([2, 2])), same[0][..., 2:, :], same[1][..., 2:, :]
    )
    got = streaming.attend(SCORES, DATA["q"][..., :1, :], streaming.held(both))
    np.testing.assert_allclose(got, CAUSAL(DATA["q"][..., :1, :], *same), rtol=1e-13)
    with pytest.raises(InputError, match="two sequences write to one slot"):
        streaming.append(cache, same[0], same[1])
    shared = both._replace(table=np.array([[4, 0], [0, 5]]), lengths=np.array([3, 1]))
    with pytest.raises(InputError, match="written over one that a sequence has"):
        streaming.append(
            shared._replace(table=np.array([[4, 0], [4, 5]]), lengths=np.array([2, 1])), k[..., :1, :], v[..., :1, :]
        )


def test_no_page() -> None:
    k, v = DATA["k"], DATA["v"]
    with pytest.raises(InputError, match="a sequence of 7 tokens in a table with room for 6"):
        streaming.append(filled((2, 4), k, v), k[..., :3, :], v[..., :3, :])
    missing = TABLE.copy()
    missing[1, 2] = -1
    with pytest.raises(InputError, match="names a page that is not there; there are 7 pages"):
        streaming.append(filled((4, 4), k, v)._replace(table=missing), k[..., :1, :], v[..., :1, :])
