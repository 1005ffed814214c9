"""``exercises``: ten tasks from the derivations, with numbers drawn by a seed and checked solutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.attention.positions.angles import rotate_interleaved
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import sink_weights, softmax
from symattn.attention.streaming.states import merge, tile_state
from symattn.derivations.exactly import entries, exact, same
from symattn.derivations.parameters import LIMITS, whole
from symattn.derivations.rope import ANGLE, turns
from symattn.document import notation as nt
from symattn.document.codec import command as command_of
from symattn.document.evidence import Evidence, Grade
from symattn.document.formulas import formula, running_text
from symattn.document.model import Block, Document, Emph, Heading, Paragraph, Result, Text
from symattn.document.notation import Node, equals
from symattn.proof.relations.comparing import FalseStep

Draw = np.random.Generator


@dataclass(frozen=True)
class Task:
    """A task. ``answer`` is the exact array of ``asked``, ``other`` the same computed in another way (``how``).

    ``topic`` is the derivation from which the task is taken, ``reason`` the text of the solution.
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
    """Return the line of the solution. Raises FalseStep if the two ways differ."""
    if not same(task.answer, task.other):
        raise FalseStep(
            f"the solution of the exercise on {task.topic} is not what it is {task.how}"
        )
    alone = tuple(task.answer.shape) == (1, 1)
    return equals(task.asked, entries(task.answer[0, 0] if alone else task.answer))


def _make_exercise_task(
    topic: str,
    title: str,
    question: str,
    asked: str,
    answer: Array,
    other: Array,
    how: str,
    why: str = "",
    **values: object,
) -> Task:
    """Return a task from typed words and formulas; ``values`` are the numbers in them."""
    shown = {name: _write_exercise_number(value) for name, value in values.items()}
    text, reason = (running_text(words, values=shown) for words in (question, why))
    return Task(topic, title, text, formula(asked, values=shown), answer, other, how, reason)


def _write_exercise_number(value: Any) -> Node:
    """Return a number, or a matrix, with one row for a list of numbers."""
    if not isinstance(value, list):
        return nt.node(value)
    return nt.matrix(value if isinstance(value[0], list) else [value])


def _draw_whole_numbers(rng: Draw, low: int, high: int, *shape: int) -> list[Any]:
    """Draw integers from ``low`` to ``high``, as nested lists."""
    result: list[Any] = rng.integers(low, high + 1, shape).tolist()
    return result


def _draw_unequal_scores(rng: Draw, n: int = 3) -> list[Any]:
    """Draw scores from 0 to 3 that are not all equal; exponents then stay readable."""
    # Equal scores would make every weight alike, and the task trivial.
    while len(set(result := _draw_whole_numbers(rng, 0, 3, n))) < 2:
        continue
    return result


def scaled(rng: Draw) -> Task:
    """Ask for q·k/√d_k with d_k = 4."""
    a, b = _draw_whole_numbers(rng, -2, 3, 4), _draw_whole_numbers(rng, -2, 3, 4)
    # d_k = 4 has an exact root.
    left, right = exact([a]), exact([b])
    return _make_exercise_task(
        "scaling",
        "A scaled score",
        "$q = @a$, $k = @b$. What is the scaled score?",
        "q·k/√d_k",
        scale_by_root(dot_scores(left, right), left),
        exact([[sum(x * y for x, y in zip(a, b, strict=True))]]) / 2,
        "entry by entry, divided by 2",
        a=a,
        b=b,
    )


def variance(rng: Draw) -> Task:
    """Ask for Var(q·k) = d_k for entries ±1, by enumeration."""
    # Four components have 256 pairs, few enough to enumerate.
    width = int(rng.integers(2, 5))
    combinations = range(2**width)
    signs = [[1 if i >> bit & 1 else -1 for bit in range(width)] for i in combinations]
    every = [sum(x * y for x, y in zip(a, b, strict=True)) for a in signs for b in signs]
    total = sum(x * x for x in every)
    mean_of_squares = exact([[total]]) / len(every)
    question = """Every entry of $q$ and $k$ is 1 or −1, each with probability 1/2 and independent of the others, and \
$d_k = @width$. What is the variance of the score?"""
    return _make_exercise_task(
        "scaling", "The variance of a score", question, "Var(q·k)", exact([[width]]), mean_of_squares,
        f"as the mean over all {len(every)} pairs", "The mean is 0, and variances add up.", width=width,
    )  # fmt: skip


def shift(rng: Draw) -> Task:
    """Ask for softmax(s + c) = softmax(s)."""
    # A large shift makes the exponentials unwieldy unless it is subtracted.
    row, by = _draw_unequal_scores(rng), int(rng.integers(10, 100))
    moved = [x + by for x in row]
    return _make_exercise_task(
        "shift",
        "Softmax of large scores",
        "$s = @moved$. What are the weights?",
        "softmax(s)",
        softmax(exact([row])),
        softmax(exact([moved])),
        "with the scores as they are given",
        f"Only differences matter: subtract {by} from each.",
        moved=moved,
    )


def jacobian(rng: Draw) -> Task:
    """Ask for diag(p) − p pᵀ with fractions as weights."""
    parts = _draw_whole_numbers(rng, 1, 4, 3)
    p = exact([parts]) / sum(parts)
    row = p.tolist()[0]
    by_entry = exact([[row[i] * (int(i == j) - row[j]) for j in range(3)] for i in range(3)])
    diagonal = exact([[row[i] if i == j else 0 for j in range(3)] for i in range(3)])
    question = "The weights are $p = @p$. What are their derivatives by the scores?"
    return _make_exercise_task(
        "jacobian",
        "The derivatives of softmax",
        question,
        "diag(p) - p pᵀ",
        diagonal - p.mT @ p,
        by_entry,
        "entry by entry",
        p=[x.notation() for x in row],
    )


def output(rng: Draw) -> Task:
    """Ask for the output of one query with two keys and values."""
    query, keys, values = (
        _draw_whole_numbers(rng, 0, 1, 2),
        _draw_whole_numbers(rng, 0, 2, 2, 2),
        _draw_whole_numbers(rng, -2, 4, 2, 2),
    )
    weights = softmax(dot_scores(exact([query]), exact(keys)))
    pairs = [[w * v[c] for w, v in zip(weights.tolist()[0], values, strict=True)] for c in range(2)]
    return _make_exercise_task(
        "matrix-form",
        "One query, two keys",
        "$q = @q$, $K = @k$, $V = @v$, without scaling. What is the output?",
        "o",
        weights @ exact(values),
        exact([[a + b for a, b in pairs]]),
        "value by value",
        q=query,
        k=keys,
        v=values,
    )


def permuted(rng: Draw) -> Task:
    """Ask for the weights of permuted keys, which are permuted weights."""
    row = _draw_unequal_scores(rng)
    # All orders but the identity.
    order = [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][int(rng.integers(5))]
    weights = softmax(exact([row])).tolist()[0]
    question = f"""$s = @row$ are the scores of keys 1, 2, 3. The keys come as \
{", ".join(str(i + 1) for i in order)} instead. What are the weights, in the new order?"""
    return _make_exercise_task(
        "equivariance",
        "Keys in another order",
        question,
        "a",
        softmax(exact([[row[i] for i in order]])),
        exact([[weights[i] for i in order]]),
        "as the old weights in the new order",
        row=row,
    )


def tiles(rng: Draw) -> Task:
    """Ask for the sum of exponentials of two tiles, relative to the common maximum."""
    # The second tile may have the larger maximum, so that the first is rescaled.
    first = _draw_unequal_scores(rng, 2)
    second = [x + 2 for x in _draw_unequal_scores(rng, 2)]
    ones = exact([[1]] * 4)
    row, values = exact([first + second]), ones
    parts = (
        tile_state(exact([first]), exact([[1]] * 2)),
        tile_state(exact([second]), exact([[1]] * 2)),
    )
    question = """Scores come in two tiles, $@first$ and $@second$. With $m$ the largest of all, what is the sum of \
$e^{s_j - m}$ that the tiles merge to?"""
    return _make_exercise_task(
        "online-softmax",
        "Two tiles",
        question,
        "ℓ",
        merge(*parts).normaliser,
        tile_state(row, values).normaliser,
        "over all four scores at once",
        "The sum of the first tile is multiplied by $e^@by$.",
        first=first,
        second=second,
        by=max(first) - max(first + second),
    )


def lookup(rng: Draw) -> Task:
    """Ask for the limit of softmax(βs): equal shares of the largest scores."""
    row = _draw_unequal_scores(rng, 4)
    # Ties share the limit equally.
    ties = [int(x == max(row)) for x in row]
    zeros = exact([[0] * sum(ties)])
    share = softmax(zeros).tolist()[0][0]
    return _make_exercise_task(
        "lookup",
        "Sharp attention",
        "$s = @row$. What do the weights of $β s$ tend to as $β$ grows?",
        "a",
        exact([ties]) / sum(ties),
        exact([[share if tie else 0 for tie in ties]]),
        "as softmax over the largest scores alone",
        row=row,
    )


def sink(rng: Draw) -> Task:
    """Ask for the weights with a sink, one more key of value 0."""
    row, z = _draw_unequal_scores(rng, 2), int(rng.integers(0, 3))
    question = "$s = @row$ and a sink of score $@z$. What are the weights of the two keys?"
    return _make_exercise_task(
        "sinks",
        "A sink",
        question,
        "a",
        sink_weights(exact([row]), exact([[z]])),
        softmax(exact([[*row, z]]))[:, :2],
        "with the sink as a third key",
        row=row,
        z=z,
    )


def rotated(rng: Draw) -> Task:
    """Ask for a score at positions (m, n), equal to that at (0, n − m)."""
    query = _draw_whole_numbers(rng, 1, 3, 2)
    key = _draw_whole_numbers(rng, 1, 3, 2)
    # that of the query; the key's is the next
    place = 1
    angles = turns()
    here = (
        rotate_interleaved(exact([query]), *angles[place]),
        rotate_interleaved(exact([key]), *angles[place + 1]),
    )
    shifted = (
        rotate_interleaved(exact([query]), *angles[0]),
        rotate_interleaved(exact([key]), *angles[1]),
    )
    # Positions far from 0 make it worth knowing that only their distance matters.
    question = f"""$q = @query$, $k = @key$ at the positions {place + 17} and {place + 18}. A position turns by the \
angle of cosine $@cosine$ and sine $@sine$. What is the score?"""
    return _make_exercise_task(
        "rope",
        "Rotary positions",
        question,
        "(R_m q)·(R_n k)",
        dot_scores(*shifted),
        dot_scores(*here),
        f"at the positions {place} and {place + 1}",
        "Only the distance matters, so put the query at 0.",
        query=query,
        key=key,
        cosine=nt.Number(ANGLE[0]),
        sine=nt.Number(ANGLE[1]),
    )


TASKS: tuple[Callable[[Draw], Task], ...] = (
    scaled,
    variance,
    shift,
    jacobian,
    output,
    permuted,
    tiles,
    lookup,
    sink,
    rotated,
)


# -- the sheet ---------------------------------------------------------------------------------------------------------
_PLACE = "Answer: " + "_" * 40


def exercises(seed: int = 1, *, answers: bool = False) -> Document:
    """Return ten tasks on one sheet: small whole numbers, drawn by ``seed``; ``answers`` adds the solutions.

    Every solution is computed in exact numbers in two ways, those of the derivation that the task comes from, even
    if solutions are not shown. Raises InputError for a seed that is not a whole number from 0 on, FalseStep if the
    two ways differ.

    >>> sheet = exercises(seed=3)
    >>> sum(line.startswith("Answer") for line in sheet.text().splitlines())
    10
    >>> exercises(seed=3, answers=True).holds
    True
    """
    whole("seed", seed, LIMITS["seed"], 0)
    rng = np.random.default_rng(seed)
    # The tasks share a generator, so that their order decides the numbers of each.
    tasks = [make(rng) for make in TASKS]
    command = command_of("exercises", options={"seed": seed, "answers": answers or None})
    return Document(
        "derivation",
        "exercises",
        ("Ten exercises on attention",),
        (*_yield_exercise_questions(tasks), *_yield_exercise_solutions(tasks, answers)),
        (f"seed {seed}",),
        command,
        {"seed": seed, "answers": answers},
        {"exercises": [task.topic for task in tasks]},
        hints=() if answers else (f"{command} --answers",),
    )


def _yield_exercise_questions(tasks: list[Task]) -> Iterator[Block]:
    yield Paragraph(("Write answers exactly: fractions and powers of e stay as they are.",))
    for task in tasks:
        yield Heading((task.title,))
        yield Paragraph(task.question)
        yield Paragraph((_PLACE,))


def _yield_exercise_solutions(tasks: list[Task], shown: bool) -> Iterator[Block]:
    """Check the solutions and, if they are ``shown``, yield them after their source."""
    # Checked even if hidden, or a sheet without solutions could have a wrong task.
    lines = [checked(task) for task in tasks]
    if not shown:
        return
    yield Heading(("Solutions",))
    yield Paragraph(
        (
            "Each was computed in exact numbers in two ways. Why it is so: ",
            Emph("symattn derive"),
            ".",
        )
    )
    for number, (task, line) in enumerate(zip(tasks, lines, strict=True), 1):
        evidence = Evidence(Grade.CHECKED, f"also {task.how}")
        yield Result(f"Solution {number}: {task.topic}", (line,), (evidence,), text=task.reason)
