"""Every variant as a kernel with float32 inside: what it stores is told, and it is accused of nothing but mistakes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from random import Random

import numpy as np
import pytest

from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.attention.variants import VARIANTS
from symattn.bounds.called_target import Argument, Convention
from symattn.bounds.case_result import UNFIT
from symattn.bounds.contracts import Contract, family, replay
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.reference import RIGHT, Variant, canonical, trace
from symattn.bounds.worst_case import bound
from symattn.verification.arithmetic.ranking import Found, arithmetic, confirmed
from symattn.verification.arithmetic.suspects import BitSample
from symattn.verification.probing.search import FAMILIES
from symattn.verification.rules import known
from tests.verification.kernels import HALF

_SIZES = Sizes(256, 256, 80, 64, d_model=80)
_FEWER = Sizes(96, 96, 32, 32, d_model=32)  # of what takes minutes otherwise
_SLOW = ("Transformer-XL", "DeBERTa", "multi-query", "grouped-query, of tokens", "rotary, latent")
_SMALL = [Sizes(n, n, d, d, d_model=d) for n in (2, 3, 6, 14, 20) for d in (1, 2, 5)]


def samples(
    name: str, dtype: str, rng: Random, variant: Variant = RIGHT, sizes: Sequence[Sizes] = ()
) -> tuple[Contract, list[BitSample]]:
    """A contract that is drawn, and what it gives in float32, on inputs of these sizes, by default two."""
    sizes = sizes or [_FEWER if name in _SLOW else _SIZES] * 2
    spec = replace(VARIANTS[name].spec, lse=False)
    names, f = VARIANTS[name].names, Format(dtype)
    convention = Convention(tuple(Argument(n, n) for n in names), dtype=dtype)
    maker = Maker(spec, convention, Precision.of(dtype), Domain())
    draw = np.random.default_rng(rng.randrange(10**6))
    made = [maker.make(of, FAMILIES["normal"](draw), draw) for of in sizes]
    inputs = [{n: _tame(n, a, f) for n, a in one.items()} for one in made]
    contract = rng.choice(list(family(spec, frozenset(inputs[0]), f, 64)))
    return contract, [_sample(contract, spec, given, variant) for given in inputs]


def _tame(name: str, a: np.ndarray, f: Format) -> np.ndarray:
    """Projections that leave the size of a token as it is: with others the largest score has all the weight."""
    return f.rounded(a / sqrt(a.shape[-2])) if name.startswith("w_") else a


def _sample(contract: Contract, spec: Attention, given: dict[str, np.ndarray], variant: Variant) -> BitSample:
    got = replay(contract, spec, given, variant, "float32")
    return BitSample(spec, given, got, contract.format)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "softcap" else pytest.mark.deep) for n in VARIANTS])
def test_right_kernels_are_told_and_never_accused(name: str, dtype: str) -> None:
    contract, (first, second) = samples(name, dtype, Random(name))
    assert first.got.size > 2000  # fewer tell no contract from another
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
    """One mistake is drawn for each variant and format; of those that change the bits four of five are found, by the
    worst-case bound or by the bits."""
    counts = Counter(_told(name, dtype) for name in VARIANTS for dtype in HALF)
    print(counts)
    found = counts["beyond the bound"] + counts["named"] + counts["found"]
    assert found >= 0.8 * (found + counts["missed"])


def _told(name: str, dtype: str) -> str:
    rng = Random(f"{name} {dtype}")
    mistake = rng.choice(list(known(replace(VARIANTS[name].spec, lse=False), frozenset(VARIANTS[name].names))))
    if any(_beyond_at(sizes, name, dtype, mistake.variant) for sizes in _SMALL):
        return "beyond the bound"
    try:
        _, (first, second) = samples(name, dtype, rng, mistake.variant)
    except UNFIT:
        return "no replay"
    found = arithmetic(first)
    if found.wrong is not None and confirmed(found, second):
        assert found.wrong.mistake is not None
        return "named" if found.wrong.mistake.cause == mistake.cause else "found"
    return "none" if found.best.fits else "missed"


def _beyond_at(sizes: Sizes, name: str, dtype: str, variant: Variant) -> bool:
    """Whether a kernel with a mistake is, at small sizes, such as those that ``verify`` tries first."""
    try:
        return any(map(_beyond, samples(name, dtype, Random(name), variant, [sizes] * 4)[1]))
    except UNFIT:
        return False


def _beyond(sample: BitSample) -> bool:
    """Whether an output is off by more than the worst case allows, as ``verify`` judges every call."""
    exact = trace(canonical(sample.spec), sample.inputs, RIGHT)["output"]
    if exact.shape != sample.got.shape:
        return True
    allowed = bound(sample.spec, sample.inputs, sample.format.name).allowed
    with np.errstate(all="ignore"):
        off = np.where(sample.got == exact, 0.0, np.abs(sample.got - exact))
    return bool((off > allowed).any() or (np.isnan(off) & ~np.isnan(exact)).any())


@pytest.mark.parametrize("dtype", HALF)
def test_the_bound_tells_what_is_far_off_and_spares_what_is_right(dtype: str) -> None:
    _, (right, _) = samples("causal", dtype, Random(0))
    assert not _beyond(right)
    assert _beyond(right._replace(got=right.got + 4))
