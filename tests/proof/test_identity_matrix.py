"""δ_ij on letters: ``eye`` is the identity matrix for all sizes, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from symattn import Grade, proving

VECTORS = proving.Declared({"a": "n", "b": "n"})
Case = tuple[proving.Declared, Callable[..., Any], Callable[..., Any]]


def xp(x: Any) -> Any:
    return x.__array_namespace__()


TRUE: dict[str, Case] = {
    "selects an entry": (
        VECTORS,
        lambda a, b: (xp(a).eye(a.shape[0]) @ (a * b), a * b),
        lambda a, b: (xp(a).eye(a.shape[0]) @ (a * b), 0 * a + xp(a).sum(a * b)),
    ),
    "is neutral on both sides": (
        proving.Declared({"x": "n m"}),
        lambda x: (xp(x).eye(x.shape[0]) @ x @ xp(x).eye(x.shape[1]), x),
        lambda x: (xp(x).eye(x.shape[0]) @ x, x @ xp(x).eye(x.shape[1]) * 2),
    ),
    "has the trace n": (
        proving.Declared({"x": "n m"}),
        lambda x, n: (xp(x).sum(xp(x).eye(x.shape[0])), n),
        lambda x, n: (xp(x).sum(xp(x).eye(x.shape[0])), n * n),
    ),
    "ends with the rows where columns follow": (
        proving.Declared({"x": "n+p m"}),
        lambda x, n, p: (xp(x).eye(n, n + p) @ x, x[:n]),
        lambda x, n, p: (xp(x).eye(n, n + p) @ x, 0 * x[:n]),
    ),
    "is made of heads and features": (
        proving.Declared({"x": "h*d m"}),
        lambda x: (xp(x).eye(x.shape[0]) @ x, x),
        lambda x: (xp(x).eye(x.shape[0]) @ x, 2 * x),
    ),
}


@pytest.mark.parametrize("name", TRUE)
def test_it_is_proved_and_its_false_variant_refuted(name: str) -> None:
    declared, sides, false = TRUE[name]
    identity = proving.Identity(declared, sides, false)
    assert identity.decide().evidence.grade is Grade.PROVED, identity.decide()
    assert identity.refute().refuted
    assert not identity.refute().accepted


@pytest.mark.parametrize(
    ("sides", "why"),
    [
        (lambda x, n, m: (xp(x).eye(n, m) @ x.mT, x), "eye of n rows and m columns"),
        (lambda x, n: (xp(x).eye(n, k=1) @ x, x), "eye with the offset k = 1"),
        (lambda x, n: (xp(x).eye(n, k=-1) @ x, x), "eye with the offset k = -1"),
    ],
)
def test_what_depends_on_sizes_is_refused_by_name(sides: Callable[..., Any], why: str) -> None:
    declared = proving.Declared({"x": "n m"})
    decision = proving.Identity(declared, sides, sides).decide()
    assert decision.evidence.grade is not Grade.PROVED
    with pytest.raises(Exception, match=why):
        [
            side.at(place)
            for pair in proving.pairs(sides, declared, proving.Letters())
            for side in pair
            for place in side.places()
        ]
