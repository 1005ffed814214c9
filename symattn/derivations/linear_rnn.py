"""``linear-rnn``: linear attention as a recurrence with decay, in chunks, and as affine maps that compose."""

from __future__ import annotations

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
from symattn.theorems.linear import scores_of_run

# Three tokens; the first feature decays by 1/e before each, the second does not.
QUERIES = ((1, 0), (1, 1), (1, 1))
KEYS = ((1, 0), (1, 1), (0, 1))
VALUES = ((2,), (1,), (3,))
GATES = ((-1, 0), (-1, 0), (-1, 0))

_COLUMNS = ("t", "k_t", "v_t", "g_t", "S_t", "q_t", "o_t")


def derivation() -> Document:
    """Derive that gated linear attention is S′ = diag(e^g) S + kᵀ v, token by token, in runs and at once."""
    states, outputs = _run_example_tokens()
    token = Glossary(
        {"S": "d_k d_v", "q": "d_k", "k": "d_k", "v": "d_v", "g": "d_k"},
        defined={"S′": lambda reader: _step(reader)[0], "o": lambda reader: _step(reader)[1]},
        rows=True,
    ).where("a = exp(g)")
    every = Glossary(
        {"Q": "n d_k", "K": "n d_k", "V": "n d_v", "G": "n d_k", "c": "d_k"},
        index={"j": "n"},
        defined={
            "S_n": lambda reader: _chunk_from_zero(reader)[0],
            "O": lambda reader: _chunk_from_zero(reader)[1],
            "A": scores_of_run,
        },
        rows=True,
    )
    whole = outputs[0].__array_namespace__().concat(outputs, axis=0)
    numbers: dict[str, Any] = {"A": scores_of_run, "O": lambda _: whole}
    sums = [[sum(gates) for gates in zip(*GATES[: i + 1], strict=True)] for i in range(len(GATES))]
    return DerivationText(
        {"one": token, "all": every, "numbers": Glossary(defined=numbers)},
        table=[_make_table_of_tokens(states, outputs)],
        queries=nt.matrix(QUERIES),
        keys=nt.matrix(KEYS),
        values=nt.matrix(VALUES),
        sums=nt.matrix(sums),
    ).document("linear-rnn")


def _step(reader: Reader) -> tuple[Array, Array]:
    """Return the state after the token, and its output (d_v,), by the implementation."""
    q, k, v, g = (reader.array(x)[None, :] for x in "qkvg")
    state, output = linear.gated_step(reader.array("S"), q, k, v, g)
    return state, output[0, :]


def _chunk_from_zero(reader: Reader) -> tuple[Any, Any]:
    """Return the state after all tokens and their outputs, as one chunk from the state 0."""
    q, k, v, sums = (reader.array(x) for x in "QKVG")
    zero = 0 * (k.mT @ v)
    return linear.chunk_of_sums(zero, q, k, v, sums, reader.array("c")[None, :])


# -- three tokens in exact numbers -------------------------------------------------------------------------------------
def _run_example_tokens() -> tuple[list[Array], list[Array]]:
    """Return the state after each token and its output (1, d_v). Raises FalseStep if chunks give others."""
    q, k, v, g = (exact(x) for x in (QUERIES, KEYS, VALUES, GATES))
    state = linear.empty_state(k, v)
    states, outputs = [], []
    for i in range(len(KEYS)):
        state, output = linear.gated_step(state, *(x[i : i + 1, :] for x in (q, k, v, g)))
        states.append(state)
        outputs.append(output)
    for bounds in ((0, 3), (0, 1, 3), (0, 2, 3)):
        end, _ = linear.scan(linear.gated_chunk, linear.empty_state(k, v), bounds, q, k, v, g)
        if not same(end, state):
            raise FalseStep(f"the tokens of the example in the chunks {bounds} give another state")
    return states, outputs


def _make_table_of_tokens(states: list[Array], outputs: list[Array]) -> Table:
    """Return the tokens one by one, in exact numbers."""
    rows = []
    for i, (state, output) in enumerate(zip(states, outputs, strict=True)):
        key, value, gate, query = (entries(exact([x[i]])) for x in (KEYS, VALUES, GATES, QUERIES))
        cells = (nt.node(i + 1), key, value, gate, entries(state), query, entries(output))
        rows.append(tuple((x,) for x in cells))
    columns = tuple(Column((formula(x),)) for x in _COLUMNS)
    caption = (
        "Tokens one by one, from the state 0; chunks of one and two tokens give the same state.",
    )
    return Table(columns, tuple(rows), caption=caption)
