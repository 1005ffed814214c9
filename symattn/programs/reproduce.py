"""Words for the cases of a report, and the report of one of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from symattn.attention.inputs import holds
from symattn.attention.notation import ARRAYS
from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.document.evidence import Verdict
from symattn.programs.repeat import Repeated, repeat_target
from symattn.programs.verify import verify_target
from symattn.programs.written_test import written
from symattn.verification.case_codes import decode, encode, hashed, speaks
from symattn.verification.definitions.registry import Specification, is_definition
from symattn.verification.report import Fault, Report


def verify_case(target: str, spec: Specification, word: str, *, dtype: str = "float32", **told: Any) -> Report:
    """The report on one case alone, by its word. ``told`` are options of ``verify_target``.

    Where the word is a hash, everything is run again with the same seed, and the fault of that word is what the report
    keeps. Raises ``InputError`` for a word of another specification, and as ``verify_target`` does.
    """
    if speaks(word):
        report = repeat_target(target, spec, decode(spec, word, dtype), dtype=dtype, **told).report
        return named(replace(report, command=f"{report.command} --case {word}"), spec, dtype)
    report = named(verify_target(target, spec, dtype=dtype, **told), spec, dtype)
    faults = tuple(fault for fault in report.faults if fault.case == word)
    verdict = Verdict.FAULT if faults else report.verdict if not report.faults else Verdict.NO_FAULT
    note = f"The inputs of {word} are too many for a word, so that every case was run again."
    return replace(report, faults=faults, verdict=verdict, notes=(*report.notes, note))


def named(report: Report, spec: Specification, dtype: str) -> Report:
    """The report with a word for each fault whose inputs are known."""
    return replace(report, faults=tuple(replace(f, case=_word(f, spec, dtype)) for f in report.faults))


def _word(fault: Fault, spec: Specification, dtype: str) -> str:
    if not fault.counterexample or not fault.counterexample.inputs:
        return ""
    return encode(spec, _inputs(fault, spec), dtype) or hashed(spec, dtype, fault.step, fault.cause)


def _inputs(fault: Fault, spec: Specification) -> dict[str, np.ndarray]:
    """The arrays of a counterexample."""
    kinds = {"booleans": bool, "whole numbers": np.int64}
    found = fault.counterexample.inputs if fault.counterexample else {}
    if not isinstance(spec, Attention) or is_definition(spec):
        return {name: np.array(values) for name, values in found.items()}
    return {
        name: np.array(values, dtype=kinds.get(holds(name, spec) if name in ARRAYS else "", float))
        for name, values in found.items()
    }


def tests_of(target: str, spec: Specification, report: Report, path: Path, **told: Any) -> tuple[str, int]:
    """A file for pytest with a test for each fault that one call shows (or two), and for how many there is none.

    Raises ``InputError`` where there is nothing to write.
    """
    repeated: list[tuple[str, Repeated]] = []
    for fault in report.faults:
        if fault.counterexample is not None and fault.counterexample.inputs:
            found = repeat_target(target, spec, _inputs(fault, spec), **told)
            if found.report.faults:
                whole = replace(found.report, faults=(fault,))  # what all cases together have told of it
                repeated.append((fault.case, replace(found, report=whole)))
    if not report.faults:
        raise InputError(f"--write-test {path}: no fault was found, and nothing is written")
    if not repeated:
        raise InputError(f"--write-test {path}: no fault shows in a call that is made again; nothing is written")
    return written(target, repeated, path.parent, report.command), len(report.faults) - len(repeated)
