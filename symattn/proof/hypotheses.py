"""Write the declarations of a statement as printed hypotheses: every assumption that a proof may use is stated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from symattn.arrays.index import expressions
from symattn.arrays.index.building import add, negate
from symattn.arrays.index.writing import Writing, is_plain, letter, size
from symattn.arrays.indexed import Indexed
from symattn.document import notation
from symattn.document.errors import SymattnError
from symattn.document.measure import width
from symattn.document.model import Inline, Text
from symattn.document.notation import Node, equals, node, relation
from symattn.proof.expectation import EntryLaw
from symattn.proof.prover import Proof
from symattn.proof.statement import Declared, Letters, Sides, run

_CUMULANTS = (
    "mean",
    "variance",
    "third cumulant",
    "fourth cumulant",
    "fifth cumulant",
    "sixth cumulant",
)
_WIDEST = 28.0  # em of a formula among words
_DEMANDS = {
    "≠": "no divisor is zero",
    ">": "what is under roots of divisors and in logarithms is positive",
    "≥": "what is under roots is not negative",
}
Assumed = Mapping[str, tuple[str, Sides]]


def declared_hypotheses(
    declared: Declared, assumed: Assumed | None = None, laws: Mapping[str, EntryLaw] | None = None
) -> tuple[Text, ...]:
    """Return signs, pairs on a circle, permutations, restricted shapes, ``assumed`` signs and laws, each in words."""
    result = [
        *signs(declared.arrays, declared.positive, declared.nonnegative),
        *(
            (equals(letter(c) ** 2 + letter(s) ** 2, 1), ", place by place")
            for c, s in declared.units
        ),
        *(
            (letter(p), " is a permutation of the ", size(sort), " places")
            for p, sort in declared.permutations.items()
        ),
        *_yield_restricted_shapes(declared),
        *(
            _typeset_assumed_sides(declared, sides, which)
            for which, (_, sides) in (assumed or {}).items()
        ),
        *_yield_independence_of_arrays(laws or {}),
    ]
    # A hypothesis that two parts share is stated once.
    return tuple(dict.fromkeys(result))


def demanded(proof: Proof) -> Iterator[Text]:
    """Yield the conditions for both sides to be defined, in words if they are too long to print."""
    for d in proof.demands:
        shown = relation(Writing([d.expression])(d.expression), d.relation, 0)
        fits = is_plain(d.expression) and width(shown, flat=True) < _WIDEST
        yield (shown,) if fits else (_DEMANDS[d.relation],)


def _yield_independence_of_arrays(laws: Mapping[str, EntryLaw]) -> Iterator[Text]:
    """Yield the independence of random arrays, and their laws, in words."""
    names: list[Inline] = []
    for n, array in enumerate(laws):
        separator = "" if not n else " and " if n == len(laws) - 1 else ", "
        names += [separator, letter(array)]
    if laws:
        yield ("all entries of ", *(w for w in names if w != ""), " are independent")
    for array, law in laws.items():
        yield ("those of ", letter(array), " ", *(law.said or _describe_assumed_cumulants(law)))


def _describe_assumed_cumulants(law: EntryLaw) -> Text:
    """Return the assumed moments of a law, in words."""
    arguments = [Indexed.letters(parameter) for parameter in law.parameters]
    words: list[Inline] = ["have "]
    for title, value in zip(_CUMULANTS, law.cumulants(*arguments), strict=False):
        # A cumulant that a law leaves open is not assumed.
        if value is not None:
            x = Indexed.lift(value).at(())
            separator = ", " if len(words) > 1 else ""
            words += [separator, f"the {title} ", Writing([x])(x)]
    return (*(w for w in words if w != ""), ", and any further moments")


def signs(
    shapes: Mapping[str, str], positive: Iterable[str], nonnegative: Iterable[str]
) -> Iterator[Text]:
    """Yield the declared signs of arrays of these shapes."""
    for names, sign, word in ((positive, ">", "positive"), (nonnegative, "≥", "not negative")):
        for array in (name for name in names if name in shapes):
            one = not shapes[array].split()
            yield (
                # A single number needs no "all entries".
                (relation(letter(array), sign, 0),)
                if one
                else ("all entries of ", letter(array), f" are {word}")
            )


def _yield_restricted_shapes(declared: Declared) -> Iterator[Text]:
    """Yield the shapes of arrays with an axis of restricted length: a number above 1, or a sum."""
    for array, shape in declared.arrays.items():
        # "f*2" is twice a size, "a+b" two sizes one after another.
        if any(map(_is_restricted_length, shape.split())):
            axes = tuple(_typeset_axis_length(axis) for axis in shape.split())
            if len(axes) > 1:
                yield (letter(array), " has the shape ", notation.Product(axes, "×"))
            else:
                yield (letter(array), " has ", axes[0], " entries")


def _is_restricted_length(axis: str) -> bool:
    """Return whether the length of an axis is a sum, or a multiple of a size."""
    factors = axis.split("*")
    return "+" in axis or any(f.isdigit() and int(f) > 1 for f in factors)


def _typeset_axis_length(axis: str) -> Node:
    """Return the length of an axis: 2f for "f*2", a + b for "a+b"."""
    terms = []
    for term in axis.split("+"):
        # The number stands before the letter.
        parts = sorted(term.split("*"), key=lambda part: not part.isdigit())
        terms.append([node(int(part)) if part.isdigit() else size(part) for part in parts])
    shown = tuple(
        parts[0] if len(parts) == 1 else notation.Product(tuple(parts)) for parts in terms
    )
    return shown[0] if len(shown) == 1 else notation.Sum(shown)


def _typeset_assumed_sides(declared: Declared, sides: Sides, which: str) -> Text:
    """Return ``sides`` ≥ 0 as a formula, or under its name if the formula is too long."""
    try:
        # The sides run on letters, as in the proof, and show themselves as formulas.
        x = run(sides, declared, Letters())
        elements = [x.at(places) for places in x.places()]
        shown = [_at_least(e) for e in elements if is_plain(e)]
    except (SymattnError, AttributeError):
        shown = []
    # A long formula is replaced by the name that the statement gives it.
    if not shown or any(width(s, flat=True) > _WIDEST for s in shown):
        return (f"what the statement assumes as “{which}” is not negative",)
    return tuple(part for n, s in enumerate(shown) for part in ((", ", s) if n else (s,)))


def _at_least(x: expressions.Expression) -> Node:
    """Return x ≥ 0 with the negative terms moved to the left side."""
    writing = Writing([x])
    terms = x.children if isinstance(x, expressions.Sum) else (x,)
    down = [y for y in terms if _is_negative(y)]
    up = [y for y in terms if not _is_negative(y)]
    if not down:
        return relation(writing(x), "≥", 0)
    # Moved to the other side, so that no term has a minus.
    below = writing(negate(add(*down)))
    return relation(below, "≤", writing(add(*up)))


def _is_negative(x: expressions.Expression) -> bool:
    factors = x.children if isinstance(x, expressions.Product) else (x,)
    return any(isinstance(y, expressions.Constant) and y.value < 0 for y in factors)
