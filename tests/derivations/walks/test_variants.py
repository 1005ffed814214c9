"""Every variant walks, exactly where it can be, else known by balls; the check says no to what is wrong."""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import flint
import numpy as np
import pytest

from symattn import Alibi, Attention, Buckets, Disentangled, Grade, Latent, Rotary, Shaw, Undecided, walk
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.formats import Format
from symattn.arrays.special import Forbidden
from symattn.attention.inputs import holds
from symattn.attention.variants import VARIANTS
from symattn.derivations.enclosed import (
    Enclosed,
    ball_json,
    ball_of,
    decimal_json,
    digits,
    exact_json,
    least_proven,
    taken,
)
from symattn.derivations.sheets.sheet import Sheet
from symattn.derivations.variants import Support
from symattn.derivations.walks.run import binade, error
from symattn.derivations.walks.walk_data import Walk
from symattn.derivations.walks.walk_entries import step_agrees
from symattn.document.notation import Words
from symattn.document.render import render
from tests.derivations.asking import agrees

IN_BALLS = {
    "additive", "softcap", "base 2", "multi-query", "grouped-query, of tokens", "rotary, true frequencies",
    "decoder step", "temperature by place", "log-n scaling",
}  # fmt: skip


@cache
def inputs(name: str) -> dict[str, Any]:
    """The example of a variant as nested lists of exact numbers, truth values and whole numbers."""
    variant = VARIANTS[name]
    lifted = np.frompyfunc(lambda x: Quotient.of(Fraction(float(x))), 1, 1)
    return {n: (lifted(a) if holds(n, variant.spec) == "numbers" else a).tolist()
            for n, a in Support(name, variant).example.items()}  # fmt: skip


@cache
def walked(name: str) -> Walk:
    sheet = Sheet(name, name, VARIANTS[name].spec, inputs(name))
    return Walk(sheet, "float64")


@pytest.mark.parametrize("name", VARIANTS)
def test_every_step_is_what_the_tokens_give(name: str) -> None:
    walk = walked(name)
    assert agrees(walk)
    grades = {walk.evidence(step).grade for step in [*walk.pipeline, "weighted"]}  # type: ignore[union-attr]
    assert grades <= ({Grade.CHECKED, Grade.ENCLOSED} if name in IN_BALLS else {Grade.CHECKED})


def cover() -> list[str]:
    """Variants that have every step, and every score and normaliser, among them."""
    left: dict[str, set[str]] = {}
    for name, variant in VARIANTS.items():
        steps = {step.name for step in variant.spec.pipeline(variant.names)}
        left[name] = steps | {variant.spec.score, variant.spec.normaliser, str(type(variant.spec.position))}
    chosen = []
    while any(left.values()):
        best = max(left, key=lambda name: len(left[name]))
        chosen.append(best)
        seen = left[best]
        left = {name: rest - seen for name, rest in left.items()}
    return chosen


@pytest.mark.parametrize("name", cover())
def test_a_wrong_entry_is_noticed_at_every_step(name: str) -> None:
    walk = walked(name)
    for step in walk.pipeline.values():
        array = walk.arrays[step.name].copy()
        index = next(i for i in np.ndindex(array.shape) if not isinstance(array[i], Forbidden))
        array[index] = array[index] + Quotient.of(Fraction(1, 10**9))
        assert step_agrees({**walk.arrays, step.name: array}, walk.request, step) is False, step.name


ONE_WAY = Buckets(number=4, max_distance=3, bidirectional=False)
LATENT = VARIANTS["rotary, latent"].spec
WRONG: list[tuple[str, str, Attention]] = [
    ("rotary, half", "q_rotated", Attention(position=Rotary(triples=((3, 4, 5), (5, 12, 13)), layout="interleaved"))),
    ("rotary, half", "cos", Attention(position=Rotary(triples=((3, 4, 5), (5, 12, 13)), start=1))),
    ("rotary, half", "sin", Attention(position=Rotary(triples=((3, -4, 5), (5, 12, 13))))),
    ("rotary, half", "q_rotated", replace(VARIANTS["rotary, half"].spec, alignment="top-left")),
    ("rotary, true frequencies", "cos", Attention(position=Rotary(base=100))),
    (
        "T5 buckets",
        "positioned",
        Attention(heads=2, scale=1, causal=True, position=Buckets(number=4, max_distance=3, bidirectional=False)),
    ),
    ("Shaw", "positioned", Attention(position=Shaw(most=1))),
    ("Shaw", "output", Attention(position=Shaw(most=1))),
    ("ALiBi, given slopes", "positioned", Attention(heads=3, position=Alibi(slopes="given"), causal=True)),
    ("DeBERTa", "positioned", Attention(heads=2, position=Disentangled(span=2, backwards=False))),
    ("DeBERTa", "scaled", Attention(heads=2, position=Disentangled(span=2, to_content=False))),
    ("causal", "masked", Attention(causal=True, alignment="top-left")),
    ("sliding window", "masked", Attention(causal=True, window=3)),
    ("window of two sides", "masked", Attention(window=(1, 0))),
    ("local blocks", "masked", Attention(causal=True, block=3)),
    ("prefix", "masked", Attention(causal=True, prefix=4)),
    ("packed documents", "masked", Attention(documents=True)),
    ("padding", "masked", Attention(padding=True, causal=True)),
    ("softcap", "capped", Attention(softcap=3)),
    ("sink", "weights", Attention(heads=2, sink="zero")),
    ("softmax off by one", "weights", Attention()),
    ("sigmoid", "weights", Attention(normaliser="sigmoid", bias=True)),
    ("sparsemax", "weights", Attention(normaliser="entmax")),
    ("dropout", "dropped", Attention(dropout=0.5)),
    ("base 2", "weights", Attention()),
    ("log-sum-exp returned", "lse", Attention(sink="zero", lse=True)),
    ("RMS norm of q and k", "q_normed", Attention(qk_norm="rms")),
    ("LayerNorm of q and k", "k_normed", Attention(qk_norm="rms")),
    ("cosine", "scores", Attention(score="distance")),
    ("1/d_k", "scaled", Attention()),
    ("rotary, latent", "q_r_rotated", replace(LATENT, position=Rotary(triples=((3, 4, 5),), layout="half", start=2))),
]


@pytest.mark.parametrize(("name", "step", "other"), WRONG, ids=str)
def test_another_specification_is_noticed(name: str, step: str, other: Attention) -> None:
    """The arrays of one specification are not those of another, at the step where they differ."""
    walk = walked(name)
    if step in ("cos", "sin", "q_r_rotated"):
        wrong = Walk(Sheet(name, name, replace(walk.sheet.attention, position=other.position), inputs(name)), "float64")
        made = wrong.arrays | {n: walk.arrays[n] for n in (step,)}
        assert step_agrees(made, replace(walk.request, spec=other), wrong.pipeline[step]) is False
        return
    made, wrong = replace(walk.request, spec=other), {s.name: s for s in other.pipeline(walk.sheet.inputs)}
    assert step_agrees(walk.arrays, made, wrong[step]) is False


def test_heads_read_in_the_other_order_are_noticed() -> None:
    walk = walked("grouped-query")
    for role in "kv":
        shared, own = walk.arrays[f"{role}_shared"], walk.arrays[role]
        tiled = np.concatenate([own] * (shared.shape[0] // own.shape[0]))
        arrays = {**walk.arrays, f"{role}_shared": tiled}
        assert step_agrees(arrays, walk.request, walk.pipeline[f"{role}_shared"]) is False


def test_values_leave_the_field_where_they_must_and_not_before() -> None:
    walk = walked("softcap")
    kinds = {name: any(isinstance(x, Enclosed) for x in walk.arrays[name].flat) for name in walk.pipeline}
    assert kinds == {"scores": False, "scaled": False, "capped": False, "weights": True, "output": True}


def test_long_denominators_are_not_written() -> None:
    """Nine terms tanh have a common denominator of 3⁹ terms, and six heads of three keys one of 3⁶."""
    units = replace(VARIANTS["additive"], sizes={"l_a": 9, "d_w": 9, "d_s": 6})
    lifted = np.frompyfunc(lambda x: Quotient.of(Fraction(float(x))), 1, 1)
    many = {n: lifted(a).tolist() for n, a in Support("additive", units).example.items()}
    scores = Walk(Sheet("it", "it", units.spec, many), "float64")
    assert all(isinstance(x, Enclosed) for x in scores.arrays["scores"].flat)
    assert agrees(scores)
    assert not any(isinstance(x, Enclosed) for x in walked("additive").arrays["scores"].flat)
    assert any(isinstance(x, Enclosed) for x in walked("multi-query").arrays["output"].flat)
    assert not any(isinstance(x, Enclosed) for x in walked("multi-head").arrays["output"].flat)


@pytest.mark.deep
def test_latents_with_norms_and_their_own_queries() -> None:
    latent = Latent(queries=True, norm="rms", eps=Fraction(1, 3))
    spec = Attention(heads=2, latent=latent)
    names = "x w_dq w_uq w_dkv w_uk w_uv w_kr g_ckv g_cq"
    made = replace(VARIANTS["latent"], spec=spec, given=names)
    example = Support("latent", made).example
    lifted = np.frompyfunc(lambda x: Quotient.of(Fraction(float(x))), 1, 1)
    walk = Walk(Sheet("it", "it", spec, {n: lifted(a).tolist() for n, a in example.items()}), "float64")
    assert agrees(walk)
    other = replace(spec, latent=replace(latent, eps=0))
    wrong = {step.name: step for step in other.pipeline(walk.sheet.inputs)}
    assert step_agrees(walk.arrays, replace(walk.request, spec=other), wrong["c_kv"]) is False


BITS = 256


def enclosed(text: str, bits: int = BITS) -> Enclosed:
    """A ball around an exact number, so that its digits are known."""
    ball = ball_of(Quotient.of(text), bits)
    assert ball is not None
    return Enclosed(ball, bits)


@pytest.mark.parametrize("text", ["sqrt(2)", "exp(1)", "exp(-40)", "-exp(3)", "10**9*sqrt(3)", "exp(60)"])
@pytest.mark.parametrize("count", [3, 9, 17])
def test_digits_are_those_of_the_number(text: str, count: int) -> None:
    assert enclosed(text).decimal(count) == Quotient.of(text).decimal(count)


def test_a_ball_that_does_not_say_gives_fewer_digits() -> None:
    wide = Enclosed(flint.arb("1.2331", "1e-3"), BITS)
    assert wide.shown(9) == "1.23"
    with pytest.raises(Undecided):
        wide.decimal(9)


def test_a_ball_around_zero_has_no_digits() -> None:
    gap = enclosed("sqrt(2)") - enclosed("sqrt(2)")
    assert isinstance(gap, Enclosed)
    assert gap.proven() == 0
    assert digits(gap, 9) == Words(gap.shown(9))
    assert gap.shown(9).startswith("<1e-7")
    with pytest.raises(Undecided):
        gap.is_zero()
    with pytest.raises(Undecided):
        _ = gap < 0
    assert error(Format("float32"), gap, 0.0) is None


def test_arithmetic_with_exact_numbers() -> None:
    root = enclosed("sqrt(2)")
    for made, wanted in (
        (root + 1, "1+sqrt(2)"),
        (Quotient.of("1/3") * root, "sqrt(2)/3"),
        (1 / root, "1/sqrt(2)"),
        (Fraction(1, 2) - root, "1/2-sqrt(2)"),
        (-root, "-sqrt(2)"),
        (abs(-root), "sqrt(2)"),
    ):
        assert made.overlaps(Quotient.of(wanted)), wanted
        assert not made.overlaps(Quotient.of(wanted) + Fraction(1, 10**60)), wanted
    assert root.apply("exp").decimal(12) == "4.11325037878"


def test_zero_times_a_ball_is_zero_exactly() -> None:
    product = Quotient.of(0) * enclosed("sqrt(2)")
    assert isinstance(product, Quotient)
    assert product.is_zero()
    assert taken(flint.arb(0.375), BITS) == Fraction(3, 8)


def test_equality_is_never_said() -> None:
    assert enclosed("sqrt(2)") != enclosed("sqrt(2)")
    assert enclosed("sqrt(2)") < 2
    assert enclosed("sqrt(2)") > Fraction(7, 5)
    assert least_proven([Quotient.of(1)]) is None
    assert least_proven([enclosed("sqrt(2)"), enclosed("sqrt(2)", 64)]) < 20  # type: ignore[operator]


def test_errors_are_those_of_the_exact_number() -> None:
    for text, c in (("sqrt(2)", 1.4142135381698608), ("exp(-3)", 0.0497870706), ("-exp(2)", -7.4)):
        exact = error(Format("float32"), Quotient.of(text), c)
        assert error(Format("float32"), enclosed(text), c) == pytest.approx(exact, rel=1e-12)
    assert binade(enclosed("sqrt(2)")) == 0
    assert binade(Enclosed(flint.arb(4, 1e-30), BITS)) == 1  # the smaller spacing where the ball spans two


def test_what_json_has() -> None:
    root = enclosed("sqrt(2)")
    assert exact_json(root) is None
    assert decimal_json(root) == 2**0.5
    assert ball_json(root).startswith("[1.41421356237309504880168872420969")
    assert ball_json(Quotient.of("sqrt(2)")) is None


def test_a_walk_says_which_digits_are_proven() -> None:
    document = walk("additive")
    entries = {entry["name"]: entry for entry in document.record["steps"]}
    weights = entries["weights"]
    assert weights["grade"] is Grade.ENCLOSED
    assert "digits proven" in weights["where"]
    assert all(x is None for x in weights["exact"][0])
    for ball, decimal in zip(weights["enclosed"][0], weights["decimal"][0], strict=True):
        assert ball[1:14] == f"{decimal:.15f}"[:13]
    assert "enclosed" not in entries["scores"]
    assert document.verdict_word == "enclosed"
    text = " ".join(render(document, "text").split())
    assert "no closed form of them is known whose equality with another could be decided" in text
    assert "weights, weighted and output" in text


def test_weights_that_do_not_sum_to_one_are_not_said_to() -> None:
    document = walk("decoder-step")
    assert "sums to 1" not in render(document, "text")
    assert "a weighted sum of the values" in render(document, "text")


def test_rounded_weights_that_only_balls_are_known_of(run, refused) -> None:
    ran = run("walk", "decoder-step", "--rounding", "nearest", "-f", "json")
    assert ran.status == 0, ran.stderr
    assert list(ran.json["roundings"]) == ["nearest"]
    assert ran.json["roundings"]["nearest"]["weights"][2][0] == ["0", "1/10", "2/5", "3/10", "1/5"]
    assert "no exact sum to keep" in refused("walk", "decoder-step", "--rounding", "sum")


def test_a_norm_of_zero_is_undefined_and_said_to_be(run) -> None:
    ran = run("walk", "E1", "--qk-norm", "layer", "-f", "json")
    entries = {entry["name"]: entry for entry in ran.json["steps"]}
    assert entries["q_normed"]["exact"] == [
        ["0", "-sqrt(6)/2", "sqrt(6)/2"],
        [None] * 3,
        ["0", "-sqrt(6)/2", "sqrt(6)/2"],
    ]
    assert entries["q_normed"]["grade"] == "checked"
    assert "each of 2 rows sums to 1 exactly; 1 undefined" in entries["weights"]["where"]
    assert entries["weights"]["computed"][1] == ["nan"] * 3
