"""``Merge``: two outputs over different keys, with their log-sum-exps, merged into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.fields import brief, refusal
from symattn.attention.softmax import logarithms, powers
from symattn.attention.streaming.states import PartialOutput, merge_partial
from symattn.bounds.called_target import Layout
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily
from symattn.document import codec, keywords
from symattn.verification.definitions.attending import check_layout, in_front, placed
from symattn.verification.definitions.definition_mistakes import DefinitionForm
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inputs_by_letters import FAMILIES, Family, Numbers
from symattn.verification.input_source import InputPairs, Random

# Rows n and widths d of each case.
_SIZES = ((3, 2), (5, 3), (1, 1), (4, 8), (2, 5), (9, 4), (17, 1), (2, 33))
_BASES = tuple(np.geomspace(1.1, 100, 25))  # starting points of the search for another base
Lift = Callable[[Array], Array]
Merged = tuple[Array, Array]


@dataclass(frozen=True, kw_only=True)
class Merge(keywords.Answering):
    """o = (o₁ e^{l₁} + o₂ e^{l₂}) / (e^{l₁} + e^{l₂}) and l = log(e^{l₁} + e^{l₂}).

    base  None: log-sum-exps are natural; 2: they are logarithms of base 2, and powers those of 2

    A function takes outputs o1, o2 (…, d) and log-sum-exps l1, l2 (…), and returns (o, l). A part without keys has
    l = −∞, and so the weight 0: the result is that of the other part, whatever the part's output holds, NaN included.

    >>> import numpy as np
    >>> o, l = Merge(base=2)(np.array([1.0]), np.array(0.0), np.array([4.0]), np.array(1.0))
    >>> o, l == np.log2(3)
    (array([3.]), np.True_)
    >>> Merge()(np.array([np.nan]), np.array(-np.inf), np.array([4.0]), np.array(1.0))
    (array([4.]), array(1.))

    Source: Liu et al., Ring Attention (2023); Dao, Flash-Decoding (2023).
    """

    base: int | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        # 2.0 equals 2, and is refused by its type.
        if self.base not in (None, 2) or isinstance(self.base, float):
            raise refusal(self, "base", "be 2, or None for natural logarithms")

    def __call__(self, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
        """Return the output over all keys, and its log-sum-exp."""
        l1, l2 = _as_lse_column(l1), _as_lse_column(l2)
        o1, o2 = _drop_undefined_output(o1, l1), _drop_undefined_output(o2, l2)
        o, lse = _merge_two_outputs(self.base, o1, l1, o2, l2)
        return o, lse[..., 0]


def subjects(spec: Merge, layout: Layout) -> Iterator[Definition]:
    """Yield the definition for log-sum-exps of shape (…, n), (…, n, 1), and, with heads, with heads before tokens."""
    check_layout("Merge", layout)
    rows = placed(layout, "n")
    yield _define_merge(spec, layout, rows, _as_lse_column, lambda lse: lse[..., 0])
    yield _define_merge(spec, layout, f"{rows} 1", lambda lse: lse, lambda lse: lse)
    # With heads, log-sum-exps may come with tokens before heads.
    if "h" in rows:
        swapped = " ".join([*rows.split()[:-2], *reversed(rows.split()[-2:])])
        yield _define_merge(
            spec, layout, swapped, lambda lse: _as_lse_column(lse.mT), lambda lse: lse[..., 0].mT
        )


def _define_merge(spec: Merge, layout: Layout, rows: str, lift: Lift, lower: Lift) -> Definition:
    def laid(run: Compute) -> Compute:
        def moved(o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
            o, lse = run(o1, lift(l1), o2, lift(l2))
            return o, lower(lse)

        return moved

    shapes = ({**in_front(layout, i), "n": n, "d": d} for i, (n, d) in enumerate(_SIZES))
    words = {
        "o1": "o out output v_a o_a out_a prefix_output acc",
        "l1": "l lse s_a lse_a prefix_lse",
        "o2": "block_out v_b o_b out_b suffix_output new_out",
        "l2": "block_lse s_b lse_b suffix_lse new_lse",
    }
    return Definition(
        title=codec.called(spec),
        step="merge",
        inputs=tuple(
            Input(x, rows if x[0] == "l" else placed(layout, "n", "d"), also)
            for x, also in words.items()
        ),
        outputs=("output", "lse"),
        ways=tuple(
            DefinitionForm(words, laid(partial(run, spec.base))) for words, run in _WAYS.items()
        ),
        mistakes=tuple(replace(m, way=laid(m.run)) for m in _yield_merge_mistakes(spec.base)),
        recorded=tuple(laid(partial(run, spec.base)) for run in _RECORDED),
        numbered=(
            MistakeFamily(
                "merge", _OTHER_BASE, lambda x: laid(partial(_in_base, x, spec.base)), _BASES
            ),
        ),
        shapes=tuple(shapes),
        families={**FAMILIES, "offset": _draw_offset_log_sums},
        distant=_make_distant_lse_family,
        empties=partial(_without_keys, lift, lower),
        undefined=partial(_undefined_without_keys, lift, lower),
        leak="NaN in the output of a part without keys, l = −∞, reaches the result",
        settings={"base": spec.base},
    )


def _draw_offset_log_sums(rng: Random) -> Numbers:
    """Draw log-sum-exps with a common offset; their powers may overflow or underflow in float32."""
    offset = float(rng.choice([-1000, -100, 100, 1000]))

    def numbers(name: str, shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal(shape) + (offset if name[0] == "l" else 0.0)

    return numbers


def _make_distant_lse_family(distance: float) -> Family:
    """Return the family in which one log-sum-exp is ``distance`` below the other, and the larger one's output is 0."""

    def family(rng: Random) -> Numbers:
        # Either may be the larger one, so that code which favours its first argument shows.
        larger = rng.choice(["1", "2"])

        def numbers(name: str, shape: tuple[int, ...]) -> np.ndarray:
            if name[0] == "l":
                # Names are l1, l2 and so on: the digit says which part an array belongs to.
                return np.full(shape, 0.0 if name[1] == larger else -distance)
            return np.zeros(shape) if name[1] == larger else rng.standard_normal(shape)

        return numbers

    return family


class _Emptied(NamedTuple):
    """The parts of a merge that are without keys, in one of ``step`` rows, of all heads and items in order.

    ``output`` is what the output of such a part holds there; with None, the numbers that were drawn stay.
    """

    parts: str
    step: int
    output: float | None = 0.0


#: With both parts empty, outputs are 0: there is no other part whose output would be the result.
_EMPTY_PARTS = {
    "l1 = −∞": _Emptied("1", 3),
    "l2 = −∞": _Emptied("2", 3),
    "l1 = l2 = −∞": _Emptied("12", 3),
    "l1 = −∞ in every row": _Emptied("1", 1),
    "l2 = −∞ in every row": _Emptied("2", 1),
    "l1 = −∞, o1 ≠ 0": _Emptied("1", 2, None),
    "l2 = −∞, o2 ≠ 0": _Emptied("2", 2, None),
}


def _without_keys(
    lift: Lift, lower: Lift, inputs: dict[str, np.ndarray]
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield the inputs with the first part, the second, or both without keys in some rows: l = −∞, o zeros or not."""
    for words, emptied in _EMPTY_PARTS.items():
        yield f"{words} (a part without keys)", _empty_parts(lift, lower, emptied, inputs)


def _undefined_without_keys(lift: Lift, lower: Lift, inputs: dict[str, np.ndarray]) -> InputPairs:
    """Yield inputs of which one part has no keys in some rows, with zeros as its output there, and with NaN."""
    for part in "12":
        zeros, undefined = (
            _empty_parts(lift, lower, _Emptied(part, 2, output), inputs) for output in (0.0, np.nan)
        )
        yield zeros, undefined


def _empty_parts(
    lift: Lift, lower: Lift, emptied: _Emptied, inputs: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    result = dict(inputs)
    for part in emptied.parts:
        # A copy, as some of its rows become −∞.
        column = np.array(lift(inputs[f"l{part}"]))
        column.reshape(-1)[:: emptied.step] = -np.inf
        if emptied.output is not None:
            outputs = inputs[f"o{part}"]
            filled = np.where(np.isneginf(column), emptied.output, outputs)
            result[f"o{part}"] = filled.astype(outputs.dtype)
        result[f"l{part}"] = np.ascontiguousarray(lower(column))
    return result


def _drop_undefined_output(o: Array, lse: Array) -> Array:
    """Return the output of a part with 0 for NaN and infinities where the part has no keys.

    Shapes: o (…, d), lse (…, 1).
    """
    xp = namespace_of(o)
    return xp.where(xp.isfinite(lse), o, xp.where(xp.isfinite(o), o, 0))


def _as_lse_column(lse: Array) -> Array:
    return namespace_of(lse).expand_dims(lse, axis=-1)


# -- ways, for log-sum-exps as columns ---------------------------------------------------------------------------------
def _merge_two_outputs(base: int | None, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
    return merge_partial(PartialOutput(o1, l1), PartialOutput(o2, l2), base)


def _by_total(base: int | None, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
    lse = _merge_two_outputs(base, o1, l1, o2, l2)[1]
    return o1 * powers(l1 - lse, base) + o2 * powers(l2 - lse, base), lse


def _by_sigmoid(base: int | None, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
    xp, difference = namespace_of(o1), l2 - l1
    # Powers of differences from the larger log-sum-exp cannot overflow.
    top = xp.maximum(difference, 0 * difference)
    one = powers(-top, base)
    other = powers(difference - top, base)
    return o1 - other / (one + other) * (o1 - o2), l1 + (top + logarithms(one + other, base))


def _by_share(base: int | None, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
    """Return ``_by_sigmoid`` in the form that has a value where one part has no keys: there σ is 0 or 1."""
    # l is −∞ only if both parts lack keys, so one part without keys has a value here.
    lse = _merge_two_outputs(base, o1, l1, o2, l2)[1]
    return o1 - powers(l2 - lse, base) * (o1 - o2), lse


def _by_tanh(base: int | None, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
    difference = l2 - l1
    two = logarithms(namespace_of(o1).asarray(2, dtype=o1.dtype))
    # tanh takes natural logarithms, whatever the base of the log-sum-exps.
    half = (difference if base is None else difference * two) / 2
    return o1 + (1 + namespace_of(o1).tanh(half)) / 2 * (o2 - o1), _by_sigmoid(
        base, o1, l1, o2, l2
    )[1]


def _in_other_base(base: int | None, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
    times, back = _make_base_converters(base, o1)
    o, lse = _merge_two_outputs(None if base else 2, o1, times(l1), o2, times(l2))
    return o, back(lse)


def _make_base_converters(base: int | None, like: Array) -> tuple[Lift, Lift]:
    """Return functions from logarithms of the base to those of the other base, and back."""
    two = logarithms(namespace_of(like).asarray(2, dtype=like.dtype))
    there, back = (lambda lse: lse / two), (lambda lse: lse * two)
    return (there, back) if base is None else (back, there)


def _zero_empty_part(o: Array, lse: Array) -> Array:
    xp = namespace_of(o)
    return xp.where(xp.isfinite(lse), o, 0 * o)


def _by_shares(base: int | None, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
    """Return the merge by the share of each part, w₁/(w₁ + w₂) and w₂/(w₁ + w₂)."""
    o1, o2 = _zero_empty_part(o1, l1), _zero_empty_part(o2, l2)
    top = namespace_of(o1).maximum(l1, l2)
    w1, w2 = powers(l1 - top, base), powers(l2 - top, base)
    total = w1 + w2
    return w1 / total * o1 + w2 / total * o2, top + logarithms(total, base)


_WAYS: dict[str, Callable[..., Merged]] = {
    "(o₁ w₁ + o₂ w₂)/(w₁ + w₂), w the powers of l₁ − m and l₂ − m, m the larger one": _merge_two_outputs,
    "o₁ and o₂ times the powers of l₁ − l and l₂ − l": _by_total,
    "o₁ − σ (o₁ − o₂), σ = w₂/(w₁ + w₂)": _by_sigmoid,
    "o₁ − σ (o₁ − o₂), σ the power of l₂ − l": _by_share,
    "o₁ + σ (o₂ − o₁), σ = (1 + tanh((l₂ − l₁)/2))/2, as compilers write 1/(1 + e^{l₁ − l₂})": _by_tanh,
    "the first with logarithms of the other base, e or 2": _in_other_base,
}
#: Code that divides each power by their sum has other operations than one that divides their weighted sum.
_RECORDED = (_merge_two_outputs, _by_shares, _by_total, _by_sigmoid)


# -- mistakes ----------------------------------------------------------------------------------------------------------
def _yield_merge_mistakes(base: int | None) -> Iterator[Mistake]:
    def mistake(step: str, cause: str, wrong: Callable[..., Merged]) -> Mistake:
        return Mistake(step, cause, partial(wrong, base))

    meant, taken = (
        ("log-sums of base 2", "natural") if base else ("natural log-sums", "logarithms of base 2")
    )
    for words, which in _MISREAD.items():
        yield mistake(
            "merge",
            words.format(meant=meant, taken=taken),
            partial(_merge_with_misread_bases, which),
        )
    alone: Compute = lambda base, *given: (  # noqa: E731
        _merge_two_outputs(None if base else 2, *given)[0],
        _merge_two_outputs(base, *given)[1],
    )
    yield mistake("merge", f"the weights are computed from {meant} as if they were {taken}", alone)
    other = "natural, not of base 2" if base else "of base 2, not natural"
    yield mistake(
        "lse",
        f"the log-sum that is returned is {other}",
        partial(_merge_with_misread_bases, _RETURNED),
    )
    yield mistake(
        "lse", f"the logarithm that is added to the larger log-sum is {other}", _of_other_logarithm
    )
    for k, stays in {1: "first", 3: "second"}.items():
        stale: Compute = lambda base, *given, k=k: (_merge_two_outputs(base, *given)[0], given[k])  # noqa: E731
        yield mistake("lse", f"the log-sum is not updated: it is the {stays} one", stale)
    for words, wrong in _WRONG.items():
        yield mistake("merge", words, wrong)
    by_logarithms: Compute = lambda base, o1, l1, o2, l2: (  # noqa: E731
        (o1 * l1 + o2 * l2) / (l1 + l2),
        _merge_two_outputs(base, o1, l1, o2, l2)[1],
    )
    yield mistake(
        "merge",
        "the outputs are weighted by their log-sums, not by the powers of these",
        by_logarithms,
    )


#: Which log-sum-exps are taken for those of the other base: the first, the second, the returned one.
_MISREAD = {
    "{meant} are taken as {taken}": (True, True, True),
    "{meant} are taken as {taken}; the merged one is returned correctly": (True, True, False),
    "the first of the {meant} is taken as {taken}": (True, False, False),
    "the second of the {meant} is taken as {taken}": (False, True, False),
    "the first of the {meant} is taken as {taken}, and so is that of both": (True, False, True),
    "the second of the {meant} is taken as {taken}, and so is that of both": (False, True, True),
}
_RETURNED = (False, False, True)


#: A base that is neither e nor 2.
_OTHER_BASE = "log-sums are taken as logarithms of base {}"


def _in_base(x: float, base: int | None, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
    # The factor turns logarithms of base x into logarithms of the base.
    factor = logarithms(namespace_of(o1).asarray(x, dtype=o1.dtype), base)
    o, lse = _merge_two_outputs(base, o1, factor * l1, o2, factor * l2)
    return o, lse / factor


def _merge_with_misread_bases(
    which: tuple[bool, bool, bool], base: int | None, o1: Array, l1: Array, o2: Array, l2: Array
) -> Merged:
    times, back = _make_base_converters(base, o1)
    l1, l2 = (back(lse) if wrong else lse for lse, wrong in zip((l1, l2), which[:2], strict=True))
    o, lse = _merge_two_outputs(base, o1, l1, o2, l2)
    return o, times(lse) if which[2] else lse


def _of_output(change: Callable[..., Array]) -> Callable[..., Merged]:
    """Return a merge whose output alone is changed, from o₁, o₂ and their weights."""

    def wrong(base: int | None, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
        lse = _merge_two_outputs(base, o1, l1, o2, l2)[1]
        return change(o1, o2, powers(l1 - lse, base), powers(l2 - lse, base)), lse

    return wrong


def _of_other_logarithm(base: int | None, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
    o, lse = _merge_two_outputs(base, o1, l1, o2, l2)
    top = namespace_of(l1).maximum(l1, l2)
    return o, top + _make_base_converters(base, o1)[0](lse - top)


_WRONG: dict[str, Callable[..., Merged]] = {
    "the outputs are added without weights": _of_output(lambda a, b, x, y: a + b),
    "the outputs are averaged, whatever their log-sums": _of_output(lambda a, b, x, y: (a + b) / 2),
    "only the second output is weighted": _of_output(lambda a, b, x, y: a + b * y),
    "only the first output is weighted": _of_output(lambda a, b, x, y: a * x + b),
}
