"""Functions that statements of tests are written with, on any kind of array, and what false ones must come to."""

from collections.abc import Callable
from typing import Any

from symattn import Grade, proving


def xp(x: Any) -> Any:
    return x.__array_namespace__()


def top(x: Any) -> Any:
    return xp(x).max(x, axis=-1, keepdims=True)


def least(x: Any, y: Any) -> Any:
    return -xp(x).maximum(-x, 0 * x - y)


def relu(x: Any) -> Any:
    return xp(x).maximum(x, 0 * x)


def abs_(x: Any) -> Any:
    return xp(x).maximum(x, -x)


def total(x: Any) -> Any:
    return xp(x).sum(x, axis=-1, keepdims=True)


def mean(x: Any) -> Any:
    return xp(x).mean(x, axis=-1, keepdims=True)


def squares(x: Any) -> Any:
    return total(x * x)


def norm(x: Any) -> Any:
    return xp(x).sqrt(xp(x).sum(x * x))


def lse(x: Any) -> Any:
    return xp(x).log(total(xp(x).exp(x)))


def softmax(x: Any) -> Any:
    return xp(x).exp(x) / total(xp(x).exp(x))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + xp(x).exp(-x))


def centred(x: Any) -> Any:
    return x - mean(x)


def rms(x: Any) -> Any:
    return x / xp(x).sqrt(mean(x * x))


def layer_norm(x: Any) -> Any:
    return rms(centred(x))


def places(x: Any, n: Any) -> Any:
    return xp(x).arange(n)


def numbers(x: Any, n: Any) -> Any:
    """0, 1, …, n − 1 as numbers."""
    return xp(x).astype(places(x, n), x.dtype)


def before(x: Any, n: Any) -> Any:
    return places(x, n)[None, :] <= places(x, n)[:, None]


def neither_proved_nor_checked(declared: proving.Declared, sides: Callable[..., Any], hard: bool = True) -> None:
    """A false statement is refuted, or undecided where that is ``hard``, and it is said where."""
    decision = proving.Identity(declared, sides, sides).decide()
    assert decision.evidence.grade in (Grade.REFUTED, Grade.UNDECIDED), decision
    assert decision.evidence.where
    assert hard or decision.evidence.grade is Grade.REFUTED
