"""One gate a head, of all its tokens (RetNet, lightning attention): right programs pass, wrong decays are named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import InputError, LinearAttention, Precision, Verdict, verify
from symattn.bounds.recurrent.recurrence import Recurrence
from symattn.bounds.recurrent.recurrent_arithmetic import of_precision
from symattn.bounds.recurrent.recurrent_limits import exact_values, limits
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from symattn.testing import AttentionFault, assert_close_to_exact

Array = Any
RETNET = LinearAttention.named("retnet")
LIGHTNING = LinearAttention.named("lightning")
STATES = replace(LIGHTNING, state="kv")


def per_head(g: Array) -> Array:
    return g[:, None, None]


def by_tokens(q: Array, k: Array, v: Array, g: Array, initial_state: Array | None = None) -> tuple[Array, Array]:
    """Token by token; q, k, v (…, h, n, d), gates (h,), the state (…, h, d_k, d_v)."""
    empty = 0 * (k[..., 0, :, None] * v[..., 0, None, :])
    state, rows = empty if initial_state is None else empty + initial_state, []
    for t in range(k.shape[-2]):
        state = state * np.exp(per_head(g)) + k[..., t, :, None] * v[..., t, None, :]
        rows.append((q[..., t, None, :] @ state)[..., 0, :])
    return np.stack(rows, axis=-2), state


def scaled(q: Array) -> Array:
    return q / np.sqrt(q.dtype.type(q.shape[-1]))


def differences(n: int, like: Array) -> Array:
    """i − j for earlier tokens j, 0 for later ones."""
    return np.maximum(np.arange(n)[:, None] - np.arange(n), 0).astype(like.dtype)


def tokens(q: Array, k: Array, v: Array, g: Array) -> Array:
    return by_tokens(scaled(q), k, v, g)[0]


def pairs(q: Array, k: Array, v: Array, g: Array) -> Array:
    """All pairs of tokens, with e^{(i − j) g}: equation 5 of RetNet."""
    decays = np.tril(np.exp(differences(q.shape[-2], q) * per_head(g)))
    return (scaled(q) @ k.swapaxes(-1, -2) * decays) @ v


def powers(q: Array, k: Array, v: Array, g: Array) -> Array:
    """The same with γ^(i − j), of a decay γ = e^g that is rounded first."""
    decays = np.tril(np.exp(per_head(g)) ** differences(q.shape[-2], q))
    return (scaled(q) @ k.swapaxes(-1, -2) * decays) @ v


def chunks(q: Array, k: Array, v: Array, g: Array, initial_state: Array, size: int = 32) -> tuple[Array, Array]:
    """Blocks of 32 tokens, with decays of queries, of keys and of the block, as in lightning attention."""
    state, rows, g = initial_state, [], per_head(g)
    for lo in range(0, q.shape[-2], size):
        a, b, c = (x[..., lo : lo + size, :] for x in (q, k, v))
        n = a.shape[-2]
        place = np.arange(1, n + 1, dtype=q.dtype)[:, None]
        decays = np.tril(np.exp(differences(n, q) * g))
        rows.append((a * np.exp(place * g)) @ state + (a @ b.swapaxes(-1, -2) * decays) @ c)
        state = state * np.exp(q.dtype.type(n) * g) + (b * np.exp((n - place) * g)).swapaxes(-1, -2) @ c
    return np.concatenate(rows, -2), state


def drawn(n: int = 9, heads: int = 3) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((2, heads, n, d)) for name, d in (("q", 4), ("k", 4), ("v", 3))}
    return {**given, "g": -rng.random(heads)}


# -- forms -------------------------------------------------------------------------------------------------------------
def test_all_forms_are_a_loop() -> None:
    given = drawn()
    right = by_tokens(**given)[0] / 2
    for way in (lambda **arrays: RETNET(**arrays), *next(definitions_of(RETNET, "bhnd")).ways):
        assert np.abs(way(**given) - right).max() < 1e-14
    turned = {n: a if n == "g" else np.moveaxis(a, 1, 2) for n, a in given.items()}
    for way in next(definitions_of(RETNET, "bnhd")).ways:
        assert np.abs(np.moveaxis(way(**turned), 2, 1) - right).max() < 1e-14


def test_heads_of_values_that_share_a_key_have_gates_of_their_own() -> None:
    given = drawn(heads=4)
    shared = {**given, "q": given["q"][:, ::2], "k": given["k"][:, ::2]}
    repeated = {n: np.repeat(a, 2, axis=1) if n in "qk" else a for n, a in shared.items()}
    got = replace(LIGHTNING, values_per_key=2)(**shared)
    assert np.abs(got - by_tokens(**repeated)[0]).max() < 1e-14


@pytest.mark.parametrize("g", [np.zeros(2), np.zeros((3, 9)), np.zeros(1)])
def test_gates_of_other_heads_are_refused(g: Array) -> None:
    given = {**drawn(), "g": g}
    with pytest.raises(InputError, match="one gate a head"):
        RETNET(**given)
    small = {name: np.float32(a) for name, a in given.items()}
    with pytest.raises(InputError, match="one gate a head"):
        assert_close_to_exact(small["v"], *(small[n] for n in "qkv"), RETNET, g=small["g"])


def test_a_layout_without_heads_is_refused() -> None:
    with pytest.raises(InputError, match="layout='bhnd'"):
        next(definitions_of(RETNET, "bnd"))


# -- the law -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("program", [tokens, pairs, powers])
@pytest.mark.parametrize("gates", [(-(2.0**-12),) * 3, (-0.9, -0.02, -0.3)])
def test_right_outputs_are_close_and_one_undecayed_token_is_not(program: Any, gates: tuple[float, ...]) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (np.float32(rng.standard_normal((2, 3, 200, 8))) for _ in range(3))
    g = np.float32(gates)
    output = program(q, k, v, g)
    assert_close_to_exact(output, q, k, v, RETNET, g=g)
    with pytest.raises(AttentionFault):
        assert_close_to_exact(program(q, k, v, 2 * g), q, k, v, RETNET, g=g)


def test_the_law_allows_powers_of_a_rounded_decay() -> None:
    """γ = e^g that rounds to 1: states lose u/2 of what they have at each token, though g is next to 0."""
    n, g = 1024, -(2.0**-25)
    ones, first = np.ones((n, 1)), np.eye(n, 1)
    assert np.exp(np.float32(g)) == 1
    of = Recurrence(ones, ones, first, g * ones, None, np.zeros((1, 1)), constant=True)
    off = np.abs(1 - exact_values(of).output)
    in_chunks = next(iter(of_precision(Precision.of("float32"), n)))
    assert (off <= limits(of, in_chunks).worst).all()
    # Gates of tokens are rounded as sums, which powers of e^g are not.
    assert (off > limits(replace(of, constant=False), in_chunks).worst).any()


def test_final_states_are_judged_in_sequences() -> None:
    given = {name: np.float32(a) for name, a in drawn(100).items()}
    parts = [by_tokens(*(given[n][..., lo:hi, :] for n in "qkv"), given["g"]) for lo, hi in ((0, 30), (30, 100))]
    output = np.concatenate([rows for rows, _ in parts], axis=-2)
    states = np.stack([state for _, state in parts])
    more = {"g": given["g"], "cu_seqlens": [0, 30, 100]}
    rows = [given[n] for n in "qkv"]
    assert_close_to_exact(output, *rows, STATES, final_state=states, **more)
    with pytest.raises(AttentionFault, match="final_state"):
        assert_close_to_exact(output, *rows, STATES, final_state=states * np.float32(1.001), **more)


# -- verify ------------------------------------------------------------------------------------------------------------
def run_states(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
    return by_tokens(q, k, v, g, initial_state)


RIGHT = [(tokens, RETNET), (pairs, RETNET), (powers, RETNET), (run_states, STATES), (chunks, STATES)]


@pytest.mark.deep
@pytest.mark.parametrize(("program", "spec"), RIGHT)
def test_right_programs_are_no_fault(program: Callable[..., Any], spec: LinearAttention) -> None:
    how = Options(verdict_alone=True, dtype="float32", layout="bhnd", contract=None, examples=10)
    assert verified(program, spec, how).verdict is Verdict.NO_FAULT


WRONG: list[tuple[Callable[[Array], Array], str]] = [
    (lambda g: g[::-1], "heads have the gates in the opposite order"),
    (lambda g: np.roll(g, -1), "each head has the gate of the next one"),
    (lambda g: 0 * g + g[:1], "every head has the gate of the first"),
    (lambda g: 2 * g, "gates count twice: decays are squared"),
    (lambda g: 0 * g, "the gates are left out"),
    (lambda g: -g, "gates are taken with the other sign"),
]


@pytest.mark.deep
@pytest.mark.parametrize(("change", "cause"), WRONG)
def test_wrong_gates_are_named(change: Callable[[Array], Array], cause: str) -> None:
    def program(q: Array, k: Array, v: Array, g: Array) -> Array:
        return pairs(q, k, v, change(g))

    result = verify(program, RETNET, layout="bhnd", examples=10)
    assert cause in " ".join(str(result).split())


@pytest.mark.deep
def test_a_distance_too_large_by_one_is_named() -> None:
    def program(q: Array, k: Array, v: Array, g: Array) -> Array:
        return pairs(q, k, v, g) * np.exp(per_head(g))

    result = verify(program, RETNET, layout="bhnd", examples=10)
    assert "decays what the token itself adds, too" in " ".join(str(result).split())


@pytest.mark.deep
def test_a_block_that_does_not_decay_is_named() -> None:
    def program(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
        state, rows = initial_state, []
        for lo in range(0, q.shape[-2], 32):
            some = [x[..., lo : lo + 32, :] for x in (q, k, v)]
            right, end = by_tokens(*some, g, state)
            read = some[0] @ state
            decays = np.exp(per_head(g) * np.arange(1, some[0].shape[-2] + 1, dtype=q.dtype)[:, None])
            rows.append(right - decays * read + read)
            state = end
        return np.concatenate(rows, -2), state

    result = verify(program, STATES, layout="bhnd", examples=10)
    assert "does not decay within its chunk of 32" in " ".join(str(result).split())
