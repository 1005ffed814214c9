"""Definitions whose steps contain those of an attention, and changes of these as changes of the definition."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar

from symattn.attention.flow import Step, run_steps
from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS
from symattn.attention.spec import Attention
from symattn.attention.stated_flow import OtherStep, StatedFlow, fill_axes, select_returned
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
    """A definition whose steps contain all those of an attention, under the names that they have there, with a prefix.

    ``taken`` maps the inputs of the attention to the definition's arrays that stand for them; the attention's steps
    have the mistakes of ``yield_known_mistakes``, by ``change_attention``. ``optional`` are arrays among them that a
    call may lack. A definition may contain several attentions that are alike: ``prefixes`` has one for each.
    """

    prefixes: ClassVar[tuple[str, ...]] = ("",)
    optional: ClassVar[frozenset[str]] = frozenset()

    @property
    @abstractmethod
    def inner(self) -> Attention:
        """The attention."""

    @property
    @abstractmethod
    def taken(self) -> Mapping[str, str]:
        """The arrays of the definition by the names of the attention's inputs."""

    def list_taken(self, prefix: str) -> Mapping[str, str]:
        """Return ``taken`` of the attention with a prefix."""
        return self.taken

    def find_axes(self, step: Step, known: Mapping[str, str]) -> str:
        """See ``StatedFlow``: of the attention's arrays, the rows and columns of their records."""
        prefix = self.find_prefix(step)
        if prefix is None or step.name in self.axes:
            return super().find_axes(step, known)
        axes = ARRAYS[step.name.removeprefix(prefix)].shape.split()[-2:]
        taken = self.list_taken(prefix)
        # The definition may have another letter for the tokens of queries.
        tokens = known[taken.get("q") or taken.get("x") or step.of[0]].split()[-2:-1]
        rows = tokens if axes[0] == "n_q" else axes[:1]
        return fill_axes(" ".join(["…", *rows, axes[-1]]), known[step.of[0]])

    def select_taken(self, names: Collection[str], prefix: str = "") -> dict[str, str]:
        """Return ``list_taken`` for inputs of these names: without optional arrays that are none of them."""
        absent = self.optional.difference(names)
        taken = self.list_taken(prefix)
        return {name: array for name, array in taken.items() if array not in absent}

    @cached_property
    def _symbols(self) -> dict[str, Node]:
        return {**SYMBOLS, **super()._symbols}

    def state_attention(self, names: Collection[str], prefix: str = "") -> Iterator[Step]:
        """Yield the steps of the attention, which take the definition's arrays, for inputs of these names."""
        taken, symbols = self.select_taken(names, prefix), self._symbols
        for step in self.inner.pipeline(taken):
            name = prefix + step.name
            of = tuple(taken.get(array, prefix + array) for array in step.of)
            own = replace(step, name=name, of=of, symbol=symbols[name], letters=symbols)
            yield mark_as_inner(own, step.name)

    def split_steps(self, names: frozenset[str]) -> tuple[Sequence[Step], Sequence[Step]]:
        """Return the steps before the attention, and those after it."""
        steps = self.pipeline(names)
        places = [n for n, step in enumerate(steps) if step.role == OF_ATTENTION]
        return steps[: places[0]], steps[places[-1] + 1 :]

    def select_arrays_of_attention(self, values: Values, prefix: str | None = None) -> Values:
        """Return the arrays of an attention, by its own names, out of those of a run; by default of the first one."""
        prefix = self.prefixes[0] if prefix is None else prefix
        taken = self.select_taken(values, prefix)
        inputs = {name: values[array] for name, array in taken.items()}
        steps = self.inner.pipeline(taken)
        arrays = {step.name: prefix + step.name for step in steps}
        return inputs | {name: values[array] for name, array in arrays.items() if array in values}

    def find_prefix(self, step: Step) -> str | None:
        """Return the prefix of the attention that a step is one of; None if it is a step of the definition's own."""
        if step.role != OF_ATTENTION:
            return None
        return next(prefix for prefix in self.prefixes if step.name.startswith(prefix))


def mark_as_inner(step: Step, name: str) -> Step:
    """Return a step of a definition as that of an attention inside, where it is called ``name``."""
    blames = name if name == "lse" else step_to_blame(name, "weights")
    return replace(step, role=OF_ATTENTION, blames=blames)


def change_attention(
    spec: FlowWithAttention, variant: Variant, prefixes: tuple[str, ...] = ()
) -> Compute:
    """Return the run of a definition with a variant of its attention, by default of each one that it contains."""
    prefixes = prefixes or spec.prefixes
    # Changes of steps alone leave all other steps to the definition; any other change runs its attention anew.
    if variant.spec is None and variant.inputs is None and variant.values == Variant().values:
        changes = {
            prefix + name: partial(_change_step, prefix, run)
            for prefix in prefixes
            for name, run in variant.steps.items()
        }
        return ChangedSteps(spec, changes)
    compute = partial(_compute_variant, variant)
    return partial(replace_attention, spec, compute, None, prefixes)


def replace_attention(
    spec: FlowWithAttention,
    compute: ComputeAttention,
    taken: Mapping[str, str] | None = None,
    prefixes: tuple[str, ...] = (),
    /,
    **inputs: Any,
) -> Any:
    """Return what a definition returns if ``compute`` makes all arrays of its attention that are returned.

    The attention takes the arrays ``taken``, by default its own. Of several ones, those of ``prefixes`` are replaced,
    by default all.
    """
    values = {name: array for name, array in inputs.items() if array is not None}
    replaced = set[str]()
    for step in spec.pipeline(values):
        prefix = spec.find_prefix(step)
        if prefix is None or prefix not in (prefixes or spec.prefixes):
            values[step.name] = step.run(*map(values.get, step.of))
        elif prefix not in replaced:
            replaced.add(prefix)
            of = taken or spec.select_taken(inputs, prefix)
            arrays = {name: values[array] for name, array in of.items()}
            values |= {prefix + name: a for name, a in compute(spec.inner, arrays).items()}
    return select_returned(spec, values)


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


def _change_step(prefix: str, run: Change, spec: FlowWithAttention, values: Values) -> Any:
    return run(spec.inner, spec.select_arrays_of_attention(values, prefix))


def replace_output(spec: FlowWithAttention, compute: ComputeAttention) -> Mapping[str, OtherStep]:
    """Return the changes of steps by which ``compute`` makes the outputs of all attentions, and nothing else."""
    changes = dict[str, OtherStep]()
    for step in spec.pipeline_of_all:
        prefix = spec.find_prefix(step)
        if prefix is not None:
            is_output = step.name == f"{prefix}output"
            changes[step.name] = (
                partial(_compute_output, compute, prefix) if is_output else skip_step
            )
    return changes


def _compute_output(
    compute: ComputeAttention, prefix: str, spec: FlowWithAttention, values: Values
) -> Any:
    taken = spec.select_taken(values, prefix)
    arrays = {name: values[array] for name, array in taken.items()}
    return compute(spec.inner, arrays)["output"]


def skip_step(spec: FlowWithAttention, values: Values) -> None:
    """Return no array: nothing reads what this form does not compute."""
