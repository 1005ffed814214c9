"""The arithmetic of ``modular``: the effect of each operation on planes, and on the weights behind the bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np

from symattn.arrays.residues import degree, divisors
from symattn.arrays.residues.arithmetic import Floats, Modulus, ResidueExponential
from symattn.arrays.residues.infinities import at_levels, have_levels, scaled_levels, sum_of_levels
from symattn.arrays.residues.state import Plane, State, numbers, power_of
from symattn.document.errors import Refused

# A letter is a polynomial of degree 1 over 1.
_LETTER = degree.ResidueRatio(degree.MonomialWeight(degree=1))
# The ratio of the factor 1, for elements without a logarithm: log 1 = 0.
_NO_LOGARITHM = degree.ResidueRatio(degree.ONE)
Shape = tuple[int, ...]


class Work:
    """A limit on computing: an array costs 1 unit, and 1 more for every 512 elements. By default there is none."""

    def __init__(self, units: float = inf) -> None:
        self.units = self.left = units

    def spend(self, elements: int) -> None:
        """Count an array. Raises Refused if no units are left."""
        self.left -= 1 + elements // 512
        if self.left < 0:
            raise Refused(
                f"modular: the code makes more arrays than {self.units:g}, which is as far as it is followed"
            )


class Field:
    """A pair (p, q), a generator of the group of order q, and the random choices and decisions of one run."""

    def __init__(self, p: int, q: int, seed: int) -> None:
        # The seed includes the primes, so that pairs of one run have independent letters.
        self.random = np.random.default_rng([seed, p, q])
        self.p, self.q = Modulus(p), Modulus(q)
        # of the square 2 to the base g, which makes g a random generator
        log2 = int(self.random.integers(1, q))
        inverse_log2 = pow(log2, -1, q)
        self.exponential = ResidueExponential(self.p, q, pow(2, inverse_log2, p))
        # The salt keys the random functions, so that other runs stand for other functions.
        self.salt = bytes(self.random.integers(0, 256, 16, dtype=np.uint8))
        random_residue = int(self.random.integers(1, p))
        self._ln2 = {self.p: random_residue, self.q: log2}
        self.decisions = degree.Decisions()
        # why the chance of a wrong yes has no bound, each reason once
        self.unbounded: dict[str, None] = {}
        self.work = Work()
        self.scalars: dict[float, State] = {}  # a cache of plain numbers
        # whether code is read as intended: short decimals, comparisons with numbers
        self.meant = False
        self.ordered = False  # whether a maximum is one of its arguments, in an arbitrary order, not a new letter
        self.free = False  # whether new letters were used for the larger of two
        self.nested = False  # whether an exponential stands for any function, with which e^(s − m)/e^(−m) is not e^s
        self.capped = False  # whether e^x has an exponent of its own, see ``functions.capping``
        self.stand_ins = False  # whether a finite number was read as −∞
        # whether finite numbers that stand for −∞ have levels, see ``infinities``
        self.leveled = False
        # whether numbers that are nearly equal as floats count as equal, see ``modular``
        self.rough = False

    def letters(self, shape: Shape) -> State:
        """Return new letters, uniform mod p and, independently, mod q."""

        def uniform(m: int) -> Floats:
            centred = self.random.integers(-(m // 2), m // 2 + 1, shape)
            return centred.astype(np.float64)

        value, exponent = (Plane.after(lambda m=m: uniform(m.m)) for m in (self.p, self.q))
        return State(shape, value, exponent, _LETTER, degree.ExponentForm(1, 1, shifted=False))

    def constant(self, c: Fraction, power: int, shape: Shape = ()) -> State:
        """c (ln 2)^power for c ≠ 0, where ln 2 is a letter with the exponential 2."""
        # A rational number is known exactly and has both residues.
        if not power:
            return numbers(np.full(shape, c, dtype=object), self.p, self.q)

        def plane(m: Modulus) -> Plane:
            power_of_ln2 = pow(self._ln2[m], power, m.m)
            scaled = m.rational(c) * power_of_ln2
            residue = m.constants([scaled])[0]
            return Plane(np.broadcast_to(residue, shape), owned=False)

        form = degree.ExponentForm(0, abs(c.numerator), c.denominator, power)
        # As ln 2 > 0, c alone decides the sign.
        sign = 2 if c > 0 else 0
        return State(
            shape, plane(self.p), plane(self.q), None, form, sign=sign, multiple=c, power=power
        )

    def add(self, x: State, y: State) -> State:
        # Levels add beside the residues: F − F must be finite, not undefined.
        if have_levels(x, y):
            finite_sum = self.add(x.finite(), y.finite())
            return at_levels(finite_sum, sum_of_levels(x, y))
        shape = np.broadcast_shapes(x.shape, y.shape)
        # A logarithm has no value, so the sum exists only as exponent and factor.
        if x.factor is not None or y.factor is not None:
            return self._add_logarithms(x, y, shape)
        # Over the same B numerators are added and the bound stays small.
        same = divisors.same(x.divisors, y.divisors)
        return State(
            shape,
            _apply_to_optional_planes(self.p.add, x.value, y.value),
            _apply_to_optional_planes(self.q.add, x.exponent, y.exponent),
            _apply_to_optional_planes(lambda a, b: a.plus(b, same), x.ratio, y.ratio),
            _apply_to_optional_planes(degree.ExponentForm.__add__, x.form, y.form),
            forbidden=_where_either_forbidden(x, y, shape),
            divisors=divisors.joined(x.divisors, None if same else y.divisors, shape),
            number=_apply_to_optional_planes(lambda a, b: a + b, x.number, y.number),
            # The sum of nonnegative elements is positive if one of them is.
            sign=max(x.sign, y.sign) if min(x.sign, y.sign) else 0,
            defined=x.defined and y.defined,
        )

    def _add_logarithms(self, x: State, y: State, shape: Shape) -> State:
        """x + y if one or both contain log Z: exponents are added, factors multiplied."""
        # log Z is a term of the exponent, and Z a factor.
        a, b = _as_sum_with_logarithm(x), _as_sum_with_logarithm(y)
        return State(
            shape,
            None,
            _apply_to_optional_planes(self.q.add, a.exponent, b.exponent),
            _apply_to_optional_planes(degree.ResidueRatio.times, a.ratio, b.ratio),
            _apply_to_optional_planes(degree.ExponentForm.__add__, a.form, b.form),
            factor=_apply_to_optional_planes(self.p.multiply, a.factor, b.factor),
            forbidden=_where_either_forbidden(x, y, shape),
            divisors=divisors.joined(a.divisors, b.divisors, shape),
            defined=x.defined and y.defined,
            power=power_of((x, y)),
        )

    def multiply(self, x: State, y: State) -> State:
        # Either operand may be the one with levels; the other must be finite.
        for infinite, other in ((x, y), (y, x)):
            if have_levels(infinite) and other.forbidden is None:
                product = self.multiply(infinite.finite(), other)
                return at_levels(product, scaled_levels(infinite, other))
        shape = np.broadcast_shapes(x.shape, y.shape)
        # Only ± and powers of ln 2 keep a logarithm formal.
        if x.factor is not None or y.factor is not None:
            return self._multiply_logarithm_by_sign(*((x, y) if y.factor is None else (y, x)))
        # A product of multiples of ln 2 stays one, as exact as the factors.
        any_multiple = x.multiple or y.multiple
        if any_multiple and (a := x.constant) and (b := y.constant) and a[0] * b[0]:
            return self.constant(a[0] * b[0], a[1] + b[1], shape)
        # −∞ times a negative number would be ∞, and times 0 undefined.
        forbidden_left = x.forbidden is not None and y.sign < 2
        if forbidden_left or (y.forbidden is not None and x.sign < 2):
            raise Refused(
                "modular: -inf (a masked score) times something that is not known to be positive"
            )
        return State(
            shape,
            _apply_to_optional_planes(self.p.multiply, x.value, y.value),
            _apply_to_optional_planes(self.q.multiply, x.exponent, y.exponent),
            _apply_to_optional_planes(degree.ResidueRatio.times, x.ratio, y.ratio),
            _apply_to_optional_planes(degree.ExponentForm.__mul__, x.form, y.form),
            forbidden=_where_either_forbidden(x, y, shape),
            divisors=divisors.joined(x.divisors, y.divisors, shape),
            number=_apply_to_optional_planes(lambda a, b: a * b, x.number, y.number),
            sign=min(x.sign, y.sign),
            defined=x.defined and y.defined,
        )

    def _multiply_logarithm_by_sign(self, x: State, y: State) -> State:
        """±(ln 2)^k (s + log Z) = ±(ln 2)^k s + (ln 2)^k log Z^±1."""
        # Without a known constant the factor counts as 0, which is refused.
        c, power = y.constant or (Fraction(0), 0)
        # A factor c would raise Z to the power c, which need not exist mod p.
        negates_forbidden = c == -1 and x.forbidden is not None
        if c not in (1, -1) or len(y.shape) > len(x.shape) or negates_forbidden:
            raise Refused(
                "modular: a logarithm times anything but 1, -1 and powers of ln 2; only exp takes logarithms"
            )
        x = replace(
            x,
            exponent=_apply_to_optional_planes(self.q.multiply, x.exponent, y.exponent),
            form=_apply_to_optional_planes(degree.ExponentForm.__mul__, x.form, y.form),
            power=x.power + power,
        )
        # With c = 1 only the power of ln 2 changes.
        if c == 1:
            return x
        # A minus turns Z into 1/Z, which is undefined where Z is 0.
        return replace(
            x,
            factor=_apply_to_optional_planes(lambda z: self.p.inverse(z), x.factor),
            ratio=_apply_to_optional_planes(_NO_LOGARITHM.over, x.ratio),
            divisors=None if x.ratio is None else divisors.fresh(x.shape),
            defined=False,
        )

    def divide(self, x: State, y: State) -> State:
        # Levels are scaled by the number, as the product does.
        if have_levels(x) and y.number:
            return self.multiply(x, self.constant(1 / y.number, 0, y.shape))
        shape = np.broadcast_shapes(x.shape, y.shape)
        # Dividing by c (ln 2)^k is multiplying by its inverse, which is known.
        if y.multiple:
            inverse = self.constant(1 / y.multiple, -y.power, y.shape)
            return self.multiply(x, inverse)
        if x.value is None or y.value is None:
            raise Refused("modular: a quotient with a logarithm; only exp takes logarithms")
        # Quotients x/−∞, and −∞/y without a known sign of y, have no value here.
        if y.forbidden is not None or (x.forbidden is not None and y.sign < 2):
            raise Refused("modular: a quotient with -inf (a masked score)")
        by_number = bool(y.number)
        ratio, joint = self._ratio_of_quotient(x, y, shape)
        return State(
            shape,
            self._divide_plane_modulo(self.p, y, x.value, y.value),
            self._divide_plane_modulo(self.q, y, x.exponent, y.exponent),
            ratio,
            _apply_to_optional_planes(
                lambda a, b: a * degree.ExponentForm(0, abs(b.denominator), abs(b.numerator)),
                x.form,
                # A divisor 0 has no form; the quotient is then undefined.
                y.number or None,
            ),
            forbidden=_where_either_forbidden(x, y, shape),
            divisors=joint,
            number=_apply_to_optional_planes(lambda a, b: a / b, x.number, y.number or None),
            sign=min(x.sign, y.sign),
            defined=by_number and x.defined,
        )

    def _divide_plane_modulo(
        self, m: Modulus, y: State, a: Plane | None, b: Plane | None
    ) -> Plane | None:
        """Return a/b mod m; where b is zero is a decision, unless y is a known number."""
        if a is None or b is None:
            return None
        # A known number that is not 0 is inverted exactly, and nothing is decided.
        if y.number:
            constant = m.constants([m.rational(1 / y.number)])[0]
            inverse = np.broadcast_to(constant, y.shape)
            return Plane.after(lambda x: m.multiply(x, inverse), a)
        # Named before any plane is computed, so that names follow the order of the code.
        zeros = self.watch(y.ratio if m is self.p else None)

        def run(x: Floats, z: Floats) -> Floats:
            zeros(z == 0)
            return m.multiply(x, m.inverse(z))

        return Plane.after(run, a, b)

    def _ratio_of_quotient(
        self, x: State, y: State, shape: Shape
    ) -> tuple[degree.ResidueRatio | None, np.ndarray | None]:
        if x.ratio is None or y.ratio is None:
            return None, None
        # Dividing by a number changes coefficients only, so the divisors stay.
        if y.number:
            ratio = x.ratio.times(
                degree.ResidueRatio(
                    degree.ONE.terms(y.number.denominator), number=abs(y.number.numerator)
                )
            )
            return ratio, divisors.joined(x.divisors, None, shape)
        # A divisor of data has a B that no other array shares.
        own_divisors = divisors.fresh(y.shape)
        return x.ratio.over(y.ratio), divisors.joined(x.divisors, own_divisors, shape)

    def watch(self, ratio: degree.ResidueRatio | None) -> Callable[[np.ndarray], None]:
        """Announce a decision on whether elements are zero; the returned function records where they were."""
        name = self.decisions.name()
        chance = ratio.vanishing() if ratio else degree.UNKNOWN
        return lambda yes: self.decisions.record(name, yes, chance)

    def total(self, x: State, axis: int) -> State:
        """Σ over an axis."""
        n = x.shape[axis]
        same = divisors.constant(x.divisors, axis)
        # Neither logarithms nor −∞ have values that could be added.
        if x.value is None or x.forbidden is not None:
            raise Refused(
                f"modular: a sum over {'a logarithm' if x.value is None else '-inf'}; only exp takes it"
            )
        return State(
            (*x.shape[:axis], *x.shape[axis + 1 :]),
            _apply_to_optional_planes(lambda a: self.p.total(a, axis), x.value),
            _apply_to_optional_planes(lambda a: self.q.total(a, axis), x.exponent),
            x.ratio and x.ratio.terms(n, same),
            x.form and x.form.terms(n),
            divisors=divisors.summed(x.divisors, axis, same),
            number=None if x.number is None else x.number * n,
            # An empty sum is 0, which is nonnegative.
            sign=x.sign if n else 1,
            defined=x.defined,
        )

    def matmul(self, x: State, y: State) -> State:
        n = x.shape[-1]
        for s in (x, y):
            if s.value is None or s.forbidden is not None:
                raise Refused(
                    f"modular: {'a logarithm' if s.value is None else '-inf'} in a product of matrices"
                )
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        shape = (*batch, x.shape[-2], y.shape[-1])
        # Terms share B if neither operand's B varies along the inner axis.
        same = divisors.constant(x.divisors, -1) and divisors.constant(y.divisors, -2)
        left = divisors.first(x.divisors, -1)
        right = divisors.first(y.divisors, -2)
        joint = divisors.joined(left, right, shape) if same else divisors.fresh(shape)
        return State(
            shape,
            _apply_to_optional_planes(self.p.matmul, x.value, y.value),
            _apply_to_optional_planes(self.q.matmul, x.exponent, y.exponent),
            _apply_to_optional_planes(lambda a, b: a.times(b).terms(n, same), x.ratio, y.ratio),
            self._product_form(x, y),
            divisors=joint,
            sign=min(x.sign, y.sign) if n else 1,
            defined=x.defined and y.defined,
        )

    def _product_form(self, x: State, y: State) -> degree.ExponentForm | None:
        """Return the form of x @ y: from the rows or columns of an operand of known numbers, else from the largest."""
        if x.form is None or y.form is None:
            return None
        sides = ((x, x.form, y.form, -1), (y, y.form, x.form, -2))
        for a, form, other, axis in sides:
            # A size below q/2 means that centred residues are the integers themselves.
            bound_of_integers = self.q.m // 2 - 8
            if form.degree == 0 and form.size < bound_of_integers and a.exponent is not None:
                # The divisor and the inverse power of ln 2 turn exponents into integers.
                power_of_ln2 = pow(self._ln2[self.q], -form.power, self.q.m)
                unit = form.divisor * power_of_ln2
                residues = a.exponent.value
                # Most operands are integers already.
                if unit != 1:
                    residues = self.q.multiply(residues, self.q.constants([unit]))
                whole = np.abs(residues)
                # undefined ones are of no size
                sizes = whole if a.defined else np.nan_to_num(whole)
                reach = int(sizes.sum(axis=axis).max(initial=0))
                return replace(form * other, size=reach * other.size)
        # Otherwise each of the n terms may be as large as the largest.
        return (x.form * y.form).terms(x.shape[-1])


def _apply_to_optional_planes(function: Callable[..., Any], *operands: Any) -> Any:
    """Apply ``function`` to planes, as a plane to be computed, or to other operands; None if one of them is None."""
    if operands[0] is None or operands[-1] is None:  # there are one or two
        return None
    if isinstance(operands[0], Plane):
        return Plane.after(function, *operands)
    return function(*operands)


def _where_either_forbidden(x: State, y: State, shape: Shape) -> np.ndarray | None:
    """Return where one of the two is −∞."""
    if x.forbidden is None or y.forbidden is None:
        only = x.forbidden if y.forbidden is None else y.forbidden
        return None if only is None else np.broadcast_to(only, shape)
    return np.asarray(x.forbidden | y.forbidden)


def _as_sum_with_logarithm(x: State) -> State:
    """Return x as x + log 1 if it contains no logarithm."""
    # Nothing to add: the logarithm is there.
    if x.factor is not None:
        return x
    return replace(x, factor=Plane(np.ones(x.shape)), ratio=_NO_LOGARITHM, divisors=None)
