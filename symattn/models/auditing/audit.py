"""``audit``: judge every call of attention in a running model; ``audit_script``: in a script, run as by Python."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from symattn.arrays.precision import Contract
from symattn.document.errors import InputError
from symattn.models.auditing.audit_context import Audit
from symattn.models.auditing.audit_report import AuditReport
from symattn.programs.frameworks import import_torch

_ROWS = 32


def audit(
    model: Any = None,
    *,
    contract: Contract | None = None,
    rows: int | None = _ROWS,
    gradients: bool = False,
    layers: bool = False,
    name: str = "",
) -> Audit:
    """Judge every call of attention while a model runs: ``with symattn.audit(model) as report: model(**inputs)``.

    Each call is judged twice, as soon as it returns: *as given*, its output against exact attention of the queries,
    keys, values and mask that it received; and by *intent*, against what the model's configuration, the padding and the
    cache call for. The error may be what rounding can do in the format, and no more (``symattn.bounds.sharp``).

    model     a module of torch; None for every module that runs meanwhile
    contract  ``fused``: scores stay in float32; ``eager``: they may be stored in the input's format. By default what
              the code that was called promises: ``eager`` for transformers' eager functions, else ``fused``
    rows      so many queries of each head are looked at, those at the edges of windows and tiles always among them;
              None for all
    gradients judge backward passes, too: dQ of these queries, dK and dV of as many keys, in every head of small calls
              and in some of large ones, against the exact derivative (``symattn.bounds.sharp.backward``)
    layers    judge whole layers of decoders, too: norms, projections, rotations, the feed-forward layer and residuals
              of each, for some tokens, against ``block`` (``models.configurations``) of the model's configuration

    Seen are transformers' attention functions, ``torch.nn.functional.scaled_dot_product_attention``, and attention
    written out in operators, from the product of queries and keys to that of weights and values. A softmax that
    cannot be followed and a fused operator that is not supported are reported as such. The report fills while the
    model runs. Raises ``InputError`` for anything but a module, ``MissingExtra`` without torch.

    >>> import torch
    >>> with audit() as report:
    ...     o = torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 4, 2), is_causal=True)
    >>> report.verdict.value, report.coverage
    ('pass as given', 'coverage: 1 of 1 calls read, 0 compared with a configuration')
    """
    torch = import_torch()
    if model is not None and not isinstance(model, torch.nn.Module):
        raise InputError(
            f"audit: {type(model).__name__} is not a module of torch; hint: give the model, or None for all"
        )
    if contract not in (None, "eager", "fused"):
        raise InputError(f"unknown contract {contract!r}; known: eager, fused")
    if rows is not None and (not isinstance(rows, int) or rows < 1):
        raise InputError(f"rows must be an integer of at least 1, or None for all, got {rows!r}")
    name = name or (type(model).__name__ if model is not None else "everything that runs")
    return Audit(model, contract, rows, gradients, name, layers)


def audit_script(
    path: str,
    arguments: Sequence[str] = (),
    *,
    contract: Contract | None = None,
    rows: int | None = _ROWS,
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
        report.notes.append(f"The script ended with exit code {code}: what it did not run was not audited.")
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
