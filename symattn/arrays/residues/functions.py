"""exp, log, roots, maxima and comparisons of residues.

exp is the homomorphism s ↦ g^s. A logarithm stays formal: only exp takes it. A maximum is an arbitrary number, on which
softmax does not depend: a letter, never one of the arguments, so that a missing rescale is noticed. Maxima of the same
numbers are the same letter, in one piece or by tiles, as code may compute them twice. Other functions of data are
random functions, equal for equal arguments. They have no bound.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import isqrt

import numpy as np

from symattn.arrays.notes import note
from symattn.arrays.residues import degree, divisors
from symattn.arrays.residues.arithmetic import Floats, Modulus
from symattn.arrays.residues.field import Field
from symattn.arrays.residues.infinities import at_levels, have_levels, known_number
from symattn.arrays.residues.primes import root
from symattn.arrays.residues.state import Plane, State, chosen, moved, power_of
from symattn.document.errors import Refused, Undecided

# The words of a refusal that callers compare with.
NOT_LINEAR = "an exponential or a quotient of data inside an exponent; exponents must be linear"
# numbers that are negligible next to floats of ordinary size, or make these negligible
TINY = 1e-5
LARGE = 10**4
# a bound for exponents: e^−37 is less than a unit in the last place of 1, in float64 too
BEYOND = 37


def exponential(field: Field, x: State) -> State:
    """Return e^x = g^s Z for the exponent s and the factor Z; 0 where x is −∞.

    Without an exponent it is any function of x, where code is read as intended. In a ``field.capped`` it has an
    exponent of its own, so that tanh written by exponentials can be inside an exponent.
    """
    if x.exponent is None:
        # Where code is not read as intended, a nested exponential has no meaning.
        if not field.meant or x.value is None or x.forbidden is not None:
            raise Refused(f"modular: {NOT_LINEAR}")
        # Recorded, because a rescaled softmax can differ then although the code is right.
        field.nested = True
        return any_function(field, "exp", x)
    # A factor ln 2 makes a power of Z with an exponent that does not exist mod p.
    if x.factor is not None and x.power:
        raise Refused("modular: the exponential of a logarithm to another base")
    # For L > 0, e^(x + L) grows beyond all numbers.
    if x.level is not None and (x.level > 0).any():
        raise Refused("modular: the exponential of inf (a masked score that was subtracted)")
    forbidden = x.forbidden

    def run(s: Floats, *factor: Floats) -> Floats:
        result = field.exponential(s)
        result = field.p.multiply(result, *factor) if factor else result
        # Masked scores weigh nothing: e^−∞ = 0.
        return result if forbidden is None else np.where(forbidden, 0.0, result)

    factor = () if x.factor is None else (x.factor,)
    # Without a form or a bound of Z there is none of the product.
    ratio = x.form.exponential() if x.form else None
    if factor:
        ratio = ratio.times(x.ratio) if ratio and x.ratio else None
    return State(
        x.shape,
        Plane.after(run, x.exponent, *factor),
        _power_within(field, x.value)
        if field.capped and x.value is not None and forbidden is None
        else None,
        ratio,
        None,
        divisors=x.divisors if factor else None,
        # Exponentials are positive, and 0 only where x is −∞.
        sign=2 if forbidden is None else 1,
        defined=x.defined,
    )


def _power_within(field: Field, x: Plane) -> Plane:
    """Return E(x) mod q, any function with E(−x) = 1/E(x), which stands for e^x inside an exponent."""

    def run(v: Floats) -> Floats:
        z = field.p.canonical(v)
        smaller = np.minimum(z, field.p.m - z)
        mixed = _mix_into_random_bits(
            field,
            "exp inside an exponent",
            # Both x and −x share the random number; the sign then chooses it or its inverse.
            smaller.astype(np.uint64).reshape(-1),
        )
        nonzero = mixed % np.uint64(field.q.m - 1) + np.uint64(1)
        power = field.q.reduced(nonzero.astype(np.float64)).reshape(v.shape)
        upper_half = 2 * z > field.p.m
        power = np.where(upper_half, field.q.inverse(power), power)
        # E(0) = 1/E(0) leaves 1.
        power_or_one = np.where(z == 0, 1.0, power)
        return np.where(np.isnan(v), np.nan, power_or_one)

    return Plane.after(run, x)


def capping(field: Field, x: State) -> State:
    """Return tanh x = (e^{2x} − 1)/(e^{2x} + 1), by the power e^{2x} that code has which writes it so."""
    # The formula is computed by the steps that code takes, so both have equal residues.
    one, minus_one = (field.constant(Fraction(n), 0) for n in (1, -1))
    words = "tanh stands for any odd function of its argument"
    note(words)
    field.unbounded[words] = None
    power = exponential(field, field.multiply(x, field.constant(Fraction(2), 0)))
    return field.divide(field.add(power, minus_one), field.add(power, one))


def logarithm(field: Field, x: State) -> State:
    """log Z for the value Z, as an exponent 0 with the factor Z; −∞ where Z is 0, which is a decision."""
    # Both log log Z and log −∞ have no place in an exponent.
    if x.value is None or x.forbidden is not None:
        raise Refused(f"modular: log of {'a logarithm' if x.value is None else '-inf'}")
    # Powers of two have exact logarithms: multiples of the letter ln 2.
    if power := _power_of_two(x.number):
        return field.constant(Fraction(power), 1, x.shape)
    # Whether Z is 0 decides where the result is −∞, so a wrong yes must be counted.
    zero = np.asarray(x.value.value == 0)
    # A known number other than 0 needs no decision.
    if not x.number:
        field.watch(x.ratio)(zero)
    return State(
        x.shape,
        None,
        Plane(np.broadcast_to(np.float64(0), x.shape), owned=False),
        x.ratio,
        degree.ExponentForm(0, 0),
        # Where the result is −∞ the factor is arbitrary; 1 keeps inverses defined.
        factor=Plane.after(lambda z: np.where(zero, 1.0, z), x.value),
        forbidden=zero if zero.any() else None,
        divisors=x.divisors,
        defined=x.defined,
    )


def _power_of_two(x: Fraction | None) -> int:
    """Return n for x = 2^n, 0 for other numbers."""
    if x is None or x <= 0 or any(n & (n - 1) for n in x.as_integer_ratio()):
        return 0
    return x.numerator.bit_length() - x.denominator.bit_length()


def square_root(field: Field, x: State) -> State:
    """Return √x of a known number, in the primes where it exists; for data, an arbitrary function."""
    # Data have no root that is known to exist mod p.
    if x.number is None or x.number < 0:
        return any_function(field, "sqrt", x)
    numerator, denominator = x.number.numerator, x.number.denominator

    def run(m: Modulus) -> Floats:
        inverse = pow(root(denominator, m.m), -1, m.m)
        residue = root(numerator, m.m) * inverse
        reduced = m.reduced(np.array(float(residue % m.m)))
        return np.broadcast_to(reduced, x.shape)

    value, exponent = _on_both(field, lambda m: Plane.after(lambda: run(m), owned=False))
    # The candidate root: the number is a square iff both terms are.
    exact = Fraction(isqrt(numerator), isqrt(denominator))
    sign = 2 if x.number else 1
    if exact * exact != x.number:  # the weights do not cover irrational numbers
        field.unbounded[f"√{x.number} is irrational"] = None
        return State(x.shape, value, exponent, None, None, sign=sign)
    top, c = exact.numerator, exact.denominator
    ratio = degree.ResidueRatio(degree.ONE.terms(top), number=c)
    return State(
        x.shape, value, exponent, ratio, degree.ExponentForm(0, top, c), number=exact, sign=sign
    )


def _on_both(field: Field, plane: Callable[[Modulus], Plane]) -> tuple[Plane, Plane]:
    return plane(field.p), plane(field.q)


def any_function(field: Field, name: str, x: State) -> State:
    """Return a random function with equal values for equal arguments, for which no error probability is known."""
    # A random function needs a value to start from.
    if x.value is None or x.forbidden is not None:
        raise Refused(f"modular: {name} of {'a logarithm' if x.value is None else '-inf'}")
    words = f"{name} stands for any function of its argument"
    note(words)
    field.unbounded[words] = None

    def run(v: Floats, m: Modulus) -> Floats:
        # NaN becomes 0 here and NaN again at the end.
        z = field.p.canonical(v).astype(np.uint64).reshape(-1)
        mixed = _mix_into_random_bits(field, f"{name} {m.m}", z)
        residues = mixed % np.uint64(m.m)
        out = m.reduced(residues.astype(np.float64)).reshape(v.shape)
        return np.where(np.isnan(v), np.nan, out)

    argument = x.value
    value, exponent = _on_both(field, lambda m: Plane.after(lambda v: run(v, m), argument))
    return State(x.shape, value, exponent, None, None, defined=x.defined)


def highest(field: Field, x: State, axis: int) -> State:
    """Return a maximum over an axis: a letter for each set of numbers, −∞ where all elements are."""
    if have_levels(x):
        return _highest_of_levels(field, x, axis)
    peaks = _peaks_of(field, x).sum(axis=axis, dtype=np.uint64)
    return _forbidden(
        # Sums of peaks identify the set of numbers, in whatever tiles code visits them.
        _letters_for(field, peaks, x),
        None if x.forbidden is None else np.all(x.forbidden, axis=axis),
    )


def _highest_of_levels(field: Field, x: State, axis: int) -> State:
    """Return a maximum of elements with levels: of those at the highest level of each row."""
    # Only elements at the highest level of a row compete.
    level = x.levels.max(axis=axis, keepdims=True)
    highest = x.levels == level
    # If only the level is left of the winners, no letter may stand beside it.
    bare = np.all(_bare_infinities(x) | ~highest, axis=axis)
    of_row = _peaks_of(field, _without_bare(x))
    peaks = np.where(highest, of_row, np.uint64(0)).sum(axis=axis, dtype=np.uint64)
    return _at_level_or_bare(_letters_for(field, peaks, x), level.squeeze(axis), bare)


def _bare_infinities(x: State) -> np.ndarray:
    """Return where elements are infinite, and nothing but their level: the residues beside it are 0."""
    # Without an exponent, or with a logarithm, there may be more than the level.
    if x.exponent is None or x.factor is not None:
        return np.zeros(x.shape, dtype=bool)
    return np.asarray((x.levels != 0) & (x.exponent.value == 0))


def _higher_of_levels(field: Field, x: State, y: State) -> State:
    """Return the larger of two elements with levels: the one of the higher level, a letter if they have the same."""
    # The higher level is larger, whatever the letters are.
    level = np.maximum(x.levels, y.levels)
    bare = np.ones(level.shape, dtype=bool)
    peaks = []
    for state in (x, y):
        # Of equal levels either may be larger: a new letter stands for the maximum.
        highest = state.levels == level
        bare &= _bare_infinities(state) | ~highest
        peaks_of_state = _peaks_of(field, _without_bare(state))
        peaks.append(np.where(highest, peaks_of_state, np.uint64(0)))
    return _at_level_or_bare(_letters_for(field, _joint_peaks(*peaks), x, y), level, bare)


def _joint_peaks(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the peaks of the larger of two; the larger of a number and itself is that number."""
    # Peaks are added mod 2⁶⁴ on purpose.
    with np.errstate(over="ignore"):
        return np.where(one == other, one, one + other)


def _without_bare(x: State) -> State:
    """Return the residues as finite elements, and infinities that have none as forbidden ones."""
    bare = _bare_infinities(x)
    return replace(x, forbidden=bare if bare.any() else None, level=None)


def _at_level_or_bare(letters: State, level: np.ndarray, bare: np.ndarray) -> State:
    """Return letters at these levels; where all numbers are one bare infinity, this one."""
    value, exponent = (
        plane and Plane(np.where(bare, 0.0, plane.value))
        for plane in (letters.value, letters.exponent)
    )
    return at_levels(replace(letters, value=value, exponent=exponent), level)


def _peaks_of(field: Field, x: State) -> np.ndarray:
    """Return a number for each element such that sums of them identify sets of elements: 0 for −∞.

    A maximum is a set itself: the one whose largest element it is, so that maxima of tiles add up to that of a row.
    """
    # A maximum of maxima is the maximum of all their elements.
    if x.peaks is not None:
        result = x.peaks.value
    else:
        # Scores are known as exponents; other data only as values.
        result = _random_numbers_of_residues(
            "peak", field, *((field.q, x.exponent) if x.exponent else (field.p, x.value))
        )
        # Two elements with one exponent and different factors are different.
        if x.factor is not None:
            result = result ^ _random_numbers_of_residues(
                "peak of logarithm", field, field.p, x.factor
            )
    # A peak of 0 adds nothing: −∞ is never the largest unless all elements are −∞.
    return result if x.forbidden is None else np.where(x.forbidden, np.uint64(0), result)


def _random_numbers_of_residues(
    name: str, field: Field, modulus: Modulus, plane: Plane | None
) -> np.ndarray:
    """Return random numbers of 64 bits that are equal for equal residues; copies along an axis are computed once."""
    assert plane is not None
    # Copies along broadcast axes get equal numbers anyway, so each is mixed once.
    narrow = plane.value[_without_copies(plane.value.shape, [plane.value])]
    z = modulus.canonical(narrow).astype(np.uint64) + np.uint64(1)  # 0 is mixed to 0
    return np.broadcast_to(_mix_into_random_bits(field, name, z, keep=64), plane.value.shape)


def _letters_for(field: Field, peaks: np.ndarray, *of: State) -> State:
    """Return a letter for each set of numbers, as exponents, times the power of ln 2 that the numbers have."""

    def uniform(m: Modulus) -> Plane:
        bits = _mix_into_random_bits(field, f"maximum {m.m}", peaks)
        number = bits % np.uint64(m.m)
        return Plane(m.reduced(number.astype(np.float64)))

    letters = field.letters(peaks.shape)
    # Scores to base 2 carry a power of ln 2, which the maximum needs to cancel against them.
    power = next((x.form.power for x in of if x.form and x.form.size), 0)
    form = letters.form and replace(letters.form, power=power)
    value, exponent = _on_both(field, uniform)
    return replace(letters, value=value, exponent=exponent, form=form, peaks=Plane(peaks))


def higher(field: Field, x: State, y: State) -> State:
    """Return the larger of two: a letter for both, −∞ where both are; the true maximum of known numbers, and of −∞."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    if have_levels(x, y):
        return _higher_of_levels(
            field, *(moved(lambda plane: np.broadcast_to(plane, shape), shape, [s]) for s in (x, y))
        )
    # As max(−∞, y) = y, code that starts at −∞ agrees with code that starts at a score.
    if x.all_forbidden or y.all_forbidden:
        return moved(
            lambda plane: np.broadcast_to(plane, shape), shape, [y if x.all_forbidden else x]
        )
    # Known numbers have a true order.
    if (first := known_number(x)) is not None and (second := known_number(y)) is not None:
        larger = x if first > second else y
        return moved(lambda plane: np.broadcast_to(plane, shape), shape, [larger])
    # The result of ReLU depends on which argument is larger, so a letter would not do.
    if (
        (field.ordered or 0 in (x.number, y.number))
        and not field.rough
        and _is_ordered(field, x, y)
    ):
        x, y = (moved(lambda plane: np.broadcast_to(plane, shape), shape, [s]) for s in (x, y))
        return chosen(less(field, x, y), y, x)
    # A bound that cuts off nothing in floats leaves the data as they are.
    for bound, data in ((x, y), (y, x)):
        if field.rough and _cuts_off_nothing(bound, data):
            return moved(lambda plane: np.broadcast_to(plane, shape), shape, [data])
    # From here on the result depends on letters that are no argument.
    field.free = True
    planes = [np.broadcast_to(_peaks_of(field, s), shape) for s in (x, y)]
    # Kernels repeat a maximum over lanes; each letter is drawn once.
    one, other = (plane[_without_copies(shape, planes)] for plane in planes)
    letters = _letters_for(field, _joint_peaks(one, other), x, y)
    letters = moved(lambda plane: np.broadcast_to(plane, shape), shape, [letters])
    forbidden = None if x.forbidden is None or y.forbidden is None else x.forbidden & y.forbidden
    return _forbidden(letters, forbidden)


def _without_copies(shape: tuple[int, ...], planes: Sequence[np.ndarray]) -> tuple[slice, ...]:
    """Return the index that keeps one element along axes of copies, as in the lanes of a kernel."""
    wide = [np.broadcast_to(plane, shape) for plane in planes]
    return tuple(
        slice(None if any(plane.strides[k] for plane in wide) else 1) for k in range(len(shape))
    )


def _cuts_off_nothing(bound: State, data: State) -> bool:
    """Return whether the larger of a bound and data is the data in floats: for 0, around which floats of both signs are
    tried, for numbers below all others, and for exponents below which exp is negligible."""
    c = bound.number
    if c is None:
        return bound.all_forbidden
    return c == 0 or c <= -LARGE or (c <= -BEYOND and _is_exponent(data))


def _is_exponent(x: State) -> bool:
    """Return whether x may stand in an exponent and depends on the inputs."""
    return x.exponent is not None and x.constant is None


def _forbidden(letters: State, where: np.ndarray | None) -> State:
    return letters if where is None or not where.any() else replace(letters, forbidden=where)


def equal(field: Field, x: State, y: State) -> tuple[np.ndarray, degree.Chance]:
    """Return where residues are equal, and the chance that they are although values differ. 0/0 equals nothing."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    if x.value is None or y.value is None:  # logarithms are equal if their exponentials are
        one = field.constant(Fraction(1), -power_of((x, y)))
        x, y = (exponential(field, field.multiply(s, one)) for s in (x, y))
    assert x.value is not None
    assert y.value is not None
    # NaN equals nothing, so undefined elements are never equal.
    difference = field.p.add(x.value.value, -y.value.value)
    same = np.broadcast_to(difference == 0, shape)
    if have_levels(x, y):
        # Two infinities are equal whatever residues stand beside them.
        infinite = np.isneginf(x.levels) & np.isneginf(y.levels)
        same = infinite | (same & (x.levels == y.levels))
    elif x.forbidden is not None or y.forbidden is not None:
        a, b = (np.False_ if s.forbidden is None else s.forbidden for s in (x, y))
        # Where one is −∞ the planes are arbitrary, so only the masks count.
        same = np.where(a | b, a & b, same)
    # Without degrees nothing bounds the chance.
    if x.ratio is None or y.ratio is None:
        return same, degree.UNKNOWN
    same_divisors = divisors.same(x.divisors, y.divisors)
    return same, x.ratio.difference(y.ratio, same_divisors)


def undefined(x: State) -> np.ndarray:
    """Return where elements are 0/0."""
    if x.defined:
        return np.zeros(x.shape, dtype=bool)
    # A logarithm shows in its factor whether it is undefined.
    plane = x.value or x.factor
    assert plane is not None
    return np.asarray(np.isnan(plane.value))


def decided_equal(field: Field, x: State, y: State) -> np.ndarray:
    """Return where elements are equal; a decision, unless both are known numbers."""
    # Known numbers compare exactly, without a chance to be counted.
    if (
        x.number is not None
        and y.number is not None
        and x.forbidden is None
        and y.forbidden is None
    ):
        shape = np.broadcast_shapes(x.shape, y.shape)
        return np.full(shape, x.number == y.number)
    # The name comes first: it fixes the place of this decision in the order of the code.
    name = field.decisions.name()
    same, chance = equal(field, x, y)
    field.decisions.record(name, same, chance)
    return same


def less(field: Field, x: State, y: State) -> np.ndarray:
    """Return where x < y, if residues can decide: known numbers, −∞, and 0 against nonnegative elements."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    if have_levels(x, y):
        return _less_by_level(field, x, y)
    # Nothing is less than −∞.
    if y.all_forbidden:
        return np.zeros(shape, dtype=bool)
    # −∞ is less than everything finite.
    if x.all_forbidden:
        return np.broadcast_to(np.True_ if y.forbidden is None else ~y.forbidden, shape)
    if x.forbidden is None and y.forbidden is None:
        if (known := known_number(x)) is not None and (other := known_number(y)) is not None:
            return np.full(shape, known < other)
        # 0 < y for y ≥ 0 wherever y ≠ 0, which residues decide.
        if x.number == 0 and y.sign:
            return np.asarray(~decided_equal(field, x, y) & ~undefined(y))
        # A nonnegative x is never below 0.
        if y.number == 0 and x.sign:
            return np.zeros(shape, dtype=bool)
    # Exponents of data are small beside a bound at which exp underflows.
    for far, data in ((x, y), (y, x)):
        if (
            field.rough
            and far.number is not None
            and abs(far.number) >= BEYOND
            and _is_exponent(data)
        ):
            return np.broadcast_to(_is_less_than_far(far.number, data, far is x), shape)
    if _is_ordered(field, x, y):
        return _in_any_order(field, x, y)
    raise Undecided("modular: residues have no order; compare plain numbers, or use maximum")


def _less_by_level(field: Field, x: State, y: State) -> np.ndarray:
    """Return where x < y if one has levels: by these, and if they are equal by the residues."""
    below = x.levels < y.levels
    alike = x.levels == y.levels
    # Equal infinities are not less than each other, whatever residues they have.
    both_bare = _bare_infinities(x) & _bare_infinities(y)
    equal_infinities = np.isneginf(x.levels + y.levels) | both_bare
    # The comparison of residues may be refused, so it runs only where it matters.
    if not (alike & ~equal_infinities).any():
        return np.asarray(below)
    finite_less = less(field, x.finite(), y.finite())
    return np.asarray(np.where(alike, ~equal_infinities & finite_less, below))


def _is_less_than_far(far: Fraction, data: State, reverse: bool) -> np.ndarray:
    """Return where data < far, or where far < data, as if all finite exponents were nearer to 0 than ``far``."""
    forbidden = np.False_ if data.forbidden is None else data.forbidden
    return np.asarray(~forbidden & (far < 0) if reverse else forbidden | (far > 0))


def _is_ordered(field: Field, x: State, y: State) -> bool:
    """Return whether an arbitrary order suffices: of data and a number, or of all data if the field is ordered."""
    # −∞ and logarithms have no residues that an order could use.
    finite = (
        x.forbidden is None and y.forbidden is None and x.value is not None and y.value is not None
    )
    return (
        field.meant and finite and (field.ordered or x.number is not None or y.number is not None)
    )


def _in_any_order(field: Field, x: State, y: State) -> np.ndarray:
    """Return where x < y in a random order, in which one of two opposite differences is positive, and one of two
    opposite numbers. Its answers are not decisions."""
    words = "a comparison stands for any order"
    note(words)
    field.unbounded[words] = None
    # A random order has no error bound, and no run can count as one with a bound.
    field.decisions.chance = degree.UNKNOWN
    assert x.value is not None
    assert y.value is not None
    a, b = x.value.value, y.value.value
    # Of opposite numbers, x + y = 0, the order is by x itself, so that |x| is one of ±x.
    difference = np.where(field.p.add(a, b) == 0, a, field.p.add(a, -b))
    d = field.p.canonical(difference)
    # Both d and −d share the random bit, so that exactly one of them is positive.
    least = np.minimum(d, field.p.m - d).astype(np.uint64)
    flipped = (_mix_into_random_bits(field, "order", least) & np.uint64(1)).astype(bool)
    return np.asarray((d != 0) & ((2 * d > field.p.m) ^ flipped))


def _mix_into_random_bits(field: Field, name: str, z: np.ndarray, keep: int = 44) -> np.ndarray:
    """Return random numbers of ``keep`` bits that are equal for equal ``z``."""
    salt = hashlib.blake2b(name.encode(), key=field.salt, digest_size=16).digest()
    mixed = np.array(z)
    high = np.empty_like(mixed)
    # Odd factors are invertible mod 2⁶⁴, and the shifts carry high bits down to low ones.
    for factor in np.frombuffer(salt, np.uint64):
        np.multiply(mixed, factor | np.uint64(1), out=mixed)
        np.right_shift(mixed, np.uint64(29), out=high)
        np.bitwise_xor(mixed, high, out=mixed)
    # The highest bits of a product are mixed best.
    mixed >>= np.uint64(64 - keep)
    return mixed
