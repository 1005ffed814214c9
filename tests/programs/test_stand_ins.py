"""Stand-ins for arrays of JAX: what they compute, what they leave to JAX, and searches for edits with and without."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.bounds.called_target import Argument, Convention
from symattn.programs import stand_ins
from symattn.programs.calls import Target
from symattn.programs.loading import load
from symattn.programs.repairing.source import EndlessLoop, Sources
from symattn.programs.repairing.stand_in_screening import Screening
from symattn.programs.repairing.trials import JudgedSample, Samples, Trials, _with_whole_tracebacks
from symattn.programs.stand_ins import NotStoodIn, StandIn, StoodIn, stand_in_of
from symattn.programs.verifying import Options, verified

jax = pytest.importorskip("jax")
jnp = jax.numpy
lax = jax.lax
pytestmark = pytest.mark.jax


def streamed(q: Any, k: Any, v: Any) -> Any:
    def add(state: Any, key: Any) -> Any:
        top, total, out = state
        s = q @ key[0] * q.shape[-1] ** -0.5
        new = jnp.maximum(top, s)
        shrink, p = jnp.exp(top - new), jnp.exp(s - new)
        return (new, total * shrink + p, out * shrink[:, None] + p[:, None] * key[1]), None

    start = jnp.full(len(q), -jnp.inf), jnp.zeros(len(q)), jnp.zeros((len(q), v.shape[-1]))
    (_, total, out), _ = lax.scan(add, start, (k, v))
    return out / total[:, None]


def masked(q: Any, k: Any, v: Any) -> Any:
    s = jnp.einsum("qd,kd->qk", q, k) / jnp.sqrt(q.shape[-1])
    s = jnp.where(jnp.tril(jnp.ones(s.shape, bool)), s, jnp.finfo(s.dtype).min)
    return jax.nn.softmax(s, axis=-1).astype(v.dtype) @ v


@jax.custom_vjp
def weighed(q: Any, k: Any) -> Any:
    return forward(q, k)[0]


def forward(q: Any, k: Any) -> Any:
    return jnp.tanh(q) * k, (q, k)


def pull(saved: Any, gradient: Any) -> Any:
    q, k = saved
    return gradient * k * (1 - jnp.tanh(q) ** 2), gradient * jnp.tanh(q)


weighed.defvjp(forward, pull)


def gradients(q: Any, k: Any, v: Any) -> Any:
    out, transpose = jax.vjp(weighed, q, k)
    dq, dk = transpose(v)
    return out + dq * 2 + dk


def repeated(q: Any, k: Any, v: Any) -> Any:
    rows = jax.vmap(lambda x, y: jnp.dot(x, y) + x, in_axes=(0, None))(q, k[0])
    total = lax.fori_loop(0, 3, lambda i, x: x + i * rows, v)
    _, total = lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * 0.5), (0, total))
    return lax.cond(jnp.sum(q) > 0, lambda x: x, lambda x: -x, total)


def stored(q: Any, k: Any, v: Any) -> Any:
    q = q.at[1].set(2.0).at[:, 1:3].add(k[:, :2])
    q = lax.dynamic_update_slice(q, v[:2], (len(q), 0))  # the start is clamped
    order = jnp.argsort(jnp.zeros(3)) if len(q) < 0 else jnp.array([2, 0, 1])
    return q[order] // 0.3 + jnp.take(v, jnp.array([1, 1, 0]), axis=0) % 2 + 7 // (jnp.arange(4) + 1)


def typed(q: Any, k: Any, v: Any) -> Any:
    zeros, number = jnp.zeros(q.shape, q.dtype), jnp.float32(q.shape[-1])
    is_single = q.dtype == jnp.float32
    return jnp.full(q.shape, 2.0, jnp.float32) * jnp.sqrt(number) + zeros + k.astype(jnp.int32) * is_single


def counted(q: Any, k: Any, v: Any) -> Any:
    return sum(range(int(jnp.sum(q > 0)) + 1)) * jnp.ones(2)


def inputs(n: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [rng.normal(size=(n, 4)).astype(np.float32) for _ in range(3)]


def stood_in(function: Callable[..., Any]) -> StoodIn:
    sources = Sources(function)
    return StoodIn(sources.rebuild(stand_in=stand_in_of), sources.file)


RUN = (streamed, masked, gradients, repeated, stored, typed, counted)


@pytest.mark.parametrize("function", RUN, ids=lambda f: f.__name__)
def test_stand_ins_compute_what_jax_says(function: Callable[..., Any]) -> None:
    given = inputs()
    expected = np.asarray(function(*map(jnp.asarray, given)))
    got = stood_in(function)(*map(StandIn, given))
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert np.allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_weak_types_are_those_of_jax() -> None:
    half, whole = np.ones(3, np.float32), np.ones(3, np.int32)

    def run(x: Any, n: Any) -> Any:
        weak = jnp.sum(jnp.asarray(2) * 3)
        return n * 2, n * 2.0, x * n, n + weak, weak / 2, x > True, -weak, x.astype(int) % 3

    expected = run(jnp.asarray(half), jnp.asarray(whole))
    got = stood_in(run).function(StandIn(half), StandIn(whole))
    types = [(x.dtype, x.is_weak) for x in got]
    assert types == [(x.dtype, x.weak_type) for x in expected]


def outside(q: Any, k: Any, v: Any) -> Any:
    return q[jnp.arange(9)]  # JAX clamps the index


def dropped(q: Any, k: Any, v: Any) -> Any:
    return q.at[jnp.arange(9)].set(k[0])  # JAX drops what lies outside


def drawn(q: Any, k: Any, v: Any) -> Any:
    return q + jax.random.normal(jax.random.key(3), q.shape)


def narrow(q: Any, k: Any, v: Any) -> Any:
    return q.astype(jnp.bfloat16) @ k.T.astype(jnp.bfloat16)


def chosen(q: Any, k: Any, v: Any) -> Any:
    return q[q > 0]  # another shape for other numbers


def by_numpy(q: Any, k: Any, v: Any) -> Any:
    return np.exp(q)


def known_too_early(q: Any, k: Any, v: Any) -> Any:
    return lax.fori_loop(0, 2, lambda i, x: x if x[0, 0] > 0 else -x, q)


def without_rows(q: Any, k: Any, v: Any) -> Any:
    try:
        return q[:0] @ k.T
    except ValueError:
        return q


LEFT = (outside, dropped, drawn, narrow, chosen, by_numpy, known_too_early, without_rows)


@pytest.mark.parametrize("function", LEFT, ids=lambda f: f.__name__)
def test_what_only_jax_can_say_is_left_to_it(function: Callable[..., Any]) -> None:
    standing = stood_in(function)
    with pytest.raises((NotStoodIn, TypeError)):
        standing(*map(StandIn, inputs()))
    assert standing.is_refused


def swallowed(q: Any, k: Any, v: Any) -> Any:
    try:
        return drawn(q, k, v)
    except BaseException:
        return q


def returned_at_last(q: Any, k: Any, v: Any) -> Any:
    result = q
    try:
        result = drawn(-q, k, v)
    finally:
        return result  # noqa: B012


HIDDEN = (swallowed, returned_at_last)


@pytest.mark.parametrize("function", HIDDEN, ids=lambda f: f.__name__)
def test_code_that_catches_everything_hides_no_refusal(function: Callable[..., Any]) -> None:
    standing = stood_in(function)
    standing(*map(StandIn, inputs()))
    assert standing.is_refused
    # A later call is judged by itself.
    standing.function = stood_in(masked).function
    standing(*map(StandIn, inputs()))
    assert not standing.is_refused


def unlike(q: Any, k: Any, v: Any) -> Any:
    return q + k[:-1]


def growing(q: Any, k: Any, v: Any) -> Any:
    return lax.fori_loop(0, 2, lambda i, x: jnp.concatenate((x, x)), q)


def unnamed(q: Any, k: Any, v: Any) -> Any:
    return q + missing  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("function", [unlike, growing, unnamed], ids=lambda f: f.__name__)
def test_errors_of_jax_are_believed(function: Callable[..., Any]) -> None:
    with pytest.raises((TypeError, ValueError, NameError)):
        function(*map(jnp.asarray, inputs()))
    standing = stood_in(function)
    with pytest.raises((TypeError, ValueError, NameError)):
        standing(*map(StandIn, inputs()))
    assert not standing.is_refused


def endless(q: Any, k: Any, v: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < len(q), lambda c: (c[0], c[1] + k), (0, q))[1]


@pytest.mark.parametrize(("function", "most"), [(endless, 500), (streamed, 20)], ids=["endless", "long"])
def test_a_call_of_more_operations_than_the_limit_is_taken_for_endless(function: Callable[..., Any], most: int) -> None:
    standing = stood_in(function)
    standing.most_operations = most
    with pytest.raises(EndlessLoop):
        standing(*map(StandIn, inputs()))
    # JAX would never leave such a loop, and is not asked.
    assert not standing.is_refused
    assert standing.operations == most + 1


def test_without_a_limit_a_loop_that_does_not_end_is_left_to_jax() -> None:
    standing = stood_in(endless)
    with pytest.raises(NotStoodIn):
        standing(*map(StandIn, inputs()))
    assert standing.is_refused


TOKENS = """
import jax

def attention(q, k, v):
    def add(i, out):
        row = jax.numpy.exp(jax.numpy.tanh(k[i] * 0.5) + 1) - jax.numpy.abs(v[i])
        return out + row * 0.25 + row * row * 0.125 - jax.numpy.maximum(row, 0) * jax.numpy.sqrt(row * row + 1) / 3 + i

    return jax.lax.fori_loop(0, {count}, add, q)
"""


def test_an_edit_that_brings_back_a_loop_over_tokens_is_not_taken_for_endless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, whole = tmp_path / "short.py", tmp_path / "whole.py"
    short.write_text(TOKENS.format(count=1))
    whole.write_text(TOKENS.format(count="len(k)"))
    function = load(f"{short}:attention").function
    how = Convention(tuple(Argument(name, name) for name in "qkv"), "jax", "float32", compiles=True)
    sources, edited = Sources(function), Sources(load(f"{whole}:attention").function)
    screening, given = Screening(Target(function, how), sources), inputs(130)
    sample = JudgedSample(dict(zip("qkv", given, strict=True)), "interpreted", (), (), True, 1.0)
    assert screening.is_apt(sample)
    monkeypatch.setattr(Sources, "at", lambda *_: "")
    monkeypatch.setattr(Sources, "edited", lambda *_: edited.rebuild(stand_in=stand_in_of))
    edit: Any = SimpleNamespace(place="", replacements=())
    outputs = screening.attempt((edit,), sample)
    assert outputs is not None
    assert outputs[0] is not None


def test_an_array_that_no_rule_reads_is_refused() -> None:
    for use in (np.asarray, str, "{}".format, hash):
        with pytest.raises((NotStoodIn, TypeError)):
            use(StandIn(np.ones(2, np.float32)))


PROGRAM = """
import jax
import jax.numpy as jnp


def attention(q, k, v):
    def add(state, key):
        top, total, out = state
        s = q @ key[0] * q.shape[-1] ** -0.5
        new = jnp.maximum(top, s)
        shrink, p = jnp.exp(top - new), jnp.exp(s - new)
        return (new, total * shrink + p, out + p[:, None] * key[1]), None

    start = jnp.full(len(q), -jnp.inf), jnp.zeros(len(q)), jnp.zeros((len(q), v.shape[-1]))
    (_, total, out), _ = jax.lax.scan(add, start, (k, v))
    return out / total[:, None]
"""


TILES = """
import jax
import jax.numpy as jnp

def attention(q, k, v):
    block = 4
    blocks = -(-len(k) // block)
    rows = ((0, blocks * block - len(k)), (0, 0))
    keys, values = jnp.pad(k, rows), jnp.pad(v, rows)

    def add(t, carry):
        top, total, out = carry
        s = q @ jax.lax.dynamic_slice_in_dim(keys, t * block, block).T / jnp.sqrt(q.shape[-1])
        s = jnp.where(t * block + jnp.arange(block) < len(k), s, -jnp.inf)
        new = jnp.maximum(top, s.max(-1))
        shrink, p = jnp.exp(top - new), jnp.exp(s - new[:, None])
        return new, total * shrink + p.sum(-1), out + p @ jax.lax.dynamic_slice_in_dim(values, t * block, block)

    start = jnp.full(len(q), -jnp.inf), jnp.zeros(len(q)), jnp.zeros((len(q), v.shape[-1]))
    _, total, out = jax.lax.fori_loop(0, blocks, add, start)
    return out / total[:, None]
"""


class Shifted(stand_ins._Traced):
    """Operations that JAX computes in another way."""

    def run(self, arrays: Any) -> Any:
        result = super().run(arrays)
        is_float = isinstance(result, StandIn) and result.dtype.kind == "f"
        return StandIn(result.numbers * np.float32(1.5), result.is_weak) if is_float else result


def first_edit(path: Path, framework: str | None = "jax") -> tuple[int, str, str, str]:
    file = path / "attn.py"
    file.write_text(PROGRAM)
    how = Options(framework=framework, repair=True, examples=8)
    first = verified(load(f"{file}:attention").function, Attention(), how).repairs[0]
    return first.line, first.old, first.new, first.path


@pytest.mark.deep
@pytest.mark.parametrize("way", ["stand-ins", "arrays of NumPy", "wrong stand-ins", "JAX"])
def test_a_search_gives_the_same_first_edit_with_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    decided: list[bool] = []
    attempt = Screening.attempt

    def counting(*args: Any) -> Any:
        result = attempt(*args)
        decided.append(result is not None)
        return result

    monkeypatch.setattr(Screening, "attempt", counting)
    if way == "JAX":
        monkeypatch.setattr(Screening, "is_apt", lambda *_: False)
    if way == "wrong stand-ins":
        monkeypatch.setattr(stand_ins, "_Traced", Shifted)
        # Operations that another test has traced are right.
        monkeypatch.setattr(stand_ins, "_traced", {})
    # Without a framework the function is called with arrays of NumPy, which it takes as well.
    framework = None if way == "arrays of NumPy" else "jax"
    assert first_edit(tmp_path, framework) == (12, "out", "out * shrink[:, None]", "same")
    if way in ("stand-ins", "arrays of NumPy"):
        assert sum(decided) > 0.9 * len(decided)
    else:
        # At most the code as it is, on the first calls.
        assert len(decided) < 20


@pytest.mark.deep
@pytest.mark.parametrize(
    ("is_right", "is_apt", "passes"),
    [(True, True, True), (True, False, True), (False, True, False), (False, False, None)],
)
def test_a_call_that_fails_is_believed_where_stand_ins_give_what_jax_gives(
    is_right: bool, is_apt: bool, passes: bool | None
) -> None:
    numbers, allowed = np.ones(2), np.full(2, 1e-6)
    first, other = (JudgedSample({"q": numbers}, "interpreted", (numbers,), (allowed,), True, 1.0) for _ in range(2))
    trials: Any = object.__new__(Trials)
    trials._samples = Samples((first,), (first, other), (), "float32")
    trials._screening = SimpleNamespace(
        is_apt=lambda sample: sample is first or is_apt, attempt=lambda *_: (numbers * (1 if is_right else 2),)
    )
    trials._begin_call = lambda sample: None
    assert trials._is_passed_by_stand_ins((), other) is passes
    # JAX alone tells what it does with other memory.
    assert trials._is_passed_by_stand_ins((), replace(other, memory="frozen")) is None


def test_jax_keeps_whole_tracebacks_while_edits_are_screened() -> None:
    before = jax.config.jax_traceback_filtering
    with _with_whole_tracebacks():
        assert jax.config.jax_traceback_filtering == "off"
    assert jax.config.jax_traceback_filtering == before


def test_an_edit_that_leaves_out_passes_of_a_loop_of_jax_takes_another_path(tmp_path: Path) -> None:
    """With one tile for all keys nothing is rescaled, which avoids the mistake; JAX itself calls each loop once."""
    file = tmp_path / "tiles.py"
    file.write_text(TILES)
    repairs = verified(load(f"{file}:attention").function, Attention(), Options(repair=True, examples=8)).repairs
    assert (repairs[0].line, repairs[0].path) == (17, "same")
    assert "out * shrink" in repairs[0].new


OPEN_LOOP = """
import jax
import jax.numpy as jnp

def attention(q, k, v):
    size = 5
    rows = ((0, size), (0, 0))
    keys, values = jnp.pad(k, rows), jnp.pad(v, rows)

    def goes_on(state):
        return state[0] < len(k)

    def step(state):
        at, top, total, out = state
        s = q @ jax.lax.dynamic_slice_in_dim(keys, at, size).T / q.shape[-1] ** 0.5
        s = jnp.where(at + jnp.arange(size) < len(k), s, -jnp.inf)
        new = jnp.maximum(top, s.max(-1))
        shrink, p = jnp.exp(top - new), jnp.exp(s - new[:, None])
        moved = out * shrink[:, None] + p @ jax.lax.dynamic_slice_in_dim(values, at, size)
        return at + size, new, total + p.sum(-1), moved

    start = jnp.full(len(q), -jnp.inf), jnp.zeros(len(q)), jnp.zeros((len(q), v.shape[-1]))
    _, _, total, out = jax.lax.while_loop(goes_on, step, (0, *start))
    return out / total[:, None]
"""


@pytest.mark.deep
def test_edits_by_which_a_loop_of_jax_does_not_end_do_not_end_the_search(tmp_path: Path) -> None:
    """Such as ``size // at`` for the step, a quotient by 0, which NumPy leaves to XLA."""
    file = tmp_path / "open.py"
    file.write_text(OPEN_LOOP)
    repairs = verified(load(f"{file}:attention").function, Attention(), Options(repair=True, examples=8)).repairs
    assert (repairs[0].line, repairs[0].old, repairs[0].new) == (20, "total", "total * shrink")
    assert repairs[0].path == "same"


@pytest.mark.parametrize("line", ["isinstance(q, jax.Array)", "q.__class__", "global count"])
def test_code_that_could_tell_stand_ins_apart_is_called_by_jax(tmp_path: Path, line: str) -> None:
    file = tmp_path / "attn.py"
    file.write_text(PROGRAM.replace("    start =", f"    {line}\n    start ="))
    function = load(f"{file}:attention").function
    other = tmp_path / "plain.py"
    other.write_text(PROGRAM)
    plain = load(f"{other}:attention").function
    how = Convention((), "jax", "float32", compiles=True)
    assert not Screening(Target(function, how), Sources(function))._can_be_stood_in
    assert Screening(Target(plain, how), Sources(plain))._can_be_stood_in
    of_numpy = Convention((), "numpy", "float32")
    assert not Screening(Target(plain, of_numpy), Sources(plain))._can_be_stood_in
