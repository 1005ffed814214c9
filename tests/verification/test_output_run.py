"""An output that is that of an attention has one bound, of every way of computing it, wherever its tokens stand."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Cached, Precision, Undecided
from symattn.bounds import reference
from symattn.bounds.called_target import Outcome
from symattn.bounds.case_result import Case
from symattn.bounds.judge import judge, of_attention
from symattn.programs.specifications import definitions_of
from symattn.verification.definitions.definition_subject import Definition

FLOAT32 = Precision.of("float32")
_CAUSAL = Attention(causal=True, heads=4, kv_heads=2)


def _subjects(which: str) -> list[Definition]:
    """The definitions of log-sums by layout, or all of a cache, with empty slots and without."""
    if which == "cache":
        # Places are those after the cache, whatever the alignment.
        aligned = Cached(Attention(causal=True, alignment="top-left"))
        return [*definitions_of(aligned, "bhnd"), *definitions_of(Cached(_CAUSAL), "bnhd")]
    return [*definitions_of(replace(_CAUSAL, lse=True), which)]


def _drawn(subject: Definition, case: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(case)
    names = [i.name for i in subject.inputs]
    return subject.draw(names, subject.shapes[case], lambda name, shape: rng.standard_normal(shape), FLOAT32, rng)


def least_ratios(ways: Sequence[Any], output: np.ndarray) -> np.ndarray:
    """How far each entry is off, as a share of what the widest of the ways allows."""
    return np.asarray(np.minimum.reduce([expected.ratios(output) for expected in ways]))


@pytest.mark.parametrize("which", ["nd", "bnhd", "cache"])
def test_every_way_is_legal_and_each_wrong_output_is_not(which: str) -> None:
    for subject in _subjects(which):
        for case in (0, 3):
            inputs = _drawn(subject, case)
            outputs = [*zip(*(way() for way in subject.legal(FLOAT32, inputs).ways), strict=True)]
            right = reference.float64_outputs(subject.right, inputs)
            assert [ways[0].allowed.shape for ways in outputs] == [y.shape for y in right]
            for way in subject.ways:
                in_floats = reference.outputs_in(np.float32, partial(subject.run, way), inputs)
                assert all((least_ratios(ways, y) <= 1).all() for ways, y in zip(outputs, in_floats, strict=True))
            # Each output is off in its last entry alone.
            for ways, y in zip(outputs, right, strict=True):
                wrong = y.copy()
                wrong[(-1,) * y.ndim] += 1e-3
                beyond = least_ratios(ways, wrong) > 1
                assert beyond[(-1,) * y.ndim]
                assert beyond.sum() == 1


def test_the_bound_is_that_of_the_attention_alone() -> None:
    (subject,) = definitions_of(replace(_CAUSAL, lse=True), "nd")
    inputs = _drawn(subject, 3)
    (alone,) = of_attention(_CAUSAL, FLOAT32, inputs).ways[0]()
    beside, _ = subject.legal(FLOAT32, inputs).ways[-1]()
    assert np.array_equal(alone.allowed, beside.allowed)


def test_log_sums_of_running_sums_may_be_off_by_more() -> None:
    (subject,) = definitions_of(Attention(lse=True), "nd")
    ways = subject.legal(FLOAT32, _drawn(subject, 3)).ways
    at_once, by_keys = (way()[1].allowed for way in ways[:2])
    assert (by_keys > at_once).all()


def test_an_undecided_way_of_another_output_leaves_the_output_decided() -> None:
    (subject,) = definitions_of(Attention(lse=True), "nd")
    inputs = _drawn(subject, 3)
    legal = subject.legal(FLOAT32, inputs)

    def undecided() -> list[Any]:
        raise Undecided("a sum may be 0")

    def judged(output: float, log_sum: float) -> Any:
        first, second = (e.near + off for e, off in zip(legal.ways[0](), (output, log_sum), strict=True))
        outcome = Outcome(first, "float32", first.shape, 2, (second,))
        return judge(legal._replace(ways=[legal.ways[0], undecided]), FLOAT32, Case("", "", inputs), outcome)

    wrong = judged(1e-3, 0.0)
    assert (wrong.finding, wrong.undecided, wrong.wrong) == ("values", False, {0})
    open_ = judged(0.0, 1e-3)
    assert (open_.finding, open_.undecided) == (None, True)


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_any_number_is_legal_where_a_query_of_length_0_has_no_cosine(layout: str) -> None:
    subject = next(definitions_of(Attention(lse=True, score="cosine"), layout))
    inputs = _drawn(subject, 3)
    inputs["q"][0, 0, 0] = 0
    output, _ = subject.legal(FLOAT32, inputs).ways[0]()
    got = output.near.copy()
    got[0, 0, 0] = 7.0
    assert (output.ratios(got) <= 1).all()
    got[-1, -1, -1] += 1e-3
    assert (output.ratios(got) > 1).any()
