"""Match the inputs and weights of a graph with the inputs of a specification.

Names determine it: ``hidden_states``, ``q_proj.weight``, ``attn.c_attn.weight``; or the caller does. Whether a matrix
is stored as (columns out, columns in) follows from how the graph multiplies by it. The matching is reported, since the
verdict relies on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from symattn.arrays.planes import Planes
from symattn.attention.inputs import TOKENS, accepted, required, shape
from symattn.attention.projections import merge_heads, split_heads
from symattn.attention.spec import Attention
from symattn.attention.temperatures import least_tokens_of_temperatures
from symattn.bounds.called_target import Argument, Convention, Inputs, Memory, Outcome
from symattn.bounds.inputs import Sizes
from symattn.document.errors import InputError
from symattn.document.keywords import ROLES, UPSTREAM, plain
from symattn.programs.graphs import graph_operators
from symattn.programs.graphs.running import Graph, GraphArray, Ref, check_operators, run
from symattn.programs.graphs.values import Context, Joined, Value
from symattn.programs.names import gain, meaning
from symattn.verification.semantics import spec_width

# names of tables of angles
_TABLES = {plain(f"{word}{of}"): word for word in ("cos", "sin") for of in ("", "_cache")}
_TABLES |= {plain("position_embeddings_0"): "cos", plain("position_embeddings_1"): "sin"}
#: The gradient of the output, an input of specifications of gradients only.
_UPSTREAM = ("do",)


@dataclass(frozen=True)
class GraphSlot:
    """An array of the graph, and the inputs of the specification that are side by side in it.

    ``merged`` says that heads are side by side in the last axis; ``table`` that it is a table of angles, each once or,
    if it is twice as wide, twice.
    """

    given: GraphArray
    parts: tuple[str, ...]
    transposed: bool = False
    merged: bool = False
    table: bool = False

    @property
    def words(self) -> str:
        """The slot in words: ``w_q = q_proj.weight, transposed``."""
        how = ", transposed" if self.transposed else ", heads side by side" if self.merged else ""
        parts = " | ".join(dict.fromkeys(self.parts))
        return f"{parts} = {self.given.label or self.given.name}{how}"

    def filled(self, c: Context, inputs: Mapping[str, Value], batch: tuple[Value, ...]) -> Value:
        """Return the array of the graph for the specification's inputs."""
        arrays = [inputs[name] for name in self.parts]
        if len(arrays) > 1:
            return Joined(tuple(arrays), self.transposed)
        # A table for the half-split layout repeats its angles, so it is twice as wide.
        twice = self.table and self.given.shape[-1] == 2 * arrays[0].shape[-1]
        result = graph_operators.concat(c, [*arrays, *arrays], -1) if twice else arrays[0]
        if self.transposed:
            return c.xp.matrix_transpose(result)
        if self.merged:
            return merge_heads(result)
        more = len(self.given.shape) - result.ndim
        if (
            self.table and more > 0
        ):  # with heads, the first axes of ``batch`` are those of the batch itself
            return graph_operators.expand(c, result, (*batch[:more], *result.shape))
        # A vector broadcasts without further axes.
        return result[(*[None] * more, ...)] if more > 0 and result.ndim > 1 else result


def bind(
    graph: Graph, spec: Attention, words: Mapping[str, str] | None = None
) -> tuple[GraphSlot, ...]:
    """Return a slot for every input and weight of the graph; ``words`` maps inputs of the specification to names there.

    Raises ``InputError`` if the meaning of an array is unclear, and if the specification lacks or needs one.
    """
    named = {name: key for key, name in (words or {}).items()}
    arrays = (*graph.inputs, *graph.weights)
    there = {name for array in arrays for name in (array.name, array.label)}
    if unknown := next((n for n in named if n not in there), None):
        raise InputError(f"{graph.name} has no input or weight called {unknown[:60]!r}")
    # An array that no node takes needs no meaning.
    used = graph.used
    slots = [_match_graph_input(graph, g, spec, named) for g in graph.inputs if g.name in used]
    slots += [_match_graph_weight(graph, g, named) for g in graph.weights if g.name in used]
    names = [n for s in slots for n in dict.fromkeys(s.parts)]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise InputError(f"{graph.name}: two arrays may be {twice}; hint: choose one, {twice}=NAME")
    # Tokens come with projections; without tokens, queries, keys and values are inputs.
    base = ("x", "w_q", "w_k", "w_v") if "x" in names else ("q", "k", "v")
    if lacking := next((n for n in (*base, *required(spec)) if n not in names), None):
        raise InputError(
            f"{graph.name}: no input or weight is known to be {lacking}; hint: {lacking}=NAME"
        )
    known = {
        *base,
        *_UPSTREAM[: hasattr(spec, "by")],
        "w_o",
        "b_q",
        "b_k",
        "b_v",
        "b_o",
        *accepted(spec),
    }
    if unknown := next((n for n in names if n not in known), None):
        hint = "give the field that needs it"
        raise InputError(
            f"{graph.name} takes {unknown}, which this attention does not; hint: {hint}"
        )
    return tuple(slots)


def _match_graph_input(
    graph: Graph, g: GraphArray, spec: Attention, named: Mapping[str, str]
) -> GraphSlot:
    upstream = hasattr(spec, "by") and g.name in ("do", *UPSTREAM.split())
    name = named.get(g.name) or (
        "do" if upstream else _TABLES.get(plain(g.name)) or meaning(g.name)
    )
    if name is None:
        raise InputError(
            f"{graph.name}: nothing says what the input {g.name[:40]!r} is; hint: x={g.name[:40]}, or q=…"
        )
    if name in ("cos", "sin"):
        return GraphSlot(g, (name,), table=True)
    # Three axes where the specification has heads: the heads are side by side in the columns.
    return GraphSlot(
        g,
        (name,),
        merged=name in ("q", "k", "v", "do") and bool(spec.head_axis) and len(g.shape) == 3,
    )


def _match_graph_weight(graph: Graph, g: GraphArray, named: Mapping[str, str]) -> GraphSlot:
    label = g.label or g.name
    # The caller's word overrides the name; ``w_q|w_k`` means both, side by side.
    if g.name in named or label in named:
        words_of_parts = named.get(g.name) or named[label]
        parts: tuple[str, ...] = tuple(words_of_parts.split("|"))
    elif table := _TABLES.get(plain(label)):
        parts = (table,)
    else:
        parts = tuple(_yield_weight_roles(graph, label, len(g.shape)))
    if parts[0] in ("cos", "sin"):
        return GraphSlot(g, parts, table=True)
    # Only a matrix can be transposed; gains and biases have one axis.
    transposed = len(g.shape) == 2 and _is_transposed(graph, g.name)
    return GraphSlot(g, parts, transposed)


def _yield_weight_roles(graph: Graph, label: str, axes: int) -> Iterator[str]:
    """Yield the inputs in a weight, by its name: ``attn.c_attn.weight`` has w_q, w_k and w_v, ``q_norm.weight`` the
    gain g_q."""
    path, _, last = label.rpartition(".")
    # The number of a layer says nothing about the role of its weights.
    parts_of_path = path.replace("/", ".").split(".")
    words = [w for w in parts_of_path if w and not w.isdecimal()]
    # A gain and a bias of a norm are vectors like other biases, so the norm is tried first.
    if axes == 1 and (normed := gain("".join(words[-1:]), last)):
        yield normed
        return
    bare = plain(last).removesuffix("weight").removesuffix("bias")
    roles = ROLES.get(plain(words[-1]) if words else "") or ROLES.get(bare)
    if roles is None or axes not in (1, 2):
        raise InputError(
            f"{graph.name}: nothing says what the weight {label[:60]!r} is; hint: w_q={label[:60]}, or w_k=…"
        )
    yield from (f"{'b' if axes == 1 else 'w'}_{role}" for role in roles)


def _is_transposed(graph: Graph, name: str) -> bool:
    """Return whether the graph multiplies by the transpose of a stored matrix."""
    # The first node that takes the matrix decides, through transposes and moves before a product.
    takers = (n for n in graph.nodes if Ref(name) in n.refs())
    node = next(takers, None)
    if node is None:  # the matrix itself is an output
        return False
    dialect = graph.dialect
    if node.operator in dialect.turned:
        return not _is_transposed(graph, node.outputs[0])
    if node.operator in dialect.passed:
        return _is_transposed(graph, node.outputs[0])
    return dialect.transposes(node, name)


def bound(
    slots: tuple[GraphSlot, ...], c: Context, inputs: Mapping[str, Value]
) -> dict[str, Value]:
    """Return the arrays of the graph by its names, for inputs of the specification."""
    like = inputs["x"] if "x" in inputs else inputs["q"]
    batch = tuple(like.shape[:-2])
    filled = {s.given.name: s.filled(c, inputs, batch) for s in slots}
    # Indexing may have returned NumPy's scalars; rules expect arrays.
    return {name: np.asarray(a) if isinstance(a, np.generic) else a for name, a in filled.items()}


# -- the sizes of a graph: open ones, fixed ones, and those at which it is tested --------------------------------------
_TRIED = ((2, 3), (3, 5), (7, 7))  # numbers of queries and keys, if they are open
#: Several blocks of 128 queries and of 128 keys, if they are open; the first with few enough scores is tried.
_SEVERAL_BLOCKS = ((140, 270), (140, 150))
_FEW = 7  # queries, where many keys alone may show what is wrong
_CELLS = 1 << 17  # scores of all heads, in an item of several blocks
# More than one item, so that a mix-up of items changes the output.
_BATCH = 2
_BEYOND = 3  # number of positions beyond the last at which a specification changes
_ENTRIES = 2**27  # of scores, tokens or weights
_MOST = 256  # positions that a test of semantics handles in seconds


@dataclass(frozen=True)
class MeasuredSizes:
    """Sizes by the letters of a specification: whole numbers, or the graph's words for open ones."""

    batch: tuple[int | str, ...]
    n_q: int | str
    n_k: int | str
    d_model: int
    d_k: int
    d_v: int

    @property
    def open(self) -> tuple[str, ...]:
        """The words of open sizes, each once."""
        results = (*self.batch, self.n_q, self.n_k)
        return tuple(dict.fromkeys(n for n in results if isinstance(n, str)))

    def tried(self, spec: Attention) -> tuple[Sizes, ...]:
        """Return the sizes at which the graph is tested; fixed sizes stay as they are.

        One reaches beyond every window, block and prefix of ``spec``, unless ``untried`` reports that it is too long.
        """
        far = farthest(spec)
        beyond = ((far + _BEYOND, far + _BEYOND),) if 0 < far <= _MOST else ()
        lengths = (*_TRIED, *beyond)
        return tuple(dict.fromkeys(self._of_lengths(n_q, n_k, _BATCH) for n_q, n_k in lengths))

    def together(self, spec: Attention) -> tuple[Sizes, ...]:
        """Return the sizes of several blocks of queries and of keys at once; () if no number of tokens is open, or
        arrays would be too large.

        A graph may hold a mask, a slice or a tile of a fixed length, beyond which alone it is wrong.
        """
        if not isinstance(self.n_q, str) and not isinstance(self.n_k, str):
            return ()
        one_item = [self._of_lengths(n_q, n_k, 1) for n_q, n_k in _SEVERAL_BLOCKS]
        few = (s for s in one_item if spec.heads * s.n_q * s.n_k <= _CELLS)
        chosen = next(few, one_item[-1])
        return (chosen,) if _count_entries(spec, chosen) <= _ENTRIES else ()

    def shrunk(self, sizes: Sizes) -> tuple[Sizes, ...]:
        """Return smaller sizes at which a difference may show as well, the smallest first, and the sizes themselves.

        Each known mistake is computed at the first that shows it. There are never fewer keys than queries, since a
        query may then see no key.
        """
        lengths = ((min(_FEW, sizes.n_q), sizes.n_k), (sizes.n_q, min(sizes.n_q, sizes.n_k)))
        # The items stay as they are: of several batch axes, some may be open and others large.
        fewer = (replace(self._of_lengths(*of, 1), batch=sizes.batch) for of in lengths)
        return tuple(dict.fromkeys((*fewer, sizes)))

    def _of_lengths(self, n_q: int, n_k: int, items: int) -> Sizes:
        """Return sizes with these lengths and so many items, where they are open."""
        batch = tuple(items if isinstance(n, str) else n for n in self.batch)
        q = n_q if isinstance(self.n_q, str) else self.n_q
        # In self-attention both numbers are one open size, so the keys follow the queries.
        k = q if self.n_k == self.n_q else n_k if isinstance(self.n_k, str) else self.n_k
        return Sizes(q, k, self.d_k, self.d_v, self.d_model, batch)

    def untried(self, spec: Attention) -> str:
        """Say why no size that is tried reaches beyond the windows of ``spec``; "" if one does."""
        far = farthest(spec)
        if far <= _MOST or not isinstance(self.n_k, str):
            return ""
        return f"Nothing was tried beyond the place {far}, where the specification changes; at most {_MOST} are tried."

    def declared(self, name: str, spec: Attention, names: tuple[str, ...]) -> str:
        """Return the shape of an input as a statement declares it: ``b n 8``, ``8 2*4``."""
        known: Mapping[str, int | str] = {
            "n_q": self.n_q,
            "n_k": self.n_k,
            "d_model": self.d_model,
            "d_k": self.d_k,
            "d_v": self.d_v,
            "d_y": self.d_model,
            "d_out": self.d_model,
            "d_s": self.d_k,
            "h": spec.heads,
            "g": spec.key_heads,
            "f": (spec_width(spec) or self.d_k) // 2,
        }
        front = " ".join(map(str, self.batch)) if name in TOKENS else ""
        words = (
            shape(name, spec, names).replace("…", "").replace("(h?)", "").replace("?", "").split()
        )
        axes = [
            "*".join(str(known[f]) if not f.isdecimal() else f for f in w.split("*")) for w in words
        ]
        return " ".join([*front.split(), *axes])


def farthest(spec: Attention) -> int:
    """Return the last position at which ``spec`` changes: by a window, a block, a prefix, or buckets of distances.

    Of temperatures, which change again and again, the first place counts at which they differ from 1.
    """
    position = (getattr(spec.position, name, None) for name in ("max_distance", "most"))
    masks = (n for n in (*spec.sides, spec.block, spec.prefix, *position) if n is not None)
    return max(least_tokens_of_temperatures(spec), *masks, 0)


def measured(graph: Graph, spec: Attention, slots: tuple[GraphSlot, ...]) -> MeasuredSizes:
    """Return the sizes from the shapes of a graph's inputs and weights. Raises ``InputError`` if they contradict."""
    by_part = {part: s for s in slots for part in s.parts}
    measured_sizes = (
        _of_tokens(graph, spec, by_part) if "x" in by_part else _of_heads(graph, spec, by_part)
    )
    # raise ``InputError`` for arrays that would be too large: of scores, tokens, or weights
    known_lengths = ((n for n in g.shape if isinstance(n, int)) for g in graph.weights)
    of_weights = sum(map(math.prod, known_lengths))
    for s in measured_sizes.tried(spec):
        most = max(of_weights, _count_entries(spec, s))
        if most > _ENTRIES:
            raise InputError(
                f"{graph.name}: at {s} there are {most} entries; at most {_ENTRIES} are run"
            )
    return measured_sizes


def _count_entries(spec: Attention, s: Sizes) -> int:
    """Return the entries of the larger of the scores, and of the tokens with what is projected from them."""
    many = math.prod(s.batch) * spec.heads
    return max(many * s.n_q * s.n_k, many * (s.n_q + s.n_k) * (s.d_k + s.d_v + s.d_model))


def _of_tokens(graph: Graph, spec: Attention, by_part: Mapping[str, GraphSlot]) -> MeasuredSizes:
    x = by_part["x"].given.shape
    if len(x) < 2 or not isinstance(x[-1], int):
        raise InputError(
            f"{graph.name}: the tokens have the shape {x}; (…, n, a number of columns) is expected"
        )
    widths = []  # columns of a head of queries, and of values
    for slot in (by_part["w_q"], by_part["w_v"]):
        out, named = (
            slot.given.shape[0 if slot.transposed else -1],
            slot.given.label or slot.given.name,
        )
        # The columns of a merged weight are the heads of all its parts.
        together = sum(spec.heads_of[part[-1]] for part in slot.parts)
        if not isinstance(out, int) or out % together:
            raise InputError(f"{graph.name}: {named} has {out} columns for {together} heads")
        widths.append(out // together)
    return MeasuredSizes(x[:-2], x[-2], x[-2], x[-1], *widths)


def _of_heads(graph: Graph, spec: Attention, by_part: Mapping[str, GraphSlot]) -> MeasuredSizes:
    q, k, v = (by_part[name].given.shape for name in "qkv")
    # Axes of one item: tokens, columns, and heads unless they are side by side.
    merged = by_part["q"].merged
    own = 2 + (spec.heads > 1 and not merged)
    widths = [s[-1] for s in (q, k, v)]
    if not all(isinstance(w, int) for w in widths) or len(q) < own:
        raise InputError(
            f"{graph.name}: q, k, v have the shapes {q}, {k}, {v}; numbers of columns must be known"
        )
    if own == 3 and (q[-3], k[-3]) != (spec.heads, spec.key_heads):
        raise InputError(
            f"{graph.name} has {q[-3]} and {k[-3]} heads; hint: --heads {q[-3]} --kv-heads {k[-3]}"
        )
    d_k, d_v = (
        int(w) // (h if merged else 1)
        for w, h in ((widths[0], spec.heads), (widths[2], spec.key_heads))
    )
    batch = q[: len(q) - own]
    return MeasuredSizes(batch, q[-2], k[-2], d_k, d_k, d_v)


# -- the program: the graph as a function of a specification's inputs, on any kind of array ----------------------------
@dataclass(frozen=True)
class GraphProgram:
    """A graph as a ``Program``: the matching of its arrays with the inputs of ``spec``, and its sizes."""

    graph: Graph
    spec: Attention
    slots: tuple[GraphSlot, ...]
    sizes: MeasuredSizes
    output: int = 0  # the output that is judged

    @classmethod
    def of(
        cls, graph: Graph, spec: Attention, words: Mapping[str, str] | None = None
    ) -> GraphProgram:
        """Match a graph with a specification. Raises ``InputError`` for an unsupported operator or an unclear array."""
        check_operators(graph)
        slots = bind(graph, spec, words)
        return cls(graph, spec, slots, measured(graph, spec, slots))

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs of the specification, tokens first."""
        result = dict.fromkeys(part for s in self.slots for part in s.parts)
        first = [n for n in ("x", "q", "k", "v") if n in result]
        return tuple(dict.fromkeys((*first, *result)))

    @property
    def convention(self) -> Convention:
        """The call: each array by its name, in float64."""
        return Convention(
            tuple(Argument(s.given.label or s.given.name, p) for s in self.slots for p in s.parts)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """No notes."""
        return ()

    def close(self) -> None:
        """Do nothing: a graph has no state."""

    def describe(self) -> str:
        """Return the name of the graph, with the inputs matched to its arrays."""
        return f"{self.graph.name}({self.convention.printed})"

    def on(self, kind: type[Planes] | None) -> Callable[[Mapping[str, Value]], Value]:
        """Return the program itself: it runs on every kind of array."""
        return self

    def run(self, inputs: Inputs, memory: Memory = "contiguous") -> Outcome:
        """Run the graph in float64, by the definitions of its operators."""
        with np.errstate(all="ignore"):
            output = np.asarray(self(inputs), dtype=np.float64)
        return Outcome(output, "float64", output.shape)

    def __call__(self, inputs: Mapping[str, Value]) -> Value:
        """Return the output that is judged, on the kind of array of the inputs."""
        like = inputs[self.names[0]]
        arrays = bound(self.slots, Context(like), inputs)
        result = run(self.graph, arrays, like)[self.output]
        merged = any(s.merged for s in self.slots if "q" in s.parts)
        # further outputs are gradients by k and v
        heads = self.spec.key_heads if self.output else self.spec.heads
        return split_heads(result, heads) if merged else result
