"""``symattn faults``: mistakes of attention code, as data for any tool."""

from __future__ import annotations

from pathlib import Path

import click

from .choices import Choice, Whole
from .errors import Status, say
from .groups import Grouped
from .output import Output, options
from .progress import progress


@click.group("faults", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Explain the code of a cause, such as mask-top-left; list, run or export the corpus of faults.

    \b
    symattn faults                      all codes
    symattn faults show mask-top-left   one code
    symattn faults list                 the corpus
    symattn faults run window-short -o sample.npz
    symattn faults export -o corpus
    """
    if context.invoked_subcommand is None:
        context.invoke(codes)


@command.command("codes", cls=Grouped)
@options
def codes(output: Output) -> int:
    """List the codes of causes by step, as `symattn faults` alone does."""
    from symattn.faults.catalogue import listed_codes

    return output.emit(listed_codes())


@command.command("list", cls=Grouped)
@options
def list_(output: Output) -> int:
    """List the corpus: names, first wrong step, specification, words and reports."""
    from symattn.faults.corpus import corpus
    from symattn.faults.detection import listed

    return output.emit(listed(corpus()))


@command.command("show", cls=Grouped)
@click.argument("code", nargs=-1, required=True, metavar="CODE")
@options
def show(code: tuple[str, ...], output: Output) -> int:
    """Explain a CODE: what it is, the smallest input that shows it, how to mend it, and where it was seen.

    The name of a fault of the corpus stands for its code.
    """
    from symattn.faults.catalogue import page_of, shown_code

    return output.emit(shown_code(page_of(" ".join(code))))


@command.command("run", cls=Grouped)
@click.argument("name", required=False)
@click.option("--seed", type=Whole(0), help="Seed of the inputs in the file. Default: 0.")
@click.option(
    "-o", "--output", "path", metavar="FILE.npz", help="Write inputs and outputs to a NumPy file."
)
@click.option(
    "--all", "every", is_flag=True, help="Say for every fault which rule finds it; takes minutes."
)
@click.option("--force", is_flag=True, help="Replace the file.")
@click.option(
    "-f",
    "--format",
    "form",
    type=Choice(("text", "markdown", "json")),
    default="text",
    help="Form.",
)
def run(
    name: str | None, seed: int | None, path: str | None, every: bool, force: bool, form: str
) -> int:
    """Say which rule finds the fault NAME: torch's default tolerances, twice the error of a baseline, or symattn's
    bound with the inputs of verify.

    With -o it draws inputs by a seed instead, and writes them with what a right program and the wrong one give.
    """
    from symattn.faults import corpus
    from symattn.faults.detection import compared, detect

    if (name is None) == (not every) or (every and path is not None):
        raise click.UsageError("give one NAME, or --all without -o.")
    if seed is not None and path is None:
        raise click.UsageError("--seed is for the file that -o writes.")
    faults = corpus.corpus() if name is None else (corpus.named(name),)
    if path is not None:
        from symattn.document import files

        if not path.endswith(".npz"):
            raise click.UsageError(f"{path}: a file of NumPy ends in .npz.")
        files.write(Path(path), corpus.packed(corpus.sample(faults[0], seed or 0)), force)
        return Status.HOLDS
    with progress("running faults"):
        document = compared(map(detect, faults))
    return Output(form).emit(document)


@command.command("export", cls=Grouped)
@click.option("-o", "--output", "folder", required=True, metavar="DIR", help="The folder to write.")
@click.option("--seeds", type=Whole(1, 100), default=1, help="Samples of each fault. Default: 1.")
@click.option("--force", is_flag=True, help="Replace existing files.")
def export(folder: str, seeds: int, force: bool) -> int:
    """Write corpus.json, and a file of NumPy for each fault and seed."""
    from symattn.faults.corpus import export as write

    paths = write(Path(folder), seeds, force=force)
    say(
        f"symattn: {len(paths)} files in {folder}, {sum(p.stat().st_size for p in paths) // 1000} kB"
    )
    return Status.HOLDS
