"""Judge a candidate by a benchmark's reference: find which definition it computes, and judge by that definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from math import isqrt, prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from symattn.arrays.formats import HALF
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Convention, Failure, Inputs, Layout
from symattn.bounds.case_result import UNFIT, Case
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Sizes
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import CannotRun, InputError
from symattn.programs.child import (
    Child,
    Process,
    ProcessLimits,
    TargetOptions,
    ask_first,
    with_fork_server,
)
from symattn.programs.guard import Tampered
from symattn.programs.judging.attention_of_benchmark import (
    plausible_attention,
    with_heads_of_shapes,
    with_other_normalisers,
    with_positions,
)
from symattn.programs.judging.benchmark import CANDIDATE, MODEL, Benchmark
from symattn.programs.judging.benchmark_inputs import by_definition, judge_case, reason_unjudged
from symattn.programs.judging.clock import Clock
from symattn.programs.judging.definition_file import RUN, KernelDefinition, read_definition
from symattn.programs.judging.hashes import file_of_target
from symattn.programs.judging.judgement import (
    Judgement,
    OwnInputs,
    PowerOfStep,
    Status,
)
from symattn.programs.judging.judging import (
    CandidateJudge,
    fields_of_tampering,
    identity_of,
    shown_fault,
    with_file_compared,
    with_further_calls,
)
from symattn.programs.judging.recurrences import (
    AXES_OF_HEADS,
    domain_of_recurrence,
    plausible_recurrences,
)
from symattn.programs.judging.workloads import (
    Workloads,
    find_workloads,
    read_workloads,
    refute_at_workloads,
    with_workloads,
)
from symattn.programs.specifications import Specification, kind_of, words_of
from symattn.verification import engine, power
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.definitions.linear import LinearAttention
from symattn.verification.definitions.norms import LayerNorm, RMSNorm
from symattn.verification.definitions.weights import Softmax
from symattn.verification.engine import Session
from symattn.verification.probing.probes import FAMILIES

#: Says why a reference, called in a session, does not compute a definition at the sizes of its benchmark.
Refute = Callable[[Session, Specification], str]
#: Scores of all heads in the call of a reference at its benchmark's length.
_MAX_SCORES_OF_TOKENS = 1 << 22
#: Orders that end with tokens and columns, by the number of axes; one head has no axis, so that all are of batches.
_LAYOUTS_OF_TOKENS: Mapping[int, Layout] = {2: "nd", 3: "bnd"}
_LAYOUTS_OF_ONE_HEAD: Mapping[int, Layout] = {2: "nd", 3: "bnd", 4: "bhnd"}
_LAYOUTS_OF_HEADS: Mapping[int, Layout] = {3: "nd", 4: "bhnd"}
_EPSILONS = (1e-5, 1e-6, 1e-8)  # of norms, as libraries have them
#: What texts of references were recognised as, by the text and what was sought, and in which form.
_RECOGNISED: dict[tuple[str, ...], tuple[Specification, int]] = {}
_MAX_NAMED = 8  # definitions of those tried that a reason names
_MAX_FIRST_WAYS = 8  # processes that are started until the reference can be called
_OWN_INPUTS_NOT_TRIED = "the benchmark's own inputs were not tried"
#: Scores of the benchmark's own inputs, where heads of several numbers are not cut; in half precision bounds are slow.
_MAX_OWN_SCORES, _MAX_OWN_SCORES_IN_HALF = 1 << 26, 1 << 25
#: Entries of the states after all tokens of the benchmark's own inputs.
_MAX_OWN_STATES = 1 << 27
#: Known mistakes of a step, each of which is a run of a definition at the benchmark's own inputs.
_MAX_MISTAKES_OF_STEP = 4
#: The mistake whose smallest visible part is reported.
_TWICE = "twice as large"


#: A definition, how it takes its inputs, and how the reference is called for it.
_Way = tuple[Specification, TargetOptions, TargetOptions]


class Recognised(NamedTuple):
    """The definition that a reference computes, or None; how it is called, and the reason why there is none."""

    definition: Specification | None
    how: TargetOptions
    reason: str = ""
    #: How the reference takes its arrays.
    convention: Convention | None = None


@dataclass(frozen=True)
class ByReference:
    """A candidate and the reference of a benchmark; a ``definition`` that is given is checked on the reference.

    ``how.dtype`` is that of the benchmark's own inputs if ``chosen_dtype`` is None.
    """

    candidate: str
    reference: str
    definition: Specification | None
    how: TargetOptions
    seed: int | None = None
    chosen_dtype: str | None = None
    why: bool = False

    @one_blas_thread
    def judgement(self) -> Judgement:
        """Return the judgement. Raises ``InputError`` for a file that is no reference."""
        clock = Clock()
        files = file_of_target(f"{self.candidate}:"), Path(self.reference)
        with with_fork_server(self.how, *files) as how:
            assert isinstance(how, TargetOptions), "options stay of their kind"
            if how.server is not None:
                clock.follow(how.server)
            by_reference = replace(self, how=replace(how, started=clock.follow))
            is_file = self.reference.endswith(".json")
            judge = by_reference._by_definition_file if is_file else by_reference._by_module
            # The time of the server is known while it runs.
            return replace(judge(clock), seconds=clock.seconds())

    def _by_module(self, clock: Clock) -> Judgement:
        """Return the judgement by the ``Model`` of a Python file."""
        benchmark, process = ask_first("benchmark", self.reference, MODEL, server=self.how.server)
        clock.follow_reference(process)
        if isinstance(benchmark, Failure):
            return self._make_invalid_judgement(
                f"{self.reference} cannot be imported: its import {benchmark.message}", clock
            )
        # Made one at a time: there are hundreds of recurrences, and most references are an attention.
        specs = (
            plausible(benchmark)
            if self.definition is None
            else with_heads_of_shapes(self.definition, benchmark)
        )
        # The shapes of the benchmark become promises, so that no other sizes are tried.
        tried = (
            (spec, self._adopt_benchmark_options(promised, benchmark.dtype))
            for spec in specs
            for width in benchmark.promised_widths
            for axis in (_likely_axis_of_tokens(spec, benchmark),)
            for promised in (_of_one_width(_domain_of_shapes(spec, benchmark, axis), width),)
        )
        refute = partial(_judge_own_inputs, benchmark=benchmark)
        target = benchmark.name_of(self.reference, MODEL)
        definition, how, reason, convention = self._find_reference_definition(
            target, tried, process, refute, clock
        )
        if definition is None or convention is None:
            return self._make_invalid_judgement(reason, clock)
        layout = _layout_of_arrays(convention, definition, benchmark)
        # The candidate takes the same arrays, so that no other order of axes is tried.
        promised = _domain_of_shapes(definition, benchmark, _axis_of_tokens(layout))
        if how.domain is not None and how.domain.min_width == how.domain.max_width:
            promised = _of_one_width(promised, how.domain.max_width)
        how = self._adopt_benchmark_options(promised, benchmark.dtype)
        how = replace(how, layout=how.layout or layout)
        target = named(self.candidate, benchmark)
        result = self._judge_by_definition(target, definition, how, clock)
        # Only a candidate that passes is called once more.
        if result.passed:
            further = partial(_with_own_inputs, result, target, definition, how, benchmark)
            result = with_further_calls(result, further)
        return with_file_compared(result, target)

    def _by_definition_file(self, clock: Clock) -> Judgement:
        """Return the judgement by the reference in a ``definition.json``, which is run from a file of its own."""
        kernel = read_definition(self.reference)
        path = find_workloads(self.reference)
        workloads = None if path is None else read_workloads(path, kernel)
        try:
            forms = kernel.forms()
        except InputError as error:
            return self._make_invalid_judgement(
                f"{self._name_of_reference_model} is not read: {error}", clock
            )
        how = replace(
            self._adopt_benchmark_options(kernel.domain(), kernel.dtype), framework="torch"
        )
        if kernel.layout is not None:
            how = replace(how, layout=kernel.layout)
        # A state in float32 is the sum over all tokens, so that sums are in float32.
        if kernel.keeps_wide_states and how.contract is None:
            how = replace(how, contract="fused")
        known = kernel.plausible({} if workloads is None else workloads.numbers)
        # The first form by which the reference computes a known definition decides.
        ways = [replace(how, form=form) for form in forms]
        definition, how, reason, _ = self._find_definition_of_text(
            kernel, known, ways, workloads, clock
        )
        if definition is None:
            return self._make_invalid_judgement(reason, clock)
        target = f"{self.candidate}:{RUN}" if self.candidate.endswith(".py") else self.candidate
        result = self._judge_by_definition(target, definition, how, clock)
        if result.passed:
            further = partial(
                self._at_workloads, result, target, definition, how, kernel, workloads
            )
            result = with_further_calls(result, further)
        return with_file_compared(result, target)

    def _find_definition_of_text(
        self,
        kernel: KernelDefinition,
        known: Sequence[Specification],
        ways: Sequence[TargetOptions],
        workloads: Workloads | None,
        clock: Clock,
    ) -> Recognised:
        """Return the definition that the text of a reference computes, at the sizes of its workloads too.

        A text that was recognised before, in the same forms, is not run again.
        """
        first = ways[0]
        sought = self.definition, *known, *(how.form for how in ways)
        called = first.domain, first.layout, first.call, first.time_limit
        sizes = None if workloads is None else workloads.sizes
        key = kernel.reference, repr(sought), repr(called), repr(sizes)
        if key in _RECOGNISED:
            definition, number = _RECOGNISED[key]
            return Recognised(definition, ways[number])
        refute = partial(_judge_at_workloads, kernel=kernel, workloads=workloads)
        with TemporaryDirectory() as folder:
            text = Path(folder) / "reference.py"
            text.write_text(kernel.reference, encoding="utf-8")
            target = f"{text}:{RUN}"
            specs = known if self.definition is None else (self.definition,)
            tried = ((spec, how) for how in ways for spec in specs)
            found = self._find_reference_definition(target, tried, None, refute, clock)
            # The path of the temporary file means nothing to the user.
            found = found._replace(reason=found.reason.replace(str(text), self.reference))
        if found.definition is not None:
            _RECOGNISED[key] = found.definition, ways.index(found.how)
        return found

    def _at_workloads(
        self,
        result: Judgement,
        target: str,
        spec: Specification,
        how: TargetOptions,
        kernel: KernelDefinition,
        given: Workloads | None,
    ) -> Judgement:
        """Return the judgement with calls at the sizes of the workloads, if there are any."""
        if kernel.drawn_by:
            words = f"the benchmark's inputs are drawn by {kernel.drawn_by} of its reference, which was not run"
            result = result.limited(words)
        if given is None:
            return result.limited("no workloads of the benchmark were found beside its definition")
        return with_workloads(result, target, spec, how, kernel, given)

    def _adopt_benchmark_options(self, promised: Domain, dtype: str) -> TargetOptions:
        """Return the options with what the benchmark says where the user says nothing."""
        domain = self.how.domain if self.how.domain not in (None, Domain()) else promised
        return replace(self.how, domain=domain, dtype=self.chosen_dtype or dtype)

    def _judge_by_definition(
        self, target: str, spec: Specification, how: TargetOptions, clock: Clock
    ) -> Judgement:
        result = CandidateJudge(
            target, spec, how, self.seed, (), self._name_of_reference_model, self.why, clock
        ).judgement()
        return replace(result, command=self._command_with_reference(result.seeds))

    @property
    def _name_of_reference_model(self) -> str:
        return f"{self.reference}:{RUN if self.reference.endswith('.json') else MODEL}"

    def _find_reference_definition(
        self,
        target: str,
        ways: Iterable[tuple[Specification, TargetOptions]],
        process: Process | None,
        refute: Refute,
        clock: Clock,
    ) -> Recognised:
        """Return the definition that the reference computes, on the first groups of inputs, and how it is called.

        ``refute`` says why it is another at the benchmark's sizes, if it is. ``ways`` are the definitions with ways to
        take their inputs, which one process tries; definitions that are far off on the first inputs come last.
        """
        name = self._name_of_reference_model
        tried = _yield_ways_by_format(ways)
        likeliest = next(tried, None)
        if likeliest is None:
            hint = "hint: give it by --definition"
            words = f"{name} has inputs of no definition that is tried; {hint}"
            return Recognised(None, self.how, words)
        _, first, _ = likeliest
        limits = ProcessLimits() if first.time_limit is None else ProcessLimits(first.time_limit)
        start = partial(
            Child, target, limits=limits, started=clock.follow_reference, server=first.server
        )
        child, refusal = None, ""
        # The first definitions may need inputs that the model does not take.
        first_ways = islice(chain((likeliest,), tried), _MAX_FIRST_WAYS)
        for likeliest in first_ways:
            spec, _, how = likeliest
            try:
                child = start(how.request(spec), process=process)
                break
            except InputError as error:
                process, refusal = None, refusal or f"{name} cannot be called: {error}"
            except CannotRun as error:
                return Recognised(None, first, str(error))
        if child is None:
            return Recognised(None, first, refusal)
        specs, words, is_given = list[Specification](), "", self.definition is not None
        every = chain((likeliest,), tried)
        with child:
            for spec, way, how in every if is_given else _yield_likeliest_first(child, every):
                specs.append(spec)
                try:
                    child.turn_to(how.request(spec))
                    session = how.session(child, spec)
                    if engine.recognised(session):
                        words = refute(session, spec)
                        if not words:
                            return Recognised(spec, way, convention=child.convention)
                    # Only of a definition that is given it is said why it is not the one.
                    elif is_given:
                        words = _describe_first_fault(session)
                except (InputError, CannotRun) as error:
                    words = str(error)
        if self.definition is not None:
            words = f"{name} does not compute {words_of(self.definition)}: {words}"
            return Recognised(None, first, words)
        hint = "hint: give the definition by its options, or by --definition"
        called = [*map(words_of, dict.fromkeys(specs))]
        others = len(called) - _MAX_NAMED
        more = f" and {others} further definitions" if others > 0 else ""
        words = f"{name} computes none of {', '.join(called[:_MAX_NAMED])}{more}; {hint}"
        return Recognised(None, first, words)

    def _command_with_reference(self, seeds: Mapping[str, int]) -> str:
        how, spec = (
            # The seed that was drawn, so that the command repeats the run.
            replace(self.how, seed=seeds.get("inputs", self.how.seed)),
            self.definition or Attention(),
        )
        return how.command(
            self.candidate,
            spec=spec,
            name="judge",
            reference=self.reference,
            dtype=self.chosen_dtype,
        )

    def _make_invalid_judgement(self, reason: str, clock: Clock) -> Judgement:
        words = "none" if self.definition is None else words_of(self.definition)
        return Judgement(
            Status.INVALID_REFERENCE,
            reason,
            self.candidate,
            words,
            self.how.precision.words,
            {},
            identity_of(self.candidate),
            clock.seconds(),
            self._name_of_reference_model,
        )


def _layout_of_arrays(
    convention: Convention, spec: Specification, benchmark: Benchmark
) -> Layout | None:
    """Return the order of axes in which a reference takes its benchmark's arrays; None if no order is known.

    A reference for any number of leading axes may have been called with others than those of the benchmark, which a
    candidate may need.
    """
    order = _order_of(convention)
    axes = len(benchmark.shapes[0]) if benchmark.shapes else 0
    if not isinstance(spec, Attention) or spec.lse or not order.endswith("nd"):
        return order if kind_of(spec).ordered and len(order) == axes else None
    if benchmark.tokens:
        return _LAYOUTS_OF_TOKENS.get(axes)
    return (_LAYOUTS_OF_HEADS if spec.heads > 1 else _LAYOUTS_OF_ONE_HEAD).get(axes)


def _order_of(convention: Convention) -> Layout:
    """Return the order of axes that a function takes; definitions have their own, in which their arrays are drawn."""
    order: Layout = getattr(convention, "order", convention.layout)
    return order


def _axis_of_tokens(layout: Layout | None) -> int:
    """Return which axis of q, k, v is that of tokens, counted from the last one."""
    layout = layout or "nd"
    return layout.index("n") - len(layout)


def _likely_axis_of_tokens(spec: Specification, benchmark: Benchmark) -> int:
    """Return which axis of q, k, v is that of tokens, counted from the last one, before the reference was called.

    The axis before the columns is that of heads if it alone has as many items as the definition has heads.
    """
    queries = benchmark.shapes[0] if benchmark.shapes else ()
    if not isinstance(spec, Attention) or spec.heads == 1 or len(queries) <= len("nhd"):
        return -2
    return -3 if queries[-2] == spec.heads != queries[-3] else -2


def _judge_own_inputs(session: Session, spec: Specification, benchmark: Benchmark) -> str:
    """Return why a definition is not what a reference computes at the benchmark's inputs; "" if it may be."""
    if not kind_of(spec).by_name or benchmark.problem or not benchmark.shapes:
        return ""
    order = _order_of(session.runner.convention)
    if not benchmark.tokens and order != "nd" and len(order) != len(benchmark.shapes[0]):
        return ""  # the reference was called with another number of axes
    try:
        if benchmark.tokens:
            inputs = _draw_tokens_of_benchmark(session, benchmark)
        else:
            inputs = by_definition(session.runner, benchmark.arrays)
        is_too_large = bool(_describe_too_large(spec, inputs, session.precision))
    except UNFIT:
        return ""  # other inputs than those of the definition, as the judgement then says
    if is_too_large:
        return ""  # as the judgement says, too
    try:
        judged = session.run_case(Case("benchmark", "the benchmark's own inputs", inputs))
    except UNFIT as error:
        return f"it has no result for the benchmark's own inputs: {error}"
    return "" if judged.finding is None else engine.first_fault(session, judged).message


def _draw_tokens_of_benchmark(session: Session, benchmark: Benchmark) -> dict[str, np.ndarray]:
    """Return tokens of a benchmark's length and width, or as many as fit, with projections of their own.

    A model's weights are inputs of its definition, so that the benchmark's tokens alone are none.
    """
    n, width = benchmark.shapes[0][-2:]
    heads = session.maker.spec.heads
    n = min(n, isqrt(_MAX_SCORES_OF_TOKENS // heads))
    maker = replace(session.maker, cells=heads * n * n)
    rng = np.random.default_rng(session.seed)
    columns = max(width // heads, 1)
    return maker.make(Sizes(n, n, columns, columns, width), FAMILIES["normal"](rng), rng)


def _describe_too_large(spec: Specification, inputs: Inputs, precision: Precision) -> str:
    """Return why inputs of a definition are too large to be bounded; "" if they are not."""
    if isinstance(spec, Attention):
        return _describe_too_many_scores(inputs, precision)
    count = np.size(inputs["v"]) * np.shape(inputs["k"])[-1]
    if count <= _MAX_OWN_STATES:
        return ""
    return f"their states have {count} entries, and {_MAX_OWN_STATES} are bounded at most"


def _describe_too_many_scores(inputs: Inputs, precision: Precision) -> str:
    """Return why inputs are too large to be bounded in seconds, and within gigabytes; "" if they are not."""
    # Tokens ``x`` have no numbers of heads to keep, and are cut to few.
    if not {"q", "k"} <= inputs.keys():
        return ""
    q, k = (np.shape(inputs[name]) for name in "qk")
    count = prod(q[:-1]) * k[-2]
    is_half = precision.input.name in HALF
    most = _MAX_OWN_SCORES_IN_HALF if is_half else _MAX_OWN_SCORES
    return f"they have {count} scores, and {most} are bounded at most" if count > most else ""


def _judge_at_workloads(
    session: Session, spec: Specification, kernel: KernelDefinition, workloads: Workloads | None
) -> str:
    """Return why a definition is not what a reference computes at the sizes of workloads; "" if it may be."""
    return "" if workloads is None else refute_at_workloads(session, kernel, workloads)


def _yield_ways_by_format(ways: Iterable[tuple[Specification, TargetOptions]]) -> Iterator[_Way]:
    """Yield the ways with the calls of the reference in float32, then those in half precision if it is the benchmark's.

    In float32 less can hide, but a reference may round its outputs to the format of its benchmark whatever it takes.
    """
    every = list[tuple[Specification, TargetOptions]]()
    for spec, way in ways:
        every.append((spec, way))
        yield spec, way, replace(way, dtype="float32", contract=None, secret=None)
    for spec, way in every:
        if way.precision.input.name in HALF:
            yield spec, way, replace(way, contract="fused", secret=None)


def _yield_likeliest_first(child: Child, ways: Iterable[_Way]) -> Iterator[_Way]:
    """Yield the ways by which a reference may be a definition: those that the first inputs refute come last.

    To bound what a definition computes takes long, and one number of its first output refutes most.
    """
    far_off = []
    for way in ways:
        if _is_far_off(child, way):
            far_off.append(way)
        else:
            yield way
    yield from far_off


def _is_far_off(child: Child, way: _Way) -> bool:
    spec, _, how = way
    try:
        child.turn_to(how.request(spec))
        return engine.is_far_off(how.session(child, spec))
    except (InputError, CannotRun):
        return False  # the reason is said where the way is tried


def _describe_first_fault(session: Session) -> str:
    wrong = next((r for r in session.records if r.finding is not None), None)
    return engine.first_fault(session, wrong).message if wrong else "no call could be judged"


def named(candidate: str, benchmark: Benchmark) -> str:
    """Return the target of a candidate: ``kernel.py`` and ``kernel.py:Name`` are instances of a class, made like the
    reference's; anything else is the target itself."""
    if candidate.endswith(".py"):
        return benchmark.name_of(candidate, CANDIDATE)
    # A name with a capital letter is a class, of which an instance is called.
    place, _, attribute = candidate.rpartition(":")
    return (
        benchmark.name_of(place, attribute)
        if attribute.isidentifier() and attribute[0].isupper()
        else candidate
    )


def plausible(benchmark: Benchmark) -> Iterator[Specification]:
    """Yield the definitions that a reference may compute, the likeliest first."""
    # With gates or other arrays beside q, k, v it is no attention with softmax.
    if len(benchmark.shapes) > len("qkv"):
        recurrences = plausible_recurrences(benchmark.shapes_by_name)
        if recurrences:
            yield from recurrences
            return
    # Token inputs are layers, the others attention.
    if benchmark.tokens:
        layers = [Attention(heads=heads, kv_heads=kv) for heads, kv in benchmark.numbers_of_heads]
        for layer in layers:
            yield from (layer, replace(layer, causal=True))
        yield LayerNorm()
        yield from (RMSNorm(eps=eps) for eps in _EPSILONS)
        yield Softmax()
        several = [layer for layer in layers if layer.heads > 1]
        yield from with_positions(layers, several, benchmark.numbers)
        return
    yield from plausible_attention(benchmark)
    yield Attention(scale=1)
    yield from with_other_normalisers(benchmark)
    # Most references are attention, and to look for recurrences takes time.
    yield from plausible_recurrences(benchmark.shapes_by_name)


def _domain_of_shapes(spec: Specification, benchmark: Benchmark, axis: int = -2) -> Domain:
    """Return what a benchmark's shapes promise to a function of a definition; ``axis`` is that of tokens."""
    shapes = benchmark.shapes_by_name
    if isinstance(spec, LinearAttention):
        return domain_of_recurrence(shapes, Domain()) if shapes else Domain()
    return _domain_of_benchmark_shapes(benchmark, axis)


def _domain_of_benchmark_shapes(benchmark: Benchmark, axis: int = -2) -> Domain:
    """Return what the shapes of a benchmark's inputs promise: no longer ones, and equal sizes where they are equal.

    ``axis`` is that of their tokens, unless another one has one query and several keys.
    """
    usual = Domain()
    # Of two arrays, such as a norm's, the second has no keys.
    queries, keys = benchmark.shapes[:2] if len(benchmark.shapes) > 2 else ((), ())
    of_one_query = [at for at in AXES_OF_HEADS if _has_one_query(queries, keys, at)]
    axis = of_one_query[0] if of_one_query else axis
    # Further arrays, such as masks and sinks, have other axes.
    arrays = benchmark.shapes[: len("qkv")]
    lengths = [shape[axis] for shape in arrays if len(shape) >= -axis]
    if not lengths:
        return usual
    alike = len(set(lengths)) == 1
    widths = {shape[-1] for shape in arrays}
    most = max(min(max(lengths), usual.max_tokens), 1)
    return Domain(
        # Widths of tokens and of weights say nothing about each other.
        max_tokens=most,
        decoding=bool(of_one_query),
        square=alike,
        same_width=len(widths) == 1 and not benchmark.tokens,
    )


def _of_one_width(promised: Domain, width: int | None) -> Domain:
    """Return the promises with that of a model whose scale is a number of one width; None for any width."""
    return promised if width is None else replace(promised, min_width=width, max_width=width)


def _has_one_query(queries: tuple[int, ...], keys: tuple[int, ...], axis: int) -> bool:
    """Return whether q has the length 1 on an axis on which k, with as many axes, is longer, as in decoding."""
    return len(queries) == len(keys) >= -axis and queries[axis] == 1 < keys[axis]


# -- the benchmark's own inputs ----------------------------------------------------------------------------------------
def _with_own_inputs(
    judgement: Judgement, target: str, spec: Specification, how: TargetOptions, benchmark: Benchmark
) -> Judgement:
    """Return the judgement with that of one call with the benchmark's own inputs, and what these could show."""
    # Layers hold weights, so that a benchmark's arrays are not all inputs of a definition.
    if not kind_of(spec).by_name or benchmark.problem or benchmark.tokens:
        why = benchmark.problem or f"they are not the inputs of {words_of(spec)} alone"
        return judgement.limited(f"{_OWN_INPUTS_NOT_TRIED}: {why}")
    with how.opened(target, spec) as child:
        session = how.session(child, spec)
        try:
            inputs = by_definition(child, benchmark.arrays)
            if too_many := _describe_too_large(spec, inputs, session.precision):
                return judgement.limited(f"{_OWN_INPUTS_NOT_TRIED}: {too_many}")
            judged = judge_case(session, Case("benchmark", "the benchmark's own inputs", inputs))
        except Tampered as error:
            # Acting against the judge is no limit, whichever inputs it was at.
            return replace(judgement, limits=(), **fields_of_tampering(str(error)))
        except UNFIT as error:
            return judgement.limited(f"{_OWN_INPUTS_NOT_TRIED}: {error}")
    judgement = replace(judgement, calls=judgement.calls + 1)
    # A fault at the benchmark's inputs decides, whatever the others show.
    if judged.finding is not None:
        fault = engine.first_fault(session, judged)
        return replace(
            judgement, status=Status.FAIL, reason=fault.message, limits=(), **shown_fault(fault)
        )
    if reason := reason_unjudged(judged):
        return judgement.limited(f"the benchmark's own inputs were not judged: {reason}")
    # How small an error these inputs alone would have shown.
    tried = [(inputs, [part.expected for part in judged.parts])]
    if isinstance(spec, Attention):
        smallest_errors = power.smallest_seen(spec, inputs, [inputs], tried)
        rows = [PowerOfStep(one.step, _TWICE, one.size) for one in smallest_errors]
    else:
        rows = _rows_of_known_mistakes(session, inputs, tried)
    # Outputs that ignore some of the inputs, such as a constant.
    for mistake in _yield_input_blind_mistakes(spec):
        share = power.least_shown(mistake, tried)
        rows.append(PowerOfStep("output", mistake.words, 1.0 if 2 * share < 1 else None))
    shapes = tuple(a.shape for a in benchmark.arrays)
    own = OwnInputs(benchmark.shapes, shapes, tuple(rows))
    return replace(judgement, own_inputs=own)


def _rows_of_known_mistakes(
    session: Session, inputs: Inputs, tried: Sequence[power.Tried]
) -> list[PowerOfStep]:
    """Return for each step how much of a known mistake of a definition one call would have shown."""
    subject = session.subject
    assert isinstance(subject, Definition), "an attention has its own errors"
    by_step = {
        step: [alike[:_MAX_MISTAKES_OF_STEP]] for step, alike in subject.mutations_by_step().items()
    }
    shown = power.powers(subject.right, by_step, [inputs], tried)
    return [PowerOfStep(one.step, one.mistake, one.share if one.seen else None) for one in shown]


def _yield_input_blind_mistakes(spec: Specification) -> Iterator[power.Mutation]:
    """Yield mistakes that ignore inputs: what a benchmark lets through at its inputs if nothing shows them."""

    def mistake(
        words: str, of: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]
    ) -> power.Mutation:
        def outputs(inputs: Inputs) -> list[np.ndarray]:
            v = np.asarray(inputs["v"], dtype=np.float64)
            return [of(v, (*np.shape(inputs["q"])[:-1], v.shape[-1]))]

        return power.Mutation("output", words, outputs)

    if not isinstance(spec, Attention):
        # The output of a recurrence has the shape of its values.
        yield mistake("all zeros", lambda v, shape: np.zeros(v.shape))
        return
    yield mistake("all zeros", lambda v, shape: np.zeros(shape))
    # With fewer key heads, the mean of the values has not the heads of the output.
    if spec.kv_heads is None:
        yield mistake(
            "the mean of the values",
            lambda v, shape: np.broadcast_to(v.mean(-2, keepdims=True), shape),
        )


def path_of(reference: str) -> str:
    """Return the path of a reference. Raises ``InputError`` if there is no such file of Python."""
    if not reference.endswith((".py", ".json")) or not Path(reference).is_file():
        known = f"a module with {MODEL}, get_inputs, get_init_inputs, or a definition.json"
        raise InputError(f"{reference} is no file of Python or JSON; hint: {known}")
    return reference
