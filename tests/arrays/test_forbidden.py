"""−∞, which only masks make, and "undefined", which 0/0 makes: what they bear, and what is refused of them."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Refused, Undecided, kind, kinds
from tests.refusals import refuses

ONES = kind("exact").lift([[1], [1]])
#: What stands in the place of a score of a forbidden key.
FORBIDDEN = Attention(causal=True).trace(ONES, ONES, ONES)["masked"].entries[0, 1]

pytestmark = pytest.mark.smoke

ELEMENTS = ("exact", "ball", "symbolic")
INF = np.inf
Program = Callable[[Any, Any], Any]


@pytest.fixture(params=(*ELEMENTS, "enclosure"))
def k(request: pytest.FixtureRequest) -> Any:
    return kind(request.param)


@pytest.fixture(params=ELEMENTS)
def entries(request: pytest.FixtureRequest) -> Any:
    """A kind of object elements, which know where they arose."""
    return kind(request.param)


def masked(k: Any) -> Any:
    """[[0, −∞, 2], [−∞, −∞, −∞]]."""
    return k.xp.where([[True, False, True], [False] * 3], k.lift([[0, 1, 2]]), -INF)


def same(array: Any, wanted: Any) -> bool:
    return bool(np.asarray(array == wanted).all())


# -- −∞ ---------------------------------------------------------------------------------------------------------------


def test_forbidden_may_be_multiplied_and_divided_by_the_known_positive(k: Any) -> None:
    root = k.xp.sqrt(k.lift(3))
    for scaled in (masked(k) * 2, 2 * masked(k), masked(k) / 2, masked(k) / root, masked(k) * k.xp.exp(root)):
        assert np.isneginf(scaled)[1].all()


PLAIN: tuple[Program, ...] = (
    lambda k, s: s * 0, lambda k, s: s * -1, lambda k, s: s * -k.xp.sqrt(k.lift(3)), lambda k, s: s * s,
    lambda k, s: s / -2, lambda k, s: -s, lambda k, s: 1 - s, lambda k, s: abs(s), lambda k, s: s - s,
    lambda k, s: 1 / s, lambda k, s: s @ k.lift([[1], [0], [2]]),
    lambda k, s: k.xp.stack([s, s, s]) @ k.lift([[[1], [0], [2]]] * 3),
)  # fmt: skip
NAMED = {
    "a sum over -inf": ("sum", "mean", "var"),
    **{rf"{name}\(-inf\)": (name,) for name in ("log", "sqrt", "tanh", "cos")},
}


def test_nothing_else_takes_forbidden(k: Any) -> None:
    for program in PLAIN:
        refuses(program, k, masked(k), kind=Refused, says="-inf")
    for words, names in NAMED.items():
        for name in names:
            with pytest.raises(Refused, match=words):
                getattr(k.xp, name)(masked(k)[1])


def test_partial_sums_are_sums_of_two(k: Any) -> None:
    assert np.isneginf(k.xp.cumulative_sum(masked(k)[1])).all()


def test_forbidden_times_a_letter_is_refused_and_times_a_positive_letter_is_not() -> None:
    import sympy

    symbolic = kind("symbolic")
    with pytest.raises(Refused, match="-inf"):
        masked(symbolic) * sympy.Symbol("x", real=True)
    assert np.isneginf(masked(symbolic) * sympy.Symbol("x", positive=True))[1].all()


def test_forbidden_is_less_than_every_number_and_equal_to_itself(k: Any) -> None:
    s = masked(k)
    assert (s < 0).tolist() == [[False, True, False], [True] * 3]
    assert (s == -INF).tolist() == [[False, True, False], [True] * 3]
    assert not (s[1] < s[1]).any()
    assert (s[1] <= s[1]).all()


def test_forbidden_stays_one_element_through_copies(k: Any) -> None:
    for other in (copy.copy(masked(k)), copy.deepcopy(masked(k))):
        assert np.isneginf(other)[1].all()
    assert pickle.loads(pickle.dumps(FORBIDDEN)) is FORBIDDEN
    assert copy.deepcopy(FORBIDDEN) is FORBIDDEN


def test_no_float_is_made_of_the_elements_that_are_no_numbers() -> None:
    for special in (FORBIDDEN, kinds.Undefined("0/0")):
        with pytest.raises(TypeError):
            float(special)


# -- wholly masked rows and tiles -------------------------------------------------------------------------------------
def online(xp: Any, tiles: list[Any], values: list[Any]) -> Any:
    """Softmax by tiles with a running maximum, in which wholly masked tiles occur."""
    m = xp.max(tiles[0], axis=-1, keepdims=True)
    m = xp.where(xp.isfinite(m), m, 0)
    e = xp.exp(tiles[0] - m)
    z, o = xp.sum(e, axis=-1, keepdims=True), e @ values[0]
    for s, v in zip(tiles[1:], values[1:], strict=True):
        new = xp.maximum(m, xp.max(s, axis=-1, keepdims=True))
        e, r = xp.exp(s - new), xp.exp(m - new)
        z, o, m = z * r + xp.sum(e, axis=-1, keepdims=True), o * r + e @ v, new
    return o / z


@pytest.mark.parametrize("first", [0, 1])
def test_wholly_masked_tiles_weigh_nothing(k: Any, first: int) -> None:
    xp = k.xp
    s, v = k.lift([[1, 0, 2, -1]]), k.lift([[1], [2], [3], [5]])
    allowed = np.array([[False, False, True, True]])[:, :: -1 if first else 1]
    s = xp.where(allowed, s, -INF)
    tiled = online(xp, [s[:, :2], s[:, 2:]], [v[:2], v[2:]])
    kept = [j for j in range(4) if allowed[0, j]]
    e = xp.exp(s[:, kept])
    direct = (e @ v[kept]) / xp.sum(e, axis=-1, keepdims=True)
    if k.name == "enclosure":
        tiled, direct = tiled.balls(), direct.balls()
    assert same(tiled, direct) if k.name in ("exact", "symbolic") else tiled.item().overlaps(direct.item())


def test_a_wholly_masked_row_is_undefined_without_a_guard_and_zero_with_one(k: Any) -> None:
    xp = k.xp
    e = xp.exp(masked(k))
    z = xp.sum(e, axis=-1, keepdims=True)
    assert np.isnan(e / z).tolist() == [[False] * 3, [True] * 3]
    guarded = e / xp.where(z == 0, 1, z)
    assert same(guarded[1], k.lift([0, 0, 0]))


def test_the_largest_over_no_keys_is_refused_in_words(k: Any) -> None:
    for name in ("max", "min", "argmax", "argmin"):
        refuses(getattr(k.xp, name), k.lift(np.zeros((2, 0))), axis=-1, says="empty axis")


def test_products_and_sums_over_nothing_are_zero(k: Any) -> None:
    product = k.lift(np.zeros((2, 0))) @ k.lift(np.zeros((0, 3)))
    assert product.shape == (2, 3)
    assert same(product, k.lift(np.zeros((2, 3))))
    assert same(k.xp.sum(k.lift(np.zeros((2, 0))), axis=-1), k.lift([0, 0]))
    assert (k.lift(np.zeros((0, 2))) @ k.lift(np.ones((2, 3)))).shape == (0, 3)
    assert (k.lift(np.zeros((2, 4, 0))) @ k.lift(np.zeros((0, 3)))).shape == (2, 4, 3)


# -- undefined --------------------------------------------------------------------------------------------------------
def undefined(k: Any) -> Any:
    """[1, 0/0]."""
    return k.lift([2, 0]) / k.lift([2, 0])


def test_division_by_zero_is_an_element_that_knows_where_it_arose(entries: Any) -> None:
    fraction = entries.lift([[1, 0], [2, 3]]) / entries.lift([[1, 0], [0, 3]])
    assert np.isnan(fraction).tolist() == [[False, True], [True, False]]
    assert fraction.entries[0, 1].why == "0/0 at [0, 1]"
    assert fraction.entries[1, 0].why.endswith("/0 at [1, 0]")


def test_undefined_keeps_where_it_first_arose(entries: Any) -> None:
    assert (undefined(entries) / undefined(entries)).entries[1].why == "0/0 at [1]"


def test_undefined_equals_nothing_not_even_itself(k: Any) -> None:
    u = undefined(k)
    assert (u == u).tolist() == [True, False]
    assert (u != u).tolist() == [False, True]
    assert (u == -INF).tolist() == [False, False]


def test_undefined_absorbs_every_operation(k: Any) -> None:
    u = undefined(k)[1:]
    m = masked(k)[1, :1]
    results = (u + 1, 1 - u, u * 0, 0 * u, u / 2, 2 / u, -u, abs(u), u**2, k.xp.exp(u), k.xp.sqrt(u), u + m, m - u)
    assert all(np.isnan(r).all() for r in results)
    assert np.isnan(k.xp.maximum(u, 3)).all()
    assert np.isnan(k.xp.maximum(m, u)).all()
    assert np.isnan(undefined(k).max())
    assert np.isnan(undefined(k).sum())
    assert np.isnan(undefined(k) @ k.lift([0, 0]))


def test_an_order_with_undefined_is_undecided(entries: Any) -> None:
    for compare in (lambda u: u < 1, lambda u: u >= 1, lambda u: entries.xp.sort(u)):
        refuses(compare, undefined(entries), kind=Undecided, says="undefined (0/0 at [1])")


def test_undefined_is_shown_in_words_never_as_a_number(entries: Any) -> None:
    text = repr(undefined(entries))
    assert "undefined (0/0 at [1])" in text
    assert "nan" not in text


def test_infinity_and_nan_in_the_data_are_refused() -> None:
    for name in (*ELEMENTS, "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        for bad in (INF, -INF, np.nan):
            with pytest.raises(InputError, match=rf"{name}: .* the data; only a mask may hold -inf"):
                kind(name).lift([[1.0, bad]])


def test_infinity_and_nan_are_refused_wherever_they_would_come_in(k: Any) -> None:
    s = k.lift([1, 2])
    for bad in (lambda: s + INF, lambda: s * np.nan, lambda: s * -INF, lambda: k.xp.where([True, False], s, np.nan)):
        refuses(bad, says="in the data")
    with pytest.raises(InputError, match="in the data"):
        s[0] = INF
    refuses(k.xp.asarray, [0.0, -INF], says="in the data")


def test_infinities_of_sympy_are_refused() -> None:
    import sympy

    symbolic = kind("symbolic")
    for bad in (sympy.oo, -sympy.oo, sympy.zoo, sympy.nan, sympy.I):
        refuses(symbolic.lift, [bad], says="not a real number")
    refuses(symbolic.xp.log, symbolic.lift([0]), says="not a real number")
    refuses(symbolic.xp.sqrt, symbolic.lift([-1]), says="not a real number")


def test_a_root_or_logarithm_of_a_negative_number_is_refused_at_once() -> None:
    for name in ("exact", "ball"):
        for function in ("sqrt", "log"):
            with pytest.raises(Refused, match=r"negative|not positive"):
                getattr(kind(name).xp, function)(kind(name).lift([-1]))
