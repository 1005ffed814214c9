"""``jacobian``: how the weights respond to a change of the scores."""

from __future__ import annotations

from symattn.derivations.derivation_texts import DerivationText
from symattn.document import notation as nt
from symattn.document.formulas import formula
from symattn.document.model import Document
from symattn.proof.relations.glossary import Glossary

DERIVATIVE = """
let: Let $p = softmax(s)$, the weights of one query over $n$ keys.
- p_i = e^{s_i}/Z :: with $Z = Σ_{ℓ=1}^n e^{s_ℓ}$
- ∂p_i/∂s_j = (δ_ij e^{s_i} Z - e^{s_i} e^{s_j})/Z² :: quotient rule
- ∂p_i/∂s_j = δ_ij p_i - p_i p_j :: definition of $p$
- J = diag(p) - p pᵀ :: as a matrix
- J = @matrix :: $n = @tokens$
"""
PROPERTIES = """
- J = Jᵀ :: entry by entry
- J 𝟏 = p - p (Σ_{j=1}^n p_j) = 0 :: the weights sum to one
- xᵀ J x = Σ_{i=1}^n p_i x_i² - (Σ_{i=1}^n p_i x_i)² = Var_{i∼p}(x_i) :: the variance of $x_i$ under $p$
- xᵀ J x = Σ_{i<j} p_i p_j (x_i - x_j)² ≥ 0 :: no term is negative
- ‖J‖_∞ = max_i Σ_{j=1}^n |J_ij| = max_i 2 p_i (1 - p_i) :: only the diagonal is positive
    sign J_ij: δ_ij p_i {Σ_{ℓ≠i} p_ℓ} + δ̄_ij p_i p_j
- max_i 2 p_i (1 - p_i) ≤ ½ :: $½ - 2 p_i (1 - p_i) = 2 (p_i - ½)²$
    gap max_i 2 p_i (1 - p_i): 2 (p_i - ½)²
result: J = Jᵀ; J 𝟏 = 0; xᵀ J x = Var_{i∼p}(x_i) ≥ 0
    // ‖J‖_∞ = max_i Σ_{j=1}^n |J_ij| = max_i 2 p_i (1 - p_i) ≤ ½
    sign J_ij: δ_ij p_i {Σ_{ℓ≠i} p_ℓ} + δ̄_ij p_i p_j
    gap Var_{i∼p}(x_i): Σ_{i<j} p_i p_j (x_i - x_j)²
    gap max_i 2 p_i (1 - p_i): 2 (p_i - ½)²
"""
_TEXT = f"""
The Jacobian of softmax
subtitle: written out for $n = @tokens$
hint: symattn derive scaling    why large scores make it small
# The derivative
{DERIVATIVE}
# What follows
{PROPERTIES}
caveat: The bound $½$ is on how weights answer to scores. The scores are products of queries and keys, so
    it does not bound how the output answers to the tokens.
"""


def derivation(tokens: int = 3) -> Document:
    """Derive J = diag(p) − p pᵀ and its properties: symmetric, rows sum to 0, positive semidefinite, ‖J‖∞ ≤ 1/2."""
    text = DerivationText({"": letters()}, matrix=matrix(tokens), tokens=tokens)
    return text.document("jacobian", _TEXT, parameters={"tokens": tokens})


def letters() -> Glossary:
    """Return the letters: scores s, a vector x as long, the weights p = softmax(s), and their derivative J."""
    defined = {"J": lambda reader: reader.derivative(formula("p"), "s").array}
    return Glossary({"s": "n", "x": "n"}, index=dict.fromkeys("ijℓ", "n"), defined=defined)


def matrix(tokens: int) -> nt.Matrix:
    """Return the matrix with p_i(1 − p_i) on the diagonal and −p_i p_j elsewhere."""
    index = range(1, tokens + 1)
    entries = [
        [f"p_{i} {{1 - p_{i}}}" if i == j else f"-p_{min(i, j)} p_{max(i, j)}" for j in index]
        for i in index
    ]
    return nt.matrix([[formula(x) for x in row] for row in entries])
