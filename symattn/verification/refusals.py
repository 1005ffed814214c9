"""Inputs that a function refuses by a ``raise`` or ``assert`` of its own: no fault, but told, and not tried again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from symattn.verification.counterexample import sizes
from symattn.verification.domain import Domain
from symattn.verification.judge import Judged

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_BLOCKS = (2, 4, 8, 16, 32, 64, 128)


def narrowed(session: Session) -> Domain:
    """The domain without what the function refuses, where few promises explain every refusal so far.

    Promises explain them if every refused case breaks one, and no case that was taken does.
    """
    for promises in _promises(session.promised):
        if all(not _kept(promises, r) for r in session.refused) and all(_kept(promises, r) for r in session.records):
            return promises
    return session.domain


def _promises(domain: Domain) -> Iterator[Domain]:
    """Domains with further promises, the fewest first."""
    blocks = [b for b in _BLOCKS if b % domain.multiple_of == 0 and domain.multiple_of < b <= domain.max_tokens]
    for block in (domain.multiple_of, *blocks):
        for width, square in ((True, False), (False, True), (True, True), (False, False)):
            yield replace(
                domain, same_width=width or domain.same_width, square=square or domain.square, multiple_of=block
            )


def _kept(promise: Domain, judged: Judged) -> bool:
    s = sizes(judged)
    if promise.same_width and s["d_k"] != s["d_v"]:
        return False
    if promise.square and s["n_q"] != s["n_k"]:
        return False
    return s["n_q"] % promise.multiple_of == 0 and s["n_k"] % promise.multiple_of == 0


def notes(session: Session) -> Iterator[str]:
    """What was refused, and what became of the domain."""
    if not session.refused:
        return
    smallest = min(session.refused, key=lambda r: r.case.size)
    s = ", ".join(f"{letter} = {n}" for letter, n in sizes(smallest).items())
    yield (
        f"It refuses some inputs itself ({len(session.refused)} calls), such as {s}: {smallest.outcome.error}; "
        f"only what it takes was judged: {session.domain.words}."
    )
