"""Queries, keys and values: as they are given, from tokens by projections, or from a latent, and split into heads.

With a latent (multi-head latent attention) they have a part with and a part without positions; ``absorbed``, the
matrices of keys and values go into the queries and the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention import latent, norms, projections
from symattn.attention.flow import EntryLines, Flow, entries
from symattn.attention.letters_of_attention import ARRAYS, affine
from symattn.document.notation import Node, Transposed, call, commas


def roles(flow: Flow) -> None:
    """q, k and v from x (and y): projected where weights are given, and split into heads."""
    if flow.spec.packed:
        _unpacked(flow)
    for role in "qkv":
        source = "y" if "y" in flow.given and role != "q" else "x"
        if f"w_{role}" in flow.given:
            heads = flow.spec.heads_of[role]
            reason = f"{heads} head{'s' * (heads > 1)}, one block of columns each" if flow.spec.heads > 1 else ""
            project(flow, role, source, f"w_{role}", f"b_{role}", heads=heads, role=role, reason=reason)
        elif flow.spec.latent is None:
            reason = "no parameters: the tokens themselves"
            flow.add(role, _same, _same, (source,), role=role, reason=reason, entries=_SAME)


_SAME = "out[i,l] = 0[i,l]"


def _same(x: object) -> Any:
    return x


def _unpacked(flow: Flow) -> None:
    """w_q, w_k, w_v (and the biases) from the columns q | k | v of one matrix."""
    for packed in [n for n in ("w_in", "b_in") if n in flow.given]:
        for role in "qkv":
            name = f"{packed[0]}_{role}"
            run = partial(projections.unpack, role=role, heads=flow.spec.heads, key_heads=flow.spec.key_heads)
            writes, heads = partial(call, "columns"), (flow.spec.heads, flow.spec.key_heads)
            typed = partial(_columns_entries, name, *heads)
            flow.add(name, run, writes, (packed,), role=name, reason=f"the columns of {role}", entries=typed)
            flow.given |= {name}


def _columns_entries(name: str, heads: int, key_heads: int) -> EntryLines:
    """w_ml = w_{in,m,l+start}."""
    before = {"q": 0, "k": heads, "v": heads + key_heads}[name[-1]]
    start = f" + {before if before > 1 else ''} width_w_in" if before else ""
    row = "m," if name[0] == "w" else ""
    return entries(f"out[{row}l] = 0[{row}l{start}] -- columns q, k, v in order")


def project(
    flow: Flow, name: str, source: str, weight: str, bias: str = "", *, heads: int, role: str = "", reason: str
) -> None:
    """Add an array times a matrix, with the bias where it is given, in so many heads where there are several."""

    def to_heads(x: Array, w: Array, b: Array | None = None) -> Array:
        return projections.split_heads(projections.project(x, w, b), heads)

    run = to_heads if flow.spec.heads > 1 else projections.project
    names = (source, weight, bias) if bias in flow.given else (source, weight)
    typed = partial(_product_entries, name, flow.spec.heads > 1, len(names) > 2)
    flow.add(name, run, affine, names, role=role, reason=reason, entries=typed)


def _product_entries(name: str, several: bool, biased: bool = False) -> EntryLines:
    """q_il = Σ_m x_im w_ml, or for head a the columns from (a − 1)d_k + 1 on."""
    by_head = "[" in ARRAYS[name].shape
    head, column = ("a?,", "a?·width + l") if by_head else ("", "l")
    right = f"Σ_{{m=1}}^rows_1 0[i,m] 1[m,{column}]" + f" + 2[{column}]" * biased
    return entries(f"out[{head}i,l] = {right}{' -- head $a$, column $l$' * (by_head and several)}")


def sharing(flow: Flow) -> None:
    """Each head of keys and values for all the heads of queries that read it."""
    times = flow.spec.group
    if times == 1:
        return
    for role, words in (("k", "keys"), ("v", "values")):
        run = partial(projections.repeat_heads, times=times)
        reason = f"each head of {words} is read by {times} heads of queries"
        writes: Callable[..., Node] = lambda x: call("repeat", x, times)  # noqa: E731
        typed = f"out[a,j,l] = 0[b,j,l] -- $b = a/{times}$, rounded up"
        flow.add(f"{role}_shared", run, writes, (role,), role=role, reason=reason, entries=typed)


# -- latents -----------------------------------------------------------------------------------------------------------
def latents(flow: Flow) -> None:
    """q in two parts, the shared part of the keys, and the latent; keys and values themselves unless absorbed."""
    asked = flow.spec.latent
    assert asked is not None
    source = "y" if "y" in flow.given else "x"
    up = partial(project, flow, heads=flow.spec.heads, reason="from the latent")
    if asked.queries:
        _compressed(flow, "c_q", "x", "w_dq", "g_cq")
        up("q", "c_q", "w_uq", role="q")
    _compressed(flow, "c_kv", source, "w_dkv", "g_ckv")
    reason = "the part of the keys with positions, shared by all heads"
    of_keys = partial(_product_entries, "k_r", False)
    flow.add("k_r", projections.project, affine, (source, "w_kr"), role="k_r", reason=reason, entries=of_keys)
    for index, (part, words) in enumerate((("first", "without"), ("last", "with positions"))):
        name, run = f"q_{'nr'[index]}", partial(_part, index)
        writes: Callable[..., Node] = lambda q, _, part=part: call(part, q)  # noqa: E731
        typed = f"out[i,l] = 0[i,l{' + width_q_n' * index}]"
        flow.add(name, run, writes, ("q", "k_r"), role=name, reason=f"the part {words}", entries=typed)
    flow.now["width"] = "q"
    flow.rotated = ("q_r", "k_r")
    if not asked.absorbed:
        up("k_n", "c_kv", "w_uk", role="k_n")
        up("v", "c_kv", "w_uv", role="v")


def _compressed(flow: Flow, name: str, source: str, weight: str, gain: str) -> None:
    asked = flow.spec.latent
    assert asked is not None
    if asked.norm is None:
        run, reason, typed = projections.project, "a latent for each token", partial(_product_entries, name, False)
        flow.add(name, run, affine, (source, weight), role=name, reason=reason, entries=typed)
        return
    eps = asked.eps

    def normed(x: Array, w: Array, gain: Array | None = None) -> Array:
        return norms.rms_norm(projections.project(x, w), eps, gain)

    def formula(x: Node, w: Node, *gain: Node) -> Node:
        return call("RMSNorm", x * w, *gain)

    names = (source, weight, gain) if gain in flow.given else (source, weight)
    before = "r_il = Σ_{m=1}^rows_1 0[i,m] 1[m,l] -- before it is normalised"
    after = f"out[i,l] = {root_entries('r_il', 'r_im', eps, '2[l]' * (len(names) > 2))}"
    typed, reason = partial(entries, before, after, eps=Fraction(eps)), "a latent for each token, normalised"
    flow.add(name, normed, formula, names, role=name, reason=reason, entries=typed)


def root_entries(x: str, member: str, eps: object, gain: str) -> str:
    """Return g x / √(1/d Σ_m x_m² + ε), as entries are typed."""
    return f"({gain} {x})/√((Σ_{{m=1}}^width {member}²)/width{' + @eps' if eps else ''})"


def _part(index: int, q: Array, k_r: Array) -> Array:
    """The columns of q without a position, or the last ones, as many as the shared part of the keys has, with one."""
    width = q.shape[-1] - k_r.shape[-1]
    return q[..., width:] if index else q[..., :width]


def joining(flow: Flow) -> None:
    """Both parts side by side again: q and k as the scores need them."""
    asked, heads = flow.spec.latent, flow.spec.heads
    assert asked is not None
    if asked.absorbed:
        absorb = partial(latent.absorb, heads=heads)
        reason = "what makes keys of latents goes into the queries"
        typed = "out[a?,i,l] = Σ_{m=1}^width_q_n 0[i,m] 1[l,a?·width_q_n + m]"
        writes: Callable[..., Node] = lambda q, w: q * Transposed(w)  # noqa: E731
        flow.add("q_absorbed", absorb, writes, ("q_n", "w_uk"), role="q_n", reason=reason, entries=typed)
    own = "c_kv" if asked.absorbed else "k_n"
    for role, part, run in (("q", "q_n", latent.join), ("k", own, partial(_beside, heads, asked.absorbed))):
        names = (part, f"{role}_r")
        reason, beside = "both parts, side by side", partial(_joined_entries, "j" if role == "k" else "i")
        writes = lambda own, positional: call("concat", commas(own, positional))  # noqa: E731
        flow.add(f"{role}_joined", run, writes, names, role=role, reason=reason, entries=beside)
    if asked.absorbed:
        run, typed = partial(_alike, heads), "out[j,l] = 0[j,l] -- the same for every head"
        flow.add("v_absorbed", run, _same, ("c_kv",), role="v", reason="in place of the values", entries=typed)


def _joined_entries(i: str) -> EntryLines:
    first = f"out[{i},l] = 0[{i},l] for $l ≤ width_0$"
    return entries(first, f"out[{i},l] = 1[{i},l − width_0] for $l > width_0$")


def _beside(heads: int, absorbed: bool, own: Array, positional: Array) -> Array:
    """Keys: the shared part beside each head's, or beside latents that are the same for every head."""
    return _alike(heads, latent.join(own, positional)) if absorbed else latent.join(own, _alike(heads, positional))


def _alike(heads: int, x: Array) -> Array:
    """Repeat an array for every head."""
    return x[..., None, :, :] if heads > 1 else x
