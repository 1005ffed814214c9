"""``modular``: residues of values mod p and of exponents mod q, p = 2q + 1, at the speed of BLAS.

exp maps a residue s mod q to g^s mod p, so that e^{a+b} = e^a e^b. Two programs that agree at a random point agree
everywhere, except with a probability that ``residues.degree`` bounds; ``symattn.verification.semantics`` makes tests of
this. A kind is one point: ``modular(p, q, seed)`` makes a new one, with its own generator and its own random choices.

    letters(shape)   new letters for inputs: values and keys
    lift(data)       known numbers: queries, constants
    compared(a, b)   where residues are equal, and the chance that they are although the values differ

Planes are computed when they are needed: scores are never computed mod p, values never mod q. An array is a view of a
holder's state; assignment replaces the state, so that all views see the change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import isqrt, log, prod
from typing import Any, ClassVar, Self

import numpy as np

from symattn.arrays import structure
from symattn.arrays.array import Array
from symattn.arrays.base import ArrayBase, offered
from symattn.arrays.namespace import Namespace
from symattn.arrays.notes import note
from symattn.arrays.planes import Planes, Typed, _box_scalar_in_array
from symattn.arrays.residues import degree, functions, primes
from symattn.arrays.residues.field import Field
from symattn.arrays.residues.infinities import at_levels
from symattn.arrays.residues.state import Plane, State, chosen, moved, numbers, overwritten
from symattn.document.errors import InputError, Refused
from symattn.document.model import Text

# Code that takes powers of 2 multiplies scores by this float.
_LOG2_OF_E = 1 / log(2)
_LARGEST = 1024  # the largest product of numerator and denominator of a fraction whose root a float is read as


class Holder:
    """The state that an array shares with its views, and a dummy array that shows which of them share memory."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.dummy = np.empty(state.shape, dtype=np.int8)


def _of_field(name: str) -> Any:
    """Return an operation of the field as a primitive of the kind."""
    return classmethod(lambda cls, a, b: cls.holding(getattr(cls.field, name)(a.state, b.state)))


class Modular(Planes):
    """Arrays of residues. The kinds are subclasses, each with a field; see ``modular``."""

    # Literals at or below this number are read as −∞: code fills masked scores with them.
    sentinel = -1e4
    field: ClassVar[Field]

    def __init__(
        self,
        holder: Holder,
        move: Callable[[Any], Any] | None = None,
        dummy: np.ndarray | None = None,
    ):
        self._holder = holder
        self._move = move
        self._dummy = holder.dummy if dummy is None else dummy
        # of the holder, and of this view at that time
        self._seen: tuple[State, State] | None = None
        self.field.work.spend(self._dummy.size)

    @classmethod
    def holding(cls, state: State) -> Self:
        """Return a new array with ``state``."""
        return cls(Holder(state))

    @property
    def state(self) -> State:
        """The current state of the array."""
        state = self._holder.state
        # An array that is no view has the elements of its holder.
        if self._move is None:
            return state
        # Assignment replaces the state of the holder, so identity shows whether this view is stale.
        if self._seen is None or self._seen[0] is not state:
            self._seen = state, moved(self._move, self._dummy.shape, [state])
        return self._seen[1]

    # -- where arrays come from -----------------------------------------------------------------------------------
    @classmethod
    def letters(cls, *shape: int) -> Self:
        """Return new letters: independent and uniform, mod p and mod q."""
        return cls.holding(cls.field.letters(shape))

    @classmethod
    def lift(cls, data: Any) -> Self:
        # Nested arrays of residues stay residues: only their places are joined.
        if isinstance(data, (list, tuple)) and structure._has_nested_arrays(data):
            stacked: Self = cls.xp.stack([cls.of(x) for x in data])
            return stacked
        # Only plain scalars are cached: they come back in every operation with a literal.
        if type(data) not in (int, float):
            return cls.holding(cls._make_state_of_numbers(_as_exact_plain_array(data)))
        if (state := cls.field.scalars.get(data)) is None:
            # never overwritten
            state = cls._make_state_of_numbers(_as_exact_plain_array(data)).alias()
            cls.field.scalars[data] = state
        return cls.holding(state)

    @classmethod
    def _root(cls, square: Fraction, shape: tuple[int, ...]) -> State:
        """Return √x in this shape, of a fraction x."""
        field = cls.field
        squares = numbers(np.full(shape, square, dtype=object), field.p, field.q)
        return functions.square_root(field, squares)

    @classmethod
    def _make_state_of_numbers(cls, plain: np.ndarray) -> State:
        # Only one number that fills the array can stand for a constant; tables of data are data.
        if (typed := _one_of(plain)) is not None:
            # The order matters: a multiple of log₂ e must not be read as a root.
            if constant := _logarithm_of_two(typed):
                return cls.field.constant(*constant, plain.shape)
            # Mod p an irrational root needs a residue whose square is the number, not a float's.
            if square := _square_of_root(typed):
                return cls._root(square, plain.shape)
            # Code for one width multiplies 1/√d_k by log₂ e beforehand.
            if square := _square_of_root(typed, _LOG2_OF_E, " log₂ e"):
                log2_of_e = cls.field.constant(Fraction(1), -1, plain.shape)
                return cls.field.multiply(log2_of_e, cls._root(square, plain.shape))
            if (
                cls.field.meant
            ):  # a short decimal or fraction that the float is nearest to, if there is one
                short = (Fraction(f"{typed:.6g}"), Fraction(typed).limit_denominator(64))
                near = (x for x in short if typed in (float(x), float(np.float32(x))))
                plain = np.full(plain.shape, next(near, typed))
        plain = _refuse_nonfinite_floats(plain)
        if cls.field.rough and plain.dtype.kind in "fO":  # ten bits, and 0 below ``TINY``
            # Mantissas of ten bits make floats equal that differ only by rounding.
            m, e = np.frexp(plain.astype(np.float64))
            with np.errstate(over="ignore"):
                rounded = np.ldexp(np.rint(m * 1024) / 1024, e)
            # Rounding up the largest floats would overflow, so these are rounded down.
            rounded = np.where(np.isfinite(rounded), rounded, np.ldexp(1023 / 1024, e))
            plain = np.where(np.abs(plain) < functions.TINY, 0.0, rounded)
        return numbers(plain, cls.field.p, cls.field.q)

    @classmethod
    def literal(cls, value: object) -> Self:
        plain = _as_exact_plain_array(value)
        # Without a number far below all scores there is nothing to read as −∞.
        if plain.dtype.kind not in "iuf" or not (forbidden := plain <= cls.sentinel).any():
            return cls.lift(plain)
        # Sorted, so that the notes do not depend on the order of the elements.
        finite_forbidden = plain[forbidden & np.isfinite(plain)]
        for typed in sorted(set(finite_forbidden.tolist())):
            note(f"the literal {float(typed)!r} was read as -inf")
        return cls.forbidding(plain, np.asarray(forbidden))

    @classmethod
    def forbidding(cls, plain: np.ndarray, forbidden: np.ndarray) -> Self:
        """Return numbers of which some are −∞, or finite ones that stand for it; see ``Field.leveled``."""
        state = cls._make_state_of_numbers(np.where(forbidden, 0, plain))
        # A true −∞ is no reading; only finite numbers that stand for −∞ are reported.
        cls.field.stand_ins |= bool(np.isfinite(plain[forbidden]).any())
        # With levels, numbers that stand for −∞ cancel: F − F is 0, see ``infinities``.
        if cls.field.leveled:
            levels = np.where(forbidden, plain.astype(np.float64), 0.0)
            return cls.holding(at_levels(state, levels))
        # Elements that are −∞ differ from the number 0 in the planes, so no number stands for all.
        return cls.holding(replace(state, forbidden=forbidden, number=None, multiple=None, sign=0))

    @classmethod
    def undefined(cls) -> Self:
        """Return 0/0 for all letters: it weighs nothing, and what is computed from it is undefined as well."""
        # NaN spreads by itself through later operations on planes.
        value = Plane(np.full((), np.nan))
        exponent = Plane(np.full((), np.nan))
        zero = replace(
            cls._make_state_of_numbers(np.zeros(())),
            value=value,
            exponent=exponent,
            number=None,
            sign=0,
        )
        return cls.holding(replace(zero, defined=False))

    # -- reading --------------------------------------------------------------------------------------------------
    @property
    def plain_shape(self) -> tuple[int, ...]:
        return self._dummy.shape

    @property
    def size(self) -> int:
        return self._dummy.size

    def residues(self) -> np.ndarray:
        """Return the values in [0, p), −1 for −∞, −2 for undefined elements. Raises Refused for logarithms."""
        state = self.state
        # A logarithm has an exponent and a factor, but no value mod p.
        if state.value is None:
            raise Refused("modular: a logarithm has no value; only exp takes it")
        value = state.value.value
        canonical = self.field.p.canonical(value)
        out = np.where(np.isnan(value), -2, canonical)
        return out if state.forbidden is None else np.where(state.forbidden, -1, out)

    def exponents(self) -> np.ndarray:
        """Return the exponents in [0, q). Raises Refused if they are not known."""
        exponent = self.state.exponent
        if exponent is None:
            raise Refused("modular: an exponential has no exponent mod q")
        return self.field.q.canonical(exponent.value)

    def tolist(self) -> Any:
        """Return the residues as nested lists."""
        return self.residues().tolist()

    @property
    def holds(self) -> str:  # type: ignore[override]
        """The kind of its elements, in words."""
        what = "logarithms, which have no residues" if self.state.value is None else "residues"
        return f"{what} mod {self.field.p.m}"

    def printer(self) -> Callable[[tuple[int, ...]], Text] | None:  # type: ignore[override]
        if self.state.value is None:
            return None
        values, signs = self.residues(), {-1: "−∞", -2: "undefined"}
        return lambda at: (signs.get(int(values[at]), str(int(values[at]))),)

    def __repr__(self) -> str:
        formal = self.state.value is None
        return f"modular({'logarithms' if formal else self.residues()}, p={self.field.p.m})"

    @classmethod
    def compared(cls, a: Array, b: object) -> tuple[np.ndarray, degree.Chance]:
        """Return where a and b are equal (0/0 equals nothing), and the chance that they are although values differ."""
        first = cls.of(a).state
        return functions.equal(cls.field, first, cls.of(b).state)

    # -- views and assignment -------------------------------------------------------------------------------------
    def map(self, function: Callable[[np.ndarray], Any]) -> Self:
        dummy = function(self._dummy)
        # The dummy shows whether NumPy returned a view; only then do assignments reach the holder.
        if isinstance(dummy, np.ndarray) and np.may_share_memory(dummy, self._holder.dummy):
            move = self._move
            result = type(self)(
                self._holder, (lambda x: function(move(x))) if move else function, dummy
            )
        else:
            result = self.holding(moved(function, np.shape(dummy), [self.state]))
        # Plain numbers behind the residues move with them, so that later steps can still read them.
        if self.typed and self.typed.sound[0]:
            result.typed = Typed(
                _box_scalar_in_array(function(self.typed.numbers), self.typed.numbers),
                self.typed.sound,
            )
        return result

    def __getitem__(self, index: object) -> Self:
        # The index is used again at each later read, when the caller may have changed its arrays.
        fixed = _copied_index(index)
        return self.map(lambda plane: plane[fixed])

    def _put(self, index: Any, elements: Self) -> None:
        holder, move, new = self._holder, self._move, elements.state
        # A whole assignment needs no copying of planes: the new state replaces the old one.
        if index is Ellipsis and move is None and new.shape == holder.state.shape:
            holder.state = new.alias()
            return

        def place(target: np.ndarray, source: object) -> None:
            (target if move is None else move(target))[index] = source

        holder.state = overwritten(holder.state, new, place)

    # -- primitives -----------------------------------------------------------------------------------------------
    _add, _mul, _div, _matmul = (
        _of_field(name) for name in ("add", "multiply", "divide", "matmul")
    )

    @classmethod
    def _negative(cls, a: Self) -> Self:
        s = a.state
        # Known numbers, logarithms and −∞ need more than a change of sign in the planes.
        if s.constant or s.factor is not None or s.forbidden is not None:
            return super()._negative(a)
        planes = (s.value, s.exponent)
        value, exponent = (x and Plane.after(lambda z: np.asarray(0.0 - z), x) for x in planes)
        # The maximum of negated numbers is another one, so the peaks do not carry over.
        return cls.holding(replace(s, value=value, exponent=exponent, sign=0, peaks=None))

    @classmethod
    def _maximum(cls, a: Self, b: Self) -> Self:
        return cls.holding(functions.higher(cls.field, a.state, b.state))

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        # A rough kind needs log of a number as a float; elsewhere log stays formal.
        number = a.state.number
        if (
            cls.field.rough and name == "log" and number is not None and number > 0
        ):  # code takes logarithms of sizes
            return cls.holding(cls._make_state_of_numbers(np.full(a.plain_shape, log(number))))
        # Here tanh by name must agree with tanh that is written with exponentials.
        if name == "tanh" and cls.field.capped:
            return cls.holding(functions.capping(cls.field, a.state))
        own = {
            "exp": functions.exponential,
            "log": functions.logarithm,
            "sqrt": functions.square_root,
        }
        if name in own:
            return cls.holding(own[name](cls.field, a.state))
        return cls.holding(functions.any_function(cls.field, name, a.state))

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        return cls.holding(cls.field.total(a.state, axis))

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        return cls.holding(functions.highest(cls.field, a.state, axis))

    @classmethod
    def _less(cls, a: Self, b: Self) -> np.ndarray:
        return functions.less(cls.field, a.state, b.state)

    @classmethod
    def _equal(cls, a: Self, b: Self) -> np.ndarray:
        return functions.decided_equal(cls.field, a.state, b.state)

    @classmethod
    def _forbidden(cls, a: Self) -> np.ndarray:
        state = a.state
        # A level of a finite stand-in is not −∞ itself.
        if state.level is not None:
            return np.isneginf(state.level)
        return (
            np.zeros(a.plain_shape, dtype=bool)
            if state.forbidden is None
            else state.forbidden.copy()
        )

    @classmethod
    def _undefined(cls, a: Self) -> np.ndarray:
        return functions.undefined(a.state)


def modular(p: int = 0, q: int = 0, seed: int = 0, rough: bool = False) -> type[Modular]:
    """Return a new kind: a pair of primes, a random generator, random letters. Without (p, q), the largest pair.

    A ``rough`` kind rounds floats to ten bits, and tiny ones to 0; a maximum with 0, or with a large negative number,
    is its other argument; bounds of ±37 and beyond cut off nothing of exponents. Programs that agree then differ at
    most in numbers that are nearly equal as floats.
    Raises InputError unless 2²² < p < 2²³, p = 2q + 1, and p, q are primes that leave 3 when divided by 4.
    """
    # The largest pair makes equality by chance least likely.
    p, q = (p, q) if p else primes.prime_pairs()[-1]
    if not primes.is_pair(p, q):
        raise InputError(
            f"modular({p}, {q}): no pair of primes p = 2q + 1 with 2^22 < p < 2^23 and q = 3 mod 4"
        )
    # Each call makes a kind of its own, whose arrays never meet those of another.
    result: type[Modular] = type(
        "modular", (Modular,), {"name": "modular", "field": Field(p, q, seed)}
    )
    result.xp = ModularNamespace(result)
    result.field.rough = rough
    return result


def _as_exact_plain_array(data: object) -> np.ndarray:
    """Return data as an array of booleans, integers, floats, or of ``Fraction``."""
    try:
        plain = np.asarray(data)
    except ValueError:
        raise InputError("modular: ragged data") from None
    # Every bfloat16 and float8 is also a float64, so this conversion is exact.
    if plain.dtype.isbuiltin != 1 and plain.dtype.name.startswith(("bfloat", "float8")):
        return plain.astype(np.float64)
    # Complex numbers and floats of over 8 bytes would lose digits on the way to residues.
    if plain.dtype.kind not in "biufO" or plain.dtype.itemsize > 8:
        raise InputError(f"modular: data of type {plain.dtype} cannot be taken exactly")
    return plain


def _refuse_nonfinite_floats(plain: np.ndarray) -> np.ndarray:
    if plain.dtype.kind == "f" and not np.isfinite(plain).all():
        raise InputError(
            "modular: NaN or infinity in the data; only a mask may hold -inf, and nothing may hold NaN"
        )
    return plain


def _logarithm_of_two(typed: float) -> tuple[Fraction, int] | None:
    """Return (c, k) for a float that is c ln 2 (k = 1) or c log₂ e (k = −1) to 22 bits, else None.

    c is a fraction of small integers, since code multiplies log₂ e by 1/√d_k. Such a reading is noted.
    """
    for power in (1, -1):
        ratio = max(-1e3, min(typed / log(2) ** power, 1e3))  # c is smaller
        # Small denominators only: among all fractions some are near to any float.
        c = Fraction(ratio).limit_denominator(64)
        small_terms = 0 < abs(c.numerator) * c.denominator <= 256
        if small_terms and abs(c - ratio) <= abs(ratio) * 2**-22:
            note(
                f"the number {typed!r} was read as {'' if c == 1 else f'{c} '}{'ln 2' if power == 1 else 'log₂ e'}"
            )
            return c, power
    return None


def _square_of_root(typed: float, unit: float = 1.0, unit_words: str = "") -> Fraction | None:
    """Return x for a float that is √x units to 22 bits, with x a fraction of small integers that has no rational root:
    code written for one width has 1/√d_k as a number, or its product with log₂ e. Such a reading is noted."""
    ratio = typed / unit
    # Zero, negative numbers and very large ones are no scale 1/√d_k.
    if not 0 < ratio <= _LARGEST:
        return None
    square = Fraction(ratio * ratio).limit_denominator(_LARGEST)
    terms = square.as_integer_ratio()
    error = abs(square - Fraction(ratio) ** 2)
    # The square doubles the relative error 2⁻²² of the float.
    near = 0 < prod(terms) <= _LARGEST and error <= square * Fraction(2, 2**22)
    # Where both terms are squares the root is rational, and the float is read as it stands.
    if not near or all(isqrt(n) ** 2 == n for n in terms):
        return None
    note(f"the number {typed!r} was read as √({square}){unit_words}")
    return square


def _one_of(plain: np.ndarray) -> float | None:
    """Return the float that all elements equal, unless it has few binary digits."""
    # Integers are exact already, and empty or mixed arrays have no single number.
    if (
        plain.dtype.kind != "f"
        or not plain.size
        or plain.min() != plain.max()
        or not np.isfinite(plain).all()
    ):
        return None
    typed = float(plain.reshape(-1)[0])
    # Floats with few binary digits, such as 0.125, are meant exactly.
    return typed if (typed * 2**16) % 1 else None


def _copied_index(index: object) -> Any:
    """Return a copy of an index that does not change when arrays in it do."""
    if isinstance(index, tuple):
        return tuple(map(_copied_index, index))
    return index.copy() if isinstance(index, (np.ndarray, list)) else index


# -- the namespace: elements are moved on planes that may not be computed yet ------------------------------------------
class ModularNamespace(Namespace):
    """The namespace, with functions that move elements of planes that may be missing, or not computed yet."""

    kind: type[Modular]

    def _choose_residues_where(self, condition: object, a: object, b: object) -> Array:
        # Which of two elements is taken must be decided, and residues as such decide nothing.
        if isinstance(condition, ArrayBase):
            raise Refused("modular: where needs a boolean condition")
        x = self.kind.written(a).state
        y = self.kind.written(b).state
        # A copy, since the planes may be chosen only after the caller has changed the mask.
        return self.kind.holding(chosen(np.array(condition, dtype=bool), x, y))

    where = offered("where", _choose_residues_where)

    def _absolute_value_of_residues(self, a: object) -> Array:
        """Return ``a`` if it is known not to be negative, else the maximum of a and −a, an opaque function."""
        # The maximum of a and −a is the same letter for both, so that |−x| = |x|.
        if self.kind.of(a).state.sign:
            return self.kind.of(a)
        return self.maximum(a, self.negative(a))

    abs = offered("abs", _absolute_value_of_residues)

    def _move_all_planes(
        self, move: Callable[[Callable[[Any], Any]], object], values: list[Any]
    ) -> Any:
        def run(*planes: object) -> Any:
            rest = iter(planes)
            return move(lambda _: next(rest))

        return self._on_planes(run, values)

    def _on_planes(self, move: Callable[..., Any], arrays: list[Modular]) -> Any:
        # The dummies are small integers: moving them shows the shapes and which results are views.
        dummy = move(*[a._dummy for a in arrays])
        if isinstance(dummy, (list, tuple)):
            parts = [
                self._on_planes(lambda *planes, i=i: move(*planes)[i], arrays)
                # Functions such as split return several arrays, each with planes of its own.
                for i in range(len(dummy))
            ]
            return type(dummy)(parts)
        # A move of one array may be a view, which must see later assignments.
        if len(arrays) == 1:
            return arrays[0].map(move)
        states = [a.state for a in arrays]
        result = self.kind.holding(moved(move, dummy.shape, states))
        # The plain numbers move along only if every array has them.
        if all(a.origin is not None for a in arrays):
            result.typed = Typed(move(*[a.origin for a in arrays]))
        return result
