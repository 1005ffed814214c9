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
from dataclasses import dataclass, field
from typing import Any

from symattn.derivations import derive
from symattn.document.notation import Relation
from symattn.document.text import text
from symattn.evidence import Grade
from symattn.statement.comparing import FalseStep
from symattn.statement.judging import Asked, recorded
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
    ("mla", {}),
    ("kv-cache", {}),
    ("online-softmax", {}),
    ("lookup", {}),
    ("scaling", {}),
    ("scaling", {"dk": 1, "mean": "mu"}),
    ("scaling", {"dk": 2, "mean": "-1/3"}),
)


@dataclass
class Figures:
    """What became of the mutants of a document, by kind."""

    refused: Counter[str] = field(default_factory=Counter)
    true: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    survivors: list[str] = field(default_factory=list)


def questions(name: str, parameters: dict[str, Any]) -> list[Asked]:
    """What the document decides while it is made, each relation once."""
    with recorded() as asked:
        derive(name, **parameters)
    return list({text(a.relation): a for a in asked}.values())


def changed(asked: Asked) -> Iterator[tuple[str, Relation]]:
    """Its relation falsified, in every way."""
    letters = letters_of(asked.relation, asked.indices, asked.sizes, asked.matrices)
    yield from mutants(asked.relation, letters).values()


def falsified(every: Iterable[Asked], stride: int = 1) -> Figures:
    """The mutants of all that was asked, or one in ``stride`` of them."""
    found = Figures()
    mutated = [(asked, kind, mutant) for asked in every for kind, mutant in changed(asked)]
    for asked, kind, mutant in mutated[::stride]:
        try:
            grade = asked.decide(mutant).grade
        except FalseStep:
            found.refused[kind] += 1
            continue
        if grade is Grade.PROVED or asked.example:
            found.true[kind] += 1
        else:
            found.survived[kind] += 1
            found.survivors.append(f"{kind}: {text(mutant)}   (of {text(asked.relation)})")
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
