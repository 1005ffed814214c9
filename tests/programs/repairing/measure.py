"""What edits repair, by tier and rule: ``python -m tests.programs.repairing.measure [first] [later] [drawn]``.

Each wrong program is verified, its edits are made, and their outputs are compared with those of the right program on
inputs of another seed. This takes about 20 s of processor time a program.
"""

import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from symattn import reports
from symattn.programs.loading import load
from symattn.programs.verifying import Options, verified
from tests.programs.repairing import one_line, test_drawn
from tests.programs.repairing.drawn import PROGRAMS
from tests.programs.repairing.programs import HEAD

_OTHER_SEED, _EXAMPLES, _MAX_CALLS = 991, 12, 80
_TOLERANCE = 2e-3  # of the largest output: far above rounding in float32, far below a mistake


@dataclass(frozen=True)
class Program:
    """A wrong program with its right twin, the definition, and the line of the mistake."""

    name: str
    definition: Any
    function: str
    right: str
    wrong: str
    line: int


@dataclass(frozen=True)
class Measured:
    """What came of a program: its whole repairs, the processor time of the search, and which edits are no twins."""

    program: Program
    repairs: Sequence[reports.Repair]
    seconds: float
    different: Sequence[str] = field(default_factory=list)

    @property
    def is_at_line(self) -> bool:
        """Return whether the first edit changes the line of the mistake."""
        first = self.repairs[0]
        return self.program.line in {part.line for part in first.parts or (first,)}


def programs(name: str) -> Iterator[Program]:
    """Yield the programs of a set."""
    if name == "drawn":
        for d in test_drawn._mistakes():
            wrong = HEAD + d.text.lstrip("\n")
            right = HEAD + PROGRAMS[d.program][1].lstrip("\n")
            pairs = enumerate(zip(right.split("\n"), wrong.split("\n"), strict=True), 1)
            line = next(number for number, (a, b) in pairs if a != b)
            spec = test_drawn._spec(d.program)
            yield Program(f"{d.program}, {d.rule}", spec, "attention", right, wrong, line)
        return
    for one in one_line.FIRST if name == "first" else one_line.LATER:
        yield Program(one.name, one.definition, one.function, one.whole, one.broken, one.line)


def measured(program: Program, folder: Path) -> Measured:
    """Verify a wrong program with edits, and compare the edited texts with the right one."""
    began: list[float] = []

    def progress(words: str) -> None:
        if words == "repairs":
            began.append(process_time())

    how = Options(repair=True, progress=progress)
    report = verified(_loaded(folder, "wrong", program.wrong, program), program.definition, how)
    seconds = process_time() - began[-1] if began else 0.0
    whole = [r for r in report.repairs if r.is_whole]
    right = _loaded(folder, "right", program.right, program)
    calls = _calls_of(right, program) if whole else []
    different = []
    for number, repair in enumerate(whole):
        text = "\n".join(reports.replaced(program.wrong.split("\n"), repair.replacements))
        edited = _loaded(folder, f"edited{number}", text, program)
        if not all(_are_alike(edited, right, arguments) for arguments in calls):
            different.append(repair.change)
    return Measured(program, whole, seconds, different)


def _loaded(folder: Path, name: str, text: str, program: Program) -> Callable[..., Any]:
    path = folder / f"{name}_{program.name.replace('-', '_').replace(', ', '_').replace(' ', '_')}.py"
    path.write_text(text, encoding="utf-8")
    function: Callable[..., Any] = load(f"{path}:{program.function}").function
    return function


def _calls_of(right: Callable[..., Any], program: Program) -> list[tuple[Any, ...]]:
    """Return the arguments of calls that a verification with another seed makes."""
    calls: list[tuple[Any, ...]] = []

    @wraps(right)
    def recorded(*arguments: Any) -> Any:
        copied = tuple(np.array(a, copy=True) for a in arguments)
        output = right(*arguments)
        # Trials with other axes, which the right program refuses, say nothing about an edit.
        calls.append(copied)
        return output

    verified(recorded, program.definition, Options(seed=_OTHER_SEED, examples=_EXAMPLES))
    return calls[:: max(len(calls) // _MAX_CALLS, 1)]


def _are_alike(one: Callable[..., Any], other: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
    try:
        with np.errstate(all="ignore"):
            outputs = [_arrays(f(*(np.array(a, copy=True) for a in arguments))) for f in (one, other)]
    except Exception:  # the other one is right, and has returned before
        return False
    for a, b in zip(*outputs, strict=True):
        finite = np.isfinite(b)
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), finite):
            return False
        largest = np.abs(b[finite]).max(initial=1e-20)
        if (np.abs(a[finite] - b[finite]) > _TOLERANCE * largest).any():
            return False
    return True


def _arrays(output: Any) -> list[np.ndarray]:
    return [np.asarray(a, np.float64) for a in (output if isinstance(output, tuple) else (output,))]


def table(every: Sequence[Measured]) -> Iterator[str]:
    """Yield the lines of the table, and what it says together."""
    by_rule: dict[tuple[int, str], list[Measured]] = defaultdict(list)
    for one in every:
        if one.repairs:
            by_rule[one.repairs[0].tier, one.repairs[0].rule].append(one)
    yield "| tier | rule | repaired | at the line | edits tried: median, most |"
    yield "|---|---|---|---|---|"
    for (tier, rule), ones in sorted(by_rule.items()):
        tried = [one.repairs[0].tried for one in ones]
        at_line = sum(one.is_at_line for one in ones)
        yield f"| {tier} | {rule} | {len(ones)} | {at_line} | {median(tried):.0f}, {max(tried)} |"
    repaired = [one for one in every if one.repairs]
    seconds = sorted(one.seconds for one in every)
    yield f"repaired: {len(repaired)} of {len(every)}, {sum(one.is_at_line for one in repaired)} at the line"
    yield f"another path: {[one.program.name for one in repaired if one.repairs[0].path != 'same']}"
    yield f"not repaired: {[one.program.name for one in every if not one.repairs]}"
    yield f"edits that are no twins: {[change for one in every for change in one.different]}"
    nine_tenths = seconds[-(-9 * len(seconds) // 10) - 1]
    yield f"seconds of the search: median {median(seconds):.1f}, nine tenths {nine_tenths:.1f}, most {seconds[-1]:.1f}"


def main(names: Sequence[str]) -> None:
    """Measure the sets of these names, by default the two that were written by hand."""
    every = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names or ("first", "later"):
            for program in programs(name):
                every.append(measured(program, Path(folder)))
                print(program.name, [r.words for r in every[-1].repairs[:1]], file=sys.stderr, flush=True)
    print("\n".join(table(every)))


if __name__ == "__main__":
    main(sys.argv[1:])
