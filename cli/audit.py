"""``symattn audit``: are the attention calls of a running script right?"""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from functools import partial
from typing import Any

import click

from .arguments import line
from .choices import Choice, Whole
from .errors import say
from .groups import Grouped, under
from .output import Output, concise, options_with_sarif

_ROWS = 32
_JUDGED = under("How calls are judged")


@click.command(
    "audit",
    cls=Grouped,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_JUDGED(
    "--contract",
    type=Choice(("eager", "fused")),
    help="Whether scores are stored in the input type or wider.",
)
@_JUDGED("--rows", type=Whole(1), help="Number of queries judged in each head. Default: 32.")
@_JUDGED("--all-rows", is_flag=True, help="Judge every query.")
@_JUDGED(
    "--gradients", is_flag=True, help="Also judge backward passes: dQ, dK and dV of every call."
)
@_JUDGED(
    "--layers", is_flag=True, help="Also judge whole layers: norms, rotations, feed-forward layers."
)
@_JUDGED(
    "--causal/--two-sided",
    default=None,
    help="Whether outputs may depend on later tokens. Default: by model.",
)
@_JUDGED(
    "--no-dependence", is_flag=True, help="Do not run passes again to find which parts mix tokens."
)
@_JUDGED(
    "--lock",
    metavar="FILE",
    help="A lock of symattn models lock: models without a row are compared with its reviewed lines.",
)
@concise
@options_with_sarif
def command(
    script: str,
    arguments: tuple[str, ...],
    output: Output,
    contract: Any,
    rows: int | None,
    all_rows: bool,
    gradients: bool,
    layers: bool,
    causal: bool | None,
    no_dependence: bool,
    lock: str | None,
) -> int:
    """Run SCRIPT with its own ARGUMENTS, and judge every attention call in it.

    \b
    symattn audit generate.py --prompt "Hello"
    symattn audit -f json -o audit.json generate.py
    symattn audit --gradients train.py
    symattn audit --layers generate.py
    symattn audit --lock models.lock generate.py

    Each call in torch and transformers is compared with exact attention of the inputs it received, and with the model's
    configuration. The first pass of a model is repeated with other tokens, which shows the parts that mix tokens, and
    outputs that depend on later tokens. Put options of symattn before SCRIPT. The exit code is that of the audit; the
    exit code of the script is printed.
    """
    from symattn.document.errors import InputError
    from symattn.models.auditing.audit import audit_script

    from . import sarif

    if all_rows and rows is not None:
        raise InputError("--rows and --all-rows exclude each other; hint: give one of them")
    rows = None if all_rows else rows or _ROWS
    to_stderr = output.format != "text" and output.path is None
    with redirect_stdout(sys.stderr) if to_stderr else nullcontext():
        judged = {"contract": contract, "rows": rows, "gradients": gradients, "layers": layers}
        probed: dict[str, Any] = {"dependence": not no_dependence, "causal": causal, "lock": lock}
        report, code = audit_script(script, arguments, **judged, **probed)
    sys.stdout.flush()
    say(f"symattn: {script} ended with exit code {code}")
    document = replace(report.document(), command=line(click.get_current_context()))
    document = replace(document, record={**document.record, "script_exit_code": code})
    return output.emit(document, partial(sarif.of_audit, report, document, script))
