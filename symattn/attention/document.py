"""A specification as a document: its formula, its inputs, and every step with its shape and reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from symattn.attention import inputs
from symattn.attention.flow import Step as Part
from symattn.attention.letters_of_attention import ARRAYS, SIZES, SYMBOLS, H, N
from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, Rotary, Shaw
from symattn.attention.softmax import NORMALISERS
from symattn.document.formulas import Roles, running_text
from symattn.document.model import (
    Block,
    Code,
    Document,
    Heading,
    Items,
    Step,
    Steps,
    Table,
    Text,
    headers,
)
from symattn.document.notation import Node, Product, WrittenNumber, equals, node, replaced
from symattn.document.text import text

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def document(spec: Attention, input_names: Iterable[str]) -> Document:
    """Return the document of ``spec`` for the inputs named in ``input_names``."""
    input_names = tuple(input_names)
    names = list(
        dict.fromkeys(n for n in (*input_names, *inputs.needed(spec, input_names)) if n in ARRAYS)
    )
    parts = spec.pipeline(names)
    formula = equals(SYMBOLS["output"], whole_formula(spec, names))
    # no room beside them
    long = tuple((part.symbol, ": ", *part.reason) for part in parts if _is_long(part.reason))
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


#: Arrays that the whole formula does not expand: the steps show how they are computed.
_LETTERS = {
    *"qkv",
    "c_q",
    "c_kv",
    "k_r",
    "cos",
    "sin",
    "cos_q",
    "sin_q",
    "slopes",
    "tau",
    "r_k",
    "p_k",
    "p_q",
}


_LONGEST = 72  # characters of a formula that fits a line
_BESIDE = 70  # characters of a reason that fits next to a formula


def whole_formula(spec: Attention, names: Iterable[str]) -> Node:
    """Return the output as one formula in queries, keys and values, with each later step in place of its letter.

    If that is longer than a line, only the steps after the scores are expanded.
    """
    parts = [
        p
        for p in spec.pipeline(names)
        if p.name not in _LETTERS and not p.name.startswith(("w_", "b_"))
    ]
    whole = _compose_formula_of_output(parts)
    if len(text(whole)) <= _LONGEST:
        return whole
    return _compose_formula_of_output(
        parts[next(i for i, part in enumerate(parts) if part.name == "scores") :]
    )


def _compose_formula_of_output(parts: Iterable[Part]) -> Node:
    formulas: dict[Node, Node] = {}
    # Each formula replaces its letter in the later ones, so the last one is whole.
    for part in parts:
        formulas[part.symbol] = replaced(part.formula, formulas)
    return formulas[SYMBOLS["output"]]


def shape(array: str, spec: Attention, names: Iterable[str]) -> tuple[Node, ...]:
    """Return the shape of an array of attention in letters, without batch axes, with n for n_q and n_k if tokens attend
    to themselves."""
    names = frozenset(names)
    # In self-attention there is one number of tokens.
    alone = "x" in names and "y" not in names
    return sized(array, spec, names, {"n_q": N, "n_k": N} if alone else {})


def sized(
    array: str, spec: Attention, names: Iterable[str], other: Mapping[str, Node] | None = None
) -> tuple[Node, ...]:
    """Return the letters of an array's axes; ``other`` replaces some of them."""
    names = frozenset(names)
    # Without shared heads the keys have as many as the queries.
    letters = {**SIZES, **(other or {})} | ({"g": H} if spec.group == 1 else {})
    axes = inputs.shape(array, spec, names).replace("…", "").replace("(h?)", "").split()
    return tuple(_formula_of_axis_length(axis.rstrip("?"), letters) for axis in axes)


def _formula_of_axis_length(axis: str, letters: Mapping[str, Node]) -> Node:
    factors = [letters[f] if f in letters else node(int(f)) for f in axis.split("*")]
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def step(part: Part, size: tuple[Node, ...], beside: bool = True) -> Step:
    """Return a step with its shape and, if ``beside``, its reason."""
    words = times(size)
    return Step(
        equals(part.symbol, part.formula),
        (*words, ": ", *part.reason) if part.reason and beside else words,
    )


def _is_long(reason: Text) -> bool:
    """Return whether a reason is too long to print next to its formula."""
    words = (
        text(w) if isinstance(w, Node) else w if isinstance(w, str) else w.text for w in reason
    )
    return len("".join(words)) > _BESIDE


def times(sizes: tuple[Node, ...]) -> Text:
    """Return a shape as text: n × d_model; that of an array without axes is ``one number``."""
    if not sizes:
        return ("one number",)
    first, *rest = sizes
    return (first, *(piece for size in rest for piece in (" × ", size)))


def table(rows: Iterable[tuple[str, Node, Text]]) -> Table:
    """Return the table of inputs: name, symbol and shape of each."""
    columns = headers("name", "symbol", "shape")
    return Table(columns, tuple(((Code(n),), (symbol,), size) for n, symbol, size in rows))


def parameters(spec: Any) -> dict[str, Any]:
    """Return the fields of a description; values other than strings, integers and booleans are converted to text."""
    values = {f.name: getattr(spec, f.name) for f in fields(spec)}
    as_they_are = (bool, int, str, type(None))
    return {f: v if isinstance(v, as_they_are) else str(v) for f, v in values.items()}


# -- the conventions, sentence by sentence -----------------------------------------------------------------------------
# Roles of letters in running text.
_ROLES: Roles = {"a": "weight", "s": "score", "q": "query"}


def conventions(spec: Attention) -> Iterator[Text]:
    """Return the sentences on conventions."""
    return (running_text(typed, _ROLES) for typed in _yield_attention_conventions(spec))


def _yield_attention_conventions(spec: Attention) -> Iterator[str]:
    yield from _yield_head_conventions(spec)
    yield from _yield_vector_conventions(spec)
    yield from _yield_position_conventions(spec)
    yield from _yield_score_operation_order(spec)
    yield from _yield_weight_conventions(spec)
    if spec.masks_anything:
        yield "a score that is masked is $−∞$, and its weight 0"
        ends = {
            "zeros": "gives zeros",
            "nan": "gives 0/0, which is undefined",
            "error": "is an error",
        }
        yield f"a row in which every key is masked {ends[spec.fully_masked]}"
    if spec.mask == "boolean" or spec.padding:
        yield "boolean masks hold True where a query may attend"
    if spec.documents:
        yield "tokens with the same label are of one document; places are counted from its first token"
    if spec.dropout:
        yield f"weights that are kept are divided by {1 - Fraction(str(spec.dropout))}"
    if spec.lse:
        yield f"the second result is $L_i = log{'_2' if spec.base else ''}({_formula_of_softmax_divisor(spec)})$"


def _yield_weight_conventions(spec: Attention) -> Iterator[str]:
    if not spec.is_softmax:
        yield NORMALISERS[spec.normaliser].at_bias(spec.bias).convention
        return
    divisor = _formula_of_softmax_divisor(spec)
    yield f"softmax is taken over the keys: $a_ij = {spec.base or 'e'}^{{s_ij}}/{{{divisor}}}$"
    if spec.stabilised and spec.sink is None:
        yield "before exponentiating, the row maximum is subtracted: $s_ij → s_ij − max_ℓ s_iℓ$"
    elif spec.stabilised:
        sink = "0" if spec.sink == "zero" else "z"
        yield f"the largest of row and sink is subtracted first: $s_ij → s_ij − max({sink}, max_ℓ s_iℓ)$"


def _formula_of_softmax_divisor(spec: Attention) -> str:
    """Return the sum of powers over the keys and the sink, as a formula."""
    base = spec.base or "e"
    return {"zero": "1 + ", "given": f"{base}^z + ", None: ""}[spec.sink] + f"Σ_ℓ {base}^{{s_iℓ}}"


def _yield_head_conventions(spec: Attention) -> Iterator[str]:
    if spec.packed:
        yield "the columns of packed projections are those of queries, keys, values, head by head"
    if 1 == spec.key_heads < spec.heads:
        yield "all query heads read the one head of keys and values"
    elif spec.key_heads < spec.heads:
        times = spec.group
        yield f"the first {times} query heads read the first head of keys and values, the next {times} the second"
    if spec.latent is None:
        return
    yield "the part with positions stands after the part without, and is one for all heads"
    if spec.latent.absorbed:
        yield "with the matrices absorbed, no key and no value is made"
    if spec.latent.norm:
        yield f"latents are divided by ${_formula_of_rms_norm('c_l', spec.latent.eps)}$, then multiplied by their gain"


def _formula_of_rms_norm(x: str, eps: int | float | Fraction) -> str:
    """√(mean(x²) + ε)."""
    return f"√{{mean({x}²){f' + {{{WrittenNumber(eps).typed}}}' if eps else ''}}}"


def _yield_vector_conventions(spec: Attention) -> Iterator[str]:
    both = spec.qk_norm_of == "both"
    if spec.qk_norm == "l2":
        yield f"{'queries and keys' if both else 'keys'} are divided by their lengths, head by head"
    elif spec.qk_norm:
        less = "less its mean, " if spec.qk_norm == "layer" else ""
        root = _formula_of_rms_norm("q_l" if both else "k_l", spec.eps)
        place = f"{spec.qk_norm_place} positions"
        over = "all heads together" if spec.qk_norm_over == "heads" else "head by head"
        yield f"each {'query and key' if both else 'key'}, {over} and {place}, is {less}divided by ${root}$"
    if spec.value_norm:
        yield f"each value, head by head, is divided by ${_formula_of_rms_norm('v_l', spec.eps)}$"
    if spec.truncate:
        yield f"scores see the first {spec.truncate} columns of queries and keys, d_k is the width of the whole"
    if spec.score == "cosine":
        yield "unit(·) divides each row by its length"


def _yield_score_operation_order(spec: Attention) -> Iterator[str]:
    """Yield the order of the operations on scores, unless it is the usual one."""
    by_distance = isinstance(spec.position, Alibi | Buckets)
    operations = [
        ("scaled", spec.scale != 1 and (spec.scale is not None or spec.score == "dot")),
        ("multiplied by temperatures", spec.temperature is not None),
        ("capped", spec.softcap is not None),
        ("biased", spec.bias or by_distance),
        ("masked", spec.masks_anything),
    ]
    words = [word for word, applies in operations if applies]
    # Scaling before masking is the order that readers expect.
    if len(words) > 2 or (len(words) > 1 and words != ["scaled", "masked"]):
        yield f"scores are {', then '.join(words)}"


def _yield_position_conventions(spec: Attention) -> Iterator[str]:
    position = spec.position
    end = "last" if spec.alignment == "bottom-right" else "first"
    if spec.temperature is not None:
        yield f"places of temperatures are counted from {spec.temperature_start}, the place of the first key"
    if isinstance(position, Rotary):
        yield from _yield_rotary_conventions(position, end)
    elif isinstance(position, Alibi):
        slopes = "given" if position.slopes == "given" else "powers of two, by the number of heads"
        yield f"slopes are {slopes}; distances are counted so that the {end} ones stand together"
    elif isinstance(position, Buckets):
        yield f"distances are counted so that the {end} ones stand together; they are in {position.number} buckets"
        yield _describe_distance_buckets(position)
    elif position is not None:
        row = "rel(·) multiplies each row with the row of a table for the distance of query $i$ and key $j$"
        if isinstance(position, Shaw):
            row += f", cut to −{position.most} … {position.most}"
        elif isinstance(position, Disentangled):
            row += f", cut to −{position.span} … {position.span - 1}"
        yield row


def _describe_distance_buckets(buckets: Buckets) -> str:
    each = buckets.number // 2 if buckets.bidirectional else buckets.number
    few = each // 2
    single = (
        "the distance 0 has a bucket"
        if few == 1
        else f"the distances 0 to {few - 1} have a bucket each"
    )
    ahead = (
        f"keys ahead have {each} buckets of their own"
        if buckets.bidirectional
        else "keys ahead are in the first one"
    )
    return f"{single}, those from {buckets.max_distance} on one together; {ahead}"


def _yield_rotary_conventions(rotary: Rotary, end: str) -> Iterator[str]:
    pairs = "ℓ and ℓ + r/2" if rotary.layout == "half" else "2ℓ and 2ℓ + 1"
    width = 2 * len(rotary.triples) if rotary.triples else rotary.width
    what = f"the first r = {width} columns" if width else "all r columns"
    what = (
        "the first r columns, twice as many as the tables have"
        if rotary.given == "tables"
        else what
    )
    yield f"rotate turns {what}; {pairs} are a pair, counted from 0"
    if rotary.given is None:
        numbers = f"{rotary.start}, {rotary.start + 1}, …"
        yield f"keys have the positions {numbers}; the {end} query has that of the {end} key"
    else:
        yield f"{rotary.given} are given; without those of queries, the {end} query has that of the {end} key"
    if rotary.sections:
        yield f"positions have {len(rotary.sections)} rows, one for each section of the pairs"
