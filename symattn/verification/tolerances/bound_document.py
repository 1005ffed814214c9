"""A bound as a document: the tolerance, its parts by step and common tolerances; as details why it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any

from symattn.attention.spec import Attention
from symattn.bounds.formula import formula
from symattn.bounds.sharp.limits import HYPOTHESIS
from symattn.document import model as md
from symattn.document.codec import Record, called, changed_fields
from symattn.document.evidence import Evidence, Grade, both
from symattn.document.notation import Decimal, Fence, Node, name, relation
from symattn.document.tex import tex
from symattn.verification.tolerances import weighing
from symattn.verification.tolerances.asked import Beforehand, ForInputs, Sharp

_HYPOTHESIS = f"{HYPOTHESIS}, and the scale is exact"
_NOTHING = "the bound says nothing: rounding alone may change every digit of the output"


def digits(x: float, of: int = 3) -> str:
    """Return a bound rounded up to ``of`` digits."""
    if not isfinite(x):
        return "none"
    written = f"{x:.{of - 1}e}"
    # The format may have rounded down: add one in the last digit.
    if float(written) < x:
        mantissa, exponent = written.split("e")
        written = f"{float(mantissa) + 10.0 ** (1 - of):.{of - 1}f}e{exponent}"
    return f"{float(written):.{of}g}"


def beforehand(
    bound: Beforehand, weighed: Sequence[weighing.Weighed], command: str, sharp: Sharp | None = None
) -> md.Document:
    """Return the document of a bound for sizes."""
    value, s = bound.value, bound.sizes
    sizes = f"n = {s.n_k} · d_k = {s.d_k} · {bound.precision.name}"
    tolerances = [
        {
            "name": w.tolerance.name,
            "rtol": w.tolerance.rtol,
            "atol": w.tolerance.atol,
            "inputs": w.family,
            "accepted": [m.cause for m in w.accepted],
            "tried": w.tried,
            "needed": w.needed,
        }
        for w in weighed
    ]
    short = (
        *_describe_bound_beforehand(bound, sharp),
        *_tabulate_common_tolerances(weighed, bound),
    )
    return md.Document(
        "bound",
        "bound",
        ("Tolerance: ", md.Code(_format_assertion_tolerance(value))),
        (*short, *_explain_bound_formula(bound)),
        brief=short,
        option="-v",
        subtitle=(sizes,),
        command=command,
        parameters={
            "n": s.n_k,
            "dk": s.d_k,
            "dtype": bound.precision.name,
            "contract": bound.precision.contract,
            "fields": changed_fields(bound.spec),
        },
        record={
            "formula": tex(formula()[0]),
            "value": value if isfinite(value) else None,
            "parts": _list_bound_part_records(bound.bound.parts),
            "tolerances": tolerances,
            **_of_sharp(sharp),
        },
        hints=_suggest_commands_after_bound(value, bool(weighed)),
    )


def _suggest_commands_after_bound(value: float, is_compared: bool) -> tuple[str, ...]:
    """Return what to try next: another contract if there is no bound, else why the bound holds."""
    if not isfinite(value):
        return ("symattn bound --contract fused   scores and sums are kept in float32",)
    compare = () if is_compared else ("--compare prints what common tolerances accept",)
    return ("-v prints the formula and why it holds", *compare)


def _describe_bound_beforehand(bound: Beforehand, sharp: Sharp | None) -> Iterator[md.Block]:
    assumed = _list_bound_assumptions(bound)
    yield assumed
    yield _tabulate_bound_steps(bound.bound.parts, bound.bound.value)
    yield _make_tolerance_result(
        bound.value, (), _make_argued_evidence("by the rule that -v prints", assumed)
    )
    yield from _describe_sharp_tolerance(sharp, Evidence(Grade.SAMPLED, "the inputs are drawn"))


def _explain_bound_formula(bound: Beforehand) -> Iterator[md.Block]:
    """Yield the formula of the bound, its derivation and its letters."""
    yield md.Heading(("Why it holds",))
    evidence = Evidence(Grade.UNDECIDED, "in this arithmetic")
    if isfinite(bound.value):
        evidence = _make_argued_evidence("by the printed rule", _list_bound_assumptions(bound))
    yield md.Result("Formula of the bound", bound.bound.formula, (evidence,))
    yield md.Items(tuple((line,) for line in bound.bound.derivation))
    columns = md.headers("letter", "what it is", ">value")
    yield md.Table(
        columns, tuple(((t,), (w,), (f"{x:.4g}",)) for t, w, x in bound.bound.quantities)
    )
    yield md.Caveat(
        (
            "The bound is for the worst inputs and the worst roundings: typical errors are far smaller. For inputs that"
            " are known, --inputs gives the bound of each element, which is smaller too.",
        )
    )


def _list_bound_assumptions(bound: Beforehand) -> md.Assumptions:
    reach = bound.reach
    q = name("q", "i")
    k = name("k", "j")
    v = name("v", "jc")
    limits: md.Text = (
        relation(Fence("norm", q), "≤", _format_bound_number(reach.q)),
        ", ",
        relation(Fence("norm", k), "≤", _format_bound_number(reach.k)),
        ", ",
        relation(Fence("abs", v), "≤", _format_bound_number(reach.v)),
        f": {reach.words}; so scores are at most ",
        _format_bound_number(bound.largest_score),
    )
    return md.Assumptions(
        (
            md.Assumption("A1", limits),
            _make_arithmetic_assumption(bound.spec, bound.precision, "A2"),
        )
    )


def _make_arithmetic_assumption(spec: Attention, precision: Any, label: str) -> md.Assumption:
    what = f"{called(spec)}; " if changed_fields(spec) else ""
    order = (
        "in any order"
        if precision.height is None
        else f"with at most {precision.height} additions to a term"
    )
    return md.Assumption(
        label,
        (
            f"{what}{precision.words}; {precision.contract} contract; sums {order}; exponentials within "
            f"{precision.exp_ulps:g} ulps (H1 to H7 of the bound)",
        ),
    )


def _make_argued_evidence(how: str, assumed: md.Assumptions) -> Evidence:
    """Return the grade of a bound, under the document's assumptions."""
    return Evidence(Grade.ARGUED, f"{how}, under {both([a.label for a in assumed.items])}")


def _format_bound_number(x: float) -> Node:
    return Decimal(digits(x))


def _tabulate_bound_steps(results: Mapping[str, float], value: float) -> md.Table:
    columns = md.headers("step", ">bound", ">share")
    ordered = sorted(results.items(), key=lambda item: -item[1])
    rows = tuple(
        ((step,), (digits(x),), (f"{x / value:.0%}" if isfinite(value) and value else "",))
        for step, x in ordered
    )
    return md.Table(columns, rows, shaded=(0,) if rows else ())


def _make_tolerance_result(
    value: float, formulas: tuple[Node, ...], evidence: Evidence
) -> md.Result:
    if not isfinite(value):
        return md.Result(
            "Tolerance", formulas, (Evidence(Grade.UNDECIDED, "in this arithmetic"),), (_NOTHING,)
        )
    return md.Result(
        "Tolerance", formulas, (evidence,), (md.Code(_format_assertion_tolerance(value)),)
    )


def _format_assertion_tolerance(value: float) -> str:
    """Return the tolerance as arguments of an assertion."""
    return f"atol={digits(value)}, rtol=0" if isfinite(value) else "none"


def _list_bound_part_records(results: Mapping[str, float]) -> list[Record]:
    return [
        {"step": step, "value": x} for step, x in sorted(results.items(), key=lambda item: -item[1])
    ]


def for_inputs(
    bound: ForInputs, path: str, command: str, sharp: Sharp | None = None
) -> md.Document:
    """Return the document of a bound for given inputs."""
    atol, rtol = bound.needed
    shape = " × ".join(map(str, bound.bound.allowed.shape))
    return md.Document(
        "bound",
        "bound",
        ("Tolerance for these inputs: ", md.Code(_format_assertion_tolerance(atol))),
        tuple(_for_inputs(bound, sharp)),
        subtitle=(f"{bound.precision.name} · output {shape}",),
        command=command,
        parameters={
            "input": path,
            "dtype": bound.precision.name,
            "contract": bound.precision.contract,
            "fields": changed_fields(bound.spec),
        },
        record={
            "formula": tex(formula()[0]),
            "value": atol if isfinite(atol) else None,
            "parts": _list_bound_part_records(bound.bound.steps()),
            "rtol": rtol if isfinite(rtol) else None,
            "allowed": _convert_bound_to_lists(bound.bound.allowed),
            **_of_sharp(sharp),
        },
    )


def _convert_bound_to_lists(a: Any) -> Any:
    return [_convert_bound_to_lists(x) for x in a] if a.ndim else float(a) if isfinite(a) else None


def _describe_sharp_tolerance(sharp: Sharp | None, evidence: Evidence) -> Iterator[md.Block]:
    """Yield the sharp tolerance, its probability and its hypothesis."""
    if sharp is None:
        return
    mean = sharp.mean()
    # The mean has no tolerance if one element has none.
    of_mean = (
        f"; {digits(mean)} for the mean of all {sharp.elements.size}" if isfinite(mean) else ""
    )
    each = f" for each element (median {digits(sharp.median)}){of_mean}"
    yield md.Result(
        "Rounding to nearest",
        (),
        (evidence,),
        (md.Code(f"atol={digits(sharp.largest)}, rtol=0"), each),
    )
    yield md.Note((f"Except with probability {sharp.alpha:g}, {sharp.words}, if {_HYPOTHESIS}.",))
    # The filter allows exponentials more than the worst case does.
    if sharp.worse:
        several = f"{sharp.worse} of {sharp.elements.size} elements"
        why = "the sharp tolerance allows exponentials an error of 2⁻¹³, the worst case one of a few ulps of float32"
        yield md.Note((f"For {several} the worst case allows less and is used instead: {why}.",))


def _of_sharp(sharp: Sharp | None) -> Record:
    if sharp is None:
        return {}
    mean = sharp.mean()
    return {
        "sharp": {
            "alpha": sharp.alpha,
            "value": sharp.largest,
            "median": sharp.median,
            "inputs": sharp.words,
            "mean": mean if isfinite(mean) else None,
            "hypothesis": _HYPOTHESIS,
        }
    }


def _for_inputs(inputs: ForInputs, sharp: Sharp | None) -> Iterator[md.Block]:
    atol, rtol = inputs.needed
    assumed = md.Assumptions((_make_arithmetic_assumption(inputs.spec, inputs.precision, "A1"),))
    yield assumed
    if inputs.bound.parts:
        yield _tabulate_bound_steps(inputs.bound.steps(), atol)
        yield md.Paragraph(
            (
                f"The shares are those of the element with the largest bound, {list(inputs.bound.where)}.",
            )
        )
    yield _make_tolerance_result(
        atol, (), _make_argued_evidence("by the printed rule, for these inputs", assumed)
    )
    yield from _describe_sharp_tolerance(
        sharp, Evidence(Grade.ARGUED, "for these inputs, under the hypothesis below")
    )
    # Eight columns fit a page; the rest is in the JSON.
    allowed = inputs.bound.allowed
    rows = allowed.reshape(-1, allowed.shape[-1])
    shown = rows[:8, :8]
    columns = md.headers(">row", *(f">{c}" for c in range(shown.shape[1])))
    cells = (tuple((digits(x),) for x in row) for row in shown)
    yield md.Table(columns, tuple(((str(i),), *row) for i, row in enumerate(cells)))
    if shown.size < rows.size:
        yield md.Note((f"The first rows and columns; all {allowed.size} elements: -f json.",))
    # A relative tolerance is infinite if an expected entry is 0 there.
    if isfinite(rtol) and isfinite(atol):
        yield md.Note((f"In place of atol, rtol={digits(rtol)} would do for these inputs.",))


def _tabulate_common_tolerances(
    weighed: Sequence[weighing.Weighed], bound: Beforehand
) -> Iterator[md.Block]:
    """Yield what common tolerances accept and reject."""
    if not weighed:
        return
    yield md.Heading(("Common tolerances",))
    columns = md.headers(
        "tolerance", ">rtol", ">atol", "inputs", ">accepted mistakes", ">correct code needs"
    )
    yield md.Table(columns, tuple(_format_weighed_tolerance(w) for w in weighed))
    refused = [w for w in weighed if w.refuses]
    accepting = max(weighed, key=lambda w: len(w.accepted))
    if accepting.accepted:
        few = "; ".join(m.cause for m in accepting.accepted[:4])
        yield md.Note(
            (f"{accepting.tolerance.name} on {accepting.family} accepts, among others: {few}.",)
        )
    if refused:
        named = ", ".join(dict.fromkeys(w.tolerance.name for w in refused))
        yield md.Note(
            (f"Correct code in this arithmetic fails on some of these inputs with: {named}.",)
        )
    yield md.Paragraph(
        (
            f"Sampled, with {weighing.ROWS} queries and {min(bound.sizes.n_k, weighing.KEYS)} keys."
            " Accepted mistakes: the known mistakes that the tolerance accepts, of those whose"
            " error on these inputs exceeds what any implementation in this arithmetic can make."
            " Correct code needs: the error of the definition run in this arithmetic,"
            " as a fraction of the tolerance (above 1 it fails).",
        )
    )


def _format_weighed_tolerance(w: weighing.Weighed) -> tuple[md.Text, ...]:
    return (
        (w.tolerance.name,),
        (f"{w.tolerance.rtol:g}",),
        (f"{w.tolerance.atol:g}",),
        (w.family,),
        (f"{len(w.accepted)} of {w.tried}",),
        (f"{w.needed:.2g}" if w.needed < inf else "NaN",),
    )


def table(bound: Sequence[Beforehand], command: str) -> md.Document:
    """Return a document with one line for each combination of sizes and arithmetic."""
    columns = md.headers(">n", ">d_k", "dtype", "contract", ">atol", "most of it from")
    rows = tuple(_format_bound_comparison_row(a) for a in bound)
    reach = md.Assumption("A1", (f"{bound[0].reach.words}",))
    assumed = md.Assumptions(
        (reach, md.Assumption("A2", ("the arithmetic of the line (H1 to H7 of the bound)",)))
    )
    unbounded = Evidence(Grade.UNDECIDED, "where there is none")
    argued = _make_argued_evidence("by the printed rule", assumed)
    grades = {argued if isfinite(a.value) else unbounded for a in bound}
    blocks: tuple[md.Block, ...] = (
        assumed,
        md.Table(columns, rows),
        md.Result("Tolerances", formula(), tuple(sorted(grades, key=str)), ("atol, with rtol=0",)),
    )
    entries = [
        {
            "n": a.sizes.n_k,
            "dk": a.sizes.d_k,
            "dtype": a.precision.name,
            "contract": a.precision.contract,
            "value": a.value if isfinite(a.value) else None,
            "parts": _list_bound_part_records(a.bound.parts),
        }
        for a in bound
    ]
    return md.Document(
        "bound", "bound", ("Largest rounding error of correct attention",), blocks, command=command,
        record={"formula": tex(formula()[0]), "bounds": entries},
    )  # fmt: skip


def _format_bound_comparison_row(a: Beforehand) -> tuple[md.Text, ...]:
    result = a.bound.parts
    most = (
        max(result, key=lambda step: result[step])
        if result and isfinite(a.value)
        else "it says nothing"
    )
    return (
        (str(a.sizes.n_k),),
        (str(a.sizes.d_k),),
        (a.precision.name,),
        (a.precision.contract,),
        (digits(a.value),),
        (most,),
    )
