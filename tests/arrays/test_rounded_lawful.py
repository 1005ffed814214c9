"""No lawful implementation is outside of the bound of ``rounded``, however its roundings fall; and some come near."""

import math
from typing import Any

import numpy as np
import pytest

from symattn.arrays.rounded import Rounded, RoundedSums, rounded
from symattn.arrays.rounding import bounds, elementwise
from symattn.attention.norms import layer_norm
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax
from tests.arrays import lawful
from tests.arrays.lawful import Run

PRECISIONS = (
    ("float32",),
    ("float16",),
    ("float16", None, "float32"),
    ("bfloat16", None, "float32"),
    ("float16", "fused"),
    ("bfloat16", "fused"),
)
VALUES = ("any", "alike", "in pairs")


def _numbers(kind: type[Rounded], rng: np.random.Generator, *shape: int, size: float = 1.0) -> np.ndarray:
    return kind.precision.input.rounded(rng.standard_normal(shape) * size)


def _attention(kind: type[Rounded], seed: int, n: int, d: int) -> tuple[Run, Rounded]:
    """An implementation and what it is to compute. Errors of weights cancel if values are alike, or pair by pair."""
    rng = np.random.default_rng(seed)
    q = _numbers(kind, rng, 1, d, size=rng.choice([0.5, 1, 2]))
    k, v, w = _numbers(kind, rng, n, d), _numbers(kind, rng, n, 2), _numbers(kind, rng, 2, 1)
    values = VALUES[seed % len(VALUES)]
    v = v if values == "any" else np.repeat(v[:1], n, 0) if values == "alike" else np.repeat(v[:, :1], 2, 1)
    w = np.array([[1.0], [-1.0]]) if values == "in pairs" else w
    x, y, z, m = (kind.lift(a) for a in (q, k, v, w))
    wanted = softmax(scale_by_root(dot_scores(x, y), x)) @ z @ m
    return lambda machine: lawful.attention(machine, q[0], k, v, w[:, 0]), wanted


def _layer(kind: type[Rounded], seed: int, n: int, d: int) -> tuple[Run, Rounded]:
    rng = np.random.default_rng(seed)
    x, w, b = _numbers(kind, rng, 1, d), _numbers(kind, rng, d, n), _numbers(kind, rng, n, size=rng.choice([1, 10]))
    eps = float(kind.precision.input.rounded(1e-3))
    wanted = layer_norm(kind.lift(x) @ kind.lift(w) + kind.lift(b), eps)[:, :1]
    return lambda machine: lawful.layer(machine, x[0], w, b, eps), wanted


def _shares(kind: type[Rounded], definition: Any, seeds: range, sizes: tuple[int, int] = (4, 5)) -> list[float]:
    """By how much of the bound implementations are off."""
    found = []
    for seed in seeds:
        run, wanted = definition(kind, seed, *sizes)
        exact, bound = float(wanted.value.midpoints().item()), float(wanted.bound.item())
        found.append(lawful.worst(run, kind.precision, seed, exact) / bound)
    return found


@pytest.mark.parametrize("definition", [_attention, _layer])
@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
def test_steered_roundings_stay_within_and_come_near(precision: Any, definition: Any) -> None:
    shares = _shares(rounded(*precision), definition, range(6))
    assert max(shares) <= 1
    assert max(shares) > 0.1


@pytest.mark.deep
@pytest.mark.parametrize("definition", [_attention, _layer])
@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
def test_many_steered_roundings_stay_within(precision: Any, definition: Any) -> None:
    kind = rounded(*precision)
    assert max(_shares(kind, definition, range(100, 130)) + _shares(kind, definition, range(3), (9, 12))) <= 1


# -- a bound that forgets something is found ---------------------------------------------------------------------------


def _found_by(definition: Any, seeds: int = 40, precision: Any = ("float32",)) -> bool:
    return any(share > 1 for share in _shares(rounded(*precision), definition, range(seeds)))


def test_a_thousandth_of_the_bound_is_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Rounded.bound
    monkeypatch.setattr(Rounded, "bound", property(lambda x: whole.fget(x) / 1000))  # type: ignore[attr-defined]
    assert _found_by(_attention, 1)
    assert _found_by(_layer, 1)


@pytest.mark.deep
def test_roundings_of_sums_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundedSums, "_summed", classmethod(lambda cls, size, *_: 0 * size))
    assert _found_by(_attention)


def _score(kind: type[Rounded], seed: int, n: int, d: int) -> tuple[Run, Rounded]:
    rng = np.random.default_rng(seed)
    q, k = _numbers(kind, rng, 1, d), _numbers(kind, rng, 1, d)
    x, y = kind.lift(q), kind.lift(k)
    return lambda machine: lawful.scores(machine, list(q[0]), k)[0], scale_by_root(dot_scores(x, y), x)


@pytest.mark.deep
def test_roundings_of_a_scale_in_the_factors_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    precision = ("float16", None, "float32")
    assert not _found_by(_score, precision=precision)
    monkeypatch.setattr(elementwise, "SCALE_ROUNDINGS", 0)
    assert _found_by(_score, precision=precision)


@pytest.mark.deep
def test_the_last_rounding_is_not_the_same_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it were, errors of exponentials would cancel between their sum and their products."""
    made = Rounded.made.__func__  # type: ignore[attr-defined]

    def all_own(cls: Any, value: Any, errors: Any, **how: Any) -> Any:
        x = made(cls, value, errors, **how)
        rows = bounds.rows_of(np.zeros((*x.last.shape, 0)), np.zeros(0, dtype=np.int64), x.last)
        one = elementwise.Floats(np.ones(()), np.zeros(()))
        return made(cls, value, cls.linear(x.plain_shape, [(one, x), (one, cls(x.planes[0], rows, *[0 * x.last] * 3))]))

    monkeypatch.setattr(Rounded, "made", classmethod(all_own))
    assert _found_by(_attention)


def test_the_simulated_arithmetic_is_that_of_the_precision() -> None:
    machine = lawful.Machine(rounded("float16").precision, 0, [1.0, -1.0])
    assert machine.fl(3.0) == 3 * (1 + 2.0**-11)
    assert machine.function(math.exp, 1.0) == math.e * (1 - 2.0**-10)
    assert machine.fl(3.0) == 3
