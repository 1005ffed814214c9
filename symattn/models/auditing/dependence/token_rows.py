"""Arrays by tokens: where the axis of tokens is, a change of one token, and which tokens of two arrays differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symattn.models.auditing.setting import Args, Kwargs, Module, Tensor

# The probe changes the first token, the last, and two in the middle.
FEWEST_TOKENS = 4
#: How many columns more than tokens a convolution may return on the axis of tokens, which are cut off afterwards.
_MAX_PADDING = 8
#: Arguments that belong to places rather than to what tokens hold.
_OF_PLACES = ("mask", "position", "cos", "sin", "bias", "freqs")
# Containers into which a module may write.
_HELD = (list, dict, set)


@dataclass(frozen=True)
class Tokens:
    """How the tokens of a pass are laid out: b items of n tokens; ``seq_first``: the axis of tokens comes first."""

    b: int
    n: int
    seq_first: bool = False

    def placed(self, x: Tensor) -> Tensor | None:
        """Return a view (b, n, ...) of an array of tokens; None if no axis of tokens is certain."""
        if not (hasattr(x, "is_floating_point") and x.is_floating_point() and x.ndim >= 2):
            return None
        b, n, shape = self.b, self.n, tuple(x.shape)
        if self.seq_first and shape[:2] == (n, b):
            return x.transpose(0, 1)
        # With more than three axes, another one of this length leaves the axis of tokens open.
        if x.ndim >= 3 and shape[:2] == (b, n) and shape[2:].count(n) <= (x.ndim == 3):
            return x
        if shape[0] == b * n and x.ndim == 2:
            return x.unflatten(0, (b, n))
        if x.ndim < 3 or shape[0] != b:
            return None
        # Columns of heads come last, and may be as many as tokens.
        last = x.ndim if x.ndim == 3 else x.ndim - 1
        axes = [axis for axis in range(1, last) if shape[axis] == n]
        if len(axes) == 1:
            return x.movedim(axes[0], 1)
        longer = x.ndim == 3 and n < shape[2] <= n + _MAX_PADDING
        return x[..., :n].movedim(2, 1) if longer else None

    def flat(self, x: Tensor) -> Tensor | None:
        """Return an array of tokens as (b, n, columns)."""
        placed = self.placed(x)
        return None if placed is None else placed.reshape(self.b, self.n, -1)

    def changed(self, x: Tensor, tokens: tuple[int, ...], item: int = 0) -> Tensor:
        """Return a copy of an array with other numbers for some tokens of one item."""
        copy = x.clone()
        placed = self.placed(copy)
        assert placed is not None
        for s in tokens:
            row = placed[item, s].clone()
            other = placed[item, (s + 2) % self.n].clone()
            # The new token must differ in some number.
            other = other.flip(-1) if bool((other == row).all()) else other
            is_same = bool((other == row).all())
            placed[item, s] = row + 1 if is_same else other
        return copy

    def arguments(
        self, args: Args, kwargs: Kwargs, tokens: tuple[int, ...]
    ) -> tuple[Args, Kwargs] | None:
        """Return the arguments of a module with some tokens changed; None if no argument holds tokens.

        Containers are copied, since a module may write into them.
        """
        # Masks and positions are about places, and stay.
        named = {k: x for k, x in kwargs.items() if not any(word in k for word in _OF_PLACES)}
        chosen: dict[int | str, Any] = {
            i: x for i, x in enumerate(args) if self.placed(x) is not None
        }
        chosen |= {
            k: x
            for k, x in named.items()
            # Without a positional argument, any name; else only hidden states.
            if self.placed(x) is not None and (not chosen or "hidden" in k)
        }
        if not chosen:
            return None
        new = {key: self.changed(x, tokens) if tokens else x for key, x in chosen.items()}
        every = tuple(new.get(i, _copy_argument_container(x)) for i, x in enumerate(args))
        by_name = {k: new.get(k, _copy_argument_container(x)) for k, x in kwargs.items()}
        return every, by_name


def _copy_argument_container(x: Any) -> Any:
    return type(x)(x) if type(x) in _HELD else x


def first(out: Any) -> Any:
    """Return the first array of what a module returned: of a tuple, a mapping, or itself."""
    if isinstance(out, (tuple, list)):
        return out[0] if out else None
    if isinstance(out, Mapping):
        return next(iter(out.values()), None)
    return out


def differing(a: Tensor, b: Tensor) -> Tensor:
    """Return which tokens (b, n) of two arrays (b, n, columns) differ in any bit; two NaN, or two zeros, are equal."""
    both_nan = a.isnan() & b.isnan()
    return ((a != b) & ~both_nan).any(-1)


def change(a: Tensor, b: Tensor, rows: Tensor) -> float:
    """Return the largest difference in these tokens as a fraction of the largest number of the whole array."""
    a, b = a.double(), b.double()
    size = float(b.nan_to_num(0.0, 0.0, 0.0).abs().max())
    differences = (a - b)[rows].abs().nan_to_num(1.0, 1.0, 1.0)
    return float(differences.max()) / (size or 1.0)


def digests(x: Tensor) -> Tensor:
    """Return a number of 64 bits for each token of an array (b, n, columns): equal for equal bits."""
    import torch

    # Formats of one byte have no arithmetic of their own; float32 has all their numbers.
    x = x.float() if x.element_size() == 1 else x
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    # both zeros become one
    bits = (x.detach() + 0.0).contiguous().view(kinds[x.element_size()]).long()
    # Odd factors are invertible modulo 2⁶⁴, so that a change of one column shows.
    factors = torch.arange(1, bits.shape[-1] + 1, device=bits.device) * 0x9E3779B97F4A7C1
    return (bits * (factors | 1)).sum(-1)


def laid_out(root: Module, args: Args, kwargs: Kwargs) -> tuple[Tokens, int | str] | None:
    """Return how a model's tokens are laid out, and which argument holds them; None if no argument does."""
    import torch

    named = {
        "input_ids": kwargs.get("input_ids"),
        "inputs_embeds": kwargs.get("inputs_embeds"),
        # The names of Transformers come first.
        **kwargs,
    }
    arguments: dict[int | str, Any] = dict(enumerate(args))
    arguments.update(named)
    first_not = any(getattr(m, "batch_first", True) is False for m in root.modules())
    for key, x in arguments.items():
        if not isinstance(x, torch.Tensor) or (isinstance(key, str) and "mask" in key):
            continue
        # Identifiers are integers (b, n), embeddings floats (b, n, d).
        ids = x.ndim == 2 and not x.is_floating_point() and x.dtype != torch.bool
        if ids or (x.ndim == 3 and x.is_floating_point()):
            # batch_first=False puts tokens first.
            axes = (1, 0) if first_not and not ids else (0, 1)
            b, n = (int(x.shape[axis]) for axis in axes)
            tokens = Tokens(b, n, first_not and not ids)
            return tokens, key
    return None
