"""The a-priori bound as one writes it: the formula, its letters, and why it holds."""

from __future__ import annotations

from math import log

from symattn.arrays.precision import Precision
from symattn.document.notation import Fence, Name, Node, Power, Row, call, name, relation
from symattn.verification.bounding.priori import Sizes, Terms

E, V, W, P, G, S, U, M = (Name(letter) for letter in "eVWPGSUM")
SUMS = Name("E")


def _power(exponent: Node) -> Node:
    return Power(E, exponent)


def formula() -> tuple[Node, ...]:
    """|y − o| ≤ M + g_O (V + M) + η_O, and what M is made of."""
    y, o, a, s, b, rate = Name("y"), Name("o"), Name("a"), Name("s"), Name("b"), name("λ", "P")
    sums = G * _power(2 * rate) * Fence("round", S + SUMS)
    return (
        relation(Fence("abs", y - o), "≤", M + name("g", "O") * Fence("round", V + M) + name("η", "O")),
        relation(M, "=", W + P + Fence("round", G - 1) * Fence("round", V + W + P) + sums + U),
        Row((
            relation(W, "=", V * _power(a) * Fence("round", _power(a) - 1)),
            relation(S, "=", V * _power(2 * a) * Fence("round", _power(s) - 1)),
            relation(G, "=", 1 + _power(2 * a + 2 * rate) * Fence("round", _power(b) - 1)),
        )),
    )  # fmt: skip


_FIRST = "To first order, M is V (a + s + b + λ_P + (sums)), and every exponent is a number of roundings times u."


def quantities(sizes: Sizes, precision: Precision, terms: Terms) -> tuple[tuple[Node, str, float], ...]:
    """Each letter: how it is written, in words, value."""
    p, q = precision, terms.quantities
    found: list[tuple[Node, str, float]] = [
        (Name("n"), "keys", float(sizes.n)),
        (name("d", "k"), "width of queries and keys", float(sizes.d_k)),
        (Name("T"), "largest sum of absolute values of a score, scaled", sizes.score_max),
        (V, "largest absolute value", sizes.v_max),
        (call("ln", "n"), "largest logarithm of a sum of exponentials", log(sizes.n)),
        (name("u", "s"), f"unit roundoff of scores and exponentials ({p.score.name})", float(p.score.u)),
        (name("u", "a"), f"unit roundoff of sums ({p.accumulate.name})", float(p.accumulate.u)),
        (name("u", "P"), f"unit roundoff of stored weights ({p.stored.name})", float(p.stored.u)),
        (name("u", "O"), f"unit roundoff of the output ({p.returned.name})", float(p.returned.u)),
        (Name("ε"), f"error of the exponential, {p.exp_ulps:g} ulps", 2 * p.exp_ulps * float(p.score.u)),
    ]
    names: dict[str, tuple[Node, str]] = {
        "tau": (Name("τ"), "error of a score as it is stored"),
        "a": (Name("a"), "error of an exponent that numerator and denominator share"),
        "s": (Name("s"), "error of a term of the numerator alone, but for its sum"),
        "b": (Name("b"), "error of a term of the denominator alone"),
        "W": (W, "by how much the mean of the values moves"),
        "P": (P, "storing weights"),
        "G": (G, "error of the denominator, as a factor"),
        "S": (S, "roundings of single terms"),
        "E": (SUMS, "roundings of sums"),
    }
    return (*found, *((letter, words, q[key]) for key, (letter, words) in names.items() if key in q))


def derivation(precision: Precision) -> tuple[str, ...]:
    """Why the formula holds, one step a paragraph; the whole proof is that of ``symattn.verification.bounds``."""
    p = precision
    shared = " or exp(score − log-sum-exp)" if p.lse else ""
    additions = "in any order, at most n − 1" if p.height is None else f"at most {p.height}"
    return (
        "An operation multiplies its result by a factor 1 + δ with |δ| ≤ u, so n of them by e^x with |x| ≤ nλ, "
        "λ = u/(1 − u); g(n) = e^{nλ} − 1.",
        "A product in a score passes at most d_k additions and six roundings of constants, the score two more: it is "
        "off by at most τ = g(d_k + 6) T + g(2)(T + …).",
        "Exponentials are of differences to a largest score: roundings of the reference and of the difference give "
        f"g(5)(2T + 2τ), exponentials ε each, and one more for each time the maximum grows{shared}. What numerator and "
        "denominator share is an error a of the exponent: weights are those of scores that are off by a.",
        "The output is a mean of the values with these weights. It moves by at most "
        "Σ p_j (e^a − 1)|v_j − o| / Σ p_j e^{−a} ≤ V e^a (e^a − 1) = W, since a mean deviation from the mean is at "
        "most half the range.",
        "What they do not share: terms of the numerator have roundings of their own (product, division, rescaling: "
        f"e^s), sums round once for each addition (for one term {additions}), the denominator is off by a factor e^b, "
        "and weights are rounded when they are stored.",
        "Results below the normal numbers may be off by η each, which gives U. At last the output is rounded: "
        "g_O(1)(V + M) + η_O.",
        _FIRST,
    )
