"""Mistakes in which head of keys and values a head of queries reads."""

from __future__ import annotations

from functools import partial
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention import groups
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    in_steps,
    step,
)
from symattn.verification.reference import Values


def _in_turn(role: str, spec: Attention, values: Values) -> Any:
    """Query head t reads head t mod g."""
    x = values[step(spec, values, f"{role}_shared").of[0]]
    return groups.tile_heads(x, spec.heads // spec.key_heads)


def _one_head(which: int, role: str, spec: Attention, values: Values) -> Any:
    """One head of keys or values for all."""
    x = values[step(spec, values, f"{role}_shared").of[0]]
    n = int(x.shape[-3])
    return groups.repeat_heads(x[..., which % n : which % n + 1, :, :], spec.heads)


def _backwards(role: str, spec: Attention, values: Values) -> Any:
    """Heads of keys or values in the opposite order."""
    x = values[step(spec, values, f"{role}_shared").of[0]]
    return groups.repeat_heads(namespace_of(x).flip(x, axis=-3), spec.heads // spec.key_heads)


def _cut_off(role: str, spec: Attention, values: Values) -> Any:
    """Query head t reads head min(t, g − 1)."""
    x = values[step(spec, values, f"{role}_shared").of[0]]
    g = int(x.shape[-3])
    return namespace_of(x).concat([x[..., min(t, g - 1) : min(t, g - 1) + 1, :, :] for t in range(spec.heads)], axis=-3)


def _shared(spec: Attention) -> bool:
    return 1 < spec.key_heads < spec.heads


MISTAKES: tuple[Mistake, ...] = (
    in_steps(
        "score",
        "heads of keys and values are repeated in turn: query head t reads head t mod kv_heads",
        _shared,
        k_shared=partial(_in_turn, "k"),
        v_shared=partial(_in_turn, "v"),
    ),
    in_steps(
        "score",
        "heads of keys are repeated in turn, those of values one after another",
        _shared,
        k_shared=partial(_in_turn, "k"),
    ),
    in_steps(
        "values",
        "heads of values are repeated in turn, those of keys one after another",
        _shared,
        v_shared=partial(_in_turn, "v"),
    ),
    in_steps(
        "score",
        "the first head of keys and values is read by all queries",
        _shared,
        k_shared=partial(_one_head, 0, "k"),
        v_shared=partial(_one_head, 0, "v"),
    ),
    in_steps(
        "score",
        "the last head of keys and values is read by all queries",
        _shared,
        k_shared=partial(_one_head, -1, "k"),
        v_shared=partial(_one_head, -1, "v"),
    ),
    in_steps(
        "score",
        "heads of keys and values are read in the opposite order",
        _shared,
        k_shared=partial(_backwards, "k"),
        v_shared=partial(_backwards, "v"),
    ),
    in_steps(
        "score",
        "query head t reads head min(t, kv_heads − 1)",
        _shared,
        k_shared=partial(_cut_off, "k"),
        v_shared=partial(_cut_off, "v"),
    ),
    in_steps("values", "the first head of values is read by all queries", _shared, v_shared=partial(_one_head, 0, "v")),
    in_steps("score", "the first head of keys is read by all queries", _shared, k_shared=partial(_one_head, 0, "k")),
)
