"""Masks: what they forbid, what leaks, and which tokens an output depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import forbid, window
from symattn.attention.norms import layer_norm
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.proof.together import Together, above_zero, identity
from symattn.theorems.letters import ATTENDING, ATTENTION, CAUSAL, rows, scaled_scores, side_by_side
from symattn.theorems.texts import theorems

MASKED = Attention(mask="boolean", fully_masked="nan")
ADDED, ADDED_PADDED = Attention(mask="additive"), Attention(mask="additive", padding=True)
PADDED = Attention(padding=True)
HEADS, BOTH = Attention(heads=2), Attention(mask="boolean", padding=True, heads=2)
ADDED_BOTH = Attention(mask="additive", padding=True, heads=2)


# -- forbidden keys ---------------------------------------------------------------------------------------------------
def _allowing(attention: Attention, **keywords: Callable[[Reader, Any], Any]) -> Any:
    """Return attention that allows only the keys of K, by a mask or by padding."""

    def masked(reader: Reader, q: Value, k: Value, v: Value) -> Value:
        keep = reader.xp.arange(k.array.shape[0]) < reader.length("n_k")
        more = {word: of(reader, keep) for word, of in keywords.items()}
        return Value(attention(q.array, k.array, v.array, **more), (), 2)

    return masked


def _surrounded(
    x: Array, before: Array, y: Array, after: Array, heads: tuple[int, ...], added: bool = False, **weights: Array
) -> Any:
    """Return heads with a shared padding, which forbids ``before``, and masks, which forbid ``after``.

    The mask is one for all heads, or one for each; of truth values, or of 0 and −∞ that are ``added``.
    """
    xp, every = x.__array_namespace__(), rows(before, y, after)
    batch, n_q, place = x.shape[0], x.shape[1], xp.arange(every.shape[1])
    allowed = xp.broadcast_to(place < every.shape[1] - after.shape[1], (batch, *heads, n_q, every.shape[1]))
    keep = xp.broadcast_to(place >= before.shape[1], (batch, every.shape[1]))
    if added:
        return ADDED_BOTH(x=x, y=every, mask=xp.where(allowed, 0, -xp.inf), keep=keep, **weights)
    return BOTH(x=x, y=every, mask=allowed, keep=keep, **weights)


two_masked_heads = identity(
    {
        **{"x": "g n d", "y": "g a d", "y0": "g c d", "y1": "g b d"},
        **{"w_q": "d 2*d_k", "w_k": "d 2*d_k", "w_v": "d 2*d_v"},
    },
    lambda x, y, y0, y1, w_q, w_k, w_v: [
        (_surrounded(x, y0, y, y1, *kind, w_q=w_q, w_k=w_k, w_v=w_v), HEADS(x=x, y=y, w_q=w_q, w_k=w_k, w_v=w_v))
        for kind in (((),), ((2,),), ((), True))
    ],
)


# -- causal masks -----------------------------------------------------------------------------------------------------
def _attended(reader: Reader) -> Any:
    """Return causal self-attention."""
    w_q, w_k, w_v = map(reader.array, ("W_Q", "W_K", "W_V"))
    return CAUSAL(x=reader.array("X"), w_q=w_q, w_k=w_k, w_v=w_v)


def _over_tokens(x: Array) -> Any:
    """Return causal self-attention of tokens that are normalised along the sequence."""
    y = layer_norm(x.mT, 1).mT
    return CAUSAL(y, y, y)


def _one_too_far(x: Array) -> Any:
    xp = x.__array_namespace__()
    i = xp.arange(x.shape[0])
    return soft(forbid(scaled_scores(x, x), i[None, :] <= i[:, None] + 1)) @ x


# -- windows, and masks that move with the tokens ---------------------------------------------------------------------
_TOKENS = "f+r+1+l"
_WINDOW_ARRAYS = {"q": f"{_TOKENS} d_k", "k": f"{_TOKENS} d_k", "v": f"{_TOKENS} d_v"}


def _in_window(q: Array, k: Array, width: Any) -> Any:
    """Return the weights between all tokens, in causal attention with a window."""
    s = scaled_scores(q, k)
    return soft(forbid(s, window(s, width)))


def _one_token(q: Array, k: Array, v: Array, f: Array, r: Array) -> Any:
    """Return the row of token f + r, with the window r + 1 and with the window 1, and the same from the window alone.

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
    """Return the same for a window of r that counts r tokens besides the token itself."""
    here, near = slice(f + r, f + r + 1), slice(f, f + r + 1)
    return (_in_window(q, k, r) @ v)[here], ATTENTION(q[here], k[near], v[near])


_RECEPTIVE = identity(_WINDOW_ARRAYS, _one_token, _one_token_more)

window_receptive_field = Together(
    (
        _RECEPTIVE,
        above_zero(_WINDOW_ARRAYS, lambda q, k, f, r: _in_window(q, k, r + 1)[f + r : f + r + 1, f : f + r + 1]),
    ),
    (
        "By induction over the layers: each reaches back w − 1 tokens and no further. Where all queries are 0 each"
        " layer takes means over windows, and the first of the tokens enters by one way only, with the weight 1/w"
        " in every layer. Rows at the start, whose windows are cut off, see fewer tokens.",
    ),
)


def _with_added(reader: Any, x: Value, m: Value) -> Value:
    """Return self-attention with an additive mask."""
    w_q, w_k, w_v = map(reader.array, ("W_Q", "W_K", "W_V"))
    return Value(ADDED(x=x.array, w_q=w_q, w_k=w_k, w_v=w_v, mask=m.array), (), 2)


_TEXT = """
mask-is-restriction: A mask is a restriction to the allowed keys
$o_i$ is attention over the keys and values of $A_i$ alone, if the scores of all other keys are −∞, by a mask or by
  padding: $Masked(Q, [K; K′], [V; V′]) = Attention(Q, K, V)$, $Padded(Q, [K; K′], [V; V′]) = Attention(Q, K, V)$;
  with a bias too: $Biased(Q, [K; K′], [V; V′]) = softmax(Q Kᵀ/√d_k + B) V$
for: row i may attend to the keys $A_i$, one at least, those of K; they stand first, as attention does not see the
  order of keys
why: The exponential of −∞ is 0. So for a batch of two heads with a mask and padding, each of which forbids other keys.
false: setting the other scores to 0, $Attention(Q, [K; 0 K′], [V; V′]) = Attention(Q, K, V)$; or setting their
  weights to 0 afterwards, $o_i = Σ_{j=1}^{n_k} e^{s_ij}/(Σ_{l=1}^{n_k} e^{s_il} + Σ_{l=1}^m e^{t_il}) v_j$ with $T =
  Q K′ᵀ/√d_k$
and two_masked_heads

fully-masked-row: A row without an allowed key
without an allowed key, so with forbidden scores f, $Σ_{j=1}^{n_k} e^{f_j} = 0$ and $Σ_{j=1}^{n_k} e^{f_j} v_j = 0$: the
  row is 0/0, undefined; with one bias $−B$ on every key it is what it is without a mask: $softmax(s − B 𝟏) =
  softmax(s)$
letters: forbidden | s n_k, V n_k d_v, B | index j n_k
for: real numbers; B is any finite number, one for each row
why: All exponentials are 0, and so is their sum. A bias that all keys share cancels.
false: with one bias on every key the row is zero, $softmax(s − B 𝟏) = 0 s$; or it is the mean of the values, $softmax(s
  − B 𝟏) = 1/n_k 𝟏$

finite-mask-leaks: A finite mask leaks
$0 < Σ_{j ∈ M} p_j$ and $Σ_{j ∈ M} p_j ≤ |M| e^{max(x) − y_k − B}$, for every key k outside of M, so for the one with
  the largest score
letters: new | x m, y n, B | sizes n_k m+n, m, n | index j m+n, i m, k n, l n | sets M m | where p = softmax((x − B 𝟏,
  y))
for: the keys in M, with the scores x, have the bias $−B$ instead of −∞; all others have the scores y
for: one key at least is in M, and one outside of it
why: The denominator is at least the exponential of the largest score outside of M.
false: the leak is exactly 0: $Σ_{j ∈ M} p_j = 0$
gap |M| e^{max(x) − y_k − B}: {Σ_{i=1}^m e^{x_i − B} (e^{r_i} − 1) + m e^{max(x) − y_k − B} (Σ_{l≠k} e^{y_l} + Σ_{i=1}^m
  e^{x_i − B})}/(Σ_{l=1}^n e^{y_l} + Σ_{i=1}^m e^{x_i − B}); r_i = max(x) − x_i by largest

causal-no-leak: Nothing leaks from the future
$∂o_i/∂x_j = 0$ for $j > i$; $∂h_i/∂q_j = 0$, $∂h_i/∂k_j = 0$ and $∂h_i/∂v_j = 0$ for $j > i$
letters: causal | X n d, W_Q d d_k, W_K d d_k, W_V d d_v, Q n d_k, K n d_k, V n d_v | index i n, j n | roles x input
for: O is self-attention of X, H is attention of any Q, K and V; both are causal, with as many queries as keys
source: Vaswani et al., Attention Is All You Need (2017)
why: No key after a token enters its row; so nothing of later tokens gets through several layers either.
false: after a LayerNorm over the tokens, $∂a_i/∂x_j = 0$ for $j > i$; or with the mask to the next token, $∂b_i/∂x_j
  = 0$ for $j > i$
top: 2

causal-first-row: The first token sees itself alone
$o_1 = v_1$, $P_1_1 = 1$, so $dQ_1 = 0$
letters: weights | Q 1+m d_k, K 1+m d_k, V 1+m d_v, G 1+m d_v | sizes n 1+m, d_v | index i 1+m, j 1+m, c d_v | loss ℓ |
  where O = P V; ℓ = G·O
for: attention is causal, and there are as many queries as keys
why: The first token may attend to itself alone, and a single weight is 1; no other row sees its query.
false: $o_1 = 1/n Σ_{j=1}^n v_j$

window-receptive-field: How far windows see through layers
$o_i$ depends on no tokens but those from $i − L (w − 1)$ to i, and that reach is attained
for: L layers of causal attention with a window of w keys, the token's own among them; other layers act on each row
source: Jiang et al., Mistral 7B (2023)
why: A row is attention over its window alone, and gives every key in it a weight that is not 0.
false: it reaches $i − L w$, which is right where w does not count i itself
by window_receptive_field

mask-transport: Masks move with their tokens
$Attention(Π X, Π M Πᵀ) = Π Attention(X, M)$
letters: added | X n d, M n n, W_Q d d_k, W_K d d_k, W_V d d_v | permutations Π n
for: M is an additive mask with finite entries; or its entries are factors of the exponentials, 0 where it forbids,
  and no row of them is 0
why: A mask that is permuted with the tokens forbids the same pairs of them.
false: $Attention(Π X, M) = Π Attention(X, M)$
"""

THEOREMS = theorems(
    "masks",
    _TEXT,
    {
        "mask-is-restriction": ATTENDING.also(
            {"K′": "m d_k", "V′": "m d_v", "B": "n_q n_k", "B′": "n_q m"},
            sizes={"m": "m"},
            functions={
                "Masked": _allowing(
                    MASKED,
                    mask=lambda reader, keep: reader.xp.broadcast_to(keep[None], (reader.length("n_q"), *keep.shape)),
                ),
                "Padded": _allowing(PADDED, keep=lambda _, keep: keep),
                "Biased": _allowing(
                    ADDED_PADDED,
                    keep=lambda _, keep: keep,
                    mask=lambda reader, _: side_by_side(reader.array("B"), reader.array("B′")),
                ),
            },
        ),
        "forbidden": Glossary(defined={"f": lambda reader: forbid(reader.array("s"), reader.xp.arange(1) < 0)}),
        "causal": Glossary(
            defined={
                "O": _attended,
                "H": lambda reader: CAUSAL(*map(reader.array, "QKV")),
                "A": lambda reader: _over_tokens(reader.array("X")),
                "B": lambda reader: _one_too_far(reader.array("X")),
            },
        ),
        "weights": Glossary(sizes={}, defined={"P": lambda reader: CAUSAL.trace(*map(reader.array, "QKV"))["weights"]}),
        "window-receptive-field": None,
        "added": Glossary(functions={"Attention": _with_added}),
    },
    globals(),
)
