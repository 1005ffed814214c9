"""Single edits drawn from right programs of all definitions: are they found, and what is said of them?

    python -m tests.verification.drawn_edits --out edits.jsonl [--each 4] [--seed 5] [NAME …]

An edit is drawn by a rule of ``symattn.programs.repairing``, and then among the edits of that rule, so that no list of
mistakes decides what is tried. An edit that changes no output, or gives other shapes, is drawn anew. Each line of the
file has the program, the rule, the old and the new text, what was answered, and seconds of processor time.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from symattn import SymattnError, verify
from symattn.programs.repairing.choosing import numbers_of
from symattn.programs.repairing.edits import Edit, enumerate_edits
from symattn.programs.repairing.observing import observe
from symattn.programs.repairing.source import EndlessLoop, Sources
from symattn.verification import engine
from tests.faults.programs import Program
from tests.verification.right_programs import RIGHT

Array = Any
_TRIES = 60  # edits that are drawn for one that changes an output
_MOST_PASSES = 10_000  # of the loops of one call of an edited program
_CALLS = 12  # recorded calls on which an edit must change an output


def answer_of(function: Callable[..., Any], spec: Any, **options: Any) -> dict[str, Any]:
    """Return verdict, step, cause, message and seconds of processor time of a verification."""
    began = process_time()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            report = verify(function, spec, **options)
    except SymattnError as error:
        words = f"{type(error).__name__}: {error}"
        return {"verdict": "refused", "message": words, "seconds": process_time() - began}
    faults = [(fault.step, fault.cause, fault.message) for fault in report.faults]
    seconds = round(process_time() - began, 1)
    return {"verdict": report.verdict.value, "faults": faults, "seconds": seconds}


def calls_of(program: Program) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """Return copies of the arguments of calls that a verification makes, and what it answers."""
    calls: list[tuple[Any, ...]] = []

    @wraps(program.function)
    def recorded(*arguments: Any) -> Any:
        copied = _copied(arguments)
        output = program.function(*arguments)
        calls.append(copied)
        return output

    answer = answer_of(recorded, program.spec, precision=program.precision)
    usual = [c for c in calls if all(_is_finite(a) for a in c) and max(np.size(a) for a in c) > 1]
    return usual[:: max(len(usual) // _CALLS, 1)][:_CALLS], answer


def drawn_edits(program: Program, calls: Sequence[tuple[Any, ...]], seed: int) -> Iterator[tuple[Edit, Any]]:
    """Yield edits with the edited function, each of which changes a finite output of these calls."""
    rng = np.random.default_rng(seed)
    sources = Sources(program.function)
    largest = max(calls, key=lambda call: sum(np.size(a) for a in call))
    observed = observe(sources, lambda function: function(*_copied(largest)))
    by_rule: dict[str, list[Edit]] = defaultdict(list)
    for edit in enumerate_edits(sources, observed, numbers_of(program.spec), tiers=(1, 2)):
        by_rule[edit.rule].append(edit)
    right = [_outputs(program.function, call) for call in calls]
    rules = sorted(by_rule)
    for _ in range(_TRIES):
        edits = by_rule[rules[int(rng.integers(len(rules)))]]
        edit = edits[int(rng.integers(len(edits)))]
        try:
            function = sources.edited(sources.at(edit.place), edit.replacements)
        except ValueError:  # such as a name of the closure that is no longer used
            continue
        sources.most_passes, sources.passes = _MOST_PASSES, 0
        if function is not None and _changes_outputs(function, sources, calls, right):
            sources.passes, sources.most_passes = 0, 10**9
            yield edit, function


def _changes_outputs(function: Any, sources: Sources, calls: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether outputs are finite, of the right shapes and types, and not the right ones."""
    differs = False
    for call, expected in zip(calls, right, strict=True):
        sources.passes = 0
        try:
            found = _outputs(function, call)
        except (Exception, EndlessLoop):
            return False
        if [y.shape for y in found] != [y.shape for y in expected]:
            return False
        if any(y.dtype != x.dtype for y, x in zip(found, expected, strict=True)):
            return False
        for y, x in zip(found, expected, strict=True):
            fits = np.isfinite(x)
            if not np.isfinite(y[fits]).all():
                return False
            differs |= bool((np.abs(y - x)[fits] > 1e-2 * (1e-6 + np.abs(x[fits]).max(initial=0))).any())
    return differs


def _outputs(function: Any, call: tuple[Any, ...]) -> list[Array]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = function(*_copied(call))
    return [np.asarray(y) for y in (result if isinstance(result, tuple) else (result,))]


def _copied(call: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.array(a, copy=True) if isinstance(a, np.ndarray) else a for a in call)


def _is_finite(a: Any) -> bool:
    x = np.asarray(a)
    return x.dtype.kind in "biu" or bool(np.isfinite(x).all())


def main() -> None:
    """Draw edits of each program, and write what is said of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs; all without any")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=int, default=4, help="edits of each program")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--budget", type=float, default=engine.BUDGET, help="seconds of processor time")
    options = parser.parse_args()
    for program in (p for p in RIGHT if not options.names or p.name in options.names):
        calls, answer = calls_of(program)
        _write(options.out, {"program": program.name, "rule": "right"} | answer)
        told = {"precision": program.precision, "budget": options.budget}
        if answer["verdict"] != "no fault" or not calls:
            continue
        known: set[tuple[str, str, int]] = set()
        for edit, function in drawn_edits(program, calls, options.seed):
            if len(known) == options.each:
                break
            key = (edit.old, edit.new, edit.line)
            if key in known:
                continue
            known.add(key)
            words = {"program": program.name, "rule": edit.rule, "old": edit.old, "new": edit.new, "line": edit.line}
            _write(options.out, words | answer_of(function, program.spec, **told))


def _write(out: Path, record: dict[str, Any]) -> None:
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(json.dumps(record, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
