"""The groups of probes of an attention, whether it is verified alone or inside of a definition, in their order."""

from __future__ import annotations

from symattn.attention.letters_of_attention import ARRAYS
from symattn.verification.probing import numbers, together
from symattn.verification.probing.probes import GROUPS as FIRST
from symattn.verification.probing.probes import Group, Needs

__all__ = ["FIRST", "LAST", "LATER", "NEEDS"]

#: Tried while no fault is known.
LATER: dict[str, Group] = {
    "ranges": numbers.ranges,
    "orders": numbers.orders,
    "distant keys": numbers.distant,
    "far below 0": numbers.far_below_zero,
    "hidden keys": numbers.hiding,
    "masked tiles": numbers.offsets,
    "windows": numbers.windows,
    "positions": numbers.positions,
    "caps": numbers.caps,
    "given numbers": numbers.factors,
    "norms": numbers.norms,
    "widths": numbers.widths,
    "tiles": numbers.tiles,
    "multiples": together.multiples,
}
#: Tried after random inputs, since a case takes longer.
LAST: dict[str, Group] = {"long": numbers.long, "together": together.together}

#: Groups that are passed over where nothing meets their needs: all of their cases test what is then not there.
NEEDS: dict[str, Needs] = {
    "mask": Needs(("masks_anything",)),
    "hidden keys": Needs(("mask", "padding")),
    "masked tiles": Needs(("masks_anything",)),
    "windows": Needs(("window", "block", "prefix")),
    "positions": Needs(("position", "temperature")),
    "caps": Needs(("softcap",)),
    "given numbers": Needs(inputs=frozenset(name for name, row in ARRAYS.items() if row.sized)),
    # Norms, and other operations on vectors whose errors depend on the numbers that they take.
    "norms": Needs(errors_of_steps=frozenset({"rounded"})),
}
