"""Verify exported graphs against a specification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple, cast

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.namespace import namespace_of
from symattn.arrays.notes import listening
from symattn.arrays.precision import Precision
from symattn.attention.derivative import vjp
from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT
from symattn.bounds.inputs import Sizes
from symattn.bounds.judge import expected
from symattn.bounds.mistake import Mistake
from symattn.document.codec import changed_fields
from symattn.document.errors import InputError
from symattn.document.evidence import Evidence, Grade, Verdict
from symattn.programs.graphs.graph_program import GraphProgram
from symattn.programs.graphs.values import Value
from symattn.programs.program import read
from symattn.programs.specifications import kind_of
from symattn.verification.arithmetic.suspects import BitSample, explained
from symattn.verification.definitions.definition_judge import expected as expected_gradients
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.definitions.gradients import WRT, Gradient, subject
from symattn.verification.probing import hints
from symattn.verification.report import Check, Fault, Report
from symattn.verification.semantics import (
    Difference,
    IdentityResult,
    drawn,
    identity_test,
    join_stages,
)

# a difference that exceeds the bound of this precision is a fault
_JUDGED = Precision.of("float32")
_DRAWS = 4  # of inputs at which floats may show a difference: one may not meet what is wrong, as a maximum that grows
_LEFT = 1e-6  # share of the squared difference that an explaining mistake may leave: the graph is run in float64
#: The note on what is run, and what is not.
_ABOUT = "The graph is run by the definitions of its operators; no runtime is, and nothing is said of its rounding."


#: Proves that a program equals its specification at all open sizes: returns the evidence, the hypotheses, and the
#: reasons if there is no proof.
Prover = Callable[[GraphProgram], tuple[Evidence, tuple[str, ...], tuple[str, ...]]]
MOST = 64  # largest d_model² · heads for which a proof takes minutes


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
    """Judge a graph for ``symattn.graphs.verify_graph``, with a ``prover`` for all sizes.

    For a ``Gradient``, the outputs are dq, dk and dv, or the first of them, in this order. The input ``do`` is the
    gradient of the output; without it, they are the gradients of the sum of the output.
    """
    spec, graph = spec or Attention(), read(source)
    derivatives = kind_of(spec).derivatives(spec, len(graph.outputs))
    wrt = tuple(derivatives)
    if wrt and len(graph.outputs) > len(WRT):
        raise InputError(f"{graph.name} has {len(graph.outputs)} outputs; dq, dk, dv are three")
    specs: list[Any] = list(derivatives.values()) or [spec]
    programs = [replace(GraphProgram.of(graph, s, names), output=at) for at, s in enumerate(specs)]
    with listening() as notes:
        # The probability of a wrong yes is divided, so that it is at most epsilon for all outputs.
        results = [tested(p, epsilon / len(programs), seed) for p in programs]
    checks = tuple(
        map(semantics, results, (f"semantics of d{by}" for by in wrt) if wrt else ("semantics",))
    )
    assumed = [
        n.removeprefix("hypothesis: ")
        for n in (*(n for r in results for n in r.notes), *notes)
        if n.startswith("hypothesis: ")
    ]
    judged = _conclude_from_tests(programs, results, seed)
    if judged.verdict is Verdict.NO_FAULT and not wrt:
        judged = _prove_graph_program(prover, prove, programs[0])
    open_ = judged.verdict is Verdict.UNDECIDED
    summed = (
        ()
        if not wrt or "do" in programs[0].names
        else ("They are read as the gradients of the sum of the output.",)
    )
    further = () if open_ else judged.why
    if wrt:
        further = (*summed, "Not proved for all sizes: gradients are tested at sizes.")
    halted = tuple(f"{hints.stopped(r)}." for r in results if r.stopped)
    limits = (*halted, *_format_hypothesis_notes([*assumed, *judged.hypotheses]))
    return Report(
        judged.verdict,
        graph.name,
        "exact numbers",
        str(results[0].evidence.where),
        seed,
        judged.faults,
        (*checks, *judged.checks),
        (*notes_of(programs[0], [*assumed, *judged.hypotheses], results[0]), *halted, *further),
        command=command,
        fields=changed_fields(getattr(spec, "attention", spec)),
        missing=judged.why if open_ else (),
        reservations=limits if judged.verdict is Verdict.NO_FAULT else (),
        largest=hints.largest_sizes((), results[0]),
    )


def _conclude_from_tests(
    programs: Sequence[GraphProgram], results: Sequence[IdentityResult], seed: int
) -> _Proved:
    """Return the verdict of the tests of semantics: a fault only if floats show a difference, too."""
    undecided = [
        f"The test of semantics did not decide: {r.reason}" for r in results if r.agrees is None
    ]
    wrong = next(
        (
            (p, r.difference)
            for p, r in zip(programs, results, strict=True)
            if r.difference is not None
        ),
        None,
    )
    fault = _find_fault_of_difference(*wrong, seed) if wrong else None
    if wrong and not fault:
        undecided.append(
            "The graph is no identity, but floats do not show it: a number nearly what is meant"
        )
    if fault:
        return _Proved(Verdict.FAULT, (fault,), why=tuple(undecided))
    return _Proved(Verdict.UNDECIDED if undecided else Verdict.NO_FAULT, why=tuple(undecided))


def tested(program: GraphProgram, epsilon: float, seed: int) -> IdentityResult:
    """Run the test of semantics on a program. Raises ``InputError`` if the graph itself cannot be run."""
    wrong: list[InputError] = []

    def run(inputs: Mapping[str, object]) -> Value:
        try:
            return program(inputs)
        except InputError as error:
            wrong.append(InputError(f"{program.graph.name}: {error}"))
            raise

    spec, names = program.spec, program.names
    stages = [*filter(None, (program.sizes.tried(spec), program.sizes.together(spec)))]
    results: list[IdentityResult] = []
    for sizes in stages:
        share = epsilon / len(stages)
        results.append(identity_test(lambda kind: run, spec, names, sizes, share, seed))
        # What cannot be computed at a few tokens is an error of the graph; later it ends the test.
        if wrong and len(results) == 1:
            raise wrong[-1]
        if not results[-1].agrees:
            break
    return join_stages(results, len(stages))


class _Proved(NamedTuple):
    """A verdict beyond the test of semantics, with its checks, hypotheses and reasons."""

    verdict: Verdict
    faults: tuple[Fault, ...] = ()
    checks: tuple[Check, ...] = ()
    hypotheses: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


def semantics(identity: IdentityResult, name: str = "semantics") -> Check:
    if identity.agrees is False:
        return Check(
            name, Grade.REFUTED, max(len(identity.pairs), 1), 1, 0.0, unit="pair of primes"
        )
    grade, pairs = identity.evidence.grade, len(identity.pairs)
    return Check(name, grade, pairs, 0, 0.0, identity.epsilon, unit="pair of primes")


def _prove_graph_program(prover: Prover, prove: bool | None, program: GraphProgram) -> _Proved:
    """Return the verdict of a proof, with its hypotheses, or the reasons if there is none; a counterexample is a fault.

    Without a proof for all sizes, the sizes tried must reach beyond all positions at which the specification changes.
    """
    # Sizes up to a window or block length say nothing beyond it.
    untried = program.sizes.untried(program.spec)
    unproved = Verdict.UNDECIDED if untried else Verdict.NO_FAULT
    more = (untried,) if untried else ()
    if why := _not_attempted(program, prove):
        return _Proved(unproved, why=(*why, *more))
    evidence, said, reasons = prover(program)
    results = tuple(f"{w[:1].upper()}{w[1:]}." for w in reasons)
    open_ = ", ".join(program.sizes.open)
    # A counterexample of the prover is a fault, whatever the tests show.
    if evidence.grade is Grade.REFUTED:
        fault = Fault(
            "output",
            None,
            f"the graph differs from the specification at {evidence.where}",
            certified=True,
        )
        refuted = Check(f"all {open_}", Grade.REFUTED, 1, 1, 0.0, unit="proof")
        return _Proved(Verdict.FAULT, (fault,), (refuted,), said, results)
    if evidence.grade is Grade.PROVED:
        proof = Check(evidence.where, evidence.grade, 1, 0, 0.0, unit="proof")
        return _Proved(Verdict.NO_FAULT, (), (proof,), said, results)
    # Checks and searches raise the grade, but leave the verdict to the sizes tried.
    if evidence.grade in (Grade.CHECKED, Grade.SEARCHED):
        tried = Check("small sizes", evidence.grade, 1, 0, 0.0, unit="proof")
        return _Proved(unproved, (), (tried,), said, (*results, *more))
    return _Proved(
        unproved, (), (), said, (f"Not proved for all {open_}: {evidence.where}.", *results, *more)
    )


def _not_attempted(program: GraphProgram, prove: bool | None) -> tuple[str, ...]:
    """Say why no proof is attempted; () if one is."""
    open_ = program.sizes.open
    if not open_:
        return ("No size was left open: there is nothing to prove for all sizes.",)
    if prove is False:
        return (f"Not proved for all {', '.join(open_)}: no proof was requested.",)
    # Every column of every head is an expression in d_model² products.
    if prove is None and program.sizes.d_model**2 * program.spec.heads > MOST:
        return (
            f"Not proved for all {', '.join(open_)}: the layer is large; hint: fewer columns, or --prove.",
        )
    return ()


def _format_hypothesis_notes(assumed: list[str]) -> tuple[str, ...]:
    """Return a note for each hypothesis: what is proved or tested is so only under it."""
    return tuple(f"Hypothesis: {h}." for h in dict.fromkeys(assumed))


def notes_of(
    program: GraphProgram, hypotheses: list[str], identity: IdentityResult
) -> tuple[str, ...]:
    read_as = "Read as: " + "; ".join(s.words for s in program.slots) + "."
    others = (n for n in identity.notes if not n.startswith("hypothesis: "))
    return (
        _ABOUT,
        read_as,
        *_format_hypothesis_notes(hypotheses),
        *(f"{n[:1].upper()}{n[1:]}." for n in others),
    )


def _find_fault_of_difference(
    program: GraphProgram, difference: Difference, seed: int
) -> Fault | None:
    """Return the fault at the smallest sizes at which floats show it; None if they do not."""
    draws = (
        _make_fault_at_sizes(program, sizes, difference.sizes, seed + n)
        for sizes in program.sizes.shrunk(difference.sizes)
        for n in range(_DRAWS)
    )
    return next(filter(None, draws), None)


def _make_fault_at_sizes(
    program: GraphProgram, sizes: Sizes, largest: Sizes, seed: int
) -> Fault | None:
    """Return a fault with the difference in float64 and the mistake that explains it, if float32 does not allow it.

    The mistake must explain the ``largest`` sizes as well, at which the difference was found.
    """
    inputs = inputs_of(program, sizes, seed)
    try:
        got = program.run(inputs).output
    except UNFIT:
        # A graph that can be run at the largest sizes may have no output at others.
        if sizes == largest:
            raise
        return None
    assert got is not None
    by = getattr(program.spec, "by", "")
    step, what = ("backward", f"the gradient by {by}") if by else ("output", "the graph")
    of_floats = _of_gradient if by else _of_attention
    right, legal, explain = of_floats(largest, program, inputs)
    if got.shape != right.shape:
        said = f"{what} {'has' if by else 'gives'} the shape {got.shape}, expected {right.shape}"
        return Fault(step, None, said, certified=True)
    # An undefined entry counts as the largest error.
    errors = np.nan_to_num(np.abs(got - right), nan=np.inf)
    at = np.unravel_index(int(errors.argmax()), got.shape)
    place = tuple(int(n) for n in at)
    # The bound of float32 allows the difference, so floats do not show it.
    if legal(got, place):
        return None
    array = f"d{by}" if by else "output "
    where = f"at {array}{list(place)}: got {got[at]:.6g}, expected {right[at]:.6g}"
    where += f"; {sizes}"
    if mistake := explain(got, place):
        return Fault(mistake.step, mistake.cause, f"{mistake.cause}; {where}", certified=True)
    said = f"{what} differs from the {'exact one' if by else 'specification'} {where}; no single mistake explains it"
    return Fault(step, None, said, certified=True)


#: The expected output; whether an output is legal at the place of its largest error; and the mistake that explains it.
_Place = tuple[int, ...]
_Floats = tuple[
    np.ndarray,
    Callable[[np.ndarray, _Place], bool],
    Callable[[np.ndarray, _Place], Mistake | None],
]


def _of_attention(largest: Sizes, program: GraphProgram, inputs: Mapping[str, Value]) -> _Floats:
    spec, batch = program.spec, len(program.sizes.batch)

    def element(given: Mapping[str, Value], at: _Place) -> dict[str, Value]:
        return {n: a[at[:batch]] if n in ("x", "q", "k", "v") else a for n, a in given.items()}

    def legal(got: np.ndarray, at: _Place) -> bool:
        exact = expected(spec, element(inputs, at), _JUDGED)
        return not (exact.ratios(got[at[:batch]]) > 1).any()

    def sample(given: Mapping[str, Value], got: np.ndarray, at: _Place) -> BitSample:
        return BitSample(spec, element(given, at), got[at[:batch]], Format("float32"))

    def others() -> Iterator[BitSample]:
        for sizes in dict.fromkeys((*program.sizes.tried(spec), largest)):
            given = inputs_of(program, sizes, 0)
            if (got := program.run(given).output) is not None:
                yield sample(given, got, (0,) * batch)

    def explain(got: np.ndarray, at: _Place) -> Mistake | None:
        result = explained(sample(inputs, got, at), _LEFT, others())
        return result and result[0]

    return spec(**inputs), legal, explain


def _of_gradient(largest: Sizes, program: GraphProgram, inputs: Mapping[str, Value]) -> _Floats:
    attention = cast(Derivative, program.spec).attention
    known = subject(Gradient(attention), "bhnd" if attention.head_axis else "nd")
    arrays = _with_upstream(inputs)
    right = expected_gradients(known, arrays, _JUDGED, known.ways[:1])[program.output]

    def explain(got: np.ndarray, at: _Place) -> Mistake | None:
        every = _every_gradient(program, inputs)
        possible = (
            m for m in (*known.mistakes, *known.others) if _gives_gradients(known, m, arrays, every)
        )
        first = next(possible, None)
        if first is None:
            return None
        # What a few tokens show may have another cause at many.
        many = inputs_of(program, largest, 0)
        arrays_of_many, every_of_many = _with_upstream(many), _every_gradient(program, many)
        return next(
            (
                m
                for m in (first, *possible)
                if _gives_gradients(known, m, arrays_of_many, every_of_many)
            ),
            None,
        )

    return right.near, lambda got, at: not (right.ratios(got) > 1).any(), explain


def _with_upstream(inputs: Mapping[str, Value]) -> dict[str, Value]:
    """Return the inputs with dO: without one the gradients are of the sum of the output, whose dO is all ones."""
    q, v = inputs["q"], inputs["v"]
    return {"do": np.ones((*q.shape[:-1], v.shape[-1])), **inputs}


def _every_gradient(program: GraphProgram, inputs: Mapping[str, Value]) -> list[Value]:
    outputs = range(len(program.graph.outputs))
    return [replace(program, output=k).run(inputs).output for k in outputs]


def _gives_gradients(
    known: Definition,
    mistake: Mistake,
    arrays: Mapping[str, Value],
    every: Sequence[Value],
) -> bool:
    """Return whether a mistake explains every gradient, not only the judged one."""
    try:
        with np.errstate(all="ignore"):
            wrong = [np.asarray(y, dtype=np.float64) for y in known.run(mistake.run, arrays)]
    except (ValueError, TypeError, LookupError, ZeroDivisionError):
        # It does not apply at these sizes.
        return False
    slack = [_NEAR * np.abs(y).max(initial=0.0) for y in wrong]
    # The graph may return only the first of the three gradients.
    compared = zip(wrong, every, slack, strict=False)
    alike = (y.shape == g.shape and (np.abs(y - g) <= s).all() for y, g, s in compared)
    return all(alike)


def inputs_of(program: GraphProgram, sizes: Sizes, seed: int) -> dict[str, Value]:
    """Draw inputs of these sizes: normal numbers, and masks in which every query may see the first key."""
    shapes, masks = drawn(sizes, program.spec, program.names, Random(seed))
    random = np.random.default_rng(seed)
    return {
        name: masks[name] if name in masks else random.standard_normal(shape)
        for name, shape in shapes.items()
    }


# -- graphs of gradients of attention: the jaxpr of ``jax.grad`` or ``jax.vjp`` ----------------------------------------
_NEAR = 1e-9  # tolerance of a mistake in float64, relative to the largest gradient


class Derivative:
    """The gradient of ⟨dO, Attention(Q, K, V)⟩ ``by`` one of q, k, v; without dO, that of the sum of the output.

    All other attributes are those of the ``attention``.
    """

    def __init__(self, attention: Attention, by: str) -> None:
        self.attention, self.by = attention, by

    def __getattr__(self, name: str) -> Any:
        return getattr(self.attention, name)

    def __call__(self, do: Value = None, **keywords: Value) -> Value:
        if do is None:
            q, v = keywords["q"], keywords["v"]
            shape_of_output = (*q.shape[:-1], v.shape[-1])
            do = namespace_of(q).ones(shape_of_output, dtype=q.dtype)
        return vjp(self.attention, do, keywords, (self.by,))[self.by]
