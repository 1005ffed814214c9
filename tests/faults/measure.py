"""The collection through ``symattn.verify``, with nothing told but specification, precision and domain.

    python -m tests.faults.measure --out measured.jsonl --half figures

Each line of the file is one program. A run that was ended goes on where it stopped; ``--again`` measures anew.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.faults.collection.entries import Entry, Wrong
from tests.faults.collection.every import chosen

Record = dict[str, Any]


def measured(name: str) -> Record:
    """One program verified: what was found, and whether it is what the collection says."""
    from symattn import verify

    (entry,) = chosen(name)
    found: Record = {"name": name, "kind": "wrong" if isinstance(entry, Wrong) else "right", "half": entry.half}
    began = perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = verify(entry.program, entry.spec, precision=entry.arithmetic, domain=entry.domain)
    except Exception as error:
        return found | {"seconds": perf_counter() - began, "error": f"{type(error).__name__}: {error}"}
    found |= {"seconds": perf_counter() - began, "verdict": report.verdict.value, "cases": report.cases}
    faults = [{"step": f.step, "cause": f.cause, "message": f.message} for f in report.faults]
    return found | {"faults": faults} | (_judged(entry, faults) if isinstance(entry, Wrong) else {})


def _judged(entry: Wrong, faults: list[Record]) -> Record:
    words = " ".join(f"{f['cause'] or ''} {f['message']}" for f in faults)
    steps = bool(faults) and faults[0]["step"] in entry.steps
    return {"found": bool(faults), "step": steps, "cause": bool(faults) and entry.named_in(words)}


def run(entries: Iterable[Entry], out: Path | None, jobs: int) -> Iterator[Record]:
    """A record for each program, those first that ``out`` already has."""
    known = _known(out)
    names = [e.name for e in entries]
    yield from (known[n] for n in names if n in known)
    missing = [n for n in names if n not in known]
    for record in _mapped(missing, jobs):
        if out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        print(_line(record), file=sys.stderr, flush=True)
        yield record


def _mapped(names: list[str], jobs: int) -> Iterator[Record]:
    if jobs == 1:
        yield from map(measured, names)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(measured, names)


def _known(out: Path | None) -> dict[str, Record]:
    """What the file holds; a line that a killed run left unfinished is measured anew."""
    found: dict[str, Record] = {}
    if out is None or not out.exists():
        return found
    text = out.read_text(encoding="utf-8")
    for line in text.splitlines():
        try:
            record = json.loads(line)
            found[record["name"]] = record
        except ValueError:
            continue
    if text and not text.endswith("\n"):
        out.write_text(text + "\n", encoding="utf-8")
    return found


def _line(record: Record) -> str:
    words = _complaint(record) or "as it should be"
    return f"{record['seconds']:6.1f} s  {record['half']:7}  {record['name']:45}  {words}"


def _complaint(record: Record) -> str:
    """What is not as it should be."""
    if "error" in record:
        return record["error"][:200]  # type: ignore[no-any-return]
    said = "; ".join(f"{f['step']}: {f['message']}" for f in record["faults"])
    if record["kind"] == "right":
        return f"ACCUSED: {said}" if record["faults"] else "UNDECIDED" if record["verdict"] != "no fault" else ""
    if not record["found"]:
        return "MISSED"
    wrong = [word for word in ("step", "cause") if not record[word]]
    return f"other {' and '.join(wrong)}: {said}" if wrong else ""


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print what is not as it should be; 1 where a right one is accused or a wrong one is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.measure", description=__doc__)
    parser.add_argument("--out", type=Path, help="a file of JSON lines to go on with")
    parser.add_argument("--again", action="store_true", help="measure anew what the file has")
    parser.add_argument("--half", choices=("rules", "figures"))
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names such as 'masking.*'")
    parser.add_argument("--kind", choices=("right", "wrong"))
    parser.add_argument("--jobs", type=int, default=1)
    told = parser.parse_args(arguments)
    entries = [e for e in chosen(told.only, told.half) if told.kind in (None, _kind(e))]
    if told.again and told.out is not None:
        _forget(told.out, {e.name for e in entries})
    records = list(run(entries, told.out, told.jobs))
    for record in records:
        if complaint := _complaint(record):
            print(f"  {record['name']}: {complaint}")
    return int(any(r.get("faults") if r["kind"] == "right" else not r.get("found") for r in records))


def _kind(entry: Entry) -> str:
    return "wrong" if isinstance(entry, Wrong) else "right"


def _forget(out: Path, names: set[str]) -> None:
    known = [r for n, r in _known(out).items() if n not in names]
    out.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in known), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
