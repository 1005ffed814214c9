"""The specifications besides a plain ``Attention``, the definitions of each, and their spelling: ``gradient``,
``LayerNorm(eps=1e-6)``, ``Block(norm='rms')``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from symattn.attention.positions.checks import least_width
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Layout
from symattn.document.codec import spelled
from symattn.document.errors import InputError
from symattn.verification.attention import is_plain

if TYPE_CHECKING:
    from symattn.attention.layers.block import Block
    from symattn.attention.positions.position_fields import Rotary
    from symattn.verification.definitions.caches import Cached
    from symattn.verification.definitions.definition_mistakes import Remade
    from symattn.verification.definitions.definition_subject import Definition
    from symattn.verification.definitions.differential import Differential
    from symattn.verification.definitions.gradients import Gradient
    from symattn.verification.definitions.linear import LinearAttention
    from symattn.verification.definitions.merging import Merge
    from symattn.verification.definitions.norms import LayerNorm, RMSNorm
    from symattn.verification.definitions.weights import Softmax

Specification: TypeAlias = (
    "Attention | Block | Cached | Differential | Gradient | LayerNorm"
    " | LinearAttention | Merge | RMSNorm | Rotary | Softmax"
)

# Modules are imported by name, as a run needs one of them.
_ROOM = "symattn.verification.definitions."
#: The class of a specification, and the module whose ``subject`` returns its definition.
SUBJECTS = {
    "Attention": "lse",
    "Block": "blocks",
    "Cached": "caches",
    "Differential": "differential",
    "Gradient": "gradients",
    "LayerNorm": "norms",
    "LinearAttention": "linear",
    "Merge": "merging",
    "RMSNorm": "norms",
    "Rotary": "rotary_vectors",
    "Softmax": "weights",
}


def is_definition(spec: object) -> TypeGuard[Specification]:
    """Return whether a specification is one of these, and not a plain ``Attention``."""
    return type(spec).__name__ in SUBJECTS and not is_plain(spec)


def subjects_of(spec: Any, layout: Layout = "nd") -> Iterator[Definition]:
    """Yield the definitions of a specification, one for each form of functions; the usual one first.

    Raises ``InputError`` for anything but a specification.
    """
    from symattn.verification.definitions.definition_mistakes import (
        of_fields,
    )  # a plain attention does not need it

    attention = spec if isinstance(spec, Attention) else getattr(spec, "attention", None)
    for form, definition in enumerate(_yield_definition_forms(spec, layout)):
        remade: Remade = partial(_definition_of_form, layout=layout, form=form)
        # Positions and latents of an attention may need more columns.
        width = partial(least_width, attention) if attention is not None else int
        numbered = (*definition.numbered, *of_fields(spec, remade))
        yield replace(definition, width=width, numbered=numbered, remade=remade, described=spec)


def _definition_of_form(spec: Any, layout: Layout, form: int) -> Definition:
    """Return the definition of a specification in one of its forms, counted from 0."""
    return next(islice(_yield_definition_forms(spec, layout), form, None))


def _yield_definition_forms(spec: Any, layout: Layout) -> Iterator[Definition]:
    if not is_definition(spec):
        raise InputError(f"{spec!r} is not a specification; known: {', '.join(sorted(SUBJECTS))}")
    room: Any = import_module(_ROOM + SUBJECTS[type(spec).__name__])
    # A module with several forms of functions yields each of them.
    if hasattr(room, "subjects"):
        yield from room.subjects(spec, layout)
    elif ordered(spec):
        yield room.subject(spec, layout)
    else:
        # Functions such as norms need not accept all of (d,), (n, d) and (b, n, d) as their first input: after the
        # definition as it is come fewer different numbers of axes, as many as possible first.
        subject = room.subject(spec)
        yield subject
        letters = subject.inputs[0].shape.split()
        least = min(len(subject.axes_of(subject.inputs[0].name, sizes)) for sizes in subject.shapes)
        numbers = range(least, len(letters) + 1)
        for several in range(len(numbers), 0, -1):
            for chosen in combinations(numbers, several):
                yield replace(
                    subject,
                    shapes=tuple(
                        _with_axes(s, letters, chosen[i % several])
                        for i, s in enumerate(subject.shapes)
                    ),
                )


def _with_axes(sizes: Mapping[str, int], letters: Sequence[str], number: int) -> dict[str, int]:
    """Return the sizes with only the last letters of an array; a missing letter gets a size of 2 or more."""
    wanted = letters[len(letters) - number :]
    # Sizes from 2 on, different from each other, so that exchanged axes show.
    added = {letter: 2 + i for i, letter in enumerate(wanted) if letter not in sizes}
    return added | {
        letter: n for letter, n in sizes.items() if letter in wanted or letter not in letters
    }


def ordered(spec: object) -> bool:
    """Return whether arrays may have an axis of heads, whose order differs between functions."""
    return type(spec).__name__ in (
        "Attention",
        "Cached",
        "Differential",
        "Gradient",
        "LinearAttention",
        "Merge",
        "Rotary",
    )


LSE = "lse"  # an Attention with lse=True
_WORDS = {
    "Attention": LSE,
    "Cached": "cached",
    "Gradient": "gradient",
    "Merge": "merge",
    "Softmax": "softmax",
}
KINDS = {_WORDS.get(name, name): name for name in SUBJECTS}
"""The classes of definitions, by their words on a command line."""


def written(spec: Specification) -> str:
    """Return a definition as on a command line; the fields of its attention are separate options.

    >>> from symattn import LayerNorm
    >>> written(LayerNorm(eps=0.5)), written(Attention(lse=True))
    ('LayerNorm(eps=0.5)', 'lse')
    """
    if isinstance(spec, Attention):
        return LSE
    words = spelled(spec, without="attention")
    return words if "(" in words else next(word for word in KINDS if word.lower() == words)


def attention_of(spec: Specification) -> Attention | None:
    """Return the attention of a definition, as given by options."""
    return (
        replace(spec, lse=False)
        if isinstance(spec, Attention)
        else getattr(spec, "attention", None)
    )
