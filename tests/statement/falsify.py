"""Every relation of every derivation, falsified: which of the false formulas would have been printed with a grade.

    python -m tests.statement.falsify [NAME…]

A mutant is refused if the section of its document raises FalseStep for it, which is what happens when the document is
made. One that is proved for all sizes, or decided in the exact numbers of an example, is true; the others that pass
are survivors, and are listed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from symattn.derivations import derive
from symattn.document.text import text
from symattn.evidence import Grade
from symattn.statement.comparing import FalseStep
from symattn.statement.judging import Question, judged, recorded
from tests.statement.mutants import letters_of, mutants

DOCUMENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("jacobian", {}),
    ("jacobian", {"tokens": 2}),
    ("jacobian", {"tokens": 5}),
    ("shift", {}),
    ("matrix-form", {}),
    ("equivariance", {}),
    ("backward", {}),
    ("sinks", {}),
)


@dataclass
class Figures:
    """What became of the mutants of a document, by kind."""

    refused: Counter[str] = field(default_factory=Counter)
    true: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    survivors: list[str] = field(default_factory=list)


def questions(name: str, parameters: dict[str, Any]) -> list[Question]:
    """What the document asks while it is made, each question once."""
    with recorded() as asked:
        derive(name, **parameters)
    return list({text(q.relation): q for q in asked}.values())


def changed(question: Question) -> Iterator[tuple[str, Question]]:
    """The question with its relation falsified, in every way."""
    g = question.glossary
    letters = letters_of(question.relation, tuple(g.index), tuple(g.sizes), frozenset({*g.given, *g.defined}))
    for kind, relation in mutants(question.relation, letters).values():
        yield kind, replace(question, relation=relation)


def falsified(asked: Iterable[Question], every: int = 1) -> Figures:
    """The mutants of ``asked``, or each of them whose number is divided by ``every``."""
    found = Figures()
    mutated = [(q, kind, m) for q in asked for kind, m in changed(q)]
    for question, kind, mutant in mutated[::every]:
        try:
            grade = judged(mutant).grade
        except FalseStep:
            found.refused[kind] += 1
            continue
        if grade is Grade.PROVED or mutant.glossary.example:
            found.true[kind] += 1
        else:
            found.survived[kind] += 1
            found.survivors.append(f"{kind}: {text(mutant.relation)}   (of {text(question.relation)})")
    return found


def main(names: list[str]) -> None:
    """Print a line for each document, then its survivors."""
    whole = Figures()
    for name, parameters in DOCUMENTS:
        if names and name not in names:
            continue
        found = falsified(questions(name, parameters))
        made = sum(sum(c.values()) for c in (found.refused, found.true, found.survived))
        label = " ".join([name, *(f"{k}={v}" for k, v in parameters.items())])
        print(f"{label:28} {made:5} mutants  {sum(found.refused.values()):5} refused  "
              f"{sum(found.true.values()):4} true  {len(found.survivors):3} survive", flush=True)  # fmt: skip
        print(*(f"    {s}" for s in found.survivors), sep="\n")
        for here, there in ((whole.refused, found.refused), (whole.true, found.true), (whole.survived, found.survived)):
            here.update(there)
    for kind in sorted({*whole.refused, *whole.true, *whole.survived}):
        print(
            f"{kind:16} refused {whole.refused[kind]:5}  true {whole.true[kind]:4}  survived {whole.survived[kind]:3}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
