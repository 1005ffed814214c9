"""How a function is called: matched with a specification, in the framework and with the axes that it takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from types import FunctionType
from typing import TYPE_CHECKING, Protocol, TypeVar

from symattn.bounds.called_target import (
    Convention,
    Failure,
    Framework,
    Inputs,
    Runner,
)
from symattn.bounds.domain import Domain
from symattn.document.errors import MissingExtra
from symattn.programs import frameworks, interpreting, modules, packed, triton_host
from symattn.programs.calls import Target
from symattn.programs.hosts import Host, host_of
from symattn.programs.names import Function
from symattn.programs.request import Request
from symattn.programs.specifications import kind_of
from symattn.programs.trial import ConventionTrial, line

if TYPE_CHECKING:
    from symattn.bounds.domain import Domain


#: The note where no name in the code suggests a framework.
_NUMPY = "NumPy arrays were tried first, and are passed; --framework torch passes tensors"


def target(
    function: Function, request: Request, name: str = "", agreed: Convention | None = None
) -> Target:
    """Return the function ready to be called for a ``request``: matched by ``agree``, in the framework that it uses.

    Small calls determine what names leave open; with a convention ``agreed`` before, nothing is tried. Raises
    ``InputError`` and ``MissingExtra``.
    """
    if "TRITON_INTERPRET" in os.environ:
        triton_host.prepare()
    result = kind_of(request.spec).target(function, request, name, agreed)
    is_jax_loaded = interpreting.COMPILER in sys.modules
    if is_jax_loaded and _compiles_for_new_sizes(function, result.convention):
        result.convention = replace(result.convention, compiles=True)
    return result


def _compiles_for_new_sizes(function: Function, how: Convention) -> bool:
    """Return whether a function may compile programs of JAX for new sizes which NumPy can run in their place."""
    if how.dtype not in interpreting.FORMATS:
        return False
    layer = host_of(function)
    of_layer = layer is not None and layer.xp is sys.modules.get("jax.numpy")
    return how.framework == "jax" or of_layer or frameworks.has_names_of("jax", function)


def target_of_attention(
    function: Function, request: Request, name: str, agreed: Convention | None
) -> Target:
    """Return a function of the output of an attention ready to be called, as ``target`` does."""
    # A plain function has no weights of its own.
    host = None if isinstance(function, FunctionType) else host_of(function)
    if isinstance(agreed, Wrapped):
        ways: Iterator[packed.Wrapper] = chain(
            wrappers(function, host, request, name), packed.one_query(function, name)
        )
        return Target(next(way for way in ways if way.reading == agreed.reading), agreed, name)
    if agreed is not None:
        return Target(function, agreed, name)
    # Raises for an unknown format, before anything is called.
    frameworks.numpy_dtype(request.dtype)
    if host:
        request = replace(request, framework=request.framework or host.framework)
    if wrapped := tuple(wrappers(function, host, request, name)):
        return _make_wrapped_target(*_choose_best_wrapper(wrapped, request, name), request, name)
    likely = settled(function, request)
    trial: ConventionTrial | None = None
    note: tuple[str, ...] = ()
    if likely.framework:
        trial = _make_convention_trial(function, likely, name)
    # The layout and the forms of arguments are tried only if these are open.
    if trial is None or trial.is_open:
        trial, note = _try_preferred_frameworks(function, likely, name)
    single = tuple(packed.one_query(function, name)) if trial.tried and trial.right is None else ()
    if single and not request.domain.square:
        best = _choose_best_wrapper(single, request, name)
        # A function that returns an output for several queries takes them, and a wrong output is a fault.
        alone = request.domain.decoding or best[1].convention.layout not in trial.ran
        if alone and (best[1].right or (best[1].right is False and request.domain.decoding)):
            return _make_wrapped_target(*best, request, name)
    return Target(function, trial.noted(*note), name)


def _choose_best_wrapper(
    ways: Sequence[packed.Wrapper], request: Request, name: str
) -> tuple[packed.Wrapper, ConventionTrial, tuple[str, ...]]:
    """Return the first way to call a function that is right, else the first that runs, else the first."""
    best: tuple[packed.Wrapper, ConventionTrial, tuple[str, ...]] | None = None
    for way in ways:
        # A way may narrow the domain.
        result = replace(settled(way, request), domain=way.within(request.domain))
        trial, note = _try_preferred_frameworks(way, result, name)
        # A call that is wrong says more than one that does not run.
        if best is None or trial.right or (best[1].right is None and trial.right is not None):
            best = way, trial, note
        if trial.right:
            break
    assert best is not None
    return best


def _make_wrapped_target(
    chosen: packed.Wrapper,
    outcome: ConventionTrial,
    note: tuple[str, ...],
    request: Request,
    name: str,
) -> Target:
    how = outcome.noted(*note)
    # A wrapped convention is the inner one with the way of wrapping.
    result = {f.name: getattr(how, f.name) for f in fields(Convention)} | {
        "notes": (chosen.note, *how.notes)
    }
    return Target(
        chosen,
        Wrapped(**result, reading=chosen.reading, domain=chosen.within(request.domain)),
        name,
    )


def wrappers(
    function: Function, host: Host | None, request: Request, name: str
) -> Iterable[packed.Wrapper]:
    """Return the ways to read a module with weights, or a function that takes several inputs in one array."""
    if host:
        return modules.readings(host, request, name)
    return packed.ways(function, request, name)


@dataclass(frozen=True, slots=True)
class Wrapped(Convention):
    """How a wrapper is called: its reading, and the domain of the inputs that it takes."""

    reading: object = None
    domain: Domain | None = None

    @property
    def needs_definition(self) -> bool:
        """Return whether a process that calls the function has to know the definition, here to adapt it."""
        return True

    @property
    def returns_lists(self) -> bool:
        """Return whether outputs may come as a list, which stands for a tuple."""
        return True


def narrowed(runner: Runner, domain: Domain | None) -> Domain | None:
    """Return the domain restricted to the inputs that a function takes."""
    how = runner.convention
    return how.domain if isinstance(how, Wrapped) and how.domain else domain


def prepared(function: Function, request: Request) -> Request:
    """Return the request with the framework, if it can be told from the code; import what takes long to import."""
    return kind_of(request.spec).prepare(function, request)


def settled(function: Function, request: Request) -> Request:
    """Return the request with the framework that the function's code names, unless the user sets one."""
    return request if request.framework else replace(request, likely=frameworks.wanted(function))


def _try_preferred_frameworks(
    function: Function, request: Request, name: str
) -> tuple[ConventionTrial, tuple[str, ...]]:
    return preferred(
        function, request, lambda result: _make_convention_trial(function, result, name).make()
    )


def _make_convention_trial(function: Function, request: Request, name: str) -> ConventionTrial:
    def outside(how: Convention, inputs: Inputs) -> bool:
        return Target(function, how).reads_outside(inputs)

    return ConventionTrial(
        function,
        request,
        name,
        # Such calls tell meanings apart, for which JAX need not compile.
        lambda how, inputs, explains: Target(function, how).run(inputs, "interpreted", explains),
        outside,
    )


class Attempt(Protocol):
    """The results of small calls in a framework: ``right`` is None if nothing runs, ``error`` is the first error."""

    right: bool | None
    error: Failure | None


A = TypeVar("A", bound=Attempt)
#: What is passed in each framework.
_GIVEN: Mapping[Framework, str] = {
    "numpy": "NumPy arrays",
    "torch": "tensors",
    "jax": "arrays of JAX",
}


def preferred(
    function: Function, request: Request, attempt: Callable[[Request], A]
) -> tuple[A, tuple[str, ...]]:
    """Return the attempt in the best framework, unless the user sets one, and a note on it.

    The second framework is tried if nothing runs in the first, and if the output is wrong in NumPy, which no name in
    the code suggests, while the function's module has names from torch. If nothing runs in either, it is the one in
    which the code reached the further line.
    """
    first, *others = request.frameworks
    one = attempt(replace(request, framework=first))
    unclear = request.likely is None and frameworks.has_names_of("torch", function)
    if not others or one.right or (one.right is False and not unclear):
        return one, () if request.framework or request.likely else (_NUMPY,)
    arrays = _GIVEN[first]
    other = _GIVEN[others[0]]
    try:
        two = attempt(replace(request, framework=others[0]))
    except MissingExtra:
        return one, (
            f"{arrays} are passed; {other} could not be tried, since {others[0]} is not installed",
        )
    if two.right or (one.right is None and two.right is not None):
        failed = one.error if one.right is None else "an output that is not right"
        return two, (f"{other} are passed, since {arrays} gave {failed}",)
    if one.right is None:
        # At the same line, the second framework is taken if names of torch suggest it.
        if one.error and two.error and (line(two.error), unclear) > (line(one.error), False):
            one, arrays, other = two, other, arrays
        return one, (f"{arrays} are passed; {other}, tried too, are refused as well",)
    return one, (_NUMPY,)
