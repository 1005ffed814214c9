"""A benchmark's own file: a module with ``Model``, ``get_inputs`` and ``get_init_inputs``, as KernelBench has it.

https://github.com/ScalingIntelligence/KernelBench: the reference is the class ``Model``, a candidate is the class
``ModelNew`` of another file; both are made with the arguments that ``get_init_inputs()`` returns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isclose, prod
from typing import Any

import numpy as np

from symattn.arrays.formats import HALF
from symattn.document.errors import CannotRun, InputError
from symattn.programs import frameworks
from symattn.programs.judging.recurrences import cut_recurrence
from symattn.programs.loading import load_module
from symattn.programs.modules import BY_HEAD, heads_of, key_heads_of
from symattn.programs.names import PLACED, is_module, meaning, parameters
from symattn.programs.refusing import one_line

#: The classes of a reference and of a candidate in KernelBench's files.
MODEL, CANDIDATE = "Model", "ModelNew"
_MAX_ENTRIES = 1 << 20  # of one array that leaves the process of the reference
# of rows with rows, whose bounds take seconds a million in half precision
_MAX_SCORES_IN_HALF = 1 << 22
_KEPT_AXES = 2  # the last ones, which are never cut
_OF_FLOATS = ("float", "bfloat")  # beginnings of the names of formats
_OF_ATTENTION = 3  # arrays: q, k and v
_OF_HEADS = 4  # axes of q, k, v: a batch, heads, tokens and columns
_MAX_PLAUSIBLE_HEADS = 4  # each number costs a verification of the reference


@dataclass(frozen=True)
class Benchmark:
    """The contents of a benchmark's file: the arguments of its model, and the inputs of one call.

    ``shapes`` are those of the inputs as the file makes them; in ``arrays`` leading axes may be cut to a few items.
    ``names`` are those of the model's parameters that take the arrays. Numbers for each head that a model of q, k and v
    holds, such as sinks, are the last of the inputs.
    ``numbers`` are those among the model's arguments and attributes.
    ``problem`` says why there are no inputs. ``heads`` are numbers that a model of tokens may have: the one that it
    names, else whole numbers among its arguments and attributes that divide the width, and 1. ``key_heads`` are the
    numbers of heads of its keys, if it has others.
    """

    init: tuple[Any, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    arrays: tuple[np.ndarray, ...] = ()
    dtype: str = "float32"
    heads: tuple[int, ...] = (1,)
    problem: str = ""
    names: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    key_heads: tuple[int, ...] = ()

    def name_of(self, path: str, model: str) -> str:
        """Return the target that is an instance of a class in a file: ``ref.py:Model(8)``."""
        return f"{path}:{model}({', '.join(map(repr, self.init))})"

    @property
    def shapes_by_name(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the inputs by the names of the model's parameters; empty if these are unknown."""
        return dict(zip(self.names, self.shapes, strict=False))

    @property
    def numbers_of_heads(self) -> Iterator[tuple[int, int | None]]:
        """Yield the numbers of heads of queries that a model may have, with those of keys; None for as many."""
        for heads in self.heads:
            fewer = [n for n in self.key_heads if 0 < n < heads and heads % n == 0]
            yield from ((heads, n) for n in fewer)
            yield heads, None

    @property
    def promised_widths(self) -> tuple[int | None, ...]:
        """Return the only widths of q, k and v that the model may be right for; None for any width.

        A scale among its numbers belongs to one width. A width among them may be something else, and comes second.
        """
        widths = {shape[-1] for shape in self.shapes[:_OF_ATTENTION] if shape}
        if self.tokens or len(widths) != 1:
            return (None,)
        width = widths.pop()
        if any(isclose(number, width**-0.5) for number in self.numbers):
            return (width,)
        is_named = any(isclose(number, n) for number in self.numbers for n in (width, width**0.5))
        return (None, width) if is_named else (None,)

    @property
    def tokens(self) -> bool:
        """Return whether the model takes one array, such as tokens."""
        return len(self.shapes) == 1


def read_benchmark(path: str, model: str = MODEL) -> Benchmark:
    """Read the file of a benchmark, and make its inputs once. Raises ``InputError`` if it has another form."""
    module = load_module(path)
    lacking = [
        name for name in (model, "get_inputs", "get_init_inputs") if not hasattr(module, name)
    ]
    if lacking:
        raise InputError(
            f"{path} has no {lacking[0]}; hint: a reference is a module with {model}, get_inputs and get_init_inputs"
        )
    init = tuple(_call_benchmark_function(path, module, "get_init_inputs"))
    # The arguments become part of the target's name, from which another process reads them.
    if any(not _is_literal(value) for value in init):
        raise InputError(
            f"{path}: get_init_inputs returns {init!r}; hint: numbers, words, lists of these"
        )
    try:
        instance = getattr(module, model)(*init)
        inputs = _call_benchmark_function(path, module, "get_inputs")
        arrays = [frameworks.read(a) for a in inputs if hasattr(a, "dtype")]
    except Exception as error:  # the file's own code may raise anything
        return Benchmark(init, problem=one_line(error))
    floats = [dtype for _, dtype, _ in arrays if dtype.startswith(_OF_FLOATS)]
    most_scores = _MAX_SCORES_IN_HALF if set(floats) & {*HALF} else None
    names = _names_of_inputs(instance, inputs)
    problem = "" if len(arrays) == len(inputs) else "some of its inputs are no arrays"
    if len(names) >= _OF_ATTENTION and is_module(instance):
        own_inputs = _inputs_in_module(instance)
        names += tuple(own_inputs)
        arrays += map(frameworks.read, own_inputs.values())
    # Arrays are read as float64, in which booleans and whole numbers are none.
    values = [
        values if dtype.startswith(_OF_FLOATS) else values.astype(bool if dtype == "bool" else int)
        for values, dtype, _ in arrays
    ]
    # Gates and rates have fewer axes than keys, so that an axis is one by its meaning.
    of_recurrence = cut_recurrence(dict(zip(names, values, strict=False)), _MAX_ENTRIES)
    small_arrays = of_recurrence or _cut_together(values, most_scores)
    shapes = tuple(shape for _, _, shape in arrays)
    return Benchmark(
        init,
        shapes,
        small_arrays,
        floats[0] if floats else "float32",
        _plausible_heads(instance, init, shapes),
        problem,
        names,
        _list_numbers(instance, init),
        _plausible_key_heads(instance, init),
    )


def _names_of_inputs(model: Any, inputs: Sequence[object]) -> tuple[str, ...]:
    """Return the names of the parameters that take the arrays by position; empty if a model names too few."""
    names = [p.name for p in parameters(model) or () if p.kind in PLACED]
    taken = zip(names, inputs, strict=False)
    return (
        tuple(name for name, value in taken if hasattr(value, "dtype"))
        if len(names) >= len(inputs)
        else ()
    )


def _inputs_in_module(module: Any) -> dict[str, Any]:
    """Return the parameters of a module that are inputs with a number for each head, by their names."""
    named = ((key.rpartition(".")[2], weight) for key, weight in module.named_parameters())
    return {name: weight.reshape(-1) for name, weight in named if meaning(name) in BY_HEAD}


def _plausible_heads(
    model: object, init: Sequence[object], shapes: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the numbers of heads that a model of tokens may have, the likeliest first."""
    named = heads_of(model)
    if named is not None:
        return (named,)
    if len(shapes) != 1 or not shapes[0]:
        return (1,)
    width = shapes[0][-1]
    numbers = [n for n in _list_numbers(model, init) if type(n) is int and 1 < n < width]
    several = [*dict.fromkeys(n for n in numbers if width % n == 0)][:_MAX_PLAUSIBLE_HEADS]
    # The numbers may be something else, such as a largest length.
    return (*several, 1)


def _plausible_key_heads(model: object, init: Sequence[object]) -> tuple[int, ...]:
    """Return the numbers of heads of keys that a model may have: the one it names, else its small whole numbers."""
    named = key_heads_of(model)
    if named is not None:
        return (named,)
    heads = heads_of(model) or 1
    numbers = [n for n in _list_numbers(model, init) if type(n) is int and 0 < n < heads]
    return tuple(numbers[:_MAX_PLAUSIBLE_HEADS])


def _list_numbers(model: object, init: Sequence[object]) -> tuple[float, ...]:
    """Return the numbers among the arguments and attributes of a model, each once."""
    attributes = getattr(model, "__dict__", {}).values()
    return tuple(dict.fromkeys(n for n in (*init, *attributes) if type(n) in (int, float)))


def _call_benchmark_function(path: str, module: Any, name: str) -> list[Any]:
    try:
        return list(getattr(module, name)())
    except Exception as error:
        # The caller reports a failure of the inputs, which does not end the judgement.
        if name == "get_inputs":
            raise
        raise CannotRun(f"{path}: {name} fails: {one_line(error)}") from error


def _is_literal(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _cut_together(arrays: Sequence[np.ndarray], most_scores: int | None) -> tuple[np.ndarray, ...]:
    """Return the first items along the leading axes, as few as the largest array may have, and as many of each array.

    An axis of which the arrays have different numbers is kept: heads of queries and of keys belong together.
    """
    # Tokens before heads, which are fewer: cut are heads, since a long window shows among all tokens alone.
    if arrays and all(a.ndim == _OF_HEADS and a.shape[1] > a.shape[2] for a in arrays):
        cut = _cut_together([a.swapaxes(1, 2) for a in arrays], most_scores)
        return tuple(np.ascontiguousarray(a.swapaxes(1, 2)) for a in cut)
    result = [*arrays]
    for axis in range(max((a.ndim for a in arrays), default=0) - _KEPT_AXES):
        leading = [a for a in result if a.ndim - _KEPT_AXES > axis]
        # Different numbers of heads belong together: cutting one would break the groups.
        if len({a.shape[axis] for a in leading}) > 1:
            continue
        most = min(_most_items(a, axis, most_scores) for a in leading)
        first = (slice(None),) * axis + (slice(most),)
        result = [a[first] if a.ndim - _KEPT_AXES > axis else a for a in result]
    return tuple(map(np.ascontiguousarray, result))


def _most_items(array: np.ndarray, axis: int, most_scores: int | None) -> int:
    """Return how many items along a leading axis an array may have."""
    rest: int = max(prod(array.shape) // max(array.shape[axis], 1), 1)
    most = _MAX_ENTRIES // rest
    if most_scores is not None:
        rows, columns = array.shape[-_KEPT_AXES:]
        matrices = rest // max(rows * columns, 1)
        most = min(most, most_scores // max(matrices * rows * rows, 1))
    return max(int(most), 1)
