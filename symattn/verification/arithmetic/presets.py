"""``PRESETS``: what attention of others stores, as contracts by name.

Those with ``held`` are held by tests to the library's own bits on a CPU; the others are held to no kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from symattn.arrays.formats import Format
from symattn.verification.arithmetic.contracts import Contract, Powers


@dataclass(frozen=True)
class Preset:
    """What is stored, in the fields of ``Contract``; ``tiled`` says that the maximum runs, over tiles of any size."""

    scores: tuple[str, ...] = ()
    powers: Powers = ""
    tiled: bool = False
    queries: bool = False
    held: bool = False

    def contract(self, f: Format, tile: int = 64) -> Contract:
        """The contract in a format, with tiles of so many keys where there are tiles."""
        return Contract(f, self.scores, self.powers, tile if self.tiled else None, self.queries)

    def has(self, contract: Contract) -> bool:
        """Whether a contract stores the same, with whatever scale, tiles and last rounding."""
        kept = contract.scores, contract.powers, contract.tiles is not None, contract.queries
        return kept == (self.scores, self.powers, self.tiled, self.queries)


#: FlashAttention is taken to store P relative to a running maximum where it meets V, and to sum it before that, in the
#: order of Dao, FlashAttention-2 (2023), algorithm 1, and Shah et al., FlashAttention-3 (2024), algorithm 1.
PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "PyTorch's math path on a CPU": Preset(held=True),
        "Transformers' eager attention": Preset(("scores", "scaled"), "normalised", held=True),
        "FlashAttention 2 and 3": Preset((), "alone", tiled=True),
        "queries that are scaled before the product, in eager steps": Preset(("scaled",), "normalised", queries=True),
    }
)


def named(contract: Contract) -> tuple[str, ...]:
    """The presets that store what a contract stores.

    >>> named(Contract(Format("bfloat16"), ("scores", "scaled"), "normalised"))
    ("Transformers' eager attention",)
    """
    return tuple(name for name, preset in PRESETS.items() if preset.has(contract))
