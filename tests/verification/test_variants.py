"""Right programs of every variant have no fault, whole and in tiles; each wrong one has, and by its own cause."""

import numpy as np
import pytest

from symattn import Attention, InputError, Verdict, verify
from tests.faults.variants import VARIANTS

WRONG = [(variant, name) for variant, found in VARIANTS.items() for name in found.wrong]


@pytest.mark.deep
@pytest.mark.parametrize("variant", VARIANTS)
def test_right_programs_have_no_fault(variant: str) -> None:
    with np.errstate(all="ignore"):
        for program in VARIANTS[variant].programs():
            report = verify(program, VARIANTS[variant].spec, examples=4, budget=60)
            assert report.faults == ()
            assert report.verdict is Verdict.NO_FAULT


@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_right_programs_have_no_fault_in_other_types(variant: str, precision: str) -> None:
    with np.errstate(all="ignore"):
        for program in VARIANTS[variant].programs():
            assert verify(program, VARIANTS[variant].spec, precision=precision, examples=30, budget=60).faults == ()


@pytest.mark.deep
@pytest.mark.parametrize(("variant", "name"), WRONG)
def test_wrong_programs_have_a_fault(variant: str, name: str) -> None:
    found = VARIANTS[variant]
    with np.errstate(all="ignore"):
        report = verify(found.mistaken(name), found.spec, examples=4, budget=60)
    assert report.verdict is Verdict.FAULT
    assert {fault.cause for fault in report.faults} == {found.wrong[name][0]}


def test_a_step_without_a_proof_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a later stage does to the scores is not passed over."""
    from symattn.attention import letters_of_attention
    from symattn.attention.flow import Flow
    from symattn.attention.stages import weights

    def squared(flow: Flow) -> None:
        flow.add("squared", lambda s: s * s, "@0", ("scores",), role="scores")

    monkeypatch.setitem(letters_of_attention.SYMBOLS, "squared", letters_of_attention.SYMBOLS["capped"])
    at = [stage.__name__ for _, stage in weights.STAGES].index("masking")
    monkeypatch.setattr(weights, "STAGES", (*weights.STAGES[:at], ("", squared), *weights.STAGES[at:]))
    with pytest.raises(InputError, match="no bound is proved for the step 'squared'"):
        verify(lambda q, k, v: v[: len(q)], Attention(scale=0.71875))  # steps are shared by all tests
