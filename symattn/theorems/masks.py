"""Masks: what they forbid, what leaks, and which tokens an output depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import forbid, window
from symattn.attention.norms import layer_norm
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.proof.joint_statements import Together, above_zero, identity
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import (
    ATTENDING,
    ATTENTION,
    CAUSAL,
    of_tokens,
    rows,
    scaled_scores,
    side_by_side,
)
from symattn.theorems.texts import of_file

MASKED = Attention(mask="boolean", fully_masked="nan")
ADDED, ADDED_PADDED = Attention(mask="additive"), Attention(mask="additive", padding=True)
PADDED = Attention(padding=True)
HEADS, BOTH = Attention(heads=2), Attention(mask="boolean", padding=True, heads=2)
ADDED_BOTH = Attention(mask="additive", padding=True, heads=2)


# -- forbidden keys ---------------------------------------------------------------------------------------------------
def _restrict_attention_to_keys(
    attention: Attention, **keywords: Callable[[Reader, Any], Any]
) -> Any:
    """Return attention that allows only the keys of K, by a mask or by padding."""

    def masked(reader: Reader, q: Value, k: Value, v: Value) -> Value:
        keep = reader.xp.arange(k.array.shape[0]) < reader.length("n_k")
        more = {word: of(reader, keep) for word, of in keywords.items()}
        return Value(attention(q.array, k.array, v.array, **more), (), 2)

    return masked


def _pad_and_mask_heads(
    x: Array,
    before: Array,
    y: Array,
    after: Array,
    heads: tuple[int, ...],
    added: bool = False,
    **weights: Array,
) -> Any:
    """Return heads with a shared padding, which forbids ``before``, and masks, which forbid ``after``.

    The mask is one for all heads, or one for each; of truth values, or of 0 and −∞ that are ``added``.
    """
    xp, every = x.__array_namespace__(), rows(before, y, after)
    batch = x.shape[0]
    n_q = x.shape[1]
    place = xp.arange(every.shape[1])
    allowed = xp.broadcast_to(
        place < every.shape[1] - after.shape[1], (batch, *heads, n_q, every.shape[1])
    )
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
        (
            _pad_and_mask_heads(x, y0, y, y1, *kind, w_q=w_q, w_k=w_k, w_v=w_v),
            HEADS(x=x, y=y, w_q=w_q, w_k=w_k, w_v=w_v),
        )
        for kind in (((),), ((2,),), ((), True))
    ],
)


# -- causal masks -----------------------------------------------------------------------------------------------------
def _over_tokens(x: Array) -> Any:
    """Return causal self-attention of tokens that are normalised along the sequence."""
    y = layer_norm(x.mT, 1).mT
    return CAUSAL(y, y, y)


def _one_too_far(x: Array) -> Any:
    xp = x.__array_namespace__()
    i = xp.arange(x.shape[0])
    next_visible = i[None, :] <= i[:, None] + 1
    return soft(forbid(scaled_scores(x, x), next_visible)) @ x


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
    here = slice(f + r, f + r + 1)
    near = slice(f, f + r + 1)
    equal = _in_window(0 * q, k, r + 1)[here, near]
    return [
        (equal * (r + 1), 0 * equal + 1),
        ((_in_window(q, k, r + 1) @ v)[here], ATTENTION(q[here], k[near], v[near])),
        ((_in_window(q, k, 1) @ v)[here], v[here]),
    ]


def _one_token_more(q: Array, k: Array, v: Array, f: Array, r: Array) -> Any:
    """Return the same for a window of r that counts r tokens besides the token itself."""
    here = slice(f + r, f + r + 1)
    near = slice(f, f + r + 1)
    return (_in_window(q, k, r) @ v)[here], ATTENTION(q[here], k[near], v[near])


_RECEPTIVE = identity(_WINDOW_ARRAYS, _one_token, _one_token_more)

window_receptive_field = Together(
    (
        _RECEPTIVE,
        above_zero(
            _WINDOW_ARRAYS,
            lambda q, k, f, r: _in_window(q, k, r + 1)[f + r : f + r + 1, f : f + r + 1],
        ),
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


THEOREMS = of_file(
    "masks",
    {
        "mask-is-restriction": ATTENDING.also(
            {"K′": "m d_k", "V′": "m d_v", "B": "n_q n_k", "B′": "n_q m"},
            sizes={"m": "m"},
            functions={
                "Masked": _restrict_attention_to_keys(
                    MASKED,
                    mask=lambda reader, keep: reader.xp.broadcast_to(
                        keep[None], (reader.length("n_q"), *keep.shape)
                    ),
                ),
                "Padded": _restrict_attention_to_keys(PADDED, keep=lambda _, keep: keep),
                "Biased": _restrict_attention_to_keys(
                    ADDED_PADDED,
                    keep=lambda _, keep: keep,
                    mask=lambda reader, _: side_by_side(reader.array("B"), reader.array("B′")),
                ),
            },
        ),
        "forbidden": Glossary(
            defined={"f": lambda reader: forbid(reader.array("s"), reader.xp.arange(1) < 0)}
        ),
        "causal": Glossary(
            defined={
                "O": lambda reader: of_tokens(CAUSAL)(reader, Value(reader.array("X"))),
                "H": lambda reader: CAUSAL(*map(reader.array, "QKV")),
                "A": lambda reader: _over_tokens(reader.array("X")),
                "B": lambda reader: _one_too_far(reader.array("X")),
            },
        ),
        "weights": Glossary(
            sizes={},
            defined={"P": lambda reader: CAUSAL.trace(*map(reader.array, "QKV"))["weights"]},
        ),
        "window-receptive-field": None,
        "added": Glossary(functions={"Attention": _with_added}),
    },
    globals(),
)
