"""Modules of torch: their parameters, and calls with others by ``functional_call``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from symattn.bounds.target import Framework
from symattn.document.keywords import plain
from symattn.programs.frameworks import import_torch
from symattn.programs.hosts import OWN, Order
from symattn.programs.names import meaning
from symattn.programs.signature import parameters

_QKV = ("q", "k", "v")


class TorchHost:
    """A module of torch."""

    framework: Framework = "torch"

    def __init__(self, module: Any) -> None:
        self.module, self.xp = module, import_torch()
        self._swapped = getattr(module, "batch_first", True) is False  # (n, b, d), as in torch.nn

    def weights(self) -> Mapping[str, Any]:
        return dict(self.module.named_parameters())

    def order(self, key: str, shape: tuple[int, ...], roles: tuple[str, ...]) -> Order | None:
        """By the class of the layer."""
        path, _, last = key.rpartition(".")
        layer = self.module.get_submodule(path)
        names = {c.__name__ for c in type(layer).__mro__} if plain(last) in OWN else set()
        return "in out" if "Conv1D" in names else "out in" if "Linear" in names else None

    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(p for p in parameters(self.module) or () if not _is_left_out(p, self.module))

    def tokens(self) -> tuple[str, ...]:
        return _tokens(parameters(self.module) or ())

    def run(self, state: Mapping[str, Any], tokens: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        tokens = {n: self._turned(x) for n, x in tokens.items()}
        with self.xp.no_grad():
            output = self.xp.func.functional_call(self.module, dict(state), (), {**tokens, **given})
        if isinstance(output, (tuple, list)):
            return (self._turned(output[0]), *output[1:])
        return self._turned(output)

    def _turned(self, x: Any) -> Any:
        return x.swapaxes(0, 1) if self._swapped and x.ndim == 3 else x

    @property
    def text(self) -> Any:
        return type(self.module).forward

    def prepared(self, dtype: str) -> TorchHost:
        return TorchHost(copy.deepcopy(self.module).eval().to(getattr(self.xp, dtype)))


def _tokens(given: tuple[Parameter, ...]) -> tuple[str, ...]:
    """The parameters that take the tokens: x, or queries, keys and values, which are all of them."""
    qkv = [p.name for p in given if meaning(p.name) in _QKV and p.default is Parameter.empty]
    x = [p.name for p in given if meaning(p.name) == "x"]
    return tuple(qkv) if len(qkv) == 3 else tuple((x or [p.name for p in given])[:1])


def _is_left_out(p: Parameter, module: object) -> bool:
    """Whether a parameter is never given: stars, tokens to attend to other than x, and a hint.

    To torch's own module ``is_causal`` is a hint that the mask is causal, and does nothing alone.
    """
    hint = p.name == "is_causal" and isinstance(module, import_torch().nn.MultiheadAttention)
    stars = p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return stars or hint or (meaning(p.name) == "y" and p.default is not Parameter.empty)
