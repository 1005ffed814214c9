"""``Array``: what every kind of array can do, so that one definition runs on all of them.

In signatures ``Array`` is an array of any kind: NumPy's or PyTorch's, exact fractions, residues, balls, index
expressions. The functions of arrays are in the namespace of each kind (``namespace_of``).
Source: Python array API standard, 2024.12, array object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Array(Protocol):
    """An array of any kind: its lengths, which may be letters, its arithmetic, and its entries."""

    @property
    def shape(self) -> Any:
        """The lengths of the axes: integers, or letters for sizes that are left open."""

    @property
    def dtype(self) -> Any:
        """The data type of the entries, from the kind's namespace."""

    @property
    def ndim(self) -> int:
        """The number of axes."""

    @property
    def mT(self) -> Array:
        """The matrices of the last two axes, transposed: (…, m, n) → (…, n, m)."""

    def __array_namespace__(self) -> Functions:
        """Return the functions of this kind of array."""

    def __getitem__(self, key: Any, /) -> Array: ...
    def __neg__(self) -> Array: ...
    def __abs__(self) -> Array: ...
    def __add__(self, other: Any, /) -> Array: ...
    def __radd__(self, other: Any, /) -> Array: ...
    def __sub__(self, other: Any, /) -> Array: ...
    def __rsub__(self, other: Any, /) -> Array: ...
    def __mul__(self, other: Any, /) -> Array: ...
    def __rmul__(self, other: Any, /) -> Array: ...
    def __truediv__(self, other: Any, /) -> Array: ...
    def __rtruediv__(self, other: Any, /) -> Array: ...
    def __pow__(self, other: Any, /) -> Array: ...
    def __matmul__(self, other: Any, /) -> Array: ...
    def __eq__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Array: ...
    def __le__(self, other: Any, /) -> Array: ...
    def __gt__(self, other: Any, /) -> Array: ...
    def __ge__(self, other: Any, /) -> Array: ...


class Functions(Protocol):
    """The namespace of a kind: functions by their names in the standard, which return arrays."""

    inf: Any
    pi: Any
    bool: Any
    int64: Any
    float32: Any
    float64: Any

    def __getattr__(self, name: str, /) -> Callable[..., Array]: ...
