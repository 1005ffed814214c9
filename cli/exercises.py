"""``symattn exercises``: a sheet of ten exercises, and their solutions."""

from __future__ import annotations

import click

from .groups import Grouped
from .output import Output, options
from .progress import progress


@click.command("exercises", cls=Grouped)
@click.option("--seed", type=int, default=1, help="Seed of the numbers. Default: 1.")
@click.option("--answers", is_flag=True, help="Add the solutions.")
@options
def command(seed: int, answers: bool, output: Output) -> int:
    """Write a sheet of ten exercises from the derivations, in small whole numbers.

    \b
    symattn exercises -o sheet.tex
    symattn exercises --seed 7 --answers -o solutions.html

    Every solution is computed exactly in two ways that must agree, whether or not it is shown.
    """
    from symattn.derivations.exercises import exercises

    with progress("drawing exercises"):
        document = exercises(seed, answers=answers)
    return output.emit(document)
