"""The summary of a campaign: verdicts, faults by cause, what could not be verified, what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from symattn.campaigns.plan import Store
from symattn.document.codec import Record
from symattn.document.evidence import Verdict
from symattn.document.model import (
    Block,
    Code,
    Document,
    Heading,
    Note,
    Paragraph,
    Table,
    Text,
    headers,
)

_NAMES = ("target", "spec", "dtype", "domain")
_MAX_ROWS_IN_SHORT = 6
_MAX_CAUSES_IN_SHORT = 4
_WORST = ("fault", "error", "undecided", "no fault")


def summary(folder: Path, command: str = "") -> Document:
    """Return the document of a campaign's folder. Raises ``InputError`` if it contains no campaign."""
    store = Store(folder)
    jobs, results = store.plan(), store.results()
    result = [
        results[job["key"]] | {name: job[name] for name in _NAMES}
        for job in jobs
        if job["key"] in results
    ]
    left = len(jobs) - len(result)
    whole = (
        *_yield_verdict_table(jobs, result),
        *_yield_faults_by_cause(result),
        *_yield_failed_verifications(result),
    )
    short = (
        *_yield_verdict_table(jobs, result, _MAX_ROWS_IN_SHORT),
        *_yield_faults_by_cause(result, _MAX_CAUSES_IN_SHORT),
        *_yield_failed_verifications(result),
    )
    blocks: list[Block] = [*_yield_counts_of_grades(result)]
    details = (*_yield_table_of_times(result), *_yield_notes_of_targets(result))
    if left:
        are = "is" if left == 1 else "are"
        blocks.append(
            Note(
                (
                    f"{left} of {len(jobs)} verifications {are} not made yet; the same command goes on.",
                )
            )
        )
    others = len(results.keys() - {job["key"] for job in jobs})
    if others:
        many = (
            "a result of another plan, which is"
            if others == 1
            else f"{others} results of other plans, which are"
        )
        blocks.append(Note((f"The folder holds {many} not counted.",)))
    return Document(
        "verification",
        "campaign",
        ("Campaign of verifications",),
        (*whole, *blocks, *details),
        brief=(*short, *blocks) if details else (),
        option="-v",
        subtitle=(f"{len(result)} of {len(jobs)} made",),
        command=command,
        record={
            "planned": len(jobs),
            "results": [{k: v for k, v in record.items() if k != "checks"} for record in result],
        },
        verdict=_decide_campaign_verdict(result, left),
        reason=(_count_verdicts_in_words(result, left),),
        hints=("-v prints every cause with its command, cases and times, and notes",)
        if details
        else (),
    )


def _decide_campaign_verdict(results: Sequence[Record], left: int) -> Verdict:
    verdicts = {record["verdict"] for record in results}
    if "fault" in verdicts:
        return Verdict.FAULT
    return Verdict.NO_FAULT if verdicts == {"no fault"} and not left else Verdict.UNDECIDED


def _count_verdicts_in_words(results: Sequence[Record], left: int) -> str:
    counts = Counter(record["verdict"] for record in results)
    parts = [
        # The worst verdicts first.
        f"{counts[v]} {_PLURALS.get(v, v) if counts[v] != 1 else v}"
        for v in _WORST
        if counts[v]
    ]
    cases = sum(record.get("cases", 0) for record in results)
    return f"{', '.join(parts) or 'Nothing verified'}; {cases} cases" + (
        f"; {left} are left" if left else ""
    )


_PLURALS = {"fault": "with faults", "error": "errors"}


def _yield_verdict_table(
    jobs: Sequence[Record], results: Sequence[Record], most: int | None = None
) -> Iterator[Block]:
    """Yield a table with a row for each target, specification and domain, and a column for each dtype.

    If there are more than ``most`` rows, those with a fault come first, and the number of the others is said.
    """
    dtypes = list(dict.fromkeys(job["dtype"] for job in jobs))
    domains = len({job["domain"] for job in jobs}) > 1
    result = {
        (*_campaign_key_of_record(record), record["dtype"]): record["verdict"] for record in results
    }
    every = list(dict.fromkeys(_campaign_key_of_record(job) for job in jobs))
    # Rows with a fault are never among those left out.
    if most is not None and len(every) > most:
        every.sort(
            key=lambda place: all(result.get((*place, dtype)) == "no fault" for dtype in dtypes)
        )
    places = every[:most]
    columns = headers("target", "specification", *["domain"] * domains, *dtypes)
    rows: list[tuple[Text, ...]] = []
    for place in places:
        names: list[Text] = [(Code(place[0]),), (place[1],), (place[2],)]
        rows.append(
            (*names[: 2 + domains], *((result.get((*place, dtype), "–"),) for dtype in dtypes))
        )
    wrong = tuple(
        i for i, p in enumerate(places) if any(result.get((*p, d)) == "fault" for d in dtypes)
    )
    yield Table(columns, tuple(rows), shaded=wrong)
    if len(every) > len(places):
        yield Paragraph((f"{len(every) - len(places)} more rows are listed by -v.",))


def _campaign_key_of_record(record: Record) -> tuple[str, str, str]:
    return record["target"], record["spec"], record["domain"]


def _yield_faults_by_cause(results: Sequence[Record], most: int | None = None) -> Iterator[Block]:
    """Yield each cause once, with how often it occurs and how to reproduce it; or ``most`` of them, and one command."""
    groups: dict[tuple[str, str, str], list[tuple[Record, Record]]] = {}
    for record in results:
        for fault in record.get("faults", ()):
            # A fault that no known mistake explains is grouped by its message.
            words = (fault["cause"] or fault["message"]) + (
                f" [{fault['code']}]" if fault.get("code") else ""
            )
            key = (record["target"], fault["step"], words)
            groups.setdefault(key, []).append((record, fault))
    if groups:
        yield Heading(("Faults",))
        columns = headers("target", "step", "cause", ">times")
        rows = tuple(
            ((Code(t),), (s,), (words,), (str(len(all_)),))
            for (t, s, words), all_ in groups.items()
        )
        yield Table(columns, rows[:most])
        if most is not None and len(rows) > most:
            yield Paragraph((f"{len(rows) - most} more causes are listed by -v.",))
        # One command is enough where the table is short.
        for (target, step, _), ((record, fault), *_rest) in [*groups.items()][
            : None if most is None else 1
        ]:
            case = f" --case {fault['case']}" if fault.get("case") else ""
            command = f"{record['command']}{case}"
            yield Paragraph((f"{step} of ", Code(target), ": ", Code(command)))


def _yield_failed_verifications(results: Sequence[Record]) -> Iterator[Block]:
    wrong = [record for record in results if record["verdict"] == "error"]
    if wrong:
        yield Heading(("What could not be verified",))
        columns = headers("target", "specification", "dtype", "why")
        yield Table(
            columns,
            tuple(
                ((Code(r["target"]),), (r["spec"],), (r["dtype"],), (r["error"],)) for r in wrong
            ),
        )


def _yield_counts_of_grades(results: Sequence[Record]) -> Iterator[Block]:
    """Yield the grades of the verdicts, and how many verifications have each."""
    counts = Counter(record["grade"] for record in results if "grade" in record)
    if counts:
        yield Paragraph(
            (f"Grades: {', '.join(f'{count} {grade}' for grade, count in counts.items())}.",)
        )


def _yield_table_of_times(results: Sequence[Record]) -> Iterator[Block]:
    """Yield what each verification tried, in which steps it would have noticed a mistake, and how long it took."""
    if results:
        yield Heading(("Cases and times",))
        domains = len({record["domain"] for record in results}) > 1
        names = ("target", "specification", *("domain",) * domains, "dtype", "verdict")
        yield Table(
            headers(*names, "power", ">cases", ">seconds"),
            tuple(_make_row_of_times(record, domains) for record in results),
        )
        total = sum(record.get("seconds", 0.0) for record in results)
        yield Paragraph((f"All of them took {total:.1f} s, one after another.",))


def _make_row_of_times(record: Record, domains: bool) -> tuple[Text, ...]:
    names = (record["spec"], *(record["domain"],) * domains, record["dtype"], record["verdict"])
    seconds = f"{record['seconds']:.1f}" if "seconds" in record else "–"
    cases = str(record.get("cases", "–"))
    shares = [power["share"] for power in record.get("power", ())]
    detections = sum(isinstance(share, float) and share < 1 for share in shares)
    # in so many a mistake would have been detected
    power = f"{detections} of {len(shares)} steps" if shares else "–"
    cells = ((words,) for words in (*names, power, cases, seconds))
    return ((Code(record["target"]),), *cells)


def _yield_notes_of_targets(results: Sequence[Record]) -> Iterator[Block]:
    """Yield each note once, with its target, or with the number of verifications that have it."""
    places: dict[str, list[str]] = {}
    for record in results:
        for note in record.get("notes", ()):
            places.setdefault(note, []).append(record["target"])
    for words, targets in places.items():
        one = len(set(targets)) == 1
        # A note that several targets have is printed once.
        yield Note(
            (Code(targets[0]), f": {words}")
            if one
            else (f"{words} ({len(targets)} verifications)",)
        )
