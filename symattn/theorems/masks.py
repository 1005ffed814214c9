"""Masks: what they forbid, what leaks, and which tokens an output depends on."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import forbid, window
from symattn.attention.norms import layer_norm
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import normalise
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.notation import (
    Big,
    Fence,
    Node,
    Over,
    Partial,
    Product,
    Relation,
    call,
    equals,
    name,
    node,
    relation,
    total,
)
from symattn.proof.gradients import jacobian
from symattn.proof.relations.glossary import Definition, Glossary
from symattn.proof.relations.values import Value
from symattn.proof.rules import OfTheLargest
from symattn.proof.statement import Pair
from symattn.proof.theorem import Theorem, theorem
from symattn.proof.together import Positive, Together, bound, identity
from symattn.theorems.letters import (
    ATTENDING,
    ATTENTION,
    CAUSAL,
    ONES,
    PI,
    K,
    M,
    Q,
    V,
    X,
    attention,
    power_of_e,
    row,
    rows,
    same,
    softmax,
    stack,
    t,
)
from symattn.theorems.sums import add_up, exp, greatest, others

TOPIC = "masks"
MASKED = Attention(mask="boolean", fully_masked="nan")
ADDED, ADDED_PADDED = Attention(mask="additive"), Attention(mask="additive", padding=True)
PADDED = Attention(padding=True)
HEADS, BOTH = Attention(heads=2), Attention(mask="boolean", padding=True, heads=2)
ADDED_BOTH = Attention(mask="additive", padding=True, heads=2)
QKV = {"q": "n_q d_k", "k": "n_k d_k", "v": "n_k d_v"}
FIRST = {"q0": "1 d_k", "k0": "1 d_k", "v0": "1 d_v", "q": "n d_k", "k": "n d_k", "v": "n d_v"}
EARLY, LATE = {"q": "a d_k", "k": "a d_k", "v": "a d_v"}, {"q1": "b d_k", "k1": "b d_k", "v1": "b d_v"}
VASWANI = "Vaswani et al., Attention Is All You Need (2017)"
_BIAS, _ALLOWED = name("B"), name("A", "i")


def _scores(q: Array, k: Array) -> Array:
    return scale_by_root(dot_scores(q, k), q)


# -- what is forbidden ------------------------------------------------------------------------------------------------


@theorem(
    "mask-is-restriction",
    TOPIC,
    (
        row("o", "i"),
        " is attention over the keys and values of ",
        _ALLOWED,
        " alone, if the scores of all other keys are −∞: ",
        equals(call("Masked", Q, stack(K, name("K'", role="key")), stack(V, name("V'", role="value"))), attention()),
    ),
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
        (
            "row i may attend to the keys ",
            _ALLOWED,
            ", one at least, those of K; they stand first, as attention does not see the order of keys",
        ),
    ),
    why="The exponential of −∞ is 0. The equations are for a mask, for padding, for padding and a bias, and for a batch"
    " of two heads with a mask and padding, each of which forbids other keys.",
    false=(
        lambda q, k, v, k1, v1: (soft(_scores(q, rows(k, 0 * k1))) @ rows(v, v1), ATTENTION(q, k, v)),
        lambda q, k, v, k1, v1: (_zeroed(soft(_scores(q, rows(k, k1))), k) @ rows(v, v1), ATTENTION(q, k, v)),
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
        (ADDED_PADDED(q, keys, values, mask=bias, keep=keep), soft(_scores(q, k) + near) @ v),
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


def _zeroed(p: Array, k: Array) -> Array:
    n = k.shape[0]
    return p.__array_namespace__().concat([p[:, :n], 0 * p[:, n:]], axis=-1)


@theorem(
    "fully-masked-row",
    TOPIC,
    (
        "without an allowed key ",
        row("o", "i"),
        " is 0/0, undefined; with one bias ",
        -_BIAS,
        " on every key it is what it is without a mask: ",
        equals(softmax(name("s") - _BIAS * ONES), softmax("s")),
    ),
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
    none_allowed = forbid(_scores(q, k), xp.arange(1) < 0)
    e = xp.exp(none_allowed)
    nought = xp.asarray(0)
    return [(xp.sum(e, axis=-1), nought), (e @ v, nought), (_biased(q, k, v, b), ATTENTION(q, k, v))]


def _biased(q: Array, k: Array, v: Array, b: Array) -> Any:
    return soft(_scores(q, k) - b) @ v


_LEAK_ARRAYS = {"s": "1 n", "t": "1 m", "b": "1 1"}
_IN_M, _OUT_OF_M = relation("j", "∈", M), relation("j", "∉", M)
_S_J = name("s", "j", role="score")


def _leak(s: Array, t: Array, b: Array) -> Array:
    """The weight of the scores t, which are masked by −B, beside the scores s."""
    xp = s.__array_namespace__()
    return add_up(soft(xp.concat([s, t - b], axis=-1))[:, s.shape[-1] :])


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


def _with_bias(s: Array, b: Array, m: Array) -> Array:
    """The scores s, the first m of them less b."""
    return s.__array_namespace__().concat([s[:m] - b, s[m:]], axis=-1)


finite_mask_leaks = Theorem(
    "finite-mask-leaks",
    TOPIC,
    (
        Relation(
            node(0),
            (
                ("<", Big("sum", _IN_M, None, None, name("p", "j", role="weight"))),
                (
                    "≤",
                    Fence("abs", M)
                    * power_of_e(Big("max", _IN_M, None, None, _S_J) - Big("max", _OUT_OF_M, None, None, _S_J) - _BIAS),
                ),
            ),
        ),
    ),
    Together(
        (
            _LEAK,
            Positive(_LEAK.premise.declared, _leak),
        ),
    ),
    "folklore",
    ("the leak is exactly 0",),
    ("The denominator is at least the exponential of the largest score outside of M.",),
    (
        ("the keys in M have the bias ", -_BIAS, " instead of −∞"),
        ("one key at least is in M, and one outside of it",),
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
    (equals(Partial(row("o", "i"), name("x", "j", role="input")), 0), " for ", relation("j", ">", name("i"))),
    letters=Glossary(
        {"X": "n d"},
        index={"i": "n", "j": "n"},
        defined={"O": lambda reader: CAUSAL(*[reader.array("X")] * 3)},
    ),
    arrays=EARLY | LATE | {"x": "p d", "x1": "n d", "w_q": "d d_k", "w_k": "d d_k", "w_v": "d d_v"},
    source=VASWANI,
    why="No key after a token enters its row; so nothing of later tokens gets through several layers either.",
    false=(
        lambda k, k1: (_prefix(_over_tokens(rows(k, k1)), k), _prefix(_over_tokens(rows(k, 2 * k1)), k)),
        lambda k, k1: (_prefix(_one_too_far(rows(k, k1)), k), _prefix(_one_too_far(rows(k, 2 * k1)), k)),
    ),
    false_says=("after a LayerNorm over the tokens; or with the mask ", relation("j", "≤", name("i") + 1)),
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
    return soft(forbid(_scores(x, x), i[None, :] <= i[:, None] + 1)) @ x


@theorem(
    "causal-first-row",
    TOPIC,
    (
        equals(row("o", 1), row("v", 1)),
        ", ",
        equals(name("P", 1, 1, role="weight"), 1),
        ", so ",
        equals(name("dQ", 1), 0),
    ),
    hypotheses=("attention is causal, and there are as many queries as keys",),
    letters=Glossary(
        {"Q": "1+m d_k", "K": "1+m d_k", "V": "1+m d_v", "G": "1+m d_v"},
        {"n": "1+m", "d_v": "d_v"},
        {"i": "1+m", "j": "1+m", "c": "d_v"},
        {
            "P": lambda reader: CAUSAL.trace(*map(reader.array, "QKV"))["weights"],
            "O": Definition((), name("P") * V),
            "ℓ": Definition((), Product((name("G"), name("O")), "·")),
        },
        loss="ℓ",
    ),
    arrays=FIRST,
    why="The first token may attend to itself alone, and a single weight is 1; no other row sees its query.",
    false=lambda k0, v0, k, v, q0, q: (_first(q0, k0, v0, q, k, v), rows(v0, v).mean(axis=0, keepdims=True)),
    false_says=same(row("o", 1), Over(node(1), name("n")) * total(name("j"), 1, name("n"), row("v", "j"))),
)
def causal_first_row(q0: Array, k0: Array, v0: Array, q: Array, k: Array, v: Array) -> list[Pair]:
    p = CAUSAL.trace(rows(q0, q), rows(k0, k), rows(v0, v))["weights"][:1, :1]
    slope = jacobian(_every, "q0", q0=q0, k0=k0, v0=v0, q=q, k=k, v=v)
    return [(_first(q0, k0, v0, q, k, v), v0), (p, 0 * p + 1), (slope, 0 * slope)]


def _every(q0: Array, k0: Array, v0: Array, q: Array, k: Array, v: Array) -> Any:
    return CAUSAL(rows(q0, q), rows(k0, k), rows(v0, v))


def _first(q0: Array, k0: Array, v0: Array, q: Array, k: Array, v: Array) -> Any:
    return _every(q0, k0, v0, q, k, v)[:1]


# -- windows, and masks that move with the tokens ---------------------------------------------------------------------


_TOKENS = "f+r+1+l"
_WINDOW_ARRAYS = {"q": f"{_TOKENS} d_k", "k": f"{_TOKENS} d_k", "v": f"{_TOKENS} d_v"}


def _in_window(q: Array, k: Array, width: Any) -> Any:
    """The weights of all tokens for each, in causal attention with a window."""
    s = _scores(q, k)
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

window_receptive_field = Theorem(
    "window-receptive-field",
    TOPIC,
    (
        row("o", "i"),
        " depends on no tokens but those from ",
        name("i") - name("L") * Fence("round", name("w") - 1),
        " to i, and that reach is attained",
    ),
    Together(
        (_RECEPTIVE, Positive(_RECEPTIVE.declared, _weights_in_window)),
        (
            "By induction over the layers: each reaches back w − 1 tokens and no further. Where all queries are 0 each"
            " layer takes means over windows, and the first of the tokens enters by one way only, with the weight 1/w"
            " in every layer. Rows at the start, whose windows are cut off, see fewer tokens.",
        ),
    ),
    "Jiang et al., Mistral 7B (2023)",
    ("it reaches ", name("i") - name("L") * name("w"), ", which is right where w does not count i itself"),
    ("A row is attention over its window alone, and gives every key in it a weight that is not 0.",),
    (
        (
            "L layers of causal attention with a window of w keys, the token's own among them; other layers act on"
            " each row",
        ),
    ),
)


def _with_added(reader: Any, x: Value, m: Value) -> Value:
    """Self-attention with an additive mask."""
    w_q, w_k, w_v = map(reader.array, ("W_Q", "W_K", "W_V"))
    return Value(ADDED(x=x.array, w_q=w_q, w_k=w_k, w_v=w_v, mask=m.array), (), 2)


def _with_mask(x: Node, m: Node) -> Node:
    return call("Attention", x, m)


@theorem(
    "mask-transport",
    TOPIC,
    same(_with_mask(PI * X, PI * M * t(PI)), PI * _with_mask(X, M)),
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
    false_says=same(_with_mask(PI * X, M), PI * _with_mask(X, M)),
)
def mask_transport(x: Array, m: Array, w_q: Array, w_k: Array, w_v: Array, pi: Any) -> Any:
    moved = m[pi][:, pi]

    def multiplied(x: Array, m: Array) -> Array:
        e = x.__array_namespace__().exp(_scores(x @ w_q, x @ w_k))
        return normalise(e * m) @ (x @ w_v)

    return [
        (
            ADDED(x=x[pi], w_q=w_q, w_k=w_k, w_v=w_v, mask=moved),
            ADDED(x=x, w_q=w_q, w_k=w_k, w_v=w_v, mask=m)[pi],
        ),
        (multiplied(x[pi], moved), multiplied(x, m)[pi]),
    ]


THEOREMS: tuple[Theorem, ...] = (
    mask_is_restriction,
    fully_masked_row,
    finite_mask_leaks,
    causal_no_leak,
    causal_first_row,
    window_receptive_field,
    mask_transport,
)
