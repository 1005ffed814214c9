"""Inputs for a definition: of every shape and kind of number that it names, as the format holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds.case_result import Case
from symattn.bounds.domain import Domain
from symattn.verification.probing import search
from symattn.verification.subject import Array, Random

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_subject import Definition, Family
    from symattn.verification.engine import Session

_UNSEEN = 3  # cases that no mistake was found by


FAMILIES: dict[str, Family] = {name: search.FAMILIES[name] for name in ("integer", "normal", "sparse", "large")}


def of_sizes(session: Session, rng: Random) -> Iterator[Case]:
    """Every size, each with one family."""
    families = list(_subject(session).families)
    for k, sizes in enumerate(_sizes(session)):
        yield _case(session, "sizes", families[k % len(families)], sizes, rng)


def of_numbers(session: Session, rng: Random) -> Iterator[Case]:
    """Every family at some sizes; with rows without any key, where the domain has them."""
    subject, sizes = _subject(session), _sizes(session)
    for s in sizes[: max(4, len(sizes) // 2)]:
        for family in subject.families:
            case = _case(session, "numbers", family, s, rng)
            yield case
            if session.domain.fully_masked_rows and subject.closing:
                result = subject.closing(dict(case.inputs))
                yield Case("numbers", f"{case.name}, a row without any key", result)


def again(session: Session, rng: Random) -> Iterator[Case]:
    """Yield the same inputs twice with others of the same shape between them, and views."""
    families = list(_subject(session).families)
    for s in _sizes(session)[1:3]:
        one, other = (_case(session, "again", f, s, rng).inputs for f in (families * 2)[:2])
        yield Case("again", "a first call", one)
        yield Case("again", "a second call, other numbers in the same shapes", other, alone=False)
        yield Case("again", "the first call again", one, alone=False)
        yield Case("again", "arrays with gaps in memory", one, "strided")
        yield Case("again", "arrays that are transposed views", one, "transposed")


def at_random(session: Session, rng: Random) -> Case:
    """One more case, of any family, and of the sizes of one of the first two thirds, which are to be the smaller."""
    subject = _subject(session)
    sizes = subject.shapes[rng.integers(max(1, 2 * len(subject.shapes) // 3))]
    family = list(subject.families)[rng.integers(len(subject.families))]
    return _case(session, "random", family, within(sizes, subject, session.domain), rng)


def unseen(session: Session, rng: Random) -> Iterator[Case]:
    """Inputs of some of the sizes that no case had, as far as the domain leaves room: each one larger."""
    subject = _subject(session)
    families = [f for f in ("normal", "integer") if f in subject.families] or list(subject.families)
    for k, sizes in enumerate(subject.shapes[: 2 * _UNSEEN : 2]):
        larger = {x: n if x in subject.kept else n + 2 for x, n in sizes.items()}
        case = _case(session, "fresh", families[k % len(families)], within(larger, subject, session.domain), rng)
        if subject.admitted(case.inputs, session.domain):
            yield case


def sized(session: Session, wanted: Mapping[str, int], rng: Random) -> dict[str, Array] | None:
    """Inputs of a small case with the sizes that are wanted, told as a domain names them."""
    subject = _subject(session)
    result = dict(subject.shapes[0])
    for x in set(result) - subject.kept:
        name, factor = subject.meaning(x)
        result[x] = max(1, wanted.get(name, factor * result[x]) // factor)
    family = next(f for f in ("normal", *subject.families) if f in subject.families)
    inputs = _case(session, "sizes", family, within(result, subject, session.domain), rng).inputs
    return dict(inputs) if subject.admitted(inputs, session.domain) else None


def _subject(session: Session) -> Definition:
    result: Definition = session.subject  # type: ignore[assignment]
    return result


def _sizes(session: Session) -> list[dict[str, int]]:
    """The sizes that are tried for their shapes, as the domain has them."""
    subject, domain = _subject(session), session.domain
    fitted = [within(s, subject, domain) for s in subject.shapes]
    return [s for s in fitted if domain.admits(subject.named(s))]


def _case(session: Session, group: str, family: str, sizes: Mapping[str, int], rng: Random) -> Case:
    subject, taken = _subject(session), session.runner.convention.inputs
    names = tuple(i.name for i in subject.inputs if i.name in taken)
    return Case(group, f"{family}, {words(sizes)}", draw(subject, names, sizes, family, session.precision, rng))


def draw(
    subject: Definition, names: Sequence[str], sizes: Mapping[str, int], family: str, precision: Precision, rng: Random
) -> dict[str, Array]:
    """Inputs of these sizes, rounded to the format; whole numbers and booleans as they are."""
    numbers = subject.families[family](rng)
    result: dict[str, Array] = {}
    for i in subject.inputs:
        if i.name in names and i.made is None:
            shape = subject.shape(i.name, sizes)
            a = np.asarray(i.entries(shape, rng) if i.entries else numbers(i.name, shape))
            result[i.name] = a if i.entries and a.dtype.kind in "biu" else precision.input.rounded(a)
    result |= {i.name: np.zeros(0) for i in subject.inputs if i.name in names and i.made is not None}
    return subject.filled(result, precision)


def within(sizes: Mapping[str, int], subject: Definition, domain: Domain) -> dict[str, int]:
    """The sizes that the domain promises, as near as can be to these; what was to differ does, if there is room."""
    letters = {subject.meaning(x)[0]: x for x in sizes if x not in subject.kept}
    result = dict(sizes)
    for one, other, lengths in (("n_q", "n_k", domain.tokens), ("d_k", "d_v", domain.widths)):
        pair = [letters[name] for name in (one, other) if name in letters]
        wanted = [sizes[x] * subject.meaning(x)[1] for x in pair]
        near = lengths.both(*wanted) if len(pair) == 2 else tuple(map(lengths.near, wanted))
        for x, length in zip(pair, near, strict=True):
            factor = subject.meaning(x)[1]
            legal = subject.width if subject.meaning(x)[0] == "d_k" else int
            larger, smaller = range(length, lengths.most + 1), range(min(length, lengths.most), 0, -1)
            fitting = (n for n in (*larger, *smaller) if n in lengths and n % factor == 0 and legal(n) == n)
            length = next(fitting, length)
            result[x] = length // factor
    if domain.square and {"n_q", "n_k"} <= letters.keys():
        result[letters["n_q"]] = result[letters["n_k"]]
    if domain.decoding and "n_q" in letters:
        result[letters["n_q"]] = 1
    if (domain.same_width or domain.square_weights) and {"d_k", "d_v"} <= letters.keys():
        result[letters["d_v"]] = result[letters["d_k"]]
    if domain.square_weights and {"d_k", "d_model"} <= letters.keys():
        result[letters["d_model"]] = result.get("h", 1) * result[letters["d_k"]]
    return result


def words(sizes: Mapping[str, int]) -> str:
    """``n = 3, d = 4``."""
    return ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
