"""A specification as a document: its formula, what goes in and comes out, and every step with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from symattn.attention import inputs
from symattn.attention.conventions import conventions
from symattn.attention.flow import Step as Part
from symattn.attention.letters_of_attention import ARRAYS, SIZES, SYMBOLS, H, N
from symattn.document.model import Block, Code, Column, Document, Heading, Items, Step, Steps, Table, Text
from symattn.document.notation import Node, Product, equals, node, replaced
from symattn.document.text import text

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def document(spec: Attention, input_names: Iterable[str]) -> Document:
    """The document of ``spec`` for the inputs named in ``input_names``."""
    input_names = tuple(input_names)
    names = list(dict.fromkeys(n for n in (*input_names, *inputs.needed(spec, input_names)) if n in ARRAYS))
    parts = spec.pipeline(names)
    formula = equals(SYMBOLS["output"], whole_formula(spec, names))
    long = tuple((part.symbol, ": ", *part.reason) for part in parts if _is_long(part.reason))  # no room beside them
    blocks: tuple[Block, ...] = (
        Steps((Step(formula, ("in one formula",)),)),
        Heading(("Inputs",)),
        table((n, SYMBOLS[n], times(shape(n, spec, names))) for n in names),
        Heading(("Steps",)),
        Steps(tuple(step(p, shape(p.name, spec, names), not _is_long(p.reason)) for p in parts)),
        *((Items(long),) if long else ()),
        Heading(("Conventions",)),
        Items(tuple(conventions(spec))),
    )
    result = parameters(spec) | {"scale": None if spec.scale is None else str(spec.scale)}
    return Document("derivation", "attention", ("Attention",), blocks, parameters=result)


#: Arrays that a formula stops at: what queries, keys and values are made of is told in the steps.
_LETTERS = {*"qkv", "c_q", "c_kv", "k_r", "cos", "sin", "cos_q", "sin_q", "slopes", "r_k", "p_k", "p_q"}


_LONGEST = 72  # characters of a formula that a line holds
_BESIDE = 70  # of a reason that stands beside one


def whole_formula(spec: Attention, names: Iterable[str]) -> Node:
    """The output in one formula of queries, keys and values: each step after them in place of its letter.

    Where that is longer than a line, the steps from the scores on alone.
    """
    parts = [p for p in spec.pipeline(names) if p.name not in _LETTERS and not p.name.startswith(("w_", "b_"))]
    whole = _composed(parts)
    if len(text(whole)) <= _LONGEST:
        return whole
    return _composed(parts[next(i for i, part in enumerate(parts) if part.name == "scores") :])


def _composed(parts: Iterable[Part]) -> Node:
    formulas: dict[Node, Node] = {}
    for part in parts:
        formulas[part.symbol] = replaced(part.formula, formulas)
    return formulas[SYMBOLS["output"]]


def shape(array: str, spec: Attention, names: Iterable[str]) -> tuple[Node, ...]:
    """The shape of a named array of attention in letters, without axes of batches; n where tokens attend to
    themselves."""
    names = frozenset(names)
    alone = "x" in names and "y" not in names
    return sized(array, spec, names, {"n_q": N, "n_k": N} if alone else {})


def sized(
    array: str, spec: Attention, names: Iterable[str], other: Mapping[str, Node] | None = None
) -> tuple[Node, ...]:
    """Return the letters of the sizes, with n_q for the tokens, or the letter that ``other`` gives."""
    names = frozenset(names)
    letters = {**SIZES, **(other or {})} | ({"g": H} if spec.group == 1 else {})
    axes = inputs.shape(array, spec, names).replace("…", "").replace("(h?)", "").split()
    return tuple(_length(axis.rstrip("?"), letters) for axis in axes)


def _length(axis: str, letters: Mapping[str, Node]) -> Node:
    factors = [letters[f] if f in letters else node(int(f)) for f in axis.split("*")]
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def step(part: Part, size: tuple[Node, ...], beside: bool = True) -> Step:
    """A step with its shape, and its reason where it has one and that stands ``beside``."""
    words = times(size)
    return Step(equals(part.symbol, part.formula), (*words, ": ", *part.reason) if part.reason and beside else words)


def _is_long(reason: Text) -> bool:
    """Return whether a reason has no room beside a formula."""
    words = (text(w) if isinstance(w, Node) else w if isinstance(w, str) else w.text for w in reason)
    return len("".join(words)) > _BESIDE


def times(sizes: tuple[Node, ...]) -> Text:
    """A shape in words: n × d_model."""
    first, *rest = sizes
    return (first, *(piece for size in rest for piece in (" × ", size)))


def table(rows: Iterable[tuple[str, Node, Text]]) -> Table:
    """The table of inputs: name, letter and shape of each."""
    columns = (Column(("name",), "left"), Column(("symbol",), "left"), Column(("shape",), "left"))
    return Table(columns, tuple(((Code(n),), (symbol,), size) for n, symbol, size in rows))


def parameters(spec: Any) -> dict[str, Any]:
    """The fields of a description; those that are no words, numbers or truth values as they are written."""
    values = {f.name: getattr(spec, f.name) for f in fields(spec)}
    return {f: v if v is None or isinstance(v, (bool, int, str)) else str(v) for f, v in values.items()}
