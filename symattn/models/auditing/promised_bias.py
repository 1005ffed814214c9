"""The bias by position that a configuration promises, and the one that a call received: ALiBi, and T5's buckets."""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.formats import FORMATS, Format
from symattn.attention.positions.position_fields import Alibi, Buckets
from symattn.attention.positions.relative import slope_exponents
from symattn.attention.spec import Attention
from symattn.models.auditing.received import AttentionCall
from symattn.models.auditing.setting import Floats, Mask, Masking, Module, numbers, rows_of
from symattn.programs.frameworks import dtype_name

Integers = NDArray[np.int64]
_U = 2.0**-24  # the unit of roundoff of float32, in which models compute slopes and buckets
_FUNCTION = 16  # units of roundoff that a power or logarithm may be off: CUDA documents up to 8 units in the last place


def compare_bias(
    call: AttentionCall, spec: Attention, masking: Masking, model: Module
) -> tuple[Floats | None, str | None]:
    """Return the bias to hold the call to, and how the received one differs from it, in words.

    If they agree, it is the received one, without words. None in place of words: what is promised cannot be computed.
    Compared are scores that both masks let pass, of queries that are not padding.
    """
    place, bias, total = spec.position, call.given.bias, masking.total
    got = call.given.whole(np.zeros((1, 1, 1, 1)) if bias is None else bias)
    seen = masking.allowed() & ~masking.of_padding()[:, None, :, None]
    seen = call.given.whole(seen if call.given.allowed is None else seen & call.given.allowed)
    rows = np.array(masking.rows)[:, None] + total - masking.n_q
    ahead = np.arange(masking.n_k) + max(0, total - masking.n_k) - rows
    table = _table(call, model, place) if isinstance(place, Buckets) else None
    gaps = masking.keep is not None and (np.diff(masking.keep).sum(axis=1) > 1).any()  # some models do not count these
    if isinstance(place, Buckets) and table is not None and not spec.bias:
        promised, other = (np.moveaxis(table[_buckets(place, ahead, way)], -1, 0)[None] for way in (1, -1))
        words = "it is not that of the buckets of the table"
        right = ((got == promised) | (got == other) | ~seen).all()
    elif place == Alibi() and not gaps and not spec.bias:
        promised = np.array([2.0 ** -float(e) for e in slope_exponents(call.given.heads)])[:, None, None] * ahead
        words, right = "it is not ALiBi's", _level(got - promised, _room(call, got), seen)
    else:
        return bias, None
    words = words if got[seen].any() else "it is left out"
    return (bias, "") if right else (call.given.whole(promised), f"the bias by position is wrong: {words}")


def _room(call: AttentionCall, got: Floats) -> Floats:
    """Return how far a bias of ALiBi may be off.

    A slope is a power, up to the h-th, of a rounded number in float32; its product with a place is rounded in float32,
    then to the format of the call, and to that in which it is received.
    """
    arrays = (rows_of(m, call.rows, call.n_k) for m in call.received.masks if m is not None)
    stored = max((Format(name).u for name in map(dtype_name, arrays) if name in FORMATS), default=0)
    relative = float(stored + call.arithmetic.input.u) + (call.given.heads + _FUNCTION + 2) * _U
    return np.asarray(relative / (1 - relative) * np.abs(got))


def _level(off: Floats, room: Floats, seen: Mask) -> bool:
    """Return whether each row has one number, which softmax does not see, within ``room`` of all its seen entries."""
    low, high = np.where(seen, off - room, -np.inf).max(axis=-1), np.where(seen, off + room, np.inf).min(axis=-1)
    return bool((low <= high).all())


def _table(call: AttentionCall, model: Module, place: Buckets) -> Floats | None:
    """Return the table (buckets, h) of a module's stack, if it is within reach and in the format of the call."""
    own = (m for m in model.modules() if getattr(m, "config", None) is getattr(call.received.module, "config", None))
    held = (getattr(getattr(m, "relative_attention_bias", None), "weight", None) for m in own)
    table = next((weight for weight in held if weight is not None), None)
    if table is None or table.device.type == "meta" or tuple(table.shape) != (place.number, call.given.heads):
        return None
    return numbers(table) if dtype_name(table) == call.arithmetic.input.name else None


def _buckets(place: Buckets, ahead: Integers, way: int) -> Integers:
    """Return the bucket of each j − i, by a logarithm that float32 makes too large (way 1) or small (−1).

    Rounded are the argument, which adds a unit to the logarithm, the logarithm, the divisor, quotient and product.
    """
    side = place.number // 2 if place.bidirectional else place.number
    start = side // 2
    span, size = log(place.max_distance / start), side - start
    behind = np.abs(ahead) if place.bidirectional else np.maximum(-ahead, 0)
    exact = np.log(np.maximum(behind, start) / start) / span * size
    rounded = exact + way * _U * ((_FUNCTION + 3) * exact + size / span)
    far = start + np.clip(np.floor(rounded), 0, size - 1)
    half = side * (ahead > 0) if place.bidirectional else 0
    return np.asarray(np.where(behind < start, behind, far) + half, dtype=np.int64)
