"""``verify_graph``: does an exported graph compute the attention that a specification says?

Equality at all sizes that were left open is a theorem that the graph states: here the prover meets the programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from inspect import Parameter, Signature
from typing import Any

from symattn.attention.spec import Attention
from symattn.document.evidence import Evidence, Grade
from symattn.programs.graphs.graph_program import GraphProgram
from symattn.programs.graphs.jax_reader import traced
from symattn.programs.graphs.judging import judge_graph
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from symattn.verification.definitions.gradients import Gradient
from symattn.verification.report import Report
from symattn.verification.semantics import EPSILON

__all__ = ["traced", "verify_graph"]


def verify_graph(
    source: object,
    spec: Attention | Gradient | None = None,
    *,
    names: Mapping[str, str] | None = None,
    prove: bool | None = None,
    epsilon: float = EPSILON,
    seed: int = 0,
    command: str = "",
) -> Report:
    """Judge whether a graph computes ``spec``, whatever its weights are.

    ``source`` is the path of an .onnx file, a ``ModelProto``, an ``ExportedProgram`` of torch, a
    ``ClosedJaxpr`` of JAX, or a ``Graph``, such as ``jax_reader.traced`` makes of a function. Weights
    and inputs are found by their names; ``names`` tells where they say nothing: ``{"w_q": "onnx::MatMul_57"}``. The
    graph runs on residues, with letters for its weights: it is tested for semantics, a wrong yes having a probability
    of at most ``epsilon``. Sizes that were left open are letters then, and equality is proved for all of them: where
    ``prove`` is None, if the layer is small enough (``judging.MOST``). A difference is a fault if no implementation in
    float32 could make it, and is told by the mistake that explains it. Of a ``Gradient``, the outputs of the graph are
    dq, dk, dv, or the first of them.
    Raises ``InputError`` for a source that cannot be read, an operator that is not, a node that cannot be computed, and
    where it is open what an array is.
    """
    return judge_graph(source, spec, proved, names, prove, epsilon, seed, command)


def proved(program: GraphProgram) -> tuple[Evidence, tuple[str, ...], tuple[str, ...]]:
    """The evidence for graph = specification; the hypotheses, and why it is no proof where it is none, in words.

    The false variant, the same graph against another scale, must be refuted, and exact numbers at which both sides are
    defined must be found; else nothing is known.
    """
    spec, names = program.spec, program.names
    declared = Declared({n: program.sizes.declared(n, spec, names) for n in names})
    wrong = replace(spec, scale=Fraction(1, 3) if spec.scale != Fraction(1, 3) else 1)
    identity = Identity(declared, _sides(program, spec), _sides(program, wrong), top=2)
    decision = identity.decide()
    texts = decision.hypotheses, decision.argument
    said, why = (tuple(dict.fromkeys("".join(map(str, text)) for text in x)) for x in texts)
    evidence = decision.evidence
    if evidence.grade in (Grade.PROVED, Grade.CHECKED):
        refuted = identity.refute()
        if not refuted.refuted or refuted.accepted or not identity.witness():
            return Evidence(Grade.UNDECIDED, "a false variant was not refuted"), said, why
    if evidence.grade is Grade.PROVED:
        evidence = replace(evidence, where=f"all {', '.join(program.sizes.open)}")
    return evidence, said, why


def _sides(program: GraphProgram, spec: Attention) -> Any:
    """Both sides as a function of the inputs by name."""

    def sides(**inputs: object) -> tuple[Any, Any]:
        return program(inputs), spec(**inputs)

    sides.__signature__ = Signature([Parameter(n, Parameter.KEYWORD_ONLY) for n in program.names])  # type: ignore[attr-defined]
    return sides
