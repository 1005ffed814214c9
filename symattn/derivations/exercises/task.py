"""A task: its question, its solution, and the same found in another way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symattn.derivations.exactly import entries, same
from symattn.derivations.steps import FalseStep
from symattn.document.model import Text
from symattn.document.notation import Node, equals


@dataclass(frozen=True)
class Task:
    """``answer`` and ``other`` are exact arrays: what ``asked`` is, and the same found as ``how`` says.

    ``topic`` is the derivation that the task is taken from, ``reason`` what the solution says beside its number.
    """

    topic: str
    title: str
    question: Text
    asked: Node
    answer: Any
    other: Any
    how: str
    reason: Text = ()


def checked(task: Task) -> Node:
    """The line of the solution. Raises FalseStep where the two ways differ."""
    if not same(task.answer, task.other):
        raise FalseStep(f"the solution of the exercise on {task.topic} is not what it is {task.how}")
    alone = tuple(task.answer.shape) == (1, 1)
    return equals(task.asked, entries(task.answer[0, 0] if alone else task.answer))
