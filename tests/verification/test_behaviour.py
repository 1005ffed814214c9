"""What a function does beside its values: shapes, types, arguments, state, and errors for some inputs."""

import itertools
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Verdict
from symattn.bounds.domain import Domain
from symattn.programs.verify import verify as sources_verify
from symattn.verification.report import Report
from tests.faults.rewrites import causal, plain, softmax

TOP_LEFT = Attention(causal=True, alignment="top-left")


def verify(program: Any, spec: Attention | None = None, **told: Any) -> Report:
    return sources_verify(program, spec, **{"examples": 0, "domain": Domain(max_tokens=17, max_width=8), **told})


@pytest.mark.deep
def test_a_transposed_output_is_told_and_so_is_another_wrong_shape() -> None:
    (fault,) = verify(lambda q, k, v: plain(q, k, v).T).faults
    assert (fault.step, fault.cause) == ("output", "the output is returned transposed")
    (fault,) = verify(lambda q, k, v: plain(q, k, v)[:, None]).faults
    assert fault.step == "call"
    assert "shape" in fault.message


def test_a_narrower_type_is_a_fault_and_its_rounding_none() -> None:
    (fault,) = verify(lambda q, k, v: plain(q, k, v).astype(np.float16)).faults
    assert fault.message == "returns float16 for float32 inputs"


@pytest.mark.deep
def test_a_wider_type_is_a_note() -> None:
    report = verify(lambda q, k, v: plain(q, k, v).astype(np.float64))
    assert report.faults == ()
    assert "For float32 inputs it returns float64." in report.notes


def test_changed_arguments_are_a_fault() -> None:
    def program(q: Any, k: Any, v: Any) -> Any:
        out = plain(q, k, v)
        k *= 2
        return out

    (fault,) = verify(program).faults
    assert (fault.step, fault.message) == ("call", "changes its argument k")


def test_results_that_later_calls_overwrite_are_a_fault() -> None:
    buffer = np.zeros((200, 200), dtype=np.float32)

    def program(q: Any, k: Any, v: Any) -> Any:
        out = buffer[: len(q), : v.shape[1]]
        out[...] = plain(q, k, v)
        return out

    (fault,) = verify(program).faults
    assert "an earlier one has returned" in fault.message


def test_a_cache_by_shape_is_a_fault() -> None:
    seen: dict[Any, Any] = {}

    def program(q: Any, k: Any, v: Any) -> Any:
        return seen.setdefault((q.shape, k.shape, v.shape), plain(q, k, v))

    (fault,) = verify(program).faults
    assert (fault.step, fault.cause) == ("call", "the result of an earlier call is returned")


def test_memory_that_is_read_as_it_lies_is_a_fault() -> None:
    def program(q: Any, k: Any, v: Any) -> Any:
        flat = [np.frombuffer(a.T.tobytes() if a.flags.f_contiguous else a.tobytes(), a.dtype) for a in (q, k, v)]
        return plain(*(f.reshape(a.shape) for f, a in zip(flat, (q, k, v), strict=True)))

    assert verify(program).verdict is Verdict.FAULT


@pytest.mark.deep
def test_a_table_that_is_kept_by_the_number_of_new_tokens_is_a_fault() -> None:
    tables: dict[int, Any] = {}

    def program(q: Any, k: Any, v: Any) -> Any:
        n_q, n_k = len(q), len(k)
        later = tables.setdefault(n_q, np.arange(64) > np.arange(n_q)[:, None] + n_k - n_q)[:, :n_k]
        s = np.where(later, np.float32(-np.inf), q @ k.T / np.sqrt(np.float32(q.shape[-1])))
        with np.errstate(invalid="ignore"):
            return softmax(s) @ v

    assert verify(program, Attention(causal=True)).verdict is Verdict.FAULT


@pytest.mark.deep
def test_one_array_in_several_roles_is_tried() -> None:
    def program(q: Any, k: Any, v: Any) -> Any:
        return plain(q, k, v) * (2 if k is v else 1)

    assert verify(program).verdict is Verdict.FAULT


@pytest.mark.deep
def test_the_order_of_axes_in_memory_is_tried() -> None:
    def program(q: Any, k: Any, v: Any) -> Any:
        return plain(q, k, v) * (2 if k.strides[0] < 0 else 1)

    assert verify(program).verdict is Verdict.FAULT


@pytest.mark.deep
def test_arrays_that_run_backwards_may_be_refused_and_not_misread() -> None:
    def program(q: Any, k: Any, v: Any) -> Any:
        if k.strides[0] < 0:
            raise ValueError("negative strides")
        return plain(q, k, v)

    report = verify(program)
    assert report.faults == ()
    assert any("run backwards in memory: ValueError: negative strides" in note for note in report.notes)


@pytest.mark.deep
def test_read_only_arrays_and_views_are_notes() -> None:
    def program(q: Any, k: Any, v: Any) -> Any:
        v[...] += 0
        return v[: len(q)] if len(k) == 1 and len(q) == 1 else plain(q, k, v)

    report = verify(program)
    assert report.faults == ()
    assert any("read-only" in note for note in report.notes)
    assert any("share memory with the input v" in note for note in report.notes)


@pytest.mark.deep
def test_axes_in_front_are_a_note_or_a_fault_as_promised() -> None:
    def program(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
        e = np.exp(s - s.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True) @ v

    report = verify(program)
    assert report.faults == ()
    assert any("Domain(batch=True)" in note for note in report.notes)
    assert verify(program, domain=Domain(max_tokens=17, max_width=8, batch=True)).verdict is Verdict.FAULT


@pytest.mark.deep
def test_where_it_raises_is_said() -> None:
    def program(q: Any, k: Any, v: Any) -> Any:
        np.stack([q[0], v[0]])
        return plain(q, k, v)

    (fault,) = verify(program).faults
    assert fault.step == "call"
    assert "where d_v ≠ d_k: ValueError: all input arrays must have the same shape" in fault.message


@pytest.mark.deep
def test_a_promise_about_shapes_is_kept() -> None:
    def program(q: Any, k: Any, v: Any) -> Any:
        return plain(q + 0 * k, k, v)

    assert verify(program).verdict is Verdict.FAULT
    assert verify(program, domain=Domain(max_tokens=17, max_width=8, square=True)).faults == ()


@pytest.mark.deep
def test_nan_behind_the_mask_is_a_note_or_a_fault_as_promised() -> None:
    spec = Attention(causal=True)
    report = verify(causal, spec)
    assert report.faults == ()
    assert any("NaN in a value" in note for note in report.notes)
    promised = verify(causal, spec, domain=Domain(max_tokens=17, max_width=8, nonfinite_forbidden=True))
    assert promised.faults == (), "each key is seen by some query"
    assert any("NaN in a value" in note for note in promised.notes)


@pytest.mark.deep
@pytest.mark.parametrize(
    "spec",
    [
        Attention(padding=True),
        *(s for s in (Attention(mask="boolean"), TOP_LEFT)),
    ],
)
def test_nan_in_keys_that_no_query_sees_must_not_leak_where_that_is_promised(spec: Attention) -> None:
    """Not where values are read, either: 0 times NaN is NaN."""

    def run(q: Any, k: Any, v: Any, seen: Any, clean: bool) -> Any:
        hidden = ~seen.any(axis=0)[:, None]
        k, v = (np.where(hidden, 0, k), np.where(hidden, 0, v)) if clean else (k, v)
        with np.errstate(all="ignore"):
            s = np.where(seen, q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype), -np.inf)
            return (softmax(s) @ v).astype(q.dtype)

    def program(clean: bool) -> Any:
        def padded(q: Any, k: Any, v: Any, keep: Any) -> Any:
            return run(q, k, v, np.broadcast_to(keep, (len(q), len(k))), clean)

        def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
            return run(q, k, v, mask, clean)

        def top_left(q: Any, k: Any, v: Any) -> Any:
            return run(q, k, v, np.tri(len(q), len(k), dtype=bool), clean)

        return padded if spec.padding else masked if spec.mask else top_left

    told: dict[str, Any] = {"layout": "nd", "framework": "numpy", "examples": 0}
    domain = Domain(max_tokens=20, max_width=8, nonfinite_forbidden=True)
    assert verify(program(True), spec, domain=domain, **told).faults == ()
    (fault,) = verify(program(False), spec, domain=domain, **told).faults
    assert fault.step == "mask"
    assert fault.counterexample is not None
    assert any(np.isnan(np.array(fault.counterexample.inputs[n])).any() for n in ("k", "v"))
    assert verify(program(False), spec, domain=Domain(max_tokens=20, max_width=8), **told).faults == ()


@pytest.mark.deep
def test_other_bits_at_another_call_are_a_note() -> None:
    calls = itertools.count()

    def program(q: Any, k: Any, v: Any) -> Any:
        return plain(q, k, v) * (1 + np.float32(2**-23) * (next(calls) % 3))

    report = verify(program)
    assert report.faults == ()
    assert any("different bits" in note for note in report.notes)


@pytest.mark.deep
def test_fully_masked_rows_only_where_they_are_promised() -> None:
    def program(q: Any, k: Any, v: Any, mask: Any) -> Any:
        s = np.where(mask, q @ k.T / np.sqrt(np.float32(q.shape[-1])), np.float32(-1e9))
        return softmax(s) @ v

    spec = Attention(mask="boolean")
    assert verify(program, spec).faults == ()
    assert (
        verify(program, spec, domain=Domain(max_tokens=17, max_width=8, fully_masked_rows=True)).verdict
        is Verdict.FAULT
    )


def test_noise_is_not_taken_for_a_wrong_step() -> None:
    rng = np.random.default_rng(1)

    def program(q: Any, k: Any, v: Any) -> Any:
        return plain(q, k, v) * (rng.random((len(q), v.shape[1])) > 0.1).astype(q.dtype)

    (fault,) = verify(program).faults
    assert (fault.step, fault.cause) == ("call", "different results for the same input")
    assert "gives different results for the same input: output" in fault.message


def test_noise_that_spares_the_smallest_inputs_is_seen() -> None:
    rng = np.random.default_rng(0)

    def program(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
        a = softmax(s)
        return (a * (rng.random(a.shape) < 0.95)) @ v

    assert verify(program).faults[0].cause == "different results for the same input"


def _in_place(q: Any, k: Any, v: Any) -> Any:
    q *= q.dtype.type(1 / np.sqrt(q.shape[-1]))
    s = q @ k.T
    return softmax(s) @ v


def _as_it_lies(q: Any, k: Any, v: Any) -> Any:
    order = "F" if k.flags.f_contiguous and not k.flags.c_contiguous else "C"
    return plain(q, np.asarray(k).ravel(order=order).reshape(k.shape), v)  # type: ignore[call-overload]


def _only_square(q: Any, k: Any, v: Any) -> Any:
    _ = k[np.arange(len(q))]
    return plain(q, k, v)


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        (_in_place, "the argument q is changed in place"),
        (_as_it_lies, "arrays are read as if they were contiguous in memory"),
        (lambda q, k, v: plain(q, k, v).astype(np.float16), "the output is returned as float16"),
        (_only_square, "the call fails where n_q > n_k"),
    ],
)
def test_a_fault_of_conduct_has_its_cause(program: Any, cause: str) -> None:
    (fault,) = verify(program).faults
    assert fault.cause == cause


def test_errors_by_chance_are_no_property_of_the_input() -> None:
    rng = np.random.default_rng(1)

    def program(q: Any, k: Any, v: Any) -> Any:
        if rng.random() < 0.2:
            raise RuntimeError("not now")
        return plain(q, k, v)

    (fault,) = verify(program).faults
    assert "gives different results for the same input: one call gives an array, another RuntimeError" in fault.message


@pytest.mark.deep
def test_another_order_of_summation_at_each_call_hides_no_mistake() -> None:
    rng = np.random.default_rng(1)

    def program(q: Any, k: Any, v: Any) -> Any:
        order = rng.permutation(len(k))
        return plain(q * q.dtype.type(1 / np.sqrt(q.shape[-1])), k[order], v[order])

    (fault,) = verify(program).faults
    assert "scores are scaled by 1/d_k" in str(fault.cause)
