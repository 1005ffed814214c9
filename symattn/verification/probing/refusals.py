"""Inputs that a function refuses by a ``raise`` or ``assert`` of its own: no fault, but told, and not tried again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from symattn.verification.counterexample import sizes
from symattn.verification.domain import Domain
from symattn.verification.judge import Judged

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_BLOCKS = (2, 4, 8, 16, 32, 64, 128)
_MOST = (128, 96, 64, 32, 16)  # the widest heads that kernels were written for


def narrowed(session: Session) -> Domain:
    """The domain without what the function refuses, where few promises explain every refusal so far.

    Promises explain them if every refused case breaks one, and no case that was taken does.
    """
    for promises in _promises(session.promised):
        if all(not _kept(promises, r) for r in session.refused) and all(_kept(promises, r) for r in session.records):
            return promises
    return session.domain


def _promises(domain: Domain) -> Iterator[Domain]:
    """Domains with further promises, the fewest and then the least first."""
    tokens, widths = _multiples(domain.multiple_of), _multiples(domain.width_multiple_of)
    most = [domain.max_width, *(b for b in _MOST if b < domain.max_width)]
    every = [
        replace(
            domain, same_width=w or domain.same_width, square=q or domain.square, multiple_of=t, width_multiple_of=d,
            max_width=m,
        )
        for t, d, m, w, q in product(tokens, widths, most, (False, True), (False, True))
        if t <= domain.max_tokens and d <= m
    ]  # fmt: skip
    yield from sorted(every, key=lambda promised: _further(domain, promised))


def _multiples(of: int) -> list[int]:
    return [of, *(b for b in _BLOCKS if b % of == 0 and b > of)]


def _further(domain: Domain, promised: Domain) -> tuple[int, int, int]:
    """How many promises more, how narrow, and how large their numbers."""
    names = ("same_width", "square", "multiple_of", "width_multiple_of", "max_width")
    more = sum(getattr(domain, name) != getattr(promised, name) for name in names)
    return more, -promised.max_width, promised.multiple_of + promised.width_multiple_of


def _kept(promise: Domain, judged: Judged) -> bool:
    s = sizes(judged)
    if max(s["d_k"], s["d_v"]) > promise.max_width:
        return False
    if promise.same_width and s["d_k"] != s["d_v"]:
        return False
    if promise.square and s["n_q"] != s["n_k"]:
        return False
    tokens = all(s[n] % promise.multiple_of == 0 for n in ("n_q", "n_k"))
    return tokens and all(s[d] % promise.width_multiple_of == 0 for d in ("d_k", "d_v"))


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
