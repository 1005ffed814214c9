"""Inferences from equations and bounds, as statements for readers with proofs from the statements of the premises.

What holds for every entry holds for the largest (``of_largest`` in ``Reading.v``), one premise may show what another
assumes (``gap``), and equal terms may be substituted (``same``). The value of e^x determines x as a logarithm, by two
bounds. Premises and conclusion share their names, so that a premise can be applied to the conclusion.

Two sides that are not always equal are a statement that there are sizes and arrays for which they differ. Opaque
functions are quantified first, so the sides differ whatever these are. The arrays are found by trial, with one number
for all entries of an array. Coq shows that both sides differ there (``differs`` in ``Reading.v``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

from symattn.document.errors import Refused
from symattn.proof.checker_reading import Record, Rejected
from symattn.proof.coq import coq_printing, writing
from symattn.proof.coq.folds import of_fold
from symattn.proof.coq.readable import (
    Readable,
    Stated,
    Supposed,
    circle,
    divisors,
    readable,
    reading,
)
from symattn.proof.coq.steps import renamed
from symattn.proof.coq.terms import Names, Term, circles, number, term
from symattn.proof.coq.writing import Lemma, free_of, lemma_of, written_term


@dataclass(frozen=True)
class _Claim:
    """The claim of a premise or of the rule itself; ``why`` is the gap of a bound, ``from_`` the claims of premises."""

    said: Stated
    positive: tuple[str, ...]
    known: frozenset[str]
    rules: tuple[Any, ...]
    why: Term | None = None
    from_: tuple[_Claim, ...] = ()
    proof: str = ""


def inferred(name: str, record: Record, conclusion: Record, regroup: bool) -> writing.Lemma:
    """Return the lemma of an inference, whose text includes those of its premises; or the reason why there is none."""
    kind = str(record.get("rule", record["kind"]))
    # Rules without a lemma in the theory are named in the reason.
    known = _INFERENCES.get(kind)
    if known is None:
        return writing.Lemma(
            name,
            why=f"it rests on {_WORDS.get(kind, f'a step by {kind}')}, which the theory does not have",
        )
    try:
        return known(name, record, conclusion, regroup)
    except (Refused, Rejected) as reason:
        return writing.Lemma(name, why=str(reason))


_WORDS = {
    "bits": "operations that round",
    "limit": "limits",
    "repeated": "a measure that shrinks step by step",
}


def _yield_premise_claims(name: str, record: Record, names: Names) -> Iterator[_Claim]:
    """Yield the claims of a premise."""
    for n, conclusion in enumerate(record["conclusions"]):
        several = len(record["conclusions"]) > 1
        own = coq_printing.auxiliary(name, str(n + 1)) if several else name
        if record["kind"] == "step":
            yield _of_largest(own, record, conclusion, names)
        else:
            stated, why = writing.bounded(own, record, conclusion, names)
            known = frozenset(map(str, record["not negative"]))
            stated = replace(stated, only=())  # no rule asks where both sides are equal
            yield _Claim(
                stated, tuple(map(str, record["positive"])), known, tuple(record["rules"]), why
            )


def _of_largest(name: str, record: Record, conclusion: Record, names: Names) -> _Claim:
    """Return the claim for the largest entries, under the assumptions of all premises."""
    premises = [
        # Premises keep their own names, so that their lemmas can be applied.
        c
        for n, p in enumerate(record["premises"], 1)
        for c in _yield_premise_claims(coq_printing.auxiliary(name, f"from_{n}"), p, names)
    ]
    positive = tuple(dict.fromkeys(x for c in premises for x in c.positive))
    _, sorts, scope, free = writing.free_of(conclusion, names)
    both = {"left": conclusion["smaller"], "right": conclusion["larger"]}
    sides = writing.simplified(both, sorts, positive)
    left, right = (term(x, scope, names) for x in sides)
    # Each premise bounds some entries of the maximum, which is one of its entries.
    every = [c.said for c in premises]
    applied = (f"apply ({x.name} {_list_variables(reading(x))}); given" for x in every)
    ways = " | ".join(applied)
    stated = Stated(
        *(name, names, free, "<=", left, right),
        given=tuple(dict.fromkeys(m for s in every for m in s.given)),
        supposed=Supposed(
            any(s.supposed.logarithms for s in every),
            frozenset().union(*[s.supposed.laws for s in every]),
            True,
        ),
    )
    # What a premise assumes, the conclusion assumes as well.
    known = frozenset().union(*[c.known for c in premises])
    rules = tuple(r for c in premises for r in c.rules)
    proof = f"of_largest ltac:(idtac; first [{ways}])"
    return _Claim(stated, positive, known, rules, from_=tuple(premises), proof=proof)


def _list_variables(reader: coq_printing.CoqReader) -> str:
    """Return the sizes, arrays and functions of a statement, in order."""
    arrays = reader.arrays.values()
    return " ".join((*reader.sizes.values(), *arrays, *reader.functions.values()))


def _make_lemma_of_claim(claim: _Claim, regroup: bool) -> writing.Lemma:
    """Return the lemma of a claim, after the lemmas that it uses."""
    stated = writing.with_arrays(claim.said, claim.positive, claim.known, claim.rules)
    if claim.why is not None:
        return writing.shown_by(stated, claim.why, regroup)
    result = readable(stated, f"Proof. intros. {claim.proof}. Qed.")
    return writing.lemma_of(stated, result, [_make_lemma_of_claim(c, regroup) for c in claim.from_])


def _make_substitution_lemma(name: str, record: Record, regroup: bool) -> writing.Lemma:
    """Return the lemma that both sides, one expression with equal terms for letters, are equal."""
    names, sorts, scope, free = writing.free_of(record["through"])
    left, right, through = (
        writing.written_term(record[side]["expression"], sorts, scope, names) for side in _SIDES
    )
    letters: dict[int, tuple[Term, Term]] = {}
    equals = []
    for equal, to in zip(record["equal"], record["to"], strict=True):
        _, own, inside, kinds = writing.free_of(equal, names)
        a, b = (writing.written_term(x["expression"], own, inside, names) for x in (equal, to))
        letters |= {n: (a, b) for n in names.with_name(str(equal["letter"]))}
        equals.append((kinds, a, b))
    # The same expression with the terms on the left, and with those on the right.
    one, other = (
        _replace_letters_by_meanings(through, {n: both[k] for n, both in letters.items()})
        for k in (0, 1)
    )
    # The replaced letters are no arrays of the statement any more.
    names.arrays = {key: n for key, n in names.arrays.items() if n not in letters}
    stated = Stated(name, names, free, "=", left, right, equals=tuple(equals))
    first = replace(stated, name=coq_printing.auxiliary(name, "from_1"), right=one, equals=())
    second = replace(stated, name=coq_printing.auxiliary(name, "from_2"), left=other, equals=())
    before = [writing.equated(x, regroup) for x in (first, second)]
    reader = reading(stated)
    middle = [reader.text(x, reader.scope(free)) for x in (one, other)]
    # Left = one, one = other by equal terms, other = right.
    result = readable(
        stated,
        f"Proof. intros. transitivity ({middle[0]}); [apply ({first.name} {_list_variables(reader)}); given|].\n"
        f"transitivity ({middle[1]}); [same|apply ({second.name} {_list_variables(reader)}); given]. Qed.",
    )
    return writing.lemma_of(stated, result, before)


_SIDES = ("left", "right", "through")


def _replace_letters_by_meanings(x: Term, meant: Mapping[int, Term]) -> Term:
    """Return a term with meanings in place of letters."""
    if x.head == "Letter" and x.numbers[0] in meant:
        seats = dict(enumerate(x.numbers[1:]))
        return renamed(meant[x.numbers[0]], seats)
    parts = tuple(_replace_letters_by_meanings(y, meant) for y in x.below)
    return Term(x.head, x.numbers, parts)


def lemmas(
    theorem: str, certificates: Sequence[Record], regroup: bool = False
) -> list[writing.Lemma]:
    """Return the lemmas of all equations, signs and inferences; with ``regroup``, with hints that reorder sums."""
    every = [(c, e) for c in certificates for e in c.get("equations", ())]
    signs = [(c, e) for c in certificates if c["kind"] == "sign" for e in c["conclusions"]]
    others = [
        (c, e)
        for c in certificates
        if c["kind"] not in ("certificate", "sign")
        for e in c.get("conclusions") or (c,)
    ]
    many = len(every) + len(signs) + len(others)
    # One lemma has the theorem's name; several are numbered.
    names = [
        coq_printing.identifier(theorem) + ("" if many == 1 else f"_{n}")
        for n in range(1, many + 1)
    ]
    last = len(every) + len(signs)
    equations = [
        writing.lemma(name, e, c["rules"], c["positive"], regroup)
        for name, (c, e) in zip(names, every, strict=False)
    ]
    bounds = [
        writing.bound(name, c, e, regroup)
        for name, (c, e) in zip(names[len(every) : last], signs, strict=True)
    ]
    others_named = zip(names[last:], others, strict=True)
    return [
        *equations,
        *bounds,
        *[inferred(name, *x, regroup) for name, x in others_named],
    ]


def _make_square_lemma(
    name: str, record: Record, conclusion: Record, regroup: bool
) -> writing.Lemma:
    """Return the lemma of a square or a logarithm: by the premises, each side is at most the other."""
    # Only equations of proofs are premises that Coq knows here.
    if any(p["kind"] != "certificate" for p in record["premises"]):
        raise Refused(
            f"coq: it rests on a step by {record['rule']}, which the theory does not have"
        )
    positive, rules = (
        [x for p in record["premises"] for x in p[key]] for key in ("positive", "rules")
    )
    names, sorts, scope, free = writing.free_of(conclusion)
    sides = writing.simplified(conclusion, sorts, positive)
    left, right = (term(x, scope, names) for x in sides)
    stated = Stated(
        name, names, free, "=", left, right, supposed=Supposed("log" in names.functions)
    )
    stated = writing.with_arrays(stated, positive, (), rules)
    if record["rule"] == "squares":
        # One function of one argument on both sides: equal arguments are enough.
        heads = [(x.head, x.numbers, [y.head for y in x.below]) for x in (left, right)]
        if heads != 2 * [("Fun", left.numbers, ["One"])]:
            raise Refused("coq: the sides are not one function of two expressions")
        a, b = (side.below[0].below[0] for side in (left, right))
        occurring = coq_printing.CoqReader(names)
        for side in (a, b):
            occurring.see(side)
        # Functions that do not occur in the parts are no parameters of their lemma.
        within = replace(
            names, functions={f: n for f, n in names.functions.items() if n in occurring.counts}
        )
        part = replace(
            stated,
            name=coq_printing.auxiliary(name, "from_1"),
            names=within,
            left=a,
            right=b,
            supposed=Supposed(),
        )
        before = [writing.equated(part, regroup)]
        proof = f"f_equal; apply ({part.name} {_list_variables(reading(part))}); given"
    else:
        # a ≤ b and b ≤ a.
        turned = ((left, right), (right, left))
        parts = [
            replace(
                stated,
                name=coq_printing.auxiliary(name, f"from_{n}"),
                relation="<=",
                left=a,
                right=b,
            )
            for n, (a, b) in enumerate(turned, 1)
        ]
        before = [
            writing.shown_by(x, _exponential_minus_tangent(*both), regroup)
            # e^u − (u + 1) ≥ 0, and e^u = 1 by the premises.
            for x, both in zip(parts, turned, strict=True)
        ]
        applied = (f"apply ({x.name} {_list_variables(reading(x))}); given" for x in parts)
        ways = " | ".join(applied)
        proof = f"apply Rle_antisym; [{ways}]"
    return writing.lemma_of(stated, readable(stated, f"Proof. intros. {proof}. Qed."), before)


def _exponential_minus_tangent(x: Term, y: Term) -> Term:
    """Return e^u − (u + 1), where u is x − y: it is y − x where e^u is 1."""
    u = Term("Add", (), (x, _negate_coq_term(y)))
    exponential = Term("Exp", (), (u,))
    u_and_one = Term("Add", (), (u, number(1)))
    return Term(
        "Add",
        (),
        (exponential, Term("Mul", (), (number(-1), u_and_one))),
    )


def _negate_coq_term(x: Term) -> Term:
    if x.head == "Add":
        return Term("Add", (), tuple(map(_negate_coq_term, x.below)))
    return (
        x.below[1]
        if x.head == "Mul" and x.below[0] == number(-1)
        else Term("Mul", (), (number(-1), x))
    )


_Inference = Callable[[str, Record, Record, bool], writing.Lemma]
# Called with a name, the step's record, its conclusion, and whether products are regrouped.
_INFERENCES: Mapping[str, _Inference] = {
    "largest": lambda name, record, conclusion, regroup: _make_lemma_of_claim(
        _of_largest(name, record, conclusion, Names()), regroup
    ),
    "substitution": lambda name, record, _, regroup: _make_substitution_lemma(
        name, record, regroup
    ),
    "fold": lambda name, record, _, regroup: of_fold(name, record, regroup),
    "differing": lambda name, record, *_: of_differing(name, record),
    **dict.fromkeys(("squares", "logarithm"), _make_square_lemma),
}


# Most sides that differ do so where some arrays are 1 and the others are 0.
_TRIED = (1, 0)
_MANY = 12  # arrays
_DIFFER = ("There are sizes and arrays for which both sides differ, whatever the functions are",)


def of_differing(name: str, record: Record) -> Lemma:
    """Return the lemma that two sides differ somewhere. Raises Refused if no such arrays are found."""
    names, sorts, scope, free = free_of(record)
    left, right = (written_term(record[side], sorts, scope, names) for side in ("left", "right"))
    if any(
        any(images) for _, *images, _ in names.arrays
    ):  # else an array of its own, which it is not
        raise Refused("coq: sides that differ under a permutation")
    stated = Stated(
        name, names, free, "<>", left, right, circles=tuple(circles(record["rules"], names))
    )
    reader = reading(stated)
    places = reader.scope(free)
    if any(True for x in (left, right) for _ in divisors(reader, x, places, {}, frozenset())):
        raise Refused("coq: sides that differ, with a divisor that is not positive by its form")
    result = {str(sort): int(size) for sort, size in record["sizes"].items()}
    if not names.sorts.keys() <= result.keys():
        raise Refused("coq: sides that differ at sizes that are not told")
    sizes = {n: result[sort] for sort, n in names.sorts.items()}
    statement = _state_differing_sides(reader, stated, places)
    proof = _prove_differing_sides(reader, _find_differing_place(stated, sizes), sizes)
    return lemma_of(stated, Readable(statement, proof, _DIFFER))


def _state_differing_sides(
    reader: coq_printing.CoqReader, stated: Stated, places: Sequence[str]
) -> str:
    names = coq_printing.typed_functions(reader)
    # Functions are universal, arrays and places existential: one example is enough.
    some = coq_printing.typed_arrays(reader, reader.sizes.values(), reader.arrays)
    where = [f"(0 < {own})%nat" for own in reader.sizes.values()] + [
        circle(reader, c, s) for c, s in stated.circles
    ]
    known = "".join(f"{x} /\\ " for x in where)
    placed = zip(places, stated.free, strict=True)
    bounds = [f"({i} < {reader.sizes[s]})%nat /\\ " for i, s in placed]
    at = f"exists {' '.join(places)} : nat, {''.join(bounds)}" if places else ""
    # The statement holds for every function of this kind.
    every = f"forall {' '.join(names)}, " if names else ""
    there = f"exists {' '.join(some)}," if some else ""
    lines = [
        f"Theorem {stated.name} : {every}{there}".rstrip(),
        *([f"  {known}{at}".rstrip()] if known or at else []),
        f"  {reader.text(stated.left, tuple(places), 1)}",
        f"  <> {reader.text(stated.right, tuple(places), 1)}.",
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Place:
    """A place where both sides differ: the number for all entries of each array, and the indices."""

    entries: Mapping[int, int]
    at: tuple[int, ...]


def _prove_differing_sides(
    reader: coq_printing.CoqReader, result: _Place, sizes: Mapping[int, int]
) -> str:
    chosen = [f"{sizes[n]}%nat" for n in reader.sizes]
    for n in reader.arrays:
        seats = "_ " * len(reader.names.arities[n])
        chosen.append(f"(fun {seats}=> {result.entries[n]})" if seats else str(result.entries[n]))
    places = "; ".join(f"exists {i}%nat" for i in result.at) or "idtac"
    return (
        f"Proof. intros. {' '.join(f'exists {x}.' for x in chosen)} differs ltac:({places}). Qed."
    )


def _find_differing_place(stated: Stated, sizes: Mapping[int, int]) -> _Place:
    """Return the first place where both sides differ in numbers. Raises Refused if there is none."""
    arrays = list(stated.names.arrays.values())
    # All choices of 0 and 1 for every array: too many for more.
    if len(arrays) > _MANY:
        raise Refused("coq: sides that differ, of many arrays")
    for tried in product(_TRIED, repeat=len(arrays)):
        entries = dict(zip(arrays, tried, strict=True))
        # Entries on a circle must keep c² + s² = 1.
        off_circle = (entries[c] ** 2 + entries[s] ** 2 != 1 for c, s in stated.circles)
        if any(off_circle):
            continue
        for at in product(*[range(sizes[s]) for s in stated.free]):
            env = tuple(zip(stated.free, at, strict=True))
            try:
                one, other = (_approximate_coq_term(x, env, sizes, entries) for x in stated.sides)
            except ArithmeticError:
                continue
            # In floats: Coq then shows the difference in exact numbers.
            if not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6):
                return _Place(entries, at)
    raise Refused("coq: sides that differ, but not where all entries of an array are 0 or 1")


_Env = tuple[tuple[int, int], ...]
_IS: Mapping[str, Callable[[int, int], bool]] = {
    "Is Equal": int.__eq__,
    "Is AtMost": int.__le__,
    "Is Below": int.__lt__,
}


def _approximate_coq_term(
    x: Term, env: _Env, sizes: Mapping[int, int], entries: Mapping[int, int]
) -> float:
    """Return the approximate value of a term, with an arbitrary function of the arguments for each opaque function."""
    if x.head == "Num":
        return x.numbers[0]
    if x.head == "Size":
        return sizes[x.numbers[0]]
    if x.head == "Letter":
        return entries[x.numbers[0]]
    if x.head in _IS:
        (s, i), (t, j) = (env[n] for n in x.numbers)
        return float(s == t and _IS[x.head](i, j))
    if x.head == "Fun":
        result = [
            round(v, 9) for a in x.below for v in _yield_approximate_values(a, env, sizes, entries)
        ]
        # The same arguments give the same value, and different ones hardly ever.
        return Random(f"{x.numbers[0]} {result}").uniform(0.5, 2)
    if x.head == "Sum":
        return math.fsum(_yield_approximate_values(x, env, sizes, entries))
    a, *others = (_approximate_coq_term(y, env, sizes, entries) for y in x.below)
    # One part: an exponential.
    if not others:
        return math.exp(a)
    (b,) = others
    if x.head == "Add":
        return a + b
    return a * b if x.head == "Mul" else a / b


def _yield_approximate_values(
    x: Term, env: _Env, sizes: Mapping[int, int], entries: Mapping[int, int]
) -> Iterator[float]:
    """Yield the value of a term, or of the body of one that binds an index, at every index."""
    if x.binds():
        for i in range(sizes[x.numbers[0]]):
            inner_env = ((x.numbers[0], i), *env)
            yield _approximate_coq_term(x.below[0], inner_env, sizes, entries)
    else:
        yield _approximate_coq_term(x.below[0] if x.head == "One" else x, env, sizes, entries)
