"""Pictures of attention, drawn from the numbers that the documents print.

A picture is a module with a function of its parameters that returns a ``Scene``, and a line in ``_ENTRIES``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from symattn.document.codec import command
from symattn.document.drawing.picture import Picture
from symattn.document.drawing.scene import Scene
from symattn.document.errors import InputError, among, named


@dataclass(frozen=True, slots=True)
class PictureEntry:
    """A picture: its name, what it shows, its parameters, and whether it takes the fields of ``Attention``, too."""

    name: str
    shows: str
    taken: tuple[str, ...]
    fields: bool = False
    module: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters."""
        if not self.fields:
            return self.taken
        from symattn.attention.fields import field_types
        from symattn.attention.spec import Attention

        return (*self.taken, *field_types(Attention))


_ENTRIES = (
    PictureEntry(
        "scaling",
        "the variance of scores grows with d_k, and 1/√d_k undoes it",
        ("dk", "draws", "seed"),
    ),
    PictureEntry("saturation", "weights saturate and slopes collapse as d_k grows", ("dk",)),
    PictureEntry(
        "error",
        "errors of correct code against the bound, over n, d_k and dtype",
        ("seed",),
        False,
        "symattn.verification.tolerances.drawing",
    ),
    PictureEntry("weights", "a heat map of exact weights", ("source", "head"), True),
    PictureEntry(
        "geometry",
        "queries and keys at their angles, the output as a sum of values",
        ("source", "query"),
        True,
    ),
    PictureEntry(
        "shapes", "the arrays of a specification with their shapes, step by step", ("source",), True
    ),
    PictureEntry(
        "rope", "rotations of queries and keys, and the speed of each plane", ("dk", "tokens")
    ),
    PictureEntry(
        "tiles", "tiles of keys as they merge in one pass", ("source", "query", "tile"), True
    ),
    PictureEntry("masks", "which query may attend to which key", ("tokens", "keys"), True),
)


def names() -> dict[str, PictureEntry]:
    """Return the pictures by name."""
    return {entry.name: entry for entry in _ENTRIES}


def draw(topic: str = "scaling", **parameters: object) -> Picture:
    """Return a picture by its name; its numbers are exact, enclosed, or drawn with a seed that it states.

    ``parameters`` are those of the picture, by the names of the command line or by their letters (``d_k=64``); pictures
    of a specification take the fields of ``Attention`` too, pictures of an example its name, file or arrays as
    ``source``. Raises InputError for an unknown name or parameter, or a value that is out of range.

    >>> picture = draw("masks", causal=True, n=3)
    >>> picture
    <picture 'masks': Which keys each query may attend to: causal; .svg(), .save(path)>
    >>> picture.svg().count("<title>the query")
    9
    """
    entries = names()
    if named("draw()", topic) not in entries:
        raise InputError(f"unknown picture {topic!r}{among(topic, entries)}")
    from symattn.derivations.parameters import checked

    arguments = checked(topic, entries[topic].parameters, parameters, "draw")
    module = import_module(entries[topic].module or f"symattn.derivations.drawing.{topic}")
    scene = cast(Callable[..., Scene], module.scene)(**arguments)
    source = [x for x in (arguments.pop("source", None),) if isinstance(x, str)]
    options = {name: tuple(x) if isinstance(x, list) else x for name, x in arguments.items()}
    return Picture(topic, scene, command("draw", topic, *source, options=options))
