"""Mistakes in scores: other arrays or fewer columns multiplied, a part of a cosine or a distance; scaled by powers of
sizes, or divided by the lengths of queries and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import ceil, floor, sqrt
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import norms, scores
from symattn.attention.spec import Attention
from symattn.bounds.mistake import At, Mistake, Wrong, in_steps, not_scaled, root, step, where_scaled


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in the score of a specification."""
    rows = {"cosine": _COSINES, "distance": _DISTANCES}.get(spec.score, {})
    for words, wrong in (_PRODUCTS | rows if spec.score == "dot" else rows).items():
        yield in_steps("score", words, scores=wrong)
    if spec.score == "dot":
        for n in (8, 16, 32, 64, 128):
            words = f"only the first {n} columns of queries and keys are multiplied"
            yield in_steps("score", words, scores=partial(_columns, lambda d, n=n: n))  # type: ignore[misc]
        for n in (2, 4, 8, 16, 32, 64):
            words = f"columns after the last full block of {n} are left out (for 2: the last one of an odd number)"
            yield in_steps("score", words, scores=partial(_columns, lambda d, n=n: d // n * n))  # type: ignore[misc]


def _both(at: At) -> tuple[Any, Any]:
    """Return the queries and keys that the scores are computed from."""
    q, k = step(at.spec, at.values, "scores").of[:2]
    return at.values[q], at.values[k]


def _product(left: str, right: str) -> Wrong:
    """Return left rightᵀ instead of Q Kᵀ."""

    def wrong(at: At) -> Any:
        of = dict(zip("qk", _both(at), strict=True)) | {"v": at.met}
        return scores.dot_scores(of[left], of[right])

    return wrong


def _columns(width: Callable[[int], int], at: At) -> Array:
    """Return the scores of the first columns alone; 0 if none are left."""
    q, k = _both(at)
    n = width(int(q.shape[-1]))
    return scores.dot_scores(q[..., :n], k[..., :n]) if n else (q @ k.mT) * 0


_PRODUCTS: dict[str, Wrong] = {
    "queries are used as keys: the scores are Q Qᵀ": _product("q", "q"),
    "keys are used as queries: the scores are K Kᵀ": _product("k", "k"),
    "queries and keys are exchanged: the scores are K Qᵀ": _product("k", "q"),
    "values are used as keys: the scores are Q Vᵀ": _product("q", "v"),
    "values are used as queries: the scores are V Kᵀ": _product("v", "k"),
}
_COSINES: dict[str, Wrong] = {
    "queries alone are normalised, keys are not: no cosine":
        lambda at: scores.dot_scores(norms.unit(_both(at)[0]), _both(at)[1]),
    "keys alone are normalised, queries are not: no cosine":
        lambda at: scores.dot_scores(_both(at)[0], norms.unit(_both(at)[1])),
}  # fmt: skip
_DISTANCES: dict[str, Wrong] = {
    "distances are not squared": lambda at: -at.xp.sqrt(-2 * at.right()) / 2,
    "the square of the distance is not halved": lambda at: at.right() * 2,
    "the sign of the distance is flipped: far keys are favoured": lambda at: -at.right(),
}


# -- the scale ---------------------------------------------------------------------------------------------------------
Size = Callable[[At], int]
#: Powers in quarters, as written, with {} for a size.
_POWERS = {
    -8: "1/{}²", -6: "{}^(−3/2)", -4: "1/{}", -3: "{}^(−3/4)", -2: "1/√{}", -1: "{}^(−1/4)",
    1: "{}^(1/4)", 2: "√{}", 4: "{}", 8: "{}²",
}  # fmt: skip
_MEANT = {
    ("d_k", -4): " (as by 1/√d_k twice)",
    ("d_k", -1): ": the scale is in one of queries and keys alone",
}


def of_scales(spec: Attention) -> Iterator[Mistake]:
    """Yield wrong scales: first by sizes, the simplest ones first; then by lengths of vectors."""
    for symbol, meant, number in (size for size, there in _sizes(spec) if there):
        for quarters, written in _POWERS.items():
            # the configured scale, and the default instead of it, have words of their own
            if symbol != "d_k" or not_scaled(spec) or quarters not in (-2, -4 if spec.scale == "1/d_k" else -2):
                more = meant if not_scaled(spec) else _MEANT.get((symbol, quarters), meant)
                verb = "multiplied" if quarters > 0 else "scaled"
                words = f"scores are {verb} by {written.format(symbol)}{more}"
                yield where_scaled(spec, in_steps("scale", words, scaled=partial(by_power, number, quarters)))
    for words, whole in _WHOLE.items() if spec.scale is None and not not_scaled(spec) else ():
        by_whole: Wrong = lambda at, whole=whole: at.first / whole(sqrt(at.size("q")))  # type: ignore[misc] # noqa: E731
        yield in_steps("scale", f"scores are scaled by {words}", scaled=by_whole)
    for role, words in (("q", "query"), ("k", "key")) if spec.score == "dot" and spec.latent is None else ():
        for besides in (False, True)[: 1 + (spec.scale != 1)]:
            more = " besides" if besides else ", not by √d_k" * (spec.scale is None)
            words_ = f"scores are divided by the length of the {words} vector, ‖{role}‖{more}"
            by_length = in_steps("scale", words_, scaled=partial(_by_length, role, besides))
            yield replace(by_length, in_floats=True)  # a vector of zeros leaves its scores undefined


def _sizes(spec: Attention) -> Iterator[tuple[tuple[str, str, Size], Any]]:
    """Yield sizes as written, words for their meaning if needed, how to get them, and whether they exist."""
    heads, shared = spec.heads > 1, 1 < spec.key_heads < spec.heads
    yield ("d_k", "", lambda at: at.size("q")), True
    yield ("d_v", "", lambda at: at.size("v")), True
    yield ("n_k", "", lambda at: at.shape[-1]), True
    yield ("n_q", "", lambda at: at.size("q", -2)), True
    yield ("(d_k + 1)", "", lambda at: at.size("q") + 1), True
    yield ("(d_k − 1)", ", by 1 where d_k = 1", lambda at: max(at.size("q") - 1, 1)), True
    yield ("d_model", "", lambda at: at.size("x") if "x" in at.values else spec.heads * at.size("q")), heads
    yield ("h", ", by the number of heads", lambda at: spec.heads), heads
    yield ("(d_k h_kv)", ", the width of all heads of keys", lambda at: spec.key_heads * at.size("q")), shared
    yield ("d_n", ", d_n the columns without positions", lambda at: at.size("q_n")), spec.latent
    yield ("d_r", ", d_r the columns with positions", lambda at: at.size("q_r")), spec.latent
    whole = ", d_c the width of the latent"
    yield ("(d_c + d_r)", whole, lambda at: at.size("c_kv") + at.size("q_r")), spec.latent
    width = getattr(spec.position, "width", None)
    yield ("r", ", r the columns that are rotated", lambda at: width or 1), width


def by_power(number: Size, quarters: int, at: At) -> Any:
    """Return S n^{p/4}."""
    s = at.first
    fourth = at.xp.sqrt(root(s, number(at)))
    for _ in range(abs(quarters)):
        s = s * fourth if quarters > 0 else s / fourth
    return s


_WHOLE: dict[str, Callable[[float], int]] = {
    "1/⌊√d_k⌋: the root is rounded down to a whole number": floor,
    "the root of d_k rounded to a whole number": round,
    "the root of d_k rounded up to a whole number": ceil,
}


def _by_length(role: str, besides: bool, at: At) -> Any:
    """Return S / ‖q‖ or S / ‖k‖ for the vectors that the scores are computed from; undefined if one is 0."""
    s = at.right() if besides else at.first
    x = at.values[step(at.spec, at.values, "scores").of[0 if role == "q" else 1]]
    xp = namespace_of(x)
    length = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    return s / (length if role == "q" else length.mT)
