"""The definitions of a fold, and the sizes, arrays and functions that occur in them with their names in Coq."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symattn.document.errors import Refused
from symattn.proof.checker_reading import Record, read
from symattn.proof.checker_rules import FIRST, SECOND
from symattn.proof.coq.printing import CoqReader, typed
from symattn.proof.coq.readable import functions
from symattn.proof.coq.terms import Names, Term, term
from symattn.proof.coq.writing import free_of

Key = tuple[Any, ...]


@dataclass(frozen=True)
class NamedEntry:
    """The name in Coq of what occurs, and its type."""

    name: str
    type: str


@dataclass(frozen=True)
class StatePart:
    """A part of a state: names and sorts of its indices, and what stands there."""

    indices: tuple[str, ...]
    sorts: tuple[int, ...]
    value: Term


@dataclass(frozen=True)
class Side:
    """A definition's parts, and names for all that occurs in them."""

    reader: CoqReader
    parts: tuple[StatePart, ...]
    numbers: tuple[str, ...]
    own: tuple[int, ...]  # arrays and sorts that are not its parameters
    split: int


def side_of(record: Record, parts: Sequence[Record], starts: Mapping[str, str]) -> Side:
    """Return the side of a definition's parts; an index of a sort in ``starts`` is counted from there."""
    names = Names()
    split = names.sort(str(record["sort"]))
    result = []
    for part in parts:
        _, sorts, scope, places = free_of(part, names)
        result.append((places, term(read(part["expression"], sorts), scope, names)))
    reader = CoqReader(names, {names.sorts[sort]: word for sort, word in starts.items()})
    for _, x in result:
        reader.see(x)
    numbers = [n for name in record["numbers"] for n in names.with_name(name)]
    states = [n for key, n in names.arrays.items() if str(key[0]).startswith((FIRST, SECOND))]
    results = tuple(StatePart(reader.scope(places), places, x) for places, x in result)
    return Side(reader, results, tuple(reader.arrays[n] for n in numbers), (*numbers, *states), split)


def over(reader: CoqReader, part: StatePart) -> str:
    """The places of a part of a state."""
    if not part.indices:
        return ""
    bounds = "".join(f"({i} < {reader.sizes[s]})%nat -> " for i, s in zip(part.indices, part.sorts, strict=True))
    return f"forall {' '.join(part.indices)}, {bounds}"


def _kept(side: Side) -> list[tuple[int, str]]:
    return [(k, n) for k, n in side.reader.arrays.items() if k not in side.own]


def parameters(side: Side) -> str:
    """The sizes, arrays and functions of a definition, with their types."""
    sizes = [n for s, n in side.reader.sizes.items() if s != side.split]
    groups = [f"({' '.join(sizes)} : nat)"] if sizes else []
    groups += [f"({n} : {typed(side.reader, k)})" for k, n in _kept(side)]
    return " ".join((*groups, *[f"({own} : {_function(side.reader, f)})" for f, own in functions(side.reader)]))


def _function(reader: CoqReader, function: str) -> str:
    return f"{'R -> ' * reader.takes(reader.names.functions[function]) or 'list R -> '}R"


def called(side: Side) -> str:
    """The parameters by name."""
    sizes = [n for s, n in side.reader.sizes.items() if s != side.split]
    return " ".join((*sizes, *[n for _, n in _kept(side)], *[own for _, own in functions(side.reader)]))


def positive_sizes(side: Side) -> str:
    """State that the sizes are at least 1."""
    return "".join(f" (0 < {n})%nat ->" for s, n in side.reader.sizes.items() if s != side.split)


def held(side: Side) -> str:
    """Names for these facts."""
    return " ".join(f"size'{n}" for s, n in side.reader.sizes.items() if s != side.split)


def listed(reader: CoqReader, aside: Iterable[str] = ()) -> dict[Key, NamedEntry]:
    """Return a reader's names, but for the arrays ``aside`` and entries that belong to one of two tiles."""
    sorts = {n: sort for sort, n in reader.names.sorts.items()}
    out: dict[Key, NamedEntry] = {
        ("size", sort): NamedEntry(reader.sizes[n], "nat") for n, sort in sorts.items() if not _of_one(sort)
    }
    for key, n in reader.names.arrays.items():
        if not _of_one(str(key[0])) and key[0] not in aside:
            places = tuple(sorts[s] for s in reader.names.arities[n])
            out["array", *key[:-1], places] = NamedEntry(reader.arrays[n], typed(reader, n))
    return {**out, **{("function", f): NamedEntry(own, _function(reader, f)) for f, own in functions(reader)}}


def _of_one(word: str) -> bool:
    return word.startswith((FIRST, SECOND))


def beyond(tile: Mapping[Key, NamedEntry], others: Iterable[Mapping[Key, NamedEntry]]) -> dict[Key, NamedEntry]:
    """Return entries that occur in the others and in no tile. Raises Refused for sizes and ambiguous names."""
    every = dict(tile)
    for key, entry in (pair for other in others for pair in other.items()):
        if key[0] == "size" and key not in tile:
            raise Refused(f"coq: the size {key[1]} occurs in no tile of a fold")
        if every.setdefault(key, entry) != entry:
            raise Refused(f"coq: in a fold {key[1]} has two names or types in Coq")
    names = [entry.name for entry in every.values()]
    if twice := [name for name in names if names.count(name) > 1]:
        raise Refused(f"coq: two things in a fold are called {twice[0]} in Coq")
    return {key: entry for key, entry in every.items() if key not in tile}
