"""The request to ``symattn bound``, and its answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from symattn.arrays.precision import Contract
from symattn.attention.spec import Attention
from symattn.bounds.sharp.limits import ALPHA
from symattn.document import errors
from symattn.document import model as md
from symattn.verification.tolerances import asked, bound_document
from symattn.verification.tolerances.tolerance import USUAL, Tolerance, bound

_MOST = 200  # lines of a table
_USUAL = Attention()


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The options; of n, dk and dtype there may be several."""

    n: tuple[int, ...] = (1024,)
    dk: tuple[int, ...] = (64,)
    dtype: tuple[str, ...] = ("float32",)
    contract: Contract = USUAL
    accumulate: str | None = None
    tile: int | None = None
    inputs: str | None = None
    largest: float | None = None
    seed: int = 0
    alpha: float = ALPHA
    compare: bool = True
    spec: Attention = _USUAL


def document(wish: Wish, command: str) -> md.Document:
    """For inputs, for one size, or a table of several. Raises ``InputError``."""
    if wish.inputs is not None and len(wish.dtype) > 1:
        raise errors.InputError(f"--inputs goes with one --dtype, not with {', '.join(wish.dtype)}")
    result = list(_found(wish, command))
    if len(result) > 1:
        return bound_document.table([one.asked for one in result if isinstance(one.asked, asked.Beforehand)], command)
    return result[0].document(wish.compare, wish.seed)


def _found(wish: Wish, command: str) -> Iterator[Tolerance]:
    how: dict[str, Any] = {name: getattr(wish, name) for name in ("contract", "accumulate", "tile", "alpha")}
    how["command"] = command
    if wish.inputs is not None:
        yield bound(wish.spec, wish.inputs, wish.dtype[0], **how)
        return
    lines = len(wish.n) * len(wish.dk) * len(wish.dtype)
    if lines > _MOST:
        raise errors.InputError(f"{lines} bounds were requested; a table has at most {_MOST}")
    for dtype, d_k, n in product(wish.dtype, wish.dk, wish.n):
        yield bound(wish.spec, None, dtype, n=n, d_k=d_k, largest=wish.largest, **how)
