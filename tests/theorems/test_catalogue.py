"""Every theorem: what each is worth is listed, so that a lost proof shows; certificates; topics; wording."""

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from symattn import Grade, functional, kind, printing, proving, streaming, theorems
from symattn.attention import linear
from symattn.theorems.as_printed import AsPrinted, Following
from tests.golden.freeze import stored
from tests.lanes import one_in
from tests.proof.certificate_mutants import certificates_of

Exact = kind("exact")

#: The theorems that are not proved.
GRADES = {
    "argued": (
        "unscaled-mean-gradient-decays-slowly",
        "softmax-half-lipschitz",
        "softmax-cocoercive",
        "not-globally-lipschitz",
        "window-receptive-field",
        "alibi-tail",
        "softcap",
        "sparsemax",
        "layernorm-invariance",
        "layernorm-jacobian",
        "power-kernel-features",
        "delta-rule-chunk",
        "erasing-any-length",
        "erasing-chunk",
        "dot-product-error",
        "one-hot-saturation",
        "shifted-softmax-error",
    ),
    "searched": (
        "score-rank",
        "exp-kernel-full-rank",
        "exp-overflow-threshold",
        "underflow-threshold",
        "power-of-two-scale-exact",
        "low-precision-sum-stagnates",
        "fp16-mask-constant",
        "masked-row-nan",
    ),
}
LONG = ("backward-norms", "backward-shared-heads", "backward-causal")


def test_every_theorem_is_listed():
    assert list(theorems.catalogue()) == list(stored("theorems"))


def test_the_page_on_trust_counts_those_without_code():
    def by_print(method: Any) -> bool:
        if isinstance(method, Following):
            return by_print(method.printed) and by_print(method.steps)
        return isinstance(method, AsPrinted) or (
            isinstance(method, proving.Together) and all(map(by_print, method.parts))
        )

    printed = [t for t in theorems.catalogue().values() if by_print(t.method)]
    page = (Path(__file__).parents[2] / "docs/trust.md").read_text(encoding="utf-8")
    assert f"Of the {len(theorems.catalogue())} theorems {len(printed)} have no code beside their print" in page
    assert {name for names in GRADES.values() for name in names} < set(theorems.catalogue())


@pytest.mark.parametrize("topic", theorems.TOPICS)
def test_a_topic_holds_its_theorems(topic: str):
    assert {t.topic for t in theorems.of_topic(topic)} == {topic}


@pytest.mark.parametrize(
    "theorem", one_in(6, [t for t in theorems.catalogue().values() if t.name not in LONG]), ids=lambda t: t.name
)
def test_theorem(theorem: proving.Theorem):
    holds(theorem)


@pytest.mark.deep
@pytest.mark.parametrize("name", LONG)
def test_a_theorem_that_takes_long(name: str):
    holds(theorems.catalogue()[name])


def holds(theorem: proving.Theorem) -> None:
    """The theorem has its grade, its false variants are refuted, and numbers meet its hypotheses."""
    outcome = proving.decide(theorem)
    assert outcome.refutation.refuted, "a false variant was not refuted"
    assert not outcome.refutation.accepted, "the prover accepts a false variant"
    assert outcome.witness, "no numbers were found that meet the hypotheses"
    grade = next((grade for grade, names in GRADES.items() if theorem.name in names), "proved")
    assert outcome.grade.value == grade, outcome.decision


#: What is wrong in which line of a definition, and the theorem that notices.
MISTAKES: list[tuple[Callable[..., object], str, str, str]] = [
    (functional.normalise, "keepdims=True), fully", "keepdims=True) ** 2, fully", "softmax-shift"),
    (streaming.tile_state, "s - reference(m)", "reference(m) - s", "two-block-merge"),
    (streaming.merge, "a.accumulated * w_1 +", "a.accumulated +", "two-block-merge"),
    (streaming.finish, "accumulated / nonempty", "accumulated * nonempty", "two-block-merge"),
    (functional.causal, "j <= i", "j < i", "causal-first-row"),
    (functional.window, "width - 1", "width", "window-receptive-field"),
    (functional.forbid, "allowed, s, -xp.inf", "allowed, -xp.inf, s", "mask-is-restriction"),
    (linear._state_after, "whole - sums", "0 - sums", "linear-rnn-chunks"),
    (streaming.delta_token, "decayed(state, g)", "state", "delta-rule-gated"),
    (streaming.erasing_token, "if before else", "if not before else", "erasing-step"),
    (linear.chunk_of_erased, "output - of_erased", "output + of_erased", "erasing-chunk"),
    (streaming.step_read_before, "bonus * k", "k", "read-before-bonus"),
    (linear.decayed_scores, "- sums[..., None, :, :]", "+ sums[..., None, :, :]", "linear-rnn-split-decay"),
]


@pytest.mark.parametrize(("function", "right", "wrong", "name"), MISTAKES, ids=[m[0].__name__ for m in MISTAKES])
def test_a_mistake_in_a_definition_is_noticed(
    function: Callable[..., object], right: str, wrong: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Theorems are about the code that runs: with a mistake in it they are no longer proved."""
    source, changed = inspect.getsource(function), {}
    assert right in source
    exec(source.replace(right, wrong), function.__globals__, changed)
    monkeypatch.setattr(function, "__code__", changed[function.__name__].__code__)
    method = theorems.catalogue()[name].method
    parts = {"parts": tuple(map(replace, method.parts))} if isinstance(method, proving.Together) else {}
    assert replace(method, **parts).decide().evidence.grade in (Grade.REFUTED, Grade.UNDECIDED)


# Equations of which both sides are one expression before anything is simplified: they hold by definition, as is printed
# of them, and here is by which one. No step of algebra is left to look at. They stand in docs/trust.md as well.
SAME = {
    "heads-concat-is-sum": (1, "a row of blocks times a column of blocks is the sum of the products"),
    "query-rows-independent": (2, "a row of the output is written with its own query alone"),
}


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize("topic", theorems.TOPICS)
def test_the_checker_accepts_what_was_proved_as_it_is_written(topic: str):
    for theorem in theorems.of_topic(topic):
        made = certificates_of(theorem)
        for certificate in made:
            verdict = proving.check(certificate, Random(0))
            assert verdict.accepted, f"{theorem.name}: {verdict.why}"
        found = Counter(e["left"] == e["right"] for c in made for e in c.get("equations", ()))
        assert found[True] == SAME.get(theorem.name, (0,))[0], theorem.name


def _stochastic(rng: np.random.Generator, n: int, mask: np.ndarray | None = None) -> np.ndarray:
    p = rng.uniform(0.01, 1, (n, n)) ** 3 * (1 if mask is None else mask)
    return p / p.sum(axis=1, keepdims=True)


def _osc(x: np.ndarray) -> float:
    return float(x.max() - x.min())


@pytest.mark.parametrize("seed", range(20))
def test_spreads_of_many_layers_in_numbers(seed: int):
    """The inductions over layers, which the theorems state as a rule."""
    rng = np.random.default_rng(seed)
    n, depth = int(rng.integers(2, 7)), 5
    x = start = rng.normal(size=n)
    bound = 1.0
    for _ in range(depth):
        p = _stochastic(rng, n)
        delta = max(abs(a - b).sum() / 2 for a in p for b in p)
        assert delta <= 1 - n * p.min() + 1e-12
        assert _osc(p @ x) <= delta * _osc(x) + 1e-12
        x, bound = p @ x, bound * (1 - n * p.min())
    assert _osc(x) <= bound * _osc(start) + 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_causal_layers_draw_all_tokens_to_the_first_in_numbers(seed: int):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    x = start = rng.normal(size=n)
    bound = 1.0
    for _ in range(5):
        p = _stochastic(rng, n, np.tril(np.ones((n, n))))
        x, bound = p @ x, bound * (1 - p[:, 0].min())
    assert x[0] == start[0]
    assert abs(x - x[0]).max() <= bound * abs(start - start[0]).max() + 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_a_unit_key_recalls_its_value(seed: int):
    """The proof is by parts; here is what they give together."""
    shapes = {"s": "f d_v", "k": "1 f", "v": "1 d_v"}
    world, declared = proving.Numbers({"f": 3, "d_v": 2}, seed), proving.Declared(shapes)
    s, k, v = (world.array(name, shape, declared) for name, shape in shapes.items())
    assert (functional.unit(k) @ streaming.delta_step(s, functional.unit(k), v, 1) == v).all()


@pytest.mark.parametrize(("n", "width", "depth"), [(4, 1, 2), (4, 2, 1), (5, 2, 2), (5, 2, 3), (6, 3, 2)])
def test_the_receptive_field_of_several_layers(n: int, width: int, depth: int):
    """The induction over layers, in numbers: where the product of the weights of all layers is not 0."""
    scores = Exact.lift([[i * j % 3 for j in range(n)] for i in range(n)])
    weights = functional.softmax(functional.forbid(scores, functional.window(scores, width)))
    product = weights
    for _ in range(depth - 1):
        product = weights @ product
    i, j = np.indices((n, n))
    assert np.array_equal(product != 0, (i - depth * (width - 1) <= j) & (j <= i))


@pytest.mark.parametrize("x", [[1, 2, 4], [0, -1, 3], [5, 5, 4]])
def test_layer_norm_of_an_affine_image_as_a_whole(x: list[int]):
    """The proof is by parts; here is what they give together."""
    row = Exact.lift([x])
    assert (functional.layer_norm(3 * row - 7) == functional.layer_norm(row)).all()
    assert (functional.layer_norm(-3 * row + 7) == -functional.layer_norm(row)).all()


def test_no_step_of_a_proof_is_a_hypothesis():
    for theorem in theorems.catalogue().values():
        assert not [h for h in map(printing.plain_text, theorem.hypotheses) if "shown" in h.lower()], theorem.name


def test_every_theorem_says_why_and_has_a_source():
    for theorem in theorems.catalogue().values():
        said = map(printing.plain_text, (theorem.says, theorem.why, theorem.false_says))
        assert all([*said, theorem.source]), theorem.name
