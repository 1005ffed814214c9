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
from symattn.sources.autograd import Backpropagated
from symattn.sources.loading import CannotRun
from symattn.sources.names import plain
from symattn.sources.request import Request
from symattn.sources.signature import bound_keywords, parameters, printed
from symattn.sources.target import Target, settled
from symattn.verification.definitions import engine
from symattn.verification.definitions.drawing import draw
from symattn.verification.definitions.registry import ordered, subjects_of
from symattn.verification.definitions.subject import Subject
from symattn.verification.domain import Domain
from symattn.verification.engine import Unusable
from symattn.verification.report import Report
from symattn.verification.target import Argument, Convention, Framework, Layout

_STARS = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
#: Other names that parameters have for settings.
_SETTINGS = {
    "eps": "epsilon variance_epsilon norm_eps layer_norm_eps rms_norm_eps",
    "normalized_shape": "shape",
    "base": "theta rope_theta rotary_base freq_base",
    "dim": "rotary_dim rope_dim",
    "head_dim": "d_head d head_size",
    "interleaved": "interleave",
    "length": "n seq_len max_len max_seq_len seqlen",
    "start": "offset past start_pos",
}


def verified(
    function: Callable[..., Any], request: Request, precision: Precision, domain: Domain | None, **tried: Any
) -> Report:
    """Does the function, called in this process, compute the definition? See ``symattn.verify``."""
    runner = target(function, replace(request, dtype=precision.input.name))
    return report(runner, request, precision, domain, **tried)


def report(runner: Laid, request: Request, precision: Precision, domain: Domain | None, **tried: Any) -> Report:
    """What is found of a function that is ready to be called."""
    try:
        return engine.verify(runner, runner.subject, precision, domain, **tried)
    except Unusable as nothing:
        raise CannotRun(str(nothing)) from None
    finally:
        runner.close()


def joined(output: Report, rest: Report) -> Report:
    """The report on an output and the one on what is returned beside it."""
    notes = [n for n in (*output.notes, *rest.notes) if not n.startswith("It returns a tuple")]
    return replace(rest, checks=(*output.checks, *rest.checks), notes=tuple(dict.fromkeys(notes)))


def target(function: Callable[..., Any], request: Request, name: str = "") -> Laid:
    """The function ready to be called with the inputs of a definition, in the framework that it wants.

    Raises InputError where it is open how to call it.
    """
    frameworks.numpy_dtype(request.dtype)
    request = settled(function, request)
    if _forward_alone(function, request):
        function, request = Backpropagated(function), replace(request, framework="torch")
    name = name or getattr(function, "__name__", type(function).__name__)
    layout, made = _laid(function, request, name)
    notes: tuple[str, ...] = (_AUTOGRAD,) if isinstance(function, Backpropagated) else ()
    if layout != "nd" and request.layout == "auto":
        notes += (f"The axes are in the order {layout}, by trial; --layout tells another",)
    if request.framework is None:
        framework, note = _tried(made, made.subject, request)
        made.convention, notes = replace(made.convention, framework=framework), (*notes, note)
    return Laid(made, replace(made.convention, notes=(*made.convention.notes, *notes)), name)


_AUTOGRAD = "The gradients are those that torch's autograd gives for the function's output"


class Laid(Target):
    """A function, and the definition in the form in which it is called."""

    def __init__(self, made: Adapted, convention: Convention, name: str) -> None:
        super().__init__(made, convention, name)
        self.subject = made.subject


def _laid(function: Callable[..., Any], request: Request, name: str) -> tuple[Layout, Adapted]:
    """The first form, and order of the axes, in which a small call gives what it should.

    Where none does, the first in which the shapes are right; the order is the one that was told.
    """
    orders: tuple[Layout, ...] = _ORDERS if ordered(request.spec) else ("nd",)
    found: dict[bool | None, tuple[Layout, Adapted]] = {}
    refused: list[InputError] = []
    for layout in orders if request.layout == "auto" else (request.layout,):
        try:
            forms = tuple(subjects_of(request.spec, layout))
        except InputError as error:
            refused.append(error)
            continue
        for subject in forms:
            try:
                made = Adapted(function, subject, request, name)
            except InputError as error:
                refused.append(error)
                continue
            found.setdefault(_agrees(made, subject, request) if ordered(request.spec) else True, (layout, made))
            if True in found:
                return found[True]
    if not found:
        raise refused[-1]
    return found.get(False) or found[None]


_ORDERS: tuple[Layout, ...] = ("bhnd", "bnhd", "bnd", "nhd", "nd")


def _agrees(made: Adapted, subject: Subject, request: Request) -> bool | None:
    """Whether a small call gives about the right values; None where not even the shapes are right."""
    inputs = _small(subject, made.convention, request)
    for framework in (request.framework,) if request.framework else ("numpy", "torch"):
        try:
            outcome = Target(made, replace(made.convention, framework=framework)).run(inputs)
        except MissingExtra:
            continue
        if outcome.output is not None:
            break
    else:
        return None
    with np.errstate(all="ignore"):
        right = subject.run(subject.ways[0], inputs)
    got = [a for a in (outcome.output, *outcome.others) if a is not None]
    if len(got) < len(right):
        return None
    for a, b, name in zip(got, right, subject.outputs, strict=False):
        if a.size != np.size(b) or (a.shape != np.shape(b) and name not in subject.loose):
            return None
    return all(_about(np.ravel(a), np.ravel(b)) for a, b in zip(got, right, strict=False))


def _about(a: np.ndarray, b: np.ndarray) -> bool:
    """Nearer to one another than arrays in another order would be. Nothing is judged by that."""
    return bool(np.abs(a - b).max(initial=0.0) < 0.05 * (1 + np.abs(b).max(initial=0.0)))


def _forward_alone(function: Callable[..., Any], request: Request) -> bool:
    """Whether a gradient is wanted of a function of torch that has no parameter for the gradient of its output."""
    if type(request.spec).__name__ != "Gradient" or request.framework == "numpy":
        return False
    subject = next(subjects_of(request.spec))
    words = {w for w, what in _words(subject).items() if what == "do"}
    found = parameters(function)
    return found is not None and not words & {plain(p.name) for p in found} and not _open(found) and _has_torch()


def _has_torch() -> bool:
    try:
        frameworks.import_torch()
    except MissingExtra:
        return False
    return True


class Adapted:
    """A function whose parameters for sizes are filled in from its inputs, and whose lists and mappings are tuples."""

    def __init__(self, function: Callable[..., Any], subject: Subject, request: Request, name: str) -> None:
        agreed = _Agreement(function, subject, request, name)
        self.subject = subject
        self._function, self._outputs = function, subject.outputs
        self._arguments, self._derived = agreed.arguments, agreed.derived
        self.convention = agreed.convention()
        self.__name__ = name

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
            what = "mask" if p.name == (self.request.mask_arg or "").removeprefix("~") else what
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
                place = leading or p.kind is Parameter.POSITIONAL_ONLY
                inverted = p.name == (self.request.mask_arg or "").removeprefix("~") != self.request.mask_arg
                found.append(Argument(p.name, what, None, place, required, inverted))
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


def _tried(made: Adapted, subject: Subject, request: Request) -> tuple[Framework, str]:
    """The framework by one small call, and a note that says so."""
    inputs, convention = _small(subject, made.convention, request), made.convention
    if Target(made, convention).run(inputs).error is None:
        return "numpy", "NumPy arrays were tried first, and are passed; --framework torch passes tensors"
    try:
        second = Target(made, replace(convention, framework="torch")).run(inputs).error
    except MissingExtra:
        return "numpy", "NumPy arrays are passed; tensors could not be tried, since torch is not installed"
    if second is None:
        return "torch", "tensors are passed, since NumPy arrays gave an error"
    return "numpy", "NumPy arrays are passed; tensors, tried too, are refused as well"


def _small(subject: Subject, convention: Convention, request: Request) -> dict[str, np.ndarray]:
    """Inputs for one call, of the second of the sizes, in which as a rule all differ."""
    names = [i.name for i in subject.inputs if i.name in convention.inputs]
    rng = np.random.default_rng(0)
    return draw(subject, names, subject.sizes[1], list(subject.families)[1], Precision.of(request.dtype), rng)
