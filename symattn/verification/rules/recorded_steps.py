"""Mistakes in any step of attention, from its record: left out, done twice, and those that the record states."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from symattn.attention.flow import Step
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention
from symattn.bounds.mistake import Mistake, Wrong, in_steps
from symattn.verification.rules.steps import apply_step_twice, left_out, times


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield the mistakes that the records of the steps state, or that follow from the nouns of their arrays."""
    for step in spec.pipeline(names):
        blamed = ARRAYS[step.row].blames
        for words, wrong in (*_yield_mistakes_of_noun(step), *step.mistakes.items()):
            yield in_steps(blamed, words, **{step.name: wrong})


def _yield_mistakes_of_noun(step: Step) -> Iterator[tuple[str, Wrong]]:
    noun = ARRAYS[step.row].noun
    # A step that makes another array, as of slopes, has nothing to leave out or to do again.
    if not noun or not _changes_its_first_array(step):
        return
    # The rule of norms leaves them out, together with others of the same field.
    if step.norm is None:
        yield f"{noun} is left out", left_out
    if step.errors == "adds":
        yield f"{noun} is added twice", partial(times, 2)
        yield f"the sign of {noun} is flipped", partial(times, -1)
    else:
        yield f"{noun} is applied twice", apply_step_twice


def _changes_its_first_array(step: Step) -> bool:
    """Return whether the array of a step has the shape of the first one that it takes."""
    # Behind the weights only a projection has another one, whether heads are apart, joined or alone.
    if step.role == "output" and step.errors not in ("own", "projects"):
        return True
    # In last place the array has the shape of its row, or behind a projection that of the output.
    shapes = {ARRAYS[name].shape for name in (step.row, step.name)}
    return bool(step.of) and ARRAYS[step.of[0]].shape in shapes
