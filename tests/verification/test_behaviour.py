"""What a function does beside its values: shapes, types, arguments, state, and errors for some inputs."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, LayerNorm, Precision, Report
from symattn import verify as sources_verify
from symattn.bounds.called_target import Argument, Convention
from symattn.bounds.inputs import Maker
from symattn.verification.probing import behaviour
from tests.faults.programs import causal, plain, softmax
from tests.verification.naming import Array, Named, convicts

SMALL: dict[str, Any] = {"examples": 0, "domain": Domain(max_tokens=17, max_width=8)}
TOP_LEFT = Attention(causal=True, alignment="top-left")


def verify(program: Any, spec: Attention | None = None, **told: Any) -> Report:
    return sources_verify(program, spec, **{**SMALL, **told})


def changing_an_argument(q: Any, k: Any, v: Any) -> Any:
    out = plain(q, k, v)
    k *= 2
    return out


def in_place(q: Any, k: Any, v: Any) -> Any:
    q *= q.dtype.type(1 / np.sqrt(q.shape[-1]))
    return softmax(q @ k.T) @ v


def as_it_lies(q: Any, k: Any, v: Any) -> Any:
    order = "F" if k.flags.f_contiguous and not k.flags.c_contiguous else "C"
    return plain(q, np.asarray(k).ravel(order=order).reshape(k.shape), v)  # type: ignore[call-overload]


def from_bytes(q: Any, k: Any, v: Any) -> Any:
    flat = [np.frombuffer(a.T.tobytes() if a.flags.f_contiguous else a.tobytes(), a.dtype) for a in (q, k, v)]
    return plain(*(f.reshape(a.shape) for f, a in zip(flat, (q, k, v), strict=True)))


def only_square(q: Any, k: Any, v: Any) -> Any:
    _ = k[np.arange(len(q))]
    return plain(q, k, v)


def of_one_width(q: Any, k: Any, v: Any) -> Any:
    np.stack([q[0], v[0]])
    return plain(q, k, v)


def into_one_buffer() -> Any:
    buffer = np.zeros((200, 200), dtype=np.float32)

    def program(q: Any, k: Any, v: Any) -> Any:
        out = buffer[: len(q), : v.shape[1]]
        out[...] = plain(q, k, v)
        return out

    return program


def kept_by_shape() -> Any:
    seen: dict[Any, Any] = {}
    return lambda q, k, v: seen.setdefault((q.shape, k.shape, v.shape), plain(q, k, v))


def masks_kept_by_new_tokens() -> Any:
    tables: dict[int, Any] = {}

    def program(q: Any, k: Any, v: Any) -> Any:
        n_q, n_k = len(q), len(k)
        later = tables.setdefault(n_q, np.arange(64) > np.arange(n_q)[:, None] + n_k - n_q)[:, :n_k]
        s = np.where(later, np.float32(-np.inf), q @ k.T / np.sqrt(np.float32(q.shape[-1])))
        return softmax(s) @ v

    return program


def with_noise(change: Callable[[Array, np.random.Generator], Array], seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    return lambda q, k, v: change(plain(q, k, v), rng)


def with_noise_in_weights() -> Any:
    rng = np.random.default_rng(0)

    def program(q: Any, k: Any, v: Any) -> Any:
        a = softmax(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype))
        return (a * (rng.random(a.shape) < 0.95)) @ v

    return program


def raising_by_chance(out: Array, rng: np.random.Generator) -> Array:
    if rng.random() < 0.2:
        raise RuntimeError("not now")
    return out


def summed_in_any_order() -> Any:
    rng = np.random.default_rng(1)

    def program(q: Any, k: Any, v: Any) -> Any:
        order = rng.permutation(len(k))
        return plain(q * q.dtype.type(1 / np.sqrt(q.shape[-1])), k[order], v[order])

    return program


PLAIN, DIFFERENT = Attention(), "different results for the same input"
#: By what a single call shows, and below by what several calls show together.
NAMED = {
    "float16": Named(
        lambda q, k, v: plain(q, k, v).astype(np.float16), PLAIN, "output", "the output is returned as float16",
        "returns float16 for float32 inputs",
    ),
    "transposed": Named(
        lambda q, k, v: plain(q, k, v).T, PLAIN, "output", "the output is returned transposed"
    ),
    "another shape": Named(lambda q, k, v: plain(q, k, v)[:, None], PLAIN, "call", "…", "…shape…"),
    "a changed argument": Named(changing_an_argument, PLAIN, "call", "…", "changes its argument k"),
    "in place": Named(in_place, PLAIN, "call", "the argument q is changed in place"),
    "as it lies": Named(
        as_it_lies, PLAIN, "call", "arrays are read as if they were contiguous in memory", "… of k; hint: --contiguous…"
    ),
    "from bytes": Named(from_bytes, PLAIN, "call", "…"),
    "more queries than keys": Named(only_square, PLAIN, "call", "the call fails where n_q > n_k"),
    "widths that differ": Named(
        of_one_width, PLAIN, "call", "…", "…where d_v ≠ d_k: ValueError: all input arrays must have the same shape…"
    ),
    "one array in several roles": Named(
        lambda q, k, v: plain(q, k, v) * (2 if k is v else 1), PLAIN, "output", None
    ),
    "the order of axes in memory": Named(
        lambda q, k, v: plain(q, k, v) * (2 if k.strides[0] < 0 else 1), PLAIN, "call", "…"
    ),
    "a cache by shape": Named(kept_by_shape(), PLAIN, "call", "the result of an earlier call is returned"),
    "one buffer": Named(into_one_buffer(), PLAIN, "call", "…", "…an earlier one has returned…"),
    "masks by the number of new tokens": Named(masks_kept_by_new_tokens(), Attention(causal=True), "mask", "…"),
    "noise": Named(
        with_noise(lambda out, rng: out * (rng.random(out.shape) > 0.1).astype(out.dtype)), PLAIN, "call", DIFFERENT,
        f"…gives {DIFFERENT}: output…",
    ),
    "noise that spares the smallest inputs": Named(with_noise_in_weights(), PLAIN, "call", DIFFERENT),
    "errors by chance": Named(
        with_noise(raising_by_chance), PLAIN, "call", "…",
        f"…gives {DIFFERENT}: one call gives an array, another RuntimeError…",
    ),
    "another order of summation, and a mistake": Named(
        summed_in_any_order(), PLAIN, "scale", "…scores are scaled by 1/d_k…"
    ),
}  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMED)
def test_a_fault_of_a_call_is_told(name: str) -> None:
    NAMED[name].check(**SMALL)


def refusing_what_runs_backwards(q: Any, k: Any, v: Any) -> Any:
    if k.strides[0] < 0:
        raise ValueError("negative strides")
    return plain(q, k, v)


def writing_and_sharing(q: Any, k: Any, v: Any) -> Any:
    v[...] += 0
    return v[: len(q)] if len(k) == 1 and len(q) == 1 else plain(q, k, v)


def with_other_bits() -> Any:
    calls = itertools.count()
    return lambda q, k, v: plain(q, k, v) * (1 + np.float32(2**-23) * (next(calls) % 3))


NOTED: tuple[tuple[Any, ...], ...] = (
    (lambda q, k, v: plain(q, k, v).astype(np.float64), "For float32 inputs it returns float64."),
    (refusing_what_runs_backwards, "arrays with negative strides: ValueError: negative strides"),
    (writing_and_sharing, "read-only", "share memory with the input v"),
    (with_other_bits(), "different bits"),
)


@pytest.mark.deep
@pytest.mark.parametrize("noted", NOTED, ids=lambda noted: noted[1])
def test_what_is_no_fault_is_a_note(noted: tuple[Any, ...]) -> None:
    program, *words = noted
    report = verify(program)
    assert report.faults == ()
    for each in words:
        assert any(each in note for note in report.notes)


@pytest.mark.deep
def test_axes_in_front_are_a_note_or_a_fault_as_promised() -> None:
    def program(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
        e = np.exp(s - s.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True) @ v

    report = verify(program)
    assert report.faults == ()
    assert any("Domain(batch=True)" in note for note in report.notes)
    assert convicts(program, domain=Domain(max_tokens=17, max_width=8, batch=True))


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


# -- calls that differ inside arrays alone -----------------------------------------------------------------------------
def keeping_by_first_columns(x: Array) -> Array:
    key = (x.shape, x.dtype, x[..., :1].tobytes())
    return _OF_FIRST_COLUMNS.setdefault(key, normalised(x)).copy()


def normalised(x: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(1e-5))


_OF_FIRST_COLUMNS: dict[Any, Array] = {}


@pytest.mark.deep
@pytest.mark.parametrize(("program", "count"), [(keeping_by_first_columns, 1), (normalised, 0)])
def test_a_definition_is_called_with_numbers_that_differ_inside_arrays_alone(program: Any, count: int) -> None:
    assert len(sources_verify(program, LayerNorm()).faults) == count


DOMAINS = (
    Domain(), Domain(max_abs_score=0.5), Domain(max_abs_score=1e-3), Domain(decoding=True), Domain(square=True),
    Domain(max_tokens=4), Domain(min_tokens=64, multiple_of=64), Domain(fully_masked_rows=True),
)  # fmt: skip


@pytest.mark.parametrize("name", ["float16", "float32"])
@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_exchanged_numbers_are_all_that_changes_and_keep_every_promise(domain: Domain, name: str) -> None:
    convention = Convention(tuple(Argument(n, n) for n in ("q", "k", "v", "mask")))
    maker = Maker(Attention(mask="boolean"), convention, Precision.of(name), domain)
    *_, one, other = behaviour.cases(maker, np.random.default_rng(1))
    changed = {n: a != other.inputs[n] for n, a in one.inputs.items()}
    assert {n: int(a.sum()) for n, a in changed.items()} == {"q": 2 * (not domain.decoding), "k": 2, "v": 2, "mask": 0}
    edges = [edge for n in "qkv" for a in [changed[n]] for edge in (a[0], a[-1], a[:, 0], a[:, -1])]
    assert not any(edge.any() for edge in edges)
    assert all(np.array_equal(np.sort(a, -1), np.sort(other.inputs[n], -1)) for n, a in one.inputs.items())
    assert maker.admits(one.inputs)
    assert maker.admits(other.inputs)


@pytest.mark.parametrize("domain", [Domain(max_tokens=2), Domain(max_width=3)], ids=str)
def test_arrays_without_an_inside_have_no_such_calls(domain: Domain) -> None:
    convention = Convention(tuple(Argument(n, n) for n in "qkv"))
    maker = Maker(Attention(), convention, Precision.of("float32"), domain)
    names = [case.name for case in behaviour.cases(maker, np.random.default_rng(1))]
    assert "a first call" in names
    assert not any("exchanged" in name for name in names)
