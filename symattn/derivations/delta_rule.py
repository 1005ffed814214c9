"""``delta-rule``: from the objective of one token to a chunk of tokens, with and without gates."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from symattn.arrays.array import Array
from symattn.attention import linear
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.exactly import entries, exact, same
from symattn.document import notation as nt
from symattn.document.formulas import formula
from symattn.document.model import Column, Document, Table
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import eye, identity
from symattn.theorems.linear import NEXT_TOKEN, outputs_of_run, scores_of_run

# Three tokens whose keys are neither equal nor orthogonal: each corrects what those before it wrote.
QUERIES = ((1, 0), (1, 1), (1, 2))
KEYS = ((1, 0), (1, 1), (0, 1))
VALUES = ((2,), (4,), (3,))
RATES = (Fraction(1), Fraction(1, 2), Fraction(1))

_COLUMNS = ("t", "k_t", "v_t", "β_t", "k_t S_{t−1}", "u_t", "S_t", "q_t", "o_t")


def derivation() -> Document:
    """Derive the delta rule, S + β kᵀ(v − k S), as a gradient step, and its chunks as one triangular system."""
    tokens = _run_example_tokens()
    one_token = Glossary(
        {"S": "d_k d_v", "k": "d_k", "v": "d_v", "β": ""},
        defined={"S′": _state_after_token, "I": eye("d_k")},
        rows=True,
    )
    numbers = {
        "I": eye("n"),
        "L": lambda reader: reader.array("b")[:, None] * _key_products(reader),
        "T": _inverse_times_rates,
        "A": lambda reader: linear.decayed_scores(reader.array("Q"), reader.array("K")),
        "U": lambda _: _stack(token.correction for token in tokens),
        "O": lambda _: _stack(token.output for token in tokens),
    }
    letters = {
        "corrected": one_token,
        "recalled": NEXT_TOKEN,
        "parallel": _make_glossary_of_chunk(),
        "numbers": Glossary(defined=numbers),
    }
    return DerivationText(
        letters,
        table=[_make_table_of_tokens(tokens)],
        queries=nt.matrix(QUERIES),
        keys=nt.matrix(KEYS),
        values=nt.matrix(VALUES),
        rates=nt.matrix([RATES]),
    ).document("delta-rule")


def _state_after_token(reader: Reader) -> Array:
    k, v = (reader.array(x)[None, :] for x in "kv")
    return linear.delta_step(reader.array("S"), k, v, reader.array("β"))


def _make_glossary_of_chunk() -> Glossary:
    """Return the outputs O and the weights A of n tokens with the corrections U."""
    defined: dict[str, Any] = {"O": outputs_of_run, "A": scores_of_run}
    rows = {"Q": "n d_k", "K": "n d_k", "U": "n d_v", "G": "n d_k"}
    return Glossary({"S": "d_k d_v", **rows, "c": "d_k"}, defined=defined)


# -- three tokens in exact numbers -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Token:
    """What one token of the example recalls (1, d_v), its correction, the state after it, and its output."""

    recalled: Array
    correction: Array
    state: Array
    output: Array


def _run_example_tokens() -> list[_Token]:
    """Run the tokens one by one. Raises FalseStep if a state is not the one before it and the correction."""
    state = linear.empty_state(exact(KEYS), exact(VALUES))
    result = []
    for q, k, v, rate in zip(*map(_rows, (QUERIES, KEYS, VALUES)), RATES, strict=True):
        recalled = k @ state
        correction = (v - recalled) * rate
        after, output = linear.delta_token(state, q, k, v, exact(rate))
        # Each state is checked against the update that is printed.
        if not same(after, state + k.mT @ correction):
            raise FalseStep("a state of the example is not the one before it and its correction")
        result.append(_Token(recalled, correction, after, output))
        state = after
    return result


def _rows(numbers: object) -> list[Array]:
    """Return the rows of a matrix of numbers as exact arrays (1, d)."""
    matrix = exact(numbers)
    return [matrix[i : i + 1, :] for i in range(matrix.shape[0])]


def _stack(rows: Any) -> Any:
    every = list(rows)
    return every[0].__array_namespace__().concat(every, axis=0)


def _key_products(reader: Reader) -> Array:
    """Return the products of each key with those before it (n, n)."""
    return linear.decayed_scores(reader.array("K"), reader.array("K"), itself=False)


def _inverse_times_rates(reader: Reader) -> Array:
    """Return T, the solution of the system for the identity in place of the values."""
    k, rates = reader.array("K"), reader.array("b")[:, None]
    return linear.corrected(k, identity(reader, k.shape[0]), rates)


def _make_table_of_tokens(tokens: list[_Token]) -> Table:
    """Return the tokens one by one, in exact numbers."""
    rows = []
    for t, (token, *given) in enumerate(zip(tokens, QUERIES, KEYS, VALUES, RATES, strict=True), 1):
        query, key, value, rate = (entries(exact(x)) for x in given)
        after = (token.recalled, token.correction, token.state)
        rows.append(
            (nt.node(t), key, value, rate, *map(entries, after), query, entries(token.output))
        )
    columns = tuple(Column((formula(x),)) for x in _COLUMNS)
    caption = ("Tokens one by one, from the state 0, without gates.",)
    return Table(columns, tuple(tuple((x,) for x in row) for row in rows), caption=caption)
