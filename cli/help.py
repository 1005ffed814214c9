"""``symattn help``: the options that many commands share, explained once."""

from __future__ import annotations

import click

from .choices import Choice
from .main import TABLE, commands

# Topic → the command that has all of its options.
TOPICS = dict.fromkeys(("fields", "calling", "effort", "inputs", "output"), "verify")
AGENTS = "agents"  # a text for programs that write kernels


@click.command("help")
@click.argument(
    "topic", metavar="[TOPIC|COMMAND]", required=False, type=Choice((*TOPICS, AGENTS, *TABLE))
)
@click.pass_context
def command(ctx: click.Context, topic: str | None) -> None:
    """Explain the options of TOPIC, which several commands share, or print the help of a command or of symattn.

    \b
    symattn help           the same as symattn --help
    symattn help fields    which attention: --causal, --heads, --position, ...
    symattn help calling   how a function is called: --layout, --mask-arg, ...
    symattn help effort    how much is tried: --examples, --budget, ...
    symattn help inputs    what is guaranteed about inputs: --multiple-of, ...
    symattn help output    where the document goes: --format, --output, ...
    symattn help agents    how a program gates the kernels that it writes
    symattn help verify    the same as symattn verify --help
    """
    if topic is None:
        click.echo(commands.get_help(ctx.find_root()))
        return
    if topic == AGENTS:
        click.echo(_skill())
        return
    from .fields import kinds
    from .groups import listed

    name = TOPICS.get(topic, topic)
    explained = commands.get_command(ctx, name)
    assert explained is not None
    inner = click.Context(explained, info_name=name, parent=ctx.parent)
    if topic not in TOPICS:
        click.echo(explained.get_help(inner))
        return
    for option in explained.params:
        if isinstance(option, click.Option) and option.help:
            option.help += kinds(option.name or "")
    formatter = ctx.make_formatter()
    for title, lines in listed(explained, inner, topic).items():
        with formatter.section(title):
            formatter.write_dl(lines)
    click.echo(formatter.getvalue().rstrip("\n"))


def _skill() -> str:
    """Return the text of ``agents/SKILL.md``, without what its first lines say to a catalogue of skills."""
    from importlib.resources import files

    text = files(__package__).joinpath("agents", "SKILL.md").read_text(encoding="utf-8")
    return text.split("---\n", 2)[2].strip("\n")
