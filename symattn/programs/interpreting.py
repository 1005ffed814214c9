"""Programs of JAX that are not compiled yet, run by NumPy: the same operations in the same formats.

XLA compiles each operation anew for each shape, some 40 ms each, while a verification calls a function at more than a
hundred shapes. JAX calls, traces and caches the user's function as always; ``interpreting`` changes only what happens
where a traced program would be compiled. So code that depends on sizes or on numbers runs as it stands. Results differ
from XLA's by the rounding of sums, products and exponentials: both are legal, and whoever judges them asks XLA itself
where NumPy's are wrong.

What NumPy does not compute as JAX says (half precision, indices outside of an array, casts of large numbers, callbacks)
is compiled, and so is everything on another device than a CPU, with options of XLA, and in versions of JAX whose
function is another one.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial, reduce
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

Array = np.ndarray
#: The module of JAX that compiles every program, and the name of its function, which returns the outputs first.
COMPILER, _COMPILES = "jax._src.pjit", "_pjit_call_impl_python"
# In longer loops, which compiled code runs far faster, NumPy stops.
_MOST_EQUATIONS = 50_000
FORMATS = ("float32", "float64")  # in half precision, XLA rounds in places of its own choice


class NotInterpreted(Exception):
    """Raised for a program that NumPy does not run as JAX says, so that it has to be compiled."""


class _OfThread(threading.local):
    """The list of the programs that NumPy has run in this thread, None outside of ``interpreting``; the number of
    equations of the present one so far; and whether open loops are refused that NumPy does not run to their end."""

    ran: list[bool] | None = None
    equations: int = 0
    refuses_open_loops: bool = False


_of_thread = _OfThread()
_lock = threading.Lock()
_replaced: list[Callable[..., Any]] = []  # JAX's own function, once for each context that is open


@contextmanager
def interpreting() -> Iterator[list[bool]]:
    """Run programs of JAX that are not compiled yet by NumPy; yield a list with an entry for each that was so run.

    This holds for calls in the same thread. Nothing changes if JAX is not imported, or is of a version in which its
    function has another name, other arguments or another result.
    """
    ran: list[bool] = []
    compiler = sys.modules.get(COMPILER)
    if compiler is None or not _is_replaceable(compiler):
        yield ran
        return
    with _replacing(compiler, ran):
        yield ran


@contextmanager
def refusing_open_loops() -> Iterator[None]:
    """Raise ``EndlessLoop`` within ``interpreting`` where XLA would run a loop whose end its numbers decide.

    Nothing stops an endless loop in a compiled program.
    """
    before, _of_thread.refuses_open_loops = _of_thread.refuses_open_loops, True
    try:
        yield
    finally:
        _of_thread.refuses_open_loops = before


def _has_open_loop(jaxpr: Any) -> bool:
    """Return whether a jaxpr, or one among the parameters of its equations, has a loop without a count."""
    open_jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in open_jaxpr.eqns:
        if equation.primitive.name == "while":
            return True
        for parameter in equation.params.values():
            several = parameter if isinstance(parameter, (tuple, list)) else (parameter,)
            inner = [x for x in several if hasattr(getattr(x, "jaxpr", x), "eqns")]
            if any(map(_has_open_loop, inner)):
                return True
    return False


def _is_replaceable(compiler: ModuleType) -> bool:
    """Return whether JAX calls its function, and takes its result, as this module does."""
    with _lock:
        compiled = _replaced[0] if _replaced else getattr(compiler, _COMPILES, None)
    return compiled is not None and _is_understood(compiler, compiled)


@cache
def _is_understood(compiler: ModuleType, compiled: Callable[..., Any]) -> bool:
    """Return whether JAX computes a sum when NumPy runs its program."""
    import jax

    ran: list[bool] = []
    try:
        with _replacing(compiler, ran):
            total = jax.jit(lambda x: x + x)(np.ones(2, np.float32))
        return ran == [True] and np.array_equal(total, np.full(2, 2.0))
    except Exception:
        # Other versions of JAX may raise anything.
        return False


@contextmanager
def _replacing(compiler: ModuleType, ran: list[bool]) -> Iterator[None]:
    """Put another function in the place of JAX's own, until the last such context ends."""
    with _lock:
        compiled = _replaced[0] if _replaced else getattr(compiler, _COMPILES)
        _replaced.append(compiled)
        setattr(compiler, _COMPILES, _instead_of(compiled))
    before, _of_thread.ran = _of_thread.ran, ran
    try:
        yield
    finally:
        _of_thread.ran = before
        with _lock:
            _replaced.pop()
            # Another thread may still interpret.
            if not _replaced:
                setattr(compiler, _COMPILES, compiled)


def _instead_of(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that has NumPy run what it can in threads that interpret, and calls JAX's own in others."""

    def run_or_compile(*args: Any, jaxpr: ClosedJaxpr, **options: Any) -> Any:
        ran = _of_thread.ran
        if ran is None:
            return compiled(*args, jaxpr=jaxpr, **options)
        try:
            outputs = _outputs_of_call(jaxpr, args, options)
        except Exception:
            if _of_thread.refuses_open_loops and _has_open_loop(jaxpr):
                # A call of a function that is not edited refuses no loop.
                from symattn.programs.repairing.source import EndlessLoop

                raise EndlessLoop("a loop that NumPy does not run to its end") from None
            # Whatever NumPy does not do, XLA does; an error of the user's function is raised elsewhere.
            return compiled(*args, jaxpr=jaxpr, **options)
        ran.append(True)
        # Without an executable JAX keeps nothing for this shape, so that a later call can compile it.
        return outputs, None, None, []

    return run_or_compile


def _outputs_of_call(
    jaxpr: ClosedJaxpr, args: Sequence[Any], options: Mapping[str, Any]
) -> list[Any]:
    """Return the outputs of a program as arrays of JAX."""
    import jax

    variables = [*jaxpr.jaxpr.invars, *jaxpr.jaxpr.outvars]
    # A program of numbers alone is the same at all sizes, and compiled once.
    if all(v.aval.shape == () for v in variables):
        raise NotInterpreted
    # JAX promotes weak types in another way: the count of a loop has one, and so has ``jnp.full(n, 0.0)``.
    weak = [v.aval.weak_type for v in jaxpr.jaxpr.outvars]
    # JAX does not return arrays that were donated.
    if any(options.get("donated_invars", ())):
        raise NotInterpreted
    # XLA's own options may change its numbers, and another device computes in its own way.
    if options.get("compiler_options_kvs", ()) or not _is_on_cpu(args):
        raise NotInterpreted
    # Then JAX raises where a compiled program returns NaN or infinities.
    if jax.config.jax_debug_nans or jax.config.jax_debug_infs:
        raise NotInterpreted
    outputs = evaluate(jaxpr, args)
    return [_as_weak_array(x) if w else _as_array(x) for x, w in zip(outputs, weak, strict=True)]


def _as_array(x: Array) -> Any:
    """Return an array of JAX; a copy, since JAX may keep the memory of what it is given."""
    import jax

    return jax.device_put(np.array(x, order="C"))


def _as_weak_array(x: Array) -> Any:
    """Return an array of JAX of a weak type. Raises ``NotInterpreted`` if there is none."""
    if not x.shape:
        return _as_weak_number(x)
    array = _as_array(x)
    # JAX has no public function for it: its own arrays are made of a type, a place and their parts.
    weak = type(array)(
        array.aval.update(weak_type=True), array.sharding, [array], committed=array.committed
    )
    if not weak.weak_type or weak.dtype != x.dtype:
        raise NotInterpreted
    return weak


def _as_weak_number(x: Array) -> Any:
    """Return an array of JAX that holds a number of a weak type. Raises ``NotInterpreted`` in other formats."""
    import jax.numpy as jnp

    number = jnp.asarray(x.item())
    # Of Python's numbers JAX makes its usual formats alone.
    if number.dtype != x.dtype or not number.weak_type:
        raise NotInterpreted
    return number


def _is_on_cpu(args: Sequence[Any]) -> bool:
    """Return whether JAX computes on one CPU, where plain arrays go and where all of JAX's arrays are."""
    import jax

    places = [x.devices() for x in args if isinstance(x, jax.Array)]
    is_one_cpu = all(len(p) == 1 and next(iter(p)).platform == "cpu" for p in places)
    return is_one_cpu and jax.default_backend() == "cpu"


def evaluate(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Array]:
    """Return the outputs of a jaxpr in the formats that it states. Raises ``NotInterpreted``."""
    with np.errstate(all="ignore"):
        return PreparedProgram(closed).run(args)


class PreparedProgram:
    """A jaxpr with its constants, to be run many times. Raises ``NotInterpreted``."""

    def __init__(self, closed: ClosedJaxpr) -> None:
        self._program = _program_of(closed.jaxpr)
        self._consts = [np.asarray(x) for x in closed.consts]

    def run(self, args: Sequence[Any]) -> list[Array]:
        """Return the outputs in the formats that the jaxpr states; NumPy's warnings are the caller's."""
        _of_thread.equations = 0
        return self._program.run((*self._consts, *args))


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Array]:
    return _program_of(jaxpr).run((*consts, *args))


def _program_of(jaxpr: Jaxpr) -> _Program:
    program = _programs.get(jaxpr)
    if program is None:
        program = _programs[jaxpr] = _Program(jaxpr)
    return program


class _Variable(NamedTuple):
    """A variable of a jaxpr: the place of its value among all of them, its format and its shape."""

    place: int
    dtype: np.dtype
    shape: tuple[int, ...]

    def check(self, value: Array) -> Array:
        """Return a value that has the format and the shape of the variable."""
        if value.dtype != self.dtype or value.shape != self.shape:
            raise NotInterpreted
        return value


class _Step(NamedTuple):
    """An equation of a jaxpr, with the name of its rule and the places of its arguments."""

    name: str
    equation: JaxprEqn
    arguments: tuple[int, ...]
    results: tuple[_Variable, ...]


class _Program:
    """A jaxpr whose equations are looked up once: edited functions and loops run the same ones many times."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        if jaxpr.effects:
            raise NotInterpreted
        self._literals: list[Array] = []
        self._count = 0  # of variables so far
        self._places: dict[Any, int] = {}
        literals = [x for e in jaxpr.eqns for x in e.invars if hasattr(x, "val")]
        literals += [x for x in jaxpr.outvars if hasattr(x, "val")]
        for literal in literals:
            # A literal may be shared, and has no hash.
            variable = self._add_variable(literal, id(literal))
            value = np.asarray(literal.val).astype(variable.dtype, copy=False)
            self._literals.append(variable.check(value))
        self._literals_kept_alive = literals
        variables = (*jaxpr.constvars, *jaxpr.invars)
        self._arguments = [self._add_variable(x, x) for x in variables]
        self._steps = [self._make_step(equation) for equation in jaxpr.eqns]
        self._outputs = [self._place_of(x) for x in jaxpr.outvars]

    def _add_variable(self, variable: Any, key: Any) -> _Variable:
        dtype = np.dtype(variable.aval.dtype)
        shape = tuple(variable.aval.shape)
        is_known = dtype.kind in "biu" or dtype.name in FORMATS
        if not is_known:
            raise NotInterpreted
        place = self._places[key] = self._count
        self._count += 1
        return _Variable(place, dtype, shape)

    def _place_of(self, atom: Any) -> int:
        # A literal is the only atom with a value of its own.
        return self._places[id(atom) if hasattr(atom, "val") else atom]

    def _make_step(self, equation: JaxprEqn) -> _Step:
        name = equation.primitive.name
        if name not in _RULES:
            raise NotInterpreted
        arguments = tuple(map(self._place_of, equation.invars))
        results = tuple(self._add_variable(x, x) for x in equation.outvars)
        return _Step(name, equation, arguments, results)

    def run(self, args: Sequence[Any]) -> list[Array]:
        """Return the outputs for the values of all constants and arguments."""
        _of_thread.equations += len(self._steps)
        if _of_thread.equations > _MOST_EQUATIONS:
            raise NotInterpreted
        values = [*self._literals]
        for variable, value in zip(self._arguments, args, strict=True):
            converted = np.asarray(value)
            if converted.dtype != variable.dtype:
                converted = converted.astype(variable.dtype)
            values.append(variable.check(converted))
        for name, equation, arguments, variables in self._steps:
            result = _RULES[name](equation, *[values[k] for k in arguments])
            if not isinstance(result, list):
                values.append(variables[0].check(np.asarray(result)))
                continue
            for variable, one in zip(variables, result, strict=True):
                values.append(variable.check(np.asarray(one)))
        return [values[k] for k in self._outputs]


#: The program of each jaxpr, as long as JAX keeps it.
_programs: WeakKeyDictionary[Jaxpr, _Program] = WeakKeyDictionary()


# -- rules: the values of an equation, from the equation and its arguments ----------------------------------------
Rule = Callable[..., "Array | list[Array]"]


#: The smallest normal number of each format.
_SMALLEST_NORMAL = {np.dtype(name): np.finfo(name).tiny for name in FORMATS}


def _flushed(x: Array) -> Array:
    """Return the numbers with ±0 in place of those below the normal range, as XLA computes on a CPU."""
    smallest = _SMALLEST_NORMAL.get(x.dtype)
    if smallest is None:
        return x
    is_tiny = np.abs(x) < smallest
    return np.where(is_tiny, np.copysign(x.dtype.type(0), x), x) if np.count_nonzero(is_tiny) else x


def _elementwise(function: Callable[..., Any]) -> Rule:
    return lambda equation, *args: _flushed(np.asarray(function(*map(_flushed, args))))


def _of_floats(function: Callable[..., Any]) -> Rule:
    """Return the rule of a function that NumPy computes in the format of its arguments, if these are floats."""

    def run(equation: JaxprEqn, *args: Array) -> Array:
        if any(x.dtype.kind != "f" for x in args):
            raise NotInterpreted  # division of integers, for example, truncates in JAX
        return _flushed(np.asarray(function(*map(_flushed, args))))

    return run


def _power(equation: JaxprEqn, x: Array) -> Array:
    """Return a power with a whole exponent, by products."""
    exponent = equation.params["y"]
    if x.dtype.kind != "f" or not 0 < abs(exponent) <= 8:
        raise NotInterpreted
    result: Array = reduce(operator.mul, [x] * abs(exponent))
    return result if exponent > 0 else np.reciprocal(result)


def _cast(equation: JaxprEqn, x: Array) -> Array:
    dtype = np.dtype(equation.params["new_dtype"])
    # NumPy and XLA differ in numbers that the new type does not have.
    if x.dtype.kind == "f" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not (np.isfinite(x).all() and (x > limits.min).all() and (x < limits.max).all()):
            raise NotInterpreted
    return x.astype(dtype)


def _select(equation: JaxprEqn, which: Array, *cases: Array) -> Array:
    if which.dtype != bool or len(cases) != 2:
        raise NotInterpreted
    return np.where(which, cases[1], cases[0])


def _round(equation: JaxprEqn, x: Array) -> Array:
    if int(equation.params["rounding_method"]) == 1:  # to even
        result: Array = np.rint(x)
        return result
    whole = np.trunc(x)
    return np.asarray(np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole))


def _divide(equation: JaxprEqn, x: Array, by: Array) -> Array:
    if x.dtype.kind == "f":
        return _flushed(np.divide(_flushed(x), _flushed(by)))
    _check_divisor(by)
    floors = x // by
    is_below = (x % by != 0) & ((x < 0) != (by < 0))
    # JAX cuts a quotient of whole numbers off.
    return np.asarray(np.where(is_below, floors + floors.dtype.type(1), floors))


def _remainder(equation: JaxprEqn, x: Array, by: Array) -> Array:
    if x.dtype.kind != "f":
        _check_divisor(by)
    return _flushed(np.asarray(np.fmod(_flushed(x), _flushed(by))))


def _check_divisor(by: Array) -> None:
    """Leave to XLA what is divided by 0, or may exceed whole numbers by −1."""
    if by.dtype.kind not in "iu" or ((by == 0) | (by + 1 == 0)).any():
        raise NotInterpreted


def _index_of_extreme(function: Callable[..., Array]) -> Rule:
    def run(equation: JaxprEqn, x: Array) -> Array:
        (axis,) = equation.params["axes"]
        return np.asarray(function(_flushed(x), axis)).astype(equation.params["index_dtype"])

    return run


def _reduction(function: Callable[..., Any]) -> Rule:
    def run(equation: JaxprEqn, x: Array) -> Array:
        result = np.asarray(function(_flushed(x), axis=tuple(equation.params["axes"])))
        return _flushed(result.astype(x.dtype, copy=False))

    return run


def _cumulative(function: Callable[..., Array]) -> Rule:
    def run(equation: JaxprEqn, x: Array) -> Array:
        axis = equation.params["axis"]
        turn = partial(np.flip, axis=axis) if equation.params["reverse"] else np.asarray
        return turn(function(turn(x), axis=axis)).astype(x.dtype, copy=False)

    return run


def _dot_general(equation: JaxprEqn, a: Array, b: Array) -> Array:
    (in_a, in_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    # An algorithm, such as products in bfloat16, is XLA's to follow; its plain precisions are all whole on a CPU.
    precision = equation.params["precision"]
    is_plain = precision is None or isinstance(precision, tuple)
    if a.dtype != b.dtype or a.dtype.kind != "f" or not is_plain:
        raise NotInterpreted
    free_a = [k for k in range(a.ndim) if k not in (*in_a, *batch_a)]
    free_b = [k for k in range(b.ndim) if k not in (*in_b, *batch_b)]
    batch = [a.shape[k] for k in batch_a]
    rows = [a.shape[k] for k in free_a]
    columns = [b.shape[k] for k in free_b]
    a = _flushed(a)
    b = _flushed(b)
    left = a.transpose(*batch_a, *free_a, *in_a).reshape(*batch, _product(rows), -1)
    right = b.transpose(*batch_b, *in_b, *free_b).reshape(*batch, -1, _product(columns))
    return _flushed(np.asarray(left @ right).reshape((*batch, *rows, *columns)))


def _product(numbers: Sequence[int]) -> int:
    return reduce(operator.mul, numbers, 1)


def _iota(equation: JaxprEqn) -> Array:
    shape = equation.params["shape"]
    along = equation.params["dimension"]
    row = np.arange(shape[along]).astype(equation.params["dtype"])
    lengths = [n if k == along else 1 for k, n in enumerate(shape)]
    return np.broadcast_to(row.reshape(lengths), shape)


def _broadcast_in_dim(equation: JaxprEqn, x: Array) -> Array:
    shape = equation.params["shape"]
    axes = equation.params["broadcast_dimensions"]
    lengths = [1] * len(shape)
    for axis, length in zip(axes, x.shape, strict=True):
        lengths[axis] = length
    return np.broadcast_to(x.reshape(lengths), shape)


def _reshape(equation: JaxprEqn, x: Array) -> Array:
    if equation.params.get("dimensions") is not None:
        raise NotInterpreted
    return x.reshape(equation.params["new_sizes"])


def _slice(equation: JaxprEqn, x: Array) -> Array:
    params = equation.params
    steps = params["strides"] or [1] * x.ndim
    cuts = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    return x[tuple(slice(*cut) for cut in cuts)]


def _clamped_starts(x: Array, starts: Sequence[Array], sizes: Sequence[int]) -> list[int]:
    """Return the starts of a slice, moved so that it lies within the array, as in JAX."""
    most = [n - size for n, size in zip(x.shape, sizes, strict=True)]
    return [min(max(int(start), 0), last) for start, last in zip(starts, most, strict=True)]


def _dynamic_slice(equation: JaxprEqn, x: Array, *starts: Array) -> Array:
    sizes = equation.params["slice_sizes"]
    first = _clamped_starts(x, starts, sizes)
    return x[tuple(slice(k, k + n) for k, n in zip(first, sizes, strict=True))]


def _dynamic_update_slice(equation: JaxprEqn, x: Array, new: Array, *starts: Array) -> Array:
    first = _clamped_starts(x, starts, new.shape)
    result = x.copy()
    result[tuple(slice(k, k + n) for k, n in zip(first, new.shape, strict=True))] = new
    return result


def _places_of_windows(
    shape: Sequence[int],
    starts: Array,
    axes: Sequence[int],
    dropped: Sequence[int],
    sizes: Sequence[int],
) -> tuple[Array, ...]:
    """Return the index of each entry of windows of an array, for each of its axes: (starts..., window...).

    ``starts`` has along its last axis the starts of a window on ``axes``; windows lack the axes that are ``dropped``.
    What lies outside of the array, where JAX clamps, drops or fills in, is left to XLA.
    """
    remaining = [k for k in range(len(shape)) if k not in dropped]
    places = []
    for k, (length, size) in enumerate(zip(shape, sizes, strict=True)):
        of_axis = [starts[..., j] for j, axis in enumerate(axes) if axis == k]
        start = of_axis[0].astype(np.int64) if of_axis else np.zeros(starts.shape[:-1], np.int64)
        if (start < 0).any() or (start > length - size).any():
            raise NotInterpreted
        along = [size if k == axis else 1 for axis in remaining]
        within = (
            np.arange(size).reshape(along)
            if k in remaining
            else np.zeros([1] * len(remaining), int)
        )
        places.append(start.reshape((*start.shape, *[1] * len(remaining))) + within)
    return tuple(places)


def _gather(equation: JaxprEqn, x: Array, starts: Array) -> Array:
    params = equation.params
    numbers = params["dimension_numbers"]
    sizes = params["slice_sizes"]
    batches = numbers.operand_batching_dims
    axes = (*numbers.start_index_map, *batches)
    dropped = (*numbers.collapsed_slice_dims, *batches)
    starts = _add_places_in_batches(starts, numbers.start_indices_batching_dims)
    windows = x[_places_of_windows(x.shape, starts, axes, dropped, sizes)]
    of_windows = range(starts.ndim - 1, windows.ndim)
    return np.moveaxis(windows, [*of_windows], numbers.offset_dims)


def _add_places_in_batches(starts: Array, axes: Sequence[int]) -> Array:
    """Return starts with the place of each one along axes of a batch behind it: an item is gathered from its own."""
    items = starts.shape[:-1]
    places = np.indices(items, starts.dtype)[[*axes]]
    return np.concatenate([starts, np.moveaxis(places, 0, -1)], axis=-1)


def _sort(equation: JaxprEqn, *arrays: Array) -> list[Array]:
    """Return arrays in the order of the first one, with NaN last; what vanishes in XLA is as large as 0."""
    params = equation.params
    first = arrays[0]
    # Only a stable order says which of equal numbers comes first.
    if params["num_keys"] != 1 or not params["is_stable"]:
        raise NotInterpreted
    axis = params["dimension"]
    keys = first if first.dtype.kind in "biu" else _flushed(first).astype(np.float64)
    order = np.argsort(keys, axis=axis, kind="stable")
    return [np.take_along_axis(x, order, axis) for x in arrays]


def _scatter(adds: bool) -> Rule:
    """Return the rule that writes windows into an array, or adds them to it."""

    def run(equation: JaxprEqn, x: Array, starts: Array, new: Array) -> Array:
        numbers = equation.params["dimension_numbers"]
        if numbers.operand_batching_dims or numbers.scatter_indices_batching_dims:
            raise NotInterpreted
        axes = numbers.scatter_dims_to_operand_dims
        dropped = numbers.inserted_window_dims
        of_windows = [*numbers.update_window_dims]
        lengths = iter([new.shape[k] for k in of_windows])
        sizes = [1 if k in dropped else next(lengths) for k in range(x.ndim)]
        places = _places_of_windows(x.shape, starts, axes, dropped, sizes)
        windows = np.moveaxis(new, of_windows, [*range(new.ndim - len(of_windows), new.ndim)])
        flat = np.ravel_multi_index(tuple(np.broadcast_arrays(*places)), x.shape)
        # Of two numbers for the same entry JAX may write either, and add them in any order.
        if len(np.unique(flat)) < flat.size:
            raise NotInterpreted
        result = _flushed(x).copy() if adds else x.copy()
        result[places] = _flushed(result[places] + _flushed(windows)) if adds else windows
        return result

    return run


def _pad(equation: JaxprEqn, x: Array, value: Array) -> Array:
    widths = equation.params["padding_config"]
    if any(low < 0 or high < 0 or between for low, high, between in widths):
        raise NotInterpreted
    return np.pad(x, [(low, high) for low, high, _ in widths], constant_values=value)


def _split(equation: JaxprEqn, x: Array) -> list[Array]:
    ends = np.cumsum(equation.params["sizes"])[:-1]
    return list(np.split(x, ends, axis=equation.params["axis"]))


def _concatenate(equation: JaxprEqn, *parts: Array) -> Array:
    return np.concatenate(parts, axis=equation.params["dimension"])


def _call(name: str) -> Rule:
    """Return the rule of a call, whose parameter ``name`` is the called jaxpr."""

    def run(equation: JaxprEqn, *args: Array) -> list[Array]:
        return _called(equation.params[name], args)

    return run


def _called(jaxpr: Any, args: Sequence[Any]) -> list[Array]:
    """Return the outputs of a jaxpr with or without constants."""
    consts = getattr(jaxpr, "consts", ())
    return _evaluate(getattr(jaxpr, "jaxpr", jaxpr), consts, args)


def _scan(equation: JaxprEqn, *args: Array) -> list[Array]:
    params = equation.params
    n_consts = params["num_consts"]
    n_carried = params["num_carry"]
    consts = args[:n_consts]
    carried = [*args[n_consts : n_consts + n_carried]]
    rows = args[n_consts + n_carried :]
    order = range(params["length"])
    outputs: list[list[Array]] = []
    for k in reversed(order) if params["reverse"] else order:
        results = _called(params["jaxpr"], (*consts, *carried, *(x[k] for x in rows)))
        carried = results[:n_carried]
        outputs.append(results[n_carried:])
    outputs = outputs[::-1] if params["reverse"] else outputs
    return [*carried, *map(np.stack, zip(*outputs, strict=True))]


def _while(equation: JaxprEqn, *args: Array) -> list[Array]:
    params = equation.params
    of_condition = params["cond_nconsts"]
    of_body = params["body_nconsts"]
    of_loop = args[:of_condition]
    consts = args[of_condition : of_condition + of_body]
    carried = [*args[of_condition + of_body :]]
    while _called(params["cond_jaxpr"], (*of_loop, *carried))[0]:
        carried = _called(params["body_jaxpr"], (*consts, *carried))
    return carried


def _branch(equation: JaxprEqn, index: Array, *args: Array) -> list[Array]:
    branches = equation.params["branches"]
    return _called(branches[min(max(int(index), 0), len(branches) - 1)], args)


Functions = Mapping[str, Callable[..., Any]]
_OF_NUMBERS: Functions = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "max": np.maximum,
    "min": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.bitwise_not,
    "square": np.square,
    "is_finite": np.isfinite,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}
_OF_FLOATS: Functions = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tan": np.tan,
    "tanh": np.tanh,
    "atan2": np.arctan2,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "pow": np.power,
    "floor": np.floor,
    "ceil": np.ceil,
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    "logistic": lambda x: np.reciprocal(np.exp(-x) + x.dtype.type(1)),
}
_REDUCTIONS: Functions = {
    "reduce_sum": np.sum,
    "reduce_prod": np.prod,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_and": np.bitwise_and.reduce,
    "reduce_or": np.bitwise_or.reduce,
}
_CUMULATIVE: Functions = {
    "cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate,
}  # fmt: skip
_UNCHANGED = ("stop_gradient", "copy", "copy_p")
#: The rule of each primitive, by its name.
_RULES: Mapping[str, Rule] = {
    **{name: _elementwise(f) for name, f in _OF_NUMBERS.items()},
    **{name: _of_floats(f) for name, f in _OF_FLOATS.items()},
    **{name: _reduction(f) for name, f in _REDUCTIONS.items()},
    **{name: _cumulative(f) for name, f in _CUMULATIVE.items()},
    **dict.fromkeys(_UNCHANGED, lambda equation, x: x),
    "optimization_barrier": lambda equation, *args: list(args),
    "integer_pow": _power,
    "div": _divide,
    "rem": _remainder,
    "argmax": _index_of_extreme(np.argmax),
    "argmin": _index_of_extreme(np.argmin),
    "stack": lambda equation, *parts: np.stack(parts, equation.params["axis"]),
    "tile": lambda equation, x: np.tile(x, equation.params["reps"]),
    "gather": _gather,
    "sort": _sort,
    "scatter": _scatter(adds=False),
    "scatter-add": _scatter(adds=True),
    "convert_element_type": _cast,
    "select_n": _select,
    "round": _round,
    "dot_general": _dot_general,
    "iota": _iota,
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "squeeze": lambda equation, x: np.squeeze(x, tuple(equation.params["dimensions"])),
    "transpose": lambda equation, x: np.transpose(x, equation.params["permutation"]),
    "rev": lambda equation, x: np.flip(x, tuple(equation.params["dimensions"])),
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "pad": _pad,
    "split": _split,
    "concatenate": _concatenate,
    "jit": _call("jaxpr"),
    "checkpoint": _call("jaxpr"),
    "custom_jvp_call": _call("call_jaxpr"),
    "custom_vjp_call": _call("call_jaxpr"),
    "scan": _scan,
    "while": _while,
    "cond": _branch,
}
