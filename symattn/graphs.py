"""Whether an exported graph computes the attention of a specification, at all sizes that the export left open.

``read`` makes a graph of anything that ``verify_graph`` takes, which ``run`` computes on arrays of any kind; ``traced``
makes one of a function of JAX. ``attention_of`` reads one node of an ONNX graph as an ``Attention``, and
``verify_trace`` judges the arrays that a run has saved.

>>> import jax
>>> from symattn import Attention, graphs, kind
>>> n = jax.export.symbolic_shape("n")[0]
>>> q = jax.ShapeDtypeStruct((n, 4), "float32")
>>> graph = graphs.traced(lambda q, k, v: jax.nn.softmax(q @ k.T / 2) @ v, q, q, q)
>>> report = graphs.verify_graph(graph, Attention())
>>> [(check.name, check.grade.value) for check in report.checks]
[('semantics', 'tested'), ('all n', 'proved')]
>>> x = kind("exact").lift([[2, 0, 0, 0]])
>>> graphs.run(graph, {"q": x, "k": x, "v": x}, x)[0]
exact([[2, 0, 0, 0]])
"""

from __future__ import annotations

# Equality at all open sizes is a theorem about the graph: this module connects prover and programs.
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
from symattn.programs.graphs.running import run
from symattn.programs.onnx import attention_of
from symattn.programs.program import read
from symattn.programs.traces import verify_trace
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from symattn.verification.definitions.gradients import Gradient
from symattn.verification.report import Report
from symattn.verification.semantics import EPSILON

__all__ = ["attention_of", "read", "run", "traced", "verify_graph", "verify_trace"]


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
    """Judge whether a graph computes ``spec`` for all values of its weights.

    ``source`` is the path of an .onnx file, a ``ModelProto``, an ``ExportedProgram`` of torch, a
    ``ClosedJaxpr`` of JAX, or a ``Graph``, such as ``traced`` makes of a function. Weights
    and inputs are identified by name; ``names`` overrides unclear ones: ``{"w_q": "onnx::MatMul_57"}``. The graph runs
    on residues, with letters for its weights: it is tested for semantics, with a probability of at most ``epsilon`` of
    a wrong acceptance. Then sizes that were left open become letters, and equality is proved for all of them; if
    ``prove`` is None, only for layers that are small enough (``judging.MOST``). A difference is a fault if no
    implementation in float32 could make it, and is reported with the mistake that explains it. For a ``Gradient``, the
    outputs of the graph are dq, dk, dv, or the first of them.
    Raises ``InputError`` for a source that cannot be read, an unsupported operator, a node that cannot be computed, and
    an array that cannot be identified.
    """
    return judge_graph(source, spec, proved, names, prove, epsilon, seed, command)


def proved(program: GraphProgram) -> tuple[Evidence, tuple[str, ...], tuple[str, ...]]:
    """Return the evidence for graph = specification, the hypotheses and, unless it is a proof, the reason why not.

    The false variant, the same graph with another scale in the specification, must be refuted, and there must be exact
    numbers at which both sides are defined; else the result is undecided.
    """
    spec, names = program.spec, program.names
    declared = Declared({n: program.sizes.declared(n, spec, names) for n in names})
    wrong = replace(spec, scale=Fraction(1, 3) if spec.scale != Fraction(1, 3) else 1)
    identity = Identity(
        declared, _make_sides_of_graph(program, spec), _make_sides_of_graph(program, wrong), top=2
    )
    decision = identity.decide()
    texts = decision.hypotheses, decision.argument
    hypotheses, why = (tuple(dict.fromkeys("".join(map(str, text)) for text in x)) for x in texts)
    evidence = decision.evidence
    if evidence.grade in (Grade.PROVED, Grade.CHECKED, Grade.SEARCHED):
        refuted = identity.refute()
        if not refuted.refuted or refuted.accepted or not identity.witness():
            return Evidence(Grade.UNDECIDED, "a false variant was not refuted"), hypotheses, why
    if evidence.grade is Grade.PROVED:
        evidence = replace(evidence, where=f"all {', '.join(program.sizes.open)}")
    return evidence, hypotheses, why


def _make_sides_of_graph(program: GraphProgram, spec: Attention) -> Any:
    """Return both sides as a function of the inputs by name."""

    def sides(**inputs: object) -> tuple[Any, Any]:
        return program(inputs), spec(**inputs)

    sides.__signature__ = Signature([Parameter(n, Parameter.KEYWORD_ONLY) for n in program.names])  # type: ignore[attr-defined]
    return sides
