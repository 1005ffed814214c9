"""Statements that compare entries, decided cell by cell at small sizes.

In a cell all comparisons have the same result, so both sides are expressions without comparisons. Cells are enumerated:
each comparison is answered in every way that linear inequalities between monomials allow. In each cell the sides are
the same expression, or exact numbers from it are tried; a cell without known numbers leaves a doubt. For a bound,
numbers of the cell are tried at which it may fail, found by linear inequalities or a search along lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from itertools import islice, pairwise, product
from random import Random
from typing import Any

import numpy as np
import sympy
from sympy.polys.rings import sring

from symattn.arrays.namespace import Namespace
from symattn.arrays.notes import assigned
from symattn.arrays.special import Forbidden, Undefined
from symattn.arrays.symbolic import Symbolic
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.text import equal_sizes
from symattn.proof import drawing, refuting
from symattn.proof.feasible import Row, TooMany, point
from symattn.proof.statement import Declared, Numbers, Sides, pairs

CELLS, _ENTRIES = 200, 100  # the most cells at all sizes together; the most entries of all arrays
# the most cells of a bound between arrays, and operations of a bound in one cell
_OF_BOUNDS = 6
_OPERATIONS = 40
_TERMS, _TERMS_OF_BOUNDS = 40, 10  # the most terms to factor: more take minutes
_POINTS = 5  # numbers tried in a cell
_DRAWS = 300  # draws among which numbers of a nonlinear cell are searched for,
_FEW = 30  # for a bound,
_DEGREE = 200  # of a comparison in one letter or exponential; larger ones take minutes to factor
_LINES, _STEPS = 3, 48  # and lines through some of them, with bisections to a change of sign
# Powers of 2 of both signs, so that a change of sign shows near 0 as well as far from it.
_ALONG = (*(-(2.0**k) for k in range(14, -7, -1)), 0.0, *(2.0**k for k in range(-6, 15)))
_in_floats = cache(partial(sympy.lambdify, modules="math"))  # of letters, an expression
# One sign is enough: "< 0" is stored as "> 0" of the negated expression.
Constraint = tuple[str, Any]  # (relation, expression): the expression is "=", "≥" or ">" 0


@dataclass
class Path:
    """One path through the comparisons: it takes the possible answers numbered in ``script``, then always the first.

    A side is undefined where one of ``demands`` holds.
    """

    script: tuple[int, ...] = ()
    terms: int = 0  # the most terms of a comparison
    counts: list[int] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    demands: list[Constraint] = field(default_factory=list)

    def may_be(self, relation: str, x: object) -> bool:
        """Return whether ``relation`` may hold for ``x`` here; True if that is not known for several factors."""
        unit, factors = _factor_compared_side(x, self.terms)
        odd = [f for f, power in factors if power % 2]
        # Even powers change no sign, so only odd ones decide an order.
        if relation == "=" or (not odd and unit < 0):
            # If all factors are even and the unit is negative, x ≥ 0 only where a factor is 0.
            zeros = ([*self.constraints, ("=", f)] for f, _ in factors)
            return relation != ">" and (
                not unit or any(_find_monomial_values(zero) is not None for zero in zeros)
            )
        if len(odd) == 1 and (relation == ">" or len(factors) == 1):
            return _find_monomial_values([*self.constraints, (relation, unit * odd[0])]) is not None
        # With several odd factors nothing is decided, and True is the safe answer.
        return bool(odd) or unit > 0 or (unit == 0 and relation == "≥")

    def answer(self, *options: Constraint) -> int:
        """Take one of the possible options, and return its number."""
        possible = [
            i
            for i, option in enumerate(options)
            if _find_monomial_values([*self.constraints, option]) is not None
        ]
        # The only possible answer follows from the constraints, so nothing branches here.
        if len(possible) == 1:
            return possible[0]
        n = len(self.counts)
        self.counts.append(len(possible))
        # Beyond the script the first answer is taken; ``counts`` tells how many others there are.
        chosen = possible[self.script[n] if n < len(self.script) else 0]
        self.constraints.append(options[chosen])
        return chosen

    def positive(self, x: object) -> bool:
        """Return whether ``x`` > 0."""
        unit, factors = _factor_compared_side(x, self.terms)
        # One odd factor needs two options only, which keeps the number of cells small.
        if len(factors) == 1 and factors[0][1] % 2:
            leading = factors[0][0]
            return self.answer(("≥", -unit * leading), (">", unit * leading)) == 1
        return self.sign(x) > 0

    def sign(self, x: object) -> int:
        """Return the sign of ``x``, decided factor by factor."""
        sign, factors = _factor_compared_side(x, self.terms)
        for f, power in factors:
            sign *= (self.answer((">", -f), ("=", f), (">", f)) - 1) ** power
        return int(sign)


_path: ContextVar[Path] = ContextVar("symattn_path")


class Branching(Symbolic):
    """The kind of SymPy's expressions whose comparisons are answered by the current path."""

    name = "branching"

    @classmethod
    def less(cls, x: Any, y: Any) -> bool:
        return _path.get().positive(y - x)

    @classmethod
    def same(cls, x: Any, y: Any) -> bool:
        return _path.get().sign(x - y) == 0

    @classmethod
    def larger(cls, x: object, y: object) -> Any:
        return y if cls.less(x, y) else x

    @classmethod
    def divide(cls, x: Any, y: Any) -> Any:
        if sympy.expand(y) == 0:
            raise ZeroDivisionError
        _path.get().demands.append(("=", y))
        return x / y

    @classmethod
    def function(cls, name: str, x: Any) -> Any:
        if name in ("log", "sqrt"):
            # The logarithm is undefined at 0 too, the root only below 0.
            _path.get().demands.append(("≥" if name == "log" else ">", -x))
        # In factored form the root of a square is an absolute value, on which a path can branch.
        value = super().function(name, sympy.factor(x) if name == "sqrt" else x)
        # Without Abs the sides are polynomials in each cell, which expanding decides.
        for absolute in value.atoms(sympy.Abs):
            (inside,) = absolute.args
            unsigned = inside if _path.get().positive(inside) else -inside
            value = value.subs(absolute, unsigned)
        return value


Branching.xp = Namespace(Branching)


@dataclass(frozen=True)
class Cells:
    """The result for all cells: exact numbers from every cell that needs them, the reason for a doubt, whether both
    sides are defined everywhere, and whether anything is compared.

    ``decided``: in every cell at ``sizes`` at which the sides are defined, their difference reduces to 0.
    """

    worlds: tuple[Numbers, ...] = ()
    doubt: str = ""
    defined: bool = True
    compares: bool = False
    decided: bool = False
    sizes: tuple[Mapping[str, int], ...] = ()

    def where_decided(self) -> str:
        """Return in words where the difference of the sides reduces to 0 in every case; "" unless ``decided``."""
        if not self.decided:
            return ""
        largest = {sort: max(sizes[sort] for sizes in self.sizes) for sort in self.sizes[0]}
        each = "each case of its comparisons" if self.compares else "the difference"
        return f"{each} reduces to 0" + (
            f" at sizes up to {equal_sizes(largest)}" if largest else ""
        )


class _Letters(Numbers):
    """The world of given sizes with letters as entries."""

    def array(self, name: str, shape: str, declared: Declared) -> Any:
        lengths = [self.axis(a) for a in shape.split()]
        signs = {
            "positive": name in declared.positive or None,
            "nonnegative": name in declared.nonnegative or None,
        }
        seats = drawing.on_circles(declared.units, declared.arrays)
        label, cosine, several = seats.get(name, (name, True, False))
        entries = np.empty(lengths, dtype=object)
        # One generator for all entries, which have signs of their own.
        signs_of_entries = self._random_generator_of_array(name)
        for place in np.ndindex(*lengths):
            t = sympy.Symbol("_".join([label, *map(str, place)]), real=True, **signs)
            # Points on a circle are rational in t, so the letters need no side condition.
            turned = (1 - t**2 if cosine else 2 * t) / (1 + t**2)
            # Names that share a side of a circle are related by squares, so the sign is drawn.
            sign = signs_of_entries.choice((1, -1)) if several else 1
            entries[place] = sign * turned if name in seats else t
        return Branching(entries)


class _Chosen(Numbers):
    """A world with letters replaced by numbers."""

    def __init__(self, letters: _Letters, values: Mapping[Any, Fraction]) -> None:
        super().__init__(letters.sizes, letters.seed)
        self._letters, self._values = letters, values

    def array(self, name: str, shape: str, declared: Declared) -> Any:
        entries = self._letters.array(name, shape, declared).entries
        drawn_values = self._values.items()
        values = {x: sympy.Rational(v.numerator, v.denominator) for x, v in drawn_values}
        numbers = np.empty(entries.shape, dtype=object)
        for place in np.ndindex(*entries.shape):
            x = entries[place].subs(
                # A letter in no constraint may have any value.
                {t: values.get(t, sympy.Rational(7, 5)) for t in entries[place].free_symbols}
            )
            numbers[place] = Fraction(int(x.p), int(x.q))
        return self.lift(numbers)


def cells(
    sides: Sides, declared: Declared, brought: refuting.NamedNumbers, equal: bool = True
) -> Cells:
    """Enumerate the cells at small sizes, and at those at which the code branches: for equations (``equal``) until a
    doubt arises, for bounds to collect numbers at which the first side may not be below the second; only an equation
    between entries without known numbers leaves these in doubt."""
    worlds: list[Numbers] = []
    begun: list[Path] = []
    # Of permutations two are taken, and of points on circles all but one: that is not every case.
    doubt, defined, decided = "", True, equal and not declared.permutations and not declared.units
    examined: list[Mapping[str, int]] = []
    terms = _TERMS if equal else _TERMS_OF_BOUNDS
    try:
        paths = (
            path
            for sizes in _yield_small_sizes(declared, brought)
            for path in _yield_comparison_paths(sides, declared, sizes, begun, terms)
        )
        for path, letters, differences in paths:
            look = _choose_cell_numbers if equal else _find_bound_violations
            # The loop ends at the first doubt, so later cells cannot overwrite it.
            more, doubt = look(path, letters, differences, brought.numbers)
            worlds += more
            # Where a side is undefined, the case speaks neither for nor against equality.
            decided = decided and all(
                _is_zero_in_cell(x, path.constraints) for x in differences or ()
            )
            examined += [letters.sizes] if differences is not None else []
            defined = (
                defined
                and differences is not None
                and not any(path.may_be(*d) for d in path.demands)
            )
            # The limit counts begun cells: after the last one allowed, there may be more.
            most = CELLS if equal or not declared.sorts() else _OF_BOUNDS
            if doubt or len(begun) == most:
                doubt = doubt or (
                    f"there are more than {len(begun)} cases of its comparisons" if equal else ""
                )
                break
    except (Refused, Undecided, InputError, TooMany, sympy.PolynomialError) as reason:
        # A bound needs no doubt here: cells of a bound only bring numbers to try.
        doubt, defined = (
            f"the cases of its comparisons were not examined: {reason}" if equal else "",
            False,
        )
    compares, decided = (
        any(path.constraints for path in begun),
        decided and bool(examined) and not doubt,
    )
    return Cells(tuple(worlds), doubt, defined, compares, decided, tuple(examined))


def _yield_small_sizes(
    declared: Declared, brought: refuting.NamedNumbers
) -> Iterator[Mapping[str, int]]:
    """Yield sizes 1 and 2, and 3 for a single letter; for three letters or more all equal; then ``branches``."""
    sorts = declared.sorts()
    alike = ((n,) * len(sorts) for n in (1, 2))
    # With three letters of sizes or more, all combinations would be too many.
    lengths = (1, 2, 3)[: 4 - len(sorts)]
    every = product(lengths, repeat=len(sorts)) if len(sorts) < 3 else alike
    yield from (dict(zip(sorts, sizes, strict=True)) for sizes in every)
    for sizes in brought.branches:
        # Skipping a branch in silence would leave its cases unexamined.
        if sum(Numbers(sizes).entry_counts(declared)) > _ENTRIES:
            numbered_sizes = sizes.items()
            counted = ", ".join(f"{s} = {n}" for s, n in numbered_sizes)
            raise Undecided(f"{counted}, at which the code branches, is too large")
        yield sizes


def _yield_comparison_paths(
    sides: Sides, declared: Declared, sizes: Mapping[str, int], begun: list[Path], terms: int
) -> Iterator[tuple[Path, _Letters, list[Any] | None]]:
    """Yield each path through the comparisons, with the differences of the sides, or None if one is undefined."""
    # Permutations and points of several circles are drawn, so a second seed shows other ones.
    for seed in range(2 if declared.permutations or len(declared.units) > 1 else 1):
        letters = _Letters(sizes, seed)
        script: tuple[int, ...] | None = ()
        while script is not None:
            begun.append(path := Path(script, terms))
            with assigned(_path, path):
                try:
                    differences = _subtract_entries(pairs(sides, declared, letters))
                except IndexError:
                    # These sizes lack an entry; draws tell whether they are excluded.
                    if script:
                        raise Undecided("an entry is missing in one of the cases") from None
                    return
            yield path, letters, differences
            # the next path changes the last answer that has another one, and drops those after it
            new_answers = len(path.counts) - len(script)
            answers = [*script, *[0] * new_answers]
            while answers and answers[-1] + 1 == path.counts[len(answers) - 1]:
                answers.pop()
            script = (*answers[:-1], answers[-1] + 1) if answers else None


def _subtract_entries(stated: Sequence[tuple[object, object]]) -> list[Any] | None:
    result: list[Any] = []
    for left, right in stated:
        entries = np.broadcast(Branching.of(left).entries, Branching.of(right).entries)
        for a, b in entries:
            # An undefined entry makes the whole case undefined: no difference can be formed.
            if isinstance(a, (Undefined, Forbidden)) or isinstance(b, (Undefined, Forbidden)):
                return None
            result.append(a - b)
    return result


def _choose_cell_numbers(
    path: Path,
    letters: _Letters,
    differences: Sequence[object] | None,
    literals: Sequence[Fraction],
) -> tuple[list[Numbers], str]:
    """Return numbers to try in a cell, and the reason for a doubt, if any."""
    # Differences that reduce to 0 need no numbers.
    undecided = [d for d in differences or () if not _is_zero_when_expanded(d)]
    # Without comparisons there is one cell, which ordinary draws test as well.
    if not undecided or (
        not path.constraints and not any(map(_is_decided_by_expanding, undecided))
    ):
        return [], ""
    constrained = (c for _, c in path.constraints)
    symbols = {t for x in (*undecided, *constrained) for t in x.free_symbols}
    result = _find_numbers_in_cell(path.constraints, sorted(symbols, key=str), literals)
    where = _format_constraints(path.constraints) or "nothing is compared"
    # As far as monomials tell, the cell has an interior if all its constraints can be strict.
    inner = _find_monomial_values(
        [(">", x) if relation == "≥" else (relation, x) for relation, x in path.constraints]
    )
    full = inner is not None and all(relation != "=" for relation, _ in path.constraints)
    doubt = "" if result else f"no numbers were tried where {where}"
    # In an interior, unequal expressions of the decided class differ somewhere: a doubt.
    if full and any(map(_is_decided_by_expanding, undecided)):
        doubt = doubt or f"the sides are not the same expression where {where}"
    return [_Chosen(letters, values) for values in result], doubt


@cache
def _is_zero_when_expanded(x: object) -> bool:
    if x == 0:
        return True
    numerator = sympy.fraction(sympy.together(x))[0]
    return bool(sympy.expand(numerator) == 0)


def _is_zero_in_cell(difference: Any, constraints: Sequence[Constraint]) -> bool:
    """Return whether a difference is 0 in a cell: it reduces to 0 when each equation that is linear in a letter is
    solved, or no numbers of the cell make its numerator positive or negative."""
    numerator = sympy.expand(sympy.fraction(sympy.together(difference))[0])
    # A number that is not 0 needs no search for a point of the cell.
    if _is_zero_when_expanded(difference) or numerator.is_number:
        return _is_zero_when_expanded(difference)
    with suppress(Refused, TooMany, sympy.PolynomialError):
        # Monomials count as independent, so "no values" is a proof that neither sign occurs.
        if all(
            _find_monomial_values([*constraints, (">", side)]) is None
            for side in (numerator, -numerator)
        ):
            return True
    # Each equation of the cell that is linear in a letter lets this letter be eliminated.
    equations = [x for relation, x in constraints if relation == "="]
    while equations and not _is_zero_when_expanded(difference):
        equation = equations.pop()
        for letter in sorted(equation.free_symbols, key=str):
            slope = sympy.expand(equation).coeff(letter)
            # A slope that is a nonzero number lets the equation be solved for the letter.
            if (
                slope.is_number
                and slope != 0
                and not sympy.expand(equation - slope * letter).has(letter)
            ):
                solution = letter - equation / slope
                difference = difference.subs(letter, solution)
                # The other equations must follow, or they would bring the eliminated letter back.
                equations = [x.subs(letter, solution) for x in equations]
                break
    return _is_zero_when_expanded(difference)


def _find_bound_violations(
    path: Path,
    letters: _Letters,
    differences: Sequence[object] | None,
    literals: Sequence[Fraction],
) -> tuple[list[Numbers], str]:
    """Return numbers in a cell at which a difference may be 0 or more, and a doubt if an equation has no known ones."""
    result: list[Numbers] = []
    checked = map(sympy.expand, differences or ()) if path.constraints else ()
    for x in dict.fromkeys(checked):
        # First strictly above 0; equality also breaks a strict bound.
        within: list[list[Constraint]] = [
            [*path.constraints, (relation, x)] for relation in (">", "≥")
        ]
        # A constant difference adds no constraint: any point of the cell will do.
        if x.is_number:
            within = [path.constraints] if x >= 0 else []
        # Longer expressions are slow to factor, and ordinary draws try the bound as well.
        elif sympy.count_ops(x) > _OPERATIONS:
            continue
        for constraints in within:
            symbols = _sort_constraint_symbols(constraints)
            with suppress(Refused, sympy.PolynomialError):
                result += [
                    _Chosen(letters, one)
                    for one in _find_numbers_in_cell(constraints, symbols, literals, _FEW)[:1]
                ]
    # A cell on an equation is thin: random draws never meet it, so a miss is a doubt.
    equations = [x for relation, x in path.constraints if relation == "="]
    missed = (
        equations
        and not result
        and not _find_numbers_in_cell(
            path.constraints, _sort_constraint_symbols(path.constraints), literals, _FEW
        )
    )
    return (
        result,
        f"no numbers were tried where {_format_constraints(path.constraints)}" if missed else "",
    )


def _sort_constraint_symbols(constraints: Sequence[Constraint]) -> list[Any]:
    return sorted({t for _, x in constraints for t in x.free_symbols}, key=str)


def _format_constraints(constraints: Sequence[Constraint]) -> str:
    return ", ".join(f"{x} {relation} 0" for relation, x in constraints)


def _find_numbers_in_cell(
    constraints: Sequence[Constraint],
    symbols: Sequence[Any],
    literals: Sequence[Fraction],
    draws: int = _DRAWS,
) -> list[dict[Any, Fraction]]:
    """Return numbers at which the constraints hold: solutions of linear ones, otherwise found among draws."""

    def drawn(count: int) -> Iterator[dict[Any, Fraction]]:
        signs = [
            "positive" if t.is_positive else "nonnegative" if t.is_nonnegative else "real"
            for t in symbols
        ]
        # Fixed seeds: the same statement yields the same numbers in each run.
        for random in map(Random, range(count if symbols else 0)):
            draw = (drawing.plain, drawing.wild)[random.randint(0, 1)]
            more = () if draw is drawing.plain else (literals,)
            yield {
                t: draw(random, 1, sign, *more)[0] for t, sign in zip(symbols, signs, strict=True)
            }

    # Linear constraints are solved exactly; other ones need draws that are then filtered.
    if all(v.is_Symbol for _, x in constraints for v in _linearize_in_monomials(x)[0]):
        solved = [_find_monomial_values(constraints, Random(seed)) or {} for seed in range(_POINTS)]
        return [
            {**one, **outcome} for one, outcome in zip(drawn(_POINTS), solved, strict=False)
        ] or solved
    functions = [(relation, _in_floats(tuple(symbols), x)) for relation, x in constraints]

    holds = partial(_are_constraints_met, functions, [x for _, x in constraints])
    # Draws rarely fulfil an equation, so one letter of each is replaced by a root first.
    result = list(
        islice(filter(holds, (_at_roots(constraints, one) for one in drawn(draws))), _POINTS)
    )
    # Lines are the fallback: they cost hundreds of evaluations for each draw.
    parts = [f for _, f in functions]
    lines = _on_lines(parts, [*drawn(_LINES)]) if not result else ()
    return result or list(islice(filter(holds, lines), 1))


def _at_roots(constraints: Sequence[Constraint], one: dict[Any, Fraction]) -> dict[Any, Fraction]:
    """Return these numbers with one letter of each equation replaced by a rational root, if it has any."""
    # Letters of earlier equations stay, else solving a later one would break the earlier one.
    fixed: set[object] = set()
    fractions = one.items()
    values = {t: sympy.Rational(v.numerator, v.denominator) for t, v in fractions}
    # Equations with fewer letters have fewer choices, so they come first.
    for x in sorted(
        (x for relation, x in constraints if relation == "="), key=lambda x: len(x.free_symbols)
    ):
        for t in sorted(x.free_symbols - fixed, key=str):
            others = {other: value for other, value in values.items() if other != t}
            left = x.subs(others)
            # Only rational roots can be written as exact numbers.
            roots = (
                sorted(sympy.Poly(left, t).ground_roots())
                if left.is_polynomial(t) and left.has(t)
                else ()
            )
            if roots:
                values[t] = roots[-1]
                break
        fixed |= x.free_symbols
    return {t: Fraction(int(v.p), int(v.q)) for t, v in values.items()}


def _on_lines(
    functions: Sequence[Callable[..., float]], drawn: Sequence[dict[Any, Fraction]]
) -> Iterator[dict[Any, Fraction]]:
    """Yield points on lines through drawn ones where a function changes its sign, and midpoints between these."""
    for seed, one in enumerate(drawn):
        random = Random(seed)
        start = [*map(float, one.values())]
        # No component of the direction is 0, so every letter changes along the line.
        ways = [random.choice((-3, -2, -1, 1, 2, 3)) for _ in start]

        def at(x: float, start: list[float] = start, ways: list[int] = ways) -> list[float]:
            return [value + x * way for value, way in zip(start, ways, strict=True)]

        sign_changes: set[float] = set()
        for f in functions:
            along = lambda x, f=f, at=at: f(*at(x))  # noqa: E731
            sign_changes.update(_yield_sign_changes(along))
        edges = sorted(sign_changes)
        # A cell may lie between two edges, so midpoints are tried as well as the edges.
        places = sorted({*_ALONG, *edges})
        for x in (*edges, *((a + b) / 2 for a, b in pairwise(places))):
            values = {
                # Short fractions keep exact arithmetic on the point fast.
                t: Fraction(value).limit_denominator(10**9)
                for t, value in zip(one, at(x), strict=True)
            }
            # A line may leave the declared signs of the letters.
            if all(
                v > 0 if t.is_positive else v >= 0 or not t.is_nonnegative
                for t, v in values.items()
            ):
                yield values


def _yield_sign_changes(f: Callable[[float], float]) -> Iterator[float]:
    """Yield the places along a line where the sign changes."""
    for a, b in pairwise(_ALONG):
        with suppress(ArithmeticError, ValueError):
            below = f(a) < 0
            # Equal signs at both ends may hide two changes, which only costs points to try.
            if below == (f(b) < 0):
                continue
            for _ in range(_STEPS):
                middle = (a + b) / 2
                # The left end keeps its sign, so the change stays inside the interval.
                in_left = (f(middle) < 0) == below
                a, b = (middle, b) if in_left else (a, middle)
            yield b


def _are_constraints_met(
    functions: Sequence[tuple[str, Any]], every: Sequence[Any], one: Mapping[Any, Fraction]
) -> bool:
    """Return whether the constraints hold at these numbers; zeros exactly, as floats are 0 near a root, too."""
    try:
        values = [(relation, f(*map(float, one.values()))) for relation, f in functions]
    except (ArithmeticError, ValueError):
        return False
    if not all(
        # Values between 0 and 1e-9 may be rounding errors of 0, so neither sign is believed.
        x == 0 if relation == "=" else x > 1e-9 or (x == 0 and relation == "≥")
        for relation, x in values
    ):
        return False
    exactly = {t: sympy.Rational(v.numerator, v.denominator) for t, v in one.items()}
    return all(
        sympy.expand(x.subs(exactly)) == 0
        for x, (_, value) in zip(every, values, strict=True)
        if value == 0
    )


def _is_decided_by_expanding(x: Any) -> bool:
    """Return whether ``x`` is rational in letters and exponentials of polynomials: expanding then decides x = 0."""
    exponentials = x.atoms(sympy.exp)
    plain = x.subs({e: sympy.Dummy() for e in exponentials})
    return bool(
        plain.is_rational_function() and all(e.args[0].is_polynomial() for e in exponentials)
    )


@cache
def _factor_compared_side(x: object, most: int) -> tuple[int, tuple[tuple[Any, int], ...]]:
    """Return a sign, and the factors of ``x`` with their powers. Raises Refused for many terms or a high degree."""
    unit, result = 1, []
    if len(sympy.Add.make_args(x := sympy.expand(x))) > most:
        raise Refused(f"a comparison of more than {most} terms")
    # The sign of a quotient is the product of the signs of its parts, so both are factored.
    for part in sympy.fraction(sympy.together(x)):
        if max(sring(part)[1].degrees(), default=0) > _DEGREE:
            raise Refused(f"a comparison of a degree above {_DEGREE}")
        number, factors = sympy.factor_list(part)
        unit *= int(sympy.sign(number))
        for f, power in factors:
            # Factors with a known sign need no comparison.
            if f.is_negative:
                unit *= (-1) ** power
            elif not f.is_positive:
                result.append((f, int(power)))
    return unit, tuple(result) if unit else ()


@cache
def _linearize_in_monomials(x: object) -> tuple[dict[Any, Fraction], Fraction]:
    """Return the coefficients of the monomials, and the constant."""
    polynomial = sympy.Poly(x)
    result: dict[Any, Fraction] = {}
    for powers, c in polynomial.terms():
        if not c.is_Rational:
            raise Refused(f"the coefficient {c}")
        # Products of letters count as unknowns of their own: the system is then linear.
        powered = [g**e for g, e in zip(polynomial.gens, powers, strict=True)]
        monomial = sympy.prod(powered)
        before = result.get(monomial, Fraction(0))
        coefficient = Fraction(int(c.p), int(c.q))
        result[monomial] = before + coefficient
    constant = result.pop(sympy.Integer(1), Fraction(0))
    return result, constant


def _find_monomial_values(
    constraints: Sequence[Constraint], random: Random | None = None
) -> dict[Any, Fraction] | None:
    """Return values of the monomials at which the constraints hold; None if no numbers meet the constraints."""
    # The relaxation to independent monomials can only add solutions, so None is a proof.
    rows: list[Row] = [(relation, *_linearize_in_monomials(x)) for relation, x in constraints]
    for monomial in {v: None for _, coefficients, _ in rows for v in coefficients}:
        # A square or a declared letter is not negative; this bound excludes many impossible cells.
        if monomial.is_nonnegative:
            rows.append(
                (">" if monomial.is_positive else "≥", {monomial: Fraction(1)}, Fraction(0))
            )
    return point(rows, random or Random(0))
