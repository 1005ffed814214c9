"""Which input of a specification each input and weight of a graph is.

Names say it: ``hidden_states``, ``q_proj.weight``, ``attn.c_attn.weight``; or the caller does. Whether a matrix is kept
as (columns out, columns in) is how the graph multiplies by it. What was found is told, since it is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.attention.inputs import accepted, required
from symattn.attention.projections import merge_heads
from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.document.keywords import ROLES, UPSTREAM, plain
from symattn.programs.graphs.form import Graph, GraphArray, Ref
from symattn.programs.graphs.operators import concat, expand
from symattn.programs.graphs.values import Context, Joined
from symattn.programs.names import meaning

_TABLES = {"position_embeddings_0": "cos", "position_embeddings_1": "sin", "cos": "cos", "sin": "sin"}
_TABLES |= {"cos_cache": "cos", "sin_cache": "sin"}
_UPSTREAM = ("do",)
_GAINS = ("g_q", "g_k")
_TURNED = ("aten.t", "aten.transpose", "aten.permute", "Transpose", "transpose")
_PASSED = ("reshape", "convert_element_type", "stop_gradient", "copy")  # of JAX: they leave the first axis first


@dataclass(frozen=True)
class GraphSlot:
    """An array of the graph: the inputs of the specification that stand in it side by side, and how.

    ``front`` is how many axes of length 1 or of the batch come before those of the specification; ``merged`` says that
    heads stand side by side in the last axis; ``table`` that it is of angles, each once or, where it is twice as wide,
    twice.
    """

    given: GraphArray
    parts: tuple[str, ...]
    transposed: bool = False
    merged: bool = False
    table: bool = False

    @property
    def told(self) -> str:
        """``w_q = q_proj.weight, transposed``."""
        how = ", transposed" if self.transposed else ", heads side by side" if self.merged else ""
        return f"{' | '.join(dict.fromkeys(self.parts))} = {self.given.label or self.given.name}{how}"

    def filled(self, c: Context, inputs: Mapping[str, Any], batch: tuple[Any, ...]) -> Any:
        """The array that the graph gets for the specification's inputs."""
        arrays = [inputs[name] for name in self.parts]
        if len(arrays) > 1:
            return Joined(tuple(arrays), self.transposed)
        twice = self.table and self.given.shape[-1] == 2 * arrays[0].shape[-1]
        result = concat(c, [*arrays, *arrays], -1) if twice else arrays[0]
        if self.transposed:
            return c.xp.matrix_transpose(result)
        if self.merged:
            return merge_heads(result)
        more = len(self.given.shape) - result.ndim
        if self.table and more > 0:  # of queries with heads, the first axes of the batch are those without them
            return expand(c, result, (*batch[:more], *result.shape))
        return result[(*[None] * more, ...)] if more > 0 and result.ndim > 1 else result


def bind(graph: Graph, spec: Attention, told: Mapping[str, str] | None = None) -> tuple[GraphSlot, ...]:
    """A slot for every input and weight of the graph; ``told`` maps inputs of the specification to names in the graph.

    Raises ``InputError`` where it is open what an array is, and where the specification lacks or needs one.
    """
    said = {name: key for key, name in (told or {}).items()}
    there = {n for g in (*graph.inputs, *graph.weights) for n in (g.name, g.label)}
    if strange := next((n for n in said if n not in there), None):
        raise InputError(f"{graph.name} has no input or weight called {strange[:60]!r}")
    used = graph.used
    slots = [_input(graph, g, spec, said) for g in graph.inputs if g.name in used]
    slots += [_weight(graph, g, said) for g in graph.weights if g.name in used]
    names = [n for s in slots for n in dict.fromkeys(s.parts)]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise InputError(f"{graph.name}: two arrays may be {twice}; hint: choose one, {twice}=NAME")
    _check(graph, spec, names)
    return tuple(slots)


def _check(graph: Graph, spec: Attention, names: list[str]) -> None:
    base = ("x", "w_q", "w_k", "w_v") if "x" in names else ("q", "k", "v")
    if lacking := next((n for n in (*base, *required(spec)) if n not in names), None):
        raise InputError(f"{graph.name}: no input or weight is known to be {lacking}; hint: {lacking}=NAME")
    known = {*base, *_UPSTREAM[: hasattr(spec, "by")], "w_o", "b_q", "b_k", "b_v", "b_o", *accepted(spec)}
    if strange := next((n for n in names if n not in known), None):
        raise InputError(
            f"{graph.name} takes {strange}, which this attention does not; hint: give the field that needs it"
        )


def _input(graph: Graph, g: GraphArray, spec: Attention, said: Mapping[str, str]) -> GraphSlot:
    name = said.get(g.name) or _upstream(g.name, spec) or _table(g.name) or meaning(g.name)
    if name is None:
        raise InputError(f"{graph.name}: nothing says what the input {g.name[:40]!r} is; hint: x={g.name[:40]}, or q=…")
    if name in ("cos", "sin"):
        return GraphSlot(g, (name,), table=True)
    return GraphSlot(g, (name,), merged=name in ("q", "k", "v", "do") and bool(spec.head_axis) and len(g.shape) == 3)


def _upstream(name: str, spec: Attention) -> str | None:
    """``do``, if a derivative is asked for and an array is called as the gradient of its output is."""
    return "do" if hasattr(spec, "by") and (name == "do" or name in UPSTREAM.split()) else None


def _table(name: str) -> str | None:
    """``cos`` or ``sin``, if an array is called so."""
    return next((table for word, table in _TABLES.items() if plain(word) == plain(name)), None)


def _weight(graph: Graph, g: GraphArray, said: Mapping[str, str]) -> GraphSlot:
    label = g.label or g.name
    if g.name in said or label in said:
        parts: tuple[str, ...] = tuple((said.get(g.name) or said[label]).split("|"))
    elif table := _table(label):
        parts = (table,)
    else:
        parts = tuple(_roles(graph, label, len(g.shape)))
    if parts[0] in ("cos", "sin"):
        return GraphSlot(g, parts, table=True)
    return GraphSlot(g, parts, len(g.shape) == 2 and _is_transposed(graph, g.name))


def _roles(graph: Graph, label: str, axes: int) -> Iterator[str]:
    """The inputs that a weight holds, by its name: ``attn.c_attn.weight`` holds w_q, w_k and w_v, ``q_norm.weight``
    the gain g_q."""
    path, _, last = label.rpartition(".")
    words = [w for w in path.replace("/", ".").split(".") if w and not w.isdecimal()]
    if axes == 1 and (gain := meaning("_".join((*words[-1:], last)))) in _GAINS:
        yield str(gain)
        return
    bare = plain(last).removesuffix("weight").removesuffix("bias")
    roles = ROLES.get(plain(words[-1]) if words else "") or ROLES.get(bare)
    if roles is None or axes not in (1, 2):
        raise InputError(
            f"{graph.name}: nothing says what the weight {label[:60]!r} is; hint: w_q={label[:60]}, or w_k=…"
        )
    yield from (f"{'b' if axes == 1 else 'w'}_{role}" for role in roles)


def _is_transposed(graph: Graph, name: str) -> bool:
    """Return whether the graph multiplies by the transpose of what it keeps."""
    node = next((n for n in graph.nodes if Ref(name) in n.refs()), None)
    if node is None:  # it is an output
        return False
    if node.operator in _TURNED:
        return not _is_transposed(graph, node.outputs[0])
    if node.operator in _PASSED:
        return _is_transposed(graph, node.outputs[0])
    if node.operator == "dot_general":
        contracted = node.attributes["dimension_numbers"][0]
        return all(0 not in contracted[k] for k, x in enumerate(node.operands) if x == Ref(name))
    return node.operator == "aten.linear" or (node.operator == "Gemm" and bool(node.attributes.get("transB", 0)))


def bound(slots: tuple[GraphSlot, ...], c: Context, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of the graph by its names, for inputs of the specification."""
    like = inputs["x"] if "x" in inputs else inputs["q"]
    batch = tuple(like.shape[:-2])
    filled = {s.given.name: s.filled(c, inputs, batch) for s in slots}
    return {name: np.asarray(a) if isinstance(a, np.generic) else a for name, a in filled.items()}
