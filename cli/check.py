"""``symattn check``: is a certificate what it says?"""

from __future__ import annotations

from pathlib import Path

import click


@click.command("check", short_help="Check a file of certificates, without the prover.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def command(file: Path) -> int:
    """Check the certificates in FILE, which `symattn prove NAME --certificate FILE` wrote.

    The checker shares no code with the prover, and believes nothing that the file says. The exit code is 0 where it
    accepts every certificate, and 1 where it refuses one.

    \b
    symattn prove softmax-shift --certificate shift.json
    symattn check shift.json
    """
    from symattn.proof.checker_files import LARGEST, check_file

    with file.open("rb") as source:
        found = check_file(source.read(LARGEST + 1))
    if found.why:
        click.echo(f"refused: {found.name + ': ' if found.name else ''}{found.why}")
        return 1
    many = "the certificate is" if found.certificates == 1 else f"all {found.certificates} certificates are"
    error = f", with an error of at most {found.epsilon:.0e}" if found.epsilon else ""
    click.echo(f"{found.name}: {many} accepted{error}.")
    click.echo(f"{found.grade}: {found.says}")
    for words in found.hypotheses:
        click.echo(f"  hypothesis: {words}")
    if found.rule:
        click.echo(f"  a step in words, which is not checked: {found.rule}")
    return 0
