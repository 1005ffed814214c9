"""Scores: other arrays multiplied, fewer columns of them, part of a cosine or of a distance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention import norms, scores
from symattn.attention.spec import Attention
from symattn.bounds.at import At, told
from symattn.bounds.mistake import Mistake, step


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in the score that a specification has."""
    for words, make in _COSINES.items() if spec.score == "cosine" else ():
        yield told("score", words, scores=lambda at, make=make: make(*_both(at)))  # type: ignore[misc]
    if spec.score == "dot":
        for words, (left, right) in _PRODUCTS.items():
            yield told("score", words, scores=partial(_product, left, right))
        yield told("score", "negative scores become 0", scores=lambda at: at.xp.maximum(at.right(), 0))
        yield told(
            "score", "absolute values of the scores are taken", scores=lambda at: at.xp.maximum(at.right(), -at.right())
        )
        for n in (8, 16, 32, 64, 128):
            words = f"only the first {n} columns of queries and keys are multiplied"
            yield told("score", words, scores=partial(_columns, lambda d, n=n: n))  # type: ignore[misc]
        for n in (2, 4, 8, 16, 32, 64):
            words = f"columns after the last full block of {n} are left out (for 2: the last one of an odd number)"
            yield told("score", words, scores=partial(_columns, lambda d, n=n: d // n * n))  # type: ignore[misc]
    if spec.score == "distance":
        for words, wrong in _DISTANCES.items():
            yield told("score", words, scores=wrong)


_PRODUCTS: dict[str, tuple[str, str]] = {
    "queries are used as keys: the scores are Q Qᵀ": ("q", "q"),
    "keys are used as queries: the scores are K Kᵀ": ("k", "k"),
    "queries and keys are exchanged: the scores are K Qᵀ": ("k", "q"),
    "values are used as keys: the scores are Q Vᵀ": ("q", "v"),
    "values are used as queries: the scores are V Kᵀ": ("v", "k"),
}
_COSINES: dict[str, Callable[[Any, Any], Any]] = {
    "queries alone are normalised, keys are not: no cosine": lambda q, k: scores.dot_scores(norms.unit(q), k),
    "keys alone are normalised, queries are not: no cosine": lambda q, k: scores.dot_scores(q, norms.unit(k)),
}
_DISTANCES: dict[str, Callable[[At], Any]] = {
    "distances are not squared": lambda at: -at.xp.sqrt(-2 * at.right()) / 2,
    "the square of the distance is not halved": lambda at: at.right() * 2,
    "the sign of the distance is flipped: far keys are favoured": lambda at: -at.right(),
}


def _both(at: At) -> tuple[Any, Any]:
    """Return the queries and keys that the scores are made of."""
    q, k = step(at.spec, at.values, "scores").of[:2]
    return at.values[q], at.values[k]


def _product(left: str, right: str, at: At) -> Any:
    """left rightᵀ in the place of Q Kᵀ."""
    of = dict(zip("qk", _both(at), strict=True)) | {"v": at.values["v_shared" if "v_shared" in at.values else "v"]}
    return scores.dot_scores(of[left], of[right])


def _columns(width: Callable[[int], int], at: At) -> Array:
    """The first columns alone; 0 where none are left."""
    q, k = _both(at)
    n = width(int(q.shape[-1]))
    return scores.dot_scores(q[..., :n], k[..., :n]) if n else (q @ k.mT) * 0
