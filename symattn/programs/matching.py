"""The parameters of a function against the inputs and settings of a definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from symattn.bounds.target import Argument, Convention
from symattn.document.errors import InputError, perhaps
from symattn.document.keywords import plain
from symattn.programs.request import Request
from symattn.programs.signature import bound_keywords, parameters, printed
from symattn.verification.definitions.subject import Definition

_STARS = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
#: Other names that parameters have for settings.
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
    "causal": "is_causal use_causal",
    "scale": "softmax_scale sm_scale scaling",
    "heads": "n_heads num_heads nheads n_head nhead",
    "kv_heads": "n_kv_heads num_kv_heads num_key_value_heads n_kv_head",
    "window": "window_size sliding_window",
    "softcap": "soft_cap logit_softcap",
    "return_lse": "return_softmax_lse with_lse output_lse return_logsumexp",
}


class Agreement:
    """One function and one definition, on the way to a convention."""

    def __init__(self, function: Callable[..., Any], subject: Definition, request: Request, name: str) -> None:
        found = parameters(function)
        self.subject, self.request, self.told = subject, request, dict(request.call)
        self.label = name if found is None else f"{name}({', '.join(map(printed, found))})"
        every = found if found is not None and not open_ended(found) else self._places(found or ())
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
                raise InputError(f"{self.label} has no parameter {name} that can be named{perhaps(name, names)}")
        self.parameters += [Parameter(n, Parameter.KEYWORD_ONLY, default=None) for n in self.told if n not in names]

    def _meanings(self) -> dict[str, str]:
        """parameter → input or setting, each of them once; then required places in the order of the inputs."""
        known = meanings(self.subject)
        found: dict[str, str] = {}
        for p in sorted(self.parameters, key=lambda p: known.get(plain(p.name)) != p.name):
            what = None if p.name in self.told else known.get(plain(p.name))
            what = "mask" if p.name == (self.request.mask_arg or "").removeprefix("~") else what
            if what and what not in found.values():
                found[p.name] = what
        free = [p.name for p in self.parameters if is_place(p) and p.name not in found and p.name not in self.told]
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
                raise unknown(self.label, p.name)
        return tuple(found)

    def _check_complete(self) -> None:
        placed = {a.input for a in self.arguments}
        for i in self.subject.inputs:
            if i.needed and i.name not in placed:
                raise InputError(f"{self.label}: no parameter for the input {i.name} is known; name it {i.name}")


def meanings(subject: Definition) -> dict[str, str]:
    """Names of parameters, plain, and what they mean; names of inputs before other words, inputs before settings."""
    found = {plain(i.name): i.name for i in subject.inputs}
    for i in subject.inputs:
        found = {plain(word): i.name for word in i.words.split()} | found
    for setting in subject.settings:
        found = {plain(word): setting for word in (setting, *_SETTINGS.get(setting, "").split())} | found
    return found


def open_ended(found: tuple[Parameter, ...]) -> bool:
    """Whether ``*args`` alone takes the arrays."""
    return any(p.kind is Parameter.VAR_POSITIONAL for p in found) and not any(map(is_place, found))


def is_place(p: Parameter) -> bool:
    """Whether every call must fill it, and may do so by position."""
    return p.kind in _PLACED and p.default is Parameter.empty


def unknown(label: str, name: str) -> InputError:
    """The error for a parameter that nobody knows a value for."""
    return InputError(
        f"{label}: no value is known for {name}; say --call {name}=VALUE, in Python call={{{name!r}: VALUE}}"
    )
