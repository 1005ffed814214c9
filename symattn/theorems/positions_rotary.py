"""Rotary embeddings: what they keep, how they compose, and what they change. Part of the topic ``positions``."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.positions.angles import add_angles, rotate_half, rotate_interleaved
from symattn.attention.scores import dot_scores
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import Node
from symattn.proof.relations.reader import Reader
from symattn.proof.statement import Declared, Pair
from symattn.proof.theorem import state, theorem
from symattn.proof.together import Fails, Together, identity
from symattn.theorems.rotations import positions, rotation_matrix, turn, unit_vectors

TOPIC = "positions"
SU = "Su et al., RoFormer (2021)"
ADDITION = "cosines and sines of sums are those of the angle addition formulas"


LETTERS = positions({"q": "f*2", "k": "f*2", "x": "f*2"}, "mnt", {"R": rotation_matrix})
PAIR = {"q": "1 f*2", "k": "1 f*2"}
TURNS = {f"{kind}_{p}": "1 f" for p in ("m", "n", "t") for kind in ("cos", "sin")}
TURN_CIRCLE = tuple((f"cos_{p}", f"sin_{p}") for p in ("m", "n", "t"))
R = rotate_interleaved


def _dot(q: Array, k: Array) -> Array:
    return dot_scores(q, k)[0, 0]


@theorem(
    "rope-relative",
    TOPIC,
    "$R_m q·R_n k = q·R_{n − m} k = R_{m + t} q·R_{n + t} k$",
    arrays={**PAIR, **TURNS},
    units=TURN_CIRCLE,
    hypotheses=(ADDITION, "m, n and t are any real numbers"),
    source=SU,
    why="Rotations keep angles: what is left of two of them is the difference.",
    letters=LETTERS,
    false=(
        lambda q, k, cos_m, sin_m, cos_n, sin_n: (
            _dot(q, R(k, cos_n, sin_n)),
            _dot(q, R(k, *add_angles(cos_n, sin_n, cos_m, -sin_m))),
        ),
        lambda q, k, cos_m, sin_m, cos_n, sin_n: (
            _dot(R(q, cos_m, sin_m), R(k, cos_n, sin_n)),
            _dot(q, R(k, *add_angles(cos_m, sin_m, cos_n, -sin_n))),
        ),
    ),
    false_says="only the keys are rotated; $R_m q·R_n k = q·R_{m − n} k$",
)
def rope_relative(
    q: Array, k: Array, cos_m: Array, sin_m: Array, cos_n: Array, sin_n: Array, cos_t: Array, sin_t: Array
) -> list[Pair]:
    both = _dot(R(q, cos_m, sin_m), R(k, cos_n, sin_n))
    later = (add_angles(cos_m, sin_m, cos_t, sin_t), add_angles(cos_n, sin_n, cos_t, sin_t))
    return [
        (both, _dot(q, R(k, *add_angles(cos_n, sin_n, cos_m, -sin_m)))),
        (both, _dot(R(q, *later[0]), R(k, *later[1]))),
    ]


@theorem(
    "rope-group",
    TOPIC,
    "$R_m R_n = R_{m + n}$, $R_mᵀ = R_{−m}$, $‖R_m x‖ = ‖x‖$",
    arrays={**PAIR, **TURNS},
    units=TURN_CIRCLE,
    hypotheses=(ADDITION,),
    source=SU,
    why="Plane rotations add their angles and keep lengths.",
    letters=LETTERS,
    # Tried at m = n = 3, where the angle of R_mn is three times that of R_m.
    false=lambda q, cos_m, sin_m: (
        R(R(q, cos_m, sin_m), cos_m, sin_m),
        R(q, *add_angles(*add_angles(cos_m, sin_m, cos_m, sin_m), cos_m, sin_m)),
    ),
    false_says="$R_m R_n = R_{m n}$",
)
def rope_group(q: Array, k: Array, cos_m: Array, sin_m: Array, cos_n: Array, sin_n: Array) -> list[Pair]:
    rotated = R(q, cos_m, sin_m)
    return [
        (R(R(q, cos_n, sin_n), cos_m, sin_m), R(q, *add_angles(cos_m, sin_m, cos_n, sin_n))),
        (_dot(rotated, k), _dot(q, R(k, cos_m, -sin_m))),
        (_dot(rotated, rotated), _dot(q, q)),
    ]


def _evens_then_odds(x: Array) -> Array:
    xp = x.__array_namespace__()
    pairs = xp.reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2))
    return xp.concat([pairs[..., 0], pairs[..., 1]], axis=-1)


def _rotation_of_halves(reader: Reader, parts: tuple[Node, ...]) -> Array:
    """R′_p, likewise."""
    cosine, sine = turn(reader, *parts)
    every = _evens_then_odds(_evens_then_odds(unit_vectors(reader)).mT).mT
    return rotate_half(every, cosine[None, :], sine[None, :]).mT


MANY = {"q": "h n f*2", "k": "h m f*2", "cos_q": "n f", "sin_q": "n f", "cos_k": "m f", "sin_k": "m f"}


@theorem(
    "rope-layouts",
    TOPIC,
    "let half-split RoPE be $R′$, interleaved RoPE $R$, and $Π$ evens then odds; then"
    " $R′_m (Π q)·R′_n (Π k) = R_m q·R_n k$",
    arrays=MANY,
    why="Both turn the same planes by the same angles; they list the coordinates in another order.",
    letters=LETTERS.also(
        defined={"Π": lambda reader: _evens_then_odds(unit_vectors(reader)).mT}, families={"R'": _rotation_of_halves}
    ),
    false=(
        lambda q, k, cos_q, sin_q, cos_k, sin_k: (
            dot_scores(rotate_half(_evens_then_odds(q), cos_q, sin_q), rotate_half(k, cos_k, sin_k)),
            _rotated(q, k, cos_q, sin_q, cos_k, sin_k),
        ),
        lambda q, k, cos_q, sin_q, cos_k, sin_k: (
            dot_scores(rotate_half(q, cos_q, sin_q), rotate_half(k, cos_k, sin_k)),
            _rotated(q, k, cos_q, sin_q, cos_k, sin_k),
        ),
    ),
    false_says="$Π$ on $q$ only, or on neither: $R′_m (Π q)·R′_n (k) = R_m q·R_n k$, $R′_m (q)·R′_n (k) = R_m q·R_n k$",
)
def rope_layouts(q: Array, k: Array, cos_q: Array, sin_q: Array, cos_k: Array, sin_k: Array) -> list[Pair]:
    halves = [rotate_half(_evens_then_odds(x), *turn) for x, turn in ((q, (cos_q, sin_q)), (k, (cos_k, sin_k)))]
    return [
        (halves[0], _evens_then_odds(R(q, cos_q, sin_q))),
        (dot_scores(*halves), _by_planes(q, k, (cos_q, sin_q), (cos_k, sin_k))),
        (_rotated(q, k, cos_q, sin_q, cos_k, sin_k), _by_planes(q, k, (cos_q, sin_q), (cos_k, sin_k))),
    ]


def _by_planes(q: Array, k: Array, of_q: tuple[Any, Any], of_k: tuple[Any, Any]) -> Array:
    """Σ over planes of (q₁k₁ + q₂k₂) cos of the difference of the angles + (q₁k₂ − q₂k₁) sin of it."""
    xp, (c, s), (c_k, s_k) = q.__array_namespace__(), [x[:, None] for x in of_q], [x[None] for x in of_k]
    (q1, q2), (k1, k2) = (
        (y[..., 0], y[..., 1]) for y in (xp.reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2)) for x in (q, k))
    )
    q1, q2, k1, k2 = q1[..., :, None, :], q2[..., :, None, :], k1[..., None, :, :], k2[..., None, :, :]
    along = (q1 * k1 + q2 * k2) * (c * c_k + s * s_k)
    return xp.sum(along + (q1 * k2 - q2 * k1) * (s * c_k - c * s_k), axis=-1)


BIAS = {**MANY, "b": "1 f*2", "v": "m d_v"}


def _rotated(q: Array, k: Array, cos_q: Any, sin_q: Any, cos_k: Any, sin_k: Any) -> Array:
    return dot_scores(R(q, cos_q, sin_q), R(k, cos_k, sin_k))


def _bias_adds(q: Array, k: Array, b: Array, cos_q: Any, sin_q: Any, cos_k: Any, sin_k: Any) -> Any:
    difference = _rotated(q, k + b, cos_q, sin_q, cos_k, sin_k) - _rotated(q, k, cos_q, sin_q, cos_k, sin_k)
    return difference, _rotated(q, 0 * k + b, cos_q, sin_q, cos_k, sin_k)


TWO_KEYS = {"q": "1 f*2", "b": "1 f*2", "cos_k": "1 f", "sin_k": "1 f", "cos_l": "1 f", "sin_l": "1 f"}
TWO_ANGLES = (("cos_k", "sin_k"), ("cos_l", "sin_l"))


def _at_both_keys(q: Array, b: Array, cos_k: Any, sin_k: Any, cos_l: Any, sin_l: Any) -> Any:
    """Return the bias's share of the scores of two keys; q is the rotated query."""
    return q @ R(b, cos_k, sin_k).mT, q @ R(b, cos_l, sin_l).mT


ANY_ANGLES = (("cos_q", "sin_q"), ("cos_k", "sin_k"))
rope_key_bias = state(
    "rope-key-bias-not-redundant",
    TOPIC,
    "with RoPE a bias b of all keys adds $R_i q_i·R_j b$ to the unscaled score, which depends on j:"
    " $R_i q_i·R_j (k_j + b) = R_i q_i·R_j k_j + R_i q_i·R_j b$",
    Together(
        (
            identity(
                BIAS,
                _bias_adds,
                lambda q, k, b, v, cos_q, sin_q, cos_k, sin_k: (
                    soft(_rotated(q, k + b, cos_q, sin_q, cos_k, sin_k)) @ v,
                    soft(_rotated(q, k, cos_q, sin_q, cos_k, sin_k)) @ v,
                ),
                units=ANY_ANGLES,
            ),
            Fails(Declared(TWO_KEYS, units=TWO_ANGLES), _at_both_keys),
        )
    ),
    "folklore",
    "$Attention(q, k + b, v) = Attention(q, k, v)$ with RoPE, as without",
    "Rotations are linear, and the rotated bias differs from key to key.",
    letters=positions({"qᵢ": "f*2", "kⱼ": "f*2", "b": "f*2"}, "ij", {"R": rotation_matrix}),
)
