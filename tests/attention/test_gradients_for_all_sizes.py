"""What the backward passes compute is the derivative of what is computed forwards, and some definitions that theorems
print, and do not run, give what is printed: proved for all sizes."""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature
from typing import Any

import pytest

from symattn import Attention, Grade, functional, proving, streaming

Passes = Callable[..., tuple[Any, ...]]
SCORES, TURNS = {"s": "n m", "g": "n m"}, {"cos": "n f", "sin": "n f"}
QKV = {"q": "n d", "k": "m d", "v": "m e", "g": "n e"}
ATTENTION, CAUSAL, BIASED = Attention(), Attention(causal=True, fully_masked="nan"), Attention(bias=True)


def _attended(spec: Attention, q: Any, k: Any, v: Any, g: Any) -> tuple[Any, ...]:
    return tuple(functional.backward(q, k, v, spec.trace(q, k, v)["weights"], g))


def _sigmoid(x: Any) -> Any:
    powers_of_x = x.__array_namespace__().exp(x)
    return powers_of_x / (1 + powers_of_x)


def _capped(s: Any) -> Any:
    return 2 * s.__array_namespace__().tanh(s / 2)


def _times_root(x: Any) -> Any:
    xp = x.__array_namespace__()
    return x * xp.sqrt(xp.asarray(x.shape[-1]))


def _grouped(q: Any, k: Any, v: Any) -> Any:
    times = q.shape[0] // k.shape[0]
    return ATTENTION(q, functional.repeat_heads(k, times), functional.repeat_heads(v, times))


def _shared(q: Any, k: Any, v: Any, g: Any) -> tuple[Any, ...]:
    times = q.shape[0] // k.shape[0]
    dq, dk, dv = _attended(ATTENTION, q, functional.repeat_heads(k, times), functional.repeat_heads(v, times), g)
    return dq, *(x.reshape(-1, times, *x.shape[1:]).sum(axis=1) for x in (dk, dv))


def _biased(q: Any, k: Any, v: Any, g: Any, bias: Any, of_keys: bool = False) -> tuple[Any, ...]:
    p = BIASED.trace(q, k, v, bias=bias)["weights"]
    ds = functional.softmax_vjp(p, g @ v.mT)
    # A bias of keys is read by all queries.
    return (
        *functional.backward(q, k, v, p, g),
        ds.__array_namespace__().sum(ds, axis=-2, keepdims=True) if of_keys else ds,
    )


def _with_sink(s: Any, sink: Any, g: Any) -> tuple[Any, Any]:
    """(dS, db) with a sink b: db = −p_b D, D = rowsum(P ⊙ dP) and p_b = 1 − rowsum(P)."""
    p, xp = functional.sink_weights(s, sink), s.__array_namespace__()
    own = 1 - xp.sum(p, axis=-1, keepdims=True)
    return functional.softmax_vjp(p, g), -own * xp.sum(p * g, axis=-1, keepdims=True)


#: What is computed forwards, the shapes of its arrays and of the gradient g by it, and what is computed backwards.
PASSES: dict[str, tuple[Callable[..., Any], dict[str, str], Passes]] = {
    "softmax": (functional.softmax, SCORES, lambda s, g: (functional.softmax_vjp(functional.softmax(s), g),)),
    "softmax-without-maximum": (
        partial(functional.softmax, stabilised=False),
        SCORES,
        lambda s, g: (functional.softmax_vjp(functional.softmax(s), g),),
    ),
    "sink": (
        functional.sink_weights,
        {"s": "n m", "sink": "n 1", "g": "n m"},
        _with_sink,
    ),
    "sigmoid": (
        partial(functional.sigmoid_weights, bias=0),
        SCORES,
        lambda s, g: (functional.sigmoid_gradient(_sigmoid(s), g),),
    ),
    "softcap": (_capped, SCORES, lambda s, g: (functional.softcap_gradient(_capped(s), 2, g),)),
    **{
        turn.__name__: (
            turn,
            {"x": f"n {d}", "g": f"n {d}", **TURNS},
            lambda x, g, cos, sin, t=turn: (t(g, cos, -sin),),
        )
        for turn, d in ((functional.rotate_interleaved, "f*2"), (functional.rotate_half, "f+f"))
    },
    "attention": (ATTENTION, QKV, partial(_attended, ATTENTION)),
    "heads": (ATTENTION, {x: f"h {shape}" for x, shape in QKV.items()}, partial(_attended, ATTENTION)),
    "causal": (CAUSAL, {"q": "n d", "k": "n d", "v": "n e", "g": "n e"}, partial(_attended, CAUSAL)),
    "bias": (BIASED, {**QKV, "bias": "n m"}, _biased),
    "bias-of-keys": (BIASED, {**QKV, "bias": "1 m"}, partial(_biased, of_keys=True)),
    "shared": (_grouped, {"q": "h*r n d", "k": "h m d", "v": "h m e", "g": "h*r n e"}, _shared),
}
LONG = ("causal", "shared", "bias", "bias-of-keys", "heads")


def _stated(function: Callable[..., Any], arrays: dict[str, str], passes: Passes) -> proving.Identity:
    moved = [x for x in arrays if x not in ("g", *TURNS)]

    def along(g: Any, **given: Any) -> Any:
        return (g * function(**given)).sum()

    def sides(**given: Any) -> list[tuple[Any, Any]]:
        return [(proving.gradient(along, x, **given), dx) for x, dx in zip(moved, passes(*given.values()), strict=True)]

    sides.__signature__ = Signature([Parameter(x, Parameter.KEYWORD_ONLY) for x in arrays])  # type: ignore[attr-defined]
    return proving.Identity(proving.Declared(arrays), sides, ())


# -- definitions -------------------------------------------------------------------------------------------------------
def _later_step(q: Any, k: Any, v: Any, p: Any) -> list[Any]:
    state, sums = (
        x + y for x, y in zip(streaming.linear_state(k[:p], v[:p]), streaming.linear_state(k[p:], v[p:]), strict=True)
    )
    whole, output = streaming.linear_state(k, v), (q[p:] @ state) / (q[p:] @ sums.mT)
    products = streaming.causal_products(q, k, v)[p:], q[p:] @ state
    return [(streaming.causal_linear_attention(q, k, v)[p:], output), (whole[0], state), (whole[1], sums), products]


def _merged(s: Any, t: Any, v: Any, w: Any) -> list[Any]:
    xp = s.__array_namespace__()
    scores, values = xp.concat([s, t], axis=-1), xp.concat([v, w], axis=-2)
    output, lse = streaming.merge_partial(streaming.partial_output(s, v), streaming.partial_output(t, w))
    return [(output, functional.softmax(scores) @ values), (xp.exp(lse), xp.exp(scores).sum(axis=-1, keepdims=True))]


def _beside_output(q: Any, k: Any, v: Any) -> list[Any]:
    xp, s = q.__array_namespace__(), ATTENTION.trace(q, k, v)["scaled"]
    output, lse = Attention(lse=True)(q, k, v)
    return [(output, functional.softmax(s) @ v), (xp.exp(lse), xp.exp(s).sum(axis=-1))]


def _heads_of_tokens(x: Any, w_q: Any, w_k: Any, w_v: Any) -> Any:
    heads = ATTENTION(*(functional.split_heads(x @ w, 2) for w in (w_q, w_k, w_v)))
    return Attention(heads=2)(x=x, w_q=w_q, w_k=w_k, w_v=w_v), functional.merge_heads(heads)


def _heads_projected(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any) -> Any:
    heads = ATTENTION(*(functional.split_heads(x @ w, 2) for w in (w_q, w_k, w_v)))
    return Attention(heads=2)(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o), functional.merge_heads(heads) @ w_o


def _two_heads(x: Any, y: Any) -> list[Any]:
    """Columns in two blocks, one a head."""
    xp, e = x.__array_namespace__(), y.shape[-1]

    def blocks(z: Any) -> Any:
        return xp.permute_dims(xp.reshape(z, (*z.shape[:-1], 2, e)), (0, 2, 1, 3))

    return [(functional.split_heads(x, 2), blocks(x)), (blocks(functional.merge_heads(y)), y)]


def _from_two_sources(x: Any, y: Any, w_q: Any, w_k: Any, w_v: Any) -> list[Any]:
    return [
        (ATTENTION(x=x, y=y), ATTENTION(x, y, y)),
        (ATTENTION(x=x), ATTENTION(x, x, x)),
        (ATTENTION(x=x, y=y, w_q=w_q, w_k=w_k, w_v=w_v), ATTENTION(x @ w_q, y @ w_k, y @ w_v)),
    ]


def _seen(s: Any, t: Any, u: Any, w: Any) -> list[Any]:
    """Which keys queries see, as numbers: the last rows and columns of S and T belong together, the first of U, W."""
    xp, n, p = s.__array_namespace__(), s.shape[0], t.shape[0] - t.shape[1]

    def number(seen: Any) -> Any:
        return xp.where(seen, 1, 0)

    def until(scores: Any, offset: Any) -> Any:
        i, j = (xp.arange(length) for length in scores.shape)
        return number(j[None, :] <= i[:, None] + offset)

    first = "top-left"
    return [
        (number(functional.causal(s)), until(s, p)),
        (number(functional.causal(t))[p:], until(t[p:], 0)),
        (number(functional.causal(t))[:p], 0 * t[:p]),
        (number(functional.causal(u, first)), until(u, 0)),
        (number(functional.causal(w, first))[:n], until(w[:n], 0)),
        (number(functional.causal(w, first))[n:], 0 * w[n:] + 1),
    ]


def _turned(x: Any, y: Any, cos: Any, sin: Any) -> list[Any]:
    """A pair stands in two neighbouring columns of X, and in columns l and l + f of Y."""
    xp, f = x.__array_namespace__(), cos.shape[-1]

    def apart(z: Any) -> tuple[Any, Any]:
        pairs = xp.reshape(z, (*z.shape[:-1], f, 2))
        return pairs[..., 0], pairs[..., 1]

    def halves(z: Any) -> tuple[Any, Any]:
        return z[..., :f], z[..., f:]

    def turned(a: Any, b: Any) -> tuple[Any, Any]:
        return a * cos - b * sin, b * cos + a * sin

    return [
        *zip(apart(functional.rotate_interleaved(x, cos, sin)), turned(*apart(x)), strict=True),
        *zip(halves(functional.rotate_half(y, cos, sin)), turned(*halves(y)), strict=True),
        *zip(apart(functional.sinusoidal(cos, sin)), (sin, cos), strict=True),
    ]


def _of_tokens(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, b_q: Any, b_o: Any) -> Any:
    output = ATTENTION(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o, b_q=b_q, b_o=b_o)
    return output, ATTENTION(x @ w_q + b_q, x @ w_k, x @ w_v) @ w_o + b_o


DEFINED: dict[str, tuple[dict[str, str], Callable[..., Any]]] = {
    "exponentials less the maximum": (
        {"s": "n m"},
        lambda s: (functional.exponentials(s) * functional.powers(functional.row_max(s)), functional.powers(s)),
    ),
    "linear": (
        {"q": "n f", "k": "m f", "v": "m d"},
        lambda q, k, v: ((q @ k.mT @ v) / (q @ k.mT).sum(axis=-1, keepdims=True), streaming.linear_attention(q, k, v)),
    ),
    "first-step": (
        {"q": "1 f", "k": "1 f", "v": "1 d"},
        lambda q, k, v: ((q @ (k.mT @ v)) / (q @ k.mT), streaming.causal_linear_attention(q, k, v)),
    ),
    "later-step": ({"q": "p+1 f", "k": "p+1 f", "v": "p+1 d"}, _later_step),
    "merged": ({"s": "n a", "t": "n b", "v": "a d", "w": "b d"}, _merged),
    "heads-of-tokens": ({"x": "n d", "w_q": "d 2*e", "w_k": "d 2*e", "w_v": "d 2*f"}, _heads_of_tokens),
    "heads-projected": (
        {"x": "n d", "w_q": "d 2*e", "w_k": "d 2*e", "w_v": "d 2*f", "w_o": "2*f d"},
        _heads_projected,
    ),
    "two-heads": ({"x": "g n 2*e", "y": "g 2 n e"}, _two_heads),
    "two-sources": ({"x": "n d", "y": "m d", "w_q": "d e", "w_k": "d e", "w_v": "d f"}, _from_two_sources),
    "causal-mask": ({"s": "n p+n", "t": "p+n n", "u": "n n+p", "w": "n+p n"}, _seen),
    "turned": ({"x": "g n f*2", "y": "g n f+f", "cos": "g n f", "sin": "g n f"}, _turned),
    "unit-vectors": (
        {"x": "g n d"},
        lambda x: [
            (functional.unit(x), x / x.__array_namespace__().sqrt((x * x).sum(axis=-1, keepdims=True))),
            (_times_root(functional.unit(x)), functional.rms_norm(x)),
        ],
    ),
    "of-tokens": (
        {"x": "n d", "w_q": "d e", "w_k": "d e", "w_v": "d f", "w_o": "f d", "b_q": "e", "b_o": "d"},
        _of_tokens,
    ),
    "log-sums": ({"q": "n d", "k": "m d", "v": "m e"}, _beside_output),
}
STATEMENTS = {name: _stated(*each) for name, each in PASSES.items()}
STATEMENTS |= {name: proving.Identity(proving.Declared(arrays), sides, ()) for name, (arrays, sides) in DEFINED.items()}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.deep if n in LONG else ()) for n in STATEMENTS])
def test_it_is_proved(name: str) -> None:
    assert STATEMENTS[name].decide().evidence.grade is Grade.PROVED
