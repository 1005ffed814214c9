"""The commands of a page, what they print, and the files that the page shows."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^(?:<!-- file: (\S+) -->\n+```\w+|```{symattn-file} (\S+))\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"^```{symattn} (.+)\n(?::exit: (\d+)\n|:.+\n)*?```$", re.MULTILINE)
_SHOWN_ONLY = re.compile(r"^````.*?^````$", re.MULTILINE | re.DOTALL)


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


def answers(text: str) -> list[list[Command]]:
    """The directives of a page as blocks: the command, and the exit code that it must end with."""
    blocks = []
    for found in re.finditer(_DIRECTIVE, _SHOWN_ONLY.sub("", text)):
        words = shlex.join(["symattn", *shlex.split(found[1])])
        blocks.append([Command(words, ()), Command("echo $?", (found[2] or "0",))])
    return blocks


def files(text: str) -> dict[str, str]:
    """The files that a page shows: a fence behind ``<!-- file: attn.py -->``, or ``{symattn-file} attn.py``."""
    return {by_comment or by_name: content for by_comment, by_name, content in _FILE.findall(text)}


def matches(shown: tuple[str, ...], printed: str) -> bool:
    """Whether the page shows what was printed, where a line ``...`` stands for any lines."""
    pattern = "".join(r"(?:.*\n)*" if line.strip() == "..." else re.escape(line.rstrip()) + r" *\n" for line in shown)
    return re.fullmatch(pattern, printed if printed.endswith("\n") else printed + "\n") is not None
