"""Many legal implementations, of all kinds at once: none outside the bound, and it is no wider than it need be."""

from dataclasses import replace

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.precision import Precision
from symattn.bounds.judge import Traced, expected
from tests.verification.legal import Row

PRECISIONS = {
    "float64": Precision.of("fp64"),
    "float32": Precision.of("fp32"),
    "float16": Precision.of("fp16"),
    "bfloat16": Precision.of("bf16"),
    "float16 fused": Precision.of("fp16", "fused"),
    "bfloat16 fused": Precision.of("bf16", "fused"),
    "float8 fused": Precision.of("e4m3", "fused", output="bf16"),
    "float8 as on Hopper": Precision.of("e5m2", "fused", accumulate="fp22", output="bf16"),
    "truncated sums": Precision.of("bf16", "fused", accumulate="fp32-truncated"),
    "one tile": replace(Precision.of("fp32"), tiles=0, merges=0, lse=False),
}
NARROWER = 1000.0


def inputs(rng: np.random.Generator, p: Precision) -> dict[str, np.ndarray]:
    """One query and up to twelve keys: random, equal, far apart, with an offset, or with one favourite."""
    n, d, kind = int(rng.integers(1, 13)), int(rng.integers(1, 6)), rng.choice(["random", "equal", "offset", "one"])
    made = {name: rng.standard_normal((rows, d if name != "v" else 1)) for name, rows in (("q", 1), ("k", n), ("v", n))}
    if kind == "equal":
        made["q"] *= 0
    if kind == "offset":
        made["v"] += 8
    if kind == "one":
        made["k"][int(rng.integers(n))] *= 4
    return {name: p.input.rounded(a) for name, a in made.items()}


def ratios(p: Precision, seed: int, cases: int, each: int) -> list[float]:
    """|y − exact| / allowed, for so many implementations of so many inputs."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(cases):
        given = inputs(rng, p)
        right = expected(Attention(), given, p)
        arrays = given["q"][0], given["k"], given["v"][:, 0]
        found += [_ratio(right, Row(p, rng).output(*arrays)) for _ in range(each)]
    return found


def _ratio(right: Traced, y: float) -> float:
    return float(right.ratios(np.array([[y]]))[0, 0])


@pytest.mark.parametrize("name", PRECISIONS)
def test_none_is_outside_and_a_narrower_bound_would_refuse_some(name: str) -> None:
    found = ratios(PRECISIONS[name], 31, 12, 5)
    assert max(found) <= 1
    assert sum(x * NARROWER > 1 for x in found) > len(found) / 4


@pytest.mark.deep
@pytest.mark.parametrize("name", PRECISIONS)
def test_none_of_a_thousand_is_outside(name: str) -> None:
    found = ratios(PRECISIONS[name], 32, 100, 10)
    assert len(found) == 1000
    assert max(found) <= 1
    assert sum(x * NARROWER > 1 for x in found) > len(found) / 4
