"""Verification of exported graphs: each computes the attention that a specification says, or does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.namespace import namespace_of
from symattn.arrays.notes import listening
from symattn.arrays.precision import Precision
from symattn.attention.derivative import vjp
from symattn.attention.spec import Attention
from symattn.bounds.inputs import Sizes
from symattn.bounds.judge import expected
from symattn.document.codec import changed_fields
from symattn.document.errors import InputError
from symattn.document.evidence import Evidence, Grade, Verdict
from symattn.programs.graphs.program import Program
from symattn.programs.graphs.running import Graph
from symattn.verification.arithmetic.suspects import BitSample, explained
from symattn.verification.definitions.gradients import WRT, Gradient, subject
from symattn.verification.definitions.judging import expected as expected_gradients
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
        return judge_gradient(graph, spec, names, epsilon, seed, command)
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


def _judged(
    program: Program, identity_result: IdentityResult, proof: Callable[[Program], _Proved], seed: int
) -> _Proved:
    if identity_result.agrees is None:
        return _Proved(Verdict.UNDECIDED, why=(f"The test of semantics did not decide: {identity_result.reason}",))
    if identity_result.agrees:
        return proof(program)
    assert identity_result.difference is not None
    fault = _fault(program, identity_result.difference, seed)
    if fault:
        return _Proved(Verdict.FAULT, (fault,))
    why = "The graph is no identity, but floats do not show it: a number nearly what is meant"
    return _Proved(Verdict.UNDECIDED, why=(why,))


#: What a source has that is a graph of some kind, the module that reads it, and the function there.
_FRONT_ENDS = (
    (("__fspath__",), "onnx_reader", "read"),
    (("graph", "opset_import"), "onnx_reader", "of_model"),
    (("graph_signature",), "torch_reader", "of_program"),
    (("jaxpr", "consts"), "jax_reader", "of_jaxpr"),
)


def read(source: Any) -> Graph:
    """The graph of whatever ``verify_graph`` takes."""
    if isinstance(source, Graph):
        return source
    source = Path(source) if isinstance(source, str) else source
    for names, module, function in _FRONT_ENDS:
        if all(hasattr(source, name) for name in names):
            result: Graph = getattr(import_module(f"symattn.programs.graphs.{module}"), function)(source)
            return result
    raise InputError(
        f"{type(source).__name__} is not a graph; give an .onnx file, a ModelProto, an ExportedProgram or a ClosedJaxpr"
    )


def semantics(identity: IdentityResult) -> Check:
    if identity.agrees is False:
        return Check("semantics", Grade.REFUTED, max(len(identity.pairs), 1), 1, 0.0)
    return Check("semantics", identity.evidence.grade, len(identity.pairs), 0, 0.0, identity.epsilon)


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


def notes_of(program: Program, hypotheses: list[str], identity: IdentityResult) -> tuple[str, ...]:
    read_as = "Read as: " + "; ".join(s.told for s in program.slots) + "."
    assumed = tuple(f"Hypothesis: {h}." for h in dict.fromkeys(hypotheses))
    others = (n for n in identity.notes if not n.startswith("hypothesis: "))
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


# -- gradients ---------------------------------------------------------------------------------------------------------
# Verification of graphs of gradients of attention: the jaxpr of ``jax.grad`` or ``jax.vjp``.

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

    def __call__(self, do: Any = None, **keywords: Any) -> Any:
        if do is None:
            q, v = keywords["q"], keywords["v"]
            do = namespace_of(q).ones((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
        return vjp(self.attention, do, keywords, (self.by,))[self.by]


def judge_gradient(
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
    faults = tuple(f for f in (_gradient_fault(spec, p, d, seed) for p, d in wrong[:1]) if f)
    if wrong and not faults:
        open_.append("The graph is no identity, but floats do not show it: a number nearly what is meant")
    return Report(
        Verdict.FAULT if faults else Verdict.UNDECIDED if open_ else Verdict.NO_FAULT, graph.name, "exact numbers",
        str(result[0].evidence.where), seed, faults, checks, _gradient_notes(programs[0], notes, result),
        command=command, fields=changed_fields(spec.attention), missing=tuple(open_),
    )  # fmt: skip


def _gradient_notes(program: Program, heard: Any, matches: list[IdentityResult]) -> tuple[str, ...]:
    hypotheses = [n.removeprefix("hypothesis: ") for f in matches for n in f.notes if n.startswith("hypothesis: ")]
    results = notes_of(program, [*hypotheses, *(n.removeprefix("hypothesis: ") for n in heard)], matches[0])
    summed = () if "do" in program.names else ("They are read as the gradients of the sum of the output.",)
    return (*results, *summed, "Not proved for all sizes: gradients are tested at sizes.")


def _gradient_fault(spec: Gradient, program: Program, difference: Difference, seed: int) -> Fault | None:
    """The difference in float64, if no implementation in float32 could make it, and the mistake that explains it."""
    inputs = inputs_of(program, difference.sizes, seed)
    with np.errstate(all="ignore"):
        every = [np.asarray(replace(program, output=at)(inputs)) for at in range(len(program.graph.outputs))]
    got, name = every[program.output], WRT[program.output]
    known = subject(spec, "bhnd" if spec.attention.heads > 1 else "nd")
    arrays = {"do": np.ones((*inputs["q"].shape[:-1], inputs["v"].shape[-1])), **inputs}
    right = expected_gradients(known, arrays, _JUDGED, known.ways[:1])[program.output]
    if got.shape != right.allowed.shape:
        said = f"the gradient by {name} has the shape {got.shape}, expected {right.allowed.shape}"
        return Fault("backward", None, said, certified=True)
    if not (right.ratios(got) > 1).any():
        return None
    at = np.unravel_index(int(np.nan_to_num(np.abs(got - right.near), nan=np.inf).argmax()), got.shape)
    where = f"at d{name}{[int(n) for n in at]}: got {got[at]:.6g}, expected {right.near[at]:.6g}; {difference.sizes}"
    for mistake in (*known.mistakes, *known.others):
        if _is_explained(partial(known.run, mistake.run), arrays, every):
            return Fault(mistake.step, mistake.cause, f"{mistake.cause}; {where}", certified=True)
    said = f"the gradient by {name} differs from the exact one {where}; no single mistake explains it"
    return Fault("backward", None, said, certified=True)


def _is_explained(run: Any, inputs: Mapping[str, Any], got: list[np.ndarray]) -> bool:
    """Return whether a mistake gives all that the graph gave."""
    try:
        with np.errstate(all="ignore"):
            wrong = [np.asarray(y, dtype=np.float64) for y in run(inputs)]
    except (ValueError, TypeError, LookupError, ZeroDivisionError):  # it cannot be made at these sizes
        return False
    return all(
        y.shape == g.shape and bool((np.abs(y - g) <= _NEAR * np.abs(y).max(initial=0.0)).all())
        for y, g in zip(wrong, got, strict=False)
    )
