"""``rounded``: floats that were computed lawfully are within the bound, and what is beyond it is said to be."""

from typing import Any

import flint
import numpy as np
import pytest

from symattn.arrays import kind as kind_of
from symattn.arrays.precision import Precision
from symattn.arrays.rounded import rounded
from symattn.arrays.rounding import bounds
from symattn.attention import norms
from symattn.attention.scores import softcap
from symattn.attention.spec import Attention
from symattn.document.errors import Refused, Undecided
from tests.arrays.conformance import _plain
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
    s = softcap(norms.layer_norm(x, 1e-5) @ norms.rms_norm(y, 1e-5).mT, 2)
    xp = s.__array_namespace__()
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


def test_a_precision_has_one_kind() -> None:
    half = Precision.of("float16")
    assert rounded("float16") is rounded(half) is not rounded(half, accumulate="float32")
    assert rounded(half, accumulate="float32") is rounded("float16", accumulate="float32")


def test_what_is_refused() -> None:
    refuses(rounded, "float31", says="unknown precision 'float31'")
    refuses(rounded("float32").lift, [np.nan], says="nan in the data")
    with pytest.raises(Refused, match="mixed kinds"):
        _ = rounded("float32").lift([1.0]) + rounded("float16").lift([1.0])
