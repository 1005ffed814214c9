"""Every relation of derivations, variants and theorems, falsified: which false ones would be printed with a grade.

    python -m tests.proof.statement.falsify [NAME…]

NAME is a derivation (``attention`` for all variants), ``walk``, a theorem or a topic. A mutant is refused if FalseStep
is raised for it in the place of the relation, which is what happens when the document is made or the theorem decided.
One that is proved for all sizes, decided in exact numbers, or differs from the printed one in parts that are proved
equal, is true; the others that pass are survivors, and are listed.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from symattn import Grade, derive, proving, theorems, walk
from symattn import printing as pr
from symattn.attention.variants import VARIANTS
from symattn.derivations.examples import names as examples
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import DecidedRelation, recorded
from symattn.proof.relations.sentences import claims
from symattn.theorems.reading import Statement
from tests.derivations import asking
from tests.proof.statement.mutants import letters_of, mutants

DOCUMENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("jacobian", {}),
    ("jacobian", {"tokens": 2}),
    ("jacobian", {"tokens": 5}),
    ("shift", {}),
    ("matrix-form", {}),
    ("equivariance", {}),
    ("backward", {}),
    ("sinks", {}),
    ("mla", {}),
    ("kv-cache", {}),
    ("online-softmax", {}),
    ("lookup", {}),
    ("gqa", {}),
    ("rope", {}),
    ("initialisation", {}),
    ("scaling", {}),
    ("scaling", {"dk": 1, "mean": "mu"}),
    ("scaling", {"dk": 2, "mean": "-1/3"}),
)

VARIANT_DOCUMENTS = tuple(("attention", asking.asked(name)) for name in VARIANTS)
"""``derive attention`` for every variant."""


@dataclass
class Figures:
    """What became of the mutants of a document, by kind."""

    refused: Counter[str] = field(default_factory=Counter)
    true: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    survivors: list[str] = field(default_factory=list)


def questions(name: str, parameters: dict[str, Any]) -> list[DecidedRelation]:
    """What the document decides while it is made, each relation once."""
    with recorded() as asked:
        derive(name, **parameters)
    return list({pr.text(a.relation): a for a in asked}.values())


def walked(name: str) -> list[DecidedRelation]:
    """What a walk through an example decides while it is made, reasons and all, each relation once."""
    with recorded() as asked:
        walk(name, why=True)
    return list({pr.text(a.relation): a for a in asked}.values())


def printed(theorem: proving.Theorem) -> list[DecidedRelation]:
    """What the statement of a theorem claims and is decided from its print, each relation once."""
    if not isinstance(theorem.letters, Glossary):
        return []
    statement = Statement(theorem.letters, theorem.hypotheses, theorem.says, theorem.false_says)
    with recorded() as asked:
        for claim in claims(theorem.says):
            if not claim.denied:
                statement.decided(claim)
    said = {pr.text(claim.relation) for claim in claims(theorem.says)}
    said |= {pr.text(c) for claim in claims(theorem.says) if claim.only for c in claim.conditions}
    return list({pr.text(a.relation): a for a in asked if pr.text(bare(a.relation)) in said}.values())


def bare(relation: pr.Relation) -> pr.Relation:
    """The relation without the condition under which its sides stand."""
    if not isinstance(relation.first, pr.At):
        return relation
    rest = tuple((sign, side.body if isinstance(side, pr.At) else side) for sign, side in relation.rest)
    return pr.Relation(relation.first.body, rest)


def changed(asked: DecidedRelation) -> Iterator[tuple[str, pr.Relation]]:
    """Its relation falsified, in every way."""
    letters = letters_of(asked.relation, asked.indices, asked.sizes, asked.matrices)
    yield from mutants(asked.relation, letters).values()


def restated(x: Any, y: Any, asked: DecidedRelation) -> bool:
    """Whether ``y`` says what ``x`` says: they differ in parts that are proved equal, or in the order of numbers."""
    if x == y:
        return True
    if isinstance(x, tuple) and isinstance(y, tuple):
        return len(x) == len(y) and all(restated(a, b, asked) for a, b in zip(x, y, strict=True))
    if not isinstance(x, pr.Node) or not isinstance(y, pr.Node):
        return False
    if not isinstance(x, pr.Relation) and (_commuted(x, y, asked) or asked.equal(x, y)):
        return True
    whole: Any = x
    names = [f.name for f in fields(whole)] if type(x) is type(y) else []
    return bool(names) and all(restated(getattr(x, name), getattr(y, name), asked) for name in names)


def _commuted(x: pr.Node, y: pr.Node, asked: DecidedRelation) -> bool:
    """Whether both are one product in two orders: of numbers and at most one other thing, or of two vectors."""
    if not isinstance(x, pr.Product) or not isinstance(y, pr.Product) or Counter(x.factors) != Counter(y.factors):
        return False
    dot = x.sign == y.sign == "·" and len(x.factors) == 2
    return (dot and asked.number(x)) or sum(not asked.number(factor) for factor in x.factors) < 2


def weaker(asked: DecidedRelation, mutant: pr.Relation) -> bool:
    """Whether ``mutant`` follows from x ≤ y by what is printed: x is |z| or the largest |z|, and z stands there."""
    if not isinstance(asked.relation, pr.Relation) or not isinstance(mutant, pr.Relation):
        return False  # a row of formulas
    signs = {sign for sign, _ in (*asked.relation.rest, *mutant.rest)}
    same = asked.relation.rest == mutant.rest
    return signs <= {"≤", "<"} and same and _without_bars(asked.relation.first) == mutant.first


def _without_bars(x: pr.Node) -> pr.Node:
    match x:
        case pr.Fence("abs", body):
            return body
        case pr.Big("max"):
            return replace(x, body=_without_bars(x.body))
        case pr.Call(pr.Name("max"), (of,)):
            return replace(x, arguments=(_without_bars(of),))
    return x


def falsified(every: Iterable[DecidedRelation], stride: int = 1) -> Figures:
    """The mutants of all that was asked, or one in ``stride`` of them."""
    found = Figures()
    mutated = [(asked, kind, mutant) for asked in every for kind, mutant in changed(asked)]
    for asked, kind, mutant in mutated[::stride]:
        try:
            grade = asked.decide(mutant).grade
        except FalseStep:
            found.refused[kind] += 1
            continue
        if grade is Grade.PROVED or asked.exact or restated(asked.relation, mutant, asked) or weaker(asked, mutant):
            found.true[kind] += 1
        else:
            found.survived[kind] += 1
            found.survivors.append(f"{kind}: {pr.text(mutant)}   (of {pr.text(asked.relation)})")
    return found


def main(names: list[str]) -> None:
    """Print a line for each document and each topic of theorems, with its survivors; then one for each kind."""
    whole = Figures()
    for label, every in _wanted(names):
        found = falsified(every)
        made = sum(sum(c.values()) for c in (found.refused, found.true, found.survived))
        print(f"{label:28} {made:5} mutants  {sum(found.refused.values()):5} refused  "
              f"{sum(found.true.values()):4} true  {len(found.survivors):3} survive", flush=True)  # fmt: skip
        print(*(f"    {s}" for s in found.survivors), sep="\n")
        for here, there in ((whole.refused, found.refused), (whole.true, found.true), (whole.survived, found.survived)):
            here.update(there)
    for kind in sorted({*whole.refused, *whole.true, *whole.survived}):
        print(
            f"{kind:16} refused {whole.refused[kind]:5}  true {whole.true[kind]:4}  survived {whole.survived[kind]:3}"
        )


def _wanted(names: list[str]) -> Iterator[tuple[str, list[DecidedRelation]]]:
    for name, parameters in (*DOCUMENTS, *VARIANT_DOCUMENTS):
        if not names or name in names:
            yield " ".join([name, *(f"{k}={v}" for k, v in parameters.items())])[:60], questions(name, parameters)
    for name in examples():
        if not names or "walk" in names:
            yield f"walk {name}", walked(name)
    for topic in theorems.TOPICS:
        for theorem in theorems.of_topic(topic):
            if not names or {theorem.name, topic} & {*names}:
                yield theorem.name, printed(theorem)


if __name__ == "__main__":
    main(sys.argv[1:])
