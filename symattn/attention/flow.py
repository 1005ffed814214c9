"""How a specification becomes steps: each stage adds its own to the flow.

A stage is a function of the flow. It looks at the specification and at which inputs are given, and adds steps; what is
not asked for adds none. A variant is a field of ``Attention``, a function that computes it, and a line in its stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from symattn.attention.notation import ARRAYS
from symattn.document.model import Text
from symattn.document.notation import Node

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


@dataclass(frozen=True)
class Step:
    """``name`` is computed by ``run`` from the arrays named in ``of``, and written as ``symbol`` = ``formula``."""

    name: str
    of: tuple[str, ...]
    run: Callable[..., Any]
    symbol: Node
    formula: Node
    reason: Text = ()


def run_steps(steps: Iterable[Step], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given arrays and those that the steps compute, in order."""
    values = dict(given)
    for step in steps:
        values[step.name] = step.run(*[values[name] for name in step.of])
    return values


@dataclass
class Flow:
    """The steps so far, and by which array each role is played: after a mask, ``scores`` is the array ``masked``.

    Roles are q, k, v, scores, weights and output; ``width``, if it differs from q, has d_k columns.
    """

    spec: Attention
    given: frozenset[str]
    steps: list[Step] = field(default_factory=list)
    now: dict[str, str] = field(default_factory=dict)
    rotated: tuple[str, str] = ("q", "k")  # the roles that rotary positions turn
    terms: int = 1  # how many products of d_k numbers a score is the sum of

    def __post_init__(self) -> None:
        self.now |= {role: role for role in "qkv" if role in self.given}

    def add(
        self,
        name: str,
        run: Callable[..., Any],
        formula: Node,
        of: Sequence[str],
        *,
        role: str = "",
        reason: str | Text = "",
    ) -> None:
        """A step called ``name``, from arrays or roles ``of``; from now on it plays ``role``."""
        words = ((reason,) if reason else ()) if isinstance(reason, str) else reason
        of = tuple(self.now.get(n, n) for n in of)
        self.steps.append(Step(name, of, run, ARRAYS[name].symbol, formula, words))
        if role:
            self.now[role] = name

    def symbol(self, role: str) -> Node:
        """The letter of the array that plays a role now, or of an input."""
        return ARRAYS[self.now.get(role, role)].symbol


Stage = Callable[[Flow], None]
