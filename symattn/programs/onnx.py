"""The operators Attention (opset 23 to 25) and FlexAttention of ONNX as ``Attention``.

Sources: ONNX, Operator Schemas, Attention-23, Attention-24, Attention-25; ai.onnx.preview, FlexAttention-1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import masks
from symattn.attention.projections import merge_heads, split_heads
from symattn.attention.sizes import same
from symattn.attention.spec import Attention
from symattn.document.errors import InputError, Refused
from symattn.programs.graphs.values import Value, are_booleans

# -- which keys a query sees -------------------------------------------------------------------------------------------
# The causal frontier, the window and the padding of a node, besides its mask. Query i is at position i + offset among
# the keys. The offset is the number of keys before the queries: those of the past, or of a cache, or 0.
_BROADCAST = 23  # the opset in which a mask of one column applies to all keys
FieldsAndInputs = tuple[dict[str, Value], dict[str, Value]]  # fields of ``Attention``, and inputs


@dataclass(frozen=True)
class Frontier:
    """The keys that a query sees, from ``left`` before it to ``right`` after it, None for no limit.

    ``causal`` means right = 0; ``offset`` is one number, or one for each element of the batch.
    """

    causal: bool
    left: int | None
    right: int | None
    offset: Value

    @classmethod
    def of(cls, attributes: Mapping[str, Value], offset: Value) -> Frontier:
        """Return the frontier of a node's attributes."""
        return cls(
            bool(attributes.get("is_causal", 0)),
            _read_window_side(attributes, "left_window_size"),
            _read_window_side(attributes, "right_window_size"),
            offset,
        )

    @property
    def window(self) -> tuple[int | None, int | None] | None:
        """The two sides of the window, or None if there is no window."""
        return None if self.left is None and self.right is None else (self.left, self.right)

    def fields(self, n_q: int, n_k: int) -> dict[str, Value] | None:
        """Return the equivalent fields of ``Attention``, or None if there are none."""
        if not self.causal and self.window is None:
            return {}
        bottom = isinstance(self.offset, int) and same(self.offset, n_k - n_q)
        if not bottom and not (isinstance(self.offset, int) and self.offset == 0):
            return None
        alignment = "bottom-right" if bottom else "top-left"
        return {"causal": self.causal, "window": self.window, "alignment": alignment}

    def seen(self, n_q: int, n_k: int) -> Value:
        """Return the mask as booleans: (n_q, n_k), or (b, 1, n_q, n_k) if the offset differs along the batch."""
        if not (isinstance(n_q, int) and isinstance(n_k, int)):
            raise Refused(
                "a causal frontier behind a cache, for numbers of queries and keys that were left open"
            )
        offset = self.offset if isinstance(self.offset, int) else self.offset[:, None, None, None]
        # Queries are counted from the first key, so that both positions can be compared.
        places = masks.Places(np.arange(n_q)[:, None] + offset, np.arange(n_k)[None, :])
        seen = masks.causal(places) if self.causal else np.asarray(True)
        return seen & masks.sides(places, self.left, self.right) if self.window else seen


def masks_of(
    frontier: Frontier,
    n_q: int,
    n_k: int,
    mask: Value = None,
    lengths: object = None,
    opset: int | None = None,
) -> FieldsAndInputs:
    """Return fields and inputs for a frontier, a mask (booleans, or numbers to add) and the lengths of a cache."""
    fields, inputs = _padding_of_onnx_cache(n_k, mask, lengths, opset)
    if mask is not None:
        mask = _of_scores(mask, n_k, repeated="keep" not in inputs)
        fields |= {"mask": "boolean" if are_booleans(mask) else "additive"}
        inputs |= {"mask": mask}
    structure = frontier.fields(n_q, n_k)
    if structure is not None:
        return fields | structure, inputs
    visible = frontier.seen(n_q, n_k)
    # A boolean mask takes up the frontier; an additive one becomes a bias beside it.
    if fields.get("mask") == "boolean":
        return fields, inputs | {"mask": mask & visible}
    if mask is not None:
        fields, inputs = fields | {"bias": True}, inputs | {"bias": mask}
    return fields | {"mask": "boolean"}, inputs | {"mask": visible}


def _padding_of_onnx_cache(
    n_k: int, mask: Value, lengths: Value, opset: int | None
) -> FieldsAndInputs:
    """Return the padding that hides keys beyond the end of a cache, and keys for which a mask has no column.

    Opset 23 repeats a single column for all keys, and allows no other number; later ones hide keys without a column.
    """
    width = n_k if mask is None else mask.shape[-1]
    # Nothing is hidden if there is a column for every key.
    if lengths is None and same(width, n_k):
        return {}, {}
    if width > n_k:
        raise InputError(f"attn_mask has {width} columns; there are {n_k} keys")
    # This opset repeats one column for all keys.
    if lengths is None and opset == _BROADCAST:
        if width != 1:
            raise InputError(
                f"attn_mask has {width} columns; opset {opset} wants one or {n_k}, a column for each key"
            )
        return {}, {}
    if lengths is None and opset is None and width == 1:
        what = f"attn_mask has one column; there are {n_k} keys"
        raise InputError(
            f"{what}: opset 23 repeats it, later ones hide the other keys; hint: give a column for each key"
        )
    # Both limits hide keys: the length, and the columns of the mask.
    ends = np.asarray(width) if lengths is None else np.minimum(lengths, width)
    return {"padding": True}, {"keep": masks.real_keys(ends, n_k)}


def _of_scores(mask: Value, n_k: int, repeated: bool) -> Value:
    """Return a mask with axes of queries and keys, (h, n_q, n_k) also with one of batches, and a column for each key.

    The contents of new columns do not matter: they are padding, unless the single column is ``repeated``.
    """
    mask = mask[None, ...] if mask.ndim in (1, 3) else mask
    if repeated or same(mask.shape[-1], n_k):
        return mask
    xp, missing = namespace_of(mask), n_k - mask.shape[-1]
    return xp.concat([mask, xp.zeros((*mask.shape[:-1], missing), dtype=mask.dtype)], axis=-1)


def _read_window_side(attributes: Mapping[str, Value], name: str) -> int | None:
    size: int = attributes.get(name, -1)
    if size < -1:
        raise InputError(
            f"Attention: {name} must be -1, for an open side, or a number of keys, got {size}"
        )
    return None if size == -1 else size


# -- nodes -------------------------------------------------------------------------------------------------------------
# AttributeProto.AttributeType, and the field that holds a value of that type. Source: onnx.proto.
_FIELDS = {1: "f", 2: "i", 3: "s", 5: "g", 6: "floats", 7: "ints", 8: "strings"}


@dataclass(frozen=True)
class OnnxNode:
    """A node: its operator, its attributes, and the graph's names of its inputs and outputs by role."""

    operator: str
    attributes: Mapping[str, Value]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def known(self, *attributes: str) -> None:
        """Raise ``InputError`` for any other attribute."""
        for name in self.attributes:
            if name not in attributes:
                words = ", ".join(sorted(attributes))
                raise InputError(f"{self.operator}: unknown attribute {name!r}; known: {words}")


def read(proto: Any, inputs: Sequence[str], outputs: Sequence[str]) -> OnnxNode:
    """Read a ``NodeProto`` with the roles ``inputs`` and ``outputs`` in order; a missing input has an empty name."""
    attributes = {}
    for a in proto.attribute:
        field = _FIELDS.get(a.type)
        if field is None:
            raise InputError(
                f"{proto.op_type}: attribute {a.name!r} has type {a.type}, which is not read"
            )
        value = getattr(a, field)
        # Fields for several values end in s; "s" itself is one text.
        several = field.endswith("s") and field != "s"
        attributes[a.name] = (
            value.decode() if isinstance(value, bytes) else list(value) if several else value
        )
    results = []
    for what, names, roles in (("inputs", proto.input, inputs), ("outputs", proto.output, outputs)):
        if len(names) > len(roles):
            raise InputError(f"{proto.op_type} has {len(names)} {what}; known: {', '.join(roles)}")
        # ONNX marks a missing input by an empty name.
        results.append({role: name for role, name in zip(roles, names, strict=False) if name})
    return OnnxNode(proto.op_type, attributes, *results)


# -- attention ---------------------------------------------------------------------------------------------------------
#: Roles of the inputs and of the outputs of Attention, in order.
INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")
#: Attributes of inputs with the heads side by side.
_HEADS = ("q_num_heads", "kv_num_heads")
#: Attributes of Attention that are read.
_ATTRIBUTES = (
    "is_causal",
    "left_window_size",
    "right_window_size",
    "scale",
    "softcap",
    *_HEADS,
    "softmax_precision",
    "qk_matmul_output_mode",
)
#: Attributes of FlexAttention that are read.
_FLEX = ("scale", "softmax_precision")
# The first opset that has an attribute or an input; all others exist from the operator's first opset on.
_SINCE = {"nonpad_kv_seqlen": 24, "left_window_size": 25, "right_window_size": 25}
# The first opset with the operator Attention.
_FIRST = 23
FLOATS = (1, 10, 11, 16)  # FLOAT, FLOAT16, DOUBLE, BFLOAT16
# qk_matmul_output in each mode: the last of these steps that the specification has.
_MODES = (("scaled",), ("scaled", "capped"), ("scaled", "capped", "biased", "masked"), ("weights",))


@dataclass(frozen=True)
class OnnxAttention:
    """A node as a specification and its inputs: ``spec(**inputs)`` is what it computes, before heads are merged.

    ``outputs`` are the outputs of the node, by the graph's names. ``softmax_precision`` is part of no specification: it
    is the arithmetic of an implementation's softmax.
    """

    spec: Attention
    inputs: Mapping[str, Value]
    node: OnnxNode
    packed: bool

    @cached_property
    def outputs(self) -> dict[str, Value]:
        """The outputs of the node among Y, present_key, present_value and qk_matmul_output, by the graph's names."""
        steps = self.spec.trace(**self.inputs)
        shown = _MODES[self.node.attributes.get("qk_matmul_output_mode", 0)]
        result = {
            "Y": merge_heads(steps["output"]) if self.packed else steps["output"],
            "present_key": self.inputs["k"],
            "present_value": self.inputs["v"],
            # The last of these steps that this attention has.
            "qk_matmul_output": steps[[name for name in shown if name in steps][-1]],
        }
        return {name: result[role] for role, name in self.node.outputs.items()}


def attention_of(proto: Any, arrays: Mapping[str, Value]) -> OnnxAttention:
    """Return the attention of a ``NodeProto`` for inputs of any kind of array, by the graph's names.

    A node alone does not determine it: whether a mask is boolean, whether heads are packed into the last axis, and
    where the diagonal of a causal mask lies depend on the inputs. Raises ``InputError`` for another operator, an
    unknown attribute, inputs that contradict each other, and modifiers of FlexAttention, which are graphs.
    """
    name = (proto.domain if proto.domain != "ai.onnx" else "", proto.op_type)
    if name == ("", "Attention"):
        node = read(proto, INPUTS, OUTPUTS)
    elif name == ("ai.onnx.preview", "FlexAttention"):
        # FlexAttention has no masks and caches among its inputs.
        node = read(proto, INPUTS[:3], OUTPUTS[:1])
        if modifier := next((x for x in ("score_mod", "prob_mod") if x in node.attributes), None):
            hint = "hint: read what it computes"
            raise InputError(
                f"FlexAttention: {modifier} is a graph, and no field of Attention; {hint}"
            )
    else:
        raise InputError(
            f"{'.'.join(filter(None, name))} is not read; known: Attention, ai.onnx.preview.FlexAttention"
        )
    # All inputs must be there; those with an empty name were left out above.
    missing = [name for name in node.inputs.values() if name not in arrays]
    if missing:
        raise InputError(f"{node.operator}: no array is given for the input {missing[0]!r}")
    return of_node(node, {role: arrays[name] for role, name in node.inputs.items()})


def of_node(node: OnnxNode, arrays: Mapping[str, Value], opset: int | None = None) -> OnnxAttention:
    """Return the attention of a node, for arrays by their role: ``Q``, ``K``, ``V``, ``attn_mask``, ….

    Semantics that changed between opsets are those of ``opset``; if it is None, they are refused. Raises ``InputError``
    as ``attention_of`` does, and for an attribute or an input that the opset lacks.
    """
    node.known(*(_FLEX if node.operator == "FlexAttention" else _ATTRIBUTES))
    _check_onnx_attention_node(node, arrays)
    for name in (*node.attributes, *arrays):
        if opset is not None and opset < (first := _SINCE.get(name, _FIRST)):
            raise InputError(f"{node.operator}: opset {opset} has no {name}; {first} is the first")
    q, k, v = (_split_onnx_heads(node, arrays[role], role) for role in "QKV")
    offset, lengths = 0, arrays.get("nonpad_kv_seqlen")
    if lengths is not None:
        # Lengths include the new tokens, so the first query is n_q places before the end.
        offset = lengths - q.shape[-2]
    if "past_key" in arrays:
        offset = arrays["past_key"].shape[-2]
        k, v = (
            namespace_of(q).concat([arrays[past], x], axis=-2)
            for past, x in (("past_key", k), ("past_value", v))
        )
    frontier = Frontier.of(node.attributes, offset)
    fields, inputs = masks_of(
        frontier, q.shape[-2], k.shape[-2], arrays.get("attn_mask"), lengths, opset
    )
    if int(q.shape[-3]) == 1 and "keep" in inputs:
        inputs["keep"] = inputs["keep"][..., None, :]  # a single head counts as an axis of batches
    heads = int(q.shape[-3])
    kv_heads = int(k.shape[-3])
    # A softcap of 0 means none.
    fields |= {
        "scale": node.attributes.get("scale"),
        "softcap": node.attributes.get("softcap") or None,
    }
    fields |= {"heads": heads, "kv_heads": None if kv_heads == heads else kv_heads}
    spec = Attention(**{name: value for name, value in fields.items() if value is not None})
    return OnnxAttention(spec, {"q": q, "k": k, "v": v, **inputs}, node, arrays["Q"].ndim == 3)


def _split_onnx_heads(node: OnnxNode, x: Array, role: str) -> Array:
    """Return the input with an axis of heads: its own, or one split from the last axis."""
    # Four axes have heads already.
    if x.ndim == 4:
        return x
    name = "q_num_heads" if role == "Q" else "kv_num_heads"
    if name not in node.attributes:
        raise InputError(
            f"{node.operator}: {role} has three axes; then the attribute {name} says how many heads it has"
        )
    heads = node.attributes[name]
    if heads < 1 or x.shape[-1] % heads:
        raise InputError(
            f"{node.operator}: {name} is {heads}, which does not divide the {x.shape[-1]} columns of {role}"
        )
    return split_heads(x, heads)


def _check_onnx_attention_node(node: OnnxNode, inputs: Mapping[str, Value]) -> None:
    """Raise ``InputError`` for inputs and attributes that contradict each other."""
    for role in "QKV":
        if role not in inputs:
            raise InputError(f"{node.operator} has no input {role}")
    axes = {inputs[role].ndim for role in "QKV"}
    # FlexAttention has heads in an axis, and never packed.
    if node.operator == "FlexAttention" and axes != {4}:
        raise InputError("FlexAttention: Q, K and V must have four axes")
    if len(axes) != 1 or not axes <= {3, 4}:
        raise InputError(f"{node.operator}: Q, K and V must all have three axes, or all four")
    if axes == {4} and any(name in node.attributes for name in _HEADS):
        raise InputError(
            f"{node.operator}: q_num_heads and kv_num_heads belong to inputs of three axes"
        )
    # A cache without the other half leaves keys without values.
    if ("past_key" in inputs) != ("past_value" in inputs):
        raise InputError(f"{node.operator}: past_key and past_value belong together")
    if "past_key" in inputs and "nonpad_kv_seqlen" in inputs:
        raise InputError(
            f"{node.operator}: nonpad_kv_seqlen is for a cache outside of the node; there is a past_key too"
        )
    if (causal := node.attributes.get("is_causal", 0)) not in (0, 1):
        raise InputError(f"{node.operator}: is_causal is {str(causal)[:40]!r}; known: 0 and 1")
    precision = node.attributes.get("softmax_precision", 1)
    if precision not in FLOATS:
        raise InputError(f"{node.operator}: softmax_precision is {precision}; known: {FLOATS}")
    mode = node.attributes.get("qk_matmul_output_mode", 0)
    if mode not in range(len(_MODES)):
        raise InputError(
            f"{node.operator}: qk_matmul_output_mode is {mode}; known: 0 to {len(_MODES) - 1}"
        )
