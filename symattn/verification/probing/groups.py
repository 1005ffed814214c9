"""The groups of probes of an attention, whether it is verified alone or inside of a definition, in their order."""

from __future__ import annotations

from symattn.verification.probing import numbers, together
from symattn.verification.probing.probes import GROUPS as FIRST
from symattn.verification.probing.probes import Group

__all__ = ["FIRST", "LAST", "LATER"]

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
