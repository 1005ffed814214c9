"""Verification of graphs of gradients of attention: the jaxpr of ``jax.grad`` or ``jax.vjp``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.arrays.notes import listening
from symattn.arrays.precision import Precision
from symattn.attention.derivative import vjp
from symattn.attention.spec import Attention
from symattn.document.codec import changed_fields
from symattn.document.errors import InputError
from symattn.document.evidence import Verdict
from symattn.programs.graphs.form import Graph
from symattn.programs.graphs.judging import inputs_of, notes_of, semantics, tested
from symattn.programs.graphs.program import Program
from symattn.verification.definitions.gradients import WRT, Gradient, subject
from symattn.verification.definitions.judging import expected
from symattn.verification.report import Fault, Report
from symattn.verification.semantics import Difference, IdentityResult

_JUDGED = Precision.of("float32")
_NEAR = 1e-9  # of the largest gradient, by which a mistake may miss in float64


class Derivative:
    """The gradient of ⟨dO, Attention(Q, K, V)⟩ ``by`` one of q, k, v, of the definition itself; without dO of the sum.

    Everything else is that of the ``attention``.
    """

    def __init__(self, attention: Attention, by: str) -> None:
        self.attention, self.by = attention, by

    def __getattr__(self, name: str) -> Any:
        return getattr(self.attention, name)

    def __call__(self, do: Any = None, **given: Any) -> Any:
        if do is None:
            q, v = given["q"], given["v"]
            do = namespace_of(q).ones((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
        return vjp(self.attention, do, given, (self.by,))[self.by]


def verified(
    graph: Graph, spec: Gradient, names: Mapping[str, str] | None, epsilon: float, seed: int, command: str
) -> Report:
    """Verify that the outputs of a graph are dq, dk and dv, or the first of them, one after the other.

    An input is the gradient of the output, ``do``; without one they are the gradients of the sum of the output.
    Raises ``InputError`` as ``verify_graph`` does, and for more than three outputs.
    """
    if len(graph.outputs) > len(WRT):
        raise InputError(f"{graph.name} has {len(graph.outputs)} outputs; dq, dk, dv are three")
    asked = WRT[: len(graph.outputs)]
    specs: list[Any] = [Derivative(spec.attention, by) for by in asked]
    programs = [replace(Program.of(graph, s, names), output=at) for at, s in enumerate(specs)]
    with listening() as notes:
        result = [tested(p, epsilon / len(asked), seed) for p in programs]
    checks = tuple(replace(semantics(one), name=f"semantics of d{by}") for by, one in zip(asked, result, strict=True))
    wrong = [(p, f.difference) for p, f in zip(programs, result, strict=True) if f.difference is not None]
    open_ = [f"The test of semantics did not decide: {f.reason}" for f in result if f.agrees is None]
    faults = tuple(f for f in (_fault(spec, p, d, seed) for p, d in wrong[:1]) if f)
    if wrong and not faults:
        open_.append("The graph is no identity, but floats do not show it: a number nearly what is meant")
    return Report(
        Verdict.FAULT if faults else Verdict.UNDECIDED if open_ else Verdict.NO_FAULT, graph.name, "exact numbers",
        str(result[0].evidence.where), seed, faults, checks, _notes(programs[0], notes, result), command=command,
        fields=changed_fields(spec.attention), missing=tuple(open_),
    )  # fmt: skip


def _notes(program: Program, heard: Any, found: list[IdentityResult]) -> tuple[str, ...]:
    hypotheses = [n.removeprefix("hypothesis: ") for f in found for n in f.notes if n.startswith("hypothesis: ")]
    results = notes_of(program, [*hypotheses, *(n.removeprefix("hypothesis: ") for n in heard)], found[0])
    summed = () if "do" in program.names else ("They are read as the gradients of the sum of the output.",)
    return (*results, *summed, "Not proved for all sizes: gradients are tested at sizes.")


def _fault(spec: Gradient, program: Program, difference: Difference, seed: int) -> Fault | None:
    """The difference in float64, if no implementation in float32 could make it, and the mistake that explains it."""
    inputs = inputs_of(program, difference.sizes, seed)
    with np.errstate(all="ignore"):
        every = [np.asarray(replace(program, output=at)(inputs)) for at in range(len(program.graph.outputs))]
    got, name = every[program.output], WRT[program.output]
    known = subject(spec, "bhnd" if spec.attention.heads > 1 else "nd")
    given = {"do": np.ones((*inputs["q"].shape[:-1], inputs["v"].shape[-1])), **inputs}
    right = expected(known, given, _JUDGED, known.ways[:1])[program.output]
    if got.shape != right.allowed.shape:
        said = f"the gradient by {name} has the shape {got.shape}, expected {right.allowed.shape}"
        return Fault("backward", None, said, certified=True)
    if not (right.ratios(got) > 1).any():
        return None
    at = np.unravel_index(int(np.nan_to_num(np.abs(got - right.near), nan=np.inf).argmax()), got.shape)
    where = f"at d{name}{[int(n) for n in at]}: got {got[at]:.6g}, expected {right.near[at]:.6g}; {difference.sizes}"
    for mistake in (*known.mistakes, *known.others):
        if _is_explained(partial(known.run, mistake.run), given, every):
            return Fault(mistake.step, mistake.cause, f"{mistake.cause}; {where}", certified=True)
    said = f"the gradient by {name} differs from the exact one {where}; no single mistake explains it"
    return Fault("backward", None, said, certified=True)


def _is_explained(run: Any, given: Mapping[str, Any], got: list[np.ndarray]) -> bool:
    """Return whether a mistake gives all that the graph gave."""
    try:
        with np.errstate(all="ignore"):
            wrong = [np.asarray(y, dtype=np.float64) for y in run(given)]
    except (ValueError, TypeError, LookupError, ZeroDivisionError):  # it cannot be made at these sizes
        return False
    return all(
        y.shape == g.shape and bool((np.abs(y - g) <= _NEAR * np.abs(y).max(initial=0.0)).all())
        for y, g in zip(wrong, got, strict=False)
    )
