"""Split keys and trees give what softmax over all keys gives, also where tiles or rows have no allowed key."""

from collections.abc import Callable
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import array_api_strict
import numpy as np
import pytest
import sympy

from symattn import Attention, by_tiles, functional, kind, kinds, streaming
from tests.arrays.kinds import BITS, outside
from tests.arrays.residues import agree
from tests.arrays.users import RIGHT, Program
from tests.attention.definition import EXACT, PAIRS, drawn, exactly, legal, parts, proved
from tests.attention.definitions import DEFINITIONS
from tests.attention.test_transformer import MODELS, ids, parameters
from tests.refusals import refuses

Ball = kind("ball")
Enclosure = kind("enclosure")

BOUNDS = (0, 2, 3, 7)
DATA = drawn(1, s=(3, 7), v=(7, 4))
# The first row sees nothing in the first tile, the second nothing but the first tile, the third nothing at all.
ALLOWED = np.array([[0, 0, 0, 1, 1, 0, 1], [1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]], dtype=bool)


def tiles(s: Any, v: Any, bounds: Any = BOUNDS) -> list[tuple[Any, Any]]:
    return [(s[..., lo:hi], v[..., lo:hi, :]) for lo, hi in pairwise(bounds)]


def by_states(join: Any, s: Any, v: Any) -> Any:
    return streaming.finish(join([streaming.tile_state(*tile) for tile in tiles(s, v)], streaming.merge), "zeros")


def by_partials(join: Any, s: Any, v: Any) -> Any:
    return tuple(join([streaming.partial_output(*tile) for tile in tiles(s, v)], streaming.merge_partial))


def in_order(items: Any, join: Any) -> Any:
    return reduce(join, items)


def backwards(items: Any, join: Any) -> Any:
    return reduce(join, items[::-1])


def one(s: Any, v: Any) -> Any:
    """Softmax over all keys at once, zeros where none is allowed."""
    return functional.softmax(s, fully_masked="zeros") @ v


def with_lse(s: Any, v: Any) -> Any:
    return one(s, v), functional.log_sum_exp(s)


FORMS = {
    "online": (lambda s, v: streaming.online(s, v, BOUNDS, "zeros"), one),
    "states in order": (partial(by_states, in_order), one),
    "states backwards": (partial(by_states, backwards), one),
    "states as a tree": (partial(by_states, streaming.tree), one),
    "outputs in order": (partial(by_partials, in_order), with_lse),
    "outputs as a tree": (partial(by_partials, streaming.tree), with_lse),
    "split keys": (lambda s, v: tuple(streaming.split_keys(s, v, BOUNDS)), with_lse),
    "one split": (lambda s, v: tuple(streaming.split_keys(s, v, (0, 7))), with_lse),
}
MASKS = {
    "none": lambda s: s,
    "causal": lambda s: functional.forbid(s, functional.causal(s)),
    "empty tiles and rows": lambda s: functional.forbid(s, ALLOWED),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", FORMS)
def test_every_order_of_merging_is_softmax(name: str, mask: str) -> None:
    form, definition = FORMS[name]
    masked = [lambda s, v, f=f: f(MASKS[mask](s), v) for f in (form, definition)]
    assert exactly(*masked, DATA)
    if mask == "empty tiles and rows":  # bounds take their time, and this has all that the others have
        assert legal(masked[0], DATA)


# -- what is wrong ---------------------------------------------------------------------------------------------------
def merged_wrongly(change: Any, s: Any, v: Any) -> Any:
    def join(a: streaming.SoftmaxState, b: streaming.SoftmaxState) -> streaming.SoftmaxState:
        return change(a, b, streaming.merge(a, b))

    return streaming.finish(reduce(join, [streaming.tile_state(*tile) for tile in tiles(s, v)]), "zeros")


def grown(a: streaming.SoftmaxState, m: streaming.SoftmaxState) -> Any:
    return m.maximum.__array_namespace__().exp(a.maximum - m.maximum)


FALSE = {
    "a is not rescaled": partial(
        merged_wrongly, lambda a, b, m: m._replace(accumulated=a.accumulated + b.accumulated * grown(b, m))
    ),
    "ℓ is not rescaled": partial(
        merged_wrongly, lambda a, b, m: m._replace(normaliser=a.normaliser + b.normaliser * grown(b, m))
    ),
    "the maximum of the last tile": partial(merged_wrongly, lambda a, b, m: m._replace(maximum=b.maximum)),
    "the last tile is left out": lambda s, v: streaming.online(s, v, BOUNDS[:-1]),
    "a tile begins one key late": lambda s, v: streaming.finish(
        streaming.merge(streaming.tile_state(s[:, :3], v[:3]), streaming.tile_state(s[:, 4:], v[4:]))
    ),
    "the mean of outputs": lambda s, v: sum(streaming.partial_output(*t).output for t in tiles(s, v)) / 3,
}


@pytest.mark.parametrize("name", FALSE)
def test_a_wrong_merge_is_refused(name: str) -> None:
    assert not exactly(FALSE[name], one, DATA)
    assert not legal(FALSE[name], DATA, bounded_by=FORMS["online"][0])


def test_without_tiles_there_is_nothing_to_merge() -> None:
    refuses(streaming.tree, [], streaming.merge, says="no tiles")


def test_merged_states_may_have_any_maximum() -> None:
    draw = np.random.default_rng(0)
    s, t, v, w = (draw.normal(size=x) for x in ((3, 2), (3, 4), (2, 5), (4, 5)))
    a, b = streaming.tile_state(s, v), streaming.tile_state(t, w)
    np.testing.assert_allclose(
        streaming.finish(streaming.merge(a, b, np.full((3, 1), -1.5))),
        streaming.finish(streaming.merge(a, b)),
        rtol=1e-13,
    )


def test_a_tree_merges_neighbours() -> None:
    def joined(number: int) -> str:
        words = [streaming.PartialOutput(str(i), None) for i in range(number)]
        return str(streaming.tree(words, lambda a, b: streaming.PartialOutput(f"({a.output}{b.output})", None)).output)

    assert [joined(n) for n in (1, 2, 3, 5)] == ["0", "(01)", "((01)2)", "(((01)(23))4)"]


# -- rows without keys -----------------------------------------------------------------------------------------------
def empty(rows: int, keys: int) -> Any:
    return EXACT.xp.full((rows, keys), -np.inf)


def test_the_state_of_no_allowed_key() -> None:
    v = EXACT.lift([[1, 2], [3, 4]])
    nothing = streaming.tile_state(empty(1, 2), v)
    assert all(x.tolist() == y for x, y in zip(nothing[1:], ([[0]], [[0, 0]]), strict=True))
    assert EXACT.xp.isneginf(nothing.maximum).all()
    assert EXACT.xp.isneginf(streaming.lse(nothing)).all()
    both = streaming.merge(nothing, nothing)
    assert EXACT.xp.isneginf(both.maximum).all()
    assert (both.normaliser == 0).all()
    assert (streaming.finish(both, "zeros") == 0).all()
    assert EXACT.xp.isnan(streaming.finish(both)).all()
    refuses(streaming.finish, both, "error", says="fully masked")


def test_partial_outputs_of_no_allowed_key() -> None:
    v = EXACT.lift([[1, 2], [3, 4]])
    nothing, some = streaming.partial_output(empty(1, 2), v), streaming.partial_output(EXACT.lift([[0, 3]]), v)
    for merged in (
        streaming.merge_partial(nothing, some),
        streaming.merge_partial(some, nothing),
        streaming.join_splits([nothing, some, nothing]),
    ):
        assert (merged.output == some.output).all()
        assert (merged.lse == some.lse).all()
    neither = streaming.join_splits([nothing, streaming.merge_partial(nothing, nothing)])
    assert (neither.output == 0).all()
    assert EXACT.xp.isneginf(neither.lse).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_empty_tile_beside_very_low_scores(dtype: str) -> None:
    """With 0 for the maximum of the empty tile, e^−1000 would underflow and the row be 0/0."""
    target = kind(dtype)
    s, v = target.lift([[0, 0, -1000, -1000]]), target.lift([[9], [9], [1], [3]])
    s = target.xp.where(np.array([False, False, True, True]), s, -np.inf)
    joined = streaming.split_keys(s, v, (0, 2, 4))
    assert (streaming.online(s, v, (0, 2, 4)) == 2).all()
    assert (joined.output == 2).all()
    assert (joined.lse < -900).all()
    assert target.xp.isfinite(joined.lse).all()
    zero = target.lift([[0]])
    with np.errstate(invalid="ignore"):
        underflown = streaming.merge(streaming.SoftmaxState(zero, zero, zero), streaming.tile_state(s[:, 2:], v[2:]))
        assert target.xp.isnan(streaming.finish(underflown)).all()


# -- all sizes -------------------------------------------------------------------------------------------------------
SHAPES = {"s": "n a+b+c", "v": "a+b+c e"}


def bounds(size: Any) -> tuple[Any, ...]:
    a, b, c = (size[x] for x in "abc")
    return 0, a, a + b, a + b + c


def plain(s: Any, v: Any, size: Any) -> Any:
    return functional.softmax(s) @ v


def test_for_all_sizes() -> None:
    """The state of three tiles, of any sizes, is that of all keys; outputs of three tiles are in the deep run."""
    assert proved(
        lambda s, v, size: by_letters(s, v, size, lambda t: streaming.tile_state(*t), streaming.merge)[1:],
        shifted,
        SHAPES,
    )


@pytest.mark.deep
def test_outputs_for_all_sizes() -> None:
    assert proved(lambda s, v, size: streaming.online(s, v, bounds(size)), plain, SHAPES)
    assert proved(
        lambda s, v, size: (
            by_letters(s, v, size, lambda t: streaming.partial_output(*t), streaming.merge_partial).output
        ),
        plain,
        SHAPES,
    )


def by_letters(s: Any, v: Any, size: Any, start: Any, join: Any) -> Any:
    return streaming.tree([start(t) for t in tiles(s, v, bounds(size))], join)


def shifted(s: Any, v: Any, size: Any) -> Any:
    """The state of all keys at once, with the maximum of the merged one."""
    m = by_letters(s, v, size, lambda t: streaming.tile_state(*t), streaming.merge).maximum
    return streaming.tile_state(s, v, m)[1:]


def test_a_wrong_tile_is_not_proved() -> None:
    def late(s: Any, v: Any, size: Any) -> Any:
        return streaming.online(s, v, bounds(size)[1:])

    assert not proved(late, plain, SHAPES)


# -- Tiles, caches and linear attention on the other kinds of array; enclosures run all that the others run ------------
CAUSAL = Attention(scale=1, causal=True)
MASKED = Attention(scale=1, mask="boolean")
ROWS, KEYS = (0, 1, 3), (0, 2, 4)
HIDDEN = np.array([[0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)
QKV = {"q": (3, 2), "k": (4, 2), "v": (4, 2)}
SELF = {"q": (4, 2), "k": (4, 2), "v": (4, 2)}


def kept(q: Any, k: Any, v: Any) -> tuple[Any, streaming.PartialOutput]:
    """The scores, and the output and the log-sum-exps by tiles."""
    scores = CAUSAL.trace(q, k, v)["masked"]
    states = streaming.row_states(scores, v, ROWS, KEYS)
    parts = (partial(streaming.finish, fully_masked="zeros"), streaming.lse)
    return scores, streaming.PartialOutput(
        *[v.__array_namespace__().concat([f(x) for x in states], axis=-2) for f in parts]
    )


def derivatives(q: Any, k: Any, v: Any, g: Any) -> Any:
    scores, saved = kept(q, k, v)
    return streaming.score_and_value_gradients(scores, v, saved, g, ROWS, KEYS)


def rows_of(x: Any, lo: int, hi: int) -> Any:
    return x[..., lo:hi, :]


def cached(start: Callable[..., Any], mask: Any, q: Any, k: Any, v: Any) -> Any:
    """Three tokens beside the cache, and one that is written after them."""
    (q0, q1), (k0, k1), (v0, v1) = [(rows_of(x, 0, 3), rows_of(x, 3, 4)) for x in (q, k, v)]
    cache = start(k, v)
    first = streaming.attend(MASKED, q0, streaming.beside(cache, k0, v0), mask)
    return first, streaming.attend(
        MASKED, q1, streaming.held(streaming.append(streaming.append(cache, k0, v0), k1, v1)), mask
    )


def plain_form(x: Any, values: Any) -> Any:
    """Whole numbers or truth values beside arrays of the kind of x."""
    values, xp = np.array(values), x.__array_namespace__()
    return xp.asarray(values, dtype=xp.bool if values.dtype == bool else xp.int64)


def paged(q: Any, k: Any, v: Any) -> Any:
    cache = streaming.Paged(k[:, None, :], v[:, None, :], plain_form(k, [[2, 0, 3, 1]]), plain_form(k, [0]))
    for lo, hi in ((0, 3), (3, 4)):
        cache = streaming.append(cache, rows_of(k, lo, hi)[None, :, :], rows_of(v, lo, hi)[None, :, :])
    return streaming.attend(MASKED, rows_of(q, 2, 4)[None, :, :], streaming.held(cache)), cache.k


def hidden_online(s: Any, v: Any) -> Any:
    return streaming.online(functional.forbid(s, plain_form(s, HIDDEN)), v, KEYS, "zeros")


FORMS_BY_KIND: dict[str, tuple[Callable[..., Any], dict[str, tuple[int, ...]]]] = {
    "online": (hidden_online, {"s": (3, 4), "v": (4, 2)}),
    "split keys": (lambda s, v: streaming.split_keys(s, v, KEYS), {"s": (3, 4), "v": (4, 2)}),
    "tiles": (lambda q, k, v: kept(q, k, v)[1], QKV),
    "tiles, rows hidden": (lambda q, k, v: by_tiles(MASKED, ROWS, KEYS, q, k, v, mask=plain_form(q, HIDDEN)), QKV),
    "backward by tiles": (derivatives, QKV | {"g": (3, 2)}),
    "growing cache": (
        partial(cached, lambda k, v: streaming.Growing(rows_of(k, 0, 0), rows_of(v, 0, 0)), functional.causal),
        SELF,
    ),
    "static cache": (partial(cached, lambda k, v: streaming.Static(k, v, 0), functional.causal), SELF),
    "ring of slots": (
        partial(
            cached,
            lambda k, v: streaming.Sliding(rows_of(k, 0, 2), rows_of(v, 0, 2), 0),
            lambda at: functional.window(at, 2),
        ),
        SELF,
    ),
    "pages": (paged, SELF),
    "prefill": (partial(streaming.prefill, Attention(scale=1, causal=True), bounds=(0, 1, 4)), SELF),
    "linear": (lambda q, k, v: streaming.linear_attention(q * q + 1, k * k + 1, v), QKV),
    "linear, causal": (lambda q, k, v: streaming.causal_linear_attention(q * q + 1, k * k + 1, v), SELF),
    "products, causal": (streaming.causal_products, SELF),
    "gated": (streaming.gated_products, SELF | {"g": (4, 1)}),
    "gated, tokens": (partial(streaming.scan, streaming.gated_step), {"state": (2, 2)} | SELF | {"g": (4, 1)}),
    "gated, chunks": (partial(streaming.scan, streaming.gated_chunk), {"state": (2, 2)} | SELF | {"g": (4, 2)}),
    "delta, tokens": (
        partial(streaming.scan, streaming.delta_token),
        {"state": (2, 2)} | SELF | {"b": (4, 1), "g": (4, 1)},
    ),
    "delta, chunks": (
        partial(streaming.scan, streaming.delta_chunk),
        {"state": (2, 2)} | SELF | {"b": (4, 1), "g": (4, 2)},
    ),
    "features": (streaming.positive_random, {"x": (3, 2), "w": (4, 2)}),
    "exponentials": (functional.powers, {"s": (3, 2)}),
}


def run(name: str, of: Any, whole: bool = True) -> Any:
    form, shapes = FORMS_BY_KIND[name]
    given = {n: of.lift(np.floor(x) if whole else x) for n, x in drawn(71, **shapes).items()}
    if "tokens" in name or "chunks" in name:
        state = given.pop("state")
        return parts(form(state, range(5) if "tokens" in name else (0, 1, 4), *given.values()))
    return parts(form(**given))


@pytest.mark.parametrize("name", FORMS_BY_KIND)
def test_residues_are_the_image_of_exact_numbers(name: str) -> None:
    got, wanted = run(name, kinds.modular(*PAIRS[3], seed=3)), run(name, EXACT)
    assert agree(got, wanted)
    assert not agree(got, [x + 1 for x in wanted])


@pytest.mark.parametrize("name", FORMS_BY_KIND)
def test_balls_hold_the_exact_numbers(name: str) -> None:
    with kinds.precision(128):
        balls = run(name, kind("ball"), whole=False)
    for array, wanted in zip(balls, run(name, EXACT, whole=False), strict=True):
        hidden = EXACT.xp.isneginf(wanted)
        assert np.array_equal(hidden, kind("ball").xp.isneginf(array))
        for ball, x in zip(array.entries[~hidden], wanted.entries[~hidden], strict=True):
            assert ball.overlaps(x.arb(200))
            assert ball.rad() < 2.0**-90


@pytest.mark.parametrize("name", FORMS_BY_KIND)
def test_sympy_has_the_same_numbers(name: str) -> None:
    for array, wanted in zip(run(name, kind("symbolic")), run(name, EXACT), strict=True):
        hidden = EXACT.xp.isneginf(wanted)
        for expression, x in zip(array.entries[~hidden], wanted.entries[~hidden], strict=True):
            assert abs(sympy.N(expression, 30) - sympy.Float(x.decimal(30), 30)) < sympy.Float("1e-25")


@pytest.mark.parametrize("name", FORMS_BY_KIND)
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


@pytest.mark.parametrize("name", FORMS_BY_KIND)
def test_the_standard_is_enough(name: str) -> None:
    for got, wanted in zip(run(name, Strict), run(name, kind("float64")), strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted)


@pytest.mark.parametrize("name", ["online", "tiles, rows hidden"])
def test_hidden_rows_of_letters_are_zeros(name: str) -> None:
    symbolic, (form, shapes) = kind("symbolic"), FORMS_BY_KIND[name]
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
    with kinds.precision(BITS):
        encloses(DEFINITIONS[name].run(Enclosure.literal), DEFINITIONS[name].run(Ball.literal))


@pytest.mark.parametrize("name", FORMS_BY_KIND)
def test_tiles_caches_and_recurrences(name: str) -> None:
    with kinds.precision(BITS):
        encloses(run(name, Enclosure, whole=False), run(name, Ball, whole=False))


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_programs_of_users(program: Program) -> None:
    with kinds.precision(BITS):
        encloses(program(*map(Enclosure.lift, SMALL)), program(*map(Ball.lift, SMALL)))


@pytest.mark.parametrize("name", MODELS)
def test_whole_models(name: str) -> None:
    model = MODELS[name]
    given = parameters(model)
    with kinds.precision(BITS):
        got, wanted = (model(**ids(model), **{n: _lifted(k, x) for n, x in given.items()}) for k in (Enclosure, Ball))
        encloses(got, wanted, 2.0**-10)


def _lifted(kind: Any, x: Any) -> Any:
    return x if np.asarray(x).dtype.kind in "bi" else kind.lift(x)
