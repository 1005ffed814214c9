"""A template, a definition or a step that is wrong is not told."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Grade, Undecided, derive, functional, proving, theorems
from symattn import printing as pr
from symattn.derivations import (
    delta_rule,
    derivation_texts,
    erasing,
    implemented,
    jacobian,
    linear_rnn,
    rope,
    scaling,
    scaling_numpy,
    scaling_typical,
)
from symattn.derivations.attention import expressions as attention_expressions
from symattn.derivations.attention.inputs import read_request
from symattn.derivations.cited import cite
from symattn.derivations.derivation_texts import DerivationText
from symattn.proof import gaussian
from symattn.proof.relations import functions
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.section import Section
from symattn.proof.rules import Fold
from symattn.theorems.as_printed import AsPrinted
from tests.letters import MU, SIGMA, letters_of, mean, q, s, var

SCORE = letters_of(4, "μ")
MASKED = Attention(causal=True, fully_masked="nan")
D_K = pr.name("d", "k")


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("shift", "e^c e^{s_i}", "e^c e^{s_j}"),
        ("lookup", "with $β > 0$", "with $β < 0$"),
        ("rope", "- sin(a) sin(b)", "+ sin(a) sin(b)"),
        ("sinks", "p_j: e^b/(e^b + Z)", "p_j: e^b/Z"),
        ("mla", "≠ 3 e²/(1 + e²)", "≠ 3 e²/(2 + e²)"),
        ("sinks", "1/(2 + e)]", "1/(1 + e)]"),
        ("backward", "-¼, 0, 0, 0]", "¼, 0, 0, 0]"),
        ("kv-cache", "o_2 = 3", "o_2 = 4"),
        ("linear-rnn", "(q ⊙ a) S + {q·k} v", "q S + {q·k} v"),
        ("delta-rule", "S′ = S + β kᵀ (v − k S)", "S′ = S + β kᵀ v"),
        ("erasing", "(diag(a) − rᵀ p) S", "(I − rᵀ p) S"),
    ],
)
def test_a_false_line_of_a_text_is_refused(name: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = derivation_texts.text_of(name)
    assert right in typed
    monkeypatch.setattr(derivation_texts, "text_of", lambda _: typed.replace(right, wrong))
    with pytest.raises(FalseStep):
        derive(name)


@pytest.mark.parametrize(
    ("derivation", "module", "name", "right", "wrong"),
    [
        ("scaling", scaling, "_VARIANCE", "Var(q_i k_i)", "Var(q_i)"),
        ("scaling", scaling, "_ZERO", "@mu = 0", "@mu = 1"),
        ("scaling", scaling, "_SCORE", "Σ_{i=1}^{d_k} q_i k_i\n", "Σ_{i=1}^{d_k} q_i q_i\n"),
        ("scaling", scaling, "_GAP", "gap- p_i (1 - p_i) ≤ ε ::", "gap- p_i (1 - p_i) ≤ ε² ::"),
        ("scaling", scaling_typical, "_TEXT", "$p_1 = 1/(1", "$p_2 = 1/(1"),
        ("jacobian", jacobian, "_TEXT", "= 2 (p_i - ½)²", "= 3 (p_i - ½)²"),
        ("lookup", implemented, "_LIMITS", "p_max → 1/t", "p_max → 1"),
    ],
)
def test_a_false_line_of_a_part_of_a_text_is_refused(
    derivation: str, module: Any, name: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = getattr(module, name)
    assert right in typed
    monkeypatch.setattr(module, name, typed.replace(right, wrong))
    with pytest.raises(FalseStep):
        derive(derivation)


def squared_scores(definition: Callable[..., Any]) -> Callable[..., Any]:
    return lambda s, **options: definition(s + s, **options)


def without_the_divisor(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda s, **options: s.__array_namespace__().exp(s)


@pytest.mark.deep
def test_a_theorem_that_is_not_proved_is_not_cited() -> None:
    shift = theorems.theorem_of("softmax", "softmax-shift")
    assert isinstance(shift.method, AsPrinted)
    identity = shift.method.identity
    assert cite(shift).evidence.where == "all sizes (softmax-shift)"
    fails = replace(identity, sides=lambda s, t: (functional.softmax(s * t), functional.softmax(s)))
    harmless = replace(identity, false=identity.sides)
    for method in (fails, harmless):
        with pytest.raises(FalseStep):
            cite(replace(shift, method=method))
    with pytest.raises(FalseStep, match="false"):
        cite(replace(shift, says=shift.false_says, false_says=()))


def rotated_back(_: Any) -> Callable[..., Any]:
    return lambda x, cos, sin: functional.rotate_interleaved(x, cos, -sin)


def doubled(definition: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays, **more: 2 * definition(*arrays, **more)


def without_last_argument(definition: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: definition(*arrays[:-1])


def set_to(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


#: The derivation, where the name stands that is spoilt, and how.
SPOILT: list[tuple[str, Any, str, Callable[[Any], Any]]] = [
    *(
        (name, functions, "_softmax", spoil)
        for name in ("jacobian", "scaling", "shift", "backward", "matrix-form")
        for spoil in (squared_scores, without_the_divisor)
    ),
    ("matrix-form", implemented, "ATTENTION", set_to(Attention(scale=1))),
    ("matrix-form", implemented, "ATTENTION", set_to(MASKED)),
    ("equivariance", implemented, "ATTENTION", set_to(MASKED)),
    ("linear-rnn", linear_rnn, "scores_of_run", doubled),
    ("delta-rule", delta_rule.linear, "delta_step", doubled),
    ("erasing", erasing.linear, "decayed_scores", doubled),
    ("erasing", erasing.linear, "chunk_read_before", without_last_argument),
    ("scaling", scaling_numpy, "cube", set_to(lambda *a: np.zeros((a[1], 4), dtype=np.int64))),
    ("scaling", scaling, "variance_formula", set_to(lambda setting, size: setting.formula(size + "σ²"))),
]
SLOW: list[tuple[str, Any, str, Callable[[Any], Any]]] = [
    ("online-softmax", implemented, "finish", doubled),
    ("online-softmax", implemented, "softmax", squared_scores),
    ("lookup", implemented, "softmax", squared_scores),
    ("lookup", implemented, "softmax", without_the_divisor),
    ("initialisation", implemented, "softmax", without_the_divisor),
    ("rope", rope, "rotate_interleaved", rotated_back),
    ("sinks", implemented, "sink_weights", doubled),
    ("gqa", implemented, "grouped_attention", doubled),
    ("mla", implemented, "ATTENTION", set_to(Attention(scale=2))),
    ("kv-cache", implemented, "_CAUSAL", set_to(Attention(causal=True, scale=2))),
]


@pytest.mark.parametrize(
    ("derivation", "module", "name", "spoil"), [*SPOILT, *(pytest.param(*row, marks=pytest.mark.deep) for row in SLOW)]
)
def test_another_definition_is_refused(
    derivation: str, module: Any, name: str, spoil: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, spoil(getattr(module, name)))
    with pytest.raises(FalseStep):
        derive(derivation)


THEOREMS = [
    ("backward", "gradients", "backward-dQ"),
    ("online-softmax", "streaming", "two-block-merge"),
    ("lookup", "softmax", "softmax-limits"),
    ("initialisation", "scaling", "projected-score-variance"),
    ("kv-cache", "streaming", "kv-cache-step"),
    ("rope", "positions", "rope-relative"),
    ("sinks", "scores", "sink-is-a-gate"),
    ("gqa", "heads", "gqa-is-mha"),
    ("mla", "heads", "mla-absorb"),
    ("delta-rule", "linear", "delta-rule-chunk"),
]


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize(("derivation", "topic", "name"), THEOREMS)
def test_a_theorem_that_fails_is_not_told(
    derivation: str, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its false variant in the place of the statement, and with a false variant that cannot be refuted."""
    theorem, honest = theorems.theorem_of(topic, name), theorems.theorem_of
    for method in (_swapped(theorem.method), _blind(theorem.method)):
        other = replace(theorem, method=method)
        cited = {(topic, name): other}
        monkeypatch.setattr(theorems, "theorem_of", lambda *of, cited=cited: cited.get(of) or honest(*of))
        with pytest.raises(FalseStep):
            derive(derivation)


def _swapped(method: Any) -> Any:
    if isinstance(method, proving.Together):
        return replace(method, parts=tuple(_swapped(part) for part in method.parts))
    if isinstance(method, AsPrinted):
        return replace(method, says=method.false_says, false_says=method.says)
    false = method.false[0] if isinstance(method.false, tuple) else method.false
    return replace(method, **{_stated(method): false})


def _blind(method: Any) -> Any:
    if isinstance(method, proving.Together):
        return replace(method, parts=tuple(_blind(part) for part in method.parts))
    if isinstance(method, AsPrinted):
        return replace(method, false_says=method.says)
    return replace(method, false=getattr(method, _stated(method)))


def _stated(method: Any) -> str:
    """The field of what a false variant stands in the place of."""
    return "merge" if isinstance(method, Fold) else "sides"


def refused(check: Callable[[], bool]) -> bool:
    """Whether the check says no, or cannot say yes."""
    try:
        return not check()
    except Undecided:
        return True


def test_weights_that_leak_are_noticed() -> None:
    asked = read_request(tokens=3, causal=True)
    inputs = asked.inputs()
    trace = asked.spec.trace(**inputs)["weights"]
    assert attention_expressions.zeros(trace, asked.allowed())
    assert attention_expressions.row_sums(trace, asked.allowed())
    assert not attention_expressions.zeros(trace, np.ones((3, 3), dtype=bool))
    assert not attention_expressions.zeros(Attention().trace(**inputs)["weights"], asked.allowed())
    assert refused(lambda: attention_expressions.row_sums(trace * 2, asked.allowed()))


def test_a_weight_of_a_forbidden_key_is_a_false_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert derive("attention", tokens=2, causal=True)
    monkeypatch.setattr(attention_expressions, "zeros", lambda *_: False)
    with pytest.raises(FalseStep, match="does not hold"):
        derive("attention", tokens=2, causal=True)


@pytest.mark.deep
def test_a_sample_too_far_off_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = scaling_numpy.drawn_scores
    monkeypatch.setattr(scaling_numpy, "drawn_scores", lambda *a: tuple(1.5 * x for x in honest(*a)))
    grades = [e.grade for e in derive("scaling", dk=32).evidence()]
    assert Grade.UNDECIDED in grades
    assert Grade.SAMPLED in grades  # the mean is still 0


@pytest.mark.deep
def test_bounds_notice_a_wrong_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    scaling_typical.of_gap.cache_clear()
    monkeypatch.setattr(gaussian, "mean_slope", lambda deviation: 1 / deviation)
    with pytest.raises(FalseStep):
        derive("scaling")
    scaling_typical.of_gap.cache_clear()


@pytest.mark.parametrize(
    ("letters", "left", "right", "where"),
    [
        (letters_of(4), var(s()), D_K * SIGMA**4, "all sizes, under A1–A3"),
        (SCORE, mean(s()), D_K * MU**2, "all sizes, under A1 and A2"),
        (SCORE, pr.At(mean(s()), pr.equals(D_K, 7)), 7 * MU**2, "d_k = 7, under A1 and A2"),
        (letters_of(4, section="end"), var(s(1) - s(2)), 2 * D_K * SIGMA**4, "all sizes, under A1–A3"),
    ],
)
def test_a_grade_names_the_assumptions_and_sizes_that_its_values_used(
    letters: Glossary, left: pr.Node, right: pr.Node, where: str
) -> None:
    evidence = Section(letters).claim(pr.equals(left, right), "").evidence
    assert evidence is not None
    assert evidence.where == where


def sections(name: str) -> dict[str, Section]:
    """The sections whose letters stand in the text of a derivation."""
    text = DerivationText({"weights": Glossary(defined={"p": lambda reader: functional.softmax(reader.arrays["t"])})})
    text.blocks(
        "\n".join(re.findall(r"^(?:letters|A\d \().*(?:\n    .*)*", derivation_texts.text_of(name), re.MULTILINE))
    )
    return text.sections


def test_a_claim_of_means_names_the_assumptions_about_its_arrays() -> None:
    section = sections("initialisation")[""]
    section.define(
        pr.equals(q("l"), pr.total("i", 1, pr.name("d", "model"), pr.name("x", "i") * pr.name("W_Q", "i", "l")))
    )
    evidence = section.claim(pr.equals(mean(q("l")), 0), "").evidence
    assert evidence is not None
    assert evidence.where == "all sizes, under A1 and A2"


def test_a_claim_names_the_assumption_that_says_what_its_array_is() -> None:
    drawn = sections("initialisation")["fixed"]
    weights, n_k = pr.name("p", "j"), pr.name("n", "k")
    evidence = drawn.claim(pr.equals(pr.total("j", 1, n_k, weights), 1), "").evidence
    assert evidence is not None
    assert evidence.where == "all sizes, under A3"
    evidence = drawn.claim(pr.equals(2 * n_k, n_k + n_k), "").evidence
    assert evidence is not None
    assert evidence.where == "all sizes"


def test_a_variance_is_claimed_of_arrays_alone_whose_law_is_an_assumption() -> None:
    glossary = sections("initialisation")["drawn"].glossary
    formula = pr.equals(var(pr.name("v", "j")), pr.Name("σ") ** pr.node(2))
    evidence = Section(glossary).claim(formula, "").evidence
    assert evidence is not None
    assert evidence.where == "all sizes, under A4"
    with pytest.raises(FalseStep, match="no assumption says how v is drawn"):
        Section(replace(glossary, labels={"A3": "p"})).claim(formula, "")
