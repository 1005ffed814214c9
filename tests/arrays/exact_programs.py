"""Random programs on exact arrays, and beside each of them the same program on real numbers (``balls``)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from operator import itemgetter, methodcaller
from random import Random
from typing import Any

import flint
import numpy as np

from symattn import Refused, Undecided, kind, kinds
from symattn.arrays.field.surds import Surd
from tests.arrays import balls
from tests.arrays.balls import Real, of_notation, real

EXACT = kind("exact")
XP = EXACT.xp
_TINY = flint.arb(2) ** (-balls.BITS[-1] // 2)
_TERMS, _DIGITS = 30, 400  # a larger number is checked, but not computed with
Index = Any


def dot(xs: list[Any], ys: list[Any]) -> Any:
    """The sum of the products of two lists of elements."""
    return (EXACT.lift(xs) @ EXACT.lift(ys)).item()


class Skipped(Exception):
    """A step outside what the kind promises."""


class Both:
    """An exact array and the same array of real numbers. ``scores``: all in K; ``logs``: logarithms may be among it."""

    def __init__(self, exact: Any, reals: np.ndarray, scores: bool, logs: bool = False) -> None:
        self.exact = exact
        self.reals = reals
        self.scores = scores
        self.logs = logs

    @property
    def shape(self) -> tuple[int, ...]:
        return self.reals.shape

    def made(self, exact: Any, reals: Any, *others: Both) -> Both:
        """The result of a step on this and others."""
        every = (self, *others)
        return Both(exact, reals, all(x.scores for x in every), any(x.logs for x in every))

    def __add__(self, other: Both) -> Both:
        return self.made(self.exact + other.exact, balls.each(balls.added, self.reals, other.reals), other)

    def __sub__(self, other: Both) -> Both:
        minus = balls.each(balls.negated, other.reals)
        return self.made(self.exact - other.exact, balls.each(balls.added, self.reals, minus), other)

    def __mul__(self, other: Both) -> Both:
        self.modest(other)
        exact = self.tried(lambda: self.exact * other.exact, other)
        return self.made(exact, balls.each(balls.times, self.reals, other.reals), other)

    def __truediv__(self, other: Both) -> Both:
        self.modest(other)
        exact = self.tried(lambda: self.exact / other.exact, other)
        return self.made(exact, balls.each(balls.divided, self.reals, other.reals), other)

    def __matmul__(self, other: Both) -> Both:
        self.modest(other)
        exact = self.tried(lambda: self.exact @ other.exact, other)
        return self.made(exact, balls.matmul(self.reals, other.reals), other)

    def __neg__(self) -> Both:
        return self.made(-self.exact, balls.each(balls.negated, self.reals))

    def __getitem__(self, index: Index) -> Both:
        return self.moved(itemgetter(index))

    def moved(self, move: Callable[[Any], Any]) -> Both:
        """What only moves elements; NumPy hands back a bare element in place of an array without axes."""
        reals = move(self.reals)
        return self.made(move(self.exact), reals if isinstance(reals, np.ndarray) else balls.filled((), [reals]))

    def modest(self, other: Both) -> None:
        """No logarithms with large multiples: they are powers with large exponents."""
        numbers = [x.ball() for a in (self, other) for x in a.reals.flat if not isinstance(x, balls.Nothing)]
        if (self.logs or other.logs) and not all(0.1 < abs(x) < 9 or x.contains(0) for x in numbers):
            raise Skipped

    def tried(self, run: Callable[[], Any], *others: Both) -> Any:
        """What may be refused where logarithms take part, and nowhere else."""
        try:
            return run()
        except Refused:
            if any(x.logs for x in (self, *others)):
                raise Skipped from None
            raise

    def sum(self, axis: int, keepdims: bool = False) -> Both:
        return self.made(XP.sum(self.exact, axis=axis, keepdims=keepdims), self.fold(balls.added, axis, keepdims))

    def max(self, axis: int, keepdims: bool = False) -> Both:
        return self.made(XP.max(self.exact, axis=axis, keepdims=keepdims), self.fold(balls.larger, axis, keepdims))

    def fold(self, step: Callable[[Any, Any], Any], axis: int, keepdims: bool) -> np.ndarray:
        return balls.folded(step, self.reals, axis, keepdims)

    def apply(self, name: str) -> Both:
        """exp, tanh (of scores), log (of positive numbers), sqrt (of what its caller knows to have one)."""
        if name in ("exp", "tanh") and not (self.scores or self.logs):
            raise Skipped
        if name == "log" and (self.logs or any(isinstance(x, balls.Nothing) or x.sign() <= 0 for x in self.reals.flat)):
            raise Skipped
        exact = self.tried(lambda: getattr(XP, name)(self.exact))
        return Both(exact, balls.each(balls.applied(name), self.reals), False, name == "log")


def lifted(rows: Any) -> Both:
    return Both(
        EXACT.lift(rows), balls.lifted(rows), not any("exp" in str(x) for x in np.array(rows, dtype=object).flat)
    )


# --- numbers ---------------------------------------------------------------------------------------------------------

_ROOTS = (2, 3, 6, 5, 12)


def _rational(rng: Random) -> Any:
    common = rng.choice((1, 1, 2, 3, 4, 6, 12, 35))
    return rng.choice((rng.randint(-3, 3), Fraction(rng.randint(-9, 9), common), rng.randint(-16, 16) / 8))


def _root(rng: Random) -> str:
    below = rng.choice(("", "", "/2", "/3", "/6"))
    return f"{rng.choice((-2, -1, 1, 1, 3))}*sqrt({rng.choice(_ROOTS)}){below}"


def _surd(rng: Random) -> str:
    return f"{_root(rng)}+{Fraction(_rational(rng))}" if rng.random() < 0.5 else f"{_root(rng)}+{_root(rng)}"


def _power(rng: Random) -> str:
    exponent = _root(rng) if rng.random() < 0.4 else f"{Fraction(_rational(rng))}"
    return f"{rng.choice((1, -1, 2, 3))}*exp({exponent})/{rng.choice((1, 2, 3))}"


def _extreme(rng: Random) -> Any:
    large = rng.choice((300, 1000, 2**70, 10**30))
    return rng.choice((large % 997, -(large % 997), Fraction(1, large), 0.1, float(2.0**-40), 1e-3, large % 9999))


_THEMES: tuple[tuple[Callable[[Random], Any], ...], ...] = (
    (_rational,),
    (_rational, _root),
    (_root,),
    (_rational, _root, _surd),
    (_rational, _power),
    (_power, _root),
    (_rational, _extreme),
    (_rational, _root, _surd, _power, _extreme),
)


def _matrix(rng: Random, theme: Any, shape: tuple[int, ...]) -> Both:
    few = [rng.choice(theme)(rng) for _ in range(rng.choice((1, 2, 9)))]
    few.append(0 if rng.random() < 0.2 else few[0])
    rows = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        rows[index] = rng.choice(few)
    return lifted(rows.tolist())


# --- steps -----------------------------------------------------------------------------------------------------------


def _softmax(rng: Random, s: Both) -> Both:
    if rng.random() < 0.5 and s.scores:
        m = s.max(-1, keepdims=True)
        if balls.FORBIDDEN in m.reals:
            raise Skipped  # −∞ − (−∞), of a row wholly masked
        s = s - m
    e = s.apply("exp")
    return e / e.sum(-1, keepdims=True)


def _masked(rng: Random, s: Both) -> Both:
    """The scores with some of them forbidden, in one of the ways that programs have for it."""
    keep = np.array([rng.random() < 0.7 for _ in range(s.reals.size)]).reshape(s.shape)
    keep |= (np.eye(s.shape[-2], s.shape[-1]) > 0) & (rng.random() < 0.8)
    reals = balls.each(lambda k, x: x if k else balls.FORBIDDEN, keep, s.reals)
    mask = np.where(keep, 0.0, -np.inf)
    if rng.random() < 0.3:
        written = s.exact.copy()
        written[~keep] = -np.inf
    else:
        written = XP.where(keep, s.exact, -np.inf) if rng.random() < 0.5 else s.exact + mask
    return s.made(written, reals)


def _attention(rng: Random, pool: list[Both]) -> Both:
    q, k, v = _square(rng, pool[:3]), _square(rng, pool[:3]), _square(rng, pool)
    scale = lifted(rng.choice((1, "1/sqrt(2)", "1/sqrt(3)", "sqrt(2)/4", Fraction(1, 2))))
    s = (q @ k.moved(lambda a: a.swapaxes(-1, -2))) * scale
    return _softmax(rng, _masked(rng, s) if rng.random() < 0.5 else s) @ v


def _heads(rng: Random, pool: list[Both]) -> Both:
    """Several heads at once, put side by side."""
    both = _joined("stack", [_softmax(rng, _square(rng, pool[:3])) for _ in range(2)])
    v = _joined("stack", [_square(rng, pool[:3]), _square(rng, pool[:3])])
    out = (both @ v).moved(lambda a: a.swapaxes(0, 1).reshape(a.shape[-2], -1).copy())
    return out @ _joined("concat", [_square(rng, pool[:3]), _square(rng, pool[:3])])


def _online(rng: Random, pool: list[Both]) -> Both:
    """Softmax by two tiles of columns, the first rescaled when the second is met."""
    s, v = _square(rng, pool), _square(rng, pool)
    if not s.scores:
        raise Skipped
    m = s[:, :1].max(-1, keepdims=True)
    p = (s[:, :1] - m).apply("exp")
    z, out = p.sum(-1, keepdims=True), p @ v[:1]
    new = s.max(-1, keepdims=True)
    c, p = (m - new).apply("exp"), (s[:, 1:] - new).apply("exp")
    return (out * c + p @ v[1:]) / (z * c + p.sum(-1, keepdims=True))


def _logsumexp(rng: Random, pool: list[Both]) -> Both:
    s = _square(rng, pool)
    z = s.apply("exp").sum(-1, keepdims=True).apply("log")
    if rng.random() < 0.3:
        return _joined("concat", [z, s], axis=-1).sum(-1)
    return (s - z).apply("exp") if rng.random() < 0.5 else z


def _roots(rng: Random, pool: list[Both]) -> Both:
    """Square roots of rational numbers and of powers."""
    if rng.random() < 0.5:
        return _matrix(rng, (lambda rng: abs(Fraction(_rational(rng))),), pool[0].shape).apply("sqrt")
    s = _square(rng, pool)
    if not s.scores:
        raise Skipped
    return s.apply("exp").apply("sqrt")


def _weighted(rng: Random, pool: list[Both]) -> Both:
    """Weights whose denominators differ along what is summed, and values that have denominators of their own."""
    weights = _joined("concat", [_softmax(rng, _square(rng, pool[:3])) for _ in range(2)], axis=-1)
    values = _matrix(rng, (_rational,), (2, weights.shape[0]))
    if rng.random() < 0.5:
        return values @ weights
    return weights.moved(methodcaller("swapaxes", -1, -2)) @ values.moved(methodcaller("swapaxes", -1, -2))


def _in_place(rng: Random, pool: list[Both]) -> Both:
    a, b = _square(rng, pool), rng.choice(pool)
    out = a.made(a.exact.copy(), a.reals.copy(), b)
    row: Any = rng.choice(
        (0, slice(0, 1), (slice(None), 0), (Ellipsis, slice(1, None)), (slice(None), slice(None, None, -1)))
    )
    view = out[row]
    if len(b.shape) > len(view.shape):
        raise Skipped
    try:
        np.broadcast_to(b.reals, view.shape)
    except ValueError:
        raise Skipped from None
    changed = rng.choice((view + b, view - b, view * b, b))
    out.exact[row] = changed.exact
    out.reals[row] = changed.reals if changed.reals.ndim else changed.reals[()]
    return out


def _joined(name: str, parts: list[Both], axis: int = 0) -> Both:
    exact = getattr(XP, name)([x.exact for x in parts], axis=axis)
    return parts[0].made(exact, getattr(np, name)([x.reals for x in parts], axis=axis), *parts[1:])


def _square(rng: Random, pool: list[Both]) -> Both:
    return rng.choice([x for x in pool if len(x.shape) == 2 and x.shape[0] == x.shape[1] > 1])


def _any(rng: Random, pool: list[Both]) -> Both:
    return rng.choice(pool)


def _pair(run: Callable[[Both, Both], Both]) -> Callable[[Random, list[Both]], Both]:
    def step(rng: Random, pool: list[Both]) -> Both:
        a, b = rng.choice(pool), rng.choice(pool)
        try:
            np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            raise Skipped from None
        return run(a, b)

    return step


def _one(run: Callable[[Random, Both], Both]) -> Callable[[Random, list[Both]], Both]:
    return lambda rng, pool: run(rng, rng.choice(pool))


def _power_of(rng: Random, a: Both) -> Both:
    n = rng.choice((2, 3, -1, -2))
    factors = reduce(lambda x, y: balls.each(balls.times, x, y), [a.reals] * abs(n))
    reals = factors if n > 0 else balls.each(balls.divided, balls.lifted(1), factors)
    return a.made(a.tried(lambda: a.exact**n), reals)


def _mean(rng: Random, a: Both) -> Both:
    if a.logs:
        raise Skipped
    axis = rng.randrange(-len(a.shape), 0)
    reals = balls.each(balls.divided, a.fold(balls.added, axis, True), balls.lifted(a.shape[axis]))
    return a.made(XP.mean(a.exact, axis=axis, keepdims=True), reals)


def _einsum(rng: Random, pool: list[Both]) -> Both:
    a, b = _square(rng, pool), _square(rng, pool)
    product = balls.matmul(a.reals, b.reals.T)
    return a.made(a.tried(lambda: XP.einsum("ij,kj->ik", a.exact, b.exact), b), product, b)


def _running(rng: Random, a: Both) -> Both:
    lines = [a.reals[..., 0]]
    for i in range(1, a.shape[-1]):
        lines.append(balls.each(balls.added, lines[-1], a.reals[..., i]))
    return a.made(XP.cumulative_sum(a.exact, axis=a.reals.ndim - 1), np.stack(lines, -1))


def _chosen(rng: Random, pool: list[Both]) -> Both:
    a, b = _square(rng, pool), _square(rng, pool)
    take = np.array([rng.random() < 0.5 for _ in range(a.reals.size)]).reshape(a.shape)
    return a.made(XP.where(take, a.exact, b.exact), np.where(take, a.reals, b.reals), b)


_STEPS: tuple[tuple[int, Callable[[Random, list[Both]], Both]], ...] = (
    (3, _pair(lambda a, b: a + b)),
    (2, _pair(lambda a, b: a - b)),
    (3, _pair(lambda a, b: a * b)),
    (3, _pair(lambda a, b: a / b)),
    (1, _pair(lambda a, b: a.made(XP.maximum(a.exact, b.exact), balls.each(balls.larger, a.reals, b.reals), b))),
    (4, lambda rng, pool: _square(rng, pool) @ _square(rng, pool)),
    (1, _one(lambda rng, a: -a)),
    (2, _one(lambda rng, a: a.sum(rng.randrange(-len(a.shape), 0), rng.random() < 0.7))),
    (1, _one(lambda rng, a: a.max(rng.randrange(-len(a.shape), 0), keepdims=True))),
    (1, _one(_mean)),
    (1, _one(_power_of)),
    (1, _one(_running)),
    (4, _one(lambda rng, a: a.apply("exp"))),
    (2, _one(lambda rng, a: a.apply("log"))),
    (1, _one(lambda rng, a: a.apply("tanh"))),
    (3, _one(_softmax)),
    (1, _one(lambda rng, a: a.moved(methodcaller("swapaxes", -1, -2)) if len(a.shape) > 1 else a[::-1])),
    (1, _one(lambda rng, a: a[..., 1:] if a.shape[-1] > 1 else a[..., :1])),
    (1, _one(lambda rng, a: a[..., ::-1])),
    (1, _chosen),
    (1, _einsum),
    (3, _attention),
    (1, _heads),
    (1, _online),
    (2, _logsumexp),
    (1, _roots),
    (2, _weighted),
    (2, _in_place),
    (1, lambda rng, pool: _joined("concat", [_square(rng, pool), _square(rng, pool)])),
)
_WEIGHTS, _RUNS = zip(*_STEPS, strict=True)


def run(rng: Random, steps: int, check: Callable[[Both], None]) -> list[Both]:
    """A random program of so many steps; ``check`` sees every result. What is left of its arrays."""
    theme = rng.choice(_THEMES)
    n = rng.choice((2, 2, 3))
    shapes = ((n, n), (n, n), (n, n), rng.choice(((n, 1), (1, n), (n,), (2, n, n))))
    pool = [_matrix(rng, theme, shape) for shape in shapes]
    for _ in range(steps):
        try:
            result = rng.choices(_RUNS, _WEIGHTS)[0](rng, pool)
        except Skipped:
            continue
        check(result)
        if result.reals.ndim and all(small(x) for x in result.exact.entries.flat):
            pool.append(result)
            if len(pool) > 9:
                pool.pop(rng.randrange(3, len(pool)))  # frees elements, whose identities are then given again
    return pool


def small(x: Any) -> bool:
    """Whether the number is one, and one that can be computed with."""
    if isinstance(x, (kinds.Forbidden, kinds.Undefined)):
        return False
    if isinstance(x, kinds.Logarithm):
        return small(x.c) and small(x.f)
    _, n, d = x.parts
    polynomials = all(type(z) is int for f in (n, d) for kc in f.items() for z in kc)
    if len(n) + len(d) > (_TERMS if polynomials else _TERMS // 3):
        return False
    return all(len(str(c)) < _DIGITS for f in (n, d) for c in f.values())


# --- checks ----------------------------------------------------------------------------------------------------------


def agree(both: Both) -> None:
    """Every exact element lies where its real number does, and is built as the field says."""
    assert both.exact.entries.shape == both.reals.shape
    for x, r in zip(both.exact.entries.flat, both.reals.flat, strict=True):
        same(x, r)
        if isinstance(x, kinds.Quotient):
            well_made(x)


def same(x: Any, r: Any) -> None:
    if isinstance(r, balls.Nothing) or isinstance(x, (kinds.Forbidden, kinds.Undefined)):
        assert isinstance(x, kinds.Undefined) == (r is balls.UNDEFINED), (x, r)
        assert isinstance(x, kinds.Forbidden) == (r is balls.FORBIDDEN), (x, r)
        return
    if isinstance(x, kinds.Quotient) and x.is_zero():
        assert r.sign() == 0, (x, r.ball())
        return
    value = x.arb(160)
    assert value.rel_accuracy_bits() >= 158
    for bits in balls.BITS:
        ball = r.ball(bits)
        assert value.overlaps(ball), (x, value, ball)
        if not ball.contains(0):
            return
    assert abs(value) < _TINY, ("not zero?", x)


def well_made(x: kinds.Quotient) -> None:
    """What the docstrings of ``quotient`` and ``sums`` promise of an element."""
    unit, n, d = x.parts
    assert len(d) > 1 or (d.keys() == {0} and type(d[0]) is int and d[0] > 0), d
    assert unit.denominator > 0
    for f in (n, d):
        assert all(f.values()), f
        for k, c in f.items():
            assert all(type(z) in (int, Fraction, Surd) for z in (k, c)), f
            assert type(c) is int or isinstance(c, Surd) or c.denominator > 1, f
            assert not isinstance(k, Surd) or unit.radicand == 1, (unit, f)


def written(x: Any, r: Real) -> None:
    """Text, formula, SymPy expression, decimal digits and nearest double all say the number."""
    value = x.arb(160)
    for read in (balls.of_text(str(x)), balls.of_notation(x.notation()), balls.of_sympy(x.to_sympy())):
        for bits in balls.BITS:
            assert read.ball(bits).overlaps(value), (x, value, read.ball(bits))
            if x.sign() == 0 or not read.ball(bits).contains(0):
                break
    digits(x, r)
    nearest(x.to_float(), r)
    if isinstance(x, kinds.Quotient):
        read_back(x, x)


def read_back(x: kinds.Quotient, y: kinds.Quotient) -> None:
    """The text of x, which equals y, is read as that number, unless it is long."""
    if small(x) and len(line := str(x)) < 300:
        assert kinds.Quotient.of(line).same(y), x


def digits(x: Any, r: Real) -> None:
    for n in (3, 12):
        try:
            shown = x.decimal(n)
        except Undecided:
            after = x.decimal(n + 40).partition("e")[0].replace(".", "").lstrip("-0")[n:]
            assert after in ("5" + 39 * "0", "4" + 39 * "9"), x  # so close to the middle of two that it may be
            continue
        with flint.ctx.workprec(balls.BITS[1]):
            half = flint.arb(f"5e{_exponent(shown) - n}") if shown != "0" else flint.arb(0)
            off = abs(r.ball(balls.BITS[1]) - flint.arb(shown))
            assert not off > half, (x, shown)


def _exponent(shown: str) -> int:
    """The decimal exponent of the first digit that is not zero."""
    digits, _, e = shown.lstrip("-").partition("e")
    whole, _, after = digits.partition(".")
    return int(e or 0) + (len(whole) - 1 if whole != "0" else len(after.lstrip("0")) - len(after) - 1)


def nearest(f: float, r: Real) -> None:
    if abs(f) in (0.0, float("inf")):
        size = abs(r.ball(balls.BITS[1]))
        assert not (size > flint.arb(2) ** -1075 if not f else size < flint.arb(2) ** 1023), (f, size)
        return
    with flint.ctx.workprec(2200):
        x, at = r.ball(balls.BITS[1]), flint.arb(f)
        for other in (np.nextafter(f, np.inf), np.nextafter(f, -np.inf)):
            if np.isfinite(other):
                assert not abs(x - at) > abs(x - flint.arb(float(other))), (f, x)


def compared(x: Any, r: Real, y: Any, s: Real) -> None:
    """Equality and order are those of the real numbers."""
    sign = (r - s).sign()
    if not sign and x != y and abs((x - y).arb()) < _TINY:
        return  # closer than the balls were asked for
    assert (x == y) == (y == x) == (sign == 0), (x, y)
    assert (x < y) == (y > x) == (sign < 0), (x, y)
    assert (x <= y) == (y >= x) == (sign <= 0), (x, y)
    if isinstance(x, kinds.Quotient) and isinstance(y, kinds.Quotient):
        assert (x - y).sign() == sign, (x, y)
        if not sign:
            assert hash(x) == hash(y), (x, y)
            assert x.constant() == y.constant(), (x, y)


def rewritten(x: kinds.Quotient, y: kinds.Quotient, z: kinds.Quotient) -> None:
    """Pairs that algebra makes equal, over all sorts of ways through the field; not of long numbers."""
    if sum(len(f) for number in (x, y, z) for f in number.parts[1:]) > _TERMS * 2 // 3:
        return
    pairs = [
        (x + y - y, x),
        (x * y + x * z, (y + z) * x),
        ((x - y) * (x + y), x * x - y * y),
        ((x + y) ** 2, x**2 + 2 * x * y + y**2),
        (x - x, kinds.Quotient.of(0)),
        (dot([x, y, z], [y, z, y]), x * y + y * z + z * y),
    ]
    if y and z:
        pairs += [
            (x * y / y, x),
            (x / y / z, x / (y * z)),
            (x / y + x / z, x * (y + z) / (y * z)),
            (1 / (y / z), z / y),
            (y / y, kinds.Quotient.of(1)),
            ((x + z) / y - x / y, z / y),
            (x / y**2 * y, x / y),
        ]
    for a, b in pairs:
        assert a == b, (x, y, z)
        assert not (a - b), (x, y, z)
        well_made(a)
        well_made(b)
        read_back(a, b)
    for a, _ in pairs:
        assert a + 1 != a, (x, y, z)


def long_sums(rng: Random) -> None:
    """Products and quotients of sums so long that polynomials take over."""
    factors = []
    for _ in range(3):
        step, low = Fraction(rng.randint(1, 4), rng.choice((1, 2, 3))), rng.randint(-9, 9)
        terms = [(low + step * rng.randint(0, 40), rng.choice((-3, -1, 1, 2))) for _ in range(rng.randint(17, 25))]
        exact = dot([kinds.Quotient.of(c) for _, c in terms], [kinds.Quotient.of(k).exp() for k, _ in terms])
        factors.append((exact, balls.total(real(c) * real(k).exp() for k, c in terms)))
    (x, r), (y, s), (z, t) = factors
    if y and z:
        for a, b in ((x * y, r * s), (x / y + z, r / s + t), (x / y - x / z, r / s - r / t), (x * y / (z * y), r / t)):
            same(a, b)
            well_made(a)
            same(kinds.Quotient.of(a), of_notation(a.notation()))
