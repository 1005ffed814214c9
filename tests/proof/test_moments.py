"""Printed means and variances against the enumeration of discrete laws, and what is not proved of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from symattn import printing as pr
from symattn import proving
from symattn.proof.expectation import EntryLaw, law_with, multiplied_out
from symattn.proof.relations.comparing import FalseStep, NotDecided
from symattn.proof.relations.compiling import Compiled
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.section import Section
from tests.arrays.evaluating import Numbers
from tests.proof.identities import LAWS, Outcomes, expectation, moment, variance

NUMBERS = ("μ", "v", "m", "w")
FOUR = EntryLaw(NUMBERS, lambda μ, v, m, w: (μ, v, m, w), lambda *_: [])
"""A law by its first four cumulants."""
SKEW = EntryLaw(("μ",), lambda μ: (μ, 2, 2, -6), lambda μ: [(μ - 1, Fraction(2, 3)), (μ + 2, Fraction(1, 3))])


def letters(law: EntryLaw, **more: str) -> Glossary:
    given = {"q": "d_k", "k": "d_k", **dict.fromkeys(law.parameters, ""), **more}
    labels = {"A1": "q", "A2": "k"}
    index = {"i": "d_k", "j": "d_k"}
    return Glossary(given, {"d_k": "d_k"}, index, laws={"q": law, "k": law}, labels=labels, rows=True).where("s = q·k")


def value(typed: str, law: Outcomes, d: int) -> Fraction:
    """The mean for all d_k, then its value: the other order would only test one size."""
    compiled = Compiled(letters(FOUR), {})
    sides = compiled.function(lambda reader: (reader.one(pr.formula(typed)).array,) * 2)
    ((whole, _),) = proving.pairs(sides, compiled.declared, proving.Letters())
    first, second, third, fourth = (moment(law, n) for n in range(1, 5))
    v = second - first**2
    m = third - 3 * first * second + 2 * first**3
    w = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4 - 3 * v**2
    moments = dict(zip(NUMBERS, (first, v, m, w), strict=True))
    numbers = Numbers({name: (np.array(x, dtype=object), "") for name, x in moments.items()}, {"d_k": d})
    result: Fraction = numbers.value(multiplied_out(whole.at(())), {}).item().rational()
    return result


def score(x: Sequence[Fraction]) -> Fraction:
    d = len(x) // 2
    return sum((x[i] * x[d + i] for i in range(d)), Fraction(0))


STATISTICS: dict[str, Callable[[Outcomes, int], Fraction]] = {
    "E[s]": lambda law, d: expectation(law, 2 * d, score),
    "Var(s)": lambda law, d: variance(law, 2 * d, score),
    "E[s²]": lambda law, d: expectation(law, 2 * d, lambda x: score(x) ** 2),
    "E[s³]": lambda law, d: expectation(law, 2 * d, lambda x: score(x) ** 3),
    "E[s⁴]": lambda law, d: expectation(law, 2 * d, lambda x: score(x) ** 4),
    "Var(s/d_k)": lambda law, d: variance(law, 2 * d, score) / d**2,
    "Cov(s, Σ_{j=1}^{d_k} q_j)": lambda law, d: (
        expectation(law, 2 * d, lambda x: score(x) * sum(x[:d]))
        - expectation(law, 2 * d, score) * expectation(law, 2 * d, lambda x: sum(x[:d], Fraction(0)))
    ),
    "Σ_{i=1}^{d_k} Σ_{j=1}^{d_k} E[q_i q_j]": lambda law, d: expectation(law, d, lambda x: sum(x) ** 2),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_enumeration_agrees(law: str, statistic: str, d: int) -> None:
    assert value(statistic, LAWS[law], d) == STATISTICS[statistic](LAWS[law], d)


def cumulants_of(*moments: Fraction) -> tuple[Fraction, ...]:
    """The cumulants κ₁, …, κ₆ of a law by its moments: κ_n = m_n − Σ_{k<n} C(n − 1, k − 1) κ_k m_{n−k}."""
    found: list[Fraction] = []
    for n, moment_n in enumerate(moments, 1):
        lower = (comb(n - 1, k) * found[k] * moments[n - k - 2] for k in range(n - 1))
        found.append(moment_n - sum(lower))
    return tuple(found)


SIXTH: dict[str, Callable[[Sequence[Fraction]], Fraction]] = {
    "E[s⁶]": lambda x: score(x) ** 6,
    "E[s³ (Σ_{j=1}^{d_k} q_j)³]": lambda x: score(x) ** 3 * sum(x[: len(x) // 2]) ** 3,
    "E[s² (Σ_{j=1}^{d_k} q_j²)²]": lambda x: score(x) ** 2 * sum(y**2 for y in x[: len(x) // 2]) ** 2,
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("typed", SIXTH)
def test_the_sixth_order_agrees_with_enumeration(law: str, typed: str) -> None:
    known = cumulants_of(*(moment(LAWS[law], n) for n in range(1, 7)))
    compiled = Compiled(letters(EntryLaw((), lambda: known, lambda *_: [])), {})
    sides = compiled.function(lambda reader: (reader.one(pr.formula(typed)).array,) * 2)
    ((whole, _),) = proving.pairs(sides, compiled.declared, proving.Letters())
    for d in (1, 2):
        found = Numbers({}, {"d_k": d}).value(multiplied_out(whole.at(())), {}).item().rational()
        assert found == expectation(LAWS[law], 2 * d, SIXTH[typed])


@pytest.mark.deep
def test_the_variance_at_a_fourth_size() -> None:
    for law in LAWS.values():
        assert value("Var(s)", law, 4) == variance(law, 8, score)


ANY, CENTRED = letters(law_with("σ", "μ")), letters(law_with("σ"))
TWO = replace(
    ANY, given={"q": "d_k", "K": "2 d_k", "σ": "", "μ": ""}, index={"i": "d_k", "j": "2"}, defined={},
    laws=dict.fromkeys("qK", law_with("σ", "μ")), labels={"A1": "q", "A2": "K"},
).where("s_j = q·k_j")  # fmt: skip
P = {n: f"Σ_{{i=1}}^{{d_k}} q_i{'' if n == 1 else f'^{n}'}" for n in (1, 2, 3)}
NEWTON = f"E[{{{P[1]}}}³ - 3 {{{P[1]}}} {{{P[2]}}} + 2 {{{P[3]}}}]"
TRUE: list[tuple[Glossary, str]] = [
    (ANY, "Var(s) = d_k σ² (σ² + 2 μ²)"),
    (ANY, "E[q_1²] = σ² + μ²"),
    (CENTRED, "E[q_1²] = σ²"),
    (ANY, "Σ_{i=1}^{d_k} Σ_{j=1}^{d_k} E[q_i q_j] = d_k (d_k - 1) μ² + d_k (σ² + μ²)"),
    (letters(SKEW), f"{NEWTON} = d_k (d_k - 1) (d_k - 2) μ³"),
    (ANY, "Var(s/√d_k) = Var(s)/d_k"),
    (ANY, "E[s/√d_k] = d_k μ²/√d_k = √d_k μ²"),
    (TWO, "Cov(s_1, s_2) = d_k μ² σ²"),
    (TWO, "Var(s_1 - s_2) = 2 d_k σ² (σ² + μ²)"),
]  # fmt: skip
FALSE: dict[str, tuple[Glossary, str]] = {
    "a cross term is dropped": (ANY, "Var(s) = d_k σ⁴ + d_k μ² σ²"),
    "the mean is taken for 0": (ANY, "Var(s) = d_k σ⁴"),
    "the mean's square is forgotten in the difference": (ANY, "Var(s) = d_k (σ² + μ²)²"),
    "the identical term for the sum": (ANY, "Var(s) = σ² (σ² + 2 μ²)"),
    "the diagonal is forgotten": (ANY, "Σ_{i=1}^{d_k} Σ_{j=1}^{d_k} E[q_i q_j] = d_k² μ²"),
    "what vanishes at small sizes alone": (letters(SKEW), f"{NEWTON} = 0"),
    "a root that is lost": (ANY, "E[s/√d_k] = d_k μ²"),
    "keys that share no query": (TWO, "Var(s_1 - s_2) = Var(s_1) + Var(s_2)"),
}
REFUSED: dict[str, tuple[Glossary, str]] = {
    "a moment that is not declared": (ANY, "E[q_1³] = μ³ + 3 μ σ²"),
    "what may be one entry": (ANY, "E[q_1 Σ_{i=1}^{d_k} q_i] = d_k μ²"),
    "a letter that nobody declared": (ANY, "E[q_1 x] = μ x"),
    "an index beyond the size": (ANY, "E[q_2] = μ"),
    "a quotient by something random": (ANY, "E[q_1/k_1] = 1"),
    "a function of something random": (ANY, "E[exp(q_1)] = exp(μ)"),
    "a function beside a mean of 0": (CENTRED, "E[q_1 exp(k_1)] = 0"),
    "a quotient beside a mean of 0": (CENTRED, "E[q_1/k_1] = 0"),
    "a moment that need not exist beside a mean of 0": (CENTRED, "E[q_1 k_1³] = 0"),
    "the same of the other array": (CENTRED, "E[q_1³ k_1] = 0"),
    "a sum from 2 on": (ANY, "Σ_{i=2}^{d_k} E[q_i] = (d_k - 1) μ"),
    "a mean of nothing random": (ANY, "E[μ] = μ"),
}


@pytest.mark.parametrize(("glossary", "typed"), TRUE)
def test_a_moment_is_proved_for_all_sizes(glossary: Glossary, typed: str) -> None:
    evidence = Section(glossary).claim(pr.formula(typed), "").evidence
    assert evidence is not None
    assert str(evidence).startswith("proved: all sizes, under A1")


@pytest.mark.parametrize("words", [*FALSE, *REFUSED])
def test_what_is_false_or_not_assumed_is_not_proved(words: str) -> None:
    glossary, typed = {**FALSE, **REFUSED}[words]
    with pytest.raises(FalseStep) as reason:
        Section(glossary).claim(pr.formula(typed), "")
    assert words in REFUSED or not isinstance(reason.value, NotDecided)


def at(typed: str, condition: str) -> pr.Node:
    return pr.At(pr.formula(typed), pr.formula(condition))


def test_values_at_a_size_and_at_a_mean() -> None:
    section = Section(ANY)
    evidence = section.claim(pr.equals(at("Var(s)", "d_k = 4"), pr.formula("4 σ⁴ + 8 μ² σ²")), "").evidence
    assert str(evidence) == "proved: d_k = 4, under A1 and A2"
    assert section.claim(pr.equals(at("Var(s)", "μ = 1/3"), pr.formula("d_k σ² (σ² + 2/9)")), "").evidence
    for wrong in (at("Var(s)", "d_k = 5"), at("Var(s)", "μ = 2"), pr.formula("Var(s)")):
        with pytest.raises(FalseStep):
            section.claim(pr.equals(wrong, pr.formula("4 σ⁴ + 8 μ² σ²")), "")


def test_what_shrinks_with_a_size() -> None:
    section, grows = Section(CENTRED), pr.formula("d_k → ∞")
    assert section.tends(pr.formula("Var(s/d_k) → 0"), grows, pr.formula("σ⁴/d_k")).evidence
    for typed, form in (("Var(s) → 0", "σ⁴/d_k"), ("Var(s/√d_k) → 0", "σ⁴"), ("Var(s/d_k) → σ⁴", "σ⁴/d_k")):
        with pytest.raises(FalseStep):
            section.tends(pr.formula(typed), grows, pr.formula(form))
    with pytest.raises(FalseStep):
        section.tends(pr.formula("Var(s/d_k) → 0"), pr.formula("d_k → 0"), pr.formula("σ⁴/d_k"))


def test_sums_are_written_out() -> None:
    section, here = Section(ANY), (pr.formula("d_k = 3"),)
    assert section.claim(pr.formula("s = q_1 k_1 + q_2 k_2 + q_3 k_3"), here).evidence
    for wrong in ("s = q_1 k_1 + q_2 k_2", "s = q_1 k_1 + q_2 k_3 + q_3 k_2"):
        with pytest.raises(FalseStep):
            section.claim(pr.formula(wrong), here)
