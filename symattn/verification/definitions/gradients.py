"""``Gradient`` of an ``Attention``: what a backward pass gives, against the exact derivative."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from symattn.attention import derivative, fields
from symattn.attention.gradients.backward import backward
from symattn.attention.spec import Attention
from symattn.attention.streaming.by_tiles import backward_by_tiles
from symattn.bounds.target import Inputs, Layout
from symattn.document import codec, errors, keywords
from symattn.verification.definitions.attending import axes, check, in_order, inputs, of_attention, swapped, tiles
from symattn.verification.definitions.gradient_mistakes import mistakes, of_wrong_attention
from symattn.verification.definitions.subject import Compute, Definition, Input, Later
from symattn.verification.subject import Array

WRT = ("q", "k", "v")


@dataclass(frozen=True)
class Gradient(keywords.Answering):
    """The gradients dQ, dK, dV of ⟨dO, Attention(Q, K, V)⟩.

    attention  the attention that is differentiated

    A function takes q, k, v, the other inputs of the attention, and do, the gradient of its output; optionally also
    the output o and the logarithms of the sums lse, as a forward pass kept them. It returns (dq, dk, dv), in the
    shapes of q, k, v; gradients of shared keys and values are sums over the heads. A torch function without a
    parameter for do counts as the forward pass, and its gradients are those of autograd.

    Source: Dao et al., FlashAttention (2022), appendix B.2; its algorithm 4 for o and lse.

    >>> Gradient(Attention(causal=True))
    Gradient(attention=Attention(causal=True))
    """

    attention: Attention

    __repr__ = fields.brief

    def __post_init__(self) -> None:
        if not isinstance(self.attention, Attention):
            raise fields.refusal(self, "attention", "be an Attention")
        if self.attention.lse:
            raise errors.InputError("Gradient: of the output alone; hint: lse=False")

    def __call__(self, do: Any, **given: Any) -> tuple[Any, ...]:
        """dQ, dK, dV, by the derivative of the definition itself."""
        result = derivative.vjp(self.attention, do, given, WRT)
        return tuple(result[n] for n in WRT)


def subject(spec: Gradient, layout: Layout = "nd") -> Definition:
    """The gradients, ready to be verified."""
    attention = spec.attention
    check(attention, "Gradient", layout)
    do = Input("do", axes(attention, layout, "h", "n_q", "d_v"), keywords.UPSTREAM)
    kept = (
        Input("o", do.shape, "out output attn_out fwd_out", needed=False, made=partial(_saved, attention, layout, 0)),
        Input("lse", axes(attention, "nd" if layout == "nd" else "bhnd", "h", "n_q"), "softmax_lse logsumexp l",
              needed=False, made=partial(_saved, attention, layout, 1)),
    )  # fmt: skip
    turned = ("q", "k", "v", "do")

    def laid(run: Compute) -> Compute:
        run = partial(_without_saved, run)
        return in_order(run, layout, turned, lambda result: tuple(map(swapped, result)))

    return of_attention(
        attention,
        layout,
        title=f"Gradient({codec.called(attention)})",
        step="backward",
        inputs=(*inputs(attention, layout), do, *kept),
        outputs=("dq", "dk", "dv"),
        ways=tuple(map(laid, _ways(spec))),
        mistakes=Later(lambda: (replace(m, run=laid(m.run)) for m in mistakes(attention))),
        others=Later(lambda: (replace(m, run=laid(m.run)) for m in of_wrong_attention(attention))),
    )


def _saved(attention: Attention, layout: Layout, which: int, given: Inputs) -> Array:
    """The output, or L, of the forward pass, in float64."""
    arrays = {n: a for n, a in given.items() if n not in ("do", "o", "lse")}
    if layout in ("bnhd", "nhd"):
        arrays = {n: swapped(a) if n in WRT else a for n, a in arrays.items()}
    result = replace(attention, lse=True)(**arrays)[which]
    return swapped(result) if which == 0 and layout in ("bnhd", "nhd") else result  # type: ignore[no-any-return]


def _without_saved(run: Compute, o: Any = None, lse: Any = None, **given: Any) -> Any:
    return run(**given)


def _ways(spec: Gradient) -> tuple[Compute, ...]:
    """Return the ways: by hand from the weights; of the definition itself; from o and L, at once and key by key."""
    result: tuple[Compute, ...] = (partial(_by_hand, spec.attention), spec)
    if spec.attention.normaliser != "softmax" or spec.attention.base is not None or spec.attention.dropout:
        return result
    return *result, partial(_by_tiles, spec.attention, False), partial(_by_tiles, spec.attention, True)


def _by_hand(attention: Attention, do: Any, **given: Any) -> tuple[Any, ...]:
    result = backward(attention, do, given, WRT)
    return tuple(result[n] for n in WRT)


def _by_tiles(attention: Attention, each: bool, do: Any, **given: Any) -> tuple[Any, ...]:
    n_q, n_k = (int(given[n].shape[-2]) for n in "qk")
    keys = tiles(given["q"], n_k) if each else [0, n_k]
    result = backward_by_tiles(attention, (0, n_q), keys, do, given, WRT)
    return tuple(result[n] for n in WRT)
