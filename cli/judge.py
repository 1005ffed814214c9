"""``symattn judge``: may this kernel pass?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .arguments import typed
from .calling import calling, judging
from .fields import NAMES, fields, given
from .groups import Grouped
from .output import SARIF, Output, concise, options_with_sarif
from .progress import progress
from .promises import promised, promises
from .variants import specified, variants

if TYPE_CHECKING:
    from symattn.programs.judging.judgement import Judgement


@click.command("judge", cls=Grouped)
@click.argument("candidate")
@fields
@variants
@judging
@calling
@promises
@click.option(
    "--reference", metavar="FILE", help="A benchmark's module with Model, or its definition.json."
)
@click.option(
    "--memory-limit",
    type=float,
    metavar="GIB",
    help="Memory that the candidate may use. Default: 8.",
)
@click.option(
    "--why/--no-why",
    default=None,
    help="Seek the cause of a fault, and edits that mend it. Default: yes, except for -f json.",
)
@concise
@options_with_sarif
def command(
    candidate: str, output: Output, reference: str | None, why: bool | None, **wishes: object
) -> int:
    """Judge CANDIDATE, a kernel that a program may have written, and give one status.

    \b
    symattn judge kernel.py:attention --causal -f json
    symattn judge kernel.py:attention --like llama --without position
    symattn judge norms.py:rms_norm --definition "RMSNorm(eps=1e-6)"
    symattn judge kernel.py --reference reference.py

    CANDIDATE is package.module:function or file.py:function, and runs in a process of its own. Inputs are drawn after
    it was loaded; --seed repeats them. With --reference it is kernel.py with the class ModelNew, and the definition is
    the one that the reference computes, unless options give it.

    The status is PASS, PASS_WITH_LIMITS (exit code 0), FAIL, TAMPERED (1), INVALID_REFERENCE (2) or UNDECIDED (3).
    """
    from symattn.programs.child import TargetOptions
    from symattn.programs.judging.judging import CandidateJudge

    settings = given(wishes)
    seed = settings.pop("seed", None)
    sought = output.format != "json" if why is None else why
    domain = promised(settings)
    spec, cut, origin = specified(settings)
    secret = () if reference is None else (reference,)
    named = typed(click.get_current_context())
    specifies = origin is not None or any(
        name in named for name in ("definition", "like", "config", *NAMES)
    )
    with progress("judging") as show:
        how = TargetOptions(
            domain=domain,
            origin=origin,
            progress=show,
            verdict_alone=True,
            secret=secret,
            **settings,
        )
        if reference is None:
            judgement = CandidateJudge(
                candidate, spec, how, seed, (cut,) if cut else (), why=sought
            ).judgement()
        else:
            from symattn.programs.judging.references import ByReference, path_of

            dtype = str(how.dtype) if "dtype" in named else None
            given_spec = spec if specifies else None
            judgement = ByReference(
                candidate, path_of(reference), given_spec, how, seed, dtype, sought
            ).judgement()
    return give(judgement, output)


def give(judgement: Judgement, output: Output) -> int:
    """Print or write a judgement, as JSON of its own schema, as SARIF or as a document; return its exit code."""
    if output.format == SARIF:
        from . import sarif

        text = sarif.of_judgement(judgement)
    else:
        is_json = output.format == "json"
        text = judgement.json() if is_json else output.rendered(judgement.document())
    compared = output.give(text, judgement.status.value)
    return judgement.exit_code if compared is None else compared
