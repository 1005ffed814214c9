"""Inputs to try: random ones, by sizes and a family of entries, and probes.

A probe is an input with a name, made for a mistake that ordinary random inputs do not show. The same seed gives the
same inputs. A group yields (name, inputs); the inputs are None if the specification or the domain does not admit them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isqrt, log2
from typing import NamedTuple

import numpy as np

from symattn.arrays.formats import HALF
from symattn.attention.flow import find_steps_behind_weights
from symattn.attention.inputs import required
from symattn.attention.spec import Attention
from symattn.bounds.inputs import Array, Entries, Maker, Sizes

Named = tuple[str, dict[str, Array] | None]
Group = Callable[[Maker, np.random.Generator], Iterator[Named]]


class Needs(NamedTuple):
    """The needs of a group, of which an attention must meet one: a property that is set, an input, a kind of step."""

    properties: tuple[str, ...] = ()
    inputs: frozenset[str] = frozenset()
    errors_of_steps: frozenset[str] = frozenset()

    def are_met(self, spec: Attention) -> bool:
        """Return whether the attention has one of them."""
        if any(getattr(spec, name) not in (None, False) for name in self.properties):
            return True
        if not self.inputs.isdisjoint(required(spec)):
            return True
        kinds = self.errors_of_steps
        return bool(kinds) and any(step.errors in kinds for step in spec.pipeline("qkv"))


#: The group of the calls whose bits are compared.
BITS = "bits"

_SIZES = (  # every pair of dimensions differs in some row and agrees in another; around 16, 32, 64; and multiples
    (3, 5, 4, 6),
    (6, 3, 2, 5),
    (4, 4, 3, 2),
    (16, 16, 16, 16),
    (64, 64, 64, 64),
    (4, 8, 8, 8),
    (1, 1, 1, 1),
    (1, 2, 3, 1),
    (2, 2, 2, 2),
    (4, 4, 3, 3),
    (2, 6, 5, 5),
    (3, 3, 5, 4),
    (5, 7, 1, 3),
    (2, 15, 3, 4),
    (3, 16, 2, 5),
    (15, 17, 2, 3),
    (17, 17, 2, 3),
    (4, 3, 65, 2),
    (2, 31, 3, 2),
    (3, 33, 2, 1),
    (2, 64, 3, 4),
    (3, 65, 2, 4),
    (2, 129, 2, 3),
)
# Worked examples, q, k and v each, whose exact outputs symattn knows.
_E1 = (
    np.array([[1, 0, 2], [2, 2, 2], [2, 1, 3]]),
    np.array([[0, 1, 1], [4, 4, 0], [2, 3, 1]]),
    np.array([[1, 2, 3], [2, 8, 0], [2, 6, 3]]),
)
_E0X = (
    np.array([[3, 3, 0, -1], [1, 1, 1, 0]]),
    np.array([[1, -1, 0, 2], [1, 1, 1, 0], [1, 0, 1, 3]]),
    np.array([[3, -3, 4], [1, 4, -1], [3, -1, 5]]),
)
_E0 = (
    np.array([[0, 0, 2, 2], [1, 1, 1, -1]]),
    np.array([[0, 0, 2, 3], [1, 1, 1, 0]]),
    np.array([[5, 2, 1], [-1, 4, 0]]),
)
# Widths with whole roots and with others: the observed scales then show their rule.
SCALE_WIDTHS = (1, 2, 3, 4, 8, 64)


# From this width on, weights are scaled, since scores would grow with the width.
_WIDE_TOKENS = 64


def _is_wide_weight(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether an array is a weight matrix whose rows are as many as a wide token has components."""
    is_weight = name.rpartition(".")[2].startswith("w")
    return is_weight and len(shape) > 1 and shape[-2] >= _WIDE_TOKENS


def _shrink_wide_weights(entries: Entries) -> Entries:
    """Return the entries with those of wide weights times a power of 2 near 1/√rows, which leaves their digits.

    Otherwise scores grow with the width, one key has all the weight, and no error in scores shows in an output.
    """

    def shrunk(name: str, shape: tuple[int, ...]) -> Array:
        drawn = entries(name, shape)
        if not _is_wide_weight(name, shape):
            return drawn
        return drawn * 2.0 ** -round(log2(shape[-2]) / 2)

    return shrunk


def small(rng: np.random.Generator) -> Callable[[str, tuple[int, ...]], Array]:
    """Draw integers from −2 to 2 as entries, for values from −8 to 8; weights of wide tokens are shrunk."""
    return _shrink_wide_weights(
        lambda name, shape: (
            rng.integers(-8, 9, shape) if name == "v" else rng.integers(-2, 3, shape)
        )
    )


def shapes(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield small integers in many shapes."""
    for n_q, n_k, d_k, d_v in _SIZES:
        if (maker.square and n_k > 65) or (
            maker.tokens and n_k == 64
        ):  # lengths of tiles are tried later
            continue
        wanted = Sizes(n_q, n_k, d_k, d_v, d_model=d_k + d_v + 1 if d_k < 9 else 7)
        # The name says the sizes of the call, which promises may change.
        sizes = maker.fitted(wanted)
        yield (
            f"{sizes.n_q} × {sizes.n_k}, widths {sizes.d_k}, {sizes.d_v}",
            maker.make(wanted, small(rng), rng),
        )
    yield from batches(maker, rng)


def batches(maker: Maker, rng: np.random.Generator, in_front: bool = False) -> Iterator[Named]:
    """Yield batches of items, and heads, with different masks; ``in_front``: on axes that the layout does not have."""
    axes = len(maker.fronts) if in_front else maker.batches
    for sizes in dict.fromkeys(b[:axes] for b in ((2, 3), (3, 1), (3, 2)) if axes):
        for n_q, n_k in ((3, 5), (4, 4), (5, 17)):
            yield (
                f"batch {sizes}, {n_q} × {n_k}",
                maker.make(Sizes(n_q, n_k, 4, 2, batch=sizes), small(rng), rng),
            )


def worked(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield the worked examples, whose results symattn knows exactly."""
    for name, (q, k, v) in {"E0": _E0, "E0x": _E0X, "E1": _E1}.items():
        yield name, maker.from_heads(q, k, v)


def scale(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield two keys at several widths, with scores 0 and one that is about 1 or 2 when scaled.

    In half precision, at the largest width, it is about ¼ as well.
    """
    for d_k in SCALE_WIDTHS:
        # Whole numbers at √d_k and 2√d_k or just above.
        scores = [isqrt(d_k - 1) + 1, 2 * isqrt(d_k - 1) + 2]
        # Bounds in half precision grow with the score: after a rotation in bfloat16, at 1 they hide the factor.
        if d_k == max(SCALE_WIDTHS) and maker.precision.input.name in HALF:
            scores.append(isqrt(d_k) // 4)
        for score in scores:
            # Under a causal mask aligned top-left, only the second query reaches both keys.
            n_q = 2 if maker.square or maker.spec.causal else 1
            q = np.zeros((n_q, d_k))
            k = np.zeros((2, d_k))
            q[:, 0], k[1, 0] = score, 1
            yield (
                f"d_k = {d_k}, scores 0 and {score}",
                maker.from_heads(q, k, np.array([[0.0], [1.0]])),
            )


def softmax(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield equal scores, one score far above, offsets that must not change a softmax, and constant values."""
    for n in (2, 4, 8, 16):
        v = 2 * rng.integers(-8, 8, (n, 3)) + 1
        yield (
            f"scores 0, n = {n}",
            maker.from_heads(np.zeros((n if maker.square else 3, 2)), np.zeros((n, 2)), v),
        )
    # Query i scores 0 with key π(i), by products that are all zero, and far below with all others.
    q = 32.0 * (isqrt(5) + 1) * (np.eye(5)[rng.permutation(5)] - 1)
    v = rng.integers(-8, 9, (5, 3)).astype(float)
    yield "one score far above the others", maker.from_heads(q, np.eye(5), v)
    rows = 5 if maker.square else 2
    for shift in (200, -200, 1000, -1000):
        yield f"every score near {shift}", maker.from_heads(*offset(shift, rows, rng))
    # Scores S, within the domain, at which e^{−2S} vanishes in float16, float32 and float64.
    most = (
        2.0 ** np.floor(np.log2(maker.largest_score * 0.9))
        if maker.largest_score < np.inf
        else np.inf
    )
    for level in dict.fromkeys(min(level, most) for level in (16.0, 64.0, 512.0)):
        q, k, v = offset(level, rows, rng)
        # Every other query has the opposite sign.
        q[1::2, 0] *= -1
        k[:, 1] /= 4
        yield f"queries that score near {level:g} and −{level:g}", maker.from_heads(q, k, v)
    low = np.zeros((5, 2))
    low[:, 0] = [-200, 3, -1, 2, -190]
    yield (
        "scores of wide range",
        maker.from_heads(np.ones((rows, 2)), low, rng.integers(-8, 9, (5, 3))),
    )
    yield (
        "constant values",
        maker.from_heads(
            rng.integers(-2, 3, (7, 3)), rng.integers(-2, 3, (7, 3)), np.full((7, 2), 3.0)
        ),
    )


def structure(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield values that are the identity, so that the weights are the output; and q, k, v, or projections (d_model =
    h d_k = h d_v), of one shape, which they keep if transposed."""
    # With V = I the output is the matrix of weights, so that each weight shows.
    for n, d in ((4, 2), (7, 3)):
        q = rng.integers(-2, 3, (n, d))
        k = rng.integers(-2, 3, (n, d))
        yield f"the weights themselves, n = {n}", maker.from_heads(q, k, np.eye(n))
    # Arrays of one shape can be exchanged or transposed without an error.
    for n in (3, 4):
        q, k, v = (rng.integers(-2, 3, (n, n)) for _ in "qkv")
        yield f"q, k, v of one shape {n} × {n}", maker.from_heads(q, k, v)
    q = rng.integers(-2, 3, (5, 3))
    k = rng.integers(-2, 3, (5, 3))
    v = rng.integers(-8, 9, (5, 2))
    yield "some keys", maker.from_heads(q, k, v)
    # Attention does not depend on the order of keys if values move with them.
    order = rng.permutation(5)
    yield "the same keys in another order", maker.from_heads(q, k[order], v[order])
    # Outputs near √ε show where a norm of them has its ε.
    steps = maker.spec.pipeline(maker.names)
    if any(step.norm is not None for step in find_steps_behind_weights(steps)):
        for size in (2.0**-9, 2.0**-13):
            yield f"values of size {size:.1g}", maker.from_heads(q, k, v * size)
    # Square projections keep their shape if transposed.
    for n, d in ((3, 2), (4, 3), (5, 4)) if maker.tokens else ():
        d_model = maker.spec.heads * d
        yield (
            f"square projections, d_model = {d_model}",
            maker.make(Sizes(n, n + 1, d, d, d_model), small(rng), rng),
        )


def mask(maker: Maker, rng: np.random.Generator) -> Iterator[Named]:
    """Yield masks: the weights under a mask, forbidden keys with high scores, values that double."""
    for n_q, n_k in ((4, 4), (3, 6), (6, 3), (2, 5), (5, 8), (16, 16), (2, 33)):
        n_q = n_k if maker.square else n_q
        zero = np.zeros((n_q, 2)), np.zeros((n_k, 2))
        yield f"{n_q} × {n_k}, scores 0, the weights", maker.from_heads(*zero, np.eye(n_k), rng)
        q = rng.integers(-2, 3, (n_q, 2))
        k = rng.integers(-2, 3, (n_k, 2))
        yield f"{n_q} × {n_k}, the weights", maker.from_heads(q, k, np.eye(n_k), rng)
    for n in (4, 6):
        eights = np.full((n, 1), 8.0)
        rising = np.arange(n, dtype=float)[:, None]
        yield f"later keys score higher, n = {n}", maker.from_heads(eights, rising, np.eye(n), rng)
        # Sums of different powers of 2 differ, so that the output shows which keys were averaged.
        yield f"values double, n = {n}", maker.from_heads(eights * 0, rising, 2.0**rising, rng)
    # One key so far above all others that their exponentials vanish, wrongly so if a mask forbids that key: the last,
    # the first, and one between, so that masks of every kind forbid it to some query.
    for n_q, n_k in ((6, 6), (3, 6), (6, 6)):
        for place in (n_k - 1, 0, n_k // 2):
            queries = np.zeros((n_k if maker.square else n_q, 4))
            keys = np.zeros((n_k, 4))
            queries[:, 0], queries[:, 1] = 16, 1
            keys[place, 0], keys[:, 1] = far(maker) / 8, rng.permutation(n_k) - 2
            words = f"key {place + 1} of {n_k} scores {far(maker):g} above the others"
            yield words, maker.from_heads(queries, keys, np.eye(n_k), rng)


def far(maker: Maker) -> float:
    """Return a distance of scores, within the domain, at which the lower exponential vanishes in their arithmetic."""
    least = float(maker.precision.score.eta)
    # A quarter beyond −log η, up to a power of 2, which every format represents.
    wanted = 2.0 ** np.ceil(np.log2(-1.25 * np.log(least)))
    return float(min(wanted, 2.0 ** np.floor(np.log2(maker.largest_score * 0.75))))


def offset(shift: float, rows: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return arrays of width 4: one component gives every key the score ``shift``, another small differences."""
    k = np.zeros((5, 4))
    # With width 4 and the usual scale, the score is 16 k / 2 = ``shift``.
    k[:, 0], k[:, 1] = shift / 8, rng.permutation(5) - 2
    q = np.zeros((rows, 4))
    q[:, 0], q[:, 1] = 16, 1
    return q, k, rng.integers(-8, 9, (5, 3)).astype(float)


GROUPS: dict[str, Group] = {
    "shapes": shapes,
    "worked": worked,
    "scale": scale,
    "softmax": softmax,
    "structure": structure,
    "mask": mask,
}


# The usual sizes of random inputs are at most this: small inputs are quick to bound.
_FEW = 8
_MANY = (17, 31, 32, 33, 64, 65)  # around the sizes of tiles
_MANY_SQUARE = _MANY[:4]  # if there are as many queries
# Larger widths of keys, multiples of 16 and others.
_WIDE = (16, 33, 64, 80)
_OFTEN = 0.25  # probability of a larger size
# Axes in front of random inputs, as many as the layout has.
_BATCHES = ((), (1, 2), (2, 3))


def search(maker: Maker, seed: int, examples: int) -> Iterator[tuple[str, dict[str, Array]]]:
    """Draw ``examples`` random inputs, each with a title."""
    # A generator of its own, so that other probes do not change the random inputs.
    rng = np.random.default_rng((seed, 5))
    names = sorted(FAMILIES)
    least = maker.domain.tokens.near(1)
    for _ in range(examples):
        n_q, n_k, d_k, d_v, d_model = (int(n) for n in rng.integers(1, _FEW + 1, 5))
        if rng.random() < _OFTEN:
            n_k = int(rng.choice(_MANY_SQUARE if maker.square else _MANY))
        if rng.random() < _OFTEN:
            d_k = int(rng.choice(_WIDE))
        # Where no short length occurs, all sizes would otherwise be the shortest one.
        if least > _FEW:  # several lengths
            n_q, n_k = (least * (1 + n % 2) for n in (n_q, n_k))
        sizes = Sizes(
            n_q, n_k, d_k, d_v, d_model, _BATCHES[rng.integers(len(_BATCHES))][: maker.batches]
        )
        family = names[rng.integers(len(names))]
        yield f"{family} entries", maker.make(sizes, FAMILIES[family](rng), rng)


def climb(
    change: Callable[[dict[str, Array]], dict[str, Array]],
    start: dict[str, Array],
    ratio: float,
    steps: int,
    measure: Callable[[dict[str, Array]], float],
) -> float:
    """Change the inputs step by step, keep what raises the ratio of error to allowed error, and return that ratio."""
    best = start
    for _ in range(steps):
        candidate = change(best)
        result = measure(candidate)
        if result > ratio:
            best = candidate
            ratio = result
    return ratio


def perturbed(
    inputs: Mapping[str, Array], names: Sequence[str], rng: np.random.Generator
) -> dict[str, Array]:
    """Return one of the arrays scaled or with noise added, or with one row negated, replaced by another, or changed.

    −∞ stays where it is, as in the log-sums of parts without keys: its negative or its noise would be no legal number.
    """
    # Masks, labels and scalars stay as they are.
    names = [n for n in names if inputs[n].dtype.kind == "f" and inputs[n].ndim and inputs[n].size]
    if not names:
        return {}
    name = names[rng.integers(len(names))]
    a = inputs[name].reshape(-1, inputs[name].shape[-1]).copy()
    finite = np.isfinite(a)
    before = a.copy()
    row, other = rng.integers(len(a), size=2)
    kind = rng.integers(5)
    if kind == 0:
        a = a * 2.0 ** rng.integers(-2, 3)
    elif kind == 1:
        a[row] = -a[row]
    elif kind == 2:
        a[row] = a[other]
    elif kind == 3:
        largest = float(np.abs(np.where(finite, a, 0.0)).max())
        a[row] += rng.standard_normal(a.shape[1]) * max(largest, 1.0)
    else:
        a = a + rng.standard_normal(a.shape) * 2.0**-4
    changed = np.where(finite & np.isfinite(a), a, before)
    return {name: changed.reshape(inputs[name].shape)}


def normal(rng: np.random.Generator) -> Entries:
    """Draw from N(0, 1), weights of wide tokens from N(0, 1/d_model), so that scores do not grow with the width."""

    def entries(name: str, shape: tuple[int, ...]) -> Array:
        drawn = rng.standard_normal(shape)
        return drawn / shape[-2] ** 0.5 if _is_wide_weight(name, shape) else drawn

    return entries


def integers(rng: np.random.Generator) -> Entries:
    """Draw whole numbers from −3 to 3: most sums of few of them are exact."""
    return _shrink_wide_weights(lambda name, shape: rng.integers(-3, 4, shape))


def sparse(rng: np.random.Generator) -> Entries:
    """Draw small whole numbers, mostly zeros."""
    return _shrink_wide_weights(
        lambda name, shape: rng.integers(-3, 4, shape) * (rng.random(shape) < 0.3)
    )


def large(rng: np.random.Generator) -> Entries:
    """Draw from N(0, 16), weights from N(0, 1)."""
    return _shrink_wide_weights(
        lambda name, shape: rng.standard_normal(shape) * (1 if name.startswith("w") else 4)
    )


def shifted(rng: np.random.Generator) -> Entries:
    """Draw from N(0, 1), with one whole number that is added to all entries of an input."""
    return _shrink_wide_weights(
        lambda name, shape: (
            rng.standard_normal(shape)
            + (rng.integers(-3, 4) if name in ("q", "k", "v", "x") else 0)
        )
    )


FAMILIES: dict[str, Callable[[np.random.Generator], Entries]] = {
    "normal": normal,
    "large": large,
    "integer": integers,
    "sparse": sparse,
    "shifted": shifted,
}
