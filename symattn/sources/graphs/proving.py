"""Whether a graph equals its specification for all sizes that were left open: a theorem that the graph states."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from inspect import Parameter, Signature
from typing import Any

from symattn.attention.spec import Attention
from symattn.evidence import Evidence, Grade
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from symattn.sources.graphs.program import Program

MOST = 64  # d_model · d_model · heads: what is proved within minutes


def size(program: Program) -> int:
    """How much work a proof is: every column of every head is an expression in d_model² products."""
    return program.sizes.d_model**2 * program.spec.heads


def proved(program: Program) -> tuple[Evidence, tuple[str, ...], tuple[str, ...]]:
    """The evidence for graph = specification; the hypotheses, and why it is no proof where it is none, in words.

    The false variant, the same graph against another scale, must be refuted, and exact numbers at which both sides are
    defined must be found; else nothing is known.
    """
    spec, names = program.spec, program.names
    declared = Declared({n: program.sizes.declared(n, spec, names) for n in names})
    wrong = replace(spec, scale=Fraction(1, 3) if spec.scale != Fraction(1, 3) else 1)
    identity = Identity(declared, _sides(program, spec), _sides(program, wrong), top=2)
    decision = identity.decide()
    said, why = (tuple(dict.fromkeys(map(_words, x))) for x in (decision.hypotheses, decision.argument))
    evidence = decision.evidence
    if evidence.grade in (Grade.PROVED, Grade.CHECKED):
        refuted = identity.refute()
        if not refuted.refuted or refuted.accepted or not identity.witness():
            return Evidence(Grade.UNDECIDED, "a false variant was not refuted"), said, why
    if evidence.grade is Grade.PROVED:
        evidence = replace(evidence, where=f"all {', '.join(program.sizes.open)}")
    return evidence, said, why


def _sides(program: Program, spec: Attention) -> Any:
    """Both sides as a function of the inputs by name."""

    def sides(**inputs: Any) -> tuple[Any, Any]:
        return program(inputs), spec(**inputs)

    sides.__signature__ = Signature([Parameter(n, Parameter.KEYWORD_ONLY) for n in program.names])  # type: ignore[attr-defined]
    return sides


def _words(text: Any) -> str:
    return "".join(part if isinstance(part, str) else str(part) for part in text)
