"""How a specification becomes steps: each stage adds its own to the flow.

A stage is a function of the flow, which adds steps by the specification and by which inputs are given. A variant is a
field of ``Attention``, the row of its array in ``letters_of_attention``, and its stage, which says what runs
and how it is written.

Entries are typed as ``out[i,l] = 0[i,l] for $condition$ -- reason``, of which condition and reason may be missing:
``out`` is the array of the step and ``0`` the first one that it is made of, ``width_0`` the length of its last axis and
``rows_0`` that of its first; ``a?,`` and ``a?·d +``, which is (a − 1)d +, stand where there are several heads. Of
``⟨this|that⟩`` the first stands where n_q and n_k differ, ``⟦…⟧`` where some query may see no key, and ``⌈…⌉`` where
pairs as many as the columns of array 1 leave columns of array 0 over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from symattn.attention.letters_of_attention import ARRAYS
from symattn.document.model import Block, Code, Document, Paragraph, Text
from symattn.document.notation import Like, Node
from symattn.document.printable import Shown

if TYPE_CHECKING:
    from symattn.attention.spec import Attention
Reason = str | Text | Callable[[], Text]


class EntryLines(NamedTuple):
    """The entries of an array, line by line; ``@name`` in them is one of ``letters``."""

    lines: tuple[str, ...]
    letters: Mapping[str, Like]


def entries(*lines: str, **letters: Like) -> EntryLines:
    """Return lines of entries with the letters that they name."""
    return EntryLines(lines, letters)


@dataclass(frozen=True)
class Step:
    """``name`` is computed by ``run`` from the arrays named in ``of``, and written as ``symbol`` = ``formula``.

    ``writes`` and ``says`` make the formula and the reason when a document asks for them; ``typed`` are its entries.
    """

    name: str
    of: tuple[str, ...]
    run: Callable[..., Any]
    symbol: Node
    writes: Callable[[], Node]
    says: Reason = ()
    typed: str | Callable[[], EntryLines] = ""

    @cached_property
    def formula(self) -> Node:
        """The right side of the step's equation."""
        return self.writes()

    @property
    def entries(self) -> EntryLines:
        """The formulas of the step's entries; without a line for a step that says none."""
        return self.typed() if callable(self.typed) else entries(*([self.typed] if self.typed else ()))

    @cached_property
    def reason(self) -> Text:
        """Why the step is there, in words and formulas; empty where the formula says all."""
        words = self.says() if callable(self.says) else self.says
        return ((words,) if words else ()) if isinstance(words, str) else words


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
        writes: Callable[..., Node],
        of: Sequence[str],
        *,
        role: str = "",
        reason: Reason = (),
        entries: str | Callable[[], EntryLines] = "",
    ) -> None:
        """A step called ``name``, from arrays or roles ``of``; from now on it plays ``role``.

        ``run`` is a function of the arrays, and ``writes`` one of their letters: both take them in the order of ``of``.
        """
        of = tuple(map(self.now.get, of, of))
        self.steps.append(Step(name, of, run, ARRAYS[name].symbol, partial(_written, writes, of), reason, entries))
        if role:
            self.now[role] = name


def _written(writes: Callable[..., Node], of: Iterable[str]) -> Node:
    return writes(*[ARRAYS[name].symbol for name in of])


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
