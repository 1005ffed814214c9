"""Definitions whose steps contain those of an attention, and changes of these as changes of the definition."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from symattn.attention.flow import Step, run_steps
from symattn.attention.letters_of_attention import SYMBOLS
from symattn.attention.spec import Attention
from symattn.attention.stated_flow import StatedFlow, select_returned
from symattn.bounds import reference
from symattn.bounds.changed_steps import ChangedSteps
from symattn.bounds.mistake import Compute
from symattn.bounds.reference import Change, Values, Variant
from symattn.document.notation import Node
from symattn.verification.rules.by_role import OF_ATTENTION
from symattn.verification.rules.operations import step_to_blame

#: From an attention and its inputs by name to those of its arrays that are returned, by name.
ComputeAttention = Callable[[Attention, Values], Values]


class FlowWithAttention(StatedFlow):
    """A definition whose steps contain all those of an attention, under the names that they have there.

    ``taken`` maps the inputs of the attention to the definition's arrays that stand for them; the attention's steps
    have the mistakes of every attention (``rules.known``), by ``change_attention``.
    """

    @property
    @abstractmethod
    def inner(self) -> Attention:
        """The attention."""

    @property
    @abstractmethod
    def taken(self) -> Mapping[str, str]:
        """The arrays of the definition by the names of the attention's inputs."""

    @cached_property
    def _symbols(self) -> dict[str, Node]:
        return {**SYMBOLS, **super()._symbols}

    def state_attention(self) -> Iterator[Step]:
        """Yield the steps of the attention, which take the definition's arrays."""
        for step in self.inner.pipeline(self.taken):
            yield replace(
                step,
                of=tuple(self.taken.get(name, name) for name in step.of),
                letters=self._symbols,
                role=OF_ATTENTION,
                blames=step.name if step.name == "lse" else step_to_blame(step.name, "weights"),
            )

    def split_steps(self, names: frozenset[str]) -> tuple[Sequence[Step], Sequence[Step]]:
        """Return the steps before the attention, and those after it."""
        steps = self.pipeline(names)
        places = [n for n, step in enumerate(steps) if step.role == OF_ATTENTION]
        return steps[: places[0]], steps[places[-1] + 1 :]

    def select_arrays_of_attention(self, values: Values) -> Values:
        """Return the arrays of the attention, by its own names, out of those of a run."""
        inputs = {name: values[array] for name, array in self.taken.items()}
        steps = self.inner.pipeline(self.taken)
        return inputs | {step.name: values[step.name] for step in steps if step.name in values}


def change_attention(spec: FlowWithAttention, variant: Variant) -> Compute:
    """Return the run of a definition with a variant of its attention."""
    # Changes of steps alone leave all other steps to the definition; any other change runs its attention anew.
    if variant.spec is None and variant.inputs is None and variant.values == Variant().values:
        changes = {name: partial(_change_step, run) for name, run in variant.steps.items()}
        return ChangedSteps(spec, changes)
    compute = partial(_compute_variant, variant)
    return partial(replace_attention, spec, compute)


def replace_attention(
    spec: FlowWithAttention,
    compute: ComputeAttention,
    taken: Mapping[str, str] | None = None,
    /,
    **inputs: Any,
) -> Any:
    """Return what a definition returns if ``compute`` makes all arrays of its attention that are returned.

    The attention takes the arrays ``taken``, by default its own.
    """
    before, after = spec.split_steps(frozenset(inputs))
    values = run_steps(before, inputs)
    arrays = {name: values[array] for name, array in (taken or spec.taken).items()}
    values |= compute(spec.inner, arrays)
    return select_returned(spec, run_steps(after, values))


def run_around_attention(spec: FlowWithAttention, **inputs: Any) -> tuple[Any, ...]:
    """Return the arrays that a definition returns besides those of its attention."""
    before, after = spec.split_steps(frozenset(inputs))
    values = run_steps(before, inputs)
    # Of the steps after it, none of those that are returned takes an array of the attention.
    values = run_steps(after, values)
    return tuple(values[name] for name in spec.returned if name in values)


def _compute_variant(variant: Variant, spec: Attention, arrays: Values) -> Values:
    computed = reference.variant_values(spec, arrays, variant)
    # Other arrays of the attention have names that the definition may use for arrays of its own.
    return {name: computed[name] for name in ("output", "lse") if name in computed}


def _change_step(run: Change, spec: FlowWithAttention, values: Values) -> Any:
    return run(spec.inner, spec.select_arrays_of_attention(values))
