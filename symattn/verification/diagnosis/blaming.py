"""The step to blame if no known mistake of attention explains a fault, by evidence from the function's own outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import exp, log
from typing import TYPE_CHECKING

import numpy as np

from symattn.attention.inputs import check_inputs
from symattn.attention.positions.position_fields import Rotary
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.inputs import Sizes
from symattn.bounds.judge import centres, traced
from symattn.bounds.reference import canonical, trace, usual
from symattn.document.errors import InputError
from symattn.verification.diagnosis.coarser import coarser, weights_of
from symattn.verification.diagnosis.effective_weights import make_identity_values
from symattn.verification.diagnosis.observe import explains, first_wrong_step, in_group
from symattn.verification.diagnosis.outofrange import all_keys_maxima, row_maxima, row_minima
from symattn.verification.diagnosis.screening import is_finite
from symattn.verification.probing.probes import FAMILIES

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_APART = 0.1  # scores that differ
_LARGE = 400  # entries of inputs, beyond which a case shows no more of what is affected


def blamed(
    session: Session, smallest: CaseResult, records: Sequence[CaseResult]
) -> tuple[str, str]:
    """Return the step to blame, and the evidence: an idle step, another format, or the weights themselves; and what is
    affected."""
    # If every wrong case is not finite, the rows that are lost show the step.
    if all(r.finding == "not finite" for r in records):
        step, evidence = nonfinite_rows(session.records)
        if step:
            return step, evidence
    wrong = [smallest, *(r for r in records if r.finding == "values")]
    step, evidence = _find_step_to_blame(session, smallest, wrong)
    words = affected(
        max(wrong, key=lambda r: min(r.case.size, _LARGE)), session.attention.heads > 1
    )
    return step, "; ".join(w for w in (evidence, f"wrong are {words}" if words else "") if w)


def _find_step_to_blame(
    session: Session, smallest: CaseResult, wrong: list[CaseResult]
) -> tuple[str, str]:
    """Return the first result of the ways to find a step."""
    for look in (idle_step, other_function, coarser, other_values):
        step, evidence = look(session, wrong)
        if step:
            return step, evidence
    # Equal weights are right whatever keys are read, so a case with unequal ones tells more.
    telling = next(
        (
            r
            for r in (smallest, *sorted(wrong, key=lambda r: r.case.size))
            if _has_differing_row_weights(r)
        ),
        smallest,
    )
    weights = _rerun_with_identity_values(session, telling)
    cases = _select_telling_cases(wrong)
    # Where weights cannot be read, queries of 0 make all of them equal.
    if (
        weights is None
        and cases
        and _is_right_after_change(
            session,
            cases,
            partial(_apply_input_changes, changes=_assign_change_to_inputs(_ZERO, "q w_q")),
        )
    ):
        return "weights", "the output is right where queries are 0"
    # All weights of the smallest case are equal: if they do not explain it, a later step does.
    if (
        telling is not smallest
        and smallest.ratios is not None
        and not explains(smallest, _rerun_with_identity_values(session, smallest))
    ):
        return "output", ""
    place = "in the input below" if telling is smallest else in_group(telling)
    return first_wrong_step(session.attention, telling, weights, place, session.records)


def _select_telling_cases(wrong: list[CaseResult]) -> list[CaseResult]:
    """Return a few of the wrong cases, finite ones if there are any."""
    cases = [r for r in wrong if r.ratios is not None]
    return ([r for r in cases if is_finite(r)] or cases)[:_CASES]


def _has_differing_row_weights(judged: CaseResult) -> bool:
    """Return whether some row has different weights: equal ones are right whatever keys are read."""
    if judged.ratios is None:
        return False
    run = traced(judged).run
    s = run.final_scores.midpoints()
    # NaN for forbidden keys, which nanmax and nanmin ignore.
    s = np.where(run.allowed & np.isfinite(s), s, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows without any key
        return bool((np.nanmax(s, axis=-1) - np.nanmin(s, axis=-1) > _APART).any())


def _rerun_with_identity_values(session: Session, judged: CaseResult) -> CaseResult | None:
    """Return the same case with the identity as values; None without an input v, for a batch, or if it does not fit."""
    inputs = judged.case.inputs
    if "v" not in inputs or inputs["v"].ndim != 2 + (session.attention.heads > 1):
        return None
    arrays = {**inputs, "v": make_identity_values(inputs["v"])}
    try:
        check_inputs(session.attention, arrays)
    except InputError:
        # A gain of the columns of values has their number.
        return None
    return session.run_case(Case("structure", "", arrays)) if session.maker.admits(arrays) else None


# -- which step is to blame, found by making steps idle: if a bias of zeros makes all right, the bias was wrong --------
# Nothing is assumed about the mistake. Each step that an input can make idle is made so in wrong cases; the first one
# without which they are right is named. A step that no input controls is tested with sizes or numbers at which it has
# no effect: scores that are all 0, far below a cap, or of a key at the position of the query.
_CASES = 3  # wrong cases that must all become right
_FAR = 1e4  # below all scores
_SMALL = 2.0**-12
Change = Callable[[np.ndarray], np.ndarray]

_ZERO, _ONE = np.zeros_like, np.ones_like


def _assign_change_to_inputs(change: Change, names: str) -> dict[str, Change]:
    return dict.fromkeys(names.split(), change)


#: The step, words, and changes of inputs that make it idle.
_IDLE: tuple[tuple[str, str, dict[str, Change]], ...] = (
    ("dropout", "nothing is dropped", _assign_change_to_inputs(_ONE, "drop")),
    (
        "sink",
        "the sink takes nothing",
        _assign_change_to_inputs(lambda a: np.full_like(a, -_FAR), "sink"),
    ),
    (
        "mask",
        "nothing is masked",
        _assign_change_to_inputs(lambda a: _ONE(a) if a.dtype == bool else _ZERO(a), "mask"),
    ),
    ("mask", "nothing is padding", _assign_change_to_inputs(_ONE, "keep")),
    ("mask", "there is one document", _assign_change_to_inputs(_ZERO, "doc doc_q doc_k")),
    ("bias", "the bias is 0", _assign_change_to_inputs(_ZERO, "bias")),
    ("bias", "all slopes are 0", _assign_change_to_inputs(_ZERO, "slopes")),
    ("bias", "the biases of buckets are 0", _assign_change_to_inputs(_ZERO, "b_rel")),
    (
        "position",
        "nothing is rotated",
        _assign_change_to_inputs(_ONE, "cos cos_q") | _assign_change_to_inputs(_ZERO, "sin sin_q"),
    ),
    ("position", "all positions are 0", _assign_change_to_inputs(_ZERO, "positions positions_q")),
    (
        "norm",
        "gains are 1 and biases 0",
        _assign_change_to_inputs(_ONE, "g_q g_k")
        | _assign_change_to_inputs(_ZERO, "beta_q beta_k"),
    ),
    ("scale", "the given scale is 1", _assign_change_to_inputs(_ONE, "scale")),
    ("output", "the bias of the output is 0", _assign_change_to_inputs(_ZERO, "b_o")),
    ("project", "biases are 0", _assign_change_to_inputs(_ZERO, "b_q b_k b_v b_in")),
)


def idle_step(session: Session, wrong: list[CaseResult]) -> tuple[str, str]:
    """Return the step without whose effect all is right, and the evidence; ("", "") if there is none."""
    cases = _select_telling_cases(wrong)
    if not cases:
        return "", ""
    for step, words, changes in _IDLE:
        if session.effort.over:
            return "", ""
        if _is_right_after_change(session, cases, partial(_apply_input_changes, changes=changes)):
            return step, f"the output is right where {words}"
    lowered = partial(
        _apply_input_changes, changes=_assign_change_to_inputs(lambda a: a * _SMALL, "q w_q")
    )
    if session.attention.softcap is not None and _is_right_after_change(session, cases, lowered):
        return "softcap", "the output is right where scores are far below the cap"
    if isinstance(session.attention.position, Rotary) and _right_in_place(session):
        return "position", "the output is right where a key has the position of the query"
    return "", ""


def _apply_input_changes(
    inputs: Inputs, changes: dict[str, Change]
) -> dict[str, np.ndarray] | None:
    result = {n: changes[n](a) if n in changes else a for n, a in inputs.items()}
    # A change that changes nothing makes no step idle.
    same = all(np.array_equal(result[n], inputs[n]) for n in inputs)
    return None if same else result


def _is_right_after_change(
    session: Session,
    cases: list[CaseResult],
    change: Callable[[Inputs], dict[str, np.ndarray] | None],
) -> bool:
    """Return whether the change makes something idle, and all cases right though they could still show a fault."""
    result = False
    for judged in cases:
        changed = change(judged.case.inputs)
        if changed is None:
            return False
        # Changed numbers must be numbers of the format.
        rounded = session.precision.input.rounded
        rounded_inputs = {
            n: a if a.dtype.kind in "biu" else np.asarray(rounded(a)) for n, a in changed.items()
        }
        inputs = session.subject.source.completed(session, rounded_inputs)
        if not session.subject.source.fits(session, inputs):
            return False
        case_result = session.run_case(
            Case(judged.case.group, judged.case.name, inputs, judged.case.memory)
        )
        # One case that stays wrong, or is not judged, refutes the step.
        if case_result.finding is not None or case_result.outcome.late:
            return False
        result = result or case_result.decisive
    return result


def _right_in_place(session: Session) -> bool:
    """Return whether a query is right with its own key and a key of zeros, whose score is 0 at any position."""
    rng = np.random.default_rng((session.seed, 3))
    any_decisive = False
    # One query and two keys need n_q ≠ n_k.
    for d_k in () if session.maker.square else (2, 4, 8):
        q, k = (
            rng.integers(-2, 3, (1, d_k)).astype(float),
            rng.integers(-2, 3, (2, d_k)).astype(float),
        )
        k[0] = 0
        inputs = session.maker.from_heads(q, k, np.array([[0.0], [1.0]]))
        title = f"d_k = {d_k}"
        case = (
            None
            if inputs is None
            else session.subject.source.case_of_attention(session, "in place", title, inputs, rng)
        )
        if case is not None:
            judged = session.run_case(case)
            if judged.finding is not None:
                return False
            any_decisive = any_decisive or judged.decisive
    return any_decisive


# -- another function instead of the exponential, seen in weights of two and three keys --------------------------------
# With weights g(s − m) / Σ g, m the row's largest score, the weight of a key over that of the first, whose score is m,
# is g(s − m)/g(0): the same for every m and for any other keys. So g can be read off without any assumption.
_BELOW = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)  # distances of a score from the largest one
_TOPS = (0.0, -3.0, 4.0)
_NEAR = 1e-3  # relative: more than the error of arithmetic in float16
_LEAST = 1e-4  # ratios below this have too few digits
_STRAIGHT = 0.004  # how much slopes of one exponential may differ


def other_function(session: Session, wrong: list[CaseResult]) -> tuple[str, str]:
    """Return ("exp", the evidence) if weights are those of another function of s − m; else ("", "")."""
    # A scale, a bias or positions would enter the ratio as well; rows have one column, so that 1/√d_k is 1.
    if not usual(session.attention) or session.attention.scale not in (None, 1):
        return "", ""
    ratios: dict[float, float] = {}
    # A ratio that is not the same every time depends on more than s − m.
    for below, ratio in _yield_weight_ratios(session):
        if abs(ratio - ratios.setdefault(below, ratio)) > _NEAR:
            return "", ""
    off = [
        x for x, ratio in ratios.items() if abs(ratio - exp(-x)) > 4 * _NEAR * max(exp(-x), _NEAR)
    ]
    slopes = [log(ratio) / -x for x, ratio in ratios.items() if ratio > _LEAST]
    # weights that are e^{c x} come from another scale or base
    is_power = len(slopes) < 2 or max(slopes) - min(slopes) < _STRAIGHT * abs(slopes[0])
    # Every distance is needed, some ratio must be off, and no one exponential may fit.
    if len(ratios) < len(_BELOW) or not off or is_power:
        return "", ""
    x = max(off, key=lambda x: abs(ratios[x] - exp(-x)))
    words = f"weights are not exponentials of s − max s: at −{x:g} it is {ratios[x]:.4g}"
    return "exp", f"{words} times what it is at 0, where e^(−{x:g}) = {exp(-x):.4g}"


def _yield_weight_ratios(session: Session) -> Iterator[tuple[float, float]]:
    """Yield how far a score lies below the largest one, and the ratio of both keys' weights."""
    for top in _TOPS:
        for x, y in zip(_BELOW, _BELOW[1:] + _BELOW[:1], strict=True):
            for below in ((0.0, x), (0.0, x, y)):
                weights = weights_of(session, top - np.array(below))
                if weights is None:
                    return
                yield from zip(below[1:], weights[1:] / weights[0], strict=True)


# -- right weights that are multiplied by wrong values: which key's weight goes to which value -------------------------
# With the identity as values, column c of the output is the weight of the value of key c. If every row consists of sums
# of right weights, with the weight of each key used once, then the weights are right and in wrong places.
_SQUARE = (Sizes(3, 4, 3, 4), Sizes(4, 4, 4, 4), Sizes(2, 5, 2, 5))
_DISTINCT = 50  # multiple of the rounding of a weight: nearer weights are not distinguished
_ROUNDINGS = 16  # that a weight of few keys passes


def other_values(session: Session, wrong: list[CaseResult]) -> tuple[str, str]:
    """Return ("values", the evidence) if the weights seen are right ones in other places; else ("", "")."""
    rng = np.random.default_rng((session.seed, 7))
    for sizes in _SQUARE if session.attention.heads == 1 and session.attention.is_softmax else ():
        result = session.maker.make(sizes, FAMILIES["normal"](rng), rng)
        values = result.get("v", np.empty(0))
        # Only square values can become the identity.
        if values.shape != 2 * values.shape[:1]:
            continue
        inputs = {**result, "v": np.eye(len(values))}
        weights = session.subject.source.attended(session, inputs)
        float_inputs = {
            name: a if a.dtype.kind in "biu" else a.astype(np.float64) for name, a in inputs.items()
        }
        right = np.asarray(trace(canonical(session.attention), float_inputs)["output"])
        slack = _ROUNDINGS * float(session.precision.roughest.u)
        # Weights that cannot be read, or that are right, show nothing.
        if (
            weights is None
            or weights.shape != right.shape
            or (np.abs(weights - right) <= _DISTINCT * slack).all()
        ):
            continue
        words = _describe_moved_weight(weights, right, slack)
        if words:
            return (
                "values",
                f"with V = I, the weights are right and multiply the wrong values: {words}",
            )
    return "", ""


def _describe_moved_weight(got: np.ndarray, right: np.ndarray, slack: float) -> str:
    """Describe the first rearranged row; "" if some row is no rearrangement, or may be several."""
    outcome = ""
    for i, (seen, weights) in enumerate(zip(got, right, strict=True)):
        keys = np.flatnonzero(weights > 0)
        places = product(range(len(weights)), repeat=len(keys))
        result = [to for to in places if _is_weight_rearrangement(seen, weights[keys], to, slack)]
        # Several rearrangements, or none, fit: no claim.
        if len(result) != 1:
            return ""
        # All weights at one place are any row in which one value counts alone.
        if len(keys) > 1 and len(set(result[0])) == 1:
            return ""
        moved = next(((j, c) for j, c in zip(keys, result[0], strict=True) if j != c), None)
        if moved is not None and not outcome:
            outcome = f"query {i + 1} gives the weight of key {moved[0] + 1} to the value of key {moved[1] + 1}"
    return outcome


def _is_weight_rearrangement(
    array: np.ndarray, weights: np.ndarray, to: tuple[int, ...], slack: float
) -> bool:
    """Return whether these weights, moved to the places ``to``, are those in ``array``."""
    placed = np.zeros_like(array)
    np.add.at(placed, list(to), weights)
    return bool((np.abs(placed - array) <= _DISTINCT * slack).all())


_NAMES = ("columns", "queries", "heads", "batch items")


def affected(judged: CaseResult, heads: bool) -> str:
    """Describe what is wrong: “head 2 only; queries from 5 on”. Empty if all is, or if no simple words fit."""
    if judged.ratios is None:
        return ""
    off = np.asarray(judged.ratios > 1)
    names = list(_NAMES) if heads else [_NAMES[0], _NAMES[1], _NAMES[3], "outer batch items"]
    parts = []
    # Outer axes first, as heads and items say more than columns.
    for place, name in list(enumerate(names))[::-1]:
        axis = off.ndim - 1 - place
        if axis >= 0 and off.shape[axis] > 1:
            values = np.asarray(off.any(axis=tuple(a for a in range(off.ndim) if a != axis)))
            words = _describe_wrong_positions(values, name)
            parts += [words] if words else []
    return "; ".join(parts)


def _describe_wrong_positions(wrong: np.ndarray, name: str) -> str:
    """Describe which are wrong, counted from 1; empty if all are."""
    at = np.flatnonzero(wrong)
    n = len(wrong)
    if len(at) in (0, n):
        return ""
    singular = name.removesuffix("s") if name != "queries" else "query"
    if len(at) == 1:
        return f"{singular} {at[0] + 1} of {n} only"
    if at[-1] - at[0] + 1 == len(at):
        if at[-1] == n - 1:
            return f"{name} from {at[0] + 1} on, of {n}"
        return (
            f"{name} up to {at[-1] + 1} of {n}"
            if at[0] == 0
            else f"{name} {at[0] + 1} to {at[-1] + 1} of {n}"
        )
    steps = set(np.diff(at).tolist())
    if len(steps) == 1:
        return f"every {steps.pop()}. of the {name} from {at[0] + 1} on"
    return f"{len(at)} of {n} {name}"


Measure = Callable[[CaseResult], np.ndarray]
_BESIDE = 2  # rows on either side


def nonfinite_rows(records: Sequence[CaseResult]) -> tuple[str, str]:
    """Return the step and a description of the rows that are not finite; ("", "") if no simple rule separates them."""
    # An output projection mixes heads, which hides the row that is lost.
    cases = [r for r in records if r.ratios is not None and traced(r).run.output_step is None]
    if not cases:
        return "", ""
    bad = [_mark_lost_rows(r) for r in cases]
    empty = [
        np.broadcast_to(~traced(r).run.allowed.any(axis=-1), b.shape)
        for r, b in zip(cases, bad, strict=True)
    ]
    lost = np.concatenate([b[~e] for b, e in zip(bad, empty, strict=True)])
    # Only rows without any key are lost: the mask's convention, not the range.
    if any((b & e).any() for b, e in zip(bad, empty, strict=True)) and not lost.any():
        return "mask", "a row without any key gives NaN or infinity"
    for words, measure in _MEASURES:
        measured = [
            np.broadcast_to(measure(r), b.shape)[~e]
            for r, b, e in zip(cases, bad, empty, strict=True)
        ]
        result = _describe_separating_number(np.concatenate(measured), lost)
        if result:
            return "max", f"the rows {words} {result} come out as NaN or infinity, and no others"
    return "", ""


def _mark_lost_rows(judged: CaseResult) -> np.ndarray:
    got = judged.outcome.output
    ratios = judged.ratios
    assert got is not None
    assert ratios is not None
    return np.asarray(((ratios > 1) & ~np.isfinite(got)).any(axis=-1))


def _describe_separating_number(x: np.ndarray, lost: np.ndarray) -> str:
    """Return words like “above some number between …” if a number separates the lost rows from the others; else ""."""
    inside = x[lost]
    outside = x[~lost]
    # With so few rows on one side, any number would separate them.
    if min(len(inside), len(outside)) < _BESIDE:
        return ""
    if inside.min() > outside.max():
        return f"above some number between {outside.max():.4g} and {inside.min():.4g}"
    if inside.max() < outside.min():
        return f"below some number between {inside.max():.4g} and {outside.min():.4g}"
    return ""


_MEASURES: tuple[tuple[str, Measure], ...] = (
    ("whose largest score is", row_maxima),
    ("whose smallest score is", row_minima),
    ("whose scores lie apart by a distance", lambda r: row_maxima(r) - row_minima(r)),
    (
        "whose largest score with forbidden keys exceeds that of the others by",
        lambda r: all_keys_maxima(r) - row_maxima(r),
    ),
)


def without_empty_rows(judged: CaseResult) -> CaseResult:
    """Return the case as if rows without any key were right."""
    got = judged.outcome.output
    empty = _mark_empty_row_outputs(judged)
    if (
        got is None
        or judged.ratios is None
        or empty is None
        or not (empty & (judged.ratios > 1)).any()
    ):
        return judged
    output = np.where(empty, traced(judged).near, got)
    ratios = np.where(empty, 0.0, judged.ratios)
    finding = judged.finding if (ratios > 1).any() else None
    part = replace(judged.parts[0], got=output, ratios=ratios)
    outcome = replace(judged.outcome, output=output)
    return replace(judged, outcome=outcome, finding=finding, parts=(part,))


def _mark_empty_row_outputs(judged: CaseResult) -> np.ndarray | None:
    """Return where the output belongs to a row without any key; None if it has another shape, if rows are mixed, or if
    such rows need not be zeros."""
    run = traced(judged).run
    got = judged.outcome.output
    if (
        got is None
        or judged.ratios is None
        or run.output_step is not None
        or run.spec.fully_masked != "zeros"
    ):
        return None
    rows = ~np.asarray(run.allowed.any(axis=-1))[..., None]
    return np.asarray(np.broadcast_to(rows, got.shape)) if rows.ndim == got.ndim else None


def what_empty_rows_give(records: Sequence[CaseResult]) -> str:
    """Describe what rows without any key give if that is wrong; else ""."""
    for judged in records:
        got = judged.outcome.output
        empty = _mark_empty_row_outputs(judged)
        if (
            got is None
            or judged.ratios is None
            or empty is None
            or not (empty & (judged.ratios > 1)).any()
        ):
            continue
        array = got[empty & (judged.ratios > 1)]
        v = centres(traced(judged).run.values[traced(judged).run.values_name])
        mean = np.broadcast_to(v.mean(axis=-2, keepdims=True), got.shape)[
            empty & (judged.ratios > 1)
        ]
        near = 1e-2 * max(float(np.abs(v).max(initial=0.0)), 1.0)
        what = "NaN or infinity" if not np.isfinite(array).all() else "other numbers than zeros"
        if np.isfinite(array).all() and (np.abs(array - mean) <= near).all():
            what = "the mean of all values"
        return f"a row without any key gives {what}"
    return ""
