"""Shared heads and windows, against loops over the places."""

from __future__ import annotations

import numpy as np
import pytest

from symattn.attention.masks import window
from symattn.attention.projections import grouped_attention, repeat_heads, tile_heads
from symattn.attention.spec import Attention
from symattn.attention.streaming.states import finish, merge, tile_state

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(("n_q", "n_k", "width"), [(4, 4, 1), (4, 4, 2), (5, 5, 9), (2, 5, 3), (1, 4, 2)])
def test_a_window_holds_the_last_keys_up_to_the_query(n_q, n_k, width):
    allowed = window(np.zeros((n_q, n_k)), width)
    for i in range(n_q):
        last = i + n_k - n_q
        assert [j for j in range(n_k) if allowed[i, j]] == [j for j in range(n_k) if last - width < j <= last]


def test_which_head_is_read():
    heads = np.arange(3)[:, None, None] + np.zeros((3, 2, 2))
    assert [int(x) for x in repeat_heads(heads, 2)[:, 0, 0]] == [0, 0, 1, 1, 2, 2]
    assert [int(x) for x in tile_heads(heads, 2)[:, 0, 0]] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("batch", [(), (2,)])
def test_grouped_attention_reads_the_head_of_its_group(batch):
    q, k, v = (RANDOM.normal(size=(*batch, h, n, d)) for h, n, d in ((6, 3, 2), (2, 4, 2), (2, 4, 5)))
    found = grouped_attention(Attention(), q, k, v)
    assert found.shape == (*batch, 6, 3, 5)
    for t in range(6):
        expected = Attention()(q[..., t, :, :], k[..., t // 3, :, :], v[..., t // 3, :, :])
        np.testing.assert_allclose(found[..., t, :, :], expected, rtol=1e-13)


def test_merged_states_may_have_any_maximum():
    s, t, v, w = (RANDOM.normal(size=x) for x in ((3, 2), (3, 4), (2, 5), (4, 5)))
    a, b = tile_state(s, v), tile_state(t, w)
    np.testing.assert_allclose(finish(merge(a, b, np.full((3, 1), -1.5))), finish(merge(a, b)), rtol=1e-13)
