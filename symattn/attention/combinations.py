"""Combinations of fields about scores, masks and weights that make no sense, each with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from symattn.attention.positions.fields import Rotary

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

Rule = tuple[Callable[["Attention"], bool], str]

SCORES: tuple[Rule, ...] = (
    (
        lambda s: s.truncate is not None and s.score in ("general", "additive"),
        "truncated vectors do not fit the matrices of general and additive scores; mend: narrower matrices",
    ),
    (
        lambda s: s.score == "cosine" and s.qk_norm is not None,
        "cosine scores normalise queries and keys themselves; mend: qk_norm=None",
    ),
    (
        lambda s: isinstance(s.position, Rotary) and s.score in ("general", "additive"),
        "rotations tell distances in dot products, cosines and distances alone; mend: position=None, or another score",
    ),
    (
        lambda s: s.latent is not None and (s.score != "dot" or s.truncate is not None),
        "keys of a latent have scores that are dot products of all their columns; mend: score='dot', truncate=None",
    ),
)

MASKS: tuple[Rule, ...] = (
    (
        lambda s: isinstance(s.window, int) and not s.causal,
        "a window of so many keys looks back from the query; mend: causal=True, or window=(left, right)",
    ),
    (lambda s: s.window == (None, None), "a window that is open on both sides is none; mend: window=None"),
    (
        lambda s: s.prefix is not None and not s.causal,
        "a prefix opens keys that a causal mask closes; mend: causal=True",
    ),
    (
        lambda s: s.prefix is not None and (s.window is not None or s.block is not None),
        "a window or a block closes keys that a prefix opens; mend: mask='boolean', which says what is meant",
    ),
)

WEIGHTS: tuple[Rule, ...] = (
    *(
        (
            lambda s, f=field: s.normaliser != "softmax" and bool(getattr(s, f)),
            f"{field} belongs to normaliser 'softmax'",
        )
        for field in ("base", "sink", "lse")
    ),
    (
        lambda s: not s.stabilised and s.normaliser not in ("softmax", "sigmoid"),
        "only normaliser 'softmax' and 'sigmoid' take exponentials, which may be stabilised; mend: stabilised=True",
    ),
    (
        lambda s: s.fully_masked != "zeros" and (s.sink is not None or s.normaliser in ("sigmoid", "relu")),
        "with a sink, sigmoid or relu a row that is fully masked is not 0/0 but zeros; mend: fully_masked='zeros'",
    ),
    (
        lambda s: s.score == "distance" and s.normaliser == "relu" and not (s.bias or s.scale or s.mask == "additive"),
        "scores of distances are never positive, and relu makes 0 of them; mend: bias=True, or another normaliser",
    ),
)
