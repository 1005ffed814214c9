"""The use of the identity test on residues: a check if it agrees, and otherwise the sizes at which to try floats.

A difference on residues is no fault: 1e-9 in a denominator is truly unequal, and harmless. Only floats show faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.case_result import Case
from symattn.bounds.inputs import Maker, Sizes
from symattn.document.evidence import Evidence
from symattn.verification import report
from symattn.verification.probing import probes
from symattn.verification.probing.probes import small
from symattn.verification.semantics import OUTSIDE, UNBOUNDED

if TYPE_CHECKING:
    from symattn.verification.engine import Session
    from symattn.verification.semantics import Difference, IdentityResult

GROUP = "semantics"
_SECONDS = 60.0  # limit for a function that never returns on residues; others are limited by a count of work
# Inputs of small integers for the sizes at which residues differ.
_TRIES = 4
# Parts of notes and of evidence that are read again.
_LITERAL = re.compile(r"the literal (\S+) was read as -inf")
_SIZES = re.compile(r"n_q = (\d+), n_k = (\d+), d_k = (\d+)")
_PRINTED_SIZES = ("n_q", "n_k", "d_k", "d_v")  # in this order, and also if they are 1


def residues(session: Session) -> IdentityResult | None:
    """Return the result of the identity test on residues, or None if the runner cannot run it."""
    make = getattr(session.runner, "semantics", None)
    if make is None or session.over:
        return None
    seconds = float(round(max(min(_SECONDS, session.effort.left), 1.0)))
    spec = session.subject.flow.spec_on_residues
    # Most runners prove at all sizes, and take no further word.
    brief = {"refutes_at_large_sizes": True} if session.refutes_at_large_sizes else {}
    result: IdentityResult | None = make(spec, seconds, session.domain, **brief)
    return result


def cases(sizes: Sizes, maker: Maker, rng: np.random.Generator) -> Iterator[Case]:
    """Yield floats of the sizes at which residues differ."""
    # Room for all scores, so that the maker does not reduce the sizes.
    maker = replace(
        maker, cells=max(maker.cells, maker.spec.heads * sizes.n_q * sizes.n_k * prod(sizes.batch))
    )
    for _ in range(_TRIES):
        yield Case(
            "shapes",
            f"where residues differ, {sizes.n_q} × {sizes.n_k}",
            maker.make(sizes, small(rng), rng),
        )
    for name in ("normal", "large"):
        result = maker.make(sizes, probes.FAMILIES[name](rng), rng)
        yield Case("shapes", f"where residues differ, {name} entries", result)


def literals(residue_result: IdentityResult | None) -> tuple[float, ...]:
    """Return the finite literals that residues read as −∞, one of those that print alike.

    −10²⁰ in float64, and as float32 holds it, differ from the eighth digit on.
    """
    matches = (
        (_LITERAL.search(note) for note in residue_result.notes)
        if residue_result is not None
        else ()
    )
    by_print = {f"{float(match[1]):.6g}": float(match[1]) for match in matches if match}
    return tuple(by_print.values())


def _locate_residue_difference(difference: Difference) -> str:
    return f"{difference.message}, at {difference.sizes}"


def _find_opaque_function_note(identity_result: IdentityResult) -> str:
    """Return the note that an opaque function stands for any, so that equal formulas may differ; "" if none does."""
    return next((note for note in identity_result.notes if "stands for any function" in note), "")


def unexplained(residue_result: IdentityResult, difference: Difference) -> Iterator[str]:
    """Yield a difference on residues that no nearly equal numbers explain: a fault that no input shows."""
    # Residues are exact, so that such a difference is real, whatever floats show.
    if not residue_result.nearly and not _find_opaque_function_note(residue_result):
        yield (
            f"on residues it differs from the specification ({_locate_residue_difference(difference)}), "
            "no number that is tiny, huge "
            "or rounded explains it, and no input in floats shows it; hint: look for what cuts numbers off, such as a "
            "minimum, and for a table of rounded numbers that would cancel exactly, such as a random rotation"
        )


def differing(residue_result: IdentityResult | None) -> str:
    """Return the end of a sentence on a function that is not judged: that residues differ, or ""."""
    if residue_result is None or residue_result.difference is None:
        return ""
    return f"; on residues it differs from the specification ({_locate_residue_difference(residue_result.difference)})"


def notes(residue_result: IdentityResult | None, faults: bool) -> Iterator[str]:
    """Yield notes on what residues show, and for which inputs, or why they were not run."""
    if residue_result is None:
        return
    if faults:
        yield from (
            f"On residues: {note}."
            for note in (*residue_result.notes, residue_result.reason)
            if OUTSIDE in note
        )
    elif residue_result.agrees:
        why = residue_result.evidence.where.partition(f"{UNBOUNDED}: ")[2]
        without = f", with no bound on the probability of a mistake: {why}" if why else ""
        of_inputs, _, sizes = residue_result.evidence.where.partition(", at ")
        tried = ", ".join(f"{n_q} × {n_k} ({d_k})" for n_q, n_k, d_k in _SIZES.findall(sizes))
        at = f"n_q × n_k (d_k) {tried}" if tried else f"at {sizes}"
        shown = f"{Evidence(residue_result.evidence.grade, '', residue_result.epsilon)} {of_inputs}; {at}"
        yield f"Modulo random primes it agrees with the specification ({shown}){without}."
        if residue_result.stopped:
            yield f"{stopped(residue_result)}; beyond these sizes floats alone were tried, and all of them."
        # Notes on accesses out of bounds come first, and two notes are enough.
        yield from (
            f"On residues: {note}."
            for note in sorted(residue_result.notes, key=lambda x: OUTSIDE not in x)[:2]
        )
    elif residue_result.difference is None:
        yield f"The code was not run on residues: {residue_result.reason}."
    elif residue_result.nearly or _find_opaque_function_note(residue_result):
        why = (
            _find_opaque_function_note(residue_result)
            or "by numbers that are tiny, huge or rounded, or by a bound at 0, or on exponents beyond ±37"
        )
        where = _locate_residue_difference(residue_result.difference)
        yield f"Modulo random primes it differs from the specification ({where}): {why}; no input in floats shows it."


def stopped(identity: IdentityResult) -> str:
    """Return after which stage of sizes residues stopped, and why."""
    stages = f"{identity.stages} of {identity.planned} stages of sizes"
    return f"Residues stopped after {stages} ({identity.stopped})"


def largest_sizes(
    judged: Iterable[Mapping[str, int]], identity: IdentityResult | None
) -> report.LargestSizes:
    """Return the largest of the sizes that were tried together: of the ``judged`` calls, and on residues."""
    floats = _in_order(max(judged, key=_multiply_sizes, default={}))
    # Without agreement on residues the floats alone say how far was tried.
    if identity is None or not identity.agrees:
        return report.LargestSizes(floats)
    shapes = (*identity.shapes, *identity.unbounded)
    residues: Mapping[str, int] = max(shapes, key=_multiply_sizes, default={})
    return report.LargestSizes(
        floats,
        _in_order(residues),
        residues in identity.shapes,
        identity.stages,
        identity.planned,
        identity.stopped,
    )


def _multiply_sizes(sizes: Mapping[str, int]) -> int:
    return prod(sizes.values())


def _in_order(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes in the order in which they are printed, without axes of length 1 before the others."""
    shown = {name: size for name, size in sizes.items() if name in _PRINTED_SIZES or size > 1}
    order = [
        *(name for name in _PRINTED_SIZES if name in shown),
        *(n for n in shown if n not in _PRINTED_SIZES),
    ]
    return {name: shown[name] for name in order}
