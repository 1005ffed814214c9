"""What symattn says, frozen: lines ``name, tab, value`` in a file for each part, written by ``python -m tests.golden``.

A change that alters nothing leaves every line as it is; a line that changes is explained in its commit. Documents
with numbers that a BLAS computed (walks, bounds, reports) are left out, as these differ from machine to machine in
their last digits; ``OPENBLAS_CORETYPE=SkylakeX python -m tests.golden`` shows that the others do not.
"""

import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
FORMS = ("text", "latex", "html", "json")
EVERY = 5  # of the programs of the collection, which take minutes, so many are one
_MEASURED = re.compile(r"(\d\.\d+(e[-+]?\d+)?|\d+e-\d+)")
_SECONDS = re.compile(r"\d+\.\d+ s\b|\"seconds\": [\d.]+")
_BALLS = re.compile(r"\[-?[\d.e+-]+ \+/- [\d.e+-]+\]")  # of a counterexample that a search in floats met
_BARE = ("schema", "exercises", "draw", "derive --list", "prove --list", "draw --list")  # in one form alone
_ENTERED = {
    "Attention() on 2 × 2": "from symattn import Attention; import numpy as np; e = np.eye(2)|Attention()(e, e, e)",
    "verify": "from symattn import Attention, verify|verify(lambda q, k, v: Attention()(q, k, v))",
    "derive --dk 4": "from symattn_cli.main import main|main(['derive', '--dk', '4'])",
}
_COUNT = """
import contextlib, io, sys
{0}
files = set()
sys.setprofile(lambda frame, event, _: frame.f_code.co_name == "<module>" or files.add(frame.f_code.co_filename))
with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
    {1}
sys.setprofile(None)
print(sum("/symattn/" in name for name in files))
"""


def ran(command: str) -> str:
    """Run a command line in this process; return its exit code and all that it prints."""
    from symattn_cli.main import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(out), redirect_stderr(out), chdir(ROOT), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = main(shlex.split(command))
    text = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    return f"{code}\n" + _BALLS.sub("[#]", _SECONDS.sub("#", text))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _documents() -> Iterable[str]:
    from symattn import derivations, theorems

    typed = (FOLDER / "commands.txt").read_text(encoding="utf-8").splitlines()
    named = (*(f"derive {n}" for n in derivations.names()), *(f"prove {t}" for t in theorems.TOPICS))
    for command in (*named, *typed):
        yield from ([command] if command.startswith(_BARE) else (f"{command} -f {form}" for form in FORMS))


def _helps() -> Iterable[str]:
    from symattn_cli.main import TABLE

    yield from ("--help", "completion bash", *(f"{name} --help" for name in TABLE))
    yield from (f"claim {name} --help" for name in ("closer", "equal", "similarity", "weights"))
    yield from ("walk eight-step --scale x", "derive attention --window 3;x", "walk t5 --position y")


@cache
def _programs() -> dict[str, Callable[[], Any]]:
    from symattn import verify
    from symattn.attention.variants import VARIANTS
    from tests.faults.collection.every import chosen
    from tests.verification.mutants import mutant, right

    few = [e for e in chosen() if not e.torch][::EVERY]
    found: dict[str, Callable[[], Any]] = {
        e.name: lambda e=e: verify(e.program, e.spec, precision=e.arithmetic, domain=e.domain) for e in few
    }
    for name, variant in [*VARIANTS.items()][::EVERY]:
        found[f"right: {name}"] = lambda n=name, v=variant: verify(right(n), replace(v.spec, lse=False), examples=4)
    for m in map(mutant, range(0, 1000, 100)):
        found[f"mutant {m.name}"] = lambda m=m: m.verified(examples=4)
    return found


def _verdict(name: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = _programs()[name]()
    if isinstance(report, str):  # a mutant says in words what became of it
        return _MEASURED.sub("#", report)
    faults = (f"{f.step} | {'' if f.cause == f.message else f.cause} | {f.message}" for f in report.faults)
    return _MEASURED.sub("#", " || ".join((report.verdict.value, *faults)).replace("\n", " "))


def _theorem(name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        document, certificates = Path(folder, "document.json"), Path(folder, "certificates.json")
        asked = f"prove {name} --explain --no-cache -f json -o {shlex.quote(str(document))}"
        ran(f"{asked} --certificate {shlex.quote(str(certificates))}")
        # Of a theorem that is not proved no certificate is written, and no document beside it.
        if not document.exists():
            ran(asked)
        (found,) = json.loads(document.read_text(encoding="utf-8"))["theorems"]
        certificate = _digest(certificates.read_text(encoding="utf-8")) if certificates.exists() else "no certificate"
    return f"{found['grade']}, {found['where']}, {found['false_variant']['grade']}, {certificate}"


def _theorems() -> Iterable[str]:
    from symattn import theorems

    return theorems.catalogue()


def _entered(name: str) -> str:
    """Count the files of symattn in which a function is entered, once what is imported is imported."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SYMATTN_CACHE": folder, "PYTHONPATH": str(ROOT)}
        run = [sys.executable, "-c", _COUNT.format(*_ENTERED[name].split("|"))]
        return subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout.strip()


#: What is frozen: the names of the lines of each part, and the value of a line.
PARTS: dict[str, tuple[Callable[[], Iterable[str]], Callable[[str], str]]] = {
    "helps": (_helps, lambda name: _digest(ran(name))), "documents": (_documents, lambda name: _digest(ran(name))),
    "entered": (lambda: _ENTERED, _entered), "theorems": (_theorems, _theorem), "verdicts": (_programs, _verdict),
}  # fmt: skip


def stored(part: str) -> dict[str, str]:
    """Return the lines of a part as they were frozen."""
    path = FOLDER / f"{part}.tsv"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(line.split("\t", 1) for line in lines)


def differences(part: str, names: Iterable[str]) -> dict[str, str]:
    """Return the lines that are others today than they were frozen, as they are today."""
    frozen, value = stored(part), PARTS[part][1]
    return {name: now for name in names if (now := value(name)) != frozen.get(name)}
