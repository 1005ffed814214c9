"""The backward pass of a call that was read: hooks see the gradients that come in and go out, of this call alone.

Queries, keys and values are handed to the call as views of themselves. So what arrives at a view is the gradient by
this call, whatever else the arrays are used for, and the model computes the same numbers by the same operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from symattn.bounds.sharp.backward import NAMES
from symattn.models.auditing.begun import in_words
from symattn.models.auditing.call_gradients import SYMBOLS, Backward, Passed, judge_gradients
from symattn.models.auditing.dropping import Draws, factors
from symattn.models.auditing.patches import in_backward, reading
from symattn.models.auditing.received import Received
from symattn.models.auditing.setting import Floats
from symattn.models.auditing.tensor_numbers import heads_apart

_NAMES = dict(zip(NAMES, ("query", "key", "value"), strict=True))
_WAITING = "no gradient of its output came while the audit ran; hint: let backward() run inside of it"
BESIDE = "a gradient came through something else that the call returned, such as its weights"
_CHANGED = "{} was changed in place between the call and its backward pass"


class WatchedCall:
    """One call whose gradients are awaited; ``told`` is called with what is found of its first backward pass."""

    def __init__(self, received: Received, heads_last: bool, rows: int | None, contract: str | None) -> None:
        self._received: Any = received  # until its backward pass is judged
        self._heads_last = heads_last
        self._rows, self._contract = rows, contract
        self.told: Callable[[Backward | None], None] = lambda result: None
        self._wanted: set[str] = set()
        self._do: Any = None
        self._got: dict[str, Any] = {}
        self._beside = self._done = False
        self._again = in_backward()
        masks = [("the mask", m) for m in received.masks if hasattr(m, "_version")]
        arrays = [("q", received.q), ("k", received.k), ("v", received.v), *masks]
        self._versions = [(name, t, t._version) for name, t in arrays]
        self._handles: list[Any] = []
        self._factors: Floats | None = None

    def given(self, args: Any, kwargs: Any, first: int) -> tuple[Any, Any]:
        """The arguments of the call, with views of queries, keys and values, from place ``first`` on, and of biases."""
        args, kwargs = list(args), dict(kwargs)
        for place, (short, name) in enumerate(_NAMES.items(), first):
            held: Any = args if place < len(args) else kwargs
            at: Any = place if place < len(args) else name
            if held[at].requires_grad:
                held[at] = held[at].view_as(held[at])
                self._wanted.add(short)
                self._hook(held[at], partial(self._came, short))
        for number, bias in enumerate(self._received.learned):
            for held, at in [*((args, i) for i in range(len(args))), *((kwargs, name) for name in kwargs)]:
                if held[at] is bias:
                    held[at] = bias.view_as(bias)
                    self._wanted.add(f"db{number}")
                    self._hook(held[at], partial(self._came, f"db{number}"))
        return tuple(args), kwargs

    def returned(self, out: Any, draws: Draws | None = None) -> Any:
        """See the gradient of the output, which is what the call returned, or the first part of it.

        What else it returned, such as weights, is replaced by views, at which gradients arrive that do not come from
        the output. ``draws`` hold what dropout has kept, or several that it may have, where none is known.
        """
        if draws is not None:
            if len(draws.kept) != 1:
                self._end(None)  # which the verdict on the output tells
                return out
            self._factors = factors(draws.kept[0], draws.rate)
        output, *more = out if isinstance(out, tuple) else (out,)
        if not getattr(output, "requires_grad", False):
            self._end(Backward(reason="its output carries no gradient, and its inputs do"))
            return out
        self._hook(output, self._begun)
        for place, other in enumerate(more):
            if getattr(other, "requires_grad", False):
                more[place] = other.view_as(other)
                self._hook(more[place], lambda grad: setattr(self, "_beside", True))
        return (output, *more) if type(out) is tuple else out

    def close(self) -> None:
        """The audit ends: what has not come yet comes too late."""
        if self._done:
            return
        missing = ", ".join(dict.fromkeys(SYMBOLS[n[:2]] for n in sorted(self._wanted - set(self._got))))
        if self._do is not None:
            self._end(Backward(reason=f"{missing}: no such gradient came, and one of the output did"))
        elif self._again:  # run once more for a backward pass, which reads what it saved and no gradient of it
            self._end(None)
        else:
            self._end(Backward(reason=_WAITING))

    def _hook(self, tensor: Any, act: Callable[[Any], None]) -> None:
        see = partial(self._safely, act)
        self._handles.append(tensor.register_hook(lambda grad: None if grad is None else see(grad.detach())))

    def _safely(self, act: Callable[..., None], *given: Any) -> None:
        """Whatever symattn does not understand, the backward pass runs as without it."""
        import torch

        if self._done:
            return
        try:
            with reading(), torch.no_grad():
                act(*given)
        except Exception as error:
            self._end(Backward(reason=f"a defect of symattn's own: {in_words(error)}"))

    def _begun(self, grad: Any) -> None:
        whole = heads_apart(grad)
        self._do, self._got = (whole.transpose(1, 2) if self._heads_last else whole).clone(), {}

    def _came(self, name: str, grad: Any) -> None:
        self._got[name] = grad.clone()
        if self._wanted <= set(self._got):
            self._end(self._judged())

    def _judged(self) -> Backward:
        changed = next((name for name, t, version in self._versions if t._version != version), "")
        if changed:
            return Backward(reason=_CHANGED.format(changed))
        if self._beside or self._do is None:
            return Backward(reason=BESIDE if self._beside else _WAITING)
        got = {name: grad for name, grad in self._got.items() if name in _NAMES}
        biases = [grad for name, grad in self._got.items() if name not in _NAMES]
        passed = Passed(self._received, self._do, got, self._rows, self._contract, self._factors, biases)
        return judge_gradients(passed)

    def _end(self, found: Backward | None) -> None:
        """Tell what was found, and let go of all arrays."""
        self._done = True
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._versions.clear()
        self._got.clear()
        self._do = self._received = None
        self.told(found)
