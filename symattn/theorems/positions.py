"""Positions: sinusoidal embeddings, linear biases, rotary ones, and the causal mask alone."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import causal as causal_mask
from symattn.attention.masks import forbid
from symattn.attention.positions.angles import linear_bias, rotate_half, sinusoidal
from symattn.attention.scores import dot_scores
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import Node
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value, spread
from symattn.proof.relations.reader import Reader
from symattn.proof.statement import Declared
from symattn.proof.together import Fails, Together, identity
from symattn.theorems.letters import CAUSAL, add_up, rows
from symattn.theorems.rotations import positions, rotation_matrix, turn, unit_vectors
from symattn.theorems.texts import theorems

LETTERS = positions(
    {},
    "pqkl",
    {
        "PE": lambda reader, parts: sinusoidal(*turn(reader, *parts)),
        # of the pairs (sin, cos), which the angle rotates in the opposite direction
        "M": lambda reader, parts: rotation_matrix(reader, tuple(-part for part in parts)),
    },
    sizes={"d_model": "f*2", "d_model/2": "f"},
).also(roles=dict.fromkeys("pqk"))


# -- sinusoidal --------------------------------------------------------------------------------------------------------
def _masked_rows(_: Reader, s: Value) -> Value:
    """Return the weights over j of scores s_ij, where j ≤ i."""
    scores = spread(s, ("i", "j"), 0)
    return Value(soft(forbid(scores, causal_mask(scores))), ("i", "j"))


# -- linear biases -----------------------------------------------------------------------------------------------------
def _biased_after(p: Any, s: Array, a: Array) -> Any:
    """Return s_ij − a (p + i) + a j: row i is that of token p + i."""
    xp = s.__array_namespace__()
    i, j = (xp.astype(xp.arange(n), s.dtype) for n in s.shape[-2:])
    return s - a * (p + i)[:, None] + a * j[None, :]


later_rows = identity(
    {"s": "h p+n p+n", "a": ""},
    lambda s, a, p: [
        (linear_bias(s, a), _biased_after(0, s, a)),
        (linear_bias(s[:, p:], a), _biased_after(p, s[:, p:], a)),
        (linear_bias(s, a)[:, p:], _biased_after(p, s[:, p:], a)),
    ],
)
"""The last rows of a matrix get the bias that they have in it."""


def _with_alibi(reader: Reader) -> Any:
    s, xp = reader.array("S"), reader.xp
    distance = xp.arange(s.shape[-2])[:, None] - xp.arange(s.shape[-1])[None, :]
    biased = s - reader.array("a") * xp.astype(distance, s.dtype)
    return soft(forbid(biased, causal_mask(biased)))


# -- absolute positions, and none --------------------------------------------------------------------------------------
COUNTS = {"k_0": "1 d", "k": "n d"}


def _marked(k_0: Array, k: Array) -> tuple[Array, Array]:
    """Return causal attention with queries 0 and values 1, 0, 0, …, and the number of keys that each row sees."""
    xp = k.__array_namespace__()
    keys, values = xp.concat([k_0, k], axis=-2), xp.concat([0 * add_up(k_0) + 1, 0 * add_up(k)], axis=-2)
    scores = dot_scores(0 * keys, keys)
    count = add_up(xp.astype(causal_mask(scores), keys.dtype))
    return CAUSAL(0 * keys, keys, values), count


def _moved_tokens(x: Array, y: Array) -> Any:
    """Return causal attention over two tokens in both orders."""
    xy, yx = rows(x, y), rows(y, x)
    swapped = CAUSAL(xy, xy, xy)
    return CAUSAL(yx, yx, yx), rows(swapped[1:], swapped[:1])


def _marked_row(reader: Reader) -> Array:
    """Return the first output of each row, with the value 1 of the first key and 0 of the others."""
    k = reader.array("K")
    return _marked(k[:1], k[1:])[0][:, 0]


nope_causal_counts = Together(
    (
        identity(
            COUNTS,
            lambda k_0, k: (_marked(k_0, k)[0] * _marked(k_0, k)[1], _marked(k_0, k)[1] * 0 + 1),
            lambda k_0, k, n: (_marked(k_0, k)[0] * (1 + n), _marked(k_0, k)[1] * 0 + 1),
        ),
        Fails(Declared({"x": "1 d", "y": "1 d"}), _moved_tokens),
    )
)


# -- rotary -----------------------------------------------------------------------------------------------------------
ROTARY = positions({"q": "f*2", "k": "f*2", "x": "f*2"}, "mnt", {"R": rotation_matrix})


def _evens_then_odds(x: Array) -> Array:
    xp = x.__array_namespace__()
    pairs = xp.reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2))
    return xp.concat([pairs[..., 0], pairs[..., 1]], axis=-1)


def _rotation_of_halves(reader: Reader, parts: tuple[Node, ...]) -> Array:
    """R′_p, likewise."""
    cosine, sine = turn(reader, *parts)
    every = _evens_then_odds(_evens_then_odds(unit_vectors(reader)).mT).mT
    return rotate_half(every, cosine[None, :], sine[None, :]).mT


_TEXT = """
sinusoidal-shift-is-linear: Sinusoidal positions shift linearly
$PE(p + k) = M_k PE(p)$ with plane rotations $M_k$, whatever $p$ is; $M_k M_l = M_{k + l}$
for: cosines and sines of sums are those of the angle addition formulas
source: Vaswani et al., Attention Is All You Need (2017), §3.5
why: In each plane the pair (sin ωp, cos ωp) is rotated by the angle ωk.
false: $PE(p + k) = PE(p) + PE(k)$; one matrix M for all k, $M_k = M_l$

sinusoidal-dot: Products of sinusoidal positions
$PE(p)·PE(q) = Σ_{f=1}^{d_model/2} cos(ω_f (p − q))$, $PE(p)·PE(q) = PE(q)·PE(p)$ and $‖PE(p)‖² = d_model/2$
for: cosines and sines of sums are those of the angle addition formulas
for: the width d_model is even
why: The cosine of a difference is cos a cos b + sin a sin b, in each plane.
false: it decreases monotonically with the distance, $PE(p + k + k)·PE(p) ≤ PE(p + k)·PE(p)$

rope-relative: RoPE sees distances alone
$R_m q·R_n k = q·R_{n − m} k = R_{m + t} q·R_{n + t} k$
letters: rotary
for: cosines and sines of sums are those of the angle addition formulas
for: m, n and t are any real numbers
source: Su et al., RoFormer (2021)
why: Rotations keep angles: what is left of two of them is the difference.
false: only the keys are rotated, $R_m q·R_n k = q·R_n k$; $R_m q·R_n k = q·R_{m − n} k$

rope-group: Rotations of RoPE are a group
$R_m R_n = R_{m + n}$, $R_mᵀ = R_{−m}$, $‖R_m x‖ = ‖x‖$
letters: rotary
for: cosines and sines of sums are those of the angle addition formulas
source: Su et al., RoFormer (2021)
why: Plane rotations add their angles and keep lengths.
false: $R_m R_n$ is $R_{m n}$, of which the angle for m = n = 3 is three times that of $R_m$: $R_m R_m = R_{m + m + m}$

rope-layouts: The two layouts of RoPE agree
let half-split RoPE be $R′$, interleaved RoPE $R$, and $Π$ evens then odds; then $R′_m (Π q)·R′_n (Π k) = R_m q·R_n k$
why: Both turn the same planes by the same angles; they list the coordinates in another order.
false: $Π$ on $q$ only, or on neither: $R′_m (Π q)·R′_n (k) = R_m q·R_n k$, $R′_m (q)·R′_n (k) = R_m q·R_n k$

rope-key-bias-not-redundant: With RoPE a bias of the keys matters
with RoPE a bias b of all keys adds $R_i q_i·R_j b$ to the unscaled score: $R_i q_i·R_j (k_j + b) = R_i q_i·R_j k_j +
  R_i q_i·R_j b$; this depends on j, as not always $R_i q_i·R_j b = R_i q_i·R_l b$
why: Rotations are linear, and the rotated bias differs from key to key.
false: with RoPE, as without, the weights are the same, for two keys $e^{R_i q_i·R_j (k_j + b)}/(e^{R_i q_i·R_j (k_j +
  b)} + e^{R_i q_i·R_l (k_l + b)}) = e^{R_i q_i·R_j k_j}/(e^{R_i q_i·R_j k_j} + e^{R_i q_i·R_l k_l})$

alibi-key-bias: ALiBi as a bias of the keys
under the causal mask $softmax(s_ij − a (i − j)) = softmax(s_ij + a j)$
letters: masked | S n n, a | index i n, j n, l n
source: Press, Smith, Lewis, Train Short, Test Long (2022)
why: The term −a i is one number for the whole row. The last rows of a matrix get the bias that they have in it.
false: the same without a mask for $−a |i − j|$: $e^{s_ij − a |i − j|}/(Σ_{l=1}^n e^{s_il − a |i − l|}) = e^{s_ij + a
  j}/(Σ_{l=1}^n e^{s_il + a l})$
and later_rows

alibi-tail: What ALiBi leaves to far keys
$Σ_{j ≤ i − L} p_ij ≤ e^{w − a L}$ under the causal mask: the keys at distances of L and more have together no larger
  weight
letters: alibi | S n n, a, u, steps L | sizes L | index i n, j n | nonnegative a u
for: the raw scores of a row lie within a band of width w
for: $a ≥ 0$, $L ≥ 1$
why: A step of L in distance costs the factor $e^{−a L}$, and the raw scores can give back $e^w$.
false: they have at most $e^{−a L}$ for any raw scores: $Σ_{j ≤ i − L} p_ij ≤ e^{−a L}$
step new | s m, u m, d m, r n, w, a, L | nonnegative u d w a L | sizes m, n | index j m, k n: $F/N ≤ e^{w − a L}$ with
  $F = Σ_{j=1}^m e^{s_j + w − u_j − a (L + d_j)}$ and $N = Σ_{j=1}^m e^{s_j − a d_j} + Σ_{k=1}^n e^{r_k}$, of the far
  keys and of all others.
rule: Every far key, at the distance L + d, has a partner at the distance d in its row, whose raw score is at most w
  lower. The partners are all keys but the L farthest, which are the rest.
gap e^{w − a L}: {e^{w − a L} (Σ_{k=1}^n e^{r_k} + Σ_{j=1}^m e^{s_j − a d_j − u_j} (e^{u_j} − 1))}/N

absolute-position-four-terms: Absolute positions: four terms
$(x_i + u_i) M (x_j + u_j)ᵀ = x_i M x_jᵀ + x_i M u_jᵀ + u_i M x_jᵀ + u_i M u_jᵀ$
letters: new | X n d, U n d, M d d | index i n, j n | rows
source: Dai et al., Transformer-XL (2019), §3.3
why: Scores are bilinear.
false: the cross terms are dropped: $(x_i + u_i) M (x_j + u_j)ᵀ = x_i M x_jᵀ + u_i M u_jᵀ$

nope-causal-counts: A causal mask alone can count
if attention is causal, all scores are equal, the first value is 1 and all others are 0, then $o_i = 1/i$; so causal
  attention without positions is not permutation-equivariant
for: rows and keys are counted from 1, so row i may attend to i keys, and i is written as their number
why: Row i averages over the i tokens that it sees.
false: $o_i = 1/n$
by nope_causal_counts
"""

THEOREMS = theorems(
    "positions",
    _TEXT,
    {
        "": LETTERS,
        "rotary": ROTARY,
        "rope-layouts": ROTARY.also(
            defined={"Π": lambda reader: _evens_then_odds(unit_vectors(reader)).mT},
            families={"R'": _rotation_of_halves},
        ),
        "rope-key-bias-not-redundant": positions(
            {"qᵢ": "f*2", "kⱼ": "f*2", "k_l": "f*2", "b": "f*2"}, "ijl", {"R": rotation_matrix}
        ),
        "masked": Glossary(functions={"softmax": _masked_rows}),
        "alibi": Glossary(
            sizes={},
            defined={
                # at least the most by which two scores differ
                "w": lambda reader: reader.array("S").max() - reader.array("S").min() + reader.array("u"),
                "p": _with_alibi,
            },
        ),
        "nope-causal-counts": Glossary({"K": "1+n d"}, {"n": "1+n"}, {"i": "1+n"}, {"o": _marked_row}),
    },
    globals(),
)
