"""What certificates say, in floating point: independent of the prover and of the checker.

A number is drawn for every entry, a permutation for every name of one, and sizes; ``fails`` then says whether a
statement is false there. What it cannot evaluate raises ``Unknown``."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

Data = list[Any]
Places = Mapping[str, tuple[str, int]]  # index name → its sort and value
FUNCTIONS = {"tanh": math.tanh, "erf": math.erf, "cos": math.cos, "sin": math.sin, "log": math.log, "sqrt": math.sqrt}


class Unknown(Exception):
    """It has no value here: a function that is not known, or a root of what is negative."""


def parts(data: Any) -> Iterator[Data]:
    """Every expression in nested lists."""
    if isinstance(data, list):
        if data and isinstance(data[0], str):
            yield data
        for x in data:
            yield from parts(x)


@dataclass
class World:
    """Numbers for letters, drawn when they are asked for."""

    random: Random
    positive: frozenset[str] = frozenset()
    truths: frozenset[str] = frozenset()
    circles: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    known: dict[Any, Any] = field(default_factory=dict)

    def size(self, sort: str) -> int:
        return self.sizes.setdefault(sort, self.random.randrange(1, 4))

    def index(self, i: list[str], at: Places) -> tuple[str, int]:
        sort, value = at[i[0]]
        for name in i[1:]:
            key = ("permutation", sort, name)
            if key not in self.known:
                self.known[key] = self.random.sample(range(self.size(sort)), self.size(sort))
            value = self.known[key][value]
        return sort, value

    def letter(self, name: str, places: tuple[tuple[str, int], ...]) -> float:
        if name in self.circles:
            pair, cosine = self.circles[name]
            angle = self.known.setdefault((pair, places), self.random.uniform(0.2, 6))
            return math.cos(angle) if cosine else math.sin(angle)
        key = (name, places)
        if key not in self.known:
            if name in self.truths:
                self.known[key] = float(self.random.random() < 0.7)
            else:
                self.known[key] = self.random.uniform(0.2, 2.0) * (
                    1 if name in self.positive else self.random.choice((1, -1))
                )
        return float(self.known[key])

    def value(self, x: Data, at: Places) -> float:
        try:
            found = self._value(x, at)
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise Unknown(str(error)) from error
        if math.isnan(found):
            raise Unknown("not a number")
        return found

    def _value(self, x: Data, at: Places) -> float:
        kind, *rest = x
        if kind == "number":
            above, _, below = rest[0].partition("/")
            return int(above) / int(below or 1)
        if kind == "size":
            return float(self.size(rest[0]))
        if kind == "letter":
            return self.letter(rest[0], tuple(self.index(i, at) for i in rest[1]))
        if kind == "is":
            a, b = (self.index(i, at)[1] for i in rest[1:])
            return float({"=": a == b, "≤": a <= b, "<": a < b}[rest[0]])
        if kind == "total":
            return math.fsum(self.value(rest[2], {**at, rest[0]: (rest[1], n)}) for n in range(self.size(rest[1])))
        if kind == "function":
            return self._function(rest[0], rest[1:], at)
        if kind == "masked":
            return self.value(rest[1], at) if self.value(rest[0], at) else -math.inf
        below = [self.value(y, at) for y in rest]
        if kind == "exp":
            return math.exp(below[0])
        if kind == "ratio":
            return below[0] / below[1]
        return math.fsum(below) if kind == "sum" else math.prod(below)

    def _function(self, name: str, arguments: list[Data], at: Places) -> float:
        if name == "mean":
            return mean(arguments[0], arguments[1:], at, self)
        if name == "argmax":
            return float(self.value(arguments[0], at) == self.value(arguments[1], at))
        every = [v for y in arguments for v in self._all(y, at)]
        if name == "max":
            return max(every)
        if name == "norm":
            return math.hypot(*every)
        if name == "rsqrt":
            return 1 / math.sqrt(every[0])
        if name == "1/":
            return 1 / every[0]
        if name == "sign":
            return float((every[0] > 0) - (every[0] < 0))
        if name not in FUNCTIONS:
            raise Unknown(name)
        return FUNCTIONS[name](every[0])

    def _all(self, x: Data, at: Places) -> list[float]:
        if x[0] != "bound":
            return [self.value(x, at)]
        return [v for n in range(self.size(x[2])) for v in self._all(x[3], {**at, x[1]: (x[2], n)})]

    def places(self, free: list[list[str]]) -> Iterator[Places]:
        for values in product(*[range(self.size(sort)) for _, sort in free]):
            yield {name: (sort, n) for (name, sort), n in zip(free, values, strict=True)}


def worlds(record: Mapping[str, Any], seeds: int) -> Iterator[World]:
    """Worlds in which the hypotheses of an equation, of a sign, or of the premises of a rule, hold."""
    every = list(_records(record))
    positive = frozenset(name for r in every for key in ("positive", "not negative") for name in r.get(key, ()))
    masks = [x for r in every for x in parts(list(_lists(r))) if x[0] == "masked"]
    truths = frozenset(y[1] for x in masks for y in parts(x[1]) if y[0] == "letter")
    pairs = [pair for r in every for pair in r.get("rules", ())]
    circles = {name: (pair[0], n == 0) for pair in pairs for n, name in enumerate(pair)}
    for seed in range(seeds):
        world = World(Random(seed), positive, truths, circles)
        if all(_holds(world, *h) for r in every for h in _hypotheses(r)):
            yield world


def _records(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield record
    for premise in record.get("premises", ()):
        yield from _records(premise)


def _lists(record: Any) -> Iterator[Any]:
    values = record.values() if isinstance(record, Mapping) else record if isinstance(record, list) else ()
    for x in values:
        if isinstance(x, Mapping):
            yield from _lists(x)
        else:
            yield x
            yield from _lists(x)


def _hypotheses(record: Mapping[str, Any]) -> Iterator[tuple[str, Any, Data]]:
    for h in record.get("hypotheses", ()) if record["kind"] == "certificate" else ():
        yield h["relation"], h["free"], h["expression"]
    lawful = {name for name, _ in record.get("laws", ())}
    for name in set(record.get("not negative", ())) - lawful:
        for m in record["meant"]:
            if m["letter"].split("@")[0].split("[")[0] == name:
                yield "≥", m["free"], m["expression"]


def _holds(world: World, relation: str, free: Any, x: Data) -> bool:
    try:
        values = [world.value(x, at) for at in world.places(free)]
    except Unknown:
        return False
    return all({"≠": abs(v) > 1e-3, ">": v > 1e-3, "≥": v >= 0, "=": v == 0}[relation] for v in values)


def fails(record: Mapping[str, Any], seeds: int = 12) -> bool:
    """Whether an equation, or an inequality that a sign shows, is false in some world in which its hypotheses hold."""
    return any(bool(_failing(record, world)) for world in worlds(record, seeds))


def _failing(record: Mapping[str, Any], world: World) -> bool:
    for e in record.get("equations", ()):
        for a, b in _pairs(world, e["free"], e["left"], e["right"]):
            if abs(a - b) > 1e-6 * max(1.0, abs(a), abs(b)):
                return True
    for c in record.get("conclusions", ()):
        if record.get("rule") == "instance":
            world.sizes[record["sort"]] = int(record["length"])
        if record.get("rule") == "limit":
            world.known[record["letter"], ()] = 1e6 if record["to"] == "∞" else 1e-6
        equal, near = "larger" not in c, 1e-3 if record.get("rule") == "limit" else 1e-6
        limit = ("of", "form" if record.get("size") else "value")  # sizes of numbers are small
        sides = ("smaller", "larger") if not equal else limit if "of" in c else ("left", "right")
        for a, b in _pairs(world, c["free"], *(c[side] for side in sides)):
            if (abs(a - b) if equal else a - b) > near * max(1.0, abs(a), abs(b)):
                return True
    return False


def _pairs(world: World, free: Any, left: Data, right: Data) -> Iterator[tuple[float, float]]:
    for at in world.places(free):
        try:
            a, b = world.value(left, at), world.value(right, at)
        except Unknown:
            continue
        if math.isfinite(a) and math.isfinite(b) and max(abs(a), abs(b)) < 1e9:
            yield a, b


# -- Means in certificates, in floating point: polynomials in random entries at sizes, and moments from cumulants ------
# It knows nothing of partitions: E xⁿ = Σ_k C(n − 1, k − 1) κ_k E xⁿ⁻ᵏ, and different entries are independent.
Monomial = tuple[Any, ...]
Polynomial = dict[Monomial, float]
Evaluate = Callable[[Data, Places], float]


class NoMean(ValueError):
    """A mean of what is no polynomial, or that needs what is not assumed."""


def mean(of: Data, laws: list[Data], at: Places, world: Any) -> float:
    """E of an expression, the laws of the random arrays being given."""
    if any(law[0] != "function" for law in laws):
        raise NoMean("a law that is none")
    known = {law[1].removeprefix("law of "): law[2:] for law in laws}
    whole = _expanded(of, at, known, world)
    return math.fsum(c * math.prod(_moment(known[_array(entry)], n, at, world) for entry, n in Counter(m).items())
                     for m, c in whole.items())  # fmt: skip


def _array(entry: Any) -> str:
    return str(entry[0]).split("@")[0].split("[")[0]


def _random(x: Any, known: Mapping[str, Any]) -> bool:
    if not isinstance(x, list) or not x:
        return False
    return (x[0] == "letter" and _array([x[1]]) in known) or any(_random(y, known) for y in x[1:])


def _expanded(x: Data, at: Places, known: Mapping[str, Any], world: Any) -> Polynomial:
    kind, *rest = x
    if not _random(x, known):
        return {(): world.value(x, at)}
    if kind == "letter":
        return {((rest[0], *(world.index(i, at)[1] for i in rest[1])),): 1.0}
    if kind == "sum":
        return _added([_expanded(y, at, known, world) for y in rest])
    if kind == "product":
        found: Polynomial = {(): 1.0}
        for y in rest:
            found = _times(found, _expanded(y, at, known, world))
        return found
    if kind == "total":
        name, sort, body = rest
        return _added([_expanded(body, {**at, name: (sort, n)}, known, world) for n in range(world.size(sort))])
    if kind == "ratio" and not _random(rest[1], known):
        return _times(_expanded(rest[0], at, known, world), {(): 1 / world.value(rest[1], at)})
    raise NoMean(f"a mean of a {kind}")


def _added(every: list[Polynomial]) -> Polynomial:
    out: Polynomial = {}
    for one in every:
        for m, c in one.items():
            out[m] = out.get(m, 0.0) + c
    return out


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    return _added([{tuple(sorted((*m, *n))): c * d} for m, c in a.items() for n, d in b.items()])


def _moment(law: list[Data], order: int, at: Places, world: Any) -> float:
    moments = [1.0]
    for n in range(1, order + 1):
        terms = (math.comb(n - 1, k - 1) * moments[n - k] * _cumulant(law, k, at, world) for k in range(1, n + 1)
                 if moments[n - k])  # fmt: skip
        moments.append(math.fsum(terms))
    return moments[order]


def _cumulant(law: list[Data], order: int, at: Places, world: Any) -> float:
    if order > len(law) or law[order - 1][:2] == ["function", "any"]:
        raise NoMean("a moment that is not assumed")
    return float(world.value(law[order - 1], at))
