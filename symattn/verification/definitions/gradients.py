"""``Gradient`` of an ``Attention``: a backward pass, against the exact derivative; its known mistakes are wrong
formulas, and gradients of wrong attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import derivative, fields
from symattn.attention.derivative import vjp
from symattn.attention.gradients.attention import softcap_gradient
from symattn.attention.gradients.backward import backward
from symattn.attention.inputs import required
from symattn.attention.masks import forbid
from symattn.attention.projections import repeat_heads
from symattn.attention.softmax import log_sum_exp, softmax
from symattn.attention.spec import Attention
from symattn.attention.streaming.by_tiles import backward_by_tiles
from symattn.bounds.called_target import Inputs, Layout
from symattn.bounds.mistake import Compute, Mistake, before, root, step
from symattn.bounds.reference import Change, Values, Variant, usual, variant_values
from symattn.document import codec, errors, keywords
from symattn.verification.definitions import attending
from symattn.verification.definitions.definition_mistakes import Later
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

    return attending.of_attention(
        attention,
        layout,
        wrong_attention(attention, laid),
        partial(_read_backward_attention, attention, layout),
        title=f"Gradient({codec.called(attention)})",
        step="backward",
        inputs=(*attending.inputs(attention, layout), do, *remaining),
        outputs=("dq", "dk", "dv"),
        costs=8,  # a derivative takes as long as so many forward passes
        ways=tuple(map(laid, _list_backward_ways(attention))),
        recorded=tuple(map(laid, _yield_recordable_backward(attention))),
        mistakes=Later(lambda: (replace(m, way=laid(m.run)) for m in mistakes(attention))),
    )


def _compute_saved_forward_output(
    attention: Attention, layout: Layout, which: int, by_name: Inputs
) -> np.ndarray:
    """Return the output, or L, of the forward pass, in float64."""
    arrays = {n: a for n, a in by_name.items() if n not in ("do", "o", "lse")}
    arrays = {n: attending.ordered(layout, a) if n in WRT else a for n, a in arrays.items()}
    result = replace(attention, lse=True)(**arrays)[which]
    return result if which else attending.ordered(layout, result, back=True)  # type: ignore[no-any-return]


def _list_backward_ways(attention: Attention) -> tuple[Compute, ...]:
    """Return the ways: by hand from the weights; by the definition's derivative; from o and L, at once or per key."""
    result: tuple[Compute, ...] = (partial(_by_hand, attention), Gradient(attention))
    # Passes from a log-sum-exp need a natural softmax without dropout.
    if not attention.is_softmax or attention.base is not None or attention.dropout:
        return result
    return (
        *result,
        partial(_by_tiles, attention, False),
        partial(_by_tiles, attention, True),
    )


def _yield_recordable_backward(attention: Attention) -> Iterator[Compute]:
    """Yield the backward pass by its formulas, if attention is plain up to a cap, a bias and a sink; and by hand."""
    # The formulas hold with a cap, a bias and a sink as well.
    if usual(replace(attention, softcap=None, bias=False, sink=None)):
        for saved in (False, True):
            scaled = Formulas(
                saved=saved, dq=lambda ds, q, k, c: c(ds) @ k, dk=lambda ds, q, k, c: c(ds).mT @ q
            )
            yield partial(scaled, attention)
    yield partial(_by_hand, attention)


def _by_hand(attention: Attention, do: Array, **by_name: Any) -> tuple[Any, ...]:
    result = backward(attention, do, by_name, WRT)
    return tuple(result[n] for n in WRT)


def _by_tiles(attention: Attention, each: bool, do: Array, **by_name: Any) -> tuple[Any, ...]:
    n_q, n_k = (int(by_name[n].shape[-2]) for n in "qk")
    keys = attending.tiles(by_name["q"], n_k) if each else [0, n_k]
    result = backward_by_tiles(attention, (0, n_q), keys, do, by_name, WRT)
    return tuple(result[n] for n in WRT)


# -- mistakes ----------------------------------------------------------------------------------------------------------
Shared = Callable[[Array, int], Array]
Weights = Callable[[Attention, dict[str, Any]], Array]


@dataclass(frozen=True)
class Formulas:
    """The backward pass of attention by dot products; each of its formulas can be replaced.

    dV = Pᵀ dO, dP = dO Vᵀ, dS = P ⊙ (dP − rowsum(P ⊙ dP)), times the derivative of a cap, dQ = c dS K, dK = c dSᵀ Q;
    gradients are summed over heads that share. ``for_values`` returns the weights of dV if they differ from those of
    dS; with ``saved``, rowsum is that of the right weights, as in rowsum(dO ⊙ O).
    """

    weights: Weights = lambda spec, values: values["weights"]
    for_values: Weights | None = None
    saved: bool = False
    scores: Callable[[Array, Array], Array] = lambda p, dp: p * (dp - _sum_gradient_rows(p * dp))
    dq: Callable[..., Array] = lambda ds, q, k, c: c(ds @ k)
    dk: Callable[..., Array] = lambda ds, q, k, c: c(ds.mT @ q)
    dv: Callable[..., Array] = lambda p, do, v: p.mT @ do
    shared: Shared = lambda g, times: _combine_shared_head_gradients("sum", g, times)
    shared_values: Shared = lambda g, times: _combine_shared_head_gradients("sum", g, times)

    def __call__(self, spec: Attention, do: Array, **by_name: Any) -> tuple[Any, ...]:
        """Return dQ, dK, dV."""
        values = spec.trace(**by_name)
        times = spec.group
        q = by_name["q"]
        # A key head is repeated for its group of queries, whose gradients are combined below.
        k, v = (repeat_heads(by_name[n], times) if times > 1 else by_name[n] for n in "kv")
        p = self.weights(spec, values)
        dp = do @ v.mT
        # Σ_j P_ij dP_ij = dO_i · O_i lets a kernel take the row sums from the saved output.
        ds = (
            p * (dp - _sum_gradient_rows(do * values["output"]))
            if self.saved
            else self.scores(p, dp)
        )
        # Backwards through c · tanh(s/c), whose derivative is 1 − (capped/c)².
        ds = (
            softcap_gradient(values["capped"], spec.softcap, ds) if spec.softcap is not None else ds
        )

        def c(x: Any) -> Any:
            if spec.scale is None:
                return x / root(q, q.shape[-1])
            return x * namespace_of(q).asarray(spec.scale, dtype=q.dtype)

        of_values = p if self.for_values is None else self.for_values(spec, values)
        dq = self.dq(ds, q, k, c)
        dk = self.dk(ds, q, k, c)
        dv = self.dv(of_values, do, v)
        return (
            (dq, self.shared(dk, times), self.shared_values(dv, times))
            if times > 1
            else (dq, dk, dv)
        )


def _sum_gradient_rows(x: Array, axis: int = -1) -> Array:
    return namespace_of(x).sum(x, axis=axis, keepdims=True)


def _combine_shared_head_gradients(how: str, g: Array, times: int) -> Array:
    """Combine the gradients of heads that share: their sum, mean, the first or last; or sum those of wrong ones."""
    xp = namespace_of(g)
    *batch, heads, n, d = g.shape
    if how == "turn":
        # Heads t, t + kv_heads, … share a key head if keys are tiled in turn.
        return xp.sum(xp.reshape(g, (*batch, times, heads // times, n, d)), axis=-4)
    apart = xp.reshape(g, (*batch, heads // times, times, n, d))
    if how in ("sum", "mean"):
        # Heads of one group stand one after another.
        return (xp.sum if how == "sum" else xp.mean)(apart, axis=-3)
    return apart[..., 0 if how == "first" else -1, :, :]


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes: in the formulas, if attention is plain up to a cap, a bias and a sink; and in single steps."""
    if usual(replace(spec, softcap=None, bias=False, sink=None)) and spec.scale not in (
        "given",
        "1/d_k",
    ):
        for cause, formulas in (
            *_yield_wrong_formulas(spec),
            *(_OF_SINKS.items() if spec.sink else ()),
        ):
            # With a cap, a bias or a sink, weights must be right, or lack the sink.
            if usual(spec) or {formulas.weights, formulas.for_values} <= {
                Formulas.weights,
                _without_sink,
                None,
            }:
                yield Mistake("backward", cause, partial(formulas, spec))
    without_dropout = replace(spec, dropout=0)
    if spec.dropout and usual(without_dropout) and spec.scale not in ("given", "1/d_k"):
        yield from _dropping_given(without_dropout, Fraction(str(spec.dropout)))
    steps = {step.name for step in spec.pipeline(_list_gradient_inputs(spec))}
    for cause, names in _PASSED.items():
        if steps.issuperset(names):
            yield Mistake("backward", cause, partial(_gradient_with_identity_steps, spec, names))
    for words, lost in _STOPPED.items():
        named = " and ".join(f"d{name.upper()}" for name in lost)
        cause = f"the gradient stops at the {words}: {named} {'are' if len(lost) > 1 else 'is'} 0"
        yield Mistake("backward", cause, partial(_zero_lost_gradients, spec, lost))


#: Steps that a backward pass may treat as if they changed nothing.
_PASSED = {
    "the derivative of the cap is left out: dS is not multiplied by 1 − tanh²(s/c)": ("capped",),
    "dQ and dK are not rotated back: they are those of rotated queries and keys": (
        "q_rotated",
        "k_rotated",
    ),
    "dQ is not rotated back: it is that of rotated queries": ("q_rotated",),
    "dK is not rotated back: it is that of rotated keys": ("k_rotated",),
    "dQ and dK are those of normalised queries and keys: the norm is not differentiated": (
        "q_normed",
        "k_normed",
    ),
    "dQ is that of normalised queries: the norm is not differentiated": ("q_normed",),
    "dK is that of normalised keys: the norm is not differentiated": ("k_normed",),
}


#: Where a gradient may be detached, and the inputs that it then does not reach.
_STOPPED = {"weights": "qk", "queries": "q", "keys": "k", "values": "v"}


def _zero_lost_gradients(
    spec: Attention, lost: str, do: np.ndarray, **by_name: Any
) -> tuple[Any, ...]:
    result = vjp(spec, do, by_name, ("q", "k", "v"))
    return tuple(0 * result[n] if n in lost else result[n] for n in "qkv")


def _list_gradient_inputs(spec: Attention) -> frozenset[str]:
    return frozenset(["q", "k", "v", *required(spec)])


def _gradient_with_identity_steps(
    spec: Attention, names: tuple[str, ...], do: Any, **by_name: Any
) -> tuple[Any, ...]:
    """Return the gradient with derivative 1 of these steps: each gives x + (y − x) with y − x constant."""
    right = spec.trace(**by_name)

    def as_before(name: str) -> Change:
        def run(spec: Attention, values: Values) -> Any:
            first = step(spec, values, name).of[0]
            # x + (y − x) has the value of the step, and the derivative 1.
            return values[first] + (right[name] - right[first])

        return run

    return _of_wrong(spec, Variant({name: as_before(name) for name in names}), do, **by_name)


def of_wrong_attention(
    spec: Attention, laid: Callable[[Compute], Compute] = lambda run: run
) -> Iterator[Mistake]:
    """Yield the exact gradient of every known wrong variant of attention, as mistakes."""

    return attending.known_mistakes(wrong_attention(spec, laid))


def wrong_attention(spec: Attention, laid: Callable[[Compute], Compute]) -> WrongAttention:
    """Return how a mistake of the attention becomes a mistake of its gradient."""
    return WrongAttention(
        spec,
        _list_gradient_inputs(spec),
        lambda variant: laid(partial(_of_wrong, spec, variant)),
        blamed="backward",
        lead="it is the gradient of a different attention: ",
    )


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


def dropping(spec: Attention, factors: Any) -> Iterator[Mistake]:
    """Yield mistakes in the formulas for plain attention with dropout, whose ``factors`` are 0 or 1/(1 − r).

    The right ones, with the factors c (…, n_q, n_k): dV = (c ⊙ P)ᵀ dO and dS = P ⊙ (c ⊙ dP − rowsum(P ⊙ c ⊙ dP)).
    """
    right = _make_dropout_formulas(factors)
    unscaled = _make_dropout_formulas(factors != 0)
    saved: Any = lambda p, dp: p * (dp - _sum_gradient_rows(p * factors * dp))  # noqa: E731
    named = {
        "dropout is left out of the backward pass, except in rowsum(dO ⊙ O)": Formulas(scores=saved)
    }
    for words, wrong in {
        "dropout is left out of": Formulas(),
        "the factor 1/(1 − r) is left out of": unscaled,
    }.items():
        named[f"{words} the backward pass"] = wrong
        named |= {
            f"{words} dV": replace(right, dv=wrong.dv),
            f"{words} dP": replace(right, scores=wrong.scores),
        }
    for cause, formulas in _yield_wrong_formulas(spec):
        # Mistakes in dS and dV have no version with factors, and come by themselves.
        if formulas.scores is Formulas.scores and formulas.dv is Formulas.dv:
            named[cause] = replace(formulas, scores=right.scores, dv=right.dv)
    for cause, formulas in named.items():
        yield Mistake("backward", cause, partial(formulas, spec))


def _dropping_given(spec: Attention, rate: Fraction) -> Iterator[Mistake]:
    """Yield the mistakes of ``dropping`` whose factors come from the input ``drop``, True for a kept weight."""
    # The factors come with the call, so a mistake is chosen by its place here.
    for number, mistake in enumerate(dropping(spec, 1.0)):
        yield replace(mistake, way=partial(_with_dropped, spec, rate, number))


def _with_dropped(
    spec: Attention, rate: Fraction, number: int, do: Any, drop: Any, **by_name: Any
) -> Any:
    """Return the gradients of this mistake of ``dropping``, by its place."""
    xp = namespace_of(do)
    one = xp.asarray(1, dtype=do.dtype)
    factors = xp.where(drop, one / xp.asarray(1 - rate, dtype=do.dtype), 0 * one)
    mistake = next(islice(dropping(spec, factors), number, None))
    return mistake.run(do=do, **by_name)


def _make_dropout_formulas(factors: Any) -> Formulas:
    """Return the right formulas with these factors."""
    return Formulas(
        scores=lambda p, dp: p * (factors * dp - _sum_gradient_rows(p * factors * dp)),
        dv=lambda p, do, v: (factors * p).mT @ do,
    )


def _yield_wrong_formulas(spec: Attention) -> Iterator[tuple[str, Formulas]]:
    if spec.key_heads < spec.heads:
        yield from _of_groups()
    if spec.scale != 1:
        yield from _yield_query_key_mistakes("not scaled", lambda x, c: x)
        yield from _yield_query_key_mistakes("scaled twice", lambda x, c: c(c(x)))
        unscaled: Weights = lambda spec, values: softmax(_unscaled_scores(spec, values))  # noqa: E731
        yield from _yield_recomputed_weights(
            "weights are computed again from scores that are not scaled", unscaled
        )
        yield from _yield_recomputed_weights(
            "weights are computed again from the sums by scores that are not scaled", _by_sums
        )
    yield from ((words, Formulas(scores=wrong)) for words, wrong in _SCORES.items())
    yield from _PRODUCTS.items()
    yield from _yield_recomputed_weights(
        "the exponentials in P are not divided by their sum", _not_normalised
    )
    for words, bases in _BASES.items():
        yield from _yield_recomputed_weights(
            f"weights are computed again from the sums {words}", partial(_in_bases, *bases)
        )
    if spec.masks_anything:
        unmasked: Any = lambda spec, values: softmax(before(spec, values, "masked"))  # noqa: E731
        yield from _yield_recomputed_weights("the mask is left out of the backward pass", unmasked)
        words = "the mask is left out of the weights that are computed again from the sums"
        by_sums: Weights = lambda spec, values: _by_sums(  # noqa: E731
            spec, values, lambda s, of: before(s, of, "masked")
        )
        yield from _yield_recomputed_weights(words, by_sums)


#: Whether scores, and whether the natural logarithms of the sums, are exponents of 2 instead of e.
_BASES = {
    "as if these were logarithms of base 2": (False, True),
    "by powers of 2 of natural scores": (True, False),
    "by powers of 2, of natural scores and sums": (True, True),
}


def _yield_recomputed_weights(words: str, wrong: Weights) -> Iterator[tuple[str, Formulas]]:
    """Yield formulas with wrong weights in the whole backward pass, in dV alone, and in dS alone."""
    yield words, Formulas(weights=wrong)
    yield f"{words}, in dV alone", Formulas(for_values=wrong)
    # dV = Pᵀ dO uses the weights alone, so that it may be right beside wrong dQ and dK.
    yield f"{words}, in dQ and dK alone", Formulas(weights=wrong, for_values=Formulas.weights)
    saved = Formulas(weights=wrong, saved=True)
    yield f"{words}, beside the saved output", saved
    yield (
        f"{words}, beside the saved output, in dQ and dK alone",
        replace(saved, for_values=Formulas.weights),
    )


_PRODUCTS = {
    "dQ is of queries in place of keys": Formulas(dq=lambda ds, q, k, c: c(ds @ q)),
    "dK is of keys in place of queries": Formulas(dk=lambda ds, q, k, c: c(ds.mT @ k)),
    "dS is not transposed in dK": Formulas(dk=lambda ds, q, k, c: c(ds @ q)),
    "dS is transposed in dQ": Formulas(dq=lambda ds, q, k, c: c(ds.mT @ k)),
    "P is not transposed in dV": Formulas(dv=lambda p, do, v: p @ do),
    "dV is scaled": Formulas(dv=lambda p, do, v: p.mT @ do / root(v, v.shape[-1])),
}


#: Wrong formulas for dS from P and dP.
_SCORES: dict[str, Callable[[Array, Array], Array]] = {
    "the sums over the rows, rowsum(P ⊙ dP), are not subtracted": lambda p, dp: p * dp,
    "rowsum(dP) is subtracted in place of rowsum(P ⊙ dP)": lambda p, dp: (
        p * (dp - _sum_gradient_rows(dp))
    ),
    "rowsum(P), which is 1, is subtracted in place of rowsum(P ⊙ dP)": lambda p, dp: (
        p * (dp - _sum_gradient_rows(p))
    ),
    "the mean of dP is subtracted in place of rowsum(P ⊙ dP)": lambda p, dp: (
        p * (dp - namespace_of(dp).mean(dp, axis=-1, keepdims=True))
    ),
    "sums over the columns of P ⊙ dP are subtracted, not over the rows": lambda p, dp: (
        p * (dp - _sum_gradient_rows(p * dp, -2))
    ),
    "rowsum(P ⊙ dP) is subtracted after P has multiplied: P ⊙ dP − rowsum(P ⊙ dP)": lambda p, dp: (
        p * dp - _sum_gradient_rows(p * dp)
    ),
    "rowsum(P ⊙ dP) is added, not subtracted": lambda p, dp: p * (dp + _sum_gradient_rows(p * dp)),
    "the derivative of softmax is taken as P (1 − P), its diagonal": lambda p, dp: p * (1 - p) * dp,
    "the softmax is not differentiated: dS is dP": lambda p, dp: dp,
    "the signs of dQ and dK are changed": lambda p, dp: -(p * (dp - _sum_gradient_rows(p * dp))),
}


def _without_sink(spec: Attention, values: dict[str, Any]) -> Array:
    p: Array = values["weights"]
    return p / _sum_gradient_rows(p)


_OF_SINKS = {
    "the sink is left out of the weights of the backward pass": Formulas(weights=_without_sink),
    "the sink is left out of rowsum(P ⊙ dP), as if the weights of the keys summed to 1": Formulas(
        scores=lambda p, dp: p * (dp - _sum_gradient_rows(p * dp) / _sum_gradient_rows(p))
    ),
}


def _yield_query_key_mistakes(
    words: str, function: Callable[[Any, Any], Array]
) -> Iterator[tuple[str, Formulas]]:
    """Yield a mistake in dQ, in dK and in both: ``function`` gets the product, and the scale as a function."""
    both = Formulas(
        dq=lambda ds, q, k, c: function(ds @ k, c), dk=lambda ds, q, k, c: function(ds.mT @ q, c)
    )
    yield f"dQ is {words}", Formulas(dq=both.dq)
    yield f"dK is {words}", Formulas(dk=both.dk)
    yield f"dQ and dK are {words}", both


def _of_groups() -> Iterator[tuple[str, Formulas]]:
    words = {
        "first": "are those of the first head of each group alone, not the sum over the group",
        "last": "are those of the last head of each group alone, not the sum over the group",
        "mean": "are the mean over each group of heads, not the sum",
        "turn": "are sums over heads t, t + kv_heads, …, as if they shared in turn, not one after another",
    }
    for how, phrase in words.items():
        one = partial(_combine_shared_head_gradients, how)
        yield f"dK and dV {phrase}", Formulas(shared=one, shared_values=one)
        # The words speak of dK and dV together; of one of them the verb is singular.
        yield f"dK {phrase}".replace(" are ", " is "), Formulas(shared=one)
        yield f"dV {phrase}".replace(" are ", " is "), Formulas(shared_values=one)


def _unscaled_scores(spec: Attention, values: dict[str, Any]) -> Array:
    """Return the masked scores without the scale."""
    s = values["scores"]
    return forbid(s, namespace_of(s).isfinite(before(spec, values, "weights")))


def _by_sums(spec: Attention, values: dict[str, Any], scores: Weights = _unscaled_scores) -> Array:
    """Return e^{s − L} with L of the right scores and other scores s."""
    s, right = scores(spec, values), before(spec, values, "weights")
    xp = namespace_of(s)
    # The largest right score is subtracted on both sides, so that no sum overflows.
    top = xp.max(right, axis=-1, keepdims=True)
    return xp.exp(s - top) / xp.sum(xp.exp(right - top), axis=-1, keepdims=True)


def _in_bases(scores: bool, sums: bool, spec: Attention, values: dict[str, Any]) -> Array:
    """Return e^{s − L}, with 2 instead of e for the scores, for the sums, or for both."""
    s = before(spec, values, "weights")
    xp = namespace_of(s)
    two = xp.log(xp.asarray(2, dtype=s.dtype))
    lse = log_sum_exp(s)
    return xp.exp((s * two if scores else s) - (lse * two if sums else lse))


def _not_normalised(spec: Attention, values: dict[str, Any]) -> Array:
    s = before(spec, values, "weights")
    xp = namespace_of(s)
    return xp.exp(s - xp.max(s, axis=-1, keepdims=True))


def _of_wrong(spec: Attention, variant: Any, do: Any, **by_name: Any) -> tuple[Any, ...]:
    """Return the exact gradient of a wrong variant of attention."""

    result = vjp(lambda **arrays: variant_values(spec, arrays, variant)["output"], do, by_name, WRT)
    return tuple(result[n] for n in WRT)
