"""Normalisation: what LayerNorm and RMSNorm do not see, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.norms import layer_norm, rms_norm
from symattn.document.formulas import ARRAY_ROLES, formula
from symattn.document.notation import name
from symattn.proof.gradients import gradient
from symattn.proof.joint_statements import identity
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.statement import Pair
from symattn.theorems.letters import add_up, eye, squares
from symattn.theorems.texts import of_file


def _read_norm_with_epsilon(work: Callable[..., Any]) -> Callable[..., Value]:
    """Return the meaning of a word for a norm, with the ε that is printed."""
    return lambda reader, x: replace(x, array=work(x.array, reader.one(name("ε")).array))


LETTERS = Glossary(
    {
        "x": "d_model",
        "a": "",
        "b": "",
        "ε": "",
        "g": "d_model",
        "W": "d_model e",
        "X": "n d_model",
        "G": "n e",
    },
    index={"i": "d_model", "r": "n", "c": "e"},
    defined={"I": eye("d_model")},
    functions={"LN": _read_norm_with_epsilon(layer_norm), "RMS": _read_norm_with_epsilon(rms_norm)},
    nonnegative=("ε",),
    roles={**ARRAY_ROLES, "s": None},
).where("Π = I − 𝟏 𝟏ᵀ/d_model")


# -- weights around a norm ---------------------------------------------------------------------------------------------
LAYER = {"x": "n d", "w": "d m", "g": "n m", "a": ""}


def _weight_gradient(x: Array, w: Array, g: Array) -> Array:
    """Return ∇_W ⟨G, RMS(X W)⟩ = Xᵀ (G − Z (Z · G) / ‖Z‖²) / ρ with Z = X W, row by row."""
    z = x @ w
    # the number of columns, as a column
    mean_square = squares(z) / add_up(0 * z + 1)
    rho = z.__array_namespace__().sqrt(mean_square)
    along = z * add_up(z * g) / squares(z)
    return x.mT @ ((g - along) / rho)


@partial(
    identity,
    LAYER,
    false=lambda x, w, g, a: (_weight_gradient(x, a * w, g), _weight_gradient(x, w, g)),
    positive=("a",),
)
def scale_before_norm(x: Array, w: Array, g: Array, a: Array) -> list[Pair]:
    slope = _weight_gradient(x, w, g)
    return [
        (rms_norm(x @ (a * w)), rms_norm(x @ w)),
        (gradient(lambda x, w, g: total(g * rms_norm(x @ w)), "w", x=x, w=w, g=g), slope),
        (total(w * slope), 0),
        (_weight_gradient(x, a * w, g), slope / a),
    ]


def total(x: Array) -> Array:
    """Return the sum of all entries."""
    return x.__array_namespace__().sum(x)


THEOREMS = of_file(
    "normalisation",
    {
        "": LETTERS,
        "rmsnorm-jacobian": LETTERS.also(
            defined={"J": lambda reader: reader.derivative(formula("RMS(x)"), "x")}
        ),
        "layernorm-jacobian": LETTERS.also(
            defined={"J": lambda reader: reader.derivative(formula("LN(x)"), "x")}
        ),
    },
    globals(),
)
