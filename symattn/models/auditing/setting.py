"""A call of attention in terms of the one definition: a specification and inputs, for some queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from symattn.attention.enclosing.pattern import heads
from symattn.attention.spec import Attention
from symattn.bounds.sharp import rows_in_float64
from symattn.programs.frameworks import dtype_name
from symattn.verification.rules.masking import wrong_places

if TYPE_CHECKING:
    from torch import Tensor as Tensor
    from torch.nn import Module as Module
else:  # torch is imported where it is used
    Tensor = Module = object

#: The arguments of a call, by position and by name.
Args = Sequence[Tensor]
Kwargs = dict[str, Tensor]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CallSetting:
    """Queries q (b, h, r, d_k), keys k (b, g, n, d_k), values v (b, g, n, d_v), and how they meet.

    ``allowed`` (b or 1, h or 1, r, n) says which keys a query may see (None: all). ``bias``, of a similar shape, is
    added to the scores; it is the sum of so many ``biases``. ``sink`` (h,) holds logits that take weight without a
    value. The scale is a number.
    """

    q: Floats
    k: Floats
    v: Floats
    scale: float
    softcap: float | None = None
    sink: Floats | None = None
    allowed: Mask | None = None
    bias: Floats | None = None
    biases: int = 1

    @property
    def heads(self) -> int:
        """h, the number of heads of queries."""
        return int(self.q.shape[1])

    @property
    def key_heads(self) -> int:
        """g, the number of heads of keys and values."""
        return int(self.k.shape[1])

    def spec(self) -> Attention:
        """Return the specification for these inputs."""
        return Attention(
            heads=self.heads,
            # Equal numbers of heads need no field.
            kv_heads=self.key_heads if self.key_heads != self.heads else None,
            scale=self.scale,
            softcap=self.softcap,
            sink=None if self.sink is None else "given",
            mask=None if self.allowed is None else "boolean",
            bias=self.bias is not None,
        )

    def inputs(self) -> dict[str, np.ndarray]:
        """Return the inputs of ``spec`` by name."""
        arrays: dict[str, np.ndarray] = {"q": self.q, "k": self.k, "v": self.v}
        if self.allowed is not None:
            arrays["mask"] = self.whole(self.allowed)
        if self.bias is not None:
            arrays["bias"] = self.whole(self.bias)
        if self.sink is not None:
            arrays["sink"] = self.sink
        return arrays

    def whole(self, array: np.ndarray) -> np.ndarray:
        """Return an array broadcast to the shape of the scores, (b, h, r, n)."""
        shape_of_scores = (*self.q.shape[:3], self.k.shape[2])
        return np.ascontiguousarray(np.broadcast_to(array, shape_of_scores))

    def empty(self) -> Mask:
        """Return which queries see no key and no sink, so that their result is not defined, (b, h, r)."""
        if self.allowed is None or self.sink is not None:
            return np.zeros(self.q.shape[:3], dtype=bool)
        return ~np.broadcast_to(self.allowed.any(axis=-1), self.q.shape[:3])

    def alike(self, other: CallSetting) -> bool:
        """Return whether both mean the same for the same queries, apart from rows without any key here."""
        # A scale or cap may be written with few digits, while arrays must be equal.
        apart = {"scale": 1e-6, "softcap": 1e-6, "sink": 0.0, "bias": 0.0, "k": 0.0, "v": 0.0}
        same = all(
            equal(getattr(self, name), getattr(other, name), most) for name, most in apart.items()
        )
        return same and not self.differing(other).any()

    def differing(self, other: CallSetting) -> Mask:
        """Return the scores that only one of both masks forbids, (b, h, r, n), in rows that have a key here."""
        mine, theirs = (
            self.whole(np.ones((), bool) if s.allowed is None else s.allowed) for s in (self, other)
        )
        return np.asarray((mine != theirs) & ~self.empty()[..., None])

    def with_mask(self, allowed: Mask | None) -> CallSetting:
        """Return this setting under another mask."""
        return replace(self, allowed=allowed)


def equal(a: Floats | float | None, b: Floats | float | None, apart: float) -> bool:
    """Return whether both are None, or numbers of one shape that differ by at most the relative error ``apart``."""
    if a is None or b is None or a is b:
        return a is b
    a, b = (np.asarray(array, dtype=np.float64) for array in (a, b))
    if a.shape != b.shape:
        return False
    with np.errstate(invalid="ignore"):  # equal infinities, whose difference is NaN
        sizes = np.maximum(np.abs(a), np.abs(b))
        near = np.abs(a - b) <= apart * sizes
    return bool((near | (a == b)).all())


# -- from tensors to numbers: queries, keys, values, and masks in the forms that code uses -----------------------------
#: A number added to a score forbids it if it is at most this: e^(−10⁴) is 0 in every format.
FORBIDS = -1e4


def numbers(tensor: Tensor) -> Floats:
    """Return a copy in float64."""
    values: Floats = tensor.detach().to("cpu", copy=True).double().numpy()
    return values


def heads_apart(tensor: Tensor) -> Tensor:
    """Return an array with axes (b, h, n, d): missing leading axes have length 1, surplus ones are joined."""
    if tensor.ndim > 4:
        return tensor.reshape(-1, *tensor.shape[-3:])
    return tensor[(None,) * (4 - tensor.ndim)]


def rows_of(tensor: Tensor, rows: Sequence[int], keys: int) -> Tensor:
    """Return these queries' rows of a mask or bias, and its first ``keys`` columns, (b or 1, h or 1, r, n).

    It is an array, or a function that returns its rows.
    """
    if callable(tensor):
        return tensor(rows)
    whole = heads_apart(tensor)
    if whole.shape[-2] > 1:
        whole = whole[..., list(rows), :]
    return whole[..., :keys]


def allowed_of(array: Tensor) -> Mask:
    """Return which scores a mask allows."""
    # A copy, since the model may change the mask later.
    allowed: Mask = (
        (array if dtype_name(array) == "bool" else ~(array <= FORBIDS))
        .detach()
        .cpu()
        .numpy()
        .copy()
    )
    return allowed


# -- masks by positions, the choice of judged queries, and the mask that configuration, padding and cache require ------
_MOST = 1 << 24  # entries of a whole mask up to which mistakes in it are tried


@dataclass(frozen=True, eq=False)
class Masking:
    """The mask by which queries ``rows`` of ``n_q``, the last of ``total`` tokens, meet ``n_k`` keys.

    The keys are the last ``n_k`` tokens if there are fewer than ``total`` (the cache of a window keeps no others), else
    the first ones, followed by unused entries of a static cache. ``keep`` (b, total) is False for padding,
    ``documents`` (b, total) labels packed documents. ``spec`` specifies the mask by positions; ``crossed`` says that
    queries are other tokens than keys. ``left_out`` (b, h, r) marks queries that are not judged.
    """

    spec: Attention
    rows: list[int]
    n_q: int
    n_k: int
    total: int
    keep: Mask | None = None
    documents: NDArray[np.int64] | None = None
    crossed: bool = False
    left_out: Mask | None = None

    def allowed(self) -> Mask:
        """Return which keys each query may see, (b or 1, 1, r, n_k)."""
        return self._combine_mask_with_keys(self._mask_by_positions(), self.keep)

    def of_padding(self) -> Mask:
        """Return which queries are padding, (b or 1, r): their results do not matter."""
        if self.keep is None or self.crossed:
            return np.zeros((1, len(self.rows)), dtype=bool)
        return ~self._select_columns_of_queries(self.keep)

    def words(self) -> Iterator[str]:
        """Describe the mask briefly."""
        window = self.spec.window
        if window is not None:
            # An integer reaches back alone, a pair to both sides.
            yield f"W={window}" if isinstance(window, int) else f"W={window[0]}:{window[1]}"
        if self.spec.causal:
            yield "causal"
        if self.keep is not None:
            yield "padded"
        if self.documents is not None:
            yield "packed"

    def mistakes(self) -> Iterator[tuple[str, Mask]]:
        """Yield known mistakes in such a mask, in words, and the masks that they lead to."""
        right = self.allowed()
        yield "the mask is ignored", self._exclude_left_out_queries(np.ones_like(right))
        yield "the mask is inverted", self._exclude_left_out_queries(~right)
        spec = replace(self.spec, padding=self.keep is not None)
        if self.n_q * self.total <= _MOST:
            for words, wrong in wrong_places(spec):
                visible_keys = wrong.open(self.n_q, self.total, spec.alignment == "top-left")[
                    self.rows
                ]
                if visible_keys.any():  # else it equals any other mask that hides all keys
                    yield words, self._combine_mask_with_keys(visible_keys, self.keep)
        places = self._mask_by_positions()
        if places is not None and self.n_q < self.total:
            visible_keys = visible(
                replace(spec, padding=False, alignment="top-left"), self.rows, self.n_q, self.total
            )
            yield (
                "places of queries are counted from the first key, as if there were no cache",
                self._combine_mask_with_keys(visible_keys, self.keep),
            )
        if self.keep is not None:
            yield "the padding mask is left out", self._combine_mask_with_keys(places, None)
            yield "the padding mask is inverted", self._combine_mask_with_keys(places, ~self.keep)
            yield (
                "the padding mask is that of the next item of the batch",
                self._combine_mask_with_keys(places, np.roll(self.keep, 1, 0)),
            )
        if self.documents is not None:
            yield "the documents are ignored", replace(self, documents=None).allowed()

    def _mask_by_positions(self) -> Mask | None:
        """Return the mask by positions. Blocks start at the first token that is not padding."""
        if not replace(self.spec, padding=False).masks_anything:
            return None
        if self.spec.block is None or self.keep is None:
            return visible(self.spec, self.rows, self.n_q, self.total)
        # argmax of booleans is the first True.
        first_real = self.keep.argmax(axis=1)[:, None]
        block = (np.arange(self.total) - first_real) // self.spec.block
        of_queries = self._select_columns_of_queries(block)
        same = of_queries[:, None, :, None] == block[:, None, None, :]
        return np.asarray(
            same & visible(replace(self.spec, block=None), self.rows, self.n_q, self.total)
        )

    def _select_columns_of_queries(self, of_tokens: np.ndarray) -> np.ndarray:
        """Return the columns (b, r) of the queries from those of all tokens."""
        older = self.total - self.n_q
        return of_tokens[:, [older + row for row in self.rows]]

    def _combine_mask_with_keys(self, places: Mask | None, keep: Mask | None) -> Mask:
        allowed = np.ones((1, 1, len(self.rows), self.total), dtype=bool)
        if places is not None:
            allowed = allowed & places
        if keep is not None:
            allowed = allowed & keep[:, None, None, :]
        if self.documents is not None:
            allowed = allowed & (
                self._select_columns_of_queries(self.documents)[:, None, :, None]
                == self.documents[:, None, None, :]
            )
        first = max(0, self.total - self.n_k)
        # A static cache has unused entries behind the tokens, which no query may see.
        more = self.n_k - (self.total - first)
        return self._exclude_left_out_queries(
            np.pad(allowed[..., first:], ((0, 0), (0, 0), (0, 0), (0, more)))
        )

    def _exclude_left_out_queries(self, mask: Mask) -> Mask:
        return mask if self.left_out is None else mask & ~self.left_out[..., None]


def by_places(spec: Attention) -> Attention:
    """Return a specification of nothing but the mask by positions."""
    return Attention(
        causal=spec.causal,
        window=spec.window,
        block=spec.block,
        prefix=spec.prefix,
        alignment=spec.alignment,
    )


def visible(spec: Attention, rows: list[int], n_q: int, n_k: int) -> Mask:
    """Return which keys the queries ``rows`` of n_q may see by a specification's mask by positions, (r, n_k)."""
    q = np.zeros((n_q, 1))
    k = np.zeros((n_k, 1))
    head = next(heads(by_places(spec), {"q": q, "k": k, "v": k}))
    return np.asarray(rows_in_float64.allowed(head, np.asarray(rows), slice(0, n_k)))
