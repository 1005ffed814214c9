"""Freeze anew what symattn says: ``python -m tests.golden [PART …]``; what differs is printed."""

import sys

from tests.golden.freeze import FOLDER, PARTS, differences, stored

for part in sys.argv[1:] or PARTS:
    names = [*PARTS[part][0]()]
    others = differences(part, names)
    for name, now in others.items():
        print(f"{part}: {name}: {stored(part).get(name)} -> {now}", flush=True)
    lines = stored(part) | others
    text = "".join(f"{name}\t{lines[name]}\n" for name in names)
    (FOLDER / f"{part}.tsv").write_text(text, encoding="utf-8")
