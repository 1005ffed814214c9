"""``Block``: one layer of a Transformer, with its parameters by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from symattn.attention.constants import number
from symattn.attention.flow import Step as Part
from symattn.attention.flow import run_steps, run_until
from symattn.attention.layers.block import Block, norm_places
from symattn.attention.layers.steps import ACTIVATIONS, relu, sigmoid
from symattn.bounds.inputs import measure_largest_score
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily
from symattn.bounds.reference import Run, Variant, variant_values
from symattn.bounds.reference import run as run_attention
from symattn.document.errors import InputError
from symattn.verification.definitions import attending
from symattn.verification.definitions.definition_forms import Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import (
    InnerAttention,
    WrongAttention,
    with_leading_axes,
)
from symattn.verification.definitions.inputs_by_letters import FAMILIES
from symattn.verification.definitions.output_run import OutputRun
from symattn.verification.input_source import Array, Random
from symattn.verification.rules.norms import norms as of_norms

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
    wrong = WrongAttention(a, _NAMES_OF_ATTENTION, partial(_of_variant, spec))
    letters = [dict(zip(("n", "m", "d_k", "d_v", "f"), s, strict=True)) for s in _SIZES]
    letters = [s | ({"h": a.heads, "g": a.key_heads} if a.heads > 1 else {}) for s in letters]
    return Definition(
        title=f"Block({spec.order}, norm={spec.norm}, activation={spec.activation}{', gated' * spec.gated})",
        step="output",
        inputs=(Input("x", "b n m", "hidden_states h tokens inputs"), *weights),
        outputs=("output",),
        ways=(spec,),
        mistakes=tuple(_yield_block_mistakes(spec)),
        others=Later(lambda: _by_rule(spec, wrong)),
        numbered=tuple(_yield_numbered_block_mistakes(spec)),
        shapes=tuple(s | ({"b": 2} if i == 1 else {}) for i, s in enumerate(letters)),
        families={n: FAMILIES[n] for n in ("normal", "integer")},
        settings={"eps": float(spec.eps), "heads": a.heads, "causal": a.causal},
        kept=frozenset("hg") if a.heads > 1 else frozenset(),
        means={"m": ("d_model", 1)},
        whole=("x attention.w_q attention.b_q", "x attention.w_k attention.b_k"),
        inner=InnerAttention(
            a,
            tuple(sorted(_NAMES_OF_ATTENTION)),
            partial(_arrange_inputs_of_attention, spec),
            partial(_measure_largest_score, spec),
            scaling="attention.w_q",
            wrong=wrong,
        ),
        output_run=OutputRun(partial(_run_attention_of_block, spec)),
    )


# -- the attention inside ----------------------------------------------------------------------------------------------
#: The attention of a block takes tokens and projections, and no masks of its own.
_NAMES_OF_ATTENTION = frozenset(("x", "w_q", "w_k", "w_v", "w_o"))
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
    result = {n if n == "x" else f"attention.{n}": arrays[n] for n in _NAMES_OF_ATTENTION}
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


def _read_attention_inputs(spec: Block, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tokens that the attention of a block reads, and its projections, in float64."""
    arrays = {n: np.asarray(a, dtype=np.float64) for n, a in inputs.items()}
    steps = spec.pipeline(arrays)
    first = next(step for step in steps if step.name.startswith("attention."))
    with np.errstate(all="ignore"):
        tokens = run_until(steps, arrays, first.name)[first.of[0]]
    own = {n: arrays[f"attention.{n}"] for n in _NAMES_OF_ATTENTION - {"x"}}
    return {"x": tokens, **own}


def _measure_largest_score(spec: Block, inputs: Mapping[str, Array]) -> float:
    """Return the largest |s| before masks, in float64."""
    return measure_largest_score(spec.attention, _read_attention_inputs(spec, inputs))


def _run_attention_of_block(spec: Block, inputs: Mapping[str, Array]) -> Run:
    """Return the run of the attention, whose rows that are lost are lost in the block's output."""
    return run_attention(spec.attention, _read_attention_inputs(spec, inputs))


def _draw_quarter_entries(low: int, high: int, shape: tuple[int, ...], rng: Random) -> Array:
    return rng.integers(low, high, shape) / 4.0


_PARTS = ("attention", "the feed-forward layer")


# -- mistakes ----------------------------------------------------------------------------------------------------------
def _yield_block_mistakes(spec: Block) -> Iterator[Mistake]:
    def mistake(step: str, cause: str, **fields: Any) -> Mistake:
        other = replace(spec, **fields)
        return Mistake(step, cause, other, spec=other)

    places = {
        "pre": "before each part",
        "post": "after each residual",
        "inner": "after each part, before its residual",
    }

    def parts(step: str, cause: str, change: Callable[[list[Part]], list[Part]]) -> Mistake:
        return Mistake(step, cause, partial(_run_changed_block, spec, change))

    if spec.norm:
        for order, words in places.items():
            # A parallel layer has no norm after each residual.
            if order != spec.order and not (order == "post" and spec.parallel):
                moved = mistake(
                    "norm", f"the norms stand {words}, not {places[spec.order]}", order=order
                )
                yield moved
                for late in (False, True) if spec.activation and not spec.parallel else ():
                    one = f"the norm of {_PARTS[late]} stands {_of_one(words)}, not {_of_one(places[spec.order])}"
                    yield Mistake("norm", one, partial(_in_two_orders, spec, moved.spec, late))
        other = "rms" if spec.norm == "layer" else "layer"
        yield mistake(
            "norm", f"the norms are {'RMSNorm' if other == 'rms' else 'LayerNorm'}", norm=other
        )
        for words, taken in _NORMS_TAKEN.items():
            yield Mistake("norm", words, partial(_with_other_norms, spec, taken))
        for norm in norm_places(spec):
            words = f"the norm of {_name_block_sublayer(norm)} is left out"
            yield parts(
                "norm",
                words,
                partial(_replace_block_norms, [norm], lambda x, eps, **inputs: x, spec.eps),
            )
    for k, part in enumerate(_PARTS[: 1 + bool(spec.activation)]):
        yield parts(
            "residual",
            f"the residual around {part} is left out",
            partial(_scale_residual_summands, k, (0,), 0),
        )
        # Only norms before the parts stand where a residual could start after them.
        if spec.norm and spec.order == "pre":
            cause = f"the residual around {part} starts from the tokens after the norm"
            yield parts("residual", cause, partial(_redirect_residual_source, k, "norm"))
    if spec.activation:
        words = "the last residual starts from the tokens before attention"
        yield parts("residual", words, partial(_redirect_residual_source, 1, "x"))
        # A parallel layer cannot have norms after residuals.
        if spec.order != "post":
            read = "what attention gave" if spec.parallel else "what attention reads"
            yield mistake(
                "residual", f"the feed-forward layer reads {read}", parallel=not spec.parallel
            )
        for name in ("relu", "gelu", "gelu_tanh", "silu"):
            if name != spec.activation:
                yield mistake(
                    "project", f"the activation is {name}, not {spec.activation}", activation=name
                )
    a = spec.attention  # its other mistakes come by rule; these give its steps power
    if a.causal:
        yield mistake("mask", "the causal mask is left out", attention=replace(a, causal=False))
    if a.scale is None:
        yield mistake("scale", "scores are not scaled", attention=replace(a, scale=1))
        yield mistake("scale", "scores are scaled by 1/d_k", attention=replace(a, scale="1/d_k"))


def _by_rule(spec: Block, of_attention: WrongAttention) -> Iterator[Mistake]:
    """Yield the mistakes of a block's attention, of its norms, and between the feed-forward layer's projections."""
    yield from attending.known_mistakes(of_attention)
    places = list(norm_places(spec))
    for words, how in (
        of_norms("layer" if spec.norm == "layer" else "rms", spec.eps, {}) if spec.norm else ()
    ):
        yield Mistake(
            "norm",
            f"in the norms: {words}",
            partial(_run_changed_block, spec, partial(_replace_block_norms, places, how, spec.eps)),
        )
        # With a single norm, the norm alone is the same mistake as all norms.
        for name in places if len(places) > 1 else ():
            wrong = partial(
                _run_changed_block, spec, partial(_replace_block_norms, [name], how, spec.eps)
            )
            yield Mistake("norm", f"in the norm of {_name_block_sublayer(name)}: {words}", wrong)
    if spec.activation:
        f: Any = ACTIVATIONS[spec.activation].run
        for words, hidden in HIDDEN[spec.gated].items():
            yield Mistake(
                "project",
                words,
                partial(
                    _run_changed_block,
                    spec,
                    partial(_replace_hidden_activation, partial(hidden, f)),
                ),
            )


def _yield_numbered_block_mistakes(spec: Block) -> Iterator[MistakeFamily]:
    """Yield mistakes of attention with a number; factors in residuals; and x σ(θ x) as activation, such as the quick
    GELU with θ = 1.702."""
    yield from attending.by_number(spec.attention, partial(_of_variant, spec))
    sizes = tuple(map(float, np.geomspace(0.1, 10, 11)))
    for k, part in enumerate(_PARTS[: 1 + bool(spec.activation)]):
        for what, places in _SUMMANDS.items():
            times: Callable[[float], Compute] = lambda x, k=k, places=places: partial(  # type: ignore[misc] # noqa: E731
                _run_changed_block, spec, partial(_scale_residual_summands, k, places, x)
            )
            words = f"in the residual around {part}, {what} is multiplied by {{}}"
            yield MistakeFamily("residual", words, times, (*(-x for x in reversed(sizes)), *sizes))

    def activate_by(f: Callable[[Any], Any]) -> Compute:
        hidden = (lambda gate, up: f(gate) * up) if spec.gated else f
        return partial(_run_changed_block, spec, partial(_replace_hidden_activation, hidden))

    def quick(theta: float) -> Compute:
        return activate_by(lambda z: z * sigmoid(z * number(theta, z)))

    def leaky(slope: float) -> Compute:
        # max(−z, 0) is −z where z is below 0, and 0 elsewhere.
        return activate_by(lambda z: relu(z) - number(slope, z) * relu(-z))

    if spec.activation:
        words = "the activation is x σ({} x), as the quick GELU with 1.702"
        yield MistakeFamily("project", words, quick, tuple(map(float, np.geomspace(0.25, 8, 25))))
    if spec.activation == "relu":
        words = "the activation is leaky: numbers below 0 are multiplied by {}, not by 0"
        yield MistakeFamily("project", words, leaky, tuple(map(float, np.geomspace(1e-3, 1, 25))))


#: Wrong steps between the projections of the feed-forward layer, with the activation f, by whether it is gated.
HIDDEN: dict[bool, dict[str, Callable[..., Any]]] = {
    False: {"the activation is left out": lambda f, up: up},
    True: {
        "the activation is left out": lambda f, gate, up: gate * up,
        "the activation is that of the other projection: of up, not of the gate": lambda f, gate, up: (
            gate * f(up)
        ),
        "the activation is that of both projections, up and gate": lambda f, gate, up: (
            f(gate) * f(up)
        ),
        "the activation is that of the product of gate and up": lambda f, gate, up: f(gate * up),
        "the gate is added, not multiplied": lambda f, gate, up: f(gate) + up,
        "the gate is left out": lambda f, gate, up: f(up),
    },
}


def _replace_hidden_activation(hidden: Callable[..., Any], parts: list[Part]) -> list[Part]:
    """Replace the step between the projections of the feed-forward layer."""
    return [replace(p, run=hidden) if p.name == "mlp.hidden" else p for p in parts]


def _of_one(place: str) -> str:
    return place.replace("each part", "it").replace("each", "its")


def _in_two_orders(spec: Block, other: Block, late: bool, **keywords: Any) -> Any:
    """Run the block with one part, the ``late`` one or attention, as the other block has it."""
    first, second = ([*b.pipeline(keywords)] for b in ((spec, other) if late else (other, spec)))
    # Both orders meet after attention's residual, where the stream is the same.
    until, since = (
        1 + [p.name for p in parts].index("attention_stream") for parts in (first, second)
    )
    return run_steps([*first[:until], *second[since:]], keywords)["output"]


def _of_variant(spec: Block, variant: Variant) -> Compute:
    """Return the block whose parts of attention are replaced by one, a variant of it."""
    start = "attention."

    def attending(parts: list[Part]) -> list[Part]:
        inner = [p for p in parts if p.name.startswith(start)]
        weights = list(dict.fromkeys(n for p in inner for n in p.of if n.startswith(f"{start}w_")))

        def attention(x: Any, *arguments: Any) -> Any:
            own = dict(zip((n.removeprefix(start) for n in weights), arguments, strict=True))
            return variant_values(spec.attention, {"x": x, **own}, variant)["output"]

        # One part that calls a variant stands for all parts of attention.
        whole = replace(inner[-1], of=(*inner[0].of[:1], *weights), run=attention)
        return [whole if p is inner[-1] else p for p in parts if p not in inner[:-1]]

    return partial(_run_changed_block, spec, attending)


def _name_block_sublayer(name: str) -> str:
    return _PARTS[not name.startswith("attention")]


def _run_changed_block(
    spec: Block, change: Callable[[list[Part]], list[Part]], **keywords: Any
) -> Any:
    """Run the block with changed parts."""
    return run_steps(change(list(spec.pipeline(keywords))), keywords)["output"]


def _replace_block_norms(names: Sequence[str], how: Any, eps: Any, parts: list[Part]) -> list[Part]:
    """Replace the named norms by another."""

    def changed(part: Part, name: str) -> Part:
        # A norm's own parameters carry its name as a prefix, which the formula does not know.
        inputs = [n.removeprefix(f"{name}.") for n in part.of[1:]]
        return replace(
            part, run=lambda x, *rest: how(x, eps, **dict(zip(inputs, rest, strict=True)))
        )

    named = [(p, next((n for n in names if _is_norm(p, n)), "")) for p in parts]
    return [changed(p, name) if name else p for p, name in named]


def _is_norm(part: Part, norm: str) -> bool:
    return part.name == f"{norm}.output" or bool({f"{norm}.gain", f"{norm}.bias"} & set(part.of))


#: Which summands of a residual have a factor.
_SUMMANDS = {"what is added": (1,), "what it is added to": (0,), "the sum": (0, 1)}


def _scale_residual_summands(
    which: int, places: Sequence[int], factor: float, parts: list[Part]
) -> list[Part]:
    """Multiply summands of a residual by a factor."""
    at = _find_residual_parts(parts)[which]

    def added(*summands: Any) -> Any:
        x, y = (a * number(factor, a) if i in places else a for i, a in enumerate(summands))
        return x + y

    parts[at] = replace(parts[at], run=added)
    return parts


def _find_residual_parts(parts: list[Part]) -> list[int]:
    return [i for i, p in enumerate(parts) if p.reason == ("residual",)]


def _redirect_residual_source(which: int, source: str, parts: list[Part]) -> list[Part]:
    """Replace the first summand of a residual."""
    at = _find_residual_parts(parts)[which]
    norm = ("attention_norm", "mlp_norm")[which]
    start = "x" if source == "x" else next(p.name for p in parts if _is_norm(p, norm))
    parts[at] = replace(parts[at], of=(start, *parts[at].of[1:]))
    return parts


#: Of which norm the parameters are taken, in place of a norm's own.
_NORMS_TAKEN = {
    "the parameters of the two norms are exchanged": {
        "attention_norm": "mlp_norm",
        "mlp_norm": "attention_norm",
    },
    "the parameters of the first norm are used for the second, too": {"mlp_norm": "attention_norm"},
    "the parameters of the second norm are used for the first, too": {"attention_norm": "mlp_norm"},
}


def _with_other_norms(spec: Block, taken: Mapping[str, str], **keywords: Any) -> Any:
    names = {n: n.partition(".") for n in keywords}
    return spec(
        **{
            n: keywords[taken.get(part, part) + dot + rest]
            for n, (part, dot, rest) in names.items()
        }
    )
