"""The parameters of a function against the inputs and settings of a definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Any

from symattn.bounds.called_target import Argument, Convention
from symattn.document.errors import InputError, perhaps
from symattn.document.keywords import FIELDS, plain
from symattn.programs.request import Request
from symattn.programs.signature import PLACED, STARS, bound_keywords, parameters, printed
from symattn.verification.definitions.definition_subject import Definition

#: Other names that parameters have for settings, besides those of fields of ``Attention``.
_SETTINGS = {
    "axis": "dim",
    "eps": "epsilon variance_epsilon norm_eps layer_norm_eps rms_norm_eps",
    "normalized_shape": "shape",
    "base": "theta rope_theta rotary_base freq_base",
    "dim": "rotary_dim rope_dim",
    "head_dim": "d_head d head_size dim_head d_k",
    "interleaved": "interleave",
    "length": "n seq_len max_len max_seq_len seqlen",
    "start": "offset past start_pos",
    "return_lse": "return_softmax_lse with_lse output_lse return_logsumexp",
}


class Parameters:
    """The parameters of one function, those among them that the user told of by name, and how messages call it.

    ``*args`` and an unreadable signature are seen as ``places``; what is told and ``**kwargs`` alone takes becomes a
    parameter like the others. Raises ``InputError`` for a name that is told and cannot be passed, or told twice.
    """

    def __init__(self, function: Callable[..., Any], request: Request, name: str, places: Iterable[str]) -> None:
        results = parameters(function)
        self.label = name if results is None else f"{name}({', '.join(map(printed, results))})"
        self.request, self.told = request, dict(request.call)
        self.mask_name = (request.mask_arg or "").removeprefix("~")
        if results is None or open_ended(results):
            rest = (Parameter("keywords", Parameter.VAR_KEYWORD),) if results is None else results
            of_places = (Parameter(n, Parameter.POSITIONAL_ONLY) for n in places)
            results = (*of_places, *(p for p in rest if p.kind not in PLACED))
        self.open_ended = any(p.kind is Parameter.VAR_KEYWORD for p in results)
        fixed = bound_keywords(function) - self.told.keys() - {self.mask_name}
        self.parameters = [p for p in results if p.kind not in STARS and p.name not in fixed]
        self._bring([*self.told, *filter(None, [self.mask_name])])

    def _bring(self, results: list[str]) -> None:
        names = [p.name for p in self.parameters if p.kind is not Parameter.POSITIONAL_ONLY]
        for name in results:
            if name not in names and not self.open_ended:
                raise InputError(f"{self.label} has no parameter {name} that can be named{perhaps(name, names)}")
        if self.mask_name in self.told:
            raise InputError(f"{self.mask_name} is set twice, by --call and by --mask-arg; leave one out")
        new = [name for name in results if name not in [p.name for p in self.parameters]]
        self.parameters += [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in new]


class Agreement(Parameters):
    """One function and one definition, on the way to a convention."""

    def __init__(self, function: Callable[..., Any], subject: Definition, request: Request, name: str) -> None:
        super().__init__(function, request, name, [i.name for i in subject.inputs if i.needed])
        self.subject = subject
        self.derived: dict[str, Callable[..., Any]] = {}
        self.arguments = self._arguments(self._meanings())
        self._check_complete()

    def convention(self) -> Convention:
        """How the function is called."""
        return Convention(self.arguments, self.request.framework or "numpy", self.request.dtype)

    def _meanings(self) -> dict[str, str]:
        """parameter → input or setting, each of them once; then required places in the order of the inputs."""
        known = meanings(self.subject)
        result: dict[str, str] = {}
        for p in sorted(self.parameters, key=lambda p: known.get(plain(p.name)) != p.name):
            what = None if p.name in self.told else known.get(plain(p.name))
            what = "mask" if p.name == self.mask_name else what
            if what and what not in result.values():
                result[p.name] = what
        free = [p.name for p in self.parameters if is_place(p) and p.name not in result and p.name not in self.told]
        left = [i.name for i in self.subject.inputs if i.name not in result.values()]
        needed = [i.name for i in self.subject.inputs if i.needed and i.name in left]
        for choice in (needed, left):
            if len(free) == len(choice):
                return result | dict(zip(free, choice, strict=True))
        return result

    def _arguments(self, meanings: Mapping[str, str]) -> tuple[Argument, ...]:
        inputs = {i.name for i in self.subject.inputs}
        result: list[Argument] = []
        leading = True  # a place can be used as long as every place before it is
        for p in self.parameters:
            what, required = meanings.get(p.name), p.default is Parameter.empty
            leading = leading and p.kind in PLACED and what in inputs
            if p.name in self.told:
                result.append(Argument(p.name, value=self.told[p.name]))
            elif what in inputs:
                place = leading or p.kind is Parameter.POSITIONAL_ONLY
                inverted = p.name == self.mask_name != self.request.mask_arg
                result.append(Argument(p.name, what, None, place, required, inverted))
            elif what is not None and callable(self.subject.settings[what]):
                self.derived[p.name] = self.subject.settings[what]
            elif what is not None and self.subject.settings[what] is not None:
                result.append(Argument(p.name, value=self.subject.settings[what]))
            elif required:
                raise unknown(self.label, p.name)
        return tuple(result)

    def _check_complete(self) -> None:
        placed = {a.input for a in self.arguments}
        for i in self.subject.inputs:
            if i.needed and i.name not in placed:
                raise InputError(f"{self.label}: no parameter for the input {i.name} is known; name it {i.name}")


def meanings(subject: Definition) -> dict[str, str]:
    """Names of parameters, plain, and what they mean; names of inputs before other words, inputs before settings."""
    result = {plain(i.name): i.name for i in subject.inputs}
    for i in subject.inputs:
        result = {plain(word): i.name for word in i.words.split()} | result
    for setting in subject.settings:
        words = (setting, *_SETTINGS.get(setting, "").split(), *FIELDS.get(setting, "").split())
        result = {plain(word): setting for word in words} | result
    return result


def open_ended(found: tuple[Parameter, ...]) -> bool:
    """Return whether ``*args`` alone takes the arrays."""
    return any(p.kind is Parameter.VAR_POSITIONAL for p in found) and not any(map(is_place, found))


def is_place(p: Parameter) -> bool:
    """Return whether every call must fill it, and may do so by position."""
    return p.kind in PLACED and p.default is Parameter.empty


def unknown(label: str, name: str) -> InputError:
    """The error for a parameter that nobody knows a value for."""
    return InputError(
        f"{label}: no value is known for {name}; say --call {name}=VALUE, in Python call={{{name!r}: VALUE}}"
    )
