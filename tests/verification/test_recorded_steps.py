"""What the record of a step says of its mistakes and its rounding is what a field needs to be verified and named."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, InputError, Precision, verify
from symattn.arrays.namespace import namespace_of
from symattn.attention.flow import STEPS_TO_BLAME, Flow
from symattn.attention.inputs import holds
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.stages import scaled_scores, stage_order
from symattn.attention.variants import VARIANTS
from symattn.bounds import extras
from symattn.bounds.judge import expected
from symattn.verification.codes import code_of
from symattn.verification.rules import recorded_steps

#: Sizes of the entries of queries, keys and values that float32 programs are run on.
SIZES = (1.0, 2.0**-9, 2.0**7)
STEPS = [(name, step) for name, v in VARIANTS.items() for step in v.spec.pipeline(v.names)]


def test_every_step_has_an_error_term() -> None:
    assert [(name, step.name) for name, step in STEPS if step.errors is None] == []


def test_every_row_with_a_noun_blames_a_step_of_reports() -> None:
    assert [name for name, row in ARRAYS.items() if row.noun and row.blames not in STEPS_TO_BLAME] == []
    assert {row.blames for row in ARRAYS.values()} <= {*STEPS_TO_BLAME, ""}


@pytest.mark.parametrize("name", VARIANTS)
def test_mistakes_of_records_have_codes(name: str) -> None:
    found = recorded_steps.mistakes(VARIANTS[name].spec, frozenset(VARIANTS[name].names))
    assert [m.cause for m in found if not code_of(m.cause)] == []


def test_a_step_that_makes_another_array_is_not_done_twice() -> None:
    spec, names = Attention(causal=True, heads=2, softcap=2, position=Alibi()), frozenset("qkv")
    causes = {mistake.cause for mistake in recorded_steps.mistakes(spec, names)}
    assert {"the cap is left out", "the cap is applied twice"} <= causes
    # Slopes are made from the number of heads: scores in their place would be no mistake of a program.
    assert [cause for cause in causes if "slope" in cause] == []


# -- bounds ------------------------------------------------------------------------------------------------------------
def _draw(name: str, size: float, seed: int) -> dict[str, np.ndarray]:
    """Inputs of a variant, whose numbers float32 holds."""
    variant, rng = VARIANTS[name], np.random.default_rng(seed)
    shapes = variant.shapes()
    known = extras.extras({n: s for n, s in shapes.items() if n in extras.NAMES}, rng, variant.spec)
    result: dict[str, np.ndarray] = {}
    for n, shape in shapes.items():
        kind = holds(n, variant.spec)
        if n in known:
            result[n] = np.asarray(known[n])
        elif kind == "booleans":
            result[n] = np.ones(shape, dtype=bool)
        else:
            result[n] = (rng.normal(size=shape) * (size if n in "qkvxy" else 1)).astype(np.float32).astype(float)
    return result


def _largest_ratio(spec: Attention, inputs: dict[str, np.ndarray]) -> float:
    """How far the definition's own code in float32 is from the exact output, in units of the bound."""
    narrow = {n: a.astype(np.float32) if a.dtype == float else a for n, a in inputs.items()}
    # Without the largest score subtracted, exponentials may overflow, which no bound allows.
    program = replace(spec, stabilised=True, lse=False)
    with np.errstate(all="ignore"):
        output = np.asarray(program(**narrow), dtype=float)
    ratios = np.asarray(expected(replace(spec, lse=False), inputs, Precision.of("float32")).ratios(output), dtype=float)
    return float(np.nanmax(ratios, initial=0.0))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("size", SIZES)
def test_a_legal_program_is_within_the_bound(name: str, size: float) -> None:
    assert max(_largest_ratio(VARIANTS[name].spec, _draw(name, size, seed)) for seed in range(3)) <= 1


def _put_in_place_of_cap(stage: Callable[[Flow], None], monkeypatch: pytest.MonkeyPatch) -> None:
    others = [(field, stage if field == "softcap" else one) for field, one in stage_order.STAGES]
    monkeypatch.setattr(stage_order, "STAGES", tuple(others))


def _stretched(flow: Flow, **record: Any) -> None:
    """1024 (s_ij − s_i1), a step that no proof knows by its name."""
    run = lambda s: (s - s[..., :1]) * namespace_of(s).asarray(1024, dtype=s.dtype)  # noqa: E731
    flow.add("tempered", run, "stretch(@0)", ["scores"], role="scores", **record)


def _ratio_of_stretched() -> float:
    """Scores lie near to each other, and far from 0: their differences are less exact than their sizes."""
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(6):
        k = (rng.uniform(8, 16, (1, 4)) + rng.uniform(-1, 1, (6, 4)) * 2.0**-13).astype(np.float32).astype(float)
        q, v = rng.uniform(8, 16, (3, 4)).astype(np.float32).astype(float), rng.integers(-4, 5, (6, 2)).astype(float)
        ratios.append(_largest_ratio(Attention(softcap=1), {"q": q, "k": k, "v": v}))
    return max(ratios)


def test_a_step_that_proofs_do_not_name_is_bounded_in_rounded_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    _put_in_place_of_cap(partial(_stretched, errors="rounded"), monkeypatch)
    assert 0.001 < _ratio_of_stretched() <= 1


def test_a_wrong_error_term_is_exceeded_by_a_legal_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: differences of scores are no sum of scores and an input."""
    _put_in_place_of_cap(partial(_stretched, errors="adds"), monkeypatch)
    assert _ratio_of_stretched() > 1


def _stretch_biased(flow: Flow) -> None:
    """Stretch scores that have a bias: the errors of its addition are stretched, too."""
    scaled_scores.biasing(flow)
    _stretched(flow, errors="rounded")


def test_errors_of_what_was_added_pass_through_later_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [(field, _stretch_biased if field == "bias" else one) for field, one in stage_order.STAGES]
    monkeypatch.setattr(stage_order, "STAGES", tuple(others))
    rng = np.random.default_rng(6)
    ratios = []
    for _ in range(6):
        inputs = {n: rng.integers(-64, 65, (5, 4)) * 2.0**-10 for n in "qk"}
        inputs |= {"v": rng.integers(-4, 5, (5, 2)).astype(float), "bias": np.full((5, 5), 4096.0)}
        ratios.append(_largest_ratio(Attention(bias=True), inputs))
    assert 0.001 < max(ratios) <= 1


@pytest.mark.parametrize("record", [{}, {"errors": "own"}])
def test_a_step_without_a_proof_has_no_bound(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _put_in_place_of_cap(partial(_stretched, **record), monkeypatch)
    with pytest.raises(InputError, match="no bound is proved for the step 'tempered'"):
        verify(lambda q, k, v: v[: len(q)], Attention(softcap=1))
