"""Every step of attention on residues is the image of the exact one, g^k for e^k."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays import kind
from symattn.arrays.modular import modular
from symattn.attention.gradients.attention import backward, softmax_vjp
from symattn.attention.linear import causal_linear_attention, causal_products, delta_step, linear_attention
from symattn.attention.positions.angles import add_angles, linear_bias, rotate_half, rotate_interleaved
from symattn.attention.projections import grouped_attention, repeat_heads, tile_heads
from symattn.attention.scores import dot_scores
from symattn.attention.softmax import sink_weights, softmax
from symattn.attention.streaming.states import finish, merge, merge_partial, partial_output, tile_state
from tests.arrays.residues import agree
from tests.attention.pieces import PAIRS


def kinds(seed: int) -> tuple[Any, Any]:
    return modular(*PAIRS[seed], seed=seed), kind("exact")


def in_tiles(s: Any, v: Any) -> Any:
    tiles = [tile_state(s[..., i : i + 2], v[..., i : i + 2, :]) for i in range(0, s.shape[-1], 2)]
    left = merge(merge(tiles[0], tiles[1]), tiles[2])
    right = merge(tiles[0], merge(tiles[1], tiles[2]))
    return finish(left), finish(right)


def split(s: Any, v: Any) -> Any:
    return merge_partial(partial_output(s[..., :2], v[..., :2, :]), partial_output(s[..., 2:], v[..., 2:, :]))[0]


def gradients(q: Any, k: Any, v: Any, g: Any) -> Any:
    return list(backward(q, k, v, softmax(dot_scores(q, k)), g))


PIECES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "tiles in two bracketings": (in_tiles, ((3, 6), (6, 2))),
    "split keys": (split, ((3, 5), (5, 2))),
    "sinks": (sink_weights, ((3, 4), (3, 1))),
    "grouped queries": (lambda q, k, v: grouped_attention(Attention(), q, k, v), ((6, 3, 4), (2, 5, 4), (2, 5, 2))),
    "repeated heads": (lambda x: repeat_heads(x, 2), ((2, 3, 4),)),
    "heads in turn": (lambda x: tile_heads(x, 2), ((2, 3, 4),)),
    "linear": (lambda q, k, v: linear_attention(q * q + 1, k * k + 1, v), ((3, 4), (5, 4), (5, 2))),
    "causal products": (causal_products, ((3, 4), (3, 4), (3, 2))),
    "causal linear": (lambda q, k, v: causal_linear_attention(q * q + 1, k * k + 1, v), ((3, 4), (3, 4), (3, 2))),
    "delta rule": (delta_step, ((4, 3), (1, 4), (1, 3), (1, 1))),
    "rotation by halves": (rotate_half, ((3, 4), (3, 2), (3, 2))),
    "rotation of pairs": (rotate_interleaved, ((3, 4), (3, 2), (3, 2))),
    "sums of angles": (add_angles, ((3, 2), (3, 2), (3, 2), (3, 2))),
    "distances": (linear_bias, ((3, 5), (1, 1))),
    "gradient of softmax": (lambda s, g: softmax_vjp(softmax(s), g), ((3, 4), (3, 4))),
    "gradients": (gradients, ((3, 4), (5, 4), (5, 2), (3, 2))),
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", PIECES)
def test_a_piece(name: str, seed: int) -> None:
    run, shapes = PIECES[name]
    draw = np.random.default_rng(seed)
    data = [draw.integers(-3, 4, shape) / 2 for shape in shapes]
    got, wanted = (run(*map(of.lift, data)) for of in kinds(seed))
    assert agree(got, wanted)


def test_what_must_not_agree_does_not() -> None:
    of, exact = kinds(0)
    q, k, v = (np.random.default_rng(4).integers(-2, 3, shape) for shape in ((3, 4), (5, 4), (5, 2)))
    wanted = Attention()(*map(exact.lift, (q, k, v)))
    assert agree(Attention()(*map(of.lift, (q, k, v))), wanted)
    assert not agree(Attention(scale=1)(*map(of.lift, (q, k, v))), wanted)
    assert not agree(Attention(causal=True)(*map(of.lift, (q, k, v))), wanted)
