"""Theorems about expectations: the function asks for ``E`` and gives pairs of values that are to be equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from symattn.document.model import Text
from symattn.proof.expectation import Law, averaged
from symattn.proof.statement import Sides
from symattn.proof.theorem import Theorem, theorem


def moment_theorem(
    name: str,
    topic: str,
    says: Text | str,
    *,
    arrays: Mapping[str, str],
    laws: Mapping[str, Law],
    false: Sides,
    **more: Any,
) -> Callable[[Sides], Theorem]:
    """State a theorem about random arrays, whose ``laws`` are given by name; all their entries are independent.

    >>> from symattn.proof.expectation import law_with
    >>> from symattn.proof.theorem import decide
    >>> @moment_theorem("second", "moments", "E[x²] = μ² + σ²", arrays={"x": "", "m": "", "s": ""},
    ...                 laws={"x": law_with("s", "m")}, false=lambda E, s: (E(lambda x: x * x), s * s),
    ...                 false_says="E[x²] = σ²")
    ... def second(E, m, s):
    ...     return E(lambda x: x * x), m * m + s * s
    >>> decide(second).grade
    <Grade.PROVED: 'proved'>
    """

    def make(sides: Sides) -> Theorem:
        declare = theorem(name, topic, says, arrays=arrays, false=averaged(false, laws), top=2, **more)
        return declare(averaged(sides, laws))

    return make
