"""``LayerNorm`` and ``RMSNorm``, and the forms in which norms are computed, equal in exact arithmetic.

Each form is run on the kind ``rounded``, which proves its bound (``arrays.rounded``): every operation is rounded at
most once, a quotient is one operation or a product with a reciprocal (R3), sums are taken in any order (R2), and an
error that several numbers share is counted once, by ``_share_rounding_error``. Each form has its own bound: an output
is legal if one of them allows it.

E x² − (E x)² is not among them: its error is that of E x², which may exceed the variance by any factor if the mean is
large. It is one of the known mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.flow import Step
from symattn.attention.layers.block import EPS
from symattn.attention.norms import centre, layer_norm, rms_norm, write_norm
from symattn.attention.stated_flow import OtherStep, StatedFlow
from symattn.bounds.changed_steps import ChangedSteps
from symattn.bounds.extras import ENTRIES
from symattn.bounds.mistake import Compute, Wrong, change, store_as_input
from symattn.verification.definitions.definition_forms import DefinitionForm
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inputs_by_letters import Family
from symattn.verification.definitions.stated_definition import define_in_steps
from symattn.verification.input_source import Random
from symattn.verification.probing.probes import integers, normal
from symattn.verification.rules.norms import affine


@dataclass(frozen=True, kw_only=True, repr=False)
class StatedNorm(StatedFlow):
    """The fields of a norm, and its steps. Raises ``InputError`` for invalid values."""

    eps: int | float | Fraction = EPS
    one_plus: bool = False
    residual: Literal["added", "returned"] | None = None

    letters: ClassVar[Mapping[str, str]] = {
        "x": "X",
        "residual": "R",
        "gain": "g",
        "bias": "b",
        "total": "S",
        "scale": "g'",
        "y": "Y",
        "sum": "S'",
    }
    nouns: ClassVar[Mapping[str, str]] = {"y": "the norm"}
    kind: ClassVar[Literal["layer", "rms"]]

    @property
    def returned(self) -> tuple[str, ...]:
        """See ``StatedFlow``."""
        return ("y", "sum") if self.residual == "returned" else ("y",)

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``: the sum with the residual, the factor 1 + g, the norm, and the sum as it is returned."""
        x, gain = "total" if self.residual else "x", "scale" if self.one_plus else "gain"
        if self.residual:
            yield self.state_step(
                "total", _add_residual, "@0 + @1", ("x", "residual"), role="sum", blames="residual"
            )
        has_gain, has_bias = "gain" in names, "bias" in names
        if self.one_plus and has_gain:
            yield self.state_step(
                "scale", lambda gain: 1 + gain, "1 + @0", ("gain",), role="offset", blames="norm"
            )
        written = write_norm(self.kind, "@0", "@1" * has_gain, "@2" * has_bias, eps=self.eps)
        of, norm = (x, gain, "bias"), partial(_NORMS[self.kind], self.eps)
        yield self.state_step("y", norm, written, of, role=f"{self.kind} norm", blames="norm")
        if self.residual == "returned":
            yield self.state_step(
                "sum", lambda total: total, "@0", ("total",), role="returned", blames="residual"
            )

    def __call__(self, x: Any, gain: Any = None, bias: Any = None, residual: Any = None) -> Any:
        """The normalised rows."""
        return self.return_run(x=x, gain=gain, bias=bias, residual=residual)


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

    kind = "layer"


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
    >>> RMSNorm(residual="added").write_formulas(["x", "residual", "gain"])
    ['S = X + R', 'Y = g ⊙ S/√(mean(S²) + ε)']

    Source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019), equation 4.
    """

    kind = "rms"


Norm = LayerNorm | RMSNorm
_NORMS: Mapping[str, Callable[..., Any]] = {
    "layer": lambda eps, x, gain, bias: layer_norm(x, eps, gain, bias),
    "rms": lambda eps, x, gain, bias: rms_norm(x, eps, gain, bias),
}


def _add_residual(x: Any, residual: Any) -> Any:
    # Both the mean and the numbers read one sum, so that its error is shared.
    return _share_rounding_error(x + residual)


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
    return define_in_steps(
        spec,
        step="norm",
        title=_title_of(spec),
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
        ways=_list_norm_forms(spec),
        shapes=(*sizes[:2], {"d": 4}, {"b": 2, "n": 3, "d": 4}, *sizes[2:]),
        families=_FAMILIES
        if spec.eps
        else {n: f for n, f in _FAMILIES.items() if n not in ("equal", "rows")},
        settings={
            "eps": float(spec.eps),
            "normalized_shape": lambda arrays: (arrays["x"].shape[-1],),
        },
    )


#: What is added to the array before it is normalised.
_RESIDUAL = Input("residual", "b h n d", "res skip shortcut residual_in residual_input")


def _title_of(spec: Norm) -> str:
    further = ", one_plus=True" * spec.one_plus
    further += f", residual={spec.residual!r}" if spec.residual else ""
    return f"{type(spec).__name__}(eps={float(spec.eps):g}{further})"


# -- numbers -----------------------------------------------------------------------------------------------------------
def draw_near_eps(rng: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Draw numbers whose variance is near the usual ε, or far below, so that ε matters."""
    return rng.standard_normal(shape) * 2.0 ** -rng.integers(4, 20)


_DRAWN: dict[str, Callable[[Random, tuple[int, ...]], np.ndarray]] = {
    # a mean much larger than the deviation
    "far": lambda rng, shape: (
        rng.standard_normal(shape) + rng.choice([-1, 1]) * 2.0 ** rng.integers(3, 15)
    ),
    "tiny": draw_near_eps,
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
def _list_norm_forms(spec: Norm) -> tuple[Compute, ...]:
    """Return the forms of the norm, of the sum with a residual as it was computed, and as it is stored."""
    as_stored: Wrong = lambda at: store_as_input(at.right())  # noqa: E731
    forms = []
    for is_stored in (False, True)[: 1 + bool(spec.residual)]:
        of_sum = {"total": change("total", as_stored)} if is_stored else {}
        more = f", of x + residual{' as stored' * is_stored}" if spec.residual else ""
        for words, of_norm in norm_forms(spec.kind, "y").items():
            # A factor 1 + g of a norm in the inputs' format is stored in it, too.
            of_scale = {"scale": change("scale", as_stored)} if words in _IN_INPUT_FORMAT else {}
            changes = of_sum | of_norm | (of_scale if spec.one_plus else {})
            run = ChangedSteps(spec, changes) if changes else spec
            forms.append(DefinitionForm(f"{words}{more}", run))
    return tuple(forms)


def norm_forms(kind: str, name: str) -> dict[str, dict[str, OtherStep]]:
    """Return the forms of a step ``name`` that is a norm, by words: how they change it, or nothing for its own form.

    m is the mean, and r is 1/σ, or for RMSNorm 1/√(mean(x²) + ε). The step takes x, gain and bias.
    """

    def of(form: Callable[..., Any], moments: Callable[[Any], Any]) -> dict[str, OtherStep]:
        other: Wrong = lambda at: form(at.spec.eps, moments, *at.taken)  # noqa: E731
        return {name: change(name, other)}

    if kind == "layer":
        return {
            "(x − m)/σ · g + b": {},
            "(x r − m r) g + b": of(folded, two_pass),
            "the same, with m and σ updated number by number": of(folded, welford),
            "x s + (b − m s), s = g r": of(affine_folded, two_pass),
            _IN_INPUT_FORMAT[0]: of(stored, two_pass),
        }
    return {
        "x/√(mean(x²) + ε) · g + b": {},
        "x r · g + b": of(folded, mean_square),
        "x s + b, s = g r": of(affine_folded, mean_square),
        _IN_INPUT_FORMAT[1]: of(stored, mean_square),
    }


#: The forms of both kinds that multiply by the gain in the format of the inputs.
_IN_INPUT_FORMAT = (
    "(x − m)/σ stored as the inputs are, then · g + b in their format",
    "x r stored as the inputs are, then · g + b in their format",
)


def affine_folded(
    eps: Any, moments: Callable[[Any], Any], x: Any, gain: Any = None, bias: Any = None
) -> Any:
    """Return x s + (b − m s) with s = g r, r = 1/√(v + ε), which equals (x − m) r g + b since both s are the same.

    Each operation is rounded, so the error grows with |x s| + |m s| + |b|, not with the output. The error of s is the
    same in both, so it changes (x − m) s only by its relative size.
    """
    mean, variance = moments(x)
    # The error of s is shared by both terms, and must count once.
    inverse = _share_rounding_error(1 / root_of(variance, eps))
    s = inverse if gain is None else _share_rounding_error(inverse * gain)
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
    eps: Any, moments: Callable[[Any], Any], x: Any, gain: Any = None, bias: Any = None
) -> Any:
    """Return (x r + (−m r)) g + b. Its errors grow with the mean, like those of the mean itself."""
    mean, variance = moments(x)
    inverse = _share_rounding_error(1 / root_of(variance, eps))
    y = x * inverse if mean is None else x * inverse + (-mean * inverse)
    return affine(y, gain, bias)


def stored(
    eps: Any, moments: Callable[[Any], Any], x: Any, gain: Any = None, bias: Any = None
) -> Any:
    """Round the normalised x to the format of the inputs; then apply gain and bias, each with a rounding to it.

    Llama's norms do so: they compute in float32 and multiply by the gain in bfloat16. If the arithmetic is that of the
    inputs, or every array may be stored in it (``eager``), this form makes no difference.
    """
    mean, variance = moments(x)
    y = store_as_input((x if mean is None else x - mean) / root_of(variance, eps))
    y = y if gain is None else y * gain
    return y if bias is None else store_as_input(y) + bias


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
