"""Projections, heads and values: an array in the place of another, an axis read otherwise, heads shared otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import projections
from symattn.attention.spec import Attention
from symattn.bounds.at import At, Wrong, change, read, several, told
from symattn.bounds.mistake import BARE, Mistake, in_steps
from symattn.bounds.reference import Values
from symattn.verification.rules.operators import one

_ROLES = {"q": "queries", "k": "keys", "v": "values"}


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """From the projections to the output."""
    if "x" in names and not spec.packed and spec.latent is None:
        yield from _projections("y" in names, spec.heads > 1)
        yield told("residual", "the tokens are added to the output", output=lambda at: at.right() + at.values["x"])
        yield in_steps("values", "the tokens are used as values", of="x")
    if spec.heads > 1 and "x" in names and spec.latent is None:
        yield from _split()
    if spec.packed:
        yield from _packed(spec)
    if 1 < spec.key_heads < spec.heads:
        yield from _shared()
    yield from _met(spec)
    if spec.heads > 1 and any(step.name == "attended" for step in spec.pipeline(names)):
        yield from _merged()
    if "w_o" in names:
        yield from _closed()
    yield from _returned(names)


# -- projections -------------------------------------------------------------------------------------------------------
def _projections(streams: bool, heads: bool) -> Iterator[Mistake]:
    def of(words: str, **how: tuple[str, str, str | None]) -> Mistake:
        steps = {role: partial(_projected, *results) for role, results in how.items()}
        return several("project", words, steps)

    def right(role: str) -> str:
        return "x" if role == "q" or not streams else "y"

    for role, by in permutations("qkv", 2):
        yield of(f"{_ROLES[role]} are projected as {_ROLES[by]} are", **{role: (right(role), by, by)})
        if role != "k":  # the bias of the keys moves every score of a row alike
            words = f"the bias of the {_ROLES[by]} is added to the {_ROLES[role]}"
            yield of(words, **{role: (right(role), role, by)})
    words = "queries are used as keys and as values: all three are projected as queries are"
    yield of(words, k=(right("k"), "q", "q"), v=(right("v"), "q", "q"))
    for a, b in (("q", "k"), ("k", "v")):
        words = f"the projections of {_ROLES[a]} and {_ROLES[b]} are exchanged"
        yield of(words, **{a: (right(a), b, b), b: (right(b), a, a)})
    for roles in ("q", "v", "qkv"):
        words = f"the bias of the {_ROLES[roles]}" if len(roles) == 1 else "the biases of queries, keys and values"
        verb = "is" if len(roles) == 1 else "are"
        yield of(f"{words} {verb} left out", **{r: (right(r), r, None) for r in roles})
    if streams:
        for roles, words in (("kv", "keys and values"), ("k", "keys"), ("v", "values")):
            yield of(f"{words} come from the queries' tokens", **{r: ("x", r, r) for r in roles})
        yield of("queries come from the tokens attended to", q=("y", "q", "q"))
    for roles in ("qkv", *"qkv") if heads else ():
        more = "" if len(roles) > 1 else f" of {_ROLES[roles]}"
        words = f"every head has the first head's projection{more}"
        yield several("project", words, {r: lambda at: one(-3, 0, at.right()) for r in roles})
    for roles in ("q", "k", "v", "qk", "kv", "qkv"):
        *most, last = (_ROLES[r] for r in roles)
        words = f"{', '.join(most)} and {last}" if most else last
        transposed = {f"w_{r}": lambda spec, w: w.T for r in roles}
        if not most:
            yield read("project", f"the projection of {words} is transposed", **transposed)
        square = {f"w_{r}": lambda spec, w: w.T if w.shape[0] == w.shape[1] else w for r in roles}
        yield read("project", f"projections of {words} are transposed where they are square", **square)


def _projected(source: str, by: str, bias: str | None, at: At) -> Array:
    """Queries, keys or values: of which tokens, by whose matrix, with whose bias."""
    given = at.values
    if bias != by and f"b_{at.name}" not in given:
        raise KeyError("there is no bias")
    y = projections.project(given[source], given[f"w_{by}"], given.get(f"b_{bias}"))
    return projections.split_heads(y, _heads(at)) if at.spec.heads > 1 else y


def _heads(at: At) -> int:
    return at.spec.heads if at.name == "q" else at.spec.key_heads


# -- how columns are split into heads ----------------------------------------------------------------------------------
def _split() -> Iterator[Mistake]:
    ways: dict[str, Wrong] = {
        f"heads{{}} are split {BARE}": _split_bare,
        "columns{} are dealt to heads in turn, in place of a block for each head": _split_in_turn,
    }
    for words, wrong in ways.items():
        yield several("split", words.format(""), dict.fromkeys("qkv", wrong))
        for r, name in _ROLES.items():
            yield several("split", words.format(f" of {name}"), {r: wrong})


def _whole(at: At) -> Any:
    """Return the projection before it is split."""
    return projections.merge_heads(at.right())


def _split_bare(at: At) -> Any:
    y = _whole(at)
    *batch, n, width = (int(k) for k in y.shape)
    return at.xp.reshape(y, (*batch, _heads(at), n, width // _heads(at)))


def _split_in_turn(at: At) -> Any:
    """Column c belongs to the head c mod h."""
    y = _whole(at)
    *batch, n, width = (int(k) for k in y.shape)
    return at.xp.moveaxis(at.xp.reshape(y, (*batch, n, width // _heads(at), _heads(at))), -1, -3)


def _packed(spec: Attention) -> Iterator[Mistake]:
    for order in map("".join, permutations("qkv")):
        if order != "qkv":
            words = f"the columns of the packed projection are read in the order {', '.join(order)}"
            taken = partial(_in_order, order)
            yield read("split", words, w_in=taken, b_in=taken)
    if spec.heads > 1 and spec.key_heads == spec.heads:
        words = "the packed projection is read head by head: q, k, v of the first head, then of the next"
        yield read("split", words, w_in=_head_by_head, b_in=_head_by_head)


def _in_order(order: str, spec: Attention, w: np.ndarray) -> np.ndarray:
    counts = {"q": spec.heads, "k": spec.key_heads, "v": spec.key_heads}
    each = w.shape[-1] // sum(counts.values())
    starts = dict(zip(order, np.cumsum([0, *(counts[r] for r in order)])[:3] * each, strict=True))
    return np.concatenate([w[..., starts[r] : starts[r] + counts[r] * each] for r in "qkv"], axis=-1)


def _head_by_head(spec: Attention, w: np.ndarray) -> np.ndarray:
    apart = w.reshape(*w.shape[:-1], spec.heads, 3, w.shape[-1] // (3 * spec.heads))
    return np.moveaxis(apart, -2, -3).reshape(w.shape)


# -- which head of keys and values is read -----------------------------------------------------------------------------
def _shared() -> Iterator[Mistake]:
    def reading(words: str, roles: str, heads: Callable[[int, int, int], int]) -> Mistake:
        step = "values" if roles == "v" else "score"
        return several(step, words, {f"{r}_shared": partial(_read, heads) for r in roles})

    def in_turn(t: int, g: int, m: int) -> int:
        return t % g

    words = "heads of keys and values are repeated in turn: query head t reads head t mod kv_heads"
    yield reading(words, "kv", in_turn)
    yield reading("heads of keys are repeated in turn, those of values one after another", "k", in_turn)
    yield reading("heads of values are repeated in turn, those of keys one after another", "v", in_turn)
    for words, heads in _READ.items():
        for roles, noun in (("kv", "keys and values"), ("k", "keys"), ("v", "values")):
            yield reading(words.format(noun), roles, heads)
    yield reading("query head t reads head min(t, kv_heads − 1)", "kv", lambda t, g, m: min(t, g - 1))


#: Which of g heads is read by the query head t, m of which share one.
_READ: dict[str, Callable[[int, int, int], int]] = {
    "the first head of {} is read by all queries": lambda t, g, m: 0,
    "the last head of {} is read by all queries": lambda t, g, m: g - 1,
    "heads of {} are read in the opposite order": lambda t, g, m: g - 1 - t // m,
}


def _read(heads: Callable[[int, int, int], int], at: At) -> Any:
    h, g = at.spec.heads, int(at.first.shape[-3])
    chosen = [heads(t, g, h // g) for t in range(h)]
    return at.xp.concat([at.first[..., c : c + 1, :, :] for c in chosen], axis=-3)


# -- what the weights meet, and how heads are merged -------------------------------------------------------------------
def _met(spec: Attention) -> Iterator[Mistake]:
    for name, words in (("k", "keys"), ("q", "queries")):
        yield in_steps("values", f"{words} are used as values", of=name)
    first = partial(_first_item, 3 + (spec.heads > 1))
    yield in_steps("values", "the first batch item's values are used for every item", of="changed", changed=first)
    if spec.heads > 1:
        words = "heads and batch items are mixed: what lies head by head is read item by item"
        weights = change("weights", lambda at: _across(at.right()))
        yield in_steps("merge", words, of="changed", weights=weights, changed=lambda spec, v: _across(_values(v)))


def _values(values: Values) -> Any:
    return values["v_shared" if "v_shared" in values else "v"]


def _first_item(axes: int, spec: Attention, values: Values) -> Array:
    v = _values(values)
    if len(v.shape) < axes:
        raise KeyError("there is no batch")
    return namespace_of(v).broadcast_to(v[:1, ...], v.shape)


def _across(x: Array) -> Any:
    """Heads and items read in the other order."""
    if len(x.shape) < 4:
        raise KeyError("there is no batch")
    xp = namespace_of(x)
    return xp.reshape(xp.swapaxes(x, -4, -3), x.shape)


def _merged() -> Iterator[Mistake]:
    ways: dict[str, Callable[[Any, Any], Any]] = {
        f"heads are merged {BARE}": lambda xp, a: a,
        "heads are merged in the opposite order": lambda xp, a: projections.merge_heads(xp.flip(a, axis=-3)),
        "columns of heads are interleaved where they are merged": lambda xp, a: xp.moveaxis(a, -3, -1),
        "the mean of the heads is taken in place of each of them":
            lambda xp, a: projections.merge_heads(0 * a + xp.mean(a, axis=-3, keepdims=True)),
    }  # fmt: skip
    for words, way in ways.items():
        yield in_steps("merge", words, output=partial(_laid, way))


def _laid(way: Callable[[Any, Any], Any], spec: Attention, values: Values) -> Array:
    """The output, from numbers of the heads that lie so in memory."""
    a = values["attended"]
    *batch, h, n, d = (int(k) for k in a.shape)
    merged = namespace_of(a).reshape(way(namespace_of(a), a), (*batch, n, h * d))
    return _out(values, merged, values["w_o"]) if "w_o" in values else merged


def _returned(names: frozenset[str]) -> Iterator[Mistake]:
    """Yield mistakes in the output at the very end."""
    transposed = told("output", "the output is returned transposed", output=lambda at: at.right().mT)
    yield replace(transposed, in_floats=True)  # the bound is of the shape that the output should have
    for name, words in (("q", "queries"), ("k", "keys"), ("v", "values")):
        if name in names:
            words = f"the {words} are added to the output, where they have its shape"
            yield told("residual", words, output=partial(_besides, name))


def _besides(name: str, at: At) -> Any:
    result, more = at.right(), at.values[name]
    if tuple(result.shape) != tuple(more.shape):
        raise KeyError("the shapes differ")
    return result + more


def _closed() -> Iterator[Mistake]:
    for words, wrong in _CLOSED.items():
        yield in_steps("output", words, output=partial(_of_merged, wrong))


def _of_merged(wrong: Callable[[Values, Any], Any], spec: Attention, values: Values) -> Any:
    a = values["attended"]
    return wrong(values, projections.merge_heads(a) if spec.heads > 1 else a)


def _out(values: Values, merged: Any, w: Any) -> Array:
    return projections.project(merged, w, values.get("b_o"))


_CLOSED: dict[str, Callable[[Values, Any], Any]] = {
    "the output projection is left out": lambda values, a: a,
    "the bias of the output is left out": lambda values, a: projections.project(a, values["w_o"] + 0 * values["b_o"]),
    "the output projection is transposed": lambda values, a: _out(values, a, values["w_o"].mT),
}
