"""Shared heads, packed projections and latents: how heads are read, absorbed latents, and what is refused.

What they compute is held against loops, on every kind, in ``test_kinds``.
"""

from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Latent, functional, kind
from tests.refusals import refuses

pytestmark = pytest.mark.smoke

EXACT, H, G, N, M, D = kind("exact"), 6, 2, 3, 4, 5
D_K, D_V, D_N, D_R, L, L_Q = 2, 3, 3, 2, 4, 7
_RNG = np.random.default_rng(3)


def data(*shape: int) -> Any:
    return EXACT.lift(_RNG.integers(-4, 5, shape) / 4)


def single(q: Any, k: Any, v: Any, **fields: Any) -> Any:
    return Attention(**fields)(q, k, v)


def same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and bool((a == b).all())


# -- shared heads -----------------------------------------------------------------------------------------------------
QKV = {"q": data(H, N, D_K), "k": data(G, M, D_K), "v": data(G, M, D_V)}


def test_which_head_is_read() -> None:
    heads = np.arange(3)[:, None, None] + np.zeros((3, 2, 2))
    assert [int(x) for x in functional.repeat_heads(heads, 2)[:, 0, 0]] == [0, 0, 1, 1, 2, 2]
    assert [int(x) for x in functional.tile_heads(heads, 2)[:, 0, 0]] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("batch", [(), (2,)])
def test_grouped_attention_reads_the_head_of_its_group(batch: tuple[int, ...]) -> None:
    q, k, v = (_RNG.normal(size=(*batch, h, n, d)) for h, n, d in ((6, 3, 2), (2, 4, 2), (2, 4, 5)))
    found = functional.grouped_attention(Attention(), q, k, v)
    assert found.shape == (*batch, 6, 3, 5)
    for t in range(6):
        expected = single(q[..., t, :, :], k[..., t // 3, :, :], v[..., t // 3, :, :])
        np.testing.assert_allclose(found[..., t, :, :], expected, rtol=1e-13)


# -- latents ----------------------------------------------------------------------------------------------------------
def latents(heads: int, queries: bool) -> dict[str, Any]:
    found = {
        "x": data(N, D), "w_dkv": data(D, L), "w_uk": data(L, heads * D_N), "w_uv": data(L, heads * D_V),
        "w_kr": data(D, D_R), "w_o": data(heads * D_V, D),
    }  # fmt: skip
    if queries:
        return found | {"w_dq": data(D, L_Q), "w_uq": data(L_Q, heads * (D_N + D_R))}
    return found | {"w_q": data(D, heads * (D_N + D_R))}


def test_absorbed_latents_are_the_same_with_norms_in_balls_and_batches() -> None:
    ball = kind("ball")
    given = {name: ball.lift(np.asarray(_RNG.normal(size=a.shape))) for name, a in latents(2, True).items()}
    given |= {"x": ball.lift(_RNG.normal(size=(2, 2, N, D))), "g_ckv": ball.lift(_RNG.normal(size=L))}
    runs = [Attention(heads=2, latent=Latent(queries=True, norm="rms", eps=0.5, absorbed=a)) for a in (False, True)]
    plain, absorbed = (run(**given) for run in runs)
    assert plain.shape == absorbed.shape == (2, 2, N, D)
    gap = (plain - absorbed).entries.flat
    assert all(x.contains(0) and float(x.abs_upper()) < 1e-9 for x in gap)
    assert not any(x.contains(0) for x in plain.entries.flat)


def test_the_divisor_of_absorbed_latents_is_that_of_the_queries() -> None:
    trace = Attention(heads=2, latent=Latent(absorbed=True)).trace(**latents(2, False))
    root = EXACT.xp.sqrt(EXACT.lift(D_N + D_R))
    assert same(trace["scaled"], trace["scores"] / root)
    assert trace["q_joined"].shape[-1] == L + D_R != D_N + D_R


# -- refusals ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("fields", "message"), [
    ({"heads": 4, "kv_heads": 3}, "kv_heads must divide heads"),
    ({"kv_heads": 0}, "kv_heads must be an integer of at least 1, got 0"),
    ({"eps": 0.1}, "eps belongs to qk_norm"),
    ({"eps": -1, "qk_norm": "rms"}, "eps must be a finite number of at least 0, got -1"),
    ({"qk_norm": "batch"}, "qk_norm must be one of None, rms, layer, l2, got 'batch'"),
    ({"latent": True}, "latent must be Latent(…) or None, got True"),
    ({"packed": True, "latent": Latent()}, "packed and latent exclude each other"),
    ({"heads": 4, "kv_heads": 2, "latent": Latent()}, "shared by all heads"),
    ({"qk_norm": "rms", "latent": Latent()}, "Latent(norm='rms')"),
])  # fmt: skip
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any], message: str) -> None:
    refuses(Attention, **fields, says=message)


@pytest.mark.parametrize(("fields", "message"), [
    ({"norm": "layer"}, "Latent: norm must be one of None, rms, got 'layer'"),
    ({"absorbed": 1}, "Latent: absorbed must be True or False, got 1"),
    ({"eps": 1}, "Latent: eps belongs to a norm"),
    ({"eps": float("nan"), "norm": "rms"}, "Latent: eps must be a finite number"),
])  # fmt: skip
def test_latents_that_mean_nothing_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        Latent(**fields)


@pytest.mark.parametrize(("spec", "given", "message"), [
    (Attention(latent=Latent()), QKV, "latent projections need the tokens x"),
    (Attention(latent=Latent()), latents(1, False) | {"w_dq": data(D, L_Q)}, "has no input 'w_dq'"),
    (Attention(latent=Latent()), {"x": data(N, D)}, "needs input 'w_q'"),
    (Attention(latent=Latent()), latents(1, False) | {"w_v": data(D, D_V)}, "w_v is made of a latent"),
    (Attention(latent=Latent()), latents(1, False) | {"w_kr": data(D, 1)}, "they must be d_n = 3 + d_r = 1"),
    (Attention(packed=True), {"x": data(N, D)}, "needs input 'w_in'"),
    (Attention(packed=True, heads=2), {"x": data(N, D), "w_in": data(D, 7)}, "7 columns, which 6 blocks"),
    (Attention(heads=H, kv_heads=3), QKV, "the axis heads of keys and values must have the length 3"),
    (Attention(heads=2), {"q": data(2, N, 2), "k": data(M, 2), "v": data(M, 2)}, "k has shape (4, 2); it needs three"),
    (Attention(qk_norm="rms"), {n: a[0] for n, a in QKV.items()} | {"g_q": data(3)}, "d_k differs"),
    (Attention(qk_norm="rms"), {n: a[0] for n, a in QKV.items()} | {"beta_q": data(2)}, "has no input 'beta_q'"),
])  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(spec: Attention, given: dict[str, Any], message: str) -> None:
    refuses(spec, **given, says=message)
