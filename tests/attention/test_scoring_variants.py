"""Combinations of fields of scores, masks and weights, against loops."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from tests.attention.definition import Definition, looped, same
from tests.attention.scoring_variants import G, H, variant

SCORES = [
    {},
    {"scale": "1/d_k"},
    {"score": "distance"},
    {"score": "general"},
    {"truncate": 1},
    {"scale": "given", "bias": True},
]
MASKS: list[dict[str, Any]] = [
    *[{"causal": True, "window": w} for w in (None, 2, (1, None))],
    *[{"window": w, "block": b} for w, b in product([(1, 1), (None, 0)], [None, 2])],
    {"causal": True, "prefix": 2},
    {"documents": True, "causal": True},
    {"documents": True, "window": (1, 1)},
]
SEEN = [{}, {"mask": "boolean"}, {"padding": True}]
WEIGHTS = [
    {},
    {"sink": "given"},
    {"sink": "zero", "lse": True},
    {"normaliser": "sigmoid"},
    {"normaliser": "relu"},
    {"dropout": 0.25},
]
NEEDS = {"bias": "bias", "documents": "doc_q, doc_k", "padding": "keep", "mask": "mask", "dropout": "drop"}


def combinations() -> Iterator[tuple[str, dict[str, Any], Definition]]:
    """A sample of all combinations, always the same one."""
    every = list(product(SCORES, MASKS, ("bottom-right", "top-left"), SEEN, WEIGHTS))
    for score, mask, alignment, seen, weigh in random.Random(8).sample(every, 60):
        fields: dict[str, Any] = {**score, **mask, "alignment": alignment, **seen, **weigh}
        if score.get("score") == "distance" and weigh.get("normaliser") == "relu":
            continue  # which is refused
        names = [some for f, some in NEEDS.items() if fields.get(f)]
        names += ["scale"] * (fields.get("scale") == "given") + ["sink"] * (fields.get("sink") == "given")
        names += ["w_s"] * (fields.get("score") == "general")
        yield " ".join(f"{k}={v}" for k, v in fields.items()), fields, variant(", ".join(names), **fields)


COMBINATIONS = {name: (fields, made) for name, fields, made in combinations()}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_combination_is_what_loops_say(name: str) -> None:
    definition = COMBINATIONS[name][1]
    assert same(definition, looped(definition))
    spec = definition.spec
    plain = {f: getattr(spec, f) for f in spec.__dataclass_fields__}
    other = "top-left" if spec.alignment == "bottom-right" else "bottom-right"
    changes = ({"scale": 5}, {"alignment": other}, {"causal": False, "window": None, "block": None})
    assert any(not same(definition, looped(definition, SimpleNamespace(**plain | change))) for change in changes)


def test_combinations_that_are_tried_are_many() -> None:
    every = [fields for fields, _ in COMBINATIONS.values()]
    for some in (SCORES, MASKS, SEEN, WEIGHTS):
        for wanted in some:
            assert any(wanted.items() <= fields.items() for fields in every)


def test_heads_share_the_one_head_of_keys() -> None:
    assert (H, G) == (2, 1)
    with pytest.raises(InputError, match="kv_heads must divide heads"):
        Attention(heads=3, kv_heads=2, causal=True, window=2)
