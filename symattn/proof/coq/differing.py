"""Two sides that are not always equal, as a statement for readers: there are sizes and arrays for which they differ.

Opaque functions are quantified first, so the sides differ whatever these are. The arrays are found by trial, with one
number for all entries of an array. Coq shows that both sides differ there (``differs`` in ``Reading.v``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from symattn.document.errors import Refused
from symattn.proof.checker_reading import Record
from symattn.proof.coq.printing import CoqReader, typed_arrays, typed_functions
from symattn.proof.coq.readable import Readable, Stated, circle, divisors, reading
from symattn.proof.coq.terms import Term, circles
from symattn.proof.coq.writing import Lemma, free_of, lemma_of, written_term

_TRIED = (1, 0)
_MANY = 12  # arrays
_WORDS = ("There are sizes and arrays for which both sides differ, whatever the functions are",)


def of_differing(name: str, record: Record) -> Lemma:
    """Return the lemma that two sides differ somewhere. Raises Refused if no such arrays are found."""
    names, sorts, scope, free = free_of(record)
    left, right = (written_term(record[side], sorts, scope, names) for side in ("left", "right"))
    if any(any(images) for _, *images, _ in names.arrays):  # else an array of its own, which it is not
        raise Refused("coq: sides that differ under a permutation")
    stated = Stated(name, names, free, "<>", left, right, circles=tuple(circles(record["rules"], names)))
    reader = reading(stated)
    places = reader.scope(free)
    if any(True for x in (left, right) for _ in divisors(reader, x, places, {}, frozenset())):
        raise Refused("coq: sides that differ, with a divisor that is not positive by its form")
    result = {str(sort): int(size) for sort, size in record["sizes"].items()}
    if not names.sorts.keys() <= result.keys():
        raise Refused("coq: sides that differ at sizes that are not told")
    sizes = {n: result[sort] for sort, n in names.sorts.items()}
    statement = _statement(reader, stated, places)
    proof = _proof(reader, _found(stated, sizes), sizes)
    return lemma_of(stated, Readable(statement, proof, _WORDS))


def _statement(reader: CoqReader, stated: Stated, places: Sequence[str]) -> str:
    names = typed_functions(reader)
    some = typed_arrays(reader, reader.sizes.values(), reader.arrays)
    where = [f"(0 < {own})%nat" for own in reader.sizes.values()] + [circle(reader, c, s) for c, s in stated.circles]
    known = "".join(f"{x} /\\ " for x in where)
    bounds = [f"({i} < {reader.sizes[s]})%nat /\\ " for i, s in zip(places, stated.free, strict=True)]
    at = f"exists {' '.join(places)} : nat, {''.join(bounds)}" if places else ""
    every = f"forall {' '.join(names)}, " if names else ""
    there = f"exists {' '.join(some)}," if some else ""
    lines = [
        f"Theorem {stated.name} : {every}{there}".rstrip(),
        *([f"  {known}{at}".rstrip()] if known or at else []),
        f"  {reader.text(stated.left, tuple(places), 1)}",
        f"  <> {reader.text(stated.right, tuple(places), 1)}.",
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Place:
    """A place where both sides differ: the number for all entries of each array, and the indices."""

    entries: Mapping[int, int]
    at: tuple[int, ...]


def _proof(reader: CoqReader, result: _Place, sizes: Mapping[int, int]) -> str:
    chosen = [f"{sizes[n]}%nat" for n in reader.sizes]
    for n in reader.arrays:
        seats = "_ " * len(reader.names.arities[n])
        chosen.append(f"(fun {seats}=> {result.entries[n]})" if seats else str(result.entries[n]))
    places = "; ".join(f"exists {i}%nat" for i in result.at) or "idtac"
    return f"Proof. intros. {' '.join(f'exists {x}.' for x in chosen)} differs ltac:({places}). Qed."


def _found(stated: Stated, sizes: Mapping[int, int]) -> _Place:
    """Return the first place where both sides differ in numbers. Raises Refused if there is none."""
    arrays = list(stated.names.arrays.values())
    if len(arrays) > _MANY:
        raise Refused("coq: sides that differ, of many arrays")
    for tried in product(_TRIED, repeat=len(arrays)):
        entries = dict(zip(arrays, tried, strict=True))
        if any(entries[c] ** 2 + entries[s] ** 2 != 1 for c, s in stated.circles):
            continue
        for at in product(*[range(sizes[s]) for s in stated.free]):
            env = tuple(zip(stated.free, at, strict=True))
            try:
                one, other = (_value(x, env, sizes, entries) for x in stated.sides)
            except ArithmeticError:
                continue
            if not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6):
                return _Place(entries, at)
    raise Refused("coq: sides that differ, but not where all entries of an array are 0 or 1")


_Env = tuple[tuple[int, int], ...]
_IS: Mapping[str, Callable[[int, int], bool]] = {
    "Is Equal": int.__eq__,
    "Is AtMost": int.__le__,
    "Is Below": int.__lt__,
}


def _value(x: Term, env: _Env, sizes: Mapping[int, int], entries: Mapping[int, int]) -> float:
    """Return the approximate value of a term, with an arbitrary function of the arguments for each opaque function."""
    if x.head == "Num":
        return x.numbers[0]
    if x.head == "Size":
        return sizes[x.numbers[0]]
    if x.head == "Letter":
        return entries[x.numbers[0]]
    if x.head in _IS:
        (s, i), (t, j) = (env[n] for n in x.numbers)
        return float(s == t and _IS[x.head](i, j))
    if x.head == "Fun":
        result = [round(v, 9) for a in x.below for v in _values(a, env, sizes, entries)]
        return Random(f"{x.numbers[0]} {result}").uniform(0.5, 2)
    if x.head == "Sum":
        return math.fsum(_values(x, env, sizes, entries))
    a, *others = (_value(y, env, sizes, entries) for y in x.below)
    if not others:
        return math.exp(a)
    (b,) = others
    return a + b if x.head == "Add" else a * b if x.head == "Mul" else a / b


def _values(x: Term, env: _Env, sizes: Mapping[int, int], entries: Mapping[int, int]) -> Iterator[float]:
    """Yield the value of a term, or of the body of one that binds an index, at every index."""
    if x.binds():
        for i in range(sizes[x.numbers[0]]):
            yield _value(x.below[0], ((x.numbers[0], i), *env), sizes, entries)
    else:
        yield _value(x.below[0] if x.head == "One" else x, env, sizes, entries)
