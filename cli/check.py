"""``symattn check``: is a certificate valid, and is a document what symattn writes today?"""

from __future__ import annotations

import re
from pathlib import Path

import click

from .errors import Status

_MAX_RELATIONS = 12


@click.command("check")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--skip-others", is_flag=True, help="Pass over files that symattn did not write.")
def command(files: tuple[Path, ...], skip_others: bool) -> int:
    """Check the certificates in FILES, or whether the documents in FILES are what symattn writes today.

    \b
    symattn prove softmax-shift --certificate shift.json
    symattn check shift.json
    symattn check docs/*.md --skip-others

    `symattn prove NAME --certificate FILE` writes certificates. The checker shares no code with the prover, and trusts
    nothing in the file: the relations that it prints are made of what it accepted, and the words of the file are marked
    as not checked. A document names the command that wrote it: that command is run again, unless it may run code,
    and the results are compared. The exit code is 0 if every certificate is accepted and every document is up to date,
    and 1 otherwise.
    """
    return max(_checked(file, skip_others) for file in files)


def _checked(file: Path, skip_others: bool) -> int:
    from symattn.document.files import written_by_symattn

    if file.stat().st_size and written_by_symattn(file) and not _holds_certificates(file):
        from .up_to_date import check

        return check(file)
    return Status.HOLDS if skip_others and not _holds_certificates(file) else _certificates(file)


def _holds_certificates(file: Path) -> bool:
    with file.open("rb") as source:
        return re.search(rb'"kind":\s*"certificates"', source.read(200)) is not None


def _certificates(file: Path) -> int:
    from symattn.proof.checker import LARGEST, check_file

    with file.open("rb") as source:
        file_verdicts = check_file(source.read(LARGEST + 1))
    if file_verdicts.why and not _holds_certificates(file):
        why = f" ({file_verdicts.why})" if file.suffix == ".json" else ""
        click.echo(
            f"refused: {file}: symattn did not write it{why}; hint: --skip-others passes over such files"
        )
        return Status.FAULT
    if file_verdicts.why:
        click.echo(
            f"refused: {file_verdicts.name + ': ' if file_verdicts.name else ''}{file_verdicts.why}"
        )
        return Status.FAULT
    many = (
        "the certificate is"
        if file_verdicts.certificates == 1
        else f"all {file_verdicts.certificates} certificates are"
    )
    error = (
        f", with an error of at most {file_verdicts.epsilon:.0e}" if file_verdicts.epsilon else ""
    )
    click.echo(f"{file_verdicts.name}: {many} accepted{error}.")
    for relation in file_verdicts.relations[:_MAX_RELATIONS]:
        click.echo(f"proved: {relation}")
    if left_out := len(file_verdicts.relations[_MAX_RELATIONS:]):
        click.echo(f"proved: {left_out} more relations, which are not printed")
    click.echo(f"Informal statement (not checked): {file_verdicts.says}")
    for words in file_verdicts.hypotheses:
        click.echo(f"  hypothesis in words (not checked): {words}")
    if file_verdicts.rule:
        click.echo(f"  argued, by a step in words, which is not checked: {file_verdicts.rule}")
    return Status.HOLDS
