"""Softmax: what it is invariant under, its log-sum-exp, its derivatives and limits, and how far its weights move."""

from __future__ import annotations

from typing import Any

from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import side_by_side, weights
from symattn.theorems.texts import theorems

LETTERS = Glossary(
    given={"s": "n_k", "t": "n_k", "S": "n_q n_k", "x": "n_k"},
    sharp="attained",
    index={"i": "n_k", "j": "n_k", "l": "n_k"},
).where("p = softmax(s)", "P = softmax(S)", "p_max = max(p)", "J = diag(p) − p pᵀ")
ROWS = Glossary({"S": "n_q n_k"}, index={"i": "n_q", "j": "n_k"}).where("P = softmax(S)")


def _tied(reader: Reader) -> Any:
    """Return the weights in softmax(β s) of the keys with the largest score, 0; other scores are −u."""
    scores = side_by_side(0 * reader.array("tie"), -(reader.array("β") * reader.array("u")))
    return weights(scores)[..., : reader.length("n")]


_TEXT = """
softmax-shift: Softmax ignores what all scores share
$softmax(s + t 𝟏) = softmax(s)$
letters: | t
why: Numerator and denominator both get the factor e^t.
false: $softmax(t s) = softmax(s)$

softmax-simplex: Weights lie on the simplex
$p_ij > 0$, $Σ_{j=1}^{n_k} p_ij = 1$; so $P 𝟏 = 𝟏$, and $Σ_{i=1}^{n_q} Σ_{j=1}^{n_k} p_ij = n_q$
letters: rows
why: Each row is divided by its own sum, and exponentials are positive.
false: the columns sum to 1: $Pᵀ 𝟏 = 𝟏$

softmax-log-ratio: Ratios of weights are differences of scores
$s_i − s_j = log(p_i/p_j)$, hence the weights are ordered as the scores are: beside each other a score s_j and one that
  is larger by u_j have weights of which $e^{s_j}/Z ≤ e^{s_j + u_j}/Z$ with $Z = Σ_{l=1}^{n_k} (e^{s_l} + e^{s_l +
  u_l})$
letters: | u n_k | positive u
why: The normaliser is the same in both weights.
false: $p_i/p_j = s_i/s_j$
gap e^{s_j + u_j}/Z: e^{s_j} (e^{u_j} − 1)/Z

softmax-two-is-sigmoid: Softmax of two scores is a sigmoid
$p_1 = 1/(1 + e^{−(s_1 − s_2)})$
for: there are two keys, $n_k = 2$
why: Divide numerator and denominator by $e^{s_1}$.
false: $p_1 = 1/(1 + e^{−s_1})$

gibbs-variational: Softmax as a maximum (Gibbs)
$lse(s) − {pᵀ s − Σ_{j=1}^{n_k} p_j a_j} = Σ_{j=1}^{n_k} p_j (a_j − y_j)$ with $a_j = x_j − lse(x)$ and $y_j = s_j −
  lse(s)$, the logarithms of weights p and of softmax(s): $e^{a_j} = p_j$; so the gap between lse(s) and pᵀ s + H(p) is
  KL(p, softmax(s)), and $Σ_{j=1}^{n_k} p_j (a_j − y_j) ≥ 0$, also where further keys have weights in softmax(s) alone,
  $Σ_{j=1}^{n_k} p_j (a_j − z_j) > 0$ with $z_j = s_j − lse((s, r))$. So lse(s) is the maximum over all weights p,
  attained at softmax(s) alone: $lse(s) = softmax(s)ᵀ s − Σ_{j=1}^{n_k} w_j y_j$ with $w_j = e^{y_j}$
letters: | but p | r m | sizes m | index i m | where p = softmax(x)
for: weights that are not 0 are written as $softmax(x)$
why: The gap is a relative entropy, which is never negative.
false: the maximum is attained with all weight on the largest score: $lse(s) = max(s)$
gap Σ_{j=1}^{n_k} p_j (a_j − y_j): Σ_{j=1}^{n_k} p_j (e^{d_j} − 1 − d_j); d_j = y_j − a_j; only d
gap Σ_{j=1}^{n_k} p_j (a_j − z_j): Σ_{j=1}^{n_k} p_j (e^{d_j} − 1 − d_j) + (Σ_{i=1}^m e^{r_i})/(Σ_{j=1}^{n_k} e^{s_j} +
  Σ_{i=1}^m e^{r_i}); d_j = z_j − a_j

lse-bounds: Bounds of log-sum-exp
$max_j s_j ≤ lse(s)$, $lse(s) ≤ max(s) + log(n_k)$, with equality on the right iff all scores are
  equal, as in $lse(0 s) = log(n_k)$
letters: | sharp far
why: The largest term is one of n_k, and none is larger.
false: $lse(s) ≤ max(s) + 1$
gap max_j s_j: e^{a_j} − 1 − a_j + (Σ_{l≠j} e^{s_l})/(Σ_{l=1}^{n_k} e^{s_l}); a_j = s_j − lse(s)
gap max(s) + log(n_k): e^a − 1 − a + (Σ_{j=1}^{n_k} e^{s_j} (e^{r_j} − 1))/(n_k e^{max(s)}); a = lse(s) − max(s) −
  log(n_k); r_j = max(s) − s_j by largest; only r

lse-hessian: The Hessian of log-sum-exp
$∇ lse(s) = p$, $∂p_i/∂s_j = (diag(p) − p pᵀ)_{i, j}$; this matrix has no negative eigenvalue, $xᵀ (diag(p) − p pᵀ) x
  ≥ 0$, the trace $Σ_{j=1}^{n_k} p_j (1 − p_j) = 1 − ‖p‖²$, and a kernel spanned by the ones: $(diag(p) − p pᵀ) 𝟏 = 0 𝟏$
why: The Hessian is the covariance of one-hot vectors drawn with the weights p.
false: the Hessian is invertible, so that $xᵀ (diag(p) − p pᵀ) x > 0$ also for equal entries of x
gap xᵀ (diag(p) − p pᵀ) x: (Σ_{j=1}^{n_k} Σ_{l=1}^{n_k} p_j p_l d_jl²)/2; d_jl = x_j − x_l; only d

softmax-half-lipschitz: Softmax is Lipschitz with constant one half
$‖softmax(s) − softmax(t)‖ ≤ 1/2 ‖s − t‖$, also in the largest entry; no constant below ½ will do
letters: | sharp approached
source: Nair, Softmax is 1/2-Lipschitz (2025)
why: The Jacobian diag(p) − p pᵀ is small because the weights sum to 1.
false: $‖softmax(s) − softmax(t)‖ ≤ 1/4 ‖s − t‖$
step: $J_ij = ∂p_i/∂s_j$, and $0 ≤ xᵀ J x$ and $xᵀ J x ≤ 1/2 ‖x‖²$: the eigenvalues of the Jacobian J lie between 0 and
  ½. Each of its rows has the absolute sum $p_i (1 − p_i) + Σ_{l≠i} p_i p_l = 2 p_i (1 − p_i)$, and $2 p_i (1 − p_i) ≤
  1/2$.
step new | a | where p = softmax((a, a)); J = diag(p) − p pᵀ; x = (1, −1): For two equal scores $J x = 1/2 x$ with x =
  (1, −1).
rule: By the mean value inequality along the segment from s to t both are Lipschitz constants, and none is smaller.
gap 0: {Σ_{j=1}^{n_k} Σ_{l=1}^{n_k} p_j p_l (x_j − x_l)²}/2
gap 1/2 ‖x‖²: {Σ_{j=1}^{n_k} (1 − 2 p_j)² x_j² + Σ_{j=1}^{n_k} Σ_{l≠j} p_j p_l (x_j + x_l)²}/2
gap 1/2: {(1 − 2 p_i)²}/2

softmax-cocoercive: Softmax is cocoercive
$(softmax(s) − softmax(t))ᵀ (s − t) ≥ 2 ‖softmax(s) − softmax(t)‖²$
letters: | μ | positive μ | sharp approached
why: J − 2J² has no negative eigenvalue, since those of J lie between 0 and ½.
false: strong monotonicity: $(softmax(s) − softmax(t))ᵀ (s − t) ≥ μ ‖s − t‖²$ with some $μ > 0$
step: $J_ij = ∂p_i/∂s_j$, $0 ≤ xᵀ J x$ and $xᵀ J x ≤ 1/2 ‖x‖²$.
step new | A n n, x n | where B = A + Aᵀ; y = B x; z = 1/2 x − y: For every symmetric B $xᵀ B x − 2 ‖B x‖² = 4 (zᵀ B z +
  1/2 ‖y‖² − yᵀ B y)$.
rule: For J in the place of B no form on the right is negative, so xᵀJx ≥ 2‖Jx‖² everywhere on the segment from s to t.
  Integrate along it with x = s − t: ∫ J x = softmax(s) − softmax(t), and the mean of ‖Jx‖² is at least the square of
  the norm of the mean.
gap 0: {Σ_{j=1}^{n_k} Σ_{l=1}^{n_k} p_j p_l (x_j − x_l)²}/2
gap 1/2 ‖x‖²: {Σ_{j=1}^{n_k} (1 − 2 p_j)² x_j² + Σ_{j=1}^{n_k} Σ_{l≠j} p_j p_l (x_j + x_l)²}/2

softmax-limits: The limits of softmax, hot and cold
$w_i = 1/(n + Σ_{j=1}^m e^{−β u_j})$ for the weights w of the n keys with the largest score; $1/(n + Σ_{j=1}^m e^{−β
  u_j}) → 1/n$ as $β → ∞$; and $softmax(β s) → 1/n_k 𝟏$ as $β → 0$
letters: tied | β, u m, tie n | sizes n, m | index i n, j m
for: the n largest scores are 0, as a shift makes them, and w are their weights; those of the other m keys, one at
  least, are −u with $u > 0$
why: All keys but the largest lose weight exponentially in β.
false: the limit is one-hot, also with ties: $1/(n + Σ_{j=1}^m e^{−β u_j}) → 1$ as $β → ∞$

softmax-dispersion: Weights of bounded scores disperse
$1/(1 + (n_k − 1) e^w) ≤ p_1$ where no score is more than w above the first, $p′_1 ≤ e^w/(e^w + n_k − 1)$ where none is
  more than w below it, and $H(softmax(z)) ≥ log(n) − (max(z) − min(z))$
letters: | b, w, u m, z n | nonnegative u w | sizes n_k 1+m, m, n | index i n, k m, l n | where s = (b, (b + w) 𝟏 − u);
  p′ = softmax((b, (b − w) 𝟏 + u))
for: any key may stand first; no score is more than $w$ above another
for: there are two keys or more
why: Every other key has at least $e^{−w}$ and at most $e^w$ times the weight of a key.
false: bounded scores can stay sharp: $p_1 ≥ 1/(1 + e^w)$ for every $n_k$
gap p_1: (Σ_{k=1}^m e^{w − u_k} (e^{u_k} − 1))/((1 + (n_k − 1) e^w) (1 + Σ_{k=1}^m e^{w − u_k}))
gap e^w/(e^w + n_k − 1): (Σ_{k=1}^m e^{u_k} e^{−u_k} (e^{u_k} − 1))/((e^w + n_k − 1) (1 + Σ_{k=1}^m e^{u_k − w}))
gap H(softmax(z)): Σ_{i=1}^n e^{z_i} (e^{x_i} − 1 − x_i)/(Σ_{l=1}^n e^{z_l}) + Σ_{i=1}^n Σ_{l=1}^n e^{2 z_i + min(z) −
  max(z)} (e^{f_l + g_i} − 1)/(Σ_{l=1}^n e^{z_l})²; x_i = log((e^{z_i})/(Σ_{l=1}^n e^{z_l})) + log(n) + min(z) − max(z);
  f_l = z_l − min(z) by largest; g_i = max(z) − z_i by largest

softmax-gap: What a gap leaves to the other scores
$e^{−Δ − u_k}/(1 + e^{−Δ − u_k}) ≤ 1 − p_1$, where the exponent is −Δ for the second key, and $1 − p_1 ≤ (n_k − 1)
  e^{−Δ}/(1 + (n_k − 1) e^{−Δ})$
letters: | top, Δ, u m | nonnegative Δ u | sizes n_k 1+m, m | index k m, l m | where s = (top, (top − Δ) 𝟏 − u)
for: the largest score stands first, Δ is its gap to the second largest, so one entry of u is 0 and none is negative
for: there are two keys or more
why: Between one and all of the other n_k − 1 keys have the second largest score.
false: $1 − p_1 ≤ e^{−Δ}$ for every $n_k$
gap 1 − p_1: (Σ_{l≠k} e^{−Δ − u_l})/((1 + e^{−Δ − u_k}) (1 + Σ_{l=1}^m e^{−Δ − u_l}))
gap (n_k − 1) e^{−Δ}/(1 + (n_k − 1) e^{−Δ}): (Σ_{k=1}^m e^{−Δ − u_k} (e^{u_k} − 1))/((1 + (n_k − 1) e^{−Δ}) (1 +
  Σ_{k=1}^m e^{−Δ − u_k}))

softmax-tv-perturbation: How far weights move with their scores
$e^{−2 η} ≤ r/p$, $q/p ≤ e^{2 η}$ and $q − p ≤ (e^η − 1)/(e^η + 1)$ for the weights p, q, r of the keys in any set M; so
  the weight of a key changes by a factor of at most e^(2η), and TV by tanh(η/2) at most, which two keys reach:
  $e^h/(e^h + e^{−h}) − e^{−h}/(e^h + e^{−h}) = (e^{2 h} − 1)/(e^{2 h} + 1)$
letters: new | x a, u a, y b, v b, η, h | nonnegative u v η | index j a, l b | sizes a, b | where A = Σ_{j=1}^a e^{x_j};
  B = Σ_{l=1}^b e^{y_l}; C = Σ_{j=1}^a e^{x_j + η − u_j}; D = Σ_{l=1}^b e^{y_l − η + v_l}; E = Σ_{j=1}^a e^{x_j − η +
  u_j}; F = Σ_{l=1}^b e^{y_l + η − v_l}; p = A/(A + B); q = C/(C + D); r = E/(E + F)
for: no score changes by more than η: those x in M and those y of the other keys become x + η − u and y − η + v at the
  most, with the weight q of M, and x − η + u and y + η − v at the least, with the weight r; no entry of u and v is
  negative
for: TV is the largest difference of the masses of a set of keys
for: there are two keys or more
why: Score and normaliser can each move by a factor $e^η$; the mass of a set moves most when it is split evenly.
false: the ratio is at most $e^η$: $e^η A/(e^η A + e^{−η} B) ≤ e^η p$; $q − p ≤ η/4$
gap r/p: {{Σ_{j=1}^a Σ_{l=1}^b e^{x_j + y_l − η − v_l} (e^{u_j + v_l} − 1)} + A E e^{−2 η} (e^{2 η} − 1)}/(A (E + F))
gap e^{2 η}: {{Σ_{j=1}^a Σ_{l=1}^b e^{x_j + y_l + η − u_j} (e^{u_j + v_l} − 1)} + A C (e^{2 η} − 1)}/(A (C + D))
gap (e^η − 1)/(e^η + 1): {Σ_{j=1}^a Σ_{l=1}^b e^{x_j + η − u_j + y_l} (e^{u_j + v_l} − 1)}/((e^{2 η} A + B)
  (C + D)) + (e^η − 1) (e^η A − B)²/((e^η + 1) (e^{2 η} A + B) (A + B))

softmax-bregman: Relative entropy is a Bregman divergence
$Σ_{j=1}^{n_k} p_j (x_j − y_j) = lse(t) − lse(s) − pᵀ (t − s)$ with $x_j = s_j − lse(s)$ and $y_j = t_j − lse(t)$, the
  logarithms of the weights: $e^{x_j} = p_j$; so KL(softmax(s), softmax(t)) is the divergence of lse, and
  $Σ_{j=1}^{n_k} p_j (x_j − y_j) ≥ 0$
letters: | but x
why: It is the distance of lse(t) from the tangent of lse at s.
false: it is symmetric: $KL(softmax(s), softmax(t)) = KL(softmax(t), softmax(s))$
gap Σ_{j=1}^{n_k} p_j (x_j − y_j): Σ_{j=1}^{n_k} p_j (e^{d_j} − 1 − d_j); d_j = y_j − x_j
"""

THEOREMS = theorems(
    "softmax",
    _TEXT,
    {
        "": LETTERS,
        "rows": ROWS,
        "tied": LETTERS.also(defined={"w": _tied}),
    },
    globals(),
)
