"""One array of a definition with a number in it that a function's outputs show: a factor, a term, a power, a limit.

The arrays are the inputs, the results of recorded operations, and the outputs. For each array and each form the number
is first searched for on one record of the definition, of which only what depends on the array is computed. The few
forms that come near are then fitted to several cases like any other mistake with a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import number
from symattn.bounds.case_result import UNFIT
from symattn.bounds.mistake import MistakeFamily
from symattn.verification.rules.golden_section import minimise_by_golden_section
from symattn.verification.rules.recording import (
    MOVING,
    CountOperations,
    Function,
    OperationCall,
    OtherOperation,
    Outputs,
    RecordedArray,
    Recording,
    Replay,
    operation_of,
    outputs_of,
    run_replaced,
)

#: How much of the error an array changed by a number leaves; ∞ if it cannot be compared.
Left = Callable[[Outputs], float]

_MOST_NODES = 120  # operations of a way of computing that takes too long to replace
_MOST_FITTED = 12  # arrays and forms that are searched between the points of their grids
_MOST_NEAR = 3  # of these, those that are fitted to several cases
_BISECTIONS = 24  # sections of the search between two points of a grid
_POINTS = 6  # of each sign in a grid of factors; of quantiles in a grid of limits twice as many
_FARTHEST = 30.0  # the largest factor, and the inverse of the smallest one
_LITTLE = 0.1  # of the squared error, as any mistake that is named may leave
_NOTHING = 1e-6  # of the error, which roundings may leave
_OPEN = 1e-3  # relative distance of a number that was searched for from the one that is meant
#: Limits beyond all entries, in units of the largest one.
_BEYOND = tuple(float(2.0**n) for n in range(-2, 9))
#: What tells arrays of several parts apart.
_NUMBERS_IN_NAMES = re.compile(r"[0-9₁₂]+|\b(first|second)\b")
_HALF = 0.5  # of the error: a form whose grid has no point that leaves less is not searched further


@dataclass(frozen=True)
class NumberForm:
    """A change of an array by a number x, in words around {} for the array and {} for the number, and its grid.

    ``grid`` takes the finite entries of the array; the number that changes nothing is not in it. ``words_if_positive``
    are those for an array without negative entries, if they are simpler.
    """

    words: str
    run: Callable[[Any, Any, Any], Any]  # namespace, array, number of the array's kind
    grid: Callable[[np.ndarray], Sequence[float]]
    words_if_positive: str = ""

    def change(self, x: float, array: Any) -> Any:
        """Return the array with the number x in it."""
        return self.run(namespace_of(array), array, number(x, array))


def _make_factor_grid(entries: np.ndarray) -> tuple[float, ...]:
    sizes = [float(x) for x in np.geomspace(1 / _FARTHEST, _FARTHEST, 2 * _POINTS)]
    return (*(-x for x in reversed(sizes)), *sizes)


def _make_term_grid(entries: np.ndarray) -> tuple[float, ...]:
    unit = float(np.sqrt(np.mean(entries * entries))) or 1.0
    sizes = [unit * float(x) for x in np.geomspace(1 / _FARTHEST, _FARTHEST, _POINTS)]
    return (*(-x for x in reversed(sizes)), *sizes)


def _make_power_grid(entries: np.ndarray) -> tuple[float, ...]:
    return (-2.0, -1.0, -0.5, 0.2, 0.35, 0.5, 0.75, 0.9, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0, 4.0)


def _make_limit_grid(entries: np.ndarray) -> tuple[float, ...]:
    """Return numbers between the entries, so that each cuts off another part of them."""
    points = np.linspace(0, 1, 2 * _POINTS + 2)[1:-1]
    return tuple(sorted({float(x) for x in np.quantile(entries, points)}))


def _make_lower_limit_grid(entries: np.ndarray) -> tuple[float, ...]:
    """Return such numbers, and larger ones, which are above all entries; for negative entries also ones nearer to 0."""
    largest, unit = float(entries.max()), float(np.abs(entries).max()) or 1.0
    nearer = [largest / x for x in _BEYOND if x > 1] if largest < 0 else []
    beyond = (largest + unit * x for x in _BEYOND)
    return tuple(sorted({*_make_limit_grid(entries), *nearer, *beyond}))


def _make_upper_limit_grid(entries: np.ndarray) -> tuple[float, ...]:
    return tuple(-x for x in reversed(_make_lower_limit_grid(-entries)))


def _make_size_grid(entries: np.ndarray) -> tuple[float, ...]:
    return _make_limit_grid(np.abs(entries))


def _raise_size_to_power(xp: Any, y: Any, x: Any) -> Any:
    """Return sign(y) |y|^x, which is defined for entries of both signs; 0 stays 0."""
    size = xp.abs(y)
    is_zero = size == 0
    power = xp.exp(x * xp.log(xp.where(is_zero, size * 0 + 1, size)))
    return xp.where(is_zero, size, xp.where(y < 0, -power, power))


#: The forms, in the words of a formula.
FORMS: tuple[NumberForm, ...] = (
    NumberForm("{1} ⊙ {0}", lambda xp, y, x: x * y, _make_factor_grid),
    NumberForm("{0} + {1}", lambda xp, y, x: y + x, _make_term_grid),
    NumberForm("max({0}, {1})", lambda xp, y, x: xp.maximum(y, x), _make_lower_limit_grid),
    NumberForm("min({0}, {1})", lambda xp, y, x: xp.minimum(y, x), _make_upper_limit_grid),
    NumberForm(
        "{0} cut to ±{1}", lambda xp, y, x: xp.maximum(xp.minimum(y, x), -x), _make_size_grid
    ),
    NumberForm(
        "{0} with 0 where it is less than {1}",
        lambda xp, y, x: xp.where(y < x, y * 0, y),
        _make_limit_grid,
    ),
    NumberForm("sign({0}) ⊙ |{0}|^{1}", _raise_size_to_power, _make_power_grid, "{0}^{1}"),
)


@dataclass(frozen=True)
class _NumberedPlace:
    """An array that may have a number in it: its step, words, entries, and the computation with it changed.

    ``step`` is the one that a report names. ``arrays`` is the number of arrays that are changed alike.
    """

    step: str
    words: str
    entries: np.ndarray
    run: Callable[[Function], Function]
    replay: Callable[[Function], Outputs]
    arrays: int = 1


def numbered_operations(
    way: Function,
    inputs: Mapping[str, Any],
    named: Mapping[str, str],
    left: Left,
    blame: Callable[[str], str],
    count: CountOperations = lambda operations: True,
) -> list[MistakeFamily]:
    """Return the forms that leave least of the error on these inputs, with numbers near the best ones.

    ``named`` are the inputs that may be changed, with the steps that a report names for them; ``blame`` gives that of
    an array by its name in the definition, "" for an output. ``count`` gets how many operations were computed,
    and returns whether more may be. A definition that cannot be recorded has none.
    """
    recording = Recording(inputs)
    with np.errstate(all="ignore"), suppress(*UNFIT, AttributeError):
        replay = Replay(recording, outputs_of(way, recording))
        if len(recording.nodes) > _MOST_NODES:
            return []
        places = [
            *_yield_input_places(way, replay, inputs, named),
            *_yield_output_places(way, replay, blame("")),
            *_yield_operation_places(way, replay, blame),
        ]
        return _select_nearest(places, left, partial(replay.count_since, count))
    return []


def _select_nearest(
    places: Sequence[_NumberedPlace], left: Left, goes_on: Callable[[], bool]
) -> list[MistakeFamily]:
    """Return the places and forms that leave least, each with a grid around its best number.

    Those that were tried before ``goes_on`` returns False are enough.
    """
    coarse: list[tuple[float, int, _NumberedPlace, NumberForm, tuple[float, float]]] = []
    for place, form in product(places, FORMS):
        if not goes_on():
            break
        grid = form.grid(place.entries)
        shares = [_measure_number(place, form, x, left) for x in grid]
        if not shares:
            continue
        best = int(np.argmin(shares))
        # Neighbours of the best point enclose the number, as far as there are any.
        around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        if shares[best] < _HALF:
            coarse.append((shares[best], len(coarse), place, form, around))
    fitted: list[tuple[float, int, int, MistakeFamily]] = []
    for _, order, place, form, (low, high) in sorted(coarse)[:_MOST_FITTED]:
        if not goes_on():
            break
        x, share = _search_number(partial(_measure_number, place, form, left=left), low, high)
        if share > _LITTLE:
            continue
        mistake = MistakeFamily(
            place.step,
            _write_form(place, form),
            lambda x, place=place, form=form: place.run(partial(form.change, x)),  # type: ignore[misc]
            _make_narrow_grid(x),
        )
        # Of several that leave nothing but roundings, the one with the plainest number is likeliest.
        left_of_it = float(f"{max(share, _NOTHING):.1g}")
        fitted.append((left_of_it, _count_digits(x), order, mistake))
    return [mistake for *_, mistake in sorted(fitted, key=lambda f: f[:3])[:_MOST_NEAR]]


def _count_digits(x: float) -> int:
    """Return how many decimal digits a number needs, up to what the search leaves open."""
    close = (d for d in range(1, 9) if abs(float(f"{x:.{d}g}") - x) <= _OPEN * abs(x))
    return next(close, 9)


def _measure_number(place: _NumberedPlace, form: NumberForm, x: float, left: Left) -> float:
    try:
        share = left(place.replay(partial(form.change, x)))
    except UNFIT:
        return float("inf")
    return share if np.isfinite(share) else float("inf")


def _search_number(
    measure: Callable[[float], float], low: float, high: float
) -> tuple[float, float]:
    """Return a number between two others that leaves little, and what it leaves, by golden sections.

    What a number leaves may have several minima: of all that were tried, the best one counts.
    """
    tried: list[tuple[float, float]] = []

    def measured(number: float) -> float:
        x = float(number)
        tried.append((measure(x), x))
        return tried[-1][0]

    minimise_by_golden_section(measured, low, high, _BISECTIONS)
    share, x = min(tried)
    return x, share


def _make_narrow_grid(x: float) -> tuple[float, ...]:
    return tuple(sorted(x * factor for factor in (0.98, 1.0, 1.02)))


def _write_form(place: _NumberedPlace, form: NumberForm) -> str:
    # The words are formatted once more with the number, so that braces of the array stay.
    array = place.words.replace("{", "{{").replace("}", "}}")
    is_positive = bool((place.entries >= 0).all())
    words = form.words_if_positive if is_positive and form.words_if_positive else form.words
    if place.arrays > 1:
        return f"uses {words.format('x', '{}')} instead of x, where x is {array}"
    # Functions have brackets of their own.
    is_enclosed = words.startswith(("max(", "min(", "sign("))
    needs_brackets = not is_enclosed and (" " in array or "/" in array)
    return (
        f"uses {words.format(f'({array})' if needs_brackets else array, '{}')} instead of {array}"
    )


# -- places ------------------------------------------------------------------------------------------------------------
def _yield_input_places(
    way: Function, replay: Replay, inputs: Mapping[str, Any], named: Mapping[str, str]
) -> Iterator[_NumberedPlace]:
    for name, step in named.items():
        entries = _select_finite_entries(inputs.get(name))
        if not entries.size:
            continue

        def run(change: Function, name: str = name) -> Function:
            return lambda **inputs: way(**{**inputs, name: change(inputs[name])})

        def replayed(
            change: Function,
            run: Callable[[Function], Function] = run,
        ) -> Outputs:
            replay.computed += len(replay.recording.nodes)
            outputs = run(change)(**inputs)
            every = outputs if isinstance(outputs, tuple) else (outputs,)
            return [np.asarray(y) for y in every]

        yield _NumberedPlace(step, name, entries, run, replayed)


def _yield_output_places(way: Function, replay: Replay, step: str) -> Iterator[_NumberedPlace]:
    """Yield each output of several; that of a single one is the result of the last operation."""
    outputs = [np.asarray(getattr(y, "value", y)) for y in replay.outputs]
    for k, output in enumerate(outputs if len(outputs) > 1 else ()):

        def change_one(change: Function, every: Sequence[Any], k: int = k) -> list[Any]:
            return [*every[:k], change(every[k]), *every[k + 1 :]]

        def run(change: Function, change_one: Callable[..., list[Any]] = change_one) -> Function:
            return lambda **inputs: tuple(change_one(change, [*way(**inputs)]))

        entries = _select_finite_entries(output)
        if entries.size:
            words = _write_output(replay, k)
            yield _NumberedPlace(step, words, entries, run, partial(change_one, every=outputs))


def _write_output(replay: Replay, k: int) -> str:
    y = replay.outputs[k]
    return replay.recording.word(y, True) if isinstance(y, RecordedArray) else f"output {k + 1}"


def _yield_operation_places(
    way: Function, replay: Replay, blame: Callable[[str], str]
) -> Iterator[_NumberedPlace]:
    """Yield the result of each site, in all rounds of it alike; and the results of sites whose words differ in a number
    alone, such as those of two parts that are merged, all together."""
    recording, sites = replay.recording, dict[int, list[RecordedArray]]()
    for node in recording.nodes:
        if node.dtype.kind == "f" and operation_of(node).name not in MOVING:
            sites.setdefault(node.site.calls, []).append(node)
    groups: dict[str, list[int]] = {}
    for calls, nodes in sites.items():
        yield from _yield_place_of_sites(way, replay, [nodes], blame)
        key = _NUMBERS_IN_NAMES.sub("#", _write_node(recording, nodes))
        groups.setdefault(key, []).append(calls)
    for key, every in groups.items():
        if len(every) > 1 and "#" in key:
            yield from _yield_place_of_sites(way, replay, [sites[calls] for calls in every], blame)


def _write_node(recording: Recording, nodes: Sequence[RecordedArray]) -> str:
    # in a loop, the second round: the first one has none before
    return recording.word(nodes[min(1, len(nodes) - 1)], True)


def _yield_place_of_sites(
    way: Function,
    replay: Replay,
    sites: Sequence[Sequence[RecordedArray]],
    blame: Callable[[str], str],
) -> Iterator[_NumberedPlace]:
    values = [np.ravel(x.value) for nodes in sites for x in nodes]
    entries = _select_finite_entries(np.concatenate(values))
    if not entries.size:
        return
    first = sites[0][0]
    step, calls = operation_of(first).step, frozenset(nodes[0].site.calls for nodes in sites)

    def replaced(change: Function) -> OtherOperation:
        run = partial(_change_result, change)
        return OtherOperation(first.site, step, run, lambda: "", alike=calls)

    def run(change: Function) -> Function:
        return partial(run_replaced, way, replaced(change))

    def replayed(change: Function) -> Outputs:
        return replay.run(replaced(change), min(nodes[0].number for nodes in sites))

    words = " and ".join(_write_node(replay.recording, nodes) for nodes in sites)
    yield _NumberedPlace(blame(step), words, entries, run, replayed, len(sites))


def _change_result(change: Function, at: OperationCall) -> Any:
    return change(at.result())


def _select_finite_entries(array: Any) -> np.ndarray:
    if array is None or getattr(array, "dtype", np.dtype(bool)).kind != "f":
        return np.empty(0)
    entries = np.ravel(np.asarray(array, dtype=np.float64))
    return entries[np.isfinite(entries)]
