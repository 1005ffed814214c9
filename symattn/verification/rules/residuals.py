"""Mistakes of a residual stream x + f(x): where a residual starts, what a part reads, and where its norm stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from symattn.attention.constants import number
from symattn.attention.flow import Step
from symattn.bounds.changed_steps import ChangedSteps, in_stated_steps
from symattn.bounds.mistake import At, Mistake, MistakeFamily, Wrong, change
from symattn.verification.rules.steps import left_out

_NORMS = ("layer norm", "rms norm")
#: Where norms stand, in words for all parts and for one of them.
_PLACES: Mapping[str, tuple[str, str]] = {
    "pre": ("before each part", "before it"),
    "post": ("after each residual", "after its residual"),
    "inner": ("after each part, before its residual", "after it, before its residual"),
}
#: Which summands of a residual have a factor.
_SUMMANDS = {"what is added": (1,), "what it is added to": (0,), "the sum": (0, 1)}
_SIZES = tuple(map(float, np.geomspace(0.1, 10, 11)))
_FACTORS = (*(-x for x in reversed(_SIZES)), *_SIZES)


class _Part(NamedTuple):
    """A part of a stream: the steps ``inside`` up to its residual, and its norm, which stands at ``place``."""

    inside: tuple[Step, ...]
    residual: Step
    norm: Step | None
    place: str

    @property
    def source(self) -> str:
        """The array that the part reads."""
        return self.inside[0].of[0]

    @property
    def source_of_stream(self) -> str:
        """The array that its residual starts from."""
        return self.residual.of[0]

    @property
    def readers(self) -> list[str]:
        """The steps of the part that read it."""
        return [step.name for step in self.inside if self.source in step.of]

    def read_in_place(self, array: str) -> dict[str, Wrong]:
        """Return the changes by which the part reads another array."""
        return dict.fromkeys(self.readers, partial(_read_in_place, self.source, array))

    def move_norm(self, place: str) -> dict[str, Wrong]:
        """Return the changes by which its norm stands at another place."""
        assert self.norm is not None
        norm, result = self.norm.name, dict[str, Wrong]({self.norm.name: left_out})
        if place == "pre":
            moved = partial(_read_normed, norm, self.source)
            return result | dict.fromkeys(self.readers, moved)
        add = _normalise_sum if place == "post" else _normalise_summand
        return result | {self.residual.name: partial(add, norm)}


def _list_parts(spec: Any) -> list[_Part]:
    steps, result, start = spec.pipeline_of_all, list[_Part](), 0
    for n, step in enumerate(steps):
        if step.role != "residual":
            continue
        inside = steps[start:n]
        readers = [s for s in steps if step.name in s.of]
        norms = [s for s in inside if s.role in _NORMS]
        start = n + 1
        # In other orders the next residual reads the sum, too, or nothing does.
        if len(readers) == 1 and readers[0].role in _NORMS:
            result.append(_Part(inside, step, readers[0], "post"))
            start += 1
        elif norms:
            place = "inner" if norms[0].name == step.of[1] else "pre"
            result.append(_Part(inside, step, norms[0], place))
        else:
            result.append(_Part(inside, step, None, ""))
    return result


def mistakes_of_residual(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield the mistakes of a residual, of what its part reads, and of the place of its norm."""
    parts = _list_parts(spec)
    (part,) = (one for one in parts if one.residual is step)
    noun, what = spec.noun_of(step.name), _name_part(spec, part)

    def mistake(words: str, steps: Mapping[str, Wrong], blamed: str = step.blames) -> Mistake:
        return in_stated_steps(spec, blamed, words, steps)

    if part.norm is not None:
        yield from _yield_moved_norms(spec, parts, part)
    yield mistake(f"{noun} is left out", {step.name: _return_added})
    # Only norms before the parts stand where a residual could start after them.
    if part.norm is not None and part.place == "pre":
        after = partial(_start_from, part.norm.name)
        yield mistake(f"{noun} starts from the tokens after the norm", {step.name: after})
    first, is_first = parts[0], part is parts[0]
    if is_first:
        return
    of_first = _name_part(spec, first)
    if part is parts[-1]:
        words = f"the last residual starts from the tokens before {of_first}"
        yield mistake(words, {step.name: partial(_start_from, first.source_of_stream)})
    is_parallel = part.source == first.source_of_stream
    reads, other = ("gave", step.of[0]) if is_parallel else ("reads", first.source_of_stream)
    yield mistake(f"{what} reads what {of_first} {reads}", part.read_in_place(other))


def _name_part(spec: Any, part: _Part) -> str:
    noun: str = spec.noun_of(part.residual.name)
    return noun.removeprefix("the residual around ")


def _yield_moved_norms(spec: Any, parts: list[_Part], part: _Part) -> Iterator[Mistake]:
    """Yield the mistakes that the norms of all parts, or the norm of one, stand at another place."""
    assert part.norm is not None
    normed = [one for one in parts if one.norm is not None]
    is_parallel = any(one.source != one.residual.of[0] for one in parts)
    for place, (of_all, of_one) in _PLACES.items():
        # After a norm outside, the tokens that a parallel part reads are gone.
        if place == part.place or (place == "post" and is_parallel):
            continue
        expected_of_all, expected = _PLACES[part.place]
        if part is normed[0]:
            words = f"the norms stand {of_all}, not {expected_of_all}"
            steps = {name: wrong for one in normed for name, wrong in one.move_norm(place).items()}
            yield in_stated_steps(spec, part.norm.blames, words, steps)
        if len(normed) > 1:
            words = f"{spec.noun_of(part.norm.name)} stands {of_one}, not {expected}"
            yield in_stated_steps(spec, part.norm.blames, words, part.move_norm(place))


def families_of_residual(spec: Any, step: Step) -> Iterator[MistakeFamily]:
    """Yield factors in a residual."""
    for what, places in _SUMMANDS.items():

        def way(x: float, places: tuple[int, ...] = places) -> ChangedSteps:
            wrong = partial(_multiply_summands, places, x)
            return ChangedSteps(spec, {step.name: change(step.name, wrong)})

        words = f"in {spec.noun_of(step.name)}, {what} is multiplied by {{}}"
        yield MistakeFamily(step.blames, words, way, _FACTORS)


def _multiply_summands(places: tuple[int, ...], factor: float, at: At) -> Any:
    x, y = (a * number(factor, a) if n in places else a for n, a in enumerate(at.taken))
    return x + y


def _return_added(at: At) -> Any:
    return at.taken[1] * 1


def _start_from(array: str, at: At) -> Any:
    return at.right(at.values[array])


def _read_in_place(source: str, array: str, at: At) -> Any:
    return at.reading(source, at.values[array])


def _read_normed(norm: str, source: str, at: At) -> Any:
    return at.reading(source, at.of(norm, at.values[source]))


def _normalise_sum(norm: str, at: At) -> Any:
    return at.of(norm, at.right())


def _normalise_summand(norm: str, at: At) -> Any:
    x, y = at.taken
    return at.right(x, at.of(norm, y))
