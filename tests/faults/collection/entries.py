"""What an entry of the collection is, and how one is written down: a right program under a decorator that says all
about it, a wrong one in a table, by what is written differently than in its right neighbour.

Each entry is in one of two halves by a hash of its name. Rules of diagnosis are written with the half ``rules`` in
view; figures are reported from the half ``figures``. Of that half, 24 programs that had been named wrongly have been
looked at since."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from textwrap import dedent, indent
from typing import Any, Literal

from symattn import Attention, Domain, Precision

Program = Callable[..., Any]
Half = Literal["rules", "figures"]
#: First wrong steps, in the order of the computation; ``weights`` where no more can be told.
STEPS = (
    "call", "project", "norm", "split", "position", "cache", "score", "scale", "softcap", "bias", "mask", "sink", "max",
    "exp", "normalize", "dropout", "values", "merge", "output", "residual", "lse", "backward", "weights",
)  # fmt: skip


@dataclass(frozen=True)
class At:
    """The sizes and numbers at which a program is compared with the loops.

    ``spread`` multiplies entries N(0, 1); ``given`` makes inputs of its own from those made so far. ``before`` is a
    call made first, whose result must stay what it was; ``transposed`` are arrays that lie so in memory.
    """

    n_q: int = 5
    n_k: int = 7
    d_k: int = 4
    d_v: int = 3
    d_model: int = 10
    batch: tuple[int, ...] = ()
    spread: float = 1.0
    before: At | None = None
    transposed: bool = False
    given: Callable[[dict[str, Any]], dict[str, Any]] = lambda made: {}


@dataclass(frozen=True)
class Entry:
    """A program, what it is to compute, in which precision, and on which inputs it promises to.

    ``layout`` is the order of axes that it wants (``flat``: tokens by heads times columns), ``form`` makes arguments
    of its own from the inputs: lengths, masks with more axes. ``contract`` says whether arrays in between may be kept
    in the precision's format (None: they may).
    """

    program: Program
    family: str
    why: str
    spec: Any = field(default_factory=Attention)
    precision: str = "float32"
    contract: Literal["fused", "stepwise"] | None = None
    domain: Domain = field(default_factory=Domain)
    layout: Literal["nd", "bhnd", "bnhd", "flat"] = "nd"
    at: At = At()
    source: str = ""
    torch: bool = False
    form: Callable[[dict[str, Any]], dict[str, Any]] = lambda given: {}

    @property
    def name(self) -> str:
        """Its own name: two families may share a word."""
        return f"{self.family}.{getattr(self.program, '__name__', '')}"

    @property
    def arithmetic(self) -> Precision:
        """What ``verify`` is told of it."""
        return Precision.of(self.precision, self.contract)

    @property
    def half(self) -> Half:
        """``rules`` or ``figures``, by the first byte of SHA-256 of the name."""
        return "rules" if hashlib.sha256(self.name.encode()).digest()[0] % 2 else "figures"


@dataclass(frozen=True)
class Wrong(Entry):
    """A wrong program: ``why`` says the mistake, ``words`` what a right diagnosis must contain (``a|b``: one of them).

    ``step`` is the first wrong one, ``a|b`` where the words for steps leave two ways to say it. ``shows`` says on which
    inputs it differs, ``near`` names a right program that differs in this mistake alone.
    """

    step: str = "weights"
    words: tuple[str, ...] = ()
    shows: str = "always"
    near: str = ""

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the first wrong step, mostly one."""
        return tuple(self.step.split("|"))

    def named_in(self, text: str) -> bool:
        """Whether a diagnosis says the cause."""
        found = text.lower()
        return all(any(w.lower() in found for w in word.split("|")) for word in self.words)


class Family:
    """The entries of one file, in the order in which they are written."""

    def __init__(self, name: str, **usual: Any) -> None:
        self.name, self.usual = name, usual
        self.right_ones: list[Entry] = []
        self.wrong_ones: list[Wrong] = []

    def right(self, why: str, **more: Any) -> Callable[[Program], Program]:
        """A right program that looks unlike the definition, and ``why`` it is right."""

        def register(program: Program) -> Program:
            self.right_ones.append(Entry(program, self.name, why, **(self.usual | more)))
            return program

        return register

    def others(self, names: dict[str, Any], text: str) -> None:
        """Read right programs that are written otherwise than one above, as ``wrong`` reads wrong ones."""
        entries = {getattr(e.program, "__name__", ""): e for e in self.right_ones}
        for one in written(text, {name: e.program for name, e in entries.items()}, names):
            told = {f.name: getattr(entries[one.right], f.name) for f in fields(Entry)} | {"source": ""}
            told |= {"program": one.program, "why": one.why} | _said(one.parts, names)
            self.right_ones.append(Entry(**told))

    def wrong(self, names: dict[str, Any], text: str) -> None:
        """Read wrong programs from a text (``tests.faults.collection.entries``), for the module with these ``names``.

        ::

            name (right program), step|step: the mistake
                says word|synonym & word; shows the inputs on which it differs; spec=...; source of the mistake
                old text → new text

        A right diagnosis says the words. What a paragraph does not say is as in the right program, its neighbour.
        """
        entries = {getattr(e.program, "__name__", ""): e for e in self.right_ones}
        for one in written(text, {name: e.program for name, e in entries.items()}, names):
            near = entries[one.right]
            told: dict[str, Any] = {f.name: getattr(near, f.name) for f in fields(near)} | {"source": ""}
            told |= {"program": one.program, "near": one.right, "step": one.step, "why": one.why}
            self.wrong_ones.append(Wrong(**told | _said(one.parts, names)))


def _said(parts: Iterable[str], names: dict[str, Any]) -> dict[str, Any]:
    """Return what a paragraph says of a program."""
    told: dict[str, Any] = {}
    for part in filter(None, parts):
        if match := re.match(r"(?:at )?(\w+)=(.*)", part):
            told[match[1]] = eval(match[2], globals() | names)
        else:
            word, rest = part.split(" ", 1)
            told["words" if word == "says" else word] = tuple(rest.split(" & ")) if word == "says" else rest
    return told


# -- Wrong programs as a text: a paragraph each, which says what is written differently than in a right program --------
#     name (right program), step: the mistake, or how it is named
#         says what; key=value; ...
#         old text → new text
#
# The program is the right one with the old text replaced; or, without an arrow, a function of the same parameters
# (others stand in brackets behind the name) with these lines as its body; or, without any line, the function of this
# name. The line that begins with ``says`` or ``at`` may be left out.
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
