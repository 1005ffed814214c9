"""Have Coq judge lemmas: which its kernel accepts, and on which axioms they rest.

All go to one process of the toplevel, which continues after an error: loading the real numbers takes most of the time
of a single lemma. A lemma counts if its name then proves the statement, which is repeated for this check.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from subprocess import PIPE, STDOUT
from tempfile import TemporaryDirectory
from threading import Thread
from typing import IO

from symattn.document.errors import InputError
from symattn.proof.checker_reading import Record
from symattn.proof.coq import coq_printing, theory
from symattn.proof.coq.inferences import lemmas
from symattn.proof.coq.writing import HEAD, Lemma

_CONSTANT = re.compile(r"^Expands to: Constant Top\.([\w']+)$")
_CLOSED = "Closed under the global context"
LIBRARY = frozenset(
    {
        "ClassicalDedekindReals.sig_forall_dec",
        "ClassicalDedekindReals.sig_not_dec",
        "FunctionalExtensionality.functional_extensionality_dep",
        "Classical_Prop.classic",
    }
)
"""The axioms of Coq's own library on which its real numbers and the theory rest; there must be no others."""
_TOGETHER, _END = "_everything", "_everything_told"  # names of theorems begin with a letter
_LONGEST = 200  # characters of what Coq said last
SECONDS = 300
"""The limit of processor time for one process of Coq. If it is exceeded, the lemmas are tried again in two halves."""


@dataclass(frozen=True)
class CoqJudgement:
    """The names of accepted lemmas, the axioms on which they rest, and why Coq ended early at others."""

    accepted: frozenset[str] = frozenset()
    axioms: tuple[str, ...] = ()
    stopped: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def joined(every: Sequence[CoqJudgement]) -> CoqJudgement:
        """Combine several judgements into one."""
        return CoqJudgement(
            frozenset().union(*[j.accepted for j in every]),
            tuple(sorted({a for j in every for a in j.axioms})),
            {name: why for j in every for name, why in j.stopped.items()},
        )


def judged(every: Sequence[Lemma], jobs: int = 1) -> CoqJudgement:
    """Return Coq's verdicts on the lemmas, whose names must differ. Raises InputError if Coq is not installed."""
    folder = theory.compiled()
    requests = [x for x in every if x.text]
    if len({x.name for x in requests}) < len(requests):
        raise InputError(
            "two equations have the same name in Coq; hint: ask for these theorems one by one"
        )
    # deal out the long ones evenly
    dealt = sorted(requests, key=lambda x: len(x.text), reverse=True)
    heaps = [dealt[n::jobs] for n in range(jobs) if dealt[n::jobs]]
    with ThreadPoolExecutor(max(1, len(heaps))) as pool:
        return CoqJudgement.joined(
            list(pool.map(lambda heap: _judge_lemmas_by_halves(folder, heap), heaps))
        )


def settled(
    theorems: Sequence[tuple[str, Sequence[Record]]], jobs: int = 1
) -> tuple[list[list[Lemma]], CoqJudgement]:
    """Return the lemmas of theorems (name, certificates) and the verdicts; retry refused ones with more hints."""
    requests = [lemmas(*theorem) for theorem in theorems]
    first = judged([x for each in requests for x in each], jobs)
    # A lemma without text has a reason, and was not judged.
    refused = {x.name for each in requests for x in each if x.text} - first.accepted
    refused_theorems = [
        theorem
        for theorem, each in zip(theorems, requests, strict=True)
        if any(x.name in refused for x in each if x.text)
    ]
    # Hints that regroup sums are long, so that only refused lemmas get them.
    again = {
        x.name: x
        for theorem in refused_theorems
        for x in lemmas(*theorem, regroup=True)
        if x.name in refused
    }
    second = judged(list(again.values()), jobs)
    result = [
        [again[x.name] if x.name in second.accepted else x for x in each] for each in requests
    ]
    return result, CoqJudgement.joined((first, second))


def _judge_lemmas_by_halves(folder: Path, every: Sequence[Lemma]) -> CoqJudgement:
    """Return the toplevel's verdict on each lemma; a failed proof is aborted before the next one.

    If Coq ends early, none of its output counts: each half is tried again. The soft limit on processor time is set, so
    that SIGXCPU reports that it is exceeded, and no other clock is needed.
    """
    # -q skips the user's own start-up file.
    ask = ["coqtop", "-q", "-color", "no", "-Q", str(folder), "Symattn"]
    if os.name == "posix":
        # No core dumps, and a soft limit of processor time that only Coq feels.
        ask = ["sh", "-c", 'ulimit -S -c 0 && ulimit -S -t "$0" && exec "$@"', str(SECONDS), *ask]
    try:
        return _run_coq(ask, every)
    except _Ended as why:
        # One lemma alone has ended Coq.
        if len(every) == 1:
            return CoqJudgement(stopped={every[0].name: str(why)})
        half = len(every) // 2
        return CoqJudgement.joined(
            [_judge_lemmas_by_halves(folder, part) for part in (every[:half], every[half:])]
        )


class _Ended(Exception):
    """Raised with the reason why Coq ended before its output was complete."""

    def __init__(self, code: int, lines: Sequence[str]) -> None:
        if os.name == "posix" and code == -signal.SIGXCPU:
            super().__init__(f"Coq was stopped after {SECONDS} s of processor time")
            return
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        last = next((line for line in reversed(lines) if line), "")
        reason = ": " if last else ""
        super().__init__(f"Coq ended early, by {how}{reason}{last[:_LONGEST]}")


def _run_coq(ask: Sequence[str], every: Sequence[Lemma]) -> CoqJudgement:
    """Return the verdicts of one process."""
    with (
        TemporaryDirectory() as here,
        subprocess.Popen(
            ask, cwd=here, stdin=PIPE, stdout=PIPE, stderr=STDOUT, text=True, encoding="utf-8"
        ) as coq,
    ):
        outcome = _ask_coq_toplevel(
            # A failed proof is aborted, so that it stays open for no later command.
            coq,
            HEAD + "".join(f"{x.text}Abort All.\n{_restate_coq_lemma(x)}" for x in every),
        )
        result = {m[1] for line in outcome if (m := _CONSTANT.match(line))}
        # A lemma that was accepted is known under its second name.
        accepted = sorted(
            x.name for x in every if coq_printing.auxiliary(x.name, "again") in result
        )
        if not accepted:
            return CoqJudgement()
        # One definition that uses all of them: Coq prints the axioms of it once.
        together = f"Definition {_TOGETHER} := ({', '.join([*accepted, 'tt'])}).\n"
        below = _ask_coq_toplevel(coq, f"{together}Print Assumptions {_TOGETHER}.\n")
    axioms = listed(below)
    return CoqJudgement() if axioms is None else CoqJudgement(frozenset(accepted), axioms)


def _restate_coq_lemma(x: Lemma) -> str:
    """Return commands that check that the name of a theorem proves its statement, whatever it refers to."""
    again = coq_printing.auxiliary(x.name, "again")
    return (
        f"Lemma {again} :{x.proposition} Proof. exact {x.name}. Qed.\nAbort All.\nAbout {again}.\n"
    )


def listed(lines: Sequence[str]) -> tuple[str, ...] | None:
    """Return the axioms that ``Print Assumptions`` lists in these lines; None if the lines have no such list.

    Each axiom begins a line; its type follows after a colon or on indented lines. Any other unindented line, such as
    "f is assumed to be total", is an assumption too, and is returned as printed.
    """
    if "Axioms:" not in lines:
        return () if _CLOSED in lines else None
    below = takewhile(
        lambda line: not line.startswith("Toplevel input"), lines[lines.index("Axioms:") + 1 :]
    )
    return tuple(line.partition(" :")[0] for line in below if line and not line[0].isspace())


def _ask_coq_toplevel(coq: subprocess.Popen[str], text: str) -> list[str]:
    """Return the lines that Coq prints for a text, without its prompts."""
    assert coq.stdin
    assert coq.stdout
    # A thread writes, as both pipes would fill up otherwise.
    writing = Thread(target=_write_to_closing_pipe, args=(coq.stdin, f"{text}Check {_END}.\n"))
    writing.start()
    lines = []
    for line in coq.stdout:
        lines.append(re.sub(r"^([\w']+ < )*", "", line).rstrip())
        # The last command fails on purpose, so that its error marks the end.
        if _END in line and "not found" in line:
            break
    else:
        writing.join()
        raise _Ended(coq.wait(), lines)
    writing.join()
    return lines


def _write_to_closing_pipe(pipe: IO[str], text: str) -> None:
    """Write the text to a pipe that may close early; the unread rest is dropped, or closing would write it again."""
    try:
        pipe.write(text)
        pipe.flush()
    except BrokenPipeError:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
