"""Compare two functions that should compute the same attention, or two traces, files of q, k, v and the output.

Of traces: which output is wrong for its inputs, and where they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.precision import Contract, Precision
from symattn.attention.spec import Attention
from symattn.bounds.domain import Domain
from symattn.bounds.sharp.sample import chosen
from symattn.document.errors import InputError
from symattn.models.comparing.comparison import (
    NAMES,
    ComparedSide,
    Comparison,
    DifferingEntry,
    JointRun,
    SideEntry,
    difference,
    differing,
    together,
)
from symattn.programs import closeness, trace_files
from symattn.programs.child import TargetOptions
from symattn.programs.frameworks import read as floats_of
from symattn.programs.names import Function
from symattn.programs.specifications import Specification
from symattn.programs.traces import ROWS, verify_trace
from symattn.programs.verifying import Options, check_function, checked, verified
from symattn.verification import engine
from symattn.verification.engine import Progress

_FEWER = 25  # most random inputs on which both run


def compare(
    first: Function,
    second: Function,
    spec: Specification | None = None,
    *,
    precision: str | Precision = "float32",
    dtype: str | None = None,
    contract: Contract | None = None,
    domain: Domain | None = None,
    call: tuple[Mapping[str, object], Mapping[str, object]] = ({}, {}),
    examples: int = engine.EXAMPLES,
    budget: float = engine.BUDGET,
    seed: int = engine.SEED,
) -> Comparison:
    """Find out which of two functions is wrong, or whether they differ only by rounding.

    Each is verified against ``spec`` as by ``verify``, with the same parameters, and both are called with the same
    inputs. An output is a fault if no implementation in the ``precision`` could give it; neither function is the
    reference for the other. ``call`` holds the keywords to pass to each. Raises what ``verify`` raises.

    >>> import numpy as np
    >>> def attention(q, k, v):
    ...     s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    ...     e = np.exp(s - s.max(axis=-1, keepdims=True))
    ...     return e / e.sum(axis=-1, keepdims=True) @ v
    >>> def unscaled(q, k, v):
    ...     e = np.exp(q @ k.T - (q @ k.T).max(axis=-1, keepdims=True))
    ...     return e / e.sum(axis=-1, keepdims=True) @ v
    >>> compare(attention, unscaled, examples=4).wrong
    ('second',)
    """
    for function in (first, second):
        check_function(function)
    how = Options(
        dtype=dtype or precision,
        contract=contract,
        domain=domain,
        examples=examples,
        budget=budget,
        seed=seed,
    )
    return _verify_and_compare_pair(
        (first, second), checked(spec, domain), [replace(how, call=keywords) for keywords in call]
    )


def compare_targets(
    first: str,
    second: str,
    spec: Specification | None = None,
    *,
    call: tuple[Sequence[str], Sequence[str]] = ((), ()),
    progress: Progress = lambda words: None,
    **options: Any,
) -> Comparison:
    """Compare two ``package.module:function`` or ``file.py:function``, each in a child process of its own.

    ``options`` are those of ``verify_target``; ``call`` holds the texts such as ``is_causal=true`` for each of the two.
    """
    every = TargetOptions(**options, progress=progress)
    spec, names = checked(spec, every.domain), (first, second)
    comparison = _verify_and_compare_pair(
        names, spec, [replace(every, call=tuple(words)) for words in call]
    )
    calls = {"first-call": [*call[0]], "second-call": [*call[1]]}
    # The command repeats the comparison, with the calls of both sides.
    line = every.command(*names, spec=spec, name="compare", **calls)
    return replace(comparison, command=line, notes=(*every.notes, *comparison.notes))


def _verify_and_compare_pair(
    functions: Sequence[Function | str], spec: Specification, each: Sequence[Options]
) -> Comparison:
    """Verify both, and run both on the same inputs, with the effort of a verification."""
    sides = []
    for function, how, side in zip(functions, each, NAMES, strict=True):
        # Bound now, since the loop goes on to the other side.
        say = partial(lambda how, side, words: how.progress(f"{side}: {words}"), how, side)
        report = verified(function, spec, replace(how, progress=say))
        sides.append(ComparedSide(function if isinstance(function, str) else report.target, report))
    each[0].progress("both on the same inputs")
    faults = [fault for side in sides for fault in side.report.faults]
    # Both stay open, as they are called in turn.
    with ExitStack() as stack:
        first, second = (
            how.session(
                stack.enter_context(how.opened(function, spec)),
                spec,
                # Fewer examples: each side was verified before.
                min(how.examples, _FEWER),
                how.budget,
            )
            for function, how in zip(functions, each, strict=True)
        )
        joint_run: JointRun = together((first, second), faults)
    return Comparison(sides[0], sides[1], joint_run)


Arrays = Mapping[str, np.ndarray]


def compare_traces(
    first: str,
    second: str,
    spec: Attention | None = None,
    *,
    precision: str | Precision | None = None,
    contract: Contract | None = None,
    layout: str | None = None,
    rows: int | Sequence[int] = ROWS,
    command: str = "",
) -> Comparison:
    """Find out which of two traces is wrong. Parameters, and errors raised, are those of ``verify_trace``.

    Each output is judged by the inputs of its own file. If both files have the same inputs, the outputs are compared
    with each other as well, relative to the error allowed for one implementation, and the queries in which they differ
    are judged in addition to ``rows``. If the inputs differ, a note names the first array that does: the difference
    arose before this attention. The precision is that of both files; raises ``InputError`` if they have different
    formats and no precision is given.
    """
    spec, paths = spec or Attention(), (first, second)
    one, other = (trace_files.read(path, spec, layout) for path in paths)
    if precision is None and one["q"].dtype != other["q"].dtype:
        first_type, second_type = one["q"].dtype, other["q"].dtype
        raise InputError(
            f"{first} is of {first_type}, {second} of {second_type}; hint: --dtype {first_type}"
        )
    # Shapes are checked before any number is judged.
    for path, arrays in zip(paths, (one, other), strict=True):
        with _prefix_errors_with_file(path):
            next(trace_files.pieces(spec, arrays), None)
    unlike = _find_first_unlike_input(spec, one, other)
    # With other inputs the outputs must differ.
    apart = {} if unlike else _find_diverging_queries(spec, one, other)
    how: dict[str, Any] = {
        "precision": precision,
        "contract": contract,
        "layout": layout,
        "rows": rows,
        "also": apart,
    }
    sides = []
    for path in paths:
        with _prefix_errors_with_file(path):
            sides.append(ComparedSide(path, verify_trace(path, spec, **how)))
    if unlike:
        words = f"The files differ in {unlike} already, so that each output is judged by its own inputs alone."
        return Comparison(sides[0], sides[1], JointRun(unlike=unlike), command, (words,))
    arithmetic = Precision.of(precision or one["q"].dtype.name, contract)
    joint_run = JointRun()
    for mine, theirs in zip(
        trace_files.pieces(spec, one), trace_files.pieces(spec, other), strict=True
    ):
        # The rows in which they differ are judged as well.
        sample = chosen(mine.spec, mine.inputs, rows)
        looked = sorted({*sample, *apart.get(mine.place, ())})
        begins, most = _locate_differing_entries(mine, theirs, arithmetic, looked) or (None, None)
        joint_run = joint_run.joined(begins, most, mine.place not in apart)
    return Comparison(sides[0], sides[1], joint_run, command)


@contextmanager
def _prefix_errors_with_file(path: str) -> Iterator[None]:
    """Add the name of the file to an error that does not have it."""
    try:
        yield
    except InputError as error:
        words = str(error)
        raise InputError(words if path in words else f"{path}: {words}") from None


def _find_diverging_queries(
    spec: Attention, one: Arrays, other: Arrays
) -> dict[tuple[int, ...], list[int]]:
    """Return the first query of each piece whose outputs differ, and those that differ most, absolutely and relative to
    the largest entry of the query; pieces with equal outputs are left out."""
    rows = {}
    for mine, theirs in zip(
        trace_files.pieces(spec, one), trace_files.pieces(spec, other), strict=True
    ):
        a, b = (floats_of(p.made["o"])[0] for p in (mine, theirs))
        differ = differing(a, b)
        if differ.any():
            # Infinite outputs have no relative difference.
            with np.errstate(all="ignore"):
                off = np.abs(a - b)
                sizes = np.maximum(np.abs(a), np.abs(b))
                relative = off / sizes.max(axis=-1, keepdims=True)
            axis_of_rows = differ.ndim - 2
            axes = tuple(i for i in range(differ.ndim) if i != axis_of_rows)
            # NaN counts as the largest difference.
            finite = (np.nan_to_num(x, nan=np.inf) for x in (off, relative))
            far = (np.where(differ, x, 0.0) for x in finite)
            most = (x.max(axis=axes).argmax() for x in far)
            first_row = int(differ.any(axis=axes).argmax())
            rows[mine.place] = sorted({first_row, *map(int, most)})
    return rows


def _find_first_unlike_input(spec: Attention, one: Arrays, other: Arrays) -> str:
    """Return the first input that differs between the two, bit for bit except for the sign of 0, or ""."""
    for name in (n for n in {**one, **other} if n not in trace_files.MADE):
        if name not in one or name not in other or one[name].shape != other[name].shape:
            return name
    for mine, theirs in zip(
        trace_files.pieces(spec, one), trace_files.pieces(spec, other), strict=True
    ):
        for name, array in mine.inputs.items():
            if not _are_trace_arrays_equal(array, theirs.inputs[name]):
                return name
    return ""


def _are_trace_arrays_equal(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind in "biu" or b.dtype.kind in "biu":
        return np.array_equal(a, b)
    return np.array_equal(floats_of(a)[0], floats_of(b)[0], equal_nan=True)


def _locate_differing_entries(
    one: trace_files.TracePiece,
    other: trace_files.TracePiece,
    precision: Precision,
    rows: Sequence[int],
) -> tuple[DifferingEntry, DifferingEntry] | None:
    """Return the first entry in some rows at which the outputs differ, and the entry where they differ most."""
    outputs = (floats_of(piece.made["o"])[0] for piece in (one, other))
    a, b = (output[..., list(rows), :] for output in outputs)
    differ = differing(a, b)
    if not differ.any():
        return None
    # The exact output decides which side is nearer.
    right = closeness.measured(one.made["o"], one.inputs, one.spec, precision, rows)
    assert right is not None

    def place(number: int) -> DifferingEntry:
        at = tuple(int(i) for i in np.unravel_index(number, differ.shape))
        mine, theirs = (
            SideEntry(float(y[at]), float(difference(y, right.near, right.allowed)[at]))
            for y in (a, b)
        )
        index = (*one.place, *at[:-2], rows[at[-2]], at[-1])
        return DifferingEntry(
            "trace", "output", index, float(right.near[at]), float(right.allowed[at]), mine, theirs
        )

    return place(int(differ.argmax())), place(
        int(np.where(differ, difference(a, b, right.allowed), -1.0).argmax())
    )
