"""The process in which a candidate is called holds arrays: no definition, no seed, no file of the judge."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from symattn import Attention, RMSNorm, judge, reports
from symattn.programs import child
from tests.programs.judging.hostile import RIGHT

linux = pytest.mark.skipif(sys.platform != "linux", reason="namespaces of Linux")
SEED = 98765432
#: Writes all that can be found in its process into a file, one for each process.
SPY = """
import gc, json, os, secrets, sys
from pathlib import Path

PLACE = Path(__file__).with_name(f"seen.{secrets.token_hex(4)}")

def said(thing):
    try:
        return repr(thing)
    except Exception as error:  # some objects of symattn have no repr in the middle of a search
        return type(error).__name__

def look():
    objects = [o for o in gc.get_objects() if str(type(o).__module__).startswith("symattn") and not isinstance(o, type)]
    frames, frame = [], sys._getframe()
    while frame:
        frames.append(frame.f_code.co_name + said(frame.f_locals))
        frame = frame.f_back
    return {
        "objects": [*map(said, objects)],
        "frames": frames,
        "argv": [sys.argv, sys.orig_argv],
        "environ": dict(os.environ),
        "processes": [Path("/proc", n, "cmdline").read_text() for n in os.listdir("/proc") if n.isdecimal()],
        "hidden": Path(__file__).with_name("reference.py").read_text(),
    }

def noted():
    if not PLACE.exists():
        PLACE.write_text(json.dumps(look()))
"""
ATTENDS = f"{SPY}{RIGHT}\ndef f(q, k, v):\n    noted()\n    return right(q, k, v)\n"
NORMS = f"{SPY}\nimport numpy as np\ndef f(x, gain):\n    noted()\n    return x\n"


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a candidate had gone around the guard."""
    blind = "import symattn.programs.guard as g; g.install = lambda *rest: None\n"
    before = "from symattn.programs.worker"
    for program in ("_CONFINED_PROGRAM", "_SERVER_PROGRAM"):
        monkeypatch.setattr(child, program, getattr(child, program).replace(before, f"{blind}{before}", 1))


def seen(folder: Path, text: str, definition: object) -> list[dict[str, object]]:
    """Return what the candidate finds in each of its processes, without addresses."""
    folder.mkdir()
    folder.joinpath("reference.py").write_text("the reference")
    kernel = folder / "kernel.py"
    kernel.write_text(text)
    how = child.TargetOptions(secret=(str(folder / "reference.py"),), verdict_alone=True, examples=0, seed=SEED)
    from symattn.programs.judging.judging import CandidateJudge

    CandidateJudge(f"{kernel}:f", definition, how, SEED).judgement()  # type: ignore[arg-type]
    texts = [path.read_text().replace(str(folder), "") for path in sorted(folder.glob("seen.*"))]
    return [json.loads(re.sub("0x[0-9a-f]+", "", text)) for text in texts]


@pytest.mark.deep
@linux
@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize(
    ("text", "definitions"),
    [
        (ATTENDS, (Attention(), Attention(causal=True))),
        (NORMS, (RMSNorm(eps=1e-6), RMSNorm(eps=1e-5))),
    ],
    ids=["attention", "norms"],
)
def test_nothing_in_the_process_depends_on_the_definition(
    tmp_path: Path, text: str, definitions: tuple[object, object]
) -> None:
    name = repr(definitions[1])
    first, second = (seen(tmp_path / str(i), text, definition) for i, definition in enumerate(definitions))
    knowing = [place for place in second if name in json.dumps(place, ensure_ascii=False)]
    assert (len(second), len(knowing)) == (2, 1)  # the adviser has it, so that the spy would find it
    called = next(place for place in second if place not in knowing)
    assert any(sorted(place["objects"]) == sorted(called["objects"]) for place in first)
    for key, words in called.items():
        assert str(SEED) not in json.dumps(words), key
        assert not re.search(r"Request\(|Attention\([^)]|RMSNorm\(", json.dumps(words)), key
    if not judge_left_open():
        assert called["hidden"] == ""
        assert all("pytest" not in line for line in called["processes"])  # type: ignore[attr-defined]


def judge_left_open() -> tuple[str, ...]:
    """Return what this system does not let be closed."""
    import subprocess

    program = "from symattn.programs import confining; confining.confine(4)\nprint(*confining.left_open, sep='')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return tuple(ran.stdout.split("\n")[:-1]) if ran.stdout.strip() else ()


@pytest.mark.deep
@linux
def test_files_that_decide_later_judgements_are_closed_to_writing(tmp_path: Path) -> None:
    if judge_left_open():
        pytest.skip("this system permits no namespaces")
    import symattn

    path = tmp_path / "kernel.py"
    places = [os.path.dirname(symattn.__file__), sys.prefix]
    attack = f"""
def f(q, k, v):
    for place in {places!r}:
        try:
            open(place + "/written", "w")
            return right(q, k, v) * 0
        except OSError:
            pass
    return right(q, k, v)
"""
    path.write_text(RIGHT + attack)
    try:
        judgement = judge(f"{path}:f", examples=0)
        assert judgement.status is not reports.Status.FAIL, judgement
    finally:
        for place in places:
            Path(place, "written").unlink(missing_ok=True)
