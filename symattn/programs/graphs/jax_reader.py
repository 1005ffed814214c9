"""Read jaxprs of JAX into the common form, with calls inlined and scans of a fixed length unrolled.

A function is traced, never run. Array arguments are inputs, by the names of its parameters; arrays within an argument
(the tree of parameters of flax, a module of equinox) are weights, by their path.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from symattn.arrays.planes import Planes
from symattn.document.errors import InputError
from symattn.document.keywords import UPSTREAM
from symattn.programs.frameworks import import_jax
from symattn.programs.graphs import running
from symattn.programs.graphs.jax_table import JAX
from symattn.programs.graphs.running import MOST_NODES, Graph, GraphArray, GraphNode, Ref
from symattn.programs.graphs.values import Value, as_int64, type_name
from symattn.programs.hosts import flat
from symattn.programs.names import PLACED, Function, meaning, parameters
from symattn.programs.refusing import one_line

if TYPE_CHECKING:
    from jax.core import ShapedArray
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var

#: Parameters in which the equation of a call may have its jaxpr.
_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
#: Primitives that only call a jaxpr: rules for derivatives and checkpoints change no value.
_CALLS = frozenset(("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"))
_CALLS |= {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
#: Options for how and where a result is computed, not what it is.
_PLACED = {
    "accuracy",
    "precision",
    "out_dtype",
    "preferred_element_type",
    "sharding",
    "out_sharding",
    "weak_type",
}
# of gathers, which must stay within bounds
_PLACED |= {"unique_indices", "indices_are_sorted", "mode", "fill_value"}
#: The syntax of lengths that are sums of products of sizes, and their longest text.
_SUMS = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.USub,
)
# A longer text is refused, so that the syntax tree of a length stays small.
_MOST = 200
_LONGEST = 256  # most iterations of an unrolled scan
#: Orders of axes that a caller may name: batch, heads, tokens, columns.
Axes = Literal["nd", "bnd", "hnd", "nhd", "bhnd", "bnhd"]
_SPECIFIED = "bhnd"  # the order of axes in a specification


def traced(
    function: Function,
    *args: object,
    layout: Axes | None = None,
    name: str = "",
    **keywords: object,
) -> Graph:
    """Return the graph of ``function(*args, **keywords)``, whose first output, or whose gradients, are to be judged.

    Arrays, and ``jax.ShapeDtypeStruct`` with the sizes of ``jax.export.symbolic_shape``, are arguments to trace;
    anything else is passed as it is. ``layout`` is the order of the axes of queries, keys and values: ``bnhd`` for
    ``jax.nn.dot_product_attention``, ``hnd`` for a kernel without batches; by default that of the specification. A
    module of equinox is a function with its own weights.
    Raises ``InputError`` for a function that cannot be traced and for a layout that is unknown or that the shapes do
    not have, ``MissingExtra`` if jax is not installed.
    """
    if layout is not None and layout not in get_args(Axes):
        raise InputError(f"layout is {layout!r}; known: {', '.join(get_args(Axes))}")
    jax = import_jax()
    label = name or getattr(function, "__name__", type(function).__name__)
    # Flattened with the function itself, so that the arrays of a module are its weights.
    flat, tree = jax.tree_util.tree_flatten_with_path((function, args, keywords))
    traceable = [hasattr(leaf, "shape") and hasattr(leaf, "dtype") for _, leaf in flat]
    own = [known for known, is_array in zip(flat, traceable, strict=True) if is_array]

    def called(*arrays: object) -> Value:
        rest = iter(arrays)
        leaves = [
            next(rest) if is_array else leaf
            for (_, leaf), is_array in zip(flat, traceable, strict=True)
        ]
        own_function, places, keywords = jax.tree_util.tree_unflatten(tree, leaves)
        return own_function(*places, **keywords)

    closed = _jaxpr(label, called, [leaf for _, leaf in own])
    names = [_name_array_of_tree(path, function, len(args)) for path, _ in own]
    return of_jaxpr(closed, label, names, layout)


def on_kind(
    function: Function, kind: type[Planes], graphs: dict[str, Graph] | None = None
) -> Function:
    """Return ``function`` of JAX for arrays of ``kind``; see ``running.on_kind``.

    Raises ``InputError`` if the function cannot be traced, or a primitive is not supported.
    """
    jax, label = import_jax(), getattr(function, "__name__", type(function).__name__)

    # Shapes are enough to trace a function, in float32.
    def export(of_arrays: Function, shapes: Sequence[tuple[int, ...]]) -> Graph:
        closed = _jaxpr(
            label, of_arrays, [jax.ShapeDtypeStruct(shape, jax.numpy.float32) for shape in shapes]
        )
        arguments = [(f"argument {i}", False) for i in range(len(shapes))]
        return of_jaxpr(closed, label, arguments)

    return running.on_kind(function, kind, export, graphs=graphs)


def _jaxpr(label: str, function: Function, arrays: Sequence[object]) -> ClosedJaxpr:
    """Return the jaxpr. Raises ``InputError`` with JAX's message if the function cannot be traced."""
    try:
        return import_jax().make_jaxpr(function)(*arrays)
    except Exception as error:  # a user's function may raise anything
        hint = ""
        if "Tracer" in type(error).__name__ or "Concretization" in type(error).__name__:
            hint = "; hint: jnp.where or a static argument in place of control flow that depends on data"
        raise InputError(f"{label} cannot be traced: {one_line(error)}{hint}") from error


def _name_array_of_tree(path: Sequence[Value], function: Function, places: int) -> tuple[str, bool]:
    """Return the name of an array, and whether it is a weight, that is, within a tree."""
    # A path starts with 0 for the function, 1 for its positional arguments, 2 for its keywords.
    which, *inner = path
    deeper = inner if which.idx == 0 else inner[1:]
    if which.idx == 0 or deeper:
        return str(import_jax().tree_util.keystr(tuple(deeper), simple=True, separator=".")), True
    if which.idx == 2:
        return str(inner[0].key), False
    named = [p.name for p in parameters(function) or () if p.kind in PLACED]
    # Variadic arguments have no names, so their places serve as names.
    return [*named, *(str(n) for n in range(len(named), places))][inner[0].idx], False


def of_jaxpr(
    closed: ClosedJaxpr,
    name: str = "the function",
    names: Sequence[tuple[str, bool]] | None = None,
    layout: Axes | None = None,
) -> Graph:
    """Return the graph of a ``ClosedJaxpr``; ``names`` are those of its arguments, each with whether it is a weight.

    By default they are the names that JAX recorded. Constants that a function captures keep their values.
    """
    if names is None:
        outcome = closed.jaxpr.debug_info.arg_names or ()
        # JAX may record fewer names than arguments; the rest are numbered.
        names = [
            _of_debug(word, at)
            for at, word in enumerate([*outcome, *[None] * len(closed.jaxpr.invars)])
        ]
    if layout is not None:
        _check_layout(
            name,
            layout,
            {
                called: var.aval.shape
                for var, (called, _) in zip(closed.jaxpr.invars, names, strict=False)
            },
        )
    reader = _JaxprReader(name)
    values = [
        reader.given(var.aval, *called, layout)
        for var, called in zip(closed.jaxpr.invars, names, strict=False)
    ]
    reader.open_sizes()
    result = reader.inlined(closed, values)
    outputs = [
        reader.returned(x, var.aval, layout)
        for x, var in zip(result, closed.jaxpr.outvars, strict=True)
    ]
    return reader.graph(outputs)


def _check_layout(name: str, layout: Axes, shapes: Mapping[str, Sequence[object]]) -> None:
    """Raise ``InputError`` unless queries, keys and values have the axes of a layout, of lengths that fit.

    Equal are b of all three, d of queries and keys, n and h of keys and values.
    """
    heads = {
        what: shape
        for called, shape in shapes.items()
        if (what := meaning(called)) in ("q", "k", "v")
    }
    for what, shape in heads.items():
        if len(shape) != len(layout):
            raise InputError(
                f"{name}: {what} has {len(shape)} axes, and the layout {layout} names {len(layout)}"
            )
    for axis, one, other in (
        ("b", "q", "k"),
        ("b", "q", "v"),
        ("d", "q", "k"),
        ("n", "k", "v"),
        ("h", "k", "v"),
    ):
        if axis not in layout or not {one, other} <= heads.keys():
            continue
        place_of_axis = layout.index(axis)
        a, b = (heads[n][place_of_axis] for n in (one, other))
        # Open lengths are expressions of JAX, compared as text.
        if str(a) != str(b):
            raise InputError(
                f"{name}: in the layout {layout} {one} has {axis} = {a}, and {other} {axis} = {b}"
            )


def _of_debug(word: str | None, at: int) -> tuple[str, bool]:
    """Return the weight ``a.kernel`` for ``params['a']['kernel']``, and an input for a bare name."""
    bare, sign, path = (word or str(at)).partition("[")
    return (
        (path.replace("']['", ".").replace("][", ".").strip("'[]"), True) if sign else (bare, False)
    )


def _fixed_and_carried(scan: Mapping[str, Value]) -> tuple[int, int]:
    """Return how many operands of a scan are the same in every turn, and how many go from turn to turn."""
    if "ft_in" not in scan:
        return scan["num_consts"], scan["num_carry"]
    fixed, carried, _ = scan["ft_in"].unpack()  # from JAX 0.11 on
    return len(fixed), len(carried)


def _permutation_of_layout(layout: Axes | None, axes: int) -> list[int] | None:
    """Return the exchange of two axes that takes a layout to the specification's order, and back; None for none."""
    if layout is None or len(layout) != axes:
        return None
    result = [layout.index(axis) for axis in _SPECIFIED if axis in layout]
    return result if result != sorted(result) else None


def _is_without_batch(layout: Axes | None, axes: int) -> bool:
    """Return whether arrays have an axis of heads alone, to which one of a single item is added."""
    return layout is not None and "h" in layout and "b" not in layout and axes == len(layout)


class _JaxprReader:
    """A reader of jaxprs, which adds node after node to a graph."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._inputs: list[GraphArray] = []
        self._weights: list[GraphArray] = []
        self._constants: dict[str, Value] = {}
        self._nodes: list[GraphNode] = []
        self._place: Callable[[], str] = str
        self._sizes: dict[str, Ref] = {}
        self._maxima: set[Ref] = set()
        self._count = 0
        self._kernel = False  # whether a kernel of Pallas is read, in whose memory NaN is what was never written

    def graph(self, outputs: Iterable[object]) -> Graph:
        """Return the graph that was read, without the nodes that no output needs."""
        remaining = tuple(x.name if isinstance(x, Ref) else self.constant(x).name for x in outputs)
        # the nodes that the outputs depend on, without those that only serve derivatives
        wanted, needed_nodes = set(remaining), []
        for node in reversed(self._nodes):
            if wanted.intersection(node.outputs):
                wanted.update(r.name for r in node.refs())
                needed_nodes.append(node)
        nodes = tuple(reversed(needed_nodes))
        return Graph(
            JAX,
            self.name,
            tuple(self._inputs),
            tuple(self._weights),
            self._constants,
            nodes,
            remaining,
        )

    def add(
        self,
        operator: str,
        operands: Sequence[object],
        count: int = 1,
        types: Sequence[str] = (),
        **keywords: object,
    ) -> list[Ref]:
        """Add a node, and return its outputs."""
        # A scan of many steps would fill the memory.
        if len(self._nodes) >= MOST_NODES:
            raise InputError(
                f"{self.name} has more than {MOST_NODES} nodes when scans are unrolled"
            )
        result = [Ref(self._make_fresh_jaxpr_name()) for _ in range(count)]
        node = GraphNode(
            operator,
            tuple(operands),
            tuple(r.name for r in result),
            keywords,
            tuple(types),
            self._place,
        )
        self._nodes.append(node)
        return result

    def constant(self, value: object) -> Ref:
        """Add a constant: floats of any format as float64, whole numbers as int64."""
        values = np.asarray(value)
        result = type_name(values.dtype)
        values = values.astype(np.float64) if result == "float" else values
        values = as_int64(values) if result.startswith(("int", "uint")) else values
        ref = Ref(self._make_fresh_jaxpr_name())
        self._constants[ref.name] = values
        return ref

    def _make_fresh_jaxpr_name(self) -> str:
        self._count += 1
        return f"%{self._count}"

    # -- inputs and outputs --------------------------------------------------------------------------------------------
    def given(self, aval: ShapedArray, called: str, weight: bool, layout: Axes | None) -> Ref:
        """Add an argument, and the nodes that convert it from the specification's order of axes to the function's."""
        shape = tuple(int(n) if isinstance(n, (int, np.integer)) else str(n) for n in aval.shape)
        floats = _target_of_jax_cast(aval.dtype) == "float"
        # Two leaves may have one name, and values of a graph need names of their own.
        unique = (
            called
            if called not in self._list_taken_names
            else f"{called} {len(self._list_taken_names)}"
        )
        if weight:
            known = tuple(n for n in shape if isinstance(n, int))
            side = flat(called, known) if len(known) == len(shape) else shape
            self._weights.append(GraphArray(unique, side, floats, called))
            return (
                Ref(unique)
                if side == shape
                else self.add("reshape", [Ref(unique)], new_sizes=list(shape))[0]
            )
        # Only queries, keys, values and dO are in the caller's order of axes.
        of_heads = (
            meaning(called) in ("q", "k", "v") or called == "do" or called in UPSTREAM.split()
        )
        moved = _permutation_of_layout(layout, len(shape)) if of_heads else None
        specified = tuple(shape[k] for k in moved) if moved else shape
        single = of_heads and _is_without_batch(layout, len(shape))
        self._inputs.append(GraphArray(unique, (1, *specified) if single else specified, floats))
        x = Ref(unique)
        x = self.add("reshape", [x], new_sizes=list(specified))[0] if single else x
        return self._add_transpose_node(x, moved) if moved else x

    @property
    def _list_taken_names(self) -> list[str]:
        return [g.name for g in (*self._inputs, *self._weights)]

    def _add_transpose_node(self, x: Ref, permutation: list[int]) -> Ref:
        return self.add("transpose", [x], permutation=permutation)[0]

    def returned(self, x: Value, aval: ShapedArray, layout: Axes | None) -> Value:
        """Return an output in the specification's order of axes."""
        moved = _permutation_of_layout(layout, len(aval.shape))
        # Constants need no order of axes.
        if not isinstance(x, Ref):
            return x
        x = self._add_transpose_node(x, moved) if moved else x
        # Functions without a batch get an axis of one item.
        if not _is_without_batch(layout, len(aval.shape)):
            return x
        shape = [int(n) if isinstance(n, (int, np.integer)) else str(n) for n in aval.shape]
        return self.add(
            "reshape", [x], new_sizes=[1, *(shape[k] for k in moved or range(len(shape)))]
        )[0]

    def open_sizes(self) -> None:
        """Add a node for each open length, from the first input or weight that has it."""
        for g in (*self._inputs, *self._weights):
            for axis, n in enumerate(g.shape):
                # A sum such as n + 1 is computed from its letters, so only letters are looked for.
                if isinstance(n, str) and n.isidentifier() and n not in self._sizes:
                    self._sizes[n] = self.add("size", [Ref(g.name), axis])[0]

    # -- equations -----------------------------------------------------------------------------------------------------
    def inlined(self, closed: ClosedJaxpr | Jaxpr, values: Sequence[Value]) -> list[Value]:
        """Add the equations of a jaxpr for these arguments, and return its outputs."""
        jaxpr = getattr(closed, "jaxpr", closed)
        entries = [self.constant(x) for x in getattr(closed, "consts", ())]
        variables = (*jaxpr.constvars, *jaxpr.invars)
        env = dict(zip(variables, (*entries, *values), strict=True))
        for equation in jaxpr.eqns:
            operands = [self._read_jaxpr_operand(env, v) for v in equation.invars]
            # Looked up for messages only, since the look-up walks a traceback.
            self._place = partial(_place_of, equation)
            results = self._read_jaxpr_equation(equation, operands)
            env.update(zip(equation.outvars, results, strict=True))
        return [self._read_jaxpr_operand(env, v) for v in jaxpr.outvars]

    def _read_jaxpr_operand(self, env: Mapping[Var, object], v: Value) -> Value:
        if not hasattr(v, "val"):
            return env[v]
        # Kernels begin with NaN in memory that they have not written.
        is_nan = (
            self._kernel
            and _target_of_jax_cast(v.aval.dtype) == "float"
            and np.isnan(np.asarray(v.val, np.float64)).all()
        )
        return self.add("undefined", [])[0] if is_nan else self.constant(v.val)

    def _read_jaxpr_equation(self, equation: JaxprEqn, operands: list[Value]) -> Sequence[Value]:
        name, outcome = equation.primitive.name, equation.params
        if name == "scan":
            return self._unroll_scan(outcome, operands)
        # Moving an array to a device computes nothing.
        if name == "device_put":
            return operands
        if name == "pallas_call":
            return self._inline_pallas_kernel(equation, operands)
        if name in ("while", "cond"):
            return self._add_loop_or_choice(equation, operands)
        if name == "custom_linear_solve":
            return self._inline_linear_solver(outcome, operands)
        inner = (
            next((outcome[k] for k in _CALLED if k in outcome), None) if name in _CALLS else None
        )
        if inner is not None:
            return self.inlined(inner, operands)
        types = [type_name(getattr(v.aval, "dtype", "")) for v in equation.outvars]
        # Derivatives of a maximum compare with it, which residues answer by letters.
        name = "eq.max" if name == "eq" and self._maxima.intersection(operands) else name
        inputs = {
            k: self._convert_equation_parameter(v) for k, v in outcome.items() if k not in _PLACED
        }
        result = self.add(name, operands, len(types), types, **inputs)
        # A reshaped or broadcast maximum is still a maximum.
        if name == "reduce_max" or (
            name in ("reshape", "broadcast_in_dim") and operands[0] in self._maxima
        ):
            self._maxima.update(result)
        return result

    def _inline_linear_solver(
        self, parameters: Mapping[str, Value], operands: list[Value]
    ) -> list[Value]:
        """Add the solver of a system of equations, which JAX runs; the other parts are for its derivatives."""
        # Operands: the constants of the solver's four parts in this order, then the right sides.
        lengths = parameters["const_lengths"]
        before = lengths.matvec + lengths.vecmat
        own = operands[before : before + lengths.solve]
        right_sides = operands[before + lengths.solve + lengths.transpose_solve :]
        return self.inlined(parameters["jaxprs"].solve, [*own, *right_sides])

    def _convert_equation_parameter(self, x: object) -> Value:
        """Return a parameter of an equation as plain values; an open length as the node that computes it."""
        if hasattr(x, "_asdict"):
            return {k: self._convert_equation_parameter(v) for k, v in x._asdict().items()}
        if isinstance(x, (list, tuple)):
            return [self._convert_equation_parameter(part) for part in x]
        if isinstance(x, np.dtype) or (isinstance(x, type) and issubclass(x, np.generic)):
            return _target_of_jax_cast(np.dtype(x))
        # Before whole numbers, since True is one of them in Python.
        if isinstance(x, (bool, str, float, type(None))):
            return x
        if isinstance(x, (int, np.integer)):
            return int(x)
        return self._add_symbolic_length(str(x)) if type(x).__name__ == "_DimExpr" else str(x)

    def _add_symbolic_length(self, text: str) -> Ref:
        """Add a length as JAX prints it, ``2*n^2 - 1``. Raises ``InputError`` for quotients, and unknown letters."""
        refusal = InputError(
            f"the length {text[:60]} is not read; hint: sums and products of sizes that inputs have"
        )
        if len(text) > _MOST:
            raise refusal
        # Powers become products, so that the accepted syntax needs no powers.
        product = re.sub(
            r"(\w+)\^(\d{1,2})\b", lambda power: "*".join([power[1]] * int(power[2])), text
        )
        # The code is evaluated later, so only arithmetic of known letters may pass.
        tree = ast.parse(product, mode="eval")
        known = all(
            isinstance(part, _SUMS) and getattr(part, "id", "n") in self._sizes
            for part in ast.walk(tree)
        )
        if not known:
            raise refusal
        return self.add(
            "length",
            [list(self._sizes), list(self._sizes.values())],
            code=compile(tree, text, "eval"),
        )[0]

    def _unroll_scan(self, results: Mapping[str, Value], operands: list[Value]) -> list[Value]:
        """Unroll a scan. Raises ``InputError`` if the number of iterations is open or large."""
        count, (consts, carries) = results["length"], _fixed_and_carried(results)
        if not isinstance(count, int) or count > _LONGEST:
            raise InputError(
                f"{self.name}: a scan of {count} turns is not read; at most {_LONGEST}, a fixed number"
            )
        fixed, carry, rows = (
            operands[:consts],
            operands[consts : consts + carries],
            operands[consts + carries :],
        )
        # Without a turn there is no row whose shape a stack could have.
        if not count and len(results["jaxpr"].jaxpr.outvars) > carries:
            raise InputError(f"{self.name}: rows of a scan of 0 turns are not read")
        turns = range(count)[::-1] if results["reverse"] else range(count)
        stacked: list[list[Value]] = []
        for turn in turns:
            row = [self.add("scan.row", [x, turn])[0] for x in rows]
            result = self.inlined(results["jaxpr"], [*fixed, *carry, *row])
            carry = result[:carries]
            stacked.append(result[carries:])
        # Rows are in the order of the operand, whichever way the scan runs.
        stacked = stacked[::-1] if results["reverse"] else stacked
        return [
            *carry,
            *(self.add("scan.rows", [list(parts)])[0] for parts in zip(*stacked, strict=True)),
        ]

    def _add_loop_or_choice(self, equation: JaxprEqn, operands: list[Value]) -> list[Ref]:
        """Add a loop or a choice, with graphs of its parts: its condition is known when they run."""
        outcome = equation.params
        types = [type_name(v.aval.dtype) for v in equation.outvars]
        # Both branches are read, since the condition is known only in a run.
        if equation.primitive.name == "cond":
            inner: Mapping[str, Value] = {
                "branches": [self._make_subgraph_of_jaxpr(branch) for branch in outcome["branches"]]
            }
        else:
            inner = {
                part: self._make_subgraph_of_jaxpr(outcome[f"{part}_jaxpr"])
                for part in ("cond", "body")
            }
            inner |= {"constants": [outcome[f"{part}_nconsts"] for part in ("cond", "body")]}
        return self.add(equation.primitive.name, operands, len(types), types, **inner)

    def _make_subgraph_of_jaxpr(self, closed: ClosedJaxpr) -> Graph:
        """Return a graph of its own, whose inputs are numbered."""
        reader = _JaxprReader(self.name)
        reader._kernel = self._kernel
        # A number means no input of attention, so no axes are moved.
        values = [
            reader.given(v.aval, str(at), False, "bhnd") for at, v in enumerate(closed.jaxpr.invars)
        ]
        return reader.graph(reader.inlined(closed, values))

    def _inline_pallas_kernel(self, equation: JaxprEqn, operands: list[Value]) -> list[Value]:
        """Inline a kernel of Pallas as JAX interprets it: a loop over the grid, with slices for its references.

        Raises ``InputError`` with JAX's message for what JAX does not interpret.
        """
        from jax._src.pallas.hlo_interpreter import pallas_call_hlo_interpret

        # The interpreter takes all options but this one.
        options = {k: v for k, v in equation.params.items() if k != "interpret"}
        avals = [import_jax().ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
        closed = _jaxpr(
            f"the kernel {options['name']}", partial(pallas_call_hlo_interpret, **options), avals
        )
        # Inside the kernel NaN means memory that is not yet written.
        outside, self._kernel = self._kernel, True
        result = self.inlined(closed, operands)
        self._kernel = outside
        return result


def _target_of_jax_cast(dtype: object) -> str:
    """Return the target of a cast; the node has the range of whole numbers."""
    result = type_name(dtype)
    return "int" if result.startswith(("int", "uint")) else result


def _place_of(equation: JaxprEqn) -> str:
    """Return ``file.py:line`` of the user's code that an equation comes from, or ""."""
    from jax._src import source_info_util

    frame = source_info_util.user_frame(equation.source_info.traceback)
    return f"{Path(frame.file_name).name}:{frame.start_line}" if frame else ""
