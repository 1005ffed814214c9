"""Index expressions as formulas: Σ_j P[i,j] V[j,c] as papers write it.

Indices get letters in the order in which they are met, the free ones first; none that the expression uses for an array
or a size. The letter of an array that is made of blocks carries the numbers of the blocks before its indices.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from symattn.arrays.index.expressions import (
    Binder,
    Bound,
    Constant,
    Count,
    Exponential,
    Expression,
    Index,
    Letter,
    Masked,
    Opaque,
    Predicate,
    Product,
    Ratio,
    Sum,
    Total,
)
from symattn.arrays.index.positions import PLACE
from symattn.document.errors import Refused
from symattn.document.notation import (
    Big,
    Neg,
    Node,
    Over,
    Power,
    Role,
    Root,
    Words,
    call,
    commas,
    name,
    node,
    relation,
    total,
)

_LETTERS = "ijlmnprstuwabcfgh"
_GREEK = {
    **{"beta": "β", "delta": "δ", "eps": "ε", "eta": "η", "lam": "λ", "mu": "μ", "xi": "ξ"},
    **{"rho": "ρ", "sigma": "σ", "tau": "τ", "theta": "θ", "pi": "π"},
}
_ROLES: dict[str, Role] = {"q": "query", "k": "key", "v": "value", "x": "input", "s": "score"}
_NUMBERED = re.compile(r"([a-z])(\d+)")
_BLOCKS = re.compile(r"@([\d,]+)")
_FIXED = re.compile(r"\[([\d, ]+)\]$")


def length(x: Expression) -> int:
    """How many parts ``x`` is written with."""
    return 1 + sum(map(length, x.children))


def size(sort: str) -> Node:
    """The letter of a size: d_k for the sort "d_k"."""
    base, *sub = sort.split("_")
    return name(base, *sub)


def letter(array: str, *indices: int | Node) -> Node:
    """How an entry of an array is written, or with no indices the array: σ_i for "sigma", x₁ for "x1"."""
    numbered = _NUMBERED.fullmatch(array)
    base, *sub = numbered.groups() if numbered else array.split("_")
    return name(_GREEK.get(base, base), *sub, *indices, role=_ROLES.get(base))


def is_plain(x: Expression) -> bool:
    """Whether ``x`` is written in signs that every reader knows: nothing is masked, and nothing is a maximum."""
    return not isinstance(x, (Masked, Opaque)) and all(map(is_plain, x.children))


def in_blocks(x: Expression) -> bool:
    """Whether a letter of ``x`` belongs to an array made of blocks."""
    return (isinstance(x, Letter) and "@" in x.name) or any(map(in_blocks, x.children))


class Writing:
    """Formulas in which the same index has the same letter; ``used`` says which letters are taken."""

    def __init__(self, expressions: Iterable[Expression], free: Iterable[Index] = ()) -> None:
        every = list(expressions)
        taken = {base for x in every for base in _bases(x)}
        self._letters = [c for c in _LETTERS if c not in taken]
        self._names: dict[Index, Node] = {}
        for i in (*free, *(i for x in every for i in named(x))):
            if i._replace(image=()) not in self._names:
                self._bind(i._replace(image=()), len(self._names))
        self._free = len(self._names)

    def __call__(self, x: Expression) -> Node:
        return self._write(x, self._free)

    def index(self, i: Index) -> Node:
        """The letter of an index, in the permutations that it went through."""
        if i in self._names:
            return self._names[i]
        shown = self._names[i._replace(image=())]
        for permutation in i.image:
            shown = call(letter(permutation), shown)
        return shown

    def _bind(self, i: Index, depth: int) -> Node:
        times, place = divmod(depth, len(self._letters))
        self._names[i] = name(self._letters[place], *([times] if times else []))
        return self._names[i]

    def _write(self, x: Expression, depth: int) -> Node:
        match x:
            case Constant():
                return node(x.value)
            case Count():
                return size(x.sort)
            case Letter():
                return self._letter(x)
            case Predicate():
                return self._predicate(x)
            case Sum():
                return _sum([self._write(y, depth) for y in x.children])
            case Product():
                return self._product(x, depth)
            case Ratio():
                above, below = (self._write(y, depth) for y in x.children)
                return Over(above, below)
            case Exponential():
                return Power(name("e"), self._write(x.children[0], depth))
            case Total():
                i = self._bind(x.index, depth)
                return total(i, 1, size(x.index.sort), self._write(x.body, depth + 1))
            case Masked():
                return call(Words("masked"), self._write(x.value, depth), self._write(x.allowed, depth))
            case Opaque():
                return self._opaque(x, depth)
        raise Refused(f"{type(x).__name__.lower()} is not written as a formula")

    def _letter(self, x: Letter) -> Node:
        if x.name.startswith(PLACE):  # counted from 0
            return self.index(x.indices[0]) - 1
        plain = _FIXED.sub("", _BLOCKS.sub("", x.name))
        blocks, fixed = _BLOCKS.search(x.name), _FIXED.search(x.name)
        numbers = [int(b) + 1 for found in (blocks, fixed) if found for b in found[1].split(",")]
        return letter(plain, *numbers, *map(self.index, x.indices))

    def _predicate(self, x: Predicate) -> Node:
        left, right = map(self.index, x.sides)
        if x.relation == "=":
            return name("δ", left, right)
        return name("1", relation(left, x.relation, right), bold=True)

    def _product(self, x: Product, depth: int) -> Node:
        numbers = [y for y in x.children if isinstance(y, Constant)]
        sums = [y for y in x.children if isinstance(y, Total)]
        rest = [y for y in x.children if y not in numbers and y not in sums]
        factors = _powers([self._write(y, depth) for y in (*rest, *sums)])
        value = numbers[0].value if numbers else Fraction(1)
        shown = [node(abs(value)), *factors] if abs(value) != 1 or not factors else factors
        product = shown[0]
        for factor in shown[1:]:
            product = product * factor
        return Neg(product) if value < 0 else product

    def _opaque(self, x: Opaque, depth: int) -> Node:
        if x.name == "max" and len(x.children) == 1 and isinstance(x.children[0], Bound):
            return self._over(x.children[0], depth)
        below = [self._over(y, depth) if isinstance(y, Bound) else self._write(y, depth) for y in x.children]
        if x.name in ("1/", "rsqrt"):
            return Over(node(1), below[0] if x.name == "1/" else Root(below[0]))
        return Root(below[0]) if x.name == "sqrt" else call(x.name, *below)

    def _over(self, x: Bound, depth: int) -> Node:
        """max over the index that is bound, and over those bound below it."""
        indices, body = [self._bind(x.index, depth)], x.body
        while isinstance(body, Bound):
            indices.append(self._bind(body.index, depth + len(indices)))
            body = body.body
        inner = self._write(body, depth + len(indices))
        return Big("max", indices[0] if len(indices) == 1 else commas(*indices), None, None, inner)


def _powers(factors: list[Node]) -> list[Node]:
    """Equal factors as powers; e to a power stays as it is."""
    times = Counter(factors)
    repeated = {f for f, n in times.items() if n > 1 and not isinstance(f, Power)}
    once = dict.fromkeys(factors)
    return [g for f in once for g in ([f ** times[f]] if f in repeated else [f] * times[f])]


def _sum(terms: list[Node]) -> Node:
    """The sum; equal terms are counted, and what is added stands before what is subtracted."""
    counted = [_times(n, t) for t, n in Counter(terms).items()]
    ordered = sorted(counted, key=lambda t: isinstance(t, Neg))
    result = ordered[0]
    for t in ordered[1:]:
        result = result + t
    return result


def _times(n: int, term: Node) -> Node:
    if n == 1:
        return term
    return Neg(n * term.body) if isinstance(term, Neg) else n * term


def _bases(x: Expression) -> Iterator[str]:
    if isinstance(x, Letter):
        yield re.split(r"[@_\[]", x.name)[0]
    elif isinstance(x, Count):
        yield x.sort.split("_")[0]
    elif isinstance(x, Binder):
        yield x.index.sort.split("_")[0]
    for y in x.children:
        yield from _bases(y)


def named(x: Expression) -> dict[Index, Any]:
    """Names for the free indices of ``x``, in the order in which they occur."""
    names: dict[Index, Any] = {}
    for i in _occurring(x):
        if i in x.free and i not in names:
            names[i] = ("at", i.sort, len(names))
    return names


def _occurring(x: Expression) -> Iterator[Index]:
    if isinstance(x, Letter):
        yield from x.indices
    elif isinstance(x, Predicate):
        yield from x.sides
    for y in x.children:
        yield from _occurring(y)
