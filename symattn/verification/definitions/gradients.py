"""``Gradient`` of an ``Attention``: a backward pass, against the exact derivative; its known mistakes are wrong
formulas, and gradients of wrong attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.attention import derivative, fields
from symattn.attention.derivative import vjp
from symattn.attention.flow import find_value_step
from symattn.attention.gradients.backward_pass import (
    BackwardPass,
    name_gradient_of_weighted_values,
)
from symattn.attention.inputs import required
from symattn.attention.spec import Attention
from symattn.attention.stated_flow import OtherStep
from symattn.attention.streaming.states import PartialOutput, finish, lse
from symattn.attention.streaming.tiled_runs import (
    row_products,
    row_states,
    sink_of_rows,
    tile_weights,
)
from symattn.bounds.called_target import Inputs, Layout
from symattn.bounds.changed_steps import ChangedSteps
from symattn.bounds.mistake import Compute, Mistake, change
from symattn.bounds.reference import Values, variant_values
from symattn.document import codec, errors, keywords
from symattn.verification.definitions import attending
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import Call, WrongAttention, with_leading_axes

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention

WRT: tuple[str, ...] = ("q", "k", "v")


@dataclass(frozen=True)
class Gradient(keywords.Answering):
    """The gradients dQ, dK, dV of ⟨dO, Attention(Q, K, V)⟩; of a ``LinearAttention`` those of all its inputs.

    attention  the attention that is differentiated, or the linear attention

    A function takes q, k, v, the other inputs of the attention, and do, the gradient of its output; optionally also
    the output o and the log-sum-exps lse that a forward pass saved. It returns (dq, dk, dv), in the shapes of q, k, v;
    gradients of shared keys and values are sums over the heads. A torch function without a parameter for do counts as
    the forward pass, and its gradients are those of autograd.

    Of linear attention a function takes its inputs and do, and returns the gradients of all inputs in their order, such
    as (dq, dk, dv, dg, dbeta). With states it also takes an initial_state and dfinal_state, the gradient of the final
    state, and the last gradient is that of the initial one.

    Source: Dao et al., FlashAttention (2022), appendix B.2; its algorithm 4 for o and lse.

    >>> Gradient(Attention(causal=True))
    Gradient(attention=Attention(causal=True))
    """

    attention: Attention | LinearAttention

    __repr__ = fields.brief

    def __post_init__(self) -> None:
        if type(self.attention).__name__ == "LinearAttention":
            return
        if not isinstance(self.attention, Attention):
            raise fields.refusal(self, "attention", "be an Attention or a LinearAttention")
        if self.attention.lse:
            raise errors.InputError("Gradient: of the output alone; hint: lse=False")

    def __call__(self, do: Any, dfinal_state: Any = None, **by_name: Any) -> tuple[Any, ...]:
        """Return dQ, dK, dV by the derivative of the definition; of linear attention, the gradients of all inputs.

        ``dfinal_state`` is the gradient of the final state of linear attention that has states.
        """
        cotangent: Any = do if dfinal_state is None else (do, dfinal_state)
        names = WRT
        if not isinstance(self.attention, Attention):
            names = _list_linear_inputs(self.attention, by_name)
        result = derivative.vjp(self.attention, cotangent, by_name, names)
        return tuple(result[n] for n in names)


def _list_linear_inputs(spec: LinearAttention, by_name: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the inputs of a linear attention in the order of its parameters, whatever that of a call."""
    from symattn.verification.definitions.linear_inputs import yield_linear_inputs

    return tuple(x.name for x in yield_linear_inputs(spec, "nd") if x.name in by_name)


def subject(spec: Gradient, layout: Layout = "nd") -> Definition:
    """Return the definition of the gradients."""
    attention = spec.attention
    if not isinstance(attention, Attention):
        # Linear attention is loaded for gradients of it alone.
        from symattn.verification.definitions import linear_gradients

        return linear_gradients.subject(attention, layout, Gradient)
    # Rules of mistakes are slow to import, and most verifications are of no gradient.
    from symattn.verification.definitions.stated_definition import define_in_steps

    attending.check(attention, "Gradient", layout)
    do = Input("do", attending.axes(attention, layout, "h", "n_q", "d_v"), keywords.UPSTREAM)
    rows = attending.axes(attention, "nd" if layout == "nd" else "bhnd", "h", "n_q")
    forward_outputs = {
        "o": (do.shape, "out output attn_out fwd_out"),
        "lse": (rows, "softmax_lse logsumexp l"),
    }
    remaining = (
        Input(
            n,
            shape,
            words,
            needed=False,
            made=partial(_compute_saved_forward_output, attention, layout, which),
        )
        for which, (n, (shape, words)) in enumerate(forward_outputs.items())
    )
    turned = ("q", "k", "v", "do")

    def laid(run: Compute) -> Compute:
        return attending.in_order(
            layout, turned, lambda o=None, lse=None, **by_name: run(**by_name)
        )

    steps, wrong = BackwardPass(attention=attention), _make_wrong_attention(attention)
    return attending.of_attention(
        attention,
        layout,
        wrong,
        partial(_read_backward_attention, attention, layout),
        make=partial(define_in_steps, steps, laid=laid),
        title=f"Gradient({codec.called(attention)})",
        step="backward",
        inputs=(*attending.inputs(attention, layout), do, *remaining),
        costs=8,  # a derivative takes as long as so many forward passes
        ways=_list_backward_ways(steps),
        recorded=_list_recorded_ways(steps),
    )


def _compute_saved_forward_output(
    attention: Attention, layout: Layout, which: int, by_name: Inputs
) -> np.ndarray:
    """Return the output, or L, of the forward pass, in float64."""
    arrays = {n: a for n, a in by_name.items() if n not in ("do", "o", "lse")}
    arrays = {n: attending.ordered(layout, a) if n in WRT else a for n, a in arrays.items()}
    result = replace(attention, lse=True)(**arrays)[which]
    return result if which else attending.ordered(layout, result, back=True)  # type: ignore[no-any-return]


def _list_backward_ways(steps: BackwardPass) -> tuple[Compute, ...]:
    """Return the ways: the steps; with D = rowsum(dO ⊙ O); by the definition's derivative; and with weights that are
    computed again from the logarithms of the sums, at once or key by key."""
    attention = steps.attention
    stored: tuple[Compute, ...] = (*_list_recorded_ways(steps), Gradient(attention))
    # Passes from a log-sum-exp need a natural softmax without dropout.
    if not attention.is_softmax or attention.base is not None or attention.dropout:
        return stored
    return (
        *stored,
        partial(_run_from_log_sums, steps, False),
        partial(_run_from_log_sums, steps, True),
    )


def _list_recorded_ways(steps: BackwardPass) -> tuple[Compute, ...]:
    """Return the steps, and the steps with D from the output that a forward pass saved."""
    if not steps.attention.is_softmax:
        return (steps.return_run,)
    from symattn.verification.rules.backward_passes import multiply_by_output

    changes = {"row_sums": change("row_sums", multiply_by_output)}
    return steps.return_run, ChangedSteps(steps, changes)


def _run_from_log_sums(steps: BackwardPass, each: bool, **inputs: Any) -> Any:
    """Run the steps with P = e^{s − L} and D = rowsum(dO ⊙ O), from states of all keys at once or of each key."""
    saved: list[PartialOutput] = []

    def recompute(spec: Any, values: Values) -> Any:
        forward = spec.forward_steps(values)
        (weights,) = (step for step in forward if step.name == "weights")
        scores = values[weights.of[0]]
        n_q, n_k = (int(n) for n in scores.shape[-2:])
        keys = attending.tiles(values["q"], n_k) if each else [0, n_k]
        logit = sink_of_rows(attention, scores, values.get("sink"))
        (state,) = row_states(scores, values[find_value_step(forward).of[1]], (0, n_q), keys, logit)
        # Without a mask no row is empty, so the plain quotient suffices.
        fully_masked = attention.fully_masked if attention.masks_anything else "nan"
        saved.append(PartialOutput(finish(state, fully_masked), lse(state)))
        return tile_weights(scores, saved[-1].lse)

    attention = steps.attention

    def sum_rows(spec: Any, values: Values) -> Any:
        gradient = name_gradient_of_weighted_values(spec.forward_steps(values))
        return row_products(values[gradient], saved[-1].output)

    # The step of P comes before that of D, which reads the output.
    changes: dict[str, OtherStep] = {"p": recompute, "row_sums": sum_rows}
    return ChangedSteps(steps, changes)(**inputs)


# -- mistakes ----------------------------------------------------------------------------------------------------------
def mistakes(attention: Attention) -> Iterator[Mistake]:
    """Yield the mistakes in the steps of the backward pass, for arrays with the axes of an attention."""
    from symattn.verification.rules import by_role

    return by_role.mistakes(BackwardPass(attention=attention))


def dropping(attention: Attention, factors: np.ndarray) -> Iterator[Mistake]:
    """Yield mistakes in the backward pass of an attention with dropout, whose ``factors`` are 0 or 1/(1 − r)."""
    largest = Fraction(float(factors.max(initial=0)))
    # Where all weights are dropped, the rate makes no difference.
    rate = 1 - 1 / largest if largest > 1 else Fraction(0)
    if not rate:
        yield from mistakes(attention)
        return
    for mistake in mistakes(replace(attention, dropout=rate)):
        yield replace(mistake, way=partial(mistake.run, drop=factors != 0))


def of_wrong_attention(spec: Attention) -> Iterator[Mistake]:
    """Yield the exact gradient of every known wrong variant of attention, as mistakes."""

    return attending.known_mistakes(_make_wrong_attention(spec))


def _make_wrong_attention(spec: Attention) -> WrongAttention:
    """Return how a mistake of the attention becomes a mistake of its gradient."""
    return WrongAttention(
        spec,
        frozenset(["q", "k", "v", *required(spec)]),
        partial(partial, _of_wrong, spec),
        blamed="backward",
        lead="it is the gradient of a different attention: ",
    )


def _of_wrong(spec: Attention, variant: Any, do: Any, **by_name: Any) -> tuple[Any, ...]:
    """Return the exact gradient of a wrong variant of attention."""

    result = vjp(lambda **arrays: variant_values(spec, arrays, variant)["output"], do, by_name, WRT)
    return tuple(result[n] for n in WRT)


def _read_backward_attention(
    spec: Attention, layout: Layout, call: Call, inputs: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """Return P V with the weights P of the backward pass: dV = Pᵀ dO, so that they are dVᵀ if dO is the identity."""
    # dV is a sum over heads, or has passed the norm of the values.
    if spec.group > 1 or spec.value_norm is not None:
        return None
    queries = int(inputs["q"].shape[-2])
    # dO = I has as many columns as there are queries, and so have the values.
    identity = np.broadcast_to(np.eye(queries), (*inputs["q"].shape[:-1], queries))
    no_values = np.zeros((*inputs["v"].shape[:-1], queries))
    arranged = attending.arrange_inputs(spec, layout, {**inputs, "v": no_values})
    do = with_leading_axes(arranged["q"].ndim, identity)
    outputs = call({**arranged, "do": attending.ordered(layout, do, back=True)})
    # A function that returns fewer or other arrays shows no weights.
    if outputs is None or len(outputs) < len(WRT) or outputs[2].ndim != do.ndim:
        return None
    transposed = np.asarray(attending.ordered(layout, outputs[2]))
    keys = int(inputs["k"].shape[-2])
    if transposed.shape != (*do.shape[:-2], keys, queries):
        return None
    weights = np.swapaxes(transposed, -1, -2).reshape(*inputs["q"].shape[:-1], keys)
    return np.asarray(weights @ inputs["v"])
