"""Tiles that hide all keys of a query: a finite number in place of −∞ enters the sums, and a later tile takes it out.

In such a tile the maximum is the number itself, and e^(F − F) = 1; then e^(F − m) = 0 for the first key that is seen.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Refused, kinds
from symattn.bounds.inputs import Sizes
from symattn.verification.semantics import IdentityResult, identity_test
from tests.sizes import SIZES

Array = Any
LOCAL = Attention(causal=True, window=6)
TILE = 4


def streamed(
    fill: float, start: float | None = None, *, rescaled: bool = True, raw: bool = False, power: Any = np.exp
) -> Callable[..., Array]:
    """Local causal attention by tiles, in which masked scores, raw ones or scaled ones, are ``fill``."""

    def program(q: Array, k: Array, v: Array) -> Array:
        n_q, n_k = len(q), len(k)
        scale = (np.log2(np.e) if power is np.exp2 else 1) / np.sqrt(q.shape[-1])
        top = np.full((n_q, 1), fill if start is None else start, np.float32)
        total, values = np.zeros((n_q, 1), np.float32), np.zeros((n_q, v.shape[-1]), np.float32)
        i = np.arange(n_q)[:, None] + n_k - n_q
        for first in range(0, n_k, TILE):
            s = q @ k[first : first + TILE].T * (1 if raw else scale)
            j = np.arange(first, first + s.shape[-1])
            s = np.where((j <= i) & (j > i - 6), s, np.float32(fill)) * (scale if raw else 1)
            new = np.maximum(top, s.max(-1, keepdims=True))
            e, kept = power(s - new), power(top - new) if rescaled else 1
            total, values = total * kept + e.sum(-1, keepdims=True), values * kept + e @ v[first : first + TILE]
            top = new
        return values / total

    return program


def on_residues(program: Callable[..., Array], sizes: Sequence[Sizes] = SIZES) -> IdentityResult:
    return identity_test(lambda kind: lambda arrays: program(**arrays), LOCAL, sizes=sizes)


@pytest.mark.parametrize(
    "program",
    [
        streamed(-1e7),
        streamed(-2.4e38),
        streamed(-1e20, -np.inf),
        streamed(-1e7, raw=True),
        streamed(-1e7, -1e30, power=np.exp2),
        streamed(-1e30, -1e7),
    ],
    ids=["1e7", "near the least float32", "starts at −∞", "raw scores", "starts lower, base 2", "starts higher"],
)
def test_a_number_in_place_of_minus_infinity_leaves_a_hidden_tile(program: Callable[..., Array]) -> None:
    result = on_residues(program)
    assert result.agrees, result.reason
    assert result.epsilon is not None
    assert any("was read as -inf" in note for note in result.notes)


@pytest.mark.parametrize("fill", [-1e7, -2.4e38])
def test_what_a_hidden_tile_leaves_in_sums_is_a_difference(fill: float) -> None:
    assert on_residues(streamed(fill, rescaled=False), SIZES[1:2]).agrees is False


@pytest.mark.torch
@pytest.mark.parametrize("fill", [-1e7, -2.4e38])
def test_graphs_read_numbers_in_hidden_tiles_alike(fill: float) -> None:
    import torch

    from symattn.programs.identity import identity
    from symattn.programs.request import Request
    from symattn.programs.target import target

    def right(q: Array, k: Array, v: Array, kept: bool = True) -> Array:
        n_q, n_k = len(q), len(k)
        top = torch.full((n_q, 1), fill)
        total, values = torch.zeros(n_q, 1), torch.zeros(n_q, v.shape[-1])
        i = torch.arange(n_q)[:, None] + n_k - n_q
        for first in range(0, n_k, TILE):
            s = q @ k[first : first + TILE].T / q.shape[-1] ** 0.5
            j = torch.arange(first, min(first + TILE, n_k))
            s = s.masked_fill(~((j <= i) & (j > i - 6)), fill)
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            e, again = torch.exp(s - new), torch.exp(top - new) if kept else 1
            total, values = total * again + e.sum(-1, keepdim=True), values * again + e @ v[first : first + TILE]
            top = new
        return values / total

    def wrong(q: Array, k: Array, v: Array) -> Array:
        return right(q, k, v, kept=False)

    for program, agrees in ((right, True), (wrong, False)):
        read = target(program, Request.of(LOCAL, dtype="float32"))
        assert identity(read, LOCAL, SIZES[:2]).agrees is agrees


def test_levels_cancel_and_decide_the_order() -> None:
    kind = kinds.modular()
    kind.field.leveled = True
    xp, far, near = kind.xp, kind.literal(np.float64(-1e20)), kind.literal(np.float64(-1e7))
    x = kind.letters(3)
    assert xp.exp(far - far).residues() == 1
    assert xp.exp(far - near).residues() == 0
    assert (xp.exp((x + near) - near).residues() == xp.exp(x).residues()).all()
    assert xp.less(far, near)
    assert not xp.isneginf(far)
    assert (xp.exp(xp.maximum(far, near) - near).residues() == 1).all()
    with pytest.raises(Refused, match="exponential of inf"):
        xp.exp(near - far)
    with pytest.raises(Refused, match=r"times a number that is not positive"):
        kind.literal(np.float64(-np.inf)) - kind.literal(np.float64(-np.inf))
