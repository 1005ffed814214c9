"""``symattn verify``: does a function compute attention?"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import click

from .calling import SEARCH, calling, judging
from .choices import Choice, Whole
from .fields import fields, given
from .groups import Grouped
from .output import Output, concise, options_with_sarif
from .progress import progress
from .promises import promised, promises
from .variants import specified, variants


class _WithFix(Grouped):
    """The command, in which ``--fix`` needs no value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read a bare ``--fix`` as ``--fix=diff``, so that it does not take TARGET as its value."""
        return super().parse_args(ctx, ["--fix=diff" if word == "--fix" else word for word in args])


@click.command("verify", cls=_WithFix)
@click.argument("target")
@fields
@variants
@judging
@calling
@promises
@click.option(
    "--array",
    multiple=True,
    metavar="NAME=NAME",
    help="ONNX: name a weight or input: w_q=onnx::MatMul_57.",
)
@click.option(
    "--prove/--no-prove",
    default=None,
    help="ONNX: prove open sizes. Default: for small layers.",
)
@click.option(
    "--rows", type=Whole(1), metavar="N", help="Trace: judge N queries a head. Default: 32."
)
@SEARCH(
    "--power",
    multiple=True,
    metavar="STEP=PART",
    help="Search until a relative error of PART in STEP would show: scale=0.001.",
)
@click.option("--show-output", is_flag=True, help="Show what the function prints.")
@click.option(
    "--fix",
    type=Choice(("diff", "write", "no")),
    metavar="[=write|no]",
    help="Print the first edit that makes it right as a diff; =write edits the file, =no seeks no edit.",
)
@click.option("--case", "word", metavar="ID", help="Run one case of a report again.")
@click.option("--write-test", metavar="FILE", help="Write the faults as tests for pytest.")
@click.option("--baseline", metavar="FILE", help="Accept the faults in FILE; report those gone.")
@click.option("--write-baseline", metavar="FILE", help="Write the faults to FILE, as accepted.")
@click.option("--reason", metavar="TEXT", help="Why the faults are accepted.")
@concise
@options_with_sarif
def command(
    target: str,
    output: Output,
    show_output: bool,
    fix: str | None,
    word: str | None,
    write_test: str | None,
    baseline: str | None,
    write_baseline: str | None,
    reason: str | None,
    **wishes: object,
) -> int:
    """Verify TARGET, a function for attention, against exact mathematics.

    \b
    symattn verify mypkg.attn:attention --causal
    symattn verify attn.py:attention --like llama --heads 4 --kv-heads 2
    symattn verify attn.py:attention --config config.json --layer 1
    symattn verify torch.nn.functional:scaled_dot_product_attention
    symattn verify norms.py:rms_norm --definition "RMSNorm(eps=1e-6)"
    symattn verify attn.py:backward --definition gradient --causal
    symattn verify run.safetensors --causal --heads 8
    symattn verify layer.onnx --causal --heads 2

    TARGET is package.module:function or file.py:function. You pick no tolerance: the allowed error is the bound proved
    for every correct program in this arithmetic. TARGET can also be a trace, a .safetensors or .npz file with the
    arrays q, k, v and o of a run, or an .onnx file.
    """
    from . import files, sarif
    from .verifying import ExtraTasks, check_fix, give_fix

    if (report := files.report(click.get_current_context(), target, wishes)) is not None:
        return output.emit(report.document(), partial(sarif.of_report, report, target))
    for name, kind in (("array", "an ONNX model"), ("prove", "an ONNX model"), ("rows", "a trace")):
        if wishes.pop(name) not in (None, ()):
            raise click.UsageError(
                f"--{name} is for {kind}, and {target} is a function; hint: leave it out."
            )
    extras = ExtraTasks(word, write_test, baseline, write_baseline, reason, output.force)
    settings = given(wishes)
    settings |= {"power": _shares(settings["power"])} if "power" in settings else {}
    domain = promised(settings)
    spec, cut, origin = specified(settings)
    check_fix(fix, output, word)
    with progress("trying") as show:
        report = extras.report(
            target,
            spec,
            domain=domain,
            progress=show,
            origin=origin,
            notes=(cut,) if cut else (),
            repair=fix != "no",
            **settings,
        )
    if fix not in (None, "no"):
        return give_fix(fix, report, output)
    return output.emit(report.document(show_output), partial(sarif.of_report, report, target))


def _shares(texts: Iterable[str]) -> dict[str, float]:
    """Return the relative error of each step from texts such as ``scale=0.001``."""
    results = {}
    for text in texts:
        step, _, share = text.partition("=")
        try:
            results[step.strip()] = float(share)
        except ValueError:
            raise click.UsageError(f"--power {text}: give STEP=PART, such as scale=0.001") from None
    return results
