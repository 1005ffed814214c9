"""Tiles, caches and linear attention on the other kinds of array; enclosures run all that the others run."""

from collections.abc import Callable
from functools import partial
from typing import Any

import array_api_strict
import numpy as np
import pytest
import sympy

from symattn.arrays import kind
from symattn.arrays.ball import Ball, precision
from symattn.arrays.enclosure import Enclosure
from symattn.arrays.modular import modular
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear, masks
from symattn.attention.softmax import powers
from symattn.attention.spec import Attention
from symattn.attention.streaming.by_tiles import by_tiles, row_states, score_and_value_gradients
from symattn.attention.streaming.cache import Growing, Paged, Sliding, Static, append, attend, beside, held, prefill
from symattn.attention.streaming.states import PartialOutput, finish, lse, online, split_keys
from tests.arrays.enclosures import BITS, outside
from tests.arrays.residues import agree
from tests.arrays.users import RIGHT, Program
from tests.attention.definition import parts
from tests.attention.definitions import DEFINITIONS
from tests.attention.pieces import PAIRS
from tests.attention.streaming_tools import EXACT, drawn
from tests.attention.test_transformer import MODELS, ids, parameters

CAUSAL = Attention(scale=1, causal=True)
MASKED = Attention(scale=1, mask="boolean")
ROWS, KEYS = (0, 1, 3), (0, 2, 4)
HIDDEN = np.array([[0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)
QKV = {"q": (3, 2), "k": (4, 2), "v": (4, 2)}
SELF = {"q": (4, 2), "k": (4, 2), "v": (4, 2)}


def kept(q: Any, k: Any, v: Any) -> tuple[Any, PartialOutput]:
    """The scores, and the output and the log-sum-exps by tiles."""
    scores = CAUSAL.trace(q, k, v)["masked"]
    states = row_states(scores, v, ROWS, KEYS)
    parts = (partial(finish, fully_masked="zeros"), lse)
    return scores, PartialOutput(*[namespace_of(v).concat([f(x) for x in states], axis=-2) for f in parts])


def derivatives(q: Any, k: Any, v: Any, g: Any) -> Any:
    scores, saved = kept(q, k, v)
    return score_and_value_gradients(scores, v, saved, g, ROWS, KEYS)


def rows_of(x: Any, lo: int, hi: int) -> Any:
    return x[..., lo:hi, :]


def cached(start: Callable[..., Any], mask: Any, q: Any, k: Any, v: Any) -> Any:
    """Three tokens beside the cache, and one that is written after them."""
    (q0, q1), (k0, k1), (v0, v1) = [(rows_of(x, 0, 3), rows_of(x, 3, 4)) for x in (q, k, v)]
    cache = start(k, v)
    first = attend(MASKED, q0, beside(cache, k0, v0), mask)
    return first, attend(MASKED, q1, held(append(append(cache, k0, v0), k1, v1)), mask)


def plain(x: Any, values: Any) -> Any:
    """Whole numbers or truth values beside arrays of the kind of x."""
    values, xp = np.array(values), namespace_of(x)
    return xp.asarray(values, dtype=xp.bool if values.dtype == bool else xp.int64)


def paged(q: Any, k: Any, v: Any) -> Any:
    cache = Paged(k[:, None, :], v[:, None, :], plain(k, [[2, 0, 3, 1]]), plain(k, [0]))
    for lo, hi in ((0, 3), (3, 4)):
        cache = append(cache, rows_of(k, lo, hi)[None, :, :], rows_of(v, lo, hi)[None, :, :])
    return attend(MASKED, rows_of(q, 2, 4)[None, :, :], held(cache)), cache.k


def hidden_online(s: Any, v: Any) -> Any:
    return online(masks.forbid(s, plain(s, HIDDEN)), v, KEYS, "zeros")


FORMS: dict[str, tuple[Callable[..., Any], dict[str, tuple[int, ...]]]] = {
    "online": (hidden_online, {"s": (3, 4), "v": (4, 2)}),
    "split keys": (lambda s, v: split_keys(s, v, KEYS), {"s": (3, 4), "v": (4, 2)}),
    "tiles": (lambda q, k, v: kept(q, k, v)[1], QKV),
    "tiles, rows hidden": (lambda q, k, v: by_tiles(MASKED, ROWS, KEYS, q, k, v, mask=plain(q, HIDDEN)), QKV),
    "backward by tiles": (derivatives, QKV | {"g": (3, 2)}),
    "growing cache": (partial(cached, lambda k, v: Growing(rows_of(k, 0, 0), rows_of(v, 0, 0)), masks.causal), SELF),
    "static cache": (partial(cached, lambda k, v: Static(k, v, 0), masks.causal), SELF),
    "ring of slots": (
        partial(cached, lambda k, v: Sliding(rows_of(k, 0, 2), rows_of(v, 0, 2), 0), lambda at: masks.window(at, 2)),
        SELF,
    ),
    "pages": (paged, SELF),
    "prefill": (partial(prefill, Attention(scale=1, causal=True), bounds=(0, 1, 4)), SELF),
    "linear": (lambda q, k, v: linear.linear_attention(q * q + 1, k * k + 1, v), QKV),
    "linear, causal": (lambda q, k, v: linear.causal_linear_attention(q * q + 1, k * k + 1, v), SELF),
    "products, causal": (linear.causal_products, SELF),
    "gated": (linear.gated_products, SELF | {"g": (4, 1)}),
    "gated, tokens": (partial(linear.scan, linear.gated_step), {"state": (2, 2)} | SELF | {"g": (4, 1)}),
    "gated, chunks": (partial(linear.scan, linear.gated_chunk), {"state": (2, 2)} | SELF | {"g": (4, 2)}),
    "delta, tokens": (partial(linear.scan, linear.delta_token), {"state": (2, 2)} | SELF | {"b": (4, 1), "g": (4, 1)}),
    "delta, chunks": (partial(linear.scan, linear.delta_chunk), {"state": (2, 2)} | SELF | {"b": (4, 1), "g": (4, 2)}),
    "features": (linear.positive_random, {"x": (3, 2), "w": (4, 2)}),
    "exponentials": (powers, {"s": (3, 2)}),
}


def run(name: str, of: Any, whole: bool = True) -> Any:
    form, shapes = FORMS[name]
    given = {n: of.lift(np.floor(x) if whole else x) for n, x in drawn(71, **shapes).items()}
    if "tokens" in name or "chunks" in name:
        state = given.pop("state")
        return parts(form(state, range(5) if "tokens" in name else (0, 1, 4), *given.values()))
    return parts(form(**given))


@pytest.mark.parametrize("name", FORMS)
def test_residues_are_the_image_of_exact_numbers(name: str) -> None:
    got, wanted = run(name, modular(*PAIRS[3], seed=3)), run(name, EXACT)
    assert agree(got, wanted)
    assert not agree(got, [x + 1 for x in wanted])


@pytest.mark.parametrize("name", FORMS)
def test_balls_hold_the_exact_numbers(name: str) -> None:
    with precision(128):
        balls = run(name, kind("ball"), whole=False)
    for array, wanted in zip(balls, run(name, EXACT, whole=False), strict=True):
        hidden = EXACT.xp.isneginf(wanted)
        assert np.array_equal(hidden, kind("ball").xp.isneginf(array))
        for ball, x in zip(array.entries[~hidden], wanted.entries[~hidden], strict=True):
            assert ball.overlaps(x.arb(200))
            assert ball.rad() < 2.0**-90


@pytest.mark.parametrize("name", FORMS)
def test_sympy_has_the_same_numbers(name: str) -> None:
    for array, wanted in zip(run(name, kind("symbolic")), run(name, EXACT), strict=True):
        hidden = EXACT.xp.isneginf(wanted)
        for expression, x in zip(array.entries[~hidden], wanted.entries[~hidden], strict=True):
            assert abs(sympy.N(expression, 30) - sympy.Float(x.decimal(30), 30)) < sympy.Float("1e-25")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_format_stays_what_it_is(dtype: str, name: str) -> None:
    target = kind(dtype)
    for array, wanted in zip(run(name, target), run(name, EXACT), strict=True):
        plain = array if isinstance(array, np.ndarray) else array.numpy()
        assert plain.dtype == target.dtype
        nearest = np.vectorize(lambda x: x.to_float() if hasattr(x, "to_float") else -np.inf)(wanted.entries)
        assert np.array_equal(np.isfinite(nearest), np.isfinite(plain.astype(float)))


class Strict:
    """Arrays that offer what the standard names, and nothing else."""

    @staticmethod
    def lift(data: Any) -> Any:
        return array_api_strict.asarray(np.asarray(data, dtype=np.float64))


@pytest.mark.parametrize("name", FORMS)
def test_the_standard_is_enough(name: str) -> None:
    for got, wanted in zip(run(name, Strict), run(name, kind("float64")), strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted)


@pytest.mark.parametrize("name", ["online", "tiles, rows hidden"])
def test_hidden_rows_of_letters_are_zeros(name: str) -> None:
    symbolic, (form, shapes) = kind("symbolic"), FORMS[name]
    found = parts(form(**{n: symbolic.letters(n, *shape) for n, shape in shapes.items()}))[0]
    assert (found[2] == 0).all()
    assert not (found[:2] == 0).any()


DRAW = np.random.default_rng(3)
SMALL = [DRAW.integers(-6, 7, (4, 4)) / 4 for _ in range(3)]


def encloses(got: Any, wanted: Any, wide: float = 2.0**-30) -> None:
    """No interval misses the value, none says nothing, none is wide. Norms of a few close numbers widen them."""
    found = outside(got, wanted)
    assert found.outside == found.open == 0
    assert found.compared > 0
    assert all((x.rad <= wide).all() for x in (got if isinstance(got, list) else [got]))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definitions(name: str) -> None:
    with precision(BITS):
        encloses(DEFINITIONS[name].run(Enclosure.literal), DEFINITIONS[name].run(Ball.literal))


@pytest.mark.parametrize("name", FORMS)
def test_tiles_caches_and_recurrences(name: str) -> None:
    with precision(BITS):
        encloses(run(name, Enclosure, whole=False), run(name, Ball, whole=False))


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_programs_of_users(program: Program) -> None:
    with precision(BITS):
        encloses(program(*map(Enclosure.lift, SMALL)), program(*map(Ball.lift, SMALL)))


@pytest.mark.parametrize("name", MODELS)
def test_whole_models(name: str) -> None:
    model = MODELS[name]
    given = parameters(model)
    with precision(BITS):
        got, wanted = (model(**ids(model), **{n: _lifted(k, x) for n, x in given.items()}) for k in (Enclosure, Ball))
        encloses(got, wanted, 2.0**-10)


def _lifted(kind: Any, x: Any) -> Any:
    return x if np.asarray(x).dtype.kind in "bi" else kind.lift(x)
