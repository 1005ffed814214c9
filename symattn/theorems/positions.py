"""Positions: sinusoidal embeddings, linear biases, the causal mask alone; rotary ones are in ``positions_rotary``."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import causal as causal_mask
from symattn.attention.masks import forbid
from symattn.attention.positions.angles import add_angles, linear_bias, rotate_interleaved, sinusoidal
from symattn.attention.scores import dot_scores
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import Node
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.values import Value, spread
from symattn.proof.statement import Declared, Pair
from symattn.proof.theorem import state, theorem
from symattn.proof.together import Fails, Together, bound, identity
from symattn.theorems.letters import CAUSAL, rows
from symattn.theorems.reading import printed
from symattn.theorems.rotations import positions, rotation_matrix, turn
from symattn.theorems.sums import add_up, exp

TOPIC = "positions"
ADDITION = "cosines and sines of sums are those of the angle addition formulas"
VASWANI = "Vaswani et al., Attention Is All You Need (2017), §3.5"
PRESS = "Press, Smith, Lewis, Train Short, Test Long (2022)"


def _backwards(reader: Reader, parts: tuple[Node, ...]) -> Array:
    """M_k of the pairs (sin, cos), which the angle turns the other way round."""
    return rotation_matrix(reader, tuple(-part for part in parts))


LETTERS = positions(
    {},
    "pqkl",
    {"PE": lambda reader, parts: sinusoidal(*turn(reader, *parts)), "M": _backwards},
    sizes={"d_model": "f*2", "d_model/2": "f"},
).also(roles=dict.fromkeys("pqk"))


# -- sinusoidal --------------------------------------------------------------------------------------------------------
ANGLES = {f"{kind}_{p}": "1 f" for p in ("p", "o", "u") for kind in ("cos", "sin")}
CIRCLE = tuple((f"cos_{p}", f"sin_{p}") for p in ("p", "o", "u"))


def _rotated(x: Array, cos: Array, sin: Array) -> Array:
    """M x for the plane rotations M by the given angles: (sin, cos) ↦ (sin cos' + cos sin', cos cos' − sin sin')."""
    return rotate_interleaved(x, cos, -sin)


def _shifted(cos_p: Any, sin_p: Any, cos_o: Any, sin_o: Any) -> Array:
    return sinusoidal(*add_angles(cos_p, sin_p, cos_o, sin_o))


@theorem(
    "sinusoidal-shift-is-linear",
    TOPIC,
    "$PE(p + k) = M_k PE(p)$ with plane rotations $M_k$, whatever $p$ is; $M_k M_l = M_{k + l}$",
    arrays={**ANGLES, "x": "1 f*2"},
    units=CIRCLE,
    hypotheses=(ADDITION,),
    source=VASWANI,
    why="In each plane the pair (sin ωp, cos ωp) is rotated by the angle ωk.",
    letters=LETTERS,
    false=(
        lambda cos_p, sin_p, cos_o, sin_o: (
            _shifted(cos_p, sin_p, cos_o, sin_o),
            sinusoidal(cos_p, sin_p) + sinusoidal(cos_o, sin_o),
        ),
        # With one M the embeddings at two offsets would be equal, both being M PE(p).
        lambda cos_p, sin_p, cos_o, sin_o, cos_u, sin_u: (
            _shifted(cos_p, sin_p, cos_o, sin_o),
            _shifted(cos_p, sin_p, cos_u, sin_u),
        ),
    ),
    false_says="$PE(p + k) = PE(p) + PE(k)$; one matrix M for all k",
)
def sinusoidal_shift(
    cos_p: Array, sin_p: Array, cos_o: Array, sin_o: Array, cos_u: Array, sin_u: Array, x: Array
) -> list[Pair]:
    planes = x.__array_namespace__().reshape(sinusoidal(cos_p, sin_p), (*cos_p.shape, 2))
    return [
        (planes[..., 0], sin_p),
        (planes[..., 1], cos_p),
        (_shifted(cos_p, sin_p, cos_o, sin_o), _rotated(sinusoidal(cos_p, sin_p), cos_o, sin_o)),
        (
            _rotated(_rotated(x, cos_u, sin_u), cos_o, sin_o),
            _rotated(x, *add_angles(cos_o, sin_o, cos_u, sin_u)),
        ),
    ]


def _embedded(p: tuple[Any, Any], q: tuple[Any, Any]) -> Array:
    """PE(p) · PE(q)."""
    return dot_scores(sinusoidal(*p), sinusoidal(*q))[0, 0]


def _cosines(cos_p: Any, sin_p: Any, cos_o: Any, sin_o: Any) -> Array:
    """Σ_f cos(ω_f (p − q))."""
    return add_up(add_angles(cos_p, sin_p, cos_o, -sin_o)[0])[0, 0]


sinusoidal_dot = state(
    "sinusoidal-dot",
    TOPIC,
    "$PE(p)·PE(q) = Σ_{f=1}^{d_model/2} cos(ω_f (p − q))$, $PE(p)·PE(q) = PE(q)·PE(p)$ and $‖PE(p)‖² = d_model/2$",
    Together(
        (
            identity(
                ANGLES,
                lambda cos_p, sin_p, cos_o, sin_o: [
                    (_embedded((cos_p, sin_p), (cos_o, sin_o)), _cosines(cos_p, sin_p, cos_o, sin_o)),
                    (_embedded((cos_p, sin_p), (cos_o, sin_o)), _embedded((cos_o, sin_o), (cos_p, sin_p))),
                    (_embedded((cos_p, sin_p), (cos_p, sin_p)), (add_up(0 * cos_p + 1)[0, 0])),
                ],
                units=CIRCLE,
            ),
            # One step and two steps: if the product fell with the distance, the second would not be larger.
            bound(
                ANGLES,
                lambda cos_p: (0, cos_p * cos_p),
                lambda cos_p: cos_p * cos_p,
                lambda cos_p, sin_p: (add_up(add_angles(cos_p, sin_p, cos_p, sin_p)[0]), add_up(cos_p)),
                units=CIRCLE,
            ),
        )
    ),
    "folklore",
    "$PE(p)·PE(q)$ decreases monotonically with the distance $|p − q|$",
    "The cosine of a difference is cos a cos b + sin a sin b, in each plane.",
    (ADDITION, "the width d_model is even"),
    LETTERS,
)


def _masked_rows(_: Reader, s: Value) -> Value:
    """The weights over j of scores s_ij, where j ≤ i."""
    scores = spread(s, ("i", "j"), 0)
    return Value(soft(forbid(scores, causal_mask(scores))), ("i", "j"))


# -- linear biases -----------------------------------------------------------------------------------------------------
@theorem(
    "alibi-key-bias",
    TOPIC,
    "under the causal mask $softmax(s_ij − a (i − j)) = softmax(s_ij + a j)$",
    arrays={"s": "n n", "a": "", "longer": "h p+n p+n"},
    source=PRESS,
    why="The term −a i is one number for the whole row. The last rows of a matrix get the bias that they have in it.",
    letters=Glossary({"S": "n n", "a": ""}, index={"i": "n", "j": "n"}, functions={"softmax": _masked_rows}),
    false=lambda s, a: (soft(_two_sided(s, a)), soft(_per_key(s, a))),
    false_says="the same without a mask for $−a |i − j|$",
)
def alibi_key_bias(s: Array, a: Array, longer: Array, p: Array) -> list[Pair]:
    allowed = causal_mask(s)
    return [
        (soft(forbid(linear_bias(s, a), allowed)), soft(forbid(_per_key(s, a), allowed))),
        (linear_bias(longer[:, p:], a), _biased_after(p, longer[:, p:], a)),
        (linear_bias(longer, a)[:, p:], _biased_after(p, longer[:, p:], a)),
    ]


def _biased_after(p: Array, s: Array, a: Array) -> Array:
    """s_ij − a (p + i) + a j: row i is that of token p + i."""
    xp = s.__array_namespace__()
    i, j = (xp.astype(xp.arange(n), s.dtype) for n in s.shape[-2:])
    return s - a * (p + i)[:, None] + a * j[None, :]


def _per_key(s: Array, a: Array) -> Array:
    """s_ij + a j."""
    xp = s.__array_namespace__()
    return s + a * xp.astype(xp.arange(s.shape[-1])[None, :], s.dtype)


def _two_sided(s: Array, a: Array) -> Array:
    """s_ij − a |i − j|."""
    xp = s.__array_namespace__()
    i, j = xp.arange(s.shape[-2])[:, None], xp.arange(s.shape[-1])[None, :]
    return xp.where(j <= i, s - a * xp.astype(i - j, s.dtype), s - a * xp.astype(j - i, s.dtype))


# A far key at the distance L + δ is compared with the key at the distance δ, the nearer ones left over are ``rest``.
TAIL = {"near": "n m", "u": "n m", "distance": "n m", "rest": "n r", "w": "", "a": "", "L": ""}


def _tail(near: Any, u: Array, distance: Any, rest: Any, w: Array, a: Array, L: Any) -> Array:
    """The mass of the far keys."""
    far = add_up(exp(near + w - u - a * (L + distance)))
    return far / (add_up(exp(near - a * distance)) + add_up(exp(rest)))


def _band(s: Any) -> Any:
    """The most by which two scores differ."""
    return s.max() - s.min()


def _with_alibi(reader: Reader) -> Any:
    s = reader.array("S") - reader.array("a") * _distance(reader.array("S"))
    return soft(forbid(s, causal_mask(s)))


def _distance(s: Array) -> Array:
    """i − j."""
    xp = s.__array_namespace__()
    return xp.astype(xp.arange(s.shape[-2])[:, None] - xp.arange(s.shape[-1])[None, :], s.dtype)


alibi_tail = state(
    "alibi-tail",
    TOPIC,
    "$Σ_{j ≤ i − L} p_ij ≤ e^{w − a L}$ under the causal mask: the keys at distances of L and more have"
    " together no larger weight",
    Together(
        (
            bound(
                TAIL,
                lambda near, u, distance, rest, w, a, L: (_tail(near, u, distance, rest, w, a, L), exp(w - a * L)),
                lambda near, u, distance, rest, w, a, L: (
                    exp(w - a * L)
                    * (add_up(exp(rest)) + add_up(exp(near - a * distance - u) * (exp(u) - 1)))
                    / (add_up(exp(near - a * distance)) + add_up(exp(rest)))
                ),
                lambda near, u, distance, rest, w, a, L: (_tail(near, u, distance, rest, w, a, L), exp(-a * L)),
                nonnegative=("u", "w", "a", "L", "distance"),
            ),
        ),
        (
            "Every far key, at the distance L + δ, has a partner at the distance δ in its row, whose raw score is at "
            "most w lower. The partners are all keys but the L farthest, which are the rest.",
        ),
    ),
    "folklore",
    "they have at most $e^{−a L}$ for any raw scores",
    "A step of L in distance costs the factor $e^{−a L}$, and the raw scores can give back $e^w$.",
    ("the raw scores of a row lie within a band of width w", "$a ≥ 0$, $L ≥ 1$"),
    Glossary(
        {"S": "n n", "a": "", "u": "", "steps": "L"},
        sizes={"L": "L"},
        index={"i": "n", "j": "n"},
        defined={"w": lambda reader: _band(reader.array("S")) + reader.array("u"), "p": _with_alibi},
        nonnegative=("a", "u"),
    ),
)


# -- absolute positions, and none --------------------------------------------------------------------------------------


four_terms = printed(
    "absolute-position-four-terms",
    TOPIC,
    "$(x_i + u_i) M (x_j + u_j)ᵀ = x_i M x_jᵀ + x_i M u_jᵀ + u_i M x_jᵀ + u_i M u_jᵀ$",
    source="Dai et al., Transformer-XL (2019), §3.3",
    why="Scores are bilinear.",
    letters=Glossary({"X": "n d", "U": "n d", "M": "d d"}, index={"i": "n", "j": "n"}, rows=True),
    false_says="the cross terms are dropped: $(x_i + u_i) M (x_j + u_j)ᵀ = x_i M x_jᵀ + u_i M u_jᵀ$",
)


COUNTS = {"k_0": "1 d", "k": "n d"}


def _marked(k_0: Any, k: Array) -> tuple[Any, Any]:
    """Causal attention with queries 0, to values 1, 0, 0, …; and the number of keys that each row may attend to."""
    xp = k.__array_namespace__()
    keys, values = xp.concat([k_0, k], axis=-2), xp.concat([0 * add_up(k_0) + 1, 0 * add_up(k)], axis=-2)
    scores = dot_scores(0 * keys, keys)
    count = add_up(xp.astype(causal_mask(scores), keys.dtype))
    return CAUSAL(0 * keys, keys, values), count


def _moved_tokens(x: Array, y: Array) -> Any:
    """Causal attention over two tokens in both orders."""
    xy, yx = rows(x, y), rows(y, x)
    swapped = CAUSAL(xy, xy, xy)
    return CAUSAL(yx, yx, yx), rows(swapped[1:], swapped[:1])


def _marked_row(reader: Reader) -> Any:
    """The first output of each row, with the value 1 of the first key and 0 of the others."""
    k = reader.array("K")
    return _marked(k[:1], k[1:])[0][:, 0]


nope_causal_counts = state(
    "nope-causal-counts",
    TOPIC,
    "if attention is causal, all scores are equal, the first value is 1 and all others are 0, then $o_i = 1/i$; so"
    " causal attention without positions is not permutation-equivariant",
    Together(
        (
            identity(
                COUNTS,
                lambda k_0, k: (_marked(k_0, k)[0] * _marked(k_0, k)[1], _marked(k_0, k)[1] * 0 + 1),
                lambda k_0, k, n: (_marked(k_0, k)[0] * (1 + n), _marked(k_0, k)[1] * 0 + 1),
            ),
            Fails(Declared({"x": "1 d", "y": "1 d"}), _moved_tokens),
        )
    ),
    "folklore",
    "$o_i = 1/n$",
    "Row i averages over the i tokens that it sees.",
    ("rows and keys are counted from 1, so row i may attend to i keys, and i is written as their number",),
    Glossary({"K": "1+n d"}, {"n": "1+n"}, {"i": "1+n"}, {"o": _marked_row}),
)
