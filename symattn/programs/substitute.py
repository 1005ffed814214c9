"""Run unchanged NumPy code on arrays of another kind.

Most code needs no help: NumPy dispatches functions of an array to the array. Functions without an array argument do:
``np.zeros``, ``math.sqrt``. So the function is rebuilt from its code, with globals in which ``np``, ``math`` and its
helpers are replaced; the user's modules stay as they are. Functions of the same top-level package are followed, through
globals, closures, defaults, ``functools.partial`` with its arguments, and bound methods; containers among the globals
are copied, so that no array of ours stays in a user's cache. An operation that a kind lacks raises ``Refused`` with its
name.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

from symattn.arrays.base import ArrayBase
from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.planes import Planes, Size
from symattn.programs.frameworks import Tensor
from symattn.programs.names import Function, without_partial
from symattn.programs.refusing import LIBRARY, installed

#: Functions of NumPy that create arrays, here of the kind.
_CREATION = frozenset(["zeros", "ones", "empty", "full", "eye", "identity", "tri", "array", "copy"])
#: Functions of NumPy that convert to arrays, here of the kind.
_AS_ARRAY = frozenset(["asarray", "ascontiguousarray", "asfortranarray", "asanyarray"])


def substitute(function: Function, kind: type[Planes]) -> Function:
    """Return ``function`` for arrays of ``kind``: its own code, with other globals."""
    call = getattr(type(function), "__call__", None)  # noqa: B004 - the code is wanted, not whether there is any
    if isinstance(call, types.FunctionType):  # an instance of a user's class
        function = types.MethodType(call, function)
    result: Function = _Substitution(function, kind).value(function)
    return result


class _Numpy:
    """NumPy, with creation functions that make arrays of the kind."""

    def __init__(self, kind: type[Planes]) -> None:
        self._kind = kind
        self.ndarray = (kind, np.ndarray)
        self.identity = kind.xp.eye
        self.copy = lambda a, *_, **__: kind.xp.array(a)
        self.logaddexp = _LogAddExp(kind)
        self.linalg = _LinearAlgebra(kind)

    def __getattr__(self, name: str) -> object:
        result = getattr(np, name)
        if name in _AS_ARRAY:
            return functools.partial(_as_array, self._kind)
        if name in _CREATION:
            return functools.partial(_create_array_of_kind, getattr(self._kind.xp, name), result)
        if name == "sqrt":
            return functools.partial(_square_root, self._kind, np.sqrt)
        if name in ("cos", "sin"):
            return functools.partial(_tabulated_cosine_or_sine, self._kind, result)
        # Ufuncs dispatch to arrays of the kind; types, modules and constants stay as they are.
        plain = isinstance(result, (type, types.ModuleType, np.ufunc)) or not callable(result)
        return result if plain else functools.partial(_with_plain_sizes, result)


class _Library:
    """A module of a library with some functions replaced by the kind's own."""

    module = ""

    def __init__(self, kind: type[Planes]) -> None:
        self._kind = kind

    def __getattr__(self, name: str) -> object:
        return getattr(importlib.import_module(self.module), name)


class _Math(_Library):
    """The module math, with functions that also take elements of the kind, and are exact for plain numbers."""

    module = "math"

    def __init__(self, kind: type[Planes]) -> None:
        super().__init__(kind)
        self.sqrt = functools.partial(_square_root, kind, math.sqrt)
        self.pow = lambda x, y: x**y
        for name in FUNCTIONS.keys() - {"sqrt"}:  # math's, which a kind may know exactly
            setattr(self, name, functools.partial(_apply_math_to_element, kind, name))
        self.cos, self.sin = (
            functools.partial(_tabulated_cosine_or_sine, kind, getattr(np, name))
            for name in ("cos", "sin")
        )


class _LogAddExp:
    """np.logaddexp, with the sum over an axis."""

    def __init__(self, kind: type[Planes]) -> None:
        self._kind = kind

    def __call__(self, a: object, b: object) -> Tensor:
        xp = self._kind.xp
        m = xp.maximum(a, b)
        return m + xp.log(xp.exp(a - m) + xp.exp(b - m))

    def reduce(self, a: object, axis: object = 0, keepdims: bool = False) -> Tensor:
        return _Special(self._kind).logsumexp(a, axis, keepdims)


class _LinearAlgebra(_Library):
    """np.linalg, with the length of vectors, and with systems of equations."""

    module = "numpy.linalg"

    def norm(
        self, x: object, ord: object = None, axis: object = None, keepdims: bool = False
    ) -> Tensor:
        if ord not in (None, 2):
            return self._kind.offer("norm")
        return self._kind.xp.sqrt(
            self._kind.xp.sum(self._kind.of(x) ** 2, axis=axis, keepdims=keepdims)
        )

    def solve(self, a: object, b: object) -> Tensor:
        a = self._kind.of(a)
        b = self._kind.of(b)
        # The operators of graphs are slow to import, and few functions solve systems.
        from symattn.programs.graphs import linear_systems
        from symattn.programs.graphs.values import Context

        return linear_systems.solve(Context(a), a, b)

    def inv(self, a: object) -> Tensor:
        a = self._kind.of(a)
        from symattn.programs.graphs import linear_systems
        from symattn.programs.graphs.values import Context

        return linear_systems.invert(Context(a), a)


class _Special(_Library):
    """scipy.special, with softmax and related functions."""

    module = "scipy.special"

    def _subtract_axis_maximum(self, x: object, axis: object) -> tuple[Tensor, Tensor]:
        xp = self._kind.xp
        a = self._kind.of(x)
        m = xp.max(a, axis=axis, keepdims=True)
        return a - m, m

    def softmax(self, x: object, axis: object = None) -> Tensor:
        e = self._kind.xp.exp(self._subtract_axis_maximum(x, axis)[0])
        return e / self._kind.xp.sum(e, axis=axis, keepdims=True)

    def log_softmax(self, x: object, axis: object = None) -> Tensor:
        return self._kind.of(x) - self.logsumexp(x, axis, True)

    def logsumexp(self, a: object, axis: object = None, keepdims: bool = False) -> Tensor:
        xp = self._kind.xp
        shifted, m = self._subtract_axis_maximum(a, axis)
        # L = m + log Σ e^(s − m), which does not overflow.
        total = m + xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))
        return (
            total
            if keepdims
            else xp.squeeze(total, axis=axis if axis is not None else tuple(range(total.ndim)))
        )


class _Module:
    """A module of the user, whose functions are followed."""

    def __init__(self, module: types.ModuleType, value: Callable[[Any], Any]) -> None:
        self._module, self._value = module, value

    def __getattr__(self, name: str) -> object:
        return self._value(getattr(self._module, name))


class _Substitution:
    """A function and what it reaches, each rebuilt once."""

    def __init__(self, function: Function, kind: type[Planes]) -> None:
        bare = without_partial(function)
        self._package = (
            getattr(getattr(bare, "__func__", bare), "__module__", None) or ""
        ).partition(".")[0]
        self._numpy, self._math, self._special = _Numpy(kind), _Math(kind), _Special(kind)
        self._functions: dict[types.FunctionType, types.FunctionType] = {}
        self._globals: dict[int, dict[str, object]] = {}

    def value(self, x: Any) -> Any:
        """Return the substitute of ``x``."""
        if isinstance(x, types.ModuleType):
            return self._module(x)
        if isinstance(x, types.FunctionType) and self._is_users_own_module(x.__module__ or ""):
            return self._substitute_user_function(x)
        if isinstance(x, types.MethodType) and isinstance(x.__func__, types.FunctionType):
            return types.MethodType(self.value(x.__func__), x.__self__)
        if isinstance(x, functools.partial):
            # A library may be an argument: ``partial(attention, np)``.
            keywords = {name: self.value(argument) for name, argument in x.keywords.items()}
            return functools.partial(self.value(x.func), *map(self.value, x.args), **keywords)
        if isinstance(x, np.ndarray):
            return x.copy()
        # A copy, so that no array of a kind stays in a container of the user.
        if type(x) in (dict, list, set):
            return x.copy()
        return self._substitute_library_function(x)

    def _module(self, module: types.ModuleType) -> object:
        if module is np:
            return self._numpy
        if module is math:
            return self._math
        if module.__name__ == "scipy.special":
            return self._special
        return _Module(module, self.value) if self._is_users_own_module(module.__name__) else module

    def _substitute_library_function(self, x: object) -> object:
        """Return the substitute of a function of NumPy, math or scipy.special that was imported by its name."""
        name, home = getattr(x, "__name__", ""), getattr(x, "__module__", None) or ""
        # A type stays as it is, since ``isinstance`` needs it.
        if not callable(x) or isinstance(x, type):
            return x
        if getattr(math, name, None) is x:
            return getattr(self._math, name)
        if getattr(np, name, None) is x:
            return getattr(self._numpy, name)
        return getattr(self._special, name) if home.startswith("scipy.special") else x

    def _substitute_user_function(self, f: types.FunctionType) -> types.FunctionType:
        if f in self._functions:
            return self._functions[f]
        cells = tuple(types.CellType() for _ in f.__closure__ or ())
        space = id(f.__globals__)
        if space not in self._globals:
            # Recorded before it is filled, since its functions lead back to it.
            names = self._globals[space] = dict(f.__globals__)
            names.update(
                {k: self.value(v) for k, v in f.__globals__.items() if not k.startswith("__")}
            )
        result = types.FunctionType(
            f.__code__, self._globals[space], f.__name__, None, cells or None
        )
        self._functions[f] = result  # before its parts are followed, since it may reach itself
        result.__defaults__ = f.__defaults__ and tuple(map(self.value, f.__defaults__))
        result.__kwdefaults__ = f.__kwdefaults__ and {
            k: self.value(v) for k, v in f.__kwdefaults__.items()
        }
        for cell, old_cell in zip(cells, f.__closure__ or (), strict=True):
            with suppress(ValueError):  # a cell that is still empty stays so
                cell.cell_contents = self.value(old_cell.cell_contents)
        return result

    def _is_users_own_module(self, module: str) -> bool:
        """Return whether a module is the user's: in the function's own package, or not installed."""
        top = module.partition(".")[0]
        file = getattr(sys.modules.get(top), "__file__", None) or ""
        others = not file or installed(file) or file.startswith(LIBRARY) or top == "symattn"
        return top == self._package or not others


def _create_array_of_kind(
    of_kind: Function, plain: Function, *args: object, **kwargs: object
) -> Tensor:
    """Return a new array of the kind, or NumPy's if its dtype, passed by position, is bool."""
    return (
        _with_plain_sizes(plain, *args, **kwargs)
        if args[1:2] == (bool,)
        else of_kind(*args, **kwargs)
    )


def _as_array(kind: type[Planes], x: Tensor, *args: Tensor, **kwargs: Tensor) -> Tensor:
    """Return an array of the kind; NumPy arrays stay if the kind has tables of angles, since they are positions."""
    plain = hasattr(kind, "tables") and isinstance(x, np.ndarray)
    return np.asarray(x, *args, **kwargs) if plain else kind.xp.asarray(x, *args, **kwargs)


def _with_plain_sizes(function: Function, *args: object, **kwargs: object) -> object:
    """Call ``function``, which dispatches arrays to their kind; without arrays, pass sizes as plain integers."""
    if any(isinstance(x, ArrayBase) for x in (*args, *kwargs.values())):
        return function(*args, **kwargs)
    return function(*[int(x) if isinstance(x, Size) else x for x in args], **kwargs)


def _square_root(kind: type[Planes], real: Function, x: Tensor, **kwargs: Tensor) -> Tensor:
    """Return √x, for a plain number without rounding."""
    if isinstance(x, (np.ndarray, ArrayBase)):
        return np.sqrt(x, **kwargs)
    number = Fraction(int(x) if isinstance(x, Size) else float(x))
    # The root of a square is exact as a float; the kind takes all other roots.
    exact = number >= 0 and all(isqrt(n) ** 2 == n for n in (number.numerator, number.denominator))
    return real(float(number)) if exact else kind.xp.sqrt(kind.lift(number))


def _tabulated_cosine_or_sine(
    kind: type[Planes], real: Function, x: object, **kwargs: object
) -> Tensor:
    """Return the cosine or sine; for known angles its entry in the kind's tables, if it has any."""
    tables = getattr(kind, "tables", None)
    if tables is None or isinstance(x, ArrayBase):
        return real(x, **kwargs)
    return tables(real.__name__, np.asarray(x, np.float64))


def _apply_math_to_element(kind: type[Planes], name: str, x: object) -> Tensor:
    """Return a function of the module math of an element, or of a plain number if only the kind represents it exactly.

    For a kind with tables of angles, logarithms of a base are floats, as angles are.
    """
    exact = isinstance(x, (ArrayBase, Size)) or (
        name in ("exp", "log") and not hasattr(kind, "tables")
    )
    return kind.offer(name)(kind.of(x)) if exact else getattr(math, name)(x)
