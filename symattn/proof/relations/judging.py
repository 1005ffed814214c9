"""Decide whether a printed relation holds: proved for all sizes, checked in numbers, searched, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice, product

from symattn.arrays.ball import precision
from symattn.arrays.notes import assigned, listening, meeting
from symattn.document import notation as nt
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade, both
from symattn.document.notation import Node, Relation
from symattn.document.text import equal_sizes, text
from symattn.proof import refuting
from symattn.proof.certificate import Premise
from symattn.proof.prover import Proof
from symattn.proof.relations import comparing, far
from symattn.proof.relations.compiling import Compiled, Link, links
from symattn.proof.relations.concluding import SMALLER, ProvedRelation, is_zero, shown
from symattn.proof.relations.exact_relations import decide
from symattn.proof.relations.glossary import Gap, Glossary
from symattn.proof.relations.part_values import Unread
from symattn.proof.relations.random_arrays import averages, mentions
from symattn.proof.relations.searching import Tried, lengths_asked, look_beyond, restrict
from symattn.proof.statement import Numbers, run

# Bits of balls, and the number of draws of exact numbers.
_BITS, _EXACT = 128, 3
_ENOUGH = 6  # draws that meet the conditions of a claim


@dataclass(frozen=True)
class RelationQuestion:
    """A relation, the meaning of its letters, the sizes for which it is written out, and hints for deciding it.

    ``where``: the conditions under which the relation is claimed; ``only``: it is false for all other numbers.
    ``sharp``: each ≤ is nearly an equation for numbers of one of these kinds (see ``EXTREME``).
    ``gaps``: for an inequality, by one of its sides, larger − smaller in a form that shows its sign.
    ``signs``: x → an expression equal to |x|, in a form that shows its sign.
    """

    relation: Relation
    glossary: Glossary
    sized: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[Node, Gap | Node] = field(default_factory=dict)
    signs: Mapping[Node, Node] = field(default_factory=dict)
    sharp: str = ""
    where: tuple[Relation, ...] = ()
    only: bool = False

    def of(self, relation: Relation) -> Evidence:
        """Return the evidence for another relation, decided in the same way."""
        return decided(replace(self, relation=relation))

    def equal(self, a: Node, b: Node) -> bool:
        """Return whether two formulas with these letters are proved equal."""
        try:
            return (
                decided(RelationQuestion(nt.equals(a, b), self.glossary, self.sized)).grade
                is Grade.PROVED
            )
        except comparing.FalseStep:
            return False

    def number(self, x: Node) -> bool:
        """Return whether a formula stands for a number, or for one number per index."""
        compiled = Compiled(self.glossary, self.sized)
        result = list[int]()
        # A formula that cannot be read, or has no value, stands for no number.
        with suppress(Unread, Refused, Undecided, InputError, KeyError), precision(_BITS):
            world = next(iter(_yield_draws_for_relation(compiled)))
            run(
                compiled.function(lambda reader: result.append(reader.one(x).rank)),
                compiled.declared,
                world,
            )
        return result == [0]


@dataclass(frozen=True)
class DecidedRelation:
    """A relation that was decided, a function that decides others in the same way, and the letters in scope.

    ``exact``: every answer rests on exact numbers or polynomials. ``equal``: whether two formulas are proved equal,
    ``number``: whether a formula stands for a number.
    """

    relation: Relation
    decide: Callable[[Relation], Evidence]
    indices: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    matrices: frozenset[str] = frozenset()
    exact: bool = False
    equal: Callable[[Node, Node], bool] = lambda a, b: a == b
    number: Callable[[Node], bool] = lambda _: False


_ASKED: ContextVar[list[DecidedRelation] | None] = ContextVar("asked", default=None)


def recorded() -> AbstractContextManager[list[DecidedRelation]]:
    """Collect every relation that is decided inside the block."""
    return assigned(_ASKED, [])


def record(relation: DecidedRelation) -> None:
    """Add the relation to the list of the enclosing ``recorded``, if any."""
    result = _ASKED.get()
    if result is not None:
        result.append(relation)


@dataclass
class ShownRelations:
    """The proofs and premises of decided relations, and sizes at which numbers meet their hypotheses."""

    by: list[Proof | Premise] = field(default_factory=list)
    at: str = ""


_SHOWN: ContextVar[ShownRelations | None] = ContextVar("shown", default=None)


def showing() -> AbstractContextManager[ShownRelations]:
    """Collect the proofs of the relations that are decided inside the block."""
    return assigned(_SHOWN, ShownRelations())


def note(by: Iterable[Proof | Premise], at: str = "") -> None:
    """Add what shows a relation, and sizes at which numbers meet it, to the enclosing ``showing``, if any."""
    if collector := _SHOWN.get():
        collector.by += by
        collector.at = collector.at or at


def judged(question: RelationQuestion, known: Mapping[Link, Evidence] | None = None) -> Evidence:
    """Return the evidence for the relation. Raises FalseStep if it is false somewhere or cannot be read.

    ``known``: links that were proved in the same section.
    """
    g = question.glossary
    matrices = frozenset({*g.given, *g.defined})
    letters = tuple(g.index), tuple(g.sizes), matrices
    # An example, or formats without arrays, has numbers to compute with.
    exact = g.example or (bool(g.formats) and not g.given)
    record(
        DecidedRelation(
            question.relation,
            question.of,
            *letters,
            exact=exact,
            equal=question.equal,
            number=question.number,
        )
    )
    return decided(question, known)


def decided(question: RelationQuestion, known: Mapping[Link, Evidence] | None = None) -> Evidence:
    """Return the evidence as ``judged`` does, without recording the relation as printed."""
    result = [(known or {}).get(link) for link in links(question.relation)]
    # All links are proved already, for all sizes.
    if None not in result and not question.sized:
        return all_of(evidence for evidence in result if evidence)
    try:
        if not question.glossary.example:
            return _judge_general_relation(question)
        decide(question.relation, question.glossary)
        return Evidence(Grade.CHECKED, "this example")
    except (
        Unread,
        Refused,
        Undecided,
        InputError,
        ZeroDivisionError,
        IndexError,
        ValueError,
    ) as reason:
        kind = type(reason).__name__
        raise comparing.NotRead(f"{text(question.relation)}: {kind}: {reason}") from reason


# -- for all sizes ----------------------------------------------------------------------------------------------------
def _judge_general_relation(question: RelationQuestion) -> Evidence:
    compiled = Compiled(question.glossary, question.sized)
    every = [bound for link in links(question.relation) for bound in _as_bounds(link)]
    for link in every:
        if link.sign != "=" and link.sign not in SMALLER:
            raise Unread(f"the sign {link.sign}")
    arrays, met = (
        question.glossary.given,
        [x for relation in question.where for x in links(relation)],
    )
    # Conditions on sizes alone come first, since they are quick to test.
    met.sort(
        key=lambda x: any(
            mentions(side, key, question.glossary) for side in (x.left, x.right) for key in arrays
        )
    )
    # Formats have draws of their own, and ``only`` needs draws that fail the conditions.
    if question.glossary.formats or question.only:
        return _in_each_format(question, every, met)
    # A list, since the draws are used again after the spot check.
    drawn = list(_yield_draws_for_relation(compiled, met))
    _spot_check_relation(compiled, every, drawn, met)
    if met:
        return _under_conditions(question, compiled, every, drawn, met)
    bars: dict[Node, Node] = {nt.Fence("abs", x): x for x in question.signs}
    has_bars = nt.replaced(question.relation, bars) != question.relation
    result = shown(compiled, every, question.gaps, question.signs if has_bars else {})
    if None not in result:
        return _grade_proved_relation(_describe_where_proved(question, compiled), result)
    # Draws stand for one law each, so they cannot support a relation about all.
    if question.glossary.laws:
        raise comparing.NotDecided(
            f"{text(question.relation)} is not proved under every law that was assumed"
        )
    return _check_draws_in_balls(compiled, every, drawn, question.sharp)


def _as_bounds(link: Link) -> list[Link]:
    """Return the bounds of the numbers that are rounded to the digits after ≈; other links as they are."""
    negative = isinstance(link.right, nt.Neg)
    digits = link.right.body if isinstance(link.right, nt.Neg) else link.right
    if link.sign != "≈" or not isinstance(digits, nt.Decimal):
        return [link]
    # Half a unit of the last printed digit.
    half = Fraction(1, 2 * 10 ** len(digits.digits.partition(".")[2]))
    printed = Fraction(digits.digits) * (-1 if negative else 1)
    zero = nt.node(0)
    low = nt.Number(printed - half)
    high = nt.Number(printed + half)
    above_low = Link(zero, "<", link.left - low)
    return [above_low, Link(zero, "<", high - link.left)]


def _describe_where_proved(question: RelationQuestion, compiled: Compiled) -> str:
    """Return the sizes and the assumptions about the arrays in the relation."""
    g, shapes = question.glossary, compiled.declared.arrays
    # With fixed sizes the proof holds for all entries.
    where = f"{equal_sizes(question.sized)}, all entries" if question.sized else "all sizes"
    match question.relation.first:
        case nt.At(_, nt.Relation(size) as condition) if text(size) in g.sizes:
            where = text(condition)
    if not question.sized and any(shapes.values()) and not compiled.declared.sorts():
        where = "all entries, " + ", ".join(
            # Arrays of fixed shapes alone have no sizes.
            f"{key} of shape {shape}"
            for key, shape in shapes.items()
            if shape
        )
    used = assumptions(question.relation, g) if g.labels else []
    return f"{where}, under {both(used)}" if used else where


def assumptions(relation: nt.Relation, g: Glossary) -> list[str]:
    """Return the labels of the assumptions about the arrays of a relation.

    They say what its defined arrays are and, for means and variances, how all are drawn. Raises FalseStep if no
    assumption covers what a law assumes.
    """
    names = {label: words.split() for label, words in g.labels.items()}
    # Means are over all random arrays, others matter only through definitions.
    drawn, used = averages(relation), set[str]()
    words_of_names = (word for words in names.values() for word in words if g.knows(word))
    for key in {*g.laws, *words_of_names}:
        if not mentions(relation, key, g) or not (drawn or key in g.defined):
            continue
        own = {label for label, words in names.items() if key in words}
        assumed = g.laws[key].assumes if key in g.laws and not own else ()
        for part in assumed:
            by_law = {label for label, words in names.items() if part in words}
            # A law without a printed assumption would be used in silence.
            if not by_law:
                raise comparing.FalseStep(
                    f"{text(relation)}: no assumption says how {key} is drawn ({part})"
                )
            used |= by_law
        used |= own
    return sorted(used)


def _grade_proved_relation(where: str, results: Sequence[ProvedRelation | None]) -> Evidence:
    note([part for f in results if f for part in f.by])
    return all_of(
        Evidence(Grade.PROVED, words)
        for words in (where, *(h for f in results if f for h in f.needed))
    )


def all_of(proved: Iterable[Evidence]) -> Evidence:
    """Return the evidence that follows from several proofs, under the hypotheses of all."""
    words = (w for x in proved for w in x.where.split("; "))
    return Evidence(Grade.PROVED, "; ".join(dict.fromkeys(words)))


def _in_each_format(
    question: RelationQuestion, every: Sequence[Link], where: Sequence[Link]
) -> Evidence:
    """Check a relation about number formats in each format."""
    g = question.glossary
    # Without letters all draws are alike, so a few of them are enough.
    constant = not where and _has_no_letters(Compiled(g, question.sized), every)
    places = []
    for name in g.formats or ("",):
        compiled = Compiled(replace(g, formats=(name,) if name else ()), question.sized)
        drawn = list(islice(_yield_draws_for_relation(compiled), _ENOUGH if constant else None))
        places.append(
            _check_draws_in_balls(
                compiled, every, drawn, question.sharp, where, question.only
            ).where
        )
    names = ", ".join(g.formats)
    if constant:
        return Evidence(Grade.CHECKED, names)
    return Evidence(Grade.SEARCHED, f"{places[0]}, in {names}" if g.formats else places[0])


def _under_conditions(
    question: RelationQuestion,
    compiled: Compiled,
    every: Sequence[Link],
    drawn: Sequence[Numbers],
    met: Sequence[Link],
) -> Evidence:
    """Prove the relation without its conditions, or else check it on numbers that meet them."""
    # Without gaps only equations are shown by their form.
    provable = question.gaps or all(x.sign == "=" for x in every)
    # Without its conditions the relation is stronger than the printed one.
    result = shown(compiled, every, question.gaps, {}) if provable else [None]
    return (
        _grade_proved_relation(_describe_where_proved(question, compiled), result)
        if all(result)
        else _check_draws_in_balls(compiled, every, drawn, question.sharp, met)
    )


# -- at sizes ---------------------------------------------------------------------------------------------------------
def _spot_check_relation(
    compiled: Compiled, every: Sequence[Link], drawn: Sequence[Numbers], where: Sequence[Link]
) -> None:
    """Compare one draw at some sizes, before anything is proved: it refutes most false relations.

    Means are taken over all outcomes of one law that is assumed, if these are few.
    """
    # Under laws a mean may be undecided, which refutes nothing.
    passed = (Unread, Refused, Undecided) if compiled.glossary.laws else (comparing.Closer,)
    with precision(_BITS):
        for world in [w for w in drawn if w.seed == 1][::2]:
            if comparing.meets(compiled, where, world):
                with suppress(*passed):
                    comparing.compared(compiled, every, world)
                    note((), equal_sizes(world.sizes) or "any size")


def _select_decisive_worlds(
    compiled: Compiled, every: Sequence[Link], worlds: Iterable[Numbers]
) -> tuple[list[Numbers], bool]:
    """Return the numbers that tell that every link holds, and whether a side is undefined for others. Raises FalseStep
    if a link does not hold."""
    decisive, undefined = [], False
    for world in worlds:
        try:
            comparing.compared(compiled, every, world)
        # Undecided at these numbers: others may decide.
        except comparing.Closer as reason:
            undefined |= isinstance(reason, comparing.SideUndefined)
        else:
            decisive.append(world)
    return decisive, undefined


def _yield_draws_for_relation(compiled: Compiled, where: Sequence[Link] = ()) -> Iterator[Numbers]:
    """Yield draws: numbers of the format, if one is named; for relations with fl(…), extreme numbers as well; at sizes
    that meet the conditions."""
    g, sorts = compiled.glossary, compiled.declared.sorts()
    if g.formats:
        from symattn.proof.relations.printed_roundings import worlds

        yield from worlds(g.formats[0], sorts)
        return
    for world in (
        far.draws_at(compiled.declared, lengths)
        if (lengths := lengths_asked(compiled, where))
        else comparing.draws(sorts)
    ):
        # Balls, unless examples or laws need exact numbers.
        world.balls = not (g.exact or g.laws)
        yield world
    if "fl" in g.families:
        yield from comparing.extreme(sorts, comparing.FarApart)


def _check_draws_in_balls(
    compiled: Compiled,
    every: Sequence[Link],
    drawn: Sequence[Numbers],
    sharp: str,
    where: Sequence[Link] = (),
    only: bool = False,
) -> Evidence:
    """Compare all draws in balls, then equations in exact numbers. ``only``: must be false if ``where`` is not met.

    The grade is ``checked`` for numbers without letters, if balls or exact numbers decide each of them, and for
    equations whose sides differ by 0 in every case of their comparisons; else ``searched``, with what was tried.
    """
    declared = compiled.declared
    equations = [x for x in every if x.sign == "="]
    bounds = [x for x in every if x.sign != "="]
    with precision(_BITS):
        every_world = [(world, comparing.meets(compiled, where, world)) for world in drawn]
        met = [world for world, fits in every_world if fits]
        if len(met) < _ENOUGH:
            raise Unread("no numbers were found that meet the conditions")
        # ``only``: the relation must fail where its conditions do.
        if only and any(
            comparing.meets(compiled, every, world) for world, fits in every_world if not fits
        ):
            raise comparing.FalseStep(
                f"{text(every[0].left)} {every[0].sign} … holds elsewhere, too"
            )
        met, undefined = _select_decisive_worlds(compiled, every, met)
        if len(met) < _ENOUGH:
            raise Unread("too few numbers tell whether it holds")
        note((), equal_sizes(met[0].sizes) or "any size")
        comparing.compare_closely(compiled, equations, met)
        if sharp:
            # Nearness is relative, so a bound by 0 has none.
            _check_bounds_are_sharp(
                compiled,
                [x for x in bounds if not is_zero(x.left) and not is_zero(x.right)],
                sharp,
                where,
            )
    tried, cases = Tried(), ""
    if not (
        only
        or compiled.glossary.formats
        or compiled.glossary.exact
        or "fl" in compiled.glossary.families
    ):
        tried = look_beyond(compiled, every, where, lengths_asked(compiled, where))
        for alike in filter(None, (equations, bounds)):
            not_defined, cases = _walk_cells(compiled, alike, where)
            undefined |= not_defined
    largest = {sort: max(world.sizes[sort] for world in met) for sort in declared.sorts()}
    # Exact numbers at small sizes add a decision where balls only overlap.
    exactly = _count_exact_comparisons(compiled, equations, where) if equations else 0
    # Without letters there is one case, which balls or exact numbers decide.
    if not (where or only) and _has_no_letters(compiled, every) and (exactly or not equations):
        return Evidence(Grade.CHECKED, "these numbers")
    defined_only = ", where both sides are defined" * undefined
    if cases and not bounds:
        return Evidence(Grade.CHECKED, cases + defined_only)
    sizes = f" at sizes up to {equal_sizes(largest)}" if largest else ""
    words = "; ".join((f"{len(met)} draws{sizes}", *tried.words()))
    return Evidence(Grade.SEARCHED, words + defined_only)


def _count_exact_comparisons(
    compiled: Compiled, equations: Sequence[Link], where: Sequence[Link]
) -> int:
    """Compare equations in exact numbers at small sizes, and return how many draws decided them."""
    count = 0
    for number in range(_EXACT):
        numbered_sorts = enumerate(compiled.declared.sorts())
        sizes = {sort: 1 + (number + i) % 3 for i, sort in numbered_sorts}
        # Exact numbers lack some functions that balls have.
        with suppress(Unread, Refused, Undecided):
            exact = Numbers(sizes, number)
            if comparing.meets(compiled, where, exact):
                comparing.compared(compiled, equations, exact)
                count += 1
    return count


def _has_no_letters(compiled: Compiled, every: Sequence[Link]) -> bool:
    """Return whether the relation is about numbers alone: neither arrays nor sizes occur in it."""
    about = restrict(compiled, [side for link in every for side in (link.left, link.right)])
    g = about.glossary
    return not (g.given or g.laws or about.declared.sorts() or about.declared.permutations)


def _walk_cells(
    compiled: Compiled, links_: Sequence[Link], where: Sequence[Link]
) -> tuple[bool, str]:
    """Compare numbers from every cell, in which all comparisons of entries have the same result, for equations or for
    bounds.

    Return whether a side is undefined in one, and where the sides of equations differ by 0 in every cell, in words.
    Raises FalseStep, and Undecided if a cell leaves a doubt.
    """
    undefined, equal = False, links_[0].sign == "="
    compiled = restrict(
        compiled, [side for link in (*links_, *where) for side in (link.left, link.right)]
    )
    declared = compiled.declared
    from symattn.proof.cells import cells

    # Cells look for numbers at which the first side exceeds the second.
    ordered = [(x.right, x.left) if x.sign in "≥>" else (x.left, x.right) for x in links_]
    sides = compiled.sides(ordered, not equal)
    with listening(), meeting():
        walked = cells(sides, declared, refuting.named(sides, declared), equal)
    # Exact numbers first, then balls for functions that exact numbers lack.
    for world, balls in product(walked.worlds, (False, True)):
        world.balls = balls
        with precision(_BITS), suppress(Unread, Refused, Undecided, InputError, ZeroDivisionError):
            if comparing.meets(compiled, where, world):
                undefined |= _select_decisive_worlds(compiled, links_, [world])[1]
    if walked.doubt and walked.compares:
        raise Undecided(walked.doubt)
    return undefined or not walked.defined, walked.where_decided()


def _check_bounds_are_sharp(
    compiled: Compiled, bounds: Sequence[Link], how: str, where: Sequence[Link]
) -> None:
    """Raise FalseStep unless each bound is an equation in some draw, or nearly one."""
    # A true bound that nothing comes near would mislead: it is printed as attained.
    for link in bounds:
        worlds = (
            (world, near)
            for kind, near in map(comparing.EXTREME.__getitem__, how.split())
            for world in comparing.extreme(compiled.declared.sorts(), kind)
            if comparing.meets(compiled, where, world)
        )
        if not any(_comes_near(compiled, link, world, near) for world, near in worlds):
            raise comparing.NotDecided(
                f"{text(link.left)} {link.sign} {text(link.right)}: nothing comes near this bound"
            )


def _comes_near(compiled: Compiled, link: Link, world: Numbers, near: float) -> bool:
    try:
        return comparing.compared(compiled, [link], world)[0] < near
    except comparing.SideUndefined:
        return False
    except comparing.Closer:  # nearer than balls and exact numbers tell
        return True


def relations(x: object) -> Iterable[Relation]:
    """Yield the relations in a formula or a text, including those in a row."""
    if isinstance(x, Relation):
        yield x
    elif isinstance(x, nt.Row):
        for part in x.parts:
            yield from relations(part)
    elif isinstance(x, tuple):
        for part in x:
            if not isinstance(part, str):
                yield from relations(part)
