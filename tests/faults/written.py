"""Wrong programs as a text: a paragraph each, which says what is written differently than in a right program.

::

    name (right program), step: the mistake, or how it is named
        says what; key=value; ...
        old text → new text

The program is the right one with the old text replaced; or, without an arrow, a function of the same parameters (others
stand in brackets behind the name) with these lines as its body; or, without any line, the function of this name. The
line that begins with ``says`` or ``at`` may be left out.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from textwrap import dedent, indent
from typing import Any

Program = Callable[..., Any]
_PARAGRAPH = re.compile(
    r"(\w+)(\(.*?\))? \((\w+)\)(?:, ([\w|]+))?: ([^\n]*(?:\n {8}[^\n]*)*)"
    r"(?:\n    ((?:says|at) (?:[^\n]*;\n)*[^\n]*))?(\n.*)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Written:
    """A paragraph: the names of the program and of the right one, the step, the mistake, and the other things said."""

    name: str
    right: str
    step: str
    why: str
    parts: tuple[str, ...]
    program: Program


def written(text: str, rights: Mapping[str, Program], names: dict[str, Any]) -> Iterator[Written]:
    """Read the paragraphs of a text, for the module with these ``names``."""
    for paragraph in re.split(r"\n(?=\S)", text.strip()):
        if not (match := _PARAGRAPH.fullmatch(paragraph)):
            raise ValueError(f"not a wrong program: {paragraph}")
        name, parameters, right, step, why, parts, body = match.groups()
        program = _program(name, parameters, rights[right], dedent(body or "").strip(), names)
        yield Written(name, right, step or "", _joined(why), tuple(_joined(parts or "").split("; ")), program)


def _joined(text: str) -> str:
    return " ".join(text.split())


def _program(name: str, parameters: str | None, right: Program, body: str, names: dict[str, Any]) -> Program:
    """Return a function from the text of a paragraph; ``inspect`` reads its source as that of any other."""
    if not body:
        return names[name]
    source = dedent(inspect.getsource(right))
    source = source[source.index(f"def {right.__name__}(") :].replace(right.__name__, name, 1)
    if " → " in body:
        names = right.__globals__
        for old, new in (line.split(" → ") for line in body.splitlines()):
            if source.count(old) != 1:
                raise ValueError(f"{name}: {old!r} stands {source.count(old)} times in {right.__name__}")
            source = source.replace(old, new)
    else:
        given = parameters or "(" + ", ".join(str(p.replace(annotation=p.empty)) for p in _signature(right)) + ")"
        source = f"def {name}{given}:\n{indent(body, '    ')}\n"
    file = f"{names['__file__']}:{name}"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    made: dict[str, Program] = {}
    exec(compile(source, file, "exec"), names, made)
    return made[name]


def _signature(program: Program) -> Iterable[inspect.Parameter]:
    return inspect.signature(program).parameters.values()
