"""Dual numbers against slopes, and the tape: for every operation ⟨g, J x'⟩ = ⟨Jᵀ g, x'⟩, exactly."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from symattn import Refused, Undecided, arrays, functional, kind, kinds, proving
from symattn.arrays import vjp_rules
from symattn.arrays.floats import Float64
from tests.arrays.evaluating import Numbers
from tests.arrays.operations import TABLE, Case
from tests.refusals import refuses

Exact = kind("exact")

#: What the tape makes of several operations, which a stored format rounds each.
SEVERAL = ("var", "std", "prod", "einsum", "vecdot", "Array.var", "Array.std", "Array.prod")
REFUSED = {"[]=": "no assignment", "in place": "no assignment"}
#: Functions that leave the decided field: there balls are compared.
BALLS = ("exp2", "log2", "erf", "cos", "sin")


def draw(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, shape) / 4


def apart(array: Any) -> Any:
    """The same moved a little, each element by another amount, so that no two are equal."""
    small = np.array([Fraction(k + 1, 997) for k in range(array.size)], dtype=object).reshape(array.plain_shape)
    return array + type(array).lift(small)


def parts(x: Any) -> list[Any]:
    return list(x) if isinstance(x, list | tuple) else [x]


def both_ways(case: Case, of: Any) -> tuple[Any, Any] | None:
    """⟨g, J x'⟩ by dual numbers and ⟨Jᵀ g, x'⟩ by the tape; None for what is no function of numbers."""
    inputs = [apart(of.lift(a)) for a in case.inputs]
    directions = [of.lift(draw(x.plain_shape, 1)) for x in inputs]
    variables = [kinds.tape(of.xp).variable(x) for x in inputs]
    ends = parts(case.run(kinds.tape(of.xp).xp, *variables))
    if not all(isinstance(y, kinds.tape(of.xp)) for y in ends):
        return None
    moved = parts(case.run(kinds.dual(of).xp, *map(kinds.dual(of).made, inputs, directions)))
    cotangents = [of.lift(draw(y.plain_shape, 2)) for y in ends]
    gradients = kinds.pull_back(list(zip(ends, cotangents, strict=True)), variables)
    assert [g.plain_shape for g in gradients] == [x.plain_shape for x in inputs]
    assert [y.plain_shape for y in ends] == [y.plain_shape for y in moved]
    return (
        sum((g * y.derivative).sum() for g, y in zip(cotangents, moved, strict=True)),
        sum((g * d).sum() for g, d in zip(gradients, directions, strict=True)),
    )


def agree(case: Case, balls: bool) -> bool:
    if not balls:
        found = both_ways(case, Exact)
        return found is None or bool((found[0] - found[1] == 0).all()) if found else True
    with kinds.precision(200):
        found = both_ways(case, kind("ball"))
        return found is None or all(abs(x) < 1e-40 and x.rad() < 1e-40 for x in [(found[0] - found[1]).item()])


@pytest.mark.parametrize("name", TABLE)
def test_the_way_back_is_the_transpose_of_the_way_forth(name: str) -> None:
    for case in TABLE[name]:
        if name in REFUSED:
            with pytest.raises(Refused, match=REFUSED[name]):
                agree(case, False)
        else:
            assert agree(case, name in BALLS)


def _twice(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda xp, g, *args: rule(xp, 2 * g, *args)


@pytest.mark.parametrize("name", sorted(vjp_rules.ELEMENTWISE))
def test_a_wrong_rule_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = vjp_rules.ELEMENTWISE[name]
    for k in range(name == "where", len(rules)):
        wrong = tuple(_twice(r) if i == k else r for i, r in enumerate(rules))
        monkeypatch.setitem(vjp_rules.ELEMENTWISE, name, wrong)
        assert not all(agree(case, name in BALLS) for case in TABLE[name])


@pytest.mark.parametrize("name", [n for n in arrays.FLOATING if not n.startswith("float8")])
def test_values_are_those_of_the_kind(name: str) -> None:
    of: Any = kind(name)
    left_out = (*REFUSED, "sort descending", "erf", *(SEVERAL if name == "bfloat16" else ()))
    for case in (c for n, cases in TABLE.items() if n not in left_out for c in cases):
        lifted = [of.lift(a) for a in case.inputs]
        with np.errstate(all="ignore"):
            plain = parts(case.run(of.xp, *lifted))
            taped = parts(case.run(kinds.tape(of.xp).xp, *map(kinds.tape(of.xp).variable, lifted)))
        for x, y in zip(plain, taped, strict=True):
            value = y.value if isinstance(y, kinds.tape(of.xp)) else y
            assert type(value) is type(x) or np.ndim(x) == 0
            assert np.array_equal(*[np.asarray(getattr(z, "planes", [z])[0], dtype=object) for z in (x, value)])


# -- maxima ------------------------------------------------------------------------------------------------------------
def slope(function: Callable[[Any], Any], x: Any, of: Any = Exact, ties: Any = "refuse") -> Any:
    """The gradient of Σ f(x)."""
    variable = kinds.tape(of.xp, ties).variable(of.lift(x))
    y = function(variable)
    return kinds.pull_back([(y, y.under.ones_like(y.value))], [variable])[0]


def relu(x: Any) -> Any:
    return x.xp.maximum(x, 0)


def test_a_maximum_of_equals_is_refused_or_as_told() -> None:
    refuses(slope, relu, [0, 1], kind=Undecided, says="no one gradient")
    assert slope(relu, [0, 1], ties="second").tolist() == [0, 1]
    assert slope(lambda x: x.xp.max(x), [1, 3, 3], ties="second").tolist() == [0, 0, 1]
    assert slope(lambda x: x.xp.max(x), [1, 3, 2]).tolist() == [0, 1, 0]


def test_floats_take_the_second_of_equals() -> None:
    variable = kinds.tape(np).variable(np.array([0.0, 1.0, -1.0]))
    assert kinds.pull_back([(relu(variable), np.ones(3))], [variable])[0].tolist() == [0, 1, 0]


def test_balls_enclose_every_gradient_at_a_maximum_of_equals() -> None:
    low, one = slope(relu, [0, 1], kind("ball")).tolist()
    assert low.contains(0)
    assert low.contains(1)
    assert one == 1


@pytest.mark.parametrize("name", ["exact", "ball", "symbolic", "modular"])
def test_a_maximum_that_does_not_matter_is_not_looked_at(name: str) -> None:
    """Equal scores, letters, residues without order: the gradient of softmax is p ⊙ (g − ⟨p, g⟩) all the same."""
    of: Any = kinds.modular(seed=5) if name == "modular" else kind(name)
    s = of.letters(1, 3) if name == "modular" else of.letters("s", 1, 3) if name == "symbolic" else of.lift([[1, 1, 0]])
    g = of.lift([[2, -1, 3]])
    variable = kinds.tape(of.xp).variable(s)
    (found,) = kinds.pull_back([(functional.softmax(variable), g)], [variable])
    p = functional.softmax(s, stabilised=False)
    wanted = p * (g - (p * g).sum(axis=-1, keepdims=True))
    if name == "ball":
        assert all(
            x.overlaps(y) and x.rad() < 1e-12 for x, y in zip(found.entries.flat, wanted.entries.flat, strict=True)
        )
    else:
        assert (found == wanted).all()


def test_a_maximum_that_matters_is_not_guessed() -> None:
    of: Any = kind("symbolic")
    with pytest.raises(Undecided):
        slope(lambda x: x.xp.max(x), of.letters("s", 2), of)


# -- what is built on it -----------------------------------------------------------------------------------------------
def test_second_derivatives_by_a_tape_over_dual_numbers() -> None:
    """The Hessian of ⟨g, softmax(s)⟩ is symmetric, and that of Σ x³ is 6x on the diagonal."""
    of = kinds.dual(Exact)

    def hessian(function: Callable[[Any], Any], x: list[int]) -> np.ndarray:
        rows = []
        for unit in np.eye(len(x), dtype=int):
            variable = kinds.tape(of.xp).variable(of.made(Exact.lift(x), Exact.lift(unit)))
            y = function(variable)
            rows.append(kinds.pull_back([(y, of.lift(1))], [variable])[0].derivative.entries)
        return np.array(rows)

    assert hessian(lambda x: (x * x * x).sum(), [2, 3]).tolist() == [[12, 0], [0, 18]]
    second = hessian(lambda s: (functional.softmax(s, stabilised=False) * np.array([1, -2, 4])).sum(), [0, 1, 3])
    assert (second == second.T).all()
    assert (second[0] != 0).all()


def test_what_is_used_twice_gathers_its_gradients() -> None:
    assert slope(lambda x: x * x + x[::-1] * 3 + x.sum(), [2, 5]).tolist() == [9, 15]
    assert slope(lambda x: x.xp.concat([x, x, x[:1]]), [2, 5]).tolist() == [3, 2]
    assert slope(lambda x: x.xp.take(x, np.array([1, 1, 0, 1]), axis=0), [2, 5]).tolist() == [1, 3]


def test_casts_are_undone_on_the_way_back() -> None:
    x = kinds.tape(np).variable(np.array([0.1, 3.0]))
    y = (x.astype(np.float32) * 3).astype(np.float64)
    assert y.value[0] == np.float64(np.float32(0.1) * np.float32(3))
    (found,) = kinds.pull_back([(y, np.array([1.0, 0.1]))], [x])
    assert found.dtype == np.float64
    assert found[1] == np.float64(np.float32(0.1) * np.float32(3))


def test_constants_are_not_recorded() -> None:
    of = kinds.tape(Exact.xp)
    assert not (of.lift([1, 2]) * 3 + of.lift(1)).moves
    assert not isinstance(of.variable(Exact.lift([1, 2])) > 1, of)


def test_names_that_the_kind_lacks_are_refused() -> None:
    x = kinds.tape(Exact.xp).variable(Exact.lift([1, 2]))
    refuses(x.offer, "fft", kind=Refused, says="lacks fft")
    refuses(x.xp.pow, 2, x, kind=Refused, says="exponent")


DUAL: Any = kinds.dual(Exact)
xp = DUAL.xp


def at(value: Any, dual_slope: Any = 1) -> Any:
    return DUAL.made(Exact.lift(value), Exact.lift(dual_slope))


def dual_slope(x: Any) -> Any:
    return x.derivative.item()


HALF = Fraction(1, 2)


def test_exponentials_differentiate_to_themselves() -> None:
    x = at(HALF)
    assert dual_slope(xp.exp(x * x)) == xp.exp(x * x).value.item()  # 2x = 1 at 1/2
    assert dual_slope(xp.log(xp.exp(x) * xp.exp(x))) == 2


def test_a_constant_has_no_slope_even_where_the_function_has_none() -> None:
    assert dual_slope(xp.sqrt(at(0, 0))) == 0
    assert dual_slope(DUAL.lift(3) * at(2)) == 3


def test_equals_have_no_larger_one() -> None:
    refuses(xp.maximum, at(0), 0, kind=Undecided, says="equals with different slopes")
    assert dual_slope(xp.maximum(at(2, 3), at(2, 3))) == 3
    assert dual_slope(xp.max(DUAL.made(Exact.lift([1, 1]), Exact.lift([5, 7])))) == 5


def test_over_floats() -> None:
    of: Any = kinds.dual(Float64)
    x = of.made(Float64.lift([0.5, 2.0]), Float64.lift([1.0, -1.0]))
    moved = of.xp.exp(x) @ x
    assert moved.derivative.planes[0] == pytest.approx(1.5 * np.exp(0.5) - 3 * np.exp(2))
    assert of.xp.erf(x).derivative.planes[0][0] == pytest.approx(2 / np.sqrt(np.pi) * np.exp(-0.25))
    refuses(Float64._unary, "gamma", Float64.lift(1), kind=Refused, says="float64 lacks gamma")


def test_a_forbidden_score_has_no_derivative() -> None:
    masked = xp.where(np.array([True, False]), DUAL.made(Exact.lift([1, 2]), Exact.lift([1, 1])), -np.inf)
    weights = functional.softmax(masked)
    assert [e.derivative.item() for e in (weights[0], weights[1])] == [0, 0]
    assert dual_slope(xp.sum(xp.exp(masked), axis=-1)) == xp.exp(at(1)).value.item()


def test_what_is_not_differentiated_is_refused() -> None:
    with pytest.raises(Refused):
        xp.erf(at(1))


@pytest.mark.parametrize("stabilised", [True, False])
@pytest.mark.parametrize("sizes", [{"n": 1, "m": 2}, {"n": 2, "m": 3}])
def test_formal_and_dual_gradients_agree(stabilised: bool, sizes: dict[str, int]) -> None:
    """The derivative of index expressions, at numbers, is what dual numbers give."""

    def loss(s: Any, v: Any) -> Any:
        p = functional.softmax(s, stabilised)
        return (p * p * v).sum()

    s = np.array([[Fraction((3 * i + 2 * j) % 5, 2) for j in range(sizes["m"])] for i in range(sizes["n"])])
    v = np.array([[Fraction(i - 2 * j, 3) for j in range(sizes["m"])] for i in range(sizes["n"])])
    along = proving.gradient(loss, "s", s=Exact.lift(s), v=Exact.lift(v))
    letters = {name: kinds.Indexed.letters(name, "n", "m") for name in ("s", "v")}
    numbers = Numbers({"s": (s, "n m"), "v": (v, "n m")}, sizes, weights=True)
    formal = numbers.everywhere(proving.gradient(loss, "s", **letters))
    for place in np.ndindex(*along.shape):
        assert formal[place].item() == along.entries[place]
