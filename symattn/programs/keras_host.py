"""Layers of Keras 3, on whichever backend it runs: their variables, and calls with others by ``stateless_call``."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

import numpy as np

from symattn.bounds.called_target import Framework
from symattn.document.errors import InputError
from symattn.document.keywords import plain
from symattn.programs.frameworks import check_wide, import_jax
from symattn.programs.hosts import Order, tokens_of
from symattn.programs.modules import flat
from symattn.programs.signature import STARS

#: Parameters of a call that are never given.
_LEFT_OUT = ("training", "return_attention_scores", "query_mask", "value_mask")


class _Flat:
    """A variable that keeps heads apart, as one that has them side by side."""

    def __init__(self, key: str, shape: tuple[int, ...]) -> None:
        self.shape = flat(key, shape)


class KerasHost:
    """A layer of Keras that is built; what it does in training is off."""

    framework: Framework = "numpy"

    def __init__(self, layer: Any) -> None:
        import keras

        self.module, self._keras = layer, keras
        self.xp = import_jax().numpy if keras.backend.backend() == "jax" else np

    def weights(self) -> Mapping[str, Any]:
        if not self.module.built:
            raise InputError(f"the layer {self.module.name} has no weights yet; hint: call it once on tokens")
        return {key: _Flat(key, shape) for key, shape in self._shapes().items()}

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """``query.kernel``, … and the shapes in which Keras keeps them, in its order."""
        variables = self.module.trainable_variables
        keys = ((v.path.partition("/")[2] or v.name).replace("/", ".") for v in variables)
        return {key: tuple(map(int, v.shape)) for key, v in zip(keys, variables, strict=True)}

    def order(self, key: str, shape: tuple[int, ...], roles: tuple[str, ...]) -> Order | None:
        """A kernel multiplies from the right."""
        return "in out" if plain(key.rpartition(".")[2]) == "kernel" else None

    def parameters(self) -> tuple[Parameter, ...]:
        result = signature(self.module.call).parameters.values()
        return tuple(p for p in result if p.name not in _LEFT_OUT and p.kind not in STARS)

    def tokens(self) -> tuple[str, ...]:
        """Queries, keys and values, of which keys may be left out, but are given; or the first parameter."""
        return tokens_of(self.parameters(), optional=True)

    def run(self, state: Mapping[str, Any], tokens: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        """``stateless_call``, without a gradient."""
        tensor = self._keras.ops.convert_to_tensor
        weights = [tensor(state[key].reshape(shape)) for key, shape in self._shapes().items()]
        result = {n: tensor(x) if hasattr(x, "shape") else x for n, x in {**tokens, **inputs}.items()}
        fixed = [v.value for v in self.module.non_trainable_variables]
        output, _ = self.module.stateless_call(weights, fixed, **result)
        return output

    @property
    def text(self) -> Any:
        return type(self.module).call

    def prepared(self, dtype: str) -> KerasHost:
        """The layer itself, or one of the same settings that computes in another format."""
        if self._keras.backend.backend() == "jax":
            check_wide(dtype)
        if self.module.compute_dtype == dtype:
            return self
        result = type(self.module).from_config({**self.module.get_config(), "dtype": dtype})
        result.build_from_config(self.module.get_build_config())
        return KerasHost(result)
