"""The interface to libraries of modules that hold their weights: names, and a call with others in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import Parameter
from typing import Any, Literal, Protocol

from symattn.bounds.called_target import Framework
from symattn.programs.names import meaning

Order = Literal["out in", "in out"]
#: What a layer calls its own arrays.
OWN = ("weight", "bias", "kernel")


def tokens_of(given: Sequence[Parameter], optional: bool = False) -> tuple[str, ...]:
    """Return the parameters that take the tokens: x, or queries, keys and values, which are all of them.

    Queries, keys and values must be required unless they may be ``optional``.
    """
    qkv = [p.name for p in given if meaning(p.name) in ("q", "k", "v") and (optional or p.default is p.empty)]
    x = [p.name for p in given if meaning(p.name) == "x"]
    return tuple(qkv) if len(qkv) == 3 else tuple((x or [p.name for p in given])[:1])


class HeldArray(Protocol):
    """An array that a module holds."""

    @property
    def shape(self) -> Any: ...


class Host(Protocol):
    """A module of some library: its weights by name, how it is called with others, and what is told of it."""

    xp: Any  # in which weights are joined
    module: Any
    framework: Framework  # of the arrays that it is given

    def weights(self) -> Mapping[str, HeldArray]:
        """The weights by name; of those that keep heads apart, the shape in which heads are side by side."""

    def order(self, key: str, shape: tuple[int, ...], roles: tuple[str, ...]) -> Order | None:
        """The order of the axes of a weight, if it is known."""

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters that a call may be given: tokens, masks, settings."""

    def tokens(self) -> tuple[str, ...]:
        """The parameters that take the tokens: x, or queries, keys and values, which are all of them."""

    def run(self, state: Mapping[str, Any], tokens: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        """Return the output of the module for other weights."""

    @property
    def text(self) -> Any:
        """The function in whose text the axes may be told."""

    def prepared(self, dtype: str) -> Host:
        """A copy of the module for inputs of that format. Raises ``InputError`` where there is none."""


#: The class by which the modules of a library are known, and the file and the class of their host. Those of Keras on
#: PyTorch are modules of both, and Keras calls them.
_HOSTS = {
    ("keras", "Layer"): ("keras_host", "KerasHost"),
    ("torch", "Module"): ("torch_host", "TorchHost"),
    ("equinox", "Module"): ("equinox_host", "EquinoxHost"),
}


def host_of(function: object) -> Host | None:
    """Return the host of a module with weights of its own; None for any other function. No library is imported."""
    classes = {(c.__module__.partition(".")[0], c.__name__) for c in type(function).__mro__}
    for known, (file, name) in _HOSTS.items():
        if known in classes:
            host: Host = getattr(import_module(f"symattn.programs.{file}"), name)(function)
            return host if host.weights() else None
    return None
