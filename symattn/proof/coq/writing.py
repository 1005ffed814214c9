"""Files for Coq: the equations of certificates with their hints, and the statement of each for readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symattn.errors import Refused
from symattn.proof.checker_reading import Node, Rejected, read
from symattn.proof.checker_simplifying import Simplifying, sides
from symattn.proof.coq.readable import Readable, identifier, readable
from symattn.proof.coq.steps import steps
from symattn.proof.coq.terms import Names, circles, term

HEAD = """From Coq Require Import Reals List.
From Symattn Require Import Reading.
Import ListNotations.
"""


@dataclass(frozen=True)
class Lemma:
    """One equation: the name of its theorem, the whole text, and the statement for readers; or why there is none."""

    name: str
    text: str = ""
    readable: Readable | None = None
    why: str = ""
    names: Names = field(default_factory=Names)


def lemmas(theorem: str, certificates: Sequence[Mapping[str, Any]], regroup: bool = False) -> list[Lemma]:
    """All equations of a theorem's certificates, in order; with ``regroup`` there are hints to put sums in order."""
    every = [(c, e) for c in certificates for e in c.get("equations", ())]
    alone = len(every) == 1
    return [
        lemma(identifier(theorem) + ("" if alone else f"_{n}"), e, c["rules"], c["positive"], regroup)
        for n, (c, e) in enumerate(every, 1)
    ]


def lemma(
    name: str, equation: Mapping[str, Any], rules: Sequence[Any], positive: Sequence[str], regroup: bool = False
) -> Lemma:
    """An equation of a certificate; ``rules`` are the pairs (cos, sin), ``positive`` the arrays that are positive."""
    names = Names()
    sorts = {str(name): str(sort) for name, sort in equation["free"]}
    scope = tuple((i, names.sort(sort)) for i, sort in sorts.items())
    free = tuple(sort for _, sort in scope)
    try:
        left, right = (term(x, scope, names) for x in simplified(equation, sorts, positive))
    except (Refused, Rejected) as reason:
        return Lemma(name, why=str(reason))
    plus = [n for word in positive for n in names.with_name(word)]
    pairs = circles(rules, names)
    hints = steps(free, (left, right), frozenset(plus), regroup)
    said = readable(name, names, free, left, right, plus, pairs)
    lists = [_list(map(str, plus)), _list(map(str, pairs)), str(len(names.sorts)), "6" if regroup else "1"]
    return Lemma(
        name,
        f"""Open Scope nat_scope.
Definition left_{name} := {left}.
Definition right_{name} := {right}.
Definition steps_{name} : list step := {_list(map(str, hints))}.
Lemma accepted_{name} :
  accepts {" ".join(lists)} steps_{name} {_list(map(str, free))} left_{name} right_{name} = true.
Proof. vm_cast_no_check (eq_refl true). Qed.
Close Scope nat_scope.
Open Scope R_scope.
{said.statement}
{said.proof}
""",
        said,
        names=names,
    )


def simplified(equation: Mapping[str, Any], sorts: Mapping[str, str], positive: Sequence[str]) -> tuple[Node, Node]:
    """Both sides by the rules of ``checker_simplifying``: Coq knows none for roots, logarithms and permutations."""
    simplify = Simplifying(frozenset(map(str, positive)))
    left, right = (simplify(read(equation[side], sorts)) for side in ("left", "right"))
    return sides(left, right, sorts)


def _list(parts: Iterable[str]) -> str:
    return f"[{'; '.join(parts)}]"
