"""The attention that the reference of a benchmark may compute, by its inputs' names and shapes and by its numbers.

Arrays beside q, k, v are known by the names of their parameters: sinks, a mask, a bias, padding, a gate, tables or
slopes of positions. Whole numbers of the model may be windows, and other numbers soft caps. Positions that the model
computes itself, rotary ones and ALiBi, leave no trace in its inputs. All are only tried: the reference decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any, Literal

from symattn.attention.positions.position_fields import Alibi, Rotary
from symattn.attention.spec import Attention
from symattn.document.keywords import plain
from symattn.programs.judging.benchmark import Benchmark
from symattn.programs.judging.recurrences import AXES_OF_HEADS
from symattn.programs.names import AMBIGUOUS, meaning
from symattn.programs.specifications import Specification

_QKV = 3  # arrays that every attention has
#: Inputs with a number for each head, which one head does not need.
_BY_HEAD = ("sink", "bias", "gate", "slopes")
#: Numbers of a model that are tried as windows, as soft caps, and as bases of rotary positions.
_MOST_NUMBERS = 3
#: What an input says of the positions; those of the queries are further inputs of the same.
_POSITIONS: Mapping[str, Rotary | Alibi] = {
    "cos": Rotary(given="tables"),
    "sin": Rotary(given="tables"),
    "positions": Rotary(given="positions"),
    "slopes": Alibi(slopes="given"),
}
_OTHER_NORMALISERS: tuple[Literal["sigmoid", "relu", "relu_sum", "sparsemax"], ...] = (
    "sigmoid",
    "relu",
    "relu_sum",
    "sparsemax",
)
_MOST_WITH_OTHER_WEIGHTS = 2  # without and with a causal mask
_USUAL_BASE, _LEAST_BASE = 10000, 1000  # of rotary positions


def plausible_attention(benchmark: Benchmark) -> Iterator[Attention]:
    """Yield the attention that a reference of q, k, v may compute, the likeliest first."""
    # Arrays without a name have no meaning.
    if len(benchmark.shapes) > max(len(benchmark.names), _QKV):
        return
    further = zip(benchmark.names[_QKV:], benchmark.arrays[_QKV:], strict=False)
    fields = fields_of_inputs({name: array.dtype == bool for name, array in further})
    if fields is None:
        return
    # Heads that share keys come first: small inputs of one head agree with the others, too.
    bases = [Attention(heads=h, kv_heads=kv, **fields) for h, kv in _count_heads(benchmark)]
    # Arrays with an axis of heads are none of a single one.
    if not bases or not _has_inputs_by_head(benchmark):
        named = () if bases else benchmark.numbers_of_heads
        bases.append(Attention(**fields))
        # A model that names its heads may take no others.
        bases += [Attention(heads=h, kv_heads=kv, **fields) for h, kv in named if h > 1]
    for base in dict.fromkeys(bases):
        yield from (base, replace(base, causal=True))
        yield replace(base, causal=True, alignment="top-left")
        if isinstance(base.position, Alibi):
            two_sided = replace(base.position, two_sided=True)
            yield replace(base, causal=False, position=two_sided)
    for base in bases:
        for length in _lengths_of_windows(benchmark):
            yield replace(base, causal=True, window=length)
            # A window of w keys before the query has w + 1 keys with its own.
            yield replace(base, causal=True, window=length + 1)
            if not base.causal:
                yield replace(base, window=(length, length))
        for cap in _caps(benchmark):
            yield from (replace(base, softcap=cap), replace(base, softcap=cap, causal=True))
    for_alibi = [base for base in bases if base.heads > 1]
    for_alibi += [replace(bases[-1], heads=heads) for heads in _sizes_of_axes_of_heads(benchmark)]
    yield from with_positions(bases, for_alibi, benchmark.numbers)


def with_other_normalisers(benchmark: Benchmark) -> Iterator[Attention]:
    """Yield the likeliest attentions of a reference with other weights than those of softmax, which few compute."""
    likeliest = islice(plausible_attention(benchmark), _MOST_WITH_OTHER_WEIGHTS)
    for spec, normaliser in product([*likeliest], _OTHER_NORMALISERS):
        # A sink is a part of softmax alone.
        if spec.sink is None:
            yield replace(spec, normaliser=normaliser)


def with_positions(
    bases: Iterable[Attention], several_heads: Iterable[Attention], numbers: Iterable[float] = ()
) -> Iterator[Attention]:
    """Yield definitions with positions: rotary ones in both layouts, with the bases among ``numbers``, and ALiBi.

    A definition that has inputs for positions keeps their form. ALiBi is that of ``several_heads``.
    """
    larger = [n for n in numbers if n >= _LEAST_BASE and n != _USUAL_BASE][:_MOST_NUMBERS]
    larger = [int(n) if n == int(n) else n for n in larger]
    for base, causal in product(dict.fromkeys(bases), (True, False)):
        own = base.position
        rotary = (
            [own] if own is not None else [Rotary(base=number) for number in (_USUAL_BASE, *larger)]
        )
        for position in rotary:
            if isinstance(position, Rotary):
                yield replace(base, causal=causal, position=position)
                interleaved = replace(position, layout="interleaved")
                yield replace(base, causal=causal, position=interleaved)
    for base in dict.fromkeys(several_heads):
        if base.position is None:
            yield replace(base, causal=True, position=Alibi())
            yield replace(base, position=Alibi(two_sided=True))


def with_heads_of_shapes(spec: Specification, benchmark: Benchmark) -> Iterator[Specification]:
    """Yield a definition with the numbers of heads that a benchmark's shapes show, and as it is."""
    if isinstance(spec, Attention) and spec.heads == 1 and not benchmark.tokens:
        for heads, kv_heads in _count_heads(benchmark):
            yield replace(spec, heads=heads, kv_heads=kv_heads)
    yield spec


def fields_of_inputs(further: Mapping[str, bool]) -> dict[str, Any] | None:
    """Return the fields that give a definition the inputs after q, k, v; None if one of these has no known meaning.

    ``further`` says of each input, by its name, whether it has booleans.
    """
    fields: dict[str, Any] = {}
    for name, is_boolean in further.items():
        what = meaning(name)
        if what == "mask":
            fields["mask"] = "boolean" if is_boolean else "additive"
        elif is_boolean and (what == "keep" or plain(name) in AMBIGUOUS):
            fields["padding"] = True
        elif what == "bias":
            fields["bias"] = True
        elif what == "sink":
            fields["sink"] = "given"
        elif what == "gate":
            fields["output_gate"] = True
        elif what is not None and what.removesuffix("_q") in _POSITIONS:
            fields["position"] = _POSITIONS[what.removesuffix("_q")]
            # Biases that grow with the distance to earlier keys say nothing of later ones.
            if isinstance(fields["position"], Alibi):
                fields["causal"] = True
        else:
            return None
    return fields


def _sizes_of_axes_of_heads(benchmark: Benchmark) -> Iterator[int]:
    """Yield the numbers of heads that the axes of q may show, those that the model's numbers name first."""
    queries = benchmark.shapes[0]
    sizes = [queries[axis] for axis in AXES_OF_HEADS if len(queries) > -axis]
    yield from sorted((n for n in sizes if n > 1), key=lambda n: n not in benchmark.numbers)


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
