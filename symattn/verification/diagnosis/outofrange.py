"""Mistakes that are no change of the exact definition: numbers that leave the range of a format.

A row is lost exactly if its numbers leave the range; rows close to that are not judged. Which rows are lost depends on
what is subtracted instead of a row's largest score: nothing, a constant, the maximum of the whole array, the first
score, the mean, the maximum with forbidden keys. If scores overflow before they are scaled, a row is lost if a product
is beyond the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import log
from typing import TYPE_CHECKING

import numpy as np

from symattn.arrays.formats import Format
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.judge import traced
from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import Variant
from symattn.verification.probing import numbers, probes
from symattn.verification.rules.tiling import WIDTHS

if TYPE_CHECKING:
    from symattn.verification.engine import Session

# More mistakes that fit alike would make a report unreadable.
_NAMED = 3  # mistakes that are named together at most
# the edge of the range
_ABOVE = (1.5, 2.5, 3.5, 4.5, 5.5, 7, 9, 11.5, 13.5, 17, 22, 28, 36, 45, 55, 70, 90, 115)
# Constants that code subtracts in place of the largest score.
_CONSTANTS = (
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
    15,
    16,
    20,
    24,
    25,
    30,
    32,
    40,
    50,
    60,
    64,
    80,
    100,
    128,
    256,
    1000,
)
# Numbers of keys before one that lies far below, at and between widths of tiles.
_FIRSTS = (2, 3, 4, 5, 6, 7, 8, 10, 16, 32, 48, 64, 96, 128)
Array = np.ndarray
Reference = Callable[[CaseResult], np.ndarray]


@dataclass(frozen=True)
class _Row:
    """The rows of a mistake, (…, n_q): whether they are lost, for certain kept, or lost by overflow (``above``), and
    how far numbers may be ``off`` that are neither lost nor right."""

    lost: np.ndarray
    kept: np.ndarray
    above: np.ndarray
    off: np.ndarray | None = None


Rows = Callable[[CaseResult], _Row]


def out_of_range(
    session: Session,
    lost: Sequence[CaseResult],
    cases: Sequence[CaseResult],
    beside: bool = False,
    judge: Callable[[str, dict[str, Array]], CaseResult | None] | None = None,
) -> tuple[Mistake, ...]:
    """Return mistakes of one format that explain all ``lost`` cases, ``cases``, and further distinguishing inputs.

    With ``beside``, another mistake explains the finite numbers, and these explain only non-finite ones. ``judge``
    calls the function with such inputs, which have a title; by default they are those of the function.
    """
    call = judge or (lambda title, inputs: session.run_case(Case("range", title, inputs)))
    p, agrees = session.precision, _agrees_in_range if beside else _is_row_loss_predicted
    # The function's own formats come first, then common intermediate formats.
    for name in dict.fromkeys((p.score.name, p.input.name, "float16", "float32", "float64")):
        f = Format(name)
        every = ((m, [m[2](r) for r in lost]) for m in _yield_range_mistakes(f))
        result = [
            m for m, rows in every if any((row.above if beside else row.lost).any() for row in rows)
        ]
        # A mistake must predict the rows of every case, not of lost ones alone.
        result = [m for m in result if all(agrees(r, m[2](r)) for r in cases)]
        # else all is lost, for any reason
        result = [m for m in result if any(_has_row_to_keep(r, m[2](r)) for r in cases)]
        extreme_inputs = (
            (name, inputs)
            for name, inputs in _yield_extreme_score_inputs(session, f)
            if inputs is not None
        )
        # Further inputs near the edge of the range separate mistakes that agree so far.
        for judged in (call(*of) for of in extreme_inputs) if result else ():
            if judged is not None and judged.ratios is not None:
                result = [m for m in result if agrees(judged, m[2](judged))]
        if result:
            return tuple(
                Mistake(step, cause, Variant())
                for step, cause, _ in result[: 1 if len(result) > _NAMED else None]
            )
    return ()


def loses_rows(judged: CaseResult) -> bool:
    """Return whether a wrong row is not finite, or all 0, as where code guards the division by a sum of 0."""
    got, ratios = judged.outcome.output, judged.ratios
    if got is None or ratios is None:
        return False
    return bool(
        (
            # Code that guards the division by a sum of 0 returns zeros where others return NaN.
            (ratios > 1).any(axis=-1) & ((got == 0).all(axis=-1) | ~np.isfinite(got).all(axis=-1))
        ).any()
    )


def _yield_extreme_score_inputs(
    session: Session, f: Format
) -> Iterator[tuple[str, dict[str, Array] | None]]:
    """Yield named inputs with scores just above the range, or as far below 0, and with scores that lie far apart."""
    rng = np.random.default_rng((session.seed, 2))
    edge, square = log(f.largest), session.maker.square
    for sign, above in product((1, -1), _ABOVE):
        level = sign * float(session.precision.input.rounded(np.asarray(edge + above)))
        # As many queries as keys, where that is promised.
        q = np.full((3 if square else 2, 1), level)
        k = np.array([[1.0], [1.0], [1 - sign / 2]])
        yield (
            f"scores near {level:.4g}",
            session.maker.from_heads(q, k, np.array([[1.0], [-2.0], [4.0]])),
        )
    for spread in (1, 2, 4):
        q, k, v = (
            rng.integers(-3, 4, (5, 2)),
            rng.integers(-3, 4, (5, 2)),
            rng.integers(-4, 5, (5, 2)),
        )
        arrays = (np.rint(q * edge * spread / 8), k.astype(float), v.astype(float))
        yield "scores far apart", session.maker.from_heads(*arrays)
    for first in _FIRSTS:  # for tiles whose width divides this, the last tile lies far below
        k = probes.far(session.maker) * (np.arange(first + 1) < first)[:, None]
        rows = np.ones((first + 1 if square else 2, 1))
        inputs = session.maker.from_heads(
            rows, k, rng.integers(-4, 5, (first + 1, 2)).astype(float)
        )
        yield f"{first} keys far above the last one", inputs
        yield from numbers.masked_tile(session.maker, first, rng)


def _yield_range_mistakes(f: Format) -> Iterator[tuple[str, str, Rows]]:
    least, most, vanish = (
        f"{-log(f.smallest_normal):.4g}",
        f"{log(f.largest):.4g}",
        -log(f.smallest_normal * 2 * f.u),
    )
    overflows = (
        f"exponentials overflow in {f.name} where that is {most} less than the largest score"
    )
    vanishes = f"all exponentials of a row vanish in {f.name} where that is {least} more"
    words = f"the largest score is not subtracted: e^s overflows in {f.name} for s above {most}"
    yield (
        "max",
        f"{words}, and every e^s vanishes below {log(f.smallest_normal):.4g}",
        _make_reference_row_rule(f, _make_constant_reference(0)),
    )
    words = "the maximum of the whole array is subtracted, not that of each row: every exponential of a row"
    yield (
        "max",
        f"{words} more than {vanish:.4g} below it vanishes in {f.name}",
        lambda r: _common_maximum(r, f),
    )
    for constant in _CONSTANTS:
        for sign in (1, -1):
            words = f"{'−' * (sign < 0)}{constant} is subtracted, not the largest score of the row"
            yield (
                "max",
                f"{words}: {overflows}",
                _make_reference_row_rule(f, _make_constant_reference(sign * constant)),
            )
        words = f"forbidden scores count as −{constant} in the largest score of a row, which is subtracted"
        yield (
            "max",
            f"{words}: {vanishes}",
            _make_reference_row_rule(f, partial(_at_least, -constant)),
        )
    for words, reference in _OTHERS.items():
        lost = vanishes if reference in (_with_zero, all_keys_maxima) else overflows
        yield (
            "max",
            f"{words} is subtracted, not the largest score of the row: {lost}",
            _make_reference_row_rule(f, reference),
        )
    for width in dict.fromkeys((*WIDTHS, *range(1, 129))):  # the usual ones first
        words = f"each tile's own maximum is subtracted, not the largest so far (tiles of {width}): what is rescaled"
        words += f" overflows in {f.name} where a tile is {most} below one before"
        yield "max", words, _tile_maxima(width, f)
        yield (
            "max",
            f"{_CLOSED} (tiles of {width}): {vanishes}",
            _make_reference_row_rule(f, partial(_closed_as_zero, width)),
        )
    words = f"scores overflow in {f.name} before they are scaled, where a product is above {float(f.largest):.5g}"
    yield "score", words, lambda r: _rows_of_overflowing_products(r, f)


_CLOSED = "a tile in which a row has no key takes 0 for its largest score, which is then subtracted if it is larger"


def _is_row_loss_predicted(judged: CaseResult, row: _Row) -> bool:
    """Return whether rows that must be lost are wrong and rows that must be kept are right."""
    ratios = judged.ratios
    assert ratios is not None
    if traced(judged).run.output_step is not None:  # heads are mixed: the whole case is judged
        lost, all_safe = row.lost.any(), row.kept.all()
        return bool(((ratios > 1).any() or not lost) and ((ratios <= 1).all() or not all_safe))
    wrong = np.asarray((ratios > 1).any(axis=-1))
    if row.off is not None:
        got = judged.outcome.output
        assert got is not None
        with np.errstate(invalid="ignore"):
            near = np.abs(got - traced(judged).near) <= traced(judged).allowed + row.off[..., None]
        # rows with nothing but NaN, infinities, zeros, and numbers at most ``off`` beyond the bound
        vanished = (~np.isfinite(got) | (got == 0) | near).all(axis=-1)
        if bool((wrong & ~vanished).any()):
            return False
    return bool(wrong[row.lost].all() and not wrong[row.kept].any())


def _has_row_to_keep(judged: CaseResult, row: _Row) -> bool:
    """Return whether some row must be kept; if heads are mixed, whether the whole case must be."""
    return bool(row.kept.all() if traced(judged).run.output_step is not None else row.kept.any())


def _agrees_in_range(judged: CaseResult, row: _Row) -> bool:
    """Return whether rows that overflow are not finite, and rows that must be kept are finite."""
    got = judged.outcome.output
    assert got is not None
    bad = np.asarray(~np.isfinite(got).all(axis=-1))
    if traced(judged).run.output_step is not None:
        is_bad = bool(bad.any())
        return not row.kept.all() if is_bad else not row.above.any()
    return bool(bad[row.above].all() and not bad[row.kept].any())


def _make_reference_row_rule(f: Format, reference: Reference) -> Rows:
    """Return the rows that overflow or vanish if a reference is subtracted instead of their maximum."""

    def rows(judged: CaseResult) -> _Row:
        m = _subtract_reference(row_maxima(judged), reference(judged))
        # Below the least subnormal number by e²: what lies in between is not judged.
        low = log(f.smallest_normal) + log(2 * f.u) - 2
        lost = (m > log(f.largest) + 1) | (np.isfinite(m) & (m < low))
        # Sums over the values must stay in the range as well.
        safe_rows = (m < log(f.largest) - log(_bound_sum_of_values(judged)) - 1) & (
            m > log(f.smallest_normal) + 1
        )
        return _Row(lost, safe_rows, m > log(f.largest) + 1, _bound_underflow_error(judged, f, m))

    return rows


def _common_maximum(judged: CaseResult, f: Format) -> _Row:
    m = row_maxima(judged)
    below = _subtract_reference(m, m.max())
    lost = np.isfinite(below) & (below < log(f.smallest_normal) + log(2 * f.u) - 2)
    keeps = below > log(f.smallest_normal) - log(f.u) + log(_bound_sum_of_values(judged)) + 1
    return _Row(lost, keeps, np.zeros_like(lost), _bound_underflow_error(judged, f, below))


def _tile_maxima(width: int, f: Format) -> Rows:
    """Return the rows in which e^{M − m} overflows, with m the maximum of a tile and M the largest score up to it."""

    def rows(judged: CaseResult) -> _Row:
        s = np.where(
            traced(judged).run.allowed, traced(judged).run.final_scores.midpoints(), -np.inf
        )
        tops = np.stack(
            [s[..., i : i + width].max(axis=-1) for i in range(0, s.shape[-1], width)], axis=-1
        )
        with np.errstate(invalid="ignore"):
            fall = np.maximum.accumulate(tops, axis=-1) - tops
        # A tile without any key has no maximum to rescale from.
        fall = np.where(np.isfinite(tops), fall, 0.0).max(axis=-1)
        lost = fall > log(f.largest) + 1
        return _Row(lost, fall < log(f.largest) - log(_bound_sum_of_values(judged)) - 1, lost)

    return rows


def _subtract_reference(m: np.ndarray, reference: object) -> np.ndarray:
    """Return m − reference; −∞ in rows without keys, whatever the reference."""
    with np.errstate(invalid="ignore"):
        return np.where(m == -np.inf, m, m - reference)


def _bound_underflow_error(judged: CaseResult, f: Format, m: np.ndarray) -> np.ndarray:
    """Return how far numbers of a row with the largest exponential e^m may be off: each term by at most the smallest
    normal number, or half a subnormal one if e^m is below that."""
    low = m < log(f.smallest_normal)
    step = np.where(low, log(f.smallest_normal) + log(2 * f.u), log(f.smallest_normal))
    with np.errstate(over="ignore"):
        return np.asarray(4 * _bound_sum_of_values(judged) * np.exp(np.clip(step - m, -700, 700)))


def _rows_of_overflowing_products(judged: CaseResult, f: Format) -> _Row:
    s = np.abs(np.asarray(traced(judged).run.values["scores"].midpoints()))
    open_ = traced(judged).run.allowed
    most = np.where(open_, s, 0.0).max(axis=-1)
    # A product with a forbidden key may overflow without harm, or not: such rows are not judged.
    every = s.max(axis=-1)
    # A margin for the roundings of products.
    lost = most > float(f.largest) * 1.01
    return _Row(lost, every < float(f.largest) * 0.9, lost)


def _make_constant_reference(c: float) -> Reference:
    return lambda judged: np.full(traced(judged).run.allowed.shape[:-1], float(c))


def row_minima(judged: CaseResult) -> np.ndarray:
    """Return the smallest score of each row, of the keys that it may attend to."""
    return np.asarray(_lift_forbidden_scores(judged).min(axis=-1))


def all_keys_maxima(judged: CaseResult) -> np.ndarray:
    """Return the largest score of each row, including forbidden keys."""
    run = traced(judged).run
    last = [name for name in run.chain if name != "masked"][-1]
    return np.asarray(run.values[last].midpoints()).max(axis=-1)  # type: ignore[no-any-return]


def _with_zero(judged: CaseResult) -> np.ndarray:
    return np.asarray(np.maximum(row_maxima(judged), 0.0))


def _at_least(least: float, judged: CaseResult) -> np.ndarray:
    """Return the largest score; at least this number if a row has a forbidden key."""
    closed = ~traced(judged).run.allowed.all(axis=-1)
    return np.asarray(np.maximum(row_maxima(judged), np.where(closed, least, -np.inf)))


def _closed_as_zero(width: int, judged: CaseResult) -> np.ndarray:
    """Return the largest score; at least 0 if a row has a tile without any key."""
    open_ = traced(judged).run.allowed
    edges = np.arange(0, open_.shape[-1], width)
    closed = ~np.logical_or.reduceat(open_, edges, axis=-1).all(axis=-1)
    return np.where(closed, _with_zero(judged), row_maxima(judged))


_OTHERS: dict[str, Reference] = {
    "the largest score with forbidden keys": all_keys_maxima,
    "the first key's score": lambda judged: _lift_forbidden_scores(judged)[..., 0],
    "the mean of the scores": lambda judged: np.asarray(
        _lift_forbidden_scores(judged).mean(axis=-1)
    ),
    "the smallest score": row_minima,
    "the largest absolute value of the scores": lambda judged: np.asarray(
        np.abs(_lift_forbidden_scores(judged)).max(axis=-1)
    ),
    "the larger one of 0 and the largest score": _with_zero,
}


def _bound_sum_of_values(judged: CaseResult) -> float:
    """Return a bound of Σ|v_j|, at least n."""
    run = traced(judged).run
    size = float(np.abs(run.values[run.values_name].midpoints()).max(initial=1.0))
    return int(run.allowed.shape[-1]) * max(size, 1.0)


def row_maxima(judged: CaseResult) -> np.ndarray:
    """Return the largest score of each row, of the keys that it may attend to."""
    run = traced(judged).run
    return np.asarray(np.where(run.allowed, run.final_scores.midpoints(), -np.inf).max(axis=-1))


def _lift_forbidden_scores(judged: CaseResult) -> np.ndarray:
    """Return the scores, with forbidden ones replaced by the largest of their row."""
    run = traced(judged).run
    return np.where(run.allowed, run.final_scores.midpoints(), row_maxima(judged)[..., None])
