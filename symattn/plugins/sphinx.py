"""For Sphinx and MyST: a directive with a command's whole answer, a role with one formula.

In ``conf.py``: ``extensions = ["symattn.plugins.sphinx"]``. Then::

    .. symattn:: derive scaling --dk 4

    .. symattn:: claim weights 0.3 0.7 0.1
       :exit: 1

    By :symattn:`scaling:11` scores are divided by √d_k.

The directive fails a build that lies: its command runs while the page is read, and an exit code other than ``exit``, by
default 0, ends the build: a claim that is false, a function with a fault, a name that no longer exists. The role fails
where there is no such step. HTML and LaTeX show documents in their own form, other builders as text; of a picture all
but HTML show title and description.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import Any, ClassVar
from xml.etree import ElementTree

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.parsers.rst.states import Inliner
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from symattn.document import model as md
from symattn.document.tex import tex
from symattn.errors import SymattnError
from symattn.render.common import numbered, plain_text
from symattn.render.mathml import mathml

_PICTURES = "draw"


class answer(nodes.General, nodes.Element):  # docutils finds visitors by the name of the class
    """A command with what it printed as HTML; other forms are made when they are written."""


class Directive(SphinxDirective):
    """``.. symattn:: COMMAND``: everything that the command answers."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {"exit": directives.nonnegative_int}

    def run(self) -> list[nodes.Node]:
        """The answer. Raises ``ExtensionError`` where the command ends otherwise than it should."""
        words, wanted = shlex.split(self.arguments[0]), self.options.get("exit", 0)
        form = ["--fragment"] if words[:1] == [_PICTURES] else ["-f", "html", "--fragment"]
        found = answer("", words=words, exit=wanted, place=self.get_location())
        found["html"] = _printed(found, form)
        return [found]


def _printed(node: answer, form: list[str]) -> str:
    """What the command of a node prints. Raises ``ExtensionError`` where it ends otherwise than it should."""
    words, wanted = node["words"], node["exit"]
    ran = _ran([*words, *form])
    if ran.returncode != wanted:
        why = ran.stderr.strip().splitlines()[-1:] or ["see what it prints"]
        told = f"`symattn {shlex.join(words)}` ends with {ran.returncode} and not {wanted}: {why[0]}"
        raise ExtensionError(f"{node['place']}: {told}")
    return ran.stdout


def _ran(words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "symattn_cli", *words]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


def formula(
    name: str, raw: str, text: str, line: int, inliner: Inliner, options: Any = None, content: Any = None
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """``:symattn:`TOPIC:NUMBER```: the formula of that step of a derivation, and its grade in brackets.

    Raises ``ExtensionError`` for a topic or a step that there is not.
    """
    topic, _, number = text.partition(":")
    try:
        step = _step(topic.strip(), number.strip())
    except (SymattnError, ValueError) as error:
        raise ExtensionError(f"line {line}: :symattn:`{text}`: {error}") from error
    plain = plain_text((step.formula,))
    forms = {
        "html": mathml(step.formula, inline=True),
        "latex": f"${tex(step.formula, inline=True)}$",
        "text": plain,
        "manpage": plain.replace("\\", r"\e"),
        "texinfo": re.sub("[@{}]", r"@\g<0>", plain),
    }
    found: list[nodes.Node] = [nodes.raw(raw, shown, format=form) for form, shown in forms.items()]
    return [*found, *([nodes.Text(f" ({step.evidence.grade.value})")] if step.evidence else [])], []


def _step(topic: str, number: str) -> md.Step:
    from symattn.derivations import derive

    for block, first in numbered(derive(topic)):
        if isinstance(block, md.Steps) and number.isdecimal() and first <= int(number) < first + len(block.items):
            return block.items[int(number) - first]
    raise ValueError(f"{topic} has no step {number!r}; mend: TOPIC:NUMBER, such as scaling:11")


def _html(writer: Any, node: answer) -> None:
    writer.body.append(node["html"])
    raise nodes.SkipNode


def _latex(writer: Any, node: answer) -> None:
    if node["words"][:1] == [_PICTURES]:
        _plain(writer, node)
        return
    writer.body.append("\n" + _printed(node, ["-f", "latex", "--fragment"]))
    raise nodes.SkipNode


def _plain(_writer: Any, node: answer) -> None:
    """Give the node what every writer knows: the words of a picture, or the text of a document as it is laid out."""
    node.clear()
    if node["words"][:1] != [_PICTURES]:
        text = _printed(node, [])
        node += nodes.literal_block(text, text, language="none")
        return
    root = ElementTree.fromstring(node["html"])
    title, description = (root.findtext(f"{{*}}{tag}", "") for tag in ("title", "desc"))
    node += nodes.paragraph("", "", nodes.strong("", title), nodes.Text(f". {description}"))


def _leave(_writer: Any, _node: answer) -> None:
    """Nothing stands behind what the node holds."""


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    plain = (_plain, _leave)
    app.add_node(answer, html=(_html, None), latex=(_latex, _leave), text=plain, man=plain, texinfo=plain)
    app.add_directive("symattn", Directive)
    app.add_role("symattn", formula)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
