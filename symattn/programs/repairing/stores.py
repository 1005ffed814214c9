"""The stores of interpreted kernels into the tensor that their function returns: a wrong entry ends a trial at once.

A launch runs one program after another, and most edits leave that program wrong whose entries were wrong before. So it
runs first, and its first wrong entry ends the call. This rests on a call without edits in which one launch stores each
entry at most once, and the function returns the tensor as that launch leaves it. Launches before that of the first
edited kernel are not run again: what they left in the memory of their tensors is put there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np

from symattn.bounds.case_result import shares
from symattn.programs.frameworks import INTERPRETER, import_torch

#: The place of a program in the grid of its launch.
Program = tuple[int, int, int]
#: The first address of a tensor's memory, and the one after the last.
Span = tuple[int, int]


class WrongStore(Exception):
    """Raised where an edited kernel stores a wrong number into what its function returns."""


class SeesStores(Protocol):
    """A listener to the stores of a call; ``spans`` are those of the tensors of the launch, in their order."""

    def launch(self, kernel: str, tensors: list[Any], run: Callable[[], Any]) -> Any: ...
    def stored(self, addresses: np.ndarray, values: np.ndarray, spans: list[Span]) -> None: ...
    def changed(self) -> None: ...


@dataclass(frozen=True)
class _Store:
    launch: int
    program: Program
    addresses: np.ndarray
    values: np.ndarray
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class _Launch:
    """A launch: the kernel, and what the memory of its tensors holds afterwards."""

    kernel: str
    memory: tuple[Any, ...]


@dataclass
class RecordedStores:
    """The stores of a call, and its launches; ``is_plain`` unless other operations change memory."""

    is_plain: bool = True
    stores: list[_Store] = field(default_factory=list)
    launches: list[_Launch] = field(default_factory=list)
    _now: int = 0  # the number of the launch that runs, from 1

    def launch(self, kernel: str, tensors: list[Any], run: Callable[[], Any]) -> Any:
        """Run a launch, and record what it leaves."""
        self._now += 1
        result = run()
        memory = tuple(x.untyped_storage().clone() for x in tensors)
        self.launches.append(_Launch(kernel, memory))
        return result

    def stored(self, addresses: np.ndarray, values: np.ndarray, spans: list[Span]) -> None:
        """Record a store."""
        program = sys.modules[INTERPRETER].interpreter_builder.grid_idx
        self.stores.append(_Store(self._now, program, addresses, values, tuple(spans)))

    def changed(self) -> None:
        """Note a change of memory that is no store."""
        self.is_plain = False


@dataclass
class ExpectedStores:
    """The right entries of a tensor, flat in the order of its memory: NaN where nothing is judged."""

    storing: int  # the number of the launch that stores them, from 1; 0 if none is to be judged
    tensor: int  # the number of the tensor among those of the launch
    near: np.ndarray
    allowed: np.ndarray
    width: int  # of an entry, in bytes
    launches: list[_Launch]  # those of the call without edits
    first: Program = (0, 0, 0)  # the program that runs first
    replayed: int = 0  # so many launches are not run again
    _now: int = 0  # the number of the launch that runs

    def of(self, edited: Container[str]) -> ExpectedStores:
        """Return what is expected of a call in which these kernels are edited, or helpers of theirs."""
        names = [launch.kernel for launch in self.launches]
        # If none is, a helper may reach a kernel as its argument: all launches are run then.
        first = next((k for k, name in enumerate(names) if name in edited), 0)
        return replace(self, replayed=first, _now=0)

    def launch(self, kernel: str, tensors: list[Any], run: Callable[[], Any]) -> Any:
        """Run a launch, or put into the memory of its tensors what it leaves there."""
        self._now += 1
        if self._now > self.replayed:
            return run()
        for x, memory in zip(tensors, self.launches[self._now - 1].memory, strict=True):
            x.untyped_storage().copy_(memory)
        return None

    def stored(self, addresses: np.ndarray, values: np.ndarray, spans: list[Span]) -> None:
        """Raise ``WrongStore`` if a number is stored that must not be returned."""
        if self._now == self.storing and self.count_wrong(addresses, values, spans):
            raise WrongStore("an edited kernel stores a wrong entry")

    def changed(self) -> None:
        """Ignore it: other operations lead to a store or change what is compared at the end."""

    def count_wrong(self, addresses: np.ndarray, values: np.ndarray, spans: Any) -> int:
        """Return how many of the entries of a store are wrong; 0 if it is into another tensor."""
        if self.tensor >= len(spans):
            return 0
        start, end = spans[self.tensor]
        inside = (start <= addresses) & (addresses < end)
        places = (addresses[inside] - start) // self.width
        if not places.size or places.max() >= self.near.size:
            return 0
        near = self.near[places]
        numbers = values[inside].astype(np.float64)
        ratios, _ = shares(numbers, near, 0.0, self.allowed[places])
        return int(np.count_nonzero(~((ratios <= 1) | np.isnan(near))))

    @contextmanager
    def runs_first(self) -> Iterator[None]:
        """Exchange the program that runs first with the first one of the grid, in the launch that stores."""
        builder = sys.modules[INTERPRETER].interpreter_builder
        own: Callable[..., None] = builder.set_grid_idx
        exchanged: dict[Program, Program] = {self.first: (0, 0, 0), (0, 0, 0): self.first}

        def place(x: int, y: int, z: int) -> None:
            program = x, y, z
            # An edited length of a block may give a grid without the program.
            is_within = all(i < n for i, n in zip(self.first, builder.grid_dim, strict=True))
            is_exchanged = self._now == self.storing and is_within
            own(*(exchanged.get(program, program) if is_exchanged else program))

        with patch.object(builder, "set_grid_idx", place):
            yield


def expected_stores(
    recorded: RecordedStores,
    tensor: Any,
    places_of: Callable[[np.ndarray], np.ndarray],
    near: np.ndarray,
    allowed: np.ndarray,
) -> ExpectedStores:
    """Return the right entries of the ``tensor`` that a recorded call has returned, if stores show them.

    ``places_of`` gives an array of the tensor's shape the axes of the output, whose right entries are ``near``.
    """
    none = np.zeros(0)
    unknown = ExpectedStores(0, 0, none, none, 1, recorded.launches)
    torch = import_torch()
    if not recorded.is_plain or not isinstance(tensor, torch.Tensor):
        return unknown
    storage, width = tensor.untyped_storage(), tensor.element_size()
    span = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    into = [s for s in recorded.stores if span in s.spans and _is_within(s.addresses, span)]
    addresses = np.concatenate([s.addresses for s in into]) if into else none
    is_once = len(np.unique(addresses)) == len(addresses)
    # One store may reach two tensors.
    is_inside = bool(np.all((span[0] <= addresses) & (addresses + width <= span[1])))
    is_float = tensor.is_floating_point() and all(s.values.dtype.kind == "f" for s in into)
    if (
        not into
        or not is_once
        or not is_inside
        or not is_float
        or len({s.launch for s in into}) > 1
    ):
        return unknown
    count = storage.nbytes() // width
    entries = tensor.new_empty(0).set_(storage, 0, (count,), (1,)).double().numpy()
    # Other operations may have changed what was stored, such as a division of the whole tensor.
    stored = np.concatenate([s.values.astype(np.float64) for s in into])
    if not np.array_equal(entries[(addresses - span[0]) // width], stored, equal_nan=True):
        return unknown
    numbered = torch.arange(count, dtype=torch.float64)
    numbered = numbered.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    places = places_of(numbered.numpy())
    if places.shape != near.shape:
        return unknown
    flat_near, flat_allowed = np.full(count, np.nan), np.full(count, np.nan)
    for array, entries in ((flat_near, near), (flat_allowed, allowed)):
        array[places.astype(np.int64)] = entries
    launch, number = into[0].launch, into[0].spans.index(span)
    result = ExpectedStores(launch, number, flat_near, flat_allowed, width, recorded.launches)
    wrong: Counter[Program] = Counter()
    for s in into:
        wrong[s.program] += result.count_wrong(s.addresses, s.values, s.spans)
    return replace(result, first=wrong.most_common(1)[0][0])


def _is_within(addresses: np.ndarray, span: Span) -> bool:
    return bool(addresses.size and span[0] <= addresses[0] < span[1])
