"""Faults of conduct: another dtype, changed arguments, overwritten results, views that are misread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from symattn.verification.report import Counterexample, Fault


def conduct(records: Sequence[Any], wanted: str, shown: Callable[[Any], Counterexample]) -> Iterator[Fault]:
    """A fault for each kind of misconduct among judged cases, at the smallest of them; ``wanted`` is the dtype of the
    inputs."""
    told: dict[str, tuple[str, Callable[[Any], str], Callable[[Any], str]]] = {
        "dtype": (
            "output",
            lambda r: f"the output is returned as {r.outcome.dtype}",
            lambda r: f"returns {r.outcome.dtype} for {wanted} inputs",
        ),
        "mutates": (
            "call",
            lambda r: f"the argument {', '.join(r.outcome.mutated)} is changed in place",
            lambda r: f"changes its argument {', '.join(r.outcome.mutated)}" + _aliased(records),
        ),
        "overwrites": (
            "call",
            lambda r: "a later call overwrites the array that an earlier one has returned",
            lambda r: "a later call changes the array that an earlier one has returned",
        ),
    }
    for finding, (step, cause, words) in told.items():
        judged = min((r for r in records if r.finding == finding), key=lambda r: r.case.size, default=None)
        if judged is not None:
            yield Fault(step, cause(judged), words(judged), shown(judged))


def only_aliased(records: Sequence[Any]) -> bool:
    """Whether arguments are changed, and values are wrong only where one array is passed for several of them."""
    wrong = [r for r in records if r.finding in ("values", "not finite")]
    return any(r.finding == "mutates" for r in records) and all(r.case.memory == "shared" for r in wrong)


def misread(records: Sequence[Any], shown: Callable[[Any], Counterexample]) -> Fault | None:
    """The fault where all is right but for arrays that lie otherwise in memory than row by row."""
    wrong = [r for r in records if r.finding in ("values", "not finite")]
    if not wrong or any(r.case.memory in ("contiguous", "shared") for r in wrong):
        return None
    cause = "arrays are read as if they were contiguous in memory"
    views = ", ".join(dict.fromkeys(r.case.name for r in wrong))
    return Fault(
        "call", cause, f"{cause}: the same numbers are right otherwise, and wrong for {views}", shown(wrong[0])
    )


def _aliased(records: Sequence[Any]) -> str:
    wrong = any(r.finding in ("values", "not finite") for r in records)
    return "; where one array is passed for several of them the output is wrong" * (wrong and only_aliased(records))
