"""The attention that the reference of a benchmark may compute, by its inputs' names and shapes and by its numbers.

Arrays beside q, k, v are known by the names of their parameters: sinks, a mask, a bias, padding, a gate. Whole numbers
of the model may be windows, and other numbers soft caps. Each of these is only tried: the reference decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from symattn.attention.spec import Attention
from symattn.programs.judging.benchmark import Benchmark
from symattn.programs.judging.recurrences import AXES_OF_HEADS
from symattn.programs.names import meaning
from symattn.programs.specifications import Specification

_QKV = 3  # arrays that every attention has
#: Inputs with a number for each head, which one head does not need.
_BY_HEAD = ("sink", "bias", "gate")
#: Numbers of a model that are tried as windows, and as soft caps.
_MOST_NUMBERS = 3


def plausible_attention(benchmark: Benchmark) -> Iterator[Attention]:
    """Yield the attention that a reference of q, k, v may compute, the likeliest first."""
    fields = _read_further_inputs(benchmark)
    if fields is None:
        return
    # Heads that share keys come first: small inputs of one head agree with the others, too.
    bases = [Attention(heads=h, kv_heads=kv, **fields) for h, kv in _count_heads(benchmark)]
    # Arrays with an axis of heads are none of a single one.
    if not bases or not _has_inputs_by_head(benchmark):
        bases.append(Attention(**fields))
    for base in bases:
        yield from (base, replace(base, causal=True))
        yield replace(base, causal=True, alignment="top-left")
    for base in bases:
        for length in _lengths_of_windows(benchmark):
            yield replace(base, causal=True, window=length)
            # A window of w keys before the query has w + 1 keys with its own.
            yield replace(base, causal=True, window=length + 1)
            yield replace(base, window=(length, length))
        for cap in _caps(benchmark):
            yield from (replace(base, softcap=cap), replace(base, softcap=cap, causal=True))


def with_heads_of_shapes(spec: Specification, benchmark: Benchmark) -> Iterator[Specification]:
    """Yield a definition with the numbers of heads that a benchmark's shapes show, and as it is."""
    if isinstance(spec, Attention) and spec.heads == 1 and not benchmark.tokens:
        for heads, kv_heads in _count_heads(benchmark):
            yield replace(spec, heads=heads, kv_heads=kv_heads)
    yield spec


def _read_further_inputs(benchmark: Benchmark) -> dict[str, Any] | None:
    """Return the fields that give a definition the inputs after q, k, v; None if one of these has no known meaning."""
    fields: dict[str, Any] = {}
    further = zip(benchmark.names[_QKV:], benchmark.arrays[_QKV:], strict=False)
    for name, array in further:
        what = meaning(name)
        is_boolean = array.dtype == bool
        if what == "mask":
            fields["mask"] = "boolean" if is_boolean else "additive"
        elif what == "keep" and is_boolean:
            fields["padding"] = True
        elif what == "bias":
            fields["bias"] = True
        elif what == "sink":
            fields["sink"] = "given"
        elif what == "gate":
            fields["output_gate"] = True
        else:
            return None
    # Arrays without a name have no meaning.
    return fields if len(benchmark.shapes) <= max(len(benchmark.names), _QKV) else None


def _count_heads(benchmark: Benchmark) -> Iterator[tuple[int, int | None]]:
    """Yield numbers of heads of queries and of keys: where they differ, or if a further input has one for each head."""
    grouped = list(count_grouped_heads(benchmark.shapes))
    yield from grouped
    if grouped or not _has_inputs_by_head(benchmark):
        return
    queries, further = benchmark.shapes[0], benchmark.shapes[_QKV:]
    for axis in AXES_OF_HEADS:
        heads = queries[axis] if len(queries) >= -axis else 1
        if heads > 1 and any(heads in shape for shape in further):
            yield heads, None


def _has_inputs_by_head(benchmark: Benchmark) -> bool:
    """Return whether an array beside q, k, v may have a number, or scores, for each head."""
    further = zip(benchmark.names[_QKV:], benchmark.shapes[_QKV:], strict=False)
    return any(meaning(name) in _BY_HEAD and len(shape) != 2 for name, shape in further)


def count_grouped_heads(shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of heads of queries and of keys, if arrays may have an axis on which the two differ.

    Heads are before the tokens, or between tokens and columns.
    """
    if len(shapes) < 2 or len(shapes[0]) != len(shapes[1]):
        return
    of_queries, of_keys = shapes[:2]
    for axis in AXES_OF_HEADS:
        if len(of_queries) < -axis:
            continue
        heads, kv_heads = of_queries[axis], of_keys[axis]
        if 0 < kv_heads < heads and heads % kv_heads == 0:
            yield heads, kv_heads


def _lengths_of_windows(benchmark: Benchmark) -> list[int]:
    """Return the whole numbers of a model that may be the length of a window: some below the number of tokens."""
    longest = max((max(shape[-3:-1], default=0) for shape in benchmark.shapes[:_QKV]), default=0)
    whole = [n for n in benchmark.numbers if type(n) is int and 1 < n < longest]
    return whole[:_MOST_NUMBERS]


def _caps(benchmark: Benchmark) -> list[float]:
    """Return the numbers of a model that may be a soft cap of its scores."""
    return [n for n in benchmark.numbers if type(n) is float and n > 1][:_MOST_NUMBERS]
