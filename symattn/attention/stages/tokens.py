"""Queries, keys and values: given, projected from tokens, or made from a latent, and split into heads.

With a latent (multi-head latent attention) they have a part with and a part without positions; if ``absorbed``, the
matrices of keys and values go into the queries and the outputs.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from symattn.arrays.array import Array
from symattn.attention import latent, norms, projections
from symattn.attention.flow import Flow
from symattn.attention.letters_of_attention import ARRAYS


def roles(flow: Flow) -> None:
    """Add q, k and v from x (and y): projected if weights are given, and split into heads."""
    # Only packed arrays that the caller passes have columns to cut.
    packed_names = [n for n in ("w_in", "b_in") if flow.spec.packed and n in flow.given]
    for packed in packed_names:  # with the columns q | k | v
        for role in "qkv":
            name = f"{packed[0]}_{role}"
            run = partial(
                projections.unpack, role=role, heads=flow.spec.heads, key_heads=flow.spec.key_heads
            )
            typed = partial(_columns_entries, name, flow.spec.heads, flow.spec.key_heads)
            flow.add(
                name,
                run,
                "columns(@0)",
                (packed,),
                role=name,
                reason=f"the columns of {role}",
                entries=typed,
                errors="moves",
            )
            # The columns count as inputs from here on, so that the projections below use them.
            flow.given |= {name}
    for role in "qkv":
        # In cross-attention keys and values are projected from the other sequence.
        source = "y" if "y" in flow.given and role != "q" else "x"
        if f"w_{role}" in flow.given:
            heads = flow.spec.heads_of[role]
            reason = (
                f"{heads} head{'s' * (heads > 1)}, one block of columns each"
                if flow.spec.heads > 1
                else ""
            )
            project(
                flow, role, source, f"w_{role}", f"b_{role}", heads=heads, role=role, reason=reason
            )
        # Latents make queries, keys and values themselves.
        elif flow.spec.latent is None:
            reason = "no parameters: the tokens themselves"
            flow.add(
                role,
                lambda x: x,
                "@0",
                (source,),
                role=role,
                reason=reason,
                entries="out[i,l] = 0[i,l]",
                errors="moves",
            )


def _columns_entries(name: str, heads: int, key_heads: int) -> str:
    """w_ml = w_{in,m,l+start}."""
    # The columns are in the order q, k, v, in heads; k and v may have fewer heads.
    before = {"q": 0, "k": heads, "v": heads + key_heads}[name[-1]]
    start = f" + {before if before > 1 else ''} width_w_in" if before else ""
    row = "m," if name[0] == "w" else ""
    return f"out[{row}l] = 0[{row}l{start}] -- columns q, k, v in order"


def project(
    flow: Flow,
    name: str,
    source: str,
    weight: str,
    bias: str = "",
    *,
    heads: int,
    role: str = "",
    reason: str,
) -> None:
    """Add an array times a matrix, plus the bias if it is given, split into ``heads`` if there are several."""

    def to_heads(x: Array, w: Array, b: Array | None = None) -> Array:
        return projections.split_heads(projections.project(x, w, b), heads)

    # One head needs no axis of heads.
    run = to_heads if flow.spec.heads > 1 else projections.project
    biased = bias in flow.given
    names, written = (source, weight, *[bias] * biased), "@0 @1" + " + @2" * biased
    typed = partial(_product_entries, name, flow.spec.heads > 1, biased)
    flow.add(name, run, written, names, role=role, reason=reason, entries=typed, errors="products")


def _product_entries(name: str, several: bool, biased: bool = False) -> str:
    """q_il = Σ_m x_im w_ml, or for head a the columns from (a − 1)d_k + 1 on."""
    by_head = "[" in ARRAYS[name].shape
    head, column = ("a?,", "a?·width + l") if by_head else ("", "l")
    right = f"Σ_{{m=1}}^rows_1 0[i,m] 1[m,{column}]" + f" + 2[{column}]" * biased
    return f"out[{head}i,l] = {right}{' -- head $a$, column $l$' * (by_head and several)}"


def sharing(flow: Flow) -> None:
    """Repeat each head of keys and values for the heads of queries that read it."""
    times = flow.spec.group
    # Each head of queries has keys of its own.
    if times == 1:
        return
    for role, words in (("k", "keys"), ("v", "values")):
        run = partial(projections.repeat_heads, times=times)
        reason = f"each head of {words} is read by {times} heads of queries"
        written, typed = (
            f"repeat(@0, {times})",
            f"out[a,j,l] = 0[b,j,l] -- $b = a/{times}$, rounded up",
        )
        flow.add(
            f"{role}_shared",
            run,
            written,
            (role,),
            role=role,
            reason=reason,
            entries=typed,
            errors="moves",
        )


# -- latents -----------------------------------------------------------------------------------------------------------
def latents(flow: Flow) -> None:
    """Add q in two parts, the shared part of the keys, the latent and, unless absorbed, the keys and values."""
    fields = flow.spec.latent
    assert fields is not None
    source = "y" if "y" in flow.given else "x"
    up = partial(project, flow, heads=flow.spec.heads, reason="from the latent")
    if fields.queries:
        _add_latent_steps(flow, "c_q", "x", "w_dq", "g_cq")
        up("q", "c_q", "w_uq", role="q")
    _add_latent_steps(flow, "c_kv", source, "w_dkv", "g_ckv")
    reason = "the part of the keys with positions, shared by all heads"
    of_keys = partial(_product_entries, "k_r", False)
    flow.add(
        "k_r",
        projections.project,
        "@0 @1",
        (source, "w_kr"),
        role="k_r",
        reason=reason,
        entries=of_keys,
        errors="products",
    )
    for index, (part, words) in enumerate((("first", "without"), ("last", "with positions"))):
        name, run = f"q_{'nr'[index]}", partial(_split_query_columns, index)
        written, typed = f"{part}(@0)", f"out[i,l] = 0[i,l{' + width_q_n' * index}]"
        flow.add(
            name,
            run,
            written,
            ("q", "k_r"),
            role=name,
            reason=f"the part {words}",
            entries=typed,
            errors="products",
        )
    # The scale uses the width of the whole query, before it is cut and absorbed.
    flow.now["width"] = "q"
    # Only the parts with positions are rotated; the others must commute with the up-projections.
    flow.rotated = ("q_r", "k_r")
    # If absorbed, keys and values are never computed from the latents.
    if not fields.absorbed:
        up("k_n", "c_kv", "w_uk", role="k_n")
        up("v", "c_kv", "w_uv", role="v")


def _add_latent_steps(flow: Flow, name: str, source: str, weight: str, gain: str) -> None:
    fields = flow.spec.latent
    assert fields is not None
    if fields.norm is None:
        entries, reason = partial(_product_entries, name, False), "a latent for each token"
        flow.add(
            name,
            projections.project,
            "@0 @1",
            (source, weight),
            role=name,
            reason=reason,
            entries=entries,
            errors="products",
        )
        return
    eps = fields.eps

    def normed(x: Array, w: Array, gain: Array | None = None) -> Array:
        return norms.rms_norm(projections.project(x, w), eps, gain)

    gained = gain in flow.given
    names, written = (source, weight, *[gain] * gained), f"RMSNorm(@0 @1{', @2' * gained})"
    before = "r_il = Σ_{m=1}^rows_1 0[i,m] 1[m,l] -- before it is normalised"
    typed = f"{before}\nout[i,l] = {root_entries('r_il', 'r_im', eps, '2[l]' * gained)}"
    reason = "a latent for each token, normalised"
    flow.add(
        name,
        normed,
        written,
        names,
        role=name,
        reason=reason,
        entries=typed,
        values={"eps": Fraction(eps)},
        errors="rounded",
    )


def root_entries(x: str, member: str, eps: object, gain: str) -> str:
    """Return g x / √(1/d Σ_m x_m² + ε) in the notation of entries."""
    return f"({gain} {x})/√((Σ_{{m=1}}^width {member}²)/width{' + @eps' if eps else ''})"


def _split_query_columns(index: int, q: Array, k_r: Array) -> Array:
    """Return the columns of q without positions (``index`` 0), or those with, as many as in k_r."""
    # The columns with positions are the last ones, as many as the keys share.
    width = q.shape[-1] - k_r.shape[-1]
    return q[..., width:] if index else q[..., :width]


def joining(flow: Flow) -> None:
    """Concatenate the two parts of q and of k again, as the scores need them."""
    fields, heads = flow.spec.latent, flow.spec.heads
    assert fields is not None
    # By (q W) · c = q · (c Wᵀ) the matrix of the keys may multiply the queries instead.
    if fields.absorbed:
        absorb = partial(latent.absorb, heads=heads)
        reason = "what makes keys of latents goes into the queries"
        typed = "out[a?,i,l] = Σ_{m=1}^width_q_n 0[i,m] 1[l,a?·width_q_n + m]"
        flow.add(
            "q_absorbed",
            absorb,
            "@0 @1ᵀ",
            ("q_n", "w_uk"),
            role="q_n",
            reason=reason,
            entries=typed,
            errors="own",
        )
    own = "c_kv" if fields.absorbed else "k_n"
    for role, part, run in (
        ("q", "q_n", latent.join),
        ("k", own, partial(_joined_keys, heads, fields.absorbed)),
    ):
        names = (part, f"{role}_r")
        reason, i = "both parts, side by side", "j" if role == "k" else "i"
        typed = f"out[{i},l] = 0[{i},l] for $l ≤ width_0$\nout[{i},l] = 1[{i},l − width_0] for $l > width_0$"
        flow.add(
            f"{role}_joined",
            run,
            "concat(@0, @1)",
            names,
            role=role,
            reason=reason,
            entries=typed,
            errors="moves",
        )
    if fields.absorbed:
        run, typed = (
            partial(_add_axis_for_heads, heads),
            "out[j,l] = 0[j,l] -- the same for every head",
        )
        flow.add(
            "v_absorbed",
            run,
            "@0",
            ("c_kv",),
            role="v",
            reason="in place of the values",
            entries=typed,
            errors="own",
        )


def _joined_keys(heads: int, absorbed: bool, own: Array, positional: Array) -> Array:
    """Join the shared part of the keys to each head's own part, or to the latents, which all heads share."""
    return (
        _add_axis_for_heads(heads, latent.join(own, positional))
        # Latents are shared by all heads, so both parts get the axis of heads at once.
        if absorbed
        else latent.join(own, _add_axis_for_heads(heads, positional))
    )


def _add_axis_for_heads(heads: int, x: Array) -> Array:
    """Repeat an array for every head."""
    return x[..., None, :, :] if heads > 1 else x
