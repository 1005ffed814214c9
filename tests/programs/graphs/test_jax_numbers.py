"""Plain whole numbers of JAX, of which masks and biases are made: as JAX computes them, or refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Refused, graphs

jax = pytest.importorskip("jax")
jnp, lax, nn = jax.numpy, jax.lax, jax.nn

pytestmark = pytest.mark.jax


def read(function: Callable[[], Any]) -> Any:
    """What is read of numbers that no input has a part in, in float64."""
    graph = graphs.traced(lambda x: function() + x, jax.ShapeDtypeStruct((), jnp.float32))
    return graphs.run(graph, {graph.inputs[0].name: np.zeros(())}, np.zeros(1))[0]


def ratio() -> Any:
    p = jnp.arange(4, dtype=jnp.float32)
    return p / p.max()


AS_IN_JAX: dict[str, Callable[[], Any]] = {
    "not of bits": lambda: (~jnp.arange(4) & 1) == 0,
    "or of bits": lambda: (jnp.arange(4) | 2) == 2,
    "floats divided": ratio,
    "whole numbers divided": lambda: jnp.arange(-3, 4) // 2 + lax.div(jnp.arange(-3, 4), 2),
    "bytes that are widened": lambda: jnp.asarray(np.array([250, 7], np.uint8)).astype(jnp.int32) + 9,
    "bytes in their range": lambda: jnp.asarray(np.array([250, 7], np.uint8)) + jnp.uint8(5),
    "unsigned, and none below 0": lambda: (jnp.arange(3, 7).astype(jnp.uint32) - jnp.uint32(3)) < 2,
    "the largest": lambda: jnp.arange(4) == jnp.arange(4).max(),
    "a split into one part": lambda: (x := lax.split(jnp.arange(4), (4,))[0])[:, None] <= x,
    "systems of equations": lambda: jnp.linalg.solve(jnp.tril(jnp.ones((3, 3))) * 2 + 1, jnp.arange(6.0).reshape(3, 2)),
    "powers": lambda: jnp.arange(4) ** 3 <= jnp.square(jnp.arange(4)),
}
# A refusal begins with the operator and its place.
_AT = r"^{} \(test_jax_numbers\.py:\d+\): "
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a cast below 0": (lambda: (jnp.arange(4)[:, None] - jnp.arange(4)).astype(jnp.uint32) < 2, "-3 does not fit uint"),
    "a difference below 0": (
        lambda: jnp.arange(4, dtype=jnp.uint32) - jnp.uint32(1) < 2,
        _AT.format("sub") + "-1 does not fit uint",
    ),
    "a sum of bytes": (
        lambda: jnp.asarray(np.array([250], np.uint8)) + jnp.uint8(9),
        _AT.format("add") + "259 does not fit uint8",
    ),
    "a product": (lambda: jnp.arange(4) * (2**30) > 0, _AT.format("mul") + "3221225472 does not fit int32"),
    "a power": (lambda: (jnp.arange(4) + 2) ** 15 > 0, "does not fit int32"),
    "a power beyond int64": (lambda: (jnp.arange(4) + 2) ** 64 > 0, "beyond 64 bits"),
    "a cast of a float": (lambda: (jnp.arange(4) + 300.0).astype(jnp.int8), "300 does not fit int8"),
    "a large float": (lambda: (jnp.arange(4) * 1e30).astype(jnp.int32), "beyond 64 bits"),
    "not of unsigned bits": (
        lambda: ~jnp.arange(4, dtype=jnp.uint8) > 0,
        _AT.format("not.bits") + "-4 does not fit uint8",
    ),
}


@pytest.mark.parametrize("name", AS_IN_JAX)
def test_plain_numbers_are_what_they_are_in_jax(name: str) -> None:
    function = AS_IN_JAX[name]
    assert np.allclose(read(function), np.asarray(function(), dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_what_wraps_around_is_refused_by_name(name: str) -> None:
    function, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        read(function)


def test_systems_whose_rows_have_to_be_exchanged_are_refused() -> None:
    with pytest.raises(Refused, match="rows have to be exchanged"):
        read(lambda: jnp.linalg.solve(jnp.eye(3)[::-1], jnp.ones((3, 2))))


def masked(seen: Callable[[Any], Any]) -> Callable[..., Any]:
    """Attention of (n, 4) with a mask that is made of positions."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        s = jnp.where(seen(jnp.arange(q.shape[0])), q @ k.mT / 2, -jnp.inf)
        return nn.softmax(s, axis=-1) @ v

    return attention


def verified(seen: Callable[[Any], Any]) -> str:
    x = jax.ShapeDtypeStruct((5, 4), jnp.float32)
    return str(graphs.verify_graph(graphs.traced(masked(seen), x, x, x), Attention(causal=True)).verdict.value)


def test_masks_of_floats_and_of_a_largest_position_are_read() -> None:
    def floats(i: Any) -> Any:
        p = i.astype(jnp.float32)
        return p[None] <= p[:, None]

    assert verified(floats) == "no fault"
    assert verified(lambda i: (i <= i[:, None]) | (i == i.max() + 1)) == "no fault"
    assert verified(lambda i: (i <= i[:, None]) | (i == i.max())) == "fault"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (lambda i: lax.iota(jnp.uint8, i.shape[0]) <= lax.iota(jnp.uint8, i.shape[0])[:, None], "the type uint8"),
        (lambda i: ~i[:, None] < ~i + 1, "bits of computed numbers"),
    ],
)
def test_positions_of_all_numbers_are_not_proved_in_bits_and_narrow_types(
    seen: Callable[[Any], Any], words: str
) -> None:
    (n,) = jax.export.symbolic_shape("n")
    x = jax.ShapeDtypeStruct((n, 4), jnp.float32)
    report = graphs.verify_graph(graphs.traced(masked(seen), x, x, x), Attention(causal=True), prove=True)
    assert not any(c.grade.value == "proved" for c in report.checks)
    assert words in " ".join(report.notes)


def test_a_scan_of_no_turns_is_refused_where_it_has_rows() -> None:
    def scanned(q: Any, k: Any, v: Any, rows: bool = True) -> Any:
        o, made = lax.scan(lambda o, x: (o + x, o if rows else None), masked(lambda i: i <= i[:, None])(q, k, v), q[:0])
        return o + made.sum(0) if rows else o

    x = jax.ShapeDtypeStruct((5, 4), jnp.float32)
    with pytest.raises(InputError, match="rows of a scan of 0 turns are not read"):
        graphs.traced(scanned, x, x, x)
    assert (
        graphs.verify_graph(graphs.traced(scanned, x, x, x, rows=False), Attention(causal=True)).verdict.value
        == "no fault"
    )
