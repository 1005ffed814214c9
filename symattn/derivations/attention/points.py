"""Steps on another kind than letters: what no textbook has at rational points in balls, what compares on numbers.

A step on letters and the same step on balls around the values of the letters must overlap. That is no proof; where they
are disjoint, one of the two is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.arrays.exact import Exact
from symattn.arrays.special import FORBIDDEN, Forbidden, Undefined
from symattn.arrays.symbolic import Symbolic, ball_of
from symattn.attention.flow import Step
from symattn.attention.inputs import lengths
from symattn.derivations.attention.entries import expected
from symattn.derivations.attention.inputs import Request
from symattn.derivations.walks.tokens import Numbers, same
from symattn.document.evidence import Evidence, Grade

_POINTS, _BITS = 3, 192


def agrees_at_points(step: Step, given: Mapping[str, object], found: object) -> Evidence | None:
    """The evidence that both kinds agree at some points; None where they do not."""
    for seed in range(_POINTS):
        with precision(_BITS):
            if not _agrees(step, given, found, seed):
                return None
    return Evidence(Grade.SAMPLED, f"letters and balls at {_POINTS} points")


def _agrees(step: Step, given: Mapping[str, Any], found: Any, seed: int) -> bool:
    letters = sorted({x for a in given.values() if isinstance(a, Symbolic) for e in a.entries.flat
                      if not isinstance(e, (Forbidden, Undefined)) for x in e.free_symbols}, key=str)  # fmt: skip
    # Values as if at random, and always the same; all are positive, so that roots are real.
    values = {x: flint.arb(flint.fmpq((7 * i * i + 3 + 11 * seed) % 101 + 1, 37)) for i, x in enumerate(letters)}
    lifted = {name: _at(x, values) if isinstance(x, Symbolic) else x for name, x in given.items()}
    wanted = step.run(*(lifted[name] for name in step.of))
    here = _at(found, values)
    return here.shape == wanted.shape and all(map(_overlap, here.entries.flat, wanted.entries.flat))


def agrees_on_numbers(asked: Request, step: Step) -> bool:
    """Whether a step gives the textbook's entries on rational numbers."""
    shapes = {name: lengths(name, asked.spec, asked.names, asked.sizes) for name in step.of}
    given = {name: Exact.lift(_numbers(shape)) for name, shape in shapes.items()}
    found = step.run(*(given[name] for name in step.of))
    arrays = {name: x.entries for name, x in given.items()}
    wanted = expected(asked.spec, step, arrays, tuple(found.shape), Numbers())
    return wanted is not None and all(map(same, found.entries.flat, wanted.flat))


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Twelfths between −2 and 2, as if at random and always the same."""
    out = np.empty(shape, dtype=object)
    for place, index in enumerate(np.ndindex(*shape)):
        out[index] = Fraction((7 * place * place + 5 * place + 3) % 49 - 24, 12)
    return out


def _at(array: Symbolic, values: Mapping[Any, Any]) -> Ball:
    """The array in balls, at the values of its letters."""
    out = np.empty(tuple(array.shape), dtype=object)
    for index, x in np.ndenumerate(array.entries):
        out[index] = x if isinstance(x, (Forbidden, Undefined)) else ball_of(x, values)
    return Ball(out)


def _overlap(x: Any, y: Any) -> bool:
    if x is FORBIDDEN or y is FORBIDDEN or isinstance(x, Undefined) or isinstance(y, Undefined):
        return type(x) is type(y)
    return bool(x.overlaps(y))
