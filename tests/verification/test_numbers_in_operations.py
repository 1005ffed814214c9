"""A number in one array of a definition, read off a function's outputs: named where it is, and only there."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from symattn import DepthAttention, LinearAttention, Merge, RMSNorm, verify
from symattn.programs.specifications import definitions_of
from symattn.verification.rules.numbered_operations import numbered_operations

Array = Any
_GATED = LinearAttention(feature="identity", normalised=False, gate="token")


def gated(change: Callable[[Array], Array]) -> Callable[..., Array]:
    """Return linear attention with a gate, whose logarithms are changed."""

    def run(q: Array, k: Array, v: Array, g: Array) -> Array:
        decays = np.exp(change(g)).astype(q.dtype)
        state, outputs = np.zeros((*q.shape[:-2], q.shape[-1], v.shape[-1]), q.dtype), []
        for i in range(q.shape[-2]):
            written = k[..., i, :, None] * v[..., i, None, :]
            state = state * decays[..., i, None, None] + written
            outputs.append((q[..., i, None, :] @ state)[..., 0, :])
        return np.stack(outputs, -2)

    return run


def normed(change: Callable[[Array], Array]) -> Callable[..., Array]:
    """Return a root-mean-square norm whose mean square with ε is changed."""

    def run(x: Array, gain: Array) -> Array:
        square = np.mean(x * x, -1, keepdims=True) + x.dtype.type(1e-5)
        return x / np.sqrt(change(square)).astype(x.dtype) * gain

    return run


def merged(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    """Return a merge with the right log-sum, and weights of half of the differences."""
    top = np.maximum(l1, l2)
    top = np.where(np.isfinite(top), top, 0)
    e1, e2 = np.exp(l1 - top), np.exp(l2 - top)
    total = np.sqrt(e1) + np.sqrt(e2)
    parts = [np.where(e[..., None] > 0, np.sqrt(e)[..., None] * o, 0) for e, o in ((e1, o1), (e2, o2))]
    output = (parts[0] + parts[1]) / np.where(total == 0, 1, total)[..., None]
    with np.errstate(divide="ignore"):
        return output.astype(o1.dtype), (top + np.log(e1 + e2)).astype(l1.dtype)


def last_raw(w: Array, outputs: Array) -> Array:
    """Return attention over the depth in which the last layer's key is not normalised."""
    keys = outputs / np.sqrt(np.mean(outputs * outputs, -1, keepdims=True) + outputs.dtype.type(1e-6))
    keys[-1] = outputs[-1]
    scores = keys @ w
    e = np.exp(scores - scores.max(0))
    return np.sum((e / e.sum(0))[..., None] * outputs, 0)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("function", "spec", "cause"),
    [
        (gated(lambda g: np.maximum(g, -0.5)), _GATED, "uses max(g, −1/2) instead of g"),
        (last_raw, DepthAttention(), "uses outputs instead of normalised keys for the last entry of axis -2"),
        (merged, Merge(), "uses √(exp(l2 − max(l1, l2))) instead of exp(l2 − max(l1, l2)), and alike wherever this is "
         "computed, for output alone"),
    ],
)  # fmt: skip
def test_a_change_in_one_array_is_named(function: Callable[..., Any], spec: Any, cause: str) -> None:
    (fault,) = verify(function, spec, examples=8).faults
    assert fault.cause == cause


@pytest.mark.deep
def test_a_neighbour_has_no_such_cause_and_a_right_program_no_fault() -> None:
    assert verify(gated(lambda g: g), _GATED, examples=5).faults == ()
    # A soft limit is near max(g, −1/2), and nowhere the same.
    soft = gated(lambda g: np.log(np.exp(4 * g) + np.exp(-2)) / 4)
    (fault,) = verify(soft, _GATED, examples=8).faults
    assert "max(g" not in (fault.cause or "")


def _nearest(way: Callable[..., Array], wrong: Callable[..., Array], inputs: Mapping[str, Array]) -> list[str]:
    """Return the forms that come nearest to a function's output, with their numbers."""
    expected = wrong(**inputs)

    def left(outputs: list[Array]) -> float:
        error = expected - np.asarray(way(**inputs))
        return float(np.sum((outputs[0] - expected) ** 2) / np.sum(error**2))

    nearest = numbered_operations(way, inputs, {"x": "norm", "gain": "norm"}, left, lambda name: "norm")
    return [f.words.format(f"{f.grid[1]:.3g}") for f in nearest]


_CHANGES = {
    "uses max(mean(x ⊙ x) + 1e-05, 0.7) instead of mean(x ⊙ x) + 1e-05": lambda m: np.maximum(m, 0.7),
    "uses (mean(x ⊙ x) + 1e-05) + 0.3 instead of mean(x ⊙ x) + 1e-05": lambda m: m + 0.3,
    "uses (mean(x ⊙ x) + 1e-05)^0.8 instead of mean(x ⊙ x) + 1e-05": lambda m: m**0.8,
}


@pytest.mark.parametrize("words", _CHANGES)
def test_the_number_in_an_operation_is_read_off_the_outputs(words: str) -> None:
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((7, 5)), "gain": rng.standard_normal(5)}
    assert words in _nearest(RMSNorm(), normed(_CHANGES[words]), inputs)


def test_limits_beyond_all_entries_are_found() -> None:
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((7, 5)), "gain": rng.standard_normal(5)}
    for limit, change in ((0.01, np.minimum), (100.0, np.maximum)):
        found = _nearest(RMSNorm(), normed(lambda m, limit=limit, change=change: change(m, limit)), inputs)
        assert any(f"(mean(x ⊙ x) + 1e-05, {limit:.3g})" in words for words in found), found


def test_a_number_is_blamed_on_the_step_of_its_input_or_of_its_array() -> None:
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((7, 5)), "gain": rng.standard_normal(5)}
    way = RMSNorm()
    wrong = way(inputs["x"], np.maximum(inputs["gain"], -0.3))

    def left(outputs: list[Array]) -> float:
        return float(np.sum((outputs[0] - wrong) ** 2) / np.sum((wrong - way(**inputs)) ** 2))

    named = {"x": "residual", "gain": "project"}
    nearest = numbered_operations(way, inputs, named, left, lambda name: f"that of {name!r}")
    steps = {f.words.partition(" instead of ")[2]: f.step for f in nearest}
    assert steps["gain"] == "project"
    assert all(step.startswith("that of") for array, step in steps.items() if array not in named)


def test_arrays_of_stated_steps_are_blamed_by_their_records() -> None:
    (subject,) = definitions_of(_GATED)
    records = {step.name: step.blames for step in _GATED.pipeline_of_all}
    assert len({*records.values()}) > 1
    assert {name: subject.flow.blame_array(name) for name in records} == records
    assert subject.flow.blame_array("") == subject.step
