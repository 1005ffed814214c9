"""States read before a token is added, with a bonus: all pairs of tokens, token by token and by chunks are one."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import streaming
from symattn.attention import linear
from tests.attention.definition import drawn, exactly, legal, proved

N, BOUNDS = 5, (0, 2, 4, 5)
PLAIN = drawn(71, q=(N, 2), k=(N, 2), v=(N, 3), state=(2, 3), bonus=(1, 2))
GATES = {"none": {}, "token": {"g": -abs(drawn(72, g=(N, 1))["g"])}, "feature": {"g": -abs(drawn(73, g=(N, 2))["g"])}}


def by_loops(q: Any, k: Any, v: Any, state: Any, bonus: Any, g: Any = None) -> Any:
    """The recurrence, number by number: a token reads S and u k v, and S decays afterwards."""
    xp, rows = q.__array_namespace__(), []
    s = [[state[f, c] for c in range(3)] for f in range(2)]
    for t in range(N):
        seen = [[s[f][c] + bonus[0, f] * k[t, f] * v[t, c] for c in range(3)] for f in range(2)]
        rows.append(xp.stack([q[t, 0] * seen[0][c] + q[t, 1] * seen[1][c] for c in range(3)]))
        for f in range(2):
            decay = 1 if g is None else xp.exp(g[t, f % g.shape[1]])
            s[f] = [decay * s[f][c] + k[t, f] * v[t, c] for c in range(3)]
    return xp.stack([xp.stack(row) for row in s]), xp.stack(rows)


def scanned(step: Any, bounds: Any, q: Any, k: Any, v: Any, state: Any, bonus: Any, g: Any = None) -> Any:
    return streaming.scan(partial(step, bonus=bonus), state, bounds, q, k, v, *([] if g is None else [g]))


STEPS = partial(scanned, streaming.step_read_before, range(N + 1))
CHUNKS = partial(scanned, streaming.chunk_read_before, BOUNDS)


@pytest.mark.parametrize("gates", GATES)
def test_every_form_is_the_recurrence(gates: str) -> None:
    given = PLAIN | GATES[gates]
    for form in (STEPS, CHUNKS, partial(scanned, streaming.chunk_read_before, (0, N))):
        assert exactly(form, by_loops, given)
    assert legal(CHUNKS, given)
    empty = given | {"state": 0 * given["state"]}
    pairs = lambda state, **x: streaming.products_read_before(**x)  # noqa: E731
    assert exactly(pairs, lambda **x: by_loops(**x)[1], empty)
    assert not exactly(pairs, lambda **x: by_loops(**x)[1], given)


def test_a_step_that_is_read_before_is_the_same_without_a_bonus() -> None:
    def alone(state: Any, q: Any, k: Any, v: Any, g: Any, bonus: Any) -> Any:
        return streaming.step_read_before(state, q, k, v, g)

    reading = lambda *x, bonus: linear.reading_before(streaming.gated_step)(*x)  # noqa: E731
    given = PLAIN | GATES["feature"]
    assert exactly(partial(scanned, reading, range(N + 1)), partial(scanned, alone, range(N + 1)), given)


FALSE: dict[str, Any] = {
    "no bonus": lambda bonus, **x: CHUNKS(bonus=0 * bonus, **x),
    "the state after": lambda bonus, **x: scanned(
        lambda *a, bonus: streaming.gated_step(*a), range(N + 1), bonus=bonus, **x
    ),
    "no decay": lambda g, **x: CHUNKS(g=0 * g, **x),
    "decayed before it is read": lambda q, g, **x: CHUNKS(q=q * g.__array_namespace__().exp(g), g=g, **x),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_wrong_form_is_refused(name: str) -> None:
    given = PLAIN | GATES["feature"]
    assert not exactly(FALSE[name], STEPS, given)
    assert not legal(FALSE[name], given, bounded_by=STEPS)


def test_chunks_of_three_tokens_for_all_sizes_of_keys_and_values() -> None:
    """Three tokens have every kind of term: the state, one and two tokens before, and the token itself."""
    n = "1+1+1"
    shapes = {"q": f"{n} f", "k": f"{n} f", "v": f"{n} w", "g": f"{n} f", "bonus": "1 f", "state": "f w"}

    def tokens(q: Any, k: Any, v: Any, g: Any, bonus: Any, state: Any, size: Any) -> Any:
        return streaming.scan(partial(streaming.step_read_before, bonus=bonus), state, range(4), q, k, v, g)

    def one(q: Any, k: Any, v: Any, g: Any, bonus: Any, state: Any, size: Any) -> Any:
        return streaming.chunk_read_before(state, q, k, v, g, bonus)

    assert proved(tokens, one, shapes)
    assert not proved(tokens, lambda bonus, **x: one(bonus=2 * bonus, **x), shapes)


def test_batches_and_heads() -> None:
    given = drawn(74, q=(2, 3, N, 2), k=(2, 3, N, 2), v=(2, 3, N, 3), state=(2, 3, 2, 3))
    bonus = drawn(75, bonus=(3, 1, 2))["bonus"]
    got = CHUNKS(**given, bonus=bonus)
    for place in np.ndindex(2, 3):
        wanted = by_loops(**{n: x[place] for n, x in given.items()}, bonus=bonus[place[1]])
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a[place], b, rtol=1e-10, atol=1e-10)
