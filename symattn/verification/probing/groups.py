"""The groups of probes in the order in which they are tried: cheap and telling ones first."""

from __future__ import annotations

from symattn.verification.probing import numbers as probes_numbers
from symattn.verification.probing import sizes as probes_sizes
from symattn.verification.probing.probes import GROUPS, Group

#: Tried in any case: what is seen here is what a diagnosis rests on.
FIRST: dict[str, Group] = GROUPS
#: Tried as long as no fault is known.
LATER: dict[str, Group] = {
    "ranges": probes_numbers.ranges,
    "orders": probes_numbers.orders,
    "hidden keys": probes_numbers.hiding,
    "masked tiles": probes_numbers.offsets,
    "windows": probes_sizes.windows,
    "positions": probes_sizes.positions,
    "caps": probes_numbers.caps,
    "given numbers": probes_numbers.factors,
    "norms": probes_numbers.norms,
    "widths": probes_sizes.widths,
    "tiles": probes_sizes.tiles,
}
#: Tried after inputs at random, since a case takes longer.
LAST: dict[str, Group] = {"long": probes_sizes.long}
