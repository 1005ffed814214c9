"""A function called in this process: fresh arrays in, and a full record of the call out.

Nothing here knows a definition, so that a process can call a function with arrays alone.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.notes import listening
from symattn.bounds.called_target import (
    APART,
    DESTINATION,
    IN_PROCESS,
    MADE,
    Argument,
    Convention,
    Failure,
    Inputs,
    Memory,
    Outcome,
)
from symattn.document.errors import InputError
from symattn.programs import frameworks, guard, layouts
from symattn.programs.frameworks import Tensor, Tensors
from symattn.programs.interpreting import COMPILER, interpreting
from symattn.programs.messages import MAX_BYTES
from symattn.programs.names import Function, on_first
from symattn.programs.refusing import by_memory, one_line, refuses, where

if TYPE_CHECKING:
    from symattn.arrays.planes import Planes
    from symattn.attention.spec import Attention
    from symattn.bounds.domain import Domain
    from symattn.bounds.inputs import Sizes
    from symattn.programs.packed import Wrapper
    from symattn.programs.program import OnKinds
    from symattn.programs.repairing.trials import Samples, Trials
    from symattn.programs.stand_ins import StoodIn
    from symattn.verification.semantics import IdentityResult


#: Inputs that may be one array in a call with shared memory.
_QKV = ("q", "k", "v")
#: Numbers of all outputs of a call that fit into the message of a process, as float64.
_MAX_NUMBERS = MAX_BYTES // 2 // 8
#: Numbers that outputs may have whatever the inputs are, such as the blocks of a kernel.
_USUAL_NUMBERS = 1 << 20


class Target:
    """A function and the convention by which it is called: a ``Runner`` in this process."""

    notes: tuple[str, ...] = (IN_PROCESS,)

    def __init__(self, function: Function, convention: Convention, name: str = "") -> None:
        self._function = self._own = function
        self._name = name or getattr(function, "__name__", type(function).__name__)
        self._arrays = frameworks.arrays(convention.framework)
        # the last result, and its values at the time
        self._before: tuple[Tensor, NDArray[np.float64]] | None = None
        # the arrays of the last call whose memory is used again
        self._kept: dict[Argument, Tensor] = {}
        self.convention = convention
        self.begin_call: Callable[[], None] = lambda: None  # called before each ``run``
        self.is_brief = False  # whether residues are tried at few sizes alone, as in slow kernels
        # whether residues prove at small sizes alone, as those of an edit, and at a few larger ones may only refute
        self.refutes_at_large_sizes = False
        # entered around each call, for edited functions
        self.around_call: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext

    def describe(self) -> str:
        """Return the function with its arguments: ``attn.py:attention(q, k, v)``."""
        return f"{self._name}({self.convention.printed})"

    def close(self) -> None:
        """Forget the last result."""
        self._before = None

    def run(self, inputs: Inputs, memory: Memory = "contiguous", explains: bool = True) -> Outcome:
        """Call the function once on fresh copies of ``inputs`` in this memory layout. See ``Runner``.

        Unless it ``explains``, a failure does not say where it arose, and who refuses the inputs.
        """
        self.begin_call()
        arguments = self._compute_call_arguments(inputs)
        # ``strided q`` lays out q alone, and the others are contiguous.
        layout, _, alone = memory.partition(" ")
        passed = {
            a: self._make_framework_array(
                value,
                # What is written is contiguous always, and its memory not read-only.
                cast(Memory, layout)
                if a.input != DESTINATION and alone in ("", a.input)
                else "contiguous",
            )
            for a, value in arguments.items()
        }
        if memory == "reused":
            passed = self._in_kept_memory(passed)
        elif memory == "shared":
            passed = _merge_equal_arrays(passed, arguments)
        bits = {
            a: (tuple(array.shape), self._arrays.bits(array))
            for a, array in passed.items()
            if not isinstance(array, (int, float)) and a.input != DESTINATION
        }
        with (
            frameworks.suspects(self.convention.framework, self.convention.dtype) as runtimes,
            self.around_call(),
            _interpreting_if_requested(memory) as interpreted,
        ):
            placed = layouts.placed(self.convention.arguments, passed)
            report = watch(self._function, *placed, explains)
            if self.convention.destination is not None and report.error is None:
                report = self._with_written(report, passed, self.convention.destination)
        first = _first_of(report.output)
        error = report.error
        if error is not None and memory in APART:
            error = by_memory(error)
        # the array that the previous call returned, now and then
        before = self._before and (frameworks.read(self._before[0])[0], self._before[1])
        outcome = Outcome(
            error=error,
            stdout=report.stdout,
            mutated=tuple(
                dict.fromkeys(
                    a.input or ""
                    for a in bits
                    if (tuple(passed[a].shape), self._arrays.bits(passed[a])) != bits[a]
                )
            ),
            overwrote=before is not None and not np.array_equal(*before, equal_nan=True),
            views=tuple(
                dict.fromkeys(a.input or "" for a in bits if self._arrays.shares(first, passed[a]))
            ),
            warnings=report.warnings,
            runtime=next(filter(None, runtimes), ""),
            interpreted=bool(interpreted),
        )
        result = outcome if report.error else self._with_output(outcome, report.output, inputs)
        # Spoiled, as a caller of reused memory may overwrite a result before the next call.
        if memory == "reused":
            self._before = None
            # What is refused for its size is not written to either.
            if result.error is None:
                self._arrays.spoil(first)
        return result

    def _with_written(
        self, report: Watched, passed: Mapping[Argument, Tensor], destination: Argument
    ) -> Watched:
        """Return the report with what the function wrote into its destination as its output.

        A function that wrote nothing has failed; one that wrote NaN, into other numbers as well, has not.
        """
        array = passed[destination]
        untouched = self._make_framework_array(np.full(tuple(array.shape), np.nan), "contiguous")
        if not prod(array.shape) or self._arrays.bits(array) != self._arrays.bits(untouched):
            return replace(report, output=array)
        ones = self._make_framework_array(np.ones(tuple(array.shape)), "contiguous")
        before = self._arrays.bits(ones)
        again = {**passed, destination: ones}
        watch(self._function, *layouts.placed(self.convention.arguments, again))
        if self._arrays.bits(ones) != before:
            return replace(report, output=array)
        kind = "None" if report.output is None else f"an object of {type(report.output).__name__}"
        message = f"wrote nothing into {destination.parameter}, and returned {kind}"
        return replace(report, output=None, error=Failure("output", message))

    @property
    def written(self) -> Function | None:
        """The function as the user wrote it, inside whatever adapts it; None if it cannot be replaced there."""
        own = self._own
        return own.called if _is_wrapper(own) else own

    @property
    def last_returned(self) -> Tensor | None:
        """The output of the last call, of several the first; None if it could not be read."""
        return self._before and self._before[0]

    def version(self, function: Function) -> Target:
        """Return another version of the function that the user wrote, called in the same way."""
        own = self._own
        adapted = own.around(function) if _is_wrapper(own) else function
        return Target(adapted, self.convention, self._name)

    def version_with_stand_ins(self, function: StoodIn) -> Target:
        """Return a version that gets stand-ins for arrays of JAX."""
        from symattn.programs.stand_ins import StandInArrays

        result = self.version(function)
        result._arrays = StandInArrays()
        return result

    def make_arguments(self, inputs: Inputs) -> dict[Argument, Tensor]:
        """Return contiguous arrays of the framework for one call."""
        arguments = self._compute_call_arguments(inputs)
        return {a: self._make_framework_array(x, "contiguous") for a, x in arguments.items()}

    def attempt(
        self,
        inputs: Inputs,
        memory: Memory = "contiguous",
        arrays: Mapping[Argument, Tensor] | None = None,
    ) -> tuple[NDArray[np.float64] | None, ...]:
        """Call the function once and return its outputs alone; nothing if it raises.

        This is ``run`` without its records, for edits of which most fail: prints and warnings are the caller's. Of the
        ``memory`` only whether NumPy runs what JAX would compile matters. The call gets copies of the arrays that
        ``make_arguments`` returned for these inputs as ``arrays``, or new ones.
        """
        originals = self.make_arguments(inputs) if arrays is None else arrays
        passed = {
            a: x if arrays is None or isinstance(x, (int, float)) else self._arrays.copied(x)
            for a, x in originals.items()
        }
        places, keywords = layouts.placed(self.convention.arguments, passed)
        destination = self.convention.destination
        for listener in _listeners:
            listener()
        try:
            with self.around_call(), _interpreting_if_requested(memory):
                output = self._function(*places, **keywords)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # An edit may raise anything, even ``SystemExit``.
            return ()
        output = output if destination is None else passed[destination]
        outcome = self._with_output(Outcome(), output, inputs)
        return () if outcome.error else (outcome.output, *outcome.others)

    def trials(self, samples: Samples) -> Trials:
        """Return the trials of edits of the function's source on samples."""
        from symattn.programs.repairing.trials import (
            Trials,
        )  # most functions are right, and never edited

        return Trials(self, samples)

    def semantics(
        self,
        spec: Attention,
        seconds: float,
        domain: Domain | None = None,
        refutes_at_large_sizes: bool = False,
    ) -> IdentityResult:
        """Return the identity test on residues, in a copy of this process: at the usual sizes, then at larger ones."""
        from symattn.bounds.domain import Domain
        from symattn.programs.identity import (
            FEW,
            FEW_CELLS,
            LARGE,
            OF_EDIT,
            TOGETHER,
            identity,
            multiples,
            tried_apart,
        )  # slow to import
        from symattn.verification.semantics import SIZES

        refutes = refutes_at_large_sizes or self.refutes_at_large_sizes
        of_multiples = multiples(domain or Domain())
        stages: tuple[Sequence[Sizes], ...] = (SIZES, LARGE, of_multiples, TOGETHER)
        if self.is_brief:
            stages = FEW, of_multiples
        elif refutes:
            stages = *OF_EDIT, of_multiples
        most = {"cells": FEW_CELLS} if self.is_brief else {}

        def test(sizes: Sequence[Sizes], is_refuting: bool = False) -> IdentityResult:
            return identity(self, spec, sizes, domain=domain, is_refuting=is_refuting, **most)

        refute = partial(test, is_refuting=True) if refutes and not self.is_brief else None
        return tried_apart(self, test, seconds, stages, refute)

    @cached_property
    def kinds(self) -> OnKinds:
        """The way to run the function on other kinds of array. Raises ``InputError`` if there is none."""
        from symattn.programs.program import on_kinds

        return on_kinds(self._own, self.convention)

    @cached_property
    def _returning(self) -> Target:
        """The function of torch without its destination, as a graph has what it returns, and not what it writes."""
        arguments = tuple(a for a in self.convention.arguments if a.input != DESTINATION)
        how = replace(self.convention, arguments=arguments)
        target = Target(_returning_what_it_writes(self._own, self.convention), how, self._name)
        # One way for all kinds, which exports a function once for each choice of sizes.
        target.kinds = self.kinds
        return target

    def on(self, kind: type[Planes]) -> Callable[[Tensors], Tensor]:
        """Return the function on another kind of array, of the inputs by name, with its first output in their axes."""
        if self.convention.destination is not None and self.convention.framework == "torch":
            return self._returning.on(kind)
        function = self.made(kind)
        how = self.convention

        def called(inputs: Tensors) -> Tensor:
            passed = {a: layouts.argument(a, how, inputs) for a in how.arguments}
            if how.destination is not None:
                blank = np.zeros(tuple(passed[how.destination].shape))
                passed[how.destination] = kind.literal(blank)
            places, keywords = layouts.placed(how.arguments, passed)
            output = function(*places, **keywords)
            if how.destination is not None:
                output = _written_of(passed[how.destination])
            # Outputs in another layout are brought into that of the specification.
            return on_first(
                lambda x: layouts.from_layout(x, inputs, how.layout) if isinstance(x, kind) else x,
                output,
            )

        return called

    def reads_outside(self, inputs: Inputs) -> bool:
        """Return whether a kernel of Triton that is interpreted reads or writes beyond the memory of a tensor."""
        if frameworks.INTERPRETER not in sys.modules or self.convention.framework != "torch":
            return False
        from symattn.arrays.modular import modular
        from symattn.verification.semantics import OUTSIDE

        kind = modular()
        lifted_inputs = {
            n: kind.literal(a) if a.dtype.kind == "f" else a for n, a in inputs.items()
        }
        with listening() as notes, captured(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.on(kind)(lifted_inputs)
            except (
                Exception
            ) as error:  # the code may raise anything, and then says nothing of its memory
                notes.append(str(error))
        return any(OUTSIDE in words for words in notes)

    def made(self, kind: type[Planes]) -> Function:
        """Return the function for arrays of another kind, with the same parameters."""
        return self.kinds.make(self._own, kind)

    def _compute_call_arguments(self, inputs: Inputs) -> dict[Argument, Tensor]:
        """Return the arguments computed from inputs, in the function's forms; optional ones may be missing."""
        arrays: dict[Argument, Tensor] = {}
        for a in self.convention.arguments:
            # Optional arguments that no input gives keep their default.
            if a.input is None or (
                a.input not in inputs and a.input not in MADE and not a.required
            ):
                continue
            if a.input not in inputs and a.input not in MADE:
                raise InputError(f"{self.describe()} needs the input {a.input}")
            arrays[a] = layouts.argument(a, self.convention, inputs)
        return arrays

    def _make_framework_array(self, values: Tensor, memory: Memory) -> Tensor:
        """Return a fresh array of the framework; plain numbers stay as they are."""
        if isinstance(values, (int, float)):
            return values
        values = np.asarray(values)
        dtype = self.convention.dtype
        # Stored transposed, so that the array differs by its strides alone.
        if memory == "transposed" and values.ndim > 1:
            turned = np.ascontiguousarray(values.swapaxes(-1, -2))
            return self._arrays.make(turned, dtype).swapaxes(-1, -2)
        result = self._arrays.make(np.ascontiguousarray(values) if values.ndim else values, dtype)
        if (
            memory == "strided" and values.ndim > 0 and self.convention.framework != "jax"
        ):  # JAX chooses its own layout
            # Every other element is NaN, which shows code that ignores strides.
            doubled = (*values.shape[:-1], 2 * values.shape[-1])
            apart = self._arrays.blank(result, doubled)[..., ::2]
            apart[...] = result
            return apart
        return self._arrays.laid_out(result, memory)

    def _in_kept_memory(self, passed: dict[Argument, Tensor]) -> dict[Argument, Tensor]:
        """Return the arrays of the last such call with the new contents, where these have the same shapes."""
        for a, array in passed.items():
            old_array = self._kept.get(a)
            if old_array is None or not self._arrays.refilled(old_array, array):
                self._kept[a] = array
        return {a: self._kept[a] for a in passed}

    def _with_output(self, outcome: Outcome, output: Tensor, inputs: Inputs) -> Outcome:
        returned = len(output) if isinstance(output, tuple) else 1
        first = _first_of(output)
        # Refused before it is copied, which takes seconds, and a view may have more numbers than memory.
        if excess := _describe_excess(output, inputs):
            self._before = None
            return replace(outcome, returned=returned, error=Failure("output", excess))
        try:
            values, dtype, shape = frameworks.read(first)
        except Exception as error:  # reading a foreign array type may raise anything
            self._before = None
            message = (
                str(error)
                if isinstance(error, TypeError)
                else f"returned what cannot be read: {one_line(error)}"
            )
            return replace(outcome, returned=returned, error=Failure("output", message))
        self._before = first, values
        if self.convention.layout != "nd":
            values = layouts.from_layout(values, inputs, self.convention.layout)
        others: list[NDArray[np.float64] | None] = []
        for item in output[1:] if isinstance(output, tuple) else ():
            try:
                others.append(frameworks.read(item)[0])
            except Exception:  # it is no array of numbers
                others.append(None)
        return replace(
            outcome,
            output=values,
            dtype=dtype,
            shape=shape,
            returned=returned,
            others=tuple(others),
        )


def _interpreting_if_requested(memory: Memory) -> AbstractContextManager[list[bool]]:
    """Return the context in which NumPy runs what JAX would compile, if that way of calling is requested.

    Its list has an entry for each program that NumPy ran.
    """
    # Without JAX nothing is compiled.
    if memory != "interpreted" or COMPILER not in sys.modules:
        return contextlib.nullcontext([])
    return interpreting()


def _returning_what_it_writes(function: Function, how: Convention) -> Function:
    """Return a function of torch without its destination, which it makes itself and returns."""
    torch = sys.modules["torch"]
    names = {a.input: a.parameter for a in how.arguments}
    others = [a.parameter for a in how.arguments if a.positional and a.input != DESTINATION]
    place = next(k for k, a in enumerate(how.arguments) if a.input == DESTINATION)
    is_positional = how.arguments[place].positional

    def returning(*places: Any, **keywords: Any) -> Any:
        passed = dict(zip(others, places, strict=True)) | keywords
        q = passed[names["q"]]
        v = passed[names["v"]]
        written = torch.zeros((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
        if is_positional:
            function(*places[:place], written, *places[place:], **keywords)
        else:
            function(*places, **keywords, **{names[DESTINATION]: written})
        return written

    return returning


def _written_of(array: Tensor) -> Tensor:
    """Return what was written into an array of zeros. Raises ``InputError`` if nothing was."""
    if not (array != 0).any():
        raise InputError("nothing was written into the destination on this kind of array")
    return array


def _describe_excess(output: Tensor, inputs: Inputs) -> str:
    """Return why outputs have more numbers than any definition gives for these inputs; "" if they have not.

    An output has an entry for each pair of entries of the inputs at most, as states and weights do.
    """
    shapes = []
    for item in output if isinstance(output, tuple) else (output,):
        # The attribute of a class of the candidate's own would run its code, which nothing watches here.
        if guard.is_installed() and not _is_plain_array(item):
            continue
        shape = getattr(item, "shape", None)
        # Arrays of any library have a tuple of whole numbers.
        if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape):
            shapes.append(tuple(shape))
    count = sum(map(prod, shapes))
    of_pairs = sum(map(np.size, inputs.values())) ** 2
    if count <= min(max(of_pairs, _USUAL_NUMBERS), _MAX_NUMBERS):
        return ""
    largest = max(shapes, key=prod)
    return f"returned an array of shape {largest}, whose {prod(largest)} numbers are too many to be read"


def _merge_equal_arrays(
    passed: dict[Argument, Tensor], inputs: Mapping[Argument, Tensor]
) -> dict[Argument, Tensor]:
    """Return the arguments with equal arrays as one array."""
    remaining: dict[Argument, Tensor] = {}
    for a, array in passed.items():
        # Only q, k and v may be one array: a mask that equals one is a coincidence.
        twins = (
            b
            for b in remaining
            if np.array_equal(inputs[a], inputs[b]) and a.input in _QKV and b.input in _QKV
        )
        remaining[a] = remaining[twin] if (twin := next(twins, None)) else array
    return remaining


def _is_wrapper(function: Function) -> TypeGuard[Wrapper]:
    from symattn.programs.packed import Wrapper  # most functions are called as they are

    return isinstance(function, Wrapper)


def _first_of(output: Any) -> Any:
    """Return the first of several items that a function returned."""
    return output[0] if isinstance(output, tuple) and output else output


# -- what a call prints and warns of: it never reaches the terminal ----------------------------------------------------
_PRINTED = 100_000  # bytes kept of what one call prints
# Different warnings of one call that are reported.
_WARNINGS = 20
_LONGEST_WARNING = 10_000  # characters


@dataclass(frozen=True, slots=True)
class Watched:
    """The result or exception of a call, with its output to stdout and its warnings."""

    output: Tensor
    error: Failure | None
    stdout: str
    warnings: tuple[str, ...]


_listeners: list[Callable[[], None]] = []  # called at the start of each call


@contextlib.contextmanager
def announced(listener: Callable[[], None]) -> Iterator[None]:
    """Call ``listener`` whenever a call of ``watch`` begins."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.pop()


def watch(
    function: Function, places: Sequence[object], keywords: Tensors, explains: bool = True
) -> Watched:
    """Call the function and record its exceptions, including ``SystemExit``, prints and warnings; Ctrl-C is raised.

    Unless it ``explains``, an exception is recorded by its type alone.
    """
    output = None
    error = None
    for listener in _listeners:
        listener()
    with captured() as text, warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        try:
            with guard.watched(lambda: not _is_own(function)):
                output = function(*places, **keywords)
                if guard.is_installed():
                    output = _export_call_output(output)
        except (KeyboardInterrupt, guard.Tampered):
            raise
        except BaseException as e:
            # What the guard noticed outweighs the exception, which it may have caused.
            if guard.is_installed():
                guard.check()
            error = (
                Failure(
                    "raised",
                    one_line(e).partition(": ")[2],
                    type(e).__name__,
                    where(e),
                    refuses(e, function),
                )
                if explains
                else Failure("raised", "", type(e).__name__)
            )
    texts = (f"{w.category.__name__}: {w.message}" for w in recorded)
    words = dict.fromkeys(text[:_LONGEST_WARNING] for text in texts)
    return Watched(output, error, text(), tuple(words)[:_WARNINGS])


def _export_call_output(output: Tensor) -> Tensor:
    """Return what a call has returned, with arrays of other types as arrays of NumPy.

    Such an array may compute its numbers when they are read: that is the candidate's code, and is watched like it.
    """
    if isinstance(output, tuple | list):
        # Plain containers: a subclass may run code of the candidate when it is read.
        return (
            type(output)(map(_export_call_output, output))
            if type(output) is list
            else tuple(map(_export_call_output, output))
        )
    if isinstance(output, Mapping):
        return {name: _export_call_output(item) for name, item in output.items()}
    if _is_plain_array(output):
        return output
    return _in_memory(output) if _has_memory(output) else frameworks.exported(output)


def _has_memory(output: Tensor) -> bool:
    """Return whether an output is a tensor with memory of its own, whatever its class overrides."""
    torch = sys.modules.get("torch")
    if torch is None or not issubclass(type(output), torch.Tensor):
        return False
    with _without_overrides():
        try:
            return bool(torch.Tensor.untyped_storage(output).data_ptr())
        except (NotImplementedError, RuntimeError):  # sparse, or made of other tensors
            return False


def _in_memory(output: Tensor) -> Tensor:
    """Return the tensor that is in memory, which a kernel reads, whatever the methods of its class answer."""
    torch = sys.modules["torch"]
    with _without_overrides():
        return torch.Tensor.as_subclass(output, torch.Tensor)


@contextlib.contextmanager
def _without_overrides() -> Iterator[None]:
    """Have torch call its own functions for tensors of every class."""
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass(), torch._C._DisableTorchDispatch():
        yield


# Flags of types: each class that Python code makes has both.
_IS_MADE_AT_RUN_TIME, _CAN_BE_SUBCLASSED = 1 << 9, 1 << 10


def _is_plain_array(output: Tensor) -> bool:
    """Return whether an array is of a type of NumPy, torch or JAX itself: reading it runs no code of the candidate."""
    kinds: list[type] = [np.ndarray, np.ma.MaskedArray]
    if (torch := sys.modules.get("torch")) is not None:
        kinds += [torch.Tensor, torch.nn.Parameter]
    # By identity, and by its true type: a class may say that it equals others, and an object that it is of another one.
    kind = type(output)
    if any(kind is other for other in kinds):
        return True
    # A subclass of a scalar may have a ``dtype`` and a ``shape`` that are computed.
    if issubclass(kind, np.generic) and not kind.__flags__ & _IS_MADE_AT_RUN_TIME:
        return True
    # ``isinstance`` would ask ``__class__``, and ``jax`` may be any module that the candidate made.
    is_compiled = not kind.__flags__ & _CAN_BE_SUBCLASSED
    return is_compiled and kind.__module__.partition(".")[0] == "jaxlib"


def _is_own(function: Function) -> bool:
    """Return whether code of symattn adapts the user's function, and may import more of symattn."""
    adapts = type(function).__module__.startswith("symattn.")
    return adapts and not getattr(function, "is_self_contained", False)


class _Limited(io.BytesIO):
    """The first bytes written; the rest is dropped, so that endless output does not fill the memory."""

    def write(self, data: Any) -> int:
        super().write(bytes(data)[: max(0, _PRINTED - self.tell())])
        return len(data)


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Capture ``sys.stdout`` and ``sys.stderr``; yield a function that returns the printed text afterwards."""
    buffer = _Limited()
    stream = io.TextIOWrapper(
        buffer, encoding="utf-8", errors="replace", newline="\n", write_through=True
    )
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            yield lambda: buffer.getvalue().decode("utf-8", errors="replace")
    finally:
        # Detached, so that the bytes stay open for who reads the text afterwards.
        stream.detach()
