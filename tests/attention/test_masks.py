"""Masks in every combination against loops over plain numbers, which know nothing of arrays."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest

from symattn.arrays import kind
from symattn.attention import masks
from symattn.attention.softmax import normalise, row_max, softmax
from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from tests.attention.definition import Definition, looped

pytestmark = pytest.mark.smoke

RNG = np.random.default_rng(5)
SIZES = [(3, 3), (2, 5), (5, 2), (1, 4), (4, 1)]


def arrays(n_q: int, n_k: int) -> tuple[np.ndarray, ...]:
    shapes = ((n_q, 3), (n_k, 3), (n_k, 2))
    return tuple(RNG.integers(-4, 5, shape) / 2 for shape in shapes)


COMBINATIONS = [*product((None, "bottom-right", "top-left"), (None, "boolean", "additive"), (False, True), SIZES)]


@pytest.mark.parametrize(("causal", "mask", "padding", "sizes"), COMBINATIONS)
@pytest.mark.parametrize("empty", ["zeros", "nan"])
def test_masks_mean_what_loops_say(causal: Any, mask: Any, padding: bool, sizes: tuple[int, int], empty: Any) -> None:
    given = dict(zip("qkv", arrays(*sizes), strict=True))
    seen = RNG.random(sizes) < 0.7
    if mask:
        given["mask"] = seen if mask == "boolean" else np.where(seen, RNG.integers(-4, 5, sizes) / 4, -math.inf)
    if padding:
        given["keep"] = RNG.random(sizes[1]) < 0.7
    alignment: Any = causal or "bottom-right"
    spec = Attention(causal=causal is not None, alignment=alignment, mask=mask, padding=padding, fully_masked=empty)
    definition = Definition(spec, given)
    got = definition.run(kind("exact").lift).entries.flat
    with mpmath.workdps(50):
        for x, value in zip(got, looped(definition), strict=True):
            if mpmath.isnan(value):
                assert spec.masks_anything
                assert "0/0" in x.why
            else:
                assert abs(mpmath.mpf(x.decimal(40)) - value) < mpmath.mpf("1e-35")


@pytest.mark.parametrize("alignment", ["bottom-right", "top-left"])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_causal_mask_by_its_words(alignment: str, sizes: tuple[int, int]) -> None:
    """Bottom-right: the last query sees every key. Top-left: the first query sees the first key alone."""
    n_q, n_k = sizes
    mask = masks.causal(np.zeros(sizes), alignment)
    assert mask.shape == sizes
    if alignment == "bottom-right":
        assert mask[-1].all()
        assert all(mask[i].sum() == max(0, n_k - (n_q - 1 - i)) for i in range(n_q))
    else:
        assert all(mask[i].sum() == min(i + 1, n_k) for i in range(n_q))
    assert (np.diff(mask.astype(int), axis=1) <= 0).all()


def test_the_alignments_agree_for_as_many_keys_as_queries_and_only_then() -> None:
    for sizes in SIZES:
        square = np.zeros(sizes)
        same = np.array_equal(masks.causal(square), masks.causal(square, "top-left"))
        assert same == (sizes[0] == sizes[1])


@pytest.mark.parametrize("name", ["exact", "ball", "symbolic", "float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("stabilised", [True, False])
def test_a_fully_masked_row_gives_zeros_nothing_or_an_error(name: str, stabilised: bool) -> None:
    lift = kind(name).lift
    q, k, v = (lift(a) for a in arrays(2, 3))
    mask = np.array([[False] * 3, [True] * 3])

    def run(empty: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return Attention(mask="boolean", fully_masked=empty, stabilised=stabilised)(q, k, v, mask=mask)

    zeros, undefined = run("zeros"), run("nan")
    assert (zeros[0] == 0).all()
    assert np.isnan(undefined[0]).all()
    assert not np.isnan(undefined[1]).any()
    with pytest.raises(InputError, match="a row of scores is fully masked; hint: allow a key"):
        run("error")
    mask[0, 1] = True
    assert run("error").shape == (2, 2)


def test_without_a_mask_no_row_is_empty_and_no_guard_is_run() -> None:
    """Float16 weights that underflow are not taken for a masked row."""
    q = k = np.array([[8.0]], dtype=np.float16)
    with np.errstate(all="ignore"):
        far = Attention(scale=-1, stabilised=False)(q, k, k)
    assert np.isnan(far).all()


def test_nothing_leaks_from_a_forbidden_key_on_exact_arrays() -> None:
    exact = kind("exact")
    q, k, v = (exact.lift(a) for a in arrays(3, 4))
    spec = Attention(causal=True, alignment="top-left")
    changed = v.copy()
    changed[3] = 1000
    assert (spec(q, k, v) == spec(q, k, changed)).all()
    other = k.copy()
    other[3] = -1000
    assert (spec(q, k, v) == spec(q, other, v)).all()
    assert not (Attention()(q, k, v) == Attention()(q, k, changed)).any()


def test_a_mask_of_zeros_or_of_true_changes_nothing() -> None:
    exact = kind("exact")
    q, k, v = (exact.lift(a) for a in arrays(3, 4))
    plain = Attention()(q, k, v)
    assert (Attention(mask="additive")(q, k, v, mask=np.zeros((3, 4))) == plain).all()
    assert (Attention(mask="additive")(q, k, v, mask=np.full((3, 1), 7.0)) == plain).all()
    assert (Attention(mask="boolean")(q, k, v, mask=np.ones((1, 4), dtype=bool)) == plain).all()
    assert (Attention(padding=True)(q, k, v, keep=np.ones(4, dtype=bool)) == plain).all()


def test_an_additive_mask_is_added_after_scaling() -> None:
    q, k, v = np.ones((1, 4)), np.array([[0.0] * 4, [0.0] * 4]), np.array([[1.0], [0.0]])
    weight = Attention(mask="additive")(q, k, v, mask=np.array([[math.log(3), 0.0]]))
    assert abs(weight[0, 0] - 0.75) < 2**-50


def test_the_largest_of_a_fully_masked_row_is_zero() -> None:
    s = np.array([[-np.inf, -np.inf], [1.0, 2.0]])
    assert row_max(s).tolist() == [[0.0], [2.0]]
    assert softmax(s, fully_masked="zeros")[0].tolist() == [0.0, 0.0]
    assert normalise(np.array([[1.0, 3.0]])).tolist() == [[0.25, 0.75]]


def test_one_mask_serves_all_heads_and_each_batch_its_own() -> None:
    """Two batches and two heads: a mask for each batch must not be taken for a mask for each head."""
    exact = kind("exact")
    x, w = RNG.integers(-2, 3, (2, 3, 4)) / 2, RNG.integers(-2, 3, (3, 4, 4)) / 2
    keep = np.array([[True, True, False], [True, False, True]])
    mask = RNG.random((2, 3, 3)) < 0.6
    weights = {f"w_{role}": exact.lift(a) for role, a in zip("qkv", w, strict=True)}
    spec = Attention(heads=2, padding=True, mask="boolean")
    both = spec(x=exact.lift(x), mask=mask, keep=keep, **weights)
    for b in range(2):
        alone = spec(x=exact.lift(x[b]), mask=mask[b], keep=keep[b], **weights)
        assert (both[b] == alone).all()
    per_head = Attention(heads=2, mask="boolean")
    split = per_head(x=exact.lift(x[0]), mask=mask, **weights)
    for h in range(2):
        columns = slice(2 * h, 2 * h + 2)
        parts = {name: a[:, columns] for name, a in weights.items()}
        assert (split[:, columns] == Attention(mask="boolean")(x=exact.lift(x[0]), mask=mask[h], **parts)).all()
