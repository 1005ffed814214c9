"""The arena: which wrong kernels do the rules in use accept, and which right ones reject, beside ``symattn.judge``?

    OMP_NUM_THREADS=1 python -m benchmarks.arena --out arena.jsonl --page

Each entrant (``arena_entrants``) is called with a benchmark's own inputs, uniform and normal, for three seeds, and
judged by each rule (``arena_rules``) and by symattn's bound at these inputs alone. Then ``symattn.judge`` judges it
with inputs of its own, and each rule judges the same calls.

A run that was ended goes on where it stopped, if ``--out`` names its file. ``--entrants 340 --seed 0`` draws so many,
of each class its share; ``--part 2/5`` runs the second of five parts; ``--page`` writes docs/arena.md, with all that
the file has.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from benchmarks.arena_entrants import FIGURE, FORMATS, FORMS, RECURRENCES, SEEDS, Entrant, entrants
from benchmarks.arena_rules import RULES, UNITS, accepted, definition_of, outputs_of
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs, Memory, Outcome
from symattn.bounds.case_result import UNFIT, Case
from symattn.bounds.judge import judge as judge_call
from symattn.document.errors import SymattnError
from symattn.programs.child import TargetOptions
from symattn.programs.judging.judging import CandidateJudge
from symattn.programs.verifying import Options
from tests.faults.table import written

PAGE = Path(__file__).parents[1] / "docs" / "arena.md"
SEED = 54  # of the inputs of the judge, so that a run can be repeated
BOUND = "symattn's bound"
_PASSED = ("PASS", "PASS_WITH_LIMITS")
Record = dict[str, Any]


# -- One entrant -------------------------------------------------------------------------------------------------------
def tried(entrant: Entrant) -> Record:
    """Return what every contestant says of an entrant."""
    record: Record = {"name": entrant.name, "kind": entrant.kind, "right": entrant.is_right}
    record |= {"precision": entrant.precision, "tolerated": entrant.tolerated}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return record | _at_own_inputs(entrant) | _by_the_judge(entrant)


def _at_own_inputs(entrant: Entrant) -> Record:
    """Return for each form of a benchmark's inputs which rules accept every call, and the processor time of all."""
    began, result = process_time(), {}
    given = {form: [entrant.inputs(form, seed) for seed in SEEDS] for form in FORMS}
    for form in FORMS:
        said = Accepted()
        for inputs in given[form]:
            said.add(entrant, inputs, outputs_of(entrant, inputs))
        result[form] = said.rules
    spent = process_time() - began
    for form in FORMS:
        result[form][BOUND] = _is_within_bound(
            entrant, given[form][:1]
        )  # one call, as ``judge --reference``
    return {"forms": result, "seconds of rules": spent}


def _is_within_bound(entrant: Entrant, given: list[Inputs]) -> bool | None:
    """Return whether symattn's bound accepts the outputs for a benchmark's inputs, as ``judge`` asks it for references.

    None if it cannot judge them, or if the definition is none of an ``Attention``.
    """
    if not isinstance(entrant.spec, Attention):
        return None
    with _judge_of(entrant, Accepted()) as judge:
        how, spec = judge.how, entrant.spec
        try:
            with how.opened(judge.candidate, spec) as runner:
                session = how.session(runner, spec)
                for inputs in given:
                    case = Case("benchmark", "the benchmark's own inputs", inputs)
                    legal, outcome = session.legal(inputs), session.call(case)
                    if judge_call(legal, how.precision, case, outcome, True).finding is not None:
                        return False
        except UNFIT:
            return None
    return True


@dataclass
class Accepted:
    """Which rules accepted all calls so far; None for each if no call could be compared."""

    rules: dict[str, bool | None] = field(default_factory=lambda: dict.fromkeys(RULES))
    seconds: float = 0.0

    def add(self, entrant: Entrant, given: dict[str, Any], outputs: list[Any] | None) -> None:
        """Judge one call by every rule; a call for which there is no definition in floats is left out."""
        began = process_time()
        try:
            exact = definition_of(entrant, given, "float64")
            eager = definition_of(entrant, given, entrant.precision)
        except SymattnError:
            self.seconds += process_time() - began
            return
        said = accepted(outputs, exact, eager, UNITS[entrant.precision])
        self.rules = {name: said[name] and self.rules[name] is not False for name in RULES}
        self.seconds += process_time() - began


def _by_the_judge(entrant: Entrant) -> Record:
    """Return the judgement of symattn, and which rules accept the outputs of the same calls."""
    seen = Accepted()
    with _judge_of(entrant, seen) as judge:
        began = process_time()
        try:
            judgement = judge.judgement()
            status, reason, limits = judgement.status.value, judgement.reason, len(judgement.limits)
            child = judgement.seconds.candidate
        except SymattnError as error:
            status, reason, limits, child = "UNDECIDED", str(error), 0, 0.0
    seconds = process_time() - began - seen.seconds + child
    return {
        "status": status,
        "reason": reason[:300],
        "limits": limits,
        "seconds": seconds,
        "calls": seen.rules,
    }


@contextmanager
def _judge_of(entrant: Entrant, seen: Accepted) -> Iterator[CandidateJudge]:
    """Yield the judge of an entrant, who is watched by the rules; a hostile one is judged as a file."""
    contract, domain = entrant.contract, entrant.entry.domain
    told: Record = {
        "dtype": entrant.precision,
        "contract": contract,
        "domain": domain,
        "verdict_alone": True,
    }
    if not entrant.text:
        yield CandidateJudge(
            entrant.entry.program, entrant.spec, _watched(Options, entrant, seen)(**told), SEED
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.py"
        path.write_text(entrant.text, encoding="utf-8")
        how = _watched(TargetOptions, entrant, seen)(secret=(), **told)
        yield CandidateJudge(f"{path}:f", entrant.spec, how, SEED)


def _watched(options: type[Options], entrant: Entrant, seen: Accepted) -> Callable[..., Options]:
    """Return options by which every call that the judge makes is judged by the rules as well."""

    class Watched(options):  # type: ignore[misc, valid-type]
        def opened(self, function: Any, spec: Any) -> Any:
            runner = super().opened(function, spec)
            opened = getattr(runner, "thing", runner)  # what contextlib.closing holds
            run = opened.run

            def watched(inputs: Inputs, memory: Memory = "contiguous") -> Outcome:
                outcome: Outcome = run(inputs, memory)
                outputs = [a for a in (outcome.output, *outcome.others) if a is not None]
                seen.add(entrant, dict(inputs), outputs if outcome.error is None else None)
                return outcome

            opened.run = watched
            return runner

    return Watched


# -- All entrants, in parts that can be resumed ------------------------------------------------------------------------
def records(chosen: Iterable[Entrant], out: Path | None) -> Iterator[Record]:
    """Yield a record for each entrant; those that the file has are read from it."""
    known = _known(out)
    for entrant in chosen:
        if entrant.name not in known:
            record = tried(entrant)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
            print(_line(record), file=sys.stderr, flush=True)
            known[entrant.name] = record
        yield known[entrant.name]


def drawn(every: Iterable[Entrant], number: int, seed: int) -> list[Entrant]:
    """Return so many entrants drawn by a seed, of each class the same share of its right and of its wrong ones.

    They are ordered so that those of a run that was ended are drawn in the same way.
    """
    groups: dict[tuple[str, bool], list[Entrant]] = {}
    for entrant in every:
        groups.setdefault((entrant.kind, entrant.is_right), []).append(entrant)
    rng, placed = random.Random(seed), []
    for group in groups.values():
        shuffled = rng.sample(group, len(group))
        placed += [(place / len(group), entrant) for place, entrant in enumerate(shuffled)]
    placed.sort(key=lambda pair: pair[0])  # the first of each class have place 0
    return [entrant for _, entrant in placed[:number]]


def _known(out: Path | None) -> dict[str, Record]:
    """Return the records of a file; a last line that an ended run left unfinished is dropped from the file."""
    if out is None or not out.exists():
        return {}
    text = out.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        out.write_text(whole, encoding="utf-8")
    return {record["name"]: record for record in map(json.loads, whole.splitlines())}


def is_wrongly_judged(record: Record) -> bool:
    """Whether symattn accepts a wrong entrant, or rejects a right one; an undecided one is neither."""
    if record["right"]:
        return record["status"] in ("FAIL", "TAMPERED")
    return record["status"] in _PASSED and not (record["tolerated"] and record["limits"])


def _line(record: Record) -> str:
    words = "WRONG: " * is_wrongly_judged(record) + f"{record['status']} {record['reason'][:60]}"
    return f"{record['seconds']:6.2f} s  {'right' if record['right'] else 'wrong'}  {record['name']:48}  {words}"


# -- Tables ------------------------------------------------------------------------------------------------------------
JUDGES = "the judge's"  # inputs, beside the two forms of a benchmark's
SOURCES = (*FORMS, JUDGES)


def said_of(record: Record, rule: str, source: str) -> bool | None:
    """Return whether a rule accepts an entrant at the inputs of a source; None if it could not be asked."""
    said: bool | None = (
        record["calls"].get(rule) if source == JUDGES else record["forms"][source].get(rule)
    )
    return said


def table(every: list[Record]) -> Iterator[str]:
    """Yield the lines of the table: for each contestant and source, wrong ones accepted and right ones rejected."""
    wrong, right = ([r for r in every if r["right"] is kind] for kind in (False, True))
    heads = [f"{source}: wrong accepted | right rejected" for source in SOURCES]
    yield f"| contestant | {' | '.join(heads)} |"
    yield "|---" * (1 + 2 * len(SOURCES)) + "|"
    for rule in (*RULES, BOUND):
        cells = [cell for source in SOURCES for cell in _cells(wrong, right, rule, source)]
        if rule == BOUND:
            cells[-2:] = [str(sum(map(is_wrongly_judged, of))) for of in (wrong, right)]
        yield f"| {'`symattn judge`' if rule == BOUND else rule} | {' | '.join(cells)} |"


def _cells(wrong: list[Record], right: list[Record], rule: str, source: str) -> list[str]:
    """Return how many wrong ones are accepted and right ones rejected, and of how many if some were not asked."""
    result = []
    for of, counted in ((wrong, True), (right, False)):
        said = [answer for r in of if (answer := said_of(r, rule, source)) is not None]
        result.append(f"{said.count(counted)}{'' if len(said) == len(of) else f' of {len(said)}'}")
    return result


def totals(every: list[Record]) -> Iterator[str]:
    """Yield the lines of the table of statuses and seconds."""
    yield "| entrants | number | undecided | processor seconds: median | worst | of the rules: median | worst |"
    yield "|---|---|---|---|---|---|---|"
    for words, kind in (("right", True), ("wrong", False)):
        of = [r for r in every if r["right"] is kind]
        if of:
            undecided = sum(r["status"] == "UNDECIDED" for r in of)
            spent = [[r[key] for r in of] for key in ("seconds", "seconds of rules")]
            cells = [f"{f(numbers):.1f}" for numbers in spent for f in (median, max)]
            yield f"| {words} | {len(of)} | {undecided} | {' | '.join(cells)} |"


SHOWN = ("allclose, 10⁻²", "allclose, 10⁻⁴", "twice eager + rounding", "99 % of elements")


def classes(every: list[Record]) -> Iterator[str]:
    """Yield the lines of the table by class, with some of the rules at a benchmark's normal inputs."""
    names = " | ".join((*SHOWN, "`symattn judge`"))
    yield f"| class | wrong | accepted by {names} | right | rejected by {names} |"
    yield "|---" * (5 + 2 * len(SHOWN)) + "|"
    for kind in dict.fromkeys(r["kind"] for r in every):
        cells: list[object] = [kind]
        for is_right in (False, True):
            of = [r for r in every if r["kind"] == kind and r["right"] is is_right]
            cells += [
                len(of),
                *(sum(said_of(r, rule, "normal") is not is_right for r in of) for rule in SHOWN),
            ]
            cells.append(sum(map(is_wrongly_judged, of)))
        yield f"| {' | '.join(map(str, cells))} |"


def figure(every: list[Record]) -> Iterator[str]:
    """Yield the lines of the table of mistakes that public graders were seen to accept."""
    known = {r["name"]: r for r in every}
    heads = [f"at 10⁻², {form}" for form in FORMS] + [
        f"`symattn judge`, {name}" for name in FORMATS
    ]
    yield f"| kernel | {' | '.join(heads)} |"
    yield "|---" * (1 + len(heads)) + "|"
    for program in (*FIGURE, *RECURRENCES):
        of = [known.get(f"figure.{program.__name__}.{name}") for name in FORMATS]
        cells = [
            _in_formats([said_of(r, "allclose, 10⁻²", form) if r else None for r in of])
            for form in FORMS
        ]
        cells += [r["status"] if r else "–" for r in of]
        yield f"| {program.__name__.replace('_', ' ')} | {' | '.join(cells)} |"


def _in_formats(said: list[bool | None]) -> str:
    words = ["accepted" if accepts else "rejected" if accepts is False else "–" for accepts in said]
    return words[0] if len(set(words)) == 1 else ", ".join(words)


def wrongly_judged(every: list[Record]) -> Iterator[str]:
    """Yield a line for each entrant that symattn judges wrongly or leaves undecided."""
    for record in every:
        if is_wrongly_judged(record) or record["status"] == "UNDECIDED":
            kind = "right" if record["right"] else "wrong"
            yield f"- `{record['name']}` ({kind}): {record['status']}, {record['reason']}"


def tables(every: list[Record]) -> dict[str, list[str]]:
    """Return the parts of the page by the names of their marks."""
    parts = {
        "table": table,
        "seconds": totals,
        "classes": classes,
        "figure": figure,
        "wrongly": wrongly_judged,
    }
    return {name: list(lines(every)) or ["None."] for name, lines in parts.items()}


def main(arguments: list[str] | None = None) -> int:
    """Run the arena, print its tables or write the page; 1 if symattn judges an entrant wrongly."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arena", description=__doc__)
    parser.add_argument("--out", type=Path, help="a file of JSON lines to go on with")
    parser.add_argument(
        "--part", default="1/1", metavar="K/N", help="every N-th entrant, from the K-th"
    )
    parser.add_argument("--entrants", type=int, metavar="N", help="N of them, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0, help="of the drawing (default: 0)")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names such as 'figure.*'")
    parser.add_argument(
        "--known", action="store_true", help="only the entrants that the file of --out has"
    )
    parser.add_argument("--page", action="store_true", help="write the tables into docs/arena.md")
    told = parser.parse_args(arguments)
    part, parts = map(int, told.part.split("/"))
    chosen = [e for e in entrants() if fnmatchcase(e.name, told.only)]
    if told.entrants is not None:
        if told.entrants < 1:
            parser.error(f"--entrants {told.entrants}: give a number from 1")
        chosen = drawn(chosen, told.entrants, told.seed)
    chosen = chosen[part - 1 :: parts]
    if told.known:
        chosen = [e for e in chosen if e.name in _known(told.out)]
    every = list(records(chosen, told.out))
    shown = tables(every)
    if told.page:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), shown), encoding="utf-8")
    else:
        print("\n\n".join("\n".join(lines) for lines in shown.values()))
        print(dict(Counter(r["status"] for r in every)))
    return int(any(map(is_wrongly_judged, every)))


if __name__ == "__main__":
    sys.exit(main())
