"""``LinearAttention``: a state of keys times values in the place of softmax, with features, a normaliser and gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from symattn.arrays.namespace import namespace_of
from symattn.attention.fields import brief, check
from symattn.attention.linear.delta import delta_token
from symattn.attention.linear.features import elu_plus_one, exponential, identity, relu
from symattn.attention.linear.gated import decayed_scores, empty_state, gate_sums, gated_chunk, gated_step, scan
from symattn.bounds.target import Layout
from symattn.document.codec import called
from symattn.document.errors import InputError
from symattn.document.keywords import Answering
from symattn.verification.definitions.attending import FEW, LAYOUTS, in_order, swapped
from symattn.verification.definitions.linear_features import OTHERS, Feature
from symattn.verification.definitions.subject import Compute, Definition, Input, Mistake
from symattn.verification.subject import Array, Random

FEATURES: dict[str, Callable[[Any], Any]] = {
    "identity": identity, "elu": elu_plus_one, "relu": relu, "exp": exponential,
}  # fmt: skip
_SIZES = (
    (2, 2, 3),
    (3, 4, 2),
    (5, 3, 4),
    (1, 2, 2),
    (4, 1, 1),
    (8, 2, 3),
    (9, 3, 1),
    (17, 2, 2),
    (16, 4, 3),
    (33, 1, 1),
)


@dataclass(frozen=True, kw_only=True)
class LinearAttention(Answering):
    """o_i = Σ_j φ(q_i)·φ(k_j) v_j, causal: over j ≤ i, and divided by Σ_j φ(q_i)·φ(k_j) if ``normalised``.

    feature     φ: ``identity``, ``elu`` (elu(x) + 1), ``relu``, ``exp``
    causal      whether tokens see those up to their own place
    normalised  whether it is divided by the sum of the weights
    gate        decay of the state before each token: None; ``token``, an input g of logarithms, one a token;
                ``feature``, one for each feature of the key
    delta       the delta rule: the state is corrected by β (v − k S), with an input beta, one a token
    scale       whether queries are divided by √d_k

    A function for it takes q, k (…, n, d_k), v (…, n, d_v), g (…, n) or (…, n, d_k) and beta (…, n), and gives
    (…, n, d_v).

    Sources: Katharopoulos et al., Transformers are RNNs (2020), equations 5 and 9; Yang et al., Gated Linear Attention
    Transformers with Hardware-Efficient Training (2023), §4; Schlag et al. (2021), equation 24.

    >>> LinearAttention(feature="elu", normalised=True).feature
    'elu'
    """

    feature: Literal["identity", "elu", "relu", "exp"] = "elu"
    causal: bool = True
    normalised: bool = True
    gate: Literal["token", "feature"] | None = None
    delta: bool = False
    scale: bool = False

    __repr__ = brief

    def __post_init__(self) -> None:
        check(self)
        if (self.gate or self.delta) and not self.causal:
            raise InputError("LinearAttention: gates and the delta rule go by the order of tokens; hint: causal=True")
        if self.delta and self.normalised:
            raise InputError("LinearAttention: the delta rule has no normaliser; hint: normalised=False")

    def __call__(self, q: Any, k: Any, v: Any, g: Any = None, beta: Any = None) -> Any:
        """The output, from all pairs of tokens; by the delta rule token by token."""
        return _outputs(self, _by_pairs if not self.delta else _by_tokens, q, k, v, g, beta)


def subject(spec: LinearAttention, layout: Layout = "nd") -> Definition:
    """Linear attention, ready to be verified."""
    if layout not in LAYOUTS:
        raise InputError(f"LinearAttention: no layout {layout}; known: {', '.join(LAYOUTS)}")
    front = LAYOUTS[layout]

    def shape(*last: str) -> str:
        if layout in ("bnhd", "nhd"):
            return " ".join([*front.split()[:-1], last[0], "h", *last[1:]])
        return " ".join([*front.split(), *last])

    m = "n" if spec.causal else "m"
    arrays = [
        Input("q", shape("n", "d_k"), "query queries xq r"),
        Input("k", shape(m, "d_k"), "key keys xk"),
        Input("v", shape(m, "d_v"), "value values xv u"),
    ]
    if spec.gate:
        last = ("n", "d_k") if spec.gate == "feature" else ("n",)
        arrays.append(Input("g", shape(*last), "gk gate gates log_decay decay alpha log_g a", _gates))
    if spec.delta:
        arrays.append(Input("beta", shape("n"), "b betas", _betas))

    def laid(run: Compute) -> Compute:
        turned = ("q", "k", "v", *(("g",) if spec.gate == "feature" else ()))
        return in_order(partial(_spread, spec, layout, run), layout, turned, swapped)

    sizes = [{**dict.fromkeys(front.split(), 2 if i < 3 else 1), "n": n, "m": n + 2 if i % 2 else max(1, n - 1),
              "d_k": d_k, "d_v": d_v} for i, (n, d_k, d_v) in enumerate(_SIZES)]  # fmt: skip
    positive = spec.feature in ("elu", "exp") or not spec.normalised
    return Definition(
        title=called(spec),
        step="normalize" if spec.normalised else "values",
        inputs=tuple(arrays),
        outputs=("output",),
        ways=tuple(laid(partial(_outputs, spec, form)) for form in _forms(spec)),
        mistakes=tuple(replace(x, run=laid(x.run)) for x in _mistakes(spec)),
        shapes=tuple(sizes),
        families=FEW if positive else {"normal": FEW["normal"], "large": FEW["large"]},
        settings={"scale": None, "causal": spec.causal},
        means={"m": ("n_k", 1)},
    )


def _gates(shape: tuple[int, ...], rng: Random) -> Array:
    """Logarithms of decays."""
    return -rng.integers(0, 9, shape) / 8.0


def _betas(shape: tuple[int, ...], rng: Random) -> Array:
    return rng.integers(0, 9, shape) / 8.0


def _spread(spec: LinearAttention, layout: Layout, run: Compute, **given: Any) -> Any:
    """One gate and one β a token as columns, heads before tokens."""
    columns = [n for n in ("g", "beta") if n in given and not (n == "g" and spec.gate == "feature")]
    for name in columns:
        column = given[name][..., None]
        given[name] = swapped(column) if layout in ("bnhd", "nhd") else column
    return run(**given)


Form = Callable[..., Any]


def _outputs(spec: LinearAttention, form: Form, q: Any, k: Any, v: Any, g: Any = None, beta: Any = None) -> Any:
    """``form`` of features, over ``form`` of ones where it is normalised."""
    phi = FEATURES[spec.feature]
    a, b = phi(q), phi(k)
    if spec.scale:
        xp = namespace_of(q)
        a = a / xp.sqrt(xp.asarray(q.shape[-1], dtype=q.dtype))
    found = form(spec, a, b, v, g, beta)
    return found / form(spec, a, b, _ones(v), g, beta) if spec.normalised else found


def _ones(v: Any) -> Any:
    return namespace_of(v).sum(0 * v, axis=-1, keepdims=True) + 1


def _by_pairs(spec: LinearAttention, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    """(φ(Q) φ(K)ᵀ ⊙ D) V."""
    if not spec.causal:
        return q @ k.mT @ v
    return decayed_scores(q, k, gate_sums(g)) @ v


def _by_tokens(spec: LinearAttention, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    """The state, token by token."""
    if not spec.causal:
        return q @ (k.mT @ v)
    given = [x for x in (beta, g) if x is not None]
    step: Any = delta_token if spec.delta else gated_step
    return scan(step, empty_state(k, v), range(int(k.shape[-2]) + 1), q, k, v, *given).output


def _by_chunks(spec: LinearAttention, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    """The state, two tokens at a time."""
    n, given = int(k.shape[-2]), [x for x in (g,) if x is not None]
    bounds = [*range(0, n, 2), n]
    return scan(gated_chunk, empty_state(k, v), bounds, q, k, v, *given).output


def _forms(spec: LinearAttention) -> tuple[Form, ...]:
    if spec.delta:
        return (_by_tokens,)
    return (_by_pairs, _by_tokens, _by_chunks) if spec.causal else (_by_pairs, _by_tokens)


# -- mistakes ----------------------------------------------------------------------------------------------------------
def _mistakes(spec: LinearAttention) -> Iterator[Mistake]:
    form = _forms(spec)[0]

    def of(step: str, cause: str, **fields: Any) -> Mistake:
        other = replace(spec, **fields)
        return Mistake(step, cause, partial(_outputs, other, _forms(other)[0]), spec=other)

    for name in FEATURES:
        if name != spec.feature:
            words = "left out" if name == "identity" else f"{name}, not {spec.feature}"
            yield of("score", f"the feature map is {words}", feature=name)
    for words, feature in OTHERS.items():
        cause = f"the feature map is {words}, not {spec.feature}"
        yield Mistake("score", cause, partial(_by_features, spec, form, feature))
    yield Mistake("score", "the feature map is applied to queries alone", partial(_features_of, spec, form, True))
    yield Mistake("score", "the feature map is applied to keys alone", partial(_features_of, spec, form, False))
    if spec.causal and not spec.gate and not spec.delta:
        yield of("mask", "later tokens are seen too: the state is that of all tokens", causal=False)
    if spec.causal:
        yield Mistake("mask", "a token does not see itself", partial(_outputs, spec, _without_itself))
    if spec.normalised:
        yield from _of_normalisers(spec, form)
    elif not spec.delta:
        yield of("normalize", "it is divided by the sum of the weights", normalised=True)
    if not spec.normalised:
        words = "queries are not scaled" if spec.scale else "queries are scaled by 1/√d_k"
        yield of("scale", words, scale=not spec.scale)
    if spec.gate:
        yield from _of_gates(spec)
    if spec.delta:
        yield Mistake("values", "the delta rule is left out: values are added, times β", partial(_added, spec))
        words = "the delta rule's correction has the other sign: β (v + k S) is added to the state"
        yield Mistake("values", words, lambda q, k, v, g=None, beta=None: spec(q, k, -v, g, -beta))
        yield Mistake("values", "β is left out", lambda q, k, v, g=None, beta=None: spec(q, k, v, g, 0 * beta + 1))
    if spec.causal and not spec.delta:
        for size in (2, 4, 8, 16, 32, 64):
            cause = f"the state is not carried over from one chunk of {size} tokens to the next"
            yield Mistake("cache", cause, partial(_outputs, spec, partial(_lost, size)))


def _added(spec: LinearAttention, q: Any, k: Any, v: Any, g: Any = None, beta: Any = None) -> Any:
    return _outputs(replace(spec, delta=False), _by_pairs, q, k, beta * v, g)


def _by_features(spec: LinearAttention, form: Form, feature: Feature, q: Any, k: Any, v: Any, g: Any = None,
                 beta: Any = None) -> Any:  # fmt: skip
    return _outputs(replace(spec, feature="identity"), form, feature(q), feature(k), v, g, beta)


def _features_of(spec: LinearAttention, form: Form, queries: bool, q: Any, k: Any, v: Any, g: Any = None,
                 beta: Any = None) -> Any:  # fmt: skip
    phi, plain = FEATURES[spec.feature], replace(spec, feature="identity")
    return _outputs(plain, form, phi(q) if queries else q, k if queries else phi(k), v, g, beta)


def _without_itself(spec: LinearAttention, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    return decayed_scores(q, k, gate_sums(g), itself=False) @ v


def _of_normalisers(spec: LinearAttention, form: Form) -> Iterator[Mistake]:
    bare = replace(spec, normalised=False)

    def over(divisor: Callable[..., Any]) -> Compute:
        def run(q: Any, k: Any, v: Any, g: Any = None, beta: Any = None) -> Any:
            phi = FEATURES[spec.feature]
            return _outputs(bare, form, q, k, v, g, beta) / divisor(phi(q), phi(k), q)

        return run

    def sums(axis: int) -> Callable[..., Any]:
        def divisor(a: Any, b: Any, q: Any) -> Any:
            xp = namespace_of(a)
            return xp.sum(a * xp.cumulative_sum(b, axis=axis), axis=-1, keepdims=True)

        return divisor

    yield Mistake("normalize", "it is not divided by the sum of the weights", partial(_outputs, bare, form))
    yield Mistake("normalize", "the sum of all keys is in the normaliser, not that of earlier ones",
                  over(lambda a, b, q: a @ namespace_of(b).sum(b, axis=-2, keepdims=True).mT))  # fmt: skip
    yield Mistake("normalize", "the normaliser is a cumulative sum over the heads, not over the tokens", over(sums(-3)))
    yield Mistake("normalize", "the normaliser is a cumulative sum over the features", over(sums(-1)))
    yield Mistake("normalize", "it is divided by the sum of the keys' features, without the queries'",
                  over(lambda a, b, q: namespace_of(b).sum(namespace_of(b).cumulative_sum(b, axis=-2), axis=-1,
                                                           keepdims=True)))  # fmt: skip
    for noun, queries in (("keys", True), ("queries", False)) if spec.feature != "identity" else ():
        words = f"the sum that it is divided by is of {noun} without the feature map"
        yield Mistake("normalize", words, partial(_over_others, bare, form, queries))
    yield Mistake("normalize", "it is divided by the number of tokens",
                  over(lambda a, b, q: namespace_of(q).asarray(int(b.shape[-2]), dtype=q.dtype)))  # fmt: skip


def _over_others(bare: LinearAttention, form: Form, queries: bool, q: Any, k: Any, v: Any, g: Any = None,
                 beta: Any = None) -> Any:  # fmt: skip
    """Over the sum of the products of which one factor alone went through the feature map."""
    of = _features_of(bare, form, queries, q, k, _ones(v), g, beta)
    return _outputs(bare, form, q, k, v, g, beta) / of


def _of_gates(spec: LinearAttention) -> Iterator[Mistake]:
    words = {
        "the gates are left out": lambda g: 0 * g,
        "the gates' signs are changed: the state grows": lambda g: -g,
        "gates are taken as decays, not as logarithms of them": lambda g: namespace_of(g).log(
            namespace_of(g).where(g < 0, -g, 1)
        ),
        "the state decays after a token is added, not before": lambda g: _late(g),
        "all tokens have the first gate": lambda g: 0 * g + g[..., :1, :],
    }
    for cause, change in words.items():
        yield Mistake("values", cause, partial(_gated_by, spec, change))


def _gated_by(spec: LinearAttention, change: Callable[[Any], Any], q: Any, k: Any, v: Any, g: Any = None,
              beta: Any = None) -> Any:  # fmt: skip
    return spec(q, k, v, change(g), beta)


def _late(g: Any) -> Any:
    """The gates of the tokens before; the first has none."""
    xp = namespace_of(g)
    return xp.concat([0 * g[..., :1, :], g[..., :-1, :]], axis=-2)


def _lost(size: int, spec: LinearAttention, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    n = int(k.shape[-2])
    parts = []
    for lo in range(0, n, size):
        cut = [None if x is None else x[..., lo : lo + size, :] for x in (q, k, v, g, beta)]
        parts.append(_by_pairs(spec, *cut))
    return namespace_of(v).concat(parts, axis=-2)
