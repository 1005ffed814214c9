"""``symattn campaign``: many verifications at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import stream
from .calling import DTYPES
from .choices import Choice, Whole
from .errors import say
from .groups import Grouped, under
from .output import FORMATS, Output, concise

if TYPE_CHECKING:
    from symattn.campaigns.backends import Backend

_TRIED = under("What is verified")
_WHERE = under("Where it runs")
_SUMMARY = under("Summary")


@click.command("campaign", cls=Grouped)
@click.argument("what", nargs=-1, metavar="FILE.toml|TARGET...")
@_TRIED(
    "--spec",
    "specs",
    multiple=True,
    metavar="FIELD[=VALUE],...",
    help="A specification, or plain for none.",
)
@_TRIED("--dtypes", metavar="DTYPE,...", help="Types of the inputs. Default: float32.")
@_TRIED(
    "--budget", type=float, metavar="SECONDS", help="Processor time allowed for each verification."
)
@_TRIED("--examples", type=Whole(0), help="Number of random inputs for each verification.")
@click.option(
    "-o", "--output", "path", metavar="DIR", help="Folder for the results; with --summary, a file."
)
@_SUMMARY("--summary", metavar="DIR", help="Verify nothing, and summarise the results in DIR.")
@_WHERE(
    "--backend",
    type=Choice(("joblib", "dask")),
    default="joblib",
    help="How work is distributed. Default: joblib.",
)
@_WHERE(
    "--scheduler",
    metavar="ADDRESS",
    help="Address of the cluster, such as tcp://host:8786. Default: local.",
)
@_WHERE(
    "--jobs",
    "cores",
    type=Whole(1),
    metavar="N",
    help="Number of processes. Default: one per core.",
)
@_SUMMARY(
    "-f", "--format", "form", type=Choice(FORMATS), help="Format of the summary. Default: text."
)
@_SUMMARY(
    "--force", is_flag=True, help="Replace the summary's file even if symattn did not write it."
)
@_SUMMARY(
    "--ascii/--unicode",
    "ascii",
    default=None,
    help="Print ASCII only. Default: where stdout needs it.",
)
@_SUMMARY(
    "--color", "colour", type=Choice(("auto", "always", "never")), default="auto", help="Colour."
)
@concise
def command(
    what: tuple[str, ...],
    path: str | None,
    summary: str | None,
    form: str | None,
    force: bool,
    ascii: bool | None,
    colour: stream.Colour,
    verbose: bool,
    quiet: bool,
    **plan_options: Any,
) -> int:
    """Verify every target with every specification and dtype, and keep the results in a folder.

    \b
    symattn campaign kernels.toml -o results
    symattn campaign attn.py:f --spec causal --dtypes float32,float16 -o out
    symattn campaign --summary results -f markdown

    Run the same command again to resume an interrupted campaign.
    """
    if summary is not None and what:
        raise click.UsageError("--summary verifies nothing, so it goes without targets.")
    if summary is None and not what:
        raise click.UsageError("Missing targets: a matrix.toml, or functions as for verify.")
    if summary is None and path is None:
        raise click.UsageError("Missing -o DIR, the folder of the results.")
    output = Output.of(
        form,
        path if summary else None,
        force,
        ascii=ascii,
        colour=colour,
        verbose=verbose,
        quiet=quiet,
    )
    folder = Path(str(summary or path))
    if summary is None:
        _run(what, folder, **plan_options)
    from symattn.campaigns import summary as summaries
    from symattn.document.codec import command as command_of

    return output.emit(
        summaries.summary(folder, command_of("campaign", options={"summary": str(folder)}))
    )


def _run(
    what: tuple[str, ...],
    folder: Path,
    *,
    specs: tuple[str, ...],
    dtypes: str | None,
    budget: float | None,
    examples: int | None,
    backend: Backend,
    scheduler: str | None,
    cores: int | None,
) -> None:
    from symattn.campaigns.backends import run
    from symattn.campaigns.plan import planned, read

    if scheduler is not None and backend != "dask":
        raise click.UsageError(
            "--scheduler is where a cluster of dask is, so it goes with --backend dask."
        )
    options = {name: x for name, x in (("budget", budget), ("examples", examples)) if x is not None}
    if len(what) == 1 and what[0].endswith(".toml"):
        if specs or dtypes or options:
            raise click.UsageError(
                "The file says which specifications, dtypes and options there are."
            )
        jobs = read(Path(what[0]))
    else:
        named = dict(map(_spec, specs))
        jobs = planned(what, named, dtypes.split(",") if dtypes else DTYPES[1:2], {}, options)
    with _progress() as progress:
        run(
            jobs, folder, progress=progress, backend=backend, scheduler=scheduler, cores=cores or -1
        )


def _spec(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the fields of a specification such as ``causal,window=3``; ``plain`` has no fields."""
    from symattn.attention.codec.field_values import pairs

    return text, {} if text == "plain" else {
        name.replace("-", "_"): value for name, value in pairs(text).items()
    }


@contextmanager
def _progress() -> Iterator[Callable[[int, int, dict[str, Any] | None], None]]:
    """Show the progress on one line of a terminal's stderr; report an interruption to any stderr."""
    state = {"done": 0, "planned": 0, "faults": 0}
    terminal = sys.stderr is not None and sys.stderr.isatty()

    def show(done: int, planned: int, record: dict[str, Any] | None) -> None:
        state.update(done=done, planned=planned)
        state["faults"] += record is not None and record["verdict"] == "fault"
        if terminal:
            last = (
                f" {record['target']} {record['spec']} {record['dtype']}: {record['verdict']}"
                if record
                else ""
            )
            line = f"{done} of {planned}, {state['faults']} with faults{last}"
            print(f"\r\x1b[K{line[:78]}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    except KeyboardInterrupt:
        say(
            f"symattn: {state['done']} of {state['planned']} are made and kept; the same command goes on"
        )
        raise
    finally:
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
