"""Packed documents: one packed run gives what each document gives alone."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from symattn.arrays import kind
from symattn.attention import masks
from symattn.attention.masks import document_places, labels, same_document
from symattn.attention.scores import dot_scores
from symattn.attention.softmax import softmax

DRAW = np.random.default_rng(11)
PACKED = np.array([0, 3, 4, 6])  # documents of 3, 1 and 2 tokens
CACHED = np.array([0, 4, 5, 9])  # their keys: caches of 1, 0 and 2 tokens before them


def attended(s: Any, allowed: Any, v: Any) -> Any:
    return softmax(masks.forbid(s, allowed), fully_masked="zeros") @ v


def arrays(n_q: int, n_k: int) -> tuple[Any, Any]:
    exact = kind("exact")
    s = dot_scores(exact.lift(DRAW.integers(-3, 4, (n_q, 2)) / 2), exact.lift(DRAW.integers(-3, 4, (n_k, 2)) / 2))
    return s, exact.lift(DRAW.integers(-3, 4, (n_k, 3)))


#: Masks that go by position, as functions of scores (of one document) or of places (of all), and of an alignment.
POSITIONAL = {
    "none": None,
    "causal": masks.causal,
    "window": lambda s, a: masks.sides(s, 1, 0, a),
    "window with two sides": lambda s, a: masks.sides(s, 1, 2, a),
    "blocks": lambda s, a: masks.blocks(s, masks.block_bounds(s, 2), a),
    "prefix": lambda s, a: masks.prefix(s, 2, a),
}


@pytest.mark.parametrize("name", POSITIONAL)
@pytest.mark.parametrize("alignment", ["bottom-right", "top-left"])
@pytest.mark.parametrize("of_keys", [PACKED, CACHED], ids=["self", "with caches"])
def test_packed_is_each_document_alone(name: str, alignment: str, of_keys: np.ndarray) -> None:
    n_q, n_k = int(PACKED[-1]), int(of_keys[-1])
    s, v = arrays(n_q, n_k)
    queries, keys = labels(PACKED, n_q), labels(of_keys, n_k)
    mask = POSITIONAL[name]
    allowed = same_document(queries, keys)
    if mask:
        allowed = allowed & mask(document_places(queries, keys, alignment), alignment)
    packed = attended(s, allowed, v)
    for (q, p), (k, m) in zip(pairwise(map(int, PACKED)), pairwise(map(int, of_keys)), strict=True):
        alone = s[q:p, k:m]
        here = mask(alone, alignment) if mask else np.ones(alone.shape, dtype=bool)
        assert (packed[q:p] == attended(alone, here, v[k:m])).all()


def test_without_labels_documents_see_each_other() -> None:
    s, v = arrays(6, 6)
    of = labels(PACKED, 6)
    assert not (attended(s, masks.causal(s), v) == attended(s, masks.causal(s) & same_document(of, of), v)).all()


def test_one_order_for_all_is_the_documents_own_only_if_queries_are_keys() -> None:
    """With caches of different lengths the causal mask of the whole is not that of the documents."""
    for of_keys, same in ((PACKED, True), (CACHED, False)):
        queries, keys = labels(PACKED, 6), labels(of_keys, int(of_keys[-1]))
        together = same_document(queries, keys)
        own = together & masks.causal(document_places(queries, keys))
        assert np.array_equal(own, together & masks.causal(np.zeros(own.shape))) == same


def test_labels_count_the_documents_that_began() -> None:
    assert labels(PACKED, 6).tolist() == [0, 0, 0, 1, 2, 2]
    assert labels(np.array([0, 2, 2, 3]), 5).tolist() == [0, 0, 2, 3, 3]  # an empty document, and tokens after the last
    assert labels(np.array([[0, 1], [0, 3]]), 3).tolist() == [[0, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize("seed", range(4))
def test_places_by_walking_through_the_tokens(seed: int) -> None:
    """Labels need not be in order, nor next to each other."""
    draw = np.random.default_rng(seed)
    queries, keys = draw.integers(0, 3, 5), draw.integers(0, 3, 7)
    for alignment in ("bottom-right", "top-left"):
        found = document_places(queries, keys, alignment)
        for t, label in enumerate(keys):
            assert found.j[0, t] == keys[:t].tolist().count(label)
        for t, label in enumerate(queries):
            late = keys.tolist().count(label) - queries.tolist().count(label) if alignment == "bottom-right" else 0
            assert found.i[t, 0] == queries[:t].tolist().count(label) + late


def test_each_batch_has_its_own_documents() -> None:
    of = DRAW.integers(0, 2, (2, 4))
    found = document_places(of, of)
    for b in range(2):
        alone = document_places(of[b], of[b])
        assert np.array_equal(found.i[b], alone.i)
        assert np.array_equal(found.j[b], alone.j)
        assert np.array_equal(same_document(of, of)[b], same_document(of[b], of[b]))


def test_a_document_of_its_own_for_each_token_gives_its_value() -> None:
    s, v = arrays(4, 4)
    of = np.arange(4)
    for mask in (m for m in POSITIONAL.values() if m):
        assert (attended(s, same_document(of, of) & mask(document_places(of, of), "bottom-right"), v) == v).all()


def test_every_rule_is_tried_where_it_forbids() -> None:
    for name, alignment in product(POSITIONAL, ("bottom-right", "top-left")):
        mask = POSITIONAL[name]
        if mask and name != "prefix":
            queries, keys = labels(PACKED, 6), labels(CACHED, 9)
            together = same_document(queries, keys)
            assert (together & ~mask(document_places(queries, keys, alignment), alignment)).any()
