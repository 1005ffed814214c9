"""A run of attention that is exact as long as it can be, and goes on in balls from where it cannot.

Each step is the one definition: on ``exact`` arrays, unless one of its inputs is known by balls alone or the kind
refuses, because tanh, a second layer of exponentials or a root of a sum is no element of the decided field; then on
``ball`` arrays, at a precision at which every comparison is decided and enough digits are proven. So are sums of
quotients whose denominators are all different, where there are many: their common denominator would fill pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.arrays.exact import Exact
from symattn.attention.flow import Step
from symattn.attention.inputs import check_inputs
from symattn.attention.spec import Attention
from symattn.derivations.enclosed import least_proven, taken
from symattn.document.errors import Refused, Undecided

Arrays = dict[str, Any]
_PRECISIONS = (256, 512, 1024, 2048, 4096)
_TERMS = 300  # of a denominator
_DIGITS = 40  # that every ball should prove


def trace(spec: Attention, inputs: Mapping[str, Any]) -> Arrays:
    """Every named array as a NumPy array of exact numbers, or of ``Enclosed`` ones. Raises what the definition does."""
    check_inputs(spec, dict(inputs))
    doubt: Undecided | None = None
    best: Arrays | None = None
    for bits in _PRECISIONS:
        try:
            best, sharp = _at(spec, inputs, bits)
        except Undecided as undecided:
            doubt = undecided
            continue
        if sharp:
            return best
    if best is None:
        raise Undecided(f"still undecided at {_PRECISIONS[-1]} bits: {doubt}")
    return best  # a number that is 0 has no digits that a ball could prove


def _at(spec: Attention, inputs: Mapping[str, Any], bits: int) -> tuple[Arrays, bool]:
    """The arrays at one precision, and whether every ball is sharp."""
    run = _Run(dict(inputs), bits)
    for step in spec.pipeline(inputs):
        run.take(step, fills_pages(spec, step, run.found))
    arrays = dict(run.arrays())
    proven = least_proven(x for array in arrays.values() for x in array.flat)
    return arrays, proven is None or proven >= _DIGITS


def fills_pages(spec: Attention, step: Step, found: Mapping[str, Any]) -> bool:
    """Whether a step adds up many quotients with denominators of their own.

    Those are the terms tanh of additive scores, weights of a sigmoid times values, and the outputs of heads that are
    projected: the common denominator of m sums of k terms has k^m of them.
    """
    first = found[step.of[0]]
    if step.name == "scores" and spec.score == "additive":
        return bool(3 ** found["v_s"].shape[-1] > _TERMS)
    if step.name == "output" and "w_o" in step.of:
        return bool(found["weights"].shape[-1] ** spec.heads > _TERMS)
    mixes = step.name in ("attended_latents", "attended", "output") and step.of[0] in ("weights", "dropped")
    return mixes and spec.normaliser == "sigmoid" and bool(2 ** first.shape[-1] > _TERMS)


class _Run:
    """The arrays so far, by name, on one kind or the other, in the order in which they were made."""

    def __init__(self, inputs: Arrays, bits: int) -> None:
        self.found = inputs
        self.bits = bits

    def take(self, step: Step, long: bool) -> None:
        """Run a step on ``exact`` arrays, or where that is refused, or too long, on balls."""
        given = [self.found[name] for name in step.of]
        if not long and not any(isinstance(x, Ball) for x in given):
            try:
                self.found[step.name] = step.run(*given)
                return
            except Refused:
                pass
        with precision(self.bits):
            self.found[step.name] = step.run(*[Ball.lift(x.entries) if isinstance(x, Exact) else x for x in given])

    def arrays(self) -> Iterator[tuple[str, Any]]:
        """The arrays as NumPy arrays of elements."""
        for name, x in self.found.items():
            if isinstance(x, Ball):
                yield name, Ball.each(lambda e: taken(e, self.bits), x)
            else:
                yield name, x.entries if isinstance(x, Exact) else np.asarray(x).astype(object)
