"""The state of an array of residues: its planes, and what is known of its elements.

value      the element mod p; None for a logarithm, which only ``exp`` can take
exponent   the element mod q, for exponents; None if it is not known: e^x has none, so e^(e^x) is refused
factor     Z mod p, for elements x + (ln 2)^power log Z with exponent x; None if there is no logarithm
forbidden  where the element is −∞; None if nowhere. There the contents of other planes are arbitrary, unless it has a
           level
level      the level of each element, 0 where it is finite, see ``infinities``; if None, −∞ where it is forbidden
divisors   identifies the divisor B of each element (see ``degree``): equal numbers mean equal B, 0 means B = 1; None
           is 0 everywhere. If it does not vary along an axis, the stride is 0
ratio      the weights of the elements (of Z, if there is a logarithm); None if they have no bound
form       the same for exponents
number     the value, if all elements are one known rational number
multiple   c, if all elements are c (ln 2)^power with power ≠ 0
sign       2 if all elements are known to be positive, 1 if nonnegative, else 0
defined    whether no element can be 0/0, which is stored as NaN
peaks      of maxima: what identifies the numbers that each is the largest of, see ``functions.highest``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import lcm, log2
from typing import Any
from weakref import ref

import numpy as np

from symattn.arrays.residues import degree, divisors
from symattn.arrays.residues.arithmetic import Modulus
from symattn.document.errors import Refused

Moving = Callable[..., Any]  # a function of arrays that only moves elements


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The planes and properties of an array; see the module's docstring."""

    shape: tuple[int, ...]
    value: Plane | None
    exponent: Plane | None
    ratio: degree.ResidueRatio | None
    form: degree.ExponentForm | None
    factor: Plane | None = None
    forbidden: np.ndarray | None = None
    divisors: np.ndarray | None = None
    number: Fraction | None = None
    sign: int = 0
    defined: bool = True
    multiple: Fraction | None = None
    power: int = 0
    peaks: Plane | None = None
    level: np.ndarray | None = None

    def alias(self) -> State:
        """Return the same elements for another array: changes of one do not affect the other."""
        planes = {name: getattr(self, name) for name in ("value", "exponent", "factor", "peaks")}
        aliases = {name: plane and plane.alias() for name, plane in planes.items()}
        return replace(self, **aliases)

    @property
    def all_forbidden(self) -> bool:
        return self.forbidden is not None and bool(self.forbidden.all())

    @property
    def levels(self) -> np.ndarray:
        """The level of each element: 0 where it is finite."""
        if self.level is not None:
            return self.level
        return (
            np.zeros(self.shape)
            if self.forbidden is None
            else np.where(self.forbidden, -np.inf, 0.0)
        )

    def finite(self) -> State:
        """Return the same residues, as elements that are all finite."""
        return replace(self, forbidden=None, level=None)

    @property
    def constant(self) -> tuple[Fraction, int] | None:
        """c and k, if all elements are c (ln 2)^k."""
        c = self.number if self.multiple is None else self.multiple
        return None if c is None or self.forbidden is not None else (c, self.power)


def numbers(plain: np.ndarray, p: Modulus, q: Modulus) -> State:
    """Return the state of known finite numbers: booleans, integers, floats at their dyadic values, or ``Fraction``."""
    if plain.dtype.kind == "f" and (np.abs(plain) >= 2.0**52).any():
        plain = np.vectorize(Fraction, otypes=[object])(plain)
    whole = plain.dtype.kind != "f" or (plain == np.rint(plain)).all()
    if plain.dtype.kind in "biuf" and whole:
        return _make_state_of_integers(plain, p, q)
    # Each different number is inverted once; masks and tables repeat few numbers.
    values, where = np.unique(plain, return_inverse=True)
    fractions = [Fraction(x) if isinstance(x, Fraction) else Fraction(float(x)) for x in values]

    def residues(m: Modulus) -> np.ndarray:
        each = m.constants([m.rational(x) for x in fractions])
        return each[where].reshape(plain.shape)

    return _of_numbers(plain.shape, fractions, lambda: residues(p), lambda: residues(q))


def _make_state_of_integers(plain: np.ndarray, p: Modulus, q: Modulus) -> State:
    def residues(m: Modulus) -> np.ndarray:
        # Most integers are small: they are their own residues.
        if all(abs(x) <= m.m // 2 for x in ends):
            return plain.astype(np.float64)
        return m.reduced(np.mod(plain, m.m).astype(np.float64))

    if plain.dtype.kind != "f":
        # narrow integers cannot hold m
        plain = plain.astype(np.uint64 if plain.dtype == np.uint64 else np.int64)
    # The extremes alone bound the size of integers.
    ends = [int(plain.min()), int(plain.max())] if plain.size else []
    return _of_numbers(plain.shape, ends, lambda: residues(p), lambda: residues(q))


def _of_numbers(
    shape: tuple[int, ...],
    values: Sequence[Fraction | int],
    mod_p: Callable[[], Any],
    mod_q: Callable[[], Any],
) -> State:
    """Return the state of numbers with the extremes and denominators of ``values``."""
    # Over one common denominator the sizes of numerators can be compared.
    c = lcm(*[x.denominator for x in values])
    numerators = (abs(x.numerator) * (c // x.denominator) for x in values)
    size = max(numerators, default=0)
    least = min(values, default=1)
    return State(
        shape,
        Plane.after(mod_p),
        Plane.after(mod_q),
        degree.ResidueRatio(degree.MonomialWeight(norm=log2(max(size, 1))), number=c),
        degree.ExponentForm(0, size, c),
        # One number only if the least and the greatest agree.
        number=Fraction(least) if values and least == max(values) else None,
        sign=2 if least > 0 else int(least == 0),
    )


def moved(run: Moving, shape: tuple[int, ...], states: Sequence[State]) -> State:
    """Apply ``run``, which moves or joins elements, to every plane that all ``states`` have; the others are lost."""
    single = len(states) == 1
    # One logarithm makes the result one; others count as having factor 1.
    logarithm = any(s.factor is not None for s in states)
    same = {s.number for s in states}
    multiples = {(s.multiple, s.power) for s in states}
    # A multiple of ln 2 survives only if all states have the same.
    multiple = states[0].multiple if len(multiples) == 1 else None
    over = _move_optional_arrays(run, [s.divisors for s in states], states)
    forbidden = _move_optional_arrays(run, [s.forbidden for s in states], states)
    leveled = forbidden is not None and any(s.level is not None for s in states)
    ratio = states[0].ratio if single else _join_weights_by_either([s.ratio for s in states])
    return State(
        shape,
        None if logarithm else _compute_moved_plane(run, [s.value for s in states]),
        _compute_moved_plane(run, [s.exponent for s in states]),
        # Where no divisor is left, such as in a slice, B is 1 again.
        replace(ratio, bottom=degree.ONE)
        if ratio and over is None and ratio.bottom is not degree.ONE
        else ratio,
        states[0].form if single else _join_weights_by_either([s.form for s in states]),
        _compute_moved_plane(run, [s.factor or _make_plane_of_ones(s.shape) for s in states])
        if logarithm
        else None,
        forbidden,
        over,
        same.pop() if len(same) == 1 else None,
        min(s.sign for s in states),
        all(s.defined for s in states),
        multiple,
        states[0].power if multiple else power_of(states),
        _compute_moved_plane(run, [s.peaks for s in states]),
        np.asarray(run(*(s.levels for s in states))) if leveled else None,
    )


def power_of(states: Sequence[State]) -> int:
    """Return the power of ln 2 in the logarithms of ``states``; 0 if there are none. Raises Refused if it differs."""
    powers = {s.power for s in states if s.factor is not None}
    if len(powers) > 1:
        raise Refused("modular: logarithms to base 2 beside natural ones")
    return powers.pop() if powers else 0


def _compute_moved_plane(run: Moving, planes: Sequence[Plane | None]) -> Plane | None:
    # A plane that one operand lacks is lost: nothing can fill it.
    present = [x for x in planes if x is not None]
    if len(present) < len(planes):
        return None
    return Plane.after(lambda *values: np.asarray(run(*values)), *present, owned=False)


def _make_plane_of_ones(shape: tuple[int, ...]) -> Plane:
    return Plane(np.broadcast_to(np.float64(1), shape), owned=False)


def _move_optional_arrays(
    run: Moving, planes: Sequence[Any], states: Sequence[State]
) -> np.ndarray | None:
    present = [x for x in planes if x is not None]
    if not present:
        return None
    zero = present[0].dtype.type(0)
    # A missing mask or divisor is 0 everywhere, so a copy of 0 takes its place.
    full = [
        np.broadcast_to(zero, s.shape) if x is None else x
        for x, s in zip(planes, states, strict=True)
    ]
    result = np.asarray(run(*full))
    # None instead of zeros keeps later operations on the short path.
    return None if divisors.none(result) else result


def _join_weights_by_either(weights: Sequence[Any]) -> Any:
    return reduce(lambda a, b: a and b and a.either(b), weights)


def chosen(condition: np.ndarray, x: State, y: State) -> State:
    """Return elements of x where the condition holds, else of y."""
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    # Choosing −∞ is masking: the planes, bounds and peaks of the other elements stay.
    for state, other, dropped in ((x, y, ~condition), (y, x, condition)):
        if (
            other.all_forbidden
            and other.level is None
            and state.level is None
            and state.shape == shape
        ):
            where = dropped if state.forbidden is None else dropped | state.forbidden
            where = np.broadcast_to(where, shape)
            return replace(state.alias(), forbidden=where, number=None, multiple=None, sign=0)
    return moved(lambda a, b: np.where(condition, a, b), shape, [x, y])


def overwritten(old: State, new: State, place: Callable[[np.ndarray, Any], None]) -> State:
    """Return ``old`` after ``place`` has written the elements of ``new`` to every plane."""
    where = _overwrite_optional_array(old.forbidden, new.forbidden, old.shape, place)
    leveled = where is not None and (old.level is not None or new.level is not None)
    level = _overwrite_optional_array(old.levels, new.levels, old.shape, place) if leveled else None
    # Writing −∞ changes the mask only; what the planes contain there is arbitrary.
    if new.all_forbidden and level is None:
        return replace(old, forbidden=where, number=None, multiple=None, sign=0)
    logarithm = old.factor is not None or new.factor is not None
    mine, theirs = (
        s.factor or _make_plane_of_ones(s.shape) if logarithm else None for s in (old, new)
    )
    return State(
        old.shape,
        None if logarithm else _overwrite_plane(old.value, new.value, place),
        _overwrite_plane(old.exponent, new.exponent, place),
        _join_weights_by_either([old.ratio, new.ratio]),
        _join_weights_by_either([old.form, new.form]),
        _overwrite_plane(mine, theirs, place),
        where,
        _overwrite_optional_array(old.divisors, new.divisors, old.shape, place),
        old.number if old.number == new.number else None,
        min(old.sign, new.sign),
        old.defined and new.defined,
        power=power_of((old, new)),
        # Tiles written one by one into an array of −∞ stay comparable to a maximum of the row.
        peaks=_overwrite_plane(_peaks_to_write_to(old), new.peaks, place),
        level=level,
    )


def _peaks_to_write_to(state: State) -> Plane | None:
    """Return the peaks of maxima, and zeros where every element is −∞, which is the largest of no numbers."""
    return Plane(np.zeros(state.shape, np.uint64)) if state.all_forbidden else state.peaks


def _overwrite_plane(
    old: Plane | None, new: Plane | None, place: Callable[[np.ndarray, Any], None]
) -> Plane | None:
    if old is None or new is None:
        return None
    source = new.value  # computed before checking whether the old plane is still read
    return old.overwritten(lambda target: place(target, source if source.ndim else source[()]))


def _overwrite_optional_array(
    old: np.ndarray | None,
    new: np.ndarray | None,
    shape: tuple[int, ...],
    place: Callable[[np.ndarray, Any], None],
) -> np.ndarray | None:
    if old is None and new is None:
        return None
    dtype = (old if new is None else new).dtype  # type: ignore[union-attr]
    result = np.zeros(shape, dtype=np.int64 if dtype.kind in "iu" else dtype)
    if old is not None:
        result[...] = old
    place(result, 0 if new is None else new)
    return result if result.any() else None


# -- planes that are computed when they are needed ---------------------------------------------------------------------
# A plane is immutable: nothing computed from it sees a later change. So assignment does not change a plane but replaces
# it (``overwritten``), and reuses its memory only if nobody can still read the old one. Arrays that are views of one
# another share one holder of planes (see ``modular``) and see each other's changes because they read through it.

# the longest chain of pending planes; longer ones are computed, to limit Python's stack
_DEPTH = 64

# A function and the planes that it will be called with.
_Postponed = tuple[Callable[..., np.ndarray], "tuple[Plane, ...]"]


class Plane:
    """An array of residues that may not have been computed yet."""

    __slots__ = ("__weakref__", "_compute", "_depth", "_owned", "_readers", "_value")

    def __init__(self, value: np.ndarray | None = None, owned: bool = True) -> None:
        self._value = value
        self._compute: _Postponed | None = None
        self._owned = owned  # whether the memory is this plane's alone
        self._readers: list[ref[Plane]] = []
        self._depth = 0

    @classmethod
    def after(
        cls, function: Callable[..., np.ndarray], *sources: Plane, owned: bool = True
    ) -> Plane:
        """Return the plane of ``function`` of the values of ``sources``; not ``owned`` if it may be their memory."""
        plane = cls(None, owned)
        plane._compute, plane._depth = (function, sources), 1
        for source in sources:
            plane._depth = max(plane._depth, source._depth + 1)
            # Dead readers are dropped at times, so that the list of a long loop stays short.
            if len(source._readers) > 32:
                source._readers = [r for r in source._readers if r() is not None]
            source._readers.append(ref(plane))
        if plane._depth > _DEPTH:
            _ = plane.value
        return plane

    @property
    def value(self) -> np.ndarray:
        """The array, read-only."""
        # The function is dropped after use, which frees its sources.
        if self._compute is not None:
            function, sources = self._compute
            self._value = function(*[s.value for s in sources])
            self._compute, self._depth = None, 0
        assert self._value is not None
        return self._value

    def _still_read(self) -> bool:
        """Return whether some other plane waits for this one, or may share its memory."""
        readers = [r() for r in self._readers]
        return any(r is not None and (r._compute is not None or not r._owned) for r in readers)

    def overwritten(self, write: Callable[[np.ndarray], None]) -> Plane:
        """Return the plane after ``write`` has changed its array in place: this one if nobody reads it, else a copy."""
        value = self.value
        if self._owned and value.flags.c_contiguous and not self._still_read():
            write(value)
            return self
        # A copy in C order is contiguous, so later writes can be in place.
        copy = Plane(value.copy(order="C"))
        write(copy.value)
        return copy

    def alias(self) -> Plane:
        """Return a plane of the same values for another array: changes of one do not affect the other."""
        return Plane.after(lambda value: value, self, owned=False)
