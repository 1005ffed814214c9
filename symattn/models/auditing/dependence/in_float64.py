"""A module run again in float64 throughout: a change that is there, too, is none of rounding."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from symattn.models.auditing.dependence import token_rows
from symattn.models.auditing.setting import Module, Tensor

if TYPE_CHECKING:
    from symattn.models.auditing.dependence.probing import HeldOutputs

#: Halfway, in bits, between the rounding units of float64 (2⁻⁵³) and of float32 (2⁻²⁴).
REAL_IN_FLOAT64 = 2.0**-38


@contextmanager
def lifted() -> Iterator[None]:
    """Give float64 wherever float32 is asked for, as norms and softmax often do, and where no format is."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Lifted(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            # This method has no argument that names the format.
            if func is torch.Tensor.float:
                return args[0].double()
            wide = [_float64_for_float32(x) for x in args]
            named = {k: _float64_for_float32(x) for k, x in (kwargs or {}).items()}
            return func(*wide, **named)

    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Lifted():
            yield
    finally:
        torch.set_default_dtype(default)


def _float64_for_float32(x: Any) -> Any:
    import torch

    return torch.float64 if x is torch.float32 else x


def doubled(x: Any) -> Any:
    """Return arrays of floats in float64, in containers as well."""
    if hasattr(x, "is_floating_point"):
        return x.double() if x.is_floating_point() else x
    if type(x) in (tuple, list):
        return type(x)(doubled(y) for y in x)
    return {k: doubled(y) for k, y in x.items()} if type(x) is dict else x


def copied_in_float64(module: Module) -> Module:
    """Return a copy of a module in float64, of whose experts each multiplies its own matrices.

    The fused products of experts refuse float64.
    """
    wide = copy.deepcopy(module).double()
    for part in wide.modules():
        config: Any = getattr(part, "config", None)
        if getattr(config, "_experts_implementation", None) is not None:
            config._experts_implementation = "eager"
    return wide


def really_changes(
    module: Module,
    tokens: token_rows.Tokens,
    inputs: Any,
    token: int,
    rows: Tensor,
    held: HeldOutputs | None = None,
) -> bool | None:
    """Return whether these outputs (b, n) of a module differ between two inputs, (args, kwargs), beyond rounding.

    The second input is that with ``token`` changed.

    None if the module does not run in float64. What ``held`` says is returned by parts of it, as before.
    """
    try:
        wide = copied_in_float64(module)
        copies = dict(zip(module.modules(), wide.modules(), strict=True))
        outputs = []
        for changed, (args, kwargs) in zip(((), (token,)), inputs, strict=True):
            if held is not None:
                held.begin(changed, copies)
            with lifted():
                output = wide(*doubled(args), **doubled(kwargs))
                outputs.append(tokens.flat(token_rows.first(output)))
    # A module may refuse float64 by any error.
    except Exception:
        return None
    base, other = outputs
    if base is None or other is None or base.shape != other.shape:
        return None
    return token_rows.change(other, base, rows) > REAL_IN_FLOAT64
