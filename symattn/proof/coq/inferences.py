"""Inferences from equations and bounds, as statements for readers with proofs from the statements of the premises.

What holds for every entry holds for the largest (``of_largest`` in ``Reading.v``), one premise may show what another
assumes (``gap``), and equal terms may be substituted (``same``). The value of e^x determines x as a logarithm, by two
bounds. Premises and conclusion share their names, so that a premise can be applied to the conclusion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from symattn.document.errors import Refused
from symattn.proof.checker_reading import Record, Rejected
from symattn.proof.coq import writing
from symattn.proof.coq.differing import of_differing
from symattn.proof.coq.folds import of_fold
from symattn.proof.coq.printing import CoqReader, auxiliary, identifier
from symattn.proof.coq.readable import Stated, Supposed, readable, reading, variables
from symattn.proof.coq.steps import renamed
from symattn.proof.coq.terms import Names, Term, number, term


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
    known = _INFERENCES.get(kind)
    if known is None:
        return writing.Lemma(
            name, why=f"it rests on {_WORDS.get(kind, f'a step by {kind}')}, which the theory does not have"
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


def _claims(name: str, record: Record, names: Names) -> Iterator[_Claim]:
    """Yield the claims of a premise."""
    for n, conclusion in enumerate(record["conclusions"]):
        own = auxiliary(name, str(n + 1)) if len(record["conclusions"]) > 1 else name
        if record["kind"] == "step":
            yield _of_largest(own, record, conclusion, names)
        else:
            stated, why = writing.bounded(own, record, conclusion, names)
            known = frozenset(map(str, record["not negative"]))
            stated = replace(stated, only=())  # no rule asks where both sides are equal
            yield _Claim(stated, tuple(map(str, record["positive"])), known, tuple(record["rules"]), why)


def _of_largest(name: str, record: Record, conclusion: Record, names: Names) -> _Claim:
    """Return the claim for the largest entries, under the assumptions of all premises."""
    premises = [c for n, p in enumerate(record["premises"], 1) for c in _claims(auxiliary(name, f"from_{n}"), p, names)]
    positive = tuple(dict.fromkeys(x for c in premises for x in c.positive))
    _, sorts, scope, free = writing.free_of(conclusion, names)
    both = {"left": conclusion["smaller"], "right": conclusion["larger"]}
    left, right = (term(x, scope, names) for x in writing.simplified(both, sorts, positive))
    every = [c.said for c in premises]
    ways = " | ".join(f"apply ({x.name} {variables(reading(x))}); given" for x in every)
    stated = Stated(
        *(name, names, free, "<=", left, right),
        given=tuple(dict.fromkeys(m for s in every for m in s.given)),
        supposed=Supposed(
            any(s.supposed.logarithms for s in every), frozenset().union(*[s.supposed.laws for s in every]), True
        ),
    )
    known = frozenset().union(*[c.known for c in premises])
    rules = tuple(r for c in premises for r in c.rules)
    proof = f"of_largest ltac:(idtac; first [{ways}])"
    return _Claim(stated, positive, known, rules, from_=tuple(premises), proof=proof)


def _whole(claim: _Claim, regroup: bool) -> writing.Lemma:
    """Return the lemma of a claim, after the lemmas that it uses."""
    stated = writing.with_arrays(claim.said, claim.positive, claim.known, claim.rules)
    if claim.why is not None:
        return writing.shown_by(stated, claim.why, regroup)
    result = readable(stated, f"Proof. intros. {claim.proof}. Qed.")
    return writing.lemma_of(stated, result, [_whole(c, regroup) for c in claim.from_])


def _substituted(name: str, record: Record, regroup: bool) -> writing.Lemma:
    """Return the lemma that both sides, one expression with equal terms for letters, are equal."""
    names, sorts, scope, free = writing.free_of(record["through"])
    left, right, through = (writing.written_term(record[side]["expression"], sorts, scope, names) for side in _SIDES)
    letters: dict[int, tuple[Term, Term]] = {}
    equals = []
    for equal, to in zip(record["equal"], record["to"], strict=True):
        _, own, inside, kinds = writing.free_of(equal, names)
        a, b = (writing.written_term(x["expression"], own, inside, names) for x in (equal, to))
        letters |= {n: (a, b) for n in names.with_name(str(equal["letter"]))}
        equals.append((kinds, a, b))
    one, other = (_put(through, {n: both[k] for n, both in letters.items()}) for k in (0, 1))
    names.arrays = {key: n for key, n in names.arrays.items() if n not in letters}
    stated = Stated(name, names, free, "=", left, right, equals=tuple(equals))
    first = replace(stated, name=auxiliary(name, "from_1"), right=one, equals=())
    second = replace(stated, name=auxiliary(name, "from_2"), left=other, equals=())
    before = [writing.equated(x, regroup) for x in (first, second)]
    reader = reading(stated)
    middle = [reader.text(x, reader.scope(free)) for x in (one, other)]
    result = readable(
        stated,
        f"Proof. intros. transitivity ({middle[0]}); [apply ({first.name} {variables(reader)}); given|].\n"
        f"transitivity ({middle[1]}); [same|apply ({second.name} {variables(reader)}); given]. Qed.",
    )
    return writing.lemma_of(stated, result, before)


_SIDES = ("left", "right", "through")


def _put(x: Term, meant: Mapping[int, Term]) -> Term:
    """Return a term with meanings in place of letters."""
    if x.head == "Letter" and x.numbers[0] in meant:
        return renamed(meant[x.numbers[0]], dict(enumerate(x.numbers[1:])))
    return Term(x.head, x.numbers, tuple(_put(y, meant) for y in x.below))


def lemmas(theorem: str, certificates: Sequence[Record], regroup: bool = False) -> list[writing.Lemma]:
    """Return the lemmas of all equations, signs and inferences; with ``regroup``, with hints that reorder sums."""
    every = [(c, e) for c in certificates for e in c.get("equations", ())]
    signs = [(c, e) for c in certificates if c["kind"] == "sign" for e in c["conclusions"]]
    others = [
        (c, e) for c in certificates if c["kind"] not in ("certificate", "sign") for e in c.get("conclusions") or (c,)
    ]
    many = len(every) + len(signs) + len(others)
    names = [identifier(theorem) + ("" if many == 1 else f"_{n}") for n in range(1, many + 1)]
    last = len(every) + len(signs)
    equations = [
        writing.lemma(name, e, c["rules"], c["positive"], regroup) for name, (c, e) in zip(names, every, strict=False)
    ]
    bounds = [writing.bound(name, c, e, regroup) for name, (c, e) in zip(names[len(every) : last], signs, strict=True)]
    return [*equations, *bounds, *[inferred(name, *x, regroup) for name, x in zip(names[last:], others, strict=True)]]


def _concluded(name: str, record: Record, conclusion: Record, regroup: bool) -> writing.Lemma:
    """Return the lemma of a square or a logarithm: by the premises, each side is at most the other."""
    if any(p["kind"] != "certificate" for p in record["premises"]):
        raise Refused(f"coq: it rests on a step by {record['rule']}, which the theory does not have")
    positive, rules = ([x for p in record["premises"] for x in p[key]] for key in ("positive", "rules"))
    names, sorts, scope, free = writing.free_of(conclusion)
    left, right = (term(x, scope, names) for x in writing.simplified(conclusion, sorts, positive))
    stated = Stated(name, names, free, "=", left, right, supposed=Supposed("log" in names.functions))
    stated = writing.with_arrays(stated, positive, (), rules)
    if record["rule"] == "squares":
        if [(x.head, x.numbers, [y.head for y in x.below]) for x in (left, right)] != 2 * [
            ("Fun", left.numbers, ["One"])
        ]:
            raise Refused("coq: the sides are not one function of two expressions")
        a, b = (side.below[0].below[0] for side in (left, right))
        occurring = CoqReader(names)
        for side in (a, b):
            occurring.see(side)
        within = replace(names, functions={f: n for f, n in names.functions.items() if n in occurring.counts})
        part = replace(stated, name=auxiliary(name, "from_1"), names=within, left=a, right=b, supposed=Supposed())
        before = [writing.equated(part, regroup)]
        proof = f"f_equal; apply ({part.name} {variables(reading(part))}); given"
    else:
        turned = ((left, right), (right, left))
        parts = [
            replace(stated, name=auxiliary(name, f"from_{n}"), relation="<=", left=a, right=b)
            for n, (a, b) in enumerate(turned, 1)
        ]
        before = [writing.shown_by(x, _tangent(*both), regroup) for x, both in zip(parts, turned, strict=True)]
        ways = " | ".join(f"apply ({x.name} {variables(reading(x))}); given" for x in parts)
        proof = f"apply Rle_antisym; [{ways}]"
    return writing.lemma_of(stated, readable(stated, f"Proof. intros. {proof}. Qed."), before)


def _tangent(x: Term, y: Term) -> Term:
    """Return e^u − (u + 1), where u is x − y: it is y − x where e^u is 1."""
    u = Term("Add", (), (x, _negated(y)))
    return Term("Add", (), (Term("Exp", (), (u,)), Term("Mul", (), (number(-1), Term("Add", (), (u, number(1)))))))


def _negated(x: Term) -> Term:
    if x.head == "Add":
        return Term("Add", (), tuple(map(_negated, x.below)))
    return x.below[1] if x.head == "Mul" and x.below[0] == number(-1) else Term("Mul", (), (number(-1), x))


_INFERENCES: Mapping[str, Callable[[str, Record, Record, bool], writing.Lemma]] = {
    "largest": lambda name, record, conclusion, regroup: _whole(
        _of_largest(name, record, conclusion, Names()), regroup
    ),
    "substitution": lambda name, record, _, regroup: _substituted(name, record, regroup),
    "fold": lambda name, record, _, regroup: of_fold(name, record, regroup),
    "differing": lambda name, record, *_: of_differing(name, record),
    **dict.fromkeys(("squares", "logarithm"), _concluded),
}
