"""The measured parts of docs/faults.md, written anew from what ``tests.faults.measure`` has found.

python -m tests.faults.page --measured measured.jsonl
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from tests.faults.collection.every import chosen
from tests.faults.table import table

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
Record = dict[str, Any]


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
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.page")
    parser.add_argument("--measured", type=Path, required=True, help="the file that tests.faults.measure has written")
    parser.add_argument("--page", type=Path, default=PAGE)
    told = parser.parse_args(arguments)
    names = {e.name for e in chosen()}
    every = [json.loads(line) for line in told.measured.read_text(encoding="utf-8").splitlines()]
    records = {r["name"]: r for r in every if r["name"] in names}
    parts = {"measured": figures(records.values()), "table": table(chosen(), records)}
    told.page.write_text(written(told.page.read_text(encoding="utf-8"), parts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
