"""Functions of JAX and modules of equinox, called and traced."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, LayerNorm, RMSNorm, verify
from symattn.programs.repeat import repeat_target, written
from symattn.programs.target import target
from symattn.programs.verifying import requested
from tests.refusals import refuses
from tests.verification.naming import convicts

jax = pytest.importorskip("jax")
eqx = pytest.importorskip("equinox")
jnp = jax.numpy

pytestmark = pytest.mark.jax
SQUARE = Domain(same_width=True, square=True)


def attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ jnp.swapaxes(k, -1, -2) / jnp.sqrt(q.shape[-1])
    return jax.nn.softmax(s, -1) @ v


def in_powers_of_two(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.mT * (1.44269504 / q.shape[-1] ** 0.5)
    top = s.max(-1, keepdims=True)
    return jnp.exp2(s - top - jnp.log2(jnp.exp2(s - top).sum(-1, keepdims=True))) @ v


def flipped(q: Any, k: Any, v: Any) -> Any:
    n = q.shape[-2]
    s = q @ k.mT / jnp.sqrt(q.shape[-1])
    return jax.nn.softmax(jnp.where(jnp.triu(jnp.ones((n, n), bool)), s, -jnp.inf), -1) @ v


def cut_off(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.mT / jnp.sqrt(q.shape[-1])
    return jax.nn.softmax(jnp.where(jnp.arange(k.shape[-2]) < 64, s, -jnp.inf), -1) @ v


def by_rows(q: Any, k: Any, v: Any, *, back: int = 0) -> Any:
    """A query at a time, taken at a traced index, which arrays of NumPy do not have."""

    def row(i: Any) -> Any:
        s = k @ q[i - back] / jnp.sqrt(q.shape[-1])
        return jnp.exp(s - jax.nn.logsumexp(s)) @ v

    return jax.lax.map(row, jnp.arange(len(q)))


class Layer(eqx.Module):  # type: ignore[misc,name-defined]
    """Two heads of four columns; with keys and values exchanged where that is asked for."""

    q_proj: Any
    k_proj: Any
    v_proj: Any
    out_proj: Any
    exchanged: bool = eqx.field(static=True)
    num_heads: int = eqx.field(static=True, default=2)

    def __call__(self, x: Any) -> Any:
        q, k, v = (jax.vmap(p)(x).reshape(-1, 2, 4) for p in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (v, k) if self.exchanged else (k, v)
        return jax.vmap(self.out_proj)(jax.nn.dot_product_attention(q, k, v).reshape(-1, 8))


def layer(exchanged: bool) -> Any:
    made = [
        eqx.nn.Linear(8, 8, use_bias=i == 3, key=key) for i, key in enumerate(jax.random.split(jax.random.key(0), 4))
    ]
    return Layer(*made, exchanged)


def semantics(function: Any, spec: Attention) -> Any:
    runner = target(function, requested(spec, dtype="float32", domain=SQUARE))
    return runner.semantics(spec, 60, SQUARE)


@pytest.mark.parametrize("made", [attention, jax.jit(attention), in_powers_of_two, by_rows])
def test_functions_are_traced_and_tested(made: Any) -> None:
    found = semantics(made, Attention())
    assert found.agrees
    assert found.epsilon <= 1e-12


def test_the_function_of_the_library_is_tested() -> None:
    found = semantics(jax.nn.dot_product_attention, Attention(heads=2, causal=True))
    assert found.agrees
    assert found.epsilon <= 1e-12


@pytest.mark.parametrize(("function", "causal"), [(flipped, True), (cut_off, False)])
def test_a_flipped_mask_and_keys_that_are_lost_beyond_64_differ(function: Any, causal: bool) -> None:
    assert semantics(function, Attention(causal=causal)).agrees is False


def sparsemax(z: Any) -> Any:
    ordered = jnp.sort(z, axis=-1)[..., ::-1]
    sums = jnp.cumsum(ordered, axis=-1)
    ranks = jnp.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    size = (1 + ranks * ordered > sums).sum(axis=-1, keepdims=True)
    threshold = (jnp.take_along_axis(sums, size - 1, axis=-1) - 1) / size.astype(z.dtype)
    return jnp.maximum(z - threshold, 0)


@pytest.mark.parametrize("factor", [1, 1.5])
def test_a_definition_without_residues_is_judged_on_floats(factor: float) -> None:
    """A sparsemax orders its scores, which residues have no order for."""

    def sparse_attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.T / jnp.sqrt(jnp.asarray(q.shape[-1], q.dtype)) * factor
        return sparsemax(scores) @ v

    spec = Attention(normaliser="sparsemax")
    if factor == 1:
        assert verify(sparse_attention, spec, examples=4).verdict.value == "no fault"
    else:
        assert convicts(sparse_attention, spec, examples=4)
    assert "residues have no order" in str(semantics(sparse_attention, spec).reason)


@pytest.mark.parametrize(("function", "right"), [(by_rows, True), (partial(by_rows, back=1), False)])
def test_arrays_of_jax_are_passed_where_those_of_numpy_do_not_do(function: Any, right: bool) -> None:
    runner = target(function, requested(Attention(), dtype="float32", domain=SQUARE))
    assert runner.convention.framework == "jax"
    assert target(attention, requested(Attention(), dtype="float32")).convention.framework == "numpy"
    given = {n: np.arange(6.0).reshape(3, 2) / 2**i for i, n in enumerate("qkv")}
    s = given["q"] @ given["k"].T / np.sqrt(2)
    exact = np.exp(s) / np.exp(s).sum(-1, keepdims=True) @ given["v"]
    for memory in ("contiguous", "strided", "transposed", "frozen"):
        outcome = runner.run(given, memory)  # type: ignore[arg-type]
        assert (outcome.error, outcome.mutated, outcome.views) == (None, (), ())
        assert np.allclose(outcome.output, exact, atol=1e-5) is right


def test_code_that_names_no_framework_gets_arrays_of_jax_and_is_traced() -> None:
    request = requested(Attention(), dtype="float32", framework="jax")
    made = target(lambda q, k, v: np.array(q) @ np.array(k).T @ np.array(v), request)
    assert made.convention.framework == "jax"
    assert "TracerArrayConversionError" in made.semantics(Attention(), 60).reason


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_a_test_that_is_written_makes_arrays_of_jax(dtype: str, tmp_path: Path) -> None:
    source = "def f(q, k, v):\n    return v.at[0].set(2)\n"
    (tmp_path / "f.py").write_text(source, encoding="utf-8")
    found = repeat_target(
        f"{tmp_path / 'f.py'}:f", Attention(), dict.fromkeys("qkv", np.ones((1, 1))), framework="jax", dtype=dtype
    )
    text = written(f"{tmp_path / 'f.py'}:f", [("w", found)], tmp_path, "symattn")
    assert f"q = jnp.asarray([[1.0]], dtype=jnp.{dtype})" in text
    space: dict[str, Any] = {"__file__": str(tmp_path / "test_f.py")}
    exec(text, space)
    with pytest.raises(AssertionError, match="entries are wrong"):
        space["test_f_w"]()


def test_a_module_is_called_with_other_weights() -> None:
    report = verify(layer(False), Attention(heads=2), examples=1)
    assert report.verdict.value == "no fault"
    assert any("in place of its own: q_proj.weight, k_proj.weight" in note for note in report.notes)
    assert any("NumPy ran what JAX would have compiled" in note for note in report.notes)


def test_a_wrong_module_is_named() -> None:
    report = verify(layer(True), Attention(heads=2), examples=1)
    assert report.verdict.value == "fault"
    assert report.faults[0].cause == "the projections of keys and values are exchanged"


def test_norms_are_judged_row_by_row() -> None:
    assert verify(eqx.nn.RMSNorm(6), RMSNorm(eps=1e-5), examples=1).verdict.value == "no fault"
    assert convicts(eqx.nn.LayerNorm(6, eps=1e-3), LayerNorm(eps=1e-5), examples=1)


def test_float64_without_its_switch_is_one_line() -> None:
    refuses(verify, layer(False), Attention(heads=2), dtype="float64", says="JAX_ENABLE_X64=1")


def test_other_heads_are_one_line() -> None:
    refuses(verify, layer(False), Attention(heads=4), says="has 2 heads, and the specification 4")
