"""Ways and mistakes of a definition: what each way allows, and which mistakes reproduce an output.

Mistakes by rule are those that any definition may have: a factor, a sign, arrays exchanged.
"""

from __future__ import annotations

from collections import UserList
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, cached_property, partial
from itertools import combinations, permutations
from operator import neg
from typing import TYPE_CHECKING, Any, TypeAlias

import flint
import numpy as np

from symattn.arrays.precision import Precision
from symattn.arrays.rounded import rounded
from symattn.arrays.rounding.array import MovedByRounding
from symattn.arrays.special import Undefined
from symattn.attention.constants import number
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import (
    CaseResult,
    EnclosedInFloats,
    ExactOutput,
    Expected,
    Part,
    PartlyOpen,
    ScreenedOutput,
    largest,
    matches,
)
from symattn.bounds.judge import Legal, explained, is_far_off, judge, union
from symattn.bounds.mistake import Compute, Mistake
from symattn.bounds.reference import float64_outputs, lifted
from symattn.document.errors import InputError, Refused, Undecided
from symattn.verification.rules.operators import operators

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_subject import Definition

Remade: TypeAlias = "Callable[[Any], Definition]"


@dataclass(frozen=True)
class DefinitionForm:
    """A way of computing, described in words."""

    words: str
    run: Compute

    def __call__(self, **keywords: Any) -> Any:
        return self.run(**keywords)


@dataclass(frozen=True)
class Numbered:
    """Mistakes with a number x: the step, the cause in words around {}, and the wrong computation.

    The search for x starts from the points of the ``grid``. ``spec`` returns the specification that a mistake amounts
    to, if any.
    """

    step: str
    words: str
    run: Callable[[float], Compute]
    grid: Sequence[float]
    spec: Callable[[float], Any] = lambda x: None

    def mistake(self, x: float, written: str) -> Mistake:
        """Return the mistake with the number x, which is ``written`` in words."""
        return Mistake(self.step, self.words.format(written), self.run(x), spec=self.spec(x))


class Later(UserList[Mistake]):
    """Mistakes that are built when first needed: of many definitions, only the ways are used."""

    def __init__(self, make: Callable[[], Iterable[Mistake]]) -> None:
        self._make = make

    @cached_property
    def data(self) -> list[Mistake]:  # type: ignore[override]
        """The mistakes, built on first use."""
        return list(self._make())


# -- by rule -----------------------------------------------------------------------------------------------------------
# Points of a grid between the ends of a range.
_POINTS = 25
#: Fields with numbers: the step, the cause in words, and the range in which another number is searched for.
_FIELDS = {
    "eps": ("norm", "ε is {}", (1e-12, 10.0)),
    "base": ("position", "the angles have the base {}", (2.0, 1e7)),
    "scale": ("scale", "scores are scaled by {} for every d_k", (1e-3, 10.0)),
    "softcap": ("softcap", "the cap is {}", (0.5, 1e3)),
}


def of_fields(spec: Any, remade: Remade) -> Iterator[Numbered]:
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
        yield Numbered(
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


def of_outputs(subject: Definition) -> Iterator[Numbered]:
    """Yield mistakes that multiply an output by a number."""
    # Factors of both signs, as a wrong sign is a factor too.
    sizes = tuple(float(x) for x in np.geomspace(1e-2, 1e2, _POINTS))
    grid = (*(-x for x in reversed(sizes)), *sizes)
    for k, name in enumerate(subject.outputs):
        words = f"{_name_changed_output(subject, name)} is multiplied by {{}}"

        def times(x: float, k: int = k) -> Compute:
            return _change_one_output(subject.ways[0], k, lambda y: y * number(x, y))

        yield Numbered(subject.step, words, times, grid)


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
    tokens = tuple(_AXES.get(axis, "column") for axis in reversed(subject.inputs[0].shape.split()))
    for k, name in enumerate(subject.outputs):
        for operator in operators(tokens):
            run = _change_one_output(way, k, operator.run)
            yield Mistake(
                subject.step,
                operator.words.format(f"entries of {_name_changed_output(subject, name)}"),
                run,
            )
    for i in subject.inputs:
        axes = tuple(_AXES.get(axis, "column") for axis in reversed(i.shape.split()))
        # Masks are no numbers, and saved arrays follow from the others.
        for operator in (
            operators(axes) if i.made is None and i.name not in ("mask", "keep", "drop") else ()
        ):
            change = partial(reading, **{i.name: operator.run})
            words = operator.words.format(f"entries of {i.name}")
            step = operator.blamed(i.step or subject.step)
            yield Mistake(step, words, change(way), change=change, reads=i.name)


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
    """Return two mistakes at once: one changes any way of computing, or is another specification with the other in it.

    ``mistakes_of`` returns the mistakes of a specification. None if neither mistake is of these kinds.
    """
    for one, other in ((first, second), (second, first)):
        # A change outside of the definition applies to any way, so also to the other mistake.
        if one.change is not None:
            run: Compute | None = one.change(other.run)
        else:
            of = mistakes_of(one.spec) if one.spec is not None else ()
            # Words identify a mistake in the other specification's list.
            run = next((m.run for m in of if m.cause == other.cause), None)
        if run is not None:
            return Mistake(
                first.step, f"{first.cause}; and {second.cause}", run, first.exact or second.exact
            )
    return None


def legal(subject: Definition, precision: Precision, inputs: Inputs) -> Legal:
    """Return what is legal: the outputs by each way of the definition."""

    def any_numbers() -> list[ExactOutput]:
        """Return what is legal if a comparison depends on rounding, in the shapes of float64."""
        result = float64_outputs(subject.right, inputs)
        ball = np.frompyfunc(
            lambda x: flint.arb(float(x)) if np.isfinite(x) else Undefined("it is open"), 1, 1
        )
        return [
            ExactOutput(np.asarray(ball(y), dtype=object), np.full(y.shape, np.inf)) for y in result
        ]

    law = subject.law_of(inputs)
    ways: Sequence[Callable[[], Sequence[Expected]]]
    # A law replaces the bounds of the ways on the inputs that it covers.
    if law is not None:
        ways = law.ways(inputs, precision)
    else:
        ways = [partial(expected, subject, inputs, precision, [way]) for way in subject.ways]
    if _has_cosines_of_zeros(subject, inputs):
        ways = [partial(_leave_undefined_open, way) for way in ways]

    def in_other_forms() -> list[Expected]:
        """Return the first way's outputs, with the bound on forms that are not among the ways."""
        right = ways[0]()
        bounds = subject.other_forms.bound(inputs, precision) if subject.other_forms else None
        if bounds is None:
            return [*right]
        # Outputs by a law in float64 are themselves off by as much as programs in float64 may be.
        is_reference_off = law is not None and precision.score.name == "float64"
        return [
            e.widened(b + e.allowed if is_reference_off else b)
            for e, b in zip(right, bounds, strict=True)
        ]

    others = subject.other_forms is not None and not (law and law.covers_every_form(inputs))
    return Legal(
        [*ways, in_other_forms] if others else ways,
        any_numbers,
        [k for k, name in enumerate(subject.outputs) if name in subject.loose],
        subject.changes,
        # Forms with words of their own are those that lose digits.
        similar=law is None
        and not others
        and not any(isinstance(way, DefinitionForm) for way in subject.ways),
    )


def _has_cosines_of_zeros(subject: Definition, inputs: Inputs) -> bool:
    """Return whether scores may be 0/0, and nothing else makes an output undefined: not NaN, nor rows without a key."""
    a = subject.attention
    return (
        a is not None
        and a.score == "cosine"
        and (a.fully_masked == "zeros" or not a.masks_anything)
        and not any(x.dtype.kind == "f" and np.isnan(x).any() for x in inputs.values())
    )


def _leave_undefined_open(way: Callable[[], Sequence[Expected]]) -> list[Expected]:
    """Return the outputs of a way, whose undefined entries may be anything."""
    return [PartlyOpen(e, _find_undefined_entries(e), e.allowed) for e in way()]


def _find_undefined_entries(e: Expected) -> np.ndarray:
    # −∞ is no number either, and defined.
    if isinstance(e, EnclosedInFloats):
        return np.asarray(np.isnan(e.middle) & (e.radius == 0))
    is_undefined = np.frompyfunc(lambda x: isinstance(x, Undefined), 1, 1)
    return np.asarray(is_undefined(e.entries), dtype=bool)


def expected(
    subject: Definition, inputs: Inputs, precision: Precision, ways: Sequence[Compute]
) -> list[Expected]:
    """Return the outputs by these ways, and the largest of their bounds."""
    return union([_outputs_of_way(subject, inputs, precision, way) for way in ways])


def _outputs_of_way(
    subject: Definition, inputs: Inputs, precision: Precision, way: Compute
) -> list[Expected]:
    """Return the outputs by one way with its bound: in enclosures, or in balls where these do not suffice.

    The radius of enclosures is near the roundoff of float64, so that this precision needs balls.
    """

    def run(enclosed: bool) -> tuple[Any, ...]:
        kind = rounded(precision, enclosed=enclosed)
        return subject.run(way, {n: lifted(np.asarray(a), kind) for n, a in inputs.items()})

    # Balls are slow, so they run once, and only if enclosures leave something open.
    in_balls = cache(lambda: [ExactOutput(y.value.entries, y.bound) for y in run(enclosed=False)])
    if precision.score.name == "float64":
        return [*in_balls()]
    try:
        outputs = run(enclosed=True)
    except MovedByRounding:
        # A comparison that rounding may decide stays open in balls too.
        raise
    except (Undecided, Refused):
        return [*in_balls()]
    return [
        EnclosedInFloats(y.value.mid, y.value.rad, y.bound, lambda k=k: in_balls()[k].entries)  # type: ignore[misc]
        for k, y in enumerate(outputs)
    ]


def explains(
    subject: Definition,
    precision: Precision,
    judged: CaseResult,
    mistake: Mistake,
    among: frozenset[int] | None = None,
) -> bool | None:
    """Return whether a mistake reproduces the outputs, all or those ``among``; None if that is undecidable.

    A mistake has only one way; the errors of others are taken from the definition.
    """

    def reproduces(part: Part, wrong: Expected) -> bool | None:
        allowed = wrong.allowed
        if part.expected.allowed.shape == allowed.shape:
            allowed = np.maximum(
                allowed, np.where(np.isfinite(part.expected.allowed), part.expected.allowed, 0)
            )
        result = np.isfinite(allowed)
        if (
            part.got is not None and part.got.shape == allowed.shape
        ):  # where it is undefined, code may give numbers
            # Where the mistake is undefined a number of the code does not refute it.
            result &= ~(~np.isnan(part.got) & np.isnan(wrong.near))
        return matches(part, wrong.widened(allowed), result, mistake.exact)

    wrong: Callable[[], Sequence[Expected]]
    # A law is about the definition alone, so floats decide about a mistake.
    if subject.law_of(judged.case.inputs) is not None:
        wrong = partial(_by_mistake_in_floats, subject, judged, mistake)
    else:
        wrong = cache(partial(expected, subject, judged.case.inputs, precision, [mistake.run]))
    answer = explained(judged, wrong, reproduces, among)
    # By the bounds of all ways, which are larger than the first one's, a mistake may still reproduce the outputs.
    if answer is False and judged.finding == "values" and not judged.whole:

        def reproduces_nearly(part: Part, wrong: Expected) -> bool:
            return not is_far_off(part.got, wrong, precision)

        if explained(judged, wrong, reproduces_nearly, among) is not False:
            by_all = legal(subject, precision, judged.case.inputs)
            whole = judge(by_all, precision, judged.case, judged.outcome)
            return explained(whole, wrong, reproduces, among)
    return answer


def _by_mistake_in_floats(
    subject: Definition, judged: CaseResult, mistake: Mistake
) -> list[Expected]:
    """Return the outputs of a mistake in float64, allowed to be off relatively as much as the definition's."""
    outputs = float64_outputs(partial(subject.run, mistake.run), judged.case.inputs)
    relative = max(map(_relative_allowance, judged.parts))
    return [ScreenedOutput(y, np.asarray(relative * np.abs(y))) for y in outputs]


def _relative_allowance(part: Part) -> float:
    """Return the largest allowed error of an output in parts of its largest entry, of what is bounded."""
    allowed = part.expected.allowed
    most = np.where(np.isfinite(allowed), allowed, 0.0).max(initial=0.0)
    # 1e-300 stands in for the largest entry of an output of zeros.
    return float(most / max(largest(part.expected.near), 1e-300))
