"""Outputs of many sequences in one array, and keys and values in pages: each sequence by itself, as plain attention.

Sequences that lie one after another on the axis of tokens are named by where they begin: sequence i has the tokens
cu[i] to cu[i + 1] − 1, and sees no other. Pages hold keys and values in blocks of the same number of tokens; the table
says which blocks, in order, are those of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.array import Array
from symattn.document.errors import InputError
from symattn.programs.closeness import close_to_exact
from symattn.programs.question import Layout, Question

_WHOLE = ("q", "k", "v", "sink")  # inputs that are known to have parts for a sequence, or none


class Piece(NamedTuple):
    """One sequence: its name in messages, its inputs, and what came back for it."""

    name: str
    given: dict[str, Any]
    out: Any
    lse: Any


def close_by_pieces(question: Question) -> str:
    """Describe what is wrong with the first sequence that is not right; empty where all are.

    ``alpha`` is shared out among the sequences. Raises ``InputError`` where arrays, sequences and pages do not fit.
    """
    if question.rows is not None and np.ndim(question.rows):
        raise InputError("rows are named, and there are several sequences; hint: how many of each")
    every = pieces(question.layout, question.given, question.out, question.lse)
    if not every:
        raise InputError("cu_seqlens must have at least one query")
    share = None if question.alpha is None else question.alpha / len(every)
    for piece in every:
        few = None if question.rows is None else min(int(question.rows), int(piece.given["q"].shape[-2]))  # type: ignore[arg-type]
        mine = replace(question, out=piece.out, given=piece.given, lse=piece.lse, alpha=share, rows=few)
        if words := close_to_exact(mine):
            return f"In {piece.name}:\n{words}"
    return ""


def pieces(layout: Layout, inputs: Mapping[str, object], out: object, lse: Any) -> list[Piece]:
    """The sequences, each with arrays of its own. Raises ``InputError`` for what does not fit together."""
    strange = [name for name in inputs if name not in _WHOLE]
    if strange:
        raise InputError(f"{strange[0]} is not split into sequences; hint: make one call for each sequence")
    if layout.cu_seqlens is not None:
        if layout.block_table is not None or layout.lengths is not None:
            raise InputError("cu_seqlens and block_table exclude each other; give one of them")
        return list(_packed(layout.cu_seqlens, inputs, out, lse))
    if layout.block_table is None or layout.lengths is None:
        raise InputError("block_table and lengths go together; hint: the number of keys of each sequence as lengths")
    return list(_paged(layout.block_table, layout.lengths, inputs, out, lse))


def _packed(cu_seqlens: Any, inputs: Mapping[str, Any], out: Any, lse: Any) -> Iterator[Piece]:
    pair = isinstance(cu_seqlens, tuple) and len(cu_seqlens) == 2 and np.ndim(cu_seqlens[0]) == 1
    of_q, of_k = cu_seqlens if pair else (cu_seqlens, cu_seqlens)
    queries, keys = _bounds(of_q, "q", inputs["q"]), _bounds(of_k, "k", inputs["k"])
    _bounds(of_k, "v", inputs["v"])
    if len(queries) != len(keys):
        raise InputError(f"cu_seqlens has {len(queries) - 1} sequences of queries and {len(keys) - 1} of keys")
    if tuple(out.shape[-2:-1]) != (queries[-1],):
        raise InputError(f"out has the shape {tuple(out.shape)}, and cu_seqlens ends with {queries[-1]} queries")
    for i, ((start, stop), (first, last)) in enumerate(zip(pairwise(queries), pairwise(keys), strict=True)):
        if start == stop:
            continue
        if first == last:
            raise InputError(f"sequence {i} has queries and no keys")
        mine = {**inputs, "q": inputs["q"][..., start:stop, :]}
        mine |= {name: inputs[name][..., first:last, :] for name in ("k", "v")}
        its = None if lse is None else lse[..., start:stop]
        yield Piece(f"sequence {i}, queries {start} to {stop - 1}", mine, out[..., start:stop, :], its)


def _bounds(given: object, name: str, array: Array) -> list[int]:
    result = _numbers("cu_seqlens", given, 1).tolist()
    total = int(array.shape[-2])
    if len(result) < 2 or result[0] != 0 or result[-1] != total or result != sorted(result):
        raise InputError(f"cu_seqlens of {name} is {_short(result)}; hint: numbers that rise from 0 to {total}")
    return [int(i) for i in result]


def _paged(table: object, lengths: object, inputs: Mapping[str, Any], out: Any, lse: Any) -> Iterator[Piece]:
    blocks, counts = _numbers("block_table", table, 2), _numbers("lengths", lengths, 1)
    k, v, q = inputs["k"], inputs["v"], inputs["q"]
    page, batch = int(k.shape[-2]), len(blocks)
    for name, size in (("lengths", len(counts)), ("q", int(q.shape[0])), ("out", int(out.shape[0]))):
        if size != batch:
            raise InputError(f"{name} has {size} sequences, and block_table {batch}")
    for i, (row, n) in enumerate(zip(blocks, counts.tolist(), strict=True)):
        used = row[: -(-n // page)]
        if not 0 < n <= page * len(row):
            raise InputError(
                f"lengths[{i}] must be from 1 to {page * len(row)}, for {len(row)} blocks of {page} keys, got {n}"
            )
        if not ((used >= 0) & (used < k.shape[0])).all():
            raise InputError(f"block_table[{i}] is {_short(used.tolist())}; there are blocks 0 to {k.shape[0] - 1}")
        mine = {**inputs, "q": q[i], "k": _gathered(k, used, n), "v": _gathered(v, used, n)}
        yield Piece(f"sequence {i}", mine, out[i], None if lse is None else lse[i])


def _gathered(cache: Any, used: np.ndarray, n: int) -> Any:
    """(blocks, …, page, d) to (…, n, d): the blocks of a sequence, one after another."""
    some = cache[used.tolist()]
    joined = some.swapaxes(0, -3) if some.ndim > 3 else some
    return joined.reshape(*joined.shape[:-3], -1, joined.shape[-1])[..., :n, :]


def _numbers(name: str, given: Any, axes: int) -> np.ndarray:
    values = np.asarray(given.tolist() if hasattr(given, "tolist") else given)
    if values.ndim != axes or values.dtype.kind not in "iu":
        raise InputError(f"{name} has {values.ndim} axes of {values.dtype}; hint: {axes} of whole numbers")
    return values.astype(np.int64)


def _short(numbers: Sequence[int]) -> str:
    return f"[{', '.join(map(str, numbers[:6]))}{', …' * (len(numbers) > 6)}]"
