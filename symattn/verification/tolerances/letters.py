"""The a-priori bound as a formula, and its letters."""

from __future__ import annotations

from symattn.document.notation import Fence, Name, Node, Power, Relation, Row, call, name, relation

_GREEK = {r"\tau": "τ", r"\varepsilon": "ε", r"\lambda": "λ", r"\eta": "η"}
E, V, W, P, G, S, U, M = (Name(letter) for letter in "eVWPGSUM")
SUMS = Name("E")


def letter(tex: str) -> Node:
    """A letter as the bound's table has it: ``u_s``, ``d_k``, ``\\tau``, ``\\ln n``."""
    if tex.startswith(r"\ln "):
        return call("ln", tex.removeprefix(r"\ln "))
    base, _, below = tex.partition("_")
    base = _GREEK.get(base, base)
    return name(base, below) if below else Name(base)


def _power(exponent: Node) -> Node:
    return Power(E, exponent)


def formula() -> Node:
    """|y − o| ≤ M + g_O (V + M) + η_O."""
    y, o = Name("y"), Name("o")
    return relation(Fence("abs", y - o), "≤", M + name("g", "O") * Fence("round", V + M) + name("η", "O"))


def parts() -> tuple[Node, ...]:
    """What M is made of."""
    a, s, b, rate = Name("a"), Name("s"), Name("b"), name("λ", "P")
    return (
        Relation(M, (("=", W + P + Fence("round", G - 1) * Fence("round", V + W + P)
                      + G * _power(2 * rate) * Fence("round", S + SUMS) + U),)),
        Row((
            relation(W, "=", V * _power(a) * Fence("round", _power(a) - 1)),
            relation(S, "=", V * _power(2 * a) * Fence("round", _power(s) - 1)),
            relation(G, "=", 1 + _power(2 * a + 2 * rate) * Fence("round", _power(b) - 1)),
        )),
    )  # fmt: skip
