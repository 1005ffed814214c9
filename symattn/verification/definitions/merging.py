"""``Merge``: two outputs over different keys, with their log-sum-exps, merged into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import Any, ClassVar, NamedTuple

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.fields import refusal
from symattn.attention.flow import Step
from symattn.attention.softmax import logarithms, nonempty, powers
from symattn.attention.stated_flow import OtherStep, StatedFlow
from symattn.attention.streaming.states import reference
from symattn.bounds.called_target import Layout
from symattn.bounds.changed_steps import ChangedSteps
from symattn.bounds.mistake import Compute, Wrong, change
from symattn.bounds.reference import Values
from symattn.verification.definitions.attending import check_layout, in_front, placed
from symattn.verification.definitions.definition_forms import DefinitionForm
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inputs_by_letters import FAMILIES, Family, Numbers
from symattn.verification.definitions.stated_definition import define_in_steps
from symattn.verification.input_source import InputPairs, Random
from symattn.verification.rules.merges import to_other_base

# Rows n and widths d of each case.
_SIZES = ((3, 2), (5, 3), (1, 1), (4, 8), (2, 5), (9, 4), (17, 1), (2, 33))
Lift = Callable[[Array], Array]
Merged = tuple[Array, Array]


@dataclass(frozen=True, kw_only=True, repr=False)
class Merge(StatedFlow):
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
    >>> Merge().write_formulas(())[-2:]
    ['L = m + log(Σ)', 'O = (O₁ ⊙ w₁ + O₂ ⊙ w₂)/Σ']

    Source: Liu et al., Ring Attention (2023); Dao, Flash-Decoding (2023).
    """

    base: int | None = None

    letters: ClassVar[Mapping[str, str]] = {
        "o1": "O_1",
        "l1": "l_1",
        "o2": "O_2",
        "l2": "l_2",
        "top": "m",
        "w_1": "w_1",
        "w_2": "w_2",
        "total": "Σ",
        "lse": "L",
        "output": "O",
    }
    axes: ClassVar[Mapping[str, str]] = {"l1": "… 1", "l2": "… 1"}
    keeps_order: ClassVar[bool] = True
    returned: ClassVar[tuple[str, ...]] = ("output", "lse")

    def __post_init__(self) -> None:
        # 2.0 equals 2, and is refused by its type.
        if self.base not in (None, 2) or isinstance(self.base, float):
            raise refusal(self, "base", "be 2, or None for natural logarithms")

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``; log-sum-exps are columns (…, 1)."""
        state = partial(self.state_step, blames="merge")
        power, logarithm = ("2", "log_2") if self.base else ("e", "log")
        yield state("top", _find_larger, "max(@0, @1)", ("l1", "l2"), role="maximum")
        for w, lse in (("w_1", "l1"), ("w_2", "l2")):
            written = f"{power}^{{@0 − @1}}"
            yield state(
                w, partial(_raise_difference, self.base), written, (lse, "top"), role="power"
            )
        yield state("total", _add, "@0 + @1", ("w_1", "w_2"), role="total")
        run, written = partial(_add_logarithm, self.base), f"@0 + {logarithm}(@1)"
        yield self.state_step("lse", run, written, ("top", "total"), role="lse", blames="lse")
        of = ("o1", "w_1", "o2", "w_2", "total")
        yield state("output", _divide_by_total, "{@0 ⊙ @1 + @2 ⊙ @3}/@4", of, role="merge")

    def __call__(self, o1: Array, l1: Array, o2: Array, l2: Array) -> Merged:
        """Return the output over all keys, and its log-sum-exp."""
        l1, l2 = _as_lse_column(l1), _as_lse_column(l2)
        o1, o2 = _drop_undefined_output(o1, l1), _drop_undefined_output(o2, l2)
        o, lse = self.return_run(o1=o1, l1=l1, o2=o2, l2=l2)
        return o, lse[..., 0]


def _find_larger(l1: Array, l2: Array) -> Any:
    return namespace_of(l1).maximum(l1, l2)


def _raise_difference(base: int | None, lse: Array, top: Array) -> Array:
    return powers(lse - reference(top), base)


def _add(w_1: Array, w_2: Array) -> Array:
    return w_1 + w_2


def _add_logarithm(base: int | None, top: Array, total: Array) -> Array:
    # Where both parts lack keys the maximum is −∞, and log 1 = 0 leaves it.
    return top + logarithms(nonempty(total, "zeros"), base)


def _divide_by_total(o1: Array, w_1: Array, o2: Array, w_2: Array, total: Array) -> Array:
    return (o1 * w_1 + o2 * w_2) / nonempty(total, "zeros")


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
            o, lse = run(o1=o1, l1=lift(l1), o2=o2, l2=lift(l2))
            return o, lower(lse)

        return moved

    shapes = ({**in_front(layout, i), "n": n, "d": d} for i, (n, d) in enumerate(_SIZES))
    words = {
        "o1": "o out output v_a o_a out_a prefix_output acc",
        "l1": "l lse s_a lse_a prefix_lse",
        "o2": "block_out v_b o_b out_b suffix_output new_out",
        "l2": "block_lse s_b lse_b suffix_lse new_lse",
    }
    return define_in_steps(
        spec,
        "merge",
        laid=laid,
        inputs=tuple(
            Input(x, rows if x[0] == "l" else placed(layout, "n", "d"), also)
            for x, also in words.items()
        ),
        ways=_list_merge_forms(spec),
        recorded=_list_recorded_forms(spec),
        shapes=shapes,
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


# -- forms, for log-sum-exps as columns --------------------------------------------------------------------------------
def _list_merge_forms(spec: Merge) -> tuple[DefinitionForm, ...]:
    """Return the forms of the merge, each in words."""
    by_sigmoid = {"lse": _lse_by_sigmoid, "output": _output_by_sigmoid}
    by_tanh = {"lse": _lse_by_sigmoid, "output": _output_by_tanh}
    forms: dict[str, Compute] = {
        "(o₁ w₁ + o₂ w₂)/(w₁ + w₂), w the powers of l₁ − m and l₂ − m, m the larger one": spec.return_run,
        "o₁ and o₂ times the powers of l₁ − l and l₂ − l": _change_steps(spec, output=_by_total),
        "o₁ − σ (o₁ − o₂), σ = w₂/(w₁ + w₂)": _change_steps(spec, **by_sigmoid),
        "o₁ − σ (o₁ − o₂), σ the power of l₂ − l": _change_steps(spec, output=_by_share),
        "o₁ + σ (o₂ − o₁), σ = (1 + tanh((l₂ − l₁)/2))/2, as compilers write 1/(1 + e^{l₁ − l₂})": _change_steps(
            spec, **by_tanh
        ),
        "the first with logarithms of the other base, e or 2": _in_other_base(spec),
    }
    return tuple(starmap(DefinitionForm, forms.items()))


def _list_recorded_forms(spec: Merge) -> tuple[Compute, ...]:
    """Return the forms whose operations are replaced.

    Code that divides each power by their sum has other operations than one that divides their weighted sum.
    """
    by_sigmoid = {"lse": _lse_by_sigmoid, "output": _output_by_sigmoid}
    return (
        spec.return_run,
        _change_steps(spec, output=_by_shares),
        _change_steps(spec, output=_by_total),
        _change_steps(spec, **by_sigmoid),
    )


def _change_steps(spec: Merge, **steps: OtherStep) -> ChangedSteps:
    return ChangedSteps(spec, steps)


def _by_total(spec: Merge, values: Values) -> Any:
    l1, l2, lse = (values[name] for name in ("l1", "l2", "lse"))
    return values["o1"] * powers(l1 - lse, spec.base) + values["o2"] * powers(l2 - lse, spec.base)


def _lse_by_sigmoid(spec: Merge, values: Values) -> Any:
    top, one, other = _raise_to_difference(spec, values)
    return values["l1"] + (top + logarithms(one + other, spec.base))


def _output_by_sigmoid(spec: Merge, values: Values) -> Any:
    _, one, other = _raise_to_difference(spec, values)
    return values["o1"] - other / (one + other) * (values["o1"] - values["o2"])


def _raise_to_difference(spec: Merge, values: Values) -> tuple[Array, Array, Array]:
    """Return m = max(l₂ − l₁, 0), and the powers of −m and of l₂ − l₁ − m."""
    xp, difference = namespace_of(values["o1"]), values["l2"] - values["l1"]
    # Powers of differences from the larger log-sum-exp cannot overflow.
    top = xp.maximum(difference, 0 * difference)
    return top, powers(-top, spec.base), powers(difference - top, spec.base)


def _by_share(spec: Merge, values: Values) -> Any:
    """Return ``_output_by_sigmoid`` in the form that has a value where one part has no keys: there σ is 0 or 1."""
    # l is −∞ only if both parts lack keys, so one part without keys has a value here.
    share = powers(values["l2"] - values["lse"], spec.base)
    return values["o1"] - share * (values["o1"] - values["o2"])


def _output_by_tanh(spec: Merge, values: Values) -> Any:
    o1, o2, difference = values["o1"], values["o2"], values["l2"] - values["l1"]
    two = logarithms(namespace_of(o1).asarray(2, dtype=o1.dtype))
    # tanh takes natural logarithms, whatever the base of the log-sum-exps.
    half = (difference if spec.base is None else difference * two) / 2
    return o1 + (1 + namespace_of(o1).tanh(half)) / 2 * (o2 - o1)


def _in_other_base(spec: Merge) -> ChangedSteps:
    """Return the merge with logarithms of the other base."""
    there, back = to_other_base(2 if spec.base is None else None), to_other_base(spec.base)
    returned: Wrong = lambda at: back(at.right())  # noqa: E731
    reads = {"l1": there, "l2": there}
    return ChangedSteps(
        Merge(base=None if spec.base else 2), {"lse": change("lse", returned)}, reads
    )


def _by_shares(spec: Merge, values: Values) -> Any:
    """Return the merge by the share of each part, w₁/(w₁ + w₂) and w₂/(w₁ + w₂)."""
    o1, o2 = (_zero_empty_part(values[o], values[lse]) for o, lse in (("o1", "l1"), ("o2", "l2")))
    total = values["total"]
    return values["w_1"] / total * o1 + values["w_2"] / total * o2


def _zero_empty_part(o: Array, lse: Array) -> Array:
    xp = namespace_of(o)
    return xp.where(xp.isfinite(lse), o, 0 * o)
