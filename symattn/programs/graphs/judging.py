"""Verification of exported graphs: each computes the attention that a specification says, or does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.notes import listening
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.inputs import Sizes
from symattn.bounds.judge import expected
from symattn.document.codec import changed_fields
from symattn.document.errors import InputError
from symattn.document.evidence import Evidence, Grade, Verdict
from symattn.programs.graphs.form import Graph
from symattn.programs.graphs.program import Program
from symattn.verification.arithmetic.suspects import BitSample, explained
from symattn.verification.definitions.gradients import Gradient
from symattn.verification.report import Check, Fault, Report
from symattn.verification.semantics import Difference, IdentityResult, drawn, identity_test

_JUDGED = Precision.of("float32")  # beyond what an implementation in it may do, a difference is a fault
_LEFT = 1e-6  # of the squared difference that a mistake which explains it may leave: the graph is run in float64
_ABOUT = "The graph is run by the definitions of its operators; no runtime is, and nothing is said of its rounding."


#: What proves that a program equals its specification at all sizes left open: the evidence, the hypotheses, and why it
#: is no proof where it is none.
Prover = Callable[[Program], tuple[Evidence, tuple[str, ...], tuple[str, ...]]]
MOST = 64  # d_model · d_model · heads: what is proved within minutes


def judge_graph(
    source: object,
    spec: Attention | Gradient | None,
    prover: Prover,
    names: Mapping[str, str] | None,
    prove: bool | None,
    epsilon: float,
    seed: int,
    command: str,
) -> Report:
    """Judge a graph as ``symattn.graphs.verify_graph`` says, with what ``prover`` proves."""
    spec, graph = spec or Attention(), read(source)
    if isinstance(spec, Gradient):
        from symattn.programs.graphs import backward

        return backward.verified(graph, spec, names, epsilon, seed, command)
    program = Program.of(graph, spec, names)
    with listening() as notes:
        identity = tested(program, epsilon, seed)
    hypotheses = [n.removeprefix("hypothesis: ") for n in (*identity.notes, *notes) if n.startswith("hypothesis: ")]
    judged = _judged(program, identity, partial(_proof, prover, prove), seed)
    open_ = judged.verdict is Verdict.UNDECIDED
    return Report(
        judged.verdict, f"{graph.name}", "exact numbers", str(identity.evidence.where), seed, judged.faults,
        (semantics(identity), *judged.checks),
        (*notes_of(program, [*hypotheses, *judged.hypotheses], identity), *(() if open_ else judged.why)),
        command=command, fields=changed_fields(spec), missing=judged.why if open_ else (),
    )  # fmt: skip


def tested(program: Program, epsilon: float, seed: int) -> IdentityResult:
    """Test a program for semantics. Raises ``InputError`` for what was wrong with the graph when it ran."""
    wrong: list[InputError] = []

    def heard(inputs: Mapping[str, Any]) -> Any:
        try:
            return program(inputs)
        except InputError as error:
            wrong.append(InputError(f"{program.graph.name}: {error}"))
            raise

    spec = program.spec
    result = identity_test(lambda kind: heard, spec, program.names, program.sizes.tried(spec), epsilon, seed)
    if wrong:
        raise wrong[-1]
    return result


class _Proved(NamedTuple):
    """A verdict beyond the test of semantics, and what a reader must know of it."""

    verdict: Verdict
    faults: tuple[Fault, ...] = ()
    checks: tuple[Check, ...] = ()
    hypotheses: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


def _judged(program: Program, found: IdentityResult, proof: Callable[[Program], _Proved], seed: int) -> _Proved:
    if found.agrees is None:
        return _Proved(Verdict.UNDECIDED, why=(f"The test of semantics did not decide: {found.reason}",))
    if found.agrees:
        return proof(program)
    assert found.difference is not None
    fault = _fault(program, found.difference, seed)
    if fault:
        return _Proved(Verdict.FAULT, (fault,))
    why = "The graph is no identity, but floats do not show it: a number nearly what is meant"
    return _Proved(Verdict.UNDECIDED, why=(why,))


def read(source: Any) -> Graph:
    """The graph of whatever ``verify_graph`` takes."""
    if isinstance(source, Graph):
        return source
    if isinstance(source, (str, Path)):
        from symattn.programs.graphs.onnx_reader import read as of_file

        return of_file(str(source))
    if hasattr(source, "graph_signature"):
        from symattn.programs.graphs.torch_reader import of_program

        return of_program(source)
    if hasattr(source, "jaxpr") and hasattr(source, "consts"):
        from symattn.programs.graphs.jax_reader import of_jaxpr

        return of_jaxpr(source)
    if hasattr(source, "graph") and hasattr(source, "opset_import"):
        from symattn.programs.graphs.onnx_reader import of_model

        return of_model(source)
    raise InputError(
        f"{type(source).__name__} is not a graph; give an .onnx file, a ModelProto, an ExportedProgram or a ClosedJaxpr"
    )


def semantics(found: IdentityResult) -> Check:
    if found.agrees is False:
        return Check("semantics", Grade.REFUTED, max(len(found.pairs), 1), 1, 0.0)
    return Check("semantics", found.evidence.grade, len(found.pairs), 0, 0.0, found.epsilon)


def _proof(prover: Prover, prove: bool | None, program: Program) -> _Proved:
    """A line for the proof, the hypotheses it needs, and why there is none; a counterexample is a fault.

    Without a proof for all sizes, the sizes that were tried must reach beyond all at which the specification changes.
    """
    untried = program.sizes.untried(program.spec)
    unproved = Verdict.UNDECIDED if untried else Verdict.NO_FAULT
    more = (untried,) if untried else ()
    if why := _unasked(program, prove):
        return _Proved(unproved, why=(*why, *more))
    evidence, said, reasons = prover(program)
    results, open_ = tuple(f"{w[:1].upper()}{w[1:]}." for w in reasons), ", ".join(program.sizes.open)
    if evidence.grade is Grade.REFUTED:
        fault = Fault("output", None, f"the graph differs from the specification at {evidence.where}", certified=True)
        return _Proved(Verdict.FAULT, (fault,), (Check(f"all {open_}", Grade.REFUTED, 1, 1, 0.0),), said, results)
    if evidence.grade is Grade.PROVED:
        return _Proved(Verdict.NO_FAULT, (), (Check(evidence.where, evidence.grade, 1, 0, 0.0),), said, results)
    if evidence.grade is Grade.CHECKED:
        return _Proved(unproved, (), (Check("small sizes", evidence.grade, 1, 0, 0.0),), said, (*results, *more))
    return _Proved(unproved, (), (), said, (f"Not proved for all {open_}: {evidence.where}.", *results, *more))


def _unasked(program: Program, prove: bool | None) -> tuple[str, ...]:
    """Why no proof is tried, where none is."""
    open_ = program.sizes.open
    if not open_:
        return ("No size was left open: there is nothing to prove for all sizes.",)
    if prove is False:
        return (f"Not proved for all {', '.join(open_)}: no proof was requested.",)
    # Every column of every head is an expression in d_model² products.
    if prove is None and program.sizes.d_model**2 * program.spec.heads > MOST:
        return (f"Not proved for all {', '.join(open_)}: the layer is large; hint: fewer columns, or --prove.",)
    return ()


def notes_of(program: Program, hypotheses: list[str], found: IdentityResult) -> tuple[str, ...]:
    read_as = "Read as: " + "; ".join(s.told for s in program.slots) + "."
    assumed = tuple(f"Hypothesis: {h}." for h in dict.fromkeys(hypotheses))
    others = (n for n in found.notes if not n.startswith("hypothesis: "))
    return (_ABOUT, read_as, *assumed, *(f"{n[:1].upper()}{n[1:]}." for n in others))


def _fault(program: Program, difference: Difference, seed: int) -> Fault | None:
    """The difference in float64, if no implementation in float32 could make it, and the mistake that explains it."""
    spec, inputs = program.spec, inputs_of(program, difference.sizes, seed)
    with np.errstate(all="ignore"):
        got = np.asarray(program(inputs), dtype=np.float64)
    right = spec(**inputs)
    if got.shape != right.shape:
        said = f"the graph gives the shape {got.shape}, expected {right.shape}"
        return Fault("output", None, said, certified=True)
    at = np.unravel_index(int(np.nan_to_num(np.abs(got - right), nan=np.inf).argmax()), got.shape)
    where = tuple(int(n) for n in at)
    batch = len(program.sizes.batch)
    one = {n: a[where[:batch]] if n in ("x", "q", "k", "v") else a for n, a in inputs.items()}
    if not (expected(spec, one, _JUDGED).ratios(got[where[:batch]]) > 1).any():
        return None
    words = f"at output {list(where)}: got {got[where]:.6g}, expected {right[where]:.6g}; {difference.sizes}"
    result = explained(BitSample(spec, one, got[where[:batch]], Format("float32")), _LEFT)
    if result is None:
        said = f"the graph differs from the specification {words}; no single mistake explains it"
        return Fault("output", None, said, certified=True)
    mistake, _ = result
    return Fault(mistake.step, mistake.cause, f"{mistake.cause}; {words}", certified=True)


def inputs_of(program: Program, sizes: Sizes, seed: int) -> dict[str, Any]:
    """Inputs of those sizes: normal numbers, and masks in which every query may see the first key."""
    shapes, masks = drawn(sizes, program.spec, program.names, Random(seed))
    random = np.random.default_rng(seed)
    return {n: masks[n] if n in masks else random.standard_normal(s) for n, s in shapes.items()}
