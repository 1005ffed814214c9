"""Score variants: additive and distance scores, normalised queries and keys, caps, sinks, sparse weights, energies."""

from __future__ import annotations

from dataclasses import replace

from symattn.attention.scores import additive_scores, distance_scores, dot_scores
from symattn.attention.softmax import sink_weights
from symattn.attention.softmax import softmax as soft
from symattn.attention.softmax import sparsemax as sparse_weights
from symattn.proof.relations.glossary import Glossary
from symattn.proof.rules import Substitution
from symattn.proof.statement import Declared
from symattn.theorems.letters import rows, squares
from symattn.theorems.texts import theorems

LETTERS = Glossary(
    {"s": "n_k", "t": "n_k", "b": "", "V": "n_k d_v", "K": "n_k d_k", "q": "d_k"},
    index={"j": "n_k", "l": "n_k"},
    sharp="attained",
).where("p = softmax(s)")


SAME_LENGTHS = Substitution(
    Declared({"q": "n d", "k": "m d", "c": "", "h": ""}),
    lambda q, k, c: (soft(c * dot_scores(q, k)), soft(c * distance_scores(q, k))),
    (lambda q, k, c, y: soft(c * (distance_scores(q, k) + y.mT))),
    "y",
    "m 1",
    lambda k: squares(k) / 2,
    lambda h: h,
    lambda q, k, c: (soft(c * dot_scores(q, k)), soft(c * distance_scores(q, k))),
)
"""With ‖k_j‖²/2 = h for every key: for any keys the two differ by c ‖k_j‖²/2 within the softmax."""


_TEXT = """
additive-score-floor: Weights of additive scores stay above a floor
for $s_j = v·tanh(x_j)$ and $r_j = Σ_{l=1}^d v_l (e^{X_j_l} − e^{−X_j_l})/(e^{X_j_l} + e^{−X_j_l})$, which is the same:
  $r_j ≤ ‖v‖_1$, $r_j ≥ −‖v‖_1$ (strictly, unless v is 0), so $p_j ≥ e^{−2 ‖v‖_1}/n_k$; such are the scores $A_i_j =
  v·tanh(Wᵀ q_i + Uᵀ k_j)$
letters: additive | but s t b V q | v d, X n_k d, Q n e, W e d, K n_k f, U f d | sizes d | index i n, l d, m n_k | roles
  v none
why: A tanh is bounded, and so is what a fixed v makes of it.
false: additive attention can be arbitrarily sharp for a fixed v: $p_j ≤ e^{−4 ‖v‖_1}/n_k$
gap ‖v‖_1: Σ_{l=1}^d (f_l e^{−X_j_l} + g_l e^{X_j_l})/(e^{X_j_l} + e^{−X_j_l}); f_l = |v_l| + v_l by magnitude; g_l =
  |v_l| − v_l by magnitude; only f g
gap r_j: Σ_{l=1}^d (f_l e^{X_j_l} + g_l e^{−X_j_l})/(e^{X_j_l} + e^{−X_j_l}); f_l = |v_l| + v_l by magnitude; g_l =
  |v_l| − v_l by magnitude; only f g
gap p_j: (Σ_{m=1}^{n_k} e^{s_m − 2 ‖v‖_1} (e^{{Σ_{l=1}^d (f_l (a_j_l + b_m_l) + g_l (b_j_l + a_m_l))}/2} − 1))/(n_k
  Σ_{m=1}^{n_k} e^{s_m}); f_l = |v_l| + v_l by magnitude; g_l = |v_l| − v_l by magnitude; a_j_l = 1 + tanh(X_j_l) by
  bounded; b_j_l = 1 − tanh(X_j_l) by bounded

equal-norm-keys-euclidean: Keys of equal length: products, or distances
$softmax(c {q·k_j}) = softmax(−c/2 ‖q − k_j‖²)$
letters: | c, r, x n_k d_k | nonnegative r | where K_j = r x_j/‖x_j‖
for: all keys are of one length that is not 0, $‖k_j‖ = r$ and $‖k_j‖ ≠ 0$
source: Tsai et al., Transformer Dissection (2019)
why: −‖q − k‖²/2 = q·k − ‖q‖²/2 − ‖k‖²/2, and the first square is the same for all keys of a row.
false: the same for any keys
by SAME_LENGTHS

qk-norm-scale-free: Normalised queries and keys ignore their lengths
for $f(x, y) = τ {x·y}/(‖x‖ ‖y‖)$: $f(a x, b y) = f(x, y)$; for $s_i = f(q, k_i)$: $s_i² = τ² (q·k_i)²/({q·q}
  {k_i·k_i})$ and $(q·k_i)² ≤ {q·q} {k_i·k_i}$, which is |s_i| ≤ τ; so $p_j ≤ e^{2 τ}/(e^{2 τ} + n_k − 1)$, as for the
  weights p of any scores between −τ and τ
letters: | but s t p | K n d_k, z 1+m, x d_k, y d_k, a, b, τ | sizes n_k 1+m | index i n, j 1+m, l 1+m, c d_k, e d_k |
  where t_j = τ tanh(z_j); p = softmax(t)
for: no query and no key is 0: $‖x‖ ≠ 0$, $‖y‖ ≠ 0$, $‖q‖ ≠ 0$, $‖k_i‖ ≠ 0$
for: $a > 0$, $b > 0$, $τ ≥ 0$
for: for the last part there are two keys or more, and the scores are written as τ tanh(z)
source: Henry et al., Query-Key Normalization for Transformers (2020)
why: A positive factor is divided out; a cosine is at most 1.
false: $f(−a x, b y) = f(x, y)$
gap {q·q} {k_i·k_i}: {Σ_{c=1}^{d_k} Σ_{e=1}^{d_k} (q_c K_i_e − q_e K_i_c)²}/2
gap e^{2 τ}/(e^{2 τ} + n_k − 1): {Σ_{l≠j} e^{t_j} (e^{τ (d_j + c_l)} − 1)}/((e^{2 τ} + n_k − 1) Σ_{l=1}^{n_k} e^{t_l});
  c_l = 1 + tanh(z_l) by bounded; d_j = 1 − tanh(z_j) by bounded

softcap: The softcap bounds scores and keeps their order
for $g(s) = τ tanh(s/τ)$: $|g(s)| < τ$, g grows strictly, $|g(s) − g(t)| ≤ |s − t|$, $|g(s) − s| ≤ |s|³/(3 τ²)$
letters: | s, t, τ, x n_k | sharp far small
for: $τ > 0$
why: The function tanh grows from −1 to 1, with a slope of at most 1.
false: softmax after g does not change when all scores are shifted, $softmax(g(x + t 𝟏)) = softmax(g(x))$; the cap may
  come after the mask, so that a forbidden key has the weight $e^{−τ}/(e^{−τ} + Σ_{j=1}^{n_k} e^{g(x_j)}) = 0$
step: for $f = τ tanh(s/τ)$ and $r = s³/(3 τ²) − s + f$: $∂f/∂s = 1 − tanh(s/τ)²$ and $∂r/∂s = (s/τ)² − tanh(s/τ)²$.
step new | x | where t = (e^x − e^{−x})/(e^x + e^{−x}): For t, which is tanh x, $0 < 1 − t$, $0 < 1 + t$, $0 < 1 − t²$
  and $1 − t² ≤ 1$.
rule: So |g| < τ and 0 < g' ≤ 1: g grows, and no faster than s. Then |tanh x| ≤ |x|, so r has a derivative that is never
  negative; it is 0 at 0, so it has the sign of s, and so has s − g(s).
gap 1: t²
gap 1 − t²: 4/(e^x + e^{−x})²
gap 1 − t: {2 e^{−x}}/(e^x + e^{−x})
gap 1 + t: {2 e^x}/(e^x + e^{−x})

sink-is-extra-key: A sink is one more key
$Σ_{j=1}^{n_k} e^{s_j}/(e^b + Σ_{l=1}^{n_k} e^{s_l}) v_j = softmax((s, b)) V_+$: a sink is one more key, of score b
  and value 0, which is the last row of $V_+$; for $b = 0$ it is softmax-off-by-one
source: Miller, Attention Is Off By One (2023)
why: The term e^b in the normaliser is the exponential of one more score.
false: off-by-one has a key of score −∞ instead of 0, $e^{s_j}/(1 + Σ_{l=1}^{n_k} e^{s_l}) = p_j$; the extra key has a
  value other than 0, $Σ_{j=1}^{n_k} e^{s_j}/(e^b + Σ_{l=1}^{n_k} e^{s_l}) v_j = softmax((s, b)) V_w$

sink-is-a-gate: A sink is a gate
$o_sink = o sigmoid(lse(s) − b)$
letters: | where o = Σ_{j=1}^{n_k} p_j v_j; o_sink = Σ_{j=1}^{n_k} e^{s_j}/(e^b + Σ_{l=1}^{n_k} e^{s_l}) v_j
why: The sink keeps the proportions of the weights, and takes the share $sigmoid(b − lse(s))$.
false: $o_sink = o$; $o_sink = o sigmoid(max(s) − b)$

sink-shift: A sink is shifted with the scores
$f(s + t 𝟏, b + t) = f(s, b)$ for the softmax f with a sink; so subtracting a maximum m needs $e^{b − m}$ in the
  normaliser
why: The sink is one of the keys.
false: $f(s + t 𝟏, b) = f(s, b)$; with 1 in the normaliser for b = 0,
  $e^{s_j − t}/(1 + Σ_{l=1}^{n_k} e^{s_l − t}) = e^{s_j}/(1 + Σ_{l=1}^{n_k} e^{s_l})$

sparsemax: Sparsemax is the nearest point of the simplex
sparsemax gives the weights that are nearest to the scores, $‖sparsemax(s) − s‖² ≤ ‖p − s‖²$ for all weights p; it
  does not change when all scores are shifted, $sparsemax(s + c 𝟏) = sparsemax(s)$, and $‖sparsemax(s) − sparsemax(t)‖
  ≤ ‖s − t‖$
letters: sparse | s n_k, t n_k, c, x n_k | index j n_k | sharp attained | where p = softmax(x)
for: both p and q are weights: not negative, with the sum 1; λ is never negative, and 0 where p is not
source: Martins, Astudillo, From Softmax to Sparsemax (2016)
why: It is the projection to the simplex, which is convex.
false: all weights are positive, $0 < sparsemax_j(s)$; the Lipschitz constant is ½, $‖sparsemax(s) − sparsemax(t)‖ ≤ 1/2
  ‖s − t‖$
step new | p n, q n, λ n, μ n, τ, ρ | nonnegative p q λ μ | sizes n | index j n | where s = p + τ 𝟏 − λ; t = q + ρ 𝟏 −
  μ: But for terms that are 0 if p and q have one sum and λ p = μ q = 0, $‖p − s‖² − 2 {p·λ} − 2 τ (Σ_{j=1}^n q_j −
  Σ_{j=1}^n p_j) ≤ ‖q − s‖²$ and $‖p − q‖² − 2 {p·λ} − 2 {q·μ} − 2 (τ − ρ) (Σ_{j=1}^n q_j − Σ_{j=1}^n p_j) ≤ ‖s − t‖²$.
rule: If s = p + τ − λ with λ ≥ 0, and λ = 0 where p > 0, then p is nearest, and alone so, as ‖q − p‖² is left over.
  Such a p there is for all s, p = max(s − τ, 0): as τ falls its sum grows from 0 without a break, so it is 1 for some
  τ. Scores s + t have the same p and λ, with the threshold τ + t.
gap ‖q − s‖²: ‖q − p‖² + 2 q·λ
gap ‖s − t‖²: ‖(τ − ρ) 𝟏 − λ + μ‖² + 2 p·μ + 2 q·λ

hopfield-energy: A step of attention lowers the Hopfield energy
for $E(ξ) = −lse(β X ξ)/β + 1/2 ‖ξ‖²$ and $ξ′ = Xᵀ softmax(β X ξ)$: $E(ξ) − E(η) ≥ 1/2 ‖ξ − η‖² + (ξ′ − η)·(η − ξ)$ for
  every η, so E(ξ) − E(ξ′) is at least ½ ‖ξ − ξ′‖²
letters: new | X n d, ξ d, η d, β | index i n
for: $β > 0$
source: Ramsauer et al., Hopfield Networks is All You Need (2021)
why: The function lse lies above its tangents, and the rest of the energy is a square.
false: one step reaches the minimum: a second one changes nothing, $Xᵀ softmax(β X ξ′) = ξ′$
gap E(ξ) − E(η): {Σ_{i=1}^n e^{β {x_i·ξ}} (e^{r_i} − 1 − r_i)}/(β Σ_{i=1}^n e^{β {x_i·ξ}}); r_i = β {x_i·η} − lse(β X η)
  − β {x_i·ξ} + lse(β X ξ)
"""

THEOREMS = theorems(
    "scores",
    _TEXT,
    {
        "": LETTERS,
        "additive": LETTERS.also(defined={"A": lambda reader: additive_scores(*map(reader.array, "QKWUv"))}),
        "sink-is-extra-key": LETTERS.also(
            {"w": "1 d_v"},
            defined={
                "V₊": lambda reader: rows(reader.array("V"), 0 * reader.array("w")),
                "V_w": lambda reader: rows(reader.array("V"), reader.array("w")),
            },
            rows=True,
        ),
        "sink-shift": LETTERS.also(
            {"t": ""},
            functions={"f": lambda reader, x, b: replace(x, array=sink_weights(x.array, b.array[None]))},
        ),
        "sparse": Glossary(functions={"sparsemax": lambda reader, x: replace(x, array=sparse_weights(x.array))}),
    },
    globals(),
)
