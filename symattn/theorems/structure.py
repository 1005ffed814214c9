"""Structure: what attention does to tokens that are permuted, split, mixed or repeated, and how far outputs move."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.scores import scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.formulas import formula
from symattn.proof.expectation import EntryLaw
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.proof.rules import Substitution
from symattn.proof.statement import Declared
from symattn.theorems.letters import (
    ATTENDING,
    ATTENTION,
    CAUSAL,
    eye,
    identity_like,
    of_tokens,
    rows,
)
from symattn.theorems.texts import of_file

QKV = {"q": "n_q d_k", "k": "n_k d_k", "v": "n_k d_v"}


def _of_matrices(attention: Attention) -> Any:
    """Return attention as it is implemented, which subtracts the maximum of each row."""
    return lambda reader: attention(*map(reader.array, "QKV"))


def _any_norm(_: Reader, x: Value) -> Value:
    """Return a norm of a vector: an arbitrary norm in letters, the largest entry in numbers."""
    xp = x.array.__array_namespace__()
    norms = (
        xp.any_norm(x.array)[..., 0] if hasattr(xp, "any_norm") else xp.max(abs(x.array), axis=-1)
    )
    return Value(norms, x.letters)


def _make_residual_layer(attention: Attention) -> Any:
    """Return self-attention followed by a network on each row, both with residuals, as a function of formulas."""

    def layer(reader: Any, x: Value) -> Value:
        y = x.array + of_tokens(attention)(reader, x).array
        hidden = reader.xp.maximum(y @ reader.array("W"), 0)
        return Value(y + hidden @ reader.array("U"), (), 2)

    return layer


# -- symmetries -------------------------------------------------------------------------------------------------------
CHANGED_BASIS = Substitution(
    Declared({**QKV, "m": "d_k d_k", "r": "d_k d_k", "z": "d_k d_k"}),
    lambda q, k, v, m, r: (ATTENTION(q @ m, k @ r, v), ATTENTION(q, k, v)),
    (lambda q, k, v, y: soft(scale_by_root(q @ y @ k.mT, q)) @ v),
    "y",
    "d_k d_k",
    lambda m, r: m @ r.mT,
    lambda m: identity_like(m),
    lambda q, k, v, z: (ATTENTION(q @ z, k @ z, v), ATTENTION(q, k, v)),
)
"""With M Rᵀ = I, for any two such matrices."""


def _repeat_token_rows(x: Array, r: Array) -> Array:
    xp, (n, d) = x.__array_namespace__(), x.shape
    repeated = xp.broadcast_to(x[None], (r, n, d))
    return xp.reshape(repeated, (r * n, d))


# Dropout keeps an entry with probability 1 − r: then it is 1, otherwise 0.
KEPT = EntryLaw(("r",), lambda r: (1 - r, r * (1 - r)), lambda r: [(0 * r, r), (0 * r + 1, 1 - r)])


THEOREMS = of_file(
    "structure",
    {
        "": ATTENDING,
        "attending": ATTENDING,
        "output-in-hull": ATTENDING.also(functions={"N": _any_norm}),
        "per-token-equals-matrix": ATTENDING.also(
            defined={"O": _of_matrices(ATTENTION), "T": _of_matrices(Attention(scale=3))}
        ),
        "layers": Glossary(
            functions={
                "a": of_tokens(ATTENTION),
                "f": _make_residual_layer(ATTENTION),
                "c": _make_residual_layer(CAUSAL),
            },
        ),
        "dropped": Glossary(laws={"B": KEPT}),
        "inverse": ATTENDING.also(
            {"u": "d_k", "w": "d_k"},
            defined={"I": eye("d_k"), "M⁻¹": formula("I − u wᵀ/(1 + wᵀ u)")},
        ),
        "duplicate-all-keys": ATTENDING.also(
            {"r": "r"},
            defined={
                "K′": lambda reader: _repeat_token_rows(reader.array("K"), reader.length("r")),
                "V′": lambda reader: _repeat_token_rows(reader.array("V"), reader.length("r")),
                "K″": lambda reader: rows(reader.array("K"), reader.array("K")[:1]),
                "V″": lambda reader: rows(reader.array("V"), reader.array("V")[:1]),
            },
        ),
    },
    globals(),
)
