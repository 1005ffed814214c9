"""Definitions that state their steps: what a call returns is the run of these, on any kind of array."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from symattn.attention.fields import Described
from symattn.attention.flow import Step, Trace, Typed, check_blamed_step, steps_of
from symattn.attention.letters_of_attention import letter
from symattn.document.notation import Node, equals
from symattn.document.text import text

#: The role of a step of an attention inside, whose mistakes are those of the attention.
FORWARD = "attention"
#: From a definition and all arrays so far to the array of a step that is computed otherwise.
OtherStep = Callable[[Any, dict[str, Any]], Any]


class StatedFlow(Described):
    """A definition that is a flow of named steps.

    ``letters`` has the letter of each input and of each array that a step computes, as text. A class yields its steps
    in ``state_steps`` and names the arrays that a call returns in ``returned``. ``nouns`` are words for arrays that are
    not called by their names. Steps take tokens on the axis before the columns, unless a definition ``keeps_order``.
    """

    letters: ClassVar[Mapping[str, str]]
    nouns: ClassVar[Mapping[str, str]] = {}
    keeps_order: ClassVar[bool] = False

    @property
    @abstractmethod
    def returned(self) -> tuple[str, ...]:
        """The names of the arrays that a call returns, in order."""

    @abstractmethod
    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """Yield the steps for inputs of these names; see ``state_step``."""

    def state_step(
        self,
        name: str,
        run: Callable[..., object],
        written: Typed,
        of: Sequence[str],
        *,
        role: str,
        blames: str,
        reason: Typed = "",
    ) -> Step:
        """Return the step that computes the array ``name`` by ``run`` from the arrays ``of``.

        Of these, inputs that a call lacks are None. ``written`` is the formula, with @0 for the first of them. Raises
        ``InputError`` if ``blames`` is none of ``STEPS_TO_BLAME``.
        """
        check_blamed_step(blames, f"{type(self).__name__}: the step {name!r}")
        symbols = self._symbols
        return Step(
            name, tuple(of), run, symbols[name], written, symbols, reason, role=role, blames=blames
        )

    @cached_property
    def _symbols(self) -> dict[str, Node]:
        return {name: letter(typed) for name, typed in self.letters.items()}

    def pipeline(self, names: Iterable[str]) -> tuple[Step, ...]:
        """Return the steps for inputs of these names; other names make no difference."""
        return steps_of(self, names, lambda spec, names: spec.state_steps(names))

    @property
    def pipeline_of_all(self) -> tuple[Step, ...]:
        """The steps for all inputs."""
        return self.pipeline(self.letters)

    @property
    def computed(self) -> frozenset[str]:
        """The names of the arrays that steps compute."""
        return frozenset(step.name for step in self.pipeline_of_all)

    @property
    def axes(self) -> Mapping[str, str]:
        """The axes, by letters as in ``Input``, of arrays with others than the first one that their step takes.

        Of an input these are its axes in the steps, where it is passed in others; … stands as in ``fill_axes``.
        """
        return {}

    def list_axes(self, passed: Mapping[str, str]) -> dict[str, str]:
        """Return the axes of all inputs, out of those in which they are ``passed``, and of all arrays of the steps."""
        stated, result = self.axes, dict[str, str]()
        for name, axes in passed.items():
            in_steps = axes if self.keeps_order else _move_tokens_before_columns(axes)
            result[name] = fill_axes(stated.get(name, in_steps), in_steps)
        for step in self.pipeline_of_all:
            result[step.name] = self.find_axes(step, result)
        return result

    def find_axes(self, step: Step, known: Mapping[str, str]) -> str:
        """Return the axes of a step's array out of those of all arrays before."""
        first = known[step.of[0]]
        return fill_axes(self.axes.get(step.name, first), first)

    def noun_of(self, name: str) -> str:
        """Return an array in words: ``x``, ``the residual``."""
        return self.nouns.get(name) or (name if len(name) == 1 else f"the {name}")

    def trace(self, **inputs: object) -> Trace:
        """Return the inputs that are not None and every array of a run, by name and in order."""
        return Trace(run_with_changes(self, {}, inputs))

    def return_run(self, **inputs: object) -> Any:
        """Return what a call with these inputs returns: one array, or a tuple of several."""
        return select_returned(self, run_with_changes(self, {}, inputs))

    def write_formulas(self, names: Iterable[str]) -> list[str]:
        """Return the formula of each step for inputs of these names, such as ``S = X + R``."""
        return [text(equals(step.symbol, step.formula)) for step in self.pipeline(names)]


#: Letters of axes of tokens, and of those of items and heads, in axes of arrays.
TOKENS = ("n", "m", "n_q", "n_k")
_ITEMS_AND_HEADS = ("b", "h", "g")


def _move_tokens_before_columns(axes: str) -> str:
    """Return the axes of an input as steps take it: its tokens are on the axis before the columns."""
    letters = axes.split()
    tokens = [letter for letter in letters[:-1] if letter in TOKENS]
    # A layout moves one axis of tokens at most; arrays with tokens alone have no columns.
    if len(tokens) != 1 or letters[-1] in TOKENS:
        return axes
    letters.remove(tokens[0])
    return " ".join([*letters[:-1], tokens[0], letters[-1]])


def fill_axes(stated: str, first: str) -> str:
    """Return stated axes, with … replaced by those of the array that a step takes first.

    These are its items and heads, and also its tokens if a single axis follows.
    """
    if stated[:1] != "…":
        return stated
    _, *own = stated.split()
    front = _ITEMS_AND_HEADS + TOKENS * (len(own) == 1)
    return " ".join([*(letter for letter in first.split() if letter in front), *own])


def run_with_changes(
    spec: StatedFlow, changes: Mapping[str, OtherStep], inputs: Mapping[str, object]
) -> dict[str, Any]:
    """Run the steps of a definition, of which some are computed otherwise, and return all arrays by name."""
    values = {name: array for name, array in inputs.items() if array is not None}
    # Records of operations find the step and the arrays by the names of these variables.
    for step in spec.pipeline(values):
        other = changes.get(step.name)
        if other is None:
            values[step.name] = step.run(*map(values.get, step.of))
        else:
            values[step.name] = other(spec, values)
    return values


def select_returned(spec: StatedFlow, values: Mapping[str, Any]) -> Any:
    """Return the array that a definition returns, or a tuple of several, out of those of a run."""
    every = tuple(values[name] for name in spec.returned)
    return every if len(every) > 1 else every[0]
