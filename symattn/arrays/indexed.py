"""``indexed``: sizes are letters, and an element is an index expression. What is shown here holds for all sizes.

An array is its axes and a function from indices to expressions; nothing is computed until an element is read.
Unsupported code is refused by name: strided slices, gathers other than a declared permutation, assignment, code that
needs a size as a number.
"""

from __future__ import annotations

from symattn.arrays.index.array import Indexed, Permutation, Places, index_variables
from symattn.arrays.index.axes import Axis
from symattn.arrays.index.namespace import IndexedNamespace

__all__ = ["Indexed", "Permutation", "Places", "index_variables"]

Indexed.xp = IndexedNamespace()
Axis.kind = Indexed
