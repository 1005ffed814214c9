"""RWKV-6: the state before a token is read, with a bonus for itself; right forms pass, wrong ones are named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Domain, InputError, LinearAttention, Verdict, verify
from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrence import Recurrence
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.bounds.recurrent.recurrent_limits import exact_values, limits
from symattn.bounds.recurrent.replays import replay
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.verification.reading_programs import by_chunks, by_tokens
from tests.verification.recurrent_programs import rounded

Array = Any
RWKV6 = LinearAttention.named("rwkv6")
STATES = replace(RWKV6, state="kv")
ARRAYS = ("q", "k", "v", "g", "bonus")
#: A few chunks of narrow heads.
SHORT = Domain(max_tokens=80, max_width=12)


def drawn(n: int, front: tuple[int, ...] = (2, 3), form: str = "float32", d: int = 4) -> dict[str, Array]:
    rng = np.random.default_rng(n)
    given = {name: rng.standard_normal((*front, n, size)) for name, size in (("q", d), ("k", d), ("v", 3))}
    given["bonus"] = rng.standard_normal((*front[-1:], d))
    given = {name: rounded(np.float32(a), form) for name, a in given.items()}
    return given | {"g": np.float32(-0.1 * rng.gamma(1.0, size=(*front, n, d)))}


def wide(given: dict[str, Array]) -> dict[str, Array]:
    return {name: np.float64(a) for name, a in given.items()}


# -- forms -------------------------------------------------------------------------------------------------------------
def test_all_forms_are_a_loop_in_any_layout() -> None:
    given = wide(drawn(9))
    given["initial_state"] = np.random.default_rng(0).standard_normal((2, 3, 4, 3))
    right, end = by_tokens(**given)
    outputs = STATES(**given)
    assert np.abs(outputs[0] - right).max() < 1e-13
    assert np.abs(outputs[1] - end).max() < 1e-13
    turned = {n: np.moveaxis(a, 1, 2) if n in "qkvg" else a for n, a in given.items()}
    for way in next(definitions_of(STATES, "bnhd")).ways:
        rows, state = way(**turned)
        assert np.abs(np.moveaxis(rows, 2, 1) - right).max() < 1e-13
        assert np.abs(state - end).max() < 1e-13


def test_what_has_no_meaning_is_refused() -> None:
    given = drawn(3)
    for bonus in (None, given["bonus"][:2], given["bonus"][0]):
        with pytest.raises(InputError, match=r"bonus \(h, d_k\)"):
            RWKV6(**{**given, "bonus": bonus})
    with pytest.raises(InputError, match="layout='bhnd'"):
        next(definitions_of(RWKV6, "bnd"))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"normalised": True}, "the state before a token"),
        ({"causal": False, "gate": None, "bonus": False}, "the state before a token"),
        ({"delta": True}, "reads='before', delta=False and step=False"),
        ({"reads": "after"}, "reads='before', delta=False and step=False"),
    ]
    for fields, words in refused:
        with pytest.raises(InputError, match=words):
            replace(RWKV6, **fields)


# -- the law -----------------------------------------------------------------------------------------------------------
def shares(found: Any, output: Array, state: Array, of: Recurrence) -> tuple[float, float]:
    """The largest errors in parts of the worst case and of the sharp limit."""
    exact = exact_values(of)
    errors = np.abs(np.float64(output) - exact.output), np.abs(np.float64(state) - exact.state)
    pairs = ((found.worst, found.worst_state), (found.sharp, found.sharp_state))
    worst, sharp = (max(float((e / np.asarray(a)).max()) for e, a in zip(errors, pair, strict=True)) for pair in pairs)
    return worst, sharp


def recurrence(given: dict[str, Array], state: Array, **fields: Any) -> Recurrence:
    q, k, v, g, bonus, start = (np.asarray(a, np.float64) for a in (*map(given.get, ARRAYS), state))
    of = Recurrence(q, k, v, g, None, start, reads_before=True, bonus=bonus)
    return replace(of, **fields)


@pytest.mark.parametrize("form", ["float32", "bfloat16", "float16"])
def test_right_programs_are_within_both_limits_and_wrong_ones_beyond(form: str) -> None:
    given, state = drawn(100, (), form, 8), np.full((8, 3), 0.5, np.float32)
    # Gates of some tokens that leave next to nothing, so that R = G − g cancels.
    given["g"][::17] *= 100
    of, out = recurrence(given, state), Format(form)
    how = RecurrentArithmetic(stored=None if form == "float32" else out, output=out, size=16)
    one_by_one = replace(how, order="tokens", stored=None)
    runs = [
        (one_by_one, by_tokens(**given, initial_state=state)),
        (how, by_chunks(**given, initial_state=state, split=False, stored=form)),
    ]
    for arithmetic in (how, one_by_one):
        again = replay(of, arithmetic)
        runs.append((arithmetic, (again.output, again.state)))
    for way, (output, end) in runs:
        worst, sharp = shares(limits(of, way), rounded(np.float32(output), form), end, of)
        assert 0 < worst < 1
        assert 0 < sharp < 0.5
    for wrong in ("no bonus", "read after", "decayed before it is read"):
        output, end = by_tokens(**given, initial_state=state, wrong=wrong)
        for way in (how, one_by_one):
            assert min(shares(limits(of, way), rounded(output, form), end, of)) > 3


def test_what_a_bonus_multiplies_may_underflow_as_it_is_stored() -> None:
    size, form = 64, Format("float16")
    small, keys, value = np.full((1, size), 2.0**-13), np.full((1, size), 64.0), np.ones((1, 1))
    of = Recurrence(small, keys, value, None, None, np.zeros((size, 1)), reads_before=True, bonus=small[0])
    # Each q b is 2⁻²⁶, which float16 stores as 0.
    assert not form.cast(small * small).any()
    lost = float(exact_values(of).output[0, 0])
    how = RecurrentArithmetic(stored=form, output=form)
    assert lost == 2.0**-14
    assert lost < limits(of, how).worst[0, 0] < 4 * lost
    # Where b is not small, nothing is lost.
    large = replace(of, q=1024 * small, bonus=1024 * small[0])
    assert limits(large, how).worst[0, 0] < 0.01 * float(exact_values(large).output[0, 0])


def test_sharp_limits_count_what_a_bonus_multiplies_and_underflows() -> None:
    form, rng = Format("float16"), np.random.default_rng(0)

    def stored(x: Array) -> Array:
        return np.float64(form.cast(x))

    q, bonus, k = (stored(size * rng.standard_normal((1, 64))) for size in (2.0**-13, 2.0**-13, 64))
    of = Recurrence(q, k, np.ones((1, 1)), None, None, np.zeros((64, 1)), reads_before=True, bonus=bonus[0])
    off = abs(float((stored(q * bonus) * k).sum()) - float(exact_values(of).output[0, 0]))
    sharp = limits(of, RecurrentArithmetic(stored=form)).sharp
    assert sharp is not None
    assert sharp[0, 0] / 200 < off < sharp[0, 0]


def test_the_delta_rule_may_be_read_before_too() -> None:
    given, state = drawn(50, (), d=8), np.zeros((8, 3), np.float32)
    k = given["k"] / np.linalg.norm(given["k"], axis=-1, keepdims=True)
    beta: Array = np.random.default_rng(0).random((50, 1)).astype(np.float32)
    rows, after = [], []
    s: Array = state
    for t in range(50):
        rows.append(given["q"][t] @ s)
        s = np.exp(given["g"][t])[:, None] * s
        s = s + np.outer(k[t], beta[t] * (given["v"][t] - k[t] @ s))
        after.append(given["q"][t] @ s)
    of = recurrence({**given, "k": k}, state, beta=np.float64(beta), bonus=None)
    for order in ("tokens", "chunks"):
        found = limits(of, RecurrentArithmetic(order=order, size=16))
        assert max(shares(found, np.array(rows), s, of)) < 0.5
        assert min(shares(found, np.array(after), s, of)) > 100
    spec = LinearAttention(feature="identity", normalised=False, gate="feature", delta=True, reads="before")
    arrays = {n: np.float64(a) for n, a in given.items() if n != "bonus"}
    assert np.abs(spec(**{**arrays, "k": k}, beta=beta[:, 0]) - rows).max() < 1e-5


def test_closeness_judges_sequences_and_final_states() -> None:
    given = drawn(90, (3,), d=8)
    q, k, v, g, bonus = (given[name] for name in ARRAYS)
    parts = []
    for lo, hi in ((0, 33), (33, 90)):
        a, b, c, gates = (x[..., lo:hi, :] for x in (q, k, v, g))
        parts.append(by_chunks(a, b, c, gates, bonus))
    output, states = np.concatenate([x[0] for x in parts], -2), np.stack([x[1] for x in parts])
    starts = [0, 33, 90]
    assert_close_to_exact(output, q, k, v, STATES, g=g, bonus=bonus, cu_seqlens=starts, final_state=states)
    late = by_tokens(q, k, v, g, bonus, wrong="read after")[0]
    with pytest.raises(AttentionFault, match="beyond what any implementation"):
        assert_close_to_exact(late, q, k, v, RWKV6, g=g, bonus=bonus)
    with pytest.raises(InputError, match=r"bonus has the shape \(1, 8\), expected \(3, 8\)"):
        assert_close_to_exact(output, q, k, v, RWKV6, g=g, bonus=bonus[:1])
    with pytest.raises(InputError, match="reads='before' and bonus=True"):
        assert_close_to_exact(output, q, k, v, replace(RWKV6, bonus=False), g=g, bonus=bonus)


# -- verify ------------------------------------------------------------------------------------------------------------
def outputs_of(run: Callable[..., Any], **how: Any) -> Callable[..., Array]:
    def function(q: Array, k: Array, v: Array, g: Array, u: Array) -> Array:
        return run(q, k, v, g, u, **how)[0]

    return function


def chunks_of_32(q: Array, k: Array, v: Array, g: Array, bonus: Array, initial_state: Array) -> tuple[Array, Array]:
    return by_chunks(q, k, v, g, bonus, initial_state, size=32, split=False)


@pytest.mark.deep
@pytest.mark.parametrize(("program", "spec"), [(outputs_of(by_tokens), RWKV6), (chunks_of_32, STATES)])
def test_right_programs_are_no_fault(program: Callable[..., Any], spec: LinearAttention) -> None:
    how = Options(verdict_alone=True, layout="bhnd", domain=SHORT, examples=10)
    assert verified(program, spec, how).verdict is Verdict.NO_FAULT


WRONG = [
    (outputs_of(by_tokens, wrong="no bonus"), "the bonus is left out: a token does not read itself"),
    (outputs_of(by_tokens, wrong="read after"), "the state is read after a token is added, not before"),
    (outputs_of(by_tokens, wrong="decayed before it is read"), "by a token's own gate before the token reads it"),
    (outputs_of(by_tokens, wrong="e^u"), "the bonus is e^u, not u"),
    (outputs_of(by_chunks, wrong="state lost"), "the state is not carried over from one chunk of 16"),
    (lambda q, k, v, g, u: by_tokens(q, k, v, g, np.roll(u, -1, 0))[0], "each head has the bonus of the next one"),
]


@pytest.mark.deep
@pytest.mark.parametrize(("program", "cause"), WRONG)
def test_wrong_programs_are_named(program: Callable[..., Any], cause: str) -> None:
    result = verify(program, RWKV6, layout="bhnd", domain=SHORT, examples=10)
    assert cause in " ".join(str(result).split())
