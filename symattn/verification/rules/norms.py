"""Norms whose every choice can be changed: what is subtracted, what is measured over which axes, root, ε, gain, bias.

The same rules apply to the steps of an ``Attention`` (``norm_records``), and to those that a definition states, such as
``LayerNorm`` and ``RMSNorm`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.flow import Step
from symattn.attention.norms import NormKind as Kind
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.mistake import At, Mistake, Wrong
from symattn.bounds.mistake import step as step_of
from symattn.document.errors import Undecided
from symattn.verification.rules.steps import left_out

Affine = Callable[[Any, Any, Any], Any]


def affine(y: Any, gain: Any, bias: Any) -> Any:
    """Return g ⊙ y + b, with gain and bias if there are any."""
    y = y if gain is None else y * gain
    return y if bias is None else y + bias


@dataclass(frozen=True)
class Norm:
    """(x − mean(x)) / divisor(measure(x − mean(x)), ε), then gain and bias.

    ``centred`` says whether the mean is subtracted from x, ``within`` whether it is subtracted in what is measured.
    ``measure`` takes a function for the mean over ``axes``, the numbers, and their count; ``early`` gives gain
    and bias that come first, and ``of_eps`` computes a wrong ε from ε and the count.
    """

    centred: bool
    within: bool
    measure: Callable[[Any, Any, int], Any] = lambda mean, y, n: mean(y * y)
    divisor: Callable[[Any, Any, Any], Any] = lambda xp, v, eps: xp.sqrt(v + eps)
    axes: tuple[int, ...] = (-1,)
    affine: Affine = affine
    early: Affine | None = None
    eps: float | Fraction | None = None
    of_eps: Callable[[Any, Any], Any] | None = None

    def __call__(self, x: Array, eps: Any, gain: Any = None, bias: Any = None) -> Any:
        """Return the norm of x. Raises ``KeyError`` if there is no such axis, ``Undecided`` for 0/0."""
        if self.early is not None:
            x = self.early(x, gain, bias)
        # A norm over more axes than there are takes all of them.
        axes = tuple(range(len(x.shape))) if len(self.axes) > len(x.shape) else self.axes
        if len(x.shape) < max(-a for a in axes):
            raise KeyError("there is no such axis")
        xp = namespace_of(x)
        mean = partial(xp.mean, axis=axes if len(axes) > 1 else axes[0], keepdims=True)
        # Variance is of centred entries; a mean of squares is of the entries themselves.
        c = x - mean(x) if self.centred or self.within else x
        n = prod(int(x.shape[a]) for a in axes)
        v = self.measure(mean, c if self.within else x, n)
        # ε may be inside or outside of the root, which the divisor decides.
        eps = xp.asarray(eps if self.eps is None else self.eps, dtype=x.dtype)
        root = self.divisor(xp, v, eps if self.of_eps is None else self.of_eps(eps, n))
        return self.affine((c if self.centred else x) / root, gain, bias)


def _mean_square_with_bessel(mean: Any, y: Any, n: int) -> Any:
    """Return the mean square with the divisor n − 1."""
    if n < 2:
        raise Undecided("the variance of one number, with the divisor n − 1, is 0/0")
    return mean(y * y) * n / (n - 1)


def right(kind: Kind) -> Norm:
    """Return the right norm."""
    norm = Norm(kind == "layer", kind == "layer")
    return replace(norm, measure=lambda mean, y, n: mean(y * y) * n) if kind == "l2" else norm


#: What a norm divides by but for ε, and its square.
_MEASURES: dict[Kind, tuple[str, str]] = {
    "layer": ("standard deviation", "variance"),
    "rms": ("root of the mean square", "mean square"),
    "l2": ("length", "squared length"),
}


def norms(
    kind: Kind,
    eps: Any,
    axes: Mapping[tuple[int, ...], str],
    has_gain: bool = True,
    has_bias: bool = True,
) -> Iterator[tuple[str, Norm]]:
    """Yield wrong norms with words for each; ``axes`` are wrong axes over which a norm may run."""
    good = right(kind)
    layer = kind == "layer"
    what, square = _MEASURES[kind]
    freed = "the variance has" if layer else "the mean of the squares has"

    def by(words: str, divisor: Callable[[Any, Any, Any], Any], **more: Any) -> tuple[str, Norm]:
        return words, replace(good, divisor=divisor, **more)

    if eps:
        # The usual mistakes first: a narrow format holds too few digits to tell the others apart from them.
        yield by("ε is left out", lambda xp, v, e: xp.sqrt(v))
        yield by(f"ε is added to the {what}, outside the root", lambda xp, v, e: xp.sqrt(v) + e)
        for words, rule in _EPS.items():
            yield by(
                f"{words.format('within')} the root", lambda xp, v, e: xp.sqrt(v + e), of_eps=rule
            )
            words = f"{words.format('and added outside')} the root, to the {what}"
            yield by(words, lambda xp, v, e: xp.sqrt(v) + e, of_eps=rule)
        words = f"the {what} is raised to ε where it is below: max(…, ε), not a sum"
        yield by(words, lambda xp, v, e: xp.maximum(xp.sqrt(v), e))
        words = f"the {square} is raised to ε where it is below: max(…, ε), not a sum"
        yield by(words, lambda xp, v, e: xp.sqrt(xp.maximum(v, e)))
    for k in (0, 2, 3, 5, 6, 8, 12) if kind != "l2" else ():
        if float(eps) != float(other := Fraction(1, 10**k)):
            yield f"ε is {float(other):g}, expected {float(eps):g}", replace(good, eps=other)
    yield by(f"it divides by ({square} + ε)²", lambda xp, v, e: (v + e) * (v + e))
    yield by(f"it divides by the {square}, without the root", lambda xp, v, e: v + e)
    yield by("it is multiplied by the root, not divided", lambda xp, v, e: 1 / xp.sqrt(v + e))
    if kind != "l2":
        # An RMS norm without a gain does nothing else: then it is left out.
        if layer or has_gain:
            yield by(f"it is not divided by the {what}", lambda xp, v, e: 0 * v + 1)
        words = "uses the sum of the squares instead of their mean"
        yield words, replace(good, measure=lambda mean, y, n: mean(y * y) * n)
        words = f"it divides by the length √Σx², without ε (as in an L2 norm), not by the {what}"
        # at least a tiny number, so that zeros stay zeros
        length = lambda xp, v, e: xp.maximum(  # noqa: E731
            xp.sqrt(v), xp.asarray(Fraction(1, 10**12), dtype=v.dtype)
        )
        yield by(words, length, measure=lambda mean, y, n: mean(y * y) * n)
        yield f"{freed} the divisor d − 1", replace(good, measure=_mean_square_with_bessel)
        if eps:
            words = f"{freed} the divisor d − 1, and ε is added outside the root"
            yield by(words, lambda xp, v, e: xp.sqrt(v) + e, measure=_mean_square_with_bessel)
        for words, measure in _SPREADS.items():
            instead = (
                f"uses {words.format('|x − mean(x)|' if layer else '|x|')} instead of the {what}"
            )
            yield by(instead, lambda xp, v, e: v + e, measure=measure)
        if has_gain:
            yield from _yield_wrong_affine_norms(good, has_bias)
    for along, words in axes.items():
        measured = "the length is" if kind == "l2" else "mean and variance are"
        yield f"{measured} taken over {words}", replace(good, axes=along)
    for words, (centred, within) in _CENTRES[layer].items():
        yield words, replace(good, centred=centred, within=within)


def _row_maximum_for_norm(y: Array) -> Any:
    return namespace_of(y).max(y, axis=-1, keepdims=True)


#: Other measures of the spread of numbers.
_SPREADS: dict[str, Callable[[Any, Any, int], Any]] = {
    "the mean of {}": lambda mean, y, n: mean(namespace_of(y).abs(y)),
    "the largest {}": lambda mean, y, n: _row_maximum_for_norm(namespace_of(y).abs(y)),
    "the largest x less the smallest": lambda mean, y, n: (
        _row_maximum_for_norm(y) + _row_maximum_for_norm(-y)
    ),
}

#: Wrong numbers instead of ε, from ε and the width.
_EPS: dict[str, Callable[[Any, Any], Any]] = {
    "ε is squared {}": lambda e, d: e * e,
    "ε is multiplied by the width {}": lambda e, d: e * d,
    "ε is divided by the width {}": lambda e, d: e / d,
}

#: For LayerNorm (True) or others: whether the mean is subtracted from x, and in what is measured.
_CENTRES: dict[bool, dict[str, tuple[bool, bool]]] = {
    True: {
        "the mean is not subtracted (as in RMSNorm)": (False, False),
        "the mean is not subtracted from x, only within the variance": (False, True),
        "uses the mean square instead of the variance": (True, False),
    },
    False: {
        "the mean is subtracted (as in LayerNorm)": (True, True),
        "the mean is subtracted within the square alone": (False, True),
        "the mean is subtracted from x, not within the square": (True, False),
    },
}


def _yield_wrong_affine_norms(good: Norm, has_bias: bool) -> Iterator[tuple[str, Norm]]:
    ways: dict[str, Affine] = {
        "the gain is left out": lambda y, g, b: affine(y, None, b),
        "the gain is squared: it is applied twice": lambda y, g, b: affine(
            affine(y, g, None), g, b
        ),
        "the gain is added, as a bias is, not multiplied": lambda y, g, b: affine(
            affine(y, None, g), None, b
        ),
    }
    with_bias: dict[str, Affine] = {
        "the bias is left out": lambda y, g, b: affine(y, g, None),
        "the gain multiplies the bias too": lambda y, g, b: affine(affine(y, None, b), g, None),
        "gain and bias are exchanged": lambda y, g, b: affine(y, b, g),
    }
    for words, way in (ways | with_bias if has_bias else ways).items():
        yield words, replace(good, affine=way)
    gain: Affine = lambda y, g, b: affine(y, g, None)  # noqa: E731
    bias: Affine = lambda y, g, b: affine(y, None, b)  # noqa: E731
    yield "the gain multiplies x before it is normalised", replace(good, affine=bias, early=gain)
    if not has_bias:
        return
    yield "the bias is added to x before it is normalised", replace(good, affine=gain, early=bias)
    words = "gain and bias are applied to x before it is normalised"
    yield words, replace(good, affine=lambda y, g, b: y, early=affine)


def yield_wrong_norms(
    kind: Kind,
    eps: Any,
    axes: Mapping[tuple[int, ...], str],
    has_gain: bool,
    has_bias: bool,
    reads_gain: bool = True,
) -> Iterator[tuple[str, Norm, bool]]:
    """Yield wrong norms with their words, and whether they differ in exact arithmetic.

    ``reads_gain``: the gain is an input, not a number that an earlier step makes of it.
    """
    for words, how in norms(kind, eps, axes, has_gain, has_bias):
        yield words, how, True
    good = right(kind)
    if has_gain and reads_gain:
        yield "1 is added to the gain", replace(good, affine=partial(_apply_shifted_gain, 1)), True
    if kind == "layer":
        cancelling = replace(
            good, within=False, measure=lambda mean, y, n: mean(y * y) - mean(y) * mean(y)
        )
        words = (
            "the variance is computed as mean(x²) − mean(x)², which cancels where the mean is large"
        )
        yield words, cancelling, False


def _apply_shifted_gain(more: int, y: Any, gain: Any, bias: Any) -> Any:
    return affine(y, None if gain is None else gain + more, bias)


# -- a norm that a definition states ----------------------------------------------------------------------------------
#: Axes over which no norm of rows runs.
_OTHER_AXES: dict[tuple[int, ...], str] = {
    (-2,): "the tokens",
    (-1, -2): "tokens and columns together",
    (-1, -2, -3): "the whole batch",
    (0,): "the first axis",
}


def mistakes_of_step(spec: Any, step: Step, kind: Kind) -> Iterator[Mistake]:
    """Yield the mistakes of a step that takes x and, if it has them, gain and bias, for the ε of its definition.

    The gain is an input, or the 1 + g of an earlier step. Of several norms, all may have a mistake, or one of them.
    """
    alike = [s for s in spec.pipeline_of_all if s.role == step.role]
    noun = spec.noun_of(step.name)
    yield in_stated_steps(spec, step.blames, f"{noun} is left out", {step.name: left_out})
    # All together belong to one of the steps, or the mistakes would come twice.
    if len(alike) > 1 and step is alike[0]:
        yield from _yield_exchanged_parameters(spec, alike)
        yield from _yield_mistakes_of_norms(spec, alike, kind, "in the norms: ")
    # What is a norm and nothing else needs no words for its place.
    lead = "" if noun == "the norm" else f"in {noun}: "
    yield from _yield_mistakes_of_norms(spec, [step], kind, lead)


def _yield_mistakes_of_norms(
    spec: Any, steps: Sequence[Step], kind: Kind, lead: str
) -> Iterator[Mistake]:
    """Yield mistakes that these norms have alike, with words in front of each cause."""
    axes = dict(_OTHER_AXES)
    if "h" in spec.axes.get(steps[0].name, "").split():
        axes[-1, -3] = "the columns of all heads"
    parameters = steps[0].of[1:]
    has_gain, has_bias = (any(_is_bias(p) == bias for p in parameters) for bias in (False, True))
    reads_gain = spec.computed.isdisjoint(parameters)
    for words, how, exact in yield_wrong_norms(
        kind, spec.eps, axes, has_gain, has_bias, reads_gain
    ):
        wrong = partial(normalise_step_by, how)
        changes: dict[str, Wrong] = {step.name: wrong for step in steps}
        yield in_stated_steps(spec, steps[0].blames, f"{lead}{words}", changes, exact)


def normalise_step_by(how: Norm, at: At) -> Any:
    """Return the array of a stated step by another norm of what it takes."""
    return how(at.first, at.spec.eps, *_read_gain_and_bias(at))


def _read_gain_and_bias(at: At) -> list[Any]:
    """Return gain and bias of a norm's step, which may have none of them or one."""
    names = step_of(at.spec, at.values, at.name).of[1:]
    arrays = dict(zip(map(_is_bias, names), at.taken[1:], strict=True))
    return [arrays.get(is_bias) for is_bias in (False, True)]


def _is_bias(name: str) -> bool:
    return name.rpartition(".")[2] == "bias"


#: Of which norm the parameters are taken in place of those of the first and of the second.
_TAKEN: Mapping[str, tuple[int, int]] = {
    "the parameters of the two norms are exchanged": (1, 0),
    "the parameters of the first norm are used for the second, too": (0, 0),
    "the parameters of the second norm are used for the first, too": (1, 1),
}


def _yield_exchanged_parameters(spec: Any, steps: Sequence[Step]) -> Iterator[Mistake]:
    """Yield the mistakes that of two norms one has gain and bias of the other."""
    if len(steps) != 2:
        return
    for words, taken in _TAKEN.items():
        changes: dict[str, Wrong] = {
            steps[n].name: partial(_normalise_by_other_parameters, steps[other])
            for n, other in enumerate(taken)
            if n != other
        }
        yield in_stated_steps(spec, steps[0].blames, words, changes)


def _normalise_by_other_parameters(other: Step, at: At) -> Any:
    """Return the norm with the gain and the bias of another one. Raises ``KeyError`` if that has fewer."""
    names = step_of(at.spec, at.values, at.name).of[1:]
    own = dict(zip(map(_is_bias, other.of[1:]), other.of[1:], strict=True))
    return at.right(at.first, *(at.values[own[_is_bias(name)]] for name in names))


#: The gain of a norm that stores it as an offset from one, and is used as it is.
GAIN_WITHOUT_OFFSET = "the gain, stored as an offset from one, is used without the 1"


def apply_gain_without_offset(y: Any, gain: Any, bias: Any) -> Any:
    """Return (g − 1) ⊙ y + b."""
    return _apply_shifted_gain(-1, y, gain, bias)


def mistakes_of_offset(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield the mistakes of a step that adds 1 to a stored gain."""
    yield in_stated_steps(spec, step.blames, GAIN_WITHOUT_OFFSET, {step.name: left_out})
