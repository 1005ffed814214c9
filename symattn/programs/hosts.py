"""The interface to modules of libraries: names of their weights, and calls with other weights in their place."""

from __future__ import annotations

import copy
from functools import partial
from importlib import import_module
from inspect import Parameter
from math import prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from symattn.bounds.called_target import Framework
from symattn.document.errors import InputError
from symattn.document.keywords import ROLES, plain
from symattn.programs.frameworks import Tensor, Tensors, check_wide, import_jax, import_torch
from symattn.programs.names import STARS, Function, meaning, on_first, parameters

if TYPE_CHECKING:
    from equinox import Module as EquinoxModule
    from keras import Layer
    from torch.nn import Module as TorchModule

#: The axes of a stored matrix: columns out first, or columns in first.
Order = Literal["out in", "in out"]
#: Names of a layer's own arrays.
OWN = ("weight", "bias", "kernel")
_QKV = ("q", "k", "v")


def flat(key: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a weight with separate axes for heads as if its heads were side by side.

    (d_model, h, d_k) becomes (d_model, h·d_k), and of the output projection (h, d_v, d_model) becomes (h·d_v, d_model),
    as flax and Keras keep them; a bias (h, d_k) becomes (h·d_k,).
    """
    words = [plain(word) for word in key.split(".")]
    bias = words[-1].endswith("bias")
    if len(shape) != 3 - bias:
        return shape
    cut = 2 if any(ROLES.get(word) == ("o",) for word in words[-2:]) else 1
    return tuple(map(prod, [shape] if bias else [shape[:cut], shape[cut:]]))


class Host:
    """A module of a library: its weights by name, and how it is called with others in their place."""

    framework: Framework = "numpy"  # of its input arrays
    call: str = "__call__"  # the method that computes, whose text may name the axes
    left_out: tuple[str, ...] = ()  # parameters of a call that are never passed
    may_be_left: bool = False  # whether keys and values are optional, but passed
    may_be_edited: bool = False  # whether a copy of the module may have other methods
    xp: Any  # the namespace in which weights are joined

    def __init__(self, module: Any) -> None:
        self.module = module

    def weights(self) -> Tensors:
        """Return the weights by name, with heads side by side in their shapes."""
        raise NotImplementedError

    def order(self, key: str) -> Order | None:
        """Return the order of the axes of a weight, if the class of its layer determines it."""
        path, _, last = key.rpartition(".")
        layer = self.module
        for part in path.split(".") if path else ():
            layer = getattr(layer, part) if hasattr(layer, part) else layer[int(part)]
        names = {c.__name__ for c in type(layer).__mro__} if plain(last) in OWN else set()
        # Conv1D of transformers multiplies by the matrix as stored, Linear by its transpose.
        return "in out" if "Conv1D" in names else "out in" if "Linear" in names else None

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters that a call may pass: tokens, masks, settings."""
        every = parameters(getattr(self.module, self.call)) or ()
        return tuple(p for p in every if p.name not in self.left_out and p.kind not in STARS)

    def tokens(self) -> tuple[str, ...]:
        """Return the parameters that take the tokens: x, or queries, keys and values, which all get the same tokens."""
        own_parameters = self.parameters()
        qkv = [
            p.name
            for p in own_parameters
            if meaning(p.name) in _QKV and (self.may_be_left or p.default is p.empty)
        ]
        x = [p.name for p in own_parameters if meaning(p.name) == "x"]
        # Without all three, x takes the tokens, or else the first parameter.
        return tuple(qkv) if len(qkv) == 3 else tuple((x or [p.name for p in own_parameters])[:1])

    def run(self, state: Tensors, tokens: Tensors, inputs: Tensors) -> Tensor:
        """Return the output of the module for other weights."""
        raise NotImplementedError

    @property
    def text(self) -> Function:
        """The function whose text may name the axes."""
        result: Function = getattr(type(self.module), self.call)
        return result

    def around(self, module: Any) -> Host:
        """Return the host of another version of the module, with the same weights."""
        result = copy.copy(self)
        result.module = module
        return result

    def prepared(self, dtype: str) -> Host:
        """Return a copy of the module for inputs of that format. Raises ``InputError`` if there is none."""
        return self


#: The class that identifies the modules of a library, and the file and the class of their host. Modules of Keras on
#: PyTorch belong to both libraries, and Keras calls them.
_HOSTS = {
    ("keras", "Layer"): ("hosts", "KerasHost"),
    ("torch", "Module"): ("hosts", "TorchHost"),
    ("equinox", "Module"): ("hosts", "EquinoxHost"),
}


def host_of(function: object) -> Host | None:
    """Return the host of a module with its own weights, or None for any other function. No library is imported."""
    classes = {(c.__module__.partition(".")[0], c.__name__) for c in type(function).__mro__}
    for known, (file, name) in _HOSTS.items():
        if known in classes:
            host: Host = getattr(import_module(f"symattn.programs.{file}"), name)(function)
            # A module without weights is called like any other function.
            return host if host.weights() else None
    return None


# -- torch: parameters, and calls with others by ``functional_call`` ---------------------------------------------------
class TorchHost(Host):
    """A module of torch."""

    framework: Framework = "torch"
    call = "forward"
    may_be_edited = True

    def __init__(self, module: TorchModule) -> None:
        super().__init__(module)
        self.xp = import_torch()
        attention = getattr(module, "self_attn", module)  # where a layer of torch keeps its order
        # (n, b, d), as in torch.nn
        self._swapped = getattr(attention, "batch_first", True) is False

    def weights(self) -> Tensors:
        return dict(self.module.named_parameters())

    def parameters(self) -> tuple[Parameter, ...]:
        """Return all parameters except stars, other tokens to attend to, and hints of torch's own module.

        Its ``is_causal`` is only a hint that the mask is causal, and does nothing alone.
        """
        hints = ("is_causal",) if isinstance(self.module, self.xp.nn.MultiheadAttention) else ()
        every = (p for p in super().parameters() if p.name not in hints)
        return tuple(p for p in every if meaning(p.name) != "y" or p.default is Parameter.empty)

    def run(self, state: Tensors, tokens: Tensors, inputs: Tensors) -> Tensor:
        tokens = {n: self._swap_batch_and_tokens(x) for n, x in tokens.items()}
        with self.xp.no_grad():
            output = self.xp.func.functional_call(
                self.module, dict(state), (), {**tokens, **inputs}
            )
        return on_first(self._swap_batch_and_tokens, output)

    def _swap_batch_and_tokens(self, x: Tensor) -> Tensor:
        return x.swapaxes(0, 1) if self._swapped and x.ndim == 3 else x

    def prepared(self, dtype: str) -> TorchHost:
        # A copy, since the user's module must not change its mode or format.
        return TorchHost(copy.deepcopy(self.module).eval().to(getattr(self.xp, dtype)))


# -- Keras 3, on whichever backend it runs: variables, and calls with others by ``stateless_call`` ---------------------
class KerasHost(Host):
    """A built layer of Keras, not in training."""

    call = "call"
    left_out = ("training", "return_attention_scores", "query_mask", "value_mask")
    may_be_left = True

    def __init__(self, module: Layer) -> None:
        import keras

        super().__init__(module)
        self._keras = keras
        self.xp = import_jax().numpy if keras.backend.backend() == "jax" else np

    def weights(self) -> Tensors:
        # Keras makes weights at the first call.
        if not self.module.built:
            raise InputError(
                f"the layer {self.module.name} has no weights yet; hint: call it once on tokens"
            )
        return {
            key: SimpleNamespace(shape=flat(key, shape))
            for key, shape in self._shapes_of_keras_weights().items()
        }

    def _shapes_of_keras_weights(self) -> dict[str, tuple[int, ...]]:
        """Return ``query.kernel``, … with the shapes in which Keras keeps them, in its order."""
        variables = self.module.trainable_variables
        # Without the name of the layer itself, which differs between instances.
        keys = ((v.path.partition("/")[2] or v.name).replace("/", ".") for v in variables)
        return {key: tuple(map(int, v.shape)) for key, v in zip(keys, variables, strict=True)}

    def order(self, key: str) -> Order | None:
        """Return "in out" for a kernel, which multiplies from the right."""
        return "in out" if plain(key.rpartition(".")[2]) == "kernel" else None

    def run(self, state: Tensors, tokens: Tensors, inputs: Tensors) -> Tensor:
        """Return the output of ``stateless_call``."""
        tensor = self._keras.ops.convert_to_tensor
        weights = [
            tensor(state[key].reshape(shape))
            for key, shape in self._shapes_of_keras_weights().items()
        ]
        result = {
            n: tensor(x) if hasattr(x, "shape") else x for n, x in {**tokens, **inputs}.items()
        }
        # Weights that are not trained, such as seeds, keep their values.
        fixed = [v.value for v in self.module.non_trainable_variables]
        output, _ = self.module.stateless_call(weights, fixed, **result)
        return output

    def prepared(self, dtype: str) -> KerasHost:
        """Return the layer itself, or one with the same settings that computes in another format."""
        if self._keras.backend.backend() == "jax":
            check_wide(dtype)
        if self.module.compute_dtype == dtype:
            return self
        result = type(self.module).from_config({**self.module.get_config(), "dtype": dtype})
        result.build_from_config(self.module.get_build_config())
        return KerasHost(result)


# -- equinox: trees with weights as leaves, called with other leaves ---------------------------------------------------
class EquinoxHost(Host):
    """A module of equinox; dropout is off."""

    # for random numbers and training
    left_out = ("key", "inference", "deterministic", "process_heads", "state")

    def __init__(self, module: EquinoxModule) -> None:
        super().__init__(module)
        self._jax = import_jax()
        self.xp = self._jax.numpy
        self._call: Function | None = None

    def weights(self) -> Tensors:
        return {key: leaf for key, leaf in self._list_equinox_leaves() if key}

    def _list_equinox_leaves(self) -> list[tuple[str, Tensor]]:
        """Return all leaves in order, with "" as the name of those that are no arrays of floats."""
        import equinox

        result, _ = self._jax.tree_util.tree_flatten_with_path(self.module)
        name = partial(self._jax.tree_util.keystr, simple=True, separator=".")
        return [
            (name(path) if equinox.is_inexact_array(leaf) else "", leaf) for path, leaf in result
        ]

    def run(self, state: Tensors, tokens: Tensors, inputs: Tensors) -> Tensor:
        """Return the output; calls are compiled once per shape, and norms of one vector are mapped over rows."""
        leaves = [
            self.xp.asarray(state[key]) if key else leaf
            for key, leaf in self._list_equinox_leaves()
        ]
        arrays = {n: self.xp.asarray(x) for n, x in tokens.items()}
        result = {n: self.xp.asarray(x) if hasattr(x, "shape") else x for n, x in inputs.items()}
        # Compiled once: equinox would trace again for every call.
        if self._call is None:
            import equinox

            tree = self._jax.tree_util.tree_structure(self.module)
            self._call = equinox.filter_jit(partial(_call_equinox_module, tree))
        return self._call(leaves, arrays, result)

    def prepared(self, dtype: str) -> EquinoxHost:
        import equinox

        check_wide(dtype)
        return EquinoxHost(equinox.nn.inference_mode(self.module))


def _call_equinox_module(
    tree: object, leaves: list[Tensor], tokens: Tensors, inputs: Tensors
) -> Tensor:
    jax = import_jax()
    module = jax.tree_util.tree_unflatten(tree, leaves)
    # Norms of equinox take one vector; vmap maps them over the rows.
    if type(module).__name__ not in ("LayerNorm", "RMSNorm"):
        return module(**tokens, **inputs)
    (x,) = tokens.values()
    for _ in range(x.ndim - len(module.shape)):
        module = jax.vmap(module)
    return module(x, **inputs)
