"""A function called in this process: fresh arrays in, and everything worth knowing about the call out."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from symattn.attention.spec import Attention
from symattn.bounds.called_target import (
    IN_PROCESS,
    MADE,
    Argument,
    Convention,
    Failure,
    Framework,
    Inputs,
    Layout,
    Memory,
    Outcome,
    Runner,
)
from symattn.bounds.domain import Domain
from symattn.document.errors import InputError, MissingExtra
from symattn.programs import frameworks, modules, packed
from symattn.programs.calling import agree
from symattn.programs.frameworks import Tensor, Tensors, suspects
from symattn.programs.hosts import host_of
from symattn.programs.layouts import argument, from_layout, in_words, placed
from symattn.programs.loading import one_line, where
from symattn.programs.names import Function, on_first
from symattn.programs.refusing import by_memory, refuses
from symattn.programs.request import Request
from symattn.programs.trial import is_open, settle
from symattn.verification.attention import is_plain
from symattn.verification.semantics import first_of

if TYPE_CHECKING:
    from symattn.arrays.planes import Planes
    from symattn.bounds.domain import Domain
    from symattn.programs.program import OnKinds
    from symattn.verification.semantics import IdentityResult


_QKV = ("q", "k", "v")
_NUMPY = "NumPy arrays were tried first, and are passed; --framework torch passes tensors"


class Target:
    """A function and the convention by which it is called: a ``Runner`` in this process."""

    notes: tuple[str, ...] = (IN_PROCESS,)

    def __init__(self, function: Function, convention: Convention, name: str = "") -> None:
        self._function = self._own = function
        self._name = name or getattr(function, "__name__", type(function).__name__)
        self._arrays = frameworks.arrays(convention.framework)
        self._before: tuple[Tensor, NDArray[np.float64]] | None = (
            None  # what the last call returned, and its values then
        )
        self.convention = convention

    def describe(self) -> str:
        """The function and what is passed to it: ``attn.py:attention(q, k, v)``."""
        return f"{self._name}({self.convention.printed})"

    def close(self) -> None:
        """Forget the last result."""
        self._before = None

    def run(self, inputs: Inputs, memory: Memory = "contiguous") -> Outcome:
        """Call the function once on fresh copies of ``inputs`` that lie in memory as told. See ``Runner``."""
        given = self._given(inputs)
        passed = _shared({a: self._place(value, memory) for a, value in given.items()}, given, memory)
        bits = {a: self._bits(array) for a, array in passed.items() if not isinstance(array, (int, float))}
        with suspects(self.convention.framework, self.convention.dtype) as runtimes:
            seen = watch(self._function, *placed(self.convention.arguments, passed))
        first = first_of(seen.output)
        outcome = Outcome(
            error=by_memory(seen.error, memory),
            stdout=seen.stdout,
            mutated=tuple(dict.fromkeys(a.input or "" for a in bits if self._bits(passed[a]) != bits[a])),
            overwrote=self._overwrote(),
            views=tuple(dict.fromkeys(a.input or "" for a in bits if self._arrays.shares(first, passed[a]))),
            warnings=seen.warnings,
            runtime=next(filter(None, runtimes), ""),
        )
        return outcome if seen.error else self._with_output(outcome, seen.output, inputs)

    def semantics(self, spec: Attention, seconds: float, domain: Domain | None = None) -> IdentityResult:
        """The identity test on residues, in a copy of this process: at the usual sizes, then at larger ones."""
        from symattn.programs.identity import identity, tried_apart  # residues take a while to import

        return tried_apart(self, lambda sizes: identity(self, spec, sizes, domain=domain), seconds)

    @cached_property
    def kinds(self) -> OnKinds:
        """Return what runs the function on other kinds of array. Raises ``InputError`` where nothing does."""
        from symattn.programs.program import on_kinds

        return on_kinds(self._own, self.convention)

    def on(self, kind: type[Planes]) -> Callable[[Tensors], Tensor]:
        """The function on another kind of array, of the inputs by name, with its first output in their axes."""
        return partial(_called, self.made(kind), self.convention, kind)

    def made(self, kind: type[Planes]) -> Function:
        """The function for arrays of another kind, with the same parameters."""
        return self.kinds.make(self._own, kind)

    def _given(self, inputs: Inputs) -> dict[Argument, Tensor]:
        """The arguments made of inputs, as the function wants them; those that can be left out may lack."""
        arrays: dict[Argument, Tensor] = {}
        for a in self.convention.arguments:
            if a.input is None or (a.input not in inputs and a.input not in MADE and not a.required):
                continue
            if a.input not in inputs and a.input not in MADE:
                raise InputError(f"{self.describe()} needs the input {a.input}")
            arrays[a] = argument(a, self.convention, inputs)
        return arrays

    def _place(self, values: Tensor, memory: Memory) -> Tensor:
        """A fresh array of the framework; plain numbers stay what they are."""
        if isinstance(values, (int, float)):
            return values
        values, dtype = np.asarray(values), self.convention.dtype
        if memory == "transposed" and values.ndim > 1:
            turned = np.ascontiguousarray(values.swapaxes(-1, -2))
            return self._arrays.make(turned, dtype).swapaxes(-1, -2)
        result = self._arrays.make(np.ascontiguousarray(values) if values.ndim else values, dtype)
        if memory == "strided" and values.ndim > 0 and self.convention.framework != "jax":  # which lays arrays itself
            apart = self._arrays.blank(result, (*values.shape[:-1], 2 * values.shape[-1]))[..., ::2]
            apart[...] = result
            return apart
        return self._arrays.lying(result, memory)

    def _bits(self, array: Tensor) -> tuple[tuple[int, ...], bytes]:
        return tuple(array.shape), self._arrays.bits(array)

    def _overwrote(self) -> bool:
        """Return whether the array that the call before returned has changed since."""
        if self._before is None:
            return False
        array, values = self._before
        return not np.array_equal(frameworks.read(array)[0], values, equal_nan=True)

    def _with_output(self, outcome: Outcome, output: Tensor, inputs: Inputs) -> Outcome:
        returned = len(output) if isinstance(output, tuple) else 1
        first = first_of(output)
        try:
            values, dtype, shape = frameworks.read(first)
        except Exception as error:  # whatever a foreign array type does when it is read
            self._before = None
            message = str(error) if isinstance(error, TypeError) else f"returned what cannot be read: {one_line(error)}"
            return replace(outcome, returned=returned, error=Failure("output", message))
        self._before = first, values
        values = from_layout(values, inputs, self.convention.layout)
        others = tuple(map(_read, output[1:])) if isinstance(output, tuple) else ()
        return replace(outcome, output=values, dtype=dtype, shape=shape, returned=returned, others=others)


def _called(function: Function, how: Convention, kind: type[Planes], inputs: Tensors) -> Tensor:
    places, keywords = placed(how.arguments, {a: argument(a, how, inputs) for a in how.arguments})
    output = function(*places, **keywords)
    return on_first(lambda x: from_layout(x, inputs, how.layout) if isinstance(x, kind) else x, output)


def _shared(
    passed: dict[Argument, Tensor], inputs: Mapping[Argument, Tensor], memory: Memory
) -> dict[Argument, Tensor]:
    """Equal arrays as one array, where ``memory`` says so."""
    if memory != "shared":
        return passed
    remaining: dict[Argument, Tensor] = {}
    for a, array in passed.items():
        twins = (b for b in remaining if np.array_equal(inputs[a], inputs[b]) and a.input in _QKV and b.input in _QKV)
        remaining[a] = remaining[twin] if (twin := next(twins, None)) else array
    return remaining


def _read(item: Tensor) -> NDArray[np.float64] | None:
    """A further item that was returned, where it is an array of numbers."""
    try:
        return frameworks.read(item)[0]
    except Exception:  # whatever a foreign array type does when it is read
        return None


def target(function: Function, request: Request, name: str = "", agreed: Convention | None = None) -> Target:
    """The function ready to be called as ``request`` says: matched by ``agree``, in the framework that it wants.

    Small calls find what is open; nothing is tried where it is called as ``agreed`` before. Raises ``InputError`` and
    ``MissingExtra``.
    """
    if not is_plain(request.spec):
        from symattn.programs import definitions  # most programs are attention, and are not to wait for this

        return definitions.target(function, request, name, agreed)
    if isinstance(agreed, Wrapped):
        ways: Iterator[packed.Wrapper] = chain(wrappers(function, request, name), packed.one_query(function, name))
        return Target(next(way for way in ways if way.reading == agreed.reading), agreed, name)
    if agreed is not None:
        return Target(function, agreed, name)
    frameworks.numpy_dtype(request.dtype)
    if host := host_of(function):
        request = replace(request, framework=request.framework or host.framework)
    if wrapped := tuple(wrappers(function, request, name)):
        return _wrapped(*_best(wrapped, request, name), request, name)
    trial, note = _agreed(function, settled(function, request), name)
    single = tuple(packed.one_query(function, name)) if trial.tried and trial.right is None else ()
    if single and not request.domain.square:
        best = _best(single, request, name)
        # What gives an output for several queries takes them, and what is wrong with it is a fault.
        alone = request.domain.decoding or best[1].convention.layout not in trial.ran
        if alone and (best[1].right or (best[1].right is False and request.domain.decoding)):
            return _wrapped(*best, request, name)
    return Target(function, trial.noted(*note), name)


def _best(
    ways: Sequence[packed.Wrapper], request: Request, name: str
) -> tuple[packed.Wrapper, _Trial, tuple[str, ...]]:
    """The first of several ways to call a function that is right, else the first that runs, else the first."""
    best: tuple[packed.Wrapper, _Trial, tuple[str, ...]] | None = None
    for way in ways:
        result = replace(settled(way, request), domain=way.within(request.domain))
        trial, note = _tried(way, result, name)
        if best is None or trial.right or (best[1].right is None and trial.right is not None):
            best = way, trial, note
        if trial.right:
            break
    assert best is not None
    return best


def _wrapped(chosen: packed.Wrapper, outcome: _Trial, note: tuple[str, ...], request: Request, name: str) -> Target:
    how = outcome.noted(*note)
    result = {f.name: getattr(how, f.name) for f in fields(Convention)} | {"notes": (chosen.note, *how.notes)}
    return Target(chosen, Wrapped(**result, reading=chosen.reading, domain=chosen.within(request.domain)), name)


def wrappers(function: Function, request: Request, name: str) -> Iterator[packed.Wrapper]:
    """The ways to read a module that holds its weights, or a function that takes several inputs in one array."""
    if host := host_of(function):
        yield from modules.readings(host, request, name)
    else:
        yield from packed.ways(function, request, name)


@dataclass(frozen=True, slots=True)
class Wrapped(Convention):
    """How a wrapper is called: which of the readings it is, and the inputs that it can be given."""

    reading: object = None
    domain: Domain | None = None


def narrowed(runner: Runner, domain: Domain | None) -> Domain | None:
    """The domain of the inputs that a function can be given."""
    how = runner.convention
    return how.domain if isinstance(how, Wrapped) and how.domain else domain


def prepared(function: Function, request: Request) -> Request:
    """The request with the framework, where it shows; what takes long to import is imported."""
    if not is_plain(request.spec):
        from symattn.programs import definitions

        return definitions.prepared(function, request)
    return settled(function, request)


def settled(function: Function, request: Request) -> Request:
    """The request with the framework that the function visibly wants, where nobody has told it."""
    return request if request.framework else replace(request, likely=frameworks.wanted(function))


def _agreed(function: Function, request: Request, name: str) -> tuple[_Trial, tuple[str, ...]]:
    """The function in the framework, the layout and the forms of arguments by which it runs, as far as that is open."""
    if request.framework:
        trial = _Trial(function, request, name)
        if not is_open(function, trial.convention, request):
            return trial, ()
    return _tried(function, request, name)


def _tried(function: Function, request: Request, name: str) -> tuple[_Trial, tuple[str, ...]]:
    return preferred(function, request, lambda result: _Trial(function, result, name).run())


class Attempt(Protocol):
    """The results of small calls in one framework: ``right`` is None where nothing runs, ``error`` is the first one."""

    right: bool | None
    error: Failure | None


A = TypeVar("A", bound=Attempt)
_GIVEN: Mapping[Framework, str] = {"numpy": "NumPy arrays", "torch": "tensors", "jax": "arrays of JAX"}


def preferred(function: Function, request: Request, attempt: Callable[[Request], A]) -> tuple[A, tuple[str, ...]]:
    """The framework by trial, where none was told, and a note on it.

    The second one is tried where nothing runs in the first; and where the output is not right in NumPy, which no name
    in the code asks for, while the function's module has names from torch.
    """
    first, *others = request.frameworks
    one = attempt(replace(request, framework=first))
    unclear = request.likely is None and frameworks.has_torch(function)
    if not others or one.right or (one.right is False and not unclear):
        return one, () if request.framework or request.likely else (_NUMPY,)
    try:
        two = attempt(replace(request, framework=others[0]))
    except MissingExtra:
        return one, ("NumPy arrays are passed; tensors could not be tried, since torch is not installed",)
    given, other = _GIVEN[first], _GIVEN[others[0]]
    if two.right or (one.right is None and two.right is not None):
        failed = one.error if one.right is None else "an output that is not right"
        return two, (f"{other} are passed, since {given} gave {failed}",)
    if one.right is None:
        return one, (f"{given} are passed; {other}, tried too, are refused as well",)
    return one, (_NUMPY,)


class _Trial:
    """The convention of a function in the framework that the request tells, found by small calls."""

    def __init__(self, function: Function, request: Request, name: str) -> None:
        self._function, self._request = function, request
        self.convention = agree(function, request, name)
        self.right: bool | None = None
        self.error: Failure | None = None
        self.tried = False
        self._reached: dict[Layout, tuple[int, Convention]] = {}  # the last line, and how it was called
        self.ran: set[Layout] = set()  # orders of the axes with which an output came, of whatever shape

    def run(self) -> _Trial:
        """Make the calls."""
        self.tried = True
        result = settle(self._function, self.convention, self._request, self._call)
        self.right = result.near if result else None
        self.convention = result.convention if result else self.convention if self.ran else self._furthest()
        return self

    def _furthest(self) -> Convention:
        """Where nothing ran: the first way to call it in which its code came to a later line than in all others."""
        usual = self.convention.layout
        layout = max(self._reached, key=lambda at: (self._reached[at][0], at == usual), default=usual)
        if layout == usual:
            return self.convention
        axes = f"The axes are {in_words(layout)}, with which its code ran furthest; --layout sets others."
        return replace(self._reached[layout][1], notes=(*self.convention.notes, axes))

    def noted(self, *notes: str) -> Convention:
        """The convention with further notes."""
        return replace(self.convention, notes=(*self.convention.notes, *notes))

    def _call(self, how: Convention, inputs: Inputs) -> Outcome:
        try:
            outcome = Target(self._function, how).run(inputs)
        except InputError as error:  # such inputs are not those of the call
            outcome = Outcome(error=Failure("output", str(error)))
        self.error = self.error or outcome.error
        if outcome.error is None:
            self.ran.add(how.layout)
        elif how.layout not in self._reached or _line(outcome.error) > self._reached[how.layout][0]:
            self._reached[how.layout] = _line(outcome.error), how
        return outcome


def _line(error: Failure) -> int:
    """The line of ``file.py:line``; 0 where none is told."""
    line = error.where.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


# -- what a call prints and warns of: it never reaches the terminal ----------------------------------------------------
_PRINTED = 100_000  # bytes kept of what one call prints
_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class Watched:
    """The result or exception of one call, and what was heard meanwhile."""

    output: Tensor
    error: Failure | None
    stdout: str
    warnings: tuple[str, ...]


_begun: list[Callable[[], None]] = []  # who is told of each call


@contextlib.contextmanager
def announced(tell: Callable[[], None]) -> Iterator[None]:
    """Tell of each call of ``watch`` when it begins."""
    _begun.append(tell)
    try:
        yield
    finally:
        _begun.pop()


def watch(function: Function, places: Sequence[object], keywords: Tensors) -> Watched:
    """Call the function; its exceptions, ``SystemExit`` among them, prints and warnings are kept. Ctrl-C is not."""
    output, error = None, None
    for tell in _begun:
        tell()
    with captured() as text, warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            output = function(*places, **keywords)
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            error = Failure("raised", one_line(e).partition(": ")[2], type(e).__name__, where(e), refuses(e, function))
    words = dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in heard)
    return Watched(output, error, text(), tuple(words)[:_WARNINGS])


class _Limited(io.BytesIO):
    """The first bytes written; the rest is dropped, so that a function that prints without end fills no memory."""

    def write(self, data: Any) -> int:
        super().write(bytes(data)[: max(0, _PRINTED - self.tell())])
        return len(data)


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Catch ``sys.stdout`` and ``sys.stderr``; gives a function that tells, afterwards, what was printed."""
    kept = _Limited()
    stream = io.TextIOWrapper(kept, encoding="utf-8", errors="replace", newline="\n", write_through=True)
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            yield lambda: kept.getvalue().decode("utf-8", errors="replace")
    finally:
        stream.detach()
