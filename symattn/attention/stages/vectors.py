"""Norms of queries, keys and values, and queries and keys that are cut to their first columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention import norms, projections, scores
from symattn.attention.flow import Flow, Stage
from symattn.attention.stages import positions, tokens
from symattn.document.notation import WrittenNumber

# How formulas name the norms of queries, keys and values.
_WORDS = {"rms": "RMSNorm", "layer": "LayerNorm", "l2": "unit"}


def norming(flow: Flow, place: str) -> None:
    """Normalise queries and keys, or keys alone, at this place beside their rotation.

    Over all heads: Groeneveld et al., OLMo 2 (2024), §3.3; MiniMax-M2 (2025). Keys alone: Kimi Team, Attention
    Residuals (2026), where the keys are outputs of layers and the query is learned.
    """
    if flow.spec.qk_norm_place == place:
        for role in flow.spec.normed_roles:
            across = flow.spec.qk_norm_over == "heads"
            _add_norm_step(flow, role, str(flow.spec.qk_norm), across)


def norming_values(flow: Flow) -> None:
    """Normalise values. Source: Gemma 3n, Gemma 4 (2025), with ε and without a gain."""
    _add_norm_step(flow, "v", str(flow.spec.value_norm))


def _add_norm_step(flow: Flow, role: str, kind: str, across: bool = False) -> None:
    """Normalise the vectors of a role, or those of all heads ``across``, with a gain and a bias if they are given."""
    names = [n for n in (f"g_{role}", f"beta_{role}") if n in flow.given]
    # A call may give the bias alone, so that the first letter tells which of both a parameter is.
    parameters = tuple(n[0] for n in names)
    run = (
        norms.unit if kind == "l2" else partial(_normalise_vectors, kind, flow.spec.eps, parameters)
    )
    reason = "head by head"
    # Vectors of length 1 have neither ε nor parameters.
    if kind == "l2":
        reason = "of length 1, head by head"
    elif across:
        run = partial(_across_heads, run, flow.spec.heads_of[role])
        reason = "over the columns of all heads together"
    written = f"{_WORDS[kind]}({', '.join(f'@{place}' for place in range(1 + len(names)))})"
    count = "h_kv" if role == "k" and flow.spec.group > 1 else "h"
    entries = partial(_normed_entries_across_heads, count) if across else _normed_entries
    typed, of = partial(entries, kind, bool(flow.spec.eps), role, names), (role, *names)
    values = {"eps": WrittenNumber(flow.spec.eps)}
    flow.add(
        f"{role}_normed",
        run,
        written,
        of,
        role=role,
        reason=reason,
        entries=typed,
        values=values,
        errors="rounded",
    )


def _normed_entries(kind: str, eps: bool, role: str, names: list[str]) -> str:
    i = "i" if role == "q" else "j"
    x, member = f"0[{i},l]", f"0[{i},m]"
    if kind == "l2":
        return f"out[{i},l] = {x}/√(Σ_{{m=1}}^width {member}²)"
    first = f"r_{i}l = {x} − (Σ_{{m=1}}^width {member})/width -- less the mean"
    if kind == "layer":
        x, member = f"r_{i}l", f"r_{i}m"
    gain, bias = (f"{n}[l]" if n in names else "" for n in (f"g_{role}", f"beta_{role}"))
    whole = (
        f"out[{i},l] = {tokens.root_entries(x, member, eps, gain)}{f' + {bias}' if bias else ''}"
    )
    return f"{first}\n{whole}" if kind == "layer" else whole


def _normed_entries_across_heads(
    count: str, kind: str, eps: bool, role: str, names: list[str]
) -> str:
    """Return the entries of a norm whose means are over the columns of all ``count`` heads."""
    i = "i" if role == "q" else "j"
    x, of_all = f"0[a,{i},l]", f"Σ_{{b=1}}^{count} Σ_{{m=1}}^width"
    centred = f"μ_{i} = ({of_all} 0[b,{i},m])/({count} width) -- the mean over all heads"
    less = f" − μ_{i}" if kind == "layer" else ""
    square = f"({of_all} (0[b,{i},m]{less})²)/({count} width)"
    gain, bias = (f"{n}[a?·width + l]" if n in names else "" for n in (f"g_{role}", f"beta_{role}"))
    member = f"({x}{less})" if less else x
    whole = f"({gain} {member})/√({square}{' + @eps' if eps else ''})"
    out = f"out[a,{i},l] = {whole}{f' + {bias}' if bias else ''}"
    return f"{centred}\n{out}" if kind == "layer" else out


def _across_heads(norm: Callable[..., Array], heads: int, x: Array, *parameters: Any) -> Array:
    """Return the norm of the columns of all heads side by side, in heads (…, h, n, d) as before."""
    merged = projections.merge_heads(x)
    return projections.split_heads(norm(merged, *parameters), heads)


def _normalise_vectors(
    kind: str, eps: Any, which: tuple[str, ...], x: Array, *parameters: Any
) -> Array:
    inputs = dict(zip(which, parameters, strict=True))
    norm = norms.rms_norm if kind == "rms" else norms.layer_norm
    return norm(x, eps, inputs.get("g"), inputs.get("b"))


def truncating(flow: Flow) -> None:
    """Keep the first columns of queries and keys; d_k stays the full width."""
    width = flow.spec.truncate
    assert width is not None
    # The scale still uses the full width, unless a latent has set it before.
    flow.now.setdefault("width", flow.now["q"])
    for role in "qk":
        run, reason = partial(scores.truncate, width=width), f"the first {width} columns"
        written, typed = f"first(@0, {width})", "out[i,l] = 0[i,l]"
        flow.add(
            f"{role}_cut",
            run,
            written,
            (role,),
            role=role,
            reason=reason,
            entries=typed,
            errors="moves",
        )


#: The stages of queries, keys and values, in order.
STAGES: tuple[Stage, ...] = (
    ("x", tokens.roles),
    ("latent", tokens.latents),
    ("qk_norm", partial(norming, place="before")),
    ("position", positions.rotating),
    ("qk_norm", partial(norming, place="after")),
    ("value_norm", norming_values),
    ("latent", tokens.joining),
    ("kv_heads", tokens.sharing),
    ("truncate", truncating),
)
