"""Freeze anew what symattn says: ``python -m tests.golden [--new] [PART …]``; what differs is printed.

With ``--new`` lines that are frozen stay as they are: those that lack are computed, and those of no name are left out.
"""

import sys

from tests.golden.freeze import FOLDER, PARTS, differences, stored

only_new = "--new" in sys.argv
for part in [name for name in sys.argv[1:] if name != "--new"] or PARTS:
    names = [*PARTS[part][0]()]
    before = stored(part)
    others = differences(part, [name for name in names if not only_new or name not in before])
    for name, now in others.items():
        print(f"{part}: {name}: {before.get(name)} -> {now}", flush=True)
    lines = before | others
    text = "".join(f"{name}\t{lines[name]}\n" for name in names)
    (FOLDER / f"{part}.tsv").write_text(text, encoding="utf-8")
