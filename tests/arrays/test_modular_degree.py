"""The bound: degrees against polynomials that are known, chances against frequencies, and that nothing is left out."""

from dataclasses import replace
from fractions import Fraction
from math import comb, inf, log2
from random import Random
from typing import Any

import numpy as np
import pytest
import sympy

from symattn import Attention, kinds, streaming
from symattn.arrays.residues.degree import escape, pairs_needed


@pytest.fixture
def of() -> type[kinds.Modular]:
    return kinds.modular(seed=11)


# -- what is carried against what is true ------------------------------------------------------------------------------
X, Y, G = sympy.symbols("X Y G")  # e^{x/4}, e^{y/4} and e^{1/4}
V, W = sympy.symbols("V W")


def draw(random: Random, depth: int) -> Any:
    """A random program of two numbers and two exponents, as a tree."""
    if not depth:
        return random.choice(["v", "w", "e", "f", 2, -3, Fraction(1, 2)])
    operation = random.choice(["+", "-", "*", "/", "+", "*"])
    return operation, draw(random, depth - 1), draw(random, depth - random.choice([1, depth]))


def run(tree: Any, leaves: dict[str, Any]) -> Any:
    if not isinstance(tree, tuple):
        return leaves.get(tree, tree) if isinstance(tree, str) else leaves["number"](tree)
    a, b = run(tree[1], leaves), run(tree[2], leaves)
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[tree[0]]()


def measured(expression: Any) -> tuple[int, int]:
    """Of numerator and denominator in lowest terms: 2·Σ|powers of X, Y, G| + Σ powers of V, W, the largest of each."""

    def weight(polynomial: Any) -> int:
        terms = sympy.Poly(polynomial, X, Y, G, V, W).monoms()
        return max((2 * sum(m[:3]) + sum(m[3:]) for m in terms), default=0)

    top, bottom = sympy.fraction(sympy.cancel(expression))
    return weight(top), weight(bottom)


@pytest.mark.deep
def test_degrees_bound_those_of_the_true_polynomials(of: type[kinds.Modular]) -> None:
    """Random programs: e = e^{x/2 + 1/4}, f = e^{y/4}; what is carried is never less than what SymPy finds."""
    random, compared = Random(5), 0
    x, y, v, w = of.letters(1), of.letters(1), of.letters(1), of.letters(1)
    ours = {"v": v, "w": w, "e": np.exp(x * 0.5 + 0.25), "f": np.exp(y / 4), "number": of.lift}
    theirs = {"v": V, "w": W, "e": X**2 * G, "f": Y, "number": lambda c: sympy.Rational(Fraction(c))}
    p = of.field.p.m
    held = {X: np.exp(x / 4), Y: np.exp(y / 4), G: np.exp(of.lift([0.25])), V: v, W: w}
    point = {letter: int(z.residues()[0]) for letter, z in held.items()}
    for _ in range(150):
        tree = draw(random, 4)
        try:
            expression = run(tree, theirs)
        except ZeroDivisionError:
            continue
        if expression.has(sympy.zoo, sympy.nan):
            continue
        result = run(tree, ours)
        ratio = result.state.ratio
        assert ratio is not None
        top, bottom = measured(expression)
        carried = [2 * z.span * 4 + z.degree for z in (ratio.top, ratio.bottom)]
        assert carried[0] >= top
        assert carried[1] >= bottom
        wanted = expression.subs(point)
        if wanted.is_finite and wanted.q % p:
            assert int(result.residues().ravel()[0]) == wanted.p * pow(int(wanted.q), -1, p) % p
            compared += 1
    assert compared > 100


def test_the_degree_of_attention_is_what_the_formula_says(of: type[kinds.Modular]) -> None:
    """e^{(s − m)/√d}: Σ|q|/2 in units of e^k, and a maximum's e^m; one value; nothing grows with n."""
    q = np.array([[1, -2, 0, 2], [0, 1, 1, 0]])
    for n in (3, 300):
        out = Attention()(of.lift(q), of.letters(n, 4), of.letters(n, 2))
        ratio = out.state.ratio
        assert ratio is not None
        assert (ratio.top.span, ratio.top.degree, ratio.parts) == (Fraction(5, 2) + 1, 1, 2)
        assert ratio.top.norm == ratio.bottom.norm == log2(n)
        assert ratio.difference(ratio, same=False).degree == 2 * 2 * 2 * Fraction(7, 2) + 1


def test_tiles_add_two_maxima_each_and_no_denominator(of: type[kinds.Modular]) -> None:

    s, v = of.lift([[1]]) @ of.letters(1, 8), of.letters(8, 1)
    spans = [streaming.online(s, v, [*range(0, 8, step), 8]).state.ratio for step in (8, 4, 2)]
    assert [r and r.top.span for r in spans] == sorted({r and r.top.span for r in spans})
    assert all(r and r.bottom.degree == 0 for r in spans)


def test_sums_of_quotients_over_one_denominator_do_not_multiply_it(of: type[kinds.Modular]) -> None:
    e, v = np.exp(of.letters(4, 50)), of.letters(50, 2)
    z = e.sum(-1, keepdims=True)
    together, apart = (e / z) @ v, (e / e.copy()) @ v
    first, second = together.state.ratio, apart.state.ratio
    assert first is not None
    assert second is not None
    assert (first.bottom.span, second.bottom.span) == (1, 50)
    by_loop = sum((e / z)[:, j : j + 1] * v[j] for j in range(50))
    assert by_loop.state.ratio.bottom.span == 50  # fifty quotients, each over a z of its own as far as is known
    weights = e / z
    by_loop = sum(weights[:, j : j + 1] * v[j] for j in range(50))
    assert by_loop.state.ratio.bottom.span == 1


def test_rows_written_one_by_one_keep_their_denominators(of: type[kinds.Modular]) -> None:
    out = np.zeros((6, 2)) + of.lift(np.zeros((6, 2)))
    for i in range(6):
        e = np.exp(of.letters(5))
        w = e / e.sum()
        for j in range(5):
            out[i] += w[j] * of.letters(2)
    assert out.state.ratio.bottom.span == 1


def test_what_has_no_bound_is_carried_as_none(of: type[kinds.Modular]) -> None:
    x, y = of.letters(2), of.letters(2)
    assert np.exp(x * y).state.ratio is None  # a product of letters in an exponent
    assert np.exp(x / np.sqrt(of.lift(2))).state.ratio is None
    assert np.tanh(x).state.ratio is None
    assert (np.exp(x * x) + 1).state.ratio is None
    assert np.exp(x * 3).state.ratio is not None
    _, unknown = of.compared(np.tanh(x), 0)
    assert unknown == (inf, inf)
    assert unknown.bound(100) == 1
    assert pairs_needed(1.0, 1, 1e-12, 2) is None


# -- numbers that say which denominators are equal ---------------------------------------------------------------------
def test_denominators_are_equal_only_where_they_are(of: type[kinds.Modular]) -> None:
    def weights() -> kinds.Modular:
        e = np.exp(of.letters(3, 4))
        return e / e.sum(-1, keepdims=True)

    def span_below(x: kinds.Modular) -> Fraction:
        ratio = x.state.ratio
        assert ratio is not None
        return ratio.bottom.span

    a, b, e = weights(), weights(), np.exp(of.letters(3, 4))
    product = a * b
    assert span_below(a + 2 * a) == span_below(a + a.copy()) == span_below(a + e) == 1
    assert span_below(a + b) == span_below(a + a[::-1]) == 2
    assert (span_below(a.sum(1)), span_below(a.copy().sum(1)), span_below(a.sum(0))) == (1, 1, 3)
    # A product has denominators of its own, constant along the axis along which those of both factors are.
    assert (span_below(product + product), span_below(product.sum(1)), span_below(product.sum(0))) == (2, 2, 6)
    assert span_below(product + a) == span_below(product + b) == 3


# -- frequencies -------------------------------------------------------------------------------------------------------
@pytest.mark.deep
def test_an_adversary_comes_near_the_bound() -> None:
    """∏ (e^x − i²) for i ≤ 300 has 300 zeros in H, squares being in H: D/q, half of the bound, is seen."""
    of, degree, points = kinds.modular(seed=1), 300, 1 << 20
    e = np.exp(of.letters(points))
    product = e - 1
    for i in range(2, degree + 1):
        product = product * (e - of.lift(i * i))
    same, chance = of.compared(product, 0)
    assert chance.degree == 2 * degree
    bound = chance.degree / (of.field.q.m - 1)
    seen = np.count_nonzero(same) / points
    assert bound / 4 < seen < bound


@pytest.mark.deep
def test_a_polynomial_in_values_comes_as_near_as_it_can() -> None:
    of, degree, points = kinds.modular(seed=2), 400, 1 << 18
    v = of.letters(points)
    product = v - 1
    for i in range(2, degree + 1):
        product = product * (v - i)
    same, chance = of.compared(product, 0)
    assert chance.degree == degree
    seen = np.count_nonzero(same) / points
    assert degree / of.field.p.m / 2 < seen < chance.degree / (of.field.q.m - 1)


def test_coefficients_that_primes_divide_are_counted() -> None:
    """N = (p_1 ⋯ p_k)·v is 0 in k of the pairs: the norm says that so many may be bad."""
    pairs = kinds.prime_pairs()[:6]
    constant = np.prod([p for p, _ in pairs], dtype=object)
    escaped = []
    for p, q in (*pairs, *kinds.prime_pairs()[-4:]):
        of = kinds.modular(p, q, seed=4)
        same, chance = of.compared(of.letters(1) * of.lift(Fraction(int(constant))), 0)
        escaped.append(bool(same.all()))
    assert escaped == [True] * 6 + [False] * 4
    assert chance.bound(len(kinds.prime_pairs())) >= 6 / len(kinds.prime_pairs())
    assert chance._replace(degree=0, norm=22 * (1 - 1e-3)).bound(100) == 0


# -- the arithmetic of the bound ---------------------------------------------------------------------------------------
def test_weights_follow_the_rules_of_polynomials(of: type[kinds.Modular]) -> None:
    def weight(x: kinds.Modular) -> tuple[Fraction, int, float]:
        ratio = x.state.ratio
        assert ratio is not None
        return ratio.top.span, ratio.top.degree, ratio.top.norm

    v = of.letters(2)
    a, b = np.exp(of.letters(2) / 2) * v * v * v * 4, np.exp(2 * of.letters(2)) * of.letters(2) * 8
    assert (weight(a), weight(b)) == ((Fraction(1, 2), 3, 2.0), (2, 1, 3.0))
    assert weight(a * b) == (Fraction(5, 2), 4, 5.0)
    assert weight(a + b)[:2] == (2, 3)
    assert weight(a + b)[2] == pytest.approx(log2(12), rel=1e-15)
    assert weight(a * a * a) == (Fraction(3, 2), 9, 6.0)
    assert weight((np.exp(of.letters(8)) * 4).sum()) == (1, 0, 5.0)
    assert weight(np.stack([a, b])) == weight(np.stack([b, a])) == (2, 3, 3.0)


def test_forms_keep_a_common_denominator(of: type[kinds.Modular]) -> None:
    def size(x: kinds.Modular) -> tuple[int, int, int] | None:
        form = x.state.form
        return form and (form.degree, form.size, form.divisor)

    a, b, by_log = of.letters(2) * Fraction(3, 4), of.lift([Fraction(5, 6)] * 2), np.log(of.lift(2))
    assert (size(a), size(b)) == ((1, 3, 4), (0, 5, 6))
    assert size(a + b) == (1, 3 * 3 + 5 * 2, 12)
    assert size(a + a * by_log) is None
    assert size(a * b) == (1, 15, 24)
    assert size(np.concatenate([a, b])) == (1, 10, 12)
    assert np.exp(a * a).state.ratio is None
    one, two = np.exp(a).state.ratio, np.exp(a * by_log).state.ratio
    assert one is not None
    assert (one.top.span, one.parts, one.power) == (Fraction(3, 4), 4, 0)
    assert np.exp((a + 1) * by_log).state.ratio is None
    assert two == replace(one, power=1)
    assert two.times(one) is None


def test_enough_pairs_are_asked_for_and_not_one_more() -> None:
    chance, decided, spare = 1e-4, 999, 2
    needed = pairs_needed(chance, decided, 1e-12, spare)
    assert needed == 5
    assert escape(chance, decided, needed, spare) == 4 * 1000**2 * comb(7, 2) * chance**5
    assert escape(chance, decided, needed - 1, spare) > 1e-12
    assert escape(0.9, 0, 1, 0) == 1.0


def test_decisions_are_counted_with_their_chances_and_their_answers(of: type[kinds.Modular]) -> None:
    x, v = of.letters(4), of.letters(4)
    e = np.exp(x)
    assert not (e == v).any()
    assert (e * e == np.exp(2 * x)).all()
    _ = (v / e).residues()
    decisions = of.field.decisions
    assert decisions.count == 12
    assert decisions.chance.degree == 4
    assert list(decisions.answers.values()) == [np.arange(4).tobytes()]
    assert (of.lift(2) == 2).all()
    assert decisions.count == 12  # of known numbers nothing needs to be decided
