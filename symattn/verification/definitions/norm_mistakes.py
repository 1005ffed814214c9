"""Known mistakes in norms, as wrong variants of the definition. Most were reported of published code."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.verification.definitions.norm_ways import (
    affine,
    by,
    centred,
    gain_of,
    mean_of,
    mean_square,
    root_of,
    two_pass,
)
from symattn.verification.definitions.subject import Compute, Mistake

_OTHER_EPS = tuple(Fraction(1, 10**k) for k in (3, 5, 6, 8, 12))


def mistakes(spec: Any, layer: bool) -> Iterator[Mistake]:
    """Those of a norm; ``layer``: of LayerNorm."""
    moments = two_pass if layer else mean_square
    what = "standard deviation" if layer else "root of the mean square"

    def told(cause: str, run: Compute, exact: bool = True) -> Mistake:
        return Mistake("norm", cause, run, exact)

    def over(root: Compute) -> Compute:
        return partial(_divided, spec, moments, root)

    eps = spec.eps
    if eps:
        yield told(f"ε is added to the {what}, outside the root", over(lambda v: root_of(v, 0) + _number(eps, v)))
        yield told("ε is left out", over(lambda v: root_of(v, 0)))
        yield told(f"the {what} is raised to ε where it is below: max(…, ε), not a sum", over(partial(_at_least, eps)))
    for other in _OTHER_EPS:
        if other != eps:
            yield told(f"ε is {float(other):g} in place of {float(eps):g}", over(partial(_with_eps, other)))
    yield told(
        "it divides by (variance + ε)²" if layer else "it divides by (mean square + ε)²",
        over(lambda v: (v + _number(eps, v)) * (v + _number(eps, v))),
    )
    yield told(
        "it divides by the variance, without the root" if layer else "it divides by the mean square, without the root",
        over(lambda v: v + _number(eps, v)),
    )
    yield told("the sum of the squares is taken in place of their mean", partial(_of_sum, spec, moments))
    yield told(
        "the variance has the divisor d − 1" if layer else "the mean of the squares has the divisor d − 1",
        partial(_less_one, spec, moments, False),
    )
    if eps:
        yield told(
            "the variance has the divisor d − 1, and ε is added outside the root"
            if layer
            else "the mean of the squares has the divisor d − 1, and ε is added outside the root",
            partial(_less_one, spec, moments, True),
        )
    yield told(
        "the mean deviation |x − mean(x)| is taken in place of the standard one"
        if layer
        else "the mean of |x| is taken in place of the root of the mean square",
        partial(_of_sizes, spec, layer),
    )
    yield from _of_gains(spec)
    yield from _of_axes(spec, layer)
    if layer:
        yield told("the mean is not subtracted (as in RMSNorm)", partial(by, spec, mean_square, centred))
        yield told(
            "the mean is not subtracted from x, only within the variance",
            partial(by, spec, lambda x: (None, two_pass(x)[1]), centred),
        )
        yield told(
            "the mean square is taken in place of the variance",
            partial(by, spec, lambda x: (mean_of(x), mean_of(x * x)), centred),
        )
        yield told(
            "the variance is computed as mean(x²) − mean(x)², which cancels where the mean is large",
            partial(by, spec, _cancelling, centred),
            exact=False,
        )
    else:
        yield told("the mean is subtracted (as in LayerNorm)", partial(by, spec, two_pass, centred))
        yield told(
            "the mean is subtracted within the square alone",
            partial(by, spec, lambda x: (None, two_pass(x)[1]), centred),
        )


def _of_gains(spec: Any) -> Iterator[Mistake]:
    def told(cause: str, run: Compute) -> Mistake:
        return Mistake("norm", cause, run)

    plain: Any = type(spec)(eps=spec.eps)
    if spec.one_plus:
        yield told("the gain, stored as an offset from one, is used without the 1", plain)
    else:
        yield told("1 is added to the gain", type(spec)(eps=spec.eps, one_plus=True))
    yield told("the gain is ignored", lambda x, gain=None, bias=None: plain(x, None, bias))
    yield told("the bias is ignored", lambda x, gain=None, bias=None: spec(x, gain, None))
    yield told("the gain multiplies the bias too",
               lambda x, gain=None, bias=None: affine(plain(x, None, bias), gain_of(spec, gain), None))  # fmt: skip
    yield told("the gain multiplies x before it is normalised",
               lambda x, gain=None, bias=None: plain(affine(x, gain_of(spec, gain), None), None, bias))  # fmt: skip
    yield told("gain and bias are exchanged", lambda x, gain=None, bias=None: spec(x, bias, gain))


def _of_axes(spec: Any, layer: bool) -> Iterator[Mistake]:
    for axes, words in (((-2,), "over the tokens"), ((-1, -2), "over tokens and columns together"),
                        ((-1, -2, -3), "over the whole batch"), ((0,), "over the first axis")):  # fmt: skip
        run = partial(by, spec, partial(_along, axes, layer), centred)
        yield Mistake("norm", f"mean and variance are taken {words}", run)


def _along(axes: tuple[int, ...], layer: bool, x: Any) -> tuple[Any, Any]:
    if len(axes) > x.ndim:
        axes = tuple(range(x.ndim))
    mean = mean_of(x, axes) if layer else None
    centred = x if mean is None else x - mean
    return mean, mean_of(centred * centred, axes)


def _number(eps: Any, like: Any) -> Any:
    return namespace_of(like).asarray(eps, dtype=like.dtype)


def _divided(spec: Any, moments: Any, root: Any, x: Any, gain: Any = None, bias: Any = None) -> Any:
    mean, variance = moments(x)
    return affine(centred(x, mean, root(variance)), gain_of(spec, gain), bias)


def _with_eps(eps: Any, variance: Any) -> Any:
    return root_of(variance, eps)


def _at_least(eps: Any, variance: Any) -> Any:
    return namespace_of(variance).maximum(root_of(variance, 0), _number(eps, variance))


def _of_sum(spec: Any, moments: Any, x: Any, gain: Any = None, bias: Any = None) -> Any:
    mean, variance = moments(x)
    return affine(centred(x, mean, root_of(variance * int(x.shape[-1]), spec.eps)), gain_of(spec, gain), bias)


def _less_one(spec: Any, moments: Any, outside: bool, x: Any, gain: Any = None, bias: Any = None) -> Any:
    (mean, variance), d = moments(x), int(x.shape[-1])
    variance = variance * d / (d - 1)
    root = root_of(variance, 0) + _number(spec.eps, variance) if outside else root_of(variance, spec.eps)
    return affine(centred(x, mean, root), gain_of(spec, gain), bias)


def _of_sizes(spec: Any, layer: bool, x: Any, gain: Any = None, bias: Any = None) -> Any:
    mean = mean_of(x) if layer else None
    size = mean_of(namespace_of(x).abs(x if mean is None else x - mean))
    return affine(centred(x, mean, size + _number(spec.eps, size)), gain_of(spec, gain), bias)


def _cancelling(x: Any) -> tuple[Any, Any]:
    mean = mean_of(x)
    return mean, mean_of(x * x) - mean * mean
