"""``Cached``: attention of new tokens to a cache and to one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from numbers import Real
from typing import Any

import numpy as np

from symattn.attention.fields import brief, refusal
from symattn.attention.inputs import needed
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.positions import position_fields
from symattn.attention.spec import Attention
from symattn.attention.streaming.by_tiles import by_tiles
from symattn.bounds.called_target import Inputs, Layout
from symattn.bounds.inputs import measure_largest_score
from symattn.bounds.mistake import Compute, Mistake
from symattn.bounds.reference import Values, Variant, variant_values
from symattn.document import codec, errors, keywords
from symattn.verification.definitions import attending, attention_steps, output_run
from symattn.verification.definitions.cache_flow import CacheFlow
from symattn.verification.definitions.definition_forms import Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import (
    Call,
    InnerAttention,
    WrongAttention,
    with_leading_axes,
)
from symattn.verification.definitions.output_run import OutputRun
from symattn.verification.definitions.stated_definition import define_in_steps
from symattn.verification.input_source import Array, InputPairs

# New tokens, tokens of the cache, d_k and d_v of each case.
_SIZES = (
    (1, 3, 4, 2), (3, 2, 2, 3), (2, 5, 4, 4), (1, 1, 2, 1), (4, 4, 2, 5), (1, 16, 2, 2), (2, 9, 8, 1), (5, 3, 4, 2),
)  # fmt: skip


@dataclass(frozen=True)
class Cached(keywords.Answering):
    """Causal attention of n new tokens to a cache of p tokens and to each other.

    attention  causal attention; with ``position=Rotary(…)`` the cache holds rotated keys; without norms, as a cache
               holds what is normalised; without windows, blocks and inputs besides q, k and v

    A function takes q, k, v of the new tokens, k_cache, v_cache, and for caches with empty slots ``length``, the
    number p of tokens that they hold: slots from p on are empty, and hold zeros. Without ``length`` all slots are
    filled, and the new tokens are appended. It returns the output, or the output and both caches with the new
    tokens.

    Source: Shazeer, Fast Transformer Decoding (2019), on incremental inference.

    >>> Cached(Attention(causal=True))
    Cached(attention=Attention(causal=True))
    """

    attention: Attention

    __repr__ = brief

    def __post_init__(self) -> None:
        if not isinstance(self.attention, Attention):
            raise refusal(self, "attention", "be an Attention(causal=True)")
        if not self.attention.causal:
            raise errors.InputError(
                "Cached: its attention is not causal; hint: Attention(causal=True)"
            )
        if self.attention.lse or not isinstance(
            self.attention.position, position_fields.Rotary | None
        ):
            raise errors.InputError("Cached: of the output alone, with positions by Rotary or none")
        # The keys that a call is given are all slots, empty ones included, so that places would be counted wrongly.
        for field in ("window", "block", "prefix"):
            if getattr(self.attention, field) is not None:
                raise errors.InputError(
                    f"Cached: its {field} would count empty slots of the cache; hint: {field}=None"
                )
        if self.attention.temperature is not None:
            raise errors.InputError(
                "Cached: temperatures depend on places; hint: multiply the queries before, without temperature"
            )
        _check_cached_arrays(self.attention)
        beside = needed(self.attention, "qkv")
        if beside:
            raise errors.InputError(
                f"Cached: takes q, k, v and caches; it has no place for {', '.join(beside)}"
            )


def _check_cached_arrays(attention: Attention) -> None:
    """Raise ``InputError`` for keys or values that steps change before a cache could hold them.

    Code caches what it has changed, such as normalised keys, and would be accused of not doing it again.
    """
    for step in attention.pipeline("qkv"):
        # Rotations are steps of the cache itself; what only moves entries may be done to all slots.
        is_changed = step.role in ("k", "v") and step.errors not in ("rotates", "moves")
        if is_changed:
            array = ARRAYS[step.name].title.lower()
            raise errors.InputError(
                f"Cached: a cache holds the {array}; hint: give these, and an attention that leaves them as they are"
            )


def subjects(spec: Cached, layout: Layout) -> Iterator[Definition]:
    """Yield a definition with and without empty slots in the cache, each with and without the caches returned."""
    bare = replace(spec.attention, position=None)
    attending.check(bare, "Cached", layout)
    for static in (True, False):
        for returned in (True, False):
            yield _define_cached_attention(spec, layout, static, returned)


def _define_cached_attention(
    spec: Cached, layout: Layout, static: bool, returned: bool
) -> Definition:
    a, flow = spec.attention, CacheFlow(spec.attention, static, returned)
    laid = partial(attending.in_order, layout, ("q", "k", "v", "k_cache", "v_cache"))
    made = partial(attention_steps.change_attention, flow)
    wrong = WrongAttention(flow.inner, frozenset("qkv"), made)
    caches_alone = (laid(partial(attention_steps.run_around_attention, flow)),) if returned else ()
    return define_in_steps(
        flow,
        "cache",
        tuple(_list_inputs(a, layout, static)),
        tuple(_yield_sizes(a, layout, static)),
        _list_ways(flow),
        laid,
        title=f"Cached({codec.called(a)})",
        outputs=("output", "k_cache", "v_cache") if returned else ("output",),
        others=Later(lambda: _list_mistakes_of_attention(flow, wrong)),
        numbered=tuple(attending.by_number(flow.inner, made)),
        settings=attending.settings(a),
        kept=frozenset("hg") if a.heads > 1 else frozenset(),
        # Code may write new tokens into the arrays of the cache itself.
        changes=frozenset(("k_cache", "v_cache")),
        finish=partial(_clear_unfilled_cache_slots, layout) if static else lambda inputs: inputs,
        empties=partial(_filled_otherwise, layout),
        undefined=partial(_undefined_in_empty_slots, layout) if static else None,
        leak="NaN in an empty slot of the cache reaches the output",
        admits=lambda inputs, result: not static or result["m"] >= result["n"],
        means={"m": ("n_k", 1)},
        whole=("q", "k k_cache"),
        inner=replace(_make_cached_inner_attention(a, layout, static), wrong=wrong),
        output_run=_run_of(flow, layout, caches_alone),
    )


def _list_inputs(a: Attention, layout: Layout, static: bool) -> list[Input]:
    """Return the new tokens and both caches, and the length of caches with empty slots."""
    shape = partial(attending.axes, a, layout)
    arrays = [
        Input("q", shape("h", "n", "d_k"), "query queries q_new xq new_q"),
        Input("k", shape("g", "n", "d_k"), "key keys k_new xk new_k"),
        Input("v", shape("g", "n", "d_v"), "value values v_new xv new_v"),
        Input(
            "k_cache",
            shape("g", "m", "d_k"),
            "cache_k key_cache past_k k_past past_key kcache cached_k",
        ),
        Input(
            "v_cache",
            shape("g", "m", "d_v"),
            "cache_v value_cache past_v v_past past_value vcache cached_v",
        ),
    ]
    if static:
        words = "len cache_len cache_length position start pos start_pos cur_len offset past length_before seqlen t"
        arrays.append(Input("length", "", words, made=partial(_choose_cache_length, layout)))
    return arrays


def _yield_sizes(a: Attention, layout: Layout, static: bool) -> Iterator[dict[str, int]]:
    """Yield the sizes of each case, by letter."""
    front = {
        **({"b": 2} if "b" in layout else {}),
        **({"h": a.heads if a.heads > 1 else 2} if "h" in layout else {}),
    }
    front |= {"h": a.heads, "g": a.key_heads} if a.heads > 1 else {}
    for n, m, d_k, d_v in _SIZES:
        # A cache with empty slots has room for the new tokens, and two more.
        yield {**front, "n": n, "m": m + (n + 2) * static, "d_k": d_k, "d_v": d_v}


def _list_mistakes_of_attention(flow: CacheFlow, wrong: WrongAttention) -> Iterator[Mistake]:
    """Yield the mistakes of the attention to the tokens of the cache; of one with empty slots, also to all slots."""
    yield from attending.known_mistakes(wrong)
    # Tiles and parts of all slots are other ones than those of the tokens.
    if flow.static:
        run = partial(partial, _attend_to_slots, flow)
        of_slots = WrongAttention(flow.attention_to_slots, wrong.names | {"mask"}, run)
        yield from (m for m in attending.known_mistakes(of_slots) if m.step != "mask")


def _attend_to_slots(flow: CacheFlow, variant: Variant, /, **inputs: Any) -> Any:
    """Return the run of a definition with a variant of the attention to all slots, of which a mask hides some."""
    new, slots = int(inputs["k"].shape[-2]), int(inputs["k_cache"].shape[-2])
    own = int(inputs["length"]) + np.arange(new)[:, None]
    mask = np.arange(slots)[None, :] <= own

    def compute(_: Attention, arrays: Values) -> Values:
        spec, masked = flow.attention_to_slots, {**arrays, "mask": mask}
        return {"output": variant_values(spec, masked, variant)["output"]}

    return attention_steps.replace_attention(
        flow, compute, {**flow.taken, "k": "k_all", "v": "v_all"}, **inputs
    )


def _list_ways(flow: CacheFlow) -> tuple[Compute, ...]:
    """Return the ways: at once, and key by key with running sums, which are those of a natural softmax."""
    a = flow.attention
    if not a.is_softmax or a.base is not None:
        return (flow.return_run,)
    return flow.return_run, partial(attention_steps.replace_attention, flow, _attend_key_by_key)


def _attend_key_by_key(spec: Attention, arrays: Values) -> Values:
    q, k, v = (arrays[name] for name in "qkv")
    keys = attending.tiles(q, int(k.shape[-2]))
    return {"output": by_tiles(spec, (0, int(q.shape[-2])), keys, q, k, v)}


def _run_of(flow: CacheFlow, layout: Layout, others: tuple[Compute, ...]) -> OutputRun | None:
    """Return the runs of the attention to the tokens of the cache; None if the keys of the cache are rotated."""
    # A run has no rotated keys among its inputs.
    if flow.rotary is not None:
        return None
    attended = partial(_select_tokens, layout)
    return output_run.of_attention(flow.inner, attended, others, attending.tokens_axis(layout))


def _select_tokens(layout: Layout, inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the queries, and the keys and values of all tokens, with the axis of tokens before the columns."""
    rows = {n: attending.ordered(layout, a) for n, a in inputs.items() if n != "length"}
    filled = int(inputs.get("length", rows["k_cache"].shape[-2]))
    pairs = {n: (rows[f"{n}_cache"][..., :filled, :], rows[n]) for n in ("k", "v")}
    return {"q": rows["q"], **{n: np.concatenate(pair, axis=-2) for n, pair in pairs.items()}}


def _make_cached_inner_attention(
    attention: Attention, layout: Layout, static: bool
) -> InnerAttention:
    """Return the attention whose first keys are in the cache, and whose last ones are those of the new tokens."""
    split = partial(_split_into_cache_and_new, attention, layout, static)

    def arrange(inputs: Mapping[str, Array]) -> dict[str, Array] | None:
        queries, keys = (int(inputs[n].shape[-2]) for n in "qk")
        # the last queries alone, if all keys are theirs
        new = queries if queries < keys else queries // 2
        # Some keys must be in the cache, and some new.
        return split(inputs, new) if 0 < new < keys else None

    def arrays_of(inputs: Mapping[str, Array]) -> dict[str, Array] | None:
        # Keys are rotated in the cache, and new ones are not.
        if attention.position is not None:
            return None
        return _select_tokens(layout, inputs)

    def attended(call: Call, inputs: Mapping[str, Array]) -> Array | None:
        queries, keys = (int(inputs[n].shape[-2]) for n in "qk")
        if queries > keys or attention.position is not None:
            return None
        if queries < keys:
            outputs = call(split(inputs, queries))
            if outputs is None:
                return None
            return attending.reshape_as_attended(layout, outputs[0], inputs)
        # The first of as many queries has no cache; it sees one key alone, and so has its value.
        values = (
            np.repeat(inputs["v"], attention.group, axis=-3) if attention.group > 1 else inputs["v"]
        )
        first = np.asarray(values[..., :1, :])
        if queries == 1:
            return first
        # With one query less, the cache holds the first key.
        later = {**inputs, "q": inputs["q"][..., 1:, :]}
        rest = attended(call, later)
        return None if rest is None else np.concatenate([first, rest], axis=-2)

    # New tokens follow those of the cache, however many there are.
    spec = replace(attention, alignment="bottom-right")
    return InnerAttention(
        spec,
        ("q", "k", "v"),
        arrange,
        partial(_largest_score, attention, layout),
        arrays_of=arrays_of,
        attended=attended,
        returned=True,
    )


def _split_into_cache_and_new(
    attention: Attention, layout: Layout, static: bool, inputs: Mapping[str, Array], new: int
) -> dict[str, Array]:
    """Return arrays of an attention as inputs: the last ``new`` tokens, and the keys and values before in caches."""
    queries, keys = (int(inputs[n].shape[-2]) for n in "qk")
    past = keys - new
    arrays = {"q": inputs["q"][..., queries - new :, :]}
    for name in ("k", "v"):
        cache = inputs[name][..., :past, :]
        # A cache with empty slots has some behind the tokens, which no query reads.
        slots = _empty_slots(past, new) * static
        empty = np.zeros((*cache.shape[:-2], slots, cache.shape[-1]))
        arrays |= {
            name: inputs[name][..., past:, :],
            f"{name}_cache": np.concatenate([cache, empty], axis=-2),
        }
    axes = len(attending.axes(attention, layout, "h", "n", "d_k").split())
    return {
        n: attending.ordered(layout, with_leading_axes(axes, a), back=True)
        for n, a in arrays.items()
    }


def _largest_score(attention: Attention, layout: Layout, inputs: Mapping[str, Array]) -> float:
    """Return the largest |s|; with rotated keys in the cache the largest product of norms, which is not below it."""
    arrays = {n: attending.ordered(layout, inputs[n]) for n in ("q", "k", "k_cache")}
    keys = np.concatenate([arrays["k_cache"], arrays["k"]], axis=-2)
    if attention.position is None:
        return measure_largest_score(
            replace(attention, causal=False), {"q": arrays["q"], "k": keys, "v": keys}
        )
    # Rotations leave norms as they are.
    norms = (float(np.linalg.norm(a, axis=-1).max(initial=0.0)) for a in (arrays["q"], keys))
    scale = attention.scale if isinstance(attention.scale, Real) else keys.shape[-1] ** -0.5
    return prod(norms) * abs(float(scale))


def _empty_slots(past: int, new: int) -> int:
    """Return how many empty slots leave ``past`` filled ones: those of the new tokens, and up to two more."""
    # The number of filled slots follows from the sizes, by a rule of steps.
    return next(n for n in range(new, new + 3) if _filled_slots(past + n, new) == past)


def _choose_cache_length(layout: Layout, inputs: Inputs) -> Array:
    """Return how many slots are filled: of those that the new tokens leave, all but up to two."""
    axis = attending.tokens_axis(layout)
    slots = inputs["k_cache"].shape[axis]
    new = inputs["k"].shape[axis]
    return np.asarray(_filled_slots(slots, new), dtype=np.int64)


def _filled_slots(slots: int, new: int) -> int:
    # Up to two more slots stay empty than the new tokens need; every number of filled slots occurs.
    return max(0, slots - new - (-slots) % 3)


def _clear_unfilled_cache_slots(
    layout: Layout, inputs: dict[str, Array], content: float = 0.0
) -> dict[str, Array]:
    """Set the slots that hold no token to zero, or to another content."""
    if "length" not in inputs:
        return inputs
    results = dict(inputs)
    for name in ("k_cache", "v_cache"):
        # A copy, as its slots are changed.
        cache = np.array(inputs[name])
        slots = np.moveaxis(cache, attending.tokens_axis(layout), 0)
        slots[int(inputs["length"]) :] = content
        results[name] = cache
    return results


def _undefined_in_empty_slots(layout: Layout, inputs: dict[str, Array]) -> InputPairs:
    """Yield the inputs with zeros in the slots that hold no token, and with NaN there."""
    if "length" in inputs:
        yield inputs, _clear_unfilled_cache_slots(layout, inputs, np.nan)


def _filled_otherwise(
    layout: Layout, inputs: dict[str, Array]
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield the inputs with an empty cache, and with one that the new tokens just fill."""
    axis = attending.tokens_axis(layout)
    if "length" not in inputs:
        none = {
            n: np.moveaxis(np.moveaxis(inputs[n], axis, 0)[:0], 0, axis)
            for n in ("k_cache", "v_cache")
        }
        yield "a cache of no tokens", {**inputs, **none}
        return
    # Slots that new tokens leave, if they just fill the cache.
    room = inputs["k_cache"].shape[axis] - inputs["k"].shape[axis]
    for words, length in {
        "an empty cache": 0,
        "a cache that the new tokens just fill": room,
    }.items():
        yield (
            words,
            _clear_unfilled_cache_slots(
                layout, {**inputs, "length": np.asarray(length, dtype=np.int64)}
            ),
        )
