"""One part of a layer against its definition: its error as a fraction of the bound, and which mistake fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.enclosure import Enclosure
from symattn.arrays.formats import Format
from symattn.arrays.precision import Contract, Precision
from symattn.arrays.rounding.bounds import growth, up
from symattn.attention.projections import project
from symattn.bounds.called_target import Inputs, Outcome
from symattn.bounds.case_result import OF_VALUES, Case, CaseResult, shares
from symattn.bounds.judge import holds, judge, union
from symattn.bounds.mistake import Mistake
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import SymattnError
from symattn.models.auditing import call_judge
from symattn.models.auditing.setting import Floats
from symattn.verification.codes import code_of
from symattn.verification.definitions.definition_judge import expected, explains, legal
from symattn.verification.definitions.definition_subject import Definition

State = Literal["pass", "wrong", "cannot tell"]


@dataclass(frozen=True)
class PartFinding:
    """The finding of one part, by its name in ``Block``, such as ``mlp_norm``.

    ``ratio`` is the largest error as a fraction of the bound; ``wrong`` says that no rounding explains it. ``cause`` is
    the one known mistake that does, or words that none does; ``reason`` says why the part could not be judged; ``open``
    lists mistakes that also fit the result, within rounding.
    """

    part: str
    ratio: float = 0.0
    wrong: bool = False
    cause: str = ""
    reason: str = ""
    open: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """``cannot tell`` is never a pass."""
        return "wrong" if self.wrong else "cannot tell" if self.reason else "pass"

    @property
    def code(self) -> str:
        """The code of the cause; "" without one."""
        return code_of(self.cause)

    RECORD = "part, state, ratio, cause, code, reason, not_excluded = open"


@dataclass(frozen=True)
class LayerFinding:
    """The finding of one pass through a layer: the layer's name, its parts, or the reason why there are none."""

    layer: str
    parts: tuple[PartFinding, ...] = ()
    reason: str = ""

    @property
    def state(self) -> State:
        """Return the state of the worst part; an open part leaves the layer open."""
        states = {p.state for p in self.parts}
        if "wrong" in states:
            return "wrong"
        return "cannot tell" if self.reason or not states or "cannot tell" in states else "pass"

    @property
    def ratio(self) -> float:
        """The largest ratio of its parts."""
        return max((p.ratio for p in self.parts), default=float("nan"))

    @property
    def verdict(self) -> str:
        """The verdict in words: every wrong part, else what is open."""
        if wrong := _by_words((p.part, p.cause) for p in self.parts if p.wrong):
            return f"CERTIFIED WRONG: {wrong}"
        if self.state == "pass":
            # A right result may fit mistakes as well.
            open_ = [f"{p.part}: {words}" for p in self.parts for words in p.open]
            return f"pass (cannot exclude: {'; '.join(open_)})" if open_ else "pass"
        result = (
            self.reason
            or _by_words((p.part, p.reason) for p in self.parts if p.reason)
            or "no part ran"
        )
        return f"CANNOT TELL: {result}"

    @property
    def code(self) -> str:
        """The codes of the wrong parts, each once; "" without one."""
        codes = (p.code for p in self.parts if p.wrong and p.code)
        return ", ".join(dict.fromkeys(codes))

    RECORD = "layer, state, verdict, code, parts"


def _by_words(findings: Iterable[tuple[str, str]]) -> str:
    """Return what is said of the parts, once for all of which the same is said."""
    parts: dict[str, list[str]] = {}
    for part, words in findings:
        parts.setdefault(words, []).append(part)
    return "; ".join(f"{', '.join(every)}: {words}" for words, every in parts.items())


# Words in place of a cause, where no known mistake gives the result.
NONE = "no known mistake explains it"


@one_blas_thread
def judged(
    part: str,
    subject: Definition,
    inputs: Inputs,
    got: Sequence[Floats],
    dtype: str,
    contracts: Sequence[Contract],
    search: bool,
    near: Sequence[Mistake] = (),
    extra: Floats | None = None,
    of_mistakes: bool = False,
    narrower: bool = True,
) -> PartFinding:
    """Judge ``got``, one array for each output, for ``inputs``; it is legal if one of the contracts allows it.

    ``fused`` is that of a kernel, ``eager`` that of successive operators, which store each result in ``dtype``. Without
    ``search``, no cause is searched for. ``near`` are mistakes that change little: the finding lists those that also
    fit a right result. ``extra`` is a further error that the first output may have, if a kernel promises less;
    ``of_mistakes`` says that only kernels of known mistakes do. ``narrower``: a narrower format may be a cause;
    it is none where its bound allows almost anything, as before a norm of small numbers.
    """
    # No bound covers NaN and infinity, and their cause lies in an earlier part.
    if not all(np.isfinite(a).all() for a in inputs.values()):
        return PartFinding(part, reason="NaN or infinity reaches it")
    case = Case("audit", part, inputs)
    arithmetics = [Precision.of(dtype, contract) for contract in contracts]
    outcome = Outcome(output=got[0], dtype="float64", shape=got[0].shape, others=tuple(got[1:]))
    try:
        result = [judge(legal(subject, p, inputs), p, case, outcome) for p in arithmetics]
    except SymattnError as error:
        return PartFinding(part, reason=str(error))
    promised = None if of_mistakes else extra
    # One contract is enough, also with the further error that a kernel may have.
    right = [
        r
        for r in result
        if r.finding not in OF_VALUES
        or (promised is not None and _is_legal_when_widened(r, promised))
    ]
    if not right:
        first = result[0] if extra is None else _widen_first_output(result[0], extra)
        words = "its cause was not searched for"
        if search:
            words = _find_cause_of_part(subject, arithmetics[0], first)
            if not words and narrower:
                words = _describe_narrower_format(subject, dtype, contracts, case, outcome)
            words = words or NONE
        return PartFinding(part, min(r.worst for r in result), True, words)
    # Where no bound decides, a result is neither right nor wrong.
    if any(r.undecided or not r.decisive for r in right):
        return PartFinding(part, reason="the bound says nothing about these numbers")
    # Small mistakes may hide within the loosest legal bound.
    loosest = max(right, key=lambda r: float(r.parts[0].expected.allowed.max(initial=0.0)))
    fits = tuple(
        m.cause for m in near if _is_explained_by_mistake(subject, arithmetics[-1], loosest, m)
    )
    return PartFinding(part, min(1.0, *(r.worst for r in right)), open=fits)


def _widen_first_output(case_result: CaseResult, extra: Floats) -> CaseResult:
    """Return the result with so much further error allowed for the first output."""
    first, *others = case_result.parts
    expected = first.expected.widened(first.expected.allowed + extra)
    return replace(case_result, parts=(replace(first, expected=expected), *others))


def _is_legal_when_widened(case_result: CaseResult, extra: Floats) -> bool:
    """Return whether a wrong result becomes legal with so much further error."""
    if case_result.finding != "values":
        return False
    wide = _widen_first_output(case_result, extra)
    return holds([part.expected for part in wide.parts], wide)


def _is_explained_by_mistake(
    subject: Definition, precision: Precision, right: CaseResult, mistake: Mistake
) -> bool:
    """Return whether a mistake may give the result, with errors like those of any way of the definition."""
    allowed = expected(subject, right.case.inputs, precision, [mistake.run])
    return holds(union([allowed, [part.expected for part in right.parts]]), right)


def _find_cause_of_part(subject: Definition, precision: Precision, case_result: CaseResult) -> str:
    """The one known mistake that gives the result, in words; if several fit, those; "" if none does."""
    if case_result.finding == "shape":
        return "it has another shape"
    fitting: list[str] = []
    for mistake in subject.mistakes:
        if explains(subject, precision, case_result, mistake) and mistake.cause not in fitting:
            fitting.append(mistake.cause)
    return call_judge.one_of(fitting)


def _describe_narrower_format(
    subject: Definition, dtype: str, contracts: Sequence[Contract], case: Case, outcome: Outcome
) -> str:
    """Say that the result is one of arithmetic in a narrower format, with its widest contract, or ""."""
    # The formats narrower than the arrays, in their order.
    for name in call_judge.NARROWER.get(dtype, ()):
        precision = Precision.of(name, contracts[0])
        if (
            judge(legal(subject, precision, case.inputs), precision, case, outcome).finding
            not in OF_VALUES
        ):
            return f"it is computed in {name}"
    return ""


# -- linear layers -----------------------------------------------------------------------------------------------------
# A linear layer by itself: X W + b, every column of some rows, within a bound in float64.
#
# For a row x and a column w of n entries let s = Σ |x_l w_l| + |b|. Sums in any order, in float32 or wider, products
# fused or not, give x·w + b within g(n + 1) s and the η of 2(n + 1) underflows, where g(k) = (1 + u)^k − 1 for
# float32's u (Higham 2002, §3.1 and §4.2; the bias is one more term). The result is rounded to the format once, or
# twice if the product is stored before the bias is added. A number that may be half a step or more beyond the format's
# largest may be stored as infinity of its sign. If s may be so large in the format of the sums, infinities of both
# signs may meet on the way, and infinity and NaN are not judged. The exact value is enclosed by running ``project`` on
# ``Enclosure``.

_OVERFLOW = "its sums may overflow on the way, where nothing is said of infinity and NaN"


def judged_linear(
    part: str, got: Floats, x: Floats, w: Floats, b: Floats | None, dtype: str
) -> PartFinding:
    """Judge ``got`` (r, m) as x W + b for x (r, n), W (n, m)."""
    factors = (x, w, *([] if b is None else [b]))
    if not all(np.isfinite(a).all() for a in factors):
        return PartFinding(part, reason="NaN or infinity reaches it")
    if got.shape != (len(x), w.shape[-1]):
        return PartFinding(
            part,
            np.inf,
            True,
            f"it gives {got.shape[-1]} columns, and its matrix has {w.shape[-1]}",
        )
    vague = ~np.isfinite(got) & (
        size_of(x, w, b) >= _least_overflowing_number(_choose_sum_format(Format(dtype)))
    )
    ratio = _measure_linear_error_ratio(got, x, w, b, dtype, vague)
    if ratio <= 1:
        return PartFinding(part, ratio, reason=_OVERFLOW if vague.any() else "")
    others: dict[str, tuple[Floats, Floats | None]] = {"the matrix is transposed": (w.T, b)}
    if b is not None:
        others |= {"the bias is left out": (w, None), "the bias is added twice": (w, 2 * b)}
    # A matrix that is not square cannot be replaced by its transpose.
    near = {
        words: v.shape == w.shape and _measure_linear_error_ratio(got, x, v, c, dtype) <= 1
        for words, (v, c) in others.items()
    }
    fitting = [words for words, fits in near.items() if fits]
    if not fitting:
        for name in call_judge.NARROWER.get(dtype, ()):
            tokens, matrix, bias = (
                _cast_floats_to_format(x, name),
                _cast_floats_to_format(w, name),
                None if b is None else _cast_floats_to_format(b, name),
            )
            factors = (tokens, matrix, *([] if bias is None else [bias]))
            finite = all(np.isfinite(a).all() for a in factors)
            if finite and _measure_linear_error_ratio(got, tokens, matrix, bias, name) <= 1:
                fitting.append(f"it is computed in {name}")
    return PartFinding(part, ratio, True, call_judge.one_of(fitting) or NONE)


def _cast_floats_to_format(a: Floats, name: str) -> Floats:
    return np.asarray(Format(name).cast(a), dtype=np.float64)


def _measure_linear_error_ratio(
    got: Floats,
    x: Floats,
    w: Floats,
    b: Floats | None,
    dtype: str,
    vague: NDArray[np.bool_] | None = None,
) -> float:
    """The largest error as a fraction of the bound: above 1, no legal implementation gives ``got``.

    Numbers that are ``vague`` are skipped.
    """
    exact = _enclose_linear_output(x, w, b)
    allowed = allowed_of(x, w, b, dtype)
    ratios = shares(got, exact.mid, exact.rad, allowed)[0]
    for bias in (
        b,
        None,
    ):  # infinity is legal where the result, or the product before the bias, may overflow so
        exact = _enclose_linear_output(x, w, bias)
        furthest_exact = np.sign(got) * exact.mid + exact.rad
        furthest = furthest_exact + allowed_of(x, w, bias, dtype)
        ratios = np.where(
            np.isinf(got) & (up(furthest) >= _least_overflowing_number(Format(dtype))), 0.0, ratios
        )
    return float(ratios[~vague].max(initial=0.0) if vague is not None else ratios.max(initial=0.0))


def _enclose_linear_output(x: Floats, w: Floats, b: Floats | None) -> Any:
    bias = None if b is None else Enclosure.lift(b)
    return project(Enclosure.lift(x), Enclosure.lift(w), bias)


def _least_overflowing_number(f: Format) -> float:
    """Return the least number that is rounded to infinity: half a step above the largest; ∞ for float64."""
    # Beyond the largest number of float64 nothing can be computed here.
    return np.inf if f.largest > 2**1023 else float((f.largest + f.power_beyond) / 2)


def _choose_sum_format(f: Format) -> Format:
    """Return the format of the sums."""
    return f if f.u < Format("float32").u else Format("float32")


def size_of(x: Floats, w: Floats, b: Floats | None) -> Floats:
    """Return s, with the error of these sums in float64 added."""
    product = np.abs(x) @ np.abs(w)
    size = product if b is None else product + np.abs(b)
    # A sum of n + 1 terms in float64 is too small by at most (n + 1) 2⁻⁵² of itself.
    return np.asarray(size * (1 + (x.shape[-1] + 1) * 2.0**-52))


def allowed_of(x: Floats, w: Floats, b: Floats | None, dtype: str) -> Floats:
    """Return how far any legal implementation may be from x W + b, rounded up."""
    f = Format(dtype)
    wide, n = _choose_sum_format(f), x.shape[-1] + 1
    size = size_of(x, w, b)
    grown = growth(wide, n)
    underflows = 2 * n * float(wide.eta) * (1 + grown)
    summed = grown * size + underflows
    # Sums in the format itself are not rounded once more.
    if f == wide:
        return np.asarray(up(summed))
    bias = 0.0 if b is None else np.abs(b)
    exact: Any = project(x, w, b)
    whole = np.abs(exact) + n * 2.0**-52 * size + summed
    before = whole + bias if b is not None else 0.0
    # The result is stored once after the bias, and perhaps once before it.
    u, eta = float(f.u), float(f.eta)
    stores = 1 if b is None else 2
    stored = u * (whole + before * (1 + u)) + stores * eta
    return np.asarray(up((summed + stored) * (1 + u)))
