"""Mistakes in windows, prefixes, blocks and documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    in_fields,
    in_inputs,
    with_fields,
)


def _window(left: int, right: int) -> Callable[[Attention], Attention]:
    """So many keys more on either side; a window that is none is left out."""

    def change(spec: Attention) -> Attention:
        before_, after = spec.sides
        sides = (None if before_ is None else before_ + left, None if after is None else after + right)
        return replace(spec, window=None if sides == (None, None) else sides)

    return change


def _exchanged(spec: Attention) -> Attention:
    return replace(spec, window=spec.sides[::-1])


def _other_window(spec: Attention) -> Attention:
    return replace(spec, alignment="top-left" if spec.alignment == "bottom-right" else "bottom-right")


def _longer(name: str, by: int) -> Callable[[Attention], Attention]:
    """One more, or less, in a field that counts keys."""
    return lambda spec: with_fields(**{name: (getattr(spec, name) or 0) + by})(spec)


def _numbered(spec: Attention, labels: np.ndarray) -> np.ndarray:
    """Labels of documents that only say where one begins: a label per place."""
    return np.arange(labels.shape[-1]) // max(1, int(np.bincount(np.unique(labels, return_inverse=True)[1]).max()))


def _looks_back(spec: Attention) -> bool:
    """Where a window before the query hides all later keys, by itself or by a causal mask."""
    return bool(spec.sides[0]) and (spec.causal or spec.sides[1] == 0)


def _both_sides(spec: Attention) -> Attention:
    return replace(spec, causal=False, prefix=None, window=(spec.sides[0], spec.sides[0]))


MISTAKES: tuple[Mistake, ...] = (
    in_fields("mask", "the window is ignored", lambda s: s.window is not None, with_fields(window=None)),
    in_fields(
        "mask", "the window is one key too long, before the query", lambda s: s.sides[0] is not None, _window(1, 0)
    ),
    in_fields("mask", "the window is one key too short, before the query", lambda s: bool(s.sides[0]), _window(-1, 0)),
    in_fields(
        "mask",
        "the window is one key too long, after the query",
        lambda s: s.sides[1] is not None and not s.causal,
        _window(0, 1),
    ),
    in_fields("mask", "the window is one key too short, after the query", lambda s: bool(s.sides[1]), _window(0, -1)),
    in_fields(
        "mask",
        "the window is one key too long on both sides",
        lambda s: None not in s.sides and not s.causal,
        _window(1, 1),
    ),
    in_fields("mask", "the window is one key too short on both sides", lambda s: all(s.sides), _window(-1, -1)),
    in_fields(
        "mask",
        "the window is open before the query: only keys after it are hidden",
        lambda s: s.sides[0] is not None and s.sides[1] is not None and not s.causal,
        lambda s: replace(s, window=(None, s.sides[1])),
    ),
    in_fields(
        "mask",
        "the two sides of the window are exchanged",
        lambda s: None not in s.sides and s.sides[0] != s.sides[1],
        _exchanged,
    ),
    in_fields(
        "mask",
        "the window is counted from the other corner",
        lambda s: s.window is not None and not s.causal,
        _other_window,
    ),
    in_fields(
        "mask",
        "the window is causal besides: a query sees no later key",
        lambda s: bool(s.sides[1]) and not s.causal,
        with_fields(causal=True),
    ),
    in_fields(
        "mask",
        "a causal mask is applied that was not asked for",
        lambda s: not s.causal and s.window is None,
        with_fields(causal=True),
    ),
    in_fields(
        "mask",
        "a causal mask from the first corner is applied that was not asked for",
        lambda s: not s.causal and s.window is None,
        with_fields(causal=True, alignment="top-left"),
    ),
    in_fields("mask", "the prefix is ignored", lambda s: s.prefix is not None, with_fields(prefix=None)),
    in_fields("mask", "the prefix is one key too long", lambda s: s.prefix is not None, _longer("prefix", 1)),
    in_fields("mask", "the prefix is one key too short", lambda s: (s.prefix or 0) > 1, _longer("prefix", -1)),
    in_fields("mask", "blocks are ignored", lambda s: s.block is not None, with_fields(block=None)),
    in_fields("mask", "blocks are one key too long", lambda s: s.block is not None, _longer("block", 1)),
    in_fields("mask", "blocks are one key too short", lambda s: (s.block or 0) > 1, _longer("block", -1)),
    in_fields("mask", "the documents are ignored", lambda s: s.documents, with_fields(documents=False)),
    in_inputs(
        "mask", "documents are told apart by their places, not by their labels", lambda s: s.documents, doc=_numbered
    ),
    in_fields("mask", "the window looks ahead as far as back: the causal mask is left out", _looks_back, _both_sides),
    in_fields(
        "mask",
        "the causal mask is left out beside the window: all later keys are seen",
        _looks_back,
        lambda s: replace(s, causal=False, prefix=None, window=(s.sides[0], None)),
    ),
)
