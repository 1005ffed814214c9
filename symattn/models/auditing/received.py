"""A call of attention as it was made: what it received, kept before it ran, and what it returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.attention.spec import Attention
from symattn.document.errors import Refused
from symattn.models.auditing.call_judge import CallArithmetic
from symattn.models.auditing.promised_mask import looked_at, visible
from symattn.models.auditing.setting import CallSetting, Floats, Mask
from symattn.models.auditing.tensor_numbers import allowed_of, dtype_of, heads_apart, joined, mask_of, numbers, summed


class UnreadCall(Refused):
    """A call that is not understood; its words say why."""


@dataclass
class Received:
    """Arguments of one call, as tensors: q (b, h, n_q, d_k), k (b, g, n_k, d_k), v (b, g, n_k, d_v).

    ``masks`` are booleans (True may attend) or are added; ``places`` is the mask that goes by places, counted
    from the first query and key (``alignment="top-left"``), as torch does, or from the last. ``eager`` says that scores
    may be stored in the input's format. ``window`` is the argument of this name, whether or not the function reads it.
    """

    via: str
    q: Any
    k: Any
    v: Any
    masks: Sequence[Any] = ()
    scale: float | None = None
    softcap: float | None = None
    sink: Any = None
    places: Attention = field(default_factory=Attention)
    dropout: float = 0.0
    eager: bool = False
    module: Any = None
    name: str = ""
    grouped: bool = True
    window: int | None = None

    @property
    def learned(self) -> list[Any]:
        """The arrays among the masks that a gradient may come for."""
        return [m for m in self.masks if getattr(m, "requires_grad", False)]


@dataclass
class AttentionCall:
    """One call that was read: where, how, of which sizes; which queries were looked at; what it was given and gave."""

    name: str
    via: str
    module: Any
    n_q: int
    n_k: int
    rows: list[int]
    given: CallSetting
    arithmetic: CallArithmetic
    received: Received
    dropout: float = 0.0
    got: Floats | None = None

    def allowed(self, rows: Sequence[int]) -> Mask:
        """Which keys these queries may see, as the call says it, (b or 1, h or 1, r, n_k)."""
        masks = [allowed_of(m, rows, self.n_k) for m in self.received.masks if m is not None]
        places = visible(self.received.places, list(rows), self.n_q, self.n_k)[None, None]
        return np.asarray(joined(places, *masks))

    def returned(self, out: Any, heads_last: bool = False) -> None:
        """Keep the rows that are looked at of what came back, (b, h, n_q, d_v), or (b, n_q, h, d_v).

        Raises ``UnreadCall`` for what is no such array.
        """
        shape = (*self.given.q.shape[:2], self.n_q, self.given.v.shape[-1])
        if not hasattr(out, "shape"):
            raise UnreadCall(f"it returned {type(out).__name__}, no tensor")
        whole = heads_apart(out)
        whole = whole.transpose(1, 2) if heads_last else whole
        if tuple(whole.shape) != shape:
            raise UnreadCall(f"it returned an array of the shape {tuple(out.shape)} for {shape}")
        self.got = numbers(whole[:, :, self.rows])


def read(
    received: Received, count: int | None, contract: str | None, specs: list[Attention], dropping: bool = False
) -> AttentionCall:
    """Copy what is needed to judge a call. Raises ``UnreadCall`` for one that there is no exact result of.

    Where ``dropping`` is true, one with dropout is read, too: what it drops has to be found out then.
    """
    q, k, v = (heads_apart(t) for t in (received.q, received.k, received.v))
    dtype = _roughest(received, q, k, v)
    _check(received, q, k, v, dropping)
    n_q, n_k = int(q.shape[-2]), int(k.shape[-2])
    rows = looked_at(n_q, n_k, count, [*specs, received.places], next(iter(received.masks), None))
    setting = setting_of(received, rows)
    chosen = contract or ("eager" if received.eager else "fused")
    arithmetic = CallArithmetic(dtype, "eager" if chosen == "eager" else "fused")
    name, via, module = received.name, received.via, received.module
    return AttentionCall(name, via, module, n_q, n_k, rows, setting, arithmetic, received, received.dropout)


def setting_of(received: Received, rows: Sequence[int]) -> CallSetting:
    """Return what the call asks of its queries ``rows``, as numbers."""
    q, k, v = (heads_apart(t) for t in (received.q, received.k, received.v))
    n_q, n_k = int(q.shape[-2]), int(k.shape[-2])
    pairs = [mask_of(m, rows, n_k) for m in received.masks if m is not None]
    places = visible(received.places, list(rows), n_q, n_k)[None, None] if received.places.masks_anything else None
    batch = max(int(t.shape[0]) for t in (q, k, v))
    arrays = (numbers(t) for t in (q[:, :, rows], k, v))
    queries, keys, values = (np.ascontiguousarray(np.broadcast_to(a, (batch, *a.shape[1:]))) for a in arrays)
    return CallSetting(
        queries,
        keys,
        values,
        scale=1 / sqrt(q.shape[-1]) if received.scale is None else float(received.scale),
        softcap=None if received.softcap is None else float(received.softcap),
        sink=None if received.sink is None else numbers(received.sink).reshape(-1),
        allowed=joined(places, *(allowed for allowed, _ in pairs)),
        bias=summed(*(bias for _, bias in pairs)),
        biases=sum(bias is not None for _, bias in pairs),
    )


def cast(received: Received) -> Received:
    """Cast as the call does: under ``torch.autocast`` products take queries, keys and values in its format."""
    import torch

    device = received.q.device.type
    if not torch.is_autocast_enabled(device):
        return received
    narrow = torch.get_autocast_dtype(device)
    changed = {
        name: t.to(narrow)
        for name, t in (("q", received.q), ("k", received.k), ("v", received.v))
        if t.dtype in (torch.float32, torch.bfloat16, torch.float16)
    }
    return replace(received, **changed)


def _check(received: Received, q: Any, k: Any, v: Any, dropping: bool) -> None:
    if received.dropout and not dropping:
        raise UnreadCall(f"dropout of {received.dropout:g} is on: what it drops is unknown; hint: model.eval()")
    if 0 in (*q.shape, *k.shape, *v.shape):
        raise UnreadCall("an array is empty")
    h, g = int(q.shape[1]), int(k.shape[1])
    if h % g or int(v.shape[1]) != g or (g not in (1, h) and not received.grouped):
        raise UnreadCall(f"{h} heads of queries meet {g} of keys and {int(v.shape[1])} of values")


def _roughest(received: Received, *arrays: Any) -> str:
    """The format that the call is held to: code that is spelled out may widen some of its arrays."""
    formats = {dtype_of(t) for t in arrays}
    for dtype in formats:
        if dtype not in FORMATS:
            raise UnreadCall(f"an input is of {dtype}, whose arithmetic is unknown")
    if len(formats) > 1 and received.via != "operators":
        raise UnreadCall(f"q, k, v are of {', '.join(dtype_of(t) for t in arrays)}")
    return max(formats, key=lambda dtype: Format(dtype).u)
