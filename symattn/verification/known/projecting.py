"""Mistakes in projections, and in how they are split into heads."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import projections
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    BARE,
    Mistake,
    both,
    in_all,
    in_inputs,
    in_steps,
    own,
    several,
    unpacked,
)
from symattn.verification.reference import Values, Variant
from symattn.verification.target import Inputs


def projected(role: str, by: str, spec: Attention, values: Values, split: bool = True) -> Any:
    """q, k or v by the projection of another of them."""
    source = values["y"] if "y" in values and role != "q" else values["x"]
    y = projections.project(source, values[f"w_{by}"], values.get(f"b_{by}"))
    heads = spec.heads if role == "q" else spec.key_heads
    return projections.split_heads(y, heads) if split and spec.heads > 1 else y


def by_other_bias(role: str, by: str | None, spec: Attention, values: Values) -> Any:
    """The right projection with the bias of another one, or none."""
    source = values["y"] if "y" in values and role != "q" else values["x"]
    if f"b_{role}" not in values:
        raise KeyError("there is no bias")
    y = projections.project(source, values[f"w_{role}"], values[f"b_{by}"] if by else None)
    return projections.split_heads(y, spec.heads if role == "q" else spec.key_heads) if spec.heads > 1 else y


def from_other_tokens(role: str, source: str, spec: Attention, values: Values) -> Any:
    """Queries, keys or values from the other stream of tokens."""
    if "y" not in values:
        raise KeyError("there is one stream only")
    y = projections.project(values[source], values[f"w_{role}"], values.get(f"b_{role}"))
    return projections.split_heads(y, spec.heads if role == "q" else spec.key_heads) if spec.heads > 1 else y


def head_zero(role: str, spec: Attention, values: Values) -> Any:
    """Every head with the first one's projection."""
    x = own(spec, values, role)
    return namespace_of(x).broadcast_to(x[..., :1, :, :], x.shape)


def split_bare(role: str, spec: Attention, values: Values) -> Any:
    """Heads as blocks of a reshape alone, their axis not moved."""
    y = projected(role, role, spec, values, split=False)
    *batch, n, width = (int(k) for k in y.shape)
    heads = spec.heads if role == "q" else spec.key_heads
    return namespace_of(y).reshape(y, (*batch, heads, n, width // heads))


def split_interleaved(role: str, spec: Attention, values: Values) -> Any:
    """Columns dealt to the heads in turn: column c belongs to the head c mod h."""
    y = projected(role, role, spec, values, split=False)
    xp, (*batch, n, width) = namespace_of(y), (int(k) for k in y.shape)
    heads = spec.heads if role == "q" else spec.key_heads
    apart = xp.reshape(y, (*batch, n, width // heads, heads))
    return xp.moveaxis(apart, -1, -3)


def packed_by_heads(spec: Attention, inputs: Inputs) -> Inputs:
    """The columns of a packed matrix read as q, k, v of the first head, then of the second, and so on."""
    if spec.key_heads != spec.heads:
        raise KeyError("heads are shared")
    return {**inputs, **{n: _by_heads(spec, np.asarray(inputs[n])) for n in ("w_in", "b_in") if n in inputs}}


def _by_heads(spec: Attention, w: np.ndarray) -> np.ndarray:
    each = w.shape[-1] // (3 * spec.heads)
    apart = w.reshape(*w.shape[:-1], spec.heads, 3, each)
    return np.moveaxis(apart, -2, -3).reshape(w.shape)


def _packed_order(order: str, spec: Attention, w: np.ndarray) -> np.ndarray:
    """Columns in another order than q | k | v, as it reads them."""
    h, g = spec.heads, spec.key_heads
    counts = {"q": h, "k": g, "v": g}
    each = w.shape[-1] // (h + 2 * g)
    starts = dict(zip(order, np.cumsum([0, *(counts[r] for r in order)])[:3] * each, strict=True))
    return np.concatenate([w[..., starts[r] : starts[r] + counts[r] * each] for r in "qkv"], axis=-1)


def _own_heads(spec: Attention) -> bool:
    return spec.heads > 1 and spec.latent is None


def _packed(spec: Attention) -> bool:
    return spec.packed


_ROLES = {"q": "queries", "k": "keys", "v": "values"}


def _square_transposed(spec: Attention, w: np.ndarray) -> np.ndarray:
    """Wᵀ, where it is as wide as W."""
    return w.T if w.shape[0] == w.shape[1] else w


MISTAKES: tuple[Mistake, ...] = (
    in_steps("project", "keys are projected as queries are", unpacked, k=partial(projected, "k", "q")),
    in_steps(
        "project",
        "queries are used as keys and as values: all three are projected as queries are",
        unpacked,
        k=partial(projected, "k", "q"),
        v=partial(projected, "v", "q"),
    ),
    in_steps("project", "keys are projected as values are", unpacked, k=partial(projected, "k", "v")),
    in_steps("project", "values are projected as keys are", unpacked, v=partial(projected, "v", "k")),
    in_steps("project", "values are projected as queries are", unpacked, v=partial(projected, "v", "q")),
    in_steps("project", "queries are projected as keys are", unpacked, q=partial(projected, "q", "k")),
    in_steps("project", "queries are projected as values are", unpacked, q=partial(projected, "q", "v")),
    in_steps(
        "project",
        "the projections of queries and keys are exchanged",
        unpacked,
        q=partial(projected, "q", "k"),
        k=partial(projected, "k", "q"),
    ),
    in_steps(
        "project",
        "the projections of keys and values are exchanged",
        unpacked,
        k=partial(projected, "k", "v"),
        v=partial(projected, "v", "k"),
    ),
    in_steps(
        "project",
        "keys and values come from the queries' tokens",
        unpacked,
        k=partial(from_other_tokens, "k", "x"),
        v=partial(from_other_tokens, "v", "x"),
    ),
    in_steps("project", "keys come from the queries' tokens", unpacked, k=partial(from_other_tokens, "k", "x")),
    in_steps("project", "values come from the queries' tokens", unpacked, v=partial(from_other_tokens, "v", "x")),
    in_steps("project", "queries come from the tokens attended to", unpacked, q=partial(from_other_tokens, "q", "y")),
    *(
        in_all("project", f"the bias of the {_ROLES[r]} is left out", unpacked, {r: partial(by_other_bias, r, None)})
        for r in "qv"  # that of the keys moves every score of a row alike
    ),
    *(
        in_all(
            "project",
            f"the bias of the {_ROLES[b]} is added to the {_ROLES[r]}",
            unpacked,
            {r: partial(by_other_bias, r, b)},
        )
        for r in "qv"
        for b in "qkv"
        if r != b
    ),
    in_all(
        "project",
        "the biases of queries, keys and values are left out",
        unpacked,
        {r: partial(by_other_bias, r, None) for r in "qkv"},
    ),
    in_all(
        "project",
        "every head has the first head's projection",
        both(_own_heads, unpacked),
        {r: partial(head_zero, r) for r in "qkv"},
    ),
    *(
        in_all(
            "project",
            f"every head has the first head's projection of {_ROLES[r]}",
            both(_own_heads, unpacked),
            {r: partial(head_zero, r)},
        )
        for r in "qkv"
    ),
    *(
        in_inputs(
            "split",
            f"the columns of the packed projection are read in the order {', '.join(order)}",
            _packed,
            w_in=partial(_packed_order, order),
            b_in=partial(_packed_order, order),
        )
        for order in ("qvk", "kqv", "kvq", "vqk", "vkq")
    ),
    *(
        in_inputs(
            "project", f"the projection of {_ROLES[r]} is transposed", unpacked, **{f"w_{r}": lambda spec, w: w.T}
        )
        for r in "qkv"
    ),
    in_all("split", f"heads are split {BARE}", _own_heads, {r: partial(split_bare, r) for r in "qkv"}),
    *(
        in_all("split", f"heads of {_ROLES[r]} are split {BARE}", _own_heads, {r: partial(split_bare, r)})
        for r in "qkv"
    ),
    in_all(
        "split",
        "columns are dealt to heads in turn, in place of a block for each head",
        _own_heads,
        {r: partial(split_interleaved, r) for r in "qkv"},
    ),
    *(
        in_all(
            "split",
            f"columns of {_ROLES[r]} are dealt to heads in turn, in place of a block for each head",
            _own_heads,
            {r: partial(split_interleaved, r)},
        )
        for r in "qkv"
    ),
    Mistake(
        "split",
        "the packed projection is read head by head: q, k, v of the first head, then of the next",
        Variant(inputs=packed_by_heads),
        both(_packed, several),
    ),
    *(
        in_inputs(
            "project",
            f"projections of {words} are transposed where they are square",
            unpacked,
            **{f"w_{r}": _square_transposed for r in roles},
        )
        for roles, words in (
            ("q", "queries"),
            ("k", "keys"),
            ("v", "values"),
            ("qk", "queries and keys"),
            ("kv", "keys and values"),
            ("qkv", "queries, keys and values"),
        )
    ),
)
