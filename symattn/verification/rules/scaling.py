"""Scores scaled otherwise: by a power of a size, or divided by the lengths of queries and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.spec import Attention
from symattn.bounds.mistake import Mistake, before, in_steps, not_scaled, own, root, shape, size, step
from symattn.bounds.reference import Values

Size = Callable[[Attention, Values], int]
#: Powers in quarters, as they are written with a size in place of {}.
_POWERS = {
    -8: "1/{}²", -6: "{}^(−3/2)", -4: "1/{}", -3: "{}^(−3/4)", -2: "1/√{}", -1: "{}^(−1/4)",
    1: "{}^(1/4)", 2: "√{}", 4: "{}", 8: "{}²",
}  # fmt: skip


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield wrong scales: by sizes first, the plainest ones before others; then by lengths."""
    for (symbol, meant), number in _sizes(spec):
        for quarters, written in _POWERS.items():
            if not _right(spec, symbol, quarters):
                more = meant if not_scaled(spec) else _MEANT.get((symbol, quarters), meant)
                verb = "multiplied" if quarters > 0 else "scaled"
                words = f"scores are {verb} by {written.format(symbol)}{more}"
                yield _scaled(words, partial(by_power, number, quarters))
    for role, words in (("q", "query"), ("k", "key")):
        result = f"scores are divided by the length of the {words} vector, ‖{role}‖"
        if spec.score == "dot" and spec.latent is None:
            yield _by_length(result + _NOT * (spec.scale is None), role, False)
            if spec.scale != 1:
                yield _by_length(f"{result} besides", role, True)


_NOT = ", not by √d_k"


def _scaled(words: str, change: Callable[[Attention, Values], Any]) -> Mistake:
    return in_steps("scale", words, scaled=change)


def _by_length(words: str, role: str, besides: bool) -> Mistake:
    """Judged in float64: a vector of zeros leaves its scores undefined."""
    return replace(_scaled(words, partial(by_length, role, besides)), in_floats=True)


def _right(spec: Attention, symbol: str, quarters: int) -> bool:
    """Return whether that is the scale asked for, or the default one in place of it, which has words of its own."""
    if not_scaled(spec):
        return False
    return symbol == "d_k" and (quarters == -2 or (quarters == -4 and spec.scale == "1/d_k"))


_MEANT = {
    ("d_k", -4): " (as by 1/√d_k twice)",
    ("d_k", -1): ": the scale is in one of queries and keys alone",
}


def _sizes(spec: Attention) -> Iterator[tuple[tuple[str, str], Size]]:
    """Sizes as they are written, what they mean where that needs saying, and how to get them."""
    yield ("d_k", ""), lambda s, v: size(v, "q")
    yield ("d_v", ""), lambda s, v: size(v, "v")
    yield ("n_k", ""), lambda s, v: shape(v)[-1]
    yield ("n_q", ""), lambda s, v: size(v, "q", -2)
    yield ("(d_k + 1)", ""), lambda s, v: size(v, "q") + 1
    if spec.heads > 1:
        yield ("d_model", ""), lambda s, v: size(v, "x") if "x" in v else s.heads * size(v, "q")
        yield ("h", ", by the number of heads"), lambda s, v: s.heads
    if 1 < spec.key_heads < spec.heads:
        yield ("(d_k h_kv)", ", the width of all heads of keys"), lambda s, v: s.key_heads * size(v, "q")
    if spec.latent is not None:
        yield ("d_n", ", d_n the columns without positions"), lambda s, v: size(v, "q_n")
        yield ("d_r", ", d_r the columns with positions"), lambda s, v: size(v, "q_r")
        yield ("(d_c + d_r)", ", d_c the width of the latent"), lambda s, v: size(v, "c_kv") + size(v, "q_r")
    if getattr(spec.position, "width", None):
        yield ("r", ", r the columns that are rotated"), lambda s, v: int(getattr(s.position, "width", 1))


def by_power(number: Size, quarters: int, spec: Attention, values: Values) -> Any:
    """S n^{p/4}."""
    s = before(spec, values, "scaled")
    fourth = namespace_of(s).sqrt(root(s, number(spec, values)))
    for _ in range(abs(quarters)):
        s = s * fourth if quarters > 0 else s / fourth
    return s


def by_length(role: str, besides: bool, spec: Attention, values: Values) -> Any:
    """S / ‖q‖ or S / ‖k‖ for the vectors that the scores are made of; undefined where one is 0."""
    s = own(spec, values, "scaled") if besides else before(spec, values, "scaled")
    x = values[step(spec, values, "scores").of[0 if role == "q" else 1]]
    xp = namespace_of(x)
    length = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    return s / (length if role == "q" else length.mT)
