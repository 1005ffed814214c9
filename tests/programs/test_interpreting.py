"""Programs of JAX that NumPy runs in the place of a compiler: their results, and mistakes that depend on sizes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.bounds.case_result import Case
from symattn.programs import interpreting
from symattn.programs.verifying import Options
from tests.verification.naming import convicts

jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.jax


def attended(scores: Any, v: Any) -> Any:
    return jax.nn.softmax(scores, -1) @ v


def scores(q: Any, k: Any) -> Any:
    return jnp.asarray(q) @ jnp.asarray(k).mT / q.shape[-1] ** 0.5


def right(q: Any, k: Any, v: Any) -> Any:
    return attended(scores(q, k), v)


def streamed(q: Any, k: Any, v: Any, *, scaled: float = 1.0) -> Any:
    """Attention key by key; the accumulator is rescaled ``scaled`` times too much."""

    def add(state: Any, key: Any) -> Any:
        top, total, out = state
        s = q @ key[0] / q.shape[-1] ** 0.5
        new = jnp.maximum(top, s)
        shrink, p = jnp.exp(top - new), jnp.exp(s - new)
        return (new, total * shrink + p, out * (shrink * scaled)[:, None] + p[:, None] * key[1]), None

    n = len(q)
    start = jnp.full(n, -jnp.inf), jnp.zeros(n), jnp.zeros((n, v.shape[-1]))
    (_, total, out), _ = jax.lax.scan(add, start, (k, v))
    return out / total[:, None]


def causal(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x[None, :, None] for x in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)[0, :, 0]


def derivative(q: Any, k: Any, v: Any) -> Any:
    return jax.vjp(right, q, k, v)[1](jnp.full((len(q), v.shape[-1]), 0.5))[0]


def inputs(n: int, dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(n)
    return [jnp.asarray(rng.normal(size=(n, 4)), dtype) for _ in range(3)]


@pytest.mark.parametrize("function", [jax.jit(causal), streamed, jax.jit(derivative)])
def test_numpy_computes_what_jax_says(function: Callable[..., Any]) -> None:
    given = inputs(7)
    with interpreting.interpreting() as ran:
        by_numpy = function(*given)
    assert ran
    by_xla = function(*given)
    assert (by_numpy.dtype, by_numpy.shape, type(by_numpy)) == (by_xla.dtype, by_xla.shape, type(by_xla))
    assert np.allclose(by_numpy, by_xla, rtol=1e-5, atol=1e-6)
    # A mistake in the same program shows.
    assert not np.allclose(by_numpy, partial(streamed, scaled=0.9)(*given), rtol=1e-3)


def test_numbers_below_the_normal_range_vanish_as_by_xla() -> None:
    tiny = jnp.asarray(np.full((3, 5), -100, np.float32))
    with interpreting.interpreting() as ran:
        assert (np.asarray(jnp.exp(tiny)) == 0).all()
    assert ran
    assert np.exp(np.float32(-100)) > 0


@pytest.mark.parametrize(
    "function", [lambda x: x.astype(jnp.bfloat16) * 3, lambda x: (x * 1e9).astype(jnp.int32)], ids=["half", "cast"]
)
def test_what_numpy_computes_otherwise_is_compiled(function: Callable[..., Any]) -> None:
    given = inputs(9)[0]
    scaled = jax.jit(function)
    with interpreting.interpreting() as ran:
        result = scaled(given)
    assert not ran
    assert np.array_equal(result, scaled(given))


def test_numpy_is_not_believed_where_jax_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    how = Options()
    rules = {**interpreting._RULES, "exp": lambda equation, x: np.exp2(x)}
    with how.opened(right, Attention()) as runner:
        session = how.session(runner, Attention())
        session.take(Case("shapes", "compiled", dict(zip("qkv", map(np.asarray, inputs(40)), strict=True))))
        monkeypatch.setattr(interpreting, "_RULES", rules)
        judged = session.take(Case("shapes", "by NumPy", dict(zip("qkv", map(np.asarray, inputs(3)), strict=True))))
    assert judged is not None
    assert (judged.finding, judged.outcome.interpreted) == (None, False)
    assert session.distrusts_numpy


def with_an_odd_key_lost(q: Any, k: Any, v: Any) -> Any:
    s, n = scores(q, k), k.shape[-2]
    return attended(s.at[..., -1].set(-jnp.inf) if n > 256 and n % 2 else s, v)


def with_another_scale_of_wide_rows(q: Any, k: Any, v: Any) -> Any:
    return attended(scores(q, k) * (1.02 if q.shape[-1] > 128 else 1.0), v)


def with_another_scale_of_many_queries(q: Any, k: Any, v: Any) -> Any:
    return attended(scores(q, k) * (1.03 if q.shape[-2] > 512 else 1.0), v)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "function", [with_an_odd_key_lost, with_another_scale_of_wide_rows, with_another_scale_of_many_queries]
)
@pytest.mark.parametrize("jitted", [False, True])
def test_mistakes_that_depend_on_sizes_are_found(function: Callable[..., Any], jitted: bool) -> None:
    assert convicts(jax.jit(function) if jitted else function, Attention())
