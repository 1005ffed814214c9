"""Modules of torch: their parameters, and calls with others by ``functional_call``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from symattn.bounds.called_target import Framework
from symattn.document.keywords import plain
from symattn.programs.frameworks import import_torch
from symattn.programs.hosts import OWN, Order, tokens_of
from symattn.programs.names import meaning
from symattn.programs.signature import STARS, parameters


class TorchHost:
    """A module of torch."""

    framework: Framework = "torch"

    def __init__(self, module: Any) -> None:
        self.module, self.xp = module, import_torch()
        attention = getattr(module, "self_attn", module)  # a layer of torch has its order there
        self._swapped = getattr(attention, "batch_first", True) is False  # (n, b, d), as in torch.nn

    def weights(self) -> Mapping[str, Any]:
        return dict(self.module.named_parameters())

    def order(self, key: str, shape: tuple[int, ...], roles: tuple[str, ...]) -> Order | None:
        """Return the order that the class of the layer has."""
        path, _, last = key.rpartition(".")
        layer = self.module.get_submodule(path)
        names = {c.__name__ for c in type(layer).__mro__} if plain(last) in OWN else set()
        return "in out" if "Conv1D" in names else "out in" if "Linear" in names else None

    def parameters(self) -> tuple[Parameter, ...]:
        """All but stars, tokens to attend to other than x, and what torch's own module takes for a mere hint.

        To that ``is_causal`` is a hint that the mask is causal, and does nothing alone.
        """
        hints = ("is_causal",) if isinstance(self.module, self.xp.nn.MultiheadAttention) else ()
        every = (p for p in parameters(self.module) or () if p.kind not in STARS and p.name not in hints)
        return tuple(p for p in every if meaning(p.name) != "y" or p.default is Parameter.empty)

    def tokens(self) -> tuple[str, ...]:
        return tokens_of(parameters(self.module) or ())

    def run(self, state: Mapping[str, Any], tokens: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        tokens = {n: self._turned(x) for n, x in tokens.items()}
        with self.xp.no_grad():
            output = self.xp.func.functional_call(self.module, dict(state), (), {**tokens, **inputs})
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
