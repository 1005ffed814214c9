"""Norms of queries, keys and values, and queries and keys that are cut to their first columns."""

from __future__ import annotations

from functools import partial

from symattn.attention import scores
from symattn.attention.flow import Flow, Stage
from symattn.attention.norms import NormKind
from symattn.attention.stages import positions, tokens
from symattn.attention.stages.norming import add_norm


def norming(flow: Flow, place: str) -> None:
    """Normalise queries and keys, or keys alone, at this place beside their rotation.

    Over all heads: Groeneveld et al., OLMo 2 (2024), §3.3; MiniMax-M2 (2025). Keys alone: Kimi Team, Attention
    Residuals (2026), where the keys are outputs of layers and the query is learned.
    """
    if flow.spec.qk_norm_place == place:
        for role in flow.spec.normed_roles:
            over_heads = flow.spec.qk_norm_over == "heads"
            _add_norm_of_vectors(flow, role, flow.spec.qk_norm, over_heads)


def norming_values(flow: Flow) -> None:
    """Normalise values. Source: Gemma 3n, Gemma 4 (2025), with ε and without a gain."""
    _add_norm_of_vectors(flow, "v", flow.spec.value_norm)


def _add_norm_of_vectors(
    flow: Flow, role: str, kind: NormKind | None, over_heads: bool = False
) -> None:
    assert kind is not None
    parameters = {"gain": f"g_{role}", "bias": f"beta_{role}"} if kind != "l2" else {}
    add_norm(flow, f"{role}_normed", role, kind, flow.spec.eps, **parameters, over_heads=over_heads)


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
