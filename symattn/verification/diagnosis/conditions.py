"""Where a mistake is made: at sizes that a plain condition tells apart from those at which all is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod

from symattn.verification.counterexample import sizes
from symattn.verification.judge import Judged
from symattn.verification.known.mistake import Mistake, Where

_TILES = (2, 4, 8, 16, 32, 64, 128)
_PAIRS = (("n_q", "n_k"), ("d_v", "d_k"), ("n_q", "d_k"), ("n_k", "d_k"))
Test = Callable[[dict[str, int]], bool]


def measured(judged: Judged) -> dict[str, int]:
    """The sizes of a case, and how many items its batch has."""
    given = judged.case.inputs.get("q", judged.case.inputs.get("x"))
    axes = judged.expected.run.values["q"].plain_shape[:-2]
    heads = judged.expected.run.spec.heads
    batch = prod(int(n) for n in (axes[:-1] if heads > 1 else axes)) if given is not None else 1
    return {**sizes(judged), "batch": batch}


def conditions() -> Iterator[tuple[str, Test]]:
    """Conditions on sizes, the plainest first."""
    for a, b in _PAIRS:
        yield f"{a} ≠ {b}", lambda s, a=a, b=b: s[a] != s[b]  # type: ignore[misc]
        yield f"{a} < {b}", lambda s, a=a, b=b: s[a] < s[b]  # type: ignore[misc]
        yield f"{a} > {b}", lambda s, a=a, b=b: s[a] > s[b]  # type: ignore[misc]
        yield f"{a} = {b}", lambda s, a=a, b=b: s[a] == s[b]  # type: ignore[misc]
    yield "there are several batch items", lambda s: s["batch"] > 1
    for name in ("n_k", "n_q", "d_k", "d_v"):
        yield f"{name} = 1", lambda s, n=name: s[n] == 1  # type: ignore[misc]
        yield f"{name} > 1", lambda s, n=name: s[n] > 1  # type: ignore[misc]
        for t in reversed(_TILES):
            yield f"{name} > {t}", lambda s, n=name, t=t: s[n] > t  # type: ignore[misc]
            yield f"{name} ≥ {t}", lambda s, n=name, t=t: s[n] >= t  # type: ignore[misc]
            yield f"{name} < {t}", lambda s, n=name, t=t: s[n] < t  # type: ignore[misc]
        for t in (2, 3, 4, 5, 6, 7, *_TILES[2:]):
            yield f"{name} = {t}", lambda s, n=name, t=t: s[n] == t  # type: ignore[misc]
        for t in _TILES:
            yield f"{name} is a multiple of {t}", lambda s, n=name, t=t: s[n] % t == 0  # type: ignore[misc]
            yield f"{name} is no multiple of {t}", lambda s, n=name, t=t: s[n] % t != 0  # type: ignore[misc]


def separating(wrong: Sequence[Judged], right: Sequence[Judged]) -> Iterator[tuple[str, Test]]:
    """The conditions that hold for all of the former, and for none of the latter."""
    yes, no = [measured(r) for r in wrong], [measured(r) for r in right]
    for words, test in conditions():
        if all(map(test, yes)) and not any(map(test, no)):
            yield words, test


def only_where(mistake: Mistake, words: str, test: Test) -> Mistake:
    """The same mistake, made where the condition holds."""
    return replace(
        mistake, cause=f"{mistake.cause}, where {words}", where=Where(words, lambda judged: test(measured(judged)))
    )
