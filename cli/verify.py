"""``symattn verify``: does my code do it?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from .calling import calling, judging
from .choices import Whole
from .errors import Status, say
from .fields import chosen, fields
from .groups import Grouped, under
from .output import Output, given, options
from .progress import progress
from .promises import promised, promises
from .variants import specified, variants

_TRIED = under("How much is tried")
_TRACE = under("Where TARGET is a trace")
_GRAPH = under("Where TARGET is an ONNX model")
_FAULTS = under("What becomes of faults")


@click.command("verify", cls=Grouped, short_help="Verify a function against exact mathematics.")
@click.argument("target")
@fields
@variants
@judging
@calling
@promises
@_GRAPH("--array", multiple=True, metavar="NAME=NAME", help="Which weight or input is which: w_q=onnx::MatMul_57.")
@_GRAPH("--prove/--no-prove", default=None, help="Prove it for all sizes left open; by default of small layers.")
@_TRACE("--rows", type=Whole(1), help="Queries of each head that are judged; by default 32.")
@_TRIED(
    "--power", multiple=True, metavar="STEP=PART", help="Try until a step that is so wrong would show: scale=0.001."
)
@_FAULTS("--show-output", is_flag=True, help="Show what the function prints.")
@_FAULTS("--case", "word", metavar="ID", help="Repeat one case of a report, and no other.")
@_FAULTS("--write-test", metavar="FILE", help="Write the faults as tests for pytest.")
@_FAULTS("--baseline", metavar="FILE", help="Accept the faults that FILE lists, and miss those that are gone.")
@_FAULTS("--write-baseline", metavar="FILE", help="List the faults that were found in FILE, as accepted.")
@_FAULTS("--reason", metavar="TEXT", help="Why they are accepted.")
@options
def command(
    target: str,
    output: Output,
    show_output: bool,
    word: str | None,
    write_test: str | None,
    baseline: str | None,
    write_baseline: str | None,
    reason: str | None,
    **wishes: Any,
) -> int:
    """Verify TARGET, a function that computes attention, against exact mathematics.

    TARGET is package.module:function or file.py:function. No tolerance is picked: the error allowed is the one that
    is proved for every implementation in this arithmetic. Or TARGET is a trace, a .safetensors or .npz file to which a
    run has written its arrays q, k, v and o: these are judged, and nothing is run. Or it is an .onnx file, of which the
    graph is tested, and proved for all sizes that it leaves open.

    \b
    symattn verify mypkg.attn:attention --causal
    symattn verify attn.py:attention --like llama --heads 4 --kv-heads 2
    symattn verify attn.py:attention --config config.json --layer 1
    symattn verify torch.nn.functional:scaled_dot_product_attention
    symattn verify attn.py:attention --write-test test_attn.py
    symattn verify norms.py:rms_norm --definition "RMSNorm(eps=1e-6)"
    symattn verify attn.py:backward --definition gradient --causal
    symattn verify run.safetensors --causal --heads 8
    symattn verify layer.onnx --causal --heads 2
    """
    from symattn.sources.loading import CannotRun
    from symattn.sources.names import is_trace

    from . import graphs, traces
    from .verifying import Wishes

    if is_trace(target):
        return output.emit(traces.report(click.get_current_context(), target, wishes).document())
    if graphs.meant(target):
        return output.emit(graphs.report(click.get_current_context(), target, wishes).document())
    _refuse_those_of_files(target, wishes)
    asked = Wishes.of(word, write_test, baseline, write_baseline, reason, output.force)
    told = {**given(wishes), **chosen(wishes)}
    told |= {"power": _shares(told["power"])} if "power" in told else {}
    domain = promised(told)
    spec, cut, origin = specified(told)
    try:
        with progress("trying") as show:
            report = asked.report(
                target, spec, domain=domain, progress=show, origin=origin, notes=(cut,) if cut else (), **told
            )
    except CannotRun as error:
        say(f"symattn: {error}")
        return Status.TARGET
    return output.emit(report.document(show_output))


def _refuse_those_of_files(target: str, wishes: dict[str, Any]) -> None:
    """Take away the options that are for files alone; raise ``UsageError`` where one of them was given."""
    for name, kind in (("array", "an ONNX model"), ("prove", "an ONNX model"), ("rows", "a trace")):
        if wishes.pop(name) not in (None, ()):
            raise click.UsageError(f"--{name} is for {kind}, and {target} is a function; mend: leave it out.")


def _shares(texts: Iterable[str]) -> dict[str, float]:
    """``scale=0.001``, as a step and a part of its number."""
    found = {}
    for text in texts:
        step, _, share = text.partition("=")
        try:
            found[step.strip()] = float(share)
        except ValueError:
            raise click.UsageError(f"--power {text}: give STEP=PART, such as scale=0.001") from None
    return found
