"""``verify`` names mistakes, passes what is right, and finds the smallest input."""

import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, InputError, Report, Verdict, verify
from tests.faults.collection.every import chosen
from tests.faults.programs import MAKES, WRONG, Program, causal, collected, plain, softmax
from tests.lanes import one_in
from tests.refusals import refuses

#: Wrong programs of the collection, and words by which the mistake is named.
COLLECTED = {
    "scaling.by_width": "scores are scaled by 1/d_k",
    "masking.one_ahead": "a query also sees the next key",
    "scaling.scaled_twice": "scores are scaled by 1/d_k",
    "scaling.no_scale": "scores are not scaled",
    "scaling.divided_by_inverse_root": "scores are multiplied by √d_k",
    "scaling.root_of_value_width": "scores are scaled by 1/√d_v",
    "scaling.root_of_model_width": "scores are scaled by 1/√d_model",
    "scaling.queries_twice": "queries are used as keys",
    "scaling.scores_transposed": "queries and keys are exchanged",
    "softmax.over_queries": "the softmax runs over the queries",
    "softmax.over_heads": "the softmax runs over the heads",
    "softmax.not_divided": "exponentials are not divided by their sum",
    "softmax.no_maximum": "the largest score is not subtracted",
    "softmax.common_maximum": "the maximum of the whole array is subtracted",
    "streaming.padding_takes_part": "zero keys that fill the last tile of 16 take part",
    "calls.keys_for_values": "keys are used as values",
    "masking.not_itself": "a query does not see its own key",
    "masking.top_left": "the causal mask is aligned top-left; expected bottom-right",
    "masking.upper_triangle": "the causal mask is transposed",
    "masking.no_causal": "the mask is ignored",
    "masking.inverted": "the mask is inverted",
    "masking.added_as_number": "a boolean mask is added as 0 and 1",
    "masking.multiplied": "forbidden scores become 0 (a mask multiplied)",
    "masking.filled_with_tiny": "(−1e-9 filled in)",
    "masking.filled_with_minus_ten": "forbidden scores become −10",
    "masking.zeroed_after": "masked after the softmax",
    "heads.merge_by_reshape": "heads are merged by a reshape",
    "heads.split_by_reshape": "heads are split by a reshape",
}
BY_WIDTH, ONE_AHEAD, *_ = NAMED = collected(COLLECTED, {})
EVERY = (*NAMED, *WRONG)
COMMON_MAXIMUM, BARE = (chosen(f"softmax.{name}")[0].program for name in ("common_maximum", "bare_exponentials"))
#: Right programs of the collection that take arrays of any precision.
ALIKE = (
    "scaling.scaled_keys scaling.quarter_each scaling.scale_after_max scaling.exp2_folded softmax.by_log_softmax "
    "softmax.by_logaddexp softmax.ones_column softmax.reciprocal softmax.kahan_sum streaming.online "
    "streaming.two_loops streaming.split_keys streaming.merged_in_base_two streaming.normalised_each_tile "
    "streaming.online_backwards masking.causal_by_product masking.causal_row_by_row masking.filled_with_lowest "
    "heads.multihead heads.heads_in_a_loop heads.fused_query_key"
)
RIGHT = MAKES | {entry.program: entry.spec for name in ALIKE.split() for entry in chosen(name)}
# The mistakes that must be named in every run; the others are in the deep one.
OFTEN = (BY_WIDTH, ONE_AHEAD)
UNNAMED = {("masking.filled_with_minus_ten", "float16"), ("softmax.common_maximum", "float64")}
SMALL, WIDE = Domain(max_tokens=17, max_width=8), Domain(max_tokens=33, max_width=66)
FULL = Domain(max_tokens=65, max_width=66)


def _verify(program: Callable[..., Any], spec: Attention, precision: str = "float32", **told: Any) -> Report:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return verify(program, spec, precision=precision, **{"examples": 10, "domain": SMALL, **told})


def _check_named(wrong: Program, precision: str, **told: Any) -> None:
    report = _verify(wrong.function, wrong.spec, precision, **told)
    assert report.verdict is Verdict.FAULT
    assert wrong.cause
    (fault,) = report.faults
    assert fault.step in wrong.step.split("|"), fault
    assert wrong.cause in (fault.cause or ""), fault


@pytest.mark.deep
@pytest.mark.parametrize("wrong", one_in(2, OFTEN), ids=lambda w: w.name)
def test_the_mistake_is_named(wrong: Program) -> None:
    _check_named(wrong, "float32")


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "float64", "float16"])
@pytest.mark.parametrize("wrong", EVERY, ids=lambda w: w.name)
def test_every_mistake_is_named_in_every_precision(
    wrong: Program, precision: str, request: pytest.FixtureRequest
) -> None:
    if (wrong.name, precision) in UNNAMED:
        request.applymarker(pytest.mark.xfail(strict=True, reason="found, and not named in this precision yet"))
    _check_named(wrong, precision, examples=100, domain=FULL)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "program",
    [plain, pytest.param(chosen("streaming.online")[0].program, marks=pytest.mark.deep)],
    ids=lambda p: p.__name__,
)
def test_a_right_program_passes(program: Callable[..., Any]) -> None:
    report = _verify(program, RIGHT[program])
    assert (report.verdict, report.faults, report.exit_code) == (Verdict.NO_FAULT, (), 0)
    assert report.cases > 60


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float64", "float32", "float16"])
@pytest.mark.parametrize("program", RIGHT, ids=lambda p: p.__name__)
def test_a_right_program_passes_in_every_precision(program: Callable[..., Any], precision: str) -> None:
    assert _verify(program, RIGHT[program], precision, examples=100, domain=FULL).faults == ()


@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_no_maximum_is_right_on_small_scores(precision: str) -> None:
    promised = Domain(max_tokens=17, max_width=8, max_abs_score=5)
    assert _verify(BARE, Attention(), precision, domain=promised).faults == ()
    (fault,) = _verify(BARE, Attention(), precision).faults
    assert fault.step == "max"
    assert precision in (fault.cause or "")


@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_common_maximum_is_found_in_every_precision(precision: str) -> None:
    (fault,) = _verify(COMMON_MAXIMUM, Attention(), precision, examples=0).faults
    assert "the maximum of the whole array is subtracted" in str(fault.cause)
    assert fault.counterexample is not None
    assert fault.counterexample.sizes == {"n_q": 2, "n_k": 1, "d_k": 1, "d_v": 1}


@pytest.mark.deep
def test_a_common_maximum_is_right_on_small_scores() -> None:
    promised = Domain(max_tokens=17, max_width=8, max_abs_score=8)
    report = _verify(COMMON_MAXIMUM, Attention(), "float32", domain=promised)
    assert report.verdict is Verdict.NO_FAULT, report.faults


@pytest.mark.deep
@pytest.mark.smoke
def test_the_smallest_input_for_a_wrong_scale() -> None:
    (fault,) = _verify(BY_WIDTH.function, Attention(), domain=WIDE).faults
    example = fault.counterexample
    assert example is not None
    assert example.sizes == {"n_q": 1, "n_k": 2, "d_k": 2, "d_v": 1}
    assert example.inputs == {"q": [[1.0, 0.0]], "k": [[0.0, 0.0], [1.0, 0.0]], "v": [[0.0], [1.0]]}
    assert example.expected == pytest.approx(1 / (1 + np.exp(-(2**-0.5))))
    assert example.got == pytest.approx(1 / (1 + np.exp(-0.5)), rel=1e-6)
    assert str(example.exact) == "exp(1/sqrt(2))/(1+exp(1/sqrt(2)))"
    assert abs(example.expected - example.got) > 1000 * example.allowed  # type: ignore[operator]
    observed = {s.d_k: s.observed for s in fault.scales}
    assert observed == pytest.approx({d: 1 / d for d in (1, 2, 3, 4, 8, 64)}, rel=1e-4)
    assert next(name for name, right, wrong in example.steps if right != wrong) == "scaled"


def _times(factor: float) -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return plain(q * q.dtype.type(factor), k, v)

    return attention


def _constant(scale: float) -> Callable[..., Any]:
    def program(q: Any, k: Any, v: Any) -> Any:
        return plain(q * q.dtype.type(scale * np.sqrt(q.shape[-1])), k, v)

    return program


def _causal_by_a_half(q: Any, k: Any, v: Any) -> Any:
    return causal(q * q.dtype.type(0.4 * np.sqrt(q.shape[-1])), k, v)


def _clipped(q: Any, k: Any, v: Any) -> Any:
    return softmax(np.clip(q @ k.T / q.dtype.type(np.sqrt(q.shape[-1])), -20, 20)) @ v


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "cause"),
    [
        (_times(1.1), "scores are scaled by 1.1/√d_k"),
        (_times(-1), "scores are scaled by −1/√d_k"),
        (_constant(1 / 8), "scores are scaled by 1/8 for every d_k"),
        (_constant(0.3), "scores are scaled by 0.3 for every d_k"),
    ],
)
def test_a_scale_that_no_table_lists_is_named(program: Callable[..., Any], cause: str) -> None:
    (fault,) = _verify(program, Attention(), domain=WIDE).faults
    assert (fault.step, fault.cause) == ("scale", cause)


@pytest.mark.deep
def test_a_scale_of_zero_is_told_as_the_mean_of_the_values() -> None:
    (fault,) = _verify(_constant(0), Attention(), domain=WIDE).faults
    assert (fault.step, fault.cause) == (
        "weights", "the output is the mean of all values: queries and keys are ignored",
    )  # fmt: skip


@pytest.mark.deep
def test_a_constant_scale_is_named_behind_a_causal_mask() -> None:
    (fault,) = _verify(_causal_by_a_half, Attention(causal=True), domain=WIDE).faults
    assert fault.cause == "scores are scaled by 0.4 for every d_k"


@pytest.mark.deep
@pytest.mark.xfail(strict=True, reason="found, and not named yet")
def test_a_factor_that_does_not_explain_every_case_is_not_named() -> None:
    (fault,) = _verify(_clipped, Attention(), domain=WIDE).faults
    assert (fault.step, fault.cause) == ("score", "scores are cut off at ±20")


def _leaks(q: Any, k: Any, v: Any) -> Any:
    return causal(q, k, v) * q.dtype.type(0.999) + v.mean(axis=0) * q.dtype.type(0.001)


def _sums_to_more(q: Any, k: Any, v: Any) -> Any:
    return plain(q, k, v) * q.dtype.type(1.001)


def _wrong_values(q: Any, k: Any, v: Any) -> Any:
    return plain(q, k, np.maximum(v, q.dtype.type(0)))


def _wrong_beyond_64_keys(q: Any, k: Any, v: Any) -> Any:
    return plain(q * q.dtype.type(3 if len(k) > 64 else 1), k, v)


def _with_a_residual(q: Any, k: Any, v: Any) -> Any:
    return plain(q, k, v) + q[:, :1]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "spec", "step"),
    [
        (_with_a_residual, Attention(), "output"),
        (_leaks, Attention(causal=True), "mask"),
        (_sums_to_more, Attention(), "normalize"),
        (_wrong_values, Attention(), "values"),
    ],
)
def test_the_first_wrong_step_of_other_mistakes(program: Callable[..., Any], spec: Attention, step: str) -> None:
    (fault,) = _verify(program, spec).faults
    assert fault.step == step
    assert (fault.cause is None) == (program is _with_a_residual)


def _with_an_epsilon(q: Any, k: Any, v: Any) -> Any:
    e = np.exp(q @ k.T / q.dtype.type(np.sqrt(q.shape[-1])))
    return e / (e.sum(axis=-1, keepdims=True) + q.dtype.type(1e-3)) @ v


def _with_less_for_each_key(q: Any, k: Any, v: Any) -> Any:
    return plain(q, k, v) * q.dtype.type(1 - 0.01 * len(k))


@pytest.mark.deep
@pytest.mark.parametrize(
    "program", [pytest.param(_with_an_epsilon, marks=pytest.mark.exhaustive), _with_less_for_each_key]
)
def test_evidence_is_of_the_printed_input_or_names_another_case(program: Callable[..., Any]) -> None:
    (fault,) = _verify(program, Attention()).faults
    assert (fault.step, fault.cause) == ("normalize", None)
    place, total = re.findall(
        r"in the (input below|group \w+, case “.*”), with V = I .* sum to ([\d.e-]+)", fault.message
    )[0]
    q, k = (np.float32(fault.counterexample.inputs[name]) for name in "qk")  # type: ignore[union-attr]
    same = np.isclose(program(q, k, np.eye(len(k), dtype="f4")).sum(axis=-1), float(total), atol=1e-5).any()
    assert place != "input below" or same


@pytest.mark.deep
def test_a_mistake_at_some_sizes_only_is_named_with_them() -> None:
    (fault,) = _verify(_wrong_beyond_64_keys, Attention(), domain=FULL).faults
    assert (fault.step, fault.cause) == ("scale", "scores are scaled by 3/√d_k, where n_k > 64")
    assert fault.counterexample is not None
    assert fault.counterexample.sizes["n_k"] == 65


@pytest.mark.deep
def test_another_specification_refuses_a_right_program() -> None:
    assert _verify(plain, Attention(scale=0.5)).faults[0].step == "scale"
    assert _verify(causal, Attention()).verdict is Verdict.FAULT
    cause = _verify(plain, Attention(causal=True)).faults[0].cause
    assert (cause or "").startswith("the mask is ignored")  # or goes by blocks that are longer than all inputs


def _own_scale(q: Any, k: Any, v: Any, scale: float) -> Any:
    return softmax(q @ k.T * q.dtype.type(scale)) @ v


def _scale_ignored(q: Any, k: Any, v: Any, scale: float) -> Any:
    return plain(q, k, v)


@pytest.mark.deep
def test_a_scale_of_its_own() -> None:
    assert _verify(_own_scale, Attention(scale=0.3)).faults == ()
    (fault,) = _verify(_scale_ignored, Attention(scale=0.3)).faults
    assert fault.cause == "the configured scale is ignored, and 1/√d_k used"


def test_what_is_wrong_with_the_call_is_said() -> None:
    refuses(verify, plain, precision="float31", says="float31")
    refuses(Domain, max_abs_score=-1, says="max_abs_score")
    for what in (3, "attn.py:attention", Domain):
        with pytest.raises(InputError, match="give the function itself"):
            verify(what)  # type: ignore[arg-type]
    for name, number in {"seed": -1, "examples": -1, "budget": float("nan")}.items():
        with pytest.raises(InputError, match=f"{name} must be .*got {number}"):
            verify(plain, **{name: number})


def aligned(kind: str, q: Any, k: Any, v: Any) -> Any:
    n_q, n_k = len(q), len(k)
    offset = {"top-left": 0, "square alone": 0, "later": n_k - n_q + 1, "double": 0}[kind]
    s = q @ k.T * q.dtype.type(q.shape[-1] ** -0.5)
    if kind != "square alone" or n_q == n_k:
        s = np.where(np.tri(n_q, n_k, offset, dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v * (2 if kind == "double" else 1)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("top-left", "right with --alignment top-left, or for n_q = n_k (--square)"),
        ("square alone", "right for n_q = n_k (--square)"),
        ("later", ""),
        ("double", ""),
    ],
)
def test_a_report_says_first_with_which_alignment_or_sizes_a_function_is_right(kind: str, words: str) -> None:
    small = Domain(max_tokens=40, max_width=8)
    report = verify(partial(aligned, kind), Attention(causal=True), domain=small, examples=5, framework="numpy")
    assert report.verdict is Verdict.FAULT
    assert report.otherwise == words
    assert f"FAULT: {words}" in " ".join(str(report).split())


@pytest.mark.deep
@pytest.mark.parametrize("longest", [12, 40, 130, 200])
def test_no_sizes_are_called_right_in_which_long_inputs_are_wrong(longest: int) -> None:
    # Residues prove the small sizes, and long calls in floats show what they do not.
    def wrong_if_long(q: Any, k: Any, v: Any) -> Any:
        result = aligned("square alone", q, k, v)
        return result if len(q) <= longest else result + v[:1]

    report = verify(wrong_if_long, Attention(causal=True), examples=5, framework="numpy")
    assert report.verdict is Verdict.FAULT
    assert report.otherwise == ""


@pytest.mark.deep
def test_temperatures_of_places_have_an_alignment_too() -> None:
    def from_the_first_key(q: Any, k: Any, v: Any) -> Any:
        tau = 1 + 0.1 * np.log(np.arange(1, len(q) + 1) // 8 + 1)
        return softmax((tau * q.shape[-1] ** -0.5)[:, None].astype(q.dtype) * (q @ k.T)) @ v

    small = Domain(max_tokens=40, max_width=8)
    spec = Attention(temperature=0.1, temperature_rate=8)
    report = verify(from_the_first_key, spec, domain=small, examples=5, framework="numpy")
    assert report.otherwise == "right with --alignment top-left, or for n_q = n_k (--square)"
