"""How many numbers leave a device: a guard for what is to stay there, on a GPU and on a CPU that plays one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Methods that hand out the numbers of a tensor, beside those that torch dispatches.
_METHODS = ("numpy", "cpu", "tolist", "__array__", "__dlpack__")


class Leaving(TorchDispatchMode):
    """Counts the elements that are handed out, and the largest number of them at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = self.most = 0

    def count(self, elements: int) -> None:
        self.elements += elements
        self.most = max(self.most, elements)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if func is torch.ops.aten._local_scalar_dense.default:
            self.count(1)
        elif given is not None and isinstance(out, torch.Tensor) and out.device.type == "cpu" != given.device.type:
            self.count(out.numel())
        return out


def _counted(method: Callable[..., Any], guard: Leaving) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **how: Any) -> Any:
        guard.count(self.numel())
        return method(self, *args, **how)

    return run


@contextmanager
def leaving() -> Iterator[Leaving]:
    """A guard that counts while it is entered."""
    guard = Leaving()
    with pytest.MonkeyPatch.context() as patch, guard:
        for name in _METHODS:
            patch.setattr(torch.Tensor, name, _counted(getattr(torch.Tensor, name), guard))
        yield guard
