"""Functions of any definition: how they are called, and what they return, against the definition's inputs and outputs.

Parameters are matched by name, ``weight`` for a gain or ``dout`` for the gradient of the output; settings such as
``eps`` are passed where a function has a parameter for them. Where names say nothing, the required places take the
inputs in their order.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import Parameter
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.errors import InputError, MissingExtra
from symattn.sources import frameworks
from symattn.sources.loading import CannotRun
from symattn.sources.names import plain
from symattn.sources.request import Request
from symattn.sources.signature import bound_keywords, parameters, printed
from symattn.sources.target import Target, settled
from symattn.verification.definitions import engine
from symattn.verification.definitions.drawing import draw
from symattn.verification.definitions.registry import subject_of
from symattn.verification.definitions.subject import Subject
from symattn.verification.domain import Domain
from symattn.verification.engine import Unusable
from symattn.verification.report import Report
from symattn.verification.target import Argument, Convention, Framework, Layout, Runner

_STARS = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
#: Other names that parameters have for settings.
_SETTINGS = {
    "eps": "epsilon variance_epsilon norm_eps layer_norm_eps rms_norm_eps",
    "normalized_shape": "shape",
}


def verified(
    function: Callable[..., Any], request: Request, precision: Precision, domain: Domain | None, **tried: Any
) -> Report:
    """Does the function, called in this process, compute the definition? See ``symattn.verify``."""
    runner = target(function, replace(request, dtype=precision.input.name))
    return report(runner, request, precision, domain, **tried)


def report(runner: Runner, request: Request, precision: Precision, domain: Domain | None, **tried: Any) -> Report:
    """What is found of a function that is ready to be called."""
    try:
        return engine.verify(runner, subject_of(request.spec, _layout(request)), precision, domain, **tried)
    except Unusable as nothing:
        raise CannotRun(str(nothing)) from None
    finally:
        runner.close()


def _layout(request: Request) -> Layout:
    return "nd" if request.layout == "auto" else request.layout


def target(function: Callable[..., Any], request: Request, name: str = "") -> Target:
    """The function ready to be called with the inputs of a definition, in the framework that it wants.

    Raises InputError where it is open how to call it.
    """
    frameworks.numpy_dtype(request.dtype)
    request = settled(function, request)
    subject = subject_of(request.spec, _layout(request))
    agreed = _Agreement(function, subject, request, name or getattr(function, "__name__", "the function"))
    convention = agreed.convention()
    made = Adapted(function, subject, agreed)
    if request.framework is None:
        framework, note = _tried(made, convention, subject, request)
        convention = replace(convention, framework=framework, notes=(*convention.notes, note))
    return Target(made, convention, name or getattr(function, "__name__", type(function).__name__))


class Adapted:
    """A function whose parameters for sizes are filled in from its inputs, and whose lists and mappings are tuples."""

    def __init__(self, function: Callable[..., Any], subject: Subject, agreed: _Agreement) -> None:
        self._function, self._outputs = function, subject.outputs
        self._arguments, self._derived = agreed.arguments, agreed.derived
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *places: Any, **keywords: Any) -> Any:
        if self._derived:
            ordered = [a for a in self._arguments if a.positional]
            arrays = {a.input: x for a, x in zip(ordered, places, strict=False)}
            arrays |= {a.input: keywords[a.parameter] for a in self._arguments if a.parameter in keywords}
            keywords |= {p: value(arrays) for p, value in self._derived.items()}
        output = self._function(*places, **keywords)
        if isinstance(output, Mapping):
            return tuple(output[n] for n in self._outputs if n in output)
        return tuple(output) if isinstance(output, list) else output


class _Agreement:
    """One function and one definition, on the way to a convention."""

    def __init__(self, function: Callable[..., Any], subject: Subject, request: Request, name: str) -> None:
        found = parameters(function)
        self.subject, self.request, self.told = subject, request, dict(request.call)
        self.label = name if found is None else f"{name}({', '.join(map(printed, found))})"
        every = found if found is not None and not _open(found) else self._places(found or ())
        fixed = bound_keywords(function) - self.told.keys()
        self.parameters = [p for p in every if p.kind not in _STARS and p.name not in fixed]
        self._check_told(any(p.kind is Parameter.VAR_KEYWORD for p in every))
        self.derived: dict[str, Callable[..., Any]] = {}
        self.arguments = self._arguments(self._meanings())
        self._check_complete()

    def convention(self) -> Convention:
        """How the function is called."""
        return Convention(self.arguments, self.request.framework or "numpy", self.request.dtype)

    def _places(self, found: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
        """A place for each input that is needed, where the signature tells none."""
        needed = [Parameter(i.name, Parameter.POSITIONAL_ONLY) for i in self.subject.inputs if i.needed]
        return (*needed, *(p for p in found if p.kind not in _PLACED))

    def _check_told(self, open_ended: bool) -> None:
        names = [p.name for p in self.parameters if p.kind is not Parameter.POSITIONAL_ONLY]
        for name in self.told:
            if name not in names and not open_ended:
                near = difflib.get_close_matches(name, names, n=1)
                mend = f"; did you mean {near[0]}?" if near else ""
                raise InputError(f"{self.label} has no parameter {name} that can be named{mend}")
        self.parameters += [Parameter(n, Parameter.KEYWORD_ONLY, default=None) for n in self.told if n not in names]

    def _meanings(self) -> dict[str, str]:
        """parameter → input or setting, each of them once; then required places in the order of the inputs."""
        known = _words(self.subject)
        found: dict[str, str] = {}
        for p in sorted(self.parameters, key=lambda p: known.get(plain(p.name)) != p.name):
            what = None if p.name in self.told else known.get(plain(p.name))
            if what and what not in found.values():
                found[p.name] = what
        free = [p.name for p in self.parameters if _is_place(p) and p.name not in found and p.name not in self.told]
        left = [i.name for i in self.subject.inputs if i.name not in found.values()]
        needed = [i.name for i in self.subject.inputs if i.needed and i.name in left]
        for choice in (needed, left):
            if len(free) == len(choice):
                return found | dict(zip(free, choice, strict=True))
        return found

    def _arguments(self, meanings: Mapping[str, str]) -> tuple[Argument, ...]:
        inputs = {i.name for i in self.subject.inputs}
        found: list[Argument] = []
        leading = True  # a place can be used as long as every place before it is
        for p in self.parameters:
            what, required = meanings.get(p.name), p.default is Parameter.empty
            leading = leading and p.kind in _PLACED and what in inputs
            if p.name in self.told:
                found.append(Argument(p.name, value=self.told[p.name]))
            elif what in inputs:
                found.append(Argument(p.name, what, None, leading or p.kind is Parameter.POSITIONAL_ONLY, required))
            elif what is not None and callable(self.subject.settings[what]):
                self.derived[p.name] = self.subject.settings[what]
            elif what is not None and self.subject.settings[what] is not None:
                found.append(Argument(p.name, value=self.subject.settings[what]))
            elif required:
                raise InputError(f"{self.label}: no value is known for {p.name}; say --call {p.name}=VALUE")
        return tuple(found)

    def _check_complete(self) -> None:
        placed = {a.input for a in self.arguments}
        for i in self.subject.inputs:
            if i.needed and i.name not in placed:
                raise InputError(f"{self.label}: no parameter for the input {i.name} is known; name it {i.name}")


def _words(subject: Subject) -> dict[str, str]:
    """Names of parameters, plain, and what they mean; names of inputs before other words, inputs before settings."""
    found = {plain(i.name): i.name for i in subject.inputs}
    for i in subject.inputs:
        found = {plain(word): i.name for word in i.words.split()} | found
    for setting in subject.settings:
        found = {plain(word): setting for word in (setting, *_SETTINGS.get(setting, "").split())} | found
    return found


def _open(found: tuple[Parameter, ...]) -> bool:
    """Whether ``*args`` alone takes the arrays."""
    return any(p.kind is Parameter.VAR_POSITIONAL for p in found) and not any(map(_is_place, found))


def _is_place(p: Parameter) -> bool:
    """Whether every call must fill it, and may do so by position."""
    return p.kind in _PLACED and p.default is Parameter.empty


def _tried(made: Adapted, convention: Convention, subject: Subject, request: Request) -> tuple[Framework, str]:
    """The framework by one small call, and a note that says so."""
    names = [i.name for i in subject.inputs if i.name in convention.inputs]
    inputs = draw(
        subject, names, subject.sizes[0], next(iter(subject.families)), Precision.of(request.dtype),
        np.random.default_rng(0),
    )  # fmt: skip
    if Target(made, convention).run(inputs).error is None:
        return "numpy", "NumPy arrays were tried first, and are passed; --framework torch passes tensors"
    try:
        second = Target(made, replace(convention, framework="torch")).run(inputs).error
    except MissingExtra:
        return "numpy", "NumPy arrays are passed; tensors could not be tried, since torch is not installed"
    if second is None:
        return "torch", "tensors are passed, since NumPy arrays gave an error"
    return "numpy", "NumPy arrays are passed; tensors, tried too, are refused as well"
