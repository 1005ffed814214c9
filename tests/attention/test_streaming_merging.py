"""Split keys and trees give what softmax over all keys gives, also where tiles or rows have no allowed key."""

from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from symattn.arrays import kind
from symattn.arrays.namespace import namespace_of
from symattn.attention.masks import causal, forbid
from symattn.attention.softmax import log_sum_exp, softmax
from symattn.attention.streaming.states import (
    PartialOutput,
    SoftmaxState,
    finish,
    join_splits,
    lse,
    merge,
    merge_partial,
    online,
    partial_output,
    split_keys,
    tile_state,
    tree,
)
from tests.attention.streaming_tools import EXACT, drawn, exactly, legal, proved
from tests.refusals import refuses

BOUNDS = (0, 2, 3, 7)
DATA = drawn(1, s=(3, 7), v=(7, 4))
# The first row sees nothing in the first tile, the second nothing but the first tile, the third nothing at all.
ALLOWED = np.array([[0, 0, 0, 1, 1, 0, 1], [1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]], dtype=bool)


def tiles(s: Any, v: Any, bounds: Any = BOUNDS) -> list[tuple[Any, Any]]:
    return [(s[..., lo:hi], v[..., lo:hi, :]) for lo, hi in pairwise(bounds)]


def by_states(join: Any, s: Any, v: Any) -> Any:
    return finish(join([tile_state(*tile) for tile in tiles(s, v)], merge), "zeros")


def by_partials(join: Any, s: Any, v: Any) -> Any:
    return tuple(join([partial_output(*tile) for tile in tiles(s, v)], merge_partial))


def in_order(items: Any, join: Any) -> Any:
    return reduce(join, items)


def backwards(items: Any, join: Any) -> Any:
    return reduce(join, items[::-1])


def one(s: Any, v: Any) -> Any:
    """Softmax over all keys at once, zeros where none is allowed."""
    return softmax(s, fully_masked="zeros") @ v


def with_lse(s: Any, v: Any) -> Any:
    return one(s, v), log_sum_exp(s)


FORMS = {
    "online": (lambda s, v: online(s, v, BOUNDS, "zeros"), one),
    "states in order": (partial(by_states, in_order), one),
    "states backwards": (partial(by_states, backwards), one),
    "states as a tree": (partial(by_states, tree), one),
    "outputs in order": (partial(by_partials, in_order), with_lse),
    "outputs as a tree": (partial(by_partials, tree), with_lse),
    "split keys": (lambda s, v: tuple(split_keys(s, v, BOUNDS)), with_lse),
    "one split": (lambda s, v: tuple(split_keys(s, v, (0, 7))), with_lse),
}
MASKS = {
    "none": lambda s: s,
    "causal": lambda s: forbid(s, causal(s)),
    "empty tiles and rows": lambda s: forbid(s, ALLOWED),
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
    def join(a: SoftmaxState, b: SoftmaxState) -> SoftmaxState:
        return change(a, b, merge(a, b))

    return finish(reduce(join, [tile_state(*tile) for tile in tiles(s, v)]), "zeros")


def grown(a: SoftmaxState, m: SoftmaxState) -> Any:
    return namespace_of(m.maximum).exp(a.maximum - m.maximum)


FALSE = {
    "a is not rescaled": partial(
        merged_wrongly, lambda a, b, m: m._replace(accumulated=a.accumulated + b.accumulated * grown(b, m))
    ),
    "ℓ is not rescaled": partial(
        merged_wrongly, lambda a, b, m: m._replace(normaliser=a.normaliser + b.normaliser * grown(b, m))
    ),
    "the maximum of the last tile": partial(merged_wrongly, lambda a, b, m: m._replace(maximum=b.maximum)),
    "the last tile is left out": lambda s, v: online(s, v, BOUNDS[:-1]),
    "a tile begins one key late": lambda s, v: finish(merge(tile_state(s[:, :3], v[:3]), tile_state(s[:, 4:], v[4:]))),
    "the mean of outputs": lambda s, v: sum(partial_output(*t).output for t in tiles(s, v)) / 3,
}


@pytest.mark.parametrize("name", FALSE)
def test_a_wrong_merge_is_refused(name: str) -> None:
    assert not exactly(FALSE[name], one, DATA)
    assert not legal(FALSE[name], DATA, bounded_by=FORMS["online"][0])


def test_without_tiles_there_is_nothing_to_merge() -> None:
    refuses(tree, [], merge, says="no tiles")


def test_merged_states_may_have_any_maximum() -> None:
    draw = np.random.default_rng(0)
    s, t, v, w = (draw.normal(size=x) for x in ((3, 2), (3, 4), (2, 5), (4, 5)))
    a, b = tile_state(s, v), tile_state(t, w)
    np.testing.assert_allclose(finish(merge(a, b, np.full((3, 1), -1.5))), finish(merge(a, b)), rtol=1e-13)


def test_a_tree_merges_neighbours() -> None:
    def joined(number: int) -> str:
        words = [PartialOutput(str(i), None) for i in range(number)]
        return str(tree(words, lambda a, b: PartialOutput(f"({a.output}{b.output})", None)).output)

    assert [joined(n) for n in (1, 2, 3, 5)] == ["0", "(01)", "((01)2)", "(((01)(23))4)"]


# -- rows without keys -----------------------------------------------------------------------------------------------
def empty(rows: int, keys: int) -> Any:
    return EXACT.xp.full((rows, keys), -np.inf)


def test_the_state_of_no_allowed_key() -> None:
    v = EXACT.lift([[1, 2], [3, 4]])
    nothing = tile_state(empty(1, 2), v)
    assert all(x.tolist() == y for x, y in zip(nothing[1:], ([[0]], [[0, 0]]), strict=True))
    assert EXACT.xp.isneginf(nothing.maximum).all()
    assert EXACT.xp.isneginf(lse(nothing)).all()
    both = merge(nothing, nothing)
    assert EXACT.xp.isneginf(both.maximum).all()
    assert (both.normaliser == 0).all()
    assert (finish(both, "zeros") == 0).all()
    assert EXACT.xp.isnan(finish(both)).all()
    refuses(finish, both, "error", says="fully masked")


def test_partial_outputs_of_no_allowed_key() -> None:
    v = EXACT.lift([[1, 2], [3, 4]])
    nothing, some = partial_output(empty(1, 2), v), partial_output(EXACT.lift([[0, 3]]), v)
    for merged in (merge_partial(nothing, some), merge_partial(some, nothing), join_splits([nothing, some, nothing])):
        assert (merged.output == some.output).all()
        assert (merged.lse == some.lse).all()
    neither = join_splits([nothing, merge_partial(nothing, nothing)])
    assert (neither.output == 0).all()
    assert EXACT.xp.isneginf(neither.lse).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_empty_tile_beside_very_low_scores(dtype: str) -> None:
    """With 0 for the maximum of the empty tile, e^−1000 would underflow and the row be 0/0."""
    target = kind(dtype)
    s, v = target.lift([[0, 0, -1000, -1000]]), target.lift([[9], [9], [1], [3]])
    s = target.xp.where(np.array([False, False, True, True]), s, -np.inf)
    joined = split_keys(s, v, (0, 2, 4))
    assert (online(s, v, (0, 2, 4)) == 2).all()
    assert (joined.output == 2).all()
    assert (joined.lse < -900).all()
    assert target.xp.isfinite(joined.lse).all()
    zero = target.lift([[0]])
    with np.errstate(invalid="ignore"):
        underflown = merge(SoftmaxState(zero, zero, zero), tile_state(s[:, 2:], v[2:]))
        assert target.xp.isnan(finish(underflown)).all()


# -- all sizes -------------------------------------------------------------------------------------------------------
SHAPES = {"s": "n a+b+c", "v": "a+b+c e"}


def bounds(size: Any) -> tuple[Any, ...]:
    a, b, c = (size[x] for x in "abc")
    return 0, a, a + b, a + b + c


def plain(s: Any, v: Any, size: Any) -> Any:
    return softmax(s) @ v


def test_for_all_sizes() -> None:
    """The state of three tiles, of any sizes, is that of all keys; outputs of three tiles are in the deep run."""
    assert proved(lambda s, v, size: by_letters(s, v, size, lambda t: tile_state(*t), merge)[1:], shifted, SHAPES)


@pytest.mark.deep
def test_outputs_for_all_sizes() -> None:
    assert proved(lambda s, v, size: online(s, v, bounds(size)), plain, SHAPES)
    assert proved(
        lambda s, v, size: by_letters(s, v, size, lambda t: partial_output(*t), merge_partial).output, plain, SHAPES
    )


def by_letters(s: Any, v: Any, size: Any, start: Any, join: Any) -> Any:
    return tree([start(t) for t in tiles(s, v, bounds(size))], join)


def shifted(s: Any, v: Any, size: Any) -> Any:
    """The state of all keys at once, with the maximum of the merged one."""
    m = by_letters(s, v, size, lambda t: tile_state(*t), merge).maximum
    return tile_state(s, v, m)[1:]


def test_a_wrong_tile_is_not_proved() -> None:
    def late(s: Any, v: Any, size: Any) -> Any:
        return online(s, v, bounds(size)[1:])

    assert not proved(late, plain, SHAPES)
