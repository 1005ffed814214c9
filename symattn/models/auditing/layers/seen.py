"""A record of one pass through a layer, for some tokens: inputs and outputs of its modules, copied as they ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.models.auditing.promises import ModelCall
from symattn.models.auditing.received import Received
from symattn.models.auditing.setting import Floats, Module, Tensor, numbers
from symattn.programs.frameworks import dtype_name

_ENTRIES = 2048  # of the tokens that are looked at, and of arrays of which each number stands alone
_FEWEST, _MOST = 2, 8
#: Code that multiplies by ``weight`` and adds ``bias``, and whether that matrix is for tokens on the left as it is.
_PLAIN = {
    "torch.nn.modules.linear.Linear.forward": False,
    "transformers.models.falcon.modeling_falcon.FalconLinear.forward": False,
    "transformers.pytorch_utils.Conv1D.forward": True,
}


@dataclass(frozen=True)
class TokenRows:
    """Numbers of the tokens that are looked at, a row each, and the format that they came in."""

    values: Floats
    dtype: str


@dataclass
class Pass:
    """One pass through a layer: the tokens that are looked at, by item and place, and arrays by what they are.

    ``given`` and ``gave`` hold what modules received and returned, by their parts; ``several`` says that one ran more
    than once. ``called`` is what attention was called with, and ``answered`` what it returned, heads side by side.
    """

    context: ModelCall | None
    items: list[int]
    places: list[int]
    n: int
    batch: int
    given: dict[str, TokenRows] = field(default_factory=dict)
    gave: dict[str, TokenRows] = field(default_factory=dict)
    heads: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    tables: tuple[TokenRows, TokenRows] | None = None
    called: dict[str, TokenRows | str] = field(default_factory=dict)
    answered: TokenRows | None = None
    reason: str = ""

    def rows(self, tensor: Tensor) -> TokenRows | None:
        """The tokens looked at of (b, n, …) or (b n, …); None for an array of another shape."""
        if not hasattr(tensor, "shape") or tensor.ndim < 2:
            return None
        if tuple(tensor.shape[:2]) == (self.batch, self.n):
            return TokenRows(numbers(tensor[self.items, self.places]), dtype_name(tensor))
        if tensor.shape[0] == self.batch * self.n:
            at = [i * self.n + t for i, t in zip(self.items, self.places, strict=True)]
            return TokenRows(numbers(tensor[at]), dtype_name(tensor))
        return None

    def by_head(self, tensor: Tensor, first: int = 0) -> TokenRows | None:
        """Return the places of (b, h, n', d) from ``first`` on, (r, h, d); None where they are not there."""
        if tensor.ndim != 4 or tensor.shape[0] != self.batch or first < 0 or first + self.n > tensor.shape[-2]:
            return None
        at = [first + t for t in self.places]
        return TokenRows(numbers(tensor[self.items, :, at]), dtype_name(tensor))

    def of_tables(self, tables: object) -> tuple[TokenRows, TokenRows] | None:
        """Cosines and sines of the tokens looked at, from arrays (b or 1, n, f)."""
        if not isinstance(tables, (tuple, list)) or len(tables) != 2 or any(t.ndim != 3 for t in tables):
            return None
        whole = [t.expand(self.batch, -1, -1) if t.shape[0] == 1 else t for t in tables]
        cos, sin = (self.rows(t) for t in whole)
        return None if cos is None or sin is None else (cos, sin)

    @property
    def positions(self) -> np.ndarray:
        """Where the tokens stand, as the caller of the model says, or one after another after what is cached."""
        result = self.context.arguments.get("position_ids") if self.context else None
        if result is not None and hasattr(result, "ndim") and result.ndim == 2:
            whole = np.broadcast_to(result.detach().cpu().numpy(), (self.batch, self.n))
            return np.asarray(whole[self.items, self.places])
        past = self.context.past if self.context else 0
        return past + np.asarray(self.places)

    def attended(self, received: Received, out: Tensor, heads_last: bool) -> None:
        """Keep what attention was called with, and what it gave: of keys and values the tokens of this pass."""
        past = self.context.past if self.context else 0
        total = int(received.k.shape[-2])
        first = total - self.n if total <= past + self.n else past  # a static cache has empty room behind
        for name, tensor, start in (("q", received.q, 0), ("k", received.k, first), ("v", received.v, first)):
            token_rows = self.by_head(tensor, start)
            self.called[name] = "it is of an unknown form" if token_rows is None else token_rows
        whole = out.transpose(1, 2) if heads_last and out.ndim == 4 else out
        token_rows = self.by_head(whole) if hasattr(whole, "ndim") and whole.ndim == 4 else None
        if token_rows is not None:
            self.answered = TokenRows(token_rows.values.reshape(len(token_rows.values), -1), token_rows.dtype)


def begun(context: ModelCall | None, tokens: Tensor) -> Pass | None:
    """A pass for tokens (b, n, d_model), or None where they are none."""
    if not hasattr(tokens, "ndim") or tokens.ndim != 3 or 0 in tokens.shape:
        return None
    b, n, width = (int(s) for s in tokens.shape)
    count = min(max(_ENTRIES // width, _FEWEST), _MOST)
    at = sorted({int(i) for i in np.linspace(0, b * n - 1, count).round()})
    return Pass(context, [i // n for i in at], [i % n for i in at], n, b)


class Open(Exception):
    """A part of which nothing can be told; the words say why."""


def in_words(name: str) -> str:
    """An array that was seen, in words."""
    return {"x": "the tokens that the layer is given", "attention.answered": "the result of attention"}.get(
        name, f"what {name} gave"
    )


def format_of(*arrays: TokenRows) -> str:
    """The roughest format of what a part reads and gives. Raises Open for one whose arithmetic is unknown."""
    for array in arrays:
        if array.dtype not in FORMATS:
            raise Open(f"it is computed in {array.dtype}, whose arithmetic is unknown")
    return max((a.dtype for a in arrays), key=lambda dtype: Format(dtype).u)


def same(wanted: TokenRows, got: TokenRows) -> bool:
    """Return whether the numbers are the same, once they are stored in the format of what was received."""
    if wanted.values.shape != got.values.shape:
        return False
    values = wanted.values
    if got.dtype != wanted.dtype and got.dtype in FORMATS:
        values = np.asarray(Format(got.dtype).rounded(values), dtype=np.float64)
    return np.array_equal(values, got.values, equal_nan=True)


def some(array: Floats) -> Floats:
    """Some columns, evenly chosen, the first and the last among them."""
    columns = array.shape[-1]
    count = min(columns, max(_ENTRIES // max(len(array), 1), 2))
    return array[..., np.linspace(0, columns - 1, count).round().astype(int)]


def narrow(table: Floats, width: int) -> Floats:
    """A table for ``width`` columns with each angle once, of one that may have it twice, in halves or side by side."""
    if table.shape[-1] != width:
        return table
    halves = np.array_equal(table[..., : width // 2], table[..., width // 2 :])
    return table[..., : width // 2] if halves else table[..., ::2]


def matrix(module: Module) -> tuple[Floats, Floats | None]:
    """The matrix of a linear layer for tokens on the left, and its bias.

    Raises Open for a module that may do more than multiply by the numbers it holds, as where weights are quantized.
    """
    import torch

    forward = type(module).forward
    code = f"{forward.__module__}.{forward.__qualname__}"
    entries = [getattr(module, name, None) for name in ("weight", "bias")]
    plain = all(
        type(t) in (torch.Tensor, torch.nn.Parameter) and dtype_name(t) in FORMATS for t in entries if t is not None
    )
    if code not in _PLAIN or not plain or entries[0] is None:
        raise Open(f"it is {type(module).__name__}, whose matrix is unknown")
    w, b = (None if t is None else numbers(t) for t in entries)
    assert w is not None
    return (w if _PLAIN[code] else w.T), b
