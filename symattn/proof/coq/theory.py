"""The theory, compiled once into the cache folder, and Coq itself.

What is compiled is found again by what it was made of: the files of the theory and the version of Coq. A folder that
others could have written is not used.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from symattn.document import stored_results as kept
from symattn.document.errors import InputError

SOURCE = Path(__file__).resolve().parent
FILES = (
    "Meaning",
    "Cutoff",
    "Polynomials",
    "Clearing",
    "Accepting",
    "Bounding",
    "Folding",
    "Reading",
)
_DECLARED = re.compile(
    r"^ *(?:Local )?(?:Definition|Fixpoint|with|Lemma|Theorem|Inductive|Record|Ltac) ([A-Za-z_]\w*)",
    re.MULTILINE,
)
_GROUPS = re.compile(r"^(?:Inductive|Record) .*?\.$", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(r"(?::=|[|;{])\s*([A-Za-z]\w*)")
INSTALL = "coqc is not found, so nothing is graded coq; hint: apt install coq libcoq-stdlib, or opam install coq"


@cache
def version() -> str:
    """Return the version of Coq, such as 8.16.1; empty if it is not installed."""
    if shutil.which("coqc") is None:
        return ""
    result = subprocess.run(
        ["coqc", "--print-version"], capture_output=True, text=True, check=False
    )
    return result.stdout.split()[0] if result.returncode == 0 and result.stdout.split() else ""


@cache
def declared() -> frozenset[str]:
    """Return the names that the theory declares, including constructors and fields."""
    texts = [(SOURCE / f"{name}.v").read_text(encoding="utf-8") for name in FILES]
    groups = [group for text in texts for group in _GROUPS.findall(text)]
    return frozenset(w for text in texts for w in _DECLARED.findall(text)) | frozenset(
        w for group in groups for w in _MEMBER.findall(group)
    )


def compiled() -> Path:
    """Return the folder of the compiled theory, for ``-Q``. Raises InputError if Coq refuses it or is missing."""
    if not version():
        raise InputError(INSTALL)
    # The version of Coq and the text of the theory are the key.
    key = kept.digest(
        [version(), *[(SOURCE / f"{name}.v").read_text(encoding="utf-8") for name in FILES]]
    )
    folder = kept.folder() / "coq" / key
    if folder.is_dir() and _is_folder_tamper_proof(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Compiled elsewhere and moved, so that no process sees half of it.
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        result = Path(place) / "theory"
        result.mkdir(mode=0o755)
        for name in FILES:
            shutil.copyfile(SOURCE / f"{name}.v", result / f"{name}.v")
            run = ["coqc", "-q", "-Q", ".", "Symattn", f"{name}.v"]
            done = subprocess.run(run, cwd=result, capture_output=True, text=True, check=False)
            if done.returncode:
                raise InputError(
                    f"Coq {version()} refuses {name}.v of the theory: {' '.join(done.stderr.split())[:300]}"
                )
        # Another process may have been faster.
        if not folder.exists():
            os.replace(result, folder)
    # Who may write to the folder may change what is proved.
    if not _is_folder_tamper_proof(folder):
        raise InputError(f"{folder} can be written by others; hint: take it away")
    return folder


def _is_folder_tamper_proof(folder: Path) -> bool:
    """Return whether nobody but this user, and the system's administrator, could have written what lies in it."""
    if os.name != "posix":
        return True
    every = [p.stat() for p in (folder, *folder.iterdir())]
    return all(
        s.st_uid in (os.getuid(), 0) and not s.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        for s in every
    )
