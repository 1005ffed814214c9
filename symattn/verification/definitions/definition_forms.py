"""Ways of computing a definition, and its mistakes as they are stored: built when first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

from symattn.bounds.mistake import Compute, Mistake


@dataclass(frozen=True)
class DefinitionForm:
    """A way of computing, described in words."""

    words: str
    run: Compute

    def __call__(self, **keywords: Any) -> Any:
        return self.run(**keywords)


class Later(Sequence[Mistake]):
    """Mistakes that are built when first needed: of many definitions, only the ways are used."""

    def __init__(self, make: Callable[[], Iterable[Mistake]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> tuple[Mistake, ...]:
        return tuple(self._make())

    @overload
    def __getitem__(self, place: int) -> Mistake: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Mistake, ...]: ...

    def __getitem__(self, place: int | slice) -> Mistake | tuple[Mistake, ...]:
        return self._made[place]

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Mistake]:
        return iter(self._made)
