"""Roundings steered within the hypotheses of the bound come near it, and never beyond."""

from __future__ import annotations

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.precision import Precision
from symattn.bounds import plain_bound
from tests.verification.legal_steered import Steered

CASES = {
    "float32, in any order": (Precision.of("fp32"), 0.2),
    "float32, in tiles": (Precision.of("fp32").in_tiles(96, 16), 0.3),
    "float16 over float32": (Precision.of("fp16", "fused"), 0.5),
    "bfloat16 over float32": (Precision.of("bf16", "fused"), 0.5),
}


def fractions(p: Precision, n: int, d: int, rows: int, seed: int) -> list[float]:
    """What part of the allowed error is reached, for some rows and columns, by the best one of some ways."""
    rng = np.random.default_rng(seed)
    given = {name: p.input.rounded(rng.standard_normal((n if name != "q" else rows, d))) for name in "qkv"}
    allowed, ways = plain_bound.allowed(Attention(), given, p), [(1, True), (1, False), (n, True)]
    if p.height is not None:
        ways = [(16, True)]
    found = []
    for i in range(rows):
        for c in range(min(d, 3)):
            arrays = given["q"][i], given["k"], given["v"][:, c]
            found.append(max(Steered(p, *way).fraction(*arrays, float(allowed[i, c])) for way in ways))
    return found


@pytest.mark.parametrize("name", CASES)
def test_steered_roundings_come_near_the_bound_and_never_beyond(name: str) -> None:
    p, least = CASES[name]
    found = fractions(p, 96, 16, 4, 51)
    print(f"{name}: {np.median(found):.2f} of the bound (median), {max(found):.2f} (largest)")
    assert max(found) <= 1
    assert np.median(found) >= least


@pytest.mark.parametrize("name", ["float16 over float32", "bfloat16 over float32"])
def test_half_the_bound_would_refuse_what_is_legal(name: str) -> None:
    assert max(fractions(CASES[name][0], 32, 8, 4, 52)) > 0.5
