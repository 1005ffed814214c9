"""Operators that ``torch.library.custom_op`` makes of functions, with the rules of their gradients.

Torch's dispatcher keeps the functions of an operator and has no copy of it. In rebuilt code a function of autograd with
the same rules stands for the operator.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

#: The module of the operators that functions are made to.
_OPERATORS = "torch._library.custom_ops"


def kernel_of_operator(x: Any) -> types.FunctionType | None:
    """Return the user's function that an operator runs on the CPU; None for what is no operator on plain tensors.

    An operator that writes into its inputs, or takes lists of tensors or inputs by keyword alone, is left as it is.
    """
    if type(x).__module__ != _OPERATORS:
        return None
    kernels = getattr(x, "_backend_fns", {})
    function = kernels.get("cpu", kernels.get(None))
    # Torch has the user's function in closures of its own.
    while isinstance(function, types.FunctionType) and _is_of_torch(function):
        function = inspect.getclosurevars(function).nonlocals.get("fn")
    if not isinstance(function, types.FunctionType) or function.__code__.co_kwonlyargcount:
        return None
    is_plain = not x._opoverload._schema.is_mutable and "Tensor[]" not in x._schema
    return function if is_plain else None


def functions_of_operator(x: Any) -> Iterator[types.FunctionType]:
    """Yield the kernel of an operator, and the rules of its gradient."""
    rules = (kernel_of_operator(x), x._setup_context_fn, x._backward_fn)
    yield from (rule for rule in rules if isinstance(rule, types.FunctionType))


def rebuild_operator(x: Any, rebuilt: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that computes what an operator does, also backward, with rebuilt functions."""
    kernel = kernel_of_operator(x)
    assert kernel is not None
    return rebuild_rules(Rules(kernel, x._setup_context_fn, x._backward_fn), rebuilt)


class Rules(NamedTuple):
    """The functions of an operator: what it runs, and the rules of its gradient.

    ``names`` are its arguments, with the ``defaults`` of some; by default those of what it runs.
    """

    kernel: types.FunctionType
    set_up: Any
    pull: Any
    names: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = MappingProxyType({})

    @property
    def functions(self) -> Iterator[types.FunctionType]:
        """The functions, without rules that there are not."""
        rules = (self.kernel, self.set_up, self.pull)
        yield from (rule for rule in rules if isinstance(rule, types.FunctionType))

    @property
    def signature(self) -> inspect.Signature:
        """How the operator is called."""
        if not self.names:
            return inspect.signature(self.kernel)
        kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        return inspect.Signature(
            [inspect.Parameter(n, kind, default=self.defaults.get(n, empty)) for n in self.names]
        )


def rebuild_rules(rules: Rules, rebuilt: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that computes what an operator of these functions does, with rebuilt ones."""
    torch = sys.modules["torch"]
    kernel, set_up, pull = map(rebuilt, (rules.kernel, rules.set_up, rules.pull))
    # As for the operator, an output without a rule has no gradient.
    if pull is None:
        without_gradient: Callable[..., Any] = torch.no_grad()(kernel)
        return without_gradient

    def keep_inputs(context: Any, inputs: Any, output: Any) -> None:
        if set_up is not None:
            set_up(ctx=context, inputs=inputs, output=output)

    members = {
        "forward": staticmethod(kernel),
        "setup_context": staticmethod(keep_inputs),
        "backward": staticmethod(pull),
    }
    in_autograd = type(torch.autograd.Function)("Rebuilt", (torch.autograd.Function,), members)
    signature = rules.signature

    def call_operator(*args: Any, **keywords: Any) -> Any:
        # The rule gives a gradient of each input, also of those left to their defaults.
        bound = signature.bind(*args, **keywords)
        bound.apply_defaults()
        return in_autograd.apply(*bound.args)

    return call_operator


def _is_of_torch(function: types.FunctionType) -> bool:
    return str(function.__globals__.get("__name__", "")).startswith("torch.")
