"""What the record of a step says of its mistakes and its rounding is what a field needs to be verified and named."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, InputError, Precision, reports, verify
from symattn.attention.inputs import holds
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.stages import stage_order
from symattn.attention.variants import VARIANTS
from symattn.bounds import extras
from symattn.bounds.judge import expected
from symattn.verification.rules.known_mistakes import yield_known_mistakes
from tests.steps import BLAMED

#: Sizes of the entries of queries, keys and values that float32 programs are run on.
SIZES = (1.0, 2.0**-9, 2.0**7)
STEPS = [(name, step) for name, v in VARIANTS.items() for step in v.spec.pipeline(v.names)]


def test_every_step_has_an_error_term() -> None:
    assert [(name, step.name) for name, step in STEPS if step.errors is None] == []


def test_every_row_with_a_noun_blames_a_step_of_reports() -> None:
    assert [name for name, row in ARRAYS.items() if row.noun and row.blames not in BLAMED] == []
    assert {row.blames for row in ARRAYS.values()} <= {*BLAMED, ""}


@pytest.mark.deep
@pytest.mark.parametrize("name", VARIANTS)
def test_mistakes_of_records_have_codes(name: str) -> None:
    found = [*yield_known_mistakes(VARIANTS[name].spec, frozenset(VARIANTS[name].names))]
    assert [m.cause for m in found if not reports.Fault(m.step, m.cause, "").code] == []


def test_a_step_that_makes_another_array_is_not_done_twice() -> None:
    spec, names = Attention(causal=True, heads=2, softcap=2, position=Alibi()), frozenset("qkv")
    causes = {mistake.cause for mistake in yield_known_mistakes(spec, names)}
    assert {"the cap is left out", "the cap is applied twice"} <= causes
    # Slopes are made from the number of heads: scores in their place would be no mistake of a program.
    doubled = ("left out", "twice")
    assert [cause for cause in causes if "slope" in cause and any(words in cause for words in doubled)] == []


@pytest.mark.parametrize("given", ["gate q k v", "gate x w_q w_k w_v", "gate x w_q w_k w_v w_o"])
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_step_has_its_noun_in_last_place_too(given: str, place: Any) -> None:
    spec, names = Attention(heads=2, output_gate=True, output_gate_place=place), frozenset(given.split())
    if place == "after" and "w_o" not in names:
        return
    found = {(m.step, m.cause) for m in yield_known_mistakes(spec, names) if m.cause.startswith("the output gate is ")}
    assert {("gate", "the output gate is left out"), ("gate", "the output gate is applied twice")} <= found
    assert {step for step, _ in found} == {"gate"}


@pytest.mark.parametrize("names", ["gate q k v", "gate x w_q w_k w_v w_o"])
def test_a_step_of_the_output_may_be_left_out_wherever_it_stands(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With or without a projection before it, its row has the columns of the output."""
    monkeypatch.setitem(ARRAYS, "gated", replace(ARRAYS["gated"], shape="… n_q d_out"))
    spec = Attention(output_gate=True)
    found = {mistake.cause for mistake in yield_known_mistakes(spec, frozenset(names.split()))}
    assert {"the output gate is left out", "the output gate is applied twice"} <= found


def test_a_step_that_joins_the_heads_says_so() -> None:
    """The formula of its entries counts the columns of all heads."""
    joining = [(name, step) for name, step in STEPS if step.joins_heads]
    assert {ARRAYS[step.of[0]].shape for _, step in joining} == {"… [h] n_q d_v"}
    assert all(VARIANTS[name].spec.heads > 1 and "x" in VARIANTS[name].names for name, _ in joining)


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


def _put_in_place_of_cap(stage: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    others = [(field, stage if field == "softcap" else one) for field, one in stage_order.STAGES]
    monkeypatch.setattr(stage_order, "STAGES", tuple(others))


def _stretched(flow: Any, **record: Any) -> None:
    """1024 (s_ij − s_i1), a step that no proof knows by its name."""
    run = lambda s: (s - s[..., :1]) * s.__array_namespace__().asarray(1024, dtype=s.dtype)  # noqa: E731
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


_STAGES = stage_order.STAGES


def _stretch_biased(flow: Any) -> None:
    """Stretch scores that have a bias: the errors of its addition are stretched, too."""
    dict(_STAGES)["bias"](flow)
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


@pytest.mark.deep
@pytest.mark.parametrize("record", [{}, {"errors": "own"}])
def test_a_step_without_a_proof_has_no_bound(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _put_in_place_of_cap(partial(_stretched, **record), monkeypatch)
    with pytest.raises(InputError, match="no bound is proved for the step 'tempered'"):
        verify(lambda q, k, v: v[: len(q)], Attention(softcap=1))
