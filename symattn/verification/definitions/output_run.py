"""The first output of a definition as that of an attention, by whose run it is bounded and its faults are named.

One bound on a run covers every way of computing an attention (``bounds.judge.of_attention``), where a way of a
definition has a bound of its own, which says nothing of other ways. So an output that is that of an attention has one
bound, the same as if it were returned alone; only the other outputs are bounded way by way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from symattn.arrays.enclosure import Enclosure
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds import judge, reference
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Expected
from symattn.bounds.mistake import Compute
from symattn.document.errors import Refused, Undecided


@dataclass(frozen=True)
class OutputRun:
    """The runs of an attention with the first output of a definition, as functions of the definition's inputs.

    run     the run itself, by which an array beyond a format's range is named; None if its output has another order
            of axes than the definition's
    legal   the legal outputs of the attention; None if each way of the definition has a bound of its own
    others  the other outputs by each way of the definition, if ``legal`` bounds the first one
    screened  the outputs in float64 with a narrow allowed error, or None if they are not to be screened; without it,
            those of the first way
    """

    run: Callable[[Inputs], reference.Run] | None
    legal: Callable[[Precision, Inputs], judge.Legal] | None = None
    others: tuple[Compute, ...] = ()
    screened: Callable[[Precision, Inputs], Sequence[Expected] | None] | None = None


#: The axis of tokens in arrays of an attention.
_ROWS = -2


def of_attention(
    spec: Attention,
    arrays: Callable[[Inputs], Inputs],
    others: tuple[Compute, ...] = (),
    tokens: int = _ROWS,
) -> OutputRun:
    """Return the runs of an attention to ``arrays``, which are made of a definition's inputs.

    ``others`` are the other outputs by each way of the definition, and ``tokens`` is the axis of queries in its first
    output, counted from the end.
    """
    plain = replace(spec, lse=False)
    run = partial(_run_in_enclosures, plain, arrays) if tokens == _ROWS else None
    # Without a softmax, or with dropout, the bound needs balls, which take longer than all ways.
    if not plain.is_softmax or plain.dropout:
        return OutputRun(run)
    return OutputRun(run, partial(_find_legal_outputs, plain, arrays, tokens), others)


def _run_in_enclosures(
    spec: Attention, arrays: Callable[[Inputs], Inputs], inputs: Inputs
) -> reference.Run:
    # Enclosures are fast, but may leave a comparison open.
    try:
        return reference.run(spec, arrays(inputs), kind=Enclosure)
    except (Refused, Undecided):
        return reference.run(spec, arrays(inputs))


def _find_legal_outputs(
    spec: Attention,
    arrays: Callable[[Inputs], Inputs],
    tokens: int,
    precision: Precision,
    inputs: Inputs,
) -> judge.Legal:
    legal = judge.of_attention(spec, precision, arrays(inputs))
    if tokens == _ROWS:
        return legal
    (way,) = legal.ways
    return legal._replace(
        ways=[lambda: [MovedOutput.of(e, tokens) for e in way()]],
        unsaid=lambda: [MovedOutput.of(e, tokens) for e in legal.unsaid()],
    )


@dataclass(frozen=True)
class MovedOutput(Expected):
    """An output of an attention whose rows are moved from the axis before the columns to the axis ``tokens``."""

    known: Expected
    tokens: int
    allowed: np.ndarray

    @classmethod
    def of(cls, known: Expected, tokens: int) -> MovedOutput:
        """Return an output with its rows moved, and with its own bound."""
        return cls(known, tokens, np.moveaxis(known.allowed, _ROWS, tokens))

    def _move(self, a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a, _ROWS, self.tokens)

    @property
    def _in_rows(self) -> Expected:
        """The output with the same bound, in the order of the attention's axes."""
        return self.known.widened(np.moveaxis(self.allowed, self.tokens, _ROWS))

    @property
    def entries(self) -> np.ndarray:
        """See ``Expected.entries``."""
        return self._move(self.known.entries)

    def enclosures(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See ``Expected.enclosures``."""
        for middle, radius in self.known.enclosures():
            yield self._move(middle), self._move(radius)

    @cached_property
    def near(self) -> np.ndarray:
        """See ``Expected.near``."""
        return self._move(self.known.near)

    def ratios(self, got: np.ndarray) -> np.ndarray:
        """See ``Expected.ratios``; rows that the attention leaves open are open here, too."""
        in_rows = np.moveaxis(got, self.tokens, _ROWS)
        return self._move(self._in_rows.ratios(in_rows))

    def decisive(self) -> np.ndarray:
        """See ``Expected.decisive``."""
        return self._move(self._in_rows.decisive())
