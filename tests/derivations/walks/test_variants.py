"""Every variant walks: each step entry by entry, exact where it can be; and the check says no to what is wrong."""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.special import Forbidden
from symattn.attention.inputs import holds
from symattn.attention.latent import Latent
from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, Rotary, Shaw
from symattn.attention.spec import Attention
from symattn.attention.variants import VARIANTS
from symattn.derivations.enclosed import Enclosed
from symattn.derivations.sheets.sheet import Sheet
from symattn.derivations.variants import Support
from symattn.derivations.walks.walk_data import Walk
from symattn.derivations.walks.walk_entries import step_agrees
from symattn.document.evidence import Grade
from tests.derivations.asking import agrees

IN_BALLS = {
    "additive", "softcap", "base 2", "multi-query", "grouped-query, of tokens", "rotary, true frequencies",
    "decoder step",
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


@pytest.mark.parametrize("name", VARIANTS)
def test_floats_are_near(name: str) -> None:
    walk = walked(name)
    for step in walk.pipeline:
        exact = [x for x in walk.arrays[step].flat if not isinstance(x, Forbidden)]
        finite = [float(x) for x in np.asarray(walk.computed[step]).flat if x != -np.inf]
        far = [abs(c - x.to_float()) for x, c in zip(exact, finite, strict=True)]
        assert max(far, default=0) < 1e-9, step


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
