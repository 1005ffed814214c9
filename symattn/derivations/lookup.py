"""``lookup``: sharper and sharper attention looks up the value of the best key, or the mean of the best ones."""

from __future__ import annotations

from typing import Any

from symattn.attention.softmax import softmax
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.exactly import exact
from symattn.derivations.steps import FalseStep
from symattn.document import notation as nt
from symattn.document.formulas import formula, running_text
from symattn.document.model import Column, Document, Result, Steps, Table
from symattn.document.notation import Decimal, Node
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import relations
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader

_LIMITS = """
→ p_max → 1/t :: β → ∞ :: 1/(t + Σ_ℓ e^{-β u_ℓ})
shares→ p_j → 1/n_k :: β → 0 :: softmax_j(β s)
"""
_BEGINS = """
letters: ties | Y t d_v, V r d_v, u r, β, top | sizes n_k t+r, t | index ℓ r, l r, τ t | positive u β | rows
letters far: new | tie t, d r, β, u_min | sizes n_k t+r, t | index ℓ r | positive β u_min | nonnegative d | where u_ℓ =
    u_min + d_ℓ
letters shares: new | s n_k, β | index j n_k
letters low: new | s, w, u r | sizes n_k 1+r | index ℓ r | places j 0 | nonnegative w u | where p = softmax((s, (s +
    w) 𝟏 − u))
letters high: new | s, w, u r | sizes n_k 1+r | index ℓ r | places j 0 | nonnegative w u | where p = softmax((s, (s −
    w) 𝟏 + u))
roles: y value, v̄ value
with far: $R = Σ_ℓ e^{-β u_ℓ}$
with shares: $p = softmax(β s)$
"""
_ENTROPY = running_text("the entropy, the mean of $-log(p_j)$; by the step before")
_CAPTION = running_text(
    "The weights $softmax(β s)$: with a tie for the largest score, and without. Exact, then correctly rounded."
)
_SCORES = ((2, 2, 1), (3, 1, 0))
_SHARPNESS = (0, 1, 4, 16, 64)


def derivation() -> Document:
    """Derive that softmax(βs) tends to equal shares of the largest scores as β → ∞, of all as β → 0."""
    text = DerivationText({"ties": _ties()}, table=[_table()])
    text.blocks(_BEGINS)
    dispersion = text.theorem("softmax.softmax-dispersion")
    *_, entropy = relations(dispersion.theorem.says)
    # the limits in a box
    results = text.blocks(_LIMITS)
    (group,) = results
    assert isinstance(group, Steps)
    rows = tuple(nt.Row((step.formula, nt.Words("as"), *relations(step.reason))) for step in group.items)
    limits = [Result("Result", rows, tuple(dict.fromkeys(step.evidence for step in group.items if step.evidence)))]
    text.values |= {
        "limits": limits,
        "entropy": [dispersion.step(entropy, _ENTROPY)],
    }
    return text.document("lookup")


def _ties() -> Glossary:
    """Define weights and output for t keys with the largest score and values y_τ, and r keys lower by u > 0."""
    defined: dict[str, Any] = {
        "p_max": lambda reader: Value(_weights(reader)[: reader.length("t")], ("τ",)),
        "p": lambda reader: _weights(reader)[reader.length("t") :],
        "o": _output,
    }
    return Glossary(sizes={}, defined=defined)


def _weights(reader: Reader) -> Any:
    """Return the weights of t keys with the largest score and of others that are lower by u, all times β."""
    arrays, xp = reader.arrays, reader.xp
    ties = xp.zeros((reader.length("t"),)) + arrays["β"] * arrays["top"]
    return softmax(xp.concat([ties, arrays["β"] * (arrays["top"] - arrays["u"])], axis=0), stabilised=False)


def _output(reader: Reader) -> Any:
    values = reader.xp.concat([reader.arrays["Y"], reader.arrays["V"]], axis=0)
    return (_weights(reader)[None, :] @ values)[0, :]


def _table() -> Table:
    """Return a table of weights at growing β, with and without a tie: exact numbers, correctly rounded."""
    columns = [Column((nt.Name("β"),))]
    for scores in _SCORES:
        group = (nt.equals("s", nt.Fence("round", nt.commas(*scores))),)
        columns += [Column((formula(f"p_{j}"),), group=group) for j in range(1, len(scores) + 1)]
    rows = tuple(((nt.node(beta),), *_row(beta)) for beta in _SHARPNESS)
    return Table(tuple(columns), rows, caption=_CAPTION)


def _row(beta: int) -> list[tuple[Node, ...]]:
    result: list[tuple[Node, ...]] = []
    for scores in _SCORES:
        weights = softmax(exact([beta * x for x in scores])).tolist()
        if sum(weights[1:], weights[0]) != 1:
            raise FalseStep("the weights of the example do not sum to 1")
        result += [(Decimal(w.decimal(3)),) for w in weights]
    return result
