r"""Derivations as texts: words, and formulas as printed, which are read and decided when the document is made.

The first line is the title. Then, a line each (an indented line goes on with the one before)::

    subtitle: …                     the line below the title
    hint: …                         a command that a reader may type next
    letters SECTION: …              the letters of a section, as in texts of theorems
    roles: …                        colours of letters that differ from the usual ones
    # …                             a heading
    A1: … :: …                      a hypothesis, which may define letters, and a remark
    A1 (x y): …                     the same, about arrays, or what laws assume: ``independent``, ``moments``,
                                    ``centred``, ``shape``; grades of means and variances name it
    A of TOPIC.NAME                 the hypotheses of a theorem, by its topic and its name
    let: …                          a paragraph whose formulas define letters, or give them their numbers
    with: …                         the same, but not printed
    - FORMULA :: REASON             a claim
    := FORMULA :: REASON            a definition
    → FORMULA :: CONDITION :: FORM  a limit, with the form that proves it
    result: FORMULA; FORMULA // …   the results, on a new line after ``//``
    theorem TOPIC.NAME              a theorem, and its false variant
    not TOPIC.NAME                  the false variant alone
    caveat: …                       the limits of the result
    insert NAME                     blocks or steps from Python

Any other line is a paragraph, and an empty one ends a group of steps. The letters of a step are those of its section:
``far- …`` is claimed in the section ``far``, ``let far: …`` defines there. Below a claim or a result, ``gap X: Y`` and
``sign X: Y`` prove an inequality (see ``RelationQuestion``); below a claim, ``free X: SHAPE`` and ``keep`` are those
of ``Section.claim``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from symattn.derivations.steps import capitalised
from symattn.document import formulas, model
from symattn.document.model import Block, Document, Step, Text
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.section import Section
from symattn.theorems.texts import APART, letters_of, roles_of

if TYPE_CHECKING:
    from symattn.derivations.cited import CitedTheorem

_STEP = re.compile(r"(\w*)(-|:=|→) (.*)")
_SAID = re.compile(r"(let|with|result|caveat|A\d)(?: (\w+))?(?: \(([\w ]+)\))?: (.*)")
_NAMED = re.compile(r"(theorem|not|A of|insert) ([\w.-]+)")
_HEAD = re.compile(r"(subtitle|hint): (.*)")
_LETTERS = re.compile(r"letters(?: (\w+))?: (.*)|roles: (.*)")
_OPTION = re.compile(r"(gap|sign|free) (.*): (.*)|keep")
Line = tuple[str, list[str]]


class DerivationText:
    """A reader of texts, which turns them into documents.

    ``letters`` are those of sections, or the beginnings of lines of letters. ``values`` are the nodes (``@name``),
    blocks and steps that it names.
    """

    def __init__(self, letters: Mapping[str, Glossary] | None = None, /, **values: Any) -> None:
        self.letters = dict(letters or {})
        self.labels: Mapping[str, str] = {}
        self.sections = {name: Section(x) for name, x in self.letters.items()}
        self.roles, self.values = {**formulas.ROLES, "a": "weight", "A": "weight"}, values
        self._cited: dict[str, CitedTheorem] = {}

    def document(self, name: str, typed: str = "", **more: Any) -> Document:
        """Return the document of a whole text, by default that of the file of its name in ``texts``."""
        (title, _), *lines = lines_of(typed or text_of(name))
        # Lines of the head may stand anywhere in the text.
        heads = [match.groups() for line, _ in lines if (match := _HEAD.fullmatch(line))]
        hints = tuple(said for kind, said in heads if kind == "hint")
        below = "".join(said for kind, said in heads if kind == "subtitle")
        blocks = self._convert_lines_to_blocks(
            [line for line in lines if not _HEAD.fullmatch(line[0])]
        )
        return Document(
            "derivation", name, self.words(title), blocks, self.words(below), hints=hints, **more
        )

    def blocks(self, typed: str) -> tuple[Block, ...]:
        """Return the blocks of a part of a document."""
        return self._convert_lines_to_blocks(lines_of(typed))

    def theorem(self, name: str) -> CitedTheorem:
        """Return a theorem of the catalogue, decided once per text."""
        from symattn.derivations.cited import cite
        from symattn.theorems import theorem_of

        if name not in self._cited:
            topic, _, called = name.partition(".")
            self._cited[name] = cite(theorem_of(topic, called))
        return self._cited[name]

    def words(self, typed: str) -> Text:
        """Return running text with formulas."""
        return formulas.running_text(typed, self.roles, self.values)

    def formula(self, typed: str) -> Any:
        """Return a formula, which may be a relation."""
        return formulas.formula(typed, self.roles, self.values)

    def _convert_lines_to_blocks(self, lines: list[Line]) -> tuple[Block, ...]:
        """Return the blocks of lines; consecutive steps are one group, and so are hypotheses."""
        if labels := labels_of(lines):
            self.labels = labels
            self.sections = {
                name: self._make_section_of_letters(x) for name, x in self.letters.items()
            }
        result: list[Any] = []
        for kind, group in groupby(
            (part for line in lines for part in self._yield_parts_of_line(*line)), type
        ):
            if kind is Step:
                result.append(model.Steps(tuple(group)))
            elif kind is model.Assumption:
                result.append(
                    model.Assumptions(
                        tuple(
                            replace(a, label=f"A{i}") if not a.label else a
                            for i, a in enumerate(group, 1)
                        )
                    )
                )
            elif kind is not str:
                result += group
        return tuple(result)

    def _yield_parts_of_line(self, line: str, options: list[str]) -> Iterator[Any]:
        if step := _STEP.fullmatch(line):
            yield self._make_typed_step(
                self.sections[step[1]], step[2], step[3].split(" :: "), options
            )
        elif letters := _LETTERS.fullmatch(line):
            section = letters[1] or ""
            if letters[2]:
                self.letters[section] = letters_of(letters[2], self.letters)
                self.sections[section] = self._make_section_of_letters(self.letters[section])
            elif letters[3]:
                self.roles |= roles_of(letters[3])
        elif said := _SAID.fullmatch(line):
            yield from self._yield_said_blocks(
                said[1], self.sections.get(said[2] or ""), said[4], options
            )
        elif line.startswith("# "):
            yield model.Heading(self.words(line[2:]))
        elif named := _NAMED.fullmatch(line):
            yield from self._yield_named_theorem_blocks(*named.groups())
        else:
            yield model.Paragraph(self.words(line)) if line else line

    def _make_section_of_letters(self, letters: Glossary) -> Section:
        """Return the section of these letters, with the assumptions of the text."""
        return Section(letters.also(labels=self.labels))

    def _make_typed_step(
        self, section: Section, mark: str, parts: list[str], options: list[str]
    ) -> Any:
        formula = self.formula(parts[0])
        reason = self.words("".join(parts[1:2]))
        form = parts[2:]
        # := defines a letter, → is a limit, and = is a claim.
        if mark == ":=":
            return section.define(formula, reason or "definition")
        if mark == "→":
            return section.tends(
                formula, self.formula(parts[1]), self.formula(form[0]) if form else None
            )
        free = {
            match[2]: match[3]
            for x in options
            if (match := _OPTION.fullmatch(x)) and match[1] == "free"
        }
        return section.claim(
            formula,
            reason,
            free=free or None,
            keep="keep" in options,
            **self._read_gap_options(options),
        )

    def _yield_said_blocks(
        self, kind: str, section: Any, typed: str, options: list[str]
    ) -> Iterator[Any]:
        if kind == "result":
            typed_rows = typed.split(" // ")
            rows = [tuple(map(self.formula, APART.split(row))) for row in typed_rows]
            yield section.result("Result", *rows, **self._read_gap_options(options))
            return
        first, *remark = map(self.words, typed.split(" :: "))
        # What is said defines letters, and its relations must hold.
        if section is not None and kind != "caveat":
            section.let(first)
        if kind[0] == "A":
            yield model.Assumption(kind, _complete_sentence(first), *remark)
        elif kind != "with":
            yield model.Caveat(first) if kind == "caveat" else model.Paragraph(first)

    def _yield_named_theorem_blocks(self, kind: str, name: str) -> Iterator[Any]:
        if kind == "insert":
            yield from self.values[name]
        elif kind == "A of":
            yield from (
                model.Assumption("", _complete_sentence(text))
                for text in self.theorem(name).theorem.hypotheses
            )
        else:
            yield from self.theorem(name).result() if kind == "theorem" else ()
            yield self.theorem(name).wrong()

    def _read_gap_options(self, options: list[str]) -> dict[str, Any]:
        """Return the argument that a side is larger, or of which sign it is."""
        shown: dict[str, Any] = {"gap": {}, "sign": {}}
        for option in options:
            if (match := _OPTION.fullmatch(option)) and match[1] in shown:
                value = self.formula(match[3])
                shown[match[1]][self.formula(match[2])] = value
        return {f"{kind}s": sides or None for kind, sides in shown.items()}


def text_of(name: str) -> str:
    """Return the text of a derivation."""
    return (
        files("symattn").joinpath("derivations", "texts", f"{name}.txt").read_text(encoding="utf-8")
    )


def labels_of(lines: list[Line]) -> Mapping[str, str]:
    """Return the assumptions that grades name, by their labels: what they are about."""
    every = (_SAID.fullmatch(line) for line, _ in lines)
    return {said[1]: said[3] for said in every if said and said[3]}


def lines_of(typed: str) -> list[Line]:
    """Return the lines, joined with their continuations, and their options."""
    result: list[Line] = []
    for line in typed.strip().splitlines():
        before, options = result[-1] if result else ("", [])
        # A line that begins with a space goes on.
        if not line.startswith(" "):
            result.append((line, []))
        elif _OPTION.fullmatch(line.strip()):
            options.append(line.strip())
        else:
            result[-1] = (f"{before} {line.strip()}", options)
    return result


def _complete_sentence(said: Text) -> Text:
    """Return the words with a capital letter and a full stop."""
    return (*capitalised(said), ".")
