"""Gradients: of softmax, of attention as backward passes compute them, and of its steps."""

from __future__ import annotations

from symattn.attention.gradients.attention import Gradients, backward
from symattn.attention.norms import layer_norm, rms_norm
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import ATTENDING, CAUSAL, eye, scaled_scores
from symattn.theorems.letters import weights as weights_of
from symattn.theorems.rotations import positions, rotation_matrix
from symattn.theorems.texts import theorems

_ROW = Glossary(
    {"s": "m", "g": "m"},
    sizes={"m": "m", "n_k": "m"},
    index={"i": "m", "j": "m", "l": "m"},
).where("p = softmax(s)")


_FORWARD = ATTENDING.also(loss="ℓ").where("ℓ = Σ_{i=1}^{n_q} Σ_{c=1}^{d_v} G_i_c O_i_c")
LETTERS = _FORWARD.also().where("dP = G Vᵀ", "dS_ij = p_ij (dP_ij − Σ_{l=1}^{n_k} p_il dP_il)")


# -- the backward pass ------------------------------------------------------------------------------------------------
def _each_head(reader: Reader) -> Gradients:
    """Return the gradients that each query head sends to the head of keys and values that it reads."""
    q, k, v, g = map(reader.array, "QKVG")
    results = backward(q, k[:, None], v[:, None], weights_of(scaled_scores(q, k[:, None])), g)
    return Gradients(*(Value(x, ("h", "t"), 2) for x in results))


_TEXT = """
softmax-jacobian: The Jacobian of softmax
$∂p_i/∂s_j = p_i (δ_ij − p_j)$
letters: row
why: The derivative of a quotient. The maximum that is subtracted may be differentiated or not: it cancels.
false: $∂p_i/∂s_j = p_i (δ_ij + p_j)$

softmax-vjp: Softmax backwards
$∂(Σ_{j=1}^m g_j p_j)/∂s_i = p_i (g_i − Σ_{j=1}^m g_j p_j)$
letters: row
why: The Jacobian, transposed, times g.
false: without the factor before the bracket in its second term: $∂(Σ_{j=1}^m g_j p_j)/∂s_i = p_i g_i − Σ_{j=1}^m g_j
  p_j$

backward-dV: Backwards: the values
$dV = Pᵀ G$
for: ℓ is the sum of the entries of $G$ times those of $O$; dX is its gradient by X
source: Dao et al., FlashAttention (2022)
why: The output is linear in the values.
false: $dV = P G$, for $n_q = n_k$

backward-dQ: Backwards: the queries
$dQ = 1/√d_k dS K$ with $dS_ij = p_ij (dP_ij − Σ_{l=1}^{n_k} p_il dP_il)$ and $dP = G Vᵀ$
letters: forward
for: ℓ is the sum of the entries of $G$ times those of $O$; dX is its gradient by X
source: Dao et al., FlashAttention (2022)
why: The chain rule through the softmax of each row; the scores of row i depend on query i alone.
false: without the factor of the scores, $dQ = dS K$; or with the row sum outside the product with the weights, $dQ =
  1/√d_k T K$ with $T_ij = p_ij dP_ij − Σ_{l=1}^{n_k} p_il dP_il$

backward-dK: Backwards: the keys
$dK = 1/√d_k dSᵀ Q$
for: ℓ is the sum of the entries of $G$ times those of $O$; dX is its gradient by X
source: Dao et al., FlashAttention (2022)
why: The chain rule; the scores of column j depend on key j alone.
false: $dK = 1/√d_k dS Q$, for $n_q = n_k$

flash-rowsum: The sum of a row in FlashAttention's backward pass
$Σ_{j=1}^{n_k} p_ij dP_ij = Σ_{c=1}^{d_v} G_i_c O_i_c$
letters: forward
for: $dP = G Vᵀ$, as $G$ is the gradient by $O$
source: Dao et al., FlashAttention (2022)
why: Both are the sum over keys and columns of weight, value and gradient; so the backward pass needs no row sum over
  keys.
false: $Σ_{j=1}^{n_k} p_ij dP_ij = Σ_{j=1}^{n_k} dP_ij$

score-gradient-rows-sum-zero: Gradients of a row of scores sum to zero
$Σ_{j=1}^{n_k} dS_ij = 0$, hence $Σ_{j=1}^{n_k} dK_j = 0$
for: ℓ is the sum of the entries of $G$ times those of $O$; dX is its gradient by X
why: The weights do not change when one number is added to all scores of a row, or one vector to all keys.
false: $Σ_{i=1}^{n_q} dQ_i = 0$

value-gradient-conserved: Gradients of the values are conserved
$Σ_{j=1}^{n_k} dV_j = Σ_{i=1}^{n_q} G_i$
for: ℓ is the sum of the entries of $G$ times those of $O$; dX is its gradient by X
why: The weights of every row sum to one.
false: $dV_j = G_j$, for $n_q = n_k$

score-gradient-saturates: Gradients of scores saturate with the weights
$Σ_{j=1}^{n_k} |d_j| ≤ 2 (1 − p_k) (max(g) − min(g))$ for every key k, so for the one of the largest weight
letters: row | index k m | where d_j = p_j (g_j − Σ_{l=1}^m p_l g_l)
for: there are two keys or more
for: d is the gradient of a row of scores, from the gradient g of its weights
source: this catalogue
why: The key itself moves with the weight of the others, and the others have no more weight than that.
false: $Σ_{j=1}^{n_k} |d_j| ≤ 2 (1 − max(p))² (max(g) − min(g))$
gap 2 (1 − p_k) (max(g) − min(g)): p_k {Σ_{j≠k} p_j (a_k (v_k + u_j) + b_k (v_j + u_k))}/2 + {Σ_{j≠k} p_j Σ_{l=1}^m p_l
  (a_j (v_j + u_l) + b_j (v_l + u_j))}/2 + (Σ_{j≠k} p_j)² (u_k + v_k); a_j = 1 + sign(d_j) by bounded; b_j = 1 −
  sign(d_j) by bounded; u_j = g_j − min(g) by largest; v_j = max(g) − g_j by largest

cross-entropy-gradient: The gradient of cross entropy
$∂(−log(p_y))/∂s_j = p_j − δ_j_y$
letters: row | s 1+m | index j 1+m | places y 0
for: the label y is the first class, which is no loss: classes may be renamed
why: log p_y is the score less the logarithm of the denominator.
false: $∂(−log(p_y))/∂s_j = δ_j_y − p_j$

backward-sink: Backwards: sinks
$dS_ij = p_ij (dP_ij − D_i)$ and $db_i = −w_i D_i$ with $D_i = Σ_{j=1}^{n_k} p_ij dP_ij$
letters: step | S n_q n_k, dP n_q n_k, b n_q | where ℓ = Σ_{i=1}^{n_q} Σ_{j=1}^{n_k} dP_ij p_ij | loss ℓ
for: dX is the gradient by X, from dY by what was computed of it
for: a sink $b_i$ has the weight $w_i$ in its row: $p_ij = e^{s_ij}/(e^{b_i} + Σ_{l=1}^{n_k} e^{s_il})$, $w_i =
  e^{b_i}/(e^{b_i} + Σ_{l=1}^{n_k} e^{s_il})$
source: Dao et al., FlashAttention (2022)
why: The sink is one more key, of which the value is 0.
false: $db_i = w_i D_i$

backward-sigmoid: Backwards: sigmoid weights
$dS_ij = a_ij (1 − a_ij) da_ij$
letters: step | S n_q n_k, dA n_q n_k | where ℓ = Σ_{i=1}^{n_q} Σ_{j=1}^{n_k} da_ij a_ij | loss ℓ
for: dX is the gradient by X, from dY by what was computed of it
for: $a_ij = sigmoid(s_ij)$
why: Each weight looks at its own score.
false: $dS_ij = a_ij da_ij$

log-sum-exp-gradient: The gradient of log-sum-exp
$∂L_i/∂s_ij = p_ij$
letters: attending | but S | S n_q n_k
for: L is the logarithm of what a row is divided by, $L_i = log(Σ_{l=1}^{n_k} e^{s_il})$
why: The derivative of a logarithm of a sum of exponentials.
false: $∂L_i/∂s_ij = p_ij (1 − p_ij)$

backward-softcap: Backwards: the softcap
$dS_ij = dY_ij (1 − (Y_ij/c)²)$
letters: step | S n_q n_k, dY n_q n_k, c | where ℓ = Σ_{i=1}^{n_q} Σ_{j=1}^{n_k} dY_ij Y_ij | loss ℓ
for: dX is the gradient by X, from dY by what was computed of it
for: $Y_ij = c tanh(s_ij/c)$
for: $c = 2$, which is no loss: scores may be measured in other units
why: The derivative of tanh is 1 − tanh².
false: $dS_ij = dY_ij (1 − Y_ij²)$

backward-general-scores: Backwards: general scores
$dQ = dS K Wᵀ$, $dK = dSᵀ Q W$ and $dW = Qᵀ dS K$
letters: step | Q n_q d_q, K n_k d_k, W d_q d_k, dS n_q n_k | where ℓ = Σ_{i=1}^{n_q} Σ_{j=1}^{n_k} dS_ij s_ij | loss
  ℓ
for: dX is the gradient by X, from dY by what was computed of it
for: $S = Q W Kᵀ$
why: The scores are linear in each of the three.
false: $dQ = dS K Wᵀ W Wᵀ$

backward-additive-scores: Backwards: additive scores
$dv = Σ_{i=1}^{n_q} Σ_{j=1}^{n_k} ds_ij h_ij$; with $e_ij = ds_ij v ⊙ (𝟏 − h_ij ⊙ h_ij)$: $dq_i = Wᵀ Σ_{j=1}^{n_k}
  e_ij$, $dW = Σ_{i=1}^{n_q} Σ_{j=1}^{n_k} e_ij q_iᵀ$, $dk_j = Uᵀ Σ_{i=1}^{n_q} e_ij$ and $dU = Σ_{i=1}^{n_q}
  Σ_{j=1}^{n_k} e_ij k_jᵀ$
letters: step | Q n_q d_q, K n_k d_k, W l d_q, U l d_k, v l, dS n_q n_k | roles v none | where ℓ = Σ_{i=1}^{n_q}
  Σ_{j=1}^{n_k} dS_ij s_ij | loss ℓ | but h
for: dX is the gradient by X, from dY by what was computed of it
for: the scores are $s_ij = v·h_ij$ with $h_ij = tanh(W q_i + U k_j)$
source: Bahdanau, Cho, Bengio (2015)
why: The derivative of tanh is 1 − tanh².
false: dQ without the slope of tanh: $dq_i = Σ_{j=1}^{n_k} ds_ij {Wᵀ v}$

backward-distance-scores: Backwards: scores by distance
$dq_i = Σ_{j=1}^{n_k} ds_ij (k_j − q_i)$
letters: step | Q n_q d, K n_k d, dS n_q n_k | where ℓ = Σ_{i=1}^{n_q} Σ_{j=1}^{n_k} dS_ij s_ij | loss ℓ
for: dX is the gradient by X, from dY by what was computed of it
for: $s_ij = −‖q_i − k_j‖²/2$; dK is the same with queries and keys exchanged
why: The derivative of half a square.
false: $dQ = dS K$

backward-norms: Backwards: norms
$∂(G·u)/∂X_i = 1/‖X‖ (G_i − u_i {G·u})$ for $u = X/‖X‖$; $∂(G·RMS(X))/∂X_i = √d/‖X‖ (G_i − u_i {G·u})$; and for
  LayerNorm the same of $Π X$, times $Π$: $∂(G·LN(X))/∂X_i = √d/‖Π X‖ (Π (G − w wᵀ G))_i$ with $w = Π X/‖Π X‖$
letters: norms | X d, G d | index i d | sizes d | where Π = I − 𝟏 𝟏ᵀ/d
for: ε is 0; no row is 0, $‖X‖ ≠ 0$, or, for LayerNorm, constant, $‖Π X‖ ≠ 0$
source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019)
why: What of the gradient is along x would change its length alone. Cosines are dot products of such u.
false: without the last Π, $∂(G·LN(X))/∂X_i = √d/‖Π X‖ (G − w wᵀ G)_i$; without the root, $∂(G·RMS(X))/∂X_i = 1/‖X‖
  (G_i − u_i {G·u})$

backward-rotary: Backwards: rotations
$dx_p = R_{−p} g_p$
for: dX is the gradient by X, from dY by what was computed of it
for: $R_p$ turns the pairs of columns at the place p, in either layout
source: Su et al., RoFormer (2021)
why: A rotation is undone by its transpose.
false: $dx_p = R_p g_p$

backward-projection: Backwards: projections
$dX = G Wᵀ$, $dW = Xᵀ G$ and $db = Σ_{i=1}^n g_i$
letters: new | X n d_model, W d_model d, b d, G n d | index i n, c d | sizes n, d | loss ℓ | where ℓ = Σ_{i=1}^n
  Σ_{c=1}^d G_i_c Y_i_c
for: dX is the gradient by X, from dY by what was computed of it
for: $Y = X W + 𝟏 bᵀ$ and G is the gradient by Y
why: The projection is linear in each of the three.
false: $dW = Xᵀ X W$

backward-shared-heads: Backwards: shared heads
$dK_h = Σ_{t=1}^r dK_h_t$ and $dV_h = Σ_{t=1}^r dV_h_t$
letters: each head | Q h r n_q d_k, K h n_k d_k, V h n_k d_v, G h r n_q d_v | sizes H h, r, d_k | index h h, t r | loss
  ℓ | where ℓ = Σ_{h=1}^H Σ_{t=1}^r G_h_t·Attention(Q_h_t, K_h, V_h)
for: dX is the gradient by X, from dY by what was computed of it
for: the head h of keys and values is read by the heads (h, 1), …, (h, r) of queries
source: Ainslie et al., GQA (2023)
why: What is read several times gets the sum of the gradients.
false: the mean over the heads in the place of the sum: $dV_h = (Σ_{t=1}^r dV_h_t)/r$

backward-causal: Backwards: the causal mask
the gradients of causal attention are those of $dV = Pᵀ G$, $dQ = 1/√d_k dS K$, $dK = 1/√d_k dSᵀ Q$ with its weights
  $P$
letters: causal | Q n d_k, K n d_k, V n d_v, G n d_v | index i n, j n, l n, c d_v | sizes n, n_k n, d_k, d_v | loss ℓ |
  where dP = G Vᵀ; O = P V; ℓ = Σ_{i=1}^n Σ_{c=1}^{d_v} G_i_c O_i_c
for: dX is the gradient by X, from dY by what was computed of it
for: $dS_ij = p_ij (dP_ij − D_i)$, $D_i = Σ_{j=1}^{n_k} p_ij dP_ij$
source: Dao et al., FlashAttention (2022)
why: A key that is forbidden has the weight 0, and so has its score's gradient: no mask is needed on the way back.
false: the same with the weights that have no mask: $dV = Aᵀ G$ with $A = softmax(Q Kᵀ/√d_k)$

backward-bias: Backwards: biases
$dB = dS$; for one row b that every query is given, $db_j = Σ_{i=1}^{n_q} dS_ij$
letters: backward | but S P | B n_q n_k, b n_k | where P = softmax(Q Kᵀ/√d_k + B + 𝟏 bᵀ)
for: dX is the gradient by X, from dY by what was computed of it
for: B and $𝟏 bᵀ$ are added to the scaled scores
why: The scores are the sum, and what is added often gets the sum of the gradients.
false: the gradient by the scores without the bias: $dB_ij = a_ij (dP_ij − Σ_{l=1}^{n_k} a_il dP_il)$ with $A =
  softmax(Q Kᵀ/√d_k)$
"""

THEOREMS = theorems(
    "gradients",
    _TEXT,
    {
        "": LETTERS,
        "row": _ROW,
        "forward": _FORWARD,
        "backward": LETTERS,
        "attending": ATTENDING,
        "step": ATTENDING.but(*ATTENDING.given, *ATTENDING.defined),
        "norms": Glossary(
            sizes={},
            defined={"I": eye("d")},
            functions={"RMS": lambda _, x: x.on(rms_norm), "LN": lambda _, x: x.on(layer_norm)},
        ),
        "backward-rotary": positions(
            {"x_p": "f*2", "g_p": "f*2"},
            "p",
            {"R": rotation_matrix},
            loss="ℓ",
        ).where("ℓ = R_p x_p·g_p"),
        "each head": Glossary(
            sizes={},
            defined={"dK_ht": lambda reader: _each_head(reader).k, "dV_ht": lambda reader: _each_head(reader).v},
        ),
        "causal": Glossary(sizes={}, defined={"P": lambda r: CAUSAL.trace(*map(r.array, "QKV"))["weights"]}),
    },
    globals(),
)
