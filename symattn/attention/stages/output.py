"""The output: A V, the heads side by side, the output projection if one is given, and the gate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from symattn.arrays.array import Array
from symattn.attention import latent, projections, scores, softmax
from symattn.attention.flow import Flow, Stage
from symattn.attention.positions.position_fields import Shaw
from symattn.attention.stages import positions


def weigh_values(flow: Flow) -> None:
    """Add the weighted values and, if these are latents, their expansion."""
    spec = flow.spec
    absorbed = spec.latent is not None and spec.latent.absorbed
    reason = f"each output is a weighted {'mean' if spec.averages else 'sum'} of the values"
    run, written, of = scores.weighted_values, "@0 @1", ["weights", "v"]
    # Shaw's positions add rows of a table to the values, too.
    if isinstance(spec.position, Shaw) and spec.position.values:
        run, written = (
            partial(positions.valued, spec.position.most, spec.alignment),
            "@0 @1 + rel(@0, @2)",
        )
        of += ["a_v"]
    typed = "out[i,l] = Σ_{j=1}^n_k 0[i,j] " + (
        "{1[j,l] + 2[@distance]}" if len(of) > 2 else "1[j,l]"
    )
    weighed = "attended_latents" if absorbed else "attended"

    def write_entries() -> str:
        # Known once all stages have run: the output itself keeps the heads as they were given.
        is_last = flow.steps[-1].row == weighed
        return typed + " -- in each head" * (spec.heads > 1 and not is_last)

    flow.add(
        weighed, run, written, of, role="output", reason=reason, entries=write_entries, errors="own"
    )
    if absorbed:
        flow.add(
            "attended",
            partial(latent.expand, heads=spec.heads),
            "@0 @1",
            ("output", "w_uv"),
            role="output",
            reason="values are made of the weighted latents alone",
            entries="out[a?,i,l] = Σ_{m=1}^rows_1 0[i,m] 1[m,a?·d_v + l]",
            errors="own",
        )


def gate_heads(flow: Flow) -> None:
    """Multiply each head's output by the sigmoid of the gate, unless it stands behind the projection."""
    if not flow.spec.gates_projection:
        _add_gate_step(flow)


def project_heads(flow: Flow) -> None:
    """Join the heads of tokens, and project them if there is a matrix."""
    spec = flow.spec
    # Without tokens the caller passed heads apart, and the output stays apart.
    merge = spec.heads > 1 and "x" in flow.given
    # Outputs of weighted latents are "attended": without a projection, one more step names them "output".
    unnamed = spec.latent is not None and spec.latent.absorbed and not spec.output_gate
    if not merge and "w_o" not in flow.given and not unnamed:
        return
    names = [n for n in ("w_o", "b_o") if n in flow.given]
    reason = "output projection" if names else "the heads side by side" if merge else ""
    written = ("concat(@0)" if merge else "@0") + "".join((" @1", " + @2")[: len(names)])
    flow.add(
        "projected",
        partial(_merge_heads_and_project, merge),
        written,
        ("output", *names),
        role="output",
        reason=reason,
        entries=_merged_entries(spec.heads > 1, names),
        errors="projects",
        joins_heads=merge,
    )


def _add_gate_step(flow: Flow) -> None:
    """Multiply each head's output, or the projected output, by the sigmoid of the gate.

    Source: Qiu et al., Gated Attention for Large Language Models (2025), §2.2: a gate after the weighted values (G1),
    for each element or each head, or after the output projection (G5); Qwen3-Next (2025), for each element of a head.
    """

    def run(h: Array, gate: Array) -> Array:
        return h * softmax.sigmoid_weights(gate, 0, flow.spec.stabilised)

    flow.add(
        "gated",
        run,
        "@0 ⊙ sigmoid(@1)",
        ("output", "gate"),
        role="output",
        reason="each number times a share that the query chooses",
        entries="out[i,l] = 0[i,l]/(1 + e^{−1[i,l]})",
        errors="gates",
    )


def _merged_entries(several: bool, names: Sequence[str]) -> str:
    if not names:
        return "out[i,a?·d_v + l] = 0[a?,i,l]" + " -- the heads side by side" * several
    merged = f"out[i,l] = Σ_{{m=1}}^{{{'h ' * several}d_v}} 0[i,m] w_o[m,l]" + " + b_o[l]" * (
        "b_o" in names
    )
    return merged + " -- the heads side by side: column $m$ is head $m/d_v$, rounded up" * several


def _merge_heads_and_project(
    merge: bool, x: Array, w: Array | None = None, b: Array | None = None
) -> Array:
    heads = projections.merge_heads(x) if merge else x
    return heads if w is None else projections.project(heads, w, b)


#: The stages of the output; the last step of all is called ``output``.
STAGES: tuple[Stage, ...] = (
    ("", weigh_values),
    ("output_gate", gate_heads),
    ("", project_heads),
    ("gates_projection", _add_gate_step),
)
