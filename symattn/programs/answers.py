"""Answers of a process that is not trusted, checked in every field before anything else reads them.

``messages`` reads them as data; a dataclass may still lack fields, or have fields of other types, or numbers that no
code of symattn's own gives. ``has_declared_types`` compares them with the types that their classes declare.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite, prod
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from symattn.arrays.residues import primes
from symattn.bounds.called_target import Convention, Outcome
from symattn.bounds.inputs import Sizes
from symattn.document.evidence import Grade

#: Larger numbers are none of an answer: to show or to compare them takes long, or raises.
LARGEST = 1 << 64
#: Characters of a text; more is no message, and nothing that a call prints (``calls``).
_LONGEST = 1 << 20
#: The same of a size; and the scores, or the entries of an input, of one case at which residues differ.
_LARGEST_SIZE, _MOST_SCORES, _MOST_ENTRIES = 1 << 20, 1 << 26, 1 << 26
#: Sizes of one case or array; NumPy has no more axes.
_MOST_AXES = 64
#: Stages of sizes, and witnesses of one result.
_MOST_STAGES, _MOST_WITNESSES = 100, 1000
#: Containers within containers of a constant, which is printed.
_DEEPEST = 16


def has_declared_types(x: Any, hint: Any) -> bool:
    """Return whether a value has a declared type; a dataclass with all its fields, which have theirs.

    Any type will do for ``Any`` and ``object``, if it can be printed.

    >>> has_declared_types((1, 2), tuple[int, ...]), has_declared_types((1, "2"), tuple[int, ...])
    (True, False)
    """
    if hint in (Any, object):
        return _is_printable(x)
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(has_declared_types(x, part) for part in parts)
    if origin is Literal:
        # Types are compared as well, since True == 1.
        return any(type(x) is type(word) and x == word for word in parts)
    if isinstance(origin, type) and issubclass(origin, tuple):
        return type(x) is tuple and _have_types(x, parts)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(x, Mapping) and all(
            has_declared_types(name, parts[0]) and has_declared_types(value, parts[1])
            for name, value in x.items()
        )
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return isinstance(x, list | tuple) and all(has_declared_types(one, parts[0]) for one in x)
    return _is_of_class(x, hint if origin is None else origin)


def is_complete(x: Any, kind: type) -> bool:
    """Return whether an object is of a dataclass, with all of its fields: a message may bring one without."""
    return type(x) is kind and all(hasattr(x, field.name) for field in fields(kind))


def is_convention(x: Any) -> bool:
    """Return whether an answer says how a function is called."""
    return isinstance(x, Convention) and has_declared_types(x, type(x))


def is_outcome(x: Any) -> bool:
    """Return whether an answer is the result of a call."""
    return is_complete(x, Outcome) and has_declared_types(x, Outcome) and x.has_fitting_types


def is_identity(x: Any, is_of_attention: bool = True) -> bool:
    """Return whether an answer is a result of residues, in numbers that these have.

    That of an attention has sizes of which inputs can be made; that of another definition names them.
    """
    # slow to import, and needed only once residues were asked
    from symattn.verification.semantics import IdentityResult

    if type(x) is not IdentityResult or not has_declared_types(x, IdentityResult):
        return False
    epsilons = [e for e in (x.epsilon, x.evidence.epsilon) if e is not None]
    # ε belongs to this grade alone.
    is_tested = x.evidence.grade is Grade.TESTED
    is_graded = is_tested == (x.evidence.epsilon is not None)
    is_graded = is_graded and (x.agrees is not True or is_tested == (x.epsilon is not None))
    are_stages = 0 <= x.stages <= x.planned <= _MOST_STAGES
    witnesses = (*x.witnesses, *x.held_out)
    return (
        all(0 <= epsilon <= 1 for epsilon in epsilons)
        and is_graded
        and are_stages
        and all(_are_sizes(shape.values()) for shape in (*x.shapes, *x.unbounded))
        and len(witnesses) <= _MOST_WITNESSES
        and all(map(_is_witness, witnesses))
        and (x.difference is None or _is_difference(x.difference, is_of_attention))
    )


def _is_difference(x: Any, is_of_attention: bool) -> bool:
    """Return whether an object says where residues differ, at sizes of which inputs can be made."""
    if not is_of_attention:
        return isinstance(x.sizes, str)
    if not isinstance(x.sizes, Sizes):
        return False
    sizes = x.sizes
    rows, columns = (sizes.n_q, sizes.n_k), (sizes.d_k, sizes.d_v, sizes.d_model)
    if not _are_sizes((*rows, *columns, *sizes.batch)):
        return False
    items = prod(sizes.batch)
    # Few scores may still have many items, or long rows.
    entries = items * max(rows) * max(columns)
    return items * prod(rows) <= _MOST_SCORES and entries <= _MOST_ENTRIES


def _are_sizes(numbers: Any) -> bool:
    # Products of more numbers would take long.
    return len(numbers) <= _MOST_AXES and all(0 <= n <= _LARGEST_SIZE for n in numbers)


def _is_witness(x: Any) -> bool:
    """Return whether the inputs of a witness can be drawn again: at primes of residues, in shapes of a few entries."""
    p, q, seed = x.point
    are_small = all(
        _are_sizes(shape) and prod(shape) <= _MOST_SCORES for shape in x.shapes.values()
    )
    return (
        primes.is_pair(p, q)
        and seed >= 0
        and are_small
        and all(name in x.shapes and _fits(a.shape, x.shapes[name]) for name, a in x.given.items())
    )


def _fits(shape: Sequence[int], stated: Sequence[int]) -> bool:
    """Return whether an array may be the one of which a shape is stated: a mask may be passed with further axes."""
    return prod(shape) <= _MOST_SCORES and tuple(shape[-1:]) == tuple(stated[-1:])


def _is_of_class(x: Any, kind: Any) -> bool:
    """Return whether a value is of a class: numbers and texts within limits, dataclasses with fields of their types."""
    # Not ``isinstance``, since True is an int in Python.
    if kind is int:
        return type(x) is int and -LARGEST <= x <= LARGEST
    if kind is float:
        return (type(x) is float and isfinite(x)) or _is_of_class(x, int)
    if kind is str:
        return type(x) is str and len(x) <= _LONGEST
    if kind in (bool, None, NoneType):
        return isinstance(x, bool if kind is bool else NoneType)
    if not isinstance(kind, type) or not isinstance(x, kind):
        return False
    # A class that extends the declared one has fields of its own.
    return not is_dataclass(x) or _have_fields_types(x)


def _have_types(x: tuple[Any, ...], parts: tuple[Any, ...]) -> bool:
    """Return whether the items of a tuple have the types of ``tuple[int, str]``, or of ``tuple[int, ...]``."""
    if parts[1:] == (...,):
        return all(has_declared_types(one, parts[0]) for one in x)
    return len(x) == len(parts) and all(map(has_declared_types, x, parts))


def _have_fields_types(x: Any) -> bool:
    kind: Any = type(x)
    hints = _hints_of_fields(kind)
    return all(
        hasattr(x, name) and has_declared_types(getattr(x, name), hint)
        for name, hint in hints.items()
    )


@cache
def _hints_of_fields(kind: Any) -> dict[str, Any]:
    """Return {field: declared type}; that of a name which only a type checker imports is any type."""
    # An extended class is of another module than the class that it extends.
    known = {name for base in kind.__mro__ for name in vars(sys.modules[base.__module__])}

    class TypesByName(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            # What a module has is looked up there.
            if name in known:
                raise KeyError(name)
            return object

    hints = get_type_hints(kind, None, TypesByName())
    return {field.name: hints[field.name] for field in fields(kind)}


def _is_printable(x: Any, depth: int = 0) -> bool:
    """Return whether a constant can be printed: no number or text is too long, and no container too deep."""
    if depth > _DEEPEST:
        return False
    if type(x) is int or type(x) is str:
        return _is_of_class(x, type(x))
    if isinstance(x, Mapping):
        return all(_is_printable(one, depth + 1) for pair in x.items() for one in pair)
    if isinstance(x, list | tuple | set | frozenset):
        return all(_is_printable(one, depth + 1) for one in x)
    return True
