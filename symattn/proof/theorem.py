"""Theorems: statement, hypotheses, source, a false variant, and how each is decided.

A theorem about arrays is written as a function that gives the pairs of arrays it says are equal; the prover runs it
on ``indexed`` arrays. Its false variant is written the same way and must be refuted by exact numbers, or the prover
is not to be trusted. A witness, the statement itself at small sizes, shows that its hypotheses can be met.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from symattn.arrays.notes import listening
from symattn.document.model import Text
from symattn.document.notation import Node
from symattn.errors import InputError
from symattn.evidence import Evidence, Grade
from symattn.proof.prover import Proof, prove
from symattn.proof.refuting import Counterexample, Search, search
from symattn.proof.statement import Declared, Letters, Sides, pairs


@dataclass(frozen=True)
class Theorem:
    """An equation of arrays. ``says`` is how it is written, ``why`` the reason in words."""

    name: str
    topic: str
    says: tuple[Node, ...]
    why: Text
    source: str
    declared: Declared
    sides: Sides
    false: Sides
    false_says: Text
    hypotheses: tuple[Text, ...] = ()
    top: int = 3  # sizes up to here are searched for counterexamples


@dataclass(frozen=True)
class Outcome:
    """What became of a theorem: its evidence, the proofs of its equations, the witness, and its false variant's fate."""

    theorem: Theorem
    evidence: Evidence
    proofs: tuple[Proof, ...]
    witness: Search
    refutation: Counterexample | None
    false_proved: bool
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    @property
    def sound(self) -> bool:
        """Whether the false variant was refuted, not proved, and the hypotheses can be met."""
        return self.refutation is not None and not self.false_proved and self.witness.agreed > 0

    @property
    def grade(self) -> Grade:
        """The grade of the statement."""
        return self.evidence.grade


def decide(theorem: Theorem) -> Outcome:
    """Prove the theorem, look for counterexamples, and refute its false variant."""
    start = time.perf_counter()
    with listening() as notes:
        proofs = _proofs(theorem.sides, theorem.declared)
    witness = search(theorem.sides, theorem.declared, theorem.top, tries=40)
    false = search(theorem.false, theorem.declared, theorem.top)
    outcome = Outcome(
        theorem,
        _evidence(proofs, witness),
        proofs,
        witness,
        false.counterexample,
        all(p.proved for p in _proofs(theorem.false, theorem.declared)),
        tuple(n for n in notes if n.startswith("hypothesis")),
        time.perf_counter() - start,
    )
    return outcome


def _proofs(sides: Sides, declared: Declared) -> tuple[Proof, ...]:
    from symattn.errors import Refused, Undecided

    try:
        return tuple(prove(left, right, declared.units) for left, right in pairs(sides, declared, Letters()))
    except (Refused, Undecided, InputError) as reason:
        return (Proof(False, why=str(reason)),)


def _evidence(proofs: tuple[Proof, ...], witness: Search) -> Evidence:
    if witness.counterexample:
        return Evidence(Grade.REFUTED, f"at the sizes {_sizes(witness.counterexample.sizes)}")
    if all(p.proved for p in proofs):
        return Evidence(Grade.PROVED, "all sizes")
    if witness.agreed:
        return Evidence(Grade.CHECKED, f"exact numbers, sizes up to {_sizes(witness.largest)}")
    return Evidence(Grade.UNDECIDED, next((p.why for p in proofs if not p.proved), ""))


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{sort} = {n}" for sort, n in sizes.items())


Register = Callable[[Sides], Sides]
