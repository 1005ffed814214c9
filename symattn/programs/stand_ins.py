"""Arrays of NumPy that stand in for those of JAX while edits are screened.

JAX takes milliseconds to call a function whose code is new: each operation goes through Python, and each loop is
traced. Nearly all edits are wrong at once, so that an edited function is first called with stand-ins: each operation of
JAX is traced once for the formats and shapes of its arguments, by JAX itself, and NumPy runs what was traced
(``interpreting``). So types, weak ones too, broadcasting, indices and errors are JAX's own, and nothing here states
what an operation computes. Loops of ``jax.lax`` run pass by pass, and rules of ``jax.custom_vjp`` as they are written.

What is not so run raises ``NotStoodIn``, and JAX makes the call: operations without a rule of NumPy, numbers that a
traced function has not got yet, objects of JAX that are no arrays. An error is believed only if JAX raised it.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

import numpy as np

from symattn.bounds.called_target import Memory
from symattn.programs import interpreting
from symattn.programs.frameworks import NumpyArrays
from symattn.programs.interpreting import NotInterpreted
from symattn.programs.repairing.source import EndlessLoop

Array = np.ndarray
#: Operations in one call: in longer loops, JAX is as fast.
_MOST_OPERATIONS = 20_000
_MOST_BYTES = 1 << 16  # of an array of NumPy among the arguments, which is compared by its contents
#: Kinds of numbers of Python, which JAX takes as they are.
_NUMBERS = (bool, int, float)
#: Names of Python by which code could tell a stand-in from an array of JAX.
TELLING_NAMES = frozenset(
    ("isinstance", "issubclass", "type", "getattr", "hasattr", "callable", "id", "vars", "repr", "str", "print")
)  # fmt: skip


# No ``Exception``, so that handlers in the user's code let it pass.
class NotStoodIn(BaseException):
    """Raised where only JAX itself can say what a call gives; code that catches it does not hide it."""

    def __init__(self) -> None:
        super().__init__()
        _call.is_refused = True


@dataclass
class _Call:
    """The call that is being made: how deep it is in functions that JAX would trace, and its operations so far.

    ``is_refused`` says that only JAX can tell what it gives. More than ``most_operations`` are taken for an endless
    loop; without that limit JAX makes the call.
    """

    depth: int = 0
    operations: int = 0
    most_operations: int | None = None
    is_refused: bool = False
    # the errors that JAX itself raised
    errors: list[BaseException] = field(default_factory=list)


_call = _Call()


@contextmanager
def in_traced_function() -> Iterator[None]:
    """Run a function of the user that JAX would trace, so that numbers of its arrays are not known."""
    _call.depth += 1
    try:
        yield
    finally:
        _call.depth -= 1


# -- arrays ------------------------------------------------------------------------------------------------------------
class StandIn:
    """An array: its numbers, and whether its type is weak, as that of a number of Python is."""

    __slots__ = ("is_weak", "numbers")
    __hash__ = None  # type: ignore[assignment]
    #: NumPy leaves its operators to this class.
    __array_priority__ = 100

    def __init__(self, numbers: Array, is_weak: bool = False) -> None:
        self.numbers, self.is_weak = numbers, is_weak

    shape = property(lambda self: self.numbers.shape)
    dtype = property(lambda self: self.numbers.dtype)
    ndim = property(lambda self: self.numbers.ndim)
    size = property(lambda self: self.numbers.size)
    weak_type = property(lambda self: self.is_weak)
    at = property(lambda self: _Updated(self))

    def __getattr__(self, name: str) -> Any:
        # Names of Python are looked for by its own protocols.
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in _names_of_arrays():
            raise_as_jax(AttributeError(name))
        if name in _PROPERTIES:
            return _operate(_Method(name, is_property=True), self)
        if name not in _METHODS:
            raise NotStoodIn
        return lambda *args, **keywords: _operate(_Method(name), self, *args, **keywords)

    def __len__(self) -> int:
        if not self.ndim:
            raise NotStoodIn
        return int(self.shape[0])

    def __iter__(self) -> Iterator[StandIn]:
        if not self.ndim:
            raise NotStoodIn
        return iter([StandIn(np.asarray(x), self.is_weak) for x in self.numbers])

    def _number(self) -> Any:
        """Return the only number, which a function that JAX traces does not know."""
        if _call.depth or self.numbers.size != 1 or self.ndim:
            raise NotStoodIn
        return self.numbers.item()

    def __bool__(self) -> bool:
        return bool(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __float__(self) -> float:
        return float(self._number())

    def __index__(self) -> int:
        return operator.index(self._number())

    def _refuse(self, *args: object, **keywords: object) -> Any:
        raise NotStoodIn

    __array__ = __contains__ = __format__ = __repr__ = __str__ = __copy__ = __deepcopy__ = _refuse
    __reduce__ = __setitem__ = __delitem__ = __complex__ = _refuse


#: Operators to which a number is an array of a weak type, so that each number is not traced anew.
_WITH_ANY_NUMBER = ("add", "sub", "mul", "truediv", "eq", "ne", "lt", "le", "gt", "ge")
_OPERATORS = ("floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
#: Operators that have an array on their left or alone.
_WITHOUT_REFLECTION = ("neg", "pos", "abs", "invert", "getitem")
_MOST_WHOLE = 2**31 - 1  # a larger number may have no type in JAX


def _as_array(x: Any) -> Any:
    """Return a number of Python as the array that JAX makes of an operand; anything else as it is."""
    if type(x) is float or (type(x) is int and abs(x) <= _MOST_WHOLE):
        return lifted(x)
    return x


def _define_operators() -> None:
    """Give stand-ins the operators of Python, each of which is an operation of JAX's arrays."""

    def forwards(function: Any) -> Any:
        return lambda *args: _operate(function, *args)

    def backwards(function: Any) -> Any:
        return lambda self, other: _operate(function, other, self)

    def forwards_with_number(function: Any) -> Any:
        return lambda self, other: _operate(function, self, _as_array(other))

    def backwards_with_number(function: Any) -> Any:
        return lambda self, other: _operate(function, _as_array(other), self)

    for name in _WITH_ANY_NUMBER:
        function = getattr(operator, f"__{name}__")
        setattr(StandIn, f"__{name}__", forwards_with_number(function))
        if name in ("add", "sub", "mul", "truediv"):
            setattr(StandIn, f"__r{name}__", backwards_with_number(function))
    for name in (*_OPERATORS, *_WITHOUT_REFLECTION):
        function = getattr(operator, f"__{name}__")
        setattr(StandIn, f"__{name}__", forwards(function))
        if name in _OPERATORS:
            setattr(StandIn, f"__r{name}__", backwards(function))


#: Attributes of arrays that are computed, and methods without an effect.
_PROPERTIES = ("T", "mT", "real", "imag")
_METHODS = frozenset(
    (
        "all", "any", "argmax", "argmin", "astype", "clip", "conj", "copy", "cumprod", "cumsum", "diagonal", "dot",
        "flatten", "max", "mean", "min", "prod", "ravel", "repeat", "reshape", "round", "squeeze", "std", "sum",
        "swapaxes", "take", "trace", "transpose", "var", "view",
    )
)  # fmt: skip


@cache
def _names_of_arrays() -> frozenset[str]:
    import jax

    names: frozenset[str] = frozenset(dir(jax.Array))
    return names


@dataclass(frozen=True)
class _Method:
    """A method of arrays as a function, or an attribute that is computed."""

    name: str
    is_property: bool = False

    def __call__(self, array: Any, *args: Any, **keywords: Any) -> Any:
        attribute = getattr(array, self.name)
        return attribute if self.is_property else attribute(*args, **keywords)


@dataclass(frozen=True)
class _Update:
    """A method of ``x.at[index]`` as a function of the array, the index and the other arguments."""

    name: str

    def __call__(self, array: Any, index: Any, *args: Any, **keywords: Any) -> Any:
        return getattr(array.at[index], self.name)(*args, **keywords)


class _Updated:
    """``x.at`` and ``x.at[index]`` of a stand-in."""

    def __init__(self, array: StandIn, *index: Any) -> None:
        self._array, self._index = array, index

    def __getitem__(self, index: Any) -> _Updated:
        return _Updated(self._array, index)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not self._index:
            raise NotStoodIn
        return lambda *args, **kw: _operate(_Update(name), self._array, *self._index, *args, **kw)


_define_operators()


class StandInArrays(NumpyArrays):
    """The arrays of a call with stand-ins; see ``frameworks.Arrays``."""

    def make(self, values: np.ndarray, dtype: str) -> Any:
        import jax

        array = super().make(values, dtype)
        return StandIn(array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False))

    def laid_out(self, array: Any, memory: Memory) -> Any:
        return array

    def copied(self, array: Any) -> Any:
        return array


# -- operations --------------------------------------------------------------------------------------------------------
class _Unknown(Exception):
    """Raised for an argument that no key tells from others."""


class _Traced:
    """An operation that JAX has traced: its program, and its outputs, some of which may be no arrays."""

    def __init__(self, program: Any, tree: Any, fixed: Sequence[Any]) -> None:
        self._tree, self._fixed = tree, fixed
        self._weak = [a.weak_type for a in program.out_avals]
        self._program = interpreting.PreparedProgram(program) if self._weak else None
        self._is_single = tree is None and bool(self._weak)

    def run(self, arrays: Sequence[Array]) -> Any:
        """Return the outputs for arrays of the formats and shapes that were traced."""
        outputs = [] if self._program is None else self._program.run(arrays)
        if self._is_single:
            return StandIn(outputs[0], self._weak[0])
        computed = iter([StandIn(x, w) for x, w in zip(outputs, self._weak, strict=True)])
        leaves = [next(computed) if x is _IS_COMPUTED else x for x in self._fixed]
        if self._tree is None:
            return leaves[0]
        return self._tree.unflatten(leaves)


_IS_COMPUTED = object()
#: What was traced for each operation and its arguments; the error that it raised, or None if JAX has to run it.
_traced: dict[Any, _Traced | Exception | None] = {}
_MOST_TRACED = 50_000


def _operate(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Return what an operation of JAX gives for stand-ins and other arguments."""
    _call.operations += 1
    if _call.most_operations is not None and _call.operations > _call.most_operations:
        raise EndlessLoop(f"more than {_call.most_operations} operations")
    if _call.operations > _MOST_OPERATIONS:
        raise NotStoodIn
    dynamic: list[StandIn] = []
    try:
        key = (function, *[_key_of(x, dynamic) for x in args])
        if keywords:
            key = (*key, *[(name, _key_of(x, dynamic)) for name, x in keywords.items()])
        # Looked up here, since a function may have no hash.
        is_new = key not in _traced
    except (_Unknown, TypeError):
        return _run_by_jax(function, args, keywords)
    if is_new:
        if len(_traced) > _MOST_TRACED:
            _traced.clear()
        _traced[key] = _trace(function, args, keywords, dynamic)
    known = _traced[key]
    if isinstance(known, Exception):
        raise_as_jax(known)
    if known is None:
        raise NotStoodIn
    try:
        return known.run([x.numbers for x in dynamic])
    # What NumPy raises is no error of JAX.
    except Exception:
        raise NotStoodIn from None


def raise_as_jax(error: Exception) -> NoReturn:
    """Raise an error that JAX raises, too."""
    _call.errors.append(error)
    raise error.with_traceback(None)


def _key_of(x: Any, dynamic: list[StandIn]) -> Any:
    """Return what tells an argument from others; add the arrays in it to ``dynamic``."""
    kind = type(x)
    if kind is StandIn:
        dynamic.append(x)
        return x.numbers.dtype, x.numbers.shape, x.is_weak
    if kind in _NUMBERS:
        # 0.0 equals −0.0, 1 and True.
        return kind, repr(x)
    # NumPy has a class of its own for each type of numbers.
    if x is None or x is Ellipsis or kind is str or isinstance(x, np.dtype):
        return kind, x
    if kind is StandInType:
        return kind, x.type
    if kind is tuple or kind is list:
        return (kind, *[_key_of(part, dynamic) for part in x])
    if kind is slice:
        return kind, *[_key_of(part, dynamic) for part in (x.start, x.stop, x.step)]
    if isinstance(x, (np.ndarray, np.generic)) and x.nbytes <= _MOST_BYTES:
        return kind, x.dtype, x.shape, x.tobytes()
    # Types of numbers, and enumerations.
    if isinstance(x, type) or _is_scalar_type(x):
        return x
    raise _Unknown


def _exchange(x: Any, values: Iterator[Any]) -> Any:
    """Return an argument with other values for its stand-ins."""
    kind = type(x)
    if kind is StandIn:
        return next(values)
    if kind is StandInType:
        return x.type
    if kind is tuple or kind is list:
        return kind([_exchange(part, values) for part in x])
    if kind is slice:
        return slice(*[_exchange(part, values) for part in (x.start, x.stop, x.step)])
    return x


def _called_with(
    function: Callable[..., Any], args: Any, keywords: Any, values: Sequence[Any]
) -> Any:
    """Return what an operation gives with these values for its stand-ins, in their order."""
    left = iter(values)
    places = [_exchange(x, left) for x in args]
    named = {name: _exchange(x, left) for name, x in keywords.items()}
    return function(*places, **named)


def _trace(
    function: Callable[..., Any], args: Any, keywords: Any, dynamic: Sequence[StandIn]
) -> _Traced | Exception | None:
    """Return an operation as JAX traces it, the error that JAX raises, or None if JAX has to run it each time."""
    import jax

    tree, fixed = None, []

    def traced(*values: Any) -> list[Any]:
        nonlocal tree, fixed
        output = _called_with(function, args, keywords, values)
        leaves = [output]
        if isinstance(output, (tuple, list)):
            leaves, tree = jax.tree_util.tree_flatten(output)
        fixed = [_IS_COMPUTED if isinstance(x, jax.Array) else x for x in leaves]
        return [x for x in leaves if isinstance(x, jax.Array)]

    shapes = [
        jax.ShapeDtypeStruct(x.numbers.shape, x.numbers.dtype, weak_type=x.is_weak) for x in dynamic
    ]
    try:
        program = jax.make_jaxpr(traced)(*shapes)
    except jax.errors.JAXTypeError:
        return None
    except Exception as error:
        return error if _raises_alike(error, function, args, keywords, dynamic) else None
    if not all(x is _IS_COMPUTED or _is_plain(x) for x in fixed):
        return None
    try:
        return _Traced(program, tree, fixed)
    except NotInterpreted:
        return None


def _is_plain(x: Any) -> bool:
    """Return whether an output is no array, and the same at each call."""
    is_of_numbers = isinstance(x, (type(None), *_NUMBERS, str, np.dtype, np.generic))
    return is_of_numbers or type(x).__name__ in ("finfo", "iinfo")


def _raises_alike(
    error: Exception, function: Any, args: Any, keywords: Any, dynamic: Sequence[StandIn]
) -> bool:
    """Return whether JAX raises such an error for arrays with numbers, too."""
    try:
        with interpreting.interpreting():
            _called_with(function, args, keywords, [_as_of_jax(x) for x in dynamic])
    except Exception as other:
        return type(other) is type(error)
    except NotStoodIn:
        pass
    return False


# -- what JAX runs itself: functions of functions, such as gradients ---------------------------------------------------
def _as_of_jax(x: Any) -> Any:
    """Return the array of JAX in place of a stand-in; anything else as it is."""
    import jax

    if isinstance(x, StandInOperation):
        return x.operation
    if isinstance(x, StandInType):
        return x.type
    if not isinstance(x, StandIn):
        return x
    # A weak array of JAX comes from a number alone.
    if x.is_weak:
        raise NotStoodIn
    return jax.device_put(x.numbers)


def _run_by_jax(function: Callable[..., Any], args: Any, keywords: Any) -> Any:
    """Return what an operation gives by JAX itself: functions of the user among its arguments get JAX's own arrays."""
    import jax

    tree_map = jax.tree_util.tree_map
    try:
        with interpreting.interpreting():
            output = function(*tree_map(_as_of_jax, args), **tree_map(_as_of_jax, keywords))
    except Exception as error:
        raise NotStoodIn from error
    # Within a function that JAX traces, its results are numbers that are not known yet.
    leaves = jax.tree_util.tree_leaves(output)
    if any(isinstance(x, jax.core.Tracer) for x in leaves):
        return output
    return tree_map(_as_stood_in, output)


def _as_stood_in(x: Any) -> Any:
    """Return a stand-in for an array of JAX, and for a function that JAX has made."""
    import jax

    if isinstance(x, jax.Array):
        return StandIn(np.asarray(x), x.weak_type)
    if callable(x):
        return StandInOperation(x, is_made=True)
    raise NotStoodIn


def lifted(x: Any) -> StandIn:
    """Return a number or an array as JAX takes it where it loops over arrays."""
    import jax

    if isinstance(x, StandIn):
        return x
    if type(x) in _NUMBERS or isinstance(x, (np.ndarray, np.generic)):
        numbers = np.asarray(x)
        numbers = numbers.astype(jax.dtypes.canonicalize_dtype(numbers.dtype), copy=False)
        return StandIn(numbers, type(x) in (int, float))
    raise NotStoodIn


# -- names of the user's code ------------------------------------------------------------------------------------------
class StandInOperation:
    """A function of JAX, which takes stand-ins; one that a call ``is_made`` anew has no program that stays."""

    def __init__(self, operation: Callable[..., Any], is_made: bool = False) -> None:
        self.operation, self._is_made = operation, is_made

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if self._is_made:
            return _run_by_jax(self.operation, args, keywords)
        return _operate(self.operation, *args, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in_of(getattr(self.operation, name))


class StandInType:
    """A type of JAX's numbers, such as ``jnp.float32``, which makes arrays when it is called; equal to its dtype."""

    def __init__(self, scalar_type: Any) -> None:
        self.type = scalar_type

    #: As NumPy asks for it, from 2.4 on by the second name.
    dtype = __numpy_dtype__ = property(lambda self: self.type.dtype)

    def __call__(self, x: Any) -> Any:
        return _operate(self.type, x)

    def __eq__(self, other: object) -> bool:
        return bool(self.type == (other.type if isinstance(other, StandInType) else other))

    def __hash__(self) -> int:
        return hash(self.type)


def _is_scalar_type(x: Any) -> bool:
    return type(x).__module__.startswith("jax._src.numpy.scalar_types")


class StandInModule:
    """A module of JAX whose functions take stand-ins."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        try:
            value = stand_in_of(getattr(self._module, name))
        except AttributeError as error:
            _call.errors.append(error)
            raise
        # Looked up once.
        setattr(self, name, value)
        return value


_modules: dict[int, StandInModule] = {}


def stand_in_of(x: Any) -> Any:
    """Return what stands in for an object that the user's code names: a module or a function of JAX."""
    from symattn.programs.stand_in_loops import loop_of, rule_of

    if isinstance(x, types.ModuleType):
        if not _is_of_jax(x.__name__):
            return x
        return _modules.setdefault(id(x), StandInModule(x))
    if _is_scalar_type(x):
        return StandInType(x)
    if isinstance(x, type) or not callable(x):
        return x
    if (rule := rule_of(x)) is not None:
        return rule
    if not _is_of_jax(getattr(x, "__module__", None) or ""):
        return x
    return loop_of(x) or StandInOperation(x)


def _is_of_jax(module: str) -> bool:
    return module.partition(".")[0] in ("jax", "jaxlib")


#: Errors of Python's own that do not depend on what arrays are, if the user's code itself raises them.
_PLAIN_ERRORS = (NameError, LookupError, ZeroDivisionError, ValueError)


@dataclass
class StoodIn:
    """A function of a file that is called with stand-ins: its outputs are arrays of NumPy.

    ``is_refused`` says that only JAX can tell what the last call gives, ``operations`` how many it took. A call of more
    than ``most_operations`` is taken for an endless loop, which JAX would never leave.
    """

    function: Callable[..., Any]
    file: str
    most_operations: int | None = None
    is_refused: bool = False
    operations: int = 0

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        import jax

        _call.depth, _call.operations, _call.is_refused = 0, 0, False
        _call.most_operations = self.most_operations
        _call.errors.clear()
        self.is_refused = True
        output = None
        try:
            with np.errstate(all="ignore"):
                output = self.function(*args, **keywords)
        except Exception as error:
            is_of_jax = any(error is known for known in _call.errors)
            is_believed = is_of_jax or self._is_plain(error)
            self.is_refused = _call.is_refused or not is_believed
            raise
        except EndlessLoop:
            self.is_refused = _call.is_refused
            raise
        finally:
            self.operations = _call.operations
        output = jax.tree_util.tree_map(_numbers_of, output)
        self.is_refused = _call.is_refused
        return output

    def _is_plain(self, error: Exception) -> bool:
        """Return whether the user's code itself raised an error that does not depend on what arrays are."""
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        is_own = place is not None and place.tb_frame.f_code.co_filename == self.file
        return is_own and isinstance(error, _PLAIN_ERRORS)


def _numbers_of(x: Any) -> Any:
    return x.numbers if isinstance(x, StandIn) else x
