"""Phrases that a reader had to guess stand in no output and on no page; each has the field's own term."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

#: A pattern, and what is said instead.
WORDS = {
    r"\bno mean\b|means? not zero": "zero mean; nonzero means",
    r"[Ii]dentify what .{1,60} stores|and how it adds\b": "storage precision and summation order",
    r"on which inputs are edited": "with editable inputs that recomputes every step",
    r"[Ww]hat the code of the statement says": "the formula",
    r"[Ii]n words, which are not read": "Informal statement (not checked)",
    r"[Oo]n residues it (computes|is) ": "Modulo random primes it agrees with the specification",
    r"the other corner|the first corner": "aligned top-left; expected bottom-right",
    r"drafts (that are |that were )?taken back": "rejected draft tokens",
    r"heads [^.]*repeated in turn": "tiled (repeat), not repeated (repeat_interleave)",
    r"laid out for (halves|neighbours)|[Nn]eighbours are exchanged": "in the half-split or interleaved layout",
    r"\bof the (keys|queries|values) alone: ": "keys only: ",
    r"(is|are) taken in place of": "uses x instead of y",
    r"window is one key too": "the window reaches one key too far back",
    r"\b[Tt]here is no \w+ in it\b|there is no theorem in": "no theorem found",
    r"\bhas no \{(part|name)\}|\.py has no \w+": "no function `nope` in good.py",
    r"before (it|one|you) goe?s? on\b|[Ll]ook whether": "before continuing; check whether",
    r"\b(is|are|be) stale\b": "is out of date",
    r"\btoo (few|many) or too (many|few)\b|\ba (transpose|factor|head) too (few|many)\b": "missing or extra",
    r"returned nothing to judge|nothing to judge on": "failed on every input",
    r"(^|[#|] *)What is tried\b|\| what is tried \|": "Test inputs",
    r"how softmax answers": "how softmax responds to its scores",
    r"again for the other inputs": "the other queries",
    r"[Ss]ay which of (two|FIRST)": "Find which of two is wrong",
    r"\bPublish it\b|Beside other tools|In your tests|Something to try things on": "a noun as a title",
}
_GUESSED = re.compile("|".join(WORDS), re.MULTILINE)
#: What is printed, besides strings of modules: texts, sheets, schemas, scripts of pages, notebooks, the action.
PRINTED = ("symattn/**/*.txt", "symattn/**/*.json", "symattn/**/*.js", "cli/**/*.md", "docs/**/*.ipynb", "action.yml")
_BETWEEN_LITERALS = re.compile(r"""["']\s*[fr]?["']""")  # of one string in several lines


def guessed(text: str) -> list[str]:
    """The phrases of a text that have a better term."""
    return [found.group() for found in _GUESSED.finditer(" ".join(text.split()))]


def printed_strings(path: Path) -> Iterator[str]:
    """The strings of a module; parts of a formatted string count as one. Docstrings are help or pages, too.

    A module without such words, in comments or anywhere, is not parsed.
    """
    text = path.read_text(encoding="utf-8")
    if not guessed(_BETWEEN_LITERALS.sub("", text)):
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.JoinedStr):
                parts = (v.value for v in child.values if isinstance(v, ast.Constant))
                yield "…".join(str(part) for part in parts)
            elif isinstance(child, ast.Constant) and isinstance(child.value, str):
                yield child.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_terms_of_the_field(page: Path) -> None:
    assert guessed(page.read_text(encoding="utf-8")) == []


@pytest.mark.deep
def test_what_is_printed_has_the_terms_of_the_field() -> None:
    modules = [path for folder in ("symattn", "cli") for path in (ROOT / folder).rglob("*.py")]
    found = {
        f"{path.relative_to(ROOT)}: {words}"
        for path in modules
        for text in printed_strings(path)
        for words in guessed(text)
    }
    texts = [path for pattern in PRINTED for path in ROOT.glob(pattern)]
    assert len(texts) > 50
    found |= {f"{path.name}: {words}" for path in texts for words in guessed(path.read_text(encoding="utf-8"))}
    assert sorted(found) == []


#: Sentences that a reader had to guess, as they once were printed.
FORMER = (
    "no mean", "the means not zero", "Identify what a kernel stores in half precision",
    "what it stores, and how it adds",
    "a page on which inputs are edited", "What the code of the statement says", "In words, which are not read",
    "What is tried", "## What is tried", "On residues it computes what the specification says",
    "The causal mask starts at the other corner", "drafts taken back", "heads of keys are repeated in turn",
    "Neighbours are exchanged with angles", "with angles that are laid out\nfor halves",
    "Powers of 2 are taken in place\nof those of e", "The window is one key too long", "there is no theorem in it",
    "good.py has no nope", "before it goes on", "look whether it is up to date", "page.md is stale",
    "a transpose too few or too many may go unnoticed", "it returned nothing to judge on any input",
    "how softmax answers its scores", "again for the other inputs", "Say which of two is wrong", "Publish it",
    "Beside other tools", "In your tests", "Something to try things on",
)  # fmt: skip


def test_a_guessed_phrase_is_seen() -> None:
    assert [words for words in FORMER if not guessed(words)] == []
