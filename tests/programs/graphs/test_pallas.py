"""Kernels of Pallas on residues, unmodified, as JAX interprets them: right ones pass, and mistakes are found."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, graphs, kinds
from symattn.programs.identity import identity
from symattn.programs.target import target
from symattn.programs.verifying import requested
from tests.sizes import SIZES

jax = pytest.importorskip("jax")
pl = pytest.importorskip("jax.experimental.pallas")
tpu = pytest.importorskip("jax.experimental.pallas.tpu")
jnp = jax.numpy

pytestmark = pytest.mark.jax
BLOCK = 4
CAUSAL, SQUARE = Attention(causal=True), Domain(square=True)
Right = dict[str, Any]
#: What a kernel does right; each mistake replaces one entry.
RIGHT: Right = {
    "scale": lambda d: d**-0.5,
    "seen": lambda rows, cols: cols <= rows,
    "within": lambda cols, n: cols < n,
    "rescaled": lambda old, factor: old * factor,
    "keys": lambda i, j: (j, 0),
    "last": lambda blocks: blocks - 1,
    "values": lambda v, within: jnp.where(within, v, 0.0),
}


def tile(how: Right, n: int, q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any, *scratch: Any) -> None:
    """A tile of an online softmax: state in scratch, blocks over the edge, conditional first and last steps."""
    m_ref, l_ref, a_ref = scratch
    i, j = pl.program_id(0), pl.program_id(1)

    @pl.when(j == 0)
    def _() -> None:
        m_ref[...] = jnp.full_like(m_ref, -1e30)
        l_ref[...] = jnp.zeros_like(l_ref)
        a_ref[...] = jnp.zeros_like(a_ref)

    s = jnp.dot(q_ref[...], k_ref[...].T) * how["scale"](q_ref.shape[-1])
    rows, cols = (BLOCK * at + jax.lax.broadcasted_iota(jnp.int32, s.shape, k) for k, at in enumerate((i, j)))
    seen = how["seen"](rows, cols) & how["within"](cols, n)
    s = jnp.where(seen, s, -1e30)
    m = jnp.maximum(m_ref[...], s.max(axis=1, keepdims=True))
    p = jnp.where(seen, jnp.exp(s - m), 0.0)
    factor = jnp.exp(m_ref[...] - m)
    l_ref[...] = how["rescaled"](l_ref[...], factor) + p.sum(axis=1, keepdims=True)
    within = (BLOCK * j + jnp.arange(BLOCK) < n)[:, None]
    a_ref[...] = how["rescaled"](a_ref[...], factor) + jnp.dot(p, how["values"](v_ref[...], within))
    m_ref[...] = m

    @pl.when(j == how["last"](pl.num_programs(1)))
    def _() -> None:
        o_ref[...] = a_ref[...] / l_ref[...]


def online(how: Right, q: Any, k: Any, v: Any) -> Any:
    (n, d), (keys, width) = q.shape, v.shape
    return pl.pallas_call(
        partial(tile, how, keys),
        grid=(pl.cdiv(n, BLOCK), pl.cdiv(keys, BLOCK)),
        in_specs=[
            pl.BlockSpec((BLOCK, d), lambda i, j: (i, 0)),
            pl.BlockSpec((BLOCK, d), how["keys"]),
            pl.BlockSpec((BLOCK, width), lambda i, j: (j, 0)),
        ],
        out_specs=pl.BlockSpec((BLOCK, width), lambda i, j: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((n, width), q.dtype),
        scratch_shapes=[tpu.VMEM((BLOCK, n), jnp.float32) for n in (1, 1, width)],
        interpret=True,
    )(q, k, v)


def part(how: Right, n: int, q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any, sum_ref: Any) -> None:
    """A part of the keys for one query: tiles by a loop whose length depends on the part, and its log-sum."""
    size = k_ref.shape[0]
    first = pl.program_id(0) * size

    def step(t: Any, carry: Any) -> Any:
        m, total, a = carry
        k, v = (ref[pl.ds(t * BLOCK, BLOCK), :] for ref in (k_ref, v_ref))
        seen = how["within"](first + t * BLOCK + jnp.arange(BLOCK), n)
        s = jnp.where(seen, (k * q_ref[...]).sum(-1) * how["scale"](k.shape[-1]), -jnp.inf)
        new = jnp.maximum(m, s.max())
        p, factor = jnp.exp(s - new), jnp.exp(m - new)
        a = how["rescaled"](a, factor) + (p[:, None] * how["values"](v, seen[:, None])).sum(0)
        return new, factor * total + p.sum(), a

    turns = (jnp.minimum(size, n - first) + BLOCK - 1) // BLOCK
    start = jnp.float32(-1e30), jnp.float32(0), jnp.zeros(v_ref.shape[-1])
    m, total, a = jax.lax.fori_loop(0, turns, step, start)
    o_ref[0, :], sum_ref[0] = a / total, m + jnp.log(total)


def decoded(how: Right, q: Any, k: Any, v: Any) -> Any:
    """Two stages: parts of eight keys, and then their outputs weighted by their sums."""
    (n, width), d = v.shape, q.shape[-1]
    parts = pl.cdiv(n, 2 * BLOCK)
    o, sums = pl.pallas_call(
        partial(part, how, n),
        grid=(parts,),
        in_specs=[
            pl.BlockSpec((1, d), lambda i: (0, 0)),
            pl.BlockSpec((2 * BLOCK, d), lambda i: how["keys"](0, i)),
            pl.BlockSpec((2 * BLOCK, width), lambda i: (i, 0)),
        ],
        out_specs=[pl.BlockSpec((1, width), lambda i: (i, 0)), pl.BlockSpec((1,), lambda i: (i,))],
        out_shape=[jax.ShapeDtypeStruct((parts, width), q.dtype), jax.ShapeDtypeStruct((parts,), q.dtype)],
        interpret=True,
    )(q, k, v)
    weights = jnp.exp(sums - sums.max())
    return ((weights[:, None] * o).sum(0) / weights.sum())[None]


def judged(function: Any, spec: Attention, *shapes: tuple[int, ...], layout: Any = None) -> Any:
    return graphs.verify_graph(
        graphs.traced(function, *(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes), layout=layout), spec
    )


def test_an_online_softmax_is_tested_with_its_scratch_and_edges() -> None:
    report = judged(partial(online, RIGHT), CAUSAL, (10, 4), (10, 4), (10, 3))
    assert [check.grade.value for check in report.checks] == ["tested"]
    assert any("-1e+30 forbids as −∞ does" in note for note in report.notes)


def test_a_decode_in_two_stages_is_tested() -> None:
    report = judged(partial(decoded, RIGHT), Attention(), (1, 4), (22, 4), (22, 3))
    assert [check.grade.value for check in report.checks] == ["tested"]


MISTAKES: list[tuple[str, Any, str]] = [
    ("scale", lambda d: 1 / d, "scores are scaled by 1/d_k"),
    ("seen", lambda rows, cols: cols < rows + 2, ""),
    ("within", lambda cols, n: cols < n - 1, ""),
    ("rescaled", lambda old, factor: old, "neither output nor sum so far is rescaled"),
    ("keys", lambda i, j: (0, 0), ""),
    ("last", lambda blocks: blocks - 2, ""),
    ("values", lambda v, within: v, ""),
]


@pytest.mark.parametrize(("place", "mistake", "cause"), MISTAKES, ids=[place for place, *_ in MISTAKES])
def test_a_mistake_in_a_kernel_is_found(place: str, mistake: Any, cause: str) -> None:
    spec = Attention() if place == "within" else CAUSAL
    right = RIGHT | ({"seen": lambda rows, cols: cols >= 0} if place == "within" else {})
    report = judged(partial(online, right | {place: mistake}), spec, (10, 4), (10, 4), (10, 3))
    assert report.verdict.value == "fault"
    assert report.checks[0].grade.value == "refuted"
    assert not cause or cause in report.faults[0].cause


def test_the_kernel_of_the_library_is_tested() -> None:
    library = pytest.importorskip("jax.experimental.pallas.ops.gpu.attention")
    blocks = library.BlockSizes(block_q=4, block_k=4)

    def mha(q: Any, k: Any, v: Any, scale: float = 0.5) -> Any:
        return library.mha(q, k, v, None, scale, True, blocks, interpret=True)

    spec, shape = Attention(causal=True, heads=2), (1, 8, 2, 4)
    report = judged(mha, spec, shape, shape, shape, layout="bnhd")
    assert [check.grade.value for check in report.checks] == ["tested"]
    wrong = judged(partial(mha, scale=0.25), spec, shape, shape, shape, layout="bnhd")
    assert "scaled by 1/d_k" in wrong.faults[0].cause


def alone(kernel: Any) -> Any:
    call = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((5, 4), jnp.float32), interpret=True)
    return lambda q, k, v: call(q, k, v)


def test_lanes_that_hold_one_maximum_share_it() -> None:
    """As kernels for TPUs do, whose state has 128 columns."""

    def kernel(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any) -> None:
        s = jnp.dot(q_ref[...], k_ref[...].T) / 2
        half = s.shape[1] // 2
        first = jnp.broadcast_to(s[:, :half].max(1, keepdims=True), (s.shape[0], half))
        m = jnp.maximum(first, s[:, half:].max(1, keepdims=True))
        p = jnp.exp(s - jnp.concatenate([m, m], 1))
        o_ref[...] = jnp.dot(p, v_ref[...]) / p.sum(1, keepdims=True)

    assert [c.grade.value for c in judged(alone(kernel), Attention(), (5, 4), (8, 4), (8, 4)).checks] == ["tested"]


def test_a_condition_on_data_accuses_by_an_input_alone() -> None:
    """On residues a comparison of data stands for any order: it shows no fault that numbers do not show."""

    def attended(q: Any, k: Any, v: Any) -> Any:
        return jnp.dot(jax.nn.softmax(jnp.dot(q, k.T) / 2, -1), v)

    def found(then: Any, otherwise: Any) -> Any:
        def kernel(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any) -> None:
            inputs = q_ref[...], k_ref[...], v_ref[...]

            @pl.when(q_ref[0, 0] > 0)
            def _() -> None:
                o_ref[...] = then(*inputs)

            @pl.when(q_ref[0, 0] <= 0)
            def _() -> None:
                o_ref[...] = otherwise(*inputs)

        return judged(alone(kernel), Attention(), (5, 4), (5, 4), (5, 4))

    def values(q: Any, k: Any, v: Any) -> Any:
        return v

    right = found(attended, attended)
    assert (right.verdict.value, right.checks[0].grade.value) == ("no fault", "sampled")
    assert "A comparison stands for any order." in right.notes
    wrong = found(values, values)
    assert "expected" in wrong.faults[0].message
    assert found(values, attended).verdict.value == "fault"
    # None of the few inputs that are drawn for floats takes the second branch.
    assert found(attended, values).verdict.value == "undecided"


def test_loops_and_choices_run_as_their_conditions_say() -> None:
    def looped(x: Any) -> Any:
        def step(state: Any) -> Any:
            i, y = state
            return i + 1, jax.lax.dynamic_update_slice(y, jax.lax.cond(i % 2, lambda: 2 * x[:2], lambda: x[:2]), (i, i))

        return jax.lax.while_loop(lambda state: state[0] < 3, step, (0, jnp.zeros((5, 6))))[1]

    from symattn import graphs

    x = np.arange(12.0).reshape(4, 3)
    graph = graphs.traced(looped, jax.ShapeDtypeStruct(x.shape, jnp.float32))
    kind = kinds.modular()
    (result,) = graphs.run(graph, {graph.inputs[0].name: kind.lift(x)}, kind.lift(x))
    assert (result == kind.lift(np.asarray(looped(x), np.float64))).all()


@pytest.mark.deep
def test_a_function_that_launches_kernels_is_tested_at_several_sizes() -> None:
    """Up to three tiles of queries and keys, with a last one that is not full; more sizes take minutes."""
    request = requested(CAUSAL, dtype="float32", framework="jax", domain=SQUARE)
    made = target(lambda q, k, v: online(RIGHT, q, k, v), request)
    found = identity(made, CAUSAL, SIZES[:3], domain=SQUARE)
    assert found.agrees
    assert found.epsilon is not None
    assert found.epsilon <= 1e-12
