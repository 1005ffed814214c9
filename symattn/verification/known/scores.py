"""Mistakes in scores: what is multiplied, and how much of it."""

from __future__ import annotations

from functools import partial
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention import scores
from symattn.attention.norms import unit
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    in_fields,
    in_steps,
    own,
    step,
    with_fields,
)
from symattn.verification.reference import Values


def product(left: str, right: str, spec: Attention, values: Values) -> Any:
    """left rightᵀ in place of Q Kᵀ, as they are when scores are made of them."""
    of = step(spec, values, "scores").of
    names = {"q": of[0], "k": of[1], "v": "v_shared" if "v_shared" in values else "v"}
    return scores.dot_scores(values[names[left]], values[names[right]])


def first_columns(width: int, spec: Attention, values: Values) -> Any:
    """No more columns than so many."""
    q, k = (values[n] for n in step(spec, values, "scores").of[:2])
    return scores.dot_scores(q[..., :width], k[..., :width])


def whole_blocks(width: int, spec: Attention, values: Values) -> Any:
    """The columns after the last full block of ``width`` are left out."""
    q, k = (values[n] for n in step(spec, values, "scores").of[:2])
    return (
        first_columns(int(q.shape[-1]) // width * width, spec, values) if int(q.shape[-1]) >= width else (q @ k.mT) * 0
    )


def negative_kept_out(spec: Attention, values: Values) -> Any:
    """max(S, 0)."""
    s = own(spec, values, "scores")
    return namespace_of(s).maximum(s, 0)


def absolute(spec: Attention, values: Values) -> Any:
    """|S|."""
    s = own(spec, values, "scores")
    return namespace_of(s).maximum(s, -s)


def _is_dot(spec: Attention) -> bool:
    return spec.score == "dot"


def _plain_vectors(spec: Attention) -> bool:
    return spec.score == "dot" and spec.latent is None


def half_cosine(role: str, spec: Attention, values: Values) -> Any:
    """q · k over one of the lengths."""
    q, k = (values[n] for n in step(spec, values, "scores").of[:2])
    return scores.dot_scores(unit(q) if role == "q" else q, unit(k) if role == "k" else k)


def not_squared(spec: Attention, values: Values) -> Any:
    """−‖q − k‖/2."""
    s = own(spec, values, "scores")
    return -namespace_of(s).sqrt(-2 * s) / 2


def not_halved(spec: Attention, values: Values) -> Any:
    """−‖q − k‖²."""
    return own(spec, values, "scores") * 2


def far_favoured(spec: Attention, values: Values) -> Any:
    """‖q − k‖²/2."""
    return -own(spec, values, "scores")


MISTAKES: tuple[Mistake, ...] = (
    in_steps("score", "queries are used as keys: the scores are Q Qᵀ", _is_dot, scores=partial(product, "q", "q")),
    in_steps("score", "keys are used as queries: the scores are K Kᵀ", _is_dot, scores=partial(product, "k", "k")),
    in_steps(
        "score", "queries and keys are exchanged: the scores are K Qᵀ", _is_dot, scores=partial(product, "k", "q")
    ),
    in_steps("score", "values are used as keys: the scores are Q Vᵀ", _is_dot, scores=partial(product, "q", "v")),
    in_steps("score", "values are used as queries: the scores are V Kᵀ", _is_dot, scores=partial(product, "v", "k")),
    in_steps("score", "negative scores become 0", _is_dot, scores=negative_kept_out),
    in_steps("score", "absolute values of the scores are taken", _is_dot, scores=absolute),
    *(
        in_steps(
            "score",
            f"only the first {n} columns of queries and keys are multiplied",
            _is_dot,
            scores=partial(first_columns, n),
        )
        for n in (8, 16, 32, 64, 128)
    ),
    *(
        in_steps(
            "score",
            f"columns after the last full block of {n} are left out (for 2: the last one of an odd number)",
            _is_dot,
            scores=partial(whole_blocks, n),
        )
        for n in (2, 4, 8, 16, 32, 64)
    ),
    in_fields(
        "score",
        "the cosine of queries and keys is taken, not their dot product",
        _plain_vectors,
        with_fields(score="cosine", scale=1),
    ),
    in_fields(
        "score",
        "the dot product is taken, not the cosine of queries and keys",
        lambda s: s.score == "cosine",
        with_fields(score="dot"),
    ),
    in_fields(
        "score",
        "the dot product is taken, not a distance",
        lambda s: s.score == "distance",
        lambda s: with_fields(score="dot", scale=1 if s.scale is None else s.scale)(s),
    ),
    in_fields(
        "score",
        "all columns of queries and keys are multiplied, not the first ones",
        lambda s: s.truncate is not None,
        with_fields(truncate=None),
    ),
    in_steps(
        "score",
        "queries alone are normalised, keys are not: no cosine",
        lambda s: s.score == "cosine",
        scores=partial(half_cosine, "q"),
    ),
    in_steps(
        "score",
        "keys alone are normalised, queries are not: no cosine",
        lambda s: s.score == "cosine",
        scores=partial(half_cosine, "k"),
    ),
    in_steps("score", "distances are not squared", lambda s: s.score == "distance", scores=not_squared),
    in_steps("score", "the square of the distance is not halved", lambda s: s.score == "distance", scores=not_halved),
    in_steps(
        "score",
        "the sign of the distance is flipped: far keys are favoured",
        lambda s: s.score == "distance",
        scores=far_favoured,
    ),
)
