"""``judged``: what ``symattn.testing.assert_close_to_exact`` asks of an output, of gradients and of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import InputError
from symattn.programs.closeness import check_alpha, close_to_exact, on_cpu, ready
from symattn.programs.descale import scaled
from symattn.programs.pieces import close_by_pieces
from symattn.programs.question import Question
from symattn.programs.runtimes import suspect
from symattn.verification.report import Sought


@one_blas_thread
def judged(question: Question) -> tuple[str, tuple[Sought, ...]]:
    """Describe what is wrong, empty where nothing is; and say of the mistakes of ``power`` how they would be detected.

    A power that the comparison has not is wrong. A runtime that multiplies wrong in the format is named first. Raises
    ``InputError`` for what does not fit together.
    """
    _check(question)
    if question.power and question.alpha is not None:
        question = replace(question, alpha=question.alpha / 2)  # the rest is for the rows that are read for a power
    words = (close_to_exact(question) if question.layout.plain else close_by_pieces(question)) or _of_gradients(
        question
    )
    if words and (runtime := suspect(question.given["q"])):
        return f"{runtime}\nWhat it has made is not the fault of the function that called it: {words}", ()
    return (words, ()) if words or not question.power else _of_power(question)


def _check(question: Question) -> None:
    check_alpha(question.alpha)
    if question.gradients is not None and (question.do is None or not question.layout.plain):
        raise InputError("gradients are those of ⟨do, out⟩ for one array of each; hint: give do, and no packed layout")
    if question.do is not None and question.gradients is None:
        raise InputError("do is for gradients, and there are none; hint: give gradients=(dq, dk, dv), or leave out do")
    if isinstance(question.gradients, tuple | list) and all(a is None for a in question.gradients):
        raise InputError("gradients are None, all of them; hint: give one that is to be judged, or leave out gradients")
    if scaled(question.given) and (question.gradients is not None or question.power is not None):
        raise InputError("with descale factors the output alone is judged; hint: leave out gradients and power")
    if question.power is None:
        return
    if not isinstance(question.power, Mapping) or not question.power:
        raise InputError(f"power is {question.power!r}; hint: parts of numbers by steps, such as {{'scale': 0.001}}")
    if not question.layout.plain:
        raise InputError("power is for one array of each; hint: no packed layout, but a call for each sequence")


def _of_gradients(question: Question) -> str:
    if question.gradients is None:
        return ""
    from symattn.programs.gradients import gradients_close_to_exact  # most outputs come without

    return gradients_close_to_exact(question)


def _of_power(question: Question) -> tuple[str, tuple[Sought, ...]]:
    from symattn.programs.sensitivity import sought  # the known mistakes, which most comparisons need not import

    assert question.power is not None
    of = ready(question)
    of = of._replace(inputs=on_cpu(of.inputs))  # what would be detected is NumPy's to tell
    words, results = sought(of, question.out, question.power, question.alpha or 1.0, question.rows)
    missed = [f"No fault was found, but {r.words} would not be detected\n{r.how}" for r in results if not r.seen]
    return words or "\n".join(missed), results
