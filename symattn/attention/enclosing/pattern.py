"""The specifications and inputs that are enclosed in tiles, and how they are split into single heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.enclosing.exponential import Floats
from symattn.arrays.namespace import namespace_of
from symattn.arrays.tensors import dtype_kind, is_tensor
from symattn.attention import masks
from symattn.attention.inputs import check_inputs
from symattn.attention.masks import Places
from symattn.attention.spec import Attention
from symattn.attention.stages.masked_scores import by_place
from symattn.document.errors import InputError, Refused

# Fields of ``Attention`` that the bound of ``radius`` covers.
_TAKEN = (
    *(
        "scale",
        "causal",
        "alignment",
        "window",
        "block",
        "prefix",
        "mask",
        "padding",
        "heads",
        "kv_heads",
        "base",
    ),
    *("sink", "stabilised", "fully_masked"),
)
#: The bounds hold for sums of fewer terms than this.
_MOST_TERMS = 2**30


@dataclass(frozen=True)
class Head:
    """One head: q (n_q, d_k), k (n_k, d_k), v (n_k, d_v), its masks, the sink's logit, and arrays added to the scores,
    each (n_q, n_k)."""

    index: tuple[int, ...]
    q: Floats
    k: Floats
    v: Floats
    seen: Seen
    sink: float | None
    added: tuple[Floats, ...] = ()


def check_pattern(spec: Attention) -> None:
    """Raise Refused, with its name, for a field outside the plain pattern."""
    hint = "hint: run the specification on arrays of the kind 'enclosure'"
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name not in _TAKEN and value != field.default:
            raise Refused(f"enclose has no {field.name}={value!r}; {hint}")
    for name, value in (("mask", "additive"), ("scale", "given")):
        if getattr(spec, name) == value:
            raise Refused(f"enclose has no {name}={value!r}; {hint}")


def exactly(name: str, array: np.ndarray, widened: bool = True) -> Array:
    """Return an input with the same values as float64; booleans stay, and so does float32 unless ``widened``.

    Tensors stay tensors on their device. Raises InputError for NaN, infinity and other dtypes.
    """
    values = array if is_tensor(array) else np.asarray(array)
    kind, xp = dtype_kind(values), namespace_of(values)
    if kind == "b":
        return values
    if kind in "OSUc" or values.dtype == np.longdouble != np.float64:
        raise InputError(
            f"{name} holds {values.dtype}; give an array of float64 or of a narrower type"
        )
    wide = xp.astype(
        values, xp.float64 if widened or values.dtype != xp.float32 else xp.float32, copy=False
    )
    if not xp.all(xp.isfinite(wide)):
        raise InputError(f"{name} holds NaN or infinity; there is no number to enclose")
    # 2^53 + 1 is rounded to 2^53, so that 2^53 itself cannot be told from it.
    if kind in "iu" and not xp.all(xp.abs(wide) < 2.0**53):
        raise InputError(f"{name} holds integers of 2^53 or more, which float64 need not hold")
    return wide


def checked(spec: Attention, inputs: Mapping[str, Any], widened: bool = True) -> dict[str, Any]:
    """Return the inputs as float64 and booleans, with checked shapes. Raises InputError and Refused."""
    check_pattern(spec)
    arrays = {
        name: exactly(name, array, widened) for name, array in inputs.items() if array is not None
    }
    if "x" in arrays:
        raise Refused(
            "enclose takes q, k and v; hint: project the tokens first, or use the kind 'enclosure'"
        )
    check_inputs(spec, arrays)
    if arrays["q"].shape[-1] + arrays["k"].shape[-2] > _MOST_TERMS:
        raise Refused("enclose takes fewer than 2^30 keys and columns")
    return arrays


def front(spec: Attention, inputs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the axes of the output before the last two: batches, and the query heads if there are several."""
    # Axes that are no batches: rows, columns and, with several heads, the heads.
    own = 3 if spec.heads > 1 else 2
    batches = np.broadcast_shapes(*(inputs[name].shape[:-own] for name in "qkv"))
    return (*batches, spec.heads) if spec.heads > 1 else batches


def heads(spec: Attention, inputs: Mapping[str, Any]) -> Iterator[Head]:
    """Yield the heads of every batch."""
    axes = front(spec, inputs)
    shared = (*axes[:-1], spec.key_heads) if spec.heads > 1 else axes
    xp: Any = namespace_of(inputs["q"])
    leading = {"q": axes, "k": shared, "v": shared}
    q, k, v = (
        xp.broadcast_to(inputs[name], (*to, *inputs[name].shape[-2:]))
        for name, to in leading.items()
    )
    has_arrays = not {"mask", "keep"}.isdisjoint(inputs)
    allowed = _keys_allowed_by_masks(spec, inputs, axes) if has_arrays else None
    masked = has_arrays or spec.masks_by_place
    n_q, n_k = q.shape[-2], k.shape[-2]
    last: tuple[int, ...] | None = None
    for index in np.ndindex(axes):
        read = index
        if spec.heads > 1:
            # Query heads in one group read the same head of keys and values.
            read = (*index[:-1], index[-1] * spec.key_heads // spec.heads)
        if (
            read != last
        ):  # shared heads keep the same array objects, by which ``prepare`` recognises them
            last, keys, values = read, k[read], v[read]
        visible_keys = Seen(
            spec, n_q, n_k, None if allowed is None else allowed[index], namespace_of(q), masked
        )
        sink = None if spec.sink is None else 0.0
        if spec.sink == "given":
            sink = float(inputs["sink"][index[-1] if spec.heads > 1 else 0])
        yield Head(index, q[index], keys, values, visible_keys, sink)


def _keys_allowed_by_masks(
    spec: Attention, inputs: Mapping[str, Any], axes: tuple[int, ...]
) -> Array:
    """Return the keys that ``mask`` and ``keep`` allow, one of them or both, for every head: (…, n_q or 1, n_k)."""
    scores = np.broadcast_to(0.0, (*axes, 1, 1))
    result: list[Any] = []
    if "mask" in inputs:
        result.append(masks.for_heads(inputs["mask"], scores) if spec.heads > 1 else inputs["mask"])
    if "keep" in inputs:
        keep = masks.padding(inputs["keep"])
        result.append(masks.for_every_head(keep) if spec.heads > 1 else keep)
    joined = result[0] if len(result) == 1 else result[0] & result[1]
    n_k = inputs["k"].shape[-2]
    return namespace_of(joined).broadcast_to(joined, (*axes, joined.shape[-2], n_k))


# -- which keys a tile of queries sees ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Seen:
    """The masks of one head; ``given`` is what ``mask`` and ``keep`` allow: (n_q or 1, n_k), or None.

    ``xp`` is the namespace of the head's arrays. Without ``masked`` every query sees every key.
    """

    spec: Attention
    n_q: int
    n_k: int
    given: Array | None
    xp: Any = np
    masked: bool = True

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return bounds of the keys that the queries start … stop − 1 may see: no key outside them is allowed."""
        first, last = self._offset_of_first_query + start, self._offset_of_first_query + stop - 1
        before, after = self._visible_keys_per_side
        low = 0 if before is None else max(0, first - before)
        high = self.n_k if after is None else min(self.n_k, last + after + 1)
        return min(low, self.n_k), max(min(low, self.n_k), high)

    def tile(self, queries: slice, keys: slice) -> Any | None:
        """Return the mask of a tile, booleans (queries, keys); None if everything is allowed."""
        whole = self.mask(queries, keys)
        return None if whole is None or whole.all() else whole

    def mask(self, queries: slice, keys: slice) -> Any | None:
        """Return the mask of a tile, booleans (queries, keys); None if no mask applies to it."""
        result: list[Any] = []
        if not self._is_tile_fully_visible(queries, keys):
            # Block bounds are counted over the whole sequence, not within the tile.
            whole = self._places_of_tile(slice(0, self.n_q), slice(0, self.n_k))
            result += by_place(self.spec, self._places_of_tile(queries, keys), whole)
        if self.given is not None:
            result.append(self.given[queries if self.given.shape[0] > 1 else slice(None), keys])
        if not result:
            return None
        return self.xp.broadcast_to(
            reduce(and_, result), (queries.stop - queries.start, keys.stop - keys.start)
        )

    @property
    def _offset_of_first_query(self) -> int:
        return self.spec.offset(self.n_q, self.n_k)

    @property
    def _visible_keys_per_side(self) -> tuple[int | None, int | None]:
        """The largest numbers of keys before and after its own position that a query may see, None for all."""
        before, after = self.spec.sides
        if self.spec.causal and self.spec.prefix is None:
            # A causal mask allows no key after the query, whatever the window says.
            after = 0 if after is None else min(after, 0)
        return before, after

    def _is_tile_fully_visible(self, queries: slice, keys: slice) -> bool:
        """Return whether the masks by position let every query see every key of the tile."""
        # Prefixes and blocks are no intervals around the query, so their masks are always formed.
        if self.spec.prefix is not None or self.spec.block is not None:
            return False
        first, last = (
            self._offset_of_first_query + queries.start,
            self._offset_of_first_query + queries.stop - 1,
        )
        before, after = self._visible_keys_per_side
        return (before is None or last - before <= keys.start) and (
            after is None or keys.stop - 1 <= first + after
        )

    def _places_of_tile(self, queries: slice, keys: slice) -> Places:
        i = self.xp.arange(queries.start, queries.stop)[:, None] + self._offset_of_first_query
        return Places(i, self.xp.arange(keys.start, keys.stop)[None, :])
