"""Whether the elements of a mask are booleans: by their type, or where letters have none, by their form."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.document.errors import Refused


def are_booleans(mask: Any) -> bool:
    """Whether a mask says which scores are allowed, and is no number to add to them.

    Letters have no type: conditions on places are told by their form. Raises ``Refused`` for other letters, which may
    be either.
    """
    if mask.dtype is not None:
        return bool(namespace_of(mask).isdtype(mask.dtype, "bool"))
    from symattn.arrays.index.building import is_truth
    from symattn.arrays.index.expressions import Letter

    elements = [mask.at(places) for places in mask.places()]
    if all(map(is_truth, elements)):
        return True
    pending = list(elements)
    while pending:
        found = pending.pop()
        if isinstance(found, Letter):
            raise Refused("a mask of letters may be of booleans or of numbers: that is not known for all sizes")
        pending += found.children
    return False
