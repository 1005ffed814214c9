"""Mean and variance of the score, what a divisor does to them, and differences of scores."""

from __future__ import annotations

from fractions import Fraction

from symattn.attention.notation import D_K, N
from symattn.derivations.letters import SIGMA, cov, dot, k, mean, q, s, var
from symattn.derivations.scaling_laws import Setting, at_size
from symattn.derivations.steps import chain, checked, defined, moment, of_all, together, vanishing
from symattn.document import notation as nt
from symattn.document.evidence import Evidence
from symattn.document.model import Block, Emph, Heading, Paragraph, Result, Step
from symattn.document.notation import At, Fence, Node, Relation, Root, Row, Sum, Words, equals, relation, total
from symattn.document.text import text
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.section import Section

_C, _X = nt.Name("c"), nt.Name("X")
OTHER_MEANS = "If the means are not zero"
"""The section that drops A3."""
_WRITTEN_OUT = 4  # longer sums are not written out


def score(setting: Setting) -> tuple[Block, ...]:
    """s = Σ q_i k_i and E[s] = d_k μ²."""
    law, square = setting.score(), D_K * setting.mu**2
    steps = [
        defined(equals(s(), dot(q(), k()), total("i", 1, D_K, q("i") * k("i")))),
        *_written_out(setting),
        *chain(
            law,
            mean(s()),
            (total("i", 1, D_K, mean(q("i") * k("i"))), "linearity"),
            (total("i", 1, D_K, mean(q("i")) * mean(k("i"))), "the components are independent"),
            (square, "equal means"),
        ),
    ]
    if setting.centred:
        steps += chain(setting.main(), mean(s()), (nt.node(0), "no mean"))
    return Heading(("The score and its mean",)), together(steps)


def _written_out(setting: Setting) -> tuple[Step, ...]:
    if not 1 < setting.d_k <= _WRITTEN_OUT:
        return ()
    law = setting.score().at({"d_k": setting.d_k})
    products = Sum(tuple(q(i) * k(i) for i in range(1, setting.d_k + 1)))
    where = checked(text(at_size(setting)))
    return (moment(law, equals(s(), products), (at_size(setting),), where, law.written_out),)


def variance(setting: Setting, compared: tuple[Evidence, ...]) -> tuple[Block, ...]:
    """Var(s), and the first result."""
    squares = mean(q(1) ** 2 * k(1) ** 2) - mean(q(1) * k(1)) ** 2
    split = mean(q(1) ** 2) * mean(k(1) ** 2) - mean(q(1)) ** 2 * mean(k(1)) ** 2
    steps = [
        *chain(
            setting.score(),
            var(s()),
            (total("i", 1, D_K, var(q("i") * k("i"))), "the products are independent"),
            (D_K * squares, ("equal terms, each ", equals(var(_X), mean(_X**2) - mean(_X) ** 2))),
            (D_K * split, "the factors are independent"),
        ),
        *(_centred_end(setting) if setting.centred else _general_end(setting)),
    ]
    title = ("Its variance grows with ", D_K)
    return Heading(title), together(steps), _result(setting, compared)


def _centred_end(setting: Setting) -> tuple[Step, ...]:
    reason = (equals(mean(q(1) ** 2), SIGMA**2 + setting.mu**2), " with ", equals(setting.mu, 0))
    return chain(
        setting.main(),
        var(s()),
        (D_K * mean(q(1) ** 2) * mean(k(1) ** 2), "no means"),
        ((nt.Product((D_K, SIGMA**2, SIGMA**2), "·"), D_K * SIGMA**4), reason),
    )


def _general_end(setting: Setting) -> tuple[Step, ...]:
    reason = (equals(mean(q(1) ** 2), SIGMA**2 + setting.mu**2),)
    return chain(
        setting.score(),
        var(s()),
        (D_K * ((SIGMA**2 + setting.mu**2) ** 2 - setting.mu**4), reason),
        (variance_formula(setting, D_K), "expanded"),
    )


def variance_formula(setting: Setting, size: nt.Like) -> Node:
    """d_k σ⁴, or d_k σ²(σ² + 2μ²)."""
    if setting.centred:
        return nt.node(size) * SIGMA**4 if size != 1 else SIGMA**4
    inner = SIGMA**2 * (SIGMA**2 + 2 * setting.mu**2)
    return nt.node(size) * inner if size != 1 else inner


def _result(setting: Setting, compared: tuple[Evidence, ...]) -> Result:
    law, score_ = setting.main(), dot(q(), k())
    here = chain(law, At(var(score_), at_size(setting)), (_at_size(setting), ""))[0]
    every = chain(law, var(score_), (variance_formula(setting, D_K), ""))[0]
    scaled = chain(law, var(score_ / Root(D_K)), (variance_formula(setting, 1), ""))[0]
    formulas: list[Node] = [
        Row((every.formula, here.formula)),
        Row((scaled.formula, Words("for every"), D_K)),
    ]
    if isinstance(setting.mean, Fraction) and setting.mean:
        formulas.append(_at_mean(setting).formula)
    return Result("Result", tuple(formulas), (of_all(every, scaled, here), *compared))


def _at_size(setting: Setting) -> Node:
    """4σ⁴, or 4σ⁴ + 8μ²σ²."""
    fourth = variance_term(setting.d_k, SIGMA**4)
    return fourth if setting.centred else fourth + variance_term(2 * setting.d_k, setting.mu**2 * SIGMA**2)


def variance_term(number: int, body: Node) -> Node:
    """number · body, without a factor 1."""
    return body if number == 1 else number * body


def _at_mean(setting: Setting) -> Step:
    """The variance at the mean that was asked for."""
    assert isinstance(setting.mean, Fraction)
    law = setting.score().at({setting.mu.base: setting.mean})
    square = 2 * setting.mean**2
    inner = SIGMA**2 * (SIGMA**2 + (nt.Number(square)))
    condition = equals(setting.mu, setting.mean)
    return chain(law, At(var(dot(q(), k())), condition), (D_K * inner, ""))[0]


def divisors(setting: Setting) -> tuple[Block, ...]:
    """What 1/√d_k does, and 1/d_k does not."""
    law, one = setting.main(), variance_formula(setting, 1)
    by_root = chain(
        law,
        var(s() / Root(D_K)),
        ((var(s()) / D_K, one), (equals(var(_C * _X), _C**2 * var(_X)),)),
    )
    by_size = chain(law, var(s() / D_K), ((var(s()) / D_K**2, one / D_K), "the same"))
    limit = vanishing(law, Relation(var(s() / D_K), (("→", nt.node(0)),)), relation(D_K, "→", nt.Name("∞")))
    return (
        Heading(("What ", 1 / Root(D_K), " does, and ", 1 / D_K, " does not")),
        together(by_root, by_size, limit, _uniform()),
        Paragraph(
            (
                "Divided by ", Root(D_K), ", scores vary as much for every ", D_K, ". Divided by ", D_K,
                ", their differences vanish as ", D_K, " grows, and by the last step every weight tends to ", 1 / N,
                ": all keys are averaged.",
            )
        ),
    )  # fmt: skip


def _uniform() -> Step:
    """softmax of equal scores is 1/n in every entry."""
    section = Section(Glossary({"s": "n"}, index={"j": "n"}))
    return section.claim(equals(nt.Call(nt.name("softmax", "j"), (0 * s(),)), 1 / N), "equal scores")


def other_means(setting: Setting) -> tuple[Block, ...]:
    """The variance, and the mean that scaling does not bound, for μ ≠ 0."""
    mu = setting.mu
    steps: tuple[Step, ...] = ()
    if setting.centred:
        spread = (SIGMA**2 + mu**2) ** 2 - mu**4
        steps = chain(
            setting.score(),
            var(s()),
            (D_K * spread, "the moments of the components"),
            (D_K * SIGMA**2 * (SIGMA**2 + 2 * mu**2), "expanded"),
        )
        here = variance_term(setting.d_k, SIGMA**4) + variance_term(2 * setting.d_k, mu**2 * SIGMA**2)
        steps += chain(setting.score(), At(var(s()), at_size(setting)), (here, (at_size(setting),)))
    steps += chain(setting.score(), mean(s() / Root(D_K)), ((D_K * mu**2 / Root(D_K), Root(D_K) * mu**2), "linearity"))
    return (
        Heading((OTHER_MEANS,) if setting.centred else ("The mean still grows",)),
        together(steps),
        Paragraph(
            (
                "The variance is still linear in ", D_K, ", so ", 1 / Root(D_K), " still removes the growth of the ",
                Emph("variance"), "; the mean is only reduced, from ", D_K * mu**2, " to ", Root(D_K) * mu**2,
                ". Softmax ignores what all scores of a row share, so what matters is a difference.",
            )
        ),
    )  # fmt: skip


def differences(setting: Setting) -> tuple[Block, ...]:
    """Var(s₁ − s₂) for two keys and one query."""
    law, mu, gap = setting.row(), setting.mu, s(1) - s(2)
    steps = [
        defined(
            equals(s("j"), dot(q(), k("j")), total("i", 1, D_K, q("i") * k("j", "i"))), "key j; A1 and A2 for all keys"
        ),
        *chain(law, cov(s(1), s(2)), (D_K * mu**2 * SIGMA**2, "the query is shared")),
        *chain(
            law,
            var(gap),
            (var(dot(q(), Fence("round", k(1) - k(2)))), "the dot product is linear"),
            (var(s(1)) + var(s(2)) - 2 * cov(s(1), s(2)), ""),
            (2 * D_K * SIGMA**2 * (SIGMA**2 + mu**2), "the moments of the components"),
        ),
    ]
    end = law.at({mu.base: 0}) if setting.centred else law
    inner = SIGMA**4 if setting.centred else SIGMA**2 * (SIGMA**2 + mu**2)
    if setting.centred:
        steps += chain(end, var(gap), (2 * D_K * SIGMA**4, "no means"))
    rows = chain(end, var(gap), (2 * D_K * inner, ""))[0], chain(end, var(gap / Root(D_K)), (2 * inner, ""))[0]
    result = Result("Result", (Row((*(r.formula for r in rows), Words("for every"), D_K)),), (of_all(*rows),))
    return Heading(("The difference of two scores",)), together(steps), result
