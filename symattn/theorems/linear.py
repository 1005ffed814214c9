"""Linear attention and kernels: what reassociates, what runs as a recurrence, and what features can represent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.linear import causal_linear_attention, delta_step, linear_state
from symattn.document.formulas import ARRAY_ROLES, formula
from symattn.document.notation import Node, name
from symattn.document.text import text
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Unread, Value
from symattn.proof.relations.random_arrays import mean_of_exponential
from symattn.proof.relations.reader import Reader
from symattn.proof.rules import Fold
from symattn.proof.statement import Declared
from symattn.theorems.letters import eye
from symattn.theorems.texts import theorems


# -- reassociation and recurrence --------------------------------------------------------------------------------------
def _up_to(of: Any) -> Any:
    """Return S_t or z_t, the sum of ``of`` over the first t tokens; for t − 1, without token t."""

    def read(reader: Reader, parts: tuple[Node, ...]) -> Value:
        terms = of(reader.array("K"), reader.array("V"))
        xp = terms.__array_namespace__()
        shift = int(parts[0] == formula("t − 1"))
        if parts[0] not in (name("t"), formula("t − 1")):
            raise Unread(f"the sum up to {text(parts[0])}")
        n = terms.shape[0]
        places = xp.arange(n)
        seen = places[None, :] < places[:, None] if shift else places[None, :] <= places[:, None]
        sums = xp.reshape(xp.astype(seen, terms.dtype) @ xp.reshape(terms, (n, -1)), terms.shape)
        return Value(sums, ("t",), len(terms.shape) - 1)

    return read


TOKENS = Glossary(
    {"Q": "n f", "K": "n f", "V": "n d_v"},
    {"n": "n"},
    {"t": "n"},
    {"o": lambda reader: causal_linear_attention(*map(reader.array, "QKV"))},
    functions={"φ": lambda _, x: x},
    roles={**ARRAY_ROLES, "S": None},
    families={"S": _up_to(lambda k, v: k[:, :, None] * v[:, None, :]), "z": _up_to(lambda k, v: k)},
    rows=True,
)
"""Rows of Q and K that stand for the features of queries and keys, of any function φ."""


STATES_ADDED = Fold(
    Declared({"k": "p d_k", "v": "p d_v"}),
    "p",
    linear_state,
    lambda x, y, given: (x[0] + y[0], x[1] + y[1]),
    lambda x, y, given: (x[0] + y[0], y[1]),
)
"""The state of a run of tokens is the sum of those of its parts, down to single tokens."""


def _new_state(reader: Reader) -> Array:
    s, k, v = reader.array("S"), reader.array("k")[None, :], reader.array("v")[None, :]
    return delta_step(s, k, v, reader.array("β"))


def _rising(first: str, steps: str) -> Callable[[Reader], Any]:
    """x < x + u₁ < x + u₁ + u₂ < …"""

    def made(reader: Reader) -> Any:
        x, u = reader.array(first), reader.array(steps)
        return reader.xp.stack([x, *(x + u[: n + 1].sum() for n in range(u.shape[0]))])

    return made


_TEXT = """
linear-reassociation: Linear attention reassociates
$(φ_Q φ_Kᵀ) V/((φ_Q φ_Kᵀ) 𝟏) = φ_Q (φ_Kᵀ V)/(φ_Q (φ_Kᵀ 𝟏))$
letters: new | φ_Q n f, φ_K m f, V m d_v
for: no denominator is 0
source: Katharopoulos et al., Transformers are RNNs (2020)
why: Products of matrices are associative.
false: softmax attention reassociates: $softmax(φ_Q φ_Kᵀ) V = φ_Q (φ_Kᵀ V)/(φ_Q (φ_Kᵀ 𝟏))$

linear-recurrence: Linear attention is a recurrence
causal linear attention is $o_t = φ(q_t) S_t/(φ(q_t) z_t)$ with $S_t = S_{t − 1} + φ(k_t)ᵀ v_t$, $z_t = z_{t − 1} +
  φ(k_t)ᵀ$
for: no denominator is 0
source: Katharopoulos et al., Transformers are RNNs (2020)
why: The sums over j ≤ t grow by one term a step.
false: z is not accumulated, $o_t = φ(q_t) S_t/(φ(q_t) φ(k_t)ᵀ)$
and STATES_ADDED

delta-rule: The delta rule
$S′ = S + β kᵀ (v − k S) = (I − β kᵀ k) S + β kᵀ v$; $k S′ = (1 − β ‖k‖²) k S + β ‖k‖² v$; this is $v$ for $‖k‖ = 1$
  and $β = 1$
letters: updated | S f d_v, k f, v d_v, β | roles S none
for: for the last part k is x/‖x‖ of any x that is not 0: its square is 1
source: Schlag, Irie, Schmidhuber, Linear Transformers Are Secretly Fast Weight Programmers (2021)
why: With k kᵀ = 1 the update replaces what is stored under k by v.
false: $k S′ = v$ for keys of any length

performer-positive-features: Positive features of Performers
$E[e^{w·q − ‖q‖²/2} e^{w·k − ‖k‖²/2}] = e^{q·k}$ for w ∼ N(0, I)
for: the mean of $e^{w·x}$ is $e^{‖x‖²/2}$, the known generating function of the moments of N(0, I)
source: Choromanski et al., Rethinking Attention with Performers (2021)
why: The mean of $e^{w·(q + k)}$ is $e^{‖q + k‖²/2}$, and $‖q + k‖² − ‖q‖² − ‖k‖²$ is $2 {q·k}$.
false: $E[e^{w·q} e^{w·k}] = e^{q·k}$

power-kernel-features: Features of a power of the score
$(q·k)^r = q^{⊗ r}·k^{⊗ r}$; $Σ_{r=0}^R (q·k)^r/r!$ is positive for even $R$
letters: new | q d, k d, R r, x | sizes r
why: The inner product of tensor products is the product of inner products.
false: the sum is positive for odd R: $0 ≤ 1 + x + x²/2 + x³/6$
step new | q d, k d, a e, b e | sizes d, e | index i d, j e: $Σ_{i=1}^d Σ_{j=1}^e q_i a_j k_i b_j = {q·k} {a·b}$: each
  further tensor factor multiplies the product by q·k, so the first holds for every r.
step new | x, s, t, y | where p_0 = e^{−x}; p_1 = (1 + x) e^{−x}; p_2 = (1 + x + x²/2) e^{−x}; p_3 = (1 + x + x²/2 +
  x³/6) e^{−x}; p_4 = (1 + x + x²/2 + x³/6 + x⁴/24) e^{−x}: Let s be the sum, of order R. The derivative of $s e^{−x}$
  is $−x^R/R! e^{−x}$: for R up to 4 $∂p_0/∂x = −e^{−x}$, $∂p_1/∂x = −x e^{−x}$, $∂p_2/∂x = −x²/2 e^{−x}$, $∂p_3/∂x =
  −x³/6 e^{−x}$ and $∂p_4/∂x = −x⁴/24 e^{−x}$, and for R + 1 if it is so for R. The last part is R = 2 and R = 4: $1/2 ≤
  1 + x + x²/2$ and $1/4 ≤ 1 + x + x²/2 + x³/6 + x⁴/24$.
rule: For even R the derivative is not positive, so for x ≤ 0 the product is at least its value 1 at 0, and s is
  positive; for x ≥ 0 the first term of s is 1 and no other is negative.
gap 1/2: {(x + 1)²}/2
gap 1/4: {(x² + 2 x)² + 8 (x + 3/2)²}/24

exp-kernel-full-rank: Three features do not give softmax attention
$det[e^{q_i k_j}] > 0$, tried up to the order 5, with $q_1 < q_2$ < … and $k_1 < k_2$ < …; so three features, or fewer,
  do not give softmax attention exactly; for all numbers of the order 2: $e^{x (y + b)} e^{(x + a) y} ≤ e^{x y} e^{(x +
  a) (y + b)}$
letters: rising | x, u n, y, w n, a, b | sizes n 1+n | index i 1+n, j 1+n | positive u w a b
for: of every order it is so by induction with Rolle's theorem, as a sum of n exponentials has fewer than n zeros, which
  is no identity; a and b are the differences of two numbers q and of two k, and both sides are equal only if one is 0
why: A sum of n exponentials with distinct rates has fewer than n zeros. With R features the rank is at most R, and a
  matrix of the order 4 whose determinant is not 0 has the rank 4.
false: one feature is enough: the rank is 1, and the determinants are 0, $det[e^{q_i k_j}] = 0$
gap e^{x y} e^{(x + a) (y + b)}: e^{2 x y + x b + a y} (e^{a b} − 1)
"""

THEOREMS = theorems(
    "linear",
    _TEXT,
    {
        "": TOKENS,
        "updated": Glossary(defined={"S′": _new_state, "I": eye("f")}, rows=True),
        "performer-positive-features": Glossary({"q": "d", "k": "d"}, families={"E": mean_of_exponential("w")}),
        "rising": Glossary(sizes={}, defined={"q": _rising("x", "u"), "k": _rising("y", "w")}),
    },
    globals(),
)
