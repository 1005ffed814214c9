"""Planes that are computed when they are needed, and once: scores are not needed mod p, values not mod q.

A plane is a value: nothing that was computed from it sees a later change. So assignment does not change a plane but
puts another in its place (``overwritten``); only where nobody else could still read the old one is its memory used
again. Arrays that are views of one another share one holder of planes (see ``modular``) and see each other's changes
because they read through it.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

import numpy as np

_DEPTH = 64  # of planes that wait for one another; deeper chains are computed, to spare Python's stack


class Plane:
    """An array of residues that may not have been computed yet."""

    __slots__ = ("__weakref__", "_compute", "_depth", "_owned", "_readers", "_value")

    def __init__(self, value: np.ndarray | None = None, owned: bool = True) -> None:
        self._value = value
        self._compute: tuple[Callable[..., np.ndarray], tuple[Plane, ...]] | None = None
        self._owned = owned  # whether the memory is this plane's alone
        self._readers: list[ref[Plane]] = []
        self._depth = 0

    @classmethod
    def after(cls, function: Callable[..., np.ndarray], *sources: Plane, owned: bool = True) -> Plane:
        """``function`` of the values of ``sources``; not ``owned`` if it may hand back their memory."""
        plane = cls(None, owned)
        plane._compute = (function, sources)
        plane._depth = 1 + max((s._depth for s in sources), default=0)
        for source in sources:
            source._read_by(plane)
        if plane._depth > _DEPTH:
            _ = plane.value
        return plane

    @property
    def value(self) -> np.ndarray:
        """The array. It must not be changed."""
        if self._compute is not None:
            function, sources = self._compute
            self._value = function(*[s.value for s in sources])
            self._compute, self._depth = None, 0
        assert self._value is not None
        return self._value

    def _read_by(self, plane: Plane) -> None:
        if len(self._readers) > 32:
            self._readers = [r for r in self._readers if r() is not None]
        self._readers.append(ref(plane))

    def _still_read(self) -> bool:
        """Whether some other plane waits for this one, or may show its memory."""
        readers = [r() for r in self._readers]
        return any(r is not None and (r._compute is not None or not r._owned) for r in readers)

    def overwritten(self, write: Callable[[np.ndarray], None]) -> Plane:
        """The plane after ``write``, which changes the array it is given, on this one's memory if nobody reads it."""
        value = self.value
        if self._owned and value.flags.c_contiguous and not self._still_read():
            write(value)
            return self
        copy = Plane(value.copy(order="C"))
        write(copy.value)
        return copy

    def alias(self) -> Plane:
        """Another plane of the same values, for another array: neither is changed with the other."""
        return Plane.after(lambda value: value, self, owned=False)
