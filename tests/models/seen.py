"""A layer of attention as a whole model runs it: what it was given, and what it gave.

Models are made from configurations of a few columns, with random weights, in float64, and asked for their own eager
attention. So masks, positions and tables are those that the model itself makes."""

import inspect
import warnings
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn import Attention, rounded
from symattn.arrays.rounded import Rounded
from symattn.arrays.rounding.array import sharply
from symattn.arrays.rounding.bounds import growth, holds, rounding, up
from symattn.attention.inputs import check_inputs

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


# -- a specification in the precision of a program that takes some steps in float32, others in float64 -----------------
# A step that is taken in float32 reads its arrays rounded to float32, and what it gives is read in float64 as it is.
# So bounds are those of ``rounded``, step by step.
def run(spec: Attention, inputs: Mapping[str, np.ndarray], single: Collection[str] = ()) -> Rounded:
    """The output, whose ``bound`` holds for programs that take the steps named in ``single`` in float32."""
    wide, narrow = rounded("float64"), rounded("float32")
    values: dict[str, Any] = {n: wide.lift(a) if a.dtype.kind == "f" else a for n, a in inputs.items()}
    check_inputs(spec, values)
    steps = spec.pipeline(values)
    assert set(single) <= {step.name for step in steps}, "a step that is not taken"
    for step in steps:
        kind = narrow if step.name in single else wide
        values[step.name] = step.run(*(read(values[name], kind) for name in step.of))
    out: Rounded = read(values["output"], wide)
    return out


def read(x: Any, kind: type[Rounded]) -> Any:
    """Numbers read in the format of another kind: one more rounding where that is shorter. Other arrays as they are."""
    if not isinstance(x, Rounded) or isinstance(x, kind):
        return x
    return _rounded(kind, x)


@sharply
def _rounded(kind: type[Rounded], x: Rounded) -> Rounded:
    """|x̂' − x̃| ≤ last + the rounding of x̂ to the format; the rest is known as before."""
    f, near, e = kind.precision.score, x.near, x.error
    fresh = rounding(up(near.size + e), near.low - e, growth(f, 1), f)
    exact = (e == 0) & holds(f, near) | (f.digits >= x.precision.score.digits)
    last = np.where(exact, x.last, up(x.last + fresh))
    return kind(x.planes[0], *x.rows, last, x.terms, x.count, *near)
