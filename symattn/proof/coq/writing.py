"""Files for Coq: the equations of certificates with their hints, and the statement of each for readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symattn.errors import Refused
from symattn.proof.checker_reading import Node, Rejected, array_of, in_place, read
from symattn.proof.checker_signs import Signs
from symattn.proof.checker_simplifying import Simplifying, sides
from symattn.proof.coq.bounds import shaped, unsupported
from symattn.proof.coq.readable import Readable, Stated, identifier, readable
from symattn.proof.coq.steps import Step, in_order, steps
from symattn.proof.coq.terms import Names, Scope, Term, circles, number, term

HEAD = """From Coq Require Import Reals List.
From Symattn Require Import Reading.
Import ListNotations.
"""


@dataclass(frozen=True)
class Lemma:
    """One equation: the name of its theorem, the whole text, and the statement for readers; or why there is none.

    ``alike`` says that both sides are one term, so that the definitions made them equal before Coq saw them.
    """

    name: str
    text: str = ""
    readable: Readable | None = None
    why: str = ""
    names: Names = field(default_factory=Names)
    alike: bool = False


def lemmas(theorem: str, certificates: Sequence[Mapping[str, Any]], regroup: bool = False) -> list[Lemma]:
    """All equations and signs of a theorem's certificates; with ``regroup`` there are hints to put sums in order."""
    every = [(c, e) for c in certificates for e in c.get("equations", ())]
    signs = [(c, e) for c in certificates if c["kind"] == "sign" for e in c["conclusions"] or (c,)]
    alone = len(every) + len(signs) == 1
    names = [identifier(theorem) + ("" if alone else f"_{n}") for n in range(1, len(every) + len(signs) + 1)]
    equations = [lemma(name, e, c["rules"], c["positive"], regroup) for name, (c, e) in zip(names, every, strict=False)]
    bounds = [bound(name, c, e, regroup) for name, (c, e) in zip(names[len(every) :], signs, strict=True)]
    return [*equations, *bounds]


def lemma(
    name: str, equation: Mapping[str, Any], rules: Sequence[Any], positive: Sequence[str], regroup: bool = False
) -> Lemma:
    """An equation of a certificate; ``rules`` are the pairs (cos, sin), ``positive`` the arrays that are positive."""
    names, sorts, scope, free = _free(equation)
    try:
        left, right = (term(x, scope, names) for x in simplified(equation, sorts, positive))
    except (Refused, Rejected) as reason:
        return Lemma(name, why=str(reason))
    said = Stated(name, names, free, "=", left, right, _named(names, positive), (), tuple(circles(rules, names)))
    hints = steps(free, (left, right), frozenset(said.plus), regroup)
    return _lemma(said, "accepts", hints, regroup)


def bound(name: str, sign: Mapping[str, Any], conclusion: Mapping[str, Any], regroup: bool = False) -> Lemma:
    """An inequality that a certificate of a sign concludes, or where it concludes none, that its expression is > 0."""
    names, sorts, scope, free = _free(sign)
    positive = tuple(map(str, sign["positive"]))
    try:
        if sign is conclusion:
            x = term(read(sign["expression"], sorts), scope, names)
            return _positive(Stated(name, names, free, "<", None, x, _named(names, positive)))
        if reason := unsupported(sign):
            return Lemma(name, why=reason)
        both = {"left": conclusion["smaller"], "right": conclusion["larger"]}
        left, right = (term(x, scope, names) for x in simplified(both, sorts, positive))
        signs = Signs({}, frozenset(positive), frozenset(map(str, sign["not negative"])))
        meant = {str(m["letter"]): ([i for i, _ in m["free"]], m["expression"]) for m in sign["meant"]}
        shown = read(in_place(shaped(read(sign["expression"], sorts), signs), meant), sorts)
        why = term(shown, scope, names)
        given = tuple(_given(m, names) for m in sign["meant"] if array_of(str(m["letter"])) in signs.known)
    except (Refused, Rejected) as reason:
        return Lemma(name, why=str(reason))
    least = tuple(n for k, n in names.arrays.items() if array_of(k[0]) in signs.known and k[0] not in positive)
    pairs = tuple(circles(sign["rules"], names))
    said = Stated(name, names, free, "<=", left, right, _named(names, positive), least, pairs, given)
    gap = Term("Add", (), (right, Term("Mul", (), (number(-1), left))))
    return _lemma(said, "bounds", steps(free, (gap, why), frozenset(said.plus), regroup), regroup, why)


def _free(x: Mapping[str, Any]) -> tuple[Names, dict[str, str], Scope, tuple[int, ...]]:
    """Names for an equation, the sorts of its free indices, and these as a scope and by number."""
    names = Names()
    sorts = {str(name): str(sort) for name, sort in x["free"]}
    scope = tuple((i, names.sort(sort)) for i, sort in sorts.items())
    return names, sorts, scope, tuple(sort for _, sort in scope)


def _given(meant: Mapping[str, Any], names: Names) -> tuple[tuple[int, ...], Term]:
    """What a letter stands for that is assumed not to be negative."""
    sorts = {str(name): str(sort) for name, sort in meant["free"]}
    scope = tuple((i, names.sort(sort)) for i, sort in sorts.items())
    return in_order(term(read(meant["expression"], sorts), scope, names), [sort for _, sort in scope])


def _named(names: Names, words: Sequence[str]) -> tuple[int, ...]:
    return tuple(n for word in words for n in names.with_name(word))


def _positive(said: Stated) -> Lemma:
    shown = f"Lemma accepted_{said.name} : positive {_list(map(str, said.plus))} right_{said.name} = true."
    return _whole(said, f"{shown}\nProof. reflexivity. Qed.")


def _lemma(said: Stated, by: str, hints: Sequence[Step], regroup: bool, why: Term | None = None) -> Lemma:
    lists = [_list(map(str, x)) for x in (said.plus, *([said.least] if why else []), said.circles)]
    lists += [_list(f"({_list(map(str, sorts))}, {x})" for sorts, x in said.given)] if why else []
    numbers = f"{len(said.names.sorts)} {6 if regroup else 1}"
    free = _list(map(str, said.free))
    sides = f"left_{said.name} right_{said.name}" + (f" why_{said.name}" if why else "")
    shown = f"""Definition steps_{said.name} : list step := {_list(map(str, hints))}.
Lemma accepted_{said.name} :
  {by} {" ".join(lists)} {numbers} steps_{said.name} {free} {sides} = true.
Proof. vm_cast_no_check (eq_refl true). Qed."""
    return _whole(said, f"Definition why_{said.name} := {why}.\n{shown}" if why else shown)


def _whole(said: Stated, shown: str) -> Lemma:
    """The text of a lemma, from its sides to the statement for readers."""
    told = readable(said)
    sides = "".join(
        f"Definition {side}_{said.name} := {x}.\n" for side, x in (("left", said.left), ("right", said.right)) if x
    )
    text = f"Open Scope nat_scope.\n{sides}{shown}\nClose Scope nat_scope.\nOpen Scope R_scope.\n"
    return Lemma(
        said.name, f"{text}{told.statement}\n{told.proof}\n", told, names=said.names, alike=said.left == said.right
    )


def simplified(equation: Mapping[str, Any], sorts: Mapping[str, str], positive: Sequence[str]) -> tuple[Node, Node]:
    """Both sides by the rules of ``checker_simplifying``: Coq knows none for roots, logarithms and permutations."""
    simplify = Simplifying(frozenset(map(str, positive)))
    left, right = (simplify(read(equation[side], sorts)) for side in ("left", "right"))
    return sides(left, right, sorts)


def _list(parts: Iterable[str]) -> str:
    return f"[{'; '.join(parts)}]"
