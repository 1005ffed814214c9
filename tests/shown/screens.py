"""Screenshots of pages, to be looked at: ``python -m tests.shown.screens FOLDER [chrome|firefox]``."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.shown import node
from tests.shown.documents import of_each_kind
from tests.shown.test_browser import BROWSERS

MOST = 200_000  # bytes of a picture
SHOWN = {"walk": ("#step-3", "#step-5", "#step-7", "#step-8")}
"""The places of a page that are shown; of others the top is."""


def taken(folder: Path, browser: str) -> Iterator[Path]:
    """Take the pictures: each page on a desktop and on a phone, in light and in dark."""
    program = next(filter(None, map(shutil.which, BROWSERS[browser])), None)
    assert program, f"{browser} is missing"
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        paths = []
        for title, page in of_each_kind(work).items():
            path = work / f"{title}.html"
            path.write_text(page, encoding="utf-8")
            paths += [f"{path}{place}" for place in SHOWN.get(title, ("",))]
        for told in node.run("browser.mjs", browser, program, "screen", *paths):
            for picture in map(Path, told["pictures"]):
                yield Path(shutil.move(picture, folder / picture.name))


def main(folder: str, browser: str = "chrome") -> int:
    """Write the pictures, and return 1 if one is too large."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    large = False
    for picture in taken(Path(folder), browser):
        size = picture.stat().st_size
        large |= size > MOST
        print(f"{size:7} {picture}{'  too large' if size > MOST else ''}")
    return int(large)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
