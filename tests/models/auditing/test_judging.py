"""One call judged by numbers alone: what is right passes, and each mistake is found and named; linear layers."""

from dataclasses import replace

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.formats import Format
from symattn.models.auditing.call_judge import arithmetic_of, cause, judge, output
from symattn.models.auditing.layers import part_judge
from symattn.models.auditing.setting import CallSetting, Masking
from symattn.verification.rules.masking import VisiblePlaces

ROWS = [0, 3, 4, 5, 9, 11]


def masking(spec: Attention, keep: np.ndarray | None = None, total: int = 12, n_k: int = 12) -> Masking:
    return Masking(spec, ROWS, 12, n_k, total, keep)


def setting(held: Masking | None = None, dtype: str = "float32", **more: object) -> CallSetting:
    rng = np.random.default_rng(0)
    q, k, v = (Format(dtype).rounded(rng.standard_normal(s)) for s in ((2, 4, 6, 8), (2, 2, 12, 8), (2, 2, 12, 8)))
    return CallSetting(q, k, v, scale=8**-0.5, allowed=held.allowed() if held else None, **more)  # type: ignore[arg-type]


def rounded(found: np.ndarray, dtype: str) -> np.ndarray:
    return Format(dtype).rounded(found)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_definition_rounded_passes(dtype: str) -> None:
    right = setting(masking(Attention(causal=True)), dtype)
    assert judge(right, rounded(output(right), dtype), arithmetic_of(dtype)).legal


def test_another_scale_is_certified_wrong() -> None:
    right = setting()
    found = judge(right, output(replace(right, scale=0.36)), arithmetic_of("float32"))
    assert found.sure == "certified"
    assert found.ratio > 1


def test_rows_without_any_key_are_counted_and_left_out() -> None:
    keep = np.ones((2, 12), dtype=bool)
    keep[0, :4] = False
    right = setting(masking(Attention(causal=True), keep))
    got = output(right)
    got[0, :, :2] = np.nan
    found = judge(right, got, arithmetic_of("float32"))
    assert found.legal
    assert found.empty == 8  # queries 0 and 3 of the first item, of four heads


def test_nan_that_was_received_cannot_be_told() -> None:
    right = setting()
    broken = replace(right, q=np.where(np.arange(8) == 0, np.nan, right.q))
    assert judge(broken, output(right), arithmetic_of("float32")).sure == "unknown"


def test_nan_that_was_made_is_wrong() -> None:
    right = setting()
    got = output(right)
    got[1, 2, 3, 4] = np.nan
    assert judge(right, got, arithmetic_of("float32")).sure == "certified"


WINDOW = Attention(causal=True, window=4)
WINDOW_IN_TILES = VisiblePlaces(before=3, after=0, tiles=(3, 1))
MISTAKES = {
    "the window reaches one key too far back": lambda s, m: s.with_mask(
        replace(m, spec=replace(WINDOW, window=5)).allowed()
    ),
    "the window is ignored": lambda s, m: s.with_mask(replace(m, spec=Attention(causal=True)).allowed()),
    "the window begins where a tile of 3 does: a query sees the whole of its first tile": lambda s, m: s.with_mask(
        WINDOW_IN_TILES.open(12, 12, False)[ROWS]
    ),
    "the mask is inverted": lambda s, m: s.with_mask(~m.allowed()),
    "the mask is ignored": lambda s, m: s.with_mask(None),
    "scores are not scaled": lambda s, m: replace(s, scale=1.0),
    "scores are scaled by 1.1 times the correct scale": lambda s, m: replace(s, scale=s.scale * 1.1),
    "the softcap is left out": lambda s, m: replace(s, softcap=None),
    "the sink is left out": lambda s, m: replace(s, sink=None),
    "heads of keys and values are tiled (repeat), not repeated (repeat_interleave)": lambda s, m: replace(
        s, k=np.tile(s.k, (1, 2, 1, 1)), v=np.tile(s.v, (1, 2, 1, 1))
    ),
    "heads of values are read in the opposite order": lambda s, m: replace(s, v=s.v[:, ::-1]),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_the_one_mistake_that_explains_it_is_named(words: str) -> None:
    held = masking(WINDOW)
    right = setting(held, softcap=2.0, sink=np.arange(4.0))
    wrong = output(MISTAKES[words](right, held))
    assert not judge(right, wrong, arithmetic_of("float32")).legal
    assert cause(right, held, wrong, arithmetic_of("float32")) == words


def test_no_cause_is_named_where_none_fits() -> None:
    right = setting(masking(WINDOW))
    wrong = output(right) + 0.25
    assert cause(right, masking(WINDOW), wrong, arithmetic_of("float32")) == ""


def test_no_cause_is_named_where_several_fit() -> None:
    """Scores that are large enough put all weight on one key, by whatever scale they are too large."""
    right = setting()
    q, k = np.zeros_like(right.q), np.zeros_like(right.k)
    q[..., range(6), range(6)], k[..., range(12), np.arange(12) % 8] = 300.0, 1.0
    right = replace(right, q=q, k=k, scale=1e-3)
    told = cause(right, None, output(replace(right, scale=1.0)), arithmetic_of("float32"))
    assert told.startswith(
        "open, since several mistakes fit: scores are not scaled; or scores are scaled by 1/√d_k; or"
    )
    assert told.endswith("others")
    assert judge(right, output(right), arithmetic_of("float32")).legal
    assert not judge(right, output(replace(right, scale=1.0)), arithmetic_of("float32")).legal


def test_hypotheses_that_say_the_same_are_one() -> None:
    right = setting(masking(WINDOW))
    some = replace(right, softcap=1e9, scale=1 / 8)
    told = cause(replace(some, scale=0.3), None, output(some), arithmetic_of("float32"))
    assert told == "scores are scaled by 1/d_k"
    twice = cause(
        replace(right, scale=0.5, bias=np.zeros((1, 1, 6, 12))), None, output(right), arithmetic_of("float32")
    )
    assert twice == "scores are scaled by 1/√d_k"


def test_sinks_that_take_no_weight_are_equal_where_both_are_infinite() -> None:
    right = setting(sink=np.array([-np.inf, 0.0, 1.0, 2.0]))
    assert right.alike(replace(right, sink=right.sink + 0))  # type: ignore[operator]
    assert not right.alike(replace(right, sink=np.array([np.inf, 0.0, 1.0, 2.0])))
    assert not right.alike(replace(right, sink=np.array([-np.inf, 0.0, 1.0, 2.5])))


def test_places_go_on_after_a_cache() -> None:
    whole = Masking(Attention(causal=True), list(range(12)), 12, 12, 12).allowed()
    last = Masking(Attention(causal=True), [0, 1], 2, 12, 12).allowed()
    assert np.array_equal(last, whole[:, :, 10:])
    static = Masking(Attention(causal=True), [0, 1], 2, 20, 12).allowed()
    assert np.array_equal(static[..., :12], last)
    assert not static[..., 12:].any()
    sliding = Masking(Attention(causal=True, window=3), [0, 1], 2, 4, 12).allowed()
    assert sliding[0, 0].tolist() == [[True, True, True, False], [False, True, True, True]]


def told(entries: list[float], got: float, bias: float | None = None, dtype: str = "float16") -> str:
    """The state of a column of ones, for the row ``entries``."""
    x, b = np.array([entries]), None if bias is None else np.array([bias])
    return part_judge.judged_linear("q", np.array([[got]]), x, np.ones((len(entries), 1)), b, dtype).state


@pytest.mark.parametrize("sign", [1, -1])
def test_an_infinity_of_the_sign_of_what_overflows_is_right(sign: int) -> None:
    large = [sign * 60000.0, sign * 20000.0]
    assert told(large, sign * np.inf) == "pass"
    assert told([large[0]], sign * np.inf, sign * 20000.0) == "pass"
    assert told(large, sign * np.inf, sign * -30000.0) == "pass"  # where the product is stored before the bias is added


@pytest.mark.parametrize(
    ("entries", "got"),
    [([60000.0, 20000.0], -np.inf), ([60000.0, 20000.0], np.nan), ([60000.0, 20000.0], 65504.0),
     ([60000.0, 5000.0], np.inf), ([60000.0, -20000.0], np.inf), ([1.0, 2.0], np.nan)],
)  # fmt: skip
def test_every_other_infinity_and_nan_is_wrong(entries: list[float], got: float) -> None:
    assert told(entries, got) == "wrong"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_where_sums_overflow_on_the_way_nothing_is_said(dtype: str) -> None:
    large = float(Format(dtype).largest)
    for got in (np.inf, -np.inf, np.nan):
        assert told([large, large, -large, -large], got, dtype=dtype) == "cannot tell"
    assert told([large, large, -large, -large], 0.0, dtype=dtype) == "pass"
    assert told([large / 8, -large / 8], np.inf, dtype=dtype) == "wrong"


def test_a_fault_beside_an_overflow_is_found() -> None:
    x, w = np.array([[60000.0, 20000.0]]), np.ones((2, 2))
    w[:, 1] = 0.125, 0.25
    exact = np.array([[np.inf, 12500.0]])
    assert part_judge.judged_linear("q", exact, x, w, None, "float16").state == "pass"
    assert part_judge.judged_linear("q", exact + np.array([[0.0, 100.0]]), x, w, None, "float16").state == "wrong"


def test_a_layer_in_float64_is_judged() -> None:
    assert [told([1.0, 2.0], got, dtype="float64") for got in (3.0, 3.1, np.inf)] == ["pass", "wrong", "wrong"]
