"""Jaxprs of JAX: attention of the library, spelled out, of equinox and as flax has it; right and with faults."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, Gradient, InputError, LinearAttention, Verdict, graphs, verify
from symattn.bounds.inputs import Sizes
from symattn.programs.graphs.graph_program import GraphProgram, MeasuredSizes
from symattn.programs.graphs.jax_reader import _fixed_and_carried, _JaxprReader
from symattn.programs.graphs.judging import Derivative, _find_fault_of_difference, _of_gradient, inputs_of
from symattn.verification.semantics import Difference
from tests.refusals import refuses

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

pytestmark = pytest.mark.jax
TWO = Attention(causal=True, heads=2)


def shaped(*lengths: Any, dtype: Any = None) -> Any:
    """An array to trace; letters are lengths that are left open."""
    known = dict(zip("bnm", jax.export.symbolic_shape("b, n, m"), strict=True))
    return jax.ShapeDtypeStruct(tuple(known.get(x, x) for x in lengths), dtype or jnp.float32)


def library(**told: Any) -> Callable[..., Any]:
    """``jax.nn.dot_product_attention`` of q, k, v and of one array more, by its name."""

    def function(q: Any, k: Any, v: Any, **more: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, **more, **told)

    return function


def spelled(q: Any, k: Any, v: Any, fault: str = "", least: float = -1e30) -> Any:
    """Causal attention of (…, n, d), with a fault that can be asked for."""
    s = q @ jnp.swapaxes(k, -1, -2) / (jnp.sqrt(q.shape[-1]) if fault != "scale" else 2.5)
    i = jnp.arange(q.shape[-2])
    seen = i[:, None] <= i if fault == "flipped" else i <= i[:, None]
    s = jnp.where(seen, s, least)
    w = jnp.exp(s - s.max(-1, keepdims=True))
    return w / w.sum(-1, keepdims=True) @ v


def flax(x: Any, params: Any, fault: str = "") -> Any:
    """A layer as flax has it: kernels that keep the heads apart, (d_model, h, d_k)."""
    q, k, v = (
        jnp.einsum("bnd,dhe->bnhe", x, p["kernel"]) + p["bias"] for p in map(params.get, ("query", "key", "value"))
    )
    if fault == "heads":
        v = v[:, :, ::-1]
    o = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return jnp.einsum("bnhe,hed->bnd", o, params["out"]["kernel"]) + params["out"]["bias"]


def parameters(d: int, h: int, e: int) -> dict[str, dict[str, Any]]:
    """The tree of parameters of ``flax``."""
    roles = {r: {"kernel": shaped(d, h, e), "bias": shaped(h, e)} for r in ("query", "key", "value")}
    return roles | {"out": {"kernel": shaped(h, e, d), "bias": shaped(d)}}


def is_tested(report: Any) -> bool:
    """Whether the verdict is *no fault*, with an ε of at most 10⁻¹²."""
    first = report.checks[0]
    return bool(report.verdict.value == "no fault" and first.grade.value == "tested" and first.epsilon <= 1e-12)


@pytest.mark.parametrize(
    ("told", "more", "spec"),
    [
        ({"is_causal": True}, {}, TWO),
        ({"is_causal": True, "kv": 1}, {}, Attention(causal=True, heads=2, kv_heads=1)),
        ({"local_window_size": (2, 1)}, {}, Attention(heads=2, window=(2, 1))),
        ({}, {"mask": ((5, 5), bool)}, Attention(heads=2, mask="boolean")),
        ({}, {"bias": ((1, 2, 5, 5), None)}, Attention(heads=2, mask="additive")),
        ({"scale": 0.25}, {}, Attention(heads=2, scale=0.25)),
    ],
)
def test_the_library_is_tested(told: dict[str, Any], more: dict[str, Any], spec: Attention) -> None:
    told = dict(told)
    q, k = shaped(2, 5, 2, 4), shaped(2, 5, told.pop("kv", 2), 4)
    given = {name: shaped(*shape, dtype=dtype) for name, (shape, dtype) in more.items()}
    if "bias" in given:  # one bias for all of the batch
        given = {"mask": shaped(5, 5)}
        function = lambda q, k, v, mask: jax.nn.dot_product_attention(q, k, v, bias=mask[None, None])  # noqa: E731
    else:
        function = library(**told)
    assert is_tested(graphs.verify_graph(graphs.traced(function, q, k, k, layout="bnhd", **given), spec))


def without_batch(q: Any, k: Any, v: Any) -> Any:
    """Attention of (h, n, d), as kernels have it that are mapped over the batch."""
    s = jnp.einsum("hqd,hkd->hqk", q, k) / q.shape[-1] ** 0.5
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(s, -1), v)


def heads_second(q: Any, k: Any, v: Any) -> Any:
    return jnp.swapaxes(without_batch(*(jnp.swapaxes(x, 0, 1) for x in (q, k, v))), 0, 1)


def test_layouts_mean_what_their_letters_say() -> None:
    assert is_tested(
        graphs.verify_graph(graphs.traced(without_batch, *[shaped(2, 5, 4)] * 3, layout="hnd"), Attention(heads=2))
    )
    assert is_tested(
        graphs.verify_graph(graphs.traced(heads_second, *[shaped(5, 2, 4)] * 3, layout="nhd"), Attention(heads=2))
    )
    q = shaped(5, 2, 4)
    for given, layout, words in (
        ((q, q, q), "xyz", "layout is 'xyz'; known: nd, bnd, hnd, nhd, bhnd, bnhd"),
        ((q, q, q), "bhnd", "q has 3 axes, and the layout bhnd names 4"),
        ((q, shaped(5, 2, 3), q), "nhd", "in the layout nhd q has d = 4, and k d = 3"),
        ((q, q, shaped(3, 2, 4)), "nhd", "in the layout nhd k has n = 5, and v n = 3"),
        ((q, shaped(5, 7, 4), shaped(5, 6, 4)), "bnd", "in the layout bnd k has n = 7, and v n = 6"),
    ):
        refuses(graphs.traced, lambda q, k, v: q, *given, layout=layout, says=words)


def test_heads_and_tokens_of_all_numbers_are_proved() -> None:
    q = shaped("b", "n", 2, 4)
    report = graphs.verify_graph(graphs.traced(library(is_causal=True), q, q, q, layout="bnhd"), TWO, prove=True)
    assert is_tested(report)
    assert (report.checks[1].name, report.checks[1].grade.value) == ("all b, n", "proved")


@pytest.mark.parametrize(  # the others are finite
    "least", [-float("inf"), *(pytest.param(x, marks=pytest.mark.exhaustive) for x in (-1e9, "least"))]
)
def test_what_is_spelled_out_is_proved_for_all_sizes(least: Any) -> None:
    q = shaped("b", "n", 4)
    least = jnp.finfo(jnp.float32).min if least == "least" else least
    report = graphs.verify_graph(
        graphs.traced(lambda q, k, v: spelled(q, k, v, "", least), q, q, q), Attention(causal=True)
    )
    assert is_tested(report)
    assert report.checks[1].grade.value == "proved"


def test_lengths_that_are_printed_as_powers_are_read() -> None:
    def flattened(q: Any, k: Any, v: Any) -> Any:
        n = q.shape[0]
        s = (q @ k.T / jnp.sqrt(q.shape[-1])).reshape(n * n)
        return jax.nn.softmax(s.reshape(n, n)) @ v

    report = graphs.verify_graph(graphs.traced(flattened, *[shaped("n", 4)] * 3), Attention())
    assert [check.grade.value for check in report.checks] == ["tested", "proved"]


@pytest.mark.parametrize(("fault", "step"), [("scale", "scale"), ("flipped", "mask")])
def test_faults_are_named(fault: str, step: str) -> None:
    q = shaped("b", "n", 4)
    report = graphs.verify_graph(graphs.traced(spelled, q, q, q, fault=fault), Attention(causal=True))
    assert (report.verdict.value, report.faults[0].step) == ("fault", step)


def test_a_layer_as_flax_has_it() -> None:
    x, params = shaped("b", "n", 8), parameters(8, 2, 4)
    report = graphs.verify_graph(graphs.traced(flax, x, params), TWO, prove=False)
    assert is_tested(report)
    assert "w_o = out.kernel" in " ".join(report.notes)
    wrong = graphs.verify_graph(graphs.traced(flax, x, params, "heads"), TWO, prove=False)
    assert (wrong.verdict.value, wrong.checks[0].grade.value) == ("fault", "refuted")


def test_a_module_of_equinox() -> None:
    eqx = pytest.importorskip("equinox")
    module = eqx.nn.MultiheadAttention(2, 8, use_query_bias=True, key=jax.random.key(0))

    def causal(module: Any, x: Any) -> Any:
        return module(x, x, x, mask=jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool)))

    report = graphs.verify_graph(graphs.traced(causal, module, shaped("n", 8)), TWO, prove=False)
    assert is_tested(report)
    assert "w_q = query_proj.weight, transposed" in " ".join(report.notes)
    assert (
        graphs.verify_graph(graphs.traced(causal, module, shaped("n", 8)), Attention(heads=2)).verdict.value == "fault"
    )


def tiles(q: Any, k: Any, v: Any, kept: bool = True) -> Any:
    """By tiles of two keys, with the running maximum and sum of FlashAttention; ``kept`` rescales what came before."""

    def turn(state: Any, tile: Any) -> Any:
        m, z, o = state
        s = q @ tile[0].mT / 2
        new = jnp.maximum(m, s.max(-1, keepdims=True))
        e, old = jnp.exp(s - new), jnp.exp(m - new) if kept else 1.0
        return (new, z * old + e.sum(-1, keepdims=True), o * old + e @ tile[1]), None

    parts = [a.reshape(a.shape[0], -1, 2, 4).swapaxes(0, 1) for a in (k, v)]
    start = jnp.full((*q.shape[:-1], 1), -jnp.inf), jnp.zeros((*q.shape[:-1], 1)), jnp.zeros_like(q)
    (_, z, o), _ = lax.scan(turn, start, tuple(parts))
    return o / z


def test_a_scan_over_tiles_is_unrolled() -> None:
    q = shaped(2, 6, 4)
    assert is_tested(graphs.verify_graph(graphs.traced(tiles, q, q, q), Attention()))
    assert graphs.verify_graph(graphs.traced(tiles, q, q, q, False), Attention()).verdict.value == "fault"


def test_groups_of_operands_of_a_scan_are_read_as_newer_versions_give_them() -> None:
    """JAX 0.11 gives a scan trees of its operands, and no counts."""
    groups = SimpleNamespace(unpack=lambda: ((None,), (None, None, None), (None, None)))
    assert _fixed_and_carried({"ft_in": groups}) == _fixed_and_carried({"num_consts": 1, "num_carry": 3}) == (1, 3)


def test_arrays_may_be_put_on_a_device() -> None:
    def there(q: Any, k: Any, v: Any) -> Any:
        q, (k, v) = jax.device_put(q), jax.device_put((k, v))
        return jax.nn.softmax(q @ k.T * q.shape[-1] ** -0.5) @ v

    q = shaped(3, 4)
    assert is_tested(graphs.verify_graph(graphs.traced(there, q, q, q), Attention()))


# -- gradients ---------------------------------------------------------------------------------------------------------
def back(function: Callable[..., Any]) -> Callable[..., Any]:
    """The backward pass of a function."""
    return lambda q, k, v, do: jax.vjp(function, q, k, v)[1](do)


def are_tested(report: Any) -> bool:
    """Whether all gradients are, with an ε of at most 10⁻¹² together."""
    epsilon = sum(c.epsilon or 1 for c in report.checks)
    return bool(report.verdict.value == "no fault" and len(report.checks) == 3 and epsilon <= 1e-12)


def test_gradients_are_tested() -> None:
    q, k = shaped(2, 5, 4, 4), shaped(2, 5, 2, 4)
    spec = Gradient(Attention(causal=True, heads=4, kv_heads=2))
    assert are_tested(
        graphs.verify_graph(graphs.traced(back(library(is_causal=True)), q, k, k, q, layout="bnhd"), spec)
    )
    x = shaped("n", 4)
    assert are_tested(graphs.verify_graph(graphs.traced(back(spelled), x, x, x, x), Gradient(Attention(causal=True))))
    summed = jax.grad(lambda q, k, v: spelled(q, k, v).sum(), argnums=(0, 1, 2))
    assert are_tested(graphs.verify_graph(graphs.traced(summed, x, x, x), Gradient(Attention(causal=True))))


def by_hand(unscaled: bool, stopped: bool = False) -> Callable[..., Any]:
    """Attention with its own backward pass, in which dK lacks the scale, or nothing goes back through the weights."""

    def forward(q: Any, k: Any, v: Any) -> Any:
        p = jax.nn.softmax(q @ k.mT / 2)
        return p @ v, (q, k, v, p)

    def backward(kept: Any, do: Any) -> Any:
        q, k, v, p = kept
        dp = do @ v.mT
        ds = p * (dp - (0 if stopped else (p * dp).sum(-1, keepdims=True)))
        return ds @ k / 2, ds.mT @ q / (1 if unscaled else 2), p.mT @ do

    function = jax.custom_vjp(lambda q, k, v: forward(q, k, v)[0])
    function.defvjp(forward, backward)
    return function


def test_a_wrong_backward_pass_is_named() -> None:
    x, spec = shaped(3, 4), Gradient(Attention())
    assert are_tested(graphs.verify_graph(graphs.traced(back(by_hand(False)), x, x, x, x), spec))
    report = graphs.verify_graph(graphs.traced(back(by_hand(True)), x, x, x, x), spec)
    assert (report.verdict.value, report.faults[0].cause) == ("fault", "dK is not scaled")
    assert [c.grade.value for c in report.checks] == ["tested", "refuted", "tested"]
    assert graphs.verify_graph(graphs.traced(back(by_hand(False, True)), x, x, x, x), spec).verdict.value == "fault"


def test_a_cause_of_gradients_explains_many_queries_too() -> None:
    def open_from_the_eighth_key(q: Any, k: Any, v: Any) -> Any:
        i, j = jnp.arange(q.shape[-2])[:, None] + 9 - q.shape[-2], jnp.arange(9)
        s = q @ jnp.swapaxes(k, -1, -2) / jnp.sqrt(q.shape[-1])
        return jax.nn.softmax(jnp.where((j <= i) | (j >= 7), s, -1e30)) @ v

    queries, keys = shaped("n", 4), shaped(9, 4)
    graph = graphs.read(graphs.traced(back(open_from_the_eighth_key), queries, keys, keys, queries))
    spec: Any = Derivative(Attention(causal=True), "q")
    program, few = GraphProgram.of(graph, spec), Sizes(2, 9, 4, 4, 4)
    given = inputs_of(program, few, 0)
    got = program.run(given).output
    assert got is not None
    causes = []
    for largest in (few, Sizes(4, 9, 4, 4, 4)):
        mistake = _of_gradient(largest, program, given)[2](got, (0, 0))
        causes.append(mistake and mistake.cause)
    # Two queries see all keys, as without a mask; four do not, and the seventh key is closed to the first of them.
    assert causes[0] is not None
    assert "mask" in causes[0]
    assert causes[1] != causes[0]


# -- what is refused ---------------------------------------------------------------------------------------------------
def sorted_scores(q: Any, k: Any, v: Any) -> Any:
    return jnp.sort(q @ k.mT) @ v


def branching(q: Any, k: Any, v: Any) -> Any:
    return q if q[0, 0] > 0 else k


def picked(q: Any, k: Any, v: Any) -> Any:
    return k[jnp.argmax(q[0])][None] + v


def dropped(q: Any, k: Any, v: Any) -> Any:
    return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, q.shape), spelled(q, k, v), 0.0)


def whole(q: Any, k: Any, v: Any) -> Any:
    return spelled(q.astype(jnp.int32).astype(jnp.float32), k, v)


def long(q: Any, k: Any, v: Any) -> Any:
    return lax.fori_loop(0, 1000, lambda i, x: x + k, q)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (sorted_scores, "the operator sort is not read"),
        (branching, "cannot be traced: TracerBoolConversionError"),
        (picked, "the operator argmax is not read"),
        (dropped, "the operator random_"),
        (whole, "cast of computed numbers to whole ones"),
        (long, "a scan of 1000 turns is not read"),
    ],
)
def test_what_is_not_read_is_one_line(function: Callable[..., Any], words: str) -> None:
    x = shaped(3, 4)
    with pytest.raises(InputError, match=words) as error:
        graphs.verify_graph(graphs.traced(function, x, x, x))
    assert "\n" not in str(error.value)


def by_chunks(solve: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The delta rule in chunks of 5 tokens: (I + L) u = β (v − k S)."""

    def delta(q: Any, k: Any, v: Any, beta: Any) -> Any:
        state, outputs = jnp.zeros((*q.shape[:-2], k.shape[-1], v.shape[-1]), q.dtype), []
        for start in range(0, q.shape[-2], 5):
            of_q, of_k, of_v, b = (a[..., start : start + 5, :] for a in (q, k, v, beta[..., None]))
            turned = jnp.swapaxes(of_k, -1, -2)
            system = jnp.tril(b * (of_k @ turned), -1) + jnp.eye(of_q.shape[-2], dtype=q.dtype)
            u = solve(system, b * (of_v - of_k @ state))
            outputs.append(of_q @ state + jnp.tril(of_q @ turned) @ u)
            state = state + turned @ u
        return jnp.concatenate(outputs, -2)

    return delta


def by_factors(a: Any, b: Any) -> Any:
    from jax.scipy.linalg import lu_factor, lu_solve

    return lu_solve(lu_factor(a), b)


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize(
    ("solve", "right"),
    [
        (jnp.linalg.solve, True),
        (lambda a, b: jnp.linalg.inv(a) @ b, True),
        (by_factors, True),
        (lambda a, b: jnp.linalg.solve(jnp.swapaxes(a, -1, -2), b), False),
    ],
    ids=["solve", "inverse", "factors", "transposed"],
)
def test_systems_of_equations_are_solved_on_residues(solve: Any, right: bool) -> None:
    spec = LinearAttention(feature="identity", normalised=False, delta=True)
    # JAX compiles every operation anew for each size: these have up to three chunks.
    few = Domain(max_tokens=12, max_width=8)
    report = verify(by_chunks(solve), spec, framework="jax", examples=0, domain=few)
    assert (report.verdict is Verdict.NO_FAULT) is right
    assert any(check.epsilon is not None for check in report.checks) is right


def test_rows_are_ordered_as_jax_orders_them() -> None:
    pivots = np.array([[2, 1, 3, 3], [0, 3, 2, 3]])
    ordered = lambda q: lax.linalg.lu_pivots_to_permutation(q, 4)  # noqa: E731
    (computed,) = graphs.run(
        graphs.traced(ordered, jax.ShapeDtypeStruct(pivots.shape, jnp.int32)), {"q": pivots}, np.ones(1)
    )
    assert (computed == np.asarray(ordered(jnp.asarray(pivots, jnp.int32)))).all()


def test_a_parameter_that_is_not_taken_is_named() -> None:
    x = shaped(3, 4)
    graph = graphs.traced(lambda q, k, v: spelled(jnp.squeeze(q[None], 0), k, v), x, x, x)
    nodes = tuple(
        replace(node, attributes={**node.attributes, "mode": "clip"}) if node.operator == "squeeze" else node
        for node in graph.nodes
    )
    with pytest.raises(InputError, match=r"squeeze \(.*\): mode = 'clip' is not read$"):
        graphs.verify_graph(replace(graph, nodes=nodes), Attention(causal=True))


def test_nan_in_a_function_is_one_line() -> None:
    x = shaped(3, 4)
    with pytest.raises(InputError, match="NaN"):
        graphs.verify_graph(graphs.traced(lambda q, k, v: spelled(q, k, v) * jnp.nan, x, x, x), Attention(causal=True))


def test_the_page_shows_what_is_found() -> None:
    from tests.docs.test_public import play

    page = Path(__file__).resolve().parents[3] / "docs" / "jax.md"
    assert play(page.read_text(encoding="utf-8"), page.name).failed == 0


def test_a_long_length_is_refused_in_one_line() -> None:
    reader = SimpleNamespace(_sizes={"n": 1})
    with pytest.raises(InputError, match="sums and products of sizes"):
        _JaxprReader._add_symbolic_length(reader, "n + " * 60 + "n")  # type: ignore[arg-type]


@pytest.mark.deep
@pytest.mark.parametrize(("block", "verdict"), [(128, Verdict.FAULT), (1024, Verdict.NO_FAULT)])
def test_open_lengths_are_tried_in_several_blocks(block: int, verdict: Verdict) -> None:
    """A graph that computes each block of queries from the first is wrong beyond the first alone."""

    def blocks(q: Any, k: Any, v: Any) -> Any:
        first = q[jnp.arange(q.shape[0]) % block]
        return jax.nn.softmax(first @ k.T / 2) @ v

    n, m = jax.export.symbolic_shape("n, m")
    queries, keys = (jax.ShapeDtypeStruct((length, 4), jnp.float32) for length in (n, m))
    report = graphs.verify_graph(graphs.traced(blocks, queries, keys, keys))
    assert report.verdict is verdict
    if verdict is Verdict.NO_FAULT:
        assert report.largest.residues == {"n_q": 140, "n_k": 270, "d_k": 4, "d_v": 4}
        assert (report.largest.stages, report.largest.planned) == (2, 2)


def test_smaller_sizes_have_as_many_items() -> None:
    measured = MeasuredSizes(("b", 64), "n", "m", 4, 4, 4)
    smaller = measured.shrunk(Sizes(140, 270, 4, 4, 4, (1, 64)))
    assert [(s.n_q, s.n_k, *s.batch) for s in smaller] == [(7, 270, 1, 64), (140, 140, 1, 64), (140, 270, 1, 64)]


class NotAtSeven(GraphProgram):
    """A graph that has no output for 7 queries and 9 keys."""

    def run(self, inputs: Any, memory: Any = "contiguous") -> Any:
        if (len(inputs["q"]), len(inputs["k"])) == (7, 9):
            raise InputError("7 queries of 9 keys are not read")
        return super().run(inputs, memory)


def test_a_graph_need_not_run_at_smaller_sizes() -> None:
    queries, keys = shaped("n", 4), shaped("m", 4)
    graph = graphs.traced(lambda q, k, v: jax.nn.softmax(q @ k.T / 2.5) @ v, queries, keys, keys)
    of = GraphProgram.of(graphs.read(graph), Attention())
    program, sizes = NotAtSeven(of.graph, of.spec, of.slots, of.sizes), Sizes(9, 9, 4, 4, 4)
    fault = _find_fault_of_difference(program, Difference((0, 0), sizes, (), ""), 0)
    assert fault is not None
    assert "n_q = 9" in fault.message
