"""A layer of attention as a whole model runs it: what it was given, and what it gave.

Models are made from configurations of a few columns, with random weights, in float64, and asked for their own eager
attention. So masks, positions and tables are those that the model itself makes.
"""

import inspect
import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

WIDTH = 0.4  # of the random weights


@dataclass(frozen=True)
class Seen:
    """The layer, the tokens it was given (n, d_model), all of its arguments by name, and its output."""

    layer: Any
    x: np.ndarray
    given: Mapping[str, Any]
    output: np.ndarray


def numbers(tensor: Any) -> np.ndarray:
    """A tensor as an array."""
    return np.asarray(tensor.detach().numpy())


def tokens(n: int) -> Any:
    """The ids 0, …, n − 1, in a batch of one."""
    import torch

    return torch.arange(n)[None]


def look(
    model: Any, layer: str, output: str, n: int = 6, keep: np.ndarray | None = None, batch: int = 0, **call: Any
) -> Seen:
    """Run a model on n tokens and see what its ``layer`` is given, and what the module ``output`` gives.

    ``keep`` is False where a token is padding; ``batch`` is the axis of batches. Both paths are of submodules.
    """
    import torch

    found: dict[str, Any] = {}

    def before(_: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        found["given"] = inspect.signature(module.forward).bind(*args, **named).arguments
        found["x"] = next(iter(found["given"].values()))

    def after(_: Any, __: Any, result: Any) -> None:  # of several calls the last one
        found["output"] = result[0] if isinstance(result, tuple) else result

    module = model.get_submodule(layer)
    hooks = [
        module.register_forward_pre_hook(before, with_kwargs=True),
        model.get_submodule(output).register_forward_hook(after),
    ]
    mask = np.ones(n, dtype=bool) if keep is None else keep
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(input_ids=tokens(n), attention_mask=torch.tensor(mask)[None].long(), **call)
    for hook in hooks:
        hook.remove()
    x, out = (numbers(found[name]).take(0, axis=batch) for name in ("x", "output"))
    return Seen(module, x, found["given"], out)


def built(kind: str, seed: int = 0, **config: Any) -> Any:
    """A model of Transformers by the name of its class, with random weights of a fixed seed, in float64."""
    import torch
    import transformers

    model_class = getattr(transformers, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = model_class.config_class(**deepcopy({"vocab_size": 32, **config}))  # some write into what they are given
        made._attn_implementation = made._experts_implementation = "eager"
        model = model_class._from_config(made, attn_implementation="eager", dtype=torch.float64).double().eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) * WIDTH)
    return model
