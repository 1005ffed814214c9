"""``exercises``: ten tasks from the derivations, with numbers drawn by a seed, and solutions that are checked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from symattn.derivations.exercises.task import Task, checked
from symattn.derivations.exercises.tasks import TASKS
from symattn.derivations.parameters import LIMITS, whole
from symattn.document.codec import command as command_of
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Block, Document, Emph, Heading, Paragraph, Result

_PLACE = "Answer: " + "_" * 40


def exercises(seed: int = 1, *, answers: bool = False) -> Document:
    """Return ten tasks on one sheet: small whole numbers, drawn by ``seed``; ``answers`` adds the solutions.

    Every solution is computed in exact numbers in two ways, as the derivation that the task is taken from has them,
    also where the solutions are not shown. Raises InputError for a seed that is no whole number from 0 on, and
    FalseStep if the two ways differ.

    >>> sheet = exercises(seed=3)
    >>> sum(line.startswith("Answer") for line in sheet.text().splitlines())
    10
    >>> exercises(seed=3, answers=True).holds
    True
    """
    whole("seed", seed, LIMITS["seed"], 0)
    rng = np.random.default_rng(seed)
    tasks = [make(rng) for make in TASKS]
    command = command_of("exercises", options={"seed": seed, "answers": answers or None})
    return Document(
        "derivation",
        "exercises",
        ("Ten exercises on attention",),
        (*_asked(tasks), *_answered(tasks, answers)),
        (f"seed {seed}",),
        command,
        {"seed": seed, "answers": answers},
        {"exercises": [task.topic for task in tasks]},
        hints=() if answers else (f"{command} --answers",),
    )


def _asked(tasks: list[Task]) -> Iterator[Block]:
    yield Paragraph(("Write answers exactly: fractions and powers of e stay as they are.",))
    for task in tasks:
        yield Heading((task.title,))
        yield Paragraph(task.question)
        yield Paragraph((_PLACE,))


def _answered(tasks: list[Task], shown: bool) -> Iterator[Block]:
    """The solutions, and before them where they come from; each is checked whether it is shown or not."""
    lines = [checked(task) for task in tasks]
    if not shown:
        return
    yield Heading(("Solutions",))
    yield Paragraph(("Each was computed in exact numbers in two ways. Why it is so: ", Emph("symattn derive"), "."))
    for number, (task, line) in enumerate(zip(tasks, lines, strict=True), 1):
        evidence = Evidence(Grade.CHECKED, f"also {task.how}")
        yield Result(f"Solution {number}: {task.topic}", (line,), (evidence,), text=task.reason)
