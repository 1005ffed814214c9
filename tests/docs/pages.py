"""The commands in fences of a page, what they print, and the files that it shows. Directives are run by the build."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^(<!-- cut -->\n)?```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^(?:<!-- file: (\S+) -->\n+```\w+|```{symattn-file} (\S+))\n(.*?)^```$", re.MULTILINE | re.DOTALL)


_FENCE = re.compile(r"^(`{3,})(\S*)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(symattn [a-z][^`]*)`")
_NAMED = re.compile(r"\.(?:py|json|npz|onnx|safetensors|md|tex|html|svg|toml)\b|^\./")


@dataclass(frozen=True)
class Command:
    """What follows ``$``, and the lines below it: all that it prints, or ``cut``, lines of it one after another."""

    words: str
    printed: tuple[str, ...]
    cut: bool = False


def commands(text: str) -> list[list[Command]]:
    """The console blocks of a page, in order."""
    blocks = []
    for cut, body in _BLOCK.findall(text):
        parts = re.split(r"^\$ ", body, flags=re.MULTILINE)
        assert not parts[0].strip(), f"a console block opens with `$ `: {parts[0]!r}"
        split = [part.rstrip("\n").split("\n") for part in parts[1:]]
        blocks.append([Command(lines[0], tuple(lines[1:]), bool(cut)) for lines in split])
    return blocks


def files(text: str) -> dict[str, str]:
    """The files that a page shows: a fence behind ``<!-- file: attn.py -->``, or ``{symattn-file} attn.py``."""
    return {by_comment or by_name: content for by_comment, by_name, content in _FILE.findall(text)}


def typed(text: str) -> list[str]:
    """Every command of symattn on a page that is no directive: those of fences, and those within sentences."""
    fences = [body for _, kind, body in _FENCE.findall(text) if kind in ("", "console", "sh", "text")]
    lines = (line.removeprefix("$ ") for body in fences for line in body.split("\n"))
    inline = (" ".join(words.split()) for words in _INLINE.findall(_FENCE.sub("", text)))
    return [*(line for line in lines if line.startswith("symattn ")), *inline]


def unmade(text: str) -> list[str]:
    """Commands, in fences that are not run and in sentences, that read a file which the page does not make.

    A name in capitals is one that a reader fills in.
    """
    fences = _FENCE.findall(text)
    made = files(text).keys() | set(re.findall(r'"([^"\n]+)"', "".join(body for _, _, body in fences)))
    lines = [line for _, kind, body in fences if kind in ("", "sh", "text") for line in body.split("\n")]
    lines += [" ".join(words.split()) for words in _INLINE.findall(_FENCE.sub("", text))]
    found = []
    for line in (line for line in lines if line.startswith("symattn ")):
        words = re.sub(r"(-o|--output) \S+", "", line).split()
        names = {word.partition(":")[0] for word in words if _NAMED.search(word)}
        found += [line] * bool({n for n in names if not re.match(r"[A-Z]+\b", n)} - made)
    return found


def matches(shown: Command, printed: str) -> bool:
    """Whether the page shows what was printed, but for spaces at the end of a line."""
    wanted, lines = (
        "\n".join(line.rstrip() for line in some) for some in (shown.printed, printed.rstrip("\n").split("\n"))
    )
    return wanted in lines if shown.cut else wanted == lines


def elided(text: str) -> list[str]:
    """Lines of a page that stand for others which it leaves out."""
    return [line for line in text.split("\n") if line.strip() in ("...", "…", "[...]", "[…]") or "ELLIPSIS" in line]
