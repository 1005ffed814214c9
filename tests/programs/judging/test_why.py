"""``judge`` with ``why``: the edit that makes a candidate right, from a process that is not trusted."""

from collections import deque
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from symattn import Attention, Evidence, Grade, judge, reports
from symattn.bounds.called_target import Outcome
from symattn.bounds.inputs import Sizes
from symattn.document.errors import CannotRunHere
from symattn.programs.child import WithArraysAlone
from symattn.programs.guard import Tampered
from symattn.programs.judging.judging import CandidateJudge
from symattn.programs.repairing.apart import TrialsInChild
from symattn.programs.repairing.edit_messages import write_edits
from symattn.programs.repairing.edits import Edit
from symattn.programs.repairing.trials import Opened, Screened
from symattn.programs.verifying import Options
from symattn.verification.semantics import Difference, IdentityResult
from tests.printed import validator
from tests.programs.repairing.programs import FLASH, PLAIN, write

SCHEMA = validator("judgement")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("text", "change"),
    [
        (FLASH, "line 12 of attn.py: `acc` → `acc * a`"),
        (PLAIN.replace("-1, keepdims", "0, keepdims", 1), "line 5 of attn.py: `0` → `1`"),
        # Code that names files is never edited.
        (FLASH.replace("def attention", "open\n\n\ndef attention").replace("(q, k, v):", "(q, k, v, f=open):"), ""),
    ],
    ids=["flash", "axis", "names files"],
)
def test_the_edit_is_sought_on_request_in_the_candidates_own_process(tmp_path: Path, text: str, change: str) -> None:
    target = f"{write(tmp_path, text)}:attention"
    judgement = judge(target, examples=8, seed=1, why=True)
    SCHEMA.validate(judgement.as_dict())
    assert judgement.status is reports.Status.FAIL
    assert [r.change for r in judgement.repairs[:1]] == [change] * bool(change)
    assert ("Fix: " in str(judgement.document().text())) == bool(change)
    plain = judge(target, examples=8, seed=1)
    assert (plain.repairs, plain.as_dict()["repairs"]) == ((), [])
    assert (plain.reason, plain.counterexample) == (judgement.reason, judgement.counterexample)


_EDIT = Edit("axis", 1, 0, (reports.Replacement(3, 0, 3, 1, "a"),), "b", "a")
#: A question, and an answer that symattn's own code never gives.
FORGED: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "a file": ("open", (), Opened(b"f.py", "")),  # type: ignore[arg-type]
    "no replacement": ("edits", (1,), write_edits([replace(_EDIT, replacements=())])),
    "a replacement": ("edits", (1,), write_edits([replace(_EDIT, replacements=((3, 0, 3, 1),))])),  # type: ignore[arg-type]
    "a line before the first": (
        "edits",
        (1,),
        write_edits([replace(_EDIT, replacements=(reports.Replacement(0, 0, 3, 1, "a"),))]),
    ),
    "edits as objects": ("edits", (1,), [_EDIT]),
    "no list": ("edits", (1,), "7"),
    "no text of edits": ("edits", (1,), "[" * 100_000),
    "an edit of no list": ("screen", ([(_EDIT,)],), [Screened(1, True)]),
    "a number": ("score", ([_EDIT],), ["1"]),
    "too few": ("score", ([_EDIT],), []),
    "no pair": ("repaired", ([_EDIT],), (1,)),
    "work": ("work_done", (), "much"),
    "a number beyond floats": ("work_done", (), 10**400),
    "no number": ("score", ([_EDIT],), [float("nan")]),
    "a long text": ("edits", (1,), write_edits([replace(_EDIT, new="a " * 50_000)])),
    "a list": ("edits", (1,), write_edits([replace(_EDIT, likely=[0, 0])])),  # type: ignore[arg-type]
    "a list of later": ("edits", (1,), write_edits([replace(_EDIT, repeats_call=[0, 0])])),  # type: ignore[arg-type]
    "a field that is missing": ("edits", (1,), '[["axis", 1, 0]]'),
    "no path": ("open", (), Opened("f\0.py", "")),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_answer_ends_the_search(name: str) -> None:
    question, arguments, answer = FORGED[name]
    child: Any = SimpleNamespace(process=None, ask=lambda *_: Opened("f.py", ""))
    trials = TrialsInChild(child, None)  # type: ignore[arg-type]
    trials.open()
    child.ask = lambda asked, *_: answer if asked == "trials" or question == "open" else Opened("f.py", "")
    with pytest.raises(Tampered, match="it answers for the judge's own code"):
        getattr(trials, question)(*arguments)


_AGREES = IdentityResult(True, Evidence(Grade.TESTED, "", 1e-9), 1e-9)
_SIZES = Sizes(1 << 15, 1 << 15)
#: The same of an edited function: a question, a true answer and one of another form.
OF_EDITED: dict[str, tuple[str, Any, Any]] = {
    "outcome": ("run", Outcome(np.zeros(1), "float32", (1,)), Outcome("zeros")),  # type: ignore[arg-type]
    "grade": ("semantics", _AGREES, replace(_AGREES, epsilon=None)),
    "sizes": ("semantics", replace(_AGREES, agrees=None), replace(
        _AGREES, agrees=False, difference=Difference((0,), _SIZES, (), ""))),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_EDITED)
def test_a_forged_answer_of_an_edited_function_ends_the_search(name: str) -> None:
    question, true, forged = OF_EDITED[name]
    answers = [Opened("f.py", ""), true, Opened("f.py", ""), forged]
    child: Any = SimpleNamespace(process=None, ask=lambda *_, **__: answers.pop(0))
    version = TrialsInChild(child, None).version([_EDIT])  # type: ignore[arg-type]
    arguments = ({},) if question == "run" else (Attention(), 1.0)
    assert getattr(version, question)(*arguments) is true
    with pytest.raises(Tampered, match="it answers for the judge's own code"):
        getattr(version, question)(*arguments)


def test_a_process_names_its_own_file_alone_and_a_function_here_any(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN)
    made = reports.Repair(
        str(path), (reports.Replacement(3, 0, 3, 1, "a"),), "b", "a", "axis", "same", Grade.SAMPLED, None, 1, 1, 1, 1
    )
    repairs: Any = SimpleNamespace(repairs=(made, replace(made, file=str(tmp_path / "other.py"))))
    of = CandidateJudge(f"{path}:attention", None, Options())
    assert of._own_repairs(repairs) == (made,)
    # A function that was bound to some arguments has no file by its name.
    assert replace(of, candidate=partial(np.dot))._own_repairs(repairs) == repairs.repairs


def test_a_candidate_that_ends_the_search_for_its_cause_stays_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = patch("symattn.programs.judging.judging.verified").get_original()[0]

    def verified_once(candidate: Any, spec: Any, how: Options) -> Any:
        if how.repair:
            raise CannotRunHere("it cannot be judged")
        return verified(candidate, spec, how)

    monkeypatch.setattr("symattn.programs.judging.judging.verified", verified_once)
    judgement = judge(lambda q, k, v: v * 0, examples=0, seed=1, why=True)
    assert judgement.status is reports.Status.FAIL
    assert "The search for a cause ended: it cannot be judged." in judgement.notes


def test_the_time_of_edits_counts_in_the_adviser() -> None:
    child: Any = object.__new__(WithArraysAlone)
    child._adviser, child._spent, child._process = SimpleNamespace(spent=(2.0, 0.5)), (1.0, 0.25), None
    child._sent = deque()
    # The end of a process adds nothing.
    child._forget_ended_process()
    assert child.spent == (3.0, 0.75)
