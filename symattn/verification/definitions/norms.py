"""``LayerNorm`` and ``RMSNorm``, and the forms in which norms are computed, equal in exact arithmetic.

Each form is run on the kind ``rounded``, which proves its bound (``arrays.rounded``): every operation is rounded at
most once, a quotient is one operation or a product with a reciprocal (R3), sums are taken in any order (R2), and an
error that several numbers share is counted once, by ``_share_rounding_error``. Each form has its own bound: an output
is legal if one of them allows it.

E x² − (E x)² is not among them: its error is that of E x², which may exceed the variance by any factor if the mean is
large. It is one of the known mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import starmap
from typing import Any, Literal

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.fields import brief, check
from symattn.attention.layers.block import EPS
from symattn.attention.norms import centre, layer_norm, rms_norm
from symattn.bounds.extras import ENTRIES
from symattn.bounds.mistake import Compute, Mistake
from symattn.document.keywords import Answering
from symattn.verification.definitions.definition_mistakes import DefinitionForm
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inputs_by_letters import Family
from symattn.verification.input_source import Random
from symattn.verification.probing.probes import integers, normal
from symattn.verification.rules import norms
from symattn.verification.rules.norms import affine


@dataclass(frozen=True, kw_only=True)
class StatedNorm(Answering):
    """The fields of a norm. Raises ``InputError`` for invalid values."""

    eps: int | float | Fraction = EPS
    one_plus: bool = False
    residual: Literal["added", "returned"] | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class LayerNorm(StatedNorm):
    """g ⊙ (x − mean(x)) / √(var(x) + ε) + b over the last axis, the variance with divisor d.

    eps       ε, inside the root
    one_plus  whether the gain is stored as an offset from one: 1 + g in the place of g
    residual  ``added``: a second array is added to x before; ``returned``: their sum is returned, too

    A function takes x (…, d), a gain (d,) and a bias (d,), and returns (…, d); gain and bias are optional.

    >>> import numpy as np
    >>> LayerNorm(eps=0)(np.array([1.0, 3.0]))
    array([-1.,  1.])

    Source: Ba, Kiros, Hinton, Layer Normalization (2016), equations 3 and 4.
    """

    def __call__(self, x: Any, gain: Any = None, bias: Any = None, residual: Any = None) -> Any:
        """The normalised rows."""
        return _norm_of_sum(self, partial(_layer_norm, self), x, gain, bias, residual)


@dataclass(frozen=True, kw_only=True, repr=False)
class RMSNorm(StatedNorm):
    """g ⊙ x / √(mean(x²) + ε) + b over the last axis.

    eps       ε, inside the root
    one_plus  whether the gain is stored as an offset from one: 1 + g in the place of g
    residual  ``added``: a second array is added to x before; ``returned``: their sum is returned, too

    A function takes x (…, d), a gain (d,) and a bias (d,), and returns (…, d); gain and bias are optional.

    >>> import numpy as np
    >>> RMSNorm(eps=0)(np.array([3.0, 3.0]))
    array([1., 1.])
    >>> RMSNorm(eps=0, residual="returned")(np.array([1.0, 1.0]), residual=np.array([2.0, 2.0]))
    (array([1., 1.]), array([3., 3.]))

    Source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019), equation 4.
    """

    def __call__(self, x: Any, gain: Any = None, bias: Any = None, residual: Any = None) -> Any:
        """The normalised rows."""
        return _norm_of_sum(self, partial(_rms_norm, self), x, gain, bias, residual)


Norm = LayerNorm | RMSNorm


def _layer_norm(spec: LayerNorm, x: Any, gain: Any = None, bias: Any = None) -> Any:
    return layer_norm(x, spec.eps, gain_of(spec, gain), bias)


def _rms_norm(spec: RMSNorm, x: Any, gain: Any = None, bias: Any = None) -> Any:
    return rms_norm(x, spec.eps, gain_of(spec, gain), bias)


def _norm_of_sum(
    spec: Norm,
    norm: Compute,
    x: Any,
    gain: Any = None,
    bias: Any = None,
    residual: Any = None,
    stores: bool = False,
) -> Any:
    """Return the norm of x + residual, and the sum if that is returned; without a residual, the norm of x.

    If the norm ``stores`` the sum, it reads it as it is in the format of the inputs.
    """
    if spec.residual is None:
        return norm(x, gain, bias)
    # Both the mean and the numbers read one sum, so that its error is shared.
    total = _share_rounding_error(x + residual)
    total = _store_in_norm_format(total) if stores else total
    normalised = norm(total, gain, bias)
    return (normalised, total) if spec.residual == "returned" else normalised


def subject(spec: Norm) -> Definition:
    """Return the definition of the norm."""
    layer = isinstance(spec, LayerNorm)
    widths = (2, 4, 3, 5, 1, 8, 16, 17, 33, 64, 65, 129)
    rows = (1, 3, 2, 4, 3, 1, 2, 3, 2, 1, 2, 1)
    # One column has variance 0, so that LayerNorm is 0/0 there without ε.
    sizes = [
        {"n": n, "d": d}
        for n, d in zip(rows, widths, strict=True)
        if d > 1 or not layer or spec.eps
    ]
    return Definition(
        title=_title_of(spec),
        step="norm",
        inputs=(
            Input("x", "b h n d", "input inputs hidden hidden_states h tokens a features"),
            *((_RESIDUAL,) if spec.residual else ()),
            Input(
                "gain",
                "d",
                "weight gamma scale w g norm_weight ln_weight",
                lambda shape, rng: rng.integers(-3 if spec.one_plus else 1, 7, shape) / 4.0,
                needed=False,
            ),
            Input(
                "bias", "d", "beta b shift offset norm_bias ln_bias", ENTRIES["bias"], needed=False
            ),
        ),
        outputs=("y", "sum") if spec.residual == "returned" else ("y",),
        ways=_list_norm_forms(spec),
        mistakes=(*_yield_norm_mistakes(spec, layer), *_yield_residual_mistakes(spec)),
        shapes=(*sizes[:2], {"d": 4}, {"b": 2, "n": 3, "d": 4}, *sizes[2:]),
        families=_FAMILIES
        if spec.eps
        else {n: f for n, f in _FAMILIES.items() if n not in ("equal", "rows")},
        settings={
            "eps": float(spec.eps),
            "normalized_shape": lambda arrays: (arrays["x"].shape[-1],),
        },
    )


def _yield_norm_mistakes(spec: Norm, layer: bool) -> Iterator[Mistake]:
    """Yield mistakes by rule, of the stored gain, and the variance as a difference, which only loses digits."""
    kind: norms.Kind = "layer" if layer else "rms"

    def mistake(words: str, how: norms.Norm, stored: bool = False, exact: bool = True) -> Mistake:
        def norm(x: Any, gain: Any = None, bias: Any = None) -> Any:
            return how(x, spec.eps, gain if stored else gain_of(spec, gain), bias)

        return Mistake("norm", words, partial(_norm_of_sum, spec, norm), exact)

    for words, how in norms.norms(kind, spec.eps, _AXES):
        yield mistake(words, how)
    good = norms.right(kind)
    if spec.one_plus:
        yield mistake(
            "the gain, stored as an offset from one, is used without the 1", good, stored=True
        )
    else:
        more: norms.Affine = lambda y, g, b: norms.affine(y, None if g is None else 1 + g, b)  # noqa: E731
        yield mistake("1 is added to the gain", replace(good, affine=more))
    if layer:
        cancelling = replace(
            good, within=False, measure=lambda mean, y, n: mean(y * y) - mean(y) * mean(y)
        )
        words = (
            "the variance is computed as mean(x²) − mean(x)², which cancels where the mean is large"
        )
        yield mistake(words, cancelling, exact=False)


def _yield_residual_mistakes(spec: Norm) -> Iterator[Mistake]:
    """Yield mistakes in the sum of x and the residual, and in what is returned of it."""
    if spec.residual is None:
        return
    norm = replace(spec, residual=None)

    def mistake(words: str, parts: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Mistake:
        """Return the mistake of a norm and a sum, which are computed from x, the residual and the right norm."""

        def run(x: Any, gain: Any = None, bias: Any = None, residual: Any = None) -> Any:
            normalised, total = parts(x, residual, partial(norm, gain=gain, bias=bias))
            return (normalised, total) if spec.residual == "returned" else normalised

        return Mistake("residual", words, run)

    yield mistake("the residual is not added", lambda x, r, norm: (norm(x), x))
    yield mistake("the residual is subtracted", lambda x, r, norm: (norm(x - r), x - r))
    yield mistake(
        "the residual is added after the norm", lambda x, r, norm: (norm(x) + r, norm(x) + r)
    )
    yield mistake("only the residual is normalised", lambda x, r, norm: (norm(r), x + r))
    if spec.residual == "returned":
        yield mistake("the sum that is returned lacks x", lambda x, r, norm: (norm(x + r), r))
        yield mistake(
            "the sum that is returned lacks the residual", lambda x, r, norm: (norm(x + r), x)
        )
        yield mistake(
            "what is returned as the sum is normalised",
            lambda x, r, norm: (norm(x + r), norm(x + r)),
        )


#: What is added to the array before it is normalised.
_RESIDUAL = Input("residual", "b h n d", "res skip shortcut residual_in residual_input")


def _title_of(spec: Norm) -> str:
    further = ", one_plus=True" * spec.one_plus
    further += f", residual={spec.residual!r}" if spec.residual else ""
    return f"{type(spec).__name__}(eps={float(spec.eps):g}{further})"


_AXES = {
    (-2,): "the tokens",
    (-1, -2): "tokens and columns together",
    (-1, -2, -3): "the whole batch",
    (0,): "the first axis",
}


# -- numbers -----------------------------------------------------------------------------------------------------------
_DRAWN: dict[str, Callable[[Random, tuple[int, ...]], np.ndarray]] = {
    # a mean much larger than the deviation
    "far": lambda rng, shape: (
        rng.standard_normal(shape) + rng.choice([-1, 1]) * 2.0 ** rng.integers(3, 15)
    ),
    # a variance near ε, or far below
    "tiny": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** -rng.integers(4, 20),
    # rows of equal numbers, zeros among them
    "equal": lambda rng, shape: (
        rng.integers(-1, 2, (*shape[:-1], 1)) + 0.0 * rng.integers(0, 2, shape)
    ),
    # one number far from the others
    "outlier": lambda rng, shape: rng.standard_normal(shape) + 100.0 * (rng.random(shape) < 0.2),
    # rows of quite different means and sizes
    "rows": lambda rng, shape: (
        rng.standard_normal(shape) * 2.0 ** -rng.integers(-2, 12, (*shape[:-1], 1))
        + rng.integers(-9, 10, (*shape[:-1], 1))
    ),
    # squares beyond float16, which excuses nothing unless they may be stored in it
    "huge": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(8, 13),
}
_FAMILIES: dict[str, Family] = {"integer": integers, "normal": normal} | {
    name: lambda rng, draw=draw: lambda name, shape: draw(rng, shape)  # type: ignore[misc]
    for name, draw in _DRAWN.items()
}


# -- forms -------------------------------------------------------------------------------------------------------------
def gain_of(spec: Any, gain: np.ndarray) -> np.ndarray:
    """Return the factor for a stored gain."""
    return 1 + gain if spec.one_plus and gain is not None else gain


def _list_norm_forms(spec: Norm) -> tuple[Compute, ...]:
    """Return the forms: m is the mean, and r is 1/σ, or for RMSNorm 1/√(mean(x²) + ε).

    The sum with a residual is read as it was computed, or as it is stored in the format of the inputs.
    """
    forms = _norm_forms_by_words(replace(spec, residual=None))
    if spec.residual is None:
        return tuple(starmap(DefinitionForm, forms.items()))
    return tuple(
        DefinitionForm(
            f"{words}, of x + residual{' as stored' * stores}",
            partial(_norm_of_sum, spec, form, stores=stores),
        )
        for stores in (False, True)
        for words, form in forms.items()
    )


def _norm_forms_by_words(spec: Norm) -> dict[str, Compute]:
    """Return the forms of a norm of one array, by their words."""
    forms: dict[str, Compute]
    if isinstance(spec, LayerNorm):
        forms = {
            "(x − m)/σ · g + b": spec,
            "(x r − m r) g + b": partial(folded, spec, two_pass),
            "the same, with m and σ updated number by number": partial(folded, spec, welford),
            "x s + (b − m s), s = g r": partial(affine_folded, spec, two_pass),
            "(x − m)/σ stored as the inputs are, then · g + b in their format": partial(
                stored, spec, two_pass
            ),
        }
    else:
        forms = {
            "x/√(mean(x²) + ε) · g + b": spec,
            "x r · g + b": partial(folded, spec, mean_square),
            "x s + b, s = g r": partial(affine_folded, spec, mean_square),
            "x r stored as the inputs are, then · g + b in their format": partial(
                stored, spec, mean_square
            ),
        }
    return forms


def affine_folded(
    spec: Any, moments: Callable[[Any], Any], x: Any, gain: Any = None, bias: Any = None
) -> Any:
    """Return x s + (b − m s) with s = g r, r = 1/√(v + ε), which equals (x − m) r g + b since both s are the same.

    Each operation is rounded, so the error grows with |x s| + |m s| + |b|, not with the output. The error of s is the
    same in both, so it changes (x − m) s only by its relative size.
    """
    mean, variance = moments(x)
    # The error of s is shared by both terms, and must count once.
    inverse = _share_rounding_error(1 / root_of(variance, spec.eps))
    scale = gain_of(spec, gain)
    s = inverse if scale is None else _share_rounding_error(inverse * scale)
    if mean is None:
        return affine(x * s, None, bias)
    shift = -mean * s
    return x * s + (shift if bias is None else bias + shift)


def root_of(variance: Any, eps: Any) -> Any:
    xp = namespace_of(variance)
    return xp.sqrt(variance + xp.asarray(eps, dtype=variance.dtype))


def mean_of(x: Array) -> Array:
    return namespace_of(x).mean(x, axis=-1, keepdims=True)


def folded(
    spec: Any, moments: Callable[[Any], Any], x: Any, gain: Any = None, bias: Any = None
) -> Any:
    """Return (x r + (−m r)) g + b. Its errors grow with the mean, like those of the mean itself."""
    mean, variance = moments(x)
    inverse = _share_rounding_error(1 / root_of(variance, spec.eps))
    y = x * inverse if mean is None else x * inverse + (-mean * inverse)
    return affine(y, gain_of(spec, gain), bias)


def stored(
    spec: Any, moments: Callable[[Any], Any], x: Any, gain: Any = None, bias: Any = None
) -> Any:
    """Round the normalised x to the format of the inputs; then apply gain and bias, each with a rounding to it.

    Llama's norms do so: they compute in float32 and multiply by the gain in bfloat16. If the arithmetic is that of the
    inputs, or every array may be stored in it (``eager``), this form makes no difference.
    """
    mean, variance = moments(x)
    y = _store_in_norm_format((x if mean is None else x - mean) / root_of(variance, spec.eps))
    scale = gain_of(spec, gain)
    y = y if scale is None else y * (scale if scale is gain else _store_in_norm_format(scale))
    return y if bias is None else _store_in_norm_format(y) + bias


def _store_in_norm_format(a: Any) -> Any:
    """Return the same numbers; on ``rounded``, rounded to the inputs' format."""
    return a.as_input() if hasattr(a, "as_input") else a


def two_pass(x: Any) -> tuple[Any, Any]:
    centred = centre(x)
    return mean_of(x), mean_of(centred * centred)


def mean_square(x: Any) -> tuple[Any, Any]:
    return None, mean_of(x * x)


def welford(x: Array) -> tuple[Any, Any]:
    """Return mean and variance by m_k = m_{k−1} + (x_k − m_{k−1})/k, s_k = s_{k−1} + (x_k − m_{k−1})(x_k − m_k).

    Source: Welford, Note on a Method for Calculating Corrected Sums of Squares and Products (1962).
    """
    # The first entry starts the mean, so that nothing is subtracted from zero.
    mean = x[..., :1]
    total = 0 * mean
    for k in range(1, int(x.shape[-1])):
        column = x[..., k : k + 1]
        before = column - mean
        mean = _share_rounding_error(mean + before / (k + 1))
        total = total + before * (column - mean)
    return mean, total / int(x.shape[-1])


def _share_rounding_error(a: Any) -> Array:
    """Return the same numbers as sums of one term, whose error ``rounded`` then treats as shared by all readers.

    Otherwise an error that cancels would count twice.
    """
    xp = namespace_of(a)
    return xp.sum(xp.expand_dims(a, axis=-1), axis=-1)
