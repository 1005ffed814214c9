"""Derivatives of a definition as it is written: of ``Attention``, ``Block``, or any function of named arrays.

``vjp`` runs the function once on a tape and goes back: gradients with respect to all inputs, on every kind of array
with numbers as sizes. ``jvp`` runs it once on dual numbers: the change of the output along one direction. They know
nothing of attention. What implementations compute instead is in ``gradients.backward_pass``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.base import ArrayBase
from symattn.arrays.plain import of_tensor, of_tensors, real
from symattn.arrays.tape import Taped, Ties, pull_back, tape
from symattn.document.errors import InputError, Refused, Undecided, of_kind

Inputs = Mapping[str, Any]


def vjp(
    function: Callable[..., object],
    cotangent: Array,
    inputs: Inputs,
    wrt: Iterable[str] | None = None,
    ties: Ties = "refuse",
) -> dict[str, Any]:
    """Return ∂⟨G, f(…)⟩/∂x for every input x in ``wrt``: gradients by name, each in the shape of its input.

    ``cotangent`` G has the shape of the output; for several outputs it is a tuple, with None for those without one.
    Without ``wrt``, all numeric inputs are differentiated; booleans and integers have no gradient. A forbidden
    score has the gradient 0, and so has everything that only a fully masked row of zeros depends on.

    A maximum whose gradient is 0, such as the one that softmax subtracts, need not decide which argument is the
    largest. If a gradient arrives where several are equal (ReLU at 0), it is not unique: kinds that decide raise
    Undecided, or with ``ties="second"`` take that of the second argument, 0 for ReLU, like floats; balls enclose
    all of them. Decisions by comparison are taken as they are: a score of 0 in ReLU attention has the gradient 0,
    and a key at the edge of the support of sparsemax is outside. Raises InputError for names and shapes that do not
    fit, Refused if the kind lacks an operation of the derivative.

    >>> import numpy as np
    >>> from symattn.attention.spec import Attention
    >>> q, k, v = np.zeros((1, 2)), np.eye(2), np.array([[1.0], [3.0]])
    >>> vjp(Attention(scale=1), np.ones((1, 1)), {"q": q, "k": k, "v": v}, wrt=["q", "v"])
    {'q': array([[-0.5,  0.5]]), 'v': array([[0.5],
           [0.5]])}
    """
    inputs = of_tensors(_check_arrays_are_mapping("inputs", inputs))
    under, names = differentiable(inputs, wrt)
    kind = tape(under, ties)
    arrays = {
        n: kind(x, moves=n in names) if _is_differentiable_input(x, under) else x
        for n, x in inputs.items()
    }
    output = function(**arrays)
    # Outputs that no input moves, such as comparisons, are plain arrays.
    ends = [(y, g) for y, g in cotangents(under, output, cotangent) if isinstance(y, Taped)]
    return dict(zip(names, pull_back(ends, [arrays[n] for n in names]), strict=True))


def vjp_by_operands(
    function: Callable[..., object],
    operands: tuple[object, ...],
    cotangent: Array,
    places: Iterable[int] | None = None,
) -> tuple[Any, ...]:
    """Return the gradients of ⟨G, function(*operands)⟩ by the operands at ``places``, or by all of them.

    They are None for operands that hold no numbers. Of two equal arguments of a maximum, the second counts as the
    larger, as in floats.

    >>> vjp_by_operands(lambda x, y: x * y, (np.array([2.0]), np.array([3.0])), np.array([1.0]), [0])
    (array([3.]),)
    """
    # ``vjp`` takes inputs by name, so that operands are named by their places.
    every = [str(place) for place in range(len(operands))]
    chosen = every if places is None else [str(place) for place in places]
    present = {n: x for n, x in zip(every, operands, strict=True) if x is not None}
    gradients = vjp(
        lambda **arrays: function(*map(arrays.get, every)),
        cotangent,
        present,
        None if places is None else chosen,
        ties="second",
    )
    return tuple(map(gradients.get, chosen))


def detached(x: Any) -> Any:
    """Return an array as a constant of the tape that it is on, through which no gradient passes; others unchanged."""
    return type(x)(x.value) if isinstance(x, Taped) else x


def jvp(function: Callable[..., object], tangents: Inputs, inputs: Inputs) -> Any:
    """Return Σ ⟨∂f/∂x, X'⟩ over the inputs x in ``tangents``: the derivative of the output in this direction.

    Each tangent has the shape of its input. One run on dual numbers computes it (in float64 for NumPy arrays).
    Where these are impossible, because a maximum is undecided, and on residues, it is composed of the gradients of
    all elements of the output, as ``vjp`` gives them.

    >>> import numpy as np
    >>> jvp(lambda x: x * x, {"x": np.array([1.0, 0.0])}, {"x": np.array([3.0, 5.0])})
    array([6., 0.])
    """
    inputs = of_tensors(_check_arrays_are_mapping("inputs", inputs))
    tangents = of_tensors(_check_arrays_are_mapping("tangents", tangents))
    under, names = differentiable(inputs, tangents)
    directions = {
        n: _check_shape_like(
            _check_array_is_real(tangents[n], f"the tangent of {n}"),
            inputs[n],
            f"the tangent of {n}",
            n,
        )
        for n in names
    }
    base = _base_of_dual_numbers(under)
    if base is not None:
        try:
            return _by_duals(function, directions, inputs, under, base)
        # Duals need decided maxima; a tape compares them only where a gradient arrives.
        except Undecided:
            pass
    return _by_rows(function, directions, inputs, under)


def _by_duals(
    function: Callable[..., object], directions: Inputs, inputs: Inputs, under: object, base: object
) -> Any:
    from symattn.arrays.dual import dual

    kind: Any = dual(base)
    arrays = dict(inputs)
    for name, x in inputs.items():
        if _is_differentiable_input(x, under):
            arrays[name] = kind.made(
                _convert_to_base_kind(base, x), _convert_to_base_kind(base, directions.get(name, 0))
            )
    return _map_over_output_structure(
        function(**arrays), lambda y: _slope_of_output(kind, under, y)
    )


def _by_rows(
    function: Callable[..., object], directions: Inputs, inputs: Inputs, under: Any
) -> Any:
    """Return ⟨gradient of each element of the output, direction⟩."""
    kind = tape(under)
    arrays = {
        n: kind(x, moves=n in directions) if _is_differentiable_input(x, under) else x
        for n, x in inputs.items()
    }
    steps = {n: d if isinstance(d, ArrayBase) else under.asarray(d) for n, d in directions.items()}

    def slope(y: Array) -> Any:
        shape = tuple(map(int, np.shape(y)))
        # An output that no variable moves has the derivative 0.
        if not (isinstance(y, Taped) and y.moves and y.size):
            return under.zeros(shape)
        # One backward pass for each element of the output.
        units = np.eye(y.size).reshape(y.size, *shape)
        rows = (pull_back([(y, under.asarray(e))], [arrays[n] for n in steps]) for e in units)
        result = [
            sum(under.sum(g * d) for g, d in zip(row, steps.values(), strict=True)) for row in rows
        ]
        return under.reshape(under.stack(result), shape)

    return _map_over_output_structure(function(**arrays), slope)


def differentiable(inputs: Inputs, wrt: Iterable[str] | None) -> tuple[Any, list[str]]:
    """Return the namespace of the inputs, and the names ``wrt``, by default those of all numeric inputs.

    Raises InputError for other names, mixed kinds, and ``inputs`` that are no mapping.
    """
    under = _namespace_of_inputs(_check_arrays_are_mapping("inputs", inputs))
    if wrt is None:
        return under, [n for n, x in inputs.items() if _is_differentiable_input(x, under)]
    names = list(wrt)
    for name in names:
        if name not in inputs:
            raise InputError(f"no input {name!r} to differentiate by; given: {', '.join(inputs)}")
        if not _is_differentiable_input(inputs[name], under):
            what = getattr(inputs[name], "dtype", type(inputs[name]).__name__)
            kind = "floats" if under is np else under.kind.name
            raise InputError(f"{name} holds {what}: there is a gradient only by arrays of {kind}")
    return under, names


def _check_arrays_are_mapping(what: str, arrays: object) -> Inputs:
    if not isinstance(arrays, Mapping):
        raise InputError(
            f"{what} must be a mapping of names to arrays, such as {{'q': q}}, got {of_kind(arrays)}"
        )
    return arrays


def cotangents(under: Any, output: object, cotangent: Any) -> list[tuple[Any, Any]]:
    """Return the outputs that have a cotangent, each with it as an array of the same kind and shape."""
    if not isinstance(output, tuple | list):
        output, cotangent = (output,), (cotangent,)
    if not isinstance(cotangent, tuple | list) or len(cotangent) != len(output):
        raise InputError(
            f"the function has {len(output)} outputs; give a tuple of as many cotangents, or of None"
        )
    pairs = []
    for index, (y, g) in enumerate(zip(output, cotangent, strict=True)):
        # None is for an output on which the number does not depend.
        if g is not None:
            if not hasattr(y, "dtype"):
                raise InputError(f"the function returned {of_kind(y)}; it must return arrays")
            if isinstance(g, str):
                raise InputError("the cotangent is a str; give an array")
            g = (
                g
                if isinstance(g, ArrayBase)
                else under.asarray(_check_array_is_real(g, "the cotangent"), dtype=y.dtype)
            )
            pairs.append(
                (
                    y,
                    _check_shape_like(
                        g,
                        y,
                        "the cotangent",
                        f"output {index}" if len(output) > 1 else "the output",
                    ),
                )
            )
    return pairs


def _check_array_is_real(x: Array, what: str) -> Array:
    """Return ``x``, a tensor as an array. Raises InputError for complex numbers."""
    if isinstance(x, ArrayBase):
        return x
    array: Array = of_tensor(x, what)
    real(array, what)
    return array


def _namespace_of_inputs(inputs: Mapping[Any, object]) -> Any:
    """Return the namespace of the inputs: that of their kind if some have one, else NumPy's."""
    kinds = {type(x): x.__array_namespace__() for x in inputs.values() if isinstance(x, ArrayBase)}
    if len(kinds) > 1:
        raise InputError(
            f"mixed kinds: {', '.join(sorted(k.name for k in kinds))}; convert one of them first"
        )
    result = next(iter(kinds.values()), np)
    # Tapes need a kind of numbers under them.
    if kinds and not isinstance(getattr(result, "kind", None), type):
        raise Refused(f"{result!r}: no derivatives of code on this kind")
    if any(k.name == "indexed" for k in kinds):
        raise Refused(
            "indexed: derivatives by letters are formal; hint: symattn.proof.gradients.gradient"
        )
    return result


def _is_differentiable_input(x: object, under: object) -> bool:
    """Return whether an input holds numbers of the kind, so that it has a gradient."""
    if under is not np:
        return isinstance(x, ArrayBase)
    return isinstance(x, np.ndarray | np.floating) and x.dtype.kind == "f"


def _check_shape_like(values: Array, like: Array, what: str, whose: str) -> Array:
    wanted, got = (
        tuple(map(int, x.shape if isinstance(x, ArrayBase) else np.shape(x)))
        for x in (like, values)
    )
    if wanted != got:
        raise InputError(f"{what} has shape {got}, and {whose} {wanted}; they must be equal")
    return values


def _base_of_dual_numbers(under: Any) -> Any:
    """Return the kind of the parts of dual numbers; None if there are no dual numbers."""
    from symattn.arrays.entries import Entries
    from symattn.arrays.floats import Float64, Stored

    if under is np:
        return Float64
    return under.kind if issubclass(under.kind, Entries | Stored) else None


def _convert_to_base_kind(base: Any, x: object) -> Any:
    return x if isinstance(x, base) else base.lift(x)


def _slope_of_output(kind: Any, under: Any, y: Array) -> Any:
    if not isinstance(y, kind):
        return np.zeros(np.shape(y)) if under is np else under.zeros(np.shape(y))
    return y.derivative.planes[0] if under is np else y.derivative


def _map_over_output_structure(output: object, function: Callable[[Any], object]) -> Any:
    return (
        type(output)(map(function, output))
        if isinstance(output, tuple | list)
        else function(output)
    )
