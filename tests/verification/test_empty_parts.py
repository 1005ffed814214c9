"""Documents without tokens, and parts of a merge without keys: on either side, in some rows, in all, in long inputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, Merge, Verdict, verify
from symattn.programs.verifying import Options, verified
from tests.faults.programs import softmax
from tests.verification.naming import scores

Array = Any
PACKED = Attention(documents=True)


def packed(*, guarded: bool = True, until_empty: bool = False) -> Callable[..., Array]:
    """Attention document by document; ``until_empty``: all that come behind an empty one are lost."""

    def program(q: Array, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array) -> Array:
        out = np.zeros((len(q), v.shape[-1]), q.dtype)
        for n in range(len(cu_seqlens_q) - 1):
            rows, keys = slice(*cu_seqlens_q[n : n + 2]), slice(*cu_seqlens_k[n : n + 2])
            if until_empty and keys.start == keys.stop:
                break
            if guarded and rows.start == rows.stop:
                continue
            s = scores(q[rows], k[keys])
            out[rows] = softmax(s) @ v[keys]
        return out

    return program


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "verdict", "left_out"),
    [
        (packed(until_empty=True), Verdict.FAULT, False),
        (packed(), Verdict.NO_FAULT, False),
        (packed(guarded=False), Verdict.NO_FAULT, True),
    ],
    ids=["stops at an empty one", "right", "no maximum of no scores"],
)
def test_documents_without_tokens_are_tried(program: Any, verdict: Verdict, left_out: bool) -> None:
    told = Options(framework="numpy", examples=0, verdict_alone=verdict is Verdict.FAULT)
    report = verified(program, PACKED, told)
    assert report.verdict is verdict
    assert any("Documents of no tokens are left out" in line for line in report.reservations) is left_out


def merged(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    top = np.maximum(l1, l2)
    m = np.where(np.isneginf(top), 0, top).astype(o1.dtype)
    w1, w2 = np.exp(l1 - m), np.exp(l2 - m)
    total = w1 + w2
    divisor = np.where(total == 0, 1, total).astype(o1.dtype)[..., None]
    return (o1 * w1[..., None] + o2 * w2[..., None]) / divisor, m + np.log(total)


def by_sigmoid(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    share = 1 / (1 + np.exp(l1 - l2))
    return o1 - share[..., None] * (o1 - o2), np.logaddexp(l1, l2)  # e^(l2 − l1) alone overflows float16


def infinite_log_sum(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    o, lse = merged(o1, l1, o2, l2)
    return o, np.where(np.isneginf(l2), l2, lse)


def all_rows(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    o, lse = merged(o1, l1, o2, l2)
    return o * o.dtype.type(not np.isneginf(l1).all()), lse


def many_rows(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    o, lse = merged(o1, l1, o2, l2)
    lost = np.isneginf(l2)[..., None] & (l1.shape[-1] > 128)
    return np.where(lost, o2, o), lse


def read_at_weight_one(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    """The output of a part without keys is added as it is, which shows only if it is not 0."""
    o, lse = merged(o1, l1, o2, l2)
    return np.where(np.isneginf(l1)[..., None], o1 + o2, o), lse


def guarded(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    """Whatever the output of a part without keys holds, it is not read."""
    empty1, empty2 = (np.isneginf(lse)[..., None] for lse in (l1, l2))
    zero = o1.dtype.type(0)
    return merged(np.where(empty1, zero, o1), l1, np.where(empty2, zero, o2), l2)


@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        (all_rows, Verdict.FAULT),
        (infinite_log_sum, Verdict.FAULT),
        (many_rows, Verdict.FAULT),
        (read_at_weight_one, Verdict.FAULT),
        (by_sigmoid, Verdict.NO_FAULT),
        (merged, Verdict.NO_FAULT),
    ],
    ids=["every row", "−∞ for a number", "more than 128 rows", "read at weight 1", "NaN alone", "right"],
)
def test_parts_without_keys_are_tried_on_either_side(program: Any, verdict: Verdict, precision: Any) -> None:
    alone = verdict is Verdict.FAULT  # then no cause is asked for
    told = Options(dtype=precision, framework="numpy", examples=0, verdict_alone=alone)
    with np.errstate(all="ignore"):
        assert verified(program, Merge(), told).verdict is verdict


@pytest.mark.deep
def test_infinities_are_no_result_of_an_earlier_call(no_causes: None) -> None:
    """e^(l₂ − l₁) overflows float16; the outputs are as infinite as those of right calls with other inputs."""

    def overflowing(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
        return by_sigmoid(o1, l1, o2, l2)[0], l1 + np.log1p(np.exp(l2 - l1))

    with np.errstate(all="ignore"):
        faults = verify(overflowing, Merge(), framework="numpy", examples=0, precision="float16").faults
    assert faults
    assert not any("earlier call" in fault.message for fault in faults)


@pytest.mark.deep
@pytest.mark.parametrize(("program", "leaks"), [(merged, True), (guarded, False)], ids=["0 · NaN", "not read"])
def test_undefined_outputs_of_empty_parts_are_a_fault_on_request(program: Any, leaks: bool) -> None:
    words = "NaN in the output of a part without keys"
    promised = Domain(nonfinite_forbidden=True)
    with np.errstate(all="ignore"):
        report, strict = (
            verify(program, Merge(), framework="numpy", examples=0, domain=domain) for domain in (Domain(), promised)
        )
    assert report.verdict is Verdict.NO_FAULT
    assert any(words in note for note in report.notes) is leaks
    assert [fault.step for fault in strict.faults if words in fault.message] == ["merge"] * leaks


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_the_definition_reads_no_output_of_an_empty_part(library: str) -> None:
    array = np.asarray if library == "numpy" else pytest.importorskip("torch").asarray
    nothing = (array([np.nan, np.nan]), array(-np.inf))
    something = (array([0.0, 1.0]), array(3.0))
    for first, second in ((nothing, something), (something, nothing)):
        output, lse = Merge()(*first, *second)
        assert output.tolist() == [0, 1]
        assert lse == 3
    assert Merge()(*nothing, *nothing)[0].tolist() == [0, 0]
