"""The frameworks whose arrays a function may take: made from float64 exactly, and read back exactly.

A framework that multiplies incorrectly in half precision on this machine is named: that is not a function's fault.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from operator import matmul
from typing import Any, Protocol

import numpy as np

from symattn.arrays.formats import FORMATS
from symattn.arrays.plain import is_masked
from symattn.arrays.tensors import is_tensor
from symattn.bounds.called_target import Framework, Memory
from symattn.document.errors import InputError, MissingExtra, of_kind, perhaps
from symattn.programs.names import Function, is_module, parameters, without_partial

#: An array of NumPy, torch, JAX or another library, or of one of our kinds; and several by name.
Tensor = Any
Tensors = Mapping[str, Tensor]


class Arrays(Protocol):
    """A framework."""

    def make(self, values: np.ndarray, dtype: str) -> Tensor:
        """Return a new array with these values; booleans and whole numbers keep their type.

        Raises ``InputError`` for a value that ``dtype`` does not represent.
        """

    def blank(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return a new array of NaN (False for booleans, 0 for whole numbers), with the dtype of ``like``."""

    def bits(self, array: Tensor) -> bytes:
        """Return the contents, bit for bit."""

    def laid_out(self, array: Tensor, memory: Memory) -> Tensor:
        """Return the same numbers in another memory layout, or unchanged if the framework has no such layout."""

    def shares(self, output: Tensor, array: Tensor) -> bool:
        """Return whether the output may share memory with an array."""

    def copied(self, array: Tensor) -> Tensor:
        """Return an array with memory of its own, or the array itself if none can change."""

    def refilled(self, kept: Tensor, array: Tensor) -> bool:
        """Write the contents of ``array`` into the memory of ``kept``; return False, and do nothing, if it has another
        shape, or cannot change."""

    def spoil(self, output: Tensor) -> None:
        """Overwrite a returned array, as its caller may, if it is one that can change."""


class NumpyArrays:
    """NumPy; bfloat16 and fp8 by ml_dtypes."""

    def make(self, values: np.ndarray, dtype: str) -> np.ndarray:
        return np.array(values) if values.dtype.kind in "biu" else exactly(values, dtype)

    def blank(self, like: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, 0 if like.dtype.kind in "biu" else np.nan, dtype=like.dtype)

    def bits(self, array: np.ndarray) -> bytes:
        return array.tobytes()

    def laid_out(self, array: np.ndarray, memory: Memory) -> np.ndarray:
        if memory == "fortran":
            return np.asfortranarray(array)
        if memory == "reversed" and array.ndim:
            return np.ascontiguousarray(array[::-1])[::-1]
        array.flags.writeable = memory != "frozen"
        return array

    def shares(self, output: Tensor, array: np.ndarray) -> bool:
        # By its true type: an object may say that it is of another class.
        is_array = issubclass(type(output), np.ndarray)
        return is_array and bool(np.may_share_memory(output, array))

    def copied(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def refilled(self, kept: Tensor, array: Tensor) -> bool:
        if not isinstance(kept, np.ndarray) or (kept.shape, kept.dtype) != (
            array.shape,
            array.dtype,
        ):
            return False
        kept[...] = array
        return True

    def spoil(self, output: Tensor) -> None:
        if isinstance(output, np.ndarray) and output.flags.writeable and output.dtype.kind != "b":
            output[...] = 0


class TorchArrays:
    """torch on the CPU."""

    def __init__(self) -> None:
        self.torch = import_torch()

    def make(self, values: np.ndarray, dtype: str) -> Tensor:
        if values.dtype.kind in "biu":
            return self.torch.from_numpy(np.array(values))
        # Only a check: it raises for numbers that the format does not represent.
        exactly(values, dtype)
        return self.torch.from_numpy(np.array(values, dtype=np.float64)).to(
            getattr(self.torch, dtype)
        )

    def blank(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        fill = float("nan") if like.is_floating_point() else 0.0
        return self.torch.full(shape, fill, dtype=self.torch.float64).to(like.dtype)

    def bits(self, array: Tensor) -> bytes:
        # A single element is contiguous whatever its stride is, which a view of bytes is not.
        flat = array.detach().clone(memory_format=self.torch.contiguous_format).reshape(-1)
        return bytes(flat.view(self.torch.uint8).numpy().tobytes())

    def laid_out(self, array: Tensor, memory: Memory) -> Tensor:
        return array

    def shares(self, output: Tensor, array: Tensor) -> bool:
        if not isinstance(output, self.torch.Tensor):
            return False
        try:
            return bool(output.untyped_storage().data_ptr() == array.untyped_storage().data_ptr())
        except (NotImplementedError, RuntimeError):  # sparse, or without any memory
            return False

    def copied(self, array: Tensor) -> Tensor:
        return array.clone()

    def refilled(self, kept: Tensor, array: Tensor) -> bool:
        tensors = isinstance(kept, self.torch.Tensor) and isinstance(array, self.torch.Tensor)
        if not tensors or (kept.shape, kept.dtype) != (array.shape, array.dtype):
            return False
        kept.copy_(array)
        return True

    def spoil(self, output: Tensor) -> None:
        if isinstance(output, self.torch.Tensor):
            with (
                suppress(RuntimeError),
                self.torch.no_grad(),
            ):  # an expanded view cannot be written to
                output.zero_()


class JaxArrays(NumpyArrays):
    """JAX, whose arrays have no memory layout, and do not change."""

    def __init__(self) -> None:
        # Unlike ``jax.numpy.asarray`` it compiles no program for each shape.
        self.put = import_jax().device_put

    def make(self, values: np.ndarray, dtype: str) -> Tensor:
        check_wide(dtype)
        return self.put(super().make(values, dtype))

    def bits(self, array: Tensor) -> bytes:
        return super().bits(np.asarray(array))

    def laid_out(self, array: Tensor, memory: Memory) -> Tensor:
        return array

    def copied(self, array: Tensor) -> Tensor:
        return array

    def refilled(self, kept: Tensor, array: Tensor) -> bool:
        return False

    def spoil(self, output: Tensor) -> None:
        return None


#: The arrays of each framework, by name.
_FRAMEWORKS: Mapping[Framework, Callable[[], Arrays]] = {
    "numpy": NumpyArrays,
    "torch": TorchArrays,
    "jax": JaxArrays,
}


def arrays(framework: Framework) -> Arrays:
    """Return the framework of that name. Raises ``InputError`` if it is unknown, ``MissingExtra`` if not installed."""
    if framework not in _FRAMEWORKS:
        raise InputError(f"framework is {framework!r}; hint: {' or '.join(_FRAMEWORKS)}")
    return _FRAMEWORKS[framework]()


def read(
    output: Tensor, kind: type[np.floating] = np.float64
) -> tuple[np.ndarray, str, tuple[int, ...]]:
    """Return the values as float64 or another ``kind``, the name of the dtype, and the shape.

    Raises ``TypeError`` unless ``output`` is an array of real numbers.
    """
    if _top_level_package_of(type(output)) == "torch":
        dtype = dtype_name(output)
        if output.is_complex():
            raise TypeError(f"returned an array of {dtype}")
        wide = getattr(import_torch(), np.dtype(kind).name)

        def numbers() -> np.ndarray:
            copied: np.ndarray = output.detach().cpu().to(wide, copy=True).numpy()
            return copied

        try:
            result = numbers()
            if output.is_cuda:
                import_torch().cuda.synchronize(output.device)
                check_settled(result, numbers())
            return result, dtype, tuple(output.shape)
        except StillWritten:
            raise
        except (NotImplementedError, RuntimeError, TypeError) as error:
            # Sparse, nested, or on the device meta.
            raise TypeError(
                f"returned a tensor without numbers to read: {str(error).splitlines()[0]}"
            ) from None
    output = output if isinstance(output, (np.ndarray, np.generic)) else exported(output)
    if not isinstance(output, (np.ndarray, np.generic)):
        raise TypeError(f"returned {of_kind(output)}, not an array")
    # ``V`` are the types of ml_dtypes; a type with names is a record of other data.
    if output.dtype.kind not in "fiubV" or output.dtype.names or is_masked(output):
        raise TypeError(
            f"returned an array of {'masked entries' * is_masked(output) or output.dtype.name}"
        )
    with np.errstate(over="ignore"):
        return np.array(output, dtype=kind), output.dtype.name, output.shape


class StillWritten(TypeError):
    """Raised for an output to which work that the call has started still writes."""


def check_settled(before: np.ndarray, after: np.ndarray) -> None:
    """Raise ``StillWritten`` if numbers that the caller's stream has read differ once the device is synchronised."""
    if not np.array_equal(before, after, equal_nan=True):
        raise StillWritten("returned a tensor to which another stream still writes")


def exported(output: Tensor) -> Tensor:
    """Convert an array of another library to NumPy by ``__array__`` or DLPack; return anything else as it is."""
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "__array__": np.asarray,
        "__dlpack__": np.from_dlpack,
    }
    offered = [convert for name, convert in ways.items() if hasattr(type(output), name)]
    for convert in offered[:-1]:
        try:
            return convert(output)
        except Exception:  # a library may refuse to copy from its device; try the next way
            continue
    return offered[-1](output) if offered else output


def dtype_name(array: object) -> str:
    """Return the name of the dtype, such as ``bfloat16``; the name of the class for anything without a dtype."""
    return str(getattr(array, "dtype", type(array).__name__)).removeprefix("torch.")


def exactly(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return ``values`` in ``dtype``. Raises ``InputError`` if that would round."""
    wide = np.asarray(values, dtype=np.float64)
    with np.errstate(all="ignore"):
        narrow = wide.astype(numpy_dtype(dtype))
    again = narrow.astype(np.float64)
    # NaN equals NaN here: an input may hold it. Most hold none, and need one comparison.
    if not (again == wide).all() and not np.array_equal(again, wide, equal_nan=True):
        raise InputError(
            f"an input holds values that {dtype} cannot hold exactly; round them first"
        )
    return narrow


def numpy_dtype(name: str) -> np.dtype:
    """Return the NumPy dtype of that name. Raises ``InputError`` for an unknown one."""
    if name not in FORMATS:
        hint = perhaps(name, FORMATS) or f"; choose one of {', '.join(FORMATS)}"
        raise InputError(f"unknown dtype {name}{hint}")
    # The first three formats are NumPy's own.
    if name in FORMATS[:3]:
        return np.dtype(name)
    import ml_dtypes

    result: np.dtype = np.dtype(getattr(ml_dtypes, name))
    return result


def _import_framework_library(name: str) -> Any:
    """Import a library. Raises ``MissingExtra`` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(name, name) from error


import_torch, import_jax = (
    functools.partial(_import_framework_library, "torch"),
    functools.partial(_import_framework_library, "jax"),
)


def check_wide(dtype: str) -> None:
    """Raise ``InputError`` if JAX would make float32 of float64."""
    if dtype == "float64" and not import_jax().config.jax_enable_x64:
        raise InputError(
            "JAX makes float32 of float64; hint: JAX_ENABLE_X64=1 in the environment, or another dtype"
        )


def wanted(function: Function) -> Framework | None:
    """Return the framework that a function uses by its module, its annotations and the names in its code, or None."""
    function = without_partial(function)
    if _top_level_package_of(function) == "torch" or is_module(function):
        return "torch"
    hints = " ".join(str(p.annotation) for p in parameters(function) or ())
    named = {m for m in ("torch", "numpy") if m in hints or (m == "numpy" and "NDArray" in hints)}
    named = named or ({"torch"} if "Tensor" in hints else set())
    # Annotations are a promise; names in the code are a hint, and come second.
    if not named:
        used, names = _packages_in_function_code(function), _names_in_code(_with_code(function))
        named = {m for m in ("torch", "numpy") if m in used or (m == "torch" and m in names)}
    if "torch" not in named and is_of_jax(function):
        return "jax"
    # Names of both, or of neither, decide nothing.
    return named.pop() if len(named) == 1 else None  # type: ignore[return-value]


def has_names_of(package: str, function: Function) -> bool:
    """Return whether the module of a function, or an enclosing function, has names from a package."""
    function = without_partial(function)
    function = inspect.unwrap(function)
    function = function if hasattr(function, "__globals__") else type(function).__call__
    objects = (*getattr(function, "__globals__", {}).values(), *_list_captured_objects(function))
    return any(_top_level_package_of(thing) == package for thing in objects)


def is_of_jax(function: Function) -> bool:
    """Return whether a function uses JAX, by its module, its type, or names in its code. JAX is not imported."""
    # A function cannot use JAX that nobody has imported.
    if "jax" not in sys.modules:
        return False
    function = without_partial(function)
    named = {
        _top_level_package_of(function),
        _top_level_package_of(type(function)),
        *_packages_in_function_code(function),
    }
    return getattr(function, "traceable", False) or not named.isdisjoint(
        ("jax", "jaxlib", "equinox")
    )


def _packages_in_function_code(function: Function) -> set[str]:
    """Return the top-level packages of the objects that the function's own code names."""
    function = _with_code(function)
    scope = getattr(function, "__globals__", {})
    things = (
        *_list_captured_objects(function),
        *(scope[name] for name in _names_in_code(function) if name in scope),
    )
    return {_top_level_package_of(thing) for thing in things}


def _with_code(function: Function) -> Function:
    function = inspect.unwrap(function)
    return function if hasattr(function, "__code__") else type(function).__call__


def _names_in_code(function: Function) -> tuple[str, ...]:
    return getattr(getattr(function, "__code__", None), "co_names", ())


def _list_captured_objects(function: Function) -> list[object]:
    """Return the objects that a function captures from enclosing functions."""
    result = []
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # the cell is empty
            result.append(cell.cell_contents)
    return [x for x in result if x is not None]


def _top_level_package_of(thing: object) -> str:
    """Return the top-level package of an object."""
    name = getattr(thing, "__module__", None) or getattr(thing, "__name__", None) or ""
    return str(name).partition(".")[0]


# -- a test of the machine ---------------------------------------------------------------------------------------------
INTERPRETER = "triton.runtime.interpreter"  # imported by the first kernel that is interpreted
# from their product on, the format has only even numbers
_LARGE = {"bfloat16": (16, 16), "float16": (32, 64)}
tl: Any = None  # Triton's interpreter looks for its language among the globals of a kernel


def _by_triton(a: Tensor, b: Tensor) -> Tensor:
    global tl
    import triton
    import triton.language as tl

    @triton.jit
    def product(a, b, out):  # type: ignore[no-untyped-def]
        at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at)).to(out.dtype.element_ty))

    product[(1,)](a, b, out := a.clone())
    return out


#: For each runtime, by its module, a product of two of its arrays of 16 × 16 numbers.
PRODUCTS = {"numpy": matmul, "torch": matmul, "jax": matmul, "triton": _by_triton}


@cache
def wrong_product(runtime: str, dtype: str) -> str:
    """Describe a product that a runtime itself computes incorrectly in half precision; "" if right or unsupported.

    Every legal implementation gives the same bits: the numbers are small and whole, and the only sum that is rounded is
    nearer to one neighbour than to the other.
    """
    if dtype not in _LARGE:
        return ""
    i = np.arange(16.0)
    a, b = ((f * i[:, None] + i) % 5 - 2 for f in (2, 3))
    a[0], b[:, 0] = 0, 0
    a[0, :2], b[:2, 0] = (_LARGE[dtype][0], 1), (_LARGE[dtype][1], 1.5)
    try:
        make = arrays("torch" if runtime == "triton" else runtime).make  # type: ignore[arg-type]
        with np.errstate(all="ignore"):
            both = read(PRODUCTS[runtime](make(a, dtype), make(b, dtype)))[0], a @ b
            got, right = (x.astype(numpy_dtype(dtype)).astype(float).ravel() for x in both)
    except Exception:  # the function then raises as well, and returns nothing to judge
        return ""
    words = next((f"{x:g}, expected {y:g}" for x, y in zip(got, right, strict=True) if x != y), "")
    name = f"{runtime} {getattr(sys.modules.get(runtime), '__version__', '')}"
    other = " or ".join(f"--dtype {kind}" for kind in ("float32", "float16") if kind != dtype)
    return words and f"{name} itself multiplies matrices wrong in {dtype}, {words}; hint: {other}"


def suspect(q: Tensor) -> str:
    """Return a description of a loaded runtime that computes incorrectly in the format of ``q``, or ""."""
    dtype = dtype_name(q)
    runtimes = (
        "torch" if is_tensor(q) else "numpy",
        *(("triton",) if INTERPRETER in sys.modules else ()),
    )
    return next(filter(None, (wrong_product(runtime, dtype) for runtime in runtimes)), "")


@contextmanager
def suspects(framework: str, dtype: str) -> Iterator[list[str]]:
    """Collect what computes incorrectly during a call: the framework, and Triton's interpreter if the call runs it."""
    result, executor = (
        [wrong_product(framework, dtype)],
        getattr(sys.modules.get(INTERPRETER), "GridExecutor", None),
    )
    if not executor or not (interpreted := wrong_product("triton", dtype)):
        yield result
        return
    from unittest.mock import patch

    # Only a call that launches interpreted kernels is affected.
    with patch.object(
        executor, "__call__", autospec=True, side_effect=executor.__call__
    ) as launched:
        yield result
    result += [interpreted] if launched.called else []
