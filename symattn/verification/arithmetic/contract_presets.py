"""``PRESETS``: what attention of others stores, as contracts by name; ``REPLAYED``, what is in FP8.

Those with ``held`` are held by tests to the library's own bits on a CPU; the others are held to no kernel. Contracts in
FP8 are for replays alone: functions are not asked for their arithmetic in it, so ``named`` does not know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from symattn.arrays.formats import Format
from symattn.bounds.contracts import Contract, Powers


@dataclass(frozen=True)
class ContractPreset:
    """The stored arrays in the fields of ``Contract``; ``tiled``: the maximum runs, over tiles of any size."""

    scores: tuple[str, ...] = ()
    powers: Powers = ""
    tiled: bool = False
    queries: bool = False
    times: float = 1.0
    held: bool = False

    def contract(self, f: Format, tile: int = 64, output: Format | None = None) -> Contract:
        """The contract in a format, with tiles of so many keys where there are tiles, and the output in another."""
        tiles = tile if self.tiled else None
        return Contract(f, self.scores, self.powers, tiles, self.queries, times=self.times, output=output)

    def has(self, contract: Contract) -> bool:
        """Return whether a contract stores the same, with whatever scale, tiles and last rounding."""
        remaining = contract.scores, contract.powers, contract.tiles is not None, contract.queries, contract.times
        return remaining == (self.scores, self.powers, self.tiled, self.queries, self.times)


#: FlashAttention is taken to store P relative to a running maximum where it meets V, and to sum it before that, in the
#: order of Dao, FlashAttention-2 (2023), algorithm 1, and Shah et al., FlashAttention-3 (2024), algorithm 1.
PRESETS: Mapping[str, ContractPreset] = MappingProxyType(
    {
        "PyTorch's math path on a CPU": ContractPreset(held=True),
        "Transformers' eager attention": ContractPreset(("scores", "scaled"), "normalised", held=True),
        "FlashAttention 2 and 3": ContractPreset((), "alone", tiled=True),
        "queries that are scaled before the product, in eager steps": ContractPreset(
            ("scaled",), "normalised", queries=True
        ),
    }
)

#: In FP8 FlashAttention-3 subtracts 8 from the maximum in powers of 2, so that exponentials are times 256
#: (``scale_apply_exp2`` in hopper/softmax.h of its repository); the inputs of a replay are queries, keys and values
#: times their descale factors.
REPLAYED: Mapping[str, ContractPreset] = MappingProxyType(
    {"FlashAttention 3 in FP8": ContractPreset((), "alone", tiled=True, times=256.0)}
)


def named(contract: Contract) -> tuple[str, ...]:
    """The presets that store what a contract stores.

    >>> named(Contract(Format("bfloat16"), ("scores", "scaled"), "normalised"))
    ("Transformers' eager attention",)
    """
    return tuple(name for name, preset in PRESETS.items() if preset.has(contract))
