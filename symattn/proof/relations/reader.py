"""Read a formula: each part becomes an array, of the same kind as the given arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import islice
from operator import add, mul, neg, sub, truediv
from typing import Any

from symattn.document import notation as nt
from symattn.document.errors import Refused
from symattn.document.notation import Name, Node
from symattn.document.text import text
from symattn.proof.relations import part_values as v
from symattn.proof.relations.functions import ENTRYWISE, FUNCTIONS
from symattn.proof.relations.glossary import LetterDefinition, Spoken
from symattn.proof.relations.named import COMPARED, LetterMeanings
from symattn.proof.relations.part_values import Found, Several, Unread, Value
from symattn.proof.relations.random_arrays import MOMENTS, moment
from symattn.proof.relations.recurring import written_out

# Larger powers are products of too many factors to be decided in time.
_LARGEST_EXPONENT = 1000
_LARGEST_TENSOR = 2**16  # entries


class Reader(LetterMeanings):
    """A reader of the formulas of a section, on given arrays and lengths of one kind."""

    def read(self, x: Node) -> Found:
        """Return the value of a part of a formula. Raises Unread if it has none."""
        work: Any = getattr(self, f"_{type(x).__name__.lower()}", None)
        if work is None:
            raise Unread(f"{type(x).__name__} {text(x)}")
        result: Found = work(x)
        return result

    def _number(self, x: nt.Number) -> Value:
        return self.number(x.value)

    def _sum(self, x: nt.Sum) -> Value:
        total, *others = map(self.one, x.terms)
        for other in others:
            total = v.added(total, other)
        return total

    def _neg(self, x: nt.Neg) -> Value:
        return self.one(x.body).on(neg)

    def _product(self, x: nt.Product) -> Value:
        if Name("⊙") in x.factors:
            return self._entry_by_entry(x.factors)
        product, *others = self._yield_read_factors(x.factors)
        for other in others:
            product = v.times(product, other, x.sign, self.glossary.rows)
        return product

    def _without_identity(self, x: Node) -> Node | None:
        """Return A if the letter x is defined as I + A."""
        meaning = self.glossary.defined.get(text(x)) if isinstance(x, Name) else None
        body = (
            meaning.body if isinstance(meaning, LetterDefinition) and not meaning.letters else None
        )
        # I has a size only in a sum, so that A is read alone.
        if (
            isinstance(body, nt.Sum)
            and body.terms[0] == Name("I")
            and callable(self.glossary.defined.get("I"))
        ):
            self.touched |= {text(x), "I"}
            if len(body.terms) == 2:
                return body.terms[1]
            return nt.Sum(body.terms[1:])
        return None

    def _identity_and(self, rest: Node, whole: Node, factor: Node | None) -> Iterator[Value]:
        """Yield (I + A) x as x + A x for a vector x, which avoids a sum over I; yield other factors unchanged."""
        x = self.one(factor) if factor is not None else None
        if x and x.rank == 1 and not x.row:
            yield v.added(x, self._apply_matrix_to_vector(rest, x))
        else:
            yield from (y for y in (self.one(whole), x) if y)

    def _apply_matrix_to_vector(self, a: Node, x: Value) -> Value:
        """Return A x for a vector x; 𝟏 𝟏ᵀ x is the sum of x, in every entry."""
        match a:
            case nt.Sum(terms):
                return reduce(v.added, [self._apply_matrix_to_vector(term, x) for term in terms])
            case nt.Neg(body):
                return self._apply_matrix_to_vector(body, x).on(neg)
            case nt.Over(top, below) if not (number := self.one(below)).rank:
                return v.both(self._apply_matrix_to_vector(top, x), number, truediv)
        matrix = self.one(a)
        if not matrix.even:
            return v.times(matrix, x, "", False)
        # 𝟏 𝟏ᵀ x needs no length: the sum, wherever it stands.
        return replace(v.both(replace(matrix, even=False), v.summed(x), mul), even=True)

    def _yield_read_factors(self, factors: tuple[Node, ...]) -> Iterator[Value]:
        """Yield the factors of a product; ∇, and a function as in log n, are joined with the factor after them."""
        every = iter(factors)
        for x in every:
            # ∇ f and log n are written without brackets.
            if isinstance(x, Name) and x.base == "∇" and len(x.sub) < 2:
                of = next(every, None)
                if of is None:
                    raise Unread("the gradient of nothing")
                yield (
                    self.derivative(of, text(x.sub[0]))
                    if x.sub
                    else self._read_gradient_of_call(of)
                )
            elif isinstance(x, Name) and x.base in ENTRYWISE and not self.glossary.knows(text(x)):
                yield self.one(nt.Call(x, tuple(islice(every, 1))))
            elif rest := self._without_identity(x):
                yield from self._identity_and(rest, x, next(every, None))
            else:
                yield self.one(x)

    def _entry_by_entry(self, factors: tuple[Node, ...]) -> Value:
        """Return x ⊙ y for factors of one shape."""
        # x ⊙ y ⊙ z is not read: brackets say what is meant.
        if factors.count(Name("⊙")) > 1 or factors.index(Name("⊙")) in (0, len(factors) - 1):
            raise Unread("what stands at ⊙")
        at = factors.index(Name("⊙"))
        x, y = (
            self.one(nt.Product(part) if len(part) > 1 else part[0])
            for part in (factors[:at], factors[at + 1 :])
        )
        other_row = x.row != y.row
        if x.rank != y.rank or other_row or x.even or y.even:
            raise Unread("the factors at ⊙ are not of one shape")
        return v.both(x, y, mul)

    def _read_gradient_of_call(self, of: Node) -> Value:
        """Return the derivative of f(x) by its argument."""
        if not isinstance(of, nt.Call) or len(of.arguments) != 1:
            raise Unread(f"the argument by which {text(of)} is differentiated")
        (argument,) = of.arguments
        # By a letter: the derivative by that array.
        if text(argument) in self.arrays:
            return self.derivative(of, text(argument))
        meaning = (
            self.glossary.spoken.get(of.function.base) if isinstance(of.function, Name) else None
        )
        letter = text(meaning.letters[0]) if meaning else ""
        if not meaning or letter not in self.arrays:
            raise Unread(f"the argument by which {text(of)} is differentiated")
        # f(x) with a formula for x: f′ at the value of x.
        there = self.within({**self.arrays, letter: self.one(argument).array})
        return there.derivative(meaning.body, letter)

    def _over(self, x: nt.Over) -> Value:
        below = self.one(x.denominator)
        if below.rank == 1 and not below.row:  # row by row
            above = self.one(x.numerator)
            if above.rank != 2 or below.even:
                raise Unread("division by a vector of what is not a matrix")
            return v.both(above, replace(below, array=below.array[..., None], rank=2), truediv)
        if below.rank or below.even:
            raise Unread("division by what is not a number")
        return v.both(self.one(x.numerator), below, truediv)

    def _power(self, x: nt.Power) -> Value:
        letter = self.letter("e") if self.glossary.knows("e") and "e" not in self.open else None
        if x.base == Name("e") and (
            not isinstance(letter, Value) or letter.rank
        ):  # a number e is another one
            result = self.one(x.exponent)
            if result.rank:
                raise Unread("e to the power of what is not a number")
            return result.on(self.xp.exp)
        if text(x) in self.glossary.defined:
            return self.one(Name(text(x)))
        result = self.one(x.base)
        if isinstance(x.exponent, nt.Product) and x.exponent.factors[0] == Name("⊗"):
            return self._tensor_power(result, x)
        if result.rank == 2 and isinstance(x.exponent, nt.Number) and x.exponent.value in (2, 3):
            exponent = int(x.exponent.value)
            lower = nt.Power(x.base, nt.node(exponent - 1))
            return v.times(result, self.one(lower), "", False)
        if result.rank == 2 and x.exponent == nt.node(1):
            return result
        whole = self.whole_number(x.exponent)
        if result.rank or (whole is None and not isinstance(x.base, nt.Number)):
            raise Unread(f"the power {text(x)}")
        if whole is None:  # b^x = e^{x log b}
            power = self.one(x.exponent)
            logarithm = power.array * self.xp.log(result.array)
            return replace(power, array=self.xp.exp(logarithm))
        if abs(whole) > _LARGEST_EXPONENT and not hasattr(
            result.array, "groups"
        ):  # balls of any exponent
            raise Unread(f"an exponent beyond {_LARGEST_EXPONENT}")
        return result.on(lambda x: x**whole if whole >= 0 else 1 / x**-whole)

    def _tensor_power(self, x: Value, power: nt.Power) -> Value:
        """Return x ⊗ … ⊗ x as one vector."""
        assert isinstance(power.exponent, nt.Product)
        times = self.whole_number(power.exponent.factors[-1])
        plain = (
            x.rank == 1 and not x.letters and not isinstance(power.base, nt.Fence | nt.Transposed)
        )
        if not plain or not times or len(power.exponent.factors) != 2:
            raise Unread(f"the power {text(power)}")
        result, length = x.array, x.array.shape[0]
        # A power of a symbolic length has no number to compare.
        if isinstance(length, int) and (
            times > _LARGEST_EXPONENT or length**times > _LARGEST_TENSOR
        ):
            raise Refused(f"a tensor of {length}^{times} entries")
        for _ in range(times - 1):
            # (x ⊗ y)_(i d + j) = x_i y_j.
            every = result[:, None] * x.array[None, :]
            result = self.xp.reshape(every, (every.shape[0] * every.shape[1],))
        return replace(x, array=result)

    def whole_number(self, x: Node) -> int | None:
        """Return a written whole number or a size, else None. Raises Refused for a size that is a letter."""
        if isinstance(x, nt.Neg):
            result = self.whole_number(x.body)
            return None if result is None else -result
        if isinstance(x, nt.Number) and x.value.denominator == 1:
            return int(x.value)
        size = self.glossary.sizes.get(text(x))
        length = self.length(size) if size else None
        # Letters for sizes give no number of factors.
        if length is not None and not isinstance(length, int):
            raise Refused(f"{text(x)} is not a number here")
        return length

    def _root(self, x: nt.Root) -> Value:
        result = self.one(x.body)
        if result.rank:
            raise Unread("the root of what is not a number")
        return result.on(self.xp.sqrt)

    def _transposed(self, x: nt.Transposed) -> Value:
        result = self.one(x.body)
        if result.rank == 2:
            return result.on(lambda x: x.mT)
        if result.rank == 1 or result.even:
            return replace(result, row=not result.row)
        raise Unread("the transpose of a number")

    def _fence(self, x: nt.Fence) -> Found:
        if x.style in ("round", "curly"):
            result = (
                self._read_comma_list(x.body)
                if isinstance(x.body, nt.Commas)
                else self.read(x.body)
            )
            # Brackets without an index change nothing.
            if x.sub is None:
                return result
            if isinstance(result, Several) or (
                result.rank == 1 and isinstance(x.body, nt.Transposed)
            ):
                raise Unread(
                    "an index of several things, or of a vector that is transposed for nothing"
                )
            sub = x.sub
            parts = (
                sub.factors
                if isinstance(sub, nt.Product)
                else sub.parts
                if isinstance(sub, nt.Commas)
                else (sub,)
            )
            return self.part(result, parts)
        # |S| of a set is its size.
        if x.style == "abs" and text(x.body) in self.glossary.sets:
            length = self.length(self.glossary.sets[text(x.body)])
            return Value(self.xp.asarray(length))
        if x.style == "floor":
            raise Unread("⌊…⌋ outside an index")
        result = self.one(x.body)
        return result.on(abs) if x.style == "abs" else self._norm_of_value(result, x.sub)

    def _norm_of_value(self, x: Value, sub: Node | None) -> Value:
        kind = text(sub) if sub is not None else ""
        # Euclidean norms of vectors, and the Frobenius norm of a matrix.
        if (x.rank, kind) in ((1, ""), (1, "2"), (2, "F")):
            squares = Value(x.array * x.array, x.letters, x.rank)
            for _ in range(x.rank):
                squares = v.summed(squares)
            return squares.on(v.root_of_squares)
        if kind == "1" and x.rank == 1:
            return v.summed(x.on(abs))
        if kind == "∞" and x.rank == 1:
            return Value(self.xp.max(abs(x.array), axis=-1), x.letters)
        # The largest absolute row sum.
        if kind == "∞" and x.rank == 2:
            rows = self.xp.sum(abs(x.array), axis=-1)
            return Value(self.xp.max(rows, axis=-1), x.letters)
        raise Unread("this norm")

    def _read_comma_list(self, x: nt.Commas) -> Found:
        """Read (q, r): concatenate vectors (and numbers), stack numbers into a vector, or return ``Several`` values."""
        parts = tuple(map(self.one, x.parts))
        ranks = {p.rank for p in parts}
        # Numbers beside vectors become entries of one vector.
        if ranks in ({1}, {0, 1}) and not any(p.letters or p.even for p in parts):
            if len({p.row for p in parts if p.rank}) > 1 or any(
                isinstance(x, nt.Transposed) for x in x.parts
            ):
                raise Unread(f"({text(x)}): vectors are put side by side as they are")
            columns = [p.array if p.rank else p.array[None] for p in parts]
            is_row = any(p.row for p in parts)
            return Value(self.xp.concat(columns, axis=-1), (), 1, is_row)
        if len({p.rank for p in parts} | {0}) == 1 and all(
            isinstance(p, nt.Number | nt.Neg) for p in x.parts
        ):
            arrays = [p.array for p in parts]
            return Value(self.xp.stack(arrays), (), 1, self.glossary.rows)
        return Several(parts)

    def _call(self, x: nt.Call) -> Found:
        function = x.function
        if not isinstance(function, Name):
            raise Unread(f"the function {text(function)}")
        if function.base == "Var" and function.sub:
            return self._read_variance_under_law(function.sub[0], x)
        if function.base in self.glossary.spoken:
            return self._read_spoken_function(x, self.glossary.spoken[function.base])
        if function.base in self.glossary.families and not function.sub:
            return self._of_family(function.base, x.arguments)
        if function.base in MOMENTS and self.glossary.laws:
            return moment(self, function.base, x.arguments)
        defined = self.glossary.functions.get(function.base)
        builtin = FUNCTIONS.get(function.base)
        if defined is None and builtin is None:
            raise Unread(f"the function {text(function)}")
        arguments = written_out(self, x.arguments)
        if len(arguments) > 1 and function.base == "softmax":
            arguments = (nt.Fence("round", nt.Commas(arguments)),)
        values = tuple(map(self.read if defined else self.one, arguments))
        over: tuple[str, ...] = ()
        if (
            function.base == "softmax"
            and isinstance(values[0], Value)
            and values[0].rank == 0 == len(function.sub)
        ):
            # over the one index that is free
            over = values[0].letters if len(values[0].letters) == 1 else ()
            values = (Value(values[0].array, (), 1),) if over else values
        for argument, value in zip(arguments, values, strict=True):
            if isinstance(argument, nt.Transposed) and isinstance(value, Value) and value.rank == 1:
                raise Unread(f"{text(x)}: a function of a vector takes it as it is")
        try:
            result: Found = (
                defined(self, *values) if defined else builtin(*values) if builtin else values[0]
            )
        except Refused:
            raise
        except TypeError as reason:
            raise Unread(f"{text(x)}: {reason}") from reason
        if isinstance(result, Value) and over:
            return Value(result.array, over, 0)
        if not function.sub:
            return result
        if isinstance(result, Several):
            raise Unread("an index of several things")
        return self.part(result, function.sub)

    def _read_spoken_function(self, x: nt.Call, meaning: Spoken) -> Found:
        if len(meaning.letters) != len(x.arguments):
            raise Unread(f"{text(x)} has another number of arguments than its definition")
        return self.read(
            nt.replaced(meaning.body, dict(zip(meaning.letters, x.arguments, strict=True)))
        )

    def _at(self, x: nt.At) -> Value:
        """Return the value for a given number that the condition sets, or, by index, where it holds and 0 elsewhere."""
        if not isinstance(x.condition, nt.Relation):
            raise Unread(f"the condition {text(x.condition)}")
        letter = text(x.condition.first)
        side = x.condition.rest[0][1]
        if [sign for sign, _ in x.condition.rest] == ["="]:
            # A number: the formula is read with this value.
            if self.glossary.given.get(letter) == "":
                value = self.one(side).array
                return self.within({**self.arrays, letter: value}).one(x.body)
            size = self.glossary.sizes.get(letter)
            length = self.length(size) if size else None
            # A size: the value is not free, and has to agree.
            if isinstance(length, int) and (number := self.whole_number(side)) is not None:
                if length != number:
                    raise Unread(f"{text(x.condition)} is not so here")
                return self.one(x.body)
        result = self.one(x.body)
        sides = [x.condition.first, *(side for _, side in x.condition.rest)]
        # A chain i < j < n is the product of its truths.
        for (sign, right), left in zip(x.condition.rest, sides, strict=False):
            if sign not in COMPARED:
                raise Unread(f"the sign {sign} between indices")
            left_value = self.one(left)
            holds = v.both(left_value, self.one(right), COMPARED[sign])
            indicator = replace(
                holds, array=self.xp.where(holds.array, self.xp.asarray(1), self.xp.asarray(0))
            )
            result = v.both(result, indicator, mul)
        return result

    def _read_variance_under_law(self, law: Node, x: nt.Call) -> Value:
        """Return Var_{i∼p}(x_i) = Σ_i p_i (x_i − Σ_j p_j x_j)²."""
        if not isinstance(law, nt.Relation) or law.rest[0][0] != "∼":
            # i ∼ p says that i has the probabilities p.
            raise Unread(f"the law {text(law)}")
        letter = self.index(law.first)
        weights = self.part(self.one(law.rest[0][1]), (law.first,))
        (of,) = map(self.one, x.arguments)

        def product(a: Value, b: Value) -> Value:
            return v.both(a, b, mul)

        mean = self.over(product(weights, of), [letter])
        away = v.both(of, mean, sub)
        return self.over(product(weights, product(away, away)), [letter])

    def _big(self, x: nt.Big) -> Value:
        if x.operator == "prod":
            raise Unread("a product over an index")
        # Indices of this sum are unknown outside of it.
        remaining, zero = dict(self.sums), set(self.from_zero)
        try:
            return (
                self._read_sum_over_comparison(x, x.index)
                if isinstance(x.index, nt.Relation)
                else self._read_ranged_operator(x)
            )
        finally:
            self.sums, self.from_zero = remaining, zero

    def _read_sum_over_comparison(self, x: nt.Big, index: nt.Relation) -> Value:
        """Read Σ_{j<i} over j if i stands elsewhere, else Σ_{i<j} over both; Σ_{j ≤ i − n} over j; Σ, max and min over
        a set."""
        if len(index.rest) != 1:
            raise Unread(f"the range {text(index)}")
        (sign, second), i = index.rest[0], self.index(index.first)
        if sign in ("∈", "∉"):
            return self._over_set(x, i, sign, text(second))
        if x.operator != "sum":
            raise Unread(f"the range {text(index)}")
        # j ≤ i − n: a comparison as a truth value.
        if isinstance(second, nt.Sum) and not self._letters_of_grouped_index(second):
            return self.over(self._at(nt.At(x.body, index)), [i])
        place = self._place_of_fixed_index(second)
        if place is not None:
            column = self.compared(i, sign, "", place)
            weighed = v.both(self.one(x.body), column, mul)
            return self.over(weighed, [i])
        j, body = self.index(second), self.one(x.body)
        # j is another index if it stands elsewhere, and is summed over otherwise.
        alone = j in self.free or j in self.sums or j not in body.letters
        if not alone and (sign not in "<>" or j < i):
            raise Unread(f"whether the sum over {text(index)} is over {j}, too")
        weighed = v.both(body, self.compared(i, sign, j), mul)
        return self.over(weighed, [i] if alone else [i, j])

    def _over_set(self, x: nt.Big, i: str, sign: str, of: str) -> Value:
        """Return Σ, max or min over the indices in a set, the first block of the axis, or over all others."""
        if of not in self.glossary.sets:
            raise Unread(f"the set {of}")
        if self.over_sets.setdefault(self.sort(i), of) != of:  # which would be one within the other
            raise Unread(f"two sets of indices, {self.over_sets[self.sort(i)]} and {of}")
        body = self.one(x.body)
        length = self.length(self.glossary.sets[of])
        if i not in body.letters:
            raise Unread(f"the index {i} does not occur")
        block = slice(None, length) if sign == "∈" else slice(length, None)
        whole = [slice(None)] * body.letters.index(i)
        cut = body.array[(*whole, block)]
        return self.over(replace(body, array=cut), [i], x.operator)

    def _read_ranged_operator(self, x: nt.Big) -> Value:
        indices = x.index.parts if isinstance(x.index, nt.Commas) else (x.index,)
        letters = [text(p) for p in indices]
        if x.low is not None and x.high is not None:
            last = text(x.high)
            from_zero = (
                x.low == nt.node(0)
                and isinstance(x.high, nt.Sum)
                and x.high.terms[1:] == (nt.Neg(nt.node(1)),)
            )
            if from_zero and isinstance(
                x.high, nt.Sum
            ):  # Σ_{l=0}^{L−1}: no entry of an array is counted so
                last = text(x.high.terms[0])
                self.from_zero.add(letters[0])
            if letters[0] in self.glossary.sizes or self.glossary.knows(letters[0]):
                raise Unread(f"the index {letters[0]} has a meaning of its own")
            if last not in self.glossary.sizes or not (from_zero or x.low == nt.node(1)):
                raise Unread(f"the range {text(x.low)} to {last}")
            self.sums[letters[0]] = self.glossary.sizes[last]
        for letter in letters:
            self.sort(letter)
            self.sums.setdefault(letter, self.sort(letter))
        return self.over(self.one(x.body), letters, x.operator)

    def _heads_side_by_side(self, row: tuple[Node, ...]) -> Value | None:
        """Return (X₁ … X_n), all matrices of a letter side by side; None for another row."""
        match row:
            # (X₁ … X_h).
            case (Name(base, (nt.Number(one),)), Name("…"), Name(last, (Name() as size,))) if (
                base == last
            ):
                result = self.letter(base)
                if (
                    isinstance(result, Value)
                    and result.rank == 3
                    and one == 1
                    and text(size) in self.glossary.sizes
                ):
                    h, n, d = result.array.shape
                    if h != self.length(self.glossary.sizes[text(size)]):
                        raise Unread(f"there are not {text(size)} of {base}")
                    # (h, n, d) to (n, h d).
                    in_order = self.xp.permute_dims(result.array, (1, 0, 2))
                    return Value(
                        self.xp.reshape(in_order, (n, h * d)),
                        (),
                        2,
                    )
        return None

    def _matrix(self, x: nt.Matrix) -> Value:
        heads = self._heads_side_by_side(x.rows[0]) if len(x.rows) == 1 else None
        if heads:
            return heads
        rows = [list(map(self.one, row)) for row in x.rows]
        # Rows that are vectors or matrices are put one below the other.
        if all(len(row) == 1 and row[0].rank for row in rows):
            parts = [row[0].array if row[0].rank == 2 else row[0].array[None, :] for row in rows]
            return Value(self.xp.concat(parts, axis=-2), (), 2)
        every = [e for row in rows for e in row]
        if any(e.rank or e.even for e in every):
            raise Unread("a matrix of what are no numbers")
        letters = tuple(dict.fromkeys(i for e in every for i in e.letters))
        # A zero with all letters brings every entry to the same axes.
        zero = reduce(add, [0 * v.spread(e, letters, 0) for e in every]) if letters else None
        entries = [
            [e.array if zero is None else v.spread(e, letters, 0) + zero for e in row]
            for row in rows
        ]
        return Value(
            self.xp.stack([self.xp.stack(row, axis=-1) for row in entries], axis=-2), letters, 2
        )
