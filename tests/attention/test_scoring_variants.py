"""Every field of scores, masks and weights, and combinations of them: against loops, and on every kind of array."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy

from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.arrays.modular import modular
from symattn.arrays.special import Forbidden
from symattn.attention.spec import Attention
from symattn.document.errors import InputError, Refused, Undecided
from tests.arrays.residues import agree
from tests.attention.attention_by_loops import attend
from tests.attention.pieces import FLOATS, PAIR, nested
from tests.attention.scoring_variants import GIVEN, N_K, N_Q, PLAIN, QKV, VARIANTS, G, H, Variant
from tests.attention.test_kinds import FUNCTIONS, evaluated
from tests.bounded import bounded

REFUSAL = (Refused, Undecided)


def parts(x: Any) -> list[Any]:
    """The output, and the logarithms where they are asked for."""
    return list(x) if isinstance(x, tuple) else [x]


def flat(x: Any) -> list[Any]:
    """The elements of all parts."""
    return [e for part in parts(x) for e in np.asarray(part.entries).flat]


@cache
def truth(variant: Any) -> list[Any]:
    """The elements as balls of 256 bits."""
    with precision(256):
        return flat(variant.run(kind("ball").lift))


def looped(variant: Variant, fields: Mapping[str, Any] | None = None) -> list[Any]:
    """The elements by loops; ``fields`` in the place of the variant's own."""
    with mpmath.workdps(50):
        wide = {
            n: (*a.shape[:-2], N_Q, N_K) if n in ("mask", "bias", "drop") else a.shape for n, a in variant.given.items()
        }
        spread = {n: np.broadcast_to(a, wide[n]) for n, a in variant.given.items()}  # loops know no axes of length one
        given = {n: a.tolist() if n in PLAIN and a.dtype != float else nested(a) for n, a in spread.items()}
        found = attend(fields or variant.fields, *[nested(QKV[n]) for n in "qkv"], given)
    return [x for part in found[: 1 + bool(variant.fields.get("lse"))] for x in np.array(part, dtype=object).flat]


def same(variant: Variant, wanted: list[Any]) -> bool:
    """Whether the variant gives these numbers, to 40 digits."""
    found = truth(variant)
    return len(found) == len(wanted) and all(_near(x, y) for x, y in zip(found, wanted, strict=True))


def _near(ball: Any, x: Any) -> bool:
    if isinstance(ball, Forbidden) or mpmath.isinf(x):
        return isinstance(ball, Forbidden) and bool(mpmath.isinf(x))
    with mpmath.workdps(50):
        return abs(mpmath.mpf(ball.mid().str(50, radius=False)) - x) < mpmath.mpf("1e-40") and ball.rad() < 1e-50


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_what_loops_say(name: str) -> None:
    assert same(VARIANTS[name], looped(VARIANTS[name]))


#: Fields that are changed one at a time, so that the loops have to say no.
CHANGED = {
    "score": "dot", "scale": 3, "truncate": None, "softcap": 1, "bias": False, "window": (0, 0), "block": 3,
    "prefix": 3, "documents": False, "normaliser": "softmax", "base": None, "sink": None, "dropout": 0.5,
    "alignment": "top-left", "mask": None, "padding": False, "causal": False,
}  # fmt: skip
#: Changes that leave the mask as it is: what is closed is closed by another field, too.
MOOT = {
    ("documents, all masks", "causal"), ("documents, all masks", "mask"), ("documents, all masks", "padding"),
    ("window of keys", "causal"), ("window, top-left", "causal"),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_the_loops_say_no_to_another_field(name: str) -> None:
    variant, told = VARIANTS[name], 0
    for field in (f for f in variant.fields if f in CHANGED and variant.fields[f] != CHANGED[f]):
        if (name, field) not in MOOT and not (field == "causal" and "prefix" in variant.fields):
            assert not same(variant, looped(variant, {**variant.fields, field: CHANGED[field]})), field
            told += 1
    assert told or set(variant.fields) <= {"lse", "mask", "score", "scale"}


@pytest.mark.parametrize("name", VARIANTS)
def test_exact_elements_are_in_the_balls(name: str) -> None:
    variant = VARIANTS[name]
    if "exact" in variant.refused:
        with pytest.raises(REFUSAL, match=variant.refused["exact"]):
            variant.run(kind("exact").lift)
        return
    for x, ball in zip(flat(variant.run(kind("exact").lift)), truth(variant), strict=True):
        assert isinstance(ball, Forbidden) if isinstance(x, Forbidden) else ball.overlaps(x.arb(300))


@pytest.mark.parametrize("name", VARIANTS)
def test_residues_are_the_image_of_the_exact_elements(name: str) -> None:
    variant, of = VARIANTS[name], modular(*PAIR, seed=5)
    if "modular" in variant.refused:
        with pytest.raises(REFUSAL, match=variant.refused["modular"]):
            variant.run(of.lift)
        return
    found = parts(variant.run(of.lift))
    if variant.any_function or "exact" in variant.refused:
        return
    for got, wanted in zip(found, parts(variant.run(kind("exact").lift)), strict=True):
        finite = np.array([not isinstance(x, Forbidden) for x in wanted.entries.flat]).reshape(wanted.entries.shape)
        assert agree(got[finite], wanted[finite])  # logarithms are compared as powers, which −∞ has none of


@pytest.mark.deep
@pytest.mark.parametrize("name", VARIANTS)
def test_sympy_has_the_values(name: str) -> None:
    variant = VARIANTS[name]
    for x, ball in zip(flat(variant.run(kind("symbolic").lift)), truth(variant), strict=True):
        if isinstance(ball, Forbidden):
            assert isinstance(x, Forbidden)
        else:
            assert abs(sympy.N(x, 40) - sympy.Float(ball.mid().str(45, radius=False), 45)) < sympy.Float("1e-30")


@pytest.mark.parametrize(
    "name", [n if k % 6 == 0 else pytest.param(n, marks=pytest.mark.deep) for k, n in enumerate(VARIANTS)]
)
def test_letters_at_numbers_have_the_values(name: str) -> None:
    variant, symbolic, values = VARIANTS[name], kind("symbolic"), {}

    def lift(array: np.ndarray) -> Any:
        letters = symbolic.letters(f"t{len(values)}", *array.shape)
        values.update(zip(letters.entries.flat, map(mpmath.mpf, array.flat), strict=True))
        return letters

    if "letters" in variant.refused:
        with pytest.raises(REFUSAL, match=variant.refused["letters"]):
            variant.run(lift)
        return
    found = flat(variant.run(lift))
    with mpmath.workdps(50):
        for x, ball in zip(found, truth(variant), strict=True):
            assert isinstance(x, Forbidden) if isinstance(ball, Forbidden) else _near(ball, evaluated(x, values))


FUNCTIONS.update({"log": mpmath.log, "tanh": mpmath.tanh})


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(
    "dtype", [d if d in ("float64", "bfloat16") else pytest.param(d, marks=pytest.mark.deep) for d in FLOATS]
)
def test_floats_are_within_their_rounding_errors(name: str, dtype: str) -> None:
    variant, target = VARIANTS[name], kind(dtype)
    with np.errstate(all="ignore"):
        found = [np.asarray(x if isinstance(x, np.ndarray) else x.numpy()) for x in parts(variant.run(target.lift))]
        radius = [r for x in _radii(variant, target.dtype, found) for r in x.flat]
    assert all(x.dtype == target.dtype for x in found)
    assert np.isfinite(radius).all() or dtype in ("float16", "bfloat16") or "modular" in variant.refused
    for x, ball, r in zip((x for part in found for x in part.astype(float).flat), truth(variant), radius, strict=True):
        assert x == -np.inf if isinstance(ball, Forbidden) else abs(x - float(ball.mid())) <= r


def _radii(variant: Variant, dtype: Any, found: list[np.ndarray]) -> list[np.ndarray]:
    """The bounds; none where it is open whether two scores, or a sum and zero, are equal: nothing is said there."""
    try:
        bounds = [x.planes[1] for x in parts(variant.run(bounded(dtype).lift))]
    except Undecided:
        return [np.full(x.shape, np.inf) for x in found]
    return [np.where(np.isnan(x), np.inf, x) for x in bounds]


# -- combinations ------------------------------------------------------------------------------------------------------
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
NEEDS = {"bias": "bias", "documents": "doc_q doc_k", "padding": "keep", "mask": "mask", "dropout": "drop"}


def combinations() -> Iterator[tuple[str, Variant]]:
    """A sample of all combinations, always the same one."""
    every = list(product(SCORES, MASKS, ("bottom-right", "top-left"), SEEN, WEIGHTS))
    for score, mask, alignment, seen, weigh in random.Random(8).sample(every, 60):
        fields: dict[str, Any] = {**score, **mask, "alignment": alignment, **seen, **weigh}
        if score.get("score") == "distance" and weigh.get("normaliser") == "relu":
            continue  # which is refused
        names = [n for f, some in NEEDS.items() if fields.get(f) for n in some.split()]
        names += ["scale"] * (fields.get("scale") == "given") + ["sink"] * (fields.get("sink") == "given")
        names += ["w_s"] * (fields.get("score") == "general")
        yield " ".join(f"{k}={v}" for k, v in fields.items()), Variant(fields, {n: GIVEN[n] for n in names})


COMBINATIONS = dict(combinations())


@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_combination_is_what_loops_say(name: str) -> None:
    variant = COMBINATIONS[name]
    assert same(variant, looped(variant))
    other = "top-left" if variant.fields["alignment"] == "bottom-right" else "bottom-right"
    changes = ({"scale": 5}, {"alignment": other}, {"causal": False, "window": None, "block": None})
    assert any(not same(variant, looped(variant, {**variant.fields, **change})) for change in changes)


def test_combinations_that_are_tried_are_many() -> None:
    every = [v.fields for v in COMBINATIONS.values()]
    for some in (SCORES, MASKS, SEEN, WEIGHTS):
        for wanted in some:
            assert any(wanted.items() <= fields.items() for fields in every)


def test_heads_share_the_one_head_of_keys() -> None:
    assert (H, G) == (2, 1)
    with pytest.raises(InputError, match="kv_heads must divide heads"):
        Attention(heads=3, kv_heads=2, causal=True, window=2)
