"""``Block``: one layer of a Transformer, with its parameters by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from symattn.attention.flow import Step, run_steps
from symattn.attention.layers.block import Block, norm_places
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.inputs import measure_largest_score
from symattn.bounds.mistake import Mistake, Wrong
from symattn.bounds.reference import Run
from symattn.bounds.reference import run as run_attention
from symattn.document.errors import InputError
from symattn.verification.definitions import attending
from symattn.verification.definitions.attention_steps import change_attention
from symattn.verification.definitions.block_flow import INPUTS_OF_ATTENTION, PREFIX, BlockFlow
from symattn.verification.definitions.definition_forms import Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import (
    InnerAttention,
    WrongAttention,
    with_leading_axes,
)
from symattn.verification.definitions.inputs_by_letters import FAMILIES
from symattn.verification.definitions.output_run import OutputRun
from symattn.verification.definitions.stated_definition import define_in_steps
from symattn.verification.input_source import Array, Random
from symattn.verification.rules import by_role
from symattn.verification.rules.by_role import OF_ATTENTION
from symattn.verification.rules.steps import left_out

# n, d_model, d_k, d_v and the hidden width of each case.
_SIZES = (
    (2, 3, 2, 2, 3),
    (3, 4, 2, 3, 5),
    (1, 2, 2, 2, 2),
    (4, 4, 4, 4, 8),
    (5, 6, 2, 2, 4),
    (3, 2, 3, 1, 6),
)
_WORDS = {
    "attention.w_q": "w_q wq q_proj q_weight",
    "attention.w_k": "w_k wk k_proj k_weight",
    "attention.w_v": "w_v wv v_proj v_weight",
    "attention.w_o": "w_o wo o_proj out_proj o_weight",
    "mlp.w_up": "w_up up_proj w1 w_1 fc1 up w_in",
    "mlp.b_up": "b_up b1 b_1 fc1_bias",
    "mlp.w_gate": "w_gate gate_proj gate w3",
    "mlp.w_down": "w_down down_proj w2 w_2 fc2 down w_out",
    "mlp.b_down": "b_down b2 b_2 fc2_bias",
    "attention_norm.gain": "g1 gain1 ln1_weight norm1_weight ln1_g gamma1 ln_1_weight input_layernorm_weight",
    "attention_norm.bias": "ln1_bias norm1_bias ln1_b beta1 bias1 ln_1_bias",
    "mlp_norm.gain": "g2 gain2 ln2_weight norm2_weight ln2_g gamma2 ln_2_weight post_attention_layernorm_weight",
    "mlp_norm.bias": "ln2_bias norm2_bias ln2_b beta2 bias2 ln_2_bias",
}


def subject(spec: Block) -> Definition:
    """Return the definition of the layer."""
    a = spec.attention
    # Such layers have other inputs, or norms, than the names here.
    if spec.cross or a.packed or a.latent or spec.order == "sandwich":
        raise InputError(
            "Block: verify takes self-attention with w_q, w_k, w_v, and one norm a part"
        )
    heads = "h*" if a.heads > 1 else ""
    group = "g*" if a.heads > 1 else ""
    shapes = {
        "attention.w_q": f"m {heads}d_k",
        "attention.w_k": f"m {group}d_k",
        "attention.w_v": f"m {group}d_v",
        "attention.w_o": f"{heads}d_v m",
    }
    if spec.activation:
        shapes |= {"mlp.w_up": "m f", "mlp.b_up": "f", "mlp.w_down": "f m", "mlp.b_down": "m"}
        shapes |= {"mlp.w_gate": "m f"} if spec.gated else {}
    for norm in norm_places(spec):
        shapes |= {f"{norm}.gain": "m", f"{norm}.bias": "m"}
    entries = {
        # Gains are positive quarters, other weights quarters of either sign.
        n: partial(_draw_quarter_entries, *((2, 7) if n.endswith("gain") else (-4, 5)))
        for n in shapes
    }
    weights = tuple(
        Input(n, s, _WORDS[n], entries[n], ".w_" in n, step="norm" if "norm" in n else "project")
        for n, s in shapes.items()
    )
    flow = BlockFlow(spec)
    run_variant = partial(change_attention, flow)
    wrong = WrongAttention(a, frozenset(flow.taken), run_variant)
    letters = [dict(zip(("n", "m", "d_k", "d_v", "f"), s, strict=True)) for s in _SIZES]
    letters = [s | ({"h": a.heads, "g": a.key_heads} if a.heads > 1 else {}) for s in letters]
    return define_in_steps(
        flow,
        "output",
        (Input("x", "b n m", "hidden_states h tokens inputs"), *weights),
        [s | ({"b": 2} if i == 1 else {}) for i, s in enumerate(letters)],
        rules={OF_ATTENTION: _yield_likely_mistakes_of_attention},
        title=f"Block({spec.order}, norm={spec.norm}, activation={spec.activation}{', gated' * spec.gated})",
        others=Later(lambda: attending.known_mistakes(wrong)),
        numbered=(*attending.by_number(a, run_variant), *by_role.families(flow)),
        families={n: FAMILIES[n] for n in ("normal", "integer")},
        settings={"eps": float(spec.eps), "heads": a.heads, "causal": a.causal},
        kept=frozenset("hg") if a.heads > 1 else frozenset(),
        means={"m": ("d_model", 1)},
        whole=("x attention.w_q attention.b_q", "x attention.w_k attention.b_k"),
        inner=InnerAttention(
            a,
            tuple(sorted(flow.taken)),
            partial(_arrange_inputs_of_attention, spec),
            partial(_measure_largest_score, flow),
            scaling="attention.w_q",
            wrong=wrong,
        ),
        output_run=OutputRun(partial(_run_attention_of_block, flow)),
    )


def _yield_likely_mistakes_of_attention(flow: BlockFlow, step: Step) -> Iterator[Mistake]:
    """Yield the likely mistakes of the attention, which give its steps power; all others come by its own rules."""
    a = flow.inner
    if a.causal and step.name == f"{PREFIX}masked":
        yield in_stated_steps(flow, "mask", "the causal mask is left out", {step.name: left_out})
    if a.scale is None and step.name == f"{PREFIX}scaled":
        narrow: Wrong = lambda at: at.first / at.size("attention.q")  # noqa: E731
        yield in_stated_steps(flow, "scale", "scores are not scaled", {step.name: left_out})
        yield in_stated_steps(flow, "scale", "scores are scaled by 1/d_k", {step.name: narrow})


# -- the attention inside ----------------------------------------------------------------------------------------------
_PROJECTIONS = ("w_q", "w_k", "w_v")


def _arrange_inputs_of_attention(spec: Block, made: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs of the block whose attention reads the tokens ``made.x`` (…, n, m) with these projections.

    Behind a norm it reads them up to roundings and ε: two more columns, which no projection reads, give all tokens the
    mean 0 and the same length, so that the norm divides each of them by the same number σ. Projections have the factor
    σ, and the gain is 1.
    """
    arrays = {**made, "x": with_leading_axes(3, made["x"])}
    is_normed = spec.norm is not None and spec.order == "pre"
    if is_normed:
        tokens, deviation = _even_out_tokens(arrays["x"], is_centred=spec.norm == "layer")
        arrays["x"] = tokens
        rows, columns = ((0, 2), (0, 0)), ((0, 0), (0, 2))
        arrays |= {n: np.pad(made[n], rows) * deviation for n in _PROJECTIONS}
        arrays["w_o"] = np.pad(made["w_o"], columns)
    result = {name: arrays[n] for n, name in INPUTS_OF_ATTENTION.items()}
    ones, zeros = (np.full(result["x"].shape[-1:], number) for number in (1.0, 0.0))
    norm = {"attention_norm.gain": ones, "attention_norm.bias": zeros}
    return result | (norm if is_normed else {})


def _even_out_tokens(x: Array, is_centred: bool) -> tuple[Array, float]:
    """Return the tokens with two more columns, (…, n, m + 2), and the root of the mean of squares of each of them.

    Columns a and b with a + b = −Σx, or 0 if tokens are not centred, and a² + b² = t − Σx² are −Σx/2 ± r. The length √t
    is the least for which r is real in every row.
    """
    squares = (x * x).sum(axis=-1, keepdims=True)
    half = -x.sum(axis=-1, keepdims=True) / 2 if is_centred else np.zeros_like(squares)
    least = squares + 2 * half * half
    total = float(least.max(initial=0.0))
    root = np.sqrt((total - least) / 2)
    tokens = np.concatenate([x, half + root, half - root], axis=-1)
    # Tokens of zeros are normalised by ε alone, and stay zeros.
    return tokens, (total / tokens.shape[-1]) ** 0.5 or 1.0


def _read_attention_inputs(flow: BlockFlow, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return the tokens that the attention of a block reads, and its projections, in float64."""
    arrays = {n: np.asarray(a, dtype=np.float64) for n, a in inputs.items()}
    before, _ = flow.split_steps(frozenset(arrays))
    with np.errstate(all="ignore"):
        values = run_steps(before, arrays)
    return flow.select_arrays_of_attention(values)


def _measure_largest_score(flow: BlockFlow, inputs: Mapping[str, Array]) -> float:
    """Return the largest |s| before masks, in float64."""
    return measure_largest_score(flow.inner, _read_attention_inputs(flow, inputs))


def _run_attention_of_block(flow: BlockFlow, inputs: Mapping[str, Array]) -> Run:
    """Return the run of the attention, whose rows that are lost are lost in the block's output."""
    return run_attention(flow.inner, _read_attention_inputs(flow, inputs))


def _draw_quarter_entries(low: int, high: int, shape: tuple[int, ...], rng: Random) -> Array:
    return rng.integers(low, high, shape) / 4.0
