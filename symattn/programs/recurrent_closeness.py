"""Compare an output of linear attention with the exact one, by the law of ``symattn.bounds.recurrent``.

An output is right if one arithmetic explains all of it: each element is within the limits of that order and these
formats. Of long sequences some rows are judged: those that are furthest off, and some drawn ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.precision import Contract, Precision
from symattn.bounds.recurrent.recurrence import Recurrence
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic, of_precision
from symattn.bounds.recurrent.recurrent_limits import (
    MAX_SPLIT_EXPONENT,
    ExactRecurrence,
    Limits,
    exact_values,
    limits,
)
from symattn.bounds.recurrent.replays import replay
from symattn.bounds.sharp.limits import HYPOTHESIS
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import InputError
from symattn.programs import closeness
from symattn.programs.question import OutputVerdict
from symattn.verification.definitions.linear import LinearAttention
from symattn.verification.definitions.linear_erasure import ERASING_INPUTS, is_of_keys
from symattn.verification.definitions.linear_inputs import field_of_input, inputs_beside
from symattn.verification.definitions.raw_gates import as_rows_of_heads, read_gates
from symattn.verification.definitions.recurrent_law import (
    BY_HEAD,
    explain_uncovered,
    recurrences,
    repeat_for_tokens,
)

#: Part of the sharp limit that a replay may reach where that limit is used.
_MOST_OF_SHARP = 1 / 3


Array = np.ndarray
#: Longest sequence of which every row is judged by default.
MAX_LENGTH_OF_ALL_ROWS = 512
#: Rows of a longer one: those that are furthest off, absolutely and in parts of the row, and drawn ones.
FURTHEST_ROWS, DRAWN_ROWS = 64, 128
#: Rows with which other arithmetics are tried first.
FEW_ROWS = 8
#: The arrays that a question may have.
NAMES = (
    *("q", "k", "v", "g", "beta", "bonus", "dt", "skip", "p", "b", "w", "a"),
    *("A_log", "dt_bias", "initial_state", "final_state", "cu_seqlens"),
)


@dataclass(frozen=True)
class RecurrentQuestion:
    """An output, a final state or None, and the recurrences of all heads; leading axes are joined, ``front`` has them.

    ``ways`` are the arithmetics that may have made it; ``rows`` those to judge, their number, or None.
    """

    out: Array
    final: Array | None
    heads: tuple[Recurrence, ...]
    front: tuple[int, ...]
    precision: Precision
    ways: tuple[RecurrentArithmetic, ...]
    alpha: float | None
    rows: int | Sequence[int] | None
    place: str = ""

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.heads[0].q)


@one_blas_thread
def judge_recurrence(
    out: Any,
    arrays: dict[str, Any],
    spec: LinearAttention,
    precision: str | Precision | None = None,
    contract: Contract | RecurrentArithmetic | None = None,
    alpha: float | None = 1e-9,
    rows: int | Sequence[int] | None = None,
) -> OutputVerdict:
    """Judge an output of linear attention, and its final state if it is among the arrays.

    Raises ``InputError`` for a specification that the law does not cover, and for arrays that do not fit.
    """
    closeness.check_alpha(alpha)
    check_covered(spec)
    notes = []
    # Sequences are judged one by one, up to the first that is wrong.
    for question in _yield_recurrent_questions(out, arrays, spec, precision, contract, alpha, rows):
        verdict = _judge_recurrent_output(question)
        if verdict.words:
            return OutputVerdict(question.place + verdict.words)
        notes += [question.place + verdict.note] if verdict.note else []
    return OutputVerdict("", "\n".join(notes))


def check_covered(spec: LinearAttention) -> None:
    """Raise ``InputError`` for a specification that the law does not cover."""
    if words := explain_uncovered(spec):
        raise InputError(words)


# -- reading -----------------------------------------------------------------------------------------------------------
def _yield_recurrent_questions(
    out: Any,
    arrays: dict[str, Any],
    spec: LinearAttention,
    precision: str | Precision | None,
    contract: Contract | RecurrentArithmetic | None,
    alpha: float | None,
    rows: int | Sequence[int] | None,
) -> Iterator[RecurrentQuestion]:
    """Yield the question of each sequence. Raises ``InputError`` if arrays do not fit."""
    inputs = {name: a for name, a in arrays.items() if a is not None}
    _check_names(spec, inputs)
    read_as = {
        name: closeness.read_array(name, a) for name, a in inputs.items() if name != "cu_seqlens"
    }
    values = {name: np.asarray(a, dtype=np.float64) for name, (a, _) in read_as.items()}
    # States of values by keys are turned once, and are keys by values from here on.
    for name in {"initial_state", "final_state"} & values.keys() if spec.state == "vk" else ():
        values[name] = np.atleast_2d(values[name]).swapaxes(-1, -2)
    if precision is None and read_as["q"][1] not in FORMATS:
        raise InputError(
            f"q is of {read_as['q'][1]}, which says nothing about the arithmetic; hint: precision='float32'"
        )
    words = contract if isinstance(contract, str) else "fused"
    arithmetic = Precision.of(read_as["q"][1] if precision is None else precision, words)
    for name in "qkv":
        if read_as[name][1] != arithmetic.input.name:
            closeness.check_representable(name, values[name], arithmetic.input)
    result, dtype = closeness.read_array("out", out)
    _check_shapes(spec, values)
    shape = values["v"].shape
    if form := closeness.form_words("out", result.shape, shape, dtype, arithmetic):
        raise InputError(form)
    arithmetic = replace(arithmetic, output=Format(dtype))
    state_format = Format(read_as["final_state"][1]) if "final_state" in read_as else None
    sequences = list(_yield_recurrent_sequences(spec, inputs.get("cu_seqlens"), values, result))
    # Divided, so that the probability applies to all sequences together.
    share = None if alpha is None else alpha / len(sequences)
    for place, mine, its in sequences:
        length = mine["q"].shape[-2]
        ways = _list_possible_arithmetics(arithmetic, contract, length, state_format)
        final = mine.pop("final_state", None)
        heads = tuple(recurrences(spec, mine, arithmetic))
        if not all(np.isfinite(a).all() for of in heads for a in (of.q, of.k, of.erased)):
            names = "q, k or p" if spec.erase == "vector" else "q or k"
            raise InputError(
                f"{names} has a vector of zeros, which a norm without eps divides by 0: there is no"
                " exact output; hint: the eps of the layer, such as eps=1e-6"
            )
        flat = its.reshape(-1, *its.shape[-2:])
        state = None if final is None else final.reshape(-1, *final.shape[-2:])
        few = min(int(rows), length) if isinstance(rows, Integral) else rows
        yield RecurrentQuestion(
            flat, state, heads, its.shape[:-2], arithmetic, ways, share, few, place
        )


def _check_names(spec: LinearAttention, given: dict[str, Any]) -> None:
    needed = ["q", "k", "v", *inputs_beside(spec)]
    for name in needed:
        if name not in given:
            raise InputError(f"there is no input {name!r}; hint: {', '.join(needed)}")
    # Known names, whether this specification needs them or not.
    legal = {*needed, "initial_state", "final_state", "cu_seqlens"}
    for name in given:
        if name not in legal:
            hint = field_of_input(spec, name) or f"{', '.join(sorted(legal))}"
            raise InputError(f"the specification has no input {name!r}; hint: {hint}")


def _check_shapes(spec: LinearAttention, values: dict[str, Array]) -> None:
    """Check the shapes, and give gates and β of one number a token their column."""
    q, v = values["q"], values["v"]
    if q.ndim < 2 or q.shape[-2] < 1:
        raise InputError(f"q has the shape {q.shape}; hint: (…, n, d_k)")
    # Grouped heads, and gates and bonuses of heads, need an axis of heads.
    if q.ndim < 3 and (spec.values_per_key > 1 or spec.has_numbers_of_heads):
        raise InputError(f"q has the shape {q.shape}, without heads; hint: (…, h, n, d_k)")
    of_keys, (length, width) = q.shape[:-2], q.shape[-2:]
    # Values have more heads than keys, several for each.
    front = (*of_keys[:-1], of_keys[-1] * spec.values_per_key) if of_keys else ()
    if spec.gate == "head":
        if values["g"].shape != front[-1:]:
            raise InputError(
                f"g has the shape {values['g'].shape}, expected {front[-1:]}, one gate a head, for q {q.shape}"
            )
        # A gate of a head is the same for all of its tokens.
        values["g"] = repeat_for_tokens(values["g"], np.zeros((*front, length, 1)))
    if "g" in values and spec.gate == "token" and values["g"].ndim == q.ndim - 1:
        values["g"] = values["g"][..., None]
    for name in ("beta", "dt"):
        if name in values and values[name].ndim == q.ndim - 1:
            values[name] = values[name][..., None]
    expected = {"k": (*of_keys, length, width), "v": (*front, length, v.shape[-1])}
    expected["g"] = (*front, length, width if spec.gate == "feature" else 1)
    expected["beta"] = (*front, length, 1)
    expected["bonus"] = (*front[-1:], width)
    expected["dt"] = (*front, length, 1)
    expected["skip"] = expected["A_log"] = front[-1:]
    expected["dt_bias"] = (*front[-1:], width) if spec.gate == "feature" else front[-1:]
    for name, last in ERASING_INPUTS[spec.erase].items():
        heads = of_keys if is_of_keys(spec, name) else front
        expected[name] = (*heads, length, width if last == "d_k" else v.shape[-1])
    for name, shape in expected.items():
        if name in values and values[name].shape != shape:
            raise InputError(
                f"{name} has the shape {values[name].shape}, expected {shape} for q {q.shape}"
            )
    for name, a in values.items():
        if name != "final_state" and not np.isfinite(a).all():
            raise InputError(f"{name} has numbers that are not finite: there is no exact output")
    if "dt" in values and spec.step_form is None and values["dt"].min(initial=0.0) < 0:
        raise InputError(
            "dt has a number below 0, with which states grow; hint: the step after its softplus, at least 0"
        )
    if spec.gate_form:
        rows = as_rows_of_heads(spec, values["A_log"], values["dt_bias"])
        with np.errstate(over="ignore", invalid="ignore"):
            gates = np.asarray(read_gates(spec, values["g"], *rows))
        if not np.isfinite(gates).all():
            raise InputError(
                "g, A_log and dt_bias make gates that are not finite in float64; hint: A_log is the logarithm of the"
                " rate, such as log 4, and raw gates are at most 700"
            )
    # A gate above 0 would let the state grow without limit.
    elif "g" in values and values["g"].max(initial=0.0) > 0:
        raise InputError(
            "g has a number above 0, and gates are the logarithms of decays; hint: g = log a, at most 0"
        )


def _yield_recurrent_sequences(
    spec: LinearAttention, cu_seqlens: Any, values: dict[str, Array], out: Array
) -> Iterator[tuple[str, dict[str, Array], Array]]:
    """Yield the place, the arrays and the output of each sequence; states have an axis of sequences in front then."""
    states, length = ("initial_state", "final_state"), values["q"].shape[-2]
    front = values["v"].shape[:-2]
    state = (*front, values["q"].shape[-1], values["v"].shape[-1])
    if cu_seqlens is None:
        _check_states(spec, values, state)
        yield "", dict(values), out
        return
    bounds = [
        int(x) for x in (cu_seqlens.tolist() if hasattr(cu_seqlens, "tolist") else cu_seqlens)
    ]
    # Rising without repeats, since a sequence has at least one token.
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != length or bounds != sorted(set(bounds)):
        raise InputError(f"cu_seqlens is {bounds[:6]}; hint: numbers that rise from 0 to {length}")
    _check_states(spec, values, (len(bounds) - 1, *state))
    for number, (lo, hi) in enumerate(pairwise(bounds)):
        mine = {
            name: a if name in BY_HEAD else a[number] if name in states else a[..., lo:hi, :]
            for name, a in values.items()
        }
        yield f"In sequence {number}, tokens {lo} to {hi - 1}: ", mine, out[..., lo:hi, :]


def _check_states(spec: LinearAttention, values: dict[str, Array], shape: tuple[int, ...]) -> None:
    """Check that states have the ``shape`` of keys by values. Raises ``InputError``, in the layout of the input."""
    by_values = spec.state == "vk"
    for name in ("initial_state", "final_state"):
        if name in values and values[name].shape != shape:
            # The message has the axes as the user passed them.
            passed, wanted = (
                (*axes[:-2], axes[-1], axes[-2]) if by_values and len(axes) > 1 else axes
                for axes in (values[name].shape, shape)
            )
            letters, words = (
                ("(…, d_v, d_k)", "values by keys")
                if by_values
                else ("(…, d_k, d_v)", "keys by values")
            )
            raise InputError(
                f"{name} has the shape {passed}; hint: {letters} = {wanted}, a state of {words}"
            )


def _list_possible_arithmetics(
    precision: Precision,
    contract: Contract | RecurrentArithmetic | None,
    length: int,
    state_format: Format | None,
) -> tuple[RecurrentArithmetic, ...]:
    """Return the arithmetics that may have made the output: the one given, or those of the precision."""
    if isinstance(contract, RecurrentArithmetic):
        return (
            contract
            if contract.ending or state_format is None
            else replace(contract, ending=state_format),
        )
    if contract not in (None, "eager", "fused"):
        raise InputError(
            f"contract is {contract!r}; hint: 'eager', 'fused', or a RecurrentArithmetic"
        )
    ways = [replace(way, ending=state_format) for way in of_precision(precision, length)]
    # A final state in a narrow format may have been stored in it after every chunk.
    if state_format is not None and state_format.u > precision.accumulate.u:
        ways += [replace(way, kept=state_format) for way in ways]
    return tuple(ways)


# -- judging -----------------------------------------------------------------------------------------------------------
class _Excess(NamedTuple):
    """How far a head is beyond an arithmetic: the largest error in parts of the worst case, and of the smaller limit,
    where that is (of the output: row and column; of the state: two indices), the limits there, the number of elements
    beyond them, and the part of the sharp limit that a right program needs, if only that is exceeded."""

    head: int
    by_worst: float
    by_limit: float
    of_state: bool
    at: tuple[int, int]
    worst: float
    limit: float
    beyond: int
    guard: float = 0.0


def _judge_recurrent_output(question: RecurrentQuestion) -> OutputVerdict:
    note = ""
    finite = np.isfinite(question.out)
    state_finite = None if question.final is None else np.isfinite(question.final)
    every = bool(finite.all() and (state_finite is None or state_finite.all()))
    if not every:
        # A fault only where neither gates nor exact numbers can overflow.
        reach = _largest_chunk_exponent(question)
        representable = all(
            _is_output_representable(exact_values(of), question.precision) for of in question.heads
        )
        if reach <= MAX_SPLIT_EXPONENT and representable:
            return OutputVerdict(_not_finite(question, finite), "")
        note = (
            f"{int((~finite).sum())} of {finite.size} elements of out are not finite, and nothing is said about them: "
            f"gates sum to −{reach:.3g} in a chunk, where e^G and e^−G apart overflow"
        )
    exact = [exact_values(of) for of in question.heads]
    rows = [_choose_rows_of_head(question, head, e) for head, e in enumerate(exact)]
    tried: list[_Excess] = []
    for way in question.ways:
        if tried:  # a few elements are enough to reject another arithmetic
            last = tried[-1]
            suspects = rows[last.head][-FEW_ROWS:] if last.of_state else [last.at[0]]
            bounds = _compute_head_limits(
                question, way, last.head, suspects, with_state=last.of_state
            )
            excess = _measure_worst_excess(question, way, last.head, exact[last.head], bounds)
            if excess is not None:
                tried.append(excess)
                continue
        excess, silent = _first_excess(question, way, exact, rows)
        if excess is None:
            words = (
                f"The law says nothing about {silent} of {finite.size} elements" if silent else ""
            )
            return OutputVerdict("", note or words)
        tried.append(excess)
    return OutputVerdict(_describe_unexplained_output(question, exact, tried), "")


def _first_excess(
    question: RecurrentQuestion,
    way: RecurrentArithmetic,
    exact: list[ExactRecurrence],
    rows: list[list[int]],
) -> tuple[_Excess | None, int]:
    """Return the first head that a way does not explain, or None; and the number of elements without a limit."""
    silent = 0
    for head in range(len(question.heads)):
        bounds = _compute_head_limits(
            question, way, head, rows[head], with_state=question.final is not None
        )
        # Elements without a limit are counted, since nothing was checked there.
        silent += int(np.isinf(bounds.worst).sum())
        excess = _measure_worst_excess(question, way, head, exact[head], bounds)
        if excess is not None:
            return excess, silent
    return None, silent


def _compute_head_limits(
    question: RecurrentQuestion,
    way: RecurrentArithmetic,
    head: int,
    rows: list[int],
    with_state: bool,
) -> Limits:
    # Without alpha the sharp limits are dropped, and any probability serves for the others.
    alpha = question.alpha or 0.5
    bounds = limits(question.heads[head], way, rows, alpha, len(question.heads), with_state)
    return bounds if question.alpha is not None else replace(bounds, sharp=None, sharp_state=None)


def _measure_worst_excess(
    question: RecurrentQuestion,
    way: RecurrentArithmetic,
    head: int,
    exact: ExactRecurrence,
    allowed: Limits,
) -> _Excess | None:
    """Return the worst element beyond its limit, or None.

    The sharp limit counts only where a right program in this arithmetic needs little of it.
    """
    results = []
    parts = [
        (
            False,
            question.out[head][list(allowed.rows)],
            exact.output[list(allowed.rows)],
            allowed.worst,
            allowed.sharp,
        )
    ]
    if question.final is not None:
        parts.append(
            (True, question.final[head], exact.state, allowed.worst_state, allowed.sharp_state)
        )
    for of_state, got, right, worst, sharp in parts:
        # Elements that are not finite are judged before.
        error = np.where(np.isfinite(got), np.abs(got - right), 0.0)
        limit = worst if sharp is None else np.minimum(worst, sharp)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Without an error, a limit of 0 is not exceeded.
            ratios, by_worst = (np.where(error > 0, error / a, 0.0) for a in (limit, worst))
        if not ratios.size or not ratios.max() > 1:
            continue
        row, column = (int(i) for i in np.unravel_index(int(ratios.argmax()), ratios.shape))
        at = (row if of_state else allowed.rows[row], column)
        there = float(worst[row, column]), float(limit[row, column])
        beyond = int((ratios > 1).sum())
        results.append(
            _Excess(head, float(by_worst.max()), float(ratios.max()), of_state, at, *there, beyond)
        )
    if not results:
        return None
    excess = max(results, key=lambda one: one.by_limit)
    # Where the worst case is exceeded it decides, since it assumes nothing about roundings.
    if max(one.by_worst for one in results) > 1:
        return max(results, key=lambda one: one.by_worst)
    needed = guard(question, way, exact, head)
    return excess._replace(guard=needed) if needed <= _MOST_OF_SHARP else None


def guard(
    question: RecurrentQuestion, way: RecurrentArithmetic, exact: ExactRecurrence, head: int
) -> float:
    """Return the part of the sharp limit that a right program in this arithmetic needs for a head."""
    rows = _choose_rows_of_head(question, head, exact)
    bounds = _compute_head_limits(question, way, head, rows, with_state=True)
    assert bounds.sharp is not None
    assert bounds.sharp_state is not None
    own = replay(question.heads[head], way)
    shares = [np.abs(own.output - exact.output)[list(bounds.rows)] / bounds.sharp]
    shares.append(np.abs(own.state - exact.state) / bounds.sharp_state)
    # NaN means that the replay itself left the range: then no part of the limit is enough.
    return max(float(np.nan_to_num(a, nan=np.inf).max(initial=0.0)) for a in shares)


def _choose_rows_of_head(
    question: RecurrentQuestion, head: int, exact: ExactRecurrence
) -> list[int]:
    """Return the rows of a head to judge: those that were asked for, all, or those furthest off and drawn ones."""
    length, rows = question.length, question.rows
    if rows is not None and not isinstance(rows, int):
        chosen = [int(row) for row in rows]
        if any(not 0 <= row < length for row in chosen):
            raise InputError(f"rows must be from 0 to {length - 1}, got {chosen[:6]}")
        return sorted(set(chosen))
    most = (
        length
        if rows is None and length <= MAX_LENGTH_OF_ALL_ROWS
        else rows or 2 * FURTHEST_ROWS + DRAWN_ROWS
    )
    if most >= length:
        return list(range(length))
    error = np.nan_to_num(np.abs(question.out[head] - exact.output), nan=0.0, posinf=0.0)
    furthest = max(1, most // 4)
    # The small number is for rows of zeros.
    sizes = np.abs(exact.output).mean(axis=1) + 1e-300
    by_error = error.max(axis=1).argsort()
    by_part = (error.max(axis=1) / sizes).argsort()
    # Seeded, so that a repeated judgement reads the same rows.
    drawn = np.random.default_rng((length, head)).permutation(length)
    # The ends first, then the rows furthest off; drawn rows fill up the number.
    chosen = [0, length - 1, *by_error[-furthest:], *by_part[-furthest:], *drawn]
    return sorted([int(row) for row in dict.fromkeys(chosen)][:most])


def _largest_chunk_exponent(question: RecurrentQuestion) -> float:
    """Return the largest |G| in a chunk of the sizes that are tried."""
    size = max(way.size for way in question.ways)
    starts = range(0, question.length, size)
    totals = (of.gates[lo : lo + size].sum(axis=0) for of in question.heads for lo in starts)
    return max(float(np.abs(total).max()) for total in totals)


def _is_output_representable(exact: ExactRecurrence, precision: Precision) -> bool:
    # Half of the largest number leaves room for roundings.
    most = float(precision.returned.largest) / 2
    largest = (np.abs(a).max() for a in (exact.output, exact.state))
    return all(bool(x < most) for x in largest)


# -- words -------------------------------------------------------------------------------------------------------------
def _not_finite(question: RecurrentQuestion, finite: Array) -> str:
    if finite.all():
        return "final_state has numbers that are not finite, and the exact ones are"
    at = tuple(int(i) for i in np.argwhere(~finite)[0])
    count = int((~finite).sum())
    place = _format_element_place(question, *at)
    return f"{count} of {finite.size} elements are not finite\nThe first is out{place}"


def _format_element_place(question: RecurrentQuestion, head: int, *at: int) -> str:
    front = [int(i) for i in np.unravel_index(head, question.front)] if question.front else []
    return str([*front, *at])


def _describe_unexplained_output(
    question: RecurrentQuestion, exact: list[ExactRecurrence], tried: list[_Excess]
) -> str:
    """Describe an output that none of the ways tried explains, by the way that comes nearest."""
    excess = min(tried, key=lambda one: one.by_limit)
    certain = all(one.by_worst > 1 for one in tried)
    name = "final_state" if excess.of_state else "out"
    got = (question.final if excess.of_state else question.out)[excess.head][excess.at]  # type: ignore[index]
    right = (exact[excess.head].state if excess.of_state else exact[excess.head].output)[excess.at]
    narrow, wide = question.precision.input.name, question.precision.accumulate.name
    sums = "" if narrow == wide else f" with sums and the state in {wide}"
    beyond = (
        f"what any implementation in {narrow}{sums} can give"
        if certain
        else f"rounding to nearest in {narrow}{sums}"
    )
    lines = [
        f"At least {excess.beyond} element{'s are' if excess.beyond > 1 else ' is'} beyond {beyond}",
        f"The worst is {name}{_format_element_place(question, excess.head, *excess.at)}: got {got:.10g}, "
        f"exact {right:.10g}",
        f"Off by {abs(got - right):.2g}; {_describe_allowed_error(excess, certain)}",
        f"Orders tried: {_describe_orders_of_addition(question.ways)}",
    ]
    if not certain:
        lines.append(
            f"A correct output is flagged with a probability of at most {question.alpha:g}, if {HYPOTHESIS}; a correct"
            f" replay uses {excess.guard:.2f} of the limit here"
        )
    return "\n".join(lines)


def _describe_allowed_error(excess: _Excess, certain: bool) -> str:
    if not certain and excess.limit < excess.worst:
        return f"the sharp limit is {excess.limit:.2g} (the worst case: {excess.worst:.2g})"
    return f"at most {excess.worst:.2g} is allowed, which the worst-case bound certifies"


def _describe_orders_of_addition(ways: Sequence[RecurrentArithmetic]) -> str:
    sizes = sorted({way.size for way in ways if way.order == "chunks"})
    words = ["token by token"] if any(way.order == "tokens" for way in ways) else []
    return ", ".join(
        [*words, *([f"chunks of {', '.join(map(str, sizes))} tokens"] if sizes else [])]
    )
