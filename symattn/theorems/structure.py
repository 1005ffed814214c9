"""Structure: what attention does to tokens that are permuted, split, mixed or repeated, and how far outputs move."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.scores import scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.formulas import formula
from symattn.proof.expectation import EntryLaw
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.proof.rules import Substitution
from symattn.proof.statement import Declared
from symattn.theorems.letters import ATTENDING, ATTENTION, CAUSAL, QKV, eye, identity_like, rows
from symattn.theorems.texts import theorems


def _of_matrices(attention: Attention) -> Any:
    """Return attention as it is implemented, which subtracts the maximum of each row."""
    return lambda reader: attention(*map(reader.array, "QKV"))


def _any_norm(_: Reader, x: Value) -> Value:
    """Return a norm of a vector: an arbitrary norm in letters, the largest entry in numbers."""
    xp = x.array.__array_namespace__()
    norms = xp.any_norm(x.array)[..., 0] if hasattr(xp, "any_norm") else xp.max(abs(x.array), axis=-1)
    return Value(norms, x.letters)


def _attended(attention: Attention) -> Any:
    """Return self-attention as a function of formulas."""

    def attended(reader: Any, x: Value) -> Value:
        weights = {word.lower(): reader.array(word) for word in ("W_Q", "W_K", "W_V")}
        return Value(attention(x=x.array, **weights), (), 2)

    return attended


def _layer(attention: Attention) -> Any:
    """Return self-attention followed by a network on each row, both with residuals, as a function of formulas."""

    def layer(reader: Any, x: Value) -> Value:
        y = x.array + _attended(attention)(reader, x).array
        return Value(y + reader.xp.maximum(y @ reader.array("W"), 0) @ reader.array("U"), (), 2)

    return layer


# -- symmetries -------------------------------------------------------------------------------------------------------
CHANGED_BASIS = Substitution(
    Declared({**QKV, "m": "d_k d_k", "r": "d_k d_k", "z": "d_k d_k"}),
    lambda q, k, v, m, r: (ATTENTION(q @ m, k @ r, v), ATTENTION(q, k, v)),
    (lambda q, k, v, y: soft(scale_by_root(q @ y @ k.mT, q)) @ v),
    "y",
    "d_k d_k",
    lambda m, r: m @ r.mT,
    lambda m: identity_like(m),
    lambda q, k, v, z: (ATTENTION(q @ z, k @ z, v), ATTENTION(q, k, v)),
)
"""With M Rᵀ = I, for any two such matrices."""


def _repeated(x: Array, r: Array) -> Array:
    xp, (n, d) = x.__array_namespace__(), x.shape
    return xp.reshape(xp.broadcast_to(x[None], (r, n, d)), (r * n, d))


KEPT = EntryLaw(("r",), lambda r: (1 - r, r * (1 - r)), lambda r: [(0 * r, r), (0 * r + 1, 1 - r)])


_TEXT = """
per-token-equals-matrix: Token by token is the matrix form
$o_i = Σ_{j=1}^{n_k} e^{q_i·k_j/√d_k}/(Σ_{l=1}^{n_k} e^{q_i·k_l/√d_k}) v_j$; and with 3 in the place of 1/√d_k
  $t_i = Σ_{j=1}^{n_k} e^{3 {q_i·k_j}}/(Σ_{l=1}^{n_k} e^{3 {q_i·k_l}}) v_j$
source: Vaswani et al., Attention Is All You Need (2017)
why: Row i of the matrix formula holds the scores of query i alone.
false: the softmax is over the queries: $o_i = Σ_{j=1}^{n_k} e^{q_i·k_j/√d_k}/(Σ_{l=1}^{n_q} e^{q_l·k_j/√d_k}) v_j$

output-in-hull: Outputs lie in the hull of the values
$min_j V_j_c ≤ O_i_c$, $O_i_c ≤ max_j V_j_c$, and $N(o_i) ≤ max_j N(v_j)$ for any norm N
why: Each output is a mean of the values with weights that are positive and sum to one.
false: $‖O‖_F ≤ ‖V‖_F$
gap O_i_c: Σ_{j=1}^{n_k} P_ij r_j_c; r_j_c = V_j_c − min_l V_l_c by largest
gap max_j V_j_c: Σ_{j=1}^{n_k} P_ij m_j_c; m_j_c = max_l V_l_c − V_j_c by largest
gap max_j N(v_j): {Σ_{j=1}^{n_k} P_ij m_j} + r_i; m_j = max_l N(v_l) − N(v_j) by largest; r_i = Σ_{j=1}^{n_k} P_ij
  N(v_j) − N(o_i) by triangle

permutation-equivariance: Permuted tokens give permuted outputs
$a(Π X) = Π a(X)$ and $f(Π X) = Π f(X)$
letters: layers | X n d, W_Q d d_k, W_K d d_k, W_V d d, W d e, U e d | permutations Π n
for: a is self-attention, f a layer of it and of a network on each row, both with residuals; no mask and no positions
for: $Π$ is a permutation matrix
source: Lee et al., Set Transformer (2019)
why: A permutation of the tokens permutes the queries, and the sums over keys do not see it; nor do layers that are
  put on top of each other.
false: the same for the layer c of causal self-attention: $c(Π X) = Π c(X)$

key-permutation-invariance: The order of keys and values does not matter
$Attention(Q, Π K, Π V) = Attention(Q, K, V)$
letters: attending | permutations Π n_k
source: Lee et al., Set Transformer (2019)
why: Keys and values enter by sums over the keys.
false: $Attention(Q, Π K, V) = Attention(Q, K, V)$

query-rows-independent: Each query is answered alone
$Attention([Q_1; Q_2], K, V) = [Attention(Q_1, K, V); Attention(Q_2, K, V)]$
letters: attending | Q₁ a d_k, Q₂ b d_k, K₁ m d_k, V₁ m d_v
why: No row of queries enters the output of another; so queries may be processed in blocks.
false: the same for keys: the outputs of two blocks of keys add up, $Attention(Q, [K; K_1], [V; V_1]) = Attention(Q,
  K, V) + Attention(Q, K_1, V_1)$

linear-in-values: Attention is linear in the values
$Attention(Q, K, a V + b V′) = a Attention(Q, K, V) + b Attention(Q, K, V′)$
letters: attending | a, b, X n d, Y n d
why: The weights do not look at the values.
false: self-attention is linear in X: $Attention(a X + b Y, a X + b Y, a X + b Y) = a Attention(X, X, X) + b
  Attention(Y, Y, Y)$
top: 2

key-bias-redundant: A bias of the keys changes nothing
$Attention(Q, K + 𝟏 bᵀ, V) = Attention(Q, K, V)$
letters: attending | b d_k
why: It adds one number to all scores of a row. So the bias of the keys' linear layer has no effect, unless rotary
  positions or a normalisation of the keys come after it.
false: $Attention(Q + 𝟏 bᵀ, K, V) = Attention(Q, K, V)$

value-bias-passes: A bias of the values passes through
$Attention(Q, K, V + 𝟏 bᵀ) = Attention(Q, K, V) + 𝟏 bᵀ$
letters: attending | b d_v
why: The weights of a row sum to one.
false: the same with softmax-off-by-one: $Σ_{j=1}^{n_k} w_ij (v_j + b) = Σ_{j=1}^{n_k} w_ij v_j + b$ with $w_ij =
  e^{s_ij}/(1 + Σ_{l=1}^{n_k} e^{s_il})$

dropout-unbiased: Dropout is unbiased
$E[Σ_{j=1}^{n_k} P_ij B_ij/(1 − r) v_j_c] = Σ_{j=1}^{n_k} P_ij v_j_c$
letters: dropped | B n_q n_k, S n_q n_k, V n_k d_v, r | index i n_q, j n_k, l n_k, c d_v | where P = softmax(S)
for: the entries of B are 1 with probability 1 − r, else 0; 0 < r < 1
why: The output is linear in B, so its mean is the output at the mean of B. Independence is not needed. The rows of
  the weights that are left do not sum to one: where all of B is 0 they sum to 0.
false: for scores, too: $E[Σ_{j=1}^{n_k} e^{S_ij B_ij/(1 − r)}/(Σ_{l=1}^{n_k} e^{S_i_l B_i_l/(1 − r)}) v_j_c] =
  Σ_{j=1}^{n_k} P_ij v_j_c$

qk-gauge: The freedom of queries and keys
$(Q M) (K M⁻¹ᵀ)ᵀ = Q Kᵀ$, so attention of Q M, K M⁻¹ᵀ and V is that of Q, K and V; likewise only products of weights
  matter, $Attention(X W_Q, X W_K, X W_V) W_O = softmax(X (W_Q W_Kᵀ) Xᵀ/√d_k) X (W_V W_O)$
letters: inverse | X n d, W_Q d d_k, W_K d d_k, W_V d d_v, W_O d_v e | where M = I + u wᵀ
for: M is any invertible matrix; of one step, $M = I + u wᵀ$ and $1 + wᵀ u ≠ 0$
source: Elhage et al., A Mathematical Framework for Transformer Circuits (2021)
why: Only $Q M (K M⁻¹ᵀ)ᵀ$ is seen.
false: $Attention(Q M, K M, V) = Attention(Q, K, V)$
and CHANGED_BASIS

duplicate-all-keys: All keys twice change nothing
$Attention(Q, K′, V′) = Attention(Q, K, V)$
for: $K′$ and $V′$ hold every key and every value r times
why: The numerator and the denominator of a weight are both multiplied by r.
false: repeating one key leaves the output unchanged: $Attention(Q, K″, V″) = Attention(Q, K, V)$
top: 2

equal-scores-average: Equal scores average the values
$o_i = 1/n_k Σ_{j=1}^{n_k} v_j$
letters: attending | but S | c n_q
for: the scores of row i are all equal, as those of the query 0 are: $S_ij = c_i$
why: Equal scores have equal weights, which sum to one.
false: $o_i = Σ_{j=1}^{n_k} v_j$

score-rank: The rank of scores and of weights
$rank(Q Kᵀ) ≤ d_k$, but $rank(softmax(x xᵀ)) = n$ with $x_i = i$, queries and keys of width 1
letters: new | Q n d_k, K n d_k | sizes n, d_k | index i n | exact | where P = softmax(Q Kᵀ)
source: Bhojanapalli et al., Low-Rank Bottleneck in Multi-head Attention Models (2020)
why: A product has at most the rank of its factors. The exponential is not linear: distinct numbers x on the line as
  queries and as keys give a matrix of exponentials that is invertible. The rank of a matrix whose size is a letter is
  no identity between its entries.
false: $rank(P) ≤ d_k$

symmetric-scores-reversible: Symmetric scores give a reversible chain
$Z_i P_ij = Z_j P_ji$
letters: attending | A n n | index i n, j n | where S = A + Aᵀ
for: $S = Sᵀ$; $Z_i = Σ_{j=1}^n e^{S_ij}$
why: Both sides are the exponential of the score. Summed over i they say that Z is stationary under P.
false: $P = Pᵀ$

not-globally-lipschitz: Attention is not globally Lipschitz
$∂o_1/∂x_1 = 1/3 + 2/3 a²$ at $x = (0, a, −a)$, so self-attention is not globally Lipschitz
letters: new | a | where o = softmax(x xᵀ) x
for: tokens of width one, all weights one, and Q = K = V = X
source: Kim, Papamakarios, Mnih, The Lipschitz Constant of Self-Attention (2021)
why: At the token 0 all scores are equal; its output moves by the variance of the tokens, which has no bound.
false: Lipschitz with constant $‖W_V‖$, which is 1 here: $∂o_1/∂x_1 ≤ 1$ at $x = (0, a, −a)$
step: At the token 0 the derivative is the variance of the tokens and 1/n, here $p_1 + p·(x ⊙ x) − {p·x}² = 1/3 + 2/3
  a²$ for $x = (0, a, −a)$ and $p = softmax(0 x)$.
step new | y, z m | sizes n 1+m, m | index j n | where x = (y, z); P = softmax(x xᵀ); o = P x: The derivative by the
  first token y is $∂o_1/∂y = p_1_1 + Σ_{j=1}^n p_1_j x_j² − o_1² + y p_1_1 (y − o_1)$.
step new | a, z m | sizes n 2+m, m | index j n | where x = (0, a, 0 z); p = softmax(0 x): Of tokens that are 0 but for
  one it is $p_1 + Σ_{j=1}^n p_j x_j² − {p·x}² = (1 + a²)/(m + 2) − a²/(m + 2)²$.
step: Of two tokens it is $p_1 + p·(x ⊙ x) − {p·x}² = {2 + a²}/4$ for $x = (0, a)$ and $p = softmax(0 x)$.
rule: A function with a derivative that has no bound is not Lipschitz: so it is for every number of tokens from two on.

nonexpansive-in-values: Attention does not expand its values
$max_c |A_i_c| ≤ max(|V − V′|)$ for $A = Attention(Q, K, V) − Attention(Q, K, V′)$, so the largest entry does not grow
why: The difference of the outputs is a mean of the differences of the values.
false: $‖Attention(Q, K, V) − Attention(Q, K, V′)‖_F ≤ ‖V − V′‖_F$
gap max(|V − V′|): {f_i_c Σ_{j=1}^{n_k} P_ij m_j_c + g_i_c Σ_{j=1}^{n_k} P_ij r_j_c}/2; f_i_c = 1 + sign(A_i_c) by
  bounded; g_i_c = 1 − sign(A_i_c) by bounded; m_j_c = max(|V − V′|) − V_j_c + V′_j_c by largest; r_j_c = max(|V − V′|)
  + V_j_c − V′_j_c by largest
"""

THEOREMS = theorems(
    "structure",
    _TEXT,
    {
        "": ATTENDING,
        "attending": ATTENDING,
        "output-in-hull": ATTENDING.also(functions={"N": _any_norm}),
        "per-token-equals-matrix": ATTENDING.also(
            defined={"O": _of_matrices(ATTENTION), "T": _of_matrices(Attention(scale=3))}
        ),
        "layers": Glossary(
            functions={"a": _attended(ATTENTION), "f": _layer(ATTENTION), "c": _layer(CAUSAL)},
        ),
        "dropped": Glossary(laws={"B": KEPT}),
        "inverse": ATTENDING.also(
            {"u": "d_k", "w": "d_k"}, defined={"I": eye("d_k"), "M⁻¹": formula("I − u wᵀ/(1 + wᵀ u)")}
        ),
        "duplicate-all-keys": ATTENDING.also(
            {"r": "r"},
            defined={
                "K′": lambda reader: _repeated(reader.array("K"), reader.length("r")),
                "V′": lambda reader: _repeated(reader.array("V"), reader.length("r")),
                "K″": lambda reader: rows(reader.array("K"), reader.array("K")[:1]),
                "V″": lambda reader: rows(reader.array("V"), reader.array("V")[:1]),
            },
        ),
    },
    globals(),
)
