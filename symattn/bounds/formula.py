"""The a-priori bound as written on paper: the formula that is evaluated, its letters, and why it holds.

``priori`` computes the bound by evaluating these equations as they are printed, so that there is no second version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log, prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from symattn.arrays.precision import Precision
from symattn.bounds import rule
from symattn.bounds.growth import growth_of, power_up
from symattn.document import notation as nt
from symattn.document.formulas import formula as read
from symattn.document.notation import Fence, Name, Node, Power, Relation, Row, call, equals, name
from symattn.document.text import text

if TYPE_CHECKING:
    from symattn.bounds.priori import InputLimits

# The bound as a whole, from the letters below.
_BOUND = "|y − o| ≤ (1 + ρ) (M + g_O (V + M) + η_O)"
#: The definition of each letter of the bound, in terms of earlier ones; those printed in one line share one here.
_MADE_OF = {
    "W": "min(V e^a (e^a − 1), 2 V)",
    "X": "V e^{2 a}", "S": "V e^{2 a} (e^s − 1)",
    "G": "e^{2 a + 2 λ_P} (e^b − 1)",
    "Y": "X + V",
    "P": "(e^{λ_P} − 1) max((Y + W) e^{λ_P}, X + S)",
    "E": "(e^{λ_+} − 1) (X + S)",
    "F": "(1 + G) e^{s + λ_+ + 2 λ_P}", "D": "(1 − 2^{−30})/e^b − (η_e + η_P) n",
    "U": "((η_e + η_P) n V (1 + F) + η_e n)/D",
    "M": "W + P + G (V + W + P) + (1 + G) e^{2 λ_P} (S + E) + U",
}  # fmt: skip
# The second form of E of step 4, where few sums are rounded.
_FEW_EVENTS = "min((e^{λ_+} − 1) (X + S), {h/(1 − h)} {(X + 2 S + V + W + P)/2})"


class Equations(NamedTuple):
    """The equations of the bound, each letter after those in its definition, and finally the bound."""

    definitions: tuple[Relation, ...]
    bound: Relation
    exponents: tuple[Relation, ...] = ()

    def values(self, letters: Mapping[str, float]) -> dict[str, float]:
        """Return every letter, those given and those defined; the bound is ``bound``."""
        return defined(
            (*self.definitions, Relation(Name("bound"), (("=", self.bound.rest[0][1]),))), letters
        )

    @property
    def printed(self) -> tuple[Node, ...]:
        """The bound first, then the definitions of its letters; short ones side by side."""
        by_letter = {text(equation.first): equation for equation in self.definitions}
        rows = [
            Row(tuple(by_letter[letter] for letter in group))
            if len(group) > 1
            else by_letter[group]
            for group in ("M", "W", "XS", "G", "Y", "P", "E", "U", "FD")
            if group[0] in by_letter
        ]
        return (self.bound, *rows, *reversed(self.exponents))


def letter(typed: str) -> str:
    """Return the name under which the value of a letter is known."""
    return text(read(typed, {}))


def defined(definitions: Iterable[Relation], letters: Mapping[str, float]) -> dict[str, float]:
    """Return every letter, those given and those defined, each by those before it."""
    result = dict(letters)
    for equation in definitions:
        result[text(equation.first)] = value(equation.rest[0][1], result)
    return result


def exponent_equations(precision: Precision, counts: rule.Counts) -> tuple[Relation, ...]:
    """Return the equations for a, s and b, from running the rule on letters, with a letter for each error in them."""
    outcome: dict[str, Node] = {}

    def named(letter: str, x: Node) -> Node:
        outcome[letter] = x
        return Name(letter)

    def grown(n: int, _: object) -> Node:
        return Fence("round", Power(Name("e"), n * name("λ", "s")) - 1)

    t, top, fall, times, tau = map(Name, ("T", "m", "Δ", "B", "τ"))
    factors = 0 if precision.factors is None else name("λ", "F")
    # One τ stands for τ'_j and τ*: the largest of all keys.
    rule_givens = rule.RuleGivens(
        tau, t, fall, times, top, tau, call("ln", "n"), Name("ε"), factors
    )
    larger: Any = lambda x, y: call("max", x, y)  # noqa: E731
    numbers = rule.NumberKind(grown, lambda _: name("λ", "a"), larger, named=named)
    below, merges = int(counts.below.max()), counts.merges
    counted: Any = SimpleNamespace(
        below=below, alone=counts.alone, merges=merges, room=lambda each: 1 - merges * each
    )
    result = rule.exponents(rule_givens, precision, counted, numbers)
    read = {"b": result.below, "s": result.alone, "a": result.a}
    # Backward, so that a letter appears only if a later definition uses it.
    for letter, x in reversed(outcome.items()):
        if any(nt.replaced(y, {Name(letter): Name("")}) != y for y in read.values()):
            read[letter] = x
    for letter, x in read.items():
        # Terms of 0 come from counts that are 0, and would clutter the formula.
        read[letter] = (
            nt.Sum(tuple(term for term in x.terms if term != nt.node(0)))
            if isinstance(x, nt.Sum)
            else x
        )
    backwards = reversed(read.items())
    return tuple(equals(letter, x) for letter, x in backwards)


def equations(wide: bool, events: bool, exponents: tuple[Relation, ...] = ()) -> Equations:
    """Return the equations of an arithmetic, with those of ``exponents``.

    ``wide``: weights are stored as precisely as sums, so that distances of values are not computed; ``events``: few
    partial sums are rounded, so that their sizes give a better bound than their number.
    """
    # Only the letters that this arithmetic needs are printed.
    made_of = _MADE_OF | ({} if wide else {"Y": "X"}) | ({"E": _FEW_EVENTS} if events else {})
    bound: Any = read(_BOUND, {})
    definitions = tuple(equals(letter, read(typed, {})) for letter, typed in made_of.items())
    return Equations(
        definitions,
        bound,
        exponents,
    )


def value(x: Node, letters: Mapping[str, float]) -> float:
    """Evaluate a side of an equation in float64, exponentials rounded up. Raises ValueError for unknown nodes."""
    match x:
        case nt.Number():
            return float(x.value)
        case Name() | nt.Call() if text(x) in letters:
            return letters[text(x)]
        # e^x − 1 as one function: the difference would cancel for small x.
        case nt.Sum((Power(Name("e"), exponent), nt.Neg(nt.Number(one)))) if one == 1:
            return growth_of(value(exponent, letters))
        case nt.Sum():
            return sum(value(term, letters) for term in x.terms)
        case nt.Neg():
            return -value(x.body, letters)
        case nt.Product(factors, ""):
            return prod(value(factor, letters) for factor in factors)
        case nt.Over():
            return value(x.numerator, letters) / value(x.denominator, letters)
        case Power(Name("e"), exponent):
            return power_up(value(exponent, letters))
        case Power(nt.Number(base), exponent):
            return float(base ** int(value(exponent, letters)))
        case nt.Fence("round", body, None):
            return value(body, letters)
        case nt.Call(Name("min" | "max" as word), parts):
            return (min if word == "min" else max)(value(part, letters) for part in parts)
    raise ValueError(f"{text(x)} has no value here")


def formula() -> tuple[Node, ...]:
    """Return the equations that are the same in every arithmetic."""
    every = equations(True, False)
    common = tuple(e for e in every.definitions if text(e.first) not in ("Y", "E"))
    return Equations(common, every.bound).printed


def quantities(
    sizes: InputLimits, p: Precision, values: Mapping[str, float]
) -> tuple[tuple[Node, str, float], ...]:
    """Return for each letter its notation, its description and its value."""
    described: dict[str, tuple[str, float]] = {
        "n": ("keys", float(sizes.n)),
        "d_k": ("width of queries and keys", float(sizes.d_k)),
        "T": ("largest sum of absolute values of a score, scaled", sizes.score_max),
        "V": ("largest absolute value", sizes.v_max),
        "ln(n)": ("largest logarithm of a sum of exponentials", log(sizes.n)),
        "u_s": (f"unit roundoff of scores and exponentials ({p.score.name})", float(p.score.u)),
        "u_a": (f"unit roundoff of sums ({p.accumulate.name})", float(p.accumulate.u)),
        "u_P": (f"unit roundoff of stored weights ({p.stored.name})", float(p.stored.u)),
        "u_O": (f"unit roundoff of the output ({p.returned.name})", float(p.returned.u)),
    }
    words = {
        # Letters are the names of the equations; the words stand beside them in the report.
        "τ": "error of a stored score",
        "m": "largest absolute value of the largest score",
        "Δ": "largest distance of a score from the largest",
        "B": "rescalings of a term",
        "ε": f"error of the exponential, {p.exp_ulps:g} ulps, as an exponent",
        "λ_s": "rounding of a score or an exponential, as an exponent",
        "λ_a": "rounding of a sum, as an exponent",
        "λ_F": "rounding of a value to the format of factors, as an exponent",
        "r": "error of an exponential, apart from that of its score",
        "β": "error of a sum of exponentials",
        "r′": "error of an exponential of a score less a log-sum-exp",
        "μ": "error of merging parts by their log-sum-exps",
        "a": "error of an exponent that numerator and denominator share",
        "s": "error of a numerator term alone, except its sum",
        "b": "error of a denominator term alone",
        "W": "shift of the mean of the values",
        "P": "storing weights",
        "G": "relative error of the denominator",
        "X": "sum of weights times absolute values",
        "Y": "sum of weights times distances from the mean, at most",
        "S": "roundings of single terms",
        "E": "roundings of sums",
        "U": "what underflows",
        "F": "growth of a term",
        "D": "smallest sum that terms are divided by",
        "λ_P": "rounding of a stored weight, as an exponent",
        "λ_+": "roundings of the additions of a term, as an exponent",
        "h": "relative loss of a sum by its additions",
        "η_e": "loss of an exponential by underflow",
        "η_P": "loss of a stored weight by underflow",
        "g_O": "rounding of the output",
        "η_O": "loss of the output by underflow",
        "ρ": "allowance for rounding in this evaluation",
    }
    described |= {
        typed: (phrase, values[letter(typed)])
        for typed, phrase in words.items()
        # An arithmetic without an effect has no such letter.
        if letter(typed) in values
    }
    return tuple((read(typed, {}), phrase, x) for typed, (phrase, x) in described.items())


def derivation(precision: Precision) -> tuple[str, ...]:
    """Return why the formula holds, one paragraph a step; the whole proof is in ``symattn.bounds.worst_case``."""
    p = precision
    shared = " or to a log-sum-exp" if p.lse else ""
    additions = "in any order" if p.height is None else f"at most {p.height} for a term"
    return (
        "Each operation multiplies its result by a factor near one, and the exponents of such factors add up.",
        f"Exponentials are taken of differences from a largest score{shared}. An error common to numerator and "
        "denominator is an error of the exponent: the weights are those of scores that differ by it.",
        "The output is a mean of the values with these weights. A mean deviation from the mean is at most half the "
        "range, so the mean moves by at most a fraction of the largest value.",
        "The errors that they do not share: a term of the numerator is rounded in its product, its division and its "
        f"rescaling; sums round once for each addition ({additions}); and weights are rounded when they are stored.",
        "Results below the normal range may lose more, and that loss is added. Finally the output is rounded.",
    )
