"""The effect of torch's operators on scores and weights: a rule for each that is known, by the operator's name.

A rule takes the arguments of the operator and gives the node of its result, None where that is nothing known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from symattn.models.auditing.provenance import (
    Exponentials,
    Greatest,
    KnownNodes,
    Node,
    TracedScores,
    TracedSums,
    TracedWeights,
    forbids,
    number,
)

Rule = Callable[[KnownNodes, Any, Any], Node | None]

#: Operators with no rule of their own whose result holds the entries of their first argument, in the same order.
SAME = ("clone", "_to_copy", "contiguous", "detach", "alias", "_unsafe_view", "view", "reshape")


EXPONENTIALS = ("exp", "exp_")


def _scores(known: KnownNodes, x: Any) -> TracedScores | None:
    node = known.get(x)
    return node if isinstance(node, TracedScores) else None


def _floats(args: Any, kwargs: Any) -> bool:
    """Return whether entries keep their values, unlike casts to integers and views of the bits as another type."""
    wanted = kwargs.get("dtype")
    viewed = len(args) > 1 and hasattr(args[1], "is_floating_point")
    return not viewed and (wanted is None or bool(wanted.is_floating_point))


def _scaled(known: KnownNodes, args: Any, kwargs: Any, inverse: bool = False) -> Node | None:
    x, y = args[0], args[1]
    if known.get(x) is None and not inverse:
        x, y = y, x
    factor = number(y)
    node = known.get(x)
    if factor is None or not isinstance(node, (TracedScores, TracedWeights)) or (inverse and not factor):
        return None
    if isinstance(node, TracedWeights):
        return node if factor == 1 else replace(node, scores=None, reason="its weights are multiplied by a number")
    return node.times(1 / factor if inverse else factor)


def _divided(known: KnownNodes, args: Any, kwargs: Any) -> Node | None:
    above, below = known.get(args[0]), known.get(args[1])
    if not isinstance(above, Exponentials) or not isinstance(below, TracedSums):
        return _scaled(known, args, kwargs, inverse=True)
    if below.scores is not above.scores or not _of_rows(args[1], args[0]):
        return None
    return TracedWeights(above.scores, above.softmax, summed=below.of.softmax)


def _plus(known: KnownNodes, args: Any, kwargs: Any, sign: float = 1.0) -> Node | None:
    x, y = args[0], args[1]
    factor = sign * float(kwargs.get("alpha", args[2] if len(args) > 2 else 1))
    node = _scores(known, x)
    if node is None and sign > 0 and factor == 1:
        x, y, node = y, x, _scores(known, y)
    if node is None:
        return None
    if not hasattr(y, "shape"):
        return replace(node, moved=True)  # a number moves no weight
    return node.plus(y, x.shape, factor) if _broadcasts(y, x) else None


def _minus(known: KnownNodes, args: Any, kwargs: Any) -> Node | None:
    scores, taken = _scores(known, args[0]), known.get(args[1]) if hasattr(args[1], "shape") else None
    if scores is not None and isinstance(taken, Greatest) and taken.scores is scores and _of_rows(args[1], args[0]):
        return replace(scores, moved=True)
    return _plus(known, args, kwargs, sign=-1.0)


def _broadcasts(y: Any, x: Any) -> bool:
    import torch

    return tuple(torch.broadcast_shapes(y.shape, x.shape)) == tuple(x.shape)


def _filled(known: KnownNodes, args: Any, kwargs: Any) -> Node | None:
    x, mask, value = args[:3]
    node = _scores(known, x)
    return node.without(mask, x.shape) if node is not None and forbids(value) and _broadcasts(mask, x) else None


def _chosen(known: KnownNodes, args: Any, kwargs: Any) -> Node | None:
    if len(args) < 3:
        return None
    condition, x, y = args
    for kept, other, mask in ((x, y, ~condition), (y, x, condition)):
        node = _scores(known, kept)
        if node is not None and forbids(other) and _broadcasts(mask, kept):
            return node.without(mask, kept.shape)
    return None


def _of_rows(y: Any, x: Any) -> bool:
    """Return whether ``y`` has one number for each row of ``x``."""
    return tuple(y.shape) == (*x.shape[:-1], 1)


def _over_keys(x: Any, args: Any, kwargs: Any) -> bool:
    axes = args[1] if len(args) > 1 else kwargs.get("dim")
    axes = [axes] if isinstance(axes, int) else axes
    return [axis % x.ndim for axis in axes or range(x.ndim)] == [x.ndim - 1]


def _summed(known: KnownNodes, args: Any, kwargs: Any) -> Node | None:
    x, node = args[0], known.get(args[0])
    if not isinstance(node, Exponentials) or not _floats(args[:1], kwargs):
        return None
    return TracedSums(node) if _over_keys(x, args, kwargs) else None


def _greatest(known: KnownNodes, args: Any, kwargs: Any) -> Node | None:
    scores = _scores(known, args[0])
    return Greatest(scores) if scores is not None and _over_keys(args[0], args, kwargs) else None


def _raised(known: KnownNodes, args: Any, kwargs: Any) -> Node | None:
    """At least a number that forbids: what is below it was forbidden already."""
    if "dim" in kwargs or (len(args) > 1 and type(args[1]) is int):  # of ``max``: the greatest along an axis
        return _greatest(known, args, kwargs)
    least = kwargs.get("min", args[1] if len(args) > 1 else None)
    most = kwargs.get("max", args[2] if len(args) > 2 else None)
    return _scores(known, args[0]) if most is None and forbids(least) else None


RULES: dict[str, Rule] = {
    **dict.fromkeys(SAME, lambda known, args, kwargs: known.get(args[0]) if _floats(args, kwargs) else None),
    **dict.fromkeys(("mul", "mul_"), _scaled),
    **dict.fromkeys(("div", "div_"), _divided),
    **dict.fromkeys(("add", "add_"), _plus),
    **dict.fromkeys(("sub", "sub_"), _minus),
    **dict.fromkeys(("masked_fill", "masked_fill_"), _filled),
    **dict.fromkeys(("tanh", "tanh_"), lambda known, args, kwargs: (x := _scores(known, args[0])) and x.capped()),
    **dict.fromkeys(("maximum", "max", "clamp", "clamp_", "clamp_min", "clamp_min_"), _raised),
    **dict.fromkeys(EXPONENTIALS, lambda known, args, kwargs: _scores(known, args[0])),
    "where": _chosen,
    "sum": _summed,
    "amax": _greatest,
}

#: Attention in one operator: which arguments it has is known for the first kind alone.
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
SOFTMAX = ("_softmax", "_safe_softmax")
PRODUCTS = ("bmm", "mm", "baddbmm")
