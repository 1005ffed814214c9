"""``initialisation``: how large queries, scores and outputs are when the projections are drawn at random."""

from __future__ import annotations

from fractions import Fraction

from symattn.attention.softmax import softmax
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.exactly import value
from symattn.document import notation as nt
from symattn.document.formulas import Roles, formula, running_text
from symattn.document.model import Column, Document, Table, Text
from symattn.document.notation import Decimal, Node
from symattn.proof.relations.glossary import Glossary

_TEXT = """
How large scores are at the start
subtitle: the table is for $d_k = @dk$, $d_model = @dmodel$
hint: symattn derive scaling           the score of random queries and keys
letters: new | x m, y m, z m, W_Q m d_k, W_K m d_k | sizes d_model m, d_k | index i m, l d_k, r d_k | laws W_Q σ, W_K σ
    | rows
letters fixed: weights | t n_k, σ | index j n_k, l n_k
letters drawn: fixed | v n_k | laws v σ μ
roles: x input, y input, z input
A1 (x y z): The tokens $x$, $y$ and $z$ are fixed
A2 (W_Q W_K): All entries of $W_Q$ and $W_K$ are independent, with mean 0 and variance $σ²$ :: any law
# One component of a query
:= q_l = Σ_{i=1}^{d_model} x_i (W_Q)_il
- E[q_l] = 0 :: the weights have no mean
- Var(q_l) = @component :: the variances of the terms add up
- Cov(q_l, q_r) = δ_lr σ² ‖x‖² :: other columns are independent
# The score
:= s = (x W_Q)·(y W_K) :: of the query of $x$ and the key of $y$
- E[s] = 0 :: nor do their products
- Var(s) = d_k σ⁴ ‖x‖² ‖y‖² :: each product of two weights occurs once
- Var(s/√d_k) = @score :: $√d_k$ removes the factor
- Cov(s, (x W_Q)·(z W_K)) = d_k σ⁴ ‖x‖² {y·z} :: two keys, of the tokens $y$ and $z$
- s - (x W_Q)·(z W_K) = (x W_Q)·((y - z) W_K) :: what softmax sees of them
result: Var(s) = d_k σ⁴ ‖x‖² ‖y‖²
not scaling.projected-score-variance
# The output
A3 (p): The weights $p_j$ are fixed, positive, and sum to 1
A4 (v): The values $v_j$ are independent, with one mean and the variance $σ²$ :: any law
drawn- Var(Σ_{j=1}^{n_k} p_j v_j) = σ² Σ_{j=1}^{n_k} p_j² :: variances add up
fixed- σ²/n_k ≤ σ² Σ_{j=1}^{n_k} p_j² ≤ σ² :: of equal weights, and of one key alone
    gap σ²/n_k: σ² {Σ_{j=1}^{n_k} (n_k p_j - 1)²}/n_k²
    gap σ²: σ² Σ_{j=1}^{n_k} Σ_{l≠j} p_j p_l
not scaling.output-variance-participation
# In numbers
After a normalisation of the tokens, $‖x‖ = ‖y‖ = √d_model$. The standard deviation of a component of the query, and
    that of the scaled score, are then:
insert table
caveat: A2 is about the start of training, not about trained projections. The mean is over the draw of the
    weights: within one network all tokens share one draw, and their scores are not independent.
"""
_ROLES: Roles = dict.fromkeys("xyz", "input")
_SQUARE, _COMPONENT, _SCORE = (formula(x, roles=_ROLES) for x in ("σ²", "σ² ‖x‖²", "σ⁴ ‖x‖² ‖y‖²"))
_NORMS = [formula(x, roles=_ROLES) for x in ("‖x‖", "‖y‖")]
_HEADS = [running_text(x) for x in ("choice", "$σ$", "value of $σ$", "deviation of $q_l$", "deviation of $s/√d_k$")]


def derivation(dk: int = 64, dmodel: int = 512) -> Document:
    """Derive Var(q·k) = d_k σ⁴‖x‖²‖y‖² over random W_Q and W_K, and its value for usual choices of σ."""
    sizes = {"dk": dk, "dmodel": dmodel}
    weights = Glossary(defined={"p": lambda reader: softmax(reader.arrays["t"], stabilised=False)})
    columns = [Column(head, "right" if i else "left") for i, head in enumerate(_HEADS)]
    choices = {"unit queries": "1/√d_model", "Glorot": "√{2/(d_model + d_k)}", "fixed": "@fiftieth"}
    rows: list[tuple[Text, ...]] = []
    for called, typed in choices.items():
        deviation = formula(typed, values={"fiftieth": nt.Number(Fraction(1, 50))})
        rows.append(
            ((called,), (deviation,), *((_digits(x, deviation, dk, dmodel),) for x in (_SQUARE, _COMPONENT, _SCORE)))
        )
    caption = ("By the formulas above, correctly rounded. Glorot's law is that of one matrix of these sizes.",)
    return DerivationText(
        {"weights": weights}, table=[Table(tuple(columns), tuple(rows), caption=caption)],
        component=_COMPONENT, score=_SCORE, **sizes,
    ).document("initialisation", _TEXT, parameters=sizes)  # fmt: skip


def _digits(variance: Node, deviation: Node, dk: int, dmodel: int) -> Decimal:
    """Return the root of a formula above, for a typed σ and tokens of the length √d_model."""
    letters = {nt.Name("σ"): nt.Fence("round", deviation), **dict.fromkeys(_NORMS, formula("√d_model"))}
    return Decimal(value(nt.Root(nt.replaced(variance, letters)), {"d_k": dk, "d_model": dmodel}).decimal(4))
