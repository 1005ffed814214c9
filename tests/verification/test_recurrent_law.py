"""The law of rounding of gated recurrences: right programs are within it, wrong ones and a false law are not."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrence import Recurrence
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.bounds.recurrent.recurrent_limits import exact_values, limits
from symattn.bounds.recurrent.replays import replay
from tests.verification.recurrent_programs import KINDS, TYPES, draw
from tests.verification.recurrent_shares import recurrence, right_programs, share, wrong_programs

Array = Any
HALF = Format("bfloat16")
U = float(HALF.u)
TABLE = [(kind, form) for kind in KINDS for form in TYPES]


@pytest.mark.parametrize(("kind", "form"), TABLE)
def test_right_programs_are_within_both_limits(kind: str, form: str) -> None:
    given = draw(kind, 100, 16, form)
    for program in right_programs(kind, form, given, 0.25):
        reached = share(recurrence(given, 0.25), program)
        assert reached.worst <= 1, program.words
        assert reached.sharp <= 0.6, program.words


def test_stores_off_by_all_that_a_format_allows_are_within_the_worst_case() -> None:
    # One token: β and the query are 1, and every store has either sign.
    signs = np.array(list(product((-1, 1), repeat=12))).T
    copied, right, read, inverse, first, factor, last, grown, query, keys, inner, kept = 1 + U * signs
    one = np.ones((1, 1))
    for residual, state, key, value in product((False, True), (0, 1, 4), (1, 2), (0, 1, 4)):
        if residual:
            u = inverse * (value - key * state * copied) * right * read * last
        else:
            u = (inverse * value * right * first - inverse * key * read * factor * state * copied) * last
        output = grown * state * copied + query * keys * key * inner * u
        end = state + kept * key * u
        of = Recurrence(one, key * one, value * one, None, one, state * one)
        how = RecurrentArithmetic(size=1, stored=HALF, residual=residual, system="general", factors=True)
        found, exact = limits(of, how), exact_values(of)
        assert np.abs(output - exact.output[0, 0]).max() <= found.worst[0, 0]
        assert np.abs(end - exact.state[0, 0]).max() <= found.worst_state[0, 0]


@pytest.mark.parametrize(("kind", "form"), [(k, f) for k, f in TABLE if KINDS[k][1] < 1])
def test_wrong_programs_are_beyond_the_sharp_limit(kind: str, form: str) -> None:
    if form == "float32":
        given = draw(kind, 150, 16, form)
        wrong = list(wrong_programs(kind, form, given, 0.25))
        assert [p.words for p in wrong if share(recurrence(given, 0.25), p).sharp <= 1] == []
        return
    given = draw(kind, 150, 16, form)
    small = {"one gate left out", "state read undecayed", "state in bfloat16", "decay after the update"}
    wrong = [p for p in wrong_programs(kind, form, given, 0.25) if p.words not in small]
    assert [p.words for p in wrong if share(recurrence(given, 0.25), p).sharp <= 1] == []


def test_the_exact_values_are_those_of_a_longer_format() -> None:
    given = draw("gated delta rule", 90, 8, "float32")
    q, k, v, g, beta, state = given.arrays(np.longdouble)
    outputs = []
    for t in range(len(q)):
        state = np.exp(g[t])[:, None] * state
        state = state + k[t][:, None] * (beta[t] * (v[t] - k[t] @ state))
        outputs.append(q[t] @ state)
    exact = exact_values(recurrence(given), 32)
    assert np.abs(exact.output - np.array(outputs)).max() < 1e-13
    assert np.abs(exact.state - state).max() < 1e-13


# -- an adversary ------------------------------------------------------------------------------------------------------
Store = Callable[[str, Array], Array]


def program_with_stores(of: Recurrence, size: int, store: Store) -> Any:
    """Compute by chunks in float64, each array that is stored passed through ``store`` under its own name."""
    state, outputs = of.state, []
    for lo in range(0, len(of.q), size):
        some, put = slice(lo, lo + size), lambda name, x, lo=lo: store(f"{name} {lo}", x)
        q, k, p, right = (a[some] for a in (of.q, of.k, of.erased, of.written))
        sums = np.cumsum(of.gates[some], axis=0)
        decay = np.exp(np.minimum(sums - sums.T, 0))
        inverse = put("T", np.linalg.inv(np.eye(len(q)) + np.tril(p @ k.T * decay, -1)))
        copy = put("copy", state)
        u = put("U", inverse @ put("right", right)) - put("W", inverse @ put("read", p * np.exp(sums))) @ copy
        u = put("u", u)
        result = put("q", q * np.exp(sums)) @ copy + put("N", np.tril(q @ k.T * decay)) @ u
        outputs.append(put("out", result))
        state = np.exp(sums[-1]) * state + put("K", k * np.exp(sums[-1:] - sums)).T @ u
    return SimpleNamespace(output=np.concatenate(outputs), state=state)


def adversarial_share(of: Recurrence, size: int, row: int, column: int) -> float:
    """Let every rounding go to where it moves one output most, and return the part of the worst case that this reaches.

    The direction of each is found by moving each stored number in turn.
    """
    exact = program_with_stores(of, size, lambda name, x: x)
    names: dict[str, tuple[int, ...]] = {}
    program_with_stores(of, size, lambda name, x: names.setdefault(name, x.shape) and x)
    signs = {}
    for name, shape in names.items():
        signs[name] = np.zeros(shape)
        for at in np.ndindex(*shape):
            moved = np.zeros(shape)
            moved[at] = 1e-6
            there = program_with_stores(of, size, lambda n, x, name=name, moved=moved: x + moved if n == name else x)
            signs[name][at] = np.sign(there.output[row, column] - exact.output[row, column])
    steered = program_with_stores(of, size, lambda name, x: x + U * np.abs(x) * signs[name])
    how = RecurrentArithmetic(stored=HALF, output=HALF, size=size)
    allowed = limits(of, how, [row]).worst[0, column]
    return float(abs(steered.output[row, column] - exact.output[row, column]) / allowed)


@pytest.mark.parametrize(
    ("kind", "seed"), [(k, s) for k in ("gated delta rule", "weak gates, β up to 2") for s in range(3)]
)
def test_an_adversary_stays_within_the_worst_case(kind: str, seed: int) -> None:
    given = draw(kind, 8, 3, "bfloat16", seed)
    reached = adversarial_share(recurrence(given), 4, 7, 1)
    assert 0.1 < reached <= 1


def one_read() -> Recurrence:
    """A token that writes nothing: the output is the sum of q and the decayed state, all of one sign."""
    one = np.ones((1, 32))
    gates = np.full((1, 1), -0.5)
    return Recurrence(one, 0 * one, np.zeros((1, 2)), gates, np.ones((1, 1)), np.ones((32, 2)))


def without_copy(made: Any) -> Any:
    return replace(made, copy=0 * made.copy, copy_norm=0 * made.copy_norm)


def halved(made: Any) -> Any:
    return replace(made, **{name: getattr(made, name) / 2 for name in made.__dataclass_fields__})


@pytest.mark.parametrize("false", [without_copy, halved])
def test_a_false_law_is_exceeded_by_a_legal_program(false: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.9 < adversarial_share(one_read(), 1, 0, 0) <= 1
    place = "symattn.bounds.recurrent.sources.largest_in_chunk"
    true = patch(place).get_original()[0]
    monkeypatch.setattr(place, lambda *given: false(true(*given)))
    assert adversarial_share(one_read(), 1, 0, 0) > 1.2


# -- where nothing is said ---------------------------------------------------------------------------------------------
def test_equal_tokens_without_gates_are_guarded() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (np.repeat(HALF.rounded(rng.standard_normal((1, 16))), 600, axis=0) for _ in range(3))
    of = Recurrence(q, k / 8, v, None, None, np.zeros((16, 16)))
    how = RecurrentArithmetic(stored=HALF, output=HALF)
    found, exact = limits(of, how, [599]), exact_values(of)
    assert found.sharp is not None
    assert np.abs(replay(of, how).output - exact.output)[599].max() > 0.3 * found.sharp.min()


def test_numbers_that_may_overflow_have_no_limit() -> None:
    of = one_read()
    large = replace(of, state=of.state * 4e4)
    how = RecurrentArithmetic(stored=Format("float16"), output=Format("float16"))
    assert np.isinf(limits(large, how).worst).all()
    assert np.isfinite(limits(of, how).worst).all()
    assert not np.isnan(limits(replace(of, state=of.state * 1e300), how).worst).any()
