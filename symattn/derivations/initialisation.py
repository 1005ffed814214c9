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
    ).document("initialisation", parameters=sizes)  # fmt: skip


def _digits(variance: Node, deviation: Node, dk: int, dmodel: int) -> Decimal:
    """Return the root of a formula above, for a typed σ and tokens of the length √d_model."""
    letters = {nt.Name("σ"): nt.Fence("round", deviation), **dict.fromkeys(_NORMS, formula("√d_model"))}
    return Decimal(value(nt.Root(nt.replaced(variance, letters)), {"d_k": dk, "d_model": dmodel}).decimal(4))
