"""The bound of variants holds for every implementation it speaks for, and refuses what is rougher or wrong."""

from __future__ import annotations

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.precision import Precision
from symattn.attention.positions.position_fields import Alibi, Rotary
from symattn.bounds.judge import expected
from tests.verification.legal_variants import VariantRow, inputs, row

PRECISIONS = ("float32", "float16", "bfloat16")
SPECS = {
    "groups": Attention(heads=4, kv_heads=2),
    "window": Attention(heads=2, causal=True, window=3),
    "sink": Attention(heads=2, sink="given"),
    "off by one": Attention(heads=2, sink="zero", causal=True),
    "cap": Attention(heads=2, softcap=2),
    "bias": Attention(heads=2, bias=True),
    "slopes": Attention(heads=2, causal=True, position=Alibi(slopes="given")),
    "half": Attention(heads=2, causal=True, position=Rotary()),
    "interleaved": Attention(heads=2, kv_heads=1, position=Rotary(layout="interleaved", base=500000)),
    "all": Attention(heads=4, kv_heads=2, causal=True, window=4, softcap=3, bias=True, sink="given", position=Rotary()),
}


def _ratios(spec: Attention, p: Precision, seed: int, cases: int, rougher: float = 1.0) -> list[float]:
    rng, found = np.random.default_rng(seed), []
    for _ in range(cases):
        given = inputs(spec, p, rng)
        right = expected(spec, given, p)
        for _ in range(4):
            t, i = int(rng.integers(spec.heads)), int(rng.integers(given["q"].shape[1]))
            simulated = VariantRow(spec, p, rng)
            simulated.rougher(rougher).grown = rougher
            got = np.array(right.run.output.midpoints())
            got[t, i, 0] = simulated.run(row(spec, given, t, i))
            found.append(float(right.ratios(got)[t, i, 0]))
    return found


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("variant", SPECS)
def test_no_legal_implementation_exceeds_it(variant: str, name: str) -> None:
    worst = max(_ratios(SPECS[variant], Precision.of(name), 21, 8))
    assert worst <= 1
    assert worst > 0.03, "the bound has become so wide that nothing comes near it"


@pytest.mark.deep
@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("variant", SPECS)
def test_no_legal_implementation_of_many_exceeds_it(variant: str, name: str) -> None:
    assert max(_ratios(SPECS[variant], Precision.of(name), 23, 150)) <= 1


@pytest.mark.parametrize("variant", SPECS)
def test_a_rougher_arithmetic_exceeds_it(variant: str) -> None:
    """The same implementations with roundings thirty times as large: the tests above can fail."""
    assert max(_ratios(SPECS[variant], Precision.of("float32"), 22, 25, rougher=30.0)) > 1
