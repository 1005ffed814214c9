"""How a specification becomes steps: each stage adds its steps to the flow.

A stage is a function that adds steps to the flow, depending on the specification and on the inputs that are present. A
variant is a field of ``Attention``, a row of its array in ``letters_of_attention``, and a stage, which says what runs
and how it is written.

Formulas and entries are typed as text, and parsed only when a document needs them. Formulas refer to the operands of
the step by number: ``@0 @1ᵀ``; ``@name`` is one of the step's ``values``. Entries are lines ``out[i,j] = 0[i,j] for
$condition$ -- reason``, in which condition and reason may be missing: ``out`` is the array of the step and ``0`` its
first operand, ``width_0`` the length of its last axis and ``rows_0`` that of its first; ``a?,`` and ``a?·d +``, which
is (a − 1)d +, appear only if there are several heads. ``⟨this|that⟩`` is ``this`` if n_q and n_k differ, else ``that``;
``⟦…⟧`` appears if some query may see no key, and ``⌈…⌉`` if array 0 has more than twice as many columns as array 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS
from symattn.document.errors import InputError, perhaps
from symattn.document.model import Block, Code, Document, Paragraph, Text
from symattn.document.notation import Like, Node, Role
from symattn.document.printable import Shown

if TYPE_CHECKING:
    from symattn.attention.norms import NormRecord
    from symattn.attention.spec import Attention
Typed = str | Callable[[], str]
#: The error term of a step: how far rounding may move its array, by the rule that ``symattn/bounds/scores.py`` proves.
#:
#: moves     it only moves, joins or repeats entries, so that sizes and errors pass
#: products  sums of products of inputs: of queries, keys and values, or scores that are scaled afterwards
#: rotates   a rotation of vectors by tables
#: scales    scores or outputs times numbers, each an input or computed with at most one rounding
#: adds      scores or outputs plus an input, or plus a number that passes at most six roundings
#: rounded   any operations on vectors, scores or outputs, as written: what ``symattn.arrays.rounded`` finds
#: gates     outputs times the sigmoid of an input
#: projects  the heads' outputs side by side, and their projection, if there is one
#: own       a proof of this step alone, by its name
#:
#: Steps behind the weighted values have ``scales``, ``adds``, ``rounded``, ``gates`` or ``projects``, which
#: ``symattn/bounds/output_steps.py`` proves.
ErrorRule = Literal[
    "moves", "products", "rotates", "scales", "adds", "rounded", "gates", "projects", "own"
]
#: The steps that a report can name, in the order of the computation; ``weights`` only if no more is known.
STEPS_TO_BLAME = (
    "call", "project", "norm", "split", "position", "cache", "score", "scale", "softcap", "bias", "mask", "sink", "max",
    "exp", "normalize", "dropout", "weights", "values", "gate", "merge", "output", "residual", "lse", "backward",
)  # fmt: skip
_FILE_OF_ROWS = "symattn/attention/letters_of_attention.py"
# Roles of letters in reasons.
_ROLES: dict[str, Role] = {"q_i": "query", "k_j": "key", "s_i": "score"}
EACH = "entry by entry"  # the entries of a step whose formula holds for each entry


@dataclass(frozen=True)
class Step:
    """A step: ``run`` computes the array ``name`` from the arrays ``of``, written as ``symbol`` = ``formula``.

    ``written``, ``says`` and ``typed`` are its formula, reason and entries as text; ``letters`` maps names of arrays to
    their letters. ``role`` says what its array is, such as scores or a norm, and so by which rules it can be wrong;
    ``blames`` is the step that a report names for it, one of ``STEPS_TO_BLAME``, if not by the name of the array.
    ``errors`` is its error term: a step without one runs, but has no bound. ``mistakes`` are what programs compute in
    its place, by the words of the cause: functions of ``symattn.bounds.mistake.At``. ``row`` is the name that
    its stage gave it, by which ``ARRAYS`` has its noun: the last step of all is called ``output``, whatever it is.
    ``joins_heads``: its first array has the heads apart, and its entries count the columns of all heads. ``norm`` says
    what a step that normalises computes. ``field`` is the field or input of an ``Attention`` that enables its stage.
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
    role: str = ""
    blames: str = ""
    errors: ErrorRule | None = None
    mistakes: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    row: str = ""
    joins_heads: bool = False
    norm: NormRecord | None = None
    field: str = ""

    @cached_property
    def formula(self) -> Node:
        """The right side of the step's equation."""
        # Imported when a document is written: runs need no parser of formulas.
        from symattn.document.formulas import formula

        return formula(_resolve_entries_text(self.written), {}, self._letters_and_step_values)

    @cached_property
    def reason(self) -> Text:
        """The reason for the step, in words and formulas; empty if the formula says all."""
        from symattn.document.formulas import running_text

        return running_text(_resolve_entries_text(self.says), _ROLES, self._letters_and_step_values)

    @property
    def entries(self) -> list[str]:
        """The formulas of the step's entries, line by line; empty if there are none."""
        # The formula of the whole array is read entry by entry.
        if self.typed == EACH:
            return [
                "out[i,j] = "
                + re.sub(r"@([0-9])", r"\1[i,j]", _resolve_entries_text(self.written))
                + f" -- {EACH}"
            ]
        return _resolve_entries_text(self.typed).splitlines()

    @property
    def _letters_and_step_values(self) -> dict[str, Like]:
        return {
            **{str(place): self.letters[name] for place, name in enumerate(self.of)},
            **self.values,
        }


def check_blamed_step(blames: str, whose: str) -> None:
    """Raise ``InputError`` unless a report can name the step that ``whose`` blames."""
    if blames not in STEPS_TO_BLAME:
        known = ", ".join(STEPS_TO_BLAME)
        near = perhaps(blames, STEPS_TO_BLAME)
        raise InputError(f"{whose} blames {blames!r}, which is none of {known}{near}")


def _check_rows(name: str, of: Sequence[str]) -> None:
    """Raise ``InputError`` if an array of a step has no row, or its row blames a step that no report can name."""
    for array in (name, *of):
        if array not in ARRAYS:
            raise InputError(
                f"the step {name!r} has an array {array!r} without a row in ARRAYS of {_FILE_OF_ROWS}"
                f"{perhaps(array, ARRAYS)}"
            )
    blames = ARRAYS[name].blames
    if blames not in STEPS_TO_BLAME and blames:
        check_blamed_step(blames, f"the row {name!r} of {_FILE_OF_ROWS}")


def _resolve_entries_text(typed: Typed) -> str:
    return typed() if callable(typed) else typed


def find_value_step(steps: Iterable[Step]) -> Step:
    """Return the step in which the weights multiply the values; latents in their place are expanded first."""
    return next(step for step in steps if step.name in ("attended", "output"))


def find_steps_behind_weights(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps from the weighted values to the output."""
    return tuple(steps[steps.index(find_value_step(steps)) + 1 :])


def finish_output(steps: Sequence[Step], values: Mapping[str, object], weighed: object) -> Any:
    """Return the output of weighted values that were computed elsewhere, from all arrays that later steps take."""
    behind = find_steps_behind_weights(steps)
    return run_steps(behind, {**values, find_value_step(steps).name: weighed})["output"]


def find_projection(steps: Iterable[Step]) -> Step | None:
    """Return the step that joins the heads and projects them, if there is one."""
    return next((step for step in steps if step.errors == "projects"), None)


def run_steps(steps: Iterable[Step], inputs: Mapping[str, object]) -> dict[str, Any]:
    """Run the steps, and return the inputs and all computed arrays by name, in order."""
    values = dict(inputs)
    for step in steps:
        values[step.name] = step.run(*[values[name] for name in step.of])
    return values


def run_until(steps: Iterable[Step], inputs: Mapping[str, object], name: str) -> dict[str, Any]:
    """Run the steps that need no array ``name``, and return the inputs and all computed arrays by name, in order."""
    values = dict(inputs)
    for step in steps:
        if step.name != name and all(of in values for of in step.of):
            values[step.name] = step.run(*[values[of] for of in step.of])
    return values


@dataclass
class Flow:
    """The steps so far, and the current array of each role: after a mask, ``scores`` is the array ``masked``.

    Roles are q, k, v, scores, weights and output; ``width``, if it differs from q, has d_k columns.
    """

    spec: Attention
    given: frozenset[str]
    steps: list[Step] = field(default_factory=list)
    now: dict[str, str] = field(default_factory=dict)
    rotated: tuple[str, str] = ("q", "k")  # the roles that rotary positions turn
    terms: int = 1  # how many products of d_k numbers a score is the sum of
    field: str = ""  # the field or input that enables the stage which is running

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
        errors: ErrorRule | None = None,
        mistakes: Mapping[str, Callable[[Any], Any]] | None = None,
        joins_heads: bool = False,
        norm: NormRecord | None = None,
    ) -> None:
        """Add a step called ``name``, which ``run`` computes from the arrays or roles ``of``; if ``role`` is set, later
        steps use its array in that role. Without the error term ``errors`` it has no bound. ``mistakes`` come besides
        those that its row has a noun for: left out, and applied or added twice. ``joins_heads``: its entries count the
        columns of all heads of the first array. A step that normalises is added by ``stages.norming.add_norm``."""
        # Roles become the current arrays that have them; other names stay.
        of = tuple(map(self.now.get, of, of))
        _check_rows(name, of)
        self._check_name_is_free(name)
        letter, typed_values = SYMBOLS[name], values or {}
        self.steps.append(
            Step(
                name,
                of,
                run,
                letter,
                written,
                SYMBOLS,
                reason,
                entries,
                typed_values,
                role,
                errors=errors,
                mistakes=mistakes or {},
                row=name,
                joins_heads=joins_heads,
                norm=norm,
                field=self.field,
            )
        )
        # Without a role later steps do not use the array unless they name it.
        if role:
            self.now[role] = name

    def _check_name_is_free(self, name: str) -> None:
        """Raise ``InputError`` if a step would overwrite the array of an earlier step.

        An array that is given stands for the step that computes it, as the values of a latent do.
        """
        if any(step.name == name for step in self.steps):
            raise InputError(
                f"the step {name!r} has the name of an earlier step; inputs and steps share the "
                f"names of ARRAYS in {_FILE_OF_ROWS}"
            )


#: A stage, and the field, property or input that enables it: "" marks those that always run.
Stage = tuple[str, Callable[[Flow], None]]


def steps_of(
    description: Any, names: Iterable[str], make: Callable[[Any, frozenset[str]], Iterable[Step]]
) -> tuple[Step, ...]:
    """Return the steps that ``make`` gives for inputs of these names.

    They are cached per object, not per value: equal descriptions may hold 1/2 and 0.5, of different types.
    """
    name_set = frozenset(names)
    result: dict[frozenset[str], tuple[Step, ...]] = description.__dict__.setdefault("_steps", {})
    if name_set not in result:
        result[name_set] = tuple(make(description, name_set))
    return result[name_set]


def traced(
    description: Any, inputs: Mapping[str, object], check: Callable[[Any, dict[str, Any]], None]
) -> Trace:
    """Run the steps of ``description`` on the inputs that are not None, and return every array by name."""
    values = {name: array for name, array in inputs.items() if array is not None}
    steps = description.pipeline(values)
    check(description, values)
    return Trace(run_steps(steps, values))


class Trace(dict[str, Any], Shown):
    """The arrays of a run by name, in order: a ``dict`` that notebooks show with a small table of each array.

    >>> import numpy as np
    >>> from symattn import Attention
    >>> trace = Attention(scale=1).trace(np.eye(2), np.eye(2), np.eye(2))
    >>> list(trace), trace.document().name
    (['q', 'k', 'v', 'scores', 'scaled', 'weights', 'output'], 'trace')
    """

    def document(self) -> Document:
        """Return a document that lists each array: its name, what it is, and a small table of its elements."""
        from symattn.arrays.shown import blocks

        listed: list[Block] = []
        for name, array in self.items():
            first, *others = blocks(array)
            # ``attention.q`` of a block has letter and title of q
            printed = ARRAYS.get(name.rpartition(".")[2])
            letter: Text = (printed.symbol, f", {printed.title.lower()}. ") if printed else ()
            listed.append(
                Paragraph((Code(name), ": ", *letter, *first.text))
                if isinstance(first, Paragraph)
                else first
            )
            listed += others
        return Document("listing", "trace", ("Trace",), tuple(listed), (f"{len(self)} arrays",))
