"""Formulas for the entries of each array of attention: letters such as q_il, and textbook sums."""

from __future__ import annotations

import re
from collections.abc import Iterable

from symattn.attention.flow import Step
from symattn.attention.inputs import lengths
from symattn.attention.inputs import shape as shape_of
from symattn.attention.letters_of_attention import SIZES, SYMBOLS
from symattn.derivations.attention.inputs import DerivationRequest
from symattn.document.formulas import formula, running_text
from symattn.document.model import Text
from symattn.document.notation import Call, Like, Name, Node, Product, Row, Words, commas, node

Formulas = list[tuple[Node, Text | str]]
_HEADS = re.compile(r"a\?(?:,|·(\w+) \+ )")
_DIFFER, _EMPTY = re.compile(r"⟨([^|⟩]*)(?:\|([^⟩]*))?⟩"), re.compile(r"⟦(.*?)⟧")
_LEFT_OVER = re.compile(r"⌈(.*?)⌉")
_PLACE = re.compile(r"(?P<array>\w+)\[(?P<index>[^]]*)\]|\b(?P<axis>rows|width)(?:_(?P<of>\w+))?\b")


def entry_formulas(request: DerivationRequest, step: Step) -> Formulas:
    """Return the formulas of a step's entries, typed as ``symattn.attention.flow`` says; [] if it has none."""
    many, differ = request.spec.heads > 1, request.n_q != request.n_k
    known: dict[str, Like] = {
        "head": Name("a") if many else 1,
        "distance": commas("δ", "l"),
        **step.values,
    }

    def left_over(match: re.Match[str]) -> str:
        operands = step.of[:2]
        width, pairs = (
            lengths(name, request.spec, request.names, request.lengths)[-1] for name in operands
        )
        return match[1] if width > 2 * pairs else ""

    def chosen(line: str) -> str:
        line = _LEFT_OVER.sub(left_over, line)
        for_some = _EMPTY.sub(lambda m: "" if request.every_row_has_a_key() else m[1], line)
        return _DIFFER.sub(lambda m: m[1] if differ else m[2] or "", for_some)

    def named(array: str) -> str:
        if array.isdigit():
            return step.of[int(array)]
        return step.name if array == "out" else array

    def place(match: re.Match[str]) -> str:
        if match["axis"]:
            axes = shape_of(named(match["of"] or "out"), request.spec, request.names).split()
            axis = axes[0 if match["axis"] == "rows" else -1]
            # for heads side by side, that of one head
            result = SIZES[axis.split("*")[-1].rstrip("?")]
        else:
            indices = map(read, match["index"].split(","))
            result = entry(named(match["array"]), *indices)
        known[key := f"place{len(known)}"] = result
        return f"@{key}"

    def read(part: str) -> Node:
        return formula(_PLACE.sub(place, part), {}, known)

    def line(written: str) -> tuple[Node, Text]:
        heads = _HEADS.sub(
            lambda m: (f"{{a − 1}} {m[1]} + " if m[1] else "a,") if many else "", written
        )
        typed_out, _, reason = heads.partition(" -- ")
        relation, _, when = typed_out.partition(" for ")
        condition = read(when.strip("$")) if "$" in when else Words(when)
        whole = Row((read(relation), Words("for"), condition)) if when else read(relation)
        return whole, running_text(reason, {}, known)

    return [line(each) for each in map(chosen, step.entries) if each]


# -- letters -----------------------------------------------------------------------------------------------------------
# identified by colour, without subscript
_PLAIN = {"w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o"}


def entry(array: str, *index: Like) -> Node:
    """Return the letter of an entry."""
    return indexed(SYMBOLS[array], index, plain=array in _PLAIN)


def indexed(symbol: Node, index: tuple[Like, ...], plain: bool = False) -> Node:
    """Return the lower-case letter of an array with indices; with ``plain``, without its own subscript."""
    if isinstance(symbol, Call):
        return Call(symbol.function, tuple(indexed(part, index) for part in symbol.arguments))
    assert isinstance(symbol, Name)
    base = symbol.base if len(symbol.base.rstrip("'")) > 1 else symbol.base.lower()
    indices = () if plain else symbol.sub
    return Name(base, (*indices, *map(node, index)), symbol.role)


# -- with numbers for indices ------------------------------------------------------------------------------------------
def product_letter(weights: str, values: str, index: Iterable[int]) -> Node:
    """Return the letters of an entry of weighted values, a₁₂v₂₁."""
    *front, i, j, c = index
    weight = row_symbol(weights, *front, i, j)
    return Product((weight, row_symbol(values, *front, j, c)))


def row_symbol(array: str, *index: Like) -> Node:
    """Return the letter of a row, q₁, or of an entry, s₁₂."""
    return indexed(SYMBOLS[array], index)
