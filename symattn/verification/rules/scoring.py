"""Mistakes in scores: other arrays or fewer columns multiplied, a part of a cosine or a distance; scaled by powers of
sizes, or divided by the lengths of queries and keys; biases by other slopes, distances or buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from math import ceil, floor, log, sqrt
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import norms, scores
from symattn.attention.constants import made_wide
from symattn.attention.positions import relative, rotary
from symattn.attention.positions.position_fields import Alibi, Buckets
from symattn.attention.spec import Attention
from symattn.bounds.mistake import (
    At,
    Mistake,
    Wrong,
    in_steps,
    not_scaled,
    root,
    step,
    where_scaled,
)
from symattn.verification.rules import head_mistakes
from symattn.verification.rules.tiling import Taken, other_tiles


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in the score of a specification."""
    rows = {"cosine": _COSINES, "distance": _DISTANCES}.get(spec.score, {})
    for words, wrong in (_PRODUCTS | rows if spec.score == "dot" else rows).items():
        yield in_steps("score", words, scores=wrong)
    if spec.score == "dot":
        for n in (8, 16, 32, 64, 128):
            words = f"only the first {n} columns of queries and keys are multiplied"
            first = lambda d, n=n: n  # noqa: E731
            yield in_steps("score", words, scores=partial(_scores_of_first_columns, first))
        for n in (2, 4, 8, 16, 32, 64):
            words = f"columns after the last full block of {n} are left out (for 2: the last one of an odd number)"
            whole_blocks = lambda d, n=n: d // n * n  # noqa: E731
            yield in_steps("score", words, scores=partial(_scores_of_first_columns, whole_blocks))


def _scored_queries_and_keys(at: At) -> tuple[Any, Any]:
    """Return the queries and keys that the scores are computed from."""
    q, k = step(at.spec, at.values, "scores").of[:2]
    return at.values[q], at.values[k]


def _make_other_score_product(left: str, right: str) -> Wrong:
    """Return left rightᵀ instead of Q Kᵀ."""

    def wrong(at: At) -> Any:
        of = dict(zip("qk", _scored_queries_and_keys(at), strict=True)) | {"v": at.met}
        return scores.dot_scores(of[left], of[right])

    return wrong


def _scores_of_first_columns(width: Callable[[int], int], at: At) -> Array:
    """Return the scores of the first columns alone; 0 if none are left."""
    q, k = _scored_queries_and_keys(at)
    n = width(int(q.shape[-1]))
    return scores.dot_scores(q[..., :n], k[..., :n]) if n else (q @ k.mT) * 0


_PRODUCTS: dict[str, Wrong] = {
    "queries are used as keys: the scores are Q Qᵀ": _make_other_score_product("q", "q"),
    "keys are used as queries: the scores are K Kᵀ": _make_other_score_product("k", "k"),
    "queries and keys are exchanged: the scores are K Qᵀ": _make_other_score_product("k", "q"),
    "values are used as keys: the scores are Q Vᵀ": _make_other_score_product("q", "v"),
    "values are used as queries: the scores are V Kᵀ": _make_other_score_product("v", "k"),
}
_COSINES: dict[str, Wrong] = {
    "queries alone are normalised, keys are not: no cosine": lambda at: scores.dot_scores(
        norms.unit(_scored_queries_and_keys(at)[0]), _scored_queries_and_keys(at)[1]
    ),
    "keys alone are normalised, queries are not: no cosine": lambda at: scores.dot_scores(
        _scored_queries_and_keys(at)[0], norms.unit(_scored_queries_and_keys(at)[1])
    ),
}
_DISTANCES: dict[str, Wrong] = {
    "distances are not squared": lambda at: -at.xp.sqrt(-2 * at.right()) / 2,
    "the square of the distance is not halved": lambda at: at.right() * 2,
    "the sign of the distance is flipped: far keys are favoured": lambda at: -at.right(),
}


# -- the scale ---------------------------------------------------------------------------------------------------------
Size = Callable[[At], int]
#: Powers in quarters, as written, with {} for a size.
_POWERS = {
    -8: "1/{}²", -6: "{}^(−3/2)", -4: "1/{}", -3: "{}^(−3/4)", -2: "1/√{}", -1: "{}^(−1/4)",
    1: "{}^(1/4)", 2: "√{}", 4: "{}", 8: "{}²",
}  # fmt: skip
_MEANT = {
    ("d_k", -4): " (as by 1/√d_k twice)",
    ("d_k", -1): ": the scale is in one of queries and keys alone",
}


def of_scales(spec: Attention) -> Iterator[Mistake]:
    """Yield wrong scales: first by sizes, the simplest ones first; then by lengths of vectors."""
    for symbol, meant, number in (size for size, there in _yield_scaling_sizes(spec) if there):
        for quarters, written in _POWERS.items():
            # the configured scale, and the default instead of it, have words of their own
            if (
                symbol != "d_k"
                or not_scaled(spec)
                or quarters not in (-2, -4 if spec.scale == "1/d_k" else -2)
            ):
                more = meant if not_scaled(spec) else _MEANT.get((symbol, quarters), meant)
                verb = "multiplied" if quarters > 0 else "scaled"
                words = f"scores are {verb} by {written.format(symbol)}{more}"
                yield where_scaled(
                    spec, in_steps("scale", words, scaled=partial(by_power, number, quarters))
                )
    # Only the usual scale has a root that code may round.
    for words, whole in _WHOLE.items() if spec.scale is None and not not_scaled(spec) else ():
        by_whole: Wrong = lambda at, whole=whole: at.first / whole(sqrt(at.size("q")))  # type: ignore[misc] # noqa: E731
        yield in_steps("scale", f"scores are scaled by {words}", scaled=by_whole)
    for role, words in (
        (("q", "query"), ("k", "key")) if spec.score == "dot" and spec.latent is None else ()
    ):
        for besides in (False, True)[: 1 + (spec.scale != 1)]:
            more = " besides" if besides else ", not by √d_k" * (spec.scale is None)
            words_ = f"scores are divided by the length of the {words} vector, ‖{role}‖{more}"
            by_length = in_steps("scale", words_, scaled=partial(_by_length, role, besides))
            # a vector of zeros leaves its scores undefined
            yield replace(by_length, in_floats=True)


def _yield_scaling_sizes(spec: Attention) -> Iterator[tuple[tuple[str, str, Size], Any]]:
    """Yield sizes as written, words for their meaning if needed, how to get them, and whether they exist."""
    heads, shared = spec.heads > 1, 1 < spec.key_heads < spec.heads
    yield ("d_k", "", lambda at: at.size("q")), True
    yield ("d_v", "", lambda at: at.size("v")), True
    # Sizes that are equal in usual inputs are tried too, since code confuses them.
    yield ("n_k", "", lambda at: at.shape[-1]), True
    yield ("n_q", "", lambda at: at.size("q", -2)), True
    yield ("(d_k + 1)", "", lambda at: at.size("q") + 1), True
    yield ("(d_k − 1)", ", by 1 where d_k = 1", lambda at: max(at.size("q") - 1, 1)), True
    yield (
        ("d_model", "", lambda at: at.size("x") if "x" in at.values else spec.heads * at.size("q")),
        heads,
    )
    yield ("h", ", by the number of heads", lambda at: spec.heads), heads
    yield (
        (
            "(d_k h_kv)",
            ", the width of all heads of keys",
            lambda at: spec.key_heads * at.size("q"),
        ),
        shared,
    )
    yield ("d_n", ", d_n the columns without positions", lambda at: at.size("q_n")), spec.latent
    yield ("d_r", ", d_r the columns with positions", lambda at: at.size("q_r")), spec.latent
    whole = ", d_c the width of the latent"
    yield ("(d_c + d_r)", whole, lambda at: at.size("c_kv") + at.size("q_r")), spec.latent
    width = getattr(spec.position, "width", None)
    yield ("r", ", r the columns that are rotated", lambda at: width or 1), width


def by_power(number: Size, quarters: int, at: At) -> Any:
    """Return S n^{p/4}."""
    s = at.first
    # Every power in quarters is a product of fourth roots.
    fourth = at.xp.sqrt(root(s, number(at)))
    for _ in range(abs(quarters)):
        s = s * fourth if quarters > 0 else s / fourth
    return s


_WHOLE: dict[str, Callable[[float], int]] = {
    "1/⌊√d_k⌋: the root is rounded down to a whole number": floor,
    "the root of d_k rounded to a whole number": round,
    "the root of d_k rounded up to a whole number": ceil,
}


def _by_length(role: str, besides: bool, at: At) -> Any:
    """Return S / ‖q‖ or S / ‖k‖ for the vectors that the scores are computed from; undefined if one is 0."""
    s = at.right() if besides else at.first
    x = at.values[step(at.spec, at.values, "scores").of[0 if role == "q" else 1]]
    xp = namespace_of(x)
    length = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    return s / (length if role == "q" else length.mT)


def of_distances(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in linear biases and in buckets."""
    if isinstance(spec.position, Alibi):
        # Slopes that are an input cannot be computed wrongly.
        for words, exponents in (
            _other_slopes(spec.heads) if spec.position.slopes == "computed" else ()
        ):
            yield in_steps("bias", words, slopes=partial(_compute_alibi_slopes, exponents))
        for words, wrong in _LINEAR.items():
            # Without a two-sided bias the absolute distance is the distance.
            if spec.position.two_sided or "absolute" not in words:
                yield in_steps("bias", words, positioned=wrong)
    for words, where, taken in other_tiles() if isinstance(spec.position, Alibi | Buckets) else ():
        yield in_steps(
            "bias",
            f"distances of keys are {words} ({where})",
            positioned=partial(_read_elsewhere, taken),
        )
    if isinstance(spec.position, Buckets):
        for words, index in _yield_wrong_bucket_indices(spec.position):
            yield in_steps(
                "bias", words, positioned=partial(_scores_with_other_buckets, index, False)
            )
        words = "distances of buckets take the other alignment of queries and keys"
        yield in_steps(
            "bias", words, positioned=partial(_scores_with_other_buckets, _compute_t5_bucket, True)
        )


def _read_elsewhere(taken: Taken, at: At) -> Any:
    """Return the scores with the biases of keys in other places."""
    biases = at.right() - at.first
    keys = taken(int(at.first.shape[-1]))
    return at.first + biases[..., keys]


def _relative_positions_of_keys(at: At, other: bool = False) -> Any:
    """Return j − i for every query and key, counted from the right corner, or from the ``other`` one."""
    return relative.ahead(at.first, _other_corner(at) if other else at.spec.alignment)


def _other_corner(at: At) -> Any:
    return "bottom-right" if at.spec.alignment == "top-left" else "top-left"


# -- slopes ------------------------------------------------------------------------------------------------------------
Exponents = list[Any]
#: Whole exponents in place of t = 1, 2, …, h, numbers of heads in place of h, and numbers in place of 8.
_STARTS = {"t": 1, "(t − 1)": 0, "(t + 1)": 2}
_COUNTS: dict[str, Callable[[int], int]] = {
    "h)": lambda h: h,
    "(h + 1))": lambda h: h + 1,
    "(h − 1))": lambda h: max(h - 1, 1),
    "m), m the next power of two of heads": lambda h: 1 << (h - 1).bit_length(),
    "m), m the power of two below the number of heads": lambda h: 1 << (h.bit_length() - 1),
}


def _other_slopes(h: int) -> Iterator[tuple[str, Exponents]]:
    """Yield wrong exponents e of slopes 2^(−e) of h heads, each once: in other orders, and by other formulas."""
    right: Exponents = [*relative.slope_exponents(h)]
    # For a power of two of heads several formulas give the right slopes, or the same wrong ones.
    known = {tuple(right)}
    m = _COUNTS["m), m the power of two below the number of heads"](h)
    between = [Fraction(4 * (t + 1), m) for t in range(2 * m)]
    every: list[tuple[str, Exponents]] = [
        ("slopes begin with 1: they are those of the head before", [e - right[0] for e in right]),
        ("slopes are 1/2, 1/4, … for every number of heads", [Fraction(t + 1) for t in range(h)]),
        ("slopes are in the order of their size", sorted(right)),
        *(
            (words.format(the="the slope", bare="slope"), [right[t] for t in places])
            for words, places in head_mistakes.taken(h)
        ),
        (
            "slopes after those of a power of two of heads begin again",
            [right[t % m] for t in range(h)],
        ),
        ("slopes after those of a power of two of heads come first", [*right[m:], *right[:m]]),
        *(
            (
                f"slopes after those of a power of two of heads are {words} of twice as many",
                [*right[:m], *rest][:h],
            )
            for words, rest in (
                ("the first ones", between),
                ("every second one, from the second on,", between[1::2]),
            )
        ),
        *(
            (
                f"slopes are 2^(−{total}{t}/{count}",
                [Fraction(total * (i + start), of(h)) for i in range(h)],
            )
            for (count, of), (t, start), total in product(
                _COUNTS.items(), _STARTS.items(), (8, 4, 16)
            )
        ),
    ]
    for words, exponents in every:
        if (key := tuple(exponents)) not in known:
            known.add(key)
            yield words, exponents
    yield "slopes are powers of e, not of 2", [*map(float, right)]


def _compute_alibi_slopes(exponents: Exponents, at: At) -> Any:
    if isinstance(exponents[0], float):
        return at.xp.exp(at.xp.stack([at.number(-e) for e in exponents]))
    return made_wide(lambda wide: rotary.powers_of(2, [-e for e in exponents], wide), at.first)


def _add_other_distance_bias(distance: Callable[[Any, Any], Any]) -> Wrong:
    """Return scores with m f(j − i) added instead of −m |j − i|."""

    def wrong(at: At) -> Any:
        m = at.values["slopes"]
        # One slope for each head.
        m = m[:, None, None] if at.spec.heads > 1 else m[:, None]
        return at.first + m * distance(
            at.xp, at.xp.astype(_relative_positions_of_keys(at), at.first.dtype)
        )

    return wrong


def up_to(x: float, at: At) -> Any:
    """Return scores with linear biases that do not grow beyond the distance x."""
    return _add_other_distance_bias(lambda xp, far: -xp.minimum(xp.abs(far), at.number(x)))(at)


_LINEAR: dict[str, Wrong] = {
    "distances take the other alignment of queries and keys": lambda at: relative.biased(
        at.first, at.values["slopes"], True, _other_corner(at)
    ),
    "linear biases use the square of the distance": _add_other_distance_bias(
        lambda xp, far: -far * far
    ),
    "linear biases use the root of the distance": _add_other_distance_bias(
        lambda xp, far: -xp.sqrt(xp.abs(far))
    ),
    "linear biases use the logarithm of 1 + the distance": _add_other_distance_bias(
        lambda xp, far: -xp.log(1 + xp.abs(far))
    ),
    "linear biases use the distance without its absolute value: keys ahead are favoured": _add_other_distance_bias(
        lambda xp, far: far
    ),
    "linear biases use the distance without its absolute value: keys behind are favoured": _add_other_distance_bias(
        lambda xp, far: -far
    ),
}


# -- buckets -----------------------------------------------------------------------------------------------------------
Index = Callable[[Any, Buckets], Any]  # bucket numbers from j − i


def _scores_with_other_buckets(index: Index, other: bool, at: At) -> Array:
    """Return the scores with the biases of other buckets."""
    position: Any = at.spec.position
    # A wrong formula may leave the range of the table.
    result = np.clip(
        np.asarray(index(_relative_positions_of_keys(at, other), position)), 0, position.number - 1
    )
    return relative.bucket_bias(at.first, at.values["b_rel"], result)


def _compute_t5_bucket(far: Any, position: Buckets, **other: Any) -> Any:
    usual = {
        "buckets": position.number,
        "max_distance": position.max_distance,
        "bidirectional": position.bidirectional,
    }
    return relative.t5_bucket(far, **(usual | other))


def _yield_wrong_bucket_indices(buckets: Buckets) -> Iterator[tuple[str, Index]]:
    yield from _OF_DISTANCES.items()
    yield from (
        (words, partial(_bucket_by_distance_size, size)) for words, size in _OF_SIZES.items()
    )
    if buckets.bidirectional:
        both: Index = lambda far, a: _compute_t5_bucket(  # noqa: E731
            -np.abs(far), a, buckets=a.number // 2, bidirectional=False
        )
        yield "keys ahead and keys behind share their buckets", both
        words = "a query's own key is in the bucket of keys ahead"
        yield words, lambda far, a: _compute_t5_bucket(far, a) + a.number // 2 * (far == 0)
    for n in (32, 64, 128, 256):
        if buckets.max_distance != n:
            yield (
                f"the buckets end at the distance {n}",
                partial(_compute_t5_bucket, max_distance=n),
            )


_OFF = "buckets are off by one: distances are one too"
_OF_DISTANCES: dict[str, Index] = {
    "the sign of the distance is flipped: i − j in place of j − i": lambda far, a: (
        _compute_t5_bucket(-far, a)
    ),
    f"{_OFF} large": lambda far, a: _compute_t5_bucket(far + 1, a),
    f"{_OFF} small": lambda far, a: _compute_t5_bucket(far - 1, a),
    f"{_OFF} long on both sides": lambda far, a: _compute_t5_bucket(
        far + np.sign(far) + (far == 0), a
    ),
}


def _bucket_by_distance_size(
    size: Callable[[Any, int, Buckets], Any], far: Any, buckets: Buckets
) -> Any:
    """Return buckets by the size of the distance, those of keys ahead after the others."""
    if not buckets.bidirectional:
        return size(np.maximum(-far, 0), buckets.number, buckets)
    half = buckets.number // 2
    return size(np.abs(far), half, buckets) + half * (far > 0)


def _one_on(n: Any, half: int, buckets: Buckets) -> Any:
    """Return buckets with the wide ones moved on by one."""
    size = _compute_t5_bucket(-n, buckets, buckets=half, bidirectional=False)
    return np.where(n < half // 2, size, np.minimum(size + 1, half - 1))


def _by_logarithms(shift: int, up: bool, n: Any, half: int, buckets: Buckets) -> Any:
    """Return buckets by their formula, with the first wide one shifted, or logarithms rounded up."""
    exact = half // 2 + shift
    scale = (half - exact) / log(buckets.max_distance / max(exact, 1))

    def wide(x: int) -> int:
        share = log(max(x, 1) / max(exact, 1)) * scale
        # Up to 10⁻¹² at an edge is rounding of the logarithm.
        return (
            x
            if x < exact
            else min(exact + (ceil(share - 1e-12) if up else int(share + 1e-12)), half - 1)
        )

    return np.asarray([wide(x) for x in range(int(n.max(initial=0)) + 1)])[n]


#: Wrong buckets, from the size of the distance, the number of buckets on one side, and the specification.
_OF_SIZES: dict[str, Callable[[Any, int, Buckets], Any]] = {
    "the first wide bucket begins 1 later": partial(_by_logarithms, 1, False),
    "the first wide bucket begins 1 earlier": partial(_by_logarithms, -1, False),
    "distances in wide buckets are one bucket too far": _one_on,
    "logarithms are rounded up, not down, where buckets are wide": partial(_by_logarithms, 0, True),
    "every distance has its own bucket, there are no wide ones": lambda n, half, a: np.minimum(
        n, half - 1
    ),
}
