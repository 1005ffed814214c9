"""Enclosures of the plain pattern against the definition on balls, in tiles of few rows and keys too."""

import random
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from symattn import Attention, InputError, Refused, kind, kinds
from symattn.attention import enclosed
from symattn.attention.enclosing import radius, sums
from tests.attention.enclosed_by_balls import SPECS, Inputs, hostile, masks_for, on_balls, qkv, used
from tests.refusals import refuses

Ball = kind("ball")

SHAPES = [(5, 5, 3, 2), (3, 7, 2, 4), (6, 4, 1, 1), (1, 1, 4, 2), (9, 10, 5, 3)]


@pytest.fixture(params=[(256, 256, 256.0), (3, 4, 256.0), (4, 3, -1.0)], ids=["one tile", "many tiles", "shifted"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of the usual size, tiles so small that few rows and keys make many, and scores that are always shifted."""
    queries, keys, unshifted = request.param
    for module, name, value in (
        (sums, "QUERIES", queries),
        (enclosed, "QUERIES", queries),
        (sums, "KEYS", keys),
        (radius, "KEYS", keys),
        (sums, "UNSHIFTED", unshifted),
    ):
        monkeypatch.setattr(module, name, value)


def parts(spec: Attention, inputs: Inputs, tight: bool = False) -> np.ndarray:
    return used(on_balls(spec, inputs), *enclosed.enclose(spec, inputs, tight=tight))


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_field(spec: Attention) -> None:
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        inputs = masks_for(spec, rng, qkv(rng, *shape))
        exact = on_balls(spec, inputs)
        for tight in (False, True):
            assert (used(exact, *enclosed.enclose(spec, inputs, tight=tight)) <= 1).all()


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("name", list(hostile(np.random.default_rng(0), 2, 2)))
@pytest.mark.parametrize("spec", [Attention(), Attention(causal=True), Attention(sink="zero", window=(3, 1))], ids=str)
def test_hostile_inputs(name: str, spec: Attention) -> None:
    inputs = hostile(np.random.default_rng(2), 8, 3)[name]
    exact = on_balls(spec, inputs)
    for tight in (False, True):
        assert (used(exact, *enclosed.enclose(spec, inputs, tight=tight)) <= 1).all()


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_general_kind_agrees(spec: Attention) -> None:
    """The same definition on enclosures: two intervals that hold one value overlap, whatever the size."""
    rng, general = np.random.default_rng(16), kind("enclosure")
    inputs = masks_for(spec, rng, qkv(rng, 260, 270, 16, 8))
    found = enclosed.enclose(spec, inputs)
    whole = spec(**{name: a if a.dtype == bool else general.lift(a) for name, a in inputs.items()})
    undefined = np.isnan(found.centre)
    off = np.abs(np.where(undefined, 0.0, found.centre - whole.mid))
    assert (off <= np.where(undefined, np.inf, (found.radius + whole.rad) * (1 + 2.0**-50))).all()
    assert np.median(found.radius) < 1e-12
    assert undefined.any() == (spec.fully_masked == "nan" and bool((~inputs["mask"]).all(axis=1).any()))


def test_a_sink_may_be_all_that_is_seen() -> None:
    inputs = hostile(np.random.default_rng(17), 4, 2)["beyond rounding"]
    inputs |= {"mask": np.eye(4, k=1, dtype=bool), "sink": np.array([0.5])}  # the last query sees no key
    for scale in (None, 1e-12):
        assert (parts(Attention(mask="boolean", sink="given", scale=scale), inputs) <= 1).all()
        assert np.isfinite(enclosed.enclose(Attention(mask="boolean", sink="given", scale=scale), inputs).radius).all()


@pytest.mark.parametrize("front", [(2,), (2, 3)])
def test_batches_and_heads(front: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    inputs = qkv(rng, 4, 5, 3, 2, front)
    assert (parts(Attention(causal=True), inputs) <= 1).all()
    assert (parts(Attention(), inputs | {"k": inputs["k"][:1]}) <= 1).all()  # one head of keys for every batch
    masked = inputs | {"mask": rng.random((*front, 4, 5)) < 0.6}
    assert (parts(Attention(mask="boolean"), masked) <= 1).all()


@pytest.mark.parametrize("front", [(), (2,)])
def test_shared_heads(front: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    few, many = qkv(rng, 4, 5, 3, 2, (*front, 2)), qkv(rng, 4, 5, 3, 2, (*front, 6))
    inputs = {"q": many["q"], "k": few["k"], "v": few["v"]}
    assert (parts(Attention(heads=6, kv_heads=2), inputs) <= 1).all()
    sink = inputs | {"sink": rng.standard_normal(6), "keep": np.arange(5) < 4}
    assert (parts(Attention(heads=6, kv_heads=2, sink="given", padding=True), sink) <= 1).all()
    for shape in ((4, 5), (*front, 4, 5), (6, 4, 5), (*front, 1, 1, 5)):
        mask = rng.random(shape) < 0.6
        if front and shape == (6, 4, 5):
            continue
        assert (parts(Attention(heads=6, kv_heads=2, mask="boolean"), inputs | {"mask": mask}) <= 1).all()


def test_a_thousandth_of_the_radius_is_too_little() -> None:
    """The comparison can fail: radii are a bound, and no more than a few hundred times what happens."""
    rng = np.random.default_rng(5)
    for spec in (Attention(), Attention(causal=True), Attention(sink="zero")):
        for tight in (False, True):
            assert (1000 * parts(spec, qkv(rng, 12, 12, 4, 4), tight) > 1).any()


def test_the_rounding_of_scores_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys with scores of 200, one of which is rounded and one not: powers then are off by far more than 2.5 u."""
    rng = np.random.default_rng(6)
    inputs = qkv(rng, 50, 2, 4, 1) | {"v": np.array([[1.0], [0.0]])}
    inputs["q"], inputs["k"] = 10 + inputs["q"], 20 + 0.1 * inputs["k"]
    assert (parts(Attention(scale=0.2), inputs) <= 1).all()
    monkeypatch.setattr(radius, "gamma", lambda k: 0.01 * k * 2.0**-53)
    assert (parts(Attention(scale=0.2), inputs) > 1).any()


def test_fully_masked_rows() -> None:
    rng = np.random.default_rng(7)
    inputs = qkv(rng, 3, 4, 2, 2) | {"mask": np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool)}
    found = enclosed.enclose(Attention(mask="boolean"), inputs)
    assert found.centre[1].tolist() == [0, 0]
    assert found.radius[1].tolist() == [0, 0]
    undefined = enclosed.enclose(Attention(mask="boolean", fully_masked="nan"), inputs)
    assert np.isnan(undefined.centre[1]).all()
    assert np.isfinite(undefined.centre[[0, 2]]).all()
    refuses(enclosed.enclose, Attention(mask="boolean", fully_masked="error"), inputs, says="fully masked")


def test_constant_values_are_exact() -> None:
    inputs = qkv(np.random.default_rng(8), 5, 6, 2, 3)
    inputs["v"] = inputs["v"] * 0 + np.array([0.1, -3.0, 1e-310])
    found = enclosed.enclose(Attention(), inputs)
    assert np.array_equal(found.centre, inputs["v"][:5])
    assert not found.radius.any()


def test_the_hull_holds_where_rounding_says_nothing() -> None:
    inputs = qkv(np.random.default_rng(9), 6, 6, 2, 2)
    inputs["q"] *= 1e30
    found = enclosed.enclose(Attention(causal=True), inputs)
    for i in range(6):
        least, greatest = inputs["v"][: i + 1].min(axis=0), inputs["v"][: i + 1].max(axis=0)
        assert (found.centre[i] - found.radius[i] <= least).all()
        assert (found.centre[i] + found.radius[i] >= greatest).all()
        assert (found.radius[i] <= 0.5 * (greatest - least) + 1e-12).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_narrower_types_are_taken_as_they_are(dtype: type) -> None:
    inputs = {name: a.astype(dtype) for name, a in qkv(np.random.default_rng(10), 4, 5, 3, 2).items()}
    wide = {name: a.astype(np.float64) for name, a in inputs.items()}
    assert np.array_equal(enclosed.enclose(Attention(), inputs).centre, enclosed.enclose(Attention(), wide).centre)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (Attention(softcap=3), "softcap"),
        (Attention(bias=True), "bias"),
        (Attention(lse=True), "lse"),
        (Attention(normaliser="relu"), "normaliser"),
        (Attention(score="cosine"), "score"),
        (Attention(mask="additive"), "additive"),
        (Attention(scale="given"), "given"),
        (Attention(documents=True), "documents"),
    ],
)
def test_other_variants_are_refused_by_name(spec: Attention, word: str) -> None:
    with pytest.raises(Refused, match=f"enclose has no .*{word}"):
        enclosed.enclose(spec, qkv(np.random.default_rng(11), 2, 2, 2, 2))


def test_tokens_are_refused() -> None:
    refuses(enclosed.enclose, Attention(), {"x": np.eye(2)}, kind=Refused, says="project the tokens")


@pytest.mark.parametrize("scale", [1e308, 1e-320])
def test_a_scale_beyond_floats_is_refused(scale: float) -> None:
    refuses(
        enclosed.enclose, Attention(scale=scale), qkv(np.random.default_rng(12), 2, 2, 2, 2), kind=Refused, says="scale"
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"v": np.array([[1.0], [np.nan]])}, "v holds NaN or infinity"),
        ({"v": np.array([[1.0], [np.inf]])}, "v holds NaN or infinity"),
        ({"q": np.array([[2**60 + 1], [1]])}, "integers of 2\\^53 or more"),
        ({"q": np.array([["a"], ["b"]])}, "give an array of float64"),
        ({"k": np.ones((2, 3))}, "d_k"),
        ({"mask": np.ones((2, 2), dtype=bool)}, "no input 'mask'"),
    ],
)
def test_wrong_inputs(wrong: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        enclosed.enclose(Attention(), {"q": np.ones((2, 1)), "k": np.ones((2, 1)), "v": np.ones((2, 1))} | wrong)


def test_memory_is_that_of_tiles() -> None:
    n = 2000
    inputs = qkv(np.random.default_rng(13), n, n, 8, 8)
    enclosed.enclose(Attention(), {name: a[:2] for name, a in inputs.items()})
    tracemalloc.start()
    try:
        enclosed.enclose(Attention(causal=True), inputs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * n * n / 8  # an eighth of one matrix of scores


def test_inputs_are_left_alone() -> None:
    inputs = qkv(np.random.default_rng(14), 4, 4, 2, 2)
    before = {name: a.copy() for name, a in inputs.items()}
    enclosed.enclose(Attention(), inputs)
    assert all(np.array_equal(inputs[name], before[name]) for name in inputs)


def test_usual_radii_are_small() -> None:
    inputs = qkv(np.random.default_rng(15), 300, 300, 64, 64)
    assert np.median(enclosed.enclose(Attention(), inputs).radius) < 1e-5 * 2.0**-23
    assert np.median(enclosed.enclose(Attention(), inputs, tight=True).radius) < 2e-6 * 2.0**-23


def test_how_far_a_result_is_off() -> None:
    rng = np.random.default_rng(18)
    inputs = qkv(rng, 6, 7, 3, 2)
    found, exact = enclosed.enclose(Attention(), inputs), on_balls(Attention(), inputs)
    for error in (0.0, 1e-16, 1e-13, 1e-3):
        got = found.centre + error * rng.standard_normal(found.centre.shape)
        least, most = found.off(got)
        for x, g, low, high in zip(exact.entries.flat, got.flat, least.flat, most.flat, strict=True):
            assert low <= abs(x - float(g)) <= high
        assert (least > 0).any() == (error > 1e-16)
        assert (most > 0).all()


def test_what_is_no_number_is_far_off() -> None:
    found = enclosed.EnclosedOutput(np.array([1.0, 1.0, np.nan, np.nan]), np.array([0.1, 0.1, 0.0, 0.0]))
    least, most = found.off(np.array([np.nan, np.inf, np.nan, 1.0]))
    assert least.tolist() == most.tolist() == [np.inf, np.inf, 0.0, np.inf]


# -- a hundred thousand elements against Arb at 200 bits ---------------------------------------------------------------
ELEMENTS = 100_000


def drawn(rng: np.random.Generator, choose: random.Random) -> Inputs:
    """Inputs of some size, at some scale each, or hostile ones."""
    n_q, n_k, d, d_v = (choose.choice(sizes) for sizes in ((1, 3, 8, 17), (1, 2, 9, 24), (1, 2, 5), (4, 8)))
    if choose.random() < 0.4:
        table = hostile(rng, choose.choice([4, 9, 16]), d)
        return table[choose.choice([name for name in table if name != "beyond all floats"])]
    inputs = qkv(rng, n_q, n_k, d, d_v)
    sizes = {"q": [1, 1, 10, 1e-3, 1e4], "k": [1, 1, 10, 1e-3], "v": [1, 1, 1e-9, 1e12]}
    return {name: inputs[name] * choose.choice(sizes[name]) for name in inputs}


@pytest.mark.deep
def test_a_hundred_thousand_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, choose = np.random.default_rng(20), random.Random(20)
    looked, outside, narrow = 0, 0, 0
    while looked < ELEMENTS:
        queries, keys = choose.choice([(256, 256), (3, 4), (5, 2)])
        for module in (sums, enclosed):
            monkeypatch.setattr(module, "QUERIES", queries)
        for module in (sums, radius):
            monkeypatch.setattr(module, "KEYS", keys)
        spec = choose.choice(SPECS)
        inputs = masks_for(spec, rng, drawn(rng, choose))
        part = used(on_balls(spec, inputs), *enclosed.enclose(spec, inputs, tight=choose.random() < 0.3))
        looked, outside, narrow = looked + part.size, outside + (part > 1).sum(), narrow + (1000 * part > 1).sum()
    assert outside == 0
    assert narrow > looked / 100  # a thousandth of the radius would be too little for many


@pytest.mark.deep
@pytest.mark.parametrize("n", [257, 600])
def test_large_sizes_by_rows(n: int) -> None:
    rng = np.random.default_rng(21)
    inputs = qkv(rng, n, n, 64, 8)
    rows = [0, 1, 127, 255, 256, n - 1]
    for spec in (s for s in SPECS if s.fully_masked == "zeros"):
        given = masks_for(spec, rng, inputs)
        found = enclosed.enclose(spec, given)
        part = used(enclosed.enclose_rows(spec, given, rows), found.centre[rows], found.radius[rows])
        assert (part <= 1).all()


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_rows_are_those_of_the_definition(spec: Attention) -> None:
    rng = np.random.default_rng(2)
    inputs = masks_for(spec, rng, qkv(rng, 5, 6, 3, 2))
    exact, rows = on_balls(spec, inputs), [4, 0, 2]
    found = enclosed.enclose_rows(spec, inputs, rows)
    assert found.plain_shape == (3, 2)
    same(found, exact, rows)


def test_rows_of_shared_heads() -> None:
    rng = np.random.default_rng(3)
    few, many = qkv(rng, 4, 5, 3, 2, (2, 2)), qkv(rng, 4, 5, 3, 2, (2, 4))
    spec = Attention(heads=4, kv_heads=2, causal=True, sink="given")
    inputs = {"q": many["q"], "k": few["k"], "v": few["v"], "sink": rng.standard_normal(4)}
    same(enclosed.enclose_rows(spec, inputs, [3, 1]), on_balls(spec, inputs), [3, 1])


def same(found: Ball, exact: Ball, rows: list[int]) -> None:
    with kinds.precision(200):
        for x, y in zip(found.entries.flat, exact.entries[..., rows, :].flat, strict=True):
            assert type(x) is type(y)
            if hasattr(x, "overlaps"):
                assert x.overlaps(y)
                assert x.rad() < 1e-40


def test_rows_follow_the_precision() -> None:
    inputs = qkv(np.random.default_rng(4), 2, 3, 2, 1)
    coarse, fine = (enclosed.enclose_rows(Attention(), inputs, [1], bits).entries[0, 0].rad() for bits in (60, 300))
    assert fine < 1e-80 < 1e-25 < coarse


@pytest.mark.parametrize("row", [-1, 5])
def test_a_row_that_is_none(row: int) -> None:
    with pytest.raises(InputError, match=f"row {row}: there are rows 0 to 4"):
        enclosed.enclose_rows(Attention(), qkv(np.random.default_rng(5), 5, 2, 2, 2), [0, row])


def test_each_head_reads_its_own_keys() -> None:
    rng = random.Random(6)
    h, g = 6, 3
    given = {name: np.arange(n)[:, None, None] + np.zeros((n, 2, 1)) for name, n in (("q", h), ("k", g), ("v", g))}
    found = enclosed.enclose(Attention(heads=h, kv_heads=g), given).centre
    t = rng.randrange(h)
    assert (found[t] == t // 2).all()
    assert found.shape == (h, 2, 1)


@pytest.mark.parametrize("whole", [2**53, 2**53 + 1, -(2**53) - 1])
def test_integers_that_float64_may_round_are_refused(whole: int) -> None:
    one = np.ones((1, 1))
    refuses(enclosed.enclose, Attention(), {"q": one, "k": one, "v": np.array([[whole]])}, says="2^53 or more")
    assert enclosed.enclose(Attention(), {"q": one, "k": one, "v": np.array([[2**53 - 1]])}).centre == 2**53 - 1
