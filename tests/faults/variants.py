"""Programs of variants of attention with an axis of heads: right ones, and wrong ones with one mistake each.

``run`` is a plain program in NumPy whose every choice is an argument; a wrong program makes one other choice.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from symattn import Attention
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary

Array = Any


def softmax(s: Array, sink: Array | None = None) -> Array:
    m = s.max(axis=-1, keepdims=True) if sink is None else np.maximum(s.max(axis=-1, keepdims=True), sink)
    e = np.exp(s - m)
    total = e.sum(axis=-1, keepdims=True)
    return e / (total if sink is None else total + np.exp(sink - m))


def rotated(x: Array, start: int, layout: str = "half", base: float = 10000.0) -> Array:
    d = x.shape[-1]
    angles = (np.arange(x.shape[-2]) + start)[:, None] * base ** (-np.arange(0, d, 2) / d)
    cos, sin = (t.astype(x.dtype) for t in (np.cos(angles), np.sin(angles)))
    if layout == "half":
        a, b = x[..., : d // 2], x[..., d // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    a, b = x[..., ::2], x[..., 1::2]
    return np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


def normed(x: Array, axis: int = -1, eps: float = 1e-6) -> Array:
    return x / np.sqrt((x * x).mean(axis=axis, keepdims=True) + np.asarray(eps, x.dtype))


def bucket(ahead: Array, number: int = 32, far: int = 128, shift: int = 0, last: int = 0) -> Array:
    """T5's buckets, both directions; ``shift`` moves the first far one, ``last`` is added to distances."""
    half = number // 2
    side, n = np.where(ahead > 0, half, 0), np.abs(ahead) + last
    exact = half // 2 + shift
    with np.errstate(divide="ignore"):
        wide = exact + (np.log(np.maximum(n, 1) / exact) / np.log(far / exact) * (half - exact)).astype(int)
    return side + np.where(n < exact, n, np.minimum(wide, half - 1))


def grid(s: Array) -> tuple[Array, Array]:
    """j, and the query's place among the keys."""
    n_q, n_k = s.shape[-2:]
    return np.arange(n_k), np.arange(n_q)[:, None] + n_k - n_q


@dataclass(frozen=True)
class Choices:
    """What a program does. The defaults are those of plain attention."""

    share: Callable[[Array, int], Array] = lambda x, r: np.repeat(x, r, axis=-3)
    prepare: Callable[[Array, Array], tuple[Array, Array]] = lambda q, k: (q, k)
    change: Callable[..., Array] = lambda s, given: s
    open_: Callable[..., Array] = lambda j, i, given: np.ones((len(i), len(j)), dtype=bool)
    before: Callable[..., Array] = lambda s, given: s
    after: Callable[..., Array] = lambda s, given: s
    sink: Callable[..., Array | None] = lambda given: None
    value: float = 0.0


def run(choices: Choices, q: Array, k: Array, v: Array, **given: Array) -> Array:
    """Attention in steps."""
    times = q.shape[-3] // k.shape[-3]
    k, v = choices.share(k, times), choices.share(v, times)
    q, k = choices.prepare(q, k)
    s = choices.before(q @ k.swapaxes(-1, -2), given) / np.sqrt(np.asarray(q.shape[-1], q.dtype))
    s = choices.change(s, given).astype(q.dtype)
    open_ = choices.open_(*grid(s), given)
    s = choices.after(np.where(open_, s, np.asarray(-np.inf, s.dtype)), given)
    weights = softmax(s, choices.sink(given))
    return weights @ v + np.asarray(choices.value, q.dtype) * (1 - weights.sum(axis=-1, keepdims=True))


def _products(q: Array, k: Array) -> Array:
    """Dot products by group; NumPy has no einsum for bfloat16."""
    return np.asarray(q @ k.swapaxes(-1, -2)).astype(q.dtype)


def tiled(choices: Choices, q: Array, k: Array, v: Array, width: int = 3, **given: Array) -> Array:
    """The same with the online softmax in tiles, and heads of queries in groups in the place of copies."""
    h, g = q.shape[-3], k.shape[-3]
    k, v = choices.share(k, h // g), choices.share(v, h // g)
    q, k = choices.prepare(q, k)
    s = choices.before(_products(q, k), given) * np.asarray(q.shape[-1] ** -0.5, q.dtype)
    s = choices.change(s, given).astype(q.dtype)
    s = choices.after(np.where(choices.open_(*grid(s), given), s, np.asarray(-np.inf, s.dtype)), given)
    sink = choices.sink(given)
    low = np.asarray(ml_dtypes.finfo(q.dtype).min / 2, q.dtype)
    m = np.full((*s.shape[:-1], 1), low, q.dtype) if sink is None else np.broadcast_to(sink, (*s.shape[:-1], 1))
    total = np.zeros_like(m) if sink is None else np.ones_like(m)
    out = np.zeros((*s.shape[:-1], v.shape[-1]), q.dtype)
    for start in range(0, s.shape[-1], width):
        tile = s[..., start : start + width]
        grown = np.maximum(m, tile.max(axis=-1, keepdims=True))
        e, shrink = np.exp(tile - grown), np.exp(m - grown)
        total, out = total * shrink + e.sum(axis=-1, keepdims=True), out * shrink + e @ v[..., start : start + width, :]
        m = grown
    return out / total


def _causal(j: Array, i: Array, given: Any) -> Array:
    return j <= i


def _near(before: int, after: int, j: Array, i: Array, given: Any) -> Array:
    return (j >= i - before) & (j <= i + after)


def _prefix(length: int, j: Array, i: Array, given: Any) -> Array:
    return (j < length) | (j <= i)


def _documents(j: Array, i: Array, given: Any) -> Array:
    return given["doc"][:, None] == given["doc"][None, :]


def _cap(c: float, s: Array, given: Any) -> Array:
    c = np.asarray(c, s.dtype)
    return c * np.tanh(s / c)


def _turn(query: int, layout: str, q: Array, k: Array) -> tuple[Array, Array]:
    return rotated(q, k.shape[-2] - q.shape[-2] + query, layout), rotated(k, 0, layout)


def _norms(axis: int, q: Array, k: Array) -> tuple[Array, Array]:
    return normed(q, axis), normed(k, axis)


def _slopes(order: int, sign: int, s: Array, given: Any) -> Array:
    j, i = grid(s)
    return s - given["slopes"][::order, None, None] * (i - j).astype(s.dtype) * sign


def _buckets(shift: int, last: int, s: Array, given: Any) -> Array:
    j, i = grid(s)
    return s + given["b_rel"].T[:, bucket(j - i, shift=shift, last=last)]


def _added(s: Array, given: Any) -> Array:
    return s + given["bias"]


def _sink(given: Any) -> Array:
    return given["sink"][:, None, None]


def _program(names: str, choices: Choices, how: Callable[..., Array] = run) -> Callable[..., Array]:
    """A function with the parameters that the inputs have."""
    scope: dict[str, Any] = {"how": partial(how, choices)}
    extra = "".join(f", {n}" for n in names.split())
    passed = "".join(f", {n}={n}" for n in names.split())
    exec(f"def program(q, k, v{extra}):\n    return how(q, k, v{passed})", scope)
    found: Callable[..., Array] = scope["program"]
    return found


@dataclass(frozen=True)
class Variant:
    """A specification, what is right, what is wrong (name → cause, other choices), and the inputs beside q, k, v."""

    spec: Attention
    right: Choices
    wrong: dict[str, tuple[str | None, dict[str, Any]]]
    names: str = ""

    def programs(self) -> tuple[Callable[..., Array], Callable[..., Array]]:
        """The right program, and the one in tiles."""
        return _program(self.names, self.right), _program(self.names, self.right, tiled)

    def mistaken(self, name: str) -> Callable[..., Array]:
        """A wrong program."""
        return _program(self.names, replace(self.right, **self.wrong[name][1]))


PLAIN = Choices()
VARIANTS: dict[str, Variant] = {
    "groups": Variant(Attention(heads=4, kv_heads=2), PLAIN, {
        "tiled heads": ("heads of keys and values are repeated in turn: query head t reads head t mod kv_heads",
            {"share": lambda x, r: np.tile(x, (r, 1, 1))}),
        "first head for all": ("the first head of keys and values is read by all queries",
            {"share": lambda x, r: np.repeat(x[:1], r * len(x), axis=0)}),
    }),
    "window": Variant(Attention(heads=2, window=(2, 1)), Choices(open_=partial(_near, 2, 1)), {
        "left + 1": ("the window is one key too long, before the query", {"open_": partial(_near, 3, 1)}),
        "left - 1": ("the window is one key too short, before the query", {"open_": partial(_near, 1, 1)}),
        "right + 1": ("the window is one key too long, after the query", {"open_": partial(_near, 2, 2)}),
        "right - 1": ("the window is one key too short, after the query; or the window is also causal: a query sees "
            "no later key", {"open_": partial(_near, 2, 0)}),
    }),
    "causal window": Variant(Attention(heads=2, causal=True, window=3), Choices(open_=partial(_near, 2, 0)), {
        "one more": ("the window is one key too long, before the query", {"open_": partial(_near, 3, 0)}),
    }),
    "prefix": Variant(Attention(heads=2, causal=True, prefix=3), Choices(open_=partial(_prefix, 3)), {
        "one more": ("the prefix is one key too long", {"open_": partial(_prefix, 4)}),
        "one less": ("the prefix is one key too short", {"open_": partial(_prefix, 2)}),
    }),
    "documents": Variant(Attention(heads=2, documents=True), Choices(open_=_documents), {
        "leak": ("the documents are ignored", {"open_": PLAIN.open_}),
    }, "doc"),
    "cap": Variant(Attention(heads=2, causal=True, softcap=5), Choices(change=partial(_cap, 5), open_=_causal), {
        "dropped": ("the cap is left out", {"change": PLAIN.change}),
        "after the mask": ("the cap comes after the mask: forbidden scores become −c, which leaves them a weight",
            {"change": PLAIN.change, "after": partial(_cap, 5)}),
        "before the scale": ("the cap comes before the scale", {"change": PLAIN.change, "before": partial(_cap, 5)}),
    }),
    "sink": Variant(Attention(heads=2, sink="given"), Choices(sink=_sink), {
        "dropped": ("the sink is left out", {"sink": PLAIN.sink}),
        "with a value": (None, {"value": 1.0}),
        "of the other head": ("the sink is that of another head: heads are in the opposite order; or the sink is that "
            "of the next head", {"sink": lambda given: given["sink"][::-1, None, None]}),
    }, "sink"),
    "bias": Variant(Attention(heads=2, bias=True), Choices(change=_added), {
        "before the scale": ("the bias comes before the scale, and is scaled too",
            {"change": PLAIN.change, "before": _added}),
        "dropped": ("the bias is left out", {"change": PLAIN.change}),
    }, "bias"),
    "rotary": Variant(Attention(heads=2, causal=True, position=Rotary()),
        Choices(prepare=partial(_turn, 0, "half"), open_=_causal), {
        "other layout": ("neighbouring columns 2l and 2l + 1 are rotated together, not column l with l + r/2",
            {"prepare": partial(_turn, 0, "interleaved")}),
        "one place on": ("queries are one position too far from the keys", {"prepare": partial(_turn, 1, "half")}),
        "left out": ("positions are left out", {"prepare": PLAIN.prepare}),
    }),
    "norm": Variant(Attention(heads=2, qk_norm="rms", eps=1e-6), Choices(prepare=partial(_norms, -1)), {
        "over the tokens": ("mean and variance are taken over the tokens", {"prepare": partial(_norms, -2)}),
        "left out": ("queries and keys are not normalised", {"prepare": PLAIN.prepare}),
    }),
    "slopes": Variant(Attention(heads=4, causal=True, position=Alibi(slopes="given")),
        Choices(change=partial(_slopes, 1, 1), open_=_causal), {
        "of another head": ("the slope is that of another head: heads are in the opposite order",
            {"change": partial(_slopes, -1, 1)}),
        "of the other sign": ("the sign of the linear bias is flipped: far keys are favoured",
            {"change": partial(_slopes, 1, -1)}),
    }, "slopes"),
    "buckets": Variant(Attention(heads=2, scale=None, position=Buckets()), Choices(change=partial(_buckets, 0, 0)), {
        "a boundary": ("the first wide bucket begins 1 later", {"change": partial(_buckets, 1, 0)}),
        "a distance": (None, {"change": partial(_buckets, 0, 1)}),
    }, "b_rel"),
}  # fmt: skip
