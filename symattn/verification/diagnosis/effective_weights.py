"""Which keys a function counts, and how often, read from its outputs without assuming any mistake.

With the identity as values, an output is a row of weights. Divided by the exponentials of the scores, which are small
enough that each matters, weights are proportional to how often keys are counted: 0 times for a hidden key, twice for
one that two tiles read. If these counts differ from the mask's, the simplest conditions that give them are the mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from symattn.bounds.case_result import UNFIT, CaseResult
from symattn.bounds.inputs import Sizes
from symattn.bounds.mistake import At, Mistake, in_steps
from symattn.bounds.reference import canonical, trace
from symattn.verification.diagnosis.conditions import plain
from symattn.verification.probing.probes import normal
from symattn.verification.rules.families import fills
from symattn.verification.rules.forbidding import added, allowed
from symattn.verification.rules.predicates import Condition, Pairs, plainest

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_LENGTHS = (*range(1, 14), 15, 16, 17, 18, 20, 23, 24, 25, 31, 33)
_RECTANGLES = ((1, 4), (1, 9), (2, 5), (2, 17), (3, 8), (3, 11), (4, 7), (5, 16), (6, 10), (7, 20))
_HELD_OUT = ((14, 14), (19, 19), (4, 21), (21, 21), (27, 27))
#: Held-out numbers of keys, if only many are counted wrongly.
_WIDER = (140, 191, 265, 321, 408, 449, 505, 553, 800, 1030)
_PLACES = ("i", "j", "n_k")  # quantities that grow with the number of keys
_WIDE, _LONGEST, _CELLS = 130, 700, 20_000  # keys, and pairs, of larger calls
_NEAR = 0.04  # how far a count may be from a whole number
_MOST = 3  # how often a key may be counted
_CASES = 12  # cases whose forbidden keys are examined
_DIGITS = 32  # multiple of a format's smallest number: larger weights have enough digits
M = TypeVar("M")


@dataclass(frozen=True)
class Counted:
    """How often each key is counted in one call, and how often it should be."""

    pairs: Pairs
    seen: np.ndarray
    right: np.ndarray
    whole: np.ndarray  # rows with some key: nothing is known of others

    def among(self, right: bool) -> np.ndarray:
        """Return the allowed or forbidden pairs, in rows with some key."""
        return np.asarray(((self.right > 0) == right) & self.whole)


@dataclass(frozen=True)
class Change:
    """Wrongly counted keys: whether allowed or forbidden ones, which, and how often."""

    allowed: bool
    where: Condition
    times: int

    def __call__(self, pairs: Pairs, counts: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the changed counts."""
        return np.where(self.where(pairs) & ((right > 0) == self.allowed), self.times, counts)

    @property
    def words(self) -> str:
        """The change in words."""
        often = {0: "hidden", 1: "seen", 2: "counted twice", 3: "counted three times"}[self.times]
        return f"{'allowed' if self.allowed else 'forbidden'} keys are {often} {self.where.words}"


@dataclass(frozen=True)
class OtherKeys:
    """All changes of counts."""

    changes: tuple[Change, ...] = ()
    only: Condition | None = None

    def __call__(self, pairs: Pairs, right: np.ndarray) -> np.ndarray:
        """Return how often each key is counted, from the right counts."""
        if self.only is not None:
            return self.only(pairs).astype(int)
        result = right
        for change in self.changes:
            result = change(pairs, result, right)
        return result

    @property
    def words(self) -> str:
        """The changes in words."""
        what = "; and ".join(change.words for change in self.changes)
        if self.only is not None:
            if end := self._end_of_keys(self.only):
                return end
            what = f"a query sees the keys {self.only.words}, and no others"
        return f"{what} (query i, key j, from 0)"

    @staticmethod
    def _end_of_keys(only: Condition) -> str:
        """Return the plainer words for a single range at an end of the keys, or ""."""
        (one, *more), words = only.ranges, {"j": "first", "n_k − j": "last"}
        if (
            more
            or only.negated
            or one.low is not None
            or one.high is None
            or one.of.words not in words
        ):
            return ""
        count = one.high + (one.of.words == "j")
        return f"only the {words[one.of.words]} {count} keys take part"


Read = Callable[[tuple[int, int]], Counted | None]


def other_keys(read: Read, wrong: Sequence[tuple[int, int]], square: bool) -> OtherKeys | None:
    """Return which keys are counted wrongly; None if no simple condition says so for all sizes.

    ``wrong`` are numbers of queries and keys at which the function is wrong.
    """
    counts = []
    sizes = sizes_of(_least_wrong_length(read, wrong, square), square)
    for one in sizes:
        counted = read(one)
        if counted is None:
            return None
        counts.append(counted)
    # Every key counts as it should: no mistake of this kind.
    if all(_are_key_counts_equal(c, c.right) for c in counts):
        return None
    for result in filter(
        None, (_find_one_key_condition(counts), _find_key_change_conditions(counts))
    ):
        # Long inputs are slow, so they are tried only for limits beyond common tiles.
        wider = ((3, n) for n in _WIDER if max(n for _, n in sizes) > _WIDE)
        held_out = (c for one in (*_HELD_OUT, *wider) if (c := read(one)) is not None)
        # A condition that is read off some sizes must hold at others as well.
        if all(_are_key_counts_equal(c, result(c.pairs, c.right)) for c in (*counts, *held_out)):
            return result
    return None


def _least_wrong_length(read: Read, wrong: Sequence[tuple[int, int]], square: bool) -> int:
    """Return the least number of keys at which some are counted wrongly, as far as a bisection finds it.

    The cases that were judged may leave a gap between right and wrong lengths, and a limit read off within it would be
    one of theirs, not the function's.
    """
    # Lengths up to the largest of these are read one by one in any case.
    least = min((n for _, n in wrong), default=1)
    right, high = max(_LENGTHS), least
    while high - right > 1:
        middle = (right + high) // 2
        counted = read((middle if square else 3, middle))
        if counted is None:
            return least
        right, high = (
            (middle, high) if _are_key_counts_equal(counted, counted.right) else (right, middle)
        )
    return high


def _are_key_counts_equal(counted: Counted, counts: np.ndarray) -> bool:
    """Return whether counts are those seen, up to a factor for each row."""
    return bool((np.broadcast_to(counts, counted.seen.shape) == counted.seen)[counted.whole].all())


def _find_one_key_condition(seen: Sequence[Counted]) -> OtherKeys | None:
    """Return one condition, of at most two ranges, for all keys that are seen."""
    if any((c.seen > 1).any() for c in seen):
        return None
    only = plainest([(c.pairs, c.whole, c.seen > 0) for c in seen])
    return (
        OtherKeys(only=only)
        if only is not None and len(only.ranges) < 3 and not only.negated
        else None
    )


def _find_key_change_conditions(seen: Sequence[Counted]) -> OtherKeys | None:
    """Return a condition for each change."""
    changes = []
    for right in (True, False):
        for times in range(_MOST + 1):
            calls = [(c.pairs, c.among(right), c.seen == times) for c in seen]
            # An allowed key that counts once, or a forbidden one that does not, is right.
            if times == right or not any((among & meant).any() for _, among, meant in calls):
                continue
            where = plainest(calls)
            # Without a condition for one change the whole stays unexplained.
            if where is None:
                return None
            changes.append(Change(right, where, times))
    return OtherKeys(tuple(changes))


def depends_on_length(keys: OtherKeys) -> bool:
    """Return whether keys are counted wrongly beyond a place that only long inputs have, under another condition."""
    conditions = [change.where for change in keys.changes]
    return any(
        len(condition.ranges) > 1
        and any(
            one.of.words in _PLACES and (one.low or 0) > max(_LENGTHS) for one in condition.ranges
        )
        for condition in conditions
    )


def sizes_of(least: int, square: bool) -> list[tuple[int, int]]:
    """Return numbers of queries and keys to examine: small ones, and those around the least wrong number of keys."""
    # At the least wrong length and its double, where limits and periods show.
    edges = (
        [least - 1, least, least + 1, 2 * least - 1, 2 * least, 2 * least + 1]
        if least > max(_LENGTHS) // 2
        else []
    )
    tiles = -(-least // 128) * 128  # lengths on and off multiples of tiles
    edges += (
        [least + 37, *(tiles + n for n in (-1, 0, 1, 8, 16, 32, 64, 127, 128))]
        if least > _WIDE
        else []
    )
    larger = [n for n in edges if n <= _LONGEST]
    # Whole squares of pairs are slow to call for long inputs, so few queries will do.
    rows = [(n if square or n * n <= _CELLS else 3, n) for n in (*_LENGTHS, *larger)]
    return [*rows, *(() if square else _RECTANGLES)]


def counted(
    pairs: Pairs,
    weights: np.ndarray,
    e: np.ndarray,
    right: np.ndarray,
    normalised: bool,
    rest: Any = 0,
) -> Counted | None:
    """Return how often keys are counted; None unless these are whole numbers.

    ``e`` are the parts of keys counted once, divided by their sum plus ``rest`` if ``normalised``.
    """
    # Weights that are not finite have no counts.
    if weights.shape != e.shape or not np.isfinite(weights).all():
        return None
    parts = weights / e
    # The least part above rounding errors belongs to a key that counts once.
    least = np.where(parts > _NEAR**2 * np.abs(parts).max(initial=0.0), parts, np.inf).min(
        axis=-1, keepdims=True
    )
    if normalised:
        some = np.isfinite(least)
        parts = np.where(some, parts / np.where(some, least, 1), 0)
        # A softmax fixes the factor: with it, rows must sum to 1.
        total = (np.rint(parts) * e).sum(axis=-1, keepdims=True) + rest
        if (np.abs(np.where(some, least, 1) * total - 1) > _NEAR)[
            some
        ].any():  # rows do not sum to 1
            return None
    counts = np.rint(parts)
    # Counts are whole numbers, or the weights differ in another way.
    off = (np.abs(parts - counts) > _NEAR * np.maximum(counts, 1)).any()
    if off or not 0 <= counts.min(initial=0) <= counts.max(initial=0) <= _MOST:
        return None
    # A row without any key shows no counts.
    whole = (counts > 0).any(axis=-1, keepdims=True) & (right > 0).any(axis=-1, keepdims=True)
    whole, right = (np.broadcast_to(a, counts.shape) for a in (whole, right))
    return Counted(pairs, counts.astype(int), right.astype(int), whole)


# -- attention ---------------------------------------------------------------------------------------------------------
def mistakes(
    session: Session, wrong: Sequence[CaseResult], of_lengths: bool = False
) -> Iterator[Mistake]:
    """Yield mistakes that the weights of attention show: wrongly counted keys, or a number for forbidden scores.

    With ``of_lengths``, those alone that depend on the number of keys: a known mistake from some length on is plainer.
    """
    spec = session.subject.attention
    if spec is None or not spec.is_softmax or spec.dropout or session.maker.tokens:
        return
    sizes = [
        (s["n_q"], s["n_k"]) for r in wrong if "n_q" in (s := session.subject.source.measured(r))
    ]
    keys = other_keys(partial(_read_counts_from_call, session), sizes, session.maker.square)
    if (keys is not None and depends_on_length(keys)) != of_lengths:
        return
    if keys is not None:
        scores = partial(_counted_scores, keys)
        by_step = (
            {"masked": scores}
            if spec.masks_anything
            else {"weights": lambda at: at.weights(scores(at))}
        )
        yield in_steps("mask", keys.words, **by_step)
    elif spec.masks_anything and (
        shown := [
            pair
            for judged in wrong[:_CASES]
            for pair in _yield_forbidden_score_numbers(session, judged)
        ]
    ):
        for family, numbers in zip(fills(), np.transpose(shown), strict=True):
            middle = float(np.median(numbers))
            if (np.abs(numbers - middle) <= _NEAR * max(abs(middle), 1)).all():
                yield from (family.mistake(*near) for near in plain(middle))


def _yield_forbidden_score_numbers(
    session: Session, judged: CaseResult
) -> Iterator[tuple[float, float]]:
    """Yield the numbers that replace forbidden scores, and their differences from the scores."""
    arrays = session.subject.source.arrays_of_attention(judged.case.inputs)
    v = None if arrays is None else arrays.get("v")
    if arrays is None or v is None:
        return
    inputs = {**arrays, "v": make_identity_values(v)}
    read = _weights_of(session, inputs) if session.maker.admits(inputs) else None
    if read is None or read[1].shape != read[2].shape:
        return
    _, weights, s, open_ = read
    most = np.where(open_, weights, 0).argmax(axis=-1)[..., None]
    least = _DIGITS * float(session.precision.input.smallest)
    anchor = np.take_along_axis(np.where(open_, weights, 0), most, -1)
    # Smaller weights have too few digits to show a score.
    shown = ~open_ & (weights > least) & (anchor > least)
    # The largest allowed weight, and its exact score, fix the row's log-sum-exp.
    base = np.take_along_axis(s, most, -1) - np.log(np.where(anchor > least, anchor, 1))
    became = np.log(np.where(shown, weights, 1)) + base
    yield from zip(became[shown].tolist(), (became - s)[shown].tolist(), strict=True)


def _read_counts_from_call(session: Session, size: tuple[int, int]) -> Counted | None:
    """Read the counts from one call; if the domain lacks these sizes, with others."""
    rng = np.random.default_rng((session.seed, 21, *size))
    entries = normal(rng)
    for width in (3, size[1]):  # some functions accept only values as wide as keys
        # Small scores leave every key a weight with enough digits.
        inputs = session.maker.make(
            Sizes(*size, width, size[1]), lambda name, shape: entries(name, shape) / 4, rng
        )
        if (v := inputs.get("v")) is not None:
            inputs["v"] = make_identity_values(v)
            first_columns = _split_values_by_width(session, inputs["v"])[0]
            if session.maker.admits({**inputs, "v": first_columns}):
                break
    else:
        return None
    read = _weights_of(session, inputs)
    if read is None:
        return None
    at, weights, s, open_ = read
    top = s.max(axis=-1, keepdims=True)
    # A sink takes part of the sum, so counts must allow for it.
    sink = 0 if session.attention.sink is None else at.power(at.z - top)
    return counted(_make_query_key_pairs(at), weights, at.power(s - top), open_, True, sink)


def _weights_of(
    session: Session, inputs: dict[str, np.ndarray]
) -> tuple[At, np.ndarray, Any, np.ndarray] | None:
    """Return the function's weights, the scores before any is forbidden, and which are allowed."""
    parts = ({**inputs, "v": block} for block in _split_values_by_width(session, inputs["v"]))
    outputs = [session.subject.source.attended(session, part) for part in parts]
    spec = canonical(session.attention)
    try:
        values = trace(
            spec, {n: a if a.dtype.kind in "biu" else a.astype(float) for n, a in inputs.items()}
        )
    except UNFIT:
        return None
    at = At(spec, values, "weights")
    returned = [output for output in outputs if output is not None and output.ndim]
    # A call without an output leaves columns unknown.
    if len(returned) < len(outputs):
        return None
    return (
        at,
        # Columns that fill the last part are cut off.
        np.concatenate(returned, axis=-1)[..., : inputs["v"].shape[-1]],
        _scores_before_forbidding(at),
        allowed(at),
    )


def make_identity_values(v: np.ndarray) -> np.ndarray:
    """Return values of which each is one column of the identity, in the place of v (…, n, d): (…, n, n)."""
    keys = v.shape[-2]
    return np.broadcast_to(np.eye(keys), (*v.shape[:-1], keys)).copy()


def _split_values_by_width(session: Session, v: np.ndarray) -> list[np.ndarray]:
    """Return values by columns, in parts as wide as the domain permits; the last one is filled with zeros."""
    n = v.shape[-1]
    w = next((w for w in range(n, 0, -1) if w in session.domain.widths), n)
    lacking = np.zeros((*v.shape[:-1], -n % w))
    filled = np.concatenate((v, lacking), axis=-1)
    return [filled[..., c : c + w] for c in range(0, n, w)]


def _make_query_key_pairs(at: At) -> Pairs:
    n_q, n_k = (1, *at.shape)[-2:]
    labels = {n: a for n, a in at.values.items() if n.startswith("doc")}
    return Pairs(n_q, n_k, at.spec.offset(n_q, n_k), labels, at.spec.heads)


def _scores_before_forbidding(at: At) -> Any:
    """Return the scores before any is forbidden."""
    return added(at) if at.spec.masks_anything else at.first


def _counted_scores(keys: OtherKeys, at: At) -> Any:
    """Return the scores by which keys are counted so often."""
    right, s = allowed(at).astype(int), _scores_before_forbidding(at)
    counts = keys(_make_query_key_pairs(at), np.atleast_2d(right))
    if right.ndim == 1:  # a single row of scores
        counts = counts[0]
    times = at.xp.log(at.number(np.maximum(counts, 1))) if (counts > 1).any() else 0
    return at.xp.where(counts > 0, s + times, -np.inf)
