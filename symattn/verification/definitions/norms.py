"""``LayerNorm`` and ``RMSNorm`` as specifications."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from symattn.attention.fields import brief, check
from symattn.attention.norms import layer_norm, rms_norm
from symattn.document.keywords import Answering
from symattn.verification.definitions.norm_ways import gain_of, layer_ways, rms_ways
from symattn.verification.definitions.subject import Definition, DefinitionMistake, Family, Input
from symattn.verification.probing.search import integers, normal
from symattn.verification.rules import norms
from symattn.verification.subject import Array, Random

EPS = Fraction(1, 10**5)


@dataclass(frozen=True, kw_only=True)
class StatedNorm(Answering):
    """The fields of a norm. Raises InputError for those that mean nothing."""

    eps: int | float | Fraction = EPS
    one_plus: bool = False

    __repr__ = brief

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class LayerNorm(StatedNorm):
    """g ⊙ (x − mean(x)) / √(var(x) + ε) + b over the last axis, the variance with divisor d.

    eps       ε, inside the root
    one_plus  whether the gain is stored as an offset from one: 1 + g in the place of g

    A function takes x (…, d), a gain (d,) and a bias (d,), and returns (…, d); gain and bias are optional.

    >>> import numpy as np
    >>> LayerNorm(eps=0)(np.array([1.0, 3.0]))
    array([-1.,  1.])

    Source: Ba, Kiros, Hinton, Layer Normalization (2016), equations 3 and 4.
    """

    def __call__(self, x: Any, gain: Any = None, bias: Any = None) -> Any:
        """The normalised rows."""
        return layer_norm(x, self.eps, gain_of(self, gain), bias)


@dataclass(frozen=True, kw_only=True, repr=False)
class RMSNorm(StatedNorm):
    """g ⊙ x / √(mean(x²) + ε) + b over the last axis.

    eps       ε, inside the root
    one_plus  whether the gain is stored as an offset from one: 1 + g in the place of g

    A function takes x (…, d), a gain (d,) and a bias (d,), and returns (…, d); gain and bias are optional.

    >>> import numpy as np
    >>> RMSNorm(eps=0)(np.array([3.0, 3.0]))
    array([1., 1.])

    Source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019), equation 4.
    """

    def __call__(self, x: Any, gain: Any = None, bias: Any = None) -> Any:
        """The normalised rows."""
        return rms_norm(x, self.eps, gain_of(self, gain), bias)


Norm = LayerNorm | RMSNorm


def subject(spec: Norm) -> Definition:
    """The norm, ready to be verified."""
    layer = isinstance(spec, LayerNorm)
    ways = layer_ways(spec) if layer else rms_ways(spec)
    widths = (2, 4, 3, 5, 1, 8, 16, 17, 33, 64, 65, 129)
    rows = (1, 3, 2, 4, 3, 1, 2, 3, 2, 1, 2, 1)
    sizes = [{"n": n, "d": d} for n, d in zip(rows, widths, strict=True) if d > 1 or not layer or spec.eps]
    return Definition(
        title=f"{type(spec).__name__}(eps={float(spec.eps):g}{', one_plus=True' * spec.one_plus})",
        step="norm",
        inputs=(
            Input("x", "b h n d", "input inputs hidden hidden_states h tokens a features"),
            Input("gain", "d", "weight gamma scale w g norm_weight ln_weight", partial(_gains, spec), needed=False),
            Input("bias", "d", "beta b shift offset norm_bias ln_bias", _halves, needed=False),
        ),
        outputs=("y",),
        ways=ways,
        mistakes=tuple(_mistakes(spec, layer)),
        shapes=(*sizes[:2], {"d": 4}, {"b": 2, "n": 3, "d": 4}, *sizes[2:]),
        families=_FAMILIES if spec.eps else {n: f for n, f in _FAMILIES.items() if n not in ("equal", "rows")},
        settings={"eps": float(spec.eps), "normalized_shape": lambda arrays: (arrays["x"].shape[-1],)},
    )


def _mistakes(spec: Norm, layer: bool) -> Iterator[DefinitionMistake]:
    """Yield mistakes by rule, of the stored gain, and the variance as a difference, which loses digits alone."""
    kind: norms.Kind = "layer" if layer else "rms"

    def told(words: str, how: norms.Norm, stored: bool = False, exact: bool = True) -> DefinitionMistake:
        def run(x: Any, gain: Any = None, bias: Any = None) -> Any:
            return how(x, spec.eps, gain if stored else gain_of(spec, gain), bias)

        return DefinitionMistake("norm", words, run, exact)

    for words, how in norms.norms(kind, spec.eps, _AXES):
        yield told(words, how)
    good = norms.right(kind)
    if spec.one_plus:
        yield told("the gain, stored as an offset from one, is used without the 1", good, stored=True)
    else:
        more: norms.Affine = lambda y, g, b: norms.affine(y, None if g is None else 1 + g, b)  # noqa: E731
        yield told("1 is added to the gain", replace(good, affine=more))
    if layer:
        cancelling = replace(good, within=False, measure=lambda mean, y, n: mean(y * y) - mean(y) * mean(y))
        words = "the variance is computed as mean(x²) − mean(x)², which cancels where the mean is large"
        yield told(words, cancelling, exact=False)


_AXES = {(-2,): "the tokens", (-1, -2): "tokens and columns together", (-1, -2, -3): "the whole batch",
         (0,): "the first axis"}  # fmt: skip


def _gains(spec: Norm, shape: tuple[int, ...], rng: Random) -> Array:
    return rng.integers(-3 if spec.one_plus else 1, 7, shape) / 4.0


def _halves(shape: tuple[int, ...], rng: Random) -> Array:
    return rng.integers(-4, 5, shape) / 2.0


# -- numbers -----------------------------------------------------------------------------------------------------------
_DRAWN: dict[str, Callable[[Random, tuple[int, ...]], Array]] = {
    # a mean much larger than the deviation
    "far": lambda rng, shape: rng.standard_normal(shape) + rng.choice([-1, 1]) * 2.0 ** rng.integers(3, 15),
    # a variance about ε, or far below
    "tiny": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** -rng.integers(4, 20),
    # rows of equal numbers, zeros among them
    "equal": lambda rng, shape: rng.integers(-1, 2, (*shape[:-1], 1)) + 0.0 * rng.integers(0, 2, shape),
    # one number far from the others
    "outlier": lambda rng, shape: rng.standard_normal(shape) + 100.0 * (rng.random(shape) < 0.2),
    # rows of quite different means and sizes
    "rows": lambda rng, shape: (
        rng.standard_normal(shape) * 2.0 ** -rng.integers(-2, 12, (*shape[:-1], 1))
        + rng.integers(-9, 10, (*shape[:-1], 1))
    ),
    # squares beyond float16, which is no excuse where they may not be stored in it
    "huge": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(8, 13),
}
_FAMILIES: dict[str, Family] = {"integer": integers, "normal": normal} | {
    name: lambda rng, draw=draw: lambda name, shape: draw(rng, shape)  # type: ignore[misc]
    for name, draw in _DRAWN.items()
}
