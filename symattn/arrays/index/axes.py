"""Lengths that are letters. An axis is a sum of blocks, a block a product of sorts and numbers.

p + 1 tokens are ``length("p") + 1``, h·d columns ``length("h") * length("d")``, f pairs ``length("f") * 2``. An index
into an axis is the number of a block and one entry for each of its factors.
"""

from __future__ import annotations

import itertools
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from math import prod
from types import FrameType
from typing import Any

from symattn.arrays.index import expressions
from symattn.arrays.index.building import add, as_written, constant, multiply
from symattn.arrays.notes import any_way, meet_branch, meet_quotient, meet_remainder
from symattn.document.errors import Meaningless, Refused, Undecided

Factor = str | int
Block = tuple[Factor, ...]


withheld: ContextVar[list[Refused] | None] = ContextVar("symattn_withheld", default=None)
"""Refused operations of a statement's code on lengths. It may compute with them and compare them; if it asked for
something that differs between letters and numbers, a proof would hold for letters only."""


def _refusals_of_calling_code() -> list[Refused] | None:
    """Return the list for refusals if the code of a statement is the caller, else None: symattn itself may do all."""
    # Outside a statement the frames are not searched, which would cost at each comparison.
    # the caller of a method of a length
    frame = sys._getframe(3) if withheld.get() is not None else None
    # The standard library calls on behalf of code, so its caller counts.
    while frame and _top_package_of_frame(frame) in sys.stdlib_module_names:
        frame = frame.f_back
    return withheld.get() if frame and _top_package_of_frame(frame) != "symattn" else None


def _top_package_of_frame(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


class Compared:
    """Lengths with comparisons, which are decided if they have the same result for all sizes from 1 on, else refused.

    Code that branches on n = m takes one of two branches: a proof would hold only for the sizes that take this one.
    Quotients and powers of lengths are elements.
    """

    __slots__ = ()

    def __truediv__(self, other: object) -> Any:
        return Axis.kind.lift(self) / other

    def __rtruediv__(self, other: object) -> Any:
        return Axis.kind.xp.divide(other, Axis.kind.lift(self))

    def __pow__(self, exponent: object) -> Any:
        return Axis.kind.lift(self) ** exponent

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Compared, int)):
            return NotImplemented
        # Comparing the difference with 0 needs the signs of its coefficients only.
        gap = linear(self) - linear(other)
        if not gap.coefficients:
            return True
        # A difference of one sign at every size decides without a branch.
        if gap.always_positive() or (-gap).always_positive():
            return False
        # A proof may try each branch in turn; then the sizes of the branch decide.
        if (value := meet_branch(gap.coefficients)) is not None:
            return value == 0
        raise Undecided(
            f"indexed: is {self} = {other}? That depends on the sizes, and the code branches on it"
        )

    def __lt__(self, other: object) -> bool:
        gap = linear(other) - linear(self)
        if gap.always_positive():
            return True
        # For integers, gap ≤ 0 is 1 − gap > 0.
        if (1 - gap).always_positive():
            return False
        if (value := meet_branch(gap.coefficients)) is not None:
            return value > 0
        raise Undecided(
            f"indexed: is {self} < {other}? That depends on the sizes, and the code branches on it"
        )

    def __le__(self, other: object) -> bool:
        return self < linear(other) + 1

    def __gt__(self, other: object) -> bool:
        return linear(other) < linear(self)

    def __ge__(self, other: object) -> bool:
        return linear(other) <= linear(self)

    def __bool__(self) -> bool:
        return self != 0

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # ``isinstance`` reads it if ``type`` does not match
        self._refuse_to_reveal_length("the type")
        return type(self)

    def __getattr__(self, name: str) -> Any:
        # Python looks up names with two underscores itself, which reveals nothing to the code.
        if not name.startswith("__"):
            self._refuse_to_reveal_length(name)
        raise AttributeError(name)

    def __repr__(self) -> str:
        self._refuse_to_reveal_length("the text")
        return self.words()

    def _refuse_to_reveal_length(self, what: str) -> None:
        """Raise Meaningless unless the caller is symattn itself."""
        if (refusals := _refusals_of_calling_code()) is not None:
            reason = f"indexed: the code asks for {what} of {self.words()}, a letter; hint: compare"
            refusals.append(Meaningless(reason))
            raise refusals[-1]

    @abstractmethod
    def words(self) -> str:
        """Return the length in letters, as text."""

    def __hash__(self) -> int:
        self._refuse_to_reveal_length("the hash")
        # Of the text: unequal lengths with equal hashes would be compared, which may be refused.
        return hash(repr(sorted(linear(self).coefficients.items())))


class Linear(Compared):
    """An integer combination of products of sizes: a length, or a difference of lengths."""

    def __init__(self, coefficients: dict[tuple[str, ...], int]) -> None:
        # Without zero coefficients equal combinations have equal dictionaries.
        self.coefficients = {k: c for k, c in coefficients.items() if c}

    def __add__(self, other: object) -> Linear:
        results = Counter(self.coefficients)
        for k, c in linear(other).coefficients.items():
            results[k] += c
        return Linear(dict(results))

    __radd__ = __add__

    def __neg__(self) -> Linear:
        return Linear({k: -c for k, c in self.coefficients.items()})

    def __sub__(self, other: object) -> Linear:
        return self + -linear(other)

    def __rsub__(self, other: object) -> Linear:
        return linear(other) + -linear(self)

    def __mul__(self, other: object) -> Any:
        # Products with other lengths are elements of arrays, not lengths.
        if isinstance(other, int):
            return Linear({k: c * other for k, c in self.coefficients.items()})
        return Axis.kind.lift(self) * (
            Axis.kind.lift(other) if isinstance(other, (Linear, Axis)) else other
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> int:
        """Divide and round down, while sizes decide comparisons. Raises Refused otherwise."""
        # Rounding down differs between sizes, so it needs sizes at which comparisons are decided.
        if any_way() and isinstance(other, int) and other > 0:
            return meet_quotient(self.coefficients, other)
        raise Refused(f"indexed: {self} // {other} is not known to be a whole number")

    def __mod__(self, other: object) -> Remainder:
        """Return what can be compared, while sizes decide comparisons. Raises Refused otherwise."""
        if any_way() and isinstance(other, int) and other > 0:
            return Remainder(self, other)
        raise Refused(f"indexed: the remainder of {self}, a letter, divided by {other}")

    def __abs__(self) -> Linear:
        raise Refused(f"indexed: {self} is a length in letters, and the code needs a number")

    def always_positive(self) -> bool:
        """Return whether its form shows that it is > 0 for all sizes from 1 on."""
        # Sizes are at least 1, so with positive coefficients the form is least where all are 1.
        return (
            all(c > 0 for k, c in self.coefficients.items() if k)
            and sum(self.coefficients.values()) > 0
        )

    def words(self) -> str:
        terms = sorted(self.coefficients.items())
        words = []
        for letters, c in terms:
            # A factor 1 is not written before letters.
            number = [str(c)] if c != 1 or not letters else []
            words.append("·".join([*number, *letters]))
        return " + ".join(words) or "0"

    def expression(self) -> expressions.Expression:
        """Return the length as an index expression."""
        # Lengths are simplified also within ``as_written``, so that each has one form.
        with as_written(False):
            products = [
                multiply(constant(c), *map(expressions.Count, k))
                for k, c in self.coefficients.items()
            ]
            return add(*products)


class Remainder:
    """The remainder of a length divided by a number, while sizes decide comparisons; it can only be compared."""

    def __init__(self, length: Linear, modulus: int) -> None:
        self.length, self.modulus = length, modulus

    def _remainder_on_this_branch(self, other: object) -> int:
        return meet_remainder(
            self.length.coefficients, self.modulus, other if isinstance(other, int) else 0
        )

    def __eq__(self, other: object) -> bool:
        return self._remainder_on_this_branch(other) == other

    def __lt__(self, other: int) -> bool:
        return self._remainder_on_this_branch(other) < other

    def __gt__(self, other: int) -> bool:
        return self._remainder_on_this_branch(other) > other

    def __le__(self, other: int) -> bool:
        return self < other + 1

    def __ge__(self, other: int) -> bool:
        return self > other - 1

    def __bool__(self) -> bool:
        return self != 0

    # Equality depends on the branch, so no hash could agree with it.
    __hash__ = None  # type: ignore[assignment]


class Axis(Compared):
    """A length that is a sum of products of sorts and numbers."""

    __array_priority__ = 2000
    kind: Any = None  # the kind of which 1/n and √n are elements; set by ``indexed``

    def __init__(self, blocks: Iterable[Block]) -> None:
        # A factor 1 changes no length, and without it equal blocks are equal tuples.
        self.blocks = tuple(tuple(f for f in b if f != 1) for b in blocks)

    def linear(self) -> Linear:
        """Return the length without the order of its blocks."""
        results: Counter[tuple[str, ...]] = Counter()
        for b in self.blocks:
            # The order of factors matters for elements, not for the length.
            results[tuple(sorted(f for f in b if isinstance(f, str)))] += prod(
                f for f in b if isinstance(f, int)
            )
        return Linear(dict(results))

    def __add__(self, other: object) -> Any:
        # Nonnegative lengths join as blocks; a difference has no blocks, only coefficients.
        if isinstance(other, Axis) or (isinstance(other, int) and other >= 0):
            return Axis(self.blocks + axis(other).blocks)
        if _is_length(other):
            return self.linear() + other
        return self.kind.lift(self) + other

    def __radd__(self, other: object) -> Any:
        if isinstance(other, int) and other >= 0:
            return axis(other) + self
        return self + other

    def __sub__(self, other: object) -> Any:
        if _is_length(other):
            return self.linear() + -linear(other)
        return self.kind.lift(self) - other

    def __rsub__(self, other: object) -> Any:
        if _is_length(other):
            return linear(other) + -linear(self)
        return other - self.kind.lift(self)

    def __mul__(self, other: object) -> Any:
        if isinstance(other, (Axis, int)):
            return Axis(a + b for a in self.blocks for b in axis(other).blocks)
        return self.kind.lift(self) * other

    def __rmul__(self, other: object) -> Any:
        if isinstance(other, int):
            return axis(other) * self
        return self.kind.lift(self) * other

    def __floordiv__(self, other: object) -> Axis | int:
        """Divide exactly; else round down, while sizes decide comparisons. Raises Refused otherwise."""
        try:
            # Exact division keeps the blocks and holds at every size, so it is tried first.
            return self._divide_axis_exactly(other)
        except Refused:
            if not any_way():
                raise
            return self.linear() // other

    def _divide_axis_exactly(self, other: object) -> Axis:
        """Divide exactly by a factor of a product, or k equal groups of blocks by k. Raises Refused for others."""
        by = axis(other)
        # One product divided by another: its factors are removed.
        if len(self.blocks) == 1 and len(by.blocks) == 1:
            rest = list(self.blocks[0])
            for f in by.blocks[0]:
                # A number may be spread over several factors: 6 is 2 · 3.
                gone = [f] if f in rest else _made_of(rest, f)
                if not gone:
                    raise Refused(f"indexed: {self} // {by} is not known to be a whole number")
                for factor in gone:
                    rest.remove(factor)
            return Axis([tuple(rest)])
        # Several blocks can only be divided into equal groups of blocks.
        k = by.linear().coefficients.get((), 0)
        divisible = k and same_length(by, k) and len(self.blocks) % k == 0
        size = len(self.blocks) // k if divisible else 0
        if size and self.blocks[:size] * k == self.blocks:
            return Axis(self.blocks[:size])
        raise Refused(f"indexed: {self} // {by} is not known to be a whole number")

    def __mod__(self, other: object) -> int | Remainder:
        """Return 0 if the length is a multiple. Raises Refused if not, unless sizes decide comparisons."""
        try:
            self._divide_axis_exactly(other)
        except Refused:
            if not any_way():
                raise
            return self.linear() % other
        return 0

    def __int__(self) -> int:
        return self._number_of_axis_elements()

    __index__ = __int__

    def __float__(self) -> float:
        return float(self._number_of_axis_elements())

    def _number_of_axis_elements(self) -> int:
        # An axis of numbers alone is a number.
        if not any(isinstance(f, str) for b in self.blocks for f in b):
            numbers = (prod(f for f in b if isinstance(f, int)) for b in self.blocks)
            return sum(numbers)
        reason = Refused(
            f"indexed: the size {self.words()} is a letter, and the code needs a number"
        )
        # Recorded as well, because the code may catch the error and go on.
        if (refusals := _refusals_of_calling_code()) is not None:
            refusals.append(reason)
        raise reason

    def words(self) -> str:
        return " + ".join("·".join(map(str, b)) or "1" for b in self.blocks) or "0"


def _is_length(x: object) -> bool:
    return isinstance(x, (Compared, int))


# An axis with one block without factors: length 1, which broadcasts.
ONE_LONG = Axis([()])


def same_length(a: object, b: object) -> bool:
    """Return whether two lengths are equal for all sizes."""
    return linear(a).coefficients == linear(b).coefficients


# the number of a block, entries of its leading numbers, its other factors
Part = tuple[int, tuple[int, ...], Block]


def split(a: Axis) -> list[Part]:
    """Return the parts of an axis in their order: a product that starts with a number is that many equal parts."""
    result: list[Part] = []
    for number, block in enumerate(a.blocks):
        # Only leading numbers split: after a sort, parts would be interleaved.
        leading = tuple(itertools.takewhile(lambda f: isinstance(f, int), block))
        result += [
            (number, at, block[len(leading) :])
            for at in itertools.product(*map(range, leading))  # type: ignore[arg-type]
        ]
    return result


def same_order(a: Axis, b: Axis) -> bool:
    """Return whether two axes have the same parts: 2·n is n + n, and 4 is 2 + 2 or 2·2."""
    if a.blocks == b.blocks:
        return True
    rest_of_a = [rest for _, _, rest in split(a)]
    rest_of_b = [rest for _, _, rest in split(b)]
    return rest_of_a == rest_of_b


def axis(x: object) -> Axis:
    """Return a letter, a number or an axis as an axis. Raises Refused for anything else."""
    if isinstance(x, Axis):
        return x
    if isinstance(x, str) and x.isidentifier():
        return Axis([(x,)])
    if isinstance(x, int) and x >= 0:
        # An axis of length 0 has no blocks at all.
        return Axis([(int(x),)] if x else [])
    raise Refused(f"indexed: {x!r} is not a length")


def length(letter: str) -> Axis:
    """Return an axis whose length is the letter of a sort."""
    return axis(letter)


def linear(x: object) -> Linear:
    """Return a number, an axis or a combination as a combination. Raises Refused for anything else."""
    if isinstance(x, Linear):
        return x
    if isinstance(x, Axis):
        return x.linear()
    if isinstance(x, int):
        return Linear({(): int(x)})
    raise Refused(f"indexed: {x!r} is not a length")


def _made_of(factors: Sequence[int | str], wanted: int | str) -> list[int | str]:
    """Return the leading numbers among the factors whose product is ``wanted``: 6 is 2 · 3; [] if there are none."""
    result: list[int | str] = []
    for f in factors:
        # A letter in the way would change the order of the factors.
        if isinstance(f, str) or isinstance(wanted, str) or wanted % f:
            break
        result.append(f)
        wanted //= f
        if wanted == 1:
            return result
    return []
