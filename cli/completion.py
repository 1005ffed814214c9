"""``symattn completion``: the script by which a shell completes commands and options."""

from __future__ import annotations

import click

from .choices import Choice


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=Choice(("bash", "zsh", "fish")))
def command(shell: str) -> int:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(symattn completion bash)"           in ~/.bashrc
    zsh:   eval "$(symattn completion zsh)"            in ~/.zshrc
    fish:  symattn completion fish > ~/.config/fish/completions/symattn.fish
    """
    from click.shell_completion import shell_complete

    from .main import COMPLETE, commands

    return shell_complete(commands, {}, "symattn", COMPLETE, f"{shell}_source")
