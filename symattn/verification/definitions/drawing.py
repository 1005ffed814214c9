"""Inputs for a definition: of every shape and kind of number that it names, as the format holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from symattn.arrays.precision import Precision
from symattn.verification.definitions.subject import Array, Family, Numbers, Random, Subject
from symattn.verification.domain import Domain
from symattn.verification.judge import Case
from symattn.verification.target import APART, Memory


def integers(rng: Random) -> Numbers:
    """Whole numbers from −3 to 3: most sums of few of them are exact."""
    return lambda name, shape: rng.integers(-3, 4, shape)


def normal(rng: Random) -> Numbers:
    """N(0, 1)."""
    return lambda name, shape: rng.standard_normal(shape)


def sparse(rng: Random) -> Numbers:
    """Mostly zeros."""
    return lambda name, shape: rng.integers(-3, 4, shape) * (rng.random(shape) < 0.3)


def large(rng: Random) -> Numbers:
    """N(0, 4²)."""
    return lambda name, shape: 4 * rng.standard_normal(shape)


FAMILIES: Mapping[str, Family] = {"integer": integers, "normal": normal, "sparse": sparse, "large": large}


def cases(subject: Subject, names: Sequence[str], precision: Precision, domain: Domain, rng: Random) -> Iterator[Case]:
    """Every size, every family at some sizes, and calls again in other kinds of memory."""
    sizes = [s for s in (within(s, subject, domain) for s in subject.sizes) if domain.admits(subject.named(s))]
    families = list(subject.families)
    for k, s in enumerate(sizes):
        family = families[k % len(families)]
        yield Case("sizes", f"{family}, {words(s)}", draw(subject, names, s, family, precision, rng))
    for s in sizes[1:3]:
        yield from _again(subject, names, s, precision, domain, rng)
    for s in sizes[: max(4, len(sizes) // 2)]:
        for family in families:
            made = draw(subject, names, s, family, precision, rng)
            yield Case("numbers", f"{family}, {words(s)}", made)
            if domain.fully_masked_rows and subject.closing:
                yield Case("numbers", f"{family}, {words(s)}, a row without any key", subject.closing(made))


def _again(
    subject: Subject, names: Sequence[str], sizes: Mapping[str, int], precision: Precision, domain: Domain, rng: Random
) -> Iterator[Case]:
    one, other = (draw(subject, names, sizes, f, precision, rng) for f in list(subject.families)[:2])
    told: list[tuple[str, dict[str, Array], Memory]] = [
        ("a first call", one, "contiguous"),
        ("a second call, other numbers in the same shapes", other, "contiguous"),
        ("the first call again", one, "contiguous"),
        ("arrays with gaps in memory", one, "strided"),
        ("arrays that are transposed views", one, "transposed"),
    ]
    for title, inputs, memory in told:
        if memory not in APART or not domain.contiguous:
            yield Case("again", title, inputs, memory)


def at_random(subject: Subject, names: Sequence[str], precision: Precision, domain: Domain, rng: Random) -> Case:
    """One more case, of any family, and of the sizes of one of the first two thirds, which are to be the smaller."""
    sizes = subject.sizes[rng.integers(max(1, 2 * len(subject.sizes) // 3))]
    family = list(subject.families)[rng.integers(len(subject.families))]
    fitted = within(sizes, subject, domain)
    return Case("random", f"{family}, {words(fitted)}", draw(subject, names, fitted, family, precision, rng))


def draw(
    subject: Subject, names: Sequence[str], sizes: Mapping[str, int], family: str, precision: Precision, rng: Random
) -> dict[str, Array]:
    """Inputs of these sizes, rounded to the format; whole numbers and booleans as they are."""
    numbers = subject.families[family](rng)
    made: dict[str, Array] = {}
    for i in subject.inputs:
        if i.name in names and i.made is None:
            shape = subject.shape(i.name, sizes)
            a = np.asarray(i.entries(shape, rng) if i.entries else numbers(i.name, shape))
            made[i.name] = a if i.entries and a.dtype.kind in "biu" else precision.input.rounded(a)
    made |= {i.name: np.zeros(0) for i in subject.inputs if i.name in names and i.made is not None}
    return subject.completed(made, precision)


def within(sizes: Mapping[str, int], subject: Subject, domain: Domain) -> dict[str, int]:
    """The sizes that the domain promises, as near as can be to these; what was to differ does, if there is room."""
    letters = {subject.meaning(x)[0]: x for x in sizes if x not in subject.kept}
    found = dict(sizes)
    for one, other, lengths in (("n_q", "n_k", domain.tokens), ("d_k", "d_v", domain.widths)):
        pair = [letters[name] for name in (one, other) if name in letters]
        wanted = [sizes[x] * subject.meaning(x)[1] for x in pair]
        near = lengths.both(*wanted) if len(pair) == 2 else tuple(map(lengths.near, wanted))
        for x, length in zip(pair, near, strict=True):
            factor = subject.meaning(x)[1]
            while length % factor and (more := lengths.up(length + 1)):
                length = more
            found[x] = length // factor
    if domain.square and {"n_q", "n_k"} <= letters.keys():
        found[letters["n_q"]] = found[letters["n_k"]]
    if domain.decoding and "n_q" in letters:
        found[letters["n_q"]] = 1
    if (domain.same_width or domain.square_weights) and {"d_k", "d_v"} <= letters.keys():
        found[letters["d_v"]] = found[letters["d_k"]]
    if domain.square_weights and {"d_k", "d_model"} <= letters.keys():
        found[letters["d_model"]] = found.get("h", 1) * found[letters["d_k"]]
    return found


def words(sizes: Mapping[str, int]) -> str:
    """``n = 3, d = 4``."""
    return ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
