"""The console blocks of a page: commands, and what they print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^<!-- file: (\S+) -->\n+```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """What follows ``$``, and the lines below it."""

    words: str
    printed: tuple[str, ...]


def commands(text: str) -> list[list[Command]]:
    """The console blocks of a page, in order."""
    blocks = []
    for body in _BLOCK.findall(text):
        parts = re.split(r"^\$ ", body, flags=re.MULTILINE)
        assert not parts[0].strip(), f"a console block opens with `$ `: {parts[0]!r}"
        split = [part.rstrip("\n").split("\n") for part in parts[1:]]
        blocks.append([Command(lines[0], tuple(lines[1:])) for lines in split])
    return blocks


def files(text: str) -> dict[str, str]:
    """The files that a page shows: a fence behind the comment ``<!-- file: attn.py -->``."""
    return dict(_FILE.findall(text))


def matches(shown: tuple[str, ...], printed: str) -> bool:
    """Whether the page shows what was printed, where a line ``...`` stands for any lines."""
    pattern = "".join(r"(?:.*\n)*" if line.strip() == "..." else re.escape(line.rstrip()) + r" *\n" for line in shown)
    return re.fullmatch(pattern, printed if printed.endswith("\n") else printed + "\n") is not None
