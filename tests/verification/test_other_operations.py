"""One operation of a definition that another replaces: named by both formulas, where other inputs confirm it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Block, LayerNorm, RMSNorm, verify
from symattn.programs.specifications import definitions_of
from symattn.verification.definitions import attention_output
from symattn.verification.rules.operations import replacements
from tests.verification.auditing_causes import audited

Array = Any
_LSE = Attention(lse=True)


def _softmax(q: Array, k: Array) -> tuple[Array, Array, Array]:
    """Return the weights, the maximum and the shifted exponentials."""
    scores = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    top = scores.max(-1)
    e = np.exp(scores - top[:, None])
    return e / e.sum(-1, keepdims=True), top, e


def sum_of_squares(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """L = m + log √Σ e², which is also log(√2) in place of log(2) wherever powers of two are taken."""
    weights, top, e = _softmax(q, k)
    return weights @ v, top + np.log((e * e).sum(-1)) / 2


def root_of_two(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """L by powers of two, with log(√2) in place of log(2) for the scores and for the sum."""
    weights, _, _ = _softmax(q, k)
    unit = np.log(np.sqrt(2)).astype(q.dtype)
    t = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype) / unit
    top = t.max(-1)
    return weights @ v, (top + np.log2(np.exp2(t - top[:, None]).sum(-1))) * unit


_SHIFTED = "exp(scaled scores − max(scaled scores))"
_SQUARES = f"uses √(sum(({_SHIFTED})²)) instead of sum({_SHIFTED})"


@pytest.mark.deep
@pytest.mark.parametrize("program", [sum_of_squares, root_of_two])
def test_powers_in_a_sum_are_named_by_the_formula_of_the_definition(program: Callable[..., Any]) -> None:
    """Both compute the same numbers, and documents show the formula that has no log(2)."""
    named, against = audited(program, _LSE, examples=8)
    assert named == [_SQUARES]
    assert against == []


def norm(reduced: Callable[[Array], Array], centred: bool) -> Callable[..., Array]:
    """Return a norm with this array in the place of the mean of squares."""

    def run(x: Array, gain: Array) -> Array:
        y = x - x.mean(-1, keepdims=True) if centred else x
        return y / np.sqrt(reduced(y) + x.dtype.type(1e-5)) * gain

    return run


_NORMS = (
    (norm(lambda y: y * y, False), RMSNorm(), "uses x ⊙ x instead of mean(x ⊙ x)"),
    (norm(lambda y: y * y, True), LayerNorm(),
     "uses (x − mean(x)) ⊙ (x − mean(x)) instead of mean((x − mean(x)) ⊙ (x − mean(x)))"),
)  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize(("program", "spec", "cause"), _NORMS)
def test_a_mean_that_is_left_out_is_named(program: Callable[..., Any], spec: Any, cause: str) -> None:
    named, against = audited(program, spec, examples=8)
    assert named == [cause]
    assert against == []


@pytest.mark.deep
def test_a_neighbour_of_a_mean_that_is_left_out_has_no_such_cause() -> None:
    """Means over halves of a row are neither entries nor the mean of all."""

    def by_halves(y: Array) -> Array:
        half = max(y.shape[-1] // 2, 1)
        parts = (y[..., :half] ** 2, y[..., half:] ** 2)
        return np.concatenate([p.mean(-1, keepdims=True) + 0 * p for p in parts if p.shape[-1]], -1)

    named, against = audited(norm(by_halves, False), RMSNorm(), examples=8)
    assert "uses x ⊙ x instead of mean(x ⊙ x)" not in named
    assert against == []
    right = norm(lambda y: np.mean(y * y, -1, keepdims=True), False)
    assert verify(right, RMSNorm(), examples=5).faults == ()


def _fitting(way: Callable[..., Any], wrong: Callable[..., Any], inputs: dict[str, Array]) -> list[str]:
    """Return the replacements that give a function's outputs, in words."""
    expected = np.asarray(wrong(**inputs))
    same = lambda outputs: outputs[0].shape == expected.shape and np.allclose(outputs[0], expected)  # noqa: E731
    return [words for words, _ in replacements(way, inputs, same)]


@pytest.mark.parametrize("most", [0, 60, 10**9])
def test_replacements_end_once_enough_operations_are_computed(most: int) -> None:
    """All that are tried are counted, and those before the limit are returned."""
    rng, counted = np.random.default_rng(0), [0]
    inputs = {"x": rng.standard_normal((7, 5)), "gain": rng.standard_normal(5)}

    def count(operations: int) -> bool:
        counted[0] += operations
        return counted[0] < most

    tried: list[list[Array]] = []
    found = replacements(RMSNorm(), inputs, lambda outputs: not tried.append(outputs), count)
    every = replacements(RMSNorm(), inputs, lambda outputs: True)
    assert {words for words, _ in found} <= {words for words, _ in every}
    assert (len(found) == len(every)) is (most == 10**9)
    assert bool(found) is (most > 0)
    # The last replacement before the limit may go beyond it by the operations of one replay.
    assert len(tried) <= counted[0] <= most + 40


@pytest.mark.deep
def test_each_reduction_of_a_definition_can_be_left_out() -> None:
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((7, 5)), "gain": rng.standard_normal(5)}
    words = _fitting(RMSNorm(), norm(lambda y: y * y, False), inputs)
    assert words[0] == "uses x ⊙ x instead of mean(x ⊙ x)"
    attended = {n: rng.standard_normal(s) for n, s in {"q": (4, 3), "k": (6, 3), "v": (6, 2)}.items()}
    # Of exponentials over themselves each weight is 1; of scores less themselves each exponential.
    sums = _fitting(Attention(), lambda q, k, v: np.ones((4, 6)) @ v, attended)
    assert f"uses {_SHIFTED} instead of sum({_SHIFTED})" in sums
    means = _fitting(Attention(), lambda q, k, v: np.full((4, 6), 1 / 6) @ v, attended)
    assert "uses scaled scores instead of max(scaled scores)" in means
    assert _fitting(RMSNorm(), norm(lambda y: np.abs(y) ** 1.7, False), inputs) == []


def test_another_form_of_a_definition_is_named_with_the_operation() -> None:
    subject = next(definitions_of(_LSE))
    forms = [subject.describe_other_form(number) for number in range(len(subject.ways))]
    assert forms[0] == ""
    assert forms[2] == ", in the form of powers of two"
    assert next(definitions_of(RMSNorm())).describe_other_form(1) == ", in the form x r · g + b"


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("attention_norm.output", "norm"), ("mlp_norm.output", "norm"), ("attention.output", "output"),
        ("attention.q_normed", "norm"), ("mlp.gate", "project"), ("attention_stream", "residual"),
        ("mlp.other", "residual"),
    ],
)  # fmt: skip
def test_an_array_of_a_part_is_blamed_on_the_step_of_that_part(name: str, step: str) -> None:
    attention = Attention(sink="given", qk_norm="rms")
    block = next(definitions_of(Block(attention=attention, activation="silu", gated=True)))
    assert block.flow.blame_array(name, "residual") == step


def test_an_array_of_an_attention_is_blamed_on_its_step() -> None:
    flow = attention_output.subject(Attention(sink="given")).flow
    assert flow.blame_array("sink", "residual") == "sink"
