"""Mistakes in the softmax: other exponentials, other sums, sinks, missing or extra keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from symattn.attention import masks, softmax
from symattn.attention.spec import Attention
from symattn.bounds.mistake import At, Mistake, Wrong, in_steps

Table = tuple[tuple[str, str, Wrong], ...]


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in the weights of a specification."""
    for table, rows in (
        (_list_normalised_mistakes(spec), True),
        (_yield_unnormalised_mistakes(spec), False),
    ):
        for blamed, words, wrong in table:
            yield in_steps(blamed, words, rows, weights=wrong)
    if not spec.is_softmax:
        return
    for axis, over in _name_wrong_softmax_axes(spec).items() if spec.masks_anything else ():
        # if no key is forbidden to all of them, the words without NaN below are preferred
        words = f"the softmax runs over the {over}, and gives NaN for keys that are forbidden to all of them"
        wrong = partial(along, axis, fully_masked="nan")
        yield replace(in_steps("normalize", words, False, weights=wrong), general=True)
    yield from _yield_dropped_key_mistakes(spec)


def _name_wrong_softmax_axes(spec: Attention) -> dict[int, str]:
    """Return the wrong axes that a softmax may run over."""
    return (
        {-2: "queries", -3: "heads", -4: "batch"}
        if spec.heads > 1
        else {-2: "queries", -4: "batch"}
    )


def _sets_of_axes(spec: Attention) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the wrong sets of axes that a sum may run over, with their names."""
    wrong = _name_wrong_softmax_axes(spec)
    yield from (((axis,), over) for axis, over in wrong.items())
    yield from (((-1, axis), f"{over} and keys") for axis, over in wrong.items())
    if -3 in wrong:
        yield (-1, -2, -3), "heads, queries and keys"


def _list_normalised_mistakes(spec: Attention) -> Table:
    """Return mistakes whose weights still sum to 1."""
    if not spec.is_softmax:
        return tuple(
            _yield_key_count_mistakes(softmax.NORMALISERS[spec.normaliser].at_bias(spec.bias))
        )
    powers = ("2", "e") if spec.base is None else ("e", "2")
    results: Table = (
        ("exp", "uses {}ˣ instead of {}ˣ".format(*powers), _other_base),
        (
            "normalize",
            "the softmax is applied twice",
            lambda at: at.weights(at.finite(lambda s: at.right())),
        ),
        (
            "scale",
            "the scores have no influence: all weights of a row are equal",
            lambda at: softmax.softmax(at.finite(lambda s: s * 0), fully_masked="zeros"),
        ),
        (
            "max",
            "each key's largest score over the queries is subtracted, not each query's over the keys",
            _subtract_column_maxima,
        ),
    )
    # Without a term that is added, the scale has the other sign.
    if any(step.errors == "adds" for step in spec.pipeline(frozenset("qkv"))):
        words = "the exponents have the other sign: e^(max s − s) for e^(s − max s)"
        results += (("exp", words, lambda at: at.weights(at.finite(lambda s: -s))),)
    if spec.masks_anything:
        words = "the softmax is applied twice, over forbidden keys too"
        results += (("normalize", words, lambda at: softmax.softmax(at.right())),)
    # A sink has a weight as well, so that no key takes all of it.
    if spec.sink is None:
        return (
            *results,
            (
                "normalize",
                "only the key with the highest score is taken",
                partial(_weights_of_highest_scores, False),
            ),
            (
                "normalize",
                "only the first key with the highest score is taken",
                partial(_weights_of_highest_scores, True),
            ),
        )
    results += (
        ("sink", "the sink counts twice", lambda at: at.e / (at.total + at.sink)),
        (
            "sink",
            "the sink's weight goes to the first value, and each key's weight to the value of the next key",
            lambda at: at.xp.concat([1 - at.sum(at.right()), at.right()[..., :-1]], axis=-1),
        ),
    )
    logits = _LOGITS if spec.sink == "given" else ()
    # A cap that the scores lack would leave the logit as it is.
    return results + logits + (_CAPPED_LOGITS if logits and spec.softcap else ())


def _with_logit(make: Callable[[At], Any]) -> Wrong:
    """Return a change to weights with another logit of the sink."""

    return lambda at: with_logit(at, make(at))


def with_logit(at: At, z: Any) -> Any:
    """Return weights with the logit z of the sink."""
    m = at.xp.maximum(at.top, z)
    e = at.power(at.first - m)
    return e / (at.sum(e) + at.power(z - m))


def _factor_to_other_base(at: At) -> Any:
    """Return ln 2, or its reciprocal if powers are of 2: the factor that turns one base into the other."""
    two = at.xp.log(at.number(2))
    return two if at.spec.base is None else 1 / two


def _other_base(at: At) -> Any:
    sink = 0 if at.spec.sink is None else at.power((at.z - at.m) * _factor_to_other_base(at))
    e = at.power((at.first - at.m) * _factor_to_other_base(at))
    return e / (at.sum(e) + sink)


def _subtract_column_maxima(at: At) -> Any:
    m = at.xp.max(at.first, axis=-2, keepdims=True)
    # A key that is forbidden to all queries has no finite maximum.
    e = at.power(at.first - at.xp.where(at.xp.isfinite(m), m, 0))
    # No row's own maximum is subtracted: exponentials of low rows vanish in floats, as in code with the mistake.
    return e / (at.sum(e) + (0 if at.spec.sink is None else at.power(at.z)))


def _weights_of_highest_scores(first: bool, at: At) -> Any:
    """Return weights of which the keys with the highest score, or the ``first`` of these, take all."""
    highest = at.xp.max(at.first, axis=-1, keepdims=True)
    e = at.xp.where(at.first == highest, at.number(1), 0)
    if not first:
        return e / at.sum(e)
    # The running sum is 1 from the first such key on, up to the next one.
    return at.xp.where(at.xp.cumulative_sum(e, axis=-1) == 1, e, 0)


_LOGITS: Table = (
    (
        "sink",
        "the sink's logit is scaled as scores are",
        _with_logit(lambda at: at.of("scaled", at.z)),
    ),
    (
        "sink",
        "the sink's logit is divided by the scale",
        _with_logit(lambda at: at.z / at.of("scaled", at.z * 0 + 1)),
    ),
    (
        "sink",
        "the sink's logit is taken in the other base: 2^z for e^z, or e^z for 2^z",
        lambda at: at.e / (at.sum(at.e) + at.power(at.z * _factor_to_other_base(at) - at.m)),
    ),
)
_CAPPED_LOGITS: Table = (
    (
        "sink",
        "the sink's logit is capped as scores are",
        _with_logit(lambda at: at.of("capped", at.z)),
    ),
)


def _yield_key_count_mistakes(normaliser: softmax.Normaliser) -> Iterator[tuple[str, str, Wrong]]:
    """Yield the mistakes in the number of keys, as the formula has it."""
    # The formula says whether a number of keys occurs in this normaliser.
    if "− log(n_k)" in normaliser.formula:
        yield "normalize", "log n is not subtracted from the scores", partial(_with_log, 1)
        yield "normalize", "log n is added to the scores, not subtracted", partial(_with_log, 2)
    if normaliser.formula.endswith("/n_k"):
        yield (
            "normalize",
            f"weights of {normaliser.title} are not divided by n",
            lambda at: at.right() * at.n,
        )


def _with_log(times: int, at: At) -> Any:
    return at.right(at.first + times * at.xp.log(at.number(at.n)))


def _with_threshold(
    summed: Callable[[Any, int], Any], divisor: Callable[[Any, int], Any], at: At
) -> Any:
    """Return max(s − τ, 0), τ the sum of the ``summed`` largest scores less 1, over ``divisor``; both are functions of
    k, the number of keys with a weight, and n, of all keys."""
    xp = at.xp
    n = at.n
    k = at.sum(xp.astype(at.right() > 0, at.first.dtype))
    z = xp.flip(xp.sort(at.first, axis=-1), axis=-1)
    # Forbidden keys, whose scores are −∞, are not summed.
    place = xp.astype(xp.arange(1, n + 1), at.first.dtype)
    among = xp.isfinite(z) & (place <= summed(k, n))
    tau = (at.sum(xp.where(among, z, 0)) - 1) / divisor(k, n)
    return at.only_open(xp.maximum(at.first - tau, 0))


_OF_THRESHOLDS: Table = tuple(
    ("normalize", f"the threshold is {words}", partial(_with_threshold, summed, divisor))
    for words, summed, divisor in (
        ("that of all keys, not of those with a weight", lambda k, n: n, lambda k, n: n),
        (
            "divided by the number of all keys, not of those with a weight",
            lambda k, n: k,
            lambda k, n: n,
        ),
        ("that of one key too many", lambda k, n: k + (k < n), lambda k, n: k + (k < n)),
        ("that of one key too few", lambda k, n: k - (k > 1), lambda k, n: k - (k > 1)),
        ("of a sum of one key too many", lambda k, n: k + 1, lambda k, n: k),
        ("of a sum of one key too few", lambda k, n: k - 1, lambda k, n: k),
        ("divided by one too many", lambda k, n: k, lambda k, n: k + 1),
    )
)


def _yield_unnormalised_mistakes(spec: Attention) -> Iterator[tuple[str, str, Wrong]]:
    """Yield mistakes whose weights need not sum to 1."""
    # A sparsemax has a threshold in place of a sum.
    if spec.normaliser == "sparsemax":
        yield from _OF_THRESHOLDS
    if not spec.is_softmax:
        return
    for axis, over in _name_wrong_softmax_axes(spec).items():
        yield "normalize", f"the softmax runs over the {over}", partial(along, axis)
    for axes, over in _sets_of_axes(spec):
        words = f"exponentials of s − max s, each row's maximum, are divided by their sum over the {over}"
        yield "normalize", words, partial(_summed_along, axes)
        if len(axes) > 1:
            yield (
                "normalize",
                f"one sum is taken over {over} together",
                partial(_summed_together, axes),
            )
    yield from _UNDIVIDED
    if spec.sink is not None:
        # The formulas below are those of a softmax without a sink.
        yield from _OF_SINKS
        yield from _OF_LOGITS if spec.sink == "given" else ()
        return
    yield from ((step, f"exponentials are {words}", wrong) for step, words, wrong in _OVER)
    yield from _PLAIN
    for exponent in _GUARDS:
        words = "the largest score so far starts at 0, not at −∞, and the sum is kept from 0"
        yield (
            "max",
            f"{words} (by 1e−{exponent})",
            partial(_softmax_with_guarded_sum, Fraction(1, 10**exponent)),
        )
    if spec.masks_anything:
        words = (
            "exponentials are divided by their mean over the keys that are seen, not by their sum"
        )
        yield "normalize", words, lambda at: at.e / at.total * at.sum(at.only_open(at.e * 0 + 1))
        yield (
            "normalize",
            "the sum is taken before the mask: weights of allowed keys do not sum to 1",
            _sum_unmasked,
        )
        yield (
            "normalize",
            "the mask is in the sum alone: forbidden keys keep their weights",
            (lambda at: at.power(at.before("masked") - at.m) / at.total),
        )
    else:
        words = "logarithms of the weights are used as the weights"
        yield (
            "normalize",
            words,
            lambda at: at.first - softmax.log_sum_exp(at.first, base=at.spec.base),
        )


def along(axis: int, at: At, fully_masked: str = "zeros") -> Any:
    """Return the softmax over another axis."""
    # An array without heads or a batch lacks some of the axes.
    n = len(at.first.shape)
    if not -n <= axis < n:
        raise ValueError("there is no such axis")
    moved = softmax.softmax(
        at.xp.moveaxis(at.first, axis, -1), fully_masked=fully_masked, base=at.spec.base
    )
    return at.xp.moveaxis(moved, -1, axis)


def _summed_along(axes: tuple[int, ...], at: At) -> Any:
    return at.e / (_reduce_over_softmax_axes(axes, at.e, at.sum) + at.sink)


def _summed_together(axes: tuple[int, ...], at: At) -> Any:
    e = at.power(
        at.first - _reduce_over_softmax_axes(axes, at.first, partial(at.xp.max, keepdims=True))
    )
    return e / _reduce_over_softmax_axes(axes, e, at.sum)


def _reduce_over_softmax_axes(axes: tuple[int, ...], x: Any, reduce: Callable[..., Any]) -> Any:
    """Return a sum or maximum over several axes, which are kept."""
    if len(x.shape) < -min(axes):
        raise ValueError("there is no such axis")
    for axis in axes:
        x = reduce(x, axis=axis)
    return x


def _normalise_other_exponentials(make: Callable[[At, Any], Any]) -> Wrong:
    """Return a change to weights by something else instead of e^s, over its sum."""

    def wrong(at: At) -> Any:
        e = at.only_open(make(at, at.scores))
        return e / at.sum(e)

    return wrong


def _sum_unmasked(at: At) -> Any:
    e = at.power(at.before("masked") - softmax.row_max(at.before("masked")))
    return e * at.open.astype(float) / at.sum(e)


def _multiply_by_sum_of_powers(at: At) -> Any:
    e = at.power(at.first)
    return e * (at.sum(e) + (0 if at.spec.sink is None else at.power(at.z)))


_UNDIVIDED: Table = (
    ("normalize", "exponentials are not divided by their sum", lambda at: at.e),
    ("normalize", "exponentials e^s, no maximum subtracted, are not divided by their sum",
     lambda at: at.power(at.first)),
    ("normalize", "exponentials are multiplied by their sum, not divided", lambda at: at.e * at.total),
    ("normalize", "exponentials e^s, no maximum subtracted, are multiplied by their sum, not divided",
     _multiply_by_sum_of_powers),
    ("normalize", "weights are sigmoids of the scores, rows are not normalised",
     lambda at: at.only_open(1 / (1 + softmax.powers(-at.scores)))),
)  # fmt: skip
_OVER: Table = (
    ("normalize", "divided by the number of keys, not by their sum", lambda at: at.e / at.n),
    ("normalize", "divided by their mean, not by their sum", lambda at: at.e / at.total * at.n),
    ("normalize", "divided by the largest score, not by their sum", lambda at: at.e / at.m),
    (
        "normalize",
        "divided by the root of the sum of their squares",
        lambda at: at.e / at.xp.sqrt(at.sum(at.e * at.e)),
    ),
    (
        "normalize",
        "divided by the running sum up to their own key",
        lambda at: at.e / at.xp.cumulative_sum(at.e, axis=-1),
    ),
    ("max", "of s − max s, and their sum of s alone", lambda at: at.e / at.sum(at.power(at.first))),
    ("exp", "e^s − 1", _normalise_other_exponentials(lambda at, s: at.power(s) - 1)),
)
_PLAIN: Table = (
    ("exp", "uses 1 + s instead of e^s", _normalise_other_exponentials(lambda at, s: 1 + s)),
    (
        "exp",
        "uses 1 + s + s²/2 instead of e^s",
        _normalise_other_exponentials(lambda at, s: 1 + s + s * s / 2),
    ),
    (
        "exp",
        "uses log(1 + e^s) (softplus) instead of e^s",
        _normalise_other_exponentials(lambda at, s: at.xp.log(1 + at.power(s))),
    ),
    (
        "normalize",
        "1 is added to the sum of e^(s − max s), after the maximum is subtracted",
        lambda at: at.e / (at.total + 1),
    ),
    ("normalize", "the sum is divided by twice", lambda at: at.e / at.total / at.total),
    (
        "normalize",
        "the first key is left out of the sum",
        lambda at: at.e / (at.total - at.e[..., :1]),
    ),
    (
        "normalize",
        "the last key is left out of the sum",
        lambda at: at.e / (at.total - at.e[..., -1:]),
    ),
)


# Exponents of the tiny numbers that code uses in place of a sum of 0.
_GUARDS = (6, 8, 9, 10, 12, 16, 20, 30)


def _softmax_with_guarded_sum(least: Fraction, at: At) -> Any:
    """Return e^{s − m}, m at least 0, over their sum, or a tiny number if that is larger."""
    e = at.power(at.first - at.xp.maximum(at.top, 0))
    return e / at.xp.maximum(at.sum(e), at.number(least))


def _make_unshifted_sink_softmax(make: Callable[[At], Any]) -> Wrong:
    """Return a change to weights with a wrong sink beside exponentials of s − max s."""

    def wrong(at: At) -> Any:
        e = at.power(at.first - at.top)
        return e / (at.sum(e) + make(at))

    return wrong


_OF_SINKS: Table = (
    ("sink", "the sink is left out of the sum, not of the maximum", lambda at: at.e / at.sum(at.e)),
    (
        "sink",
        "the maximum is not subtracted from the sink's logit",
        _make_unshifted_sink_softmax(lambda at: at.power(at.z)),
    ),
    (
        "sink",
        "the maximum of scores and sink is not subtracted from the sink's logit",
        lambda at: at.e / (at.sum(at.e) + at.power(at.z)),
    ),
    (
        "sink",
        "the sink gives the value of the first key",
        lambda at: at.xp.concat(
            [at.right()[..., :1] + 1 - at.sum(at.right()), at.right()[..., 1:]], axis=-1
        ),
    ),
    (
        "sink",
        "the sink's weight goes to the last value, and each key's weight to the value of the key before",
        lambda at: at.xp.concat([at.right()[..., 1:], 1 - at.sum(at.right())], axis=-1),
    ),
)
_OF_LOGITS: Table = (
    (
        "sink",
        "the sink's logit is added to the sum without its exponential",
        lambda at: at.e / (at.sum(at.e) + at.z),
    ),
    (
        "sink",
        "the sink's logit itself is added to the sum of e^s, not its exponential",
        _make_unshifted_sink_softmax(lambda at: at.z * at.power(-at.top)),
    ),
    (
        "sink",
        "the sink's logit is added to every score",
        lambda at: softmax.softmax(at.first + at.z, fully_masked="zeros", base=at.spec.base),
    ),
)


# -- keys that are lost, repeated or added -----------------------------------------------------------------------------
def _count_some_keys_twice(once: Callable[[int, Any], Any], at: At) -> Any:
    more = ~once(at.n, np.arange(at.n))
    if at.n == 1 or not more.any():
        raise KeyError("no key counts twice")
    e = at.e * at.xp.asarray(more.astype(float), dtype=at.e.dtype)
    return (at.e + e) / (at.total + at.sum(e))


def _drop_keys_failing_test(test: Callable[[int, Any], Any], at: At) -> Any:
    return at.weights(masks.forbid(at.first, test(at.n, np.arange(at.n))))


# Usual numbers of keys in a tile.
TILES = (2, 4, 8, 16, 32, 64, 128)
_BUFFERS = (8, 16, 32, 64, 128, 256, 512, 1024)  # keys of buffers that are too short


def _yield_dropped_key_mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes that drop or repeat keys, or add keys of zeros."""
    for number, place in ((-1, "last"), (0, "first")):
        others: Any = lambda n, j, number=number: j != number % n  # noqa: E731
        yield in_steps(
            "mask", f"the {place} key is dropped", weights=partial(_drop_keys_failing_test, others)
        )
        yield in_steps(
            "normalize",
            f"the {place} key counts twice",
            weights=partial(_count_some_keys_twice, others),
        )
    for kind in BY_WIDTH:
        yield from map(kind.of, kind.usual)
    if None not in spec.sides or spec.block:
        words = "keys beyond the ends of the sequence take part in windows: they are zeros"
        yield in_steps("mask", words, False, weights=partial(_beyond_ends, True))
        words = "keys beyond the ends of the sequence take part in windows: the first and the last one are repeated"
        yield in_steps("mask", words, weights=partial(_beyond_ends, False))
    if spec.sink is None:
        for words, extra in _yield_extra_zero_keys(spec.masks_anything):
            yield in_steps(
                "mask", words, False, weights=partial(_softmax_with_unfilled_slots, extra)
            )


@dataclass(frozen=True)
class KeysByWidth:
    """Keys that are lost or count twice, by tiles or a buffer of width t: ``once`` says which keys are right.

    ``usual`` are the widths that are always tried; others only if the lengths leave them possible.
    """

    step: str
    words: str
    wrong: Callable[..., Any]
    once: Callable[[int, int, Any], Any]
    usual: tuple[int, ...]

    def of(self, width: int) -> Mistake:
        """Return the mistake with this width."""
        return in_steps(
            self.step,
            self.words.format(width),
            weights=partial(self.wrong, partial(self.once, width)),
        )

    def open(self, wrong: Iterable[int], right: Iterable[int]) -> list[int]:
        """Return the other widths that change all ``wrong`` numbers of keys, first those that change few right ones."""

        def changes(t: int, n: int) -> bool:
            return n > t and not np.all(self.once(t, n, np.arange(n)))

        lengths = set(wrong)
        others = set(right)
        every = set(range(2, min(lengths, default=0))).difference(self.usual)
        fits = [t for t in every if all(changes(t, n) for n in lengths)]
        return sorted(
            fits, key=lambda t: (sum(changes(t, n) for n in others), -np.gcd(t, _ROUND), t)
        )[:_MOST]


# of the other widths, round numbers first: those with a large divisor in common with 2⁸·5²
_MOST = 64
_ROUND = 6400
_MOVED_BACK = "the last tile is moved back to be full, so that keys of the tile before count twice (tiles of {})"
_FIRST_TWICE = "the first key of each later tile counts twice (tiles of {})"
_AFTER_FULL = "keys after the last full tile of {} are dropped"
BY_WIDTH = (
    KeysByWidth(
        "mask", _AFTER_FULL, _drop_keys_failing_test, lambda t, n, j: j < n // t * t, TILES
    ),
    KeysByWidth(
        "mask",
        "only the first {} keys take part",
        _drop_keys_failing_test,
        lambda t, n, j: j < t,
        _BUFFERS,
    ),
    KeysByWidth(
        "mask",
        "only the last {} keys take part",
        _drop_keys_failing_test,
        lambda t, n, j: j >= n - t,
        _BUFFERS,
    ),
    KeysByWidth(
        "normalize",
        _FIRST_TWICE,
        _count_some_keys_twice,
        lambda t, n, j: (j % t > 0) | (j == 0),
        TILES[1:],
    ),
    KeysByWidth(
        "normalize",
        _MOVED_BACK,
        _count_some_keys_twice,
        lambda t, n, j: (n % t == 0) | (j < n - t) | (j >= n // t * t),
        TILES[1:],
    ),
)


def _beyond_ends(zeros: bool, at: At) -> Any:
    """Return weights with the missing keys of windows or blocks in the sum, as zeros or as the keys at the ends."""
    n_q, n_k = at.shape[-2:]
    # The places of queries among the keys.
    i = np.arange(n_q)[:, None] + at.spec.offset(n_q, n_k)
    before, after = at.spec.sides
    # How many keys of its window or block each query lacks behind the last key.
    right = np.maximum(i + (0 if at.spec.causal else after or 0) - n_k + 1, 0)
    if at.spec.block:
        right = np.maximum(i // at.spec.block * at.spec.block + at.spec.block - n_k, 0)
    left = np.maximum((before or 0) - i, 0)
    if zeros:
        return _softmax_with_unfilled_slots(lambda n, seen: left + right, at)
    j = np.arange(n_k)
    s = at.before("masked")
    count = at.open * 1.0 + left * (j == 0) + right * (j == n_k - 1)
    e = at.power(s - softmax.row_max(s)) * at.xp.asarray(count, dtype=s.dtype)
    return e / at.sum(e)


Extra = Callable[[int, Any], Any]  # from the number of keys, and from how many each query sees


def _yield_extra_zero_keys(masked: bool) -> Iterator[tuple[str, Extra]]:
    for t in TILES:
        yield f"zero keys that fill the last tile of {t} take part", lambda n, seen, t=t: -n % t  # type: ignore[misc]
    for more in (1, 2, 3, 4):
        words = f"unfilled zero keys take part: {more} slots more than there are keys"
        yield words, lambda n, seen, more=more: more  # type: ignore[misc]
    # Numbers of slots, from the number of keys.
    capacities: dict[str, Callable[[int], int]] = {
        "as many as there are keys": lambda n: n,
        "as many as the next power of two": lambda n: 1 << (n - 1).bit_length(),
        **{f"{2**b} in all": lambda n, b=b: 2**b for b in range(4, 13)},  # type: ignore[misc]
        **{f"a multiple of {t}": lambda n, t=t: n + -n % t for t in (16, 32, 64, 128) if masked},  # type: ignore[misc]
    }
    for words, slots in capacities.items():
        yield (
            f"empty slots of a static cache (zeros) take part: {words}",
            lambda n, seen, slots=slots: max(slots(n), n) - seen,  # type: ignore[misc]
        )


def _softmax_with_unfilled_slots(extra: Extra, at: At) -> Any:
    """Return weights with empty slots of a cache, all zeros, in the sum."""
    # An empty slot scores 0, so that the maximum is at least that.
    m = at.xp.maximum(at.top, 0)
    e = at.power(at.first - m)
    slots = extra(at.n, at.open.sum(axis=-1, keepdims=True))
    return e / (at.sum(e) + at.power(-m) * slots)
