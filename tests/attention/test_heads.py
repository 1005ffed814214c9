"""Shared heads, packed projections, latents, and normalised queries and keys, against plain loops."""

from typing import Any

import numpy as np
import pytest

from symattn.arrays import kind
from symattn.attention.latent import Latent
from symattn.attention.projections import grouped_attention, repeat_heads, tile_heads
from symattn.attention.spec import Attention
from symattn.document.errors import InputError
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


def grouped(head: Any) -> Any:
    """Each query head with the keys and values that ``head`` says."""
    rows = [single(QKV["q"][t], QKV["k"][head(t)], QKV["v"][head(t)], causal=True) for t in range(H)]
    return EXACT.xp.stack(rows)


def test_query_heads_read_keys_in_groups() -> None:
    out = Attention(heads=H, kv_heads=G, causal=True)(**QKV)
    assert same(out, grouped(lambda t: t // (H // G)))
    assert not same(out, grouped(lambda t: t % G))


def test_which_head_is_read() -> None:
    heads = np.arange(3)[:, None, None] + np.zeros((3, 2, 2))
    assert [int(x) for x in repeat_heads(heads, 2)[:, 0, 0]] == [0, 0, 1, 1, 2, 2]
    assert [int(x) for x in tile_heads(heads, 2)[:, 0, 0]] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("batch", [(), (2,)])
def test_grouped_attention_reads_the_head_of_its_group(batch: tuple[int, ...]) -> None:
    q, k, v = (_RNG.normal(size=(*batch, h, n, d)) for h, n, d in ((6, 3, 2), (2, 4, 2), (2, 4, 5)))
    found = grouped_attention(Attention(), q, k, v)
    assert found.shape == (*batch, 6, 3, 5)
    for t in range(6):
        expected = single(q[..., t, :, :], k[..., t // 3, :, :], v[..., t // 3, :, :])
        np.testing.assert_allclose(found[..., t, :, :], expected, rtol=1e-13)


def test_groups_of_projections() -> None:
    x, w_o, b_o = data(N, D), data(H * D_V, D), data(D)
    w_q, w_k, w_v, b_k = data(D, H * D_K), data(D, G * D_K), data(D, G * D_V), data(G * D_K)
    out = Attention(heads=H, kv_heads=G)(x=x, w_q=w_q, w_k=w_k, w_v=w_v, b_k=b_k, w_o=w_o, b_o=b_o)
    rows = []
    for t in range(H):
        g = t // (H // G)
        q = x @ w_q[:, t * D_K : (t + 1) * D_K]
        k = x @ w_k[:, g * D_K : (g + 1) * D_K] + b_k[g * D_K : (g + 1) * D_K]
        rows.append(single(q, k, x @ w_v[:, g * D_V : (g + 1) * D_V]))
    assert same(out, EXACT.xp.concat(rows, axis=-1) @ w_o + b_o)


# -- packed projections -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, None), (2, None), (4, 2)])
def test_packed_projections_are_columns_of_one_matrix(heads: int, kv_heads: int | None) -> None:
    spec = Attention(heads=heads, kv_heads=kv_heads)
    apart = [data(D, n * D_K) for n in (heads, spec.key_heads, spec.key_heads)]
    biases = [data(w.shape[-1]) for w in apart]
    x, y, w_o = data(N, D), data(M, D), data(heads * D_K, D)
    names = {f"w_{r}": w for r, w in zip("qkv", apart, strict=True)} | {
        f"b_{r}": b for r, b in zip("qkv", biases, strict=True)
    }
    packed = Attention(heads=heads, kv_heads=kv_heads, packed=True)
    joined = {"w_in": EXACT.xp.concat(apart, axis=-1), "b_in": EXACT.xp.concat(biases, axis=-1), "w_o": w_o}
    assert same(packed(x=x, y=y, **joined), spec(x=x, y=y, w_o=w_o, **names))
    swapped = joined | {"w_in": EXACT.xp.concat([apart[0], apart[2], apart[1]], axis=-1)}
    assert not same(packed(x=x, y=y, **swapped), spec(x=x, y=y, w_o=w_o, **names))


# -- latents ----------------------------------------------------------------------------------------------------------
def latents(heads: int, queries: bool) -> dict[str, Any]:
    found = {
        "x": data(N, D), "w_dkv": data(D, L), "w_uk": data(L, heads * D_N), "w_uv": data(L, heads * D_V),
        "w_kr": data(D, D_R), "w_o": data(heads * D_V, D),
    }  # fmt: skip
    if queries:
        return found | {"w_dq": data(D, L_Q), "w_uq": data(L_Q, heads * (D_N + D_R))}
    return found | {"w_q": data(D, heads * (D_N + D_R))}


def by_heads(heads: int, given: dict[str, Any], shift: int = 0) -> Any:
    """Latent attention with keys and values made for each head."""
    concat, c = EXACT.xp.concat, given["x"] @ given["w_dkv"]
    q = given["x"] @ given["w_dq"] @ given["w_uq"] if "w_dq" in given else given["x"] @ given["w_q"]
    rows = []
    for t in range(heads):
        k = concat([c @ given["w_uk"][:, t * D_N : (t + 1) * D_N], given["x"] @ given["w_kr"]], axis=-1)
        head = q[:, t * (D_N + D_R) : (t + 1) * (D_N + D_R)]
        v = c @ given["w_uv"][:, t * D_V : (t + 1) * D_V]
        rows.append(single(head, k, v + shift, causal=True))
    return concat(rows, axis=-1) @ given["w_o"]


@pytest.mark.parametrize("absorbed", [False, True])
@pytest.mark.parametrize("queries", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
def test_latents_are_keys_and_values_of_low_rank(heads: int, queries: bool, absorbed: bool) -> None:
    given = latents(heads, queries)
    out = Attention(heads=heads, causal=True, latent=Latent(queries=queries, absorbed=absorbed))(**given)
    assert same(out, by_heads(heads, given))
    assert not same(out, by_heads(heads, given, shift=1))


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


# -- normalised queries and keys ---------------------------------------------------------------------------------------
def norm(x: np.ndarray, how: str, eps: float, gain: Any, bias: Any) -> np.ndarray:
    if how == "layer":
        x = x - x.mean(axis=-1, keepdims=True)
    size = (
        np.sqrt((x * x).sum(axis=-1, keepdims=True)) if how == "l2" else np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    )
    return np.asarray(x / size * gain + bias)


@pytest.mark.parametrize(("how", "eps", "names"), [
    ("rms", 0.25, "g_q g_k"), ("layer", 0.5, "g_q g_k beta_q beta_k"), ("l2", 0, ""), ("rms", 0, "g_k"),
])  # fmt: skip
def test_queries_and_keys_are_normalised_head_by_head(how: Any, eps: float, names: str) -> None:
    arrays = {n: _RNG.normal(size=s) for n, s in (("q", (2, N, 4)), ("k", (2, M, 4)), ("v", (2, M, D_V)))}
    more = {n: _RNG.normal(size=4) for n in names.split()}
    q, k = (norm(arrays[r], how, eps, more.get(f"g_{r}", 1), more.get(f"beta_{r}", 0)) for r in "qk")
    out = Attention(heads=2, qk_norm=how, eps=eps)(**arrays, **more)
    assert np.allclose(out, Attention()(q, k, arrays["v"]), rtol=1e-12)
    assert not np.allclose(out, Attention()(**arrays), rtol=1e-3)


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
    (Attention(packed=True), QKV, "packed projections need the tokens x"),
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
