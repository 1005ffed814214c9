"""Every string of the code that makes a document, falsified at one place, size for size: which change what is graded.

    python -m tests.proof.statement.strings [NAME…]

NAME is a derivation, ``walk``, ``claim`` or ``bound``. What reads like a formula is changed: a digit, a sign, a letter
that stands alone or has an index. A mutant is refused if the document is not made, and survives if something else
stands in a box or a label that bears a grade, in a table's head or in its caption. Other words are prose, not read.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from random import Random
from types import CodeType, FunctionType, ModuleType
from typing import Any

from symattn import Document, bound, claim, derive, printing, walk
from symattn.derivations import derivation_texts
from symattn.derivations.examples import names as examples
from tests.proof.statement.falsify import DOCUMENTS

OTHER = {"=": "≠", "≠": "=", "≤": "≥", "≥": "≤", "<": ">", ">": "<", "+": "−", "−": "+", "·": "+", "√": "Σ", "Σ": "Π",
         "²": "³", "⁻": "⁺", "→": "=", "/": "·", "×": "+", "^": "_", "∂": "δ", "‖": "|", "|": "‖"}  # fmt: skip
TOKEN = re.compile(r"[0-9Α-Ωα-ω" + re.escape("".join(OTHER)) + r"]|(?<![\w'’])[b-zB-Z](?![A-Za-z'’])")
"""A digit, a sign, a Greek letter, a Latin one that stands alone or before an index; ``a`` and ``A`` are articles."""


REASON = re.compile(r"^(?:\w*- .*? | +):: (?P<reason>.*?)(?: :: .*)?$", re.M)
"""The reason of a claim, in a derivation that is told as a text."""


def mutants(string: str) -> Iterator[str]:
    """The string with one token changed, at every place; none for a name, a sign or words alone."""
    if len(string) == 1 or re.fullmatch(r"[\w\u0300-\u036f]*", string):
        return
    for found in TOKEN.finditer(string):
        old = found[0]
        new = OTHER.get(old) or (str((int(old) + 1) % 10) if old.isdigit() else chr(ord(old) + 1))
        yield string[: found.start()] + new + string[found.end() :]


def literals(module: ModuleType) -> Iterator[tuple[FunctionType, str]]:
    """The functions and methods of a module with the strings in their code, docstrings left out."""
    for value in list(vars(module).values()):
        for member in (value, *(vars(value).values() if isinstance(value, type) else ())):
            function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "func", None) or member)
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                strings = dict.fromkeys(_strings(function.__code__))
                yield from ((function, s) for s in strings if s != function.__doc__)


def texts(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The names of a module's texts, each with the text where one token of a reason is changed."""
    for name, typed in list(vars(module).items()):
        yield from ((name, new) for new in reasons(typed if isinstance(typed, str) else ""))


def reasons(typed: str) -> Iterator[str]:
    """The text of a derivation with one token of a reason changed, in words or in a relation.

    Claims are decided: ``falsify`` has mutants of them. Other formulas of a reason are words, and the letter that a
    definition begins with may be any.
    """
    for line in REASON.finditer(typed):
        for words in re.finditer(r"\$[^$]*\$|[^$]+", line["reason"]):
            start, end = (line.start("reason") + at for at in words.span())
            first = words[0][:2] if words[0].startswith("$") else ""
            changed = mutants(words[0]) if not first or re.search(r"[=≤≥<>]", words[0]) else ()
            yield from (typed[:start] + new + typed[end:] for new in changed if new.startswith(first))


def _strings(code: Any) -> Iterator[str]:
    match code:
        case str():
            yield code
        case tuple():
            yield from (s for part in code for s in _strings(part))
        case CodeType():
            yield from _strings(code.co_consts)


def _changed(code: Any, old: str, new: str) -> Any:
    match code:
        case str():
            return new if code == old else code
        case tuple():
            return tuple(_changed(part, old, new) for part in code)
        case CodeType():
            return code.replace(co_consts=_changed(code.co_consts, old, new))
    return code


def graded(document: Document) -> list[str]:
    """All that stands in the boxes and labels that bear a grade, and over and under tables."""
    found: list[str] = []
    for block in document.blocks:
        match block:
            case printing.Steps(items):
                found += [_words((s.formula, *s.reason, str(s.evidence))) for s in items if s.evidence]
            case printing.Result():
                found += [
                    block.title,
                    _words(block.text),
                    *map(printing.text, block.formulas),
                    *map(str, block.evidence),
                ]
            case printing.Values() if block.evidence:
                found += [
                    block.title,
                    printing.text(block.symbol),
                    _words(block.reason),
                    str(block.evidence),
                    *block.others,
                ]
            case printing.Table():
                found += [*(_words((*c.group, *c.title)) for c in block.columns), _words(block.caption)]
    return found


def _words(said: printing.Text) -> str:
    return "".join(map(_word, said))


def _word(part: object) -> str:
    return (
        printing.text(part) if isinstance(part, printing.Node) else part if isinstance(part, str) else ""
    )  # code is read by its tests


CLAIMS = (("weights", 0.3, 0.7, 0.1), ("weights", 0.33, 0.67), ("similarity", [1, 2], [2, 1]), ("equal", "2**2", "4"),
          ("equal", "x + x", "3*x"), ("equal", "softmax([1, 2])", "[0.27, 0.73]"))  # fmt: skip
Making = tuple[str, Callable[[], Document], tuple[str, ...]]


def makings() -> Iterator[Making]:
    """Label, how a document is made, and the modules whose strings may stand in it."""
    for name, parameters in DOCUMENTS:
        module = f"symattn.derivations.{name.replace('-', '_')}"
        own = (module,) if find_spec(module) else ()  # others are texts alone, whose formulas are read
        yield name, partial(derive, name, **parameters), (*own, *_beside(module))
    rooms = (
        *(f"derivations.walks.{part}" for part in ("steps", "why", "page", "walk_data", "walk_entries")),
        *(f"attention.stages.{part}" for part in ("tokens", "positions", "weights")),
    )
    for name in examples():
        yield f"walk {name}", partial(_walked, name), tuple(f"symattn.{room}" for room in rooms)
    for told in CLAIMS:
        rooms = ("", ".expressions", ".measures")
        yield f"claim {told[0]}", partial(claim, *told), tuple(f"symattn.derivations.claims{room}" for room in rooms)
    rooms = ("bounds.formula", "verification.tolerances.bound_document")
    for told in ({"n": 256}, {"n": 64, "dtype": "bfloat16", "tile": 16}):
        yield "bound", partial(_bound, told), tuple(f"symattn.{room}" for room in rooms)


def _beside(module: str) -> list[str]:
    """Modules whose names begin as that of the derivation does, such as ``scaling_numpy``."""
    return [f"{module}_{part}" for part in ("typical", "numpy")] * module.endswith("scaling")


def _walked(name: str) -> Document:
    found = walk(name, why=True)
    return found if isinstance(found, Document) else found.document()


def _bound(told: dict[str, Any]) -> Document:
    return bound(**told).document().whole()


def survivors(making: Making, share: float = 1.0, seed: int = 7) -> Iterator[str]:
    """The mutants with which the document is made and something that is graded differs; of a share, drawn by a seed."""
    label, make, modules = making
    random, honest = Random(seed), graded(make())
    filed = derivation_texts.text_of(label) if (files("symattn") / f"derivations/texts/{label}.txt").is_file() else ""
    for mutant in (new for new in reasons(filed) if random.random() < share):
        if _outcome(make, derivation_texts, "text_of", {label: mutant}.__getitem__) not in (None, honest):
            yield f"{label}: {_line_apart(filed, mutant)}"
    for module in map(import_module, modules):
        coded = ((function, "__code__", _changed(function.__code__, old, new), f"{old!r} as {new!r}")
                 for function, old in literals(module) for new in mutants(old))  # fmt: skip
        typed = ((module, name, new, _line_apart(vars(module)[name], new)) for name, new in texts(module))
        for place, name, mutant, words in (*coded, *typed):
            if random.random() < share and (seen := _outcome(make, place, name, mutant)) not in (None, honest):
                changed = next((f for f in seen if f not in honest), "something is gone")
                yield f"{module.__name__}: {words}: {changed}"


def _line_apart(old: str, new: str) -> str:
    return next(line for line in new.splitlines() if line not in old.splitlines())


def _outcome(make: Callable[[], Document], place: object, name: str, mutant: object) -> list[str] | None:
    """What is graded where a function or a module has another string; None where the document is refused."""
    honest = getattr(place, name)
    setattr(place, name, mutant)
    try:
        return graded(make())
    except Exception:
        return None
    finally:
        setattr(place, name, honest)


def main(names: list[str]) -> None:
    """Print what survives, for each document."""
    for making in makings():
        if not names or making[0].split()[0] in names:
            found = list(survivors(making))
            print(f"{making[0]:28} {len(found):3} survive", *found, sep="\n    ", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
