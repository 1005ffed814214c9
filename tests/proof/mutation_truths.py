"""Whether what no theorem notices is true all the same, found out without the prover: in exact numbers."""

from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module
from itertools import islice, product
from random import Random
from typing import Any

from symattn.arrays.exact import Exact
from symattn.proof.certificate import certificate
from symattn.proof.checker import check
from symattn.proof.inequality import Certificate
from symattn.proof.refuting import _differs
from symattn.proof.statement import Declared, Numbers
from symattn.proof.theorem import Identity
from tests.proof.mutation_copy import COPY, Part, fresh

# Sizes, by turns; the theorems themselves are tried up to 3, and larger ones come first.
TURNS = ((4, 3), (3, 4), (5, 2), (2, 5), (1, 4), (2, 3), (3, 2), (2, 2), (1, 2), (2, 1), (1, 1))
ENOUGH = 3


def nearest_weights() -> bool:
    """Whether the copy's sparsemax p of exact scores s is the nearest point of the simplex, by its conditions.

    p ≥ 0, Σ p = 1, and s − p is largest, and so the same for all, where p > 0.
    """
    sparsemax = import_module(f"{COPY}.attention.softmax").sparsemax
    numbers = (Fraction(-1), Fraction(0), Fraction(1, 2), Fraction(2))
    try:
        for n in (1, 2, 3):
            s = Exact.lift([list(row) for row in product(numbers, repeat=n)])
            for scores, weights in zip(s.tolist(), sparsemax(s).tolist(), strict=True):
                gaps = [a - b for a, b in zip(scores, weights, strict=True)]
                highest = all(p == 0 or all(gap >= g for g in gaps) for p, gap in zip(weights, gaps, strict=True))
                if not (highest and sum(weights) == 1 and all(p >= 0 for p in weights)):
                    return False
    except Exception:
        return False
    return True


def true_all_the_same(parts: list[Part]) -> str:
    """What shows that the statements hold as they are now, without the prover; empty if nothing does."""
    ways = [_shown(fresh(part.method)) for part in parts]
    return "; ".join(dict.fromkeys(ways)) if all(ways) else ""


def _shown(method: Any) -> str:
    if not isinstance(method, (Identity, Certificate)):
        return "decided in numbers"
    told = (holds for sizes in _sizes(method.declared) for holds in _tried(method, sizes))
    tried = list(islice(told, ENOUGH))
    if not tried or not all(tried):
        return ""
    accepted = all(check(certificate(p), Random(0)).accepted for p in method.decide().proofs)
    return "true in exact numbers, its certificate accepted" if accepted else ""


def _tried(method: Any, sizes: dict[str, int]) -> Iterator[bool]:
    """Whether it holds at these sizes, where it can be told."""
    if isinstance(method, Identity):
        found, defined = _differs(method.sides, method.declared, Numbers(sizes, len(sizes) + 5))
        if defined:
            yield not found
    else:
        yield from (holds for _, holds in method._cases(method.sides, [sizes], 4))


def _sizes(declared: Declared) -> list[dict[str, int]]:
    sorts = declared.sorts()
    return [{sort: turn[i % 2] for i, sort in enumerate(sorts)} for turn in TURNS]
