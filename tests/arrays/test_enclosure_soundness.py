"""No interval of an enclosure misses the value that balls of 200 bits enclose; and narrower ones do."""

from collections.abc import Callable
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symattn import Attention, Refused, Undecided, kinds, vjp
from symattn import kind as kind_of
from symattn.arrays.enclosing import functions
from symattn.arrays.enclosing.bounds import TINY, UP
from symattn.attention.inputs import holds
from symattn.attention.variants import VARIANTS
from symattn.derivations.variants import Support
from tests.arrays.kinds import BITS, SIZES, Count, compared, hostile, outside

Ball = kind_of("ball")
Enclosure = kind_of("enclosure")

#: The unit roundoff of float64.
U = 2.0**-53

MODERATE = (0.0, 1e-300, 1e-9, 0.2, 1.0, 7.0, 300.0)
LARGE = 4136  # elements, so that rounding errors are bounded and not computed

#: Programs of two arrays (4, 6) and (6, 3), or of what their names say.
PROGRAMS: dict[str, Callable[..., Any]] = {
    "+": lambda x, y: x + y.T[:1],
    "-": lambda x, y: x - y.T[:1],
    "×": lambda x, y: x * y.T[:1],
    "÷": lambda x, y: x / y.T[:1],
    "× computed": lambda x, y: (x * 3 - y.T[:1]) * (y.T[:1] + x),
    "÷ computed": lambda x, y: (x * 3 - y.T[:1]) / (y.T[:1] * y.T[1:2] + 0.1),
    "÷ 8": lambda x, y: (x * 0.3) / 8,
    "minus": lambda x, y: -(x * 0.3),
    "sum": lambda x, y: (x * y.T[:1]).sum(axis=-1),
    "sum over rows": lambda x, y: (x / 3).sum(axis=0, keepdims=True),
    "mean": lambda x, y: x.mean(axis=1),
    "variance": lambda x, y: x.var(axis=1),
    "max": lambda x, y: (x * 0.3).max(axis=1),
    "max over rows": lambda x, y: (x / 3 - y.T[:1]).max(axis=0),
    "min": lambda x, y: (x / 3).min(axis=-1, keepdims=True),
    "maximum": lambda x, y: x.xp.maximum(x / 3, x * y.T[:1]),
    "abs": lambda x, y: abs(x - y.T[:1] / 3),
    "matmul": lambda x, y: x @ y,
    "matmul, left computed": lambda x, y: (x / 3) @ y,
    "matmul, both computed": lambda x, y: (x / 3) @ (y * 0.7),
    "matmul, right computed": lambda x, y: x @ (y / 7),
    "exp": lambda x, y: x.xp.exp(x),
    "exp of computed": lambda x, y: x.xp.exp(x / 3 - y.T[:1]),
    "tanh": lambda x, y: x.xp.tanh(x),
    "tanh of computed": lambda x, y: x.xp.tanh(x / 3 - y.T[:1]),
    "sqrt": lambda x, y: x.xp.sqrt(abs(x)),
    "sqrt of computed": lambda x, y: x.xp.sqrt(x * x / 3 + 1e-20),
    "log": lambda x, y: x.xp.log(abs(x) + 1e-300),
    "sin and cos": lambda x, y: x.xp.sin(x / 3) * x.xp.cos(x),
    "erf": lambda x, y: x.xp.erf(x / 3),
    "softmax": lambda x, y: _softmax(x / 3),
    "softmax of products": lambda x, y: _softmax(x @ y) @ y.T,
    "log of sum": lambda x, y: x.xp.log(x.xp.exp(x / 3 - x.max(axis=-1, keepdims=True)).sum(axis=-1)),
    "norm": lambda x, y: x / x.xp.sqrt((x * x).sum(axis=-1, keepdims=True)),
}


def _softmax(s: Any) -> Any:
    e = s.xp.exp(s - s.xp.max(s, axis=-1, keepdims=True))
    return e / s.xp.sum(e, axis=-1, keepdims=True)


def _counted(name: str, times: int, sizes: Any, shapes: Any = ((4, 6), (6, 3)), seed: int = 0) -> Count:
    rng = np.random.default_rng([seed, *name.encode()])
    return sum(
        (compared(PROGRAMS[name], *(hostile(rng, *s, sizes=sizes) for s in shapes)) for _ in range(times)), Count()
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_interval_misses_the_value_for_moderate_numbers(name: str) -> None:
    found = _counted(name, 12, MODERATE)
    assert found.outside == 0
    assert found.compared > 30
    assert found.untold < found.compared


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_interval_misses_the_value_for_hostile_numbers(name: str) -> None:
    assert _counted(name, 12, SIZES, seed=1).outside == 0


@pytest.mark.parametrize(
    "name", ["+", "÷", "× computed", "matmul", "matmul, both computed", "exp", "tanh", "sqrt", "softmax"]
)
def test_narrower_intervals_miss_values(name: str) -> None:
    """What is tested can fail: a thousandth of the radius is too little for some element."""
    assert _counted(name, 12, MODERATE).missed > 0


@pytest.mark.parametrize("name", ["+", "-", "×", "÷", "÷ computed", "exp of computed", "tanh of computed", "sqrt"])
def test_large_arrays_whose_roundings_are_bounded_and_not_computed(name: str) -> None:
    rng = np.random.default_rng([2, *name.encode()])
    x, y = (hostile(rng, *shape, sizes=MODERATE) for shape in ((3, LARGE), (LARGE, 3)))
    columns = rng.integers(0, LARGE, 60)
    with kinds.precision(BITS):
        got = PROGRAMS[name](Enclosure.lift(x), Enclosure.lift(y))[:, columns]
        wanted = PROGRAMS[name](Ball.lift(x[:, columns]), Ball.lift(y[columns]))
    assert outside(got, wanted).outside == 0
    assert np.isfinite(got.rad).mean() > 0.9


#: Programs of an array (n, 8), one (n, 8) and one (8, 2), of wide intervals.
OF_INTERVALS: dict[str, Callable[..., Any]] = {
    "+": lambda x, y, z: x + y,
    "×": lambda x, y, z: x * y,
    "× 3": lambda x, y, z: x * 3,
    "÷": lambda x, y, z: x / (abs(y) + 9),
    "÷ of rows": lambda x, y, z: x / (y[:, :1] + 20),
    "- of rows": lambda x, y, z: x - y[:, :1],
    "square": lambda x, y, z: x * x,
    "maximum": lambda x, y, z: x.xp.maximum(x, y),
    "max": lambda x, y, z: x.max(axis=-1),
    "max over rows": lambda x, y, z: x.max(axis=0),
    "sum": lambda x, y, z: x.sum(axis=0),
    "matmul": lambda x, y, z: x @ z,
    "matmul of rows": lambda x, y, z: (x - y[:, :1]) @ z,
    "row sums of rows": lambda x, y, z: (x - y[:, :1]).sum(axis=-1, keepdims=True),
    "max of rows": lambda x, y, z: (x - y[:, :1]).max(axis=-1),
    "exp": lambda x, y, z: x.xp.exp(x),
    "exp of rows": lambda x, y, z: x.xp.exp(x - y[:, :1]),
    "exp of exp of rows": lambda x, y, z: x.xp.exp(x.xp.exp(x / 8 - y[:, :1] / 8)),
    "softmax": lambda x, y, z: _softmax(x - y[:, :1]),
    "weighted": lambda x, y, z: (x.xp.exp(x) @ z) / x.xp.exp(x).sum(axis=-1, keepdims=True),
    "tanh": lambda x, y, z: x.xp.tanh(x / 4),
    "sqrt": lambda x, y, z: x.xp.sqrt(abs(x) + 5),
    "sin": lambda x, y, z: x.xp.sin(x / 16),
}


@pytest.mark.parametrize("rows", [5, LARGE // 8 + 1])
@pytest.mark.parametrize("name", OF_INTERVALS)
def test_wide_intervals_hold_the_values_of_their_ends(name: str, rows: int) -> None:
    """Midpoints and radii in eighths; ends, and points between them, are floats."""
    rng = np.random.default_rng([rows, *name.encode()])
    if rows > 100 and name == "sin":
        return
    mids = [rng.integers(-20, 21, shape) / 8 for shape in ((rows, 8), (rows, 8), (8, 2))]
    rads = [rng.integers(0, 9, x.shape) / 8 * rng.choice([0.0, 1.0, 2.0], (x.shape[0], 1)) for x in mids]
    got = OF_INTERVALS[name](*map(Enclosure, mids, rads))
    few = slice(None) if rows < 100 or name in ("sum", "max over rows") else slice(0, 5)
    for _ in range(4):
        points = [c + r * rng.choice([-1, -1, 0, 1, 1], c.shape) for c, r in zip(mids, rads, strict=True)]
        with kinds.precision(BITS):
            wanted = OF_INTERVALS[name](*(Ball.lift(x[few] if x.shape[0] == rows else x) for x in points))
            found = outside(got[few] if got.plain_shape[0] == rows else got, wanted)
        assert found.outside == found.open == 0


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_radii_of_sums_and_products_hold_their_errors_and_little_more(a: float, b: float) -> None:
    x, y = Enclosure.lift([a]), Enclosure.lift([b])
    with kinds.precision(4400):
        for got, exact in ((x + y, flint.arb(a) + flint.arb(b)), (x * y, flint.arb(a) * flint.arb(b))):
            error, radius = abs(exact - flint.arb(float(got.mid[0]))), float(got.rad[0])
            assert error <= radius
            # Near the largest and the least floats errors are bounded, not computed.
            if 2.0**-900 < float(abs(exact).lower()) < 2.0**900 and max(abs(a), abs(b)) < 2.0**900:
                assert radius <= float(error.upper()) * (1 + 2.0**-30) + 2.0**-1030


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["exp", "tanh", "sqrt", "sin", "erf", "log"]),
    st.floats(-1e4, 1e4),
    st.floats(0, 3) | st.floats(0, 1e-9) | st.just(0.0),
    st.floats(-1, 1),
)
def test_functions_hold_the_values_of_all_points(name: str, c: float, r: float, at: float) -> None:
    """Of an interval [c − r, c + r] any point is taken, not the midpoint alone."""
    if name in ("sqrt", "log"):
        c = abs(c) + 1.01 * r + 1e-30
    with kinds.precision(300):
        x = flint.arb(c) + flint.arb(r) * flint.arb(at)
        try:
            got = getattr(Enclosure.xp, name)(Enclosure(np.array([c]), np.array([r])))
        except Undecided:
            return
        assert outside(got, Ball(np.array([getattr(x, name)()], dtype=object))).outside == 0


@pytest.mark.parametrize("x", [0.0, 1e-310, 1e-18, 0.1, 0.2499999, 0.25, 0.2500001, 0.5, 1.0, 10.0, 19.0, 40.0, 400.0])
def test_tanh_is_as_accurate_as_is_proved(x: float) -> None:
    points = x * (1 + np.arange(200) * 2.0**-40)
    computed = functions._tanh_of(points)
    with kinds.precision(BITS):
        for p, t in zip(points.tolist(), computed.tolist(), strict=True):
            exact = flint.arb(p).tanh()
            assert abs(exact - flint.arb(t)) <= exact * 8 * U + 2.0**-1074


def test_the_inflation_covers_a_million_roundings() -> None:
    """(1 − u)^k (1 + 2⁻³²)(1 − u) > 1 for k = 2²⁰ + 64, in Arb."""
    with kinds.precision(BITS):
        assert (1 - flint.arb(U)) ** (2**20 + 64) * flint.arb(UP) * (1 - flint.arb(U)) > 1 + flint.arb(2) ** -34
        assert flint.arb(TINY) * (1 - flint.arb(U)) > flint.arb(2) ** 31 * flint.arb(2) ** -1074


# -- all variants and their gradients ---------------------------------------------------------------------------------
FAMILIES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "large scores": lambda rng, shape: rng.standard_normal(shape) * 12,
    "small": lambda rng, shape: rng.standard_normal(shape) * 2.0**-30,
    "equal": lambda rng, shape: np.broadcast_to(rng.standard_normal(shape[-1:]), shape) * (1 + 2.0**-50),
    "offset": lambda rng, shape: rng.standard_normal(shape) + 50,
    "of all sizes": lambda rng, shape: hostile(rng, *shape, sizes=(0.0, 1e-320, 1e-160, 1e-5, 1.0, 9.0, 90.0)),
}


def _given(of: Support, family: str, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([seed, *of.name.encode()])
    return {
        name: FAMILIES[family](rng, x.shape) if holds(name, of.variant.spec) == "numbers" else x
        for name, x in of.example.items()
    }


def _lifted(kind: Any, variant: Any, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    return {n: kind.literal(x) if holds(n, variant.spec) == "numbers" else x for n, x in inputs.items()}


def _values(kind: Any, variant: Any, inputs: dict[str, np.ndarray]) -> list[Any]:
    """The outputs, and the gradients by all inputs."""
    given = _lifted(kind, variant, inputs)
    out = variant.spec(**given)
    outputs = list(out) if isinstance(out, tuple) else [out]
    weights = [kind.lift(np.arange(y.size).reshape(y.plain_shape) % 5 - 1.5) for y in outputs]
    whole: Any = tuple(weights) if isinstance(out, tuple) else weights[0]
    return outputs + list(vjp(variant.spec, whole, given).values())


def _of_variant(name: str, family: str, seed: int = 0) -> Count:
    variant = VARIANTS[name]
    inputs = _given(Support(name, variant), family, seed)
    with kinds.precision(BITS):
        try:
            wanted = _values(Ball, variant, inputs)
        except (Refused, Undecided):
            return Count()
        try:
            got = _values(Enclosure, variant, inputs)
        except Undecided:
            return Count(open=1)
        return outside(got, wanted)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_and_its_gradients_are_enclosed(name: str) -> None:
    found = _of_variant(name, "normal")
    assert found.outside == found.open == 0
    assert found.compared > 20


@pytest.mark.deep
def test_no_element_of_any_variant_is_outside() -> None:
    """Outputs and gradients of all variants, in all families."""
    found, narrower = Count(), 0
    for family in FAMILIES:
        for name in VARIANTS:
            one = _of_variant(name, family, seed=1)
            assert one.outside == 0, (name, family, one)
            found, narrower = found + one, narrower + (one.missed > 0)
    assert found.compared >= 50_000
    assert found.missed > found.compared // 10
    assert found.open < found.compared // 10


@pytest.mark.deep
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 700, 3), (40, 40, 64), (3, 1030, 20), (130, 6, 2)])
def test_no_element_is_outside_for_other_shapes(shape: tuple[int, int, int]) -> None:
    n_q, n_k, d = shape
    rng = np.random.default_rng(shape)
    for spec in (Attention(), Attention(causal=n_q <= n_k, softcap=3), Attention(scale=0.3, causal=True, window=900)):
        for spread in (1.0, 20.0):
            inputs = [rng.standard_normal(s) * spread for s in ((n_q, d), (n_k, d), (n_k, 2))]
            found = compared(spec, *inputs)
            assert found.outside == 0
            assert found.compared == 2 * n_q or n_k < n_q
