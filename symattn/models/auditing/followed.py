"""The backward pass of attention that is spelled out: what its two products give back, seen at their nodes.

A node of autograd gives, for each of its inputs, the gradient by this operator alone: of queries and keys at the first
product, of weights and values at the second. What the second gives for the weights has to arrive at the first through
the operators between, each of which must get what the one before it gave, and no more: else something besides the
output had a gradient, and nothing is told. Attention in one operator has one node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from symattn.models.auditing.backward_hooks import BESIDE, WatchedCall
from symattn.models.auditing.call_gradients import Backward
from symattn.models.auditing.received import Received

_UNSEEN = "it is spelled out in operators, and its scores do not come from one product alone, in one way"
_FIRST = {"BmmBackward0": 0, "MmBackward0": 0, "BaddbmmBackward0": 1}  # which of the inputs are the queries
_MOST = 64  # nodes between both products
Way = list[tuple[Any, int, int]]


class Followed(WatchedCall):
    """One such call whose gradients are awaited."""

    def __init__(self, received: Received, rows: int | None, contract: str | None) -> None:
        super().__init__(received, False, rows, contract)
        self._versions += [("the mask", m.args[0].array, m.args[0].array._version) for m in received.masks if _added(m)]
        self._wanted = {"dq", "dk", "dv"}
        self._gave: Any = None  # what the last node gave for its input on the way

    def tie(self, node: Any) -> None:
        """Wait at the node of the product with the values, or of the one operator; without one nothing is to come."""
        if node is None:
            self._end(None)
        elif node.name().startswith("ScaledDotProduct"):
            self._at(node, self._of_one)
        elif node.next_functions[0][0] is None:  # neither queries nor keys have a gradient
            self._wanted = {"dv"}
            self._at(node, self._of_values)
        elif (way := way_back(node)) is None:
            self._end(Backward(reason=_UNSEEN))
        else:
            self._at(node, self._of_values)
            for step, number, index in way[:-1]:
                self._at(step, partial(self._between, number, index))
            self._at(way[-1][0], partial(self._of_scores, _FIRST[way[-1][0].name()]))

    def _at(self, node: Any, act: Callable[..., None]) -> None:
        self._handles.append(node.register_hook(partial(self._safely, act)))

    def _end(self, found: Backward | None) -> None:
        super()._end(found)
        self._gave = None

    def _of_one(self, gave: Any, came: Any) -> None:
        self._do = came[0].clone()
        self._got = {name: g.clone() for name, g in zip(("dq", "dk", "dv"), gave, strict=False) if g is not None}
        self._end(self._judged())

    def _of_values(self, gave: Any, came: Any) -> None:
        q, v = self._received.q, self._received.v
        self._do, self._gave = came[0].clone().reshape(*q.shape[:-1], -1), gave[0]
        self._got = {} if gave[1] is None else {"dv": gave[1].clone().reshape(v.shape)}
        if self._wanted == set(self._got):
            self._end(self._judged())

    def _between(self, number: int, index: int, gave: Any, came: Any) -> None:
        if _same(came[number], self._gave):
            self._gave = gave[index]
        else:
            self._end(Backward(reason=BESIDE))

    def _of_scores(self, first: int, gave: Any, came: Any) -> None:
        if not _same(came[0], self._gave):
            self._end(Backward(reason=BESIDE))
            return
        of_q, of_k = gave[first : first + 2]
        if of_q is not None:
            self._got["dq"] = of_q.clone().reshape(self._received.q.shape)
        if of_k is not None:
            self._got["dk"] = of_k.mT.clone().reshape(self._received.k.shape)
        self._end(self._judged())


def way_back(node: Any) -> Way | None:
    """From the weights of a product to the one product that they come from: nodes, and at which of their outputs a
    gradient comes in and for which of their inputs it goes on.

    None where they come from none, from several, or on several ways.
    """
    result: Way | None = None
    todo: list[tuple[tuple[Any, int], Way]] = [(node.next_functions[0], [])]
    seen: list[Any] = []
    while todo:
        (at, number), before = todo.pop()
        if at is None or not at.next_functions:
            continue
        if any(at is other for other in seen) or len(seen) == _MOST:
            return None
        seen.append(at)
        if "mm" in at.name().lower() or "Linear" in at.name():
            if result is not None or at.name() not in _FIRST:
                return None
            result = [*before, (at, number, 0)]
        else:
            todo += [(edge, [*before, (at, number, index)]) for index, edge in enumerate(at.next_functions)]
    return result


def _same(came: Any, gave: Any) -> bool:
    import torch

    if came is None or gave is None or came.shape != gave.shape or came.dtype != gave.dtype:
        return False
    return came.data_ptr() == gave.data_ptr() or bool(torch.equal(came, gave))


def _added(mask: Any) -> bool:
    """Return whether a mask gives the rows of an array that was added on the way."""
    return isinstance(mask, partial) and hasattr(getattr(mask.args[0], "array", None), "_version")
