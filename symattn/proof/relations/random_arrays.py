"""Read E, Var and Cov of formulas in random arrays, under the laws that a section declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import mul, sub
from typing import TYPE_CHECKING, Any

from symattn.document import notation as nt
from symattn.document.notation import Name, Node
from symattn.document.text import text
from symattn.proof.expectation import Expectation
from symattn.proof.relations import part_values as v
from symattn.proof.relations.glossary import Glossary, LetterDefinition, spelt
from symattn.proof.relations.part_values import Unread, Value

if TYPE_CHECKING:
    from symattn.proof.relations.reader import Reader

MOMENTS = {"E": 1, "Var": 1, "Cov": 2}
"""The words for moments, and the number of their arguments."""


def moment(reader: Reader, word: str, of: tuple[Node, ...]) -> Value:
    """Return E[x], Var(x) = E[x²] − E[x]² or Cov(x, y) = E[x y] − E[x] E[y], over all random arrays."""
    if len(of) != MOMENTS[word]:
        raise Unread(f"{word} of {len(of)} formulas")
    if word == "E":
        return _compute_printed_means(reader, of, product=False)[0]
    *means, product = _compute_printed_means(reader, tuple(dict.fromkeys(of)), product=True)
    return v.both(product, v.both(means[0], means[-1], mul), sub)


def _compute_printed_means(reader: Reader, numbers: tuple[Node, ...], product: bool) -> list[Value]:
    """Return the means of numbers and, last, with ``product``, that of the product of the first and the last."""
    g = reader.glossary
    named = [[key for key in g.laws if mentions(x, key, g)] for x in numbers]
    for x, random in zip(numbers, named, strict=True):
        # A mean of what is not random would be printed for nothing.
        if not random:
            raise Unread(f"the mean of {text(x)}, in which nothing is random")
    every = [key for key in g.laws if any(key in random for random in named)]
    values: list[Value] = []

    def drawn(arrays: Mapping[str, object]) -> list[Any]:
        arrays_of_draw = {key: arrays[spelt(key)] for key in every}
        within = reader.within({**reader.arrays, **arrays_of_draw})
        values[:] = map(within.one, numbers)
        if any(x.rank for x in values):
            raise Unread("the mean of what is not a number")
        if product:
            values.append(v.both(values[0], values[-1], mul))
        return [x.array for x in values]

    # Parameters of a law count as read, as the result depends on them.
    reader.touched.update(every, *(g.laws[key].parameters for key in every))
    inputs = {spelt(key): array for key, array in reader.arrays.items()}
    laws = {spelt(key): law for key, law in g.laws.items()}
    expectation = Expectation(laws, inputs)
    # The product is one more number, in all random letters.
    moments = (*named, *[every] * product)
    means = expectation.means(drawn, [[spelt(key) for key in random] for random in moments])
    return [Value(mean, x.letters) for mean, x in zip(means, values, strict=True)]


def mentions(x: Node, key: str, g: Glossary) -> bool:
    """Return whether a formula contains an array, by its own letter or through a definition."""
    if text(x) in g.sizes:
        return False
    if isinstance(x, Name):
        # x_ij mentions x, x_i and x_ij, each also in capitals.
        beginnings = (x.sub[:cut] for cut in range(len(x.sub) + 1))
        words = {text(Name(x.base, sub)) for sub in beginnings}
        words |= {word[:1].upper() + word[1:] for word in words}
        entries = [g.defined[word] for word in words if word in g.defined]
        if key in words or any(
            isinstance(d, LetterDefinition) and mentions(d.body, key, g) for d in entries
        ):
            return True
    return any(mentions(part, key, g) for part in nt.parts(x))


def averages(x: Node) -> bool:
    """Return whether a formula contains E, Var or Cov."""
    calls = [
        y
        for y in nt.within(x)
        if isinstance(y, nt.Call) and isinstance(y.function, Name) and not y.function.sub
    ]
    return any(MOMENTS.get(y.function.base) == len(y.arguments) for y in calls)  # type: ignore[attr-defined]


def mean_of_exponential(letter: str) -> Callable[[Reader, tuple[Node, ...]], Value]:
    """Return a reader of E[e^{a + w·x}] = e^{a + ‖x‖²/2} for w ∼ N(0, I) and a, x independent of w."""
    w = Name(letter)

    def read(reader: Reader, of: tuple[Node, ...]) -> Value:
        (body,) = of
        # e^a e^b is e^(a + b).
        factors = body.factors if isinstance(body, nt.Product) else (body,)
        powers_of_e = (isinstance(f, nt.Power) and f.base == Name("e") for f in factors)
        if not all(powers_of_e):
            raise Unread(f"the mean of {text(body)}")
        exponent = reader.number(0)
        along: Value | None = None
        exponents = [f.exponent for f in factors if isinstance(f, nt.Power)]
        terms = [t for x in exponents for t in (x.terms if isinstance(x, nt.Sum) else (x,))]
        for term in terms:
            match term:
                # w · x with x independent of w: a normal number of variance ‖x‖².
                case nt.Product((first, x), "·") if (
                    first == w and nt.replaced(x, {w: nt.node(0)}) == x
                ):
                    along = v.added(along, reader.one(x)) if along else reader.one(x)
                case _ if nt.replaced(term, {w: nt.node(0)}) == term:
                    exponent = v.added(exponent, reader.one(term))
                case _:
                    raise Unread(f"the mean of e to the power {text(term)}")
        # Terms without w leave the mean as they are.
        if along:
            exponent = v.added(
                exponent, v.times(along, along, "·", False).on(lambda square: square / 2)
            )
        return exponent.on(reader.xp.exp)

    return read
