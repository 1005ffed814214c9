"""Programs of JAX that NumPy runs in the place of a compiler: their results, and mistakes that depend on sizes."""

import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.bounds.called_target import same_bits
from symattn.bounds.case_result import Case
from symattn.programs import frameworks, interpreting
from symattn.programs.repairing.source import EndlessLoop
from symattn.programs.verifying import Options
from symattn.verification.diagnosis import faults
from symattn.verification.probing import behaviour
from symattn.verification.session_report import find_largest_judged_sizes
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


def taken_in_order(x: Any) -> Any:
    return jnp.take_along_axis(x, jnp.argsort(-x, axis=0)[:2], axis=0)


def along_the_middle(x: Any) -> Any:
    return jnp.take_along_axis(x, jnp.asarray([[[3], [0]]]), axis=1)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(
    "function",
    [jnp.sort, partial(jnp.argsort, axis=-2), partial(jnp.sort, axis=1, descending=True),
     taken_in_order, along_the_middle],
    ids=["sorted", "order", "descending", "taken", "middle"],
)  # fmt: skip
def test_what_numpy_sorts_and_takes_is_what_jax_says(function: Callable[..., Any], dtype: str) -> None:
    """Equal numbers keep their order, zeros of both signs and tiny numbers are equal, and NaN comes last."""
    x = np.random.default_rng(3).integers(-2, 3, (3, 4, 5)).astype(float)
    x[0] *= 1.5
    if dtype != "int32":
        x[1, :, ::2], x[2, 1] = [[-0.0], [1e-42], [np.nan], [-np.inf]], [0.0, -0.0, 2e-42, 1e-42, np.nan]
    given, program = jnp.asarray(x, dtype), jax.jit(function)
    with interpreting.interpreting() as ran:
        by_numpy = program(given)
    assert ran
    by_xla = program(given)
    assert (by_numpy.dtype, by_numpy.shape) == (by_xla.dtype, by_xla.shape)
    assert np.asarray(by_numpy).tobytes() == np.asarray(by_xla).tobytes()


def test_numbers_below_the_normal_range_vanish_as_by_xla() -> None:
    tiny = jnp.asarray(np.full((3, 5), -100, np.float32))
    with interpreting.interpreting() as ran:
        assert (np.asarray(jnp.exp(tiny)) == 0).all()
    assert ran
    assert np.exp(np.float32(-100)) > 0


def test_numbers_that_vanish_keep_their_signs_as_by_xla() -> None:
    x = np.array([-0.0, 0.0, -1e-40, 1e-40], np.float32)
    program = jax.make_jaxpr(lambda x: 1 / (x * 1.5))(x)
    (got,) = interpreting.evaluate(program, [x])
    assert np.array_equal(got, 1 / (jnp.asarray(x) * 1.5))
    assert np.isneginf(got).any()


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


def test_loops_whose_count_is_a_number_of_python_are_run_by_numpy() -> None:
    def double(x: Any) -> Any:
        return jax.lax.fori_loop(0, 2, lambda i, state: (state[0] + x, state[1] * 2), (x, 0.5))

    given = inputs(11)[0]
    with interpreting.interpreting() as ran:
        by_numpy = double(given)
    assert ran == [True]
    by_xla = double(given)
    for one, other in zip(by_numpy, by_xla, strict=True):
        assert (one.dtype, one.shape, one.weak_type) == (other.dtype, other.shape, other.weak_type)
        assert np.allclose(one, other, rtol=1e-6)
    # A weak type shows in what JAX makes of the number next.
    assert by_numpy[1].weak_type


def test_arrays_of_a_weak_type_are_run_by_numpy() -> None:
    weak, given = jax.jit(lambda x: (x, jnp.broadcast_to(2.0, (13,)))), inputs(13)[0]
    with interpreting.interpreting() as ran:
        _, twos = weak(given)
    assert ran == [True]
    assert twos.weak_type
    assert np.array_equal(twos, np.full(13, 2.0))
    # A weak type gives way to any other one.
    assert (twos * jnp.ones(13, jnp.bfloat16)).dtype == jnp.bfloat16


def kept_or_new(q: Any) -> Any:
    """A branch that keeps a weak array beside one that replaces it: their common type is weak."""

    def body(i: Any, top: Any) -> Any:
        return jax.lax.cond(i < 2, lambda m: jnp.maximum(m, q.max(1)), lambda m: m, top)

    return jax.lax.fori_loop(0, 3, body, jnp.full(q.shape[0], -1e30))


def test_loops_that_carry_a_weak_array_are_run_by_numpy() -> None:
    given = inputs(15)[0]
    with interpreting.interpreting() as ran:
        by_numpy = kept_or_new(given)
    assert ran
    by_xla = kept_or_new(given)
    assert (by_numpy.dtype, by_numpy.weak_type) == (by_xla.dtype, by_xla.weak_type)
    assert np.array_equal(by_numpy, by_xla)


def test_a_weak_array_that_numpy_cannot_make_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    weak, given = jax.jit(lambda x: jnp.broadcast_to(2.0, (14,))), inputs(14)[0]
    # As in a version of JAX whose arrays are made in another way.
    monkeypatch.setattr(interpreting, "_as_array", lambda x: x)
    with interpreting.interpreting() as ran:
        twos = weak(given)
    assert not ran
    assert twos.weak_type


def halved(x: Any) -> Any:
    return jax.lax.while_loop(lambda state: state[0] < 4, lambda state: (state[0] + 1, state[1] / 2), (0, x))[1]


def endless(x: Any) -> Any:
    return jax.lax.while_loop(lambda state: state[0] < 4, lambda state: (state[0] * 2, state[1] / 2), (0, x))[1]


def divided_by_zero(x: Any) -> Any:
    """As after an edit of the step of a loop: NumPy leaves the quotient to XLA, where the loop does not end."""
    return jax.lax.while_loop(lambda state: state[0] < 4, lambda state: (state[0] // 0 * 0, state[1] / 2), (0, x))[1]


def narrow(x: Any) -> Any:
    """A loop that ends, in a format that NumPy leaves to XLA."""
    return halved(x.astype(jnp.bfloat16))


def narrow_branch(x: Any) -> Any:
    return jax.jit(lambda x: jax.lax.cond(x[0, 0] < 9, narrow, lambda x: x.astype(jnp.bfloat16), x))(x)


def narrow_with_count(x: Any) -> Any:
    return jax.lax.fori_loop(0, 4, lambda _, state: state / 2, x.astype(jnp.bfloat16))


@pytest.mark.parametrize("function", [endless, divided_by_zero, narrow, narrow_branch], ids=lambda f: f.__name__)
def test_an_open_loop_that_numpy_does_not_run_to_its_end_is_refused(function: Callable[..., Any]) -> None:
    given = inputs(4)[0]
    with interpreting.interpreting(), interpreting.refusing_open_loops(), pytest.raises(EndlessLoop):
        function(given)


@pytest.mark.parametrize("function", [halved, narrow_with_count], ids=lambda f: f.__name__)
def test_loops_that_end_are_not_refused(function: Callable[..., Any]) -> None:
    given = inputs(5)[0]
    with interpreting.interpreting(), interpreting.refusing_open_loops():
        result = function(given)
    assert np.allclose(result, function(given))


def test_open_loops_are_compiled_where_they_are_not_refused() -> None:
    given = inputs(6)[0]
    with interpreting.interpreting():
        result = narrow(given)
    assert np.array_equal(result, narrow(given))


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


def arrays(n: int) -> dict[str, Any]:
    return dict(zip("qkv", map(np.asarray, inputs(n)), strict=True))


def test_a_wrong_result_that_numpy_did_not_run_stands() -> None:
    is_next_wrong: list[bool] = []

    def wrong_on_request(q: Any, k: Any, v: Any) -> Any:
        weights = np.exp(q @ k.T / np.float32(2))
        output = weights @ v / weights.sum(-1, keepdims=True)
        return output * (2 if is_next_wrong.pop() else 1) if is_next_wrong else output

    how = Options()
    with how.opened(wrong_on_request, Attention()) as runner:
        assert runner.convention.compiles  # this file has names of JAX
        session = how.session(runner, Attention())
        session.take(Case("shapes", "compiled", arrays(40)))
        is_next_wrong.append(True)
        judged = session.take(Case("shapes", "not compiled", arrays(3)))
    assert judged is not None
    assert (judged.finding, session.distrusts_numpy) == ("values", False)


@pytest.mark.deep
@pytest.mark.parametrize("is_numpy_wrong", [False, True])
def test_the_smallest_wrong_input_is_wrong_by_jax_itself(monkeypatch: pytest.MonkeyPatch, is_numpy_wrong: bool) -> None:
    """NumPy, which runs the smaller calls, has another exponential."""
    how = Options()
    with how.opened(lambda q, k, v: right(q, k, v) * (2 if len(q) > 8 else 1), Attention()) as runner:
        session = how.session(runner, Attention())
        judged = session.take(Case("shapes", "compiled", arrays(20)))
        assert judged is not None
        if is_numpy_wrong:
            rules = {**interpreting._RULES, "exp": lambda equation, x: np.exp2(x)}
            monkeypatch.setattr(interpreting, "_RULES", rules)
        smallest = faults._reduce_to_smallest_case(session, judged, lambda _: True)
    assert (smallest.finding, smallest.outcome.interpreted) == ("values", False)
    assert (len(smallest.case.inputs["q"]), session.distrusts_numpy) == (9, is_numpy_wrong)


@pytest.mark.deep
@pytest.mark.parametrize("is_numpy_wrong", [False, True])
def test_jax_confirms_the_first_wrong_call_of_a_group_alone(
    monkeypatch: pytest.MonkeyPatch, is_numpy_wrong: bool
) -> None:
    how = Options()
    with how.opened(lambda q, k, v: right(q, k, v) * (2 if len(q) > 8 else 1), Attention()) as runner:
        session = how.session(runner, Attention())
        for n in (40, 9):
            session.take(Case("shapes", "wrong by JAX", arrays(n)))
        if is_numpy_wrong:
            rules = {**interpreting._RULES, "exp": lambda equation, x: np.exp2(x)}
            monkeypatch.setattr(interpreting, "_RULES", rules)
        last = session.take(Case("shapes", "by NumPy", arrays(7 if is_numpy_wrong else 11)))
        assert last is not None
        assert [r.outcome.interpreted for r in session.records] == [False, False, True]
        assert [r.finding for r in session.records] == ["values"] * 3
        # What a report shows is wrong by JAX itself.
        smallest = faults._reduce_to_smallest_case(session, last, lambda _: True)
        assert (smallest.finding, smallest.outcome.interpreted) == ("values", False)
        assert (len(smallest.case.inputs["q"]), session.distrusts_numpy) == (9, is_numpy_wrong)
        # Another kind of inputs has faults of its own.
        other = session.take(Case("scale", "of another group", arrays(12)))
        assert other is not None
        assert (other.finding, other.outcome.interpreted) == ("values", False)


def test_inputs_of_new_shapes_need_no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = importlib.import_module("jax._src.compiler")
    compiled: list[object] = []
    monkeypatch.setattr(compiler, "backend_compile_and_load", compiled.append)
    made = frameworks.arrays("jax").make(np.ones((3, 41, 5)), "float32")
    assert (made.dtype, made.shape, compiled) == (np.float32, (3, 41, 5), [])
    with pytest.raises(TypeError):
        jnp.asarray(np.ones((3, 43, 5), np.float32)) + 1


def test_bits_by_numpy_and_by_xla_are_no_repeated_call() -> None:
    how = Options()
    names = "a first call", "the first call again"
    with how.opened(right, Attention()) as runner:
        session = how.session(runner, Attention())
        cases = [Case(behaviour.GROUP, name, arrays(23), interpreted=name == names[0]) for name in names]
        session.records = [session.run_case(case) for case in cases]
        first, again = (record.outcome for record in session.records)
        assert (first.interpreted, again.interpreted) == (True, False)
        assert not same_bits(first, again)
        assert not any("different bits" in note for note in behaviour.notes(session))


def right_by_numpy_alone(q: Any, k: Any, v: Any) -> Any:
    s = scores(q, k)
    is_by_numpy = bool(interpreting._replaced)
    # Wrong for equal scores alone, which one kind of inputs has.
    return attended(s if is_by_numpy or np.ptp(np.asarray(s)) > 0 else s.at[..., 0].add(1.0), v)


class Untrusted:
    """A runner whose process may compute something else if NumPy runs its programs."""

    is_trusted = False

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def test_several_calls_of_each_kind_are_compiled_if_a_process_is_not_trusted() -> None:
    how = Options()
    equal = {**arrays(5), "q": np.zeros((5, 4), np.float32)}
    with how.opened(right_by_numpy_alone, Attention()) as runner:
        for judged_by, finding in ((runner, None), (Untrusted(runner), "values")):
            session = how.session(judged_by, Attention())
            for n in (40, 3, 4):
                session.take(Case("shapes", f"{n} keys", arrays(n)))
            judged = session.take(Case("ties", "equal scores", equal))
            assert judged is not None
            assert judged.finding == finding


def test_power_rests_on_compiled_calls_if_a_process_is_not_trusted() -> None:
    how = Options()
    with how.opened(right, Attention()) as runner:
        session = how.session(Untrusted(runner), Attention())
        cases = [Case("shapes", f"{n} keys", arrays(n)) for n in (6, 7, 8, 9)]
        chosen = [session.choose_way(case).interpreted for case in cases]
        assert chosen == [False, False, True, True]
        for case in (cases[1], replace(cases[3], interpreted=True)):
            session.records.append(session.run_case(case))
        assert [record.outcome.interpreted for record in session.records] == [False, True]
        assert len(session.tried) == 1
        # The largest call is one of NumPy's, too.
        assert find_largest_judged_sizes(session).floats["n_k"] == 7


def with_an_odd_key_lost(q: Any, k: Any, v: Any) -> Any:
    s, n = scores(q, k), k.shape[-2]
    return attended(s.at[..., -1].set(-jnp.inf) if n > 256 and n % 2 else s, v)


def with_another_scale_of_wide_rows(q: Any, k: Any, v: Any) -> Any:
    return attended(scores(q, k) * (1.02 if q.shape[-1] > 128 else 1.0), v)


def with_another_scale_of_many_queries(q: Any, k: Any, v: Any) -> Any:
    return attended(scores(q, k) * (1.03 if q.shape[-2] > 512 else 1.0), v)


def test_edits_are_tried_without_compiling() -> None:
    """NumPy runs one attempt, and gives what XLA gives; where it was wrong before, edits are compiled."""
    how, case = Options(), Case("shapes", "normal numbers", arrays(7))
    with how.opened(streamed, Attention()) as runner:
        session = how.session(runner, Attention())
        with interpreting.interpreting() as ran:
            (by_numpy,) = runner.attempt(case.inputs, session.way_without_compiling(case))
        (by_xla,) = runner.attempt(case.inputs, "contiguous")
        assert session.way_without_compiling(case) == "interpreted"
        assert session.way_without_compiling(replace(case, memory="strided")) == "strided"
        session.distrusts_numpy = True
        assert session.way_without_compiling(case) == "contiguous"
    assert not ran  # the attempt has a list of its own
    assert by_numpy is not None
    assert by_xla is not None
    assert np.allclose(by_numpy, by_xla, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(by_numpy, np.zeros_like(by_numpy))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "function", [with_an_odd_key_lost, with_another_scale_of_wide_rows, with_another_scale_of_many_queries]
)
@pytest.mark.parametrize("jitted", [False, True])
def test_mistakes_that_depend_on_sizes_are_found(function: Callable[..., Any], jitted: bool) -> None:
    assert convicts(jax.jit(function) if jitted else function, Attention())


@pytest.fixture
def of_jax_0_7_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let JAX's function return three results, as in 0.7.0."""
    module = jax._src.pjit
    compile_of_now, run_of_now = module._pjit_call_impl_python, module._run_python_pjit

    def compiled(*args: Any, **options: Any) -> Any:
        return compile_of_now(*args, **options)[:3]

    def run(p: Any, args_flat: Any, fun: Any, args: Any, kwargs: Any) -> Any:
        if not jax._src.core.trace_state_clean():
            return run_of_now(p, args_flat, fun, args, kwargs)
        out_flat, executable, profiler = module._pjit_call_impl_python(*args_flat, **p.params)
        outputs = jax.tree_util.tree_unflatten(p.out_tree, out_flat)
        return outputs, out_flat, p.out_tree, args_flat, p.params["jaxpr"], executable, profiler, []

    monkeypatch.setattr(module, "_pjit_call_impl_python", compiled)
    monkeypatch.setattr(module, "_run_python_pjit", run)


@pytest.mark.usefixtures("of_jax_0_7_0")
def test_with_other_versions_of_jax_everything_is_compiled() -> None:
    with interpreting.interpreting() as ran:
        result = jax.jit(lambda x: x * 2)(np.ones(11, np.float32))
    assert not ran
    assert (np.asarray(result) == 2).all()


@pytest.mark.parametrize(
    ("options", "debugged"), [({"compiler_options": {"xla_cpu_enable_fast_math": False}}, False), ({}, True)]
)
def test_what_jax_or_xla_does_otherwise_on_request_is_compiled(options: dict[str, Any], debugged: bool) -> None:
    logarithm = jax.jit(lambda x: jnp.log(x), **options)
    with interpreting.interpreting() as ran:
        logarithm(np.ones(12, np.float32))
        n = len(ran)
        with jax.debug_nans(debugged):
            logarithm(np.ones(13, np.float32))
    assert (n, len(ran)) == (int(debugged), int(debugged))


def test_long_loops_are_compiled() -> None:
    @partial(jax.jit, static_argnums=1)
    def step_often(x: Any, times: int) -> Any:
        return jax.lax.fori_loop(0, times, lambda _, y: y * 1.5 - y / 2, x)

    with interpreting.interpreting() as ran:
        step_often(np.ones(14, np.float32), 100)
        assert len(ran) == 1
        step_often(np.ones(14, np.float32), 10**6)
    assert len(ran) == 1


def test_only_the_thread_that_interprets_is_affected() -> None:
    compiled = jax._src.pjit._pjit_call_impl_python
    with ThreadPoolExecutor(1) as pool:
        first = interpreting.interpreting()
        ran = first.__enter__()
        with interpreting.interpreting() as second:
            pool.submit(lambda: jnp.sqrt(np.ones(15, np.float32))).result()
            assert (ran, second) == ([], [])
            # The contexts of two threads may end in any order.
            first.__exit__(None, None, None)
        assert jax._src.pjit._pjit_call_impl_python is compiled
    with pytest.raises(KeyError), interpreting.interpreting():
        raise KeyError
    assert jax._src.pjit._pjit_call_impl_python is compiled


INDEX = np.array([2, 0, 1], np.int32)
INDEXED: tuple[Callable[[Any], Any], ...] = (
    lambda x: x[INDEX],
    lambda x: x[:, INDEX, 1],
    lambda x: jnp.take(x, INDEX, axis=2),
    lambda x: x.at[1].set(2.0),
    lambda x: x.at[0, 1, 2].set(7.0),
    lambda x: x.at[:, 1:3].add(x[:, :2]),
    lambda x: x.at[INDEX, 1].add(3.0),
    lambda x: x.at[..., ::2].set(0.0),
    lambda x: (x * 9).astype(int) // -4 + (x * 9).astype(int) % 4,
    lambda x: x // 0.3 + x % -0.3,
    lambda x: jax.lax.round(x * 9, jax.lax.RoundingMethod.AWAY_FROM_ZERO),
    lambda x: jnp.argmax(x, -1) - jnp.argmin(x, 0)[:3, :4],
    lambda x: jnp.stack((x, -x), -1) + jnp.tile(x, (1, 1, 2)).reshape(3, 4, 5, 2),
    lambda x: jnp.prod(x, 1) + jnp.cumprod(x, 1)[:, 2],
    lambda x: jnp.bitwise_or.reduce((x * 9).astype(int), axis=1),
    lambda x: jnp.bitwise_and.reduce((x * 9).astype(int), axis=1) + jnp.any(x > 1, 1) + jnp.all(x > 0, 1),
)


@pytest.mark.parametrize("function", INDEXED)
def test_indices_and_quotients_are_those_of_jax(function: Callable[[Any], Any]) -> None:
    x = np.random.default_rng(2).normal(size=(3, 4, 5)).astype(np.float32)
    program, expected = jax.make_jaxpr(function)(x), np.asarray(function(jnp.asarray(x)))
    (got,) = interpreting.evaluate(program, [x])
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert np.allclose(got, expected, rtol=1e-5, atol=1e-6)


OUTSIDE: tuple[Callable[[Any], Any], ...] = (
    lambda x: x[jnp.array([7])],
    lambda x: x.at[jnp.array([7])].set(1.0),
    lambda x: x.at[jnp.array([1, 1])].add(1.0),
    lambda x: (x * 9).astype(int) // 0,
)


@pytest.mark.parametrize("function", OUTSIDE)
def test_indices_outside_and_division_by_zero_are_left_to_xla(function: Callable[[Any], Any]) -> None:
    x = np.ones((3, 4), np.float32)
    program = jax.make_jaxpr(function)(x)
    with pytest.raises(interpreting.NotInterpreted):
        interpreting.evaluate(program, [x])
