"""Prove printed relations for all sizes: directly, or by a rule from proved premises.

Each way yields a certificate, and counts only if the checker accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from symattn.arrays.index.building import at_size
from symattn.document import notation as nt
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Text as Words
from symattn.document.notation import Node
from symattn.document.text import text
from symattn.proof.certificate import About, Concluded, Premise, Sign, accepted
from symattn.proof.expectation import multiplied_out
from symattn.proof.hypotheses import demanded
from symattn.proof.inequality import Certificate
from symattn.proof.prover import Proof, prove, unsimplified
from symattn.proof.relations import comparing
from symattn.proof.relations.compiling import Compiled, Link
from symattn.proof.relations.glossary import Gap, Glossary
from symattn.proof.relations.part_values import Unread, Value
from symattn.proof.relations.reader import Reader
from symattn.proof.rules import written
from symattn.proof.statement import Declared, Letters, Sides, pairs
from symattn.proof.theorem import Identity, all_proved, proofs_of

# sign → whether the right side is the smaller one
SMALLER = {"≤": False, "<": False, "≥": True, ">": True}


@dataclass(frozen=True)
class ProvedRelation:
    """A proved relation: its hypotheses in words, and the proofs and premises of its certificates."""

    needed: tuple[str, ...] = ()
    by: tuple[Proof | Premise, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class _Proving(Identity):
    """An identity that is only to be proved: no counterexample is searched for, as numbers were tried before."""

    def _grade_collected_proofs(self, proofs: tuple[Proof, ...]) -> tuple[Evidence, Words]:
        # No search follows a failure: the relation is then compared at draws by the caller.
        if not proofs or not all(proof.proved for proof in proofs):
            return Evidence(Grade.UNDECIDED, "not proved"), ()
        return accepted(Evidence(Grade.PROVED, "all sizes"), proofs), ()


def equations(
    compiled: Compiled, every: Sequence[Link], signs: Mapping[Node, Node]
) -> Iterator[ProvedRelation | None]:
    """Yield the proof of each equation, from the side before it or, by the equations before it, from the first side."""
    first, before = every[0].left, list[Proof | Premise]()
    absolute = _prove_absolute_values(compiled, signs)
    for link in every:
        # An inequality ends the chain of equations; its right side begins another.
        if link.sign != "=":
            first, before = link.right, []
            continue
        result = _prove_printed_equation(compiled, link.left, link.right, absolute)
        # Later equations may be easier to prove from the first side of the chain.
        if not result and before:
            whole = _prove_printed_equation(compiled, first, link.right, absolute)
            result = whole and _conclude_by_rule(
                compiled, "chain", link.left, link.right, [*before, *whole.by], whole.needed
            )
        before += result.by if result else ()
        yield result


def _conclude_by_rule(
    compiled: Compiled,
    rule: str,
    left: Node,
    right: Node,
    premises: Sequence[Proof | Premise],
    needed: tuple[str, ...] = (),
) -> ProvedRelation | None:
    """Return the conclusion of a rule, if the checker accepts it."""
    try:
        sides = tuple(written(compiled.sides([(left, right)]), compiled.declared))
    except (Refused, Undecided, InputError):
        return None
    return _accept_concluded_step(Concluded(rule, tuple(premises), sides), needed)


def _accept_concluded_step(step: Concluded, needed: tuple[str, ...] = ()) -> ProvedRelation | None:
    proved = Evidence(Grade.PROVED)
    return ProvedRelation(needed, (step,)) if accepted(proved, (), (step,)) is proved else None


@dataclass(frozen=True)
class _Absolute:
    """The terms that replace |x| in proofs, and the proofs that they are equal."""

    forms: Mapping[Node, Node] = field(default_factory=dict)
    by: tuple[Proof | Premise, ...] = ()


def _prove_absolute_values(compiled: Compiled, signs: Mapping[Node, Node]) -> _Absolute:
    """Prove |x| = g by x² = g², where g is never negative by its form."""
    zero = nt.node(0)
    forms = dict[Node, Node]()
    by = list[Proof | Premise]()
    for x, g in signs.items():
        same, sign = (
            # x² = g² leaves the sign open, so g must be shown not to be negative.
            _prove_printed_equation(compiled, x * x, g * g),
            by_gap(compiled, zero, g, g, False),
        )
        bars = nt.Fence("abs", x)
        result = (
            same and sign and _conclude_by_rule(compiled, "squares", bars, g, [*same.by, *sign.by])
        )
        if result:
            forms[bars] = g
            by += result.by
    return _Absolute(forms, tuple(by))


_NO_BARS = _Absolute()


def _prove_printed_equation(
    compiled: Compiled, left: Node, right: Node, absolute: _Absolute = _NO_BARS
) -> ProvedRelation | None:
    """Return a proof of the equation, or None. Raises FalseStep if it is refuted."""
    if isinstance(left, nt.At) and (result := _prove_at_given_size(compiled, left, right)):
        return result
    sides = compiled.sides([(left, right)])
    decision = _Proving(compiled.declared, sides, ()).decide()
    if decision.evidence.grade is Grade.REFUTED:
        where = decision.evidence.where
        raise comparing.FalseStep(f"{text(left)} = {text(right)}: false at {where}")
    if decision.evidence.grade is Grade.PROVED:
        return ProvedRelation(
            _words_of_needed_assumptions(decision.proofs, decision.hypotheses),
            (*decision.proofs, *decision.premises),
        )
    # With |x| in another form, more may cancel.
    a = nt.replaced(left, absolute.forms)
    b = nt.replaced(right, absolute.forms)
    if (a, b) != (left, right):
        return _without_bars(compiled, (left, a, b, right), absolute)
    # Each rule reduces the equation to one that letters may decide.
    return next(
        (result for rule in _RULES for result in [rule(compiled, left, right)] if result), None
    )


def _words_of_needed_assumptions(
    proofs: Iterable[Proof], more: Iterable[Words] = ()
) -> tuple[str, ...]:
    """Return the assumptions, and the conditions for both sides to be defined, in words."""
    every = chain(more, *map(demanded, proofs))
    sentences = (
        "".join(text(word) if isinstance(word, Node) else str(word) for word in hypothesis)
        for hypothesis in every
    )
    return tuple(dict.fromkeys(sentences))


def _without_bars(
    compiled: Compiled, sides: tuple[Node, Node, Node, Node], absolute: _Absolute
) -> ProvedRelation | None:
    """Prove x = x′ = y′ = y, where x′ and y′ are x and y with another form of |z|."""
    left, a, b, right = sides
    inner = _prove_printed_equation(compiled, a, b)
    if not inner:
        return None
    # Sides without bars need no step.
    steps = [
        _conclude_by_rule(compiled, "equals", x, y, absolute.by)
        for x, y in ((left, a), (b, right))
        if x != y
    ]
    if None in steps:
        return None
    of_steps = chain.from_iterable(s.by for s in steps if s)
    by = [*inner.by, *of_steps]
    return _conclude_by_rule(compiled, "chain", left, right, by, inner.needed)


def _conclude_from_one_equation(
    compiled: Compiled, rule: str, printed: tuple[Node, Node], premise: tuple[Node, Node]
) -> ProvedRelation | None:
    """Return the conclusion of a rule from one equation, if that equation is proved."""
    result = _prove_printed_equation(compiled, *premise)
    return result and _conclude_by_rule(compiled, rule, *printed, result.by, result.needed)


def _prove_equal_maxima(compiled: Compiled, left: Node, right: Node) -> ProvedRelation | None:
    """Prove max_i f_i = max_i g_i by f_i = g_i for every i."""
    if not (isinstance(left, nt.Big) and isinstance(right, nt.Big)):
        return None
    # Maxima over different indices would need a renaming first.
    other_index = left.index != right.index
    if other_index or not all(_is_maximum(x) for x in (left, right)):
        return None
    return _conclude_from_one_equation(compiled, "equals", (left, right), (left.body, right.body))


def _is_maximum(x: Node) -> bool:
    return isinstance(x, nt.Big) and x.operator == "max" and x.low is None


def _prove_equal_norms(compiled: Compiled, left: Node, right: Node) -> ProvedRelation | None:
    """Prove ‖x‖ = ‖y‖ by x·x = y·y."""
    # A norm without an index is the Euclidean one, ‖x‖² = x · x.
    squares = tuple(
        nt.Product((x.body, x.body), "·")
        for x in (left, right)
        if isinstance(x, nt.Fence) and x.style == "norm" and x.sub is None
    )
    return (
        _conclude_from_one_equation(compiled, "squares", (left, right), (squares[0], squares[1]))
        if len(squares) == 2
        else None
    )


def _prove_by_exponential(compiled: Compiled, left: Node, right: Node) -> ProvedRelation | None:
    """Prove x = log y by e^x = y."""
    # e^(log y) = y needs y > 0, which log assumes.
    if not (
        isinstance(right, nt.Call)
        and right.function == nt.Name("log")
        and len(right.arguments) == 1
    ):
        return None
    return _conclude_from_one_equation(
        compiled, "logarithm", (left, right), (nt.Name("e") ** left, right.arguments[0])
    )


def _by_induction(_: Compiled, total: Node, closed: Node) -> ProvedRelation | None:
    """Prove Σ_{t=1}^{n} b(t) = f(n) for every n by f(n) − f(n − 1) = b(n) and f(0) = 0, with no other letter."""
    if (
        not isinstance(total, nt.Big)
        or total.operator != "sum"
        or total.low != nt.node(1)
        or total.high is None
    ):
        return None
    n, t = total.high, total.index
    # n is taken as a letter, any number, instead of a size.
    compiled = Compiled(Glossary(given={text(n): ""}, sizes={}), {})
    before = nt.replaced(closed, {n: n - 1})
    start = nt.replaced(closed, {n: nt.node(0)})
    term = nt.replaced(total.body, {t: n})
    try:
        proofs = [
            by_letters(compiled.sides([pair]), compiled.declared)
            for pair in ((closed - before, term), (start, nt.node(0)))
        ]
        (sides,) = written(compiled.sides([(term, closed)]), compiled.declared)
    except Unread:
        return None
    shown = tuple(p for result in proofs for p in (result.by if result else ()))
    about: dict[str, About] = {
        "letter": compiled.argument(text(n)),
        "sort": text(n),
        "term": sides[0],
        "closed": sides[1],
    }
    # Both premises are needed.
    return (
        _accept_concluded_step(Concluded("induction", shown, about=about)) if all(proofs) else None
    )


def _prove_by_equal_squares(compiled: Compiled, left: Node, right: Node) -> ProvedRelation | None:
    """Prove x = y, of which one side has a root, by x² = y² and both sides not negative."""
    has_root = any(isinstance(x, nt.Root) for side in (left, right) for x in nt.within(side))
    # Squared sides are powers, which are not squared again.
    if not has_root or isinstance(left, nt.Power):
        return None
    return _conclude_from_one_equation(compiled, "squares", (left, right), (left**2, right**2))


def _prove_at_given_size(compiled: Compiled, left: Node, right: Node) -> ProvedRelation | None:
    """Prove x = y at a given size: x equals a form without a sum over the size, whose value there is y."""
    match left:
        case nt.At(body, nt.Relation(nt.Name() as size, (("=", nt.Number() as length),))) if (
            sort := compiled.glossary.sizes.get(text(size))
        ):
            sides = compiled.sides([(body, right)])
            ((x, y),) = pairs(sides, compiled.declared, Letters())
            # The sum over the size is multiplied out, so that only powers of the size remain.
            form = multiplied_out(x.at(()))
            there = at_size(form, sort, int(length.value))
            # The whole equals the form for all sizes, and its value at this size equals y.
            links = ((x, x.lift(form)), (x.lift(there), y))
            premises = tuple(prove(a, b) for a, b in links)
            if not all(p.proved for p in premises):
                return None
            whole, value = unsimplified(lambda: (x.at(()), y.at(())))
            about = {"sort": sort, "length": str(length.value)}
            return _accept_concluded_step(
                Concluded("instance", premises, ((whole, form, value),), about)
            )
    return None


_RULES: tuple[Callable[[Compiled, Node, Node], ProvedRelation | None], ...] = (
    _prove_equal_maxima,
    _prove_equal_norms,
    _prove_by_exponential,
    _by_induction,
    _prove_by_equal_squares,
)


def by_letters(sides: Sides, declared: Declared) -> ProvedRelation | None:
    """Return the proof by letters alone, or None; it is tried first, as a search for counterexamples takes long."""
    proofs = tuple(proofs_of(sides, declared))
    shown = Evidence(Grade.PROVED)
    proved = all_proved(iter(proofs)) and accepted(shown, proofs) is shown
    return ProvedRelation(_words_of_needed_assumptions(proofs), proofs) if proved else None


def inequalities(
    compiled: Compiled, every: Sequence[Link], gaps: Mapping[Node, Gap | Node]
) -> Iterator[ProvedRelation | None]:
    """Yield the proof of each inequality by its gap; if one side is 0, the other is the gap unless one is given."""
    for link in every:
        if link.sign == "=":
            continue
        if SMALLER[link.sign]:
            smaller, larger = (link.right, link.left)
        else:
            smaller, larger = (link.left, link.right)
        # A bound by 0 is its own gap.
        gap = gaps.get(larger) or gaps.get(smaller) or (larger if is_zero(smaller) else None)
        result = (
            _prove_bound_by_gap(compiled, smaller, larger, gap, link.sign in "<>") if gap else None
        )
        if gaps and not result:
            raise comparing.NotDecided(
                f"{text(smaller)} {link.sign} {text(larger)}: no gap shows it"
            )
        yield result


def _prove_bound_by_gap(
    compiled: Compiled, smaller: Node, larger: Node, gap: Gap | Node, strict: bool
) -> ProvedRelation | None:
    """Prove a bound by its gap; prove max_i f_i ≤ c by f_i ≤ c for every i."""
    if not (isinstance(smaller, nt.Big) and _is_maximum(smaller)):
        return by_gap(compiled, smaller, larger, gap, strict)
    # Rule *largest* concludes ≤ alone.
    result = None if strict else by_gap(compiled, smaller.body, larger, gap, strict)
    if not result:
        return None
    signs = tuple(p for p in result.by if isinstance(p, Sign))
    sides = tuple(written(compiled.sides([(smaller, larger)], True), compiled.declared))
    return _accept_concluded_step(Concluded("largest", signs, sides), result.needed)


def by_gap(
    compiled: Compiled, smaller: Node, larger: Node, gap: Gap | Node, strict: bool
) -> ProvedRelation | None:
    """Prove smaller ≤ larger, or < if strict, by their difference in a form that shows its sign."""
    g = compiled.glossary
    gap = gap if isinstance(gap, Gap) else Gap(gap)
    shapes = {key: " ".join(g.index[i] for i in x.letters) for key, x in gap.letters.items()}
    # In the gap, the letters are free; elsewhere they stand for their meanings.
    with_letters = replace(compiled, glossary=replace(g, given={**g.given, **shapes}))
    meanings = replace(compiled, glossary=replace(g, defined={**g.defined, **gap.letters}))
    letters: dict[str, Any] = {
        key: (shapes[key], meanings.function(partial(_array_meant_by_letter, key)))
        for key in shapes
    }
    named = {with_letters.argument(key): x for key, x in letters.items() if key not in gap.laws}
    laws = {with_letters.argument(key): (*letters[key], law) for key, law in gap.laws.items()}
    decision = Certificate(
        compiled.declared,
        compiled.sides([(smaller, larger)], True),
        with_letters.gap(smaller, larger, gap.body),
        (),
        named=named,
        laws=laws,
        only=tuple(map(with_letters.argument, gap.only)),
        strict=strict,
    ).decide()
    grade = decision.evidence.grade
    if grade is Grade.REFUTED:
        sign = "<" if strict else "≤"
        raise comparing.FalseStep(
            f"{text(smaller)} {sign} {text(larger)}: false at {decision.evidence.where}"
        )
    return (
        ProvedRelation(_words_of_needed_assumptions(decision.proofs), decision.premises)
        if grade is Grade.PROVED
        else None
    )


def _array_meant_by_letter(key: str, reader: Reader) -> Any:
    result = reader.letter(key)
    assert isinstance(result, Value)
    return result.array


def is_zero(x: Node) -> bool:
    """Return whether ``x`` is the number 0."""
    return isinstance(x, nt.Number) and x.value == 0


def shown(
    compiled: Compiled,
    every: Sequence[Link],
    gaps: Mapping[Node, Gap | Node],
    signs: Mapping[Node, Node],
) -> list[ProvedRelation | None]:
    """Return the proofs of all links, equations first; None for a link without a proof."""
    return [*equations(compiled, every, signs), *inequalities(compiled, every, gaps)]
