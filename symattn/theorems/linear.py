"""Linear attention and kernels: what reassociates, what runs as a recurrence, and what features can represent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.linear import causal_linear_attention, delta_step, linear_state
from symattn.document.formulas import ARRAY_ROLES, formula
from symattn.document.notation import Node, name
from symattn.document.text import text
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Unread, Value
from symattn.proof.relations.random_arrays import mean_of_exponential
from symattn.proof.relations.reader import Reader
from symattn.proof.rules import Fold
from symattn.proof.statement import Declared
from symattn.theorems.letters import eye
from symattn.theorems.texts import of_file


# -- reassociation and recurrence --------------------------------------------------------------------------------------
def _up_to(of: Any) -> Any:
    """Return S_t or z_t, the sum of ``of`` over the first t tokens; for t − 1, without token t."""

    def read(reader: Reader, parts: tuple[Node, ...]) -> Value:
        terms = of(reader.array("K"), reader.array("V"))
        xp = terms.__array_namespace__()
        shift = int(parts[0] == formula("t − 1"))
        if parts[0] not in (name("t"), formula("t − 1")):
            raise Unread(f"the sum up to {text(parts[0])}")
        n = terms.shape[0]
        places = xp.arange(n)
        mask = places[None, :] < places[:, None] if shift else places[None, :] <= places[:, None]
        flat = xp.reshape(terms, (n, -1))
        weights = xp.astype(mask, terms.dtype)
        sums = xp.reshape(weights @ flat, terms.shape)
        return Value(sums, ("t",), len(terms.shape) - 1)

    return read


TOKENS = Glossary(
    {"Q": "n f", "K": "n f", "V": "n d_v"},
    {"n": "n"},
    {"t": "n"},
    {"o": lambda reader: causal_linear_attention(*map(reader.array, "QKV"))},
    functions={"φ": lambda _, x: x},
    roles={**ARRAY_ROLES, "S": None},
    families={"S": _up_to(lambda k, v: k[:, :, None] * v[:, None, :]), "z": _up_to(lambda k, v: k)},
    rows=True,
)
"""Rows of Q and K that stand for the features of queries and keys, of any function φ."""


STATES_ADDED = Fold(
    Declared({"k": "p d_k", "v": "p d_v"}),
    "p",
    linear_state,
    lambda x, y, given: (x[0] + y[0], x[1] + y[1]),
    lambda x, y, given: (x[0] + y[0], y[1]),
)
"""The state of a run of tokens is the sum of those of its parts, down to single tokens."""


def _new_state(reader: Reader) -> Array:
    s = reader.array("S")
    k = reader.array("k")[None, :]
    v = reader.array("v")[None, :]
    return delta_step(s, k, v, reader.array("β"))


def _make_rising_numbers(first: str, steps: str) -> Callable[[Reader], Any]:
    """x < x + u₁ < x + u₁ + u₂ < …"""

    def made(reader: Reader) -> Any:
        x, u = reader.array(first), reader.array(steps)
        return reader.xp.stack([x, *(x + u[: n + 1].sum() for n in range(u.shape[0]))])

    return made


THEOREMS = of_file(
    "linear",
    {
        "": TOKENS,
        "updated": Glossary(defined={"S′": _new_state, "I": eye("f")}, rows=True),
        "performer-positive-features": Glossary(
            {"q": "d", "k": "d"}, families={"E": mean_of_exponential("w")}
        ),
        "rising": Glossary(
            sizes={},
            defined={"q": _make_rising_numbers("x", "u"), "k": _make_rising_numbers("y", "w")},
        ),
    },
    globals(),
)
