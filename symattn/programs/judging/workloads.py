"""The workloads of a benchmark's ``definition.json``: sizes at which the candidate is called, with random inputs.

https://github.com/flashinfer-ai/flashinfer-bench, docs/flashinfer_trace/workload.md: a file of JSON lines, each with
the values of the variable axes and of inputs that are plain numbers. Stored inputs, and those that a benchmark's own
function draws, are not read; their sizes are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from symattn.attention.codec import json_text
from symattn.bounds.case_result import UNFIT, Case, CaseResult
from symattn.document.errors import InputError
from symattn.document.text import equal_sizes
from symattn.programs.child import TargetOptions
from symattn.programs.guard import Tampered
from symattn.programs.judging.benchmark_inputs import by_definition, reason_unjudged
from symattn.programs.judging.definition_file import KernelDefinition
from symattn.programs.judging.judgement import Judgement, Status
from symattn.programs.judging.judging import fields_of_tampering, shown_fault
from symattn.programs.specifications import Specification
from symattn.verification import engine
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.definitions.linear import LinearAttention
from symattn.verification.engine import Session

_MOST_BYTES = 2**22  # of the file
MAX_SIZES = 8  # different ones that are tried, the smallest first
MAX_ENTRIES = 1 << 20  # of all arrays of a call; larger sizes are left out, which is a limit
_ALLOWED = 0.75  # of the keys of a query, where a mask is drawn
_NAMES = ("workload.jsonl", "workloads.jsonl")  # beside the definition


@dataclass(frozen=True)
class Workloads:
    """The different sizes that a file of workloads names, and in how many of its lines.

    ``numbers`` are the values of inputs that are plain numbers, where all lines agree.
    """

    path: str
    sizes: tuple[Mapping[str, int], ...]
    lines: int
    numbers: Mapping[str, float] = field(default_factory=dict)


def find_workloads(definition: str) -> Path | None:
    """Return the file of workloads that belongs to a definition: beside it, or in the folder of a data set.

    A data set has definitions/KIND/NAME.json and workloads/KIND/NAME.jsonl.
    """
    path = Path(definition)
    places = [path.with_name(name) for name in _NAMES]
    if path.name != "definition.json":
        places.append(path.with_suffix(".jsonl"))
    parts = path.resolve().parts
    if "definitions" in parts:
        # A path may have several such folders; the innermost one counts.
        at = len(parts) - 1 - parts[::-1].index("definitions")
        places.append(Path(*parts[:at], "workloads", *parts[at + 1 :]).with_suffix(".jsonl"))
    return next((place for place in places if place.is_file()), None)


def read_workloads(path: Path, kernel: KernelDefinition) -> Workloads:
    """Read the sizes of a file of workloads. Raises ``InputError`` for a line of another form."""
    text = json_text.content(str(path), _MOST_BYTES, "; hint: keep fewer workloads")
    wanted = {axis for axes in kernel.inputs.values() for axis in axes} - kernel.constants.keys()
    distinct_sizes: dict[tuple[int, ...], Mapping[str, int]] = {}
    numbers: dict[str, set[float]] = {}
    lines = [line for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        workload = _workload_of(json_text.decoded(line, where, exact=False), where)
        axes = kernel.sizes(_axes_of(workload, where), where)
        for name, value in _numbers_of(workload):
            numbers.setdefault(name, set()).add(value)
        lacking = sorted(wanted - axes.keys())
        if lacking:
            raise InputError(f"{where} gives no value of the axis {lacking[0]}")
        sizes = {axis: axes[axis] for axis in sorted(wanted)}
        # Lines with equal sizes count once.
        distinct_sizes.setdefault(tuple(sizes.values()), kernel.constants | sizes)
    # A number that differs between lines is no property of the kernel.
    agreed = {name: min(values) for name, values in numbers.items() if len(values) == 1}
    return Workloads(str(path), tuple(distinct_sizes.values()), len(lines), agreed)


def _workload_of(line: Any, where: str) -> dict[str, Any]:
    """Return a workload, which may stand within a trace."""
    workload = line.get("workload", line) if isinstance(line, dict) else None
    if not isinstance(workload, dict) or not isinstance(workload.get("axes"), dict):
        raise InputError(f"{where} is no workload; hint: an object with axes")
    return workload


def _numbers_of(workload: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the inputs of a workload that are plain numbers, with their values."""
    inputs = workload.get("inputs")
    for name, source in inputs.items() if isinstance(inputs, dict) else ():
        value = source.get("value") if isinstance(source, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def _axes_of(workload: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return the values of the axes of a workload."""
    axes: dict[str, Any] = workload["axes"]
    for name, value in axes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InputError(f"{where}: the axis {name} has the value {value!r}, which is no size")
    return axes


def with_workloads(
    judgement: Judgement,
    target: str,
    spec: Specification,
    how: TargetOptions,
    kernel: KernelDefinition,
    given: Workloads,
) -> Judgement:
    """Return the judgement with calls at the sizes of workloads; the first wrong output fails the candidate."""
    tried, problem, unjudged = _choose_workload_sizes(kernel, given), "", list[str]()
    # The seed of the judgement, so that its command repeats these calls too.
    seed = judgement.seeds.get("inputs")
    with how.opened(target, spec) as child:
        session = how.session(child, spec)
        try:
            for judged in _judge_at_sizes(session, kernel, tried, seed):
                judgement = replace(judgement, calls=judgement.calls + 1)
                if judged.finding is not None:
                    fault = engine.first_fault(session, judged)
                    failed = replace(judgement, status=Status.FAIL, reason=fault.message, limits=())
                    return replace(failed, **shown_fault(fault))
                if reason := reason_unjudged(judged):
                    where = f"at {judged.case.name} of {given.path}"
                    unjudged.append(f"{where} no output was judged: {reason}")
        except Tampered as error:
            # Acting against the judge is no limit, whichever inputs it was at.
            return replace(judgement, limits=(), **fields_of_tampering(str(error)))
        except UNFIT as error:
            problem = str(error)
    if problem:
        return judgement.limited(f"the workloads of {given.path} were not tried: {problem}")
    for words in unjudged:
        judgement = judgement.limited(words)
    words = f"of the {len(given.sizes)} sizes of {given.path}, {len(tried)} were tried, with random inputs"
    if kernel.batch() is not None or kernel.joins_sequences:
        words += ", and requests that are as long as the workload's are on average"
    whole = len(tried) == len(given.sizes)
    if whole:
        return replace(judgement, notes=(*judgement.notes, words))
    return judgement.limited(f"{words}; the others are larger")


def refute_at_workloads(session: Session, kernel: KernelDefinition, given: Workloads) -> str:
    """Return why a reference does not compute a session's definition at the sizes of workloads; "" if nothing shows it.

    A window longer than small inputs, for example, shows at these sizes alone.
    """
    sizes = _choose_workload_sizes(kernel, given)
    try:
        for judged in _judge_at_sizes(session, kernel, sizes, session.seed):
            if judged.finding is not None:
                return f"at {judged.case.name}: {engine.first_fault(session, judged).message}"
    except UNFIT:
        pass  # inputs that the definition does not take are a limit, which the judgement names
    return ""


def _choose_workload_sizes(kernel: KernelDefinition, given: Workloads) -> list[Mapping[str, int]]:
    """Return the smallest sizes of workloads, as many as are tried."""
    by_size = sorted(given.sizes, key=lambda sizes: _count_workload_entries(kernel, sizes))
    return [sizes for sizes in by_size if _is_workload_small_enough(kernel, sizes)][:MAX_SIZES]


def _judge_at_sizes(
    session: Session, kernel: KernelDefinition, tried: Sequence[Mapping[str, int]], seed: int | None
) -> Iterator[CaseResult]:
    """Yield the judgement of a call with random inputs of each size. Raises what ``UNFIT`` names."""
    rng = np.random.default_rng(seed)
    for sizes in tried:
        inputs = _draw_at_sizes(session, kernel, sizes, rng)
        yield session.run_case(Case("workloads", equal_sizes(sizes), inputs))


def _draw_at_sizes(
    session: Session, kernel: KernelDefinition, sizes: Mapping[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return random inputs of these sizes, by the definition's names."""
    subject = session.subject
    if isinstance(subject, Definition) and isinstance(subject.described, LinearAttention):
        # Normal numbers are no gates: those decay.
        names = [i.name for i in subject.inputs if i.name in session.runner.convention.inputs]
        letters = kernel.letters_of_workload(subject.described, sizes)
        numbers = subject.families["normal"](rng)
        return subject.draw(names, letters, numbers, session.precision, rng)
    arrays = [
        _draw_booleans(shape, rng)
        if is_boolean
        else session.precision.input.rounded(rng.standard_normal(shape))
        for shape, is_boolean in zip(
            _yield_workload_shapes(kernel, sizes), _yield_booleans(kernel), strict=True
        )
    ]
    return by_definition(session.runner, arrays)


def _draw_booleans(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return a mask that allows most keys, and the first one to each query, also under a causal mask."""
    result = rng.random(shape) < _ALLOWED
    result[..., 0] = True
    return result


def _yield_booleans(kernel: KernelDefinition) -> Iterator[bool]:
    """Yield of each array of ``_yield_workload_shapes`` whether it has booleans."""
    batch = kernel.batch()
    if batch is None:
        yield from (
            kernel.dtypes.get(name) == "bool" for name, axes in kernel.inputs.items() if axes
        )
        return
    yield from (False for _ in "qkv")
    if batch.mask is not None:
        yield kernel.dtypes.get(batch.mask.name) == "bool"


def _yield_workload_shapes(
    kernel: KernelDefinition, sizes: Mapping[str, int]
) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of the arrays, in the order of the definition; numbers have none.

    Several requests in one call are those of a batch, as long as the requests of the workload are on average.
    """
    batch = kernel.batch()
    if batch is not None:
        yield from batch.shapes(kernel.inputs, sizes)
        return
    for axes in kernel.inputs.values():
        if axes:
            yield tuple(sizes[axis] for axis in axes)


def _count_workload_entries(kernel: KernelDefinition, sizes: Mapping[str, int]) -> int:
    return sum(map(prod, _yield_workload_shapes(kernel, sizes)))


def _is_workload_small_enough(kernel: KernelDefinition, sizes: Mapping[str, int]) -> bool:
    # Sizes with an empty array show nothing.
    return 0 < _count_workload_entries(kernel, sizes) <= MAX_ENTRIES and all(
        map(prod, _yield_workload_shapes(kernel, sizes))
    )
