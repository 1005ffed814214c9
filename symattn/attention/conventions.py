"""What a specification takes for granted, sentence by sentence: what a weight is, and what masks and sinks do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from symattn.attention.notation import N_K, SYMBOLS
from symattn.document.model import Text
from symattn.document.notation import Big, Name, Node, Over, Power, call, commas, equals, name, node, relation

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

_A, _S = name("a", "i", "j", role="weight"), name("s", "i", "j", role="score")
_OTHER, _L = name("s", "i", "ℓ", role="score"), name("ℓ")


def conventions(spec: Attention) -> Iterable[Text]:
    """The sentences, for a list."""
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
        yield "the second result is ", equals(name("L", "i"), call(_log(spec), _total(spec)))


def _weights(spec: Attention) -> Iterator[Text]:
    if spec.normaliser == "softmax":
        yield "softmax is taken over the keys: ", equals(_A, _power(spec, _S) / _total(spec))
        if spec.stabilised:
            yield _shift(spec)
    elif spec.normaliser == "sigmoid":
        x = _S if spec.bias else _S - call("log", N_K)
        yield "each score by itself has its weight: ", equals(_A, Over(node(1), node(1) + Power(Name("e"), -x)))
    elif spec.normaliser == "relu":
        yield "each score by itself has its weight: ", equals(_A, call("max", commas(_S, 0)) / N_K)
    else:
        half = spec.normaliser == "entmax"
        weight: Node = call("max", commas((Over(_S, node(2)) if half else _S) - name("τ", "i"), 0))
        yield "with the threshold for which a row sums to one: ", equals(_A, weight**2 if half else weight)


def _power(spec: Attention, s: Node) -> Node:
    return Power(node(2) if spec.base else Name("e"), s)


def _log(spec: Attention) -> Node:
    return name("log", 2) if spec.base else Name("log")


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
    return "before exponentiating, the largest of row and sink is subtracted: ", relation(_S, "→", _S - both)
