"""``symattn completion``: the script with which a shell completes commands and options."""

from __future__ import annotations

import click

from .choices import Choice

# PowerShell asks for completions through the same protocol as fish: one "kind,word" or "kind,word<tab>help" a line.
_POWERSHELL = r"""Register-ArgumentCompleter -Native -CommandName symattn -ScriptBlock {
    param($word, $command, $cursor)
    $words = $command.ToString()
    if ($words.Length -lt $cursor) { $words += ' ' }
    $env:COMP_WORDS = $words
    $env:COMP_CWORD = $word
    $env:_SYMATTN_COMPLETE = 'fish_complete'
    try {
        symattn | ForEach-Object {
            $kind, $rest = $_ -split ',', 2
            $text, $help = $rest -split "`t", 2
            if ($kind -eq 'plain') {
                if (-not $help) { $help = $text }
                [System.Management.Automation.CompletionResult]::new($text, $text, 'ParameterValue', $help)
            }
        }
    } finally {
        Remove-Item Env:COMP_WORDS, Env:COMP_CWORD, Env:_SYMATTN_COMPLETE
    }
}"""


@click.command("completion")
@click.argument("shell", type=Choice(("bash", "zsh", "fish", "powershell")))
def command(shell: str) -> int:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(symattn completion bash)"           in ~/.bashrc
    zsh:   eval "$(symattn completion zsh)"            in ~/.zshrc
    fish:  symattn completion fish > ~/.config/fish/completions/symattn.fish
    PowerShell, in $PROFILE:
           symattn completion powershell | Out-String | Invoke-Expression
    """
    if shell == "powershell":
        click.echo(_POWERSHELL)
        return 0
    from click.shell_completion import shell_complete

    from .main import COMPLETE, commands

    return shell_complete(commands, {}, "symattn", COMPLETE, f"{shell}_source")
