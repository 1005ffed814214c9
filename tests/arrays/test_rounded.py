"""``rounded``: what is computed lawfully, however its roundings fall, is within the bound, and else is told."""

import math
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest

from symattn import Attention, Precision, Refused, Undecided, functional, rounded
from symattn import kind as kind_of
from symattn.arrays.formats import Format
from symattn.arrays.rounded import Rounded
from symattn.arrays.rounding import bounds, elementwise
from tests.arrays import lawful
from tests.arrays.conformance import _plain
from tests.arrays.lawful import Run
from tests.arrays.operations import TABLE
from tests.refusals import refuses

FLOATING = ("float64", "float32", "float16")
# Bounds may be this much smaller before NumPy breaks one of them: they are no thousand times too wide.
TIGHT = 1000


def _gaussian(kind: Any, *shape: int, seed: int = 0) -> np.ndarray:
    return np.asarray(kind.precision.input.rounded(np.random.default_rng(seed).standard_normal(shape)))


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("form", FLOATING[1:2])
def test_what_numpy_computes_is_within_the_bound(form: str, name: str) -> None:
    """Every program of the table of operations, in NumPy's own arithmetic."""
    kind = rounded(form)
    for case in TABLE[name]:
        narrow = [kind_of(form).lift(data) for data in case.inputs]
        try:
            with np.errstate(all="ignore"):
                got = case.run(np, *narrow)
        except (AttributeError, TypeError):  # what NumPy lacks
            continue
        wanted = case.run(kind.xp, *[kind.lift(x) for x in narrow])
        _all_within(wanted, got)


def _all_within(wanted: Any, got: Any) -> None:
    if isinstance(wanted, (list, tuple)):
        for x, y in zip(wanted, got, strict=True):
            _all_within(x, y)
    else:
        assert _plain(wanted) or wanted.within(got).all()


def _block(x: Any, y: Any, z: Any) -> Any:
    xp = x.__array_namespace__()
    s = 2 * xp.tanh(functional.layer_norm(x, 1e-5) @ functional.rms_norm(y, 1e-5).mT / 2)
    return xp.tanh(xp.exp(s / 4) @ z) + x[..., :1]


@pytest.mark.parametrize("definition", [Attention(causal=True), _block])
@pytest.mark.parametrize("form", FLOATING)
def test_definitions_in_numpy_are_within_the_bound_and_not_far_within(form: str, definition: Any) -> None:
    kind = rounded(form, accumulate="float32") if form == "float16" else rounded(form)
    worst = 0.0
    for seed in range(5):
        inputs = [_gaussian(kind, 6, 4, seed=10 * seed + i) for i in range(3)]
        got = definition(*[x.astype(kind.precision.input.dtype) for x in inputs])
        wanted = definition(*map(kind.lift, inputs))
        assert wanted.within(got).all()
        with flint.ctx.workprec(200):
            off = abs(wanted.value - got.astype(np.float64)).midpoints()
        worst = max(worst, (off / wanted.bound).max())
    assert 1 / TIGHT < worst < 1


@pytest.mark.parametrize("seed", range(5))
def test_sums_in_any_order_are_within(seed: int) -> None:
    kind, rng = rounded("float16"), np.random.default_rng(seed)
    x = _gaussian(kind, 4, 9, seed=seed)
    y, order = x.astype(np.float16), rng.permutation(36)
    assert kind.xp.sum(kind.lift(x)).within(np.cumsum(y.reshape(-1)[order])[-1])
    halves = np.cumsum(y[:, 4::-1], axis=1)[:, -1] + np.cumsum(y[:, 5:], axis=1)[:, -1]
    bounded = kind.xp.cumulative_sum(kind.lift(x), axis=1)
    assert bounded[:, -1].within(halves).all()
    assert not (bounded[:, -1] + 1).within(halves).any()


def test_the_output_of_fused_code_is_rounded_once_more() -> None:
    kind = rounded("bfloat16", "fused")
    inputs = [_gaussian(kind, 5, 4, seed=i) for i in range(3)]
    wanted = Attention()(*map(kind.lift, inputs))
    exact = wanted.value.midpoints()
    u = float(kind.precision.input.u)
    assert wanted.within(kind.precision.input.rounded(exact)).all()
    assert (wanted.bound < 4 * u * np.abs(exact).max() + 4 * u).all()
    assert not wanted.within(exact + 0.1).any()


# -- what is exact, and what is decided -------------------------------------------------------------------------------


def test_data_that_the_format_holds_are_exact_and_others_rounded() -> None:
    kind = rounded("float16")
    x = kind.lift([0.5, 0.1, 1e9, 1e-9])
    assert x.bound[0] == 0
    assert 0.1 * 2.0**-11 <= x.bound[1] < 0.11 * 2.0**-11
    assert x.bound[2] == np.inf
    assert 2.0**-25 <= x.bound[3] <= 2.0**-24
    assert rounded("bfloat16", "fused").lift(0.1).bound < rounded("bfloat16").lift(0.1).bound * 1.01


def test_what_changes_no_number_has_no_bound() -> None:
    kind = rounded("float32")
    x = kind.lift([[1.5, -2.25], [0.75, 3.0]])
    xp = kind.xp
    for y in (
        -x,
        x * 1,
        x / 1,
        x * 4,
        x + 0,
        xp.max(x, axis=-1),
        xp.maximum(x, 0),
        abs(x),
        x.mT,
        xp.where(x > 0, x, 0),
    ):
        assert (y.bound == 0).all()
    assert (xp.exp(x * 0).bound == 0).all()
    assert (x + x).bound.min() > 0


def test_comparisons_are_decided_where_the_numbers_are_apart() -> None:
    kind = rounded("float16")
    x = kind.xp.exp(kind.lift([1.0, 1.0, 2.0]))
    assert (x[0] < x[2]).all()
    assert not (x[0] == x[2]).all()
    assert not (x == 0).any()
    with pytest.raises(Undecided, match="when rounding moves them"):
        _ = x[0] < x[1]
    with pytest.raises(Undecided, match="when rounding moves them"):
        _ = x[0] == x[1]


def test_errors_in_common_cancel_and_last_roundings_do_not() -> None:
    kind = rounded("float32")

    def root() -> Any:
        return kind.xp.sqrt(kind.lift([[1.0, 2.0, 3.0]]) @ kind.lift([[0.3], [0.7], [0.9]])).name_errors()

    x, u = root(), float(kind.precision.score.u)
    last = 2 * kind.precision.exp_ulps * u * x.value.midpoints().item()
    alone = x.error.item()
    assert 2 * last <= (x - x).error.item() < 2 * last * 1.001 < 2 * alone
    assert (x - root()).error.item() > 1.999 * alone


def test_what_cannot_be_followed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = rounded("float32")
    inputs = [kind.lift(_gaussian(kind, 6, 4, seed=i)) for i in range(3)]
    sharp = _block(*inputs).error
    monkeypatch.setattr(bounds, "LIMIT", 100)
    assert (_block(*inputs).error > sharp).all()
    monkeypatch.setattr(bounds, "LIMIT", 0)
    assert np.isfinite(_block(*inputs).error).all()


def test_minus_infinity_is_within_where_it_is_wanted_alone() -> None:
    kind = rounded("float32")
    x = kind.xp.where(np.array([True, False]), kind.lift([1.0, 1.0]), -np.inf)
    assert x.within([1.0, -np.inf]).all()
    assert not x.within([1.0, 0.0]).all()
    assert not x.within([np.nan, -np.inf]).all()
    refuses(kind.xp.sum, x, kind=Refused, says="a sum over -inf")


def test_undefined_rows_are_nan() -> None:
    kind = rounded("float32")
    q = kind.lift([[1.0, 2.0], [0.5, 1.0]])
    out = Attention(mask="boolean", fully_masked="nan")(q, q, q, mask=np.array([[True, True], [False, False]]))
    assert out.within([[np.nan, np.nan]] * 2)[1].all()
    assert not out.within([[np.nan, np.nan]] * 2)[0].any()
    assert not out.within([[1.0, 1.0]] * 2)[1].any()


def test_where_something_may_overflow_nothing_is_said() -> None:
    kind = rounded("float16")
    x = kind.lift([300.0, 2.0])
    assert (x * x).bound[0] == np.inf
    assert (x * x).within([np.inf, 4.0]).all()
    assert not (x * x).within([1.0, np.inf])[1]


def test_a_divisor_that_may_be_zero_says_nothing() -> None:
    kind = rounded("float16")
    x = kind.lift([1.0, 1.0]) / (kind.xp.exp(kind.lift([1.0, 3.0])) - 2.7182)
    assert x.bound[0] == np.inf > x.bound[1]


def test_a_number_has_the_bound_of_an_array_of_one() -> None:
    kind = rounded("float16")
    x, y = (kind.lift(np.array(c)) for c in (3.0, 0.7))
    assert ((x * x) / (y * y)).bound == ((x[None] * x[None]) / (y[None] * y[None])).bound[0] > 0


def test_a_precision_has_one_kind() -> None:
    half = Precision.of("float16")
    assert rounded("float16") is rounded(half) is not rounded(half, accumulate="float32")
    assert rounded(half, accumulate="float32") is rounded("float16", accumulate="float32")


def test_what_is_refused() -> None:
    refuses(rounded, "float31", says="unknown precision 'float31'")
    refuses(rounded("float32").lift, [np.nan], says="nan in the data")
    with pytest.raises(Refused, match="mixed kinds"):
        _ = rounded("float32").lift([1.0]) + rounded("float16").lift([1.0])


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
    wanted = Attention()(x, y, z) @ m
    return lambda machine: lawful.attention(machine, q[0], k, v, w[:, 0]), wanted


def _layer(kind: type[Rounded], seed: int, n: int, d: int) -> tuple[Run, Rounded]:
    rng = np.random.default_rng(seed)
    x, w, b = _numbers(kind, rng, 1, d), _numbers(kind, rng, d, n), _numbers(kind, rng, n, size=rng.choice([1, 10]))
    eps = float(kind.precision.input.rounded(1e-3))
    wanted = functional.layer_norm(kind.lift(x) @ kind.lift(w) + kind.lift(b), eps)[:, :1]
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
    monkeypatch.setattr(Rounded, "_bound_error_of_sums", classmethod(lambda cls, size, *_: 0 * size))
    assert _found_by(_attention)


def _score(kind: type[Rounded], seed: int, n: int, d: int) -> tuple[Run, Rounded]:
    rng = np.random.default_rng(seed)
    q, k = _numbers(kind, rng, 1, d), _numbers(kind, rng, 1, d)
    x, y = kind.lift(q), kind.lift(k)
    return lambda machine: lawful.scores(machine, list(q[0]), k)[0], Attention().trace(x, y, y)["scaled"]


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
        own = cls(x.planes[0], *bounds.bounded(x.last), *[0 * x.last] * 3)
        return made(cls, value, cls.linear(x.plain_shape, [(bounds.ONE, x), (bounds.ONE, own)]))

    monkeypatch.setattr(Rounded, "made", classmethod(all_own))
    assert _found_by(_attention)


def test_the_simulated_arithmetic_is_that_of_the_precision() -> None:
    machine = lawful.Machine(rounded("float16").precision, 0, [1.0, -1.0])
    assert machine.fl(3.0) == 3 * (1 + 2.0**-11)
    assert machine.function(math.exp, 1.0) == math.e * (1 - 2.0**-10)
    assert machine.fl(3.0) == 3


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_numbers_are_rounded_once(name: str) -> None:
    """Beside ties, which float32 in between would make even first, and where the numbers of float32 end."""
    storage = Format(name)
    every = np.unique(storage.numbers().astype(np.float64))
    drawn = np.random.default_rng(0).integers(len(every) - 1, size=300)
    ties = (every[drawn] + every[drawn + 1]) / 2
    beside = [ties * (1 + by) for by in (0, 2.0**-26, -(2.0**-26), 2.0**-40, -(2.0**-40))]
    least = [2.0**-126, 2.0**-150, 1e-300, 0.0, -0.0]
    wide = np.concatenate([*beside, least, every])
    some = wide[:: max(1, len(wide) // 3000)]
    wanted = [float(storage.nearest(Fraction(x))) for x in some.tolist()]
    np.testing.assert_array_equal(storage.rounded(some), wanted)
    if name == "bfloat16":
        twice = some.astype(np.float32).astype(storage.dtype)
        assert (twice.astype(np.float64) != wanted).any()
