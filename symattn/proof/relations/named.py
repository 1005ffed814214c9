"""The meanings of a formula's letters: arrays, their entries at indices, sums over them, derivatives by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from operator import add, eq, ge, gt, le, lt, mul, ne, neg
from typing import TYPE_CHECKING, Any, Self, cast

from symattn.arrays.array import Array
from symattn.document import notation as nt
from symattn.document.errors import Refused
from symattn.document.notation import Name, Node
from symattn.document.text import text
from symattn.proof.gradients import gradient
from symattn.proof.relations import part_values as v
from symattn.proof.relations.glossary import Glossary, LetterDefinition, Meaning
from symattn.proof.relations.part_values import Found, Several, Unread, Value

if TYPE_CHECKING:
    from symattn.proof.relations.reader import Reader

COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": eq,
    "≤": le,
    "<": lt,
    "≥": ge,
    ">": gt,
    "≠": ne,
}


class LetterMeanings:
    """The meanings of names, indices and derivatives, on given arrays and lengths of one kind."""

    def __init__(
        self, glossary: Glossary, arrays: Mapping[str, Any], lengths: Mapping[str, Any]
    ) -> None:
        self.glossary, self.arrays, self.lengths = glossary, dict(arrays), lengths
        self.sums: dict[str, str] = {}
        self.from_zero: set[str] = set()
        self.counted: dict[tuple[str, int], int] = {}
        self.over_sets: dict[str, str] = {}
        self.found: dict[str, Found] = {}
        self.sides: dict[tuple[Node, frozenset[str]], Found] = {}
        self.free: frozenset[str] = frozenset()
        self.open: list[str] = []
        self.touched: set[str] = set()
        self.measured: set[str] = set()
        self.elsewhere: Callable[[str], Found | None] | None = None

    def within(self, arrays: Mapping[str, object]) -> Self:
        """Return a reader of parts of the same formula, on other arrays."""
        inner = type(self)(self.glossary, arrays, self.lengths)
        inner.sums = dict(self.sums)
        inner.touched = self.touched
        inner.measured = self.measured
        inner.free = self.free
        return inner

    @property
    def xp(self) -> Any:
        """The namespace of the given arrays."""
        return next(iter(self.arrays.values())).__array_namespace__()

    # -- letters -------------------------------------------------------------------------------------------------
    def one(self, x: Node) -> Value:
        """Return the single value of a part of a formula; numbers separated by commas are a vector."""
        result = self.vector(self.read(x))
        if isinstance(result, Several):
            raise Unread(f"{text(x)} is several things")
        return result

    def vector(self, x: Found) -> Found:
        """Return numbers separated by commas, as in x = (0, a, −a), as a vector."""
        if isinstance(x, Several) and not any(p.rank or p.letters for p in x.parts):
            arrays = [p.array for p in x.parts]
            return Value(self.xp.stack(arrays), (), 1, self.glossary.rows)
        return x

    def read(self, x: Node) -> Found:
        """Return the value of a part of a formula. Raises Unread if it has none."""
        raise NotImplementedError

    def side(self, x: Node, free: frozenset[str]) -> Found:
        """Return the value of a side of a relation with these ``free`` letters; none is bound from outside."""
        # what else is free has no range, and changes no value
        free = free.intersection(self.glossary.index)
        if (x, free) not in self.sides:
            self.sums, self.from_zero, self.free = {}, set(), free
            self.sides[x, free] = self.read(x)
        return self.sides[x, free]

    def number(self, x: int | Fraction) -> Value:
        """Return a rational number as a value."""
        f = Fraction(x)
        top = self.xp.asarray(f.numerator)
        return Value(top if f.denominator == 1 else top / self.xp.asarray(f.denominator))

    def array(self, key: str) -> Any:
        """Return the array of a given letter, for definitions in code."""
        self.touched.add(key)
        return self.arrays[key]

    def length(self, sort: str) -> Any:
        """Return the length of a sort, or of a sum of sorts. Raises Unread."""
        self.measured.add(sort)
        try:
            blocks = [
                [int(f) if f.isdigit() else self.lengths[f] for f in b.split("*")]
                for b in sort.split("+")
            ]
        except KeyError as letter:
            raise Unread(f"the size {letter} is that of no array") from letter
        return reduce(add, [reduce(mul, factors) for factors in blocks])

    def sort(self, letter: str) -> str:
        """Return the sort that an index letter runs over."""
        result = self.sums.get(letter) or self.glossary.index.get(letter)
        if result is None:
            raise Unread(f"the index {letter} has no range")
        return result

    def letter(self, key: str) -> Found | None:
        """Return the meaning of a letter, or None."""
        if key in self.found:
            return self.found[key]
        # A definition that runs into itself has no value.
        if key in self.open:
            raise Unread(f"{key} is defined by itself")
        self.open.append(key)
        outer = (self.sums, self.free)
        # A definition is read outside of the sums in which its letter stands.
        self.sums = {}
        self.free = frozenset()
        try:
            result = self._find_letter_meaning(key)
        finally:
            self.sums, self.free = outer
            self.open.pop()
        if result is not None:
            self.found[key] = result
        return result

    def _find_letter_meaning(self, key: str) -> Found | None:
        if self.elsewhere:
            return self.elsewhere(key)
        g = self.glossary
        # Arrays come before definitions: a given letter needs none.
        if key in self.arrays:
            self.touched.add(key)
            array = self.arrays[key]
            is_row = g.rows and len(array.shape) == 1
            return Value(array, (), len(array.shape), is_row)
        if key in g.defined:
            self.touched.add(key)
            return self._evaluate_letter_meaning(g.defined[key])
        if key in g.sizes:
            return Value(self.xp.asarray(self.length(g.sizes[key])))
        return self._gradient_by_loss(key)

    def _evaluate_letter_meaning(self, meaning: Meaning) -> Found:
        if not isinstance(meaning, LetterDefinition):
            # Definitions in code take the reader, and return an array.
            array = meaning(cast("Reader", self))
            if isinstance(array, Value | Several):
                return array
            is_row = self.glossary.rows and len(array.shape) == 1
            return Value(array, (), len(array.shape), is_row)
        if not meaning.letters:
            return self.vector(self.read(meaning.body))
        self.free = frozenset(meaning.letters)
        body = self.one(meaning.body)
        # Letters that the body lacks still give the array an axis.
        for letter in (i for i in meaning.letters if i not in body.letters):
            body = v.both(body, self.position(letter), v.filled)
        array = v.stacked(body, meaning.letters)
        return Value(array, (), body.rank + len(meaning.letters), body.row)

    def stem(self, key: str) -> Value | None:
        """Return the array of which a letter with indices is a part: S for s, dA for da."""
        # s and S, da and dA: entries are written in small letters.
        upper = (
            f"{key[0]}{key[1:2].upper()}{key[2:]}"
            if key[0] == "d" and len(key) > 1
            else key[:1].upper() + key[1:]
        )
        known = {*self.arrays, *self.glossary.defined}
        for word in sorted(dict.fromkeys((key, upper)), key=lambda word: word not in known):
            result = self.letter(word)
            if isinstance(result, Value):
                return result
        return None

    def _name(self, x: Name) -> Found:
        # 𝟏 takes the length that the product needs.
        if x.base in ("𝟏", "1") and (x.bold or x.base == "𝟏"):
            return replace(self.number(1), even=True)
        # e is the number unless the section gives it another meaning.
        if x == Name("e") and not self.glossary.knows("e"):
            return Value(self.xp.exp(self.xp.asarray(1)))
        # δ_ij is 1 where i = j, δ̄_ij where i ≠ j.
        if x.base in ("δ", "δ̄") and len(x.sub) == 2 and not self.glossary.knows(x.base):
            sign = "=" if x.base == "δ" else "≠"
            place = self._place_of_fixed_index(x.sub[1])
            index = self.index(x.sub[0])
            other = "" if place is not None else self.index(x.sub[1])
            return self.compared(index, sign, other, place)
        # An index letter outside of a subscript is a number.
        if not x.sub and (
            x.base in self.sums
            or (x.base in self.glossary.index and not self.glossary.knows(x.base))
        ):
            return self.position(x.base)
        if x.sub and x.base in self.glossary.families:
            return self._of_family(x.base, x.sub)
        result = self.letter(text(x))
        if result is not None:
            return result
        # The longest part of the subscript that is a letter's own comes first: W_q,i.
        for cut in reversed(range(len(x.sub))):
            key = text(Name(x.base, x.sub[:cut]))
            whole = self.stem(key)
            if whole is not None:
                self._check_counting_of_indices(x.base, x.sub)
                return self.part(whole, x.sub[cut:])
        raise Unread(f"the letter {text(x)} has no meaning here")

    def _check_counting_of_indices(self, base: str, indices: tuple[Node, ...]) -> None:
        """Raise Unread if an axis is counted from 0 here, as in Σ_{l=0}^{L−1}, and from 1 elsewhere, or the reverse."""
        for axis, x in enumerate(indices):
            begins = 0 if text(x) in self.from_zero else self.glossary.first
            if (
                text(x) not in self.glossary.places
                and self.counted.setdefault((base, axis), begins) != begins
            ):
                raise Unread(f"the indices of {base}, which begin with 0 and with 1")

    def _of_family(self, base: str, parts: tuple[Node, ...]) -> Found:
        result = self.glossary.families[base](cast("Reader", self), parts)
        if isinstance(result, Value | Several):
            return result
        return Value(result, (), len(result.shape))

    def position(self, letter: str) -> Value:
        """Return an index letter as a number: 1, 2, …"""
        if letter in self.from_zero:
            raise Unread(f"the index {letter}, which begins with 0, as a number")
        places = self.xp.arange(self.length(self.sort(letter)))
        return Value(self.xp.asarray(places + self.glossary.first), (letter,))

    def index(self, x: Node) -> str:
        """Return the letter of an index."""
        if (
            isinstance(x, Name)
            and not x.sub
            and (x.base in self.sums or x.base in self.glossary.index)
        ):
            return x.base
        raise Unread(f"{text(x)} is not an index here")

    def part(self, whole: Value, indices: tuple[Node, ...]) -> Value:
        """Return an entry or a row of ``whole``."""
        # A vector of ones of any length has no entries to name.
        if len(indices) > whole.rank or whole.even:
            raise Unread("more indices than axes")
        array, letters = whole.array, list(whole.letters)
        for x in indices:
            array, result = self._index_array_axis(array, len(letters), x)
            letters += result
        rank = whole.rank - len(indices)
        # A row of a matrix is a row or a column, as the section says.
        is_row = rank == 1 and self.glossary.rows
        return self.diagonal(Value(array, tuple(letters), rank, is_row))

    def _index_array_axis(self, array: Array, axis: int, x: Node) -> tuple[Any, list[str]]:
        """Return the array with an axis indexed by ``x``, and the letters of the axes that replace it."""
        place = self._place_of_fixed_index(x)
        if place is not None:
            return array[(*[slice(None)] * axis, place)], []
        letters = self._letters_of_grouped_index(x)
        if not letters:
            letter = self.index(x)
            self._check_index_fits_axis(self.length(self.sort(letter)), array, axis, letter)
            return array, [letter]
        before = tuple(array.shape[:axis])
        after = tuple(array.shape[axis + 1 :])
        lengths = [self.length(self.sort(letter)) for letter in letters]
        if len(letters) == 2:
            self._check_index_fits_axis(lengths[0] * lengths[1], array, axis, text(x))
            return self.xp.reshape(array, (*before, *lengths, *after)), letters
        times = self.length(self.glossary.sizes[text(x.body.denominator)])  # type: ignore[attr-defined]
        self._check_index_fits_axis(lengths[0], array, axis, text(x), times)
        every = array[(*[slice(None)] * (axis + 1), None)]
        shape = (*before, array.shape[axis], times, *after)
        spread = self.xp.broadcast_to(every, shape)
        return self.xp.reshape(spread, (*before, lengths[0], *after)), letters

    def _check_index_fits_axis(
        self, length: object, array: Array, axis: int, index: str, times: object = 1
    ) -> None:
        if length != array.shape[axis] * times:
            raise Unread(f"the index {index} and its axis are of different lengths")

    def _letters_of_grouped_index(self, x: Node) -> list[str]:
        """Return the letters of the index a r + b (groups of r rows) or ⌊t/r⌋, with rows counted from 0; else []."""
        sizes = self.glossary.sizes
        match x:
            # a r + b with b < r is row b of group a.
            case nt.Sum((nt.Product((a, r)), b)) if (
                text(r) in sizes and self.sort(self.index(b)) == sizes[text(r)]
            ):
                letters = [self.index(a), self.index(b)]
            case nt.Fence("floor", nt.Over(t, r)) if text(r) in sizes:
                letters = [self.index(t)]
            case _:
                return []
        # Counted from 1 the index would be (a − 1) r + b.
        if self.glossary.first:
            raise Unread(f"the index {text(x)} of rows that are not counted from 0")
        return letters

    def _place_of_fixed_index(self, x: Node) -> int | None:
        """Return the place of a written number, or of a letter with a fixed index; None for another letter."""
        if isinstance(x, nt.Number):
            if x.value < self.glossary.first or x.value.denominator != 1:
                raise Unread(f"the index {x.value}")
            return int(x.value) - self.glossary.first
        if isinstance(x, Name) and not x.sub:
            return self.glossary.places.get(x.base)
        return None

    def diagonal(self, x: Value) -> Value:
        """Return x_ii of x_ij if a letter occurs twice."""
        twice = next((i for i in x.letters if x.letters.count(i) > 1), None)
        if twice is None:
            return x
        other = f"{twice}*"
        letters = list(x.letters)
        # The last one of the two is renamed.
        letters[len(letters) - 1 - letters[::-1].index(twice)] = other
        self.sums[other] = self.sort(twice)
        # Σ_{i*} x_{i i*} [i = i*] is the diagonal.
        same = self.compared(twice, "=", other)
        relabelled = replace(x, letters=tuple(letters))
        return self.over(v.both(relabelled, same, mul), [other])

    def compared(self, i: str, sign: str, j: str, place: int | None = None) -> Value:
        """Return 1 where ``i sign j`` and 0 elsewhere; with ``place``, compare i with this place instead of j."""
        if sign not in COMPARED:
            raise Unread(f"the sign {sign} between indices")
        xp = self.xp
        a = xp.arange(self.length(self.sort(i)))
        if place is not None:
            # A comparison with one place has one index.
            holds = COMPARED[sign](a, a[place])
            return Value(xp.where(holds, xp.asarray(1), xp.asarray(0)), (i,))
        b = xp.arange(self.length(self.sort(j)))
        truth = COMPARED[sign](a[:, None], b[None, :])
        one = xp.asarray(1)
        return Value(xp.where(truth, one, xp.asarray(0)), (i, j))

    def over(self, x: Value, letters: list[str], operator: str = "sum") -> Value:
        """Return Σ, max or min over index letters."""
        # min x = −max(−x).
        if operator == "min":
            return self.over(x.on(neg), letters, "max").on(neg)
        for letter in letters:
            if letter not in x.letters:
                raise Unread(f"the index {letter} does not occur")
            place = x.letters.index(letter)
            work = self.xp.sum if operator == "sum" else self.xp.max
            # A maximum runs along the last axis in every kind of array.
            array = self.xp.moveaxis(x.array, place, -1) if operator == "max" else x.array
            array = work(array, axis=-1 if operator == "max" else place)
            remaining = tuple(i for i in x.letters if i != letter)
            x = Value(array, remaining, x.rank, x.row)
        return x

    # -- derivatives ---------------------------------------------------------------------------------------------
    def _gradient_by_loss(self, key: str) -> Value | None:
        loss = self.glossary.loss
        # dX is the derivative of the loss by X.
        if not loss or not key.startswith("d") or len(key) < 2:
            return None
        body = self.glossary.defined.get(loss)
        if not isinstance(body, LetterDefinition):
            return None
        known = key[1:] in self.arrays or key[1:] in self.glossary.defined
        return self.derivative(body.body, key[1:]) if known else None

    def derivative(self, of: Node, by: str) -> Value:
        """Return the derivative of a formula by a given or defined array."""
        if by in self.arrays:
            arrays = self.arrays
        else:
            variable = self.letter(by)
            if not isinstance(variable, Value) or variable.letters:
                raise Unread(f"the derivative by {by}")
            if not hasattr(variable.array, "entries"):
                raise Refused(f"the derivative by {by}, which is not a number here")
            # A defined array is a variable for the derivative, and a number elsewhere.
            arrays = {**self.arrays, by: variable.array}
        shape: list[Value] = []

        # The shape of the result is known when the function has run.
        def function(**moved: object) -> Any:
            result = self.within(moved).one(of)
            shape[:] = [result]
            return result.array

        array = gradient(function, by, **arrays)
        rank = shape[0].rank + len(arrays[by].shape)
        return Value(array, shape[0].letters, rank)

    def _partial(self, x: nt.Partial) -> Value:
        if not isinstance(x.by, Name):
            raise Unread(f"the derivative by {text(x.by)}")
        known = {**self.glossary.defined, **self.arrays}
        spellings = (x.by.base, x.by.base.upper())
        word = next((w for w in spellings if w in known), None)
        variable = self.letter(word) if word else None
        if word is None or not isinstance(variable, Value):
            raise Unread(f"the derivative by {text(x.by)}")
        result = self.derivative(x.of, word)
        own = result.rank - len(variable.array.shape)
        by = len(variable.array.shape)
        if own and len(x.by.sub) not in (by, by - 1):
            raise Unread("the derivative of what is not a number by a matrix")
        if own:  # the axes of what it is by come first, as they have the indices
            first, axes = (
                len(result.letters),
                range(len(result.letters), len(result.letters) + result.rank),
            )
            outer = range(first)
            order = (*outer, *axes[own:], *axes[:own])
            result = replace(result, array=self.xp.permute_dims(result.array, order))
        return self.part(result, x.by.sub)
