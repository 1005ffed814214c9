"""Mistakes of a sum of two arrays that later steps read, and of the arrays that a definition returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from symattn.attention.flow import Step
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.mistake import At, Mistake, Wrong
from symattn.verification.rules.steps import left_out


def mistakes_of_sum(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield mistakes of x + y: y is left out, subtracted, or added at another place."""
    first, added = step.of
    noun = spec.noun_of(added)

    def mistake(words: str, steps: Mapping[str, Wrong]) -> Mistake:
        return in_stated_steps(spec, step.blames, words, steps)

    yield mistake(f"{noun} is not added", {step.name: left_out})
    yield mistake(f"{noun} is subtracted", {step.name: _subtract})
    source = next((s for s in spec.pipeline_of_all if s.name == added), None)
    # Of a function of x itself, there is no other array that the sum could stand for.
    if source is not None and source.of[0] != first:
        words = f"{noun} is that of {spec.noun_of(step.name)}, not of {spec.noun_of(source.of[0])} alone"
        yield mistake(words, {step.name: _apply_to_sum(source, first)})
    reader = next((s for s in spec.pipeline_of_all if step.name in s.of), None)
    if reader is None or reader.role == "returned":
        return
    reads = spec.noun_of(reader.name)
    for alone, other in ((added, first), (first, added)):
        words = f"only {spec.noun_of(alone)} is read by {reads}, without {spec.noun_of(other)}"
        yield mistake(words, {reader.name: _read_alone(alone)})
    # The sum that is returned is then the one after that step.
    returned = {s.name: _read(reader.name) for s in _copies_of(spec, step.name)}
    words = f"{noun} is added after {reads}, not before"
    yield mistake(words, {reader.name: _add_after(first, added), **returned})


def _subtract(at: At) -> Any:
    first, added = at.taken
    return first - added


def _apply_to_sum(source: Step, first: str) -> Wrong:
    """Return the result of the step that computes y, of x and what it takes: f(x + z) in place of x + f(z)."""
    return lambda at: at.of(source.name, at.values[first] + at.values[source.of[0]])


def _read(name: str) -> Wrong:
    return lambda at: at.values[name] * 1


def _read_alone(name: str) -> Wrong:
    return lambda at: at.right(at.values[name])


def _add_after(first: str, added: str) -> Wrong:
    return lambda at: at.right(at.values[first]) + at.values[added]


def _copies_of(spec: Any, name: str) -> Iterator[Step]:
    """Yield the steps that return an array as it is."""
    yield from (s for s in spec.pipeline_of_all if s.role == "returned" and s.of == (name,))


def mistakes_of_returned(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield mistakes of an array that is returned as it was computed: another one is returned in its place."""
    (source,) = step.of
    (computed,) = (s for s in spec.pipeline_of_all if s.name == source)
    for other in dict.fromkeys((*computed.of, *spec.returned)):
        if other not in (source, step.name):
            words = f"what is returned as {spec.noun_of(step.name)} is {spec.noun_of(other)}"
            yield in_stated_steps(spec, computed.blames, words, {step.name: _read(other)})
