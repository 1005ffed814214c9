"""The record of one pass through a layer, for some tokens: inputs and outputs of its modules, copied as they ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.formats import FORMATS, Format
from symattn.models.auditing import promises
from symattn.models.auditing.layers.part_judge import PartFinding
from symattn.models.auditing.received import Received
from symattn.models.auditing.setting import Floats, Module, Tensor, numbers
from symattn.programs.frameworks import dtype_name

_ENTRIES = 2048  # entries of the sampled tokens, and of arrays whose entries are judged one by one
# Limits on the number of sampled tokens, whatever their width.
_FEWEST, _MOST = 2, 8
# The part that findings on cached keys and values are about.
_CACHE = "attention.cache"
#: Code that multiplies by ``weight`` and adds ``bias``, and whether tokens are multiplied by that matrix untransposed.
_PLAIN = {
    "torch.nn.modules.linear.Linear.forward": False,
    "transformers.models.falcon.modeling_falcon.FalconLinear.forward": False,
    "transformers.pytorch_utils.Conv1D.forward": True,
}


@dataclass(frozen=True)
class TokenRows:
    """Numbers of the sampled tokens, a row each, and their original format."""

    values: Floats
    dtype: str


class TokenDigests(NamedTuple):
    """Digests (b, n, 2) of the keys and values that attention was handed, of tokens from ``start`` on.

    Those before ``known`` came out of the cache before any pass was seen. Arrays of another ``form`` do not compare.
    """

    form: tuple[object, ...]
    start: int
    known: int
    digests: NDArray[np.int64]


@dataclass
class Pass:
    """One pass through a layer: the sampled tokens, by item and position, and arrays by their roles.

    ``given`` and ``gave`` hold the inputs and outputs of modules, by part. ``called`` holds the arguments of attention,
    and ``answered`` its result, heads side by side. ``noted`` holds what attention was handed, by layer: ``earlier`` in
    the earlier passes of this one, ``name``. ``cached`` are findings on that. ``reason`` says why the pass cannot be
    judged.
    """

    context: promises.ModelCall | None
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
    name: str = ""
    noted: dict[str, TokenDigests] = field(default_factory=dict)
    earlier: TokenDigests | None = None
    cached: tuple[PartFinding, ...] = ()
    reason: str = ""

    def rows(self, tensor: Tensor) -> TokenRows | None:
        """Return the sampled tokens of (b, n, …) or (b n, …); None for an array of another shape."""
        if not hasattr(tensor, "shape") or tensor.ndim < 2:
            return None
        # (b, n, …), or with both axes in one.
        if tuple(tensor.shape[:2]) == (self.batch, self.n):
            return TokenRows(numbers(tensor[self.items, self.places]), dtype_name(tensor))
        if tensor.shape[0] == self.batch * self.n:
            tokens = zip(self.items, self.places, strict=True)
            at = [item * self.n + place for item, place in tokens]
            return TokenRows(numbers(tensor[at]), dtype_name(tensor))
        return None

    def by_head(self, tensor: Tensor, first: int = 0) -> TokenRows | None:
        """Return the sampled tokens of (b, h, n', d), counted from ``first``, as (r, h, d); None if out of range."""
        if (
            tensor.ndim != 4
            or tensor.shape[0] != self.batch
            or first < 0
            or first + self.n > tensor.shape[-2]
        ):
            return None
        # Cached keys stand before those of this pass.
        at = [first + t for t in self.places]
        return TokenRows(numbers(tensor[self.items, :, at]), dtype_name(tensor))

    def of_tables(self, tables: object) -> tuple[TokenRows, TokenRows] | None:
        """Return cosines and sines of the sampled tokens, from arrays (b or 1, n, f)."""
        if (
            not isinstance(tables, (tuple, list))
            or len(tables) != 2
            or any(t.ndim != 3 for t in tables)
        ):
            return None
        # One table may serve all items.
        whole = [t.expand(self.batch, -1, -1) if t.shape[0] == 1 else t for t in tables]
        cos, sin = (self.rows(t) for t in whole)
        return None if cos is None or sin is None else (cos, sin)

    @property
    def positions(self) -> np.ndarray:
        """The positions of the tokens, as given by the model's caller, or consecutive after the cached tokens."""
        result = self.context.arguments.get("position_ids") if self.context else None
        if result is not None and hasattr(result, "ndim") and result.ndim == 2:
            entries = result.detach().cpu().numpy()
            whole = np.broadcast_to(entries, (self.batch, self.n))
            return np.asarray(whole[self.items, self.places])
        return self.past + np.asarray(self.places)

    @property
    def past(self) -> int:
        """How many tokens the cache held before."""
        return self.context.past if self.context else 0

    def first(self, keys: Tensor) -> int:
        """Return the place of this pass's first token among all keys: a static cache has unused entries at its end."""
        total = int(keys.shape[-2])
        return total - self.n if total <= self.past + self.n else self.past

    def attended(self, received: Received, out: Tensor, heads_last: bool) -> None:
        """Keep the arguments and the result of attention; of keys and values, the tokens of this pass."""
        first = self.first(received.k)
        for name, tensor, start in (
            ("q", received.q, 0),
            ("k", received.k, first),
            ("v", received.v, first),
        ):
            token_rows = self.by_head(tensor, start)
            self.called[name] = "it is of an unknown form" if token_rows is None else token_rows
        # Some functions return the heads behind the tokens.
        whole = out.transpose(1, 2) if heads_last and out.ndim == 4 else out
        token_rows = self.by_head(whole) if hasattr(whole, "ndim") and whole.ndim == 4 else None
        if token_rows is not None:
            self.answered = TokenRows(
                token_rows.values.reshape(len(token_rows.values), -1), token_rows.dtype
            )

    def compare(self, received: Received) -> None:
        """Compare older keys and values with those that earlier passes handed over, and note those of this pass.

        A cache may have dropped the oldest tokens, or the last ones, and reordered or repeated the items of the batch.
        """
        k = received.k
        v = received.v
        last = self.earlier
        past = self.past
        older = self.first(k)
        # Cached keys and values are open unless the comparison below decides.
        self.cached = (PartFinding(_CACHE, open=("cached keys and values",)),) if older else ()
        lossy = self.context is not None and self.context.lossy
        if (
            lossy
            or not 0 <= older <= past
            or any(t.ndim != 4 or t.shape[0] != self.batch for t in (k, v))
        ):
            return
        digests = np.stack([_digest_token_bits(k), _digest_token_bits(v)], axis=-1)[
            :, : older + self.n
        ]
        form = (
            received.via,
            *(entry for array in (k, v) for entry in (array.dtype, array.shape[1], array.shape[3])),
        )
        # The next pass of this layer over the same cache is compared with these digests.
        self.noted[self.name] = TokenDigests(form, past - older, past, digests)
        if not older or last is None or last.form != form:
            return
        start = past - older - last.start
        stop = past - last.start
        # No earlier pass has noted some of these tokens.
        if start < 0 or stop > last.digests.shape[1]:
            return
        items, finding = _match_cached_items(
            digests[:, :older], last.digests[:, start:stop], past - older
        )
        # The tokens of this pass follow the older ones.
        earlier = last.digests[items, :stop]
        whole = np.concatenate([earlier, digests[:, older:]], axis=1)
        self.noted[self.name] = last._replace(digests=whole)
        if past - older >= last.known or finding.wrong:
            self.cached = (finding,)


def _digest_token_bits(tensor: Tensor) -> NDArray[np.int64]:
    """Return a number of 64 bits for each token of (b, h, n, d); if two numbers differ, so do the tokens' bits."""
    import torch

    # Bits are compared as integers, so that NaN and signed zeros count too.
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    # A fixed seed, so that digests of different passes compare; odd factors are invertible modulo
    # 2⁶⁴, so that a single changed entry shows.
    shape_of_factors = (tensor.shape[1], 1, tensor.shape[3])
    factors = np.random.default_rng(0).integers(-(2**63), 2**63, shape_of_factors) | 1
    numbered_bits = tensor.detach().view(bits).long()
    product = numbered_bits * torch.from_numpy(factors).to(tensor.device)  # modulo 2⁶⁴
    return np.asarray(product.sum(dim=(1, 3)).cpu().numpy())


def _match_cached_items(
    got: NDArray[np.int64], wanted: NDArray[np.int64], start: int
) -> tuple[NDArray[np.intp], PartFinding]:
    """Return the earlier item that each item of the batch agrees with most, and what differs; places from ``start``."""
    own = np.arange(len(wanted))
    items = np.array(
        # An item prefers itself among equal ones.
        [
            ((a == wanted).sum(axis=(1, 2)) + (own == item) / 2).argmax()
            for item, a in enumerate(got)
        ]
    )
    differs = (got != wanted[items]).any(axis=0)
    for column, name in enumerate(("key", "value")):
        places = start + np.flatnonzero(differs[:, column])
        if len(places):
            more = f", and {len(places) - 1} more," if len(places) > 1 else ""
            words = f"{name} {places[0]} of the cache{more} is not what an earlier pass handed over"
            return items, PartFinding(_CACHE, np.inf, True, words)
    moved = not np.array_equal(wanted[items], wanted)
    return items, PartFinding(_CACHE, open=("items of the batch are exchanged",) if moved else ())


def begun(context: promises.ModelCall | None, tokens: Tensor) -> Pass | None:
    """Return a pass for tokens (b, n, d_model), or None for an array of another form."""
    if not hasattr(tokens, "ndim") or tokens.ndim != 3 or 0 in tokens.shape:
        return None
    b, n, width = (int(s) for s in tokens.shape)
    # As many tokens as the number of entries allows.
    count = min(max(_ENTRIES // width, _FEWEST), _MOST)
    # Evenly over all items, first and last token included.
    spread = np.linspace(0, b * n - 1, count).round()
    at = sorted({int(i) for i in spread})
    items = [i // n for i in at]
    places = [i % n for i in at]
    return Pass(context, items, places, n, b)


class Open(Exception):
    """Raised for a part that cannot be judged; the message says why."""


def same(wanted: TokenRows, got: TokenRows) -> bool:
    """Return whether the numbers are the same, once stored in the format of those received."""
    if wanted.values.shape != got.values.shape:
        return False
    values = wanted.values
    if got.dtype != wanted.dtype and got.dtype in FORMATS:
        values = np.asarray(Format(got.dtype).rounded(values), dtype=np.float64)
    return np.array_equal(values, got.values, equal_nan=True)


def spaced(array: Floats) -> Floats:
    """Return evenly spaced columns, the first and the last among them."""
    columns = array.shape[-1]
    count = min(columns, max(_ENTRIES // max(len(array), 1), 2))
    return array[..., np.linspace(0, columns - 1, count).round().astype(int)]


def matrix(module: Module) -> tuple[Floats, Floats | None]:
    """Return the matrix of a linear layer, for tokens on the left, and its bias.

    Raises ``Open`` for a module that may do more than multiply by its weights, such as one with quantized weights.
    """
    import torch

    # The code that runs decides: a subclass may do more than multiply.
    forward = type(module).forward
    code = f"{forward.__module__}.{forward.__qualname__}"
    entries = [getattr(module, name, None) for name in ("weight", "bias")]
    plain = all(
        type(t) in (torch.Tensor, torch.nn.Parameter) and dtype_name(t) in FORMATS
        for t in entries
        if t is not None
    )
    if code not in _PLAIN or not plain or entries[0] is None:
        raise Open(f"it is {type(module).__name__}, whose matrix is unknown")
    w, b = (None if t is None else numbers(t) for t in entries)
    assert w is not None
    return (w if _PLAIN[code] else w.T), b
