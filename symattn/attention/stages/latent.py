"""Multi-head latent attention: latents, their parts with and without positions, and the same with matrices absorbed."""

from __future__ import annotations

from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention import latent, norms, projections
from symattn.attention.flow import Flow
from symattn.attention.notation import SYMBOLS
from symattn.attention.stages.roles import then
from symattn.document.notation import Transposed, call, commas


def latents(flow: Flow) -> None:
    """q in two parts, the shared part of the keys, and the latent; keys and values themselves unless absorbed."""
    asked = flow.spec.latent
    if asked is None:
        return
    source = "y" if "y" in flow.given else "x"
    if asked.queries:
        _compressed(flow, "cq", "x", "w_dq")
        _up(flow, "q", "c_q", "w_uq")
    _compressed(flow, "ckv", source, "w_dkv")
    formula = SYMBOLS[source] * SYMBOLS["w_kr"]
    reason = "the part of the keys with positions, shared by all heads"
    flow.add("k_r", projections.project, formula, (source, "w_kr"), role="k_r", reason=reason)
    for index, part in enumerate("nr"):
        reason = "the part with positions" if part == "r" else "the part without"
        run = partial(_part, index)
        flow.add(
            f"q_{part}",
            run,
            call("last" if part == "r" else "first", SYMBOLS["q"]),
            ("q", "k_r"),
            role=f"q_{part}",
            reason=reason,
        )
    flow.now["width"] = "q"
    flow.rotated = ("q_r", "k_r")
    if not asked.absorbed:
        _up(flow, "k_n", "c_kv", "w_uk")
        _up(flow, "v", "c_kv", "w_uv")


def _compressed(flow: Flow, letter: str, source: str, weight: str) -> None:
    asked = flow.spec.latent
    assert asked is not None
    gain = [n for n in (f"g_{letter}",) if n in flow.given]
    formula = SYMBOLS[source] * SYMBOLS[weight]
    name = f"c_{letter[1:]}"
    if asked.norm is None:
        flow.add(name, projections.project, formula, (source, weight), role=name, reason="a latent for each token")
        return
    formula = call("RMSNorm", formula, *(SYMBOLS[n] for n in gain))
    run = partial(_compress, asked.eps)
    flow.add(name, run, formula, (source, weight, *gain), role=name, reason="a latent for each token, normalised")


def _compress(eps: object, x: Array, w: Array, gain: Array | None = None) -> Array:
    return norms.rms_norm(projections.project(x, w), eps, gain)


def _up(flow: Flow, name: str, source: str, weight: str) -> None:
    heads = flow.spec.heads
    split = partial(projections.split_heads, heads=heads) if heads > 1 else None
    formula = flow.symbol(source) * SYMBOLS[weight]
    flow.add(name, then(projections.project, split), formula, (source, weight), role=name, reason="from the latent")


def _part(index: int, q: Array, k_r: Array) -> Any:
    return latent.split_parts(q, k_r)[index]


def joining(flow: Flow) -> None:
    """Both parts side by side again: q and k as the scores need them."""
    asked = flow.spec.latent
    if asked is None:
        return
    own, heads = "k_n", flow.spec.heads
    if asked.absorbed:
        own = "c_kv"
        formula = flow.symbol("q_n") * Transposed(SYMBOLS["w_uk"])
        absorb = partial(latent.absorb, heads=heads)
        reason = "what makes keys of latents goes into the queries"
        flow.add("q_absorbed", absorb, formula, ("q_n", "w_uk"), role="q_n", reason=reason)
    for role, part in (("q", "q_n"), ("k", own)):
        formula = call("concat", commas(flow.symbol(part), flow.symbol(f"{role}_r")))
        name = f"{role}_joined"
        run = latent.join if role == "q" else partial(_beside, heads, asked.absorbed)
        flow.add(name, run, formula, (part, f"{role}_r"), role=role, reason="both parts, side by side")
    if asked.absorbed:
        run = partial(_alike, flow.spec.heads)
        flow.add("v_absorbed", run, flow.symbol("c_kv"), ("c_kv",), role="v", reason="in place of the values")


def _beside(heads: int, absorbed: bool, own: Any, positional: Any) -> Array:
    """Keys: the shared part beside each head's, or beside latents that are the same for every head."""
    return _alike(heads, latent.join(own, positional)) if absorbed else latent.join(own, _alike(heads, positional))


def _alike(heads: int, x: Array) -> Array:
    """The same for every head."""
    return x[..., None, :, :] if heads > 1 else x


def expanding(flow: Flow) -> None:
    """The weighted latents as weighted values."""
    asked = flow.spec.latent
    if asked is None or not asked.absorbed:
        return
    formula = flow.symbol("output") * SYMBOLS["w_uv"]
    run = partial(latent.expand, heads=flow.spec.heads)
    reason = "values are made of the weighted latents alone"
    flow.add("attended", run, formula, ("output", "w_uv"), role="output", reason=reason)
