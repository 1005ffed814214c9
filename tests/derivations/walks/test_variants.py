"""Every variant walks, exactly where it can be, else known by balls; the check says no to what is wrong."""

import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import flint
import numpy as np
import pytest

from symattn import (
    Alibi,
    Attention,
    Buckets,
    Disentangled,
    Grade,
    Latent,
    Rotary,
    Shaw,
    Undecided,
    kinds,
    printing,
    walk,
)
from symattn.attention.inputs import holds
from symattn.attention.variants import VARIANTS
from symattn.derivations import examples
from symattn.derivations.enclosed import Enclosed
from symattn.derivations.variants import Support
from symattn.derivations.walks.walk_data import Walk
from tests.attention.test_variants import list_refusing_kinds
from tests.derivations.asking import agrees


@cache
def inputs(name: str) -> dict[str, Any]:
    """The example of a variant as nested lists of exact numbers, truth values and whole numbers."""
    variant = VARIANTS[name]
    lifted = np.frompyfunc(lambda x: kinds.Quotient.of(Fraction(float(x))), 1, 1)
    return {n: (lifted(a) if holds(n, variant.spec) == "numbers" else a).tolist()
            for n, a in Support(name, variant).example.items()}  # fmt: skip


def walk_of(spec: Attention, inputs: dict[str, Any]) -> Walk:
    """A walk in float64 through a sheet with these inputs."""
    return Walk(replace(examples.load("E0"), attention=spec, inputs=inputs), "float64")


@cache
def walked(name: str) -> Walk:
    return walk_of(VARIANTS[name].spec, inputs(name))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_step_is_what_the_tokens_give(name: str) -> None:
    walk = walked(name)
    assert agrees(walk)
    grades = {walk.evidence(step).grade for step in [*walk.pipeline, "weighted"]}  # type: ignore[union-attr]
    assert grades <= {Grade.CHECKED, Grade.ENCLOSED}
    assert (Grade.ENCLOSED in grades) == is_in_balls(walk, name)


def is_in_balls(walk: Walk, name: str) -> bool:
    """Return whether balls alone know some step: exact numbers refuse the variant, or a sum of many heads is long."""
    projects = any(step.errors == "projects" for step in walk.pipeline.values())
    # Each head's weights have a denominator with a term for each key.
    terms = walk.arrays["weights"].shape[-1] ** VARIANTS[name].spec.heads if projects else 0
    return "exact" in list_refusing_kinds(name) or terms > 300


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
        index = next(i for i in np.ndindex(array.shape) if not isinstance(array[i], kinds.Forbidden))
        array[index] = array[index] + kinds.Quotient.of(Fraction(1, 10**9))
        assert not agrees(walk, steps=(step.name,), **{step.name: array}), step.name


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
        turned = replace(walk.sheet.attention, position=other.position)
        wrong = walk_of(turned, inputs(name))
        assert agrees(wrong, steps=(step,))
        assert not agrees(wrong, steps=(step,), **{step: walk.arrays[step]})
        return
    assert not agrees(walk, other, (step,))


def test_heads_read_in_the_other_order_are_noticed() -> None:
    walk = walked("grouped-query")
    for role in "kv":
        shared, own = walk.arrays[f"{role}_shared"], walk.arrays[role]
        tiled = np.concatenate([own] * (shared.shape[0] // own.shape[0]))
        assert not agrees(walk, steps=(f"{role}_shared",), **{f"{role}_shared": tiled})


def test_values_leave_the_field_where_they_must_and_not_before() -> None:
    walk = walked("softcap")
    enclosed = {name: any(isinstance(x, Enclosed) for x in walk.arrays[name].flat) for name in walk.pipeline}
    assert enclosed == {"scores": False, "scaled": False, "capped": False, "weights": True, "output": True}


def test_long_denominators_are_not_written() -> None:
    """Nine terms tanh have a common denominator of 3⁹ terms, and six heads of three keys one of 3⁶."""
    units = replace(VARIANTS["additive"], sizes={"l_a": 9, "d_w": 9, "d_s": 6})
    lifted = np.frompyfunc(lambda x: kinds.Quotient.of(Fraction(float(x))), 1, 1)
    many = {n: lifted(a).tolist() for n, a in Support("additive", units).example.items()}
    scores = walk_of(units.spec, many)
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
    lifted = np.frompyfunc(lambda x: kinds.Quotient.of(Fraction(float(x))), 1, 1)
    walk = walk_of(spec, {n: lifted(a).tolist() for n, a in example.items()})
    assert agrees(walk)
    other = replace(spec, latent=replace(latent, eps=0))
    assert not agrees(walk, other, ("c_kv",))


# -- what only balls are known of --------------------------------------------------------------------------------------
def blurred(*values: str, of: str = "output", cap: int = 3, **how: Any) -> tuple[dict[str, Any], str]:
    """A step of a walk, and its text: each value has two keys, whose weights only balls are known of; the output is
    the mean of the values."""
    inputs = {"q": [[1]], "k": [[1], [2]] * len(values), "v": [[x] for x in values for _ in (1, 2)]}
    document = walk(inputs, softcap=cap, **how)
    entries = {entry["name"]: entry for entry in document.record["steps"]}
    return entries[of], " ".join(document.text().split())


@pytest.mark.parametrize("number", ["sqrt(2)", "exp(1)", "exp(-40)", "-exp(3)", "10**9*sqrt(3)", "exp(25)"])
def test_digits_are_those_of_the_number(number: str) -> None:
    entry, text = blurred(number)
    exact = kinds.Quotient.of(number)
    assert entry["grade"] is Grade.ENCLOSED
    assert entry["exact"] == ((None,),)
    assert entry["decimal"] == ((exact.to_float(),),)
    with flint.ctx.workprec(300):
        ball = flint.arb(entry["enclosed"][0][0][1:-1])
        assert ball.overlaps(exact.arb(300))
        assert not ball.overlaps((exact + exact * Fraction(1, 10**60)).arb(300))
    shown = exact.decimal(9).replace("-", "−", not number.endswith("-40)"))
    assert re.search(rf"decimal \[ *{re.escape(shown)}\]", text), text


def test_a_ball_that_does_not_say_gives_fewer_digits() -> None:
    wide = Enclosed(flint.arb("1.2331", "1e-3"), 256)
    assert wide.shown(9) == "1.23"
    with pytest.raises(Undecided):
        wide.decimal(9)


def test_a_ball_around_zero_has_no_digits() -> None:
    entry, text = blurred("sqrt(2)", "-sqrt(2)")
    assert "decimal [<1e-1231]" in re.sub(r"\[ +", "[", text)
    assert "0 digits proven" in entry["where"]
    assert entry["ulps"] == [[None]]


def test_errors_are_those_of_the_exact_number() -> None:
    for number in ("sqrt(2)", "exp(-3)", "-exp(2)"):
        entry, _ = blurred(number, dtype="float16")
        (((got,),),) = (entry["computed"],)
        exact = kinds.Quotient.of(number).to_float()
        assert entry["ulps"] == [
            [pytest.approx(abs(got - exact) / float(np.spacing(np.float16(abs(exact)))), rel=1e-9)]
        ]
    # Where the ball spans two spacings, it is the smaller one.
    entry, _ = blurred("4", cap=4, dtype="float16")
    assert (entry["computed"], entry["ulps"]) == (((4 - 2.0**-9,),), [[1.0]])


def enclosed(text: str) -> Enclosed:
    """A ball around an exact number, so that its digits are known."""
    return Enclosed(kinds.Quotient.of(text).arb(256), 256)


def test_arithmetic_with_exact_numbers() -> None:
    root = enclosed("sqrt(2)")
    for made, wanted in (
        (root + 1, "1+sqrt(2)"),
        (kinds.Quotient.of("1/3") * root, "sqrt(2)/3"),
        (1 / root, "1/sqrt(2)"),
        (Fraction(1, 2) - root, "1/2-sqrt(2)"),
        (-root, "-sqrt(2)"),
        (abs(-root), "sqrt(2)"),
    ):
        assert made.overlaps(kinds.Quotient.of(wanted)), wanted
        assert not made.overlaps(kinds.Quotient.of(wanted) + Fraction(1, 10**60)), wanted
    assert root.apply("exp").decimal(12) == "4.11325037878"
    exact = Enclosed(flint.arb(0.375), 256) + 0
    assert isinstance(exact, kinds.Quotient)
    assert exact == Fraction(3, 8)


def test_zero_times_a_ball_is_zero_exactly() -> None:
    entry, _ = blurred("0", "sqrt(2)", of="weighted")
    assert entry["exact"] == ((("0",), ("0",), (None,), (None,)),)


def test_equality_is_never_said() -> None:
    root = enclosed("sqrt(2)")
    assert root != enclosed("sqrt(2)")
    assert root < 2
    assert root > Fraction(7, 5)
    gap = root - enclosed("sqrt(2)")
    with pytest.raises(Undecided):
        gap.is_zero()
    with pytest.raises(Undecided):
        _ = gap < 0
    with pytest.raises(Undecided):
        gap.decimal(9)


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
    text = " ".join(printing.render(document, "text").split())
    assert "no closed form of them is known whose equality with another could be decided" in text
    assert "weights, weighted and output" in text


def test_weights_that_do_not_sum_to_one_are_not_said_to() -> None:
    document = walk("decoder-step")
    assert "sums to 1" not in printing.render(document, "text")
    assert "a weighted sum of the values" in printing.render(document, "text")


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
