"""Free indices that occur only under a permutation: as i runs over all places, so does π(i)."""

from __future__ import annotations

from collections.abc import Iterable

from symattn.arrays.index.building import substitute
from symattn.arrays.index.expressions import Expression, Index
from symattn.errors import Refused


def settled(x: Expression, free: Iterable[Index]) -> Expression:
    """``x`` with every free index that occurs as π(i) alone renamed to i.

    An equation for all i is then an equation for all π(i), so both sides may be renamed alike. An index that occurs
    both bare and permuted is refused: the statement is then about the permutation.
    """
    for i in free:
        images = {j for j in x.free if j.image and j[:2] == i[:2]}
        if not images:
            continue
        if len(images) > 1 or i in x.free:
            raise Refused("an index occurs both bare and permuted (are there positions or a causal mask?)")
        x = substitute(x, {images.pop(): i})
    return x
