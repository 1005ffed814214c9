"""What is tried: in the domain, exact in its format, all dimensions different, and nothing written to disk."""

from pathlib import Path

import numpy as np
import pytest

from symattn import Attention, Rotary
from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.precision import Precision
from symattn.bounds.called_target import Argument, Convention, Layout, Outcome
from symattn.bounds.case_result import Case
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.judge import judge, of_attention
from symattn.verification.attention import LATER, OfAttention
from symattn.verification.probing.probes import GROUPS
from symattn.verification.probing.search import altered, climb, search
from symattn.verification.probing.sizes_that_tell import edges
from symattn.verification.reduce import reduce

QKV = ("q", "k", "v")
SINGLE = Precision.of("float32")
TOKENS = ("x", "w_q", "w_k", "w_v", "w_o", "b_o")


def _maker(names: tuple[str, ...] = QKV, dtype: str = "float32", domain: Domain | None = None, **spec: object) -> Maker:
    attention = Attention(**spec)  # type: ignore[arg-type]
    extra = [n for n, used in (("mask", attention.mask), ("keep", attention.padding)) if used]
    convention = Convention(tuple(Argument(n, n) for n in (*names, *extra)), dtype=dtype)
    return Maker(attention, convention, Precision.of(dtype), domain or Domain())


def _all(maker: Maker) -> list[dict[str, np.ndarray]]:
    rng, found = np.random.default_rng(1), []
    for group in (*GROUPS.values(), *LATER.values()):
        found += [inputs for _, inputs in group(maker, rng) if inputs is not None]

    return found + [inputs for _, inputs in search(maker, 1, 40)]


@pytest.mark.parametrize(
    "maker",
    [
        _maker(), _maker(dtype="bfloat16"), _maker(causal=True), _maker(causal=True, alignment="top-left"),
        _maker(mask="boolean", padding=True), _maker(mask="additive", causal=True), _maker(TOKENS, heads=2),
        _maker(("x",)), _maker(("x", "y", "w_q", "w_k", "w_v"), dtype="float16"), _maker(domain=Domain(square=True)),
        _maker(domain=Domain(max_abs_score=3, max_tokens=20, max_width=9)),
    ],
    ids=str,
)  # fmt: skip
def test_inputs_are_what_was_promised(maker: Maker) -> None:
    for inputs in _all(maker):
        for name, array in inputs.items():
            if array.dtype != bool and name != "mask":
                assert np.array_equal(maker.precision.input.rounded(array), array)
        values = maker.spec.trace(**inputs)
        last = values["masked" if "masked" in values else "scaled"]
        assert np.isfinite(last).any(axis=-1).all(), "a row without any key was not promised"
        assert np.abs(values["scaled"]).max() <= maker.largest_score
        n_q, n_k = last.shape[-2:]
        assert max(n_q, n_k) <= maker.domain.max_tokens
        assert n_q == n_k or not maker.square


@pytest.mark.parametrize(("form", "layout"), [("bk", "bhnd"), ("b11k", "bhnd"), ("bk", "bnd"), ("lengths", "bhnd")])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_masks_of_a_batch_differ(form: str, layout: Layout, heads: int) -> None:
    arguments = (*(Argument(n, n) for n in QKV), Argument("keep", "keep", form=form))
    if layout == "bnd" and heads > 1:
        return
    maker = Maker(Attention(padding=True, heads=heads), Convention(arguments, layout=layout), SINGLE, Domain())
    batches = [i for _, i in GROUPS["shapes"](maker, np.random.default_rng(1)) if i and i["keep"].ndim > 1]
    assert len(batches) >= 3
    assert any(not (i["keep"] == i["keep"][:1]).all() for i in batches)
    for inputs in batches:
        assert np.isfinite(maker.spec(**inputs)).all()
        if form == "lengths":
            assert (np.diff(inputs["keep"].astype(int), axis=-1) <= 0).all()


def test_rows_without_any_key_occur_where_they_are_promised() -> None:
    for promised in (False, True):
        maker = _maker(mask="boolean", domain=Domain(fully_masked_rows=promised))
        found = [i["mask"].any(axis=-1).all() for i in _all(maker)]
        assert all(found) is not promised


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_forbidden_keys_score_so_high_that_all_others_vanish(dtype: str) -> None:
    for maker in (_maker(dtype=dtype, causal=True), _maker(dtype=dtype, mask="boolean")):
        vanished = 0
        for _, inputs in GROUPS["mask"](maker, np.random.default_rng(1)):
            if inputs is not None:
                values = maker.spec.trace(**inputs)
                allowed = np.isfinite(values["masked"])
                below = np.max(values["masked"], axis=-1) - np.max(
                    values["scaled"], axis=-1, where=~allowed, initial=-1
                )
                vanished += int((below < np.log(float(maker.precision.score.eta))).sum())
        assert vanished > 5


def test_square_projections_are_tried() -> None:
    maker = _maker(TOKENS, heads=2)
    found = [i for _, i in GROUPS["structure"](maker, np.random.default_rng(1)) if i is not None]
    square = [i for i in found if len({i[n].shape for n in ("w_q", "w_k", "w_v", "w_o")}) == 1]
    assert len(square) >= 3
    assert all((i[n] != i[n].T).any() for i in square for n in ("w_q", "w_k", "w_v", "w_o"))


def test_scores_behind_masks_leave_room_below_unless_more_is_promised() -> None:
    assert _maker(mask="boolean").largest_score < 65504
    assert _maker(mask="boolean", domain=Domain(max_abs_score=1e5)).largest_score == 1e5
    assert _maker(mask="boolean", domain=Domain(max_abs_score=3)).largest_score == 3
    assert _maker(mask="boolean", dtype="float16", domain=Domain(max_abs_score=1e5)).largest_score < 65504
    assert _maker().largest_score == np.inf


def test_places_that_half_types_cannot_tell_apart_are_tried() -> None:
    for tokens, least in ((300, 257), (2200, 2049)):
        maker = _maker(position=Rotary(), domain=Domain(max_tokens=tokens))
        longest = [len(i["k"]) for _, i in LATER["positions"](maker, np.random.default_rng(1)) if i is not None]
        assert tokens >= max(longest) >= least


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [257, 513, 1025])
def test_a_key_that_is_lost_or_doubled_shows_at_every_length_in_every_format(n: int, causal: bool, dtype: str) -> None:
    maker = _maker(dtype=dtype, causal=causal)
    inputs = edges(maker, n, np.random.default_rng(1))
    assert inputs is not None
    right = maker.spec(**inputs)
    for key in (0, 255, 256, n - 1):
        again = {x: np.concatenate((inputs[x][key : key + 1], inputs[x])) for x in "kv"}  # in front: causal rows see it
        doubled = maker.spec(q=inputs["q"], **again)
        lost = maker.spec(
            q=inputs["q"], **{x: np.where(np.arange(n)[:, None] == key, inputs[x][5], inputs[x]) for x in "kv"}
        )
        fused = Precision.of(dtype, "fused")
        for output, precision, finding in (
            (right, fused, None), (lost, maker.precision, "values"), (doubled, fused, "values"),
        ):  # fmt: skip
            if not (causal and key == n - 1 and output is doubled):  # one query alone sees the last key
                legal = of_attention(maker.spec, precision, inputs)
                judged = judge(legal, precision, Case("long", "", inputs), Outcome(output, dtype, output.shape))
                assert judged.finding == finding


def test_climbing_keeps_what_is_worse_and_stays_in_the_format() -> None:
    maker, seen = _maker(mask="boolean", dtype="float16"), []

    def size(inputs: dict[str, np.ndarray]) -> float:
        seen.append(inputs)
        return float(np.abs(inputs["q"]).sum())

    start = maker.make(Sizes(3, 5, 4, 2), lambda name, shape: np.ones(shape), np.random.default_rng(0))
    rng = np.random.default_rng(1)
    assert climb(lambda inputs: altered(maker, inputs, rng), start, size(start), 200, size) == max(
        map(size, list(seen))
    )
    assert max(map(size, list(seen))) > size(start)
    assert all(np.array_equal(maker.precision.input.rounded(i["q"]), i["q"]) for i in seen)
    assert all(i["mask"] is start["mask"] or np.array_equal(i["mask"], start["mask"]) for i in seen)


def test_dimensions_differ_in_every_pair() -> None:
    seen = {(i["q"].shape[0], i["k"].shape[0], i["k"].shape[1], i["v"].shape[1]) for i in _all(_maker())}
    for a in range(4):
        for b in range(a):
            assert {s[a] > s[b] for s in seen} == {True, False}
            assert any(s[a] == s[b] for s in seen)
    assert any(s[2] > 64 for s in seen)
    assert {15, 16, 17, 31, 33, 64, 65, 127, 128, 129, 192} <= {s[1] for s in seen}
    assert {63, 64, 65, 128} <= {s[2] for s in seen}


def test_the_search_is_reproducible_and_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, again = (_all(_maker()) for _ in range(2))
    assert [i["q"].tolist() for i in first] == [i["q"].tolist() for i in again]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_read_from_finfo(name: str) -> None:
    f = Format(name)
    one = np.ones((), dtype=f.dtype)
    assert float(f.rounded(1 + 2 * f.u)) == 1 + 2 * f.u
    assert float(f.rounded(1 + f.u / 2)) == float(one)
    assert float(f.rounded(f.largest)) == f.largest
    assert f.eta <= f.smallest_normal


def test_reducing_keeps_what_matters_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    shapes = {"q": (4, 5), "k": (7, 5), "v": (7, 3)}
    inputs = {n: rng.integers(-9, 9, s).astype(float) for n, s in shapes.items()}
    inputs["k"][4, 2] = 9.0

    small = reduce(inputs, lambda i: bool((i["k"] >= 5).any()), OfAttention(Attention()).axes(inputs))
    assert {n: a.shape for n, a in small.items()} == {"q": (1, 1), "k": (1, 1), "v": (1, 1)}
    assert small["q"].tolist() == [[0.0]]
    assert 5 <= small["k"][0, 0] <= 9


def test_reducing_takes_heads_apart_evenly() -> None:
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 4), "w_q": (4, 6), "w_k": (4, 6), "w_v": (4, 4), "w_o": (4, 4)}
    inputs = {n: rng.integers(1, 9, s).astype(float) for n, s in shapes.items()}
    small = reduce(inputs, lambda i: i["x"].size >= 2, OfAttention(Attention(heads=2)).axes(inputs))
    assert small["w_q"].shape[1] == small["w_k"].shape[1] == 2
    assert small["w_o"].shape[0] == small["w_v"].shape[1] == 2
