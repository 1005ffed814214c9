"""Replace one operation of a definition: drop it or an operand, take another array, its opposite, or another axis.

A replacement is tried on a record of the definition's operations; the few that give a function's numbers then run the
definition's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from symattn.attention.letters_of_attention import ARRAYS
from symattn.bounds.case_result import UNFIT
from symattn.verification.rules.operators import operators
from symattn.verification.rules.recording import (
    MOVING,
    CountOperations,
    Function,
    OperationCall,
    OtherOperation,
    Outputs,
    RecordedArray,
    RecordedOperation,
    Recording,
    Replay,
    is_result,
    operation_of,
    outputs_of,
)

_MOST = 40  # arrays that replace others; of more, only those with names
# uses of one line of code that are also replaced singly, such as for queries and for keys
_ROUNDS = 2
_COMPARED = 3  # rounds of a site in which replacements are compared with each other
_DEEP = 3  # operations over which one is moved
_USES = "uses "  # the first word of causes that give two formulas
_NODES = 120  # operations of a way of computing that takes too long to replace


# -- replacements of an operation --------------------------------------------------------------------------------------
#: What may become of an operand or a result, and in place of a function of one array.
_CHANGED: dict[str, Function] = {
    "{}": lambda xp, y: y,
    "−{}": lambda xp, y: -y,
    "2 ⊙ {}": lambda xp, y: 2 * y,
    "{}/2": lambda xp, y: y / 2,
    "1 + {}": lambda xp, y: 1 + y,
    "1 − {}": lambda xp, y: 1 - y,
    "1/{}": lambda xp, y: 1 / y,
    "{}²": lambda xp, y: y * y,
    "√{}": lambda xp, y: xp.sqrt(y),
    "|{}|": lambda xp, y: xp.abs(y),
    "tanh({})": lambda xp, y: xp.tanh(y),
    "sigmoid({})": lambda xp, y: 1 / (1 + xp.exp(-y)),
    "max({}, 0)": lambda xp, y: xp.maximum(y, 0),
    "exp({})": lambda xp, y: xp.exp(y),
    "exp2({})": lambda xp, y: xp.exp2(y),
    "log({})": lambda xp, y: xp.log(y),
    "log({})/log(2)": lambda xp, y: xp.log(y) / xp.log(xp.asarray(2, dtype=y.dtype)),
    "the reverse of {} over columns": lambda xp, y: xp.flip(y, axis=-1),
    "the reverse of {} over rows": lambda xp, y: xp.flip(y, axis=-2),
}
_REVERSED = {"the reverse of {} over columns": -1, "the reverse of {} over rows": -2}
#: What may be done to an operand or a result by a further array.
_ADDED: dict[str, Function] = {
    "{} ⊙ {}": lambda y, x: y * x,
    "{}/{}": lambda y, x: y / x,
    "{} + {}": lambda y, x: y + x,
    "{} − {}": lambda y, x: y - x,
    "{} ⊙ (1 − {})": lambda y, x: y * (1 - x),
}
#: Changes of what a sum or mean is of, and of its result, such as √mean(x²).
_POWERS = (("√{}", "{}²"), ("{}²", "√{}"))
_LARGER = "maximum"
_BINARY = ("add", "subtract", "multiply", "divide", _LARGER)
_REDUCTIONS, _AXES = ("sum", "mean", "max"), (-1, -2, -3, 0)
Place = tuple[int, ...]  # of an operand, which may be in a list; () for the result
# another operation: its words, and the run
Other = tuple[Callable[[], str], Callable[[OperationCall], Any]]


def _yield_other_operations(
    recording: Recording, result: RecordedArray, alone: bool
) -> Iterator[Other]:
    """Yield other operations in place of the one that gives a result; ``alone``: without further arrays."""
    operation, kind = operation_of(result), recording.kind
    name, operands, options, _ = operation
    yield from _yield_other_names_and_axes(recording, operation)
    places = list(_yield_operand_places(operands))
    for place, a in [((), kind(result.value, recording.write(*operation[:3]))), *places]:
        yield from _yield_changes_of_operand(recording, operation, place, a)
        # A reduction that is left out has as many axes as its operand only if it would not drop any.
        if place and name in _REDUCTIONS and len(a.shape) == len(result.shape):
            yield partial(recording.word, a, True), partial(_leave_reduction_out, place)
        if not alone:
            yield from _yield_uses_of_earlier_arrays(recording, result, place, a)
        # In a loop, code may read the array of the round before.
        if place and a.round:
            stale = kind(a.value, f"{recording.word(a)} one step earlier", True)
            yield (
                partial(_write_changed_operation, recording, operation, place, stale),
                partial(_one_step_earlier, place),
            )
        # The way back to earlier operations begins at an operand by itself, not within a list.
        yield from _in_other_orders(recording, result, place[0]) if len(place) == 1 else ()
    # Powers of a maximum are its power.
    for inner, outer in _POWERS if name in ("sum", "mean") else ():
        powers = kind(operands[0].value, inner.format(recording.word(operands[0])))
        reduced = kind(result.value, recording.write(name, [powers], options))
        words = outer.format(recording.word(reduced))
        yield partial(str, words), partial(_of_power, inner, outer)
    # A maximum often equals its larger operand, which says more and is tried before.
    if name in _BINARY and name != _LARGER:
        larger = operation._replace(name=_LARGER)
        yield (
            partial(recording.write, *larger[:3]),
            lambda at: at.result(of=at.operation._replace(name=_LARGER)),
        )


def _yield_other_names_and_axes(
    recording: Recording, operation: RecordedOperation
) -> Iterator[Other]:
    """Yield other operations on the same operands: of two arrays, also in the other order, and along other axes."""
    name, operands, options, _ = operation

    def of_other(**fields: Any) -> Other:
        other = operation._replace(**fields)
        return partial(recording.write, *other[:3]), lambda at: at.result(
            of=at.operation._replace(**fields)
        )

    if name in _BINARY:
        yield from (of_other(name=other) for other in _BINARY if other not in (name, _LARGER))
        # The other operations of two arrays give the same in either order.
        yield from (
            (
                partial(recording.write, other, operands[::-1], {}),
                partial(_run_with_reversed_operands, other),
            )
            for other in ("subtract", "divide")
        )
    for other in _REDUCTIONS if name in _REDUCTIONS else (name,):
        for axis in _AXES if name in (*_REDUCTIONS, "cumulative_sum") else ():
            # One change at a time: another reduction, or another axis.
            if (other != name) != (axis != options.get("axis", -1)):
                yield of_other(name=other, options={**options, "axis": axis})


def _yield_changes_of_operand(
    recording: Recording, operation: RecordedOperation, place: Place, a: RecordedArray
) -> Iterator[Other]:
    """Yield functions of an operand, or of the result, in its place; also of an operand in place of the result."""
    for form, change in _CHANGED.items():
        # Reversing a single entry changes nothing.
        if form in _REVERSED and (len(a.shape) < 2 or a.shape[_REVERSED[form]] == 1):
            continue
        word = recording.word(a, "(" in form or form == "{}")
        changed = recording.kind(a.value, form.format(word))
        yield (
            partial(_write_changed_operation, recording, operation, place, changed),
            partial(_apply_change_to_operand, change, place),
        )
        # A reversal in place of an operation that computes is two mistakes: it is left out, and entries are moved.
        # Products of matrices and reductions have other shapes than their operands.
        is_one_mistake = form not in _REVERSED and operation.name not in ("matmul", *_REDUCTIONS)
        if place and is_one_mistake:
            yield (
                partial(recording.word, changed, True),
                partial(_replace_result_by_operand, change, place),
            )


def _yield_uses_of_earlier_arrays(
    recording: Recording, result: RecordedArray, place: Place, a: RecordedArray
) -> Iterator[Other]:
    """Yield earlier arrays, and reductions of their rows, in place of an operand or a result, or joined with it."""
    operation = operation_of(result)
    # Only arrays that are computed earlier can take its place.
    before = {
        key: x for key, of in recording.arrays.items() for x in of if x.number < result.number
    }
    named = [key for key, x in before.items() if x.named]
    for key in before if len(before) <= _MOST else named:
        x = before[key]
        for other in _REDUCTIONS if x.named and _is_row(a.shape, x.shape) else ():
            reduced = recording.kind(a.value, recording.write(other, [x], {"axis": -1}), True)
            yield (
                partial(_write_changed_operation, recording, operation, place, reduced),
                partial(_replace_by_reduced_latest, other, place, key),
            )
        if place and x is not a and tuple(x.shape) == tuple(a.shape):
            yield (
                partial(_write_changed_operation, recording, operation, place, x),
                partial(_exchange_operand_for_latest, place, key),
            )
        is_joined = x.dtype.kind == "f" and _is_broadcastable_onto(x.shape, a.shape)
        for form, added in _ADDED.items() if is_joined else ():
            with_x = partial(_write_joined, recording, operation, place, a, form, x)
            yield with_x, partial(_combine_operand_with_latest, added, place, key)


def _write_changed_operation(
    recording: Recording, operation: RecordedOperation, place: Place, x: RecordedArray
) -> str:
    """Write the operation with ``x`` as operand, or ``x`` in place of the result."""
    if not place:
        return recording.word(x, True)
    return recording.write(
        operation.name, _substitute_operand(operation.operands, place, x), operation.options
    )


def _write_joined(
    recording: Recording, operation: RecordedOperation, place: Place, a: Any, form: str, x: Any
) -> str:
    joined = recording.kind(a.value, form.format(recording.word(a), recording.word(x)))
    return _write_changed_operation(recording, operation, place, joined)


def _run_with_changed_operand(at: OperationCall, place: Place, change: Function) -> Any:
    """Run the operation with an operand, or its result, changed."""
    if not place:
        return change(at.result())
    return at.result(
        _substitute_operand(
            at.operation.operands, place, change(at.value(_select_operand_at_place(at, place)))
        )
    )


def _select_operand_at_place(at: OperationCall, place: Place) -> Any:
    return dict(_yield_operand_places(at.operation.operands))[place]


def _apply_change_to_operand(change: Function, place: Place, at: OperationCall) -> Any:
    return _run_with_changed_operand(at, place, partial(change, at.xp))


def _combine_operand_with_latest(added: Function, place: Place, key: Any, at: OperationCall) -> Any:
    return _run_with_changed_operand(at, place, lambda y: added(y, at.value(at.latest(key))))


def _exchange_operand_for_latest(place: Place, key: Any, at: OperationCall) -> Any:
    return _run_with_changed_operand(at, place, lambda y: at.value(at.latest(key)))


def _replace_by_reduced_latest(name: str, place: Place, key: Any, at: OperationCall) -> Any:
    row = getattr(at.xp, name)
    return _run_with_changed_operand(
        at, place, lambda y: at.xp.reshape(row(at.value(at.latest(key)), axis=-1), y.shape)
    )


def _one_step_earlier(place: Place, at: OperationCall) -> Any:
    return _run_with_changed_operand(
        at, place, lambda y: at.stale(_select_operand_at_place(at, place))
    )


def _replace_result_by_operand(change: Function, place: Place, at: OperationCall) -> Any:
    """Return an operand, changed, in the shape of all operands."""
    others = [at.value(a) for p, a in _yield_operand_places(at.operation.operands) if p != place]
    return change(at.xp, at.value(_select_operand_at_place(at, place))) + sum(0 * x for x in others)


def _leave_reduction_out(place: Place, at: OperationCall) -> Any:
    """Return the array itself, which is broadcast wherever its sum, mean or maximum was."""
    return at.value(_select_operand_at_place(at, place))


def _run_with_reversed_operands(name: str, at: OperationCall) -> Any:
    return at.result(at.operation.operands[::-1], at.operation._replace(name=name))


def _of_power(inner: str, outer: str, at: OperationCall) -> Any:
    return _CHANGED[outer](at.xp, _apply_change_to_operand(_CHANGED[inner], (0,), at))


def _substitute_operand(operands: Sequence[Any], place: Place, x: Any) -> list[Any]:
    """Return the operands with ``x`` at a place, which may be within a list."""
    first, *rest = place
    new = _substitute_operand(operands[first], tuple(rest), x) if rest else x
    return [*operands[:first], new, *operands[first + 1 :]]


def _yield_operand_places(operands: Sequence[Any]) -> Iterator[tuple[Place, RecordedArray]]:
    for i, a in enumerate(operands):
        if isinstance(a, list | tuple):
            yield from (((i, *place), x) for place, x in _yield_operand_places(a))
        elif isinstance(a, RecordedArray):
            yield (i,), a


def _is_row(shape: Sequence[int], of: Sequence[int]) -> bool:
    """Return whether an array has one entry for each row of another."""
    rows = tuple(of[:-1])
    has_other_columns = shape[-1:] != of[-1:]
    return has_other_columns and tuple(shape) in ((*rows, 1), rows)


def _is_broadcastable_onto(shape: Sequence[int], onto: Sequence[int]) -> bool:
    return len(shape) <= len(onto) and all(
        a in (1, b) for a, b in zip(shape[::-1], onto[::-1], strict=False)
    )


def _in_other_orders(recording: Recording, result: RecordedArray, place: int) -> Iterator[Other]:
    """Yield the operation behind those whose result it takes, or with the first of these moved behind it."""
    for path in _yield_earlier_operand_paths(operation_of(result), place, _DEEP):
        for last in (True, False)[: len(path) - 1]:
            words = partial(_in_order_in_words, recording, result, path, last)
            yield words, partial(_run_reordered_operations, path, last)


def _run_reordered_operations(path: Sequence[int], last: bool, at: OperationCall) -> Any:
    return _in_order(path, last, at.operation, lambda of, operands: at.result(operands, of))


def _in_order_in_words(
    recording: Recording, result: RecordedArray, path: Sequence[int], last: bool
) -> str:
    def run(of: RecordedOperation, operands: Sequence[Any]) -> RecordedArray:
        x: RecordedArray = recording.kind(
            result.value, recording.write(of.name, operands, of.options)
        )
        return x

    return str(_in_order(path, last, operation_of(result), run).words)


def _yield_earlier_operand_paths(
    operation: RecordedOperation, place: int, deep: int
) -> Iterator[tuple[int, ...]]:
    """Yield the places of operands by which one goes back from an operation to those before it."""
    a = operation.operands[place]
    # Only results have operations behind them; moving operations change no numbers.
    if not deep or not is_result(a) or operation_of(a).name in MOVING:
        return
    for inner, x in enumerate(operation_of(a).operands):
        if isinstance(x, RecordedArray):
            # Longer paths go on from there, as deep as allowed.
            yield place, inner
            yield from (
                (place, *path)
                for path in _yield_earlier_operand_paths(operation_of(a), inner, deep - 1)
            )


def _in_order(path: Sequence[int], last: bool, operation: RecordedOperation, run: Function) -> Any:
    """Run the operations along a path, the innermost of them ``last``, or the outermost first; in a round without such
    a path, such as the first, the operation."""
    operations = [operation]
    for place in path[:-1]:
        # In the first round of a loop the operand may be an input, with no operation behind.
        if not is_result(a := operations[-1].operands[place]):
            return run(operation, operation.operands)
        operations.append(operation_of(a))
    x = operations[-1].operands[path[-1]]
    outwards = [(of, of.operands[place]) for of, place in zip(operations, path, strict=True)]
    steps = outwards[::-1]
    # The steps run from the innermost outwards; the one at an end moves to the other end.
    moved = [*steps[1:], steps[0]] if last else [steps[-1], *steps[:-1]]
    for of, operand in moved:
        x = run(of, [x if a is operand else a for a in of.operands])
    return x


def replacements(
    way: Function,
    inputs: Mapping[str, Any],
    accepted: Callable[[Outputs], bool],
    count: CountOperations = lambda operations: True,
) -> list[tuple[str, OtherOperation]]:
    """Return the replacements, in words, whose outputs on these inputs are ``accepted``; those in fewest words first.

    ``count`` gets how many operations were computed, and returns whether more may be. A definition that asks which kind
    of array it has cannot be recorded, and has none.
    """
    recording = Recording(inputs)
    with np.errstate(all="ignore"), suppress(*UNFIT, AttributeError):
        replay = Replay(recording, outputs_of(way, recording))
        # Every node is a site, and a replay of each takes as long as the definition.
        if len(recording.nodes) > _NODES:
            return []
        likely = [
            new
            for nodes in _yield_replacement_sites(recording)
            for new in _yield_accepted_replacements(replay, nodes, accepted, count)
        ]
        return sorted(((new.words(), new) for new in likely), key=_plainest_first)
    return []


def _plainest_first(pair: tuple[str, OtherOperation]) -> tuple[bool, bool, bool, int]:
    """Put what takes no further array first, formulas before operators on entries, then what is replaced everywhere
    alike, then what takes fewer words."""
    words, new = pair
    return (
        getattr(new.run, "func", None)
        in (_combine_operand_with_latest, _exchange_operand_for_latest),
        not words.startswith(_USES),
        new.line,
        len(words),
    )


def _yield_replacement_sites(
    recording: Recording,
) -> Iterator[tuple[list[RecordedArray], dict[str, Any]]]:
    """Yield the results of each site, of each round of a site that has few, and of each line with several sites."""
    # Masks, and operations that only move numbers, are not replaced.
    numbers = [
        x for x in recording.nodes if x.dtype.kind != "b" and operation_of(x).name not in MOVING
    ]
    sites: dict[Any, list[RecordedArray]] = {}
    lines: dict[Any, list[RecordedArray]] = {}
    for x in numbers:
        site, line = x.site
        sites.setdefault(site, []).append(x)
        lines.setdefault(line, []).append(x)
    for nodes in sites.values():
        yield nodes, {}
        yield from (([x], {"round": x.round}) for x in nodes if 1 < len(nodes) <= _ROUNDS)
    for nodes in lines.values():
        # A line with a single site was tried by that site.
        if len({x.site.calls for x in nodes}) > 1:
            yield nodes, {"line": True}


def _yield_accepted_replacements(
    replay: Replay,
    site: tuple[list[RecordedArray], dict[str, Any]],
    accepted: Callable[[Outputs], bool],
    count: CountOperations,
) -> Iterator[OtherOperation]:
    """Yield the replacements at a site whose outputs are accepted."""
    (nodes, where), recording = site, replay.recording
    # in a loop, the second round: the first one has none before
    shown = nodes[min(1, len(nodes) - 1)]
    operation = operation_of(shown)
    right = partial(recording.write, *operation[:3])
    first_and_last = [*nodes[:_COMPARED], *nodes[_COMPARED:][-1:]]
    rounds = [replay.at(x, {}) for x in first_and_last]
    known: dict[Any, bool] = {}
    alone = bool(where.get("line"))
    others = _yield_other_operations(recording, shown, alone)
    described = (
        (partial(_describe_replacement, words, right, alone), run) for words, run in others
    )
    # An operation of a loop that is changed in one round alone is no operator on an array.
    by_entries = () if where else _yield_changed_entries(recording, shown)
    for words, run in (*described, *by_entries):
        new = OtherOperation(shown.site, operation.step, run, words, **where)
        if not replay.count_since(count):
            return
        # Those of some rounds show whether the others need be computed.
        replay.computed += len(rounds)
        try:
            results = [np.asarray(run(at)) for at in rounds]
            key = tuple((x.shape, x.tobytes()) for x in results)
            # Replacements with equal results in these rounds have equal outputs.
            if key not in known:
                known[key] = accepted(replay.run(new, nodes[0].number))
        except UNFIT:
            continue
        if known[key]:
            yield new


def _yield_changed_entries(recording: Recording, result: RecordedArray) -> Iterator[Other]:
    """Yield the operators of the grammar on a result; and operands in place of its first or last entries."""
    array = recording.word(result, True)
    axes = ("column", "row")[: len(result.shape)]
    for operator in operators(axes):
        yield (
            partial(str, operator.words.format(f"entries of {array}")),
            partial(_change_result, operator.run),
        )
    for place, a in _yield_operand_places(operation_of(result).operands):
        if not _is_broadcastable_onto(a.shape, result.shape):
            continue
        for axis in _AXES:
            length = result.shape[axis] if -len(result.shape) <= axis < len(result.shape) else 1
            for last in (False, True) if length > 1 else ():
                end = "last" if last else "first"
                words = f"{_USES}{recording.word(a)} instead of {array} for the {end} entry of axis {axis}"
                yield (
                    partial(str, words),
                    partial(_keep_operand_at_end, place, axis, last),
                )


def _change_result(change: Function, at: OperationCall) -> Any:
    return change(at.result())


def _keep_operand_at_end(place: Place, axis: int, last: bool, at: OperationCall) -> Any:
    """Return the result, with an operand in place of the first or last entry of an axis."""
    result = at.result()
    operand = at.xp.broadcast_to(at.value(_select_operand_at_place(at, place)), result.shape)
    result, operand = (at.xp.moveaxis(x, axis, 0) for x in (result, operand))
    parts = (result[:-1], operand[-1:]) if last else (operand[:1], result[1:])
    return at.xp.moveaxis(at.xp.concat(parts, axis=0), 0, axis)


def _describe_replacement(words: Callable[[], str], right: Callable[[], str], line: bool) -> str:
    return f"uses {words()} instead of {right()}{', and alike wherever this is computed' * line}"


#: The step to blame for the output of a part that is no attention, by the end of its name.
_BLAMED_OUTPUTS = {"norm.output": "norm"}
#: The step to blame, by the end of the name of an array that only parts around an attention have.
_BLAMED_AROUND = {
    "normed": "norm", "stream": "residual", "up": "project", "hidden": "project",
    "gate": "project", "q": "project", "k": "project", "v": "project", "output": "output",
}  # fmt: skip


def step_to_blame(name: str, default: str) -> str:
    """Return the step of a report for the array of this name: that of its row, in an attention and within a block."""
    row = ARRAYS.get(name.rpartition(".")[2])
    of_array = row.blames if row is not None else ""
    # A norm's output has the name of an attention's.
    return (
        _find_step_by_end(name, _BLAMED_OUTPUTS)
        or of_array
        or _find_step_by_end(name, _BLAMED_AROUND)
        or default
    )


def _find_step_by_end(name: str, steps: Mapping[str, str]) -> str:
    return next((step for end, step in steps.items() if name.endswith(end)), "")
