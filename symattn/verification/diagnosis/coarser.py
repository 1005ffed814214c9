"""Errors that arithmetic in a narrower format could make: which format, and on which side of the softmax.

The error of a mistake of the grammar is as large as the numbers; that of arithmetic is at most its bound. So if every
wrong output is within the bound for a narrower format, for inputs at which that bound is decisive, the format may be to
blame. Roundings are far below the worst case and occur in every call with random numbers: so such calls must be wrong,
by a small part of the bound. With queries of 0, all scores are 0 in every format: if these calls are right, scores lose
the digits, else later steps do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt, tanh
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT, CaseResult, Expected
from symattn.bounds.inputs import Sizes
from symattn.bounds.judge import expected, holds, union
from symattn.bounds.mistake import At
from symattn.bounds.reference import canonical, float64_inputs, trace, usual
from symattn.bounds.storing import FORMATS
from symattn.document.errors import Undecided
from symattn.verification.diagnosis.screening import spread
from symattn.verification.probing.probes import FAMILIES

if TYPE_CHECKING:
    from symattn.verification.engine import Session

# for attention: the bound for bfloat16 is so wide that it would include other mistakes
_SIDED = FORMATS[:2]
_CASES = 12  # wrong cases in the sample, of all sizes
# the bound must be decisive for so many of them, or this part, whichever is more
_TELLING = 3
_PART = 1 / 4
_GRIDS = ("bfloat16", "float16", "float32")
_ON_GRID = 1 / 2  # share of the right outputs that may be numbers of a format by chance
_USUALLY = 1 / 8  # fraction of the worst-case bound that roundings of a format mostly stay below
_SMALL, _TELLS = 2.0**-20, 2.0**-10  # of the largest value
_LEGAL = 64  # units of roundoff that weights may be off by
_FOR_OTHER_INPUTS = 25  # seed of the inputs that a definition has besides those of its attention
# no format has the number 1/n_k
_UNEVEN = (Sizes(3, 7, 4, 3), Sizes(2, 33, 5, 2), Sizes(3, 11, 2, 4))


def form(spec: Attention, precision: Precision, wrong: Sequence[CaseResult]) -> tuple[str, str]:
    """Return the step and name of the form, equal in exact arithmetic, whose own bound holds all errors, or ("", "").

    Parts may be merged as o − σ(o − o_b), σ = 1/(1 + e^{L − L_b}). With the bound A of the other forms, V = max |v| in
    the column and u of the intermediate arithmetic, errors are at most A + 8 u V. Proof. An error of L, L_b or of the
    exponential changes σ by a fraction of (1 − σ), as in the merge that A covers. What is left is (1 + a), |a| ≤ 4u,
    from the sum and the quotient in σ, and u from the difference and the product each, so the result is
    (1 − σ) o + σ o_b − σ η (o − o_b), |η| ≤ 7u. A includes this except σ η o, at most 8 u σ V. Later merges multiply
    that by 1 − σ_m, and Σ_k σ_k Π_{m>k} (1 − σ_m) ≤ 1 for any number of parts. ∎ See
    ``_bound_for_rotated_inputs`` for another form.

    If 8 u is more than ``_SMALL``, as in short formats, bounds would include mistakes, and none is named.
    """
    times = 8 * float(precision.between.u)
    if (
        # In short formats these bounds would include other mistakes.
        not spec.is_softmax
        or times > _SMALL
        or any(r.ratios is None or "q" not in r.case.inputs for r in wrong)
    ):
        return "", ""
    largest = [
        np.abs(v := r.case.inputs["v"]).reshape(-1, v.shape[-1]).max(axis=0, initial=0.0)
        for r in wrong
    ]
    if all(
        _is_error_within_bound(r, r.parts[0].expected.allowed + times * v)
        for r, v in zip(wrong, largest, strict=True)
    ):
        return "merge", "parts that are merged as o − σ(L_b − L)(o − o_b)"
    bounds = []
    for r in wrong:
        if (
            not usual(spec)
            or spec.scale is not None
            # One case beyond the bound refutes the form.
            or not _is_error_within_bound(r, bound := _bound_for_rotated_inputs(spec, precision, r))
        ):
            return "", ""
        bounds.append(float(bound.max()))
    # A bound as large as the values would admit anything.
    if not any(bound < _TELLS * v.max() for bound, v in zip(bounds, largest, strict=True)):
        return "", ""
    return (
        "output",
        "queries and keys, or values and outputs, that are multiplied by an orthogonal matrix",
    )


def _bound_for_rotated_inputs(
    spec: Attention, precision: Precision, judged: CaseResult
) -> np.ndarray:
    """Return the bound if q and k are multiplied by one orthogonal matrix, and v by another, as its transpose does o.

    Products by a matrix of width d whose entries are rounded change a row x by at most c|x|, c = (d√d + √d) u: the
    moduli of its entries are a matrix of norm √d. Scores of turned rows have the error d u |q||k|, as |q| and |k| stay:
    |s̃ − s| ≤ E = (2c + d u)|q||k|/√d, which multiplies each weight by e^{2E} at most. A set of keys of weight a then
    has at most a e^E/(a e^E + (1 − a) e^{−E}), which exceeds a most at a = 1/(1 + e^E), by tanh(E/2); so the weights
    change by 2 tanh(E/2) in total, and their mean of values by as many N = max |v_j|. With N in place of every value,
    A is B; the last product adds up e entries of error B, which is √e B, and c N.
    """
    # 1.01 for what is of second order
    u = 1.01 * float(precision.between.u)
    inputs = judged.case.inputs
    d = inputs["q"].shape[-1]
    e = inputs["v"].shape[-1]
    lengths = {n: np.sqrt(np.square(inputs[n]).sum(axis=-1, keepdims=True)) for n in "qkv"}
    q, k, v = (float(a.max(initial=0.0)) for a in lengths.values())
    scores = u * (2 * (d + 1) * sqrt(d) + d) * q * k / sqrt(d)
    within = expected(
        spec, {**inputs, "v": np.broadcast_to(lengths["v"], inputs["v"].shape)}, precision
    ).allowed
    of_values = v * (2 * tanh(scores / 2) + 2 * (e + 1) * sqrt(e) * u)
    return np.asarray((sqrt(e) * within + of_values) * np.exp(2 * scores))


def _is_error_within_bound(judged: CaseResult, allowed: np.ndarray) -> bool:
    """Return whether errors are within a bound."""
    part = judged.parts[0]
    return part.got is not None and bool(
        (part.expected.widened(allowed).ratios(part.got) <= 1).all()
    )


def coarser(session: Session, wrong: Sequence[CaseResult]) -> tuple[str, str]:
    """Return the step, and the format in words; ("", "") if arithmetic in no format makes such errors.

    An edit of the source that explains them says more than bounds of narrow formats, which are wide and hold errors by
    chance, unless the outputs show the format themselves.
    """
    grids = (
        narrow
        for narrow in map(Precision.of, _GRIDS)
        # A format that the contract returns anyway is no finding.
        if narrow.input.u > session.precision.returned.u and _on_grid(narrow, wrong)
    )
    grid = next(grids, None)
    if session.repairs.explain and grid is None:
        return "", ""
    # A few cases of all sizes, since bounds of narrow formats are slow.
    sample, between = spread(wrong, _CASES), session.precision.between.u
    formats = (narrow for narrow in map(Precision.of, FORMATS) if narrow.between.u > between)
    # the first format whose arithmetic could make all of the errors
    first = next(
        (narrow for narrow in formats if _is_narrow_format_possible(session, narrow, sample)), None
    )
    step, words = session.subject.coarse(session, first.name) if first is not None else ("", "")
    if grid is None:
        return step, words
    evidence = (
        f"every output is a number of {grid.name}, as if rounded to that format, or summed in it"
    )
    return step or "output", f"{words}; {evidence}" if words else evidence


def _on_grid(narrow: Precision, wrong: Sequence[CaseResult]) -> bool:
    """Return whether all outputs are numbers of this format while most of the right ones are not."""

    def of(arrays: Sequence[Any]) -> np.ndarray:
        return np.concatenate([(narrow.input.rounded(a) == a).ravel() for a in arrays])

    parts = [part for judged in wrong for part in judged.parts]
    # A few outputs may be numbers of a format by chance.
    if len(wrong) < _TELLING or any(
        part.got is None or not np.isfinite(part.got).all() for part in parts
    ):
        return False
    return (
        bool(of([part.got for part in parts]).all())
        and of([p.expected.near for p in parts]).mean() < _ON_GRID
    )


def _compute_narrow_format_bounds(
    session: Session, narrow: Precision, judged: CaseResult
) -> list[Expected] | None:
    """Return the bounds for this format; None if the output is not within them."""
    try:
        bounds = union([way() for way in session.subject.legal(narrow, judged.case.inputs).ways])
    except (Undecided, *UNFIT):  # such coarse rounding could change the outcome of comparisons
        return None
    return bounds if holds(bounds, judged) else None


def _is_narrow_format_possible(
    session: Session, narrow: Precision, wrong: Sequence[CaseResult]
) -> bool:
    """Return whether every wrong output is within the bound for this format."""
    telling = 0
    for judged in wrong:
        # Without an effort left the format counts as impossible.
        if (
            judged.ratios is None
            or session.effort.over
            or (bounds := _compute_narrow_format_bounds(session, narrow, judged)) is None
        ):
            return False
        # A bound that is not decisive would hold any error.
        telling += all(bool(bound.decisive().any()) for bound in bounds)
    return telling >= max(_TELLING, _PART * len(wrong))


# -- attention ---------------------------------------------------------------------------------------------------------
def side(session: Session, narrow: str) -> tuple[str, str]:
    """Return scores or values as the step, by queries of 0; ("", "") unless all calls with random numbers are off."""
    # Wider bounds, or calls that are sometimes right, do not speak of arithmetic.
    if narrow not in _SIDED or not _is_uniformly_wrong(session, Precision.of(narrow)):
        return "", ""
    words = f"no error is larger than {narrow} arithmetic could make it"
    rng, outcome = np.random.default_rng((session.seed, 6)), 0
    for sizes in _UNEVEN:
        result = session.maker.make(sizes, FAMILIES["normal"](rng), rng)
        inputs = {n: np.zeros_like(a) if n in ("q", "w_q") else a for n, a in result.items()}
        # Queries of 0 must be inputs, and the domain must include them.
        if not {"q", "w_q"} & result.keys() or not session.maker.admits(inputs):
            continue
        judged = _judge_arrays(session, "queries of 0", ", ".join(inputs), inputs)
        if judged is None:
            continue
        if judged.finding == "values":
            return (
                "values",
                f"{words}, where queries are 0 too: so weights, or their sums over the values, lose digits",
            )
        outcome += judged.finding is None and not judged.outcome.late
    if not outcome:
        return "", ""
    step, evidence = _after_scores(session)
    return (
        (step or "score"),
        f"{words}, and {evidence or 'the output is right where queries are 0: so scores lose digits'}",
    )


def _after_scores(session: Session) -> tuple[str, str]:
    """Return the exponentials or their sum as the step if they are wrong for exact scores; else ("", "")."""
    if not usual(session.attention) or session.attention.scale is not None:
        return "", ""
    rng, legal, shares = (
        np.random.default_rng((session.seed, 9)),
        _LEGAL * float(session.precision.roughest.u),
        True,
    )
    # Multiples of 1/4 are exact in every format, so that scores lose nothing.
    for n in (3, 7, 11, 19, 33):
        scores = rng.integers(-8, 9, n) / 4
        weights = weights_of(session, scores)
        if weights is None:
            return "", ""
        e = np.exp(scores - scores[0])
        # Ratios do not depend on the sum, so they show the exponentials alone.
        if (np.abs(weights / weights[0] / e - 1) > legal).any():
            return "exp", "the exponentials of scores that every format holds lose digits"
        shares = shares and abs(weights.sum() - 1) <= legal
    if shares:
        return "", ""
    words = "the ratios of weights are right, but they do not sum to 1: the sum that they are divided by loses digits"
    return "normalize", words


def _is_uniformly_wrong(session: Session, narrow: Precision) -> bool:
    """Return whether outputs for random numbers are wrong in every size, by a small part of the bound."""
    rng = np.random.default_rng((session.seed, 8))
    for sizes in _UNEVEN:
        inputs = session.maker.make(sizes, FAMILIES["normal"](rng), rng)
        judged = _judge_arrays(session, "format", "", inputs)
        if judged is None:
            return False
        got = judged.outcome.output
        if judged.finding != "values" or got is None:
            # Roundings stay far below the worst case; larger errors have another cause.
            return False
        bounds = _compute_narrow_format_bounds(session, narrow, judged)
        if bounds is None or not (bounds[0].ratios(got) <= _USUALLY).all():
            return False
    return True


def weights_of(session: Session, scores: np.ndarray) -> np.ndarray | None:
    """Return the weights of a query with these scores, for as many keys; None if they cannot be read."""
    n = len(scores)
    # As many queries as keys, where that is promised.
    q = np.ones((n if session.maker.square else 1, 1))
    inputs = session.maker.from_heads(q, scores[:, None], np.eye(n))
    # Inputs that had to be padded would have other scores or values.
    if inputs is None or [inputs[a].shape for a in "kv" if a in inputs] != [(n, 1), (n, n)]:
        return None
    got = session.subject.source.attended(session, inputs)
    # A function may return another shape, and no key may be forbidden to the last query.
    if got is None or got.shape[-2:] != (len(q), n) or not np.isfinite(got).all():
        return None
    if not np.isfinite(_final_scores(session.attention, inputs)[..., -1, :]).all():
        return None
    # The last query sees all keys even under a causal mask.
    row = got.reshape(-1, n)[-1]
    return np.asarray(row, dtype=np.float64) if row[0] > 0 else None


def _final_scores(spec: Attention, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the scores in float64 from which weights are computed, −∞ where a key is forbidden."""
    spec = canonical(spec)
    values = trace(spec, float64_inputs(inputs))
    return np.asarray(At(spec, values, "weights").first)


def _judge_arrays(
    session: Session, group: str, title: str, arrays: Mapping[str, np.ndarray]
) -> CaseResult | None:
    """Call the function with these arrays of its attention, and judge it; None if it has no place for them."""
    rng = np.random.default_rng((session.seed, _FOR_OTHER_INPUTS))
    case = session.subject.source.case_of_attention(session, group, title, arrays, rng)
    return None if case is None else session.run_case(case)
