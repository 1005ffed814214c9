"""The first call of an edited function of JAX, by stand-ins: most edits are wrong there, and need no call of JAX.

What passes is called by JAX, as is what stand-ins do not run. A call is screened so only if the function without edits
gives what JAX gives.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from symattn.programs.repairing.edits import Edit
from symattn.programs.repairing.source import Sources
from symattn.programs.stand_ins import TELLING_NAMES, StoodIn, stand_in_of

if TYPE_CHECKING:
    from symattn.programs.calls import Target
    from symattn.programs.repairing.trials import JudgedSample

Outputs = tuple[np.ndarray | None, ...]
# Operations that an edited function may take beyond the original, before a loop is taken for endless. The original may
# raise at once, or leave out a loop over all tokens, of which each takes dozens.
_SPARE_OPERATIONS, _TIMES_OPERATIONS = 5000, 4


class Screening:
    """Calls of edited functions of JAX by stand-ins."""

    def __init__(self, target: Target, sources: Sources) -> None:
        self._target, self._sources = target, sources
        # by the id of a sample
        self._is_apt: dict[int, bool] = {}
        # operations of the function without edits, by the id of a sample
        self._operations: dict[int, int] = {}

    def is_apt(self, sample: JudgedSample) -> bool:
        """Return whether the function without edits gives by stand-ins what it gives by JAX."""
        # The way of calling says whether NumPy may run what JAX would compile.
        if sample.memory != "interpreted" or not self._can_be_stood_in:
            return False
        key = id(sample)
        if key not in self._is_apt:
            self._is_apt[key] = self._agrees_with_jax(sample)
        return self._is_apt[key]

    @cached_property
    def _can_be_stood_in(self) -> bool:
        """Return whether JAX may compile the function, and its code cannot tell stand-ins from arrays."""
        jax = sys.modules.get("jax")
        if not self._target.convention.compiles or jax is None:
            return False
        # Elsewhere JAX computes, or raises, in its own way.
        if jax.default_backend() != "cpu" or jax.config.jax_debug_nans or jax.config.jax_debug_infs:
            return False
        trees = [source.tree for source in self._sources.functions.values()]
        return not any(map(_tells_arrays_apart, trees))

    def _agrees_with_jax(self, sample: JudgedSample) -> bool:
        by_jax = self._target.version(self._sources.rebuild())
        expected = by_jax.attempt(sample.inputs, sample.memory)
        got = self.attempt((), sample)
        if got is None or len(got) != len(expected):
            return False
        limits = [sample.slack * allowed for allowed in sample.allowed]
        return all(map(_are_near, got, expected, limits))

    def attempt(self, edits: Sequence[Edit], sample: JudgedSample) -> Outputs | None:
        """Return the outputs of the function with edits, nothing if it raises, and None if JAX has to make the call."""
        sources = self._sources
        try:
            if edits:
                key = sources.at(edits[0].place)
                replacements = [r for edit in edits for r in edit.replacements]
                function = sources.edited(key, replacements, stand_in_of)
            else:
                function = sources.rebuild(stand_in=stand_in_of)
        except (SyntaxError, ValueError):
            return None
        usual = self._operations.get(id(sample)) if edits else None
        most = None if usual is None else _TIMES_OPERATIONS * usual + _SPARE_OPERATIONS
        stood_in = StoodIn(function, sources.file, most)
        version = self._target.version_with_stand_ins(stood_in)
        outputs = version.attempt(sample.inputs, sample.memory)
        if not edits:
            self._operations[id(sample)] = stood_in.operations
        return None if stood_in.is_refused else outputs


def _tells_arrays_apart(tree: ast.AST) -> bool:
    """Return whether code names what tells a stand-in from an array, or keeps something between passes of a loop."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in TELLING_NAMES:
            return True
        # Patterns and classes ask for types as well.
        if isinstance(node, ast.Match) or getattr(node, "attr", "") == "__class__":
            return True
        # JAX calls the function of a loop once, and not in each pass.
        if isinstance(node, ast.Global | ast.Nonlocal):
            return True
    return False


def _are_near(one: np.ndarray | None, other: np.ndarray | None, limit: np.ndarray) -> bool:
    """Return whether both have the same numbers within the limit, which is not finite where any number is right."""
    if one is None or other is None or one.shape != other.shape:
        return one is other
    with np.errstate(invalid="ignore"):
        is_near = np.abs(one - other) <= np.broadcast_to(limit, one.shape)
    return bool((is_near | (one == other) | (np.isnan(one) & np.isnan(other))).all())
