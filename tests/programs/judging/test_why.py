"""``judge`` with ``why``: the edit that makes a candidate right, from a process that is not trusted."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from symattn import judge
from symattn.document import schemas
from symattn.document.errors import NeedsMemory
from symattn.programs.guard import Tampered
from symattn.programs.judging import judging
from symattn.programs.judging.judgement import Status
from symattn.programs.repairing.apart import TrialsInChild
from symattn.programs.repairing.edits import Edit
from symattn.programs.repairing.trials import Opened, Screened
from symattn.verification.repair import Replacement
from tests.programs.repairing.programs import FLASH, PLAIN, write

SCHEMA = jsonschema.Draft202012Validator(json.loads(schemas.text("judgement")))


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
    assert judgement.status is Status.FAIL
    assert [r.change for r in judgement.repairs[:1]] == [change] * bool(change)
    assert ("Fix: " in str(judgement.document().text())) == bool(change)
    plain = judge(target, examples=8, seed=1)
    assert (plain.repairs, plain.as_dict()["repairs"]) == ((), [])
    assert (plain.reason, plain.counterexample) == (judgement.reason, judgement.counterexample)


def test_a_search_for_the_cause_that_cannot_run_takes_back_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate may take all memory in later calls than the wrong one."""
    run = judging.verified

    def first_alone(*arguments: Any) -> Any:
        if arguments[-1].repair:
            raise NeedsMemory("it needs more memory")
        return run(*arguments)

    monkeypatch.setattr(judging, "verified", first_alone)
    judgement = judge(lambda q, k, v: v * 0, examples=0, why=True)
    assert judgement.status is Status.FAIL
    assert judgement.counterexample is not None
    assert (judgement.cause, judgement.repairs) == (None, ())
    assert "No cause was found: it needs more memory" in judgement.notes


_EDIT = Edit("axis", 1, 0, (Replacement(3, 0, 3, 1, "a"),), "b", "a")
#: A question, and an answer that symattn's own code never gives.
FORGED: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "a file": ("open", (), Opened(b"f.py", "")),  # type: ignore[arg-type]
    "no replacement": ("edits", (1,), [Edit("axis", 1, 0, (), "b", "a")]),
    "a replacement": ("edits", (1,), [Edit("axis", 1, 0, ((3, 0, 3, 1, "a"),), "b", "a")]),  # type: ignore[arg-type]
    "a line before the first": ("edits", (1,), [Edit("axis", 1, 0, (Replacement(0, 0, 3, 1, "a"),), "b", "a")]),
    "an edit of no list": ("screen", ([(_EDIT,)],), [Screened(1, True)]),
    "a number": ("score", ([_EDIT],), ["1"]),
    "too few": ("score", ([_EDIT],), []),
    "no pair": ("repaired", ([_EDIT],), (1,)),
    "work": ("work_done", (), "much"),
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
