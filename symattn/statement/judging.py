"""Whether a printed relation holds: proved for all sizes, checked at sizes, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from symattn.arrays.ball import precision
from symattn.document import notation as nt
from symattn.document.model import Text
from symattn.document.notation import Node, Relation
from symattn.document.text import text
from symattn.errors import InputError, Refused, Undecided
from symattn.evidence import Evidence, Grade
from symattn.proof.certified import accepted
from symattn.proof.prover import Proof, prove
from symattn.proof.statement import Declared, Letters, Numbers, Sides, pairs, run
from symattn.proof.theorem import Identity, Method
from symattn.proof.together import Positive, bound
from symattn.statement.comparing import FalseStep, NotRead, compared
from symattn.statement.compiling import Compiled, Link, links
from symattn.statement.draws import EXTREME, FarApart, draws, extreme, sizes
from symattn.statement.examples import decide
from symattn.statement.glossary import Glossary
from symattn.statement.moments import mentions
from symattn.statement.rounding import worlds
from symattn.statement.values import Unread

_BITS, _EXACT = 128, 3
_ENOUGH = 6  # draws that meet the conditions of a claim
Needed = tuple[str, ...]
"""The hypotheses of a proof, in words."""
_SMALLER = {"≤": False, "<": False, "≥": True, ">": True}  # sign → whether the right side is the smaller one


@dataclass(frozen=True)
class Question:
    """A relation, what its letters stand for, the sizes that it is written out for, and what helps to decide it.

    ``where``: what the numbers meet of which the relation is claimed, ``only``: of no others.
    ``sharp``: each ≤ is nearly an equation in numbers of one of these kinds (see ``EXTREME``), as no weaker bound is.
    ``gaps``: for an inequality, by one of its sides, larger − smaller in a form that shows its sign. ``signs``: x →
    an expression that is |x|, in a form that shows its sign.
    """

    relation: Relation
    glossary: Glossary
    sized: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[Node, Node] = field(default_factory=dict)
    signs: Mapping[Node, Node] = field(default_factory=dict)
    sharp: str = ""
    where: tuple[Relation, ...] = ()
    only: bool = False

    def of(self, relation: Relation) -> Evidence:
        """What stands behind another relation in the place of this one."""
        return decided(replace(self, relation=relation))

    def equal(self, a: Node, b: Node) -> bool:
        """Whether two formulas are proved equal, with these letters."""
        try:
            return decided(Question(nt.equals(a, b), self.glossary, self.sized)).grade is Grade.PROVED
        except FalseStep:
            return False

    def number(self, x: Node) -> bool:
        """Whether a formula stands for a number, or for one at each of its indices."""
        compiled, found = Compiled(self.glossary, self.sized), list[int]()
        with suppress(Unread, Refused, Undecided, InputError, KeyError), precision(_BITS):
            world = next(iter(_worlds(compiled)))
            run(compiled.function(lambda reader: found.append(reader.one(x).rank)), compiled.declared, world)
        return found == [0]


@dataclass(frozen=True)
class Asked:
    """A relation that was decided, how any other would have been decided in its place, and the letters there.

    ``exact``: every answer is that of exact numbers or polynomials. ``equal``: whether two formulas are proved equal,
    ``number``: whether one stands for a number.
    """

    relation: Relation
    decide: Callable[[Relation], Evidence]
    indices: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    matrices: frozenset[str] = frozenset()
    exact: bool = False
    equal: Callable[[Node, Node], bool] = lambda a, b: a == b
    number: Callable[[Node], bool] = lambda _: False


_ASKED: ContextVar[list[Asked] | None] = ContextVar("asked", default=None)


@contextmanager
def recorded() -> Iterator[list[Asked]]:
    """Every relation that is decided inside the block."""
    asked: list[Asked] = []
    token = _ASKED.set(asked)
    try:
        yield asked
    finally:
        _ASKED.reset(token)


def record(asked: Asked) -> None:
    """Keep what was asked, where ``recorded`` listens."""
    found = _ASKED.get()
    if found is not None:
        found.append(asked)


def judged(question: Question, known: Mapping[Link, Evidence] | None = None) -> Evidence:
    """What stands behind the relation. Raises FalseStep for one that is false somewhere, or cannot be read.

    ``known``: links that were proved in the same section.
    """
    g = question.glossary
    matrices = frozenset({*g.given, *g.defined})
    letters = tuple(g.index), tuple(g.sizes), matrices
    exact = g.example or (bool(g.formats) and not any(mentions(question.relation, key, g) for key in g.given))
    record(Asked(question.relation, question.of, *letters, exact=exact, equal=question.equal, number=question.number))
    return decided(question, known)


def decided(question: Question, known: Mapping[Link, Evidence] | None = None) -> Evidence:
    """As ``judged``, of a relation that is not printed."""
    told = [(known or {}).get(link) for link in links(question.relation)]
    if None not in told and not question.sized:
        return next(evidence for evidence in told if evidence)
    try:
        if not question.glossary.example:
            return _general(question)
        decide(question.relation, question.glossary)
        return Evidence(Grade.CHECKED, "this example")
    except (Unread, Refused, Undecided, InputError, ZeroDivisionError, IndexError, ValueError) as reason:
        raise NotRead(f"{text(question.relation)}: {type(reason).__name__}: {reason}") from reason


# -- for all sizes ----------------------------------------------------------------------------------------------------
def _general(question: Question) -> Evidence:
    compiled = Compiled(question.glossary, question.sized)
    every = links(question.relation)
    for link in every:
        if link.sign != "=" and link.sign not in _SMALLER:
            raise Unread(f"the sign {link.sign}")
    met = [x for relation in question.where for x in links(relation)]
    if question.glossary.formats or question.only:
        return _in_each_format(question, every, met)
    if not question.glossary.laws:
        _spot(compiled, every, met)
    if met:
        return _under_conditions(compiled, every, met, question.sharp)
    signs = _signs(compiled, question.signs) if _has_bars(question) else {}
    found = [*_equations(compiled, every, signs), *_inequalities(compiled, every, question.gaps)]
    if None not in found:
        where = f"{_words(question.sized)}, all entries" if question.sized else "all sizes"
        return Evidence(Grade.PROVED, "; ".join(dict.fromkeys((where, *(h for f in found for h in f or () if h)))))
    if question.glossary.laws:
        raise FalseStep(f"{text(question.relation)} is not proved under every law that was assumed")
    return _checked(compiled, every, question.sharp)


def _in_each_format(question: Question, every: Sequence[Link], where: Sequence[Link]) -> Evidence:
    """What is said of number formats is checked in each of them."""
    g = question.glossary
    found = []
    for name in g.formats or ("",):
        compiled = Compiled(replace(g, formats=(name,) if name else ()), question.sized)
        found.append(_checked(compiled, every, question.sharp, where, question.only).where)
    return Evidence(Grade.CHECKED, f"{found[0]}, in {', '.join(g.formats)}" if g.formats else found[0])


def _under_conditions(compiled: Compiled, every: Sequence[Link], where: Sequence[Link], sharp: str) -> Evidence:
    """Equations that hold without the conditions are proved; else the numbers that meet them are asked."""
    if all(
        x.sign == "=" and _decided_by_letters(compiled.sides([(x.left, x.right)]), compiled.declared) for x in every
    ):
        return Evidence(Grade.PROVED, "all sizes")
    return _checked(compiled, every, sharp, where)


def _has_bars(question: Question) -> bool:
    bars: dict[Node, Node] = {nt.Fence("abs", x): x for x in question.signs}
    return bool(nt.replaced(question.relation, bars) != question.relation)


@dataclass(frozen=True)
class _Proving(Identity):
    """An identity of which a proof alone is wanted: where there is none, the search is left to ``_checked``.

    ``looked``: numbers were looked at before, and none speaks against it.
    """

    looked: bool = False

    def _decided(self, proofs: tuple[Proof, ...]) -> tuple[Evidence, Text]:
        if not proofs or not all(proof.proved for proof in proofs):
            return Evidence(Grade.UNDECIDED, "not proved"), ()
        return (accepted(Evidence(Grade.PROVED, "all sizes"), proofs), ()) if self.looked else super()._decided(proofs)


def _signs(compiled: Compiled, signs: Mapping[Node, Node]) -> dict[Node, Node]:
    """Rule: |x| = g where x² = g² and g is never negative by its form."""
    zero = nt.node(0)
    shown = {x: g for x, g in signs.items() if _proved(compiled, x * x, g * g) and _by_gap(compiled, zero, g, g, False)}
    return {nt.Fence("abs", x): g for x, g in shown.items()}


def _equations(compiled: Compiled, every: Sequence[Link], signs: Mapping[Node, Node]) -> Iterator[Needed | None]:
    """What each equation needs, if it is proved from the side before or from the first."""
    first = every[0].left
    for link in every:
        if link.sign != "=":
            first = link.right
            continue
        tries = dict.fromkeys(((link.left, link.right), (first, link.right)))
        yield next((found for a, b in tries for found in [_proved(compiled, a, b, signs)] if found), None)


def _proved(compiled: Compiled, left: Node, right: Node, signs: Mapping[Node, Node] | None = None) -> Needed | None:
    """What the equation needs besides nothing, if it is proved."""
    sides = compiled.sides([(left, right)])
    decision = _Proving(compiled.declared, sides, (), looked=not compiled.glossary.laws).decide()
    if decision.evidence.grade is Grade.REFUTED:
        raise FalseStep(f"{text(left)} = {text(right)}: refuted: {decision.evidence.where}")
    if decision.evidence.grade is Grade.PROVED:
        return ("", *("".join(text(w) if isinstance(w, Node) else str(w) for w in h) for h in decision.hypotheses))
    if signs and (nt.replaced(left, signs), nt.replaced(right, signs)) != (left, right):
        return _proved(compiled, nt.replaced(left, signs), nt.replaced(right, signs))
    if isinstance(left, nt.Big) and isinstance(right, nt.Big) and _maxima(left) == _maxima(right) != "":
        return _proved(compiled, left.body, right.body)
    if _is_norm(left) and _is_norm(right):
        return _proved(compiled, _squared(left), _squared(right))
    if isinstance(right, nt.Call) and right.function == nt.Name("log") and len(right.arguments) == 1:
        return _proved(compiled, nt.Name("e") ** left, right.arguments[0])  # x = log y if e^x = y
    return _by_induction(left, right) if isinstance(left, nt.Big) else None


def _is_norm(x: Node) -> bool:
    """Rule: ‖x‖ = ‖y‖ if x·x = y·y."""
    return isinstance(x, nt.Fence) and x.style == "norm" and x.sub is None


def _squared(norm: Node) -> Node:
    assert isinstance(norm, nt.Fence)
    return nt.Product((norm.body, norm.body), "·")


def _by_induction(total: nt.Big, closed: Node) -> Needed | None:
    """Rule: Σ_{t=1}^{n} b(t) = f(n) for every n if f(n) − f(n − 1) = b(n) and f(0) = 0, with no other letter."""
    if total.operator != "sum" or total.low != nt.node(1) or total.high is None:
        return None
    n, t = total.high, total.index
    letters = Glossary(given={text(n): ""}, sizes={})
    before, zero = nt.replaced(closed, {n: n - 1}), nt.replaced(closed, {n: nt.node(0)})
    compiled = Compiled(letters, {})
    pairs_ = [(closed - before, nt.replaced(total.body, {t: n})), (zero, nt.node(0))]
    try:
        shown = all(_decided_by_letters(compiled.sides([pair]), compiled.declared) for pair in pairs_)
    except Unread:
        return None
    return ("",) if shown else None


def _decided_by_letters(sides: Sides, declared: Declared) -> bool:
    """Whether it is proved: asked first, as the search that follows where it is not takes long."""
    try:
        proofs = [prove(a, b, declared.units) for a, b in pairs(sides, declared, Letters())]
    except (Refused, Undecided, InputError):
        return False
    shown = Evidence(Grade.PROVED)
    return all(proof.proved for proof in proofs) and accepted(shown, proofs) is shown


def _maxima(x: nt.Big) -> str:
    """Rule: max_i f_i = max_i g_i if f_i = g_i for every i; the index of a maximum."""
    return text(x.index) if x.operator == "max" and x.low is None else ""


def _inequalities(compiled: Compiled, every: Sequence[Link], gaps: Mapping[Node, Node]) -> Iterator[Needed | None]:
    """Each ≤ by its gap; of one with 0 the other side is the gap, unless one is given."""
    for link in every:
        if link.sign == "=":
            continue
        smaller, larger = (link.right, link.left) if _SMALLER[link.sign] else (link.left, link.right)
        gap = gaps.get(larger) or gaps.get(smaller) or (larger if _is_zero(smaller) else None)
        found = gap and _by_gap(compiled, _at_every_index(smaller), larger, gap, link.sign in "<>")
        if gaps and not found:
            raise FalseStep(f"{text(smaller)} {link.sign} {text(larger)}: no gap shows it")
        yield found or None


def _at_every_index(smaller: Node) -> Node:
    """Rule: max_i f_i ≤ c if f_i ≤ c for every i."""
    if isinstance(smaller, nt.Big) and smaller.operator == "max" and smaller.low is None:
        return smaller.body
    return smaller


def _by_gap(compiled: Compiled, smaller: Node, larger: Node, gap: Node, strict: bool) -> Needed | None:
    d, pair = compiled.declared, [(smaller, larger)]
    gaps = compiled.gaps(pair, [gap])
    method = bound(
        d.arrays, compiled.sides(pair, True), gaps, positive=d.positive, nonnegative=d.nonnegative, units=d.units
    )
    parts: list[Method] = [method, Positive(d, _only(gaps))] if strict else [method]
    found = [part.decide() for part in parts]
    refuted = next((x for x in found if x.evidence.grade is Grade.REFUTED), None)
    if refuted:
        raise FalseStep(f"refuted: {refuted.evidence.where}")
    return ("",) if all(x.evidence.grade is Grade.PROVED for x in found) else None


def _only(function: Any) -> Any:
    def first(**given: Any) -> Any:
        return function(**given)[0]

    first.__signature__ = function.__signature__  # type: ignore[attr-defined]
    return first


def _is_zero(x: Node) -> bool:
    return isinstance(x, nt.Number) and x.value == 0


# -- at sizes ---------------------------------------------------------------------------------------------------------
def _spot(compiled: Compiled, every: Sequence[Link], where: Sequence[Link] = ()) -> None:
    """One draw at some sizes, before anything is proved: most of what is false is seen there."""
    with precision(_BITS):
        for world in [w for w in _worlds(compiled) if w.seed == 1][::2]:
            if _met(compiled, where, world):
                compared(compiled, every, world)


def _met(compiled: Compiled, where: Sequence[Link], world: Numbers) -> bool:
    """Whether these numbers meet the conditions."""
    try:
        compared(compiled, where, world)
    except FalseStep:
        return False
    return True


def _worlds(compiled: Compiled) -> Iterator[Numbers]:
    """Numbers of the format, if one is named; where errors of rounding are drawn as well, twice as many numbers."""
    g, sorts = compiled.glossary, compiled.declared.sorts()
    if g.formats:
        yield from worlds(g.formats[0], sorts)
        return
    for world in draws(sorts):
        world.balls = not g.exact
        yield world
    if "fl" in g.families:
        yield from extreme(sorts, FarApart)


def _checked(
    compiled: Compiled, every: Sequence[Link], sharp: str, where: Sequence[Link] = (), only: bool = False
) -> Evidence:
    """All draws in balls, then exact numbers where there are equations. ``only``: false where ``where`` is not met."""
    declared = compiled.declared
    with precision(_BITS):
        every_world = [(world, _met(compiled, where, world)) for world in _worlds(compiled)]
        met = [world for world, it_is in every_world if it_is]
        if len(met) < _ENOUGH:
            raise Unread("no numbers were found that meet the conditions")
        if only and any(_met(compiled, every, world) for world, it_is in every_world if not it_is):
            raise FalseStep(f"{text(every[0].left)} {every[0].sign} … holds elsewhere, too")
        for world in met:
            compared(compiled, every, world)
        if sharp:
            bounds = [x for x in every if x.sign != "=" and not _is_zero(x.left) and not _is_zero(x.right)]
            _sharp(compiled, bounds, sharp, where)
    largest = sizes(declared.sorts())[-2:][0]
    equations = [x for x in every if x.sign == "="]
    for number in range(_EXACT) if equations else ():
        there = {sort: 1 + (number + i) % 3 for i, sort in enumerate(declared.sorts())}
        with suppress(Unread, Refused, Undecided):  # exact numbers lack some functions that balls have
            exact = Numbers(there, number)
            if _met(compiled, where, exact):
                compared(compiled, equations, exact)
    where_ = f" at sizes up to {_words(largest)}" if largest else ""
    return Evidence(Grade.CHECKED, f"{len(met)} draws{where_}")


def _sharp(compiled: Compiled, bounds: Sequence[Link], how: str, where: Sequence[Link]) -> None:
    """Each bound is an equation in some draw, or nearly one. Raises FalseStep."""
    for link in bounds:
        worlds = ((w, near) for kind, near in map(EXTREME.__getitem__, how.split())
                  for w in extreme(compiled.declared.sorts(), kind) if _met(compiled, where, w))  # fmt: skip
        if not any(compared(compiled, [link], world)[0] < near for world, near in worlds):
            raise FalseStep(f"{text(link.left)} {link.sign} {text(link.right)}: nothing comes near this bound")


def _words(found: Mapping[str, int]) -> str:
    return ", ".join(f"{sort} = {n}" for sort, n in found.items())


def relations(x: Any) -> Iterable[Relation]:
    """The relations in a formula or a text: one that stands alone, or those of a row."""
    if isinstance(x, Relation):
        yield x
    elif isinstance(x, nt.Row):
        for part in x.parts:
            yield from relations(part)
    elif isinstance(x, tuple):
        for part in x:
            if not isinstance(part, str):
                yield from relations(part)
