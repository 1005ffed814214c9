"""Freeze anew what symattn says: ``python -m tests.golden [--new] [--only WORDS] [PART …]``; what differs is printed.

With ``--new`` lines that are frozen stay as they are: those that lack are computed, and those of no name are left out.
With ``--only`` the lines whose names have these words are computed; others stay as they are while they have a name.
"""

from argparse import ArgumentParser

from tests.golden.freeze import FOLDER, PARTS, differences, stored

parser = ArgumentParser(prog="python -m tests.golden")
parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
parser.add_argument("--new", action="store_true", help="compute lines that lack, leave out those of no name")
parser.add_argument("--only", default="", metavar="WORDS", help="compute the lines whose names have these words")
options = parser.parse_args()
if not {*options.parts} <= PARTS.keys():
    parser.error(f"parts are {', '.join(PARTS)}")

for part in options.parts or PARTS:
    names = [*PARTS[part][0]()]
    before = stored(part)
    chosen = [name for name in names if options.only in name and not (options.new and name in before)]
    others = differences(part, chosen)
    for name, now in others.items():
        print(f"{part}: {name}: {before.get(name)} -> {now}", flush=True)
    lines = before | others
    # A name that was neither frozen nor chosen has no line yet.
    text = "".join(f"{name}\t{lines[name]}\n" for name in names if name in lines)
    (FOLDER / f"{part}.tsv").write_text(text, encoding="utf-8")
