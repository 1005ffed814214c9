"""Free indices that occur only under a permutation: as i runs over all places, so does π(i)."""

from __future__ import annotations

from collections.abc import Iterable

from symattn.arrays.index.building import substitute
from symattn.arrays.index.expressions import Expression, Index
from symattn.document.errors import Refused


def settled(left: Expression, right: Expression, free: Iterable[Index]) -> tuple[Expression, Expression]:
    """Both sides of an equation, with every free index that occurs in them as π(i) alone renamed to i.

    An equation for all i is one for all π(i), so both sides are renamed alike. An index that occurs both bare and
    permuted, be it on different sides, is refused: the statement is then about the permutation.
    """
    for i in free:
        occurring = left.free | right.free
        images = {j for j in occurring if j.image and j[:2] == i[:2]}
        if not images:
            continue
        if len(images) > 1 or i in occurring:
            raise Refused("an index occurs both bare and permuted (are there positions or a causal mask?)")
        to = {images.pop(): i}
        left, right = substitute(left, to), substitute(right, to)
    return left, right
