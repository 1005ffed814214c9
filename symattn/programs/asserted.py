"""``judged``: what ``symattn.testing.assert_close_to_exact`` asks of an output, of gradients and of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symattn.arrays.precision import Contract, Precision
from symattn.attention.spec import Attention
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import InputError
from symattn.programs.closeness import check_alpha, close_to_exact, on_cpu, only_if_stored, ready
from symattn.programs.descale import arithmetic, scaled
from symattn.programs.pieces import Layout, close_by_pieces
from symattn.programs.runtimes import suspect
from symattn.verification.report import Sought


@dataclass(frozen=True)
class Question:
    """The arguments of ``assert_close_to_exact``; ``given`` are its inputs by name, ``layout`` how they are packed."""

    out: Any
    given: Mapping[str, Any]
    layout: Layout
    spec: Attention | None
    precision: str | Precision | None
    contract: Contract | None
    alpha: float | None
    rows: int | Sequence[int] | None
    lse: Any = None
    do: Any = None
    gradients: Sequence[Any] | None = None
    power: Mapping[str, float] | None = None

    @classmethod
    def of(cls, out: Any, inputs: Mapping[str, Any], spec: Attention | None, **told: Any) -> Question:
        """What is told, with the words of a layout taken out of the inputs, and inputs that are None left out.

        With descale factors, the precision is that of FP8 kernels (``descale.arithmetic``).
        """
        layout = Layout(*(inputs.get(name) for name in Layout._fields))
        given = {n: a for n, a in inputs.items() if a is not None and n not in Layout._fields}
        if scaled(given):
            told["precision"] = arithmetic(told["precision"], told["contract"], given, out)
        return cls(out, given, layout, spec, **told)


@one_blas_thread
def judged(asked: Question) -> tuple[str, tuple[Sought, ...]]:
    """What is wrong, in words, empty where nothing is; and of the mistakes of ``power`` how they would be seen.

    A power that the comparison has not is wrong. A runtime that multiplies wrong in the format is named first. Raises
    ``InputError`` for what does not fit together.
    """
    _check(asked)
    words = _of_output(asked) or _of_gradients(asked)
    if words and (runtime := suspect(asked.given["q"])):
        return f"{runtime}\nWhat it has made is not the fault of the function that called it: {words}", ()
    return (words, ()) if words or not asked.power else _of_power(asked)


def stored(asked: Question) -> str:
    """Describe why a right output is right only because scores may be stored, where no contract is given; else ""."""
    if asked.contract or asked.alpha is None or isinstance(asked.precision, Precision) or not asked.layout.plain:
        return ""
    return only_if_stored(asked.out, asked.given, asked.spec, asked.precision, asked.alpha, asked.rows)


def _check(asked: Question) -> None:
    check_alpha(asked.alpha)
    if asked.gradients is not None and (asked.do is None or not asked.layout.plain):
        raise InputError("gradients are those of ⟨do, out⟩ for one array of each; hint: give do, and no packed layout")
    if asked.do is not None and asked.gradients is None:
        raise InputError("do is for gradients, and there are none; hint: give gradients=(dq, dk, dv), or leave out do")
    if isinstance(asked.gradients, tuple | list) and all(a is None for a in asked.gradients):
        raise InputError("gradients are None, all of them; hint: give one that is to be judged, or leave out gradients")
    if scaled(asked.given) and (asked.gradients is not None or asked.power is not None):
        raise InputError("with descale factors the output alone is judged; hint: leave out gradients and power")
    if asked.power is None:
        return
    if not isinstance(asked.power, Mapping) or not asked.power:
        raise InputError(f"power is {asked.power!r}; hint: parts of numbers by steps, such as {{'scale': 0.001}}")
    if not asked.layout.plain:
        raise InputError("power is for one array of each; hint: no packed layout, but a call for each sequence")


def _half(asked: Question) -> float | None:
    """Of ``alpha``: the rest is for the rows that are read for a power."""
    return asked.alpha / 2 if asked.power and asked.alpha is not None else asked.alpha


def _of_output(asked: Question) -> str:
    told: dict[str, Any] = {"contract": asked.contract, "alpha": _half(asked), "rows": asked.rows}
    given = asked.given, asked.spec, asked.precision, asked.lse
    if asked.layout.plain:
        return close_to_exact(asked.out, *given, **told)
    inputs, *how = given
    return close_by_pieces(asked.out, inputs, asked.layout, *how, **told)


def _of_gradients(asked: Question) -> str:
    if asked.gradients is None:
        return ""
    from symattn.programs.gradients import gradients_close_to_exact  # most outputs come without

    how: dict[str, Any] = {"contract": asked.contract, "rows": asked.rows}
    return gradients_close_to_exact(asked.given, asked.do, asked.gradients, asked.spec, asked.precision, **how)


def _of_power(asked: Question) -> tuple[str, tuple[Sought, ...]]:
    from symattn.programs.sensitivity import sought  # the known mistakes, which most comparisons need not import

    assert asked.power is not None
    half = _half(asked)
    of = ready(asked.given, asked.spec, asked.precision, asked.contract, half)
    of = of._replace(inputs=on_cpu(of.inputs))  # what would be seen is NumPy's to tell
    words, found = sought(of, asked.out, asked.power, half or 1.0, asked.rows)
    missed = [f"No fault was found, but {one.words} would not be seen\n{one.how}" for one in found if not one.seen]
    return words or "\n".join(missed), found
