"""Modules of equinox: trees with their weights as leaves, called with other leaves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

from symattn.bounds.called_target import Framework
from symattn.document.keywords import plain
from symattn.programs.frameworks import check_wide, import_jax
from symattn.programs.hosts import OWN, Order, tokens_of
from symattn.programs.signature import STARS

#: Parameters of a call that are never given: random numbers, and what belongs to training.
_LEFT_OUT = ("key", "inference", "deterministic", "process_heads", "state")


class EquinoxHost:
    """A module of equinox; dropout is off."""

    framework: Framework = "numpy"

    def __init__(self, module: Any) -> None:
        self._jax = import_jax()
        self.module, self.xp = module, self._jax.numpy
        self._call: Any = None

    def weights(self) -> Mapping[str, Any]:
        return {key: leaf for key, leaf in self._leaves() if key}

    def _leaves(self) -> list[tuple[str, Any]]:
        """All leaves in order; those that are no arrays of floats have no name."""
        import equinox

        result, _ = self._jax.tree_util.tree_flatten_with_path(self.module)
        name = partial(self._jax.tree_util.keystr, simple=True, separator=".")
        return [(name(path) if equinox.is_inexact_array(leaf) else "", leaf) for path, leaf in result]

    def order(self, key: str, shape: tuple[int, ...], roles: tuple[str, ...]) -> Order | None:
        """Return the order that the class of the layer has."""
        path, _, last = key.rpartition(".")
        layer = self.module
        for part in path.split(".") if path else ():
            layer = layer[int(part)] if part.isdecimal() else getattr(layer, part)
        return "out in" if type(layer).__name__ == "Linear" and plain(last) in OWN else None

    def parameters(self) -> tuple[Parameter, ...]:
        result = signature(self.module).parameters.values()
        return tuple(p for p in result if p.name not in _LEFT_OUT and p.kind not in STARS)

    def tokens(self) -> tuple[str, ...]:
        return tokens_of([p for p in self.parameters() if p.default is Parameter.empty])

    def run(self, state: Mapping[str, Any], tokens: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        """Run one compiled call for each shape; a norm of one vector is called for each row."""
        leaves = [self.xp.asarray(state[key]) if key else leaf for key, leaf in self._leaves()]
        arrays = {n: self.xp.asarray(x) for n, x in tokens.items()}
        result = {n: self.xp.asarray(x) if hasattr(x, "shape") else x for n, x in inputs.items()}
        return self._compiled()(leaves, arrays, result)

    def _compiled(self) -> Any:
        import equinox

        if self._call is None:
            tree = self._jax.tree_util.tree_structure(self.module)
            self._call = equinox.filter_jit(partial(_called, self._jax, tree))
        return self._call

    @property
    def text(self) -> Any:
        return type(self.module).__call__

    def prepared(self, dtype: str) -> EquinoxHost:
        import equinox

        check_wide(dtype)
        return EquinoxHost(equinox.nn.inference_mode(self.module))


def _called(jax: Any, tree: Any, leaves: list[Any], tokens: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    module = jax.tree_util.tree_unflatten(tree, leaves)
    if type(module).__name__ not in ("LayerNorm", "RMSNorm"):
        return module(**tokens, **inputs)
    (x,) = tokens.values()
    for _ in range(x.ndim - len(module.shape)):
        module = jax.vmap(module)
    return module(x, **inputs)
