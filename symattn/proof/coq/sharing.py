"""Name terms that occur often in a long statement: let s := fun i j => … in.

The smallest parts are named first, so that scores, maxima, exponentials and their sums are each written once. Coq
substitutes their definitions before anything is proved, so this module need not be trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from symattn.proof.coq.printing import CoqReader
from symattn.proof.coq.steps import in_order, order_of
from symattn.proof.coq.terms import Term, number

_LONG = 160  # characters of a statement
_WORTH = 20  # characters of a part
_MANY = 8  # parts
_NAMES = ("s", "t", "e", "z", "w", "y", "p", "f", "g", "h", "r", "o", "x", "m", "n", "q")
_UNNAMED = ("Letter", "Num", "Size", "One", "Over")
_LESS = number(-1)
_Key = tuple[tuple[int, ...], Term]


@dataclass(frozen=True)
class Shared:
    """The definitions of names for parts, the sides with these names, and a reader that knows them."""

    reader: CoqReader
    lets: tuple[str, ...]
    sides: tuple[Term, ...]


def shared(reader: CoqReader, free: Sequence[int], sides: Sequence[Term]) -> Shared:
    """Return the sides, with names for repeated parts if the sides are long."""
    scope = reader.scope(free)
    result = Shared(_copied(reader), (), tuple(sides))
    if sum(len(reader.text(x, scope)) for x in sides) < _LONG:
        return result
    while len(result.lets) < _MANY and (key := _smallest(result, free)):
        result = _named(result, free, key)
    return result


def _copied(reader: CoqReader) -> CoqReader:
    names = replace(reader.names, arities=dict(reader.names.arities))
    own = CoqReader(names, reader.starts, counts=reader.counts)
    own.sizes, own.arrays, own.functions = dict(reader.sizes), dict(reader.arrays), dict(reader.functions)
    own.used = set(reader.used)
    return own


def _smallest(named_so_far: Shared, free: Sequence[int]) -> _Key | None:
    """Return the shortest part that is worth a name and occurs more often than the parts that contain it."""
    result = [each for x in named_so_far.sides for each in _parts(x, tuple(free), None)]
    times = Counter(key for key, _ in result)
    within = {(key, whole) for key, whole in result if whole is not None and times[whole] == times[key]}
    always = {key for key, _ in within}
    reader = named_so_far.reader
    several = [key for key, n in times.items() if n > 1 and key not in always]
    lengths = {(sorts, x): len(reader.text(x, reader.scope(sorts))) for sorts, x in several}
    worth = [key for key, length in lengths.items() if length >= _WORTH]
    return min(worth, key=lambda key: (lengths[key], str(key)), default=None)


def _parts(x: Term, sorts: tuple[int, ...], whole: _Key | None) -> Iterator[tuple[_Key, _Key | None]]:
    """Yield every part that could have a name, with the part that contains it."""
    if x.head not in _UNNAMED and not x.head.startswith("Is") and x.below[:1] != (_LESS,):
        key = in_order(x, sorts, turns=False)
        yield key, whole
        whole = key
    for y in x.below:
        yield from _parts(y, (x.numbers[0], *sorts) if x.binds() else sorts, whole)


def _named(named_so_far: Shared, free: Sequence[int], key: _Key) -> Shared:
    reader = _copied(named_so_far.reader)
    own = next(w for w in (*_NAMES, *[f"part{n}" for n in range(_MANY)]) if w not in reader.used)
    sorts, x = key
    order = next(o for side in named_so_far.sides for o in _orders(side, tuple(free), len(free), key))
    array = 1 + max((*reader.arrays, *reader.names.arities), default=0)
    indices = reader.scope(sorts)
    named = dict(zip(order, indices, strict=True))
    body = reader.text(x, tuple(named[n] for n in range(len(order))))
    over = f"fun {' '.join(indices)} => " if indices else ""
    line = f"let {own} := {over}{body} in"
    reader.names.arities[array], reader.arrays[array] = tuple(sorts[n] for n in order), own
    reader.used.add(own)
    sides = tuple(_put(side, tuple(free), key, array, order) for side in named_so_far.sides)
    return Shared(reader, (*named_so_far.lets, line), sides)


def _orders(x: Term, sorts: tuple[int, ...], free: int, key: _Key) -> Iterator[list[int]]:
    """Yield for each occurrence of a part the order of its indices, the outermost first."""
    if x.head not in _UNNAMED and in_order(x, sorts, turns=False) == key:
        bound, at = len(sorts) - free, order_of(x)
        yield sorted(range(len(at)), key=lambda n: at[n] if at[n] >= bound else len(sorts) + bound - at[n])
    for y in x.below:
        yield from _orders(y, (x.numbers[0], *sorts) if x.binds() else sorts, free, key)


def _put(x: Term, sorts: tuple[int, ...], key: _Key, array: int, order: Sequence[int]) -> Term:
    if x.head not in _UNNAMED and in_order(x, sorts, turns=False) == key:
        at = order_of(x)
        return Term("Letter", (array, *[at[n] for n in order]))
    inside = (x.numbers[0], *sorts) if x.binds() else sorts
    return Term(x.head, x.numbers, tuple(_put(y, inside, key, array, order) for y in x.below))
