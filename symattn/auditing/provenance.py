"""Where scores and weights come from: a node for each array that is one, from the product of queries and keys on.

Arrays are known by their storage, of which a weak reference is kept: views need no rule, nothing lives longer for being
watched, and a storage that is gone is never taken for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from symattn.auditing.tensors import FORBIDS


@dataclass(frozen=True, eq=False)
class Added:
    """An array that is added to scores with a factor, or forbids them where it is True, with their shape then."""

    array: Any
    shape: tuple[int, ...]
    factor: float = 1.0
    forbids: bool = False

    def rows(self, rows: Sequence[int]) -> Any:
        """Of these queries: a mask (B, r, n_k) where True may attend, or what is added."""
        *front, n_q, n_k = self.shape
        whole = (
            self.array.expand(*self.array.shape[:-2], n_q, n_k) if self.array.ndim > 1 else self.array.expand(n_q, n_k)
        )
        some = whole[..., list(rows), :]
        found = some.expand(*front, len(rows), n_k).reshape(1, -1, len(rows), n_k)
        return ~found if self.forbids else found * self.factor


@dataclass(frozen=True, eq=False)
class Scores:
    """scale · q kᵀ, capped, with what is added, for q (B, n_q, d), k (B, n_k, d)."""

    q: Any
    k: Any
    scale: float = 1.0
    cap: float | None = None
    added: tuple[Added, ...] = ()

    def times(self, factor: float) -> Scores:
        """Multiplied by a number: a cap c tanh(S/c) by m has the cap m c, of scores m S."""
        cap = None if self.cap is None else self.cap * factor
        more = tuple(replace(a, factor=a.factor * (1.0 if a.forbids else factor)) for a in self.added)
        return replace(self, scale=self.scale * factor, cap=cap, added=more)

    def plus(self, array: Any, shape: Sequence[int], factor: float = 1.0) -> Scores:
        """With an array added."""
        return replace(self, added=(*self.added, Added(array, tuple(shape), factor)))

    def without(self, mask: Any, shape: Sequence[int]) -> Scores:
        """Forbidden where a mask is True."""
        return replace(self, added=(*self.added, Added(mask, tuple(shape), forbids=True)))

    def capped(self) -> Scores | None:
        """After tanh; None where something was added before."""
        return None if self.added or self.cap is not None else replace(self, cap=1.0)


@dataclass(eq=False)
class Softmax:
    """One softmax: whether its result has met values, and by which layer it was made."""

    layer: Any
    read: bool
    met: bool = False


@dataclass(frozen=True, eq=False)
class Weights:
    """The softmax of scores, or of something that is not known (None)."""

    scores: Scores | None
    softmax: Softmax
    reason: str = ""


Node = Scores | Weights


@dataclass
class Known:
    """The nodes of storages that are alive."""

    _nodes: dict[int, tuple[Any, int, Node]] = field(default_factory=dict)

    def get(self, tensor: Any) -> Node | None:
        """The node of an array; None for a part of one, or for another order of its axes."""
        if not hasattr(tensor, "untyped_storage"):
            return None
        found = self._nodes.get(tensor.untyped_storage()._cdata)
        if found is None or found[0].expired() or found[1] != tensor.numel() or not tensor.is_contiguous():
            return None
        return found[2]

    def put(self, tensor: Any, node: Node | None) -> None:
        """Say what an array is, from now on; None: nothing that is known."""
        from torch.multiprocessing.reductions import StorageWeakRef

        key = tensor.untyped_storage()._cdata
        self._nodes.pop(key, None)
        if node is not None:
            self._nodes = {k: n for k, n in self._nodes.items() if not n[0].expired()}
            self._nodes[key] = StorageWeakRef(tensor.untyped_storage()), tensor.numel(), node


def number(x: Any) -> float | None:
    """A number, or an array of one element, as a float."""
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return float(x)
    return float(x) if hasattr(x, "numel") and x.numel() == 1 and x.dtype.is_floating_point else None


def forbids(x: Any) -> bool:
    """Whether what is filled in forbids a score."""
    found = number(x)
    return found is not None and found <= FORBIDS
