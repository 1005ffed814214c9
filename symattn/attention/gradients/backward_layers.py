"""For each step of a block or a Transformer beside its attentions, the rule that takes a gradient back through it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from symattn.attention.gradients import layers as activations
from symattn.attention.gradients import linear, norms
from symattn.attention.gradients.backward_rules import RULES
from symattn.attention.gradients.backward_steps import At, Gradients
from symattn.attention.gradients.scores import softcap_gradient, summed_like
from symattn.attention.layers import block_parts, transformer_parts
from symattn.attention.layers import steps as layers
from symattn.attention.layers.activations import ACTIVATIONS
from symattn.attention.layers.block import Block
from symattn.attention.layers.parts import Part
from symattn.attention.layers.transformer import Transformer
from symattn.attention.layers.transformer_inputs import block_names
from symattn.attention.norms import layer_norm
from symattn.attention.positions import absolute
from symattn.attention.projections import project
from symattn.attention.spec import Attention

Back = Callable[..., Gradients]  # of the operands and what was computed, each a tuple, and the gradient


def attentions(model: Block | Transformer, given: list[str]) -> dict[str, Attention]:
    """The specifications in a model, by the prefix of their steps: ``decoder.0.attention.``."""
    blocks = [("", model)] if isinstance(model, Block) else [(prefix, b) for prefix, b, _ in block_names(model, given)]
    found = {f"{prefix}attention.": block.attention for prefix, block in blocks}
    return found | {f"{prefix}cross.": block.cross for prefix, block in blocks if block.cross is not None}


def rule(part: Part, specs: dict[str, Attention], x: tuple[Any, ...], y: Any) -> Callable[[Any], Gradients]:
    """The way back through a part of a model that was computed from ``x`` and gave ``y``."""
    for prefix, spec in specs.items():
        if part.name.startswith(prefix):
            at = At(spec, tuple(name.rpartition(".")[2] for name in part.of), x, y)
            return partial(RULES[part.name.removeprefix(prefix)], at)
    run, fixed = (part.run.func, part.run.args) if isinstance(part.run, partial) else (part.run, ())
    return partial(_LAYERS[run], fixed, x, y)


def _residual(fixed: Any, x: Any, y: Any, g: Any) -> Gradients:
    return tuple(summed_like(g, each) for each in x)


def _normed(fixed: Any, x: Any, y: Any, g: Any) -> Gradients:
    norm, eps, keywords = fixed
    given = dict(zip(keywords, x[1:], strict=True))
    back = norms.layer_norm_gradients if norm is layer_norm else norms.rms_norm_gradients
    dx, dgain, dbias = back(x[0], g, eps, given.get("gain"))
    return dx, *({"gain": dgain, "bias": dbias}[n] for n in given)


def _projected(fixed: Any, x: Any, y: Any, g: Any) -> Gradients:
    return linear.project_gradients(x[0], x[1], g)[: len(x)]


def _activated(name: str) -> Back:
    return lambda fixed, x, y, g: (g * activations.SLOPES[name](x[0]),)


def _gated(fixed: Any, x: Any, y: Any, g: Any) -> Gradients:
    gates, values = x
    return activations.gated_gradients(_NAMES[fixed[0]], gates, values, g)


def _embedded(fixed: Any, x: Any, y: Any, g: Any) -> Gradients:
    table, ids = x
    return linear.embed_gradient(table, ids, layers.widen(g) if fixed[0] else g), None


def _with_positions(fixed: Any, x: Any, y: Any, g: Any) -> Gradients:
    tokens, table = x
    rows = summed_like(g, tokens[(0,) * (tokens.ndim - 2)])
    return g, linear.padded(rows.mT, 0, table.shape[0] - rows.shape[-2]).mT


def _tied(fixed: Any, x: Any, y: Any, g: Any) -> Gradients:
    dx, dw, dbias = linear.project_gradients(x[0], x[1].mT, g)
    return (dx, dw.mT, dbias)[: len(x)]


def _capped(fixed: Any, x: Any, y: Any, g: Any) -> Gradients:
    return (softcap_gradient(y, fixed[0], g),)


_NAMES: dict[Any, str] = {activation.run: name for name, activation in ACTIVATIONS.items()}
#: By the function that a part runs.
_LAYERS: dict[Any, Back] = {
    block_parts._added: _residual,
    block_parts._normed: _normed,
    project: _projected,
    layers.gated: _gated,
    transformer_parts._embed: _embedded,
    absolute.learned: _with_positions,
    transformer_parts._add_sinusoidal: _residual,
    transformer_parts._tied: _tied,
    transformer_parts._capped: _capped,
    **{run: _activated(name) for run, name in _NAMES.items()},
}
