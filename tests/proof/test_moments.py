"""The moment algebra against the enumeration of discrete laws, and what it must refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from symattn.document import notation as nt
from symattn.document.errors import Refused
from symattn.document.notation import At, Name, Node, Root, call, equals, name, node, total
from symattn.proof.moments import Law, LawFamily
from symattn.proof.polynomial import Polynomial
from tests.proof.enumeration import LAWS, Outcomes, expectation, moment, variance

D, MU, S2, M3, M4 = name("d", "k"), Name("μ"), Name("v"), Name("m3"), Name("m4")
SIGMA = Name("σ")
S = Name("s")


def q(*i: nt.Like) -> Node:
    return name("q", *i)


def k(*i: nt.Like) -> Node:
    return name("k", *i)


def mean(x: Node) -> Node:
    return nt.Call(Name("E"), (x,), square=True)


def var(x: Node) -> Node:
    return call("Var", x)


def cov(x: Node, y: Node) -> Node:
    return call("Cov", x, y)


SCORE = total("i", 1, D, q("i") * k("i"))
LAW = Law(
    families=(LawFamily("q", (D,), MU, S2, (M3, M4)), LawFamily("k", (D,), MU, S2, (M3, M4))),
    independent=frozenset("qk"),
    positive=("v", "d_k", "σ"),
    real=("μ", "m3", "m4"),
    definitions={S: SCORE},
)


def numbers(law: Outcomes, d: int) -> dict[str, Fraction]:
    first = moment(law, 1)
    return {"d_k": Fraction(d), "μ": first, "v": moment(law, 2) - first**2, "m3": moment(law, 3), "m4": moment(law, 4)}


def score(x: Sequence[Fraction]) -> Fraction:
    d = len(x) // 2
    return sum((x[i] * x[d + i] for i in range(d)), Fraction(0))


def value(law: Law, formula: Node, given: dict[str, Fraction]) -> Fraction | None:
    """The polynomial for all d_k, then its value: the other order would only test one size."""
    return law.value(formula).at({x: Polynomial.number(y) for x, y in given.items()}).constant()


STATISTICS: dict[str, tuple[Node, Callable[[Outcomes, int], Fraction]]] = {
    "mean": (mean(S), lambda law, d: expectation(law, 2 * d, score)),
    "variance": (var(S), lambda law, d: variance(law, 2 * d, score)),
    "second moment": (mean(S**2), lambda law, d: expectation(law, 2 * d, lambda x: score(x) ** 2)),
    "third moment": (mean(S**3), lambda law, d: expectation(law, 2 * d, lambda x: score(x) ** 3)),
    "fourth moment": (mean(S**4), lambda law, d: expectation(law, 2 * d, lambda x: score(x) ** 4)),
    "scaled": (var(S / D), lambda law, d: variance(law, 2 * d, score) / d**2),
    "covariance with the sum of the queries": (
        cov(S, total("j", 1, D, q("j"))),
        lambda law, d: (
            expectation(law, 2 * d, lambda x: score(x) * sum(x[:d]))
            - expectation(law, 2 * d, score) * expectation(law, 2 * d, lambda x: sum(x[:d], Fraction(0)))
        ),
    ),
    "with one term written out": (
        mean(q(1) * k(1) * S),
        lambda law, d: expectation(law, 2 * d, lambda x: x[0] * x[d] * score(x)),
    ),
    "a double sum of means": (
        total("i", 1, D, total("j", 1, D, mean(q("i") * q("j")))),
        lambda law, d: expectation(law, d, lambda x: sum(x) ** 2),
    ),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_enumeration_agrees(law: str, statistic: str, d: int) -> None:
    formula, enumerated = STATISTICS[statistic]
    assert value(LAW, formula, numbers(LAWS[law], d)) == enumerated(LAWS[law], d)


def test_the_variance_at_a_fourth_size() -> None:
    for law in LAWS.values():
        assert value(LAW, var(S), numbers(law, 4)) == variance(law, 8, score)


FALSE = {
    "a cross term is dropped": D * S2**2 + D * MU**2 * S2,
    "the mean is taken for 0": D * S2**2,
    "the mean's square is forgotten in the difference": D * (S2 + MU**2) ** 2,
    "quadratic in the size": D**2 * S2 * (S2 + 2 * MU**2),
    "the identical term for the sum": S2 * (S2 + 2 * MU**2),
}


@pytest.mark.parametrize("words", FALSE)
def test_false_variances_differ(words: str) -> None:
    assert LAW.value(var(S)) == LAW.value(D * S2 * (S2 + 2 * MU**2))
    assert LAW.value(var(S)) != LAW.value(FALSE[words])


def test_the_second_moment_is_not_the_variance() -> None:
    assert LAW.value(mean(q(1) ** 2)) == LAW.value(S2 + MU**2)
    assert LAW.value(mean(q(1) ** 2)) != LAW.value(S2)


def test_a_sum_is_not_its_terms_where_indices_coincide() -> None:
    """Σ_i Σ_j E[q_i q_j] is not d² E[q₁]²: on the diagonal stands E[q²]."""
    double = total("i", 1, D, total("j", 1, D, mean(q("i") * q("j"))))
    assert LAW.value(double) == LAW.value(D * (D - 1) * MU**2 + D * (S2 + MU**2))
    assert LAW.value(double) != LAW.value(D**2 * MU**2)


def test_newton_for_all_sizes() -> None:
    """p₁³ − 3 p₁ p₂ + 2 p₃ vanishes at d = 1 and 2, not at 3: small sizes prove nothing, a polynomial in d does."""
    p1, p2, p3 = (total("i", 1, D, q("i") ** n) for n in (1, 2, 3))
    found = LAW.value(mean(p1**3 - 3 * p1 * p2 + 2 * p3))
    assert found == LAW.value(D * (D - 1) * (D - 2) * MU**3)
    assert [LAW.at({"d_k": d}).value(mean(p1**3 - 3 * p1 * p2 + 2 * p3)).terms == {} for d in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


def test_normal_scores_have_the_known_fourth_moment() -> None:
    normal = (
        LawFamily("q", (D,), node(0), node(1), (node(0), node(3))),
        LawFamily("k", (D,), node(0), node(1), (node(0), node(3))),
    )
    assert replace(LAW, families=normal).value(mean(S**4)) == LAW.value(3 * D * (D + 2))


def test_roots_of_sizes() -> None:
    assert LAW.value(var(S / Root(D))) == LAW.value(var(S) / D)
    assert LAW.value(At(mean(S) / Root(D), equals(D, 4))) == LAW.value(2 * MU**2)
    assert LAW.value(At(mean(S) / Root(D), equals(D, 2))) == LAW.value(Root(node(2)) * MU**2)
    assert LAW.value(At(var(S), equals(D, 4))) != LAW.value(var(S))


def test_two_keys_share_their_query() -> None:
    n = Name("n")
    law = replace(
        LAW,
        families=(LawFamily("q", (D,), MU, S2), LawFamily("k", (n, D), MU, S2)),
        positive=("v", "d_k", "n"),
        at_least={"n": 2},
    )
    one, other = (total("i", 1, D, q("i") * k(j, "i")) for j in (1, 2))
    assert law.value(cov(one, other)) == law.value(D * MU**2 * S2)
    assert law.value(var(one - other)) == law.value(2 * D * S2 * (S2 + MU**2))
    assert law.value(var(one - other)) != law.value(var(one) + var(other))


REFUSED: dict[str, tuple[Law, Node, str]] = {
    "independence across families": (
        replace(LAW, independent=frozenset("q")), mean(q(1) * k(1)), "k is independent of q is not assumed",
    ),
    "independence within a family": (
        replace(LAW, independent=frozenset()), mean(total("i", 1, D, q("i")) ** 2), "another q is not assumed",
    ),
    "a moment that is not declared": (LAW, mean(q(1) ** 5), "E[q^5] is not assumed"),
    "a random letter alone": (LAW, q(1) * 2, "stands outside of E"),
    "a letter that nobody declared": (LAW, mean(q(1) * Name("w")), "w is neither random nor declared"),
    "free letters that may coincide": (LAW, mean(q("i") * q("j")), "may coincide"),
    "a letter beside a number": (LAW, mean(q("i") * q(1)), "may coincide"),
    "an index beyond the size": (LAW, mean(q(2)), "needs d_k ≥ 2"),
    "a quotient by what may be 0": (LAW, mean(q(1) / MU), "not declared positive"),
    "a root of what has a sign": (LAW, Root(MU**2), "not declared positive"),
    "a quotient by something random": (LAW, mean(q(1) / k(1)), "no expectation of a Over"),
    "a function of something random": (LAW, mean(call("exp", q(1))), "no expectation of a Call"),
    "a sum to another size": (
        replace(LAW, positive=("n", "d_k")), mean(total("i", 1, Name("n"), q("i"))), "is declared to run to d_k",
    ),
    "a sum from 2 on": (LAW, total("i", 2, D, MU), "run from 1"),
    "a missing index": (LAW, mean(name("q")), "should have 1 indices"),
    "a division by a sum": (LAW, 1 / (S2 + 1), "only one monomial"),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_not_assumed_is_refused(words: str) -> None:
    law, formula, message = REFUSED[words]
    with pytest.raises(Refused, match=message.replace("[", r"\[").replace("^", r"\^")):
        law.value(formula)


def test_sums_are_written_out() -> None:
    here = LAW.at({"d_k": 3})
    assert here.written_out(S) == here.written_out(q(1) * k(1) + q(2) * k(2) + q(3) * k(3))
    assert here.written_out(S) != here.written_out(q(1) * k(1) + q(2) * k(2))
    assert here.written_out(S) != here.written_out(q(1) * k(1) + q(2) * k(3) + q(3) * k(2))
    with pytest.raises(Refused, match="cannot be written out"):
        LAW.written_out(S)
