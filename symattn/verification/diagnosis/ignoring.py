"""Inputs that a function ignores, seen in calls: another array in their place changes no bit of any output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.called_target import same_bits
from symattn.bounds.case_result import CaseResult
from symattn.verification.diagnosis.confirming import HELD_OUT_SEED

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_CALLS = 3  # held-out inputs, at each of which a function must ignore an input
# factors of all inputs: outputs that are cut off, or round to one number, may hide an input at one magnitude
_MAGNITUDES = (2.0**-6, 2.0**-3, 2.0**3, 2.0**6)
_STEPS = {"q": "score", "k": "score", "v": "values"}
_NOUNS = {"q": "the queries", "k": "the keys", "v": "the values"}


def ignored(session: Session) -> tuple[str, str]:
    """Return the step and words for inputs that no output depends on though the definition's does; ("", "") if none."""
    names: list[str] | None = None
    # A round of its own, which no search uses.
    rng = np.random.default_rng((session.seed, HELD_OUT_SEED, 0))
    for case in islice(session.subject.source.of_other_sizes(session, (), rng), _CALLS):
        before = session.run_case(case)
        if before.outcome.output is None or session.effort.over:
            return "", ""
        # NaN and infinities hide what went into them
        if not any(part.got is not None and np.isfinite(part.got).any() for part in before.parts):
            return "", ""
        # An input is ignored only if it is at every size.
        free = session.subject.source.free(case.inputs)
        names = [n for n in (free if names is None else names) if _is_ignored(session, before, n)]
        if not names:
            return "", ""
    if not names:
        return "", ""
    nouns = [_NOUNS.get(name, name) for name in names]
    every = len(names) > 2 and set(names) == set(free)
    words = "any input" if every else " or ".join(nouns)
    return _STEPS.get(names[0], session.subject.step), f"the output does not depend on {words}"


def _is_ignored(session: Session, before: CaseResult, name: str) -> bool:
    """Return whether another array changes no bit of the outputs, and the right ones beyond their bound.

    At other magnitudes of all inputs no bit may change either.
    """
    inputs = dict(before.case.inputs)
    outputs = len(before.parts)
    for other in _yield_substitute_arrays(inputs[name]):
        changed = session.subject.source.completed(session, {**inputs, name: other})
        after = session.run_case(replace(before.case, inputs=changed))
        if not same_bits(before.outcome, after.outcome, outputs):
            return False
        # The definition itself must depend on the input here, beyond both bounds.
        if not _are_right_outputs_different(before, after):
            return False
    return all(_is_ignored_at(session, before, name, factor) for factor in _MAGNITUDES)


def _is_ignored_at(session: Session, before: CaseResult, name: str, factor: float) -> bool:
    """Return whether the other sign of an array changes no bit of the outputs if all inputs are multiplied so."""
    inputs, held = before.case.inputs, session.precision.input
    # Some formats have no infinity, so that what is beyond their range becomes their largest number.
    most = float(held.largest)
    scaled = {
        n: held.rounded(np.clip(inputs[n] * factor, -most, most))
        for n in session.subject.source.free(inputs)
    }
    one, other = (
        session.subject.source.completed(session, {**inputs, **scaled, name: sign * scaled[name]})
        for sign in (1, -1)
    )
    first, second = (session.call(replace(before.case, inputs=made)) for made in (one, other))
    return same_bits(first, second, len(before.parts))


def _yield_substitute_arrays(a: np.ndarray) -> Iterator[np.ndarray]:
    """Yield arrays of the same numbers: with the other sign, and in the reverse order."""
    yield -a
    yield a.reshape(-1)[::-1].reshape(a.shape)


def _are_right_outputs_different(one: CaseResult, other: CaseResult) -> bool:
    """Return whether some right output differs by more than both bounds."""
    for a, b in zip(one.parts, other.parts, strict=True):
        right, changed = a.expected, b.expected
        with np.errstate(invalid="ignore"):
            if (np.abs(right.near - changed.near) > right.allowed + changed.allowed).any():
                return True
    return False
