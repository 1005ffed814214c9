"""The gradients of a function of tensors by torch's autograd, as a function that gives them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from symattn.sources.signature import parameters


class Backpropagated:
    """The gradients of a function of tensors, by autograd: it takes ``do`` besides."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        given = parameters(function) or ()
        do = Parameter("do", Parameter.KEYWORD_ONLY)
        stars = [p for p in given if p.kind is Parameter.VAR_KEYWORD]
        self.__signature__ = Signature([*(p for p in given if p not in stars), do, *stars])

    def __call__(self, *places: Any, do: Any, **keywords: Any) -> tuple[Any, ...]:
        leaves = [x.detach().requires_grad_() if _moves(x) else x for x in places]
        named = {n: x.detach().requires_grad_() if _moves(x) else x for n, x in keywords.items()}
        output = self._function(*leaves, **named)
        output = output[0] if isinstance(output, tuple) else output
        output.backward(do)
        moved = [x for x in (*leaves, *named.values()) if _moves(x)]
        return tuple(x.grad if x.grad is not None else x.new_zeros(x.shape) for x in moved[:3])


def _moves(x: Any) -> bool:
    return bool(getattr(x, "is_floating_point", lambda: False)())
