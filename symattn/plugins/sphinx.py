"""An extension of Sphinx and MyST: a directive for the whole output of a command, and a role for one formula.

In ``conf.py``: ``extensions = ["symattn.plugins.sphinx"]``. Then::

    .. symattn:: derive scaling --dk 4

    .. symattn:: claim weights 0.3 0.7 0.1
       :exit: 1

    .. symattn:: walk eight-step --step 5
       :terminal:

    By :symattn:`scaling:11` scores are divided by √d_k.

The directive fails the build of a page that is wrong: its command runs while the page is read, and an exit code other
than ``exit``, by default 0, ends the build: a claim that is false, a function with a fault, a name that no longer
exists. The role fails if there is no such step. HTML and LaTeX show documents in their own format, other builders as
text; of a picture all but HTML show title and description. With ``terminal`` every builder shows the command and its
output in a terminal; ``start-at`` and ``end-before`` select a part, like those of ``literalinclude``, and ``says`` are
words on which the page relies: they must be in a line that the command prints.

A command runs in the folder of its page. If the page has files of its own, it runs in a folder with these::

    .. symattn-file:: attn.py

       def attention(q, k, v): ...

    .. symattn:: verify attn.py:attention
       :terminal:
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

from symattn.document import model as md
from symattn.document.codec import join_words
from symattn.document.errors import SymattnError
from symattn.document.render.common import numbered
from symattn.document.render.mathml import mathml
from symattn.document.tex import tex
from symattn.document.text import plain_text

# The command whose output is a picture.
_PICTURES = "draw"


class answer(nodes.General, nodes.Element):  # docutils finds visitors by the name of the class
    """A command with its output as HTML; other formats are made by the writers."""


class Directive(SphinxDirective):
    """``.. symattn:: COMMAND``: the whole output of the command, or the selected part."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {
        "exit": directives.nonnegative_int,
        "terminal": directives.flag,
        "start-at": directives.unchanged_required,
        "end-before": directives.unchanged_required,
        "says": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """Return the output. Raises ExtensionError if the exit code is not the expected one."""
        command, place = self.arguments[0].replace("\n", " "), self.get_location()
        try:
            words = shlex.split(command)
        except ValueError as error:
            outcome = f"`symattn {command}`: {error}; hint: quote what has a space or a quote in it"
            raise ExtensionError(f"{place}: {outcome}") from error
        own = _folder_of_page_files(self.env, self.env.docname)
        folder = str(own if own.is_dir() else Path(self.env.doc2path(self.env.docname)).parent)
        result = answer(
            "", words=words, exit=self.options.get("exit", 0), place=place, folder=folder
        )
        # in text, where pictures are drawn
        listed = _is_picture_command(words) and {"--list", "--help", "-h"} & set(words)
        if "terminal" in self.options or listed:
            return [self.terminal(result, command)]
        if {"start-at", "end-before", "says"} & {*self.options}:
            raise ExtensionError(
                f"{place}: start-at, end-before and says are for text; hint: add :terminal:"
            )
        result["html"] = _checked_command_output(
            result, ["--fragment"] if _is_picture_command(words) else ["-f", "html", "--fragment"]
        )
        return [result]

    def terminal(self, node: answer, command: str) -> nodes.Node:
        """Return the command after its prompt, its output, and its exit code unless that is 0."""
        whole = _checked_command_output(node, []).rstrip("\n")
        # Called for its error alone, if no printed line has the words.
        self.line(whole.split("\n"), "says", 0, node["place"])
        text = self.part(whole, node["place"])
        if node["exit"]:
            text += f"\n$ echo $?\n{node['exit']}"
        shown = f"$ symattn {command}\n{text}"
        return nodes.literal_block(shown, shown, language="console", classes=["symattn-terminal"])

    def part(self, text: str, place: str) -> str:
        """Return the lines from the one with ``start-at`` up to the next one with ``end-before``."""
        lines = text.split("\n")
        first = self.line(lines, "start-at", 0, place)
        last = self.line(lines, "end-before", first + 1, place, len(lines))
        return "\n".join(lines[first:last]).strip("\n")

    def line(
        self, lines: list[str], option: str, begin: int, place: str, otherwise: int = 0
    ) -> int:
        """Return the first line from ``begin`` on that contains an option's value; ``otherwise`` if it is not set."""
        if option not in self.options:
            return otherwise
        words = self.options[option]
        result = next((i for i, line in enumerate(lines) if i >= begin and words in line), None)
        if result is None:
            raise ExtensionError(
                f"{place}: {option}: {words!r} stands in no line that the command prints"
            )
        return result


class File(SphinxDirective):
    """``.. symattn-file:: NAME``: a file that the page shows, and that its commands can read."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the file as code. Raises ExtensionError for a name with a folder, or none."""
        name, text = self.arguments[0], "\n".join(self.content) + "\n"
        # A page could write anywhere otherwise.
        if Path(name).name != name or name in ("", ".", ".."):
            raise ExtensionError(
                f"{self.get_location()}: {name!r} is not a file's name; give a name such as attn.py"
            )
        folder = _folder_of_page_files(self.env, self.env.docname)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        language = {".py": "python", ".json": "json", ".toml": "toml"}.get(
            Path(name).suffix, "none"
        )
        caption = nodes.caption("", "", nodes.literal("", name))
        block = nodes.literal_block(text, text, language=language)
        return [
            nodes.container(
                "", caption, block, classes=["literal-block-wrapper"], literal_block=True
            )
        ]


def _folder_of_page_files(env: BuildEnvironment, page: str) -> Path:
    """Return the folder of the files of a page."""
    return Path(env.doctreedir) / "symattn-files" / page


def _remove_page_files(_app: Sphinx, env: BuildEnvironment, page: str) -> None:
    """Remove the files of a page that is read again, or was deleted."""
    shutil.rmtree(_folder_of_page_files(env, page), ignore_errors=True)


def _is_picture_command(words: list[str]) -> bool:
    return words[:1] == [_PICTURES]


def _checked_command_output(node: answer, form: list[str]) -> str:
    """Return the output of the command of a node. Raises ExtensionError if the exit code is not the expected one."""
    words, expected = node["words"], node["exit"]
    ran = _run_symattn_command([*words, *form], node["folder"])
    # An exit code is part of what a page shows.
    if ran.returncode != expected:
        why = ran.stderr.strip().splitlines()[-1:] or ["see what it prints"]
        result = (
            f"`symattn {join_words(words)}` ends with {ran.returncode} and not {expected}: {why[0]}"
        )
        raise ExtensionError(f"{node['place']}: {result}")
    return ran.stdout


def _run_symattn_command(words: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "symattn_cli", *words]
    # The same width and encoding on every machine.
    around = {**os.environ, "COLUMNS": "80", "PYTHONUTF8": "1"}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        cwd=folder,
        env=around,
    )


class Formula(SphinxRole):
    """``:symattn:`TOPIC:NUMBER```: the formula of that step of a derivation, and its grade in brackets.

    ``:symattn:`√d_k```, without a colon, sets letters as a formula; a relation would need a grade.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the formula in every format. Raises ExtensionError for an unknown topic or step, and for a relation
        that is no step."""
        topic, colon, number = self.text.partition(":")
        try:
            # matrix-form would be read as a difference: the name of a derivation lacks its number
            of_derivation = colon or topic.strip() in _list_derivation_topics()
            step = (
                _find_derivation_step(topic.strip(), number.strip())
                if of_derivation
                else _parse_ungraded_formula(self.text)
            )
        except (SymattnError, ValueError) as error:
            raise ExtensionError(
                f"{self.get_location()}: :symattn:`{self.text}`: {error}"
            ) from error
        # a formula in the format of each builder
        plain = plain_text((step.formula,))
        forms = {
            "html": mathml(step.formula, inline=True),
            "latex": f"${tex(step.formula, inline=True)}$",
            "text": plain,
            # A backslash begins an escape in roff, and @ and braces are commands in Texinfo.
            "manpage": plain.replace("\\", r"\e"),
            "texinfo": re.sub("[@{}]", r"@\g<0>", plain),
        }
        result: list[nodes.Node] = [
            nodes.raw(self.rawtext, shown, format=form) for form, shown in forms.items()
        ]
        return [
            *result,
            *([nodes.Text(f" ({step.evidence.grade.value})")] if step.evidence else []),
        ], []


def _parse_ungraded_formula(typed: str) -> md.Step:
    """Return a formula without a grade. Raises ValueError for a relation."""
    from symattn.document.formulas import formula
    from symattn.document.notation import Relation

    read = formula(typed)
    if isinstance(read, Relation):
        raise ValueError("a relation needs a grade; hint: TOPIC:NUMBER, such as scaling:11")
    return md.Step(read)


def _list_derivation_topics() -> Container[str]:
    """Return the names of derivations."""
    from symattn.derivations import names

    return names()


def _find_derivation_step(topic: str, number: str) -> md.Step:
    from symattn.derivations import derive

    for block, first in numbered(derive(topic)):
        if (
            isinstance(block, md.Steps)
            and number.isdecimal()
            and first <= int(number) < first + len(block.items)
        ):
            return block.items[int(number) - first]
    raise ValueError(f"{topic} has no step {number!r}; hint: TOPIC:NUMBER, such as scaling:11")


def _write_html_answer(writer: Any, node: answer) -> None:
    writer.body.append(node["html"])
    raise nodes.SkipNode


def _write_latex_answer(writer: Any, node: answer) -> None:
    if _is_picture_command(node["words"]):
        _write_plain_answer(writer, node)
        return
    writer.body.append("\n" + _checked_command_output(node, ["-f", "latex", "--fragment"]))
    raise nodes.SkipNode


def _write_plain_answer(_writer: object, node: answer) -> None:
    """Replace the node's children by ones that every writer knows: a picture's words, or a document's text."""
    node.clear()
    if not _is_picture_command(node["words"]):
        text = _checked_command_output(node, [])
        node += nodes.literal_block(text, text, language="none")
        return
    # The picture is an SVG with a title and a description.
    root = ElementTree.fromstring(node["html"])
    title, description = (root.findtext(f"{{*}}{tag}", "") for tag in ("title", "desc"))
    node += nodes.paragraph("", "", nodes.strong("", title), nodes.Text(f". {description}"))


def _leave_answer_node(_writer: object, _node: answer) -> None:
    """Do nothing after the node's children."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Add directives, roles and nodes to Sphinx, which calls this."""
    plain = (_write_plain_answer, _leave_answer_node)
    app.add_node(
        answer,
        html=(_write_html_answer, None),
        latex=(_write_latex_answer, _leave_answer_node),
        text=plain,
        man=plain,
        texinfo=plain,
    )
    app.add_directive("symattn", Directive)
    app.add_directive("symattn-file", File)
    app.add_role("symattn", Formula())
    app.connect("env-purge-doc", _remove_page_files)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
