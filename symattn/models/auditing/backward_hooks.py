"""The backward pass of a call that was read: hooks record the incoming and outgoing gradients of this call alone.

Queries, keys and values are passed to the call as views of themselves. So the gradient that arrives at a view comes
from this call alone, whatever else uses the arrays, and the model computes the same numbers by the same operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from symattn.bounds.sharp.backward_bounds import NAMES
from symattn.models.auditing import patches
from symattn.models.auditing.begun import Draws, defect, factors
from symattn.models.auditing.call_gradients import SYMBOLS, Backward, Passed, judge_gradients
from symattn.models.auditing.received import Received
from symattn.models.auditing.setting import Args, Floats, Kwargs, Tensor, heads_apart

if TYPE_CHECKING:
    from torch.autograd.graph import Node
    from torch.utils.hooks import RemovableHandle

# Parameters of attention functions, by the names of their gradients.
_NAMES = dict(zip(NAMES, ("query", "key", "value"), strict=True))
_WAITING = (
    "no gradient of its output came while the audit ran; hint: let backward() run inside of it"
)
ELSEWHERE = "a gradient came through something else that the call returned, such as its weights"
_CHANGED = "{} was changed in place between the call and its backward pass"


class WatchedCall:
    """A call whose gradients are awaited; ``on_result`` is called with the finding of its first backward pass."""

    def __init__(
        self, received: Received, heads_last: bool, rows: int | None, contract: str | None
    ) -> None:
        self._received: Any = received  # until its backward pass is judged
        self._heads_last = heads_last
        self._rows, self._contract = rows, contract
        self.on_result: Callable[[Backward | None], None] = lambda result: None
        self._wanted: set[str] = set()
        self._do: Tensor = None
        self._got: dict[str, Tensor] = {}
        self._elsewhere = self._done = False
        # Within a backward pass, a checkpoint runs the call again.
        self._again = patches.in_backward()
        masks = [("the mask", m) for m in received.masks if hasattr(m, "_version")]
        arrays = [("q", received.q), ("k", received.k), ("v", received.v), *masks]
        # An array that is changed in place has other numbers in the backward pass.
        self._versions = [(name, t, t._version) for name, t in arrays]
        self._handles: list[RemovableHandle] = []
        self._factors: Floats | None = None

    def given(self, args: Args, kwargs: Kwargs, first: int) -> tuple[Args, Kwargs]:
        """Return the call's arguments with views of biases, and of queries, keys, values from index ``first`` on."""
        args, kwargs = list(args), dict(kwargs)
        for place, (short, name) in enumerate(_NAMES.items(), first):
            holder: Any = args if place < len(args) else kwargs
            at: Any = place if place < len(args) else name
            if holder[at].requires_grad:
                holder[at] = holder[at].view_as(holder[at])
                self._wanted.add(short)
                self._hook_tensor_gradient(holder[at], partial(self._record_input_gradient, short))
        for number, bias in enumerate(self._received.learned):
            # A bias may be an argument by place or by name.
            for holder, at in [
                *((args, i) for i in range(len(args))),
                *((kwargs, name) for name in kwargs),
            ]:
                if holder[at] is bias:
                    holder[at] = bias.view_as(bias)
                    self._wanted.add(f"db{number}")
                    self._hook_tensor_gradient(
                        holder[at], partial(self._record_input_gradient, f"db{number}")
                    )
        return tuple(args), kwargs

    def returned(self, out: Tensor, draws: Draws | None = None) -> Tensor:
        """Hook the gradient of the output, which is what the call returned, or its first item.

        Other items, such as weights, are replaced by views, so that gradients from them are noticed. ``draws`` holds
        the mask of what dropout kept, or several candidates if it is unknown.
        """
        if draws is not None:
            if len(draws.kept) != 1:
                self._end_watched_call(None)  # the verdict on the output covers this
                return out
            self._factors = factors(draws.kept[0], draws.rate)
        output, *more = out if isinstance(out, tuple) else (out,)
        if not getattr(output, "requires_grad", False):
            self._end_watched_call(
                Backward(reason="its output carries no gradient, and its inputs do")
            )
            return out
        self._hook_tensor_gradient(output, self._record_output_gradient)
        for place, other in enumerate(more):
            if getattr(other, "requires_grad", False):
                more[place] = other.view_as(other)
                self._hook_tensor_gradient(
                    more[place], lambda grad: setattr(self, "_elsewhere", True)
                )
        return (output, *more) if type(out) is tuple else out

    def close(self) -> None:
        """End the audit of this call: gradients that have not come yet would come too late."""
        if self._done:
            return
        absent = sorted(self._wanted - set(self._got))
        missing = ", ".join(dict.fromkeys(SYMBOLS[name[:2]] for name in absent))
        if self._do is not None:
            self._end_watched_call(
                Backward(reason=f"{missing}: no such gradient came, and one of the output did")
            )
        elif (
            self._again
        ):  # a checkpoint ran it again, for values that it saves and not for its gradient
            self._end_watched_call(None)
        else:
            self._end_watched_call(Backward(reason=_WAITING))

    def _hook_tensor_gradient(self, tensor: Tensor, act: Callable[[Tensor], None]) -> None:
        see = partial(self._run_gradient_hook_safely, act)
        self._handles.append(
            tensor.register_hook(lambda grad: None if grad is None else see(grad.detach()))
        )

    def _run_gradient_hook_safely(self, act: Callable[..., None], *arguments: object) -> None:
        """Run a hook such that the backward pass runs as usual even if symattn fails."""
        import torch

        if self._done:
            return
        try:
            # Whatever fails here must not stop the backward pass.
            with patches.reading(), torch.no_grad():
                act(*arguments)
        except Exception as error:
            self._end_watched_call(Backward(reason=defect(error)))

    def _record_output_gradient(self, grad: Tensor) -> None:
        # A new gradient of the output begins another backward pass.
        whole = heads_apart(grad)
        heads_first = whole.transpose(1, 2) if self._heads_last else whole
        self._do, self._got = heads_first.clone(), {}

    def _record_input_gradient(self, name: str, grad: Tensor) -> None:
        self._got[name] = grad.clone()
        if self._wanted <= set(self._got):
            self._end_watched_call(self._judge_recorded_gradients())

    def _judge_recorded_gradients(self) -> Backward:
        # An array that was changed since is not what the call has seen.
        written = (name for name, t, version in self._versions if t._version != version)
        changed = next(written, "")
        if changed:
            return Backward(reason=_CHANGED.format(changed))
        # Gradients through other paths are not those of this call alone.
        if self._elsewhere or self._do is None:
            return Backward(reason=ELSEWHERE if self._elsewhere else _WAITING)
        got = {name: grad for name, grad in self._got.items() if name in _NAMES}
        biases = [grad for name, grad in self._got.items() if name not in _NAMES]
        passed = Passed(
            self._received, self._do, got, self._rows, self._contract, self._factors, biases
        )
        return judge_gradients(passed)

    def _end_watched_call(self, backward: Backward | None) -> None:
        """Report the finding, and release all arrays."""
        self._done = True
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._versions.clear()
        self._got.clear()
        self._do = self._received = None
        self.on_result(backward)


# -- attention in operators --------------------------------------------------------------------------------------------
# The backward pass of attention written out in operators: the gradients that its two products return, at their nodes.
#
# A node of autograd returns, for each of its inputs, the gradient by this operator alone: of queries and keys at the
# first product, of weights and values at the second. What the second returns for the weights must arrive at the first
# through the operators between, each of which must receive exactly what the one before it returned: else something
# besides the output had a gradient, and the call is not judged. Attention in one operator has one node.

_UNSEEN = (
    "it is spelled out in operators, and its scores do not come from one product alone, in one way"
)
# which of the inputs are the queries
_FIRST = {"BmmBackward0": 0, "MmBackward0": 0, "BaddbmmBackward0": 1}
_MOST = 64  # nodes between both products
Way: TypeAlias = "list[tuple[Node, int, int]]"


class Followed(WatchedCall):
    """A call of attention in operators whose gradients are awaited."""

    def __init__(self, received: Received, rows: int | None, contract: str | None) -> None:
        super().__init__(received, False, rows, contract)
        # masks that are functions that return rows of an array that was added to the scores
        added: list[Tensor] = [
            getattr(m.args[0], "array", None) for m in received.masks if isinstance(m, partial)
        ]
        self._versions += [
            ("the mask", array, array._version) for array in added if hasattr(array, "_version")
        ]
        self._wanted = {"dq", "dk", "dv"}
        # the gradient that the last node on the way returned for its input
        self._gave: Tensor = None

    def tie(self, node: Node) -> None:
        """Hook the node of the product with the values, or of the one operator. None: no gradients will come."""
        if node is None:
            self._end_watched_call(None)
        elif node.name().startswith("ScaledDotProduct"):
            self._hook_backward_node(node, self._of_one)
        elif node.next_functions[0][0] is None:  # neither queries nor keys have a gradient
            # Only values have a gradient here.
            self._wanted = {"dv"}
            self._hook_backward_node(node, self._of_values)
        elif (way := way_back(node)) is None:
            self._end_watched_call(Backward(reason=_UNSEEN))
        else:
            self._hook_backward_node(node, self._of_values)
            for step, number, index in way[:-1]:
                self._hook_backward_node(
                    step, partial(self._follow_gradient_between, number, index)
                )
            self._hook_backward_node(
                way[-1][0], partial(self._of_scores, _FIRST[way[-1][0].name()])
            )

    def _hook_backward_node(self, node: Node, act: Callable[..., None]) -> None:
        self._handles.append(node.register_hook(partial(self._run_gradient_hook_safely, act)))

    def _end_watched_call(self, backward: Backward | None) -> None:
        super()._end_watched_call(backward)
        self._gave = None

    def _of_one(self, gave: Sequence[Tensor], came: Tensor) -> None:
        self._do = came[0].clone()
        self._got = {
            name: g.clone()
            for name, g in zip(("dq", "dk", "dv"), gave, strict=False)
            if g is not None
        }
        self._end_watched_call(self._judge_recorded_gradients())

    def _of_values(self, gave: Sequence[Tensor], came: Tensor) -> None:
        q, v = self._received.q, self._received.v
        # The gradient of the weights goes on to the nodes between both products.
        self._do, self._gave = came[0].clone().reshape(*q.shape[:-1], -1), gave[0]
        self._got = {} if gave[1] is None else {"dv": gave[1].clone().reshape(v.shape)}
        if self._wanted == set(self._got):
            self._end_watched_call(self._judge_recorded_gradients())

    def _follow_gradient_between(
        self, number: int, index: int, gave: Sequence[Tensor], came: Tensor
    ) -> None:
        if _are_gradients_same(came[number], self._gave):
            self._gave = gave[index]
        else:
            self._end_watched_call(Backward(reason=ELSEWHERE))

    def _of_scores(self, first: int, gave: Sequence[Tensor], came: Tensor) -> None:
        # The gradient that arrives must be the one that left: else it was changed on the way.
        if not _are_gradients_same(came[0], self._gave):
            self._end_watched_call(Backward(reason=ELSEWHERE))
            return
        of_q, of_k = gave[first : first + 2]
        if of_q is not None:
            self._got["dq"] = of_q.clone().reshape(self._received.q.shape)
        if of_k is not None:
            # The product takes kᵀ, so that its gradient is transposed.
            self._got["dk"] = of_k.mT.clone().reshape(self._received.k.shape)
        self._end_watched_call(self._judge_recorded_gradients())


def way_back(node: Node) -> Way | None:
    """The way from the weights of a product back to the one product that they come from.

    Each step is a node, and the indices of its output and input. None if there is no such product, or no single way.
    """
    result: Way | None = None
    todo: list[tuple[tuple[Node, int], Way]] = [(node.next_functions[0], [])]
    visited: list[Node] = []
    while todo:
        (at, number), before = todo.pop()
        if at is None or not at.next_functions:
            continue
        # A node met twice means several ways; so many nodes are no plain attention.
        if any(at is other for other in visited) or len(visited) == _MOST:
            return None
        visited.append(at)
        if "mm" in at.name().lower() or "Linear" in at.name():
            # A second product, or one of an unknown form, leaves the way undecided.
            if result is not None or at.name() not in _FIRST:
                return None
            result = [*before, (at, number, 0)]
        else:
            todo += [
                (edge, [*before, (at, number, index)])
                for index, edge in enumerate(at.next_functions)
            ]
    return result


def _are_gradients_same(came: Tensor, gave: Tensor) -> bool:
    import torch

    if came is None or gave is None or came.shape != gave.shape or came.dtype != gave.dtype:
        return False
    # Arrays in the same memory need no comparison.
    return came.data_ptr() == gave.data_ptr() or bool(torch.equal(came, gave))
