"""Running maxima that start at a finite number: it is named only if rows at many levels below it confirm it."""

import numpy as np
import pytest

from symattn import Attention, Domain, Precision, Verdict, verify
from symattn.bounds.called_target import Argument, Convention
from symattn.bounds.inputs import Maker
from symattn.verification.probing import numbers
from tests.verification.naming import Array, Program, faults, scores

FROM_0 = "the largest score so far starts at 0, not at −∞, and the sum is kept from 0 (by 1e−{})"


def _online(start: float, least: float, tile: int = 4) -> Program:
    """An online softmax whose maximum starts at a number, and whose sum is ``least`` at least."""

    def program(q: Array, k: Array, v: Array) -> Array:
        m = np.full((len(q), 1), start, q.dtype)
        total, out = np.zeros_like(m), np.zeros((len(q), v.shape[-1]), q.dtype)
        for first in range(0, len(k), tile):
            s = scores(q, k[first : first + tile])
            new = np.maximum(m, s.max(axis=-1, keepdims=True))
            a, p = np.exp(m - new), np.exp(s - new)
            total, out, m = total * a + p.sum(axis=-1, keepdims=True), out * a + p @ v[first : first + tile], new
        return out / np.maximum(total, q.dtype.type(least))

    return program


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("exponent", [6, 12, 30])
def test_a_start_at_0_is_named_with_its_guard(exponent: int) -> None:
    (fault,) = faults(_online(0.0, 10.0**-exponent), Attention())
    assert fault.cause == FROM_0.format(exponent)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("start", "least", "tile", "words"),
    [
        (-30.0, 1e-12, 4, "−30, not at −∞, and the sum is kept from 0 (by 1e−12)"),
        (-50.0, 1e-6, 4, "−50, not at −∞, and the sum is kept from 0 (by 1e−6)"),
        (-50.0, 1e-30, 7, "−50, not at −∞, and the sum is kept from 0 (by 1e−30)"),
        (-37.5, 1e-9, 16, "a finite number, not at −∞: the sum of e^s is at least e^(−58.22)"),
        # Near −53 with 1e−5, and −9 with 1e−12.
        (-50.0, 5e-7, 4, "a finite number, not at −∞: the sum of e^s is at least e^(−64.51)"),
        (-20.0, 2.0**-24, 4, "a finite number, not at −∞: the sum of e^s is at least e^(−36.64)"),
    ],
)
def test_any_start_is_named_that_rows_at_many_levels_show(start: float, least: float, tile: int, words: str) -> None:
    (fault,) = verify(_online(start, least, tile), Attention(), examples=0).faults
    assert (fault.step, fault.cause) == ("max", f"the largest score so far starts at {words}"), fault.message


@pytest.mark.deep
@pytest.mark.long
def test_no_start_is_named_that_the_outputs_contradict() -> None:
    """Without a least sum, rows far below the start are 0/0, and their outputs show no number."""
    for fault in faults(_online(-30.0, 0.0), Attention()):
        assert fault.cause is None, fault.cause


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("least", [1e-6, 1e-12, 1e-30])
def test_a_start_that_the_source_has_is_named(least: float) -> None:
    (fault,) = faults(_online(-1e4, least), Attention())
    assert str(fault.cause).startswith("the running maximum starts at −10000, not at −∞")


@pytest.mark.deep
@pytest.mark.parametrize("least", [1e-12, 1e-30])
def test_a_guard_alone_is_right(least: float) -> None:
    assert verify(_online(-np.inf, least), Attention(), examples=5).verdict is Verdict.NO_FAULT


@pytest.mark.parametrize(
    "domain",
    [Domain(), Domain(decoding=True), Domain(square=True), Domain(max_tokens=3), Domain(min_width=16)],
    ids=str,
)
@pytest.mark.parametrize("spec", [Attention(), Attention(scale=0.25), Attention(causal=True)], ids=str)
def test_rows_lie_at_many_levels(spec: Attention, domain: Domain) -> None:
    convention = Convention(tuple(Argument(n, n) for n in "qkv"))
    maker = Maker(spec, convention, Precision.of("float32"), domain)
    tops = []
    for _, inputs in numbers.low_rows(maker, np.random.default_rng(1)):
        assert inputs is not None
        scale = inputs["q"].shape[-1] ** -0.5 if spec.scale is None else spec.scale
        tops += list((inputs["q"] @ inputs["k"].T * scale).max(axis=-1))
    # One in each interval of length 2, and promised widths may move them a little.
    levels = np.sort([0.0, *tops])
    assert np.diff(levels).max() < 4.5
    assert levels.min() < -155


def test_rows_stay_within_promised_scores() -> None:
    convention = Convention(tuple(Argument(n, n) for n in "qkv"))
    maker = Maker(Attention(), convention, Precision.of("float32"), Domain(max_abs_score=20))
    every = [inputs for _, inputs in numbers.low_rows(maker, np.random.default_rng(1)) if inputs is not None]
    assert every
    assert all(maker.admits(inputs) for inputs in every)
