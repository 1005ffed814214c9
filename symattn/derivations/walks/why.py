"""Why each step is done: definitions in words and formulas, and for an example with a printed text what differs."""

from __future__ import annotations

from collections.abc import Iterator

from symattn.attention.notation import D_K, D_MODEL, SYMBOLS
from symattn.derivations.walks.model import Walk
from symattn.derivations.walks.order import first_query
from symattn.derivations.walks.printed import reproduced_by
from symattn.derivations.walks.steps import rounded_of
from symattn.document.model import Paragraph, Text
from symattn.document.notation import Name, Over, Power, Product, Root, commas, equals, name, total

_E, _N_K = Name("e"), name("n", "k")
_A, _S = name("a", commas("i", "j"), role="weight"), name("s", commas("i", "j"), role="score")


def why(walk: Walk, number: int) -> Iterator[Paragraph]:
    """The reasons of a step."""
    for text in _REASONS[number](walk):
        yield Paragraph(text)


def _inputs(walk: Walk) -> Iterator[Text]:
    if "x" in walk.sheet.inputs:
        yield ("Each row of ", SYMBOLS["x"], " is one token, a vector of ", D_MODEL, " numbers.")
    if "y" in walk.sheet.inputs:
        yield ("The rows of ", SYMBOLS["y"], " are the tokens attended to: keys and values come from them.")


def _matrices(walk: Walk) -> Iterator[Text]:
    if "w_q" in walk.sheet.inputs:
        yield ("The same matrices serve every token. They are what is learned; without them the similarity of two "
               "tokens would be fixed, and the same in both directions.",)  # fmt: skip


def _roles(walk: Walk) -> Iterator[Text]:
    yield ("Each token plays three roles: as a query it asks, as a key it is compared with, as a value it is handed "
           "on.",)  # fmt: skip


def _scores(walk: Walk) -> Iterator[Text]:
    product = Product((name("q", "i", role="query"), name("k", "j", role="key")), "·")
    yield ("The score of a key is its dot product with the query, ", equals(_S, product),
           ": large where they point the same way.")  # fmt: skip
    if walk.sheet.attention.scale is None:
        yield ("It is divided by ", Root(D_K), ", so that its variance does not grow with ", D_K,
               " (symattn derive scaling).")  # fmt: skip
    if "masked" in walk.arrays:
        yield ("A forbidden score is −∞: its exponential, and so its weight, is 0.",)


def _softmax(walk: Walk) -> Iterator[Text]:
    below = total("l", 1, _N_K, Power(_E, name("s", commas("i", "l"), role="score")))
    yield ("Softmax makes a row of scores positive with sum 1: ", equals(_A, Over(Power(_E, _S), below)), ".")
    yield ("exact: as a quotient of sums of powers of e. decimal: that number, correctly rounded. "
           f"{walk.dtype}: what this arithmetic computes, and how far off it is in units in the last "
           "place.",)  # fmt: skip
    if walk.sheet.printed and reproduced_by(walk):
        yield ("printed: the text's digits. rounded: the weights with which it goes on; they differ from the "
               "exact ones because it rounds before it multiplies.",)  # fmt: skip


def _products(walk: Walk) -> Iterator[Text]:
    yield ("Each value is taken as much as its key's weight says.",)


def _sums(walk: Walk) -> Iterator[Text]:
    sum_ = total("j", 1, _N_K, _A * name("v", "j", role="value"))
    yield ("The output is the sum over all keys, ", equals(name("o", "i", role="output"), sum_), ".")
    if (found := rounded_of(walk)) is not None:
        kind = "the text's" if found[0] == "printed" else f"the {found[0]}"
        yield (f"With {kind} rounded weights it comes out differently: the rounding errors are multiplied by the "
               "values.",)  # fmt: skip


def _others(walk: Walk) -> Iterator[Text]:
    yield (f"Every query is treated like query {first_query(walk)}, independently of the others: all rows at once are "
           "one product of matrices.",)  # fmt: skip


def _merged(walk: Walk) -> Iterator[Text]:
    yield ("The heads' outputs stand side by side; a last matrix mixes them where there is one.",)


_REASONS = {
    1: _inputs, 2: _matrices, 3: _roles, 4: _scores, 5: _softmax, 6: _products, 7: _sums, 8: _others, 9: _merged,
}  # fmt: skip
