"""A function called in this process: everything that a call does to its inputs and outputs is seen."""

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn import InputError, MissingExtra
from symattn.bounds.called_target import same_bits
from symattn.programs.calls import Target
from symattn.programs.request import Request
from symattn.programs.target import target
from tests.programs.programs import attention as reference
from tests.refusals import refuses


def small(n_q: int = 2, n_k: int = 3, d_k: int = 4, d_v: int = 5, *lead: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {"q": (n_q, d_k), "k": (n_k, d_k), "v": (n_k, d_v)}
    return {name: rng.integers(-3, 4, (*lead, *shape)).astype(float) for name, shape in shapes.items()}


def run(function: Callable[..., Any], inputs: Any = None, memory: str = "contiguous", **request: Any) -> Any:
    return target(function, Request(**{"framework": "numpy", **request})).run(inputs or small(), memory)


def test_a_right_function() -> None:
    inputs = small()
    outcome = run(reference, inputs)
    np.testing.assert_array_equal(outcome.output, reference(**inputs))
    assert (outcome.dtype, outcome.shape, outcome.error) == ("float64", (2, 5), None)
    assert (outcome.mutated, outcome.overwrote, outcome.warnings, outcome.stdout) == ((), False, (), "")


def test_it_is_a_runner_that_says_what_it_does() -> None:
    runner: Any = target(reference, Request(causal=False), "attn.py:attention")
    assert runner.describe() == "attn.py:attention(q, k, v)"
    assert any("ran in this process: no time limit" in note for note in runner.notes)
    assert isinstance(runner, Target)
    runner.close()


@pytest.mark.parametrize(
    "function", [lambda *a: reference(*a), functools.partial(reference), lambda Q, K, V: reference(Q, K, V)]
)
def test_other_callables(function: Callable[..., Any]) -> None:
    np.testing.assert_array_equal(run(function).output, reference(**small()))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_go_in_and_out_exactly(dtype: str) -> None:
    seen: list[np.dtype[Any]] = []

    def first(q: Any, k: Any, v: Any) -> Any:
        seen.extend(a.dtype for a in (q, k, v))
        return q

    inputs = small()
    inputs["q"][0, 0] = -0.0
    inputs["q"][1, 1] = np.nan
    outcome = run(first, inputs, dtype=dtype)
    assert {d.name for d in seen} == {dtype} == {outcome.dtype}
    assert outcome.output.dtype == np.float64
    np.testing.assert_array_equal(outcome.output, inputs["q"])
    assert np.signbit(outcome.output[0, 0])


def test_values_that_the_dtype_cannot_hold_are_refused() -> None:
    inputs = small()
    inputs["q"][0, 0] = 0.1
    refuses(run, reference, inputs, dtype="float32", says="float32 cannot hold exactly")
    inputs["q"][0, 0] = 1e5
    refuses(run, reference, inputs, dtype="float16", says="float16 cannot hold exactly")


def test_unknown_dtypes_are_refused_with_a_suggestion() -> None:
    refuses(run, reference, dtype="bfloat61", says="did you mean bfloat16")


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_changed_inputs_are_named_and_the_callers_stay(name: str) -> None:
    def careless(q: Any, k: Any, v: Any) -> Any:
        {"q": q, "k": k, "v": v}[name][0, 0] += 1
        return reference(q, k, v)

    inputs = small()
    before = {n: a.copy() for n, a in inputs.items()}
    assert run(careless, inputs).mutated == (name,)
    assert all(np.array_equal(inputs[n], before[n]) for n in before)


def test_a_changed_sign_of_zero_and_a_changed_shape_are_changes() -> None:
    def sign(q: Any, k: Any, v: Any) -> Any:
        q *= -1
        return v

    inputs = {n: a * 0 for n, a in small().items()}
    assert run(sign, inputs).mutated == ("q",)

    def flat(q: Any, k: Any, v: Any) -> Any:
        np.ndarray.resize(q, (q.size,), refcheck=False)
        return v

    assert run(flat).mutated == ("q",)


def test_changes_are_seen_where_the_call_raises() -> None:
    def both(q: Any, k: Any, v: Any) -> Any:
        v[:] = 0
        raise ValueError("late")

    outcome = run(both)
    assert outcome.mutated == ("v",)
    assert outcome.error.message == "late"


def test_a_buffer_that_is_used_again() -> None:
    buffer = np.zeros((2, 5))

    def reusing(q: Any, k: Any, v: Any) -> Any:
        buffer[:] = reference(q, k, v)
        return buffer

    runner = target(reusing, Request(framework="numpy"))
    other = {n: a + 1 for n, a in small().items()}
    first, second = runner.run(small()), runner.run(other)
    assert not first.overwrote
    assert second.overwrote
    np.testing.assert_array_equal(first.output, reference(**small()))
    assert not runner.run(other).overwrote


def test_a_second_call_with_the_same_bits() -> None:
    calls: list[int] = []

    def stale(q: Any, k: Any, v: Any) -> Any:
        calls.append(1)
        return reference(q, k, v) + (len(calls) == 2)

    runner = target(stale, Request(framework="numpy"))
    first, second, third = (runner.run(small()) for _ in range(3))
    assert not same_bits(first, second)
    assert same_bits(first, third)


def test_bits_are_not_values() -> None:
    zero, minus, short = (run(lambda q, k, v, c=c: np.array(c)) for c in (0.0, -0.0, np.float32(0)))
    nan = run(lambda q, k, v: np.array(np.nan))
    assert not same_bits(zero, minus)
    assert not same_bits(zero, short)
    assert same_bits(nan, nan)
    assert not same_bits(run(lambda q, k, v: 1 / 0), run(lambda q, k, v: 1 / 0))


def test_bits_of_further_outputs() -> None:
    one, other = (run(lambda q, k, v, c=c: (np.zeros(2), np.full(2, c))) for c in (1.0, 2.0))
    assert same_bits(one, other)
    assert not same_bits(one, other, 2)
    assert same_bits(one, one, 2)


def test_an_exception_says_what_and_where() -> None:
    def raising(q: Any, k: Any, v: Any) -> Any:
        raise ValueError("first\nsecond")

    error = run(raising).error
    assert (error.reason, error.type, error.message) == ("raised", "ValueError", "first")
    line = raising.__code__.co_firstlineno + 1
    assert str(error) == f"ValueError: first (test_target.py:{line})"


def test_an_exception_in_a_library_is_placed_in_the_users_code() -> None:
    def raising(q: Any, k: Any, v: Any) -> Any:
        return np.linalg.inv(q)

    assert run(raising).error.where == f"test_target.py:{raising.__code__.co_firstlineno + 1}"


def test_raising_sometimes() -> None:
    def sometimes(q: Any, k: Any, v: Any) -> Any:
        assert len(q) == len(k), "only square"
        return v

    runner = target(sometimes, Request(framework="numpy"))
    assert runner.run(small(3, 3)).error is None
    assert str(runner.run(small(2, 3)).error).startswith("AssertionError: only square")


def test_exits_are_failures_and_interrupts_are_not() -> None:
    def leaving(q: Any, k: Any, v: Any) -> Any:
        raise SystemExit(3)

    def interrupted(q: Any, k: Any, v: Any) -> Any:
        raise KeyboardInterrupt

    assert run(leaving).error.type == "SystemExit"
    with pytest.raises(KeyboardInterrupt):
        run(interrupted)


def test_prints_are_kept(capfd: pytest.CaptureFixture[str]) -> None:
    import sys

    def talking(q: Any, k: Any, v: Any) -> Any:
        print("scores", q.shape)
        print("née", file=sys.stderr)
        sys.stdout.buffer.write(b"raw\n")
        return v

    assert run(talking).stdout == "scores (2, 4)\nnée\nraw\n"
    assert capfd.readouterr() == ("", "")


def test_prints_without_end_fill_no_memory() -> None:
    def talking(q: Any, k: Any, v: Any) -> Any:
        for _ in range(100):
            print("x" * 10_000)
        return v

    assert len(run(talking).stdout) == 100_000


def test_warnings_are_kept_once() -> None:
    def warning(q: Any, k: Any, v: Any) -> Any:
        for _ in range(3):
            warnings.warn("old style", DeprecationWarning, stacklevel=1)
        return v / 0

    with np.errstate(divide="warn", invalid="warn"):
        seen = run(warning, {n: np.ones_like(a) for n, a in small().items()}).warnings
    assert seen == ("DeprecationWarning: old style", "RuntimeWarning: divide by zero encountered in divide")


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "returned None, not an array"),
        ([[1.0]], "returned a list, not an array"),
        ({"out": 1}, "returned a dict, not an array"),
        ((), "returned a tuple, not an array"),
        (np.ones(2, dtype=complex), "returned an array of complex128"),
        (np.array(["a"]), "returned an array of str32"),
        (np.array([None]), "returned an array of object"),
        (np.zeros(2, dtype=[("a", float)]), "returned an array of void64"),
    ],
)
def test_what_is_no_array_of_numbers(returned: object, words: str) -> None:
    outcome = run(lambda q, k, v: returned)
    assert outcome.output is None
    assert (outcome.error.reason, outcome.error.message) == ("output", words)


def test_wrong_shapes_and_dtypes_come_through_as_they_are() -> None:
    outcome = run(lambda q, k, v: v.T.astype(np.int16), dtype="float32")
    assert (outcome.dtype, outcome.shape, outcome.error) == ("int16", (5, 3), None)
    assert run(lambda q, k, v: np.float32(1)).shape == ()
    assert run(lambda q, k, v: q.astype(ml_dtypes.bfloat16)).dtype == "bfloat16"


def test_the_first_of_several_results_is_taken() -> None:
    outcome = run(lambda q, k, v: (v, q, k))
    assert outcome.returned == 3
    np.testing.assert_array_equal(outcome.output, small()["v"])


@pytest.mark.parametrize("memory", ["contiguous", "strided", "transposed"])
def test_memory(memory: str) -> None:
    seen: list[Any] = []

    def looking(q: Any, k: Any, v: Any) -> Any:
        seen.append(q)
        return reference(q, k, v)

    outcome = run(looking, memory=memory)
    strides = {"contiguous": (32, 8), "strided": (64, 16), "transposed": (8, 16)}
    assert seen[0].strides == strides[memory]
    np.testing.assert_allclose(outcome.output, reference(**small()), rtol=1e-14)
    assert outcome.mutated == ()


def test_a_function_that_ignores_strides_is_found_out() -> None:
    def careless(q: Any, k: Any, v: Any) -> Any:
        base = v if v.base is None else v.base
        return base.reshape(-1)[: v.size].reshape(v.shape)

    assert np.array_equal(run(careless).output, small()["v"])
    assert np.isnan(run(careless, memory="strided").output).any()


@pytest.mark.parametrize(("layout", "shape"), [("nd", (2, 4)), ("bhnd", (1, 1, 2, 4)), ("bnhd", (1, 2, 1, 4))])
@pytest.mark.parametrize("memory", ["contiguous", "strided", "transposed"])
def test_layouts_of_one_head(layout: str, shape: tuple[int, ...], memory: str) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        assert q.shape == shape
        turn = (lambda a: a.swapaxes(1, 2)) if layout == "bnhd" else (lambda a: a)
        return turn(reference(turn(q), turn(k), turn(v)))

    outcome = run(attention, layout=layout, memory=memory)
    np.testing.assert_allclose(outcome.output, reference(**small()), rtol=1e-14)
    assert outcome.shape == (*shape[:-1], 5)


@pytest.mark.parametrize("layout", ["nd", "bhnd", "bnhd"])
def test_layouts_of_batches_and_heads(layout: str) -> None:
    inputs = small(2, 3, 4, 5, 6, 7)
    turn = (lambda a: a.swapaxes(1, 2)) if layout == "bnhd" else (lambda a: a)
    outcome = run(lambda q, k, v: turn(reference(turn(q), turn(k), turn(v))), inputs, layout=layout)
    assert outcome.output.shape == (6, 7, 2, 5)
    np.testing.assert_array_equal(outcome.output, reference(**inputs))


@pytest.mark.parametrize("layout", ["bhnd", "bnhd", "nbhd", "bnd", "nbd", "nhd"])
def test_the_axes_of_a_layout_are_undone(layout: str) -> None:
    usual = "".join(axis for axis in "bhnd" if axis in layout)
    there, back = ([a.index(axis) for axis in b] for a, b in ((layout, usual), (usual, layout)))
    inputs = small(2, 3, 4, 5, *(6, 7)[: len(layout) - 2])
    shapes = []

    def attention(q: Any, k: Any, v: Any) -> Any:
        shapes.append(q.shape)
        return reference(*(a.transpose(there) for a in (q, k, v))).transpose(back)

    outcome = run(attention, inputs, layout=layout)
    assert shapes[0] == inputs["q"].transpose(back).shape
    np.testing.assert_array_equal(outcome.output, reference(**inputs))


def test_layouts_of_tokens_and_padding() -> None:
    def attention(x: Any, w_q: Any, w_k: Any, w_v: Any, keep: Any) -> Any:
        assert (x.shape, w_q.shape, keep.shape) == ((1, 3, 4), (4, 4), (1, 3))
        return reference(x @ w_q, x @ w_k, x @ w_v)

    x, keep = np.ones((3, 4)), np.ones(3, dtype=bool)
    inputs = {"x": x, "w_q": np.eye(4), "w_k": np.eye(4), "w_v": np.eye(4), "keep": keep}
    outcome = run(attention, inputs, layout="bhnd", masks=("keep",))
    np.testing.assert_array_equal(outcome.output, x)


def test_an_output_without_the_axes_of_the_layout_is_left_alone() -> None:
    assert run(lambda q, k, v: v[0, 0], layout="bhnd").output.shape == (3, 5)
    assert run(lambda q, k, v: np.stack([v[0], v[0]]), layout="bhnd").output.shape == (2, 1, 3, 5)


def test_masks_are_booleans_and_negated_where_told() -> None:
    mask = np.tri(2, 3, dtype=bool)
    inputs = {**small(), "mask": mask}
    assert run(lambda q, k, v, mask: mask, inputs, masks=("mask",), dtype="float16").dtype == "bool"
    turned = run(lambda q, k, v, m: m, inputs, masks=("mask",), mask_arg="~m")
    np.testing.assert_array_equal(turned.output, ~mask)
    with pytest.raises(InputError, match="only a boolean mask"):
        run(lambda q, k, v, m: m, {**inputs, "mask": np.zeros((2, 3))}, masks=("mask",), mask_arg="~m")


def test_additive_masks_have_the_dtype_of_the_inputs() -> None:
    mask = np.where(np.tri(2, 3, dtype=bool), 0.0, -np.inf)
    outcome = run(lambda q, k, v, mask: mask, {**small(), "mask": mask}, masks=("mask",), dtype="float16")
    assert outcome.dtype == "float16"
    np.testing.assert_array_equal(outcome.output, mask)


@pytest.mark.parametrize(("alignment", "offset"), [("bottom-right", 1), ("top-left", 0)])
def test_the_causal_mask_is_made_where_the_function_takes_one(alignment: str, offset: int) -> None:
    outcome = run(lambda q, k, v, mask: mask, causal=True, alignment=alignment)
    np.testing.assert_array_equal(outcome.output, np.tri(2, 3, offset, dtype=bool))


def test_optional_inputs_may_be_left_out_and_required_ones_not() -> None:
    def attention(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any = None) -> Any:
        return x if w_o is None else x @ w_o

    inputs = {"x": np.ones((2, 2)), **{f"w_{n}": np.eye(2) for n in "qkvo"}}
    inputs["w_o"] *= 2
    runner = target(attention, Request(framework="numpy"))
    assert runner.convention.required == ("x", "w_q", "w_k", "w_v")
    assert runner.run(inputs).output.max() == 2
    assert runner.run({n: a for n, a in inputs.items() if n != "w_o"}).output.max() == 1
    refuses(runner.run, {n: a for n, a in inputs.items() if n != "w_k"}, says="needs the input w_k")


def test_numpy_is_seen_or_else_tried_and_that_is_told() -> None:
    assert "tried first" in target(lambda q, k, v: v, Request()).convention.notes[-1]
    assert target(lambda q, k, v: np.exp(v), Request()).convention.notes == ()


def test_another_framework_is_refused() -> None:
    with pytest.raises(InputError, match="framework is 'foo'; hint: numpy or torch or jax"):
        target(reference, Request(framework="foo"))  # type: ignore[arg-type]


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    refuses(target, reference, Request(framework="jax"), kind=MissingExtra, says="symattn[jax]")


@pytest.mark.usefixtures("no_torch")
def test_without_torch() -> None:
    refuses(target, reference, Request(framework="torch"), kind=MissingExtra, says="symattn[torch]")
    convention = target(lambda q, k, v: q.softmax(-1), Request()).convention
    assert convention.framework == "numpy"
    assert "torch is not installed" in convention.notes[-1]


class Foreign:
    """An array of another library."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)


class ByArray(Foreign):
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values


class ByDlpack(Foreign):
    def __dlpack__(self, **told: Any) -> Any:
        return self.values.__dlpack__(**told)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class OnADevice(ByDlpack):
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("implicit conversion is not allowed")


@pytest.mark.parametrize("kind", [ByArray, ByDlpack, OnADevice])
def test_arrays_of_other_libraries_are_read(kind: type[Foreign]) -> None:
    inputs = small()
    outcome = run(lambda q, k, v: kind(reference(q, k, v)), inputs, dtype="float32")
    assert (outcome.error, outcome.dtype, outcome.shape) == (None, "float32", (2, 5))
    assert np.abs(outcome.output - reference(**inputs)).max() < 1e-6


def test_what_is_no_array_of_any_library_is_told_so() -> None:
    assert str(run(lambda q, k, v: Foreign(q)).error) == "returned a Foreign, not an array"
    outcome = run(lambda q, k, v: ByArray(np.array(["a", "b"])))
    assert str(outcome.error) == "returned an array of str32"


@pytest.mark.parametrize("framework", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_attempts_get_copies_of_the_arguments_that_were_made_once(framework: str) -> None:
    def doubling(q: Any, k: Any, v: Any) -> Any:
        q *= 2
        return q[:, :1] + v[:1]

    inputs = small()
    tried = target(doubling, Request(framework=framework, layout="nd"))
    made = tried.make_arguments(inputs)
    outputs = [tried.attempt(inputs, "contiguous", made)[0] for _ in range(2)]
    expected = 2 * inputs["q"][:, :1] + inputs["v"][:1]
    for output in (*outputs, tried.attempt(inputs)[0]):
        np.testing.assert_array_equal(output, expected)
