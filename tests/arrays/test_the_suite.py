"""The conformance suite says no: kinds that are broken in one place fail it there, and a new kind passes it."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest

from symattn import kind as kind_of
from symattn.arrays.namespace import Namespace
from symattn.arrays.planes import Planes
from tests.arrays.conformance import check, failures
from tests.arrays.kinds import BallSpecimen, ExactSpecimen, FloatSpecimen, Specimen
from tests.arrays.operations import TABLE, Case
from tests.bounded import Bounded

Ball = kind_of("ball")
Exact = kind_of("exact")

FAULTS: dict[str, tuple[type[Exact], set[str]]] = {}


def fault(*seen: str) -> Callable[[type[Exact]], type[Exact]]:
    """A broken kind, and operations that must be found wrong."""

    def note(kind: type[Exact]) -> type[Exact]:
        if "xp" not in vars(kind):
            kind.xp = Namespace(kind)
        FAULTS[kind.__name__] = (kind, set(seen))
        return kind

    return note


@fault("add", "+", "sum", "matmul")
class AddsOneTooMuch(Exact):
    @classmethod
    def _add(cls, a: Any, b: Any) -> Any:
        return super()._add(super()._add(a, b), cls.lift(1))

    @classmethod
    def _sum(cls, a: Any, axis: int) -> Any:
        return super()._add(super()._sum(a, axis), cls.lift(1))

    @classmethod
    def _matmul(cls, a: Any, b: Any) -> Any:
        return super()._add(super()._matmul(a, b), cls.lift(1))


@fault("exp", "expm1", "in place")
class ExpIsOffByABillionth(Exact):
    @classmethod
    def function(cls, name: str, x: Any) -> Any:
        return super().function(name, x) * (1 + Fraction(name == "exp", 10**9))


@fault("less", "<", ">=", "argsort", "sort", "argmax")
class LessIsInverted(Exact):
    @classmethod
    def less(cls, x: Any, y: Any) -> bool:
        return not super().less(x, y)


@fault("in place")
class SlicesAreCopies(Exact):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index).copy()


@fault("where", "max", "isfinite", "[]=")
class ForbiddenIsAHugeNumber(Exact):
    @classmethod
    def literal(cls, value: Any) -> Any:
        return cls.lift(np.maximum(np.asarray(value, dtype=float), -1e9))


@fault("equal", "==", "not_equal", "!=")
class EverythingIsEqual(Exact):
    @classmethod
    def same(cls, x: Any, y: Any) -> bool:
        return True


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_kind_fails_where_it_is_broken(name: str) -> None:
    kind, seen = FAULTS[name]
    assert seen <= failures(ExactSpecimen("exact", kind)).keys()


class TooWide(Ball):
    @classmethod
    def function(cls, name: str, x: Any) -> Any:
        return super().function(name, x) * flint.arb(1, 1e-9)


class TooNarrow(Ball):
    """Midpoints alone: the ball does not hold the value."""

    @classmethod
    def function(cls, name: str, x: Any) -> Any:
        return super().function(name, x).mid()


@pytest.mark.deep
@pytest.mark.parametrize("kind", [TooWide, TooNarrow])
def test_balls_that_are_too_wide_or_hold_nothing_fail(kind: type[Ball]) -> None:
    kind.xp = Namespace(kind)
    assert {"exp", "log", "tanh"} <= failures(BallSpecimen("ball", kind)).keys()


def _broken_fp8(**methods: Any) -> Specimen:
    good = kind_of("float8_e5m2")
    made: type[Any] = type("broken", (good,), methods)
    made.xp = type(good.xp)(made)
    return FloatSpecimen("float8_e5m2", made, once=True, dtype=good.dtype)


def test_a_stored_kind_that_rounds_each_product_of_a_sum_fails() -> None:
    matmul = classmethod(Planes._matmul.__func__)
    assert {"matmul", "@", "dot"} <= failures(_broken_fp8(_matmul=matmul)).keys()


def test_a_stored_kind_that_is_promoted_fails() -> None:
    def promoted(cls: Any, a: Any, b: Any) -> Any:
        return cls(a.planes[0].astype(np.float32) * b.planes[0].astype(np.float32))

    assert {"multiply", "*"} <= failures(_broken_fp8(_mul=classmethod(promoted))).keys()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_float_that_is_one_rounding_too_far_away_fails(dtype: Any) -> None:
    """The bounds of the table are no wider than the roundings that they name."""
    specimen = FloatSpecimen("float", None, dtype=np.dtype(dtype))
    value = Fraction(103, 100)
    nearest = dtype(103) / dtype(100)
    beside = np.nextafter(nearest, dtype(2))
    assert specimen.agrees(float(nearest), value, 1, value)
    assert not specimen.agrees(float(beside), value, 1, value)
    assert specimen.agrees(float(beside), value, 3, value)


def test_a_kind_with_two_planes_passes() -> None:
    """A new kind is one file: its primitives, and the whole suite runs on it."""
    assert failures(_bounded()).keys() == {"erf"}
    assert failures(_bounded(), dispatch=True).keys() == set()


def test_a_kind_with_two_planes_whose_radius_is_too_small_fails() -> None:
    class Forgets(Bounded):
        u = 0.0

    Forgets.xp = Namespace(Forgets)
    assert {"exp", "divide"} <= failures(_bounded(Forgets)).keys()


class BoundedSpecimen(Specimen):
    def elements(self, array: Any) -> np.ndarray:
        centre, radius = array.planes
        pairs = np.empty(centre.shape, dtype=object)
        for index in np.ndindex(centre.shape):
            pairs[index] = (float(centre[index]), float(radius[index]))
        return pairs

    def special(self, x: Any) -> str:
        return "undefined" if x[0] != x[0] else "forbidden" if x[0] == -np.inf else ""

    def agrees(self, x: Any, value: Any, roundings: int, magnitude: Any) -> bool:
        ball = flint.arb(x[0], x[1])
        narrow = x[1] <= 2.0**-43 * max(1.0, abs(float(magnitude)))
        return narrow and BallSpecimen("ball", Ball).agrees(ball.mid() + flint.arb(0, x[1]), value, 1, magnitude)


def _bounded(kind: Any = Bounded) -> Specimen:
    return BoundedSpecimen("bounded", kind)


def test_a_wrong_shape_fails() -> None:
    specimen = ExactSpecimen("exact", Exact)
    check(Case(lambda xp, a: a, ([[1, 2]],)), specimen)
    with pytest.raises(AssertionError, match="shape"):
        check(Case(lambda xp, a: a.T, ([[1, 2]],), reference=lambda R, a: a), specimen)


def test_every_row_of_the_table_can_be_told_from_a_transposed_or_negated_result() -> None:
    """Where a result has elements, its negative is not accepted in its place, so no row is empty of meaning."""
    specimen, blind = ExactSpecimen("exact", Exact), []
    for name, cases in TABLE.items():
        for case in cases:
            negated = Case(lambda xp, *a, c=case: -c.run(xp, *a) - 1, case.inputs, reference=case.reference or case.run)
            try:
                check(negated, specimen)
            except Exception:
                break
        else:
            blind.append(name)
    assert blind == []
