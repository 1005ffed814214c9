"""The bound from enclosures, for variants, is that in balls, rounded up; and cases are judged by it as by balls."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import (
    Alibi,
    Attention,
    Buckets,
    Domain,
    LinearScaling,
    NTKScaling,
    Precision,
    Refused,
    Rotary,
    kind,
    kinds,
)
from symattn.attention.inputs import lengths
from symattn.bounds import enclosed, exponents, reference
from symattn.bounds.balls import allowed
from symattn.bounds.called_target import Argument, Convention
from symattn.bounds.case_result import are_within, shares
from symattn.bounds.inputs import Maker
from symattn.bounds.judge import Traced, expected
from symattn.bounds.reference import run
from tests.verification.test_bounds_fast import PRECISIONS as EVERY

Enclosure = kind("enclosure")

GIVEN = Alibi(slopes="given", two_sided=True)
SPECS = {
    "rotary": Attention(position=Rotary()),
    "rotary, causal, heads": Attention(
        heads=4, kv_heads=2, causal=True, position=Rotary(layout="interleaved", width=2)
    ),
    "rotary, stretched": Attention(position=Rotary(scaling=LinearScaling(factor=4)), window=3, causal=True),
    "capped": Attention(softcap=2, heads=2),
    "additive mask": Attention(mask="additive"),
    "bias": Attention(bias=True, softcap=5),
    "slopes": Attention(heads=2, causal=True, position=Alibi()),
    "slopes given, sink": Attention(heads=2, position=GIVEN, sink="given"),
    "buckets": Attention(position=Buckets(number=4, max_distance=8)),
    "normed": Attention(qk_norm="rms", eps=1e-5, sink="zero"),
    "distances": Attention(score="distance"),
    "powers of two": Attention(base=2, sink="given"),
}
#: Of tokens: what is given beside x, and which of x and y are there.
TOKENS = {
    "one head": (Attention(), "w_q w_k w_v w_o"),
    "without w_o": (Attention(heads=2), "w_q w_k w_v b_v"),
    "heads, biases": (Attention(heads=2, causal=True), "w_q w_k w_v w_o b_q b_k b_v b_o"),
    "grouped, cross, sink": (Attention(heads=4, kv_heads=2, sink="given"), "y w_q w_k w_v w_o sink"),
    "packed": (Attention(heads=2, packed=True), "w_in b_in w_o b_o"),
    "rotary": (Attention(heads=2, causal=True, position=Rotary()), "w_q w_k w_v w_o"),
    "normed": (Attention(qk_norm="rms", eps=1e-5), "w_q w_k w_v w_o"),
    "tokens alone": (Attention(causal=True), ""),
}
PRECISIONS = {name: precision for name, precision in EVERY.items() if name != "e4m3"}
WIDEST = 1.05


def inputs(spec: Attention, p: Precision, rng: np.random.Generator) -> dict[str, Any]:
    """Random inputs of few tokens: some with zeros, far apart, or with an offset."""
    n_k, d = int(rng.integers(1, 9)), 2 * int(rng.integers(1, 4))
    n_q = int(rng.integers(1, n_k + 1))
    heads, keys = ((spec.heads,), (spec.key_heads,)) if spec.heads > 1 else ((), ())
    shapes = {"q": (*heads, n_q, d), "k": (*keys, n_k, d), "v": (*keys, n_k, 2)}
    if spec.bias:
        shapes["bias"] = (*heads, n_q, n_k)
    if isinstance(spec.position, Buckets):
        shapes["b_rel"] = (spec.position.number, spec.heads)
    shapes |= {"sink": (spec.heads,)} if spec.sink == "given" else {}
    shapes |= {"slopes": (spec.heads,)} if spec.position == GIVEN else {}
    size = rng.choice([0.5, 1.0, 6.0])
    made: dict[str, Any] = {name: p.input.rounded(rng.standard_normal(s) * size) for name, s in shapes.items()}
    if rng.random() < 0.3:
        made["q"][..., : d // 2] = 0
    if rng.random() < 0.3:
        made["v"] = p.input.rounded(made["v"] + 8)
    if spec.mask:
        forbidden = rng.random((n_q, n_k)) < 0.3
        made["mask"] = np.where(forbidden, -np.inf, p.input.rounded(rng.standard_normal((n_q, n_k))))
    return made


def of_tokens(variant: str, p: Precision, rng: np.random.Generator) -> dict[str, Any]:
    """Random tokens and projections, of sizes at which scores are moderate."""
    spec, names = TOKENS[variant][0], ("x", *TOKENS[variant][1].split())
    n_q, n_k, d = (int(n) for n in rng.integers(1, 6, 3))
    sizes = {"n_q": n_q, "n_k": n_k, "d_model": d, "d_y": d, "d_k": 2, "d_s": 2, "d_v": 2, "d_out": 3}
    made = {name: rng.standard_normal(lengths(name, spec, names, sizes)) for name in names}
    size = rng.choice([0.5, 1.0, 3.0])
    made["x"] *= size
    if "w_v" in made and rng.random() < 0.3:
        made["w_v"][:, 0] = 0
    return {name: p.input.rounded(a) for name, a in made.items()}


def _compared(spec: Attention, p: Precision, given: dict[str, Any]) -> np.ndarray:
    """The bound from enclosures as a part of that in balls, where both say something.

    The balls are so sharp that no weight of an unlikely key makes their radii larger than what is compared.
    """
    assert enclosed.encloses(spec, given)
    fast = enclosed.of_run(run(spec, given, kind=Enclosure), p)[0]
    with kinds.precision(512), np.errstate(invalid="ignore"):
        ball = allowed(run(spec, given), p)
        assert fast.shape == ball.shape
        return np.asarray(np.where(np.isinf(fast), 1.0, fast / ball))


#: Variants of queries, keys and values, and those of tokens; with how inputs are made.
VARIANTS = {name: (spec, partial(inputs, spec)) for name, spec in SPECS.items()} | {
    f"tokens: {name}": (spec, partial(of_tokens, name)) for name, (spec, _) in TOKENS.items()
}


def _many(variant: str, name: str, seed: int, cases: int) -> None:
    """The bound is at no place below that in balls, and nowhere near twice as large."""
    (spec, make), p, rng, wide = VARIANTS[variant], PRECISIONS[name], np.random.default_rng(seed), []
    for _ in range(cases):
        found = _compared(spec, p, make(p, rng))
        assert found.min() >= 1
        wide.append(float(np.median(found)))
    assert np.median(wide) <= WIDEST


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_not_below_the_one_in_balls(variant: str) -> None:
    for name in ("fp32", "fp64", "bf16 eager") if variant in SPECS else ("fp32",):
        _many(variant, name, 51, 2)


_MANY = [(variant, name) for variant in VARIANTS for name in PRECISIONS if variant in SPECS or name != "fp64"]


@pytest.mark.deep
@pytest.mark.parametrize(("variant", "name"), _MANY)
def test_it_is_not_below_for_many(variant: str, name: str) -> None:
    _many(variant, name, 52, 30 if variant in SPECS else 8)


_BY_PART = {
    "roundings of values": (exponents, "rate", lambda f: 0.0),
    "monomials of values": (
        enclosed,
        "_enclosed_value_parts",
        lambda run, p, whole=enclosed._enclosed_value_parts: [a * 0.999 for a in whole(run, p)],
    ),
    "the output projection": (
        enclosed,
        "bound_output",
        lambda *given, whole=enclosed.bound_output: (0.999 * whole(*given)[0], False),
    ),
}


@pytest.mark.parametrize("part", _BY_PART)
def test_a_part_of_the_bound_for_tokens_that_is_too_small_is_seen(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison for tokens can fail, for each part that they add."""
    p, rng = PRECISIONS["fp32"], np.random.default_rng(63)
    monkeypatch.setattr(*_BY_PART[part])
    given = of_tokens("heads, biases", p, rng)
    assert _compared(TOKENS["heads, biases"][0], p, given).min() < 1


def test_values_whose_radius_is_not_negligible_are_left_to_balls() -> None:
    """In float64 the enclosures are about as wide as what is allowed."""
    p, rng = PRECISIONS["fp64"], np.random.default_rng(64)
    with pytest.raises(Refused, match="what the values are"):
        enclosed.of_run(run(TOKENS["one head"][0], of_tokens("one head", p, rng), kind=Enclosure), p)[0]


def test_values_that_are_sums_of_zeros_are_enclosed_too() -> None:
    """Probes of tokens select parts of them, so that most products are 0: the bound is that in balls, too."""
    spec, p = Attention(heads=3, causal=True), PRECISIONS["fp32"]
    names = ("x", "w_q", "w_k", "w_v", "w_o")
    convention = Convention(tuple(Argument(n, n) for n in names))
    maker = Maker(spec, convention, p, Domain(square_weights=True, square=True))
    probe = maker.from_heads(np.eye(4, 3), np.ones((4, 3)), 2 * np.eye(4, 3))
    assert probe is not None
    assert {probe[n].shape for n in names} == {(4, 9), (9, 9)}
    ratios = _compared(spec, p, probe)
    assert 1 <= ratios.min() <= np.median(ratios) <= WIDEST


@pytest.mark.parametrize("variant", ["rotary", "capped", "additive mask"])
def test_a_bound_that_is_a_part_smaller_is_told_from_it(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail: without one of six roundings of constants the bound is below."""
    p, rng = PRECISIONS["fp32"], np.random.default_rng(53)
    given = inputs(SPECS[variant], p, rng)
    fewer = run(SPECS[variant], given, kind=Enclosure)
    with kinds.precision(128):
        ball = allowed(run(SPECS[variant], given), p)
    monkeypatch.setattr("symattn.bounds.scores.SCALE_ROUNDINGS", 5)
    assert (enclosed.of_run(fewer, p)[0] < ball).any()


def _lowered(p: Precision, low: float, rng: np.random.Generator) -> dict[str, Any]:
    given = inputs(SPECS["additive mask"], p, rng)
    mask = np.where(rng.random(given["mask"].shape) < 0.5, p.input.rounded(np.float64(low)), 0.0)
    mask[:, 0] = 0.0
    return given | {"mask": mask}


@pytest.mark.parametrize(
    ("name", "low"), [("fp32", -1e9), ("fp32", -3.4028e38), ("fp64", -1e9), ("bf16 eager", -1e9), ("bf16 eager", -3e38)]
)
def test_keys_that_a_mask_lowers_count_as_forbidden(name: str, low: float) -> None:
    """The bound is that for −∞ in the mask, in floats as in balls, where −10⁹ or about the least number is added."""
    p, rng, spec = PRECISIONS[name], np.random.default_rng(56), SPECS["additive mask"]
    given = _lowered(p, low, rng)
    forbidden = given | {"mask": np.where(given["mask"] < 0, -np.inf, 0.0)}
    found = _compared(spec, p, given)
    assert found.min() >= 1
    fast, other = (enclosed.of_run(run(spec, x, kind=Enclosure), p)[0] for x in (given, forbidden))
    assert np.isfinite(fast).all()
    np.testing.assert_allclose(fast, other, rtol=0.03)


def test_a_key_that_is_not_far_enough_below_is_none_of_them() -> None:
    """At −80 an exponential of float32 is no underflow; rows of which all keys are lowered are left as they are."""
    p, rng, spec = PRECISIONS["fp32"], np.random.default_rng(57), SPECS["additive mask"]
    for low, kept in ((-80.0, 0.0), (-1e9, -1e9)):
        given = _lowered(p, low, rng)
        given["mask"][:, 0] = kept if low == kept else 0.0
        given["mask"] = np.full_like(given["mask"], low) if low == kept else given["mask"]
        assert not any(scores.far.any() for scores in _blocks_of(run(spec, given, kind=Enclosure), p))


def _blocks_of(reference: Any, p: Precision) -> list[Any]:
    seen: list[Any] = []
    found = enclosed.EnclosureBound.put
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enclosed.EnclosureBound, "put", lambda self, at, s, v: (seen.append(s), found(self, at, s, v)))
        enclosed.of_run(reference, p)
    return seen


def test_a_score_of_which_nothing_is_known_is_refused() -> None:
    """Scores that may be undefined are no forbidden ones."""
    given = {"q": np.ones((1, 2)), "k": np.zeros((2, 2)), "v": np.ones((2, 1))}
    found = run(Attention(qk_norm="l2"), given, kind=Enclosure)
    with pytest.raises(Refused, match="which scores"):
        enclosed.of_run(found, PRECISIONS["fp32"])


@pytest.mark.parametrize("variant", SPECS)
def test_cases_are_judged_as_by_balls(variant: str) -> None:
    """Ratios by enclosures are those by balls, on both sides of what is allowed, and for NaN and infinity."""
    p, rng = PRECISIONS["fp32"], np.random.default_rng(54)
    right = expected(SPECS[variant], inputs(SPECS[variant], p, rng), p)
    assert right.run.kind is Enclosure
    in_balls = Traced.of(right.in_balls, right.allowed)
    for far in (0.0, 0.5, 0.999, 1.001, 30.0, np.inf, np.nan):
        got = np.nan_to_num(right.near) + far * right.allowed
        np.testing.assert_allclose(right.ratios(got), in_balls.ratios(got), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scaling", [None, NTKScaling(factor=4, length=4)])
def test_tables_of_angles_that_are_kept_are_those_of_each_length(scaling: NTKScaling | None) -> None:
    """Shorter ones are parts of longer ones; where frequencies depend on the length they are made anew."""
    spec = Attention(position=Rotary(scaling=scaling))
    for n in (3, 70, 5):
        given = {name: np.ones((n, 6)) for name in "qkv"}
        kept = run(spec, given, kind=Enclosure).values["cos"]
        made = spec.trace(**{name: Enclosure.lift(a) for name, a in given.items()})["cos"]
        assert kept.plain_shape == (n, 3)
        np.testing.assert_array_equal(kept.mid, made.mid)
        np.testing.assert_array_equal(kept.rad, made.rad)


def test_what_enclosures_leave_open_balls_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    p, rng = PRECISIONS["fp32"], np.random.default_rng(55)
    given = inputs(SPECS["rotary"], p, rng)
    right = expected(SPECS["rotary"], given, p)
    at = right.near + right.allowed  # nobody can tell from enclosures on which side of the bound this is
    wide = np.full(right.allowed.shape, 2.0**-10) * right.allowed
    right.run.values["output"] = Enclosure(right.near, wide)
    _, sure = shares(at, right.run.output.mid, right.run.output.rad, right.allowed)
    assert not sure.all()
    assert (abs(right.ratios(at) - 1) < 1e-6).all()


TRAINED = NTKScaling(factor=2, length=4)


def tables(position: Rotary, n: int) -> list[tuple[Any, Any]]:
    """Cosines and sines for n places of 4 columns, as a run has them and as their step makes them."""
    spec, q = Attention(position=position), Enclosure.lift(np.zeros((n, 4)))
    steps = [s for s in spec.pipeline(frozenset("qkv")) if s.name in ("cos", "sin")]
    return [(reference._run_angle_step(s, spec, [q]), s.run(q)) for s in steps]


@pytest.mark.parametrize(
    "position", [Rotary(), Rotary(start=-3), Rotary(triples=((3, 4, 5),)), Rotary(scaling=TRAINED)]
)
def test_a_table_that_is_kept_is_that_of_each_length(position: Rotary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "_ANGLES", {})
    for n in (3, 1, 70, 5, 64):
        for kept, made in tables(position, n):
            np.testing.assert_array_equal(kept.mid, made.mid)
            np.testing.assert_array_equal(kept.rad, made.rad)


def test_tables_that_are_kept_are_no_larger_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "_ANGLES", {})
    monkeypatch.setattr(reference, "_MOST_NUMBERS", 400)
    for start, n in ((0, 5), (1, 5), (2, 5), (3, 300), (4, 5)):
        tables(Rotary(start=start), n)
        assert reference._ANGLES
        assert sum(a.mid.size for a in reference._ANGLES.values()) <= 400


def test_entries_are_within_limits_where_their_ratio_is_at_most_1() -> None:
    strange = [np.nan, np.inf, -np.inf, 0.0, 1.0, 1.0 + 2.0**-45, 1.0 + 2.0**-30, -1.0, 1e300]
    got, middle, limits = map(np.ravel, np.meshgrid(strange, strange, [0.0, 2.0**-45, 1.0, np.inf]))
    ratios, _ = shares(got, middle, 0.0, limits)
    defined = ~np.isnan(middle)
    assert np.array_equal(are_within(got, middle, limits)[defined], (ratios <= 1)[defined])
    # What is undefined is not judged.
    assert are_within(got, middle, limits)[~defined].all()
