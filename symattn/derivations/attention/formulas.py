"""How the entries of each array of attention are written: textbook sums, typed, each with its reason."""

from __future__ import annotations

import re

from symattn.attention.flow import Step
from symattn.attention.inputs import lengths
from symattn.attention.inputs import shape as shape_of
from symattn.attention.notation import SIZES
from symattn.derivations.attention.inputs import DerivationRequest
from symattn.derivations.attention.letters import entry
from symattn.document.formulas import formula, running_text
from symattn.document.model import Text
from symattn.document.notation import Like, Name, Node, Row, Words, commas

Formulas = list[tuple[Node, Text | str]]
_HEADS = re.compile(r"a\?(?:,|·(\w+) \+ )")
_DIFFER, _EMPTY = re.compile(r"⟨([^|⟩]*)(?:\|([^⟩]*))?⟩"), re.compile(r"⟦(.*?)⟧")
_LEFT_OVER = re.compile(r"⌈(.*?)⌉")
_PLACE = re.compile(r"(?P<array>\w+)\[(?P<index>[^]]*)\]|\b(?P<axis>rows|width)(?:_(?P<of>\w+))?\b")


def entry_formulas(request: DerivationRequest, step: Step) -> Formulas:
    """Read the entries of a step, as ``symattn.attention.flow`` says that they are typed; none that no textbook has."""
    typed, many, differ = step.entries, request.spec.heads > 1, request.n_q != request.n_k
    known: dict[str, Like] = {"head": Name("a") if many else 1, "distance": commas("δ", "l"), **typed.letters}

    def chosen(line: str) -> str:
        line = _LEFT_OVER.sub(lambda m: m[1] if _leaves_columns(request, step) else "", line)
        for_some = _EMPTY.sub(lambda m: "" if request.every_row_has_a_key() else m[1], line)
        return _DIFFER.sub(lambda m: m[1] if differ else m[2] or "", for_some)

    def named(array: str) -> str:
        return step.of[int(array)] if array.isdigit() else step.name if array == "out" else array

    def place(match: re.Match[str]) -> str:
        if match["axis"]:
            result = _size(request, named(match["of"] or "out"), 0 if match["axis"] == "rows" else -1)
        else:
            result = entry(named(match["array"]), *map(read, match["index"].split(",")))
        known[key := f"place{len(known)}"] = result
        return f"@{key}"

    def read(part: str) -> Node:
        return formula(_PLACE.sub(place, part), {}, known)

    def line(written: str) -> tuple[Node, Text]:
        heads = _HEADS.sub(lambda m: (f"{{a − 1}} {m[1]} + " if m[1] else "a,") if many else "", written)
        typed_out, _, reason = heads.partition(" -- ")
        relation, _, when = typed_out.partition(" for ")
        condition = read(when.strip("$")) if "$" in when else Words(when)
        whole = Row((read(relation), Words("for"), condition)) if when else read(relation)
        return whole, running_text(reason, {}, known)

    return [line(each) for each in map(chosen, typed.lines) if each]


def _leaves_columns(request: DerivationRequest, step: Step) -> bool:
    width, pairs = (lengths(name, request.spec, request.names, request.lengths)[-1] for name in step.of[:2])
    return width > 2 * pairs


def _size(request: DerivationRequest, array: str, axis: int) -> Node:
    """The letter of the length of an axis, of heads side by side that of one head."""
    letters = shape_of(array, request.spec, request.names).split()
    return SIZES[letters[axis].split("*")[-1].rstrip("?")]
