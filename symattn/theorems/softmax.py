"""Softmax: what it is invariant under, its log-sum-exp, its derivatives and limits, and how far its weights move."""

from __future__ import annotations

from typing import Any

from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import side_by_side, weights
from symattn.theorems.texts import of_file

LETTERS = Glossary(
    given={"s": "n_k", "t": "n_k", "S": "n_q n_k", "x": "n_k"},
    sharp="attained",
    index={"i": "n_k", "j": "n_k", "l": "n_k"},
).where("p = softmax(s)", "P = softmax(S)", "p_max = max(p)", "J = diag(p) − p pᵀ")
ROWS = Glossary({"S": "n_q n_k"}, index={"i": "n_q", "j": "n_k"}).where("P = softmax(S)")


def _weights_of_tied_keys(reader: Reader) -> Any:
    """Return the weights in softmax(β s) of the keys with the largest score, 0; other scores are −u."""
    product = reader.array("β") * reader.array("u")
    scores = side_by_side(0 * reader.array("tie"), -product)
    return weights(scores)[..., : reader.length("n")]


THEOREMS = of_file(
    "softmax",
    {
        "": LETTERS,
        "rows": ROWS,
        "tied": LETTERS.also(defined={"w": _weights_of_tied_keys}),
    },
    globals(),
)
