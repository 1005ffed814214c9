"""Mistakes in the norms of an attention: of queries and keys, of values, and of what stands behind the weights.

They follow from the record of each step that normalises (``NormRecord``). Norms that one field of the specification
asks for are computed alike: a mistake may be in all of them, or in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import projections
from symattn.attention.flow import Step, find_steps_behind_weights
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.norms import NormRecord, flatten
from symattn.attention.spec import Attention
from symattn.bounds.mistake import (
    At,
    Mistake,
    Wrong,
    in_fields,
    in_inputs,
    in_place_of,
    in_steps,
)
from symattn.bounds.mistake import step as step_of
from symattn.verification.rules import norms
from symattn.verification.rules.norms import Norm, affine
from symattn.verification.rules.steps import left_out

#: The vectors of each role, in words.
_VECTORS: Mapping[str, str] = {"q": "queries", "k": "keys", "v": "values"}
_BEHIND_WEIGHTS = "output"


@dataclass(frozen=True)
class NormGroup:
    """Norms of an attention that are computed alike, as one field asks for them."""

    steps: tuple[Step, ...]

    @property
    def first(self) -> Step:
        """The first step."""
        return self.steps[0]

    @property
    def record(self) -> NormRecord:
        """The norm of the first step; the others differ in the names of their parameters alone."""
        return record_of(self.first)

    @property
    def blames(self) -> str:
        """The step that a report names."""
        return ARRAYS[self.first.row].blames

    @property
    def is_of_scores(self) -> bool:
        """Return whether queries and keys are normalised, or keys alone."""
        return self.first.role in ("q", "k")

    @property
    def lead(self) -> str:
        """The words before a cause: empty for norms of queries and keys, which are the usual ones."""
        return "" if self.is_of_scores else f"in {noun_of(self.first)}: "

    @property
    def parameters(self) -> list[str]:
        """The names of all gains and biases."""
        return [name for step in self.steps for name in record_of(step).parameters]

    def has(self, part: str) -> bool:
        """Return whether one of the norms has a ``gain``, or a ``bias``."""
        return any(getattr(record_of(step), part) for step in self.steps)

    def mistake(self, words: str, how: Norm, exact: bool = True) -> Mistake:
        """Return the mistake of another norm in all of these steps."""
        result = self.mistake_in_steps(words, partial(normalise_by, how))
        return replace(result, exact=exact)

    def mistake_in_steps(self, words: str, wrong: Wrong) -> Mistake:
        """Return the mistake of computing all of these steps wrongly."""
        steps = {step.name: wrong for step in self.steps}
        return in_steps(self.blames, f"{self.lead}{words}", **steps)


def record_of(step: Step) -> NormRecord:
    """Return what a step that normalises computes."""
    assert step.norm is not None
    return step.norm


def noun_of(step: Step) -> str:
    """Return a norm in words: the noun in the row of its array, else the norm of the vectors of its role."""
    role = step.role
    return ARRAYS[step.row].noun or f"the norm of the {_VECTORS.get(role, role)}"


def list_norm_groups(spec: Attention, names: Iterable[str]) -> list[NormGroup]:
    """Return the norms of an attention, those of one field together."""
    steps = [step for step in spec.pipeline(names) if step.norm is not None]
    return [NormGroup(tuple(group)) for _, group in groupby(steps, key=lambda step: step.field)]


def normalise_by(how: Norm, at: At, x: Any = None) -> Any:
    """Return the vectors x, by default those that the step takes, by another norm of its rows."""
    record = record_of(step_of(at.spec, at.values, at.name))
    gain, bias = at.values.get(record.gain), at.values.get(record.bias)
    return record.run_by(how, at.first if x is None else x, gain, bias)


def normalise_with_eps(eps: float, at: At) -> Any:
    """Return the vectors that the step takes by its norm with another ε."""
    record = record_of(step_of(at.spec, at.values, at.name))
    return normalise_by(replace(norms.right(record.kind), eps=eps), at)


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield the mistakes in the norms of a specification with the inputs ``names``."""
    for group in list_norm_groups(spec, names):
        yield from _yield_left_out(group)
        yield from _yield_norms_of_other_arrays(spec, names, group)
        record = group.record
        axes = _list_axes_of_other_norms(record)
        rows = norms.yield_wrong_norms(
            record.kind, record.eps, axes, group.has("gain"), group.has("bias")
        )
        for words, how, exact in rows:
            yield group.mistake(words, how, exact)
        if record.over_heads:
            yield from _yield_mistakes_of_joined_heads(group)
        if record.gain in record.by_head:
            yield from _yield_gains_of_other_heads(group)
        if len(group.steps) > 1:
            yield from _yield_mistakes_of_one_norm(group)
        yield from _yield_gains_read_wrongly(group)


def _yield_left_out(group: NormGroup) -> Iterator[Mistake]:
    """Yield the mistakes that all norms are left out, or one of several."""
    apart = reversed(group.steps) if len(group.steps) > 1 else ()
    for steps in (group.steps, *((step,) for step in apart)):
        changes: dict[str, Wrong] = {step.name: left_out for step in steps}
        if all(step.role in _VECTORS for step in steps):
            words = f"{' and '.join(_VECTORS[step.role] for step in steps)} are not normalised"
        else:
            words = f"{' and '.join(map(noun_of, steps))} is left out"
        yield in_steps(group.blames, words, **changes)


def _list_axes_of_other_norms(record: NormRecord) -> dict[tuple[int, ...], str]:
    """Return axes over which no right norm runs."""
    axes: dict[tuple[int, ...], str] = {
        (-2,): "the tokens",
        (-1, -2): "tokens and columns together",
    }
    # Heads side by side have no axis.
    if record.heads > 1 and not record.over_heads:
        axes |= {(-3,): "the heads", (-1, -3): "all heads together"}
    return axes


def _yield_mistakes_of_one_norm(group: NormGroup) -> Iterator[Mistake]:
    """Yield mistakes that one of several norms has alone."""
    good = norms.right(group.record.kind)
    for step in group.steps:
        record, one = record_of(step), NormGroup((step,))
        noun = f"the {_VECTORS.get(step.role, step.role)}"
        # Without ε the root alone divides, which shows for tiny entries.
        if record.eps:
            words = f"ε is left out of the norm of {noun}"
            yield one.mistake(words, replace(good, divisor=lambda xp, v, e: xp.sqrt(v)))
        if record.gain:
            way = replace(good, affine=lambda y, g, b: affine(y, None, b))
            yield one.mistake(f"the gain of {noun} is left out", way)
        # softmax ignores a bias of keys: it shifts all scores of a query alike.
        if record.bias and step.role != "k":
            way = replace(good, affine=lambda y, g, b: affine(y, g, None))
            yield one.mistake(f"the bias of {noun} is left out", way)


def _yield_gains_read_wrongly(group: NormGroup) -> Iterator[Mistake]:
    """Yield gains that are stored as offsets from one, of another norm, or in the opposite order."""
    if not group.has("gain"):
        return
    # Some models store g − 1, so that a gain of 0 is the identity.
    offset = replace(norms.right(group.record.kind), affine=norms.apply_gain_without_offset)
    yield group.mistake(norms.GAIN_WITHOUT_OFFSET, offset)
    if len(group.steps) == 2 and _have_gains_of_one_length(group):
        first, second = (record_of(step) for step in group.steps)
        exchanged = {first.gain: second.gain, first.bias: second.bias}
        pairs = {one: other for one, other in exchanged.items() if one and other}
        of = " and ".join(_VECTORS.get(step.role, step.role) for step in group.steps)
        words = f"the gains of {of} are exchanged"
        yield in_place_of(group.blames, words, **pairs, **{b: a for a, b in pairs.items()})
    words = f"{group.lead}gains of the norm are read from the last column to the first"
    reversed_gains = {
        name: _reverse_columns for step in group.steps if (name := record_of(step).gain)
    }
    yield in_inputs(group.blames, words, **reversed_gains)


def _have_gains_of_one_length(group: NormGroup) -> bool:
    """Return whether all norms have gains, of the same number of heads if these are counted."""
    records = [record_of(step) for step in group.steps]
    heads = {record.heads if record.by_head else 1 for record in records}
    return all(record.gain for record in records) and len(heads) == 1


def _reverse_columns(gains: Any) -> Any:
    return gains[..., ::-1]


# -- norms at another place --------------------------------------------------------------------------------------------
def _yield_norms_of_other_arrays(
    spec: Attention, names: frozenset[str], group: NormGroup
) -> Iterator[Mistake]:
    """Yield mistakes in which other arrays are normalised, or the same later or earlier."""
    step = group.first
    if step.role == _BEHIND_WEIGHTS:
        yield from _yield_norms_at_other_places(spec, names, group)
    elif step.role == "v":
        late: Wrong = lambda at: _normalise_as(step, at, at.right())  # noqa: E731
        words = "weighted sums of the values are normalised, not the values"
        closing = _find_heads_output(spec, names)
        yield in_steps(group.blames, words, **{step.name: left_out, closing: late})
    elif [step.role for step in group.steps] == ["k"]:
        yield from _yield_norms_of_other_roles(spec, group)


def _normalise_as(step: Step, at: At, x: Any) -> Any:
    """Return x, which is made at another step, by the norm of ``step``. Raises ``KeyError`` if it does not fit x."""
    record = record_of(step)
    gain, bias = at.values.get(record.gain), at.values.get(record.bias)
    # Without numbers for each head, any number of heads fits.
    counts_heads = record.over_heads or record.by_head
    if counts_heads and (len(x.shape) < 3 or int(x.shape[-3]) != record.heads):
        raise KeyError("the heads differ in number")
    columns = int(x.shape[-1])
    for name, numbers in ((record.gain, gain), (record.bias, bias)):
        if numbers is None:
            continue
        count = columns * (record.heads if name in record.by_head else 1)
        if int(flatten(numbers).shape[0]) != count:
            raise KeyError("the columns differ in number from the gains")
    return record.run_by(norms.right(record.kind), x, gain, bias)


def _find_heads_output(spec: Attention, names: frozenset[str]) -> str:
    """Return the name of the step in which the weights multiply the values."""
    steps = [step.name for step in spec.pipeline(names)]
    return "attended" if "attended" in steps else "output"


def _yield_norms_of_other_roles(spec: Attention, group: NormGroup) -> Iterator[Mistake]:
    """Yield mistakes in which queries or values are normalised, where keys alone should be."""
    step, good = group.first, norms.right(group.record.kind)
    # Keys that another field normalises have no field to which queries could be added.
    if step.field == "qk_norm":
        words = "queries are normalised too, not keys alone"
        yield in_fields(group.blames, words, qk_norm_of="both")

    def scores_of_normed_queries(at: At) -> Any:
        return at.right(good(at.first, group.record.eps))

    words = "queries are normalised, not keys"
    changes: dict[str, Wrong] = {step.name: left_out, "scores": scores_of_normed_queries}
    yield in_steps(group.blames, words, **changes)
    if group.record.kind == "rms" and spec.value_norm is None:
        words = "values are normalised too, not keys alone"
        yield in_fields(group.blames, words, value_norm="rms")


def _yield_norms_at_other_places(
    spec: Attention, names: frozenset[str], group: NormGroup
) -> Iterator[Mistake]:
    """Yield mistakes in which a norm behind the weights stands on the values, or beyond a step beside it."""
    step, noun = group.first, noun_of(group.first)
    of_values: Wrong = lambda at: _normalise_as(step, at, at.met)  # noqa: E731
    words = f"{noun} stands before the weighted sums, on the values, not after them"
    changes: dict[str, Wrong] = {"normed_values": of_values, step.name: left_out}
    yield in_steps(group.blames, words, True, "normed_values", **changes)
    behind = find_steps_behind_weights(spec.pipeline(names))
    place = behind.index(step)
    for other in behind[place + 1 : place + 2]:
        late: Wrong = lambda at: _normalise_as(step, at, at.right())  # noqa: E731
        words = f"{noun} stands after {_call_step(other)}, not before"
        yield in_steps(group.blames, words, **{step.name: left_out, other.name: late})
    for other in behind[max(place - 1, 0) : place]:
        early: Wrong = lambda at: at.right(_normalise_as(step, at, at.first))  # noqa: E731
        words = f"{noun} stands before {_call_step(other)}, not after"
        yield in_steps(group.blames, words, **{other.name: early, step.name: left_out})


def _call_step(step: Step) -> str:
    """Return a step behind the weights in words."""
    if step.errors == "projects":
        return "the output projection"
    return ARRAYS[step.row].noun or f"the step {step.row}"


# -- norms over several heads ------------------------------------------------------------------------------------------
def _yield_mistakes_of_joined_heads(group: NormGroup) -> Iterator[Mistake]:
    """Yield mistakes in a norm over the columns of all heads: over fewer of them, or by another number of them."""
    good = norms.right(group.record.kind)
    words = "each head is normalised by itself, not all heads together"
    yield group.mistake_in_steps(words, partial(_normalise_in_groups, good, 1))
    # A half of two heads is one head, which the mistake above has.
    if group.record.heads > 2 and all(record_of(step).heads % 2 == 0 for step in group.steps):
        words = "the norm runs over half of the heads at a time (as on two devices), not over all"
        yield group.mistake_in_steps(words, partial(_normalise_in_groups, good, None))

    def normalise_by_one_width(at: At) -> Any:
        """Return the norm with the divisor d_k in place of h d_k."""
        heads = _count_heads(at)
        return normalise_by(replace(good, measure=lambda mean, y, n: mean(y * y) * heads), at)

    words = "the squares of all heads are divided by the width of one head"
    yield group.mistake_in_steps(words, normalise_by_one_width)
    if group.record.gain:
        words = "each head is normalised by itself, with the gains of the first head"
        wrong: Wrong = lambda at: _normalise_in_groups(good, 1, at, _take_gains_of_first_head)  # noqa: E731
        yield group.mistake_in_steps(words, wrong)


def _yield_gains_of_other_heads(group: NormGroup) -> Iterator[Mistake]:
    """Yield mistakes in which gains that each head has, and biases, are those of other heads."""
    good = norms.right(group.record.kind)
    has_biases = group.record.bias in group.record.by_head
    width = "d_v" if group.first.role in ("v", _BEHIND_WEIGHTS) else "d_k"
    for words, gains in _GAINS_OF_OTHER_HEADS.items():
        wrong = partial(_normalise_with_other_gains, good, gains)
        noun = "gains and biases" if has_biases else "gains"
        yield group.mistake_in_steps(words.format(noun=noun, width=width), wrong)
        if has_biases:
            alone = partial(wrong, bias_too=False)
            yield group.mistake_in_steps(words.format(noun="gains", width=width), alone)


def _normalise_with_other_gains(
    good: Norm, gains: Callable[[Array, int], Any], at: At, bias_too: bool = True
) -> Any:
    """Return the norm with other gains, and biases, as they are made of those of all heads."""
    record = record_of(step_of(at.spec, at.values, at.name))
    gain, bias = (flatten(at.values.get(name)) for name in (record.gain, record.bias))
    if bias is not None and bias_too:
        bias = gains(bias, record.heads)
    return record.run_by(good, at.first, None if gain is None else gains(gain, record.heads), bias)


def _count_heads(at: At) -> int:
    """Return how many heads the array that a step takes has."""
    return int(at.first.shape[-3])


def _take_gains_of_first_head(gains: Array, heads: int) -> Any:
    """Return the gains of the first head for each head. Shape: (h·d,) → (h·d,)."""
    xp = namespace_of(gains)
    width = gains.shape[0] // heads
    return xp.reshape(xp.broadcast_to(gains[None, :width], (heads, width)), (heads * width,))


def _read_gains_by_columns(gains: Array, heads: int) -> Any:
    """Return gains (h·d,), read as d × h numbers, in the order of heads."""
    xp = namespace_of(gains)
    table = xp.reshape(gains, (gains.shape[0] // heads, heads))
    return xp.reshape(xp.permute_dims(table, (1, 0)), gains.shape)


#: Gains of all heads, and biases, as they are read wrongly.
_GAINS_OF_OTHER_HEADS: Mapping[str, Callable[[Array, int], Any]] = {
    "the {noun} of the first head serve all heads": _take_gains_of_first_head,
    "{noun} are read column by column, as of {width} × h numbers, not head by head": (
        _read_gains_by_columns
    ),
}


def _normalise_in_groups(
    how: Norm,
    together: int | None,
    at: At,
    gains: Callable[[Array, int], Any] = lambda gains, heads: gains,
) -> Any:
    """Return vectors with the columns of so many heads, or of half of them, normalised together, by other ``gains``."""
    x, record = at.first, record_of(step_of(at.spec, at.values, at.name))
    xp = namespace_of(x)
    *batch, heads, n, width = x.shape
    size = heads // 2 if together is None else together
    merged = projections.merge_heads(x)
    parts = xp.reshape(merged, (*batch, n, heads // size, size * width))
    normed = xp.reshape(replace(how, affine=lambda y, g, b: y)(parts, record.eps), merged.shape)
    inputs = (at.values.get(record.gain), at.values.get(record.bias))
    gain, bias = (None if a is None else gains(flatten(a), heads) for a in inputs)
    return projections.split_heads(affine(normed, gain, bias), heads)
