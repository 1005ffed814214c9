"""Known mistakes in backward passes of attention: wrong formulas, and the gradients of wrong attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.derivative import vjp
from symattn.attention.gradients.scores import softcap_gradient
from symattn.attention.groups import repeat_heads
from symattn.attention.inputs import NEEDED
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.bounds.mistake import step
from symattn.bounds.reference import Change, Values, Variant, changed, raw, trace
from symattn.verification.definitions.attending import plain
from symattn.verification.definitions.subject import Mistake
from symattn.verification.rules import known

Shared = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Formulas:
    """The backward pass of attention by dot products, each formula of it open to change.

    dV = Pᵀ dO, dP = dO Vᵀ, dS = P ⊙ (dP − rowsum(P ⊙ dP)), times the derivative of a cap, dQ = c dS K, dK = c dSᵀ Q;
    summed over heads that share.
    """

    weights: Callable[[Any, dict[str, Any]], Any] = lambda spec, values: values["weights"]
    scores: Callable[[Any, Any], Any] = lambda p, dp: p * (dp - _rows(p * dp))
    dq: Callable[..., Any] = lambda ds, q, k, c: c(ds @ k)
    dk: Callable[..., Any] = lambda ds, q, k, c: c(ds.mT @ q)
    dv: Callable[..., Any] = lambda p, do, v: p.mT @ do
    shared: Shared = lambda g, times: _grouped(g, times, "sum")
    shared_values: Shared = lambda g, times: _grouped(g, times, "sum")

    def __call__(self, spec: Attention, do: Array, **given: Any) -> tuple[Any, ...]:
        """dQ, dK, dV."""
        values = spec.trace(**given)
        times = spec.heads // spec.key_heads
        q = given["q"]
        k, v = (repeat_heads(given[n], times) if times > 1 else given[n] for n in "kv")
        p = self.weights(spec, values)
        ds = self.scores(p, do @ v.mT)
        ds = softcap_gradient(values["capped"], spec.softcap, ds) if spec.softcap is not None else ds
        c = partial(_scaled, spec, q)
        dq, dk, dv = self.dq(ds, q, k, c), self.dk(ds, q, k, c), self.dv(p, do, v)
        return (dq, self.shared(dk, times), self.shared_values(dv, times)) if times > 1 else (dq, dk, dv)


def _rows(x: Array) -> Array:
    return namespace_of(x).sum(x, axis=-1, keepdims=True)


def _scaled(spec: Attention, q: Any, x: Any) -> Any:
    if spec.scale is None:
        return x / namespace_of(q).sqrt(namespace_of(q).asarray(q.shape[-1], dtype=q.dtype))
    return x * namespace_of(q).asarray(spec.scale, dtype=q.dtype)


def _grouped(g: Any, times: int, how: str) -> Any:
    """Of the gradients of the heads that share: their sum, mean, the first or the last."""
    xp = namespace_of(g)
    *batch, heads, n, d = g.shape
    apart = xp.reshape(g, (*batch, heads // times, times, n, d))
    if how == "sum":
        return xp.sum(apart, axis=-3)
    return xp.mean(apart, axis=-3) if how == "mean" else apart[..., 0 if how == "first" else -1, :, :]


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """In the formulas, where attention is plain but for a cap, a bias and a sink."""
    if plain(replace(spec, softcap=None, bias=False, sink=None)) and spec.scale not in ("given", "1/d_k"):
        for cause, formulas in (*_formulas(spec), *(_of_sinks() if spec.sink else ())):
            if plain(spec) or formulas.weights in (Formulas.weights, _without_sink):
                yield Mistake("backward", cause, partial(formulas, spec))
    steps = {step.name for step in spec.pipeline(_names(spec))}
    for cause, names in _PASSED.items():
        if steps.issuperset(names):
            yield Mistake("backward", cause, partial(_passed, spec, names))


#: Steps that a backward pass may go through as if they changed nothing.
_PASSED = {
    "the derivative of the cap is left out: dS is not multiplied by 1 − tanh²(s/c)": ("capped",),
    "dQ and dK are not rotated back: they are those of rotated queries and keys": ("q_rotated", "k_rotated"),
    "dQ is not rotated back: it is that of rotated queries": ("q_rotated",),
    "dK is not rotated back: it is that of rotated keys": ("k_rotated",),
    "dQ and dK are those of normalised queries and keys: the norm is not differentiated": ("q_normed", "k_normed"),
    "dQ is that of normalised queries: the norm is not differentiated": ("q_normed",),
    "dK is that of normalised keys: the norm is not differentiated": ("k_normed",),
}


def _names(spec: Attention) -> frozenset[str]:
    return frozenset("qkv") | {name for name, needed in NEEDED.items() if needed(spec)}


def _passed(spec: Attention, names: tuple[str, ...], do: Any, **given: Any) -> tuple[Any, ...]:
    """The gradient where the steps have the derivative 1: each gives x + (y − x), y − x as it was."""
    right = spec.trace(**given)

    def as_before(name: str) -> Change:
        def run(spec: Attention, values: Values) -> Any:
            first = step(spec, values, name).of[0]
            return values[first] + (right[name] - right[first])

        return run

    return _of_wrong(spec, Variant({name: as_before(name) for name in names}), do, **given)


def of_wrong_attention(spec: Attention) -> Iterator[Mistake]:
    """The exact gradient of every known wrong variant of attention."""
    for wrong in known(spec, _names(spec)):
        cause = f"it is the gradient of other attention: {wrong.cause}"
        yield Mistake("backward", cause, partial(_of_wrong, spec, wrong.variant))


def dropping(spec: Attention, factors: Any) -> Iterator[Mistake]:
    """In the formulas, where attention is plain and ``factors`` (…, n_q, n_k), 0 or 1/(1 − r), drop weights.

    dV = (c ⊙ P)ᵀ dO and dS = P ⊙ (c ⊙ dP − rowsum(P ⊙ c ⊙ dP)) are the right ones.
    """
    right = _dropped(factors)
    kept = _dropped(factors != 0)
    named = [
        ("dropout is left out of the backward pass", Formulas()),
        (
            "dropout is left out of the backward pass, but for rowsum(dO ⊙ O)",
            Formulas(scores=lambda p, dp: p * (dp - _rows(p * factors * dp))),
        ),
        ("dropout is left out of dV", replace(right, dv=Formulas.dv)),
        ("dropout is left out of dP", replace(right, scores=Formulas.scores)),
        ("what is kept is not divided by 1 − r in the backward pass", kept),
        ("what is kept is not divided by 1 − r in dV", replace(right, dv=kept.dv)),
        ("what is kept is not divided by 1 − r in dP", replace(right, scores=kept.scores)),
    ]
    for cause, formulas in named:
        yield Mistake("backward", cause, partial(formulas, spec))
    for cause, formulas in _formulas(spec):
        if formulas.scores is Formulas.scores and formulas.dv is Formulas.dv:
            yield Mistake("backward", cause, partial(replace(formulas, scores=right.scores, dv=right.dv), spec))


def _dropped(factors: Any) -> Formulas:
    """The right formulas with these factors."""
    return Formulas(
        scores=lambda p, dp: p * (factors * dp - _rows(p * factors * dp)),
        dv=lambda p, do, v: (factors * p).mT @ do,
    )


def _formulas(spec: Attention) -> Iterator[tuple[str, Formulas]]:
    right = Formulas()
    if spec.key_heads < spec.heads:
        yield from _of_groups()
    if spec.scale != 1:
        yield from _twofold("not scaled", lambda x, c: x)
        yield from _twofold("scaled twice", lambda x, c: c(c(x)))
        yield "weights are computed again from scores that are not scaled", replace(right, weights=_unscaled)
    yield "the sums over the rows, rowsum(P ⊙ dP), are not subtracted", replace(right, scores=lambda p, dp: p * dp)
    yield (
        "rowsum(dP) is subtracted in place of rowsum(P ⊙ dP)",
        replace(right, scores=lambda p, dp: p * (dp - _rows(dp))),
    )
    yield (
        "rowsum(P), which is 1, is subtracted in place of rowsum(P ⊙ dP)",
        replace(right, scores=lambda p, dp: p * (dp - _rows(p))),
    )
    yield (
        "the mean of dP is subtracted in place of rowsum(P ⊙ dP)",
        replace(right, scores=lambda p, dp: p * (dp - namespace_of(dp).mean(dp, axis=-1, keepdims=True))),
    )
    yield (
        "sums over the columns of P ⊙ dP are subtracted, not over the rows",
        replace(right, scores=lambda p, dp: p * (dp - namespace_of(p).sum(p * dp, axis=-2, keepdims=True))),
    )
    yield (
        "rowsum(P ⊙ dP) is subtracted after P has multiplied: P ⊙ dP − rowsum(P ⊙ dP)",
        replace(right, scores=lambda p, dp: p * dp - _rows(p * dp)),
    )
    yield "rowsum(P ⊙ dP) is added, not subtracted", replace(right, scores=lambda p, dp: p * (dp + _rows(p * dp)))
    yield (
        "the derivative of softmax is taken as P (1 − P), its diagonal",
        replace(right, scores=lambda p, dp: p * (1 - p) * dp),
    )
    yield "the softmax is not differentiated: dS is dP", replace(right, scores=lambda p, dp: dp)
    yield "the sign of dQ is changed", replace(right, dq=lambda ds, q, k, c: -c(ds @ k))
    yield "the sign of dK is changed", replace(right, dk=lambda ds, q, k, c: -c(ds.mT @ q))
    yield "the signs of dQ and dK are changed", replace(right, scores=lambda p, dp: -(p * (dp - _rows(p * dp))))
    yield "dQ is of queries in place of keys", replace(right, dq=lambda ds, q, k, c: c(ds @ q))
    yield "dK is of keys in place of queries", replace(right, dk=lambda ds, q, k, c: c(ds.mT @ k))
    yield "dS is not transposed in dK", replace(right, dk=lambda ds, q, k, c: c(ds @ q))
    yield "dS is transposed in dQ", replace(right, dq=lambda ds, q, k, c: c(ds.mT @ k))
    yield "P is not transposed in dV", replace(right, dv=lambda p, do, v: p @ do)
    yield "dV is scaled", replace(right, dv=lambda p, do, v: p.mT @ do / namespace_of(v).sqrt(
        namespace_of(v).asarray(v.shape[-1], dtype=v.dtype)))  # fmt: skip
    yield "the exponentials in P are not divided by their sum", replace(right, weights=_not_normalised)
    if spec.masks_anything:
        yield "the mask is left out of the backward pass", replace(right, weights=_unmasked)
        yield (
            "the mask is left out of the weights that are computed again from the sums",
            replace(right, weights=_by_sums_without_mask),
        )


def _of_sinks() -> Iterator[tuple[str, Formulas]]:
    right = Formulas()
    yield "the sink is left out of the weights of the backward pass", replace(right, weights=_without_sink)
    yield (
        "the sink is left out of rowsum(P ⊙ dP), as if the weights of the keys summed to 1",
        replace(right, scores=lambda p, dp: p * (dp - _rows(p * dp) / _rows(p))),
    )


def _without_sink(spec: Attention, values: dict[str, Any]) -> Any:
    return values["weights"] / _rows(values["weights"])


def _twofold(words: str, made: Callable[[Any, Any], Any]) -> Iterator[tuple[str, Formulas]]:
    """The same mistake in dQ, in dK and in both: what becomes of the product, with the scale as a function."""
    both = Formulas(dq=lambda ds, q, k, c: made(ds @ k, c), dk=lambda ds, q, k, c: made(ds.mT @ q, c))
    yield f"dQ is {words}", Formulas(dq=both.dq)
    yield f"dK is {words}", Formulas(dk=both.dk)
    yield f"dQ and dK are {words}", both


def _of_groups() -> Iterator[tuple[str, Formulas]]:
    words = {
        "first": "are those of the first head of each group alone, not the sum over the group",
        "last": "are those of the last head of each group alone, not the sum over the group",
        "mean": "are the mean over each group of heads, not the sum",
    }
    for how, said in words.items():
        one: Any = partial(_shared_as, how)
        yield f"dK and dV {said}", Formulas(shared=one, shared_values=one)
        yield f"dK {said}".replace(" are ", " is "), Formulas(shared=one)
        yield f"dV {said}".replace(" are ", " is "), Formulas(shared_values=one)


def _shared_as(how: str, g: Any, times: int) -> Any:
    return _grouped(g, times, how)


def _score_names(spec: Attention, values: dict[str, Any]) -> tuple[str, str]:
    """The raw scores, and those that the weights are made of."""
    steps = spec.pipeline([n for n in ("q", "k", "v", "mask", "keep") if n in values])
    return raw(spec, steps), next(s for s in steps if s.name == "weights").of[0]


def _finite(spec: Attention, values: dict[str, Any]) -> Any:
    s = values[_score_names(spec, values)[1]]
    return namespace_of(s).isfinite(s)


def _unscaled(spec: Attention, values: dict[str, Any]) -> Any:
    xp = namespace_of(values["scores"])
    return softmax(xp.where(_finite(spec, values), values["scores"], -xp.inf))


def _unmasked(spec: Attention, values: dict[str, Any]) -> Any:
    return softmax(values[_before(spec, values)])


def _before(spec: Attention, values: dict[str, Any]) -> str:
    steps = spec.pipeline([n for n in ("q", "k", "v", "mask", "keep") if n in values])
    return next(s for s in steps if s.name == "masked").of[0]


def _by_sums_without_mask(spec: Attention, values: dict[str, Any]) -> Array:
    """e^{s − L}, L that of the masked scores and s without a mask."""
    s, masked = values[_before(spec, values)], values[_score_names(spec, values)[1]]
    xp = namespace_of(s)
    top = xp.max(masked, axis=-1, keepdims=True)
    return xp.exp(s - top) / xp.sum(xp.exp(masked - top), axis=-1, keepdims=True)


def _not_normalised(spec: Attention, values: dict[str, Any]) -> Array:
    s = values[_score_names(spec, values)[1]]
    xp = namespace_of(s)
    return xp.exp(s - xp.max(s, axis=-1, keepdims=True))


def _of_wrong(spec: Attention, variant: Any, do: Any, **given: Any) -> tuple[Any, ...]:
    """The exact gradient of a wrong variant of attention."""

    def run(**arrays: Any) -> Any:
        other, inputs = changed(spec, arrays, variant)
        return trace(other, dict(inputs), variant)["output"]

    found = vjp(run, do, given, ("q", "k", "v"))
    return found["q"], found["k"], found["v"]
