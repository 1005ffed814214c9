"""Linear attention and kernels: what reassociates, what runs as a recurrence, and what features can represent."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.linear import (
    causal_linear_attention,
    delta_step,
    linear_state,
)
from symattn.document.formulas import ARRAY_ROLES, formula, running_text
from symattn.document.notation import Node, name
from symattn.document.text import text
from symattn.proof.gradients import gradient
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Unread, Value
from symattn.proof.relations.random_arrays import mean_of_exponential
from symattn.proof.relations.reader import Reader
from symattn.proof.rules import Fold
from symattn.proof.statement import Declared
from symattn.proof.together import Together, bound, identity
from symattn.theorems.letters import eye
from symattn.theorems.sums import HALF, exp, total
from symattn.theorems.texts import theorems

# -- reassociation and recurrence --------------------------------------------------------------------------------------


def _up_to(of: Any) -> Any:
    """S_t or z_t, the sum of what ``of`` is of the first t tokens; of t − 1 the token t is not there."""

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


def _new_state(reader: Reader) -> Any:
    s, k, v = reader.array("S"), reader.array("k")[None, :], reader.array("v")[None, :]
    return delta_step(s, k, v, reader.array("β"))


# -- features of kernels -----------------------------------------------------------------------------------------------


POWERS = {"q": "d", "k": "d", "a": "e", "b": "e"}


def _tensor(x: Array, y: Array) -> Array:
    """x ⊗ y as one row."""
    xp = x.__array_namespace__()
    return xp.reshape(x[:, None] * y[None, :], (x.shape[0] * y.shape[0],))


def _dot(x: Array, y: Array) -> Array:
    return total(x * y)


def _truncated(x: Array, order: int) -> Array:
    """Σ_{r ≤ order} x^r / r!."""
    result, term = 0 * x + 1, 0 * x + 1
    for r in range(1, order + 1):
        term = term * x * Fraction(1, r)
        result = result + term
    return result


def _falling(x: Array, order: int) -> Any:
    """Σ over all entries of e^{−x} Σ_{r ≤ order} x^r / r!."""
    return total(exp(-x) * _truncated(x, order))


def _slopes(x: Array, s: Array, term: Any, next: Any) -> list[tuple[Any, Any]]:
    """The derivative of e^{−x} s is −e^{−x} x^R / R!; a next term y, with y' = x^R / R!, makes of it −e^{−x} y."""
    orders = [(gradient(partial(_falling, order=r), "x", x=x), -exp(-x) * _term(x, r)) for r in range(5)]
    return [*orders, (-exp(s) * term + exp(s) * (term - next), -exp(s) * next)]


def _term(x: Array, order: int) -> Array:
    """x^order / order!."""
    return _truncated(x, order) - (_truncated(x, order - 1) if order else 0 * x)


power_kernel = Together(
    (
        identity(
            POWERS,
            lambda q, k, a, b: [
                (_dot(_tensor(q, a), _tensor(k, b)), _dot(q, k) * _dot(a, b)),
                (_dot(_tensor(q, q), _tensor(k, k)), _dot(q, k) * _dot(q, k)),
            ],
        ),
        identity({"x": "n", "s": "", "term": "", "next": ""}, _slopes),
        bound(
            {"x": "n"},
            lambda x: [(HALF + 0 * x, _truncated(x, 2)), (Fraction(1, 4) + 0 * x, _truncated(x, 4))],
            lambda x: [
                (x + 1) * (x + 1) * HALF,
                ((x * x + 2 * x) ** 2 + 8 * (x + Fraction(3, 2)) ** 2) * Fraction(1, 24),
            ],
            lambda x: (0, _truncated(x, 3)),
        ),
    ),
    running_text(
        "Each further tensor factor multiplies the product by q·k, so the first holds for every r. Let s be"
        " the sum, of order R. The derivative of $s e^{−x}$ is $−x^R/R! e^{−x}$: shown for R up to 4, and for"
        " R + 1 if it is so for R. For even R it is not positive, so for $x ≤ 0$ the product is at least its"
        " value 1 at 0, and s is positive; for $x ≥ 0$ the first term of s is 1 and no other is negative. The"
        " last part is R = 2 and R = 4 directly."
    ),
)


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
letters: new | q d, k d, R r | sizes r
why: The inner product of tensor products is the product of inner products.
false: the sum is positive for odd R
by power_kernel

exp-kernel-full-rank: Three features do not give softmax attention
$det[e^{q_i k_j}] > 0$, tried up to the order 5, with $q_1 < q_2$ < … and $k_1 < k_2$ < …; so three features, or fewer,
  do not give softmax attention exactly; for all numbers of the order 2: $e^{x (y + b)} e^{(x + a) y} ≤ e^{x y} e^{(x +
  a) (y + b)}$
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
        "delta-rule": Glossary(
            {"S": "f d_v", "k": "f", "v": "d_v", "β": ""},
            defined={"S′": _new_state, "I": eye("f")},
            roles={**ARRAY_ROLES, "S": None},
            rows=True,
        ),
        "performer-positive-features": Glossary({"q": "d", "k": "d"}, families={"E": mean_of_exponential("w")}),
        "exp-kernel-full-rank": Glossary(
            {"x": "", "u": "n", "y": "", "w": "n", "a": "", "b": ""},
            {"n": "1+n"},
            {"i": "1+n", "j": "1+n"},
            {"q": _rising("x", "u"), "k": _rising("y", "w")},
            positive=("u", "w", "a", "b"),
        ),
    },
    globals(),
)
