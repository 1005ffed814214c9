"""The command ``symattn``: a table of commands, each imported when it is called, so that ``--help`` is instant."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module

import click

from .choices import understood

# The groups of the help. Each command, named like its module in this package, with its short help, so that --help
# imports none of them.
GROUPS = {
    "Start here": {
        "walk": "Walk through an example of attention in exact numbers.",
        "claim": "Check a claim about weights, similarities or expressions.",
        "derive": "Derive a fact about attention, step by step.",
        "verify": "Verify a function that computes attention against exact mathematics.",
    },
    "Learn and teach": {
        "explore": "Write a page with editable inputs that recomputes every step.",
        "draw": "Draw a picture from the same numbers: SVG, PDF or PNG.",
        "exercises": "Write a sheet of ten exercises, with checked solutions.",
        "examples": "List the worked examples, or show one.",
    },
    "Prove": {
        "prove": "Prove theorems for all sizes, or your own.",
        "report": "Write the book: every theorem with its proof, grade and false variant.",
        "check": "Check certificates without the prover, or whether documents are up to date.",
    },
    "Check code": {
        "judge": "Gate a kernel: one status, as JSON, on inputs that it has not seen.",
        "compare": "Find which of two implementations is wrong.",
        "bound": "Print the tolerance that a test of attention needs.",
        "arithmetic": "Identify a kernel's storage precision and summation order.",
        "faults": "Explain causes by their codes; run or export known mistakes.",
        "campaign": "Verify many targets, specifications and dtypes at once.",
    },
    "Models": {
        "audit": "Run a script and judge every attention call in it.",
        "models": "Infer the attention of model types from runs, or lock it.",
        "generation": "Check that caches, padding and batches give the logits of the prefill.",
    },
    "Tool": {
        "help": "Explain a group of options, or a command.",
        "version": "Print the version.",
        "cache": "Show the location and size of the cache, or clear it.",
        "schema": "Print the JSON Schema of documents, judgements or sheets.",
        "completion": "Print the completion script for a shell.",
    },
}
TABLE = {name: does for group in GROUPS.values() for name, does in group.items()}
COMPLETE = "_SYMATTN_COMPLETE"


class Commands(click.Group):
    """A group whose commands are imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(TABLE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in TABLE:
            return None
        command = import_module(f".{cmd_name}", __package__).command
        assert isinstance(command, click.Command)
        command.short_help = TABLE[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in TABLE and not args[0].startswith("-") and not ctx.resilient_parsing:
            from symattn.document.errors import near  # help imports nothing of symattn

            target = ".py" in args[0] or ":" in args[0]
            meant = f" Did you mean `symattn verify {args[0]}`?" if target else near(args[0], TABLE)
            ctx.fail(f"there is no command {args[0]!r}.{meant}")
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not ctx.resilient_parsing:
            from .defaults import given, spelled

            ctx.token_normalize_func = partial(understood, spelled(command))
            ctx.default_map = {name: given(command, name, tuple(TABLE))}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, TABLE))  # one column of names for all groups
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), does) for name, does in group.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from symattn import __version__

        click.echo(f"symattn {__version__}")
        ctx.exit()


@click.group(
    cls=Commands,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={
        "help_option_names": ["-h", "--help"],  # also in .defaults, which --help does not import
        "color": False if os.environ.get("NO_COLOR") else None,
    },
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def commands(ctx: click.Context) -> None:
    """The exact mathematics of attention: derive it, walk through it, check code against it.

    Every equation is labelled with how it was established.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``symattn`` with the arguments, by default those of the process, and return the exit code."""
    if arguments is None:
        gc.set_threshold(20_000, 20, 20)  # a tenth of the time was spent on collecting cycles
    try:
        if COMPLETE in os.environ:
            from click.shell_completion import shell_complete

            return shell_complete(commands, {}, "symattn", COMPLETE, os.environ[COMPLETE])
        words = list(sys.argv[1:] if arguments is None else arguments)
        with commands.make_context("symattn", words) as context:
            return int(commands.invoke(context) or 0)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except (
        Exception,
        KeyboardInterrupt,
        SystemExit,
    ) as error:  # a model's or a theorem's code may end the process
        from .errors import report

        return report(error)
