"""What is verified: a definition by its inputs, its outputs, and the ways of computing them that are equal.

A way is a function of the inputs by name, written once for all kinds of arrays. On ``rounded`` it gives the exact
outputs, and the bound on every implementation that computes them in this way; what is allowed is the largest of the
bounds. A known mistake is a function of the same inputs that computes something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.verification.domain import Domain

Array = np.ndarray
Random = np.random.Generator
Inputs = Mapping[str, Array]
Compute = Callable[..., Any]  # of arrays by name, on any kind: an array, or a tuple of them
Entries = Callable[[tuple[int, ...], Random], Array]
Numbers = Callable[[str, tuple[int, ...]], Array]  # of an input's name and shape
Family = Callable[[Random], Numbers]  # how the numbers of one case are drawn


#: What letters mean in a domain, unless a subject says otherwise.
_MEANS = {"n": ("n_q", 1), "d": ("d_k", 1)}


@dataclass(frozen=True)
class Input:
    """An array that the definition takes.

    ``shape`` names its axes by letters, ``b h n 2*f``: an axis may be a product of letters and numbers, and is left
    out where the sizes lack a letter of it. ``words`` are other names that parameters have for it; ``entries`` are its
    numbers where they are not those of the family that is tried; a function may lack what is not ``needed``. What is
    ``made`` of the other inputs, such as an output that was saved, is not drawn.
    """

    name: str
    shape: str
    words: str = ""
    entries: Entries | None = None
    needed: bool = True
    made: Callable[[Inputs], Array] | None = None


@dataclass(frozen=True)
class Form:
    """A way of computing, and what it is in words."""

    words: str
    run: Compute

    def __call__(self, **given: Any) -> Any:
        return self.run(**given)


@dataclass(frozen=True)
class Mistake:
    """A known mistake: the step that it is in, the cause in words, and what is then computed.

    ``exact``: in exact numbers it gives something else. A mistake that is not loses digits, no more.
    """

    step: str
    cause: str
    run: Compute
    exact: bool = True


@dataclass(frozen=True)
class Subject:
    """A definition, ready to be verified.

    title     what it is, for the report
    step      the step that a fault is in of which no more is known
    inputs    the arrays, in the usual order of parameters
    outputs   names of what is returned, in order
    ways      equal ways of computing the outputs
    mistakes  known mistakes
    others    further ones, which are looked at where none of those explains what was seen
    sizes     sizes by letter, for each case that is tried for its shape; others are drawn from these
    families  how numbers are drawn: a name, and the function
    settings  values of parameters that are no arrays, by name; a function of the inputs where it depends on them
    kept      letters that are the same in every case, however small
    means     letters that stand for the n_q, n_k, d_k, d_v or d_model of a domain, with the factor by
              which that is larger; ``n`` is n_q and ``d`` is d_k otherwise
    changes   inputs that a call may change
    loose     outputs of which axes of length 1 may differ
    finish    what is changed in inputs that have been drawn, such as slots that are to be empty
    admits    which inputs, of which sizes, the definition has a result for
    open      which of these leave every query some key
    closing   inputs with queries that no key is left to, made of others
    """

    title: str
    step: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    ways: tuple[Compute, ...]
    mistakes: tuple[Mistake, ...]
    sizes: tuple[Mapping[str, int], ...]
    families: Mapping[str, Family]
    others: tuple[Mistake, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()
    finish: Callable[[dict[str, Array]], dict[str, Array]] = lambda inputs: inputs
    admits: Callable[[Inputs, Mapping[str, int]], bool] = lambda inputs, sizes: True
    open: Callable[[Inputs, Mapping[str, int]], bool] = lambda inputs, sizes: True
    closing: Callable[[dict[str, Array]], dict[str, Array]] | None = None
    means: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def shape(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of an input for these sizes."""
        return tuple(prod(known(f, sizes) for f in axis) for axis in self.axes(name, sizes))

    def axes(self, name: str, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
        """The letters of each axis of an input, as far as the sizes have them."""
        shape = next(i.shape for i in self.inputs if i.name == name)
        found = (tuple(axis.split("*")) for axis in shape.split())
        return tuple(a for a in found if all(f.isdecimal() or f in sizes for f in a))

    def sizes_of(self, inputs: Inputs) -> dict[str, int]:
        """The letters' sizes, from the arrays; leading axes that an array lacks are left out."""
        found = self._fixed()
        axes = [pair for name, a in inputs.items() for pair in self._lengths(name, np.shape(a))]
        for factors, length in sorted(axes, key=lambda pair: len(pair[0])):
            unknown = [f for f in factors if not f.isdecimal() and f not in found]
            if len(unknown) == 1:
                found[unknown[0]] = length // max(prod(known(f, found) for f in factors if f != unknown[0]), 1)
        return found

    def _fixed(self) -> dict[str, int]:
        """The letters that are the same in every case: of h*d_k, the number of heads."""
        told = {x: {sizes.get(x) for sizes in self.sizes} for x in sorted(self.kept)}
        return {x: n for x, of in told.items() if len(of) == 1 and (n := next(iter(of))) is not None}

    def _lengths(self, name: str, shape: tuple[int, ...]) -> list[tuple[list[str], int]]:
        axes = next(i.shape for i in self.inputs if i.name == name).split()
        return [(a.split("*"), n) for a, n in zip(reversed(axes), reversed(shape), strict=False)]

    def meaning(self, letter: str) -> tuple[str, int]:
        """What a letter is in a domain, and the factor by which that is larger."""
        return self.means.get(letter, _MEANS.get(letter, (letter, 1)))

    def named(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes as a domain names them."""
        return {name: factor * sizes[x] for x in sizes for name, factor in [self.meaning(x)]}

    def admitted(self, inputs: Inputs, domain: Domain | None = None) -> bool:
        """Whether the definition has a result for these inputs, and the domain has such."""
        sizes, domain = self.sizes_of(inputs), domain or Domain()
        if not self.admits(inputs, sizes) or not domain.admits(self.named(sizes)):
            return False
        return domain.fully_masked_rows or self.open(inputs, sizes)

    def completed(self, inputs: Inputs, precision: Precision) -> dict[str, Array]:
        """The inputs, with those that are made of others, as the format holds them."""
        made = {i.name: i.made for i in self.inputs if i.made is not None and i.name in inputs}
        given = {n: a for n, a in inputs.items() if n not in made}
        found = {n: np.asarray(make(given)) for n, make in made.items()}
        rounded = {n: a if a.dtype.kind in "biu" else precision.input.rounded(a) for n, a in found.items()}
        return self.finish({**given, **rounded})

    def run(self, way: Compute, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs, as a tuple."""
        found = way(**arrays)
        return found if isinstance(found, tuple) else (found,)


def known(factor: str, sizes: Mapping[str, int]) -> int:
    """The size of a letter, or a number."""
    return int(factor) if factor.isdecimal() else sizes[factor]
