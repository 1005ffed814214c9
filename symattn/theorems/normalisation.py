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
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.statement import Pair
from symattn.proof.together import identity
from symattn.theorems.letters import add_up, eye, squares, total
from symattn.theorems.texts import theorems


def _normed(work: Callable[..., Any]) -> Callable[..., Value]:
    """Return the meaning of a word for a norm, with the ε that is printed."""
    return lambda reader, x: replace(x, array=work(x.array, reader.one(name("ε")).array))


LETTERS = Glossary(
    {"x": "d_model", "a": "", "b": "", "ε": "", "g": "d_model", "W": "d_model e", "X": "n d_model", "G": "n e"},
    index={"i": "d_model", "r": "n", "c": "e"},
    defined={"I": eye("d_model")},
    functions={"LN": _normed(layer_norm), "RMS": _normed(rms_norm)},
    nonnegative=("ε",),
    roles={**ARRAY_ROLES, "s": None},
).where("Π = I − 𝟏 𝟏ᵀ/d_model")


# -- weights around a norm ---------------------------------------------------------------------------------------------
LAYER = {"x": "n d", "w": "d m", "g": "n m", "a": ""}


def _weight_gradient(x: Array, w: Array, g: Array) -> Array:
    """Return ∇_W ⟨G, RMS(X W)⟩ = Xᵀ (G − Z (Z · G) / ‖Z‖²) / ρ with Z = X W, row by row."""
    z = x @ w
    # the number of columns, as a column
    rho = z.__array_namespace__().sqrt(squares(z) / add_up(0 * z + 1))
    return x.mT @ ((g - z * add_up(z * g) / squares(z)) / rho)


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


_TEXT = """
layernorm-projection: LayerNorm is a projection, then a length
$LN(x) = √d_model Π x/‖Π x‖$ with $Π = I − 𝟏 𝟏ᵀ/d_model$; its entries sum to 0, their squares to $d_model$:
  $Σ_{i=1}^{d_model} LN_i(x) = 0$, $‖LN(x)‖² = d_model$
for: $ε = 0$
for: the entries of x are not all equal, $‖Π x‖ ≠ 0$
source: Brody, Alon, Yahav, On the Expressivity Role of LayerNorm in Transformers' Attention (2023)
why: Subtracting the mean is the projection Π, and the variance is ‖Πx‖² / d.
false: $‖LN(x)‖² = d_model − 1$, as of the unbiased variance

layernorm-invariance: What LayerNorm ignores
$LN(a x + b 𝟏) = sign(a) LN(x)$
for: $ε = 0$
for: $a ≠ 0$
for: the entries of x are not all equal, $‖Π x‖ ≠ 0$
source: Ba, Kiros, Hinton, Layer Normalization (2016)
why: Centring removes b, and the norm divides by |a|.
false: $LN(a x + b 𝟏) = LN(x)$; and the same for ε > 0, 1 for one: $a Π x/√{‖a Π x‖²/d_model + 1} = sign(a) Π x/√{‖Π
  x‖²/d_model + 1}$
step: $Π (a x + b 𝟏) = a Π x$.
step | positive a: $RMS(a x) = RMS(x)$ and $RMS(−a x) = −RMS(x)$ for $ε = 0$ and $‖x‖ ≠ 0$.
rule: LN is RMS of the centred row, so both parts together give LN(±a x + b) = ±LN(x) for a > 0.

rmsnorm-scale: RMSNorm ignores the scale
$RMS(a x) = RMS(x)$
for: $ε = 0$
for: $a > 0$
for: x is not 0, $‖x‖ ≠ 0$
source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019)
why: The root of the mean square takes the same factor.
false: $RMS(x + b 𝟏) = RMS(x)$

layernorm-is-centred-rmsnorm: LayerNorm is RMSNorm after centring
$LN(x) = RMS(Π x)$ with the same ε
for: $‖Π x‖² + ε > 0$
source: Jiang, Gu, Zhu, Pan, Pre-RMSNorm and Pre-CRMSNorm Transformers (2023)
why: The variance of x is the mean square of Πx.
false: $LN(x) = Π RMS(x)$

rmsnorm-jacobian: The Jacobian of RMSNorm
$J = 1/ρ (I − x xᵀ/(d_model ρ²))$ with $ρ² = ‖x‖²/d_model + ε$; $J x = ε x/ρ³$; this is 0 only for $ε = 0$
for: $‖x‖ ≠ 0$
why: Of the quotient x/ρ, the denominator has the gradient x / (d ρ).
false: $J x = 0$ also for ε > 0

layernorm-jacobian: The Jacobian of LayerNorm
$J = A/s$ with $A = Π − x′ x′ᵀ/d_model$, $s² = ‖Π x‖²/d_model$, $x′ = LN(x)$; A is a projection of rank $d_model − 2$
  with the kernel spanned by $𝟏$ and x: $A² = A$, $Σ_{i=1}^{d_model} A_i_i = d_model − 2$, $J 𝟏 = 0 𝟏$ and $J x = 0 x$
for: $ε = 0$
for: the entries of x are not all equal, $‖Π x‖ ≠ 0$
why: LN does not see shifts and scalings of x.
false: $J = 1/s (I − x′ x′ᵀ/d_model)$; the rank is $d_model − 1$, $Σ_{i=1}^{d_model} A_i_i = d_model − 1$
rule: A is its own square, and the rank of such a matrix is its trace. 1 and x are in the kernel; and if A g = 0 then
  Πg is a multiple of LN(x), so g is a sum of multiples of 1 and x.

norm-gain-folds: The gain of a norm folds into what follows
$(RMS(x) ⊙ g) W = RMS(x) (diag(g) W)$
letters: | U d_model d_model | rows
for: $‖x‖² + ε > 0$
why: Multiplying columns by g is the product with diag(g).
false: $(RMS(x) ⊙ g) U = RMS(x) (U diag(g))$ for a square U

scale-before-norm-cancels: A scale before a norm cancels
$RMS(X (a W)) = RMS(X W)$; so $W·{∇ ℓ(W)} = 0$ and $∇ ℓ(a W) = 1/a ∇ ℓ(W)$
for: $ε = 0$
for: $a > 0$
for: no row of X W is 0, $‖(X W)_r‖ ≠ 0$
for: ℓ is any function of RMS(X W), with the gradient G by it: to first order $ℓ(W) = G·RMS(X W)$
source: van Laarhoven, L2 Regularization versus Batch and Weight Normalization (2017)
why: A function that does not change with the length of W has a gradient orthogonal to W, of degree −1.
false: $∇ ℓ(a W) = ∇ ℓ(W)$
by scale_before_norm
"""

THEOREMS = theorems(
    "normalisation",
    _TEXT,
    {
        "": LETTERS,
        "rmsnorm-jacobian": LETTERS.also(defined={"J": lambda reader: reader.derivative(formula("RMS(x)"), "x")}),
        "layernorm-jacobian": LETTERS.also(defined={"J": lambda reader: reader.derivative(formula("LN(x)"), "x")}),
    },
    globals(),
)
