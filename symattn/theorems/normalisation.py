"""Normalisation: what LayerNorm and RMSNorm do not see, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.norms import centre, layer_norm, rms_norm
from symattn.document.formulas import ARRAY_ROLES, formula
from symattn.document.notation import name
from symattn.proof.gradients import gradient
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.values import Value
from symattn.proof.statement import Pair
from symattn.proof.theorem import state, theorem
from symattn.proof.together import Together, identity
from symattn.theorems.letters import eye
from symattn.theorems.reading import printed
from symattn.theorems.sums import add_up, squares, total

TOPIC = "normalisation"
VARIED = "the entries of x are not all equal, $‖Π x‖ ≠ 0$"
ZHANG = "Zhang, Sennrich, Root Mean Square Layer Normalization (2019)"
BA = "Ba, Kiros, Hinton, Layer Normalization (2016)"
ROWS = {"x": "n d"}


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


def _count(like: Any) -> Array:
    """The number of columns, as a column."""
    return add_up(0 * like + 1)


def _root(x: Array) -> Array:
    return x.__array_namespace__().sqrt(x)


# -- what they are -----------------------------------------------------------------------------------------------------
@theorem(
    "layernorm-projection",
    TOPIC,
    "$LN(x) = √d_model Π x/‖Π x‖$ with $Π = I − 𝟏 𝟏ᵀ/d_model$; its entries sum to 0 and its norm is the"
    " root: $Σ_{i=1}^{d_model} LN_i(x) = 0$, $‖LN(x)‖ = √d_model$",
    letters=LETTERS,
    arrays=ROWS,
    hypotheses=("$ε = 0$", VARIED),
    source="Brody, Alon, Yahav, On the Expressivity Role of LayerNorm in Transformers' Attention (2023)",
    why="Subtracting the mean is the projection Π, and the variance is ‖Πx‖² / d.",
    false=lambda x: (squares(layer_norm(x)), _count(x) - 1),
    false_says="$‖LN(x)‖ = √(d_model − 1)$, as of the unbiased variance",
)
def layernorm_projection(x: Array) -> list[Pair]:
    return [
        (layer_norm(x), _root(_count(x)) * centre(x) / _root(squares(centre(x)))),
        (add_up(layer_norm(x)), 0),
        (squares(layer_norm(x)), _count(x)),
    ]


AFFINE = {"x": "n d", "a": "n 1", "b": "n 1", "eps": ""}


def _affine(x: Array, a: Array, b: Array) -> list[tuple[Any, Any]]:
    """Return the centred rows, and RMSNorm of multiples of them."""
    return [
        (centre(a * x + b), a * centre(x)),
        (centre(-a * x + b), -a * centre(x)),
        (rms_norm(a * x), rms_norm(x)),
        (rms_norm(-a * x), -rms_norm(x)),
    ]


layernorm_invariance = state(
    "layernorm-invariance",
    TOPIC,
    "$LN(a x + b 𝟏) = sign(a) LN(x)$",
    Together(
        (
            identity(
                AFFINE,
                _affine,
                (
                    lambda x, a, b: (layer_norm(-a * x + b), layer_norm(x)),
                    lambda x, a, b, eps: (layer_norm(a * x + b, eps), layer_norm(x, eps)),
                ),
                positive=("a", "eps"),
            ),
        ),
        ("LN is RMS of the centred row, so both parts together give LN(±a x + b) = ±LN(x) for a > 0.",),
    ),
    BA,
    "$LN(a x + b 𝟏) = LN(x)$; and the same for ε > 0",
    "Centring removes b, and the norm divides by |a|.",
    ("$ε = 0$", "$a ≠ 0$", VARIED),
    LETTERS,
)


rmsnorm_scale = printed(
    "rmsnorm-scale",
    TOPIC,
    "$RMS(a x) = RMS(x)$",
    letters=LETTERS,
    hypotheses=("$ε = 0$", "$a > 0$", "x is not 0, $‖x‖ ≠ 0$"),
    source=ZHANG,
    why="The root of the mean square takes the same factor.",
    false_says="$RMS(x + b 𝟏) = RMS(x)$",
)


@theorem(
    "layernorm-is-centred-rmsnorm",
    TOPIC,
    "$LN(x) = RMS(Π x)$ with the same ε",
    letters=LETTERS,
    arrays={"x": "n d", "eps": ""},
    hypotheses=("$‖Π x‖² + ε > 0$",),
    source="Jiang, Gu, Zhu, Pan, Pre-RMSNorm and Pre-CRMSNorm Transformers (2023)",
    why="The variance of x is the mean square of Πx.",
    false=lambda x, eps: (layer_norm(x, eps * eps), centre(rms_norm(x, eps * eps))),
    false_says="$LN(x) = Π RMS(x)$",
)
def layernorm_is_centred_rmsnorm(x: Array, eps: Array) -> Pair:
    xp = x.__array_namespace__()
    mean = add_up(x) / _count(x)
    variance = add_up((x - mean) * (x - mean)) / _count(x)
    return (x - mean) / xp.sqrt(variance + eps), rms_norm(centre(x), eps)


# -- derivatives -------------------------------------------------------------------------------------------------------


rmsnorm_jacobian = printed(
    "rmsnorm-jacobian",
    TOPIC,
    "$J = 1/ρ (I − x xᵀ/(d_model ρ²))$ with $ρ² = ‖x‖²/d_model + ε$; $J x = ε x/ρ³$; this is 0 only for $ε = 0$",
    letters=LETTERS.also(defined={"J": lambda reader: reader.derivative(formula("RMS(x)"), "x")}),
    hypotheses=("$‖x‖ ≠ 0$",),
    why="Of the quotient x/ρ, the denominator has the gradient x / (d ρ).",
    false_says="$J x = 0$ also for ε > 0",
)


def _ln_along(x: Array, g: Array) -> Array:
    return total(g * layer_norm(x))


def _projected(x: Array, g: Array) -> Array:
    """s J g = Πg − x̂ (x̂ · g) / d with x̂ = LN(x)."""
    y = layer_norm(x)
    return centre(g) - y * add_up(y * g) / _count(x)


def _deviation(x: Array) -> Array:
    return _root(squares(centre(x)) / _count(x))


def _trace(x: Array) -> Array:
    """tr(s J) = Σ_i (1 − 1/d − x̂_i² / d)."""
    y = layer_norm(x)
    return add_up(1 - 1 / _count(x) - y * y / _count(x))


@theorem(
    "layernorm-jacobian",
    TOPIC,
    "$J = 1/s (Π − x′ x′ᵀ/d_model)$ with $s² = ‖Π x‖²/d_model$, $x′ = LN(x)$; s J is a projection of rank"
    " $d_model − 2$ with the kernel spanned by $𝟏$ and x: $(s J)² = s J$, $J 𝟏 = 0 𝟏$ and $J x = 0 x$",
    letters=LETTERS.also(defined={"J": lambda reader: reader.derivative(formula("LN(x)"), "x")}),
    arrays={"x": "d", "g": "d"},
    hypotheses=("$ε = 0$", VARIED),
    why="LN does not see shifts and scalings of x.",
    rule=(
        "s J is its own square, and the rank of such a matrix is its trace. 1 and x are in the kernel; and if s J g = "
        "0 then Πg is a multiple of LN(x), so g is a sum of multiples of 1 and x."
    ),
    false=(
        lambda x, g: (
            gradient(_ln_along, "x", x=x, g=g),
            (g - layer_norm(x) * add_up(layer_norm(x) * g) / _count(x)) / _deviation(x),
        ),
        lambda x: (_trace(x), _count(x) - 1),
    ),
    false_says="$J = 1/s (I − x′ x′ᵀ/d_model)$; the rank is $d_model − 1$",
)
def layernorm_jacobian(x: Array, g: Array) -> list[Pair]:
    return [
        (gradient(_ln_along, "x", x=x, g=g), _projected(x, g) / _deviation(x)),
        (_projected(x, 0 * x + 1), 0 * x),
        (_projected(x, x), 0 * x),
        (_projected(x, _projected(x, g)), _projected(x, g)),
        (_trace(x), _count(x) - 2),
    ]


# -- weights around a norm ---------------------------------------------------------------------------------------------
norm_gain_folds = printed(
    "norm-gain-folds",
    TOPIC,
    "$(RMS(x) ⊙ g) W = RMS(x) (diag(g) W)$",
    letters=LETTERS.also({"U": "d_model d_model"}, rows=True),
    hypotheses=("$‖x‖² + ε > 0$",),
    why="Multiplying columns by g is the product with diag(g).",
    false_says="$(RMS(x) ⊙ g) U = RMS(x) (U diag(g))$ for a square U",
)


LAYER = {"x": "n d", "w": "d m", "g": "n m", "a": ""}


def _weight_gradient(x: Array, w: Array, g: Array) -> Array:
    """∇_W ⟨G, RMS(X W)⟩ = Xᵀ (G − Z (Z · G) / ‖Z‖²) / ρ with Z = X W, row by row."""
    z = x @ w
    return x.mT @ ((g - z * add_up(z * g) / squares(z)) / _root(squares(z) / _count(z)))


@theorem(
    "scale-before-norm-cancels",
    TOPIC,
    "$RMS(X (a W)) = RMS(X W)$; so $W·{∇ ℓ(W)} = 0$ and $∇ ℓ(a W) = 1/a ∇ ℓ(W)$",
    letters=LETTERS,
    arrays=LAYER,
    positive=("a",),
    hypotheses=(
        "$ε = 0$",
        "$a > 0$",
        "no row of X W is 0, $‖(X W)_r‖ ≠ 0$",
        "ℓ is any function of RMS(X W), with the gradient G by it: to first order $ℓ(W) = G·RMS(X W)$",
    ),
    source="van Laarhoven, L2 Regularization versus Batch and Weight Normalization (2017)",
    why="A function that does not change with the length of W has a gradient orthogonal to W, of degree −1.",
    false=lambda x, w, g, a: (_weight_gradient(x, a * w, g), _weight_gradient(x, w, g)),
    false_says="$∇ ℓ(a W) = ∇ ℓ(W)$",
)
def scale_before_norm(x: Array, w: Array, g: Array, a: Array) -> list[Pair]:
    slope = _weight_gradient(x, w, g)
    return [
        (rms_norm(x @ (a * w)), rms_norm(x @ w)),
        (gradient(lambda x, w, g: total(g * rms_norm(x @ w)), "w", x=x, w=w, g=g), slope),
        (total(w * slope), 0),
        (_weight_gradient(x, a * w, g), slope / a),
    ]
