"""``symattn.prove`` and ``symattn prove``: theorems are found, decided, and told as a document."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial

from symattn.document.model import Document
from symattn.errors import InputError, named
from symattn.proof.theorem import Theorem
from symattn.sources.statements import by_name, gathered, tried
from symattn.theorems import documents, runner
from symattn.theorems.documents import Decided

_MANY = 8  # theorems; more are shown as a table
Progress = Callable[[int, int, str], None]


def prove(
    *names: str | Theorem,
    explain: bool = False,
    jobs: int = 1,
    cached: bool = True,
    progress: Progress = lambda done, of, name: None,
) -> Document:
    """Prove theorems about attention for all sizes, and refute the false variant of each.

    A name is that of a theorem or topic of the catalogue, a file or module of yours in which theorems are stated, or a
    theorem itself, as the decorator ``symattn.theorem`` makes it. No names are the whole catalogue. ``explain`` adds
    the whole argument, ``jobs`` is a number of processes, and without ``cached`` everything is decided anew.
    Raises InputError for a name that is none of these.

    >>> found = prove("softmax-shift")
    >>> found.holds, found.verdict_word
    (True, 'proved')
    """
    found = decided(names, explain=explain, jobs=jobs, cached=cached, progress=progress)
    return document(found, tuple(map(_word, names)), explain)


def document(found: Sequence[Decided], names: tuple[str, ...], explain: bool, coq: bool = False) -> Document:
    """The theorems that were asked for by these names, each told whole, or as tables where they are many."""
    flags = [flag for flag, given in (("--all", not names), ("--explain", explain), ("--coq", coq)) if given]
    words = shlex.join(["symattn", "prove", *names, *flags])
    title = found[0].theorem.name if len(found) == 1 else "theorems"
    as_table = not explain and (not names or len(found) > _MANY)
    return (documents.table if as_table else documents.document)(found, words, title)


def decided(
    names: Sequence[str | Theorem],
    *,
    explain: bool,
    jobs: int,
    cached: bool,
    progress: Progress = lambda done, of, name: None,
) -> list[Decided]:
    """The theorems with these names, topics or files, and theorems as they are, with what was found of each."""
    words = tuple(named("prove()", name) for name in names if not isinstance(name, Theorem))
    own = {name.name: (name, "prove") for name in names if isinstance(name, Theorem)}
    chosen = {**(gathered(words) if words or not own else {}), **own}
    for theorem, place in chosen.values():
        if place:
            tried(theorem, place)
    theorems = [theorem for theorem, _ in chosen.values()]
    try:
        # Another process cannot be sent a theorem that stands in no file.
        jobs = 1 if own else jobs
        return runner.run(
            theorems, partial(by_name, words), jobs=jobs, explain=explain, cached=cached and not own, progress=progress
        )
    except runner.Broken as broken:
        place = chosen[broken.name][1]
        if not place:
            raise
        raise InputError(f"{place}: a function of {broken.name!r} raises {broken.told}") from broken


def _word(name: str | Theorem) -> str:
    return name if isinstance(name, str) else name.name
