"""How a specification becomes steps: each stage adds its own to the flow.

A stage is a function of the flow, which adds steps by the specification and by which inputs are given. A variant is a
field of ``Attention``, the row of its array in ``letters_of_attention``, and its stage, which says what runs
and how it is written.

What a document says of a step is typed, and read when one asks. Formulas name the arrays that the step is made of by
their places: ``@0 @1ᵀ``; ``@name`` is one of the step's ``values``. Entries are lines ``out[i,j] = 0[i,j] for
$condition$ -- reason``, of which condition and reason may be missing: ``out`` is the array of the step and ``0`` the
first one that it is made of, ``width_0`` the length of its last axis and ``rows_0`` that of its first; ``a?,`` and
``a?·d +``, which is (a − 1)d +, stand where there are several heads. Of ``⟨this|that⟩`` the first stands where n_q and
n_k differ, ``⟦…⟧`` where some query may see no key, and ``⌈…⌉`` where pairs as many as the columns of array 1 leave
columns of array 0 over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS
from symattn.document.model import Block, Code, Document, Paragraph, Text
from symattn.document.notation import Like, Node, Role
from symattn.document.printable import Shown

if TYPE_CHECKING:
    from symattn.attention.spec import Attention
Typed = str | Callable[[], str]
_ROLES: dict[str, Role] = {"q_i": "query", "k_j": "key", "s_i": "score"}
EACH = "entry by entry"  # the entries of a step whose formula holds for each entry


@dataclass(frozen=True)
class Step:
    """``name`` is computed by ``run`` from the arrays named in ``of``, and written as ``symbol`` = ``formula``.

    ``written``, ``says`` and ``typed`` are its formula, its reason and its entries as they are typed; ``letters`` are
    those of arrays by their names.
    """

    name: str
    of: tuple[str, ...]
    run: Callable[..., Any]
    symbol: Node
    written: Typed
    letters: Mapping[str, Node]
    says: Typed = ""
    typed: Typed = ""
    values: Mapping[str, Like] = field(default_factory=dict)

    @cached_property
    def formula(self) -> Node:
        """The right side of the step's equation."""
        from symattn.document.formulas import formula

        return formula(_text(self.written), {}, self._named)

    @cached_property
    def reason(self) -> Text:
        """Why the step is there, in words and formulas; empty where the formula says all."""
        from symattn.document.formulas import running_text

        return running_text(_text(self.says), _ROLES, self._named)

    @property
    def entries(self) -> list[str]:
        """The formulas of the step's entries, line by line; none for a step that says none."""
        if self.typed == EACH:
            return ["out[i,j] = " + re.sub(r"@([0-9])", r"\1[i,j]", _text(self.written)) + f" -- {EACH}"]
        return _text(self.typed).splitlines()

    @property
    def _named(self) -> dict[str, Like]:
        return {**{str(place): self.letters[name] for place, name in enumerate(self.of)}, **self.values}


def _text(typed: Typed) -> str:
    return typed() if callable(typed) else typed


def run_steps(steps: Iterable[Step], inputs: Mapping[str, object]) -> dict[str, Any]:
    """The given arrays and those that the steps compute, in order."""
    values = dict(inputs)
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
        run: Callable[..., object],
        written: Typed,
        of: Sequence[str],
        *,
        role: str = "",
        reason: Typed = "",
        entries: Typed = "",
        values: Mapping[str, Like] | None = None,
    ) -> None:
        """A step called ``name``, from arrays or roles ``of``, which ``run`` takes in their order; from now on it plays
        ``role``."""
        of = tuple(map(self.now.get, of, of))
        self.steps.append(Step(name, of, run, SYMBOLS[name], written, SYMBOLS, reason, entries, values or {}))
        if role:
            self.now[role] = name


def traced(description: Any, inputs: Mapping[str, object], check: Callable[[Any, dict[str, Any]], None]) -> Trace:
    """Every named array of a run of the steps of ``description`` on the inputs that are given, not None."""
    values = {name: array for name, array in inputs.items() if array is not None}
    steps = description.pipeline(values)
    check(description, values)
    return Trace(run_steps(steps, values))


class Trace(dict[str, Any], Shown):
    """The arrays of a run by their names, in order: a ``dict`` that notebooks show with a small table of each.

    >>> import numpy as np
    >>> from symattn import Attention
    >>> found = Attention(scale=1).trace(np.eye(2), np.eye(2), np.eye(2))
    >>> list(found), found.document().name
    (['q', 'k', 'v', 'scores', 'scaled', 'weights', 'output'], 'trace')
    """

    def document(self) -> Document:
        """Each array under its name: what it is, and a small table of its elements."""
        return Document("listing", "trace", ("Trace",), tuple(_blocks(self)), (f"{len(self)} arrays",))


def _blocks(arrays: dict[str, Any]) -> Iterator[Block]:
    from symattn.arrays.shown import blocks

    for name, array in arrays.items():
        first, *others = blocks(array)
        printed = ARRAYS.get(name.rpartition(".")[2])  # ``attention.q`` of a block has letter and title of q
        letter: Text = (printed.symbol, f", {printed.title.lower()}. ") if printed else ()
        yield Paragraph((Code(name), ": ", *letter, *first.text)) if isinstance(first, Paragraph) else first
        yield from others
