"""Every variant as a kernel with float32 inside: what it stores is told, and it is accused of nothing but mistakes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.attention.variants import VARIANTS
from symattn.verification.arithmetic.contracts import Contract, family, replay
from symattn.verification.arithmetic.ranking import Found, arithmetic, confirmed
from symattn.verification.arithmetic.suspects import Sample
from symattn.verification.domain import Domain
from symattn.verification.judged import UNFIT
from symattn.verification.probing.inputs import Maker, Sizes
from symattn.verification.probing.search import FAMILIES
from symattn.verification.reference import RIGHT, Variant
from symattn.verification.rules import known
from symattn.verification.target import Argument, Convention
from tests.verification.kernels import HALF

_LEAST = 2000  # outputs, below which nothing is asked
_OFTEN = ("causal", "softcap", "window", "grouped-query")


def samples(name: str, dtype: str, rng: Random, variant: Variant = RIGHT) -> tuple[Contract, list[Sample]]:
    """A contract that is drawn, and what it gives in float32, on two inputs."""
    spec = replace(VARIANTS[name].spec, lse=False)
    names, f = VARIANTS[name].names, Format(dtype)
    convention = Convention(tuple(Argument(n, n) for n in names), dtype=dtype)
    maker = Maker(spec, convention, Precision.of(dtype), Domain())
    draw = np.random.default_rng(rng.randrange(10**6))
    inputs = [maker.make(Sizes(256, 256, 80, 64), FAMILIES["normal"](draw), draw) for _ in range(2)]
    contract = rng.choice(list(family(spec, frozenset(inputs[0]), f, 64)))
    return contract, [_sample(contract, spec, given, variant) for given in inputs]


def _sample(contract: Contract, spec: Attention, given: dict[str, np.ndarray], variant: Variant) -> Sample:
    got = replay(contract, spec, given, variant, "float32")
    return Sample(spec, given, got, contract.format)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "softcap" else pytest.mark.deep) for n in VARIANTS])
def test_right_kernels_are_told_and_never_accused(name: str, dtype: str) -> None:
    contract, (first, second) = samples(name, dtype, Random(name))
    if first.got.size < _LEAST:
        return  # nothing is asked of so few outputs
    found = arithmetic(first)
    assert not confirmed(found, second), found.words
    assert found.best.share >= found.right[-1].share
    if found.best.fits:
        assert _same(found, contract), f"{contract.words}: {found.words}"


def _same(found: Found, contract: Contract) -> bool:
    """Whether it is the contract, or another with as many bits, within the roundings of float32."""
    its = next((p.share for p in found.right if p.contract == contract), 0.0)
    return its >= found.best.share - 0.005


@pytest.mark.exhaustive
def test_what_mistakes_by_rule_are_told_as() -> None:
    """One mistake is drawn for each variant and format; of those that change the bits two of three are found."""
    counts = {"found": 0, "named": 0, "none": 0, "missed": 0}
    for name in VARIANTS:
        for dtype in HALF:
            told = _told(name, dtype)
            counts[told] = counts.get(told, 0) + 1
    print(counts)
    assert counts["named"] + counts["found"] >= 2 / 3 * (counts["named"] + counts["found"] + counts["missed"])


def _told(name: str, dtype: str) -> str:
    rng = Random(f"{name} {dtype}")
    mistake = rng.choice(list(known(replace(VARIANTS[name].spec, lse=False), frozenset(VARIANTS[name].names))))
    try:
        _, (first, second) = samples(name, dtype, rng, mistake.variant)
    except UNFIT:
        return "no replay"
    if first.got.size < _LEAST:
        return "few"
    found = arithmetic(first)
    if found.wrong is not None and confirmed(found, second):
        assert found.wrong.mistake is not None
        return "named" if found.wrong.mistake.cause == mistake.cause else "found"
    return "none" if found.best.fits else "missed"
