"""``judged``: what ``symattn.testing.assert_close_to_exact`` checks: the output, gradients, and its own power.

An output of many sequences is judged sequence by sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.array import Array
from symattn.attention.spec import Attention
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import InputError
from symattn.programs import closeness
from symattn.programs.frameworks import Tensor, Tensors, suspect
from symattn.programs.question import Layout, OutputVerdict, Question, scaled
from symattn.verification.report import Sought


def judge_attention(
    out: object,
    arrays: dict[str, Any],
    spec: Attention | None,
    others: Mapping[str, Any],
    **how: Any,
) -> OutputVerdict:
    """Judge the output of an attention, with the ``others``: its logarithms of sums and gradients, and its power.

    ``how`` has the precision, contract, alpha and rows of a ``Question``. Raises ``InputError`` as ``judged`` does.
    """
    question = Question.of(out, arrays, spec, **others, **how)
    words, detected = judged(question)
    return OutputVerdict(
        words, "" if words else by_pieces(question, closeness.only_if_stored), detected
    )


@one_blas_thread
def judged(question: Question) -> tuple[str, tuple[Sought, ...]]:
    """Describe what is wrong, or ""; and return how the mistakes of ``power`` would be detected.

    It is wrong, too, if the comparison lacks a requested power. A runtime that multiplies incorrectly in the format is
    named first. Raises ``InputError`` for arguments that do not fit together.
    """
    _check_question(question)
    if question.power and question.alpha is not None:
        # the other half is for the rows that test the power
        question = replace(question, alpha=question.alpha / 2)
    words = by_pieces(question, closeness.close_to_exact)
    if not words and question.gradients is not None:
        from symattn.programs.gradients import gradients_close_to_exact  # rarely needed

        words = gradients_close_to_exact(question)
    if words and (runtime := suspect(question.given["q"])):
        return (
            f"{runtime}\nWhat it has made is not the fault of the function that called it: {words}",
            (),
        )
    if words or not question.power:
        return words, ()
    from symattn.programs.sensitivity import (
        sought,
    )  # imports the known mistakes, which are rarely needed

    of = closeness.ready(question)
    of = of._replace(inputs=closeness.on_cpu(of.inputs))  # the power is computed in NumPy
    words, results = sought(of, question.out, question.power, question.alpha or 1.0, question.rows)
    missed = [
        f"No fault was found, but {r.words} would not be detected\n{r.how}"
        for r in results
        if not r.seen
    ]
    return words or "\n".join(missed), results


def _check_question(question: Question) -> None:
    closeness.check_alpha(question.alpha)
    if question.gradients is not None and (question.do is None or not question.layout.plain):
        raise InputError(
            "gradients are those of ⟨do, out⟩ for one array of each; hint: give do, and no packed layout"
        )
    if question.do is not None and question.gradients is None:
        raise InputError(
            "do is for gradients, and there are none; hint: give gradients=(dq, dk, dv), or leave out do"
        )
    # None leaves a gradient out; without any, nothing would be checked.
    if isinstance(question.gradients, tuple | list) and all(a is None for a in question.gradients):
        raise InputError(
            "gradients are None, all of them; hint: give one that is to be judged, or leave out gradients"
        )
    # Factors of quantised inputs belong to the output, of which alone bounds are known.
    if scaled(question.given) and (question.gradients is not None or question.power is not None):
        raise InputError(
            "with descale factors the output alone is judged; hint: leave out gradients and power"
        )
    if question.power is None:
        return
    if not isinstance(question.power, Mapping) or not question.power:
        raise InputError(
            f"power is {question.power!r}; hint: parts of numbers by steps, such as {{'scale': 0.001}}"
        )
    if not question.layout.plain:
        raise InputError(
            "power is for one array of each; hint: no packed layout, but a call for each sequence"
        )


# -- sequences in one array, and pages ---------------------------------------------------------------------------------
# Outputs of many sequences in one array, and keys and values in pages: judge each sequence alone, as plain attention.
#
# Sequences that follow one another on the axis of tokens are given by their starts: sequence i has the tokens cu[i] to
# cu[i + 1] − 1, and sees no other. Pages hold keys and values in blocks of the same number of tokens; the table lists
# the blocks of a sequence in order.

_SPLIT = ("q", "k", "v", "sink")  # inputs that can be split into sequences, or are the same for all


class Piece(NamedTuple):
    """A sequence: its name in messages, its inputs, and the outputs for it."""

    name: str
    given: dict[str, Tensor]
    out: Tensor
    lse: Tensor


def by_pieces(question: Question, ask: Callable[[Question], str]) -> str:
    """Return the first non-empty result of ``ask``, called for each sequence, or for the one array; else "".

    ``alpha`` is divided among the sequences. Raises ``InputError`` if arrays, sequences and pages do not fit.
    """
    if question.layout.plain:
        return ask(question)
    if question.rows is not None and np.ndim(question.rows):
        raise InputError("rows are named, and there are several sequences; hint: how many of each")
    every = pieces(question.layout, question.given, question.out, question.lse)
    if not every:
        raise InputError("cu_seqlens must have at least one query")
    share = None if question.alpha is None else question.alpha / len(every)
    for piece in every:
        few = (
            None
            if question.rows is None
            else min(int(question.rows), int(piece.given["q"].shape[-2]))  # type: ignore[arg-type]
        )
        mine = replace(
            question, out=piece.out, given=piece.given, lse=piece.lse, alpha=share, rows=few
        )
        if words := ask(mine):
            return f"In {piece.name}:\n{words}"
    return ""


def pieces(layout: Layout, inputs: Mapping[str, object], out: object, lse: Tensor) -> list[Piece]:
    """Return the sequences, each with its own arrays. Raises ``InputError`` if the arguments do not fit together."""
    unsplit = [name for name in inputs if name not in _SPLIT]
    if unsplit:
        raise InputError(
            f"{unsplit[0]} is not split into sequences; hint: make one call for each sequence"
        )
    if layout.cu_seqlens is not None:
        # Each says by itself where sequences begin.
        if layout.block_table is not None or layout.lengths is not None:
            raise InputError("cu_seqlens and block_table exclude each other; give one of them")
        return list(_yield_packed_sequences(layout.cu_seqlens, inputs, out, lse))
    if layout.block_table is None or layout.lengths is None:
        raise InputError(
            "block_table and lengths go together; hint: the number of keys of each sequence as lengths"
        )
    return list(_yield_paged_sequences(layout.block_table, layout.lengths, inputs, out, lse))


def _yield_packed_sequences(
    cu_seqlens: Tensor, inputs: Tensors, out: Tensor, lse: Tensor
) -> Iterator[Piece]:
    pair = isinstance(cu_seqlens, tuple) and len(cu_seqlens) == 2 and np.ndim(cu_seqlens[0]) == 1
    of_q, of_k = cu_seqlens if pair else (cu_seqlens, cu_seqlens)
    queries, keys = (
        _read_sequence_bounds(of_q, "q", inputs["q"]),
        _read_sequence_bounds(of_k, "k", inputs["k"]),
    )
    _read_sequence_bounds(of_k, "v", inputs["v"])
    if len(queries) != len(keys):
        raise InputError(
            f"cu_seqlens has {len(queries) - 1} sequences of queries and {len(keys) - 1} of keys"
        )
    if tuple(out.shape[-2:-1]) != (queries[-1],):
        raise InputError(
            f"out has the shape {tuple(out.shape)}, and cu_seqlens ends with {queries[-1]} queries"
        )
    for i, ((start, stop), (first, last)) in enumerate(
        zip(pairwise(queries), pairwise(keys), strict=True)
    ):
        # An empty sequence has nothing to judge.
        if start == stop:
            continue
        if first == last:
            raise InputError(f"sequence {i} has queries and no keys")
        mine = {**inputs, "q": inputs["q"][..., start:stop, :]}
        mine |= {name: inputs[name][..., first:last, :] for name in ("k", "v")}
        its = None if lse is None else lse[..., start:stop]
        yield Piece(
            f"sequence {i}, queries {start} to {stop - 1}", mine, out[..., start:stop, :], its
        )


def _read_sequence_bounds(given: object, name: str, array: Array) -> list[int]:
    result = _read_whole_number_array("cu_seqlens", given, 1).tolist()
    total = int(array.shape[-2])
    if len(result) < 2 or result[0] != 0 or result[-1] != total or result != sorted(result):
        raise InputError(
            f"cu_seqlens of {name} is {_format_shortened_numbers(result)}; hint: numbers that rise from 0 to {total}"
        )
    return [int(i) for i in result]


def _yield_paged_sequences(
    table: object, lengths: object, inputs: Tensors, out: Tensor, lse: Tensor
) -> Iterator[Piece]:
    blocks, counts = (
        _read_whole_number_array("block_table", table, 2),
        _read_whole_number_array("lengths", lengths, 1),
    )
    k, v, q = inputs["k"], inputs["v"], inputs["q"]
    page, batch = int(k.shape[-2]), len(blocks)
    for name, size in (
        ("lengths", len(counts)),
        ("q", int(q.shape[0])),
        ("out", int(out.shape[0])),
    ):
        if size != batch:
            raise InputError(f"{name} has {size} sequences, and block_table {batch}")
    for i, (row, n) in enumerate(zip(blocks, counts.tolist(), strict=True)):
        # Only the blocks that have keys: further entries of the table may be padding.
        used = row[: -(-n // page)]
        if not 0 < n <= page * len(row):
            raise InputError(
                f"lengths[{i}] must be from 1 to {page * len(row)}, for {len(row)} blocks of {page} keys, got {n}"
            )
        if not ((used >= 0) & (used < k.shape[0])).all():
            raise InputError(
                f"block_table[{i}] is {_format_shortened_numbers(used.tolist())}; there are blocks 0 to "
                f"{k.shape[0] - 1}"
            )
        mine = {
            **inputs,
            "q": q[i],
            "k": _gather_cache_blocks(k, used, n),
            "v": _gather_cache_blocks(v, used, n),
        }
        yield Piece(f"sequence {i}", mine, out[i], None if lse is None else lse[i])


def _gather_cache_blocks(cache: Tensor, used: np.ndarray, n: int) -> Tensor:
    """Concatenate the blocks of a sequence: (blocks, …, page, d) to (…, n, d)."""
    blocks = cache[used.tolist()]
    joined = blocks.swapaxes(0, -3) if blocks.ndim > 3 else blocks
    return joined.reshape(*joined.shape[:-3], -1, joined.shape[-1])[..., :n, :]


def _read_whole_number_array(name: str, given: Tensor, axes: int) -> np.ndarray:
    values = np.asarray(given.tolist() if hasattr(given, "tolist") else given)
    if values.ndim != axes or values.dtype.kind not in "iu":
        raise InputError(
            f"{name} has {values.ndim} axes of {values.dtype}; hint: {axes} of whole numbers"
        )
    return values.astype(np.int64)


def _format_shortened_numbers(numbers: Sequence[int]) -> str:
    return f"[{', '.join(map(str, numbers[:6]))}{', …' * (len(numbers) > 6)}]"
