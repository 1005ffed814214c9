"""The named functions of a step's formula: functions of numbers, and those of ``attention`` itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.attention import norms, projections, scores
from symattn.attention.flow import Step
from symattn.attention.letters_of_attention import SYMBOLS
from symattn.attention.positions import relative, rotary
from symattn.attention.positions.position_fields import (
    Buckets,
    Disentangled,
    Rotary,
    Shaw,
    TransformerXL,
)
from symattn.attention.temperatures import temperature_of
from symattn.derivations.attention.inputs import DerivationRequest
from symattn.document import notation as nt
from symattn.document.notation import Name
from symattn.document.text import text
from symattn.proof.relations.functions import ENTRYWISE, FUNCTIONS
from symattn.proof.relations.part_values import Unread, Value

if TYPE_CHECKING:
    from symattn.derivations.attention.step_reader import StepReader

SEES = "a query that sees a key"


def call(reader: StepReader, x: nt.Call) -> Value | None:
    """Return the value of a function of attention, with its arguments; None for another one. Raises Unread."""
    word, parts = text(x.function), reader.parts(x)
    position, formula = reader.request.spec.position, reader.step.formula
    if (
        word in ("cos", "sin")
        and isinstance(position, Rotary)
        and position.triples
        and reader.kind is not Ball
    ):
        return _compute_rotation_power(word, reader.one(parts[0]), position.triples)
    if work := _WORDS.get(word):
        return work(reader, parts)
    if word in ENTRYWISE or not isinstance(formula, nt.Call) or formula.function != x.function:
        return None
    # Of entries, max(s_ij, φ) is the function of numbers, though the step's own formula has the same word.
    if word in FUNCTIONS and not any(reader.one(p).rank for p in parts):
        return None
    # Apply the step itself, which the formula names: mask(S), rotate(Q, cos Θ, sin Θ).
    step, written = reader.step, reader.parts(formula)
    if len(written) != len(parts) or any(
        a != b
        for a, b in zip(written, parts, strict=True)
        if _is_number_node(a) or _is_number_node(b)
    ):
        raise Unread("other numbers than the function's")
    arguments = [
        _reshape_to_input(reader, reader.one(p), name)
        for p, name in zip([p for p in parts if not _is_number_node(p)], step.of, strict=False)
    ]
    remaining = step.of[len(arguments) :]
    rest = [reader.given.get(name, reader.here[name]) for name in remaining]  # booleans as they are
    return _shape_as_step_output(reader, Value(step.run(*arguments, *rest)))


def _compute_rotation_power(
    word: str, times: Value, triples: tuple[tuple[int, int, int], ...]
) -> Value:
    """Return the real or imaginary part of ((a + bi)/c)^n, exactly."""

    def turned(n: int, a: int, b: int, c: int) -> Fraction:
        x, y = Fraction(1), Fraction(0)
        for _ in range(abs(n)):
            # (x + iy)(a + ib)/c, once for each step.
            real, imaginary = x * a - y * b, x * b + y * a
            x, y = real / c, imaginary / c
        # The inverse of a rotation is its conjugate.
        return x if word == "cos" else y if n >= 0 else -y

    kind, letters = type(times.array), times.letters
    result = np.empty(times.array.shape, dtype=object)
    for index, n in np.ndenumerate(times.array.entries):
        triple = triples[index[letters.index("l")]]
        result[index] = turned(int(str(n)), *triple)
    return Value(kind.lift(result), letters)


def _is_number_node(x: nt.Node) -> bool:
    return isinstance(x, nt.Number)


def _reshape_to_input(reader: StepReader, x: Value, name: str) -> Any:
    wanted = reader.here[name].shape
    if tuple(x.array.shape) != tuple(wanted):
        if x.array.size != reader.here[name].size:
            raise Unread("an argument of another shape")
        return x.array.reshape(tuple(wanted))
    return x.array


def _shape_as_step_output(reader: StepReader, x: Value) -> Value:
    like = reader.whole(reader.step.name)
    array = x.array
    if array.ndim < like.array.ndim:
        array = array[..., None, :]
    return Value(array, like.letters if array.ndim == like.array.ndim else (), like.rank)


def _read_first_columns(reader: StepReader, parts: list[nt.Node]) -> Value:
    if len(parts) == 2:
        x, width = reader.one(parts[0]), parts[1]
        if not isinstance(width, nt.Number) or width.value.denominator != 1:
            raise Unread("first of how many")
        truncated = scores.truncate(x.array, width=int(width.value))
        return Value(truncated, x.letters, x.rank)
    x = reader.one(parts[0])
    columns = reader.here[reader.step.name].shape[-1]
    return Value(x.array[..., :columns], x.letters, x.rank)


def _read_last_columns(reader: StepReader, parts: list[nt.Node]) -> Value:
    x = reader.one(*parts)
    width = reader.here[reader.step.name].shape[-1]
    return Value(
        x.array[..., x.array.shape[-1] - width :],
        x.letters,
        x.rank,
    )


def _read_repeated_heads(reader: StepReader, parts: list[nt.Node]) -> Value:
    x, times = reader.one(parts[0]), parts[1]
    if not isinstance(times, nt.Number) or times.value.denominator != 1:
        raise Unread("repeated how often")
    repeated = projections.repeat_heads(x.array, times=int(times.value))
    return Value(repeated, x.letters, x.rank)


def _read_concatenation(reader: StepReader, parts: list[nt.Node]) -> Value:
    if len(parts) == 1:
        return Value(projections.merge_heads(reader.one(parts[0]).array), (), 2)
    arrays = [
        _reshape_to_input(reader, reader.one(p), name)
        for p, name in zip(parts, reader.step.of, strict=True)
    ]
    return _shape_as_step_output(reader, Value(reader.step.run(*arrays)))


def _make_norm_reader(kind: str) -> Callable[[StepReader, list[nt.Node]], Value]:
    def work(reader: StepReader, parts: list[nt.Node]) -> Value:
        x, *rest = map(reader.one, parts)
        if kind == "unit":
            return Value(norms.unit(x.array), x.letters, x.rank)
        spec = reader.request.spec
        # Latents have an ε of their own.
        eps = (
            spec.latent.eps
            if spec.latent is not None and reader.step.name.startswith("c_")
            else spec.eps
        )
        norm = norms.rms_norm if kind == "rms" else norms.layer_norm
        record = reader.step.norm
        if record is not None and parts == [SYMBOLS[name] for name in reader.step.of]:
            normed = _run_on_rows_of_step(reader, record, norm, x)
        else:
            normed = norm(x.array, eps, *(r.array for r in rest))
        return Value(normed, x.letters, x.rank)

    return work


def _run_on_rows_of_step(
    reader: StepReader, record: norms.NormRecord, norm: Callable[..., Any], x: Value
) -> Any:
    """Return a norm of the rows of the step, which its reason names: of each head, or of all heads together."""
    gain, bias = (reader.here.get(name) for name in (record.gain, record.bias))
    return record.run_by(norm, x.array, gain, bias)


def _read_relative_product(reader: StepReader, parts: list[nt.Node]) -> Value:
    """Return each row times the table's row for the distance, by the step itself with 0 for everything else."""
    step, (x, rows) = reader.step, parts
    places_of_rows = (i for i, name in enumerate(step.of) if SYMBOLS[name] == rows)
    at = next(places_of_rows, None)
    if at is None:
        raise Unread(f"the table {text(rows)}")
    # All operands but the table are 0, so that its product alone remains.
    operands = [0 * reader.here[name] for name in step.of]
    operands[at] = reader.here[step.of[at]]
    of = 0 if step.of[at] == "a_v" else 1 if step.of[at] == "r_k" else at - 1
    operands[of] = _reshape_to_input(reader, reader.one(x), step.of[of])
    result = step.run(*operands)
    if step.of[at] == "p_q":
        result = result.mT
    return _shape_as_step_output(reader, Value(result))


def _read_bucket_rows(reader: StepReader, parts: list[nt.Node]) -> Value:
    """Return the table's numbers for the bucket of each distance."""
    if not isinstance(parts[1], Name) or parts[1] != Name("β"):
        raise Unread("rows of other indices")
    values = reader.one(parts[0])
    table_ = _reshape_to_input(reader, values, "b_rel")
    zeros = 0 * reader.here[reader.step.of[0]]
    return _shape_as_step_output(reader, Value(reader.step.run(zeros, table_)))


_WORDS: Mapping[str, Callable[[StepReader, list[nt.Node]], Value]] = {
    "first": _read_first_columns,
    "last": _read_last_columns,
    "repeat": _read_repeated_heads,
    "concat": _read_concatenation,
    "rel": _read_relative_product,
    "rows": _read_bucket_rows,
    "unit": _make_norm_reader("unit"),
    "RMSNorm": _make_norm_reader("rms"),
    "LayerNorm": _make_norm_reader("layer"),
}


def letters(reader: StepReader) -> dict[str, Callable[[Any], Value]]:
    """Return the letters that are neither arrays of the step nor defined by its reasons, each with its value."""
    step, spec = reader.step, reader.request.spec
    result: dict[str, Callable[[Any], Value]] = {}
    if step.name[:3] in ("cos", "sin"):
        # Letters of angles: positions, and a frequency for each pair.
        result["p"] = lambda _: Value(_places_of_rows(reader), (), 2)
        result[text(nt.name("θ", "ℓ"))] = lambda _: Value(reader.here["θ"][None, :], (), 2)
        result[text(nt.name("ω", "ℓ"))] = lambda _: Value(reader.here["ω"][None, :], (), 2)
    if "slopes" in reader.here:
        exponents = np.array(relative.slope_exponents(spec.heads), dtype=object)
        result |= {
            text(nt.name("e", head)): lambda _: Value(reader.kind.lift(exponents), ("a",))
            for head in "ha"
        }
        result["D"] = lambda _: Value(reader.one(nt.name("d", "i", "j")).array, (), 2)
    if step.name == "tau":
        n_q, n_k = reader.here[step.of[0]].shape[-2:]
        counts = temperature_of(spec).counts(n_q, n_k)
        of_places = reader.kind.lift(np.array(counts, dtype=object))
        result["c"] = lambda _: Value(of_places, (), 1)
        result[text(nt.name("c", "i"))] = lambda _: Value(of_places, ("i",))
    return result


def places(request: DerivationRequest, step: Step) -> dict[str, Value]:
    """Return the values, counted from 1, of the letters for indices that other indices determine."""
    n_q = request.n_q
    n_k = request.n_k
    spec = request.spec
    position = request.spec.position
    no_scores = np.zeros((n_q, n_k))
    # How far a key is ahead of its query.
    ahead = np.asarray(relative.ahead(no_scores, spec.alignment)).astype(int)
    pairs: dict[str, Any] = {}
    if isinstance(position, Shaw):
        pairs["δ"] = relative.clipped(ahead, position.most)
    elif isinstance(position, TransformerXL) and "r_k" in step.of:
        pairs["δ"] = relative.from_far_to_near(ahead, n_k, request.sizes["n_r"])
    elif isinstance(position, Disentangled):
        pairs["δ"] = pairs["δ p_k"] = _clip_disentangled_distance(position, -ahead)
        pairs["δ p_q"] = _clip_disentangled_distance(
            position, ahead if position.backwards else -ahead
        )
    elif isinstance(position, Buckets):
        pairs["β"] = relative.t5_bucket(
            ahead, position.number, position.max_distance, position.bidirectional
        )
    result = {
        # Readers count from 1.
        letter: Value(np.asarray(x).astype(int) + 1, ("i", "j"))
        for letter, x in pairs.items()
    }
    if step.name.endswith("_rotated"):
        result["p"] = Value(
            np.arange(1, n_q + 1) + (n_k - n_q if spec.alignment == "bottom-right" else 0), ("i",)
        )
    if step.name[:3] in ("cos", "sin") and (rows := _rows_of_pairs(position)):
        result["σ"] = Value(np.array(rows) + 1, ("l",))
    if step.name.endswith("_shared"):
        # Heads of one group share a head of keys.
        result["b"] = Value((np.arange(spec.heads) // spec.group) + 1, ("a",))
    return result


def _clip_disentangled_distance(request: Disentangled, behind: Any) -> Any:
    if request.max_distance is not None:
        behind = relative.deberta_bucket(behind, request.span, request.max_distance)
    return relative.clipped(behind, request.span, request.span - 1)


def frequencies(
    request: DerivationRequest, step: Step, arrays: Mapping[str, Any], kind: Any
) -> dict[str, Any]:
    """Return ω_l, or the angle θ_l of a Pythagorean triple, in balls; on exact kinds θ_l is 1 and counts turns."""
    position = request.spec.position
    if step.name[:3] not in ("cos", "sin") or not isinstance(position, Rotary):
        return {}
    # On exact kinds an angle is counted in turns of its triple.
    if position.triples and kind is not Ball:
        return {"θ": kind.lift(np.ones(len(position.triples)))}
    if position.triples:
        triples = position.triples
        angles = [flint.arb.atan2(flint.arb(b), flint.arb(a)) for a, b, _ in triples]
        return {"θ": Ball(np.array(angles, dtype=object))}
    rows = arrays[step.of[0]]
    result = rotary.inverse_frequencies(position.width or rows.shape[-1], position.base, rows)
    if position.scaling is not None:
        result = position.scaling.frequencies(
            result, position.base, rows.shape[-2] + position.start
        )
    return {"ω": result}


def _rows_of_pairs(position: object) -> tuple[int, ...]:
    """Return the row of the positions that each pair of columns turns by; () without sections."""
    if not isinstance(position, Rotary) or position.sections is None:
        return ()
    return rotary.rows_of_pairs(position.sections, position.section_order)


def _places_of_rows(reader: StepReader) -> Any:
    """Return the positions of the rows of a table, as a column; with sections, a column for each pair."""
    input_names, position = reader.step.of[1:], reader.request.spec.position
    if input_names:
        rows = _rows_of_pairs(position)
        places = reader.here[input_names[0]]
        return rotary.positions_of_pairs(places, rows) if rows else places[:, None]
    start = position.start if isinstance(position, Rotary) else 0
    count = reader.here[reader.step.name].shape[0]
    return reader.xp.asarray(reader.xp.arange(count) + start)[:, None]


def condition(request: DerivationRequest, said: str, arrays: Mapping[str, Any]) -> Value:
    """Return where a condition in words holds, over heads if there are several, queries and keys."""
    if "may be seen" in said:
        table: Any = request.allowed()
    elif said == SEES:
        return Value(request.allowed().any(axis=-1), ("i",))
    elif "kept" in said:
        is_nonzero = np.vectorize(lambda x: bool(x != 0), otypes=[bool])
        table = is_nonzero(arrays["drop"].entries)
    else:
        raise Unread(f"the condition {said}")
    # Conditions may lack the axis of heads, and that of queries.
    return Value(table, ("a", "i", "j")[3 - table.ndim :])
