"""Masks: what they forbid, what leaks, and which tokens an output depends on."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import forbid, window
from symattn.attention.norms import layer_norm
from symattn.attention.softmax import normalise
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.formulas import ARRAY_ROLES
from symattn.proof.gradients import jacobian
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.values import Value
from symattn.proof.rules import OfTheLargest
from symattn.proof.statement import Pair
from symattn.proof.theorem import state, theorem
from symattn.proof.together import Positive, Together, bound, identity
from symattn.theorems.letters import ATTENDING, ATTENTION, CAUSAL, QKV, rows, scaled_scores
from symattn.theorems.reading import printed
from symattn.theorems.sums import add_up, beside, exp, greatest, others

TOPIC = "masks"
MASKED = Attention(mask="boolean", fully_masked="nan")
ADDED, ADDED_PADDED = Attention(mask="additive"), Attention(mask="additive", padding=True)
PADDED = Attention(padding=True)
HEADS, BOTH = Attention(heads=2), Attention(mask="boolean", padding=True, heads=2)
ADDED_BOTH = Attention(mask="additive", padding=True, heads=2)
EARLY, LATE = {"q": "a d_k", "k": "a d_k", "v": "a d_v"}, {"q1": "b d_k", "k1": "b d_k", "v1": "b d_v"}
VASWANI = "Vaswani et al., Attention Is All You Need (2017)"


# -- what is forbidden ------------------------------------------------------------------------------------------------


@theorem(
    "mask-is-restriction",
    TOPIC,
    "$o_i$ is attention over the keys and values of $A_i$ alone, if the scores of all other keys are −∞:"
    " $Masked(Q, [K; K′], [V; V′]) = Attention(Q, K, V)$",
    letters=ATTENDING.also(
        {"K′": "b d_k", "V′": "b d_v"},
        functions={
            "Masked": lambda reader, q, k, v: Value(_seeing(reader.length("n_k"), q.array, k.array, v.array), (), 2)
        },
    ),
    arrays={
        **{"q": "1 d_k", "k": "a d_k", "v": "a d_v", "k1": "b d_k", "v1": "b d_v", "bias": "1 a+b"},
        **{"x": "g n d", "y": "g a d", "y0": "g c d", "y1": "g b d"},
        **{"w_q": "d 2*d_k", "w_k": "d 2*d_k", "w_v": "d 2*d_v"},
    },
    hypotheses=(
        "row i may attend to the keys $A_i$, one at least, those of K; they stand first, as attention does"
        " not see the order of keys",
    ),
    why="The exponential of −∞ is 0. The equations are for a mask, for padding, for padding and a bias, and for a batch"
    " of two heads with a mask and padding, each of which forbids other keys.",
    false=(
        lambda q, k, v, k1, v1: (soft(scaled_scores(q, rows(k, 0 * k1))) @ rows(v, v1), ATTENTION(q, k, v)),
        lambda q, k, v, k1, v1: (_zeroed(soft(scaled_scores(q, rows(k, k1))), k) @ rows(v, v1), ATTENTION(q, k, v)),
    ),
    false_says="setting the other scores to 0; or setting their weights to 0 afterwards",
)
def mask_is_restriction(
    q: Array,
    k: Array,
    v: Array,
    k1: Any,
    v1: Any,
    bias: Array,
    x: Any,
    y: Any,
    y0: Any,
    y1: Any,
    w_q: Any,
    w_k: Any,
    w_v: Any,
) -> list[Pair]:
    xp, weights = q.__array_namespace__(), {"w_q": w_q, "w_k": w_k, "w_v": w_v}
    keys, values = rows(k, k1), rows(v, v1)
    keep = xp.arange(keys.shape[0]) < k.shape[0]
    near = bias[:, : k.shape[0]]
    return [
        (_seeing(k.shape[0], q, keys, values), ATTENTION(q, k, v)),
        (PADDED(q, keys, values, keep=keep), ATTENTION(q, k, v)),
        (ADDED_PADDED(q, keys, values, mask=bias, keep=keep), soft(scaled_scores(q, k) + near) @ v),
        *[(_surrounded(x, y0, y, y1, axes, **weights), HEADS(x=x, y=y, **weights)) for axes in ((), (2,))],
        (_surrounded(x, y0, y, y1, (), True, **weights), HEADS(x=x, y=y, **weights)),
    ]


def _seeing(count: Any, q: Array, k: Array, v: Array) -> Any:
    """Attention in which the first ``count`` keys alone are allowed."""
    xp = q.__array_namespace__()
    keep = xp.arange(k.shape[0]) < count
    return MASKED(q, k, v, mask=xp.broadcast_to(keep[None, :], (q.shape[0], k.shape[0])))


def _surrounded(
    x: Array, before: Any, y: Array, after: Any, heads: tuple[int, ...], added: bool = False, **weights: Any
) -> Any:
    """Heads with one padding, which forbids the tokens ``before``, and with masks, which forbid those ``after``.

    The mask is one for all heads, or one for each; of truth values, or of 0 and −∞ that are ``added``.
    """
    xp, every = x.__array_namespace__(), rows(before, y, after)
    batch, n_q, place = x.shape[0], x.shape[1], xp.arange(every.shape[1])
    allowed = xp.broadcast_to(place < every.shape[1] - after.shape[1], (batch, *heads, n_q, every.shape[1]))
    keep = xp.broadcast_to(place >= before.shape[1], (batch, every.shape[1]))
    if added:
        return ADDED_BOTH(x=x, y=every, mask=xp.where(allowed, 0, -xp.inf), keep=keep, **weights)
    return BOTH(x=x, y=every, mask=allowed, keep=keep, **weights)


def _zeroed(p: Array, k: Array) -> Any:
    n = k.shape[0]
    return beside(p[:, :n], 0 * p[:, n:])


@theorem(
    "fully-masked-row",
    TOPIC,
    "without an allowed key $o_i$ is 0/0, undefined; with one bias $−B$ on every key it is what it is"
    " without a mask: $softmax(s − B 𝟏) = softmax(s)$",
    letters=Glossary({"s": "n_k", "B": ""}),
    arrays={**QKV, "b": "n_q 1"},
    hypotheses=("real numbers; B is any finite number, one for each row",),
    why="All exponentials are 0, and so is their sum. A bias that all keys share cancels.",
    false=(
        lambda q, k, v, b: (_biased(q, k, v, b), 0 * ATTENTION(q, k, v)),
        lambda q, k, v, b: (_biased(q, k, v, b), 0 * ATTENTION(q, k, v) + v.mean(axis=0)),
    ),
    false_says="with one bias on every key the row is zero; or it is the mean of the values",
)
def fully_masked_row(q: Array, k: Array, v: Array, b: Array) -> list[Pair]:
    xp = q.__array_namespace__()
    none_allowed = forbid(scaled_scores(q, k), xp.arange(1) < 0)
    e = xp.exp(none_allowed)
    nought = xp.asarray(0)
    return [(xp.sum(e, axis=-1), nought), (e @ v, nought), (_biased(q, k, v, b), ATTENTION(q, k, v))]


def _biased(q: Array, k: Array, v: Array, b: Array) -> Any:
    return soft(scaled_scores(q, k) - b) @ v


_LEAK_ARRAYS = {"s": "1 n", "t": "1 m", "b": "1 1"}


def _leak(s: Array, t: Array, b: Array) -> Array:
    """The weight of the scores t, which are masked by −B, beside the scores s."""
    return add_up(soft(beside(s, t - b))[:, s.shape[-1] :])


def _most(out: Any, t: Any, b: Any) -> Any:
    """|M| e^{max t − s − B}, for the score s of a key outside of M."""
    return (0 * t + 1).sum(axis=-1, keepdims=True) * exp(greatest(t, -1) - out - b)


def _leak_gap(s: Array, t: Array, b: Array, room: Any, n: Any) -> Any:
    """(m e^{max t − s_j − B} R_j + e^{−B} Σ_l (e^{max t} − e^{t_l})) / Z, where Z = e^{s_j} + R_j."""
    masked = add_up(exp(t - b))
    rest = masked + add_up(others(n, s) * exp(s)[..., None, :])[..., 0]
    top = _most(s, t, b) * rest + exp(-b) * add_up(exp(t) * (exp(room) - 1))
    return top / (add_up(exp(s)) + masked)


_LEAK = OfTheLargest(
    bound(
        _LEAK_ARRAYS,
        lambda s, t, b: (_leak(s, t, b), _most(s, t, b)),
        _leak_gap,
        lambda s, t, b: (_leak(s, t, b), 0 * s),
        laws={"room": ("1 m", lambda t: greatest(t, -1) - t, "largest")},
    ),
    lambda s, t, b: (_leak(s, t, b), _most(greatest(s, -1), t, b)),
)


def _with_bias(s: Array, b: Array, m: Array) -> Any:
    """The scores s, the first m of them less b."""
    return beside(s[:m] - b, s[m:])


finite_mask_leaks = state(
    "finite-mask-leaks",
    TOPIC,
    "$0 < Σ_{j ∈ M} p_j ≤ |M| e^{max_{j ∈ M} s_j − max_{j ∉ M} s_j − B}$",
    Together(
        (
            _LEAK,
            Positive(_LEAK.premise.declared, _leak),
        ),
    ),
    "folklore",
    "the leak is exactly 0",
    "The denominator is at least the exponential of the largest score outside of M.",
    (
        "the keys in M have the bias $−B$ instead of −∞",
        "one key at least is in M, and one outside of it",
    ),
    Glossary(
        {"s": "m+n", "B": ""},
        {"n_k": "m+n"},
        {"j": "m+n"},
        {"p": lambda reader: soft(_with_bias(reader.array("s"), reader.array("B"), reader.length("m")))},
        sets={"M": "m"},
        sharp="far",
    ),
)


# -- causal masks -----------------------------------------------------------------------------------------------------


@theorem(
    "causal-no-leak",
    TOPIC,
    "$∂o_i/∂x_j = 0$ for $j > i$",
    letters=Glossary(
        {"X": "n d"},
        index={"i": "n", "j": "n"},
        defined={"O": lambda reader: CAUSAL(*[reader.array("X")] * 3)},
        roles={**ARRAY_ROLES, "x": "input"},
    ),
    arrays=EARLY | LATE | {"x": "p d", "x1": "n d", "w_q": "d d_k", "w_k": "d d_k", "w_v": "d d_v"},
    source=VASWANI,
    why="No key after a token enters its row; so nothing of later tokens gets through several layers either.",
    false=(
        lambda k, k1: (_prefix(_over_tokens(rows(k, k1)), k), _prefix(_over_tokens(rows(k, 2 * k1)), k)),
        lambda k, k1: (_prefix(_one_too_far(rows(k, k1)), k), _prefix(_one_too_far(rows(k, 2 * k1)), k)),
    ),
    false_says="after a LayerNorm over the tokens; or with the mask $j ≤ i + 1$",
    hypotheses=("attention is causal, and there are as many queries as keys",),
    top=2,
)
def causal_no_leak(
    q: Array,
    k: Array,
    v: Array,
    q1: Array,
    k1: Array,
    v1: Array,
    x: Array,
    x1: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
) -> Any:
    def early(q: Array, k: Array, v: Array, q1: Array, k1: Array, v1: Array) -> Array:
        return _prefix(CAUSAL(rows(q, q1), rows(k, k1), rows(v, v1)), q)

    def early_rows(x: Array, x1: Array, w_q: Array, w_k: Array, w_v: Array) -> Array:
        return _prefix(CAUSAL(x=rows(x, x1), w_q=w_q, w_k=w_k, w_v=w_v), x)

    slopes = [jacobian(early, by, q=q, k=k, v=v, q1=q1, k1=k1, v1=v1) for by in ("q1", "k1", "v1")]
    slopes.append(jacobian(early_rows, "x1", x=x, x1=x1, w_q=w_q, w_k=w_k, w_v=w_v))
    return [(slope, 0 * slope) for slope in slopes]


def _prefix(x: Array, of: Any) -> Array:
    return x[: of.shape[0]]


def _over_tokens(x: Array) -> Any:
    """Causal self-attention of tokens that are normalised along the sequence."""
    y = layer_norm(x.mT).mT
    return CAUSAL(y, y, y)


def _one_too_far(x: Array) -> Any:
    xp = x.__array_namespace__()
    i = xp.arange(x.shape[0])
    return soft(forbid(scaled_scores(x, x), i[None, :] <= i[:, None] + 1)) @ x


causal_first_row = printed(
    "causal-first-row",
    TOPIC,
    "$o_1 = v_1$, $P_1_1 = 1$, so $dQ_1 = 0$",
    hypotheses=("attention is causal, and there are as many queries as keys",),
    letters=Glossary(
        {"Q": "1+m d_k", "K": "1+m d_k", "V": "1+m d_v", "G": "1+m d_v"},
        {"n": "1+m", "d_v": "d_v"},
        {"i": "1+m", "j": "1+m", "c": "d_v"},
        {"P": lambda reader: CAUSAL.trace(*map(reader.array, "QKV"))["weights"]},
        loss="ℓ",
    ).where("O = P V", "ℓ = G·O"),
    why="The first token may attend to itself alone, and a single weight is 1; no other row sees its query.",
    false_says="$o_1 = 1/n Σ_{j=1}^n v_j$",
)


# -- windows, and masks that move with the tokens ---------------------------------------------------------------------


_TOKENS = "f+r+1+l"
_WINDOW_ARRAYS = {"q": f"{_TOKENS} d_k", "k": f"{_TOKENS} d_k", "v": f"{_TOKENS} d_v"}


def _in_window(q: Array, k: Array, width: Any) -> Any:
    """The weights of all tokens for each, in causal attention with a window."""
    s = scaled_scores(q, k)
    return soft(forbid(s, window(s, width)))


def _one_token(q: Array, k: Array, v: Array, f: Array, r: Array) -> Any:
    """The row of token f + r, with the window r + 1 and with the window 1, and the same from the window alone.

    With queries 0 all keys in the window have the weight 1/(r + 1).
    """
    here, near = slice(f + r, f + r + 1), slice(f, f + r + 1)
    equal = _in_window(0 * q, k, r + 1)[here, near]
    return [
        (equal * (r + 1), 0 * equal + 1),
        ((_in_window(q, k, r + 1) @ v)[here], ATTENTION(q[here], k[near], v[near])),
        ((_in_window(q, k, 1) @ v)[here], v[here]),
    ]


def _one_token_more(q: Array, k: Array, v: Array, f: Array, r: Array) -> Any:
    """As if a window of r counted r tokens besides the token itself."""
    here, near = slice(f + r, f + r + 1), slice(f, f + r + 1)
    return (_in_window(q, k, r) @ v)[here], ATTENTION(q[here], k[near], v[near])


def _weights_in_window(q: Array, k: Array, f: Array, r: Array) -> Any:
    return _in_window(q, k, r + 1)[f + r : f + r + 1, f : f + r + 1]


_RECEPTIVE = identity(_WINDOW_ARRAYS, _one_token, _one_token_more)

window_receptive_field = state(
    "window-receptive-field",
    TOPIC,
    "$o_i$ depends on no tokens but those from $i − L (w − 1)$ to i, and that reach is attained",
    Together(
        (_RECEPTIVE, Positive(_RECEPTIVE.declared, _weights_in_window)),
        (
            "By induction over the layers: each reaches back w − 1 tokens and no further. Where all queries are 0 each"
            " layer takes means over windows, and the first of the tokens enters by one way only, with the weight 1/w"
            " in every layer. Rows at the start, whose windows are cut off, see fewer tokens.",
        ),
    ),
    "Jiang et al., Mistral 7B (2023)",
    "it reaches $i − L w$, which is right where w does not count i itself",
    "A row is attention over its window alone, and gives every key in it a weight that is not 0.",
    ("L layers of causal attention with a window of w keys, the token's own among them; other layers act on each row",),
)


def _with_added(reader: Any, x: Value, m: Value) -> Value:
    """Self-attention with an additive mask."""
    w_q, w_k, w_v = map(reader.array, ("W_Q", "W_K", "W_V"))
    return Value(ADDED(x=x.array, w_q=w_q, w_k=w_k, w_v=w_v, mask=m.array), (), 2)


@theorem(
    "mask-transport",
    TOPIC,
    "$Attention(Π X, Π M Πᵀ) = Π Attention(X, M)$",
    letters=Glossary(
        {"X": "n d", "M": "n n", "W_Q": "d d_k", "W_K": "d d_k", "W_V": "d d_v"},
        permutations={"Π": "n"},
        functions={"Attention": _with_added},
    ),
    arrays={"x": "n d", "m": "n n", "w_q": "d d_k", "w_k": "d d_k", "w_v": "d d_v"},
    permutations={"pi": "n"},
    hypotheses=(
        "M is an additive mask with finite entries; or its entries are factors of the exponentials, 0 where it forbids,"
        " and no row of them is 0",
    ),
    why="A mask that is permuted with the tokens forbids the same pairs of them.",
    false=lambda x, m, w_q, w_k, w_v, pi: (
        ADDED(x=x[pi], w_q=w_q, w_k=w_k, w_v=w_v, mask=m),
        ADDED(x=x, w_q=w_q, w_k=w_k, w_v=w_v, mask=m)[pi],
    ),
    false_says="$Attention(Π X, M) = Π Attention(X, M)$",
)
def mask_transport(x: Array, m: Array, w_q: Array, w_k: Array, w_v: Array, pi: Any) -> Any:
    moved = m[pi][:, pi]

    def multiplied(x: Array, m: Array) -> Array:
        return normalise(exp(scaled_scores(x @ w_q, x @ w_k)) * m) @ (x @ w_v)

    return [
        (
            ADDED(x=x[pi], w_q=w_q, w_k=w_k, w_v=w_v, mask=moved),
            ADDED(x=x, w_q=w_q, w_k=w_k, w_v=w_v, mask=m)[pi],
        ),
        (multiplied(x[pi], moved), multiplied(x, m)[pi]),
    ]
