"""``Cached``: attention of new tokens to a cache and to one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from numbers import Real
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.fields import brief, refusal
from symattn.attention.inputs import needed
from symattn.attention.positions import position_fields, rotary
from symattn.attention.spec import Attention
from symattn.attention.streaming.by_tiles import by_tiles
from symattn.bounds.called_target import Inputs, Layout
from symattn.bounds.inputs import measure_largest_score
from symattn.bounds.mistake import Compute, Mistake
from symattn.bounds.reference import RIGHT, Variant, variant_values
from symattn.document import codec, errors, keywords
from symattn.verification.definitions import attending, output_run
from symattn.verification.definitions.definition_mistakes import Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import (
    Call,
    InnerAttention,
    WrongAttention,
    with_leading_axes,
)
from symattn.verification.definitions.output_run import OutputRun
from symattn.verification.input_source import Array, InputPairs
from symattn.verification.rules import rotating

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
        # Code caches what it has normalised, and would be accused of not doing it again.
        if self.attention.qk_norm is not None or self.attention.value_norm is not None:
            raise errors.InputError(
                "Cached: a cache holds what is normalised; hint: give the normalised arrays, without "
                "qk_norm and value_norm"
            )
        beside = needed(self.attention, "qkv")
        if beside:
            raise errors.InputError(
                f"Cached: takes q, k, v and caches; it has no place for {', '.join(beside)}"
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
    a, plain = spec.attention, _to_all(spec)
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

    def laid(run: Compute) -> Compute:
        # A function may return the output alone.
        taken: Compute = lambda **inputs: run(**inputs)[: 3 if returned else 1]  # noqa: E731
        return attending.in_order(layout, ("q", "k", "v", "k_cache", "v_cache"), taken)

    def made(variant: Variant) -> Compute:
        return laid(partial(_attend_with_cache, spec, variant=variant))

    caches_alone = attending.in_order(
        layout,
        ("q", "k", "v", "k_cache", "v_cache"),
        partial(_attend_with_cache, spec, attends=False),
    )
    wrong = WrongAttention(plain, frozenset(("q", "k", "v", "mask")), made)

    front = {
        **({"b": 2} if "b" in layout else {}),
        **({"h": a.heads if a.heads > 1 else 2} if "h" in layout else {}),
    }
    front |= {"h": a.heads, "g": a.key_heads} if a.heads > 1 else {}
    sizes = tuple(
        # A cache with empty slots has room for the new tokens, and two more.
        {**front, "n": n, "m": m + (n + 2) * static, "d_k": d_k, "d_v": d_v}
        for n, m, d_k, d_v in _SIZES
    )
    return Definition(
        title=f"Cached({codec.called(a)})",
        step="cache",
        inputs=tuple(arrays),
        outputs=("output", "k_cache", "v_cache") if returned else ("output",),
        ways=tuple(
            laid(partial(_attend_with_cache, spec, keywise=keywise))
            # Running sums are those of a natural softmax.
            for keywise in ((False, True) if a.is_softmax and a.base is None else (False,))
        ),
        mistakes=tuple(
            Mistake(s, c, laid(partial(_attend_with_cache, spec, **how)))
            for s, c, how in _yield_cache_mistakes(spec, static)
        ),
        # The mistakes of the attention to all slots, except those of masks and positions.
        others=Later(lambda: (m for m in attending.known_mistakes(wrong) if m.step != "mask")),
        numbered=tuple(attending.by_number(plain, made)),
        shapes=sizes,
        settings=attending.settings(a),
        kept=frozenset("hg") if a.heads > 1 else frozenset(),
        changes=frozenset(("k_cache", "v_cache")),
        finish=partial(_clear_unfilled_cache_slots, layout) if static else lambda inputs: inputs,
        empties=partial(_filled_otherwise, layout),
        undefined=partial(_undefined_in_empty_slots, layout) if static else None,
        leak="NaN in an empty slot of the cache reaches the output",
        admits=lambda inputs, result: not static or result["m"] >= result["n"],
        means={"m": ("n_k", 1)},
        whole=("q", "k k_cache"),
        inner=replace(_make_cached_inner_attention(a, layout, static), wrong=wrong),
        output_run=_run_of(spec, layout, (caches_alone,) if returned else ()),
    )


def _run_of(spec: Cached, layout: Layout, others: tuple[Compute, ...]) -> OutputRun | None:
    """Return the runs of the attention to all slots of the cache; None if the keys of the cache are rotated."""
    # A run has no rotated keys among its inputs.
    if spec.attention.position is not None:
        return None

    def attended(inputs: Inputs) -> dict[str, np.ndarray]:
        rows = {n: attending.ordered(layout, a) for n, a in inputs.items() if n != "length"}
        new, slots = (int(rows[name].shape[-2]) for name in ("k", "k_cache"))
        filled = int(inputs["length"]) if "length" in inputs else slots
        arrays = {"q": rows["q"]}
        for name in ("k", "v"):
            cache = rows[f"{name}_cache"]
            parts = [cache[..., :filled, :], rows[name], cache[..., filled + new :, :]]
            arrays[name] = np.concatenate(parts, axis=-2)
        i = np.arange(new)[:, None]
        j = np.arange(arrays["k"].shape[-2])[None, :]
        return {**arrays, "mask": _is_visible_after_cache(i, j, filled, new)}

    return output_run.of_attention(_to_all(spec), attended, others, attending.tokens_axis(layout))


def _make_cached_inner_attention(
    attention: Attention, layout: Layout, static: bool
) -> InnerAttention:
    """Return the attention whose first keys are in the cache, and whose last ones are those of the new tokens."""
    axes = len(attending.axes(attention, layout, "h", "n", "d_k").split())

    def split(inputs: Mapping[str, Array], new: int) -> dict[str, Array]:
        queries, keys = (int(inputs[n].shape[-2]) for n in "qk")
        past = keys - new
        arrays = {"q": inputs["q"][..., queries - new :, :]}
        for name in ("k", "v"):
            cache = inputs[name][..., :past, :]
            slots = _empty_slots(past, new) * static
            empty = np.zeros((*cache.shape[:-2], slots, cache.shape[-1]))
            arrays |= {
                name: inputs[name][..., past:, :],
                f"{name}_cache": np.concatenate([cache, empty], axis=-2),
            }
        return {
            n: attending.ordered(layout, with_leading_axes(axes, a), back=True)
            for n, a in arrays.items()
        }

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
        rows = {n: attending.ordered(layout, a) for n, a in inputs.items() if n != "length"}
        filled = int(inputs.get("length", rows["k_cache"].shape[-2]))
        pairs = {n: (rows[f"{n}_cache"][..., :filled, :], rows[n]) for n in ("k", "v")}
        return {"q": rows["q"], **{n: np.concatenate(pair, axis=-2) for n, pair in pairs.items()}}

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


Mask = Callable[[Array, Array, int, int], Array]


def _is_visible_after_cache(i: Array, j: Array, length: int, new: int) -> Array:
    """Return whether the new token i sees key j."""
    return j <= length + i


def _attend_with_cache(
    spec: Cached,
    q: Any,
    k: Any,
    v: Any,
    k_cache: Any,
    v_cache: Any,
    length: Any = None,
    *,
    keywise: bool = False,
    mask: Mask = _is_visible_after_cache,
    start: Callable[[int], int] = lambda length: length,
    at: Callable[[int], int] = lambda length: length,
    new_first: bool = False,
    forget: bool = False,
    lost: bool = False,
    again: bool = False,
    unread: bool = False,
    of: str = "qkv",
    variant: Variant = RIGHT,
    attends: bool = True,
) -> tuple[Any, ...]:
    """Return the output and both caches: tokens rotated from position ``start``, written at slot ``at``.

    ``mask`` says which keys are seen. ``lost``: caches are returned as given; ``again``: keys of the cache are rotated
    again when read. ``of`` says to what ``start``, and to which caches ``lost``, ``at`` and ``new_first`` apply;
    ``unread``: these apply to the returned caches alone. ``variant`` is the attention's. Unless it ``attends``, the
    caches alone are returned.
    """
    xp = namespace_of(q)
    a = spec.attention
    n = int(k.shape[-2])
    # Without a length the whole cache is filled.
    filled = int(k_cache.shape[-2]) if length is None else int(length)
    if isinstance(a.position, position_fields.Rotary):
        places = {x: start(filled) if x in of else filled for x in "qk"}
        tables = {
            place: rotating.tables_of(a.position, place + np.arange(n), q)
            for place in {*places.values()}
        }
        q, k = (
            rotary.rotate(x, *tables[places[name]], a.position.layout)
            for name, x in (("q", q), ("k", k))
        )

    def written(name: str, cache: Any, new: Any, wrong: bool = True) -> Any:
        wrong = wrong and name in of
        slot = at(filled) if wrong else filled
        if length is None:
            # A negative slot would count from the end.
            before = cache[..., : max(slot, 0), :]
            return xp.concat([new, cache] if new_first and wrong else [before, new], axis=-2)
        # Slots outside the cache have no meaning, and code differs there.
        if slot < 0 or slot + n > cache.shape[-2]:
            raise errors.InputError(f"{n} tokens at the slot {slot} of {cache.shape[-2]}")
        return xp.concat([cache[..., :slot, :], new, cache[..., slot + n :, :]], axis=-2)

    k_all, v_all = written("k", k_cache, k), written("v", v_cache, v)
    back = k_cache if lost and "k" in of else k_all, v_cache if lost and "v" in of else v_all
    if not attends:
        return back
    if unread:
        k_all, v_all = written("k", k_cache, k, False), written("v", v_cache, v, False)
    k_read = written("k", _rotated_again(spec, k_cache), k) if again else k_all
    # A mistake may cut the cache before it appends, so what is there counts.
    filled = filled if length is not None else int(k_all.shape[-2]) - n
    i = np.arange(n)[:, None]
    j = np.arange(int(k_all.shape[-2]))[None, :]
    visible = np.asarray(mask(i, j, filled, n)) & (j >= (filled if forget else 0))
    plain = _to_all(spec)
    if keywise:
        keys = attending.tiles(q, int(k_all.shape[-2]))
        return by_tiles(plain, (0, n), keys, q, k_read, v_all, mask=visible), *back
    values = variant_values(plain, {"q": q, "k": k_read, "v": v_all, "mask": visible}, variant)
    return values["output"], *back


def _rotated_again(spec: Cached, k_cache: Any) -> Any:
    """Return the keys of the cache, rotated by their slots. Raises ``KeyError`` if there is no rotation."""
    position = spec.attention.position
    if not isinstance(position, position_fields.Rotary):
        raise KeyError("there is no rotation")
    cos, sin = rotating.tables_of(position, np.arange(int(k_cache.shape[-2])), k_cache)
    return rotary.rotate(k_cache, cos, sin, position.layout)


#: Which keys j a new token i of n sees, after ``length`` keys in the cache.
_MASKS: dict[str, Mask] = {
    "the causal mask is aligned top-left: new tokens see the first keys": lambda i, j, length, n: (
        j <= i
    ),
    "new tokens see those after them": lambda i, j, length, n: j < length + n,
    "the causal mask is off by one: a new token does not see itself": lambda i, j, length, n: (
        j < length + i
    ),
    "the new tokens are not seen: the length is that before them": lambda i, j, length, n: (
        j < length
    ),
}


def _whole_page(size: int, i: Array, j: Array, length: int, n: int) -> Array:
    end = length + n
    end_of_page = -(-end // size) * size
    return (j <= length + i) | (j >= end) & (j < end_of_page)


#: The same, for caches with empty slots.
_STATIC: dict[str, Mask] = {
    "empty slots of the cache are attended to": lambda i, j, length, n: (
        (j <= length + i) | (j >= length + n)
    ),
    "every slot is attended to, empty ones and later tokens too": lambda i, j, length, n: (
        j >= 0 * i
    ),
    "one slot too many is attended to": lambda i, j, length, n: j <= length + i + 1,
    **{
        f"all slots of the last page of {size} are attended to, empty ones too": partial(
            _whole_page, size
        )
        for size in (2, 4, 8, 16, 32, 64)
    },
}
_STARTS: dict[str, Callable[[int], int]] = {
    "new tokens are rotated as if the cache were empty, from position 0": lambda length: 0,
    "positions of the new tokens are one too large": lambda length: length + 1,
    "positions of the new tokens are one too small": lambda length: length - 1,
}
_SLOTS: dict[str, Callable[[int], int]] = {
    "are written one slot too late": lambda length: length + 1,
    "are written one slot too early, over the last one": lambda length: length - 1,
    "are written at the beginning of the cache": lambda length: 0,
}


def _to_all(spec: Cached) -> Attention:
    """Return the attention to all slots of the cache, with a mask.

    It is stored with the description, of which a search for causes runs hundreds of ways.
    """
    stored: dict[str, Attention] = spec.__dict__
    if "_to_all" not in stored:
        stored["_to_all"] = replace(spec.attention, causal=False, position=None, mask="boolean")
    return stored["_to_all"]


def _yield_cache_mistakes(spec: Cached, static: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the step, the cause, and the changed arguments of ``_attend_with_cache``."""
    for cause, mask in (_MASKS | _STATIC if static else _MASKS).items():
        yield "mask", cause, {"mask": mask}
    yield "cache", "the cache is not attended to, only the new tokens", {"forget": True}
    for of, new in {"kv": "new tokens", "k": "new keys", "v": "new values"}.items():
        # Without empty slots there is none after the end to write to.
        slots = {words: slot for words, slot in _SLOTS.items() if static or slot(1) <= 1}
        wrong: dict[str, dict[str, Any]] = {
            f"{new} {words}": {"at": slot, "of": of} for words, slot in slots.items()
        }
        if not static:
            wrong[f"{new} are put before the cache, not behind it"] = {"new_first": True, "of": of}
        for words, how in wrong.items():
            yield "cache", words, how
            yield "cache", f"{words}, in what is returned alone", {**how, "unread": True}
        yield (
            "cache",
            f"the cache is returned unchanged, without the {new}",
            {"lost": True, "of": of},
        )
    if spec.attention.position is not None:
        for cause, start in _STARTS.items():
            for of, new in {"qk": "new tokens", "q": "new queries", "k": "new keys"}.items():
                yield "position", cause.replace("new tokens", new), {"start": start, "of": of}
        yield (
            "position",
            "the cache's keys, rotated when they were written, are rotated again",
            {"again": True},
        )
