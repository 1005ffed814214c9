"""Mistakes by rule that any definition may have: a factor, a sign, arrays exchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import combinations, permutations
from operator import neg
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from symattn.attention.constants import number
from symattn.attention.spec import Attention
from symattn.attention.stated_flow import StatedFlow
from symattn.bounds.changed_steps import ChangedSteps, Laid
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily, Wrong, change
from symattn.document import evidence
from symattn.document.errors import InputError
from symattn.verification.definitions.inputs_by_letters import WIDTHS
from symattn.verification.rules import by_role
from symattn.verification.rules.operators import operators

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_subject import Definition

Remade: TypeAlias = "Callable[[Any], Definition]"


# -- by rule -----------------------------------------------------------------------------------------------------------
# All groups of more outputs would be too many.
_MAX_OUTPUTS_IN_GROUPS = 5
# Points of a grid between the ends of a range.
_POINTS = 25
#: Fields with numbers: the step, the cause in words, and the range in which another number is searched for.
_FIELDS = {
    "eps": ("norm", "ε is {}", (1e-12, 10.0)),
    "base": ("position", "the angles have the base {}", (2.0, 1e7)),
    "scale": ("scale", "scores are scaled by {} for every d_k", (1e-3, 10.0)),
    "softcap": ("softcap", "the cap is {}", (0.5, 1e3)),
}


def of_fields(spec: Any, remade: Remade) -> Iterator[MistakeFamily]:
    """Yield mistakes with another number in a field of the specification, or of its attention or positions."""
    for name, (step, words, (low, high)) in _FIELDS.items():
        change = _make_spec_number_setter(spec, name)
        if change is None:
            # Not every specification has the field, or a number in it.
            continue
        try:
            change(low)
        except InputError:  # the specification accepts no such numbers
            continue
        grid = tuple(float(x) for x in np.geomspace(low, high, _POINTS))
        yield MistakeFamily(
            step,
            words,
            lambda x, change=change: remade(change(x)).ways[0],  # type: ignore[misc]
            grid,
            change,
        )


def _make_spec_number_setter(spec: Any, name: str) -> Callable[[float], Any] | None:
    """Return a function that puts another number in a field; None if the specification has no such number."""
    result = {f.name for f in fields(spec)} if is_dataclass(spec) else set()
    if name in result and _has_number(spec, name):
        return lambda x: replace(spec, **{name: x})
    # The scale or base of a definition may be a field of the attention or position inside it.
    for part in result & {"attention", "position"}:
        inner = _make_spec_number_setter(getattr(spec, part), name)
        if inner is not None:
            return lambda x: replace(spec, **{part: inner(x)})
    return None


def _has_number(spec: Any, name: str) -> bool:
    """Return whether the field is a number that the definition uses; the default scale 1/√d_k is one, left unnamed."""
    # A scale by a word is no number; None is one, 1/√d_k.
    value = getattr(spec, name)
    if name == "scale":
        return isinstance(spec, Attention) and not isinstance(value, str)
    return isinstance(value, (int, float)) or hasattr(value, "numerator")


def reading(run: Compute, /, **changes: Callable[[Any], Any]) -> Compute:
    """Return a way that changes some inputs first. It raises ``KeyError`` if one of them is missing."""
    return lambda **given: run(
        **{**given, **{name: change(given[name]) for name, change in changes.items()}}
    )


def of_outputs(subject: Definition) -> Iterator[MistakeFamily]:
    """Yield mistakes that multiply an output by a number."""
    # Factors of both signs, as a wrong sign is a factor too.
    sizes = tuple(float(x) for x in np.geomspace(1e-2, 1e2, _POINTS))
    grid = (*(-x for x in reversed(sizes)), *sizes)
    for k, name in enumerate(subject.outputs):
        words = f"{_name_changed_output(subject, name)} is multiplied by {{}}"

        def times(x: float, k: int = k) -> Compute:
            return _change_one_output(subject.ways[0], k, lambda y: y * number(x, y))

        yield MistakeFamily(subject.step, words, times, grid)


def constants(subject: Definition) -> Iterator[Mistake]:
    """Yield outputs that are 0, and outputs that are an input as it is."""
    way = subject.ways[0]
    for k, name in enumerate(subject.outputs):
        noun = _name_changed_output(subject, name)
        zero = _change_one_output(way, k, lambda y: y * 0)
        yield Mistake(subject.step, f"{noun} is 0", zero)
        # With several outputs, equality with an input is no evidence for one of them.
        for i in subject.inputs if len(subject.outputs) == 1 else ():
            if i.made is None and i.entries is None and i.shape:
                words = f"{noun} is the input {i.name} as it is"
                yield Mistake(subject.step, words, partial(_return_input_unchanged, i.name))
    for some in _list_groups(len(subject.outputs)):
        nouns = evidence.both([_name_changed_output(subject, subject.outputs[k]) for k in some])
        yield Mistake(
            subject.step, f"{nouns} are 0", OutputsChanged(way, partial(_make_zero, some))
        )


def _list_groups(many: int) -> list[tuple[int, ...]]:
    """Return the groups of two or more of so many outputs, the smaller ones first; of many outputs the pairs."""
    sizes = range(2, (many if many <= _MAX_OUTPUTS_IN_GROUPS else 2) + 1)
    return [group for size in sizes for group in combinations(range(many), size)]


def _make_zero(some: tuple[int, ...], every: Sequence[Any]) -> list[Any]:
    return [y * 0 if k in some else y for k, y in enumerate(every)]


def _return_input_unchanged(name: str, /, **keywords: Any) -> Any:
    """Return an input. Raises ``KeyError`` if it is missing."""
    return keywords[name] * 1


def changes(subject: Definition) -> Iterator[Mistake]:
    """Yield mistakes outside of the definition: an output with the other sign, outputs or inputs exchanged."""
    way = subject.ways[0]

    def mistake(cause: str, change: Callable[[Compute], Compute], step: str = "") -> Mistake:
        return Mistake(step or subject.step, cause, change(way), change=change)

    for k, name in enumerate(subject.outputs):
        yield mistake(
            f"{_name_changed_output(subject, name)} has the other sign",
            lambda run, k=k: _change_one_output(run, k, neg),  # type: ignore[misc]
        )
    for i, j in combinations(range(len(subject.outputs)), 2):
        words = f"{subject.outputs[i]} and {subject.outputs[j]} are exchanged"
        yield mistake(words, lambda run, i=i, j=j: _exchange_two_outputs(run, i, j))  # type: ignore[misc]
    drawn = [i for i in subject.inputs if i.made is None and i.shape]
    for one, other in combinations(drawn, 2):
        if one.shape == other.shape and len(one.shape.split()) > 1:
            words = f"the inputs {one.name} and {other.name} are exchanged"
            of = {one.name: other.name, other.name: one.name}
            change = lambda run, of=of: partial(_run_with_inputs_replaced, run, of)  # noqa: E731
            yield mistake(words, change, one.step)


def of_arrays(subject: Definition) -> Iterator[Mistake]:
    """Yield every operator of the grammar on every numeric input, and on every output, with the axes of the first; and
    inputs that are read in place of others."""
    way = subject.ways[0]
    drawn = [i for i in subject.inputs if i.made is None and i.shape]
    for one, other in permutations(drawn, 2):
        if len(one.shape.split()) == len(other.shape.split()):
            read: Callable[[Compute], Compute] = lambda run, of={one.name: other.name}: partial(  # type: ignore[misc] # noqa: E731
                _run_with_inputs_replaced, run, of
            )
            where = ", where they have the same shape" * (one.shape != other.shape)
            words = f"the input {other.name} is read in place of {one.name}, too{where}"
            yield Mistake(one.step or subject.step, words, read(way), change=read, reads=one.name)
    tokens = _list_meanings_of_axes(subject, subject.inputs[0].shape)
    for k, name in enumerate(subject.outputs):
        for operator in operators(tokens):
            run = _change_one_output(way, k, operator.run)
            yield Mistake(
                subject.step,
                operator.words.format(f"entries of {_name_changed_output(subject, name)}"),
                run,
            )
    for i in subject.inputs:
        axes = _list_meanings_of_axes(subject, i.shape)
        # Masks are no numbers, and saved arrays follow from the others.
        for operator in (
            operators(axes) if i.made is None and i.name not in ("mask", "keep", "drop") else ()
        ):
            change = partial(reading, **{i.name: operator.run})
            words = operator.words.format(f"entries of {i.name}")
            step = operator.blamed(i.step or subject.step)
            yield Mistake(step, words, change(way), change=change, reads=i.name)


def of_computed_arrays(subject: Definition, spec: StatedFlow, laid: Laid) -> Iterator[Mistake]:
    """Yield every operator of the grammar on every array that a stated step computes and no call returns.

    Arrays of an attention inside are left out, as their mistakes are those of the attention.
    """
    letters = spec.list_axes({i.name: i.shape for i in subject.inputs})
    for step in spec.pipeline_of_all:
        axes = _list_meanings_of_axes(subject, letters[step.name])
        # What has no axes is no array.
        has_entries = axes and step.role not in by_role.WITHOUT_ENTRIES
        is_between = has_entries and step.name not in spec.returned
        for operator in operators(axes) if is_between else ():
            wrong: Wrong = lambda at, operator=operator: operator.run(at.right())  # type: ignore[misc] # noqa: E731
            words = operator.words.format(f"entries of {spec.noun_of(step.name)}")
            blamed = operator.blamed(step.blames)
            changed = ChangedSteps(spec, {step.name: change(step.name, wrong)}, laid=laid)
            yield Mistake(blamed, words, changed)


#: The meaning of axes by letter; all others are columns.
_AXES = {
    "b": "item",
    "h": "head",
    "g": "head",
    "n": "token",
    "m": "token",
    "n_q": "query",
    "n_k": "key",
}


def _list_meanings_of_axes(subject: Definition, shape: str) -> tuple[str, ...]:
    """Return what the axes of an array are, from the last one on."""
    # m may count tokens or, as in a block, components: the definition says so.
    return tuple(
        "column" if subject.meaning(letter)[0] in WIDTHS else _AXES.get(letter, "column")
        for letter in reversed(shape.split())
    )


def _name_changed_output(subject: Definition, name: str) -> str:
    return "the output" if len(subject.outputs) == 1 or name == "output" else name


@dataclass(frozen=True, eq=False)
class OutputsChanged:
    """The outputs of a way of computing, changed afterwards.

    Many mistakes change outputs of one way, so that whoever has these for some inputs need not run it again. ``change``
    takes all outputs, and leaves the arrays as they are.
    """

    run: Compute
    change: Callable[[list[Any]], list[Any]]

    def __call__(self, /, **keywords: Any) -> tuple[Any, ...]:
        """Run the way, and change its outputs."""
        result = self.run(**keywords)
        return tuple(self.change(list(result) if isinstance(result, tuple) else [result]))


def _change_one_output(run: Compute, k: int, change: Callable[[Any], Any]) -> OutputsChanged:
    return OutputsChanged(run, lambda every: [*every[:k], change(every[k]), *every[k + 1 :]])


def _exchange_two_outputs(run: Compute, i: int, j: int) -> OutputsChanged:
    def exchange(every: list[Any]) -> list[Any]:
        places = [*range(len(every))]
        places[i], places[j] = j, i
        return [every[place] for place in places]

    return OutputsChanged(run, exchange)


def _run_with_inputs_replaced(run: Compute, of: dict[str, str], /, **keywords: Any) -> Any:
    """Read inputs in place of others of the same shape. Raises ``KeyError`` if one of them is missing."""
    pairs = {name: (keywords[name], keywords[other]) for name, other in of.items()}
    return run(
        **{
            **keywords,
            # Arrays of other shapes cannot stand for each other, and stay.
            **{n: y if tuple(x.shape) == tuple(y.shape) else x for n, (x, y) in pairs.items()},
        }
    )


def both(
    first: Mistake,
    second: Mistake,
    mistakes_of: Callable[[Any], Sequence[Mistake]],
) -> Mistake | None:
    """Return two mistakes at once: in different steps; or one changes any way of computing, or is another specification
    with the other in it.

    ``mistakes_of`` returns the mistakes of a specification. None if neither mistake is of these kinds.
    """
    words, exact = f"{first.cause}; and {second.cause}", first.exact or second.exact
    if isinstance(first.way, ChangedSteps) and isinstance(second.way, ChangedSteps):
        joined = first.way.join(second.way)
        return None if joined is None else Mistake(first.step, words, joined, exact)
    for one, other in ((first, second), (second, first)):
        # A change outside of the definition applies to any way, so also to the other mistake.
        if one.change is not None:
            run: Compute | None = one.change(other.run)
        else:
            of = mistakes_of(one.spec) if one.spec is not None else ()
            # Words identify a mistake in the other specification's list.
            run = next((m.run for m in of if m.cause == other.cause), None)
        if run is not None:
            return Mistake(first.step, words, run, exact)
    return None
