"""What picked tolerances say of the collection, beside what ``verify`` says of it.

    python -m tests.faults.table --measured /tmp/measured.jsonl

Each rule compares a program with a reference on entries N(0, 1), n = d = 16, for five seeds:

    allclose           ``numpy.allclose(out, reference, rtol=1e-3, atol=1e-3)``
    torch's defaults   the tolerances of ``torch.testing.assert_close`` for the type of the output
    twice a baseline   max |out − reference| is at most twice that of a plain program in the same precision

The reference is the definition by loops in float64. The third rule is the one of FlashAttention's tests.
``verify`` is read from what ``tests.faults.measure`` has written, and left out without it.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from symattn.arrays import kind
from tests.faults.collection import kinds, trial
from tests.faults.collection.entries import At, Entry, Wrong
from tests.faults.collection.every import chosen

Array = Any
SEEDS = range(5)
EVERYDAY = At(n_q=16, n_k=16, d_k=16, d_v=16, d_model=32)
#: torch.testing.assert_close: rtol and atol for each type. Source: its documentation.
TORCH = {"float64": (1e-7, 1e-7), "float32": (1.3e-6, 1e-5), "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5)}
Rule = Callable[[Entry, Array, Array, Array], bool]  # the program, its output, the reference, the baseline


def passes(entry: Entry, rule: Rule) -> bool:
    """Whether a program passes a rule at every seed; an exception, or another shape, is no pass."""
    for seed in SEEDS:
        given = trial.inputs(entry, replace(EVERYDAY, batch=entry.at.batch), seed)
        wanted = [a for a, _ in kinds.outputs(entry.spec, given)]
        found = _outputs(entry, given)
        if len(found) < len(wanted):
            return False
        for got, exact, plain in zip(found, wanted, baselines(entry, given, wanted), strict=False):
            if got.shape != exact.shape or not rule(entry, got, exact, plain):
                return False
    return True


def _outputs(entry: Entry, given: dict[str, Array]) -> list[Array]:
    try:
        found = trial.called(entry, given, may_change=True)
    except Exception:
        return []
    return [trial.read(entry, a, given) for a in found]


def allclose(entry: Entry, got: Array, exact: Array, plain: Array) -> bool:
    """|out − reference| ≤ 10⁻³ + 10⁻³ |reference|."""
    return bool(np.allclose(got, exact, rtol=1e-3, atol=1e-3))


def torchs(entry: Entry, got: Array, exact: Array, plain: Array) -> bool:
    """The same with what torch.testing takes for the type."""
    rtol, atol = TORCH[entry.precision]
    return bool(np.allclose(got, exact, rtol=rtol, atol=atol))


def twice(entry: Entry, got: Array, exact: Array, plain: Array) -> bool:
    """max |out − reference| ≤ 2 max |baseline − reference|."""
    return bool(np.abs(got - exact).max() <= 2 * np.abs(plain - exact).max())


def baselines(entry: Entry, given: dict[str, Array], exact: list[Array]) -> list[Array]:
    """The outputs of the definition in the precision of the program, step by step.

    A rotation is no function by itself: it is the exact one, rounded.
    """
    if not callable(entry.spec):
        return [trial.rounded(a, entry.precision) for a in exact]
    arrays = {"do" if n == "dout" else n: _in(entry.precision, a) for n, a in given.items()}
    with np.errstate(all="ignore"):
        found = entry.spec(**arrays)
    every = found if isinstance(found, tuple) else (found,)
    return [np.asarray(a.numpy() if entry.precision == "bfloat16" else a, dtype=np.float64) for a in every]


def _in(precision: str, a: Array) -> Array:
    if a.dtype.kind != "f":
        return a
    return kind("bfloat16").lift(a) if precision == "bfloat16" else a.astype(precision)


RULES: dict[str, Rule] = {"allclose, 10⁻³": allclose, "torch's defaults": torchs, "twice a baseline": twice}


def table(entries: Iterable[Entry], measured: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Lines of a Markdown table: rule by rule, how many wrong programs are let through, how many right ones accused."""
    entries = list(entries)
    if measured:
        entries = [e for e in entries if e.name in measured]
    wrong = [e for e in entries if isinstance(e, Wrong)]
    right = [e for e in entries if not isinstance(e, Wrong)]
    yield f"| rule | of {len(wrong)} wrong: caught | let through | of {len(right)} right: accused |"
    yield "|---|---|---|---|"
    for name, rule in RULES.items():
        caught = sum(not passes(e, rule) for e in wrong)
        accused = sum(not passes(e, rule) for e in right)
        yield f"| {name} | {caught} | {len(wrong) - caught} | {accused} |"
    if measured:
        caught = sum(bool(measured[e.name].get("faults")) for e in wrong)
        accused = sum(bool(measured[e.name].get("faults")) for e in right)
        yield f"| `symattn.verify` | {caught} | {len(wrong) - caught} | {accused} |"


def by_program(entries: Iterable[Entry], measured: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for each program: what each rule says of it."""
    yield f"| program | mistake | {' | '.join(RULES)} |{' `symattn.verify` |' if measured else ''}"
    yield "|---|---|" + "---|" * (len(RULES) + bool(measured))
    for e in entries:
        said = ["passes" if passes(e, rule) else "fails" for rule in RULES.values()]
        said += ["fails" if measured.get(e.name, {}).get("faults") else "passes"] if measured else []
        yield f"| {e.name} | {e.why if isinstance(e, Wrong) else 'none'} | {' | '.join(said)} |"


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.table")
    parser.add_argument("--measured", type=Path, help="the file that tests.faults.measure has written")
    parser.add_argument("--each", action="store_true", help="a line for each program")
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--half", choices=("rules", "figures"))
    told = parser.parse_args(arguments)
    lines = told.measured.read_text(encoding="utf-8").splitlines() if told.measured else []
    measured = {r["name"]: r for r in map(json.loads, lines)}
    print(*(by_program if told.each else table)(chosen(told.only, told.half), measured), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
