"""Mistakes of one line in attention of JAX, each by what was done in its place, and right code in several styles."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from symattn import Attention, graphs
from symattn.programs.identity import identity
from symattn.programs.target import target
from symattn.programs.verifying import requested
from tests.sizes import SIZES

jax = pytest.importorskip("jax")
jnp, lax, nn = jax.numpy, jax.lax, jax.nn

pytestmark = pytest.mark.jax


def made(**changed: Callable[..., Any]) -> Callable[..., Any]:
    """Causal attention of (b, h, n, d), with one line changed."""
    line = {
        "scores": lambda q, k: jnp.einsum("bhid,bhjd->bhij", q, k),
        "scaled": lambda s, d: s / d**0.5,
        "masked": lambda s: jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf),
        "weights": lambda s: nn.softmax(s, axis=-1),
        "output": lambda w, v: jnp.einsum("bhij,bhjd->bhid", w, v),
        **changed,
    }

    def attention(q: Any, k: Any, v: Any) -> Any:
        s = line["masked"](line["scaled"](line["scores"](q, k), q.shape[-1]))
        return line["output"](line["weights"](s), v)

    return attention


def by_logarithms(s: Any) -> Any:
    return jnp.exp(s - nn.logsumexp(s, axis=-1, keepdims=True))


WRONG = {
    "by a logarithm of sums over queries": made(
        weights=lambda s: jnp.exp(s - nn.logsumexp(s, axis=-2, keepdims=True)), masked=lambda s: s
    ),
    "flipped mask": made(masked=lambda s: jnp.where(jnp.triu(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)),
    "one key too many": made(masked=lambda s: jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool), 1), s, -jnp.inf)),
    "softmax over queries": made(masked=lambda s: s, weights=lambda s: nn.softmax(s, axis=-2)),
    "heads summed": made(output=lambda w, v: jnp.einsum("bhij,bgjd->bhid", w, v)),
    "mask multiplied": made(masked=lambda s: s * jnp.tril(jnp.ones(s.shape[-2:]))),
}


def stopped(s: Any) -> Any:
    e = jnp.exp(s - lax.stop_gradient(s.max(-1, keepdims=True)))
    return e / e.sum(-1, keepdims=True)


def looked_up(q: Any, k: Any, v: Any) -> Any:
    return jnp.stack([made()(q[:, h : h + 1], k[:, h : h + 1], v[:, h : h + 1])[:, 0] for h in range(2)], 1)


RIGHT = {
    "as it stands": made(),
    "bias of zeros and −∞": made(masked=lambda s: s + jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), 0.0, -jnp.inf)),
    "vmap over heads": lambda q, k, v: jax.vmap(jax.vmap(lambda q, k, v: made()(q[None, None], k[None, None],
        v[None, None])[0, 0]))(q, k, v),
    "head by head": looked_up,
    "a maximum that is stopped": made(weights=stopped),
    "by a logarithm of sums": made(weights=by_logarithms),
}  # fmt: skip


def verdict(function: Callable[..., Any]) -> Any:
    q = jax.ShapeDtypeStruct((2, 2, 5, 4), jnp.float32)
    return graphs.verify_graph(graphs.traced(function, q, q, q), Attention(causal=True, heads=2))


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_found(name: str) -> None:
    assert verdict(WRONG[name]).verdict.value == "fault"


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_is_tested(name: str) -> None:
    report = verdict(RIGHT[name])
    assert (report.verdict.value, report.checks[0].grade.value) == ("no fault", "tested")


def test_a_refusal_says_the_operator_and_its_place_once() -> None:
    """Whatever loops the operator is in."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        def turn(i: Any, s: Any) -> Any:
            return lax.while_loop(lambda x: (jnp.sum(x) * jnp.inf) > 0, lambda x: x - 1, s)

        s = lax.while_loop(lambda x: x[0] < 2, lambda x: (x[0] + 1, turn(*x)), (0, q @ k.T))[1]
        return nn.softmax(s, axis=-1) @ v

    found = identity(target(attention, requested(Attention(), "nd", framework="jax")), Attention(), SIZES[:1])
    assert re.fullmatch(r"mul \(test_jax_faults\.py:\d+\): NaN or infinity in the data; .*", found.reason)
