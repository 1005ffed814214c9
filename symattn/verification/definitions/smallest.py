"""From inputs of a definition that show a fault to the smallest ones that still do, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.errors import SymattnError
from symattn.verification.definitions.judging import Judged
from symattn.verification.definitions.subject import Inputs, Subject, known
from symattn.verification.domain import Domain
from symattn.verification.effort import Effort
from symattn.verification.reduce import TRIALS, Group, shrink, together
from symattn.verification.reference import lifted
from symattn.verification.report import Counterexample

_FEW = 64  # entries up to which an exact value is formed


def reduced(
    subject: Subject,
    inputs: Inputs,
    fails: Callable[[dict[str, np.ndarray]], bool],
    domain: Domain,
    trials: int = TRIALS,
) -> None:
    """Call ``fails`` with smaller and smaller inputs; what it last agreed to is the smallest."""
    effort = Effort(trials)
    sizes = subject.sizes_of(inputs)
    axes = {n: subject.axes(n, sizes)[-np.ndim(a) :] if np.ndim(a) else () for n, a in inputs.items()}
    made = {i.name for i in subject.inputs if i.made is not None}
    state = {n: _apart(np.asarray(a), axes[n], sizes) for n, a in inputs.items() if n not in made}

    def joined(candidate: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {n: _together(candidate[n], axes[n]) if n in candidate else a for n, a in inputs.items()}

    def holds(candidate: dict[str, np.ndarray]) -> bool:
        return effort.affords(candidate) and fails(joined(candidate))

    drawn = {n: of for n, of in axes.items() if n in state}
    shrink(state, lambda now: _groups(subject, drawn, domain), holds)


def _groups(subject: Subject, axes: dict[str, tuple[tuple[str, ...], ...]], domain: Domain) -> list[Group]:
    """The axes that a letter names, over all arrays; those of one length, by promise, together."""
    letters: dict[str, list[tuple[str, int]]] = {}
    for name, of in axes.items():
        flat = [f for axis in of for f in axis]
        for place, letter in enumerate(reversed(flat), 1):
            if letter not in subject.kept and not letter.isdecimal():
                letters.setdefault(letter, []).append((name, -place))
    meant = {subject.meaning(x): pairs for x, pairs in letters.items()}
    factors, heads = dict(meant.keys()), subject.sizes[0].get("h", 1) if "h" in subject.kept else 1
    return together({name: pairs for (name, _), pairs in meant.items()}, domain, heads, factors)


def _apart(a: np.ndarray, axes: tuple[tuple[str, ...], ...], sizes: dict[str, int]) -> np.ndarray:
    """An axis for each factor: 2*f as 2 and f."""
    return a.reshape([known(f, sizes) for axis in axes for f in axis]) if axes else a


def _together(a: np.ndarray, axes: tuple[tuple[str, ...], ...]) -> np.ndarray:
    """Factors side by side again."""
    start, shape = 0, []
    for axis in axes:
        shape.append(int(np.prod(a.shape[start : start + len(axis)])))
        start += len(axis)
    return a.reshape(shape)


def counterexample(subject: Subject, judged: Judged) -> Counterexample:
    """What to show of a case."""
    plain = shown(subject, judged)
    if judged.outcome.error is not None:
        return replace(plain, error=str(judged.outcome.error))
    if not judged.ratios:
        return replace(plain, error=shapes(subject, judged))
    of, at = judged.where
    right, got = judged.expected[of], judged.got[of]
    assert got is not None
    exact = _exact(subject, judged, of, at) if judged.case.size <= _FEW else None
    index = at or (0,)
    values = (float(right.near[at]), float(got[at]), float(right.allowed[at]))
    return replace(plain, index=index, exact=exact, expected=values[0], got=values[1], allowed=values[2])


def shown(subject: Subject, judged: Judged) -> Counterexample:
    """The inputs alone."""
    inputs = {name: np.asarray(a).tolist() for name, a in judged.case.inputs.items()}
    return Counterexample(inputs, sizes=subject.sizes_of(judged.case.inputs))


def shapes(subject: Subject, judged: Judged) -> str:
    """What came in place of what."""
    got = [a.shape if a is not None else "no array" for a in judged.got[: len(subject.outputs)]]
    wanted = [f"{name} {e.entries.shape}" for name, e in zip(subject.outputs, judged.expected, strict=True)]
    return f"{', '.join(map(str, got))} in place of {', '.join(wanted)}"


def _exact(subject: Subject, judged: Judged, of: int, at: tuple[int, ...]) -> Quotient | None:
    """The expected entry in exact numbers; None where they cannot hold it."""
    from symattn.arrays.exact import Exact

    arrays: dict[str, Any] = {n: lifted(np.asarray(a), Exact) for n, a in judged.case.inputs.items()}
    try:
        entry = subject.run(subject.ways[0], arrays)[of].entries[at]
    except (SymattnError, TypeError, AttributeError):
        return None
    return entry if isinstance(entry, Quotient) else None
