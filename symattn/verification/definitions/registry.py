"""Which specifications there are beside a plain ``Attention``, and what is verified of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from symattn.attention.positions.checks import least_width
from symattn.attention.spec import Attention
from symattn.bounds.target import Layout
from symattn.document.errors import InputError
from symattn.verification.definitions.rules import of_fields
from symattn.verification.definitions.subject import Definition

if TYPE_CHECKING:
    from symattn.attention.layers.block import Block
    from symattn.attention.positions.fields import Rotary
    from symattn.verification.definitions.caches import Cached
    from symattn.verification.definitions.gradients import Gradient
    from symattn.verification.definitions.linear import LinearAttention
    from symattn.verification.definitions.merging import Merge
    from symattn.verification.definitions.norms import LayerNorm, RMSNorm
    from symattn.verification.definitions.weights import Softmax

Specification: TypeAlias = (
    "Attention | Block | Cached | Gradient | LayerNorm | LinearAttention | Merge | RMSNorm | Rotary | Softmax"
)

_ROOM = "symattn.verification.definitions."
#: The class of a specification, and the module whose ``subject`` makes it ready.
SUBJECTS = {
    "Attention": "lse",
    "Block": "blocks",
    "Cached": "caches",
    "Gradient": "gradients",
    "LayerNorm": "norms",
    "LinearAttention": "linear",
    "Merge": "merging",
    "RMSNorm": "norms",
    "Rotary": "rotary",
    "Softmax": "weights",
}


def is_definition(spec: object) -> bool:
    """Return whether a specification is one of these, and no plain ``Attention``."""
    return type(spec).__name__ in SUBJECTS and not (isinstance(spec, Attention) and not spec.lse)


def subjects_of(spec: Any, layout: Layout = "nd") -> Iterator[Definition]:
    """The specification, ready to be verified, in the forms that functions have; the usual one first.

    Raises InputError for what is none.
    """
    attention = spec if isinstance(spec, Attention) else getattr(spec, "attention", None)
    for form, definition in enumerate(_forms(spec, layout)):
        remade = partial(_form, layout, form)
        width = partial(least_width, attention) if attention is not None else int
        yield replace(definition, width=width, numbered=(*definition.numbered, *of_fields(spec, remade)), remade=remade)


def _form(layout: Layout, form: int, spec: Any) -> Definition:
    """One form of a specification."""
    return next(islice(_forms(spec, layout), form, None))


def _forms(spec: Any, layout: Layout) -> Iterator[Definition]:
    if not is_definition(spec):
        raise InputError(f"{spec!r} is not a specification; known: {', '.join(sorted(SUBJECTS))}")
    room: Any = import_module(_ROOM + SUBJECTS[type(spec).__name__])
    if hasattr(room, "subjects"):
        yield from room.subjects(spec, layout)
    elif ordered(spec):
        yield room.subject(spec, layout)
    else:
        yield from _by_axes(room.subject(spec))


def _by_axes(subject: Definition) -> Iterator[Definition]:
    """A definition as it is, and for inputs of fewer numbers of axes, as many of them as can be first.

    Functions such as norms need not take (d,), (n, d) and (b, n, d) alike: the first input has all or some of these.
    """
    yield subject
    letters = subject.inputs[0].shape.split()
    least = min(len(subject.axes_of(subject.inputs[0].name, sizes)) for sizes in subject.shapes)
    numbers = range(least, len(letters) + 1)
    for several in range(len(numbers), 0, -1):
        for chosen in combinations(numbers, several):
            yield replace(
                subject, shapes=tuple(_with_axes(s, letters, chosen[i % several]) for i, s in enumerate(subject.shapes))
            )


def _with_axes(sizes: Mapping[str, int], letters: Sequence[str], number: int) -> dict[str, int]:
    """The sizes with the last letters of an array alone, 2 and more where they lack one."""
    wanted = letters[len(letters) - number :]
    added = {letter: 2 + i for i, letter in enumerate(wanted) if letter not in sizes}
    return added | {letter: n for letter, n in sizes.items() if letter in wanted or letter not in letters}


def ordered(spec: object) -> bool:
    """Return whether there are arrays with an axis of heads, which functions have in one order or another."""
    return type(spec).__name__ in ("Attention", "Cached", "Gradient", "LinearAttention", "Merge", "Rotary")
