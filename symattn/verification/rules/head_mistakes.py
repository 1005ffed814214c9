"""Mistakes in projections, heads and values, and in reading an input: a wrong array, a misread axis, a wrong head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from operator import neg
from typing import Any, Literal, NamedTuple

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import projections
from symattn.attention.flow import find_projection
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.spec import Attention
from symattn.bounds.mistake import At, Mistake, Wrong, in_fields, in_inputs, in_place_of, in_steps
from symattn.verification.rules import rotating
from symattn.verification.rules.forbidding import leaving_some_keys
from symattn.verification.rules.operators import one

Layout = Literal["half", "interleaved"]
_BARE = "by a reshape alone, without moving their axis"
_ROLES = {"q": "queries", "k": "keys", "v": "values"}
_UNREQUESTED_HEADS = "the columns are split into {} heads, though --heads is 1"
#: Numbers of heads that a layer may have though its specification says none.
_USUAL_HEADS = (2, 3, 4, 6, 8, 12, 16)


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield mistakes from the projections to the output."""
    if "x" in names and not spec.packed and spec.latent is None:
        yield from _yield_projection_mistakes("y" in names, spec.heads > 1)
    if "x" in names:
        yield in_steps(
            "residual", "the tokens are added to the output", output=partial(_add_other_array, "x")
        )
    if "x" in names and not spec.packed and spec.latent is None:
        yield in_steps("values", "the tokens are used as values", True, "x")
    merged = spec.heads > 1 and "x" in names
    projection = find_projection(spec.pipeline(names))
    # Without tokens there is none, and no mistake below is made in it.
    closing = projection.name if projection is not None else "output"
    if spec.heads > 1 and "x" in names and spec.latent is None:
        for words, wrong in _SPLIT.items():
            yield in_steps("split", words.format(""), **dict.fromkeys("qkv", wrong))
            if merged:  # each undoes the other but for the matrices before and after
                also: dict[str, Wrong] = dict.fromkeys("qkv", wrong) | {
                    closing: partial(_output_merged, _SAME_WAY[words])
                }
                yield in_steps(
                    "split", words.format("") + "; they are merged in the same way", **also
                )
            yield from (
                in_steps("split", words.format(f" of {noun}"), **{r: wrong})
                for r, noun in _ROLES.items()
            )
    if spec.heads == 1 and "x" in names and spec.latent is None:
        yield from (
            in_fields("split", _UNREQUESTED_HEADS.format(heads), heads=heads)
            for heads in _USUAL_HEADS
        )
    if spec.packed:
        yield from _yield_packed_column_mistakes(spec)
    if 1 < spec.key_heads < spec.heads:
        yield from _shared(spec.heads, spec.key_heads)
    yield from _yield_value_mistakes(spec, names)
    if merged:
        yield from (
            in_steps("merge", words, **{closing: partial(_output_merged, way)})
            for words, way in _MERGED.items()
        )
    if "w_o" in names:
        yield from (
            in_steps("output", words, **{closing: wrong}) for words, wrong in _CLOSED.items()
        )
    # the bound has the shape of the right output
    transposed = in_steps(
        "output", "the output is returned transposed", output=lambda at: at.right().mT
    )
    yield replace(transposed, in_floats=True)
    for name, noun in _ROLES.items():
        if name in names:
            words = f"the {noun} are added to the output, where they have its shape"
            yield in_steps("residual", words, output=partial(_add_other_array, name))
    if spec.latent is not None:
        yield from _yield_latent_mistakes(spec)


# -- projections -------------------------------------------------------------------------------------------------------
def _yield_projection_mistakes(streams: bool, heads: bool) -> Iterator[Mistake]:
    def of(words: str, **how: tuple[str, str, str | None]) -> Mistake:
        return in_steps(
            "project",
            words,
            **{role: partial(_project_with_other_role, *choice) for role, choice in how.items()},
        )

    right = {"q": "x", "k": "y" if streams else "x", "v": "y" if streams else "x"}
    for role, by in permutations("qkv", 2):
        yield of(
            f"{_ROLES[role]} are projected as {_ROLES[by]} are", **{role: (right[role], by, by)}
        )
        if role != "k":  # the bias of the keys shifts all scores of a row equally
            words = f"the bias of the {_ROLES[by]} is added to the {_ROLES[role]}"
            yield of(words, **{role: (right[role], role, by)})
    words = "queries are used as keys and as values: all three are projected as queries are"
    yield of(words, k=(right["k"], "q", "q"), v=(right["v"], "q", "q"))
    for a, b in (("q", "k"), ("k", "v")):
        words = f"the projections of {_ROLES[a]} and {_ROLES[b]} are exchanged"
        yield of(words, **{a: (right[a], b, b), b: (right[b], a, a)})
    for roles in ("q", "v", "qkv"):
        words = (
            f"the bias of the {_ROLES[roles]} is"
            if roles in "qv"
            else f"the biases of {_join_role_names(roles)} are"
        )
        yield of(f"{words} left out", **{r: (right[r], r, None) for r in roles})
    for roles in ("kv", "k", "v") if streams else ():
        yield of(
            f"{_join_role_names(roles)} come from the queries' tokens",
            **{r: ("x", r, r) for r in roles},
        )
    if streams:
        yield of("queries come from the tokens attended to", q=("y", "q", "q"))
    for roles in ("qkv", *"qkv") if heads else ():
        words = "every head has the first head's projection" + f" of {_join_role_names(roles)}" * (
            roles != "qkv"
        )
        yield in_steps("project", words, **dict.fromkeys(roles, lambda at: one(-3, 0, at.right())))
    for roles in ("q", "k", "v", "qk", "kv", "qkv"):
        if len(roles) == 1:
            words = f"the projection of {_ROLES[roles]} is transposed"
            yield in_inputs("project", words, **{f"w_{roles}": lambda w: w.mT})
        words = f"projections of {_join_role_names(roles)} are transposed where they are square"
        square: Callable[[np.ndarray], np.ndarray] = lambda w: (  # noqa: E731
            w.mT if w.shape[0] == w.shape[1] else w
        )
        yield in_inputs("project", words, **{f"w_{r}": square for r in roles})


def _join_role_names(roles: str) -> str:
    *most, last = (_ROLES[r] for r in roles)
    return f"{', '.join(most)} and {last}" if most else last


def _project_with_other_role(source: str, by: str, bias: str | None, at: At) -> Array:
    """Return queries, keys or values, from the tokens ``source``, by the matrix and the bias of other roles."""
    values = at.values
    # Where the array has no bias of its own, none can be left out or exchanged.
    if bias != by and f"b_{at.name}" not in values:
        raise KeyError("there is no bias")
    y = projections.project(values[source], values[f"w_{by}"], values.get(f"b_{bias}"))
    return projections.split_heads(y, at.spec.heads_of[at.name]) if at.spec.heads > 1 else y


# -- how columns are split into heads ----------------------------------------------------------------------------------
def _split_heads_wrongly(in_turn: bool, at: At) -> Any:
    """Return heads split as columns lie in memory; or, ``in_turn``, with column c in head c mod h."""
    y = projections.merge_heads(at.right())
    heads = at.spec.heads_of[at.name]
    *batch, n, width = (int(k) for k in y.shape)
    if in_turn:
        return at.xp.moveaxis(at.xp.reshape(y, (*batch, n, width // heads, heads)), -1, -3)
    return at.xp.reshape(y, (*batch, heads, n, width // heads))


_SPLIT: dict[str, Wrong] = {
    f"heads{{}} are split {_BARE}": partial(_split_heads_wrongly, False),
    "columns{} are dealt to heads in turn, in place of a block for each head": partial(
        _split_heads_wrongly, True
    ),
}


def _yield_packed_column_mistakes(spec: Attention) -> Iterator[Mistake]:
    for order in map("".join, permutations("qkv")):
        if order != "qkv":
            words = f"the columns of the packed projection are read in the order {', '.join(order)}"
            yield in_inputs(
                "split", words, **dict.fromkeys(("w_in", "b_in"), partial(_in_order, order, spec))
            )
    # With one key head for each query head, rows of q, k, v may also alternate.
    if spec.heads > 1 and spec.key_heads == spec.heads:
        words = "the packed projection is read head by head: q, k, v of the first head, then of the next"
        yield in_inputs(
            "split", words, **dict.fromkeys(("w_in", "b_in"), partial(_head_by_head, spec))
        )


def _in_order(order: str, spec: Attention, w: np.ndarray) -> np.ndarray:
    counts = spec.heads_of
    each = w.shape[-1] // sum(counts.values())
    heads_before = np.cumsum([0, *(counts[r] for r in order)])[:3]
    starts = dict(zip(order, heads_before * each, strict=True))
    return np.concatenate(
        [w[..., starts[r] : starts[r] + counts[r] * each] for r in "qkv"], axis=-1
    )


def _head_by_head(spec: Attention, w: np.ndarray) -> np.ndarray:
    apart = w.reshape(*w.shape[:-1], spec.heads, 3, w.shape[-1] // (3 * spec.heads))
    return np.moveaxis(apart, -2, -3).reshape(w.shape)


# -- which head of keys and values is read -----------------------------------------------------------------------------
#: Which of g heads the query head t reads, m of which share one: words, the function, and the arrays it applies to.
_READ: dict[str, tuple[Callable[[int, int, int], int], tuple[str, ...]]] = {
    "heads of {} are tiled (repeat), not repeated (repeat_interleave)": (
        lambda t, g, m: t % g,
        ("kv",),
    ),
    "heads of {} are tiled (repeat), those of values repeated (repeat_interleave)": (
        lambda t, g, m: t % g,
        ("k",),
    ),
    "heads of {} are tiled (repeat), those of keys repeated (repeat_interleave)": (
        lambda t, g, m: t % g,
        ("v",),
    ),
    "the first head of {} is read by all queries": (lambda t, g, m: 0, ("kv", "k", "v")),
    "the last head of {} is read by all queries": (lambda t, g, m: g - 1, ("kv", "k", "v")),
    "heads of {} are read in the opposite order": (
        lambda t, g, m: g - 1 - t // m,
        ("kv", "k", "v"),
    ),
    "query head t reads head ⌊t/kv_heads⌋, not ⌊t kv_heads/h⌋": (
        lambda t, g, m: min(t // g, g - 1),
        ("kv",),
    ),
    "query head t reads head min(t, kv_heads − 1)": (lambda t, g, m: min(t, g - 1), ("kv",)),
}


def _shared(h: int, g: int) -> Iterator[Mistake]:
    for words, (heads, of) in _READ.items():
        # A reading that is right for these numbers of heads is no mistake.
        is_wrong = any(heads(t, g, h // g) != t * g // h for t in range(h))
        for roles in of if is_wrong else ():
            # Wrong heads of values alone leave the scores right.
            step = "values" if roles == "v" else "score"
            yield in_steps(
                step,
                words.format(_join_role_names(roles)),
                **{f"{r}_shared": partial(_read_other_key_heads, heads) for r in roles},
            )


def _read_other_key_heads(heads: Callable[[int, int, int], int], at: At) -> Any:
    h = at.spec.heads
    g = int(at.first.shape[-3])
    chosen = [heads(t, g, h // g) for t in range(h)]
    return at.xp.concat([at.first[..., c : c + 1, :, :] for c in chosen], axis=-3)


# -- what weights are multiplied by, and how heads are merged ----------------------------------------------------------
def _yield_value_mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    yield in_steps("values", "keys are used as values", True, "k")
    yield in_steps("values", "queries are used as values", True, "q")
    if {"k", "v"} <= names:
        yield in_place_of("score", "keys and values are exchanged", k="v", v="k")

    def first(at: At) -> Array:
        if len(at.met.shape) < 3 + (spec.heads > 1):
            raise KeyError("there is no batch")
        return namespace_of(at.met).broadcast_to(at.met[:1, ...], at.met.shape)

    yield in_steps(
        "values",
        "the first batch item's values are used for every item",
        True,
        "changed",
        changed=first,
    )
    if spec.heads > 1:
        words = "heads and batch items are mixed: what lies head by head is read item by item"
        weights: Wrong = lambda at: _exchange_heads_and_batch(at.right())  # noqa: E731
        yield in_steps(
            "merge",
            words,
            True,
            "changed",
            weights=weights,
            changed=lambda at: _exchange_heads_and_batch(at.met),
        )


def _exchange_heads_and_batch(x: Array) -> Any:
    """Return an array with heads and items read in the other order."""
    if len(x.shape) < 4:
        raise KeyError("there is no batch")
    xp = namespace_of(x)
    return xp.reshape(xp.swapaxes(x, -4, -3), x.shape)


_Laid = Callable[[Any, Any], Any]
_as_it_is: _Laid = lambda xp, a: a  # noqa: E731
_interleaved: _Laid = lambda xp, a: xp.moveaxis(a, -3, -1)  # noqa: E731
# the merge that undoes a split
_SAME_WAY = dict(zip(_SPLIT, (_as_it_is, _interleaved), strict=True))
#: Wrong orders in memory of the heads' numbers when they are merged.
_MERGED: dict[str, _Laid] = {
    f"heads are merged {_BARE}": _as_it_is,
    "columns of heads are interleaved where they are merged": _interleaved,
}


def _output_merged(way: _Laid, at: At) -> Array:
    """Return the output from heads merged in this ``way``."""
    a = at.first
    *batch, h, n, d = (int(k) for k in a.shape)
    # The merge is a reshape of (b, h, n, d) to (b, n, h d), which a wrong way misreads.
    merged = namespace_of(a).reshape(way(namespace_of(a), a), (*batch, n, h * d))
    return (
        projections.project(merged, at.values["w_o"], at.values.get("b_o"))
        if "w_o" in at.values
        else merged
    )


def _add_other_array(name: str, at: At) -> Any:
    result, more = at.right(), at.values[name]
    if tuple(result.shape) != tuple(more.shape):
        raise KeyError("the shapes differ")
    return result + more


def _heads_merged(at: At) -> Any:
    a = at.first
    return projections.merge_heads(a) if at.spec.heads > 1 else a


_CLOSED: dict[str, Wrong] = {
    "the output projection is left out": _heads_merged,
    "the merged heads are added to the output": lambda at: at.right() + _heads_merged(at),
    "the bias of the output is left out": lambda at: projections.project(
        _heads_merged(at), at.values["w_o"] + 0 * at.values["b_o"]
    ),
    "the output projection is transposed": lambda at: projections.project(
        _heads_merged(at), at.values["w_o"].mT, at.values.get("b_o")
    ),
}


# -- keys and values from latents, with matrices that are not absorbed -------------------------------------------------
def _yield_latent_mistakes(spec: Attention) -> Iterator[Mistake]:
    if isinstance(spec.position, Rotary):
        for role, noun, other in (("k", "keys'", "queries"), ("q", "queries'", "keys")):
            words = f"the {noun} part with positions is not rotated, that of the {other} is"
            yield in_steps("position", words, **{f"{role}_r_rotated": lambda at: at.first * 1})
        layout: Layout = "interleaved" if spec.position.layout == "half" else "half"
        yield in_fields(
            "position", rotating.OTHER_PAIRS[layout], position=replace(spec.position, layout=layout)
        )
    for name, matrix, of in (("c_kv", "w_dkv", "keys and values"), ("c_q", "w_dq", "queries")):
        if spec.latent is not None and spec.latent.norm is not None:
            plain: Any = lambda matrix, at: projections.project(at.first, at.values[matrix])  # noqa: E731
            yield in_steps(
                "norm", f"the latent of {of} is not normalised", **{name: partial(plain, matrix)}
            )
    for step, words, parts in _PARTS:
        yield in_steps(step, words, **parts)
    for (k, v), words in _MADE.items():
        yield in_place_of("project", words, w_uk=k, w_uv=v)
    queries = "w_uq" if spec.latent is not None and spec.latent.queries else "w_q"
    for name in (queries, "w_uk", "w_uv") if spec.heads > 1 else ():
        words = f"columns of {name} are dealt to heads in turn, in place of a block for each head"
        yield in_inputs("split", words, **{name: partial(_deal_columns_to_heads, spec.heads)})


def _zeros_like_right_array(at: At) -> Any:
    return at.right() * 0


def _deal_columns_to_heads(heads: int, w: np.ndarray) -> np.ndarray:
    return np.swapaxes(w.reshape(*w.shape[:-1], -1, heads), -1, -2).reshape(w.shape)


def _select_query_columns(first: bool, at: At) -> Any:
    """Return as many columns of the queries as the keys' shared part has, or the other columns."""
    width = at.size("k_r")
    return at.first[..., :width] if first else at.first[..., width:]


#: Mistakes in the parts of queries and keys with and without positions.
_PARTS: tuple[tuple[str, str, dict[str, Wrong]], ...] = (
    (
        "score",
        "the part with positions is left out: scores are of the parts without alone",
        {"q_r": _zeros_like_right_array},
    ),
    (
        "score",
        "the part without positions is left out: scores are of the parts with positions alone",
        {"q_n": _zeros_like_right_array},
    ),
    (
        "split",
        "the queries' first columns are used as those with positions, not the last",
        {"q_r": partial(_select_query_columns, True), "q_n": partial(_select_query_columns, False)},
    ),
)
#: Wrong matrices of keys and values for the latent.
_MADE = {
    ("w_uv", "w_uk"): "the matrices that compute keys and values from the latent are exchanged",
    ("w_uv", "w_uv"): "keys are computed from the latent with the matrix of the values",
    ("w_uk", "w_uk"): "values are computed from the latent with the matrix of the keys",
}


Change = Callable[[np.ndarray], np.ndarray]


class HeadInput(NamedTuple):
    """An input with heads: the step to blame, the input in words, its axis of heads from the end, and their letter."""

    step: str
    noun: str
    axis: int
    letter: str


def _find_axis_of_heads(shape: str) -> tuple[int, str] | None:
    """Return the axis of heads in a shape of letters, from the end, and its letter; None if it has none.

    >>> _find_axis_of_heads("… (h?) n_q? n_k?"), _find_axis_of_heads("n_b h"), _find_axis_of_heads("d_v")
    ((-3, 'h'), (-1, 'h'), None)
    """
    letters = [axis.strip("()[]?") for axis in shape.split()]
    places = (place for place, letter in enumerate(letters) if letter in ("h", "g"))
    first = next(places, None)
    return None if first is None else (first - len(letters), letters[first])


#: Inputs with heads that causes have a noun for.
NUMBERS = {
    name: HeadInput(row.blames, row.noun, *found)
    for name, row in ARRAYS.items()
    if row.needed and row.noun and (found := _find_axis_of_heads(row.shape)) is not None
}


def of_readings(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield mistakes in the inputs of a specification."""
    for name, step, words, change in _yield_input_reading_changes(spec.counts):
        if name in names:
            mistake = in_inputs(step, words, **{name: change})
            # A changed mask may leave a row without any key, where nothing is defined.
            yield leaving_some_keys(mistake) if name in ("keep", "mask") else mistake
    if spec.mask == "additive":
        words = "the mask given only forbids, where it is below 0: its numbers are not added"
        yield in_inputs(
            "mask", words, mask=lambda a: np.where(a < 0, -np.inf, 0 * np.maximum(a, 0))
        )
    # Beside other masks, the given one may be inverted alone.
    if spec.mask == "boolean" and (
        spec.causal or spec.padding or spec.window is not None or spec.documents
    ):
        yield in_inputs("mask", "the mask given is inverted", mask=np.invert)


def _yield_input_reading_changes(
    counts: Mapping[str, int],
) -> Iterator[tuple[str, str, str, Change]]:
    """Yield an input, the step to blame, the mistake in words, and the change of the input.

    ``counts`` are the numbers of heads by their letters.
    """
    for name, (step, noun, axis, letter) in NUMBERS.items():
        heads = counts[letter]
        reads = _yield_wrong_head_reads(noun, axis, heads) if heads > 1 else ()
        yield from ((name, step, words, change) for words, change in reads)
    for name, noun in (("mask", "the mask given"), ("bias", "the bias")):
        # A transposed mask has the same shape if n_q = n_k.
        yield name, name, f"{noun} is transposed", lambda a: a.mT
        yield name, name, f"{noun} is read from the last key to the first", lambda a: a[..., ::-1]
        yield name, name, f"the first row of {noun} is used for all queries", partial(one, -2, 0)
    for axis, along in ((-1, "key"), (-2, "query")):
        for words, change in _MASKS.items():
            yield (
                "mask",
                "mask",
                f"the mask given is {words.format(along)}",
                partial(_change_along_axis, change, axis),
            )
    yield from _SINGLE


def _change_along_axis(
    change: Callable[[Any, np.ndarray, int], Any], axis: int, a: np.ndarray
) -> Any:
    xp = namespace_of(a)
    return xp.broadcast_to(change(xp, a, axis), a.shape)


_MASKS: dict[str, Callable[[Any, np.ndarray, int], Any]] = {
    "that of the next {}": lambda xp, a, axis: xp.roll(a, -1, axis=axis),
    "that of the {} before": lambda xp, a, axis: xp.roll(a, 1, axis=axis),
    "open wherever it is for some {}": lambda xp, a, axis: xp.max(a, axis=axis, keepdims=True),
    "open only where it is for every {}": lambda xp, a, axis: xp.min(a, axis=axis, keepdims=True),
}
_SINGLE: tuple[tuple[str, str, str, Change], ...] = (
    ("scale", "scale", "the given scale is divided by: its reciprocal is applied", lambda a: 1 / a),
    ("sink", "sink", "the sign of the sink is flipped", neg),
    ("keep", "mask", "the padding mask is inverted: True is read as padding", np.invert),
    ("keep", "mask", "padding is counted at the other end", lambda a: a[..., ::-1]),
    (
        "keep",
        "mask",
        "the padding mask is taken as a length: as many keys as it allows, from the first one on",
        lambda a: np.sort(a, axis=-1)[..., ::-1],
    ),
    (
        "keep",
        "mask",
        "the padding mask is taken as a length: as many keys as it allows, up to the last one",
        np.sort,
    ),
    (
        "keep",
        "mask",
        "the mask is off by one key: it is read one place too far",
        lambda a: np.roll(a, 1, axis=-1),
    ),
    (
        "drop",
        "dropout",
        "what should be kept is dropped: the mask of dropout is inverted",
        np.invert,
    ),
)


# -- a number of another head ------------------------------------------------------------------------------------------
_NEXT = "{the} is that of the next head"
_EACH = 8  # heads up to which each is tried, and each pair
_POOLS: dict[str, Callable[..., np.ndarray]] = {
    "largest": np.max,
    "smallest": np.min,
    "mean": np.mean,
}


def _yield_wrong_head_reads(noun: str, axis: int, heads: int) -> Iterator[tuple[str, Change]]:
    """Yield changes by which heads read the number of another head, or one for all; none without an axis of heads."""

    def read(change: Callable[[np.ndarray], np.ndarray]) -> Change:
        # An input without an axis of heads has one number for all of them.
        return lambda a: change(a) if a.ndim >= -axis and a.shape[axis] == heads else a

    known, bare = {tuple(range(heads))}, noun.removeprefix("the ")
    for words, places in taken(heads):
        if (
            places not in known or words == _NEXT
        ):  # with two heads, the next one is also the other one
            known.add(places)
            yield (
                words.format(the=noun, bare=bare),
                read(partial(np.take, indices=places, axis=axis)),
            )
    for words, pool in _POOLS.items():
        pooled: Any = lambda a, pool=pool: np.broadcast_to(  # noqa: E731
            pool(a, axis=axis, keepdims=True), a.shape
        )
        yield f"the {words} {bare} of all heads is used for each", read(pooled)


def taken(heads: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield words and, for each head, the head whose number it reads; the simplest first."""
    every, each = range(heads), range(min(heads, _EACH))
    yield "{the} is that of another head: heads are in the opposite order", (*every[::-1],)
    yield _NEXT, (*every[1:], 0)
    yield "{the} is that of the head before", (heads - 1, *every[:-1])
    yield "the first head's {bare} is used for all", (0,) * heads
    yield "the last head's {bare} is used for all", (heads - 1,) * heads
    yield from ((f"{{the}} of head {j + 1} is used for all", (j,) * heads) for j in each)
    # The heads may also be read in groups of equal size.
    groups = [(g, heads // g) for g in every[2:] if heads % g == 0]
    for g, more in groups:
        yield f"{{the}} is that of the first head of each {g}", tuple(i // g * g for i in every)
        yield (
            f"{{the}} is that of the last head of each {g}",
            tuple(i // g * g + g - 1 for i in every),
        )
        yield (
            f"{{the}} is one of the first {g} heads', each for {more} in a row",
            tuple(i // more for i in every),
        )
        yield f"{{the}} is one of the first {g} heads', in turn", tuple(i % g for i in every)
    for a, b in combinations(each, 2):
        words = f"{{the}} is that of another head: heads {a + 1} and {b + 1} are exchanged"
        yield words, tuple({a: b, b: a}.get(i, i) for i in every)
    for g, more in groups:
        words = f"{{the}} is that of another head: {more} × {g} heads are transposed"
        yield words, tuple(i % more * g + i // more for i in every)
