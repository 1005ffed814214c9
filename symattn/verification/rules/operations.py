"""Replace one operation of a definition: drop an operand, take another array, the opposite operation, another axis.

The definition runs once on arrays that record how they are computed. Each mistake then runs the same code, on any kind
of array, with another operation at one site. Formulas in words use the names of the definition's own variables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.base import ArrayBase
from symattn.arrays.namespace import namespace_of
from symattn.bounds.case_result import UNFIT

Site = tuple[Any, ...]  # the calls that lead to an operation, and its step; the same in all rounds of a loop
Function = Callable[..., Any]
_LONGEST = 60  # characters of an expression that is written out
_MOST = 40  # arrays of one shape that are exchanged with each other; of more, only those with names


class RecordedOperation(NamedTuple):
    """An operation as it was called, in a step of the definition."""

    name: str
    operands: Sequence[Any]
    options: Mapping[str, Any]
    step: str


class Replacement(NamedTuple):
    """Another operation at a site, in words; ``other`` is the site of a further array that it takes."""

    site: Site
    words: str
    step: str
    run: Function
    other: Site | str = ""


class RecordedArray(ArrayBase):
    """An array of another kind, with the expression and the operation that give it."""

    name, holds = "recorded", "values with the operations that give them"
    operation: RecordedOperation | None = None

    def __init__(self, value: Any, words: str, named: bool = False, site: Site = ()) -> None:
        self.value, self.words, self.named, self.site = value, words, named, site
        self.shape, self.dtype = value.shape, value.dtype

    def __getitem__(self, key: object) -> Any:
        return type(self)(self.value[key], self.words, False, (*self.site, str(key)))


class Recording:
    """One run of a definition, as the namespace of its arrays: record each operation, or replace one of them."""

    def __init__(self, inputs: Mapping[str, Any], replacement: Replacement | None = None) -> None:
        self.replacement, self.step, self.top = replacement, "", sys._getframe(1)
        self.under = namespace_of(*inputs.values())
        self.kind: Any = type("Recorded", (RecordedArray,), {"xp": self})
        inexact = {n: a for n, a in inputs.items() if getattr(a.dtype, "kind", "f") not in "biu"}
        self.arrays: dict[Any, RecordedArray] = {n: self.kind(a, n, True) for n, a in inexact.items()}
        self.inputs: dict[str, Any] = {**inputs, **self.arrays}
        self.names: dict[str, object] = dict.fromkeys(inputs)
        self.plain: dict[int, tuple[str, object]] = {}  # by id: names of other arrays, and the arrays

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.under, name)
        return partial(self._run, name) if callable(function) and not isinstance(function, type) else function

    def _run(self, name: str, *operands: Any, **options: Any) -> Any:
        frame, new, values = sys._getframe(1), self.replacement, [_value(a) for a in operands]
        site = (*_calls(frame, self.top), self.step)
        if new is None:
            self._name(operands, frame)
        if new is not None and new.site == site:
            more = [self.arrays[new.other]] if new.other else []
            result = new.run(self.under, *values, *more, **options)
        else:
            result = getattr(self.under, name)(*values, **options)
        if not hasattr(result, "shape") or getattr(result.dtype, "kind", "f") in "biu":
            return result
        words = "" if new else self.written(name, operands, options)
        self.arrays[site] = recorded = self.kind(result, words, False, site)
        recorded.operation = RecordedOperation(name, operands, options, self.step)
        return recorded

    def _name(self, operands: Iterable[Any], frame: FrameType | None) -> None:
        """Name operands after the variables that hold them, unless another array has the name."""
        unnamed = [a for a in _arrays(operands) if not getattr(a, "named", False)]
        while unnamed and frame is not None and frame is not self.top:
            code = frame.f_code
            parameters = {"self", *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}
            for name, x in frame.f_locals.items():
                key = x.site if isinstance(x, RecordedArray) else id(x)
                own = name not in parameters and any(x is a for a in unnamed)
                if own and self.names.setdefault(name, key) == key:
                    self.plain[id(x)] = name, x
                    _named(name, x)
            frame = frame.f_back

    def word(self, operand: Any, alone: bool = False) -> str:
        """Write an operand, in brackets if it is a formula and does not stand ``alone``."""
        if isinstance(operand, list | tuple):
            return ", ".join(self.word(x, True) for x in operand)
        if not isinstance(operand, RecordedArray):
            number = np.shape(operand) == () and isinstance(operand, int | float | np.generic | np.ndarray)
            return f"{float(operand):g}" if number else self.plain.get(id(operand), ("(…)", operand))[0]
        words = operand.words if len(operand.words) <= _LONGEST else "(…)"
        return words if alone or " " not in re.sub(r"\([^()]*\)", "", words) else f"({words})"

    def written(self, name: str, operands: Sequence[Any], options: Mapping[str, Any]) -> str:
        """Write an operation as a formula."""
        arrays = [a for a in operands if isinstance(a, RecordedArray)]
        if name in _MOVING or (name == "sum" and options.get("axis") == -1 and operands[0].shape[-1] == 1):
            return self.word(arrays[-1] if arrays else operands[0], True)
        if name == "multiply" and any(type(a) is int and a == 1 for a in operands):
            return self.word(arrays[0])
        alone = [name == "add" or (name == "subtract" and not i) for i in range(len(operands))]
        axis = f"; axis {options['axis']}" if options.get("axis", -1) != -1 else ""
        called = f"{name}({self.word([*operands])}{axis})"
        return _WRITTEN.get(name, called).format(*map(self.word, operands, alone))


#: How operations are written that are not written as calls.
_WRITTEN = {"add": "{} + {}", "subtract": "{} − {}", "multiply": "{} ⊙ {}", "divide": "{}/{}", "matmul": "{} {}",
            "negative": "−{}", "matrix_transpose": "{}ᵀ"}  # fmt: skip
#: Operations that only move numbers, or guard against −∞ and 0: they are not written, and not replaced.
_MOVING = ("reshape", "broadcast_to", "expand_dims", "squeeze", "asarray", "moveaxis", "swapaxes", "stack", "where",
           "astype", "permute_dims")  # fmt: skip


def _named(name: str, x: Any) -> Any:
    """Return an array, and call it so in formulas from now on if it is recorded and has no name."""
    if isinstance(x, RecordedArray) and not x.named:
        x.words, x.named = name, True
        x.xp.arrays[name] = x
    return x


def _calls(frame: FrameType | None, top: FrameType) -> Iterator[int]:
    """Yield the places in the code from which an operation is called, up to the frame ``top``."""
    while frame is not None and frame is not top:
        yield from (id(frame.f_code), frame.f_lasti)
        frame = frame.f_back


def _arrays(operands: Iterable[Any]) -> Iterator[Any]:
    for a in operands:
        yield from _arrays(a) if isinstance(a, list | tuple) else (a,) if hasattr(a, "shape") else ()


def _value(a: Any) -> Any:
    if type(a) in (list, tuple):
        return type(a)(map(_value, a))
    return a.value if isinstance(a, RecordedArray) else a


# -- replacements of an operation --------------------------------------------------------------------------------------
_FORMS: dict[str, Function] = {
    "{0}": lambda xp, a, b=0: a + 0 * b,
    "{1}": lambda xp, a, b: 0 * a + b,
    "−{1}": lambda xp, a, b: 0 * a - b,
    "{0} + {1}": lambda xp, a, b: a + b,
    "2 ⊙ {0} + {1}": lambda xp, a, b: 2 * a + b,
    "{0} + 2 ⊙ {1}": lambda xp, a, b: a + 2 * b,
    "{0} − {1}": lambda xp, a, b: a - b,
    "{1} − {0}": lambda xp, a, b: b - a,
    "{0} ⊙ {1}": lambda xp, a, b: a * b,
    "{0}/{1}": lambda xp, a, b: a / b,
    "1/{1}": lambda xp, a, b: 0 * a + 1 / b,
    "{0} ⊙ {1}²": lambda xp, a, b: a * b * b,
    "{0}² ⊙ {1}": lambda xp, a, b: a * a * b,
    "{0}/{1}²": lambda xp, a, b: a / b / b,
    "1 + {0}": lambda xp, a: 1 + a,
    "exp(−{0})": lambda xp, a: xp.exp(-a),
    "exp2({0})": lambda xp, a: xp.exp2(a),
    "log(1 + {0})": lambda xp, a: xp.log(1 + a),
    "log({0})/log(2)": lambda xp, a: xp.log(a) / xp.log(xp.asarray(2, dtype=a.dtype)),
}
_REPLACED = {
    "add": "{0}; {1}; {0} − {1}; {1} − {0}; {0} ⊙ {1}; 2 ⊙ {0} + {1}; {0} + 2 ⊙ {1}",
    "subtract": "{0}; −{1}; {0} + {1}; {1} − {0}",
    "multiply": "{0}; {1}; {0}/{1}; {0} + {1}; {0} ⊙ {1}²; {0}² ⊙ {1}",
    "divide": "{0}; {0} ⊙ {1}; {0}/{1}²; 1/{1}",
    "maximum": "{0}; {1}",
    "sqrt": "{0}",
    "tanh": "{0}",
    "cumulative_sum": "{0}",
    "exp": "{0}; 1 + {0}; exp(−{0}); exp2({0})",
    "log": "{0}; log(1 + {0}); log({0})/log(2)",
}
#: What may become of a result.
_CHANGED: dict[str, Function] = {
    "−{}": lambda xp, y: -y,
    "2 ⊙ {}": lambda xp, y: 2 * y,
    "{}/2": lambda xp, y: y / 2,
    "{}²": lambda xp, y: y * y,
    "√{}": lambda xp, y: xp.sqrt(y),
    "the reverse along axis -1": lambda xp, y: xp.flip(y, axis=-1),
    "the reverse along axis -2": lambda xp, y: xp.flip(y, axis=-2),
}
_REDUCTIONS, _AXES = ("sum", "mean", "max"), (-1, -2, -3, 0)


def _of_same_operands(recording: Recording, result: RecordedArray) -> Iterator[tuple[str, Function]]:
    """Yield other operations on the same operands, and changes of the result, in words."""
    assert result.operation is not None
    name, operands, options, _ = result.operation
    for form in _REPLACED[name].split("; ") if name in _REPLACED else ():
        words = (recording.word(a, "(" in form or form == "{0}") for a in operands)
        yield form.format(*words), lambda xp, *of, form=form, **options: _FORMS[form](xp, *of)
    for other in _REDUCTIONS if name in _REDUCTIONS else (name,):
        for axis in _AXES if name in (*_REDUCTIONS, "cumulative_sum") else ():
            if (other != name) != (axis != options.get("axis", -1)):
                yield recording.written(other, operands, {**options, "axis": axis}), partial(_reduced, other, axis)
    right = recording.word(recording.kind(result.value, recording.written(name, operands, options)))
    for form, change in _CHANGED.items():
        yield form.format(right), partial(_changed, change, name)


def _reduced(name: str, axis: int, xp: Any, x: Any, /, **options: Any) -> Any:
    return getattr(xp, name)(x, **{**options, "axis": axis})


def _changed(change: Function, name: str, xp: Any, /, *operands: Any, **options: Any) -> Any:
    return change(xp, getattr(xp, name)(*operands, **options))


def _exchanged(name: str, place: int, xp: Any, /, *operands: Any, **options: Any) -> Any:
    """Run the operation with the last operand, a further one, at a place."""
    *own, other = operands
    own[place] = other.value
    return getattr(xp, name)(*own, **options)


def _in_other_order(name: str, place: int, inner: int, xp: Any, /, *operands: Any, **options: Any) -> Any:
    """Run the operation on an operand of the one whose result it takes, and that one after it."""
    *own, other = operands
    inside: RecordedOperation = other.operation
    own[place] = _value(inside.operands[inner])
    first = getattr(xp, name)(*own, **options)
    after = [first if a is inside.operands[inner] else _value(a) for a in inside.operands]
    return getattr(xp, inside.name)(*after, **inside.options)


def _with(operands: Sequence[Any], place: int, x: Any) -> list[Any]:
    return [*operands[:place], x, *operands[place + 1 :]]


def _with_others(recording: Recording, result: RecordedArray) -> Iterator[tuple[str, Function, Site | str]]:
    """Yield the operation with another operand of the same shape, or before the one whose result it takes."""
    assert result.operation is not None
    name, operands, options, _ = result.operation
    arrays = list(recording.arrays.items())
    before = arrays[: next(i for i, (_, x) in enumerate(arrays) if x is result)]
    for place, a in enumerate(operands):
        if not isinstance(a, RecordedArray):
            continue
        with_x = partial(_with, operands, place)
        alike = [(key, x) for key, x in before if x.words != a.words and tuple(x.shape) == tuple(a.shape)]
        for key, x in alike if len(alike) <= _MOST else ((key, x) for key, x in alike if x.named):
            yield recording.written(name, with_x(x), options), partial(_exchanged, name, place), key
        inside = a.operation
        if inside is None or inside.name in _MOVING:
            continue
        for inner, x in enumerate(inside.operands):
            if isinstance(x, RecordedArray):
                first = recording.kind(x.value, recording.written(name, with_x(x), options))
                new = [first if y is x else y for y in inside.operands]
                words = recording.written(inside.name, new, inside.options)
                yield words, partial(_in_other_order, name, place, inner), a.site


# -- mistakes of a definition ------------------------------------------------------------------------------------------
def _outputs(way: Function, recording: Recording) -> Any:
    """Compute the outputs of a definition on recorded arrays; of a specification step by step."""
    values = dict(recording.inputs)
    if not hasattr(way, "pipeline"):
        return _value(way(**values))
    for step in way.pipeline(frozenset(values)):
        recording.step = step.name
        values[step.name] = _named(step.name, step.run(*(values[n] for n in step.of)))
    return _value((values["output"], values["lse"]) if getattr(way, "lse", False) else values["output"])


def replaced(way: Function, replacement: Replacement, /, **inputs: Any) -> Any:
    """Compute the outputs of a definition with one operation replaced."""
    return _outputs(way, Recording(inputs, replacement))


def replacements(way: Function, inputs: Mapping[str, Any]) -> Iterator[Replacement]:
    """Yield the replacements of the operations that a definition runs on such inputs.

    A definition that asks which kind of array it has is recorded up to there.
    """
    recording = Recording(inputs)
    with np.errstate(all="ignore"), suppress(*UNFIT, AttributeError):
        _outputs(way, recording)
    for site, result in recording.arrays.items():
        operation = result.operation
        if operation is None or not isinstance(site, tuple) or operation.name in _MOVING:
            continue
        right = recording.written(*operation[:3])
        of_same = ((words, run, "") for words, run in _of_same_operands(recording, result))
        for words, run, other in (*of_same, *_with_others(recording, result)):
            if words != right:
                yield Replacement(site, f"{words} is taken in place of {right}", operation.step, run, other)


#: The step to blame, by the end of the name of an array of the specification.
_BLAMED = {
    "normed": "norm", "norm.output": "norm", "rotated": "position", "scores": "score", "scaled": "scale",
    "capped": "softcap", "positioned": "position", "biased": "bias", "masked": "mask", "weights": "normalize",
    "dropped": "dropout", "attended": "values", "stream": "residual", "q": "project", "k": "project", "v": "project",
    "up": "project", "gate": "project", "hidden": "project", "output": "output",
}  # fmt: skip


def blamed(name: str, default: str) -> str:
    """Return the step of a report for the array of this name."""
    return next((step for end, step in _BLAMED.items() if name.endswith(end)), default)
