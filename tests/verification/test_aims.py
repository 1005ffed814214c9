"""Mistakes of a requested size are found or told; inputs that are tried are in the domain and exact."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, InputError, Precision, Rotary, Verdict, verify
from symattn.arrays.formats import Format
from symattn.bounds.called_target import Argument, Convention, Outcome
from symattn.bounds.case_result import Case
from symattn.bounds.contracts import Contract
from symattn.bounds.inputs import Sizes
from symattn.bounds.judge import judge, of_attention
from symattn.bounds.sharp.limits import Stores
from symattn.verification.arithmetic.aims import _Search, aims
from symattn.verification.arithmetic.bits_of_a_call import Trial
from symattn.verification.arithmetic.ranking import Pair, Ranking
from symattn.verification.arithmetic.rungs import judge_jointly, some_rows
from symattn.verification.arithmetic.suspects import BitSample
from symattn.verification.definitions import attention_output
from symattn.verification.engine import Session
from symattn.verification.probing.probes import climb
from symattn.verification.reduce import reduce
from tests.faults.programs import plain
from tests.formats import FORMATS
from tests.verification.kernels import HALF, Array, kernel

CAUSAL, BF16 = Attention(causal=True), Format("bfloat16")
Function = Callable[[Array, Array, Array], Array]


def half(dtype: str = "bfloat16", **kinds: object) -> Function:
    return lambda q, k, v: kernel(q, k, v, dtype, **kinds)  # type: ignore[arg-type]


@pytest.mark.deep
def test_the_worst_case_shows_what_it_can() -> None:
    report = verify(plain, power={"scale": 1e-3, "normalize": 1e-3}, examples=5)
    assert report.verdict is Verdict.NO_FAULT
    assert [one.seen for one in report.sought] == [True, True]
    assert "A scale that is 0.1 % off would be detected by the worst-case bound" in report.document().text()
    assert report.document().record["sought"][0]["share"] == 1e-3


@pytest.mark.deep
def test_what_the_worst_case_does_not_show_is_undecided() -> None:
    report = verify(plain, power={"scale": 1e-7}, examples=5)
    assert report.verdict is Verdict.UNDECIDED
    assert any(
        "that is 1e-05 % off would not be detected: the worst-case bound in float32" in m for m in report.missing
    )


@pytest.mark.deep
def test_outputs_show_together_what_bits_do_not_tell() -> None:
    rng = np.random.default_rng(0)
    inputs = {n: BF16.rounded(rng.standard_normal((256, 80))) for n in "qkv"}
    given = [inputs[n].astype(HALF["bfloat16"]) for n in "qkv"]
    unknown = Ranking((Pair(Contract(BF16), None, 0.8, 0.8),))
    for scale, contract, seen in ((1.006, "fused", True), (1.0, "fused", False), (1.006, "eager", False)):
        got = half(scale=scale, exponential=1e-4)(*given).astype(float)
        session: Any = SimpleNamespace(precision=Precision.of("bfloat16", contract), attention=CAUSAL, together=None)
        trial = Trial(BitSample(CAUSAL, inputs, got, BF16), unknown, False)
        fault = judge_jointly(session, trial)
        assert judge_jointly(session, trial) is fault  # not judged again
        assert (fault is not None) == seen
        assert fault is None or (fault.step == "scale" and "scores were scaled by 1.00" in fault.message)


def test_only_steps_with_a_number_can_be_asked_for() -> None:
    for power, words in (
        ({"mask": 0.1}, "known: scale, normalize"),
        ({"scale": 2}, "between 0 and 1"),
        ({"scale": True}, "between 0 and 1"),
    ):
        with pytest.raises(InputError, match=words):
            verify(plain, power=power)
    with pytest.raises(InputError, match="hint: parts of numbers by steps"):
        verify(plain, power=[("scale", 0.1)])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="known: softcap, normalize"):
        aims(Attention(scale=1, softcap=3.0), {"scale": 0.1})
    (cap,) = aims(Attention(softcap=30.0), {"softcap": 0.01})
    assert cap.right == 30


@pytest.mark.deep
@pytest.mark.parametrize(
    ("dtype", "scale"), [("bfloat16", 1.0001), pytest.param("float16", 0.9999, marks=pytest.mark.exhaustive)]
)
def test_bits_show_a_scale_and_a_kernel_that_has_it_is_found(dtype: str, scale: float) -> None:
    power = {"scale": 1e-4}
    report = verify(half(dtype, stores="w"), CAUSAL, precision=dtype, power=power, examples=5)
    assert report.verdict is Verdict.NO_FAULT
    assert report.sought[0].how.startswith("by the bits of a call")
    report = verify(half(dtype, stores="w", scale=scale), CAUSAL, precision=dtype, power=power, examples=5)
    assert report.verdict is Verdict.FAULT
    assert report.faults[0].step == "scale"
    assert f"scaled by {scale:g}" in report.faults[0].message


@pytest.mark.deep
def test_a_scale_that_roundings_swallow_is_told() -> None:
    report = verify(half(stores="s", causal=True), CAUSAL, precision="bfloat16", power={"scale": 1e-6}, examples=5)
    assert report.verdict is Verdict.UNDECIDED
    assert any("would not be detected: " in words for words in report.missing)


@pytest.mark.deep
def test_means_over_more_tokens_show_what_bits_do_not() -> None:
    told: dict[str, Any] = {"precision": "bfloat16", "contract": "fused", "examples": 5}
    told |= {"power": {"scale": 1.5e-3}, "domain": Domain(min_tokens=200, max_tokens=1100)}
    report = verify(half(stores="p", exponential=1e-4), CAUSAL, **told)
    assert not report.faults
    assert report.sought[0].seen
    assert "weighted means over" in report.sought[0].how


@pytest.mark.exhaustive
def test_without_means_more_tokens_show_nothing() -> None:
    told: dict[str, Any] = {"power": {"scale": 1.5e-3}, "domain": Domain(min_tokens=200, max_tokens=300)}
    report = verify(half(stores="p", exponential=1e-4), CAUSAL, precision="bfloat16", examples=5, **told)
    assert any("--contract fused" in words for words in report.missing)


@pytest.mark.parametrize(("contract", "words"), [("fused", "are not judged of this"), (None, "hint: --contract fused")])
def test_why_means_do_not_show_it_is_told(contract: Any, words: str) -> None:
    """Not to do what has been done already."""
    trial = SimpleNamespace(ranking=SimpleNamespace(best=SimpleNamespace(share=0.5)))
    session: Any = SimpleNamespace(trial=trial, precision=Precision.of("bfloat16", contract), attention=CAUSAL)
    (aim,) = aims(CAUSAL, {"scale": 0.001})
    assert words in _Search(session, (aim,))._explain_undetected_aim(aim)


@pytest.mark.deep
def test_what_is_spent_for_a_power_is_not_taken_from_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    def sought(session: Session, aims: object) -> tuple[tuple[Any, ...], None]:
        session.effort.spend(calls=1e9)
        return (), None

    monkeypatch.setattr("symattn.verification.arithmetic.aims.sought", sought)
    report = verify(plain, power={"scale": 1e-3}, examples=5)
    assert not any("some cases were not tried" in note for note in report.notes)
    assert report.verdict is Verdict.UNDECIDED
    assert report.missing == ("mistakes of the sizes that were requested were not tried; hint: raise --budget",)


def test_scales_that_are_stored_are_told_apart() -> None:
    words = {Contract(Format("bfloat16"), scale=way).words for way in ("", "factor", "divisor", "base 2")}  # type: ignore[arg-type]
    assert len(words) == 4


@pytest.mark.deep
def test_means_at_growing_sizes_are_a_fault_where_they_are_beyond() -> None:
    q = np.random.default_rng(0)
    made = {name: BF16.rounded(q.standard_normal((4, 512, d))) for name, d in (("q", 80), ("k", 80), ("v", 64))}
    for scale, wrong in ((1.0, False), (1.004, True)):
        function = half(stores="p", exponential=1e-4, scale=scale)
        got = np.stack([function(*one) for one in zip(*made.values(), strict=True)])
        grown = some_rows(CAUSAL, made, got.astype(float), Stores(BF16, 0), "4 × 512 tokens")
        assert (grown.fault is not None) == wrong
    assert grown.fault is not None
    assert "beyond rounding to nearest in bfloat16" in grown.fault.message
    assert grown.fault.step == "scale"


QKV = ("q", "k", "v")
TOKENS = ("x", "w_q", "w_k", "w_v", "w_o", "b_o")


def _session_of(spec: Attention, convention: Convention, domain: Domain) -> Session:
    """A verification of a function that is never called."""
    runner: Any = SimpleNamespace(convention=convention)
    return Session(runner, attention_output.subject(spec), Precision.of(convention.dtype), domain, 1, 0, 60.0)


def _session(
    names: tuple[str, ...] = QKV, dtype: str = "float32", domain: Domain | None = None, **spec: object
) -> Session:
    attention = Attention(**spec)  # type: ignore[arg-type]
    extra = [n for n, used in (("mask", attention.mask), ("keep", attention.padding)) if used]
    convention = Convention(tuple(Argument(n, n) for n in (*names, *extra)), dtype=dtype)
    return _session_of(attention, convention, domain or Domain())


def _inputs_of(session: Session, group: str) -> list[dict[str, np.ndarray]]:
    """The inputs of the cases of a group."""
    source = session.subject.source
    cases = (source.first() | source.later())[group](session, np.random.default_rng(1))
    return [dict(case.inputs) for case in cases]


def _all(session: Session) -> list[dict[str, np.ndarray]]:
    source = session.subject.source
    found = [inputs for group in (*source.first(), *source.later()) for inputs in _inputs_of(session, group)]
    return found + [dict(case.inputs) for case in source.drawn(session, 40)]


@pytest.mark.parametrize(("form", "layout"), [("bk", "bhnd"), ("b11k", "bhnd"), ("bk", "bnd"), ("lengths", "bhnd")])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_masks_of_a_batch_differ(form: str, layout: str, heads: int) -> None:
    arguments = (*(Argument(n, n) for n in QKV), Argument("keep", "keep", form=form))
    if layout == "bnd" and heads > 1:
        return
    spec = Attention(padding=True, heads=heads)
    session = _session_of(spec, Convention(arguments, layout=layout, dtype="float32"), Domain())
    batches = [i for i in _inputs_of(session, "shapes") if i["keep"].ndim > 1]
    assert len(batches) >= 3
    assert any(not (i["keep"] == i["keep"][:1]).all() for i in batches)
    for inputs in batches:
        assert np.isfinite(spec(**inputs)).all()
        if form == "lengths":
            assert (np.diff(inputs["keep"].astype(int), axis=-1) <= 0).all()


def test_rows_without_any_key_occur_where_they_are_promised() -> None:
    for promised in (False, True):
        session = _session(mask="boolean", domain=Domain(fully_masked_rows=promised))
        found = [i["mask"].any(axis=-1).all() for i in _all(session)]
        assert all(found) is not promised


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_forbidden_keys_score_so_high_that_all_others_vanish(dtype: str) -> None:
    for fields in ({"causal": True}, {"mask": "boolean"}):
        vanished, session, spec = 0, _session(dtype=dtype, **fields), Attention(**fields)
        for inputs in _inputs_of(session, "mask"):
            values = spec.trace(**inputs)
            allowed = np.isfinite(values["masked"])
            below = np.max(values["masked"], axis=-1) - np.max(values["scaled"], axis=-1, where=~allowed, initial=-1)
            vanished += int((below < np.log(float(session.precision.score.eta))).sum())
        assert vanished > 5


def test_square_projections_are_tried() -> None:
    found = _inputs_of(_session(TOKENS, heads=2), "structure")
    square = [i for i in found if len({i[n].shape for n in ("w_q", "w_k", "w_v", "w_o")}) == 1]
    assert len(square) >= 3
    assert all((i[n] != i[n].T).any() for i in square for n in ("w_q", "w_k", "w_v", "w_o"))


def test_scores_behind_masks_leave_room_below_unless_more_is_promised() -> None:
    def largest(**given: Any) -> float:
        return _session(**given).maker.largest_score

    assert largest(mask="boolean") < 65504
    assert largest(mask="boolean", domain=Domain(max_abs_score=1e5)) == 1e5
    assert largest(mask="boolean", domain=Domain(max_abs_score=3)) == 3
    assert largest(mask="boolean", dtype="float16", domain=Domain(max_abs_score=1e5)) < 65504
    assert largest() == np.inf


def test_places_that_half_types_cannot_tell_apart_are_tried() -> None:
    for tokens, least in ((300, 257), (2200, 2049)):
        session = _session(position=Rotary(), domain=Domain(max_tokens=tokens))
        longest = [len(i["k"]) for i in _inputs_of(session, "positions")]
        assert tokens >= max(longest) >= least


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [257, 513, 1025])
def test_a_key_that_is_lost_or_doubled_shows_at_every_length_in_every_format(n: int, causal: bool, dtype: str) -> None:
    session, spec = _session(dtype=dtype, causal=causal), Attention(causal=causal)
    cases = session.subject.source.last()["long"](session, np.random.default_rng(1))
    inputs = dict(next(case.inputs for case in cases if case.name == f"one or two keys of {n} take all the weight"))
    right = spec(**inputs)
    for key in (0, 255, 256, n - 1):
        again = {x: np.concatenate((inputs[x][key : key + 1], inputs[x])) for x in "kv"}  # in front: causal rows see it
        doubled = spec(q=inputs["q"], **again)
        lost = spec(q=inputs["q"], **{x: np.where(np.arange(n)[:, None] == key, inputs[x][5], inputs[x]) for x in "kv"})
        fused = Precision.of(dtype, "fused")
        for output, precision, finding in (
            (right, fused, None), (lost, session.precision, "values"), (doubled, fused, "values"),
        ):  # fmt: skip
            if not (causal and key == n - 1 and output is doubled):  # one query alone sees the last key
                legal = of_attention(spec, precision, inputs)
                judged = judge(legal, precision, Case("long", "", inputs), Outcome(output, dtype, output.shape))
                assert judged.finding == finding


def test_climbing_keeps_what_is_worse_and_stays_in_the_format() -> None:
    session, seen = _session(mask="boolean", dtype="float16"), []
    maker = session.maker

    def size(inputs: dict[str, np.ndarray]) -> float:
        seen.append(inputs)
        return float(np.abs(inputs["q"]).sum())

    start = maker.make(Sizes(3, 5, 4, 2), lambda name, shape: np.ones(shape), np.random.default_rng(0))
    rng = np.random.default_rng(1)
    altered = session.subject.source.altered
    assert climb(lambda inputs: altered(session, inputs, rng), start, size(start), 200, size) == max(
        map(size, list(seen))
    )
    assert max(map(size, list(seen))) > size(start)
    assert all(np.array_equal(maker.precision.input.rounded(i["q"]), i["q"]) for i in seen)
    assert all(i["mask"] is start["mask"] or np.array_equal(i["mask"], start["mask"]) for i in seen)


def test_dimensions_differ_in_every_pair() -> None:
    seen = {(i["q"].shape[0], i["k"].shape[0], i["k"].shape[1], i["v"].shape[1]) for i in _all(_session())}
    for a in range(4):
        for b in range(a):
            assert {s[a] > s[b] for s in seen} == {True, False}
            assert any(s[a] == s[b] for s in seen)
    assert any(s[2] > 64 for s in seen)
    assert {15, 16, 17, 31, 33, 64, 65, 127, 128, 129, 192} <= {s[1] for s in seen}
    assert {63, 64, 65, 128} <= {s[2] for s in seen}


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

    small = reduce(
        inputs, lambda i: bool((i["k"] >= 5).any()), attention_output.subject(Attention()).source.axes(inputs)
    )
    assert {n: a.shape for n, a in small.items()} == {"q": (1, 1), "k": (1, 1), "v": (1, 1)}
    assert small["q"].tolist() == [[0.0]]
    assert 5 <= small["k"][0, 0] <= 9


def test_reducing_takes_heads_apart_evenly() -> None:
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 4), "w_q": (4, 6), "w_k": (4, 6), "w_v": (4, 4), "w_o": (4, 4)}
    inputs = {n: rng.integers(1, 9, s).astype(float) for n, s in shapes.items()}
    small = reduce(inputs, lambda i: i["x"].size >= 2, attention_output.subject(Attention(heads=2)).source.axes(inputs))
    assert small["w_q"].shape[1] == small["w_k"].shape[1] == 2
    assert small["w_o"].shape[0] == small["w_v"].shape[1] == 2
