"""The conventions of a specification, sentence by sentence: what a weight is, and what masks and sinks do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, assert_never

from symattn.attention.letters_of_attention import N_K, SYMBOLS
from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, Position, Rotary, Shaw
from symattn.document.model import Text
from symattn.document.notation import Big, Name, Node, Over, Power, Root, call, commas, equals, name, node, relation

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

_A, _S = name("a", "i", "j", role="weight"), name("s", "i", "j", role="score")
_OTHER, _L = name("s", "i", "ℓ", role="score"), name("ℓ")


def conventions(spec: Attention) -> Iterable[Text]:
    """The sentences, for a list."""
    yield from _heads(spec)
    yield from _vectors(spec)
    yield from _positions(spec)
    yield from _order(spec)
    yield from _weights(spec)
    if spec.masks_anything:
        yield "a score that is masked is ", -Name("∞"), ", and its weight 0"
        ends = {"zeros": "gives zeros", "nan": "gives 0/0, which is undefined", "error": "is an error"}
        yield (f"a row in which every key is masked {ends[spec.fully_masked]}",)
    if spec.mask == "boolean" or spec.padding:
        yield ("boolean masks hold True where a query may attend",)
    if spec.documents:
        yield ("tokens with the same label are of one document; places are counted from its first token",)
    if spec.dropout:
        yield (f"weights that are kept are divided by {1 - Fraction(str(spec.dropout))}",)
    if spec.lse:
        yield (
            "the second result is ",
            equals(name("L", "i"), call(name("log", 2) if spec.base else "log", _total(spec))),
        )


def _weights(spec: Attention) -> Iterator[Text]:
    match spec.normaliser:
        case "softmax":
            yield "softmax is taken over the keys: ", equals(_A, _power(spec, _S) / _total(spec))
            if spec.stabilised:
                yield _shift(spec)
        case "sigmoid":
            x = _S if spec.bias else _S - call("log", N_K)
            yield "each score by itself has its weight: ", equals(_A, Over(node(1), node(1) + Power(Name("e"), -x)))
        case "relu":
            yield "each score by itself has its weight: ", equals(_A, call("max", commas(_S, 0)) / N_K)
        case "sparsemax" | "entmax":
            half = spec.normaliser == "entmax"
            weight: Node = call("max", commas((Over(_S, node(2)) if half else _S) - name("τ", "i"), 0))
            yield "with the threshold for which a row sums to one: ", equals(_A, weight**2 if half else weight)
        case other:
            assert_never(other)


def _power(spec: Attention, s: Node) -> Node:
    return Power(node(2) if spec.base else Name("e"), s)


def _total(spec: Attention) -> Node:
    """The sum over the keys, and over the sink."""
    keys = Big("sum", _L, None, None, _power(spec, _OTHER))
    if spec.sink is None:
        return keys
    return (node(1) if spec.sink == "zero" else _power(spec, SYMBOLS["sink"])) + keys


def _shift(spec: Attention) -> Text:
    largest = Big("max", _L, None, None, _OTHER)
    if spec.sink is None:
        return "before exponentiating, the row maximum is subtracted: ", relation(_S, "→", _S - largest)
    sink = node(0) if spec.sink == "zero" else SYMBOLS["sink"]
    both = call("max", commas(sink, largest))
    return "the largest of row and sink is subtracted first: ", relation(_S, "→", _S - both)


def _heads(spec: Attention) -> Iterator[Text]:
    if spec.packed:
        yield ("the columns of packed projections are those of queries, keys, values, head by head",)
    if 1 == spec.key_heads < spec.heads:
        yield ("all query heads read the one head of keys and values",)
    elif spec.key_heads < spec.heads:
        times = spec.group
        yield (f"the first {times} query heads read the first head of keys and values, the next {times} the second",)
    if spec.latent is None:
        return
    yield ("the part with positions stands after the part without, and is one for all heads",)
    if spec.latent.absorbed:
        yield ("with the matrices absorbed, no key and no value is made",)
    if spec.latent.norm:
        yield "latents are divided by ", _root(name("c", "l"), spec.latent.eps), ", then multiplied by their gain"


def _root(x: Node, eps: int | float | Fraction) -> Node:
    """√(mean(x²) + ε)."""
    mean = call("mean", x**2)
    return Root(mean + node(Fraction(eps)) if eps else mean)


def _vectors(spec: Attention) -> Iterator[Text]:
    if spec.qk_norm == "l2":
        yield ("queries and keys are divided by their lengths, head by head",)
    elif spec.qk_norm:
        root = _root(name("q", "l", role="query"), spec.eps)
        less = "less its mean, " if spec.qk_norm == "layer" else ""
        yield f"each query and key, head by head and before positions, is {less}divided by ", root
    if spec.truncate:
        yield (f"scores see the first {spec.truncate} columns of queries and keys, d_k is the width of the whole",)
    if spec.score == "cosine":
        yield ("unit(·) divides each row by its length",)


def _order(spec: Attention) -> Iterator[Text]:
    """In which order scores are changed, where there is more than one thing to be done."""
    by_distance = isinstance(spec.position, Alibi | Buckets)
    done = [("scaled", spec.scale != 1 and (spec.scale is not None or spec.score == "dot")),
            ("capped", spec.softcap is not None), ("biased", spec.bias or by_distance),
            ("masked", spec.masks_anything)]  # fmt: skip
    words = [word for word, happens in done if happens]
    if len(words) > 2 or (len(words) > 1 and words != ["scaled", "masked"]):
        yield (f"scores are {', then '.join(words)}",)


def _positions(spec: Attention) -> Iterator[Text]:
    asked = spec.position
    end = "last" if spec.alignment == "bottom-right" else "first"
    if isinstance(asked, Rotary):
        yield from _rotary(asked, end)
    elif isinstance(asked, Alibi):
        slopes = "given" if asked.slopes == "given" else "powers of two, by the number of heads"
        yield (f"slopes are {slopes}; distances are counted so that the {end} ones stand together",)
    elif isinstance(asked, Buckets):
        yield (f"distances are counted so that the {end} ones stand together; they are in {asked.number} buckets",)
        yield from _buckets(asked)
    elif asked is not None:
        row = "rel(·) multiplies each row with the row of a table for the distance of query "
        yield row, name("i"), " and key ", name("j"), _cut(asked)


def _cut(position: Position) -> str:
    if isinstance(position, Shaw):
        return f", cut to −{position.most} … {position.most}"
    return f", cut to −{position.span} … {position.span - 1}" if isinstance(position, Disentangled) else ""


def _buckets(buckets: Buckets) -> Iterator[Text]:
    each = buckets.number // 2 if buckets.bidirectional else buckets.number
    few = each // 2
    single = "the distance 0 has a bucket" if few == 1 else f"the distances 0 to {few - 1} have a bucket each"
    ahead = (
        f"keys ahead have {each} buckets of their own" if buckets.bidirectional else "keys ahead are in the first one"
    )
    yield (f"{single}, those from {buckets.max_distance} on one together; {ahead}",)


def _rotary(rotary: Rotary, end: str) -> Iterator[Text]:
    pairs = "ℓ and ℓ + r/2" if rotary.layout == "half" else "2ℓ and 2ℓ + 1"
    width = 2 * len(rotary.triples) if rotary.triples else rotary.width
    what = f"the first r = {width} columns" if width else "all r columns"
    what = "the first r columns, twice as many as the tables have" if rotary.given == "tables" else what
    yield (f"rotate turns {what}; {pairs} are a pair, counted from 0",)
    if rotary.given is None:
        numbers = f"{rotary.start}, {rotary.start + 1}, …"
        yield (f"keys have the positions {numbers}; the {end} query has that of the {end} key",)
    else:
        yield (f"{rotary.given} are given; without those of queries, the {end} query has that of the {end} key",)
