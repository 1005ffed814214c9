"""What ``verify`` says of the collection, as ``tests.faults.measure`` has written it, and what picked tolerances say.

    python -m tests.faults.table --measured measured.jsonl

``--page`` writes both tables into docs/faults.md.

Each rule compares a program with a reference on entries N(0, 1), n = d = 16, for five seeds:

    allclose           ``numpy.allclose(out, reference, rtol=1e-3, atol=1e-3)``
    torch's defaults   the tolerances of ``torch.testing.assert_close`` for the type of the output
    twice a baseline   max |out − reference| is at most twice that of a plain program in the same precision

The reference is the definition by loops in float64. The third rule is the one of FlashAttention's tests.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from symattn import kind
from tests.faults.collection import kinds, trial
from tests.faults.collection.entries import At, Entry, Wrong
from tests.faults.collection.every import chosen

Array = Any
Record = dict[str, Any]
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
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


def figures(records: Iterable[Record]) -> Iterator[str]:
    """Lines of a Markdown table: what was found, by half."""
    yield "| half | right | accused | wrong | found | first step right | cause right | seconds: median | worst |"
    yield "|---|---|---|---|---|---|---|---|---|"
    records = list(records)
    for half in ("rules", "figures"):
        right, wrong = ([r for r in records if (r["half"], r["kind"]) == (half, kind)] for kind in ("right", "wrong"))
        if not right and not wrong:
            continue
        shares = [_share(wrong, key) for key in ("found", "step", "cause")]
        spent = [r["seconds"] for r in (*right, *wrong)]
        accused = sum(bool(r.get("faults")) for r in right)
        cells = (half, len(right), accused, len(wrong), *shares, f"{median(spent):.1f}", f"{max(spent):.1f}")
        yield f"| {' | '.join(map(str, cells))} |"


def _share(records: list[Record], key: str) -> str:
    n = sum(bool(r.get(key)) for r in records)
    return f"{n} ({100 * n / len(records):.0f} %)" if records else "–"


def written(page: str, parts: Mapping[str, Iterable[str]]) -> str:
    """The page with each part in place of what stood between its marks."""
    for name, lines in parts.items():
        mark = re.compile(rf"<!-- {name} -->\n.*?<!-- end of {name} -->", re.DOTALL)
        if not mark.search(page):
            raise ValueError(f"the page has no marks for {name}")
        block = "\n".join((f"<!-- {name} -->", *lines, f"<!-- end of {name} -->"))
        page = mark.sub(lambda found, block=block: block, page)  # type: ignore[misc]
    return page


def main(arguments: list[str] | None = None) -> int:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.table")
    parser.add_argument("--measured", type=Path, help="the file that tests.faults.measure has written")
    parser.add_argument("--page", action="store_true", help="write docs/faults.md")
    parser.add_argument("--each", action="store_true", help="a line for each program")
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--half", choices=("rules", "figures"))
    told = parser.parse_args(arguments)
    lines = told.measured.read_text(encoding="utf-8").splitlines() if told.measured else []
    entries = chosen(told.only, told.half)
    measured = {r["name"]: r for r in map(json.loads, lines) if r["name"] in {e.name for e in entries}}
    parts = {"measured": figures(measured.values()), "table": (by_program if told.each else table)(entries, measured)}
    if told.page:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")
    else:
        print(*parts["measured"], "", *parts["table"], sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
