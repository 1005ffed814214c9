"""A specification as a document: its formula, what goes in and comes out, and every step with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from symattn.attention.notation import D_K, D_MODEL, D_V, N_K, N_Q, SYMBOLS, H, N, whole_formula
from symattn.attention.pipeline import Step as Part
from symattn.document.model import Block, Code, Column, Document, Heading, Items, Step, Steps, Table, Text
from symattn.document.notation import Big, Name, Node, Power, Product, call, equals, name, relation

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

_A, _S = name("a", "i", "j", role="weight"), name("s", "i", "j", role="score")


def document(spec: Attention, given: Iterable[str]) -> Document:
    """The document of ``spec`` for the inputs named in ``given``."""
    names = [n for n in (*given, *_masks(spec)) if n in SYMBOLS]
    parts = spec.pipeline(names)
    formula = equals(SYMBOLS["output"], _whole(spec, names))
    blocks: tuple[Block, ...] = (
        Steps((Step(formula, ("in one formula",)),)),
        Heading(("Inputs",)),
        _table([(n, shape(n, spec, names)) for n in dict.fromkeys(names)]),
        Heading(("Steps",)),
        Steps(tuple(_step(part, spec, names) for part in parts)),
        Heading(("Conventions",)),
        Items(tuple(_conventions(spec))),
    )
    return Document("derivation", "attention", ("Attention",), blocks, parameters=_parameters(spec))


def _masks(spec: Attention) -> list[str]:
    return [n for n, used in (("mask", spec.mask is not None), ("keep", spec.padding)) if used]


def _whole(spec: Attention, names: list[str]) -> Node:
    formula = whole_formula(spec.scale, spec.masks_anything)
    if spec.heads > 1:
        formula = call("concat", formula)
    if "w_o" in names:
        formula = formula * SYMBOLS["w_o"]
    return formula + SYMBOLS["b_o"] if "b_o" in names else formula


def shape(array: str, spec: Attention, given: Iterable[str]) -> tuple[Node, ...]:
    """The shape of a named array of attention in letters, without axes of batches."""
    given = frozenset(given)
    n_q, n_k = (N, N) if "x" in given and "y" not in given else (N_Q, N_K)
    projected = "w_q" in given
    d_k, d_v = (D_K, D_V) if projected or "x" not in given else (D_MODEL, D_MODEL)
    heads = (H,) if spec.heads > 1 else ()
    wide = {role: Product((H, d)) if heads else d for role, d in (("q", D_K), ("k", D_K), ("v", D_V), ("o", D_MODEL))}
    square = (*heads, n_q, n_k)
    out = D_MODEL if "w_o" in given else wide["v"] if projected else d_v
    shapes: dict[str, tuple[Node, ...]] = {
        "x": (n_q, D_MODEL), "y": (n_k, D_MODEL), "mask": (n_q, n_k), "keep": (n_k,),
        "q": (*heads, n_q, d_k), "k": (*heads, n_k, d_k), "v": (*heads, n_k, d_v),
        "w_o": (wide["v"], D_MODEL), "b_o": (D_MODEL,),
        "scores": square, "scaled": square, "masked": square, "weights": square,
        "attended": (*heads, n_q, d_v), "output": (n_q, out),
    }  # fmt: skip
    shapes |= {f"w_{role}": (D_MODEL, wide[role]) for role in "qkv"} | {f"b_{role}": (wide[role],) for role in "qkv"}
    return shapes[array]


def _step(part: Part, spec: Attention, names: list[str]) -> Step:
    size = _times(shape(part.name, spec, names))
    return Step(equals(part.symbol, part.formula), (*size, ": ", *part.reason) if part.reason else size)


def _times(sizes: tuple[Node, ...]) -> Text:
    first, *rest = sizes
    return (first, *(piece for size in rest for piece in (" × ", size)))


def _table(rows: list[tuple[str, tuple[Node, ...]]]) -> Table:
    columns = (Column(("name",), "left"), Column(("symbol",), "left"), Column(("shape",), "left"))
    return Table(columns, tuple(((Code(n),), (SYMBOLS[n],), _times(sizes)) for n, sizes in rows))


def _conventions(spec: Attention) -> Iterable[Text]:
    exponential = Power(Name("e"), _S)
    total = Big("sum", name("ℓ"), None, None, Power(Name("e"), name("s", "i", "ℓ", role="score")))
    yield "softmax is taken over the keys: ", equals(_A, exponential / total)
    if spec.stabilised:
        largest = Big("max", name("ℓ"), None, None, name("s", "i", "ℓ", role="score"))
        yield "before exponentiating, the row maximum is subtracted: ", relation(_S, "→", _S - largest)
    if spec.masks_anything:
        yield (
            "a score that is masked is ",
            -Name("∞"),
            ", and its weight 0",
        )
        ends = {"zeros": "gives zeros", "nan": "gives 0/0, which is undefined", "error": "is an error"}
        yield (f"a row in which every key is masked {ends[spec.fully_masked]}",)
    if spec.mask == "boolean" or spec.padding:
        yield ("boolean masks hold True where a query may attend",)


def _parameters(spec: Attention) -> dict[str, str | int | bool | None]:
    fields = {f: getattr(spec, f) for f in spec.__dataclass_fields__}
    return fields | {"scale": None if spec.scale is None else str(spec.scale)}
