"""A script that is run as by ``python script.py``, while everything that it runs is audited."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from symattn.arrays.precision import Contract
from symattn.document.errors import InputError
from symattn.models.auditing.audit import audit
from symattn.models.auditing.report import AuditReport


def audit_script(
    path: str,
    arguments: Sequence[str] = (),
    *,
    contract: Contract | None = None,
    rows: int | None = 32,
    gradients: bool = False,
    layers: bool = False,
) -> tuple[AuditReport, int]:
    """Run a script with its own arguments and audit every module in it: the report, and the script's exit code.

    A script that raises ends with the code 1, and its traceback is printed to stderr, as Python does. What the script
    does with ``sys`` stays in this process. Raises ``InputError`` where there is no such file.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"audit: there is no file {path}; hint: the path of a script of Python")
    watched = audit(contract=contract, rows=rows, gradients=gradients, layers=layers, name=file.name)
    with watched as report, _as_main(file, arguments):
        code = _run(file)
    if code:
        report.notes.append(f"The script itself ended with exit code {code}: what it left out was not audited.")
    return report, code


@contextmanager
def _as_main(file: Path, arguments: Sequence[str]) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` as the script finds them when Python runs it."""
    argv, paths = sys.argv, sys.path[:]
    sys.argv = [str(file), *arguments]
    sys.path.insert(0, str(file.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, paths


def _run(file: Path) -> int:
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return leave.code or 0
        print(leave.code, file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0
