"""A report as a document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, Decimal
from itertools import islice
from typing import TYPE_CHECKING

from symattn.document import model as md
from symattn.document.codec import record
from symattn.document.evidence import Evidence, Grade
from symattn.document.notation import Node, Root, equals, name
from symattn.document.text import assignment, equal_sizes
from symattn.verification.repair import NOT_MEANT, Repair

if TYPE_CHECKING:
    from symattn.verification.report import Arithmetic, Counterexample, Fault, Report

_MAX_FAULTS_IN_SHORT = 3  # the first with its evidence
# Sizes within words, with a root, a reciprocal or a number.
_SIZE = re.compile(r"(1/)?(√)?\b([nd])_(q|k|v|model)\b(?: = (\d+)\b)?")
# The groups of inputs in words, for the table of details.
_ABOUT = {
    "shapes": "small integers in many shapes",
    "worked": "worked examples with exact weights",
    "scale": "two keys at several widths",
    "softmax": "equal, far and offset scores",
    "structure": "roles of inputs, order of keys, weights by V = I",
    "mask": "masked keys, and no others",
    "behaviour": "repeated calls, other lengths, views, shared arrays",
    "batches": "leading axes",
    "memory": "other numbers in the memory of earlier calls",
    "ranges": "scores at every magnitude, products that cancel",
    "orders": "scores that rise and fall, equal values",
    "far below 0": "scores below numbers that stand for −∞",
    "distant keys": "many keys far below two others",
    "hidden keys": "masks that hide whole tiles",
    "masked tiles": "offset scores where a tile is hidden",
    "windows": "lengths around those of windows and blocks",
    "positions": "far positions, caches of several lengths",
    "caps": "scores below, near and above the cap",
    "given numbers": "given scales, slopes, sinks, biases up to 100",
    "norms": "tiny, huge and nearly equal entries",
    "widths": "d_k and d_v at and around 64 and 128",
    "tiles": "lengths at and around multiples of 16, 32, 64",
    "long": "lengths of 128 and more",
    "together": "many queries, many keys and wide heads at once",
    "multiples": "1, 2, 3, 5 times the shortest length",
    "accuracy": "random inputs, and a search for larger errors",
    "sizes": "numbers of several kinds in many sizes",
    "more tokens": "more tokens than common tiles have",
    "wider rows": "more columns than common tiles have",
    "numbers": "every kind of number in some sizes",
    "again": "repeated calls, arrays with gaps, transposed views",
    "empty parts": "parts without keys, empty and full caches",
    "empty documents": "documents without tokens",
    "random": "random sizes and kinds of numbers",
    "bits": "lengths of 256, each output bit for bit",
    "semantics": "the code itself, modulo pairs of primes",
}


def document(report: Report, show_output: bool = False) -> md.Document:
    """Return a report as a document: the verdict, the evidence, and as details how it was reached."""
    limits: list[md.Block] = [md.Note((words,)) for words in report.reservations]
    opening = [*limits, *describe_repairs(report.repairs)]
    closing = [
        *_describe_missing_evidence(report),
        # The grounds come after what is missing, since that limits them.
        *_describe_requested_sizes(report),
        _describe_grounds_of_verdict(report),
        *_describe_function_printout(report, show_output),
    ]
    # An unknown arithmetic is a detail; a known one stands in the brief report too.
    arithmetic = [_describe_matched_arithmetic(report.arithmetic)] if report.arithmetic else []
    known = arithmetic if report.arithmetic and report.arithmetic.known else []
    return md.Document(
        "verification",
        "verification",
        ("Verification of ", md.Code(report.target)),
        (
            *opening,
            *_describe_all_faults(report),
            *arithmetic,
            *closing,
            *_describe_verdict_details(report),
        ),
        subtitle=(report.precision.partition(",")[0], f" · seed {report.seed}"),
        command=report.command,
        parameters={"target": report.target, "precision": report.precision, "seed": report.seed},
        record=record(report),
        verdict=report.verdict,
        hints=_suggest_commands_after_report(report),
        reason=_explain_verdict(report),
        brief=(*opening, *_first_fault(report), *known, *closing),
        option="-v",
    )


def _describe_function_printout(report: Report, show_output: bool) -> list[md.Block]:
    """Return what the function printed, if that is wanted and it printed anything."""
    printed = report.stdout.rstrip() if show_output else ""
    return [md.Heading(("What it printed",)), md.Listing(printed)] if printed else []


def describe_repairs(repairs: Sequence[Repair]) -> Iterator[md.Block]:
    """Yield each repair in a sentence, and what is not claimed; or the edit that repairs most, which is no fix."""
    whole = [repair for repair in repairs if repair.is_whole]
    for number, repair in enumerate(whole):
        words = repair.words_of_both if repair.parts else repair.words
        yield md.Paragraph((f"{'Or' if number else 'Fix:'} {words}{':' if repair.parts else '.'}",))
        if repair.parts:
            yield md.Items(tuple((f"line {part.line}: {part.change}",) for part in repair.parts))
    if whole:
        yield md.Note((NOT_MEANT,))
    for repair in repairs[:1] if not whole else ():
        yield md.Paragraph((f"The nearest edit, no fix: {repair.words}.",))


def _explain_verdict(report: Report) -> md.Text:
    """Return why the verdict is what it is: the first fault, what is missing, or what would have been detected."""
    # The first fault stands for all of them in one line.
    if report.faults:
        first, others = report.faults[0], len(report.faults) - 1
        otherwise = f"{report.otherwise}; " if report.otherwise else ""
        code = f" [{first.code}]" if first.code else ""
        more = f", and {others} more" if others else ""
        return (*typeset(f"{otherwise}{first.message}"), *_at_sizes(first), f"{code}{more}")
    if report.missing:
        return typeset(report.missing[0][:1].lower() + report.missing[0][1:])
    proofs = "".join(f"; {words}" for words in _yield_successful_proofs(report))
    return typeset(
        f"{_count_cases(report)}, {_format_report_grade(report)}{proofs}{_detectable_error(report)}"
    )


def _at_sizes(fault: Fault) -> md.Text:
    """Return the sizes of a counterexample in brackets, each as a formula, in which no line is broken."""
    sizes = fault.counterexample.sizes if fault.counterexample else {}
    parts = [
        part for letter, n in sizes.items() for part in (", ", equals(name(*letter.split("_")), n))
    ]
    return (" (", *parts[1:], ")") if parts else ()


def _yield_successful_proofs(report: Report) -> Iterator[str]:
    """Yield for each proof that succeeded its grade, and the sizes that it is for."""
    for check in report.checks:
        if check.unit == "proof" and not check.faults:
            yield f"{check.grade.value} {'for' if check.grade is Grade.PROVED else 'at'} {check.name}"


def _detectable_error(report: Report) -> str:
    """Return the relative error that the cases would have shown in any legal arithmetic, in words; "" if unknown."""
    # Exact outputs show their share of the mistake; rounded ones show twice that share (``StepPower``).
    percents = {p.step: 2 * p.share for p in report.power if p.mistake == p.ONE_PERCENT and p.seen}
    # The output is proportional to a factor of the output, so that a share of twice as large is a share of 100 %.
    percents |= {
        p.step: 200 * p.share
        for p in report.power
        if (p.step, p.mistake) == ("output", p.TWICE) and p.seen
    }
    if not percents:
        return ""
    step = min(percents, key=percents.__getitem__)
    return (
        f"; {step} {round_up_to_one_digit(percents[step]):g} % too large would have been detected"
    )


def round_up_to_one_digit(x: float) -> float:
    """Return the smallest number of one significant digit that is at least ``x`` > 0."""
    unit = Decimal(1).scaleb(Decimal(x).adjusted())
    return float((Decimal(x) / unit).to_integral_value(ROUND_CEILING) * unit)


def _format_report_grade(report: Report) -> str:
    return str(Evidence(report.grade.grade, "", report.grade.epsilon))


def _describe_all_faults(report: Report) -> Iterator[md.Block]:
    """Yield the evidence of each fault, and the command that shows it again."""
    several = len(report.faults) > 1
    for number, fault in enumerate(report.faults, 1):
        if several:
            yield md.Heading((f"Fault {number}: ", fault.step))
            yield md.Paragraph(typeset(sentence(fault.coded_message)))
        yield from _describe_fault_reproduction(report, fault)


def _first_fault(report: Report) -> Iterator[md.Block]:
    """Yield the evidence of the fault that the verdict names, and each other one in a sentence."""
    for fault in report.faults[:1]:
        yield from _describe_fault_reproduction(report, fault)
    for number, fault in enumerate(report.faults[1:_MAX_FAULTS_IN_SHORT], 2):
        yield md.Paragraph(
            (f"Fault {number}, {fault.step}: ", *typeset(sentence(fault.coded_message)))
        )


def _describe_fault_reproduction(report: Report, fault: Fault) -> Iterator[md.Block]:
    """Yield the evidence of a fault, and the command that shows it again."""
    yield from _describe_fault_evidence(fault)
    if fault.case and report.command and "--case" not in report.command:
        yield md.Paragraph(("Reproduce:",))
        yield md.Listing(f"{report.command} --case {fault.case}")  # on one line, to be copied


def _describe_missing_evidence(report: Report) -> Iterator[md.Block]:
    """Yield what a verdict lacks, apart from the first, which is the reason of the verdict."""
    for words in report.missing[1:]:
        yield md.Note((sentence(words),))


def _describe_requested_sizes(report: Report) -> Iterator[md.Block]:
    """Yield whether mistakes of the requested sizes would show."""
    for one in report.sought:
        if one.seen:
            yield md.Paragraph(
                (f"{one.words[:1].upper()}{one.words[1:]} would be detected {one.how}.",)
            )


def _describe_verdict_details(report: Report) -> Iterator[md.Block]:
    """Yield how the verdict was reached: groups of inputs, sensitivity, and notes."""
    yield _tabulate_group_checks(report)
    if report.power:
        yield _tabulate_step_power(report)
    for note in _list_unlimiting_notes(report):
        yield md.Note((note,))


def _list_unlimiting_notes(report: Report) -> list[str]:
    """Return the notes that do not limit the verdict."""
    return [note for note in report.notes if note not in report.reservations]


def _suggest_commands_after_report(report: Report) -> tuple[str, ...]:
    """Return what to try next."""
    notes = len(_list_unlimiting_notes(report))
    counted = f" and {notes} note{'s' * (notes != 1)}" if notes else ""
    every = "every fault, " if len(report.faults) > 1 else ""
    details = f"-v prints {every}the groups of inputs, the sensitivity of each step{counted}"
    why = ("symattn derive scaling",) if any(f.step == "scale" for f in report.faults) else ()
    shown = dict.fromkeys(code.code for fault in report.faults for code in fault.codes)
    return (*why, *(f"symattn faults show {code}" for code in islice(shown, 1)), details)


def _tabulate_group_checks(report: Report) -> md.Table:
    rows = []
    for c in report.checks:
        worst = "not finite" if c.worst_ratio == float("inf") else f"{c.worst_ratio:.2g}"
        worst = worst if c.epsilon is None else ""  # residues have none
        about = _ABOUT.get(c.name, "")
        faults = str(c.faults or "")
        rows.append(((c.name,), (about,), (str(c.cases),), (faults,), (worst,), (c.words,)))
    return md.Table(
        md.headers("group", "what", ">cases", ">wrong", ">error / allowed", "grade"), tuple(rows)
    )


def _tabulate_step_power(report: Report) -> md.Table:
    rows = []
    for p in report.power:
        share = f"{100 * p.share:.2g} %" if p.share > 1e-6 else "< 0.0001 %"
        rows.append(((p.step,), typeset(p.mistake), (share if p.seen else "not seen",)))
    return md.Table(
        md.headers("step", "mistake in it", ">smallest part of it detected"), tuple(rows)
    )


def _describe_matched_arithmetic(arithmetic: Arithmetic) -> md.Paragraph:
    share = f"{100 * arithmetic.share:.2f} %"
    others = f"{100 * arithmetic.next:.0f} %"
    words = (
        f"{arithmetic.words} ({share} of {arithmetic.outputs} outputs, bit for bit; next {others})"
    )
    return md.Paragraph((f"Arithmetic: {words}.",))


def _describe_fault_evidence(fault: Fault) -> Iterator[md.Block]:
    if fault.counterexample is not None:
        yield from _describe_counterexample(fault.counterexample)
    elif fault.ground:
        yield md.Note((fault.ground,))
    if fault.scales:
        yield md.Paragraph(("The scale observed in the weights, log(p₂/p₁)/(s₂ − s₁):",))
        # Candidates are those of the first scale: each scale has the same ones.
        rows: dict[str, list[float]] = {"observed": [s.observed for s in fault.scales]}
        for words in fault.scales[0].candidates:
            rows[words] = [s.candidates[words] for s in fault.scales]
        columns = (
            md.Column(typeset("d_k"), "left"),
            # One column for each d_k: only a pattern over widths tells 1/√d_k from a number.
            *(md.Column((str(s.d_k),)) for s in fault.scales),
        )
        cells = tuple(
            (typeset(words), *((f"{x:.4f}",) for x in line)) for words, line in rows.items()
        )
        yield md.Table(columns, cells, shaded=(0,))


# ε, dQ, q, w_o, x2; not the article.
_FORMULA = re.compile(r"[^\x00-\x7f]|[a-z][A-Z]|(?!a )[a-z](?![A-Za-z])|\w*[_\d]")


def sentence(words: str) -> str:
    """Return a sentence with a capital, unless it begins with a formula: ε, dQ, q and w_o stay as they are."""
    return (words if _FORMULA.match(words) else words[:1].upper() + words[1:]) + "."


def _describe_counterexample(example: Counterexample) -> Iterator[md.Block]:
    sizes = ", ".join(f"{letter} = {size}" for letter, size in example.sizes.items())
    yield md.Paragraph(
        typeset(
            f"The smallest input found that shows it ({sizes}):"
            if sizes
            else "An input that shows it:"
        )
    )
    yield md.Listing(
        "\n".join(
            assignment(letter, _abbreviate_array_text(values))
            for letter, values in example.inputs.items()
        )
    )
    if example.error is not None:
        yield md.Paragraph((f"It gives: {example.error}.",))
        return
    if example.steps:
        columns = md.headers("step", ">expected", ">with this mistake")
        rows = tuple(((step,), (right,), (wrong,)) for step, right, wrong in example.steps)
        # The first step that differs is shaded: later ones differ because of it.
        differs = next(
            (i for i, (_, right, wrong) in enumerate(example.steps) if right != wrong), None
        )
        yield md.Table(columns, rows, shaded=() if differs is None else (differs,))
    if example.expected is not None:
        # Readers count from 1.
        index = ", ".join(str(i + 1) for i in example.index)
        yield md.Paragraph(
            (
                f"Output {index}: expected {example.expected:.9g}",
                *_format_exact_expected_value(example),
                f", got {example.got:.9g}; the bound on rounding is {example.allowed:.2g}.",
            )
        )


def _format_exact_expected_value(example: Counterexample) -> md.Text:
    """Return `` = e^…`` if the expected value is irrational."""
    if example.exact is None or example.exact.rational() is not None:
        return ()
    return (" = ", example.exact.notation())


def typeset(words: str) -> md.Text:
    """Typeset sizes, their roots and reciprocals within words as formulas."""
    parts: list[md.Inline] = []
    end = 0
    # A match is a size, perhaps under a root or a reciprocal, perhaps with its value.
    for match in _SIZE.finditer(words):
        one, root, base, index, length = match.groups()
        size: Node = name(base, index)
        size = Root(size) if root else size
        size = 1 / size if one else size
        parts += [words[end : match.start()], size if length is None else equals(size, int(length))]
        end = match.end()
    return tuple(part for part in (*parts, words[end:]) if part != "")


def _abbreviate_array_text(values: object) -> str:
    text = str(values).replace(".0,", ",").replace(".0]", "]")
    return text if len(text) <= 400 else text[:397] + "..."


def _describe_grounds_of_verdict(report: Report) -> md.Paragraph:
    fields = ", ".join(f"{name}={value}" for name, value in report.fields.items())
    what = f"Attention({fields}). " if fields else ""
    known = "An error counts as a fault if no implementation in this arithmetic can make it"
    calls, sizes = _count_cases(report), _describe_largest_tried_sizes(report)
    tried = f"Domain: {report.domain}. Tried: {calls}{sizes}. Grade: {report.grade}."
    tried += "".join(f" {sentence(words)}" for words in _yield_successful_proofs(report))
    return md.Paragraph((f"{what}{known}: {report.precision}. ", *typeset(tried)))


def _describe_largest_tried_sizes(report: Report) -> str:
    """Return the largest sizes that were tried together, as the end of a sentence."""
    sizes = report.largest
    floats, residues = sizes.floats, sizes.residues
    result = f", the largest {equal_sizes(floats)} at once" if floats else ""
    if residues:
        unbounded = "" if sizes.bounded else ", without a bound"
        stages = f"{sizes.stages} of {sizes.planned} stages"
        result += f"; on residues {equal_sizes(residues)} at once ({stages}{unbounded})"
    return result


def _count_cases(report: Report) -> str:
    """Return the number of judged calls; if there are none, that of pairs of primes on which semantics was tested."""
    pairs = sum(check.cases for check in report.checks if check.counts_primes)
    if pairs and not report.cases:
        return f"{pairs} pair{'s' * (pairs != 1)} of primes"
    return f"{report.cases} call{'s' * (report.cases != 1)}"
