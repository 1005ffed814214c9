"""Normalisation: what LayerNorm and RMSNorm do not see, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.norms import centre, layer_norm, rms_norm
from symattn.attention.notation import D_MODEL
from symattn.document.notation import Fence, Node, Product, Root, Transposed, call, equals, name, relation, total
from symattn.proof.gradients import gradient
from symattn.proof.relations.glossary import Definition, Glossary
from symattn.proof.relations.values import Value
from symattn.proof.statement import Pair
from symattn.proof.theorem import Theorem, theorem
from symattn.proof.together import Together, identity
from symattn.theorems.letters import ONES, eye, norm, said, same, told
from symattn.theorems.sums import add_up, squares

TOPIC = "normalisation"
X_, G_, W_, EPS, RHO, A_, B_ = (name(x) for x in ("x", "g", "W", "ε", "ρ", "a", "b"))
PI_, J_, I_ = name("Π"), name("J"), name("I")
X_HAT = name("x'")
NO_EPS = (equals(EPS, 0),)
ZHANG = "Zhang, Sennrich, Root Mean Square Layer Normalization (2019)"
BA = "Ba, Kiros, Hinton, Layer Normalization (2016)"
ROWS = {"x": "n d"}


def _normed(work: Callable[..., Any]) -> Callable[..., Value]:
    """What a word for a norm stands for, with the ε that is printed."""
    return lambda reader, x: replace(x, array=work(x.array, reader.one(EPS).array))


LETTERS = Glossary(
    {"x": "d_model", "a": "", "b": "", "ε": "", "g": "d_model", "W": "d_model e", "X": "n d_model", "G": "n e"},
    index={"i": "d_model", "r": "n", "c": "e"},
    defined={
        "I": eye("d_model"),
        "Π": Definition((), I_ - ONES * Transposed(ONES) / D_MODEL),
    },
    functions={"LN": _normed(layer_norm), "RMS": _normed(rms_norm)},
    nonnegative=("ε",),
)
VARIED = told("the entries of x are not all equal, {}", relation(norm(PI_ * X_), "≠", 0))


def ln(x: Node) -> Node:
    """LN(x)."""
    return call("LN", x)


def rms(x: Node) -> Node:
    """RMS(x)."""
    return call("RMS", x)


def _count(like: Any) -> Array:
    """The number of columns, as a column."""
    return add_up(0 * like + 1)


def _root(x: Array) -> Array:
    return x.__array_namespace__().sqrt(x)


# -- what they are -----------------------------------------------------------------------------------------------------
@theorem(
    "layernorm-projection",
    TOPIC,
    (
        equals(ln(X_), Root(D_MODEL) * PI_ * X_ / norm(PI_ * X_)),
        " with ",
        equals(PI_, I_ - ONES * Transposed(ONES) / D_MODEL),
        "; its entries sum to 0 and its norm is the root: ",
        equals(total("i", 1, D_MODEL, call(name("LN", "i"), X_)), 0),
        ", ",
        equals(norm(ln(X_)), Root(D_MODEL)),
    ),
    letters=LETTERS,
    arrays=ROWS,
    hypotheses=(NO_EPS, VARIED),
    source="Brody, Alon, Yahav, On the Expressivity Role of LayerNorm in Transformers' Attention (2023)",
    why="Subtracting the mean is the projection Π, and the variance is ‖Πx‖² / d.",
    false=lambda x: (squares(layer_norm(x)), _count(x) - 1),
    false_says=(equals(norm(ln(X_)), Root(D_MODEL - 1)), ", as of the unbiased variance"),
)
def layernorm_projection(x: Array) -> list[Pair]:
    return [
        (layer_norm(x), _root(_count(x)) * centre(x) / _root(squares(centre(x)))),
        (add_up(layer_norm(x)), 0),
        (squares(layer_norm(x)), _count(x)),
    ]


AFFINE = {"x": "n d", "a": "n 1", "b": "n 1", "eps": ""}


def _affine(x: Array, a: Array, b: Array) -> list[tuple[Any, Any]]:
    """What the centred rows are, and what RMSNorm makes of multiples of them."""
    return [
        (centre(a * x + b), a * centre(x)),
        (centre(-a * x + b), -a * centre(x)),
        (rms_norm(a * x), rms_norm(x)),
        (rms_norm(-a * x), -rms_norm(x)),
    ]


layernorm_invariance = Theorem(
    "layernorm-invariance",
    TOPIC,
    same(ln(A_ * X_ + B_ * ONES), said("sign", A_) * ln(X_)),
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
    (equals(ln(A_ * X_ + B_ * ONES), ln(X_)), "; and the same for ε > 0"),
    ("Centring removes b, and the norm divides by |a|.",),
    (NO_EPS, (relation(A_, "≠", 0),), VARIED),
    LETTERS,
)


@theorem(
    "rmsnorm-scale",
    TOPIC,
    same(rms(A_ * X_), rms(X_)),
    letters=LETTERS,
    arrays={"x": "n d", "a": "n 1", "b": "n 1"},
    positive=("a",),
    hypotheses=(NO_EPS, (relation(A_, ">", 0),), told("x is not 0, {}", relation(norm(X_), "≠", 0))),
    source=ZHANG,
    why="The root of the mean square takes the same factor.",
    false=lambda x, b: (rms_norm(x + b), rms_norm(x)),
    false_says=same(rms(X_ + B_ * ONES), rms(X_)),
)
def rmsnorm_scale(x: Array, a: Array) -> Pair:
    return rms_norm(a * x), rms_norm(x)


@theorem(
    "layernorm-is-centred-rmsnorm",
    TOPIC,
    (equals(ln(X_), rms(PI_ * X_)), " with the same ε"),
    letters=LETTERS,
    arrays={"x": "n d", "eps": ""},
    hypotheses=((relation(norm(PI_ * X_) ** 2 + EPS, ">", 0),),),
    source="Jiang, Gu, Zhu, Pan, Pre-RMSNorm and Pre-CRMSNorm Transformers (2023)",
    why="The variance of x is the mean square of Πx.",
    false=lambda x, eps: (layer_norm(x, eps * eps), centre(rms_norm(x, eps * eps))),
    false_says=same(ln(X_), PI_ * rms(X_)),
)
def layernorm_is_centred_rmsnorm(x: Array, eps: Array) -> Pair:
    xp = x.__array_namespace__()
    mean = add_up(x) / _count(x)
    variance = add_up((x - mean) * (x - mean)) / _count(x)
    return (x - mean) / xp.sqrt(variance + eps), rms_norm(centre(x), eps)


# -- derivatives -------------------------------------------------------------------------------------------------------
VECTORS = {"x": "d", "g": "d", "eps": ""}


def _rms_along(x: Array, g: Array, eps: Any) -> Array:
    """⟨g, RMS(x)⟩, whose gradient by x is J g, as J is symmetric."""
    return x.__array_namespace__().sum(g * rms_norm(x, eps))


def _mean_square(x: Array, eps: Any) -> Any:
    return squares(x) / _count(x) + eps


def _rms_jacobian(x: Array, g: Array, eps: Any) -> Any:
    """(g − x (x · g) / (d ρ²)) / ρ."""
    rho2 = _mean_square(x, eps)
    return (g - x * add_up(x * g) / _count(x) / rho2) / _root(rho2)


@theorem(
    "rmsnorm-jacobian",
    TOPIC,
    (
        equals(J_, (1 / RHO) * (I_ - X_ * Transposed(X_) / (D_MODEL * RHO**2))),
        " with ",
        equals(RHO**2, norm(X_) ** 2 / D_MODEL + EPS),
        "; ",
        equals(J_ * X_, EPS * X_ / RHO**3),
        "; this is 0 only for ",
        equals(EPS, 0),
    ),
    letters=LETTERS.also(defined={"J": lambda reader: reader.derivative(rms(X_), "x")}),
    arrays=VECTORS,
    hypotheses=((relation(norm(X_), "≠", 0),),),
    why="Of the quotient x/ρ, the denominator has the gradient x / (d ρ).",
    false=lambda x, eps: (_rms_jacobian(x, x, eps * eps), 0 * x),
    false_says=(equals(J_ * X_, 0), " also for ε > 0"),
)
def rmsnorm_jacobian(x: Array, g: Array, eps: Array) -> list[Pair]:
    rho2 = _mean_square(x, eps)
    return [
        (gradient(_rms_along, "x", x=x, g=g, eps=eps), _rms_jacobian(x, g, eps)),
        (_rms_jacobian(x, x, eps), eps * x / (rho2 * _root(rho2))),
    ]


def _ln_along(x: Array, g: Array) -> Array:
    return x.__array_namespace__().sum(g * layer_norm(x))


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
    (
        equals(J_, (1 / name("s")) * (PI_ - X_HAT * Transposed(X_HAT) / D_MODEL)),
        " with ",
        equals(name("s") ** 2, norm(PI_ * X_) ** 2 / D_MODEL),
        ", ",
        equals(X_HAT, ln(X_)),
        "; s J is a projection of rank ",
        D_MODEL - 2,
        " with the kernel spanned by ",
        ONES,
        " and x: ",
        equals((name("s") * J_) ** 2, name("s") * J_),
        ", ",
        equals(J_ * ONES, 0 * ONES),
        " and ",
        equals(J_ * X_, 0 * X_),
    ),
    letters=LETTERS.also(defined={"J": lambda reader: reader.derivative(ln(X_), "x")}),
    arrays={"x": "d", "g": "d"},
    hypotheses=(NO_EPS, VARIED),
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
    false_says=(
        equals(J_, (1 / name("s")) * (I_ - X_HAT * Transposed(X_HAT) / D_MODEL)),
        "; the rank is ",
        D_MODEL - 1,
    ),
)
def layernorm_jacobian(x: Array, g: Array) -> list[Pair]:
    return [
        (gradient(_ln_along, "x", x=x, g=g), _projected(x, g) / _deviation(x)),
        (_projected(x, 0 * x + 1), 0 * x),
        (_projected(x, x), 0 * x),
        (_projected(x, _projected(x, g)), _projected(x, g)),
        (_trace(x), _count(x) - 2),
    ]


GAINED = Fence("round", Product((rms(X_), name("⊙"), G_)))


# -- weights around a norm ---------------------------------------------------------------------------------------------
@theorem(
    "norm-gain-folds",
    TOPIC,
    same(GAINED * W_, rms(X_) * Fence("round", said("diag", G_) * W_)),
    letters=LETTERS.also(rows=True),
    arrays={"x": "n d", "g": "d", "w": "d e", "u": "d d", "eps": ""},
    hypotheses=((relation(norm(X_) ** 2 + EPS, ">", 0),),),
    why="Multiplying columns by g is the product with diag(g).",
    false=lambda x, g, u, eps: ((rms_norm(x, eps) * g) @ u, rms_norm(x, eps) @ (u * g[None, :])),
    false_says=same(GAINED * W_, rms(X_) * Fence("round", W_ * said("diag", G_))),
)
def norm_gain_folds(x: Array, g: Array, w: Array, eps: Array) -> Pair:
    return (rms_norm(x, eps) * g) @ w, rms_norm(x, eps) @ (g[:, None] * w)


LAYER = {"x": "n d", "w": "d m", "g": "n m", "a": ""}


def _loss(x: Array, w: Array, g: Array) -> Any:
    """⟨G, RMS(X W)⟩."""
    return x.__array_namespace__().sum(g * rms_norm(x @ w))


def _weight_gradient(x: Array, w: Array, g: Array) -> Array:
    """∇_W ⟨G, RMS(X W)⟩ = Xᵀ (G − Z (Z · G) / ‖Z‖²) / ρ with Z = X W, row by row."""
    z = x @ w
    return x.mT @ ((g - z * add_up(z * g) / squares(z)) / _root(squares(z) / _count(z)))


ROW_R = Fence("round", name("X") * W_, name("r"))


def slope(of: Node) -> Node:
    """∇ℓ(W)."""
    return name("∇") * call("ℓ", of)


_LOSS = equals(call("ℓ", W_), Product((name("G"), rms(name("X") * W_)), "·"))


@theorem(
    "scale-before-norm-cancels",
    TOPIC,
    (
        equals(rms(name("X") * Fence("round", A_ * W_)), rms(name("X") * W_)),
        "; so ",
        equals(Product((W_, slope(W_)), "·"), 0),
        " and ",
        equals(slope(A_ * W_), (1 / A_) * slope(W_)),
    ),
    letters=LETTERS,
    arrays=LAYER,
    positive=("a",),
    hypotheses=(
        NO_EPS,
        (relation(A_, ">", 0),),
        told("no row of X W is 0, {}", relation(norm(ROW_R), "≠", 0)),
        told("ℓ is any function of RMS(X W), with the gradient G by it: to first order {}", _LOSS),
    ),
    source="van Laarhoven, L2 Regularization versus Batch and Weight Normalization (2017)",
    why="A function that does not change with the length of W has a gradient orthogonal to W, of degree −1.",
    false=lambda x, w, g, a: (_weight_gradient(x, a * w, g), _weight_gradient(x, w, g)),
    false_says=same(slope(A_ * W_), slope(W_)),
)
def scale_before_norm(x: Array, w: Array, g: Array, a: Array) -> list[Pair]:
    xp, slope = x.__array_namespace__(), _weight_gradient(x, w, g)
    return [
        (rms_norm(x @ (a * w)), rms_norm(x @ w)),
        (gradient(_loss, "w", x=x, w=w, g=g), slope),
        (xp.sum(w * slope), 0),
        (_weight_gradient(x, a * w, g), slope / a),
    ]


THEOREMS = (
    layernorm_projection,
    layernorm_invariance,
    rmsnorm_scale,
    layernorm_is_centred_rmsnorm,
    rmsnorm_jacobian,
    layernorm_jacobian,
    norm_gain_folds,
    scale_before_norm,
)
