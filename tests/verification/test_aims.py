"""Mistakes of a size that is asked for: what is claimed to be seen is found, and what cannot be seen is told."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, InputError, verify
from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.bounds.contracts import Contract
from symattn.bounds.sharp.limits import Stores
from symattn.document.evidence import Verdict
from symattn.verification.arithmetic.aims import _Search, aims
from symattn.verification.arithmetic.bits_of_a_call import Trial
from symattn.verification.arithmetic.ranking import Found, Pair
from symattn.verification.arithmetic.rungs import looked_at, together
from symattn.verification.arithmetic.suspects import BitSample
from symattn.verification.engine import Session
from symattn.verification.report import Sought
from tests.verification.kernels import HALF, Array, kernel

CAUSAL, BF16 = Attention(causal=True), Format("bfloat16")
Function = Callable[[Array, Array, Array], Array]


def half(dtype: str = "bfloat16", **kinds: object) -> Function:
    return lambda q, k, v: kernel(q, k, v, dtype, **kinds)  # type: ignore[arg-type]


def plain(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1], dtype=q.dtype)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True) @ v)


@pytest.mark.deep
def test_the_worst_case_shows_what_it_can() -> None:
    report = verify(plain, power={"scale": 1e-3, "normalize": 1e-3}, examples=5)
    assert report.verdict is Verdict.NO_FAULT
    assert [one.seen for one in report.sought] == [True, True]
    assert "A scale that is 0.1 % off would be detected by the worst-case bound" in report.document().text()
    assert report.document().record["sought"][0]["share"] == 1e-3


@pytest.mark.deep
def test_what_the_worst_case_does_not_show_is_undecided() -> None:
    report = verify(plain, power={"scale": 1e-7}, examples=5)
    assert report.verdict is Verdict.UNDECIDED
    assert any(
        "that is 1e-05 % off would not be detected: the worst-case bound in float32" in m for m in report.missing
    )


@pytest.mark.deep
def test_outputs_show_together_what_bits_do_not_tell() -> None:
    rng = np.random.default_rng(0)
    inputs = {n: BF16.rounded(rng.standard_normal((256, 80))) for n in "qkv"}
    given = [inputs[n].astype(HALF["bfloat16"]) for n in "qkv"]
    unknown = Found((Pair(Contract(BF16), None, 0.8, 0.8),))
    for scale, contract, seen in ((1.006, "fused", True), (1.0, "fused", False), (1.006, "eager", False)):
        got = half(scale=scale, exponential=1e-4)(*given).astype(float)
        session: Any = SimpleNamespace(precision=Precision.of("bfloat16", contract), spec=CAUSAL)
        fault = together(session, Trial(BitSample(CAUSAL, inputs, got, BF16), unknown, False))
        assert (fault is not None) == seen
        assert fault is None or (fault.step == "scale" and "scores were scaled by 1.00" in fault.message)


def test_only_steps_with_a_number_can_be_asked_for() -> None:
    for power, words in (
        ({"mask": 0.1}, "known: scale, normalize"),
        ({"scale": 2}, "between 0 and 1"),
        ({"scale": True}, "between 0 and 1"),
    ):
        with pytest.raises(InputError, match=words):
            verify(plain, power=power)
    with pytest.raises(InputError, match="hint: parts of numbers by steps"):
        verify(plain, power=[("scale", 0.1)])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="known: softcap, normalize"):
        aims(Attention(scale=1, softcap=3.0), {"scale": 0.1})
    (cap,) = aims(Attention(softcap=30.0), {"softcap": 0.01})
    assert cap.right == 30


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_bits_show_a_scale_and_a_kernel_that_has_it_is_found(dtype: str) -> None:
    power = {"scale": 1e-4}
    report = verify(half(dtype, stores="w"), CAUSAL, precision=dtype, power=power, examples=5)
    assert report.verdict is Verdict.NO_FAULT
    assert report.sought[0].how.startswith("by the bits of a call")
    for scale in (1.0001, 0.9999):
        report = verify(half(dtype, stores="w", scale=scale), CAUSAL, precision=dtype, power=power, examples=5)
        assert report.verdict is Verdict.FAULT
        assert report.faults[0].step == "scale"
        assert f"scaled by {scale:g}" in report.faults[0].message


@pytest.mark.deep
def test_a_scale_that_roundings_swallow_is_told() -> None:
    report = verify(half(stores="s", causal=True), CAUSAL, precision="bfloat16", power={"scale": 1e-6}, examples=5)
    assert report.verdict is Verdict.UNDECIDED
    assert any("would not be detected: " in words for words in report.missing)


@pytest.mark.deep
def test_means_over_more_tokens_show_what_bits_do_not() -> None:
    kinds: dict[str, object] = {"stores": "p", "exponential": 1e-4}
    told = {
        "precision": "bfloat16",
        "examples": 5,
        "power": {"scale": 2.5e-3},
        "domain": Domain(min_tokens=200, max_tokens=600),
    }
    report = verify(half(**kinds), CAUSAL, contract="fused", **told)  # type: ignore[arg-type]
    assert not report.faults
    assert report.sought[0].seen
    assert "weighted means over" in report.sought[0].how
    report = verify(half(**kinds), CAUSAL, **told)  # type: ignore[arg-type]
    assert any("--contract fused" in words for words in report.missing)


@pytest.mark.parametrize(("contract", "words"), [("fused", "are not judged of this"), (None, "hint: --contract fused")])
def test_why_means_do_not_show_it_is_told(contract: Any, words: str) -> None:
    """Not to do what has been done already."""
    trial = SimpleNamespace(found=SimpleNamespace(best=SimpleNamespace(share=0.5)))
    session: Any = SimpleNamespace(trial=trial, precision=Precision.of("bfloat16", contract), spec=CAUSAL)
    (aim,) = aims(CAUSAL, {"scale": 0.001})
    assert words in _Search(session, (aim,))._why(aim)


@pytest.mark.deep
def test_what_is_spent_for_a_power_is_not_taken_from_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    def sought(session: Session, aims: object) -> tuple[tuple[Sought, ...], None]:
        session.effort.spend(calls=1e9)
        return (), None

    monkeypatch.setattr("symattn.verification.arithmetic.aims.sought", sought)
    report = verify(plain, power={"scale": 1e-3}, examples=5)
    assert not any("some cases were not tried" in note for note in report.notes)
    assert report.verdict is Verdict.UNDECIDED
    assert report.missing == ("mistakes of the sizes that were requested were not tried; hint: raise --budget",)


def test_scales_that_are_stored_are_told_apart() -> None:
    words = {Contract(Format("bfloat16"), scale=way).words for way in ("", "factor", "divisor", "base 2")}  # type: ignore[arg-type]
    assert len(words) == 4


@pytest.mark.deep
def test_means_at_growing_sizes_are_a_fault_where_they_are_beyond() -> None:
    q = np.random.default_rng(0)
    made = {name: BF16.rounded(q.standard_normal((4, 512, d))) for name, d in (("q", 80), ("k", 80), ("v", 64))}
    for scale, wrong in ((1.0, False), (1.004, True)):
        function = half(stores="p", exponential=1e-4, scale=scale)
        got = np.stack([function(*one) for one in zip(*made.values(), strict=True)])
        grown = looked_at(CAUSAL, made, got.astype(float), Stores(BF16, 0), "4 × 512 tokens")
        assert (grown.fault is not None) == wrong
    assert grown.fault is not None
    assert "beyond rounding to nearest in bfloat16" in grown.fault.message
    assert grown.fault.step == "scale"
