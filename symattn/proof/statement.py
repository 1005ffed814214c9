"""Statements as functions of arrays, and the worlds they run in: letters for all sizes, or numbers at given sizes.

A statement declares its arrays by shapes in sorts, ``{"q": "n d", "k": "m d"}``: a shape is its axes, an axis a sum
(``p+1``) of products (``h*d``) of sorts and numbers. Its function takes these arrays by name and, if it has such a
parameter, the length of a sort (``n``), a declared permutation (``pi``) and the namespace (``xp``); it returns pairs of
arrays that are claimed to be equal.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any

import numpy as np

from symattn.arrays.index.array import Permutation
from symattn.arrays.index.axes import Axis, withheld
from symattn.arrays.indexed import Indexed
from symattn.arrays.notes import assigned, meeting
from symattn.document.errors import (
    InputError,
    Meaningless,
    MissingEntry,
    Refused,
    SymattnError,
)
from symattn.document.stored_results import ROOT
from symattn.document.text import equal_sizes
from symattn.proof import drawing
from symattn.proof.code import raised_in_symattn, reached

Pair = tuple[Any, Any]  # two sides: arrays of one kind, or numbers
Sides = Callable[..., Any]
_TYPES = "indexed: the code asks for types, and lengths are letters; hint: compare lengths"


@dataclass(frozen=True)
class Declared:
    """The arrays of a statement: name → shape in sorts. ``positive`` names the arrays with positive entries,
    ``nonnegative`` those with nonnegative entries; ``permutations`` maps the name of a permutation to its sort;
    ``units`` holds pairs of names (cos, sin) with cos² + sin² = 1 in every entry."""

    arrays: Mapping[str, str]
    permutations: Mapping[str, str] = field(default_factory=dict)
    positive: tuple[str, ...] = ()
    units: tuple[tuple[str, str], ...] = ()
    nonnegative: tuple[str, ...] = ()

    def sorts(self) -> list[str]:
        """Return the letters for sizes, sorted."""
        shapes = (*self.arrays.values(), *self.permutations.values())
        return sorted(sorts_in(shapes))


def sorts_in(shapes: Iterable[str]) -> set[str]:
    """Return the letters for sizes in shapes."""
    words = (
        # "f*2" and "a+b" are products and sums of sizes.
        f
        for shape in shapes
        for axis in shape.split()
        for b in axis.split("+")
        for f in b.split("*")
    )
    return {w for w in words if not w.isdigit()}


def pairs(
    sides: Sides,
    declared: Declared,
    world: Letters | Numbers,
    more: Mapping[str, object] | None = None,
) -> list[Pair]:
    """Run ``sides`` in ``world`` and return the pairs of arrays that it claims to be equal; see ``run``."""
    result = run(sides, declared, world, more)
    every = [result] if isinstance(result, tuple) else list(result)
    if isinstance(world, Numbers):
        # Numbers have shapes that must agree; letters have sorts.
        fitting(
            world,
            lambda: [
                np.broadcast_shapes(*(getattr(x, "shape", ()) for x in pair)) for pair in every
            ],
        )
    return every


def run(
    function: Sides,
    declared: Declared,
    world: Letters | Numbers,
    more: Mapping[str, object] | None = None,
) -> Any:
    """Run ``function`` in ``world``; its parameters are names that are declared, or keys of ``more``.

    Raises what letters refuse, even if the function itself catches it.
    """
    arguments = {
        name: world.array(name, shape, declared) for name, shape in declared.arrays.items()
    } | dict(more or {})
    parameters = inspect.signature(function).parameters
    passed = {
        name: _find_statement_argument(name, arguments, declared, world) for name in parameters
    }
    positional = [passed.pop(name) for name, p in parameters.items() if p.kind is p.POSITIONAL_ONLY]
    letters = isinstance(world, Letters)
    # Code that asks for the types of its arguments may do something else for letters.
    meaningless = letters and _asks_types(function)
    refusals: list[Refused] = [Meaningless(_TYPES)] if meaningless else []
    with assigned(withheld, refusals if letters else None):
        result = fitting(world, lambda: function(*positional, **passed))
    if refusals:
        raise refusals[0]
    return result


def _asks_types(function: object) -> bool:
    """Return whether a user's code uses ``type``: a length in letters cannot refuse to reveal its type."""
    # symattn's own code is trusted not to ask.
    if str(getattr(function, "__module__", "")).startswith("symattn."):
        return False
    every = (x for x in reached(function) if isinstance(x, CodeType) and "type" in x.co_names)
    users = (code for code in every if not Path(code.co_filename).is_relative_to(ROOT))
    # Only a load of the builtin counts; an attribute of that name is another thing.
    loads = (i for code in users for i in dis.get_instructions(code) if i.argval == "type")
    return any(i.opname in ("LOAD_GLOBAL", "LOAD_NAME") for i in loads)


def fitting(world: Letters | Numbers, work: Callable[[], object]) -> Any:
    """Do ``work``. Raises Meaningless if NumPy refuses shapes or an index within the operations of symattn's arrays."""
    try:
        return work()
    except (ValueError, IndexError) as error:
        # Errors of the user's own code pass as they are.
        if (
            not isinstance(world, Numbers)
            or isinstance(error, SymattnError)
            or not raised_in_symattn(error)
        ):
            raise
        where = equal_sizes(world.sizes) or "the declared shapes"
        why = str(error).strip()
        if isinstance(error, IndexError):
            raise MissingEntry(
                f"an entry is missing at {where}: {why}; hint: an axis such as n+2 has 3 or more"
            ) from error
        raise Meaningless(f"shapes do not fit at {where}: {why}") from error


def _find_statement_argument(
    name: str, values: Mapping[str, object], declared: Declared, world: Letters | Numbers
) -> Any:
    # Arrays first, then permutations, then lengths.
    if name in values:
        return values[name]
    if name in declared.permutations:
        return world.permutation(name, declared.permutations[name])
    if name in declared.sorts():
        return world.length(name)
    if name == "xp":
        return world.xp
    raise InputError(
        f"the statement asks for {name!r}, which it declares neither as an array nor as a length"
    )


class Letters:
    """The world in which sizes and entries are letters."""

    @property
    def xp(self) -> Any:
        """The namespace of its arrays."""
        return Indexed.xp

    def array(self, name: str, shape: str, declared: Declared) -> Any:
        return Indexed.letters(
            name, *[self.axis(a) for a in shape.split()], positive=name in declared.positive
        )

    def axis(self, text: str) -> Any:
        return Axis(
            [
                tuple(int(f) if f.isdigit() else f for f in block.split("*"))
                for block in text.split("+")
            ]
        )

    def length(self, sort: str) -> Any:
        return self.axis(sort)

    def permutation(self, name: str, sort: str) -> Any:
        return Permutation(name, sort)


class Numbers:
    """The world at given sizes, with entries drawn by a seed: small ones, or ``wild`` ones (see ``drawing``).

    They are exact, or ``balls`` for statements with functions that leave the decidable field, or ``floats``, which
    only suggest where to look. ``literals`` are numbers that the statement names.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        seed: int = 0,
        balls: bool = False,
        wild: bool = False,
        floats: bool = False,
        literals: tuple[Fraction, ...] = (),
    ) -> None:
        self.sizes = dict(sizes)
        self.seed = seed
        self.balls = balls
        self.wild = wild
        self.floats, self.literals = floats, literals
        self.ball: Any = None  # the kind of balls, if not ``Ball``
        self.readers: dict[Any, Any] = {}  # of formulas, at these numbers (see ``Compiled.stated``)

    @property
    def kind(self) -> Any:
        """The kind of its arrays."""
        from symattn.arrays.ball import Ball
        from symattn.arrays.exact import Exact

        # Floats screen, balls confirm, exact numbers decide.
        if self.floats:
            from symattn.arrays.floats import Float64

            return Float64
        return (self.ball or Ball) if self.balls else Exact

    @property
    def xp(self) -> Any:
        """The namespace of its arrays."""
        return self.kind.xp

    def lift(self, entries: object) -> Any:
        """Return rational entries as an array of this world."""
        with meeting():  # drawn numbers are not literals of the statement
            return self.kind.lift(entries)

    def array(self, name: str, shape: str, declared: Declared) -> Any:
        lengths = [self.axis(a) for a in shape.split()]
        seats = drawing.on_circles(declared.units, declared.arrays)
        if name in seats:
            entries = self._on_circle(name, prod(lengths), *seats[name])
        else:
            # A positive array is nonnegative, too.
            sign = "positive" if name in declared.positive else "real"
            sign = "nonnegative" if sign == "real" and name in declared.nonnegative else sign
            entries = self._list_drawn_entries(name, lengths, sign)
        return self.lift(np.array(entries, dtype=object).reshape(lengths))

    def _list_drawn_entries(
        self, name: str, lengths: list[int], sign: drawing.Sign
    ) -> list[Fraction]:
        random, count = self._random_generator_of_array(name), prod(lengths)
        return (
            drawing.wild(random, count, sign, self.literals)
            if self.wild
            else drawing.plain(random, count, sign)
        )

    def _on_circle(
        self, name: str, count: int, of: str, cosine: bool, several: bool
    ) -> list[Fraction]:
        """Return cosines or sines; with ``several``, where only the squares are related, with random signs."""
        points = drawing.circle(self._random_generator_of_array(of), count, self.wild)
        entries = [c if cosine else s for c, s in points]
        if not several:
            return entries
        random = self._random_generator_of_array(name)
        return [random.choice((1, -1)) * x for x in entries]

    def _random_generator_of_array(self, name: str) -> Random:
        """Return the random generator of an array; wild entries differ from size to size."""
        return Random(
            f"{self.seed} {name} {sorted(self.sizes.items())}"
            if self.wild
            else f"{self.seed} {name}"
        )

    def axis(self, text: str) -> int:
        return sum(
            prod(int(f) if f.isdigit() else self.sizes[f] for f in b.split("*"))
            for b in text.split("+")
        )

    def entry_counts(self, declared: Declared) -> list[int]:
        """Return the number of entries of each array."""
        shapes = declared.arrays.values()
        return [prod(map(self.axis, shape.split())) for shape in shapes]

    def length(self, sort: str) -> int:
        return self.sizes[sort]

    def permutation(self, name: str, sort: str) -> np.ndarray:
        return np.array(
            drawing.order(self._random_generator_of_array(name), self.axis(sort), self.wild),
            dtype=np.int64,
        )


def growing_sizes(sorts: Iterable[str], top: int) -> Iterable[dict[str, int]]:
    """Return all sizes from 1 to ``top``, the small ones first."""
    from itertools import product

    names = list(sorts)
    every = product(range(1, top + 1), repeat=len(names))
    return (
        dict(zip(names, sizes, strict=True))
        # By their sum: small counterexamples come first.
        for sizes in sorted(every, key=lambda s: (sum(s), max(s, default=0)))
    )
