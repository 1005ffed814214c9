"""Packed documents of which some have no tokens: ``cu_seqlens`` with equal neighbours, labels that skip a number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.case_result import Case
from symattn.bounds.inputs import Array, Maker, Sizes
from symattn.document.text import equal_sizes
from symattn.verification.probing.probes import small

if TYPE_CHECKING:
    from symattn.verification.engine import Session

GROUP = "empty documents"
_SIZES = (Sizes(7, 9, 4, 3), Sizes(40, 150, 8, 5))
_TRIES = 4  # draws of labels, of which one has several documents


def cases(maker: Maker, rng: np.random.Generator) -> Iterator[Case]:
    """Yield inputs in which empty documents lie between all others, and before and after these."""
    # Several draws, since one document alone leaves no place between two.
    for wanted in _SIZES:
        sizes = maker.fitted(wanted)
        draws = (maker.make(sizes, small(rng), rng) for _ in range(_TRIES))
        several = (inputs for inputs in draws if _count_documents(inputs) > 1)
        for inputs in (next(several, None),):
            if inputs is not None:
                yield Case(
                    GROUP,
                    f"documents of no tokens, {sizes.n_q} × {sizes.n_k}",
                    _with_empty_ones(inputs),
                )


def _count_documents(inputs: dict[str, Array]) -> int:
    return max(
        (len(np.unique(a)) for name, a in inputs.items() if name.startswith("doc")), default=0
    )


def _with_empty_ones(inputs: dict[str, Array]) -> dict[str, Array]:
    """Return the inputs with even labels alone; see ``layouts.numbers_of_documents``."""
    return {name: 2 * a if name.startswith("doc") else a for name, a in inputs.items()}


def take(session: Session, case: Case) -> None:
    """Try a case: wrong numbers are a fault; an error alone is none, since code may have no maximum of no scores."""
    if session.over or not session.admits(case):
        return
    judged = session.run_case(case)
    if judged.finding == "raises":
        session.on_empty.append(judged)
    else:
        session.keep(judged)


def reservations(session: Session) -> Iterator[str]:
    """Yield a reservation on errors where a document has no tokens."""
    for judged in session.on_empty[:1]:
        sizes = equal_sizes(session.subject.source.sizes(judged))
        yield f"Documents of no tokens are left out, since they raise an error: {judged.outcome.error} ({sizes})."
