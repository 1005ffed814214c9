"""Index expressions as formulas: Σ_j P[i,j] V[j,c] in the notation of papers.

Indices get letters in order of appearance, free ones first, avoiding those that the expression uses for an array or a
size. The letter of an array made of blocks has the numbers of the blocks before its indices.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

from symattn.arrays.index import expressions as ex
from symattn.arrays.index.positions import PLACE
from symattn.document import notation as nt
from symattn.document.errors import Refused
from symattn.document.model import Block, Document, Paragraph, Step, Steps, Text

if TYPE_CHECKING:
    from symattn.arrays.index.array import Indexed, Places


# Letters for indices; those of usual arrays and constants, such as k, q, v, e, are left out.
_LETTERS = "ijlmnprstuwabcfgh"
# Names that code uses for Greek letters.
_GREEK = {
    **{"beta": "β", "delta": "δ", "eps": "ε", "eta": "η", "lam": "λ", "mu": "μ", "xi": "ξ"},
    **{"rho": "ρ", "sigma": "σ", "tau": "τ", "theta": "θ", "pi": "π"},
}
# Roles by which the renderers colour usual arrays.
_ROLES: dict[str, nt.Role] = {"q": "query", "k": "key", "v": "value", "x": "input", "s": "score"}
# Array names such as x1, whose number becomes an index.
_NUMBERED = re.compile(r"([a-z])(\d+)")
# The numbers of blocks in the name of a letter, see ``Indexed.letters``.
_BLOCKS = re.compile(r"@([\d,]+)")
# The fixed entries in the name of a letter.
_FIXED = re.compile(r"\[([\d, ]+)\]$")


def length(x: ex.Expression) -> int:
    """Return the number of nodes of ``x``."""
    return 1 + sum(map(length, x.children))


def size(sort: str) -> nt.Node:
    """Return the letter of a size: d_k for the sort "d_k"."""
    base, *sub = sort.split("_")
    return nt.name(base, *sub)


def letter(array: str, *indices: int | nt.Node) -> nt.Node:
    """Return the notation of an entry of an array or, without indices, of the array: σ_i for "sigma", x₁ for "x1"."""
    numbered = _NUMBERED.fullmatch(array)
    base, *sub = numbered.groups() if numbered else array.split("_")
    role = _ROLES.get(base)
    return nt.name(_GREEK.get(base, base), *sub, *indices, role=role)


def is_plain(x: ex.Expression) -> bool:
    """Return whether ``x`` needs only common notation: nothing is masked or an opaque function."""
    return not isinstance(x, (ex.Masked, ex.Opaque)) and all(map(is_plain, x.children))


def in_blocks(x: ex.Expression) -> bool:
    """Return whether a letter of ``x`` belongs to an array made of blocks."""
    in_block = isinstance(x, ex.Letter) and "@" in x.name
    return in_block or any(map(in_blocks, x.children))


class Writing:
    """A writer of formulas in which the same index has the same letter."""

    def __init__(self, expressions: Iterable[ex.Expression], free: Iterable[ex.Index] = ()) -> None:
        every = list(expressions)
        # A letter must not stand for an index and an array at once.
        taken = {base for x in every for base in _yield_base_letters(x)}
        self._letters = [c for c in _LETTERS if c not in taken]
        self._names: dict[ex.Index, nt.Node] = {}
        for i in (*free, *(i for x in every for i in named(x))):
            # Permuted forms share the letter of the bare index.
            if i._replace(image=()) not in self._names:
                self._name_bound_index(i._replace(image=()), len(self._names))
        self._free = len(self._names)

    def __call__(self, x: ex.Expression) -> nt.Node:
        return self._convert_to_formula_node(x, self._free)

    def index(self, i: ex.Index) -> nt.Node:
        """Return the letter of an index, with the permutations applied to it."""
        if i in self._names:
            return self._names[i]
        shown = self._names[i._replace(image=())]
        for permutation in i.image:
            shown = nt.call(letter(permutation), shown)
        return shown

    def _name_bound_index(self, i: ex.Index, depth: int) -> nt.Node:
        # After the last letter the letters repeat with numbers.
        times, place = divmod(depth, len(self._letters))
        number = [times] if times else []
        self._names[i] = nt.name(self._letters[place], *number)
        return self._names[i]

    def _convert_to_formula_node(self, x: ex.Expression, depth: int) -> nt.Node:
        match x:
            case ex.Constant():
                return nt.node(x.value)
            case ex.Count():
                return size(x.sort)
            case ex.Letter():
                return self._formula_of_letter(x)
            case ex.Predicate():
                return self._formula_of_predicate(x)
            case ex.Sum():
                return _sum([self._convert_to_formula_node(y, depth) for y in x.children])
            case ex.Product():
                return self._formula_of_product(x, depth)
            case ex.Ratio():
                above, below = (self._convert_to_formula_node(y, depth) for y in x.children)
                return nt.Over(above, below)
            case ex.Exponential():
                return nt.Power(nt.name("e"), self._convert_to_formula_node(x.children[0], depth))
            case ex.Total():
                # Bound indices are named by depth, so that sums side by side use the same letter.
                i = self._name_bound_index(x.index, depth)
                return nt.total(
                    i, 1, size(x.index.sort), self._convert_to_formula_node(x.body, depth + 1)
                )
            case ex.Masked():
                return nt.call(
                    nt.Words("masked"),
                    self._convert_to_formula_node(x.value, depth),
                    self._convert_to_formula_node(x.allowed, depth),
                )
            case ex.Opaque():
                return self._formula_of_opaque_call(x, depth)
        raise Refused(f"{type(x).__name__.lower()} is not written as a formula")

    def _formula_of_letter(self, x: ex.Letter) -> nt.Node:
        if x.name.startswith(PLACE):  # counted from 0
            return self.index(x.indices[0]) - 1
        plain = _FIXED.sub("", _BLOCKS.sub("", x.name))
        blocks = _BLOCKS.search(x.name)
        fixed = _FIXED.search(x.name)
        # Papers count from 1.
        numbers = [int(b) + 1 for match in (blocks, fixed) if match for b in match[1].split(",")]
        return letter(plain, *numbers, *map(self.index, x.indices))

    def _formula_of_predicate(self, x: ex.Predicate) -> nt.Node:
        left, right = map(self.index, x.sides)
        if x.relation == "=":
            return nt.name("δ", left, right)
        return nt.name("1", nt.relation(left, x.relation, right), bold=True)

    def _formula_of_product(self, x: ex.Product, depth: int) -> nt.Node:
        # several, before any simplification
        numbers = [y for y in x.children if isinstance(y, ex.Constant)]
        sums = [y for y in x.children if isinstance(y, ex.Total)]
        rest = [y for y in x.children if y not in numbers and y not in sums]
        # Join equal factors to powers; powers of e stay as they are.
        nodes = (self._convert_to_formula_node(y, depth) for y in (*rest, *sums))
        times = Counter(nodes)
        factors = [
            g
            for f, n in times.items()
            for g in ([f] * n if n == 1 or isinstance(f, nt.Power) else [f**n])
        ]
        value = prod((abs(y.value) for y in numbers), start=Fraction(1))
        shown = [nt.node(value), *factors] if value != 1 or not factors else factors
        product = shown[0]
        for factor in shown[1:]:
            product = product * factor
        negatives = sum(y.value < 0 for y in numbers)
        return nt.Neg(product) if negatives % 2 else product

    def _formula_of_opaque_call(self, x: ex.Opaque, depth: int) -> nt.Node:
        one_child = len(x.children) == 1
        # A maximum over a range has the index below it.
        if x.name == "max" and one_child and isinstance(x.children[0], ex.BoundIndex):
            return self._over(x.children[0], depth)
        below = [
            self._over(y, depth)
            if isinstance(y, ex.BoundIndex)
            else self._convert_to_formula_node(y, depth)
            for y in x.children
        ]
        if x.name in ("1/", "rsqrt"):
            denominator = below[0] if x.name == "1/" else nt.Root(below[0])
            return nt.Over(nt.node(1), denominator)
        if x.name == "sqrt":
            return nt.Root(below[0])
        return nt.call(x.name, *below)

    def _over(self, x: ex.BoundIndex, depth: int) -> nt.Node:
        """Return the maximum over the bound index, and over those bound directly below it."""
        indices, body = [self._name_bound_index(x.index, depth)], x.body
        # max over i and j is one sign with two indices.
        while isinstance(body, ex.BoundIndex):
            indices.append(self._name_bound_index(body.index, depth + len(indices)))
            body = body.body
        inner = self._convert_to_formula_node(body, depth + len(indices))
        return nt.Big(
            "max", indices[0] if len(indices) == 1 else nt.commas(*indices), None, None, inner
        )


def _sum(terms: list[nt.Node]) -> nt.Node:
    """Return the sum, with equal terms counted, and positive terms before negative ones."""
    counted = [_repeat_formula_term(n, t) for t, n in Counter(terms).items()]
    ordered = sorted(counted, key=lambda t: isinstance(t, nt.Neg))
    result = ordered[0]
    for t in ordered[1:]:
        result = result + t
    return result


def _repeat_formula_term(n: int, term: nt.Node) -> nt.Node:
    if n == 1:
        return term
    if isinstance(term, nt.Neg):
        return nt.Neg(n * term.body)
    return n * term


def _yield_base_letters(x: ex.Expression) -> Iterator[str]:
    if isinstance(x, ex.Letter):
        # x[0]@π and x_i are the letter x.
        yield re.split(r"[@_\[]", x.name)[0]
    elif isinstance(x, ex.Count):
        yield x.sort.split("_")[0]
    elif isinstance(x, ex.Binder):
        yield x.index.sort.split("_")[0]
    for y in x.children:
        yield from _yield_base_letters(y)


def named(x: ex.Expression) -> dict[ex.Index, Any]:
    """Return names for the free indices of ``x``, in the order in which they occur."""
    names: dict[ex.Index, Any] = {}
    for i in _yield_occurring_indices(x):
        if i in x.free and i not in names:
            names[i] = ("at", i.sort, len(names))
    return names


def _yield_occurring_indices(x: ex.Expression) -> Iterator[ex.Index]:
    if isinstance(x, ex.Letter):
        yield from x.indices
    elif isinstance(x, ex.Predicate):
        yield from x.sides
    for y in x.children:
        yield from _yield_occurring_indices(y)


# -- arrays as notebooks show them -------------------------------------------------------------------------------------
_LONGEST = 120  # nodes of an expression that is printed


def document(array: Indexed) -> Document:
    """Return an array with letters for sizes as a document without a title."""
    from symattn.arrays.shown import sentence

    return Document(
        "listing",
        array.name,
        (),
        (
            Paragraph(sentence(array, array.shape)),
            *(_describe_element_at_place(array, p) for p in array.places()),
        ),
    )


def _describe_element_at_place(array: Indexed, places: Places) -> Block:
    """Return the element at a place, or a sentence with its length if it is too long."""
    result = array.at(places)
    # Letters of the axes are indices of the formula.
    indices = [i for _, entry in places for i in entry]
    writing = Writing([result], [i for i in indices if isinstance(i, ex.Index)])
    placed = zip(array.shape, places, strict=True)
    parts = [f"part {b + 1}" for a, (b, _) in placed if len(a.blocks) > 1]
    nodes = [writing.index(i) if isinstance(i, ex.Index) else nt.node(i) for i in indices]
    # Without the comma in front.
    at = tuple(part for n in nodes for part in (", ", n))[1:]
    where: Text = (f"{', '.join(parts)}, " if parts else "", "at ", *at)
    # A formula of many parts is not read by anybody.
    try:
        shown = writing(result) if length(result) <= _LONGEST else None
    except Refused:
        shown = None
    if shown is None:
        return Paragraph(
            ("The element ", *where, f" has {length(result)} parts, too many to be written out.")
        )
    return Steps((Step(shown, where if indices else ("the only element",)),))
