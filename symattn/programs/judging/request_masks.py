"""The mask of a kernel that takes several requests in one call: that of each request, put together.

A kernel may have one mask of all queries and all keys, the masks of its requests one after the other in one axis (with
offsets, or without), one row for each query or request, as long as the longest request, one block for each request,
or a flag for each key. What belongs to no request is forbidden.

Names of inputs: https://docs.flashinfer.ai, ``BatchPrefillWithPagedKVCacheWrapper.plan``: ``custom_mask`` is flattened,
with ``mask_indptr``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from symattn.document.errors import InputError
from symattn.programs.frameworks import Tensor

#: The role of the offsets of masks that stand one after the other.
MASK_OFFSETS = "mask offsets"
NAMES_OF_OFFSETS = "mask_indptr custom_mask_indptr cu_mask mask_offsets"
NAMES_OF_MASKS = "custom_mask"
#: How a mask may stand in an array, by its axes.
Form = Literal["joint", "flat", "rows", "blocks", "keys"]


@dataclass(frozen=True)
class RequestMask:
    """The input that is a mask, what it is to a definition, and how the masks of all requests stand in it.

    joint   (n_q of all, n_k of all), one block of which is a request's
    flat    (Σ n_q n_k,), one request after the other, row by row
    rows    (n_q of all, largest n_k)
    blocks  (requests, largest n_q, largest n_k)
    keys    (n_k of all,), which keys all queries of a request may use
    """

    name: str
    role: str
    form: Form

    @property
    def of_keys(self) -> bool:
        """Return whether all queries have the same keys, so that it is a mask of padding to a definition."""
        return self.form == "keys"

    def fields(self, is_boolean: bool) -> dict[str, Any]:
        """Return the fields of an attention with this mask. Raises ``InputError`` for a mask of keys in numbers."""
        if not self.of_keys:
            return {"mask": "boolean" if is_boolean else "additive"}
        if not is_boolean:
            raise InputError(f"its mask of keys {self.name} has no booleans")
        return {"padding": True}

    def told(
        self, torch: Any, mask: Tensor, sizes: Sequence[tuple[int, int]], judged: slice
    ) -> dict[str, Tensor]:
        """Return the mask of all requests, whose numbers of queries and keys are ``sizes``, and its offsets.

        ``mask`` is that of the judged requests, (b, 1, n_q, n_k) or (n_q, n_k), or (b, n_k) of keys. Raises
        ``ValueError`` for other axes.
        """
        own = self._of_judged_requests(mask, judged.stop - judged.start)
        first = own[0]
        parts = []
        for number, (n_q, n_k) in enumerate(sizes):
            is_judged = judged.start <= number < judged.stop
            rows = 1 if self.of_keys else n_q
            part = (
                own[number - judged.start] if is_judged else _of_neighbour(torch, first, rows, n_k)
            )
            parts.append(part)
        counts = [part.numel() for part in parts]
        offsets = torch.as_tensor([0, *accumulate(counts)], dtype=torch.int32, device=mask.device)
        return {self.role: self._put_together(torch, parts), MASK_OFFSETS: offsets}

    def _of_judged_requests(self, mask: Tensor, count: int) -> Tensor:
        """Return a mask of the definition as (requests, n_q, n_k), with n_q = 1 if it is one of keys."""
        if self.of_keys:
            rows = mask[None] if mask.ndim == 1 else mask
            if rows.ndim != 2:
                raise ValueError(f"{self.name} has one flag for each key")
            return rows[:, None].expand(count, 1, rows.shape[-1])
        if mask.ndim == 2:
            return mask.expand(count, *mask.shape)
        # Kernels of several requests have no masks of heads.
        if mask.ndim != 4 or mask.shape[1] != 1:
            raise ValueError(f"{self.name} has no axis of heads")
        return mask[:, 0].expand(count, *mask.shape[2:])

    def _put_together(self, torch: Any, parts: Sequence[Tensor]) -> Tensor:
        if self.form in ("flat", "keys"):
            return torch.cat([part.reshape(-1) for part in parts])
        widest = max(part.shape[1] for part in parts)
        if self.form == "rows":
            return torch.cat([_padded(torch, part, len(part), 0, widest) for part in parts])
        if self.form == "blocks":
            most = max(map(len, parts))
            return torch.stack([_padded(torch, part, most, 0, widest) for part in parts])
        columns = sum(part.shape[1] for part in parts)
        starts = accumulate((part.shape[1] for part in parts), initial=0)
        wide = [_padded(torch, p, len(p), a, columns) for p, a in zip(parts, starts, strict=False)]
        return torch.cat(wide)


def _of_neighbour(torch: Any, first: Tensor, n_q: int, n_k: int) -> Tensor:
    """Return the mask of another request: the first one's keys in other places, a few of them again."""
    rows = first.roll(1, 1)[:n_q]
    repeated = -(-n_k // rows.shape[1])
    return torch.cat([rows] * repeated, 1)[:, :n_k].contiguous()


def _padded(torch: Any, part: Tensor, rows: int, before: int, columns: int) -> Tensor:
    """Return a mask within a larger one that forbids everything else."""
    forbidden = False if part.dtype == torch.bool else -math.inf
    result = torch.full((rows, columns), forbidden, dtype=part.dtype, device=part.device)
    result[: len(part), before : before + part.shape[1]] = part
    return result


def read_request_mask(
    inputs: Mapping[str, tuple[str, ...]],
    roles: Mapping[str, str | None],
    decodes: bool,
    is_paged: bool,
) -> RequestMask | None:
    """Return the mask among the inputs of a kernel of several requests, by its axes; None if there is none.

    Raises ``InputError`` for axes that no known form has.
    """
    masks = [name for name, role in roles.items() if role in ("mask", "keep")]
    if len(masks) != 1:
        return None
    (name,) = masks
    axes = inputs[name]
    queries, keys = (
        next((inputs[n][:1] for n, role in roles.items() if role == of), ()) for of in ("q", "k")
    )
    form = _form_of_axes(axes, queries, () if is_paged else keys, decodes)
    if form is None:
        raise InputError(f"the axes {', '.join(axes)} of {name} are those of no mask of requests")
    return RequestMask(name, str(roles[name]), form)


def _form_of_axes(
    axes: tuple[str, ...], queries: tuple[str, ...], keys: tuple[str, ...], decodes: bool
) -> Form | None:
    """Return the form of a mask; ``keys`` is the axis of all keys, () in pages."""
    match len(axes):
        case 1:
            return "keys" if axes == keys else "flat"
        case 2 if axes == (*queries, *keys):
            return "joint"
        case 2 if axes[:1] == queries:
            return "rows"
        # A mask of each request alone has a row of keys for one query.
        case 2 if decodes:
            return "rows"
        case 3:
            return "blocks"
        case _:
            return None
