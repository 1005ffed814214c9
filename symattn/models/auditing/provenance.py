"""The origin of scores and weights: a node for each such array, from the product of queries and keys on.

Arrays are identified by their storage, to which a weak reference is kept: views need no rule, and a freed storage is
never mistaken for another. Queries, keys and masks of scores are kept until the next node is stored, or the audit ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Self

from symattn.models.auditing.setting import FORBIDS, Args, Kwargs, Module, Tensor
from symattn.programs.names import Function

if TYPE_CHECKING:
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True, eq=False)
class Added:
    """An array added to scores with a factor, or that forbids those where it is True; ``shape`` is the scores'."""

    array: Tensor
    shape: tuple[int, ...]
    factor: float = 1.0
    forbids: bool = False

    def rows(self, rows: Sequence[int]) -> Tensor:
        """Return these queries' mask (B, r, n_k), in which True may attend, or what is added to their scores."""
        *front, n_q, n_k = self.shape
        whole = (
            self.array.expand(*self.array.shape[:-2], n_q, n_k)
            if self.array.ndim > 1
            else self.array.expand(n_q, n_k)
        )
        chosen = whole[..., list(rows), :]
        of_all_heads = chosen.expand(*front, len(rows), n_k)
        # Heads of all items along one axis.
        whole_rows = of_all_heads.reshape(1, -1, len(rows), n_k)
        return ~whole_rows if self.forbids else whole_rows * self.factor


@dataclass(frozen=True, eq=False)
class TracedScores:
    """Scores scale · q kᵀ, capped, and with arrays added, for q (B, n_q, d), k (B, n_k, d).

    ``moved`` says that a number was added, or the maximum of each row subtracted, which changes no weight unless a cap
    follows.
    """

    q: Tensor
    k: Tensor
    scale: float = 1.0
    cap: float | None = None
    added: tuple[Added, ...] = ()
    moved: bool = False

    @property
    def keys(self) -> int:
        """The number of keys."""
        return int(self.k.shape[-2])

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether a view of this shape has queries and keys as its last two axes."""
        return tuple(shape[-2:]) == (self.q.shape[-2], self.keys)

    def times(self, factor: float) -> TracedScores:
        """Return the scores times a number: m times c tanh(S/c) is m S with the cap m c."""
        cap = None if self.cap is None else self.cap * factor
        # A mask that forbids has no size for a factor to change.
        more = tuple(
            replace(a, factor=a.factor * (1.0 if a.forbids else factor)) for a in self.added
        )
        return replace(self, scale=self.scale * factor, cap=cap, added=more)

    def adding(
        self, array: Tensor, shape: Sequence[int], factor: float = 1.0, forbids: bool = False
    ) -> Self | None:
        """Return the scores with an array added, or forbidden where it is True; None for a view with other axes."""
        added = Added(array, tuple(shape), factor, forbids)
        return replace(self, added=(*self.added, added)) if self.fits(shape) else None

    def capped(self) -> TracedScores | None:
        """Return the scores after tanh; None if something was added before."""
        return None if self.added or self.moved or self.cap is not None else replace(self, cap=1.0)

    def arrays(self) -> list[Tensor]:
        """Return the arrays that the scores are computed from."""
        return [self.q, self.k, *(a.array for a in self.added)]


@dataclass(eq=False)
class TracedSoftmax:
    """One softmax: the module that computed it, whether that has heads, and whether its result has met values."""

    layer: Module
    read: bool
    heads: bool = False
    met: bool = False


@dataclass(frozen=True, eq=False)
class TracedWeights:
    """The softmax of scores, or of something unknown (None).

    ``summed`` is the softmax of the exponentials in the sums, if they were computed again for these.
    """

    scores: TracedScores | None
    softmax: TracedSoftmax
    reason: str = ""
    summed: TracedSoftmax | None = None


@dataclass(frozen=True, eq=False)
class Exponentials:
    """exp of scores, from which weights are computed by division by their sums."""

    scores: TracedScores
    softmax: TracedSoftmax


@dataclass(frozen=True, eq=False)
class OfRows:
    """A number for each row of scores: their maximum over the keys, or the sum of their exponentials."""

    scores: TracedScores
    summed: Exponentials | None = None


Node = TracedScores | TracedWeights | Exponentials | OfRows


@dataclass
class KnownNodes:
    """The nodes of storages that are alive."""

    _nodes: dict[int | None, tuple[StorageWeakRef, int, Node]] = field(default_factory=dict)

    def get(self, tensor: Tensor) -> Node | None:
        """Return the node of an array; None for a part of the array, or if its axes are in another order."""
        entry = self._nodes.get(_identify_array_storage(tensor))
        # The storage may belong to another array by now.
        if (
            entry is None
            or entry[0].expired()
            or entry[1] != tensor.numel()
            or not tensor.is_contiguous()
        ):
            return None
        return entry[2]

    def put(self, tensor: Tensor, node: Node | None) -> None:
        """Set the node of an array from now on; None: it is unknown."""
        from torch.multiprocessing.reductions import StorageWeakRef

        key = _identify_array_storage(tensor)
        self._nodes.pop(key, None)
        if node is not None and key is not None:
            # Freed storages are dropped, since their addresses are used again.
            self._nodes = {k: n for k, n in self._nodes.items() if not n[0].expired()}
            self._nodes[key] = StorageWeakRef(tensor.untyped_storage()), tensor.numel(), node

    def changed(self, tensor: Tensor) -> None:
        """Note that an array was written into: forget its node, and the nodes that refer to it."""
        key = _identify_array_storage(tensor)
        if key is None:
            return
        self._nodes.pop(key, None)
        for other, (reference, size, node) in tuple(self._nodes.items()):
            if not made_of(node, tensor):
                continue
            del self._nodes[other]
            # Weights stay known as weights, with the reason why they cannot be judged.
            if isinstance(node, TracedWeights):
                reason = "queries, keys or a mask were changed in place before its weights met the values"
                self._nodes[other] = reference, size, replace(node, scores=None, reason=reason)

    def forget(self) -> None:
        """Release all arrays."""
        self._nodes.clear()


def made_of(node: Node, tensor: Tensor) -> bool:
    """Return whether the scores of a node are computed from an array, by its storage."""
    scores = node if isinstance(node, TracedScores) else node.scores
    return scores is not None and _identify_array_storage(tensor) in map(
        _identify_array_storage, scores.arrays()
    )


def _identify_array_storage(tensor: Tensor) -> int | None:
    """Return what identifies an array; None for one without storage, such as a sparse array."""
    try:
        return int(tensor.untyped_storage()._cdata)
    # The error that is raised depends on the kind of array.
    except Exception:
        return None


class Operation(NamedTuple):
    """A call of an operator of torch: its name, without that of its overload, and its arguments.

    An operator of higher order has no name.
    """

    name: str
    args: Args
    kwargs: Mapping[str, Tensor]

    @classmethod
    def of(cls, func: Function, args: Args, kwargs: Mapping[str, Tensor] | None) -> Operation:
        """Return the call of an operator as a dispatch mode receives it."""
        return cls(
            str(getattr(getattr(func, "overloadpacket", func), "__name__", "")), args, kwargs or {}
        )

    def argument(self, place: int, name: str, otherwise: object = None) -> Tensor:
        """Return an argument that may be given by position or by name."""
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, otherwise)


def seeing(see: Callable[[TorchDispatchMode, Operation, Function], Tensor]) -> TorchDispatchMode:
    """Return a dispatch mode in which ``see`` runs every operator: it gets the mode, the call and the function."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seeing(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
        ) -> Tensor:
            return see(self, Operation.of(func, args, kwargs), func)

    return Seeing()


def number(x: Tensor | float) -> float | None:
    """Return a number, or an array of one element, as a float; None for anything else, or an array without data."""
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return float(x)
    # An array without data has no number to read.
    has_data = hasattr(x, "numel") and not x.is_meta
    return float(x) if has_data and x.numel() == 1 and x.dtype.is_floating_point else None


def forbids(x: Tensor | float) -> bool:
    """Return whether a value that is filled in forbids a score."""
    value = number(x)
    return value is not None and value <= FORBIDS


# -- rules -------------------------------------------------------------------------------------------------------------
# The effect of torch's operators on scores and weights: a rule for each known operator, by its name.
#
# A rule takes the operator's arguments and returns the node of its result, None if that is unknown.

Rule = Callable[[KnownNodes, Operation], Node | None]

#: Operators with no rule of their own whose result holds the entries of their first argument, in the same order.
SAME = ("clone", "_to_copy", "contiguous", "detach", "alias", "_unsafe_view", "view", "reshape")


# Operators that give e to the power of each entry.
EXPONENTIALS = ("exp", "exp_")


def _traced_scores_of_array(known: KnownNodes, x: Tensor) -> TracedScores | None:
    node = known.get(x)
    return node if isinstance(node, TracedScores) else None


def _is_float_preserving(op: Operation) -> bool:
    """Return whether entries keep their values, unlike in casts to integers and views of the bits as another type."""
    wanted = op.kwargs.get("dtype")
    # The second argument of ``view`` may be a dtype, which has this attribute.
    viewed = len(op.args) > 1 and hasattr(op.args[1], "is_floating_point")
    return not viewed and (wanted is None or bool(wanted.is_floating_point))


def _trace_multiplication(known: KnownNodes, op: Operation, inverse: bool = False) -> Node | None:
    x, y = op.args[:2]
    # Scores may be the second factor of a product, but only stand above a division.
    if known.get(x) is None and not inverse:
        x, y = y, x
    factor = number(y)
    node = known.get(x)
    if (
        factor is None
        or not isinstance(node, (TracedScores, TracedWeights))
        or (inverse and not factor)
    ):
        return None
    if isinstance(node, TracedWeights):
        return (
            node
            if factor == 1
            else replace(node, scores=None, reason="its weights are multiplied by a number")
        )
    return node.times(1 / factor if inverse else factor)


def _trace_division(known: KnownNodes, op: Operation) -> Node | None:
    above = known.get(op.args[0])
    below = known.get(op.args[1])
    if not isinstance(above, Exponentials) or not isinstance(below, OfRows) or below.summed is None:
        return _trace_multiplication(known, op, inverse=True)
    if below.scores is not above.scores or not _of_rows(op.args[1], op.args[0]):
        return None
    return TracedWeights(above.scores, above.softmax, summed=below.summed.softmax)


def _trace_addition(known: KnownNodes, op: Operation, sign: float = 1.0) -> Node | None:
    x, y = op.args[:2]
    factor = sign * float(op.argument(2, "alpha", 1))
    node = _traced_scores_of_array(known, x)
    # A sum without a factor may have the scores on either side.
    if node is None and sign > 0 and factor == 1:
        x, y, node = y, x, _traced_scores_of_array(known, y)
    if node is None:
        return None
    if not hasattr(y, "shape"):
        return replace(node, moved=True)  # a number changes no weight
    # If the other array widens the result, scores are only a part of it.
    return node.adding(y, x.shape, factor) if _is_broadcast_to_scores(y, x) else None


def _trace_subtraction(known: KnownNodes, op: Operation) -> Node | None:
    x, y = op.args[:2]
    scores = _traced_scores_of_array(known, x)
    taken = known.get(y) if hasattr(y, "shape") else None
    # The maximum of each row of the same scores, which a stable softmax subtracts.
    greatest = isinstance(taken, OfRows) and taken.summed is None and taken.scores is scores
    if scores is not None and greatest and _of_rows(y, x):
        return replace(scores, moved=True)
    return _trace_addition(known, op, sign=-1.0)


def _is_broadcast_to_scores(y: Tensor, x: Tensor) -> bool:
    import torch

    return tuple(torch.broadcast_shapes(y.shape, x.shape)) == tuple(x.shape)


def _trace_masked_fill(known: KnownNodes, op: Operation) -> Node | None:
    x, mask, value = op.args[:3]
    node = _traced_scores_of_array(known, x)
    return (
        node.adding(mask, x.shape, forbids=True)
        if node is not None and forbids(value) and _is_broadcast_to_scores(mask, x)
        else None
    )


def _trace_where(known: KnownNodes, op: Operation) -> Node | None:
    if len(op.args) < 3:
        return None
    condition, x, y = op.args
    # Scores may stand on either side of the condition.
    for scores, other, mask in ((x, y, ~condition), (y, x, condition)):
        node = _traced_scores_of_array(known, scores)
        if node is not None and forbids(other) and _is_broadcast_to_scores(mask, scores):
            return node.adding(mask, scores.shape, forbids=True)
    return None


def _of_rows(y: Tensor, x: Tensor) -> bool:
    """Return whether ``y`` has one number per row of ``x``."""
    return tuple(y.shape) == (*x.shape[:-1], 1)


def _over_keys(op: Operation) -> bool:
    x, axes = op.args[0], op.argument(1, "dim")
    axes = [axes] if isinstance(axes, int) else axes
    # Without axes an operator runs over all of them.
    return [axis % x.ndim for axis in axes or range(x.ndim)] == [x.ndim - 1]


def _trace_row_sum(known: KnownNodes, op: Operation) -> Node | None:
    node = known.get(op.args[0])
    # The second argument is the axis here, not a dtype.
    if not isinstance(node, Exponentials) or not _is_float_preserving(
        op._replace(args=op.args[:1])
    ):
        return None
    return OfRows(node.scores, node) if _over_keys(op) else None


def _trace_row_maximum(known: KnownNodes, op: Operation) -> Node | None:
    scores = _traced_scores_of_array(known, op.args[0])
    return OfRows(scores) if scores is not None and _over_keys(op) else None


def _trace_clamp(known: KnownNodes, op: Operation) -> Node | None:
    """Handle a lower limit that forbids: scores below it are forbidden already."""
    least = op.argument(1, "min")
    if "dim" in op.kwargs or (
        len(op.args) > 1 and type(least) is int
    ):  # ``max``: the greatest along an axis
        return _trace_row_maximum(known, op)
    return (
        _traced_scores_of_array(known, op.args[0])
        if op.argument(2, "max") is None and forbids(least)
        else None
    )


# The rule of each operator; without one, the origin of a result is unknown.
RULES: dict[str, Rule] = {
    **dict.fromkeys(
        SAME, lambda known, op: known.get(op.args[0]) if _is_float_preserving(op) else None
    ),
    **dict.fromkeys(("mul", "mul_"), _trace_multiplication),
    **dict.fromkeys(("div", "div_"), _trace_division),
    **dict.fromkeys(("add", "add_"), _trace_addition),
    **dict.fromkeys(("sub", "sub_"), _trace_subtraction),
    **dict.fromkeys(("masked_fill", "masked_fill_"), _trace_masked_fill),
    **dict.fromkeys(
        ("tanh", "tanh_"),
        lambda known, op: (x := _traced_scores_of_array(known, op.args[0])) and x.capped(),
    ),
    **dict.fromkeys(("maximum", "max", "clamp", "clamp_", "clamp_min", "clamp_min_"), _trace_clamp),
    **dict.fromkeys(EXPONENTIALS, lambda known, op: _traced_scores_of_array(known, op.args[0])),
    "where": _trace_where,
    "sum": _trace_row_sum,
    "amax": _trace_row_maximum,
}

#: Attention in one operator; True where its arguments can be read.
FUSED = {
    "_scaled_dot_product_flash_attention_for_cpu": True,
    "_scaled_dot_product_flash_attention": False,
    "_scaled_dot_product_efficient_attention": False,
    "_scaled_dot_product_cudnn_attention": False,
    "_scaled_dot_product_fused_attention_overrideable": False,
    "_scaled_dot_product_attention_math_for_mps": False,
    "_flash_attention_forward": False,
    "_efficient_attention_forward": False,
    "flex_attention": False,
}
# Operators of the softmax, and of products of matrices.
SOFTMAX = ("_softmax", "_safe_softmax")
PRODUCTS = ("bmm", "mm", "baddbmm")
